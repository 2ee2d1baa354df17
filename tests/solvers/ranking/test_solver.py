"""Algorithm 2 against a QP library, at any step, and its bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import piqp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import diags_array, eye_array, hstack

from streamsvm.certificates.double_double import round_sums
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines.engine import Engine
from streamsvm.engines.local import ThreadedEngine
from streamsvm.losses.pairs import Pairs
from streamsvm.numeric.rows import F32, F64
from streamsvm.options import TrainOptions
from streamsvm.passes import Step
from streamsvm.runs.train import train
from streamsvm.solvers.cutting_plane.line_search import solve_any_loss
from streamsvm.solvers.cutting_plane.master import scale_costs
from streamsvm.solvers.cutting_plane.score_model import SAMPLE_ROWS
from streamsvm.solvers.ranking.solver import PairSearch, Ranking, State, draw_sample, take_exact
from tests.linear_problems import run_steps

Problem = tuple[F32, Pairs]


def list_pairs(problem: Problem) -> tuple[F64, F64]:
    """Differences x_i - x_j of all pairs, and their weights."""
    X, pairs = problem
    differences, weights = [np.zeros((0, X.shape[1]))], []
    for first, end in zip(pairs.starts[:-1], pairs.starts[1:], strict=True):
        for i in range(first, end):
            below = [j for j in range(first, end) if pairs.ranks[i] > pairs.ranks[j]]
            differences.append(X[i].astype(np.float64) - X[below])
            weights += [pairs.weight[i] * pairs.weight[j] for j in below]
    return np.concatenate(differences), np.array(weights)


def minimise(problem: Problem, cost: float) -> float:
    """P at its minimum, by the dual over all pairs, a QP library's."""
    differences, weights = list_pairs(problem)
    m, d = differences.shape
    solver = piqp.SparseSolver()  # of a and v = differences' a, of which there are few: K itself would be m by m
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-10
    squares, unbounded = diags_array(np.repeat([0.0, 1.0], [m, d]), format="csc"), np.full(d, np.inf)
    sums = hstack([differences.T, -eye_array(d)], format="csc")
    bounds = np.append(np.zeros(m), -unbounded), np.append(cost * weights, unbounded)
    solver.setup(squares, np.repeat([-1.0, 0.0], [m, d]), sums, np.zeros(d), None, None, None, *bounds)
    assert solver.solve() == piqp.PIQP_SOLVED
    return measure(problem, cost, np.asarray(solver.result.x)[:m] @ differences)


def measure(problem: Problem, cost: float, w: F64) -> float:
    """P at w, pair by pair."""
    differences, weights = list_pairs(problem)
    return float(w @ w) / 2 + cost * float(weights @ np.maximum(0.0, 1.0 - differences @ w))


def run(
    problem: Problem,
    settings: Ranking,
    state: State | None = None,
    engine: Engine | None = None,
    sample_rows: int = SAMPLE_ROWS,
) -> list[Step]:
    """All steps of a run."""
    X, pairs = problem
    source = ArrayDataset(X, pairs.ranks, np.arange(pairs.ranks.max() + 1))
    sample, start = draw_sample(pairs, settings.pair_cost, sample_rows), state or State.at_zero(X.shape[1])
    return run_steps(source, solve_any_loss(settings, PairSearch(pairs), sample, start), 400, engine)


