"""A long pass on workers: tasks hand over what they have added, so that little is lost with a worker."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from distributed import Client, Worker

from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.engines.cluster import engine as passes
from streamsvm.engines.cluster.engine import DistributedEngine, PassOnWorkers
from streamsvm.engines.cluster.task import RunningTask, leave_groups
from streamsvm.engines.cluster.tree import HANDED_BYTES, count_handed, count_levels, count_waiting
from streamsvm.engines.cluster.workers import start_workers
from streamsvm.engines.local import SerialEngine
from streamsvm.numeric.rows import Rows
from streamsvm.passes import Scan
from tests.conftest import WORKER_BYTES
from tests.engines.cluster.test_pass_on_workers import SECONDS, await_file
from tests.engines.scans import Trace, add_to_trace, combine_traces, start_stealing, stop_stealing, trace_scan

pytestmark = pytest.mark.usefixtures("spawned_workers")


@pytest.fixture(scope="module")
def client(spawned_workers: None, workers_import_tests: None) -> Iterator[Client]:
    """Two worker processes, one of which is killed."""
    with start_workers(2, 1, WORKER_BYTES) as opened:
        yield opened


@pytest.fixture
def source(sources: dict[str, RowSource], monkeypatch: pytest.MonkeyPatch) -> RowSource:
    """Rows in sixteen groups of chunks."""
    from streamsvm.data.rows import source as groups

    monkeypatch.setattr(groups, "SMALLEST_GROUP_BYTES", 1)
    monkeypatch.setattr(groups, "GROUPS", 16)
    return sources["dense"]


@pytest.fixture
def in_a_hurry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks end once, as soon as they have begun; files tell when they were asked, and when the first totals came.

    However late the answer of a worker is, the driver hears which groups its task has left.
    """
    fetch: Callable[[PassOnWorkers], bool] = PassOnWorkers._fetch

    def fetch_and_tell(under_way: PassOnWorkers) -> bool:
        came = fetch(under_way)
        if under_way._handed and under_way._handed[0].start == 0:
            (tmp_path / "fetched").touch()
        return came

    monkeypatch.setattr(passes, "HAND_OVER_SECONDS", 0.0)
    monkeypatch.setattr(passes, "ASKED_SECONDS", SECONDS)
    monkeypatch.setattr(passes.task, "leave_groups", partial(leave_and_tell, tmp_path))
    monkeypatch.setattr(PassOnWorkers, "_fetch", fetch_and_tell)


@pytest.fixture
def tasks_stay(client: Client) -> Iterator[None]:
    """Dask leaves a task with its worker, though it waits there while the one before ends, and the other is idle."""
    client.run_on_scheduler(stop_stealing)
    yield
    client.run_on_scheduler(start_stealing)


def leave_and_tell(folder: Path, name: str, dask_worker: Worker) -> dict[str, list[int]]:
    """Leave groups once only, so that the groups of later tasks are not cut up further."""
    if (folder / f"left {os.getpid()}").exists():
        return {}
    left = leave_groups(name, dask_worker)
    if left:
        (folder / f"left {os.getpid()}").touch()
    return left


def add_and_note(folder: Path, unlucky: int, third: int, trace: Trace, rows: Rows) -> None:
    """Add rows, and note it. The process of `unlucky` is killed in its third group, once its first two were fetched."""
    add_to_trace(trace, rows)
    with (folder / "added").open("a") as file:
        file.write(f"{rows.start}\n")
    if os.getpid() == unlucky:
        await_file(folder / f"left {unlucky}")
        if rows.start == third:
            await_file(folder / "fetched")
            os.kill(unlucky, signal.SIGKILL)


