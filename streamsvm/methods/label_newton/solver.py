"""Newton's method for a smooth loss of each of many labels: every pass serves all labels that are not proved yet.

    P_k(w) = 1/2 |w|^2 + sum_i C_ik l(y_ik w.x_i)                bias: a constant feature, penalised

A pass brings P, a dual point and its value D, the gradient, and an estimate of the Hessian of each label (sums), and
each label makes a step of its own (steps). With many features, whose Hessians would be too large, steps are found by
products of Hessians with vectors in passes of their own (conjugate_gradients). P - D is half the square of the
gradient, which Newton's method makes vanish. A label whose gap is proved leaves the passes. If the memory has no room
for all labels, some of them are worked on side by side to their end, and then the next ones.

Sources: Keerthi & DeCoste 2005, "A modified finite Newton method for fast solution of large scale linear SVMs", JMLR 6
(squared hinge); Byrd, Chin, Neveitt & Nocedal 2011, "On the use of stochastic Hessian information in optimization
methods for machine learning", SIAM J. Optimization 21 (the Hessian from a share of the rows).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from streamsvm.methods.label_newton.conjugate_gradients import DIRECTIONS, divide, take_products
from streamsvm.methods.label_newton.products import add_products, combine_products, start_products
from streamsvm.methods.label_newton.sample import minimise_sample
from streamsvm.methods.label_newton.sample_ascent import ascend_sample
from streamsvm.methods.label_newton.steps import LabelNewton, State, begin_next, take_step
from streamsvm.methods.label_newton.sums import add_totals, combine_totals, start_totals
from streamsvm.numeric.rows import I64
from streamsvm.requests import Scan, Solver, Step, Take


def solve(settings: LabelNewton, state: State) -> Solver:
    """Go on from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    while "" in state.statuses:
        codes = find_open(settings, state)
        if not len(codes):
            state = begin_next(settings, state)
            continue
        if len(settings.sample) and not state.counts[codes].any():
            sample = yield Take(settings.sample)
            state = (ascend_sample if settings.by_products else minimise_sample)(settings, state, codes, sample)
            del sample
        totals = yield (_ask_for_products if settings.by_products else _ask_for_curvatures)(settings, state, codes)
        totals.finish()
        state = (take_products if settings.by_products else take_step)(settings, state, codes, totals)
        ended = "stalled" if "stalled" in state.statuses else "converged"
        status = None if "" in state.statuses else ended
        yield Step(state, state.progress, status, _list_figures(settings, state))


def _list_figures(settings: LabelNewton, state: State) -> dict[str, float]:
    """Return what the history tells of a step; the waiting problems are in the blocks to come."""
    return {
        "open_problems": int(np.sum(state.statuses == "")),
        "waiting_problems": max(len(state.statuses) - state.first - settings.side_by_side, 0),
        "worst_gap": float(np.max(state.gaps)),
        "mean_gap": float(np.mean(state.gaps)),
    }


def _ask_for_curvatures(settings: LabelNewton, state: State, codes: I64) -> Scan:
    """Return the pass that brings gradients and curvatures at the next points of these labels."""
    shares = np.minimum(1.0, settings.curvature_rows / state.active[codes])
    shared = (
        state.next_w[codes - state.first],
        codes,
        settings.costs[codes],
        shares,
        (settings.loss, settings.bias_feature),
    )
    start = partial(start_totals, len(codes), settings.n_features + 1)
    return Scan(start, add_totals, combine_totals, shared)


def _ask_for_products(settings: LabelNewton, state: State, codes: I64) -> Scan:
    """Return the pass that brings gradients, or products with the directions of labels in the midst of a step."""
    looked, bent = divide(state, codes)
    W = state.next_w[looked - state.first].T.copy()
    V, P = (of[bent - state.first].T.astype(np.float32, "C") for of in (state.base_w, state.conjugates[DIRECTIONS]))
    of_looked, of_bent = (W, looked, settings.costs[looked]), (V, P, bent, settings.costs[bent])
    shared = (*of_looked, *of_bent, (settings.loss, settings.bias_feature))
    start = partial(start_products, settings.n_features + 1, len(looked), len(bent))
    return Scan(start, add_products, combine_products, shared)


def find_open(settings: LabelNewton, state: State) -> I64:
    """Return the codes of the labels that are worked on and not done."""
    part = slice(state.first, state.first + settings.side_by_side)
    return state.first + np.flatnonzero(state.statuses[part] == "")
