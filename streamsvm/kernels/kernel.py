"""Mercer kernels of rows, by matrix products over tiles that stay in the second-level cache.

    linear   x.z                     poly      (gamma x.z + coef0)^degree
    rbf      exp(-gamma |x - z|^2)   sigmoid   tanh(gamma x.z + coef0)

With "precomputed", the rows themselves hold the kernel values (kernels.precomputed).

The main function is `add_kernel_sums`: f_i += sum_c coef_c k(x_i, z_c), for many rows i and the columns c whose
multipliers have changed. For each tile of rows, the products with all columns are computed, turned into kernel values,
summed in float64 and, if requested, stored, all before they leave the cache. One compiled call processes many tiles,
because threads that return to Python between short computations wait for one another.

|x - z|^2 is computed as |x|^2 + |z|^2 - 2 x.z, so float32 kernel values have errors of about 1e-7 (1 + gamma |x|^2).
Where accuracy matters more than speed, pass float64 rows: the distance of rows that are close relative to their lengths
is then computed from differences, and the rounding error of sums can be bounded (kernels.values).

If each row has K sums, F_ik = sum_c coef_kc k(x_i, z_c), every kernel value is computed once for all K.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.kernels import precomputed
from streamsvm.kernels.layouts import match_parts
from streamsvm.kernels.names import KERNELS
from streamsvm.kernels.values import FAINT, Columns, CompiledKernel, add_columns, bound_sums, copy_values, evaluate_rows
from streamsvm.numeric.gram import BLOCK_ITEMS, measure_dense, measure_sparse
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix, Rows, Values, add_rows, compute_scores, slice_rows, split
from streamsvm.system.threads import map_on_threads

TILE_ROWS = 512
TILE_VALUES = 1 << 18  # float32 values (1 MiB) of a tile of sparse rows in dense form
SUMMED_ROWS = 4096  # number of rows whose sums are computed together if kernel values are known or not needed
SUMMED_COLUMNS = 4096  # number of columns whose kernel values with a tile of rows are held at once, for K sums
PRODUCT_TERMS = 4  # a sum of m terms in any order is within the bound that `bound_sums` gives for PRODUCT_TERMS m terms
VARIANCE_ROUNDING = 2.0**-47  # rounding error of the variance of equal values, relative to their mean square
PARTS_A_THREAD = 4
NO_SLOTS, NO_MAGNITUDES = np.empty(0, np.int64), np.empty(0)


@dataclass(frozen=True)
class Kernel:
    """A kernel, one of KERNELS, and its parameters. Parameters that a kernel does not have are ignored."""

    name: str = "linear"
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0

    @property
    def is_definite(self) -> bool:
        """Whether s'Ks >= 0 for all rows and all s that sum to 0, which the dual problem requires.

        A polynomial kernel with coef0 >= 0 is a polynomial in x.z without negative coefficients. With degree 1 it is
        the linear kernel plus a constant, which does not change s'Ks. The sigmoid kernel is indefinite for almost all
        rows, and the definiteness of a precomputed matrix is unknown.
        """
        if self.name == "poly":
            return self.coef0 >= 0 or self.degree == 1
        return self.name not in ("sigmoid", precomputed.NAME)

    def bound_values(self, reach: float) -> float:
        """Return an upper bound of |k(x, z)| for rows with |x|^2 and |z|^2 of at most `reach`."""
        match self.name:
            case "linear":
                return reach
            case precomputed.NAME:  # the value is an entry of the row
                return math.sqrt(reach)
            case "poly":
                with np.errstate(over="ignore"):
                    return float(np.float64(self.gamma * reach + abs(self.coef0)) ** self.degree)
        return 1.0


def add_chosen_columns(columns: Values, chosen: I64, coef: F64, f: F64, threads: int = 1) -> None:
    """Add sum_c coef_c columns[chosen_c, i] to f_i, for columns (slots, n) float32 and chosen, coef (m,)."""
    if not len(chosen):
        return
    share_rows(lambda rows: add_columns(columns, chosen, coef, rows.start, f[rows]), len(f), SUMMED_ROWS, threads)


def copy_columns(columns: Values, slots: I64, chosen: I64, K: Values, threads: int = 1) -> None:
    """Set K[c, j] = K[j, c] = columns[slots_c, chosen_j] for every c that has a slot (others have -1)."""
    share_rows(lambda rows: copy_values(columns, slots, chosen, K, rows.start, rows.stop), len(chosen), 64, threads)


def compute_squares(X: Matrix, dtype: type[np.floating[Any]] | None = None) -> Values:
    """Return |x_i|^2, (n,), summed in float64 and rounded to `dtype`, or to the type of X."""
    squares: Values = np.empty(X.shape[0], dtype or type_of(X))
    if isinstance(X, CsrRows):
        measure_sparse(X.data, X.indptr, squares)
    else:
        measure_dense(X, squares)
    return squares


def count_items(X: Matrix) -> int:
    """Return the largest number of stored items of a row; for dense rows, the number of features."""
    if isinstance(X, CsrRows):
        return int(np.diff(X.indptr).max(initial=0))
    return X.shape[1] if len(X) else 0


def _count_row_items(X: Matrix) -> I64:
    """Return the number of stored items of each row, (n,); for dense rows, the number of features."""
    return np.diff(X.indptr) if isinstance(X, CsrRows) else np.full(len(X), X.shape[1])


def type_of(X: Matrix) -> np.dtype[Any]:
    """Return the dtype of the values of X."""
    return X.data.dtype if isinstance(X, CsrRows) else X.dtype


def to_float64(X: Matrix) -> Matrix:
    """Return the rows as float64, so that kernel values are computed in float64."""
    if isinstance(X, CsrRows):
        return replace(X, data=X.data.astype(np.float64, copy=False))
    return X.astype(np.float64, copy=False)  # type: ignore[return-value]


def absolute(X: Matrix) -> Matrix:
    """Return rows with the absolute values of X."""
    if isinstance(X, CsrRows):
        return replace(X, data=np.abs(X.data))
    return np.abs(X)


def _choose_tile_rows(X: Matrix) -> int:
    """Return TILE_ROWS, or fewer if a tile of sparse rows in dense form would not fit into the cache."""
    if not isinstance(X, CsrRows) or not X.shape[0]:
        return TILE_ROWS
    used = min(X.n_features, TILE_ROWS * (1 + len(X.data) // X.shape[0]) // 2)
    return int(np.clip(TILE_VALUES // max(1, used) // 16 * 16, 64, TILE_ROWS))


def add_kernel_sums(
    kernel: Kernel,
    X: Matrix,
    columns: Matrix,
    coef: F64,
    f: F64,
    threads: int = 1,
    keep: tuple[Values, I64] | None = None,
    errors: F64 | None = None,
) -> None:
    """Add sum_c coef_c k(x_i, z_c) to f_i for the rows x_i of X (n, d) and the rows z_c of columns (m, d).

    f: (n,) float64. keep: (store, slots); if given, the kernel values are written to store[slots], (m, n). errors:
    (n,); if given, a bound of the error of each sum is added to it, kernel values are computed in float64, and X and
    columns may differ in layout. For the linear kernel the columns are first combined into one vector. Threads share
    the tiles, but one thread computes each sum in the order of the columns, so the bits do not depend on the number of
    threads.
    """
    if kernel.name == precomputed.NAME:
        precomputed.add_sums(X, columns, coef, f, keep, errors)
        return
    if kernel.name == "linear":
        add_linear_sums(X, combine_rows(columns, coef), f, threads)
        if errors is not None:
            errors += bound_linear_sums(X, bound_combination(columns, coef))
        return
    if errors is None:
        evaluate_all(kernel, X, columns, coef, f, threads, keep)
        return
    for part, rows, own in match_parts(X, to_float64(columns)):
        magnitudes = np.zeros(rows.shape[0])
        evaluate_all(kernel, rows, own, coef, f[part], threads, keep, magnitudes)
        errors[part] += bound_evaluated(kernel, rows, own, coef, len(coef), magnitudes)


def bound_evaluated(kernel: Kernel, X: Matrix, columns: Matrix, coef: F64, n_terms: int, magnitudes: F64) -> F64:
    """Return error bounds of sums of `n_terms` terms, (n,), given the sums of the terms' magnitudes, (n,)."""
    own, most = _count_row_items(X), count_items(columns)
    items, lengths = np.minimum(own, most), np.maximum(own, most)
    if isinstance(X, CsrRows):
        lengths = np.minimum(lengths, BLOCK_ITEMS + 2)
    longest = float(np.max(compute_squares(columns, np.float64), initial=0.0))
    reach: F64 = (kernel.gamma * (compute_squares(X, np.float64) + longest)).astype(np.float64, copy=False)
    bound = bound_sums(KERNELS.index(kernel.name), kernel.degree, items, lengths, n_terms, reach, magnitudes)
    # the error of negligible Gaussian kernel values, which are not recomputed from differences
    return bound + 3 * FAINT * float(np.sum(np.abs(coef))) if kernel.name == "rbf" else bound


