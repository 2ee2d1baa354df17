"""The hinge loss of all rows along a segment of weight vectors, and its cuts on the segment.

At the ends of the segment w(s) = (1-s) w0 + s w1, row i has the margins a_i = y_i w0.x_i and b_i = y_i w1.x_i, so

    loss(s) = sum_i C_i max(0, 1 - (1-s) a_i - s b_i)        is convex and piecewise linear in s.

A row is active if its margin is < 1. A row is active at both ends, at neither, or on one side of the step
r_i = (1 - a_i) / (b_i - a_i), so a row switches at most once. So at most two additions per row give the exact loss at
hundreds of steps, and a cut (Joachims 2006, Algorithm 1, lines 5-7) at each of K steps:

    cut at s:   sum_i C_i c_i y_i x_i   and   sum_i C_i c_i,   c_i = [margin at s < 1].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.rows import F64, I32, Rows, Split, add_rows_of, compute_scores, split

NO_WEIGHTS = np.empty(0)
Sums = tuple[F64, F64, F64]  # losses, costs and gradients
FINE_STEPS = 64  # steps with an exact loss in each interval between two cut steps


@register_jitable
def _locate(step: float, cut_steps: F64) -> tuple[int, int]:
    """Return (cut interval k, fine bin) of a step: cut_steps[k-1] < step <= cut_steps[k], where step 0 has k = 0."""
    if not step > 0.0:  # also catches NaN, which must not become an index
        return 1, 0
    k = 0
    while k < cut_steps.size - 1 and step > cut_steps[k]:
        k += 1
    low = cut_steps[k - 1] if k > 0 else 0.0
    part = (step - low) / (cut_steps[k] - low) * FINE_STEPS
    return k + 1, k * FINE_STEPS + (int(np.ceil(part)) if part < FINE_STEPS else FINE_STEPS)


@njit(cache=True, nogil=True)
def _add_segment(
    X: Split, y: I32, weight: F64, scores: F64, bias: F64, class_costs: F64, cut_steps: F64, sums: Sums, signs: F64
) -> None:
    """Add a tile with known scores, in a single call: calling from Python costs as much as about twenty rows.

    Rows that are active at s = 0 (bucket 0) are listed in the entries [:n], so that `add_rows_of` can take four at a
    time, and rows that switch in interval k (bucket k) in the entries [end:], backwards. signs: (K+1,), the sums of the
    coefficients by bucket. The gradients of the first buckets may be left out.
    """
    (values, indices, indptr), (losses, costs, gradients) = X, sums
    n_without = costs.size - len(gradients)
    row, bucket = np.empty(2 * y.size, np.int64), np.empty(2 * y.size, np.int64)
    coef, n, end = np.empty(2 * y.size), 0, row.size
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
            row[end], bucket[end], coef[end] = i, k - n_without, change * sign
    losses[0, 0] += value
    losses[0, 1] += slope
    costs[0] += active_cost
    signs[0] += active_sign
    if n_without == 0:
        add_rows_of(values, indices, indptr, row[:n], bucket[:n], coef[:n], gradients)
    if len(gradients) > 0:
        add_rows_of(values, indices, indptr, row[end:], bucket[end:], coef[end:], gradients)


def add_to_totals(totals: Any, rows: Rows, ends: F64, class_costs: F64, cut_steps: F64, bias_feature: float) -> None:
    """Add rows to the totals of a segment.

    ends (2, d+1): the weight vectors w0 and w1; the last column is the weight of the constant feature `bias_feature`.
    class_costs (2,): the costs C_i, before sample weights, of the classes 0 (y = -1) and 1 (y = +1). cut_steps (K,):
    the steps of the cuts, ascending in (0, 1].

    Entry 0 of each total, float64, is the value at s = 0, and the other entries are changes along the segment: losses
    (K * FINE_STEPS + 1, 2), value and slope in s; costs (K+1,); gradients (K+1, d+1), (K, d+1) without the entry 0, or
    (0, d+1) to skip the cuts.
    """
    weight = NO_WEIGHTS if rows.sample_weight is None else rows.sample_weight
    scores = compute_scores(rows.X, ends) if rows.scores is None else rows.scores
    signs = np.zeros(len(totals.costs))
    sums = (totals.losses, totals.costs, totals.gradients)
    _add_segment(split(rows.X), rows.y, weight, scores, ends[:, -1] * bias_feature, class_costs, cut_steps, sums, signs)
    totals.gradients[:, -1] += bias_feature * signs[len(signs) - len(totals.gradients) :]


def fine_steps(cut_steps: F64) -> F64:
    """Return the steps at which `losses` holds the exact loss: 0, and FINE_STEPS in each interval between cut steps."""
    lows = np.concatenate(([0.0], cut_steps[:-1]))
    parts = np.arange(1, FINE_STEPS + 1) / FINE_STEPS
    return np.concatenate(([0.0], (lows[:, None] + (cut_steps - lows)[:, None] * parts).ravel()))
