"""Linear SVM by a constraint-reduced primal-dual interior-point method: Jung, O'Leary & Tits 2008 (CRSVM), Algorithm 1.

    P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (w.x_i + b))       the bias is free and unpenalised

A step is Mehrotra's predictor and corrector. Its row-wise part, with omega, r_Omega and the shares t = alpha / C and
r = u / C of the multipliers, is in interior_point.steps. What is left are d equations for dw, with sums over all rows:

    M dw = -(r_w + X'Y W r_Omega) - ybar (y'alpha - y'W r_Omega) / q,   W = diag(C / omega), ybar = X'W e, q = e'W e
    M = I + X_Q' W_Q X_Q - ybar_Q ybar_Q' / q_Q,   r_w = w - X'Y alpha                                      (3.17, 3.23)

Q is the set of the few rows that matter (`constraint_reduction`). f = X w, s, t, xi and r stay where the rows are read
(`row_numbers`). An iteration makes two passes over the rows:

    predict    finds X dw of the predictor and of pure centering, and X'Y W (ds dt / t - dxi dr / r), the corrector's
               own part. sigma is known only afterwards; it enters the corrector's right-hand side linearly.
    assemble   finds X dw of the corrector and X w of the new w, hence the new point, and the sums over Q and over all
               rows at the new point, with which the next iteration begins.

So the length of the step has to be known before `assemble`, while a single row may bound it. X dw is guessed for this
by projection on the products that are known (`step_length`). Where the step turns out to be too long, `assemble` is
repeated; this third pass is rare. Between them the driver asks for sums of the rows' numbers (`row_passes`), for which
no rows are read.

Every `assemble` proves a gap over all rows (interior_point.state).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
from scipy.linalg.blas import dtrmm

from streamsvm.methods.interior_point.constraint_reduction import Reduction, find_limits, find_most_light
from streamsvm.methods.interior_point.normal_equations import RightSide, Solution
from streamsvm.methods.interior_point.row_equations import Equations, choose_equations
from streamsvm.methods.interior_point.row_numbers import (
    ARRIVE,
    BEGIN,
    CORRECT,
    MOVE,
    PREDICT,
    Course,
    find_corrected,
    point_of,
)
from streamsvm.methods.interior_point.row_passes import Sample, Smallest, add_critical, aim, draw, find_smallest
from streamsvm.methods.interior_point.state import State, settle
from streamsvm.methods.interior_point.step_length import choose_length, count_critical, mend_length
from streamsvm.methods.interior_point.steps import Point, find_ratios, unwarned
from streamsvm.methods.interior_point.sums import (
    CENTERING,
    PREDICTOR,
    AssembledSums,
    PredictedSums,
    add_assembled,
    add_predicted,
    combine_assembled,
    combine_predicted,
    start_assembled,
    start_predicted,
)
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, I64
from streamsvm.requests import Scan, Solver, Step, Take, find_status

# After a step below SHORT_STEP, Q has all rows once. `growth` of Q is then, or if mu rose, four times as large; after a
# step of LONG_STEP or more it is half as large.
SHORT_STEP, LONG_STEP = 0.1, 0.5
MOST_GROWTH = 1e9
STUCK_STEPS = 15  # If the gap has not fallen for so many steps, rounding is the limit.
LEAST_CENTER, LOWER = 0.01, 0.5  # No step aims below this share of the allowed mu; each stuck step halves the share.
CENTERED = 0.5  # After STUCK_STEPS steps no step aims below this share of its mu.
SMALLEST_MU = 1e-250


@dataclass(frozen=True)
class InteriorPoint:
    """Settings. class_costs: C_i of the classes 0 and 1, before sample weights; tol: the relative gap to be proved."""

    class_costs: tuple[float, float]
    tol: float = 1e-3
    reduction: Reduction = field(default_factory=Reduction)
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    """A step that is to be made. dw, w: the change of w, and w after the step. limits: the largest keys of Q by class.

    guess (3,): the coefficients of a guess of X dw (row_passes.guess).
    """

    dw: F64
    w: F64
    course: Course
    limits: F64
    guess: F64


ALL_ROWS, NO_GUESS = np.full(2, np.inf), np.zeros(3)


def solve(settings: InteriorPoint, state: State) -> Solver:
    """Go on from a state; every `Step` carries the whole state, and a run that goes on from it has the same bits."""
    name = uuid4().hex  # of the numbers of the rows: a process may keep those of several runs
    if state.passes == 0:
        state = state.change(BEGIN, settings.class_costs)
        state, sums = yield from _assemble(settings, state, name, _stay(state, ALL_ROWS))
        of_rows = ("magnitudes", "total_cost", "positive_cost", "largest_cost", "counted_rows")
        state = replace(state, **{each: getattr(sums, each) for each in of_rows}).change(ARRIVE)
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
            limits = yield from _choose_rows(settings, state, name, Course(state.bias, 0.0, 0.0, 0.0, 0.0))
            state, sums = yield from _assemble(settings, state, name, _stay(state, limits))
        state = yield from settle(state.change(ARRIVE), name, sums, np.array(settings.class_costs), settings.tol)
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


def _stay(state: State, limits: F64) -> Plan:
    """Return a step of length 0, for a pass that only forms the sums of the current point."""
    course = Course(state.bias, 0.0, 0.0, 0.0, 0.0)
    return Plan(np.zeros(len(state.w)), state.w, course, limits, NO_GUESS)


def _assemble(
    settings: InteriorPoint, state: State, name: str, plan: Plan
) -> Generator[Scan, Any, tuple[State, AssembledSums]]:
    """Make the pass for the sums at the end of a step; in the first one, Q is q_U rows drawn at random.

    name: of the numbers of the rows. Returns the state with the products of the pass among these numbers.
    """
    state = state.change(CORRECT, vectors=np.stack((plan.dw, plan.w)))
    first, reduction, share = state.passes == 0, settings.reduction, 1.0
    if first and reduction.name != "none" and reduction.most_rows is not None:
        share = reduction.most_rows / state.n_rows
    shared = (plan.course, plan.limits, reduction.rule, (share, settings.seed), first)
    start = partial(start_assembled, len(state.w), find_most_light(reduction, state.n_rows))
    sums = yield Scan(start, add_assembled, combine_assembled, shared, states=(state.hold(name),))
    return state, sums


def _plan(
    settings: InteriorPoint, state: State, name: str, equations: Equations
) -> Generator[Scan | Take, Any, tuple[State, Plan | None]]:
    """Make the pass `predict` and choose the step; None if X dw is not finite.

    Returns the state with the products of the pass among the rows' numbers.
    """
    mu, mean = state.mu, state.mean_cost
    zero = RightSide(state.sums[PREDICTOR], float(state.ones[PREDICTOR]))
    center = RightSide(mean * state.sums[CENTERING], mean * float(state.ones[CENTERING]))
    predictor, centering = equations.predict(zero, center, mean)
    state = state.change(PREDICT, vectors=np.stack((predictor[0], centering[0])))
    held, start = state.hold(name), partial(start_predicted, len(state.w))
    shared = (state.bias, predictor[1], mu, mean)
    sums: PredictedSums = yield Scan(start, add_predicted, combine_predicted, shared, states=(held,))
    length = min(1.0, sums.shortest)
    complementarity = float((yield aim(held, state.bias, predictor[1], length))[0])
    sigma_mu = _find_center(settings, state, complementarity)
    course = Course(state.bias, predictor[1], mu, sigma_mu, mean)
    side = _add_sides(zero, RightSide(sums.second_order[0], sums.one), center, sigma_mu)
    plan = _correct(state, equations, predictor, centering, side, course)
    critical: Smallest = yield find_smallest(held, count_critical(state.n_rows), add_critical, plan.course, plan.guess)
    if not (critical.is_finite and np.isfinite(plan.guess).all()):
        return state, None
    rows, numbers = critical.by_row()
    known = compute_scores((yield Take(rows)).X, plan.dw[None, :])[:, 0]
    plan = _choose_length(state, plan, numbers, known)
    if plan.course.length < SHORT_STEP:
        return state, plan
    limits = yield from _choose_rows(settings, state, name, plan.course, plan.guess, rows, known)
    return state, replace(plan, limits=limits)


@unwarned
def _find_center(settings: InteriorPoint, state: State, complementarity: float) -> float:
    """Return sigma mu: Mehrotra's sigma = (mu after the predictor / mu)^3, and a least one."""
    after = complementarity / (2 * state.total_cost) if state.total_cost > 0 else 0.0
    share = after / state.mu if state.mu > 0 else 0.0
    return max(state.mu * share * share * share, _find_least_center(settings, state, state.mu))


