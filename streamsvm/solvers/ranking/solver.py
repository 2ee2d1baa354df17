"""Ordinal regression and ROC area by cutting planes: Joachims 2006, Algorithm 2, and its acceleration by a line search.

    P(w) = 1/2 |w|^2 + K sum over pairs v_i v_j max(0, 1 - (w.x_i - w.x_j))        no bias: it would cancel

A pair is two rows i and j of one query, where i has the higher rank; v_i is the weight of row i, and K the cost of a
pair of weight 1. With the chosen K, the loss at w = 0 equals the loss of n rows of cost C in classification; n C is the
paper's C. Every w gives a cut: the loss is at least b - a.w everywhere, with a = sum coefs_i x_i and b = offset
(below). The cuts, the master problem and the lower bound are explained in cutting_plane.cuts.

A step makes two passes. The first computes the scores of all rows at both ends of the segment from the best point so
far to the master's minimiser. With these scores the driver evaluates P anywhere on the segment by a sort, without a
pass. It moves to the lowest P it finds, and the second pass sums the rows for the cut there. This is the line search of
OCAS (Franc & Sonnenburg 2008; see cutting_plane.line_search). OCAS makes another cut farther on, which is not worth its
sort here (it saved 2 passes of 80 on Adult and Covertype). With `accelerated=False` the solver is the paper's
algorithm, which makes its cut at the master's minimiser.

The loss of all pairs at given scores, and its cut there:

    loss(s) = K sum over pairs v_i v_j max(0, 1 - (s_i - s_j)) = offset - coefs.s
    coefs_i = K (up_i - down_i),   offset = K sum_i up_i,   cut at s: sum_i coefs_i x_i

s_i is the score of row i; up and down are c+ and c- of Algorithm 2 (losses.pairs). The loss is convex in s, so the
minimum on a segment is found by bisection on the sign of the slope. The slope is estimated on a sample of the queries,
or of the rows of a single query, which takes a hundredth of the time. A constant added to the estimate makes it exact
at the start of the segment.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from operator import add
from typing import Any, ClassVar, Protocol

import numpy as np

from streamsvm.certificates.double_double import bound_score, compute_exact_scores, measure_pairs_exactly
from streamsvm.losses.pairs import SAMPLE_ROWS, Pairs, count_pairs, sweep_pairs
from streamsvm.numeric.rounding import UNIT, add_row_magnitudes, bound_rounding, join_magnitudes
from streamsvm.numeric.rows import F64, I64, Rows, add_rows, compute_scores
from streamsvm.passes import All, Request, Requests, Scan, Step
from streamsvm.solvers.cutting_plane.cuts import CutSettings, CutState, RowSums, find_status, is_noisy, move_to
from streamsvm.solvers.cutting_plane.master import DOUBTFUL_STEPS, take_cuts

LOOKED_AT, HALVINGS = 1 << 17, (10, 40)  # rows that all bisections visit together; fewest and most bisections
AHEAD = 0.1  # the step for the cut if P rises from the start of the segment
LONGER = (0.0, 2.0**-48, 2.0**-36, 2.0**-24)  # relative increases in length of points in twice the precision
RETREATS = 8  # the maximum number of shorter steps to try if the sample's step raised P; each is a quarter of the last


@dataclass(frozen=True)
class PairLoss:
    """The loss of all pairs at given scores, and its cut there.

    coefs (n,), offset: the cut, sum coefs_i x_i and its offset.
    """

    loss: float
    coefs: F64
    offset: float


@dataclass(frozen=True)
class Sample:
    """A sample of the pairs.

    rows: the numbers of the rows in these pairs. cost: the cost of a sampled pair of weight 1, with which the total
    cost of the sample equals that of all pairs. X: the rows, needed if the driver does not hold the scores of all rows.
    """

    pairs: Pairs
    rows: I64
    cost: float
    X: Any = None


def measure_pairs(scores: F64, pairs: Pairs, cost: float) -> PairLoss:
    """Return the loss and the cut at scores (n,), in O(n log n)."""
    order, up, down = sweep_pairs(scores, pairs, 1.0)
    offset, coefs = cost * float(np.sum(up)), np.empty(len(scores))
    coefs[order] = cost * (up - down)
    return PairLoss(offset - float(coefs @ scores), coefs, offset)


def draw_sample(pairs: Pairs, cost: float) -> Sample:
    """Return a sample of about SAMPLE_ROWS rows: every k-th query, or every k-th row of a single query.

    If the sample has no pairs, return all rows.
    """
    sample, rows = pairs.thin(max(1, len(pairs.ranks) // SAMPLE_ROWS))
    total = sample.total
    if total == 0.0:
        return Sample(pairs, np.arange(len(pairs.ranks)), cost)
    return Sample(sample, rows, cost * pairs.total / total)


def find_step(sample: Sample, start: F64, change: F64, squares: F64, slope: float | None) -> float:
    """Return the step in [0, 1] that minimises P on the sample.

    The scores of the sample's rows at a step t are start + t change. The result is the upper end of the last interval
    of the bisection, just beyond the minimum. Some pairs become active at the minimum, and a cut made just before it
    would repeat a known cut.

    squares (2,): the slope of 1/2 |w|^2 at the step t is squares[0] + t squares[1]. slope: the exact slope of P at 0
    (None: the sample's slope).
    """

    def find_slope(step: float) -> float:
        coefs = measure_pairs(start + step * change, sample.pairs, sample.cost).coefs
        return float(squares[0] + step * squares[1] - coefs @ change)

    own = find_slope(0.0)
    exact = own if slope is None else slope
    correction = exact - own
    if exact >= 0.0:
        return 0.0
    low, high = 0.0, 1.0
    if find_slope(1.0) + correction <= 0.0:
        return 1.0
    for _ in range(int(np.clip(LOOKED_AT // len(sample.rows), *HALVINGS))):
        middle = (low + high) / 2
        low, high = (low, middle) if find_slope(middle) + correction > 0.0 else (middle, high)
    return high


@dataclass(frozen=True)
class Ranking(CutSettings):
    """Settings of ranking.

    pair_cost: K. epsilon: the paper's stop, the largest allowed violation of a cut in units of mean loss (None: stop by
    the gap). accelerated: whether to use a line search.
    """

    pair_cost: float
    epsilon: float | None = None
    accelerated: bool = True
    vectors: ClassVar[int] = 12


@dataclass
class State(CutState):
    """The state of a run. It does not include the scores of the rows, which are recomputed in every step.

    latest (RETREATS + 1, 2): for each cut of the last step, its position on the segment, from 0 to 1, and its offset;
    the remaining rows are zeros.
    """

    latest: F64 = field(default_factory=lambda: np.zeros((RETREATS + 1, 2)))


Searching = Generator[Request, Any, tuple[State, RowSums, float, int]]


class Search(Protocol):
    """The part of a step that computes P and cuts.

    Both methods return the state, the cuts, the loss at the master's minimiser, and the number of passes. The loss may
    be the loss at another point, unless the run uses the paper's stop or has no line search.
    """

    def begin(self, settings: Ranking, state: State) -> Searching:
        """Compute P and the cut at w = 0."""

    def search_line(self, settings: Ranking, sample: Sample, state: State) -> Searching:
        """Move to the best point found on the segment from the best point so far to the master's minimiser."""


