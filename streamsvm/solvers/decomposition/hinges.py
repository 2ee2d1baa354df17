"""The problems that decomposition solves: two classes, regression, one class, nu-SVC and nu-SVR.

Regression. Each row has two hinges, one on each side of the tube:

    max(0, |t_i - f_i - b| - epsilon) = max(0, (t_i - epsilon) - f_i - b) + max(0, f_i + b - (t_i + epsilon))

Multiplied by C_i, both have the form C_i max(0, y_i (c_i - f_i - b)), with the side y_i = +1 or -1 and the corner
c_i = t_i - epsilon y_i. A class label is the special case c_i = y_i, with one hinge and a side that never changes. At
the optimum at most one of the two multipliers of a row is nonzero. A row therefore has one multiplier a_i, and y_i is
its side. A row with a_i = 0 is assigned to the side of the bias on which its target lies, and stays there while an
inner solver improves a working set. (Smola & Schoelkopf 2004, "A tutorial on support vector regression", Statistics and
Computing 14, section 1.3.)

One class and nu-SVC. The multipliers have fixed sums, and every corner c_i is 0:

    min 1/2 sum_ij a_i a_j y_i y_j k(x_i, x_j),   0 <= a_i <= C_i,   sum_i a_i = N,       N = nu sum_i C_i

For one class every y_i is +1. nu-SVC also has sum_i y_i a_i = 0, so the multipliers of each side sum to N / 2. A
feasible point exists if the costs of each side sum to N / 2 or more. Working sets keep the sum of y_i a_i, which is
enough for one class; working sets of nu-SVC keep the sums of both sides (`WorkingSet.by_side`). Only the search for a
feasible start is special. If the active set holds all rows, the first rows get a_i = C_i, as in LIBSVM. Otherwise the
active set is first given its share of N, and solved. In the next steps, rows with the lowest scores y_i f_i are made
active and get a_i = C_i until the sum is N, since at the optimum a row below the rho of its side has a_i = C_i. The
objective is also proved for states in which the sums are still below N (certificates.kernel).

nu-SVR. The half-width epsilon of the tube is chosen such that the share of rows outside is nu:

    min over w, b, epsilon >= 0    1/2 |w|^2 + N epsilon + sum_i C_i max(0, |t_i - f_i - b| - epsilon)
    max D(s) = sum_i t_i s_i - 1/2 sum_ij s_i s_j k(x_i, x_j),   |s_i| <= C_i,   sum_i s_i = 0,   sum_i |s_i| <= N

with s_i = y_i a_i, as for a regression with epsilon = 0. (LIBSVM has two multipliers per row, which sum to N over all
rows. Raising both multipliers of a row by the same amount changes only this sum, so one multiplier per row and an
inequality suffice.) There are two kinds of rounds:

    while sum_i |s_i| < N, or if epsilon would be negative, working sets are those of a regression with epsilon = 0, and
    a step is cut short where sum_i |s_i| reaches N
    otherwise working sets keep the sums of both sides, N / 2 each (`WorkingSet.by_side`)

With u = b + epsilon and v = epsilon - b, the two sides of P are separate problems, and the best u and v are quantiles
of the residuals t_i - f_i and of their negatives.

Sources: Schoelkopf, Platt, Shawe-Taylor, Smola & Williamson 2001, "Estimating the support of a high-dimensional
distribution", Neural Computation 13; Schoelkopf, Smola, Williamson & Bartlett 2000, "New support vector algorithms",
Neural Computation 12; Chang & Lin 2001, "Training nu-support vector classifiers", Neural Computation 13; Chang & Lin
2002, "Training nu-support vector regression", Neural Computation 14.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.certificates import kernel as certificates
from streamsvm.certificates.kernel import FULL_SHARE, Certificate, FixedSum, Proof
from streamsvm.numeric.rounding import sum_exactly
from streamsvm.numeric.rows import F64, I64
from streamsvm.solvers.decomposition.working_set import Conditions, find_conditions, find_largest, restore_balance
from streamsvm.system.errors import InputError

Totals = tuple[float, float]  # the sums of the multipliers of rows with y_i = +1, and with y_i = -1
SIDES = (1.0, -1.0)


class Tube(NamedTuple):
    """The tube of a regression. targets (n,): t_i, float64. width: epsilon, the half-width of the tube."""

    targets: F64
    width: float


@dataclass  # not frozen: rounds on few rows would spend a tenth of their time on making frozen ones
class _Rows:
    """The rows of a problem.

    y, costs, alpha, f (n,): y_i, C_i, a_i and f_i. tube: the tube of a regression, or None. totals: the fixed sums of
    both sides, or None.
    """

    y: F64
    costs: F64
    alpha: F64
    f: F64
    tube: Tube | None
    totals: Totals | None

    def find_side(self, side: float) -> Conditions:
        """Return the optimality conditions that hold if only the rows of one side may move."""
        costs = np.where(self.y == side, self.costs, 0.0)
        return find_conditions(self.y, costs, self.alpha, self.f, self.corners)

    @property
    def corners(self) -> F64:
        """The corners c_i, (n,)."""
        return self.y if self.tube is None else self.tube.targets - self.tube.width * self.y

    def choose_sides(self) -> F64:
        """Return the side of each row, (n,): y, except for rows of a regression whose multiplier is zero.

        A row with a zero multiplier is assigned to the side of the bias on which its target lies. This bias is half-way
        between the greatest c_i - f_i of rows that can move up and the least c_i - f_i of rows that can move down.
        """
        if self.tube is None:
            return self.y
        zero, used = self.alpha == 0.0, self.costs > 0.0
        above, error = self.y > 0, self.tube.targets - self.f
        rising, falling = error - self.tube.width, error + self.tube.width
        full = self.alpha >= self.costs
        most = np.max(np.where(above | zero, rising, falling), where=used & (zero | ~above | ~full), initial=-np.inf)
        least = np.min(np.where(above & ~zero, rising, falling), where=used & (zero | above | ~full), initial=np.inf)
        bias = (most + least) / 2 if np.isfinite(most + least) else 0.0
        return np.where(zero, np.where(error >= bias, 1.0, -1.0), self.y)


class SummedRows(_Rows):
    """The rows of one class or of nu-SVC.

    by_side: whether working sets keep the sums of both sides.
    """

    by_side = True
    totals: Totals

    @property
    def corners(self) -> F64:
        """The corners c_i, (n,), all of which are 0."""
        return np.zeros(len(self.y))

    @property
    def sums(self) -> list[FixedSum]:
        """The fixed sum of each side that has rows."""
        return [FixedSum(rows, total) for _, rows, total in list_sides(self.y, self.totals)]

    def certify(self, bias: float | None = None) -> Certificate:
        """Return the objective and its bound, at `bias` or (if None, or for two sides) at the best biases."""
        offsets = None if bias is None or len(self.sums) > 1 else [-bias]
        return certificates.certify_sums(self.costs, self.alpha, self.y * self.f, self.sums, offsets)

    def find_conditions(self) -> Conditions:
        """Return the optimality conditions of the rows, separately for each side."""
        found = [self.find_side(side) for side in SIDES if np.any(self.y == side)]
        return found[0] if len(found) == 1 else found[0].join(found[1], self.y > 0)

    def find_slacks(self) -> F64:
        """Return rho - y_i f_i at the best rho of each side, (n,)."""
        g = self.y * self.f
        return certificates.spread(self.sums, [one.find_offset(self.costs, g) for one in self.sums], len(g)) - g

    def prove(self, errors: F64, largest: float, tol: float, is_definite: bool = True) -> Proof:  # noqa: ARG002
        """Return the proof of the objective and its bound."""
        return certificates.prove_sums(self.costs, self.alpha, self.y * self.f, self.sums, errors, largest, is_definite)

    def restore_sums(self, others: F64) -> None:  # noqa: ARG002
        """Correct the rounding errors of the sums of both sides."""
        for side, rows, total in list_sides(self.y, self.totals):
            own = self.alpha[rows]
            restore_balance(self.y[rows], own, self.costs[rows], np.array([-side * total]))
            self.alpha[rows] = own

    def list_lacking(self) -> list[tuple[I64, float]]:
        """Return the rows and the fixed sum of each side whose multipliers have not reached this sum, rounding aside.

        If there is no such side, the multipliers are feasible.
        """
        found = []
        for _, rows, total in list_sides(self.y, self.totals):
            own = self.alpha[rows]
            if not total - sum_exactly(own[own > 0.0]) <= FULL_SHARE * total:
                found.append((rows, total))
        return found

    def find_rises(self) -> F64:
        """Return the increase of each multiplier, (n,), with which the sums reach their fixed values.

        The multipliers of the rows with the lowest scores rise first.
        """
        rises, g, rooms = np.zeros(len(self.y)), self.y * self.f, self.costs - self.alpha
        for rows, total in self.list_lacking():
            rises[rows] = certificates.raise_lowest(rooms[rows], g[rows], total - sum_exactly(self.alpha[rows]))
        return rises

    def choose_lowest(self, size: int) -> I64:
        """Return at most `size` rows, ascending, whose multipliers can rise, on sides whose sums are not full.

        Rows with the lowest scores are chosen. If neither side is full, each gets half of the rows.
        """
        g, can_rise, lacking = self.y * self.f, self.alpha < self.costs, self.list_lacking()
        rows = [own[can_rise[own]] for own, _ in lacking]
        return np.sort(np.concatenate([own[find_largest(-g[own], size // len(lacking))] for own in rows]))


def list_sides(y: F64, totals: Totals) -> Iterator[tuple[float, I64, float]]:
    """Yield, for each side that has rows: its y_i, its rows, and its fixed sum."""
    for side, total in zip(SIDES, totals, strict=True):
        rows = np.flatnonzero(y == side)
        if len(rows):
            yield side, rows, total


def split_total(total: float, two_sums: bool) -> Totals:
    """Return the sums of both sides: N / 2 each if there are two sums, otherwise N and 0."""
    return (total / 2, total / 2) if two_sums else (total, 0.0)


def compute_total(nu: float, costs: F64) -> float:
    """Return N; raise InputError if all weights are zero."""
    total = nu * sum_exactly(costs)
    if not total > 0.0:
        raise InputError("the sample weights of all rows are zero: there is nothing to learn from")
    return total


def find_part(y: F64 | None, costs: F64, total: float, two_sums: bool, others: F64) -> Totals:
    """Return the sums that the multipliers of an active set should have on both sides.

    The sum of a side is its fixed sum minus the multipliers of the inactive rows, or the sum of the costs of the active
    rows if that is smaller. others: y_i a_i of the inactive rows. y: the sides of the active rows, or None if each of
    them may be on either side.
    """
    totals = split_total(total, two_sums)
    taken = [sum_exactly((side * others)[side * others > 0.0]) for side in SIDES]
    most = [sum_exactly(costs if y is None else costs[y == side]) for side in SIDES]
    return min(totals[0] - taken[0], most[0]), min(totals[1] - taken[1], most[1])


class NuTubeRows(_Rows):
    """The rows of nu-SVR, whose multipliers sum to at most N."""

    tube: Tube
    totals: Totals

    @property
    def total(self) -> float:
        """N, the upper bound of sum_i |s_i|."""
        return math.fsum(self.totals)

    @property
    def room(self) -> float:
        """The amount by which sum_i |s_i| can still rise; 0 if this amount is only rounding."""
        room = self.total - math.fsum(self.alpha[self.alpha > 0.0].tolist())
        return room if room > FULL_SHARE * abs(self.total) else 0.0

    @property
    def by_side(self) -> bool:
        """Whether working sets keep the sums of both sides."""
        if self.room > 0.0:
            return False
        if np.all(self.y == self.y[0]):
            return True
        above, below = map(self.find_side, SIDES)
        return above.bias >= below.bias

    def certify(self, bias: float | None = None) -> Certificate:  # noqa: ARG002
        """Return the certificate of P and D at the best bias and the best epsilon."""
        return certificates.certify_nu_tube(self.y, self.costs, self.alpha, self.f, self.tube.targets, self.total)

    def find_conditions(self) -> Conditions:
        """Return the optimality conditions of the rows, separately for each side if `by_side`."""
        if self.by_side:
            above, below = map(self.find_side, SIDES)
            return above.join(below, self.y > 0)
        return find_conditions(self.y, self.costs, self.alpha, self.f, self.corners)

    def find_slacks(self) -> F64:
        """Return the distance of each row from the best tube, (n,); negative inside it."""
        bias, width = certificates.find_tube(self.costs, self.tube.targets - self.f, self.total)
        return np.asarray(np.abs(self.tube.targets - self.f - bias) - width)

    def prove(self, errors: F64, largest: float, tol: float, is_definite: bool = True) -> Proof:  # noqa: ARG002
        """Return the proof of P and D."""
        about = self.y, self.costs, self.alpha, self.f, self.tube.targets
        return certificates.prove_nu_tube(*about, self.total, errors, largest, is_definite)

    def restore_sums(self, others: F64) -> None:
        """Correct the rounding of sum_i s_i or, if there is no room, of each side's sum. others: s_i of other rows."""
        if self.room > 0.0:
            restore_balance(self.y, self.alpha, self.costs, others)
        else:
            SummedRows(self.y, self.costs, self.alpha, self.f, None, self.totals).restore_sums(others)


