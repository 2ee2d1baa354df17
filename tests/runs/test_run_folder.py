"""A run's folder: what it keeps, what it refuses, and that no file in it can do harm."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tracemalloc
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.runs import folder as run_folder
from streamsvm.runs.folder import RunFolder, Saved
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from streamsvm.system.files import write_atomically
from streamsvm.system.npz import pack_arrays, write_arrays
from tests.conftest import make_problem

OPTIONS = TrainOptions(C=0.5, threads=1, options={"acceleration": "line-search"})


@dataclass
class Toy:
    """A state of everything that states are made of."""

    w: npt.NDArray[np.float64]
    idle: npt.NDArray[np.int64]
    objective: float
    passes: int


STATE = Toy(np.array([[1.5, -0.0], [np.inf, 5e-324]]), np.array([3, 4]), 0.1, 7)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make_problem(1).store(tmp_path / "rows")


@pytest.fixture
def run(dataset: Dataset, tmp_path: Path) -> Path:
    """The folder of a run that was stopped by a limit."""
    train(dataset, replace(OPTIONS, max_passes=3), out=tmp_path / "run")
    return tmp_path / "run"


def test_a_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "new" / "run", {"C": 1.0}, resume=False)
    assert not (tmp_path / "new").exists(), "nothing is written before the run begins"
    assert folder.begin(STATE) is None
    for step in (1, 2, 3):
        folder.record({"step": step})
    folder.save(Saved(STATE, [{}] * 2, "", 1.25, {}))
    folder.close()
    saved = RunFolder(tmp_path / "new" / "run", {"C": 1.0}, resume=True).begin(STATE)
    assert saved is not None
    assert (saved.status, saved.seconds, saved.history) == ("", 1.25, [{"step": 1}, {"step": 2}])
    for name, value in vars(STATE).items():
        again = getattr(saved.state, name)
        assert type(again) is type(value)
        assert np.asarray(again).tobytes() == np.asarray(value).tobytes()
        assert np.asarray(again).dtype == np.asarray(value).dtype
    lines = (tmp_path / "new" / "run" / "history.jsonl").read_text()
    assert lines == '{"step": 1}\n{"step": 2}\n', "what came after the checkpoint is made again"


def test_checkpoints_take_a_twentieth_of_the_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every 10 seconds; where writing one takes 2 seconds, every 40."""
    clock = SimpleNamespace(now=100.0, save_seconds=0.0)
    monkeypatch.setattr(run_folder, "time", SimpleNamespace(monotonic=lambda: clock.now))
    written: list[float] = []

    def write(path: Path, arrays: dict[str, Any]) -> None:
        assert path.name == "checkpoint.npz"
        assert "run" in arrays
        written.append(clock.now - 100.0)
        clock.now += clock.save_seconds

    monkeypatch.setattr(run_folder, "write_arrays", write)
    folder = RunFolder(tmp_path / "run", {}, resume=False)
    folder.begin(STATE)
    folder.record({"step": 1})
    for after in (9.0, 11.0, 20.0, 22.0):
        clock.now = 100.0 + after
        if folder.is_due():
            folder.save(Saved(STATE, [{}], "", 0.0, {}))
    assert written == [11.0, 22.0]
    clock.save_seconds, written[:] = 2.0, []
    for after in (33.0, 46.0, 74.0, 76.0):
        clock.now = 100.0 + after
        if folder.is_due():
            folder.save(Saved(STATE, [{}], "", 0.0, {}))
    assert written == [33.0, 76.0]
    folder.save(Saved(STATE, [{}], "", 0.0, {}))
    assert len(written) == 3


@pytest.mark.parametrize(("what", "reason"), [("file", "is a file"), ("rows", "is a dataset")])
def test_places_that_are_no_folder_for_a_run(what: str, reason: str, dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match=f"{what}: {reason}"):
        train(dataset, OPTIONS, out=tmp_path / what)
    assert (tmp_path / "file").read_text() == "precious"
    assert not (tmp_path / "rows" / "settings.json").exists()


def test_a_run_that_is_there_is_not_overwritten(run: Path, dataset: Dataset) -> None:
    before = contents(run)
    with pytest.raises(InputError, match=r"run: already holds a run; resume it with --resume, replace it"):
        train(dataset, OPTIONS, out=run)
    assert contents(run) == before


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"C": 0.6}, "class_costs"),
        ({"class_weight": "balanced"}, "class_costs"),
        ({"tol": 1e-4}, "tol"),
        ({"seed": 1}, "seed"),
        ({"options": {"acceleration": "none"}}, "accelerated"),
        ({"options": {"epsilon": "0.1"}}, "epsilon"),
        ({"options": {**OPTIONS.options, "intercept_scaling": "2"}}, "bias_feature"),
        ({"options": {"max_cuts": "50"}}, "max_cuts"),
    ],
)
def test_other_settings_are_refused_by_name(change: dict[str, Any], name: str, run: Path, dataset: Dataset) -> None:
    before = contents(run)
    with pytest.raises(InputError, match=f"run: cannot be resumed with other settings: {name} was .*, now "):
        train(dataset, replace(OPTIONS, **change), out=run, resume=True)
    assert contents(run) == before


def test_other_data_are_refused(run: Path, tmp_path: Path) -> None:
    """One value of one row differs."""
    problem = make_problem(1)
    assert isinstance(problem.X, np.ndarray)
    problem.X[17, 3] += 1.0
    with pytest.raises(InputError, match=r"run: cannot be resumed with other settings: fingerprint was .*, now "):
        train(problem.store(tmp_path / "others"), OPTIONS, out=run, resume=True)


def test_what_does_not_change_the_model_may_change(run: Path, tmp_path: Path) -> None:
    """The place of the data, threads, memory and limits."""
    shutil.move(tmp_path / "rows", tmp_path / "elsewhere")
    moved = open_dataset(tmp_path / "elsewhere")
    resumed = train(moved, replace(OPTIONS, threads=2, memory_bytes=8 << 30), out=run, resume=True)
    assert resumed.model_sha256 == train(moved, OPTIONS).model_sha256


def test_the_result_is_written_as_it_is_returned(dataset: Dataset, tmp_path: Path) -> None:
    result = train(dataset, OPTIONS, out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result.as_json()
    history = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert history == result.history
    model = (tmp_path / "run" / "model.npz").read_bytes()
    assert hashlib.sha256(model).hexdigest() == result.model_sha256
    assert load(tmp_path / "run").to_bytes() == model


def test_the_same_arrays_have_the_same_bytes_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that recorded the time of writing would have others."""
    arrays = {"w": np.arange(5.0), "about": json.dumps({"C": 1.0})}
    before = pack_arrays(arrays)
    monkeypatch.setattr("time.time", lambda: 2_000_000_000.0)
    assert pack_arrays(arrays) == before


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_file_that_cannot_be_written_leaves_the_old_one(
    failing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "model.npz"
    write_atomically(file, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        with pytest.raises(OSError, match="No space left"):
            write_atomically(file, b"new and longer")
    assert file.read_bytes() == b"old"
    write_atomically(file, b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"model.npz": b"new"}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_large_state_is_saved_without_a_copy_of_it(tmp_path: Path) -> None:
    """And the file is what `pack_arrays` gives."""
    arrays = {"large": np.arange(6_000_000.0), "small": np.ones(3)}
    write_arrays(tmp_path / "warm.npz", {"small": arrays["small"]})
    tracemalloc.start()
    try:
        write_arrays(tmp_path / "saved.npz", arrays)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < arrays["large"].nbytes // 2
    assert (tmp_path / "saved.npz").read_bytes() == pack_arrays(arrays)
