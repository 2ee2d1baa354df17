"""The engines of one process.

The serial engine is the reference, and the threaded engine must return the same bits. The serial engine reads one group
of chunks after another in this thread. In the threaded engine, a pass is one small graph, which Dask's threaded
scheduler runs: each task reads a group, and a fixed tree adds the totals of the groups.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.engines import tasks
from streamsvm.engines.engine import Costs, Partial
from streamsvm.engines.row_states import TileStates
from streamsvm.numeric.compilation import describe_arithmetic
from streamsvm.numeric.rows import Rows
from streamsvm.passes import Scan, Take, Walk
from streamsvm.system import deadline, interrupts
from streamsvm.system.interrupts import waiting

Task = Callable[[], Partial]


def tree_levels(n: int) -> Iterator[Sequence[tuple[int, int]]]:
    """Yield the pairs (left, right) of positions to combine, level by level; the total ends up at position 0."""
    gap = 1
    while gap < n:
        yield [(at, at + gap) for at in range(0, n - gap, 2 * gap)]
        gap *= 2


def _check_signals() -> bool:
    """Raise KeyboardInterrupt between two tiles if a signal has arrived; otherwise return False."""
    interrupts.check()
    return False


class SerialEngine:
    """An Engine without threads, which keeps up to `pin_bytes` of decoded chunks in memory.

    caches: these chunks, by the fingerprint of the rows. row_states: the row states, of up to `state_bytes` (None: no
    limit).
    """

    def __init__(self, source: RowSource, pin_bytes: int = 0, state_bytes: int | None = None) -> None:
        self.source, self.pin_bytes, self.costs = source, pin_bytes, Costs()
        self.scratch: str | None = None
        self.arithmetic = [describe_arithmetic()]
        self.caches: dict[str, tasks.ChunkCache] = {}
        self.row_states = TileStates(state_bytes)

    def scan(self, scan: Scan) -> Any:
        """See Engine."""
        parts = [task() for task in self._list_tasks(plan_groups(self.source), scan, _check_signals)]
        for level in tree_levels(len(parts)):
            for left, right in level:
                parts[left] = tasks.combine_partials(parts[left], parts[right], scan.combine)
        return self.costs.count(parts[0])

    def _list_tasks(self, groups: list[range], scan: Scan, is_stopped: Callable[[], bool]) -> list[Task]:
        """Return the task of each group of chunks."""
        self.costs.begin_read(self.source.n_rows)
        source, kept, listed = self.source, (self._find_cache(), self.row_states), list[Task]()
        scratch = tasks.plan_scratch(self.scratch, source, self.pin_bytes)
        for group in groups:
            mine = replace(scan, by_row=tasks.slice_by_row(source, group, scan.by_row))
            listed.append(
                partial(tasks.run_group, source, group, mine, kept, is_stopped, scratch, self.costs.report_rows)
            )
        return listed

    def _list_walks(self, walk: Walk, is_stopped: Callable[[], bool] = lambda: False) -> list[Task]:
        """Return the task of each walk."""
        source, cache, passes = self.source, self._find_cache(), zip(walk.carries, walk.orders, strict=True)
        tasks.begin_walks(self.costs, source, walk)
        how = cache, is_stopped, self.costs.report_rows
        return [partial(tasks.run_walk, source, walk.step, carry, order, *how) for carry, order in passes]

    def _find_cache(self) -> tasks.ChunkCache:
        return self.caches.setdefault(self.source.fingerprint, tasks.ChunkCache(self.pin_bytes))

    def take(self, take: Take) -> Rows:
        """See Engine."""
        rows = self.source.take(take.rows)
        self.costs.read_bytes += self.source.take_bytes(take.rows)
        return rows

    def walk(self, walk: Walk) -> list[Any]:
        """See Engine."""
        return [self.costs.count(task()) for task in self._list_walks(walk)]

    def close(self) -> None:
        """See Engine."""
        self.caches.clear()
        self.row_states = TileStates(0)


class ThreadedEngine(SerialEngine):
    """An Engine that runs up to `threads` tasks at once, and is otherwise like the serial engine."""

    def __init__(self, source: RowSource, threads: int, pin_bytes: int = 0, state_bytes: int | None = None) -> None:
        super().__init__(source, pin_bytes, state_bytes)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="streamsvm")

    def scan(self, scan: Scan) -> Any:
        """See Engine. One group of rows in memory is read in this thread: waiting for another would take longer."""
        groups, stopped, graph = plan_groups(self.source), threading.Event(), dict[Any, Any]()
        if len(groups) == 1 and not self.source.on_disk:
            return super().scan(scan)
        combine = partial(tasks.combine_partials, combine=scan.combine)
        for k, task in enumerate(self._list_tasks(groups, scan, stopped.is_set)):
            graph["group", k] = (deadline.kept(task, stopped.is_set),)
        keys: list[Any] = list(graph)
        for depth, level in enumerate(tree_levels(len(groups))):
            for left, right in level:
                graph["sum", depth, left] = (combine, keys[left], keys[right])
                keys[left] = ("sum", depth, left)
        try:
            with waiting():
                total: Partial = self._run(graph, keys[0])
        finally:
            stopped.set()  # after a failure or Ctrl-C, the other tasks end early
        return self.costs.count(total)

    def _run(self, graph: dict[Any, Any], key: Any) -> Any:
        """Run a graph and return the value of `key`. A single task needs no scheduler, so Dask is not loaded for it."""
        if len(graph) > 1:
            import dask.threaded

            return dask.threaded.get(graph, key, pool=self._pool)
        return self._pool.submit(*graph[key]).result()

    def walk(self, walk: Walk) -> list[Any]:
        """See Engine."""
        stopped = threading.Event()
        walks = self._list_walks(walk, stopped.is_set)
        futures = [self._pool.submit(deadline.kept(task, stopped.is_set)) for task in walks]
        try:
            with waiting():
                parts = [future.result() for future in futures]
        finally:
            stopped.set()
        return [self.costs.count(part) for part in parts]

    def close(self) -> None:
        """See Engine."""
        self._pool.shutdown()
        super().close()
