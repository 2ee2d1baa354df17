"""The threaded engine: a pass is one small graph, which Dask's threaded scheduler runs in this process.

Each task reads a group of chunks, and a fixed tree adds the totals of the groups.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any

import dask.threaded

from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.engines.engine import Partial
from streamsvm.engines.group import combine_partials, row_range, tree_levels
from streamsvm.engines.serial import SerialEngine
from streamsvm.passes import Scan, Walk
from streamsvm.system import deadline
from streamsvm.system.interrupts import waiting


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
