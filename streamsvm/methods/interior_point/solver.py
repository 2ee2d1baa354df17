"""Linear SVM by a constraint-reduced primal-dual interior-point method: Jung, O'Leary & Tits 2008 (CRSVM), Algorithm 1.

    P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (w.x_i + b))       the bias is free and unpenalised

A step is Mehrotra's predictor and corrector. Its row-wise part, with omega, r_Omega and the shares t = alpha / C and
r = u / C of the multipliers, is in interior_point.steps. What is left are d equations for dw, with sums over all rows:

    M dw = -(r_w + X'Y W r_Omega) - ybar (y'alpha - y'W r_Omega) / q,   W = diag(C / omega), ybar = X'W e, q = e'W e
    M = I + X_Q' W_Q X_Q - ybar_Q ybar_Q' / q_Q,   r_w = w - X'Y alpha                                      (3.17, 3.23)

Q is the set of the few rows that matter (`constraint_reduction`). The driver holds f = X w, s, t, xi and r of all
rows. An iteration makes two passes:

    predict    finds X dw of the predictor and of pure centering, and X'Y W (ds dt / t - dxi dr / r), the corrector's
               own part. sigma is known only afterwards; it enters the corrector's right-hand side linearly.
    assemble   finds X dw of the corrector and X w of the new w, hence the new point, and the sums over Q and over all
               rows at the new point, with which the next iteration begins.

So the length of the step has to be known before `assemble`, while a single row may bound it. X dw is guessed for this
by projection on the products that are known (`step_length`). Where the step turns out to be too long, `assemble` is
repeated; this third pass is rare.

Every `assemble` proves a gap over all rows (interior_point.state).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from scipy.linalg.blas import dtrmm

from streamsvm.methods.interior_point.constraint_reduction import Reduction, find_limits, find_most_light
from streamsvm.methods.interior_point.normal_equations import Solution
from streamsvm.methods.interior_point.row_equations import Equations, choose_equations
from streamsvm.methods.interior_point.state import State, settle
from streamsvm.methods.interior_point.step_length import choose_length, find_smallest, mend_length
from streamsvm.methods.interior_point.steps import (
    Direction,
    Point,
    Targets,
    aim_at_center,
    aim_at_zero,
    find_direction,
    find_mean,
    find_ratios,
    find_scales,
    measure_complementarity,
    measure_residual,
    move,
    move_inside,
    unwarned,
)
from streamsvm.methods.interior_point.sums import (
    CENTERING,
    LABELS,
    MAPPED,
    PREDICTOR,
    SAMPLE_WEIGHTS,
    AssembledSums,
    PredictedSums,
    add_assembled,
    add_predicted,
    combine_assembled,
    combine_predicted,
    gather,
    start_assembled,
    start_predicted,
)
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, I64, compute_scores
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
    """A step that is to be made: the changes of w and b, and its length.

    w is the one after the step, targets are those of the rows, and limits are the largest keys of Q by class.
    """

    dw: F64
    w: F64
    bias_change: float
    targets: Targets
    length: float
    limits: F64


def solve(settings: InteriorPoint, state: State) -> Solver:
    """Go on from a state; every `Step` carries the whole state, and a run that goes on from it has the same bits."""
    costs, most_light = np.array(settings.class_costs), find_most_light(settings.reduction, len(state.s))
    start = partial(start_assembled, len(state.w), most_light)
    if state.passes == 0:
        sums = yield _assemble(settings, state, _stay(state, np.full(2, np.inf)), start)
        y, row_costs = read_labels(costs, gather(sums.tiles, LABELS), gather(sums.tiles, SAMPLE_WEIGHTS))
        state = replace(state, y=y, costs=row_costs, magnitudes=sums.magnitudes)
        state = yield from settle(state, sums, costs, settings.tol)
        yield _make_step(settings, state)
    while True:
        try:
            equations = yield from choose_equations(state)
        except FloatingPointError:
            yield Step(state, state.progress, "stalled", {"cholesky_failed": 1.0})
            return
        mean = find_mean(state.costs)
        predictor, center = equations.predict(
            state.sums[PREDICTOR], mean * state.sums[CENTERING], find_scales(state.costs, mean)
        )
        mu = measure_complementarity(state.point, state.costs)
        shared = (costs, np.stack((predictor[0], center[0])), np.array([state.bias, predictor[1]]), mu, mean)
        scan = Scan(partial(start_predicted, len(state.w)), add_predicted, combine_predicted, shared, state.point)
        plan, guess = _correct(settings, state, equations, predictor, center, mu, (yield scan))
        if not np.isfinite(guess).all():
            yield _make_step(settings, replace(state, objective=float("nan")))
            return
        direction = _direct(state, plan, guess)
        critical = find_smallest(find_ratios(state.point, direction))
        known = compute_scores((yield Take(critical)).X, plan.dw[None, :])[:, 0]
        plan = _choose_length(settings, state, plan, direction, critical, known)
        sums = yield _assemble(settings, state, plan, start)
        moved, inside = _move(state, plan, gather(sums.tiles, MAPPED))
        if not inside:
            limits = _find_limits(settings, moved, moved.point, moved.bias)
            sums = yield _assemble(settings, moved, _stay(moved, limits), start)
        state = yield from settle(moved, sums, costs, settings.tol)
        yield _make_step(settings, state, equations.jitter)


@unwarned
def _make_step(settings: InteriorPoint, state: State, jitter: float = 0.0) -> Step:
    status = find_status(state.progress, settings.tol, state.stuck, STUCK_STEPS)
    figures = {
        "mu": float(state.costs @ (state.s * state.t + state.xi * state.r)) / (2 * len(state.costs)),
        "residual": _measure_residual(state) / max(float(np.max(state.magnitudes[1])), float(np.max(state.costs)), 1.0),
        "chosen_rows": float(state.chosen_rows),
        "step_length": state.step_length,
        "jitter": jitter,
    }
    return Step(state, state.progress, status, figures)


def _measure_residual(state: State) -> float:
    rows = measure_residual(state.point, state.y, state.costs, state.bias)
    return max(rows, float(np.max(np.abs(state.r_w), initial=0.0)))


def _stay(state: State, limits: F64) -> Plan:
    """Return a step of length 0, for a pass that only forms the sums of the current point."""
    none = np.zeros(len(state.s))
    return Plan(np.zeros(len(state.w)), state.w, 0.0, Targets(none, none), 0.0, limits)


def _assemble(settings: InteriorPoint, state: State, plan: Plan, start: Callable[[], AssembledSums]) -> Scan:
    """Return the pass for the sums at the end of a step; in the first one, Q is q_U rows drawn at random."""
    first, most = state.passes == 0, settings.reduction.most_rows or len(state.s)
    allowed = np.ones(len(state.s), dtype=bool)
    if first and settings.reduction.name != "none":
        allowed[np.random.default_rng(settings.seed).permutation(len(allowed))[most:]] = False
    biases = np.array([state.bias, plan.bias_change])
    ends, rule = np.stack((plan.dw, plan.w)), settings.reduction.rule
    shared = (np.array(settings.class_costs), ends, biases, plan.length, plan.limits, rule, first)
    return Scan(start, add_assembled, combine_assembled, shared, (*state.point, *plan.targets, allowed))


@unwarned
def _correct(
    settings: InteriorPoint,
    state: State,
    equations: Equations,
    predictor: Solution,
    center: Solution,
    mu: float,
    sums: PredictedSums,
) -> tuple[Plan, F64]:
    """Return the corrector's step, whose length is not known yet, and a guess of its X dw, (n,)."""
    products, point = np.asfortranarray(gather(sums.tiles, MAPPED)), state.point
    zero, rows = aim_at_zero(point), (state.y, state.costs, state.bias)
    predicted = find_direction(point, *rows, zero, products[:, 0], predictor[1])
    length = min(1.0, float(np.min(find_ratios(point, predicted))))
    share = measure_complementarity(move(point, predicted, length), state.costs) / mu
    sigma_mu = max(mu * share * share * share, _find_least_center(settings, state, mu))
    mean = find_mean(state.costs)
    targets = aim_at_center(point, predicted, mu, sigma_mu, find_scales(state.costs, mean))
    h = state.sums[PREDICTOR] + sums.second_order[0] + sigma_mu * mean * state.sums[CENTERING]
    dw, bias_change = equations.solve(h, targets)
    known, basis = np.array([1.0, sigma_mu, 0.0]), np.stack((predictor[0], center[0], state.w), axis=1)
    mapped = dtrmm(1.0, equations.U, np.column_stack((basis, dw - basis @ known)))
    if not np.isfinite(mapped).all():
        return Plan(dw, state.w, bias_change, targets, 0.0, np.full(2, np.inf)), np.full(len(state.f), np.nan)
    rest = np.linalg.lstsq(mapped[:, :3], mapped[:, 3])[0]
    guess = np.column_stack((products, state.f)) @ (known + rest)
    return Plan(dw, state.w, bias_change, targets, 0.0, np.full(2, np.inf)), guess


