"""Newton's method for a smooth loss, with a proof by the curvature of all rows: mostly two reads of the data.

    P(w) = 1/2 |w|^2 + sum_i l_i(w.x_i)               bias: a constant feature, penalised

A pass at w brings P, its gradient and its Hessian over all rows (newton.sums), from which follow a lower bound of P's
minimum (newton.bounds) and the next point, w - Hessian^-1 gradient. The first point is the minimiser of a sample of the
rows, found by the same steps in memory. Near the minimiser each step squares the distance, and the bound by the
curvature is as near to the minimum as the step is good.

A pass also finds P at points on the line from the best point so far. If P is not lower at w, the method goes on from
the lowest of them. The step's direction descends, so that there is one if the line is looked at closely enough.

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
from streamsvm.numeric.row_norms import RowNorm, measure_rows
from streamsvm.numeric.rows import F64, I64, Rows, compute_scores, take_rows
from streamsvm.numeric.smooth_loss import SmoothLoss
from streamsvm.requests import Progress, Scan, Solver, Step, Take

SAMPLE_SHARE = 0.1  # of the relative gap that is asked for: the last step on the sample may lower P by so much
FEW = 16  # one row of the sample in so many is enough for the first steps
FEW_TOL = 1e-3
FEW_STEPS = (0.3, 1.0)  # where P is found on a step in memory, where another step takes no read
ROWS_A_FEATURE = 10  # with fewer rows a feature a sample's minimiser is too far away
SAMPLE_STEPS = 100  # of Newton's method in memory, at most
FIRST_REACH = 3.0  # times the expected distance to the minimiser: the radius of the ball in the first pass
NEXT_REACH = 0.2  # times the step that has been made: its error is much smaller near the minimiser
ROUNDINGS = 8.0  # times the error of the gradient: no ball is smaller, as the minimiser is not known better
RIDGES = (0.0, 1e-14, 1e-12, 1e-9, 1e-6)  # shares of a matrix's diagonal that are added to it, the least that helps
LEAST_MOVE = 1e-12  # relative: P and D that move by less may be rounding
HARDLY = 1e-8  # of P: where a step is expected to lower P by no more, only the bound is missing
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

    best_w: the point with the lowest P; next_w: where the next pass looks; resident: the numbers of the sample's rows,
    of which none are left after the first pass; A (d+1, d+1) and reach: the ball of the next pass, empty and 0 if there
    is none; the other fields are those of CutState of the cutting planes.
    """

    best_w: F64
    next_w: F64
    resident: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    A: F64 = field(default_factory=lambda: np.empty((0, 0)))
    reach: float = 0.0
    n_rows: int = 0
    objective: float = float("inf")
    lower_bound: float = 0.0
    passes: int = 0
    stuck: int = 0
    objective_rounding: float = 0.0
    bound_rounding: float = 0.0
    tried_rounding: float = 0.0
    shapes: ClassVar = {"best_w": ("d",), "next_w": ("d",), "resident": ("r",), "A": ("k", "k")}
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
    none, number = np.zeros(n_features + 1), min(settings.resident_rows, n_rows)
    if number == n_rows or is_shuffled:
        rows = np.arange(number)
    else:
        rows = np.unique(np.random.default_rng((settings.seed, 0)).integers(0, n_rows, number))
    return State(best_w=none, next_w=none, resident=rows, n_rows=n_rows)


def warm_state(settings: Newton, before: State, factor: float) -> State:  # noqa: ARG001
    """Return the state to start from, given the last state of the problem whose costs are `factor` times smaller."""
    return State(best_w=before.best_w, next_w=before.best_w, n_rows=before.n_rows)


