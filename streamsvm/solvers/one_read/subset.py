"""Passes over a subset: one pass sets aside the rows that may change sides, and later passes read only these rows.

A pass at w_0 sets aside the rows with rho_i < R (rho_i: cutting_plane.near_rows), and sums C_i and C_i y_i x_i over all
other rows with m_i < 1, the *frozen* rows. While w stays within R of w_0, no frozen row changes sides, and the loss of
the frozen rows is frozen_cost - frozen.w. So within this ball, a pass over the rows set aside gives the losses, cuts
and sums of all rows once the frozen sums are added. Outside the ball, all rows are read again.

R is chosen before the pass, a little larger than the expected distance to the minimiser.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import F64
from streamsvm.passes import Scan, Subset
from streamsvm.solvers.cutting_plane.cuts import RowSums
from streamsvm.solvers.cutting_plane.line_search import start_points, start_totals
from streamsvm.solvers.cutting_plane.near_rows import NearTotals, choose_within
from streamsvm.solvers.one_read.state import ALLOWANCE, OneRead, State, look_at_centre
from streamsvm.solvers.one_read.trust_region import Aim

FARTHER = 1.5  # times the expected distance: rows nearer to the margin than this are set aside
BEYOND = 2.0  # times the radius of the near rows: within this, one read is usually enough
MOST_SHARE = 0.5  # of the rows: writing and reading more rows than this takes as long as reading all rows
HALVES = 40  # bisections of the way to the boundary of the ball

Line = tuple[F64, F64]


def choose_apart(settings: OneRead, state: State) -> State:
    """Return the state in which the first pass sets rows aside if this pays; a later pass over all rows discards them.

    Setting rows aside does not pay if the minimiser is expected inside or just outside the ball of the near rows, or if
    too many rows lie within R. The estimate assumes that rows are evenly distributed near the margin, with the resident
    rows within the radius `widest`.
    """
    radius = FARTHER * state.predicted
    share = settings.resident_rows / state.n_rows * radius / state.widest if state.widest > 0.0 else 1.0
    if not settings.sets_aside or state.passes or state.predicted <= BEYOND * state.widest or share > MOST_SHARE:
        return replace(state, apart_radius=0.0)
    return replace(state, apart=state.centre, apart_radius=radius)


def set_apart(settings: OneRead, state: State, asked: list[Scan]) -> list[Scan]:
    """Return the scans of a pass over all rows; if rows are to be set aside, the last scan does so."""
    if state.apart_radius == 0.0:
        return asked
    return [*asked[:-1], replace(asked[-1], apart=_make_subset(settings, state))]


def take_frozen(state: State, totals: NearTotals) -> State:
    """Return the state with the sums over the frozen rows, computed by the pass that sets rows aside."""
    radius = state.apart_radius if totals.n_apart else 0.0
    share = min(1.0, totals.find_densest())
    frozen, cost = totals.frozen.vectors, totals.frozen.offsets
    return replace(state, apart_radius=radius, frozen=frozen, frozen_cost=cost, apart_share=share)


def _make_subset(settings: OneRead, state: State) -> Subset:
    look = look_at_centre(settings, replace(state, centre=state.apart))
    return Subset(choose_within, (look, state.apart_radius))


def is_within(state: State, w: F64) -> bool:
    """Return whether the frozen rows certainly keep their sides at w."""
    moved, left = RowNorm(state.A).bound_move(w - state.apart)
    return moved < state.apart_radius and left <= ALLOWANCE * float(np.linalg.norm(state.apart))


def stay_within(state: State, start: F64, end: F64) -> F64:
    """Return the end of a line if it lies within the ball, otherwise the last point on the way that does."""
    if is_within(state, end):
        return end
    low, high = 0.0, 1.0
    for _ in range(HALVES):
        step = (low + high) / 2
        low, high = (step, high) if is_within(state, (1.0 - step) * start + step * end) else (low, step)
    return (1.0 - low) * start + low * end


def narrow(state: State, aim: Aim, lines: list[Line]) -> tuple[Aim, list[Line]] | None:
    """Restrict the points and lines of a pass to the ball of the undecided rows.

    Lines end where they leave the ball, and points outside it are dropped. Return None if the best point or the centre
    is outside the ball.
    """
    if not (state.apart_radius > 0.0 and is_within(state, aim.W[0]) and is_within(state, aim.W[1])):
        return None
    inside = [k for k in range(len(aim.W)) if is_within(state, aim.W[k])]
    shorter = [(np.stack((ends[0], stay_within(state, *ends))), steps) for ends, steps in lines]
    return replace(aim, W=aim.W[inside]), shorter


def among_undecided(settings: OneRead, state: State, asked: list[Scan]) -> list[Scan]:
    """Return the scans of a pass over the undecided rows: cuts at points, line searches, and the near rows.

    Each scan includes the totals of the frozen rows, so that its answer covers all rows.
    """
    g, c, subset = state.frozen, state.frozen_cost, _make_subset(settings, state)
    W = asked[0].shared[0]
    points = start_points(*W.shape)
    points.losses, points.costs[0], points.gradients[0] = c - W @ g, c, g
    rests: list[object] = [points]
    for look in asked[1:-1]:
        ends, _, cut_steps, _ = look.shared
        line = start_totals(len(cut_steps), len(g))
        line.losses[0] = c - float(ends[0] @ g), -float((ends[1] - ends[0]) @ g)
        line.costs[0], line.gradients[0] = c, g
        rests.append(line)
    rests.append(NearTotals(RowSums(g.copy(), c, c), RowSums(np.zeros(len(g)))))
    return [replace(scan, among=subset, rest=rest) for scan, rest in zip(asked, rests, strict=True)]
