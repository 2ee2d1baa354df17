"""Ordinal regression and ROC area by cutting planes: Joachims 2006, Algorithm 2, with points that a sample suggests.

    P(w) = 1/2 |w|^2 + K sum over pairs v_i v_j max(0, 1 - (w.x_i - w.x_j))        no bias: it would cancel

A pair is two rows i and j of one query, where i has the higher rank; v_i is the weight of row i, and K the cost of a
pair of weight 1. With the chosen K, the loss at w = 0 equals the loss of n rows of cost C in classification; n C is the
paper's C. Every w gives a cut: the loss is at least b - a.w everywhere, with a = sum coefs_i x_i and b = offset
(below). The cuts, the master problem and the lower bound are explained in cutting_plane.cuts, and the loop in
cutting_plane.line_search.

A step evaluates P and makes cuts at a few points, which a sample of the pairs suggests (cutting_plane.score_model), and
moves to the lowest P it finds. With `accelerated=False` the solver is the paper's algorithm, which makes its cut at the
master's minimiser. The loss of all pairs at given scores, and its cut there:

    loss(s) = K sum over pairs v_i v_j max(0, 1 - (s_i - s_j)) = offset - coefs.s
    coefs_i = K (up_i - down_i),   offset = K sum_i up_i,   cut at s: sum_i coefs_i x_i

s_i is the score of row i; up and down are c+ and c- of Algorithm 2 (losses.pairs). P and the cuts are computed in one
of three ways.

`PairSearch` makes two passes. The first returns the scores of all rows at the points, with which the driver counts the
pairs. The second sums the rows for the cuts. In the other two ways, the tasks that read the rows sum losses and cuts,
so the driver's memory does not grow with the number of rows.

`QuerySearch` is for rows in queries. Pairs are formed only within a query. So the loss of all pairs and its cut are
sums over queries, just as in classification they are sums over rows, and no vector has an entry per row (losses.pairs).
One pass computes P and the cuts at the points of a step.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import add
from typing import Any, ClassVar

import numpy as np

from streamsvm.certificates import double_double
from streamsvm.certificates.double_double import bound_score, measure_losses_exactly, round_sums
from streamsvm.losses import histograms
from streamsvm.losses.histograms import HistogramCut, RankTotals, choose_exponent
from streamsvm.losses.pairs import Pairs, count_pairs, sum_queries, sweep_pairs
from streamsvm.numeric.rounding import UNIT, add_row_magnitudes, bound_rounding, join_magnitudes
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, add_rows, compute_scores, make_writable
from streamsvm.passes import All, RowTotals, Scan, add_each
from streamsvm.solvers.cutting_plane import cuts
from streamsvm.solvers.cutting_plane.cuts import CutSettings, RowSums, is_noisy
from streamsvm.solvers.cutting_plane.line_search import CutTotals, Evaluation, move_to_best
from streamsvm.solvers.cutting_plane.master import DOUBTFUL_STEPS
from streamsvm.solvers.cutting_plane.score_model import SEARCHED_ROWS, LossAt, Sample, SampleState, choose_points

LONGER = (0.0, 2.0**-48, 2.0**-36, 2.0**-24)  # relative increases in length of points in twice the precision


@dataclass(frozen=True)
class Ranking(CutSettings):
    """Settings of ranking.

    pair_cost: K. epsilon: the paper's stop, the largest allowed violation of a cut in units of mean loss (None: stop by
    the gap). accelerated: whether to use a sample.
    """

    pair_cost: float
    epsilon: float | None = None
    accelerated: bool = True
    vectors: ClassVar[int] = 12

    def choose_points(self, sample: Sample, state: State) -> tuple[State, F64]:
        """Return the state and the points (k, d) of the next step; before the first pass, the first of these is w = 0.

        In the paper's algorithm, and if the paper's stop is asked for, the first point of a later step is the master's
        minimiser. If the run is stuck, this point is slightly lengthened. There, pairs of high cost have margins of 1
        up to rounding, and rounding gives some of them a loss. Their losses hide pairs of low cost, and each step finds
        the same cut again. Slightly farther on, none of these pairs has a loss.
        """
        if state.stuck >= DOUBTFUL_STEPS and self.epsilon is None:
            state = replace(state, master_w=(1.0 + LONGER[state.stuck % len(LONGER)]) * state.master_w)
        first = state.master_w if state.passes else np.zeros(len(state.best_w))  # a warm start has another minimiser
        if not self.accelerated:
            return state, first[np.newaxis]
        state, points = choose_points(self, sample, state)
        is_needed = not state.passes or self.epsilon is not None
        return state, np.vstack((first, points)) if is_needed else points


@dataclass
class State(SampleState):
    """The state of a run. It does not include the scores of the rows, which are recomputed in every step.

    latest: unused; kept because checkpoints of earlier versions contain it.
    """

    latest: F64 = field(default_factory=lambda: np.zeros((9, 2)))


def measure_pairs(scores: F64, pairs: Pairs, cost: float) -> LossAt:
    """Return the loss and the cut at scores (n,)."""
    order, up, down = sweep_pairs(scores, pairs, 1.0)
    offset, coefs = cost * float(np.sum(up)), np.empty(len(scores))
    coefs[order] = cost * (up - down)
    return LossAt(offset - float(coefs @ scores), coefs, offset)


@dataclass(frozen=True, kw_only=True)
class PairSample(Sample):
    """A sample of the pairs; its rows are the rows in these pairs. cost: the cost of a sampled pair of weight 1."""

    pairs: Pairs

    def measure(self, scores: F64) -> LossAt:
        """See Sample."""
        return measure_pairs(scores, self.pairs, self.cost)

    def thin(self) -> PairSample:
        """See Sample."""
        return draw_sample(self.pairs, self.cost, SEARCHED_ROWS)


def draw_sample(pairs: Pairs, cost: float, n_rows: int, is_shuffled: bool = False) -> PairSample:
    """Return a sample of about n_rows rows, or of all rows if there are fewer than twice as many (`Pairs.thin`)."""
    stride = len(pairs.ranks) // n_rows
    sample, rows = pairs.thin(stride, is_shuffled) if stride > 1 else (pairs, np.arange(len(pairs.ranks)))
    total = max(sample.total, float(np.finfo(float).tiny))
    return PairSample(cost * pairs.total / total, rows, is_whole=stride <= 1, pairs=sample)


@dataclass(frozen=True)
class PairSearch:
    """The search by a driver that holds the scores of all rows."""

    pairs: Pairs

    def evaluate(self, settings: Ranking, sample: Sample, state: State, W: F64) -> Evaluation:  # noqa: ARG002
        """Compute the scores of all rows in one pass, and the sums of the cuts in another.

        At w = 0 every pair has a loss, so no scores are needed, and K (up + down) bounds the coefs of every cut.
        """
        is_first, scans = not state.passes, list[Scan]()
        scores, rest = np.zeros((int(is_first), len(self.pairs.ranks))), W[int(is_first) :]
        passes = 1 + (len(rest) > 0)
        if len(rest):
            scores = np.concatenate((scores, np.concatenate((yield Scan(list, add_scores, add, (rest,))), axis=1)))
        losses = [measure_pairs(each, self.pairs, settings.pair_cost) for each in scores]
        if is_first:
            most = settings.pair_cost * np.add(*count_pairs(scores[0], self.pairs, 1.0))
            scans.append(Scan(partial(np.zeros, (2, W.shape[1])), add_magnitudes, join_magnitudes, by_row=(most,)))
        elif is_noisy(state, settings.tol):
            points = list_exact_points(state, W)
            scans.append(Scan(list, add_exact_scores, add, (points,)))
        of_loss, offsets = np.array([[loss.loss, loss.offset] for loss in losses]).T
        start, coefs = partial(np.zeros, W.shape), tuple(loss.coefs for loss in losses)
        vectors, *others = yield All([Scan(start, add_sums, add, (W, offsets), coefs), *scans])
        if is_first:
            state = begin_at_zero(state, losses[0].loss, scores.shape[1], others[0])
        elif others:
            exact = (np.concatenate([tile[k] for tile in others[0]]) for k in range(len(points)))
            sums = measure_losses_exactly(exact, self.pairs, shorten(state, points))
            state = take_exact(settings, state, points, sums, scores.shape[1])
        state = move_to_best(state, W, of_loss)
        return state, of_loss, RowSums(vectors, offsets, 2 * offsets), passes  # a pair has two rows


def list_exact_points(state: State, W: F64) -> F64:
    """Return points at which P is computed in twice the precision, (2 len(LONGER), d)."""
    return np.stack([(1.0 + longer) * w for longer in LONGER for w in (W[-1], state.master_w)])


def add_scores(tiles: list[F64], rows: Rows, W: F64) -> None:
    """Append the scores X W' of a tile, (k, rows), at the points W (k, d)."""
    tiles.append(np.ascontiguousarray(compute_scores(rows.X, W).T))


