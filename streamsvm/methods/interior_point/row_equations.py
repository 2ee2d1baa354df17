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

from streamsvm.methods.interior_point.normal_equations import NormalEquations, Solution
from streamsvm.methods.interior_point.state import State
from streamsvm.methods.interior_point.steps import Targets, aim_at_zero, find_omega, find_right_side, unwarned
from streamsvm.methods.interior_point.sums import CHOSEN, WEIGHTS
from streamsvm.numeric.row_qr import BLOCK, RowQR
from streamsvm.numeric.rows import F64, I64, CsrRows, Rows, to_dense
from streamsvm.requests import Take

MOST_ROWS, MOST_WIDTH = 512, 256  # The factorisation takes 0.1 seconds at most.


def count_bytes(n_rows: int, n_features: int) -> int:
    """Return the bytes of the matrix, its copies and the rows, if there are few enough."""
    few = n_rows <= MOST_ROWS and n_features <= MOST_WIDTH
    return 8 * 5 * (n_rows + n_features + BLOCK) * (n_features + 1) if few else 0


class RowEquations:
    """The equations at the point of the normal equations `given`, which could be factored with a jitter only.

    rows, numbers (k,): all rows of positive cost, and their numbers. w (d,): the weights at the point. The methods do
    what the methods of NormalEquations do, and form the sums from the rows.
    """

    @unwarned
    def __init__(self, given: NormalEquations, rows: Rows, numbers: I64, w: F64) -> None:
        self.U, self.jitter, self.given, self.numbers, self.w = given.U, given.jitter, given, numbers, w
        self.roots = np.sqrt(given.weight[numbers])
        X = to_dense(rows.X) if isinstance(rows.X, CsrRows) else rows.X
        weighted = self.roots[:, None] * np.column_stack((X.astype(np.float64), np.ones(len(X))))
        self.qr = RowQR(np.vstack((weighted, np.eye(len(w), len(w) + 1))))

    @unwarned
    def solve(self, h: F64, targets: Targets) -> Solution:  # noqa: ARG002
        """Return dw and db for the targets."""
        return self._solve(self._side(targets), self.w)

    @unwarned
    def predict(self, h: F64, center: F64, scales: F64) -> tuple[Solution, Solution]:  # noqa: ARG002
        """Return the solution of the predictor, and the change of it that sigma mu = 1 makes."""
        point = self.given.point
        apart = scales * (1.0 / point.r - 1.0 / point.t)
        return self._solve(self._side(aim_at_zero(point)), self.w), self._solve(apart, np.zeros(len(self.w)))

    def _side(self, targets: Targets) -> F64:
        """Return r_Omega - t omega, (n,)."""
        point = self.given.point
        side: F64 = find_right_side(point, self.given.y, self.given.bias, targets) - point.t * find_omega(point)
        return side

    def _solve(self, side: F64, w: F64) -> Solution:
        own = self.roots * (self.given.y * side)[self.numbers]
        found = self.qr.solve(-np.concatenate((own, w)))
        return found[:-1].copy(), float(found[-1])


Equations = NormalEquations | RowEquations


def choose_equations(state: State) -> Generator[Take, Any, Equations]:
    """Return the normal equations, or the equations of the rows if a factor needs a jitter and the rows are few.

    The rows are taken then. FloatingPointError is raised if neither of them can be factored.
    """
    point, y, costs = state.point, state.y, state.costs
    gram, chosen, weights = state.gram, state.sums[CHOSEN], state.sums[WEIGHTS]
    given = NormalEquations(gram, chosen, state.chosen_weight, weights, state.r_w, point, y, costs, state.bias)
    counted = np.flatnonzero(costs > 0)
    if given.jitter == 0.0 or len(counted) > MOST_ROWS or len(state.w) > MOST_WIDTH:
        return given
    return RowEquations(given, (yield Take(counted)), counted, state.w)
