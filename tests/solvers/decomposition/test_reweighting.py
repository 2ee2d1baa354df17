"""IRWLS on a working set: the same answer as SMO, and the same promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from streamsvm.solvers.decomposition import inner_solvers
from streamsvm.solvers.decomposition.inner_solvers import solve_by_irwls
from streamsvm.solvers.decomposition.working_set import WorkingSet
from tests.solvers.decomposition.working_sets import (
    Drawn,
    assert_solved,
    make_problem,
    solve_by_pairs,
    solve_with_library,
    working_sets,
)


@settings(deadline=None, max_examples=150)
@given(working_sets())
def test_answer_is_feasible_no_worse_and_within_tol(drawn: Drawn) -> None:
    assert_solved(drawn.problem, solve_by_irwls(drawn.problem, 1e-3), 1e-3)


@settings(deadline=None, max_examples=80)
@given(working_sets(spread=False).filter(lambda drawn: drawn.definite))
def test_objective_is_that_of_another_solver(drawn: Drawn) -> None:
    value = drawn.problem.objective(solve_by_irwls(drawn.problem, 1e-6))
    best = solve_with_library(drawn.problem)
    assert value == pytest.approx(best, rel=1e-6, abs=1e-7 * drawn.problem.costs.sum())


@pytest.mark.parametrize("C", [1e-2, 1.0, 1e2, 1e4])
@pytest.mark.parametrize("name", ["rbf", "poly"])
def test_reweighting_alone_reaches_the_optimum_of_smo(C: float, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(2, 150, C, name)
    best = problem.objective(solve_by_pairs(problem, 1e-6))
    monkeypatch.setattr(inner_solvers, "solve_by_few_pairs", lambda problem, _tol: problem.alpha)
    alpha = solve_by_irwls(problem, 1e-5)
    assert_solved(problem, alpha, 1e-5)
    assert problem.objective(alpha) == pytest.approx(best, rel=1e-6)


def test_reweighting_goes_on_from_multipliers_with_others_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make_problem(3, 200, 10.0)
    rows = np.arange(0, 200, 2)
    begun = whole.moved_to(solve_by_pairs(whole, 1e-3, max_steps=60))
    part = WorkingSet(begun.K[np.ix_(rows, rows)], begun.y[rows], begun.alpha[rows], begun.f[rows], begun.costs[rows])
    assert abs(part.y @ part.alpha) > 0.1
    best = part.objective(solve_by_pairs(part, 1e-6))
    monkeypatch.setattr(inner_solvers, "solve_by_few_pairs", lambda problem, _tol: problem.alpha)
    alpha = solve_by_irwls(part, 1e-5)
    assert_solved(part, alpha, 1e-5)
    assert part.objective(alpha) == pytest.approx(best, rel=1e-6)


def test_pair_steps_finish_what_an_indefinite_kernel_stops() -> None:
    problem = make_problem(4, 60, 10.0, "sigmoid")
    assert np.linalg.eigvalsh(problem.K)[0] < -1
    assert_solved(problem, solve_by_irwls(problem, 1e-4), 1e-4)


@settings(deadline=None, max_examples=40)
@given(working_sets())
def test_equal_input_gives_equal_bits(drawn: Drawn) -> None:
    one, other = (solve_by_irwls(drawn.problem, 1e-4) for _ in range(2))
    assert one.tobytes() == other.tobytes()


def test_a_row_that_hardly_falls_does_not_end_the_search() -> None:
    """Its corners are beyond the range of float64; the minimum is where the other row meets its margin."""
    r, falls, costs, guard = np.array([3.0, 1.0]), np.array([1e-310, 0.5]), np.ones(2), 1e-6
    assert inner_solvers._search(0.1, 1e-3, r, falls, costs, guard) == pytest.approx(2.0, rel=1e-5)
