"""The optimal shares of a few hundred resident rows, by a primal-dual interior-point method.

    max over c   D(c0) + g'(c - c0) - 1/2 (c - c0)'H (c - c0),   0 <= c <= 1
    H_ij = C_i C_j y_i y_j x_i.x_j,   g_i = C_i (1 - y_i w.x_i)       at the shares c0, whose weight vector is w

Row i has the label y_i, the cost C_i and the share c_i, which stands for the multiplier C_i c_i. Coordinate ascent
takes thousands of epochs if the rows are nearly parallel, as rows far from the origin are. Newton's method does not
mind, and the H of few rows is small. The problem is written as a change from c0, and not from 0, because g is computed
from the rows and has more digits than H c0. So a second call repairs the rounding of the first.

In Newton's equations p and q are the multipliers of c >= 0 and u = 1 - c >= 0, and the products p c and q u are to
become target_p and target_q:

    (H + p/c + q/u) dc = g - H (c - c0) + target_p / c - target_q / u
    dp = (target_p - p dc) / c - p,   dq = (target_q + q dc) / u - q

The steps are those of Mehrotra's predictor and corrector (Mehrotra 1992, "On the implementation of a primal-dual
interior point method", SIAM J. Optimization 2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from streamsvm import interrupts
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, CsrRows, Rows, slice_rows, to_dense

MOST_ROWS = 500  # Their H has 2 MB, and a step takes a hundredth of a second.
BLOCK_ROWS = 32  # Two blocks of rows are in float64 at once; each takes as much memory as so many cuts.
PRODUCTS = 6  # matrices (rows, rows) that the method holds at once
MOST_STEPS = 100
PATIENCE = 10  # If so many steps in a row have not lowered the gap to PROGRESS of itself, rounding is the limit.
PROGRESS = 0.9
BOUNDARY = 0.995  # share of the way to the boundary that a step goes
MOST_SECOND_ORDER = 3.0  # limit of the second-order products, in units of mu


class Point(NamedTuple):
    """Shares c, their complements u = 1 - c, and the multipliers p of c >= 0 and q of u >= 0, (n,) each."""

    c: F64
    u: F64
    p: F64
    q: F64


def multiply_rows(rows: Rows, bias_feature: float) -> F64:
    """Return the products of the rows with one another, (n, n), which include the constant feature."""
    products = np.empty((rows.n_rows, rows.n_rows))
    blocks = [slice(at, min(at + BLOCK_ROWS, rows.n_rows)) for at in range(0, rows.n_rows, BLOCK_ROWS)]
    for k, own in enumerate(blocks):
        left = write_out(rows, own)
        for other in blocks[: k + 1]:
            products[own, other] = left @ write_out(rows, other).T
            products[other, own] = products[own, other].T
    return products + bias_feature**2


def write_out(rows: Rows, part: slice) -> F64:
    """Return some of the rows as a dense matrix in float64, without the constant feature."""
    some = slice_rows(rows.X, part)
    dense = to_dense(some) if isinstance(some, CsrRows) else some
    return dense.astype(np.float64)


def maximise_shares(
    rows: Rows,
    products: F64,
    class_costs: F64,
    bias_feature: float,
    share: F64,
    w: F64,
    others: float,
    wanted: float,
    tol: float,
) -> tuple[F64, bool]:
    """Return shares c (n,) with which these rows' part of the duality gap is at most `wanted` or tol * D.

    products: what `multiply_rows` returns; share (n,): c0; w (d+1,): the weight vector of all rows' shares, whose last
    entry is the weight of the constant feature; others: sum C_i c_i of the other rows, whose shares are fixed. If
    rounding does not allow such a gap, the shares with the smallest gap on the way are returned, and False with them.
    Then D rises only as far as the products tell it. Equal input gives equal bits.
    """
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    used = np.flatnonzero(costs > 0.0)
    if not len(used):
        return share, True
    signed = (costs * y)[used]
    scores = compute_scores(rows.X, w[None, :])[used, 0] + w[-1] * bias_feature
    value = others + float(costs @ share) - float(w @ w) / 2
    found, rise, is_enough = _climb(
        products[np.ix_(used, used)] * np.outer(signed, signed),
        costs[used] - signed * scores,
        share[used],
        value,
        wanted,
        tol,
    )
    best = share.copy()
    if rise > 0.0:
        best[used] = np.minimum(found, 1.0)
    return best, is_enough


def _climb(H: F64, g: F64, start: F64, value: float, wanted: float, tol: float) -> tuple[F64, float, bool]:
    """Return the c with the smallest gap on the way, the rise of its D above `value`, and whether the gap is reached.

    The gap can be small enough before D is above that of the start, and then the steps go on.
    """
    point = start_point(g)
    best, rise, least, idle, is_enough = start, 0.0, np.inf, 0, False
    with np.errstate(all="ignore"):  # a gap of NaN lowers nothing, which ends the loop
        for _ in range(MOST_STEPS):
            interrupts.check()
            slope = g - H @ (point.c - start)
            gap = float(np.maximum(slope, 0.0) @ point.u + np.maximum(-slope, 0.0) @ point.c)
            idle = 0 if gap < PROGRESS * least else idle + 1
            if gap < least:
                best, least, rise = point.c, gap, float((g + slope) @ (point.c - start)) / 2
            is_enough = gap <= max(wanted, tol * (value + rise)) and rise > 0.0
            if is_enough or idle > PATIENCE or not measure(point) > 0.0:
                break
            point = step_to_target(point, _factorise(H, slope, point))
    return best, rise, is_enough


def start_point(g: F64) -> Point:
    """Return the point to start from: all shares at 1/2, and all multipliers at the mean size of g."""
    half, size = np.full(len(g), 0.5), np.full(len(g), float(np.mean(np.abs(g))))
    return Point(half, half, size, size)


def step_to_target(point: Point, solve: Callable[[F64], F64]) -> Point:
    """Return the next point by Mehrotra's predictor and corrector; it is NaN where Newton's equations are not solved.

    solve: returns dc for what the targets add to the right side of Newton's equations.
    """
    c, u, p, q = point

    def direct(target_p: F64, target_q: F64) -> Point:
        dc = solve(target_p / c - target_q / u)
        return Point(dc, -dc, (target_p - p * dc) / c - p, (target_q + q * dc) / u - q)

    mu, predicted = measure(point), direct(np.zeros(len(c)), np.zeros(len(c)))
    after = measure(_move(point, predicted, _find_length(point, predicted)))
    center, most = mu * (after / mu) ** 3, MOST_SECOND_ORDER * mu
    products = np.clip(predicted.c * predicted.p, -most, most), np.clip(predicted.u * predicted.q, -most, most)
    direction = direct(center - products[0], center - products[1])
    return _move(point, direction, BOUNDARY * _find_length(point, direction))


def _factorise(H: F64, slope: F64, point: Point) -> Callable[[F64], F64]:
    """Return what solves Newton's equations at a point; the solution is NaN if H has no Cholesky factor."""
    factor = _factor(H, point.p / point.c + point.q / point.u)

    def solve(targets: F64) -> F64:
        dc: F64 = dpotrs(factor, slope + targets, lower=1)[0]
        return dc

    return solve


def _factor(H: F64, diagonal: F64) -> F64:
    """Return the Cholesky factor of H + diagonal.

    If rounding leaves this without a factor, a growing share of H's own diagonal is added.
    """
    own = H.diagonal()
    for shift in 4 * UNIT * 10.0 ** np.arange(0, 12, 2):
        shifted = H.copy(order="F")
        shifted.flat[:: len(H) + 1] += diagonal + shift * own
        factor: F64
        factor, failed_at = dpotrf(shifted, lower=1)
        if failed_at == 0:
            return factor
    return np.full_like(H, np.nan)


def measure(point: Point) -> float:
    """Return mu, the mean of the products p c and q u."""
    return float(point.c @ point.p + point.u @ point.q) / (2 * len(point.c))


def _find_length(point: Point, direction: Point) -> float:
    """Return the longest step up to 1 that keeps every variable at 0 or above."""
    falls = max(float(np.max(-change / value)) for value, change in zip(point, direction, strict=True))
    return min(1.0, 1.0 / falls) if falls > 0 else 1.0


def _move(point: Point, direction: Point, length: float) -> Point:
    return Point(*(value + length * change for value, change in zip(point, direction, strict=True)))
