"""SMO on a working set against a closed form, another library and the definitions of what it promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.solvers.decomposition.working_set import WorkingSet
from tests.solvers.decomposition.working_sets import (
    Drawn,
    assert_solved,
    make_problem,
    measure,
    solve_by_pairs,
    solve_with_library,
    working_sets,
)


@settings(deadline=None, max_examples=150)
@given(working_sets())
def test_answer_is_feasible_no_worse_and_within_tol(drawn: Drawn) -> None:
    assert_solved(drawn.problem, solve_by_pairs(drawn.problem, 1e-3), 1e-3)


@settings(deadline=None, max_examples=100)
@given(working_sets(spread=False).filter(lambda drawn: drawn.definite))
def test_objective_is_that_of_another_solver(drawn: Drawn) -> None:
    value = drawn.problem.objective(solve_by_pairs(drawn.problem, 1e-6))
    best = solve_with_library(drawn.problem)
    assert value == pytest.approx(best, rel=1e-6, abs=1e-7 * drawn.problem.costs.sum())


@settings(deadline=None, max_examples=60)
@given(working_sets(), st.integers(0, 20))
def test_objective_falls_with_every_step(drawn: Drawn, steps: int) -> None:
    problem = drawn.problem
    fewer, more = (solve_by_pairs(problem, 1e-9, max_steps=n) for n in (steps, steps + 1))
    assert_solved(problem, more, np.inf)
    before, after = problem.objective(fewer), problem.objective(more)
    assert after <= before + 1e-12 * (abs(before) + problem.costs.max() * np.abs(problem.y - problem.f).max())


@settings(deadline=None, max_examples=40)
@given(working_sets())
def test_equal_input_gives_equal_bits(drawn: Drawn) -> None:
    one, other = (solve_by_pairs(drawn.problem, 1e-4) for _ in range(2))
    assert one.tobytes() == other.tobytes()


@settings(deadline=None, max_examples=100)
@given(*(st.floats(-2, 2) for _ in range(3)), st.floats(0, 1), st.floats(0, 1), st.sampled_from((-1.0, 1.0)))
def test_two_rows_against_the_closed_form(
    f1: float, f2: float, k: float, share1: float, share2: float, s: float
) -> None:
    """Platt 1998, eqs. (7)-(9), with y_1 = 1 and y_2 = s; k beyond 1 makes the curvature negative."""
    problem = WorkingSet(
        np.array([[1.0, k], [k, 1.0]]),
        np.array([1.0, s]),
        np.array([share1, 3 * share2]),
        np.array([f1, f2]),
        np.array([1.0, 3.0]),
    )
    a1, a2 = problem.alpha
    total = a1 + s * a2
    low, high = (max(0.0, total - 1), min(3.0, total)) if s > 0 else (max(0.0, -total), min(3.0, 1 - total))
    ends = np.clip((low, high, a2), 0.0, 3.0)
    if k < 1:
        ends = np.append(ends, np.clip(a2 + s * ((f1 - 1) - (f2 - s)) / (2 - 2 * k), low, high))
    best = min(measure(problem, np.array([np.clip(total - s * a, 0, 1), a]))[0] for a in ends)
    value = problem.objective(solve_by_pairs(problem, 1e-9))
    if k < 1:
        assert value == pytest.approx(best, abs=1e-8)
    assert best - 1e-8 <= value <= 1e-12


def test_errors_do_not_drift_in_many_steps() -> None:
    problem = make_problem(1, 300, 1e4)
    assert_solved(problem, solve_by_pairs(problem, 1e-5), 1e-5)


def test_row_and_copy_of_opposite_class_both_reach_their_cost_exactly() -> None:
    K, costs = np.ones((2, 2), np.float32), np.full(2, 0.3)
    problem = WorkingSet(K, np.array([1.0, -1.0]), np.zeros(2), np.zeros(2), costs)
    np.testing.assert_array_equal(solve_by_pairs(problem, 1e-3), costs)


def test_rows_that_cannot_move_stay() -> None:
    problem = WorkingSet(np.eye(3), np.ones(3), np.zeros(3), np.zeros(3), np.array([1.0, 0.0, 2.0]))
    np.testing.assert_array_equal(solve_by_pairs(problem, 1e-3), np.zeros(3))
