"""What bounds the rounding of sums over rows: the magnitudes of cutting_plane.exact_points, for each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from streamsvm.methods.cutting_plane.cuts import CutState
from streamsvm.methods.cutting_plane.exact_points import Magnitudes, combine_magnitudes, start_magnitudes
from streamsvm.numeric.class_losses import read_costs
from streamsvm.numeric.kernels import absolute, raise_largest
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, Rows, add_rows
from streamsvm.requests import Scan

S = TypeVar("S", bound=CutState)


def look_for_sizes(state: CutState, class_costs: F64, bias_feature: float) -> list[Scan]:
    """Return the scan that finds the magnitudes, which the first pass is asked for."""
    if len(state.magnitudes):
        return []
    start = partial(start_magnitudes, len(state.best_w) // len(class_costs))
    return [Scan(start, add_sizes, combine_magnitudes, (class_costs, bias_feature))]


def add_sizes(totals: Magnitudes, rows: Rows, class_costs: F64, bias_feature: float) -> None:
    """Add the magnitudes of rows."""
    costs, every, sizes = read_costs(class_costs, rows), np.arange(rows.n_rows), absolute(rows.X)
    add_rows(totals.sums[None, :], sizes, every, np.zeros_like(every), costs)
    raise_largest(totals.largest[:-1], sizes)
    cost = float(np.sum(costs))
    totals.sums[-1] += abs(bias_feature) * cost
    totals.largest[-1] = abs(bias_feature)
    totals.cost += cost
    totals.n_rows += rows.n_rows
    totals.additions += rows.n_rows


def take_sizes(state: S, answers: Sequence[Any]) -> S:
    """Return the state with the magnitudes, if this is the first pass.

    Every class may have a slope of up to C_i in a row, so its weights have the magnitudes of all rows. A term of a sum
    goes through at most so many additions as there are rows, and 2 K more where the shares of a row are added up.
    """
    if len(state.magnitudes):
        return state
    (found,) = answers
    n_classes = len(state.best_w) // len(found.sums)
    larger = 1.0 + bound_rounding(found.n_rows + 8, 1.0)
    return replace(
        state,
        magnitudes=np.tile(larger * found.sums, n_classes),
        largest=np.tile(found.largest, n_classes),
        total_cost=larger * found.cost,
        terms=state.terms + found.n_rows + 2.0 * n_classes + 16.0,
    )
