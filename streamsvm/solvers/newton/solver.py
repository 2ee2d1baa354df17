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
unreliable, and an interior-point method minimises the sample instead:

    min  1/2 |w|^2 + sum_k C_k xi_k,     xi_k - s_k = u_k = sign_k (z_k.w - place_k),     s, xi >= 0

Each kink k of a row is a hinge of its own, with a multiplier a_k from 0 to C_k. At the minimiser
w = -sum_k a_k sign_k z_k, a_k s_k = 0 and (C_k - a_k) xi_k = 0. The method follows the path on which these products
equal m C_k, while m falls to 0.

Sources: Keerthi & DeCoste 2005, "A modified finite Newton method for fast solution of large scale linear SVMs", JMLR 6
(squared hinge); Lin, Weng & Keerthi 2008, "Trust region Newton method for large-scale logistic regression", JMLR 9;
Mehrotra 1992, SIAM Journal on Optimization 2 (predictor and corrector of the interior-point method).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_solve

from streamsvm.certificates.dual_points import Bound, add_dual_sums, bound_by_coefs, start_dual_sums
from streamsvm.losses.convex import Kinks, SmoothLoss, has_kinks
from streamsvm.numeric.equations import factorise, finish_matrix
from streamsvm.numeric.rounding import bound_rounding, sum_exactly
from streamsvm.numeric.row_norms import RowNorm, measure_rows
from streamsvm.numeric.rows import F64, Rows, add_combination, draw_sample, find_first_rows, score_rows
from streamsvm.passes import Requests, Scan, Step, Take, find_status
from streamsvm.solvers.newton import steps
from streamsvm.solvers.newton.steps import NEXT_REACH, STUCK_STEPS, TILE_ROWS, Look, State, Totals, sum_rows, take_step
from streamsvm.system import deadline, interrupts
from streamsvm.system.errors import TimeLimitError

LEAST_ROOM = 1e-15  # the least relative distance of a multiplier from its cost; rounding hides smaller ones
INSIDE = 0.995  # the share of the way to the boundary that a step may go
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
EXACT_STEP = 1e-12  # replaces LAST_STEP where Newton's method is exact, because no row changes sides
EXACT_STEPS = 20  # replaces MOST_STEPS in the same case
PATH_STEPS = 60  # the maximum number of steps of the interior-point method
MORE_STEPS = 300  # replaces PATH_STEPS if that number of steps did not lead to a proof
LEAST_TOL = 1e-11  # the least tolerance for smoothing: rounding hides the curvature of narrower kinks
SMOOTH_SHARE = 0.3  # the share of the requested relative gap that the smoothing of kinks may use


@dataclass
class Path:
    """An interior point: w (d+1,), and a, s and xi of the kinks, (k, n)."""

    w: F64
    a: F64
    s: F64
    xi: F64


def minimise_kinks(rows: Rows, kinks: Kinks, bias_feature: float, tol: float, most: int) -> tuple[F64, F64]:
    """Return the w (d+1,) with the lowest P and the a (k, n) with the highest D for rows in memory.

    The method stops at the relative gap tol, or after `most` steps if rounding keeps the gap above tol.
    """
    start = np.zeros(rows.X.shape[1] + 1)
    u = find_distances(rows, kinks, start, bias_feature)
    far = max(float(np.sum(kinks.costs * np.abs(u)) / np.sum(kinks.costs)), float(np.finfo(np.float64).tiny) ** 0.5)
    path = Path(start, kinks.costs / 2, np.maximum(-u, 0.0) + far, np.maximum(u, 0.0) + far)
    best, best_w, best_dual, best_a = float("inf"), path.w, 0.0, path.a
    for _ in range(most):
        interrupts.check()
        made_of = combine(rows, kinks.signs * path.a, bias_feature)
        primal = float(path.w @ path.w) / 2 + float(np.sum(kinks.costs * np.maximum(0.0, path.xi - path.s)))
        dual = -float(made_of @ made_of) / 2 - float(np.sum(path.a * kinks.signs * kinks.places))
        if primal < best:
            best, best_w = primal, path.w
        linear = -float(np.sum(drop_common(path.a, kinks) * kinks.signs * kinks.places))
        if (proved := linear - float(made_of @ made_of) / 2) > best_dual:
            best_dual, best_a = proved, path.a
        if not primal - dual > tol * primal or deadline.is_over():
            break
        _go_on(path, rows, kinks, path.w + made_of, bias_feature)
    return best_w, drop_common(best_a, kinks)


def drop_common(a: F64, kinks: Kinks) -> F64:
    """Return feasible multipliers (k, n) that give the same w as a.

    If two kinks of a row have opposite signs, the part common to their multipliers is removed. It cancels in w, and
    only adds rounding errors to D.
    """
    limited = np.clip(a, 0.0, kinks.costs)
    return limited - np.where(np.sum(kinks.signs, axis=0) == 0.0, np.min(limited, axis=0), 0.0)