def add_exact_scores(tiles: list[F64], rows: Rows, W: F64) -> None:
    """Append the scores X W' of a tile at k points in twice the precision, (k, rows, 2)."""
    tiles.append(double_double.compute_exact_scores(rows.X, W))


def add_magnitudes(totals: F64, rows: Rows, most: F64) -> None:
    """Add rows to the magnitudes (2, d): sum_i most_i |x_ij|, and max_i |x_ij|.

    most_i is the largest magnitude of row i's coef, so the sum bounds the terms of feature j in any cut.
    """
    add_row_magnitudes(totals[0], totals[1], rows.X, most)


def add_sums(totals: F64, rows: Rows, W: F64, offsets: F64, *coefs: F64) -> None:  # noqa: ARG001
    """Add sum_i coef_i x_i of a tile to totals_k (d,), where coef (n,) is the k-th vector of coefs.

    The points W (k, d) and the offsets (k,) of these cuts only tell where the cuts were made (solvers.keep_dual).
    """
    for k, coef in enumerate(coefs):
        add_cut(totals, k, rows, coef)


def add_cut(vectors: F64, k: int, rows: Rows, coefs: F64) -> None:
    """Add sum_i coefs_i x_i of a tile to vectors_k (d,)."""
    row = np.flatnonzero(coefs)
    add_rows(vectors, rows.X, row, np.full(len(row), k), coefs[row])


