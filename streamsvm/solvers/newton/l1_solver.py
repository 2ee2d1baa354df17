"""Newton's method with the penalty |w|_1 instead of 1/2 |w|^2; at the minimum, few weights differ from 0.

    P(w) = |w|_1 + L(w),   L(w) = sum_i l_i(w.x_i)                     bias: a constant feature, penalised

The solver first minimises P on a sample of the rows in memory. Then each pass computes P, its gradient, and the second
derivatives for some features at a point w. With the gradient g and the Hessian H of L, the next point minimises

    q(z) = g.(z - w) + 1/2 (z - w)'H(z - w) + |z|_1

(Yuan, Ho & Lin 2012, "An improved GLMNET for l1-regularized logistic regression", JMLR 13). If there are many features,
a step changes only the weights that are not 0 and those that are closest to leaving 0.

`minimise_model` minimises q. A few rounds of coordinate descent determine which entries of z are 0, and the signs of
the others. On the face with these signs q is quadratic, and a Cholesky factor gives its minimiser. So strongly
correlated features, which slow down coordinate descent, cost nothing extra.

The lower bound D follows from the convexity of L. Losses are not negative, so the minimiser z of P has
|z|_1 <= P(z) <= R, where R is P at any point. Hence

    P(z) >= |z|_1 + L(w) + g.(z - w) >= L(w) - g.w - max(0, max_j |g_j| - 1) R = D

At the minimiser D equals P, since there |g_j| <= 1, and g_j = -sign w_j where w_j is not 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numba import njit
from scipy.linalg import cho_solve

from streamsvm.numeric.equations import factorise
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.passes import grows
from streamsvm.solvers.newton.solver import Newton
from streamsvm.solvers.newton.steps import SAFE, STEPS, Iterates, Look, Totals, measure_line, sum_rows
from streamsvm.system import deadline, interrupts

TOL = 1e-7  # Descent ends once a round changes each slope by at most this; at the minimum, slopes are at most 1.
ROUNDS = 8  # rounds of coordinate descent before a step on a face
FEW_FACES, MOST_FACES = 20, 200
DAMPING = 1e-12  # Each second derivative is raised by this share of itself.
FEW_FEATURES = 200  # at least this number of features of weight 0 may get a weight in a step
SAME = 1e-12  # the end of a step is accepted even if P, due to rounding, is higher by up to this share
SAMPLE_SHARE = 0.1  # the gap on the sample, as a share of the requested gap
STAGE, STAGE_TOL = 3.0, 1e-2  # the factor of the costs from stage to stage in memory, and the gap at which a stage ends
MOST_STEPS = 100  # the maximum number of steps of a stage
SLOW, SLOW_STEPS = 1e-4, 5  # A stage ends after SLOW_STEPS steps in which P and D moved by no more than the share SLOW.
FEW_STEPS = (0.1, 0.4, 1.0)  # where P is evaluated along a step in memory


def minimise_model(H: F64, gradient: F64, w: F64) -> F64:
    """Return the minimiser z (m,) of q, or, after MOST_FACES faces, a point where q is lower than at w."""
    H = H + np.diag(DAMPING * np.diagonal(H))
    z, slopes = w.copy(), gradient.copy()
    for k in range(MOST_FACES):
        largest = descend(H, z, slopes, ROUNDS)
        if largest <= TOL:
            break
        while _move_on_face(H, z, slopes) and k >= FEW_FACES:  # Descent may undo new zeros.
            pass
    return z


def _move_on_face(H: F64, z: F64, slopes: F64) -> bool:
    """Move z, in place, towards the minimiser on its face; return whether an entry has become 0.

    slopes: g + H (z - w), updated in place. All entries that would change sign become 0 if q is lower that way;
    otherwise the move ends where the first of them becomes 0.
    """
    free = np.flatnonzero(z)
    factor = factorise(H[np.ix_(free, free)])[1] if len(free) else None
    if factor is None:
        return False
    step = -cho_solve((factor, False), slopes[free] + np.sign(z[free]))
    ends = np.divide(-z[free], step, out=np.full(len(free), np.inf), where=step * z[free] < 0.0)
    first = int(np.argmin(ends))
    shorter = min(1.0, float(ends[first])) * step
    if ends[first] <= 1.0:
        shorter[first] = -z[free[first]]
    columns = H[:, free]
    changes = [np.where(ends <= 1.0, -z[free], step), shorter]
    moved = [columns @ change for change in changes]
    lower = [_compare(slopes[free], own[free], z[free], change) for own, change in zip(moved, changes, strict=True)]
    best = int(np.argmin(lower))
    z[free] += changes[best]
    slopes += moved[best]
    return int(np.count_nonzero(z)) < len(free)


def _compare(slopes: F64, moved: F64, z: F64, change: F64) -> float:
    """Return q at z + change minus q at z. moved: H change."""
    return float(slopes @ change + moved @ change / 2 + np.sum(np.abs(z + change) - np.abs(z)))


@njit(cache=True, nogil=True)
def descend(H: F64, z: F64, slopes: F64, rounds: int) -> float:
    """Lower q by rounds of coordinate descent, in place; return the last round's largest change of a slope."""
    largest = 0.0
    for _ in range(rounds):
        largest = 0.0
        for j in range(z.size):
            h = H[j, j]
            if h <= 0.0:
                continue
            middle, new = z[j] * h - slopes[j], 0.0
            if middle > 1.0:
                new = (middle - 1.0) / h
            elif middle < -1.0:
                new = (middle + 1.0) / h
            step = new - z[j]
            if step != 0.0:
                z[j] = new
                slopes += step * H[j]
                largest = max(largest, abs(step) * h)
        if largest == 0.0:
            break
    return largest


