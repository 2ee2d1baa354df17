"""Dual coordinate ascent on rows in memory: Hsieh, Chang, Lin, Keerthi & Sundararajan 2008, Algorithm 1.

    D(c) = sum_i C_i c_i - 1/2 |w|^2,   w = sum_i C_i c_i y_i x_i + fixed,   0 <= c_i <= 1

x_i is a row with label y_i and cost C_i; c_i is the row's share, and C_i c_i is its multiplier, alpha_i in the paper.
`fixed` is the contribution of all other rows to w. An epoch visits the rows in random order and sets each c_i to its
optimum with all other shares fixed: c_i + (1 - y_i w.x_i) / (C_i |x_i|^2), clipped to [0, 1]. A row is skipped in
further epochs (shrinking, section 3.2 of the paper) if its c_i is at a bound and the slope that holds it there is
larger than the largest violation of the previous epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.kernels.kernel import compute_squares
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F32, F64, I32, I64, REORDERED_SUMS, U32, Flags, Rows, prefetch, score_rows, split
from streamsvm.system import deadline, interrupts

AHEAD = 4  # number of visits between the prefetch of a row and its own visit
LINE = 16  # numbers of 4 bytes in a cache line
MOST_LINES = 16  # cache lines of a row to prefetch: the processor prefetches the rest
COST, STEP, SHARE = 0, 1, 2  # columns of `Part.own`
LEAST_EPOCHS = 3  # epochs before the ascent can count as slow
MEAN_EPOCHS = 4  # the mean of w covers about this many of the last epochs
LOOK_BACK = 8  # the number of epochs whose mean rate of progress predicts the further epochs
LONGEST = float(np.finfo(np.float64).max)


@register_jitable(fastmath=REORDERED_SUMS)
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


@register_jitable
def _fetch_row(values: F32, indices: I32, indptr: I64, i: int) -> None:
    if values.ndim == 1:
        start = indptr[i]
        for e in range(start, min(indptr[i + 1], start + MOST_LINES * LINE), LINE):
            prefetch(values, e)
            prefetch(indices, e)
    else:
        start = i * values.shape[1]
        for e in range(start, start + min(values.shape[1], MOST_LINES * LINE), LINE):
            prefetch(values, e)


@register_jitable
def _draw(order: I64, draws: U32, k: int) -> int:
    """Move a random row of order[k:] to position k and return it (Fisher-Yates shuffle)."""
    other = k + np.int64((np.uint64(draws[k]) * np.uint64(order.size - k)) >> np.uint64(32))
    order[k], order[other] = order[other], order[k]
    return int(order[k])


@njit(cache=True, nogil=True)
def _visit(
    values: F32, indices: I32, indptr: I64, own: F64, order: I64, draws: U32, w: F64, bias_feature: float, limit: float
) -> tuple[float, float, float, int]:
    """Visit the rows of `order` in random order, and move the rows that remain active to the front of `order`.

    Return the duality gap, the change of sum C_i c_i, the largest violation, and the number of rows that remain active.
    Each row's term of the gap is computed with the w at the time of its visit. w (d+1,) and the shares in `own` change
    in place. draws (n,): random numbers. limit: the largest violation of the previous epoch.
    """
    gap, gained, worst, n = 0.0, 0.0, 0.0, 0
    for k in range(-2 * AHEAD, order.size):
        if k + 2 * AHEAD < order.size:
            i = _draw(order, draws, k + 2 * AHEAD)
            prefetch(own, 4 * i)
            if values.ndim == 1:
                prefetch(indptr, i)
        if 0 <= k + AHEAD < order.size:
            _fetch_row(values, indices, indptr, order[k + AHEAD])
        if k < 0:
            continue
        i = order[k]
        cost, share = abs(own[i, COST]), own[i, SHARE]
        y = 1.0 if own[i, COST] > 0.0 else -1.0
        slope = 1.0 - y * (_dot(values, indices, indptr, i, w) + w[-1] * bias_feature)
        gap += cost * (max(slope, 0.0) - share * slope)
        if (share <= 0.0 and slope < -limit) or (share >= 1.0 and slope > limit):
            continue
        order[n] = i
        n += 1
        after = min(max(share + slope * own[i, STEP], 0.0), 1.0)
        if after != share:
            worst = max(worst, abs(slope))
            coef = (after - share) * own[i, COST]
            _add_row(values, indices, indptr, i, coef, w)
            w[-1] += coef * bias_feature
            gained += (after - share) * cost
            own[i, SHARE] = after
    return gap, gained, worst, n


class Visit(NamedTuple):
    """The results of a visit of rows, as `_visit` returns them.

    gap: the duality gap. gained: the change of sum C_i c_i. worst: the largest violation. n_left: the number of rows
    that remain active.
    """

    gap: float
    gained: float
    worst: float
    n_left: int


class AscentRows(Protocol):
    """The interface of rows in memory that the ascent requires: see `Part`."""

    rows: Rows
    order: I64

    @property
    def costs(self) -> F64:
        """The costs C_i, (n,)."""

    @property
    def share(self) -> F64:
        """The shares, with rows along the first axis."""

    @property
    def gain(self) -> float:
        """The contribution of the rows to the linear term of D."""

    def start_over(self) -> None:
        """Reset `order` to all rows whose shares can change."""

    def visit(self, draws: U32, bias_feature: float, w: F64, limit: float) -> Visit:
        """Visit the rows of `order` in random order; w and the shares change in place."""

    def find_distances(self, bias_feature: float, w: F64) -> tuple[F64, Flags]:
        """Return each row's distance from the margin, (n,), and whether its share may move both ways, (n,)."""


