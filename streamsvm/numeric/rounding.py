"""How far sums of floating-point numbers can be from the sums that are meant, and sums in twice the precision.

    |fl(sum of n terms) - sum| <= gamma_n sum |terms|,   gamma_n = n u / (1 - n u),   u = 2^-53

whatever the order of the sum (Higham 2002, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2).
`add_two` gives the sum of two numbers and what it has rounded away (Knuth's TwoSum), so that a sum may be carried as
a pair of numbers whose own rounding is of the order of u^2 (Ogita, Rump & Oishi 2005, SIAM J. Sci. Comput. 26).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm.numeric.rows import F64

UNIT = 2.0**-53
SPLITTER = 2.0**27 + 1.0
SMALLEST = float(np.finfo(np.float64).tiny)


def bound_rounding(n_terms: float, magnitude: float) -> float:
    """Return gamma_n times the sum of the terms' magnitudes; infinite where n u is not small."""
    share = n_terms * UNIT
    return share / (1.0 - share) * magnitude + n_terms * SMALLEST if share < 0.5 else float("inf")


@njit(cache=True, nogil=True, inline="always")
def add_two(a: float, b: float) -> tuple[float, float]:
    """Return fl(a + b), and what that lacks of a + b, exactly."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@njit(cache=True, nogil=True, inline="always")
def multiply_two(a: float, b: float) -> tuple[float, float]:
    """Return fl(a b), and what that lacks of a b, exactly unless it overflows (Dekker's product)."""
    product, part_a, part_b = a * b, SPLITTER * a, SPLITTER * b
    high_a, high_b = part_a - (part_a - a), part_b - (part_b - b)
    low_a, low_b = a - high_a, b - high_b
    return product, ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b


def add_pairs(a: F64, rest_a: F64, b: F64, rest_b: F64) -> tuple[F64, F64]:
    """Return the sum of two pairs of numbers as a pair."""
    total, lost = add_two.py_func(a, b)
    return total, lost + rest_a + rest_b


def split_for_float32(w: F64) -> tuple[F64, F64]:
    """Return two parts whose sum is w, of 29 and 24 bits: their products with float32 numbers are exact in float64."""
    bits = w.view(np.int64) & ~np.int64((1 << 24) - 1)
    high: F64 = bits.view(np.float64)
    return high, w - high
