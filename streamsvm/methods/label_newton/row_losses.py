"""Losses, slopes and curvatures of many labels at the scores of a few rows, in one walk through the scores.

With y = +1 or -1 for a row with or without a label, m = y f its margin and C its cost:

squared hinge    l = C max(0, 1 - m)^2        a = 2 C max(0, 1 - m)      l'' = 2 C for m < 1
logistic loss    l = C log(1 + exp(-m))       a = C / (1 + exp(m))       l'' = a (1 - a / C)

a is a multiplier of the dual problem, to which the row contributes l + a m (Fenchel and Young: this is -l*(-a)).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.rows import F32, F64, I32, I64

CODES = {"squared_hinge": 0, "logistic": 1}
LOSS, DUAL, SIZES, STEEP, ACTIVE = range(5)  # the rows of `sums`
U32_SCALE = 2.0**-32


@register_jitable
def measure(code: int, cost: float, margin: float) -> tuple[float, float, float]:
    """Return the loss, the multiplier and the curvature."""
    if code == 0:
        missing = 1.0 - margin
        return (cost * missing * missing, 2.0 * cost * missing, 2.0 * cost) if missing > 0.0 else (0.0, 0.0, 0.0)
    odds = math.exp(-abs(margin))
    share = (odds if margin > 0.0 else 1.0) / (1.0 + odds)
    other = (1.0 if margin > 0.0 else odds) / (1.0 + odds)
    return cost * (max(0.0, -margin) + math.log1p(odds)), cost * share, cost * share * other


@register_jitable
def _draw(number: int) -> float:
    """Return a number from 0 to 1 that depends on the number of a row alone (a multiplicative hash)."""
    mixed = (number + 1) * 0x9E3779B1 & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x85EBCA6B) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 13)) * U32_SCALE


@njit(cache=True, nogil=True)
def measure_rows(
    code: int,
    scores: F64,
    has: npt.NDArray[np.uint8],
    weight: F64,
    lengths: F64,
    first: int,
    costs: F64,
    shares: F64,
    sums: F64,
    picked: I32,
    roots: F32,
    n_picked: I64,
) -> None:
    """Replace the scores (n, k) by the slopes -y a, and add to the sums (5, k) of the labels.

    has (n, k): which rows have the labels; lengths (n,): |x_i|; costs (k, 2): of rows without and with a label; shares
    (k,): of the active rows that are picked for the curvature. sums: losses, dual terms, the sizes of both, a |x|, and
    the number of rows with a curvature. picked, roots (k, n): the rows picked for each label, and the roots of their
    curvatures over the share; n_picked (k,): how many there are.
    """
    n, k = scores.shape
    n_picked[:] = 0
    for i in range(n):
        drawn = _draw(first + i)
        for j in range(k):
            y = 1.0 if has[i, j] else -1.0
            margin = y * scores[i, j]
            loss, a, bend = measure(code, costs[j, has[i, j]] * weight[i], margin)
            scores[i, j] = -y * a
            if a > 0.0:
                sums[LOSS, j] += loss
                sums[DUAL, j] += loss + a * margin
                sums[SIZES, j] += loss + a * abs(margin)
                sums[STEEP, j] += a * lengths[i]
            if bend > 0.0:
                sums[ACTIVE, j] += 1.0
                if drawn < shares[j]:
                    picked[j, n_picked[j]] = i
                    roots[j, n_picked[j]] = math.sqrt(bend / shares[j])
                    n_picked[j] += 1


@njit(cache=True, nogil=True)
def bend_rows(code: int, scores: F32, along: F32, has: npt.NDArray[np.uint8], weight: F64, costs: F64) -> None:
    """Multiply the scores of the labels' directions, along (n, k), by the curvatures of the losses at their scores."""
    n, k = scores.shape
    for i in range(n):
        for j in range(k):
            margin = scores[i, j] if has[i, j] else -scores[i, j]
            _, _, bend = measure(code, costs[j, has[i, j]] * weight[i], margin)
            along[i, j] *= bend


@njit(cache=True, nogil=True)
def add_active(slopes: F64, X: F64, gradients: F64) -> None:
    """Add slopes' X (k, d+1) to the gradients; rows with the slope 0 are left out."""
    for i in range(len(X)):
        x = X[i]
        for j in range(slopes.shape[1]):
            slope = slopes[i, j]
            if slope != 0.0:
                sums = gradients[j]
                for e in range(x.size):
                    sums[e] += slope * x[e]


@njit(cache=True, nogil=True)
def scale_rows(X: F64, picked: I32, roots: F32, to: F32) -> None:
    """Write the picked rows of X, each times its root, to the first rows of `to`."""
    for e in range(len(picked)):
        x, root = X[picked[e]], roots[e]
        for j in range(x.size):
            to[e, j] = x[j] * root


@njit(cache=True, nogil=True)
def add_triangle(matrix: F32, triangle: F32) -> None:
    """Add the lower triangle of a matrix (d, d), row by row, to a triangle (d (d + 1) / 2,)."""
    at = 0
    for i in range(len(matrix)):
        for j in range(i + 1):
            triangle[at + j] += matrix[i, j]
        at += i + 1


def unpack_triangle(triangle: F32, width: int) -> F64:
    """Return the symmetric matrix (d, d) of a triangle."""
    matrix = np.zeros((width, width))
    matrix[np.tril_indices(width)] = triangle
    return matrix + np.tril(matrix, -1).T


def as_flags(has: Any) -> npt.NDArray[np.uint8]:
    """Return an indicator matrix as bytes of 0 and 1, which index the costs."""
    flags: npt.NDArray[np.uint8] = np.ascontiguousarray(has).view(np.uint8)
    return flags
