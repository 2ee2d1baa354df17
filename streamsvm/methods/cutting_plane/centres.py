"""Where the next pass of cutting_plane.one_read looks: the minimiser of a model of P, within a trust radius.

The first centre is the minimiser of a sample. Later the model is the loss of the rows in memory, corrected by the cut
of all rows at the best point (cutting_plane.guided). Its minimiser is pulled to the best point if it is farther away
than the trust radius, which grows and shrinks as the model proves right or wrong. Where cuts of all rows are above the
model, the larger of both is minimised, and the step is shortened to the trust radius.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.methods.cutting_plane.guided import correct_sample, minimise_model
from streamsvm.methods.cutting_plane.near_rows import find_reach
from streamsvm.methods.cutting_plane.one_read_state import OneRead, State, choose_rows, make_look, read_rows
from streamsvm.methods.cutting_plane.row_norms import RowNorm, make_norm
from streamsvm.methods.cutting_plane.sample_model import SampleModel
from streamsvm.methods.cutting_plane.smoothed_newton import HingeRows, Linear, Pull, minimise
from streamsvm.numeric.rows import F64, Rows

INNER_SHARE = 1e-3  # problems in memory are solved to this share of the tolerance
PULLED_TOL = 1e-4  # and to this gap if the minimiser is pulled, as it is not the last then
FIRST_PULL, STRONGER = 1e-2, 10.0  # strength of the first pull, for P and the trust radius 1, and of the next ones
STRONGEST = 1e12  # a pull's matrix is at most so many times larger than I, to which it is added
GROWS, SHRINKS = 2.0, 0.4  # of the last step: the trust radius after good and bad steps
FARTHEST = 1e100  # the trust radius where nothing limits a step
GOOD, BAD = 0.7, 0.2  # shares of what the model promised
VIOLATED = 0.1  # cuts may be above the model by this share of the decrease that it promises


def choose_centre(settings: OneRead, state: State, sample: Rows) -> tuple[State, F64, F64]:
    """Return the state with the next centre, the points at which the pass is to cut, and the end of the line search."""
    if not len(state.A):
        state = _choose_first(settings, state, sample)
        return state, np.stack((state.best_w, state.centre)), state.centre
    norm, data = RowNorm(state.A), read_rows(settings, sample)
    h, r = correct_sample(settings, state, sample)
    model, M = Linear(-h, r), norm.find_scatter()
    w = _minimise_near(settings, state, data, model, M)
    expected = _evaluate(data, model, w)
    above = float(np.max(state.offsets - state.cuts @ w, initial=0.0)) + float(w @ w) / 2 - expected
    W, end = np.stack((state.best_w, w)), w
    if above > VIOLATED * max(state.objective - expected, 0.0):
        corrected = SampleModel(sample, np.array(settings.class_costs), settings.bias_feature, h, r)
        state, W = minimise_model(settings, state, corrected)
        end = W[1]
        w = _shorten(M, state, end)
        W, expected = np.insert(W, 1, w, axis=0), _evaluate(data, model, w)
    stepped, predicted = _measure(M, w - state.best_w), _measure(M, w - state.centre) / 2
    return replace(state, centre=w, predicted=predicted, stepped=stepped, expected=expected), W, end


def _choose_first(settings: OneRead, state: State, sample: Rows) -> State:
    """Return the state with the sample's minimiser as its centre.

    The minimisers of the two halves of the sample tell how far it is from the minimiser over all rows: their distance
    is about twice that. One half's minimiser tells how near the margin the rows of the other half are.
    """
    none, tol = Linear(np.zeros(len(state.best_w)), 0.0), INNER_SHARE * settings.tol
    w = minimise(read_rows(settings, sample), none, tol, state.centre).w
    norm = make_norm(sample, settings.bias_feature)
    halves = [choose_rows(sample, np.arange(k, sample.n_rows, 2)) for k in range(2)]
    data = [read_rows(settings, half) for half in halves]
    ends = [minimise(replace(half, costs=2 * half.costs), none, tol, w).w for half in data]
    predicted = norm.bound_move(ends[0] - ends[1])[0] / 2
    state = replace(state, centre=w, A=norm.A, predicted=predicted, trust=GROWS * predicted or FARTHEST)
    look = replace(make_look(settings, state), w=ends[0])
    reach = np.sort(find_reach(look, halves[1], data[1].y)[1])
    widest = float(reach[min(int(look.most / state.n_rows * len(reach)), len(reach) - 1)])
    return replace(state, widest=widest)


def _minimise_near(settings: OneRead, state: State, data: HingeRows, model: Linear, M: F64) -> F64:
    """Return the minimiser of the model, or one that is pulled to the best point and is within the trust radius.

    A point that no pull brings near enough, or none that float64 can resolve, is moved towards the best point instead.
    """
    w = minimise(data, model, INNER_SHARE * settings.tol, state.best_w).w
    strength, strongest = FIRST_PULL * state.objective / max(state.trust, 1e-100) ** 2, STRONGEST / float(np.trace(M))
    while _measure(M, w - state.best_w) > state.trust and strength < strongest:
        w = minimise(data, model, PULLED_TOL, w, Pull(M, state.best_w, strength)).w
        strength *= STRONGER
    return _shorten(M, state, w)


def _shorten(M: F64, state: State, w: F64) -> F64:
    """Return w, or the point of the segment from the best point to w that is at the trust radius."""
    far = _measure(M, w - state.best_w)
    return w if far <= state.trust else state.best_w + state.trust / far * (w - state.best_w)


def _evaluate(data: HingeRows, model: Linear, w: F64) -> float:
    hinge = float(data.costs @ np.maximum(1.0 - data.find_margins(w), 0.0))
    return float(w @ w) / 2 + hinge + model.value - float(model.slope @ w)


def _measure(M: F64, move: F64) -> float:
    return float(np.sqrt(max(0.0, float(move @ M @ move))))


def update_trust(state: State, before: State, loss: float) -> State:
    """Return the state with a new trust radius; loss: of all rows at the centre.

    It grows if P has fallen by most of what the model promised, and shrinks if P has fallen by little.
    """
    promised = before.objective - state.expected
    if not len(before.A) or promised <= 0.0:
        return state
    ratio = (before.objective - loss - float(state.centre @ state.centre) / 2) / promised
    if ratio < BAD and state.stepped > 0.0:
        return replace(state, trust=SHRINKS * state.stepped)
    return replace(state, trust=max(state.trust, GROWS * state.stepped)) if ratio > GOOD else state
