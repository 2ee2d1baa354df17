"""The weighted Gram matrix of chosen rows, by matrix products: sum_e weight_e x_{row_e} x_{row_e}'.

Dense rows: a symmetric rank-k update (BLAS dsyrk), half the work of a product. Sparse rows: the products of their own
items, which is less than dense rows would take where fewer than a quarter of the values are not zero. Data are
float32, products and sums float64. Only the upper triangle is summed.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.linalg.blas import dsyrk

from streamsvm.numeric.rows import F32, F64, I32, I64, CsrRows, Matrix

PART_VALUES = 1 << 16  # of rows that are written out in float64 at a time: half a megabyte


def start_gram(n_features: int) -> F64:
    """Return zeros (d, d), column by column in memory, as `add_gram` wants them."""
    return np.zeros((n_features, n_features), order="F")


def add_gram(total: F64, X: Matrix, row: I64, weight: F64) -> None:
    """Add sum_e weight_e x_{row_e} x_{row_e}' to the upper triangle of total; weights are not negative."""
    if isinstance(X, CsrRows):
        _add_csr_gram(X.data, X.indices, X.indptr, row, weight, total.T)
        return
    step = max(1, PART_VALUES // X.shape[1])
    roots = np.sqrt(weight)
    for at in range(0, len(row), step):
        part = X[row[at : at + step]] * roots[at : at + step, None]
        dsyrk(1.0, part.T, beta=1.0, c=total, overwrite_c=1)


@njit(cache=True, nogil=True)
def _add_csr_gram(data: F32, indices: I32, indptr: I64, row: I64, weight: F64, lower: F64) -> None:
    for e in range(row.size):
        start, stop = indptr[row[e]], indptr[row[e] + 1]
        for k in range(start, stop):
            value, j = weight[e] * data[k], indices[k]
            for m in range(start, k + 1):  # indices may be in any order
                lower[max(j, indices[m]), min(j, indices[m])] += value * data[m]
