"""Algorithm 2 of Joachims 2006 with driver memory that does not grow with the number of rows.

This is the algorithm of ranking.solver, except that losses and cuts are summed by the tasks that read the rows, in one
of two ways.

`QuerySearch` is for rows in queries. Pairs are formed only within a query. So the loss of all pairs and its cut are
sums over queries (ranking.solver), just as in classification they are sums over rows, and no vector has an entry per
row (losses.pairs). One pass computes P and the cuts at the points of a step.

`HistogramSearch` is for many rows with few ranks. The first pass computes the histograms of the scores
(losses.histograms) at the points of a step. The histograms bound the loss at these points, and determine the
contribution of each row to a cut by the row's rank and the bucket of its score. P uses the upper bound. The second pass
sums the cuts at the points; the value of a cut at its point is the lower bound. So the reported gap is proved. It
cannot become smaller than the distance between the bounds. If scores are spread out, this distance is about the square
of a bucket's width; for two ranks, it is about 1e-9 of the loss of all pairs.

The second pass computes the scores again, at the same set of points, so that it reproduces the same bits. If it does
not, for example on a different kind of processor, the weights of the buckets differ, and the run ends with an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import add
from typing import Any, ClassVar

import numpy as np

from streamsvm.certificates import double_double
from streamsvm.losses import histograms
from streamsvm.losses.histograms import HistogramCut, RankTotals
from streamsvm.losses.pairs import count_pairs, sum_queries
from streamsvm.numeric.rounding import join_magnitudes
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, compute_scores, make_writable
from streamsvm.passes import All, RowTotals, Scan
from streamsvm.solvers.cutting_plane.cuts import RowSums, is_noisy
from streamsvm.solvers.cutting_plane.line_search import CutTotals, Evaluation
from streamsvm.solvers.cutting_plane.score_model import Sample
from streamsvm.solvers.ranking import solver
from streamsvm.solvers.ranking.pair_sample import measure_pairs
from streamsvm.solvers.ranking.solver import Ranking, State

Ends = tuple[int, int]


@dataclass
class QueryCuts(CutTotals):
    """Sums over queries at the points W (k, d): the losses, and the offsets and vectors of the cuts."""

    W: F64
    joined: ClassVar = {"W": lambda left, _: left}


def start_cuts(W: F64) -> QueryCuts:
    """Return the sums of no queries."""
    return QueryCuts(np.zeros(len(W)), np.zeros(len(W)), np.zeros_like(W), W)


def add_query_magnitudes(cost: float, sums: F64, rows: Rows, starts: I64) -> None:
    """Add whole queries to the magnitudes (solver.add_magnitudes). K (up + down) at w = 0 bounds the coefs of cuts."""
    pairs = double_double.pair_rows(rows, starts)
    solver.add_magnitudes(sums, rows, cost * np.add(*count_pairs(np.zeros(rows.n_rows), pairs, 1.0)))


def add_query_cuts(cost: float, sums: QueryCuts, rows: Rows, starts: I64) -> None:
    """Add the losses and the cuts of whole queries at the points of the sums. starts: the first row of each query."""
    pairs, scores = double_double.pair_rows(rows, starts), compute_scores(rows.X, make_writable(sums.W))
    for k in range(len(sums.W)):
        loss = measure_pairs(scores[:, k].copy(), pairs, cost)
        solver.add_cut(sums.gradients, k, rows, loss.coefs)
        sums.costs[k] += loss.offset
        sums.losses[k] += loss.loss


def measure_exactly(ends: Ends, W: F64, shorter: F64) -> Scan:
    """Return the pass for the losses at the points W (k, d) in twice the precision, divided by K. Its answer is (k, 4).

    Each row of the answer belongs to a point. It holds the loss as a sum of two numbers, the sum of the magnitudes of
    the loss's terms, and a test loss. The test loss is the loss at scores reduced by the share `shorter` (k,), summed
    over the queries that have no loss at the full scores.
    """
    take = partial(double_double.add_exact_losses, W, shorter)
    return Scan(*sum_queries(ends, partial(np.zeros, (len(W), 4)), take, double_double.combine_exact_losses))


@dataclass(frozen=True)
class QuerySearch:
    """The search for rows in queries. ends: the number of the first row, and the number of the row after the last."""

    ends: Ends

    def evaluate(self, settings: Ranking, sample: Sample, state: State, W: F64) -> Evaluation:  # noqa: ARG002
        """Compute P and the cuts at the points in one pass."""
        scans, cost = list[Scan](), settings.pair_cost
        if not state.passes:
            start, take = partial(np.zeros, (2, W.shape[1])), partial(add_query_magnitudes, cost)
            scans.append(Scan(*sum_queries(self.ends, start, take, join_magnitudes)))
        elif is_noisy(state, settings.tol):
            points = solver.list_exact_points(state, W)
            scans.append(measure_exactly(self.ends, points, solver.shorten(state, points)))
        look = Scan(*sum_queries(self.ends, partial(start_cuts, W), partial(add_query_cuts, cost), add))
        totals, *others = yield All([look, *scans])
        found, n_rows = totals.sums, self.ends[1] - self.ends[0]
        if not state.passes:
            state = solver.begin_at_zero(state, float(found.losses[0]), n_rows, others[0].sums)
        elif others:
            state = solver.take_exact(settings, state, points, others[0].sums, n_rows)
        return state, found.losses, RowSums(found.gradients, found.costs, 2 * found.costs), 1


@dataclass
class HistogramSums(RowTotals):
    """Sums over rows, whose coefs in the cuts the histograms determine.

    of_rows: the cuts (c, d). seen: for each cut, the sums of the rows' weights by page, bucket and rank.
    """

    of_rows: Any
    seen: list[F64]
    joined: ClassVar = {"seen": lambda left, right: [a + b for a, b in zip(left, right, strict=True)]}


def add_rank_magnitudes(most: F64, sums: F64, rows: Rows) -> None:
    """Add rows to the magnitudes (solver.add_magnitudes). most (ranks,): bounds on the coefs of rows of weight 1."""
    ranks, weight = histograms.read_ranks(rows)
    solver.add_magnitudes(sums, rows, weight * most[ranks])


def start_histogram_cuts(n_features: int, shapes: Sequence[tuple[int, ...]]) -> HistogramSums:
    """Return empty cuts. shapes: the shape of `seen` for each cut."""
    return HistogramSums(np.zeros((len(shapes), n_features)), [np.zeros(shape) for shape in shapes])


def add_histogram_cuts(cuts: list[HistogramCut], sums: HistogramSums, rows: Rows, W: F64) -> None:
    """Add the rows of a tile to each cut."""
    (ranks, weight), scores = histograms.read_ranks(rows), compute_scores(rows.X, make_writable(W))
    for k, cut in enumerate(cuts):
        coefs = cut.find_coefs(np.ascontiguousarray(scores[:, k]), ranks, weight, sums.seen[k])
        solver.add_cut(sums.of_rows, k, rows, coefs)


def sum_histograms(n_ranks: int, X: Matrix, W: F64) -> Scan:
    """Return the pass that computes histograms at the points W (k, d).

    X: the rows of a sample, whose scores determine the widths of the buckets.
    """
    start = partial(histograms.start_histograms, n_ranks, histograms.choose_exponents(X, W, n_ranks))
    return Scan(start, histograms.add_histograms, histograms.combine_histogram_lists, (W,))


@dataclass(frozen=True)
class HistogramSearch:
    """The search for rows with few ranks. n_rows: the number of rows in the source."""

    ranks: RankTotals
    n_rows: int

    def evaluate(self, settings: Ranking, sample: Sample, state: State, W: F64) -> Evaluation:
        """Compute histograms of the scores in one pass, and the sums of the cuts in another.

        The losses are the upper bounds that the histograms give.
        """
        cost, ranks, scans = settings.pair_cost, self.ranks, [sum_histograms(self.ranks.n_ranks, sample.held.X, W)]
        if not state.passes:
            take = partial(add_rank_magnitudes, cost * ranks.below + cost * ranks.above)
            scans.append(Scan(partial(np.zeros, (2, W.shape[1])), take, join_magnitudes))
        counted, *others = yield All(scans)
        measured = [histograms.measure_histogram(each, self.n_rows, cost) for each in counted]
        of_cuts = [each.cut for each in measured]
        start = partial(start_histogram_cuts, W.shape[1], [cut.coefs.shape for cut in of_cuts])
        sums = yield Scan(start, partial(add_histogram_cuts, of_cuts), add, (W,))
        for each, seen in zip(measured, sums.seen, strict=True):
            each.require_same(seen, self.n_rows)
        losses, offsets = np.array([[each.upper, each.cut.offset] for each in measured]).T
        if others:
            n_terms = self.n_rows + histograms.MOST_CELLS  # sums over rows, then over buckets
            state = solver.begin_at_zero(state, float(losses[0]), n_terms, others[0])
        return state, losses, RowSums(sums.of_rows, offsets, 2 * offsets), 2
