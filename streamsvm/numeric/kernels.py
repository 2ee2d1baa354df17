"""Mercer kernels of rows, by matrix products over tiles that stay in the second-level cache.

    linear   x.z                     poly      (gamma x.z + coef0)^degree
    rbf      exp(-gamma |x - z|^2)   sigmoid   tanh(gamma x.z + coef0)

"precomputed" stands for values that the rows hold (numeric.known_values).

The main function is `add_kernel_sums`: f_i += sum_c coef_c k(x_i, z_c), for many rows i and the columns c whose
multipliers have changed. For a tile of rows the products with all columns are computed, turned into kernel values,
added up in float64 and, if asked for, stored, before they leave the cache. One compiled call takes many tiles, because
threads that need Python between short computations wait for one another.

|x - z|^2 is computed as |x|^2 + |z|^2 - 2 x.z, so that kernel values in float32 have errors of about
1e-7 (1 + gamma |x|^2). If accuracy matters more than speed, the rows may be float64: then rows that are close for
their lengths are compared item by item, and the rounding of sums can be bounded (numeric.kernel_rounding).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from streamsvm.numeric import known_values
from streamsvm.numeric.kernel_codes import KERNELS, CompiledKernel
from streamsvm.numeric.kernel_rounding import FAINT, bound_sums
from streamsvm.numeric.kernel_values import (
    Columns,
    add_columns,
    copy_values,
    evaluate_rows,
)
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.row_products import add_rows, compute_scores
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix, Values, slice_rows, split
from streamsvm.numeric.tiles import BLOCK_ITEMS, measure_dense, measure_sparse

TILE_ROWS = 512
TILE_VALUES = 1 << 18  # float32 values (a MiB) of a tile of sparse rows that are written out
SUMMED_ROWS = 4096  # rows whose sums are computed together if kernel values are known or not needed
PARTS_A_THREAD = 4
NO_SLOTS, NO_MAGNITUDES = np.empty(0, np.int64), np.empty(0)


@dataclass(frozen=True)
class Kernel:
    """A kernel, one of KERNELS, and its parameters. A kernel disregards the parameters that it does not use."""

    name: str = "linear"
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0

    @property
    def is_definite(self) -> bool:
        """Whether s'Ks >= 0 for all rows and all s with sum 0, as the dual problem needs it.

        A polynomial kernel with coef0 >= 0 has no negative coefficient. With degree 1 it is the linear kernel plus a
        constant, which does not change s'Ks. The sigmoid kernel is indefinite for almost all rows, and of a matrix that
        was given it is not known.
        """
        if self.name == "poly":
            return self.coef0 >= 0 or self.degree == 1
        return self.name not in ("sigmoid", known_values.NAME)

    def bound_values(self, reach: float) -> float:
        """Return the most that |k(x, z)| can be if |x|^2 and |z|^2 are at most `reach`."""
        match self.name:
            case "linear":
                return reach
            case known_values.NAME:  # the value is one of the row
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
    """Return the most items of a row; for dense rows the number of features."""
    return int(np.max(_count_row_items(X), initial=0))


def _count_row_items(X: Matrix) -> I64:
    """Return the items of each row, (n,); for dense rows the number of features."""
    return np.diff(X.indptr) if isinstance(X, CsrRows) else np.full(len(X), X.shape[1])


def type_of(X: Matrix) -> np.dtype[Any]:
    """Return the dtype of the values of X."""
    return X.data.dtype if isinstance(X, CsrRows) else X.dtype


def to_float64(X: Matrix) -> Matrix:
    """Return the same rows in float64, so that their kernel values have the accuracy of float64."""
    if isinstance(X, CsrRows):
        return replace(X, data=X.data.astype(np.float64, copy=False))
    return X.astype(np.float64, copy=False)  # type: ignore[return-value]


def absolute(X: Matrix) -> Matrix:
    """Return rows with the absolute values of X."""
    if isinstance(X, CsrRows):
        return replace(X, data=np.abs(X.data))
    return np.abs(X)


def _choose_tile_rows(X: Matrix) -> int:
    """Return TILE_ROWS, or fewer rows if sparse rows that are written out would leave the cache."""
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

    f: (n,) float64. keep: (store, slots), and then the kernel values go to store[slots], (m, n). For the linear kernel
    the columns are combined into one vector first. Threads share the tiles, but each sum is computed by one thread in
    the order of the columns, so that the bits do not depend on their number. errors: (n,), to which is added how far
    the sums can be off; kernel values then are float64.
    """
    if kernel.name == known_values.NAME:
        known_values.add_sums(X, columns, coef, f, keep, errors)
        return
    if kernel.name == "linear":
        add_linear_sums(X, combine_rows(columns, coef), f, threads)
        if errors is not None:
            errors += bound_linear_sums(X, bound_combination(columns, coef))
        return
    if errors is None:
        evaluate_all(kernel, X, columns, coef, f, threads, keep)
        return
    magnitudes, columns = np.zeros(len(f)), to_float64(columns)
    evaluate_all(kernel, X, columns, coef, f, threads, keep, magnitudes)
    errors += bound_evaluated(kernel, X, columns, coef, len(coef), magnitudes)


