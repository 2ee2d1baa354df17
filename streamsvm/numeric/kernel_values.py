"""Kernel values of rows, compiled: products over tiles that stay in the cache, turned into the kernel, added up, kept.

See numeric.kernels, which calls this for parts of the rows on several threads, and numeric.kernel_rounding, which says
how the magnitudes that are added up here bound the rounding of the sums.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  np.dot calls it in compiled code: once loaded, limits of threads hold for it
from numba import njit

from streamsvm.numeric.exponentials import exponentiate
from streamsvm.numeric.kernel_rounding import CLOSE_REACH, FAINT, SMALL, add_slopes, add_with_magnitudes
from streamsvm.numeric.rows import F32, F64, I32, I64, Unpacked, Values

Proof = tuple[()] | tuple[F64, float]

KERNELS = ("linear", "rbf", "poly", "sigmoid")
T3, T5, T7 = 1 / 3, 2 / 15, 17 / 315  # of the series of tanh
COLUMNS = 256  # kernel values are formed for so many columns at a time: half a MiB beside the tile


@njit(cache=True, nogil=True, fastmath={"contract"})
def apply_kernel(
    code: int, gamma: float, coef0: float, degree: int, values: Values, left: Values, right: Values
) -> None:
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
    """Replace v by tanh v = 1 - 2 / (1 + e^(2v)), which is 1 or -1 beyond 20; by its series where v is small."""
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
def _csr_products(data: Values, indices: I32, indptr: I64, position: I32, tile: Values, products: Values) -> None:
    """products[c, i] = z_c.x_i, four features a sweep; position: of a feature in the tile (its last: all zeros)."""
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


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def measure_dense(X: Values, squares: Values) -> None:
    """squares_i = |x_i|^2, summed in float64."""
    for i in range(squares.size):
        row, total = X[i], 0.0
        for j in range(row.size):
            total += np.float64(row[j]) * row[j]
        squares[i] = total


@njit(cache=True, nogil=True)
def measure_sparse(data: Values, indptr: I64, squares: Values) -> None:
    """squares_i = |x_i|^2, summed in float64."""
    for i in range(squares.size):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[e]) * data[e]
        squares[i] = total


@njit(cache=True, nogil=True, fastmath={"contract"})
def add_columns(columns: Values, chosen: I64, coef: F64, start: int, f: F64) -> None:
    """f_i += sum_c coef_c columns[chosen_c, start + i], in order; four columns at a time.

    Compiled callers pass np.int64(0) as the start: numba compiles the literal 0 once more.
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
    """K[c, j] = K[j, c] = columns[slots_c, chosen_j] for first <= c < last, where c has a slot."""
    for c in range(first, last):
        if slots[c] >= 0:
            column = columns[slots[c]]
            for j in range(chosen.size):
                K[c, j] = column[chosen[j]]
                if slots[j] < 0:
                    K[j, c] = K[c, j]


@njit(cache=True, nogil=True)
def _write_out(data: Values, indices: I32, indptr: I64, position: I32) -> Values:
    """Return rows by feature (used + 1, n), their last line zeros; position (d,) gets the line of each feature."""
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


@njit(cache=True, nogil=True)
def _measure_distance(
    z: int, i: int, columns: Unpacked, X: Unpacked, tile: Values, position: I32, mark: I32
) -> float:  # fmt: skip
    """|x_i - z|^2 by differences; mark: z + 1 for the tile's lines in which row z of the columns has an item."""
    total = 0.0
    if columns[3].size == 0:
        for j in range(tile.shape[1]):
            total += (np.float64(columns[0][z, j]) - tile[i, j]) ** 2
        return total
    for e in range(columns[3][z], columns[3][z + 1]):
        total += (np.float64(columns[1][e]) - tile[position[columns[2][e]], i]) ** 2
    for e in range(X[3][i], X[3][i + 1]):
        if mark[position[X[2][e]]] != z + 1:
            total += np.float64(X[1][e]) ** 2
    return total


