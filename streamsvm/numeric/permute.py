"""Rows in another order, as a shuffle needs them: each row is fetched from main memory before it is copied."""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm.numeric.prefetch import prefetch
from streamsvm.numeric.rows import F32, I64, LINE_ITEMS, ROWS_AHEAD, CsrRows, Matrix, take_rows


def permute_rows(X: Matrix, order: I64) -> Matrix:
    """Return the rows order[0], order[1], ... of X, in memory of their own; dense rows lie one after another."""
    if isinstance(X, CsrRows):
        return take_rows(X, order)
    taken = np.empty((len(order), X.shape[1]), np.float32)
    _copy_dense(X, order, taken)
    return taken


@njit(cache=True, nogil=True)
def _copy_dense(X: F32, order: I64, taken: F32) -> None:
    n, d = taken.shape
    for i in range(n):
        if i + ROWS_AHEAD < n:
            first = order[i + ROWS_AHEAD] * d
            for k in range(first, first + d, LINE_ITEMS):
                prefetch(X, k)
            prefetch(X, first + d - 1)
        row = order[i]
        for j in range(d):
            taken[i, j] = X[row, j]
