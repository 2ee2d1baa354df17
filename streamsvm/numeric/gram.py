"""The weighted Gram matrix of chosen rows: sum_e weight_e x_{row_e} x_{row_e}'.

Dense rows are added by a symmetric rank-k update (BLAS dsyrk), which is half the work of a matrix product. Sparse rows
are added as products of their nonzero values, which is less work where fewer than a quarter of all values are nonzero.
Data are float32; products and sums are float64. Only the upper triangle is summed, because the matrix is symmetric.

Where the matrix need not be exact, dense rows with small weight_e |x|^2 may be light: their products are float32, which
takes half the time, and are summed in float64 after LIGHT_ROWS rows. A row that is light adds no more than a few
roundings of float32 of its weight_e |x|^2 to the error of the matrix.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit
from scipy.linalg.blas import dsyrk

from streamsvm.numeric.row_products import SUMS_MAY_BE_REORDERED
from streamsvm.numeric.rows import F32, F64, I32, I64, CsrRows, Matrix

# So many rows are added at once. With fewer, reading and writing the matrix takes longer than the products.
BUFFER_ROWS = 256
LIGHT_ROWS, LIGHT_COLUMNS = 1024, 512  # light rows that are added at once, to so many columns of the matrix at a time


class Waiting:
    """Weighted rows that wait until there are `most` of them. The room for them is allocated with the first one."""

    def __init__(self, n_features: int, most: int, dtype: npt.DTypeLike) -> None:
        self.most, self.filled = most, 0
        self.rows = np.empty((0, n_features), dtype)

    def fill(self, X: F32 | F64, row: I64, root: F64) -> int:
        """Append rows of X, each times its root, as many as there is room for; return their number."""
        if len(self.rows) == 0 and len(row):
            self.rows = np.empty((self.most, X.shape[1]), self.rows.dtype)
        n = min(len(row), self.most - self.filled)
        _scale_rows(X, row[:n], root[:n], self.rows[self.filled : self.filled + n])
        self.filled += n
        return n


class GramSum:
    """The upper triangle of the sum of weight_i x_i x_i'.

    Dense rows wait in a buffer until it is full, and the buffers of two sums that are added are joined. The matrix is
    not allocated before a buffer is full, so that many groups of few rows need only one matrix in the end.
    most_light: rows with weight_i |x_i|^2 up to this are light.
    """

    def __init__(self, n_features: int, most_light: float = 0.0) -> None:
        self._n_features, self._most_light = n_features, most_light
        self._heavy = Waiting(n_features, BUFFER_ROWS, np.float64)
        self._light = Waiting(n_features, LIGHT_ROWS, np.float32)
        self._total: F64 | None = None
        self._own = True  # No other sum shares the matrix, so it may be changed in place.

    def add(self, X: Matrix, row: I64, weight: F64) -> None:
        """Add the rows of X with the numbers `row`, each with its weight, which must not be negative."""
        if isinstance(X, CsrRows):
            _add_csr_gram(X.data, X.indices, X.indptr, row, weight, self._own_total().T)
        elif self._most_light == 0.0:
            self._wait(self._heavy, X, row, np.sqrt(weight))
        else:
            is_light = _find_light(X, row, weight, self._most_light)
            for waiting, chosen in ((self._heavy, ~is_light), (self._light, is_light)):
                self._wait(waiting, X, row[chosen], np.sqrt(weight[chosen]))

    def __add__(self, other: GramSum) -> GramSum:
        """Return the sum as a new object; both parts may be used again."""
        both = GramSum(self._n_features, self._most_light)
        totals = [part._total for part in (self, other) if part._total is not None]
        if totals:
            both._total, both._own = totals[0] if len(totals) == 1 else totals[0] + totals[1], len(totals) == 2
        for part in (self, other):
            for waiting, own in ((both._heavy, part._heavy), (both._light, part._light)):
                both._wait(waiting, own.rows, np.arange(own.filled), np.ones(own.filled))
        return both

    def finish(self) -> F64:
        """Add the rows that wait in the buffers, and return the total, (d, d)."""
        for waiting in (self._heavy, self._light):
            self._flush(waiting)
            waiting.rows = waiting.rows[:0].copy()
        return self._own_total()

    def _own_total(self) -> F64:
        if self._total is None:
            self._total = np.zeros((self._n_features, self._n_features), order="F")
        elif not self._own:
            self._total = self._total.copy(order="F")
        self._own = True
        return self._total

    def _wait(self, waiting: Waiting, X: F32 | F64, row: I64, root: F64) -> None:
        at = 0
        while at < len(row):
            at += waiting.fill(X, row[at:], root[at:])
            if waiting.filled == waiting.most:
                self._flush(waiting)

    def _flush(self, waiting: Waiting) -> None:
        rows, waiting.filled = waiting.rows[: waiting.filled], 0
        if len(rows) and waiting is self._heavy:
            dsyrk(1.0, rows.T, beta=1.0, c=self._own_total(), overwrite_c=1)
        elif len(rows):
            _add_light(rows, self._own_total().T)


def _add_light(rows: F32, lower: F64) -> None:
    """Add the products of light rows to the lower triangle of the transposed matrix, some of its rows at a time."""
    for start in range(0, len(lower), LIGHT_COLUMNS):
        part = slice(start, start + LIGHT_COLUMNS)
        block = rows[:, part]
        lower[part, :start] += block.T @ rows[:, :start]
        lower[part, part] += np.tril(block.T @ block)  # by BLAS ssyrk, since both are the same block


@njit(cache=True, nogil=True, fastmath=SUMS_MAY_BE_REORDERED)
def _find_light(X: F32 | F64, row: I64, weight: F64, most: float) -> npt.NDArray[np.bool_]:
    """Return for each chosen row whether weight_e |x|^2 is at most `most`."""
    is_light = np.zeros(row.size, np.bool_)
    for e in range(row.size):
        x, square = X[row[e]], 0.0
        for j in range(x.size):
            square += x[j] * x[j]
        is_light[e] = weight[e] * square <= most
    return is_light


@njit(cache=True, nogil=True)
def _scale_rows(X: F32 | F64, row: I64, root: F64, scaled: F32 | F64) -> None:
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
