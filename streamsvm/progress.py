"""Live progress on standard error: one line that is rewritten on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from typing import TextIO

from streamsvm.machine import format_bytes
from streamsvm.train import Event

PLAIN_SECONDS = 5.0
LIVE_SECONDS = 0.1


class Display:
    """Shows passes, gap, speed, memory and the time that is left, by the gap's fall so far."""

    def __init__(self, n_rows: int, data_bytes: int, tol: float, stream: TextIO | None = None) -> None:
        self.n_rows, self.data_bytes, self.tol = n_rows, data_bytes, tol
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self._shown, self._last = -math.inf, ""
        self._earlier: list[tuple[float, float]] = []

    def show(self, event: Event) -> None:
        """Take note of a step; print it if it is time."""
        self._last = self._format(event)
        now = time.monotonic()
        if now - self._shown >= (LIVE_SECONDS if self.live else PLAIN_SECONDS):
            self._shown = now
            self._print(self._last)
            self._last = ""

    def close(self) -> None:
        """Print the last step, and leave the line."""
        if self._last:
            self._print(self._last)
        if self.live:
            self.stream.write("\n")
            self.stream.flush()

    def _print(self, text: str) -> None:
        self.stream.write(f"\r\x1b[K{text}" if self.live else f"{text}\n")
        self.stream.flush()

    def _format(self, event: Event) -> str:
        line, seconds = event.line, max(event.line["seconds"], 1e-9)
        rows_s = self.n_rows * line["passes"] / seconds
        mb_s = self.data_bytes * line["passes"] / seconds / 1e6
        gap = line["relative_gap"]
        return (
            f"pass {line['passes']}  gap {gap:.2e} (to {self.tol:.0e})  {rows_s:,.0f} rows/s  {mb_s:,.0f} MB/s  "
            f"memory {format_bytes(line['memory_bytes'])} of {format_bytes(event.plan.budget_bytes)}  {self._left(gap, seconds)}"
        )

    def _left(self, gap: float, seconds: float) -> str:
        """Time left if the logarithm of the gap goes on to fall as over the last steps."""
        self._earlier = [*self._earlier[-7:], (seconds, gap)]
        then, before = self._earlier[0]
        if gap <= self.tol:
            return "done"
        if not (0 < gap < before):
            return "time left unknown"
        left = (seconds - then) * math.log(gap / self.tol) / math.log(before / gap)
        return f"about {left:.0f} s left" if left < 120 else f"about {left / 60:.0f} min left"