@dataclass
class L1State(Iterates):
    """The state of a run. features: the features whose second derivatives the next pass computes, ascending."""

    features: I64 = grows("f", dtype=np.int64)
    kept: ClassVar = ("features",)

    def check(self) -> None:
        """Raise ValueError if a feature number is out of range."""
        if len(self.features) and not 0 <= int(self.features[0]) <= int(self.features[-1]) < len(self.best_w) - 1:
            raise ValueError(f"some features are not in the range from 0 to {len(self.best_w) - 2}")


def choose_features(settings: L1Newton, w: F64, gradient: F64) -> I64:
    """Return the features whose weights may change in the next step, ascending.

    These are the features with a nonzero weight, and an equal number of other features (at least FEW_FEATURES) with the
    steepest slopes. Adding more at once would add too many in total (Massias, Gramfort & Salmon 2018, "Celer: a fast
    solver for the lasso with dual extrapolation"). If most_features or more features have a nonzero weight, the
    features that most violate the conditions of the minimum are returned.
    """
    used, slopes = w[:-1] != 0.0, np.abs(gradient[:-1])
    n_used, most = int(np.count_nonzero(used)), settings.most_features
    urgent = np.where(used, np.inf, slopes)
    if n_used >= most:
        urgent = np.where(used, np.abs(gradient[:-1] + np.sign(w[:-1])), slopes - 1.0)
    return np.sort(np.argsort(-urgent, kind="stable")[: min(most, n_used + max(FEW_FEATURES, n_used))])


def _note_best(state: L1State, ends: F64, steps: F64, values: F64, errors: F64) -> L1State:
    """Return the state with the line's best point, if P there is lower than before even with its rounding.

    values, errors (k,): P at the steps of the line, and bounds of its rounding.
    """
    k = int(np.argmin(values + errors))
    if not values[k] + errors[k] < state.objective + state.objective_rounding:
        return state
    point = ends[1] if k == len(steps) - 1 else ends[0] + steps[k] * (ends[1] - ends[0])
    return replace(state, best_w=point, objective=float(values[k]), objective_rounding=float(errors[k]))


