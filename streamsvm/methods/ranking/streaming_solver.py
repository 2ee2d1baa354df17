"""Algorithm 2 of Joachims 2006 with nothing in the driver that grows with the rows.

It is the algorithm of ranking.solver with the same line search. But losses and cuts are summed up where the rows are
read, by one of two searches: for rows in queries (ranking.query_search), and for many rows of few ranks
(ranking.histogram_search). The line search needs no pass. The driver holds a sample of the rows, whose scores at both
ends of the segment tell where P is least on it. The slope of P at the start of the segment, the best point, is that of
the highest cut there, which is the cut that was made there, unless it was dropped.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from streamsvm.methods.cutting_plane.cuts import add_cuts, count_pass, find_status, is_better
from streamsvm.methods.cutting_plane.master_problem import minimise_master
from streamsvm.methods.ranking.pair_losses import Sample, find_step
from streamsvm.methods.ranking.query_passes import CutSums
from streamsvm.methods.ranking.solver import AHEAD, Ranking, State, lengthen, sum_pairs
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, Matrix
from streamsvm.requests import Question, Solver, Step, Take

NEARER = (1 / 4, 1 / 16)  # parts of the step that are looked at if the sample led to a higher P


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


Searching = Generator[Question, Any, tuple[State, Found, int]]


class Search(Protocol):
    """How a step finds P and cuts. Both return the state, what was found where cuts are to be made, and the passes."""

    def begin(self, settings: Ranking, state: State) -> Searching:
        """Look at w = 0."""

    def search_line(self, settings: Ranking, sample: Sample, X: Matrix, state: State) -> Searching:
        """Move to the best point that is found on the segment from the best point so far to the master's minimiser.

        What was found first is at the master's minimiser if the run uses the paper's stop, or has no line search.
        """


def solve(settings: Ranking, search: Search, total: float, sample: Sample, state: State) -> Solver:
    """Run Algorithm 2 from a state. A run that is resumed from the state in any `Step` gives the same bits.

    total: the weights of all pairs. sample: some rows, which are taken first.
    """
    X = (yield Take(sample.rows)).X
    while True:
        before = state
        if state.passes:
            state, found, passes = yield from search.search_line(settings, sample, X, lengthen(settings, state))
        else:
            state, found, passes = yield from search.begin(settings, state)
        violation = (float(found.losses[0]) - state.slack) / (settings.pair_cost * total)
        most = settings.most_cuts(len(state.best_w))
        state = add_cuts(state, sum_pairs(found.cuts, found.offsets), most)
        state = minimise_master(state, settings.tol)
        state = count_pass(state, before, passes)
        yield Step(state, state.progress, find_status(state, settings.tol, settings.epsilon, violation))


def read_sums(sums: CutSums) -> Found:
    """Return what a pass has found that summed up losses and cuts."""
    objectives = np.einsum("kj,kj->k", sums.W, sums.W) / 2 + sums.losses
    return Found(sums.W, objectives, sums.losses, sums.cuts, sums.offsets)


def choose_steps(settings: Ranking, sample: Sample, X: Matrix, state: State) -> tuple[list[float], float]:
    """Return the steps at which P is to be looked at, and that of the sample: 0 if P does not fall on it, or unused."""
    steps = [1.0] if settings.epsilon is not None or not settings.accelerated else []
    if not settings.accelerated:
        return steps, 0.0
    step = _choose_step(sample, X, state, state.master_w - state.best_w)
    return [*steps, step or AHEAD], step


def _choose_step(sample: Sample, X: Matrix, state: State, moves: F64) -> float:
    """Return the step in [0, 1] at which P is least according to the sample, whose rows are X."""
    highest = int(np.argmax(state.offsets - state.cuts @ state.best_w))
    squares = np.array([state.best_w @ moves, moves @ moves])
    start, end = compute_scores(X, np.stack((state.best_w, state.master_w))).T
    return find_step(sample, start, end - start, squares, float(squares[0] - state.cuts[highest] @ moves))


def move(state: State, found: Found) -> State:
    """Return the state at the best of the points, if it is better."""
    best = int(np.argmin(found.objectives))
    objective, rounding = float(found.objectives[best]), state.bound_loss(np.abs(state.best_w) + np.abs(state.master_w))
    if not is_better(objective, rounding, state):
        return state
    return replace(state, best_w=found.W[best], objective=objective, objective_rounding=rounding)
