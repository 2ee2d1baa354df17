"""The normal equations of an interior-point step for w (Jung, O'Leary & Tits 2008, (3.11), (3.12), (3.17), (3.23)).

    M dw = -rbar_w - ybar rbar_a / q,   db = -(ybar.dw - rbar_a) / q
    rbar_w = w - X'Y alpha + X'Y W r_Omega,   rbar_a = y'alpha - y'W r_Omega,   W = diag(C / omega)
    M = I + (q / q_Q) (X_Q' W_Q X_Q - ybar_Q ybar_Q' / q_Q),   ybar = X'W e,   q = e'W e

b is the paper's -gamma, and W its Omega^-1: omega, r_Omega and the other symbols are those of interior_point.steps.
All sums are over all rows, except for those of M, which are over the rows in Q (constraint_reduction). M is positive
definite for any Q (Proposition 3.1). The factor q / q_Q is ours: the rows in Q stand for all rows, with the weight of
all rows. (Without it, ISOLET takes 22 iterations instead of 20, and LETTER 29 instead of 27; of data that were not used
to choose it, 8,000 rows of Web with C = 100 take 46 instead of 35, and 8,000 rows of Adult 19 instead of 21.)
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dsyr
from scipy.linalg.lapack import dpotrf, dpotrs

from streamsvm.methods.interior_point.steps import Point, Targets, aim_at_zero, find_omega, find_right_side, unwarned
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64

MOST_JITTER = 1e-4

Solution = tuple[F64, float]  # dw (d,) and db


class NormalEquations:
    """The equations at one point; M is factored: U'U = M + jitter I.

    gram (d, d): the upper triangle of X_Q'W_Q X_Q. chosen_sum (d,): ybar_Q. chosen_weight: q_Q. FloatingPointError is
    raised if M cannot be factored (`factor`).
    """

    @unwarned
    def __init__(
        self,
        gram: F64,
        chosen_sum: F64,
        chosen_weight: float,
        ybar: F64,
        r_w: F64,
        point: Point,
        y: F64,
        costs: F64,
        bias: float,
    ) -> None:
        self.point, self.y, self.bias, self.ybar, self.r_w = point, y, bias, ybar, r_w
        self.weight, self.r_b = costs / find_omega(point), float(y @ (costs * point.t))
        self.total = float(np.sum(self.weight))
        M, share = np.array(gram, order="F"), 1.0
        if chosen_weight > 0:  # Otherwise Q is empty, and M = I.
            share = self.total / chosen_weight
            M = dsyr(-1.0 / chosen_weight, chosen_sum, a=M, overwrite_a=1)
            M *= share
        M[np.diag_indices_from(M)] += 1.0
        self.U, self.jitter = factor(M, share * float(np.mean(np.diag(gram))))

    @unwarned
    def solve(self, h: F64, targets: Targets) -> Solution:
        """Return dw and db; h (d,) is X'Y W r_Omega with the r_Omega of the targets."""
        found: Solution = self._solve([self._reduce(self.r_w + h, self.r_b, self._side(targets))])[0]
        return found

    @unwarned
    def predict(self, h: F64, center: F64, scales: F64) -> tuple[Solution, Solution]:
        """Return the solution of the predictor, and the change of it that sigma mu = 1 makes.

        h (d,) is X'Y W r_Omega of the predictor, and center (d,) is X'Y W (1/r - 1/t) scales.
        """
        zero = self._reduce(self.r_w + h, self.r_b, self._side(aim_at_zero(self.point)))
        apart = scales * (1.0 / self.point.r - 1.0 / self.point.t)
        predictor, centering = self._solve([zero, self._reduce(center, 0.0, apart)])
        return predictor, centering

    def _side(self, targets: Targets) -> F64:
        side: F64 = find_right_side(self.point, self.y, self.bias, targets)
        return side

    def _reduce(self, r_w: F64, r_b: float, right_side: F64) -> tuple[F64, float]:
        """Return the right-hand side of the equations for dw, and rbar_a."""
        r_b -= float(self.y @ (self.weight * right_side))
        return -r_w - r_b / self.total * self.ybar, r_b

    def _solve(self, sides: list[tuple[F64, float]]) -> list[Solution]:
        found = dpotrs(self.U, np.stack([side for side, _ in sides], axis=1))[0]
        return [
            (dw, -(float(self.ybar @ dw) - r_b) / self.total)
            for dw, (_, r_b) in zip(np.ascontiguousarray(found.T), sides, strict=True)
        ]


def factor(matrix: F64, size: float = 0.0) -> tuple[F64, float]:
    """Return U with U'U = matrix + jitter I, and the jitter; only the upper triangle of the matrix is read.

    The jitter is 0 if the factorisation succeeds without it. Otherwise it is 1e-14 of the mean of the diagonal at
    first, and grows a hundredfold until it is enough. FloatingPointError, which names the pivot, is raised if a
    ten-thousandth of the mean is not enough, or if the matrix is not finite. size: the mean diagonal of the terms of
    the matrix before they were subtracted from one another; the rounding of the difference is of the order of eps size.
    """
    mean, jitter, info = float(np.mean(np.diag(matrix))), 0.0, 1
    while np.isfinite(mean) and jitter <= MOST_JITTER * max(mean, size):
        shifted = np.array(matrix, order="F")
        shifted[np.diag_indices_from(shifted)] += jitter
        U, info = dpotrf(shifted, lower=0, clean=1, overwrite_a=1)
        if info == 0 and np.isfinite(U[-1, -1]):
            return U, jitter
        jitter = max(100.0 * jitter, 1e-14 * mean, UNIT * size)
    raise FloatingPointError(f"the normal equations cannot be factored: pivot {info} of {len(matrix)}")
