"""Steps in which all rows are active: solve in memory until the requested gap is proved.

    repeat: improve the active set until its gap seems small enough
            recompute f in float64, and from it P and D with bounds of their rounding errors
    until P and D prove the gap

f is recomputed in float64 where it enters P or D: in rows with a nonzero multiplier, and in rows that may have a loss,
given the error of their float32 sum. Kernel columns stay in the cache until the end.

Where multipliers are large and w is small, only sums in twice the precision can prove optimality. Such sums are
available for kernels of the form

    g = gamma x.z + coef0,   k = g^p        p = 1, gamma = 1, coef0 = 0 for the linear kernel

Products and powers are pairs of float64 numbers (numeric.rounding), and the sum f_i = sum_c coef_c k(x_i, z_c) is
rounded once (math.fsum). The error of f_i is its own rounding plus u^2 times the magnitude of its terms (u = 2^-53).

A proof is useful only if others can check it by evaluating the model. The bound therefore also covers an evaluation
that sums the m columns of d features in long double arithmetic, whose unit roundoff is v = 2^-64:

    |f_i| u + (m + d + 4 p + 1) v sum_c |coef_c| (gamma |x_i| |z_c| + |coef0|)^p

Problems with few rows can also be solved by an interior-point method on a factor of K (Fine & Scheinberg 2001, JMLR 2).

With K = Z Z' the multipliers enter only through w = Z'Ya, and the problem is that of a linear SVM on the rows z_i of Z
(Y = diag(y), e = the vector of ones):

    min 1/2 |w|^2 + sum_i C_i xi_i   s.t.   y_i (w.z_i + b) + xi_i - 1 = s_i,   s_i >= 0, xi_i >= 0
    w = Z'Ya,  y'a = 0,  a + u = C,     on the central path    s_i a_i = xi_i u_i = mu

Let r_s and r_u be the residuals of the equations of s and u above, r_sa and r_xu the residuals of the two
complementarity conditions, and W = diag(1 / (s/a + xi/u)). Newton's equations for (w, b) are then those of the
least-squares problem

    min_{dw, db}  1/2 |w + dw|^2 + 1/2 sum_i W_i (y_i (z_i.dw + db) + r_i - a_i / W_i)^2
    r = r_s + r_sa / a - (xi r_u + r_xu) / u

which is solved by a QR factorisation of the rows W_i^1/2 (z_i, 1) and of the identity (numeric.equations). The product
Z'WZ is never formed: where C |z|^2 is 1e15, it has no correct digits left; pair steps fail on K for the same reason. At
the end, multipliers strictly between their bounds are corrected until w = Z'Ya. The predictor and the corrector are
those of Mehrotra (1992).

If the multipliers of each side have a fixed sum (nu-SVC, hinges.py), each side has its own bias, and e is replaced by
the columns G (n, 2), which indicate the side of each row: G'Ya = g with g = (N/2, -N/2). A point q with G'Yq = g is
subtracted from a, and Z'Yq from w, which leaves the equations for g = 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from scipy.linalg import lstsq, qr
from scipy.linalg.lapack import dpstrf

from streamsvm.certificates import kernel as certificates
from streamsvm.certificates.kernel import Certificate, FixedSum, Proof
from streamsvm.kernels import kernel as kernels
from streamsvm.kernels import precomputed
from streamsvm.kernels.feature_maps import measure_diagonal
from streamsvm.kernels.kernel import Kernel
from streamsvm.kernels.values import FAINT
from streamsvm.numeric.equations import BOUNDARY_SHARE, MOST_SECOND_ORDER, RowQR, find_length, move
from streamsvm.numeric.rounding import UNIT, add_two, multiply_two
from streamsvm.numeric.rows import F64, I64, CsrRows, Flags, Matrix, take_rows, to_dense
from streamsvm.solvers.decomposition.active_set import MOST_ROUNDS, ActiveSet, ColumnCache, Rounds, fill, improve
from streamsvm.solvers.decomposition.hinges import Hinges
from streamsvm.solvers.decomposition.working_set import restore_balance
from streamsvm.system import deadline, interrupts

MOST_STEPS = 150
MOST_IDLE_STEPS = 15  # the method ends after this many steps in a row in which neither the gap fell nor mu halved
MOST_CORRECTIONS = 3  # corrections of the multipliers, each of which reduces w - Z'Ya


class Equations(NamedTuple):
    """The constants of the problem.

    Z (n, r): the factor of K. y, costs, corners (n,): labels, costs C and corners. groups (n, p): the columns of G, 0
    or 1. sums (p,): the fixed sums g.
    """

    Z: F64
    y: F64
    costs: F64
    corners: F64
    groups: F64
    sums: F64

    def of_rows(self, rows: Flags) -> Equations:
        """Return the problem restricted to these rows."""
        return Equations._make((*(each[rows] for each in self[:-1]), self.sums))

    def find_point(self) -> F64:
        """Return q (n,) with G'Yq = g, where |q_i| / C_i is the same for all rows of a group (a column of G)."""
        shares = self.sums / (self.costs @ self.groups)
        return np.asarray(self.y * self.costs * (self.groups @ shares))

    def certify(self, alpha: F64) -> Certificate:
        """Return the certificate of the multipliers alpha (n,): the objective and its lower bound."""
        f = self.Z @ ((self.y * alpha) @ self.Z)
        if len(self.sums) == 1:
            return certificates.certify(self.y, self.costs, alpha, f, None, self.corners)
        if np.any(self.corners):  # nu-SVR, with every row once per side
            n, moved = len(f) // 2, np.subtract(*np.split(alpha, 2))
            about = np.where(moved < 0, -1.0, 1.0), self.costs[:n], np.abs(moved), f[:n], self.corners[:n]
            return certificates.certify_nu_tube(*about, float(np.sum(np.abs(self.sums))))
        sums = [FixedSum(np.flatnonzero(group), abs(g)) for group, g in zip(self.groups.T, self.sums, strict=True)]
        return certificates.certify_sums(self.costs, alpha, self.y * f, sums)

    def restore_sums(self, alpha: F64) -> None:
        """Change single multipliers in place until G'Ya = g to rounding."""
        for group, g in zip(self.groups.T, self.sums.tolist(), strict=True):
            rows = np.flatnonzero(group)
            own = alpha[rows]
            restore_balance(self.y[rows], own, self.costs[rows], np.array([-g]))
            alpha[rows] = own


