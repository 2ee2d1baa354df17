"""The interface of engines, which carry out a solver's requests over the rows of one source, and the costs of tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from streamsvm.data.rows.source import RowSource
from streamsvm.data.store.chunks import VERIFYING
from streamsvm.numeric.compilation import Arithmetic
from streamsvm.numeric.rows import Rows
from streamsvm.passes import Scan, Take, Walk
from streamsvm.system.reading import Reading

T = TypeVar("T")


@dataclass
class TaskSeconds:
    """The seconds that tasks spend, summed over all threads and workers.

    read: the time to bring rows into memory as float32, including decoding and waiting. verify: the time to compare raw
    chunks with their checksums; compressed chunks are verified while they are read. compute: the time to add the rows
    to the totals.
    """

    read: float = 0.0
    verify: float = 0.0
    compute: float = 0.0

    def __add__(self, other: TaskSeconds) -> TaskSeconds:
        """Return the sum of two `TaskSeconds`, field by field."""
        return TaskSeconds(self.read + other.read, self.verify + other.verify, self.compute + other.compute)

    def as_json(self) -> dict[str, float]:
        """Return the seconds by name."""
        return {name: round(seconds, 4) for name, seconds in vars(self).items()}

    def watch(self, tiles: Iterator[T]) -> Iterator[T]:
        """Yield tiles.

        The wait for a tile counts as read, except the time of verifying, which counts as verify. The time from a tile's
        arrival until the next tile is requested counts as compute.
        """
        verified, began = VERIFYING.seconds, time.perf_counter()
        for rows in tiles:
            came = time.perf_counter()
            yield rows
            del rows  # before the next rows are read
            asked = time.perf_counter()
            self.read, self.compute = self.read + came - began, self.compute + asked - came
            began = asked
        verified = VERIFYING.seconds - verified
        self.read, self.verify = self.read + time.perf_counter() - began - verified, self.verify + verified


@dataclass
class Costs:
    """The costs of tasks: bytes read and written, seconds, and the peak memory in bytes by process id.

    report: a function that is called with the number of rows of each part of a read as soon as the part is done. An
    engine of worker processes calls it every few seconds, with the number of rows added since the last call.
    reading: the current read.
    """

    read_bytes: int = 0
    written_bytes: int = 0
    peaks: dict[int, int] = field(default_factory=dict)
    seconds: TaskSeconds = field(default_factory=TaskSeconds)
    report: Callable[[int], None] | None = None
    reading: Reading | None = None

    def __add__(self, other: Costs) -> Costs:
        """Return the sum of both, without `report`."""
        return Costs().add(self).add(other)

    def add(self, other: Costs) -> Costs:
        """Add the costs of other tasks, and return the sum."""
        self.read_bytes += other.read_bytes
        self.written_bytes += other.written_bytes
        self.seconds += other.seconds
        for pid, peak in other.peaks.items():
            self.peaks[pid] = max(peak, self.peaks.get(pid, 0))
        return self

    def begin_read(self, n_rows: int, done_rows: int = 0) -> None:
        """Begin to count the rows of a read, or go on after done_rows rows."""
        self.reading = Reading(n_rows, done_rows, self.report)

    def report_rows(self, n_rows: int) -> None:
        """Report rows that a task has read."""
        if self.reading is not None:
            self.reading.add(n_rows)

    def count(self, part: Partial) -> Any:
        """Add the costs of a task, and return its totals."""
        self.add(part.costs)
        return part.totals


@dataclass
class Partial:
    """The totals of some groups of chunks, and the cost of computing them."""

    totals: Any
    costs: Costs = field(default_factory=Costs)


class Engine(Protocol):
    """The protocol of engines. Answers have the same bits in every engine, with any number of threads or workers.

    scratch: the folder for spooled rows, or None (engines.tasks). arithmetic: the kinds of arithmetic that the
    processes use, with that of the driver first (numeric.compilation).
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
        """Free the resources of the engine, such as pinned chunks and threads."""
