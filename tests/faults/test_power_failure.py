"""The power fails at any moment of a training or an ingest: the run goes on to the same bits, the dataset is whole."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamsvm.cli.info import verify
from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.runs import folder
from streamsvm.runs.folder import RunFolder, Saved
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from tests.conftest import make_problem
from tests.faults.instants import describe
from tests.faults.power_failures import WatchedDisk, distinct, lay_out

OPTIONS = TrainOptions(C=0.5, threads=1, options={"acceleration": "line-search"})
OTHERS = replace(OPTIONS, C=0.1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_problem(1).store(tmp_path_factory.mktemp("rows") / "rows", chunk_bytes=3000)


@pytest.fixture(autouse=True)
def _checkpoints_after_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(folder, "MOST_CHECKPOINT_SHARE", float("inf"))


def record(dataset: Dataset, tmp_path: Path, options: TrainOptions, **named: Any) -> WatchedDisk:
    """Train below tmp_path / "disk"; the note of a picture is the number of steps that a checkpoint has saved."""
    saved = SimpleNamespace(steps=0)
    disk = WatchedDisk(tmp_path / "disk", tmp_path / "aside", lambda: saved.steps)
    save = RunFolder.save

    def note(self: RunFolder, state: Saved[Any]) -> None:
        save(self, state)
        saved.steps = len(state.history)

    with pytest.MonkeyPatch.context() as patch, pytest.MonkeyPatch.context() as other:
        other.setattr(RunFolder, "save", note)
        with disk.watch(patch):
            train(dataset, options, out=tmp_path / "disk" / "run", **named)
    return disk


def go_on(dataset: Dataset, out: Path, options: TrainOptions = OPTIONS) -> int:
    """Resume; return how many steps that took."""
    taken: list[Any] = []
    train(dataset, options, out=out, resume=True, listener=taken.append)
    return len(taken)


@pytest.mark.slow("simulates a power failure at many writes")
def test_a_training_goes_on_to_the_same_bits(dataset: Dataset, thorough: bool, tmp_path: Path) -> None:
    """And no step is made again that a checkpoint has saved."""
    train(dataset, OPTIONS, out=tmp_path / "whole")
    whole = describe(tmp_path / "whole")
    n_steps = len(whole["history"])
    (tmp_path / "disk").mkdir()
    left = list(distinct(record(dataset, tmp_path, OPTIONS).pictures))
    assert len(left) > 10 * n_steps
    for number, (tree, saved_steps) in enumerate(left if thorough else left[::4]):
        place = tmp_path / f"{number}"
        lay_out(tree, place)
        assert go_on(dataset, place / "run") <= n_steps - saved_steps, (saved_steps, sorted(tree))
        assert describe(place / "run") == whole, sorted(tree)
        shutil.rmtree(place)


def test_the_simulation_sees_what_is_not_synced(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the fsync of the history before the checkpoint, a checkpoint may be left that counts lost lines."""
    monkeypatch.setattr(folder, "os", SimpleNamespace(fsync=lambda _: None))
    (tmp_path / "disk").mkdir()
    messages = []
    for number, (tree, _) in enumerate(distinct(record(dataset, tmp_path, OPTIONS).pictures)):
        lay_out(tree, tmp_path / f"{number}")
        try:
            go_on(dataset, tmp_path / f"{number}" / "run")
        except InputError as error:
            messages.append(str(error))
    assert messages
    assert all("history.jsonl" in message for message in messages)


@pytest.mark.slow("simulates a power failure at many writes")
def test_a_run_that_is_replaced_is_the_old_one_or_the_new_one(dataset: Dataset, thorough: bool, tmp_path: Path) -> None:
    """It goes on with the settings of one of them, or is refused by name; a model is never beside other settings."""
    (tmp_path / "disk").mkdir()
    old = train(dataset, OTHERS, out=tmp_path / "disk" / "run").model_sha256
    new = train(dataset, OPTIONS).model_sha256
    disk = record(dataset, tmp_path, OPTIONS, overwrite=True)
    outcomes, left = set(), list(distinct(disk.pictures))
    for number, (tree, _) in enumerate(left if thorough else left[::4]):
        run = tmp_path / f"{number}" / "run"
        lay_out(tree, run.parent)
        if "run/model.npz" in tree and "run/settings.json" in tree:
            cost = json.loads((run / "settings.json").read_text())["class_costs"][0]
            assert load(run).info["C"] == cost
        for options in (OPTIONS, OTHERS):
            try:
                outcomes.add((options.C, train(dataset, options, out=run, resume=True).model_sha256))
                break
            except InputError as error:
                outcomes.add((options.C, str(error).replace(str(run), "").partition(":")[2][:20]))
        else:
            train(dataset, OPTIONS, out=run, overwrite=True)
        shutil.rmtree(run.parent)
    refusals = {(C, text) for C, text in outcomes if text not in (old, new)}
    assert outcomes - refusals == {(OPTIONS.C, new), (OTHERS.C, old)}
    assert {text for _, text in refusals} <= {" cannot be resumed w", " a run has ended the"}


def test_a_dataset_is_whole_or_absent(tmp_path: Path) -> None:
    problem = make_problem(2, n=120)
    (tmp_path / "disk").mkdir()
    disk = WatchedDisk(tmp_path / "disk", tmp_path / "aside")
    with pytest.MonkeyPatch.context() as patch, disk.watch(patch):
        whole = ingest(problem.X, tmp_path / "disk" / "d.zarr", problem.y, chunk_bytes=1500, scale="standard")
    found = 0
    for number, (tree, _) in enumerate(distinct(disk.pictures)):
        if "d.zarr" not in tree:
            continue
        found += 1
        lay_out(tree, tmp_path / f"{number}")
        dataset = open_dataset(tmp_path / f"{number}" / "d.zarr")
        assert dataset.fingerprint == whole.fingerprint
        assert verify(dataset)["verified_rows"] == 120
    assert found


@pytest.mark.slow("simulates a power failure at every write")
def test_a_dataset_that_is_replaced_is_never_lost(tmp_path: Path) -> None:
    """Where neither has its name, the next ingest finds the old one and puts it back."""
    first, second = make_problem(2, n=60), make_problem(3, n=60)
    (tmp_path / "disk").mkdir()
    path = tmp_path / "disk" / "d.zarr"
    known = {ingest(first.X, path, first.y).fingerprint}
    disk = WatchedDisk(tmp_path / "disk", tmp_path / "aside")
    with pytest.MonkeyPatch.context() as patch, disk.watch(patch):
        known.add(ingest(second.X, path, second.y, overwrite=True).fingerprint)
    seen = set()
    for number, (tree, _) in enumerate(distinct(disk.pictures)):
        place = tmp_path / f"{number}"
        lay_out(tree, place)
        with pytest.raises(InputError, match="already exists"):
            ingest(first.X, place / "d.zarr", first.y)
        dataset = open_dataset(place / "d.zarr")
        verify(dataset)
        seen.add(dataset.fingerprint)
        shutil.rmtree(place)
    assert seen == known
