"""Linear SVM by a constraint-reduced primal-dual interior-point method: Jung, O'Leary & Tits 2008 (CRSVM), Algorithm 1.

    P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (w.x_i + b))       the bias is free and unpenalised

Mehrotra's predictor and corrector; the row-wise part, in the shares t = alpha / C and r = u / C, is in
numeric.interior_point. What is left are d equations for dw, with omega as there and sums over all rows,

    M dw = -(r_w + X'Y W r_Omega) - ybar (y'alpha - y'W r_Omega) / q,   W = diag(C / omega), ybar = X'W e, q = e'W e
    M = I + X_Q' W_Q X_Q - ybar_Q ybar_Q' / q_Q,   r_w = w - X'Y alpha                                      (3.17, 3.23)

where Q are the few rows that matter (numeric.constraint_reduction). The driver holds f = X w, s, t, xi and r of all
rows. An iteration makes two passes:

    predict    X dw of the predictor and of pure centering; X'Y W (ds dt / t - dxi dr / r), the corrector's own part.
               sigma is known after it only, and enters the corrector's right-hand side linearly.
    assemble   X dw of the corrector, hence the new point; of that, sums over Q and over all rows, with which the next
               iteration begins.
So the length of the step has to be known before `assemble`, while a single row may bound it: numeric.step_length.
X dw is guessed for it by projection on what is known. Where the step turns out to be too long, `assemble` is
repeated: a third pass, which is rare.
Every pass proves a gap over all rows: P at the best bias for w, and D at a feasible multiple of alpha.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.linalg.blas import dtrmm

from streamsvm.numeric.certificates import find_best_bias
from streamsvm.numeric.constraint_reduction import Reduction, find_limits
from streamsvm.numeric.interior_point import (
    Direction,
    Point,
    Targets,
    aim_at_center,
    aim_at_zero,
    find_direction,
    find_ratios,
    measure_complementarity,
    measure_residual,
    move,
    move_inside,
)
from streamsvm.numeric.interior_sums import (
    AssembledSums,
    PredictedSums,
    add_assembled,
    add_predicted,
    combine_assembled,
    combine_predicted,
    find_lower_bound,
    gather,
    start_assembled,
    start_predicted,
)
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.normal_equations import NormalEquations, Solution
from streamsvm.numeric.rows import F64, I64, compute_scores
from streamsvm.numeric.step_length import choose_length, find_smallest, mend_length
from streamsvm.solvers.protocol import Progress, Scan, Solver, Step, Take

SHORT_STEP, LONG_STEP = 0.1, 0.5  # all rows in Q after a short one, then, or if mu rose, four times as many; long: half
MOST_STEPS = 200
MOST_GROWTH = 1e9
STUCK_STEPS = 15  # neither bound has moved for so many steps: rounding is the limit


@dataclass(frozen=True)
class InteriorPoint:
    """Settings. class_costs: (2,) C_i of the classes coded 0 and 1, before sample weights; tol: relative gap."""

    class_costs: tuple[float, float]
    tol: float = 1e-3
    reduction: Reduction = field(default_factory=Reduction)
    seed: int = 0


@dataclass
class State:
    """All that changes. f, s, t, xi, r, y, costs: (n,); sums of the last pass at this point: see AssembledSums."""

    f: F64
    s: F64
    t: F64
    xi: F64
    r: F64
    w: F64
    best_w: F64
    gram: F64
    sums: F64
    y: F64 = field(default_factory=lambda: np.empty(0))
    costs: F64 = field(default_factory=lambda: np.empty(0))
    bias: float = 0.0
    best_bias: float = 0.0
    chosen_weight: float = 0.0
    chosen_rows: int = 0
    step_length: float = 0.0
    largest: float = 0.0
    growth: float = 1.0
    objective: float = float("inf")
    lower_bound: float = 0.0
    passes: int = 0
    steps: int = 0
    stuck: int = 0
    shapes: ClassVar = {"f": ("n",), "y": ("n",), "costs": ("n",), "w": ("d",), "gram": ("d", "d"), "sums": ("6", "d")}

    @property
    def point(self) -> Point:
        """The rows' part."""
        return Point(self.f, self.s, self.t, self.xi, self.r)

    @property
    def progress(self) -> Progress:
        """What is proved."""
        return Progress(self.objective, self.lower_bound, self.passes)


@dataclass(frozen=True)
class Plan:
    """A step that is to be made: direction of w and b, targets of the rows, its length, largest keys of Q by class."""

    dw: F64
    bias_change: float
    targets: Targets
    length: float
    limits: F64


