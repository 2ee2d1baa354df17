"""Least squares with rows that differ by many powers of ten.

    min_x |A x - b|

A Householder QR factorisation with column pivoting keeps rows apart if they are sorted by their largest entries: the
error of each row is then a share of this row alone, however heavy the others are (Cox & Higham 1998, Stability of
Householder QR factorization for weighted least squares problems). In A'A, the products of the heavy rows would hide
the products of all others.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dgeqp3, dormqr, dtrtrs

from streamsvm.numeric.rows import F64

BLOCK = 64  # LAPACK works on so many columns at once.


class RowQR:
    """The factorisation of A (m, n), m >= n, whose entries are finite."""

    def __init__(self, matrix: F64) -> None:
        self.order = np.argsort(-np.max(np.abs(matrix), axis=1), kind="stable")
        sorted_rows, width = np.asfortranarray(matrix[self.order]), matrix.shape[1]
        self.factors, self.columns, self.tau, _, _ = dgeqp3(sorted_rows, lwork=2 * width + (width + 1) * BLOCK)

    def solve(self, right: F64) -> F64:
        """Return the solution (n,) for b (m,); NaN if A is singular."""
        width = len(self.columns)
        turned = dormqr("L", "T", self.factors, self.tau, right[self.order][:, None], BLOCK * (1 + BLOCK))[0]
        solution, singular = dtrtrs(np.asfortranarray(self.factors[:width]), turned[:width])
        found = np.full(width, np.nan)
        if not singular:
            found[self.columns - 1] = solution[:, 0]
        return found
