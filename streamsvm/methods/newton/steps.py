"""The state of Newton's method, and a step of it from what a pass has found."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from streamsvm.methods.newton.bounds import Point, bound_by_gradient, bound_in_ball, make_point, measure_line
from streamsvm.methods.newton.sums import Look, Totals
from streamsvm.numeric.factors import factorise
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import F64, I64
from streamsvm.numeric.smooth_loss import SmoothLoss, has_kinks
from streamsvm.requests import Progress

NEXT_REACH = 0.2  # times the step that has been made: its error is much smaller near the minimiser
ROUNDINGS = 8.0  # times the error of the gradient: no ball is smaller, as the minimiser is not known better
LESS = 0.1  # of the damping, after a step that has lowered P in full
FIRST_PACE = 0.03  # the share to which the width shrinks at a time
SLOW_PACE, SLOWEST_PACE = 0.5, 0.9  # the same after one or many steps on whose line P was nowhere lower
HARDLY = 1e-8  # of P: where a step is expected to lower P by no more, only the bound is missing
CAUTION = 5.0  # times the expected error of a step, as a share of the width


@dataclass(frozen=True)
class Newton:
    """Settings of the solver.

    loss: the rows' losses l_i, which contain the costs; resident_rows: how many rows the sample has; tol: the relative
    gap to reach; bias_feature: the value of the constant feature; seed: of the sample.
    """

    loss: SmoothLoss
    resident_rows: int
    tol: float = 1e-3
    bias_feature: float = 1.0
    seed: int = 0


@dataclass
class State:
    """All that changes. Vectors are (d+1,); their last entry is the weight of the constant feature.

    best_w: the point with the lowest P; next_w: where the next pass looks; base_w, value: where the step to it began,
    and the smoothed P there; width: of the smoothing, 0 before the first pass and for smooth losses; pace: the share to
    which it may shrink at a time; damping: of the tails of kinks (`_add_tails`); resident: the numbers of the sample's
    rows, of which none are left after the first pass; A (d+1, d+1) and reach: the ball of the next pass, empty and 0 if
    there is none; n_rows: how many rows there are; objective: P at the best point; lower_bound: the best one so far;
    passes: how many there were; stuck: for how many passes neither has moved. objective_rounding, bound_rounding and
    tried_rounding bound the rounding of P, of the lower bound, and of one that rounding has made useless.
    """

    best_w: F64
    next_w: F64
    base_w: F64
    resident: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    A: F64 = field(default_factory=lambda: np.empty((0, 0)))
    reach: float = 0.0
    width: float = 0.0
    pace: float = FIRST_PACE
    damping: float = 0.0
    value: float = float("inf")
    n_rows: int = 0
    objective: float = float("inf")
    lower_bound: float = 0.0
    passes: int = 0
    stuck: int = 0
    objective_rounding: float = 0.0
    bound_rounding: float = 0.0
    tried_rounding: float = 0.0
    shapes: ClassVar = {"best_w": ("d",), "next_w": ("d",), "base_w": ("d",), "resident": ("r",), "A": ("k", "k")}
    row_numbers: ClassVar = ("resident",)

    @property
    def progress(self) -> Progress:
        """The objective, the lower bound, and the rounding of both."""
        tried = self.objective_rounding + self.tried_rounding if self.tried_rounding > 0.0 else 0.0
        own = self.objective_rounding + self.bound_rounding
        return Progress(self.objective, self.lower_bound, self.passes, own, tried, self.bound_rounding)

    def check(self) -> None:
        """Raise ValueError if A is not of rows of this width; before the first pass it is empty."""
        if len(self.A) not in (0, len(self.best_w)):
            raise ValueError(f"A has {len(self.A)} rows")


def make_look(settings: Newton, state: State) -> Look:
    """Return what the next pass looks for."""
    norm = RowNorm(state.A if len(state.A) else np.eye(len(state.best_w)))
    loss = settings.loss.sharpen(state.width) if has_kinks(settings.loss) else settings.loss
    return Look(loss, settings.bias_feature, norm, state.reach if len(state.A) else 0.0)


def take_step(state: State, look: Look, ends: F64, totals: Totals, smooth_share: float) -> State:
    """Return the state with what a pass has found: P and its lower bound, and the next point.

    smooth_share: the share of P that the smoothing of kinks may take.
    """
    point, least = make_point(ends[1], totals, look, state.n_rows), totals.least.finish()
    hidden_before = state.tried_rounding
    state = _raise_bound(state, look, point, totals.slack, least)
    steps = np.array(look.steps)
    values, errors = measure_line(ends, steps, totals, state.n_rows)
    state = _note_best(state, ends, steps, values - totals.excess, errors)
    k, is_known = int(np.argmin(values)), bool(np.all(ends[0] == ends[1]))
    if is_known or (point.objective < state.value and point.objective <= float(values[k]) + float(errors[k])):
        damping = state.damping if is_known else LESS * state.damping
        H = _add_tails(least + totals.rest.finish(), damping * totals.tail)
        state = replace(state, base_w=ends[1], value=point.objective, damping=damping)
        state, decrease = aim(state, point, H)
        is_rounding = float(np.linalg.norm(point.gradient)) <= point.gradient_error
        hidden = state.tried_rounding if is_rounding or decrease <= HARDLY * state.objective else 0.0
        return _shrink_width(replace(state, tried_rounding=hidden), totals, smooth_share * state.objective)
    state = replace(state, damping=1.0, tried_rounding=hidden_before)
    lowest = ends[0] + steps[k] * (ends[1] - ends[0])
    if float(values[k]) < state.value:  # the next pass finds the gradient there
        return replace(state, base_w=lowest, value=float(values[k]), next_w=lowest, reach=0.0)
    if state.width > 0.0:  # the step has left the curvature that it was found with: smooth more, and shrink less
        pace = min(max(SLOW_PACE, float(np.sqrt(state.pace))), SLOWEST_PACE)
        return replace(state, next_w=state.base_w, reach=0.0, width=state.width / pace, pace=pace)
    return replace(state, next_w=ends[0] + steps[0] * (ends[1] - ends[0]), reach=0.0)


def _raise_bound(state: State, look: Look, point: Point, slack: float, least: F64) -> State:
    """Return the state with the lower bound of P that the point proves, if it is higher. slack: see Totals."""
    unsure = bound_rounding(state.n_rows + 24, slack)
    below = replace(point, objective=point.objective - slack, objective_error=point.objective_error + unsure)
    bounds = [bound_by_gradient(below), bound_in_ball(below, look, least, state.n_rows)]
    value, rounding = max(bounds, key=lambda bound: bound[0] - bound[1])
    if value - rounding > state.lower_bound:
        return replace(state, lower_bound=value - rounding, bound_rounding=rounding, tried_rounding=0.0)
    tried = [error for bound, error in bounds if bound + error > state.lower_bound]  # what rounding may have hidden
    return replace(state, tried_rounding=max(tried, default=0.0))


def _note_best(state: State, ends: F64, steps: F64, objectives: F64, errors: F64) -> State:
    """Return the state with the step at which P is lowest as its best point, if P is lower there; errors: of P."""
    k, last = int(np.argmin(objectives)), len(steps) - 1
    k = last if float(objectives[last]) <= float(objectives[k]) + float(errors[k]) else k
    if not float(objectives[k]) < state.objective:
        return state
    w = ends[1] if k == last else ends[0] + steps[k] * (ends[1] - ends[0])
    return replace(state, best_w=w, objective=float(objectives[k]), objective_rounding=float(errors[k]))


def _shrink_width(state: State, totals: Totals, allowed: float) -> State:
    """Return the state with a smaller width if the smoothing takes more than is allowed, and more than the step will.

    What it takes falls with the square of the width. The first width is the mean distance from the kinks.
    """
    taken, step = totals.slack - float(totals.excess[-1]), (state.reach / NEXT_REACH) ** 2 / 2
    if state.width == 0.0 and totals.slopes > 0.0:
        return replace(state, width=float(totals.losses[-1]) / totals.slopes)
    if taken > allowed:
        share = max(0.9 * float(np.sqrt(allowed / taken)), CAUTION * step / totals.slack)
        return replace(state, width=state.width * min(1.0, max(state.pace, share)))
    return state


def _add_tails(H: F64, tail: F64) -> F64:
    """Return H for a step, with its diagonal raised where few of a feature's rows are near their kinks.

    Without curvature a step would leave all kinks behind; where many rows are near, the tails are less than that of H.
    """
    raised: F64 = H + np.diag(np.maximum(0.0, tail - np.diagonal(H)))
    return raised


def aim(state: State, point: Point, H: F64) -> tuple[State, float]:
    """Return the state with Newton's step from a point, and by how much the step is expected to lower P.

    The state has the ball as well in which the end of the step is expected to be.
    """
    M, factor = factorise(H + np.eye(len(H)))
    if factor is None:
        return replace(state, next_w=point.w - point.gradient, reach=0.0), float("inf")
    step = -cho_solve((factor, False), point.gradient)
    A = solve_triangular(factor, np.eye(len(M))).T
    length = float(np.sqrt(max(0.0, float(step @ M @ step))))
    reach = max(NEXT_REACH * length, ROUNDINGS * point.error_in_ball)
    return replace(state, next_w=point.w + step, A=np.ascontiguousarray(A), reach=reach), length**2 / 2
