"""The equations of an interior-point step, solved with the rows themselves in place of sums of their products.

The normal equations (normal_equations) are the gradient of a sum of squares, with W_i = C_i / omega_i:

    min_{dw, db}  1/2 |w + dw|^2 + 1/2 sum_i W_i (y_i (x_i.dw + db) + r_Omega_i - t_i omega_i)^2

Where costs differ by many powers of ten, the products of the heavy rows hide the products of all others in the rounding
of X'WX, whose factor then needs a jitter of that size. A step with the jitter hardly moves w in directions in which
light rows alone count, and the run stalls far from the optimum. A QR factorisation of the rows sqrt(W_i) (x_i, 1) and
of the identity keeps them apart (numeric.row_qr). It holds all rows and takes time of its own, so it is for few rows
and features only.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from streamsvm.methods.interior_point.normal_equations import NormalEquations, RightSide, Solution
from streamsvm.methods.interior_point.row_numbers import (
    COSTS,
    N_VECTORS,
    Course,
    Y,
    find_targets,
    point_of,
    predict,
)
from streamsvm.methods.interior_point.row_passes import add_counted, find_smallest
from streamsvm.methods.interior_point.state import State
from streamsvm.methods.interior_point.steps import (
    Targets,
    aim_at_zero,
    find_omega,
    find_right_side,
    find_scales,
    unwarned,
)
from streamsvm.methods.interior_point.sums import CHOSEN, WEIGHTS
from streamsvm.numeric.row_qr import BLOCK, RowQR
from streamsvm.numeric.rows import F64, CsrRows, Rows, to_dense
from streamsvm.requests import RowState, Scan, Take

MOST_ROWS, MOST_WIDTH = 512, 256  # The factorisation takes 0.1 seconds at most.


def count_bytes(n_rows: int, n_features: int) -> int:
    """Return the bytes of the matrix, its copies and the rows, if there are few enough."""
    few = n_rows <= MOST_ROWS and n_features <= MOST_WIDTH
    return 8 * 5 * (n_rows + n_features + BLOCK) * (n_features + 1) if few else 0


class RowEquations:
    """The equations at the point of the normal equations `given`, which could be factored with a jitter only.

    rows, numbers (10, k): all rows of positive cost, and their numbers (row_numbers). w (d,), bias: of the point. The
    methods do what the methods of NormalEquations do, and form the sums from the rows.
    """

    @unwarned
    def __init__(self, given: NormalEquations, rows: Rows, numbers: F64, w: F64, bias: float) -> None:
        self.U, self.jitter, self.rows, self.numbers, self.w, self.bias = given.U, given.jitter, rows, numbers, w, bias
        self.point, self.dws = point_of(numbers), np.empty((N_VECTORS, 0))
        self.roots = np.sqrt(numbers[COSTS] / find_omega(self.point))
        X = to_dense(rows.X) if isinstance(rows.X, CsrRows) else rows.X
        weighted = self.roots[:, None] * np.column_stack((X.astype(np.float64), np.ones(len(X))))
        self.qr = RowQR(np.vstack((weighted, np.eye(len(w), len(w) + 1))))

    @unwarned
    def solve(self, side: RightSide, course: Course) -> Solution:  # noqa: ARG002
        """Return dw and db of the corrector, after `predict`."""
        return self._solve(self._side(find_targets(predict(self.numbers, self.rows, self.dws), course)), self.w)

    @unwarned
    def predict(self, zero: RightSide, center: RightSide, mean: float) -> tuple[Solution, Solution]:  # noqa: ARG002
        """Return the solution of the predictor, and the change of it that sigma mu = 1 makes."""
        apart = find_scales(self.numbers[COSTS], mean) * (1.0 / self.point.r - 1.0 / self.point.t)
        predictor = self._solve(self._side(aim_at_zero(self.point)), self.w)
        centering = self._solve(apart, np.zeros(len(self.w)))
        self.dws = np.stack((predictor[0], centering[0]))
        return predictor, centering

    def _side(self, targets: Targets) -> F64:
        """Return r_Omega - t omega, (k,)."""
        point = self.point
        side: F64 = find_right_side(point, self.numbers[Y], self.bias, targets) - point.t * find_omega(point)
        return side

    def _solve(self, side: F64, w: F64) -> Solution:
        found = self.qr.solve(-np.concatenate((self.roots * (self.numbers[Y] * side), w)))
        return found[:-1].copy(), float(found[-1])


Equations = NormalEquations | RowEquations


def choose_equations(state: State, held: RowState) -> Generator[Scan | Take, Any, Equations]:
    """Return the normal equations, or the equations of the rows if a factor needs a jitter and the rows are few.

    The rows are taken then. FloatingPointError is raised if neither of them can be factored.
    """
    chosen, weights = state.sums[[CHOSEN, WEIGHTS]]
    totals = float(state.ones[CHOSEN]), float(state.ones[WEIGHTS])
    given = NormalEquations(state.gram, chosen, totals[0], weights, totals[1], state.r_w, state.r_b)
    if given.jitter == 0.0 or state.counted_rows > MOST_ROWS or len(state.w) > MOST_WIDTH:
        return given
    counted, numbers = (yield find_smallest(held, MOST_ROWS, add_counted)).by_row()
    return RowEquations(given, (yield Take(counted)), numbers, state.w, state.bias)
