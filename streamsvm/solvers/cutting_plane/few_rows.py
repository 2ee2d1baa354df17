"""The Newton's method of cutting_plane.smoothed_newton for few rows, in one compiled function.

For few rows, calling the parts of a step from Python takes twenty times as long as computing them. Since a step takes
only microseconds, the search is simpler: it always begins with the first width, wherever it starts; no short step
raises the width; and rows exactly at the width always count as within it.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.rows import F64
from streamsvm.solvers.cutting_plane import small_qp
from streamsvm.solvers.cutting_plane.smoothed_newton import (
    FIRST_WIDTH,
    MOST_STEPS,
    NARROWER,
    NARROWEST,
    HingeRows,
    Linear,
    Optimum,
    find_share,
    minimise,
    search_line,
)

MOST_PRODUCTS = 1 << 20  # with more products in a step, (n + width) width^2, BLAS and LAPACK would take less time
MOST_ROWS = 4096  # `minimise_few` copies the rows in float64, and does not look at the time limit or Ctrl-C


def is_small(n_rows: int, width: int) -> bool:
    """Return whether n_rows rows of `width` entries, constant feature included, are few enough for `minimise_few`."""
    return n_rows <= MOST_ROWS and (n_rows + width) * width**2 <= MOST_PRODUCTS


def count_bytes(n_rows: int, width: int) -> int:
    """Return the bytes of the largest copy of at most n_rows rows that are few enough."""
    return 8 * min(width * min(n_rows, MOST_ROWS), MOST_PRODUCTS // width)


def minimise_rows(data: HingeRows, linear: Linear, tol: float, start: F64) -> Optimum:
    """Minimise F by `minimise_few` if the rows are few and it reaches the gap, and otherwise by `minimise`."""
    if is_small(len(data.y), len(start)):
        found = minimise_few(data, linear, tol, start)
        if found.objective - found.lower_bound <= tol * abs(found.objective):
            return found
    return minimise(data, linear, tol, start)


def minimise_few(data: HingeRows, linear: Linear, tol: float, start: F64) -> Optimum:
    """Minimise F until the gap is at most tol times F, or rounding is the limit. Equal input gives equal bits.

    start (d+1,): the initial w, with the weight of the constant feature last.
    """
    signed = np.empty((len(data.y), len(start)))
    signed[:, :-1], signed[:, -1] = small_qp.write_out(data.rows, slice(0, len(signed))), data.bias_feature
    signed *= data.y[:, None]
    slope, start = np.array(linear.slope), np.array(start)  # compiled code takes only writable arrays
    return Optimum(*_minimise(signed, data.costs, slope, linear.value, tol, start, FIRST_WIDTH))


@njit(cache=True, nogil=True)
def _minimise(
    signed: F64, costs: F64, slope: F64, value: float, tol: float, w: F64, width: float
) -> tuple[F64, float, F64, float]:
    """Return the fields of the Optimum. signed (n, d+1): y_i x_i. slope, value: the linear part of F. w: the start.

    Loops take the compiler a fifth of the time of operations on whole arrays.
    """
    best_w, lowest, best_shares, highest = w, np.inf, np.zeros(costs.size), -np.inf
    slack, along, matrix = np.empty(costs.size), np.empty(costs.size), np.empty((w.size, w.size))
    for _ in range(MOST_STEPS):
        shares, v, loss, gained, added = np.empty(costs.size), slope.copy(), value, value, 0.0
        matrix[:] = 0.0
        for i in range(costs.size):
            slack[i] = 1.0 - _dot(signed[i], w)
            shares[i] = find_share(slack[i], width)
            own, multiplier = costs[i] * max(slack[i], 0.0), costs[i] * shares[i]
            loss, gained, added = loss + own, gained + multiplier, added + own - multiplier * slack[i]
            bend = costs[i] / (2.0 * width) if abs(slack[i]) <= width else 0.0
            for j in range(w.size):
                v[j] += multiplier * signed[i, j]
                for k in range(j + 1 if bend > 0.0 else 0):
                    matrix[j, k] += bend * signed[i, j] * signed[i, k]
        objective, bound = _dot(w, w) / 2 - _dot(slope, w) + loss, gained - _dot(v, v) / 2
        if objective < lowest:
            best_w, lowest = w, objective
        if bound > highest:
            best_shares, highest = shares, bound
        if not lowest - highest > tol * abs(lowest):
            break
        length = 0.0
        if objective - bound > 2.0 * added:
            step = _add(v, -1.0, w)
            if not _solve(matrix, step):
                break
            for i in range(costs.size):
                along[i] = _dot(signed[i], step)
            first = _dot(w, step) - _dot(slope, step)
            length = search_line(first, _dot(step, step), slack, along, costs, shares, width)
            w = _add(w, length, step)
        if length == 0.0 and width < NARROWEST:
            break
        if length == 0.0:
            width *= NARROWER
    return best_w, lowest, best_shares, highest


@register_jitable
def _dot(a: F64, b: F64) -> float:
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@register_jitable
def _add(a: F64, factor: float, b: F64) -> F64:
    """Return a + factor * b."""
    total = np.empty(a.size)
    for j in range(a.size):
        total[j] = a[j] + factor * b[j]
    return total


@register_jitable
def _solve(matrix: F64, x: F64) -> bool:
    """Replace x by the z with (I + A) z = x; return False if rounding has made I + A singular, or it overflows.

    matrix: A, of which only the lower triangle is read. The Cholesky factor of I + A takes its place.
    """
    for j in range(x.size):
        pivot = 1.0 + matrix[j, j] - _dot(matrix[j, :j], matrix[j, :j])
        if not 0.0 < pivot < np.inf:
            return False
        matrix[j, j] = np.sqrt(pivot)
        for i in range(j + 1, x.size):
            matrix[i, j] = (matrix[i, j] - _dot(matrix[i, :j], matrix[j, :j])) / matrix[j, j]
        x[j] = (x[j] - _dot(matrix[j, :j], x[:j])) / matrix[j, j]
    for j in range(x.size - 1, -1, -1):
        x[j] /= matrix[j, j]
        for k in range(j):
            x[k] -= matrix[j, k] * x[j]
    return True
