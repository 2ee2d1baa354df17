"""Rows in memory, dense or sparse, and the two products every linear solver needs of them.

    scores = X W'                      (n, k)   how rows lie to k weight vectors
    total[bucket_e] += coef_e x_{row_e}         sums of rows, several at once

Data are float32, sums float64. These two functions are the only place where dense and sparse rows differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

SUMS_MAY_BE_REORDERED = {"reassoc", "contract", "nsz"}  # lets LLVM use vector registers; the order is still fixed


@dataclass(frozen=True, slots=True)
class CsrRows:
    """Sparse rows: row i holds data[indptr[i]:indptr[i+1]] at the columns indices[indptr[i]:indptr[i+1]]."""

    data: F32
    indices: I32
    indptr: I64
    n_features: int

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, features)."""
        return len(self.indptr) - 1, self.n_features

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.data.nbytes + self.indices.nbytes + self.indptr.nbytes


Matrix = F32 | CsrRows


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows, the first of which is row `start` of the dataset (or chosen rows, start = -1).

    y holds codes into the dataset's classes; None where a dataset has no labels. Rows that a dataset streams
    stay valid only until the next ones are asked for: their memory is used again.
    """

    start: int
    X: Matrix
    y: I32 | None = None
    sample_weight: F64 | None = None
    qid: I64 | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        parts = (self.X, self.y, self.sample_weight, self.qid)
        return sum(part.nbytes for part in parts if part is not None)


@njit(cache=True, nogil=True, fastmath=SUMS_MAY_BE_REORDERED)
def _dense_scores(X: F32, W: F64, scores: F64) -> None:
    for i in range(X.shape[0]):
        for c in range(W.shape[0]):
            total = 0.0
            for j in range(X.shape[1]):
                total += X[i, j] * W[c, j]
            scores[i, c] = total


@njit(cache=True, nogil=True)
def _csr_scores(data: F32, indices: I32, indptr: I64, W: F64, scores: F64) -> None:
    for i in range(indptr.size - 1):
        for c in range(W.shape[0]):
            total = 0.0
            for e in range(indptr[i], indptr[i + 1]):
                total += data[e] * W[c, indices[e]]
            scores[i, c] = total


def compute_scores(X: Matrix, W: F64) -> F64:
    """X W' for W of shape (k, d), k small; returns (n, k) float64."""
    scores = np.empty((X.shape[0], len(W)))
    if isinstance(X, CsrRows):
        _csr_scores(X.data, X.indices, X.indptr, W, scores)
    else:
        _dense_scores(X, W, scores)
    return scores


@njit(cache=True, nogil=True)
def _add_dense(X: F32, row: I64, bucket: I64, coef: F64, total: F64) -> None:
    for e in range(row.size):
        x, sums, c = X[row[e]], total[bucket[e]], coef[e]
        for j in range(x.size):
            sums[j] += c * x[j]


@njit(cache=True, nogil=True)
def _add_csr(data: F32, indices: I32, indptr: I64, row: I64, bucket: I64, coef: F64, total: F64) -> None:
    for e in range(row.size):
        sums, c = total[bucket[e]], coef[e]
        for k in range(indptr[row[e]], indptr[row[e] + 1]):
            sums[indices[k]] += c * data[k]


def add_rows(total: F64, X: Matrix, row: I64, bucket: I64, coef: F64) -> None:
    """total[bucket_e] += coef_e x_{row_e} for every entry e, in order; total is (k, at least d) float64."""
    if isinstance(X, CsrRows):
        _add_csr(X.data, X.indices, X.indptr, row, bucket, coef, total)
    else:
        _add_dense(X, row, bucket, coef, total)