def _add_sides(zero: RightSide, second: RightSide, center: RightSide, sigma_mu: float) -> RightSide:
    """Return the sums of r_Omega of the corrector: sigma enters linearly."""
    one = zero.one + second.one + sigma_mu * center.one
    return RightSide(zero.h + second.h + sigma_mu * center.h, one)


@unwarned
def _correct(
    state: State, equations: Equations, predictor: Solution, centering: Solution, side: RightSide, course: Course
) -> Plan:
    """Return the corrector's step, whose length is not known yet, with a guess of its X dw."""
    dw, bias_change = equations.solve(side, course)
    course = course._replace(bias_change=bias_change)
    known, basis = np.array([1.0, course.center, 0.0]), np.stack((predictor[0], centering[0], state.w), axis=1)
    mapped = dtrmm(1.0, equations.U, np.column_stack((basis, dw - basis @ known)))
    if not np.isfinite(mapped).all():
        return Plan(dw, state.w, course, ALL_ROWS, np.full(3, np.nan))
    rest = np.linalg.lstsq(mapped[:, :3], mapped[:, 3])[0]
    return Plan(dw, state.w, course, ALL_ROWS, known + rest)


def _find_least_center(settings: InteriorPoint, state: State, mu: float) -> float:
    """Return the mu below which no step aims: a share of the mu that the allowed gap leaves to each row.

    Mehrotra's steps may go round in a cycle far from the path (Cartis 2009, Appl. Numer. Math. 59). Where the gap has
    not fallen for STUCK_STEPS steps, they aim at a share of mu itself, which leads back to the path.
    """
    allowed = settings.tol * state.lower_bound / (2 * state.total_cost)
    centered = CENTERED * mu if state.stuck > STUCK_STEPS else 0.0
    return max(LEAST_CENTER * LOWER**state.stuck * allowed, centered, SMALLEST_MU)