def solve(settings: Ranking, search: Search, total: float, sample: Sample, state: State) -> Requests:
    """Run Algorithm 2 from a state. A run that is resumed from the state in any `Step` gives the same bits.

    total: the sum of the weights of all pairs.
    """
    while True:
        before = state
        if state.passes:
            state, cuts, loss, passes = yield from search.search_line(settings, sample, lengthen(settings, state))
        else:
            state, cuts, loss, passes = yield from search.begin(settings, state)
        violation = (loss - state.slack) / (settings.pair_cost * total)
        state = take_cuts(state, before, cuts, settings.max_cuts, settings.tol, passes)
        yield Step(state, state.progress, find_status(state, settings.tol, settings.epsilon, violation))


@dataclass(frozen=True)
class PairSearch:
    """The search by a driver that holds the scores of all rows."""

    pairs: Pairs

    def begin(self, settings: Ranking, state: State) -> Searching:
        """Make the cut at w = 0.

        Every pair has a loss there, so no scores are needed, and K (up + down) bounds the coefs of every cut.
        """
        n_rows, cost = len(self.pairs.ranks), settings.pair_cost
        loss = measure_pairs(np.zeros(n_rows), self.pairs, cost)
        most = cost * np.add(*count_pairs(np.zeros(n_rows), self.pairs, 1.0))
        state = replace(begin_at_zero(state, loss.loss, n_rows), latest=_list_cuts([(0.0, loss.offset)]))
        start = partial(np.zeros, (2, len(state.best_w)))
        magnitudes = Scan(start, add_magnitudes, join_magnitudes, by_row=(most,))
        cuts, found = yield All([_sum_rows(state, [loss]), magnitudes])
        return note_magnitudes(state, found), sum_pairs(cuts, np.array([loss.offset])), loss.loss, 1

    def search_line(self, settings: Ranking, sample: Sample, state: State) -> Searching:
        """Move to the best point found on the segment, after a pass for the scores at both ends."""
        tiles = yield Scan(list, add_scores, add, (np.stack((state.best_w, state.master_w)),))
        state, losses, worst, near = _search_line(settings, self.pairs, sample, state, tiles)
        sums = _sum_rows(state, losses)
        if is_noisy(state, settings.tol):
            points = np.stack([(1.0 + longer) * w for longer in LONGER for w in (near, state.master_w)])
            cuts, tiles = yield All([sums, Scan(list, add_exact_scores, add, (points,))])
            state = _take_exact(settings, self.pairs, state, points, tiles)
        else:
            cuts = yield sums
        return state, sum_pairs(cuts, np.array([loss.offset for loss in losses])), worst, 2


