"""The setup of two solvers in the same reads: one with resident rows, and a line search beside it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from streamsvm.data.source import RowSource
from streamsvm.methods.cutting_plane import beside, line_search_setup
from streamsvm.methods.cutting_plane.beside import State
from streamsvm.methods.cutting_plane.block_walk import BlockAscent
from streamsvm.methods.cutting_plane.cuts import most_cuts
from streamsvm.methods.cutting_plane.one_read_state import OneRead
from streamsvm.methods.cutting_plane.solver import CuttingPlane
from streamsvm.methods.fit import Fit
from streamsvm.numeric.rows import F64
from streamsvm.requests import MemoryNeed

BESIDE_CUTS = 128  # cuts of the line search beside: it is given up long before it has more, unless it is as good
SLOW_BYTES = 32 << 20  # its cuts may be more, and take so much memory, if it waits until the first solver is slow


def put_beside(
    source: RowSource, settings: OneRead | BlockAscent, first: Fit, alone: bool = False, terms: float = 0.0
) -> Fit:
    """Return the fit that runs a solver with resident rows and a line search beside it; see `join`."""
    costs, width = (settings.class_costs[0], settings.class_costs[1]), source.n_features + 1
    most = choose_most_cuts(width, alone)
    line_search = CuttingPlane(costs, settings.tol, bias_feature=settings.bias_feature, max_cuts=most)
    joined = join(first, line_search_setup.make_fit(source, line_search), settings.tol, alone, terms)
    assert first.dual is not None
    return replace(joined, dual=replace(first.dual, kind="cuts", most_cuts=first.dual.most_cuts + most))


def choose_most_cuts(width: int, alone: bool) -> int:
    """Return how many cuts the line search beside keeps."""
    return max(BESIDE_CUTS, min(most_cuts(width), SLOW_BYTES // (8 * width))) if alone else BESIDE_CUTS


def join(first: Fit, other: Fit, tol: float, alone: bool, terms: float) -> Fit:
    """Return the fit that runs both solvers, the second of which is a line search.

    alone: whether the first solver is alone at first, and the line search waits until it is slow. terms: how many
    additions a term of a sum goes through, at the most, if passes are carried along by a walk.
    """
    fits = first, replace(other, start=partial(_start_line_search, other, terms))
    return replace(
        first,
        memory=partial(_need_memory, fits),
        start=partial(_start, fits, alone),
        warm_start=None if first.warm_start is None else partial(_warm_start, fits, alone),
        start_at=None if other.start_at is None else partial(_start_at, fits, alone),
        solve=partial(beside.solve, [fit.solve for fit in fits], tol),
        compiled=tuple(dict.fromkeys((*other.compiled, *first.compiled))),
    )


def _need_memory(fits: tuple[Fit, Fit], threads: int) -> MemoryNeed:
    """Return the memory of both. A walk holds its own totals, those of a block, and both together."""
    own, other = (fit.memory(threads) for fit in fits)
    in_walk = own.walk_bytes > 0
    return replace(
        own,
        driver_bytes=own.driver_bytes + other.driver_bytes,
        turn_bytes=own.turn_bytes + other.turn_bytes,
        totals_bytes=own.totals_bytes + (0 if in_walk else other.totals_bytes),
        shared_bytes=own.shared_bytes + other.shared_bytes,
        walk_bytes=own.walk_bytes + (3 * other.totals_bytes if in_walk else 0),
    )


def _start_line_search(fit: Fit, terms: float) -> Any:
    return replace(fit.start(), terms=terms)


def _start(fits: tuple[Fit, Fit], alone: bool) -> State:
    states = [fit.start() for fit in fits]
    return State(states, states[0].best_w, alone=alone)


def _start_at(fits: tuple[Fit, Fit], alone: bool, w: F64) -> State:
    """Return the state to start from given weights, of which a first solver without `start_at` makes no use."""
    first, line_search = fits
    own = first.start() if first.start_at is None else first.start_at(w)
    return State([own, replace(line_search.start(), best_w=w)], w, alone=alone)


def _warm_start(fits: tuple[Fit, Fit], alone: bool, before: State, factor: float) -> State:
    """Return the state to start from, given the last state of the problem with costs `factor` times smaller."""
    first, line_search = fits
    own = first.start_after(before.states[0], factor)
    other = line_search.start() if before.alone else line_search.start_after(before.states[1], factor)
    return State(
        states=[own, other],
        best_w=own.best_w,
        objective=own.objective,
        lower_bound=own.lower_bound,
        objective_rounding=own.objective_rounding,
        bound_rounding=own.bound_rounding,
        alone=alone,
    )
