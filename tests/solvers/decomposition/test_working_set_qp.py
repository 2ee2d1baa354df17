"""The QP library on a working set, and the working set's own arithmetic."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.solvers.decomposition import inner_solvers
from streamsvm.solvers.decomposition.inner_solvers import solve_by_irwls, solve_by_qp
from streamsvm.solvers.decomposition.working_set import WorkingSet
from streamsvm.system.errors import InputError
from tests.solvers.decomposition.working_sets import (
    Drawn,
    assert_solved,
    make_problem,
    measure,
    rounding_of_errors,
    solve_by_pairs,
    working_sets,
)

Solve = Callable[[WorkingSet, float], npt.NDArray[np.float64]]


@settings(deadline=None, max_examples=150)
@given(working_sets())
def test_answer_is_feasible_no_worse_and_within_tol(drawn: Drawn) -> None:
    assert_solved(drawn.problem, solve_by_qp(drawn.problem, 1e-3), 1e-3)


@settings(deadline=None, max_examples=80)
@given(working_sets(spread=False).filter(lambda drawn: drawn.definite))
def test_objective_is_that_of_pair_steps(drawn: Drawn) -> None:
    value, other = (drawn.problem.objective(solve(drawn.problem, 1e-6)) for solve in (solve_by_qp, solve_by_pairs))
    assert value == pytest.approx(other, rel=1e-6, abs=1e-7 * drawn.problem.costs.sum())


@pytest.mark.parametrize("C", [1e-2, 1.0, 1e2, 1e4])
def test_the_library_alone_reaches_the_optimum(C: float, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(5, 150, C)
    best = problem.objective(solve_by_pairs(problem, 1e-6))
    monkeypatch.setattr(inner_solvers, "solve_by_few_pairs", lambda problem, _tol: problem.alpha)
    alpha = solve_by_qp(problem, 1e-3)
    assert_solved(problem, alpha, 1e-3)
    assert problem.objective(alpha) == pytest.approx(best, rel=1e-6)


def test_indefinite_kernel_falls_from_any_start(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(6, 60, 10.0, "sigmoid")
    begun = problem.moved_to(solve_by_pairs(problem, 1e-3, max_steps=20))
    monkeypatch.setattr(inner_solvers, "solve_by_few_pairs", lambda problem, _tol: problem.alpha)
    assert measure(begun, solve_by_qp(begun, 1e-3))[0] < 0


@pytest.mark.parametrize(
    ("module", "solve", "inner"),
    [(inner_solvers, solve_by_irwls, "_reweight"), (inner_solvers, solve_by_qp, "_solve_with_piqp")],
)
def test_inner_answer_that_is_worse_than_the_start_is_not_taken(
    module: ModuleType, solve: Solve, inner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = make_problem(8, 60, 10.0)
    begun = begun.moved_to(solve_by_pairs(begun, 1e-3, max_steps=60))
    monkeypatch.setattr(module, "solve_by_few_pairs", lambda problem, _tol: problem.alpha)
    monkeypatch.setattr(module, inner, lambda problem, _tol: problem.costs)
    assert measure(begun, begun.repair(begun.costs))[0] > 0
    assert measure(begun, solve(begun, 1e-6))[0] <= 1e-9


@settings(deadline=None, max_examples=100)
@given(working_sets(), st.integers(0, 2**32))
def test_no_point_of_the_segment_is_better_than_the_best(drawn: Drawn, seed: int) -> None:
    problem = drawn.problem
    target = problem.repair(problem.costs * np.random.default_rng(seed).random(len(problem.y)))
    grid = [measure(problem, problem.alpha + share * (target - problem.alpha))[0] for share in np.linspace(0, 1, 21)]
    best = measure(problem, problem.best_towards(target))[0]
    assert best <= min(grid) + 1e-6 * np.abs(grid).max() + rounding_of_errors(problem) * problem.costs.sum()


def test_missing_library_is_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "piqp", None)
    with pytest.raises(InputError, match=r"pip install streamsvm\[qp\]"):
        solve_by_qp(make_problem(7, 10, 1.0), 1e-3)


@settings(deadline=None, max_examples=40)
@given(working_sets())
def test_equal_input_gives_equal_bits(drawn: Drawn) -> None:
    one, other = (solve_by_qp(drawn.problem, 1e-4) for _ in range(2))
    assert one.tobytes() == other.tobytes()


@settings(deadline=None, max_examples=100)
@given(working_sets(), st.integers(0, 2**32))
def test_violation_and_objective_are_those_of_the_definitions(drawn: Drawn, seed: int) -> None:
    problem = drawn.problem
    alpha = problem.costs * np.clip(1.5 * np.random.default_rng(seed).random(len(problem.y)) - 0.25, 0, 1)
    value, violation = measure(problem, alpha)
    size = problem.costs.sum() * (1 + np.abs(problem.f).max() + np.abs(problem.K).max() * problem.costs.sum())
    assert problem.objective(alpha) == pytest.approx(value, abs=1e-12 * size)
    assert problem.moved_to(alpha).violation() == pytest.approx(violation, rel=1e-9, abs=1e-12 * size)


@settings(deadline=None, max_examples=100)
@given(working_sets(), st.integers(0, 2**32), st.floats(1e-12, 2.0))
def test_repair_is_feasible_and_keeps_rows_on_bounds(drawn: Drawn, seed: int, size: float) -> None:
    problem = drawn.problem
    noise = size * np.random.default_rng(seed).normal(size=len(problem.y))
    target = problem.alpha + noise * problem.costs * (problem.alpha > 0) * (problem.alpha < problem.costs)
    repaired = problem.repair(target)
    assert np.all((repaired >= 0) & (repaired <= problem.costs))
    assert abs(np.sum(problem.y * (repaired - problem.alpha))) <= 1e-13 * problem.costs.sum()
    if size < 1e-9:
        np.testing.assert_array_equal(repaired[problem.alpha == 0], 0.0)
