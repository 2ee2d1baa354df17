"""The task of a worker in a pass: it adds its own groups of chunks and returns the sums of whole subtrees.

While a task is under way, the driver may ask for the last of the groups that it has not begun, for a worker that has
nothing left to do; or for all but the next one, so that what the task has added is handed over. The task ends early
when nobody waits for it any more: after an error elsewhere, after Ctrl-C, and when the driver has died.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from streamsvm.data.source import RowSource
from streamsvm.engines.group import Pins, combine_partials, count_rows, run_group
from streamsvm.engines.kept import Terms, find_pins, find_states, require_data
from streamsvm.engines.row_states import KeptStates
from streamsvm.engines.subsets import Scratch
from streamsvm.engines.subtrees import STOLEN_SUBTREES, Subtree, add_subtree, find_last_subtree, join_subtrees
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.requests import Scan

if TYPE_CHECKING:
    from distributed import Worker

Groups = Sequence[range]
DONE_ROWS = "streamsvm-done-rows"  # in the heartbeats of workers: the rows that a worker has added in its pass


@dataclass(frozen=True)
class Pass:
    """What all tasks of a pass share. scan: without `by_row`."""

    name: str
    terms: Terms
    scan: Scan
    scratch: Scratch | None

    def __dask_tokenize__(self) -> str:
        """Return what tells this pass from others. Dask would otherwise look at all of it for every task."""
        return self.name


@dataclass(frozen=True)
class Addition:
    """How the totals of a pass are added up. scan: without arrays."""

    name: str
    scan: Scan

    def __dask_tokenize__(self) -> str:
        """Return the name of the pass. Dask would otherwise look at all that the functions of the scan hold."""
        return self.name


@dataclass(frozen=True)
class Part:
    """The groups that a task adds.

    ranges: in order. by_row: for each range, the entries of `Scan.by_row` of its rows. owner: the address of the worker
    whose groups these are, and that keeps the chunks of `kept`, which are all of its groups; any other worker that
    carries the task out keeps none of them.
    """

    ranges: tuple[range, ...]
    by_row: tuple[tuple[Any, ...], ...]
    owner: str = ""
    kept: tuple[range, ...] = ()

    def __dask_tokenize__(self) -> list[tuple[int, int]]:
        """Return what tells this part from others of its pass."""
        return [(one.start, one.stop) for one in self.ranges]


@dataclass(eq=False)
class UnderWay:
    """A task that a worker of this process carries out. waiting: the groups that it has not begun.

    Workers of one process may carry out a task of one key at the same time: when one is given up and lives on.
    """

    key: str
    name: str
    worker: str
    waiting: deque[int]
    lock: Lock = field(default_factory=Lock)

    def take(self) -> int | None:
        """Return the next group, which is begun now, or None if there is none left."""
        with self.lock:
            return self.waiting.popleft() if self.waiting else None

    def give_away(self, n_groups: int) -> range | None:
        """Return groups that somebody else adds instead: of those not begun the last, about half, as whole subtrees."""
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
        """Return the groups that are not begun, without the next one: the task ends after that one."""
        with self.lock:
            left = list(self.waiting)[1:]
            for _ in left:
                self.waiting.pop()
            return left


_under_way: set[UnderWay] = set()
_done_rows: dict[str, tuple[str, int]] = {}  # by worker: its latest pass, and the rows that it has added in it
_lock = Lock()


class AbandonedError(RuntimeError):
    """Nobody waits for this task any more."""


@one_blas_thread()
def add_part(data: tuple[RowSource, Groups], work: Pass, part: Part) -> list[Subtree]:
    """Return the sums of the part's groups, as the fewest whole subtrees. Raises what reading raises."""
    from distributed import get_worker

    work.terms.load()
    (source, groups), worker, key = data, get_worker(), get_worker().get_current_task()
    require_data(source, worker)
    combine, is_stopped = partial(combine_partials, scan=work.scan), watch_task()
    pins, states = _find_room(source, groups, work, part, worker)
    task = UnderWay(key, work.name, worker.address, deque(k for one in part.ranges for k in one))
    worker.loop.add_callback(worker.metrics.setdefault, DONE_ROWS, tell_done_rows)  # that thread goes through them
    with _lock:
        _under_way.add(task)
    found: list[Subtree] = []
    try:
        while (k := task.take()) is not None:
            mine = replace(work.scan, by_row=_cut_by_row(source, groups, part, k))
            total = run_group(source, groups[k], mine, pins, is_stopped, work.scratch, states)
            if is_stopped():
                raise AbandonedError(key)
            add_subtree(found, Subtree(k, k + 1, total), len(groups), combine)
            _note_rows(task, count_rows(source, groups[k]))
        return found
    finally:
        with _lock:
            _under_way.remove(task)


