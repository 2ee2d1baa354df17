"""Algorithm 2 query by query: the optimum of a QP library, and what the driver's own solver finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm import RankSVM
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines.engine import Engine
from streamsvm.engines.local import ThreadedEngine
from streamsvm.passes import Step
from streamsvm.problems.ranking import find_query_pairs
from streamsvm.solvers.cutting_plane import score_model
from streamsvm.solvers.cutting_plane.line_search import solve_any_loss
from streamsvm.solvers.cutting_plane.master import scale_costs
from streamsvm.solvers.ranking.solver import PairSample, QuerySearch, Ranking, State
from tests.linear_problems import run_steps
from tests.solvers.ranking import test_solver as held
from tests.solvers.ranking.test_solver import Problem, assert_same, make_problem, measure, minimise

EVEN = np.array([1.0, 2.0, 0.5])


def make_source(problem: Problem, chunk_rows: int) -> ArrayDataset:
    X, pairs = problem
    qid = np.repeat(np.arange(len(pairs.starts) - 1), np.diff(pairs.starts))
    source = ArrayDataset(X, pairs.ranks, np.arange(pairs.ranks.max() + 1), pairs.weight**2, qid=qid)
    source.chunk_starts = np.append(np.arange(0, len(X), chunk_rows), len(X))
    return source


def run(
    source: ArrayDataset,
    settings: Ranking,
    state: State | None = None,
    engine: Engine | None = None,
    sample: int = 8192,
) -> list[Step]:
    """All steps of a run."""
    found = find_query_pairs(source, sample)
    cost, is_whole = settings.pair_cost * found.total / found.sample.total, len(found.rows) == source.n_rows
    chosen = PairSample(cost, found.rows, is_whole=is_whole, pairs=found.sample)
    start = state or State.at_zero(source.n_features)
    solver = solve_any_loss(settings, QuerySearch((0, source.n_rows)), chosen, start)
    return run_steps(source, solver, 400, engine)


def weigh_queries(problem: Problem, seed: int) -> Problem:
    """Give all rows of a query one weight."""
    X, pairs = problem
    sizes = np.diff(pairs.starts)
    weight = np.sqrt(np.repeat(EVEN[np.random.default_rng(seed).integers(0, 3, len(sizes))], sizes))
    return X, replace(pairs, weight=weight)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    sizes, seed = draw(st.lists(st.integers(2, 14), min_size=1, max_size=5)), draw(st.integers(0, 10**6))
    return weigh_queries(make_problem(seed, sizes, draw(st.integers(2, 20))), seed)


@pytest.mark.usefixtures("many_groups")
@given(problems(), st.sampled_from([1e-3, 0.1, 10.0]), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_the_optimum_is_that_of_a_qp_library(problem: Problem, cost: float, chunk_rows: int) -> None:
    if problem[1].total == 0.0:
        return
    last = run(make_source(problem, chunk_rows), Ranking(cost, tol=1e-5))[-1]
    best = minimise(problem, cost)
    assert last.status == "converged"
    assert last.progress.objective == pytest.approx(measure(problem, cost, last.state.best_w), rel=1e-9)
    assert last.progress.objective <= best * (1 + 1e-4)
    assert last.progress.lower_bound is not None
    assert last.progress.lower_bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("accelerated", [True, False])
def test_it_finds_what_the_drivers_own_solver_finds_with_half_the_passes(accelerated: bool) -> None:
    problem = weigh_queries(make_problem(1, [30, 25, 40, 35], 5), 0)
    settings = Ranking(0.1, tol=1e-4, accelerated=accelerated)
    steps, others = run(make_source(problem, 13), settings), held.run(problem, settings)
    assert [step.progress.objective for step in steps] == pytest.approx(
        [step.progress.objective for step in others], rel=1e-9
    )
    assert [step.progress.passes for step in steps] == list(range(1, len(steps) + 1))
    first = 2 if accelerated else 1
    assert [step.progress.passes for step in others] == [first + 2 * k for k in range(len(steps))]


def test_the_papers_stop() -> None:
    problem, cost = make_problem(3, [20, 20], 3), 0.1
    for epsilon in (0.1, 0.01):
        last = run(make_source(problem, 7), Ranking(cost, epsilon=epsilon))[-1]
        assert last.status == ("converged" if last.progress.is_proved(1e-3) else "paper_stop")
        assert last.progress.objective - minimise(problem, cost) <= epsilon * cost * problem[1].total * 1.001


def test_a_sample_that_misleads_costs_passes_and_nothing_else() -> None:
    """One query of forty is all that the line search looks at; the optimum is that of all."""
    problem, cost = make_problem(4, [10] * 40, 3), 0.01
    source = make_source(problem, 33)
    whole, last = run(source, Ranking(cost, tol=1e-5))[-1], run(source, Ranking(cost, tol=1e-5), sample=10)[-1]
    assert last.status == whole.status == "converged"
    assert last.progress.objective == pytest.approx(whole.progress.objective, rel=2e-5)


def test_a_higher_point_is_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a step that is far too long, nearer points are looked at in the same pass, and P never rises."""
    monkeypatch.setattr(score_model, "find_step", lambda *_: 1.0)
    monkeypatch.setattr(score_model, "ROWS_A_FEATURE", np.inf)
    problem = make_problem(5, [30, 30], 3)
    steps = run(make_source(problem, 11), Ranking(0.5, tol=1e-4))
    objectives = [step.progress.objective for step in steps]
    assert objectives == sorted(objectives, reverse=True)
    assert steps[-1].status == "converged"


