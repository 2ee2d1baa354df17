"""Products of rows with vectors, and two factorisations for solvers.

    scores = X W'                      (n, k)   scores of the rows for k weight vectors
    total[bucket_e] += coef_e x_{row_e}         linear combinations of rows, several at once

Data are float32 and sums float64. Only these two products treat dense and sparse rows differently: compiled code calls
`scores_of` and `add_rows_of` with the arrays of `split`, for rows of either layout.

`RowQR` solves least squares problems min_x |A x - b| whose rows differ by many powers of ten. A Householder QR
factorisation with column pivoting keeps such rows apart if they are sorted by their largest entries: the error of each
row is then proportional to this row alone, however heavy the others are (Cox & Higham 1998, Stability of Householder QR
factorization for weighted least squares problems). In A'A, the products of the heavy rows would hide all others.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import register_jitable
from scipy.linalg import LinAlgError, cholesky
from scipy.linalg.lapack import dgeqp3, dormqr, dtrtrs

from streamsvm.numeric.rows import F32, F64, I32, I64, Matrix, Values, find_items, read_item, split

RIDGES = (0.0, 1e-14, 1e-12, 1e-9, 1e-6)  # shares of a matrix's diagonal to add to it; the first that works is used


def factorise(M: F64) -> tuple[F64, F64 | None]:
    """Return a matrix and its upper Cholesky factor, which is None if the factorisation fails.

    If rounding has made the matrix singular, its diagonal is raised by the least share in RIDGES that repairs it.
    Dropping the large curvature of the losses instead would make a step too long by as many orders of magnitude.
    """
    for ridge in RIDGES:
        raised = M + np.diag(ridge * np.diagonal(M))
        try:
            return raised, cholesky(raised, lower=False)
        except (LinAlgError, ValueError):
            continue
    return M, None


SCORED_ROWS = 256  # rows whose scores are computed at a time; a multiple of four, see _dense_scores


SUMS_MAY_BE_REORDERED = {"reassoc", "contract", "nsz"}  # LLVM may use vector registers; the order is still fixed


@register_jitable(fastmath=SUMS_MAY_BE_REORDERED)
def _dense_scores(X: F32, W: F64, scores: F64) -> None:
    """Compute X W' for four rows and two weight vectors at a time, so that every loaded number is used more than once.

    If the last group is incomplete, the last row or weight vector is computed again in place of the missing ones.
    """
    last, d = X.shape[0] - 1, X.shape[1]
    for i in range(0, last + 1, 4):
        i1, i2, i3 = min(i + 1, last), min(i + 2, last), min(i + 3, last)
        x0, x1, x2, x3 = X[i], X[i1], X[i2], X[i3]
        for c in range(0, W.shape[0], 2):
            c1 = min(c + 1, W.shape[0] - 1)
            u, v = W[c], W[c1]
            u0, u1, u2, u3, v0, v1, v2, v3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for j in range(d):
                u0 += x0[j] * u[j]
                u1 += x1[j] * u[j]
                u2 += x2[j] * u[j]
                u3 += x3[j] * u[j]
                v0 += x0[j] * v[j]
                v1 += x1[j] * v[j]
                v2 += x2[j] * v[j]
                v3 += x3[j] * v[j]
            scores[i, c], scores[i1, c], scores[i2, c], scores[i3, c] = u0, u1, u2, u3
            scores[i, c1], scores[i1, c1], scores[i2, c1], scores[i3, c1] = v0, v1, v2, v3


@register_jitable
def _csr_scores(data: F32, indices: I32, indptr: I64, W: F64, scores: F64) -> None:
    for i in range(indptr.size - 1):
        for c in range(W.shape[0]):
            total = 0.0
            for e in range(indptr[i], indptr[i + 1]):
                total += data[e] * W[c, indices[e]]
            scores[i, c] = total


@njit(cache=True, nogil=True)
def scores_of(values: F32, indices: I32, indptr: I64, W: F64, scores: F64) -> None:
    """Write X W' into scores (n, k). The first three arguments come from `split`."""
    if values.ndim == 2:
        _dense_scores(values, W, scores)
    else:
        _csr_scores(values, indices, indptr, W, scores)


def compute_scores(X: Matrix, W: F64) -> F64:
    """Return X W', (n, k) float64, for W of shape (k, d) with a small k."""
    scores = np.empty((X.shape[0], len(W)))
    scores_of(*split(X), W, scores)
    return scores


@njit(cache=True, nogil=True)
def _scores_of_parts(values: F32, indices: I32, indptr: I64, W: F64, scores: F64) -> None:
    """Compute the scores of SCORED_ROWS rows at a time, and copy them to their parts while they are in the cache."""
    n_parts, n_rows, width = scores.shape
    some = np.empty((SCORED_ROWS, W.shape[0]))
    for at in range(0, n_rows, SCORED_ROWS):
        n = min(SCORED_ROWS, n_rows - at)
        if values.ndim == 2:
            scores_of(values[at : at + n], indices, indptr, W, some[:n])
        else:
            scores_of(values, indices, indptr[at : at + n + 1], W, some[:n])
        for part in range(n_parts):
            for i in range(n):
                for c in range(width):
                    scores[part, at + i, c] = some[i, part * width + c]


