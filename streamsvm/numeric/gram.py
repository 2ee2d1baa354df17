"""The weighted Gram matrix of chosen rows, sum_e weight_e x_{row_e} x_{row_e}', and tiles of rows for products.

Dense rows are added by a symmetric rank-k update (BLAS dsyrk), which takes half the work of a matrix product. Sparse
rows are added as products of their nonzero values, which is less work if under a quarter of all values are nonzero.
Data are float32; products and sums are float64. Only the upper triangle is summed, because the matrix is symmetric.

If the matrix need not be exact, dense rows with small weight_e |x|^2 may be light: their products are float32, which
takes half the time, and are added to the float64 sum after LIGHT_ROWS rows. A light row adds at most a few float32
roundings of its weight_e |x|^2 to the error of the matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import register_jitable
from scipy.linalg.blas import dsyrk

from streamsvm.numeric.rounding import add_to_pair
from streamsvm.numeric.rows import F32, F64, I32, I64, REORDERED_SUMS, CsrRows, Matrix, Rows, Split, Values, add_rows

# Number of rows that are added at once. With fewer rows, reading and writing the matrix takes longer than the products.
BUFFER_ROWS = 256
LIGHT_ROWS, LIGHT_COLUMNS = 1024, 512  # number of light rows added at once, and of columns of the matrix per step
TILE_ROWS = 4096  # the number of rows in memory that are added to a Curvature at a time


class Waiting:
    """A buffer for up to `most` weighted rows. It is allocated when the first row arrives."""

    def __init__(self, n_features: int, most: int, dtype: npt.DTypeLike) -> None:
        self.most, self.filled = most, 0
        self.rows = np.empty((0, n_features), dtype)


class GramSum:
    """The upper triangle of the sum of weight_i x_i x_i'.

    Dense rows are collected in a buffer until it is full; when two sums are added, their buffers are merged. The matrix
    is allocated only when a buffer is full, so that many groups of few rows need only one matrix in the end.
    most_light: the largest weight_i |x_i|^2 of a light row.
    """

    def __init__(self, n_features: int, most_light: float = 0.0) -> None:
        self._n_features, self._most_light = n_features, most_light
        self._heavy = Waiting(n_features, BUFFER_ROWS, np.float64)
        self._light = Waiting(n_features, LIGHT_ROWS, np.float32)
        self._total: F64 | None = None
        self._own = True  # No other sum shares the matrix, so it may be changed in place.

    def add(self, X: Matrix, row: I64, weight: F64) -> None:
        """Add the rows X[row_e], each with its weight_e >= 0."""
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
        """Add the rows in the buffers, and return the total, (d, d)."""
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
        """Add rows of X, each times its `root`, to a buffer. Whenever the buffer is full, add it to the total."""
        while len(row):
            if not len(waiting.rows):
                waiting.rows = np.empty((waiting.most, self._n_features), waiting.rows.dtype)
            start, n = waiting.filled, min(len(row), waiting.most - waiting.filled)
            scale_rows(X, row[:n], root[:n], waiting.rows[start : start + n])
            waiting.filled, row, root = start + n, row[n:], root[n:]
            if waiting.filled == waiting.most:
                self._flush(waiting)

    def _flush(self, waiting: Waiting) -> None:
        rows, waiting.filled = waiting.rows[: waiting.filled], 0
        if len(rows) and waiting is self._heavy:
            dsyrk(1.0, rows.T, beta=1.0, c=self._own_total(), overwrite_c=1)
        elif len(rows):
            _add_light(rows, self._own_total().T)


class Curvature:
    """The sum of h_i x_i x_i', where x_i has the constant feature as its last entry."""

    def __init__(self, n_features: int) -> None:
        self.gram, self.column, self.corner = GramSum(n_features), np.zeros((1, n_features)), 0.0

    def add(self, rows: Rows, weight: F64, bias_feature: float) -> None:
        """Add rows with their weights h_i, which must not be negative."""
        used = np.flatnonzero(weight > 0.0)
        if len(used):
            self.gram.add(rows.X, used, weight[used])
            add_rows(self.column, rows.X, used, np.zeros_like(used), bias_feature * weight[used])
            self.corner += bias_feature**2 * float(np.sum(weight))

    def __add__(self, other: Curvature) -> Curvature:
        """Return the sum as a new object."""
        both = Curvature(self.column.shape[1])
        both.gram, both.column = self.gram + other.gram, self.column + other.column
        both.corner = self.corner + other.corner
        return both

    def finish(self) -> F64:
        """Return the whole matrix, (d+1, d+1)."""
        upper, d = np.triu(self.gram.finish()), self.column.shape[1]
        matrix = np.full((d + 1, d + 1), self.corner)
        matrix[:d, :d] = upper + np.triu(upper, 1).T
        matrix[:d, d] = matrix[d, :d] = self.column[0]
        return matrix


def _add_light(rows: F32, lower: F64) -> None:
    """Add the products of light rows to the lower triangle of the transposed matrix, LIGHT_COLUMNS rows at a time."""
    for start in range(0, len(lower), LIGHT_COLUMNS):
        part = slice(start, start + LIGHT_COLUMNS)
        block = rows[:, part]
        lower[part, :start] += block.T @ rows[:, :start]
        lower[part, part] += np.tril(block.T @ block)  # NumPy calls BLAS ssyrk, since both factors are the same block.


