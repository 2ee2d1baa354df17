"""Compiled kernel values: products over tiles of rows are turned into kernel values, added up, and stored.

A tile stays in the cache meanwhile. numeric.kernels calls this for parts of the rows on several threads;
numeric.kernel_rounding says how the magnitudes that are added up here bound the rounding of the sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  compiled np.dot calls it; thread limits hold for it once it is loaded
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.exponentials import exponentiate
from streamsvm.numeric.kernel_codes import POLY, RBF, CompiledKernel
from streamsvm.numeric.kernel_rounding import CLOSE_REACH, FAINT, SMALL, add_slopes, add_with_magnitudes
from streamsvm.numeric.rounding import add_two
from streamsvm.numeric.rows import F32, F64, I32, I64, Split, Values
from streamsvm.numeric.tiles import Tile, make_tile, multiply_sparse

Proof = tuple[()] | tuple[F64, float]

T3, T5, T7 = 1 / 3, 2 / 15, 17 / 315  # coefficients of the series of tanh
BLOCK_COLUMNS = 256  # columns whose kernel values are computed at a time: half a MiB beside the tile


class Columns(NamedTuple):
    """Rows z_c whose kernel values are added up: as `split` gives them, their squared lengths, and the coef_c."""

    rows: Split
    squares: Values
    coef: F64


@register_jitable(fastmath={"contract"})
def apply_kernel(
    code: int, gamma: float, coef0: float, degree: int, values: Values, left: Values, right: Values
) -> None:
    """Turn products x.z into values of KERNELS[code], in place. left and right: squared lengths of z and x."""
    for c in range(values.shape[0]):
        row = values[c]
        if code == RBF:
            for i in range(row.size):
                distance = left[c] + right[i] - row[i] - row[i]
                row[i] = -gamma * distance if distance > 0 else 0
            exponentiate(row)
        elif code > RBF:
            for i in range(row.size):
                row[i] = gamma * row[i] + coef0
            if code == POLY:
                _raise(row, degree)
            else:
                _squash(row)


@register_jitable
def _raise(row: Values, degree: int) -> None:
    base = row.copy()
    for _ in range(degree - 1):
        for i in range(row.size):
            row[i] *= base[i]


@register_jitable
def _squash(row: Values) -> None:
    """Replace v by tanh v = (e^2v - 1) / (e^2v + 1), or by the series of tanh for small v."""
    small = row.copy()
    for i in range(row.size):
        row[i] = min(max(row[i] + row[i], -40), 40)
    exponentiate(row)
    for i in range(row.size):
        v = small[i]
        square = v * v
        series = v * (1 - square * (T3 - square * (T5 - square * T7)))
        row[i] = series if abs(v) < SMALL else (row[i] - 1) / (row[i] + 1)


@njit(cache=True, nogil=True, fastmath={"contract"})
def add_columns(columns: Values, chosen: I64, coef: F64, start: int, f: F64) -> None:
    """Add sum_c coef_c columns[chosen_c, start + i] to f_i, in the order of c, four columns at a time.

    Compiled callers pass np.int64(0) as the start, because numba would compile the literal 0 separately.
    """
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


@njit(cache=True, nogil=True)
def copy_values(columns: F32, slots: I64, chosen: I64, K: Values, first: int, last: int) -> None:
    """Set K[c, j] = K[j, c] = columns[slots_c, chosen_j] for those c from `first` to `last` that have a slot."""
    for c in range(first, last):
        if slots[c] >= 0:
            column = columns[slots[c]]
            for j in range(chosen.size):
                K[c, j] = column[chosen[j]]
                if slots[j] < 0:
                    K[j, c] = K[c, j]


@register_jitable
def _measure_distance(values: Values, indices: I32, indptr: I64, z: int, i: int, tile: Tile, mark: I32) -> float:
    """Return |x_i - z|^2 by differences, of sparse rows with the rounding of each sum added at the end.

    mark is z + 1 for the lines of the tile in which row z has an item.
    """
    X, total, rest = tile.rows, 0.0, 0.0
    if values.ndim == 2:
        for j in range(tile.values.shape[1]):
            total += (np.float64(values[z, j]) - tile.values[i, j]) ** 2
    else:
        for e in range(indptr[z], indptr[z + 1]):
            total, lost = add_two(total, (np.float64(values[e]) - tile.values[tile.position[indices[e]], i]) ** 2)
            rest += lost
        for e in range(X.indptr[i], X.indptr[i + 1]):
            if mark[tile.position[X.indices[e]]] != z + 1:
                total, lost = add_two(total, np.float64(X.values[e]) ** 2)
                rest += lost
    return total + rest


@register_jitable
def _multiply(values: Values, indices: I32, indptr: I64, first: int, tile: Tile, products: Values) -> None:
    """Set products[c, i] = z_(first + c).x_i."""
    if values.ndim == 2:
        np.dot(values[first : first + len(products)], tile.values.T, products)
    else:
        limits = indptr[first : first + len(products) + 1]
        multiply_sparse(values, indices, limits, tile.position, tile.values, products)


@register_jitable
def _find_largest(values: Values) -> float:
    """Return the largest value, or 0; np.max takes five times as long to compile."""
    largest = 0.0
    for value in values:
        largest = max(largest, value)
    return largest


@register_jitable
def _recompute_close(first: int, columns: Columns, tile: Tile, gamma: float, unit: float, values: Values) -> None:
    """Compute e^(-gamma |x - z|^2) again by differences, if rounding of |x|^2 + |z|^2 - 2 x.z makes it inexact."""
    Z = columns.rows
    mark = np.zeros(tile.values.shape[0] if Z.indptr.size else 0, np.int32)
    for c in range(values.shape[0]):
        for e in range(Z.indptr[first + c] if mark.size else 0, Z.indptr[first + c + 1] if mark.size else 0):
            mark[tile.position[Z.indices[e]]] = first + c + 1
        for i in range(values.shape[1]):
            reach = gamma * (columns.squares[first + c] + tile.squares[i])
            if reach > CLOSE_REACH and (values[c, i] > FAINT or reach * unit > 1.0):
                distance = _measure_distance(Z.values, Z.indices, Z.indptr, first + c, i, tile, mark)
                values[c, i] = np.exp(-gamma * distance)


@register_jitable
def _add_with_proof(
    kernel: CompiledKernel,
    values: Values,
    first: int,
    columns: Columns,
    tile: Tile,
    longest: float,
    f: F64,
    magnitudes: F64,
    unit: float,
) -> None:
    """Turn products of the columns from `first` on into kernel values, and add these to f and to the magnitudes.

    Without magnitudes the values are computed as carefully, but added to f alone.
    """
    code, gamma, coef0, degree = kernel
    last, right = first + len(values), tile.squares
    left, coef = columns.squares[first:last], columns.coef[first:last]
    if code > RBF and magnitudes.size:
        add_slopes(kernel, unit, values, left, right, coef, magnitudes)
    apply_kernel(code, gamma, coef0, degree, values, left, right)
    if code == RBF and gamma * (longest + _find_largest(right)) > CLOSE_REACH:
        _recompute_close(first, columns, tile, gamma, unit, values)
    if magnitudes.size:
        add_with_magnitudes(values, coef, f, magnitudes)
    else:
        add_columns(values, np.arange(coef.size), coef, np.int64(0), f)


@njit(cache=True, nogil=True)
def evaluate_rows(
    kernel: CompiledKernel,
    X: Split,
    columns: Columns,
    n_features: int,
    tile_rows: int,
    first: int,
    last: int,
    f: F64,
    store: Values,
    slots: I64,
    proof: Proof,
) -> None:
    """Compute the kernel values of the rows first:last of X with all columns, tile by tile, and add them to f.

    Column c goes to store[slots_c], too, unless there are no slots. `proof`, for float64 alone, holds the magnitudes
    (n,) of f, or none, and the rounding of |x - z|^2 as a share of |x|^2 + |z|^2.
    """
    Z, left, coef = columns
    code, gamma, coef0, degree = kernel
    values = np.empty((min(BLOCK_COLUMNS, coef.size), tile_rows), left.dtype).ravel()
    every, position, squares = np.arange(BLOCK_COLUMNS), np.empty(n_features, np.int32), np.empty(tile_rows, left.dtype)
    longest = _find_largest(left)
    for at in range(first, last, tile_rows):
        n = min(tile_rows, last - at)
        tile = make_tile(X.values, X.indices, X.indptr, at, n, position, squares)
        for c in range(0, coef.size, BLOCK_COLUMNS):
            k = min(BLOCK_COLUMNS, coef.size - c)
            part = values[: k * n].reshape((k, n))
            _multiply(Z.values, Z.indices, Z.indptr, c, tile, part)
            if len(proof) > 0:
                own = proof[0][at : at + n]
                _add_with_proof(kernel, part, c, columns, tile, longest, f[at : at + n], own, proof[1])
            else:
                apply_kernel(code, gamma, coef0, degree, part, left[c : c + k], tile.squares)
                add_columns(part, every, coef[c : c + k], np.int64(0), f[at : at + n])
            for slot in range(c, min(c + k, slots.size)):
                kept, row = store[slots[slot]], part[slot - c]
                for i in range(n):  # as a slice it takes twice as long to compile
                    kept[at + i] = row[i]
