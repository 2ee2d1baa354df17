"""The dual of a kernel SVM of few rows, by an interior-point method in a factor of the kernel (Fine & Scheinberg 2001).

With K = Z Z' the multipliers enter by w = Z'Ya alone, and the primal-dual pair is that of a linear SVM in Z:

    min 1/2 |w|^2 + sum_i C_i xi_i   s.t.   y_i (w.z_i + b) + xi_i - 1 = s_i,   s_i >= 0, xi_i >= 0
    w = Z'Ya,  y'a = 0,  a + u = C,     on the central path    s_i a_i = xi_i u_i = mu

Newton's equations for (w, b), with r_s, r_u, r_w, r_b what the equations above lack and W = 1 / (s/a + xi/u),

    (I + Z'WZ - z z'/q) dw = -(r_w + Z'YWr) - z (r_b - y'Wr) / q       z = Z'W e,  q = e'W e
    r = r_s + r_sa / a - (xi r_u + r_xu) / u

are solved by QR of [W^1/2 (Z - e z'/q); I]: this never forms Z'WZ, which has no digits left where C |z|^2 is 1e15, as
pair steps have none of K. What is left of w - Z'Ya in the end is put right in the multipliers between their bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lstsq, qr, solve_triangular
from scipy.linalg.lapack import dpstrf

from streamsvm import interrupts
from streamsvm.methods.decomposition.balance import restore_balance
from streamsvm.numeric.certificates import certify
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64

MOST_STEPS = 150
PATIENCE = 15  # steps in which neither the gap nor mu has become smaller: rounding is the limit
BOUNDARY = 0.995  # share of the way to the boundary
MOST_SECOND_ORDER = 3.0  # of mu
CORRECTIONS = 3  # of w - Z'Ya


class Point(NamedTuple):
    """A point of the path: w (r,), b, and of the rows s, a, xi and u (n,)."""

    w: F64
    b: float
    s: F64
    a: F64
    xi: F64
    u: F64


def factor_kernel(K: F64) -> F64:
    """Return Z (n, r) with K = Z Z' to rounding, by Cholesky's method with pivots; r: the rank of K as it is known."""
    L, order, rank, _ = dpstrf(np.array(K, order="F"), lower=1, tol=len(K) * UNIT * float(np.max(np.diagonal(K))))
    Z = np.zeros((len(K), rank))
    Z[order - 1] = np.tril(L)[:, :rank]
    return Z


def solve_in_factor(Z: F64, y: F64, costs: F64, tol: float) -> F64:
    """Return multipliers a (n,), 0 <= a <= C and y'a = 0, whose relative gap is at most tol, or as small as it becomes.

    Z (n, r) float64, finite; y (n,) -1 or +1; costs (n,) C_i >= 0; tol: of P - D over P. Raises nothing; equal input
    gives equal bits. Source: Fine & Scheinberg 2001, JMLR 2; predictor and corrector as Mehrotra 1992.
    """
    used = costs > 0
    best, least, idle, alpha = np.inf, np.inf, 0, np.zeros(len(y))
    if len(np.unique(y[used])) < 2:
        return alpha  # y'a = 0 leaves nothing else
    Z, y, costs = (Z if Z.shape[1] <= len(Z) else _shorten(Z))[used], y[used], costs[used]
    half, two = costs / 2, np.full(len(y), 2.0)
    point = Point(np.zeros(Z.shape[1]), 0.0, two, half, two, half)
    with np.errstate(all="ignore"):
        for _ in range(MOST_STEPS):
            interrupts.check()
            try:
                step = _find_step(Z, y, costs, point)
            except np.linalg.LinAlgError:
                break
            if not all(np.all(np.isfinite(part)) for part in step):
                break
            point = _move(point, step, min(1.0, BOUNDARY * _find_length(point, step)))
            found = _choose_multipliers(Z, y, costs, point)
            proof, mu = certify(y, costs, found, Z @ ((y * found) @ Z)), _measure(point)
            gap = proof.objective - proof.lower_bound
            idle = 0 if gap < best or mu < least / 2 else idle + 1
            least = min(mu, least)
            if gap < best:
                best, alpha[used] = gap, found
            if gap <= tol * proof.objective or idle == PATIENCE:
                break
    return alpha


def _shorten(Z: F64) -> F64:
    """Return rows of as many columns as there are rows, with the same products."""
    R: F64 = qr(Z.T, mode="r", check_finite=False)[0][: len(Z)]
    return np.ascontiguousarray(R.T)


def _find_step(Z: F64, y: F64, costs: F64, point: Point) -> Point:
    """Return Mehrotra's direction. LinAlgError where the equations are singular to rounding."""
    s, a, xi, u = point[2:]
    weights = 1.0 / (s / a + xi / u)
    total, mean = float(np.sum(weights)), weights @ Z / float(np.sum(weights))
    stacked = np.vstack((np.sqrt(weights)[:, None] * (Z - mean), np.eye(Z.shape[1])))
    if not np.all(np.isfinite(stacked)):
        raise np.linalg.LinAlgError("numbers that are not finite")
    R = qr(stacked, mode="r", overwrite_a=True, check_finite=False)[0][: Z.shape[1]]
    r_s, r_u = y * (Z @ point.w + point.b) + xi - 1.0 - s, costs - a - u
    r_w, r_b = point.w - (y * a) @ Z, float(y @ a)

    def direct(r_sa: F64, r_xu: F64) -> Point:
        side = r_s + r_sa / a - (xi * r_u + r_xu) / u
        of_b = r_b - float(y @ (weights * side))
        right = -r_w - (y * weights * side) @ Z - mean * of_b
        dw = solve_triangular(R, solve_triangular(R, right, trans=1, check_finite=False), check_finite=False)
        db = of_b / total - float(mean @ dw)
        da = -weights * (side + y * (Z @ dw + db))
        du = r_u - da
        return Point(dw, db, -(r_sa + s * da) / a, da, -(xi * du + r_xu) / u, du)

    mu, predicted = _measure(point), direct(s * a, xi * u)
    after = _measure(_move(point, predicted, _find_length(point, predicted)))
    center, most = mu * (after / mu) ** 3, MOST_SECOND_ORDER * mu
    of_s, of_xi = np.clip(predicted.s * predicted.a, -most, most), np.clip(predicted.xi * predicted.u, -most, most)
    return direct(s * a + of_s - center, xi * u + of_xi - center)


