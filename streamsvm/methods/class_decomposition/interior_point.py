"""All shares of a working set at once, by an interior-point method (Mehrotra 1992).

Sweeps over single rows are slow where rows are nearly parallel, or where C k_ii is large. Row i divides C_i among the
classes: x_ik = C_i c_ik for k != y_i, and its own class has the rest. Then alpha_iy is the sum of x_ik over the other
classes, alpha_ik = -x_ik, and the optimum of the working set is the limit mu -> 0 of

    x_ik z_ik = mu,   z_ik = t_i - F_ik + [k = y_i] > 0,   x_ik > 0,   sum_k x_ik = C_i

with one multiplier t_i for each row. Newton's equations are those of K classes that share the changes of t,

    dX_k = E_k (r_k - dt),   (sum_k E_k) dt = sum_k E_k r_k - (C - sum_k X_k),   E_k = (K + diag(z_k / x_k))^-1

so that a step takes K Cholesky factors of the size of the working set (Rasmussen & Williams 2006, algorithm 3.3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv, dtrtri

from streamsvm import deadline, interrupts
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, I32, Values

MOST_PRODUCTS = 4e8  # of numbers in a step
MOST_STEPS = 100
MOST_IDLE_STEPS, LEAST_FALL = 8, 0.9  # idle: steps in a row that leave more than this share of the gap
REFINEMENTS = 3  # of a direction, since the equations lose digits where K is nearly singular
BOUNDARY_SHARE = 0.995  # a step goes this share of the way to the boundary
MOST_SECOND_ORDER = 3.0  # the largest second-order term of the corrector, in units of mu
GAP_SHARE = 1e-9  # the gap of a solved working set, as a share of the sum of C_i s_i


class Equations(NamedTuple):
    """K (q, q), C (q,), which class is each row's own (classes, q), and F - [k = y_i] without the working set."""

    K: F64
    C: F64
    own: NDArray[np.bool_]
    outside: F64

    def multiply(self, X: F64) -> F64:
        """Return the multipliers of X; that of the own class does not come from C less x, which may lose its digits."""
        return np.where(self.own, np.sum(X, axis=0, where=~self.own), -X)


class Point(NamedTuple):
    """X and Z (classes, q), and t (q,). A direction has the same fields."""

    X: F64
    Z: F64
    t: F64


def count_jump_rows(n_classes: int) -> int:
    """Return the most rows of a working set with which a step takes well under a second."""
    return int((MOST_PRODUCTS / n_classes) ** (1 / 3))


def solve_by_interior_point(K: Values, y: I32, costs: F64, share: F64, F: F64) -> F64:
    """Return the shares (q, classes) of the least gap. K: (q, q); F (classes, q): the sums at `share`."""
    used = np.flatnonzero(costs > 0.0)
    kernel, own, C = K[np.ix_(used, used)].astype(np.float64), np.equal.outer(np.arange(len(F)), y[used]), costs[used]
    problem = Equations(kernel, C, own, np.zeros_like(own, np.float64))
    problem = problem._replace(outside=F[:, used] - own - problem.multiply(C * share[used].T) @ kernel)
    found, solved = _follow_path(problem) / C, share.copy()
    solved[used] = np.where(own, np.minimum(np.sum(found, axis=0, where=~own), 1.0), found).T
    return solved


def _follow_path(problem: Equations) -> F64:
    """Return X at the least gap on the path."""
    K, C, own, outside = problem
    X: F64 = np.repeat(C[None] / len(own), len(own), axis=0)
    lead = outside + problem.multiply(X) @ K
    mu = float(np.max(C * np.maximum(np.ptp(lead, axis=0), 1.0))) / len(own)
    t = np.max(lead, axis=0) + mu / X[0]
    point, best, least_gap, idle = Point(X, t - lead, t), X, np.inf, 0
    with np.errstate(all="ignore"):
        for _ in range(MOST_STEPS):
            interrupts.check()
            step = _find_step(problem, point)
            if step is None or deadline.is_over():
                break
            length = _find_length(point, step)
            point = Point(*(old + length * change for old, change in zip(point, step, strict=True)))
            gap = float(np.sum(point.X * point.Z))
            idle = 0 if gap < LEAST_FALL * least_gap else idle + 1
            if gap < least_gap:
                least_gap, best = gap, point.X
            if idle == MOST_IDLE_STEPS or gap <= GAP_SHARE * float(np.sum(problem.multiply(point.X)[own])):
                break
    return best


def _find_step(problem: Equations, point: Point) -> Point | None:
    """Return Mehrotra's direction, or None if the equations are singular to rounding."""
    (K, C, _, outside), (X, Z, t) = problem, point
    weights, r_z = X / Z, Z - t + outside + problem.multiply(X) @ K
    roots = np.sqrt(weights)
    scaled = roots[:, :, None] * K * roots[:, None]
    try:
        factors = np.linalg.cholesky(scaled + np.eye(len(C)) * (1.0 + len(C) * UNIT * scaled))
    except np.linalg.LinAlgError:
        return None
    S = np.stack([dtrtri(factor, lower=1)[0] for factor in factors]) * roots[:, None]  # E_k = S_k' S_k
    total, left = np.tensordot(S, S, ((0, 1), (0, 1))), C - np.sum(X, axis=0)

    def multiply(values: F64) -> F64:
        """Return E_k times the values of each class."""
        product: F64 = (np.swapaxes(S, 1, 2) @ (S @ values[:, :, None]))[:, :, 0]
        return product

    def find_direction(products: F64) -> Point:
        """Return the direction in which x_ik z_ik changes by `products`."""
        wanted, dX, dt = products / X + r_z, np.zeros_like(X), np.zeros(len(C))
        for _ in range(REFINEMENTS):
            lacking = wanted - dt - dX / weights + problem.multiply(dX) @ K
            more = dposv(total, np.sum(multiply(lacking) + dX, axis=0) - left)[1]
            dX, dt = dX + multiply(lacking - more), dt + more
            dX += weights / np.sum(weights, axis=0) * (left - np.sum(dX, axis=0))
        return Point(dX, dt - problem.multiply(dX) @ K - r_z, dt)

    mu, predicted = float(np.mean(X * Z)), find_direction(-X * Z)
    length, most = _find_length(point, predicted), MOST_SECOND_ORDER * mu
    target = mu * (float(np.mean((X + length * predicted.X) * (Z + length * predicted.Z))) / mu) ** 3
    found = find_direction(target - X * Z - np.clip(predicted.X * predicted.Z, -most, most))
    return found if all(np.all(np.isfinite(part)) for part in found) else None


def _find_length(point: Point, step: Point) -> float:
    """Return the length, at most 1, at which x_ik and z_ik stay positive."""
    fastest = max(float(np.max(-step.X / point.X)), float(np.max(-step.Z / point.Z)))
    return min(1.0, BOUNDARY_SHARE / fastest) if fastest > 0.0 else 1.0
