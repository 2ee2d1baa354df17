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

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from streamsvm import interrupts
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, CsrRows, Rows, compute_scores, slice_rows, to_dense

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
        left = _write_out(rows, own)
        for other in blocks[: k + 1]:
            products[own, other] = left @ _write_out(rows, other).T
            products[other, own] = products[own, other].T
    return products + bias_feature**2


def _write_out(rows: Rows, part: slice) -> F64:
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
) -> F64:
    """Return shares c (n,) with which these rows' part of the duality gap is at most `wanted` or tol * D.

    products: what `multiply_rows` returns; share (n,): c0; w (d+1,): the weight vector of all rows' shares, whose last
    entry is the weight of the constant feature; others: sum C_i c_i of the other rows, whose shares are fixed. If
    rounding does not allow such a gap, the shares with the smallest gap on the way are returned. D never falls. Equal
    input gives equal bits.
    """
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    used = np.flatnonzero(costs > 0.0)
    if not len(used):
        return share
    signed = (costs * y)[used]
    scores = compute_scores(rows.X, w[None, :])[used, 0] + w[-1] * bias_feature
    value = others + float(costs @ share) - float(w @ w) / 2
    found, rise = _climb(
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
    return best


def _climb(H: F64, g: F64, start: F64, value: float, wanted: float, tol: float) -> tuple[F64, float]:
    """Return the c with the smallest gap on the way, and by how much its D is above `value`, the D of the start.

    The gap can be small enough before D is above that of the start, and then the steps go on.
    """
    half, size = np.full(len(g), 0.5), np.full(len(g), float(np.mean(np.abs(g))))
    point = Point(half, half, size, size)
    best, rise, least, idle = start, 0.0, np.inf, 0
    with np.errstate(all="ignore"):  # a gap of NaN lowers nothing, which ends the loop
        for _ in range(MOST_STEPS):
            interrupts.check()
            slope = g - H @ (point.c - start)
            gap = float(np.maximum(slope, 0.0) @ point.u + np.maximum(-slope, 0.0) @ point.c)
            idle = 0 if gap < PROGRESS * least else idle + 1
            if gap < least:
                best, least, rise = point.c, gap, float((g + slope) @ (point.c - start)) / 2
            is_enough = gap <= max(wanted, tol * (value + rise)) and rise > 0.0
            if is_enough or idle > PATIENCE or not _measure(point) > 0.0:
                break
            direction = _find_direction(H, slope, point)
            point = _move(point, direction, BOUNDARY * _find_length(point, direction))
    return best, rise


def _find_direction(H: F64, slope: F64, point: Point) -> Point:
    """Return the step of Mehrotra's predictor and corrector, which is NaN if H has no Cholesky factor."""
    c, u, p, q = point
    factor = _factor(H, p / c + q / u)

    def direct(target_p: F64, target_q: F64) -> Point:
        dc = dpotrs(factor, slope + target_p / c - target_q / u, lower=1)[0]
        return Point(dc, -dc, (target_p - p * dc) / c - p, (target_q + q * dc) / u - q)

    mu, predicted = _measure(point), direct(np.zeros(len(c)), np.zeros(len(c)))
    after = _measure(_move(point, predicted, _find_length(point, predicted)))
    center, most = mu * (after / mu) ** 3, MOST_SECOND_ORDER * mu
    products = np.clip(predicted.c * predicted.p, -most, most), np.clip(predicted.u * predicted.q, -most, most)
    return direct(center - products[0], center - products[1])


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


def _measure(point: Point) -> float:
    """Return mu, the mean of the products p c and q u."""
    return float(point.c @ point.p + point.u @ point.q) / (2 * len(point.c))


def _find_length(point: Point, direction: Point) -> float:
    """Return the longest step up to 1 that keeps every variable at 0 or above."""
    falls = max(float(np.max(-change / value)) for value, change in zip(point, direction, strict=True))
    return min(1.0, 1.0 / falls) if falls > 0 else 1.0


def _move(point: Point, direction: Point, length: float) -> Point:
    return Point(*(value + length * change for value, change in zip(point, direction, strict=True)))
