"""Cutting planes for any convex loss of a row's score: Algorithm 1 of Joachims 2006 with the loss left open.

    P(w) = 1/2 |w|^2 + sum_i l_i(w.x_i)               bias: a constant feature, penalised

x_i is row i with the constant feature, w the weight vector, and l_i the loss of row i, which contains the row's cost.
Let f_i = w_t.x_i be the scores at a point w_t, and s_i a slope of l_i at f_i. Each l_i lies above its tangents, so the
loss at every w is at least b_t - w.a_t, where

    a_t = -sum_i s_i x_i,      b_t = sum_i (l_i(f_i) - s_i f_i)

This holds for rounded scores f_i as well. The master problem over these cuts (cutting_plane.cuts) has a minimiser and a
value, which is a lower bound of P. A pass cuts at three points: at the minimiser, and at two points between it and the
best point so far, as OCAS does (Franc & Sonnenburg 2008; see cutting_plane.solver).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from streamsvm.methods.cutting_plane.master_problem import minimise_master, scale_costs
from streamsvm.numeric.convex_loss import ConvexLoss
from streamsvm.numeric.magnitudes import add_row_magnitudes
from streamsvm.numeric.row_products import add_rows, compute_scores
from streamsvm.numeric.rows import F64, Rows
from streamsvm.requests import All, Scan, Solver, Step

STEPS = (0.1, 0.3, 1.0)  # where a pass cuts: shares of the way from the best point to the minimiser


@dataclass(frozen=True)
class AnyLoss:
    """Settings of the solver.

    loss: the rows' losses l_i, which contain the costs; tol: the relative gap to reach; bias_feature: the value of the
    constant feature; max_cuts: how many cuts are kept (None: as many as `cuts.most_cuts` says).
    """

    loss: ConvexLoss
    tol: float = 1e-3
    bias_feature: float = 1.0
    max_cuts: int | None = None

    def most_cuts(self, n_features: int) -> int:
        """Return how many cuts are kept at once at most."""
        return self.max_cuts or most_cuts(n_features + 1)

    def driver_bytes(self, n_features: int) -> int:
        """Return the bytes that the driver needs for the cuts and a few vectors."""
        width = n_features + 1
        return cut_bytes(width, self.most_cuts(n_features)) + 8 * width * (3 * len(STEPS) + 8)

    def turn_bytes(self, n_features: int) -> int:
        """Return the part of the driver's bytes that is in use only while a step is computed."""
        return master_bytes(self.most_cuts(n_features))


@dataclass
class State(CutState):
    """All that changes. Vectors are (d+1,); their last entry is the weight of the constant feature."""


@dataclass
class Tangents:
    """Sums over rows for the cuts at k points: losses (k,), offsets b_t (k,), and cuts a_t (k, d+1)."""

    losses: F64
    offsets: F64
    cuts: F64


@dataclass
class Sizes:
    """Sums over rows that bound the rounding of losses and cuts. K_i is the size of the steepest slope of l_i.

    sums (d+1,): sum_i K_i |x_ij|; largest (d+1,): max_i |x_ij|; cost: sum_i l_i(0) + K_i; n_rows: the number of rows.
    """

    sums: F64
    largest: F64
    cost: float = 0.0
    n_rows: int = 0


def start_state(n_features: int) -> State:
    """Return the state before the first pass: w = 0, and no cuts."""
    return State(np.zeros(n_features + 1), np.zeros(n_features + 1), np.empty((0, n_features + 1)))


def warm_state(settings: AnyLoss, before: State, factor: float) -> State:
    """Return the state to start from, given the last state of the problem whose costs are `factor` times smaller."""
    return scale_costs(before, factor, settings.tol)


