"""How far w may move before a row can reach the margin: norms of rows that belong to the scatter of the data.

    |v.x| <= |u| |A x|   where   v = A'u          (Cauchy-Schwarz)

A is the inverse of the Cholesky factor of M = 1/k sum x x' over a sample of k rows (the constant feature included),
with a small ridge. So |u|^2 = v'Mv is the mean square change of the scores when w moves by v, and |A x| is the row's
own norm. With many features A is diagonal, because a product with a full matrix would take longer than reading the row.

Any A gives a valid bound; the sample only makes it a sharp one. Both sides are rounded upwards. Products of dense rows
are formed in float32, which is fast, and their rounding is added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy.linalg import cholesky, solve_triangular

from streamsvm.numeric.gram import GramSum
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F32, F64, I32, I64, CsrRows, Rows, add_rows

FULL_WIDTH = 512  # with more features A is diagonal
RIDGE = 1e-6  # times the mean of M's diagonal
UNIT32 = 2.0**-24


@dataclass(frozen=True)
class RowNorm:
    """The norm |A x|. A (width, width), or (1, width) for the diagonal of a diagonal matrix."""

    A: F64

    @property
    def size(self) -> float:
        """The Frobenius norm of A."""
        return float(np.linalg.norm(self.A))

    def find_scatter(self) -> F64:
        """Return M, the inverse of A'A, so that |u|^2 = v'Mv where v = A'u, (width, width)."""
        if len(self.A) == 1:
            return np.diag(self.A[0] ** -2.0)
        inverse = np.linalg.inv(self.A)
        product: F64 = inverse @ inverse.T
        return product

    def bound_move(self, move: F64) -> tuple[float, float]:
        """Return |u| and a rest, both rounded upwards, such that |move.x| <= |u| |Ax| + rest |x| for every x."""
        if len(self.A) == 1:
            u = move / self.A[0]
            left = move - self.A[0] * u
        else:
            u = np.linalg.solve(self.A.T, move)
            left = move - self.A.T @ u
        moved, length = float(np.linalg.norm(u)), float(np.linalg.norm(move))
        rounding = 4 * UNIT * (len(move) + 8) * (moved * self.size + length)
        return moved * (1.0 + 1e-12), float(np.linalg.norm(left)) * (1.0 + 1e-12) + rounding


def make_norm(rows: Rows, bias_feature: float) -> RowNorm:
    """Return the norm that belongs to the scatter of these rows."""
    width = rows.X.shape[1] + 1
    if width > FULL_WIDTH:
        return _invert_diagonal(np.append(_find_mean_squares(rows), bias_feature**2))
    M = _find_mean_products(rows, bias_feature)
    M[np.diag_indices(width)] += RIDGE * float(np.mean(np.diagonal(M))) + np.finfo(float).tiny
    try:
        factor = cholesky(M, lower=False)  # M = factor' factor
    except (np.linalg.LinAlgError, ValueError):
        return _invert_diagonal(np.diagonal(M))
    return RowNorm(np.ascontiguousarray(solve_triangular(factor, np.eye(width)).T))


def _find_mean_products(rows: Rows, bias_feature: float) -> F64:
    """Return the upper triangle of the mean of xx', (width, width)."""
    d, every, share = rows.X.shape[1], np.arange(rows.n_rows), np.full(rows.n_rows, 1.0 / rows.n_rows)
    gram, sums, M = GramSum(d), np.zeros((1, d)), np.zeros((d + 1, d + 1))
    gram.add(rows.X, every, share)
    add_rows(sums, rows.X, every, np.zeros_like(every), share)
    M[:d, :d] = np.triu(gram.finish())
    M[:d, d] = bias_feature * sums[0]
    M[d, d] = bias_feature**2
    return M


def _find_mean_squares(rows: Rows) -> F64:
    X, squares = rows.X, np.zeros(rows.X.shape[1])
    if isinstance(X, CsrRows):
        np.add.at(squares, X.indices, np.square(X.data, dtype=np.float64))
    else:
        squares += np.einsum("ij,ij->j", X, X, dtype=np.float64)
    return squares / rows.n_rows


def _invert_diagonal(squares: F64) -> RowNorm:
    ridge = RIDGE * float(np.mean(squares)) + float(np.finfo(float).tiny)
    return RowNorm(1.0 / np.sqrt(squares + ridge)[None, :])


def measure_rows(norm: RowNorm, rows: Rows, bias_feature: float) -> tuple[F64, F64]:
    """Return |A x| and |x| of every row, (n,) each, rounded upwards; x has the constant feature."""
    X, A, width = rows.X, norm.A, norm.A.shape[1]
    unit = UNIT
    if isinstance(X, CsrRows):
        measured, lengths = np.empty(rows.n_rows), np.empty(rows.n_rows)
        by_feature = A if len(A) == 1 else np.ascontiguousarray(A.T)
        _measure_csr(X.data, X.indices, X.indptr, by_feature, bias_feature, measured, lengths)
    else:
        lengths = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64) + bias_feature**2)
        if len(A) == 1:
            measured = np.sqrt(np.square(X, dtype=np.float64) @ A[0, :-1] ** 2 + (A[0, -1] * bias_feature) ** 2)
        else:
            unit = UNIT32
            with np.errstate(over="ignore", invalid="ignore"):
                products = X @ A[:, :-1].T.astype(np.float32) + (A[:, -1] * bias_feature).astype(np.float32)
                measured = np.sqrt(np.einsum("ij,ij->i", products, products, dtype=np.float64))
            measured[~np.isfinite(measured)] = np.inf
    larger = 1.0 + 4 * UNIT * (width + 8)
    return measured * larger + 2 * unit * (width + 8) * norm.size * larger * lengths, lengths * larger


@njit(cache=True, nogil=True)
def _measure_csr(
    data: F32, indices: I32, indptr: I64, A: F64, bias_feature: float, measured: F64, lengths: F64
) -> None:
    """Write |A x| and |x| of sparse rows. A is transposed, (width, width), or a diagonal, (1, width)."""
    width, is_diagonal = A.shape[1], A.shape[0] == 1
    product = np.empty(width)
    for i in range(indptr.size - 1):
        squares, total = bias_feature * bias_feature, 0.0
        if is_diagonal:
            total = (A[0, width - 1] * bias_feature) ** 2
        else:
            product[:] = A[width - 1] * bias_feature
        for e in range(indptr[i], indptr[i + 1]):
            x = np.float64(data[e])
            squares += x * x
            if is_diagonal:
                total += (A[0, indices[e]] * x) ** 2
            else:
                row = A[indices[e]]
                for j in range(width):
                    product[j] += row[j] * x
        if not is_diagonal:
            for j in range(width):
                total += product[j] * product[j]
        measured[i], lengths[i] = np.sqrt(total), np.sqrt(squares)
