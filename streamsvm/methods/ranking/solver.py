"""Ordinal regression and ROC area by cutting planes: Joachims 2006, Algorithm 2, and its acceleration by line search.

    P(w) = 1/2 |w|^2 + K sum over pairs v_i v_j max(0, 1 - (w.x_i - w.x_j))        no bias: it would cancel

over the pairs of rows of one query, i of the higher rank. K makes the loss at w = 0 that of n rows of cost C in
classification; so the paper's C is n C. At any w there is a cut: the loss is at least b - a.w everywhere, with
a = sum coefs_i x_i and b = offset of ranking.pair_losses. Cuts, master problem and lower bound: see cutting_plane.cuts.

A step makes two passes: the scores X w of the master's minimiser, and the cuts, sums of rows. In between, the driver
has the scores of all rows at both ends of the segment from the best point so far to that minimiser; so the objective
anywhere on it takes a sort and no pass. It moves to the least one, and cuts there: the line search of OCAS (Franc &
Sonnenburg 2008), whose second cut, further on, is not worth its sort here (tried on Adult and Covertype: 2 passes of
80 less). `accelerated=False` is the paper's algorithm, which cuts at the master's minimiser.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from streamsvm.methods.cutting_plane.cuts import (
    CutState,
    add_cuts,
    count_pass,
    cut_bytes,
    find_status,
    is_better,
    master_bytes,
    minimise_master,
    most_cuts,
    scale_costs,
)
from streamsvm.methods.cutting_plane.exact_points import is_noisy
from streamsvm.methods.ranking.pair_losses import PairLoss, Sample, draw_sample, find_step, measure_pairs
from streamsvm.numeric.exact_losses import compute_exact_scores
from streamsvm.numeric.exact_pairs import measure_pairs_exactly
from streamsvm.numeric.kernels import absolute, raise_largest
from streamsvm.numeric.pair_counts import Pairs, count_pairs
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, Rows, add_rows, compute_scores
from streamsvm.requests import All, Scan, Solver, Step

AHEAD = 0.1  # the cut is made there where no step is better than none
LONGER = (0.0, 2.0**-48, 2.0**-38)  # of points that are evaluated in twice the precision
RETREATS = 8  # the sample was wrong: a quarter of the step, so many times at most

Tile = tuple[int, F64]


@dataclass(frozen=True)
class Ranking:
    """Settings. pair_cost: K; tol: relative gap; epsilon: the paper's stop, violation by mean loss (None: by gap)."""

    pair_cost: float
    tol: float = 1e-3
    epsilon: float | None = None
    accelerated: bool = True
    max_cuts: int | None = None

    def most_cuts(self, n_features: int) -> int:
        """Cuts kept at once."""
        return self.max_cuts or most_cuts(n_features)

    def driver_bytes(self, n_features: int) -> int:
        """Memory of the driver but for the rows' vectors."""
        return cut_bytes(n_features, self.most_cuts(n_features)) + 8 * 12 * n_features

    def turn_bytes(self, n_features: int) -> int:
        """Part of it that is in use only while a step is computed."""
        return master_bytes(self.most_cuts(n_features))


@dataclass
class State(CutState):
    """All that changes; the rows' scores are computed anew in every step.

    latest (RETREATS + 1, 2): of the cuts that the last step made, the step on its segment and the offset; then zeros.
    """

    latest: F64 = field(default_factory=lambda: np.zeros((RETREATS + 1, 2)))


def start_state(n_features: int) -> State:
    """Return w = 0, no cuts."""
    return State(np.zeros(n_features), np.zeros(n_features), np.empty((0, n_features)))


def warm_state(settings: Ranking, before: State, factor: float) -> State:
    """Return the state to start from, given the last one of the same problem with costs so many times smaller."""
    return scale_costs(before, factor, settings.tol)


def solve(settings: Ranking, pairs: Pairs, state: State) -> Solver:
    """Algorithm 2; every `Step` carries the whole state, from which `solve` goes on to the same bits."""
    n_features, total = len(state.best_w), settings.pair_cost * pairs.total
    sample = draw_sample(pairs, settings.pair_cost)
    while True:
        before, passes = state, 1
        if state.passes:
            passes = 2
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
            larger = 1.0 + bound_rounding(state.terms, 1.0)
            state = replace(state, magnitudes=larger * found[0], largest=found[1])
        offsets = np.array([loss.offset for loss in losses])
        violation = (worst - state.slack) / total
        state = add_cuts(state, cuts, offsets, 2 * offsets, settings.most_cuts(n_features))
        state = minimise_master(state, settings.tol)
        state = count_pass(state, before, passes)
        yield Step(state, state.progress, find_status(state, settings.tol, settings.epsilon, violation))