def make_problem(seed: int, sizes: Sequence[int], n_ranks: int, d: int = 4, weighted: bool = False) -> Problem:
    """Ranks that follow a noisy linear truth."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    X = rng.standard_normal((n, d)).astype(np.float32)
    truth = X @ rng.standard_normal(d) + 0.7 * rng.standard_normal(n)
    ranks = np.clip(np.floor((truth + 2) / 4 * n_ranks), 0, n_ranks - 1).astype(np.int32)
    weight = rng.integers(0, 3, n).astype(float) if weighted else np.ones(n)
    return X, Pairs(ranks, weight, np.concatenate(([0], np.cumsum(sizes))))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    sizes = draw(st.lists(st.integers(2, 14), min_size=1, max_size=4))
    return make_problem(draw(st.integers(0, 10**6)), sizes, draw(st.integers(2, 20)), weighted=draw(st.booleans()))


@given(problems(), st.sampled_from([1e-3, 0.1, 10.0]))
@settings(max_examples=60, deadline=None)
def test_the_optimum_is_that_of_a_qp_library(problem: Problem, cost: float) -> None:
    if problem[1].total == 0.0:
        return
    last = run(problem, Ranking(cost, tol=1e-5))[-1]
    best = minimise(problem, cost)
    assert last.status == "converged"
    assert last.progress.objective == pytest.approx(measure(problem, cost, last.state.best_w), rel=1e-9)
    assert last.progress.objective <= best * (1 + 1e-4)
    assert last.progress.lower_bound is not None
    assert last.progress.lower_bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("accelerated", [True, False])
def test_every_step_is_certified(accelerated: bool) -> None:
    """Bounds are bounds, the objective is that of the model, and neither ever gets worse."""
    problem, cost = make_problem(1, [30, 25], 5), 0.1
    best = minimise(problem, cost)
    steps = run(problem, Ranking(cost, tol=1e-4, accelerated=accelerated))
    assert steps[-1].status == "converged"
    before = (np.inf, 0.0)
    for step in steps:
        objective, lower_bound = step.state.objective, step.state.lower_bound
        assert objective == pytest.approx(measure(problem, cost, step.state.best_w), rel=1e-10)
        assert lower_bound <= best * (1 + 1e-9) <= objective * (1 + 2e-9)
        assert objective <= before[0]
        assert lower_bound >= before[1]
        before = (objective, lower_bound)


@pytest.mark.parametrize("accelerated", [True, False])
def test_a_step_makes_two_passes(accelerated: bool) -> None:
    """With a useful sample the first step does, too; a step that makes only the cut at w = 0 makes one."""
    steps = run(make_problem(2, [40], 2), Ranking(0.05, tol=1e-4, accelerated=accelerated))
    assert [step.progress.passes for step in steps] == [2 * k + (2 if accelerated else 1) for k in range(len(steps))]


def test_the_papers_stop() -> None:
    """Violation of the worst cut at most epsilon, in units of the mean loss of a pair; epsilon bounds what is lost."""
    problem, cost = make_problem(3, [40], 3), 0.1
    for epsilon in (0.1, 0.01):
        for accelerated in (True, False):
            last = run(problem, Ranking(cost, epsilon=epsilon, accelerated=accelerated))[-1]
            assert last.status == ("converged" if last.progress.is_proved(1e-3) else "paper_stop")
            assert last.progress.objective - minimise(problem, cost) <= epsilon * cost * problem[1].total * 1.001


def test_a_sample_that_misleads_costs_steps_and_nothing_else() -> None:
    """The sample has a hundredth of the rows; the optimum is that of all."""
    problem, cost = make_problem(4, [400], 3), 0.001
    whole = run(problem, Ranking(cost, tol=1e-5))[-1]
    last = run(problem, Ranking(cost, tol=1e-5), sample_rows=4)[-1]
    assert last.status == whole.status == "converged"
    assert last.progress.objective == pytest.approx(whole.progress.objective, rel=2e-5)


@pytest.mark.usefixtures("many_groups")
def test_the_same_bits_from_any_step_and_on_threads() -> None:
    X, pairs = make_problem(5, [60, 50, 40], 4, weighted=True)
    settings = Ranking(0.05, tol=1e-6)
    steps = run((X, pairs), settings)
    assert len(steps) > 1
    source = ArrayDataset(X, pairs.ranks, np.arange(4))
    source.chunk_starts = np.append(np.arange(0, len(X), 7), len(X))
    threaded = [run((X, pairs), settings, engine=ThreadedEngine(source, threads)) for threads in (1, 2, 4)]
    again = run((X, pairs), settings, steps[-2].state)
    assert_same(again[-1].state, steps[-1].state)
    for other in threaded[1:]:
        assert_same(other[-1].state, threaded[0][-1].state)


def assert_same(left: Any, right: Any) -> None:
    for part in fields(left):
        np.testing.assert_array_equal(getattr(left, part.name), getattr(right, part.name))


def test_a_warm_start_tells_the_objective_of_its_own_point() -> None:
    """After every step, the first one included; and it begins no higher than at w = 0."""
    problem = make_problem(3, [40], 3)
    before = run(problem, Ranking(0.01, tol=1e-6))[-1].state
    large = Ranking(0.05, tol=1e-6)
    steps = run(problem, large, scale_costs(before, 5.0, large.tol))
    for step in steps:
        assert step.progress.objective == pytest.approx(measure(problem, 0.05, step.state.best_w), rel=1e-9)
    assert steps[0].progress.objective <= measure(problem, 0.05, np.zeros(4)) * (1 + 1e-9)
    assert np.any(steps[0].state.best_w)


def test_every_exact_point_is_tried() -> None:
    """The first has the lowest sum of P and its rounding, but is no better than the state; one P is not a number."""
    none = np.zeros(2)
    state = replace(State.at_zero(2), objective=1.0, objective_rounding=1e-3, magnitudes=none, largest=none)
    points, losses = 1e-9 * np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([1.00001, 0.9999, np.nan])
    rounding = np.array([6e-4, 9e-4, 0.0])
    sizes = rounding / round_sums(np.array([[0.0, 0.0, 1.0, 0.0]]), 2, 1.0)[1]
    moved = take_exact(Ranking(1.0), state, points, np.column_stack((losses, np.zeros(3), sizes, np.zeros(3))), 2)
    np.testing.assert_array_equal(moved.best_w, points[1])
    assert moved.objective == pytest.approx(0.9999, rel=1e-15)


@pytest.mark.parametrize(("scale", "cost"), [(1.0, 1e7), (1000.0, 1e6)])
@pytest.mark.parametrize("seed", range(3))
def test_separable_pairs_of_high_cost_converge(seed: int, scale: float, cost: float) -> None:
    """No pair needs a loss, and a point that keeps a small loss has a P far too high: lines are searched finely."""
    random = np.random.default_rng(seed)
    X = (scale * random.standard_normal((130, 60))).astype(np.float32)
    ranks = np.argsort(np.argsort(X.astype(np.float64) @ random.standard_normal(60))) // 65
    source = ArrayDataset(X, ranks.astype(np.int32), np.arange(2))
    result = train(source, TrainOptions(C=cost, tol=1e-3, task="rank", threads=1, max_passes=60))
    assert result.status == "converged"
