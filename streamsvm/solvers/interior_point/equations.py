"""The normal equations of an interior-point step for w, and the choice of the rows Q that form their matrix.

The choice of Q is constraint reduction (Jung, O'Leary & Tits 2008, section 3.2):

    |Q| = max(q_L, min(ceil(rho n), q_U)),   rho = mu^(1/beta),   beta = 4                                       (3.18)
    q_L = number of rows with 1 / omega >= theta sqrt(mu), theta = 100                                           (3.20)

n is the number of rows (the paper's m), mu the complementarity measure of the point, and q_U a setting. Q holds the
rows with the smallest keys. The key of a row is its omega (interior_point.steps; rule 2 of the paper), or its one-sided
distance y (f + b) + xi - 1 (rule 1). A balanced Q takes half of its rows from each class (3.21, 3.22), and more from
one class if the other has too few.

We add two rules. The rows outside Q have at most a tenth of the sum of all weights C / omega, because mu alone may be
small far from the optimum. And the number of rows in Q is at least half the number of features, if q_U allows it: with
fewer rows, M lacks the rows' curvature in some directions, and steps along these directions end early. (1,500 rows of
ISOLET with 617 features take 14 iterations with this rule, 28 without it, and 13 if Q has all rows.)

Rows in Q with small C |x|^2 / omega are light: their products are float32 (numeric.gram). This changes the matrix far
less than omitting the rows outside Q does: it adds errors of about 1e-7 LIGHT_SUM to a matrix whose eigenvalues are at
least 1. Without a reduction, all products are float64, as the Newton step of the paper's Algorithm 1 requires.

The normal equations (3.11), (3.12), (3.17), (3.23):

    M dw = -rbar_w - ybar rbar_a / q,   db = -(ybar.dw - rbar_a) / q
    rbar_w = w - X'Y alpha + X'Y W r_Omega,   rbar_a = y'alpha - y'W r_Omega,   W = diag(C / omega)
    M = I + (q / q_Q) (X_Q' W_Q X_Q - ybar_Q ybar_Q' / q_Q),   ybar = X'W e,   q = e'W e

b is the paper's -gamma, and W its Omega^-1: omega, r_Omega and the other symbols are those of interior_point.steps.
The sums of M are over the rows in Q, all others over all rows. M is positive definite for any Q (Proposition 3.1). The
factor q / q_Q is ours: the rows in Q represent all rows, so they are given the weight of all rows. (Without it, ISOLET
takes 22 iterations instead of 20, and LETTER 29 instead of 27. On data that were not used to choose the factor, 8,000
rows of Web with C = 100 take 46 iterations instead of 35, and 8,000 rows of Adult 19 instead of 21.)

The equations set the gradient of a sum of squares to 0, with W_i = C_i / omega_i:

    min_{dw, db}  1/2 |w + dw|^2 + 1/2 sum_i W_i (y_i (x_i.dw + db) + r_Omega_i - t_i omega_i)^2

If costs differ by many powers of ten, the rounding error of X'WX hides all products except those of the heavy rows, and
its factorisation needs a jitter of that size. A step with the jitter hardly moves w in directions that depend on light
rows alone, and the run stalls far from the optimum. A QR factorisation of the rows sqrt(W_i) (x_i, 1) and of the
identity keeps the rows apart (numeric.equations). It holds all rows and takes longer, so it is used only if there are
few rows and features.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dsyr
from scipy.linalg.lapack import dpotrf, dpotrs

from streamsvm.numeric.equations import BLOCK, RowQR
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, Flags, Rows, to_dense
from streamsvm.passes import RowState, Scan, Take
from streamsvm.solvers.interior_point import steps
from streamsvm.solvers.interior_point.passes import CHOSEN, WEIGHTS, Smallest, add_counted, scan_states
from streamsvm.solvers.interior_point.state import State
from streamsvm.solvers.interior_point.steps import COSTS, Course, Point, Y, find_omega, point_of, unwarned

LEFT_OUT = 0.1
LIGHT_SUM = 1e6  # the limit of the amount that all light rows together add to the trace of the matrix
DROPPED_BITS = 47  # This leaves the sign, the exponent and 5 bits of the fraction of a float64.
MOST_JITTER = 1e-4
MOST_ROWS, MOST_WIDTH = 512, 256  # The QR factorisation then takes at most 0.1 seconds.


@dataclass(frozen=True)
class Reduction:
    """Settings of the choice of Q.

    name: adaptive-balanced, adaptive, fixed (balanced, always q_U rows) or none. rule: the key of a row, omega or
    distance. most_rows: q_U, or None for all rows. theta and beta are those of (3.20) and (3.18).
    """

    name: str = "adaptive-balanced"
    rule: str = "omega"
    most_rows: int | None = None
    theta: float = 100.0
    beta: float = 4.0

    def find_most_light(self, n_rows: int) -> float:
        """Return the largest amount that a light row may add to the trace of the matrix; 0 if no row may be light."""
        return 0.0 if self.name == "none" else LIGHT_SUM / n_rows

    @unwarned
    def find_limits(
        self, point: Point, y: F64, costs: F64, bias: float, mu: float, growth: float, n_features: float
    ) -> F64:
        """Return the largest key in Q of each class, (2,), y = -1 first; infinity if all rows of the class are in Q.

        growth: the factor, at least 1, by which Q is larger than in (3.18). If the rows are a sample, a share p of all
        rows, then q_U and n_features have to be p times their values for all rows.
        """
        counted = costs > 0
        n = int(np.count_nonzero(counted))
        most = min(n, int(np.ceil(growth * (self.most_rows or n))))
        if self.name == "none" or most == 0:
            return np.full(2, np.inf)
        keys = find_keys(self.rule, point, y, bias)
        least, wanted = np.zeros(len(y), dtype=bool), most
        if self.name != "fixed":
            least = _find_indispensable(self, point, costs, mu) & counted
            rho = max(mu ** (1 / self.beta), n_features / (2 * n))
            wanted = min(int(np.ceil(min(1.0, growth * rho) * n)), most)
        enough = max(int(least.sum()), wanted)
        if self.name == "adaptive":
            return np.full(2, _find_smallest(keys[counted], enough))
        sides = [counted & (y < 0), counted & (y > 0)]
        sizes = [int(np.count_nonzero(side)) for side in sides]
        halves = [min(-(-wanted // 2), size) for size in sizes]
        numbers = [max(int(np.count_nonzero(least & side)), half) for side, half in zip(sides, halves, strict=True)]
        for k in (0, 1):
            numbers[k] = min(sizes[k], numbers[k] + max(0, enough - sum(numbers)))
        return np.array([_find_smallest(keys[side], number) for side, number in zip(sides, numbers, strict=True)])


def find_keys(rule: str, point: Point, y: F64, bias: float) -> F64:
    """Return the key of every row, (n,). The rows with the smallest keys are put into Q first."""
    return find_omega(point) if rule == "omega" else y * (point.f + bias) + point.xi - 1.0


def _find_indispensable(reduction: Reduction, point: Point, costs: F64, mu: float) -> Flags:
    """Return flags of the rows that Q must have: the rows counted by q_L, and the heaviest rows.

    The heaviest rows together have nine tenths of all weights.
    """
    omega = find_omega(point)
    largest = _find_heavy(omega, costs / omega)
    bound = reduction.theta * np.sqrt(mu)
    if reduction.rule == "omega":
        large: Flags = bound * omega <= 1.0
    else:
        large = (point.t >= bound * point.s) | (point.s <= np.sqrt(mu))
    large |= omega <= largest
    return large


def _find_heavy(omega: F64, weight: F64) -> float:
    """Return the omega up to which rows together have the share 1 - LEFT_OUT of all weights.

    Only the leading bits of omega are compared: sign, exponent and 5 bits of the fraction. So the limit is at most a
    32nd too large. As integers, these bits order positive numbers correctly, so a histogram replaces sorting.
    """
    bits = omega.view(np.int64) >> DROPPED_BITS
    first = int(bits.min())
    sums = np.cumsum(np.bincount(bits - first, weight))
    last = first + int(np.searchsorted(sums, (1.0 - LEFT_OUT) * sums[-1]))
    return float(np.array([(last + 1) << DROPPED_BITS]).view(np.float64)[0])


def _find_smallest(keys: F64, number: int) -> float:
    """Return the `number`-th smallest key, or infinity if there are no more keys than that."""
    if number >= len(keys):
        return np.inf
    return float(np.partition(keys, max(0, number - 1))[max(0, number - 1)])


Solution = tuple[F64, float]  # dw (d,) and db


class RightSide(NamedTuple):
    """Sums over all rows of r_Omega, for given targets: h = X'Y W r_Omega, (d,), and one = y'W r_Omega."""

    h: F64
    one: float


class NormalEquations:
    """The normal equations at one point, with the factorisation U'U = M + jitter I.

    gram (d, d): the upper triangle of X_Q'W_Q X_Q. chosen_sum (d,): ybar_Q. chosen_weight: q_Q. total: q. r_w (d,),
    r_b: w - X'Y alpha and y'alpha. Raises FloatingPointError if M cannot be factored (`factor`).
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
        """Return dw and db of the corrector. side: the sums for its targets."""
        return self._solve([self._reduce(self.r_w + side.h, self.r_b - side.one)])[0]

    @unwarned
    def predict(self, zero: RightSide, center: RightSide, mean: float) -> tuple[Solution, Solution]:  # noqa: ARG002
        """Return the solution of the predictor, and its change per unit of sigma mu (pure centering)."""
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

    The jitter is 0 if the factorisation succeeds without it. Otherwise it starts at 1e-14 times the mean of the
    diagonal and is multiplied by 100 until the factorisation succeeds. Raises FloatingPointError naming the pivot if
    1e-4 times the mean is not enough, or if the matrix is not finite. size: the mean diagonal of the terms whose
    difference is the matrix; the rounding error of the difference is of the order of eps size.
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


