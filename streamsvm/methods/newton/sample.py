"""The start of Newton's method: the minimiser for a sample of the rows, and how far that of all rows may be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm import interrupts
from streamsvm.methods.newton.kinks import choose_width, combine, find_distances, minimise_kinks
from streamsvm.methods.newton.steps import NEXT_REACH, Newton, State, make_look, take_step
from streamsvm.methods.newton.sums import sum_rows
from streamsvm.numeric.row_norms import measure_rows
from streamsvm.numeric.rows import Rows, compute_scores
from streamsvm.numeric.samples import pick_rows, weigh_rows
from streamsvm.numeric.smooth_loss import KinkedLoss, Kinks

LAST_STEP = 0.1  # of the gap that is asked for: so much may the last step on the sample lower P
SMOOTH_SHARE = 0.3  # of this gap: what the smoothing of kinks may take
FEW = 16  # one row of the sample in so many is enough for the first steps
FEW_TOL = 1e-2
FEW_STEPS = (0.3, 1.0)  # where P is found on a step in memory, where another step takes no read
KINKED_STEPS = (0.02, 0.1, 0.3, 0.6, 1.0)  # the same if there are kinks
ROWS_A_FEATURE = 10  # with fewer rows a feature a sample's minimiser is too far away
MOST_STEPS = 100  # of Newton's method in memory
FIRST_REACH = 3.0  # times the expected distance to the minimiser: the radius of the ball in the first pass
FIRST_TOL = 1e-3  # of the smoothed problem, before its kinks are looked at one by one
NEAR_ROWS = 20  # a feature: as many rows are taken as near to their kinks at first
EXACT_TOL = 1e-12
EXACT_STEP = 1e-12  # in place of LAST_STEP, since Newton's method finds the minimiser if no row changes sides
EXACT_SHARE = 0.2  # in place of SMOOTH_SHARE
EXACT_STEPS = 20  # in place of MOST_STEPS


def minimise_sample(settings: Newton, state: State, sample: Rows) -> State:
    """Return the state with the sample's minimiser as the next point, and the ball in which P's minimiser is expected.

    Each row of the sample stands for n / m rows. At the sample's minimiser the gradient of P is that of the other rows,
    and has the variance of a sum over m rows that were drawn.
    """
    rows = weigh_rows(sample, state.n_rows / sample.n_rows)
    own, few = replace(state, resident=state.resident[:0]), np.arange(0, sample.n_rows, FEW)
    if len(few) >= ROWS_A_FEATURE * len(own.best_w):
        own, _ = _minimise(settings, own, weigh_rows(pick_rows(rows, few), FEW), FEW_TOL)
        own = replace(own, base_w=own.next_w, objective=float("inf"), value=float("inf"), lower_bound=0.0)
    if not isinstance(settings.loss, KinkedLoss):
        own, _ = _minimise(settings, own, rows, settings.tol)
    elif sample.n_rows < state.n_rows:  # no nearer than the minimiser of all rows is
        own, _ = _minimise(settings, own, rows, max(settings.tol, len(own.best_w) / sample.n_rows))
    else:
        own = _minimise_with_kinks(settings, own, rows)
    scores = compute_scores(rows.X, own.next_w[None, :-1])[:, 0] + settings.bias_feature * own.next_w[-1]
    look = make_look(settings, own)
    lengths = measure_rows(look.norm, rows, settings.bias_feature)[0]
    variance = float(np.sum((look.loss.measure(rows, scores)[1] * lengths) ** 2))
    others = max(0.0, 1.0 - sample.n_rows / state.n_rows)
    reach = FIRST_REACH * float(np.sqrt(variance * others)) + own.reach
    return replace(state, resident=own.resident, next_w=own.next_w, A=own.A, reach=reach, width=own.width)


def _minimise(
    settings: Newton, state: State, rows: Rows, tol: float, last_step: float = LAST_STEP, most: int = MOST_STEPS
) -> tuple[State, bool]:
    """Return the state after Newton's method on rows in memory, and whether it has ended within `most` steps.

    Then its last step may lower P by no more than last_step tol P.
    """
    steps = KINKED_STEPS if isinstance(settings.loss, KinkedLoss) else FEW_STEPS
    for _ in range(most):
        interrupts.check()
        look, width = replace(make_look(settings, state), reach=0.0, steps=steps), state.width
        ends = np.stack((state.base_w, state.next_w))
        state = take_step(state, look, ends, sum_rows(rows, ends, look), SMOOTH_SHARE * tol)
        is_near = state.reach > 0.0 and (state.reach / NEXT_REACH) ** 2 / 2 <= last_step * tol * state.objective
        if is_near and state.width == width:
            return state, True
    return state, False


def _minimise_with_kinks(settings: Newton, state: State, rows: Rows) -> State:
    """Return the state at the minimiser for all rows, which are in memory: smoothed, exact, and smoothed within kinks.

    The width is then so small that hardly any row is near but those that lie on their kinks.
    """
    state, _ = _minimise(settings, state, rows, FIRST_TOL)
    exact, has_ended = _minimise(settings, _settle(settings, state, rows), rows, settings.tol, EXACT_STEP, EXACT_STEPS)
    return exact if has_ended else _minimise(settings, state, rows, settings.tol)[0]


def _settle(settings: Newton, state: State, rows: Rows) -> State:
    """Return the state at the minimiser for rows in memory, which the kinks of few rows decide, and a width for it.

    All rows but those nearest to their kinks are taken as linear; if one of them changes sides, twice as many are near.
    """
    assert isinstance(settings.loss, KinkedLoss)
    kinks, w, bias, number = settings.loss.find_kinks(rows), state.next_w, settings.bias_feature, NEAR_ROWS
    paid = np.flatnonzero(kinks.costs[0] > 0.0)
    rows, kinks = pick_rows(rows, paid), Kinks(*(part[:, paid] for part in kinks))
    u = find_distances(rows, kinks, w, bias)
    for _ in range(MOST_STEPS if len(paid) else 0):
        near, far = np.split(np.argsort(np.min(np.abs(u), axis=0), kind="stable"), [number * len(w)])
        h = combine(rows, np.where(u > 0.0, kinks.signs * kinks.costs, 0.0)[:, far], far, bias)
        r = float(np.sum((kinks.costs * np.maximum(0.0, u))[:, far])) - float(h @ w)
        some, own = pick_rows(rows, near), Kinks(*(part[:, near] for part in kinks))
        w, before = minimise_kinks(some, own, h, r, w, bias, EXACT_TOL), u
        u = find_distances(rows, kinks, w, bias)
        if not np.any((u > 0.0)[:, far] != (before > 0.0)[:, far]):
            break
        number *= 2
    P = float(w @ w) / 2 + float(np.sum(kinks.costs * np.maximum(0.0, u)))
    if not P > 0.0:
        return replace(state, base_w=w, next_w=w, value=float("inf"))
    scale = float(np.sum(kinks.costs * np.maximum(np.abs(u), np.abs(kinks.places))) / np.sum(kinks.costs))
    width = choose_width(np.abs(u), kinks.costs, EXACT_TOL * scale, scale, EXACT_SHARE * settings.tol * P)
    return replace(state, base_w=w, next_w=w, width=width, value=float("inf"))