class Point(NamedTuple):
    """A point near the central path, or a direction.

    w (r,), b (p,): the weights and biases. s: the surpluses of the rows. a: the multipliers. xi: the losses. u: C - a.
    The last four are (n,) each.
    """

    w: F64
    b: F64
    s: F64
    a: F64
    xi: F64
    u: F64


def factor_kernel(K: F64) -> F64:
    """Return Z (n, r) with K = Z Z' to rounding, by a pivoted Cholesky factorisation; r is the numerical rank of K.

    K is first scaled to a unit diagonal, so that the error of k_ij is relative to sqrt(k_ii k_jj), not to max k_ii.
    """
    scale = np.sqrt(np.diagonal(K))
    scale = np.where(scale > 0.0, scale, 1.0)
    L, order, rank, _ = dpstrf(np.asfortranarray(K / scale[:, None] / scale), lower=1, tol=len(K) * UNIT)
    Z = np.zeros((len(K), rank))
    Z[order - 1] = np.tril(L)[:, :rank]
    return scale[:, None] * Z


def solve_in_factor(
    Z: F64, y: F64, costs: F64, tol: float, corners: F64 | None = None, totals: Sequence[float] | None = None
) -> F64:
    """Return multipliers a (n,), 0 <= a <= C, whose relative gap is at most tol, or as small as can be reached.

    Either y'a = 0, or the multipliers with y = +1 and with y = -1 have the sums `totals`.
    Z (n, r): float64, finite. y (n,): -1 or +1. costs (n,): C_i >= 0. tol: the bound of (P - D) / P. corners (n,): the
    largest |c_i| should be about 1; nu-SVR has each row twice, above and below its target. By default the corners are
    y, or 0 if there are totals (the rows are then scaled so that scores y_i (w.z_i) are at most about 1). Equal input
    gives equal bits.
    """
    if totals is None and len(np.unique(y[costs > 0])) < 2:
        return np.zeros(len(y))  # with one class, y'a = 0 allows only a = 0
    rows, groups, sums = _drop_columns(Z), np.ones((len(y), 1)), np.zeros(1)
    if totals is not None:
        groups = np.stack((y > 0, y < 0), axis=1).astype(np.float64)
        sums = np.array([1.0, -1.0]) * totals
    if totals is None or corners is not None:
        return _follow_path(Equations(rows, y, costs, y if corners is None else corners, groups, sums), tol)
    total, size = float(np.sum(totals)), float(np.max(np.sum(Z * Z, axis=1), initial=0.0)) or 1.0
    about = Equations(rows / np.sqrt(size), y, costs / total, np.zeros(len(y)), groups, sums / total)
    return total * _follow_path(about, tol)


