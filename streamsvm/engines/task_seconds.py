"""Where the time of the tasks of a pass goes: into reading, into verifying what was read, and into computing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from streamsvm.data.chunk_file import VERIFYING
from streamsvm.numeric.rows import Rows


@dataclass
class TaskSeconds:
    """Seconds of tasks, the sum of all threads and workers.

    read: until rows are in memory as float32, decoding and waiting included. verify: raw chunks are compared with their
    checksums; those of compressed chunks count as read. compute: the rows are added to the totals.
    """

    read: float = 0.0
    verify: float = 0.0
    compute: float = 0.0

    def __add__(self, other: TaskSeconds) -> TaskSeconds:
        """Return the seconds of these and of other tasks."""
        return TaskSeconds(self.read + other.read, self.verify + other.verify, self.compute + other.compute)

    def tell(self) -> dict[str, float]:
        """Return the seconds by name."""
        return {name: round(seconds, 4) for name, seconds in vars(self).items()}

    def watch(self, tiles: Iterator[Rows]) -> Iterator[Rows]:
        """Yield tiles, and count the seconds until each comes, and until the next one is asked for."""
        verified, began = VERIFYING.seconds, time.perf_counter()
        for rows in tiles:
            came = time.perf_counter()
            yield rows
            asked = time.perf_counter()
            self.read, self.compute = self.read + came - began, self.compute + asked - came
            began = asked
        verified = VERIFYING.seconds - verified
        self.read, self.verify = self.read + time.perf_counter() - began - verified, self.verify + verified
