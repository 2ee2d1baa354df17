"""Rows in another order, as a shuffle needs them: each row is fetched from main memory before it is copied."""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm.numeric.prefetch import prefetch
from streamsvm.numeric.rows import F32, I32, I64, LINE_ITEMS, ROWS_AHEAD, CsrRows, Matrix, take_rows


def permute_rows(X: Matrix, order: I64) -> Matrix:
    """Return the rows order[0], order[1], ... of X, in memory of their own."""
    if isinstance(X, CsrRows):
        return take_rows(X, order)
    taken = np.empty((len(order), X.shape[1]), np.float32)
    _copy_dense(np.require(X, requirements=("C", "W")), order, taken)
    return taken


def permute_to_dense(X: CsrRows, order: I64, n_features: int) -> F32:
    """Return the rows order[0], order[1], ... of X as dense rows; X has no more than `n_features` features."""
    taken = np.zeros((len(order), n_features), np.float32)
    _copy_items(X.data, X.indices, X.indptr, order, taken)
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


@njit(cache=True, nogil=True)
def _copy_items(data: F32, indices: I32, indptr: I64, order: I64, taken: F32) -> None:
    n = order.size
    for i in range(n):
        if i + 2 * ROWS_AHEAD < n:
            prefetch(indptr, order[i + 2 * ROWS_AHEAD])
        if i + ROWS_AHEAD < n:
            row = order[i + ROWS_AHEAD]
            for k in range(indptr[row], indptr[row + 1], LINE_ITEMS):
                prefetch(data, k)
                prefetch(indices, k)
        for k in range(indptr[order[i]], indptr[order[i] + 1]):
            taken[i, indices[k]] = data[k]
