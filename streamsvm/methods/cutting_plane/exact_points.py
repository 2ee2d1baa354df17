"""Cutting planes where rounding counts: how large sums can be, and P of a few points in twice the precision.

The first pass brings the magnitudes of all sums (see cutting_plane.cuts). Once the rounding of P may be more than
a share of what is to be proved, every pass evaluates some points exactly as well (numeric.exact_losses): points of the
line to the master's minimiser, and the same lengthened by a few units in the last place. Where costs are so high that
the best w has hardly any loss, margins of 1 - 1e-16 are losses that matter, and a w that is longer by 1e-15 has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from streamsvm.methods.cutting_plane.cuts import CutState, is_better
from streamsvm.numeric.exact_losses import ExactLosses, add_exact, combine_exact, start_exact
from streamsvm.numeric.kernels import absolute, raise_largest
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, Rows, add_rows
from streamsvm.requests import Scan

NOISE_SHARE = 0.1  # of the gap that is asked for: more rounding of P than that counts
ON_THE_LINE = (0.0, 1 / 32, 1 / 4, 1.0)
LONGER = (0.0, 2.0**-49, 2.0**-43, 2.0**-36)
MOST_VALUES = 1 << 21  # of the points of a pass: fewer of them are lengthened where there are many features


@dataclass
class Magnitudes:
    """sum_i C_i |x_ij| and max_i |x_ij|, (width,), the constant feature last; sum_i C_i; the number of rows."""

    sums: F64
    largest: F64
    cost: float = 0.0
    n_rows: int = 0


def start_magnitudes(width: int) -> Magnitudes:
    """Return those of no rows."""
    return Magnitudes(np.zeros(width), np.zeros(width))


def add_magnitudes(totals: Magnitudes, rows: Rows, class_costs: F64, bias_feature: float) -> None:
    """Add rows."""
    _, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    every, sizes = np.arange(rows.n_rows), absolute(rows.X)
    add_rows(totals.sums[None, :], sizes, every, np.zeros_like(every), costs)
    raise_largest(totals.largest[:-1], sizes)
    cost = float(np.sum(costs))
    totals.sums[-1] += abs(bias_feature) * cost
    totals.largest[-1] = abs(bias_feature)
    totals.cost += cost
    totals.n_rows += rows.n_rows


def combine_magnitudes(left: Magnitudes, right: Magnitudes) -> Magnitudes:
    """Return the sum."""
    largest = np.maximum(left.largest, right.largest)
    return Magnitudes(left.sums + right.sums, largest, left.cost + right.cost, left.n_rows + right.n_rows)


S = TypeVar("S", bound=CutState)


def take_magnitudes(state: S, answers: Sequence[Any]) -> S:
    """Return the state that knows them, from the answers to `look_for_rounding`; their own rounding is counted."""
    if len(state.magnitudes):
        return state
    found: Magnitudes = answers[-1]
    larger = 1.0 + bound_rounding(found.n_rows + 8, 1.0)
    return replace(
        state,
        magnitudes=larger * found.sums,
        largest=found.largest,
        total_cost=larger * found.cost,
        terms=float(found.n_rows),
    )


def is_noisy(state: CutState, tol: float) -> bool:
    """Whether P of a point is known too badly for what is to be proved."""
    if not len(state.magnitudes) or not np.isfinite(state.objective):
        return False
    sizes = np.abs(state.best_w) + np.abs(state.master_w)
    return state.bound_loss(sizes) > NOISE_SHARE * tol * state.objective


def look_for_rounding(state: CutState, points: F64 | None, class_costs: F64, bias_feature: float) -> list[Scan]:
    """Return what a pass is asked besides: the loss at the points in twice the precision; at first, the magnitudes."""
    looks = [] if points is None else [_look_exactly(points, class_costs, bias_feature)]
    if not len(state.magnitudes):
        start = partial(start_magnitudes, len(state.best_w))
        looks.append(Scan(start, add_magnitudes, combine_magnitudes, (class_costs, bias_feature)))
    return looks


def choose_points(bases: F64) -> F64:
    """Return points (k, width): those given, and each lengthened."""
    return np.concatenate([(1.0 + longer) * bases for longer in LONGER[: _count_longer(bases.size)]])


def _count_longer(n_values: int) -> int:
    return int(np.clip(MOST_VALUES // n_values, 1, len(LONGER)))


def exact_bytes(width: int) -> int:
    """Return the memory of the points of a pass, which every task is sent and splits into two parts."""
    n_values = len(ON_THE_LINE) * width
    return 8 * n_values * _count_longer(n_values)


def choose_line_points(start: F64, end: F64) -> F64:
    """Return points on a line, and the same lengthened."""
    return choose_points(np.stack([(1.0 - t) * start + t * end for t in ON_THE_LINE]))


def _look_exactly(W: F64, class_costs: F64, bias_feature: float) -> Scan:
    """Return the pass that evaluates the loss at W (k, width) in twice the precision."""
    shared = (np.ascontiguousarray(W[:, :-1]), W[:, -1] * bias_feature, class_costs)
    return Scan(partial(start_exact, len(W)), add_exact, combine_exact, shared)


def take_exact(state: S, W: F64, found: ExactLosses) -> tuple[S, int, float]:
    """Return the state with the best of the points, if it is better for certain; which that is; and its loss."""
    losses, rounding = found.read(W.shape[1])
    halves = np.einsum("kj,kj->k", W, W) / 2
    rounding = rounding + np.array([bound_rounding(W.shape[1] + 8, 2 * half) for half in halves])
    objectives = halves + losses
    at = int(np.argmin(objectives + rounding))
    if is_better(objectives[at], rounding[at], state):
        state = replace(state, best_w=W[at], objective=float(objectives[at]), objective_rounding=float(rounding[at]))
    return state, at, float(losses[at])
