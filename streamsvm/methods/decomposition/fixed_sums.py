"""Problems whose multipliers have fixed sums: one class, and nu-SVC. Every corner c_i is 0.

    min 1/2 sum_ij a_i a_j y_i y_j k(x_i, x_j),   0 <= a_i <= C_i,   sum_i a_i = N,       N = nu sum_i C_i

Of one class every y_i is +1. nu-SVC has sum_i y_i a_i = 0 as well, so that the multipliers of either side sum to N / 2;
there is such a point if the costs of each side sum to N / 2 at least.

Working sets keep the sum of y_i a_i, which is all that one class needs. Those of nu-SVC keep the sums of both sides
(`WorkingSet.by_side`). All that is new is a start that is feasible. Where
the active set holds all rows, the first of them get their costs, as in LIBSVM. Where it does not, it gets its own share
of N first, and is solved; then, for as many steps as it takes, the rows with the lowest scores y_i f_i are active and
get their costs until the sum is N. For at the optimum a row has its cost if its score is below the rho of its side. A
state whose sums are not full yet has a proved objective as well (numeric.fixed_sum_certificates).

Sources: Schoelkopf, Platt, Shawe-Taylor, Smola & Williamson 2001, "Estimating the support of a high-dimensional
distribution", Neural Computation 13; Schoelkopf, Smola, Williamson & Bartlett 2000, "New support vector algorithms",
Neural Computation 12; Chang & Lin 2001, "Training nu-support vector classifiers", Neural Computation 13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from streamsvm.errors import InputError
from streamsvm.methods.decomposition.balance import restore_balance
from streamsvm.methods.decomposition.selection import Conditions, find_conditions, join_conditions
from streamsvm.numeric.certificates import Certificate, Proof
from streamsvm.numeric.fixed_sum_certificates import (
    FULL_SHARE,
    FixedSum,
    certify_sums,
    prove_sums,
    raise_lowest,
    spread,
)
from streamsvm.numeric.rounding import sum_exactly
from streamsvm.numeric.rows import F64, I64

Totals = tuple[float, float]  # the sums of the multipliers of rows with y_i = +1, and with y_i = -1
SIDES = (1.0, -1.0)


class SummedRows(NamedTuple):
    """y_i, C_i, a_i, f_i (n,), and the sum of each side. It answers what `tube.Hinges` answers for labels."""

    y: F64
    costs: F64
    alpha: F64
    f: F64
    totals: Totals
    tube: None = None

    @property
    def corners(self) -> F64:
        """The corners c_i, (n,): 0."""
        return np.zeros(len(self.y))

    @property
    def sums(self) -> list[FixedSum]:
        """The sums of the sides that have rows."""
        return [FixedSum(rows, total) for _, rows, total in list_sides(self.y, self.totals)]

    def certify(self, bias: float | None = None) -> Certificate:
        """Evaluate the objective and its bound. The bias is that of one class; two sides have the best one."""
        offsets = None if bias is None or len(self.sums) > 1 else [-bias]
        return certify_sums(self.costs, self.alpha, self.y * self.f, self.sums, offsets)

    def find_conditions(self) -> Conditions:
        """Return the optimality conditions of the rows: those of each side by itself."""
        parts = [np.where(self.y == side, self.costs, 0.0) for side in SIDES if np.any(self.y == side)]
        found = [find_conditions(self.y, costs, self.alpha, self.f, self.corners) for costs in parts]
        return found[0] if len(found) == 1 else join_conditions(found[0], found[1], self.y > 0)

    def find_slacks(self) -> F64:
        """Return rho - y_i f_i at the best rho of each side, (n,)."""
        g = self.y * self.f
        return spread(self.sums, [one.find_offset(self.costs, g) for one in self.sums], len(g)) - g

    def prove(self, errors: F64, largest: float, tol: float, is_definite: bool = True) -> Proof:  # noqa: ARG002
        """Return the proof of the objective and its bound."""
        return prove_sums(self.costs, self.alpha, self.y * self.f, self.sums, errors, largest, is_definite)

    def restore_sums(self) -> None:
        """Change single multipliers in place until the sums are what they are to be, but for rounding."""
        for side, rows, total in list_sides(self.y, self.totals):
            own = self.alpha[rows]
            restore_balance(self.y[rows], own, self.costs[rows], np.array([-side * total]))
            self.alpha[rows] = own

    def find_rises(self) -> F64:
        """Return by how much each multiplier rises, (n,), until the sums are full: those of the lowest scores first."""
        rises, g = np.zeros(len(self.y)), self.y * self.f
        for _, rows, total in list_sides(self.y, self.totals):
            own = self.alpha[rows]
            if not _lacks_nothing(own, total):
                rises[rows] = raise_lowest(self.costs[rows] - own, g[rows], total - sum_exactly(own))
        return rises

    def choose_lowest(self, size: int) -> I64:
        """Return `size` rows at most that have the lowest scores of a side that is not full and can rise, ascending.

        Sides that are not full have equal parts.
        """
        g, lacking = self.y * self.f, []
        for _, rows, total in list_sides(self.y, self.totals):
            if not _lacks_nothing(self.alpha[rows], total):
                can_rise = rows[self.alpha[rows] < self.costs[rows]]
                lacking.append(can_rise[np.argsort(g[can_rise], kind="stable")])
        return np.sort(np.concatenate([rows[: size // len(lacking)] for rows in lacking]))

    @property
    def is_full(self) -> bool:
        """Whether the multipliers have their sums, but for rounding."""
        return all(_lacks_nothing(self.alpha[rows], total) for _, rows, total in list_sides(self.y, self.totals))


def list_sides(y: F64, totals: Totals) -> Iterator[tuple[float, I64, float]]:
    """Yield the sides that have rows: y_i, the rows, and their sum."""
    for side, total in zip(SIDES, totals, strict=True):
        rows = np.flatnonzero(y == side)
        if len(rows):
            yield side, rows, total


def _lacks_nothing(alpha: F64, total: float) -> bool:
    return total - sum_exactly(alpha[alpha > 0.0]) <= FULL_SHARE * total


def split_total(total: float, two_sums: bool) -> Totals:
    """Return the sums of both sides: halves of N for nu-SVC, and all of it on one side for one class."""
    return (total / 2, total / 2) if two_sums else (total, 0.0)


def compute_total(nu: float, costs: F64) -> float:
    """Return N; InputError if no row has a weight."""
    total = nu * sum_exactly(costs)
    if not total > 0.0:
        raise InputError("the sample weights of all rows are zero: there is nothing to learn from")
    return total


def find_part(y: F64 | None, costs: F64, totals: Totals, others: F64) -> Totals:
    """Return the sums that an active set has: what the other rows leave of each side's sum, or as much as can be.

    others: y_i a_i of the other rows. y: the sides of the rows, or None if a row may be of either.
    """
    taken = [sum_exactly((side * others)[side * others > 0.0]) for side in SIDES]
    most = [sum_exactly(costs if y is None else costs[y == side]) for side in SIDES]
    return min(totals[0] - taken[0], most[0]), min(totals[1] - taken[1], most[1])
