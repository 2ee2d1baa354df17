"""What is done about rounding, as in cutting_plane.exact_points: magnitudes, and some P in twice the precision.

The points are weight matrices on the line from the best point to another one, and the same matrices made longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from streamsvm.methods.cutting_plane.cuts import CutState
from streamsvm.methods.cutting_plane.exact_points import (
    Magnitudes,
    choose_line_points,
    combine_magnitudes,
    is_noisy,
    start_magnitudes,
    take_exact,
)
from streamsvm.numeric.class_losses import read_costs
from streamsvm.numeric.exact_class_losses import add_exact_classes
from streamsvm.numeric.exact_losses import combine_exact, start_exact
from streamsvm.numeric.magnitudes import add_row_magnitudes
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, Rows
from streamsvm.requests import Scan

S = TypeVar("S", bound=CutState)


def look_for_rounding(state: CutState, ends: F64, class_costs: F64, bias_feature: float, tol: float) -> list[Scan]:
    """Return the scans that a pass is asked for because of rounding.

    They are the magnitudes in the first pass, and P in twice the precision near the line between the ends (2, K (d+1))
    where the rounding of P may be too large for the gap that is asked for.
    """
    if not len(state.magnitudes):
        start = partial(start_magnitudes, len(state.best_w) // len(class_costs))
        return [Scan(start, add_sizes, combine_magnitudes, (class_costs, bias_feature))]
    if not is_noisy(state, tol):
        return []
    W = choose_line_points(*ends)
    matrices = W.reshape(len(W), len(class_costs), -1)
    shared = (np.ascontiguousarray(matrices[:, :, :-1]), matrices[:, :, -1] * bias_feature, class_costs)
    return [Scan(partial(start_exact, len(W)), add_exact_classes, combine_exact, shared)]


def add_sizes(totals: Magnitudes, rows: Rows, class_costs: F64, bias_feature: float) -> None:
    """Add the magnitudes of rows."""
    costs = read_costs(class_costs, rows)
    add_row_magnitudes(totals.sums, totals.largest, rows.X, costs)
    cost = float(np.sum(costs))
    totals.sums[-1] += abs(bias_feature) * cost
    totals.largest[-1] = abs(bias_feature)
    totals.cost += cost
    totals.n_rows += rows.n_rows
    totals.additions += rows.n_rows


def take_rounding(state: S, ends: F64, answers: Sequence[Any]) -> S:
    """Return the state with the answers to `look_for_rounding`, if there are any."""
    for found in answers:
        if isinstance(found, Magnitudes):
            return _take_sizes(state, found)
        return take_exact(state, choose_line_points(*ends), found)[0]
    return state


def _take_sizes(state: S, found: Magnitudes) -> S:
    """Return the state with the magnitudes.

    Every class may have a slope of up to C_i in a row, so its weights have the magnitudes of all rows. A term of a sum
    goes through at most so many additions as there are rows, and 2 K more where the shares of a row are added up.
    """
    n_classes = len(state.best_w) // len(found.sums)
    larger = 1.0 + bound_rounding(found.n_rows + 8, 1.0)
    return replace(
        state,
        magnitudes=np.tile(larger * found.sums, n_classes),
        largest=np.tile(found.largest, n_classes),
        total_cost=larger * found.cost,
        terms=min(state.terms + found.additions, found.n_rows) + 2.0 * n_classes + 16.0,
    )
