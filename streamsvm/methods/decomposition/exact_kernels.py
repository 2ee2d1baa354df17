"""Sums f_i = sum_c coef_c k(x_i, z_c) of a few rows in twice the precision of float64, for two kinds of kernel.

    g = gamma x.z + coef0,   k = g^p        p = 1, gamma = 1, coef0 = 0 for the linear kernel

Products and powers are pairs of float64 numbers (numeric.rounding), and the sum over c is rounded once (math.fsum). So
the error of f_i is its own rounding, and u^2 times the magnitude of its terms (u = 2^-53). Where multipliers are large
and w is small, only such sums can prove that the multipliers are optimal.

A proof is of use only if others can evaluate the model. The bound therefore covers a reader who adds up the m columns
of d features in long double numbers, whose unit is v = 2^-64:

    |f_i| u + (m + d + 4 p + 1) v sum_c |coef_c| (gamma |x_i| |z_c| + |coef0|)^p
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rounding import UNIT, add_two, multiply_two
from streamsvm.numeric.rows import F64

Pair = tuple[F64, F64]
EXACT_KERNELS = ("linear", "poly")
OWN_ROUNDINGS = 2
ROWS_AT_ONCE = 256  # rows whose products with all columns are held at once
LONG_DOUBLE_UNIT = 2.0**-64


def sum_exactly(kernel: Kernel, X: F64, columns: F64, coef: F64) -> tuple[F64, F64]:
    """Return f (n,) and a bound of its errors (n,).

    X (n, d) and columns (m, d) are float64; coef (m,).
    """
    linear = kernel.name == "linear"
    gamma, coef0, degree = (1.0, 0.0, 1) if linear else (kernel.gamma, kernel.coef0, kernel.degree)
    f = np.zeros(len(X))
    for at in range(0, len(X), ROWS_AT_ONCE):
        high, low = _power(_multiply_rows(X[at : at + ROWS_AT_ONCE], columns), gamma, coef0, degree)
        product, lost = _multiply(high, coef)
        terms = np.concatenate((product, lost, low * coef), axis=1)
        f[at : at + ROWS_AT_ONCE] = [math.fsum(row) for row in terms.tolist()]
    lengths = np.outer(np.linalg.norm(X, axis=1), np.linalg.norm(columns, axis=1))
    sizes = (abs(gamma) * lengths + abs(coef0)) ** degree @ np.abs(coef)
    return f, OWN_ROUNDINGS * UNIT * np.abs(f) + (len(coef) + X.shape[1] + 4 * degree + 1) * LONG_DOUBLE_UNIT * sizes


def _multiply_rows(X: F64, columns: F64) -> Pair:
    """Return x_i.z_c as pairs of (n, m)."""
    high, low = np.zeros((2, len(X), len(columns)))
    for j in range(X.shape[1]):
        product, rest = _multiply(X[:, j, None], columns[:, j])
        high, lost = _add(high, product)
        low += lost + rest
    return _add(high, low)


def _add(a: F64, b: F64 | float) -> Pair:
    pair: Pair = add_two(a, b)
    return pair


def _multiply(a: F64, b: F64 | float) -> Pair:
    pair: Pair = multiply_two(a, b)
    return pair


def _power(products: Pair, gamma: float, coef0: float, degree: int) -> Pair:
    """Return (gamma x.z + coef0)^degree as pairs."""
    product_high, product_low = products
    scaled, lost = _multiply(product_high, gamma)
    total, rest = _add(scaled, coef0)
    base_high, base_low = _add(total, rest + (lost + gamma * product_low))
    power_high, power_low = base_high, base_low
    for _ in range(degree - 1):
        product, lost = _multiply(power_high, base_high)
        power_high, power_low = _add(product, lost + (power_high * base_low + power_low * base_high))
    return power_high, power_low
