"""Linear SVM by a constraint-reduced primal-dual interior-point method: Jung, O'Leary & Tits 2008 (CRSVM), Algorithm 1.

    P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (w.x_i + b))       the bias is free and unpenalised

A step is Mehrotra's predictor and corrector. Its row-wise part is in interior_point.steps, which defines omega,
r_Omega and the shares t = alpha / C and r = u / C of the multipliers. What remains are d equations for dw, whose
coefficients are sums over all rows:

    M dw = -(r_w + X'Y W r_Omega) - ybar (y'alpha - y'W r_Omega) / q,   W = diag(C / omega), ybar = X'W e, q = e'W e
    M = I + X_Q' W_Q X_Q - ybar_Q ybar_Q' / q_Q,   r_w = w - X'Y alpha                                      (3.17, 3.23)

Q is the set of the few rows that matter (interior_point.equations). The row states f = X w, s, t, xi and r stay where
the rows are read (interior_point.steps). An iteration makes two passes over the rows:

    predict    computes X dw of the predictor and of pure centering, and X'Y W (ds dt / t - dxi dr / r), the
               corrector's second-order part. sigma is known only after this pass, but the corrector's right-hand side
               is linear in sigma.
    assemble   computes X dw of the corrector and X w of the new w, and from them the new point. It then forms the sums
               over Q and over all rows at the new point, with which the next iteration begins.

Between the two passes the driver requests sums of row states (interior_point.passes), which read no rows. Every
`assemble` pass proves a gap over all rows (interior_point.state).

The step length is chosen before `assemble`. A single row may bound it:

    length = min(1, 0.995 min_i ratio_i),   ratio_i = the step at which a variable of row i becomes 0

This is the step rule of Algorithm 1. After `predict`, X dw is known except for the corrector's second-order part, which
is estimated by projection onto the known products. By this estimate, the rows with the smallest ratios are the critical
rows: one row in a hundred (at least 64, at most 2,048). They are fetched, and their X dw is computed exactly. The row
that bounds the step is nearly always one of them. If the step turns out to be too long, `assemble` is repeated; this
third pass is rare.

Often one or two rows bound the step far below the length that all other rows allow. So the step may pass over one row
in 3,000 if this makes it at most 1.2 times as long. These rows, and any that the estimate missed, move only 0.995 of
their own way to the boundary (steps.move_inside). This leaves residuals, which the next step reduces. (LETTER takes 29
iterations, and 33 if no row is passed over. Passing over ten times as many rows, or not limiting the length, keeps some
problems from converging.) If a missed row can move less than half of the step, the step is repeated with a length that
keeps all rows inside.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from operator import add
from typing import Any
from uuid import uuid4

import numpy as np
from scipy.linalg.blas import dtrmm

from streamsvm.numeric.rows import F64, I64, compute_scores
from streamsvm.passes import Requests, Scan, Step, Take, find_status
from streamsvm.solvers.interior_point import passes, steps
from streamsvm.solvers.interior_point.equations import Equations, Reduction, RightSide, Solution, choose_equations
from streamsvm.solvers.interior_point.passes import CENTERING, PREDICTOR, AssembledSums, PredictedSums, Sample, Smallest
from streamsvm.solvers.interior_point.state import State, settle
from streamsvm.solvers.interior_point.steps import BOUNDARY, Course, Point, unwarned

CRITICAL_SHARE, LEAST_CRITICAL_ROWS, MOST_CRITICAL_ROWS = 100, 64, 2048  # One row in CRITICAL_SHARE is critical.
PASSED_OVER_SHARE, MOST_BEYOND = 3000, 1.2  # One row in PASSED_OVER_SHARE may be passed over.
MOST_MISSED = 2.0  # A step longer than MOST_MISSED times the smallest ratio of all rows is repeated.
# After a step below SHORT_STEP, the next Q has all rows. `growth`, the factor by which Q is enlarged, is multiplied by
# 4 after such a step or if mu rose, and halved after a step of LONG_STEP or more.
SHORT_STEP, LONG_STEP = 0.1, 0.5
MOST_GROWTH = 1e9
STUCK_STEPS = 15  # If the gap has not fallen for this many steps, rounding probably hides further progress.
LEAST_CENTER, LOWER = 0.01, 0.5  # No step aims below LEAST_CENTER times the allowed mu; a stuck step halves this limit.
CENTERED = 0.5  # After STUCK_STEPS stuck steps, no step aims below this share of the current mu.
SMALLEST_MU = 1e-250
ALL_ROWS, NO_GUESS = np.full(2, np.inf), np.zeros(3)
NO_ROWS, NO_PRODUCTS = np.empty(0, np.int64), np.empty(0)


def count_critical(n_rows: int) -> int:
    """Return the number of critical rows, the rows with the smallest ratios (steps.find_ratios)."""
    return min(n_rows, max(LEAST_CRITICAL_ROWS, min(n_rows // CRITICAL_SHARE, MOST_CRITICAL_ROWS)))


def choose_length(ratios: F64, n_rows: int) -> float:
    """Return the step length, at most 1, that the ratios of the critical rows allow. n_rows: the number of all rows."""
    ordered = np.sort(ratios)
    passed_over = min(n_rows // PASSED_OVER_SHARE, len(ordered) - 1)
    return min(1.0, BOUNDARY * float(min(ordered[passed_over], MOST_BEYOND * ordered[0])))


def mend_length(length: float, longest: float) -> float:
    """Return `length` unless it far exceeds `longest`, the smallest ratio; else a length that keeps all rows inside."""
    return length if length <= MOST_MISSED * longest else min(1.0, BOUNDARY * longest)


@dataclass(frozen=True)
class InteriorPoint:
    """Settings of the method.

    class_costs (2,): C_i of classes 0 and 1, before sample weights. tol: the relative gap to prove. reduction: the
    choice of Q. seed: the seed of the random numbers.
    """

    class_costs: tuple[float, float]
    tol: float = 1e-3
    reduction: Reduction = field(default_factory=Reduction)
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    """A planned step.

    dw (d,): the change of w in a step of length 1. w (d,): w after the step. course: the scalars of the step. limits
    (2,): the largest key in Q, per class. guess (3,): the coefficients of an estimate of X dw (passes.guess).
    """

    dw: F64
    w: F64
    course: Course
    limits: F64
    guess: F64


for constant in (ALL_ROWS, NO_GUESS, NO_ROWS, NO_PRODUCTS):
    constant.flags.writeable = False  # Engines pass copies to compiled code.


def solve(settings: InteriorPoint, state: State) -> Requests:
    """Run from a state. Every `Step` carries the whole state; a run resumed from it gives the same bits."""
    name = uuid4().hex  # identifies this run's row states: a process may hold those of several runs
    if state.passes == 0:
        state = state.change(steps.BEGIN, settings.class_costs)
        state, sums = yield from _assemble(settings, state, name, _stay(state))
        of_rows = ("magnitudes", "total_cost", "positive_cost", "largest_cost", "counted_rows")
        state = replace(state, **{each: getattr(sums, each) for each in of_rows}).change(steps.ARRIVE)
        state = yield from settle(state, name, sums, np.array(settings.class_costs), settings.tol)
        yield _make_step(settings, state)
    while True:
        try:
            equations = yield from choose_equations(state, state.hold(name))
        except FloatingPointError:
            yield Step(state, state.progress, "stalled", {"cholesky_failed": 1.0})
            return
        state, plan = yield from _plan(settings, state, name, equations)
        if plan is None:
            yield _make_step(settings, replace(state, objective=float("nan")))
            return
        state, sums = yield from _assemble(settings, state, name, plan)
        state, inside = _move(state, plan, sums)
        if not inside:
            limits = yield from _choose_rows(settings, state, name, _stay(state))
            state, sums = yield from _assemble(settings, state, name, _stay(state, limits))
        state = yield from settle(state.change(steps.ARRIVE), name, sums, np.array(settings.class_costs), settings.tol)
        yield _make_step(settings, state, equations.jitter)


@unwarned
def _make_step(settings: InteriorPoint, state: State, jitter: float = 0.0) -> Step:
    status = find_status(state.progress, settings.tol, state.stuck, STUCK_STEPS)
    residual = max(state.residual, abs(state.r_b), float(np.max(np.abs(state.r_w), initial=0.0)))
    figures = {
        "mu": state.complementarity / (2 * state.n_rows),
        "residual": residual / max(float(np.max(state.magnitudes[1])), state.largest_cost, 1.0),
        "chosen_rows": float(state.chosen_rows),
        "step_length": state.step_length,
        "jitter": jitter,
    }
    return Step(state, state.progress, status, figures)


def _stay(state: State, limits: F64 = ALL_ROWS) -> Plan:
    """Return a step of length 0, for a pass that only forms the sums at the current point."""
    return Plan(np.zeros(len(state.w)), state.w, Course(state.bias), limits, NO_GUESS)


def _assemble(
    settings: InteriorPoint, state: State, name: str, plan: Plan
) -> Generator[Scan, Any, tuple[State, AssembledSums]]:
    """Run the pass `assemble` for a step; in the first pass, Q is q_U rows drawn at random.

    name: the name of the row states. The row states of the returned state include the products of this pass.
    """
    state = state.change(steps.CORRECT, vectors=np.stack((plan.dw, plan.w)))
    first, reduction, share = state.passes == 0, settings.reduction, 1.0
    if first and reduction.name != "none" and reduction.most_rows is not None:
        share = reduction.most_rows / state.n_rows
    shared = (plan.course, plan.limits, reduction.rule, (share, settings.seed), first)
    start = partial(passes.start_assembled, len(state.w), reduction.find_most_light(state.n_rows))
    held = (state.hold(name),)
    return state, (yield Scan(start, passes.add_assembled, add, shared, states=held))


def _plan(
    settings: InteriorPoint, state: State, name: str, equations: Equations
) -> Generator[Scan | Take, Any, tuple[State, Plan | None]]:
    """Run the pass `predict` and choose the step; the plan is None if X dw is not finite.

    The row states of the returned state include the products of this pass.
    """
    mu, mean = state.mu, state.total_cost / max(1, state.counted_rows)  # the mean of the positive costs
    zero = RightSide(state.sums[PREDICTOR], float(state.ones[PREDICTOR]))
    center = RightSide(mean * state.sums[CENTERING], mean * float(state.ones[CENTERING]))
    predictor, centering = equations.predict(zero, center, mean)
    state = state.change(steps.PREDICT, vectors=np.stack((predictor[0], centering[0])))
    held, start = state.hold(name), partial(passes.start_predicted, len(state.w))
    shared = (state.bias, predictor[1], mu, mean)
    sums: PredictedSums = yield Scan(start, passes.add_predicted, add, shared, states=(held,))
    about = state.bias, predictor[1], min(1.0, sums.shortest)
    complementarity = yield passes.scan_states(held, partial(np.zeros, 1), passes.add_aim, *about)
    sigma_mu = _find_center(settings, state, float(complementarity[0]))
    course = Course(state.bias, predictor[1], mu, sigma_mu, mean)
    # The corrector's sums of r_Omega are linear in sigma.
    h, one = zero.h + sums.second_order[0] + sigma_mu * center.h, zero.one + sums.one + sigma_mu * center.one
    plan = _correct(state, equations, predictor, centering, RightSide(h, one), course)
    most = partial(Smallest, count_critical(state.n_rows))
    critical: Smallest = yield passes.scan_states(held, most, passes.add_critical, plan.course, plan.guess)
    if not (critical.is_finite and np.isfinite(plan.guess).all()):
        return state, None
    rows, numbers = critical.by_row()
    known = compute_scores((yield Take(rows)).X, plan.dw[None, :])[:, 0]
    plan = _choose_length(state, plan, numbers, known)
    if plan.course.length < SHORT_STEP:
        return state, plan
    limits = yield from _choose_rows(settings, state, name, plan, rows, known)
    return state, replace(plan, limits=limits)


@unwarned
def _find_center(settings: InteriorPoint, state: State, complementarity: float) -> float:
    """Return sigma mu, with Mehrotra's sigma = (mu after the predictor / mu)^3 and a lower limit.

    complementarity: sum C (s t + xi r) after the predictor. The limit is a share of the mu at which the gap equals the
    requested gap. Mehrotra's steps may cycle far from the path (Cartis 2009, Appl. Numer. Math. 59). If the gap has not
    fallen for STUCK_STEPS steps, the limit is therefore a share of the current mu, so that the steps return to the
    path.
    """
    mu, allowed = state.mu, settings.tol * state.lower_bound / (2 * state.total_cost)
    after = complementarity / (2 * state.total_cost) if state.total_cost > 0 else 0.0
    share = after / mu if mu > 0 else 0.0
    centered = CENTERED * mu if state.stuck > STUCK_STEPS else 0.0
    least = max(LEAST_CENTER * LOWER**state.stuck * allowed, centered, SMALLEST_MU)
    return max(mu * share * share * share, least)


@unwarned
def _correct(
    state: State, equations: Equations, predictor: Solution, centering: Solution, side: RightSide, course: Course
) -> Plan:
    """Return the corrector's step, before its length is chosen, with the coefficients of an estimate of its X dw."""
    dw, bias_change = equations.solve(side, course)
    course = course._replace(bias_change=bias_change)
    known, basis = np.array([1.0, course.center, 0.0]), np.stack((predictor[0], centering[0], state.w), axis=1)
    mapped = dtrmm(1.0, equations.U, np.column_stack((basis, dw - basis @ known)))
    rest = np.linalg.lstsq(mapped[:, :3], mapped[:, 3])[0] if np.isfinite(mapped).all() else np.full(3, np.nan)
    return Plan(dw, state.w, course, ALL_ROWS, known + rest)