def _follow_path(problem: Equations, tol: float) -> F64:
    """Follow the central path; return the multipliers with the least gap found, (n,)."""
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
            point = move(point, step, min(1.0, BOUNDARY_SHARE * find_length(point[2:], step[2:])))
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
    """Return Z or, if it has more than n columns, an (n, n) matrix whose rows have the same inner products."""
    if Z.shape[1] <= len(Z):
        return Z
    R: F64 = qr(Z.T, mode="r", check_finite=False)[0][: len(Z)]
    return np.ascontiguousarray(R.T)


def _find_step(problem: Equations, point: Point) -> Point:
    """Return Mehrotra's direction; raise LinAlgError if the equations hold numbers that are not finite."""
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
    predicted_mu = _compute_mu(move(point, predicted, find_length(point[2:], predicted[2:])))
    target, most = mu * (predicted_mu / mu) ** 3, MOST_SECOND_ORDER * mu
    second_sa = np.clip(predicted.s * predicted.a, -most, most)
    second_xu = np.clip(predicted.xi * predicted.u, -most, most)
    return find_direction(s * a + second_sa - target, xi * u + second_xu - target)


def _compute_mu(point: Point) -> float:
    """Return the mean of all s_i a_i and xi_i u_i."""
    return float(point.s @ point.a + point.xi @ point.u) / (2 * len(point.s))


def _choose_multipliers(problem: Equations, point: Point) -> F64:
    """Return multipliers, (n,), near the point: some on their bounds, the others such that Z'Ya = w.

    A multiplier is put on the bound to which it seems to converge along the path.
    """
    Z, y, costs, groups = problem.Z, problem.y, problem.costs, problem.groups
    alpha = np.clip(point.a, 0.0, costs)
    scale = np.minimum(costs, np.max(point.a))  # the scale of the multipliers; s and xi are of the order of 1
    alpha[point.a / scale < point.s] = 0.0
    at_cost = point.u / scale < point.xi
    alpha[at_cost] = costs[at_cost]
    free = np.flatnonzero((alpha > 0) & (alpha < costs))
    if len(free):
        # additional columns, scaled to the magnitude of Z, add G'Ya = g to the least-squares problem
        weight = float(np.max(np.abs(Z[free]), initial=0.0)) or 1.0
        columns = np.column_stack((Z[free], weight * groups[free]))
        for _ in range(MOST_CORRECTIONS):
            lacking = weight * (problem.sums - (y * alpha) @ groups)
            residual = np.concatenate((point.w - (y * alpha) @ Z, lacking))
            change = y[free] * lstsq(columns.T, residual, check_finite=False, lapack_driver="gelsy")[0]
            alpha[free] = np.clip(alpha[free] + change, 0.0, costs[free])
    problem.restore_sums(alpha)
    return alpha


