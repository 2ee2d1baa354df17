"""Runs killed or interrupted at many instants and gone on with: the same bits as if nothing had happened."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Event, Result
from streamsvm.runs.train import train
from tests.conftest import ROOT, choose_examples, make_problem, run_python
from tests.faults.instants import ANY_COST, describe

OPTIONS = TrainOptions(tol=1e-3, threads=1, options={"acceleration": "line-search"})  # more steps
INSTANTS = "import sys; from tests.faults.instants import main; main(*sys.argv[1:])"
LISTENING = """
import json, sys
from streamsvm.runs import folder as run_folder
from streamsvm.data.open import open_dataset
from streamsvm.options import TrainOptions; from streamsvm.runs.train import train

def tell(event):
    print(event.line["step"], flush=True)
    if event.line["step"] == int(sys.argv[3]):
        sys.stdin.readline()  # what comes now comes while the next pass is due

run_folder.CHECKPOINT_SECONDS, run_folder.MOST_CHECKPOINT_SHARE = 0.0, float("inf")
if __name__ == "__main__":
    options = TrainOptions(tol=1e-3, threads=1, options={"acceleration": "line-search"}, **json.loads(sys.argv[4]))
    print(train(open_dataset(sys.argv[1]), options, out=sys.argv[2], listener=tell).status)
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("rows")
    return make_problem(5, n=400).store(folder / "rows", layout="dense", chunk_bytes=3000)


@pytest.fixture(scope="module")
def whole(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an undisturbed run leaves behind."""
    out = tmp_path_factory.mktemp("whole") / "run"
    train(dataset, OPTIONS, out=out)
    return describe(out)


# How runs are stopped, after how many steps they write a checkpoint, at how many instants, and how they may end.
STUDIES = (
    ("kill", 1, choose_examples(10, 25, 200), {-9}),
    ("kill", 3, choose_examples(6, 15, 100), {-9}),
    ("interrupt", 1, choose_examples(10, 25, 200), {0, 2}),
    ("twice", 3, choose_examples(6, 15, 100), {0, 2}),
)


def stop_and_resume(dataset: Dataset, folder: Path, *studies: tuple[str, int, int]) -> list[dict[str, Any]]:
    """Return what came of each study, all in one process that has imported everything."""
    words = [" ".join(map(str, one)) for one in studies]
    ended = run_python(INSTANTS, dataset.path, folder, *words, OPENBLAS_NUM_THREADS="1")
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert not any(one["differing"] for one in found), ended.stderr
    return found


@pytest.fixture(scope="module")
def stopped(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What came of all studies of one problem."""
    return stop_and_resume(dataset, tmp_path_factory.mktemp("stopped"), *(one[:3] for one in STUDIES))


@pytest.mark.parametrize("place", range(len(STUDIES)), ids=[f"{mode}-{steps}" for mode, steps, *_ in STUDIES])
def test_stopped_at_any_line_and_resumed(place: int, stopped: list[dict[str, Any]], whole: dict[str, Any]) -> None:
    """Lines of the code that writes history, checkpoint and model, chosen at random: half-written files included.

    With a checkpoint every third step the history has run ahead of it. "twice" is a second Ctrl-C while the first is
    dealt with. A child that was interrupted ends by itself (0), or by KeyboardInterrupt before its first step (2).
    """
    (*_, n_instants, ends), found = STUDIES[place], stopped[place]
    assert found["whole"] == whole
    assert found["steps"] > 5
    assert len(found["ends"]) == n_instants
    assert set(found["ends"]) <= ends
    assert len(set(found["ends"])) == len(ends)


@pytest.mark.slow("kills processes at many lines")
def test_many_classes_killed_at_any_line_and_resumed(tmp_path: Path) -> None:
    """The states of all problems are in the checkpoint, of every step or every third: some are done, others are not."""
    rows, random = make_problem(5, n=400), np.random.default_rng(0)
    y = np.where(rows.y > 0, 2, random.integers(0, 2, 400))
    dataset = ingest(rows.X, tmp_path / "rows", y, shuffle=None, layout="dense", chunk_bytes=3000)
    train(dataset, OPTIONS, out=tmp_path / "whole")
    lines = (tmp_path / "whole" / "history.jsonl").read_text().splitlines()
    assert {3, 2, 1, 0} >= {json.loads(line)["open_problems"] for line in lines} > {3, 0}
    (tmp_path / "runs").mkdir()
    n_instants, whole = choose_examples(5, 15, 100), describe(tmp_path / "whole")
    for found in stop_and_resume(dataset, tmp_path / "runs", ("kill", 1, n_instants), ("kill", 3, n_instants)):
        assert found["whole"] == whole
        assert found["ends"] == [-9] * n_instants


@pytest.mark.parametrize("step", [1, 2, 5])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_signal_from_outside(
    number: signal.Signals, step: int, dataset: Dataset, whole: dict[str, Any], tmp_path: Path
) -> None:
    """Sent once the step's line is in the history; SIGINT leaves a checkpoint and a model that say "interrupted"."""
    out = tmp_path / "run"
    with start_listening(dataset, out, step) as run:
        run.send_signal(number)
        rest, _ = run.communicate("")
    lines = (out / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, step + 1))
    if number == signal.SIGKILL:
        assert run.returncode == -signal.SIGKILL
        assert not (out / "model.npz").exists()
    else:
        assert (run.returncode, rest.split()) == (0, ["interrupted"])
        assert load(out).info["status"] == "interrupted"
        assert json.loads((out / "result.json").read_text())["passes"] == step
    train(dataset, OPTIONS, out=out, resume=True)
    assert describe(out) == whole


