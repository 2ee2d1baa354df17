"""Ordinal regression and ROC area by cutting planes: Joachims 2006, Algorithm 2, and its acceleration by a line search.

    P(w) = 1/2 |w|^2 + K sum over pairs v_i v_j max(0, 1 - (w.x_i - w.x_j))        no bias: it would cancel

A pair is two rows i and j of one query, where i has the higher rank; v_i is the weight of row i, and K the cost of a
pair of weight 1. With the chosen K, the loss at w = 0 equals the loss of n rows of cost C in classification; n C is the
paper's C. Every w gives a cut: the loss is at least b - a.w everywhere, with a = sum coefs_i x_i and b = offset
(below). The cuts, the master problem and the lower bound are explained in cutting_plane.cuts.

A step evaluates P and makes cuts at a few points, which a sample of the pairs suggests (cutting_plane.score_model), and
moves to the lowest P it finds. With `accelerated=False` the solver is the paper's algorithm, which makes its cut at the
master's minimiser. In this module, a step makes two passes. The first returns the scores of all rows at the points,
with which the driver counts the pairs by sorts. The second sums the rows for the cuts. (In ranking.streaming the driver
holds no scores.)

The loss of all pairs at given scores, and its cut there:

    loss(s) = K sum over pairs v_i v_j max(0, 1 - (s_i - s_j)) = offset - coefs.s
    coefs_i = K (up_i - down_i),   offset = K sum_i up_i,   cut at s: sum_i coefs_i x_i

s_i is the score of row i; up and down are c+ and c- of Algorithm 2 (losses.pairs).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from operator import add
from typing import ClassVar

import numpy as np

from streamsvm.certificates.double_double import bound_score, compute_exact_scores, measure_losses_exactly, round_sums
from streamsvm.losses.pairs import Pairs, count_pairs
from streamsvm.numeric.rounding import UNIT, add_row_magnitudes, bound_rounding, join_magnitudes
from streamsvm.numeric.rows import F64, Rows, add_rows, compute_scores
from streamsvm.passes import All, Scan
from streamsvm.solvers.cutting_plane import cuts
from streamsvm.solvers.cutting_plane.cuts import CutSettings, RowSums, is_noisy
from streamsvm.solvers.cutting_plane.line_search import Evaluation
from streamsvm.solvers.cutting_plane.master import DOUBTFUL_STEPS
from streamsvm.solvers.cutting_plane.score_model import Sample, SampleState, choose_points
from streamsvm.solvers.ranking.pair_sample import measure_pairs

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

        The master's minimiser is the first point of a later step of the paper's algorithm, and if its stop is asked
        for.
        """
        state = lengthen(self, state)
        needed = self.epsilon is not None or not self.accelerated
        W = state.master_w[np.newaxis] if needed else np.empty((0, len(state.best_w)))
        if not state.passes:  # after a warm start, the master's minimiser is not 0
            W = np.zeros((1, len(state.best_w)))
        if self.accelerated:
            state, points = choose_points(self, sample, state)
            W = np.concatenate((W, points))
        return state, W


@dataclass
class State(SampleState):
    """The state of a run. It does not include the scores of the rows, which are recomputed in every step.

    latest: unused; kept because checkpoints of earlier versions contain it.
    """

    latest: F64 = field(default_factory=lambda: np.zeros((9, 2)))


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
        return state, of_loss, RowSums(vectors, offsets, 2 * offsets), passes  # a pair has two rows


def list_exact_points(state: State, W: F64) -> F64:
    """Return points at which P is computed in twice the precision, (2 len(LONGER), d)."""
    return np.stack([(1.0 + longer) * w for longer in LONGER for w in (W[-1], state.master_w)])


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
    """Append the scores X W' of a tile, (k, rows), at the points W (k, d)."""
    tiles.append(np.ascontiguousarray(compute_scores(rows.X, W).T))


def add_exact_scores(tiles: list[F64], rows: Rows, W: F64) -> None:
    """Append the scores X W' of a tile at k points in twice the precision, (k, rows, 2)."""
    tiles.append(compute_exact_scores(rows.X, W))


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
    return cuts.take_exact(state, points, losses, rounding + np.where(is_apart, 0.0, missed))[0]
