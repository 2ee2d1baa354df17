"""The objective of a ranking of many rows of few ranks, and its lower bound from a dual point, found by histograms.

P is the middle of the bounds that the histogram of the scores proves (numeric.histogram_losses); how far they are apart
is counted as rounding is. The cuts behind the lower bound are made anew at the points where they were made: the first
pass of each batch of points finds the histograms of their scores, and the second one sums up the cuts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.engines.one_read import answer
from streamsvm.engines.protocol import Engine
from streamsvm.methods.cutting_plane.master_problem import bound_dual
from streamsvm.methods.ranking.histogram_passes import sum_first_cut, sum_histogram_cuts, sum_histograms
from streamsvm.methods.ranking.histogram_search import begin_state, choose_exponents
from streamsvm.methods.ranking.solver import State, start_state
from streamsvm.models.model import LinearModel
from streamsvm.numeric.dual_points import Bound, DualPoint, limit_sum
from streamsvm.numeric.histogram_losses import measure_histogram
from streamsvm.numeric.rows import Matrix
from streamsvm.numeric.score_histograms import MEASURE_BYTES, histogram_bytes
from streamsvm.problems.few_ranks import FewRanks, find_few_ranks
from streamsvm.problems.small_queries import SAMPLE_BYTES
from streamsvm.requests import All, Take

POINTS_AT_ONCE = 8  # points whose histograms one pass finds


def count_bytes(n_ranks: int, n_features: int, points: list[DualPoint]) -> tuple[int, int]:
    """Return the bytes that the driver holds beside the model, and the bytes of the totals of one task."""
    at_once, n_cuts = (POINTS_AT_ONCE, len(points[0].multipliers)) if points else (1, 0)
    of_points = at_once * (histogram_bytes(n_ranks) + 8 * 4 * n_features)
    held = 3 * sum(point.nbytes for point in points) + 8 * 3 * n_cuts * n_features
    return held + 2 * SAMPLE_BYTES + MEASURE_BYTES + of_points, of_points


def evaluate(
    model: LinearModel, engine: Engine, pair_cost: float, points: list[DualPoint] | None
) -> tuple[float, float, Bound | None]:
    """Return the loss of a ranking, how far it may be off, and D of the first dual point if there is one."""
    few, W = find_few_ranks(engine.source, str(model.info["task"])), np.atleast_2d(model.coef)
    X = answer(engine, Take(few.rows)).X
    histograms = sum_histograms(W, few.n_ranks, choose_exponents(X, W, few.n_ranks))
    (histogram,), first = answer(engine, All([histograms, sum_first_cut(few, W.shape[1], pair_cost)]))
    state = begin_state(start_state(W.shape[1]), first, engine.source.n_rows)
    loss = measure_histogram(histogram, engine.source.n_rows, pair_cost)
    off = (loss.upper - loss.lower) / 2 + state.bound_loss(np.abs(model.coef))
    bound = None if points is None else _bound(points[0], engine, pair_cost, few, state, X)
    return (loss.upper + loss.lower) / 2, off, bound


def _bound(point: DualPoint, engine: Engine, pair_cost: float, few: FewRanks, state: State, X: Matrix) -> Bound:
    """Return the lower bound that the cuts at the points of a dual point prove. X: the rows of the sample."""
    starts, ends = point.vectors[point.ends[:, 0]], point.vectors[point.ends[:, 1]]
    W = starts + point.steps[:, np.newaxis] * (ends - starts)
    cuts, offsets = np.empty_like(W), np.empty(len(W))
    for at in range(0, len(W), POINTS_AT_ONCE):
        batch = W[at : at + POINTS_AT_ONCE]
        histograms = engine.scan(sum_histograms(batch, few.n_ranks, choose_exponents(X, batch, few.n_ranks)))
        made = [measure_histogram(each, engine.source.n_rows, pair_cost).cut for each in histograms]
        cuts[at : at + len(batch)] = engine.scan(sum_histogram_cuts(batch, range(len(batch)), made))
        offsets[at : at + len(batch)] = [each.offset for each in made]
    state = replace(state, cuts=cuts, offsets=offsets, sizes=2 * offsets)
    value, error = bound_dual(state, limit_sum(point.multipliers, 1.0))
    return Bound(value - error, error)
