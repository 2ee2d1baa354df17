"""Ordinal regression and ROC area by cutting planes: Joachims 2006, Algorithm 2, and its acceleration by line search.

    P(w) = 1/2 |w|^2 + K sum over pairs v_i v_j max(0, 1 - (w.x_i - w.x_j))        no bias: it would cancel

over the pairs of rows of one query, i of the higher rank. K makes the loss at w = 0 that of n rows of cost C in
classification; so the paper's C is n C. At any w there is a cut: the loss is at least b - a.w everywhere, with
a = sum coefs_i x_i and b = offset of numeric.pair_losses. Cuts, master problem and lower bound: see solvers.cuts.

A step makes two passes: the scores X w of the master's minimiser, and the cuts, sums of rows. In between, the driver
has the scores of all rows at both ends of the segment from the best point so far to that minimiser; so the objective
anywhere on it takes a sort and no pass. It moves to the least one, and cuts there: the line search of OCAS (Franc &
Sonnenburg 2008), whose second cut, further on, is not worth its sort here (tried on Adult and Covertype: 2 passes of
80 less). `accelerated=False` is the paper's algorithm, which cuts at the master's minimiser.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from streamsvm.numeric.pair_counts import Pairs
from streamsvm.numeric.pair_losses import PairLoss, Sample, draw_sample, find_step, measure_pairs
from streamsvm.numeric.rows import F64, Rows, add_rows, compute_scores
from streamsvm.solvers.cuts import (
    CutState,
    add_cuts,
    count_pass,
    cut_bytes,
    find_status,
    master_bytes,
    minimise_master,
    most_cuts,
    scale_costs,
)
from streamsvm.solvers.protocol import Progress, Scan, Solver, Step

AHEAD = 0.1  # the cut is made there where no step is better than none
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
    """All that changes. Of the best point: scores and coefs (n,)."""

    scores: F64 = field(default_factory=lambda: np.empty(0))
    coefs: F64 = field(default_factory=lambda: np.empty(0))
    shapes: ClassVar = CutState.shapes | {"scores": ("n",), "coefs": ("n",)}


def start_state(n_features: int) -> State:
    """Return w = 0, no cuts."""
    return State(np.zeros(n_features), np.zeros(n_features), np.empty((0, n_features)))


def warm_state(settings: Ranking, before: State, factor: float) -> State:
    """Return the state to start from, given the last one of the same problem with costs so many times smaller."""
    return replace(scale_costs(before, factor, settings.tol), coefs=factor * before.coefs)


def solve(settings: Ranking, pairs: Pairs, state: State) -> Solver:
    """Algorithm 2; every `Step` carries the whole state, from which `solve` goes on to the same bits."""
    n_features, total = len(state.best_w), settings.pair_cost * pairs.total
    sample = draw_sample(pairs, settings.pair_cost)
    while True:
        before, passes = state, 1
        if len(state.scores):
            passes = 2
            tiles = yield Scan(list, add_scores, combine_tiles, (state.master_w[None, :],))
            state, losses, worst = _search_line(settings, pairs, sample, state, join_tiles(tiles))
        else:
            state, losses, worst = _begin(settings, pairs, state)
        start = partial(np.zeros, (len(losses), n_features))
        cuts = yield Scan(start, add_sums, combine_sums, by_row=tuple(loss.coefs for loss in losses))
        offsets = np.array([loss.offset for loss in losses])
        violation = (worst - state.slack) / total
        state = minimise_master(add_cuts(state, cuts, offsets, settings.most_cuts(n_features)), settings.tol)
        state = count_pass(state, before, passes)
        progress = Progress(state.objective, state.lower_bound, state.passes)
        yield Step(state, progress, find_status(state, settings.tol, settings.epsilon, violation))


def add_scores(tiles: list[Tile], rows: Rows, W: F64) -> None:
    """Note X w of a tile."""
    tiles.append((rows.start, compute_scores(rows.X, W)[:, 0]))


def combine_tiles(left: list[Tile], right: list[Tile]) -> list[Tile]:
    """Return both."""
    return left + right


def join_tiles(tiles: list[Tile]) -> F64:
    """Return the scores of all rows, in their order."""
    return np.concatenate([scores for _, scores in sorted(tiles, key=lambda tile: tile[0])])


def add_sums(totals: F64, rows: Rows, *coefs: F64) -> None:
    """Add sum_i coef_i x_i of each of the coefs."""
    for k, coef in enumerate(coefs):
        row = np.flatnonzero(coef)
        add_rows(totals, rows.X, row, np.full(len(row), k), coef[row])


def combine_sums(left: F64, right: F64) -> F64:
    """Return the sum."""
    return left + right


def _begin(settings: Ranking, pairs: Pairs, state: State) -> tuple[State, list[PairLoss], float]:
    """Return the state at w = 0, where every pair is in the loss, and the cut there."""
    scores = np.zeros(len(pairs.ranks))
    loss = measure_pairs(scores, pairs, settings.pair_cost)
    return replace(state, scores=scores, coefs=loss.coefs, objective=loss.loss), [loss], loss.loss


def _search_line(
    settings: Ranking, pairs: Pairs, sample: Sample, state: State, scores: F64
) -> tuple[State, list[PairLoss], float]:
    """Move to the best point found on the segment; return where to cut, and the loss at the master's minimiser.

    That loss is infinite where the stop does not ask for it.
    """
    change, moves = scores - state.scores, state.master_w - state.best_w
    squares = np.array([state.best_w @ moves, moves @ moves])
    square = float(state.best_w @ state.best_w) / 2

    def measure(step: float) -> tuple[float, PairLoss]:
        loss = measure_pairs(state.scores + step * change, pairs, settings.pair_cost)
        return square + step * float(squares[0]) + step**2 * float(squares[1]) / 2 + loss.loss, loss

    steps = [1.0] if settings.epsilon is not None or not settings.accelerated else []
    found = [(step, *measure(step)) for step in steps]
    if settings.accelerated:
        step = find_step(sample, state.scores, scores, squares, float(squares[0] - state.coefs @ change))
        retreats, step = (RETREATS, step) if step > 0.0 else (1, AHEAD)
        for _ in range(retreats):
            found.append((step, *measure(step)))
            if found[-1][1] < state.objective:
                break
            step /= 4
    worst = found[0][2].loss if steps else float("inf")
    step, objective, loss = min(found, key=lambda one: one[1])
    if objective < state.objective:
        best_w, best_scores = state.best_w + step * moves, state.scores + step * change
        state = replace(state, best_w=best_w, scores=best_scores, coefs=loss.coefs, objective=objective)
    return state, [one[2] for one in found], worst
