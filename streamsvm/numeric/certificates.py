"""The duality gap of a kernel SVM, from its multipliers a and the sums f of all rows.

With w the linear combination of the rows in feature space, the two objectives and their difference are

    f_i = sum_j a_j y_j k(x_i, x_j),   |w|^2 = sum_i a_i y_i f_i,   sum_i y_i a_i = 0
    P(b) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (f_i + b))            for any b
    D    = sum_i a_i - 1/2 |w|^2
    P(b) - D = sum_i [C_i max(0, s_i) - a_i s_i],   s_i = 1 - y_i (f_i + b)      no term is negative

For a regression, a row has two hinges C_i max(0, y_i (c_i - f_i - b)), with the corners c_i (see
methods.decomposition.tube). Then s_i = y_i (c_i - f_i - b), and D = sum_i a_i y_i c_i - 1/2 |w|^2. With c_i = y_i these
are the formulas above.

Each row has a share of the gap, which is zero if its KKT condition holds. `certify` evaluates these formulas as they
stand. `prove` also bounds the effect of rounding, given bounds e_i of the errors of f_i. Rows whose slack is certainly
negative add nothing to that bound, and sums are exactly rounded (math.fsum). Rounding may leave a small
s = sum_i y_i a_i, which costs

    D - |s| |b*|  bounds the optimum,   |b*| <= max |c_i| + |w*| max sqrt(k_ii),   |w*|^2 <= 2 P

The model may be t times w, with t slightly more than 1. The rows on the margin are then certainly beyond it, so that
the error of P is not C times the rounding of their scores. If rounding could exceed P(0), then t is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from streamsvm.numeric.rounding import UNIT, sum_exactly
from streamsvm.numeric.rows import F64, I64

BINS = 4096  # of the corners, in the search for the best bias
LONGEST_STRETCH = 1.001


@dataclass(frozen=True)
class Certificate:
    """The primal objective P at the best bias, the dual objective D, that bias, and each row's share of P - D, (n,)."""

    objective: float
    lower_bound: float
    bias: float
    shares: F64

    @property
    def relative_gap(self) -> float:
        """(P - D) / P. A P below 0, which only an indefinite kernel has, has no relative gap: infinity."""
        if self.objective > 0:
            return (self.objective - self.lower_bound) / self.objective
        return 0.0 if self.objective == 0.0 else math.inf


def certify(
    y: F64, costs: F64, alpha: F64, f: F64, bias: float | None = None, corners: F64 | None = None
) -> Certificate:
    """Evaluate P and D for labels y of -1 or +1, (n,). Without a bias P is minimised over b, in O(n log n)."""
    b = find_best_bias(y, costs, f, corners) if bias is None else bias
    slack = 1.0 - y * (f + b) if corners is None else y * (corners - f - b)
    losses = costs * np.maximum(slack, 0.0)
    half_square = float(alpha @ (y * f)) / 2
    total = float(np.sum(alpha)) if corners is None else float(alpha @ (y * (corners - b)))
    objective, lower_bound = half_square + float(np.sum(losses)), total - half_square
    return Certificate(objective, lower_bound, b, losses - alpha * slack)


@dataclass(frozen=True)
class Proof:
    """Bounds of P and D: each value, how far it can be off, and the model's bias and factor t (`stretch`).

    magnitude: the sum of the magnitudes of the terms of P, which is P if K is positive semidefinite. lost: how far P of
    the unstretched model could be off, if rounding could exceed P(0); otherwise 0.
    """

    objective: float
    objective_error: float
    dual: float
    dual_error: float
    bias: float
    stretch: float
    magnitude: float
    lost: float = 0.0

    @property
    def rounding_bound(self) -> float:
        """The most by which rounding can have moved P - D."""
        return self.objective_error + self.dual_error

    def is_within(self, tol: float) -> bool:
        """Tell whether P - D is certainly at most tol P."""
        return self.objective - self.dual + self.rounding_bound <= tol * self.magnitude


def prove(
    y: F64,
    costs: F64,
    alpha: F64,
    f: F64,
    errors: F64,
    largest: float,
    tol: float,
    is_definite: bool = True,
    corners: F64 | None = None,
) -> Proof:
    """Return the proof by multipliers from 0 to their costs, with a stretch if the gap is within tol only then.

    errors: how far f can be off, (n,). largest: the largest k_ii. is_definite: whether |w|^2 is certainly at least 0.
    corners: (n,), of the hinges of a regression, whose model is never stretched.
    """
    found = _prove_scaled(y, costs, alpha, f, errors, largest, 1.0, is_definite, corners)
    if found.is_within(tol) or corners is not None:
        return found
    stretch = choose_stretch(y, costs, alpha, f, errors, found)
    if found.objective_error > min(float(np.sum(costs[y > 0])), float(np.sum(costs[y < 0]))):
        stretch, found = 0.0, replace(found, lost=found.objective_error)
    if stretch == 1.0:
        return found
    stretched = _prove_scaled(y, costs, alpha, f, errors, largest, stretch, is_definite)
    best = min(found, stretched, key=lambda proof: proof.objective + proof.objective_error)
    dual = max(found, stretched, key=lambda proof: proof.dual - proof.dual_error)
    return replace(best, dual=dual.dual, dual_error=dual.dual_error, lost=found.lost)


def choose_stretch(y: F64, costs: F64, alpha: F64, f: F64, errors: F64, found: Proof) -> float:
    """Return the least factor that puts rows with 0 < a_i < C_i certainly beyond the margin; 1 if there is none."""
    if not found.dual > 0.0:
        return 1.0
    margins = y * (f + found.bias)
    inner = (alpha > 0) & (alpha < costs) & (margins > 1.0 / LONGEST_STRETCH)
    lacking = (1.0 + _bound_slacks(f, errors, found.bias)[inner]) / margins[inner]
    room = float(np.min(costs[inner] / alpha[inner], initial=2.0))
    stretch = min(float(np.max(lacking, initial=1.0)) + 4 * UNIT, room)
    return stretch if 1.0 < stretch < LONGEST_STRETCH else 1.0


