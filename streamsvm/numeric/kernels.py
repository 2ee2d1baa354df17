"""Mercer kernels of rows, by matrix products over tiles that stay in the second-level cache.

    linear   x.z                     poly      (gamma x.z + coef0)^degree
    rbf      exp(-gamma |x - z|^2)   sigmoid   tanh(gamma x.z + coef0)

Everything goes by `add_kernel_sums`: f_i += sum_c coef_c k(x_i, z_c), for many rows i and the columns c whose
multipliers have changed. A tile of rows is met by all columns in turn; its products are formed, turned into the kernel,
added up in float64 and, where asked for, kept, before they leave the cache. Many tiles are one compiled call: threads
that need Python between short computations wait for one another.
|x - z|^2 is |x|^2 + |z|^2 - 2 x.z: in float32 the kernel's values have errors of about 1e-7 (1 + gamma |x|^2). Rows
may be given in float64 as well, where that matters more than speed: rows that are close for their lengths are then
compared item by item, and the rounding of sums can be bounded (numeric.kernel_rounding).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from streamsvm.numeric.kernel_rounding import FAINT, bound_sums
from streamsvm.numeric.kernel_values import (
    KERNELS,
    add_columns,
    copy_values,
    measure_dense,
    measure_sparse,
    meet_rows,
)
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import (
    F64,
    I64,
    CsrRows,
    Matrix,
    Values,
    add_rows,
    compute_scores,
    slice_rows,
    unpack,
)

TILE_ROWS = 512
TILE_VALUES = 1 << 18  # float32 values of a tile of sparse rows, written out: a MiB
SUMS = 4096  # rows whose sums are made together where kernel values are known, or not needed
PARTS_A_THREAD = 4
NO_STORE, NO_SLOTS, NO_ERRORS = np.empty((0, 0), np.float32), np.empty(0, np.int64), np.empty(0)


@dataclass(frozen=True)
class Kernel:
    """One of KERNELS and its parameters; those that it has no use for are disregarded."""

    name: str = "linear"
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0

    @property
    def is_definite(self) -> bool:
        """Whether every matrix K of rows is positive semidefinite where it counts: s'Ks >= 0 wherever sum s = 0.

        A polynomial with coef0 >= 0 has no negative coefficient; one of degree 1 is the linear kernel and a constant,
        which has no share in s'Ks. Tanh is indefinite for almost all rows.
        """
        if self.name == "poly":
            return self.coef0 >= 0 or self.degree == 1
        return self.name != "sigmoid"

    def bound_values(self, reach: float) -> float:
        """Return the most that |k(x, z)| can be where |x|^2 and |z|^2 are at most `reach`."""
        match self.name:
            case "linear":
                return reach
            case "poly":
                with np.errstate(over="ignore"):
                    return float(np.float64(self.gamma * reach + abs(self.coef0)) ** self.degree)
        return 1.0


def add_chosen_columns(columns: Values, chosen: I64, coef: F64, f: F64, threads: int = 1) -> None:
    """f_i += sum_c coef_c columns[chosen_c, i]; columns (slots, n) float32, chosen and coef (m,), f (n,) float64."""
    if not len(chosen):
        return
    _share(lambda rows: add_columns(columns, chosen, coef, rows.start, f[rows]), len(f), SUMS, threads)


def copy_columns(columns: Values, slots: I64, chosen: I64, K: Values, threads: int = 1) -> None:
    """K[c, j] = K[j, c] = columns[slots_c, chosen_j] for those c that have a slot; others have -1."""
    _share(lambda rows: copy_values(columns, slots, chosen, K, rows.start, rows.stop), len(chosen), 64, threads)


def compute_squares(X: Matrix, dtype: type[np.floating[Any]] | None = None) -> Values:
    """|x_i|^2, (n,), summed in float64; returned in the type of X, or the one that is given."""
    squares: Values = np.empty(X.shape[0], dtype or type_of(X))
    if isinstance(X, CsrRows):
        measure_sparse(X.data, X.indptr, squares)
    else:
        measure_dense(X, squares)
    return squares


def count_items(X: Matrix) -> int:
    """Return the most items that a row holds; of dense rows all features."""
    return int(np.max(np.diff(X.indptr), initial=0)) if isinstance(X, CsrRows) else X.shape[1]


def type_of(X: Matrix) -> np.dtype[Any]:
    """Return the type of the values of X."""
    return X.data.dtype if isinstance(X, CsrRows) else X.dtype


def to_float64(X: Matrix) -> Matrix:
    """Return the same rows in float64: their kernel values are then exact to its rounding."""
    if isinstance(X, CsrRows):
        return replace(X, data=X.data.astype(np.float64, copy=False))
    return X.astype(np.float64, copy=False)  # type: ignore[return-value]


def absolute(X: Matrix) -> Matrix:
    """Return rows of the values' magnitudes."""
    if isinstance(X, CsrRows):
        return replace(X, data=np.abs(X.data))
    return np.abs(X)


def raise_largest(largest: F64, X: Matrix) -> None:
    """largest_j = max(largest_j, max_i x_ij)."""
    if isinstance(X, CsrRows):
        np.maximum.at(largest, X.indices, X.data)
    elif len(X):
        np.maximum(largest, X.max(axis=0), out=largest)


