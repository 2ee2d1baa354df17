"""The loss of K scores of a row (numeric.class_losses) at a few points, in twice the precision of float64."""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm.numeric.class_losses import read_costs
from streamsvm.numeric.exact_losses import ExactLosses, bound_score, compute_exact_scores
from streamsvm.numeric.kernels import absolute
from streamsvm.numeric.rounding import add_to_pair, add_two
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, I32, Rows


def add_exact_classes(totals: ExactLosses, rows: Rows, W: F64, biases: F64, class_costs: F64) -> None:
    """Add the losses of rows at the points W (p, K, d), biases (p, K). class_costs (K,): C_i of the classes.

    A row whose rivals are all beyond its margin, whatever was rounded, has no loss, and does not count in the
    magnitudes, sum_i C_i (1 + |w_y|.|x_i| + max_k |w_k|.|x_i|).
    """
    assert rows.y is not None
    costs, sizes_of = read_costs(class_costs, rows), absolute(rows.X)
    share = 2.0 * bound_score(W.shape[2])
    for p, (weights, bias) in enumerate(zip(W, biases, strict=True)):
        scores = compute_exact_scores(rows.X, weights)
        sizes = compute_scores(sizes_of, np.abs(weights)) + np.abs(bias)
        found = _add_rows(scores, sizes, bias, rows.y, costs, share, *totals.losses[p], totals.magnitudes[p])
        totals.losses[p, 0], totals.losses[p, 1], totals.magnitudes[p] = found
    totals.n_rows += rows.n_rows


@njit(cache=True, nogil=True)
def _add_rows(
    scores: F64, sizes: F64, bias: F64, y: I32, costs: F64, share: float, loss: float, rest: float, magnitude: float
) -> tuple[float, float, float]:
    """Add rows to the loss, which is a pair, and to its magnitude.

    scores (K, n, 2): without the bias; sizes (n, K): with it.
    """
    for i in range(y.size if costs.size else 0):
        own, top, low, largest = y[i], -np.inf, 0.0, 0.0
        if costs[i] <= 0.0:
            continue
        start, lost = add_two(1.0, -scores[own, i, 0])
        end, lost_too = add_two(start, -bias[own])
        lost += lost_too - scores[own, i, 1]
        for k in range(bias.size):
            if k == own:
                continue
            total, missed = add_two(end, scores[k, i, 0])
            total, missed_too = add_two(total, bias[k])
            total, under = add_two(total, missed + missed_too + lost + scores[k, i, 1])
            if total > top or (total == top and under > low):
                top, low = total, under
            largest = max(largest, sizes[i, k])
        size = 1.0 + sizes[i, own] + largest
        if top > -share * size:
            magnitude += costs[i] * size
        if top > 0.0:
            loss, rest = add_to_pair(loss, rest, costs[i] * top)
            rest += costs[i] * low
    return loss, rest, magnitude
