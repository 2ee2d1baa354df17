"""Newton's method for a smooth loss, with a proof by the curvature of all rows: mostly two reads of the data.

    P(w) = 1/2 |w|^2 + sum_i l_i(w.x_i)               bias: a constant feature, penalised

A pass at w brings P, its gradient and its Hessian over all rows (newton.sums), from which follow a lower bound of P's
minimum (newton.bounds) and the next point, w - Hessian^-1 gradient. The first point is the minimiser of a sample of the
rows, found by the same steps in memory. Near the minimiser each step squares the distance, and the bound by the
curvature is as near to the minimum as the step is good.

A pass also finds P at points on the line from the base, the point that the step began at. If P is not lower at w, the
method goes on from the lowest of them. The step's direction descends, so that there is one if the line is looked at
closely enough.

A loss with kinks is smoothed, with a width that shrinks until the smoothing takes a share of the tolerance
(numeric.smooth_loss). The steps descend on the smoothed P, and the bounds are those of a smooth function below P.

Sources: Keerthi & DeCoste 2005, "A modified finite Newton method for fast solution of large scale linear SVMs", JMLR 6
(squared hinge); Lin, Weng & Keerthi 2008, "Trust region Newton method for large-scale logistic regression", JMLR 9.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular

from streamsvm import interrupts
from streamsvm import requests as protocol
from streamsvm.methods.newton.bounds import Point, bound_by_gradient, bound_in_ball, make_point, measure_line
from streamsvm.methods.newton.sums import Look, Totals, add_totals, combine_totals, start_totals, sum_rows
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.row_norms import RowNorm, measure_rows
from streamsvm.numeric.rows import F64, I64, Rows, compute_scores
from streamsvm.numeric.samples import draw_sample, find_first_rows, pick_rows, weigh_rows
from streamsvm.numeric.smooth_loss import KinkedLoss, SmoothLoss
from streamsvm.requests import Progress, Scan, Solver, Step, Take

SAMPLE_SHARE = 0.1  # of the relative gap that is asked for: the last step on the sample may lower P by so much
KINKED_SHARE = 1e-5  # the same if all rows are in memory and there are kinks: near the end, a step finds the minimiser
FEW = 16  # one row of the sample in so many is enough for the first steps
FEW_TOL = 1e-2
FEW_STEPS = (0.02, 0.1, 0.3, 0.6, 1.0)  # where P is found on a step in memory, where another step takes no read
ROWS_A_FEATURE = 10  # with fewer rows a feature a sample's minimiser is too far away
SAMPLE_STEPS = 100  # of Newton's method in memory, at most
FIRST_REACH = 3.0  # times the expected distance to the minimiser: the radius of the ball in the first pass
NEXT_REACH = 0.2  # times the step that has been made: its error is much smaller near the minimiser
RIDGES = (0.0, 1e-14, 1e-12, 1e-9, 1e-6)  # shares of a matrix's diagonal that are added to it, the least that helps
LEAST_MOVE = 1e-12  # relative: P and D that move by less may be rounding
SMOOTH_SHARE = 0.3  # of the relative gap that is asked for: what the smoothing of kinks may take
FIRST_PACE = 0.03  # the share to which the width shrinks at a time
SLOW_PACE = 0.5  # the same after a step on whose line P was nowhere lower
CAUTION = 5.0  # times the expected error of a step, as a share of the width
STUCK_STEPS = 10  # If neither P nor D has moved for so many steps, rounding is the limit.


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
    which it may shrink at a time; resident: the numbers of the sample's rows, of which none are left after the first
    pass; A (d+1, d+1) and reach: the ball of the next pass, empty and 0 if there is none; n_rows: how many rows there
    are; objective: P at the best point; lower_bound: the best one so far; passes: how many there were; stuck: for how
    many passes neither has moved. objective_rounding, bound_rounding and tried_rounding bound the rounding of P, of the
    lower bound, and of one that rounding has made useless.
    """

    best_w: F64
    next_w: F64
    base_w: F64
    resident: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    A: F64 = field(default_factory=lambda: np.empty((0, 0)))
    reach: float = 0.0
    width: float = 0.0
    pace: float = FIRST_PACE
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


def start_state(settings: Newton, n_rows: int, n_features: int, is_shuffled: bool = False) -> State:
    """Return the state before the first pass: w = 0, and a sample, which is the first rows if these are shuffled."""
    none = np.zeros(n_features + 1)
    rows = draw_sample(settings.resident_rows, n_rows, settings.seed, is_shuffled)
    return State(best_w=none, next_w=none, base_w=none, resident=rows, n_rows=n_rows)


def warm_state(settings: Newton, before: State, factor: float) -> State:  # noqa: ARG001
    """Return the state to start from, given the last state of the problem whose costs are `factor` times smaller."""
    best = before.best_w
    return State(best_w=best, next_w=best, base_w=best, width=before.width, n_rows=before.n_rows)


