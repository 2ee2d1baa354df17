"""The progress of a read of the rows, which engines count and commands, notebooks and pages show.

Engines count the rows of each part that is done. `shown` sets the function that shows the counts, a few times a second
at most; it is not called for a read that takes less than REPORT_SECONDS.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

REPORT_SECONDS = 0.5
_SHOW: ContextVar[Callable[[Reading], object] | None] = ContextVar("show", default=None)


@contextmanager
def shown(show: Callable[[Reading], object]) -> Iterator[None]:
    """Let `show` be called with the reads that begin within the block, whenever parts of them are done."""
    token = _SHOW.set(show)
    try:
        yield
    finally:
        _SHOW.reset(token)


class Reading:
    """A read of n_rows rows (None: unknown) that begins now, or that goes on after done_rows rows.

    report: a function that is called with the number of rows of each part.
    """

    def __init__(self, n_rows: int | None, done_rows: int = 0, report: Callable[[int], None] | None = None) -> None:
        self.n_rows, self.before, self.done_rows, self.began = n_rows, done_rows, done_rows, time.monotonic()
        self._report = report
        self._show, self._shown_at, self._lock = _SHOW.get(), self.began, Lock()

    def add(self, n_rows: int) -> None:
        """Count rows of a part that is done; threads may call it."""
        if not n_rows:
            return
        with self._lock:
            self.done_rows += n_rows
            if self._report is not None:
                self._report(n_rows)
            now = time.monotonic()
            is_over = self.n_rows is not None and self.done_rows >= self.n_rows
            if self._show is not None and not is_over and now - self._shown_at >= REPORT_SECONDS:
                self._shown_at = now
                self._show(self)

    def describe(self) -> str:
        """Return the share of the pass, the rate and the time left; "" if the pass has ended."""
        seconds, done = max(time.monotonic() - self.began, 1e-9), self.done_rows
        fresh = done - self.before
        if self.n_rows is None:
            return f"{done:,} rows, {fresh / seconds:,.0f} rows/s"
        if done >= self.n_rows:
            return ""
        left = seconds * (self.n_rows - done) / max(1, fresh)
        about = f"about {left:.0f} s left" if left < 120 else f"about {left / 60:.0f} min left"
        return f"{done / self.n_rows:.0%} of a pass, {fresh / seconds:,.0f} rows/s, {about}"
