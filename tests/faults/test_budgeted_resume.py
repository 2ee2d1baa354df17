"""Budgeted SGD killed in the middle of an epoch, and workers that die: the same bits as if nothing had happened."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.cluster.workers import start_workers
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Event
from streamsvm.runs.train import train
from streamsvm.solvers.budgeted_sgd import setup, solver
from tests.conftest import WORKER_BYTES, make_problem
from tests.faults.instants import describe
from tests.faults.killed import kill_after

OPTIONS = TrainOptions(
    solver="budgeted-sgd",
    kernel="rbf",
    gamma=0.2,
    threads=1,
    options={"budget": "25", "epochs": "2", "replicas": "2"},
)
SMALL_BUFFERS = {
    ("streamsvm.solvers.budgeted_sgd.setup", "MOST_CHUNKS"): 3,
    ("streamsvm.solvers.budgeted_sgd.solver", "SEGMENT_BUFFERS"): 1,
}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """16 chunks; a step is a buffer of three for each of two replicas, three steps an epoch."""
    monkeypatch.setattr(setup, "MOST_CHUNKS", 3)
    monkeypatch.setattr(solver, "SEGMENT_BUFFERS", 1)
    dataset = make_problem(5, n=480, weighted=True).store(tmp_path / "rows", layout="dense", chunk_bytes=720)
    assert dataset.n_chunks == 16
    return dataset


@pytest.mark.parametrize("step", [1, 2, 4])
def test_killed_within_an_epoch(step: int, source: Dataset, tmp_path: Path) -> None:
    """kill -9 while the run waits after a step: the checkpoint is there, and what comes of it is what would have."""
    whole = train(source, OPTIONS, out=tmp_path / "whole")
    assert (whole.steps, whole.passes) == (6, 2)
    out = tmp_path / "run"
    kill_after(step, source.path, OPTIONS, out, SMALL_BUFFERS)
    assert not (out / "model.npz").exists()
    train(source, OPTIONS, out=out, resume=True)
    assert describe(out) == describe(tmp_path / "whole")


def test_a_replica_moves_when_its_worker_dies(source: Dataset) -> None:
    """One of two workers is killed between two steps of an epoch."""
    alone = train(source, OPTIONS)
    with start_workers(2, 1, WORKER_BYTES) as client:

        def kill(event: Event) -> None:
            if event.line["step"] == 2:
                _kill_one(client)

        result = train(source, replace(OPTIONS, threads=None), client=client, listener=kill)
    assert result.model_sha256 == alone.model_sha256


def _kill_one(client: Client) -> None:
    pids: dict[str, Any] = client.run(os.getpid)
    os.kill(sorted(pids.values())[0], signal.SIGKILL)