def _find_least_center(settings: InteriorPoint, state: State, mu: float) -> float:
    """Return the mu below which no step aims: a share of the mu that the allowed gap leaves to each row.

    Mehrotra's steps may go round in a cycle far from the path (Cartis 2009, Appl. Numer. Math. 59). Where the gap has
    not fallen for STUCK_STEPS steps, they aim at a share of mu itself, which leads back to the path.
    """
    allowed = settings.tol * state.lower_bound / (2 * float(np.sum(state.costs)))
    centered = CENTERED * mu if state.stuck > STUCK_STEPS else 0.0
    return max(LEAST_CENTER * LOWER**state.stuck * allowed, centered, SMALLEST_MU)


@unwarned
def _direct(state: State, plan: Plan, df: F64) -> Direction:
    """Return the direction of the plan with this X dw, (n,)."""
    rows = (state.point, state.y, state.costs, state.bias)
    direction: Direction = find_direction(*rows, plan.targets, df, plan.bias_change)
    return direction


@unwarned
def _choose_length(
    settings: InteriorPoint, state: State, plan: Plan, direction: Direction, critical: I64, known: F64
) -> Plan:
    """Return the plan with the length that the critical rows allow, and Q chosen at the point expected there.

    direction: by the guess of X dw. known: X dw of the critical rows, with which their directions are put right.
    """
    point, targets = Point(*(part[critical] for part in state.point)), Targets(*(t[critical] for t in plan.targets))
    rows = (point, state.y[critical], state.costs[critical], state.bias)
    exact = find_direction(*rows, targets, known, plan.bias_change)
    for part, right in zip(direction, exact, strict=True):
        part[critical] = right
    length = choose_length(find_ratios(point, exact), len(state.f))
    expected = move_inside(state.point, direction, length)
    bias = state.bias + length * plan.bias_change
    limits = np.full(2, np.inf)
    if length >= SHORT_STEP:
        limits = _find_limits(settings, state, expected, bias)
    return replace(plan, w=state.w + length * plan.dw, length=length, limits=limits)


