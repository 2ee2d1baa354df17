"""A primal-dual interior-point method for the optimal shares of a few hundred resident rows.

    max over c   D(c0) + g'(c - c0) - 1/2 (c - c0)'H (c - c0),   0 <= c <= 1
    H_ij = C_i C_j y_i y_j x_i.x_j,   g_i = C_i (1 - y_i w.x_i)       w: the weight vector of the shares c0

Row i has the label y_i, the cost C_i and the share c_i; its multiplier is C_i c_i. Coordinate ascent takes thousands of
epochs if the rows are nearly parallel, for example far from the origin. Newton's method does not, and H is small if
there are few rows. The unknown is the change from c0, because g is computed from the rows and is more accurate than
H c0. So a second call repairs the rounding of the first.

In Newton's equations p and q are the multipliers of c >= 0 and u = 1 - c >= 0. A step aims to bring the products p c
and q u to target_p and target_q:

    (H + p/c + q/u) dc = g - H (c - c0) + target_p / c - target_q / u
    dp = (target_p - p dc) / c - p,   dq = (target_q + q dc) / u - q

The steps are those of Mehrotra's predictor and corrector (Mehrotra 1992, "On the implementation of a primal-dual
interior point method", SIAM J. Optimization 2).

If the rows b_i = C_i y_i x_i are long and w = B'c is short, the products H = B B' have too few digits: with costs of
1e11 and features of 1e7, entries of size 1e37 must yield |w|^2 = 1. The same steps are then computed from B. Newton's
equations are the normal equations of a least-squares problem, which a QR factorisation solves:

    (B B' + S^2) dc = C - B w + t,   S^2 = p/c + q/u,   t = target_p / c - target_q / u

    min over dc of  | B'dc + w |^2  +  | S dc - (C + t) / S |^2,        [B' ; S] = Q R

C is the vector of the costs C_i. The slopes are not computed from w: their error would be C_i |x_i| times the rounding
of w, far larger than the slopes. For the same reason the gap is not computed from the slopes. The steps end when D,
computed from w, no longer rises and the products p c and q u, whose sum is the gap of the exact w, are small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, qr, solve_triangular
from scipy.linalg.lapack import dpotrs

from streamsvm.numeric.equations import BOUNDARY_SHARE, MOST_SECOND_ORDER, find_length, find_raised_factor, move
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, Rows, slice_rows, to_dense
from streamsvm.solvers.cutting_plane.smoothed_newton import HingeRows
from streamsvm.system import deadline, interrupts

MOST_ROWS = 500  # With this many rows, H takes 2 MB, and a step takes a hundredth of a second.
BLOCK_ROWS = 32  # Two blocks of this many rows are in float64 at once; each takes the memory of as many cuts.
PRODUCTS = 6  # matrices (rows, rows) held at once
MOST_STEPS = 100
PATIENCE = 10  # Rounding is the limit after this many successive steps that left the gap above PROGRESS of its value.
PROGRESS = 0.9
SHIFTS = (4 * UNIT * 10.0 ** np.arange(0, 12, 2)).tolist()  # multiples of H's diagonal, tried in turn
MOST_VALUES = 1 << 20  # the largest number of entries of B; for larger B, only the products of the rows are used
ROW_COPIES = 4  # copies of B held at once
MATRICES = 14  # matrices (rows, rows) held at once in addition to B, including the products of the rows


class Point(NamedTuple):
    """Shares c, their complements u = 1 - c, and the multipliers p of c >= 0 and q of u >= 0, (n,) each."""

    c: F64
    u: F64
    p: F64
    q: F64


def multiply_rows(rows: Rows, bias_feature: float) -> F64:
    """Return the products of all pairs of rows, (n, n), including the constant feature."""
    products = np.empty((rows.n_rows, rows.n_rows))
    blocks = [slice(at, min(at + BLOCK_ROWS, rows.n_rows)) for at in range(0, rows.n_rows, BLOCK_ROWS)]
    for k, own in enumerate(blocks):
        left = write_out(rows, own)
        for other in blocks[: k + 1]:
            products[own, other] = left @ write_out(rows, other).T
            products[other, own] = products[own, other].T
    return products + bias_feature**2


def write_out(rows: Rows, part: slice) -> F64:
    """Return a slice of the rows as a dense float64 matrix, without the constant feature."""
    return to_dense(slice_rows(rows.X, part)).astype(np.float64)


def maximise_shares(data: HingeRows, products: F64, share: F64, w: F64, tol: float) -> tuple[F64, bool]:
    """Return shares c (n,) with a small duality gap, and whether the gap is at most tol * D.

    products: the result of `multiply_rows`. share (n,): c0. w (d+1,): the weight vector of c0, with the weight of the
    constant feature last. If rounding does not allow such a gap, the shares with the smallest gap found are returned; D
    has then risen only as far as the accuracy of the products allows. Equal input gives equal bits.
    """
    used = np.flatnonzero(data.costs > 0.0)
    if not len(used):
        return share, True
    signed, slopes = (data.costs * data.y)[used], (data.costs - data.costs * data.find_margins(w))[used]
    value = float(data.costs @ share) - float(w @ w) / 2
    H = products[np.ix_(used, used)] * np.outer(signed, signed)
    found, rise, is_enough = _climb(H, slopes, share[used], value, tol)
    best = share.copy()
    if rise > 0.0:
        best[used] = np.minimum(found, 1.0)
    return best, is_enough


def _climb(H: F64, g: F64, start: F64, value: float, tol: float) -> tuple[F64, float, bool]:
    """Return the c with the smallest gap found, the rise of its D above `value`, and whether the gap is small enough.

    start: c0. value: D(c0). Even if the gap is small enough, the steps continue until D exceeds its value at the start.
    """
    point = start_point(g)
    best, rise, least, idle, is_enough = start, 0.0, np.inf, 0, False
    with np.errstate(all="ignore"):  # a NaN gap counts as no progress, which ends the loop
        for _ in range(MOST_STEPS):
            interrupts.check()
            slope = g - H @ (point.c - start)
            gap = float(np.maximum(slope, 0.0) @ point.u + np.maximum(-slope, 0.0) @ point.c)
            idle = 0 if gap < PROGRESS * least else idle + 1
            if gap < least:
                best, least, rise = point.c, gap, float((g + slope) @ (point.c - start)) / 2
            is_enough = gap <= max(0.0, tol * (value + rise)) and rise > 0.0
            if is_enough or idle > PATIENCE or not measure(point) > 0.0 or deadline.is_over():
                break
            point = step_to_target(point, _factorise(H, slope, point))
    return best, rise, is_enough


def start_point(g: F64) -> Point:
    """Return the starting point: all shares at 1/2, and all multipliers at the mean magnitude of g."""
    half, size = np.full(len(g), 0.5), np.full(len(g), float(np.mean(np.abs(g))))
    return Point(half, half, size, size)


def step_to_target(point: Point, solve: Callable[[F64], F64]) -> Point:
    """Return the next point by Mehrotra's predictor and corrector; it is NaN if Newton's equations cannot be solved.

    solve: a function that returns dc, given the terms of the targets on the right side of Newton's equations.
    """
    c, u, p, q = point

    def direct(target_p: F64, target_q: F64) -> Point:
        dc = solve(target_p / c - target_q / u)
        return Point(dc, -dc, (target_p - p * dc) / c - p, (target_q + q * dc) / u - q)

    mu, predicted = measure(point), direct(np.zeros(len(c)), np.zeros(len(c)))
    after = measure(move(point, predicted, find_length(point, predicted)))
    center, most = mu * (after / mu) ** 3, MOST_SECOND_ORDER * mu
    products = np.clip(predicted.c * predicted.p, -most, most), np.clip(predicted.u * predicted.q, -most, most)
    direction = direct(center - products[0], center - products[1])
    return move(point, direction, BOUNDARY_SHARE * find_length(point, direction))


def _factorise(H: F64, slope: F64, point: Point) -> Callable[[F64], F64]:
    """Return a function that solves Newton's equations at a point by a Cholesky factor.

    If rounding makes the factorisation fail, a growing multiple of the diagonal of H is added. If that does not help,
    the solution is NaN.
    """
    factor, share = find_raised_factor(H, point.p / point.c + point.q / point.u, H.diagonal(), SHIFTS)
    if share is None:
        factor = np.full_like(H, np.nan)
    return lambda targets: dpotrs(factor, slope + targets, lower=1)[0]


def measure(point: Point) -> float:
    """Return mu, the mean of the products p c and q u."""
    return float(point.c @ point.p + point.u @ point.q) / (2 * len(point.c))


def can_refine(n_rows: int, width: int) -> bool:
    """Return whether n_rows rows of `width` entries, constant feature included, are few enough for `refine_shares`."""
    return n_rows * width <= MOST_VALUES


def refine_shares(data: HingeRows, share: F64, w: F64, tol: float) -> F64:
    """Return shares c (n,) with the highest D found, to a gap of about tol * D if rounding allows it.

    share (n,): the initial shares, which are returned if no better shares are found; w (d+1,): their weight vector,
    with the weight of the constant feature last. Equal input gives equal bits.
    """
    costs, used, best = data.costs, np.flatnonzero(data.costs > 0.0), share.copy()
    B = np.empty((len(used) + 1, len(w)))  # w comes last
    B[:-1, :-1], B[:-1, -1] = write_out(data.rows, slice(0, len(share)))[used], data.bias_feature
    B[:-1] *= (costs * data.y)[used, None]
    B[-1] = w
    if not len(used) or not np.all(np.isfinite(B)):
        return best
    if B.shape[1] > len(B):  # in the span of the rows and w, all of them have fewer coordinates
        B = np.ascontiguousarray(qr(B.T, mode="economic", overwrite_a=True, check_finite=False)[1].T)
    best[used] = np.minimum(_climb_exactly(B[:-1], costs[used], share[used], B[-1], tol), 1.0)
    return best


def _climb_exactly(B: F64, costs: F64, start: F64, w0: F64, tol: float) -> F64:
    """Return the c with the highest D found, from the central point on. w0 (width,): the w of the shares `start`."""
    point, best, idle = start_point(costs - B @ w0), start, 0
    value = highest = float(costs @ start - w0 @ w0 / 2)
    with np.errstate(all="ignore"):  # a NaN value of D counts as no rise, which ends the loop
        for _ in range(MOST_STEPS):
            interrupts.check()
            w, before = w0 + (point.c - start) @ B, value
            value = float(costs @ point.c - w @ w / 2)
            left = 2 * len(costs) * measure(point)
            idle = 0 if value > highest else idle + 1
            best, highest = (point.c, value) if value > highest else (best, highest)
            settled = left <= tol * highest and abs(value - before) <= tol * highest
            if settled or (idle > PATIENCE and value <= before) or not left > 0.0 or deadline.is_over():
                break
            try:
                point = step_to_target(point, _factorise_exactly(B, costs, w, point))
            except LinAlgError:
                break
    return best


def _factorise_exactly(B: F64, costs: F64, w: F64, point: Point) -> Callable[[F64], F64]:
    """Return a function that solves Newton's equations at a point with weight vector w."""
    S = np.sqrt(point.p / point.c + point.q / point.u)
    features = np.argsort(-np.max(np.abs(B), axis=0), kind="stable")  # With long rows first, QR is accurate row by row.
    stacked = np.concatenate((B.T[features], np.diag(S)))
    Q, R, order = qr(stacked, mode="economic", overwrite_a=True, pivoting=True, check_finite=False)

    def solve(targets: F64) -> F64:
        right = np.concatenate((-w[features], (costs + targets) / S))
        dc = np.empty(len(S))
        dc[order] = solve_triangular(R, right @ Q, check_finite=False)
        return dc

    return solve
