"""The chunks that workers keep for an engine."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from streamsvm.data.rows.source import RowSource
from streamsvm.engines.cluster import task
from streamsvm.engines.cluster.task import WorkerBudget, find_kept, release_worker
from streamsvm.engines.tasks import ChunkCache, load_chunk
from tests.engines.interleaving import ToldLock


@pytest.mark.parametrize(("limit_bytes", "room"), [(None, 300), (1500, 300), (1000, 300), (800, 100), (600, 0)])
def test_a_worker_that_joins_with_less_memory_keeps_less(
    limit_bytes: int | None, room: int, sources: dict[str, RowSource]
) -> None:
    """300 bytes of chunks were planned for workers of 1000 bytes in all."""
    worker: Any = SimpleNamespace(address="tcp://a:1", memory_manager=SimpleNamespace(memory_limit=limit_bytes))
    budget = WorkerBudget(f"joined-{limit_bytes}", 300, 1000)
    assert find_kept(sources["dense"], budget, worker)[0].limit_bytes == room
    release_worker(budget.engine, worker)
    assert find_kept(sources["dense"], budget, worker)[0].limit_bytes == 0


class SlowWorker:
    """A worker whose engine another thread closes while a task asks for the worker's address."""

    def __init__(self, lock: ToldLock, pool: ThreadPoolExecutor, engine: str) -> None:
        self.memory_manager = SimpleNamespace(memory_limit=None)
        self.lock, self.pool, self.engine, self.closing = lock, pool, engine, list[Future[None]]()

    @property
    def address(self) -> str:
        if not self.closing:
            other: Any = SimpleNamespace(address="tcp://a:1")
            self.closing.append(self.lock.begin(self.pool, lambda: release_worker(self.engine, other)))
        return "tcp://a:1"


def test_what_is_closed_meanwhile_does_not_come_back(
    sources: dict[str, RowSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, budget = ToldLock(), WorkerBudget("closed", 300, 1000)
    monkeypatch.setattr(task, "_lock", lock, raising=False)
    with ThreadPoolExecutor(1) as pool:
        worker: Any = SlowWorker(lock, pool, budget.engine)
        assert all(find_kept(sources["dense"], budget, worker))
        worker.closing[0].result(60)
    assert not [engine for engine, _ in task._kept if engine == budget.engine]


class Vanishing(dict[int, Any]):
    """Chunks of which each is let go of by its owner as soon as another task has looked whether it is there."""

    def __contains__(self, index: object) -> bool:
        return self.pop(index, None) is not None  # type: ignore[call-overload]


def test_a_chunk_of_another_task_may_be_let_go_of_while_it_is_taken(sources: dict[str, RowSource]) -> None:
    rows = sources["dense"].read(0)
    assert load_chunk(sources["dense"], 0, ChunkCache(0, Vanishing({0: rows}))) is rows


def test_a_chunk_that_comes_too_late_is_not_kept(
    sources: dict[str, RowSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is read, the groups of this worker become those of another one."""
    source, pins = sources["dense"], ChunkCache(1 << 30)
    read = type(source).read

    def read_late(self: RowSource, index: int) -> Any:
        pins.retain(set())
        return read(self, index)

    monkeypatch.setattr(type(source), "read", read_late)
    assert load_chunk(source, 0, pins) is not None
    assert (pins.chunks, pins.held_bytes) == ({}, 0)