def solve(settings: Newton, state: State) -> Solver:
    """Go on from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    while True:
        before, held, look = state, None, make_look(settings, state)
        if len(state.resident):
            sample = yield Take(state.resident)
            held = sample if state.resident[-1] == len(state.resident) - 1 else None
            state = _minimise_sample(settings, state, sample)
            look = make_look(settings, state)
            del sample
        ends = np.stack((state.best_w if before.passes else state.next_w, state.next_w))
        start = partial(start_totals, len(state.best_w) - 1)
        totals = yield Scan(start, add_totals, combine_totals, (ends, look), scored=0, held=held)
        state = take_step(state, look, ends, totals)
        lower = state.objective < before.objective * (1.0 - LEAST_MOVE)
        moved = lower or state.lower_bound > before.lower_bound * (1.0 + LEAST_MOVE)
        state = replace(state, passes=before.passes + 1, stuck=0 if moved else before.stuck + 1)
        yield Step(state, state.progress, protocol.find_status(state.progress, settings.tol, state.stuck, STUCK_STEPS))


def make_look(settings: Newton, state: State) -> Look:
    """Return what the next pass looks for."""
    norm = RowNorm(state.A if len(state.A) else np.eye(len(state.best_w)))
    return Look(settings.loss, settings.bias_feature, norm, state.reach if len(state.A) else 0.0)


def take_step(state: State, look: Look, ends: F64, totals: Totals) -> State:
    """Return the state with what a pass has found: P and its lower bound, and the next point."""
    point = make_point(ends[1], totals, look, state.n_rows)
    least = totals.least.finish()
    bounds = [bound_by_gradient(point), bound_in_ball(point, look, least, state.n_rows)]
    value, rounding = max(bounds, key=lambda bound: bound[0] - bound[1])
    if value - rounding > state.lower_bound:
        state = replace(state, lower_bound=value - rounding, bound_rounding=rounding)
    state = replace(state, tried_rounding=0.0)
    steps = np.array(look.steps)
    objectives, errors = measure_line(ends, steps, totals, state.n_rows)
    k, is_known = int(np.argmin(objectives)), bool(np.all(ends[0] == ends[1]))
    if is_known or (point.objective < state.objective and point.objective <= float(objectives[k]) + float(errors[k])):
        if point.objective < state.objective:  # at a known point it may be off by rounding alone
            state = replace(state, best_w=ends[1], objective=point.objective, objective_rounding=point.objective_error)
        state, decrease = aim(state, point, least + totals.rest.finish())
        is_lowest = decrease <= HARDLY * state.objective
        hidden = [error for bound, error in bounds if is_lowest and bound + error > state.lower_bound]  # by rounding
        return replace(state, tried_rounding=max(hidden, default=0.0))
    lowest = ends[0] + steps[k] * (ends[1] - ends[0])
    if float(objectives[k]) < state.objective:  # the next pass finds the gradient there
        found = replace(state, objective=float(objectives[k]), objective_rounding=float(errors[k]))
        return replace(found, best_w=lowest, next_w=lowest, reach=0.0)
    return replace(state, next_w=ends[0] + steps[0] * (ends[1] - ends[0]), reach=0.0)


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


def _minimise(settings: Newton, state: State, rows: Rows, tol: float) -> State:
    """Return the state after Newton's method on rows in memory, whose last step may lower P by tol P at most."""
    for _ in range(SAMPLE_STEPS):
        interrupts.check()
        look = replace(make_look(settings, state), reach=0.0, steps=FEW_STEPS)
        ends = np.stack((state.best_w, state.next_w))
        state = take_step(state, look, ends, sum_rows(rows, ends, look))
        if state.reach > 0.0 and (state.reach / NEXT_REACH) ** 2 / 2 <= tol * state.objective:
            break
    return state


def _minimise_sample(settings: Newton, state: State, sample: Rows) -> State:
    """Return the state with the sample's minimiser as the next point, and the ball in which P's minimiser is expected.

    Each row of the sample stands for n / m rows. At the sample's minimiser the gradient of P is that of the other rows,
    and has the variance of a sum over m rows that were drawn.
    """
    weight = np.ones(sample.n_rows) if sample.sample_weight is None else sample.sample_weight
    weight = state.n_rows / sample.n_rows * weight
    rows = Rows(0, sample.X, sample.y, weight)
    own, few = replace(state, resident=state.resident[:0]), np.arange(0, sample.n_rows, FEW)
    if len(few) >= ROWS_A_FEATURE * len(own.best_w):
        fewer = Rows(0, take_rows(rows.X, few), None if rows.y is None else rows.y[few], FEW * weight[few])
        own = replace(_minimise(settings, own, fewer, FEW_TOL), objective=float("inf"), lower_bound=0.0)
        own = replace(own, best_w=own.next_w)
    own = _minimise(settings, own, rows, SAMPLE_SHARE * settings.tol)
    scores = compute_scores(rows.X, own.next_w[None, :-1])[:, 0] + settings.bias_feature * own.next_w[-1]
    lengths = measure_rows(make_look(settings, own).norm, rows, settings.bias_feature)[0]
    variance = float(np.sum((settings.loss.measure(rows, scores)[1] * lengths) ** 2))
    others = max(0.0, 1.0 - sample.n_rows / state.n_rows)
    reach = FIRST_REACH * float(np.sqrt(variance * others)) + own.reach
    return replace(state, resident=own.resident, next_w=own.next_w, A=own.A, reach=reach)
