"""The sums of a pass for many labels and many features: gradients, or products of Hessians with vectors.

    scores X W',  slopes A (n, k),  A'X                       for labels whose points are looked at
    (l''(X W') * (X P')) ' X                                  for labels whose next step is being found, P: directions

Weights are stored by features, (d+1, k), so that each value of a sparse row meets the weights of all labels in a row of
memory. The last row of them belongs to the constant feature. Both products treat dense and sparse rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from streamsvm.methods.label_newton import row_losses
from streamsvm.methods.label_newton.sums import find_labels
from streamsvm.numeric.rows import F32, F64, I32, I64, CsrRows, Matrix, Rows

Flags = npt.NDArray[np.bool_]


@dataclass
class Products:
    """The sums of each label: `sums` (5, k) as in row_losses, and vectors (d+1, k); squares as in sums.Totals."""

    sums: F64
    vectors: F64
    squares: float = 0.0

    def finish(self) -> None:
        """Do nothing: no rows wait."""


def start_products(n_labels: int, width: int) -> Products:
    """Return the sums over no rows."""
    return Products(np.zeros((5, n_labels)), np.zeros((width, n_labels)))


def add_products(
    totals: Products, rows: Rows, W: F64, P: F64, bent: I64, codes: I64, costs: F64, about: tuple[int, float]
) -> None:
    """Add the rows of a tile.

    W (d+1, k): the points; P (d+1, h): the directions of the labels at the places `bent` (h,) among the k, whose
    Hessians are multiplied; codes (k,), costs (k, 2): see sums.Look; about: the loss and the bias feature.
    """
    loss, bias = about
    X, (n, d) = rows.X, rows.X.shape
    scores, lengths = _score(X, W, bias), np.sqrt(_square(X) + bias**2)
    weight = np.ones(n) if rows.sample_weight is None else rows.sample_weight
    flags = row_losses.as_flags(find_labels(rows, codes))
    totals.squares += float(weight @ lengths**2)
    along = _score(X, P, bias)
    row_losses.bend_rows(loss, scores, along, bent, flags, weight, lengths, costs, totals.sums)
    _add(totals.vectors[:d], X, scores)
    totals.vectors[d] += bias * np.sum(scores, axis=0)


def combine_products(left: Products, right: Products) -> Products:
    """Return the sums over the rows of both."""
    return Products(left.sums + right.sums, left.vectors + right.vectors, left.squares + right.squares)


def _square(X: Matrix) -> F64:
    """Return |x|^2 of the rows, without the constant feature, (n,)."""
    if isinstance(X, CsrRows):
        return _square_csr(X.data, X.indptr)
    return np.einsum("ij,ij->i", X, X, dtype=np.float64)


@njit(cache=True, nogil=True)
def _square_csr(data: F32, indptr: I64) -> F64:
    squares = np.zeros(len(indptr) - 1)
    for i in range(squares.size):
        for e in range(indptr[i], indptr[i + 1]):
            value = float(data[e])
            squares[i] += value * value
    return squares


def _score(X: Matrix, W: F64, bias: float) -> F64:
    """Return X W with the constant feature, (n, k)."""
    scores = np.tile(bias * W[-1], (X.shape[0], 1))
    if isinstance(X, CsrRows):
        _score_csr(X.data, X.indices, X.indptr, W, scores)
    else:
        scores += X.astype(np.float64) @ W[:-1]
    return scores


@njit(cache=True, nogil=True)
def _score_csr(data: F32, indices: I32, indptr: I64, W: F64, scores: F64) -> None:
    for i in range(len(indptr) - 1):
        row = scores[i]
        for e in range(indptr[i], indptr[i + 1]):
            value, weights = data[e], W[indices[e]]
            for j in range(row.size):
                row[j] += value * weights[j]


def _add(total: F64, X: Matrix, coefs: F64) -> None:
    """Add X' coefs, (d, k)."""
    if isinstance(X, CsrRows):
        _add_csr(X.data, X.indices, X.indptr, coefs, total)
    else:
        total += X.astype(np.float64).T @ coefs


@njit(cache=True, nogil=True)
def _add_csr(data: F32, indices: I32, indptr: I64, coefs: F64, total: F64) -> None:
    for i in range(len(indptr) - 1):
        row = coefs[i]
        for e in range(indptr[i], indptr[i + 1]):
            value, sums = data[e], total[indices[e]]
            for j in range(row.size):
                sums[j] += value * row[j]


def run_products(rows: Rows, label_sets: Any) -> None:
    """Call the compiled functions."""
    for loss in row_losses.CODES.values():
        totals, sets = start_products(2, 3), Rows(0, rows.X, label_sets=label_sets)
        bent, codes = np.zeros(1, np.int64), np.arange(2)
        add_products(totals, sets, np.zeros((3, 2)), np.ones((3, 1)), bent, codes, np.ones((2, 2)), (loss, 1.0))