def count_bytes(n_rows: int, n_features: int) -> int:
    """Return the bytes of RowEquations (the matrix, its copies and the rows), or 0 if they would be too large."""
    few = n_rows <= MOST_ROWS and n_features <= MOST_WIDTH
    return 8 * 5 * (n_rows + n_features + BLOCK) * (n_features + 1) if few else 0


class RowEquations:
    """The equations in least-squares form, used if the normal equations `given` needed a jitter.

    The methods are those of NormalEquations, but they use the rows instead of sums. rows: all rows of positive cost;
    numbers (10, k): the states of these rows. w (d,), bias: the weights and the bias of the point.
    """

    @unwarned
    def __init__(self, given: NormalEquations, rows: Rows, numbers: F64, w: F64, bias: float) -> None:
        self.U, self.jitter, self.rows, self.numbers, self.w, self.bias = given.U, given.jitter, rows, numbers, w, bias
        self.point, self.dws = point_of(numbers), np.empty((steps.N_VECTORS, 0))
        self.roots = np.sqrt(numbers[COSTS] / find_omega(self.point))
        X = to_dense(rows.X)
        weighted = self.roots[:, None] * np.column_stack((X.astype(np.float64), np.ones(len(X))))
        self.qr = RowQR(np.vstack((weighted, np.eye(len(w), len(w) + 1))))

    @unwarned
    def solve(self, side: RightSide, course: Course) -> Solution:  # noqa: ARG002
        """Return dw and db of the corrector.

        course: the scalars of its step. `predict` must have been called before.
        """
        numbers = steps.predict(self.numbers, self.rows, self.dws)
        return self._solve(self._side(steps.find_targets(numbers, course)), self.w)

    @unwarned
    def predict(self, zero: RightSide, center: RightSide, mean: float) -> tuple[Solution, Solution]:  # noqa: ARG002
        """Return the solution of the predictor, and its change per unit of sigma mu (pure centering)."""
        apart = steps.find_scales(self.numbers[COSTS], mean) * (1.0 / self.point.r - 1.0 / self.point.t)
        predictor = self._solve(self._side(steps.aim_at_zero(self.point)), self.w)
        centering = self._solve(apart, np.zeros(len(self.w)))
        self.dws = np.stack((predictor[0], centering[0]))
        return predictor, centering

    def _side(self, targets: steps.Targets) -> F64:
        """Return r_Omega - t omega, (k,)."""
        point = self.point
        side: F64 = steps.find_right_side(point, self.numbers[Y], self.bias, targets) - point.t * find_omega(point)
        return side

    def _solve(self, side: F64, w: F64) -> Solution:
        found = self.qr.solve(-np.concatenate((self.roots * (self.numbers[Y] * side), w)))
        return found[:-1].copy(), float(found[-1])


Equations = NormalEquations | RowEquations


def choose_equations(state: State, held: RowState) -> Generator[Scan | Take, Any, Equations]:
    """Return the normal equations, or RowEquations if M needs a jitter and there are few rows and features.

    RowEquations fetches the rows. Raises FloatingPointError if M cannot be factored even with a jitter.
    """
    chosen, weights = state.sums[[CHOSEN, WEIGHTS]]
    totals = float(state.ones[CHOSEN]), float(state.ones[WEIGHTS])
    given = NormalEquations(state.gram, chosen, totals[0], weights, totals[1], state.r_w, state.r_b)
    if given.jitter == 0.0 or state.counted_rows > MOST_ROWS or len(state.w) > MOST_WIDTH:
        return given
    counted, numbers = (yield scan_states(held, partial(Smallest, MOST_ROWS), add_counted)).by_row()
    return RowEquations(given, (yield Take(counted)), numbers, state.w, state.bias)
