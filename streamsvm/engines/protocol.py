"""What an engine is: it carries the requests of a solver out over the rows of one source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from streamsvm.data.source import RowSource
from streamsvm.engines.group import Partial
from streamsvm.numeric.rows import Rows
from streamsvm.requests import Scan, Take, Walk


@dataclass
class Costs:
    """What an engine has spent: bytes read from storage, peak resident memory by process."""

    read_bytes: int = 0
    peaks: dict[int, int] = field(default_factory=dict)

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

    def walk(self, walk: Walk) -> Any:
        """Carry sequential passes out; return their carries. IntegrityError if a chunk is damaged."""

    def close(self) -> None:
        """Give back what the engine holds (pinned chunks, worker processes of its own)."""