def _raise_bound(state: L1State, w: F64, totals: Totals, value: float, error: float) -> L1State:
    """Return the state with the lower bound proved at the end of the line, if it is higher than the present bound.

    The length of the gradient's error (newton.steps) bounds the error of each entry. A new bound counts only if it
    exceeds the present bound, which is not negative. Then the term subtracted for |g_j| > 1 is no larger than the other
    terms, whose rounding is already covered.
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


@dataclass(frozen=True)
class L1Newton(Newton):
    """Settings of the solver.

    most_features: the maximum number of features whose weights a step changes, not counting the constant feature.
    """

    most_features: int = field(kw_only=True)
    state: ClassVar[type[Any]] = L1State

    def start(self, n_rows: int, n_features: int, is_shuffled: bool = False) -> L1State:
        """Return the state before the first pass; the weights of the first features may change in it."""
        state: L1State = super().start(n_rows, n_features, is_shuffled)
        return replace(state, features=np.arange(min(n_features, self.most_features)))

    def make_look(self, state: L1State, steps: tuple[float, ...] = STEPS) -> Look:
        """Return the request of the next pass."""
        places = np.full(len(state.best_w) - 1, -1, np.int32)
        places[state.features] = np.arange(len(state.features))
        return Look(self.loss, self.bias_feature, RowNorm(np.empty((0, 0))), 0.0, steps, places)

    def minimise_sample(self, state: L1State, sample: Rows) -> L1State:
        """Return the state with the sample's minimiser as the next point. Each sample row represents n / m rows.

        P is minimised for smaller costs first, starting with costs for which w = 0 is nearly optimal. So no step has
        many more nonzero weights than the minimiser.
        """
        rows, none = sample.weigh(state.n_rows / sample.n_rows), np.zeros_like(state.best_w)
        own = L1State(none, none, none, features=state.features[:1], n_rows=state.n_rows)
        gradient = sum_rows(rows, np.stack((none, none)), self.make_look(own, (1.0,))).gradient
        steepest = float(np.max(np.abs(gradient)))
        own = replace(own, features=choose_features(self, none, gradient))
        for share in STAGE ** np.arange(np.ceil(np.log(max(steepest, 1.0)) / np.log(STAGE)), 0.0, -1.0):
            own = _minimise(self, own, rows.weigh(1.0 / share), STAGE_TOL)
            if deadline.is_over():
                break
        else:
            own = _minimise(self, own, rows, SAMPLE_SHARE * self.tol)
        return replace(state, resident=own.resident, next_w=own.best_w, features=own.features)

    def take_step(self, state: L1State, look: Look, ends: F64, totals: Totals) -> L1State:
        """Return the state after a pass, with P, its lower bound, and the next point.

        The step is accepted if P is lowest at its end, rounding aside, or if the line is a single point. The next point
        is then the model's minimiser over the weights of state.features and of the constant feature, with the others
        fixed. Otherwise the next pass is at the lowest point on the line, or near the start of the line if P is nowhere
        lower.
        """
        steps = np.array(look.steps)
        values, errors = measure_line(ends, steps, totals, state.n_rows, lambda W: np.sum(np.abs(W), axis=1))
        last = float(values[-1])
        state = _raise_bound(_note_best(state, ends, steps, values, errors), ends[1], totals, last, float(errors[-1]))
        lowest, is_known = int(np.argmin(values)), bool(np.all(ends[0] == ends[1]))
        if is_known or (last < state.value * (1.0 + SAME) and last <= float(values[lowest] + errors[lowest])):
            places, aimed = np.append(state.features, ends.shape[1] - 1), ends[1].copy()
            aimed[places] = minimise_model(totals.least.finish(), totals.gradient[places], aimed[places])
            features = choose_features(self, aimed, totals.gradient)
            return replace(state, base_w=ends[1], value=last, next_w=aimed, features=features)
        point = ends[0] + steps[lowest] * (ends[1] - ends[0])
        if values[lowest] < state.value:
            return replace(state, base_w=point, value=float(values[lowest]), next_w=point)
        return replace(state, next_w=ends[0] + steps[0] * (ends[1] - ends[0]))


def _minimise(settings: L1Newton, state: L1State, rows: Rows, tol: float) -> L1State:
    """Return the state at the minimiser for rows in memory, to the relative gap tol or until progress stalls."""
    w, unknown, slow = state.best_w, float("inf"), 0
    state = replace(state, base_w=w, next_w=w, objective=unknown, value=unknown, lower_bound=0.0)
    for _ in range(MOST_STEPS):
        interrupts.check()
        look, ends = settings.make_look(state, FEW_STEPS), np.stack((state.base_w, state.next_w))
        before, state = state, settings.take_step(state, look, ends, sum_rows(rows, ends, look))
        has_moved = state.value < before.value * (1.0 - SLOW) or state.lower_bound > before.lower_bound * (1.0 + SLOW)
        slow = 0 if has_moved else slow + 1
        if slow == SLOW_STEPS or state.progress.is_proved(tol) or deadline.is_over():
            break
    return state
