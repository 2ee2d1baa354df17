"""Cutting planes for any convex loss of a row's score: Algorithm 1 of Joachims 2006 with the loss left open.

    P(w) = 1/2 |w|^2 + sum_i l_i(w.x_i)               bias: a constant feature, penalised

With scores f_i = w_t.x_i at some w_t and a slope s_i of l_i there, the loss at every w is at least b_t - w.a_t, where

    a_t = -sum_i s_i x_i,      b_t = sum_i (l_i(f_i) - s_i f_i)

since each l_i lies above its tangents; that holds for whatever numbers the computed f_i are. The master problem over
these cuts (cutting_plane.cuts) gives a lower bound of P, and the next points to cut at: a pass cuts at three of them,
its minimiser and two closer to the best point so far, as OCAS does (Franc & Sonnenburg 2008).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from streamsvm.numeric.convex_loss import ConvexLoss
from streamsvm.numeric.kernels import absolute, raise_largest
from streamsvm.numeric.rows import F64, Rows, add_rows, compute_scores
from streamsvm.requests import All, Scan, Solver, Step

STEPS = (0.1, 0.3, 1.0)  # from the best point to the master's minimiser


@dataclass(frozen=True)
class AnyLoss:
    """Settings. loss: of the rows, costs included; tol: relative gap; bias_feature: value of the constant feature."""

    loss: ConvexLoss
    tol: float = 1e-3
    bias_feature: float = 1.0
    max_cuts: int | None = None

    def most_cuts(self, n_features: int) -> int:
        """Return how many cuts are kept at once."""
        return self.max_cuts or most_cuts(n_features + 1)

    def driver_bytes(self, n_features: int) -> int:
        """Return the memory of the driver: the cuts, and a few vectors."""
        width = n_features + 1
        return cut_bytes(width, self.most_cuts(n_features)) + 8 * width * (3 * len(STEPS) + 8)

    def turn_bytes(self, n_features: int) -> int:
        """Return the part of it that is in use only while a step is computed."""
        return master_bytes(self.most_cuts(n_features))


@dataclass
class State(CutState):
    """All that changes. The vectors are (d+1,), the last entry the weight of the constant feature."""


@dataclass
class Tangents:
    """Sums over rows at k points: losses (k,), offsets b_t (k,), and a_t (k, d+1)."""

    losses: F64
    offsets: F64
    cuts: F64


@dataclass
class Sizes:
    """What rounding is bounded by, with K_i the steepest slope of l_i.

    sum_i K_i |x_ij| and max_i |x_ij|, (d+1,) each; sum_i l_i(0) + K_i; the number of rows.
    """

    sums: F64
    largest: F64
    cost: float = 0.0
    n_rows: int = 0


def start_state(n_features: int) -> State:
    """Return w = 0, no cuts."""
    return State(np.zeros(n_features + 1), np.zeros(n_features + 1), np.empty((0, n_features + 1)))


def warm_state(settings: AnyLoss, before: State, factor: float) -> State:
    """Return the state to start from, given the last one of the same problem with costs so many times smaller."""
    return scale_costs(before, factor, settings.tol)


def solve(settings: AnyLoss, n_features: int, state: State) -> Solver:
    """Algorithm 1; every `Step` carries the whole state, from which `solve` goes on to the same bits."""
    width, bias = n_features + 1, settings.bias_feature
    while True:
        before = state
        points = np.stack([state.best_w + step * (state.master_w - state.best_w) for step in STEPS])
        start = partial(start_tangents, len(points), width)
        requests = [Scan(start, add_tangents, add_up_tangents, (points, settings.loss, bias))]
        if not state.passes:
            requests.append(Scan(partial(start_sizes, width), add_sizes, add_up_sizes, (settings.loss, bias)))
        tangents, *sizes = yield All(requests)
        state = _take_sizes(state, sizes)
        state, terms = _take_best(state, points, tangents)
        state = add_cuts(state, tangents.cuts, tangents.offsets, terms, settings.most_cuts(n_features))
        state = count_pass(minimise_master(state, settings.tol), before, 1)
        yield Step(state, state.progress, find_status(state, settings.tol))


def start_tangents(n_points: int, width: int) -> Tangents:
    """Return the sums over no rows."""
    return Tangents(np.zeros(n_points), np.zeros(n_points), np.zeros((n_points, width)))


def add_tangents(totals: Tangents, rows: Rows, points: F64, loss: ConvexLoss, bias_feature: float) -> None:
    """Add the rows' losses and tangents at every point."""
    scores = compute_scores(rows.X, points) + bias_feature * points[:, -1]
    every = np.arange(rows.n_rows)
    for k in range(len(points)):
        losses, slopes = loss.measure(rows, scores[:, k])
        totals.losses[k] += np.sum(losses)
        totals.offsets[k] += np.sum(losses - slopes * scores[:, k])
        add_rows(totals.cuts, rows.X, every, np.full(rows.n_rows, k), -slopes)
        totals.cuts[k, -1] -= bias_feature * np.sum(slopes)


def add_up_tangents(left: Tangents, right: Tangents) -> Tangents:
    """Return the sums over both."""
    return Tangents(left.losses + right.losses, left.offsets + right.offsets, left.cuts + right.cuts)


def start_sizes(width: int) -> Sizes:
    """Return the sizes of no rows."""
    return Sizes(np.zeros(width), np.zeros(width))


def add_sizes(totals: Sizes, rows: Rows, loss: ConvexLoss, bias_feature: float) -> None:
    """Add rows."""
    steepest, X = loss.steepest(rows), absolute(rows.X)
    every = np.arange(rows.n_rows)
    add_rows(totals.sums[None, :], X, every, np.zeros_like(every), steepest)
    raise_largest(totals.largest[:-1], X)
    totals.sums[-1] += abs(bias_feature) * float(np.sum(steepest))
    totals.largest[-1] = abs(bias_feature)
    totals.cost += float(np.sum(loss.measure(rows, np.zeros(rows.n_rows))[0] + steepest))
    totals.n_rows += rows.n_rows


def add_up_sizes(left: Sizes, right: Sizes) -> Sizes:
    """Return the sizes of both."""
    largest = np.maximum(left.largest, right.largest)
    return Sizes(left.sums + right.sums, largest, left.cost + right.cost, left.n_rows + right.n_rows)


def _take_sizes(state: State, found: list[Sizes]) -> State:
    """Note the sizes that the first pass brings."""
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
    """Move to the best of the points, if it is better; return also how large the terms of each cut's offset are.

    |l_i(f) - s_i f| is at most l_i(0) + 2 K_i |f|; the rounding of a cut is bounded by the largest of these sums.
    """
    lengths = np.abs(points)
    terms: F64 = state.total_cost + 2.0 * (lengths @ state.magnitudes)
    state = replace(state, total_cost=max(state.total_cost, float(np.max(terms))))
    for w, size, loss in zip(points, lengths, tangents.losses, strict=True):
        objective, rounding = float(w @ w) / 2 + float(loss), state.bound_loss(size)
        if is_better(objective, rounding, state):
            state = replace(state, best_w=w, objective=objective, objective_rounding=rounding)
    return state, terms
