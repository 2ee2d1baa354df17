"""A pass on workers: one task each, help for a slow one, and an end to tasks that nobody waits for."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.base import tokenize
from dask.utils import key_split
from distributed import Client, Worker

from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.engines.cluster import engine as passes
from streamsvm.engines.cluster import watch
from streamsvm.engines.cluster.engine import DistributedEngine, PassOnWorkers, RowReports, _cut
from streamsvm.engines.cluster.task import DONE_ROWS, Pass, TaskGroups, WorkerBudget, carry_walk, give_away
from streamsvm.engines.cluster.watch import MOST_TRIES
from streamsvm.engines.engine import Costs
from streamsvm.engines.local import SerialEngine
from streamsvm.numeric.rows import Rows
from streamsvm.passes import Scan, Take, Walk
from tests.engines.scans import Trace, add_to_trace, combine_traces, help_nobody, pinned_chunks, report_rows, trace_scan

SECONDS = 60.0  # that a worker waits for what never comes if the test fails


@pytest.fixture(autouse=True)
def sixteen_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamsvm.data.rows import source as groups

    monkeypatch.setattr(groups, "SMALLEST_GROUP_BYTES", 1)
    monkeypatch.setattr(groups, "GROUPS", 16)


@pytest.fixture(autouse=True)
def answers_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is asked for groups has time to answer: if it was late once, nobody would help it any more."""
    monkeypatch.setattr(passes, "ASKED_SECONDS", SECONDS)


@pytest.fixture
def source(sources: dict[str, RowSource]) -> RowSource:
    assert len(plan_groups(sources["dense"])) >= 16
    return sources["dense"]


@pytest.fixture
def open_engine(client: Client, source: RowSource) -> Iterator[Callable[..., DistributedEngine]]:
    opened = list[DistributedEngine]()

    def open_it(pin_bytes: int = 0, **options: Any) -> DistributedEngine:
        opened.append(DistributedEngine(source, client, pin_bytes, **options))
        return opened[-1]

    yield open_it
    for engine in opened:
        engine.close()


def await_file(path: Path) -> None:
    ends = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < ends, f"{path} did not come"
        time.sleep(0.01)


