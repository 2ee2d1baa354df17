"""The reference engine takes one group after another in this thread. The other engines must return its bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.engines.group import Pins, combine_partials, count_rows, run_group, slice_by_row, tree_levels
from streamsvm.engines.protocol import Costs
from streamsvm.engines.row_states import KeptStates
from streamsvm.engines.subsets import plan_scratch
from streamsvm.engines.walk import run_walk
from streamsvm.numeric.arithmetic import describe_arithmetic
from streamsvm.numeric.rows import Rows
from streamsvm.requests import Scan, Take, Walk


class SerialEngine:
    """An Engine without threads; it keeps up to `pin_bytes` of decoded chunks in memory.

    kept: these chunks, by the fingerprint of the rows. row_states: the numbers of rows that are kept.
    """

    def __init__(self, source: RowSource, pin_bytes: int = 0) -> None:
        self.source, self.pin_bytes, self.costs = source, pin_bytes, Costs()
        self.scratch: str | None = None
        self.arithmetic = [describe_arithmetic()]
        self.kept: dict[str, Pins] = {}
        self.row_states = KeptStates()

    def scan(self, scan: Scan) -> Any:
        """See Engine."""
        parts, scratch = [], plan_scratch(self.scratch, self.source, self.pin_bytes)
        pins = self.kept.setdefault(self.source.fingerprint, Pins(self.pin_bytes))
        for group in plan_groups(self.source):
            mine = replace(scan, by_row=slice_by_row(self.source, group, scan))
            parts.append(run_group(self.source, group, mine, pins, scratch=scratch, kept=self.row_states))
            self.costs.note_rows(count_rows(self.source, group))
        for level in tree_levels(len(parts)):
            for left, right in level:
                parts[left] = combine_partials(parts[left], parts[right], scan)
        return self.costs.count(parts[0])

    def take(self, take: Take) -> Rows:
        """See Engine."""
        rows = self.source.take(take.rows)
        self.costs.read_bytes += self.source.take_bytes(take.rows)
        return rows

    def walk(self, walk: Walk) -> list[Any]:
        """See Engine."""
        pins = self.kept.setdefault(self.source.fingerprint, Pins(self.pin_bytes))
        passes = zip(walk.carries, walk.orders, strict=True)
        parts = [run_walk(self.source, walk.step, carry, order, pins) for carry, order in passes]
        return [self.costs.count(part) for part in parts]

    def close(self) -> None:
        """See Engine."""
        self.kept.clear()
