"""Cutting planes guided by resident rows: where to cut the full problem is found out on a sample of it.

Between two passes the problem is minimised on rows that are held in memory, their loss f_S corrected so that value and
slope at the best point w_b are those of all rows, and never less than the cuts of all rows say:

    1/2 |w|^2 + max(f_S(w) + h.w + r, max_c b_c - w.a_c),     h = f'(w_b) - f_S'(w_b),   r = f(w_b) - f_S(w_b) - h.w_b

One master problem holds the cuts of all rows and those of the sample, shifted by h and r. A pass then cuts the full
problem at the minimiser, and at the points where the sample's active cuts were made: they are what its optimum rests
on, so cuts of all rows at the same points make a good lower bound. These bounds, and P at the best point, are exact.

A pass looks along two lines as well, from the best point to the sample's minimiser and to the master's. The latter is
the pass of cutting_plane.solver: where the sample misleads, that goes on as if there were none.

The rows are drawn at random at first, and after each pass by their distance t from the margin, with probability in
proportion to 1 / (0.1 + t)^2 and the inverse as weight: rows near the margin, and those that have crossed it on the way
to the sample's minimiser (t = 0), guide best. Taking them is extra reading.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from streamsvm.methods.cutting_plane.cuts import (
    CutState,
    add_cuts,
    count_pass,
    cut_bytes,
    find_status,
    is_better,
    minimise_master,
    most_cuts,
    scale_costs,
)
from streamsvm.methods.cutting_plane.exact_points import (
    choose_points,
    is_noisy,
    look_for_rounding,
    take_exact,
    take_magnitudes,
)
from streamsvm.methods.cutting_plane.nearness import DRAWN_ROWS, draw_any, draw_near_margin
from streamsvm.methods.cutting_plane.point_cuts import PointTotals, add_points, combine_points, read_cuts, start_points
from streamsvm.methods.cutting_plane.sample_model import INNER_STEPS, STEPS, SampleModel, minimise_sample
from streamsvm.methods.cutting_plane.segments import (
    LineState,
    Segment,
    choose_cut_steps,
    look_along,
    read_segment,
    totals_bytes,
)
from streamsvm.numeric.exact_losses import ExactLosses
from streamsvm.numeric.rows import F64, I64, Rows, slice_rows
from streamsvm.requests import All, Scan, Solver, Step, Take

LINE_POINTS = 16  # cuts on offer on the line to the master's minimiser
POINTS = 16  # of the sample's active cuts, at which the full problem is cut
SURE_POINTS = 3  # the first of them, which are evaluated in twice the precision where rounding counts
KEPT_POINTS = 50  # at which a new sample is cut before it is minimised
TILE_ROWS = 4096  # of the sample, whose scores at many points are held at once
SAMPLE_SHARE = 0.1  # the sample's problem is solved to this share of the gap
FIRST_SHARE = 1e-3  # of P at 0, where there is no gap yet


@dataclass(frozen=True)
class Guided:
    """Settings. class_costs: (2,) C_i of the classes coded 0 and 1, before sample weights; tol: relative gap."""

    class_costs: tuple[float, float]
    resident_rows: int
    tol: float = 1e-3
    bias_feature: float = 1.0
    seed: int = 0

    def driver_bytes(self, n_rows: int, n_features: int) -> int:
        """Memory of the driver but for the resident rows: cuts of all rows and of the sample, codes of all rows."""
        width, sample_cuts = n_features + 1, KEPT_POINTS + 2 * INNER_STEPS
        both = most_cuts(width) + sample_cuts
        work = 8 * width * (3 * sample_cuts + 4 * (POINTS + 3)) + 32 * TILE_ROWS * (KEPT_POINTS + 1)
        return cut_bytes(width, both) + work + 2 * n_rows + 24 * DRAWN_ROWS

    def turn_bytes(self, n_features: int) -> int:
        """Part of it that is in use only while a step is computed."""
        return self.driver_bytes(0, n_features) - cut_bytes(n_features + 1, most_cuts(n_features + 1))

    def shared_bytes(self, n_features: int) -> int:
        """Memory of what every task of a pass is sent; once more where the passes of several are one."""
        return 8 * 2 * (POINTS + 7) * (n_features + 1)

    def totals_bytes(self, group_rows: int, n_features: int) -> int:
        """Memory of one task's totals, for a group of so many rows."""
        lines = 2 * totals_bytes(LINE_POINTS, n_features + 1)
        return lines + 8 * (POINTS + 3) * (n_features + 3) + group_rows


