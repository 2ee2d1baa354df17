"""Kernels, objectives and optima of kernel SVMs written out in float64, and a driver of the solver without files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import piqp
from sklearn.svm import SVC

from streamsvm.data.rows.source import RowSource
from streamsvm.engines.local import SerialEngine
from streamsvm.engines.merge import answer
from streamsvm.kernels.kernel import Kernel
from streamsvm.numeric.rows import F32, F64, CsrRows
from streamsvm.options import TrainOptions
from streamsvm.passes import Scan, Step, Take
from streamsvm.solvers.decomposition.solver import solve
from streamsvm.solvers.decomposition.state import Decomposition, State, start_state
from tests.conftest import Problem

KINDS = {
    "linear": Kernel("linear"),
    "rbf": Kernel("rbf", gamma=0.3),
    "poly": Kernel("poly", gamma=0.2, degree=3, coef0=1.0),
    "sigmoid": Kernel("sigmoid", gamma=0.1, coef0=-0.5),
}


def ask_for(kernel: Kernel, **others: Any) -> TrainOptions:
    """Settings of a run with that kernel."""
    return TrainOptions(kernel=kernel.name, gamma=kernel.gamma, degree=kernel.degree, coef0=kernel.coef0, **others)


@dataclass(frozen=True)
class Bracket:
    """The optimum is at least `low` (a dual value) and at most `high` (a primal one), whoever found the points."""

    low: float
    high: float


def compute_matrix(kernel: Kernel, X: F64, Z: F64) -> F64:
    """K (n, m), entry by entry as the kernels are defined."""
    if kernel.name == "rbf":
        return np.exp(-kernel.gamma * np.array([np.sum((Z - x) ** 2, axis=1) for x in X]).reshape(len(X), len(Z)))
    products = X @ Z.T
    if kernel.name == "poly":
        return (kernel.gamma * products + kernel.coef0) ** kernel.degree
    return np.tanh(kernel.gamma * products + kernel.coef0) if kernel.name == "sigmoid" else products


def to_csr(X: F32 | F64, dtype: type = np.float32) -> CsrRows:
    """Sparse rows of a dense matrix."""
    row, column = np.nonzero(X)
    indptr = np.searchsorted(row, np.arange(len(X) + 1)).astype(np.int64)
    return CsrRows(X[row, column].astype(dtype), column.astype(np.int32), indptr, X.shape[1])


def measure(K: F64, y: F64, costs: F64, alpha: F64, bias: float) -> tuple[float, float]:
    """P and D by their definitions."""
    f = K @ (alpha * y)
    half_square = float(alpha @ (y * f)) / 2
    primal = half_square + float(costs @ np.maximum(0.0, 1 - y * (f + bias)))
    return primal, float(alpha.sum()) - half_square


def best_primal(K: F64, y: F64, costs: F64, alpha: F64) -> float:
    """P at the best bias, which is at a corner of the loss: all of them are tried."""
    return min(measure(K, y, costs, alpha, corner)[0] for corner in y - K @ (alpha * y))


def bracket_by_qp(K: F64, y: F64, costs: F64) -> Bracket:
    """PIQP on the dual in t = a / C; its point is put into the box and on the plane y'a = 0."""
    kept = np.flatnonzero(costs > 0)
    C, s = costs[kept], y[kept]
    alpha = np.zeros(len(y))
    if len(set(s)) == 2:
        scale, signed = C.max(), s * C
        solver = piqp.DenseSolver()
        solver.settings.eps_abs = solver.settings.eps_rel = 1e-11
        solver.settings.eps_duality_gap_abs = solver.settings.eps_duality_gap_rel = 1e-11
        Q = np.asfortranarray(K[np.ix_(kept, kept)] * np.outer(signed, signed) / scale)
        solver.setup(Q, -C / scale, A=signed[None, :] / scale, b=np.zeros(1), x_l=np.zeros(len(C)), x_u=np.ones(len(C)))
        solver.solve()
        alpha[kept] = balance(C * np.clip(solver.result.x, 0.0, 1.0), s)
    return Bracket(measure(K, y, costs, alpha, 0.0)[1], best_primal(K, y, costs, alpha))


def balance(alpha: F64, y: F64) -> F64:
    """Multipliers with sum y a = 0: those of the heavier side, smaller in proportion."""
    up, down = alpha[y > 0].sum(), alpha[y < 0].sum()
    lighter = min(up, down)
    return alpha * np.where(y > 0, lighter / up if up else 0.0, lighter / down if down else 0.0)


def bracket_by_libsvm(K: F64, y: F64, costs: F64) -> Bracket:
    """LIBSVM through scikit-learn, tol 1e-5; rows without a cost it is not shown."""
    kept = np.flatnonzero(costs > 0)
    model = SVC(C=1.0, kernel="precomputed", tol=1e-5)
    model.fit(K[np.ix_(kept, kept)], y[kept], sample_weight=costs[kept])
    alpha = np.zeros(len(y))
    alpha[kept[model.support_]] = np.abs(model.dual_coef_[0])
    return Bracket(measure(K, y, costs, balance(alpha, y), 0.0)[1], best_primal(K, y, costs, alpha))


def matrix_of(problem: Problem, kernel: Kernel) -> F64:
    """K of a problem's rows, in float64."""
    X = problem.dense()
    return compute_matrix(kernel, X, X)


def drive(source: RowSource, settings: Decomposition, state: State | None = None, most_steps: int = 400) -> list[Step]:
    """All steps of the solver to its end."""
    engine = SerialEngine(source)
    solver = solve(settings, state or start_state(source.n_rows))
    steps: list[Step] = []
    request = next(solver)
    while len(steps) < most_steps and not (steps and steps[-1].status):
        if isinstance(request, Step):
            steps.append(request)
            request = solver.send(None)
        else:
            assert isinstance(request, Scan | Take)
            request = solver.send(answer(engine, request))
    return steps