def _choose_tile_rows(X: Matrix) -> int:
    """TILE_ROWS, or fewer where sparse rows written out would leave the cache."""
    if not isinstance(X, CsrRows) or not X.shape[0]:
        return TILE_ROWS
    used = min(X.n_features, TILE_ROWS * (1 + len(X.data) // X.shape[0]) // 2)
    return int(np.clip(TILE_VALUES // max(1, used) // 16 * 16, 64, TILE_ROWS))


def add_kernel_sums(
    kernel: Kernel, X: Matrix, columns: Matrix, coef: F64, f: F64, threads: int = 1,
    keep: tuple[Values, I64] | None = None, errors: F64 | None = None,
) -> None:  # fmt: skip
    """f_i += sum_c coef_c k(x_i, z_c) for the rows x_i of X (n, d) and z_c of columns (m, d).

    f: (n,) float64. keep: (store, slots): the kernel's values go to store[slots], (m, n). The linear kernel is
    folded into one vector. Tiles are shared among threads; every sum is made by one of them, in the order of the
    columns: the bits do not depend on their number. errors: (n,), to which is added how far the sums can be off, where
    they are formed in float64.
    """
    if kernel.name == "linear":
        add_linear_sums(X, fold(columns, coef), f, threads)
        if errors is not None:
            errors += bound_linear_sums(X, measure_fold(columns, coef))
        return
    if errors is None:
        _meet_all(kernel, X, columns, coef, f, threads, keep or (NO_STORE, NO_SLOTS))
        return
    magnitudes = np.zeros(len(f))
    _meet_all(kernel, X, columns, coef, f, threads, keep or (NO_STORE, NO_SLOTS), magnitudes)
    items = min(count_items(X), count_items(columns))
    longest = float(np.max(compute_squares(columns, np.float64), initial=0.0))
    reach: F64 = (kernel.gamma * (compute_squares(X, np.float64) + longest)).astype(np.float64, copy=False)
    if kernel.name == "rbf":
        errors += 3 * FAINT * float(np.sum(np.abs(coef)))  # of pairs that are left as they are
    errors += bound_sums(KERNELS.index(kernel.name), kernel.degree, items, len(coef), reach, magnitudes)


def _meet_all(
    kernel: Kernel, X: Matrix, columns: Matrix, coef: F64, f: F64, threads: int, keep: tuple[Values, I64],
    magnitudes: F64 = NO_ERRORS,
) -> None:  # fmt: skip
    if np.float64 in (type_of(X), type_of(columns)):
        X, columns = to_float64(X), to_float64(columns)
    number, size = type_of(columns).type, _choose_tile_rows(X)
    about = (KERNELS.index(kernel.name), number(kernel.gamma), number(kernel.coef0), kernel.degree)
    row_side = (unpack(X), X.shape[1], size)
    column_side = (unpack(columns), compute_squares(columns), coef)
    proof = () if number is np.float32 else (magnitudes, (2 * count_items(columns) + 6) * UNIT)

    def meet(rows: slice) -> None:
        meet_rows(*row_side, rows.start, rows.stop, *column_side, *about, f, *keep, proof)

    _share(meet, len(f), size, threads)


def compute_kernel_sums(kernel: Kernel, X: Matrix, columns: Matrix, coefs: F64) -> F64:
    """F_ik = sum_c coefs_kc k(x_i, z_c), (n, K) for coefs (K, m): each value of the kernel is formed once for all K."""
    F = np.zeros((X.shape[0], len(coefs)))
    if kernel.name == "linear":
        return compute_scores(X, np.stack([fold(columns, coef) for coef in coefs]))
    for at in range(0, columns.shape[0], SUMS):
        part, coef = slice_rows(columns, slice(at, at + SUMS)), coefs[:, at : at + SUMS]
        for start in range(0, len(F), TILE_ROWS):
            rows = slice_rows(X, slice(start, start + TILE_ROWS))
            n, m = rows.shape[0], part.shape[0]
            values: Values = np.empty((m, n), np.result_type(type_of(X), type_of(columns)))
            _meet_all(kernel, rows, part, np.zeros(m), np.zeros(n), 1, (values, np.arange(m)))
            F[start : start + TILE_ROWS] += compute_scores(np.ascontiguousarray(values.T), coef)
    return F


def fold(columns: Matrix, coef: F64) -> F64:
    """Return w = sum_c coef_c z_c, (d,) float64."""
    w = np.zeros((1, columns.shape[1]))
    add_rows(w, columns, np.arange(len(coef)), np.zeros(len(coef), np.int64), coef)
    return w.ravel()


def measure_fold(columns: Matrix, coef: F64) -> float:
    """Return a bound of how far the scores of `fold` are off, as a share of |x|: of w, and of x.w."""
    items = np.sqrt(compute_squares(columns, np.float64))
    return float(UNIT * (len(coef) + columns.shape[1] + 4) * (np.abs(coef) @ items))


def bound_linear_sums(X: Matrix, share: float) -> F64:
    """Return how far x_i.w can be off, (n,); share: as `measure_fold` gives it."""
    bound: F64 = share * np.sqrt(compute_squares(X, np.float64))
    return bound


def add_linear_sums(X: Matrix, w: F64, f: F64, threads: int = 1) -> None:
    """f_i += x_i.w."""

    def meet(rows: slice) -> None:
        f[rows] += compute_scores(slice_rows(X, rows), w[None, :])[:, 0]

    _share(meet, len(f), SUMS, threads)


def compute_kernel(kernel: Kernel, X: Matrix, threads: int = 1) -> Values:
    """K (n, n) of rows with each other, symmetric to rounding."""
    n = X.shape[0]
    values: Values = np.empty((n, n), type_of(X))
    _meet_all(kernel, X, X, np.zeros(n), np.zeros(n), threads, (values, np.arange(n)))
    return values


def _share(work: Callable[[slice], None], n_rows: int, size: int, threads: int) -> None:
    """Carry out work(rows) for all rows on so many threads, in parts of whole tiles of `size` rows."""
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
    """Return threads that stay: starting them would take longer than many a call."""
    return ThreadPoolExecutor(threads, thread_name_prefix="streamsvm-kernels")


os.register_at_fork(after_in_child=_open_pool.cache_clear)  # threads do not survive a fork
