"""The sums of a pass for many labels and many features: gradients, or products of Hessians with vectors.

    scores X W',  slopes A (n, k),  A'X                       for labels whose points are looked at
    (l''(X W') * (X P')) ' X                                  for labels whose next step is being found, P: directions

Weights are stored by features, (d+1, k), so that each value of a sparse row meets the weights of all labels in a row of
memory. The last row of them belongs to the constant feature. What is proved rests on the first kind of sums, which are
float64; products of Hessians choose points only, and are float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from streamsvm.methods.label_newton import row_losses
from streamsvm.methods.label_newton.sums import find_labels
from streamsvm.numeric.prefetch import prefetch
from streamsvm.numeric.rows import F32, F64, I32, I64, CsrRows, Matrix, Rows, Values

TILE_ROWS = 8192  # whose scores are in memory at a time
# The weights of so many values ahead are asked for, since those of rare features are in no near cache: the sums of a
# pass then take half the time (105 classes of 55,197 features).
VALUES_AHEAD = 16
LINE_BYTES = 64  # of a cache


@dataclass
class Products:
    """The sums of k labels that are looked at and of h labels whose Hessians are multiplied.

    sums (5, k) as in row_losses; gradients (d+1, k); products (d+1, h), float32; squares as in sums.Totals.
    """

    sums: F64
    gradients: F64
    products: F32
    squares: float = 0.0

    def finish(self) -> None:
        """Do nothing: no rows wait."""


def start_products(width: int, n_looked: int, n_bent: int) -> Products:
    """Return the sums over no rows."""
    return Products(np.zeros((5, n_looked)), np.zeros((width, n_looked)), np.zeros((width, n_bent), np.float32))


def add_products(
    totals: Products,
    rows: Rows,
    W: F64,
    looked: I64,
    costs: F64,
    V: F32,
    P: F32,
    bent: I64,
    bent_costs: F64,
    about: tuple[int, float],
) -> None:
    """Add the rows of a tile.

    W (d+1, k): the points of the labels with the codes `looked`, whose costs are (k, 2). V and P (d+1, h): the points
    and directions of the labels `bent`, whose costs are (h, 2). about: the loss and the bias feature.
    """
    for at in range(0, rows.n_rows, TILE_ROWS):
        tile = rows.slice(slice(at, at + TILE_ROWS))
        if len(looked):
            add_looked(totals, tile, W, looked, costs, about)
        _add_bent(totals, tile, V, P, bent, bent_costs, about)


def add_looked(totals: Products, rows: Rows, W: F64, looked: I64, costs: F64, about: tuple[int, float]) -> F64:
    """Add to the sums and the gradients of the labels that are looked at; return the slopes (n, k) of the rows."""
    loss, bias = about
    X, weight = _widen(rows.X), _read_weights(rows)
    slopes: F64 = _score(X, W, bias)
    lengths = np.sqrt(_square(X) + bias**2)
    totals.squares += float(weight @ lengths**2)
    flags, none = row_losses.as_flags(find_labels(rows, looked)), np.zeros(len(looked))
    places = np.zeros((0, 0), np.int32), np.zeros((0, 0), np.float32), np.zeros(len(looked), np.int64)
    row_losses.measure_rows(loss, slopes, flags, weight, lengths, 0, costs, none, totals.sums, *places)
    _add(totals.gradients, X, slopes, bias)
    return slopes


def _add_bent(totals: Products, rows: Rows, V: F32, P: F32, bent: I64, costs: F64, about: tuple[int, float]) -> None:
    """Add to the products of the labels whose Hessians are multiplied."""
    loss, bias = about
    if not len(bent):
        return
    along, flags = _score(rows.X, P, bias), row_losses.as_flags(find_labels(rows, bent))
    row_losses.bend_rows(loss, _score(rows.X, V, bias), along, flags, _read_weights(rows), costs)
    _add(totals.products, rows.X, along, bias)


def _widen(X: Matrix) -> Matrix | F64:
    """Return dense rows as float64, for products that are to be so precise."""
    return X if isinstance(X, CsrRows) else X.astype(np.float64)


def _read_weights(rows: Rows) -> F64:
    return np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight


def combine_products(left: Products, right: Products) -> Products:
    """Return the sums over the rows of both."""
    return Products(
        left.sums + right.sums,
        left.gradients + right.gradients,
        left.products + right.products,
        left.squares + right.squares,
    )


def _square(X: Matrix | F64) -> F64:
    """Return |x|^2 of the rows, without the constant feature, (n,)."""
    if isinstance(X, CsrRows):
        squares: F64 = _square_csr(X.data, X.indptr)
    else:
        squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    return squares


@njit(cache=True, nogil=True)
def _square_csr(data: F32, indptr: I64) -> F64:
    squares = np.zeros(len(indptr) - 1)
    for i in range(squares.size):
        for e in range(indptr[i], indptr[i + 1]):
            value = float(data[e])
            squares[i] += value * value
    return squares


def _score(X: Matrix | F64, W: Values, bias: float) -> Any:
    """Return X W with the constant feature, (n, k), as precise as W."""
    scores: Values = np.tile(W.dtype.type(bias) * W[-1], (X.shape[0], 1))
    if isinstance(X, CsrRows):
        _score_csr(X.data, X.indices, X.indptr, W, scores)
    else:
        scores += X @ W[:-1]
    return scores


@njit(cache=True, nogil=True)
def _score_csr(data: F32, indices: I32, indptr: I64, W: Values, scores: Values) -> None:
    """Add X W to the scores, for four values of a row at a time, so that its scores are loaded and stored once."""
    k, line = W.shape[1], LINE_BYTES // W.itemsize
    for i in range(len(indptr) - 1):
        row, e, end = scores[i], indptr[i], indptr[i + 1]
        while e + 3 < end:
            if e + 3 + VALUES_AHEAD < indices.size:
                for ahead in range(VALUES_AHEAD, VALUES_AHEAD + 4):
                    at = np.int64(indices[e + ahead]) * k
                    for j in range(0, k, line):
                        prefetch(W, at + j)
            x0, x1, x2, x3 = data[e], data[e + 1], data[e + 2], data[e + 3]
            w0, w1, w2, w3 = W[indices[e]], W[indices[e + 1]], W[indices[e + 2]], W[indices[e + 3]]
            for j in range(row.size):
                row[j] += (x0 * w0[j] + x1 * w1[j]) + (x2 * w2[j] + x3 * w3[j])
            e += 4
        while e < end:
            value, weights = data[e], W[indices[e]]
            for j in range(row.size):
                row[j] += value * weights[j]
            e += 1


def _add(total: Values, X: Matrix | F64, coefs: Values, bias: float) -> None:
    """Add X' coefs with the constant feature, (d+1, k)."""
    if isinstance(X, CsrRows):
        _add_csr(X.data, X.indices, X.indptr, coefs, total)
    else:
        total[:-1] += X.T @ coefs
    total[-1] += bias * np.sum(coefs, axis=0)


@njit(cache=True, nogil=True)
def _add_csr(data: F32, indices: I32, indptr: I64, coefs: Values, total: Values) -> None:
    k, line = total.shape[1], LINE_BYTES // total.itemsize
    for i in range(len(indptr) - 1):
        row = coefs[i]
        for e in range(indptr[i], indptr[i + 1]):
            if e + VALUES_AHEAD < indices.size:
                at = np.int64(indices[e + VALUES_AHEAD]) * k
                for j in range(0, k, line):
                    prefetch(total, at + j)
            value, sums = data[e], total[indices[e]]
            for j in range(row.size):
                sums[j] += value * row[j]


def run_products(rows: Rows, label_sets: Any) -> None:
    """Call the compiled functions."""
    sets = Rows(0, rows.X, label_sets=label_sets)
    for loss in row_losses.CODES.values():
        codes, costs, V = np.arange(2), np.ones((2, 2)), np.zeros((3, 2), np.float32)
        add_products(start_products(3, 2, 2), sets, np.zeros((3, 2)), codes, costs, V, V, codes, costs, (loss, 1.0))