Pair = tuple[F64, F64]
EXACT_KERNELS = ("linear", "poly")
OWN_ROUNDINGS = 2
ROWS_AT_ONCE = 256  # rows whose products with all columns are held at a time
LONG_DOUBLE_UNIT = 2.0**-64
MOST_REFINEMENTS = 10
DROPPED_SHARE = 16 * UNIT  # multipliers of at most this share of the largest are the rounding of larger ones
MOST_STRETCHES = 3  # the maximum number of evaluations of f; each one after the first tests stretched multipliers
# Rows that are beyond the margin by more than this plus twice their error do not enter P. The unit is the standard
# deviation of the targets for a regression, and of the scores for fixed sums.
FAR_BEYOND = 0.1
FLOAT64_ROWS = 4096  # rows that are held in float64 at once
UNIT_32 = 2.0**-24  # half the spacing of float32 numbers, as UNIT is that of float64
SMALLEST_32 = 2.0**-126  # the smallest float32 number with all digits
LARGEST_LOSS = 0.1  # if the relative error of a power may be larger, its bound is infinite
LARGEST_EXPONENT_LOSS = 100.0  # e^100 times the least float32 value of a Gaussian kernel, e^-87, exceeds any value
MOST_PRODUCTS = 4e8  # multiplications, in a QR factorisation or in kernel values of twice the precision
NOISE_SHARE = 0.1  # if rounding exceeds this share of the violation, kernel values need more digits


def sum_exactly(kernel: Kernel, X: F64, columns: F64, coef: F64) -> tuple[F64, F64]:
    """Return f_i = sum_c coef_c k(x_i, z_c), (n,), in twice the precision, and a bound of its errors (n,).

    X (n, d) and columns (m, d) are float64; coef (m,).
    """
    linear = kernel.name == "linear"
    gamma, coef0, degree = (1.0, 0.0, 1) if linear else (kernel.gamma, kernel.coef0, kernel.degree)
    f = np.zeros(len(X))
    for at in range(0, len(X), ROWS_AT_ONCE):
        high, low = _power(_multiply_rows(X[at : at + ROWS_AT_ONCE], columns), gamma, coef0, degree)
        product, lost = multiply_two(high, coef)
        terms = np.concatenate((product, lost, low * coef), axis=1)
        f[at : at + ROWS_AT_ONCE] = [math.fsum(row) for row in terms.tolist()]
    lengths = np.outer(np.linalg.norm(X, axis=1), np.linalg.norm(columns, axis=1))
    sizes = (abs(gamma) * lengths + abs(coef0)) ** degree @ np.abs(coef)
    return f, OWN_ROUNDINGS * UNIT * np.abs(f) + (len(coef) + X.shape[1] + 4 * degree + 1) * LONG_DOUBLE_UNIT * sizes


def _multiply_rows(X: F64, columns: F64) -> Pair:
    """Return x_i.z_c as a pair of (n, m), the high and the low part."""
    high, low = np.zeros((2, len(X), len(columns)))
    for j in range(X.shape[1]):
        product, rest = multiply_two(X[:, j, None], columns[:, j])
        high, lost = add_two(high, product)
        low += lost + rest
    pair: Pair = add_two(high, low)
    return pair


def _power(products: Pair, gamma: float, coef0: float, degree: int) -> Pair:
    """Return (gamma x.z + coef0)^degree as a pair, given the products x.z as a pair."""
    product_high, product_low = products
    scaled, lost = multiply_two(product_high, gamma)
    total, rest = add_two(scaled, coef0)
    base_high, base_low = add_two(total, rest + (lost + gamma * product_low))
    power_high, power_low = base_high, base_low
    for _ in range(degree - 1):
        product, lost = multiply_two(power_high, base_high)
        power_high, power_low = add_two(product, lost + (power_high * base_low + power_low * base_high))
    return power_high, power_low


