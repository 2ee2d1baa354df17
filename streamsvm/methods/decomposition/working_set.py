"""The problem of one working set: some multipliers of the SVC dual move, all the others stay.

    min over a    F(a) = 1/2 (a-a0)'Q(a-a0) + g'(a-a0)       Q_ij = y_i y_j K_ij,  g_i = y_i f_i - 1
    subject to    0 <= a_i <= C_i,    y'a = y'a0

The share of the multipliers outside is in f (Pérez-Cruz et al. 2000, section 2.1: G_in and G_bin; Platt 1998,
eqs. (3)-(5), restricted to the working set). With the errors e_i = -y_i g_i = y_i - f_i (no bias in them),
rows that can still move up have (y, a < C) = +1 or (y, a > 0) = -1, those that can move down the reverse;

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
    """A working set of q rows at the multipliers a0.

    K: (q, q), kernel values, symmetric, float32 or float64, need not be positive semidefinite. y: (q,), -1 or +1.
    alpha: (q,), a0, within 0 and costs. f: (q,), sum over ALL rows j of a0_j y_j k(x_i, x_j), no bias.
    costs: (q,), C_i >= 0. All but K are float64.
    """

    K: F32 | F64
    y: F64
    alpha: F64
    f: F64
    costs: F64

    def bounds(self) -> tuple[F64, F64]:
        """Return the least and the greatest value of y_i a_i."""
        return np.where(self.y > 0, 0.0, -self.costs), np.where(self.y > 0, self.costs, 0.0)

    def moved_to(self, alpha: F64) -> WorkingSet:
        """Return the same problem at other multipliers of the working set."""
        return replace(self, alpha=alpha, f=self.f + self.K @ (self.y * (alpha - self.alpha)))

    def objective(self, alpha: F64) -> float:
        """Return F(alpha); F(a0) = 0, and the SVC dual's objective D falls or rises by -F."""
        step = self.y * (alpha - self.alpha)
        return float(step @ (self.K @ step) / 2 - step @ (self.y - self.f))

    def violation(self) -> float:
        """Return m(a0) - M(a0); -inf where nothing can move."""
        errors, moved = self.y - self.f, self.y * self.alpha
        least, greatest = self.bounds()
        up = np.max(errors, where=moved < greatest, initial=-np.inf)
        down = np.min(errors, where=moved > least, initial=np.inf)
        return float(up - down)

    def repair(self, target: F64) -> F64:
        """Return feasible multipliers near target: inside the box, with y'a = y'a0 to rounding.

        Rows outside the box go to the bound. What the sum then lacks is shared by the rows inside in proportion to
        their room, so that rows on a bound stay there; if these have too little room, by all rows.
        """
        least, greatest = self.bounds()
        moved = np.clip(self.y * target, least, greatest)
        wanted = float(np.sum(self.y * self.alpha))
        for _ in range(2):  # again, for what the first sum has rounded
            lacking = wanted - float(np.sum(moved))
            room = (greatest if lacking > 0 else least) - moved
            inside = np.where((moved > least) & (moved < greatest), room, 0.0)
            if abs(float(np.sum(inside))) >= abs(lacking):
                room = inside
            total = float(np.sum(room))
            moved = np.clip(moved + room * (lacking / total if total else 0.0), least, greatest)
        return np.abs(moved)

    def best_towards(self, target: F64) -> F64:
        """Return the multipliers of least F on the segment from a0 to target, which is feasible."""
        step = self.y * (target - self.alpha)
        slope, curvature = float(step @ (self.y - self.f)), float(step @ (self.K @ step))
        share = 1.0 if 2 * slope > curvature else 0.0  # F falls all the way, or it rises
        if curvature > 0:
            share = max(0.0, slope / curvature)
        if share > 1 - 1e-9:  # the optimum itself, but for rounding: rows on a bound stay on it
            return target
        return np.clip(self.alpha + share * (target - self.alpha), 0.0, self.costs)