def find_owners(client: Client, source: RowSource) -> dict[int, tuple[str, int]]:
    """By row of the source: the worker that has it in a pass, and its process."""
    pids = sorted(client.run(os.getpid).items())
    groups, owners = plan_groups(source), dict[int, tuple[str, int]]()
    for k, group in enumerate(groups):
        for row in range(source.chunk_starts[group[0]], source.chunk_starts[group[-1] + 1]):
            owners[row] = pids[k >= len(groups) // 2]
    return owners


def add_once_others_helped(folder: Path, slow: int, owned: frozenset[int], trace: Trace, rows: Rows) -> None:
    """Add rows. One process waits in its first group until another one has added rows that were its own."""
    add_to_trace(trace, rows)
    if os.getpid() != slow and rows.start in owned:
        (folder / "helped").touch()
    if os.getpid() == slow:
        await_file(folder / "helped")


@pytest.mark.parametrize("by_row", [False, True])
def test_groups_of_a_slow_worker_are_added_by_another(
    open_engine: Callable[..., DistributedEngine],
    client: Client,
    source: RowSource,
    by_row: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pass would not end otherwise. The bits are the same, and the helper keeps its own chunks only."""
    owners = find_owners(client, source)
    address, slow = owners[0]
    owned = frozenset(row for row, (_, pid) in owners.items() if pid == slow)
    arrays = (np.arange(source.n_rows),) if by_row else ()
    engine = open_engine(2 * source.nbytes)
    add = partial(add_once_others_helped, tmp_path, slow, owned)
    found = engine.scan(Scan(Trace, partial(add_with_numbers, add), combine_traces, (), arrays))
    assert found.tree == SerialEngine(source).scan(trace_scan((), arrays)).tree
    kept = client.run(pinned_chunks, source.fingerprint)
    helper = next(other for other in kept if other != address)
    assert kept[helper] == [k for k in range(source.n_chunks) if int(source.chunk_starts[k]) not in owned]
    help_nobody(monkeypatch)
    assert engine.scan(trace_scan()).tree == SerialEngine(source).scan(trace_scan()).tree
    kept = client.run(pinned_chunks, source.fingerprint)
    assert sorted(kept[address] + kept[helper]) == list(range(source.n_chunks))


def add_with_numbers(add: Callable[[Trace, Rows], None], trace: Trace, rows: Rows, *numbers: Any) -> None:
    """Add rows, and note what came with them by row."""
    add(trace, rows)
    if numbers:
        trace.tree[-1] = (*trace.tree[-1], *(part.tobytes() for part in numbers))


def test_groups_whose_new_owner_was_not_told_are_added_last(
    open_engine: Callable[..., DistributedEngine],
    client: Client,
    source: RowSource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker gives groups away, and its answer is lost."""
    owners = find_owners(client, source)
    slow = owners[0][1]
    monkeypatch.setattr(passes.task, "give_away", partial(give_away_in_silence, tmp_path))
    engine = open_engine()
    found = engine.scan(Scan(Trace, partial(add_once_given_away, tmp_path, slow), combine_traces))
    assert found.tree == SerialEngine(source).scan(trace_scan()).tree


def give_away_in_silence(folder: Path, name: str, n_groups: int, dask_worker: Worker) -> None:
    assert give_away(name, n_groups, dask_worker)
    (folder / "given").touch()


def add_once_given_away(folder: Path, slow: int, trace: Trace, rows: Rows) -> None:
    add_to_trace(trace, rows)
    if os.getpid() == slow:
        await_file(folder / "given")


@pytest.mark.parametrize("fan_in", [2, 16])
def test_the_scheduler_is_given_a_task_a_worker_and_those_that_join_them(
    open_engine: Callable[..., DistributedEngine], client: Client, fan_in: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many groups there are."""
    sent, get, submit = list[str](), client.get, client.submit

    def record_graph(graph: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        sent.extend(graph)
        return get(graph, *arguments, **options)

    def record_task(function: Any, *arguments: Any, **options: Any) -> Any:
        sent.append(function.__name__)
        return submit(function, *arguments, **options)

    engine = open_engine(fan_in=fan_in)
    engine.scan(trace_scan())
    monkeypatch.setattr(client, "get", record_graph)
    monkeypatch.setattr(client, "submit", record_task)
    help_nobody(monkeypatch)
    engine.scan(trace_scan())
    assert [name.split("-")[1] for name in sent] == ["part", "part", "join"]
    sent.clear()
    engine.scan(trace_scan((np.zeros(100_000),)))  # what all tasks share is a task of its own if it is large
    assert [name.partition("-")[2].partition("-")[0] for name in sent] == ["", "part", "part", "join"]


def fail_or_go_on(folder: Path, unlucky: int, trace: Trace, rows: Rows) -> None:
    """Fail in one process. The other one waits in its first group, and notes the groups after it."""
    if os.getpid() == unlucky:
        await_file(folder / "first")
        raise ArithmeticError("unlucky")
    if (folder / "first").exists():
        (folder / "second").touch()
    (folder / "first").touch()
    await_file(folder / "go on")


def count_cancelled(dask_worker: Worker) -> int:
    return sum(task.state == "cancelled" for task in dask_worker.state.tasks.values())


def test_tasks_end_after_an_error_elsewhere(
    open_engine: Callable[..., DistributedEngine], client: Client, source: RowSource, tmp_path: Path
) -> None:
    """A range may take minutes, and nobody wants it any more."""
    address, unlucky = find_owners(client, source)[0]
    engine = open_engine()
    with pytest.raises(ArithmeticError, match="unlucky"):
        engine.scan(Scan(Trace, partial(fail_or_go_on, tmp_path, unlucky), combine_traces))
    (other,) = set(client.run(os.getpid)) - {address}
    ends = time.monotonic() + SECONDS
    while client.run(count_cancelled, workers=[other])[other] != 1:
        assert time.monotonic() < ends
    (tmp_path / "go on").touch()
    assert engine.scan(trace_scan()).tree == SerialEngine(source).scan(trace_scan()).tree
    assert not (tmp_path / "second").exists()


def test_a_task_of_a_closed_engine_leaves_nothing_to_the_next(
    open_engine: Callable[..., DistributedEngine], client: Client, source: RowSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk that was given up may begin after its engine was closed: neither its chunks nor its limit stay."""
    for pin_bytes in (0, 2 * source.nbytes):
        engine = open_engine(pin_bytes)
        data, groups = engine.send_data(), plan_groups(source)
        engine.close()
        for address in client.run(os.getpid):
            late = (carry_walk, data, report_rows, [], [list(groups[0])], engine._budget, "walk")
            client.submit(*late, workers=[address], pure=False).result()
        assert set(map(len, client.run(pinned_chunks, source.fingerprint).values())) == {0}
    help_nobody(monkeypatch)
    engine = open_engine(2 * source.nbytes)
    engine.scan(trace_scan())
    kept = client.run(pinned_chunks, source.fingerprint)
    assert sorted(index for chunks in kept.values() for index in chunks) == list(range(source.n_chunks))


def test_the_dashboard_is_given_names_that_tell_what_tasks_do(
    open_engine: Callable[..., DistributedEngine], client: Client, source: RowSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dashboard shows the beginning of a key as far as it is words."""
    shown, submit, get = set[str](), client.submit, client.get

    def note(*arguments: Any, **named: Any) -> Any:
        future = submit(*arguments, **named)
        shown.add(key_split(future.key))
        return future

    def note_all(graph: Any, *others: Any, **named: Any) -> Any:
        shown.update(map(key_split, graph))
        return get(graph, *others, **named)

    monkeypatch.setattr(client, "submit", note)
    monkeypatch.setattr(client, "get", note_all)
    engine = open_engine()
    engine.scan(trace_scan())
    engine.take(Take(np.array([3, 1])))
    engine.walk(Walk(report_rows, [[], []], [list(map(list, plan_groups(source)[k::2])) for k in (0, 1)]))
    kinds = {f"streamsvm-{kind}" for kind in ("part", "join", "data", "rows", "walk")}
    assert shown == kinds


def add_once_told(folder: Path, slow: int, last: int, trace: Trace, rows: Rows) -> None:
    """Add rows. A process waits in its last group until the driver has heard of the others."""
    add_to_trace(trace, rows)
    if os.getpid() == slow and rows.start == last:
        await_file(folder / "told")


def test_rows_are_reported_while_a_pass_is_under_way(
    open_engine: Callable[..., DistributedEngine],
    client: Client,
    source: RowSource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As heartbeats tell of them; and all of them once, in the end.

    Nobody takes the last group from the process that waits in it.
    """
    told = list[int]()

    def report(n_rows: int) -> None:
        told.append(n_rows)
        (tmp_path / "told").touch()

    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(PassOnWorkers, "_steal", lambda *_: [])
    groups, slow = plan_groups(source), find_owners(client, source)[0][1]
    last = int(source.chunk_starts[groups[len(groups) // 2 - 1][0]])
    engine = open_engine()
    engine.costs.report = report
    engine.scan(Scan(Trace, partial(add_once_told, tmp_path, slow, last), combine_traces))
    assert len(told) > 1
    assert sum(told) == source.n_rows


class Opaque:
    def __reduce__(self) -> str:
        raise AssertionError("Dask looks into the tasks of a pass")


def test_dask_does_not_look_into_the_tasks_of_a_pass() -> None:
    """It names a graph by what is in it, and arrays of all workers are in the graph of a pass."""
    parts = [TaskGroups((groups,), ((Opaque(),),)) for groups in (range(2), range(2, 4))]
    scan = Scan(Trace, add_to_trace, combine_traces, (Opaque(),))
    works = [Pass(name, WorkerBudget("engine"), scan, None) for name in "ab"]
    assert len({tokenize(work, part) for work in works for part in parts}) == 4


def test_a_lost_task_is_cut_down_to_single_groups_which_are_tried_again_a_few_times() -> None:
    tries = Counter[range]()
    assert _cut([range(2), range(5, 9)], tries) == [range(2), range(5, 9)]
    assert _cut([range(5, 8)], tries) == [range(5, 6), range(6, 8)]
    assert [_cut([range(5, 6)], tries) for _ in range(MOST_TRIES)] == [[range(5, 6)], [range(5, 6)], []]
    assert _cut([range(6, 7)], tries) == [range(6, 7)], "every group is counted by itself"


def test_rows_are_reported_as_the_heartbeats_count_them() -> None:
    """Only those of this pass, never twice, and never more than there are: a lost worker's rows may be added again."""
    told: list[int] = []
    costs = Costs(report=told.append)
    costs.begin_read(1000)
    reports = RowReports(costs, "this", 1000)
    for counts in (
        ({"this": 100}, {"that": 900}),
        ({"this": 400}, {"this": 200}),
        ({"this": 300}, {}),
        ({"this": 2000}, {}),
    ):
        reports.report(
            {str(k): {"metrics": {DONE_ROWS: done}} for k, done in enumerate(counts)} | {"new": {"metrics": {}}}
        )
    reports.finish()
    assert told == [100, 500, 400]
    assert costs.reading is not None
    assert costs.reading.done_rows == 1000