@pytest.mark.usefixtures("in_a_hurry", "tasks_stay")
def test_what_was_handed_over_is_not_read_again_when_the_worker_dies(
    client: Client, source: RowSource, tmp_path: Path
) -> None:
    """All of its own groups would be, if its totals were on the worker alone."""
    groups = plan_groups(source)
    unlucky = client.run(os.getpid)[min(client.run(os.getpid))]
    first, second, third = (int(source.chunk_starts[groups[k][0]]) for k in range(3))
    engine = DistributedEngine(source, client, most_handed=100)
    found = engine.scan(Scan(Trace, partial(add_and_note, tmp_path, unlucky, third), combine_traces))
    engine.close()
    assert found.tree == SerialEngine(source).scan(trace_scan()).tree
    added = [int(line) for line in (tmp_path / "added").read_text().split()]
    assert [added.count(row) for row in (first, second, third)] == [1, 1, 2]


@pytest.mark.usefixtures("in_a_hurry")
@pytest.mark.parametrize("most_handed", [0, 1])
def test_no_more_totals_are_handed_over_than_there_is_room_for(
    client: Client, source: RowSource, most_handed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, looks = list[int](), tmp_path / "looks"
    looks.touch()
    fetch: Callable[[PassOnWorkers], bool] = PassOnWorkers._fetch

    def fetch_and_count(under_way: PassOnWorkers) -> bool:
        asked = fetch(under_way)
        assert not (asked and len(under_way._handed) >= max(1, most_handed))
        held.append(len(under_way._handed))
        with looks.open("a") as file:
            file.write(".")
        return asked

    monkeypatch.setattr(PassOnWorkers, "_fetch", fetch_and_count)
    for name in ("SHORTEST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(passes, name, 0.02)
    engine = DistributedEngine(source, client, most_handed=most_handed)
    found = engine.scan(Scan(Trace, partial(add_until_looked_at, looks), combine_traces))
    engine.close()
    assert found.tree == SerialEngine(source).scan(trace_scan()).tree
    assert held
    assert most_handed or max(held) == 0


def add_until_looked_at(looks: Path, trace: Trace, rows: Rows) -> None:
    """Add rows, and wait until the driver has looked once more: its looks are the bytes of a file."""
    before, ends = looks.stat().st_size, time.monotonic() + SECONDS
    add_to_trace(trace, rows)
    while looks.stat().st_size == before:
        assert time.monotonic() < ends, "the driver does not look"
        time.sleep(0.01)


def test_a_task_keeps_its_next_group() -> None:
    """So a task that was asked before it has begun does not end without a group."""
    task = RunningTask("task", "pass", "worker", deque([3, 4, 5]))
    assert task.leave() == [4, 5]
    assert task.leave() == []
    assert [task.take(), task.take()] == [3, None]
    assert task.leave() == []


@pytest.mark.parametrize("totals_bytes", [1000, 100_000, 1 << 20, 1 << 24])
@pytest.mark.parametrize("room_bytes", [0, 10 << 20, 1 << 30])
@pytest.mark.parametrize("n_groups", [16, 512])
def test_the_driver_holds_totals_if_it_has_room_for_those_that_have_no_neighbour_yet(
    totals_bytes: int, room_bytes: int, n_groups: int
) -> None:
    held = count_handed(n_groups, totals_bytes, room_bytes)
    assert held * totals_bytes <= min(room_bytes, HANDED_BYTES)
    enough = min(n_groups, 8 * count_levels(n_groups)) * totals_bytes
    assert bool(held) == (enough <= min(room_bytes, HANDED_BYTES))


@pytest.mark.parametrize("hands_over", [False, True])
def test_twice_as_many_totals_wait_on_workers_that_hand_over(hands_over: bool) -> None:
    n_groups = 512
    nodes = (8 if hands_over else 4) * count_levels(n_groups)
    assert count_waiting(n_groups, 1, hands_over) == nodes + 8 + count_levels(n_groups)


def test_the_groups_of_a_task_make_up_ranges() -> None:
    assert passes._find_ranges({4, 0, 1, 5, 7}) == (range(2), range(4, 6), range(7, 8))
