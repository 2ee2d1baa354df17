"""The points of rankings' passes: how few passes the model of a sample takes, and what it does with a sample of all."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from streamsvm.losses.pairs import Pairs
from streamsvm.numeric.rows import Rows
from streamsvm.solvers.cutting_plane import score_model
from streamsvm.solvers.cutting_plane.cuts import master_bytes
from streamsvm.solvers.cutting_plane.score_model import count_model_bytes, minimise_model
from streamsvm.solvers.ranking.solver import Ranking, State, draw_sample
from tests.solvers.ranking import test_histogram_search as histogram
from tests.solvers.ranking import test_query_search as query
from tests.solvers.ranking import test_solver as held
from tests.solvers.ranking.test_solver import Problem, make_problem, measure, minimise

COST = 1000.0  # of all pairs together, for each row


def make_uneven(n: int, sizes: list[int], n_ranks: int) -> Problem:
    """Features whose scales fall from 1 to 0.1, and ranks that follow a noisy linear truth."""
    random = np.random.default_rng(n)
    X = (random.standard_normal((n, 12)) * np.geomspace(1, 0.1, 12)).astype(np.float32)
    truth = X @ random.standard_normal(12) + random.standard_normal(n)
    ranks = np.searchsorted(np.quantile(truth, np.arange(1, n_ranks) / n_ranks), truth).astype(np.int32)
    return X, Pairs(ranks, np.ones(n), np.concatenate(([0], np.cumsum(sizes))))


def count_passes(search: str) -> int:
    """The passes of a training whose sample holds about a quarter of the rows."""
    problem = make_uneven(4000, [40] * 100 if search == "queries" else [4000], 3)
    settings = Ranking(COST * 4000 / problem[1].total)
    if search == "held":
        steps = held.run(problem, settings, sample_rows=1000)
    elif search == "queries":
        steps = query.run(query.make_source(problem, 400), settings, sample=1000)
    else:
        steps = histogram.run(histogram.make_source(problem, 400), settings, sample=1000)
    assert steps[-1].status == "converged"
    return steps[-1].progress.passes


@pytest.mark.parametrize(
    ("search", "most"),
    [
        ("held", 12),
        ("queries", 7),
        pytest.param("histograms", 16, marks=pytest.mark.slow("the histograms take seconds")),
    ],
)
def test_the_model_takes_a_third_of_the_passes_of_the_line_search(
    search: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = count_passes(search)
    assert passes <= most
    monkeypatch.setattr(score_model, "ROWS_A_FEATURE", np.inf)
    assert 3 * passes <= count_passes(search)


def test_a_sample_of_all_rows_needs_two_steps() -> None:
    """The passes make cuts at the points of the active cuts, which prove the optimum that was found in memory."""
    steps = held.run(make_problem(2, [60], 3), Ranking(0.05))
    assert [step.status for step in steps] == [None, "converged"]
    assert steps[0].progress.objective == pytest.approx(steps[1].progress.objective, rel=1e-4)


@pytest.mark.parametrize("share", [1, 4])
def test_the_models_minimiser(share: int) -> None:
    """It is that of the problem if the sample has all rows; else P of all rows is nearer to its minimum than before."""
    problem, cost = make_problem(3, [400], 4), 0.01
    X, pairs = problem
    sample = draw_sample(pairs, cost, 400 // share)
    whole = replace(sample, held=Rows(0, X[sample.rows]))
    _, W = minimise_model(Ranking(cost, tol=1e-6), whole, State.at_zero(4))
    best, P = minimise(problem, cost), measure(problem, cost, W[0])
    assert best * (1 - 1e-7) <= P <= best * (1 + (1e-6 if share == 1 else 0.1))


def test_the_sample_has_the_heavy_rows() -> None:
    """Without them, the model would mislead: 20 rows have all but a part in a million of the weight of all pairs."""
    X, pairs = make_uneven(4000, [4000], 2)
    weight = np.where(np.arange(4000) % 200 == 7, 1e6, 1.0)
    heavy = X, replace(pairs, weight=weight)
    steps = held.run(heavy, Ranking(4000 / heavy[1].total), sample_rows=1000)
    assert steps[-1].status == "converged"
    assert steps[-1].progress.passes <= 12


@pytest.mark.slow("a model of 4,000 features takes seconds")
def test_the_model_holds_what_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many cuts of all rows as are kept at once, and as many cuts of the sample as are made."""
    n, d, random = 1000, 4000, np.random.default_rng(0)
    X = random.standard_normal((n, d)).astype(np.float32)
    pairs = Pairs((X[:, 0] > 0).astype(np.int32), np.ones(n), np.array([0, n]))
    settings = Ranking(COST * n / pairs.total)
    sample, m = replace(draw_sample(pairs, settings.pair_cost, n), held=Rows(0, X)), settings.most_cuts(d)
    first, cuts, offsets = sample.measure(np.zeros(n)), np.zeros((m, d)), np.zeros(m)
    cuts[0], offsets[0] = sample.combine(first.coefs, d), first.offset
    state = replace(State.at_zero(d), cuts=cuts, offsets=offsets, gram=cuts @ cuts.T, z=np.zeros(m), passes=1)
    monkeypatch.setattr(score_model, "MODEL_SHARE", 1e-4)
    monkeypatch.setattr(score_model, "IDLE_STEPS", np.inf)
    tracemalloc.start()
    try:
        minimise_model(settings, sample, state)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    planned = settings.driver_bytes(d) + count_model_bytes(d) - cuts.nbytes - state.gram.nbytes
    most = m + score_model.KEPT_POINTS + 2 * score_model.MOST_STEPS
    refining = master_bytes(d, most) - 32 * most**2  # not done here
    assert (planned - refining) / 2 < peak <= planned


def test_a_sample_in_which_a_heavy_query_has_less_weight_is_not_whole() -> None:
    """It has all three queries, but the pairs of the second count half."""
    sizes = [100, 600, 100]
    problem = make_uneven(800, sizes, 3)
    sample = draw_sample(problem[1], 1.0, 400)
    assert len(sample.rows) == 800
    assert not sample.is_whole
    assert draw_sample(problem[1], 1.0, 800).is_whole