def cut_step(before: F64, after: F64, room: float) -> F64:
    """Return the last point on the segment from `before` to `after` whose sum has risen by at most `room`."""
    rise = math.fsum([*after.tolist(), *(-before).tolist()])
    return after if rise <= room else before + (after - before) * (room / rise)


class Hinges(_Rows):
    """The rows of two classes or of a regression, whose sides have no fixed sums."""

    by_side = False

    def restore_sums(self, others: F64) -> None:
        """Correct the rounding error of sum_i y_i a_i. others: y_i a_i of other rows."""
        restore_balance(self.y, self.alpha, self.costs, others)

    def certify(self, bias: float | None = None) -> Certificate:
        """Return the certificate of P and D; see `certificates.kernel.certify`."""
        both = self.list_both()
        corners = None if self.tube is None else both.corners
        return certificates.certify(both.y, both.costs, both.alpha, both.f, bias, corners)

    def find_conditions(self) -> Conditions:
        """Return the optimality conditions of the rows on their sides."""
        return find_conditions(self.y, self.costs, self.alpha, self.f, self.corners)

    def find_slacks(self) -> F64:
        """Return y_i (c_i - f_i - b) at the best bias b, (n,); for a regression, the larger of a row's two values."""
        both = self.list_both()
        found = both.y * (both.corners - both.f - certificates.find_best_bias(both.y, both.costs, both.f, both.corners))
        return found if self.tube is None else np.maximum(*np.split(found, 2))

    def prove(self, errors: F64, largest: float, tol: float, is_definite: bool = True) -> Proof:
        """Return the proof of P and D; see `certificates.kernel.prove`."""
        both = self.list_both()
        errors, corners = (errors, None) if self.tube is None else (np.tile(errors, 2), both.corners)
        rows = both.y, both.costs, both.alpha, both.f, corners
        return certificates.prove(rows, errors, largest, tol, is_definite)

    def list_both(self) -> Hinges:
        """Return one hinge for each row or, for a regression, the 2n hinges on both sides of the tube."""
        if self.tube is None:
            return self
        n, upper = len(self.y), self.y > 0
        alpha = np.concatenate((np.where(upper, self.alpha, 0.0), np.where(upper, 0.0, self.alpha)))
        tube = Tube(np.tile(self.tube.targets, 2), self.tube.width)
        return Hinges(np.repeat([1.0, -1.0], n), np.tile(self.costs, 2), alpha, np.tile(self.f, 2), tube, None)


AnyRows = Hinges | SummedRows | NuTubeRows


def make_hinges(y: F64, costs: F64, alpha: F64, f: F64, tube: Tube | None, totals: Totals | None) -> AnyRows:
    """Return the rows as Hinges, SummedRows or NuTubeRows, depending on the tube and the sums."""
    kind = Hinges if totals is None else SummedRows if tube is None else NuTubeRows
    return kind(y, costs, alpha, f, tube, totals)
