"""What cutting planes do about rounding: magnitudes of sums, and P of a few points in twice the precision.

The first pass finds the magnitudes that bound the rounding of all sums (see cutting_plane.cuts). Once the rounding of P
may be more than NOISE_SHARE of the gap that is asked for, every pass also evaluates P in twice the precision
(numeric.exact_losses) at some points: points on the line to the master's minimiser, and the same points multiplied by a
little more than 1. The longer points help if costs are so high that the best w has hardly any loss. Then a margin of
1 - 1e-16 is a loss that matters, and a w that is longer by 1e-15 of itself does not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from streamsvm.methods.cutting_plane.cuts import CutState, is_better
from streamsvm.numeric.exact_losses import ExactLosses, add_exact, combine_exact, start_exact
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.losses import FINE_STEPS
from streamsvm.numeric.magnitudes import add_row_magnitudes
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, Rows
from streamsvm.requests import Scan

NOISE_SHARE = 0.1  # rounding of P that is less than this share of the gap asked for does not matter
ON_THE_LINE = (0.0, 1 / 32, 1 / 4, 1.0)  # steps of the points on the line
LONGER = (0.0, 2.0**-49, 2.0**-42, 2.0**-33, 2.0**-24)  # by these shares of its length a point is made longer
LINE_STEPS = 17 * FINE_STEPS + 1  # at most so many changes are added up along a line (cutting_plane.segments)
MOST_VALUES = 1 << 21  # numbers in all points of a pass: with many features fewer longer points are tried


@dataclass
class Magnitudes:
    """Sums over rows that bound the rounding of losses and cuts.

    sums: sum_i C_i |x_ij|, and largest: max_i |x_ij|, (width,) each, with the constant feature last; cost: sum_i C_i;
    n_rows: all rows, of which one that was added and subtracted again counts twice, in the sums as well; additions: the
    largest number of additions that a term of a sum over the rows goes through, if the rows of a group are added one
    after another.
    """

    sums: F64
    largest: F64
    cost: float = 0.0
    n_rows: int = 0
    additions: int = 0


def start_magnitudes(width: int) -> Magnitudes:
    """Return the magnitudes of no rows."""
    return Magnitudes(np.zeros(width), np.zeros(width))


def add_magnitudes(totals: Magnitudes, rows: Rows, class_costs: F64, bias_feature: float) -> None:
    """Add the magnitudes of rows."""
    _, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    add_row_magnitudes(totals.sums, totals.largest, rows.X, costs)
    cost = float(np.sum(costs))
    totals.sums[-1] += abs(bias_feature) * cost
    totals.largest[-1] = abs(bias_feature)
    totals.cost += cost
    totals.n_rows += rows.n_rows
    totals.additions += rows.n_rows


def combine_magnitudes(left: Magnitudes, right: Magnitudes) -> Magnitudes:
    """Return the magnitudes of the rows of both."""
    largest, n_rows = np.maximum(left.largest, right.largest), left.n_rows + right.n_rows
    additions = max(left.additions, right.additions) + 1
    return Magnitudes(left.sums + right.sums, largest, left.cost + right.cost, n_rows, additions)


S = TypeVar("S", bound=CutState)


def take_magnitudes(state: S, answers: Sequence[Any]) -> S:
    """Return the state with the magnitudes, which are the last answer to `look_for_rounding` in the first pass.

    The magnitudes are sums as well, so they are raised by the bound of their own rounding. A sum has no more terms than
    there are rows; where it is made of the changes from step to step of a line, the steps are added as well.
    """
    if len(state.magnitudes):
        return state
    found: Magnitudes = answers[-1]
    larger = 1.0 + bound_rounding(found.n_rows + 8, 1.0)
    return replace(
        state,
        magnitudes=larger * found.sums,
        largest=found.largest,
        total_cost=larger * found.cost,
        terms=max(state.terms, float(min(found.n_rows, found.additions + LINE_STEPS))),
    )


def is_noisy(state: CutState, tol: float) -> bool:
    """Return whether the rounding of P may be too large for the gap that is asked for."""
    if not len(state.magnitudes) or not np.isfinite(state.objective):
        return False
    sizes = np.abs(state.best_w) + np.abs(state.master_w)
    return state.bound_loss(sizes) > NOISE_SHARE * tol * state.objective


def look_for_rounding(state: CutState, points: F64 | None, class_costs: F64, bias_feature: float) -> list[Scan]:
    """Return the scans that a pass is asked for because of rounding.

    They are the loss in twice the precision at the points, if there are any, and the magnitudes in the first pass.
    """
    looks = [] if points is None else [_look_exactly(points, class_costs, bias_feature)]
    if not len(state.magnitudes):
        start = partial(start_magnitudes, len(state.best_w))
        looks.append(Scan(start, add_magnitudes, combine_magnitudes, (class_costs, bias_feature)))
    return looks


def choose_points(bases: F64) -> F64:
    """Return points (k, width): the given points, and after them the same points made longer."""
    return np.concatenate([(1.0 + longer) * bases for longer in LONGER[: _count_longer(bases.size)]])


def _count_longer(n_values: int) -> int:
    return int(np.clip(MOST_VALUES // n_values, 1, len(LONGER)))


def exact_bytes(width: int) -> int:
    """Return the bytes of the points of a pass. Every task is sent the points, and splits them into two parts."""
    n_values = len(ON_THE_LINE) * width
    return 8 * n_values * _count_longer(n_values)


def choose_line_points(start: F64, end: F64) -> F64:
    """Return points on the line from start to end, and after them the same points made longer."""
    return choose_points(np.stack([(1.0 - t) * start + t * end for t in ON_THE_LINE]))


def _look_exactly(W: F64, class_costs: F64, bias_feature: float) -> Scan:
    """Return the pass that evaluates the loss at W (k, width) in twice the precision."""
    shared = (np.ascontiguousarray(W[:, :-1]), W[:, -1] * bias_feature, class_costs)
    return Scan(partial(start_exact, len(W)), add_exact, combine_exact, shared)


def take_exact(state: S, W: F64, found: ExactLosses) -> tuple[S, int, float]:
    """Return the state, the place of the best of the points, and the loss there.

    The state moves to the best point only if it is better whatever was rounded.
    """
    losses, rounding = found.read(W.shape[1])
    halves = np.einsum("kj,kj->k", W, W) / 2
    rounding = rounding + np.array([bound_rounding(W.shape[1] + 8, 2 * half) for half in halves])
    objectives = halves + losses
    at = int(np.argmin(objectives + rounding))
    if is_better(objectives[at], rounding[at], state):
        state = replace(state, best_w=W[at], objective=float(objectives[at]), objective_rounding=float(rounding[at]))
    return state, at, float(losses[at])
