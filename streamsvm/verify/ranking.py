"""P of rankings, recomputed in twice the working precision, and D from a dual point whose cuts count pairs.

    coefs_i = K sum_t lambda_t (up_i - down_i),   v = sum_i coefs_i x_i,   D = K sum_t lambda_t sum_i up_i - 1/2 |v|^2

K is the cost of a pair, and up_i and down_i are the counts of certificates.double_double at the scores of cut t.

Pairs within small queries are counted by the tasks that read the rows, so one read gives P and D. For many rows of few
ranks, histograms of the scores bound P from both sides (losses.histograms): P is the midpoint, and half of the width
counts as rounding. D takes two passes for each batch of cuts, one for the histograms and one for the rows. Other
rankings need the scores of all rows at once, and D takes one read for each batch of cuts whose scores fit into memory.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from streamsvm.certificates import double_double, dual_points
from streamsvm.certificates.double_double import measure_losses_exactly, round_sums
from streamsvm.certificates.dual_points import Bound, DualPoint, DualSums, bound_by_coefs, limit_sum, start_dual_sums
from streamsvm.data.rows.source import RowSource
from streamsvm.engines.engine import Engine
from streamsvm.engines.merge import answer
from streamsvm.losses import histograms
from streamsvm.losses.histograms import HistogramCut, measure_histogram, read_ranks
from streamsvm.losses.pairs import Pairs, sum_queries
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rounding import UNIT, add_pairs, add_to_pair, bound_rounding, multiply_two
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, compute_scores, make_writable
from streamsvm.options import require_classes
from streamsvm.passes import All, RowTotals, Scan, Take
from streamsvm.problems import ranking
from streamsvm.problems.ranking import FewRanks, find_small_queries, has_few_ranks
from streamsvm.solvers.cutting_plane.line_search_setup import SAMPLE_BYTES, count_sample_rows
from streamsvm.solvers.ranking import solver
from streamsvm.solvers.ranking.solver import HistogramSums, measure_exactly, start_histogram_sums, sum_histograms
from streamsvm.verify.linear import Found
from streamsvm.verify.linear import count_bytes as count_point_bytes

POINTS_AT_ONCE = 8  # number of points whose histograms one pass computes


def _evaluate_few_ranks(model: LinearModel, engine: Engine, pair_cost: float, points: list[DualPoint] | None) -> Found:
    """Return the loss of a ranking, a bound on its error, and D of the first dual point, if any."""
    source, W = engine.source, np.atleast_2d(model.coef)
    few = ranking.find_few_ranks(source, str(model.info["task"]), count_sample_rows(source))
    X, most = answer(engine, Take(few.rows)).X, pair_cost * (few.totals.below + few.totals.above)
    magnitudes = Scan(partial(np.zeros, (2, W.shape[1])), partial(solver.add_rank_magnitudes, most), np.add)
    (histogram,), found = answer(engine, All([sum_histograms(few.totals.n_ranks, X, W), magnitudes]))
    loss = measure_histogram(histogram, engine.source.n_rows, pair_cost)
    terms = 4.0 * (engine.source.n_rows + histograms.MOST_CELLS) + 2.0 * W.shape[1] + 64
    size = pair_cost * few.totals.of_pairs
    rounding = bound_rounding(terms, size + (1.0 + bound_rounding(terms, 1.0)) * float(np.abs(model.coef) @ found[0]))
    bound = None if points is None else _bound_few_ranks(points[0], engine, pair_cost, few, X)
    return Found((loss.upper + loss.lower) / 2, (loss.upper - loss.lower) / 2 + rounding, bound)


def _bound_few_ranks(point: DualPoint, engine: Engine, pair_cost: float, few: FewRanks, X: Matrix) -> Bound:
    """Return the lower bound that the cuts of a dual point prove. X: the rows of the sample."""
    n_rows, shares = engine.source.n_rows, limit_sum(point.multipliers, 1.0)
    starts, ends = point.vectors[point.ends[:, 0]], point.vectors[point.ends[:, 1]]
    W = starts + point.steps[:, np.newaxis] * (ends - starts)
    most, totals = pair_cost * (few.totals.below + few.totals.above), list[float]()
    start_sums = partial(start_dual_sums, W.shape[1])
    sums = start_sums()
    for at in range(0, len(W), POINTS_AT_ONCE):
        own = slice(at, at + POINTS_AT_ONCE)
        found = engine.scan(sum_histograms(few.totals.n_ranks, X, W[own]))
        measured = [measure_histogram(each, n_rows, pair_cost) for each in found]
        add = partial(_add_coefs, [each.cut for each in measured], shares[own], most)
        start = partial(start_histogram_sums, start_sums, [each.weights.shape for each in measured])
        added = engine.scan(Scan(start, add, operator.add, (W[own],)))
        for each, weights in zip(measured, added.seen, strict=True):
            each.require_same(weights, n_rows)
        sums = sums + added.of_rows
        totals += [share * each.cut.offset for share, each in zip(shares[own].tolist(), measured, strict=True)]
    error = bound_rounding(4.0 * (n_rows + histograms.MOST_CELLS) + len(W) + 64, 1.0)
    return bound_by_coefs(sums, math.fsum(totals), error * math.fsum(totals), error)


def _add_coefs(cuts: Sequence[HistogramCut], shares: F64, most: F64, sums: HistogramSums, rows: Rows, W: F64) -> None:
    """Add the rows times their coefs in all cuts. most (ranks,): bounds on the coefs per unit of weight."""
    (ranks, weight), scores = read_ranks(rows), compute_scores(rows.X, make_writable(W))
    coefs = np.zeros(rows.n_rows)
    for k, cut in enumerate(cuts):
        coefs += shares[k] * cut.find_coefs(np.ascontiguousarray(scores[:, k]), ranks, weight, sums.seen[k])
    alike = replace(rows, y=np.zeros(rows.n_rows, np.int32))
    dual_points.add_dual_sums(sums.of_rows, alike, coefs, float(np.sum(shares)) * weight * most[ranks])


ALL_BYTES = 88  # bytes per row if the scores of all rows are in memory: in twice the precision, sorted, and pairs
SCORE_BYTES = 64 << 20  # memory for the scores of all rows; two weight vectors are scored at once in any case
# Vectors of 8 bytes per row for counting pairs: ranks, weights, two scores, order, up, down, coefs, sizes.
ROW_VECTORS = 24


@dataclass
class QueryDual(RowTotals):
    """Sums over all queries, from the multipliers of their pairs.

    rows: the sum of the rows times their coefs. total (2,): the sum of the multipliers, as an unevaluated sum of two
    numbers. sizes: the sum of the magnitudes of the terms of all coefs.
    """

    rows: DualSums
    total: F64
    sizes: float = 0.0
    joined: ClassVar = {"total": double_double.join_pairs}


def count_bytes(source: RowSource, task: str, points: list[DualPoint]) -> tuple[int, int]:
    """Return the bytes that the driver holds, and the bytes of the totals of one task."""
    if has_few_ranks(source, task):
        at_once, n_cuts = (POINTS_AT_ONCE, len(points[0].multipliers)) if points else (1, 0)
        histogram_bytes = histograms.histogram_bytes(len(require_classes(source)))
        of_points = at_once * (histogram_bytes + 8 * 8 * source.n_features)
        held = 3 * sum(point.nbytes for point in points) + 8 * 3 * n_cuts * source.n_features
        return held + 2 * SAMPLE_BYTES + histograms.MEASURE_BYTES + of_points, of_points
    queries = find_small_queries(source, task, count_sample_rows(source))
    held, totals = count_point_bytes(points, source.n_features, queries is not None) if points else (0, 0)
    if queries is not None:
        return held, totals + ranking.count_task_bytes(source, queries)
    if points:
        held += 8 * ROW_VECTORS * source.n_rows + 3 * max(SCORE_BYTES, 16 * source.n_rows)
    return held + ALL_BYTES * source.n_rows, totals


def list_kernels(source: RowSource, task: str) -> tuple[str, ...]:
    """Return the groups of compiled functions that `evaluate` calls."""
    return ("ranking", "ranking-histograms") if has_few_ranks(source, task) else ("ranking",)


def evaluate(model: LinearModel, engine: Engine, problem: dict[str, Any], points: list[DualPoint] | None) -> Found:
    """Return P of a ranking, a bound on its rounding error, and D of the first dual point, if any."""
    half = float(model.coef @ model.coef) / 2
    task, own = str(model.info["task"]), bound_rounding(len(model.coef) + 8, 2 * half)
    if has_few_ranks(engine.source, task):
        find = _evaluate_few_ranks
    else:
        queries = find_small_queries(engine.source, task, count_sample_rows(engine.source))
        find = _evaluate_all if queries is None else _evaluate_queries
    loss, rounding, bound = find(model, engine, float(problem["pair_cost"]), points)
    return Found(half + loss, rounding + own, bound)


def _evaluate_all(model: LinearModel, engine: Engine, pair_cost: float, points: list[DualPoint] | None) -> Found:
    pairs, _ = ranking.find_pairs(engine.source, str(model.info["task"]))
    tiles = engine.scan(Scan(list, solver.add_exact_scores, operator.add, (np.atleast_2d(model.coef),)))
    sums = measure_losses_exactly(np.concatenate(tiles, axis=1), pairs, np.ones(1))
    bound = None if points is None else _bound_all(points[0], engine, pairs, pair_cost)
    (loss,), (rounding,) = (each.tolist() for each in round_sums(sums, engine.source.n_rows, pair_cost))
    return Found(loss, rounding, bound)


def _bound_all(point: DualPoint, engine: Engine, pairs: Pairs, pair_cost: float) -> Bound:
    """Return the lower bound that the cuts of a ranking prove, from the scores of all rows. pair_cost: K."""
    n_rows, shares = engine.source.n_rows, limit_sum(pair_cost * point.multipliers, pair_cost)
    counts = PairCounts(*np.zeros((3, n_rows)))
    most = max(1, SCORE_BYTES // (16 * n_rows))  # number of cuts whose scores for all rows are in memory at once
    for at in range(0, len(point.ends), most):
        cuts = np.arange(at, min(at + most, len(point.ends)))
        places, ends = np.unique(point.ends[cuts], return_inverse=True)
        look = Scan(list, solver.add_scores, operator.add, (point.vectors[places],))
        scores = np.concatenate(engine.scan(look), axis=1)
        for cut, (start, end) in zip(cuts.tolist(), ends.reshape(-1, 2).tolist(), strict=True):
            at_cut = scores[start] + point.steps[cut] * (scores[end] - scores[start])
            counts.add(shares[cut], *double_double.count_pairs_exactly(at_cut, pairs))
    start_sums = partial(start_dual_sums, engine.source.n_features)
    by_row = (counts.coefs, counts.rests, counts.sizes)
    sums = engine.scan(Scan(start_sums, _add_pair_coefs, operator.add, (), by_row))
    error = bound_rounding(8.0 * (n_rows + len(shares) + 64.0), 1.0) * UNIT
    return bound_by_coefs(sums, math.fsum(counts.totals), 2 * UNIT * math.fsum(counts.sizes.tolist()), error)


@dataclass
class PairCounts:
    """Sums over the cuts of a ranking.

    coefs, rests (n,): the coefs_i, as unevaluated sums of two numbers. sizes (n,): the sums of the magnitudes of their
    terms. totals: the parts of K sum_t lambda_t sum_i up_i.
    """

    coefs: F64
    rests: F64
    sizes: F64
    totals: list[float] = field(default_factory=list)

    def add(self, share: float, up: F64, down: F64) -> None:
        """Add `share` times the counts of a cut. up, down (n, 2): unevaluated sums of two numbers per row."""
        for counts, sign in ((up, 1.0), (down, -1.0)):
            product, lost = multiply_two(counts[:, 0], sign * share)
            added = product, lost + counts[:, 1] * (sign * share)
            self.coefs, self.rests = add_pairs(self.coefs, self.rests, *added)
            self.sizes += np.abs(product)
            if sign > 0.0:
                self.totals += [math.fsum(part.tolist()) for part in added]


def _add_pair_coefs(sums: DualSums, rows: Rows, coefs: F64, rests: F64, sizes: F64) -> None:
    """Add the rows times both parts of their coefficients.

    The second parts are small, but matter where the first parts cancel.
    """
    alike = replace(rows, y=np.zeros(rows.n_rows, np.int32))
    dual_points.add_dual_sums(sums, alike, coefs, sizes)
    dual_points.add_dual_sums(sums, alike, rests, np.abs(rests))


def _evaluate_queries(model: LinearModel, engine: Engine, pair_cost: float, points: list[DualPoint] | None) -> Found:
    n_rows, d = engine.source.n_rows, engine.source.n_features
    ends = int(engine.source.chunk_starts[0]), int(engine.source.chunk_starts[-1])
    scans = [measure_exactly(ends, np.atleast_2d(model.coef), np.ones(1))]
    for point in (points or [])[:1]:
        take = partial(_add_dual, point, limit_sum(pair_cost * point.multipliers, pair_cost))
        scans.append(Scan(*sum_queries(ends, partial(_start_dual, d), take, operator.add)))
    (exact, *found) = answer(engine, All(scans))
    bound = None
    if points:  # the parts of the total are rounded twice, and so is their sum
        sums, error = found[0].sums, bound_rounding(8.0 * (n_rows + len(points[0].multipliers) + 64.0), 1.0) * UNIT
        bound = bound_by_coefs(sums.rows, float(np.sum(sums.total)), 4 * UNIT * sums.sizes, error)
    (loss,), (rounding,) = (each.tolist() for each in round_sums(exact.sums, n_rows, pair_cost))
    return Found(loss, rounding, bound)


def _start_dual(n_features: int) -> QueryDual:
    return QueryDual(start_dual_sums(n_features), np.zeros(2))


def _add_dual(point: DualPoint, shares: F64, sums: QueryDual, rows: Rows, starts: I64) -> None:
    """Add the multipliers of the pairs in whole queries. The pairs of a cut follow from the scores at its point."""
    counts = PairCounts(*np.zeros((3, rows.n_rows)))
    pairs, vectors = double_double.pair_rows(rows, starts), make_writable(point.vectors)
    for share, ends, step in zip(shares.tolist(), point.ends, point.steps.tolist(), strict=True):
        start, end = compute_scores(rows.X, vectors[ends]).T
        counts.add(share, *double_double.count_pairs_exactly(start + step * (end - start), pairs))
    _add_pair_coefs(sums.rows, rows, counts.coefs, counts.rests, counts.sizes)
    sums.total = np.array(add_to_pair(sums.total[0], sums.total[1], math.fsum(counts.totals)))
    sums.sizes += math.fsum(counts.sizes.tolist())