@njit(cache=True, nogil=True)
def _mend_close(
    first: int, columns: Unpacked, X: Unpacked, tile: Values, position: I32, gamma: float, unit: float,
    left: Values, right: Values, values: Values,
) -> None:  # fmt: skip
    """Form e^(-gamma |x - z|^2) anew, by differences, where |x|^2 + |z|^2 - 2 x.z has lost what matters."""
    mark = np.zeros(tile.shape[0] if X[3].size else 0, np.int32)
    for c in range(values.shape[0]):
        for e in range(columns[3][first + c] if mark.size else 0, columns[3][first + c + 1] if mark.size else 0):
            mark[position[columns[2][e]]] = first + c + 1
        for i in range(values.shape[1]):
            reach = gamma * (left[first + c] + right[i])
            if reach > CLOSE_REACH and (values[c, i] > FAINT or reach * unit > 1.0):
                values[c, i] = np.exp(-gamma * _measure_distance(first + c, i, columns, X, tile, position, mark))


@njit(cache=True, nogil=True)
def _add_with_proof(
    code: int, gamma: float, coef0: float, degree: int, values: Values, first: int, columns: Unpacked, X: Unpacked,
    tile: Values, position: I32, left: Values, right: Values, longest: float, coef: F64, f: F64, magnitudes: F64,
    unit: float,
) -> None:  # fmt: skip
    """Turn products of columns first, first + 1, ... into kernel values; add them to f, and what bounds their rounding.

    Without magnitudes the values are only formed as carefully.
    """
    own = left[first : first + len(values)]
    if code > 1 and magnitudes.size:
        add_slopes(code, gamma, coef0, degree, unit, values, own, right, coef, magnitudes)
    apply_kernel(code, gamma, coef0, degree, values, own, right)
    if code == 1 and gamma * (longest + right.max()) > CLOSE_REACH:
        _mend_close(first, columns, X, tile, position, gamma, unit, left, right, values)
    if magnitudes.size:
        add_with_magnitudes(values, coef, f, magnitudes)
    else:
        add_columns(values, np.arange(coef.size), coef, np.int64(0), f)


@njit(cache=True, nogil=True)
def meet_rows(
    X: Unpacked, n_features: int, tile_rows: int, first: int, last: int,
    columns: Unpacked, left: Values, coef: F64, code: int, gamma: float, coef0: float, degree: int,
    f: F64, store: Values, slots: I64, proof: Proof,
) -> None:  # fmt: skip
    """Let the rows first..last of X meet all columns, tile by tile: their kernel values go to f, and to the store.

    X, columns: as `unpack` gives them; left: squared lengths of the columns. Without slots nothing is stored.
    proof: of float64 alone: magnitudes (n,) of f, or none, and the rounding of |x - z|^2 as a share of |x|^2 + |z|^2.
    Compiled code without it does not look at distances again.
    """
    dense, data, indices, indptr = X
    z_dense, z_data, z_indices, z_indptr = columns
    values = np.empty((min(COLUMNS, coef.size), tile_rows), left.dtype)
    flat = values.ravel()
    every, position, squares = np.arange(COLUMNS), np.empty(n_features, np.int32), np.empty(tile_rows, left.dtype)
    longest = left.max() if left.size else 0.0
    for at in range(first, last, tile_rows):
        n = min(tile_rows, last - at)
        right = squares[:n]
        if indptr.size:
            measure_sparse(data, indptr[at : at + n + 1], right)
        else:
            measure_dense(dense[at : at + n], right)
        tile = _write_out(data, indices, indptr[at : at + n + 1], position) if indptr.size else dense[at : at + n]
        for c in range(0, coef.size, COLUMNS):
            k = min(COLUMNS, coef.size - c)
            part = flat[: k * n].reshape((k, n))
            if indptr.size:
                _csr_products(z_data, z_indices, z_indptr[c : c + k + 1], position, tile, part)
            else:
                np.dot(z_dense[c : c + k], tile.T, part)
            if len(proof) > 0:
                near = (dense[at : at + n], data, indices, indptr[at : at + n + 1])
                _add_with_proof(
                    code, gamma, coef0, degree, part, c, columns, near, tile, position, left, right, longest,
                    coef[c : c + k], f[at : at + n], proof[0][at : at + n], proof[1],
                )  # fmt: skip
            else:
                apply_kernel(code, gamma, coef0, degree, part, left[c : c + k], right)
                add_columns(part, every, coef[c : c + k], np.int64(0), f[at : at + n])
            for slot in range(c, min(c + k, slots.size)):
                kept, row = store[slots[slot]], part[slot - c]
                for i in range(n):  # as a slice it takes twice as long to compile
                    kept[at + i] = row[i]
