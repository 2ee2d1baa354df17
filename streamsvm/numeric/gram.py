"""The weighted Gram matrix of chosen rows, by matrix products: sum_e weight_e x_{row_e} x_{row_e}'.

Dense rows: a symmetric rank-k update (BLAS dsyrk), half the work of a product. Sparse rows: the products of their own
items, which is less than dense rows would take where fewer than a quarter of the values are not zero. Data are
float32, products and sums float64. Only the upper triangle is summed.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.linalg.blas import dsyrk

from streamsvm.numeric.rows import F32, F64, I32, I64, CsrRows, Matrix

BUFFER_ROWS = 256  # that are added at once: with fewer, reading and writing the matrix takes longer than the products


class GramSum:
    """Sum of weight_i x_i x_i', upper triangle: `total` (d, d) after `finish`. Dense rows wait in a buffer."""

    def __init__(self, n_features: int) -> None:
        self.total = np.zeros((n_features, n_features), order="F")
        self._buffer, self._filled = np.empty((0, n_features)), 0

    def add(self, X: Matrix, row: I64, weight: F64) -> None:
        """Add the rows x_{row_e} with weights that are not negative."""
        if isinstance(X, CsrRows):
            _add_csr_gram(X.data, X.indices, X.indptr, row, weight, self.total.T)
            return
        if len(self._buffer) == 0:
            self._buffer = np.empty((BUFFER_ROWS, X.shape[1]))
        at, roots = 0, np.sqrt(weight)
        while at < len(row):
            n = min(len(row) - at, BUFFER_ROWS - self._filled)
            part = slice(at, at + n)
            np.multiply(X[row[part]], roots[part, None], out=self._buffer[self._filled : self._filled + n])
            self._filled, at = self._filled + n, at + n
            if self._filled == BUFFER_ROWS:
                self._flush()

    def __add__(self, other: GramSum) -> GramSum:
        """Return the sum; the parts stay good for another."""
        both = GramSum(len(self.total))
        np.add(self.finish(), other.finish(), out=both.total)
        return both

    def finish(self) -> F64:
        """Add what waits; return the total."""
        self._flush()
        self._buffer = self._buffer[:0].copy()
        return self.total

    def _flush(self) -> None:
        if self._filled:
            dsyrk(1.0, self._buffer[: self._filled].T, beta=1.0, c=self.total, overwrite_c=1)
        self._filled = 0


@njit(cache=True, nogil=True)
def _add_csr_gram(data: F32, indices: I32, indptr: I64, row: I64, weight: F64, lower: F64) -> None:
    for e in range(row.size):
        start, stop = indptr[row[e]], indptr[row[e] + 1]
        for k in range(start, stop):
            value, j = weight[e] * data[k], indices[k]
            for m in range(start, k + 1):  # indices may be in any order
                lower[max(j, indices[m]), min(j, indices[m])] += value * data[m]
