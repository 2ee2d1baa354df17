"""Bounds of the rounding of floating-point sums, and sums in twice the precision.

    |fl(sum of n terms) - sum| <= gamma_n sum |terms|,   gamma_n = n u / (1 - n u),   u = 2^-53

in any order of the terms (Higham 2002, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2).
`add_two` returns the rounded sum of two numbers and its error (Knuth's TwoSum). So a sum can be kept as a pair of
numbers, whose own rounding is of the order of u^2 (Ogita, Rump & Oishi 2005, SIAM J. Sci. Comput. 26). Where the errors
of n additions are themselves added up in float64, their sum is off by at most gamma_n n u sum |terms|. `add_to_pair`
adds the two numbers of a pair after each addition. Then the second number is at most u times the first, each addition
loses at most 2 u^2 |sum so far|, and all of them lose at most 2 n u^2 sum |terms|.
"""

from __future__ import annotations

import math
from itertools import chain

import numpy as np
from numba.extending import register_jitable

from streamsvm.numeric.rows import F64

UNIT = 2.0**-53
SPLITTER = 2.0**27 + 1.0
SMALLEST = float(np.finfo(np.float64).tiny)
SUMMED_AT_ONCE = 1 << 12  # numbers that are objects of Python at a time, which take 32 bytes each


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
    """Return the sum of the pair (total, rest) and of the value as a pair, whose first number is its rounded sum."""
    total, lost = add_two(total, value)
    pair: tuple[float, float] = add_two(total, lost + rest)
    return pair


@register_jitable
def multiply_two(a: float, b: float) -> tuple[float, float]:
    """Return fl(a b) and its error a b - fl(a b), which is exact unless it overflows (Dekker's product)."""
    product, part_a, part_b = a * b, SPLITTER * a, SPLITTER * b
    high_a, high_b = part_a - (part_a - a), part_b - (part_b - b)
    low_a, low_b = a - high_a, b - high_b
    return product, ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b


def add_pairs(a: F64, rest_a: F64, b: F64, rest_b: F64) -> tuple[F64, F64]:
    """Return the sum of the pairs (a, rest_a) and (b, rest_b) as a pair, whose first numbers are its rounded sum."""
    total, lost = add_two(a, b)
    pair: tuple[F64, F64] = add_two(total, lost + (rest_a + rest_b))
    return pair


def split_for_float32(w: F64) -> tuple[F64, F64]:
    """Return w as a sum of parts of 29 and 24 bits, whose products with float32 numbers are exact in float64."""
    bits = w.view(np.int64) & ~np.int64((1 << 24) - 1)
    high: F64 = bits.view(np.float64)
    return high, w - high
