"""Newton's method for weights whose absolute values are penalised: its state, and a step from what a pass has found.

    P(w) = |w|_1 + L(w),   L(w) = sum_i l_i(w.x_i)                     bias: a constant feature, penalised

With the gradient g and the Hessian H of L at a point w, the next point minimises the model

    g.(z - w) + 1/2 (z - w)'H(z - w) + |z|_1

(newton.l1_model; Yuan, Ho & Lin 2012, "An improved GLMNET for l1-regularized logistic regression", JMLR 13). Where
there are many features, only some of them change in a step: those whose weights are not 0 or are nearest to leaving 0.

The minimiser z of P has |z|_1 <= P(z) <= R, where R is P of any point, since losses are not negative. As L is convex,

    P(z) >= |z|_1 + L(w) + g.(z - w) >= L(w) - g.w - max(0, max_j |g_j| - 1) R

is a lower bound D. At the minimiser it is P, since there |g_j| <= 1, and g_j = -sign w_j where w_j is not 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from streamsvm.methods.newton.bounds import SAFE
from streamsvm.methods.newton.l1_model import minimise_model
from streamsvm.methods.newton.sums import STEPS, Look, Totals
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import F64, I64
from streamsvm.numeric.smooth_loss import SmoothLoss
from streamsvm.requests import Progress

FEW_FEATURES = 200  # without a weight, of which some may get one in a step
SAME = 1e-12  # relative: at the end of a step P may be higher by rounding, while its gradient tells more


@dataclass(frozen=True)
class L1Newton:
    """Settings of the solver.

    loss: the rows' losses l_i, which contain the costs; resident_rows: how many rows the sample has; most_features: how
    many weights may change in a step, beside that of the constant feature; tol: the relative gap to reach;
    bias_feature: the value of the constant feature; seed: of the sample.
    """

    loss: SmoothLoss
    resident_rows: int
    most_features: int
    tol: float = 1e-3
    bias_feature: float = 1.0
    seed: int = 0


@dataclass
class L1State:
    """All that changes. Vectors are (d+1,); their last entry is the weight of the constant feature.

    best_w: the point with the lowest P; next_w: where the next pass looks; base_w, value: where the step to it began,
    and P there; features: those whose second derivatives the next pass finds, ascending, beside the constant feature;
    resident: the numbers of the
    sample's rows, of which none are left after the first pass. The others are as in newton.steps.
    """

    best_w: F64
    next_w: F64
    base_w: F64
    features: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    resident: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    value: float = float("inf")
    n_rows: int = 0
    objective: float = float("inf")
    lower_bound: float = 0.0
    passes: int = 0
    stuck: int = 0
    objective_rounding: float = 0.0
    bound_rounding: float = 0.0
    tried_rounding: float = 0.0
    shapes: ClassVar = {"best_w": ("d",), "next_w": ("d",), "base_w": ("d",), "features": ("f",), "resident": ("r",)}
    row_numbers: ClassVar = ("resident",)

    @property
    def progress(self) -> Progress:
        """The objective, the lower bound, and the rounding of both."""
        tried = self.objective_rounding + self.tried_rounding if self.tried_rounding > 0.0 else 0.0
        own = self.objective_rounding + self.bound_rounding
        return Progress(self.objective, self.lower_bound, self.passes, own, tried, self.bound_rounding)

    def check(self) -> None:
        """Raise ValueError if a feature has a number that no weight has."""
        if len(self.features) and not 0 <= int(self.features[0]) <= int(self.features[-1]) < len(self.best_w) - 1:
            raise ValueError(f"features are not from 0 to {len(self.best_w) - 2}")


def make_look(settings: L1Newton, state: L1State, steps: tuple[float, ...] = STEPS) -> Look:
    """Return what the next pass looks for."""
    places = np.full(len(state.best_w) - 1, -1, np.int32)
    places[state.features] = np.arange(len(state.features))
    return Look(settings.loss, settings.bias_feature, RowNorm(np.empty((0, 0))), 0.0, steps, places)


def take_step(settings: L1Newton, state: L1State, look: Look, ends: F64, totals: Totals) -> L1State:
    """Return the state with what a pass has found: P and its lower bound, and the next point.

    The step is accepted if P is lowest at its end, rounding aside, or if the line is a single point. Otherwise the next
    pass looks at the lowest point on the line, or near the start of the line if P is nowhere lower.
    """
    steps = np.array(look.steps)
    values, errors = _measure_line(ends, steps, totals, state.n_rows)
    last = float(values[-1])
    state = _raise_bound(_note_best(state, ends, steps, values, errors), ends[1], totals, last, float(errors[-1]))
    lowest, is_known = int(np.argmin(values)), bool(np.all(ends[0] == ends[1]))
    if is_known or (last < state.value * (1.0 + SAME) and last <= float(values[lowest] + errors[lowest])):
        state = replace(state, base_w=ends[1], value=last, next_w=_aim(state, ends[1], totals))
        return replace(state, features=choose_features(settings, state.next_w, totals.gradient))
    point = ends[0] + steps[lowest] * (ends[1] - ends[0])
    if values[lowest] < state.value:
        return replace(state, base_w=point, value=float(values[lowest]), next_w=point)
    return replace(state, next_w=ends[0] + steps[0] * (ends[1] - ends[0]))


def choose_features(settings: L1Newton, w: F64, gradient: F64) -> I64:
    """Return the features whose weights may change in the next step, ascending.

    They are those with a weight, and as many others, with the steepest slopes; more of these at once would be too many
    in the end (Massias, Gramfort & Salmon 2018, "Celer: a fast solver for the lasso with dual extrapolation"). If there
    is no room for all that have a weight, they are those that are farthest from the conditions of the minimum.
    """
    used, slopes = w[:-1] != 0.0, np.abs(gradient[:-1])
    n_used, most = int(np.count_nonzero(used)), settings.most_features
    urgent = np.where(used, np.inf, slopes)
    if n_used >= most:
        urgent = np.where(used, np.abs(gradient[:-1] + np.sign(w[:-1])), slopes - 1.0)
    return np.sort(np.argsort(-urgent, kind="stable")[: min(most, n_used + max(FEW_FEATURES, n_used))])


def _measure_line(ends: F64, steps: F64, totals: Totals, n_rows: int) -> tuple[F64, F64]:
    """Return P at the steps (k,) of the line between the ends (2, d+1), and how far it can be off, (k,) each."""
    sums = np.array([np.sum(np.abs(ends[0] + step * (ends[1] - ends[0]))) for step in steps])
    largest = 2.0 * float(np.max(np.sum(np.abs(ends), axis=1)))  # the point is rounded, too
    of_sums = bound_rounding(n_rows + 24, 1.0) * totals.losses
    errors = (1.0 + 2 * bound_rounding(n_rows + 24, 1.0) + SAFE) * totals.errors
    return sums + totals.losses, errors + of_sums + bound_rounding(ends.shape[1] + 24, largest)


def _note_best(state: L1State, ends: F64, steps: F64, values: F64, errors: F64) -> L1State:
    """Return the state with the best point of the line, if it is better, rounding included."""
    k = int(np.argmin(values + errors))
    if not values[k] + errors[k] < state.objective + state.objective_rounding:
        return state
    point = ends[1] if k == len(steps) - 1 else ends[0] + steps[k] * (ends[1] - ends[0])
    return replace(state, best_w=point, objective=float(values[k]), objective_rounding=float(errors[k]))


def _raise_bound(state: L1State, w: F64, totals: Totals, value: float, error: float) -> L1State:
    """Return the state with the lower bound that the end of the line proves, if it is higher.

    The length of the gradient's error (newton.bounds) bounds the error of each entry. A bound counts only if it is
    above a lower bound that is not negative. Then what is taken off beyond |g_j| = 1 is no larger than the other terms,
    whose rounding `own` allows for.
    """
    gradient, terms, size = totals.gradient, bound_rounding(state.n_rows + 24, 1.0), float(np.sum(np.abs(w)))
    off = (1.0 + 2 * terms + SAFE) * (terms * totals.steep + totals.moved)
    product = float(gradient @ w)
    own = bound_rounding(len(w) + 24, float(np.abs(gradient) @ np.abs(w)) + size + abs(value))
    beyond = max(0.0, float(np.max(np.abs(gradient))) + off - 1.0) * (state.objective + state.objective_rounding)
    bound, rounding = value - size - product - beyond, error + off * size + own
    hidden = rounding + beyond - max(0.0, float(np.max(np.abs(gradient))) - 1.0) * state.objective
    if bound - rounding > state.lower_bound:
        return replace(state, lower_bound=bound - rounding, bound_rounding=hidden, tried_rounding=0.0)
    return replace(state, tried_rounding=hidden if bound + hidden > state.lower_bound else 0.0)


def _aim(state: L1State, w: F64, totals: Totals) -> F64:
    """Return the point where the model is least, if the weights of other features stay as they are."""
    places = np.append(state.features, len(w) - 1)
    H = totals.least.finish()
    aimed = w.copy()
    aimed[places] = minimise_model(H, totals.gradient[places], w[places])
    return aimed
