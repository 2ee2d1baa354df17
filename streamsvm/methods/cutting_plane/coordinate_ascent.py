"""Dual coordinate ascent on rows in memory: Hsieh, Chang, Lin, Keerthi & Sundararajan 2008, Algorithm 1.

    D(c) = sum_i C_i c_i - 1/2 |w|^2,   w = sum_i C_i c_i y_i x_i + fixed,   0 <= c_i <= 1

x_i is a row with its label y_i and cost C_i; c_i is the row's share, and C_i c_i its multiplier alpha_i in the paper.
`fixed` is the part of w that comes from all other rows. An epoch visits the rows in random order and sets each c_i to
its optimum with all other shares fixed: c_i + (1 - y_i w.x_i) / (C_i |x_i|^2), clipped to [0, 1]. A row is left out of
further epochs (shrinking, section 3.2 of the paper) if its c_i is at a bound and the slope that holds it there is
larger than the largest violation of the epoch before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import register_jitable

from streamsvm import interrupts
from streamsvm.numeric.kernels import compute_squares
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F32, F64, I32, I64, Rows, compute_scores, split


@register_jitable
def _dot(values: F32, indices: I32, indptr: I64, i: int, w: F64) -> float:
    total = 0.0
    if values.ndim == 1:
        for e in range(indptr[i], indptr[i + 1]):
            total += values[e] * w[np.uint32(indices[e])]
    else:
        x = values[i]
        for j in range(x.size):
            total += x[j] * w[j]
    return total


@register_jitable
def _add_row(values: F32, indices: I32, indptr: I64, i: int, coef: float, w: F64) -> None:
    if values.ndim == 1:
        for e in range(indptr[i], indptr[i + 1]):
            w[np.uint32(indices[e])] += coef * values[e]
    else:
        x = values[i]
        for j in range(x.size):
            w[j] += coef * x[j]


@njit(cache=True, nogil=True)
def _visit(
    values: F32,
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
    """Visit the rows of `order`, and move the rows that are not left out to its front.

    Return the duality gap, whose terms are taken as the rows are visited, the largest violation, and the number of rows
    that are not left out. w (d+1,) and share (n,) change in place. limit: the largest violation of the epoch before.
    """
    gap, worst, n = 0.0, 0.0, 0
    for k in range(order.size):
        i = order[k]
        slope = 1.0 - y[i] * (_dot(values, indices, indptr, i, w) + w[-1] * bias_feature)
        gap += costs[i] * (max(slope, 0.0) - share[i] * slope)
        if (share[i] <= 0.0 and slope < -limit) or (share[i] >= 1.0 and slope > limit):
            continue
        order[n] = i
        n += 1
        after = min(max(share[i] + slope / (costs[i] * squares[i]), 0.0), 1.0)
        if after != share[i]:
            worst = max(worst, abs(slope))
            coef = (after - share[i]) * costs[i] * y[i]
            _add_row(values, indices, indptr, i, coef, w)
            w[-1] += coef * bias_feature
            share[i] = after
    return gap, worst, n


@dataclass
class Part:
    """Rows in memory that the ascent visits one after another, and their shares c (n,), which it changes in place.

    y, costs, squares (n,): labels, C_i and |x_i|^2, the constant feature included; order: the rows that the ascent
    still visits.
    """

    rows: Rows
    share: F64
    y: npt.NDArray[Any]
    costs: F64
    squares: F64
    order: I64

    @property
    def gain(self) -> float:
        """The rows' part of the linear term of D: sum C_i c_i."""
        return float(self.costs @ self.share)

    def visit(self, bias_feature: float, w: F64, limit: float) -> tuple[float, float, int]:
        """Visit the rows in their order, as `_visit` does."""
        arrays = self.y, self.costs, self.squares, bias_feature, self.order, w, self.share
        found: tuple[float, float, int] = _visit(*split(self.rows.X), *arrays, limit)
        return found

    def find_distances(self, bias_feature: float, w: F64) -> tuple[F64, npt.NDArray[np.bool_]]:
        """Return |1 - y_i w.x_i|, (n,), and whether the share of the row may move both ways, (n,)."""
        scores = compute_scores(self.rows.X, np.ascontiguousarray(w[None, :-1]))[:, 0] + w[-1] * bias_feature
        return np.abs(1.0 - self.y * scores), (self.share > 0.0) & (self.share < 1.0)

    def start_over(self) -> None:
        """Let the ascent visit all rows again that can move."""
        self.order = np.flatnonzero(self.costs * self.squares > 0.0)


def make_part(rows: Rows, class_costs: F64, bias_feature: float, share: F64) -> Part:
    """Return these rows with a copy of their shares."""
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    squares = compute_squares(rows.X).astype(np.float64) + bias_feature**2
    part = Part(rows, share.copy(), y, costs, squares, np.empty(0, np.int64))
    part.start_over()
    return part


def ascend(
    parts: Sequence[Part],
    bias_feature: float,
    w: F64,
    others: float,
    wanted: float,
    tol: float,
    epochs: int,
    seed: tuple[int, ...],
) -> F64:
    """Improve the shares of the rows of all parts, while the shares of all other rows are fixed; return w.

    The ascent ends when these rows' part of the duality gap is at most `wanted` or tol * D, or after `epochs` epochs.
    w (d+1,): its last entry is the weight of the constant feature, or weights of another shape that the parts take;
    others: sum C_i c_i of the other rows.
    """
    w, rng, limit = w.copy(), np.random.default_rng(seed), np.inf
    whole = [len(part.order) for part in parts]
    for _ in range(epochs):
        interrupts.check()
        is_whole, gap, worst = [len(part.order) for part in parts] == whole, 0.0, 0.0
        for part in parts:
            rng.shuffle(part.order)
            own_gap, own_worst, n = part.visit(bias_feature, w, limit)
            gap, worst, part.order = gap + own_gap, max(worst, own_worst), part.order[:n]
        limit = worst
        inside = sum(part.gain for part in parts)
        if gap <= max(wanted, tol * (others + inside - float(np.vdot(w, w)) / 2)):
            if is_whole:
                break
            for part in parts:
                part.start_over()  # the rows that were left out may have to move after all
            limit = np.inf
    return w