def _measure(point: Point) -> float:
    """Return mu."""
    return float(point.s @ point.a + point.xi @ point.u) / (2 * len(point.s))


def _find_length(point: Point, step: Point) -> float:
    """Return the longest step, of 1 at most, that leaves every variable of a row at 0 or above."""
    falls = max(float(np.max(-change / value)) for value, change in zip(point[2:], step[2:], strict=True))
    return min(1.0, 1.0 / falls) if falls > 0 else 1.0


def _move(point: Point, step: Point, length: float) -> Point:
    return Point(
        point.w + length * step.w, point.b + length * step.b, point.s + length * step.s, point.a + length * step.a,
        point.xi + length * step.xi, point.u + length * step.u,
    )  # fmt: skip


def _choose_multipliers(Z: F64, y: F64, costs: F64, point: Point) -> F64:
    """Return multipliers on their bounds where the path ends there, and the others such that Z'Ya is w."""
    alpha = np.clip(point.a, 0.0, costs)
    size = np.minimum(costs, np.max(point.a))  # with it multipliers compare with slacks, which are of the order of 1
    alpha[point.a / size < point.s] = 0.0
    full = point.u / size < point.xi
    alpha[full] = costs[full]
    inner = np.flatnonzero((alpha > 0) & (alpha < costs))
    if len(inner):
        columns = np.column_stack((Z[inner], np.full(len(inner), float(np.max(np.abs(Z[inner]), initial=0.0)) or 1.0)))
        for _ in range(CORRECTIONS):
            lacking = np.append(point.w - (y * alpha) @ Z, -columns[0, -1] * float(y @ alpha))
            change = y[inner] * lstsq(columns.T, lacking, check_finite=False, lapack_driver="gelsy")[0]
            alpha[inner] = np.clip(alpha[inner] + change, 0.0, costs[inner])
    restore_balance(y, alpha, costs, np.empty(0))
    return alpha
