"""Workers and schedulers that are stopped (SIGSTOP): they are named, given up after a while, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamsvm.data.store.dataset import Dataset
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from tests.cluster.test_cluster import CLUSTER, environment, running
from tests.conftest import ROOT, make_problem

pytestmark = pytest.mark.slow("waits until processes that say nothing are given up")
ENDLESS = ("--C", "1000", "--tol", "1e-12", "--option", "acceleration=none", "--memory", "1GB")
SAME = TrainOptions(C=1000, tol=1e-12, options={"acceleration": "none"})

# `streamsvm`, which waits for less long: as many seconds as its first arguments say.
IMPATIENT = """
import sys
from streamsvm.cli import progress
from streamsvm.cli.main import main
from streamsvm.engines.cluster import watch as patience, workers
patience.SILENT_SECONDS, patience.LOST_SECONDS, workers.GIVEN_UP_SECONDS = map(float, sys.argv[1:4])
patience.LOOK_SECONDS, progress.PLAIN_SECONDS = 0.5, 0.0
del sys.argv[1:4]
if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Rows that take the plain algorithm thousands of passes, in several groups of chunks."""
    folder = tmp_path_factory.mktemp("data")
    return make_problem(2, n=150_000, d=20).store(folder / "rows.zarr", layout="dense", chunk_bytes=1 << 20)


@contextmanager
def training(
    data: Dataset, out: Path, seconds: tuple[float, float, float], *more: str, **variables: str
) -> Iterator[Any]:
    arguments = [*map(str, seconds), "train", data.path, "--out", str(out), *ENDLESS, *more]
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", IMPATIENT, *arguments]
    with subprocess.Popen(command, **pipes, text=True, cwd=ROOT, env=environment(**variables)) as process:
        read_until(process, "pass 1 ")
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], start: str) -> list[str]:
    """Return the lines of standard error up to one that begins so."""
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith(start):
            return lines
    pytest.fail(f"ended without {start!r}: {lines}")


def read_address(cluster: subprocess.Popen[str]) -> tuple[str, str]:
    """Return the scheduler's address, and the file that names the key for it."""
    assert cluster.stdout is not None
    address, export = (cluster.stdout.readline().strip() for _ in range(2))
    return address, export.removeprefix("export DASK_CONFIG=")


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def goes_on_to_the_same_bits(data: Dataset, out: Path) -> bool:
    more = replace(SAME, max_passes=len((out / "history.jsonl").read_text().splitlines()) + 2)
    return train(data, more, out, resume=True).model_sha256 == train(data, more).model_sha256


def count_passes(lines: list[str]) -> int:
    return max(int(line.split()[1]) for line in lines if line.startswith("pass "))


def test_the_groups_of_a_stopped_worker_move(data: Dataset, tmp_path: Path) -> None:
    """It is named on standard error, killed, and the pass that waits for it is completed by others."""
    out = tmp_path / "run"
    with training(data, out, (2, 60, 5), "--workers", "2") as process:
        victim = workers_of(process)[0]
        victim.suspend()
        told = read_until(process, "read ")
        assert "waits for worker tls://127.0.0.1:" in told[-1]
        assert "silent for" in told[-1]
        after = read_until(process, f"pass {count_passes(['pass 1 ', *told]) + 2} ")
        assert after
        assert psutil.wait_procs([victim], timeout=60)[1] == []
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 1
    assert goes_on_to_the_same_bits(data, out)


def test_ctrl_c_ends_the_wait_for_a_stopped_worker(data: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with training(data, out, (1, 600, 600), "--workers", "2") as process:
        victims = workers_of(process)
        for victim in victims:
            victim.suspend()
        read_until(process, "read ")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert told.splitlines()[-1].startswith("interrupted after pass")
    assert psutil.wait_procs(victims, timeout=60)[1] == []
    assert goes_on_to_the_same_bits(data, out)


def test_a_stopped_scheduler_is_given_up(data: Dataset, tmp_path: Path) -> None:
    """First it is named; then the run ends with an error, status 1 and a checkpoint."""
    out = tmp_path / "run"
    with running(str(CLUSTER / "local.py"), "--workers", "2", "--memory", "1GB") as cluster:
        address, configuration = read_address(cluster)
        with training(data, out, (2, 5, 60), "--scheduler", address, DASK_CONFIG=configuration) as process:
            os.kill(cluster.pid, signal.SIGSTOP)
            _, told = process.communicate(timeout=60)
            os.kill(cluster.pid, signal.SIGCONT)
    *before, last = told.splitlines()
    assert process.returncode == 1
    assert f"waits for the scheduler {address}, which has been silent for" in "\n".join(before)
    assert last.startswith(f"streamsvm train: scheduler {address}: no answer for")
    assert "--resume" in last
    assert "Traceback" not in told
    assert (out / "checkpoint.npz").exists()
    assert goes_on_to_the_same_bits(data, out)


def test_a_scheduler_that_dies_is_given_up(data: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with running(str(CLUSTER / "local.py"), "--workers", "1", "--memory", "1GB") as cluster:
        address, configuration = read_address(cluster)
        with training(data, out, (2, 5, 60), "--scheduler", address, DASK_CONFIG=configuration) as process:
            family = workers_of(cluster)
            os.kill(cluster.pid, signal.SIGKILL)
            _, told = process.communicate(timeout=90)
            psutil.wait_procs(family, timeout=60)
    assert process.returncode == 1, told
    assert told.splitlines()[-1].startswith(f"streamsvm train: scheduler {address}: "), told
    assert "Traceback" not in told
    assert goes_on_to_the_same_bits(data, out)
