"""Ctrl-C and SIGTERM: a run can go on to the same bits, everything else leaves nothing behind, no process stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.runs.folder import RunFolder
from streamsvm.runs.results import Event
from streamsvm.runs.train import train
from streamsvm.system.interrupts import STOPPING
from tests.conftest import make_problem

ENDLESS = ("--C", "1000", "--tol", "1e-12", "--option", "acceleration=none", "--json")
SAME = TrainOptions(C=1000, tol=1e-12, options={"acceleration": "none"})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Rows that take the plain algorithm thousands of passes."""
    return make_problem(2, n=2000, d=60).store(tmp_path_factory.mktemp("data") / "rows.zarr", chunk_bytes=100_000)


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a command as a terminal does, in a process group of its own; end it in any case."""
    command = [sys.executable, "-m", "streamsvm", *map(str, arguments)]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def read_result(written: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(written.splitlines()[-1])
    return result


def steps_of(run: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (run / "history.jsonl").read_text().splitlines()]


def left_alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; one that has ended may wait for ever to be taken note of."""
    psutil.wait_procs([p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE], timeout=60)
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_run_that_is_stopped_goes_on_to_the_same_bits(data: Dataset, tmp_path: Path, name: str) -> None:
    out = tmp_path / "run"
    with started("train", data.path, "--out", out, *ENDLESS) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("pass 1 ")
        process.send_signal(getattr(signal, name))
        written, told = process.communicate()
    result = read_result(written)
    n = result["passes"]
    assert (process.returncode, result["status"]) == (1, "interrupted")
    assert told.splitlines()[-1] == f"interrupted after pass {n}; continue with the same command and --resume"
    assert all(line.startswith(("pass ", STOPPING, "interrupted after")) for line in told.splitlines())
    names = {"settings.json", "history.jsonl", "checkpoint.npz", "model.npz", "result.json"}
    assert {path.name for path in out.iterdir()} == names
    assert load(out).info["status"] == "interrupted"
    more = replace(SAME, max_passes=n + 3)
    assert train(data, more, out, resume=True).model_sha256 == train(data, more).model_sha256
    assert steps_of(out) == list(range(1, n + 4))


def test_any_number_of_ctrl_c_leaves_a_run_that_goes_on(data: Dataset, tmp_path: Path) -> None:
    """The second one ends the process wherever it is: what is in the folder is whole all the same."""
    out = tmp_path / "run"
    with started("train", data.path, "--out", out, *ENDLESS) as process:
        assert process.stderr is not None
        process.stderr.readline()
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode in (1, 130, -signal.SIGINT)  # once all is done, Python lets a signal end it
    assert "Traceback" not in told
    more = replace(SAME, max_passes=5 + len(steps_of(out)))
    assert train(data, more, out, resume=True).model_sha256 == train(data, more).model_sha256


STUCK = """
import sys
from numba import njit
from streamsvm.cli.main import main
from streamsvm.runs import train

@njit(nogil=True)
def spin(n):
    while n > 0:
        n += n % 2
    return n

spin(0)
train.write_result = lambda *_: print("stuck", flush=True) or spin(2)
if __name__ == "__main__":
    sys.exit(main())
"""


