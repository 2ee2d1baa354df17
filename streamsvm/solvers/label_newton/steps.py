"""The state of Newton's method for many labels, and the step of every label that follows from a pass.

At a point w of a label, let g be the gradient of the losses, and a the multipliers of the dual point, whose weights are
-g:

    P = 1/2 |w|^2 + sum_i l_i(f_i)         D = sum_i (l_i + a_i m_i) - 1/2 |g|^2         P - D = 1/2 |w + g|^2

The next point is w - M^-1 (w + g), where M = I + H and H is estimated from a share of the rows. If P decreases by less
than a share of what the slope predicts, the step is shortened to the minimum of the parabola through the known values.

With many features, M s = -(w + g) is solved by conjugate gradients, with one product M p per pass (Lin, Weng & Keerthi
2008, "Trust region Newton method for large-scale logistic regression", JMLR 9). Each label proceeds on its own: a pass
evaluates the points of some labels, and computes the products of others, which are in the middle of a step. A step is
accurate enough if the residual r is a tenth of the gradient, or if |r|^2 / 2 is within the tolerance. With unchanged
curvature, P - D after the step would be |r|^2 / 2.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit
from scipy.linalg import cho_solve

from streamsvm.numeric.equations import factorise
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F32, F64, I64, REORDERED_SUMS
from streamsvm.passes import LEAST_MOVE, MORE_PATIENCE, ROUNDINGS, Progress
from streamsvm.solvers.label_newton.sums import ACTIVE, DUAL, LOSS, SIZES, STEEP, Totals, unpack_triangle
from streamsvm.system import interrupts

ENOUGH = 1e-4  # A step is shortened if it lowers P by less than this share of what the slope predicts.
SHORTEST, LONGEST = 0.1, 0.5  # the range of the share to which a step is shortened
STUCK_STEPS = 5  # If neither P nor D of a label has moved for this many steps, rounding is the limit.
SHARPEST = (2.0, 0.25)  # the largest curvature of a loss, as a multiple of its cost
RESIDUAL = 0.1  # A step is accurate enough if |r| is at most this share of the gradient's length.
PROVED_SHARE = 0.3  # A step is also accurate enough if |r|^2 / 2 is at most this share of the tolerance.
MOST_PRODUCTS = 60
STEP, RESIDUALS, DIRECTIONS = range(3)  # the parts of `conjugates`
SAFE = 1.0 + 1e-9


@dataclass(frozen=True)
class LabelNewton:
    """Settings of the solver.

    loss: the code of the loss (sums.CODES); costs (L, 2): C_i of the rows without and with each label, before sample
    weights; at_zero (L,): P of each label at w = 0; tol: the relative gap to reach; bias_feature: the value of the
    constant feature; curvature_rows: the number of rows from which the curvature of a label is estimated; side_by_side:
    the number of labels that share the passes; n_rows, n_features: the numbers of rows and features of the source;
    row_bytes: the bytes of a row in memory; by_products: whether steps are found by products of Hessians with vectors,
    in additional passes; factor_rows: the largest number of rows or features of a matrix that a step on the sample
    factorises; sample: the row numbers of the sample at whose minimisers the method starts.
    """

    loss: int
    costs: F64
    at_zero: F64
    tol: float
    bias_feature: float
    curvature_rows: int
    side_by_side: int
    n_rows: int
    n_features: int
    row_bytes: int
    by_products: bool = False
    factor_rows: int = 0
    sample: I64 = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def about(self) -> tuple[int, float]:
        """The loss and the bias feature, which are passed to every pass."""
        return self.loss, self.bias_feature


@dataclass
class State:
    """The state of a run. Arrays have an entry for each of the L labels, or of the m labels in the current block.

    best_w (L, d+1): the point with the lowest P. next_w (m, d+1): the point of the next pass. base_w (m, d+1), values,
    slopes, lengths: the point where the step to next_w began, P there, the slope of P along the whole step, and the
    share of the step that is made. active: the number of rows with a curvature. statuses: "" for unfinished labels.
    objectives, lower_bounds: the best P and D. objective_errors, bound_errors: bounds of their rounding errors. counts:
    the number of passes that included a label. stuck: the number of passes since the label's P or D last moved. first:
    the number of the first of the m labels. passes: the number of passes so far.

    If steps are found by products (take_products): conjugates (3, m, d+1) with the parts STEP to DIRECTIONS; residuals
    and at_start (L,): |r|^2 now and at the start of the step; products (L,): the number of products made in the step,
    or -1 between steps. Otherwise these are empty.
    """

    best_w: F64
    next_w: F64
    base_w: F64
    values: F64
    slopes: F64
    lengths: F64
    active: F64
    statuses: npt.NDArray[np.str_]
    objectives: F64
    lower_bounds: F64
    objective_errors: F64
    bound_errors: F64
    counts: I64
    stuck: I64
    first: int = 0
    passes: int = 0
    conjugates: F64 = field(default_factory=lambda: np.empty((0, 0, 0)))
    residuals: F64 = field(default_factory=lambda: np.empty(0))
    at_start: F64 = field(default_factory=lambda: np.empty(0))
    products: I64 = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def progress(self) -> Progress:
        """The progress of the run: sums over the labels."""
        each = self.objectives, self.lower_bounds, self.objective_errors, self.bound_errors
        P, D, of_objectives, of_bounds = (float(np.sum(values)) for values in each)
        return Progress(P, D, self.passes, of_objectives + of_bounds, taken_off=of_bounds)

    @property
    def gaps(self) -> F64:
        """The relative gap of each label, (L,)."""
        return (self.objectives - self.lower_bounds) / np.where(self.objectives > 0.0, self.objectives, 1.0)


def start_state(settings: LabelNewton) -> State:
    """Return the state before the first pass: all labels at w = 0."""
    L, m, width = len(settings.costs), settings.side_by_side, settings.n_features + 1
    numbers = ("slopes", "lower_bounds", "objective_errors", "bound_errors")
    start: dict[str, Any] = {name: np.zeros(L) for name in numbers}
    start |= {name: np.zeros(L, np.int64) for name in ("counts", "stuck")}
    start |= {"best_w": np.zeros((L, width)), "next_w": np.zeros((m, width)), "base_w": np.zeros((m, width))}
    start |= {"values": np.full(L, np.inf), "lengths": np.ones(L), "active": np.full(L, float(settings.n_rows))}
    if settings.by_products:
        start |= {"conjugates": np.zeros((3, m, width)), "products": np.full(L, -1, np.int64)}
        start |= {name: np.zeros(L) for name in ("residuals", "at_start")}
    return State(**start, statuses=np.full(L, "", "<U16"), objectives=settings.at_zero.copy())


def begin_next(settings: LabelNewton, state: State) -> State:
    """Return the state that starts the next block of labels, all at w = 0."""
    points = {name: np.zeros_like(getattr(state, name)) for name in ("next_w", "base_w", "conjugates")}
    return replace(state, **points, first=state.first + settings.side_by_side)


@dataclass(frozen=True)
class Found:
    """The results of a pass for k labels.

    P, D (k,): the objectives, and the lower bounds less their rounding. P_off, D_off (k,): bounds of the rounding
    errors. gradients (k, d+1): the gradients of P.
    """

    P: F64
    D: F64
    P_off: F64
    D_off: F64
    gradients: F64


def read_totals(settings: LabelNewton, W: F64, costs: F64, sums: F64, g: F64, squares: float) -> Found:
    """Return the results of a pass at W (k, d+1). g (k, d+1): the gradients of the losses, to which W is added."""
    width = W.shape[1]
    lengths, lengths_of_g = np.linalg.norm(W, axis=1), np.linalg.norm(g, axis=1)
    of_sums, of_scores = bound_rounding(settings.n_rows + 24, 1.0), bound_rounding(width + 8, 1.0)
    sharp = SHARPEST[settings.loss] * costs.max(axis=1) * squares
    off = of_scores * lengths
    of_P = off * sums[STEEP] + sharp * off**2 + of_sums * sums[LOSS] + of_scores * lengths**2
    off_g = of_sums * sums[STEEP]
    of_D = of_sums * sums[SIZES] + off_g * lengths_of_g + off_g**2 + of_scores * lengths_of_g**2
    D = sums[DUAL] - lengths_of_g**2 / 2 - SAFE * of_D
    g += W
    return Found(lengths**2 / 2 + sums[LOSS], np.maximum(D, 0.0), SAFE * of_P, SAFE * of_D, g)


def note_found(settings: LabelNewton, state: State, codes: I64, W: F64, found: Found) -> None:
    """Record the certificates of the labels with these codes, and which labels are done.

    A label is done if its gap is proved, or if rounding prevents further progress.
    """
    P, D = state.objectives[codes], state.lower_bounds[codes]
    lower, higher = found.P < P * (1.0 - LEAST_MOVE), found.D > D * (1.0 + LEAST_MOVE)
    state.stuck[codes] = np.where(lower | higher, 0, state.stuck[codes] + 1)
    better = (found.P < P) | (state.counts[codes] == 0)
    state.best_w[codes[better]] = W[better]
    state.objectives[codes[better]], state.objective_errors[codes[better]] = found.P[better], found.P_off[better]
    better = found.D > D
    state.lower_bounds[codes[better]], state.bound_errors[codes[better]] = found.D[better], found.D_off[better]
    state.counts[codes] += 1
    P, D, off = state.objectives[codes], state.lower_bounds[codes], state.objective_errors[codes]
    proved = P - D + off <= settings.tol * P
    patience = np.where(ROUNDINGS * (off + state.bound_errors[codes]) >= P - D, 1, MORE_PATIENCE) * STUCK_STEPS
    state.statuses[codes[proved]] = "converged"
    state.statuses[codes[~proved & (state.stuck[codes] >= patience)]] = "stalled"


def take_step(settings: LabelNewton, before: State, codes: I64, totals: Totals) -> State:
    """Return the state after a pass at the next points of the labels with these codes."""
    state, W = replace(deepcopy(before), passes=before.passes + 1), before.next_w[codes - before.first]
    found = read_totals(settings, W, settings.costs[codes], totals.sums, totals.gradients, totals.squares)
    note_found(settings, state, codes, W, found)
    state.active[codes] = np.maximum(totals.sums[ACTIVE], 1.0)
    for k, code in enumerate(codes.tolist()):
        if not state.statuses[code] and is_accepted(settings, state, code, W[k], found.P[k], found.P_off[k]):
            interrupts.check()
            M = unpack_triangle(totals.curvatures[k], W.shape[1]) + np.eye(W.shape[1])
            _, factor = factorise(M)
            gradient = found.gradients[k]
            step = -gradient if factor is None else -cho_solve((factor, False), gradient)
            state.slopes[code] = float(gradient @ step)
            state.next_w[code - state.first] = W[k] + step
    return state


def is_accepted(settings: LabelNewton, state: State, code: int, w: F64, P: float, off: float) -> bool:
    """Return whether the next step begins at w, and record w if so; otherwise shorten the step that led to w.

    A starting point at which P is higher than at w = 0 is replaced by w = 0. This happens if the sample does not
    represent all rows because a few rows have most of the weight.
    """
    length, slope, place = state.lengths[code], state.slopes[code], code - state.first
    if state.values[code] == np.inf and not P - off <= settings.at_zero[code] and np.any(w):
        state.next_w[place] = 0.0
        return False
    if state.values[code] + ENOUGH * length * slope + off >= P:
        state.base_w[place], state.values[code], state.lengths[code] = w, P, 1.0
        return True
    bent = 2.0 * (P - state.values[code] - length * slope)
    best = -slope * length**2 / bent if np.isfinite(bent) and bent > 0.0 else 0.0
    shorter = min(max(best, SHORTEST * length), LONGEST * length)
    state.next_w[place] = state.base_w[place] + (shorter / length) * (w - state.base_w[place])
    state.lengths[code] = shorter
    return False


def divide(state: State, codes: I64) -> tuple[I64, I64]:
    """Divide these labels into labels whose points the next pass evaluates, and labels in the middle of a step."""
    is_bent = state.products[codes] >= 0
    return codes[~is_bent], codes[is_bent]


def take_products(settings: LabelNewton, state: State, codes: I64, totals: Totals) -> State:
    """Return the state after a pass whose totals belong to the labels with these codes.

    The state's arrays change in place because, with few rows, copying all points would take longer than a pass.
    """
    looked, bent = divide(state, codes)
    W, g = state.next_w[looked - state.first], np.ascontiguousarray(totals.gradients.T)
    found = read_totals(settings, W, settings.costs[looked], totals.sums, g, totals.squares)
    note_found(settings, state, looked, W, found)
    for k, code in enumerate(looked.tolist()):
        if not state.statuses[code] and is_accepted(settings, state, code, W[k], found.P[k], found.P_off[k]):
            gradient = found.gradients[k]
            state.conjugates[:, code - state.first] = np.zeros_like(gradient), -gradient, -gradient
            state.residuals[code] = state.at_start[code] = float(gradient @ gradient)
            state.products[code], state.slopes[code] = 0, 0.0
    state.counts[bent] += 1
    products = np.ascontiguousarray(totals.curvatures.T)
    for k, code in enumerate(bent.tolist()):
        _go_on(settings, state, code, products[k])
    return replace(state, passes=state.passes + 1)


@njit(cache=True, nogil=True, fastmath=REORDERED_SUMS)
def advance(step: F64, r: F64, p: F64, product: F32, before: float) -> tuple[float, float]:
    """Move along p to the minimum of the quadratic function; return the step length and the new |r|^2.

    step, r, p (d+1,): the step so far, the residual and the direction; step and r change in place. product (d+1,): the
    product of the losses' Hessian with p. before: the old |r|^2.
    """
    curvature, after = 0.0, 0.0
    for j in range(p.size):
        curvature += p[j] * (p[j] + product[j])
    alpha = before / curvature
    for j in range(p.size):
        step[j] += alpha * p[j]
        r[j] -= alpha * (p[j] + product[j])
        after += r[j] * r[j]
    return alpha, after


def _go_on(settings: LabelNewton, state: State, code: int, product: F32) -> None:
    """Make a conjugate-gradient step for a label. product: the losses' Hessian times the direction."""
    place = code - state.first
    step, r, p = state.conjugates[:, place]
    before = state.residuals[code]
    alpha, after = advance(step, r, p, product, before)
    state.residuals[code], state.slopes[code] = after, state.slopes[code] - alpha * before
    state.products[code] += 1
    enough = max(RESIDUAL**2 * state.at_start[code], 2 * PROVED_SHARE * settings.tol * state.objectives[code])
    if after <= enough or state.products[code] == MOST_PRODUCTS:
        state.next_w[place], state.products[code] = state.base_w[place] + step, -1
    else:
        p *= after / before
        p += r