def start_state(n_rows: int, n_features: int) -> State:
    """Return w = 0, s = xi = 2 as in the paper, and t = r = 1: multipliers within their bounds."""
    two, one, none = np.full(n_rows, 2.0), np.ones(n_rows), np.zeros(n_features)
    return State(np.zeros(n_rows), two, one, two, one, none, none, np.zeros((0, 0)), np.zeros((0, 0)))


def solve(settings: InteriorPoint, state: State) -> Solver:
    """Go on from a state; every `Step` carries the whole state, from which `solve` goes on to the same bits."""
    costs, start = np.array(settings.class_costs), partial(start_assembled, len(state.w))
    if state.passes == 0:
        sums = yield _assemble(settings, state, _stay(state, np.full(2, np.inf)), start)
        y, row_costs = read_labels(costs, gather(sums.tiles, 2), gather(sums.tiles, 3))
        state = _settle(replace(state, y=y, costs=row_costs, largest=sums.largest), sums)
        yield _make_step(settings, state)
    while True:
        try:
            equations = _make_equations(state)
        except FloatingPointError:
            yield Step(state, state.progress, "stalled", {"cholesky_failed": 1.0})
            return
        predictor, center = equations.predict(state.sums[1], state.sums[2])
        mu = measure_complementarity(state.point, state.costs)
        shared = (costs, np.stack((predictor[0], center[0])), np.array([state.bias, predictor[1]]), mu)
        scan = Scan(partial(start_predicted, len(state.w)), add_predicted, combine_predicted, shared, state.point)
        plan, guess = _correct(state, equations, predictor, center, mu, (yield scan))
        critical = _find_critical(state, plan, guess)
        guess[critical] = compute_scores((yield Take(critical)).X, plan.dw[None, :])[:, 0]
        plan = _choose_length(settings, state, plan, guess, critical)
        sums = yield _assemble(settings, state, plan, start)
        moved, inside = _move(state, plan, gather(sums.tiles, 1))
        if not inside:
            limits = _find_limits(settings, moved, moved.point, moved.bias)
            sums = yield _assemble(settings, moved, _stay(moved, limits), start)
        state = _settle(moved, sums)
        yield _make_step(settings, state, equations.jitter)


def _make_equations(state: State) -> NormalEquations:
    return NormalEquations(
        state.gram, state.sums[5], state.chosen_weight, state.sums[0], _miss_w(state), state.point, state.y,
        state.costs, state.bias,
    )  # fmt: skip


def _make_step(settings: InteriorPoint, state: State, jitter: float = 0.0) -> Step:
    progress, status = state.progress, None
    if progress.objective - state.lower_bound <= settings.tol * progress.objective:
        status = "converged"
    elif state.stuck >= STUCK_STEPS or state.steps >= MOST_STEPS:
        status = "stalled"
    figures = {
        "mu": float(state.costs @ (state.s * state.t + state.xi * state.r)) / (2 * len(state.costs)),
        "residual": _measure_residual(state) / max(state.largest, float(np.max(state.costs)), 1.0),
        "chosen_rows": float(state.chosen_rows),
        "step_length": state.step_length,
        "jitter": jitter,
    }
    return Step(state, progress, status, figures)


def _miss_w(state: State) -> F64:
    """Return r_w."""
    missed: F64 = state.w - (state.sums[3] - state.sums[4])
    return missed


def _measure_residual(state: State) -> float:
    rows = measure_residual(state.point, state.y, state.costs, state.bias)
    return max(rows, float(np.max(np.abs(_miss_w(state)), initial=0.0)))


def _stay(state: State, limits: F64) -> Plan:
    """Return the step that makes none."""
    none = np.zeros(len(state.s))
    return Plan(np.zeros(len(state.w)), 0.0, Targets(none, none), 0.0, limits)


def _assemble(settings: InteriorPoint, state: State, plan: Plan, start: Callable[[], AssembledSums]) -> Scan:
    """Ask for the sums at the end of a step; the first time over q_U rows drawn at random."""
    first, most = state.passes == 0, settings.reduction.most_rows or len(state.s)
    allowed = np.ones(len(state.s), dtype=bool)
    if first and settings.reduction.name != "none":
        allowed[np.random.default_rng(settings.seed).permutation(len(allowed))[most:]] = False
    biases = np.array([state.bias, plan.bias_change])
    shared = (np.array(settings.class_costs), plan.dw, biases, plan.length, plan.limits, settings.reduction.rule, first)
    return Scan(start, add_assembled, combine_assembled, shared, (*state.point, *plan.targets, allowed))


