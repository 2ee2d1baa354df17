"""IRWLS on a working set: iterated re-weighted least squares (Pérez-Cruz et al. 2000, Table 1), made to converge.

With s_i = y_i a_i, c = f - K s0 (the share of the rows outside), G = sum s0, residuals r_i = 1 - y_i (c + K s + b)_i
(the paper's y_i e_i), the primal of the working set's problem is

    P(s, b) = 1/2 s'Ks + G b + sum_i C_i L(r_i)                 L the hinge loss max(0, r)

Table 1 replaces L by a parabola: weights 1/D_i, D_i = r_i / C_i, on the rows of S1, none on S2 (r < 0), and slope C_i
on S3 (multiplier at C_i). The minimum of that model solves, with s_2 = 0 and s_3 = y C,

    [ K_11 + D   1 ] [s_1]   [ y_1 - c_1 - K_13 s_3 ]
    [ 1'         0 ] [ b ] = [ G - sum s_3          ]          by elimination, with one Cholesky factor

The plain fixed point cycles and its weights are unbounded as r -> 0. So, as in the variant that Pérez-Cruz, Bousoño-
Calzón & Artés-Rodríguez (2005) prove convergent:

* The weights are guarded, D_i >= guard / C_i. This is L with its corner rounded off: r^2 / (2 guard) on 0 < r < guard.
  At its minimum the multipliers C_i r_i / guard are feasible, and m - M <= guard. The guard starts at half the
  violation and shrinks to tol / 2.
* A step is accepted as far as P falls: exact search on the line (P is piecewise quadratic on it). The model has P's
  slope, so P always falls.
* The fixed point is slow, r <- r a / C, near the corner. After a few steps at each guard the sets are read off r alone
  (S3: r >= guard) and all the weights are at their limit, which is Newton's step on the rounded P.

Where K is not positive definite enough for the factor (sigmoid kernel), or the steps run out, pair steps finish
(`solve_by_few_pairs`), which converge always; otherwise they find nothing to do.
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
PUBLISHED_STEPS = 3  # with the weights of Table 1 at each guard, before their limit
GUARD_SHRINKS = 0.05
LONGEST_SHARE = 10.0  # of a step: where P is flat but for rounding, its minimum may seem to be anywhere
JITTERS = (0.0, 1e-10, 1e-7)  # of the largest K_ii; a step with jitter is damped, not displaced


@dataclass
class _Point:
    """s (q,), K s (q,), b, and the residuals r (q,)."""

    s: F64
    products: F64
    bias: float
    residuals: F64


@dataclass
class _Sets:
    """The rows of S1 and S3; all the others are S2."""

    solved: Mask
    at_cost: Mask


@dataclass(frozen=True)
class _Primal:
    """K in float64, y, C, c and G of the module's formulas."""

    K: F64
    y: F64
    costs: F64
    outside: F64
    total: float


def solve_by_reweighting(problem: WorkingSet, tol: float) -> F64:
    """Return alpha (q,) of the working set with m(alpha) - M(alpha) <= tol, by IRWLS.

    tol: absolute, in units of the errors. The answer is feasible, y'alpha is that of the start to rounding, F is
    never above the start's; equal input gives equal bits. Memory: two more (q, q) float64. Raises nothing.
    Source: Pérez-Cruz et al. 2000, Table 1, with the safeguards of the module's text.
    """
    if problem.violation() <= tol:
        return problem.alpha.copy()
    best = problem.best_towards(problem.repair(_reweight(problem, tol)))
    if not problem.objective(best) < 0.0:  # rounding has the better of it
        best = problem.alpha
    return solve_by_few_pairs(problem.moved_to(best), tol)


def _reweight(problem: WorkingSet, tol: float) -> F64:
    """Return multipliers near the solution, feasible to rounding unless steps ran out or a factor did not exist."""
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
            guard = max(tol / 2, GUARD_SHRINKS * guard)
            sets, at_guard, limit = _begin_sets(primal, point), 0, False
        elif not limit:
            before, sets = sets, _reorder(primal, sets, target.s, point.residuals)
            limit = at_guard >= PUBLISHED_STEPS or _equal(before, sets)
    sets = _read_sets(primal, point, guard)
    return np.where(sets.at_cost, primal.costs, np.where(sets.solved, primal.y * point.s, 0.0))


def _equal(one: _Sets, other: _Sets) -> bool:
    return np.array_equal(one.solved, other.solved) and np.array_equal(one.at_cost, other.at_cost)


def _start(problem: WorkingSet) -> tuple[_Primal, _Point]:
    """Begin at a0, with the bias in the middle of m and M."""
    K, s, errors = problem.K.astype(np.float64), problem.y * problem.alpha, problem.y - problem.f
    least, greatest = problem.bounds()
    bias = float(np.max(errors[s < greatest]) + np.min(errors[s > least])) / 2
    products = K @ s
    primal = _Primal(K, problem.y, problem.costs, problem.f - products, float(np.sum(s)))
    return primal, _Point(s, products, bias, problem.y * (errors - bias))