def evaluate_all(
    kernel: Kernel,
    X: Matrix,
    columns: Matrix,
    coef: F64,
    f: F64,
    threads: int,
    keep: tuple[Values, I64] | None = None,
    magnitudes: F64 = NO_MAGNITUDES,
) -> None:
    """Do the work of `add_kernel_sums` for nonlinear kernels, in compiled code on several threads."""
    if np.float64 in (type_of(X), type_of(columns)):
        X, columns = to_float64(X), to_float64(columns)
    number, size = type_of(columns).type, _choose_tile_rows(X)
    compiled = CompiledKernel(KERNELS.index(kernel.name), number(kernel.gamma), number(kernel.coef0), kernel.degree)
    parts, own = split(X), Columns(split(columns), compute_squares(columns), np.require(coef, requirements="W"))
    store, slots = keep or (np.empty((0, 0), number), NO_SLOTS)
    proof = () if number is np.float32 else (magnitudes, (2 * count_items(columns) + BLOCK_ITEMS + 8) * UNIT)

    def evaluate(rows: slice) -> None:
        evaluate_rows(compiled, parts, own, X.shape[1], size, rows.start, rows.stop, f, store, slots, proof)

    share_rows(evaluate, len(f), size, threads)


def combine_rows(columns: Matrix, coef: F64) -> F64:
    """Return w = sum_c coef_c z_c, (d,) float64."""
    w = np.zeros((1, columns.shape[1]))
    add_rows(w, columns, np.arange(len(coef)), np.zeros(len(coef), np.int64), coef)
    return w.ravel()


