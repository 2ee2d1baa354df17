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

Where the multipliers of both sides have fixed sums (nu-SVC, fixed_sums.py), each side has a bias of its own, and y_i is
one of the columns G (n, 2), which tell the sides apart, in place of e: G'Ya = g with g = (N/2, -N/2). A point q with
G'Yq = g is taken off a, and Z'Yq off w, so that the equations are those of g = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq, qr
from scipy.linalg.lapack import dpstrf

from streamsvm import deadline, interrupts
from streamsvm.methods.decomposition.balance import restore_balance
from streamsvm.numeric.certificates import Certificate, certify
from streamsvm.numeric.fixed_sum_certificates import FixedSum, certify_sums
from streamsvm.numeric.nu_tube_certificates import certify_nu_tube
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.row_qr import RowQR
from streamsvm.numeric.rows import F64

MOST_STEPS = 150
MOST_IDLE_STEPS = 15  # steps in a row with neither a smaller gap nor half of mu: rounding is the limit
BOUNDARY_SHARE = 0.995  # a step goes this share of the way to the boundary
MOST_SECOND_ORDER = 3.0  # the largest second-order term of the corrector, in units of mu
MOST_CORRECTIONS = 3  # of w - Z'Ya


class Equations(NamedTuple):
    """The rows z_i, Z (n, r), y, C and the corners (n,), the groups G (n, p), 0 or 1, and their sums g (p,)."""

    Z: F64
    y: F64
    costs: F64
    corners: F64
    groups: F64
    sums: F64

    def of_rows(self, rows: NDArray[np.bool_]) -> Equations:
        """Return the equations of these rows."""
        Z, y, costs, corners, groups, sums = self
        return Equations(Z[rows], y[rows], costs[rows], corners[rows], groups[rows], sums)

    def find_point(self) -> F64:
        """Return q (n,) with G'Yq = g: equal shares of the costs of a group."""
        shares = self.sums / (self.costs @ self.groups)
        point: F64 = self.y * self.costs * (self.groups @ shares)
        return point

    def certify(self, alpha: F64) -> Certificate:
        """Evaluate the objective and its bound."""
        f = self.Z @ ((self.y * alpha) @ self.Z)
        if len(self.sums) == 1:
            return certify(self.y, self.costs, alpha, f, None, self.corners)
        if np.any(self.corners):  # of nu-SVR, whose rows are there once for each side
            n, moved = len(f) // 2, np.subtract(*np.split(alpha, 2))
            about = self.costs[:n], np.abs(moved), f[:n], self.corners[:n]
            return certify_nu_tube(np.where(moved < 0, -1.0, 1.0), *about, float(np.sum(np.abs(self.sums))))
        sums = [FixedSum(np.flatnonzero(group), abs(g)) for group, g in zip(self.groups.T, self.sums, strict=True)]
        return certify_sums(self.costs, alpha, self.y * f, sums)

    def restore_sums(self, alpha: F64) -> None:
        """Change single multipliers in place until G'Ya = g, but for rounding."""
        for group, g in zip(self.groups.T, self.sums.tolist(), strict=True):
            rows = np.flatnonzero(group)
            own = alpha[rows]
            restore_balance(self.y[rows], own, self.costs[rows], np.array([-g]))
            alpha[rows] = own


class Point(NamedTuple):
    """A point near the central path: w (r,), b (p,), and the rows' s, multipliers a, losses xi and u = C - a (n,).

    s are the surpluses of the rows. A direction has the same fields.
    """

    w: F64
    b: F64
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
    if len(np.unique(y[costs > 0])) < 2:
        return np.zeros(len(y))  # with one class, y'a = 0 leaves a = 0 alone
    corners = y if corners is None else corners
    return _follow_path(Equations(_drop_columns(Z), y, costs, corners, np.ones((len(y), 1)), np.zeros(1)), tol)


def solve_sides_in_factor(
    Z: F64, y: F64, costs: F64, tol: float, totals: Sequence[float], corners: F64 | None = None
) -> F64:
    """Return multipliers a (n,), 0 <= a <= C, those of y = +1 and of y = -1 with these sums, as `solve_in_factor` does.

    corners: those of nu-SVR, whose rows are there twice, above and below; or None for 0, where rows are scaled such
    that the scores y_i (w.z_i) are about 1 at most.
    """
    total, size = float(np.sum(totals)), float(np.max(np.sum(Z * Z, axis=1), initial=0.0)) or 1.0
    groups = np.stack((y > 0, y < 0), axis=1).astype(np.float64)
    sums = np.array([1.0, -1.0]) * totals
    if corners is not None:
        return _follow_path(Equations(_drop_columns(Z), y, costs, corners, groups, sums), tol)
    sums = sums / total
    about = Equations(_drop_columns(Z) / np.sqrt(size), y, costs / total, np.zeros(len(y)), groups, sums)
    return total * _follow_path(about, tol)