def solve(settings: Newton, state: State) -> Solver:
    """Go on from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    while True:
        before, held, look = state, None, make_look(settings, state)
        if len(state.resident):
            sample = yield Take(state.resident)
            held = find_first_rows(sample, state.resident)
            state = _minimise_sample(settings, state, sample)
            look = make_look(settings, state)
            del sample
        ends = np.stack((state.base_w if before.passes else state.next_w, state.next_w))
        start = partial(start_totals, len(state.best_w) - 1)
        totals = yield Scan(start, add_totals, combine_totals, (ends, look), scored=0, held=held)
        state = take_step(state, look, ends, totals, SMOOTH_SHARE * settings.tol)
        lower = state.objective < before.objective * (1.0 - LEAST_MOVE)
        moved = lower or state.lower_bound > before.lower_bound * (1.0 + LEAST_MOVE)
        state = replace(state, passes=before.passes + 1, stuck=0 if moved else before.stuck + 1)
        yield Step(state, state.progress, protocol.find_status(state.progress, settings.tol, state.stuck, STUCK_STEPS))


def make_look(settings: Newton, state: State) -> Look:
    """Return what the next pass looks for."""
    norm = RowNorm(state.A if len(state.A) else np.eye(len(state.best_w)))
    loss = settings.loss.sharpen(state.width) if isinstance(settings.loss, KinkedLoss) else settings.loss
    return Look(loss, settings.bias_feature, norm, state.reach if len(state.A) else 0.0)


def take_step(state: State, look: Look, ends: F64, totals: Totals, smooth_share: float) -> State:
    """Return the state with what a pass has found: P and its lower bound, and the next point.

    smooth_share: the share of P that the smoothing of kinks may take.
    """
    point, least = make_point(ends[1], totals, state.n_rows), totals.least.finish()
    state = _raise_bound(state, look, point, totals.slack, least)
    steps = np.array(look.steps)
    values, errors = measure_line(ends, steps, totals, state.n_rows)
    state = _note_best(state, ends, steps, values - totals.excess, errors)
    k, is_known = int(np.argmin(values)), bool(np.all(ends[0] == ends[1]))
    if is_known or (point.objective < state.value and point.objective <= float(values[k]) + float(errors[k])):
        state = aim(replace(state, base_w=ends[1], value=point.objective), point, least + totals.rest.finish())
        return _shrink_width(state, totals, smooth_share * state.objective)
    lowest = ends[0] + steps[k] * (ends[1] - ends[0])
    if float(values[k]) < state.value:  # the next pass finds the gradient there
        return replace(state, base_w=lowest, value=float(values[k]), next_w=lowest, reach=0.0)
    if state.width > 0.0:  # the step has left the curvature that it was found with: smooth more, and shrink less
        pace = max(state.pace, SLOW_PACE)
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
    return replace(state, tried_rounding=rounding if value > state.lower_bound else 0.0)


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


def aim(state: State, point: Point, H: F64) -> State:
    """Return the state with Newton's step from a point, and the ball in which its end is expected to be."""
    M, factor = factorise(H + np.eye(len(H)))
    if factor is None:
        return replace(state, next_w=point.w - point.gradient, reach=0.0)
    step = -cho_solve((factor, False), point.gradient)
    A = solve_triangular(factor, np.eye(len(M))).T
    length = float(np.sqrt(max(0.0, float(step @ M @ step))))
    return replace(state, next_w=point.w + step, A=np.ascontiguousarray(A), reach=NEXT_REACH * length)


def factorise(M: F64) -> tuple[F64, F64 | None]:
    """Return a matrix and its upper Cholesky factor, which is None if it overflows.

    If rounding has made the matrix singular, its diagonal is raised by the least share of RIDGES that mends it. Without
    the large curvature of the losses a step would be too long by as many orders of magnitude.
    """
    for ridge in RIDGES:
        raised = M + np.diag(ridge * np.diagonal(M))
        try:
            return raised, cholesky(raised, lower=False)
        except (LinAlgError, ValueError):
            continue
    return M, None


def _minimise(settings: Newton, state: State, rows: Rows, tol: float, share: float = SAMPLE_SHARE) -> State:
    """Return the state after Newton's method on rows in memory, whose last step may lower P by `share` tol P at most."""
    for _ in range(SAMPLE_STEPS):
        interrupts.check()
        look, width = replace(make_look(settings, state), reach=0.0, steps=FEW_STEPS), state.width
        ends = np.stack((state.base_w, state.next_w))
        state = take_step(state, look, ends, sum_rows(rows, ends, look), SMOOTH_SHARE * tol)
        is_near = state.reach > 0.0 and (state.reach / NEXT_REACH) ** 2 / 2 <= share * tol * state.objective
        if is_near and state.width == width:
            break
    return state


def _minimise_sample(settings: Newton, state: State, sample: Rows) -> State:
    """Return the state with the sample's minimiser as the next point, and the ball in which P's minimiser is expected.

    Each row of the sample stands for n / m rows. At the sample's minimiser the gradient of P is that of the other rows,
    and has the variance of a sum over m rows that were drawn.
    """
    rows = weigh_rows(sample, state.n_rows / sample.n_rows)
    own, few = replace(state, resident=state.resident[:0]), np.arange(0, sample.n_rows, FEW)
    if len(few) >= ROWS_A_FEATURE * len(own.best_w):
        fewer = weigh_rows(pick_rows(rows, few), FEW)
        own = _minimise(settings, own, fewer, FEW_TOL)
        own = replace(own, base_w=own.next_w, objective=float("inf"), value=float("inf"), lower_bound=0.0)
    tol, share = settings.tol, SAMPLE_SHARE
    if isinstance(settings.loss, KinkedLoss):
        if sample.n_rows < state.n_rows:
            tol = max(tol, len(own.best_w) / sample.n_rows)  # no nearer than the minimiser of all rows is
        else:
            share = KINKED_SHARE
    own = _minimise(settings, own, rows, tol, share)
    scores = compute_scores(rows.X, own.next_w[None, :-1])[:, 0] + settings.bias_feature * own.next_w[-1]
    lengths = measure_rows(make_look(settings, own).norm, rows, settings.bias_feature)[0]
    slopes = make_look(settings, own).loss.measure(rows, scores)[1]
    variance = float(np.sum((slopes * lengths) ** 2))
    others = max(0.0, 1.0 - sample.n_rows / state.n_rows)
    distance = float(np.sqrt(variance * others))
    reach = FIRST_REACH * distance + own.reach
    return replace(state, resident=own.resident, next_w=own.next_w, A=own.A, reach=reach, width=own.width)
