"""The engine of threads: a pass is one small graph, which Dask's threaded scheduler carries out in this process.

Each task reads a group of chunks, and a fixed tree adds the groups' totals.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any

import dask.threaded

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.engines.group import (
    Partial,
    Pins,
    combine_partials,
    count_rows,
    run_group,
    slice_by_row,
    tree_levels,
)
from streamsvm.engines.protocol import Costs
from streamsvm.engines.row_states import KeptStates
from streamsvm.engines.subsets import plan_scratch
from streamsvm.engines.walk import run_walk
from streamsvm.interrupts import waiting
from streamsvm.numeric.arithmetic import describe_arithmetic
from streamsvm.numeric.rows import Rows
from streamsvm.requests import Scan, Take, Walk


class ThreadedEngine:
    """An Engine that runs up to `threads` tasks at once and keeps up to `pin_bytes` of decoded chunks in memory.

    kept: these chunks, by the fingerprint of the rows. row_states: the numbers of rows that are kept, in up to
    `state_bytes` (None: in as many as there are).
    """

    def __init__(self, source: RowSource, threads: int, pin_bytes: int = 0, state_bytes: int | None = None) -> None:
        self.source, self.pin_bytes, self.costs = source, pin_bytes, Costs()
        self.scratch: str | None = None
        self.arithmetic = [describe_arithmetic()]
        self.kept: dict[str, Pins] = {}
        self.row_states = KeptStates(state_bytes)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="streamsvm")

    def scan(self, scan: Scan) -> Any:
        """See Engine."""
        groups, stopped = plan_groups(self.source), Event()
        graph: dict[Any, Any] = {}
        scratch = plan_scratch(self.scratch, self.source, self.pin_bytes)
        pins = self.kept.setdefault(self.source.fingerprint, Pins(self.pin_bytes))
        for k, group in enumerate(groups):
            mine = replace(scan, by_row=slice_by_row(self.source, group, scan))
            task = partial(run_group, self.source, group, mine, pins, stopped.is_set, scratch, self.row_states)
            graph["group", k] = (task,)
        keys: list[Any] = list(graph)
        for depth, level in enumerate(tree_levels(len(groups))):
            for left, right in level:
                graph["sum", depth, left] = (partial(_combine, scan), keys[left], keys[right])
                keys[left] = ("sum", depth, left)

        def note(key: Any, *_: Any) -> None:
            if key[0] == "group":
                self.costs.note_rows(count_rows(self.source, groups[key[1]]))

        try:
            with waiting():
                total: Partial = dask.threaded.get(
                    graph, keys[0], pool=self._pool, callbacks=[(None, None, None, note, None)]
                )
        finally:
            stopped.set()  # after a failure or Ctrl-C the other tasks end early
        return self.costs.count(total)

    def take(self, take: Take) -> Rows:
        """See Engine."""
        rows = self.source.take(take.rows)
        self.costs.read_bytes += self.source.take_bytes(take.rows)
        return rows

    def walk(self, walk: Walk) -> list[Any]:
        """See Engine."""
        stopped, pins = Event(), self.kept.setdefault(self.source.fingerprint, Pins(self.pin_bytes))
        futures = [
            self._pool.submit(run_walk, self.source, walk.step, carry, order, pins, stopped.is_set)
            for carry, order in zip(walk.carries, walk.orders, strict=True)
        ]
        try:
            with waiting():
                parts = [future.result() for future in futures]
        finally:
            stopped.set()
        return [self.costs.count(part) for part in parts]

    def close(self) -> None:
        """See Engine."""
        self._pool.shutdown()
        self.kept.clear()
        self.row_states = KeptStates(0)


def _combine(scan: Scan, left: Partial, right: Partial) -> Partial:
    return combine_partials(left, right, scan)
