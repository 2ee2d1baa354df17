"""How a step of ranking.streaming_solver finds P and a cut for many rows of few ranks: in two passes.

The first pass finds the histograms of the scores at the point that the sample has chosen, and at points nearer to the
best one. Of the bounds of the loss that follow, P takes the upper one. The second pass sums up the cut at the point
where P is least, whose value there is the lower bound. So the gap that is reported is proved, and it cannot become
smaller than the bounds are apart: by the square of a bucket's width where scores are spread, some 1e-9 of the loss of
all pairs if there are two ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.methods.ranking.histogram_passes import sum_first_cut, sum_histogram_cuts, sum_histograms
from streamsvm.methods.ranking.pair_losses import Sample
from streamsvm.methods.ranking.solver import Ranking, State, begin_at_zero, note_magnitudes
from streamsvm.methods.ranking.streaming_solver import NEARER, Found, Searching, choose_steps, move, read_sums
from streamsvm.numeric.histogram_losses import measure_histogram
from streamsvm.numeric.histogram_sums import RankTotals, choose_exponents
from streamsvm.numeric.rounding import SMALLEST
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import Matrix
from streamsvm.numeric.score_histograms import MOST_CELLS


@dataclass(frozen=True)
class HistogramSearch:
    """The searches for rows of few ranks. n_rows: of the source."""

    ranks: RankTotals
    n_rows: int

    def begin(self, settings: Ranking, state: State) -> Searching:
        """Look at w = 0."""
        sums = yield sum_first_cut(self.ranks, len(state.best_w), settings.pair_cost)
        # The terms of a sum go through the sums of all rows, and of all buckets, at most.
        state = begin_at_zero(state, float(sums.losses[0]), self.n_rows + MOST_CELLS)
        return note_magnitudes(state, sums.magnitudes), read_sums(sums), 1

    def search_line(self, settings: Ranking, sample: Sample, X: Matrix, state: State) -> Searching:
        """Move to the best point that is found on the segment from the best point so far to the master's minimiser.

        Cuts are made at the points that were chosen, and at a nearer one if P is lower there: near the best point there
        may be no cut but those that are known.
        """
        steps, chosen = choose_steps(settings, sample, X, state)
        if state.stuck and settings.accelerated:
            chosen = steps[-1] = self._go_farther(X, state, steps[-1])
        nearer = [part * chosen for part in NEARER if chosen > 0.0]
        W = state.best_w + np.outer([*steps, *nearer], state.master_w - state.best_w)
        histograms = yield sum_histograms(W, self.ranks.n_ranks, choose_exponents(X, W, self.ranks.n_ranks))
        measured = [measure_histogram(each, self.n_rows, settings.pair_cost) for each in histograms]
        losses, offsets = np.array([[each.upper, each.cut.offset] for each in measured]).T
        objectives = np.einsum("kj,kj->k", W, W) / 2 + losses
        at = sorted({*range(len(steps)), int(np.argmin(objectives))})
        sums = yield sum_histogram_cuts(W, at, [measured[k].cut for k in at])
        for k, seen in zip(at, sums.seen, strict=True):
            measured[k].require_same(seen, self.n_rows)
        found = Found(W[at], objectives[at], losses[at], sums.cuts, offsets[at])
        return move(state, found), found, 2

    def _go_farther(self, X: Matrix, state: State, step: float) -> float:
        """Return a longer step, at which scores have moved on by a bucket, and by twice as much after each step.

        Pairs that begin to have a loss at one place are counted together, so that there may be no cut but known ones.
        """
        ends = np.stack((state.best_w, state.master_w))
        start, end = compute_scores(X, ends).T
        width = 2.0 ** -min(choose_exponents(X, ends, self.ranks.n_ranks))
        return min(1.0, step + 2.0**state.stuck * width / max(float(np.max(np.abs(end - start))), SMALLEST))
