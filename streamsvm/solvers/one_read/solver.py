"""The solver `one-read`: rows near the margin are solved exactly in memory, and all other rows are only summed.

    F(w) = 1/2 |w|^2 + c - g.w + sum_near C_i max(0, 1 - m_i),      m_i = y_i w.x_i

A pass at a centre w_0 keeps the rows near the margin (cutting_plane.near_rows), and computes c and g, the sums of C_i
and C_i y_i x_i over the far rows with m_i < 1 at w_0. F is never above P, because max(0, 1 - m) >= s (1 - m) for s = 0
and s = 1. So the minimum of F is a lower bound of P over all rows that needs no further read, and a dual point of F is
a cut of P. While w stays within the radius r of w_0, no far row changes sides, and F equals P. If the minimiser of F
lies in this ball, P is known there, and the proof is complete.

The first centre is the minimiser of a sample, or the start if the sample has all rows. If F's minimiser leaves the
ball, the next centre minimises a model of P (one_read.trust_region). One master problem holds the cuts of all rows and
the dual points of F. Rows that may change sides can be set aside, so that later passes read only these rows.

A pass makes cuts over all rows at the best point so far and at the centre. If one_read.trust_region requests it, a pass
also makes cuts at the points of the sample's active cuts. The active cuts determine the sample's optimum, so cuts over
all rows at the same points give a good lower bound.

A pass also searches two lines from the best point, to the sample's minimiser and to the minimiser of the master problem
of all rows. The second line is the line search of cutting_plane.line_search, which helps if the sample is misleading. P
and the lower bound are sums over all rows, so they are valid whatever the sample.

A pass at w_0 can set aside the rows with rho_i < R (rho_i: cutting_plane.near_rows), the *undecided* rows. The other
rows are *frozen*: C_i and C_i y_i x_i of the frozen rows with m_i < 1 are summed once. While w stays within R of w_0,
no frozen row changes sides, and the loss of the frozen rows is frozen_cost - frozen.w. So within this ball, a pass over
the undecided rows gives the losses, cuts and sums of all rows once the frozen sums are added. Outside the ball, all
rows are read again. R is chosen before the pass, a little larger than the expected distance to the minimiser.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import add

import numpy as np

from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import F64, I64, find_first_rows
from streamsvm.passes import All, Requests, Scan, Step, Subset, Take
from streamsvm.solvers.cutting_plane import cuts, line_search, near_rows
from streamsvm.solvers.cutting_plane.line_search import PointTotals, Segment, start_points, start_totals
from streamsvm.solvers.cutting_plane.master import bound_dual, minimise_master
from streamsvm.solvers.cutting_plane.smoothed_newton import HingeRows, Linear, minimise_rows, read_rows
from streamsvm.solvers.one_read.state import ALLOWANCE, OneRead, State, look_at_centre
from streamsvm.solvers.one_read.trust_region import STEPS, Aim, choose_centre, update_trust

FARTHER = 1.5  # rows are set aside within this multiple of the expected distance
BEYOND = 2.0  # one read is usually enough if the minimiser is expected within this multiple of the near rows' radius
MOST_SHARE = 0.5  # writing and reading more than this share of the rows takes as long as reading all rows
HALVES = 40  # bisections of the way to the boundary of the ball
LINE_POINTS = 16  # cuts of a pass on the line to the master's minimiser
MOST_OWN = 3  # the maximum number of rows with their own shares in all cuts, per resident row
SURE_POINTS = 3  # this many first points of a pass are evaluated in twice the precision if rounding matters
NEAR_SHARE = 0.01  # F is minimised to this share of the tolerance: in the ball, its gap is the proved gap


Line = tuple[F64, F64]  # the two ends of a line, and its cut steps


def prove(
    settings: OneRead, state: State, sums: cuts.RowSums, kept: near_rows.Part, weight: F64, is_narrow: bool = False
) -> tuple[State, dict[str, float]]:
    """Minimise F; return the state with the dual point of F as a cut.

    sums: the sums over the rows with m_i < 1 at the centre. kept, weight (n,): the rows that the pass kept, and the
    number of rows that each represents. is_narrow: whether the pass read only the undecided rows, so that P is known
    only in their ball.

    The last point in the ball on the way from the centre to F's minimiser becomes the best point if it is better.
    """
    near = np.flatnonzero(weight == 1.0)
    data = read_rows(settings, near_rows.choose_rows(kept.rows, near), settings.threads)
    beyond = sums - data.sum_up((kept.margins[near] < 1.0).astype(np.float64))
    far = Linear(beyond.vectors, beyond.offsets)
    state = replace(state, resident=kept.numbers, weight=weight, radius=kept.radius)
    found = minimise_rows(data, far, NEAR_SHARE * settings.tol, state.centre)
    moved, _ = RowNorm(state.A).bound_move(found.w - state.centre)
    step = min(1.0, (1.0 - 1e-9) * state.radius / moved) if moved > 0.0 else 1.0
    last = state.centre + step * (found.w - state.centre)
    state = _take_inside(state, data, far, stay_within(state, state.centre, last) if is_narrow else last)
    if not np.isfinite(state.objective):  # no point is known yet, and rounding put this point outside the ball
        state = _take_inside(state, data, far, state.centre)
    cut = beyond + data.sum_up(found.shares)
    cut = cuts.RowSums(cut.vectors[None, :], np.array([cut.offsets]), np.array([cut.sizes]))
    state = cuts.add_cuts(state, cut)
    state = note_shares(state, kept, near, found.shares)
    alone = np.append(np.zeros(len(state.z) - 1), 1.0)  # the last cut alone may give the highest bound
    before = cuts.raise_bound(state, *bound_dual(state, alone), z=alone, proof=alone)
    state = make_room(note_proof(minimise_master(before, settings.tol), before), settings.resident_rows)
    figures = {"resident_rows": float(len(weight)), "near_rows": float(len(near)), "radius": state.radius}
    figures |= {"moved": moved, "predicted": state.predicted}
    return state, figures


def note_proof(state: State, before: State) -> State:
    """Return the state with its multipliers as the proof, if they have raised the lower bound since `before`."""
    return replace(state, proof=state.z) if state.lower_bound > before.lower_bound else state


def note_shares(state: State, kept: near_rows.Part, near: I64, shares: F64) -> State:
    """Return the state with the rows whose share in the last cut does not follow from their side at the centre.

    These are the near rows with a different share, and the near rows whose side depends on rounding.
    """
    differs = shares != (kept.margins[near] < 1.0)
    own = np.flatnonzero(differs | (kept.reach[near] == 0.0))
    n_own = state.n_own.copy()
    n_own[-1] = len(own)
    return replace(state, n_own=n_own, own_rows=kept.numbers[near[own]], own_shares=shares[own])


def make_room(state: State, resident_rows: int) -> State:
    """Mark the oldest dual points of F as idle if all dual points together have too many rows with their own shares.

    The next pass drops idle dual points before it proves a bound. Dual points behind the current bound are marked last.
    """
    excess = int(np.sum(state.n_own)) - (MOST_OWN - 1) * resident_rows
    held = np.flatnonzero(state.n_own)
    order = held[np.lexsort((state.z[held], -state.idle[held], state.proof[held] > 0.0))]
    dropped = order[: np.searchsorted(np.cumsum(state.n_own[order]), excess) + 1] if excess > 0 else order[:0]
    idle = state.idle.copy()
    idle[dropped] = cuts.IDLE_STEPS + 1
    return replace(state, idle=idle)


def _take_inside(state: State, data: HingeRows, far: Linear, w: F64) -> State:
    """Return the state moved to w if w lies in the ball, where F equals P, and is better than the best point.

    If all rows with a cost are kept, F equals P at every w, and the radius is EVERYWHERE. F adds sums over all rows and
    sums over the near rows, so its rounding is at most twice that of one sum.
    """
    moved, left = RowNorm(state.A).bound_move(w - state.centre)
    is_inside = moved <= state.radius and left <= ALLOWANCE * float(np.linalg.norm(state.centre))
    if not is_inside and state.radius < near_rows.EVERYWHERE:
        return state
    margins, half = data.find_margins(w), float(w @ w) / 2
    loss = far.value - float(far.slope @ w) + float(data.costs @ np.maximum(1.0 - margins, 0.0))
    rounding = 2 * state.bound_loss(np.abs(w))
    best_cut = far.slope + data.combine((margins < 1.0).astype(np.float64))
    return cuts.move_to(state, w, half + loss, rounding, loss=loss, best_cut=best_cut)


def choose_lines(state: State, minimiser: F64) -> list[Line]:
    """Return the lines from the best point to the sample's and to the master's minimiser, with their cut steps."""
    lines = [(np.stack((state.best_w, minimiser)), STEPS)]
    if len(state.offsets):
        steps = line_search.choose_cut_steps(state.step, LINE_POINTS)
        lines.append((np.stack((state.best_w, state.master_w)), steps))
    return lines


def settle(state: State, W: F64, tol: float, totals: PointTotals, segments: list[Segment]) -> State:
    """Return the state with the best point of a pass, the cuts of the pass, and the lower bound that the cuts give.

    W (k, d+1): the points of the pass. totals: the sums at these points. segments: the sums along the lines.
    """
    at_points = line_search.read_cuts(totals)
    state = cuts.move_to_lowest(state, W, totals.losses, loss=totals.losses, best_cut=at_points.vectors)[0]
    made, step = [at_points], 0.0
    for found in segments:
        sizes, others = np.abs(found.W[0]) + np.abs(found.W[-1]), {"loss": found.losses, "best_cut": found.cuts.vectors}
        state, at = cuts.move_to_lowest(state, found.W, found.losses, sizes, **others)
        step = float(found.steps[at])
        chosen = np.unique(np.clip([at, at + 1, at + 2], 1, len(found.steps) - 1))
        made.append(found.cuts.pick(chosen))
    if len(segments) > 1:
        state = replace(state, step=step or state.step / 8)
    joined = cuts.RowSums(*map(np.concatenate, zip(*(vars(sums).values() for sums in made), strict=True)))
    return minimise_master(cuts.add_cuts(state, joined), tol)


def choose_apart(settings: OneRead, state: State) -> State:
    """Return the state in which the first pass sets rows aside if this pays.

    A later pass over all rows discards the rows set aside. Setting rows aside does not pay if the minimiser is expected
    inside or just outside the ball of the near rows, or if too many rows lie within R. The estimate assumes that rows
    are evenly distributed near the margin, with the resident rows within the radius `widest`.
    """
    radius = FARTHER * state.predicted
    share = settings.resident_rows / state.n_rows * radius / state.widest if state.widest > 0.0 else 1.0
    if not settings.sets_aside or state.passes or state.predicted <= BEYOND * state.widest or share > MOST_SHARE:
        return replace(state, apart_radius=0.0)
    return replace(state, apart=state.centre, apart_radius=radius)


def take_frozen(state: State, totals: near_rows.NearTotals) -> State:
    """Return the state with the sums over the frozen rows, computed by the pass that sets rows aside."""
    radius = state.apart_radius if totals.n_apart else 0.0
    share = min(1.0, totals.find_densest())
    frozen, cost = totals.others.vectors, totals.others.offsets
    return replace(state, apart_radius=radius, frozen=frozen, frozen_cost=cost, apart_share=share)


def _make_subset(settings: OneRead, state: State) -> Subset:
    look = look_at_centre(settings, replace(state, centre=state.apart))
    return Subset(near_rows.choose_within, (look, state.apart_radius))


def is_within(state: State, w: F64) -> bool:
    """Return whether the frozen rows certainly keep their sides at w."""
    moved, left = RowNorm(state.A).bound_move(w - state.apart)
    return moved < state.apart_radius and left <= ALLOWANCE * float(np.linalg.norm(state.apart))


def stay_within(state: State, start: F64, end: F64) -> F64:
    """Return the end of a line if it lies within the ball, otherwise the last point of the line that does."""
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
        line = start_totals(len(cut_steps), len(g), without=1)
        line.losses[0] = c - float(ends[0] @ g), -float((ends[1] - ends[0]) @ g)
        line.costs[0] = c
        rests.append(line)
    rests.append(near_rows.NearTotals(cuts.RowSums(g.copy(), c, c), cuts.RowSums(np.zeros(len(g)))))
    return [replace(scan, among=subset, rest=rest) for scan, rest in zip(asked, rests, strict=True)]


def solve(settings: OneRead, state: State) -> Requests:
    """Run the solver from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    class_costs, bias, sample = np.array(settings.class_costs), settings.bias_feature, None
    while True:
        before, held = state, None
        if sample is None:
            taken = yield Take(state.resident)
            sample = taken.weigh(state.weight)
            if settings.holds_sample(state.n_rows):
                held = find_first_rows(taken, state.resident)
            del taken
        state, aim = choose_centre(settings, state, sample)
        lines, sample = choose_lines(state, aim.end), None
        points = cuts.choose_points(aim.W[:SURE_POINTS]) if cuts.is_noisy(state, settings.tol) else None
        narrower = narrow(state, aim, lines) if points is None else None
        aim, lines = narrower or (aim, lines)
        state = state if narrower else choose_apart(settings, state)
        look = look_at_centre(settings, state, state.apart_share if narrower else 1.0)
        looks = [line_search.look_along(ends, steps, class_costs, bias, without=1) for ends, steps in lines]
        shared = (aim.W, class_costs, bias)
        cut_at = Scan(partial(start_points, *aim.W.shape), line_search.add_points, add, shared, weights=aim.W)
        apart = None if narrower or state.apart_radius == 0.0 else _make_subset(settings, state)
        asked = [cut_at, *looks, replace(near_rows.scan_near(look, held=held), apart=apart)]
        asked = among_undecided(settings, state, asked) if narrower else asked
        extra = cuts.look_for_rounding(state, points, class_costs, bias)
        found, *others = yield All([All(asked), *extra])
        at_points, *on_lines, totals = line_search.add_starts(found)
        state = cuts.take_magnitudes(state, others)
        state = state if narrower else take_frozen(state, totals)
        segments = [line_search.read_segment(*line, one) for line, one in zip(lines, on_lines, strict=True)]
        state = note_proof(settle(state, aim.W, settings.tol, at_points, segments), state)
        state = update_trust(state, before, aim, float(at_points.losses[1]))
        if points is not None:
            vectors = line_search.read_cuts(at_points).vectors[:SURE_POINTS]
            sure, at, loss = cuts.take_exact(state, points, *others[0].read(points.shape[1]))
            # The first points are followed by lengthened copies of them.
            state = state if sure is state else replace(sure, loss=loss, best_cut=vectors[at % len(vectors)])
        kept, weight = near_rows.gather(totals, look)
        state, figures = prove(settings, state, totals.sums, kept, weight, is_narrow=narrower is not None)
        figures |= {"undecided_rows": float(totals.n_rows)} if narrower else {}
        state = cuts.count_pass(state, before, 1)
        sample = kept.rows.weigh(weight)
        del kept, held, asked
        yield Step(state, state.progress, cuts.find_status(state, settings.tol), figures)
