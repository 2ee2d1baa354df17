"""Steps of Newton's method for many features: M s = -gradient is solved by conjugate gradients, a product M p a pass.

Every label is on its own way: a pass looks at the points of some labels, and makes the products of others, which are in
the midst of a step. A step is good enough if the residual r is a tenth of the gradient, or so small that |r|^2 / 2,
which is what P - D would be after the step if the curvature stayed, is within the tolerance.

Source: Lin, Weng & Keerthi 2008, "Trust region Newton method for large-scale logistic regression", JMLR 9.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numba import njit

from streamsvm.methods.label_newton.products import Products
from streamsvm.methods.label_newton.steps import LabelNewton, State, is_accepted, note_found, read_totals
from streamsvm.numeric.row_products import SUMS_MAY_BE_REORDERED
from streamsvm.numeric.rows import F32, F64, I64

RESIDUAL = 0.1  # of the gradient's length
PROVED_SHARE = 0.3  # of the tolerance
MOST_PRODUCTS = 60
STEP, RESIDUALS, DIRECTIONS = range(3)  # the parts of `conjugates`


def start_conjugates(state: State) -> State:
    """Note that no label is in the midst of a step."""
    L = len(state.best_w)
    state.conjugates, state.products = np.zeros((3, *state.next_w.shape)), np.full(L, -1, np.int64)
    state.residuals, state.at_start = np.zeros((2, L))
    return state


def divide(state: State, codes: I64) -> tuple[I64, I64]:
    """Return those of the labels with these codes that are looked at, and those in the midst of a step."""
    is_bent = state.products[codes] >= 0
    return codes[~is_bent], codes[is_bent]


def take_products(settings: LabelNewton, state: State, codes: I64, totals: Products) -> State:
    """Change the state to that after a pass over the labels with these codes, and return it.

    It is changed in place, since copies of all points would take longer than the sums of a pass over few rows.
    """
    looked, bent = divide(state, codes)
    W, g = state.next_w[looked - state.first], np.ascontiguousarray(totals.gradients.T)
    found = read_totals(settings, W, settings.costs[looked], totals.sums, g, totals.squares)
    note_found(settings, state, looked, W, found)
    for k, code in enumerate(looked.tolist()):
        if not state.statuses[code] and is_accepted(settings, state, code, W[k], found.P[k], found.P_off[k]):
            _begin_step(state, code, found.gradients[k])
    state.counts[bent] += 1
    products = np.ascontiguousarray(totals.products.T)
    for k, code in enumerate(bent.tolist()):
        _go_on(settings, state, code, products[k])
    return replace(state, passes=state.passes + 1)


@njit(cache=True, nogil=True, fastmath=SUMS_MAY_BE_REORDERED)
def advance(step: F64, r: F64, p: F64, product: F32, before: float) -> tuple[float, float]:
    """Go along p as far as the quadratic function falls; return how far, and |r|^2 then. before: |r|^2 so far.

    step, r and p are (d+1,), of which the first two change; product: of the losses' Hessian with p.
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


def _begin_step(state: State, code: int, gradient: F64) -> None:
    state.conjugates[:, code - state.first] = np.zeros_like(gradient), -gradient, -gradient
    state.residuals[code] = state.at_start[code] = float(gradient @ gradient)
    state.products[code], state.slopes[code] = 0, 0.0


def _go_on(settings: LabelNewton, state: State, code: int, product: F32) -> None:
    """Make a step of conjugate gradients; product: of the losses' Hessian with the direction."""
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
