"""The optimal shares of a few hundred rows, found with the rows themselves if their products have too few digits.

`multiplier_qp` knows the rows only by H = B B', where B has the rows b_i = C_i y_i x_i (see there for D, c, u, p and
q). If these are long and w = B'c is short, the curvature that matters is a small difference of large entries of H, and
so are the slopes g. With costs of 1e11 and features of 1e7, entries of 1e37 have to give |w|^2 of 1, and no digit of
it is left. This module takes the same steps with B. Newton's equations are the normal equations of a least-squares
problem, which is solved by a QR factorisation:

    (B B' + S^2) dc = C - B w + t,   S^2 = p/c + q/u,   t = target_p / c - target_q / u

    min over dc of  | B'dc + w |^2  +  | S dc - (C + t) / S |^2,        [B' ; S] = Q R

C has the costs C_i. No slope is formed of w: it would be off by C_i |x_i| times the rounding of w, which is far more
than the slope itself. For this reason the gap cannot be told from the slopes, either. The steps end when D rises no
more, which is computed by w, and the products p c and q u, which sum up to the gap of the exact w, are small.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, qr, solve_triangular

from streamsvm import interrupts
from streamsvm.methods.cutting_plane.multiplier_qp import (
    MOST_STEPS,
    PATIENCE,
    Point,
    measure,
    start_point,
    step_to_target,
    write_out,
)
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, Rows

MOST_VALUES = 1 << 20  # numbers in B; rows of more are left to their products
COPIES = 4  # of B at once
MATRICES = 14  # (rows, rows) that are held at once beside B, the products of the rows among them


def can_refine(n_rows: int, width: int) -> bool:
    """Return whether so many rows, `width` entries long with the constant feature, are few enough."""
    return n_rows * width <= MOST_VALUES


def refine_shares(rows: Rows, class_costs: F64, bias_feature: float, share: F64, w: F64, tol: float) -> F64:
    """Return shares c (n,) whose D is the highest that is found, to a gap of about tol * D if rounding allows it.

    share (n,): the shares to start from, which are returned if no better ones are found; w (d+1,): their weight vector,
    whose last entry is the weight of the constant feature. Equal input gives equal bits.
    """
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    used, best = np.flatnonzero(costs > 0.0), share.copy()
    B = np.empty((len(used) + 1, len(w)))  # w comes last
    B[:-1, :-1], B[:-1, -1] = write_out(rows, slice(0, rows.n_rows))[used], bias_feature
    B[:-1] *= (costs * y)[used, None]
    B[-1] = w
    if not len(used) or not np.all(np.isfinite(B)):
        return best
    if B.shape[1] > len(B):  # in the span of the rows and w, they have fewer coordinates
        B = np.ascontiguousarray(qr(B.T, mode="economic", overwrite_a=True, check_finite=False)[1].T)
    best[used] = np.minimum(_climb(B[:-1], costs[used], share[used], B[-1], tol), 1.0)
    return best


def _climb(B: F64, costs: F64, start: F64, w0: F64, tol: float) -> F64:
    """Return the c with the highest D on the way, from the point in the middle; w0 (width,) belongs to `start`."""
    point, best, idle = start_point(costs - B @ w0), start, 0
    value = highest = float(costs @ start - w0 @ w0 / 2)
    with np.errstate(all="ignore"):  # a D of NaN rises no more, which ends the loop
        for _ in range(MOST_STEPS):
            interrupts.check()
            w, before = w0 + (point.c - start) @ B, value
            value = float(costs @ point.c - w @ w / 2)
            left = 2 * len(costs) * measure(point)
            idle = 0 if value > highest else idle + 1
            best, highest = (point.c, value) if value > highest else (best, highest)
            settled = left <= tol * highest and abs(value - before) <= tol * highest
            if settled or (idle > PATIENCE and value <= before) or not left > 0.0:
                break
            try:
                point = step_to_target(point, _factorise(B, costs, w, point))
            except LinAlgError:
                break
    return best


def _factorise(B: F64, costs: F64, w: F64, point: Point) -> Callable[[F64], F64]:
    """Return what solves Newton's equations at a point, whose weight vector is w."""
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
