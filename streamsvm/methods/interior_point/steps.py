"""Primal-dual interior-point steps of a linear SVM, row by row (Jung, O'Leary & Tits 2008, section 3.1).

    min 1/2 |w|^2 + sum_i C_i xi_i   s.t.   y_i (w.x_i + b) + xi_i - 1 = s_i,   s_i >= 0, xi_i >= 0

xi_i is the loss of row i over C_i, and s_i the slack of its margin. C_i is the paper's tau_i, and b its -gamma.
The first constraint has the multiplier alpha_i = C_i t_i, and xi_i >= 0 has u_i = C_i r_i. We hold the shares t and r
of the cost, so that a row of cost 0 changes nothing, and the iterates have the scale of the paper's with tau = 1.

The central path is that of the multipliers: s_i alpha_i = xi_i u_i, which is s_i t_i = xi_i r_i = mu scale_i with
scale_i = (mean of C) / C_i. On the path of the shares (scale_i = 1), steps become short where the costs differ much:
with weights from 1e-3 to 1e3 (tests/benchmarks/interior_point.py), 15,000 rows of Adult took 121 passes instead of 35,
and Web did not end within 400 passes instead of 63. Newton's equations are eliminated down to w, (3.11) to (3.16):

    r_s = y (f + b) + xi - 1 - s,   r_u = 1 - t - r,   f = X w
    omega = s/t + xi/r,   r_Omega = r_s + r_sv / t - (xi r_u + r_xu) / r
    dt = -(r_Omega + y df + y db) / omega,   dr = r_u - dt
    dxi = -(xi dr + r_xu) / r,   ds = -(r_sv + s dt) / t

The predictor has r_sv = s t and r_xu = xi r (3.7, 3.8). The corrector adds ds dt - sigma mu scale_i to the first and
dxi dr - sigma mu scale_i to the second (3.9, 3.10). We limit the products ds dt and dxi dr to 3 mu scale_i: before a
short step they are much too large for a few rows, which then make the next steps short as well. (Without the limit,
LETTER takes 37 iterations instead of 30 and MUSHROOM 22 instead of 20, both without constraint reduction.) All arrays
are (n,) float64, and each compiled function reads them once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from streamsvm.numeric.rows import F64

compiled = njit(cache=True, nogil=True, error_model="numpy")
unwarned = np.errstate(over="ignore", invalid="ignore")  # Numbers that are not finite end the run with a reason.
MOST_SECOND_ORDER = 3.0  # The limit of ds dt and dxi dr is so many times mu scale_i.
BOUNDARY = 0.995  # A step goes at most this share of the way to the boundary, where a variable is 0.
INSIDE = 0.9999  # A row may go up to this share of its way; a row that would go farther stops at BOUNDARY.


class Point(NamedTuple):
    """A point of the iteration: each row's f = w.x and its four positive variables, (n,) each."""

    f: F64
    s: F64
    t: F64
    xi: F64
    r: F64


class Targets(NamedTuple):
    """The right-hand sides of the complementarity equations, r_sv and r_xu, divided by the rows' costs."""

    sv: F64
    xu: F64


class Direction(NamedTuple):
    """The changes of a point's variables in a step of length 1."""

    f: F64
    s: F64
    t: F64
    xi: F64
    r: F64


@compiled
def find_omega(point: Point) -> F64:
    """Return omega; C / omega is the weight of a row in the normal equations."""
    omega: F64 = point.s / point.t + point.xi / point.r
    return omega


def find_residuals(point: Point, y: F64, bias: float) -> tuple[F64, F64]:
    """Return r_s (3.4) and r_u (3.3), the latter divided by the costs."""
    return y * (point.f + bias) + point.xi - 1.0 - point.s, 1.0 - point.t - point.r


@compiled
def aim_at_zero(point: Point) -> Targets:
    """Return the targets of the predictor, which aims at mu = 0 (3.7, 3.8)."""
    return Targets(point.s * point.t, point.xi * point.r)


