"""Independent optima, and a driver of solvers without files, threads or folders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import piqp
from sklearn.svm import LinearSVC

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines.engine import Engine
from streamsvm.engines.local import SerialEngine
from streamsvm.engines.merge import answer
from streamsvm.passes import All, Requests, Scan, Step
from streamsvm.solvers.cutting_plane.line_search import CuttingPlane, LineState, solve
from tests.conftest import Problem

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bracket:
    """The optimum is at least `low` (a dual value) and at most `high` (a primal one), whoever found the points."""

    low: float
    high: float


def each_step(source: ArrayDataset, solver: Requests, engine: Engine | None = None) -> Iterator[Step]:
    """Yield the steps of a solver, without keeping earlier ones."""
    engine, request = engine or SerialEngine(source), next(solver)
    while True:
        if not isinstance(request, Step):
            request = solver.send(answer(engine, request))
            continue
        yield request
        if request.status:
            return
        request = solver.send(None)


def run_steps(source: ArrayDataset, solver: Requests, most: int = 200, engine: Engine | None = None) -> list[Step]:
    """All steps of a solver, or so many."""
    return list(islice(each_step(source, solver, engine), most))


def with_bias(problem: Problem, bias_feature: float) -> F64:
    return np.column_stack((problem.dense(), np.full(len(problem.y), bias_feature)))


def primal(problem: Problem, costs: F64, w: F64, bias_feature: float = 1.0) -> float:
    """P at w, whose last entry weighs the constant feature."""
    margins = problem.y * (with_bias(problem, bias_feature) @ w)
    return float(w @ w / 2 + costs @ np.maximum(0.0, 1.0 - margins))


def bracket_by_qp(problem: Problem, costs: F64, bias_feature: float = 1.0) -> Bracket:
    """Solve the SVM's dual by PIQP: max sum a - 1/2 |Z'a|^2, 0 <= a <= C, z_i = y_i x_i; a = C t, t in [0, 1]."""
    Z = problem.y[:, None] * with_bias(problem, bias_feature)
    kept = costs > 0
    Z, C = Z[kept], costs[kept]
    scale = C.max()
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-12
    solver.settings.eps_duality_gap_abs = solver.settings.eps_duality_gap_rel = 1e-12
    scaled = Z * (C / np.sqrt(scale))[:, None]
    solver.setup(np.asfortranarray(scaled @ scaled.T), -C / scale, x_l=np.zeros(len(C)), x_u=np.ones(len(C)))
    solver.solve()
    a = C * np.clip(solver.result.x, 0.0, 1.0)
    w = Z.T @ a
    return Bracket(float(a.sum() - w @ w / 2), primal(problem, costs, w, bias_feature))


def objective_by_liblinear(problem: Problem, costs: F64, bias_feature: float = 1.0) -> float:
    """P where LIBLINEAR's dual coordinate descent ends."""
    model = LinearSVC(
        C=1.0, loss="hinge", dual=True, tol=1e-8, max_iter=1_000_000, intercept_scaling=bias_feature, random_state=0
    )
    model.fit(problem.X, problem.y, sample_weight=costs)
    w = np.append(model.coef_[0], model.intercept_[0] / bias_feature)
    return primal(problem, costs, w, bias_feature)


def drive(
    problem: Problem, settings: CuttingPlane, most_steps: int = 2000, state: LineState | None = None
) -> list[tuple[Scan, Step]]:
    """Every look along a segment that a solver asks for and the step it makes of it, to its end."""
    engine = SerialEngine(problem.in_memory())
    solver = solve(settings, state or LineState.at_zero(engine.source.n_features + 1))
    steps: list[tuple[Scan, Step]] = []
    request = next(solver)
    while len(steps) < most_steps and not (steps and steps[-1][1].status):
        assert isinstance(request, All)
        look = request.requests[0]
        assert isinstance(look, Scan)
        step = solver.send(answer(engine, request))
        assert isinstance(step, Step)
        steps.append((look, step))
        request = solver.send(None)
    return steps
