"""The sums over all rows that a pass computes for many labels at once, each at its own point.

    scores X W',  slopes A (n, k),  gradients A'X,  curvatures H_k = sum of l'' x x' over some of the rows of label k,
    or, with too many features for curvatures, products (l''(X W') * (X P'))' X with directions P

x has the constant feature as its last entry. With y = +1 or -1 for a row with or without a label, margin m = y f, and
cost C:

squared hinge    l = C max(0, 1 - m)^2        a = 2 C max(0, 1 - m)      l'' = 2 C for m < 1
logistic loss    l = C log(1 + exp(-m))       a = C / (1 + exp(m))       l'' = a (1 - a / C)

a is a multiplier of the dual problem, to which the row contributes l + a m (Fenchel and Young: this is -l*(-a)).

Scores and gradients are matrix products in float64. The curvatures only choose the next points. So they are float32,
and are computed from a share of the rows with a curvature, as lower triangles. Most slopes are 0, and gradients skip
these. Rows are collected until there are BLOCK_ROWS, since products of few rows are slow.

If steps are found by products, weights are stored by features, (d+1, k): the weights of all labels for one feature,
which each value of a sparse row needs, are then contiguous in memory. The last row belongs to the constant feature.
Proofs rest on the gradients, which are float64; products with Hessians only choose points, and are float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.gram import scale_rows
from streamsvm.numeric.labels import pick_labels
from streamsvm.numeric.rows import F32, F64, I32, I64, U8, CsrRows, Flags, Matrix, Rows, Values, prefetch, to_dense

CODES = {"squared_hinge": 0, "logistic": 1}
LOSS, DUAL, SIZES, STEEP, ACTIVE = range(5)  # the rows of `sums`
U32_SCALE = 2.0**-32
Picks = tuple[F64, I32, F32, I64]  # the rows picked to estimate curvatures (measure_rows)
About = tuple[int, float]  # the code of the loss, and the bias feature
BLOCK_ROWS = 8192
BLOCK_LABELS = 128
PRODUCT_ROWS = 8192  # rows whose scores are in memory at a time
# Weights are prefetched this many values ahead, because the weights of rare features are not in a fast cache.
# Prefetching halves the time of a pass's sums (105 classes, 55,197 features).
VALUES_AHEAD = 16
LINE_BYTES = 64  # the size of a cache line
# If fewer than this share of all (row, label) pairs have a slope, sums over these pairs take half the time of the
# matrix product, and replace it.
SCREENED_SHARE = 0.1


@register_jitable
def measure(code: int, cost: float, margin: float) -> tuple[float, float, float]:
    """Return the loss, the multiplier and the curvature at a margin. code: the code of the loss (CODES)."""
    if code == 0:
        missing = 1.0 - margin
        return (cost * missing * missing, 2.0 * cost * missing, 2.0 * cost) if missing > 0.0 else (0.0, 0.0, 0.0)
    odds = math.exp(-abs(margin))
    share = (odds if margin > 0.0 else 1.0) / (1.0 + odds)
    other = (1.0 if margin > 0.0 else odds) / (1.0 + odds)
    return cost * (max(0.0, -margin) + math.log1p(odds)), cost * share, cost * share * other


@register_jitable
def _draw(number: int) -> float:
    """Return a pseudorandom number from 0 to 1 that depends only on the row number (a multiplicative hash)."""
    mixed = (number + 1) * 0x9E3779B1 & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x85EBCA6B) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 13)) * U32_SCALE


@njit(cache=True, nogil=True)
def measure_rows(
    code: int, scores: F64, has: U8, weight: F64, lengths: F64, first: int, costs: F64, sums: F64, picks: Picks
) -> None:
    """Replace the scores (n, k) by the slopes -y a, and add to the sums (5, k) of the labels.

    has (n, k): whether a row has a label. weight (n,): the sample weights. lengths (n,): |x_i|. first: the number of
    the first row. costs (k, 2): the costs of rows without and with each label. sums: the losses, the dual terms, the
    magnitudes of both, a |x|, and the number of rows with a curvature.

    picks: the arrays shares, picked, roots and n_picked. shares (k,): the share of the rows with a curvature that is
    picked to estimate the Hessian. The function writes the other three. picked (k, n): the rows picked for each label;
    roots (k, n): the square roots of their curvatures divided by the share; n_picked (k,): the number of picked rows.
    """
    (n, k), (shares, picked, roots, n_picked) = scores.shape, picks
    n_picked[:] = 0
    for i in range(n):
        drawn = _draw(first + i)
        for j in range(k):
            y = 1.0 if has[i, j] else -1.0
            margin = y * scores[i, j]
            loss, a, bend = measure(code, costs[j, has[i, j]] * weight[i], margin)
            scores[i, j] = -y * a
            if a > 0.0:
                sums[LOSS, j] += loss
                sums[DUAL, j] += loss + a * margin
                sums[SIZES, j] += loss + a * abs(margin)
                sums[STEEP, j] += a * lengths[i]
            if bend > 0.0:
                sums[ACTIVE, j] += 1.0
                if drawn < shares[j]:
                    picked[j, n_picked[j]] = i
                    roots[j, n_picked[j]] = math.sqrt(bend / shares[j])
                    n_picked[j] += 1


@njit(cache=True, nogil=True)
def bend_rows(code: int, scores: F32, along: F32, has: U8, weight: F64, costs: F64) -> None:
    """Multiply `along` (n, k), in place, by the curvatures of the losses at the scores (n, k).

    along: the products of the rows with the directions of the labels.
    """
    n, k = scores.shape
    for i in range(n):
        for j in range(k):
            margin = scores[i, j] if has[i, j] else -scores[i, j]
            _, _, bend = measure(code, costs[j, has[i, j]] * weight[i], margin)
            along[i, j] *= bend


@njit(cache=True, nogil=True)
def add_active(slopes: F64, X: F64, gradients: F64) -> None:
    """Add slopes' X to the gradients (k, d+1); slopes of 0 are skipped."""
    for i in range(len(X)):
        x = X[i]
        for j in range(slopes.shape[1]):
            slope = slopes[i, j]
            if slope != 0.0:
                sums = gradients[j]
                for e in range(x.size):
                    sums[e] += slope * x[e]


