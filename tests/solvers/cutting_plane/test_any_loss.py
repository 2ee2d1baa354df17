"""Cutting planes for any convex loss, tried on the hinge loss, whose optimum is known."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.options import TrainOptions
from streamsvm.passes import Take
from streamsvm.problems.classification import Hinge
from streamsvm.solvers.cutting_plane import line_search, line_search_setup
from streamsvm.solvers.cutting_plane.cuts import is_noisy
from streamsvm.solvers.cutting_plane.line_search import ANY_LOSS_STEPS, AnyLoss, AnyLossState
from streamsvm.solvers.options import AnyLossOptions
from streamsvm.solvers.set_up import set_up as choose_solver
from streamsvm.solvers.solver import Budget, Solver
from tests.conftest import Problem, make_problem
from tests.linear_problems import bracket_by_qp, primal, run_steps

DENSE = make_problem(4, n=400, d=6, weighted=True)
SPARSE = make_problem(5, n=400, d=20, density=0.3)


def set_up(source: ArrayDataset, n_rows: int = 100, has_sample: bool = True, **settings: Any) -> Solver:
    """The solver, with a sample of about n_rows if it has a sample."""
    with patch.object(line_search_setup, "count_sample_rows", lambda _: n_rows):
        budget = Budget(1 << 30)
        return line_search_setup.AnyLossSolver(source, TrainOptions(**settings), AnyLossOptions(), budget, has_sample)


def count_passes(source: ArrayDataset, **settings: Any) -> int:
    fit = set_up(source, C=1.0, **settings)
    last = run_steps(source, fit.solve(fit.start()), most=2000)[-1]
    assert last.status == "converged"
    return last.progress.passes


def test_a_sample_saves_passes() -> None:
    """With all rows in the sample, the first pass makes the cuts that prove the optimum found in memory."""
    source = make_problem(4, n=4000, d=6).in_memory()
    alone = count_passes(source, has_sample=False)
    assert count_passes(source, n_rows=400) <= alone / 2
    assert count_passes(source, n_rows=4000) <= 2


@pytest.mark.parametrize("n_rows", [55, 400])
def test_too_few_rows_are_no_sample(n_rows: int) -> None:
    """There are 7 weights, so that 56 rows are enough, or all rows."""
    fit = set_up(DENSE.in_memory(), n_rows=n_rows)
    assert isinstance(next(fit.solve(fit.start())), Take) == (n_rows == 400)


def test_a_sample_takes_a_part_of_the_memory() -> None:
    """Without it, cutting planes take little memory."""
    source, options = DENSE.in_memory(), TrainOptions()
    solvers = [line_search_setup.AnyLossSolver(source, options, AnyLossOptions(), Budget(n)) for n in (10**6, 10**9)]
    assert [solver.drawn is not None for solver in solvers] == [False, True]
    assert solvers[0].memory(1).driver_bytes < solvers[1].memory(1).driver_bytes


@pytest.mark.parametrize(("megabytes", "has_sample"), [(400, False), (1000, True)])
def test_a_sample_has_no_part_of_the_memory_of_any_process(megabytes: int, has_sample: bool) -> None:
    """Otherwise limits that suffice without a sample would be refused."""
    source = make_problem(4, n=20_000, d=50).in_memory()
    options = TrainOptions(task="regress", solver="cutting-plane", memory_bytes=megabytes * 10**6)
    fit: Any = choose_solver(replace(source, target=np.zeros(20_000), classes=None), options)
    assert (fit.drawn is not None) == has_sample


def test_a_warm_start_whose_objective_is_rounded_makes_cuts() -> None:
    """Its first points cannot come from the sample."""
    source = DENSE.in_memory()
    small, large = (set_up(source, C=C, tol=1e-13) for C in (0.1, 1.0))
    before = run_steps(source, small.solve(small.start()), most=20)[-1].state
    state = large.warm_start(before, 10.0)
    assert is_noisy(state, 1e-13)
    steps = run_steps(source, large.solve(state), most=5)
    assert steps[-1].progress.objective < state.objective


def test_the_rounding_of_a_loss_does_not_grow_with_the_passes() -> None:
    """The points determine it: a total cost that grows with every pass would bound it by far more than the loss."""
    source = SPARSE.in_memory()
    fit = set_up(source, has_sample=False, C=100.0, tol=1e-6)
    states = [step.state for step in run_steps(source, fit.solve(fit.start()), most=30)]
    assert states[-1].total_cost == states[-10].total_cost


def test_the_memory_of_a_sample_is_planned() -> None:
    source = DENSE.in_memory()
    few, many = (set_up(source, n_rows=n_rows).memory(1).driver_bytes for n_rows in (100, 200))
    assert few > set_up(source, has_sample=False).memory(1).driver_bytes
    assert many - few > 50 * source.nbytes / source.n_rows  # repeated rows are drawn once


@pytest.mark.parametrize("problem", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("C", [0.01, 1.0])
@pytest.mark.parametrize("n_rows", [0, 200, 400])
def test_the_hinge_loss_is_minimised_as_by_a_qp_library(problem: Problem, C: float, n_rows: int) -> None:
    source, costs = problem.in_memory(), problem.costs(C)
    optimum = bracket_by_qp(problem, costs)
    fit = set_up(source, n_rows or 1, n_rows > 0, C=C, tol=1e-5)
    steps = run_steps(source, fit.solve(fit.start()), most=2000)
    assert steps[-1].status == "converged"
    for step in steps:
        assert step.state.objective == pytest.approx(primal(problem, costs, step.state.best_w), rel=1e-9)
        assert step.state.objective >= optimum.low * (1 - 1e-9)
        assert step.state.lower_bound <= optimum.high * (1 + 1e-9)


@pytest.mark.parametrize("has_sample", [False, True])
def test_gone_on_from_any_state_to_the_same_bits(has_sample: bool) -> None:
    source = DENSE.in_memory()
    fit = set_up(source, has_sample=has_sample, tol=1e-4)
    steps = run_steps(source, fit.solve(fit.start()), most=2000)
    for k in range(0, len(steps) - 1, 1 if has_sample else 5):
        rest = run_steps(source, fit.solve(deepcopy(steps[k].state)), most=2000)
        assert [step.progress for step in rest] == [step.progress for step in steps[k + 1 :]]


def test_a_warm_start_is_below_the_optimum_of_larger_costs() -> None:
    source, costs = DENSE.in_memory(), DENSE.costs(1.0)
    optimum = bracket_by_qp(DENSE, costs)
    small, large = (set_up(source, C=C, tol=1e-5) for C in (0.1, 1.0))
    before = run_steps(source, small.solve(small.start()), most=2000)[-1].state
    state = large.warm_start(before, 10.0)
    assert 0.0 < state.lower_bound <= optimum.high * (1 + 1e-9)
    last = run_steps(source, large.solve(state), most=2000)[-1]
    assert last.status == "converged"
    assert last.progress.objective <= optimum.high * (1 + 2e-5)


@given(seed=st.integers(0, 10**6), log_scale=st.integers(-6, 6))
def test_cuts_lie_below_the_loss_whatever_was_rounded(seed: int, log_scale: int) -> None:
    """In long double, at points that have nothing to do with the cut's, for features and points of any scale."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((30, 4)) * 10.0**log_scale).astype(np.float32)
    y = (rng.random(30) < 0.5).astype(np.int32)
    source, loss = ArrayDataset(X, y, np.array([0, 1])), Hinge((0.7, 1.3))
    points = rng.standard_normal((len(ANY_LOSS_STEPS), 5)) * 10.0 ** -(log_scale / 2)
    settings = AnyLoss(loss)
    state = AnyLossState.at_zero(5)
    search = line_search.RowSearch().evaluate(settings, None, state, points)
    requests: Any = next(search)
    totals, sizes = (scan.start() for scan in requests.requests)
    for rows in source.tiles(0):
        line_search.add_tangents(totals, rows, points, loss, 1.0)
        line_search.add_sizes(sizes, rows, loss, 1.0)
    with pytest.raises(StopIteration) as ended:
        search.send([totals, sizes])
    state, _, cuts, _ = ended.value.value
    wide = np.hstack([X, np.ones((30, 1), np.float32)]).astype(np.longdouble)
    signs, costs = np.where(y == 1, 1.0, -1.0), np.where(y == 1, 1.3, 0.7)
    for w in rng.standard_normal((20, 5)) * 10.0 ** -(log_scale / 2):
        exact = np.sum(costs * np.maximum(0, 1 - signs * (wide @ w.astype(np.longdouble))))
        rounding = 1e-13 * (cuts.sizes + np.abs(w) @ state.magnitudes)
        assert np.all(totals.costs - totals.gradients @ w <= float(exact) + rounding)


def test_sizes_are_not_measured_again_after_a_warm_start() -> None:
    """They bound the rounding of cuts that were kept: measured anew, they would be too small for these."""
    source = DENSE.in_memory()
    small, large = (set_up(source, has_sample=False, C=C, tol=1e-5) for C in (0.1, 1.0))
    before = run_steps(source, small.solve(small.start()), most=2000)[-1].state
    state = large.warm_start(before, 10.0)
    asked: Any = next(large.solve(state))
    assert len(asked.requests) == 1
    after = run_steps(source, large.solve(state), most=1)[0].state
    assert after.total_cost >= max(state.total_cost, float(np.max(after.sizes)))
