"""One class: every y_i is +1, every corner c_i is 0, and the multipliers sum to N = nu sum_i C_i, and not to 0.

    min 1/2 sum_ij a_i a_j k(x_i, x_j),   0 <= a_i <= C_i,   sum_i a_i = N        rho = -b, the offset of the scores

Working sets keep their sums, so that they need nothing of their own; all that is new is a start that is feasible. Where
the active set holds all rows, the first of them get their costs, as in LIBSVM. Where it does not, it gets its own share
of N first, and is solved; then, for as many steps as it takes, the rows with the lowest scores are active and get their
costs until the sum is N. For at the optimum a row has its cost if its score is below rho. A state whose sum is not N
yet has a proved objective as well (numeric.one_class_certificates).

Source: Schoelkopf, Platt, Shawe-Taylor, Smola & Williamson 2001, "Estimating the support of a high-dimensional
distribution", Neural Computation 13.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streamsvm.errors import InputError
from streamsvm.methods.decomposition.selection import Conditions, find_conditions
from streamsvm.numeric.certificates import Certificate, Proof
from streamsvm.numeric.one_class_certificates import (
    FULL_SHARE,
    certify_one_class,
    find_offset,
    prove_one_class,
    raise_lowest,
)
from streamsvm.numeric.rows import F64, I64


class OneClassRows(NamedTuple):
    """C_i, a_i, f_i (n,), and N; y is (n,), all of it +1. It answers what `tube.Hinges` answers for labels."""

    y: F64
    costs: F64
    alpha: F64
    f: F64
    total: float
    tube: None = None

    @property
    def corners(self) -> F64:
        """The corners c_i, (n,): 0."""
        return np.zeros(len(self.y))

    def certify(self, bias: float | None = None) -> Certificate:
        """Evaluate the objective and its bound."""
        return certify_one_class(self.costs, self.alpha, self.f, self.total, None if bias is None else -bias)

    def find_conditions(self) -> Conditions:
        """Return the optimality conditions of the rows."""
        return find_conditions(self.y, self.costs, self.alpha, self.f, self.corners)

    def find_slacks(self) -> F64:
        """Return rho - f_i at the best rho, (n,)."""
        return find_offset(self.costs, self.f, self.total) - self.f

    def prove(self, errors: F64, largest: float, tol: float, is_definite: bool = True) -> Proof:  # noqa: ARG002
        """Return the proof of the objective and its bound."""
        return prove_one_class(self.costs, self.alpha, self.f, self.total, errors, largest, is_definite)


def compute_total(nu: float, costs: F64) -> float:
    """Return N; InputError if no row has a weight."""
    total = nu * math.fsum(costs.tolist())
    if not total > 0.0:
        raise InputError("the sample weights of all rows are zero: there is nothing to learn from")
    return total


def is_full(alpha: F64, total: float) -> bool:
    """Whether the multipliers sum to `total`, but for rounding."""
    return total - math.fsum(alpha[alpha > 0.0].tolist()) <= FULL_SHARE * total


def choose_lowest(costs: F64, alpha: F64, f: F64, size: int) -> I64:
    """Return the `size` rows of the lowest scores among those whose multipliers can rise, ascending."""
    can_rise = np.flatnonzero(alpha < costs)
    return np.sort(can_rise[np.argsort(f[can_rise], kind="stable")[:size]])


def find_rises(costs: F64, alpha: F64, f: F64, total: float) -> F64:
    """Return by how much each multiplier rises, (n,), until they sum to `total`: those of the lowest scores first."""
    if is_full(alpha, total):
        return np.zeros(len(f))
    return raise_lowest(costs - alpha, f, total - math.fsum(alpha.tolist()))
