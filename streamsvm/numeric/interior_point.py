"""Primal-dual interior-point steps of a linear SVM, row by row (Jung, O'Leary & Tits 2008, section 3.1).

    min 1/2 |w|^2 + sum_i C_i xi_i   s.t.   y_i (w.x_i + b) + xi_i - 1 = s_i,   s_i >= 0, xi_i >= 0

Multipliers alpha_i = C_i t_i of the first, u_i = C_i r_i of the last: held as shares t and r of the cost, so that a row
of cost 2 C is the same as two rows, one of cost 0 the same as none, and the iterates are scaled as those of the paper
are with tau = 1. The bias is the paper's -gamma. Newton's equations, eliminated down to w (3.11)-(3.16):

    r_s = y (f + b) + xi - 1 - s,   r_u = 1 - t - r,   f = X w
    omega = s/t + xi/r,   r_Omega = r_s + r_sv / t - (xi r_u + r_xu) / r
    dt = -(r_Omega + y df + y db) / omega,   dr = r_u - dt
    dxi = -(xi dr + r_xu) / r,   ds = -(r_sv + s dt) / t

The predictor has r_sv = s t, r_xu = xi r; the corrector adds ds dt - sigma mu and dxi dr - sigma mu (3.9, 3.10).
All arrays are (n,) float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.numeric.rows import F64


class Point(NamedTuple):
    """What is known of each row: its f = w.x and the four positive variables."""

    f: F64
    s: F64
    t: F64
    xi: F64
    r: F64


class Targets(NamedTuple):
    """Right-hand sides of the complementarity equations: r_sv and r_xu, over the rows' costs."""

    sv: F64
    xu: F64


class Direction(NamedTuple):
    """Changes of a point's variables."""

    f: F64
    s: F64
    t: F64
    xi: F64
    r: F64


def find_omega(point: Point) -> F64:
    """Return omega; C / omega is the weight of a row in the normal equations."""
    return point.s / point.t + point.xi / point.r


def find_residuals(point: Point, y: F64, bias: float) -> tuple[F64, F64]:
    """Return r_s and r_u."""
    return y * (point.f + bias) + point.xi - 1.0 - point.s, 1.0 - point.t - point.r


def aim_at_zero(point: Point) -> Targets:
    """Return what the predictor aims at."""
    return Targets(point.s * point.t, point.xi * point.r)


def aim_at_center(point: Point, predicted: Direction, center: float) -> Targets:
    """Return what the corrector aims at; center: sigma mu."""
    zero = aim_at_zero(point)
    return Targets(zero.sv + predicted.s * predicted.t - center, zero.xu + predicted.xi * predicted.r - center)


def find_right_side(point: Point, y: F64, bias: float, targets: Targets) -> F64:
    """Return r_Omega."""
    r_s, r_u = find_residuals(point, y, bias)
    return r_s + targets.sv / point.t - (point.xi * r_u + targets.xu) / point.r


def find_direction(
    point: Point, y: F64, costs: F64, bias: float, targets: Targets, df: F64, bias_change: float
) -> Direction:
    """Return the direction that goes with df = X dw and db; rows of cost 0 stay where they are."""
    _, r_u = find_residuals(point, y, bias)
    dt = -(find_right_side(point, y, bias, targets) + y * (df + bias_change)) / find_omega(point)
    dr = r_u - dt
    dxi = -(point.xi * dr + targets.xu) / point.r
    ds = -(targets.sv + point.s * dt) / point.t
    counts = costs > 0
    return Direction(df, *(np.where(counts, change, 0.0) for change in (ds, dt, dxi, dr)))


def find_second_order(point: Point, predicted: Direction) -> F64:
    """Return what the predictor's own products add to r_Omega: ds dt / t - dxi dr / r."""
    return predicted.s * predicted.t / point.t - predicted.xi * predicted.r / point.r


def find_ratios(point: Point, direction: Direction) -> F64:
    """Return for each row the step at which a variable of it is 0: infinite if there is none."""
    ratios = np.full(len(point.s), np.inf)
    for value, change in zip(point[1:], direction[1:], strict=True):
        falls = change < 0
        ratios[falls] = np.minimum(ratios[falls], -value[falls] / change[falls])
    return ratios


def move(point: Point, direction: Direction, step: float) -> Point:
    """Return the point that is `step` along the direction."""
    return Point(*(value + step * change for value, change in zip(point, direction, strict=True)))


def measure_complementarity(point: Point, costs: F64) -> float:
    """Return mu = sum C (s t + xi r) / (2 sum C)."""
    total = float(np.sum(costs))
    return float(costs @ (point.s * point.t + point.xi * point.r)) / (2 * total) if total > 0 else 0.0


def measure_residual(point: Point, y: F64, costs: F64, bias: float) -> float:
    """Return the largest residual of (3.2), (3.3) and (3.4)."""
    r_s, r_u = find_residuals(point, y, bias)
    of_rows = np.maximum(np.abs(r_s[costs > 0]), np.abs((costs * r_u)[costs > 0]))
    return max(abs(float(y @ (costs * point.t))), float(np.max(of_rows, initial=0.0)))
