"""Algorithm 2 of Joachims 2006 with driver memory that does not grow with the number of rows.

This is the algorithm of ranking.solver with the same line search, except that losses and cuts are summed by the tasks
that read the rows, in one of two ways. The line search needs no pass. The driver holds a sample of the rows, whose
scores at both ends of the segment show where P is lowest on the segment. The segment starts at the best point. The
slope of P there is the slope of the highest cut, which was made at this point unless it was dropped. If P is noisy, the
best point may be one where P was computed in twice the precision but no cut was made; the slope then comes from the
sample alone.

`QuerySearch` is for rows in queries. Pairs are formed only within a query. So the loss of all pairs and its cut are
sums over queries (ranking.solver), just as in classification they are sums over rows, and no vector has an entry per
row (losses.pairs). A pass computes P and the cut at the point that the sample suggests. If P is not lower there, a
second pass evaluates points nearer to the best point.

`HistogramSearch` is for many rows with few ranks. The first pass computes the histograms of the scores
(losses.histograms) at the point that the sample suggests, and at points nearer to the best point. The histograms bound
the loss at these points, and determine the contribution of each row to a cut by the row's rank and the bucket of its
score. P uses the upper bound. The second pass sums the cut at the point with the lowest P; the value of the cut there
is the lower bound. So the reported gap is proved. It cannot become smaller than the distance between the bounds. If
scores are spread out, this distance is about the square of a bucket's width; for two ranks, it is about 1e-9 of the
loss of all pairs.

The second pass computes the scores again, at the same set of points, so that it reproduces the same bits. If it does
not, for example on a different kind of processor, the weights of the buckets differ, and the run ends with an error.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Any, ClassVar, NamedTuple

import numpy as np

from streamsvm.certificates import double_double
from streamsvm.losses import histograms
from streamsvm.losses.histograms import HistogramCut, RankTotals
from streamsvm.losses.pairs import count_pairs, sum_queries
from streamsvm.numeric.rounding import SMALLEST, UNIT, add_row_magnitudes, bound_rounding, join_magnitudes
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, add_rows, compute_scores, make_writable
from streamsvm.passes import All, Request, Requests, RowTotals, Scan, Take
from streamsvm.solvers.cutting_plane.cuts import RowSums, is_noisy, move_to
from streamsvm.solvers.ranking import solver
from streamsvm.solvers.ranking.solver import Ranking, Sample, Search, Searching, State

NEARER = (1 / 4, 1 / 16)  # fractions of the step to try if the sample's step led to a higher P

Ends = tuple[int, int]


@dataclass
class CutSums(RowTotals):
    """Sums over queries at the points W (k, d).

    cuts (k, d), offsets, losses (k,): the cut at each point, its offset, and the loss there. magnitudes (2, d),
    from the first pass: sum_i most_i |x_ij| and max_i |x_ij|, where most_i is the largest magnitude of row i's coef in
    any cut.
    """

    W: F64
    cuts: F64
    offsets: F64
    losses: F64
    magnitudes: F64
    joined: ClassVar = {"W": lambda left, _: left, "magnitudes": join_magnitudes}

    def add_first(self, rows: Rows, loss: float, most: F64) -> None:
        """Add the loss of rows at w = 0, and the rows' magnitudes.

        most (n,): the largest magnitude of each row's coef.
        """
        self.offsets[0] += loss
        self.losses[0] += loss
        add_row_magnitudes(self.magnitudes[0], self.magnitudes[1], rows.X, most)


def start_cuts(W: F64) -> CutSums:
    """Return the sums of no queries at the points W (k, d)."""
    return CutSums(W, np.zeros_like(W), np.zeros(len(W)), np.zeros(len(W)), np.zeros((2, W.shape[1])))


def add_first_cut(cost: float, sums: CutSums, rows: Rows, starts: I64) -> None:
    """Add the cut of whole queries at w = 0. K (up + down) at w = 0 bounds the coefs of every cut."""
    up, down = count_pairs(np.zeros(rows.n_rows), double_double.pair_rows(rows, starts), 1.0)
    _add_cut(sums, 0, rows, cost * (up - down))
    sums.add_first(rows, cost * float(np.sum(up)), cost * (up + down))


def sum_cuts(ends: Ends, W: F64, cost: float) -> Scan:
    """Return the pass that sums the losses and the cuts at the points W (k, d)."""
    return Scan(*sum_queries(ends, partial(start_cuts, W), partial(add_query_cuts, cost), add))


def add_query_cuts(cost: float, sums: CutSums, rows: Rows, starts: I64) -> None:
    """Add the losses and the cuts of whole queries at the points of the sums. starts: the first row of each query."""
    pairs, scores = double_double.pair_rows(rows, starts), compute_scores(rows.X, make_writable(sums.W))
    for k in range(len(sums.W)):
        loss = solver.measure_pairs(scores[:, k].copy(), pairs, cost)
        _add_cut(sums, k, rows, loss.coefs)
        sums.offsets[k] += loss.offset
        sums.losses[k] += loss.loss


def _add_cut(sums: CutSums, k: int, rows: Rows, coefs: F64) -> None:
    row = np.flatnonzero(coefs)
    add_rows(sums.cuts, rows.X, row, np.full(len(row), k), coefs[row])


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

    def begin(self, settings: Ranking, state: State) -> Searching:
        """Compute P and the cut at w = 0."""
        start, take = partial(start_cuts, np.zeros((1, len(state.best_w)))), partial(add_first_cut, settings.pair_cost)
        found = yield Scan(*sum_queries(self.ends, start, take, add))
        return begin_with(state, found.sums, self.ends[1] - self.ends[0])

    def search_line(self, settings: Ranking, sample: Sample, state: State) -> Searching:
        """Move to the best point found, and make cuts at all points evaluated."""
        steps, chosen = choose_steps(settings, sample, state)
        moves = state.master_w - state.best_w
        W = state.best_w + np.outer(steps, moves)
        if is_noisy(state, settings.tol):
            points = np.stack([(1.0 + longer) * w for longer in solver.LONGER for w in (W[-1], state.master_w)])
            exactly = measure_exactly(self.ends, points, _shorten(state, points))
            totals, exact = yield All([sum_cuts(self.ends, W, settings.pair_cost), exactly])
        else:
            totals, exact = (yield sum_cuts(self.ends, W, settings.pair_cost)), None
        found, passes = read_sums(totals.sums), 1
        if chosen > 0.0 and not found.objectives[-1] < state.objective:
            nearer = yield from self._retreat(settings, chosen * moves, state)
            found, passes = Found(*map(np.concatenate, zip(found, nearer, strict=True))), 2
        state = move(state, found)
        if exact is not None:
            state = _take_exact(settings, state, points, exact.sums, self.ends[1] - self.ends[0])
        return state, *found.offer(), passes

    def _retreat(self, settings: Ranking, moves: F64, state: State) -> Generator[Request, Any, Found]:
        """Evaluate points nearer to the best point; return the results up to the first point with a lower P."""
        W = state.best_w + np.outer(NEARER, moves)
        found = read_sums((yield sum_cuts(self.ends, W, settings.pair_cost)).sums)
        lower = np.flatnonzero(found.objectives < state.objective)
        n = int(lower[0]) + 1 if len(lower) else len(W)
        return Found(*(part[:n] for part in found))


def _shorten(state: State, points: F64) -> F64:
    """Return the shares by which scores at the points (k, d) are shortened, to test that pairs have no loss.

    A pair without a loss at the shortened scores has no loss at the exact scores either, despite rounding (compare
    solver._is_apart). A share of 1 marks a point for which this cannot be decided.
    """
    reach = np.abs(points) @ state.largest  # bounds every score
    shorter: F64 = 4.0 * ((double_double.bound_score(points.shape[1]) + UNIT) * reach + UNIT)
    return np.where(shorter < 0.5, shorter, 1.0)


def _take_exact(settings: Ranking, state: State, points: F64, sums: F64, n_rows: int) -> State:
    """Move to the best of the points if P is lower there.

    sums (k, 4): the losses at the points in twice the precision, from `measure_exactly`.
    """
    share, shorter = double_double.bound_score(points.shape[1]), _shorten(state, points)
    for w, (found, rest, size, of_shorter), by in zip(points, sums.tolist(), shorter.tolist(), strict=True):
        loss, rounding = double_double.round_sums(found + rest, size, n_rows, settings.pair_cost)
        if loss != 0.0 or by == 1.0 or of_shorter > 0.0:
            rounding += share * float(np.abs(w) @ state.magnitudes)
        half = float(w @ w) / 2
        state = move_to(state, w, half + loss, rounding + bound_rounding(len(w) + 8, 2 * half))
    return state


class Found(NamedTuple):
    """The results of passes at points W (k, d).

    objectives, losses (k,): P and the loss at each point. cuts (k, d), offsets (k,): the cuts there and their offsets.
    """

    W: F64
    objectives: F64
    losses: F64
    cuts: F64
    offsets: F64

    def offer(self) -> tuple[RowSums, float]:
        """Return all cuts, and the loss at the first point."""
        return solver.sum_pairs(self.cuts, self.offsets), float(self.losses[0])


def solve(settings: Ranking, search: Search, total: float, sample: Sample, state: State) -> Requests:
    """Read the rows of the sample, then run Algorithm 2 from a state as ranking.solver does."""
    X = (yield Take(sample.rows)).X
    yield from solver.solve(settings, search, total, replace(sample, X=X), state)


def read_sums(sums: CutSums) -> Found:
    """Return the results of a pass that summed losses and cuts."""
    objectives = np.einsum("kj,kj->k", sums.W, sums.W) / 2 + sums.losses
    return Found(sums.W, objectives, sums.losses, sums.cuts, sums.offsets)


def begin_with(state: State, sums: CutSums, n_terms: int) -> tuple[State, RowSums, float, int]:
    """Return what `Search.begin` returns, given the sums of the first pass.

    n_terms: the largest number of additions on any term.
    """
    state = solver.begin_at_zero(state, float(sums.losses[0]), n_terms)
    return solver.note_magnitudes(state, sums.magnitudes), *read_sums(sums).offer(), 1


def choose_steps(settings: Ranking, sample: Sample, state: State) -> tuple[list[float], float]:
    """Return the steps at which to evaluate P, and the step that the sample suggests.

    This step is 0 if P does not fall on the sample, or if there is no line search.
    """
    steps = [1.0] if settings.epsilon is not None or not settings.accelerated else []
    if not settings.accelerated:
        return steps, 0.0
    highest, moves = int(np.argmax(state.offsets - state.cuts @ state.best_w)), state.master_w - state.best_w
    squares = np.array([state.best_w @ moves, moves @ moves])
    start, end = compute_scores(sample.X, np.stack((state.best_w, state.master_w))).T
    slope = None if is_noisy(state, settings.tol) else float(squares[0] - state.cuts[highest] @ moves)
    step = solver.find_step(sample, start, end - start, squares, slope)
    return [*steps, step or solver.AHEAD], step


def move(state: State, found: Found) -> State:
    """Return the state moved to the best of the points if P is lower there."""
    best = int(np.argmin(found.objectives))
    rounding = state.bound_loss(np.abs(state.best_w) + np.abs(state.master_w))
    return move_to(state, found.W[best], found.objectives[best], rounding)


@dataclass
class HistogramCuts(RowTotals):
    """Sums over rows.

    cuts (c, d): the cuts. seen: for each cut, the sums of the rows' weights by page, bucket and rank.
    """

    cuts: F64
    seen: list[F64]
    joined: ClassVar = {"seen": lambda left, right: [a + b for a, b in zip(left, right, strict=True)]}


def add_first_ranks(up: F64, down: F64, sums: CutSums, rows: Rows) -> None:
    """Add the cut at w = 0. v_i (up + down) at w = 0, for the row's rank, bounds the coef of row i in every cut."""
    ranks, weight = histograms.read_ranks(rows)
    coefs = weight * (up - down)[ranks]
    add_rows(sums.cuts, rows.X, np.arange(rows.n_rows), np.zeros(rows.n_rows, np.int64), coefs)
    sums.add_first(rows, float(np.sum(weight * up[ranks])), weight * (up + down)[ranks])