@unwarned
def _choose_length(state: State, plan: Plan, numbers: F64, known: F64) -> Plan:
    """Return the plan with the length that the critical rows allow.

    numbers, known: the states of the critical rows, and their X dw.
    """
    ratios = steps.find_ratios(steps.point_of(numbers), steps.find_corrected(numbers, plan.course, known))
    length = choose_length(ratios, state.n_rows)
    return replace(plan, w=state.w + length * plan.dw, course=plan.course._replace(length=length))


def _choose_rows(
    settings: InteriorPoint, state: State, name: str, plan: Plan, critical: I64 = NO_ROWS, known: F64 = NO_PRODUCTS
) -> Generator[Scan, Any, F64]:
    """Return the largest key in Q, per class, at the expected end of a step, estimated from a sample of rows."""
    course, reduction = plan.course, settings.reduction
    sample: Sample = yield passes.draw(state.hold(name), state.n_rows, course, plan.guess, critical, known)
    *point, y, costs = np.ascontiguousarray(np.concatenate(sample.parts, axis=1))
    share, bias = len(y) / state.n_rows, course.bias + course.length * course.bias_change
    if reduction.most_rows is not None:
        reduction = replace(reduction, most_rows=int(np.ceil(share * reduction.most_rows)))
    mu = sample.complementarity / (2 * state.total_cost) if state.total_cost > 0 else 0.0
    return reduction.find_limits(Point(*point), y, costs, bias, mu, state.growth, share * len(state.w))


@unwarned
def _move(state: State, plan: Plan, sums: AssembledSums) -> tuple[State, bool]:
    """Return the state at the end of a step, and whether the sums of `assemble` are valid there.

    The sums are invalid if the step was too long and had to be shortened.
    """
    length = mend_length(plan.course.length, sums.shortest)
    inside = length == plan.course.length
    rose = sums.complementarity > state.complementarity
    factor = 4.0 if length < SHORT_STEP or rose else 0.5 if length >= LONG_STEP else 1.0
    moved = replace(
        state.change(steps.MOVE, plan.course._replace(length=length)),
        w=plan.w if inside else state.w + length * plan.dw,
        bias=state.bias + length * plan.course.bias_change,
        step_length=length,
        growth=float(np.clip(factor * state.growth, 1.0, MOST_GROWTH)),
        passes=state.passes + 1 + (not inside),
    )
    return moved, inside