def solve(settings: AnyLoss, n_features: int, state: State) -> Solver:
    """Run Algorithm 1 from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    width, bias = n_features + 1, settings.bias_feature
    while True:
        before = state
        points = np.stack([state.best_w + step * (state.master_w - state.best_w) for step in STEPS])
        start = partial(start_tangents, len(points), width)
        requests = [Scan(start, add_tangents, add_up_tangents, (points, settings.loss, bias))]
        if not len(state.magnitudes):
            requests.append(Scan(partial(start_sizes, width), add_sizes, add_up_sizes, (settings.loss, bias)))
        tangents, *sizes = yield All(requests)
        state = _take_sizes(state, sizes)
        state, terms = _take_best(state, points, tangents)
        found = RowSums(tangents.cuts, tangents.offsets, terms)
        state = add_cuts(state, found, settings.most_cuts(n_features))
        state = count_pass(minimise_master(state, settings.tol), before, 1)
        yield Step(state, state.progress, find_status(state, settings.tol))


def start_tangents(n_points: int, width: int) -> Tangents:
    """Return the sums over no rows."""
    return Tangents(np.zeros(n_points), np.zeros(n_points), np.zeros((n_points, width)))


def add_tangents(totals: Tangents, rows: Rows, points: F64, loss: ConvexLoss, bias_feature: float) -> None:
    """Add the losses and the tangents of rows at the points (k, d+1)."""
    scores = compute_scores(rows.X, points) + bias_feature * points[:, -1]
    every = np.arange(rows.n_rows)
    for k in range(len(points)):
        losses, slopes = loss.measure(rows, scores[:, k])
        totals.losses[k] += np.sum(losses)
        totals.offsets[k] += np.sum(losses - slopes * scores[:, k])
        add_rows(totals.cuts, rows.X, every, np.full(rows.n_rows, k), -slopes)
        totals.cuts[k, -1] -= bias_feature * np.sum(slopes)


def add_up_tangents(left: Tangents, right: Tangents) -> Tangents:
    """Return the sums over the rows of both."""
    return Tangents(left.losses + right.losses, left.offsets + right.offsets, left.cuts + right.cuts)


def start_sizes(width: int) -> Sizes:
    """Return the sizes of no rows."""
    return Sizes(np.zeros(width), np.zeros(width))


def add_sizes(totals: Sizes, rows: Rows, loss: ConvexLoss, bias_feature: float) -> None:
    """Add the sizes of rows."""
    steepest = loss.steepest(rows)
    add_row_magnitudes(totals.sums, totals.largest, rows.X, steepest)
    totals.sums[-1] += abs(bias_feature) * float(np.sum(steepest))
    totals.largest[-1] = abs(bias_feature)
    totals.cost += float(np.sum(loss.measure(rows, np.zeros(rows.n_rows))[0] + steepest))
    totals.n_rows += rows.n_rows


def add_up_sizes(left: Sizes, right: Sizes) -> Sizes:
    """Return the sizes of the rows of both."""
    largest = np.maximum(left.largest, right.largest)
    return Sizes(left.sums + right.sums, largest, left.cost + right.cost, left.n_rows + right.n_rows)


def _take_sizes(state: State, found: list[Sizes]) -> State:
    """Return the state with the sizes, which the first pass alone finds."""
    if not found:
        return state
    (sizes,) = found
    return replace(
        state,
        magnitudes=sizes.sums,
        largest=sizes.largest,
        total_cost=sizes.cost,
        terms=4.0 * sizes.n_rows + 16.0,
    )


def _take_best(state: State, points: F64, tangents: Tangents) -> tuple[State, F64]:
    """Move to the best of the points if P is lower there; also return the size of the terms of each cut's offset.

    A term |l_i(f) - s_i f| is at most l_i(0) + 2 K_i |f|. The sum of these bounds over the rows is the size (k,) of a
    point's cut, and the largest size so far bounds the rounding of every cut.
    """
    lengths = np.abs(points)
    terms: F64 = state.total_cost + 2.0 * (lengths @ state.magnitudes)
    state = replace(state, total_cost=max(state.total_cost, float(np.max(terms))))
    for w, size, loss in zip(points, lengths, tangents.losses, strict=True):
        objective, rounding = float(w @ w) / 2 + float(loss), state.bound_loss(size)
        if is_better(objective, rounding, state):
            state = replace(state, best_w=w, objective=objective, objective_rounding=rounding)
    return state, terms
