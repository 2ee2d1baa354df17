"""The state of Newton's method for many labels, and a step of every label from what a pass has found.

At a point w of a label, with u = -g, the gradient of the losses:

    P = 1/2 |w|^2 + sum_i l_i(f_i)         D = sum_i (l_i + a_i m_i) - 1/2 |g|^2         P - D = 1/2 |w + g|^2

The next point is w - M^-1 (w + g), where M = I + H and H is found from a share of the rows. If P is not lower there by
a share of what the slope promises, the step is made shorter, to the minimum of the parabola through what is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve

from streamsvm import interrupts
from streamsvm.methods.label_newton.row_losses import ACTIVE, DUAL, LOSS, SIZES, STEEP, unpack_triangle
from streamsvm.methods.label_newton.sums import Totals
from streamsvm.numeric.factors import factorise
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F32, F64, I64
from streamsvm.requests import MORE_PATIENCE, ROUNDINGS, Progress

ENOUGH = 1e-4  # of what the slope promises: a step that lowers P by less is made shorter
SHORTEST, LONGEST = 0.1, 0.5  # shares to which a step is shortened
LEAST_MOVE = 1e-12  # relative: P and D that move by less may be rounding
STUCK_STEPS = 5  # If neither P nor D of a label has moved for so many steps, rounding is the limit.
SHARPEST = (2.0, 0.25)  # the largest curvature of a loss, as a multiple of its cost
SAFE = 1.0 + 1e-9


@dataclass(frozen=True)
class LabelNewton:
    """Settings of the solver.

    loss: its code (row_losses.CODES); costs (L, 2): C_i of the rows without and with each label, before sample weights;
    at_zero (L,): P of each label at w = 0; tol: the relative gap to reach; bias_feature: the value of the constant
    feature; curvature_rows: how many rows the curvature of a label is found from; side_by_side: how many labels are
    worked on in the same reads; n_rows, n_features: of the source; row_bytes: of a row in memory; by_products: whether
    steps are found by products of Hessians with vectors, in passes of their own; factor_rows: of so many rows or
    features, at most, a matrix is factorised for a step on the sample; sample: the numbers of the rows at whose
    minimisers the method starts.
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