@njit(cache=True, nogil=True)
def add_triangle(matrix: F32, triangle: F32) -> None:
    """Add the lower triangle of a matrix (d, d), row by row, to a triangle (d (d + 1) / 2,)."""
    at = 0
    for i in range(len(matrix)):
        for j in range(i + 1):
            triangle[at + j] += matrix[i, j]
        at += i + 1


def unpack_triangle(triangle: F32, width: int) -> F64:
    """Return the symmetric matrix (d, d) with this lower triangle. width: d."""
    matrix = np.zeros((width, width))
    matrix[np.tril_indices(width)] = triangle
    return matrix + np.tril(matrix, -1).T


def as_flags(has: Any) -> U8:
    """Return an indicator matrix as bytes of 0 and 1, which index the costs."""
    return np.ascontiguousarray(has).view(np.uint8)


@dataclass
class Totals:
    """The sums of a pass over rows, for each of k labels.

    sums (5, k): the sums of `measure_rows`. gradients (k, d+1): the gradients of the losses. curvatures (k, triangle):
    the lower triangles of the Hessians. If steps are found by products, gradients are (d+1, k), and `curvatures` holds
    the float32 products (d+1, h) for the labels whose Hessians are multiplied. squares: the sum over all rows of the
    weight times |x|^2. waiting: the rows that are not yet added. asked: the arguments of add_totals that follow `rows`.
    """

    sums: F64
    gradients: F64
    curvatures: F32
    squares: float = 0.0
    waiting: list[Rows] = field(default_factory=list)
    asked: tuple[Any, ...] = ()

    def finish(self) -> None:
        """Add the waiting rows."""
        if self.waiting:
            _add_block(self, self.waiting, *self.asked)
        self.waiting, self.asked = [], ()

    def __getstate__(self) -> dict[str, Any]:
        self.finish()
        return dict(vars(self))


