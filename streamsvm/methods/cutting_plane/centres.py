"""Where the next pass of cutting_plane.one_read looks: the minimiser of a model of P, within a trust radius.

The first centre is the minimiser of a sample. Later the model is the loss of the rows in memory, corrected by the cut
of all rows at the best point (cutting_plane.corrected_sample). Its minimiser is pulled to the best point if it is
farther away than the trust radius, which grows and shrinks as the model proves right or wrong. Where cuts of all rows
are above the model, the larger of both is minimised, and the step is shortened to the trust radius. Where two passes
were not enough, the next ones also cut the problem of all rows at the points where the sample has its active cuts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamsvm.methods.cutting_plane.corrected_sample import correct_sample, minimise_model
from streamsvm.methods.cutting_plane.near_rows import choose_rows, find_margins, find_reach
from streamsvm.methods.cutting_plane.one_read_state import OneRead, State, make_look, read_rows
from streamsvm.methods.cutting_plane.sample_model import SampleModel
from streamsvm.methods.cutting_plane.smoothed_newton import HingeRows, Linear, Pull, minimise
from streamsvm.numeric.row_norms import RowNorm, make_norm
from streamsvm.numeric.rows import F64, Rows

MODEL_SHARE = 0.05  # the model is minimised to this share of the tolerance
FIRST_TOL, HALF_TOL = 1e-4, 1e-2  # the problems of the first sample and of its halves, whose own error is larger
PULLED_TOL = 1e-3  # a pulled model is minimised to this gap: its minimiser is only the start of a step
FIRST_PULL = 1e-2  # the first pull adds so many times P where a step is as long as the trust radius
STRONGER = 10.0  # each pull is so many times as strong as the one before
MOST_PULLS = 8  # each takes a minimisation; the last one is ten million times as strong as the first
STRONGEST = 1e12  # the trace of a pull's matrix: a larger one, added to I, leaves too few digits of I
GROWS, SHRINKS = 2.0, 0.4  # of the last step: the trust radius after good and bad steps
NOT_FAR = 2.0  # times the expected distance: a given point that is no farther from the sample's minimiser is taken
FARTHEST = 1e100  # the trust radius where nothing limits a step
GOOD, BAD = 0.7, 0.2  # shares of what the model promised
FIRST_PASSES = 2  # so many passes cut all rows at two points only, and later ones where the sample has its cuts, too
STUCK_PASSES = 5  # where so many passes have moved neither bound, rounding keeps the sample's cuts from helping
VIOLATED = 0.1  # cuts may be above the model by this share of the decrease that it promises


@dataclass(frozen=True)
class Aim:
    """What a pass at a centre looks for beside the rows near the margin.

    W (k, d+1): the points at which it cuts the problem of all rows, of which the first is the best point so far and the
    second is the centre; end (d+1,): the end of the line from the best point that it searches; expected: what the model
    says of P at the centre; stepped: how far the centre is from the best point.
    """

    W: F64
    end: F64
    expected: float = 0.0
    stepped: float = 0.0


def choose_centre(settings: OneRead, state: State, sample: Rows) -> tuple[State, Aim]:
    """Return the state with the next centre, and what the pass looks for."""
    if not len(state.A):
        state = _choose_first(settings, state, sample)
        return state, Aim(np.stack((state.best_w, state.centre)), state.centre)
    norm, data = RowNorm(state.A), read_rows(settings, sample)
    h, r = correct_sample(settings, state, sample)
    model, M = Linear(-h, r), norm.find_scatter()
    free = minimise(data, model, MODEL_SHARE * settings.tol, state.best_w).w
    near = replace(state, trust=min(state.trust, _find_room(state, M)))
    w = _pull(near, data, model, M, free)
    expected = _evaluate(data, model, w)
    above = float(np.max(state.offsets - state.cuts @ w, initial=0.0)) + float(w @ w) / 2 - expected
    W, end = np.stack((state.best_w, w)), w
    is_moving = state.stuck < STUCK_PASSES
    is_below = is_moving and above > VIOLATED * max(state.objective - expected, 0.0)
    if is_below or (is_moving and state.passes >= FIRST_PASSES):
        corrected = SampleModel(sample, np.array(settings.class_costs), settings.bias_feature, h, r)
        state, points = minimise_model(settings, state, corrected)
        W = np.concatenate((W, points[1:]))
    if is_below:
        end = W[2]
        w = _go_on(M, near, state.best_w, end)
        W, expected = np.concatenate((W[:1], w[None, :], W[2:])), _evaluate(data, model, w)
    stepped, predicted = _measure(M, w - state.best_w), _measure(M, free - state.centre) / 2
    return replace(state, centre=w, predicted=predicted), Aim(W, end, expected, stepped)


def _choose_first(settings: OneRead, state: State, sample: Rows) -> State:
    """Return the state with the sample's minimiser as its centre.

    The minimisers of the two halves of the sample tell how far it is from the minimiser over all rows: their distance
    is about twice that. One half's minimiser tells how near the margin the rows of the other half are. A sample of all
    rows has the minimiser over all rows, so neither is needed.
    """
    none = Linear(np.zeros(len(state.best_w)), 0.0)
    w = minimise(read_rows(settings, sample), none, FIRST_TOL, state.centre).w
    norm = make_norm(sample, settings.bias_feature)
    if sample.n_rows == state.n_rows:
        return replace(state, centre=w, A=norm.A, trust=FARTHEST)
    given = state.centre
    halves = [choose_rows(sample, np.arange(k, sample.n_rows, 2)) for k in range(2)]
    data = [read_rows(settings, half) for half in halves]
    ends = [minimise(replace(half, costs=2 * half.costs), none, HALF_TOL, w).w for half in data]
    predicted = norm.bound_move(ends[0] - ends[1])[0] / 2
    if np.any(given) and norm.bound_move(given - w)[0] <= NOT_FAR * predicted:
        w = given  # the sample cannot tell it from the optimum, and it is the minimiser of more rows than the sample
    state = replace(state, centre=w, A=norm.A, predicted=predicted, trust=GROWS * predicted or FARTHEST)
    look = replace(make_look(settings, state), w=ends[0])
    reach = np.sort(find_reach(look, halves[1], find_margins(look, halves[1], data[1].y)))
    widest = float(reach[min(int(look.most / state.n_rows * len(reach)), len(reach) - 1)])
    return replace(state, widest=widest)


def _find_room(state: State, M: F64) -> float:
    """Return how far from the best point the second pass may look if it is to read the undecided rows only.

    All others keep their sides there (cutting_plane.undecided). If that was not enough, later passes look farther.
    """
    room = 0.999 * (state.apart_radius - _measure(M, state.best_w - state.apart))
    return room if state.passes == 1 and room > 0.0 else FARTHEST


def _pull(state: State, data: HingeRows, model: Linear, M: F64, free: F64) -> F64:
    """Return the model's minimiser `free`, or the lowest point of the model that is found within the trust radius.

    The minimiser is pulled to the best point until it lies within the radius. On the way back to the point that was
    pulled less the model falls, so the point where the radius is reached is taken.
    """
    w, before = free, free
    strength, strongest = FIRST_PULL * state.objective / max(state.trust, 1e-100) ** 2, STRONGEST / float(np.trace(M))
    for _ in range(MOST_PULLS):
        if _measure(M, w - state.best_w) <= state.trust or strength >= strongest:
            break
        before, w = w, minimise(data, model, PULLED_TOL, w, Pull(M, state.best_w, strength)).w
        strength *= STRONGER
    return _go_on(M, state, w, before)


def _go_on(M: F64, state: State, start: F64, end: F64) -> F64:
    """Return the last point within the trust radius on the way from the start to the end.

    If the start is not within the radius, that is sought on the way from the best point to the start.
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

    The radius grows if P has fallen by most of what the model promised, and shrinks if P has fallen by little.
    """
    promised = before.objective - aim.expected
    if not len(before.A) or promised <= 0.0:
        return state
    ratio = (before.objective - loss - float(state.centre @ state.centre) / 2) / promised
    if ratio < BAD and aim.stepped > 0.0:
        return replace(state, trust=SHRINKS * aim.stepped)
    return replace(state, trust=max(state.trust, GROWS * aim.stepped)) if ratio > GOOD else state
