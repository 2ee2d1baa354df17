"""Points of the dual of a linear SVM, which prove a lower bound of the optimum without trusting the solver.

    D(alpha) = sum_i alpha_i - 1/2 |v|^2,   v = sum_i alpha_i y_i x_i,   0 <= alpha_i <= C_i          (weak duality)

Any such alpha bounds the optimum from below (with a free bias, if y'alpha = 0 too). A point has one of two forms. The
first form is a share c_i in [0, 1] for every row, with alpha_i = C_i c_i. The second form is a few cuts and the points
at which they were made: cut t at the step s_t on the segment from the weight vector u_t to v_t, with the multiplier
lambda_t,

    c_i = sum_t lambda_t [the margin of row i at that point is below 1],   lambda_t >= 0,   sum_t lambda_t <= 1

where losses.hinge determines the side of a row that changes sides on the segment. In some cuts, some rows have an
individual share from 0 to 1, instead of the 1 or 0 of their side (OfCut). The resulting shares are rounded but
feasible: they never exceed 1, and the rounded C_i c_i cannot exceed C_i.

A point given by shares may have corrections for some rows, alpha_i = C_i c_i + delta_i. A correction is a pair of
numbers, added in twice the precision and limited so that alpha stays feasible (limit_corrections).

The sums over the rows are computed in twice the precision (certificates.double_double), and the remaining error is
subtracted from the bound. The bound uses the best multiple t alpha, with 0 <= t <= 1, or with 0 <= t <= 1 / m if no
share is above m < 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from streamsvm.certificates.double_double import ExactSums, add_exact_sums, start_exact_sums
from streamsvm.kernels.kernel import absolute
from streamsvm.numeric.rounding import SMALLEST, UNIT, add_pairs
from streamsvm.numeric.rows import F64, I64, Flags, Rows, add_rows
from streamsvm.passes import RowTotals, grows

OWN = ("own_cuts", "own_stops", "own_rows", "own_shares")  # the fields of a DualPoint about rows with individual shares


class OfCut(NamedTuple):
    """The rows with individual shares in one cut: their ascending numbers and their shares, (e,) each."""

    rows: I64
    shares: F64


NONE = OfCut(np.empty(0, np.int64), np.empty(0))


class Origin(NamedTuple):
    """A cut as the solver adds it to its master problem, and the point at which it was made. Vectors are (width,).

    cut, offset: the vector a_c and the number b_c of the cut; start, end, step: the cut was made at (1 - step) start
    + step end; own: the rows with individual shares in the cut.
    """

    cut: F64
    offset: float
    start: F64
    end: F64
    step: float
    own: OfCut = NONE


def join_own(parts: Sequence[OfCut]) -> dict[str, Any]:
    """Return the fields OWN of a DualPoint.

    parts: for each cut, the rows with individual shares, which are concatenated.
    """
    own = [k for k, part in enumerate(parts) if len(part.rows)]
    stops = np.cumsum([len(parts[k].rows) for k in own], dtype=np.int64)
    rows, shares = (np.concatenate(each) for each in zip(NONE, *(parts[k] for k in own), strict=True))
    return dict(zip(OWN, (np.array(own, np.int64), stops, rows, shares), strict=True))


@dataclass(frozen=True)
class DualPoint:
    """A dual point, given either by shares of rows or by cuts.

    share (n,): the share c_i of every row; empty if the point is given by cuts. most: an upper limit of the shares,
    from 1/2 to 1. rows (k,): the ascending numbers of the corrected rows; corrections (k, 2): the pairs that make up
    delta_i. vectors (p, width): the weight vectors, with the weight of the constant feature last, if there is one; ends
    (m, 2): the indices of u_t and v_t in `vectors` for each cut; steps and multipliers (m,).

    The rows with individual shares are concatenated cut by cut. own_cuts (c,): the ascending indices of the cuts that
    have such rows; own_stops (c,): the end of each cut's rows; own_rows, own_shares (e,): the numbers of the rows,
    ascending within each cut, and their shares, from 0 to 1.
    """

    share: F64 = grows("n")
    most: float = 1.0
    rows: I64 = grows("k", dtype=np.int64)
    corrections: F64 = grows("k", "2")
    vectors: F64 = grows("p", "d")
    ends: I64 = grows("m", "2", dtype=np.int64)
    steps: F64 = grows("m")
    multipliers: F64 = grows("m")
    own_cuts: I64 = grows("c", dtype=np.int64)
    own_stops: I64 = grows("c", dtype=np.int64)
    own_rows: I64 = grows("e", dtype=np.int64)
    own_shares: F64 = grows("e")

    def split_own(self) -> dict[int, OfCut]:
        """Return the rows with individual shares, as views, in a dict by the index of the cut."""
        bounds = pairwise([0, *self.own_stops.tolist()])
        parts = [OfCut(self.own_rows[a:b], self.own_shares[a:b]) for a, b in bounds]
        return dict(zip(self.own_cuts.tolist(), parts, strict=True))

    def check(self, n_rows: int | None = None) -> None:
        """Raise ValueError if a cut refers to a vector, or a row to a cut, that does not exist.

        n_rows: the number of all rows, if known.
        """
        cuts, stops, n_cuts = self.own_cuts, np.concatenate(([0], self.own_stops)), len(self.ends)
        if self.ends.size and not 0 <= int(self.ends.min()) <= int(self.ends.max()) < len(self.vectors):
            raise ValueError(f"ends are not from 0 to {len(self.vectors) - 1}")
        if len(cuts) != len(stops) - 1 or not stops[-1] == len(self.own_rows) == len(self.own_shares):
            raise ValueError("own_cuts, own_stops, own_rows and own_shares do not fit together")
        if (cuts[1:] <= cuts[:-1]).any() or (len(cuts) and not 0 <= int(cuts[0]) <= int(cuts[-1]) < n_cuts):
            raise ValueError(f"own_cuts are not ascending indices of the {n_cuts} cuts")
        if (stops[1:] <= stops[:-1]).any():
            raise ValueError("own_stops are not in ascending order")
        for rows, _ in self.split_own().values():
            if (rows[1:] <= rows[:-1]).any():
                raise ValueError("own_rows of a cut are not in ascending order")
            if int(rows[0]) < 0 or (n_rows is not None and int(rows[-1]) >= n_rows):
                raise ValueError("own_rows are not among the rows of the data")
        if not ((self.own_shares >= 0.0) & (self.own_shares <= 1.0)).all():
            raise ValueError("own_shares are not between 0 and 1: a multiplier is beyond its bounds")

    @property
    def nbytes(self) -> int:
        """Total size of the arrays in bytes."""
        return sum(np.asarray(part).nbytes for part in vars(self).values())

    @property
    def most_multiple(self) -> float:
        """The largest feasible multiple of all multipliers, allowing for rounding."""
        return 1.0 if self.most == 1.0 and not len(self.rows) else (1.0 - 16 * UNIT) / self.most


def put_own_shares(active: Flags, first: int, point: DualPoint) -> F64:
    """Return the share of each row in each cut, (n, m): its individual share, or else 1 if it is active and 0 if not.

    first: the number of the first row; the rows are consecutive.
    """
    shares = active.astype(np.float64)
    for cut, (rows, values) in point.split_own().items():
        start, stop = np.searchsorted(rows, [first, first + len(shares)])
        shares[rows[start:stop] - first, cut] = values[start:stop]
    return shares


def find_active(scores: F64, biases: F64, y: F64, ends: I64, steps: F64) -> Flags:
    """Return whether each row is active in each cut, (n, m).

    scores (n, p): the scores without the biases (p,); y (n,): the labels -1 or +1. The decisions match losses.hinge and
    cutting_plane.line_search to the last bit.
    """
    margins = y[:, None] * (scores + biases)
    a, b = margins[:, ends[:, 0]], margins[:, ends[:, 1]]
    starts, switches = a < 1.0, (a < 1.0) != (b < 1.0)
    step = np.divide(1.0 - a, b - a, out=np.zeros(a.shape), where=switches)
    active: Flags = starts != (switches & (~(step > steps) | (steps >= 1.0)))
    return active


def limit_sum(multipliers: F64, most: float) -> F64:
    """Return multipliers whose exact sum is at most `most`, scaled by a few units in the last place if necessary."""
    total = math.fsum(multipliers.tolist())
    return multipliers * ((1.0 - 4 * UNIT) * most / total) if total > (1.0 - 2 * UNIT) * most else multipliers


def limit_corrections(alpha: F64, highest: F64, corrections: F64) -> list[F64]:
    """Return the corrections (k, 2) as two vectors to be added to alpha (k,) in turn, limited where necessary.

    The exact sums are never below 0, and exceed `highest` (k,) by at most 4 units in the last place.
    """
    limited, at = [], alpha
    for change in corrections.T:
        limited.append(np.clip(change, (4 * UNIT - 1.0) * at, np.maximum(highest - at, 0.0)))
        at = at + limited[-1]
    return limited


@dataclass
class DualSums(RowTotals):
    """Sums over rows with multipliers alpha_i.

    exact: the sums of alpha_i x_i and of alpha_i, by class. magnitudes (d,): the sums sum_i |alpha_i| |x_ij|. sizes
    (2,): the sums sum_i |alpha_i|, by class.

    A correction counts as a separate term: its magnitude is added, even if the correction is negative.
    """

    exact: ExactSums
    magnitudes: F64
    sizes: F64

    @property
    def cancellation(self) -> float:
        """The largest ratio of the summed magnitudes to the sum, over the classes that have multipliers."""
        totals = self.exact.totals[:, -1]
        used = (totals > 0.0) & np.isfinite(self.sizes)
        return float(np.max(np.divide(self.sizes, totals, out=np.ones(2), where=used), initial=1.0))


def start_dual_sums(n_features: int) -> DualSums:
    """Return the sums of no queries at the points W (k, d)."""
    return DualSums(start_exact_sums(n_features), np.zeros(n_features), np.zeros(2))


def add_dual_sums(sums: DualSums, rows: Rows, alpha: F64, sizes: F64) -> None:
    """Add rows. alpha, sizes (n,): the multipliers of the rows, and the magnitudes of the multipliers."""
    add_exact_sums(sums.exact, rows, alpha)
    used = np.flatnonzero(sizes)
    add_rows(sums.magnitudes[None, :], absolute(rows.X), used, np.zeros_like(used), sizes[used])
    sums.sizes += np.bincount(rows.codes, weights=sizes, minlength=2)


@dataclass(frozen=True)
class Bound:
    """A proved lower bound, and the amount subtracted from D for rounding."""

    value: float
    rounding: float


def bound_by_shares(sums: DualSums, bias_feature: float | None, most_multiple: float = 1.0) -> Bound:
    """Return the bound proved by the shares. bias_feature: the constant feature, or None for an unpenalised bias.

    most_multiple: the largest feasible multiple of the multipliers. With an unpenalised bias, the multipliers of the
    class with the larger sum shrink in proportion until y'alpha = 0.
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