def lengthen(settings: Ranking, state: State) -> State:
    """Return the state with the master's minimiser slightly lengthened if the run is stuck.

    At the minimiser, pairs of high cost have margins of 1 up to rounding, and rounding gives some of them a loss. Their
    losses hide pairs of low cost, and each step finds the same cut again. Slightly farther on, none of these pairs has
    a loss.
    """
    if state.stuck < DOUBTFUL_STEPS or settings.epsilon is not None:
        return state
    return replace(state, master_w=(1.0 + LONGER[state.stuck % len(LONGER)]) * state.master_w)


def add_scores(tiles: list[F64], rows: Rows, W: F64) -> None:
    """Append the scores X W' of a tile, (2, rows), at the best point and at the master's minimiser."""
    tiles.append(np.ascontiguousarray(compute_scores(rows.X, W).T))


def add_exact_scores(tiles: list[F64], rows: Rows, W: F64) -> None:
    """Append the scores X W' of a tile at k points in twice the precision, (k, rows, 2)."""
    tiles.append(compute_exact_scores(rows.X, W))


def _sum_rows(state: State, losses: list[PairLoss]) -> Scan:
    """Return the scan that sums the cuts of the losses."""
    start = partial(np.zeros, (len(losses), len(state.best_w)))
    return Scan(start, add_sums, add, by_row=tuple(loss.coefs for loss in losses))


def add_magnitudes(totals: F64, rows: Rows, most: F64) -> None:
    """Add rows to the magnitudes (2, d): sum_i most_i |x_ij|, and max_i |x_ij|.

    most_i is the largest magnitude of row i's coef, so the sum bounds the terms of feature j in any cut.
    """
    add_row_magnitudes(totals[0], totals[1], rows.X, most)


def add_sums(totals: F64, rows: Rows, *coefs: F64) -> None:
    """Add sum_i coef_i x_i of a tile to totals_k (d,), where coef (n,) is the k-th vector of coefs."""
    for k, coef in enumerate(coefs):
        row = np.flatnonzero(coef)
        add_rows(totals, rows.X, row, np.full(len(row), k), coef[row])


def sum_pairs(cuts: F64, offsets: F64) -> RowSums:
    """Return the cuts of pairs as sums over rows. Each pair contributes a term to both of its rows."""
    return RowSums(cuts, offsets, 2 * offsets)


