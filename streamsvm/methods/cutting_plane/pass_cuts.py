"""What a pass of cutting_plane.one_read finds beside the rows near the margin: cuts of all rows, and better points.

A pass cuts the problem of all rows at the best point so far, at the centre, and, where cutting_plane.centres asks for
it, at the points where the sample has its active cuts: the sample's optimum rests on these cuts, so cuts of all rows at
the same points give a good lower bound. It also looks along two lines, from the best point to the sample's minimiser
and to the minimiser of the master problem of all rows. The second line is the pass of cutting_plane.solver: it helps
where the sample misleads. P and the bound come from sums over all rows, so they hold however the sample was drawn.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from streamsvm.methods.cutting_plane.cuts import add_cuts, is_better, join_sums, most_cuts
from streamsvm.methods.cutting_plane.exact_points import take_exact
from streamsvm.methods.cutting_plane.master_problem import minimise_master
from streamsvm.methods.cutting_plane.one_read_state import LINE_POINTS, OneRead, State
from streamsvm.methods.cutting_plane.point_cuts import PointTotals, add_points, combine_points, read_cuts, start_points
from streamsvm.methods.cutting_plane.sample_model import STEPS
from streamsvm.methods.cutting_plane.segments import Segment, choose_cut_steps
from streamsvm.numeric.exact_losses import ExactLosses
from streamsvm.numeric.rows import F64
from streamsvm.requests import Scan


def choose_lines(state: State, minimiser: F64) -> list[tuple[F64, F64]]:
    """Return lines and their cut steps: from the best point to the sample's minimiser, and to the master's."""
    lines = [(np.stack((state.best_w, minimiser)), STEPS)]
    if len(state.offsets):
        steps = choose_cut_steps(state.step, LINE_POINTS)
        lines.append((np.stack((state.best_w, state.master_w)), steps))
    return lines


def cut_at(settings: OneRead, W: F64) -> Scan:
    """Return the pass that cuts the problem of all rows at the points W (k, d+1)."""
    shared = (W, np.array(settings.class_costs), settings.bias_feature)
    return Scan(partial(start_points, len(W), W.shape[1]), add_points, combine_points, shared)


def settle(state: State, W: F64, tol: float, totals: PointTotals, segments: list[Segment]) -> State:
    """Return the state with the best point of the pass, with its cuts, and with the lower bound that they give."""
    at_points = read_cuts(totals)
    sizes = np.abs(W)
    state = _take_best(state, W, totals.losses, at_points.vectors, sizes)[0]
    cuts, step = [at_points], 0.0
    for found in segments:
        ends = np.abs(found.W[0]) + np.abs(found.W[-1])
        state, at = _take_best(state, found.W, found.losses, found.cuts.vectors, np.broadcast_to(ends, found.W.shape))
        step = float(found.steps[at])
        chosen = np.unique(np.clip([at, at + 1, at + 2], 1, len(found.steps) - 1))
        cuts.append(found.cuts.pick(chosen))
    if len(segments) > 1:
        state = replace(state, step=step or state.step / 8)
    state = add_cuts(state, join_sums(cuts), most_cuts(W.shape[1]))
    return minimise_master(state, tol)


def _take_best(state: State, W: F64, losses: F64, gradients: F64, sizes: F64) -> tuple[State, int]:
    """Return the state with the best of the points if it is better, and the place of that point.

    sizes (k, d+1): the largest |w_j| that went into the sums for each point; they bound the rounding of its loss.
    """
    objectives = np.sum(W**2, axis=1) / 2 + losses
    best = int(np.argmin(objectives))
    rounding = state.bound_loss(sizes[best])
    if is_better(objectives[best], rounding, state):
        state = replace(
            state,
            best_w=W[best],
            objective=float(objectives[best]),
            loss=float(losses[best]),
            best_cut=gradients[best],
            objective_rounding=rounding,
        )
    return state, best


def take_sure(state: State, points: F64, found: ExactLosses, cuts: F64) -> State:
    """Take the best of the points in twice the precision.

    cuts: those at the first points; the later points are the same ones made longer (exact_points.choose_points).
    """
    after, at, loss = take_exact(state, points, found)
    return state if after is state else replace(after, loss=loss, best_cut=cuts[at % len(cuts)])