def _follow_path(problem: Equations, tol: float) -> F64:
    """Return the multipliers of the least gap on the path, (n,)."""
    used, alpha = problem.costs > 0, np.zeros(len(problem.y))
    least_gap, least_mu, idle, problem = np.inf, np.inf, 0, problem.of_rows(used)
    half, two = problem.costs / 2, np.full(len(problem.y), 2.0)
    point = Point(w=np.zeros(problem.Z.shape[1]), b=np.zeros(len(problem.sums)), s=two, a=half, xi=two, u=half)
    with np.errstate(all="ignore"):
        for _ in range(MOST_STEPS):
            interrupts.check()
            try:
                step = _find_step(problem, point)
            except np.linalg.LinAlgError:
                break
            if not all(np.all(np.isfinite(part)) for part in step):
                break
            point = _move(point, step, min(1.0, BOUNDARY_SHARE * _find_length(point, step)))
            found = _choose_multipliers(problem, point)
            certificate, mu = problem.certify(found), _compute_mu(point)
            gap = certificate.objective - certificate.lower_bound
            idle = 0 if gap < least_gap or mu < least_mu / 2 else idle + 1
            least_mu = min(mu, least_mu)
            if gap < least_gap:
                least_gap, alpha[used] = gap, found
            is_over = idle == MOST_IDLE_STEPS or deadline.is_over()
            if gap <= tol * certificate.objective or is_over or not mu > 0.0:
                break
    return alpha


def _drop_columns(Z: F64) -> F64:
    """Return Z, or if its rows are longer than n an (n, n) matrix whose rows have the same products with each other."""
    if Z.shape[1] <= len(Z):
        return Z
    R: F64 = qr(Z.T, mode="r", check_finite=False)[0][: len(Z)]
    return np.ascontiguousarray(R.T)


def _find_step(problem: Equations, point: Point) -> Point:
    """Return Mehrotra's direction; LinAlgError if the equations are singular to rounding."""
    Z, y, groups, s, a, xi, u = problem.Z, problem.y, problem.groups, point.s, point.a, point.xi, point.u
    rank, q = Z.shape[1], problem.find_point()
    weights = 1.0 / (s / a + xi / u)  # the diagonal of W
    roots = np.sqrt(weights)
    stacked = np.vstack((roots[:, None] * np.column_stack((Z, groups)), np.eye(rank, rank + len(point.b))))
    if not np.all(np.isfinite(stacked)):
        raise np.linalg.LinAlgError("the equations hold numbers that are not finite")
    equations = RowQR(stacked)
    r_s = y * (Z @ point.w + groups @ point.b) + xi - y * problem.corners - s
    r_u, w_left = problem.costs - a - u, point.w - (y * q) @ Z

    def find_direction(r_sa: F64, r_xu: F64) -> Point:
        r = r_s + r_sa / a - (xi * r_u + r_xu) / u
        found = equations.solve(-np.concatenate((roots * (y * (r - (a - q) / weights)), w_left)))
        dw, db = found[:rank], found[rank:]
        da = -weights * (r + y * (Z @ dw + groups @ db))
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


def _choose_multipliers(problem: Equations, point: Point) -> F64:
    """Return multipliers that are on a bound if the path ends there; the others are chosen such that Z'Ya = w."""
    Z, y, costs, groups = problem.Z, problem.y, problem.costs, problem.groups
    alpha = np.clip(point.a, 0.0, costs)
    scale = np.minimum(costs, np.max(point.a))  # of the multipliers; s and xi are of the order of 1
    alpha[point.a / scale < point.s] = 0.0
    at_cost = point.u / scale < point.xi
    alpha[at_cost] = costs[at_cost]
    free = np.flatnonzero((alpha > 0) & (alpha < costs))
    if len(free):
        # last columns, as large as Z, make G'Ya = g equations of the least-squares problem
        weight = float(np.max(np.abs(Z[free]), initial=0.0)) or 1.0
        columns = np.column_stack((Z[free], weight * groups[free]))
        for _ in range(MOST_CORRECTIONS):
            lacking = weight * (problem.sums - (y * alpha) @ groups)
            residual = np.concatenate((point.w - (y * alpha) @ Z, lacking))
            change = y[free] * lstsq(columns.T, residual, check_finite=False, lapack_driver="gelsy")[0]
            alpha[free] = np.clip(alpha[free] + change, 0.0, costs[free])
    problem.restore_sums(alpha)
    return alpha
