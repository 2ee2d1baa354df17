"""The variance of all values of the rows, from sums of tiles that are added up in the order of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.numeric.kernels import compute_squares, to_float64
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, Rows

ROUNDING = 2.0**-47  # share of the mean square that is left of the variance of equal values


def add_moments(totals: list[tuple[float, float, float]], rows: Rows, ones: F64) -> None:
    """Append the sum of the values of a tile, the sum of their squares, and their number.

    A row counts as much as its weight. ones: (1, d), so that the sums of rows are scores.
    """
    weight = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight
    with np.errstate(over="ignore", invalid="ignore"):  # methods refuse rows that are too long
        total = float(weight @ compute_scores(rows.X, ones)[:, 0])
        squares = float(weight @ compute_squares(to_float64(rows.X)))
    totals.append((total, squares, float(np.sum(weight)) * ones.shape[1]))


def join_moments(left: Any, right: Any) -> F64:
    """Return the sums of all tiles (tiles, 3), left before right."""
    return np.concatenate((np.reshape(left, (-1, 3)), np.reshape(right, (-1, 3))))


def compute_variance(totals: Any) -> float:
    """Return the variance of all values, zeros of sparse rows included; 0 if it is rounding, or if no row counts.

    The sums of the tiles are added one after another, so the tasks that they come from leave no trace.
    """
    total, squares, count = np.cumsum(np.reshape(totals, (-1, 3)), axis=0)[-1].tolist()
    if count <= 0:
        return 0.0
    variance = squares / count - (total / count) ** 2
    return float(variance) if variance > ROUNDING * squares / count else 0.0
