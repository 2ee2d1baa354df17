"""AnnData `.h5ad` files, written by hand after AnnData's on-disk format: read where they lie, and trained on."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamsvm.cli.info import verify
from streamsvm.data.open import open_dataset
from streamsvm.data.sources import anndata
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError, IntegrityError
from tests.commands import Run, run  # noqa: F401
from tests.data.conftest import Collect
from tests.data.sources.test_anndata import assert_rows, make_rows

h5py = pytest.importorskip("h5py", reason="the files are written by it")
KINDS = ["csr", "dense"]
HOW: dict[str, dict[str, Any]] = {"contiguous": {}, "chunked": {"chunks": True}, "gzip": {"compression": "gzip"}}
Change = Callable[[Any], None]


def describe(node: Any, kind: str, version: str = "0.2.0", **more: Any) -> Any:
    node.attrs.update({"encoding-type": kind, "encoding-version": version, **more})
    return node


def add_texts(group: Any, name: str, values: list[str]) -> None:
    describe(group.create_dataset(name, data=values, dtype=h5py.string_dtype()), "string-array")


def write(path: Path, X: csr_array, kind: str = "csr", **how: Any) -> Path:
    n, d = X.shape
    with h5py.File(path, "w") as file:
        describe(file, "anndata", "0.1.0")
        if kind == "csr":
            group = describe(file.create_group("X"), "csr_matrix", "0.1.0", shape=np.array(X.shape))
            for name in ("data", "indices", "indptr"):
                group.create_dataset(name, data=getattr(X, name), **how)
        else:
            describe(file.create_dataset("X", data=X.toarray(), **how), "array")
        obs = describe(file.create_group("obs"), "dataframe", _index="_index")
        obs.attrs["column-order"] = np.array(["kind", "donor"], h5py.string_dtype())
        add_texts(obs, "_index", [f"cell {i}" for i in range(n)])
        add_texts(obs, "donor", [f"d{i % 4}" for i in range(n)])
        column = describe(obs.create_group("kind"), "categorical", ordered=False)
        describe(column.create_dataset("codes", data=np.arange(n).astype(np.int8) % 3), "array")
        add_texts(column, "categories", ["u", "v", "w"])
        var = describe(file.create_group("var"), "dataframe", _index="name")
        var.attrs["column-order"] = np.array([], h5py.string_dtype())
        add_texts(var, "name", [f"gene{j}" for j in range(d)])
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_rows_are_read_as_they_lie(
    kind: str, how: str, dtype: Any, tmp_path: Path, collect: Collect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anndata, "CHUNK_BYTES", 240)
    X = csr_array((1000 * make_rows(float)).astype(dtype))
    dataset = open_dataset(write(tmp_path / "a.h5ad", X, kind, **HOW[how]), "kind", "donor")
    assert dataset.is_sparse == (kind == "csr")
    assert_rows(dataset, X.toarray(), collect)
    assert dataset.classes is not None
    assert dataset.classes.tolist() == ["u", "v", "w"]
    np.testing.assert_array_equal(dataset.column("y"), np.arange(90) % 3)
    groups = dataset.read_groups().column("groups")
    assert groups is not None
    assert len(np.unique(groups)) == 4
    assert dataset.feature_names == tuple(f"gene{j}" for j in range(6))
    again = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(collect([again.take(np.arange(90))])["X"], X.toarray().astype(np.float32))
    assert verify(dataset)["verified_rows"] == 90


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_that_of_the_ingested_rows(kind: str, tmp_path: Path) -> None:
    """The rows are one chunk in the same order, so that all sums are the same."""
    path, options = write(tmp_path / "a.h5ad", make_rows(), kind), TrainOptions(C=1.0, tol=1e-6)
    before = path.read_bytes()
    copied = ingest(path, tmp_path / "copy.zarr", label="kind", shuffle=None)
    in_place, other = train(open_dataset(path, "kind"), options), train(copied, options)
    assert (in_place.status, in_place.objective) == ("converged", other.objective)
    assert path.read_bytes() == before


def test_the_command_makes_no_copy(run: Run, tmp_path: Path) -> None:  # noqa: F811
    path = write(tmp_path / "a.h5ad", make_rows())
    assert run("train", path, "--label", "kind", "--out", tmp_path / "run").code == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.h5ad", "run"]
    assert run("evaluate", tmp_path / "run", path, "--label", "kind", "--json").result["n_rows"] == 90
    ran = run("train", path, "--out", tmp_path / "other")
    assert (ran.code, "there are no labels to learn from; name their column by --label COLUMN" in ran.err) == (2, True)
    ran = run("train", path, "--label", "kinds", "--out", tmp_path / "other")
    assert (ran.code, "no column 'kinds' in obs; there are _index, donor, kind" in ran.err) == (2, True)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_change_between_two_reads_are_found(kind: str, tmp_path: Path) -> None:
    """By the checksums of what was read first, since the file has none."""
    path = write(tmp_path / "a.h5ad", make_rows(), kind)
    dataset = open_dataset(path, "kind")
    first = dataset.read(0)
    dataset.read(0)
    content = path.read_bytes()
    place = content.index((first.X.data if kind == "csr" else first.X).tobytes())  # type: ignore[union-attr]
    array = dataset.layout.arrays[0].array
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\1")
    array._dataset.id.refresh()  # type: ignore[attr-defined]
    with pytest.raises(IntegrityError, match=r"a\.h5ad/X.*: rows 0:\d+ differ from an earlier read"):
        dataset.read(0)


def test_another_file_in_its_place_is_not_taken_for_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5ad", make_rows())
    packed = pickle.dumps(open_dataset(path, "kind"))
    path.unlink()
    write(path, make_rows(np.float64))
    received = pickle.loads(packed)
    with pytest.raises(IntegrityError, match="has replaced this dataset while it was in use"):
        _ = received.n_rows


def link_outside(file: Any) -> None:
    del file["obs/kind"]
    file["obs/kind"] = h5py.ExternalLink("other.h5", "/kind")


def lead_outside(file: Any) -> None:
    """A soft link within the file, through an external one."""
    write(Path(file.filename).with_name("other.h5ad"), make_rows())
    del file["obs"]
    file["far"], file["obs"] = h5py.ExternalLink("other.h5ad", "/"), h5py.SoftLink("/far/obs")


def empty(file: Any) -> None:
    del file["obs/kind"]
    file["obs/kind"] = h5py.Empty("f4")


def type_only(file: Any) -> None:
    del file["obs"]
    file["obs"] = np.dtype("f4")


def lie_outside(file: Any) -> None:
    del file["X/data"]
    file["X"].create_dataset("data", (10,), np.float32, external=[("other.bin", 0, 40)])


def forget(file: Any) -> None:
    del file["X/indptr"]


def refer(file: Any) -> None:
    del file["obs/donor"]
    file["obs"].create_dataset("donor", data=np.zeros(90, np.int8)).attrs["categories"] = "u"


def turn(file: Any) -> None:
    file["X"].attrs["encoding-type"] = "csc_matrix"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (link_outside, "obs/kind: lies in another file, other.h5, which is not read"),
        (lead_outside, r"obs: lies in another file, .*other\.h5ad, which is not read"),
        (empty, "obs/kind: is neither a group nor an array of values"),
        (type_only, "obs: is neither a group nor an array of values"),
        (lie_outside, "X/data: its values lie in other files"),
        (forget, "X/indptr: missing"),
        (refer, "obs/donor: has the form of anndata before 0.7, which cannot be read in place: ingest the file"),
        (turn, "X: has the encoding 'csc_matrix'"),
    ],
)
def test_what_cannot_be_read_is_refused(change: Change, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5ad", make_rows())
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(InputError, match=message):
        open_dataset(path, "donor" if change is refer else "kind")


def test_attributes_of_a_fixed_length_are_texts(tmp_path: Path, collect: Collect) -> None:
    """As programs in other languages write them, and anndata reads them."""
    path = write(tmp_path / "a.h5ad", make_rows())
    with h5py.File(path, "r+") as file:
        file["X"].attrs["encoding-type"] = np.bytes_("csr_matrix")
        file["var"].attrs["_index"] = np.bytes_("name")
    dataset = open_dataset(path, "kind")
    assert_rows(dataset, make_rows().toarray(), collect)
    assert dataset.feature_names is not None
    assert dataset.feature_names[0] == "gene0"


def test_names_and_links_that_hdf5_cannot_have_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5ad", make_rows())
    with pytest.raises(InputError, match="no column '\\\\udcff' in obs"):
        open_dataset(path, "\udcff")
    content = path.read_bytes()
    path.write_bytes(content.replace(b"SNOD", b"SNOT"))  # the nodes that hold the links of the groups
    with pytest.raises(InputError, match=r"a\.h5ad/X: damaged \(.*bad symbol table node"):
        open_dataset(path, "kind")


def test_other_files_are_no_h5ad(tmp_path: Path) -> None:
    (tmp_path / "a.h5ad").write_bytes(b"no HDF5")
    with pytest.raises(InputError, match=r"a\.h5ad: is not a \.h5ad file that h5py can read"):
        open_dataset(tmp_path / "a.h5ad")
    with pytest.raises(InputError, match=r"b\.h5ad: no such dataset"):
        open_dataset(tmp_path / "b.h5ad")
