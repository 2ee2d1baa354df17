"""Newton's method for a smooth loss. The curvature of all rows proves the result, usually after two passes.

    P(w) = 1/2 |w|^2 + sum_i l_i(w.x_i)               bias: a constant feature, penalised

A pass at w computes P, its gradient and its Hessian over all rows (newton.steps). From these follow a lower bound on
the minimum of P, and the next point, w - Hessian^-1 gradient (newton.steps). Near the minimiser, each step squares the
distance to it. The more accurate the step, the closer the lower bound from the curvature is to the minimum.

A pass also computes P at points on the line from the base, the point at which the step began. If P is not lower at w,
the next pass is at the lowest of these points. The step is a descent direction, so a lower point is found once the line
is examined closely enough.

The first point minimises P on a sample of the rows, by the same steps in memory. A loss with kinks is smoothed, with a
width that shrinks until the smoothing uses only a share of the tolerance (losses.convex). The steps descend on the
smoothed P, and the lower bounds are those of a smooth function below P. If few rows are near a kink, these steps are
unreliable, and an interior-point method minimises the sample instead (newton.kinks). A pass also keeps the rows nearest
to their kinks. They prove a lower bound that is far higher than that of the smoothing, and their minimiser is the next
point once its gap is small.

Sources: Keerthi & DeCoste 2005, "A modified finite Newton method for fast solution of large scale linear SVMs", JMLR 6
(squared hinge); Lin, Weng & Keerthi 2008, "Trust region Newton method for large-scale logistic regression", JMLR 9.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Any, ClassVar

import numpy as np

from streamsvm.losses.convex import Kinks, SmoothLoss, has_kinks
from streamsvm.numeric.equations import finish_matrix
from streamsvm.numeric.row_norms import RowNorm, measure_rows
from streamsvm.numeric.rows import F64, Rows, draw_sample, find_first_rows, score_rows
from streamsvm.passes import All, Requests, Scan, Step, Take, find_status
from streamsvm.solvers.cutting_plane.kink_path import find_distances, minimise_kinks
from streamsvm.solvers.cutting_plane.smoothed_newton import Linear
from streamsvm.solvers.newton import steps
from streamsvm.solvers.newton.kinks import Beyond, bound_by_kinks, find_beyond, scan_near_kinks
from streamsvm.solvers.newton.steps import NEXT_REACH, STUCK_STEPS, Look, State, Totals, sum_rows, take_step
from streamsvm.system import deadline, interrupts
from streamsvm.system.errors import TimeLimitError

LAST_STEP = 0.1  # the share of the requested gap by which the last step on the sample may still lower P
FEW = 16  # one row of the sample in this number is enough for the first steps
FEW_TOL = 1e-2
FEW_STEPS = (0.3, 1.0)  # where P is evaluated along a step in memory: at few points, because another step needs no pass
KINKED_STEPS = (0.02, 0.1, 0.3, 0.6, 1.0)  # the same if there are kinks
ROWS_A_FEATURE = 10  # With fewer rows per feature, a sample's minimiser is too far from that of all rows.
MOST_STEPS = 100  # the maximum number of steps of Newton's method in memory
PATIENCE = 10  # If more passes are needed, the losses of few rows decide, and a sample may miss them.
FIRST_REACH = 3.0  # the radius of the first pass's ball, as a multiple of the expected distance to the minimiser
EXACT_TOL = 1e-12
PATH_STEPS = 60  # the maximum number of steps of the interior-point method
MORE_STEPS = 300  # replaces PATH_STEPS if that number of steps did not lead to a proof
IDLE_PASSES = 10  # After this many passes whose near rows did not raise the lower bound, few passes keep near rows.
NEARLY = 0.002  # the minimiser of the near rows is the next point if the gap is at most this share of P
LEAST_TOL = 1e-11  # the least tolerance for smoothing: rounding hides the curvature of narrower kinks
SMOOTH_SHARE = 0.3  # the share of the requested relative gap that the smoothing of kinks may use


def find_width(u: F64, costs: F64, scale: float, allowed: float) -> float:
    """Return the largest width at which the smoothing changes P by at most `allowed`.

    u (k, n): the distances of the kinks. scale: the least width at which no kink is left.
    """
    order = np.argsort(u, axis=None)
    beyond = np.append(u.ravel()[order][1:], max(scale, float(np.max(u))))
    most = 4.0 * allowed / np.maximum(np.cumsum(costs.ravel()[order]), allowed)
    return float(np.max(np.minimum(beyond, most)))


def _minimise(settings: Newton, state: State, rows: Rows, tol: float) -> State:
    """Return the state after MOST_STEPS in memory, or once a step can lower P by at most LAST_STEP * tol * P."""
    shares = KINKED_STEPS if has_kinks(settings.loss) else FEW_STEPS
    for _ in range(MOST_STEPS):
        interrupts.check()
        look, width = replace(settings.make_look(state), reach=0.0, steps=shares), state.width
        ends = np.stack((state.base_w, state.next_w))
        try:
            totals = finish_matrix(ends.shape[1], sum_rows, rows, ends, look)
        except TimeLimitError:
            break
        state = take_step(state, look, ends, totals, SMOOTH_SHARE * tol)
        is_near = state.reach > 0.0 and (state.reach / NEXT_REACH) ** 2 / 2 <= LAST_STEP * tol * state.objective
        if (is_near and state.width == width) or deadline.is_over():
            break
    return state


def _minimise_with_kinks(settings: Newton, state: State, rows: Rows, are_all: bool) -> State:
    """Return the state at the minimiser for rows in memory, with a smoothing width for the passes over all rows.

    are_all: whether the rows in memory are all rows. If so, the minimiser is exact; otherwise, that of the smoothing.
    """
    (own, kinks), bias = _pick_paid(settings, rows), settings.bias_feature
    zero = np.zeros(len(state.next_w))
    exact = EXACT_TOL, PATH_STEPS, zero, Linear(zero, 0.0)
    w = minimise_kinks(own, kinks, bias, *exact)[0] if own.n_rows else state.next_w
    u = find_distances(own, kinks, w, bias)
    P = float(w @ w) / 2 + float(np.sum(kinks.costs * np.maximum(0.0, u)))
    state = replace(state, base_w=w, next_w=w, value=float("inf"))
    if not P > 0.0:
        return state
    scale = float(np.sum(kinks.costs * np.maximum(np.abs(u), np.abs(kinks.places))) / np.sum(kinks.costs))
    tol = max(settings.tol, LEAST_TOL if are_all else len(w) / rows.n_rows)  # A sample is no more precise than d / m.
    state = replace(state, width=find_width(np.abs(u), kinks.costs, scale, SMOOTH_SHARE * tol * P))
    return state if are_all else _minimise(settings, state, rows, tol)


def raise_by_kinks(
    settings: Newton, state: State, rows: Rows, beyond: Beyond | None = None, follows: bool = True
) -> State:
    """Return the state with the lower bound that the rows in memory prove, unless the gap is already proved.

    beyond: the sums over all other rows, if there are any. The bound is high even if rounding has hidden the curvature
    of the smoothing. follows: whether the next pass may evaluate P at the minimiser found with this bound. It does if P
    is likely to be lower there than at the best point.
    """
    if state.progress.is_proved(settings.tol):
        return state
    (own, kinks), bias = _pick_paid(settings, rows), settings.bias_feature
    if not own.n_rows:
        return state
    start = np.zeros(len(state.best_w)) if beyond is None else state.best_w
    none = Linear(np.zeros(len(start)), 0.0)
    linear, most = (none, MORE_STEPS) if beyond is None else (beyond.linear, PATH_STEPS)
    w, a, lowest = minimise_kinks(own, kinks, bias, LAST_STEP * settings.tol, most, start, linear)
    bound = bound_by_kinks(own, kinks, a, bias, beyond)
    if bound.value > state.lower_bound:
        raised: dict[str, Any] = {"lower_bound": bound.value, "bound_rounding": bound.rounding, "raised": state.passes}
        state = replace(state, **raised, tried_rounding=0.0)
    is_near = beyond is None or state.objective - bound.value <= NEARLY * state.objective
    return replace(state, next_w=w, reach=0.0) if follows and is_near and lowest < state.objective else state


def _look_for_kinks(settings: Newton, state: State, look: Look, held: Rows | None) -> list[Scan]:
    """Return the scan that keeps the rows near their kinks, unless the loss has none or all rows are in memory.

    If near rows have not raised the lower bound for IDLE_PASSES passes, they are kept only 16, 32, 64 and so on passes
    after they last raised it, because the interior-point method may take longer than the pass.
    """
    has_all = held is not None and held.n_rows == state.n_rows
    if not has_kinks(settings.loss) or not settings.resident_rows or has_all:
        return []
    idle = state.passes - state.raised
    if idle > IDLE_PASSES and idle.bit_count() > 1:  # a number with more than one bit is not a power of two
        return []
    most, bias = settings.resident_rows, settings.bias_feature
    return [scan_near_kinks(settings.loss, state.next_w, look.norm, most, state.n_rows, bias)]


def _pick_paid(settings: Newton, rows: Rows) -> tuple[Rows, Kinks]:
    """Return the rows of positive cost, and their kinks."""
    assert has_kinks(settings.loss)
    kinks = settings.loss.find_kinks(rows)
    paid = np.flatnonzero(kinks.costs[0] > 0.0)
    return rows.pick(paid), Kinks(*(part[:, paid] for part in kinks))


@dataclass(frozen=True)
class Newton:
    """Settings of the solver, with the methods that depend on the penalty.

    loss: the rows' losses l_i, which contain the costs; resident_rows: the number of rows in the sample; tol: the
    relative gap to reach; bias_feature: the value of the constant feature; seed: the seed of the sample; fits_all:
    whether all rows are the sample after PATIENCE passes, since memory has room for them.
    """

    loss: SmoothLoss
    resident_rows: int
    tol: float = 1e-3
    bias_feature: float = 1.0
    seed: int = 0
    fits_all: bool = False
    state: ClassVar[type[Any]] = State

    def start(self, n_rows: int, n_features: int, is_shuffled: bool = False) -> Any:
        """Return the state before the first pass: w = 0, and a sample (the first rows if the rows are shuffled)."""
        none = np.zeros(n_features + 1)
        rows = draw_sample(self.resident_rows, n_rows, self.seed, is_shuffled)
        return self.state(none, none, none, rows, n_rows=n_rows)

    def make_look(self, state: Any) -> Look:
        """Return the request of the next pass."""
        norm = RowNorm(state.A if len(state.A) else np.eye(len(state.best_w)))
        loss = self.loss.sharpen(state.width) if has_kinks(self.loss) else self.loss
        return Look(loss, self.bias_feature, norm, state.reach if len(state.A) else 0.0)

    def minimise_sample(self, state: Any, sample: Rows) -> Any:
        """Return the state with the sample's minimiser as the next point, and a ball likely to contain P's minimiser.

        Each of the sample's m rows represents n / m rows. At the sample's minimiser, the gradient of P is a sampling
        error: it has the variance of a sum over m drawn rows.
        """
        rows = sample.weigh(state.n_rows / sample.n_rows)
        own, few = replace(state, resident=state.resident[:0]), np.arange(0, sample.n_rows, FEW)
        if has_kinks(self.loss):
            own = _minimise_with_kinks(self, own, rows, sample.n_rows == state.n_rows)
        else:
            if len(few) >= ROWS_A_FEATURE * len(own.best_w):
                own = _minimise(self, own, rows.pick(few).weigh(FEW), FEW_TOL)
                own = replace(own, base_w=own.next_w, objective=float("inf"), value=float("inf"), lower_bound=0.0)
            own = _minimise(self, own, rows, self.tol)
        reach = own.reach
        if sample.n_rows < state.n_rows:
            others = 1.0 - sample.n_rows / state.n_rows
            scores, look = score_rows(rows.X, own.next_w, self.bias_feature), self.make_look(own)
            lengths = measure_rows(look.norm, rows, self.bias_feature)[0]
            variance = float(np.sum((look.loss.measure(rows, scores)[1] * lengths) ** 2))
            reach += FIRST_REACH * float(np.sqrt(others * variance))
        return replace(state, resident=own.resident, next_w=own.next_w, A=own.A, reach=reach, width=own.width)

    def take_step(self, state: Any, look: Look, ends: F64, totals: Totals) -> Any:
        """Return the state after a pass, with P, its lower bound, and the next point."""
        return take_step(state, look, ends, totals, SMOOTH_SHARE * max(self.tol, LEAST_TOL))


def solve(settings: Newton, state: Any) -> Requests:
    """Run the solver from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    while True:
        before, held = state, None
        if settings.fits_all and state.passes == PATIENCE:
            state = replace(state, resident=np.arange(state.n_rows))
        if len(state.resident):
            sample = yield Take(state.resident)
            held = find_first_rows(sample, state.resident)
            state = settings.minimise_sample(state, sample)
            del sample
        look = settings.make_look(state)
        if before.passes == 0:  # No line leads to the first point.
            look = replace(look, steps=(1.0,))
        ends = np.stack((state.base_w if before.passes else state.next_w, state.next_w))
        start = partial(steps.start_totals, len(state.best_w) - 1, len(look.steps), look.n_bent)
        scan = Scan(start, steps.add_totals, add, (ends, look), weights=ends, held=held)
        of_kinks = _look_for_kinks(settings, state, look, held)
        totals, *near = yield All([scan, *of_kinks])
        state = settings.take_step(state, look, ends, totals)
        if near:  # after a step that did not reach a lower P, Newton's method makes the next one
            follows = np.array_equal(ends[1], state.best_w) and state.objective < before.objective
            state = raise_by_kinks(settings, state, *find_beyond(near[0], *of_kinks[0].shared), follows=follows)
        elif held is not None and held.n_rows == state.n_rows and has_kinks(settings.loss):
            state = raise_by_kinks(settings, state, held)
        state = state.counted(before)
        yield Step(state, state.progress, find_status(state.progress, settings.tol, state.stuck, STUCK_STEPS))
