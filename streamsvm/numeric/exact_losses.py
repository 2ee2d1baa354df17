"""The hinge loss of all rows at a few points, in twice the precision: for certificates that float64 cannot give.

    sum_i C_i max(0, 1 - y_i (w.x_i + b))

Scores and sums are pairs of float64 numbers (see numeric.rounding), so the loss is that of the point as it is saved, to
some units in the last place, however much the terms of a score cancel. It takes ten to twenty times as long a row as
numeric.losses does, and is meant for passes that are rare.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numba import njit

from streamsvm.numeric.losses import NO_WEIGHTS
from streamsvm.numeric.rounding import UNIT, add_two, bound_rounding, split_for_float32
from streamsvm.numeric.rows import F32, F64, I32, I64, Rows, unpack

OWN_ROUNDINGS = 8  # units in the last place that the terms of a loss and their last sum can lose


@dataclass
class ExactLosses:
    """Losses at K points as pairs (K, 2); magnitudes (K,): sum_i C_i (|w|.|x_i| + |b| + 1); the number of rows."""

    losses: F64
    magnitudes: F64
    n_rows: int = 0

    def read(self, width: int) -> tuple[F64, F64]:
        """Return the losses (K,), and how far each can be off; width: of the weight vectors."""
        found = self.losses.sum(axis=1)
        pairs = bound_rounding(4.0 * (width + self.n_rows + 4), 1.0) * UNIT  # of the sums in twice the precision
        return found, OWN_ROUNDINGS * UNIT * found + pairs * self.magnitudes


def start_exact(n_points: int) -> ExactLosses:
    """Return the losses of no rows."""
    return ExactLosses(np.zeros((n_points, 2)), np.zeros(n_points))


def make_start(n_points: int) -> partial[ExactLosses]:
    """Return what makes the losses of no rows at so many points."""
    return partial(start_exact, n_points)


def add_exact(totals: ExactLosses, rows: Rows, W: F64, biases: F64, class_costs: F64) -> None:
    """Add rows. W (K, d) and biases (K,): the points; class_costs (2,): C_i of the classes coded 0 and 1."""
    assert rows.y is not None
    weight = NO_WEIGHTS if rows.sample_weight is None else rows.sample_weight
    high, low = split_for_float32(np.ascontiguousarray(W))
    _add_exact(*unpack(rows.X), rows.y, weight, class_costs, high, low, biases, totals.losses, totals.magnitudes)
    totals.n_rows += rows.n_rows


def combine_exact(left: ExactLosses, right: ExactLosses) -> ExactLosses:
    """Return the sum."""
    pairs = [_add_pairs(*a, *b) for a, b in zip(left.losses.tolist(), right.losses.tolist(), strict=True)]
    return ExactLosses(np.array(pairs), left.magnitudes + right.magnitudes, left.n_rows + right.n_rows)


def _add_pairs(a: float, rest_a: float, b: float, rest_b: float) -> tuple[float, float]:
    """Return the sum of two pairs as a pair (TwoSum of Knuth, in Python)."""
    total = a + b
    part = total - a
    rest = (a - (total - part)) + (b - part) + rest_a + rest_b
    return total, rest


@njit(cache=True, nogil=True)
def _add_exact(
    dense: F32, data: F32, indices: I32, indptr: I64, y: I32, weight: F64, class_costs: F64, high: F64, low: F64,
    biases: F64, losses: F64, magnitudes: F64,
) -> None:  # fmt: skip
    sparse = indptr.size > 0
    for i in range(y.size):
        cost = class_costs[y[i]] * (weight[i] if weight.size else 1.0)
        if cost <= 0.0:
            continue
        sign = 1.0 if y[i] == 1 else -1.0
        first, stop = (indptr[i], indptr[i + 1]) if sparse else (0, dense.shape[1])
        for k in range(biases.size):
            u, v = high[k], low[k]
            total, rest, size = biases[k], 0.0, abs(biases[k]) + 1.0
            for e in range(first, stop):
                j = indices[e] if sparse else e
                x = np.float64(data[e] if sparse else dense[i, e])
                product = x * u[j]
                total, lost = add_two(total, product)
                rest += lost + x * v[j]
                size += abs(product)
            slack, lost = add_two(1.0, -sign * total)
            slack += lost - sign * rest
            magnitudes[k] += cost * size
            if slack > 0.0:
                losses[k, 0], lost = add_two(losses[k, 0], cost * slack)
                losses[k, 1] += lost