def solve_all(
    active: ActiveSet, rounds: Rounds, cache: ColumnCache, share: float, gap: float, largest: float = np.inf
) -> tuple[F64, bool, Proof | None]:
    """Improve alpha until the relative gap is proved to be at most `gap`, with f recomputed in float64.

    share: each improvement ends when the violation has fallen to this share. largest: the greatest k_ii.
    Return a bound of the errors of f, (n,), whether more precise kernel values would help, and the proof, which is None
    if f is not finite.
    """
    fill(active, rounds, cache)
    for _ in range(MOST_REFINEMENTS):
        violation = active.settle().violation
        before = active.alpha.copy()
        solved = improve(active, rounds, cache, share * violation, MOST_ROUNDS)
        _drop_rounding(active, rounds.kernel)
        active.hinges.restore_sums(np.empty(0))
        expected = active.f.copy()
        errors = form_exact_sums(active, rounds.kernel, rounds.threads)
        if not np.all(np.isfinite(active.f)):
            return errors, True, None
        left = active.settle().violation
        noisy = bool(np.max(np.abs(active.f - expected)) > NOISE_SHARE * left)
        proof = active.hinges.prove(errors, largest, gap, rounds.kernel.is_definite)
        if proof.is_within(gap) or np.array_equal(active.alpha, before):
            return errors, noisy and not proof.is_within(gap), proof
        if not solved or (noisy and kernels.type_of(active.X) == np.float32):
            break
    return errors, noisy, proof


def _drop_rounding(active: ActiveSet, kernel: Kernel) -> None:
    """Set multipliers to 0 that differ from 0 only by rounding, so that their rows are no support vectors.

    Such a multiplier is tiny beside the largest, and so is its term in the scores beside the largest term. A row with
    large kernel values may need a tiny multiplier.
    """
    alpha = active.alpha
    tiny = np.flatnonzero((alpha > 0.0) & (alpha <= DROPPED_SHARE * np.minimum(active.costs, np.max(alpha))))
    if len(tiny):
        terms = alpha * (1.0 if kernel.name == precomputed.NAME else measure_diagonal(kernel, active.X))
        alpha[tiny[np.abs(terms[tiny]) <= DROPPED_SHARE * np.max(np.abs(terms))]] = 0.0


def suits_factor(active: ActiveSet, kernel: Kernel) -> bool:
    """Return whether the kernel matrix has a factor for which an interior-point step takes well under a second.

    If the multipliers have fixed sums, each side must have a positive sum (nu-SVC and nu-SVR, but not one class).
    """
    n, d = active.X.shape
    rank = min(n, count_products(kernel, d))
    is_able = active.totals is None or min(active.totals) > 0.0
    return is_able and kernel.is_definite and max((n + rank) * rank**2, n * n * d) <= MOST_PRODUCTS


def count_products(kernel: Kernel, n_features: int) -> float:
    """Return the number of columns of the map of `map_features`, or infinity for kernels without such a map."""
    if kernel.name == "linear" or (kernel.name == "poly" and kernel.degree == 1):
        return n_features
    return math.comb(n_features + kernel.degree, kernel.degree) if kernel.name == "poly" else math.inf


def map_features(kernel: Kernel, X: F64) -> F64:
    """Return Z with K = Z Z', except for the constant of degree 1, which drops out of s'Ks since sum s = 0.

    (gamma x.z + coef0)^p is a sum over all products of p factors, each of which is a sqrt(gamma) x_j or sqrt(coef0).
    """
    if kernel.name == "linear" or kernel.degree == 1:
        return X if kernel.name == "linear" else math.sqrt(kernel.gamma) * X
    base, Z = np.column_stack((math.sqrt(kernel.gamma) * X, np.full(len(X), math.sqrt(kernel.coef0)))), []
    for chosen in combinations_with_replacement(range(base.shape[1]), kernel.degree):
        orders = math.factorial(kernel.degree) // math.prod(math.factorial(chosen.count(j)) for j in set(chosen))
        Z.append(math.sqrt(orders) * np.prod(base[:, chosen], axis=1))
    return np.stack(Z, axis=1)


