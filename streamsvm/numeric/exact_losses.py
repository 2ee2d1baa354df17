"""The hinge loss of all rows at a few points in twice the precision, for certificates that float64 cannot give.

    sum_i C_i max(0, 1 - y_i (w.x_i + b))

Scores and sums are pairs of float64 numbers (see numeric.rounding). So the loss is that of the point as it is saved, to
some units in the last place, however much the terms of a score cancel. A row takes ten to twenty times as long as in
numeric.losses, so this is for rare passes.

The score of d terms loses at most gamma_(2d) d u of the sum of the sizes of the terms. A row that is farther beyond its
margin than that has no loss, whatever was rounded, and so nothing of it is rounded in the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.losses import NO_WEIGHTS
from streamsvm.numeric.rounding import UNIT, add_pairs, add_to_pair, add_two, bound_rounding, split_for_float32
from streamsvm.numeric.rows import F32, F64, I32, I64, Matrix, Rows, split

OWN_ROUNDINGS = 8  # the units in the last place that the terms of a loss and their last sum can lose


@dataclass
class ExactLosses:
    """Losses at K points as pairs (K, 2), their magnitudes sum_i C_i (|w|.|x_i| + |b| + 1), (K,), and the rows.

    Only rows that may have a loss count in the magnitudes.
    """

    losses: F64
    magnitudes: F64
    n_rows: int = 0

    def read(self, width: int) -> tuple[F64, F64]:
        """Return the losses (K,), and how far each can be off. width: the length of the weight vectors."""
        found = self.losses.sum(axis=1)
        scores = bound_score(width) * (1.0 + bound_rounding(width + self.n_rows + 8, 1.0))
        return found, (OWN_ROUNDINGS * UNIT + 2.0 * (self.n_rows + 4) * UNIT**2) * found + scores * self.magnitudes


def bound_score(width: int) -> float:
    """Return how far 1 - y (w.x + b) can be off, as a share of |w|.|x| + |b| + 1. width: the length of w."""
    return bound_rounding(2.0 * width + 12, (width + 6) * UNIT)


def start_exact(n_points: int) -> ExactLosses:
    """Return the losses of no rows."""
    return ExactLosses(np.zeros((n_points, 2)), np.zeros(n_points))


def add_exact(totals: ExactLosses, rows: Rows, W: F64, biases: F64, class_costs: F64) -> None:
    """Add the losses of rows at the points W (K, d), biases (K,). class_costs (2,): C_i of the classes 0 and 1."""
    assert rows.y is not None
    weight = NO_WEIGHTS if rows.sample_weight is None else rows.sample_weight
    high, low = split_for_float32(W)
    share = 2.0 * bound_score(W.shape[1])
    _add_exact(*split(rows.X), rows.y, weight, class_costs, high, low, biases, share, totals.losses, totals.magnitudes)
    totals.n_rows += rows.n_rows


def combine_exact(left: ExactLosses, right: ExactLosses) -> ExactLosses:
    """Return the sum of both."""
    losses = np.stack(add_pairs(*left.losses.T, *right.losses.T), axis=1)
    return ExactLosses(losses, left.magnitudes + right.magnitudes, left.n_rows + right.n_rows)


def compute_exact_scores(X: Matrix, W: F64) -> F64:
    """Return the scores X W' as pairs of numbers, (K, n, 2)."""
    high, low = split_for_float32(W)
    scores = np.empty((len(W), X.shape[0], 2))
    _fill_exact_scores(*split(X), high, low, scores)
    return scores


@register_jitable
def _score(values: F32, indices: I32, indptr: I64, i: int, u: F64, v: F64, bias: float) -> tuple[float, float, float]:
    """Return (u + v).x_i + b as a pair, and the sum of its terms' magnitudes.

    The products with u and with v, which are smaller by 2^-28, are two sums: their rounding would not be so small in
    the sum of what the additions lose.
    """
    total, lower, rest, size = bias, 0.0, 0.0, abs(bias)
    if values.ndim == 1:
        for e in range(indptr[i], indptr[i + 1]):
            product = np.float64(values[e]) * u[indices[e]]
            total, lost = add_two(total, product)
            lower, lost_too = add_two(lower, np.float64(values[e]) * v[indices[e]])
            rest += lost + lost_too
            size += abs(product)
    else:
        x = values[i]
        for j in range(x.size):
            product = np.float64(x[j]) * u[j]
            total, lost = add_two(total, product)
            lower, lost_too = add_two(lower, np.float64(x[j]) * v[j])
            rest += lost + lost_too
            size += abs(product)
    total, lost = add_two(total, lower)
    return total, rest + lost, size


@njit(cache=True, nogil=True)
def _fill_exact_scores(values: F32, indices: I32, indptr: I64, high: F64, low: F64, scores: F64) -> None:
    for k in range(scores.shape[0]):
        for i in range(scores.shape[1]):
            total, rest, _ = _score(values, indices, indptr, i, high[k], low[k], 0.0)
            scores[k, i, 0], scores[k, i, 1] = add_two(total, rest)


@njit(cache=True, nogil=True)
def _add_exact(
    values: F32,
    indices: I32,
    indptr: I64,
    y: I32,
    weight: F64,
    class_costs: F64,
    high: F64,
    low: F64,
    biases: F64,
    share: float,
    losses: F64,
    magnitudes: F64,
) -> None:
    """Add rows. share: a row that is beyond its margin by this share of its terms' magnitudes has no loss."""
    for i in range(y.size):
        cost, sign = class_costs[y[i]] * (weight[i] if weight.size else 1.0), 1.0 if y[i] == 1 else -1.0
        for k in range(biases.size if cost > 0.0 else 0):
            total, rest, size = _score(values, indices, indptr, i, high[k], low[k], biases[k])
            slack, lost = add_two(1.0, -sign * total)
            slack += lost - sign * rest
            if slack > -share * (size + 1.0):
                magnitudes[k] += cost * (size + 1.0)
            if slack > 0.0:
                losses[k, 0], losses[k, 1] = add_to_pair(losses[k, 0], losses[k, 1], cost * slack)
