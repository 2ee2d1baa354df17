"""Compile, or load from the cache, every kernel once: before tasks run side by side, and before memory is measured.

(Processes that compile the same cached function at once have crashed each other: numba#4807.)
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from streamsvm.numeric.losses import FINE_STEPS, add_segment_totals
from streamsvm.numeric.master_qp import solve_master
from streamsvm.numeric.rows import CsrRows, Rows


@lru_cache(maxsize=1)
def compile_kernels() -> None:
    """Run every kernel of the linear solvers on two rows."""
    X = np.eye(2, dtype=np.float32)
    sparse = CsrRows(np.ones(2, np.float32), np.arange(2, dtype=np.int32), np.arange(3), 2)
    for rows in (Rows(0, X, np.arange(2, dtype=np.int32)), Rows(0, sparse, np.arange(2, dtype=np.int32))):
        totals = np.zeros((FINE_STEPS + 1, 2)), np.zeros(2), np.zeros((2, 3))
        add_segment_totals(rows, np.zeros((2, 3)), np.ones(2), np.ones(1), 1.0, *totals)
    solve_master(np.eye(2), np.ones(2), np.zeros(2), 1e-9)
