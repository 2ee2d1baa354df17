"""Newton's method with a penalty of |w|_1 instead of 1/2 |w|^2, which leaves few weights that are not 0 (l1_steps).

The first point is the minimiser of a sample of the rows, found by the same steps in memory. A pass finds P, its
gradient, and the second derivatives of some features, from which follow a lower bound and the next point.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from streamsvm import deadline, interrupts
from streamsvm import requests as protocol
from streamsvm.methods.newton.l1_steps import L1Newton, L1State, choose_features, make_look, take_step
from streamsvm.methods.newton.sums import add_totals, combine_totals, start_totals, sum_rows
from streamsvm.numeric.rows import Rows
from streamsvm.numeric.samples import draw_sample, find_first_rows, weigh_rows
from streamsvm.requests import Scan, Solver, Step, Take

LEAST_MOVE = 1e-12  # relative: P and D that move by less may be rounding
STUCK_STEPS = 10  # If neither P nor D has moved for so many steps, rounding is the limit.
SAMPLE_SHARE = 0.1  # of the gap that is asked for: the gap on the sample
STAGE, STAGE_TOL = 3.0, 1e-2  # by how much costs grow from one stage to the next in memory, and the gap of a stage
MOST_STEPS = 100  # of a stage
SLOW, SLOW_STEPS = 1e-4, 5  # After so many steps in which P and D moved by no more than this share a stage ends.
FEW_STEPS = (0.1, 0.4, 1.0)  # where P is found on a step in memory


def start_state(settings: L1Newton, n_rows: int, n_features: int, is_shuffled: bool = False) -> L1State:
    """Return the state before the first pass: w = 0, and a sample, which is the first rows if these are shuffled."""
    none = np.zeros(n_features + 1)
    rows = draw_sample(settings.resident_rows, n_rows, settings.seed, is_shuffled)
    features = np.arange(min(n_features, settings.most_features))
    return L1State(none, none, none, features, rows, n_rows=n_rows)


def warm_state(settings: L1Newton, before: L1State, factor: float) -> L1State:  # noqa: ARG001
    """Return the state to start from, given the last state of the problem whose costs are `factor` times smaller."""
    best = before.best_w
    return L1State(best, best, best, before.features, n_rows=before.n_rows)


def solve(settings: L1Newton, state: L1State) -> Solver:
    """Go on from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    while True:
        before, held = state, None
        if len(state.resident):
            sample = yield Take(state.resident)
            held = find_first_rows(sample, state.resident)
            state = minimise_sample(settings, state, sample)
            del sample
        look = make_look(settings, state)
        if before.passes == 0:  # there is no line to the first point
            look = replace(look, steps=(1.0,))
        ends = np.stack((state.base_w if before.passes else state.next_w, state.next_w))
        start = partial(start_totals, len(state.best_w) - 1, len(look.steps), len(state.features))
        totals = yield Scan(start, add_totals, combine_totals, (ends, look), scored=0, held=held)
        state = take_step(settings, state, look, ends, totals)
        lower = state.objective < before.objective * (1.0 - LEAST_MOVE)
        moved = lower or state.lower_bound > before.lower_bound * (1.0 + LEAST_MOVE)
        state = replace(state, passes=before.passes + 1, stuck=0 if moved else before.stuck + 1)
        yield Step(state, state.progress, protocol.find_status(state.progress, settings.tol, state.stuck, STUCK_STEPS))


def minimise_sample(settings: L1Newton, state: L1State, sample: Rows) -> L1State:
    """Return the state with the sample's minimiser as the next point; each of its rows stands for n / m rows.

    It is found for smaller costs first, beginning with those for which w = 0 is nearly optimal, so that no step has
    many more weights than the minimiser.
    """
    rows, none = weigh_rows(sample, state.n_rows / sample.n_rows), np.zeros_like(state.best_w)
    own = replace(
        state, best_w=none, next_w=none, base_w=none, features=state.features[:1], resident=state.resident[:0]
    )
    totals = sum_rows(rows, np.stack((none, none)), make_look(settings, own, (1.0,)))
    steepest = float(np.max(np.abs(totals.gradient)))
    own = replace(own, features=choose_features(settings, none, totals.gradient))
    for share in STAGE ** np.arange(np.ceil(np.log(max(steepest, 1.0)) / np.log(STAGE)), 0.0, -1.0):
        own = _minimise(settings, own, weigh_rows(rows, 1.0 / share), STAGE_TOL)
        if deadline.is_over():
            break
    else:
        own = _minimise(settings, own, rows, SAMPLE_SHARE * settings.tol)
    return replace(state, resident=own.resident, next_w=own.best_w, features=own.features)


def _minimise(settings: L1Newton, state: L1State, rows: Rows, tol: float) -> L1State:
    """Return the state at the minimiser for rows in memory, up to this gap, or where steps make hardly any progress."""
    w, unknown, slow = state.best_w, float("inf"), 0
    state = replace(state, base_w=w, next_w=w, objective=unknown, value=unknown, lower_bound=0.0)
    for _ in range(MOST_STEPS):
        interrupts.check()
        look, ends = make_look(settings, state, FEW_STEPS), np.stack((state.base_w, state.next_w))
        before, state = state, take_step(settings, state, look, ends, sum_rows(rows, ends, look))
        has_moved = state.value < before.value * (1.0 - SLOW) or state.lower_bound > before.lower_bound * (1.0 + SLOW)
        slow = 0 if has_moved else slow + 1
        if slow == SLOW_STEPS or state.progress.is_proved(tol) or deadline.is_over():
            break
    return state