def combine_rows_of(columns: Matrix, coefs: F64) -> F64:
    """Return W (K, d), whose rows are w_k = sum_c coefs_kc z_c."""
    return np.stack([combine_rows(columns, coef) for coef in coefs])


def bound_combination(columns: Matrix, coef: F64) -> float:
    """Return a bound of the error of x.w relative to |x|, for w from `combine_rows`, including the rounding of x.w."""
    items = np.sqrt(compute_squares(columns, np.float64))
    return float(UNIT * (len(coef) + columns.shape[1] + 4) * (np.abs(coef) @ items))


def fold_columns(kernel: Kernel, columns: Matrix, coef: F64) -> tuple[F64, float]:
    """Return w (d,) with sum_c coef_c k(x_i, z_c) = x_i.w, and a bound of the error of x.w relative to |x|.

    Such a w exists only for the linear kernel and precomputed kernels.
    """
    if kernel.name == precomputed.NAME:
        return precomputed.fold(columns, coef)
    return combine_rows(columns, coef), bound_combination(columns, coef)


def bound_linear_sums(X: Matrix, share: float) -> F64:
    """Return error bounds of x_i.w, (n,). share: the result of `bound_combination`."""
    return np.asarray(share * np.sqrt(compute_squares(X, np.float64)))


def add_linear_sums(X: Matrix, w: F64, f: F64, threads: int = 1) -> None:
    """Add x_i.w to f_i."""

    def add(rows: slice) -> None:
        f[rows] += compute_scores(slice_rows(X, rows), w[None, :])[:, 0]

    share_rows(add, len(f), SUMMED_ROWS, threads)


def compute_kernel(kernel: Kernel, X: Matrix, threads: int = 1) -> Values:
    """Return the kernel matrix K (n, n) of the rows, which is symmetric up to rounding."""
    if kernel.name == precomputed.NAME:
        return precomputed.look_up(X, X)
    n = X.shape[0]
    values: Values = np.empty((n, n), type_of(X))
    evaluate_all(kernel, X, X, np.zeros(n), np.zeros(n), threads, (values, np.arange(n)))
    return values


def compute_kernel_sums(kernel: Kernel, X: Matrix, columns: Matrix, coefs: F64) -> F64:
    """Return F_ik = sum_c coefs_kc k(x_i, z_c), (n, K), for coefs (K, m); each kernel value is computed once."""
    if kernel.name == "linear":
        return compute_scores(X, combine_rows_of(columns, coefs))
    return _sum_for_all(kernel, X, columns, coefs, NO_MAGNITUDES, 1)


