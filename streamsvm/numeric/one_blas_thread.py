"""BLAS with one thread: more threads add in another order, and so give other bits."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_blas_thread() -> AbstractContextManager[Any]:
    """Leave BLAS one thread within the block, and give it back the others at the end."""
    limited: AbstractContextManager[Any] = _find_libraries("scipy.linalg" in sys.modules).limit(limits=1)
    return limited


@lru_cache
def _find_libraries(_with_scipy: bool) -> ThreadpoolController:
    """Search this process for libraries, which takes milliseconds; once more if SciPy's own BLAS has come since."""
    return ThreadpoolController()
