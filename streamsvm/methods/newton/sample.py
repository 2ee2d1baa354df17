"""The start of Newton's method: the minimiser for a sample of the rows, and how far that of all rows may be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm import deadline, interrupts
from streamsvm.methods.newton.kinks import bound_by_kinks, find_distances, find_widths, minimise_kinks
from streamsvm.methods.newton.steps import NEXT_REACH, Newton, State, make_look, take_step
from streamsvm.methods.newton.sums import sum_rows
from streamsvm.numeric.row_norms import measure_rows
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import Rows
from streamsvm.numeric.samples import pick_rows, weigh_rows
from streamsvm.numeric.smooth_loss import Kinks, has_kinks

LAST_STEP = 0.1  # of the gap that is asked for: so much may the last step on the sample lower P
SMOOTH_SHARE = 0.3  # of this gap: what the smoothing of kinks may take
FEW = 16  # one row of the sample in so many is enough for the first steps
FEW_TOL = 1e-2
FEW_STEPS = (0.3, 1.0)  # where P is found on a step in memory, where another step takes no read
KINKED_STEPS = (0.02, 0.1, 0.3, 0.6, 1.0)  # the same if there are kinks
ROWS_A_FEATURE = 10  # with fewer rows a feature a sample's minimiser is too far away
MOST_STEPS = 100  # of Newton's method in memory
FIRST_REACH = 3.0  # times the expected distance to the minimiser: the radius of the ball in the first pass
EXACT_TOL = 1e-12
EXACT_STEP = 1e-12  # in place of LAST_STEP, since Newton's method finds the minimiser if no row changes sides
EXACT_STEPS = 20  # in place of MOST_STEPS
PATH_STEPS = 60  # of the interior-point method
MORE_STEPS = 300  # in place of PATH_STEPS, where these have not led to a proof
LEAST_TOL = 1e-11  # of the smoothing of kinks: of narrower ones rounding hides the curvature


def minimise_sample(settings: Newton, state: State, sample: Rows) -> State:
    """Return the state with the sample's minimiser as the next point, and the ball in which P's minimiser is expected.

    Each row of the sample stands for n / m rows. At the sample's minimiser the gradient of P is that of the other rows,
    and has the variance of a sum over m rows that were drawn.
    """
    rows = weigh_rows(sample, state.n_rows / sample.n_rows)
    own, few = replace(state, resident=state.resident[:0]), np.arange(0, sample.n_rows, FEW)
    if len(few) >= ROWS_A_FEATURE * len(own.best_w) and not has_kinks(settings.loss):
        own, _ = _minimise(settings, own, weigh_rows(pick_rows(rows, few), FEW), FEW_TOL)
        own = replace(own, base_w=own.next_w, objective=float("inf"), value=float("inf"), lower_bound=0.0)
    if not has_kinks(settings.loss):
        own, _ = _minimise(settings, own, rows, settings.tol)
    else:
        own = _minimise_with_kinks(settings, own, rows, sample.n_rows == state.n_rows)
    reach = own.reach
    if sample.n_rows < state.n_rows:
        others = 1.0 - sample.n_rows / state.n_rows
        reach += FIRST_REACH * float(np.sqrt(others * _find_variance(settings, own, rows)))
    return replace(state, resident=own.resident, next_w=own.next_w, A=own.A, reach=reach, width=own.width)


def _find_variance(settings: Newton, state: State, rows: Rows) -> float:
    """Return the variance of the gradient of as many rows as there are in the sample, in the norm of the ball."""
    scores = compute_scores(rows.X, state.next_w[None, :-1])[:, 0] + settings.bias_feature * state.next_w[-1]
    look = make_look(settings, state)
    lengths = measure_rows(look.norm, rows, settings.bias_feature)[0]
    return float(np.sum((look.loss.measure(rows, scores)[1] * lengths) ** 2))


def _minimise(
    settings: Newton, state: State, rows: Rows, tol: float, last_step: float = LAST_STEP, most: int = MOST_STEPS
) -> tuple[State, bool]:
    """Return the state after Newton's method on rows in memory, and whether it has ended within `most` steps.

    Then its last step may lower P by no more than last_step tol P.
    """
    steps = KINKED_STEPS if has_kinks(settings.loss) else FEW_STEPS
    for _ in range(most):
        interrupts.check()
        look, width = replace(make_look(settings, state), reach=0.0, steps=steps), state.width
        ends = np.stack((state.base_w, state.next_w))
        state = take_step(state, look, ends, sum_rows(rows, ends, look), SMOOTH_SHARE * tol)
        is_near = state.reach > 0.0 and (state.reach / NEXT_REACH) ** 2 / 2 <= last_step * tol * state.objective
        if is_near and state.width == width:
            return state, True
        if deadline.is_over():
            break
    return state, False


def _minimise_with_kinks(settings: Newton, state: State, rows: Rows, are_all: bool) -> State:
    """Return the state at the exact minimiser for rows in memory, and with a width for the passes over all rows.

    If there are no other rows, the width is so small that hardly any are near but those that lie on their kinks.
    """
    (own, kinks), bias = _pick_paid(settings, rows), settings.bias_feature
    w = minimise_kinks(own, kinks, bias, EXACT_TOL, PATH_STEPS)[0] if own.n_rows else state.next_w
    u = find_distances(own, kinks, w, bias)
    P = float(w @ w) / 2 + float(np.sum(kinks.costs * np.maximum(0.0, u)))
    state = replace(state, base_w=w, next_w=w, value=float("inf"))
    if not P > 0.0:
        return state
    scale = float(np.sum(kinks.costs * np.maximum(np.abs(u), np.abs(kinks.places))) / np.sum(kinks.costs))
    tol = max(settings.tol, LEAST_TOL if are_all else len(w) / rows.n_rows)  # nearer, all rows have another one
    widths = find_widths(np.abs(u), kinks.costs, EXACT_TOL * scale, scale, SMOOTH_SHARE * tol * P)
    if not are_all:
        return _minimise(settings, replace(state, width=widths[1]), rows, tol)[0]
    return _minimise(settings, replace(state, width=widths[0]), rows, tol, EXACT_STEP, EXACT_STEPS)[0]


def raise_by_kinks(settings: Newton, state: State, rows: Rows) -> State:
    """Return the state with the lower bound that the multipliers of all rows prove, unless the gap is proved already.

    Rounding may have hidden the curvature of the smoothing. If the minimiser that the multipliers belong to has a lower
    P than the best point, the next pass looks there.
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
    """Return the rows with a cost, and their kinks."""
    assert has_kinks(settings.loss)
    kinks = settings.loss.find_kinks(rows)
    paid = np.flatnonzero(kinks.costs[0] > 0.0)
    return pick_rows(rows, paid), Kinks(*(part[:, paid] for part in kinks))
