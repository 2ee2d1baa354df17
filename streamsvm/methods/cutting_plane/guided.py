"""Cutting planes guided by resident rows: a sample in memory shows where to cut the problem of all rows.

    1/2 |w|^2 + max(f_S(w) + h.w + r, max_c b_c - w.a_c),     h = f'(w_b) - f_S'(w_b),   r = f(w_b) - f_S(w_b) - h.w_b

The solver minimises this between two passes. Here f is the loss of all rows, f_S the weighted loss of the sample, w_b
the best point so far, and (a_c, b_c) are the cuts of all rows (cutting_plane.cuts). The correction by h and r gives the
sample's loss the value and the slope of f at w_b, and the maximum keeps it at or above all cuts that are known.

One master problem holds the cuts of all rows and the cuts of the sample, which are shifted by h and r. The next pass
cuts the problem of all rows at the minimiser, and at the points where the sample's active cuts were made: the sample's
optimum rests on these cuts, so cuts of all rows at the same points give a good lower bound. The bound and P at the best
point come from sums over all rows, and so they hold however the sample was drawn.

A pass also looks along two lines, from the best point to the sample's minimiser and to the minimiser of the master
problem of all rows. The second line is the pass of cutting_plane.solver: it helps where the sample misleads.

The first sample is drawn uniformly. After each pass a new one is drawn by the rows' distances t from the margin, with
probabilities in proportion to 1 / (0.1 + t)^2 and their inverses as weights. Rows near the margin guide best, and so do
rows that cross it on the way to the sample's minimiser, for which t = 0. Reading the new sample is extra work beside
the pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, TypeVar

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
from streamsvm.methods.cutting_plane.point_cuts import (
    PointTotals,
    add_coded_points,
    add_points,
    combine_points,
    read_cuts,
    start_points,
)
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
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.requests import All, Scan, Solver, Step, Take

LINE_POINTS = 16  # cuts on offer on the line to the master's minimiser
POINTS = 16  # points of the sample's active cuts at which a pass cuts the problem of all rows, at most
SURE_POINTS = 3  # points, the first of a pass, that are evaluated in twice the precision if rounding matters
KEPT_POINTS = 50  # points of old samples at which a new sample is cut before it is minimised
TILE_ROWS = 4096  # rows of the sample whose scores at many points are held at once
SAMPLE_SHARE = 0.1  # the sample's problem is solved to this share of the gap
FIRST_SHARE = 1e-3  # before the first pass, when there is no gap yet: to this share of P at w = 0


@dataclass(frozen=True)
class Guided:
    """Settings of the solver.

    class_costs (2,): C_i of the classes coded 0 and 1, before sample weights; resident_rows: how many rows a sample
    has; tol: the relative gap to reach; bias_feature: the value of the constant feature; seed: of the random draws.
    """

    class_costs: tuple[float, float]
    resident_rows: int
    tol: float = 1e-3
    bias_feature: float = 1.0
    seed: int = 0

    def driver_bytes(self, n_rows: int, n_features: int) -> int:
        """Return the bytes of the driver without the resident rows: cuts, and the codes of all rows."""
        return self.cuts_bytes(n_features) + 2 * n_rows + 24 * DRAWN_ROWS

    def cuts_bytes(self, n_features: int) -> int:
        """Return the bytes of the cuts of all rows and of the sample, and of the work with them."""
        width, sample_cuts = n_features + 1, KEPT_POINTS + 2 * INNER_STEPS
        both = most_cuts(width) + sample_cuts
        work = 8 * width * (3 * sample_cuts + 4 * (POINTS + 3)) + 32 * TILE_ROWS * (KEPT_POINTS + 1)
        return cut_bytes(width, both) + work

    def turn_bytes(self, n_features: int) -> int:
        """Return the part of the driver's bytes that is in use only while a step is computed."""
        return self.driver_bytes(0, n_features) - cut_bytes(n_features + 1, most_cuts(n_features + 1))

    def shared_bytes(self, n_features: int) -> int:
        """Return the bytes that every task of a pass is sent, twice: passes of several fits in one read copy them."""
        return 8 * 2 * (POINTS + 7) * (n_features + 1)

    def totals_bytes(self, group_rows: int, n_features: int) -> int:
        """Return the bytes of one task's totals for a group of `group_rows` rows."""
        lines = 2 * totals_bytes(LINE_POINTS, n_features + 1)
        return lines + 8 * (POINTS + 4) * (n_features + 3) + group_rows


@dataclass
class State(LineState):
    """All that changes. Vectors are (d+1,); their last entry is the weight of the constant feature.

    loss, best_cut: the loss of all rows at the best point, and their cut a_c there; resident, weight (r,): the rows of
    the sample, and how many rows each stands for; points (p, d+1): where the next sample is cut first.
    """

    loss: float = 0.0
    best_cut: F64 = field(default_factory=lambda: np.empty(0))
    resident: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    weight: F64 = field(default_factory=lambda: np.empty(0))
    points: F64 = field(default_factory=lambda: np.empty((0, 0)))
    shapes: ClassVar = CutState.shapes | {"resident": ("r",), "weight": ("r",), "points": ("p", "d")}
    row_numbers: ClassVar[tuple[str, ...]] = ("resident",)


S = TypeVar("S", bound=State)


def start_state(settings: Guided, n_rows: int, n_features: int, is_shuffled: bool = False) -> State:
    """Return the state before the first pass: w = 0, no cuts, and a sample that is drawn uniformly."""
    width, rows = n_features + 1, draw_any(n_rows, settings.resident_rows, (settings.seed, 0), is_shuffled)
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


