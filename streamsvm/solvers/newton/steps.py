"""A pass of Newton's method: its sums over all rows, the step that follows, and the lower bounds that it proves.

    P(w) = 1/2 |w|^2 + L(w)
    L(w) = sum_i l_i(f_i),   g = sum_i l_i'(f_i) x_i,   H = sum_i l_i''(f_i) x_i x_i',   f_i = w.x_i

x_i has the constant feature as its last entry, and l_i contains the costs. A pass computes these sums at one point, and
L along a line to it. H is summed in two parts. The first takes the least second derivative of each loss while w stays
within a ball, and the second takes the rest.

The bounds rest on the value, the gradient and the curvature of P at one point w, and on bounds of their rounding
errors. The first bound follows from strong convexity, and is also D at the dual point a_i = -l_i'(f_i):

    P(w + v) >= P(w) - 1/2 |grad|^2                                       for every v,   grad = w + g

In a ball |u| <= r, with v = A'u, no score moves by more than r |A x_i|. Let H_r be the Hessian of L with the least
second derivative that each loss has within this distance, and M = I + H_r. Then

    P(w + v) >= P(w) + grad.v + 1/2 v'Mv                                                       for |u| <= r

If the right side is at least P(w) on the whole sphere |u| = r, then P is at least P(w) outside the ball, because it is
convex. So the minimiser lies inside, and P is at least P(w) - 1/2 grad'M^-1 grad. This bound is far higher than the
first one, which ignores the curvature of the losses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import cho_solve

from streamsvm.losses.convex import SmoothLoss, has_kinks
from streamsvm.numeric.equations import factorise, finish_matrix, invert_factor
from streamsvm.numeric.gram import TILE_ROWS, Curvature
from streamsvm.numeric.rounding import SMALLEST, bound_rounding
from streamsvm.numeric.row_norms import RowNorm, add_sizes, measure_scaled_rows
from streamsvm.numeric.rows import F64, I32, I64, CsrRows, Matrix, Rows, add_rows, choose_features, compute_scores
from streamsvm.passes import RowTotals, TriedBounds, axes, grows
from streamsvm.system import deadline
from streamsvm.system.errors import TimeLimitError

STEPS = (0.01, 0.1, 0.4, 1.0)  # where the loss is evaluated: shares of the line to w
SCORE_ROUNDINGS = 32  # roundings of a score on the line and of its error bound, in addition to those of its d+1 terms
NEXT_REACH = 0.2  # the ball's radius as a share of the step; near the minimiser, the step's error is far smaller
ROUNDINGS = 8.0  # the least radius of a ball, as a multiple of the gradient's error, which blurs the minimiser
LESS = 0.1  # the factor on the damping after a full step that lowered P
FIRST_PACE = 0.03  # the smallest factor on the width of the smoothing in one step
SLOW_PACE, SLOWEST_PACE = 0.5, 0.9  # the same after one step, and after many steps, whose lines had no lower P
HARDLY = 1e-8  # If a step is expected to lower P by at most this share, only the lower bound can still improve.
STUCK_STEPS = 10  # If neither P nor D has moved for this many steps, rounding is the limit.
CAUTION = 5.0  # The width does not shrink below this multiple of the expected error of a step.
BISECTIONS = 60
SAFE = 1e-9  # a relative margin for the rounding of eigenvalues and norms


@dataclass(frozen=True)
class Look:
    """The request of a pass: the loss, the ball, the steps on the line, and the features of H.

    loss: the loss of the rows. bias_feature: the value of the constant feature. norm and reach: the ball |u| <= reach
    of points w + A'u, where A is the matrix of the norm; no ball if reach is 0. steps: the steps at which the loss is
    evaluated, as shares of the line; the last one is 1. places (d,): the position of each feature in H, or -1 if H
    leaves it out; None if H has all features.
    """

    loss: SmoothLoss
    bias_feature: float
    norm: RowNorm
    reach: float = 0.0
    steps: tuple[float, ...] = STEPS
    places: I32 | None = None

    @property
    def n_bent(self) -> int | None:
        """The number of features in H; None for all."""
        return None if self.places is None else int(np.count_nonzero(self.places >= 0))


@dataclass
class Totals(RowTotals):
    """The sums of a pass.

    losses (k,): L at the steps of the line. gradient (d+1,): g at its end. least, rest: the two parts of H at the end
    of the line. If the loss has kinks, all these are sums of its smoothing. excess (k,) and slack: the sums of these
    fields of the rows' Smoothing (losses.convex), at the steps and at the line's end. tail (d+1,): the diagonal of sum
    tail_i x_i x_i' without the constant feature. slopes: sum |l_i'|.

    The other fields bound rounding errors, given a bound e_i on the error of the score of row i.
    errors (k,): the error of the losses due to the e_i. steep: sum |l_i'| |x_i|, with the steepest slopes if there are
    kinks. moved: sum k_i e_i |x_i|, where k_i is the largest second derivative within e_i of the score. steep_in_ball
    and moved_in_ball: the same sums with |x_i| replaced by sum_j |A e_j| |x_ij| and by |A x_i|.
    """

    gradient: F64
    least: Curvature
    rest: Curvature
    losses: F64
    errors: F64
    excess: F64
    tail: F64
    slack: float = 0.0
    slopes: float = 0.0
    steep: float = 0.0
    moved: float = 0.0
    steep_in_ball: float = 0.0
    moved_in_ball: float = 0.0


def start_totals(n_features: int, n_steps: int = len(STEPS), n_bent: int | None = None) -> Totals:
    """Return zero sums. n_bent: the number of features in H; None for all."""
    width, losses = n_features if n_bent is None else n_bent, np.zeros((3, n_steps))
    curvatures = Curvature(width), Curvature(width)
    gradient, tail = np.zeros((2, n_features + 1))
    return Totals(gradient, *curvatures, losses[0], errors=losses[1], excess=losses[2], tail=tail)


def add_totals(totals: Totals, rows: Rows, ends: F64, look: Look) -> None:
    """Add rows to the totals. ends (2, d+1): the start and the end of the line."""
    products = compute_scores(rows.X, ends[:, :-1]) if rows.scores is None else rows.scores
    first, last = (products + look.bias_feature * ends[:, -1]).T
    columns = look.norm.measure_columns() if look.reach > 0.0 else np.zeros(ends.shape[1])
    weights = np.stack((np.max(np.abs(ends), axis=0), columns))
    lengths, of_scores, of_norm = add_sizes(rows, weights, look.bias_feature)
    off = bound_rounding(ends.shape[1] + SCORE_ROUNDINGS, 1.0) * of_scores + SMALLEST
    for k, step in enumerate(look.steps):
        scores = last if k == len(look.steps) - 1 else first + step * (last - first)
        steep, slopes = _add_losses(totals, k, rows, scores, off, look.loss)
    used = np.flatnonzero(slopes)
    add_rows(totals.gradient[None, :], rows.X, used, np.zeros_like(used), slopes[used])
    totals.gradient[-1] += look.bias_feature * float(np.sum(slopes))
    sharp = off * look.loss.bend_most(rows, last, off)
    least = bent = look.loss.bend(rows, last, np.zeros(rows.n_rows))
    totals.steep += float(steep @ lengths)
    totals.moved += float(sharp @ lengths)
    if look.reach > 0.0:
        measured = measure_scaled_rows(look.norm, rows, look.bias_feature, of_norm)
        totals.steep_in_ball += float(steep @ of_norm)
        totals.moved_in_ball += float(sharp @ measured)
        least = np.minimum(bent, look.loss.bend(rows, last, look.reach * measured + off))
    own = rows if look.places is None else Rows(rows.start, choose_features(rows.X, look.places))
    totals.least.add(own, least, look.bias_feature)
    totals.rest.add(own, bent - least, look.bias_feature)


@np.errstate(over="ignore")  # totals that are not finite end the run
def _add_losses(totals: Totals, k: int, rows: Rows, scores: F64, off: F64, loss: SmoothLoss) -> tuple[F64, F64]:
    """Add the losses of step k, and their error bounds; return the magnitudes of the slopes, and the slopes."""
    losses, slopes = loss.measure(rows, scores)
    totals.losses[k] += np.sum(losses)
    if has_kinks(loss):
        smoothing = loss.smooth(rows, scores, off)
        totals.excess[k] += np.sum(smoothing.excess)
        totals.errors[k] += float(smoothing.steepest @ off)
        if k == len(totals.losses) - 1:
            totals.slack += float(np.sum(smoothing.slack))
            totals.slopes += float(np.sum(np.abs(slopes)))
            X, every = rows.X, np.arange(rows.n_rows)
            squares: Matrix = CsrRows(X.data**2, X.indices, X.indptr, X.n_features) if isinstance(X, CsrRows) else X**2
            add_rows(totals.tail[None, :-1], squares, every, np.zeros_like(every), smoothing.tail)
        return smoothing.steepest, slopes
    steep = np.abs(slopes)
    totals.errors[k] += float(steep @ off) + float(loss.sharpest(rows) @ off**2)
    return steep, slopes


def sum_rows(rows: Rows, ends: F64, look: Look) -> Totals:
    """Return the sums over rows in memory."""
    totals = start_totals(rows.X.shape[1], len(look.steps), look.n_bent)
    for tile in rows.cut(TILE_ROWS):
        deadline.check()
        add_totals(totals, tile, ends, look)
    return totals


@dataclass
class Iterates(TriedBounds):
    """The points, bounds and counts of Newton's method. Vectors are (d+1,), the weight of the constant feature last.

    best_w: the point with the lowest P. next_w: the point of the next pass. base_w, value: the point where the step to
    next_w began, and the smoothed P there. resident: the row numbers of the sample, empty after the first pass. n_rows:
    the number of rows.
    """

    best_w: F64 = axes("d")
    next_w: F64 = axes("d")
    base_w: F64 = axes("d")
    resident: I64 = grows("r", dtype=np.int64)
    value: float = float("inf")
    n_rows: int = 0
    row_numbers: ClassVar = ("resident",)
    kept: ClassVar[tuple[str, ...]] = ()  # the fields that `restart` keeps, in addition to the best point

    def restart(self) -> Self:
        """Return the start for a problem with other costs: at the best point, without a sample."""
        kept = {name: getattr(self, name) for name in ("n_rows", *self.kept)}
        return type(self)(self.best_w, self.best_w, self.best_w, **kept)

    def counted(self, before: Self) -> Self:
        """Return this state with one more pass counted, given the state before the pass."""
        return replace(self, passes=before.passes + 1, stuck=0 if self.has_moved(before) else before.stuck + 1)


@dataclass
class State(Iterates):
    """The state of a run with the penalty 1/2 |w|^2.

    width: the width of the smoothing, 0 before the first pass and for smooth losses. pace: the smallest factor on the
    width in one step. damping: the weight of the kinks' tails (`take_step`). A (d+1, d+1), reach: the ball of the
    next pass, |u| <= reach for points w + A'u; empty and 0 if there is no ball. raised: the number of the pass, counted
    from 0, in which rows near their kinks last raised the lower bound; 0 before the first such pass.
    """

    A: F64 = grows("k", "k")
    reach: float = 0.0
    width: float = 0.0
    pace: float = FIRST_PACE
    damping: float = 0.0
    raised: int = 0
    kept: ClassVar = ("width",)
    added: ClassVar = ("raised",)
    slow: ClassVar = True  # cutting planes that run beside it (newton.setup) go on even if they have fallen behind

    def check(self) -> None:
        """Raise ValueError if A is neither empty, as before the first pass, nor of the width of w."""
        if len(self.A) not in (0, len(self.best_w)):
            raise ValueError(f"A has {len(self.A)} rows instead of {len(self.best_w)}")


def take_step(state: State, look: Look, ends: F64, totals: Totals, smooth_share: float) -> State:
    """Return the state after a pass, with P, its lower bound, and the next point.

    smooth_share: the share of P that the smoothing of kinks may use.
    """
    point, hidden_before = make_point(ends[1], totals, look, state.n_rows), state.tried_rounding
    state = _raise_bound(state, look, point, totals.slack, totals.least)
    steps = np.array(look.steps)
    values, errors = measure_line(ends, steps, totals, state.n_rows)
    state = _note_best(state, ends, steps, values - totals.excess, errors)
    k, is_known = int(np.argmin(values)), bool(np.all(ends[0] == ends[1]))
    if is_known or (point.objective < state.value and point.objective <= float(values[k]) + float(errors[k])):
        damping = state.damping if is_known else LESS * state.damping
        try:
            M = finish_matrix(len(point.w), _sum_curvature, totals, damping)
        except TimeLimitError:  # A resumed run makes the step after another pass.
            return replace(state, base_w=point.w, value=point.objective, next_w=point.w, reach=0.0)
        state = replace(state, base_w=ends[1], value=point.objective, damping=damping)
        state, decrease = aim(state, point, M)
        is_rounding = float(np.linalg.norm(point.gradient)) <= point.gradient_error
        hidden = state.tried_rounding if is_rounding or decrease <= HARDLY * state.objective else 0.0
        return _shrink_width(replace(state, tried_rounding=hidden), totals, smooth_share * state.objective)
    state = replace(state, damping=1.0, tried_rounding=hidden_before)
    lowest = ends[0] + steps[k] * (ends[1] - ends[0])
    if float(values[k]) < state.value:  # The next pass computes the gradient there.
        return replace(state, base_w=lowest, value=float(values[k]), next_w=lowest, reach=0.0)
    if state.width > 0.0:  # The curvature of the step was valid only near its base: smooth more, and shrink less.
        pace = min(max(SLOW_PACE, float(np.sqrt(state.pace))), SLOWEST_PACE)
        return replace(state, next_w=state.base_w, reach=0.0, width=state.width / pace, pace=pace)
    return replace(state, next_w=ends[0] + steps[0] * (ends[1] - ends[0]), reach=0.0)


@np.errstate(invalid="ignore")  # a curvature that is not finite has no factor
def _sum_curvature(totals: Totals, damping: float) -> F64:
    """Return the curvature of P, I + H.

    Without curvature, a step would jump past all kinks. So the diagonal of H is raised for features with few rows near
    their kinks; for features with many such rows, the tails are below the diagonal.
    """
    H = totals.least.finish() + totals.rest.finish()
    H += np.diag(np.maximum(0.0, damping * totals.tail - np.diagonal(H)))
    return H + np.eye(len(H))


def _raise_bound(state: State, look: Look, point: Point, slack: float, least: Curvature) -> State:
    """Return the state with the lower bound proved at this point, if that is the highest. slack: see Totals."""
    unsure = bound_rounding(state.n_rows + 24, slack)
    below = replace(point, objective=point.objective - slack, objective_error=point.objective_error + unsure)
    bounds = [bound_by_gradient(below), bound_in_ball(below, look, least, state.n_rows)]
    value, rounding = max(bounds, key=lambda bound: bound[0] - bound[1])
    if value - rounding > state.lower_bound:
        return replace(state, lower_bound=value - rounding, bound_rounding=rounding, tried_rounding=0.0)
    tried = [error for bound, error in bounds if bound + error > state.lower_bound]  # Rounding may hide a better bound.
    return replace(state, tried_rounding=max(tried, default=0.0))


def _note_best(state: State, ends: F64, steps: F64, objectives: F64, errors: F64) -> State:
    """Return the state with the line's lowest point as its best point, if P is lower there.

    errors (k,): bounds on the errors of the objectives.
    """
    k, last = int(np.argmin(objectives)), len(steps) - 1
    k = last if float(objectives[last]) <= float(objectives[k]) + float(errors[k]) else k
    if not float(objectives[k]) < state.objective:
        return state
    w = ends[1] if k == last else ends[0] + steps[k] * (ends[1] - ends[0])
    return replace(state, best_w=w, objective=float(objectives[k]), objective_rounding=float(errors[k]))


def _shrink_width(state: State, totals: Totals, allowed: float) -> State:
    """Return the state with a smaller width if the smoothing takes more than `allowed` off the lower bound.

    This amount falls with the square of the width. The width stays wide enough for the expected error of the next step
    (CAUTION). The first width is the mean distance from the kinks.
    """
    taken, step = totals.slack - float(totals.excess[-1]), (state.reach / NEXT_REACH) ** 2 / 2
    if state.width == 0.0 and totals.slopes > 0.0:
        return replace(state, width=float(totals.losses[-1]) / totals.slopes)
    if taken > allowed:
        share = max(0.9 * float(np.sqrt(allowed / taken)), CAUTION * step / totals.slack)
        return replace(state, width=state.width * min(1.0, max(state.pace, share)))
    return state


def aim(state: State, point: Point, M: F64) -> tuple[State, float]:
    """Return the state with Newton's step from a point and the next pass's ball, and the expected decrease of P.

    M: the curvature of P.
    """
    M, factor = factorise(M)
    try:
        A = None if factor is None else finish_matrix(len(M), invert_factor, factor).T
    except TimeLimitError:
        A = None
    if factor is None or A is None:
        next_w = point.w if deadline.is_over() else point.w - point.gradient
        return replace(state, next_w=next_w, reach=0.0), float("inf")
    step = -cho_solve((factor, False), point.gradient)
    length = float(np.sqrt(max(0.0, float(step @ M @ step))))
    reach = max(NEXT_REACH * length, ROUNDINGS * point.error_in_ball)
    return replace(state, next_w=point.w + step, A=np.ascontiguousarray(A), reach=reach), length**2 / 2


@dataclass(frozen=True)
class Point:
    """A point w with P, its gradient, and bounds on their errors.

    objective_error: a bound on the error of P. gradient_error: a bound on the length of the gradient's error.
    error_in_ball: the same for A times this error, if the pass had a ball.
    """

    w: F64
    objective: float
    gradient: F64
    objective_error: float
    gradient_error: float
    error_in_ball: float


def make_point(w: F64, totals: Totals, look: Look, n_rows: int) -> Point:
    """Return the point at the end of the line of a pass.

    An error of a score changes the slope by the second derivative times the error. Each entry of a sum of n terms has
    an error of at most gamma_n times the sum of the terms' magnitudes, and |A v| <= sum_j |A e_j| |v_j| for an error v.
    """
    objectives, errors = measure_line(np.stack((w, w)), np.ones(len(totals.losses)), totals, n_rows)
    gradient, terms = w + totals.gradient, bound_rounding(n_rows + 24, 1.0)
    larger, sizes = 1.0 + 2 * terms + SAFE, np.abs(w) + np.abs(totals.gradient)
    of_sum = bound_rounding(len(w) + 24, float(look.norm.measure_columns() @ sizes))
    of_gradient = larger * (terms * totals.steep + totals.moved) + bound_rounding(4, float(np.linalg.norm(sizes)))
    in_ball = larger * (terms * totals.steep_in_ball + totals.moved_in_ball) + of_sum
    return Point(w, float(objectives[-1]), gradient, float(errors[-1]), of_gradient, in_ball)


def halve_squares(W: F64) -> Any:
    """Return 1/2 |w|^2 of points (k, d+1)."""
    return np.sum(W**2, axis=1) / 2


def measure_line(
    ends: F64, steps: F64, totals: Totals, n_rows: int, penalise: Callable[[F64], F64] = halve_squares
) -> tuple[F64, F64]:
    """Return P at the steps (k,) of the line between the ends (2, d+1), and bounds on its error, (k,) each.

    penalise: a function that returns the penalties of points (k, d+1).
    """
    points, terms = ends[0] + steps[:, None] * (ends[1] - ends[0]), bound_rounding(n_rows + 24, 1.0)
    largest = 2.0 * float(np.max(penalise(ends)))  # The points are rounded, too.
    errors = (1.0 + 2 * terms + SAFE) * totals.errors + terms * totals.losses
    return penalise(points) + totals.losses, errors + bound_rounding(ends.shape[1] + 24, largest)


def bound_by_gradient(point: Point) -> tuple[float, float]:
    """Return P - 1/2 |grad|^2, and a bound on its error."""
    length, error = float(np.linalg.norm(point.gradient)), point.gradient_error
    rounding = point.objective_error + error * length + error**2 / 2 + bound_rounding(len(point.w) + 8, length**2)
    return point.objective - length**2 / 2, rounding


def bound_in_ball(point: Point, look: Look, least: Curvature, n_rows: int) -> tuple[float, float]:
    """Return P - 1/2 grad'M^-1 grad, and a bound on its error; zeros if the minimiser may lie outside the ball.

    least: the sum H_r. With N = A M A', s = A grad and v = A'u, the bound is P plus the minimum of s.u + 1/2 u'Nu.
    If no eigenvalue of N is below l > 0, this minimum is at least s.u + 1/2 u'Nu - |Nu + s|^2 / (2 l) for every u.
    """
    none, width, error = (0.0, 0.0), len(point.w), point.error_in_ball
    if not look.reach > 0.0 or not np.isfinite(error):
        return none
    # The rounding of H_r's sums adds at most gamma_n d times the diagonal of H_r.
    off = bound_rounding(n_rows + 2 * width + 40, 1.0) * width
    try:
        N, slope, off, values, vectors = finish_matrix(width, _decompose, least, off, look.norm.A, point.gradient)
    except (np.linalg.LinAlgError, TimeLimitError):
        return none
    off += SAFE * float(np.max(np.abs(values)))
    values = values - 2 * off  # lower bounds on the eigenvalues of N - off I, rounding included
    unsure = SAFE * float(np.linalg.norm(slope)) + error
    if not values[0] > 0.0 or not bound_on_sphere(values, vectors.T @ slope, look.reach) >= unsure * look.reach:
        return none
    u = -vectors @ ((vectors.T @ slope) / values)
    terms, bent = np.abs(N) @ np.abs(u) + off * np.abs(u) + np.abs(slope), N @ u - off * u
    value = point.objective + float(slope @ u) + float(u @ bent) / 2
    left = float(np.linalg.norm(bent + slope)) + bound_rounding(width + 16, float(np.linalg.norm(terms)))
    rounding = point.objective_error + error * float(np.linalg.norm(u)) + (left + error) ** 2 / (2 * float(values[0]))
    own = bound_rounding(2 * width + 16, float(np.abs(u) @ terms) + abs(point.objective))
    return value, (1.0 + SAFE) * rounding + own


def _decompose(least: Curvature, off: float, A: F64, gradient: F64) -> tuple[F64, F64, float, F64, F64]:
    """Return N = A M A', s = A grad, a bound on the error of N in a matrix norm, and the eigenvalues and -vectors of N.

    least, off: M is I + H_r, less the share `off` of the diagonal of H_r for its rounding. Raises LinAlgError if N has
    a negative eigenvalue, or if the numbers are not finite.
    """
    H = least.finish()
    M = np.eye(len(H)) + H - np.diag(off * np.diagonal(H))
    np.linalg.cholesky(M)  # fails if N has a negative eigenvalue; takes a fiftieth of the time of eigh
    with np.errstate(all="ignore"):
        N, slope = A @ M @ A.T, A @ gradient
        sizes = float(np.linalg.norm(np.abs(A) @ np.abs(M) @ np.abs(A).T))
        off = bound_rounding(3 * len(M) + 16, sizes)
    if not np.isfinite(off + float(np.linalg.norm(slope))):
        raise np.linalg.LinAlgError
    return N, slope, off, *np.linalg.eigh((N + N.T) / 2)


def bound_on_sphere(values: F64, slopes: F64, radius: float) -> float:
    """Return a lower bound on s.u + 1/2 sum_k l_k u_k^2 over |u| = radius. values: l, ascending. slopes: s.

    For every v > -l_1 the Lagrangian gives the lower bound -1/2 sum_k s_k^2 / (l_k + v) - 1/2 v radius^2. The best v is
    found by bisection on the derivative, but every v gives a valid bound.
    """
    low, high = -float(values[0]), float(np.linalg.norm(slopes)) / radius
    high = max(high - float(values[0]), low + SAFE)
    best = float("-inf")
    for _ in range(BISECTIONS):
        v = (low + high) / 2
        shifted = values + v
        if not shifted[0] > 0.0:
            break
        best = max(best, -float(np.sum(slopes**2 / shifted) + v * radius**2) / 2)
        low, high = (v, high) if float(np.sum((slopes / shifted) ** 2)) > radius**2 else (low, v)
    return best