def start_histogram_cuts(n_features: int, shapes: Sequence[tuple[int, ...]]) -> HistogramCuts:
    """Return empty cuts. shapes: the shape of `seen` for each cut."""
    return HistogramCuts(np.zeros((len(shapes), n_features)), [np.zeros(shape) for shape in shapes])


def add_histogram_cuts(at: list[int], cuts: list[HistogramCut], sums: HistogramCuts, rows: Rows, W: F64) -> None:
    """Add the rows of a tile to each cut."""
    (ranks, weight), scores = histograms.read_ranks(rows), compute_scores(rows.X, make_writable(W))
    for k, cut in enumerate(cuts):
        coefs = cut.find_coefs(np.ascontiguousarray(scores[:, at[k]]), ranks, weight, sums.seen[k])
        row = np.flatnonzero(coefs)
        add_rows(sums.cuts, rows.X, row, np.full(len(row), k), coefs[row])


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

    def begin(self, settings: Ranking, state: State) -> Searching:
        """Compute P and the cut at w = 0."""
        cost, start = settings.pair_cost, partial(start_cuts, np.zeros((1, len(state.best_w))))
        take = partial(add_first_ranks, cost * self.ranks.below, cost * self.ranks.above)
        sums = yield Scan(start, take, add)
        return begin_with(state, sums, self.n_rows + histograms.MOST_CELLS)  # sums over rows, then over buckets

    def search_line(self, settings: Ranking, sample: Sample, state: State) -> Searching:
        """Move to the best point found on the segment from the best point so far to the master's minimiser.

        Cuts are made at the chosen points, and also at a nearer point if P is lowest there. A cut at the nearer point
        alone would not be enough, because every cut near the best point may already be known.
        """
        steps, chosen = choose_steps(settings, sample, state)
        if state.stuck and settings.accelerated:
            chosen = steps[-1] = self._go_farther(sample.X, state, steps[-1])
        nearer = [part * chosen for part in NEARER if chosen > 0.0]
        W = state.best_w + np.outer([*steps, *nearer], state.master_w - state.best_w)
        counted = yield sum_histograms(self.ranks.n_ranks, sample.X, W)
        measured = [histograms.measure_histogram(each, self.n_rows, settings.pair_cost) for each in counted]
        losses, offsets = np.array([[each.upper, each.cut.offset] for each in measured]).T
        objectives = np.einsum("kj,kj->k", W, W) / 2 + losses
        at = sorted({*range(len(steps)), int(np.argmin(objectives))})
        cuts = [measured[k].cut for k in at]
        first = partial(start_histogram_cuts, W.shape[1], [cut.coefs.shape for cut in cuts])
        sums = yield Scan(first, partial(add_histogram_cuts, at, cuts), add, (W,))
        for k, seen in zip(at, sums.seen, strict=True):
            measured[k].require_same(seen, self.n_rows)
        found = Found(W[at], objectives[at], losses[at], sums.cuts, offsets[at])
        return move(state, found), *found.offer(), 2

    def _go_farther(self, X: Matrix, state: State, step: float) -> float:
        """Return a longer step: scores move by one more bucket, doubled for each successive step without progress.

        Pairs that begin to have a loss within one bucket are counted together, so a shorter step may find only known
        cuts.
        """
        ends = np.stack((state.best_w, state.master_w))
        start, end = compute_scores(X, ends).T
        width = 2.0 ** -min(histograms.choose_exponents(X, ends, self.ranks.n_ranks))
        return min(1.0, step + 2.0**state.stuck * width / max(float(np.max(np.abs(end - start))), SMALLEST))