def warm_state(settings: Guided, before: S, factor: float) -> S:
    """Return the state to start from, given the last state of the problem whose costs are `factor` times smaller."""
    scaled = scale_costs(before, factor, settings.tol)
    return replace(scaled, loss=factor * before.loss, best_cut=factor * before.best_cut, step=1.0)


def solve(settings: Guided, state: State) -> Solver:
    """Go on from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    class_costs, n_rows, sample = np.array(settings.class_costs), -1, None
    while True:
        before, held = state, None
        if sample is None or len(state.resident) < n_rows:
            taken = yield Take(state.resident)
            sample, held = weigh_rows(taken, state.weight), find_first_rows(taken, state.resident)
        h, r = correct_sample(settings, state, sample)
        state, W = minimise_model(settings, state, SampleModel(sample, class_costs, settings.bias_feature, h, r))
        lines = choose_lines(state, W[1])
        looks = [look_along(ends, steps, class_costs, settings.bias_feature) for ends, steps in lines]
        points = choose_points(W[:SURE_POINTS]) if is_noisy(state, settings.tol) else None
        extra = look_for_rounding(state, points, class_costs, settings.bias_feature)
        found = yield All([replace(cut_at(settings, W), add=add_coded_points, held=held), *looks, *extra])
        state = take_magnitudes(state, found)
        segments = [read_segment(ends, steps, totals) for (ends, steps), totals in zip(lines, found[1:], strict=False)]
        state = settle(settings, state, W, found[0], segments)
        if points is not None:
            state = take_sure(state, points, found[1 + len(lines)], read_cuts(found[0])[0][:SURE_POINTS])
        state = count_pass(state, before, 1)
        figures = {"points": float(len(W)), "resident_rows": float(len(state.resident))}
        codes = np.concatenate([codes for _, codes in sorted(found[0].tiles, key=lambda tile: tile[0])])
        n_rows = len(codes)
        rows, weight = draw_near_margin(codes, settings.resident_rows, (settings.seed, state.passes))
        if len(rows):
            state = replace(state, resident=rows, weight=weight)
        yield Step(state, state.progress, find_status(state, settings.tol), figures)


def weigh_rows(rows: Rows, weight: F64) -> Rows:
    """Return a sample, in which the weight of each row is multiplied by the number of rows that it stands for."""
    own = weight if rows.sample_weight is None else weight * rows.sample_weight
    return Rows(0, rows.X, rows.y, own)


def find_first_rows(rows: Rows, numbers: I64) -> Rows | None:
    """Return the rows with these numbers, which ascend, if they are the first rows, which a pass need not read."""
    return rows if len(numbers) and numbers[-1] == len(numbers) - 1 else None


def _cut(rows: Rows, settings: Guided, W: F64) -> PointTotals:
    totals, class_costs = start_points(len(W), W.shape[1]), np.array(settings.class_costs)
    for at in range(0, rows.n_rows, TILE_ROWS):
        add_points(totals, rows.slice(slice(at, at + TILE_ROWS)), W, class_costs, settings.bias_feature)
    return totals


def correct_sample(settings: Guided, state: State, sample: Rows) -> tuple[F64, float]:
    """Return h and r of the module's docstring, which are zero before the first pass."""
    if not np.isfinite(state.objective):
        return np.zeros(len(state.best_w)), 0.0
    totals = _cut(sample, settings, state.best_w[None, :])
    h = read_cuts(totals)[0][0] - state.best_cut
    return h, state.loss - float(totals.losses[0]) - float(h @ state.best_w)


def minimise_model(settings: Guided, state: S, model: SampleModel) -> tuple[S, F64]:
    """Minimise the corrected problem of the sample; return the state with points for the next sample, and where to cut.

    The first three of these are the best point so far, the sample's minimiser, and the minimiser of its master problem.
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


def choose_lines(state: State, guide: F64) -> list[tuple[F64, F64]]:
    """Return lines and their cut steps: from the best point to the sample's minimiser `guide`, and to the master's."""
    lines = [(np.stack((state.best_w, guide)), STEPS)]
    if len(state.offsets):
        steps = choose_cut_steps(state.step, LINE_POINTS)
        lines.append((np.stack((state.best_w, state.master_w)), steps))
    return lines


def cut_at(settings: Guided, W: F64) -> Scan:
    """Return the pass that cuts the problem of all rows at the points W (k, d+1)."""
    shared = (W, np.array(settings.class_costs), settings.bias_feature)
    return Scan(partial(start_points, len(W), W.shape[1]), add_points, combine_points, shared)


def settle(settings: Guided, state: S, W: F64, totals: PointTotals, segments: list[Segment]) -> S:
    """Return the state with the best point of the pass, with its cuts, and with the lower bound that they give."""
    at_points = read_cuts(totals)
    sizes = np.abs(W)
    state = _take_best(state, W, totals.losses, at_points[0], sizes)[0]
    cuts, offsets, step = [at_points[0]], [at_points[1]], 0.0
    costs = [2 * at_points[1][0] + at_points[1]]  # rows that are active at the first point may be subtracted again
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


def _take_best(state: S, W: F64, losses: F64, gradients: F64, sizes: F64) -> tuple[S, int]:
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


def take_sure(state: S, points: F64, found: ExactLosses, cuts: F64) -> S:
    """Take the best of the points in twice the precision; cuts: at the first of them, which the others prolong."""
    after, at, loss = take_exact(state, points, found)
    return state if after is state else replace(after, loss=loss, best_cut=cuts[at % len(cuts)])
