"""The two hinges of a row of a regression. At any time the row's multiplier belongs to one of them, its side.

    max(0, |t_i - f_i - b| - epsilon) = max(0, (t_i - epsilon) - f_i - b) + max(0, f_i + b - (t_i + epsilon))

Times C_i, both are hinges C_i max(0, y_i (c_i - f_i - b)), with the side y_i = +1 or -1 and the corner
c_i = t_i - epsilon y_i. A label is the same with c_i = y_i, so that a classification has one hinge a row, and sides
that never change. At the optimum only one of a row's two multipliers is not zero. So a row has one multiplier a_i, and
y_i is the side to which it belongs. A row whose multiplier is zero is put on the side of the bias on which its target
lies, and stays there while an inner solver improves a working set.

Source: Smola & Schoelkopf 2004, "A tutorial on support vector regression", Statistics and Computing 14, section 1.3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.methods.decomposition.fixed_sums import SummedRows
from streamsvm.methods.decomposition.nu_tube import NuTubeRows, Tube
from streamsvm.methods.decomposition.selection import Conditions, find_conditions
from streamsvm.numeric.certificates import Certificate, Proof, certify, find_best_bias, prove
from streamsvm.numeric.rows import F64


class Hinges(NamedTuple):
    """The hinges of n rows: y_i, C_i, a_i, f_i (n,), and the tube of a regression, or None for labels y_i."""

    y: F64
    costs: F64
    alpha: F64
    f: F64
    tube: Tube | None

    @property
    def corners(self) -> F64:
        """The corners c_i, (n,)."""
        return self.y if self.tube is None else self.tube.targets - self.tube.width * self.y

    def certify(self, bias: float | None = None) -> Certificate:
        """Evaluate P and D; see `numeric.certificates.certify`."""
        both = self.list_both()
        return certify(both.y, both.costs, both.alpha, both.f, bias, None if self.tube is None else both.corners)

    def find_conditions(self) -> Conditions:
        """Return the optimality conditions of the rows on their sides."""
        return find_conditions(self.y, self.costs, self.alpha, self.f, self.corners)

    def find_slacks(self) -> F64:
        """Return the larger y_i (c_i - f_i - b) of the hinges of each row, (n,), at the best bias b."""
        both = self.list_both()
        found = both.y * (both.corners - both.f - find_best_bias(both.y, both.costs, both.f, both.corners))
        return found if self.tube is None else np.maximum(*np.split(found, 2))

    def prove(self, errors: F64, largest: float, tol: float, is_definite: bool = True) -> Proof:
        """Return the proof of P and D; see `numeric.certificates.prove`."""
        both = self.list_both()
        errors, corners = (errors, None) if self.tube is None else (np.tile(errors, 2), both.corners)
        return prove(both.y, both.costs, both.alpha, both.f, errors, largest, tol, is_definite, corners)

    def list_both(self) -> Hinges:
        """Return the hinges of either side of every row, (2n,) for a regression."""
        if self.tube is None:
            return self
        n, upper = len(self.y), self.y > 0
        alpha = np.concatenate((np.where(upper, self.alpha, 0.0), np.where(upper, 0.0, self.alpha)))
        tube = Tube(np.tile(self.tube.targets, 2), self.tube.width)
        return Hinges(np.repeat([1.0, -1.0], n), np.tile(self.costs, 2), alpha, np.tile(self.f, 2), tube)


AnyRows = Hinges | SummedRows | NuTubeRows


def choose_sides(rows: AnyRows) -> F64:
    """Return the side of each row, (n,): y itself for labels, and for a multiplier that is not zero.

    The other rows of a regression lie above or below the bias that is half-way between the least corner from which a
    multiplier can fall and the greatest from which one can rise.
    """
    if rows.tube is None:
        return rows.y
    zero, used = rows.alpha == 0.0, rows.costs > 0.0
    above, error = rows.y > 0, rows.tube.targets - rows.f
    rising, falling = error - rows.tube.width, error + rows.tube.width
    full = rows.alpha >= rows.costs
    most = np.max(np.where(above | zero, rising, falling), where=used & (zero | ~above | ~full), initial=-np.inf)
    least = np.min(np.where(above & ~zero, rising, falling), where=used & (zero | above | ~full), initial=np.inf)
    bias = (most + least) / 2 if np.isfinite(most + least) else 0.0
    return np.where(zero, np.where(error >= bias, 1.0, -1.0), rows.y)
