"""Dual coordinate ascent on rows in memory: Hsieh, Chang, Lin, Keerthi & Sundararajan 2008, Algorithm 1.

    D(c) = sum_i C_i c_i - 1/2 |w|^2,   w = sum_i C_i c_i y_i x_i + fixed,   0 <= c_i <= 1

One coordinate at a time, in random order, to its optimum: c_i + (1 - y_i w.x_i) / (C_i |x_i|^2), clipped. Rows whose c
is at a bound, and is kept there by more than the largest violation of the epoch before, are left out (shrinking).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm import interrupts
from streamsvm.numeric.kernels import compute_squares
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F32, F64, I32, I64, Rows, unpack


@njit(cache=True, nogil=True)
def _dot(dense: F32, data: F32, indices: I32, indptr: I64, i: int, w: F64) -> float:
    total = 0.0
    if indptr.size:
        for e in range(indptr[i], indptr[i + 1]):
            total += data[e] * w[np.uint32(indices[e])]
    else:
        x = dense[i]
        for j in range(x.size):
            total += x[j] * w[j]
    return total


@njit(cache=True, nogil=True)
def _add_row(dense: F32, data: F32, indices: I32, indptr: I64, i: int, coef: float, w: F64) -> None:
    if indptr.size:
        for e in range(indptr[i], indptr[i + 1]):
            w[np.uint32(indices[e])] += coef * data[e]
    else:
        x = dense[i]
        for j in range(x.size):
            w[j] += coef * x[j]


@njit(cache=True, nogil=True)
def _visit(
    dense: F32,
    data: F32,
    indices: I32,
    indptr: I64,
    y: F64,
    costs: F64,
    squares: F64,
    bias_feature: float,
    order: I64,
    w: F64,
    share: F64,
    limit: float,
) -> tuple[float, float, int]:
    """Visit the rows of `order`, moving those to stay to its front.

    Returns the duality gap as it was met on the way, the largest violation, and how many rows stay. w (d+1,) and share
    (n,) change. limit: the largest violation of the epoch before.
    """
    gap, worst, n = 0.0, 0.0, 0
    for k in range(order.size):
        i = order[k]
        slope = 1.0 - y[i] * (_dot(dense, data, indices, indptr, i, w) + w[-1] * bias_feature)
        gap += costs[i] * (max(slope, 0.0) - share[i] * slope)
        if (share[i] <= 0.0 and slope < -limit) or (share[i] >= 1.0 and slope > limit):
            continue
        order[n] = i
        n += 1
        after = min(max(share[i] + slope / (costs[i] * squares[i]), 0.0), 1.0)
        if after != share[i]:
            worst = max(worst, abs(slope))
            coef = (after - share[i]) * costs[i] * y[i]
            _add_row(dense, data, indices, indptr, i, coef, w)
            w[-1] += coef * bias_feature
            share[i] = after
    return gap, worst, n


def ascend(
    rows: Rows,
    class_costs: F64,
    bias_feature: float,
    share: F64,
    w: F64,
    others: float,
    wanted: float,
    tol: float,
    epochs: int,
    seed: tuple[int, ...],
) -> tuple[F64, F64]:
    """Improve the rows' multipliers, those of all other rows fixed.

    Until the rows' part of the duality gap is at most `wanted`, or tol * D, or for so many epochs. share: c (n,); w:
    (d+1,), the last entry the weight of the constant feature; others: sum C_i c_i of the other rows. Returns c and w.
    """
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    squares = compute_squares(rows.X).astype(np.float64) + bias_feature**2
    share, w, rng, limit = share.copy(), w.copy(), np.random.default_rng(seed), np.inf
    everything = np.flatnonzero(costs * squares > 0.0)
    order = everything.copy()
    for _ in range(epochs):
        interrupts.check()
        visited = len(order)
        rng.shuffle(order)
        gap, worst, n = _visit(*unpack(rows.X), y, costs, squares, bias_feature, order, w, share, limit)
        order, limit = order[:n], worst
        if gap <= max(wanted, tol * (others + costs @ share - w @ w / 2)):
            if visited == len(everything):
                break
            order, limit = everything.copy(), np.inf  # what was left out may have to move after all
    return share, w
