"""Datasets, models and run folders that streamsvm wrote at commit 5a03acf1 open, verify, predict and resume as then."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.compat import write_stored as stored

ARCHIVE = Path(__file__).parent / "stored-5a03acf1.tar.xz"
# Frames and files have the names of features that arrays lack.
pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")

RUNS, INTERRUPTED = stored.split_lines(stored.RUNS, 3), stored.split_lines(stored.INTERRUPTED, 4)
RESUMED = [name for name, (_, passes, _) in RUNS.items() if passes != "-"]
NEAR = 1e-6  # relative, where processors and libraries may round otherwise
FAR = 1e-3  # relative, of objectives, which are proved to their tolerance only

# What later commits changed on purpose. Float64 rows are scaled before they are rounded to float32:
SCALED_LATER = {"hinge-scaled"}
# Other steps lead to the optimum, by an interior-point method for classes, and by more precise sums for kernels; by a
# model of all pairs for rankings, by the rows near their kinks for regressions, and by Newton's method for few rows:
OTHER_STEPS = {"joint-kernel", "tube-nu", "kernel-poly", "rank", "rank-two", "rank-roc-area", "tube", "fit-regression"}
OTHER_STEPS |= {"hinge-one-read", "hinge-block-ascent", "hinge-three"}
# Newton's method on the rows in memory starts at another width in a run that was stopped before its first step:
OTHER_SUMS = {"map"}
LAST_BITS = 1e-14

# These runs have found a map, whose last bits are a part of the fingerprint that `--resume` compares.
MAPPED = {"hinge-map", "grid-map"}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the older code said of the files, which are in `folder`, and whether this machine computes the same bits."""
    folder = tmp_path_factory.mktemp("stored")
    with tarfile.open(ARCHIVE) as file:
        file.extractall(folder, filter="data")
    found = json.loads((folder / "told.json").read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found["is_same"] = found["arithmetic"] == stored.tell_arithmetic("resumed/arithmetic")
    return {**found, "folder": folder}


@pytest.fixture(autouse=True)
def _within(told: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(told["folder"])


def require_equal(found: Any, recorded: Any, near: float | None, where: str = "") -> None:
    """Require the same values; numbers may differ by this share of themselves. None: by nothing."""
    if isinstance(recorded, dict):
        assert found.keys() == recorded.keys(), where
        for name, value in recorded.items():
            require_equal(found[name], value, near, f"{where} {name}")
    elif isinstance(recorded, list):
        assert len(found) == len(recorded), where
        for k, value in enumerate(recorded):
            require_equal(found[k], value, near, f"{where} {k}")
    elif near is not None and isinstance(recorded, float):
        assert found == pytest.approx(recorded, rel=near, abs=near), where
    else:
        assert found == recorded, where


def skip_other_map(told: dict[str, Any], name: str) -> None:
    """Skip a run that only processors and libraries of the same arithmetic can go on with."""
    if name in MAPPED and not told["is_same"]:
        pytest.skip("the map that this machine finds has other last bits")


def require_same_end(found: dict[str, Any], recorded: dict[str, Any], has_same_bits: bool) -> None:
    """Require the end of a run: of the same bits, or of the same status, an objective and a lower bound near it.

    Bounds of rounding were derived anew since, and the lower bound of a run has room for them.
    """
    found = {**json.loads(json.dumps(found)), "rounding_bound": recorded["rounding_bound"]}
    if has_same_bits:
        assert found == recorded
        return
    assert found["status"] == recorded["status"]
    for name in ("objective", "lower_bound"):
        require_equal(found[name], recorded[name], FAR, name)


@pytest.mark.parametrize("name", stored.list_datasets())
def test_a_dataset_is_verified_and_has_its_fingerprint(told: dict[str, Any], name: str) -> None:
    recorded, found = told["datasets"][name], stored.tell_dataset(name)
    assert {key: found[key] for key in recorded} == recorded


@pytest.mark.parametrize("name", RUNS)
def test_a_model_predicts(told: dict[str, Any], name: str) -> None:
    has_same_bits = told["is_same"] and name not in SCALED_LATER
    found = stored.tell_model(Path("runs", name), RUNS[name][0])
    require_equal(found, told["runs"][name]["model"], None if has_same_bits else NEAR)


@pytest.mark.parametrize("name", RUNS)
def test_a_model_is_verified(told: dict[str, Any], name: str) -> None:
    """Bounds of rounding were derived anew since; they are a part of the lower bound, and so of the gap."""
    recorded, found = told["runs"][name]["verified"], stored.verify(Path("runs", name), RUNS[name][0])
    if recorded is None:
        assert found is None
        return
    assert found is not None
    of_rounding = {"lower_bound", "relative_gap", "rounding_bound"}
    exact, near = ({key for key in recorded if (key in of_rounding) == part} for part in (False, True))
    require_equal(*({key: each[key] for key in exact} for each in (found, recorded)), None if told["is_same"] else NEAR)
    require_equal(*({key: each[key] for key in near} for each in (found, recorded)), NEAR)


@pytest.mark.slow("goes on with every stored run")
@pytest.mark.parametrize("name", RESUMED)
def test_a_stopped_run_goes_on_to_the_same_end(told: dict[str, Any], name: str) -> None:
    """The older code refused its own checkpoints of kernels without a lower bound; they lead to the whole run's end."""
    skip_other_map(told, name)
    (data, _, options), recorded = RUNS[name], told["runs"][name]
    end = {**recorded["ended"], "model": recorded["model"]} if "error" in recorded["resumed"] else recorded["resumed"]
    stopped, resumed = Path("stopped", name), Path("resumed", name)
    found = stored.go_on(stopped, resumed, ["train", f"{data}.zarr", *options.split(), "--out", str(resumed)], data)
    require_same_end(found, end, told["is_same"] and name not in OTHER_STEPS | SCALED_LATER)


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupted_command_goes_on_to_the_same_end(told: dict[str, Any], name: str) -> None:
    skip_other_map(told, name)
    resumed = Path("resumed", name)
    shutil.copytree(Path("stopped", name), resumed)
    found = stored.do(*stored.fill_in(INTERRUPTED[name][-1], resumed / "out"), "--resume")
    end, recorded = json.loads(json.dumps(stored.tell_result(found))), told["interrupted"][name]
    if told["is_same"] and name in OTHER_SUMS:
        require_equal({**end, "rounding_bound": recorded["rounding_bound"]}, recorded, LAST_BITS)
        return
    require_same_end(end, recorded, told["is_same"])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # budgeted SGD ends after its epochs
@pytest.mark.parametrize("name", stored.FITS)
def test_an_estimator_goes_on_from_its_checkpoint(told: dict[str, Any], name: str) -> None:
    shutil.copytree(Path("stopped", name), Path("resumed", name))
    require_same_end(stored.write_fit(name, "resumed"), told["fits"][name], told["is_same"] and name not in OTHER_STEPS)


def test_a_model_is_updated_after_an_append(told: dict[str, Any]) -> None:
    """All rows are read, since the ball does not record what bounds the rounding of its sums."""
    require_same_end(stored.update(), told["updated"], has_same_bits=False)


def test_runs_and_grids_are_shown() -> None:
    for path in ("runs/hinge-line-search", "runs/kernel-pairs", "stopped/grid-ended/out"):
        for command in (("report", path, "--out", "resumed/page.html"), ("info", path, "--card")):
            status, _, err = stored.call(*command)
            assert status == 0, err
