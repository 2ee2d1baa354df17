"""Models, predictions and exported files in an object store: the bytes of the local files, or a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm
from streamsvm import SVC, InteriorPoint, LinearSVC
from streamsvm.models.exports.export import export
from streamsvm.options import TrainOptions
from streamsvm.runs.features import make_features
from streamsvm.runs.folder import GridFolder
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.errors import InputError, WriteError
from tests.commands import Run, run
from tests.object_server import ObjectServer

__all__ = ["run"]
X = np.random.default_rng(0).normal(size=(60, 3))
Y = np.arange(60) % 2
LOCAL_ONLY = "a path on a local disk is required, not one in an object store"


@pytest.fixture
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LinearSVC:
    """A fitted estimator, in a working folder without any file."""
    monkeypatch.chdir(tmp_path)
    return LinearSVC().fit(X, Y)


@pytest.mark.parametrize("name", ["model", "folder/model.npz", "50%25.npz"])
def test_a_model_is_saved_as_one_object(name: str, fitted: LinearSVC, server: ObjectServer, tmp_path: Path) -> None:
    fitted.save(f"s3://bucket/{name}")
    fitted.save(tmp_path / "local.npz")
    assert server.objects == {f"bucket/{name}": (tmp_path / "local.npz").read_bytes()}
    assert [file.name for file in tmp_path.iterdir()] == ["local.npz"]
    np.testing.assert_array_equal(streamsvm.load(f"s3://bucket/{name}").coef_, fitted.coef_)  # type: ignore[union-attr]
    fitted.save(f"s3://bucket/{name}")  # an older object is replaced, as an older file is


@pytest.mark.parametrize("ending", ["csv", "parquet", "npy"])
def test_predictions_are_written_as_one_object(
    ending: str, fitted: LinearSVC, server: ObjectServer, tmp_path: Path, run: Run
) -> None:
    np.savetxt("rows.csv", X, delimiter=",")
    fitted.save("model.npz")
    for out in (f"s3://bucket/out.{ending}", f"out.{ending}", f"s3://bucket/out.{ending}"):
        ran = run("predict", "model.npz", "rows.csv", "--out", out)
        assert (ran.code, ran.out) == (0, f"{out}: 60 predictions\n")
    assert server.objects == {f"bucket/out.{ending}": (tmp_path / f"out.{ending}").read_bytes()}


def test_a_model_is_exported_as_one_object(fitted: LinearSVC, server: ObjectServer, tmp_path: Path, run: Run) -> None:
    fitted.save("model.npz")
    words = ("export", "model.npz", "--to", "json", "--out")
    assert run(*words, "local.json").code == run(*words, "s3://bucket/model.json").code == 0
    assert server.objects == {"bucket/model.json": (tmp_path / "local.json").read_bytes()}
    ran = run(*words, "s3://bucket/model.json")
    assert (ran.code, ran.out) == (2, "")
    assert "s3://bucket/model.json: already exists; remove it, choose another name" in ran.err
    assert run(*words, "s3://bucket/model.json", "--overwrite").code == 0


def test_a_file_that_cannot_be_put_leaves_nothing(
    fitted: LinearSVC, server: ObjectServer, tmp_path: Path, run: Run
) -> None:
    server.fault = lambda request: "500" if request.method == "PUT" else None
    with pytest.raises(WriteError, match=r"^s3://bucket/model\.npz: cannot be written: "):
        fitted.save("s3://bucket/model.npz")
    assert server.objects == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("s3://bucket/out.zarr", LOCAL_ONLY),
        ("s3://bucket/rows.csv", "is read by this command, and would be replaced; choose another name to write to"),
        ("https://host/out.csv", "an http URL can be read only; write to s3://, gs:// or az://"),
        ("s3://bucket/out.csv/", "this URL names a folder, but a file is required; add its name"),
    ],
)
def test_what_a_store_cannot_take_is_refused(
    out: str, message: str, fitted: LinearSVC, server: ObjectServer, tmp_path: Path, run: Run
) -> None:
    fitted.save("model.npz")
    server.objects["bucket/rows.csv"] = b"1,2,3\n"
    ran = run("predict", "model.npz", "s3://bucket/rows.csv", "--out", out)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"streamsvm predict: {out[:12]}")
    assert message in ran.err
    assert server.objects == {"bucket/rows.csv": b"1,2,3\n"}
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]


def fit_on_features(url: str, _: LinearSVC) -> Any:
    return SVC(checkpoint=url, solver=InteriorPoint(n_components=5)).fit(X, Y)


def open_grid(url: str, _: LinearSVC) -> Any:
    return GridFolder(url, {}, False, False)


def write_features(url: str, _: LinearSVC) -> Any:
    data = streamsvm.ingest(X, "rows.zarr", Y)
    return make_features(data, url, FeatureOptions(), TrainOptions(kernel="rbf"))


@pytest.mark.parametrize("write", [fit_on_features, open_grid, write_features])
def test_folders_that_only_a_disk_takes_are_refused(write: Any, fitted: LinearSVC, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^s3://bucket/folder: {LOCAL_ONLY}$"):
        write("s3://bucket/folder", fitted)
    assert not (tmp_path / "s3:").exists()


def test_functions_take_urls_where_commands_do(fitted: LinearSVC, server: ObjectServer) -> None:
    export(fitted.model_, "s3://bucket/model.json", "json")
    assert list(server.objects) == ["bucket/model.json"]