@compiled
def find_products(predicted: Direction, mu: float, scales: F64) -> Targets:
    """Return the predictor's own products ds dt and dxi dr, cut off at 3 mu scale_i."""
    most = MOST_SECOND_ORDER * mu * scales
    sv = np.minimum(np.maximum(predicted.s * predicted.t, -most), most)
    return Targets(sv, np.minimum(np.maximum(predicted.xi * predicted.r, -most), most))


@compiled
def aim_at_center(point: Point, predicted: Direction, mu: float, center: float, scales: F64) -> Targets:
    """Return the targets of the corrector (3.9, 3.10); center: sigma mu."""
    products, aim = find_products(predicted, mu, scales), center * scales
    return Targets(point.s * point.t + products.sv - aim, point.xi * point.r + products.xu - aim)


@compiled
def find_right_side(point: Point, y: F64, bias: float, targets: Targets) -> F64:
    """Return r_Omega for these targets."""
    side: F64 = (
        y * (point.f + bias)
        + point.xi
        - 1.0
        - point.s
        + targets.sv / point.t
        - (point.xi * (1.0 - point.t - point.r) + targets.xu) / point.r
    )
    return side


@compiled
def find_second_order(point: Point, predicted: Direction, mu: float, scales: F64) -> F64:
    """Return the part of the corrector's r_Omega that the products ds dt and dxi dr of the predictor add."""
    products = find_products(predicted, mu, scales)
    added: F64 = products.sv / point.t - products.xu / point.r
    return added


@compiled
def find_direction(
    point: Point, y: F64, costs: F64, bias: float, targets: Targets, df: F64, bias_change: float
) -> Direction:
    """Return the direction that belongs to df = X dw and db; rows of cost 0 stay where they are."""
    ds, dt, dxi, dr = np.zeros(y.size), np.zeros(y.size), np.zeros(y.size), np.zeros(y.size)
    for i in range(y.size):
        s, t, xi, r = point.s[i], point.t[i], point.xi[i], point.r[i]
        if costs[i] > 0:
            r_s, r_u = y[i] * (point.f[i] + bias) + xi - 1.0 - s, 1.0 - t - r
            side = r_s + targets.sv[i] / t - (xi * r_u + targets.xu[i]) / r
            dt[i] = -(side + y[i] * (df[i] + bias_change)) / (s / t + xi / r)
            dr[i] = r_u - dt[i]
            dxi[i] = -(xi * dr[i] + targets.xu[i]) / r
            ds[i] = -(targets.sv[i] + s * dt[i]) / t
    return Direction(df, ds, dt, dxi, dr)


@compiled
def find_ratios(point: Point, direction: Direction) -> F64:
    """Return for each row the step at which its first variable becomes 0, or infinity if none does."""
    ratios = np.full(point.s.size, np.inf)
    for i in range(ratios.size):
        falls = max(
            -direction.s[i] / point.s[i],
            -direction.t[i] / point.t[i],
            -direction.xi[i] / point.xi[i],
            -direction.r[i] / point.r[i],
        )
        if falls > 0:
            ratios[i] = 1.0 / falls
    return ratios


def move(point: Point, direction: Direction, step: float) -> Point:
    """Return the point at the end of a step of this length along the direction."""
    return Point(
        point.f + step * direction.f,
        point.s + step * direction.s,
        point.t + step * direction.t,
        point.xi + step * direction.xi,
        point.r + step * direction.r,
    )


@compiled
def move_inside(point: Point, direction: Direction, step: float) -> Point:
    """Return the end of a step; rows whose variables would leave the positive numbers stop at BOUNDARY of their way."""
    s, t, xi, r = point.s.copy(), point.t.copy(), point.xi.copy(), point.r.copy()
    ratios = find_ratios(point, direction)
    for i in range(s.size):
        own = step if step <= INSIDE * ratios[i] else BOUNDARY * ratios[i]
        s[i] += own * direction.s[i]
        t[i] += own * direction.t[i]
        xi[i] += own * direction.xi[i]
        r[i] += own * direction.r[i]
    return Point(point.f + step * direction.f, s, t, xi, r)


def find_scales(costs: F64, mean: float) -> F64:
    """Return scale_i = mean / C_i, or 0 for rows of cost 0."""
    return np.divide(mean, costs, out=np.zeros(len(costs)), where=costs > 0)