def _choose_bias(y: F64, costs: F64, f: F64, corners: F64 | None) -> float:
    """Return the best bias. If only one class has costs, return one that puts its rows well beyond the margin."""
    bias, used = find_best_bias(y, costs, f, corners), y[costs > 0]
    if len(used) and np.all(used == used[0]):
        corners = (y - f)[costs > 0]
        bias = float(used[0] * (np.max(used[0] * corners) + 1.0 + np.max(np.abs(corners)) / 2))
    return bias


def _bound_slacks(f: F64, errors: F64, bias: float, corners: F64 | None = None) -> F64:
    """Return how far 1 - y (f + b) can be off, and a little more for a stretch."""
    size = 1.0 if corners is None else np.abs(corners)
    bound: F64 = 1.25 * errors + 4 * UNIT * (size + np.abs(f) + abs(bias))
    return bound


def _prove_scaled(
    y: F64,
    costs: F64,
    alpha: F64,
    f: F64,
    errors: F64,
    largest: float,
    stretch: float,
    is_definite: bool,
    corners: F64 | None = None,
) -> Proof:
    """Return the proof by multipliers and `stretch` times their model, whose coefficients are then rounded, too."""
    if stretch not in (0.0, 1.0):
        errors = errors + UNIT * largest * float(np.sum(alpha))
    f_model = stretch * f
    bias = _choose_bias(y, costs, f_model, corners)
    slack = 1.0 - y * (f_model + bias) if corners is None else y * (corners - f_model - bias)
    own = _bound_slacks(f_model, min(stretch, 1.0) * errors, bias, corners)
    losing, support = np.flatnonzero((slack + own > 0.0) & (costs > 0.0)), np.flatnonzero(alpha)
    losses = costs[losing] * np.maximum(slack[losing], 0.0)
    loss = sum_exactly(losses)
    loss_error = float(np.sum(costs[losing] * np.minimum(own, slack + own)[losing])) + 2 * UNIT * loss
    a, sums = alpha[support], (y * f)[support]
    # the corners are counted from the bias: what that changes in the sum is charged with the imbalance
    gains, farthest = (a, 1.0) if corners is None else (a * (y * (corners - bias))[support], _find_size(corners, bias))
    square, total = sum_exactly(a * sums), sum_exactly(gains)
    square = max(square, 0.0) if is_definite else square
    lacking = abs(sum_exactly(a * y[support]))
    square_error = 1.01 * float(a @ (errors[support] + 2 * UNIT * np.abs(sums)))
    scale = stretch * stretch / 2
    objective = scale * square + loss
    objective_error = 1.01 * (scale * square_error + loss_error) + 4 * UNIT * (abs(scale * square) + loss)
    of_bias = farthest + math.sqrt(max(0.0, 2 * (objective + objective_error) * largest)) if lacking else 0.0
    size = total if corners is None else 3 * float(a @ (np.abs(corners[support]) + abs(bias)))
    dual_error = square_error / 2 + 1.01 * lacking * of_bias + 2 * UNIT * (size + abs(square))
    return Proof(objective, objective_error, total - square / 2, dual_error, bias, stretch, abs(scale * square) + loss)


def _find_size(corners: F64, bias: float) -> float:
    """Return a bound of |c_i| + |b|, which is at least 1."""
    return 1.0 + float(np.max(np.abs(corners))) + abs(bias)


def find_best_bias(y: F64, costs: F64, f: F64, corners: F64 | None = None, slope: float = 0.0) -> float:
    """Return the middle of all b that minimise slope b + sum_i C_i max(0, 1 - y_i (f_i + b)).

    The sum is convex and piecewise linear, and its slope grows by C_i at the corner y_i - f_i. Only the corners near
    the minimum are sorted.
    """
    corners = (y if corners is None else corners) - f
    size = float(np.finfo(float).eps * len(y) * np.sum(costs))
    low, width = float(corners.min()), float(np.ptp(corners)) / BINS
    lowest = slope - float(np.sum(costs, where=y > 0))
    bins, first, last, before = _find_near(corners, costs, low, width, lowest, 2 * size)
    near = np.flatnonzero((bins >= first) & (bins <= last))
    order = near[np.argsort(corners[near], kind="stable")]
    slopes = before + np.cumsum(costs[order])  # the slope after each corner
    first = min(int(np.searchsorted(slopes, -size)), len(order) - 1)
    last = min(int(np.searchsorted(slopes, size, side="right")), len(order) - 1)
    return float(corners[order[first]] + corners[order[last]]) / 2


@njit(cache=True, nogil=True)
def _find_near(
    corners: F64, costs: F64, low: float, width: float, slope: float, size: float
) -> tuple[I64, int, int, float]:
    """Return the bin of each corner, the first and last bin with a slope from -size to size, and the slope before.

    The bins have equal widths and begin at the lowest corner, before which the slope is `slope`.
    """
    bins, sums = np.empty(corners.size, np.int64), np.zeros(BINS)
    for i in range(corners.size):
        place = (corners[i] - low) / width if width > 0 else 0.0
        bins[i] = int(place) if place < BINS else BINS - 1
        sums[bins[i]] += costs[i]
    first = 0
    while first < BINS - 1 and slope + sums[first] < -size:
        slope += sums[first]
        first += 1
    last, after = first, slope + sums[first]
    while last < BINS - 1 and after <= size:
        last += 1
        after += sums[last]
    return bins, first, last, slope