def bound_evaluated(kernel: Kernel, X: Matrix, columns: Matrix, coef: F64, n_terms: int, magnitudes: F64) -> F64:
    """Return how far sums can be off, (n,), given their magnitudes and the number of terms of a sum."""
    own, most = _count_row_items(X), count_items(columns)
    items, lengths = np.minimum(own, most), np.maximum(own, most)
    if isinstance(X, CsrRows):
        lengths = np.minimum(lengths, BLOCK_ITEMS + 2)
    longest = float(np.max(compute_squares(columns, np.float64), initial=0.0))
    reach: F64 = (kernel.gamma * (compute_squares(X, np.float64) + longest)).astype(np.float64, copy=False)
    bound = bound_sums(KERNELS.index(kernel.name), kernel.degree, items, lengths, n_terms, reach, magnitudes)
    # the share of negligible pairs of a Gaussian kernel, which are not computed again
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
    """Do what `add_kernel_sums` does, for kernels other than the linear one, in compiled code on several threads."""
    if np.float64 in (type_of(X), type_of(columns)):
        X, columns = to_float64(X), to_float64(columns)
    number, size = type_of(columns).type, _choose_tile_rows(X)
    code = KERNELS.index(kernel.name)
    compiled = CompiledKernel(code, number(kernel.gamma), number(kernel.coef0), kernel.degree)
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
    """Return W (K, d) of w_k = sum_c coefs_kc z_c."""
    return np.stack([combine_rows(columns, coef) for coef in coefs])


def bound_combination(columns: Matrix, coef: F64) -> float:
    """Return how far x.w can be off for w of `combine_rows`, as a share of |x|; the rounding of x.w counts, too."""
    items = np.sqrt(compute_squares(columns, np.float64))
    return float(UNIT * (len(coef) + columns.shape[1] + 4) * (np.abs(coef) @ items))


def bound_linear_sums(X: Matrix, share: float) -> F64:
    """Return how far x_i.w can be off, (n,). share: the result of `bound_combination`."""
    bound: F64 = share * np.sqrt(compute_squares(X, np.float64))
    return bound


def add_linear_sums(X: Matrix, w: F64, f: F64, threads: int = 1) -> None:
    """Add x_i.w to f_i."""

    def add(rows: slice) -> None:
        f[rows] += compute_scores(slice_rows(X, rows), w[None, :])[:, 0]

    share_rows(add, len(f), SUMMED_ROWS, threads)


def compute_kernel(kernel: Kernel, X: Matrix, threads: int = 1) -> Values:
    """Return the kernel matrix K (n, n) of the rows, which is symmetric up to rounding."""
    if kernel.name == known_values.NAME:
        return known_values.look_up(X, X)
    n = X.shape[0]
    values: Values = np.empty((n, n), type_of(X))
    evaluate_all(kernel, X, X, np.zeros(n), np.zeros(n), threads, (values, np.arange(n)))
    return values


def share_rows(work: Callable[[slice], None], n_rows: int, size: int, threads: int) -> None:
    """Call work(rows) for all rows on several threads, in parts of whole tiles of `size` rows."""
    tiles = -(-n_rows // size)
    step = size * max(1, tiles // (PARTS_A_THREAD * threads))
    parts = [slice(at, min(at + step, n_rows)) for at in range(0, n_rows, step)]
    if threads == 1 or len(parts) < 2:
        for part in parts:
            work(part)
        return
    for _ in _open_pool(threads).map(work, parts):
        pass


@lru_cache(maxsize=1)
def _open_pool(threads: int) -> ThreadPoolExecutor:
    """Return a pool of threads, which is kept, because starting them would take longer than many a call."""
    return ThreadPoolExecutor(threads, thread_name_prefix="streamsvm-kernels")


os.register_at_fork(after_in_child=_open_pool.cache_clear)  # threads do not survive a fork