def bound_by_kinks(rows: Rows, kinks: Kinks, a: F64, bias_feature: float) -> Bound:
    """Return the lower bound proved by multipliers a (k, n) between 0 and the costs, with its rounding.

    D(a) = -sum_k a_k sign_k place_k - 1/2 |sum_k a_k sign_k z_k|^2
    """
    found, terms = start_dual_sums(rows.X.shape[1]), -a * kinks.signs * kinks.places
    if not np.isfinite(terms).all():
        return Bound(0.0, 0.0)
    rows = replace(rows, y=np.zeros(rows.n_rows, np.int32))
    for at in range(0, rows.n_rows, TILE_ROWS):
        tile = slice(at, at + TILE_ROWS)
        for coefs in (kinks.signs * a)[:, tile]:
            add_dual_sums(found, rows.slice(tile), coefs, np.abs(coefs))
    total, rounding = sum_exactly(*terms), bound_rounding(4, sum_exactly(*np.abs(terms)))
    return bound_by_coefs(found, max(0.0, total), rounding, 0.0, bias_feature)


def find_widths(u: F64, costs: F64, floor: float, scale: float, allowed: float) -> tuple[float, float]:
    """Return two widths at which the smoothing changes P by at most `allowed`: one between kinks, and the largest.

    The first width lies in the widest gap between the distances u (k, n) of the kinks. floor: the precision of u;
    smaller distances count as `floor`. scale: the range in which gaps are sought extends at least to this distance.
    """
    order = np.argsort(u, axis=None)
    near = np.concatenate((np.maximum(u.ravel()[order], floor), [max(scale, float(np.max(u)))]))
    most = 4.0 * allowed / np.maximum(np.cumsum(costs.ravel()[order]), allowed)
    widths = np.minimum(np.sqrt(near[:-1] * near[1:]), most)
    gaps = np.minimum(widths / near[:-1], near[1:] / widths)
    return float(widths[np.argmax(gaps)]), float(np.max(np.minimum(near[1:], most)))


def _go_on(path: Path, rows: Rows, kinks: Kinks, residual: F64, bias_feature: float) -> None:
    """Make a step in place. The predictor aims at m = 0, and the corrector at an m estimated from the predictor."""
    room = np.maximum(kinks.costs - path.a, LEAST_ROOM * kinks.costs)
    with np.errstate(over="ignore"):  # The theta of a row whose cost is next to 0 is 0.
        theta = 1.0 / (path.xi / room + path.s / path.a)
    try:
        _, factor = factorise(finish_matrix(len(path.w), _curve, rows, np.sum(theta, axis=0), bias_feature))
    except TimeLimitError:
        return
    gap = float(np.sum(path.a * path.s) + np.sum(room * path.xi))
    if factor is None or not gap > 0.0:
        return

    def find_step(low: F64, high: F64) -> tuple[F64, F64, F64, F64]:
        """Return the changes of w, a, s and xi that add `low` to a s, and `high` to (C - a) xi."""
        pull = theta * (low / path.a - high / room)
        right = residual + combine(rows, kinks.signs * pull, bias_feature)
        dw = -cho_solve((factor, False), right)
        da = theta * kinks.signs * score_rows(rows.X, dw, bias_feature) + pull
        return dw, da, (low - path.s * da) / path.a, (high + path.xi * da) / room

    _, da, ds, dxi = find_step(-path.a * path.s, -room * path.xi)
    far = _find_length(path, room, da, ds, dxi)
    left = float(np.sum((path.a + far * da) * (path.s + far * ds)) + np.sum((room - far * da) * (path.xi + far * dxi)))
    m = (left / gap) ** 3 * gap / (2.0 * float(np.sum(kinks.costs))) * kinks.costs
    dw, da, ds, dxi = find_step(m - path.a * path.s - da * ds, m - room * path.xi + da * dxi)
    far = min(1.0, INSIDE * _find_length(path, room, da, ds, dxi))
    path.w, path.a, path.s, path.xi = path.w + far * dw, path.a + far * da, path.s + far * ds, path.xi + far * dxi


def _find_length(path: Path, room: F64, da: F64, ds: F64, dxi: F64) -> float:
    """Return the step length at which a, C - a, s or xi first becomes 0, but at most 1 / INSIDE."""
    shares = ((path.a, da), (room, -da), (path.s, ds), (path.xi, dxi))
    return 1.0 / max(INSIDE, *(float(np.max(-change / value)) for value, change in shares))


def combine(rows: Rows, coefs: F64, bias_feature: float) -> F64:
    """Return the sum over all rows of x, each multiplied by the sum of the coefs (k, n) of the row's kinks, (d+1,)."""
    total = np.zeros(rows.X.shape[1] + 1)
    add_combination(total, rows.X, np.arange(rows.n_rows), np.sum(coefs, axis=0), bias_feature)
    return total