@njit(cache=True, nogil=True, fastmath=REORDERED_SUMS)
def _find_light(X: F32 | F64, row: I64, weight: F64, most: float) -> npt.NDArray[np.bool_]:
    """Return flags of the chosen rows: whether weight_e |x|^2 is at most `most`."""
    is_light = np.zeros(row.size, np.bool_)
    for e in range(row.size):
        x, square = X[row[e]], 0.0
        for j in range(x.size):
            square += x[j] * x[j]
        is_light[e] = weight[e] * square <= most
    return is_light


@njit(cache=True, nogil=True)
def scale_rows(X: F32 | F64, row: I64, root: F64, scaled: F32 | F64) -> None:
    """Write the rows of X with these numbers, each times its root, to `scaled`."""
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


def sum_products(X: Matrix, row: I64, weight: F64, bias_feature: float) -> F64:
    """Return the upper triangle of the sum of weight_e x x', (d+1, d+1), over the chosen rows.

    x has the constant feature as its last entry.
    """
    d = X.shape[1]
    gram, last, total = GramSum(d), np.zeros((1, d)), np.zeros((d + 1, d + 1))
    gram.add(X, row, weight)
    add_rows(last, X, row, np.zeros(len(row), np.int64), weight)
    total[:d, :d] = gram.finish()
    total[:d, d] = bias_feature * last[0]
    total[d, d] = bias_feature**2 * float(weight.sum())
    return total


BLOCK_ITEMS = 32  # items of a sparse row that are summed in float64; the sums of these blocks are added as pairs


class Tile(NamedTuple):
    """A few rows x_i, both as `split` returns them and as a dense tile, and their squared lengths.

    values: the dense tile. If the rows are dense, it is the rows themselves; otherwise it comes from `_write_out`, with
    `position`.
    """

    rows: Split
    values: Values
    position: I32
    squares: Values


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def measure_dense(X: Values, squares: Values) -> None:
    """Set squares_i = |x_i|^2, summed in float64."""
    for i in range(squares.size):
        row, total = X[i], 0.0
        for j in range(row.size):
            total += np.float64(row[j]) * row[j]
        squares[i] = total


@njit(cache=True, nogil=True)
def measure_sparse(data: Values, indptr: I64, squares: Values) -> None:
    """Set squares_i = |x_i|^2, summed in float64 by blocks, so that long rows are as accurate as short ones."""
    for i in range(squares.size):
        total, rest, stop = 0.0, 0.0, indptr[i + 1]
        for start in range(indptr[i], stop, BLOCK_ITEMS):
            part = 0.0
            for e in range(start, min(start + BLOCK_ITEMS, stop)):
                part += np.float64(data[e]) * data[e]
            total, rest = add_to_pair(total, rest, part)
        squares[i] = total + rest


@register_jitable
def _write_out(data: Values, indices: I32, indptr: I64, position: I32) -> Values:
    """Return sparse rows as a dense tile (used features + 1, n), and set position[j] to the line of feature j.

    The last line is zeros, for features that do not occur.
    """
    for j in range(position.size):
        position[j] = -1
    used = 0
    for e in range(indptr[0], indptr[-1]):
        if position[indices[e]] < 0:
            position[indices[e]] = used
            used += 1
    tile = np.zeros((used + 1, indptr.size - 1), data.dtype)
    for i in range(indptr.size - 1):
        for e in range(indptr[i], indptr[i + 1]):
            tile[position[indices[e]], i] = data[e]
    for j in range(position.size):
        if position[j] < 0:
            position[j] = used
    return tile


@register_jitable
def make_tile(values: Values, indices: I32, indptr: I64, at: int, n: int, position: I32, squares: Values) -> Tile:
    """Return the tile of n rows from row `at` on. position (d,), squares (at least n): buffers that the tile uses."""
    squares = squares[:n]
    if values.ndim == 2:
        part = values[at : at + n]
        measure_dense(part, squares)
        return Tile(Split(part, indices, indptr), part, position, squares)
    limits = indptr[at : at + n + 1]
    measure_sparse(values, limits, squares)
    return Tile(Split(values, indices, limits), _write_out(values, indices, limits, position), position, squares)


@register_jitable(fastmath={"contract"})
def multiply_sparse(data: Values, indices: I32, indptr: I64, position: I32, tile: Values, products: Values) -> None:
    """Set products[c, i] = z_c.x_i, four features per sweep. position[j]: the line of feature j in the tile."""
    for c in range(indptr.size - 1):
        sums, e, stop = products[c], indptr[c], indptr[c + 1]
        for i in range(sums.size):
            sums[i] = 0.0
        while e + 3 < stop:
            s, t = tile[position[indices[e]]], tile[position[indices[e + 1]]]
            u, v = tile[position[indices[e + 2]]], tile[position[indices[e + 3]]]
            p, q, r, w = data[e], data[e + 1], data[e + 2], data[e + 3]
            for i in range(sums.size):
                sums[i] = (((sums[i] + p * s[i]) + q * t[i]) + r * u[i]) + w * v[i]
            e += 4
        while e < stop:
            value, x = data[e], tile[position[indices[e]]]
            for i in range(sums.size):
                sums[i] += value * x[i]
            e += 1
