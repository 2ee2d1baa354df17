"""Ordinal regression and ROC area by cutting planes: Joachims 2006, Algorithm 2, and its acceleration by a line search.

    P(w) = 1/2 |w|^2 + K sum over pairs v_i v_j max(0, 1 - (w.x_i - w.x_j))        no bias: it would cancel

A pair is two rows i and j of one query, i of the higher rank; v_i is the weight of row i, and K the cost of a pair of
weight 1. K makes the loss at w = 0 that of n rows of cost C in classification, so n C is the paper's C. Every w gives a
cut: the loss is at least b - a.w everywhere, with a = sum coefs_i x_i and b = offset of ranking.pair_losses. The cuts,
the master problem and the lower bound are explained in cutting_plane.cuts.

A step makes two passes. The first one finds the scores of all rows at both ends of the segment from the best point so
far to the master's minimiser. With these the driver evaluates P anywhere on the segment by a sort, without a pass. It
moves to the lowest P that it finds, and the second pass sums up the rows of the cut there: this is the line search of
OCAS (Franc & Sonnenburg 2008; see cutting_plane.solver). OCAS makes another cut further on, which is not worth its sort
here (it saved 2 passes of 80 on Adult and Covertype). With `accelerated=False` the solver is the paper's algorithm,
which cuts at the master's minimiser.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from streamsvm.methods.cutting_plane.cuts import (
    CutState,
    RowSums,
    add_cuts,
    count_pass,
    cut_bytes,
    find_status,
    is_better,
    master_bytes,
    most_cuts,
)
from streamsvm.methods.cutting_plane.exact_points import is_noisy
from streamsvm.methods.cutting_plane.master_problem import DOUBTFUL_STEPS, minimise_master, scale_costs
from streamsvm.methods.ranking.pair_losses import PairLoss, Sample, draw_sample, find_step, measure_pairs
from streamsvm.numeric.exact_losses import bound_score, compute_exact_scores
from streamsvm.numeric.exact_pairs import measure_pairs_exactly
from streamsvm.numeric.magnitudes import add_row_magnitudes
from streamsvm.numeric.pair_counts import Pairs, count_pairs
from streamsvm.numeric.rounding import UNIT, bound_rounding
from streamsvm.numeric.row_products import add_rows, compute_scores
from streamsvm.numeric.rows import F64, Rows
from streamsvm.requests import All, Scan, Solver, Step

AHEAD = 0.1  # the step at which the cut is made if P rises from the start of the segment on
LONGER = (0.0, 2.0**-48, 2.0**-36, 2.0**-24)  # by these shares points in twice the precision are made longer
RETREATS = 8  # steps that are tried at most, each a quarter of the last, if the sample led to a higher P

Tile = tuple[int, F64]


@dataclass(frozen=True)
class Ranking:
    """Settings of the solver.

    pair_cost: K; tol: the relative gap to reach; epsilon: the paper's stop, by how much the worst cut may be violated
    in units of mean loss (None: stop by the gap); accelerated: whether there is a line search; max_cuts: how many cuts
    are kept (None: as many as `cuts.most_cuts` says).
    """

    pair_cost: float
    tol: float = 1e-3
    epsilon: float | None = None
    accelerated: bool = True
    max_cuts: int | None = None

    def most_cuts(self, n_features: int) -> int:
        """Return how many cuts are kept at once at most."""
        return self.max_cuts or most_cuts(n_features)

    def driver_bytes(self, n_features: int) -> int:
        """Return the bytes of the driver without the vectors that have an entry a row."""
        return cut_bytes(n_features, self.most_cuts(n_features)) + 8 * 12 * n_features

    def turn_bytes(self, n_features: int) -> int:
        """Return the part of the driver's bytes that is in use only while a step is computed."""
        return master_bytes(self.most_cuts(n_features))


@dataclass
class State(CutState):
    """All that changes. The scores of the rows are no part of it: they are computed anew in every step.

    latest (RETREATS + 1, 2): for each cut of the last step its place on the segment, from 0 to 1, and its offset; the
    other rows are zeros.
    """

    latest: F64 = field(default_factory=lambda: np.zeros((RETREATS + 1, 2)))


def start_state(n_features: int) -> State:
    """Return the state before the first pass: w = 0, and no cuts."""
    return State(np.zeros(n_features), np.zeros(n_features), np.empty((0, n_features)))


def warm_state(settings: Ranking, before: State, factor: float) -> State:
    """Return the state to start from, given the last state of the problem whose costs are `factor` times smaller."""
    return scale_costs(before, factor, settings.tol)


