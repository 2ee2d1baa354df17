"""Kernel values that are known: row i of the data holds k(x_i, x_j) for all rows j, as the kernel "precomputed" has it.

A row is told its number, which becomes its first value, times PLACE. Then k(x_i, x_j) is the value of row i at the
place that row j names, and solvers take rows and columns as they do with any kernel. The numbers are exact in float32
for up to 2^24 rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.errors import InputError
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, Values

NAME = "precomputed"
PLACE = 2.0**-24
MOST_ROWS = 1 << 24
SUMMED_ROWS = 1024  # rows whose values are held at once


def put_numbers(rows: Rows, numbers: I64) -> Rows:
    """Return the rows with their numbers in the data as the first value."""
    X = require_dense(rows.X)
    first = (numbers * PLACE).astype(X.dtype)
    return replace(rows, X=np.concatenate((first[:, None], X), axis=1))


def require_dense(X: Matrix) -> Values:
    """Return rows that are dense; InputError for sparse rows."""
    if not isinstance(X, np.ndarray):
        raise InputError("kernel precomputed: rows of kernel values have to be dense")
    return X


def find_places(columns: Matrix) -> I64:
    """Return where the rows have their kernel values with each of these columns, (m,)."""
    places: I64 = 1 + np.round(require_dense(columns)[:, 0] / PLACE).astype(np.int64)
    return places


def look_up(X: Matrix, columns: Matrix) -> Values:
    """Return k(x_i, z_c), (n, m)."""
    found: Values = require_dense(X)[:, find_places(columns)]
    return found


def fold(columns: Matrix, coef: F64) -> F64:
    """Return w, (d,), for which sum_c coef_c k(x_i, z_c) = x_i.w."""
    w = np.zeros(columns.shape[1])
    w[find_places(columns)] = coef
    return w


def bound_fold(coef: F64) -> float:
    """Return how far x.w can be off for w of `fold`, as a share of |x|."""
    return float(UNIT * (len(coef) + 4) * np.sqrt(len(coef)) * np.max(np.abs(coef), initial=0.0))


def add_sums(
    X: Matrix, columns: Matrix, coef: F64, f: F64, keep: tuple[Values, I64] | None, errors: F64 | None
) -> None:
    """Do what numeric.kernels.add_kernel_sums does, for kernel values that are known."""
    known, places = require_dense(X), find_places(columns)
    for at in range(0, len(f), SUMMED_ROWS):
        rows = slice(at, at + SUMMED_ROWS)
        values = known[rows][:, places]
        f[rows] += values @ coef
        if keep is not None:
            store, slots = keep
            store[slots, at : at + len(values)] = values.T
        if errors is not None:
            errors[rows] += UNIT * (len(coef) + 4) * (np.abs(values) @ np.abs(coef))
