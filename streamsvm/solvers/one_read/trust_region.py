"""The centre of the next pass of one_read.solver: the minimiser of a model of P within a trust radius.

    1/2 |w|^2 + max(f_S(w) + h.w + r, max_c b_c - w.a_c),     h = f'(w_b) - f_S'(w_b),   r = f(w_b) - f_S(w_b) - h.w_b

f is the loss of all rows, f_S the weighted loss of the sample in memory, w_b the best point so far, and (a_c, b_c) are
the cuts of all rows (cutting_plane.cuts). The correction by h and r gives f_S the value and the slope of f at w_b. The
maximum keeps the model at or above all known cuts. The model is minimised by cutting planes: a cut (a, b) of f_S gives
the cut (a - h, b + r) of the corrected loss.

The first centre is the minimiser of a sample, or the start if the sample has all rows. Later centres are minimisers of
the model. A minimiser beyond the trust radius is pulled towards the best point, and the radius grows or shrinks with
the accuracy of the model. If two passes were not enough, later passes also make cuts over all rows at the points of the
sample's active cuts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from streamsvm.losses.hinge import add_to_totals
from streamsvm.numeric.row_norms import RowNorm, make_norm
from streamsvm.numeric.rows import F64, Rows
from streamsvm.solvers.cutting_plane import line_search
from streamsvm.solvers.cutting_plane.cuts import RowSums
from streamsvm.solvers.cutting_plane.near_rows import choose_rows, find_margins, find_reach
from streamsvm.solvers.cutting_plane.score_model import minimise_by_cuts
from streamsvm.solvers.cutting_plane.smoothed_newton import HingeRows, Linear, minimise_rows, read_rows
from streamsvm.solvers.one_read.state import OneRead, State, look_at_centre

INNER_STEPS = 60  # the maximum number of steps on the sample between two passes
KEPT_POINTS = 50  # points from old samples at which a new sample first gets cuts, before it is minimised
POINTS = 16  # the maximum number of points of the sample's active cuts at which a pass makes cuts of all rows
TILE_ROWS = 4096  # rows of the sample whose scores at all points are held at once
STEPS = 2.0 ** (np.arange(-14, 1) / 1.5)  # cut steps on a line
SAMPLE_SHARE = 0.1  # the sample's problem is solved to this share of the current gap
MODEL_SHARE = 0.05  # the model is minimised to this share of the tolerance
FIRST_TOL, HALF_TOL = 1e-4, 1e-2  # gaps for the first sample and for its halves, whose sampling error is larger
PULLED_TOL = 1e-3  # a pulled model is minimised to this gap: its minimiser only starts a step
FIRST_PULL = 3e-3  # the first pull adds about this share of P at the trust radius
STRONGER = 10.0  # the factor from each pull to the next
MOST_PULLS = 8  # the maximum number of pulls; the last is ten million times as strong as the first
GROWS, SHRINKS = 1.5, 0.4  # the trust radius after a good and after a bad step, as a multiple of the step
NOT_FAR = 2.0  # a given point is used up to this multiple of the expected error of the sample's minimiser
FARTHEST = 1e100  # the trust radius if nothing limits a step
GOOD, BAD = 0.7, 0.2  # a step is good above, and bad below, this share of the decrease that the model promised
FIRST_PASSES = 2  # this many passes make cuts at two points only; later passes also at points of the sample's cuts
STUCK_PASSES = 5  # after this many passes that moved neither P nor D, rounding makes the sample's cuts useless
VIOLATED = 0.1  # cuts may exceed the model by this share of the decrease that the model promises


def minimise_model(settings: OneRead, rows: Rows, model: Linear, state: State) -> tuple[State, F64]:
    """Minimise the model; return the state, with points for cuts of the next sample, and points for cuts over all rows.

    The first three points for cuts over all rows are the best point so far, the model's minimiser, and the minimiser of
    the model's master problem.
    """
    known = line_search.read_cuts(_cut(rows, settings, state.points))
    share = SAMPLE_SHARE * max(1.0 - state.lower_bound / state.objective, settings.tol)
    search = partial(search_line, rows, settings)
    best, master_w, points, z = minimise_by_cuts(search, model, state, state.points, known, share, INNER_STEPS)
    order = np.argsort(-z, kind="stable")[:POINTS]
    W = np.concatenate((np.stack((state.best_w, best, master_w)), points[order[z[order] > 0.0]]))
    return replace(state, points=points[-KEPT_POINTS:]), W


def search_line(rows: Rows, settings: OneRead, ends: F64) -> tuple[F64, F64, RowSums]:
    """Return points of the segment between the ends (2, d+1), and the losses and cuts of the sample there."""
    totals, class_costs = line_search.start_totals(len(STEPS), ends.shape[1]), np.array(settings.class_costs)
    add_to_totals(totals, rows, ends, class_costs, STEPS, settings.bias_feature)
    found = line_search.read_segment(ends, STEPS, totals)
    return found.W, found.losses, found.cuts


def _cut(rows: Rows, settings: OneRead, W: F64) -> line_search.PointTotals:
    totals, class_costs = line_search.start_points(len(W), W.shape[1]), np.array(settings.class_costs)
    for tile in rows.cut(TILE_ROWS):
        line_search.add_points(totals, tile, W, class_costs, settings.bias_feature)
    return totals


@dataclass(frozen=True)
class Aim:
    """The points and the line that a pass at a centre evaluates, in addition to finding the rows near the margin.

    W (k, d+1): the points for cuts over all rows: the best point so far, the centre, and any others. end (d+1,): the
    end of the line search from the best point. expected: the model's value of P at the centre. stepped: the distance
    from the best point to the centre.
    """

    W: F64
    end: F64
    expected: float = 0.0
    stepped: float = 0.0


def choose_centre(settings: OneRead, state: State, sample: Rows) -> tuple[State, Aim]:
    """Choose the next centre; return the state with this centre, and the points and the line of the pass."""
    if not len(state.A):
        state = _choose_first(settings, state, sample)
        return state, Aim(np.stack((state.best_w, state.centre)), state.centre)
    norm, data = RowNorm(state.A), read_rows(settings, sample, settings.threads)
    at_best = _cut(sample, settings, state.best_w[None, :])
    h = line_search.read_cuts(at_best).vectors[0] - state.best_cut
    r = state.loss - float(at_best.losses[0]) - float(h @ state.best_w)
    model, M = Linear(-h, r), norm.find_scatter()
    free = minimise_rows(data, model, MODEL_SHARE * settings.tol, state.best_w).w
    near = replace(state, trust=min(state.trust, _find_room(state, M)))
    w = _pull(near, data, model, M, free)
    expected = _evaluate(data, model, w)
    above = float(np.max(state.offsets - state.cuts @ w, initial=0.0)) + float(w @ w) / 2 - expected
    W, end = np.stack((state.best_w, w)), w
    is_moving = state.stuck < STUCK_PASSES
    is_below = is_moving and above > VIOLATED * max(state.objective - expected, 0.0)
    if is_below or (is_moving and state.passes >= FIRST_PASSES):
        state, points = minimise_model(settings, sample, model, state)
        W = np.concatenate((W, points[1:]))
    if is_below:
        end = W[2]
        w = _go_on(M, near, state.best_w, end)
        W, expected = np.concatenate((W[:1], w[None, :], W[2:])), _evaluate(data, model, w)
    stepped, predicted = _measure(M, w - state.best_w), _measure(M, free - state.centre) / 2
    return replace(state, centre=w, predicted=predicted), Aim(W, end, expected, stepped)


def _choose_first(settings: OneRead, state: State, sample: Rows) -> State:
    """Return the state with the sample's minimiser as its centre.

    The distance between the minimisers of the two halves of the sample is about twice the distance from the sample's
    minimiser to the minimiser over all rows. The minimiser of one half also shows how near the margin the rows of the
    other half are. If the sample has all rows, the pass keeps all of them and F equals P everywhere, so any centre will
    do and neither estimate is needed.
    """
    norm, none = make_norm(sample, settings.bias_feature), Linear(np.zeros(len(state.best_w)), 0.0)
    if sample.n_rows == state.n_rows:
        return replace(state, A=norm.A, trust=FARTHEST)
    w = minimise_rows(read_rows(settings, sample, settings.threads), none, FIRST_TOL, state.centre).w
    given = state.centre
    halves = [choose_rows(sample, np.arange(k, sample.n_rows, 2)) for k in range(2)]
    data = [read_rows(settings, half, settings.threads) for half in halves]
    ends = [minimise_rows(replace(half, costs=2 * half.costs), none, HALF_TOL, w).w for half in data]
    predicted = norm.bound_move(ends[0] - ends[1])[0] / 2
    if np.any(given) and norm.bound_move(given - w)[0] <= NOT_FAR * predicted:
        w = given  # the sample cannot rule out that `given` is optimal, and more rows were used to find it
    state = replace(state, centre=w, A=norm.A, predicted=predicted, trust=GROWS * predicted or FARTHEST)
    look = replace(look_at_centre(settings, state), w=ends[0])
    reach = np.sort(find_reach(look, halves[1], find_margins(look, halves[1], data[1].y)))
    widest = float(reach[min(int(look.most / state.n_rows * len(reach)), len(reach) - 1)])
    return replace(state, widest=widest)


def _find_room(state: State, M: F64) -> float:
    """Return the largest distance from the best point to a second centre whose pass reads only the undecided rows.

    All other rows keep their sides within this distance (one_read.solver). If the second pass is not enough, later
    passes may go farther.
    """
    room = 0.999 * (state.apart_radius - _measure(M, state.best_w - state.apart))
    return room if state.passes == 1 and room > 0.0 else FARTHEST


def _pull(state: State, data: HingeRows, model: Linear, M: F64, free: F64) -> F64:
    """Return the model's minimiser `free`, or the lowest point of the model found within the trust radius.

    A pull adds strength / 2 |w - w_b|^2 to the model. Divided by 1 + strength, the sum is a model with smaller costs
    and another linear term. Each pull is stronger than the pull before, until the minimiser lies within the radius. The
    model falls on the way from there to the minimiser of the pull before, which is outside the radius. The result is
    the point where this way reaches the radius.
    """
    w, before, best, move = free, free, state.best_w, free - state.best_w
    far = _measure(M, move) / max(state.trust, 1e-100)
    strength = FIRST_PULL * state.objective * far * far / max(float(move @ move), 1e-100)
    for _ in range(MOST_PULLS):
        if _measure(M, w - best) <= state.trust or not np.isfinite(strength):
            break
        whole, value = 1.0 + strength, model.value + strength * float(best @ best) / 2
        linear = Linear((model.slope + strength * best) / whole, value / whole)
        before, w = w, minimise_rows(replace(data, costs=data.costs / whole), linear, PULLED_TOL, w).w
        strength *= STRONGER
    return _go_on(M, state, w, before)


def _go_on(M: F64, state: State, start: F64, end: F64) -> F64:
    """Return the last point within the trust radius on the way from the start to the end.

    If the start is outside the radius, the way from the best point to the start is searched instead.
    """
    if _measure(M, start - state.best_w) > state.trust:
        start, end = state.best_w, start
    move, first = end - start, start - state.best_w
    a, b, c = float(move @ M @ move), float(first @ M @ move), float(first @ M @ first) - state.trust**2
    root = float(np.sqrt(max(b * b - a * c, 0.0)))
    step = min(1.0, -c / (b + root)) if b + root > 0.0 else 1.0
    return start + max(step, 0.0) * move


def _evaluate(data: HingeRows, model: Linear, w: F64) -> float:
    hinge = float(data.costs @ np.maximum(1.0 - data.find_margins(w), 0.0))
    return float(w @ w) / 2 + hinge + model.value - float(model.slope @ w)


def _measure(M: F64, move: F64) -> float:
    return float(np.sqrt(max(0.0, float(move @ M @ move))))


def update_trust(state: State, before: State, aim: Aim, loss: float) -> State:
    """Return the state with a new trust radius, given the state before the pass and the loss of all rows at the centre.

    The radius grows if P fell by most of the decrease that the model promised, and shrinks if P fell by only a
    small part of it.
    """
    promised = before.objective - aim.expected
    if not len(before.A) or promised <= 0.0:
        return state
    ratio = (before.objective - loss - float(state.centre @ state.centre) / 2) / promised
    if ratio < BAD and aim.stepped > 0.0:
        return replace(state, trust=SHRINKS * aim.stepped)
    return replace(state, trust=max(state.trust, GROWS * aim.stepped)) if ratio > GOOD else state
