"""Cutting planes for any convex loss of a row's score: Algorithm 1 of Joachims 2006 with a general loss.

    P(w) = 1/2 |w|^2 + sum_i l_i(w.x_i)               bias: a constant feature, penalised

x_i is row i with the constant feature, w the weight vector, and l_i the loss of row i, which contains the row's cost.
Let f_i = w_t.x_i be the scores at a point w_t, and s_i a slope of l_i at f_i. Each l_i lies above its tangents, so the
loss at every w is at least b_t - w.a_t, where

    a_t = -sum_i s_i x_i,      b_t = sum_i (l_i(f_i) - s_i f_i)

This holds for rounded scores f_i as well. The master problem over these cuts (cutting_plane.cuts) has a minimiser and a
value, which is a lower bound of P. A pass makes cuts at three points: at the minimiser, and at two points between it
and the best point so far, as in OCAS (Franc & Sonnenburg 2008; see cutting_plane.line_search).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import ClassVar

import numpy as np

from streamsvm.losses.convex import ConvexLoss
from streamsvm.numeric.products import add_rows, compute_scores
from streamsvm.numeric.rows import F64, Rows
from streamsvm.passes import All, Requests, Scan, Step
from streamsvm.solvers.cutting_plane import cuts
from streamsvm.solvers.cutting_plane.cuts import CutSettings, CutState, Magnitudes, RowSums, Totals
from streamsvm.solvers.cutting_plane.master import take_cuts

STEPS = (0.1, 0.3, 1.0)  # cut points of a pass, as fractions of the way from the best point to the minimiser


@dataclass(frozen=True)
class AnyLoss(CutSettings):
    """Settings of the solver.

    loss: the rows' losses l_i, which include the costs; tol: the relative gap to reach; bias_feature: the value of the
    constant feature; max_cuts: the number of cuts kept (None: the result of `cuts.most_cuts`).
    """

    loss: ConvexLoss
    tol: float = 1e-3
    bias_feature: float = 1.0
    max_cuts: int | None = None
    vectors: ClassVar[int] = 3 * len(STEPS) + 8


@dataclass
class Tangents(Totals):
    """Sums over rows for the cuts at k points: losses (k,), offsets b_t (k,), and cuts a_t (k, d+1)."""

    losses: F64
    offsets: F64
    cuts: F64


def solve(settings: AnyLoss, state: CutState) -> Requests:
    """Run Algorithm 1 from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    width, bias = len(state.best_w), settings.bias_feature
    while True:
        before = state
        points = np.stack([state.best_w + step * (state.master_w - state.best_w) for step in STEPS])
        start = partial(start_tangents, len(points), width)
        requests = [Scan(start, add_tangents, add, (points, settings.loss, bias))]
        if not len(state.magnitudes):
            first = partial(cuts.start_magnitudes, width)
            requests.append(Scan(first, add_sizes, cuts.combine_magnitudes, (settings.loss, bias)))
        tangents, *sizes = yield All(requests)
        state = take_sizes(state, sizes[0]) if sizes else state
        state, terms = _take_best(state, points, tangents)
        found = RowSums(tangents.cuts, tangents.offsets, terms)
        state = take_cuts(state, before, found, settings.most_cuts(width), settings.tol)
        yield Step(state, state.progress, cuts.find_status(state, settings.tol))


def start_tangents(n_points: int, width: int) -> Tangents:
    """Return zero sums."""
    return Tangents(np.zeros(n_points), np.zeros(n_points), np.zeros((n_points, width)))


def add_tangents(totals: Tangents, rows: Rows, points: F64, loss: ConvexLoss, bias_feature: float) -> None:
    """Add the rows' losses and tangents at the points (k, d+1)."""
    scores = compute_scores(rows.X, points) + bias_feature * points[:, -1]
    every = np.arange(rows.n_rows)
    for k in range(len(points)):
        losses, slopes = loss.measure(rows, scores[:, k])
        totals.losses[k] += np.sum(losses)
        totals.offsets[k] += np.sum(losses - slopes * scores[:, k])
        add_rows(totals.cuts, rows.X, every, np.full(rows.n_rows, k), -slopes)
        totals.cuts[k, -1] -= bias_feature * np.sum(slopes)


def add_sizes(totals: Magnitudes, rows: Rows, loss: ConvexLoss, bias_feature: float) -> None:
    """Add the rows' magnitudes. The cost of a row is l_i(0) + K_i, where K_i is the steepest slope of l_i."""
    steepest = loss.steepest(rows)
    cost = float(np.sum(loss.measure(rows, np.zeros(rows.n_rows))[0] + steepest))
    totals.add(rows, steepest, cost, bias_feature)


def take_sizes(state: CutState, of: Magnitudes) -> CutState:
    """Return the state with the magnitudes, which only the first pass computes."""
    return replace(state, magnitudes=of.sums, largest=of.largest, total_cost=of.cost, terms=4.0 * of.n_rows + 16.0)


def _take_best(state: CutState, points: F64, tangents: Tangents) -> tuple[CutState, F64]:
    """Move to the best of the points if P is lower there; also return the size of each cut's offset, (k,).

    A term |l_i(f) - s_i f| of an offset is at most l_i(0) + 2 K_i |f|. The size of a cut's offset is the sum of these
    bounds over the rows. The largest size so far bounds the rounding of every cut.
    """
    lengths = np.abs(points)
    terms: F64 = state.total_cost + 2.0 * (lengths @ state.magnitudes)
    state = replace(state, total_cost=max(state.total_cost, float(np.max(terms))))
    for w, size, loss in zip(points, lengths, tangents.losses, strict=True):
        state = cuts.move_to(state, w, float(w @ w) / 2 + float(loss), state.bound_loss(size))
    return state, terms