@dataclass
class State(LineState):
    """All that changes. Vectors are (d+1,), the last entry the bias' weight.

    Of the best point: its loss, and its cut. resident, weight: the sample's rows and how many each stands for.
    points: where the sample is to be cut, (p, d+1).
    """

    loss: float = 0.0
    best_cut: F64 = field(default_factory=lambda: np.empty(0))
    resident: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    weight: F64 = field(default_factory=lambda: np.empty(0))
    points: F64 = field(default_factory=lambda: np.empty((0, 0)))
    shapes: ClassVar = CutState.shapes | {"resident": ("r",), "weight": ("r",), "points": ("p", "d")}
    row_numbers: ClassVar = ("resident",)


def start_state(settings: Guided, n_rows: int, n_features: int) -> State:
    """Return w = 0, no cuts, and rows drawn at random."""
    width, rows = n_features + 1, draw_any(n_rows, settings.resident_rows, (settings.seed, 0))
    none = np.zeros(width)
    return State(
        none,
        none,
        np.empty((0, width)),
        best_cut=none,
        resident=rows,
        weight=np.full(len(rows), n_rows / len(rows)),
        points=none[None, :],
    )


def warm_state(settings: Guided, before: State, factor: float) -> State:
    """Return the state to start from, given the last one of the same problem with costs so many times smaller."""
    scaled = scale_costs(before, factor, settings.tol)
    return replace(scaled, loss=factor * before.loss, best_cut=factor * before.best_cut, step=1.0)


def solve(settings: Guided, state: State) -> Solver:
    """Go on from a state; every `Step` carries the whole state, from which `solve` goes on to the same bits."""
    class_costs, n_rows, sample = np.array(settings.class_costs), -1, None
    while True:
        before = state
        if sample is None or len(state.resident) < n_rows:
            sample = _weigh((yield Take(state.resident)), state.weight)
        h, r = _correct(settings, state, sample)
        state, W = _choose_points(settings, state, SampleModel(sample, class_costs, settings.bias_feature, h, r))
        lines = _choose_lines(state, W[1])
        looks = [look_along(ends, steps, class_costs, settings.bias_feature) for ends, steps in lines]
        points = choose_points(W[:SURE_POINTS]) if is_noisy(state, settings.tol) else None
        extra = look_for_rounding(state, points, class_costs, settings.bias_feature)
        found = yield All([_cut_at(settings, W), *looks, *extra])
        state = take_magnitudes(state, found)
        segments = [read_segment(ends, steps, totals) for (ends, steps), totals in zip(lines, found[1:], strict=False)]
        state = _settle(settings, state, W, found[0], segments)
        if points is not None:
            state = _take_exact(state, points, found[1 + len(lines)], read_cuts(found[0])[0])
        state = count_pass(state, before, 1)
        figures = {"points": float(len(W)), "resident_rows": float(len(state.resident))}
        codes = np.concatenate([codes for _, codes in sorted(found[0].tiles, key=lambda tile: tile[0])])
        n_rows = len(codes)
        rows, weight = draw_near_margin(codes, settings.resident_rows, (settings.seed, state.passes))
        if len(rows):
            state = replace(state, resident=rows, weight=weight)
        yield Step(state, state.progress, find_status(state, settings.tol), figures)


def _weigh(rows: Rows, weight: F64) -> Rows:
    own = weight if rows.sample_weight is None else weight * rows.sample_weight
    return Rows(0, rows.X, rows.y, own)


def _cut(rows: Rows, settings: Guided, W: F64) -> PointTotals:
    totals, class_costs = start_points(len(W), W.shape[1]), np.array(settings.class_costs)
    y, weight = rows.y, rows.sample_weight
    assert y is not None
    assert weight is not None
    for at in range(0, rows.n_rows, TILE_ROWS):
        part = slice(at, at + TILE_ROWS)
        tile = Rows(at, slice_rows(rows.X, part), y[part], weight[part])
        add_points(totals, tile, W, class_costs, settings.bias_feature)
    return totals


