"""Mercer kernels of rows, by matrix products over tiles that stay in the second-level cache.

    linear   x.z                     poly      (gamma x.z + coef0)^degree
    rbf      exp(-gamma |x - z|^2)   sigmoid   tanh(gamma x.z + coef0)

Everything goes by `add_kernel_sums`: f_i += sum_c coef_c k(x_i, z_c), for many rows i and the columns c whose
multipliers have changed. A tile of rows is met by all columns in turn; its products, float32, are formed, turned into
the kernel, added up in float64 and, where asked for, kept, before they leave the cache.
|x - z|^2 is |x|^2 + |z|^2 - 2 x.z: in float32 the kernel's values have errors of about 1e-7 (1 + gamma |x|^2). Rows
may be given in float64 as well, where that matters more than speed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import njit

from streamsvm.numeric.rows import F32, F64, I32, I64, CsrRows, Matrix, add_rows, compute_scores, slice_rows

Values = F32 | F64

KERNELS = ("linear", "rbf", "poly", "sigmoid")
TILE_ROWS = 512
TILE_VALUES = 1 << 18  # float32 values of a tile of sparse rows, written out: a MiB
SUMS = 4096  # rows whose sums are made together where kernel values are known, or not needed
COLUMNS = 256  # kernel values are formed for so many columns at a time: half a MiB beside the tile


@dataclass(frozen=True)
class Kernel:
    """One of KERNELS and its parameters; those that it has no use for are disregarded."""

    name: str = "linear"
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0

    def apply(self, products: Values, left: Values, right: Values) -> None:
        """Turn products x.z (m, n) into kernel values, in place; left (m,) and right (n,): squared lengths."""
        gamma, coef0 = products.dtype.type(self.gamma), products.dtype.type(self.coef0)
        if self.name == "rbf":
            _to_exponents(products, left, right, gamma)
            np.exp(products, out=products)
        elif self.name == "poly":
            _to_powers(products, gamma, coef0, self.degree)
        elif self.name == "sigmoid":
            _to_powers(products, gamma, coef0, 1)
            np.tanh(products, out=products)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _to_exponents(products: Values, left: Values, right: Values, gamma: float) -> None:
    for i in range(products.shape[0]):
        row, square = products[i], left[i]
        for j in range(row.size):
            difference = square + right[j] - row[j] - row[j]  # literals would make it float64
            row[j] = -gamma * difference if difference > 0 else gamma * 0


@njit(cache=True, nogil=True)
def _to_powers(products: Values, gamma: float, coef0: float, degree: int) -> None:
    for i in range(products.shape[0]):
        row = products[i]
        for j in range(row.size):
            row[j] = gamma * row[j] + coef0
        if degree > 1:
            base = row.copy()
            for _ in range(degree - 1):
                for j in range(row.size):
                    row[j] *= base[j]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _csr_products(data: Values, indices: I32, indptr: I64, position: I32, tile: Values, products: Values) -> None:
    """products[c, i] = z_c.x_i; position: of a feature among the tile's rows (its last: all zeros)."""
    for c in range(indptr.size - 1):
        sums = products[c]
        sums[:] = 0.0
        for e in range(indptr[c], indptr[c + 1]):
            value, x = data[e], tile[position[indices[e]]]
            for i in range(sums.size):
                sums[i] += value * x[i]


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
    tiles = [slice(at, min(at + SUMS, len(f))) for at in range(0, len(f), SUMS)]
    _share(lambda rows: _add_columns(columns, chosen, coef, rows.start, f[rows]), tiles, threads)


@dataclass(frozen=True)
class Tile:
    """Rows that meet many columns. X: dense rows (n, d), or sparse ones written out by feature (used + 1, n)."""

    X: Values
    position: I32 | None
    squares: Values

    @classmethod
    def of(cls, rows: Matrix) -> Tile:
        """Prepare rows; of sparse ones only the features that they use are written out."""
        squares = compute_squares(rows)
        if not isinstance(rows, CsrRows):
            return cls(rows, None, squares)
        occurs = np.zeros(rows.n_features, np.bool_)
        occurs[rows.indices] = True
        used = np.flatnonzero(occurs)
        position = np.full(rows.n_features, len(used), np.int32)
        position[used] = np.arange(len(used), dtype=np.int32)
        written_out = np.zeros((len(used) + 1, rows.shape[0]), rows.data.dtype)
        written_out[position[rows.indices], np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))] = rows.data
        return cls(written_out, position, squares)

    def compute_kernel(self, kernel: Kernel, columns: Matrix, squares: Values, values: Values) -> None:
        """values[c, i] = k(z_c, x_i), (columns, rows of the tile)."""
        if isinstance(columns, CsrRows):
            assert self.position is not None
            _csr_products(columns.data, columns.indices, columns.indptr, self.position, self.X, values)
        else:
            np.matmul(columns, self.X.T, out=values)
        kernel.apply(values, squares, self.squares)


