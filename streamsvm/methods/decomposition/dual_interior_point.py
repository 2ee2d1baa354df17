"""The dual of a kernel SVM of few rows, by an interior-point method in a factor of K (Fine & Scheinberg 2001, JMLR 2).

With K = Z Z' the multipliers enter through w = Z'Ya alone, and the primal and the dual are those of a linear SVM whose
rows are z_i, the rows of Z (Y = diag(y), e = the vector of ones):

    min 1/2 |w|^2 + sum_i C_i xi_i   s.t.   y_i (w.z_i + b) + xi_i - 1 = s_i,   s_i >= 0, xi_i >= 0
    w = Z'Ya,  y'a = 0,  a + u = C,     on the central path    s_i a_i = xi_i u_i = mu

Newton's equations for (w, b), in which r_s and r_u are the residuals of the equations of s and u above, r_sa and r_xu
the residuals of the complementarities, and W = diag(1 / (s/a + xi/u)), belong to a least-squares problem,

    min_{dw, db}  1/2 |w + dw|^2 + 1/2 sum_i W_i (y_i (z_i.dw + db) + r_i - a_i / W_i)^2
    r = r_s + r_sa / a - (xi r_u + r_xu) / u

which is solved by a QR factorisation of the rows W_i^1/2 (z_i, 1) and of the identity (numeric.row_qr). The product
Z'WZ is never formed: where C |z|^2 is 1e15, it has no correct digits left; pair steps fail on K for the same reason. At
the end the multipliers between their bounds are corrected until w = Z'Ya. The predictor and the corrector are those of
Mehrotra (1992).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lstsq, qr
from scipy.linalg.lapack import dpstrf

from streamsvm import interrupts
from streamsvm.methods.decomposition.balance import restore_balance
from streamsvm.numeric.certificates import certify
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.row_qr import RowQR
from streamsvm.numeric.rows import F64

MOST_STEPS = 150
MOST_IDLE_STEPS = 15  # steps in a row with neither a smaller gap nor half of mu: rounding is the limit
BOUNDARY_SHARE = 0.995  # a step goes this share of the way to the boundary
MOST_SECOND_ORDER = 3.0  # the largest second-order term of the corrector, in units of mu
MOST_CORRECTIONS = 3  # of w - Z'Ya


class Point(NamedTuple):
    """A point near the central path: w (r,), b, and the rows' surpluses s, multipliers a, losses xi and u = C - a (n,).

    A direction has the same fields.
    """

    w: F64
    b: float
    s: F64
    a: F64
    xi: F64
    u: F64


def factor_kernel(K: F64) -> F64:
    """Return Z (n, r) with K = Z Z' to rounding, by a pivoted Cholesky factorisation; r is the numerical rank of K.

    The diagonal is scaled to 1 before. So the error of k_ij is a share of sqrt(k_ii k_jj), and not of the largest k_ii.
    """
    scale = np.sqrt(np.diagonal(K))
    scale = np.where(scale > 0.0, scale, 1.0)
    L, order, rank, _ = dpstrf(np.asfortranarray(K / scale[:, None] / scale), lower=1, tol=len(K) * UNIT)
    Z = np.zeros((len(K), rank))
    Z[order - 1] = np.tril(L)[:, :rank]
    return scale[:, None] * Z


def solve_in_factor(Z: F64, y: F64, costs: F64, tol: float, corners: F64 | None = None) -> F64:
    """Return multipliers a (n,), 0 <= a <= C and y'a = 0, whose relative gap is at most tol or as small as it becomes.

    Z (n, r): float64, finite; y (n,): -1 or +1; costs (n,): C_i >= 0; tol: bound of (P - D) / P. Equal input gives
    equal bits. corners (n,): y, if they are None; the largest |c_i| is expected to be about 1.
    """
    used, corners = costs > 0, y if corners is None else corners
    least_gap, least_mu, idle, alpha = np.inf, np.inf, 0, np.zeros(len(y))
    if len(np.unique(y[used])) < 2:
        return alpha  # with one class, y'a = 0 leaves a = 0 alone
    Z, y, costs, corners = (Z if Z.shape[1] <= len(Z) else _drop_columns(Z))[used], y[used], costs[used], corners[used]
    half, two = costs / 2, np.full(len(y), 2.0)
    point = Point(w=np.zeros(Z.shape[1]), b=0.0, s=two, a=half, xi=two, u=half)
    with np.errstate(all="ignore"):
        for _ in range(MOST_STEPS):
            interrupts.check()
            try:
                step = _find_step(Z, y, costs, corners, point)
            except np.linalg.LinAlgError:
                break
            if not all(np.all(np.isfinite(part)) for part in step):
                break
            point = _move(point, step, min(1.0, BOUNDARY_SHARE * _find_length(point, step)))
            found = _choose_multipliers(Z, y, costs, point)
            certificate, mu = certify(y, costs, found, Z @ ((y * found) @ Z), None, corners), _compute_mu(point)
            gap = certificate.objective - certificate.lower_bound
            idle = 0 if gap < least_gap or mu < least_mu / 2 else idle + 1
            least_mu = min(mu, least_mu)
            if gap < least_gap:
                least_gap, alpha[used] = gap, found
            if gap <= tol * certificate.objective or idle == MOST_IDLE_STEPS or not mu > 0.0:
                break
    return alpha


def _drop_columns(Z: F64) -> F64:
    """Return an (n, n) matrix whose rows have the same products with each other as the longer rows of Z."""
    R: F64 = qr(Z.T, mode="r", check_finite=False)[0][: len(Z)]
    return np.ascontiguousarray(R.T)


def _find_step(Z: F64, y: F64, costs: F64, corners: F64, point: Point) -> Point:
    """Return Mehrotra's direction; LinAlgError if the equations are singular to rounding."""
    s, a, xi, u = point.s, point.a, point.xi, point.u
    weights = 1.0 / (s / a + xi / u)  # the diagonal of W
    roots = np.sqrt(weights)
    stacked = np.vstack((roots[:, None] * np.column_stack((Z, np.ones(len(Z)))), np.eye(Z.shape[1], Z.shape[1] + 1)))
    if not np.all(np.isfinite(stacked)):
        raise np.linalg.LinAlgError("the equations hold numbers that are not finite")
    equations = RowQR(stacked)
    r_s, r_u = y * (Z @ point.w + point.b) + xi - y * corners - s, costs - a - u

    def find_direction(r_sa: F64, r_xu: F64) -> Point:
        r = r_s + r_sa / a - (xi * r_u + r_xu) / u
        found = equations.solve(-np.concatenate((roots * (y * (r - a / weights)), point.w)))
        dw, db = found[:-1], float(found[-1])
        da = -weights * (r + y * (Z @ dw + db))
        du = r_u - da
        return Point(w=dw, b=db, s=-(r_sa + s * da) / a, a=da, xi=-(xi * du + r_xu) / u, u=du)

    mu, predicted = _compute_mu(point), find_direction(s * a, xi * u)
    predicted_mu = _compute_mu(_move(point, predicted, _find_length(point, predicted)))
    target, most = mu * (predicted_mu / mu) ** 3, MOST_SECOND_ORDER * mu
    second_sa = np.clip(predicted.s * predicted.a, -most, most)
    second_xu = np.clip(predicted.xi * predicted.u, -most, most)
    return find_direction(s * a + second_sa - target, xi * u + second_xu - target)


