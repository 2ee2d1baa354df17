"""The reference engine takes one group after another in this thread. The other engines must return its bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.engines.group import combine_partials, count_rows, release_pins, run_group, slice_by_row, tree_levels
from streamsvm.engines.protocol import Costs
from streamsvm.engines.subsets import plan_scratch
from streamsvm.engines.walk import run_walk
from streamsvm.numeric.arithmetic import describe_arithmetic
from streamsvm.numeric.rows import Rows
from streamsvm.requests import Scan, Take, Walk


class SerialEngine:
    """An Engine without threads; it keeps up to `pin_bytes` of decoded chunks in memory."""

    def __init__(self, source: RowSource, pin_bytes: int = 0) -> None:
        self.source, self.pin_bytes, self.costs = source, pin_bytes, Costs()
        self.scratch: str | None = None
        self.arithmetic = [describe_arithmetic()]

    def scan(self, scan: Scan) -> Any:
        """See Engine."""
        parts, scratch = [], plan_scratch(self.scratch, self.source, self.pin_bytes)
        for group in plan_groups(self.source):
            mine = replace(scan, by_row=slice_by_row(self.source, group, scan))
            parts.append(run_group(self.source, group, mine, self.pin_bytes, scratch=scratch))
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
        passes = zip(walk.carries, walk.orders, strict=True)
        parts = [run_walk(self.source, walk.step, carry, order, self.pin_bytes) for carry, order in passes]
        return [self.costs.count(part) for part in parts]

    def close(self) -> None:
        """See Engine."""
        release_pins(self.source.fingerprint)
