"""Algorithm 2 of Joachims 2006 for rows in queries, with one pass a step, and nothing that grows with the rows.

It is the algorithm of ranking.solver with the same line search, but losses and cuts are summed up where the rows are
read (ranking.query_passes), and the line search needs no pass. The driver holds the rows of some queries, whose scores
at both ends of the segment tell where P is least on it. The slope of P at the start of the segment, the best point, is
that of the highest cut there, which is the cut that was made there, unless it was dropped. So a step makes one pass,
which finds P and the cut at the point that was chosen. If P is not lower there, a second pass looks at points nearer to
the best point.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from streamsvm.methods.cutting_plane.cuts import add_cuts, count_pass, find_status, is_better
from streamsvm.methods.cutting_plane.exact_points import is_noisy
from streamsvm.methods.cutting_plane.master_problem import minimise_master
from streamsvm.methods.ranking.pair_losses import Sample, find_step
from streamsvm.methods.ranking.query_passes import CutSums, Ends, measure_exactly, sum_cuts, sum_first_cut
from streamsvm.methods.ranking.solver import (
    AHEAD,
    LONGER,
    Ranking,
    State,
    begin_at_zero,
    lengthen,
    note_magnitudes,
)
from streamsvm.numeric.exact_losses import bound_score
from streamsvm.numeric.exact_pairs import round_sums
from streamsvm.numeric.rounding import UNIT, bound_rounding
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, Matrix
from streamsvm.requests import All, Question, Solver, Step, Take

NEARER = (1 / 4, 1 / 16)  # parts of the step that are looked at together if the sample led to a higher P


def solve(settings: Ranking, ends: Ends, total: float, sample: Sample, state: State) -> Solver:
    """Run Algorithm 2 from a state. A run that is resumed from the state in any `Step` gives the same bits.

    ends: the first row of all, and the row after the last. total: the weights of all pairs. sample: some queries, whose
    rows are taken first.
    """
    X = (yield Take(sample.rows)).X
    while True:
        before, passes = state, 1
        if state.passes:
            state, found, passes = yield from _search_line(settings, ends, sample, X, lengthen(settings, state))
        else:
            sums = (yield sum_first_cut(ends, len(state.best_w), settings.pair_cost)).sums
            state, found = _begin(state, sums, ends[1] - ends[0]), _read(sums)
        violation = (float(found.losses[0]) - state.slack) / (settings.pair_cost * total)
        most = settings.most_cuts(len(state.best_w))
        state = add_cuts(state, found.cuts, found.offsets, 2 * found.offsets, most)
        state = minimise_master(state, settings.tol)
        state = count_pass(state, before, passes)
        yield Step(state, state.progress, find_status(state, settings.tol, settings.epsilon, violation))


class Found(NamedTuple):
    """What passes have found at points W (k, d): P (k,), the loss (k,), and the cuts (k, d) with their offsets (k,)."""

    W: F64
    objectives: F64
    losses: F64
    cuts: F64
    offsets: F64

    def first(self, n: int) -> Found:
        """Return what was found at the first n points."""
        return Found(*(part[:n] for part in self))


def _read(sums: CutSums) -> Found:
    objectives = np.einsum("kj,kj->k", sums.W, sums.W) / 2 + sums.losses
    return Found(sums.W, objectives, sums.losses, sums.cuts, sums.offsets)


def _begin(state: State, sums: CutSums, n_rows: int) -> State:
    """Return the state at w = 0."""
    return note_magnitudes(begin_at_zero(state, float(sums.losses[0]), n_rows), sums.magnitudes)


def _search_line(
    settings: Ranking, ends: Ends, sample: Sample, X: Matrix, state: State
) -> Generator[Question, Any, tuple[State, Found, int]]:
    """Move to the best point that is found on the segment from the best point so far to the master's minimiser.

    Return the state, what was found, and the passes. The master's minimiser is the first point if the run uses the
    paper's stop, or has no line search.
    """
    moves = state.master_w - state.best_w
    steps = [1.0] if settings.epsilon is not None or not settings.accelerated else []
    step = _choose_step(sample, X, state, moves) if settings.accelerated else 0.0
    if settings.accelerated:
        steps.append(step or AHEAD)
    W = state.best_w + np.outer(steps, moves)
    if is_noisy(state, settings.tol):
        points = np.stack([(1.0 + longer) * w for longer in LONGER for w in (W[-1], state.master_w)])
        exactly = measure_exactly(ends, points, _shorten(state, points))
        totals, exact = yield All([sum_cuts(ends, W, settings.pair_cost), exactly])
    else:
        totals, exact = (yield sum_cuts(ends, W, settings.pair_cost)), None
    found, passes = _read(totals.sums), 1
    if step > 0.0 and not found.objectives[-1] < state.objective:
        nearer = yield from _retreat(settings, ends, step * moves, state)
        found, passes = Found(*map(np.concatenate, zip(found, nearer, strict=True))), 2
    state = _move(state, found)
    if exact is not None:
        state = _take_exact(settings, state, points, exact.sums, ends[1] - ends[0])
    return state, found, passes


def _choose_step(sample: Sample, X: Matrix, state: State, moves: F64) -> float:
    """Return the step in [0, 1] at which P is least according to the sample, whose rows are X."""
    highest = int(np.argmax(state.offsets - state.cuts @ state.best_w))
    squares = np.array([state.best_w @ moves, moves @ moves])
    start, end = compute_scores(X, np.stack((state.best_w, state.master_w))).T
    return find_step(sample, start, end - start, squares, float(squares[0] - state.cuts[highest] @ moves))


def _retreat(settings: Ranking, ends: Ends, moves: F64, state: State) -> Generator[Question, Any, Found]:
    """Look at points nearer to the best point; return those up to a lower P."""
    W = state.best_w + np.outer(NEARER, moves)
    found = _read((yield sum_cuts(ends, W, settings.pair_cost)).sums)
    lower = np.flatnonzero(found.objectives < state.objective)
    return found.first(int(lower[0]) + 1 if len(lower) else len(W))


def _move(state: State, found: Found) -> State:
    """Return the state at the best of the points, if it is better."""
    best = int(np.argmin(found.objectives))
    objective, rounding = float(found.objectives[best]), state.bound_loss(np.abs(state.best_w) + np.abs(state.master_w))
    if not is_better(objective, rounding, state):
        return state
    return replace(state, best_w=found.W[best], objective=objective, objective_rounding=rounding)


def _shorten(state: State, points: F64) -> F64:
    """Return by which shares the scores at the points (k, d) are made shorter, to see if pairs are apart there.

    A pair that has no loss at the shorter scores has none however much the scores are off (compare solver.is_apart).
    Shares of 1 stand for points at which this cannot be told.
    """
    reach = np.abs(points) @ state.largest  # no score is larger
    shorter: F64 = 4.0 * ((bound_score(points.shape[1]) + UNIT) * reach + UNIT)
    return np.where(shorter < 0.5, shorter, 1.0)


def _take_exact(settings: Ranking, state: State, points: F64, sums: F64, n_rows: int) -> State:
    """Take the best of the points if it is better. sums (k, 4): of measure_exactly at each of them."""
    share, shorter = bound_score(points.shape[1]), _shorten(state, points)
    for w, (found, rest, size, of_shorter), by in zip(points, sums.tolist(), shorter.tolist(), strict=True):
        loss, rounding = round_sums(found + rest, size, n_rows, settings.pair_cost)
        if loss != 0.0 or by == 1.0 or of_shorter > 0.0:
            rounding += share * float(np.abs(w) @ state.magnitudes)
        half = float(w @ w) / 2
        rounding += bound_rounding(len(w) + 8, 2 * half)
        if is_better(half + loss, rounding, state):
            state = replace(state, best_w=w, objective=half + loss, objective_rounding=rounding)
    return state
