"""The engines of one process: the serial engine is the reference, and the threaded engine must return its bits.

The serial engine reads one group of chunks after another in this thread. In the threaded engine, a pass is one small
graph, which Dask's threaded scheduler runs: each task reads a group, and a fixed tree adds the totals of the groups.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any

import dask.threaded

from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.engines.engine import Costs, Partial
from streamsvm.engines.group import (
    ChunkCache,
    combine_partials,
    plan_scratch,
    row_range,
    run_group,
    run_walk,
    slice_by_row,
    tree_levels,
)
from streamsvm.engines.row_states import TileStates
from streamsvm.numeric.compilation import describe_arithmetic
from streamsvm.numeric.rows import Rows
from streamsvm.passes import Scan, Take, Walk
from streamsvm.system import deadline
from streamsvm.system.interrupts import waiting

Task = Callable[[], Partial]


class SerialEngine:
    """An Engine without threads, which keeps up to `pin_bytes` of decoded chunks in memory.

    kept: these chunks, by the fingerprint of the rows. row_states: the row states, kept in up to `state_bytes` (None:
    no limit).
    """

    def __init__(self, source: RowSource, pin_bytes: int = 0, state_bytes: int | None = None) -> None:
        self.source, self.pin_bytes, self.costs = source, pin_bytes, Costs()
        self.scratch: str | None = None
        self.arithmetic = [describe_arithmetic()]
        self.kept: dict[str, ChunkCache] = {}
        self.row_states = TileStates(state_bytes)

    def scan(self, scan: Scan) -> Any:
        """See Engine."""
        parts = []
        for group, task in zip(plan_groups(self.source), self._list_tasks(scan), strict=True):
            parts.append(task())
            self.costs.report_rows(len(row_range(self.source, group)))
        for level in tree_levels(len(parts)):
            for left, right in level:
                parts[left] = combine_partials(parts[left], parts[right], scan)
        return self.costs.count(parts[0])

    def _list_tasks(self, scan: Scan, is_stopped: Callable[[], bool] = lambda: False) -> list[Task]:
        """Return the task of each group of chunks."""
        source, cache, tasks = self.source, self._find_cache(), list[Task]()
        scratch = plan_scratch(self.scratch, source, self.pin_bytes)
        for group in plan_groups(source):
            mine = replace(scan, by_row=slice_by_row(source, group, scan.by_row))
            tasks.append(partial(run_group, source, group, mine, cache, is_stopped, scratch, self.row_states))
        return tasks

    def _list_walks(self, walk: Walk, is_stopped: Callable[[], bool] = lambda: False) -> list[Task]:
        """Return the task of each walk."""
        source, cache, passes = self.source, self._find_cache(), zip(walk.carries, walk.orders, strict=True)
        return [partial(run_walk, source, walk.step, carry, order, cache, is_stopped) for carry, order in passes]

    def _find_cache(self) -> ChunkCache:
        return self.kept.setdefault(self.source.fingerprint, ChunkCache(self.pin_bytes))

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
        self.kept.clear()
        self.row_states = TileStates(0)


class ThreadedEngine(SerialEngine):
    """An Engine that runs up to `threads` tasks at once, and is otherwise like the serial engine."""

    def __init__(self, source: RowSource, threads: int, pin_bytes: int = 0, state_bytes: int | None = None) -> None:
        super().__init__(source, pin_bytes, state_bytes)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="streamsvm")

    def scan(self, scan: Scan) -> Any:
        """See Engine."""
        groups, stopped = plan_groups(self.source), Event()
        graph: dict[Any, Any] = {}
        for k, task in enumerate(self._list_tasks(scan, stopped.is_set)):
            graph["group", k] = (deadline.kept(task, stopped.is_set),)
        keys: list[Any] = list(graph)
        for depth, level in enumerate(tree_levels(len(groups))):
            for left, right in level:
                graph["sum", depth, left] = (partial(combine_partials, scan=scan), keys[left], keys[right])
                keys[left] = ("sum", depth, left)

        def report(key: Any, *_: Any) -> None:
            if key[0] == "group":
                self.costs.report_rows(len(row_range(self.source, groups[key[1]])))

        try:
            with waiting():
                total: Partial = dask.threaded.get(
                    graph, keys[0], pool=self._pool, callbacks=[(None, None, None, report, None)]
                )
        finally:
            stopped.set()  # after a failure or Ctrl-C, the other tasks end early
        return self.costs.count(total)

    def walk(self, walk: Walk) -> list[Any]:
        """See Engine."""
        stopped = Event()
        tasks = self._list_walks(walk, stopped.is_set)
        futures = [self._pool.submit(deadline.kept(task, stopped.is_set)) for task in tasks]
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
