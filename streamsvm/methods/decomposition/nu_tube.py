"""nu-SVR: a regression whose tube has the half-width epsilon at which nu tells the share of rows outside.

    min over w, b, epsilon >= 0    1/2 |w|^2 + N epsilon + sum_i C_i max(0, |t_i - f_i - b| - epsilon)
    max D(s) = sum_i t_i s_i - 1/2 sum_ij s_i s_j k(x_i, x_j),   |s_i| <= C_i,   sum_i s_i = 0,   sum_i |s_i| <= N

N = nu sum_i C_i, and s_i = y_i a_i: a row has one multiplier a_i, of its side y_i, as in tube.py with epsilon = 0.
(LIBSVM has two multipliers a row, whose sum over all rows is N. What both have in common changes nothing but that sum,
so that they are worth an inequality.) There are two kinds of rounds:

    while sum_i |s_i| < N, or epsilon would be negative, working sets are those of a regression with epsilon = 0, and
    their steps are cut where sum_i |s_i| = N
    otherwise working sets keep the sums of both sides, N / 2 each (`WorkingSet.by_side`)

With u = b + epsilon and v = epsilon - b, the two sides of P are problems of their own, and the best u and v are
quantiles of the residuals t_i - f_i and of their negatives. Sources: Schoelkopf, Smola, Williamson & Bartlett 2000,
"New support vector algorithms", Neural Computation 12; Chang & Lin 2002, "Training nu-support vector regression",
Neural Computation 14.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streamsvm.methods.decomposition.balance import restore_balance
from streamsvm.methods.decomposition.fixed_sums import SIDES, SummedRows, Totals
from streamsvm.methods.decomposition.selection import Conditions, find_conditions, join_conditions
from streamsvm.numeric.certificates import Certificate, Proof
from streamsvm.numeric.fixed_sum_certificates import FULL_SHARE
from streamsvm.numeric.nu_tube_certificates import certify_nu_tube, find_tube, prove_nu_tube
from streamsvm.numeric.rows import F64


class Tube(NamedTuple):
    """The targets t_i (n,), float64, and epsilon, the half-width of the tube around them."""

    targets: F64
    width: float


class NuTubeRows(NamedTuple):
    """y_i, C_i, a_i, f_i and t_i (n,), and the sums N / 2 of both sides. It answers what `tube.Hinges` answers."""

    y: F64
    costs: F64
    alpha: F64
    f: F64
    tube: Tube
    totals: Totals

    @property
    def corners(self) -> F64:
        """The corners c_i, (n,): the targets."""
        return self.tube.targets

    @property
    def total(self) -> float:
        """The sum that |s_i| have at most."""
        return math.fsum(self.totals)

    @property
    def room(self) -> float:
        """By how much sum_i |s_i| can rise; 0 where that is rounding alone."""
        room = self.total - math.fsum(self.alpha[self.alpha > 0.0].tolist())
        return room if room > FULL_SHARE * abs(self.total) else 0.0

    @property
    def by_side(self) -> bool:
        """Whether working sets keep the sums of both sides."""
        if self.room > 0.0:
            return False
        if np.all(self.y == self.y[0]):
            return True
        above, below = self._find_sides()
        return above.bias >= below.bias

    def certify(self, bias: float | None = None) -> Certificate:  # noqa: ARG002
        """Evaluate P and D at the best bias and the best epsilon."""
        return certify_nu_tube(self.y, self.costs, self.alpha, self.f, self.tube.targets, self.total)

    def find_conditions(self) -> Conditions:
        """Return the optimality conditions of the rows: those of each side by itself, or of all."""
        if self.by_side:
            return join_conditions(*self._find_sides(), self.y > 0)
        return find_conditions(self.y, self.costs, self.alpha, self.f, self.corners)

    def find_slacks(self) -> F64:
        """Return how far each row is beyond the edge of the best tube that is nearer, (n,)."""
        bias, width = find_tube(self.costs, self.tube.targets - self.f, self.total)
        found: F64 = np.abs(self.tube.targets - self.f - bias) - width
        return found

    def prove(self, errors: F64, largest: float, tol: float, is_definite: bool = True) -> Proof:  # noqa: ARG002
        """Return the proof of P and D."""
        about = self.y, self.costs, self.alpha, self.f, self.tube.targets
        return prove_nu_tube(*about, self.total, errors, largest, is_definite)

    def restore_sums(self, others: F64) -> None:
        """Correct the rounding of sum_i s_i, and of both sides where there is no room; others: s_i of other rows."""
        if self.room > 0.0:
            restore_balance(self.y, self.alpha, self.costs, others)
        else:
            SummedRows(self.y, self.costs, self.alpha, self.f, self.totals).restore_sums()

    def _find_sides(self) -> tuple[Conditions, Conditions]:
        parts = [np.where(self.y == side, self.costs, 0.0) for side in SIDES]
        above, below = (find_conditions(self.y, costs, self.alpha, self.f, self.corners) for costs in parts)
        return above, below


def cut_step(before: F64, after: F64, room: float) -> F64:
    """Return the multipliers on the segment that are nearest to `after`, whose sum has risen by `room` at most."""
    rise = math.fsum([*after.tolist(), *(-before).tolist()])
    return after if rise <= room else before + (after - before) * (room / rise)
