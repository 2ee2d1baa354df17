"""The objective of a ranking of many rows of few ranks, and its lower bound from a dual point, found by histograms.

P is the middle of the bounds that the histogram of the scores proves (numeric.histogram_losses); how far they are apart
is counted as rounding is. The cuts behind the lower bound are made anew at the points where they were made: the first
pass of each batch of points finds the histograms of their scores, and the second one sums up the rows of the cuts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from streamsvm.engines.one_read import answer
from streamsvm.engines.protocol import Engine
from streamsvm.models.model import LinearModel
from streamsvm.numeric.dual_points import (
    Bound,
    DualPoint,
    DualSums,
    add_dual_sums,
    bound_by_coefs,
    combine_dual_sums,
    limit_sum,
    start_dual_sums,
)
from streamsvm.numeric.histogram_losses import HistogramCut, measure_histogram
from streamsvm.numeric.histogram_sums import (
    add_histograms,
    choose_exponents,
    combine_histogram_lists,
    read_ranks,
    start_histograms,
)
from streamsvm.numeric.magnitudes import add_row_magnitudes
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, Matrix, Rows
from streamsvm.numeric.score_histograms import MEASURE_BYTES, MOST_CELLS, histogram_bytes
from streamsvm.numeric.writable import make_writable
from streamsvm.problems.few_ranks import FewRanks, find_few_ranks
from streamsvm.problems.small_queries import SAMPLE_BYTES
from streamsvm.requests import All, Scan, Take

Sums = tuple[DualSums, list[F64]]  # of the rows of cuts, and for each cut the weights of its buckets

POINTS_AT_ONCE = 8  # points whose histograms one pass finds


def count_bytes(n_ranks: int, n_features: int, points: list[DualPoint]) -> tuple[int, int]:
    """Return the bytes that the driver holds beside the model, and the bytes of the totals of one task."""
    at_once, n_cuts = (POINTS_AT_ONCE, len(points[0].multipliers)) if points else (1, 0)
    of_points = at_once * (histogram_bytes(n_ranks) + 8 * 8 * n_features)
    held = 3 * sum(point.nbytes for point in points) + 8 * 3 * n_cuts * n_features
    return held + 2 * SAMPLE_BYTES + MEASURE_BYTES + of_points, of_points


def evaluate(
    model: LinearModel, engine: Engine, pair_cost: float, points: list[DualPoint] | None
) -> tuple[float, float, Bound | None]:
    """Return the loss of a ranking, how far it may be off, and D of the first dual point if there is one."""
    few, W = find_few_ranks(engine.source, str(model.info["task"])), np.atleast_2d(model.coef)
    X, most = answer(engine, Take(few.rows)).X, pair_cost * (few.totals.below + few.totals.above)
    magnitudes = Scan(partial(np.zeros, (2, W.shape[1])), partial(_add_magnitudes, most), np.add)
    (histogram,), found = answer(engine, All([_sum_histograms(few, X, W), magnitudes]))
    loss = measure_histogram(histogram, engine.source.n_rows, pair_cost)
    terms, size = 4.0 * (engine.source.n_rows + MOST_CELLS) + 2.0 * W.shape[1] + 64, pair_cost * few.totals.of_pairs
    rounding = bound_rounding(terms, size + (1.0 + bound_rounding(terms, 1.0)) * float(np.abs(model.coef) @ found[0]))
    bound = None if points is None else _bound(points[0], engine, pair_cost, few, X)
    return (loss.upper + loss.lower) / 2, (loss.upper - loss.lower) / 2 + rounding, bound


def _sum_histograms(few: FewRanks, X: Matrix, W: F64) -> Scan:
    """Return the pass for the histograms at the points W (k, d), whose buckets are as wide as in the training."""
    start = partial(start_histograms, few.totals.n_ranks, choose_exponents(X, W, few.totals.n_ranks))
    return Scan(start, add_histograms, combine_histogram_lists, (W,))


def _add_magnitudes(most: F64, sums: F64, rows: Rows) -> None:
    ranks, weight = read_ranks(rows)
    add_row_magnitudes(sums[0], sums[1], rows.X, weight * most[ranks])


def _bound(point: DualPoint, engine: Engine, pair_cost: float, few: FewRanks, X: Matrix) -> Bound:
    """Return the lower bound that the cuts at the points of a dual point prove. X: the rows of the sample."""
    n_rows, shares = engine.source.n_rows, limit_sum(point.multipliers, 1.0)
    starts, ends = point.vectors[point.ends[:, 0]], point.vectors[point.ends[:, 1]]
    W = starts + point.steps[:, np.newaxis] * (ends - starts)
    most, sums, totals = pair_cost * (few.totals.below + few.totals.above), start_dual_sums(W.shape[1]), list[float]()
    for at in range(0, len(W), POINTS_AT_ONCE):
        own = slice(at, at + POINTS_AT_ONCE)
        histograms = engine.scan(_sum_histograms(few, X, W[own]))
        measured = [measure_histogram(each, n_rows, pair_cost) for each in histograms]
        add = partial(_add_coefs, [each.cut for each in measured], shares[own], most)
        start = partial(_start, W.shape[1], [each.weights.shape for each in measured])
        found, seen = engine.scan(Scan(start, add, _combine, (W[own],)))
        for each, weights in zip(measured, seen, strict=True):
            each.require_same(weights, n_rows)
        sums = combine_dual_sums(sums, found)
        totals += [share * each.cut.offset for share, each in zip(shares[own].tolist(), measured, strict=True)]
    error = bound_rounding(4.0 * (n_rows + MOST_CELLS) + len(W) + 64, 1.0)
    return bound_by_coefs(sums, math.fsum(totals), error * math.fsum(totals), error)


def _start(n_features: int, shapes: Sequence[tuple[int, ...]]) -> Sums:
    return start_dual_sums(n_features), [np.zeros(shape) for shape in shapes]


def _combine(left: Sums, right: Sums) -> Sums:
    return combine_dual_sums(left[0], right[0]), [a + b for a, b in zip(left[1], right[1], strict=True)]


def _add_coefs(cuts: Sequence[HistogramCut], shares: F64, most: F64, totals: Sums, rows: Rows, W: F64) -> None:
    """Add the rows with their coefs in all cuts, whose sizes are at most those of the cut of all pairs."""
    sums, seen = totals
    (ranks, weight), scores = read_ranks(rows), compute_scores(rows.X, make_writable(W))
    coefs = np.zeros(rows.n_rows)
    for k, cut in enumerate(cuts):
        coefs += shares[k] * cut.find_coefs(np.ascontiguousarray(scores[:, k]), ranks, weight, seen[k])
    alike = replace(rows, y=np.zeros(rows.n_rows, np.int32))
    add_dual_sums(sums, alike, coefs, float(np.sum(shares)) * weight * most[ranks])
