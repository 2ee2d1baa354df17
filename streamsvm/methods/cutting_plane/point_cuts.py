"""The hinge loss of rows at several weight vectors, and the cut at each: Joachims 2006, Algorithm 1, lines 5 to 7.

    loss(w) = sum_i C_i max(0, 1 - y_i w.x_i)
    cut at w:   sum_i C_i c_i y_i x_i   and   sum_i C_i c_i,   c_i = [y_i w.x_i < 1]

Row i has the label y_i and the cost C_i, and is active at w if c_i = 1. Most rows are active at all points or at none.
So the sums are the cut of the first point, and for every other point the difference from that cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.methods.cutting_plane.cuts import RowSums
from streamsvm.numeric.losses import NO_WEIGHTS
from streamsvm.numeric.row_products import add_rows_of, compute_scores
from streamsvm.numeric.rows import F32, F64, I32, I64, Rows, split


@dataclass
class PointTotals:
    """Sums over rows at k points.

    losses (k,): the losses; costs (k,), gradients (k, d+1): the cut of the first point, and then the differences of the
    other points' cuts from it.
    """

    losses: F64
    costs: F64
    gradients: F64


def start_points(k: int, width: int) -> PointTotals:
    """Return the totals of no rows."""
    return PointTotals(np.zeros(k), np.zeros(k), np.zeros((k, width)))


@register_jitable
def _classify(
    scores: F64,
    bias: F64,
    y: I32,
    weight: F64,
    class_costs: F64,
    losses: F64,
    costs: F64,
    signs: F64,
    row: I64,
    point: I64,
    coef: F64,
) -> tuple[int, int]:
    """Add the losses and costs of a tile; list the rows whose sums make the gradients. Return n and end.

    Rows that are active at the first point are the entries [:n]. The differences at other points are the entries
    [end:], written backwards.
    """
    n, end, k = 0, row.size, scores.shape[1]
    for i in range(scores.shape[0]):
        sign = 1.0 if y[i] == 1 else -1.0
        cost = class_costs[y[i]] * (weight[i] if weight.size else 1.0)
        first = sign * (scores[i, 0] + bias[0]) < 1.0
        for p in range(k):
            margin = sign * (scores[i, p] + bias[p])
            active = margin < 1.0
            if active:
                losses[p] += cost * (1.0 - margin)
            if active != first and cost > 0.0:
                change = cost if active else -cost
                end -= 1
                row[end], point[end], coef[end] = i, p, change * sign
                costs[p] += change
                signs[p] += change * sign
        if first and cost > 0.0:
            row[n], point[n], coef[n] = i, 0, cost * sign
            costs[0] += cost
            signs[0] += cost * sign
            n += 1
    return n, end


@njit(cache=True, nogil=True)
def _add_points(
    values: F32,
    indices: I32,
    indptr: I64,
    y: I32,
    weight: F64,
    scores: F64,
    bias: F64,
    class_costs: F64,
    losses: F64,
    costs: F64,
    signs: F64,
    gradients: F64,
) -> None:
    """Add a tile, whose scores are known, in one call, because calls from Python take time."""
    size = y.size * (scores.shape[1] + 1)
    row, point, coef = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    n, end = _classify(scores, bias, y, weight, class_costs, losses, costs, signs, row, point, coef)
    add_rows_of(values, indices, indptr, row[:n], point[:n], coef[:n], gradients)
    add_rows_of(values, indices, indptr, row[end:], point[end:], coef[end:], gradients)


def add_points(totals: PointTotals, rows: Rows, W: F64, class_costs: F64, bias_feature: float) -> None:
    """Add rows. W (k, d+1): the points, whose last column is the weight of the constant feature."""
    assert rows.y is not None
    weight = NO_WEIGHTS if rows.sample_weight is None else rows.sample_weight
    scores, signs = compute_scores(rows.X, W) if rows.scores is None else rows.scores, np.zeros(len(W))
    _add_points(
        *split(rows.X),
        rows.y,
        weight,
        scores,
        W[:, -1] * bias_feature,
        class_costs,
        totals.losses,
        totals.costs,
        signs,
        totals.gradients,
    )
    totals.gradients[:, -1] += bias_feature * signs


def combine_points(left: PointTotals, right: PointTotals) -> PointTotals:
    """Return the totals of the rows of both."""
    return PointTotals(left.losses + right.losses, left.costs + right.costs, left.gradients + right.gradients)


def read_cuts(totals: PointTotals) -> RowSums:
    """Return the cuts at the points: k sums. Rows that are active at the first point may be subtracted again."""
    gradients, costs = totals.gradients.copy(), totals.costs.copy()
    gradients[1:] += gradients[0]
    costs[1:] += costs[0]
    return RowSums(gradients, costs, 2 * costs[0] + costs)
