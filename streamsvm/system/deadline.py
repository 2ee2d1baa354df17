"""The time limit of a training, which long computations check.

The limit is normally checked between steps. A solver that begins with a long computation in memory also checks
`is_over` there, and ends this computation with the best point so far. A pass then certifies this point.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
# a context variable, so that reads by Zarr in an event loop inherit it
_IS_LATE: ContextVar[Callable[[], bool] | None] = ContextVar("is_late", default=None)
ENDED: deque[str] = deque(maxlen=1000)  # the names of trainings that are out of time, as another process has reported


def is_over() -> bool:
    """Return whether the training of this thread is out of time; False without a limit."""
    is_late = _IS_LATE.get()
    return is_late is not None and is_late()


@contextmanager
def held(is_late: Callable[[], bool] | None) -> Iterator[None]:
    """Within the block, `is_over` returns the result of `is_late`."""
    before = _IS_LATE.get()
    _IS_LATE.set(is_late)
    try:
        yield
    finally:
        _IS_LATE.set(before)


def kept(function: Callable[..., T], is_stopped: Callable[[], bool] = lambda: False) -> Callable[..., T]:
    """Wrap a function to run in another thread, where `is_over` heeds the limit of this thread and `is_stopped`."""
    here = _IS_LATE.get() or (lambda: False)
    return held(lambda: here() or is_stopped())(function)


def limit(seconds: float | None) -> AbstractContextManager[None]:
    """Within the block, `is_over` returns True once `seconds` have passed (None: never)."""
    end = math.inf if seconds is None else time.monotonic() + min(seconds, sys.float_info.max)
    return held(lambda: time.monotonic() >= end)


def end(names: Iterable[str]) -> None:
    """Record that work with these names is out of time. The driver of a training calls this on workers."""
    ENDED.extend(names)
