"""Algorithm 2 by histograms: the optimum of a QP library, and what the solver finds that holds all scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines.engine import Engine
from streamsvm.engines.local import ThreadedEngine
from streamsvm.losses import histograms
from streamsvm.losses.pairs import Pairs
from streamsvm.passes import Step
from streamsvm.problems.ranking import find_few_ranks
from streamsvm.solvers.cutting_plane import score_model
from streamsvm.solvers.cutting_plane.line_search import solve_any_loss
from streamsvm.solvers.cutting_plane.master import scale_costs
from streamsvm.solvers.ranking.solver import HistogramSearch, PairSample, Ranking, State
from tests.linear_problems import run_steps
from tests.solvers.ranking import test_solver as held
from tests.solvers.ranking.test_solver import Problem, assert_same, make_problem, measure, minimise


def make_source(problem: Problem, chunk_rows: int) -> ArrayDataset:
    X, pairs = problem
    source = ArrayDataset(X, pairs.ranks, np.arange(pairs.ranks.max() + 1), pairs.weight)
    source.chunk_starts = np.append(np.arange(0, len(X), chunk_rows), len(X))
    return source


def run(
    source: ArrayDataset,
    settings: Ranking,
    state: State | None = None,
    engine: Engine | None = None,
    sample: int = score_model.SAMPLE_ROWS,
) -> list[Step]:
    """All steps of a run."""
    few = find_few_ranks(source, "rank", sample)
    cost = settings.pair_cost * few.totals.of_pairs / few.sample.total
    is_whole = len(few.rows) == source.n_rows
    chosen = PairSample(cost, few.rows, is_whole=is_whole, pairs=few.sample)
    search = HistogramSearch(few.totals, source.n_rows)
    solver = solve_any_loss(settings, search, chosen, state or State.at_zero(source.n_features))
    return run_steps(source, solver, 400, engine)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    n, seed = draw(st.integers(2, 50)), draw(st.integers(0, 10**6))
    return make_problem(seed, [n], draw(st.integers(2, 9)), weighted=draw(st.booleans()))


@pytest.mark.usefixtures("many_groups")
@given(problems(), st.sampled_from([1e-3, 0.1, 10.0]), st.integers(6, 30))
@settings(max_examples=25, deadline=None)
def test_the_optimum_is_that_of_a_qp_library(problem: Problem, cost: float, chunk_rows: int) -> None:
    if problem[1].total == 0.0:
        return
    last = run(make_source(problem, chunk_rows), Ranking(cost, tol=1e-4))[-1]
    best, P = minimise(problem, cost), measure(problem, cost, last.state.best_w)
    assert last.progress.lower_bound is not None
    if best > 1e-2 * cost * problem[1].total:  # the rows are not separable, or the margin costs as much as a loss does
        assert last.status == "converged"
        assert last.progress.objective <= best * (1 + 2e-4)
    assert P * (1 - 1e-9) <= last.progress.objective <= P * (1 + 1e-5)
    assert last.progress.lower_bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("accelerated", [True, False])
def test_it_finds_what_the_solver_with_all_scores_finds_in_as_many_passes(accelerated: bool) -> None:
    problem = make_problem(1, [130], 5, weighted=True)
    settings = Ranking(0.1, tol=1e-4, accelerated=accelerated)
    steps, others = run(make_source(problem, 13), settings), held.run(problem, settings)
    assert [step.progress.passes for step in steps] == [2 + 2 * k for k in range(len(steps))]
    assert len(steps) <= len(others) + 2
    assert steps[-1].progress.objective == pytest.approx(others[-1].progress.objective, rel=2e-4)
    if not accelerated:
        n = min(len(steps), len(others))
        ours, theirs = ([step.progress.objective for step in each[:n]] for each in (steps, others))
        assert ours == pytest.approx(theirs, rel=1e-5)


def test_the_papers_stop() -> None:
    problem, cost = make_problem(3, [40], 3), 0.1
    for epsilon in (0.1, 0.01):
        last = run(make_source(problem, 7), Ranking(cost, epsilon=epsilon))[-1]
        assert last.status == ("converged" if last.progress.is_proved(1e-3) else "paper_stop")
        assert last.progress.objective - minimise(problem, cost) <= epsilon * cost * problem[1].total * 1.001


def test_wide_buckets_give_a_wider_gap_and_no_false_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one page the bounds of the loss are far apart: the run ends without a proof, and its bounds hold."""
    monkeypatch.setattr(histograms, "MOST_CELLS", 2 * 3 * histograms.PAGE)
    problem = make_problem(4, [200], 3)
    last = run(make_source(problem, 33), Ranking(10.0, tol=1e-9))[-1]
    best = minimise(problem, 10.0)
    assert last.status != "converged"
    assert last.progress.lower_bound is not None
    assert last.progress.lower_bound <= best <= last.progress.objective <= best * 1.01