def compute_squares(X: Matrix) -> Values:
    """|x_i|^2, (n,), summed in float64."""
    squares: Values = np.empty(X.shape[0], _type_of(X))
    if isinstance(X, CsrRows):
        _csr_squares(X.data, X.indptr, squares)
    else:
        np.einsum("ij,ij->i", X, X, out=squares, dtype=np.float64, casting="same_kind")
    return squares


def _type_of(X: Matrix) -> np.dtype[Any]:
    return X.data.dtype if isinstance(X, CsrRows) else X.dtype


def to_float64(X: Matrix) -> Matrix:
    """Return the same rows in float64: their kernel values are then exact to its rounding."""
    if isinstance(X, CsrRows):
        return replace(X, data=X.data.astype(np.float64))
    return X.astype(np.float64)  # type: ignore[return-value]


def split_into_tiles(X: Matrix) -> list[slice]:
    """Cut rows into tiles: of TILE_ROWS, of fewer where sparse rows written out would leave the cache."""
    n_rows, size = X.shape[0], TILE_ROWS
    if isinstance(X, CsrRows) and n_rows:
        used = min(X.n_features, TILE_ROWS * (1 + len(X.data) // n_rows) // 2)
        size = int(np.clip(TILE_VALUES // max(1, used) // 16 * 16, 64, TILE_ROWS))
    return [slice(at, min(at + size, n_rows)) for at in range(0, n_rows, size)]


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
    squares, every = compute_squares(columns), np.arange(COLUMNS)
    kind = np.result_type(_type_of(X), _type_of(columns))
    blocks = [slice(at, min(at + COLUMNS, len(coef))) for at in range(0, len(coef), COLUMNS)]
    parts = [(slice_rows(columns, block), squares[block], coef[block], block) for block in blocks]

    def meet(rows: slice) -> None:
        tile = Tile.of(slice_rows(X, rows))
        values = np.empty((min(COLUMNS, len(coef)), rows.stop - rows.start), kind)
        for part, part_squares, part_coef, block in parts:
            mine = values[: len(part_coef)]
            tile.compute_kernel(kernel, part, part_squares, mine)
            _add_columns(mine, every, part_coef, 0, f[rows])
            if keep is not None:
                store, slots = keep
                store[slots[block], rows] = mine

    _share(meet, split_into_tiles(X), threads)


def fold(columns: Matrix, coef: F64) -> F64:
    """Return w = sum_c coef_c z_c, (d,) float64."""
    w = np.zeros((1, columns.shape[1]))
    add_rows(w, columns, np.arange(len(coef)), np.zeros(len(coef), np.int64), coef)
    return w.ravel()


def add_linear_sums(X: Matrix, w: F64, f: F64, threads: int = 1) -> None:
    """f_i += x_i.w."""

    def meet(rows: slice) -> None:
        f[rows] += compute_scores(slice_rows(X, rows), w[None, :])[:, 0]

    tiles = [slice(at, min(at + SUMS, len(f))) for at in range(0, len(f), SUMS)]
    _share(meet, tiles, threads)


def compute_kernel(kernel: Kernel, X: Matrix, threads: int = 1) -> Values:
    """K (n, n) of rows with each other, symmetric to rounding."""
    values: Values = np.empty((X.shape[0], X.shape[0]), _type_of(X))
    squares = compute_squares(X)

    def meet(rows: slice) -> None:
        tile = Tile.of(slice_rows(X, rows))
        part: Values = np.empty((X.shape[0], rows.stop - rows.start), values.dtype)
        tile.compute_kernel(kernel, X, squares, part)
        values[:, rows] = part

    _share(meet, split_into_tiles(X), threads)
    return values


def _share(work: Callable[[slice], None], tiles: list[slice], threads: int) -> None:
    """Carry out work(tile) for all tiles, on so many threads."""
    if threads == 1 or len(tiles) < 2:
        for tile in tiles:
            work(tile)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, tiles):
            pass
