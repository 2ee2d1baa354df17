"""Bounds of P and D that an interior-point iterate proves, with all rounding errors included.

    P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, s_i),   s_i = 1 - y_i (f_i + b),   f = X w
    D(c)    = 2 c l - c^2 / 2 |v|^2,   v = l / l_+ sum_{y_i > 0} alpha_i x_i - l / l_- sum_{y_i < 0} alpha_i x_i

P and D are the primal and dual objectives (2.11) and (2.14) of Jung, O'Leary & Tits 2008, whose tau_i is C_i. P is
taken at the bias that is best for w. D is taken at a feasible point made from alpha: l_+ and l_- are the sums of alpha
over the two classes, and l is the smaller sum. The multipliers of the heavier class are scaled down to the sum l, so
that y'alpha = 0 holds, and c then scales the multipliers of both classes.

Every bound of a rounding error is gamma_n times a sum of magnitudes (numeric.rounding). The magnitudes of X are known
for each feature: sum_i C_i |x_ij|, and the largest |x_ij|.

    |s_i - fl(s_i)| <= gamma (sum_j |w_j| |x_ij| + |b| + 1),   |v_j - fl(v_j)| <= gamma sum_i alpha_i |x_ij|

A row whose computed s_i is so far below 0 that no rounding explains it has no loss at all. So the error of the loss
has two bounds, and the smaller one holds: the worst row's bound times the costs of all other rows, or the sum of the
bounds of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.methods.interior_point.row_passes import Measures
from streamsvm.methods.interior_point.steps import unwarned
from streamsvm.numeric.exact_losses import ExactLosses
from streamsvm.numeric.exact_sums import ExactSums
from streamsvm.numeric.rounding import UNIT, bound_rounding
from streamsvm.numeric.rows import F64

IN_PAIRS = 64  # A term of np.sum goes through fewer additions: blocks of 128 in eight sums, which are added in pairs.
FEW = 8  # No term goes through more roundings before it is added.
LEAST = 5e-324  # A product below the smallest normal number can be off by this much more.
LENGTHS = (0.0, 2.0**-48, 2.0**-36)  # An exact pass measures w made longer by these shares, and by one that tol gives.


@dataclass(frozen=True)
class Magnitudes:
    """Magnitudes of the features over all rows whose cost is positive.

    sums (d,): sum_i C_i |x_ij|. largest (d,): the largest |x_ij|.
    """

    sums: F64
    largest: F64


@dataclass(frozen=True)
class Primal:
    """A point (w, bias) and its objective P, which is off by `rounding` at most."""

    w: F64
    bias: float
    objective: float
    rounding: float


@dataclass(frozen=True)
class Dual:
    """A lower bound of the optimum that holds whatever was rounded, and the D that was computed.

    `bound` is below `computed` for two reasons: the rounding error is taken off D, and the multiple of alpha is chosen
    for a |v| that is as large as rounding allows.
    """

    bound: float
    computed: float

    @property
    def rounding(self) -> float:
        """How much the bound lost to rounding."""
        return self.computed - self.bound


def gamma(n_terms: int) -> float:
    """Return gamma_n of numeric.rounding."""
    return bound_rounding(n_terms, 1.0)


@unwarned
def bound_slack(w: F64, bias: float, magnitudes: Magnitudes) -> float:
    """Return how far 1 - y (f + b) of a row can be off; f is X w as it was computed."""
    return _slack_share(w) * (float(np.abs(w) @ magnitudes.largest) + abs(bias) + 1.0)


@unwarned
def find_primal(
    w: F64, bias: float, measures: Measures, total_cost: float, n_rows: int, magnitudes: Magnitudes
) -> Primal:
    """Return P at this bias, and a bound of its rounding. measures: found at this bias and `bound_slack`."""
    losses, half_square = measures.losses, float(w @ w) / 2
    rounding = gamma(IN_PAIRS + measures.additions + FEW) * losses
    if w.any():  # If w is 0, f is 0 too, and s has no rounding of its own.
        of_all = _slack_share(w) * (float(np.abs(w) @ magnitudes.sums) + (abs(bias) + 1.0) * total_cost)
        rounding += min(of_all, bound_slack(w, bias, magnitudes) * measures.losing)
        rounding += gamma(len(w) + FEW) * half_square + (n_rows + len(w)) * LEAST
    return Primal(w, bias, half_square + losses, rounding)


def _slack_share(w: F64) -> float:
    return gamma(len(w) + FEW)


@unwarned
def find_lower_bound(sums: F64, ones: F64, most: float, magnitudes: Magnitudes, depth: int, additions: int = 0) -> Dual:
    """Return D at a feasible point made from alpha (n,), where 0 <= alpha <= most C.

    sums (2, d), ones (2,): sum alpha_i x_i and sum alpha_i of the classes +1 and -1. Every term of `sums` went through
    `depth` additions; those of `ones` were added by np.sum, and its results `additions` times. The multipliers of the
    heavier class are scaled down until y'alpha = 0; then D is maximised over the multiples c alpha.
    """
    up, down = ones.tolist()
    lighter = min(up, down)
    if lighter <= 0:
        return Dual(0.0, 0.0)
    v = lighter / up * sums[0] - lighter / down * sums[1]
    in_pairs = IN_PAIRS + additions
    missed = gamma(depth + 2 * in_pairs + FEW) * _bound_sums(2 * lighter, most, magnitudes)
    return _maximise(v, 2 * lighter, most, missed, in_pairs)


@unwarned
def find_exact_lower_bound(sums: ExactSums, most: float, magnitudes: Magnitudes, corrections: float = 0.0) -> Dual:
    """Return the bound of `find_lower_bound` from sums in twice the precision.

    corrections: the sum of the magnitudes of all changes of alpha that the sums contain (free_multipliers).
    """
    lighter, v = sums.balance()
    terms = _bound_sums(2 * lighter, most, magnitudes) + 2 * corrections * magnitudes.largest
    return _maximise(v, 2 * lighter, most, sums.share * terms)


def _bound_sums(total: float, most: float, magnitudes: Magnitudes) -> F64:
    """Return bounds (d,) of sum_i alpha_i |x_ij|, where alpha_i <= most C_i and sum_i alpha_i = total."""
    bounds: F64 = np.minimum(most * magnitudes.sums, total * magnitudes.largest)
    return bounds


def _maximise(v: F64, total: float, most: float, missed: F64, in_pairs: int = IN_PAIRS) -> Dual:
    """Return the largest D(c) for 0 <= c <= 1 / most, less its rounding; v (d,) is off by missed (d,) at most.

    in_pairs: how many additions a term of `total` has gone through.
    """
    peak, share = float(np.max(np.abs(v) + missed)), gamma(2 * in_pairs + FEW)
    if peak == 0.0:
        return Dual((1.0 - share) * total / most, total / most)
    length, computed = (np.abs(v) + missed) / peak, v / peak  # |v|^2 itself may overflow.
    square = float(length @ length) * (1.0 + gamma(len(v) + FEW))
    bound, multiple = _choose_multiple(square, peak, total, most)
    return Dual(bound - share * multiple * total, _choose_multiple(float(computed @ computed), peak, total, most)[0])


def _choose_multiple(square: float, peak: float, total: float, most: float) -> tuple[float, float]:
    """Return the largest c total - (c peak)^2 / 2 square over 0 <= c <= 1 / most, and its c."""
    multiple = min(1.0 / most, total / peak / square / peak) if square > 0 else 1.0 / most
    short = multiple * peak
    return multiple * total - short * short / 2 * square, multiple


def lengthen(point: Primal, tol: float) -> tuple[F64, F64]:
    """Return weight vectors (K, d) and biases (K,): the point's own, and multiples of them by 1 + tol / 16 at most."""
    lengths = 1.0 + np.array([*LENGTHS, tol / 16])
    return lengths[:, None] * point.w, lengths * point.bias


@unwarned
def choose_exact(W: F64, biases: F64, totals: ExactLosses) -> Primal:
    """Return the point with the least P, rounding included; `totals` are the losses in twice the precision."""
    losses, missed = totals.read(W.shape[1])
    half_squares = np.sum(W * W, axis=1) / 2
    objectives = half_squares + losses
    missed = missed + gamma(W.shape[1] + FEW) * half_squares + UNIT * objectives
    best = int(np.argmin(objectives + missed))
    return Primal(W[best].copy(), float(biases[best]), float(objectives[best]), float(missed[best]))
