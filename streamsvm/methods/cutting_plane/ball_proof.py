"""What the rows that a pass keeps prove: a lower bound of P, and P within a ball (see cutting_plane.one_read)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.methods.cutting_plane.cuts import IDLE_STEPS, RowSums, add_cuts, is_better, most_cuts
from streamsvm.methods.cutting_plane.master_problem import bound_dual, minimise_master
from streamsvm.methods.cutting_plane.near_rows import (
    Look,
    NearTotals,
    Part,
    choose_rows,
    close_group,
    count_for,
    join_parts,
    keep_below,
)
from streamsvm.methods.cutting_plane.one_read_state import ALLOWANCE, MOST_OWN, OneRead, State, note_proof, read_rows
from streamsvm.methods.cutting_plane.smoothed_newton import HingeRows, Linear, minimise
from streamsvm.methods.cutting_plane.undecided import stay_within
from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import F64, I64

NEAR_SHARE = 0.01  # F is minimised to this share of the tolerance: in the ball its gap is the gap that is proved


def gather(totals: NearTotals, look: Look) -> tuple[Part, F64]:
    """Return the rows that are kept as one part with the smallest radius of all groups, and what each stands for."""
    parts = close_group(totals, look.share)
    totals.parts = []  # so that of the rows of all groups only those that are kept are in memory while they are joined
    priority = np.concatenate([part.priority for part in parts])
    if len(priority) > look.most:
        parts = keep_below(parts, float(np.partition(priority, look.most)[look.most]))
    weight = np.concatenate([count_for(part, look.draws) for part in parts])
    return replace(join_parts(parts), radius=min(part.radius for part in parts)), weight


def prove(
    settings: OneRead, state: State, sums: RowSums, kept: Part, weight: F64, is_narrow: bool = False
) -> tuple[State, dict[str, float]]:
    """Minimise F; return the state with its dual point as a cut. sums: of the rows with m_i < 1 at the centre.

    The last point in the ball on the way from the centre to F's minimiser is the best point if it is better. is_narrow:
    whether the pass was over the undecided rows only, and so P is known in their ball only.
    """
    near = np.flatnonzero(weight == 1.0)
    data = read_rows(settings, choose_rows(kept.rows, near))
    frozen = (kept.margins[near] < 1.0).astype(np.float64)
    beyond = sums - data.sum_up(frozen)
    far = Linear(beyond.vectors, beyond.offsets)
    state = replace(state, resident=kept.numbers, weight=weight, radius=kept.radius)
    found = minimise(data, far, NEAR_SHARE * settings.tol, state.centre)
    moved, _ = RowNorm(state.A).bound_move(found.w - state.centre)
    step = min(1.0, (1.0 - 1e-9) * state.radius / moved) if moved > 0.0 else 1.0
    last = state.centre + step * (found.w - state.centre)
    state = _take_inside(state, data, far, stay_within(state, state.centre, last) if is_narrow else last)
    if not np.isfinite(state.objective):  # no point is known yet, and rounding has put this one outside
        state = _take_inside(state, data, far, state.centre)
    cut = beyond + data.sum_up(found.shares)
    cut = RowSums(cut.vectors[None, :], np.array([cut.offsets]), np.array([cut.sizes]))
    state = add_cuts(state, cut, most_cuts(len(far.slope)))
    before = _take_bound(note_shares(state, kept, near, found.shares))
    state = make_room(note_proof(minimise_master(before, settings.tol), before), settings.resident_rows)
    figures = {"resident_rows": float(len(weight)), "near_rows": float(len(near)), "radius": state.radius}
    figures |= {"moved": moved, "predicted": state.predicted}
    return state, figures


def _take_bound(state: State) -> State:
    """Return the state with the bound that its last cut proves alone, if that is higher than the bound so far."""
    alone = np.zeros(len(state.z))
    alone[-1] = 1.0
    value, rounding = bound_dual(state, alone)
    if value - rounding <= state.lower_bound:
        return state
    return replace(state, lower_bound=value - rounding, bound_rounding=rounding, z=alone, proof=alone)


def note_shares(state: State, kept: Part, near: I64, shares: F64) -> State:
    """Return the state with the rows whose share in its last cut does not follow from their side at the centre.

    These are the near rows with another share, and those whose side is uncertain, because rounding may choose it.
    """
    differs = shares != (kept.margins[near] < 1.0)
    own = np.flatnonzero(differs | (kept.reach[near] == 0.0))
    n_own = state.n_own.copy()
    n_own[-1] = len(own)
    return replace(state, n_own=n_own, own_rows=kept.numbers[near[own]], own_shares=shares[own])


def make_room(state: State, resident_rows: int) -> State:
    """Return the state in which the oldest dual points of F are idle if all of them have too many shares together.

    So the next pass drops them before it proves a bound. Those that the bound rests on come last.
    """
    excess = int(np.sum(state.n_own)) - (MOST_OWN - 1) * resident_rows
    held = np.flatnonzero(state.n_own)
    order = held[np.lexsort((state.z[held], -state.idle[held], state.proof[held] > 0.0))]
    dropped = order[: np.searchsorted(np.cumsum(state.n_own[order]), excess) + 1] if excess > 0 else order[:0]
    idle = state.idle.copy()
    idle[dropped] = IDLE_STEPS + 1
    return replace(state, idle=idle)


def _take_inside(state: State, data: HingeRows, far: Linear, w: F64) -> State:
    """Return the state with w as its best point if it lies in the ball, where F equals P, and is better.

    F is a sum of sums of all rows and of sums of the near rows, so its rounding is bounded by twice that of one sum.
    """
    moved, left = RowNorm(state.A).bound_move(w - state.centre)
    if moved > state.radius or left > ALLOWANCE * float(np.linalg.norm(state.centre)):
        return state
    margins, half = data.find_margins(w), float(w @ w) / 2
    loss = far.value - float(far.slope @ w) + float(data.costs @ np.maximum(1.0 - margins, 0.0))
    rounding = 2 * state.bound_loss(np.abs(w))
    if not is_better(half + loss, rounding, state):
        return state
    best_cut = far.slope + data.combine((margins < 1.0).astype(np.float64))
    return replace(state, best_w=w, objective=half + loss, loss=loss, best_cut=best_cut, objective_rounding=rounding)
