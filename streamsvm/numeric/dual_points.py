"""Points of the dual of a linear SVM, and what they prove: a lower bound of the optimum without trust in a solver.

    D(alpha) = sum_i alpha_i - 1/2 |v|^2,   v = sum_i alpha_i y_i x_i,   0 <= alpha_i <= C_i          (weak duality)

Any such alpha bounds the optimum from below (with a free bias, if y'alpha = 0 too). A point comes in one of two forms.
A share c_i in [0, 1] for every row says alpha_i = C_i c_i. Or a few cuts say where they were made: cut t at the step
s_t of the segment from the weight vector u_t to v_t, with the multiplier lambda_t,

    c_i = sum_t lambda_t [the margin of row i at that point is below 1],   lambda_t >= 0,   sum_t lambda_t <= 1

and a row that changes sides on the segment is on the side that numeric.losses puts it on. In some cuts some rows have
a share of their own, from 0 to 1, in place of the 1 or 0 of their side (numeric.own_shares). The shares that come out
are rounded, and are feasible all the same: they are never above 1, and rounding C_i c_i cannot exceed C_i.

A point by shares may come with corrections of some rows, alpha_i = C_i c_i + delta_i. They are pairs of numbers that
are added in twice the precision, and are limited so that alpha stays feasible (limit_corrections).

The sums over the rows are formed in twice the precision (numeric.exact_sums), and what they may still lack is taken
off the bound. The bound is that of the best multiple t alpha, 0 <= t <= 1, or 0 <= t <= 1 / m where no share is above
m < 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.exact_sums import ExactSums, add_exact_sums, combine_exact_sums, start_exact_sums
from streamsvm.numeric.kernels import absolute
from streamsvm.numeric.own_shares import OwnShares
from streamsvm.numeric.rounding import SMALLEST, UNIT, add_pairs
from streamsvm.numeric.row_products import add_rows
from streamsvm.numeric.rows import F64, I64, Rows


@dataclass(frozen=True)
class DualPoint:
    """A dual point, either by row or by cuts.

    share (n,): c_i of every row; empty if the point is given by cuts. most: from 1/2 to 1; no share is above it. rows
    (k,): ascending numbers of the rows that are corrected; corrections (k, 2): the pairs that make up delta_i.
    vectors (p, width): weight vectors, with the weight of the constant feature last where there is one; ends (m, 2):
    the vectors u_t and v_t of each cut, by their place; steps and multipliers (m,). own_cuts, own_stops (c,), own_rows
    and own_shares (e,): as in numeric.own_shares.OwnShares.
    """

    share: F64 = field(default_factory=lambda: np.empty(0))
    most: float = 1.0
    rows: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    corrections: F64 = field(default_factory=lambda: np.empty((0, 2)))
    vectors: F64 = field(default_factory=lambda: np.empty((0, 0)))
    ends: I64 = field(default_factory=lambda: np.empty((0, 2), np.int64))
    steps: F64 = field(default_factory=lambda: np.empty(0))
    multipliers: F64 = field(default_factory=lambda: np.empty(0))
    own_cuts: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    own_stops: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    own_rows: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    own_shares: F64 = field(default_factory=lambda: np.empty(0))

    @property
    def own(self) -> OwnShares:
        """The rows that have a share of their own in a cut."""
        return OwnShares(self.own_cuts, self.own_stops, self.own_rows, self.own_shares)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(np.asarray(part).nbytes for part in vars(self).values())

    @property
    def most_multiple(self) -> float:
        """The largest multiple of all multipliers that is feasible, their roundings included."""
        return 1.0 if self.most == 1.0 and not len(self.rows) else (1.0 - 16 * UNIT) / self.most


def find_active(scores: F64, biases: F64, y: F64, ends: I64, steps: F64) -> npt.NDArray[np.bool_]:
    """Return whether each row is in each cut, (n, m). scores (n, p) without the biases (p,); y (n,) is -1 or +1.

    The decisions are those of numeric.losses and cutting_plane.point_cuts, to the last bit.
    """
    margins = y[:, None] * (scores + biases)
    a, b = margins[:, ends[:, 0]], margins[:, ends[:, 1]]
    starts, switches = a < 1.0, (a < 1.0) != (b < 1.0)
    step = np.divide(1.0 - a, b - a, out=np.zeros(a.shape), where=switches)
    active: npt.NDArray[np.bool_] = starts != (switches & (~(step > steps) | (steps >= 1.0)))
    return active


def limit_sum(multipliers: F64, most: float) -> F64:
    """Return multipliers whose exact sum is at most that; some are scaled by a few units in the last place."""
    total = math.fsum(multipliers.tolist())
    return multipliers * ((1.0 - 4 * UNIT) * most / total) if total > (1.0 - 2 * UNIT) * most else multipliers


def limit_corrections(alpha: F64, highest: F64, corrections: F64) -> list[F64]:
    """Return what is to be added to alpha (k,), one after the other: the corrections (k, 2), limited where necessary.

    The exact sums are never below 0, and above `highest` (k,) by 4 units in the last place at most.
    """
    limited, at = [], alpha
    for change in corrections.T:
        limited.append(np.clip(change, (4 * UNIT - 1.0) * at, np.maximum(highest - at, 0.0)))
        at = at + limited[-1]
    return limited


@dataclass
class DualSums:
    """Sums of alpha_i x_i and of alpha_i by class; sum_i |alpha_i| |x_ij|, (d,); and sum_i |alpha_i| by class, (2,).

    A correction counts as a term of its own: its magnitude is added, whatever its sign is.
    """

    exact: ExactSums
    magnitudes: F64
    sizes: F64

    @property
    def cancellation(self) -> float:
        """How many times larger the magnitudes are than the sum, at most, in a class that has any multipliers."""
        totals = self.exact.totals[:, -1]
        used = (totals > 0.0) & np.isfinite(self.sizes)
        return float(np.max(np.divide(self.sizes, totals, out=np.ones(2), where=used), initial=1.0))


def start_dual_sums(n_features: int) -> DualSums:
    """Return the sums of no rows."""
    return DualSums(start_exact_sums(n_features), np.zeros(n_features), np.zeros(2))


def add_dual_sums(sums: DualSums, rows: Rows, alpha: F64, sizes: F64) -> None:
    """Add rows; alpha and its magnitudes: theirs, (n,)."""
    add_exact_sums(sums.exact, rows, alpha)
    used = np.flatnonzero(sizes)
    add_rows(sums.magnitudes[None, :], absolute(rows.X), used, np.zeros_like(used), sizes[used])
    assert rows.y is not None
    sums.sizes += np.bincount(rows.y, weights=sizes, minlength=2)


def combine_dual_sums(left: DualSums, right: DualSums) -> DualSums:
    """Return the sum."""
    magnitudes, sizes = left.magnitudes + right.magnitudes, left.sizes + right.sizes
    return DualSums(combine_exact_sums(left.exact, right.exact), magnitudes, sizes)


@dataclass(frozen=True)
class Bound:
    """A proved lower bound, and how much of D was taken off for rounding."""

    value: float
    rounding: float


def bound_by_shares(sums: DualSums, bias_feature: float | None, most_multiple: float = 1.0) -> Bound:
    """Return what the shares prove; bias_feature: the constant feature, None for a bias that costs nothing.

    most_multiple: the largest multiple of the multipliers that is feasible.
    With a free bias the heavier class's multipliers are made smaller in proportion, so that y'alpha = 0.
    """
    exact = sums.exact
    lacking, lost = 4 * exact.share * sums.magnitudes, 4 * exact.share * sum(sums.sizes.tolist())
    if bias_feature is None:
        lighter, v = exact.balance()
        return _maximise(2 * lighter, v, sums.cancellation * lacking + 2 * UNIT * np.abs(v), lost, most_multiple)
    difference, rest = add_pairs(exact.totals[1], exact.rests[1], -exact.totals[0], -exact.rests[0])
    v, total = difference + rest, float(np.sum(exact.totals[:, -1]) + np.sum(exact.rests[:, -1]))
    v[-1] *= bias_feature
    missed = np.append(lacking, lost * bias_feature) + 4 * UNIT * np.abs(v)
    return _maximise(total, v, missed, lost, most_multiple)


def bound_by_coefs(sums: DualSums, total: float, total_error: float, coef_error: float, bias: float = 0.0) -> Bound:
    """Return what sum_i coef_i x_i proves, all rows being in class 0; total: of the multipliers of all pairs.

    coef_error: how far coefs can be off, as a share of the sizes that the magnitudes were summed with. bias: the
    constant feature; 0 without one.
    """
    v = sums.exact.totals[0] + sums.exact.rests[0]
    v[-1] *= bias
    lacking = (4 * sums.exact.share + 1.01 * coef_error) * np.append(sums.magnitudes, bias * sums.sizes[0])
    return _maximise(total, v, lacking + 2 * UNIT * np.abs(v), total_error)


def _maximise(total: float, v: F64, lacking: F64, total_error: float = 0.0, most_multiple: float = 1.0) -> Bound:
    """Return the most of t total - t^2 / 2 |v|^2, 0 <= t <= most_multiple, less its rounding.

    lacking: how far off v can be. most_multiple: 2 at most.
    """
    total, longest = float(total), np.abs(v) + lacking
    square, computed = math.fsum((longest * longest).tolist()) * (1.0 + 8 * UNIT), math.fsum((v * v).tolist())
    multiple = _choose_multiple(total, square, most_multiple)
    own = multiple * (total_error + 16 * UNIT * total) + (len(v) + 8) * SMALLEST
    value = multiple * (total - multiple * square / 2) - own
    other = _choose_multiple(total, computed, most_multiple)
    return Bound(value, max(0.0, other * (total - other * computed / 2) - value))


def _choose_multiple(total: float, square: float, most_multiple: float) -> float:
    """Return the t of the best bound."""
    return min(most_multiple, total / square) if square > 0.0 else most_multiple