def start_totals(n_labels: int, width: int) -> Totals:
    """Return empty sums, for n_labels labels and points of `width` entries."""
    triangle = np.zeros((n_labels, width * (width + 1) // 2), np.float32)
    return Totals(np.zeros((5, n_labels)), np.zeros((n_labels, width)), triangle)


def add_totals(totals: Totals, rows: Rows, W: F64, codes: I64, costs: F64, shares: F64, about: About) -> None:
    """Append a tile to the waiting rows, and add the waiting rows once there are BLOCK_ROWS.

    W (k, d+1): the points of the labels with these codes (k,). costs (k, 2): the costs of rows without and with each
    label. shares (k,): the share of the rows with a curvature that is used to estimate the Hessian. about: the loss and
    the bias feature.
    """
    for at in range(0, rows.n_rows, BLOCK_ROWS):
        totals.waiting.append(_copy(rows.slice(slice(at, at + BLOCK_ROWS))))
        totals.asked = (W, codes, costs, shares, about)
        if sum(part.n_rows for part in totals.waiting) >= BLOCK_ROWS:
            totals.finish()


def combine_totals(left: Totals, right: Totals) -> Totals:
    """Return the sums over both groups of rows."""
    left.finish()
    right.finish()
    sums = ("sums", "gradients", "curvatures", "squares")
    return Totals(*(getattr(left, name) + getattr(right, name) for name in sums))


def _copy(rows: Rows) -> Rows:
    """Return a dense copy of the rows; the rows of a dataset are only valid until the next rows are read."""
    X = to_dense(rows.X) if isinstance(rows.X, CsrRows) else rows.X.copy()
    return Rows(rows.start, X, **{name: values.copy() for name, values in rows.vectors.items()})


def _add_block(totals: Totals, parts: list[Rows], W: F64, codes: I64, costs: F64, shares: F64, about: About) -> None:
    """Add a block of rows, BLOCK_LABELS labels at a time."""
    loss, bias_feature = about
    X, has = _stack(parts, codes, bias_feature)
    n, weight = len(X), np.concatenate([part.weights for part in parts])
    lengths = np.sqrt(np.einsum("ij,ij->i", X, X))
    totals.squares += float(weight @ lengths**2)
    places = np.empty((BLOCK_LABELS, n), np.int32), np.empty((BLOCK_LABELS, n), np.float32)
    for at in range(0, len(codes), BLOCK_LABELS):
        part = slice(at, at + BLOCK_LABELS)
        slopes, flags, n_picked = X @ W[part].T, as_flags(has[:, part]), np.zeros(len(codes[part]), np.int64)
        sums, picks = np.zeros((5, len(n_picked))), (shares[part], *places, n_picked)
        measure_rows(loss, slopes, flags, weight, lengths, parts[0].start, costs[part], sums, picks)
        totals.sums[:, part] += sums
        if np.sum(sums[ACTIVE]) < SCREENED_SHARE * slopes.size:
            add_active(slopes, X, totals.gradients[part])
        else:
            totals.gradients[part] += slopes.T @ X
        scaled = np.empty((int(n_picked.max(initial=0)), X.shape[1]), np.float32)
        for curvature, rows, roots, m in zip(totals.curvatures[part], *places, n_picked.tolist(), strict=False):
            if m:
                scale_rows(X, rows[:m], roots[:m], scaled)
                add_triangle(scaled[:m].T @ scaled[:m], curvature)


def _stack(parts: list[Rows], codes: I64, bias_feature: float) -> tuple[F64, Flags]:
    """Return the rows with the constant feature, (n, d+1), and flags of the labels they have, (n, k)."""
    n, d = sum(part.n_rows for part in parts), parts[0].X.shape[1]
    X, has, at = np.full((n, d + 1), bias_feature), np.empty((n, len(codes)), np.bool_), 0
    for part in parts:
        here = slice(at, at + part.n_rows)
        X[here, :d], has[here] = part.X, find_labels(part, codes)
        at = here.stop
    return X, has


def find_labels(rows: Rows, codes: I64) -> Any:
    """Return flags (n, k): whether each row has the labels, or the classes, with these codes."""
    if rows.label_sets is not None:
        return pick_labels(rows.label_sets, codes)
    return rows.codes[:, None] == codes


def start_products(width: int, n_looked: int, n_bent: int) -> Totals:
    """Return zero sums for steps found by products.

    n_looked: the number of labels that are evaluated. n_bent: the number of labels whose Hessians are multiplied.
    """
    return Totals(np.zeros((5, n_looked)), np.zeros((width, n_looked)), np.zeros((width, n_bent), np.float32))


def add_products(
    totals: Totals, rows: Rows, W: F64, looked: I64, V: F32, P: F32, bent: I64, costs: F64, about: About
) -> None:
    """Add the rows of a tile.

    W (d+1, k): the points of the labels with the codes `looked`, which are evaluated. V, P (d+1, h): the points and
    directions of the labels `bent`, whose Hessians are multiplied. costs (k + h, 2): the costs of all these labels.
    about: the loss and the bias feature.
    """
    looked_costs, bent_costs = np.split(costs, [len(looked)])
    loss, bias = about
    for tile in rows.cut(PRODUCT_ROWS):
        if len(looked):
            add_looked(totals, tile, W, looked, looked_costs, about)
        if len(bent):
            along, flags = _score(tile.X, P, bias), as_flags(find_labels(tile, bent))
            bend_rows(loss, _score(tile.X, V, bias), along, flags, tile.weights.copy(), bent_costs)
            _add(totals.curvatures, tile.X, along, bias)


def add_looked(totals: Totals, rows: Rows, W: F64, looked: I64, costs: F64, about: About) -> F64:
    """Add rows to the sums and gradients of the labels that are evaluated; return the slopes (n, k) of the rows."""
    loss, bias = about
    weight = rows.weights.copy()  # writable, as compiled code requires
    X = rows.X if isinstance(rows.X, CsrRows) else rows.X.astype(np.float64)  # The products have to be float64.
    slopes: F64 = _score(X, W, bias)
    squares = _square_csr(X.data, X.indptr) if isinstance(X, CsrRows) else np.einsum("ij,ij->i", X, X, dtype=np.float64)
    lengths = np.sqrt(squares + bias**2)
    totals.squares += float(weight @ lengths**2)
    flags, none = as_flags(find_labels(rows, looked)), np.zeros(len(looked))
    picks = none, np.zeros((0, 0), np.int32), np.zeros((0, 0), np.float32), np.zeros(len(looked), np.int64)
    measure_rows(loss, slopes, flags, weight, lengths, 0, costs, totals.sums, picks)
    _add(totals.gradients, X, slopes, bias)
    return slopes


@njit(cache=True, nogil=True)
def _square_csr(data: F32, indptr: I64) -> F64:
    """Return |x|^2 of sparse rows, without the constant feature, (n,)."""
    squares = np.zeros(len(indptr) - 1)
    for i in range(squares.size):
        for e in range(indptr[i], indptr[i + 1]):
            value = float(data[e])
            squares[i] += value * value
    return squares


def _score(X: Matrix | F64, W: Values, bias: float) -> Any:
    """Return X W with the constant feature, (n, k), in the precision of W."""
    scores: Values = np.tile(W.dtype.type(bias) * W[-1], (X.shape[0], 1))
    if isinstance(X, CsrRows):
        _score_csr(X.data, X.indices, X.indptr, W, scores)
    else:
        scores += X @ W[:-1]
    return scores


@njit(cache=True, nogil=True)
def _score_csr(data: F32, indices: I32, indptr: I64, W: Values, scores: Values) -> None:
    """Add X W to the scores, four values of a row at a time, to load and store the row's scores less often."""
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
    """Add X' coefs, (d+1, k), to the total. X includes the constant feature."""
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
