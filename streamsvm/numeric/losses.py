"""The hinge loss of all rows on a segment of weight vectors, and the cuts it gives there.

Row i has margins a_i = y_i w0.x_i and b_i = y_i w1.x_i at the ends of the segment w(s) = (1-s) w0 + s w1, so

    loss(s) = sum_i C_i max(0, 1 - (1-s) a_i - s b_i)        convex and piecewise linear in s.

A row is active (margin < 1) on one side of the step r_i = (1 - a_i) / (b_i - a_i) only: it is active at both
ends, at none, or it switches once. Hence two accumulations a row at most give the exact loss at hundreds of
steps and a cut (Joachims 2006, Algorithm 1, lines 5-7) at each of K steps:

    cut at s:   sum_i C_i c_i y_i x_i   and   sum_i C_i c_i,   c_i = [margin at s < 1].
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm.numeric.rows import F32, F64, I32, I64, Rows, add_rows_of, compute_scores, unpack

NO_WEIGHTS = np.empty(0)
FINE_STEPS = 64  # exact values of the loss in each interval between two cut steps


@njit(cache=True, nogil=True)
def _locate(step: float, cut_steps: F64) -> tuple[int, int]:
    """(cut interval k, fine bin) of a switching step: cut_steps[k-1] < step <= cut_steps[k], with step 0 at k = 0."""
    if not step > 0.0:  # not a number, too: it must not become a place
        return 1, 0
    k = 0
    while k < cut_steps.size - 1 and step > cut_steps[k]:
        k += 1
    low = cut_steps[k - 1] if k > 0 else 0.0
    part = (step - low) / (cut_steps[k] - low) * FINE_STEPS
    return k + 1, k * FINE_STEPS + (int(np.ceil(part)) if part < FINE_STEPS else FINE_STEPS)


@njit(cache=True, nogil=True)
def _classify(
    scores: F64, bias: F64, y: I32, weight: F64, class_costs: F64, cut_steps: F64,
    losses: F64, costs: F64, signs: F64, row: I64, bucket: I64, coef: F64,
) -> tuple[int, int]:  # fmt: skip
    """List the rows that are active at s = 0 (bucket 0) and those that switch in interval k (bucket k).

    The former are entries [:n], together, so that `add_rows_of` can take them four at a time; the latter are entries
    [end:], written backwards. Returns n and end. signs: (K+1,), sum of the coefficients by bucket.
    """
    n, end = 0, row.size
    value, slope, active_cost, active_sign = 0.0, 0.0, 0.0, 0.0
    for i in range(scores.shape[0]):
        sign = 1.0 if y[i] == 1 else -1.0
        cost = class_costs[y[i]] * (weight[i] if weight.size else 1.0)
        a, b = sign * (scores[i, 0] + bias[0]), sign * (scores[i, 1] + bias[1])
        if a < 1.0 and cost > 0.0:
            value += cost * (1.0 - a)
            slope += cost * (a - b)
            active_cost += cost
            active_sign += cost * sign
            row[n], bucket[n], coef[n] = i, 0, cost * sign
            n += 1
        if (a < 1.0) != (b < 1.0) and cost > 0.0:
            change = cost if b < 1.0 else -cost
            k, fine = _locate((1.0 - a) / (b - a), cut_steps)
            losses[fine, 0] += change * (1.0 - a)
            losses[fine, 1] += change * (a - b)
            costs[k] += change
            signs[k] += change * sign
            end -= 1
            row[end], bucket[end], coef[end] = i, k, change * sign
    losses[0, 0] += value
    losses[0, 1] += slope
    costs[0] += active_cost
    signs[0] += active_sign
    return n, end


@njit(cache=True, nogil=True)
def _add_segment(
    dense: F32, data: F32, indices: I32, indptr: I64, y: I32, weight: F64, scores: F64, bias: F64, class_costs: F64,
    cut_steps: F64, losses: F64, costs: F64, signs: F64, gradients: F64,
) -> None:  # fmt: skip
    """Do all that a tile needs, once it has scores, in one call: one from Python costs as much as some twenty rows."""
    row, bucket = np.empty(2 * y.size, np.int64), np.empty(2 * y.size, np.int64)
    coef = np.empty(2 * y.size)
    n, end = _classify(scores, bias, y, weight, class_costs, cut_steps, losses, costs, signs, row, bucket, coef)
    add_rows_of(dense, data, indices, indptr, row[:n], bucket[:n], coef[:n], gradients)
    add_rows_of(dense, data, indices, indptr, row[end:], bucket[end:], coef[end:], gradients)


def add_segment_totals(
    rows: Rows, ends: F64, class_costs: F64, cut_steps: F64, bias_feature: float,
    losses: F64, costs: F64, gradients: F64,
) -> None:  # fmt: skip
    """Add the rows' share to the totals of a segment.

    ends: (2, d+1), w0 and w1, the last column the weight of the constant feature `bias_feature`.
    class_costs: (2,), C_i before sample weights of the classes coded 0 (y = -1) and 1 (y = +1).
    cut_steps: (K,), ascending in (0, 1]. Totals, float64, in "active at s = 0, then what changes" form:
    losses (K * FINE_STEPS + 1, 2): value and slope in s; costs (K+1,); gradients (K+1, d+1).
    """
    assert rows.y is not None
    weight = NO_WEIGHTS if rows.sample_weight is None else rows.sample_weight
    scores = compute_scores(rows.X, ends) if rows.scores is None else rows.scores
    signs = np.zeros(len(costs))
    _add_segment(
        *unpack(rows.X), rows.y, weight, scores, ends[:, -1] * bias_feature, class_costs, cut_steps,
        losses, costs, signs, gradients,
    )  # fmt: skip
    gradients[:, -1] += bias_feature * signs


def fine_steps(cut_steps: F64) -> F64:
    """Return the steps at which `losses` gives the exact loss: 0, then FINE_STEPS in each interval between cuts."""
    lows = np.concatenate(([0.0], cut_steps[:-1]))
    parts = np.arange(1, FINE_STEPS + 1) / FINE_STEPS
    return np.concatenate(([0.0], (lows[:, None] + (cut_steps - lows)[:, None] * parts).ravel()))