def solve_by_interior_point(active: ActiveSet, kernel: Kernel, threads: int, gap: float) -> F64:
    """Replace alpha by the interior-point method's multipliers, compute f, and return a bound of its errors, (n,)."""
    rows = kernels.to_float64(active.X)
    X = np.asarray(to_dense(rows), np.float64)
    if count_products(kernel, X.shape[1]) <= max(X.shape):
        Z = map_features(kernel, X)
    else:
        Z = factor_kernel(np.asarray(kernels.compute_kernel(kernel, rows, threads), np.float64))
    if active.tube is not None:
        _solve_both_sides(active, Z, gap)
    else:
        active.alpha[:] = np.minimum(solve_in_factor(Z, active.y, active.costs, gap, None, active.totals), active.costs)
    if active.totals is not None and active.tube is None:
        active.hinges.restore_sums(np.empty(0))
    if kernel.name in EXACT_KERNELS:
        return _form_sums_exactly(active, kernel, X)
    errors = np.zeros(len(X))
    _form_sums(active, kernel, np.arange(len(X)), errors, threads)
    return errors


def _solve_both_sides(active: ActiveSet, Z: F64, gap: float) -> None:
    """Replace the sides and multipliers of a regression by the solution of the interior-point method.

    The corners are mapped to [-1, 1]: the scale is undone in the result, and the shift changes only b.
    """
    both = Hinges(active.y, active.costs, active.alpha, active.f, active.tube, None).list_both()
    low, high = float(np.min(both.corners)), float(np.max(both.corners))
    scale = (high - low) / 2 or 1.0
    corners = (both.corners - (low + scale)) / scale
    rows = np.vstack((Z, Z)), both.y, both.costs / scale, gap
    totals = None if active.totals is None else [total / scale for total in active.totals]
    found = scale * solve_in_factor(*rows, corners, totals)
    moved = np.subtract(*np.split(found, 2))
    active.y, active.alpha[:] = np.where(moved < 0, -1.0, 1.0), np.minimum(np.abs(moved), active.costs)
    active.hinges.restore_sums(np.empty(0))


def _form_sums_exactly(active: ActiveSet, kernel: Kernel, X: F64) -> F64:
    """Compute f in twice the precision; return a bound of its errors, (n,).

    The multipliers of two classes are stretched (see certificates.kernel) as long as this lowers the proved P.
    """
    y, costs, largest = active.y, active.costs, kernel.bound_values(float(np.max(np.sum(X * X, axis=1))))
    least_objective, errors, alpha = np.inf, np.empty(0), active.alpha.copy()
    for _ in range(MOST_STRETCHES):
        support = np.flatnonzero(alpha)
        f, f_errors = sum_exactly(kernel, X, X[support], (alpha * y)[support])
        proof = replace(active.hinges, alpha=alpha, f=f).prove(f_errors, largest, 0.0)
        proved_objective = proof.objective + proof.objective_error
        if not proved_objective < least_objective:
            break
        least_objective, errors, active.alpha[:], active.f[:] = proved_objective, f_errors, alpha, f
        if not active.has_labels:
            break
        alpha = np.minimum(certificates.choose_stretch(y, costs, alpha, f, f_errors, proof) * alpha, costs)
        restore_balance(y, alpha, costs, np.empty(0))
    return errors


def form_exact_sums(active: ActiveSet, kernel: Kernel, threads: int) -> F64:
    """Recompute f_i = sum_j a_j y_j k(x_i, x_j) in float64, except in rows that are certainly beyond the margin.

    Return a bound of the errors of f, (n,).
    """
    slacks, errors = active.hinges.find_slacks(), _bound_working_sums(active, kernel)
    far = FAR_BEYOND * _find_unit(active)
    near = np.flatnonzero((active.alpha > 0) | ~(slacks < -(far + 2 * errors)))
    _form_sums(active, kernel, near, errors, threads)
    if len(near) == len(errors):
        active.moved, active.additions = 0.0, 0
    active.errors[near] = errors[near]
    if len(active.terms):
        active.terms[near] = 0.0
    return errors


def bounds_by_terms(kernel: Kernel, X: Matrix) -> bool:
    """Return whether each kernel value has a small relative error, so that the errors of sums follow from their terms.

    This holds for a Gaussian kernel, and for a polynomial kernel without cancellation: neither X nor coef0 has negative
    values.
    """
    if kernel.name == "poly":
        return kernel.coef0 >= 0.0 and bool(np.min(X.data if isinstance(X, CsrRows) else X, initial=0.0) >= 0.0)
    return kernel.name == "rbf"


