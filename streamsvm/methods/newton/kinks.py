"""An interior-point method for a loss with kinks on rows in memory: where few rows are near, Newton's steps go astray.

    min  1/2 |w|^2 + sum_k C_k xi_k,     xi_k - s_k = u_k = sign_k (z_k.w - place_k),     s, xi >= 0

Each kink k of a row (numeric.smooth_loss) is a hinge of its own, with a multiplier a_k from 0 to C_k. At the minimiser
w = -sum_k a_k sign_k z_k, a_k s_k = 0 and (C_k - a_k) xi_k = 0. The method follows the path on which these products are
m C_k, while m falls to 0, by the predictor and corrector of Mehrotra (1992), SIAM Journal on Optimization 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve

from streamsvm import deadline, interrupts
from streamsvm.methods.newton.sums import TILE_ROWS, Curvature
from streamsvm.numeric.dual_points import Bound, add_dual_sums, bound_by_coefs, start_dual_sums
from streamsvm.numeric.factors import factorise
from streamsvm.numeric.rounding import bound_rounding, sum_exactly
from streamsvm.numeric.row_products import add_rows, compute_scores
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.numeric.smooth_loss import Kinks

LEAST_ROOM = 1e-15  # of a multiplier to its cost, as a share of that: less is lost in rounding
INSIDE = 0.995  # a step goes so far towards the border


@dataclass
class Path:
    """A point inside: w (d+1,), and a, s and xi of the kinks, (k, n)."""

    w: F64
    a: F64
    s: F64
    xi: F64


def minimise_kinks(rows: Rows, kinks: Kinks, bias_feature: float, tol: float, most: int) -> tuple[F64, F64]:
    """Return the w (d+1,) with the lowest P and the a (k, n) with the highest D for rows in memory.

    The method ends at the relative gap tol or, if rounding keeps it above, after `most` steps.
    """
    start, every = np.zeros(rows.X.shape[1] + 1), np.arange(rows.n_rows)
    u = find_distances(rows, kinks, start, bias_feature)
    far = max(float(np.sum(kinks.costs * np.abs(u)) / np.sum(kinks.costs)), float(np.finfo(np.float64).tiny) ** 0.5)
    path = Path(start, kinks.costs / 2, np.maximum(-u, 0.0) + far, np.maximum(u, 0.0) + far)
    best, best_w, best_dual, best_a = float("inf"), path.w, 0.0, path.a
    for _ in range(most):
        interrupts.check()
        made_of = combine(rows, kinks.signs * path.a, every, bias_feature)
        primal = float(path.w @ path.w) / 2 + float(np.sum(kinks.costs * np.maximum(0.0, path.xi - path.s)))
        dual = -float(made_of @ made_of) / 2 - float(np.sum(path.a * kinks.signs * kinks.places))
        if primal < best:
            best, best_w = primal, path.w
        linear = -float(np.sum(drop_common(path.a, kinks) * kinks.signs * kinks.places))
        if (proved := linear - float(made_of @ made_of) / 2) > best_dual:
            best_dual, best_a = proved, path.a
        if not primal - dual > tol * primal or deadline.is_over():
            break
        _go_on(path, rows, kinks, path.w + made_of, bias_feature)
    return best_w, drop_common(best_a, kinks)


def drop_common(a: F64, kinks: Kinks) -> F64:
    """Return feasible multipliers (k, n): a without the part that two opposite kinks of a row have in common.

    This part cancels in w, and only adds rounding to D.
    """
    limited = np.clip(a, 0.0, kinks.costs)
    return limited - np.where(np.sum(kinks.signs, axis=0) == 0.0, np.min(limited, axis=0), 0.0)


def bound_by_kinks(rows: Rows, kinks: Kinks, a: F64, bias_feature: float) -> Bound:
    """Return the lower bound that a (k, n), from 0 to the costs, proves, rounding included.

    D(a) = -sum_k a_k sign_k place_k - 1/2 |sum_k a_k sign_k z_k|^2
    """
    sums, terms = start_dual_sums(rows.X.shape[1]), -a * kinks.signs * kinks.places
    if not np.isfinite(terms).all():
        return Bound(0.0, 0.0)
    rows = replace(rows, y=np.zeros(rows.n_rows, np.int32))
    for at in range(0, rows.n_rows, TILE_ROWS):
        tile = slice(at, at + TILE_ROWS)
        for coefs in (kinks.signs * a)[:, tile]:
            add_dual_sums(sums, rows.slice(tile), coefs, np.abs(coefs))
    total, rounding = sum_exactly(*terms), bound_rounding(4, sum_exactly(*np.abs(terms)))
    return bound_by_coefs(sums, max(0.0, total), rounding, 0.0, bias_feature)


def find_widths(u: F64, costs: F64, floor: float, scale: float, allowed: float) -> tuple[float, float]:
    """Return two widths of the smoothing that take no more of P than is allowed, one in a wide gap, and the largest.

    The first lies in the widest gap between the distances u of the kinks. floor, scale: how far these are known, and
    how large they may be.
    """
    order = np.argsort(u, axis=None)
    near = np.concatenate((np.maximum(u.ravel()[order], floor), [max(scale, float(np.max(u)))]))
    most = 4.0 * allowed / np.maximum(np.cumsum(costs.ravel()[order]), allowed)
    widths = np.minimum(np.sqrt(near[:-1] * near[1:]), most)
    gaps = np.minimum(widths / near[:-1], near[1:] / widths)
    return float(widths[np.argmax(gaps)]), float(np.max(np.minimum(near[1:], most)))


def _go_on(path: Path, rows: Rows, kinks: Kinks, residual: F64, bias_feature: float) -> None:
    """Make a step: the predictor towards m = 0, and the corrector towards the m that it lets hope for."""
    room = np.maximum(kinks.costs - path.a, LEAST_ROOM * kinks.costs)
    theta = 1.0 / (path.xi / room + path.s / path.a)
    _, factor = factorise(_curve(rows, np.sum(theta, axis=0), bias_feature))
    gap = float(np.sum(path.a * path.s) + np.sum(room * path.xi))
    if factor is None or not gap > 0.0:
        return

    def find_step(low: F64, high: F64) -> tuple[F64, F64, F64, F64]:
        """Return the changes of w, a, s and xi that bring a s to a s + low, and (C - a) xi to (C - a) xi + high."""
        pull = theta * (low / path.a - high / room)
        right = residual + combine(rows, kinks.signs * pull, np.arange(rows.n_rows), bias_feature)
        dw = -cho_solve((factor, False), right)
        da = theta * kinks.signs * _find_scores(rows, dw, bias_feature) + pull
        return dw, da, (low - path.s * da) / path.a, (high + path.xi * da) / room

    _, da, ds, dxi = find_step(-path.a * path.s, -room * path.xi)
    far = _find_length(path, room, da, ds, dxi)
    left = float(np.sum((path.a + far * da) * (path.s + far * ds)) + np.sum((room - far * da) * (path.xi + far * dxi)))
    m = (left / gap) ** 3 * gap / (2.0 * float(np.sum(kinks.costs))) * kinks.costs
    dw, da, ds, dxi = find_step(m - path.a * path.s - da * ds, m - room * path.xi + da * dxi)
    far = min(1.0, INSIDE * _find_length(path, room, da, ds, dxi))
    path.w, path.a, path.s, path.xi = path.w + far * dw, path.a + far * da, path.s + far * ds, path.xi + far * dxi


def _find_length(path: Path, room: F64, da: F64, ds: F64, dxi: F64) -> float:
    """Return the length of the step at which a, C - a, s or xi becomes 0, or 1 / INSIDE if that is shorter."""
    shares = ((path.a, da), (room, -da), (path.s, ds), (path.xi, dxi))
    return 1.0 / max(INSIDE, *(float(np.max(-change / value)) for value, change in shares))


def combine(rows: Rows, coefs: F64, numbers: I64, bias_feature: float) -> F64:
    """Return the sum of the rows of these numbers times the coefs of their kinks (k, n)."""
    total, coef = np.zeros((1, rows.X.shape[1] + 1)), np.sum(coefs, axis=0)
    add_rows(total, rows.X, numbers, np.zeros_like(numbers), coef)
    total[0, -1] += bias_feature * float(np.sum(coef))
    made: F64 = total[0]
    return made


def find_distances(rows: Rows, kinks: Kinks, w: F64, bias_feature: float) -> F64:
    """Return u of the kinks, (k, n)."""
    distances: F64 = kinks.signs * (_find_scores(rows, w, bias_feature) - kinks.places)
    return distances


def _find_scores(rows: Rows, w: F64, bias_feature: float) -> F64:
    scores: F64 = compute_scores(rows.X, w[None, :-1])[:, 0]
    scores += bias_feature * float(w[-1])
    return scores


def _curve(rows: Rows, weight: F64, bias_feature: float) -> F64:
    """Return I + sum_i weight_i z_i z_i'."""
    total = Curvature(rows.X.shape[1])
    for at in range(0, rows.n_rows, TILE_ROWS):
        tile = slice(at, at + TILE_ROWS)
        total.add(rows.slice(tile), weight[tile], bias_feature)
    matrix = total.finish()
    return matrix + np.eye(len(matrix))
