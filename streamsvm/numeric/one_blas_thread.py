"""BLAS with one thread: more threads add in another order, and so give other bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import scipy.linalg  # noqa: F401  loads SciPy's own BLAS, which is not limited if it comes later
from threadpoolctl import OpenBLASController, ThreadpoolController

from streamsvm.shared_setting import SharedSetting


@contextmanager
def _limit() -> Iterator[None]:
    """Leave BLAS one thread, whichever thread has set its number before.

    threadpoolctl ignores all threads but the one that was the first to set a number.
    """
    OpenBLASController.clear_controlling_thread(force=True)
    limiter = _find_libraries().limit(limits=1)
    try:
        yield
    finally:
        OpenBLASController.clear_controlling_thread(force=True)
        limiter.restore_original_limits()
        OpenBLASController.clear_controlling_thread(force=True)


@lru_cache(maxsize=1)
def _find_libraries() -> ThreadpoolController:
    """Search this process for libraries, which takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")


# Usable as a context and as a decorator. BLAS gets its threads back when the last holder leaves.
one_blas_thread = SharedSetting(_limit).held
