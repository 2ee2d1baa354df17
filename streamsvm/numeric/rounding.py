"""Bounds on the rounding errors of sums, the magnitudes of rows that they need, and sums in twice the precision.

    |fl(sum of n terms) - sum| <= gamma_n sum |terms|,   gamma_n = n u / (1 - n u),   u = 2^-53

in any order of the terms (Higham 2002, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2). `add_two`
returns the rounded sum of two numbers and its error (Knuth's TwoSum). So a sum can be represented by a pair of numbers,
with an error of the order of u^2 (Ogita, Rump & Oishi 2005, SIAM J. Sci. Comput. 26). If the errors of n additions are
themselves summed in float64, this sum has an error of at most gamma_n n u sum |terms|. `add_to_pair` renormalises the
pair after each addition. Then the second number is at most u times the first, each addition loses at most
2 u^2 |sum so far|, and all additions together lose at most 2 n u^2 sum |terms|.
"""

from __future__ import annotations

import math
from itertools import chain

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.rows import F32, F64, I32, I64, Matrix, find_items, read_item, split

UNIT = 2.0**-53
SPLITTER = 2.0**27 + 1.0
SMALLEST = float(np.finfo(np.float64).tiny)
SUMMED_AT_ONCE = 1 << 12  # numbers converted to Python objects (32 bytes each) at a time


def sum_exactly(*terms: F64) -> float:
    """Return the sum of all numbers in these vectors, rounded once (math.fsum)."""
    blocks = (each[at : at + SUMMED_AT_ONCE] for each in terms for at in range(0, len(each), SUMMED_AT_ONCE))
    return math.fsum(chain.from_iterable(block.tolist() for block in blocks))


def bound_rounding(n_terms: float, magnitude: float) -> float:
    """Return gamma_n times `magnitude`, the sum of the terms' magnitudes; infinite if n u is not small."""
    if magnitude == 0.0:
        return 0.0
    share = n_terms * UNIT
    return share / (1.0 - share) * magnitude + n_terms * SMALLEST if share < 0.5 else float("inf")


@register_jitable
def add_two(a: float, b: float) -> tuple[float, float]:
    """Return fl(a + b) and its exact error, a + b - fl(a + b)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@register_jitable
def add_to_pair(total: float, rest: float, value: float) -> tuple[float, float]:
    """Return the sum of the pair (total, rest) and a value as a pair, whose first number is the rounded sum."""
    total, lost = add_two(total, value)
    pair: tuple[float, float] = add_two(total, lost + rest)
    return pair


@register_jitable
def multiply_two(a: float, b: float) -> tuple[float, float]:
    """Return fl(a b) and its error a b - fl(a b), which is exact without overflow or underflow (Dekker's product)."""
    product, part_a, part_b = a * b, SPLITTER * a, SPLITTER * b
    high_a, high_b = part_a - (part_a - a), part_b - (part_b - b)
    low_a, low_b = a - high_a, b - high_b
    return product, ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b


def add_pairs(a: F64, rest_a: F64, b: F64, rest_b: F64) -> tuple[F64, F64]:
    """Return the sum of the pairs (a, rest_a) and (b, rest_b) as a pair, whose first array is the rounded sum."""
    total, lost = add_two(a, b)
    pair: tuple[F64, F64] = add_two(total, lost + (rest_a + rest_b))
    return pair


def split_for_float32(w: F64) -> tuple[F64, F64]:
    """Split w into two parts, of 29 and 24 bits, whose products with float32 numbers are exact in float64."""
    bits = w.view(np.int64) & ~np.int64((1 << 24) - 1)
    high: F64 = bits.view(np.float64)
    return high, w - high


def add_row_magnitudes(sums: F64, largest: F64, X: Matrix, weight: F64) -> None:
    """Add sum_i weight_i |x_ij| to sums_j, and set largest_j = max(largest_j, max_i |x_ij|); both (at least d,)."""
    _add_magnitudes(*split(X), np.require(weight, requirements="W"), sums, largest)


def join_magnitudes(left: F64, right: F64) -> F64:
    """Return the magnitudes (2, d) of two groups of rows: the sum of the first lines, and the maximum of the second."""
    return np.stack((left[0] + right[0], np.maximum(left[1], right[1])))


@njit(cache=True, nogil=True)
def _add_magnitudes(values: F32, indices: I32, indptr: I64, weight: F64, sums: F64, largest: F64) -> None:
    for i in range(weight.size):
        first, end = find_items(values, indptr, i)
        for e in range(first, end):
            j, x = read_item(values, indices, i, e)
            at, size = np.uint32(j), np.float64(abs(x))
            sums[at] += weight[i] * size
            largest[at] = max(largest[at], size)
