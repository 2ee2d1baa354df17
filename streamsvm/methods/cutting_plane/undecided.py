"""Rows that may change sides are set aside in one pass of cutting_plane.one_read, and the next passes read no others.

A pass at w_0 sets the rows with rho_i < R aside (rho_i: cutting_plane.near_rows), and finds the sums of C_i and
C_i y_i x_i over all other rows with m_i < 1: the *frozen* rows. While w stays within R of w_0, these rows keep their
sides. So their loss there is frozen_cost - frozen.w, and the losses, cuts and sums of a pass over the rows that were
set aside are those of all rows once the frozen sums are added. Outside of the ball they are not, and all rows are read.

R has to be chosen before the pass: a little more than the expected distance to the minimiser.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.methods.cutting_plane.centres import Aim
from streamsvm.methods.cutting_plane.cuts import RowSums
from streamsvm.methods.cutting_plane.near_rows import NearTotals, choose_within
from streamsvm.methods.cutting_plane.one_read_state import ALLOWANCE, OneRead, State, make_look
from streamsvm.methods.cutting_plane.point_cuts import start_points
from streamsvm.methods.cutting_plane.segments import start_totals
from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import F64
from streamsvm.requests import Scan, Subset

FARTHER = 1.5  # times the expected distance: rows that are nearer to the margin are set aside
BEYOND = 2.0  # times the radius of the near rows: up to there one read is enough as a rule, since it proves on the way
MOST_SHARE = 0.5  # of the rows: writing more of them and reading them again takes as long as reading all rows
HALVES = 40  # of the way to the border of the ball

Line = tuple[F64, F64]


def choose_apart(settings: OneRead, state: State) -> State:
    """Return the state in which the first pass sets rows aside, if this pays; a later pass over all rows forgets them.

    It does not pay if the minimiser is expected not far beyond the ball of the near rows, or if too many rows lie
    within R. Rows lie about evenly near the margin, and `widest` is the radius in which the resident rows lie.
    """
    radius = FARTHER * state.predicted
    share = settings.resident_rows / state.n_rows * radius / state.widest if state.widest > 0.0 else 1.0
    if not settings.sets_aside or state.passes or state.predicted <= BEYOND * state.widest or share > MOST_SHARE:
        return replace(state, apart_radius=0.0)
    return replace(state, apart=state.centre, apart_radius=radius)


def set_apart(settings: OneRead, state: State, asked: list[Scan]) -> list[Scan]:
    """Return the scans of a pass over all rows, the last of which sets the undecided rows aside, if they are to be."""
    if state.apart_radius == 0.0:
        return asked
    return [*asked[:-1], replace(asked[-1], apart=_make_subset(settings, state))]


def take_frozen(state: State, totals: NearTotals) -> State:
    """Return the state with the sums over the frozen rows, which the pass that sets rows aside has found."""
    radius = state.apart_radius if totals.n_apart else 0.0
    share = min(1.0, totals.find_densest())
    frozen, cost = totals.frozen.vectors, totals.frozen.offsets
    return replace(state, apart_radius=radius, frozen=frozen, frozen_cost=cost, apart_share=share)


def _make_subset(settings: OneRead, state: State) -> Subset:
    look = make_look(settings, replace(state, centre=state.apart))
    return Subset(choose_within, (look, state.apart_radius))


def is_within(state: State, w: F64) -> bool:
    """Return whether the frozen rows are known to have their sides at w."""
    moved, left = RowNorm(state.A).bound_move(w - state.apart)
    return moved < state.apart_radius and left <= ALLOWANCE * float(np.linalg.norm(state.apart))


def stay_within(state: State, start: F64, end: F64) -> F64:
    """Return the end of a line, or the last point on the way to it that is found to be within the ball."""
    if is_within(state, end):
        return end
    low, high = 0.0, 1.0
    for _ in range(HALVES):
        step = (low + high) / 2
        low, high = (step, high) if is_within(state, (1.0 - step) * start + step * end) else (low, step)
    return (1.0 - low) * start + low * end


def narrow(state: State, aim: Aim, lines: list[Line]) -> tuple[Aim, list[Line]] | None:
    """Return what a pass over the undecided rows looks for; None if the best point or the centre is not in the ball.

    Lines end where they leave the ball, and points outside of it are left out.
    """
    if not (state.apart_radius > 0.0 and is_within(state, aim.W[0]) and is_within(state, aim.W[1])):
        return None
    inside = [k for k in range(len(aim.W)) if is_within(state, aim.W[k])]
    shorter = [(np.stack((ends[0], stay_within(state, *ends))), steps) for ends, steps in lines]
    return replace(aim, W=aim.W[inside]), shorter


def among_undecided(settings: OneRead, state: State, asked: list[Scan]) -> list[Scan]:
    """Return the scans of a pass over the undecided rows: cuts at points, looks along lines, and the near rows.

    Each has the totals of the frozen rows, so that the answers are those of all rows.
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
