"""Kernel evaluation in compiled code: products of tiles of rows become kernel values, which are summed and stored.

A tile stays in the cache throughout. kernels.kernel calls these functions for parts of the rows on several threads.

e^x of many numbers is computed in a form that LLVM vectorises, several times faster than single calls:

    e^x = 2^k e^r,   k = round(x / ln 2),   |r| <= ln(2) / 2,   e^r by its Taylor series

The result is within about two units in the last place. 2^k is composed from the bits of its exponent.

Rounding. With u = 2^-53, |fl(x.z) - x.z| <= d u |x| |z|, where d is the number of items that x and z can have in
common, and |fl(|x|^2) - |x|^2| <= s u |x|^2, where s counts the roundings of a squared length (Higham 2002, section
3.1). Kernel values computed in float64 therefore have these errors:

    rbf       gamma |x - z|^2 as gamma (|x|^2 + |z|^2 - 2 x.z) is off by at most (d + s + 6) u reach,
              reach = gamma (|x|^2 + |z|^2), and k has this relative error. If the reach exceeds CLOSE_REACH, every k
              that is not negligible is computed from the differences x - z. Then |x - z|^2 has a relative error of
              (s + 4) u for dense rows, and of 6 u for sparse rows, whose sums are compensated (Ogita, Rump & Oishi
              2005).
    poly      g = gamma x.z + coef0 is off by e = (d + 3) u (gamma |x| |z| + |coef0|), and k = g^p by at most
              p (|g| + e)^(p-1) e + p u |k|
    sigmoid   k = tanh g is off by e times the greatest slope near g, plus a few u

For dense rows, d = s is the number of features. For sparse rows, d is the smaller and s the larger of the two numbers
of items, since a length is a sum over all items of a row, many of which the other row may lack. Blocks of BLOCK_ITEMS
items are summed in float64, and their sums in twice the precision (numeric.gram), so that s is at most BLOCK_ITEMS + 2.
The 6 covers four operations: the two sums and the difference lose 1, 3/2 and 2 times u reach, and the product with
gamma loses 2 u reach. Together they lose more than 6 u reach only where x.z < -0.8 |x| |z|, so that k < e^(-1.8 reach).
The excess, at most u reach / 2, is then covered by the 12 u of `bound_sums` for a reach of up to 18, and is below FAINT
beyond.

In a sum, the error of a kernel value is multiplied by |coef_c|. Compiled code therefore also sums the magnitudes
sum_c |coef_c| |k_ic| (for poly and sigmoid, the slopes too), and `bound_sums` turns them into error bounds. Summing m
terms adds an error of less than (m / 4 + 4) u times the magnitudes, because four columns are added at a time.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  compiled np.dot calls it; thread limits apply once it is loaded
from llvmlite import ir
from numba import float32, njit
from numba.extending import intrinsic, register_jitable

from streamsvm.kernels.names import POLY, RBF
from streamsvm.numeric.gram import Tile, make_tile, multiply_sparse
from streamsvm.numeric.rounding import UNIT, add_two
from streamsvm.numeric.rows import F32, F64, I32, I64, Split, Values

PER_LN2, LN2_HIGH, LN2_LOW = 1.4426950408889634, 0.693147180369123816490, 1.90821492927058770002e-10
LOWEST, HIGHEST = -708.0, 709.0  # x is clipped to this range, where e^x is from about 1e-308 to 1e308
ROUNDER = 6755399441055744.0  # adding 1.5 * 2^52 rounds to whole numbers
PER_LN2_32, LN2_HIGH_32, LN2_LOW_32 = map(np.float32, (1.4426950408889634, 0.693359375, -2.12194440e-4))
LOWEST_32, HIGHEST_32 = np.float32(-87.0), np.float32(88.0)
ROUNDER_32 = np.float32(12582912.0)
A2, A3, A4, A5, A6, A7 = (np.float32(1 / math.factorial(k)) for k in range(2, 8))
B2, B3, B4, B5, B6, B7, B8, B9, B10, B11, B12, B13 = (1 / math.factorial(k) for k in range(2, 14))
ONE_32 = np.float32(1.0)
CLOSE_REACH = 64.0  # with gamma = 1 / (features * variance), rows of ordinary scale stay below it
FAINT = 1e-22  # e^-50; smaller kernel values are below the rounding error of the sum
SMALL = 0.015625  # below, tanh is summed as a series, since (e^2v - 1) / (e^2v + 1) has a large relative error
SQUASHED = 0.16  # times the factor of `bound_sums`, this exceeds 4 u, a bound of the error of a computed tanh
STEEP = 40.0  # beyond this argument tanh is 1 or -1 to the last bit


@intrinsic  # type: ignore[misc]
def _power_of_two(_context: Any, k: Any) -> Any:
    """Return 2^k for a whole number k of floating-point type, by setting the exponent bits."""
    real, size, bias, shift = (ir.FloatType(), 32, 127, 23) if k == float32 else (ir.DoubleType(), 64, 1023, 52)
    whole = ir.IntType(size)

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        exponent = builder.add(builder.fptosi(args[0], whole), ir.Constant(whole, bias))
        return builder.bitcast(builder.shl(exponent, ir.Constant(whole, shift)), real)

    return k(k), generate


@register_jitable(fastmath={"contract"})
def _exponentiate_single(row: F32) -> None:
    for i in range(row.size):
        x = min(max(np.float32(row[i]), LOWEST_32), HIGHEST_32)
        k = (x * PER_LN2_32 + ROUNDER_32) - ROUNDER_32
        r = (x - k * LN2_HIGH_32) - k * LN2_LOW_32
        series = ((((A7 * r + A6) * r + A5) * r + A4) * r + A3) * r + A2
        row[i] = (series * (r * r) + (r + ONE_32)) * _power_of_two(k)


@register_jitable(fastmath={"contract"})
def _exponentiate_double(row: F64) -> None:
    for i in range(row.size):
        x = min(max(np.float64(row[i]), LOWEST), HIGHEST)
        k = (x * PER_LN2 + ROUNDER) - ROUNDER
        r = (x - k * LN2_HIGH) - k * LN2_LOW
        high = ((((B13 * r + B12) * r + B11) * r + B10) * r + B9) * r + B8
        series = (((((high * r + B7) * r + B6) * r + B5) * r + B4) * r + B3) * r + B2
        row[i] = (series * (r * r) + (r + 1.0)) * _power_of_two(k)


@register_jitable
def exponentiate(row: F32 | F64) -> None:
    """Replace each x by e^x in place. x is first clipped so that e^x is a normal number."""
    if row.itemsize == 4:
        _exponentiate_single(row)
    else:
        _exponentiate_double(row)


Proof = tuple[()] | tuple[F64, float]

T3, T5, T7 = 1 / 3, 2 / 15, 17 / 315  # coefficients of the series of tanh
BLOCK_COLUMNS = 256  # number of columns whose kernel values are computed at a time: half a MiB in addition to the tile


class CompiledKernel(NamedTuple):
    """A kernel for compiled code. gamma and coef0 have the type of the rows, float32 or float64."""

    code: int
    gamma: float
    coef0: float
    degree: int


class Columns(NamedTuple):
    """The rows z_c of a kernel sum: their parts from `split`, their squared lengths, and the coefficients coef_c."""

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
    """Set K[c, j] = K[j, c] = columns[slots_c, chosen_j] for every c from `first` to `last` that has a slot."""
    for c in range(first, last):
        if slots[c] >= 0:
            column = columns[slots[c]]
            for j in range(chosen.size):
                K[c, j] = column[chosen[j]]
                if slots[j] < 0:
                    K[j, c] = K[c, j]


@register_jitable  # with "contract", products that are used twice would be fused in some processes only
def add_with_magnitudes(values: Values, coef: F64, f: F64, magnitudes: F64) -> None:
    """Add sum_c coef_c values_ci to f_i, as `add_columns` does, and sum_c |coef_c values_ci| to magnitudes_i."""
    k, n = 0, values.shape[0]
    while k < n:
        if k + 3 < n:
            u, v, w, x = values[k], values[k + 1], values[k + 2], values[k + 3]
            a, b, c, d = coef[k], coef[k + 1], coef[k + 2], coef[k + 3]
            for i in range(f.size):
                p, q, r, s = a * u[i], b * v[i], c * w[i], d * x[i]
                f[i] += (p + q) + (r + s)
                magnitudes[i] += (abs(p) + abs(q)) + (abs(r) + abs(s))
            k += 4
        else:
            u, a = values[k], coef[k]
            for i in range(f.size):
                f[i] += a * u[i]
                magnitudes[i] += abs(a * u[i])
            k += 1


@register_jitable(fastmath={"contract"})
def add_slopes(
    kernel: CompiledKernel, unit: float, products: Values, left: Values, right: Values, coef: F64, magnitudes: F64
) -> None:
    """Add sum_c |coef_c| slope (gamma |x| |z| + |coef0|) to magnitudes_i, with the slope of poly or sigmoid near x.z.

    products: x_i.z_c, (columns, n); left and right: squared lengths of the columns z and the rows x.
    """
    code, gamma, coef0, degree = kernel
    n = right.size
    roots, bases, shares = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        roots[i] = np.sqrt(right[i])
    for c in range(products.shape[0]):
        row, of_column = products[c], gamma * np.sqrt(left[c])
        for i in range(n):
            magnitude = of_column * roots[i] + abs(coef0)
            shares[i] = magnitude * abs(coef[c])
            bases[i] = abs(gamma * row[i] + coef0) + (unit * magnitude if code == POLY else -unit * magnitude)
        if code == POLY:
            for _ in range(degree - 1):
                for i in range(n):
                    shares[i] *= bases[i]
            for i in range(n):
                magnitudes[i] += degree * shares[i]
        else:
            for i in range(n):  # 1 / cosh(v)^2 <= 4 e^(-2 |v|)
                slope = np.exp(-2.0 * min(bases[i], STEEP)) if bases[i] > 0.0 else 1.0
                magnitudes[i] += SQUASHED * abs(coef[c]) * min(1.0, bases[i] / SMALL)
                magnitudes[i] += min(1.0, 4.0 * slope) * shares[i] if bases[i] < STEEP else 0.0


def bound_sums(
    code: int, degree: int, n_items: I64, n_lengths: I64, n_columns: int, reach: F64, magnitudes: F64
) -> F64:
    """Return error bounds of kernel sums, (n,), given the magnitudes of their terms.

    n_items, n_lengths: d and s of each row, (n,), as defined above. reach: gamma (|x_i|^2 + the largest |z|^2), (n,).
    """
    of_values = n_items + (degree + 12.0)
    of_exponents = (n_items + n_lengths + 6) * np.minimum(reach, CLOSE_REACH)
    shares = of_exponents + of_values if code == RBF else 2 * of_values
    return np.asarray(UNIT * (n_columns / 4 + 4 + shares) * magnitudes)


@register_jitable
def _measure_distance(values: Values, indices: I32, indptr: I64, z: int, i: int, tile: Tile, mark: I32) -> float:
    """Return |x_i - z|^2 from differences; for sparse rows the sum is compensated.

    mark holds z + 1 for each line of the tile in which row z has an item.
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
    """Recompute e^(-gamma |x - z|^2) from differences where |x|^2 + |z|^2 - 2 x.z loses too many digits."""
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
    """Turn products with the columns from `first` on into kernel values; add them to f and to the magnitudes.

    If `magnitudes` is empty, the values are computed with the same care, but added to f alone.
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

    Unless `slots` is empty, the kernel values of column c are also written to store[slots_c]. proof: empty for float32;
    for float64 a pair: the magnitudes of the terms of f, (n,) or empty, and the rounding error of |x - z|^2 relative to
    |x|^2 + |z|^2.
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
                for i in range(n):  # assigning a slice takes twice as long to compile
                    kept[at + i] = row[i]