def compute_scores_of_parts(X: Matrix, W: F64) -> F64:
    """Return X W' by parts: scores (parts, n, k) for weight vectors W (parts, k, d)."""
    scores = np.empty((len(W), X.shape[0], W.shape[1]))
    _scores_of_parts(*split(X), W.reshape(-1, W.shape[2]), scores)
    return scores


@register_jitable
def _add_dense(X: F32, row: I64, bucket: I64, coef: F64, total: F64) -> None:
    """Add four rows at a time if they belong to one bucket, so that its sums are loaded and stored once."""
    e, n = 0, row.size
    while e < n:
        sums = total[bucket[e]]
        if e + 3 < n and bucket[e] == bucket[e + 1] == bucket[e + 2] == bucket[e + 3]:
            x0, x1, x2, x3 = X[row[e]], X[row[e + 1]], X[row[e + 2]], X[row[e + 3]]
            c0, c1, c2, c3 = coef[e], coef[e + 1], coef[e + 2], coef[e + 3]
            for j in range(x0.size):
                sums[j] += (c0 * x0[j] + c1 * x1[j]) + (c2 * x2[j] + c3 * x3[j])
            e += 4
        else:
            x, c = X[row[e]], coef[e]
            for j in range(x.size):
                sums[j] += c * x[j]
            e += 1


@register_jitable
def _add_csr(data: F32, indices: I32, indptr: I64, row: I64, bucket: I64, coef: F64, total: F64) -> None:
    for e in range(row.size):
        sums, c = total[bucket[e]], coef[e]
        for k in range(indptr[row[e]], indptr[row[e] + 1]):
            sums[indices[k]] += c * data[k]


@njit(cache=True, nogil=True)
def add_rows_of(values: F32, indices: I32, indptr: I64, row: I64, bucket: I64, coef: F64, total: F64) -> None:
    """Add coef_e x_{row_e} to total[bucket_e] for each e, in order. The first three arguments come from `split`."""
    if values.ndim == 2:
        _add_dense(values, row, bucket, coef, total)
    else:
        _add_csr(values, indices, indptr, row, bucket, coef, total)


def add_rows(total: F64, X: Matrix, row: I64, bucket: I64, coef: F64) -> None:
    """Add coef_e x_{row_e} to total[bucket_e] for each e, in order. total is (k, at least d) float64."""
    add_rows_of(*split(X), row, bucket, np.require(coef, requirements="W"), total)


@register_jitable
def add_row_to_all(values: F32, indices: I32, indptr: I64, i: int, coefs: Values, W: Values) -> None:
    """Add row i times the coefficients (k,) to weights that are stored by feature, (at least d, k)."""
    first, end = find_items(values, indptr, i)
    for e in range(first, end):
        feature, x = read_item(values, indices, i, e)
        weights = W[feature]
        if x != 0.0:
            for k in range(coefs.size):
                weights[k] += x * coefs[k]


def score_rows(X: Matrix, w: F64, bias_feature: float) -> F64:
    """Return w.x of rows x with the constant feature, (n,). w (d+1,): the last weight is that of this feature."""
    scores: F64 = compute_scores(X, w[None, :-1])[:, 0] + bias_feature * w[-1]
    return scores


def add_combination(total: F64, X: Matrix, row: I64, coef: F64, bias_feature: float) -> None:
    """Add the sum of coef_e x_{row_e} to total (d+1,), where x has the constant feature as its last entry."""
    add_rows(total[None, :], X, row, np.zeros_like(row), coef)
    total[-1] += bias_feature * float(np.sum(coef))


BLOCK = 64  # the columns that LAPACK processes at once


class RowQR:
    """The QR factorisation of a finite matrix A (m, n), m >= n, for weighted least squares."""

    def __init__(self, matrix: F64) -> None:
        self.order = np.argsort(-np.max(np.abs(matrix), axis=1), kind="stable")
        sorted_rows, width = np.asfortranarray(matrix[self.order]), matrix.shape[1]
        self.factors, self.columns, self.tau, _, _ = dgeqp3(sorted_rows, lwork=2 * width + (width + 1) * BLOCK)

    def solve(self, right: F64) -> F64:
        """Return the least-squares solution (n,) for b (m,); NaN if A is singular."""
        width = len(self.columns)
        turned = dormqr("L", "T", self.factors, self.tau, right[self.order][:, None], BLOCK * (1 + BLOCK))[0]
        solution, singular = dtrtrs(np.asfortranarray(self.factors[:width]), turned[:width])
        found = np.full(width, np.nan)
        if not singular:
            found[self.columns - 1] = solution[:, 0]
        return found