def test_a_higher_point_is_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a step that is far too long, nearer points are looked at in the same pass, and P never rises."""
    monkeypatch.setattr(score_model, "find_step", lambda *_: 1.0)
    monkeypatch.setattr(score_model, "ROWS_A_FEATURE", np.inf)
    steps = run(make_source(make_problem(5, [60], 3), 11), Ranking(0.5, tol=1e-4))
    objectives = [step.progress.objective for step in steps]
    assert objectives == sorted(objectives, reverse=True)
    assert steps[-1].status == "converged"


def test_pairs_that_begin_to_lose_at_one_place_do_not_stall() -> None:
    """Many rows are alike, and so are the scores of many pairs: they share buckets wherever P is least on a line."""
    random = np.random.default_rng(37)
    X = random.integers(-2, 3, (40, 4)).astype(np.float32)
    ranks = (X[:, 0] + 1.5 * random.normal(size=40) > 0).astype(np.int32)
    problem = X, Pairs(ranks, np.ones(40), np.array([0, 40]))
    cost = 70 * 40 / problem[1].total
    last = run(make_source(problem, 9), Ranking(cost))[-1]
    assert last.status == "converged"
    assert last.progress.objective <= minimise(problem, cost) * 1.002


@pytest.mark.usefixtures("many_groups")
def test_the_same_bits_from_any_step_and_on_threads() -> None:
    problem, settings = make_problem(5, [150], 4, weighted=True), Ranking(0.05, tol=1e-6)
    source = make_source(problem, 7)
    steps = run(source, settings)
    assert len(steps) > 1
    assert_same(run(source, settings, steps[-2].state)[-1].state, steps[-1].state)
    for threads in (1, 2, 4):
        assert_same(run(source, settings, engine=ThreadedEngine(source, threads))[-1].state, steps[-1].state)


def test_the_costs_of_weights_are_those_of_rows_that_are_repeated() -> None:
    X, pairs = make_problem(6, [40], 3, weighted=True)
    whole = np.repeat(np.arange(40), pairs.weight.astype(int))
    repeated = X[whole], replace(pairs, ranks=pairs.ranks[whole], weight=np.ones(len(whole)))
    settings = Ranking(0.1, tol=1e-6)
    weighted, plain = (run(make_source(each, 9), settings)[-1] for each in ((X, pairs), repeated))
    assert weighted.progress.objective == pytest.approx(plain.progress.objective, rel=1e-5)


def test_the_total_cost_after_a_warm_start_is_the_loss_at_zero() -> None:
    """It bounds the rounding of P, although the first step does not begin at w = 0."""
    problem, large = make_problem(3, [40], 3), Ranking(0.05, tol=1e-6)
    source = make_source(problem, 7)
    before = run(source, Ranking(0.01, tol=1e-6))[-1].state
    first = run(source, large, scale_costs(before, 5.0, large.tol))[0]
    assert first.state.total_cost == pytest.approx(measure(problem, 0.05, np.zeros(problem[0].shape[1])))