def _compute_mu(point: Point) -> float:
    """Return the mean of all s_i a_i and xi_i u_i."""
    return float(point.s @ point.a + point.xi @ point.u) / (2 * len(point.s))


def _find_length(point: Point, step: Point) -> float:
    """Return the longest step length, at most 1, that keeps every s_i, a_i, xi_i and u_i at 0 or above."""
    pairs = ((point.s, step.s), (point.a, step.a), (point.xi, step.xi), (point.u, step.u))
    fastest_fall = max(float(np.max(-change / value)) for value, change in pairs)
    return min(1.0, 1.0 / fastest_fall) if fastest_fall > 0 else 1.0


def _move(point: Point, step: Point, length: float) -> Point:
    """Return the point that lies `length` steps further on."""
    return Point(
        w=point.w + length * step.w,
        b=point.b + length * step.b,
        s=point.s + length * step.s,
        a=point.a + length * step.a,
        xi=point.xi + length * step.xi,
        u=point.u + length * step.u,
    )


def _choose_multipliers(Z: F64, y: F64, costs: F64, point: Point) -> F64:
    """Return multipliers that are on a bound if the path ends there; the others are chosen such that Z'Ya = w."""
    alpha = np.clip(point.a, 0.0, costs)
    scale = np.minimum(costs, np.max(point.a))  # of the multipliers; s and xi are of the order of 1
    alpha[point.a / scale < point.s] = 0.0
    at_cost = point.u / scale < point.xi
    alpha[at_cost] = costs[at_cost]
    free = np.flatnonzero((alpha > 0) & (alpha < costs))
    if len(free):
        # a last column, as large as Z, makes y'a = 0 an equation of the least-squares problem
        weight = float(np.max(np.abs(Z[free]), initial=0.0)) or 1.0
        columns = np.column_stack((Z[free], np.full(len(free), weight)))
        for _ in range(MOST_CORRECTIONS):
            residual = np.append(point.w - (y * alpha) @ Z, -weight * float(y @ alpha))
            change = y[free] * lstsq(columns.T, residual, check_finite=False, lapack_driver="gelsy")[0]
            alpha[free] = np.clip(alpha[free] + change, 0.0, costs[free])
    restore_balance(y, alpha, costs, np.empty(0))
    return alpha
