"""What an interior-point iterate proves, rounding included: P at the best bias, and D at a feasible multiple of alpha.

    P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, s_i),   s_i = 1 - y_i (f_i + b),   f = X w
    D(c)    = 2 c l - c^2 / 2 |v|^2,   v = l / l_+ sum_{y_i > 0} alpha_i x_i - l / l_- sum_{y_i < 0} alpha_i x_i

with l_+ and l_- the sums of alpha over either class, and l the smaller one of them. Every bound is gamma_n times a sum
of magnitudes (numeric.rounding). Those of X are known by feature: sum_i C_i |x_ij|, and the largest |x_ij|.

    |s_i - fl(s_i)| <= gamma (sum_j |w_j| |x_ij| + |b| + 1),   |v_j - fl(v_j)| <= gamma sum_i alpha_i |x_ij|

A row whose computed s_i is so far below 0 that no rounding explains it has no loss at all. So the loss is known to
within the bound of one row, times the costs of the rows that are left, or to within the bounds of all rows together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.methods.interior_point.steps import unwarned
from streamsvm.numeric.certificates import find_best_bias
from streamsvm.numeric.exact_losses import ExactLosses
from streamsvm.numeric.exact_sums import ExactSums
from streamsvm.numeric.rounding import UNIT, bound_rounding
from streamsvm.numeric.rows import F64

IN_PAIRS = 64  # additions that a term of np.sum goes through at most: blocks of 128 by eight sums, then in pairs
FEW = 8  # roundings of the terms themselves
LEAST = 5e-324  # by which a product can be off besides, where it is smaller than all normal numbers
LENGTHS = (0.0, 2.0**-48, 2.0**-36)  # how much longer the points of an exact pass are, beside one that depends on tol


@dataclass(frozen=True)
class Magnitudes:
    """Of the rows that cost: sums (d,) sum_i C_i |x_ij|; largest (d,) the largest |x_ij|."""

    sums: F64
    largest: F64


@dataclass(frozen=True)
class Primal:
    """A point and its P; rounding: the most by which this P can be off."""

    w: F64
    bias: float
    objective: float
    rounding: float


@dataclass(frozen=True)
class Dual:
    """A lower bound that holds whatever was rounded; what D would be had nothing been rounded.

    The difference is what rounding costs: it makes D smaller, and the multiple of alpha that is safe as well.
    """

    bound: float
    computed: float

    @property
    def rounding(self) -> float:
        """What rounding costs."""
        return self.computed - self.bound


def gamma(n_terms: int) -> float:
    """Return gamma_n."""
    return bound_rounding(n_terms, 1.0)


@unwarned
def find_primal(w: F64, f: F64, y: F64, costs: F64, magnitudes: Magnitudes) -> Primal:
    """Return P at the bias that is best for w; f = X w, a sum of products for each row."""
    bias = find_best_bias(y, costs, f)
    slack = 1.0 - y * (f + bias)
    losses, half_square = float(np.sum(costs * np.maximum(slack, 0.0))), float(w @ w) / 2
    rounding = gamma(IN_PAIRS + FEW) * losses
    if w.any():  # else f is 0, and s is as exact as a number can be
        rounding += _bound_slacks(w, abs(bias) + 1.0, slack, costs, magnitudes) + gamma(len(w) + FEW) * half_square
        rounding += (len(f) + len(w)) * LEAST
    return Primal(w, bias, half_square + losses, rounding)


def _bound_slacks(w: F64, offset: float, slack: F64, costs: F64, magnitudes: Magnitudes) -> float:
    """Return how far sum C max(0, s) can be off because s is; offset: |b| + 1."""
    size, share = np.abs(w), gamma(len(w) + FEW)
    of_a_row = share * (float(size @ magnitudes.largest) + offset)
    of_all = share * (float(size @ magnitudes.sums) + offset * float(np.sum(costs)))
    return min(of_all, of_a_row * float(np.sum(costs, where=slack > -of_a_row)))


@unwarned
def find_lower_bound(sums: F64, y: F64, alpha: F64, most: float, magnitudes: Magnitudes, depth: int) -> Dual:
    """Return D at a feasible multiple of alpha (n,), 0 <= alpha <= most C.

    sums (2, d): sum alpha_i x_i of the classes +1 and -1, each term of which went through `depth` additions. The
    heavier class's multipliers are made smaller in proportion, for y'alpha = 0; then D is maximised over c alpha.
    """
    up, down = (float(np.sum(np.where(side, alpha, 0.0))) for side in (y > 0, y < 0))
    lighter = min(up, down)
    if lighter <= 0:
        return Dual(0.0, 0.0)
    v = lighter / up * sums[0] - lighter / down * sums[1]
    missed = gamma(depth + 2 * IN_PAIRS + FEW) * _bound_sums(2 * lighter, most, magnitudes)
    return _maximise(v, 2 * lighter, most, missed)


@unwarned
def find_exact_lower_bound(sums: ExactSums, most: float, magnitudes: Magnitudes, corrections: float = 0.0) -> Dual:
    """Return the same, of sums in twice the precision; corrections: sum of the magnitudes that were added to alpha."""
    lighter, v = sums.balance()
    terms = _bound_sums(2 * lighter, most, magnitudes) + 2 * corrections * magnitudes.largest
    return _maximise(v, 2 * lighter, most, sums.share * terms)


def _bound_sums(total: float, most: float, magnitudes: Magnitudes) -> F64:
    """Return bounds (d,) of sum alpha_i |x_ij|, where alpha_i <= most C_i are `total` in all."""
    bounds: F64 = np.minimum(most * magnitudes.sums, total * magnitudes.largest)
    return bounds


def _maximise(v: F64, total: float, most: float, missed: F64) -> Dual:
    """Return the largest D(c), 0 <= c <= 1 / most, less its rounding; missed: how far off v can be."""
    peak, share = float(np.max(np.abs(v) + missed)), gamma(2 * IN_PAIRS + FEW)
    if peak == 0.0:
        return Dual((1.0 - share) * total / most, total / most)
    length, computed = (np.abs(v) + missed) / peak, v / peak  # |v|^2 itself may be larger than any number
    square = float(length @ length) * (1.0 + gamma(len(v) + FEW))
    bound, multiple = _choose_multiple(square, peak, total, most)
    return Dual(bound - share * multiple * total, _choose_multiple(float(computed @ computed), peak, total, most)[0])


def _choose_multiple(square: float, peak: float, total: float, most: float) -> tuple[float, float]:
    """Return the largest c total - (c peak)^2 / 2 square, and c <= 1 / most."""
    multiple = min(1.0 / most, total / peak / square / peak) if square > 0 else 1.0 / most
    short = multiple * peak
    return multiple * total - short * short / 2 * square, multiple


def lengthen(point: Primal, tol: float) -> tuple[F64, F64]:
    """Return w (K, d) and biases (K,) of the point, and of the same made longer: |w|^2 grows by tol / 8 at most."""
    lengths = 1.0 + np.array([*LENGTHS, tol / 16])
    return lengths[:, None] * point.w, lengths * point.bias


@unwarned
def choose_exact(W: F64, biases: F64, totals: ExactLosses) -> Primal:
    """Return the best of the points whose losses were found in twice the precision."""
    losses, missed = totals.read(W.shape[1])
    half_squares = np.sum(W * W, axis=1) / 2
    objectives = half_squares + losses
    missed = missed + gamma(W.shape[1] + FEW) * half_squares + UNIT * objectives
    best = int(np.argmin(objectives + missed))
    return Primal(W[best].copy(), float(biases[best]), float(objectives[best]), float(missed[best]))
