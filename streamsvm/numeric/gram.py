"""The weighted Gram matrix of chosen rows: sum_e weight_e x_{row_e} x_{row_e}'.

Dense rows are added by a symmetric rank-k update (BLAS dsyrk), which is half the work of a matrix product. Sparse rows
are added as products of their nonzero values, which is less work where fewer than a quarter of all values are nonzero.
Data are float32; products and sums are float64. Only the upper triangle is summed, because the matrix is symmetric.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.linalg.blas import dsyrk

from streamsvm.numeric.rows import F32, F64, I32, I64, CsrRows, Matrix

# So many rows are added at once. With fewer, reading and writing the matrix takes longer than the products.
BUFFER_ROWS = 256


class GramSum:
    """The upper triangle of the sum of weight_i x_i x_i'.

    Dense rows wait in a buffer until it is full, and the buffers of two sums that are added are joined. The matrix is
    not allocated before a buffer is full, so that many groups of few rows need only one matrix in the end.
    """

    def __init__(self, n_features: int) -> None:
        self._n_features, self._filled = n_features, 0
        self._buffer = np.empty((0, n_features))
        self._total: F64 | None = None
        self._own = True  # No other sum shares the matrix, so it may be changed in place.

    def add(self, X: Matrix, row: I64, weight: F64) -> None:
        """Add the rows of X with the numbers `row`, each with its weight, which must not be negative."""
        if isinstance(X, CsrRows):
            _add_csr_gram(X.data, X.indices, X.indptr, row, weight, self._own_total().T)
        else:
            self._wait(X, row, np.sqrt(weight))

    def __add__(self, other: GramSum) -> GramSum:
        """Return the sum as a new object; both parts may be used again."""
        both, totals = GramSum(self._n_features), [part._total for part in (self, other) if part._total is not None]
        if totals:
            both._total, both._own = totals[0] if len(totals) == 1 else totals[0] + totals[1], len(totals) == 2
        for part in (self, other):
            both._wait(part._buffer, np.arange(part._filled), np.ones(part._filled))
        return both

    def finish(self) -> F64:
        """Add the rows that wait in the buffer, and return the total, (d, d)."""
        self._flush()
        self._buffer = self._buffer[:0].copy()
        return self._own_total()

    def _own_total(self) -> F64:
        if self._total is None:
            self._total = np.zeros((self._n_features, self._n_features), order="F")
        elif not self._own:
            self._total = self._total.copy(order="F")
        self._own = True
        return self._total

    def _wait(self, X: F32 | F64, row: I64, root: F64) -> None:
        if len(self._buffer) == 0 and len(row):
            self._buffer = np.empty((BUFFER_ROWS, self._n_features))
        at = 0
        while at < len(row):
            n = min(len(row) - at, BUFFER_ROWS - self._filled)
            part = slice(at, at + n)
            _scale_rows(X, row[part], root[part], self._buffer[self._filled : self._filled + n])
            self._filled, at = self._filled + n, at + n
            if self._filled == BUFFER_ROWS:
                self._flush()

    def _flush(self) -> None:
        if self._filled:
            dsyrk(1.0, self._buffer[: self._filled].T, beta=1.0, c=self._own_total(), overwrite_c=1)
        self._filled = 0


@njit(cache=True, nogil=True)
def _scale_rows(X: F32 | F64, row: I64, root: F64, scaled: F64) -> None:
    for e in range(row.size):
        x, to, factor = X[row[e]], scaled[e], root[e]
        for j in range(x.size):
            to[j] = factor * x[j]


@njit(cache=True, nogil=True)
def _add_csr_gram(data: F32, indices: I32, indptr: I64, row: I64, weight: F64, lower: F64) -> None:
    for e in range(row.size):
        start, stop = indptr[row[e]], indptr[row[e] + 1]
        for k in range(start, stop):
            value, j = weight[e] * data[k], indices[k]
            for m in range(start, k + 1):  # The indices of a row may be in any order.
                lower[max(j, indices[m]), min(j, indices[m])] += value * data[m]
