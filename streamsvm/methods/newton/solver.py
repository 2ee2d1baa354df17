"""Newton's method for a smooth loss, with a proof by the curvature of all rows: mostly two reads of the data.

    P(w) = 1/2 |w|^2 + sum_i l_i(w.x_i)               bias: a constant feature, penalised

A pass at w brings P, its gradient and its Hessian over all rows (newton.sums), from which follow a lower bound of P's
minimum (newton.bounds) and the next point, w - Hessian^-1 gradient. The first point is the minimiser of a sample of the
rows, found by the same steps in memory. Near the minimiser each step squares the distance, and the bound by the
curvature is as near to the minimum as the step is good.

A pass also finds P at points on the line from the base, the point that the step began at. If P is not lower at w, the
method goes on from the lowest of them. The step's direction descends, so that there is one if the line is looked at
closely enough.

A loss with kinks is smoothed, with a width that shrinks until the smoothing takes a share of the tolerance
(numeric.smooth_loss). The steps descend on the smoothed P, and the bounds are those of a smooth function below P.

Sources: Keerthi & DeCoste 2005, "A modified finite Newton method for fast solution of large scale linear SVMs", JMLR 6
(squared hinge); Lin, Weng & Keerthi 2008, "Trust region Newton method for large-scale logistic regression", JMLR 9.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from streamsvm import requests as protocol
from streamsvm.methods.newton.sample import LEAST_TOL, minimise_sample, raise_by_kinks
from streamsvm.methods.newton.steps import Newton, State, make_look, take_step
from streamsvm.methods.newton.sums import add_totals, combine_totals, start_totals
from streamsvm.numeric.samples import draw_sample, find_first_rows
from streamsvm.numeric.smooth_loss import has_kinks
from streamsvm.requests import Scan, Solver, Step, Take

SMOOTH_SHARE = 0.3  # of the relative gap that is asked for: what the smoothing of kinks may take
LEAST_MOVE = 1e-12  # relative: P and D that move by less may be rounding
STUCK_STEPS = 10  # If neither P nor D has moved for so many steps, rounding is the limit.


def start_state(settings: Newton, n_rows: int, n_features: int, is_shuffled: bool = False) -> State:
    """Return the state before the first pass: w = 0, and a sample, which is the first rows if these are shuffled."""
    none = np.zeros(n_features + 1)
    rows = draw_sample(settings.resident_rows, n_rows, settings.seed, is_shuffled)
    return State(best_w=none, next_w=none, base_w=none, resident=rows, n_rows=n_rows)


def warm_state(settings: Newton, before: State, factor: float) -> State:  # noqa: ARG001
    """Return the state to start from, given the last state of the problem whose costs are `factor` times smaller."""
    best = before.best_w
    return State(best_w=best, next_w=best, base_w=best, width=before.width, n_rows=before.n_rows)


def solve(settings: Newton, state: State) -> Solver:
    """Go on from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    while True:
        before, held, look = state, None, make_look(settings, state)
        if len(state.resident):
            sample = yield Take(state.resident)
            held = find_first_rows(sample, state.resident)
            state = minimise_sample(settings, state, sample)
            look = make_look(settings, state)
            del sample
        if before.passes == 0:  # there is no line to the first point
            look = replace(look, steps=(1.0,))
        ends = np.stack((state.base_w if before.passes else state.next_w, state.next_w))
        start = partial(start_totals, len(state.best_w) - 1, len(look.steps))
        totals = yield Scan(start, add_totals, combine_totals, (ends, look), scored=0, held=held)
        state = take_step(state, look, ends, totals, SMOOTH_SHARE * max(settings.tol, LEAST_TOL))
        if held is not None and held.n_rows == state.n_rows and has_kinks(settings.loss):
            state = raise_by_kinks(settings, state, held)
        lower = state.objective < before.objective * (1.0 - LEAST_MOVE)
        moved = lower or state.lower_bound > before.lower_bound * (1.0 + LEAST_MOVE)
        state = replace(state, passes=before.passes + 1, stuck=0 if moved else before.stuck + 1)
        yield Step(state, state.progress, protocol.find_status(state.progress, settings.tol, state.stuck, STUCK_STEPS))
