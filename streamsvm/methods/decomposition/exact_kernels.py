"""Sums f_i = sum_c coef_c k(x_i, z_c) of few rows in twice the precision, for linear and polynomial kernels.

    g = gamma x.z + coef0,   k = g^p          products and powers as pairs of float64 numbers (numeric.rounding)

The sum over c is exactly rounded (math.fsum), so f_i is off by its own rounding, and by what pairs lose, u^2 of its
terms. Where multipliers are large and w is small this is what shows that they are optimal. A model is of use as far as
others can evaluate it, too: the bound is that of a reader who does so in long double, v = 2^-64, with m columns and d
items in a row:

    |f_i| u + (m + d + 4 p) v sum_c |coef_c| (gamma |x_i| |z_c| + |coef0|)^p
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
PART_ROWS = 256
READERS_UNIT = 2.0**-64


def sum_exactly(kernel: Kernel, X: F64, columns: F64, coef: F64) -> tuple[F64, F64]:
    """Return f (n,), and how far it can be off, (n,); X (n, d), columns (m, d): values of float32; coef (m,)."""
    linear = kernel.name == "linear"
    gamma, coef0, degree = (1.0, 0.0, 1) if linear else (kernel.gamma, kernel.coef0, kernel.degree)
    f = np.zeros(len(X))
    for at in range(0, len(X), PART_ROWS):
        high, low = _power(_multiply_rows(X[at : at + PART_ROWS], columns), gamma, coef0, degree)
        product, lost = _multiply(high, coef)
        terms = np.concatenate((product, lost, low * coef), axis=1)
        f[at : at + PART_ROWS] = [math.fsum(row) for row in terms.tolist()]
    lengths = np.outer(np.linalg.norm(X, axis=1), np.linalg.norm(columns, axis=1))
    sizes = (abs(gamma) * lengths + abs(coef0)) ** degree @ np.abs(coef)
    return f, OWN_ROUNDINGS * UNIT * np.abs(f) + (len(coef) + X.shape[1] + 4 * degree) * READERS_UNIT * sizes


def _multiply_rows(X: F64, columns: F64) -> Pair:
    """Return x_i.z_c as pairs, (n, m): single products of float32 numbers are exact in float64."""
    high, low = np.zeros((2, len(X), len(columns)))
    for j in range(X.shape[1]):
        high, lost = _add(high, np.multiply.outer(X[:, j], columns[:, j]))
        low += lost
    return _add(high, low)


def _add(a: F64, b: F64 | float) -> Pair:
    pair: Pair = add_two.py_func(a, b)
    return pair


def _multiply(a: F64, b: F64 | float) -> Pair:
    pair: Pair = multiply_two.py_func(a, b)
    return pair


def _power(products: Pair, gamma: float, coef0: float, degree: int) -> Pair:
    """Return (gamma x.z + coef0)^degree as pairs."""
    scaled, lost = _multiply(products[0], gamma)
    total, rest = _add(scaled, coef0)
    base = _add(total, rest + (lost + gamma * products[1]))
    power = base
    for _ in range(degree - 1):
        product, lost = _multiply(power[0], base[0])
        power = _add(product, lost + (power[0] * base[1] + power[1] * base[0]))
    return power
