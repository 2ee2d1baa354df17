"""`streamsvm features`: input that is refused, and maps that are damaged."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm import LinearSVC
from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import load
from streamsvm.runs.features import make_features
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.errors import InputError
from tests.commands import Run, data, run, text, trained  # noqa: F401
from tests.conftest import make_problem
from tests.kernel_problems import KINDS, ask_for

BAD = {
    "map": (["--map", "magic"], "invalid choice: 'magic'"),
    "rank": (["--rank", "0"], "a whole number of at least 1"),
    "rank of polynomial": (["--map", "polynomial", "--rank", "3"], "--rank has no effect with --map polynomial"),
    "kernel of polynomial": (["--map", "polynomial", "--kernel", "rbf"], "--kernel has no effect with --map poly"),
    "kernel": (["--kernel", "sigmoid"], "not positive semidefinite"),
    "gamma": (["--gamma", "-1"], "gamma is -1.0"),
    "memory": (["--memory", "20MB"], "but the budget is 20.0 MB: raise --memory to at least"),
    "memory of polynomial": (
        ["--map", "polynomial", "--memory", "20MB"],
        "use fewer --threads (n_jobs=... in Python), a lower --rank or a sm",
    ),
    "size": (["--chunk-bytes", "much"], "'much' is not a size in bytes"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(run: Run, data: Path, tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message, status 2, nothing left, and not a row was read."""
    arguments, message = BAD[case]
    for name in ("tiles", "read", "take"):
        monkeypatch.setattr(Dataset, name, lambda *_: pytest.fail("the rows were touched"))
    ran = run("features", data, tmp_path / "f.zarr", *arguments)
    assert ran.code == 2
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert list(tmp_path.iterdir()) == []


def test_more_bad_input(run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "f.zarr"
    assert "no such dataset" in run("features", tmp_path / "none.zarr", made).err
    assert run("features", data, made, "--rank", "3").code == 0
    monkeypatch.setattr(Dataset, "tiles", lambda *_: pytest.fail("the rows were touched"))
    for source, destination, message in (
        (data, made, "f.zarr: already exists"),
        (made, tmp_path / "g.zarr", "f.zarr: these rows are already features"),
        (data, data / "zarr.json" / "g.zarr", "zarr.json: is a file, so it cannot contain"),
    ):
        ran = run("features", source, destination)
        assert (ran.code, message in ran.err) == (2, True), ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["f.zarr"]
    for method in ("interior-point", "cutting-plane"):
        ran = run("train", data, "--solver", method, "--kernel", "rbf", "--out", tmp_path / "run")
        assert (ran.code, "`streamsvm features`" in ran.err) == (2, True)


def test_a_damaged_map_is_found(data: Path, tmp_path: Path, run: Run) -> None:
    assert run("features", data, tmp_path / "f.zarr", "--rank", "8").code == 0
    chunk = tmp_path / "f.zarr" / "features" / "matrix" / "c" / "0" / "0"
    content = bytearray(chunk.read_bytes())
    content[11] ^= 4
    chunk.write_bytes(content)
    ran = run("train", tmp_path / "f.zarr", "--out", tmp_path / "run")
    assert (ran.code, "features/matrix/c/0/0" in ran.err) == (2, True)


@pytest.mark.parametrize("density", [1.0, 0.2])
def test_model_files_whose_map_is_no_map(tmp_path: Path, density: float) -> None:
    source = make_problem(6, density=density).store(tmp_path / "d.zarr")
    made = make_features(source, tmp_path / "f.zarr", FeatureOptions("nystrom", 8), ask_for(KINDS["rbf"])).dataset
    LinearSVC().fit(made).save(tmp_path / "model.npz")
    arrays = dict(np.load(tmp_path / "model.npz", allow_pickle=False))
    about = json.loads(str(arrays["about"]))
    wrong: list[dict[str, Any]] = [
        {"features_matrix": arrays["features_matrix"][:-1]},
        {"features_matrix": arrays["features_matrix"][:, :-1]},
        {"about": json.dumps({**about, "features": {**about["features"], "d": 5}})},
        {"about": json.dumps({**about, "features": {**about["features"], "kernel": {"name": "magic"}}})},
    ]
    if density < 1:
        wrong.append({"features_indices": arrays["features_indices"] + 6})
    for change in wrong:
        np.savez(tmp_path / "wrong.npz", **{**arrays, **change})
        with pytest.raises(InputError, match="not a model of streamsvm"):
            load(tmp_path / "wrong.npz")
