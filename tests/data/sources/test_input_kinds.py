"""Rows that lie elsewhere: in files of Zarr and HDF5, in blocks that come one by one, in frames, tensors and AnnData.

Each kind gives the rows of the NumPy array that it was made of, and stored arrays are read chunk by chunk. The packages
of some kinds are extras of their own (`pip install 'streamsvm[bench]'` has them); without them these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr
from scipy.sparse import csr_array, csr_matrix
from sklearn.svm import LinearSVC as SklearnLinearSVC

from streamsvm import LinearSVC, ingest
from streamsvm.data.sources.arrays import find_pieces
from streamsvm.models.model import load
from streamsvm.models.score import score
from streamsvm.system.errors import InputError
from tests.commands import Run, run

__all__ = ["run"]

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(300, 5)).astype(np.float32)
Y = np.where(X[:, 0] + 0.1 * RANDOM.normal(size=300) > 0, "up", "down")
NAMES = list("abcde")
FRAME = pd.DataFrame(X, columns=NAMES).assign(kind=Y)
STARTS = range(0, 300, 70)
Kind = Callable[[Path], tuple[Any, dict[str, Any]]]


def in_zarr(folder: Path) -> tuple[Any, dict[str, Any]]:
    return zarr.create_array(folder / "X.zarr", data=X, chunks=(64, 5)), {"y": Y}


def in_hdf5(folder: Path) -> tuple[Any, dict[str, Any]]:
    h5py = pytest.importorskip("h5py", reason="reading HDF5 needs h5py")
    file = h5py.File(folder / "X.h5", "w")
    text = h5py.string_dtype()
    return file.create_dataset("X", data=X, chunks=(64, 5)), {
        "y": file.create_dataset("y", data=Y.astype(object), dtype=text)
    }


def in_tensors(folder: Path) -> tuple[Any, dict[str, Any]]:
    torch = pytest.importorskip("torch", reason="tensors need PyTorch")
    return torch.tensor(X, requires_grad=True), {"y": Y}


def in_pairs(folder: Path) -> tuple[Any, dict[str, Any]]:
    return ((X[k : k + 70], Y[k : k + 70]) for k in STARTS), {}


def in_lists_of_sparse_rows(folder: Path) -> tuple[Any, dict[str, Any]]:
    return iter([[csr_array(X[k : k + 70]), Y[k : k + 70]] for k in STARTS]), {}


def in_frames(folder: Path) -> tuple[Any, dict[str, Any]]:
    return (FRAME[k : k + 70] for k in STARTS), {"label": "kind"}


def in_batches_of_arrow(folder: Path) -> tuple[Any, dict[str, Any]]:
    return iter(pa.Table.from_pandas(FRAME).to_batches(70)), {"label": "kind"}


def in_lists_of_arrow(folder: Path) -> tuple[Any, dict[str, Any]]:
    lists = pa.table({"x": X.tolist(), "kind": Y})
    return lists, {"label": "kind"}


def in_lists_of_one_length(folder: Path) -> tuple[Any, dict[str, Any]]:
    return pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 5)}), {"y": Y}


def in_polars(folder: Path) -> tuple[Any, dict[str, Any]]:
    polars = pytest.importorskip("polars", reason="frames of polars need polars")
    return polars.from_pandas(FRAME), {"label": "kind"}


def in_hugging_face(folder: Path) -> tuple[Any, dict[str, Any]]:
    datasets = pytest.importorskip("datasets", reason="data sets of Hugging Face need datasets")
    return datasets.Dataset(pa.table({"x": X.tolist(), "kind": Y})), {"label": "kind"}


def in_anndata(folder: Path) -> tuple[Any, dict[str, Any]]:
    anndata = pytest.importorskip("anndata", reason="AnnData objects need anndata")
    obs, var = FRAME[["kind"]].set_axis([f"c{i}" for i in range(300)]), pd.DataFrame(index=NAMES)
    return anndata.AnnData(csr_matrix(X), obs, var), {"label": "kind"}


def in_h5ad(folder: Path) -> tuple[Any, dict[str, Any]]:
    data, given = in_anndata(folder)
    data.write_h5ad(folder / "X.h5ad")
    return str(folder / "X.h5ad"), given


KINDS: list[Kind] = [
    in_zarr,
    in_hdf5,
    in_tensors,
    in_pairs,
    in_lists_of_sparse_rows,
    in_frames,
    in_batches_of_arrow,
    in_lists_of_arrow,
    in_lists_of_one_length,
    in_polars,
    in_hugging_face,
    in_anndata,
    in_h5ad,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_the_rows_are_those_of_the_array(tmp_path: Path, kind: Kind) -> None:
    source, given = kind(tmp_path)
    dataset = ingest(source, tmp_path / "rows.zarr", **given, shuffle=None)
    rows = [dataset.read(index) for index in range(dataset.n_chunks)]
    found = np.concatenate([each.X.to_dense() if hasattr(each.X, "to_dense") else _dense(each.X) for each in rows])
    np.testing.assert_array_equal(found, X)
    assert dataset.classes is not None
    codes = np.concatenate([each.y for each in rows if each.y is not None])
    np.testing.assert_array_equal(dataset.classes[codes], Y)


def _dense(rows: Any) -> Any:
    if isinstance(rows, np.ndarray):
        return rows
    return csr_array((rows.data, rows.indices, rows.indptr), rows.shape).toarray()


@pytest.mark.parametrize("kind", [in_zarr, in_hdf5, in_tensors])
def test_estimators_take_them(tmp_path: Path, kind: Kind) -> None:
    rows, given = kind(tmp_path)
    model = LinearSVC(C=0.1, loss="squared_hinge", tol=1e-8).fit(rows, given["y"])
    other = SklearnLinearSVC(C=0.1, tol=1e-8, max_iter=100_000).fit(X, Y)
    np.testing.assert_allclose(model.decision_function(rows), other.decision_function(X), atol=1e-4)
    assert model.predict(rows).tolist() == other.predict(X).tolist()


def test_bfloat16_is_widened(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="tensors need PyTorch")
    tensor = torch.tensor(X).bfloat16()
    model = LinearSVC().fit(tensor, Y)
    np.testing.assert_array_equal(model.decision_function(tensor), model.decision_function(tensor.float().numpy()))


def test_stored_arrays_are_read_in_whole_chunks(tmp_path: Path) -> None:
    """Every chunk is read once, and no more than a chunk at a time, whatever the size of the pieces."""
    array = zarr.create_array(tmp_path / "X.zarr", data=X, chunks=(64, 5))
    read: list[tuple[int, int]] = []

    class Watched:
        shape, chunks, dtype = array.shape, array.chunks, array.dtype

        def __getitem__(self, rows: slice) -> Any:
            read.append((rows.start, rows.stop))
            return array[rows]

    Watched.__module__ = "zarr.watched"
    pieces = list(find_pieces("X", Watched(), piece_bytes=10 * 5 * 8))
    assert read == [(0, 64), (64, 128), (128, 192), (192, 256), (256, 300)]
    assert {len(piece) for piece in pieces} <= {10, 4}
    np.testing.assert_array_equal(np.concatenate(pieces), X)


def test_integers_in_a_memory_map_are_not_converted_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = np.memmap(tmp_path / "X", np.int8, "w+", shape=(300, 5))
    mapped[:] = X * 30
    monkeypatch.setattr("streamsvm.estimators.inputs.validate", lambda *_, **__: pytest.fail("converted whole"))
    model = LinearSVC().fit(mapped, Y)
    assert model.n_features_in_ == 5


def pair_without_labels() -> Iterator[Any]:
    yield X[:5], Y[:5]
    yield X[5:10]


@pytest.mark.parametrize(
    ("blocks", "given", "message"),
    [
        (lambda: iter([]), {}, "X: no rows"),
        (pair_without_labels, {}, r"X: block 2 is not a pair \(X, y\)"),
        (lambda: iter([(X[:5], Y[:4])]), {}, "y, block 1: has 4 rows, but X, block 1 has 5"),
        (lambda: iter([X[:5], X[:5, :4]]), {}, "X: row 6 has 4 columns, but earlier rows have 5"),
        (lambda: iter([X[:5]]), {"y": Y}, r"label: remove it, since X is an iterator of blocks"),
        (lambda: iter([X[:5]]), {"label": "kind"}, "X: block 1 is a ndarray"),
        (lambda: iter([FRAME, FRAME.drop(columns="a")]), {"label": "kind"}, "block 2 differs in its columns"),
        (lambda: iter([FRAME[NAMES], FRAME[NAMES[::-1]]]), {}, "block 2 differs in its columns"),
        (
            lambda: pa.table({"x": [[1.0, 2.0], [3.0]]}),
            {"y": [0, 1]},
            "column x: a list of 1 values; earlier lists have 2",
        ),
    ],
)
def test_blocks_that_are_refused(
    tmp_path: Path, blocks: Callable[[], Any], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        ingest(blocks(), tmp_path / "rows.zarr", **given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_h5ad_on_the_command_line(run: Run, tmp_path: Path) -> None:
    path, _ = in_h5ad(tmp_path)
    ran = run("ingest", path, tmp_path / "rows.zarr")
    assert (ran.code, ran.out) == (2, "")
    assert "name the label column of obs by --label COLUMN" in ran.err
    assert (
        "no column 'sort' in obs, the label; there are kind"
        in run("ingest", path, tmp_path / "rows.zarr", "--label", "sort").err
    )
    assert run("ingest", path, tmp_path / "rows.zarr", "--label", "kind").code == 0
    assert run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run").code == 0
    assert run("evaluate", tmp_path / "run", path, "--json").result["accuracy"] > 0.95
    assert run("predict", tmp_path / "run", path, "--out", tmp_path / "p.csv").code == 0
    assert pd.read_csv(tmp_path / "p.csv")["name"].tolist() == [f"c{i}" for i in range(300)]
    (part,) = score(load(tmp_path / "run"), path)
    np.testing.assert_allclose(part.scores, np.concatenate([p.scores for p in score(load(tmp_path / "run"), path)]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_variables_go_by_their_names(tmp_path: Path) -> None:
    data, given = in_anndata(tmp_path)
    model = LinearSVC().fit(ingest(data, tmp_path / "rows.zarr", **given)).model_
    order = [3, 1, 4, 0, 2]
    data[:, order].copy().write_h5ad(tmp_path / "other.h5ad")
    (part,) = score(model, tmp_path / "other.h5ad")
    np.testing.assert_allclose(part.scores, model.decide(X), rtol=1e-6, atol=1e-6)
    data[:, [0, 2]].copy().write_h5ad(tmp_path / "few.h5ad")
    with pytest.raises(InputError, match="no variable 'b', which is a feature of the model"):
        list(score(model, tmp_path / "few.h5ad"))
