"""The problem of one working set: its multipliers move, and the multipliers of all other rows stay.

    min over a    F(a) = 1/2 (a-a0)'Q(a-a0) + g'(a-a0)       Q_ij = y_i y_j K_ij,  g_i = y_i (f_i - c_i)
    subject to    0 <= a_i <= C_i,    y'a = y'a0

This is the QP of Platt 1998, eqs. (3)-(5), restricted to the working set. The sums f_i include the multipliers outside
it, which enter Pérez-Cruz et al. 2000 (section 2.1) as G_in and G_bin. The corners c_i are the labels y_i, or those of
a regression (tube.py). The errors are e_i = -y_i g_i = c_i - f_i, without a bias. A row can move up if y_i a_i can grow
(y_i = +1 and a_i < C_i, or y_i = -1 and a_i > 0), and it can move down if y_i a_i can fall. The optimality
conditions are violated by

    violation = max over up of e_i - min over down of e_j          (LIBSVM's m(a) - M(a); <= 0 at the optimum)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import F64

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class WorkingSet:
    """A working set of q rows at the multipliers a0. All arrays but K are float64.

    K: (q, q), symmetric kernel values in float32 or float64; K need not be positive semidefinite.
    y: (q,), -1 or +1. alpha: (q,), a0, with 0 <= a0_i <= C_i. costs: (q,), C_i >= 0.
    corners: (q,), c_i, or None if they are y.
    by_side: whether the sums of the multipliers of both sides y_i are kept, and not y'a alone (see fixed_sums.py). Then
    only pair steps can solve the problem, and the violation is that of the worse side.
    f: (q,), the sum over ALL rows j, inside and outside of the set, of a0_j y_j k(x_i, x_j), without a bias.
    """

    K: F32 | F64
    y: F64
    alpha: F64
    f: F64
    costs: F64
    corners: F64 | None = None
    by_side: bool = False

    @property
    def errors(self) -> F64:
        """The errors e_i at a0, (q,)."""
        errors: F64 = (self.y if self.corners is None else self.corners) - self.f
        return errors

    def bounds(self) -> tuple[F64, F64]:
        """Return the least and the greatest value of y_i a_i."""
        return np.where(self.y > 0, 0.0, -self.costs), np.where(self.y > 0, self.costs, 0.0)

    def moved_to(self, alpha: F64) -> WorkingSet:
        """Return the same problem at other multipliers of the working set."""
        return replace(self, alpha=alpha, f=self.f + self.K @ (self.y * (alpha - self.alpha)))

    def objective(self, alpha: F64) -> float:
        """Return F(alpha). F(a0) is 0, and the dual objective D of the whole problem changes by -F(alpha)."""
        step = self.y * (alpha - self.alpha)
        return float(step @ (self.K @ step) / 2 - step @ self.errors)

    def violation(self) -> float:
        """Return m(a0) - M(a0), or -inf if no row can move up or none can move down."""
        errors, moved = self.errors, self.y * self.alpha
        least, greatest = self.bounds()
        sides = (self.y > 0, self.y < 0) if self.by_side else (np.ones(len(errors), np.bool_),)
        up = [np.max(errors, where=side & (moved < greatest), initial=-np.inf) for side in sides]
        down = [np.min(errors, where=side & (moved > least), initial=np.inf) for side in sides]
        return float(np.max(np.subtract(up, down)))

    def repair(self, target: F64) -> F64:
        """Return feasible multipliers near `target`: 0 <= a_i <= C_i, and y'a = y'a0 to rounding.

        Multipliers outside the box go to the nearer bound. The multipliers between their bounds then make up the
        difference in the sum, each in proportion to its room, so that the others stay on their bounds. If the room is
        too small, all multipliers take part.
        """
        least, greatest = self.bounds()
        moved = np.clip(self.y * target, least, greatest)
        wanted = float(np.sum(self.y * self.alpha))
        for _ in range(2):  # the second time corrects the rounding of the first
            lacking = wanted - float(np.sum(moved))
            room = (greatest if lacking > 0 else least) - moved
            inside = np.where((moved > least) & (moved < greatest), room, 0.0)
            if abs(float(np.sum(inside))) >= abs(lacking):
                room = inside
            total = float(np.sum(room))
            moved = np.clip(moved + room * (lacking / total if total else 0.0), least, greatest)
        return np.abs(moved)

    def best_towards(self, target: F64) -> F64:
        """Return the multipliers of least F on the segment from a0 to the feasible `target`."""
        step = self.y * (target - self.alpha)
        slope, curvature = float(step @ self.errors), float(step @ (self.K @ step))
        share = 1.0 if 2 * slope > curvature else 0.0  # without curvature, one of the ends is the best
        if curvature > 0:
            share = max(0.0, slope / curvature)
        if share > 1 - 1e-9:  # the target is the optimum but for rounding: multipliers on a bound stay on it
            return target
        return np.clip(self.alpha + share * (target - self.alpha), 0.0, self.costs)
