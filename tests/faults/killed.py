"""Trainings in processes of their own that are killed after a step.

Each process is a fork of one that has imported everything (tests/worker_server.py), since it would import for longer
than it trains.
"""

from __future__ import annotations

import multiprocessing
import signal
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from streamsvm.data.open import open_dataset
from streamsvm.options import TrainOptions
from streamsvm.runs import folder
from streamsvm.runs.results import Event
from streamsvm.runs.train import train


def kill_after(step: int, data: str, options: TrainOptions, out: Path, changed: dict[tuple[str, str], Any]) -> None:
    """Train until a step is done, and then kill -9. changed: constants of the program, by module and name."""
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    process = context.Process(target=_train_and_wait, args=(step, data, options, str(out), changed, theirs))
    process.start()
    theirs.close()  # so that a process that ends by itself ends the wait
    assert [ours.recv() for _ in range(step)] == list(range(1, step + 1))
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def _train_and_wait(
    step: int, data: str, options: TrainOptions, out: str, changed: dict[tuple[str, str], Any], told: Connection
) -> None:
    """Write a checkpoint and tell of each step; wait after the last one."""
    folder.CHECKPOINT_SECONDS, folder.MOST_CHECKPOINT_SHARE = 0.0, float("inf")
    for (module, name), value in changed.items():
        setattr(import_module(module), name, value)

    def tell(event: Event) -> None:
        told.send(event.line["step"])
        if event.line["step"] == step:
            told.recv()

    train(open_dataset(data), options, out=out, listener=tell)
