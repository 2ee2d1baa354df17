"""The engine on a cluster: the driver's side of passes, walks, and requests for single rows.

A worker has a slot for each of its threads. A slot adds the same range of groups in every pass, since the worker keeps
the chunks of that range. If workers join or leave, the other slots keep their groups, up to an equal share. Vectors
travel with tasks, because data scattered to a worker would be lost with this worker.

Each slot gets its groups as one task (engines.cluster.task). In a long pass it gets two tasks, because an adaptive
cluster starts at most one worker per task. All tasks travel in one message, so the scheduler's work grows with the
workers and not with the groups. Idle workers get groups that others have not begun. Dask gives the groups of a lost
worker to another worker, from which idle workers take them.

The sums of a task are lost with its worker. So in a long pass, tasks are ended and renewed every HAND_OVER_SECONDS: an
old task finishes its current group and the next one, new tasks on the same worker take the remaining groups, and the
driver fetches the subtrees that the old task has added.

If a task was lost with four workers, one after another, it is cut in two, because only short tasks finish if workers
die every few seconds. A single group is tried MOST_TRIES times, because Dask also counts a loss for tasks that were
only waiting at the lost worker, and after the loss of all workers, all tasks wait at the first worker that joins.
Finally, workers join the subtrees of all tasks into one. Groups that no subtree contains are added last. A group is
missing if a worker gave it away, and the worker's answer was lost.

Single rows are read by several tasks, each from consecutive groups of chunks. A sample of unshuffled rows is spread
over all chunks; a single task would read all of them, and would start again after the loss of its worker. A few rows
are read by one task, since each task costs the scheduler some milliseconds.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import dask
import dask.config
import numpy as np
from distributed import Client, Future

from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.engines.cluster import task
from streamsvm.engines.cluster.task import Load, Pass
from streamsvm.engines.cluster.tree import FAN_IN, MOST_STOLEN, Subtree, find_gaps, find_last_subtree, join_subtrees
from streamsvm.engines.cluster.watch import MOST_TRIES, ClusterWatch, ask_within
from streamsvm.engines.engine import Costs, Partial
from streamsvm.engines.tasks import begin_walks, combine_partials, count_walked, plan_scratch, slice_by_row
from streamsvm.numeric.compilation import MIXED, Arithmetic, describe_arithmetic, list_kinds, name_differences
from streamsvm.numeric.rows import I64, CsrRows, Matrix, Rows
from streamsvm.passes import Scan, Take, Walk
from streamsvm.system.shared import SharedSetting

Slot = tuple[str, int]  # the address of a worker, and the number of one of its threads
Share = tuple[str, str, Sequence[range]]  # a task: the worker that gets it, the owner of its groups, and the groups
MOST_RANGES = 2  # ranges per slot; with more, more totals would wait than the memory plan allows


def share_out(n_groups: int, slots: Sequence[Slot], before: Mapping[Slot, Sequence[range]]) -> dict[Slot, list[range]]:
    """Assign ranges of groups to each slot. before: the assignment of the last pass, preserved as far as possible.

    In the first assignment, each slot gets one range. Later assignments are also made in this way if a slot would
    otherwise get more than MOST_RANGES ranges.
    """
    quota = np.diff(np.arange(len(slots) + 1) * n_groups // len(slots))
    owner = np.full(n_groups, -1)
    for number, slot in enumerate(slots):
        groups = [k for groups in before.get(slot, ()) for k in groups if k < n_groups]
        owner[groups[: quota[number]]] = number
    lacking = quota - np.bincount(owner[owner >= 0], minlength=len(slots))
    owner[owner < 0] = np.repeat(np.arange(len(slots)), lacking)
    shares = _list_ranges(owner, slots)
    if any(len(ranges) > MOST_RANGES for ranges in shares.values()):
        return _list_ranges(np.repeat(np.arange(len(slots)), quota), slots)
    return shares


def halve(ranges: Sequence[range], n_groups: int) -> list[Sequence[range]]:
    """Divide the groups of a task between two tasks, if there are several groups.

    If the groups form one range, the second task gets a whole subtree. The sum of a whole subtree is a single total, so
    at most one more total waits in memory.
    """
    *others, last = ranges
    if others:
        return [others, [last]]
    cut = find_last_subtree(last.stop, len(last) // 2, n_groups)
    return [[part] for part in (range(last.start, cut), range(cut, last.stop)) if part]


def _list_ranges(owner: np.ndarray, slots: Sequence[Slot]) -> dict[Slot, list[range]]:
    return {slot: list(_find_ranges(np.flatnonzero(owner == number))) for number, slot in enumerate(slots)}


SHORTEST_PAUSE, LONGEST_PAUSE, PAUSE_SHARE = 0.2, 1.0, 0.125  # seconds between two searches for idle workers
HAND_OVER_SECONDS = 15.0  # the time between two hand-overs of the sums of all tasks, if totals are small
MOST_ASKED = 16  # the maximum number of workers that are asked at a time to give away groups
ASKED_SECONDS = 2.0  # a worker that takes longer to give away groups is left alone for the rest of the pass


class PassOnWorkers:
    """A running pass of an engine.

    by_row: the arrays of the scan with an entry for each row. is_long: whether each slot gets two tasks. The source
    with its groups is sent as the result of a separate task. So is the pass, unless it is small.
    """

    def __init__(
        self, engine: DistributedEngine, work: Pass, by_row: Sequence[np.ndarray], watch: ClusterWatch, is_long: bool
    ) -> None:
        self.engine, self.work, self.by_row, self.watch, self.is_long = engine, work, by_row, watch, is_long
        self.source, self.groups, self._is_small = engine.source, plan_groups(engine.source), work.is_small()
        self._combine = partial(combine_partials, combine=work.scan.combine)
        self._futures: dict[str, Future] = {}
        self._ranges: dict[str, tuple[range, ...]] = {}  # by task: its groups
        self._owners: dict[str, str] = {}  # by task: the worker to which its groups are assigned, or ""
        self._kept: dict[str, tuple[range, ...]] = {}  # by worker: all of its groups
        self._handed: list[Subtree] = []  # the subtrees that tasks have handed over
        self._stolen = Counter[str]()  # by worker: how often it took groups from other workers
        self._tries = Counter[range]()  # by single group: how often its task was lost, each time with four workers
        self._sends = 0  # the number of times that source and pass were sent
        self._mute = set[str]()  # workers that did not answer a request

    def carry_out(self, shares: Mapping[Slot, Sequence[range]]) -> Partial:
        """Return the totals of all groups. Raises the error of a task, or ConnectionError if the scheduler is lost."""
        self._send()
        for (address, _), ranges in shares.items():
            self._kept[address] = (*self._kept.get(address, ()), *ranges)
        try:
            owned = [(address, address, ranges) for (address, _), ranges in shares.items() if ranges]
            self._submit(owned or [_free(range(len(self.groups)))], len(owned) if self.is_long else 0)
            while True:
                self._await_parts()
                found = self._join()
                gaps = find_gaps(found, len(self.groups))
                if not gaps:
                    return found[0].partial
                self._submit(map(_free, gaps))
        finally:  # after a failure or Ctrl-C, the other tasks end early
            for future in self._futures.values():
                future.release()

    def _send(self) -> None:
        """Send the data that all tasks share: the source with its groups, and the pass."""
        self._sends += 1
        data = self.engine.send_data()
        self._sent: tuple[Future, Pass | Future] = data, self.work if self._is_small else self.engine.hold(self.work)

    def _submit(self, shares: Iterable[Share], spare: int = 0) -> None:
        """Send tasks to the scheduler in one message. Each task prefers one worker, but may run on another.

        Up to `spare` shares are divided between two tasks, since an adaptive cluster starts at most one worker per
        task.
        """
        graph: dict[str, Any] = {}
        where: dict[str, list[str]] = {}
        for number, (address, owner, ranges) in enumerate(shares):
            for half in halve(ranges, len(self.groups)) if number < spare else [ranges]:
                by_row = {k: slice_by_row(self.source, self.groups[k], self.by_row) for one in half for k in one}
                part = task.TaskGroups(tuple(half), by_row, owner, self._kept.get(owner, ()))
                key = f"streamsvm-part-{self.work.name}-{len(self._ranges)}"
                graph[key], where[key] = (task.add_groups, *self._sent, part), [address]
                self._ranges[key], self._owners[key] = part.ranges, owner
        if graph:
            is_free = next(iter(where.values())) == [""]
            with dask.annotate(**({} if is_free else {"workers": where.get, "allow_other_workers": True})):
                self._futures.update(zip(graph, self.watch.client.get(graph, list(graph), sync=False), strict=True))

    def _await_parts(self) -> None:
        """Wait until all tasks are done. Idle workers help meanwhile."""
        began = handed = time.monotonic()
        while pending := self._list_pending():
            now = time.monotonic()
            pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, PAUSE_SHARE * (now - began)))
            if not self.watch.wait(list(pending.values()), pause):
                self.watch.look_again(list(pending.values()))
                has_room = now - began >= HAND_OVER_SECONDS and self._fetch()
                if has_room and now - handed >= HAND_OVER_SECONDS:
                    self._renew(pending)
                    handed = now
                self._submit([(thief, "", [one]) for thief, one in self._steal(pending)])

    def _list_pending(self) -> dict[str, Future]:
        """Return the pending tasks. A task that was lost too often is cut in two. Raises the error of a failed task.

        The source and the pass are sent again if a task that holds one of them was lost, up to MOST_TRIES times.
        """
        for key in [key for key, future in self._futures.items() if future.status == "error"]:
            held = [one for one in self._sent if isinstance(one, Future)]
            if any(one.status == "error" and self.watch.was_lost(one) for one in held) and self._sends < MOST_TRIES:
                self._send()
            again = _cut(self._ranges[key], self._tries) if self.watch.was_lost(self._futures[key]) else []
            if not again:
                self.watch.result(self._futures[key])
            self._futures.pop(key).release()
            self._submit(map(_free, again))
        return {key: future for key, future in self._futures.items() if future.status == "pending"}

    def _steal(self, pending: Mapping[str, Future]) -> list[tuple[str, range]]:
        """Make busy workers give away groups; return these with the addresses of the idle workers that take them."""
        client, threads, n_groups = self.watch.client, self.watch.threads, len(self.groups)
        running: dict[str, list[str]] = self.watch.ask(self.watch.scheduler.processing, workers=None) or {}
        idle = [
            address
            for address, keys in running.items()
            for _ in range(threads.get(address, 0) - len(keys))
            if self._stolen[address] < MOST_STOLEN * threads[address]
        ]
        slow = [
            address for address, keys in running.items() if address not in self._mute and pending.keys() & set(keys)
        ]
        asked = slow[: min(len(idle), MOST_ASKED)]
        if not asked:
            return []
        question = partial(client.run, task.give_away, self.work.name, n_groups, workers=asked, on_error="ignore")
        answers: dict[str, range | None] = self.watch.ask(question, seconds=ASKED_SECONDS) or {}
        self._mute.update(set(asked) - answers.keys())
        found = list(zip(idle, [groups for groups in answers.values() if groups], strict=False))
        self._stolen.update(address for address, _ in found)
        return found

    def _fetch(self) -> bool:
        """Fetch the subtrees of finished tasks; return whether there is room for more.

        If subtrees were lost with their worker, Dask computes them again, and they are fetched later.
        """
        for key, future in list(self._futures.items()):
            if future.status != "finished":
                continue
            if len(self._handed) >= self.engine.most_handed:
                return False
            fetched = self.watch.ask(self.watch.fetch, [future], errors="skip")
            if fetched is None:
                return False
            if fetched:
                self._handed = self._join_here(fetched[0])
                self._futures.pop(key).release()
        return len(self._handed) < self.engine.most_handed

    def _renew(self, pending: Mapping[str, Future]) -> None:
        """Make tasks end after the current group and the next one; submit new tasks for the groups that they leave."""
        question = partial(self.watch.client.run, task.leave_groups, self.work.name, on_error="ignore")
        answers: dict[str, dict[str, list[int]]] = self.watch.ask(question, seconds=ASKED_SECONDS) or {}
        new = []
        for address, tasks in answers.items():
            for key in tasks.keys() & pending.keys():
                mine = {k for one in self._ranges[key] for k in one}
                left = mine.intersection(tasks[key])
                if left:
                    self._ranges[key] = _find_ranges(mine - left)
                    new.append((address, self._owners[key], _find_ranges(left)))
        self._submit(new, 2 * sum(self.watch.threads.values()) - len(pending))

    def _join_here(self, more: Sequence[Subtree]) -> list[Subtree]:
        """Join the subtrees already handed over, and those in `more`, into the fewest subtrees."""
        return join_subtrees([*self._handed, *more], len(self.groups), self._combine)

    def _join(self) -> list[Subtree]:
        """Make workers join the subtrees of all tasks; return the fewest subtrees.

        A lost join is repeated like any other task.
        """
        if not self._futures:
            return self._handed
        if len(self._futures) == 1:  # the future is kept, since its subtrees may be joined with others later
            (only,) = self._futures.values()
            return self._join_here(self.watch.result(only))
        return self._join_here(next(self.watch.results([self._submit_join])))

    def _submit_join(self) -> Future:
        """Submit tasks that join the subtrees of all tasks; return the last one, whose result covers all tasks."""
        keys = sorted(self._futures, key=lambda key: self._ranges[key][0].start)
        parts: list[Any] = [self._futures[key] for key in keys]
        graph, join = dict[str, Any](), (task.join_tasks, self._combine, len(self.groups))
        while len(parts) > 1:
            together = [parts[at : at + self.engine.fan_in] for at in range(0, len(parts), self.engine.fan_in)]
            parts = [f"streamsvm-join-{self.work.name}-{uuid4().hex}" for _ in together]
            graph |= {key: (*join, some) for key, some in zip(parts, together, strict=True)}
        joined: Future = self.watch.client.get(graph, parts[0], sync=False)
        return joined


def _free(groups: range) -> Share:
    """Return a task for some groups, to run on a worker of the scheduler's choice."""
    return "", "", [groups]