@pytest.mark.usefixtures("many_groups")
def test_the_same_bits_from_any_step_and_on_threads() -> None:
    problem, settings = weigh_queries(make_problem(5, [60, 50, 40], 4), 1), Ranking(0.05, tol=1e-6)
    source = make_source(problem, 7)
    steps = run(source, settings)
    assert len(steps) > 1
    again = run(source, settings, steps[-2].state)
    assert_same(again[-1].state, steps[-1].state)
    for threads in (1, 2, 4):
        assert_same(run(source, settings, engine=ThreadedEngine(source, threads))[-1].state, steps[-1].state)


@pytest.mark.parametrize("seed", [0, 4])
def test_the_line_search_is_not_misled_where_no_cut_was_made_at_the_best_point(seed: int) -> None:
    """Queries of weights over 12 decades: P of the best point is found in twice the precision, without a cut.

    The highest cut there had another slope than P, so that the search ended at the first pair of a high cost, and
    P fell by the same small step for a thousand passes.
    """
    rng = np.random.default_rng(seed)
    X, queries = rng.normal(size=(200, 30)).astype(np.float32), np.sort(rng.integers(0, 40, 200))
    ranks, weight = rng.integers(0, 2, 200), 10.0 ** rng.uniform(-6, 6, 40)
    model = RankSVM(tol=1e-6, n_jobs=1, max_passes=500).fit(X, ranks, qid=queries, sample_weight=weight[queries])
    first, second = np.nonzero((ranks[:, None] > ranks) & (queries[:, None] == queries))
    cost = weight[queries][first]
    cost *= np.sum(weight[queries]) / np.sum(cost)
    w = model.coef_[0].astype(np.float64)
    losses = np.maximum(0.0, 1.0 - (X[first].astype(np.float64) - X[second]) @ w)
    assert model.status_ == "converged"
    assert w @ w / 2 + cost @ losses == pytest.approx(model.lower_bound_, rel=1e-5)


def test_the_total_cost_after_a_warm_start_is_the_loss_at_zero() -> None:
    """It bounds the rounding of P, although the first step does not begin at w = 0."""
    problem, large = make_problem(3, [9, 14, 17], 3), Ranking(0.05, tol=1e-6)
    source = make_source(problem, 7)
    before = run(source, Ranking(0.01, tol=1e-6))[-1].state
    first = run(source, large, scale_costs(before, 5.0, large.tol))[0]
    assert first.state.total_cost == pytest.approx(measure(problem, 0.05, np.zeros(problem[0].shape[1])))
