"""The worker's side of a pass: the task that adds groups of chunks, and the data kept for the next pass.

A task returns the sums of whole subtrees. A worker keeps chunks and row states for an engine until the engine is
closed. A worker may join during a training, with less memory than the plan assumed. So each task carries the budget of
its engine, which a worker applies before its first task.

While a task runs, the driver may take back the last of the groups that the task has not begun, and give them to an idle
worker. It may also take back all groups that the task has not begun, except the next one; after that group, the task
ends and hands over its totals. A task ends early once its result is no longer needed: after an error elsewhere, after
Ctrl-C, or after the death of the driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, Lock
from typing import Any

from distributed import Worker, get_worker
from distributed.protocol.pickle import dumps

from streamsvm.data.rows.source import RowSource
from streamsvm.engines.cluster.tree import STOLEN_SUBTREES, Subtree, add_subtree, find_last_subtree, join_subtrees
from streamsvm.engines.engine import Partial
from streamsvm.engines.row_states import TileStates
from streamsvm.engines.tasks import ChunkCache, Kept, Scratch, combine_partials, row_range, run_group, run_walk
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.numeric.rows import I64, Rows
from streamsvm.passes import Order, Scan, WalkStep
from streamsvm.system import deadline
from streamsvm.system.errors import InputError, IntegrityError, ReadError, TimeLimitError

EVERY_WORKER = "; every worker opens the dataset by this path: use a folder that all of them share, or an object store"
Load = Callable[[], object]  # a function, importable by name, that loads the kernels of later tasks
Groups = Sequence[range]
SMALL_BYTES = 64 << 10
DONE_ROWS = "streamsvm-done-rows"  # in the heartbeats of a worker: the number of rows added in its latest pass

# The data that this process keeps. Key: the name of the engine and the address of the worker. Value: the chunks, by the
# fingerprint of their rows, and the row states.
_kept: dict[tuple[str, str], tuple[dict[str, ChunkCache], TileStates]] = {}
_closed: deque[str] = deque(maxlen=1000)  # closed engines; their tasks may still run, or even start
_lock = Lock()  # held for look-ups and when an engine closes, so that no task keeps data for a closed engine


def load_nothing() -> None:
    """Do nothing: the loader of tasks without compiled functions."""


@dataclass(frozen=True)
class WorkerBudget:
    """The memory that an engine may use in each worker.

    engine: the unique name of the engine. pin_bytes: the memory for chunks in a worker with a limit of budget_bytes (0:
    no limit). load: a function that loads the kernels; it costs nothing after the first call. state_bytes: the memory
    for row states (None: no limit).
    """

    engine: str
    pin_bytes: int = 0
    budget_bytes: int = 0
    load: Load = load_nothing
    state_bytes: int | None = None


def require_data(source: RowSource | None, worker: Worker) -> None:
    """Raise InputError, naming the worker, if this worker cannot open the dataset of a source."""
    try:
        if source is not None:
            _ = source.fingerprint
    except (IntegrityError, ReadError, TimeLimitError):  # their messages name the cause
        raise
    except (InputError, OSError) as error:
        raise InputError(f"worker {worker.address}: {error}{EVERY_WORKER}") from error


def find_kept(source: RowSource, budget: WorkerBudget, worker: Worker) -> Kept:
    """Return the chunks and row states that this worker keeps for an engine; a closed engine keeps none.

    A worker with less memory than the plan assumed keeps fewer chunks. Raises the errors of `require_data`.
    """
    require_data(source, worker)
    limit_bytes = int(worker.memory_manager.memory_limit or budget.budget_bytes)
    room = max(0, budget.pin_bytes - max(0, budget.budget_bytes - limit_bytes))
    with _lock:
        if budget.engine in _closed:
            return ChunkCache(0), TileStates(0)
        caches, states = _kept.setdefault((budget.engine, worker.address), ({}, TileStates(budget.state_bytes)))
        return caches.setdefault(source.fingerprint, ChunkCache(room)), states


def release_worker(engine: str, dask_worker: Worker) -> None:
    """Free the memory that a closed engine uses in a worker. Later tasks of the engine keep nothing."""
    with _lock:
        _closed.append(engine)
        _kept.pop((engine, dask_worker.address), None)


@dataclass(frozen=True)
class Pass:
    """The data shared by all tasks of a pass. scan: has no `by_row` arrays."""

    name: str
    budget: WorkerBudget
    scan: Scan
    scratch: Scratch | None

    def __dask_tokenize__(self) -> str:
        """Return the unique name of the pass. Dask would otherwise hash all of its arrays for every task."""
        return self.name

    def is_small(self) -> bool:
        """Return whether the pass travels with each task. Sent separately, it would cost two messages per worker."""
        buffers: list[Any] = []
        rest = dumps(self, buffer_callback=buffers.append)
        nbytes: int = len(rest) + sum(buffer.raw().nbytes for buffer in buffers)
        return nbytes <= SMALL_BYTES


@dataclass(frozen=True)
class TaskGroups:
    """The groups of chunks that a task adds.

    ranges: the groups, in order. by_row: for each group, the entries of `Scan.by_row` for its rows. owner: the address
    of the worker to which the groups are assigned. kept: all groups assigned to the owner, which keeps their chunks;
    any other worker that runs the task keeps none.
    """

    ranges: tuple[range, ...]
    by_row: Mapping[int, tuple[Any, ...]]
    owner: str = ""
    kept: tuple[range, ...] = ()

    def __dask_tokenize__(self) -> list[tuple[int, int]]:
        """Return the limits of the ranges, which identify the task within its pass."""
        return [(one.start, one.stop) for one in self.ranges]


@dataclass(eq=False)
class RunningTask:
    """A task that a worker in this process is running. waiting: the groups that the task has not begun.

    Two workers in one process may run a task with the same key at the same time, if the scheduler has given up one of
    them that is still alive.
    """

    key: str
    name: str
    worker: str
    waiting: deque[int]
    lock: Lock = field(default_factory=Lock)

    def take(self) -> int | None:
        """Return the next group, which the task is about to begin; None if none is left."""
        with self.lock:
            return self.waiting.popleft() if self.waiting else None

    def give_away(self, n_groups: int) -> range | None:
        """Give up about the last half of the groups not begun, as whole subtrees. Return them for another worker."""
        with self.lock:
            if not self.waiting:
                return None
            stop = start = self.waiting[-1] + 1
            most = (len(self.waiting) + 1) // 2
            for _ in range(STOLEN_SUBTREES):
                before = find_last_subtree(start, most - (stop - start), n_groups)
                if stop - before > most or self.waiting[before - stop] != before:
                    break
                start = before
            for _ in range(start, stop):
                self.waiting.pop()
            return range(start, stop)

    def leave(self) -> list[int]:
        """Give up all groups not begun except the next one, and return them. After the next group, the task ends."""
        with self.lock:
            left = list(self.waiting)[1:]
            for _ in left:
                self.waiting.pop()
            return left


_running: set[RunningTask] = set()
_done_rows: dict[str, tuple[str, int]] = {}  # by worker: its latest pass, and the number of rows added in it


class AbandonedError(RuntimeError):
    """The result of this task is no longer needed."""


@contextmanager
def waits_end() -> Iterator[None]:
    """Let a task stop waiting for an object store once the task is not needed or its training is out of time."""
    key, is_stopped = get_worker().get_current_task(), watch_task()
    with deadline.held(lambda: is_stopped() or key in deadline.ENDED):
        yield


@waits_end()
@one_blas_thread()
def add_groups(data: tuple[RowSource, Groups], work: Pass, part: TaskGroups) -> list[Subtree]:
    """Return the sums of the groups as the fewest whole subtrees. Raises the errors of reading."""
    work.budget.load()
    (source, groups), worker, key = data, get_worker(), get_worker().get_current_task()
    combine, is_stopped = partial(combine_partials, combine=work.scan.combine), watch_task()
    kept = _find_room(source, groups, work, part, worker)
    task = RunningTask(key, work.name, worker.address, deque(k for one in part.ranges for k in one))
    note_rows = _make_noter(worker, work.name)
    with _lock:
        _running.add(task)
    found: list[Subtree] = []
    try:
        while (k := task.take()) is not None:
            mine = replace(work.scan, by_row=part.by_row[k])
            total = run_group(source, groups[k], mine, kept, is_stopped, work.scratch, note_rows)
            if is_stopped():
                raise AbandonedError(key)
            add_subtree(found, Subtree(k, k + 1, total), len(groups), combine)
        return found
    finally:
        with _lock:
            _running.remove(task)


def watch_task() -> Callable[[], bool]:
    """Return a function that returns whether this task is no longer needed. Once True, it stays True."""
    tasks, key, stopped = get_worker().state.tasks, get_worker().get_current_task(), Event()

    def is_stopped() -> bool:
        task = tasks.get(key)  # the thread of the worker's event loop may remove the task at any time
        if task is None or task.state == "cancelled":
            stopped.set()
        return stopped.is_set()

    return is_stopped


def _find_room(source: RowSource, groups: Groups, work: Pass, part: TaskGroups, worker: Worker) -> Kept:
    """Return the chunks and row states that this worker keeps. It adds data only for groups assigned to it."""
    pins, states = find_kept(source, work.budget, worker)
    if part.owner != worker.address:
        return ChunkCache(0, pins.chunks), TileStates(0)
    pins.retain({index for one in part.kept for k in one for index in groups[k]})
    states.retain([row_range(source, (groups[one[0]][0], groups[one[-1]][-1])) for one in part.kept])
    return pins, states


def give_away(name: str, n_groups: int, dask_worker: Worker) -> range | None:
    """Make this worker give up groups of a pass that it has not begun, and return them for another worker."""
    tasks = _list_running(name, dask_worker)
    return max(tasks, key=lambda task: len(task.waiting)).give_away(n_groups) if tasks else None


def leave_groups(name: str, dask_worker: Worker) -> dict[str, list[int]]:
    """Make each task of this worker leave groups of a pass to other tasks; return these groups by task key."""
    return {task.key: task.leave() for task in _list_running(name, dask_worker)}


def _list_running(name: str, dask_worker: Worker) -> list[RunningTask]:
    with _lock:
        return [task for task in _running if (task.name, task.worker) == (name, dask_worker.address)]


def _make_noter(worker: Worker, name: str) -> Callable[[int], None]:
    """Return a function that counts rows as added in the pass with this name, for the heartbeats of the worker."""
    # The event loop iterates over the metrics, so they are changed in its thread.
    worker.loop.add_callback(worker.metrics.setdefault, DONE_ROWS, report_done_rows)
    address = worker.address

    def note(n_rows: int) -> None:
        with _lock:
            latest, before = _done_rows.get(address, (name, 0))
            _done_rows[address] = name, n_rows + (before if latest == name else 0)

    return note


def report_done_rows(dask_worker: Worker) -> dict[str, int]:
    """Return the number of rows that a worker has added in its latest pass, keyed by the name of the pass."""
    found = _done_rows.get(dask_worker.address)
    return {} if found is None else dict([found])


@one_blas_thread()
def join_tasks(combine: Callable[..., Partial], n_groups: int, parts: Sequence[Sequence[Subtree]]) -> list[Subtree]:
    """Join the subtrees of several tasks into the fewest subtrees."""
    return join_subtrees([one for part in parts for one in part], n_groups, combine)


@waits_end()
@one_blas_thread()
def carry_walk(
    data: tuple[RowSource, Groups], step: WalkStep, carry: Any, order: Order, budget: WorkerBudget, name: str
) -> Partial:
    """Carry out a walk through groups of chunks, and return its last carry with the costs. name: that of the pass."""
    budget.load()
    pins, _ = find_kept(data[0], budget, get_worker())
    return run_walk(data[0], step, carry, order, pins, watch_task(), _make_noter(get_worker(), name))


@waits_end()
def take_rows(data: tuple[RowSource, Groups], rows: I64) -> Rows:
    """Return rows of the source by number."""
    require_data(data[0], get_worker())
    return data[0].take(rows)