def test_the_second_ctrl_c_ends_at_once_what_is_stuck_in_compiled_code(data: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-c", STUCK, "train", data.path, "--out", str(out), *ENDLESS]
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "stuck\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130
    assert [line for line in told.splitlines() if not line.startswith("pass ")] == [STOPPING]
    done = len(steps_of(out))
    more = replace(SAME, max_passes=done + 3)
    assert train(data, more, out, resume=True).model_sha256 == train(data, more).model_sha256
    assert steps_of(out) == list(range(1, done + 4))


LOSING = """
import os, signal, sys
from streamsvm.cli.main import main
from streamsvm.cli.progress import Display

class Unlucky:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)  # what is raised in here, Python drops

Display.show = lambda *_: Unlucky() and None
sys.exit(main(sys.argv[1:]))
"""


def test_a_signal_that_python_loses_is_heeded_after_the_step(data: Dataset, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOSING, "train", data.path, "--out", str(tmp_path / "run"), *ENDLESS]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    told = ran.stderr.splitlines()
    assert (ran.returncode, told[0], len(told)) == (1, STOPPING, 2)
    assert told[1].startswith("interrupted after pass 1;")
    assert read_result(ran.stdout)["status"] == "interrupted"


@pytest.mark.slow("starts workers and kills them")
def test_workers_end_quietly_with_the_run(data: Dataset, tmp_path: Path) -> None:
    with started("train", data.path, "--out", tmp_path / "run", *ENDLESS, "--workers", "2") as process:
        assert process.stderr is not None
        process.stderr.readline()
        workers = psutil.Process(process.pid).children(recursive=True)
        assert len(workers) >= 2
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
        written, told = process.communicate()
    assert (process.returncode, read_result(written)["status"]) == (1, "interrupted")
    assert all(line.startswith(("pass ", STOPPING, "interrupted after")) for line in told.splitlines()), told
    assert left_alive(workers) == []


@pytest.mark.slow("starts workers and kills them")
def test_workers_end_quietly_when_the_second_ctrl_c_ends_the_run(data: Dataset, tmp_path: Path) -> None:
    """The second one may find the run at work, or all of it saved."""
    with started("train", data.path, "--out", tmp_path / "run", *ENDLESS, "--workers", "2") as process:
        assert process.stderr is not None
        process.stderr.readline()
        workers = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        while process.stderr.readline().startswith("pass "):
            pass
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode in (1, 130, -signal.SIGINT)
    assert "Traceback" not in told
    assert left_alive(workers) == []


def test_stopped_before_the_first_pass_is_complete(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("streamsvm.runs.train.answer_all", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(data, TrainOptions(), tmp_path / "run")
    assert train(data, TrainOptions(), tmp_path / "run").status == "converged"


def interrupt_listener(step: int, _: pytest.MonkeyPatch) -> Callable[[Event], None]:
    """Interrupt after a step."""

    def listen(event: Event) -> None:
        if event.line["step"] == step:
            raise KeyboardInterrupt

    return listen


def interrupt_record(step: int, patch: pytest.MonkeyPatch) -> Callable[[Event], None]:
    """Interrupt when a step's line is written, and the step not yet taken note of."""
    record = RunFolder.record

    def record_and_stop(self: RunFolder, line: dict[str, Any]) -> None:
        record(self, line)
        if line["step"] == step:
            raise KeyboardInterrupt

    patch.setattr(RunFolder, "record", record_and_stop)
    return lambda _: None


@pytest.mark.parametrize("interrupt", [interrupt_listener, interrupt_record])
def test_wherever_it_comes_nothing_is_lost_or_counted_twice(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., Callable[[Event], None]]
) -> None:
    options = TrainOptions(C=0.01, options={"acceleration": "line-search"})
    straight = train(data, options)
    with monkeypatch.context() as patch:
        stopped = train(data, options, tmp_path / "run", listener=interrupt(3, patch))
    assert stopped.status == "interrupted"
    assert stopped.passes == stopped.steps < straight.passes
    resumed = train(data, options, tmp_path / "run", resume=True)
    assert resumed.model_sha256 == straight.model_sha256
    assert steps_of(tmp_path / "run") == list(range(1, straight.steps + 1))


def stop_while_reading(process: subprocess.Popen[str], folder: Path, begun: str) -> str:
    """Give a command half of its input, and stop it once a file of its own, of such a name, is in the folder."""
    assert process.stdin is not None
    process.stdin.write("+1 1:1\n-1 2:1\n" * 1000)
    process.stdin.flush()
    while not list(folder.glob(begun)) and process.poll() is None:
        pass
    process.send_signal(signal.SIGINT)
    return process.communicate()[1]


def test_ingest_leaves_nothing_behind(tmp_path: Path) -> None:
    with started("ingest", "-", tmp_path / "rows.zarr") as process:
        told = stop_while_reading(process, tmp_path, ".rows.zarr.*.partial")
    assert (process.returncode, told) == (1, f"{STOPPING}\nstreamsvm ingest: interrupted; nothing was left behind\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "begun"), [("p.csv", ""), ("p.npy", ""), ("p.zarr", "")])
def test_predict_leaves_nothing_behind(data: Dataset, tmp_path: Path, name: str, begun: str) -> None:
    train(data, TrainOptions(max_passes=1), tmp_path / "run")
    out = tmp_path / "out"
    out.mkdir()
    with started("predict", tmp_path / "run", "-", "--out", out / name) as process:
        told = stop_while_reading(process, out, f".{name}.*.partial{begun}")
    assert (process.returncode, told) == (1, f"{STOPPING}\nstreamsvm predict: interrupted; nothing was left behind\n")
    assert list(out.iterdir()) == []
