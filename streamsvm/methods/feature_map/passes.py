"""The sums of the passes of feature_map.solver. Rows are mapped a few at a time, so that a task needs little memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.numeric.feature_maps import KernelMap, PolynomialMap, measure_diagonal, split_rows
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F64, Matrix, Rows, slice_rows


def add_largest_feature(totals: F64, rows: Rows) -> None:
    """Raise totals (1,) to the largest absolute value of a second-order feature, before the division by `largest`."""
    plain = PolynomialMap(int(rows.X.shape[1]))
    for part in split_rows(plain, rows.n_rows):
        totals[0] = max(totals[0], float(np.max(np.abs(plain.apply(slice_rows(rows.X, part))))))


def add_largest_diagonal(totals: F64, rows: Rows, kernel: Kernel) -> None:
    """Raise totals (1,) to the largest k(x, x) of the rows."""
    totals[0] = max(totals[0], float(np.max(measure_diagonal(kernel, rows.X))))


def add_residuals(totals: list[F64], rows: Rows, kernel: Kernel, pivots: Matrix, matrix: F64) -> None:
    """Append the residuals k(x, x) - |Phi(x)|^2 of the rows of a tile, (n,), to the list."""
    feature_map = KernelMap(kernel, pivots, matrix)
    found = measure_diagonal(kernel, rows.X)
    for part in split_rows(feature_map, rows.n_rows):
        found[part] -= np.sum(feature_map.apply(slice_rows(rows.X, part)) ** 2, axis=1)
    totals.append(found)


def join_residuals(left: list[F64], right: list[F64]) -> list[F64]:
    """Return the residuals of both groups of rows, in the order of the rows."""
    return [*left, *right]


def add_gram(totals: F64, rows: Rows, kernel: Kernel, pivots: Matrix, matrix: F64) -> None:
    """Add Phi'Phi of the rows of a tile to totals (m, m); Phi (n, m) are the features by all m pivots."""
    feature_map: Any = KernelMap(kernel, pivots, matrix)
    for part in split_rows(feature_map, rows.n_rows):
        features = feature_map.apply(slice_rows(rows.X, part))
        totals += features.T @ features
