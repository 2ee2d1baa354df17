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

from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsyr
from scipy.linalg.lapack import dpotrf, dpotrs

from streamsvm.methods.interior_point.row_numbers import Course
from streamsvm.methods.interior_point.steps import unwarned
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64

MOST_JITTER = 1e-4

Solution = tuple[F64, float]  # dw (d,) and db


class RightSide(NamedTuple):
    """Sums of r_Omega over all rows, for some targets: h = X'Y W r_Omega (d,), and one = y'W r_Omega."""

    h: F64
    one: float


class NormalEquations:
    """The equations at one point; M is factored: U'U = M + jitter I.

    gram (d, d): the upper triangle of X_Q'W_Q X_Q. chosen_sum (d,): ybar_Q. chosen_weight: q_Q. total: q. r_w and r_b:
    w - X'Y alpha and y'alpha. FloatingPointError is raised if M cannot be factored (`factor`).
    """

    @unwarned
    def __init__(
        self, gram: F64, chosen_sum: F64, chosen_weight: float, ybar: F64, total: float, r_w: F64, r_b: float
    ) -> None:
        self.ybar, self.total, self.r_w, self.r_b = ybar, total, r_w, r_b
        M, share = np.array(gram, order="F"), 1.0
        if chosen_weight > 0:  # Otherwise Q is empty, and M = I.
            share = total / chosen_weight
            M = dsyr(-1.0 / chosen_weight, chosen_sum, a=M, overwrite_a=1)
            M *= share
        M[np.diag_indices_from(M)] += 1.0
        self.U, self.jitter = factor(M, share * float(np.mean(np.diag(gram))))

    @unwarned
    def solve(self, side: RightSide, course: Course) -> Solution:  # noqa: ARG002
        """Return dw and db of the corrector."""
        found: Solution = self._solve([self._reduce(self.r_w + side.h, self.r_b - side.one)])[0]
        return found

    @unwarned
    def predict(self, zero: RightSide, center: RightSide, mean: float) -> tuple[Solution, Solution]:  # noqa: ARG002
        """Return the solution of the predictor, and the change of it that sigma mu = 1 makes."""
        both = self._reduce(self.r_w + zero.h, self.r_b - zero.one), self._reduce(center.h, -center.one)
        predictor, centering = self._solve([*both])
        return predictor, centering

    def _reduce(self, r_w: F64, r_b: float) -> tuple[F64, float]:
        """Return the right-hand side of the equations for dw, and rbar_a."""
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
