"""Random working sets, and a quadratic program that another library solves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import piqp
from hypothesis import strategies as st

from streamsvm.solvers.decomposition.inner_solvers import run_pairs
from streamsvm.solvers.decomposition.working_set import WorkingSet

F64 = npt.NDArray[np.float64]

KERNELS = ("rbf", "linear", "poly", "sigmoid")


@dataclass(frozen=True)
class Drawn:
    """A working set, and whether its kernel is positive semidefinite."""

    problem: WorkingSet
    definite: bool


def solve_by_pairs(problem: WorkingSet, tol: float, max_steps: int = 10_000_000) -> F64:
    return run_pairs(problem, tol, max_steps)[0]


def make_kernel(X: F64, name: str) -> F64:
    products: F64 = X @ X.T
    squares = np.diagonal(products)
    if name == "rbf":
        products = np.exp(-0.5 * np.maximum(squares[:, None] + squares - 2 * products, 0.0))
    elif name == "poly":
        products = (products / X.shape[1] + 1.0) ** 3
    elif name == "sigmoid":
        products = np.tanh(0.5 * products - 1.0)
    return products


def make_rows(rng: np.random.Generator, q: int, copies: bool) -> F64:
    X = rng.normal(size=(q, 4))
    return X[rng.integers(0, 1 + q // 2, q)] if copies else X


@st.composite
def working_sets(draw: st.DrawFn, spread: bool = True) -> Drawn:
    """q from 2 to 30; costs equal, weighted (0 too) or, with `spread`, over 8 decades; a0 zero or random.

    Costs from 1e-2 to 1e4 where kernel values are at most 1; to 1e2 where they grow, lest f lose its digits.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    q, name = draw(st.integers(2, 30)), draw(st.sampled_from(KERNELS))
    X = make_rows(rng, q, draw(st.booleans()))
    K = make_kernel(X, name).astype(draw(st.sampled_from((np.float32, np.float64))))
    y = rng.choice((-1.0, 1.0), q)
    costs = np.full(q, 10.0 ** draw(st.integers(-2, 4 if name in ("rbf", "sigmoid") else 2)))
    kind = draw(st.sampled_from(("equal", "weighted", "spread") if spread else ("equal", "weighted")))
    if kind == "weighted":
        costs *= rng.choice((0.0, 1.0, 2.5), q)
    elif kind == "spread":
        costs = 10.0 ** rng.uniform(-4, 4, q)
    inside, from_zero = costs * np.clip(1.5 * rng.random(q) - 0.25, 0, 1), draw(st.booleans())
    alpha = np.zeros(q) if from_zero else inside
    f = np.asarray(K, np.float64) @ (y * alpha) + draw(st.sampled_from((0.0, 1.0))) * rng.normal(size=q)
    return Drawn(WorkingSet(K, y, alpha, f, costs), name != "sigmoid")


def make_problem(seed: int, q: int, C: float, name: str = "rbf") -> WorkingSet:
    """All rows of a small training set: a0 = 0, f = 0; labels overlap."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(q, 4))
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=q) > 0, 1.0, -1.0)
    return WorkingSet(make_kernel(X, name).astype(np.float32), y, np.zeros(q), np.zeros(q), np.full(q, C))


def rounding_of_errors(problem: WorkingSet) -> float:
    """Return some epsilons of the largest sum that an error can be made of."""
    K = np.abs(problem.K).max() * problem.costs.sum()
    return float(1000 * np.finfo(np.float64).eps * (1 + np.abs(problem.f).max() + K))


def measure(problem: WorkingSet, alpha: F64) -> tuple[float, float]:
    """F and m - M by their definitions, row by row."""
    step = [float(a - a0) * float(s) for a, a0, s in zip(alpha, problem.alpha, problem.y, strict=True)]
    change = np.asarray(problem.K, np.float64) @ np.array(step)
    value = float(np.dot(step, change) / 2 + np.dot(step, problem.f) - np.sum(alpha - problem.alpha))
    up, down = [-np.inf], [np.inf]
    for a, s, cost, f in zip(alpha, problem.y, problem.costs, problem.f + change, strict=True):
        if (s > 0 and a < cost) or (s < 0 and a > 0):
            up.append(s - f)
        if (s > 0 and a > 0) or (s < 0 and a < cost):
            down.append(s - f)
    return value, float(max(up) - min(down))


def assert_solved(problem: WorkingSet, alpha: F64, tol: float) -> None:
    """Feasible, no worse than the start, and KKT within tol."""
    assert alpha.shape == problem.alpha.shape
    assert np.all((alpha >= 0) & (alpha <= problem.costs))
    assert abs(np.sum(problem.y * (alpha - problem.alpha))) <= 1e-12 * problem.costs.sum()
    value, violation = measure(problem, alpha)
    rounding = rounding_of_errors(problem)
    assert value <= rounding * 1e-3 * problem.costs.sum()
    assert violation <= tol + rounding


def solve_with_library(problem: WorkingSet) -> float:
    """F at the optimum, by PIQP to 1e-10 in variables a; K positive semidefinite."""
    rows = np.flatnonzero(problem.costs > 0)
    y, alpha = problem.y[rows], problem.alpha[rows]
    Q = np.asarray(problem.K, np.float64)[np.ix_(rows, rows)] * np.outer(y, y)
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-10
    linear = y * problem.f[rows] - 1.0 - Q @ alpha
    solver.setup(
        np.asfortranarray(Q),
        linear,
        A=y[None, :],
        b=np.array([y @ alpha]),
        x_l=np.zeros(rows.size),
        x_u=problem.costs[rows],
    )
    solver.solve()
    target = problem.alpha.copy()
    target[rows] = solver.result.x
    return measure(problem, np.clip(target, 0.0, problem.costs))[0]