def _correct(settings: Guided, state: State, sample: Rows) -> tuple[F64, float]:
    """Return h and r; zero before the first pass."""
    if not np.isfinite(state.objective):
        return np.zeros(len(state.best_w)), 0.0
    totals = _cut(sample, settings, state.best_w[None, :])
    h = read_cuts(totals)[0][0] - state.best_cut
    return h, state.loss - float(totals.losses[0]) - float(h @ state.best_w)


def _choose_points(settings: Guided, state: State, model: SampleModel) -> tuple[State, F64]:
    """Minimise the corrected sample; return where to cut, and where to cut the next sample.

    The first two points are the best one so far and the sample's minimiser.
    """
    known = _cut(model.rows, settings, state.points)
    if np.isfinite(state.objective):
        wanted = SAMPLE_SHARE * max(state.objective - state.lower_bound, settings.tol * state.objective)
    else:
        wanted = FIRST_SHARE * float(known.losses[0])
    found = minimise_sample(model, state, state.points, *read_cuts(known), wanted)
    order = np.argsort(-found.z, kind="stable")[:POINTS]
    ends = [state.best_w, found.best, found.master_w]
    W = np.concatenate((np.stack(ends), found.points[order[found.z[order] > 0.0]]))
    return replace(state, points=found.points[-KEPT_POINTS:]), W


def _choose_lines(state: State, guide: F64) -> list[tuple[F64, F64]]:
    """Return segments and their cut steps: from the best point to the sample's minimiser, and to the master's."""
    lines = [(np.stack((state.best_w, guide)), STEPS)]
    if len(state.offsets):
        steps = choose_cut_steps(state.step, LINE_POINTS)
        lines.append((np.stack((state.best_w, state.master_w)), steps))
    return lines


def _cut_at(settings: Guided, W: F64) -> Scan:
    shared = (W, np.array(settings.class_costs), settings.bias_feature)
    return Scan(partial(start_points, len(W), W.shape[1]), add_points, combine_points, shared)


def _settle(settings: Guided, state: State, W: F64, totals: PointTotals, segments: list[Segment]) -> State:
    """Take the best point, add all cuts, raise the lower bound."""
    at_points = read_cuts(totals)
    sizes = np.abs(W)
    state = _take_best(state, W, totals.losses, at_points[0], sizes)[0]
    cuts, offsets, step = [at_points[0]], [at_points[1]], 0.0
    costs = [2 * at_points[1][0] + at_points[1]]  # what is active at the first point may be taken off again
    for found in segments:
        ends = np.abs(found.W[0]) + np.abs(found.W[-1])
        state, at = _take_best(state, found.W, found.losses, found.gradients, np.broadcast_to(ends, found.W.shape))
        step = float(found.steps[at])
        chosen = np.unique(np.clip([at, at + 1, at + 2], 1, len(found.steps) - 1))
        cuts.append(found.gradients[chosen])
        offsets.append(found.costs[chosen])
        costs.append(2 * found.costs[0] + found.costs[chosen])
    if len(segments) > 1:
        state = replace(state, step=step or state.step / 8)
    both = np.concatenate(cuts), np.concatenate(offsets), np.concatenate(costs)
    state = add_cuts(state, *both, most_cuts(W.shape[1]))
    return minimise_master(state, settings.tol)


def _take_best(state: State, W: F64, losses: F64, gradients: F64, sizes: F64) -> tuple[State, int]:
    """Return the state with the best of the points, if it is better; and which that is.

    sizes (k, d+1): the most that |w_j| was in the sums that a point's loss comes from.
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


def _take_exact(state: State, points: F64, found: ExactLosses, cuts: F64) -> State:
    """Take the best of the points that were evaluated in twice the precision; cuts: of the points not lengthened."""
    after, at, loss = take_exact(state, points, found)
    return state if after is state else replace(after, loss=loss, best_cut=cuts[at % SURE_POINTS])
