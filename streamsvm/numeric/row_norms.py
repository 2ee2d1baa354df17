"""Norms of rows relative to the scatter of the data; they bound how far w may move before a row reaches the margin.

    |v.x| <= |u| |A x|   where   v = A'u          (Cauchy-Schwarz)

A is the inverse of the Cholesky factor of M = 1/k sum x x' over a sample of k rows (including the constant feature),
with a small ridge. So |u|^2 = v'Mv is the mean square change of the scores if w moves by v, and |A x| is the norm of
the row.

Any A gives a valid bound; the sample only makes it sharp. Both factors are rounded upwards. Products of dense rows are
computed in float32, which is fast, and a bound on their rounding errors is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit
from scipy.linalg import cholesky, solve_triangular

from streamsvm.numeric.gram import sum_products
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F32, F64, I32, I64, REORDERED_SUMS, CsrRows, Rows, find_items, read_item, split

RIDGE = 1e-6  # This multiple of the mean of M's diagonal is added to the diagonal, which makes M positive definite.
COLUMNS = 256  # columns of A that are measured at once: NumPy copies them, and a copy of a wide matrix takes long
UNIT32 = 2.0**-24
SMALLEST32 = 2.0**-126


@dataclass(frozen=True)
class RowNorm:
    """The norm |A x| of rows x. A: (width, width)."""

    A: F64

    @cached_property
    def size(self) -> float:
        """The Frobenius norm of A."""
        return float(np.linalg.norm(self.A))

    @cached_property
    def rounded(self) -> F32:
        """The columns of A' for the features, in float32."""
        rounded: F32 = self.A[:, :-1].T.astype(np.float32)
        return rounded

    def measure_columns(self) -> F64:
        """Return the lengths |A e_j| of the columns of A, (width,), rounded upwards."""
        parts = np.array_split(self.A, 1 + self.A.shape[1] // COLUMNS, axis=1)
        lengths: F64 = np.concatenate([np.linalg.norm(part, axis=0) for part in parts])
        return lengths * (1.0 + 4 * UNIT * (len(self.A) + 8))

    def find_scatter(self) -> F64:
        """Return M = (A'A)^-1, (width, width), so that |u|^2 = v'Mv for v = A'u."""
        inverse = np.linalg.inv(self.A)
        return inverse @ inverse.T

    def bound_by_squares(self) -> F64:
        """Return s (width,) with |A x|^2 <= sum_j s_j x_j^2 for every x.

        s is the diagonal of A'A times the largest eigenvalue of A'A scaled to a diagonal of ones.
        """
        product: F64 = self.A.T @ self.A
        diagonal: F64 = np.diagonal(product).copy()
        root = np.sqrt(diagonal)
        largest = float(np.linalg.eigvalsh(product / np.outer(root, root))[-1])
        return diagonal * (largest * (1.0 + 1e-6) + 1e-6)

    def bound_move(self, move: F64) -> tuple[float, float]:
        """Return |u| and a remainder, both rounded upwards, with |move.x| <= |u| |A x| + remainder |x| for every x."""
        u = np.linalg.solve(self.A.T, move)
        left = move - self.A.T @ u
        moved, length = float(np.linalg.norm(u)), float(np.linalg.norm(move))
        rounding = 4 * UNIT * (len(move) + 8) * (moved * self.size + length)
        return moved * (1.0 + 1e-12), float(np.linalg.norm(left)) * (1.0 + 1e-12) + rounding


def make_norm(rows: Rows, bias_feature: float) -> RowNorm:
    """Return the norm whose M is the scatter of these rows, with a small ridge."""
    n, width = rows.n_rows, rows.X.shape[1] + 1
    M = sum_products(rows.X, np.arange(n), np.full(n, 1.0 / n), bias_feature)
    M[-1, -1] = bias_feature**2  # exact, unlike the computed mean
    M[np.diag_indices(width)] += RIDGE * float(np.mean(np.diagonal(M))) + np.finfo(float).tiny
    factor = cholesky(M, lower=False)  # M = factor' factor
    return RowNorm(np.ascontiguousarray(solve_triangular(factor, np.eye(width)).T))


def measure_rows(norm: RowNorm, rows: Rows, bias_feature: float) -> tuple[F64, F64]:
    """Return |A x| and |x| of every row, (n,) each, rounded upwards; x includes the constant feature."""
    measured, lengths, rounding = _measure(norm, rows, bias_feature)
    larger = 1.0 + 4 * UNIT * (norm.A.shape[1] + 8)
    return measured * larger + rounding * norm.size * larger * lengths, lengths * larger


def measure_scaled_rows(norm: RowNorm, rows: Rows, bias_feature: float, sizes: F64) -> F64:
    """Return |A x| of every row, (n,), rounded upwards, given the sizes (n,) sum_j |A e_j| |x_j|.

    The allowance for rounding does not depend on the scales of the features, unlike in `measure_rows`. It also covers
    products below the range of float32.
    """
    measured, lengths, rounding = _measure(norm, rows, bias_feature)
    width = norm.A.shape[1]
    lost = width**2 * SMALLEST32
    bounds: F64 = (measured + rounding * sizes + lost * lengths + lost) * (1.0 + 4 * UNIT * (width + 8))
    return bounds


def _measure(norm: RowNorm, rows: Rows, bias_feature: float) -> tuple[F64, F64, float]:
    """Return the computed |A x| and |x|, (n,) each, and an error bound of |A x| relative to sum_j |A e_j| |x_j|."""
    X, A, width = rows.X, norm.A, norm.A.shape[1]
    measured, lengths, unit = np.empty(rows.n_rows), np.empty(rows.n_rows), UNIT
    if isinstance(X, CsrRows):
        _measure_csr(X.data, X.indices, X.indptr, np.ascontiguousarray(A.T), bias_feature, measured, lengths)
    else:
        unit = UNIT32
        with np.errstate(over="ignore", invalid="ignore"):
            products = X @ norm.rounded
            constant = (A[:, -1] * bias_feature).astype(np.float32)
        _measure_dense(X, products, constant, bias_feature, measured, lengths)
    return measured, lengths, 2 * unit * (width + 8)


def add_sizes(rows: Rows, weights: F64, bias_feature: float) -> tuple[F64, F64, F64]:
    """Return |x|, sum_j |a_j x_j| and sum_j |b_j x_j| of every row, (n,) each. weights (2, width): a and b."""
    lengths, first, second = np.empty(rows.n_rows), np.empty(rows.n_rows), np.empty(rows.n_rows)
    _add_sizes(*split(rows.X), np.abs(weights[0]), np.abs(weights[1]), bias_feature, lengths, first, second)
    return lengths, first, second


@njit(cache=True, nogil=True, fastmath=REORDERED_SUMS)
def _add_sizes(
    values: F32, indices: I32, indptr: I64, a: F64, b: F64, bias_feature: float, lengths: F64, first: F64, second: F64
) -> None:
    constant = abs(bias_feature)
    for i in range(lengths.size):
        squares, of_a, of_b = constant * constant, a[-1] * constant, b[-1] * constant
        start, end = find_items(values, indptr, i)
        for e in range(start, end):
            j, x = read_item(values, indices, i, e)
            size = abs(np.float64(x))
            squares += size * size
            of_a += a[j] * size
            of_b += b[j] * size
        lengths[i], first[i], second[i] = np.sqrt(squares), of_a, of_b


@njit(cache=True, nogil=True, fastmath=REORDERED_SUMS)
def _measure_dense(X: F32, products: F32, constant: F32, bias_feature: float, measured: F64, lengths: F64) -> None:
    """Write |A x| and |x| of dense rows. products: X A'. constant: the constant feature's part of A x."""
    for i in range(X.shape[0]):
        x, product, total, squares = X[i], products[i], 0.0, bias_feature * bias_feature
        for j in range(x.size):
            squares += np.float64(x[j]) * np.float64(x[j])
        for j in range(constant.size):
            value = np.float64(product[j] + constant[j])
            total += value * value
        measured[i] = np.sqrt(total) if np.isfinite(total) else np.inf
        lengths[i] = np.sqrt(squares)


def bound_rows(squares: F64, rows: Rows, bias_feature: float) -> tuple[F64, F64]:
    """Return upper bounds on |A x| and |x| of every row, (n,) each. squares: the s of `RowNorm.bound_by_squares`.

    The bound on |A x| is never 0, and takes far less time to compute than |A x| itself.
    """
    bounds, lengths = np.empty(rows.n_rows), np.empty(rows.n_rows)
    _bound_rows(*split(rows.X), squares, bias_feature, bounds, lengths)
    larger = 1.0 + 4 * UNIT * (len(squares) + 8)
    return bounds * larger, lengths * larger


@njit(cache=True, nogil=True, fastmath=REORDERED_SUMS)
def _bound_rows(values: F32, indices: I32, indptr: I64, s: F64, bias_feature: float, bounds: F64, lengths: F64) -> None:
    for i in range(bounds.size):
        total, squares = s[-1] * bias_feature * bias_feature + 1e-300, bias_feature * bias_feature
        first, end = find_items(values, indptr, i)
        for e in range(first, end):
            j, x = read_item(values, indices, i, e)
            square = np.float64(x) * np.float64(x)
            total += s[j] * square
            squares += square
        bounds[i], lengths[i] = np.sqrt(total), np.sqrt(squares)


@njit(cache=True, nogil=True)
def _measure_csr(
    data: F32, indices: I32, indptr: I64, A: F64, bias_feature: float, measured: F64, lengths: F64
) -> None:
    """Write |A x| and |x| of sparse rows; A is transposed."""
    width = len(A)
    product = np.empty(width)
    for i in range(indptr.size - 1):
        squares, total = bias_feature * bias_feature, 0.0
        for j in range(width):  # A slice assignment takes three times as long to compile.
            product[j] = A[width - 1, j] * bias_feature
        for e in range(indptr[i], indptr[i + 1]):
            x, row = np.float64(data[e]), A[indices[e]]
            squares += x * x
            for j in range(width):
                product[j] += row[j] * x
        for j in range(width):
            total += product[j] * product[j]
        measured[i], lengths[i] = np.sqrt(total), np.sqrt(squares)