def _correct(
    state: State, equations: NormalEquations, predictor: Solution, center: Solution, mu: float, sums: PredictedSums
) -> tuple[Plan, F64]:
    """Return the corrector's step, its length not known yet, and a guess of X dw."""
    products, point = np.asfortranarray(gather(sums.tiles, 1)), state.point
    zero, rows = aim_at_zero(point), (state.y, state.costs, state.bias)
    predicted = find_direction(point, *rows, zero, products[:, 0], predictor[1])
    length = min(1.0, float(np.min(find_ratios(point, predicted))))
    sigma_mu = mu * (measure_complementarity(move(point, predicted, length), state.costs) / mu) ** 3
    targets = aim_at_center(point, predicted, mu, sigma_mu)
    h = state.sums[1] + sums.second_order[0] + sigma_mu * state.sums[2]
    dw, bias_change = equations.solve(h, targets)
    known, basis = np.array([1.0, sigma_mu, 0.0]), np.stack((predictor[0], center[0], state.w), axis=1)
    mapped = dtrmm(1.0, equations.U, np.column_stack((basis, dw - basis @ known)))
    rest = np.linalg.lstsq(mapped[:, :3], mapped[:, 3])[0]
    guess = np.column_stack((products, state.f)) @ (known + rest)
    return Plan(dw, bias_change, targets, 0.0, np.full(2, np.inf)), guess


def _direct(state: State, plan: Plan, df: F64) -> Direction:
    rows = (state.point, state.y, state.costs, state.bias)
    direction: Direction = find_direction(*rows, plan.targets, df, plan.bias_change)
    return direction


def _find_critical(state: State, plan: Plan, guess: F64) -> I64:
    """Return the rows that would bound the step the most, ascending."""
    return find_smallest(find_ratios(state.point, _direct(state, plan, guess)))


def _choose_length(settings: InteriorPoint, state: State, plan: Plan, guess: F64, critical: I64) -> Plan:
    """Return the plan with the length that the critical rows allow, and Q by where all rows are expected then."""
    direction = _direct(state, plan, guess)
    length = choose_length(find_ratios(state.point, direction)[critical], len(guess))
    expected = move_inside(state.point, direction, length)
    bias = state.bias + length * plan.bias_change
    limits = np.full(2, np.inf)
    if length >= SHORT_STEP:
        limits = _find_limits(settings, state, expected, bias)
    return replace(plan, length=length, limits=limits)


def _find_limits(settings: InteriorPoint, state: State, point: Point, bias: float) -> F64:
    mu = measure_complementarity(point, state.costs)
    return find_limits(settings.reduction, point, state.y, state.costs, bias, mu, state.growth, len(state.w))


def _move(state: State, plan: Plan, df: F64) -> tuple[State, bool]:
    """Return the state at the end of a step, and whether it is where the sums were made: not if that is outside."""
    direction = _direct(state, plan, df)
    length = mend_length(plan.length, find_ratios(state.point, direction))
    inside = length == plan.length
    point = move_inside(state.point, direction, length)
    rose = measure_complementarity(point, state.costs) > measure_complementarity(state.point, state.costs)
    factor = 4.0 if length < SHORT_STEP or rose else 0.5 if length >= LONG_STEP else 1.0
    moved = replace(
        state, **point._asdict(), w=state.w + length * plan.dw, bias=state.bias + length * plan.bias_change,
        step_length=length, growth=float(np.clip(factor * state.growth, 1.0, MOST_GROWTH)),
        passes=state.passes + 1 + (not inside),
    )  # fmt: skip
    return moved, inside


def _settle(state: State, sums: AssembledSums) -> State:
    """Return the state with the sums of its point, and what they prove."""
    best_bias = find_best_bias(state.y, state.costs, state.f)
    losses = np.maximum(0.0, 1.0 - state.y * (state.f + best_bias))
    objective = float(state.w @ state.w) / 2 + float(state.costs @ losses)
    lower_bound = find_lower_bound(sums.sums, state.y, state.costs * state.t, max(1.0, float(np.max(state.t))))
    better = objective < state.objective
    rises = better or lower_bound > state.lower_bound * (1 + 1e-12)
    lowest = objective if better else state.objective
    return replace(
        state, gram=sums.gram.finish(), sums=sums.sums, chosen_weight=sums.chosen_weight,
        chosen_rows=sums.chosen_rows, best_w=state.w if better else state.best_w,
        best_bias=best_bias if better else state.best_bias, objective=lowest,
        lower_bound=min(max(state.lower_bound, lower_bound), lowest), passes=state.passes + 1, steps=state.steps + 1,
        stuck=0 if rises else state.stuck + 1,
    )  # fmt: skip
