"""The seconds of tasks: reading, verifying and computing are told apart, and together are the time of the task."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from streamsvm import ingest
from streamsvm.data.store import chunks
from streamsvm.engines import engine
from streamsvm.engines.engine import TaskSeconds
from streamsvm.numeric.rows import Rows
from streamsvm.train import TrainOptions, train


class Clock:
    """A clock that moves when it is told to."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_each_second_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, rows = Clock(), Rows(0, np.ones((1, 1), np.float32))
    monkeypatch.setattr(engine, "time", clock)

    def read() -> Iterator[Rows]:
        for _ in range(3):
            clock.now += 5.0
            chunks.VERIFYING.seconds += 2.0
            yield rows
        clock.now += 1.0

    found = TaskSeconds()
    for _ in found.watch(read()):
        clock.now += 10.0
    assert found == TaskSeconds(read=10.0, verify=6.0, compute=30.0)
    assert found + TaskSeconds(1.0, 2.0, 3.0) == TaskSeconds(11.0, 8.0, 33.0)


def test_checksums_are_timed_in_the_thread_that_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(20_000, 20)).astype(np.float32)
    dataset = ingest(X, tmp_path / "rows.zarr", np.arange(20_000) % 2)
    extend = chunks.google_crc32c.extend
    spent = 0.0

    def watched(crc: int, content: bytes) -> int:
        nonlocal spent
        began = time.perf_counter()
        found: int = extend(crc, content)
        spent += time.perf_counter() - began
        return found

    monkeypatch.setattr(chunks.google_crc32c, "extend", watched)
    options = TrainOptions(C=1e-3, tol=1e-2, threads=1, options={"acceleration": "line-search"})
    result = train(dataset, options)
    told = result.task_seconds
    assert spent * 0.5 < told["verify"] + 1e-3
    assert min(told.values()) >= 0
    assert sum(told.values()) <= result.seconds + 1e-3, "one thread has no more time than the run"
    assert result.as_json()["task_seconds"] == told
