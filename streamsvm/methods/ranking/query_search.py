"""How a step of ranking.streaming_solver finds P and a cut for rows in queries: in one pass.

The pass finds P and the cut at the point that the sample has chosen. If P is not lower there, a second pass looks at
points nearer to the best point.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.methods.cutting_plane.cuts import is_better
from streamsvm.methods.cutting_plane.exact_points import is_noisy
from streamsvm.methods.ranking.pair_losses import Sample
from streamsvm.methods.ranking.query_passes import Ends, measure_exactly, sum_cuts, sum_first_cut
from streamsvm.methods.ranking.solver import LONGER, Ranking, State, begin_at_zero, note_magnitudes
from streamsvm.methods.ranking.streaming_solver import NEARER, Found, Searching, choose_steps, move, read_sums
from streamsvm.numeric.exact_losses import bound_score
from streamsvm.numeric.exact_pairs import round_sums
from streamsvm.numeric.rounding import UNIT, bound_rounding
from streamsvm.numeric.rows import F64, Matrix
from streamsvm.requests import All, Question


@dataclass(frozen=True)
class QuerySearch:
    """The searches for rows in queries. ends: the first row of all, and the row after the last."""

    ends: Ends

    def begin(self, settings: Ranking, state: State) -> Searching:
        """Look at w = 0."""
        sums = (yield sum_first_cut(self.ends, len(state.best_w), settings.pair_cost)).sums
        state = begin_at_zero(state, float(sums.losses[0]), self.ends[1] - self.ends[0])
        return note_magnitudes(state, sums.magnitudes), read_sums(sums), 1

    def search_line(self, settings: Ranking, sample: Sample, X: Matrix, state: State) -> Searching:
        """Move to the best point that is found; cuts are made at all points that were looked at."""
        steps, chosen = choose_steps(settings, sample, X, state)
        moves = state.master_w - state.best_w
        W = state.best_w + np.outer(steps, moves)
        if is_noisy(state, settings.tol):
            points = np.stack([(1.0 + longer) * w for longer in LONGER for w in (W[-1], state.master_w)])
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
        return state, found, passes

    def _retreat(self, settings: Ranking, moves: F64, state: State) -> Generator[Question, Any, Found]:
        """Look at points nearer to the best point; return those up to a lower P."""
        W = state.best_w + np.outer(NEARER, moves)
        found = read_sums((yield sum_cuts(self.ends, W, settings.pair_cost)).sums)
        lower = np.flatnonzero(found.objectives < state.objective)
        return found.first(int(lower[0]) + 1 if len(lower) else len(W))


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
