"""The end of the time that a training may take, which long work in memory looks at.

Limits hold between steps. A method whose start in memory takes long asks `is_over` and ends it with the best point so
far, so that a pass follows, and what is returned has a certificate.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any

_AT_WORK = threading.local()


def is_over() -> bool:
    """Tell whether the training that this thread works for has no time left; without a limit it always has."""
    is_late: Callable[[], bool] | None = getattr(_AT_WORK, "is_late", None)
    return is_late is not None and is_late()


def keep(solver: Generator[Any, Any, None], is_late: Callable[[], bool]) -> Generator[Any, Any, None]:
    """Yield the requests of a solver, for which `is_over` is what is_late returns while it computes."""
    answer = None
    while True:
        before, _AT_WORK.is_late = getattr(_AT_WORK, "is_late", None), is_late
        try:
            request = solver.send(answer)
        except StopIteration:
            return
        finally:
            _AT_WORK.is_late = before
        answer = yield request
