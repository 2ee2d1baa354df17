"""The best bias for a w: the minimum over b of sum_i C_i max(0, 1 - y_i (f_i + b)), found where the rows are.

The sum is convex and piecewise linear, and its slope grows by C_i at the corner y_i - f_i (numeric.certificates). A
pass over the numbers of the rows finds the slope at the limits of some thousand bins, and the corners are narrowed to
those of the bins where the slope changes sign. Corners are counted by their bits, in the order of the numbers, so that
bins may be as narrow as two neighbouring numbers. As soon as few corners are left, the driver is told all of them.
"""

from __future__ import annotations

import operator
from collections.abc import Generator
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from streamsvm.methods.interior_point.row_numbers import COSTS, F, Y
from streamsvm.methods.interior_point.steps import unwarned
from streamsvm.numeric.rows import F64, Rows
from streamsvm.requests import RowState, Scan

U64 = npt.NDArray[np.uint64]
BIN_BITS = 12
FEW_ROWS = 1 << 14
SIGN, ALL_BITS = 1 << 63, (1 << 64) - 1


def find_bias(state: RowState, n_rows: int, lowest: float, size: float) -> Generator[Scan, Any, float]:
    """Return the middle of all b that minimise the sum, or one of them if too many corners are near.

    lowest: the slope before all corners. size: how far sums of costs can be off.
    """
    low, n_bits, before, few = 0, 64, lowest, n_rows <= FEW_ROWS
    while not few:
        if n_bits == 0:
            return _number(low)
        shift = max(0, n_bits - BIN_BITS)
        sums, counts = yield Scan(_start_bins, add_bins, np.add, (low, shift), states=(state,), of_states=True)
        slopes, used = before + np.cumsum(sums), np.flatnonzero(counts)
        if not len(used):
            return 0.0
        first = int(np.clip(np.searchsorted(slopes, -2 * size), used[0], used[-1]))
        last = int(np.clip(np.searchsorted(slopes, 2 * size, side="right"), first, used[-1]))
        few, before = counts[first : last + 1].sum() <= FEW_ROWS, before if first == 0 else float(slopes[first - 1])
        low, n_bits = low + (first << shift), shift + (last - first).bit_length()
        if last > first and not few:  # the sum is flat from the end of one bin to the beginning of the other
            return (_number(low + (1 << shift)) + _number(low + ((last - first) << shift))) / 2
    shared = (low, min(low + (1 << n_bits) - 1, ALL_BITS))
    found = yield Scan(list, add_corners, operator.add, shared, states=(state,), of_states=True)
    corners, costs = np.concatenate(found, axis=1)
    return _choose_corner(corners, costs, before, size)


def _choose_corner(corners: F64, costs: F64, before: float, size: float) -> float:
    """Return the middle of the minimum; before: the slope before the corners."""
    if not len(corners):
        return 0.0
    order = np.argsort(corners, kind="stable")
    slopes = before + np.cumsum(costs[order])  # the slope after each corner
    first = min(int(np.searchsorted(slopes, -size)), len(order) - 1)
    last = min(int(np.searchsorted(slopes, size, side="right")), len(order) - 1)
    return float(corners[order[first]] + corners[order[last]]) / 2


def _start_bins() -> F64:
    return np.zeros((2, 1 << BIN_BITS))


@unwarned
def add_bins(totals: F64, rows: Rows, low: int, shift: int, numbers: F64) -> None:  # noqa: ARG001
    """Add the costs of the corners, and their number, to the bins, which begin at `low` and are 2^shift wide."""
    places, costs = order_bits(numbers[Y] - numbers[F]), numbers[COSTS]
    bins = (places - np.uint64(low)) >> np.uint64(shift)
    near = np.flatnonzero((costs > 0) & (places >= np.uint64(low)) & (bins < np.uint64(totals.shape[1])))
    found = bins[near].astype(np.int64)
    totals[0] += np.bincount(found, costs[near], totals.shape[1])
    totals[1] += np.bincount(found, minlength=totals.shape[1])


@unwarned
def add_corners(totals: list[F64], rows: Rows, low: int, high: int, numbers: F64) -> None:  # noqa: ARG001
    """Add the corners whose bits are in a range, and their costs."""
    corners, costs = numbers[Y] - numbers[F], numbers[COSTS]
    places = order_bits(corners)
    near = (costs > 0) & (places >= np.uint64(low)) & (places <= np.uint64(high))
    totals.append(np.stack((corners[near], costs[near])))


@njit(cache=True, nogil=True)
def order_bits(values: F64) -> U64:
    """Return the bits of numbers as whole numbers in the same order."""
    bits, sign = values.view(np.uint64), np.uint64(SIGN)
    places = np.empty(bits.size, np.uint64)
    for i in range(bits.size):
        places[i] = ~bits[i] if bits[i] >= sign else bits[i] | sign
    return places


def _number(bits: int) -> float:
    """Return the number with these ordered bits."""
    own = bits ^ SIGN if bits >= SIGN else ALL_BITS - bits
    return float(np.array([own], np.uint64).view(np.float64)[0])
