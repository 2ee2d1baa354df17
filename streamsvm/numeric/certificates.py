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
from numba import njit

from streamsvm.numeric.rows import F64, I64

BINS = 4096


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

    The sum is convex and piecewise linear with corners y_i - f_i, where its slope grows by C_i. Only the corners near
    the least value are put in order.
    """
    corners = y - f
    size = float(np.finfo(float).eps * len(y) * np.sum(costs))
    near, before = _find_near(corners, costs, -float(np.sum(costs, where=y > 0)), 2 * size)
    order = near[np.argsort(corners[near], kind="stable")]
    slope = before + np.cumsum(costs[order])  # after each corner
    first = min(int(np.searchsorted(slope, -size)), len(order) - 1)
    last = min(int(np.searchsorted(slope, size, side="right")), len(order) - 1)
    return float(corners[order[first]] + corners[order[last]]) / 2


@njit(cache=True, nogil=True)
def _find_near(corners: F64, costs: F64, slope: float, size: float) -> tuple[I64, float]:
    """Return the corners between which the slope goes from -size to size, and some more; and the slope before them.

    Corners are counted in bins of equal width, and all of a bin returned. slope: before all corners.
    """
    low, width = corners.min(), (corners.max() - corners.min()) / BINS
    bins, sums = np.full(corners.size, BINS - 1), np.zeros(BINS)
    for i in range(corners.size):
        place = (corners[i] - low) / width if width > 0 else 0.0
        if place < BINS:
            bins[i] = int(place)
        sums[bins[i]] += costs[i]
    first = 0
    while first < BINS - 1 and slope + sums[first] < -size:
        slope += sums[first]
        first += 1
    last, after = first, slope + sums[first]
    while last < BINS - 1 and after <= size:
        last += 1
        after += sums[last]
    return np.flatnonzero((bins >= first) & (bins <= last)), slope