def solve(settings: Ranking, pairs: Pairs, state: State) -> Solver:
    """Run Algorithm 2 from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    n_features, total = len(state.best_w), settings.pair_cost * pairs.total
    sample = draw_sample(pairs, settings.pair_cost)
    while True:
        before, passes = state, 1
        if state.passes:
            state, passes = lengthen(settings, state), 2
            tiles = yield Scan(list, add_scores, combine_tiles, (np.stack((state.best_w, state.master_w)),))
            state, losses, worst, near = _search_line(settings, pairs, sample, state, join_tiles(tiles))
            sums = _sum_rows(n_features, [loss.coefs for loss in losses])
            if is_noisy(state, settings.tol):
                points = np.stack([(1.0 + longer) * w for longer in LONGER for w in (near, state.master_w)])
                cuts, tiles = yield All([sums, Scan(list, add_exact_scores, combine_tiles, (points,))])
                state = _take_exact(settings, pairs, state, points, tiles)
            else:
                cuts = yield sums
        else:
            state, losses, worst, most = _begin(settings, pairs, state)
            start = partial(np.zeros, (2, n_features))
            magnitudes = Scan(start, add_magnitudes, combine_magnitudes, by_row=(most,))
            cuts, found = yield All([_sum_rows(n_features, [loss.coefs for loss in losses]), magnitudes])
            state = note_magnitudes(state, found)
        offsets = np.array([loss.offset for loss in losses])
        violation = (worst - state.slack) / total
        state = add_cuts(state, sum_pairs(cuts, offsets), settings.most_cuts(n_features))
        state = minimise_master(state, settings.tol)
        state = count_pass(state, before, passes)
        yield Step(state, state.progress, find_status(state, settings.tol, settings.epsilon, violation))


def lengthen(settings: Ranking, state: State) -> State:
    """Return the state with a slightly longer minimiser, if nothing moves any more.

    At the minimiser, pairs of high cost have margins of 1 but for rounding, which puts some of them into the loss. They
    hide pairs of low cost there, and each step finds the same cut again. A little farther on, none of them has a loss.
    """
    if state.stuck < DOUBTFUL_STEPS or settings.epsilon is not None:
        return state
    return replace(state, master_w=(1.0 + LONGER[state.stuck % len(LONGER)]) * state.master_w)


def add_scores(tiles: list[Tile], rows: Rows, W: F64) -> None:
    """Note the scores X W' of a tile, (2, rows), at the best point and at the master's minimiser."""
    tiles.append((rows.start, np.ascontiguousarray(compute_scores(rows.X, W).T)))


def add_exact_scores(tiles: list[Tile], rows: Rows, W: F64) -> None:
    """Note the scores X W' of a tile at k points in twice the precision, (k, rows, 2)."""
    tiles.append((rows.start, compute_exact_scores(rows.X, W)))


def combine_tiles(left: list[Tile], right: list[Tile]) -> list[Tile]:
    """Return the tiles of both."""
    return left + right


def join_tiles(tiles: list[Tile], axis: int = 1) -> F64:
    """Return the scores of all rows in the order of the rows, which are numbered along `axis`."""
    return np.concatenate([scores for _, scores in sorted(tiles, key=lambda tile: tile[0])], axis=axis)


def _sum_rows(n_features: int, coefs: list[F64]) -> Scan:
    """Return the scan that sums up a cut for each vector of coefs (n,)."""
    return Scan(partial(np.zeros, (len(coefs), n_features)), add_sums, combine_sums, by_row=tuple(coefs))


def add_magnitudes(totals: F64, rows: Rows, most: F64) -> None:
    """Add rows to the magnitudes (2, d): sum_i most_i |x_ij|, and max_i |x_ij|.

    most_i is the largest size of row i's coef, so the sum bounds the terms of feature j in any cut.
    """
    add_row_magnitudes(totals[0], totals[1], rows.X, most)


def combine_magnitudes(left: F64, right: F64) -> F64:
    """Return the magnitudes of the rows of both: the sum of their first rows, and the maximum of their second."""
    return np.stack((left[0] + right[0], np.maximum(left[1], right[1])))


def add_sums(totals: F64, rows: Rows, *coefs: F64) -> None:
    """Add sum_i coef_i x_i for each vector of coefs."""
    for k, coef in enumerate(coefs):
        row = np.flatnonzero(coef)
        add_rows(totals, rows.X, row, np.full(len(row), k), coef[row])


def combine_sums(left: F64, right: F64) -> F64:
    """Return the sums over the rows of both."""
    return left + right


def sum_pairs(cuts: F64, offsets: F64) -> RowSums:
    """Return cuts of pairs as sums over rows. A pair is a term of both of its rows."""
    return RowSums(cuts, offsets, 2 * offsets)


