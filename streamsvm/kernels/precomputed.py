"""The kernel "precomputed": row i of the data holds the kernel values k(x_i, x_j) for all rows j.

The number of each row, times PLACE, is prepended to the row as its first value. The value k(x_i, x_j) is then found in
row i at the position that the first value of row j gives, so solvers take rows and columns as with any other kernel.
Row numbers are exact in float32 for up to 2^24 rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, Values
from streamsvm.system.errors import InputError

NAME = "precomputed"
PLACE = 2.0**-24
MOST_ROWS = 1 << 24
SUMMED_ROWS = 1024  # rows whose values are held at once


def put_numbers(rows: Rows, numbers: I64) -> Rows:
    """Return the rows with their row numbers, times PLACE, prepended as the first value."""
    X = require_dense(rows.X)
    first = (numbers * PLACE).astype(X.dtype)
    return replace(rows, X=np.concatenate((first[:, None], X), axis=1))


def require_dense(X: Matrix) -> Values:
    """Return the rows if they are dense; raise InputError if they are sparse."""
    if not isinstance(X, np.ndarray):
        raise InputError("kernel precomputed: the rows are sparse, but rows of kernel values must be dense")
    return X


def find_places(columns: Matrix) -> I64:
    """Return the positions, (m,), at which every row holds its kernel values with these columns."""
    return np.asarray(1 + np.round(require_dense(columns)[:, 0] / PLACE).astype(np.int64))


def look_up(X: Matrix, columns: Matrix) -> Values:
    """Return k(x_i, z_c), (n, m)."""
    found: Values = require_dense(X)[:, find_places(columns)]
    return found


def fold(columns: Matrix, coef: F64) -> tuple[F64, float]:
    """Return w (d,) with sum_c coef_c k(x_i, z_c) = x_i.w, and a bound of the error of x.w relative to |x|."""
    w = np.zeros(columns.shape[1])
    w[find_places(columns)] = coef
    return w, float(UNIT * (len(coef) + 4) * np.sqrt(len(coef)) * np.max(np.abs(coef), initial=0.0))


def add_sums(
    X: Matrix, columns: Matrix, coef: F64, f: F64, keep: tuple[Values, I64] | None, errors: F64 | None
) -> None:
    """Do the work of kernels.kernel.add_kernel_sums for precomputed kernel values."""
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