def _begin_sets(primal: _Primal, point: _Point) -> _Sets:
    """Put rows at their cost into S3, other rows with a loss into S1 (all rows, from a0 = 0, as published)."""
    loss = (point.residuals > 0) & (primal.costs > 0)
    at_cost = loss & (primal.y * point.s >= primal.costs)
    return _Sets(loss & ~at_cost, at_cost)


def _read_sets(primal: _Primal, point: _Point, guard: float) -> _Sets:
    """Return the limit of the sets: S1 on the rounded corner, S3 beyond."""
    loss = (point.residuals > 0) & (primal.costs > 0)
    return _Sets(loss & (point.residuals < guard), loss & (point.residuals >= guard))


def _reorder(primal: _Primal, sets: _Sets, solution: F64, residuals: F64) -> _Sets:
    """Step 4 of Table 1: a, b, c and d in turn; `solution` is that of the system, before the search on the line."""
    loss = (residuals > 0) & (primal.costs > 0)
    over = sets.solved & (primal.y * solution >= primal.costs)
    outside = ~sets.solved & ~sets.at_cost
    return _Sets((sets.solved & loss & ~over) | (outside & loss), (sets.at_cost & loss) | over)


def _solve_system(primal: _Primal, point: _Point, sets: _Sets, guard: float, limit: bool) -> _Point | None:
    """Return the model's minimum (its residuals are left empty), or None where K_11 + D has no Cholesky factor."""
    s = np.where(sets.at_cost, primal.y * primal.costs, 0.0)
    lacking = primal.total - float(np.sum(s))
    rows = np.flatnonzero(sets.solved)
    if not rows.size:  # no parabola: the bias moves towards the balance, as far as residuals reach
        return _Point(s, primal.K @ s, point.bias - np.sign(lacking) * np.max(np.abs(point.residuals)), s[:0])
    D = (guard if limit else np.maximum(point.residuals[rows], guard)) / primal.costs[rows]
    right = (primal.y - primal.outside - primal.K @ s)[rows]
    for jitter in np.multiply(JITTERS, np.max(np.abs(np.diagonal(primal.K)))):
        matrix = primal.K[np.ix_(rows, rows)]
        matrix.flat[:: rows.size + 1] += D + jitter
        factor, failed_at = dpotrf(matrix, lower=1, overwrite_a=1)
        if failed_at == 0:
            break
    else:
        return None
    columns = np.column_stack((right + jitter * point.s[rows], np.ones(rows.size)))
    free, of_bias = dpotrs(factor, columns, lower=1)[0].T
    bias = float((np.sum(free) - lacking) / np.sum(of_bias))
    s[rows] = free - bias * of_bias
    return _Point(s, primal.K @ s, bias, s[:0])


def _move(primal: _Primal, point: _Point, target: _Point, guard: float) -> float:
    """Move the point towards the target as far as P falls, beyond it too; return the share, exactly 1 if it is near."""
    change, gain = target.products - point.products, target.bias - point.bias
    falls = primal.y * (change + gain)
    step = target.s - point.s
    slope, curvature = float(step @ point.products) + gain * primal.total, float(step @ change)
    share = min(LONGEST_SHARE, _search(slope, curvature, point.residuals, falls, primal.costs, guard))
    if abs(share - 1.0) < 1e-6:
        share, point.s = 1.0, target.s
    else:
        point.s = point.s + share * step
    point.products = point.products + share * change
    point.bias += share * gain
    point.residuals = primal.y * (primal.y - primal.outside - point.products - point.bias)
    return share


def _search(slope: float, curvature: float, residuals: F64, falls: F64, costs: F64, guard: float) -> float:
    """Minimise slope t + curvature t^2 / 2 + sum C L(r - t falls) over t >= 0, L rounded off by the guard.

    The derivative is piecewise linear and, where K is positive semidefinite, rises: bisection over its corners.
    """
    used = (falls != 0) & (costs > 0)
    r, falls, costs = residuals[used], falls[used], costs[used]

    def derive(t: float) -> float:
        return slope + curvature * t - float((costs * falls) @ np.clip((r - t * falls) / guard, 0.0, 1.0))

    if derive(0.0) >= 0:
        return 0.0
    corners = np.concatenate((r / falls, (r - guard) / falls))
    corners = np.append(0.0, np.sort(corners[corners > 0]))
    low, high = 0, len(corners)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if derive(corners[middle]) < 0 else (low, middle)
    below = derive(corners[low])
    if high == len(corners):
        return float(corners[low] - below / curvature) if curvature > 0 else float(corners[low])
    return float(corners[low] - below * (corners[high] - corners[low]) / (derive(corners[high]) - below))
