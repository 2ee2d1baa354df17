"""One read: rows near the margin stay in memory and are solved exactly; all others are summed up where they lie.

    F(w) = 1/2 |w|^2 + c - g.w + sum_near C_i max(0, 1 - m_i),      m_i = y_i w.x_i

A pass at a centre w_0 keeps the rows near the margin (cutting_plane.near_rows), and finds c and g, the sums of C_i and
C_i y_i x_i over the far rows with m_i < 1 at w_0. Then F is never above P, because max(0, 1 - m) >= s (1 - m) for s = 0
and for s = 1. So the minimum of F is a lower bound of P over all rows, without another read of the data; a dual point
of F is a cut of P. While w stays within the radius r of w_0, no far row changes sides, and F equals P. So if F's
minimiser lies in that ball, P is known there, and the proof is complete.

The first centre is the minimiser of a sample. If the ball is left, the next centre is the minimiser of a model of P
(cutting_plane.centres): the rows that were kept, in which far rows that were drawn at random stand for many, corrected
by what the pass found out about all rows. A pass also cuts the problem of all rows at a few points, and searches two
lines (cutting_plane.pass_cuts). One master problem holds all these cuts and the dual points of F. Rows that may change
sides may be set aside, so that later passes read only these (cutting_plane.undecided).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from streamsvm.methods.cutting_plane.ball_proof import gather, prove
from streamsvm.methods.cutting_plane.centres import choose_centre, update_trust
from streamsvm.methods.cutting_plane.cuts import count_pass, find_status
from streamsvm.methods.cutting_plane.exact_points import choose_points, is_noisy, look_for_rounding, take_magnitudes
from streamsvm.methods.cutting_plane.near_rows import add_near, combine_near, start_near
from streamsvm.methods.cutting_plane.one_read_state import OneRead, State, make_look, note_proof
from streamsvm.methods.cutting_plane.pass_cuts import choose_lines, cut_at, settle, take_sure
from streamsvm.methods.cutting_plane.point_cuts import read_cuts
from streamsvm.methods.cutting_plane.segments import look_along, read_segment
from streamsvm.methods.cutting_plane.undecided import among_undecided, choose_apart, narrow, set_apart, take_frozen
from streamsvm.numeric.samples import find_first_rows, weigh_rows
from streamsvm.requests import All, Scan, Solver, Step, Take

SURE_POINTS = 3  # points, the first of a pass, that are evaluated in twice the precision if rounding matters


def solve(settings: OneRead, state: State) -> Solver:
    """Go on from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    class_costs, bias, sample = np.array(settings.class_costs), settings.bias_feature, None
    while True:
        before, held = state, None
        if sample is None:
            taken = yield Take(state.resident)
            sample = weigh_rows(taken, state.weight)
            if settings.holds_sample(state.n_rows):
                held = find_first_rows(taken, state.resident)
            del taken
        state, aim = choose_centre(settings, state, sample)
        lines, sample = choose_lines(state, aim.end), None
        points = choose_points(aim.W[:SURE_POINTS]) if is_noisy(state, settings.tol) else None
        narrower = narrow(state, aim, lines) if points is None else None
        aim, lines = narrower or (aim, lines)
        state = state if narrower else choose_apart(settings, state)
        look = make_look(settings, state, state.apart_share if narrower else 1.0)
        looks = [look_along(ends, steps, class_costs, bias) for ends, steps in lines]
        add_up = partial(combine_near, look.share)
        near = Scan(partial(start_near, len(state.centre)), add_near, add_up, (look,), held=held)
        asked = [cut_at(settings, aim.W), *looks, near]
        asked = among_undecided(settings, state, asked) if narrower else set_apart(settings, state, asked)
        extra = look_for_rounding(state, points, class_costs, bias)
        found = yield All([*asked, *extra])
        state = take_magnitudes(state, found)
        state = state if narrower else take_frozen(state, found[1 + len(lines)])
        segments = [read_segment(ends, steps, totals) for (ends, steps), totals in zip(lines, found[1:], strict=False)]
        state = note_proof(settle(state, aim.W, settings.tol, found[0], segments), state)
        state = update_trust(state, before, aim, float(found[0].losses[1]))
        if points is not None:
            state = take_sure(state, points, found[2 + len(lines)], read_cuts(found[0]).vectors[:SURE_POINTS])
        totals = found[1 + len(lines)]
        kept, weight = gather(totals, look)
        state, figures = prove(settings, state, totals.sums, kept, weight, is_narrow=narrower is not None)
        figures |= {"undecided_rows": float(totals.n_rows)} if narrower else {}
        state = count_pass(state, before, 1)
        sample = weigh_rows(kept.rows, weight)
        del kept, held, near
        yield Step(state, state.progress, find_status(state, settings.tol), figures)
