"""IRWLS on a working set: iterated re-weighted least squares (Pérez-Cruz et al. 2000, Table 1), made to converge.

Symbols: s_i = y_i a_i (a_i is the paper's beta_i); s0, the s of the start; c = f - K s0, the contribution of the rows
outside the working set (the paper's G_in is y_i c_i); G = sum s0 (the paper's G_bin); t_i, the corners, which are the
labels y_i or those of a regression (tube.py); r_i = y_i (t - c - K s - b)_i, the residuals (the paper's y_i e_i). The
primal of the working set's problem is

    P(s, b) = 1/2 s'Ks + G b + sum_i C_i L(r_i)                 L(r) = max(0, r), the hinge loss

Table 1 divides the rows into three sets and replaces L by a parabola on S1, with the weights 1/D_i, D_i = r_i / C_i
(eq. (8)). Rows of S2 (r_i < 0) have no loss, and rows of S3 (multiplier at C_i) have the slope C_i. With s_2 = 0 and
s_3 = y C, the minimum of that model solves eq. (3),

    [ K_11 + D   1 ] [s_1]   [ t_1 - c_1 - K_13 s_3 ]
    [ 1'         0 ] [ b ] = [ G - sum s_3          ]          by elimination, with one Cholesky factor

The plain fixed point may cycle, and its weights are unbounded as r -> 0. Three safeguards, as in the variant that
Pérez-Cruz, Bousoño-Calzón & Artés-Rodríguez (2005) prove convergent, make it converge:

* The weights are guarded: D_i >= guard / C_i. This rounds off the corner of L, which becomes r^2 / (2 guard) on
  0 < r < guard. At the minimum of the rounded P the multipliers C_i r_i / guard are feasible, and m - M <= guard. The
  guard starts at half the violation and shrinks to tol / 2.
* A step is as long as P falls, by an exact search on its line, on which P is piecewise quadratic. The model has the
  slope of P, so P always falls.
* Near the corner the fixed point is slow: r <- r a / C. After a few steps at each guard, the sets therefore follow from
  r alone (S3: r >= guard) and all weights are at their limit, which makes the step Newton's step on the rounded P.

If K has no Cholesky factor (sigmoid kernel), or if the steps run out, pair steps (`solve_by_few_pairs`) finish the
work: they always converge. Otherwise they find nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpotrs

from streamsvm.methods.decomposition.pair_updates import solve_by_few_pairs
from streamsvm.methods.decomposition.working_set import WorkingSet
from streamsvm.numeric.rows import F64

Mask = npt.NDArray[np.bool_]

MAX_STEPS = 200
PUBLISHED_STEPS = 3  # steps at each guard with the weights of Table 1, before the steps with their limit
GUARD_FACTOR = 0.05  # by which the guard is multiplied when P at this guard is minimised
LONGEST_STEP = 10.0  # in units of the step to the model's minimum: a P flat but for rounding has its minimum anywhere
JITTERS = (0.0, 1e-10, 1e-7)  # added to the diagonal, times the largest K_ii; a jitter shortens the step only


@dataclass
class _Point:
    """A point of the primal: s (q,), the products K s (q,), the bias b, and the residuals r (q,)."""

    s: F64
    products: F64
    bias: float
    residuals: F64


@dataclass
class _Sets:
    """Which rows belong to S1 (solved by the system) and to S3 (at their cost); all other rows belong to S2."""

    solved: Mask
    at_cost: Mask


@dataclass(frozen=True)
class _Primal:
    """The constants of P in the module's formulas: K in float64, y, C, t (`corners`), c (`outside`) and G (`total`)."""

    K: F64
    y: F64
    costs: F64
    corners: F64
    outside: F64
    total: float


def solve_by_irwls(problem: WorkingSet, tol: float) -> F64:
    """Return alpha (q,) of the working set with m(alpha) - M(alpha) <= tol, by IRWLS.

    tol: absolute, in units of the errors. The multipliers are feasible, y'alpha equals its value at the start to
    rounding, and F is never above its value at the start. Equal input gives equal bits. Two more (q, q) float64 arrays
    are held. The method is Table 1 of Pérez-Cruz et al. 2000 with the safeguards above.
    """
    if problem.violation() <= tol:
        return problem.alpha.copy()
    best = problem.best_towards(problem.repair(_reweight(problem, tol)))
    if not problem.objective(best) < 0.0:  # rounding has hidden the gain
        best = problem.alpha
    return solve_by_few_pairs(problem.moved_to(best), tol)


def _reweight(problem: WorkingSet, tol: float) -> F64:
    """Return multipliers near the solution, feasible to rounding unless steps run out or a factor does not exist."""
    primal, point = _start(problem)
    guard = max(tol / 2, problem.violation() / 2)
    sets, at_guard, limit = _begin_sets(primal, point), 0, False
    for _ in range(MAX_STEPS):
        if limit:
            sets = _read_sets(primal, point, guard)
        target = _solve_system(primal, point, sets, guard, limit)
        if target is None:
            break
        share = _move(primal, point, target, guard)
        at_guard += 1
        if share == 0.0 or (limit and share == 1.0 and _equal(sets, _read_sets(primal, point, guard))):
            if guard <= tol / 2:
                break
            guard = max(tol / 2, GUARD_FACTOR * guard)
            sets, at_guard, limit = _begin_sets(primal, point), 0, False
        elif not limit:
            before, sets = sets, _reorder(primal, sets, target.s, point.residuals)
            limit = at_guard >= PUBLISHED_STEPS or _equal(before, sets)
    sets = _read_sets(primal, point, guard)
    return np.where(sets.at_cost, primal.costs, np.where(sets.solved, primal.y * point.s, 0.0))