@pytest.mark.slow("starts workers and kills them")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_signal_while_workers_compute(
    number: signal.Signals, dataset: Dataset, whole: dict[str, Any], tmp_path: Path
) -> None:
    """Ctrl-C reaches every process of a terminal; a driver that is killed leaves no worker behind."""
    out = tmp_path / "run"
    with start_listening(dataset, out, 2, workers=2) as run:
        workers = psutil.Process(run.pid).children(recursive=True)
        assert len(workers) >= 2
        if number == signal.SIGINT:
            os.killpg(run.pid, number)
        else:
            run.send_signal(number)
        rest, errors = run.communicate("")
    if number == signal.SIGINT:
        assert (run.returncode, rest.split(), errors) == (0, ["interrupted"], "")
    gone, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive
    assert len(gone) == len(workers)
    train(dataset, OPTIONS, out=out, resume=True)
    assert describe(out) == whole


def start_listening(dataset: Dataset, out: Path, step: int, **options: int) -> subprocess.Popen[str]:
    """Start a run that waits after a step, in a process group of its own; return when it is there."""
    command = [sys.executable, "-c", LISTENING, dataset.path, str(out), str(step), json.dumps(options)]
    run = subprocess.Popen(
        command,
        cwd=ROOT,
        text=True,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert run.stdout is not None
    told = [run.stdout.readline().strip() for _ in range(step)]
    assert told == [str(k + 1) for k in range(step)]
    return run


def test_killed_between_checkpoint_and_model(
    dataset: Dataset, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The last checkpoint has everything: no pass is needed to write the model."""
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("streamsvm.runs.train.write_result", die)
        with pytest.raises(ProcessDied):
            train(dataset, OPTIONS, out=out)
    assert not (out / "model.npz").exists()
    forbid_passes(monkeypatch)
    result = train(dataset, OPTIONS, out=out, resume=True)
    assert describe(out) == whole
    assert result.model_sha256 == whole["model"] == hashlib.sha256((out / "model.npz").read_bytes()).hexdigest()


def test_resuming_a_finished_run_makes_no_pass(
    dataset: Dataset, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = train(dataset, OPTIONS, out=tmp_path / "run")
    forbid_passes(monkeypatch)
    again = train(dataset, OPTIONS, out=tmp_path / "run", resume=True)
    assert describe(tmp_path / "run") == whole
    assert costs_aside(again) == costs_aside(first)
    assert again.read_bytes == first.read_bytes


@pytest.mark.parametrize("limit", [1, 4])
def test_a_limit_can_be_lifted(limit: int, dataset: Dataset, whole: dict[str, Any], tmp_path: Path) -> None:
    """A run stopped after so many passes has a model of its own, and goes on as if it had not stopped."""
    out = tmp_path / "run"
    limited = train(dataset, replace(OPTIONS, max_passes=limit), out=out)
    assert (limited.status, limited.passes, limited.steps) == ("pass_limit", limit, limit)
    assert load(out).info["status"] == "pass_limit"
    still = train(dataset, replace(OPTIONS, max_passes=limit), out=out, resume=True)
    assert (still.status, still.passes, still.model_sha256) == ("pass_limit", limit, limited.model_sha256)
    train(dataset, OPTIONS, out=out, resume=True)
    assert describe(out) == whole


def test_an_interrupt_after_the_last_step_changes_nothing(
    dataset: Dataset, whole: dict[str, Any], tmp_path: Path
) -> None:
    """The run has converged by then, and says so; going on would give another model."""

    def interrupt(event: Event) -> None:
        if event.line["relative_gap"] <= OPTIONS.tol:
            raise KeyboardInterrupt

    result = train(dataset, OPTIONS, out=tmp_path / "run", listener=interrupt)
    assert result.status == "converged"
    assert describe(tmp_path / "run") == whole


def test_without_a_folder_an_interrupt_is_raised(dataset: Dataset) -> None:
    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(dataset, OPTIONS, listener=interrupt)


class ProcessDied(BaseException):
    """Stands for the end of a process: nothing in the program may catch it."""


def die(*_: object) -> None:
    raise ProcessDied


def forbid_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tiles", "read", "take"):
        monkeypatch.setattr(Dataset, name, lambda self, index: pytest.fail("a pass was made"))


def costs_aside(result: Result) -> dict[str, Any]:
    costs = {*ANY_COST, "task_seconds", "peak_memory_bytes", "projected_memory_bytes", "file_page_bytes"}
    return {name: value for name, value in result.as_json().items() if name not in costs}