@dataclass
class Part:
    """Rows in memory that the ascent visits one after another.

    own (n, 4): four adjacent numbers per row, which share a cache line: y_i C_i; the step 1 / (C_i |x_i|^2) of c_i for
    a slope of 1; c_i, which changes in place; and an unused entry. |x_i|^2 includes the constant feature. order: the
    rows that the ascent still visits.
    """

    rows: Rows
    own: F64
    order: I64

    @property
    def costs(self) -> F64:
        """The costs C_i, (n,)."""
        return np.abs(self.own[:, COST])

    @property
    def share(self) -> F64:
        """The shares c_i, (n,)."""
        return self.own[:, SHARE]

    @property
    def gain(self) -> float:
        """The contribution of the rows to the linear term of D: sum C_i c_i."""
        return float(self.costs @ self.share)

    def start_over(self) -> None:
        """Reset `order` to all rows whose shares can change."""
        self.order = np.flatnonzero(self.own[:, STEP] > 0.0)

    def visit(self, draws: U32, bias_feature: float, w: F64, limit: float) -> Visit:
        """Visit the rows of `order`, as `_visit` does."""
        return Visit(*_visit(*split(self.rows.X), self.own, self.order, draws, w, bias_feature, limit))

    def find_distances(self, bias_feature: float, w: F64) -> tuple[F64, Flags]:
        """Return |1 - y_i w.x_i|, (n,), and whether the share of each row may move both ways, (n,)."""
        y = np.where(self.own[:, COST] < 0.0, -1.0, 1.0)  # +1 for rows without a cost
        return np.abs(1.0 - y * score_rows(self.rows.X, w, bias_feature)), (self.share > 0.0) & (self.share < 1.0)


def make_part(rows: Rows, class_costs: F64, bias_feature: float, share: F64) -> Part:
    """Return the part with these rows and a copy of their shares."""
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    curvature = costs * (compute_squares(rows.X).astype(np.float64) + bias_feature**2)
    own = np.zeros((rows.n_rows, 4))
    own[:, COST], own[:, SHARE] = y * costs, share
    with np.errstate(divide="ignore", over="ignore"):  # an infinite step times a slope of 0 would be NaN
        own[:, STEP] = np.where(curvature > 0.0, np.minimum(1.0 / curvature, LONGEST), 0.0)
    part = Part(rows, own, np.empty(0, np.int64))
    part.start_over()
    return part


class Ascent(NamedTuple):
    """The result of an ascent.

    w: the weight vector of the shares. mean: the mean of w over the last epochs, which has a lower P; it is computed
    only for an ascent that does not visit shrunk rows again. is_enough: whether the gap is small enough. epochs: the
    number of epochs.
    """

    w: F64
    mean: F64
    is_enough: bool
    epochs: int


def ascend(
    parts: Sequence[AscentRows],
    bias_feature: float,
    w: F64,
    wanted: float,
    tol: float,
    epochs: int,
    seed: tuple[int, ...],
    patience: float = np.inf,
    tries_all: bool = True,
) -> Ascent:
    """Improve the shares of the rows in all parts, with the shares of all other rows fixed.

    The ascent ends when these rows' part of the duality gap is at most `wanted` or, if no other row has a share, at
    most tol * D. It also ends after `epochs` epochs, or when the remaining epochs are expected to visit more rows than
    `patience` epochs over all rows would. w (d+1,): weights with the weight of the constant feature last, or weights of
    another shape that the parts accept. tries_all: whether shrunk rows must be visited again before the gap counts as
    small enough.
    """
    w, mean, rng, limit = w.copy(), w.copy(), np.random.default_rng(seed), np.inf
    whole = [len(part.order) for part in parts]
    cost = sum(part.gain for part in parts)
    gaps: list[float] = []
    for _ in range(epochs):
        interrupts.check()
        is_whole, gap, worst = [len(part.order) for part in parts] == whole, 0.0, 0.0
        for part in parts:
            draws = rng.integers(0, 1 << 32, len(part.order), np.uint32)
            seen = part.visit(draws, bias_feature, w, limit)
            gap, cost, worst = gap + seen.gap, cost + seen.gained, max(worst, seen.worst)
            part.order = part.order[: seen.n_left]
        limit, enough = worst, max(wanted, tol * (cost - float(np.vdot(w, w)) / 2)) if tol > 0.0 else wanted
        if not tries_all:
            mean += (w - mean) / min(len(gaps) + 1, MEAN_EPOCHS)
        gaps.append(gap)
        visits = _count_epochs(gaps, enough) * sum(len(part.order) for part in parts)
        if visits > patience * sum(whole) or deadline.is_over():
            break
        if gap <= enough:
            if is_whole or not tries_all:
                return Ascent(w, mean, True, len(gaps))
            for part in parts:
                part.start_over()  # shrunk rows may have to move after all
            limit = np.inf
    return Ascent(w, mean, False, len(gaps))


def _count_epochs(gaps: list[float], enough: float) -> float:
    """Predict from the last LOOK_BACK epochs how many further epochs the gap needs to become small enough."""
    gap, before = gaps[-1], gaps[-1 - min(LOOK_BACK, len(gaps) - 1)]
    if len(gaps) <= LEAST_EPOCHS or gap <= enough:
        return 0.0
    if gap >= before or enough <= 0.0:
        return np.inf
    return float(np.log(gap / enough) / np.log(before / gap)) * min(LOOK_BACK, len(gaps) - 1)