def _cut(ranges: Sequence[range], tries: Counter[range]) -> list[range]:
    """Return the groups to try in place of a lost task: several ranges one by one, or one range in two halves.

    A single group is tried up to MOST_TRIES times in all. tries: for each single group, how often its task was lost.
    """
    if len(ranges) > 1:
        return list(ranges)
    (one,) = ranges
    if len(one) > 1:
        return [one[: len(one) // 2], one[len(one) // 2 :]]
    tries[one] += 1
    return [one] if tries[one] < MOST_TRIES else []


def _find_ranges(groups: Iterable[int]) -> tuple[range, ...]:
    """Return these numbers as the fewest possible ranges, in order."""
    ordered = np.array(sorted(groups), np.int64)
    parts = np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1)
    return tuple(range(int(part[0]), int(part[-1]) + 1) for part in parts if len(part))


@dataclass
class RowReports:
    """The reports of the rows that workers have added in a pass, according to their heartbeats.

    name: the name of the pass. n_rows: the number of its rows. reported: the number of rows reported so far.
    """

    costs: Costs
    name: str
    n_rows: int
    reported: int = 0

    def report(self, workers: Mapping[str, Any]) -> None:
        """Report the rows added since the last report. workers: the scheduler's record of each worker."""
        done = [about["metrics"].get(task.DONE_ROWS, {}).get(self.name, 0) for about in workers.values()]
        self._report_up_to(min(sum(done), self.n_rows))

    def finish(self) -> None:
        """Report the rest of the rows."""
        self._report_up_to(self.n_rows)

    def _report_up_to(self, n_rows: int) -> None:
        if n_rows > self.reported:
            self.costs.report_rows(n_rows - self.reported)
            self.reported = n_rows


T = TypeVar("T")
ROWS_A_PART = 1000  # the minimum number of rows that a task reads
PARTS_A_THREAD = 4  # tasks per thread, so that little is lost with a worker


def cut_take(source: RowSource, groups: Sequence[range], rows: I64, threads: int) -> list[I64]:
    """Divide row numbers into parts, so that each group of chunks has rows of only one part.

    Numbers that are not ascending form one part, because the parts are joined in order.
    """
    starts = source.chunk_starts[[group[0] for group in groups]]
    group_of_row = np.searchsorted(starts, rows, side="right")
    n_touched = len(np.unique(group_of_row))
    n_parts = min(PARTS_A_THREAD * threads, n_touched, len(rows) // ROWS_A_PART)
    if n_parts < 2 or np.any(np.diff(rows) < 0):
        return [rows]
    place = np.cumsum(np.diff(group_of_row, prepend=group_of_row[0]) > 0)  # rank among the needed groups
    return np.split(rows, np.flatnonzero(np.diff(place * n_parts // n_touched)) + 1)


def join_taken(parts: Iterable[Rows]) -> Rows:
    """Join parts as they arrive, in arrays that grow in place, so that no rows are in memory twice."""
    arrays: dict[str, Any] = {}
    n_features = 0
    for part in parts:
        n_features = part.X.shape[1]
        for name, more in {**_list_arrays(part.X), **part.vectors}.items():
            arrays[name] = _grow(arrays[name], more) if name in arrays else np.array(more, order="C")
    if "X" in arrays:
        return Rows(-1, **arrays)
    items = arrays.pop("lengths")
    indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(items)))
    return Rows(-1, CsrRows(arrays.pop("data"), arrays.pop("indices"), indptr, n_features), **arrays)


def _list_arrays(X: Matrix) -> dict[str, Any]:
    if isinstance(X, CsrRows):
        return {"data": X.data, "indices": X.indices, "lengths": np.diff(X.indptr)}
    return {"X": X}


def _grow(array: Any, more: Any) -> Any:
    """Append rows to an array in place; the system remaps its pages and copies nothing."""
    n_rows = len(array)
    array.resize((n_rows + len(more), *array.shape[1:]), refcheck=False)
    array[n_rows:] = more
    return array


LOGGER = logging.getLogger("streamsvm")
RELEASE_SECONDS = 5.0
# After a pass that took longer than LONG_SECONDS, each thread gets two tasks in the next pass. Passes of less than
# SECONDS_OF_TASK per thread are an exception, since a task costs the scheduler 0.0006 s.
LONG_SECONDS, SECONDS_OF_TASK = 1.0, 0.01
models_may_travel = SharedSetting(
    partial(dask.config.set, {"distributed.admin.large-graph-warning-threshold": "1TB"})
).held


class DistributedEngine:
    """An Engine on a Dask cluster. Every worker must be able to open the dataset `source` by its path.

    pin_bytes: the memory for decoded chunks in a worker with a limit of budget_bytes; a worker with less memory keeps
    fewer chunks. fan_in: the largest number of tasks whose totals one task joins. arithmetic: the kinds of arithmetic
    of the workers (numeric.compilation). load: a function that loads the kernels of the tasks. state_bytes: the memory
    for the row states of a worker (None: no limit). most_handed: the largest number of totals that the driver takes
    over during a pass, so that they cannot be lost with a worker.
    """

    def __init__(
        self,
        source: RowSource,
        client: Client,
        pin_bytes: int = 0,
        fan_in: int = FAN_IN,
        arithmetic: Sequence[Arithmetic] = (),
        budget_bytes: int = 0,
        load: Load = task.load_nothing,
        state_bytes: int | None = None,
        most_handed: int = 0,
    ) -> None:
        self.source, self.client, self.pin_bytes, self.costs = source, client, pin_bytes, Costs()
        self.fan_in, self.most_handed = fan_in, most_handed
        self.scratch: str | None = None
        self.arithmetic = list_kinds([describe_arithmetic(), *arithmetic])
        self._address: str = client.scheduler.address
        self._budget = task.WorkerBudget(uuid4().hex, pin_bytes, budget_bytes, load, state_bytes)
        self._passes, self._workers, self._described = 0, set[str](), set[str]()
        self._seconds = 0.0  # the duration of the last pass that read chunks
        self._shares: dict[Slot, list[range]] = {}
        self._sent: tuple[RowSource, Future] | None = None
        self._answered: ClusterWatch | None = None  # the watch of the last pass, if it was completed

    def send_data(self) -> Future:
        """Return the source (with its feature map, if any) and its groups as the result of a task.

        In this way, each worker gets the data once. The data are sent again if the task was lost with its workers.
        """
        if self._sent is None or self._sent[0] is not self.source or self._sent[1].status == "error":
            data = self.source, plan_groups(self.source)
            self._sent, self._shares = (self.source, self.hold(data)), {}
        return self._sent[1]

    def hold(self, shared: Any) -> Future:
        """Return shared data as the result of a task. Workers pass the data on, so that each worker gets them once."""
        return share(self.client, shared)

    def list_slots(self) -> list[Slot]:
        """Return the threads of all current workers. Raises ConnectionError if the scheduler is lost."""
        return ClusterWatch(self.client, "counting workers", None, self._address).list_slots()

    def _list_slots(self, watch: ClusterWatch) -> list[Slot]:
        """Return the threads of all workers, and record the arithmetic of new workers."""
        slots = watch.list_slots()
        joined = sorted(self._workers - self._described)
        if joined:
            ask = partial(self.client.run, describe_arithmetic, workers=joined, on_error="ignore")
            found: dict[str, Arithmetic] = watch.ask(ask) or {}
            self._described.update(joined)
            self.arithmetic, before = list_kinds([*self.arithmetic, *found.values()]), self.arithmetic
            if len(self.arithmetic) > len(before):
                LOGGER.warning(MIXED, name_differences(self.arithmetic))
        return slots

    def _begin_pass(self, n_rows: int) -> tuple[ClusterWatch, RowReports]:
        """Begin to watch a pass over n_rows rows, whose progress is reported."""
        self._passes, self._answered = self._passes + 1, None
        watch = ClusterWatch(self.client, f"read {self._passes} of the data", self._workers, self._address)
        reports = RowReports(self.costs, f"{self._budget.engine}-{self._passes}", n_rows)
        watch.on_look = reports.report
        return watch, reports

    def scan(self, scan: Scan) -> Any:
        """See Engine. Raises ConnectionError if the scheduler is lost."""
        (watch, reports), groups = self._begin_pass(self.source.n_rows), plan_groups(self.source)
        self.costs.begin_read(self.source.n_rows)
        slots = self._list_slots(watch)
        room = self.pin_bytes * max(1, len({address for address, _ in slots}))
        scratch = plan_scratch(self.scratch, self.source, room)
        work = Pass(reports.name, self._budget, replace(scan, by_row=(), held=None), scratch)
        with models_may_travel():
            self._shares = share_out(len(groups), slots, self._shares) if slots else {}
            is_long = self._seconds >= max(LONG_SECONDS, SECONDS_OF_TASK * len(slots)) and not scan.of_states
            began = time.monotonic()
            total = PassOnWorkers(self, work, scan.by_row, watch, is_long).carry_out(self._shares)
        reports.finish()
        self._answered = watch
        if not scan.of_states:
            self._seconds = time.monotonic() - began
        return self.costs.count(total)

    def take(self, take: Take) -> Rows:
        """See Engine."""
        watch = ClusterWatch(self.client, "reading single rows", None, self._address)
        slots, tasks = [address for address, _ in watch.list_slots()], []
        with models_may_travel():
            parts = cut_take(self.source, plan_groups(self.source), take.rows, len(slots))
            for k, part in enumerate(parts):
                near = _prefer(slots, k, len(parts))
                tasks.append(partial(self._submit_on_data, "rows", task.take_rows, part, **near))
            found = watch.results(tasks)
            rows: Rows = join_taken(found) if len(parts) > 1 else next(found)
        self.costs.read_bytes += self.source.take_bytes(take.rows)
        return rows

    def walk(self, walk: Walk) -> list[Any]:
        """See Engine."""
        (watch, reports), tasks = self._begin_pass(count_walked(self.source, walk.orders)), []
        begin_walks(self.costs, self.source, walk)
        workers = sorted(watch.describe_workers())
        with models_may_travel():
            for k, (carry, order) in enumerate(zip(walk.carries, walk.orders, strict=True)):
                arguments = walk.step, carry, order, self._budget, reports.name
                near = _prefer(workers, k, len(walk.carries))  # the same worker in every pass while it lives
                tasks.append(partial(self._submit_on_data, "walk", task.carry_walk, *arguments, **near))
            parts = list(watch.results(tasks))
        reports.finish()
        self._answered = watch
        return [self.costs.count(part) for part in parts]

    def _submit(self, kind: str, function: Callable[..., Any], *arguments: Any, **preferred: Any) -> Future:
        """Send a task to the scheduler under a unique key; dashboards show the kind."""
        return self.client.submit(function, *arguments, key=f"streamsvm-{kind}-{uuid4().hex}", **preferred)

    def _submit_on_data(self, kind: str, function: Callable[..., Any], *arguments: Any, **preferred: Any) -> Future:
        """Send a task whose first argument is the source and its groups."""
        return self._submit(kind, function, self.send_data(), *arguments, **preferred)

    def close(self) -> None:
        """See Engine. Logs the workers lost in the last pass. Workers that do not answer keep their chunks."""
        if self._answered is not None:
            with suppress(ConnectionError):
                self._answered.look()
        self._sent = None
        if self.client.scheduler is None:  # the client has disconnected
            return
        release = partial(self.client.run, task.release_worker, self._budget.engine, on_error="ignore")
        with suppress(TimeoutError, OSError):
            ask_within(self.client, release, RELEASE_SECONDS)


def _prefer(addresses: Sequence[str], k: int, n_tasks: int) -> dict[str, Any]:
    """Return the options of task k, which prefers one worker; consecutive tasks share a preferred worker."""
    if not addresses:
        return {}
    return {"workers": [addresses[k * len(addresses) // n_tasks]], "allow_other_workers": True}


def share(client: Client, shared: Any) -> Future:
    """Return shared data as the result of a task, which the cluster repeats if a worker is lost."""
    with models_may_travel():
        return client.submit(_hold, shared, key=f"streamsvm-data-{uuid4().hex}")


def _hold(shared: Any) -> Any:
    return shared


def map_on_workers(
    client: Client, what: str, function: Callable[..., T], arguments: Sequence[tuple[Any, ...]]
) -> Iterator[T]:
    """Yield function(*each) for each of the arguments, in order, while workers carry out the later calls.

    what: the work, for messages. If a worker is lost, another worker repeats its call, as often as a task of a pass is
    repeated. Raises the error of the first call that fails, and ConnectionError if the scheduler is lost. In both
    cases, calls that have not begun are cancelled.
    """
    if not arguments:
        return

    def submit(each: tuple[Any, ...]) -> Future:  # repeats a call, which then has priority over later calls
        with models_may_travel():
            return client.submit(_call, function, *each, pure=False, priority=1)

    with models_may_travel():
        futures = client.map(partial(_call, function), *zip(*arguments, strict=True), pure=False)
    again = [partial(submit, each) for each in arguments]
    yield from ClusterWatch(client, what).results(again, futures)


@task.waits_end()
def _call(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function on a worker; it stops waiting for an object store once the result is no longer needed."""
    return function(*arguments)