def bound_by_coefs(
    sums: DualSums,
    total: float,
    total_error: float,
    coef_error: float,
    bias: float = 0.0,
    others: tuple[F64, F64] | None = None,
) -> Bound:
    """Return the bound proved by sum_i coef_i x_i, with all rows in class 0.

    total: the sum of the multipliers of all pairs. coef_error: the error bound of the coefs, relative to the sizes that
    the magnitudes contain. bias: the constant feature, or 0 for none. others: sum_i coef_i x_i over rows that are not
    in `sums`, (d+1,), and its error bound.
    """
    v = sums.exact.totals[0] + sums.exact.rests[0]
    v[-1] *= bias
    lacking = (4 * sums.exact.share + 1.01 * coef_error) * np.append(sums.magnitudes, bias * sums.sizes[0])
    if others is not None:
        lacking = lacking + others[1] + 2 * UNIT * np.abs(v)
        v = v + others[0]
    return _maximise(total, v, lacking + 2 * UNIT * np.abs(v), total_error)


def _maximise(total: float, v: F64, lacking: F64, total_error: float = 0.0, most_multiple: float = 1.0) -> Bound:
    """Return the maximum of t total - t^2 / 2 |v|^2 over 0 <= t <= most_multiple, less its rounding error.

    lacking: the error bound of v. most_multiple: the largest feasible multiple, at most 2.
    """
    total, longest = float(total), np.abs(v) + lacking
    square, computed = math.fsum((longest * longest).tolist()) * (1.0 + 8 * UNIT), math.fsum((v * v).tolist())
    multiple = _choose_multiple(total, square, most_multiple)
    own = multiple * (total_error + 16 * UNIT * total) + (len(v) + 8) * SMALLEST
    value = multiple * (total - multiple * square / 2) - own
    other = _choose_multiple(total, computed, most_multiple)
    return Bound(value, max(0.0, other * (total - other * computed / 2) - value))


def _choose_multiple(total: float, square: float, most_multiple: float) -> float:
    """Return the multiple t that gives the highest bound."""
    return min(most_multiple, total / square) if square > 0.0 else most_multiple