def _find_unit(active: ActiveSet) -> float:
    """Return the unit of the slacks: 1 for labels, else the standard deviation of the targets or of the scores."""
    if active.tube is not None:
        return float(np.std(active.tube.targets))
    return 1.0 if active.totals is None else float(np.std(active.f))


def _bound_working_sums(active: ActiveSet, kernel: Kernel) -> F64:
    """Return a bound, (n,), of the errors of f after the rounds, which updated f with kernel values in X's precision.

    The error of a kernel value of two rows with `items` stored values each is at most `unit` times `shares`. For a
    power of a sum of positive terms, the error is relative to the power, plus the digits lost below SMALLEST_32.
    """
    squares: F64 = kernels.compute_squares(active.X, np.float64).astype(np.float64, copy=False)
    longest = float(np.max(squares, initial=0.0))
    items, unit = kernels.count_items(active.X), UNIT_32 if kernels.type_of(active.X) == np.float32 else UNIT
    shares: F64
    if kernel.name == "linear":  # f is computed from w, in float64
        shares = UNIT / unit * np.sqrt(squares * longest) * (2 * items + len(squares))
    elif kernel.name == precomputed.NAME:  # values are as exact as the rows
        shares = np.full(len(squares), UNIT / unit * 2 * len(squares) * kernel.bound_values(longest))
    elif kernel.name == "rbf":
        length_items = 0 if unit == UNIT_32 else items  # the lengths of float32 rows are summed in float64
        lost = unit * ((items + length_items + 10) * kernel.gamma * (squares + longest) + 12)
        shares = 1.01 * np.expm1(np.minimum(lost, LARGEST_EXPONENT_LOSS))
        return active.errors + shares * active.terms + 3 * FAINT * active.moved + _bound_additions(active, active.terms)
    elif len(active.terms):
        of_powers = unit * kernel.degree * (items + 6)
        share = of_powers / (1 - 2 * of_powers) if of_powers < LARGEST_LOSS else np.inf
        below = SMALLEST_32 * kernel.degree * (1 + kernel.gamma * items) * max(1.0, active.largest)
        return active.errors + share * active.terms + below * active.moved + _bound_additions(active, active.terms)
    else:
        sizes = kernel.gamma * np.sqrt(squares * longest) + abs(kernel.coef0)
        degree = kernel.degree if kernel.name == "poly" else 1
        with np.errstate(over="ignore"):
            shares = 2 * (items + degree + 12) * degree * np.maximum(sizes, 1.0) ** degree
    changes = active.largest * active.moved
    return np.asarray(active.errors + unit * shares * active.moved + _bound_additions(active, changes))


def _bound_additions(active: ActiveSet, changes: F64 | float) -> F64:
    """Return a bound of the rounding error of f after the additions of the rounds, (n,).

    changes: the sum of the magnitudes of all added terms. Each intermediate sum equals f minus the terms added later,
    and is rounded once.
    """
    return np.asarray(UNIT * active.additions * (np.abs(active.f) + changes))


def _form_sums(active: ActiveSet, kernel: Kernel, rows: I64, errors: F64, threads: int) -> None:
    """Recompute f of these rows in float64, in place, and write bounds of the errors of f into `errors`, (n,)."""
    support = np.flatnonzero(active.alpha)
    columns, coef = kernels.to_float64(take_rows(active.X, support)), (active.alpha * active.y)[support]
    w = kernels.combine_rows(columns, coef) if kernel.name == "linear" else np.empty(0)
    for at in range(0, len(rows), FLOAT64_ROWS):
        interrupts.check()
        part = rows[at : at + FLOAT64_ROWS]
        X, f, f_errors = take_rows(active.X, part), np.zeros(len(part)), np.zeros(len(part))
        if len(w):
            kernels.add_linear_sums(X, w, f, threads)
            f_errors = kernels.bound_linear_sums(X, kernels.bound_combination(columns, coef))
        else:
            kernels.add_kernel_sums(kernel, X, columns, coef, f, threads, errors=f_errors)
        active.f[part], errors[part] = f, f_errors
