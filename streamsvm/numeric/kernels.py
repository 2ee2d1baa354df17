"""Mercer kernels of rows, by matrix products over tiles that stay in the second-level cache.

    linear   x.z                     poly      (gamma x.z + coef0)^degree
    rbf      exp(-gamma |x - z|^2)   sigmoid   tanh(gamma x.z + coef0)

Everything goes by `add_kernel_sums`: f_i += sum_c coef_c k(x_i, z_c), for many rows i and the columns c whose
multipliers have changed. A tile of rows is met by all columns in turn; its products are formed, turned into the kernel,
added up in float64 and, where asked for, kept, before they leave the cache. Many tiles are one compiled call: threads
that need Python between short computations wait for one another.
|x - z|^2 is |x|^2 + |z|^2 - 2 x.z: in float32 the kernel's values have errors of about 1e-7 (1 + gamma |x|^2). Rows
may be given in float64 as well, where that matters more than speed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  np.dot calls it in compiled code: once loaded, limits of threads hold for it
from numba import njit

from streamsvm.numeric.exponentials import exponentiate
from streamsvm.numeric.rows import (
    F32,
    F64,
    I32,
    I64,
    CsrRows,
    Matrix,
    Unpacked,
    add_rows,
    compute_scores,
    slice_rows,
    unpack,
)

Values = F32 | F64

KERNELS = ("linear", "rbf", "poly", "sigmoid")
TILE_ROWS = 512
TILE_VALUES = 1 << 18  # float32 values of a tile of sparse rows, written out: a MiB
SUMS = 4096  # rows whose sums are made together where kernel values are known, or not needed
COLUMNS = 256  # kernel values are formed for so many columns at a time: half a MiB beside the tile
PARTS_A_THREAD = 4
NO_STORE, NO_SLOTS = np.empty((0, 0), np.float32), np.empty(0, np.int64)


@dataclass(frozen=True)
class Kernel:
    """One of KERNELS and its parameters; those that it has no use for are disregarded."""

    name: str = "linear"
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0


@njit(cache=True, nogil=True, fastmath={"contract"})
def _apply(code: int, gamma: float, coef0: float, degree: int, values: Values, left: Values, right: Values) -> None:
    """Turn products x.z into values of KERNELS[code], in place; left and right: squared lengths of z and x."""
    for c in range(values.shape[0]):
        row = values[c]
        if code == 1:
            for i in range(row.size):
                distance = left[c] + right[i] - row[i] - row[i]
                row[i] = -gamma * distance if distance > 0 else 0
            exponentiate(row)
        elif code > 1:
            for i in range(row.size):
                row[i] = gamma * row[i] + coef0
            if code == 2:
                _raise(row, degree)
            else:
                _squash(row)


@njit(cache=True, nogil=True)
def _raise(row: Values, degree: int) -> None:
    base = row.copy()
    for _ in range(degree - 1):
        for i in range(row.size):
            row[i] *= base[i]


@njit(cache=True, nogil=True)
def _squash(row: Values) -> None:
    """Replace v by tanh v = 1 - 2 / (1 + e^(2v)), which is 1 or -1 beyond 20."""
    for i in range(row.size):
        row[i] = min(max(row[i] + row[i], -40), 40)
    exponentiate(row)
    for i in range(row.size):
        row[i] = (row[i] - 1) / (row[i] + 1)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _csr_products(data: Values, indices: I32, indptr: I64, position: I32, tile: Values, products: Values) -> None:
    """products[c, i] = z_c.x_i, four features a sweep; position: of a feature in the tile (its last: all zeros)."""
    for c in range(indptr.size - 1):
        sums, e, stop = products[c], indptr[c], indptr[c + 1]
        sums[:] = 0.0
        while e + 3 < stop:
            s, t = tile[position[indices[e]]], tile[position[indices[e + 1]]]
            u, v = tile[position[indices[e + 2]]], tile[position[indices[e + 3]]]
            p, q, r, w = data[e], data[e + 1], data[e + 2], data[e + 3]
            for i in range(sums.size):
                sums[i] = (((sums[i] + p * s[i]) + q * t[i]) + r * u[i]) + w * v[i]
            e += 4
        while e < stop:
            value, x = data[e], tile[position[indices[e]]]
            for i in range(sums.size):
                sums[i] += value * x[i]
            e += 1


@njit(cache=True, nogil=True)
def _csr_squares(data: Values, indptr: I64, squares: Values) -> None:
    for i in range(squares.size):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[e]) * data[e]
        squares[i] = total


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_columns(columns: Values, chosen: I64, coef: F64, start: int, f: F64) -> None:
    """f_i += sum_c coef_c columns[chosen_c, start + i], in order; four columns at a time."""
    k, n, stop = 0, coef.size, start + f.size
    while k < n:
        if k + 3 < n:
            u, v = columns[chosen[k], start:stop], columns[chosen[k + 1], start:stop]
            w, x = columns[chosen[k + 2], start:stop], columns[chosen[k + 3], start:stop]
            a, b, c, d = coef[k], coef[k + 1], coef[k + 2], coef[k + 3]
            for i in range(f.size):
                f[i] += (a * u[i] + b * v[i]) + (c * w[i] + d * x[i])
            k += 4
        else:
            u, a = columns[chosen[k], start:stop], coef[k]
            for i in range(f.size):
                f[i] += a * u[i]
            k += 1


def add_chosen_columns(columns: F32, chosen: I64, coef: F64, f: F64, threads: int = 1) -> None:
    """f_i += sum_c coef_c columns[chosen_c, i]; columns (slots, n) float32, chosen and coef (m,), f (n,) float64."""
    if not len(chosen):
        return
    _share(lambda rows: _add_columns(columns, chosen, coef, rows.start, f[rows]), len(f), SUMS, threads)


@njit(cache=True, nogil=True)
def copy_columns(columns: F32, slots: I64, chosen: I64, K: Values) -> None:
    """K[c, j] = K[j, c] = columns[slots_c, chosen_j] for those c that have a slot; others have -1."""
    for c in range(chosen.size):
        if slots[c] >= 0:
            column = columns[slots[c]]
            for j in range(chosen.size):
                K[c, j] = column[chosen[j]]
                if slots[j] < 0:
                    K[j, c] = K[c, j]


@njit(cache=True, nogil=True)
def _write_out(data: Values, indices: I32, indptr: I64, position: I32) -> Values:
    """Return rows by feature (used + 1, n), their last line zeros; position (d,) gets the line of each feature."""
    position[:] = -1
    used = 0
    for e in range(indptr[0], indptr[-1]):
        if position[indices[e]] < 0:
            position[indices[e]] = used
            used += 1
    tile = np.zeros((used + 1, indptr.size - 1), data.dtype)
    for i in range(indptr.size - 1):
        for e in range(indptr[i], indptr[i + 1]):
            tile[position[indices[e]], i] = data[e]
    for j in range(position.size):
        if position[j] < 0:
            position[j] = used
    return tile


@njit(cache=True, nogil=True)
def _meet(
    X: Unpacked, right: Values, n_features: int, tile_rows: int, first: int, last: int,
    columns: Unpacked, left: Values, coef: F64, code: int, gamma: float, coef0: float, degree: int,
    f: F64, store: Values, slots: I64,
) -> None:  # fmt: skip
    """Let the rows first..last of X meet all columns, tile by tile: their kernel values go to f, and to the store.

    X, columns: as `unpack` gives them; right, left: their squared lengths. Without slots nothing is stored.
    """
    dense, data, indices, indptr = X
    z_dense, z_data, z_indices, z_indptr = columns
    values = np.empty((min(COLUMNS, coef.size), tile_rows), left.dtype)
    flat = values.ravel()
    every, position = np.arange(COLUMNS), np.empty(n_features, np.int32)
    for at in range(first, last, tile_rows):
        n = min(tile_rows, last - at)
        tile = _write_out(data, indices, indptr[at : at + n + 1], position) if indptr.size else dense[at : at + n]
        for c in range(0, coef.size, COLUMNS):
            k = min(COLUMNS, coef.size - c)
            part = flat[: k * n].reshape((k, n))
            if indptr.size:
                _csr_products(z_data, z_indices, z_indptr[c : c + k + 1], position, tile, part)
            else:
                np.dot(z_dense[c : c + k], tile.T, part)
            _apply(code, gamma, coef0, degree, part, left[c : c + k], right[at : at + n])
            _add_columns(part, every, coef[c : c + k], 0, f[at : at + n])
            for slot in range(c, min(c + k, slots.size)):
                store[slots[slot], at : at + n] = part[slot - c]


def compute_squares(X: Matrix) -> Values:
    """|x_i|^2, (n,), summed in float64."""
    squares: Values = np.empty(X.shape[0], type_of(X))
    if isinstance(X, CsrRows):
        _csr_squares(X.data, X.indptr, squares)
    else:
        np.einsum("ij,ij->i", X, X, out=squares, dtype=np.float64, casting="same_kind")
    return squares


def type_of(X: Matrix) -> np.dtype[Any]:
    """Return the type of the values of X."""
    return X.data.dtype if isinstance(X, CsrRows) else X.dtype


def to_float64(X: Matrix) -> Matrix:
    """Return the same rows in float64: their kernel values are then exact to its rounding."""
    if isinstance(X, CsrRows):
        return replace(X, data=X.data.astype(np.float64, copy=False))
    return X.astype(np.float64, copy=False)  # type: ignore[return-value]


def _choose_tile_rows(X: Matrix) -> int:
    """TILE_ROWS, or fewer where sparse rows written out would leave the cache."""
    if not isinstance(X, CsrRows) or not X.shape[0]:
        return TILE_ROWS
    used = min(X.n_features, TILE_ROWS * (1 + len(X.data) // X.shape[0]) // 2)
    return int(np.clip(TILE_VALUES // max(1, used) // 16 * 16, 64, TILE_ROWS))


def add_kernel_sums(
    kernel: Kernel, X: Matrix, columns: Matrix, coef: F64, f: F64, threads: int = 1,
    keep: tuple[F32, I64] | None = None,
) -> None:  # fmt: skip
    """f_i += sum_c coef_c k(x_i, z_c) for the rows x_i of X (n, d) and z_c of columns (m, d).

    f: (n,) float64. keep: (store, slots): the kernel's values go to store[slots], (m, n) float32. The linear kernel is
    folded into one vector. Tiles are shared among threads; every sum is made by one of them, in the order of the
    columns: the bits do not depend on their number.
    """
    if kernel.name == "linear":
        add_linear_sums(X, fold(columns, coef), f, threads)
        return
    _meet_all(kernel, X, columns, coef, f, threads, keep or (NO_STORE, NO_SLOTS))


def _meet_all(
    kernel: Kernel, X: Matrix, columns: Matrix, coef: F64, f: F64, threads: int, keep: tuple[Values, I64]
) -> None:
    if np.float64 in (type_of(X), type_of(columns)):
        X, columns = to_float64(X), to_float64(columns)
    number, size = type_of(columns).type, _choose_tile_rows(X)
    about = (KERNELS.index(kernel.name), number(kernel.gamma), number(kernel.coef0), kernel.degree)
    row_side = (unpack(X), compute_squares(X), X.shape[1], size)
    column_side = (unpack(columns), compute_squares(columns), coef)
    _share(lambda part: _meet(*row_side, part.start, part.stop, *column_side, *about, f, *keep), len(f), size, threads)


def fold(columns: Matrix, coef: F64) -> F64:
    """Return w = sum_c coef_c z_c, (d,) float64."""
    w = np.zeros((1, columns.shape[1]))
    add_rows(w, columns, np.arange(len(coef)), np.zeros(len(coef), np.int64), coef)
    return w.ravel()


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
