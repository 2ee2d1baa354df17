"""The duality gap of a kernel SVM, from the multipliers and the sums f of all rows.

The linear combination w of rows, its length, both objectives and their difference:

    f_i = sum_j a_j y_j k(x_i, x_j),   |w|^2 = sum_i a_i y_i f_i,   sum_i y_i a_i = 0
    P(b) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (f_i + b))            for any b, w a combination of rows
    D    = sum_i a_i - 1/2 |w|^2
    P(b) - D = sum_i [C_i max(0, s_i) - a_i s_i],   s_i = 1 - y_i (f_i + b)      no term is negative

Each row has a share of the gap, which is zero where its KKT condition holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.numeric.rows import F64


@dataclass(frozen=True)
class Certificate:
    """P at the best bias, D, that bias, and each row's share of P - D, (n,)."""

    objective: float
    lower_bound: float
    bias: float
    shares: F64

    @property
    def relative_gap(self) -> float:
        """(P - D) / P."""
        return (self.objective - self.lower_bound) / self.objective if self.objective > 0 else 0.0


def certify(y: F64, costs: F64, alpha: F64, f: F64, bias: float | None = None) -> Certificate:
    """Evaluate P and D; y (n,) -1 or +1. Without a bias, P is minimised over b: O(n log n)."""
    b = find_best_bias(y, costs, f) if bias is None else bias
    slack = 1.0 - y * (f + b)
    losses = costs * np.maximum(slack, 0.0)
    half_square = float(alpha @ (y * f)) / 2
    objective, lower_bound = half_square + float(np.sum(losses)), float(np.sum(alpha)) - half_square
    return Certificate(objective, lower_bound, b, losses - alpha * slack)


def find_best_bias(y: F64, costs: F64, f: F64) -> float:
    """Return a b that minimises sum_i C_i max(0, 1 - y_i (f_i + b)): the middle of all of them.

    The sum is convex and piecewise linear with corners y_i - f_i, where its slope grows by C_i.
    """
    corners = y - f
    order = np.argsort(corners, kind="stable")
    slope = np.cumsum(costs[order]) - np.sum(costs, where=y > 0)  # after each corner
    size = np.finfo(float).eps * len(y) * np.sum(costs)
    first = min(int(np.searchsorted(slope, -size)), len(y) - 1)
    last = min(int(np.searchsorted(slope, size, side="right")), len(y) - 1)
    return float(corners[order[first]] + corners[order[last]]) / 2
