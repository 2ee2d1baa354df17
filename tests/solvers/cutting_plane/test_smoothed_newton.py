"""Newton's method on the smoothed hinge: its gaps are true, and it reaches them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.solvers.cutting_plane import smoothed_newton
from streamsvm.solvers.cutting_plane.smoothed_newton import (
    HingeRows,
    Linear,
    Optimum,
    minimise,
    minimise_few,
    minimise_rows,
)
from tests.conftest import F64, Problem, make_problem
from tests.linear_problems import bracket_by_qp, with_bias

LONG = np.longdouble


def hold(problem: Problem, costs: F64, bias_feature: float = 1.0) -> HingeRows:
    rows = problem.in_memory().take(np.arange(len(problem.y)))
    return HingeRows(rows, problem.y.astype(np.float64), costs, bias_feature)


def evaluate(problem: Problem, costs: F64, linear: Linear, w: F64, bias_feature: float = 1.0) -> float:
    """F in long double."""
    Z = (problem.y[:, None] * with_bias(problem, bias_feature)).astype(LONG)
    hinge = costs.astype(LONG) @ np.maximum(0, 1 - Z @ w.astype(LONG))
    return float(w.astype(LONG) @ w / 2 - linear.slope.astype(LONG) @ w + linear.value + hinge)


def evaluate_dual(problem: Problem, costs: F64, linear: Linear, shares: F64, bias_feature: float = 1.0) -> float:
    """D in long double."""
    Z = (problem.y[:, None] * with_bias(problem, bias_feature)).astype(LONG)
    alpha = costs.astype(LONG) * shares
    v = linear.slope.astype(LONG) + Z.T @ alpha
    return float(linear.value + alpha.sum() - v @ v / 2)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(4, 120),
    d=st.integers(1, 12),
    density=st.sampled_from([1.0, 0.3]),
    weighted=st.booleans(),
    log_C=st.floats(-4, 2),
    log_slope=st.floats(-3, 2),
    tol=st.sampled_from([1e-3, 1e-6]),
)
def test_values_are_true_and_the_gap_is_reached(
    seed: int, n: int, d: int, density: float, weighted: bool, log_C: float, log_slope: float, tol: float
) -> None:
    problem = make_problem(seed, n=n, d=d, density=density, weighted=weighted)
    costs, random = problem.costs(10.0**log_C), np.random.default_rng(seed)
    slope = 10.0**log_slope * random.normal(size=d + 1)
    linear, none, data = Linear(slope, float(slope @ slope)), Linear(np.zeros(d + 1), 0.0), hold(problem, costs)
    start = random.normal(size=d + 1)
    for terms, found in (  # the constant of `linear` makes F positive
        (linear, minimise(data, linear, tol, np.zeros(d + 1))),
        (linear, minimise_few(data, linear, tol, np.zeros(d + 1))),
        (none, minimise_few(data, none, tol, np.zeros(d + 1))),
        (none, minimise_few(data, none, tol, start)),
        (linear, minimise_few(data, linear, tol, start)),
    ):
        assert np.all((found.shares >= 0.0) & (found.shares <= 1.0))
        assert found.objective == pytest.approx(evaluate(problem, costs, terms, found.w), rel=1e-9)
        assert found.lower_bound == pytest.approx(
            evaluate_dual(problem, costs, terms, found.shares), rel=1e-9, abs=1e-9 * found.objective
        )
        assert found.objective - found.lower_bound <= tol * found.objective


@pytest.mark.parametrize("density", [1.0, 0.3])
def test_the_optimum_is_that_of_a_quadratic_program(density: float) -> None:
    problem = make_problem(3, n=300, d=8, density=density, weighted=True)
    costs = problem.costs(5.0)
    found = minimise(hold(problem, costs, 2.0), Linear(np.zeros(9), 0.0), 1e-9, np.zeros(9))
    optimum = bracket_by_qp(problem, costs, 2.0)
    assert found.objective == pytest.approx(optimum.high, rel=1e-7)
    assert found.lower_bound <= optimum.high
    assert found.objective >= optimum.low


@pytest.mark.parametrize("density", [1.0, 0.3])
def test_newtons_matrix_is_the_second_derivative(density: float) -> None:
    """Of 1/2 |w|^2, and of the rows, the constant feature included."""
    problem, random = make_problem(6, n=50, d=4, density=density), np.random.default_rng(1)
    weight, used = random.uniform(size=20), np.arange(0, 40, 2)
    Z = with_bias(problem, 3.0)[used]
    matrix = hold(problem, np.ones(50), 3.0).add_products(used, weight)
    np.testing.assert_allclose(np.triu(matrix), np.triu(np.eye(5) + Z.T @ (weight[:, None] * Z)), rtol=1e-6)


def test_features_of_very_different_scales_are_no_reason_to_stay_at_the_start() -> None:
    """At w = 0 no row is within the width of the margin, and the step along the gradient is then far too long."""
    problem, scales = make_problem(5, n=300, d=4), np.array([1.0, 1e-3, 1e3, 1e6])
    problem = replace(problem, X=(problem.X * scales).astype(np.float32))
    costs = problem.costs(1.0)
    data, none = hold(problem, costs), np.zeros(5)
    linear = Linear(none, 0.0)
    for found in (minimise(data, linear, 1e-4, none), minimise_few(data, linear, 1e-4, none)):
        assert found.objective - found.lower_bound <= 1e-4 * found.objective
        assert found.objective < 0.9 * costs.sum(), "better than w = 0"


@pytest.mark.parametrize("fails", [False, True])
def test_few_rows_are_minimised_in_python_only_if_the_compiled_method_fails(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, start, calls = make_problem(6, n=900, d=6), np.zeros(7), []
    data, linear = hold(problem, problem.costs(1.0)), Linear(np.ones(7), 10.0)
    worst = Optimum(start, np.inf, np.zeros(900), -np.inf)
    monkeypatch.setattr(smoothed_newton, "minimise", lambda *args: calls.append(1) or minimise(*args))
    if fails:
        monkeypatch.setattr(smoothed_newton, "minimise_few", lambda *_: replace(worst, objective=1.0))
    found = minimise_rows(data, linear, 1e-6, start)
    assert bool(calls) == fails
    assert found.objective - found.lower_bound <= 1e-6 * abs(found.objective)


@pytest.mark.parametrize("size", [1e-30, 1e19, 1e30])
def test_what_rounding_cannot_solve_ends_with_true_values(size: float) -> None:
    """Newton's matrix overflows, or a step descends no more; the points that were found are returned."""
    problem = make_problem(7, n=60, d=3)
    problem = replace(problem, X=(problem.X * np.float32(size)).astype(np.float32))
    costs = problem.costs(1e8)
    found = minimise_few(hold(problem, costs), Linear(np.zeros(4), 0.0), 1e-6, np.zeros(4))
    assert np.all(np.isfinite(found.w))
    assert found.objective == pytest.approx(evaluate(problem, costs, Linear(np.zeros(4), 0.0), found.w), rel=1e-6)
    assert found.lower_bound <= found.objective


def test_a_start_at_the_optimum_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first width is the one with the highest lower bound, not the widest."""
    problem = make_problem(6, n=400, d=6)
    data, none, steps = hold(problem, problem.costs(1.0)), Linear(np.zeros(7), 0.0), []
    add_products = HingeRows.add_products
    monkeypatch.setattr(HingeRows, "add_products", lambda *args: steps.append(1) or add_products(*args))
    first = minimise(data, none, 1e-6, np.zeros(7))
    n_first = len(steps)
    again = minimise(data, none, 1e-6, first.w)
    assert again.objective - again.lower_bound <= 1e-6 * again.objective
    assert len(steps) - n_first <= n_first // 2


def test_rows_without_costs_do_not_count() -> None:
    problem = make_problem(5, n=40, d=3)
    found = minimise(hold(problem, np.zeros(40)), Linear(np.ones(4), 2.0), 1e-9, np.zeros(4))
    np.testing.assert_allclose(found.w, np.ones(4), rtol=1e-12)
    assert found.objective == pytest.approx(0.0, abs=1e-12)