def watch_task() -> Callable[[], bool]:
    """Return a function that tells whether this task is no longer wanted. What it has told once stays so."""
    from distributed import get_worker

    tasks, key, told = get_worker().state.tasks, get_worker().get_current_task(), list[bool]()

    def is_stopped() -> bool:
        task = tasks.get(key)  # the thread of the worker's event loop may remove it at any time
        if not told and (task is None or task.state == "cancelled"):
            told.append(True)
        return bool(told)

    return is_stopped


def _find_room(source: RowSource, groups: Groups, work: Pass, part: Part, worker: Worker) -> tuple[Pins, KeptStates]:
    """Return the chunks and the numbers of rows that this worker keeps: it has room for those of its own groups."""
    pins = find_pins(source, work.terms, worker)
    if part.owner != worker.address:
        return Pins(0, pins.chunks), KeptStates(0)
    pins.keep_only({index for one in part.kept for k in one for index in groups[k]})
    states, starts = find_states(work.terms, worker), source.chunk_starts
    states.keep_only([(int(starts[groups[one[0]][0]]), int(starts[groups[one[-1]][-1] + 1])) for one in part.kept])
    return pins, states


def _cut_by_row(source: RowSource, groups: Groups, part: Part, k: int) -> tuple[Any, ...]:
    """Return the entries of the vectors by row that belong to a group."""
    number = next(number for number, one in enumerate(part.ranges) if k in one)
    first, start, stop = (
        int(source.chunk_starts[index])
        for index in (groups[part.ranges[number][0]][0], groups[k][0], groups[k][-1] + 1)
    )
    return tuple(vector[start - first : stop - first] for vector in part.by_row[number])


def give_away(name: str, n_groups: int, dask_worker: Worker) -> range | None:
    """Return groups of the pass with this name that this worker has not begun and leaves to another one."""
    tasks = _list_under_way(name, dask_worker)
    return max(tasks, key=lambda task: len(task.waiting)).give_away(n_groups) if tasks else None


def leave_groups(name: str, dask_worker: Worker) -> dict[str, list[int]]:
    """Return the groups that the tasks of this worker in the pass with this name leave to other tasks, by task."""
    return {task.key: task.leave() for task in _list_under_way(name, dask_worker)}


def _list_under_way(name: str, dask_worker: Worker) -> list[UnderWay]:
    with _lock:
        return [task for task in _under_way if (task.name, task.worker) == (name, dask_worker.address)]


def _note_rows(task: UnderWay, n_rows: int) -> None:
    with _lock:
        name, before = _done_rows.get(task.worker, (task.name, 0))
        _done_rows[task.worker] = task.name, n_rows + (before if name == task.name else 0)


def tell_done_rows(dask_worker: Worker) -> dict[str, int]:
    """Return the rows that a worker has added in its latest pass, by the name of the pass."""
    found = _done_rows.get(dask_worker.address)
    return {} if found is None else dict([found])


@one_blas_thread()
def join_parts(addition: Addition, n_groups: int, parts: Sequence[Sequence[Subtree]]) -> list[Subtree]:
    """Return the fewest subtrees that those of several tasks add up to."""
    combine = partial(combine_partials, scan=addition.scan)
    return join_subtrees([one for part in parts for one in part], n_groups, combine)