def _equal(one: _Sets, other: _Sets) -> bool:
    return np.array_equal(one.solved, other.solved) and np.array_equal(one.at_cost, other.at_cost)


def _start(problem: WorkingSet) -> tuple[_Primal, _Point]:
    """Return P's constants and the point a0, with the bias half-way between m and M."""
    K, s, errors = problem.K.astype(np.float64), problem.y * problem.alpha, problem.errors
    least, greatest = problem.bounds()
    bias = float(np.max(errors[s < greatest]) + np.min(errors[s > least])) / 2
    products, corners = K @ s, problem.y if problem.corners is None else problem.corners
    primal = _Primal(K, problem.y, problem.costs, corners, problem.f - products, float(np.sum(s)))
    return primal, _Point(s, products, bias, problem.y * (errors - bias))


def _begin_sets(primal: _Primal, point: _Point) -> _Sets:
    """Put rows at their cost into S3 and other rows with a loss into S1: all rows if a0 = 0, as in Table 1, step 0."""
    loss = (point.residuals > 0) & (primal.costs > 0)
    at_cost = loss & (primal.y * point.s >= primal.costs)
    return _Sets(loss & ~at_cost, at_cost)


def _read_sets(primal: _Primal, point: _Point, guard: float) -> _Sets:
    """Return the sets that follow from the residuals alone: S1 on the rounded corner of L, S3 beyond it."""
    loss = (point.residuals > 0) & (primal.costs > 0)
    return _Sets(loss & (point.residuals < guard), loss & (point.residuals >= guard))


def _reorder(primal: _Primal, sets: _Sets, solution: F64, residuals: F64) -> _Sets:
    """Return the sets after Table 1, step 4, a to d. `solution` solves the system; `residuals` follow the search."""
    loss = (residuals > 0) & (primal.costs > 0)
    over = sets.solved & (primal.y * solution >= primal.costs)
    outside = ~sets.solved & ~sets.at_cost
    return _Sets((sets.solved & loss & ~over) | (outside & loss), (sets.at_cost & loss) | over)


def _solve_system(primal: _Primal, point: _Point, sets: _Sets, guard: float, limit: bool) -> _Point | None:
    """Return the minimum of the model, eq. (3), without its residuals, or None if K_11 + D has no Cholesky factor."""
    s = np.where(sets.at_cost, primal.y * primal.costs, 0.0)
    lacking = primal.total - float(np.sum(s))
    rows = np.flatnonzero(sets.solved)
    if not rows.size:  # no row has a parabola: the bias moves towards the balance, by the largest residual
        bias = point.bias - np.sign(lacking) * np.max(np.abs(point.residuals))
        return _Point(s, primal.K @ s, bias, residuals=s[:0])
    D = (guard if limit else np.maximum(point.residuals[rows], guard)) / primal.costs[rows]
    right = (primal.corners - primal.outside - primal.K @ s)[rows]
    for jitter in np.multiply(JITTERS, np.max(np.abs(np.diagonal(primal.K)))):
        matrix = primal.K[np.ix_(rows, rows)]
        matrix.flat[:: rows.size + 1] += D + jitter
        factor, failed_at = dpotrf(matrix, lower=1, overwrite_a=1)
        if failed_at == 0:
            break
    else:
        return None
    columns = np.column_stack((right + jitter * point.s[rows], np.ones(rows.size)))
    without_bias, per_bias = dpotrs(factor, columns, lower=1)[0].T
    bias = float((np.sum(without_bias) - lacking) / np.sum(per_bias))
    s[rows] = without_bias - bias * per_bias
    return _Point(s, primal.K @ s, bias, residuals=s[:0])


def _move(primal: _Primal, point: _Point, target: _Point, guard: float) -> float:
    """Move the point to the minimum of P on the ray to the target; return the step in units of the way to the target.

    A step within 1e-6 of 1 is exactly 1.
    """
    products_step, bias_step = target.products - point.products, target.bias - point.bias
    falls = primal.y * (products_step + bias_step)
    step = target.s - point.s
    slope, curvature = float(step @ point.products) + bias_step * primal.total, float(step @ products_step)
    share = min(LONGEST_STEP, _search(slope, curvature, point.residuals, falls, primal.costs, guard))
    if abs(share - 1.0) < 1e-6:
        share, point.s = 1.0, target.s
    else:
        point.s = point.s + share * step
    point.products = point.products + share * products_step
    point.bias += share * bias_step
    point.residuals = primal.y * (primal.corners - primal.outside - point.products - point.bias)
    return share


def _search(slope: float, curvature: float, residuals: F64, falls: F64, costs: F64, guard: float) -> float:
    """Return the t >= 0 that minimises slope t + curvature t^2 / 2 + sum C L(r - t falls), L rounded by the guard.

    The derivative is piecewise linear, and it rises where K is positive semidefinite. So bisection over its corners
    finds the piece in which it is zero.
    """
    used = (falls != 0) & (costs > 0)
    r, falls, costs = residuals[used], falls[used], costs[used]

    def derive(t: float) -> float:
        return slope + curvature * t - float((costs * falls) @ np.clip((r - t * falls) / guard, 0.0, 1.0))

    if derive(0.0) >= 0:
        return 0.0
    with np.errstate(over="ignore"):  # a row that hardly falls has its corners at infinity, where none is needed
        corners = np.concatenate((r / falls, (r - guard) / falls))
    corners = np.append(0.0, np.sort(corners[(corners > 0) & (corners < np.inf)]))
    low, high = 0, len(corners)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if derive(corners[middle]) < 0 else (low, middle)
    below = derive(corners[low])
    if high == len(corners):
        return float(corners[low] - below / curvature) if curvature > 0 else float(corners[low])
    return float(corners[low] - below * (corners[high] - corners[low]) / (derive(corners[high]) - below))