@unwarned
def _choose_length(state: State, plan: Plan, numbers: F64, known: F64) -> Plan:
    """Return the plan with the length that the critical rows allow. known: their X dw."""
    ratios = find_ratios(point_of(numbers), find_corrected(numbers, plan.course, known))
    length = choose_length(ratios, state.n_rows)
    return replace(plan, w=state.w + length * plan.dw, course=plan.course._replace(length=length))


def _choose_rows(
    settings: InteriorPoint,
    state: State,
    name: str,
    course: Course,
    coefs: F64 = NO_GUESS,
    critical: I64 | None = None,
    known: F64 | None = None,
) -> Generator[Scan, Any, F64]:
    """Return the largest keys of Q by class at the point that is expected at the end of a course, from a sample."""
    rows, products = (np.empty(0, np.int64), np.empty(0)) if critical is None or known is None else (critical, known)
    sample: Sample = yield draw(state.hold(name), state.n_rows, course, coefs, rows, products)
    *point, y, costs = np.ascontiguousarray(np.concatenate(sample.parts, axis=1))
    share = len(y) / state.n_rows
    reduction, bias = settings.reduction, course.bias + course.length * course.bias_change
    if reduction.most_rows is not None:
        reduction = replace(reduction, most_rows=int(np.ceil(share * reduction.most_rows)))
    mu = sample.complementarity / (2 * state.total_cost) if state.total_cost > 0 else 0.0
    return find_limits(reduction, Point(*point), y, costs, bias, mu, state.growth, share * len(state.w))


@unwarned
def _move(state: State, plan: Plan, sums: AssembledSums) -> tuple[State, bool]:
    """Return the state at the end of a step, and whether the sums of `assemble` belong to it.

    They do not if the step was too long and had to be shortened.
    """
    length = mend_length(plan.course.length, sums.shortest)
    inside = length == plan.course.length
    rose = sums.complementarity > state.complementarity
    factor = 4.0 if length < SHORT_STEP or rose else 0.5 if length >= LONG_STEP else 1.0
    moved = replace(
        state.change(MOVE, plan.course._replace(length=length)),
        w=plan.w if inside else state.w + length * plan.dw,
        bias=state.bias + length * plan.course.bias_change,
        step_length=length,
        growth=float(np.clip(factor * state.growth, 1.0, MOST_GROWTH)),
        passes=state.passes + 1 + (not inside),
    )
    return moved, inside