@dataclass
class State:
    """All that changes. Arrays have an entry for each of the L labels; those of m are for the labels that are worked
    on.

    best_w (L, d+1): the point with the lowest P; next_w (m, d+1): where the next pass looks; base_w (m, d+1), values,
    slopes, lengths: where the step to it began, P there, its slope along the whole step, and the share of the step that
    is made; active: how many rows had a curvature. statuses is "" where a label is not done. objectives, lower_bounds,
    objective_errors and bound_errors are the certificate; counts: passes in which a label took part; stuck: for how
    many neither P nor D has moved. first: the first of the m labels; passes: how many there were.

    Where steps are found by products (conjugate_gradients): conjugates (3, m, d+1), residuals and at_start (L,), which
    are |r|^2 now and at first, and products (L,), how many a step has taken, or -1. Otherwise these are empty.
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
    shapes: ClassVar[dict[str, tuple[str, ...]]] = {}

    @property
    def progress(self) -> Progress:
        """The sums over the labels."""
        of_bounds = float(np.sum(self.bound_errors))
        return Progress(
            objective=float(np.sum(self.objectives)),
            lower_bound=float(np.sum(self.lower_bounds)),
            passes=self.passes,
            rounding_bound=float(np.sum(self.objective_errors)) + of_bounds,
            taken_off=of_bounds,
        )

    @property
    def gaps(self) -> F64:
        """The relative gap of each label, (L,)."""
        return (self.objectives - self.lower_bounds) / np.where(self.objectives > 0.0, self.objectives, 1.0)


def start_state(settings: LabelNewton) -> State:
    """Return the state before the first pass: all labels at w = 0."""
    L, m, width = len(settings.costs), settings.side_by_side, settings.n_features + 1
    zeros = np.zeros((4, L))
    return State(
        best_w=np.zeros((L, width)),
        next_w=np.zeros((m, width)),
        base_w=np.zeros((m, width)),
        values=np.full(L, np.inf),
        slopes=zeros[0],
        lengths=np.ones(L),
        active=np.full(L, float(settings.n_rows)),
        statuses=np.full(L, "", "<U16"),
        objectives=settings.at_zero.copy(),
        lower_bounds=zeros[1],
        objective_errors=zeros[2],
        bound_errors=zeros[3],
        counts=np.zeros(L, np.int64),
        stuck=np.zeros(L, np.int64),
    )


def begin_next(settings: LabelNewton, state: State) -> State:
    """Return the state in which the next labels are worked on, all of them at w = 0."""
    points = {name: np.zeros_like(getattr(state, name)) for name in ("next_w", "base_w", "conjugates")}
    return replace(state, **points, first=state.first + settings.side_by_side)


@dataclass(frozen=True)
class Found:
    """What a pass has found of k labels: P, D less its rounding, how far both can be off, and the gradient (k, d+1)."""

    P: F64
    D: F64
    P_off: F64
    D_off: F64
    gradients: F64


def read_totals(settings: LabelNewton, W: F64, costs: F64, sums: F64, g: F64, squares: float) -> Found:
    """Return what the sums of a pass at W (k, d+1) tell. g (k, d+1): gradients of the losses, to which W is added."""
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


def copy_state(before: State) -> State:
    """Return the state after a pass, in arrays of its own, as it is before anything is noted."""
    arrays: dict[str, Any] = {
        name: value.copy() for name, value in vars(before).items() if isinstance(value, np.ndarray)
    }
    return replace(before, **arrays, passes=before.passes + 1)


def note_found(settings: LabelNewton, state: State, codes: I64, W: F64, found: Found) -> None:
    """Note the certificates of the labels with these codes, and which labels are done."""
    P, D = state.objectives[codes], state.lower_bounds[codes]
    lower, higher = found.P < P * (1.0 - LEAST_MOVE), found.D > D * (1.0 + LEAST_MOVE)
    state.stuck[codes] = np.where(lower | higher, 0, state.stuck[codes] + 1)
    better = (found.P < P) | (state.counts[codes] == 0)
    state.best_w[codes[better]] = W[better]
    state.objectives[codes[better]], state.objective_errors[codes[better]] = found.P[better], found.P_off[better]
    better = found.D > D
    state.lower_bounds[codes[better]], state.bound_errors[codes[better]] = found.D[better], found.D_off[better]
    state.counts[codes] += 1
    _find_statuses(settings, state, codes)


def take_step(settings: LabelNewton, before: State, codes: I64, totals: Totals) -> State:
    """Return the state after a pass at the next points of the labels with these codes."""
    state, W = copy_state(before), before.next_w[codes - before.first]
    found = read_totals(settings, W, settings.costs[codes], totals.sums, totals.gradients, totals.squares)
    note_found(settings, state, codes, W, found)
    state.active[codes] = np.maximum(totals.sums[ACTIVE], 1.0)
    for k, code in enumerate(codes.tolist()):
        if not state.statuses[code] and is_accepted(settings, state, code, W[k], found.P[k], found.P_off[k]):
            interrupts.check()
            step = _find_step(totals.curvatures[k], found.gradients[k])
            state.slopes[code] = float(found.gradients[k] @ step)
            state.next_w[code - state.first] = W[k] + step
    return state


def is_accepted(settings: LabelNewton, state: State, code: int, w: F64, P: float, off: float) -> bool:
    """Return whether the next step begins at w, and note it then; otherwise the step that led there is shortened.

    A start at which P is higher than at w = 0 is given up for w = 0: so it is if the rows of a sample do not stand for
    all rows, since a few of these have most of the weight.
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


def _find_statuses(settings: LabelNewton, state: State, codes: I64) -> None:
    """Note which labels are done: those with a gap that is proved, or that rounding does not let move any more."""
    P, D, off = state.objectives[codes], state.lower_bounds[codes], state.objective_errors[codes]
    proved = P - D + off <= settings.tol * P
    patience = np.where(ROUNDINGS * (off + state.bound_errors[codes]) >= P - D, 1, MORE_PATIENCE) * STUCK_STEPS
    state.statuses[codes[proved]] = "converged"
    state.statuses[codes[~proved & (state.stuck[codes] >= patience)]] = "stalled"


def _find_step(curvature: F32, gradient: F64) -> F64:
    """Return -M^-1 gradient."""
    _, factor = factorise(unpack_triangle(curvature, len(gradient)) + np.eye(len(gradient)))
    return -gradient if factor is None else -cho_solve((factor, False), gradient)
