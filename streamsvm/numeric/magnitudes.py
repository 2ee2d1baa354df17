"""The magnitudes of rows, from which the rounding of sums over these rows is bounded."""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm.numeric.rows import F32, F64, I32, I64, Matrix, split


def add_row_magnitudes(sums: F64, largest: F64, X: Matrix, weight: F64) -> None:
    """Add sum_i weight_i |x_ij| to sums_j, and set largest_j = max(largest_j, max_i |x_ij|); both (at least d,)."""
    _add_magnitudes(*split(X), np.require(weight, requirements="W"), sums, largest)


@njit(cache=True, nogil=True)
def _add_magnitudes(values: F32, indices: I32, indptr: I64, weight: F64, sums: F64, largest: F64) -> None:
    for i in range(weight.size):
        cost = weight[i]
        if values.ndim == 1:
            for e in range(indptr[i], indptr[i + 1]):
                at, size = np.uint32(indices[e]), np.float64(abs(values[e]))
                sums[at] += cost * size
                largest[at] = max(largest[at], size)
        else:
            x = values[i]
            for j in range(x.size):
                size = np.float64(abs(x[j]))
                sums[j] += cost * size
                largest[j] = max(largest[j], size)
