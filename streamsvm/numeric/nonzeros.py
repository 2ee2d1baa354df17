"""Counts of the values of dense rows that are not zero."""

from __future__ import annotations

from numba import njit

from streamsvm.numeric.rows import F32


@njit(cache=True, nogil=True)
def count_nonzeros(X: F32) -> tuple[int, int]:
    """Return how many values of all rows are not zero, and the most of one row."""
    total, most = 0, 0
    for i in range(X.shape[0]):
        count = 0
        for j in range(X.shape[1]):
            count += X[i, j] != 0
        total += count
        most = max(most, count)
    return total, most
