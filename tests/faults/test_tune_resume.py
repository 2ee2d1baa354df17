"""Grids that are stopped, by Ctrl-C or a kill, and gone on with: the bits of a grid that was never stopped."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import KernelModel
from streamsvm.options import TrainOptions
from streamsvm.runs import folder
from streamsvm.runs.folder import RunFolder
from streamsvm.runs.tune import Tuning, tune
from streamsvm.system.errors import InputError
from tests.commands import Run, run  # noqa: F401
from tests.faults.instants import in_fork

RNG = np.random.default_rng(0)
X = RNG.standard_normal((240, 5)).astype(np.float32)
Y = (X @ np.array([1.0, -1.0, 0.5, 0.0, 0.0]) + 0.8 * RNG.standard_normal(240) > 0).astype(np.int64)
COSTS, FOLDS = (0.01, 0.1, 1.0), 3
LINEAR = TrainOptions(tol=1e-6, threads=1)
SMO = replace(LINEAR, solver="smo", kernel="rbf", gamma=0.2, options={"working_rows": "40"}, resident_rows=80)
SETTINGS = {"linear": LINEAR, "smo": SMO}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return ingest(X, tmp_path_factory.mktemp("rows") / "rows.zarr", Y, chunk_bytes=800)


def describe(found: Tuning) -> tuple[Any, ...]:
    return found.trials, found.best, found.passes, found.result.model_sha256, found.result.steps


def events_of(dataset: Dataset, options: TrainOptions) -> tuple[Tuning, int]:
    """An undisturbed grid, and how many steps it tells of."""
    events: list[Any] = []
    return tune(dataset, options, COSTS, folds=FOLDS, progress=events.append), len(events)


def stop_at(event: int, stop: Callable[[], Any]) -> Callable[[Any], None]:
    seen = 0

    def progress(_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == event:
            stop()

    return progress


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.slow("stops and resumes at many places")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the children begin with what they need
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("stopped_by", ["ctrl-c", "kill"])
def test_stopped_anywhere_it_goes_on_to_the_same_bits(
    name: str, stopped_by: str, thorough: bool, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first step, within the first fits of the chains, within the later ones, and in the last training."""
    options = SETTINGS[name]
    whole, n_events = events_of(dataset, options)
    if stopped_by == "kill":  # with a checkpoint after each step
        monkeypatch.setattr(folder, "CHECKPOINT_SECONDS", 0.0)
        monkeypatch.setattr(folder, "MOST_CHECKPOINT_SHARE", float("inf"))
    instants = (1, n_events // 4, n_events // 2, 3 * n_events // 4, n_events - 1, n_events)
    for at in instants if thorough else instants[1::2]:
        out, stop = tmp_path / f"{at}", interrupt if stopped_by == "ctrl-c" else lambda: os._exit(9)

        def carry_out(out: Path = out, at: int = at, stop: Callable[[], Any] = stop) -> None:
            tune(dataset, options, COSTS, folds=FOLDS, out=out, progress=stop_at(at, stop))

        assert in_fork(carry_out) in ({"ctrl-c": (2, 0), "kill": (9,)}[stopped_by])  # 0: in the last training
        seen: list[Any] = []
        resumed = tune(dataset, options, COSTS, folds=FOLDS, out=out, resume=True, progress=seen.append)
        assert describe(resumed) == describe(whole)
        n_fits = len(COSTS) * FOLDS
        assert len(seen) <= n_events - at + n_fits + 1, "what was done is not done again"
        assert seen[-1][:2] == (n_fits, n_fits)
        left = [path for path in out.rglob("*") if path.name.startswith(".")]
        assert left == []


def test_a_grid_that_has_ended_is_resumed_to_itself(dataset: Dataset, tmp_path: Path) -> None:
    first = tune(dataset, SMO, COSTS, folds=FOLDS, out=tmp_path / "run")
    assert isinstance(first.result.model, KernelModel)
    again = tune(dataset, SMO, COSTS, folds=FOLDS, out=tmp_path / "run", resume=True)
    assert describe(again) == describe(first)
    n_fits = len(list((tmp_path / "run" / "grid").glob("fold*-C*-gamma*")))
    assert n_fits == len(COSTS) * FOLDS


@pytest.mark.parametrize(
    ("change", "costs", "folds", "message"),
    [
        ({}, (0.01, 1.0), FOLDS, r"run/grid: cannot be resumed with other settings: C was \[0.01, 0.1, 1.0\], now"),
        ({}, COSTS, 4, "folds was 3, now 4"),
        ({"seed": 1}, COSTS, FOLDS, "seed was 0, now 1"),
        ({"solver": "interior-point"}, COSTS, FOLDS, "solver was 'cutting-plane', now 'interior-point'"),
        ({"tol": 1e-3}, COSTS, FOLDS, r"fold0-C0\.01: cannot be resumed with other settings: tol was 1e-06, now"),
    ],
)
def test_another_grid_is_refused(
    change: dict[str, Any], costs: tuple[float, ...], folds: int, message: str, dataset: Dataset, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        tune(dataset, LINEAR, COSTS, folds=FOLDS, out=out, progress=stop_at(2, interrupt))
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=message):
        tune(dataset, replace(LINEAR, **change), costs, folds=folds, out=out, resume=True)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_from_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are known again by their values."""
    given: dict[str, Any] = {"C": COSTS, "folds": FOLDS, "threads": 1, "options": {"acceleration": "line-search"}}
    whole = streamsvm.tune(X, Y, **given)
    given["out"] = tmp_path / "run"
    with monkeypatch.context() as patch:
        record, seen = RunFolder.record, []

        def stop(self: RunFolder, line: dict[str, Any]) -> None:
            record(self, line)
            seen.append(line)
            if len(seen) == 20:
                raise KeyboardInterrupt

        patch.setattr(RunFolder, "record", stop)
        with pytest.raises(KeyboardInterrupt):
            streamsvm.tune(X, Y, **given)
    with pytest.raises(InputError, match="fingerprint was"):
        streamsvm.tune(X[::-1].copy(), Y, resume=True, **given)
    assert describe(streamsvm.tune(X.copy(), Y.tolist(), resume=True, **given)) == describe(whole)


def test_from_the_command_line(run: Run, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["tune", dataset.path, "--C", "0.01,0.1,1", "--folds", "3", "--json", "--out"]
    whole = run(*command, tmp_path / "whole").result
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("streamsvm.cli.train.show_grid", lambda *_: interrupt())
        ran = run(*command, out)
    assert (ran.code, ran.err) == (1, "streamsvm tune: interrupted; continue with the same command and --resume\n")
    assert [path.name for path in out.iterdir()] == ["grid"]
    refused = run(*command, out)
    assert (refused.code, "already holds a run of a grid; resume it with --resume" in refused.err) == (2, True)
    refused = run("train", dataset.path, "--out", out)
    assert (refused.code, "holds no run (grid)" in refused.err) == (2, True)
    resumed = run(*command, out, "--resume")
    assert resumed.code == 0
    assert (resumed.result["model_sha256"], resumed.result["trials"]) == (whole["model_sha256"], whole["trials"])
    assert json.loads((out / "tuning.json").read_text()) == resumed.result
    other = run("tune", dataset.path, "--C", "0.1,1", "--folds", "3", "--json", "--out", out, "--overwrite")
    assert (other.code, [trial["C"] for trial in other.result["trials"]]) == (0, [0.1, 1.0])
    assert {path.name for path in (out / "grid").iterdir()} == {
        "settings.json",
        *(f"fold{k}-C{C}" for k in range(3) for C in (0.1, 1.0)),
    }


def test_what_is_no_grid(run: Run, dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    (out / "grid").mkdir(parents=True)
    (out / "grid" / "mine.txt").write_text("mine")
    command = ["tune", dataset.path, "--C", "0.1,1", "--folds", "3", "--out", out]
    for more in ([], ["--resume"], ["--overwrite"]):
        ran = run(*command, *more)
        assert (ran.code, "grid: is not a grid of streamsvm" in ran.err) == (2, True)
    assert [path.name for path in out.rglob("*")] == ["grid", "mine.txt"]
    assert run("train", dataset.path, "--out", tmp_path / "trained").code == 0
    ran = run(*command[:-1], tmp_path / "trained", "--resume")
    assert (ran.code, "already holds a run that `tune` did not write" in ran.err) == (2, True)
