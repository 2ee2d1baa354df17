"""Tiles of rows, in a form for products with many columns that stays in the second-level cache."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.rounding import add_to_pair
from streamsvm.numeric.rows import I32, I64, Split, Values

BLOCK_ITEMS = 32  # items of a sparse row that are summed in float64; the sums of such blocks are added as pairs


class Tile(NamedTuple):
    """Some rows x_i: as `split` gives them, as a dense tile, and their squared lengths.

    `values` are the dense rows themselves, or sparse rows that `_write_out` wrote out, with `position` as there.
    """

    rows: Split
    values: Values
    position: I32
    squares: Values


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def measure_dense(X: Values, squares: Values) -> None:
    """Set squares_i = |x_i|^2, summed in float64."""
    for i in range(squares.size):
        row, total = X[i], 0.0
        for j in range(row.size):
            total += np.float64(row[j]) * row[j]
        squares[i] = total


@njit(cache=True, nogil=True)
def measure_sparse(data: Values, indptr: I64, squares: Values) -> None:
    """Set squares_i = |x_i|^2, summed in float64 by blocks, so that long rows lose no more digits than short ones."""
    for i in range(squares.size):
        total, rest, stop = 0.0, 0.0, indptr[i + 1]
        for start in range(indptr[i], stop, BLOCK_ITEMS):
            part = 0.0
            for e in range(start, min(start + BLOCK_ITEMS, stop)):
                part += np.float64(data[e]) * data[e]
            total, rest = add_to_pair(total, rest, part)
        squares[i] = total + rest


@register_jitable
def _write_out(data: Values, indices: I32, indptr: I64, position: I32) -> Values:
    """Return sparse rows as a dense tile (used features + 1, n), and set position[j] to the line of feature j.

    The last line is zeros, for features that do not occur.
    """
    for j in range(position.size):
        position[j] = -1
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


@register_jitable
def make_tile(values: Values, indices: I32, indptr: I64, at: int, n: int, position: I32, squares: Values) -> Tile:
    """Return the tile of the n rows from row `at` on. position (d,) and squares (at least n) are its memory."""
    squares = squares[:n]
    if values.ndim == 2:
        part = values[at : at + n]
        measure_dense(part, squares)
        return Tile(Split(part, indices, indptr), part, position, squares)
    limits = indptr[at : at + n + 1]
    measure_sparse(values, limits, squares)
    return Tile(Split(values, indices, limits), _write_out(values, indices, limits, position), position, squares)


@register_jitable(fastmath={"contract"})
def multiply_sparse(data: Values, indices: I32, indptr: I64, position: I32, tile: Values, products: Values) -> None:
    """Set products[c, i] = z_c.x_i, four features a sweep. position[j]: the line of feature j in the tile."""
    for c in range(indptr.size - 1):
        sums, e, stop = products[c], indptr[c], indptr[c + 1]
        for i in range(sums.size):
            sums[i] = 0.0
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
