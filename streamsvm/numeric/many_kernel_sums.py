"""K sums of kernels for each row, F_ik = sum_c coef_kc k(x_i, z_c): kernel values are computed once for all K."""

from __future__ import annotations

import numpy as np

from streamsvm.numeric.kernels import (
    TILE_ROWS,
    Kernel,
    bound_combination,
    bound_evaluated,
    bound_linear_sums,
    combine_rows_of,
    evaluate_all,
    share_rows,
    to_float64,
    type_of,
)
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, Matrix, Values, slice_rows

SUMMED_COLUMNS = 4096  # columns whose values with a tile of rows are held at once
PRODUCT_TERMS = 4  # a sum of m terms in any order loses as much as bound_sums says of this many times m terms
NO_MAGNITUDES = np.empty(0)


def compute_kernel_sums(kernel: Kernel, X: Matrix, columns: Matrix, coefs: F64) -> F64:
    """Return F_ik = sum_c coefs_kc k(x_i, z_c), (n, K), for coefs (K, m); kernel values serve all K at once."""
    if kernel.name == "linear":
        return compute_scores(X, combine_rows_of(columns, coefs))
    return _sum_for_all(kernel, X, columns, coefs, NO_MAGNITUDES, 1)


def prove_kernel_sums(kernel: Kernel, X: Matrix, columns: Matrix, coefs: F64, threads: int = 1) -> tuple[F64, F64]:
    """Return F_ik as `compute_kernel_sums` does in float64, and how far each sum of a row can be off, (n,).

    The errors are those of one sum with the largest |coefs_kc| over k.
    """
    sizes = np.max(np.abs(coefs), axis=0)
    if kernel.name == "linear":
        share = max(bound_combination(columns, coef) for coef in coefs)
        return compute_kernel_sums(kernel, X, columns, coefs), bound_linear_sums(X, share)
    magnitudes, columns = np.zeros(X.shape[0]), to_float64(columns)
    F = _sum_for_all(kernel, X, columns, coefs, magnitudes, threads)
    return F, bound_evaluated(kernel, X, columns, sizes, PRODUCT_TERMS * len(sizes), magnitudes)


def _sum_for_all(kernel: Kernel, X: Matrix, columns: Matrix, coefs: F64, magnitudes: F64, threads: int) -> F64:
    """Return F (n, K), and add the magnitudes of sums with the largest |coefs_kc| to `magnitudes`, if it is not empty.

    Threads share the tiles of rows, and the sums of a row are computed by one of them.
    """
    F, sizes = np.zeros((X.shape[0], len(coefs))), np.max(np.abs(coefs), axis=0)

    def add(rows: slice) -> None:
        for at in range(rows.start, rows.stop, TILE_ROWS):
            tile = slice(at, min(at + TILE_ROWS, rows.stop))
            for first in range(0, columns.shape[0], SUMMED_COLUMNS):
                block = slice(first, first + SUMMED_COLUMNS)
                X_tile, part = slice_rows(X, tile), slice_rows(columns, block)
                n, m = X_tile.shape[0], part.shape[0]
                values: Values = np.empty((m, n), np.result_type(type_of(X), type_of(columns)))
                keep = (values, np.arange(m))
                evaluate_all(kernel, X_tile, part, sizes[block], np.zeros(n), 1, keep, magnitudes[tile])
                F[tile] += compute_scores(np.ascontiguousarray(values.T), coefs[:, block])

    share_rows(add, len(F), TILE_ROWS, threads)
    return F
