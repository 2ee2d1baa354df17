"""The time limit of a training, which long computations check.

The limit is normally checked between steps. A solver that begins with a long computation in memory also checks
`is_over` there, and ends this computation with the best point so far. A pass then certifies this point. A single call
that takes long, such as the factorisation of a wide matrix, runs in another thread (`finish`), which is not awaited
once the time is over.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar, copy_context
from threading import Event, Thread
from typing import Any, TypeVar

from streamsvm.system import interrupts
from streamsvm.system.errors import TimeLimitError

T = TypeVar("T")
# a context variable, so that reads by Zarr in an event loop inherit it
_IS_LATE: ContextVar[Callable[[], bool] | None] = ContextVar("is_late", default=None)
_IS_ABANDONED: ContextVar[Event] = ContextVar("is_abandoned", default=Event())  # noqa: B039  never set
WITHIN_STEP = "max_seconds has passed within the first step: raise it, or choose another solver"
LOOK_SECONDS = 0.1  # seconds between two checks while a long call is awaited
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


def check() -> None:
    """Raise TimeLimitError in a call that `finish` no longer awaits."""
    if _IS_ABANDONED.get().is_set():
        raise TimeLimitError(WITHIN_STEP)


def finish(function: Callable[..., T], *arguments: Any) -> T:
    """Return the result of a long call of code that releases Python's lock, such as NumPy's linear algebra.

    Raises TimeLimitError once `is_over`, and KeyboardInterrupt after Ctrl-C. The call then goes on in its own thread,
    with its memory, until it returns or calls `check`; the process may end meanwhile.
    """
    answer, is_abandoned = Future[T](), Event()

    def run() -> None:
        _IS_ABANDONED.set(is_abandoned)
        try:
            answer.set_result(function(*arguments))
        except BaseException as error:
            answer.set_exception(error)

    thread = Thread(target=copy_context().run, args=(run,), name="streamsvm-long", daemon=True)
    try:
        while not is_over():
            if thread.ident is None:
                thread.start()
            with suppress(TimeoutError), interrupts.waiting():
                return answer.result(LOOK_SECONDS)
        raise TimeLimitError(WITHIN_STEP)
    finally:
        is_abandoned.set()


def end(names: Iterable[str]) -> None:
    """Record that work with these names is out of time. The driver of a training calls this on workers."""
    ENDED.extend(names)