def begin_at_zero(state: State, loss: float, n_terms: int, magnitudes: F64) -> State:
    """Return the state with what the first pass has found at w = 0.

    loss: the loss of all pairs. n_terms: the largest number of additions on any term of a sum over rows. magnitudes
    (2, d): see `add_magnitudes`.
    """
    terms = 2.0 * n_terms + 16.0
    sums = (1.0 + bound_rounding(terms, 1.0)) * magnitudes[0]
    return replace(state, total_cost=loss, terms=terms, magnitudes=sums, largest=magnitudes[1])


def shorten(state: State, points: F64) -> F64:
    """Return the shares by which scores at the points (k, d) are shortened, to test that pairs have no loss.

    A pair without a loss at the shortened scores has no loss at the exact scores either: the shares allow for an error
    of the scores, and for the rounding of the shortened scores by one unit in the last place. A share of 1 marks a
    point for which this cannot be decided.
    """
    reach = np.abs(points) @ state.largest  # bounds every score
    shorter: F64 = 4.0 * ((bound_score(points.shape[1]) + UNIT) * reach + UNIT)
    return np.where(shorter < 0.5, shorter, 1.0)


def take_exact(settings: Ranking, state: State, points: F64, sums: F64, n_rows: int) -> State:
    """Move to the best of the points if P is lower there.

    sums (k, 4): the losses at the points in twice the precision (double_double.measure_losses_exactly).
    """
    losses, rounding = round_sums(sums, n_rows, settings.pair_cost)
    is_apart = (losses == 0.0) & (shorten(state, points) < 1.0) & (sums[:, 3] <= 0.0)
    missed = bound_score(points.shape[1]) * (np.abs(points) @ state.magnitudes)
    rounding = rounding + np.where(is_apart, 0.0, missed)
    for k in range(len(points)):  # one by one: a point that is not the lowest may be better despite rounding
        state = cuts.take_exact(state, points[k : k + 1], losses[k : k + 1], rounding[k : k + 1])[0]
    return state


@dataclass
class QueryCuts(CutTotals):
    """Sums over queries at the points W (k, d): the losses, and the offsets and vectors of the cuts."""

    W: F64
    joined: ClassVar = {"W": lambda left, _: left}


def start_cuts(W: F64) -> QueryCuts:
    """Return the sums of no queries."""
    return QueryCuts(np.zeros(len(W)), np.zeros(len(W)), np.zeros_like(W), W)


def add_query_magnitudes(cost: float, sums: F64, rows: Rows, starts: I64) -> None:
    """Add whole queries to the magnitudes (`add_magnitudes`). K (up + down) at w = 0 bounds the coefs of cuts."""
    pairs = double_double.pair_rows(rows, starts)
    add_magnitudes(sums, rows, cost * np.add(*count_pairs(np.zeros(rows.n_rows), pairs, 1.0)))