def prove_kernel_sums(kernel: Kernel, X: Matrix, columns: Matrix, coefs: F64, threads: int = 1) -> tuple[F64, F64]:
    """Return F (n, K) of `compute_kernel_sums` in float64, and a bound of the errors in each row of F, (n,).

    The bound of a row is the bound of a single sum with the coefficients max_k |coefs_kc|. X and columns may differ in
    layout.
    """
    sizes, parts = np.max(np.abs(coefs), axis=0), []
    if kernel.name == "linear":
        share = max(bound_combination(columns, coef) for coef in coefs)
        return compute_kernel_sums(kernel, X, columns, coefs), bound_linear_sums(X, share)
    for _, rows, own in match_parts(X, to_float64(columns)):
        magnitudes = np.zeros(rows.shape[0])
        F = _sum_for_all(kernel, rows, own, coefs, magnitudes, threads)
        parts.append((F, bound_evaluated(kernel, rows, own, sizes, PRODUCT_TERMS * len(sizes), magnitudes)))
    return np.concatenate([F for F, _ in parts]), np.concatenate([errors for _, errors in parts])


def _sum_for_all(kernel: Kernel, X: Matrix, columns: Matrix, coefs: F64, magnitudes: F64, threads: int) -> F64:
    """Return F (n, K) of `compute_kernel_sums`.

    Unless `magnitudes` is empty, the magnitudes of sums with the coefficients max_k |coefs_kc| are added to it.

    Threads share the tiles of rows; one thread computes all sums of a row.
    """
    F, sizes = np.zeros((X.shape[0], len(coefs))), np.abs(coefs).max(axis=0)

    def add(rows: slice) -> None:
        for at in range(rows.start, rows.stop, TILE_ROWS):
            tile = slice(at, min(at + TILE_ROWS, rows.stop))
            for first in range(0, columns.shape[0], SUMMED_COLUMNS):
                block = slice(first, first + SUMMED_COLUMNS)
                X_tile, part, sums = slice_rows(X, tile), slice_rows(columns, block), np.zeros(len(F[tile]))
                values: Values = np.empty((part.shape[0], len(sums)), np.result_type(type_of(X), type_of(columns)))
                keep = (values, np.arange(len(values)))
                evaluate_all(kernel, X_tile, part, sizes[block], sums, 1, keep, magnitudes[tile])
                F[tile] += compute_scores(np.ascontiguousarray(values.T), coefs[:, block])

    share_rows(add, len(F), TILE_ROWS, threads)
    return F


def add_moments(totals: list[tuple[float, float, float]], rows: Rows, ones: F64) -> None:
    """Append the sum of the values of a tile, the sum of their squares, and their number.

    Each row counts with its sample weight. ones (1, d): a weight vector of ones, with which a row's score is the sum of
    its values.
    """
    weight = rows.weights
    with np.errstate(over="ignore", invalid="ignore"):  # solvers reject rows that are too long
        total = float(weight @ compute_scores(rows.X, ones)[:, 0])
        squares = float(weight @ compute_squares(to_float64(rows.X)))
    totals.append((total, squares, float(np.sum(weight)) * ones.shape[1]))


def join_moments(left: Any, right: Any) -> F64:
    """Return the sums of all tiles, (tiles, 3), those of `left` before those of `right`."""
    return np.concatenate((np.reshape(left, (-1, 3)), np.reshape(right, (-1, 3))))


def compute_variance(totals: Any) -> float:
    """Return the variance of all values, including the zeros of sparse rows.

    The variance is 0 if it is only rounding error, or if all weights are 0.

    The sums of the tiles are added in row order, so the result does not depend on how tiles were divided among tasks.
    """
    total, squares, count = np.cumsum(np.reshape(totals, (-1, 3)), axis=0)[-1].tolist()
    if count <= 0:
        return 0.0
    variance = squares / count - (total / count) ** 2
    return float(variance) if variance > VARIANCE_ROUNDING * squares / count else 0.0


def share_rows(work: Callable[[slice], None], n_rows: int, size: int, threads: int) -> None:
    """Call work(part) for all rows, split into parts of whole tiles, on several threads. size: the rows of a tile."""
    if 0 < n_rows <= size:
        work(slice(0, n_rows))
        return
    tiles = -(-n_rows // size)
    step = size * max(1, tiles // (PARTS_A_THREAD * threads))
    parts = [slice(at, min(at + step, n_rows)) for at in range(0, n_rows, step)]
    map_on_threads(work, parts, threads)
