"""Progress on standard error: a line that is rewritten on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TextIO

from streamsvm.system.errors import say_count
from streamsvm.system.machine import format_bytes
from streamsvm.system.reading import Reading, shown

if TYPE_CHECKING:
    from streamsvm.runs.results import Event

PLAIN_SECONDS = 5.0  # seconds between two plain lines
LIVE_SECONDS = 0.1  # seconds between two updates of the line on a terminal
REMEMBERED_STEPS = 8  # the fall of the gap over these steps predicts the time left


class Line(AbstractContextManager["Line"]):
    """A progress line that shows the latest text at intervals."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self._shown_at, self._waiting = -math.inf, ""

    def show(self, text: str) -> None:
        """Print the text if the interval has passed; otherwise keep it for the end."""
        self._waiting = text
        if self._is_due():
            self._print()

    def show_passing(self, text: str) -> None:
        """Print the text if the interval has passed; otherwise drop it."""
        if self._is_due():
            self._waiting, kept = text, self._waiting
            self._print()
            self._waiting = kept

    def _is_due(self) -> bool:
        now = time.monotonic()
        is_due = now - self._shown_at >= (LIVE_SECONDS if self.live else PLAIN_SECONDS)
        if is_due:
            self._shown_at = now
        return is_due

    def __exit__(self, *_: object) -> None:
        """Print the pending text, and end the line."""
        if self._waiting:
            self._print()
        if self.live and self._shown_at > -math.inf:
            self.stream.write("\n")
            self.stream.flush()

    def _print(self) -> None:
        """Print the pending text."""
        if self.live:
            columns = os.get_terminal_size(self.stream.fileno()).columns or 80
            self.stream.write(f"\r\x1b[K{self._waiting[: columns - 1]}")  # a text that wraps could not be rewritten
        else:
            self.stream.write(f"{self._waiting}\n")
        self.stream.flush()
        self._waiting = ""


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Show the package's log (compilations, waits) on standard error; on a terminal it overwrites the progress."""
    handler = logging.StreamHandler(sys.stderr)
    start = "\r\x1b[K" if sys.stderr is not None and sys.stderr.isatty() else ""
    handler.setFormatter(logging.Formatter(f"{start}%(message)s"))
    logger = logging.getLogger("streamsvm")
    before, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        logger.propagate = propagate


@contextmanager
def show_readings() -> Iterator[Line]:
    """Show the progress of reads within the block, on a line that is yielded."""
    with Line() as line, shown(lambda reading: line.show_passing(reading.describe())):
        yield line


class RowCounter:
    """A display of the number of rows read, and of rows per second."""

    def __init__(self, line: Line) -> None:
        self.line, self.began, self.n_rows = line, time.monotonic(), 0

    def add(self, n_rows: int) -> None:
        """Add to the number of rows, and show it."""
        self.n_rows += n_rows
        self.show(self.n_rows)

    def show(self, n_rows: int) -> None:
        """Show the number of rows so far."""
        seconds = max(time.monotonic() - self.began, 1e-9)
        self.line.show(f"{say_count(n_rows, 'row')} read, {n_rows / seconds:,.0f} rows/s")


class Display:
    """A display of a training's passes, gap, time left, speed and memory."""

    def __init__(self, n_rows: int, data_bytes: int, tol: float, line: Line | None = None) -> None:
        self.n_rows, self.data_bytes, self.tol, self.line = n_rows, data_bytes, tol, line or Line()
        self._earlier: list[tuple[float, float]] = []
        self._reading: Reading | None = None
        self._step = ""  # the last step

    def show_reading(self, reading: Reading) -> None:
        """Show the progress within a pass."""
        self._reading = reading
        self.line.show_passing(f"{reading.describe()}{self._step}")

    def describe_reading(self) -> str:
        """Return the progress within the current pass; "" between passes."""
        return "" if self._reading is None else self._reading.describe()

    def show(self, event: Event) -> None:
        """Show a step."""
        step, seconds = event.line, max(event.line["seconds"], 1e-9)
        gap = step["relative_gap"]
        shown = "no bound yet"
        if gap is not None:
            left = self._estimate_time_left(gap, seconds, bool(step.get("waiting_problems")))
            shown = f"gap {gap:.2e} (to {self.tol:g})  {left}"
        if "rows" in step:  # a solver that learns from a stream of rows proves nothing
            shown = f"objective about {step['objective']:.4g}  {say_count(step['n_support_vectors'], 'support vector')}"
        if "eval_score" in step:
            shown += f"  held-out {step['eval_score']:.4g}"
        self._step = f"; pass {step['passes']} ended: {shown}"
        rows = step.get("rows", self.n_rows * step["passes"])
        rows_s, mb_s = rows / seconds, rows * self.data_bytes / self.n_rows / seconds / 1e6
        self.line.show(
            f"pass {step['passes']}  {shown}  {rows_s:,.0f} rows/s  {mb_s:,.0f} MB/s  "
            f"memory {format_bytes(step['memory_bytes'])} of {format_bytes(event.plan.budget_bytes)}"
        )

    def _estimate_time_left(self, gap: float, seconds: float, some_wait: bool) -> str:
        """Estimate the time left by extrapolating the fall of log(gap) over the last steps.

        The time is unknown while some problems wait for others, since the total gap then falls too slowly.
        """
        if some_wait:
            self._earlier = []
            return "time left unknown"
        self._earlier = [*self._earlier[1 - REMEMBERED_STEPS :], (seconds, gap)]
        seconds_then, gap_then = self._earlier[0]
        if gap <= self.tol:
            return "done"
        if not (0 < gap < gap_then):
            return "time left unknown"
        left = (seconds - seconds_then) * math.log(gap / self.tol) / math.log(gap_then / gap)
        return f"about {left:.0f} s left" if left < 120 else f"about {left / 60:.0f} min left"


def show_grid(line: Line, done: tuple[int, int, Event]) -> None:
    """Show the progress of a grid. done: the numbers of finished fits and of all fits, and a step of one fit."""
    n_done, n_fits, event = done
    step = event.line
    line.show(
        f"{n_done} of {say_count(n_fits, 'fit')} done, pass {step['passes']}, {step['seconds']:.0f} s, "
        f"memory {format_bytes(step['memory_bytes'])} of {format_bytes(event.plan.budget_bytes)}"
    )
