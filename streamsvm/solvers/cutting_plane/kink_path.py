"""An interior-point method for rows in memory whose losses have kinks; w is an unknown of its own.

It minimises P on these rows, to which a linear term may be added:

    min  1/2 |w|^2 + c - g.w + sum_k C_k xi_k,     xi_k - s_k = u_k = sign_k (z_k.w - place_k),     s, xi >= 0

Each kink k of a row is a hinge of its own, with a multiplier a_k from 0 to C_k. At the minimiser
w = g - sum_k a_k sign_k z_k, a_k s_k = 0 and (C_k - a_k) xi_k = 0. The method follows the path on which these products
equal m C_k, while m falls to 0.

Since w is not summed from the multipliers, costs and features of extreme scales do not drown it in rounding.

Source: Mehrotra 1992, SIAM Journal on Optimization 2 (predictor and corrector of the interior-point method).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from streamsvm.losses.convex import Kinks
from streamsvm.numeric.equations import BOUNDARY_SHARE, factorise, find_length, finish_matrix
from streamsvm.numeric.gram import TILE_ROWS, Curvature
from streamsvm.numeric.rows import F64, Rows, add_combination, score_rows
from streamsvm.solvers.cutting_plane.smoothed_newton import Linear
from streamsvm.system import deadline, interrupts
from streamsvm.system.errors import TimeLimitError

LEAST_ROOM = 1e-15  # the least relative distance of a multiplier from its cost; rounding hides smaller ones


@dataclass
class Path:
    """An interior point: w (d+1,), and a, s and xi of the kinks, (k, n)."""

    w: F64
    a: F64
    s: F64
    xi: F64


def minimise_kinks(
    rows: Rows, kinks: Kinks, bias_feature: float, tol: float, most: int, start: F64, beyond: Linear
) -> tuple[F64, F64, float]:
    """Return the w (d+1,) with the lowest P and the a (k, n) with the highest D for rows in memory, and this P.

    The method stops at the relative gap tol, or after `most` steps if rounding keeps the gap above tol. start: the
    first w. beyond: the loss of all other rows as a linear term of P.
    """
    u = find_distances(rows, kinks, start, bias_feature)
    far = max(float(np.sum(kinks.costs * np.abs(u)) / np.sum(kinks.costs)), float(np.finfo(np.float64).tiny) ** 0.5)
    path = Path(start, kinks.costs / 2, np.maximum(-u, 0.0) + far, np.maximum(u, 0.0) + far)
    best, best_w, best_dual, best_a = float("inf"), start, 0.0, path.a
    for _ in range(most):
        interrupts.check()
        made_of = combine(rows, kinks.signs * path.a, bias_feature) - beyond.slope
        primal = float(path.w @ path.w) / 2 - float(beyond.slope @ path.w) + beyond.value
        primal += float(np.sum(kinks.costs * np.maximum(0.0, path.xi - path.s)))
        dual = beyond.value - float(made_of @ made_of) / 2 - float(np.sum(path.a * kinks.signs * kinks.places))
        if primal < best:
            best, best_w = primal, path.w
        linear = beyond.value - float(np.sum(drop_common(path.a, kinks) * kinks.signs * kinks.places))
        if (proved := linear - float(made_of @ made_of) / 2) > best_dual:
            best_dual, best_a = proved, path.a
        if not primal - dual > tol * primal or deadline.is_over():
            break
        _go_on(path, rows, kinks, path.w + made_of, bias_feature)
    return best_w, drop_common(best_a, kinks), best


def drop_common(a: F64, kinks: Kinks) -> F64:
    """Return feasible multipliers (k, n) that give the same w as a.

    If two kinks of a row have opposite signs, the part common to their multipliers is removed. It cancels in w, and
    only adds rounding errors to D.
    """
    limited = np.clip(a, 0.0, kinks.costs)
    return limited - np.where(np.sum(kinks.signs, axis=0) == 0.0, np.min(limited, axis=0), 0.0)


def _go_on(path: Path, rows: Rows, kinks: Kinks, residual: F64, bias_feature: float) -> None:
    """Make a step in place. The predictor aims at m = 0, and the corrector at an m estimated from the predictor."""
    room = np.maximum(kinks.costs - path.a, LEAST_ROOM * kinks.costs)
    with np.errstate(over="ignore"):  # The theta of a row whose cost is next to 0 is 0.
        theta = 1.0 / (path.xi / room + path.s / path.a)
    try:
        _, factor = factorise(finish_matrix(len(path.w), _curve, rows, np.sum(theta, axis=0), bias_feature))
    except TimeLimitError:
        return
    gap = float(np.sum(path.a * path.s) + np.sum(room * path.xi))
    if factor is None or not gap > 0.0:
        return

    def find_step(low: F64, high: F64) -> tuple[F64, F64, F64, F64]:
        """Return the changes of w, a, s and xi that add `low` to a s, and `high` to (C - a) xi."""
        pull = theta * (low / path.a - high / room)
        right = residual + combine(rows, kinks.signs * pull, bias_feature)
        dw = -cho_solve((factor, False), right)
        da = theta * kinks.signs * score_rows(rows.X, dw, bias_feature) + pull
        return dw, da, (low - path.s * da) / path.a, (high + path.xi * da) / room

    _, da, ds, dxi = find_step(-path.a * path.s, -room * path.xi)
    values = path.a, room, path.s, path.xi
    far = find_length(values, (da, -da, ds, dxi))
    left = float(np.sum((path.a + far * da) * (path.s + far * ds)) + np.sum((room - far * da) * (path.xi + far * dxi)))
    m = (left / gap) ** 3 * gap / (2.0 * float(np.sum(kinks.costs))) * kinks.costs
    dw, da, ds, dxi = find_step(m - path.a * path.s - da * ds, m - room * path.xi + da * dxi)
    far = BOUNDARY_SHARE * find_length(values, (da, -da, ds, dxi))
    path.w, path.a, path.s, path.xi = path.w + far * dw, path.a + far * da, path.s + far * ds, path.xi + far * dxi


def combine(rows: Rows, coefs: F64, bias_feature: float) -> F64:
    """Return the sum over all rows of x, each multiplied by the sum of the coefs (k, n) of the row's kinks, (d+1,)."""
    total = np.zeros(rows.X.shape[1] + 1)
    add_combination(total, rows.X, np.arange(rows.n_rows), np.sum(coefs, axis=0), bias_feature)
    return total


def find_distances(rows: Rows, kinks: Kinks, w: F64, bias_feature: float) -> F64:
    """Return the signed distances u of the kinks, (k, n)."""
    return kinks.signs * (score_rows(rows.X, w, bias_feature) - kinks.places)


def _curve(rows: Rows, weight: F64, bias_feature: float) -> F64:
    """Return I + sum_i weight_i z_i z_i'."""
    total = Curvature(rows.X.shape[1])
    for at in range(0, rows.n_rows, TILE_ROWS):
        deadline.check()
        tile = slice(at, at + TILE_ROWS)
        total.add(rows.slice(tile), weight[tile], bias_feature)
    return total.finish() + np.eye(rows.X.shape[1] + 1)
