"""The interface of an engine, which carries out the requests of a solver over the rows of one source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from streamsvm.data.source import RowSource
from streamsvm.engines.group import Partial
from streamsvm.engines.task_seconds import TaskSeconds
from streamsvm.numeric.arithmetic import Arithmetic
from streamsvm.numeric.rows import Rows
from streamsvm.requests import Scan, Take, Walk


@dataclass
class Costs:
    """What an engine has spent: bytes read and written, seconds of tasks, and peak memory in bytes by process id.

    If `report` is set, it is told the number of rows of each group of chunks as soon as the group's task is done. An
    engine of worker processes tells it of the groups that were added since it last looked, every few seconds.
    """

    read_bytes: int = 0
    written_bytes: int = 0
    peaks: dict[int, int] = field(default_factory=dict)
    seconds: TaskSeconds = field(default_factory=TaskSeconds)
    report: Callable[[int], None] | None = None

    def note_rows(self, n_rows: int) -> None:
        """Report rows that a task has read."""
        if self.report is not None:
            self.report(n_rows)

    def count(self, part: Partial) -> Any:
        """Add the costs of a task, and return its totals."""
        self.read_bytes += part.read_bytes
        self.written_bytes += part.written_bytes
        self.seconds += part.seconds
        for pid, peak in part.peaks.items():
            self.peaks[pid] = max(peak, self.peaks.get(pid, 0))
        return part.totals


class Engine(Protocol):
    """Carries out requests. The answers have the same bits in every engine, with any number of threads or workers.

    scratch: the folder where rows are set aside, if there is one (engines.subsets). arithmetic: the kinds of arithmetic
    that its processes have, that of the driver first (numeric.arithmetic).
    """

    source: RowSource
    pin_bytes: int
    costs: Costs
    scratch: str | None
    arithmetic: list[Arithmetic]

    def scan(self, scan: Scan) -> Any:
        """Carry out a pass and return its totals. Raises IntegrityError if a chunk is damaged."""

    def take(self, take: Take) -> Rows:
        """Return the rows with the given numbers."""

    def walk(self, walk: Walk) -> list[Any]:
        """Carry out walks and return their last carries. Raises IntegrityError if a chunk is damaged."""

    def close(self) -> None:
        """Free what the engine holds, such as pinned chunks and threads."""