def _find_limits(settings: InteriorPoint, state: State, point: Point, bias: float) -> F64:
    mu = measure_complementarity(point, state.costs)
    return find_limits(settings.reduction, point, state.y, state.costs, bias, mu, state.growth, len(state.w))


@unwarned
def _move(state: State, plan: Plan, products: F64) -> tuple[State, bool]:
    """Return the state at the end of a step, and whether the sums of `assemble` belong to it.

    They do not if the step was too long and had to be shortened. products (n, 2): X dw, and X w at the plan's end.
    """
    direction = _direct(state, plan, products[:, 0].copy())
    length = mend_length(plan.length, find_ratios(state.point, direction))
    inside = length == plan.length
    point = move_inside(state.point, direction, length)
    point = point._replace(f=products[:, 1].copy()) if inside else point
    rose = measure_complementarity(point, state.costs) > measure_complementarity(state.point, state.costs)
    factor = 4.0 if length < SHORT_STEP or rose else 0.5 if length >= LONG_STEP else 1.0
    moved = replace(
        state,
        **point._asdict(),
        w=plan.w if inside else state.w + length * plan.dw,
        bias=state.bias + length * plan.bias_change,
        step_length=length,
        growth=float(np.clip(factor * state.growth, 1.0, MOST_GROWTH)),
        passes=state.passes + 1 + (not inside),
    )
    return moved, inside
