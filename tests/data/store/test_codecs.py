"""Codecs: a list of allowed ones, for Zarr 2 and 3, looked at before anything is decoded."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numcodecs.registry
import numpy as np
import pytest
import zarr

from streamsvm.cli import main
from streamsvm.data.open import open_dataset
from streamsvm.data.store import zarr_arrays
from streamsvm.system.errors import InputError, IntegrityError
from tests.data.conftest import Write
from tests.data.forging import edit_manifest

MARK = "the data ran code"


class Evil:
    """Leaves a folder behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.mkdir, (self.path / MARK,)


def make_anndata(path: Path, **metadata: Any) -> Path:
    """Ten rows of Zarr 2; metadata: of obs/cell, a column of texts whose only chunk is a pickle."""
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    group.create_array("X", data=np.eye(10, 3, dtype=np.float32))
    group.create_group("obs")
    column = path / "obs" / "cell"
    column.mkdir()
    plain: dict[str, Any] = {
        "zarr_format": 2,
        "shape": [10],
        "chunks": [10],
        "dtype": "|O",
        "compressor": None,
        "fill_value": "",
        "order": "C",
        "filters": None,
    }
    (column / ".zarray").write_text(json.dumps(plain | metadata))
    (column / ".zattrs").write_text("{}")
    (column / "0").write_bytes(pickle.dumps(Evil(path)))
    return path


PICKLE = {"id": "pickle", "protocol": 5}
TEXTS = {"id": "vlen-utf8"}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    "metadata",
    [
        {"compressor": PICKLE, "filters": [TEXTS]},
        {"filters": [PICKLE]},
        {"filters": [TEXTS, PICKLE]},
        {"filters": [PICKLE, TEXTS], "compressor": {"id": "zlib", "level": 1}},
    ],
)
def test_pickles_are_refused_by_name_whatever_numcodecs_knows(
    metadata: Any, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:
        monkeypatch.delitem(numcodecs.registry.codec_registry, "pickle")
    path = make_anndata(tmp_path / "a.zarr", **metadata)
    with pytest.raises(InputError, match=r"a\.zarr/obs/cell: the codec 'pickle' is not allowed") as caught:
        open_dataset(path, "cell")
    assert not isinstance(caught.value, IntegrityError)
    assert "vlen-utf8" in str(caught.value)
    assert not (path / MARK).exists()


@pytest.mark.parametrize("codec", ["json2", "msgpack2", "categorize", "vlen-array", "base64", "nobody's"])
def test_codecs_that_are_not_on_the_list_are_refused(codec: str, tmp_path: Path) -> None:
    path = make_anndata(tmp_path / "a.zarr", filters=[{"id": codec}])
    with pytest.raises(InputError, match=f"a.zarr/obs/cell: the codec {codec!r} is not allowed"):
        open_dataset(path, "cell")


@pytest.mark.parametrize(
    "listed",
    [
        [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "numcodecs.pickle", "configuration": {}}],
        [{"name": "numcodecs.json2"}],
        ["pickle"],
        [{"name": "sharding_indexed", "configuration": {"chunk_shape": [5], "codecs": [{"name": "evil"}]}}],
        [{"name": "sharding_indexed", "configuration": {"chunk_shape": [5], "index_codecs": [{"name": "evil"}]}}],
    ],
)
def test_codecs_of_zarr_3_are_refused_at_any_depth(listed: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    group.create_array("X", data=np.eye(10, 3, dtype=np.float32))
    group.create_group("obs").create_array("cell", data=np.arange(10))
    file = path / "obs" / "cell" / "zarr.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"codecs": listed}))
    with pytest.raises(InputError, match=r"a\.zarr/obs/cell: the codec '.*(pickle|json2|evil)' is not allowed"):
        open_dataset(path, "cell")


def test_nothing_but_the_codec_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consolidated metadata, which say that all is well, are not believed."""
    path = make_anndata(tmp_path / "a.zarr", filters=[TEXTS])
    zarr.consolidate_metadata(str(path), zarr_format=2)
    shutil.rmtree(path / "obs" / "cell")
    make_anndata(tmp_path / "b.zarr", filters=[TEXTS], compressor=PICKLE)
    shutil.move(tmp_path / "b.zarr" / "obs" / "cell", path / "obs" / "cell")
    assert (path / ".zmetadata").exists()
    with pytest.raises(InputError, match="codec 'pickle' is not allowed"):
        open_dataset(path, "cell")


@pytest.mark.parametrize("name", ["filters", "shards"])
def test_what_anndata_writes_is_allowed(name: str, tmp_path: Path) -> None:
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=3)
    X = np.arange(30, dtype=np.float32).reshape(10, 3)
    how: dict[str, Any] = {"shards": (10, 3), "chunks": (5, 3)} if name == "shards" else {"chunks": (5, 3)}
    group.create_array("X", data=X, **how)
    obs = group.create_group("obs")
    column = obs.create_array("cell", shape=(10,), dtype=str)
    column[:] = np.array([f"kind {i % 2}" for i in range(10)], np.dtypes.StringDType())
    dataset = open_dataset(tmp_path / "a.zarr", "cell")
    np.testing.assert_array_equal(dataset.read(0).X, X)
    assert dataset.classes is not None
    assert dataset.classes.tolist() == ["kind 0", "kind 1"]


def test_codecs_of_a_dataset_are_on_the_list_too(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "d.zarr"
    write(np.ones((4, 2), np.float32), to=path)
    file = path / "X" / "zarr.json"
    about = json.loads(file.read_text())
    about["codecs"].insert(1, {"name": "numcodecs.pickle", "configuration": {}})
    file.write_text(json.dumps(about))
    edit_manifest(path, lambda meta: meta["arrays"]["X"].update(codecs=about["codecs"]))
    with pytest.raises(IntegrityError, match=r"d\.zarr/X: the codec 'numcodecs.pickle' is not allowed"):
        open_dataset(path)


@pytest.mark.parametrize("label", ["../X", "..", ".", "", "a/../../X", "/etc", "a//b"])
def test_labels_do_not_lead_out_of_their_folder(label: str, tmp_path: Path) -> None:
    path = make_anndata(tmp_path / "a.zarr", filters=[TEXTS])
    (path / "obs" / "a").mkdir()
    with pytest.raises(InputError, match="obs"):
        open_dataset(path, label)


def test_the_command_line_says_it_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], restored_signals: None
) -> None:
    path = make_anndata(tmp_path / "a.zarr", compressor=PICKLE, filters=[TEXTS])
    assert main.main(["info", str(path), "--label", "cell"]) == 2
    complaint = capsys.readouterr().err
    assert f"{path}/obs/cell: the codec 'pickle'" in complaint
    assert complaint.count("\n") == 1


def test_every_codec_that_we_write_is_on_the_list() -> None:
    from streamsvm.ingestion.write import CODECS

    written = {codec.to_dict()["name"] for kinds in CODECS.values() for codec in kinds}
    assert written <= zarr_arrays.ALLOWED
    assert not {"pickle", "json2", "msgpack2"} & zarr_arrays.ALLOWED