def add_scores(tiles: list[Tile], rows: Rows, W: F64) -> None:
    """Note X W' of a tile, (2, rows): of the best point and of the master's minimiser."""
    tiles.append((rows.start, np.ascontiguousarray(compute_scores(rows.X, W).T)))


def add_exact_scores(tiles: list[Tile], rows: Rows, W: F64) -> None:
    """Note X W' of a tile in twice the precision, (k, rows, 2)."""
    tiles.append((rows.start, compute_exact_scores(rows.X, W)))


def combine_tiles(left: list[Tile], right: list[Tile]) -> list[Tile]:
    """Return both."""
    return left + right


def join_tiles(tiles: list[Tile], axis: int = 1) -> F64:
    """Return the scores of all rows, in their order."""
    return np.concatenate([scores for _, scores in sorted(tiles, key=lambda tile: tile[0])], axis=axis)


def _sum_rows(n_features: int, coefs: list[F64]) -> Scan:
    """Return the pass that makes a cut of each of the coefs."""
    return Scan(partial(np.zeros, (len(coefs), n_features)), add_sums, combine_sums, by_row=tuple(coefs))


def add_magnitudes(totals: F64, rows: Rows, most: F64) -> None:
    """Add sum_i most_i |x_i|, the most that a cut's terms can come to; and raise max_i |x_i|."""
    every, sizes = np.arange(rows.n_rows), absolute(rows.X)
    add_rows(totals, sizes, every, np.zeros_like(every), most)
    raise_largest(totals[1], sizes)


def combine_magnitudes(left: F64, right: F64) -> F64:
    """Return the sum of the first row, and the larger of the second."""
    return np.stack((left[0] + right[0], np.maximum(left[1], right[1])))


def add_sums(totals: F64, rows: Rows, *coefs: F64) -> None:
    """Add sum_i coef_i x_i of each of the coefs."""
    for k, coef in enumerate(coefs):
        row = np.flatnonzero(coef)
        add_rows(totals, rows.X, row, np.full(len(row), k), coef[row])


def combine_sums(left: F64, right: F64) -> F64:
    """Return the sum."""
    return left + right


def _begin(settings: Ranking, pairs: Pairs, state: State) -> tuple[State, list[PairLoss], float, F64]:
    """Return the state at w = 0, where every pair is in the loss, the cut there, and the most that a coef can be."""
    n_rows = len(pairs.ranks)
    loss = measure_pairs(np.zeros(n_rows), pairs, settings.pair_cost)
    up, down = count_pairs(np.zeros(n_rows), pairs, 1.0)
    state = replace(
        state,
        objective=loss.loss,
        total_cost=loss.loss,
        terms=2.0 * n_rows + 16.0,
        objective_rounding=bound_rounding(2.0 * n_rows + 16.0, loss.loss),
        latest=_list_cuts([(0.0, loss.offset)]),
    )
    return state, [loss], loss.loss, settings.pair_cost * (up + down)


def _search_line(
    settings: Ranking, pairs: Pairs, sample: Sample, state: State, scores: F64
) -> tuple[State, list[PairLoss], float, F64]:
    """Move to the best point found on the segment; return where to cut, the loss at the master's minimiser, that point.

    That loss is infinite where the stop does not ask for it.
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
        known = measure_pairs(start, pairs, settings.pair_cost).coefs  # at these very scores: ties are decided alike
        step = find_step(sample, start, end, squares, float(squares[0] - known @ change))
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
    """Return steps and offsets of the cuts that were made, and zeros for those that were not."""
    listed = np.zeros((RETREATS + 1, 2))
    listed[: len(made)] = made
    return listed


def _take_exact(settings: Ranking, pairs: Pairs, state: State, points: F64, tiles: list[Tile]) -> State:
    """Take the best of the points, if it is better; tiles: their scores (k, rows, 2) in twice the precision."""
    for k, w in enumerate(points):
        own = join_tiles([(start, scores[k]) for start, scores in tiles], axis=0)
        loss, rounding = measure_pairs_exactly(own, pairs, settings.pair_cost)
        half = float(w @ w) / 2
        rounding += bound_rounding(len(w) + 8, 2 * half)
        if is_better(half + loss, rounding, state):
            state = replace(state, best_w=w, objective=half + loss, objective_rounding=rounding)
    return state
