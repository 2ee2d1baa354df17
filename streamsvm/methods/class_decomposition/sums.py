"""The pass of Crammer-Singer with kernels: by how much changed multipliers change the K sums of every row.

    change of F_ik = sum_c coefs_kc k(x_i, z_c)      z_c, the rows whose multipliers changed
                                                     coefs_kc, the change of alpha_ck
For a linear kernel and for known values the changed rows are folded into w_k = sum_c coefs_kc z_c. The part of the
constant feature is the same for all rows, and is left to the driver.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.methods.decomposition.row_sums import RowSums, add_tile
from streamsvm.numeric import known_values
from streamsvm.numeric.kernels import Kernel, bound_combination, bound_linear_sums, combine_rows_of, to_float64
from streamsvm.numeric.many_kernel_sums import prove_kernel_sums
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, Matrix, Rows, slice_rows, take_rows

FLOAT64_ROWS = 4096  # rows that are held in float64 at once


class ClassChange(NamedTuple):
    """What changes F: columns (c, d) and coefs (K, c), or W (K, d), in place of columns.

    w_error: a bound of the error of x.w_k, as a share of |x|.
    """

    kernel: Kernel
    columns: Matrix
    coefs: F64
    W: F64
    w_error: float


def make_change(kernel: Kernel, columns: Matrix, coefs: F64) -> ClassChange:
    """Return what these rows change by these coefficients. columns: float64."""
    none, n_classes = take_rows(columns, np.empty(0, np.int64)), len(coefs)
    if kernel.name == "linear":
        error = max(bound_combination(columns, coef) for coef in coefs)
        return ClassChange(kernel, none, np.empty((n_classes, 0)), combine_rows_of(columns, coefs), error)
    if kernel.name == known_values.NAME:
        W = np.stack([known_values.fold(columns, coef) for coef in coefs])
        error = max(known_values.bound_fold(coef) for coef in coefs)
        return ClassChange(kernel, none, np.empty((n_classes, 0)), W, error)
    return ClassChange(kernel, columns, coefs, np.empty((n_classes, 0)), 0.0)


def sum_change(change: ClassChange, X: Matrix, threads: int) -> tuple[F64, F64]:
    """Return by how much F of these rows changes, (n, K), and how far each of it can be off, (n,)."""
    n, n_classes = X.shape[0], len(change.coefs)
    if change.W.size:
        return compute_scores(X, change.W), bound_linear_sums(X, change.w_error)
    F, errors = np.zeros((n, n_classes)), np.zeros(n)
    for at in range(0, n if change.coefs.size else 0, FLOAT64_ROWS):
        part = slice(at, min(at + FLOAT64_ROWS, n))
        rows = to_float64(slice_rows(X, part))
        F[part], errors[part] = prove_kernel_sums(change.kernel, rows, change.columns, change.coefs, threads)
    return F, errors


def add_class_sums(
    sums: RowSums,
    rows: Rows,
    kernel: Kernel,
    columns: Matrix,
    coefs: F64,
    W: F64,
    w_error: float,
    first: bool,
    threads: int,
) -> None:
    """Add the sums of a tile. kernel to w_error: the fields of a `ClassChange`; first: whether it is the first pass."""
    add_tile(sums, rows, *sum_change(ClassChange(kernel, columns, coefs, W, w_error), rows.X, threads), first)