def add_query_cuts(cost: float, sums: QueryCuts, rows: Rows, starts: I64) -> None:
    """Add the losses and the cuts of whole queries at the points of the sums. starts: the first row of each query."""
    pairs, scores = double_double.pair_rows(rows, starts), compute_scores(rows.X, make_writable(sums.W))
    for k in range(len(sums.W)):
        loss = measure_pairs(scores[:, k].copy(), pairs, cost)
        add_cut(sums.gradients, k, rows, loss.coefs)
        sums.costs[k] += loss.offset
        sums.losses[k] += loss.loss


def measure_exactly(ends: tuple[int, int], W: F64, shorter: F64) -> Scan:
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

    ends: tuple[int, int]

    def evaluate(self, settings: Ranking, sample: Sample, state: State, W: F64) -> Evaluation:  # noqa: ARG002
        """Compute P and the cuts at the points in one pass."""
        scans, cost = list[Scan](), settings.pair_cost
        if not state.passes:
            start, take = partial(np.zeros, (2, W.shape[1])), partial(add_query_magnitudes, cost)
            scans.append(Scan(*sum_queries(self.ends, start, take, join_magnitudes)))
        elif is_noisy(state, settings.tol):
            points = list_exact_points(state, W)
            scans.append(measure_exactly(self.ends, points, shorten(state, points)))
        look = Scan(*sum_queries(self.ends, partial(start_cuts, W), partial(add_query_cuts, cost), add))
        totals, *others = yield All([look, *scans])
        found, n_rows = totals.sums, self.ends[1] - self.ends[0]
        if not state.passes:
            state = begin_at_zero(state, float(found.losses[0]), n_rows, others[0].sums)
        elif others:
            state = take_exact(settings, state, points, others[0].sums, n_rows)
        state, sizes = move_to_best(state, W, found.losses), 2 * found.costs
        return state, found.losses, RowSums(found.gradients, found.costs, sizes), 1


@dataclass
class HistogramSums(RowTotals):
    """Sums over rows. The histograms determine the coefs of the rows in the cuts.

    of_rows: the sums, for instance the cuts (c, d). seen: for each cut, the sums of the rows' weights by page, bucket
    and rank.
    """

    of_rows: Any
    seen: list[F64]
    joined: ClassVar = {"seen": add_each}


def add_rank_magnitudes(most: F64, sums: F64, rows: Rows) -> None:
    """Add rows to the magnitudes (`add_magnitudes`). most (ranks,): bounds on the coefs of rows of weight 1."""
    ranks, weight = histograms.read_ranks(rows)
    add_magnitudes(sums, rows, weight * most[ranks])


def start_histogram_sums(start: Callable[[], Any], shapes: Sequence[tuple[int, ...]]) -> HistogramSums:
    """Return empty sums. start: returns empty sums over the rows. shapes: the shape of `seen` for each cut."""
    return HistogramSums(start(), [np.zeros(shape) for shape in shapes])


def add_histogram_cuts(of_cuts: list[HistogramCut], sums: HistogramSums, rows: Rows, W: F64) -> None:
    """Add the rows of a tile to each cut."""
    (ranks, weight), scores = histograms.read_ranks(rows), compute_scores(rows.X, make_writable(W))
    for k, cut in enumerate(of_cuts):
        coefs = cut.find_coefs(np.ascontiguousarray(scores[:, k]), ranks, weight, sums.seen[k])
        add_cut(sums.of_rows, k, rows, coefs)


def sum_histograms(n_ranks: int, X: Matrix, W: F64) -> Scan:
    """Return the pass that computes histograms at the points W (k, d).

    X: the rows of a sample, whose scores determine the widths of the buckets.
    """
    exponents = [choose_exponent(scores, n_ranks) for scores in compute_scores(X, make_writable(W)).T]
    start = partial(histograms.start_histograms, n_ranks, exponents)
    return Scan(start, histograms.add_histograms, add_each, (W,))


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
        start = partial(start_histogram_sums, partial(np.zeros, W.shape), [cut.coefs.shape for cut in of_cuts])
        sums = yield Scan(start, partial(add_histogram_cuts, of_cuts), add, (W,))
        for each, seen in zip(measured, sums.seen, strict=True):
            each.require_same(seen, self.n_rows)
        losses, offsets = np.array([[each.upper, each.cut.offset] for each in measured]).T
        if others:
            n_terms = self.n_rows + histograms.MOST_CELLS  # sums over rows, then over buckets
            state = begin_at_zero(state, float(losses[0]), n_terms, others[0])
        return move_to_best(state, W, losses), losses, RowSums(sums.of_rows, offsets, 2 * offsets), 2