def begin_at_zero(state: State, loss: float, n_rows: int) -> State:
    """Return the state after w = 0 is evaluated, given the loss of all pairs there."""
    terms = 2.0 * n_rows + 16.0
    state = replace(state, total_cost=loss, terms=terms)
    # The best point of a warm start stays if it is better.
    return move_to(state, np.zeros_like(state.best_w), loss, bound_rounding(terms, loss))


def note_magnitudes(state: State, found: F64) -> State:
    """Return the state with the magnitudes (2, d) from the first pass."""
    return replace(state, magnitudes=(1.0 + bound_rounding(state.terms, 1.0)) * found[0], largest=found[1])


def _search_line(
    settings: Ranking, pairs: Pairs, sample: Sample, state: State, tiles: list[F64]
) -> tuple[State, list[PairLoss], float, F64]:
    """Move to the best point found on the segment.

    Return the state, the cuts to make, the loss at the master's minimiser, and the best point of the segment. The loss
    is infinite unless the paper's stop or the paper's algorithm needs it.
    """
    start, end = np.concatenate(tiles, axis=1)
    change, moves = end - start, state.master_w - state.best_w
    squares = np.array([state.best_w @ moves, moves @ moves])
    square = float(state.best_w @ state.best_w) / 2

    def measure(step: float) -> tuple[float, PairLoss]:
        loss = measure_pairs(start + step * change, pairs, settings.pair_cost)
        return square + step * float(squares[0]) + step**2 * float(squares[1]) / 2 + loss.loss, loss

    steps = [1.0] if settings.epsilon is not None or not settings.accelerated else []
    found = [(step, *measure(step)) for step in steps]
    if settings.accelerated:
        known = measure_pairs(start, pairs, settings.pair_cost).coefs  # with the same scores, ties break the same way
        slope = float(squares[0] - known @ change)
        step = find_step(sample, start[sample.rows], change[sample.rows], squares, slope)
        retreats, step = (RETREATS, step) if step > 0.0 else (1, AHEAD)
        for _ in range(retreats):
            found.append((step, *measure(step)))
            if found[-1][1] < state.objective:
                break
            step /= 4
    worst = found[0][2].loss if steps else float("inf")
    step, objective, _ = min(found, key=lambda one: one[1])
    rounding = state.bound_loss(np.abs(state.best_w) + np.abs(state.master_w))
    near = state.best_w + step * moves
    state = move_to(state, near, objective, rounding)
    latest = _list_cuts([(one[0], one[2].offset) for one in found])
    return replace(state, latest=latest), [one[2] for one in found], worst, near


def _list_cuts(made: list[tuple[float, float]]) -> F64:
    """Return the steps and offsets of the cuts made, followed by zeros."""
    listed = np.zeros((RETREATS + 1, 2))
    listed[: len(made)] = made
    return listed


def _take_exact(settings: Ranking, pairs: Pairs, state: State, points: F64, tiles: list[F64]) -> State:
    """Move to the best of the points if P is lower there. tiles: the scores (k, rows, 2) at the points, as pairs."""
    share = bound_score(points.shape[1])
    for k, w in enumerate(points):
        own, lengths = np.concatenate([scores[k] for scores in tiles]), np.abs(w)
        loss, rounding = measure_pairs_exactly(own, pairs, settings.pair_cost)
        if loss > 0.0 or not _is_apart(own, pairs, share * float(lengths @ state.largest)):
            rounding += share * float(lengths @ state.magnitudes)
        half = float(w @ w) / 2
        state = move_to(state, w, half + loss, rounding + bound_rounding(len(w) + 8, 2 * half))
    return state


def _is_apart(scores: F64, pairs: Pairs, missed: float) -> bool:
    """Return whether certainly no pair has a loss, if each of the scores (n, 2) has an error of at most `missed`.

    The test is that no pair has a loss at scores shortened by the share `shrinks`, which also allows for the rounding
    of the shortened scores by one unit in the last place.
    """
    shrinks = 4.0 * (missed + UNIT * float(np.max(np.abs(scores[:, 0]), initial=0.0)) + UNIT)
    return shrinks < 0.5 and measure_pairs_exactly((1.0 - shrinks) * scores, pairs, 1.0)[0] == 0.0
