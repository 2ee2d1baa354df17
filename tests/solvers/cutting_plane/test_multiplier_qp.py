"""Multipliers of a few rows by an interior-point method: against a QP library, and beside fixed ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from streamsvm.solvers.cutting_plane.small_qp import BLOCK_ROWS, maximise_shares, multiply_rows
from streamsvm.solvers.cutting_plane.smoothed_newton import HingeRows
from tests.conftest import Problem, make_problem
from tests.linear_problems import bracket_by_qp, with_bias

F64 = npt.NDArray[np.float64]
CLASS_COSTS = (0.5, 2.0)
PROBLEMS = {
    "dense": make_problem(1, n=70, d=5),
    "sparse-weighted": make_problem(2, n=70, d=120, density=0.2, weighted=True),
    "copies": Problem(np.repeat(make_problem(3, n=10, d=30).X, 4, axis=0), np.tile([-1, 1, 1, -1], 10)),
    "no-cost": Problem(make_problem(4, n=10, d=3).X, np.tile([-1, 1], 5), np.zeros(10)),
}
every_problem = pytest.mark.parametrize("name", PROBLEMS)


def costs_of(problem: Problem) -> F64:
    return problem.costs(1.0, *CLASS_COSTS)


def climb(problem: Problem, share: F64, w: F64, bias_feature: float, tol: float = 1e-9) -> F64:
    """Multipliers of all rows of the problem."""
    data = HingeRows(problem.in_memory().read(0), problem.y.astype(np.float64), costs_of(problem), bias_feature)
    return maximise_shares(data, multiply_rows(data.rows, bias_feature), share, w, tol)[0]


def dual(problem: Problem, share: F64, bias_feature: float, fixed: F64 | float = 0.0) -> float:
    w = (costs_of(problem) * share * problem.y) @ with_bias(problem, bias_feature) + fixed
    return float(costs_of(problem) @ share - w @ w / 2)


@every_problem
@pytest.mark.parametrize("bias_feature", [1.0, 3.0])
def test_the_optimum_is_that_of_a_qp_library(name: str, bias_feature: float) -> None:
    problem = PROBLEMS[name]
    n, width = len(problem.y), problem.X.shape[1] + 1
    share = climb(problem, np.zeros(n), np.zeros(width), bias_feature)
    assert np.all((share >= 0.0) & (share <= 1.0))
    assert not share[costs_of(problem) == 0].any()
    if costs_of(problem).any():
        optimum = bracket_by_qp(problem, costs_of(problem), bias_feature)
        assert optimum.low * (1 - 1e-8) <= dual(problem, share, bias_feature) <= optimum.high * (1 + 1e-9)


def test_other_multipliers_stay_and_the_dual_never_falls() -> None:
    """From a good start, as well, and where more is asked for than float64 can give."""
    problem, random = PROBLEMS["dense"], np.random.default_rng(0)
    fixed, start = random.normal(size=6), random.random(70)
    w = (costs_of(problem) * start * problem.y) @ with_bias(problem, 1.0) + fixed
    share = climb(problem, start, w, 1.0)
    assert dual(problem, share, 1.0, fixed) > dual(problem, start, 1.0, fixed)
    w = (costs_of(problem) * share * problem.y) @ with_bias(problem, 1.0) + fixed
    slope = 1.0 - problem.y * (with_bias(problem, 1.0) @ w)
    gap = float(costs_of(problem) @ (np.maximum(slope, 0.0) - share * slope))
    assert gap <= 1e-8 * abs(10.0 + dual(problem, share, 1.0, fixed))
    again = climb(problem, share, w, 1.0, tol=0.0)
    assert dual(problem, again, 1.0, fixed) >= dual(problem, share, 1.0, fixed) * (1 - 1e-14)


@every_problem
def test_products_are_those_of_the_rows(name: str) -> None:
    """Over the borders of blocks."""
    problem = PROBLEMS[name]
    assert BLOCK_ROWS < 70
    rows = with_bias(problem, 2.0)
    found = multiply_rows(problem.in_memory().read(0), 2.0)
    np.testing.assert_allclose(found, rows @ rows.T, rtol=1e-12, atol=1e-10)


def test_a_start_without_slope_stays() -> None:
    """Both margins are exactly 1 there, so that nothing is left to be gained."""
    problem = Problem(np.array([[1.0], [-1.0]], np.float32), np.array([1, -1]))
    share = np.array([0.25, 0.5])
    np.testing.assert_array_equal(climb(problem, share, np.array([1.0, 0.0]), 1.0, tol=0.0), share)