def _begin(settings: Ranking, pairs: Pairs, state: State) -> tuple[State, list[PairLoss], float, F64]:
    """Return the state at w = 0, the cut there, its loss, and the largest size of each row's coef, (n,).

    At w = 0 every pair is in the loss, so no pass is needed, and no coef can be larger than K (up + down).
    """
    n_rows = len(pairs.ranks)
    loss = measure_pairs(np.zeros(n_rows), pairs, settings.pair_cost)
    up, down = count_pairs(np.zeros(n_rows), pairs, 1.0)
    state = replace(begin_at_zero(state, loss.loss, n_rows), latest=_list_cuts([(0.0, loss.offset)]))
    return state, [loss], loss.loss, settings.pair_cost * (up + down)


def begin_at_zero(state: State, loss: float, n_rows: int) -> State:
    """Return the state at w = 0, given the loss of all pairs there."""
    terms = 2.0 * n_rows + 16.0
    rounding = bound_rounding(terms, loss)
    state = replace(state, total_cost=loss, terms=terms)
    if is_better(loss, rounding, state):  # a warm start may know a better point
        state = replace(state, best_w=np.zeros_like(state.best_w), objective=loss, objective_rounding=rounding)
    return state


def note_magnitudes(state: State, found: F64) -> State:
    """Return the state with the magnitudes (2, d) that the first pass has found."""
    return replace(state, magnitudes=(1.0 + bound_rounding(state.terms, 1.0)) * found[0], largest=found[1])


def _search_line(
    settings: Ranking, pairs: Pairs, sample: Sample, state: State, scores: F64
) -> tuple[State, list[PairLoss], float, F64]:
    """Move to the best point that is found on the segment.

    Return the state, the cuts to make, the loss at the master's minimiser, and the point. That loss is infinite unless
    the paper's stop or the paper's algorithm needs it.
    """
    start, end = scores
    change, moves = end - start, state.master_w - state.best_w
    squares = np.array([state.best_w @ moves, moves @ moves])
    square = float(state.best_w @ state.best_w) / 2

    def measure(step: float) -> tuple[float, PairLoss]:
        loss = measure_pairs(start + step * change, pairs, settings.pair_cost)
        return square + step * float(squares[0]) + step**2 * float(squares[1]) / 2 + loss.loss, loss

    steps = [1.0] if settings.epsilon is not None or not settings.accelerated else []
    found = [(step, *measure(step)) for step in steps]
    if settings.accelerated:
        known = measure_pairs(start, pairs, settings.pair_cost).coefs  # with the same scores, ties fall the same way
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
    if is_better(objective, rounding, state):
        state = replace(state, best_w=near, objective=objective, objective_rounding=rounding)
    latest = _list_cuts([(one[0], one[2].offset) for one in found])
    return replace(state, latest=latest), [one[2] for one in found], worst, near


def _list_cuts(made: list[tuple[float, float]]) -> F64:
    """Return the steps and offsets of the cuts that were made, followed by zeros."""
    listed = np.zeros((RETREATS + 1, 2))
    listed[: len(made)] = made
    return listed


def _take_exact(settings: Ranking, pairs: Pairs, state: State, points: F64, tiles: list[Tile]) -> State:
    """Take the best of the points if it is better. tiles: the points' scores (k, rows, 2) in twice the precision."""
    for k, w in enumerate(points):
        own, lengths, share = (
            join_tiles([(start, scores[k]) for start, scores in tiles], axis=0),
            np.abs(w),
            bound_score(len(w)),
        )
        loss, rounding = measure_pairs_exactly(own, pairs, settings.pair_cost)
        if loss > 0.0 or not _is_apart(own, pairs, share * float(lengths @ state.largest)):
            rounding += share * float(lengths @ state.magnitudes)
        half = float(w @ w) / 2
        rounding += bound_rounding(len(w) + 8, 2 * half)
        if is_better(half + loss, rounding, state):
            state = replace(state, best_w=w, objective=half + loss, objective_rounding=rounding)
    return state


def _is_apart(scores: F64, pairs: Pairs, missed: float) -> bool:
    """Return whether no pair has a loss, though each of the scores (n, 2) may be off by `missed`.

    No pair has a loss even at scores that are shorter by `shrinks`. Shortening them rounds each by one unit in its last
    place, which is allowed for as well.
    """
    shrinks = 4.0 * (missed + UNIT * float(np.max(np.abs(scores[:, 0]), initial=0.0)) + UNIT)
    return shrinks < 0.5 and measure_pairs_exactly((1.0 - shrinks) * scores, pairs, 1.0)[0] == 0.0