def find_distances(rows: Rows, kinks: Kinks, w: F64, bias_feature: float) -> F64:
    """Return the signed distances u of the kinks, (k, n)."""
    return kinks.signs * (score_rows(rows.X, w, bias_feature) - kinks.places)


def _curve(rows: Rows, weight: F64, bias_feature: float) -> F64:
    """Return I + sum_i weight_i z_i z_i'."""
    total = steps.Curvature(rows.X.shape[1])
    for at in range(0, rows.n_rows, TILE_ROWS):
        deadline.check()
        tile = slice(at, at + TILE_ROWS)
        total.add(rows.slice(tile), weight[tile], bias_feature)
    matrix = total.finish()
    return matrix + np.eye(len(matrix))


def _minimise(
    settings: Newton, state: State, rows: Rows, tol: float, last_step: float = LAST_STEP, most: int = MOST_STEPS
) -> State:
    """Return the state after `most` steps in memory, or once a step can lower P by at most last_step * tol * P."""
    shares = KINKED_STEPS if has_kinks(settings.loss) else FEW_STEPS
    for _ in range(most):
        interrupts.check()
        look, width = replace(settings.make_look(state), reach=0.0, steps=shares), state.width
        ends = np.stack((state.base_w, state.next_w))
        try:
            totals = finish_matrix(ends.shape[1], sum_rows, rows, ends, look)
        except TimeLimitError:
            break
        state = take_step(state, look, ends, totals, SMOOTH_SHARE * tol)
        is_near = state.reach > 0.0 and (state.reach / NEXT_REACH) ** 2 / 2 <= last_step * tol * state.objective
        if (is_near and state.width == width) or deadline.is_over():
            break
    return state


def _minimise_with_kinks(settings: Newton, state: State, rows: Rows, are_all: bool) -> State:
    """Return the state at the exact minimiser for rows in memory, with a smoothing width for the passes over all rows.

    are_all: whether the rows in memory are all rows. If so, the width is so small that hardly any row is smoothed,
    except rows on a kink.
    """
    (own, kinks), bias = _pick_paid(settings, rows), settings.bias_feature
    w = minimise_kinks(own, kinks, bias, EXACT_TOL, PATH_STEPS)[0] if own.n_rows else state.next_w
    u = find_distances(own, kinks, w, bias)
    P = float(w @ w) / 2 + float(np.sum(kinks.costs * np.maximum(0.0, u)))
    state = replace(state, base_w=w, next_w=w, value=float("inf"))
    if not P > 0.0:
        return state
    scale = float(np.sum(kinks.costs * np.maximum(np.abs(u), np.abs(kinks.places))) / np.sum(kinks.costs))
    tol = max(settings.tol, LEAST_TOL if are_all else len(w) / rows.n_rows)  # A sample is no more precise than d / m.
    widths = find_widths(np.abs(u), kinks.costs, EXACT_TOL * scale, scale, SMOOTH_SHARE * tol * P)
    if not are_all:
        return _minimise(settings, replace(state, width=widths[1]), rows, tol)
    return _minimise(settings, replace(state, width=widths[0]), rows, tol, EXACT_STEP, EXACT_STEPS)


def raise_by_kinks(settings: Newton, state: State, rows: Rows) -> State:
    """Return the state with the lower bound that the multipliers of all rows prove, unless the gap is already proved.

    This helps if rounding has hidden the curvature of the smoothing. If the minimiser found with these multipliers has
    a lower P than the best point, the next pass evaluates P there.
    """
    if state.progress.is_proved(settings.tol):
        return state
    (own, kinks), bias = _pick_paid(settings, rows), settings.bias_feature
    if not own.n_rows:
        return state
    w, a = minimise_kinks(own, kinks, bias, LAST_STEP * settings.tol, MORE_STEPS)
    bound = bound_by_kinks(own, kinks, a, bias)
    if bound.value > state.lower_bound:
        state = replace(state, lower_bound=bound.value, bound_rounding=bound.rounding, tried_rounding=0.0)
    losses = kinks.costs * np.maximum(0.0, find_distances(own, kinks, w, bias))
    is_lower = float(w @ w) / 2 + float(np.sum(losses)) < state.objective
    return replace(state, next_w=w, reach=0.0) if is_lower else state


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
        totals = yield Scan(start, steps.add_totals, add, (ends, look), weights=ends, held=held)
        state = settings.take_step(state, look, ends, totals)
        if held is not None and held.n_rows == state.n_rows and has_kinks(settings.loss):
            state = raise_by_kinks(settings, state, held)
        state = state.counted(before)
        yield Step(state, state.progress, find_status(state.progress, settings.tol, state.stuck, STUCK_STEPS))
