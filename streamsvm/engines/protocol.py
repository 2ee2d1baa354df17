"""What an engine is: it carries the requests of a solver out over the rows of one source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from streamsvm.data.source import RowSource
from streamsvm.engines.group import Partial
from streamsvm.numeric.rows import Rows
from streamsvm.requests import Fold, Scan, Take


@dataclass
class Costs:
    """What an engine has spent: bytes read from storage, peak resident memory by process.

    report: if it is set, it is told the number of rows of each group of chunks as soon as the group's task is done. An
    engine of worker processes calls it in a thread of its own.
    """

    read_bytes: int = 0
    peaks: dict[int, int] = field(default_factory=dict)
    report: Callable[[int], None] | None = None

    def note_rows(self, n_rows: int) -> None:
        """Report rows that a task has read."""
        if self.report is not None:
            self.report(n_rows)

    def count(self, part: Partial) -> Any:
        """Add what a part cost; return its totals."""
        self.read_bytes += part.read_bytes
        for pid, peak in part.peaks.items():
            self.peaks[pid] = max(peak, self.peaks.get(pid, 0))
        return part.totals


class Engine(Protocol):
    """Carries requests out; the answers have the same bits whichever engine it is, with any number of workers."""

    source: RowSource
    pin_bytes: int
    costs: Costs

    def scan(self, scan: Scan) -> Any:
        """Carry a pass out; return the totals. IntegrityError if a chunk is damaged."""

    def take(self, take: Take) -> Rows:
        """Return rows by number."""

    def fold(self, fold: Fold) -> Any:
        """Carry sequential passes out; return their carries. IntegrityError if a chunk is damaged."""

    def close(self) -> None:
        """Give back what the engine holds (pinned chunks, worker processes of its own)."""
