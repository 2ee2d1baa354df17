"""Solvers of a working set: SMO, IRWLS, and a QP library.

SMO takes steps of two multipliers, each solved in closed form (Platt 1998).

Symbols: s_i = y_i a_i, the signed multipliers (`moved`); e_i = c_i - f_i, the errors without a bias. A step moves s_i
up and s_j down by the same t, so that y'a does not change:

    t = (e_i - e_j) / (K_ii + K_jj - 2 K_ij)      clipped to the box            Platt 1998, eqs. (7)-(9)
    e_k <- e_k - t (K_ik - K_jk)                  for all k

i is the row with the greatest e that can move up, and j the row that can move down with the greatest
(e_i - e_j)^2 / (K_ii + K_jj - 2 K_ij) (Fan, Chen & Lin 2005, JMLR 6, WSS 2). If the curvature, the denominator of t, is
not positive (equal rows, indefinite kernels), F falls along the whole line, and t is as large as the box allows.

If the sums of both sides are kept (`WorkingSet.by_side`), both rows of a pair are on the same side: the side with the
greater violation, as in LIBSVM's Solver_NU (Chang & Lin 2001, "Training nu-support vector classifiers").

A step consists of three sweeps over q numbers, which LLVM vectorises: update the errors and find their extremes, find
i, and compute the scores of all j. The scores only rank the pairs, so they are float32; all other numbers are float64.

IRWLS is iterated re-weighted least squares (Pérez-Cruz et al. 2000, Table 1), made to converge.

Symbols: s_i = y_i a_i (a_i is the paper's beta_i); s0, the s of the start; c = f - K s0, the contribution of the rows
outside the working set (the paper's G_in is y_i c_i); G = sum s0 (the paper's G_bin); t_i, the corners, which are the
labels y_i or those of a regression (hinges.py); r_i = y_i (t - c - K s - b)_i, the residuals (the paper's y_i e_i). The
primal of the working set's problem is

    P(s, b) = 1/2 s'Ks + G b + sum_i C_i L(r_i)                 L(r) = max(0, r), the hinge loss

Table 1 divides the rows into three sets and replaces L by a parabola on S1, with the weights 1/D_i, D_i = r_i / C_i
(eq. (8)). Rows of S2 (r_i < 0) have no loss, and rows of S3 (multiplier at C_i) have the slope C_i. With s_2 = 0 and
s_3 = y C, the minimum of that model solves eq. (3),

    [ K_11 + D   1 ] [s_1]   [ t_1 - c_1 - K_13 s_3 ]
    [ 1'         0 ] [ b ] = [ G - sum s_3          ]          by elimination, with one Cholesky factor

The plain fixed-point iteration may cycle, and its weights are unbounded as r -> 0. Three safeguards make it converge,
as in the variant for which Pérez-Cruz, Bousoño-Calzón & Artés-Rodríguez (2005) prove convergence:

* The weights are guarded: D_i >= guard / C_i. This rounds off the corner of L, which becomes r^2 / (2 guard) on
  0 < r < guard. At the minimum of the rounded P the multipliers C_i r_i / guard are feasible, and m - M <= guard. The
  guard starts at half the violation and shrinks to tol / 2.
* A step goes to the minimum of P on its line, found by an exact search, since P is piecewise quadratic there. The model
  has the slope of P, so P always falls.
* Near the corner the fixed-point iteration is slow: r <- r a / C. After a few steps at each guard, the sets therefore
  follow from r alone (S3: r >= guard) and all weights are at their limit, which gives Newton's step on the rounded P.

If K has no Cholesky factor (sigmoid kernel), or if the steps run out, pair steps (`solve_by_few_pairs`), which always
converge, finish the work. Otherwise the pair steps have nothing left to do.

`solve_by_qp` solves a working set by a QP library instead, as Osuna's and Joachims' decompositions use LOQO:

    min over d    1/2 d'(Q + ridge I) d + g'd      subject to   -a0 <= d <= C - a0,   y'd = 0          d = a - a0

PIQP (Schwan, Jiang, Kuhn & Jones 2023) is a proximal interior-point method with dense matrices. The ridge is the least
of 0, 1e-12, 1e-11, ... times the largest |K_ii| for which Q + ridge I has a Cholesky factor. The ridge penalises the
distance from a0. Even if K is indefinite (sigmoid kernel), the objective with the ridge is an upper bound of F that
equals F at a0, so F still falls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable
from scipy.linalg.lapack import dpotrs

from streamsvm.numeric.equations import find_raised_factor
from streamsvm.numeric.rounding import add_two
from streamsvm.numeric.rows import F32, F64, I64
from streamsvm.solvers.decomposition.working_set import WorkingSet, larger
from streamsvm.system.errors import InputError

NO_LIMIT = 1 << 62  # a number of steps that is never reached
BRIEF_ERROR_UPDATES = 20_000_000  # updates of errors that take about a hundredth of a second
BRIEF_STEPS_PER_ROW = 200  # a brief solution may take at least this many steps per row
STEP_COST = 100  # fixed cost of a step, in updates of one error
TINY_CURVATURE = 1e-12  # the least curvature in the scores of pairs, for K_ii of about 1
LEAST_CURVATURE = 1e-290  # the least curvature by which an error difference is divided to give t
ORDINARY_BITS = 40  # K is scaled if its diagonal is beyond 2^-40 to 2^40, since scores are squares in float32
EPS = float(np.finfo(np.float64).eps)
REFRESH_STEPS_PER_ROW = 4  # recomputing the errors costs about as much as q steps
# Fast-math flags. "ninf" is missing, since the errors of rows that cannot move are infinite. "reassoc" would break
# _find_error.
VECTOR_FLAGS = {"nnan", "nsz", "contract"}


class _Pairs(NamedTuple):
    """The constants of a solution by pair steps.

    K (q, q): kernel values. diagonal (q,): the diagonal of K. errors (q,): e_i at the start. least, greatest (q,): the
    bounds of y_i a_i. side (q,): the kept sum to which each row belongs: 0 for the first sum, 1 for the second if there
    are two.
    """

    K: F32 | F64
    diagonal: F32
    errors: F64
    least: F64
    greatest: F64
    side: I64


@register_jitable(fastmath=VECTOR_FLAGS)
def _update_errors(errors: F64, Ki: F32, Kj: F32, t: float, up: F64, down: F64) -> tuple[float, float]:
    """Update the errors after a step t; return m and M.

    m is the greatest error of the rows that can move up, and M the least error of the rows that can move down. up (q,):
    0, or -inf for rows that cannot move up. down (q,): 0, or +inf for rows that cannot move down.
    """
    greatest, least_negated = -np.inf, -np.inf
    for k in range(errors.size):
        error = errors[k] - t * (np.float64(Ki[k]) - np.float64(Kj[k]))
        errors[k] = error
        greatest = larger(error + up[k], greatest)
        least_negated = larger(-(error + down[k]), least_negated)
    return greatest, -least_negated


@register_jitable(fastmath=VECTOR_FLAGS)
def _find_error(errors: F64, barred: F64, value: float) -> int:
    """Return the last row whose error is `value`, or -1. barred (q,): 0, or infinite for rows that are excluded."""
    found = -1
    for k in range(errors.size):
        found = max(found, k if errors[k] + barred[k] == value else -1)
    return found


@register_jitable(fastmath=VECTOR_FLAGS)
def _find_second(
    errors: F64, down: F64, Ki: F32, diagonal: F32, i: int, greatest: float, least: float, scores: F32
) -> int:
    """Return the j with which i would lower F most if there were no box (WSS 2).

    i: the row that moves up. greatest, least: m and M. Differences of errors are scaled to at most 1, so that their
    squares fit into float32.
    """
    scale, Kii = 1.0 / (greatest - least), diagonal[i]
    best = np.float32(0.0)
    for k in range(errors.size):
        difference = np.float32(larger((greatest - (errors[k] + down[k])) * scale, 0.0))
        curvature = larger(Kii + diagonal[k] - np.float32(2.0) * np.float32(Ki[k]), np.float32(TINY_CURVATURE))
        score = difference * difference / curvature
        scores[k] = score
        best = larger(score, best)
    found = -1
    for k in range(scores.size):
        found = max(found, k if scores[k] == best else -1)
    return found if best > 0.0 else _find_error(errors, down, least)


@register_jitable
def _step_pair(K: F32, moved: F64, least: F64, greatest: F64, i: int, j: int, difference: float) -> float:
    """Move the pair as far as F falls and the box allows; return t, or 0 if the step is lost in rounding.

    difference: e_i - e_j; least, greatest (q,): the bounds of `moved`. If a multiplier reaches its bound, it is set to
    exactly this bound. Otherwise t is rounded to the actual change of the larger multiplier; the sum of both then
    changes by at most the rounding of the smaller one. If the larger multiplier does not change, the smaller one moves
    alone, by less than the rounding of the larger one. (One may be 10^30 times as large as the other if the rows have
    very different lengths.)
    """
    curvature = max(np.float64(K[i, i]) + np.float64(K[j, j]) - 2.0 * np.float64(K[i, j]), LEAST_CURVATURE)
    room_i, room_j = greatest[i] - moved[i], moved[j] - least[j]
    t = float(min(difference / curvature, room_i, room_j))
    if t < room_i and t < room_j:
        size = max(abs(moved[i]), abs(moved[j]))
        rounded = (size + t) - size
        t = rounded if rounded > 0.0 else t
    before_i, before_j = moved[i], moved[j]
    moved[i] = greatest[i] if t >= room_i else min(moved[i] + t, greatest[i])
    moved[j] = least[j] if t >= room_j else max(moved[j] - t, least[j])
    return t if moved[i] != before_i or moved[j] != before_j else 0.0


@register_jitable
def _refresh_errors(problem: _Pairs, start: F64, moved: F64, errors: F64, side: int) -> None:
    """Remove the rounding errors of many steps: correct the sum of `moved` on a side, and recompute the errors.

    The row with the most room takes the correction. The errors are recomputed from the errors at the start.
    """
    freest, most_room, drift, rest = 0, -np.inf, 0.0, 0.0
    for i in range(moved.size):
        if problem.side[i] != side:
            continue
        room = min(problem.greatest[i] - moved[i], moved[i] - problem.least[i])
        if room > most_room:
            freest, most_room = i, room
        drift, lost = add_two(drift, start[i])
        drift, again = add_two(drift, -moved[i])
        rest += lost + again
    drift += rest
    if abs(drift) < most_room:
        moved[freest] += drift
    for i in range(errors.size):
        errors[i] = problem.errors[i]
    for i in range(errors.size):
        change = moved[i] - start[i]
        if change != 0.0:
            for k in range(errors.size):
                errors[k] -= change * np.float64(problem.K[i, k])


@register_jitable
def _find_side(problem: _Pairs, errors: F64, i: int, j: int, t: float, up: F64, down: F64) -> tuple[int, float, float]:
    """Update the errors after a step t; return the side with the greatest violation, and its m and M.

    up, down: (sides, q), one line for each kept sum; in this line, rows of the other sum are marked as unable to move.
    """
    high, low = _update_errors(errors, problem.K[i], problem.K[j], t, up[0], down[0])
    side = 0
    if len(up) > 1:
        other_high, other_low = _update_errors(errors, problem.K[i], problem.K[i], 0.0, up[1], down[1])
        if not high - low >= other_high - other_low:
            side, high, low = 1, other_high, other_low
    return side, high, low


@njit(cache=True, nogil=True)
def _run(problem: _Pairs, moved: F64, tol: float, max_steps: int) -> int:
    """Take steps until m - M <= tol for each sum that is kept; `moved` changes in place. Return the number of steps."""
    K, least, greatest = problem.K, problem.least, problem.greatest
    start, errors, n_sides = moved.copy(), problem.errors.copy(), problem.side.max() + 1
    up, down = np.full((n_sides, moved.size), -np.inf), np.full((n_sides, moved.size), np.inf)
    scores = np.empty(errors.size, np.float32)
    for k in range(moved.size):
        up[problem.side[k], k] = 0.0 if moved[k] < greatest[k] else -np.inf
        down[problem.side[k], k] = 0.0 if moved[k] > least[k] else np.inf
    refresh_at = REFRESH_STEPS_PER_ROW * errors.size
    i, j, t = 0, 0, 0.0
    for steps in range(max_steps):
        side, high, low = _find_side(problem, errors, i, j, t, up, down)
        if steps >= refresh_at and (high - low <= tol or steps >= 4 * refresh_at):
            for each in range(n_sides):
                _refresh_errors(problem, start, moved, errors, each)
            refresh_at = steps + REFRESH_STEPS_PER_ROW * errors.size
            side, high, low = _find_side(problem, errors, i, i, 0.0, up, down)
        if high - low <= tol:
            return steps
        i = _find_error(errors, up[side], high)
        if i < 0 or not high - low < np.inf:
            return steps  # the errors are not finite
        j = _find_second(errors, down[side], K[i], problem.diagonal, i, high, low, scores)
        t = _step_pair(K, moved, least, greatest, i, j, high - errors[j]) if j >= 0 else 0.0
        if t == 0.0:
            return steps
        up[side, i], down[side, i] = 0.0 if moved[i] < greatest[i] else -np.inf, 0.0
        up[side, j], down[side, j] = 0.0, 0.0 if moved[j] > least[j] else np.inf
    return max_steps


def run_pairs(problem: WorkingSet, tol: float, max_steps: int) -> tuple[F64, int]:
    """Return alpha (q,) of the working set with m(alpha) - M(alpha) <= tol, and the number of pair steps.

    tol: the largest violation, absolute, in units of the errors (1e-3 is usual); at least epsilon max |e_i|, the
    rounding of the errors, is used. max_steps: the maximum number of steps. If they run out before tol is reached,
    alpha is still feasible. y'alpha equals its value at the start to rounding, and F is never above its value at the
    start. Equal input gives equal bits. Sources: Platt 1998; Fan, Chen & Lin 2005.
    """
    least, greatest = problem.bounds()
    moved = problem.y * problem.alpha
    K, bits = problem.K, _find_scale(problem.K.diagonal())
    if bits:
        K = np.ldexp(K, -bits)
        moved, least, greatest = (np.ldexp(bound, bits) for bound in (moved, least, greatest))
    errors, diagonal = problem.errors, K.diagonal().astype(np.float32)
    tol = max(tol, EPS * float(np.abs(errors).max()))
    side = np.where(problem.y < 0, 1, 0) if problem.by_side else np.zeros(len(moved), np.int64)
    steps = _run(_Pairs(K, diagonal, errors, least, greatest, side), moved, tol, max_steps)
    return np.minimum(np.abs(np.ldexp(moved, -bits)), problem.costs), steps


def solve_by_few_pairs(problem: WorkingSet, tol: float) -> F64:
    """Return the alpha of `run_few_pairs`, without the number of steps."""
    return run_few_pairs(problem, tol, NO_LIMIT)[0]


def run_few_pairs(problem: WorkingSet, tol: float, most: int) -> tuple[F64, int]:
    """Call `run_pairs` with a limit of a few hundredths of a second or BRIEF_STEPS_PER_ROW steps per row.

    The larger of these two limits applies, but at most `most` steps are made. Ctrl-C can be handled between two calls.
    """
    n_rows = len(problem.y)
    brief = max(BRIEF_ERROR_UPDATES // (n_rows + STEP_COST), BRIEF_STEPS_PER_ROW * n_rows)
    return run_pairs(problem, tol, min(most, brief))


def _find_scale(diagonal: F32 | F64) -> int:
    """Return the power of two by which to divide K and multiply the multipliers; f = K s stays the same."""
    size = float(np.abs(diagonal).max(initial=0.0))
    bits = math.frexp(size)[1] if 0.0 < size < math.inf else 0
    return bits if abs(bits) > ORDINARY_BITS else 0


MAX_STEPS = 200
PUBLISHED_STEPS = 3  # steps at each guard with the weights of Table 1, before steps with the limit of these weights
GUARD_FACTOR = 0.05  # the factor by which the guard shrinks once P is minimised at the current guard
LONGEST_STEP = 10.0  # as a multiple of the model's step: where P is flat to rounding, its minimum is arbitrary
S1, S2, S3 = 1, 2, 3  # the sets of rows: solved by the system, without a loss, and with the multiplier at the cost
JITTERS = (0.0, 1e-10, 1e-7)  # shares of the largest K_ii to add to the diagonal, tried in turn: they shorten steps


@dataclass
class _Point:
    """A point of the primal.

    s, products, residuals (q,): s, K s and r. bias: b.
    """

    s: F64
    products: F64
    bias: float
    residuals: F64


@dataclass(frozen=True)
class _Primal:
    """The constants of P in the formulas above.

    K (q, q): kernel values in float64. y, costs, wanted (q,): y, C and t - c. total: G.
    """

    K: F64
    y: F64
    costs: F64
    wanted: F64
    total: float


def solve_by_irwls(problem: WorkingSet, tol: float) -> F64:
    """Return alpha (q,) of the working set with m(alpha) - M(alpha) <= tol, by IRWLS.

    tol: the largest violation, absolute, in units of the errors. The multipliers are feasible, y'alpha equals its value
    at the start to rounding, and F is never above its value at the start. Equal input gives equal bits. Memory: two
    more (q, q) float64 arrays. The method is Table 1 of Pérez-Cruz et al. 2000 with the safeguards above.
    """
    return _solve_towards(problem, tol, _reweight)


def _solve_towards(problem: WorkingSet, tol: float, find: Callable[[WorkingSet, float], F64]) -> F64:
    """Return the best multipliers on the segment from a0 to those that `find` returns, improved by pair steps."""
    if problem.violation() <= tol:
        return problem.alpha.copy()
    best = problem.best_towards(problem.repair(find(problem, tol)))
    if not problem.objective(best) < 0.0:  # rounding has hidden the gain
        best = problem.alpha
    return solve_by_few_pairs(problem.moved_to(best), tol)


def _reweight(problem: WorkingSet, tol: float) -> F64:
    """Run IRWLS; return multipliers near the solution, feasible to rounding unless it ends early."""
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
        if share == 0.0 or (limit and share == 1.0 and np.array_equal(sets, _read_sets(primal, point, guard))):
            if guard <= tol / 2:
                break
            guard = max(tol / 2, GUARD_FACTOR * guard)
            sets, at_guard, limit = _begin_sets(primal, point), 0, False
        elif not limit:
            before, sets = sets, _reorder(primal, sets, target.s, point.residuals)
            limit = at_guard >= PUBLISHED_STEPS or np.array_equal(before, sets)
    sets = _read_sets(primal, point, guard)
    return np.where(sets == S3, primal.costs, np.where(sets == S1, primal.y * point.s, 0.0))


def _start(problem: WorkingSet) -> tuple[_Primal, _Point]:
    """Return the constants of P and the point at a0, with the bias half-way between m and M."""
    K, s, errors = problem.K.astype(np.float64), problem.y * problem.alpha, problem.errors
    least, greatest = problem.bounds()
    bias = float(np.max(errors[s < greatest]) + np.min(errors[s > least])) / 2
    products, corners = K @ s, problem.y if problem.corners is None else problem.corners
    primal = _Primal(K, problem.y, problem.costs, corners - (problem.f - products), float(np.sum(s)))
    return primal, _Point(s, products, bias, problem.y * (errors - bias))


def _begin_sets(primal: _Primal, point: _Point) -> I64:
    """Return the initial sets: S2 for rows without loss or cost, S3 for a multiplier at the cost, otherwise S1."""
    of_loss = np.where(primal.y * point.s >= primal.costs, S3, S1)
    return np.where((point.residuals > 0) & (primal.costs > 0), of_loss, S2)


def _read_sets(primal: _Primal, point: _Point, guard: float) -> I64:
    """Return the sets that follow from the residuals alone: S1 on the rounded corner of L, S3 beyond it."""
    of_loss = np.where(point.residuals < guard, S1, S3)
    return np.where((point.residuals > 0) & (primal.costs > 0), of_loss, S2)


def _reorder(primal: _Primal, sets: I64, solution: F64, residuals: F64) -> I64:
    """Return the sets after Table 1, step 4, a to d.

    sets: the sets before. solution: the s that solves the system. residuals: the residuals after the line search.
    """
    of_loss = np.where(sets == S3, S3, S1)
    moved = np.where((residuals > 0) & (primal.costs > 0), of_loss, S2)
    return np.where((sets == S1) & (primal.y * solution >= primal.costs), S3, moved)


def _solve_system(primal: _Primal, point: _Point, sets: I64, guard: float, limit: bool) -> _Point | None:
    """Return the minimum of the model, eq. (3), without its residuals, or None if K_11 + D has no Cholesky factor."""
    s = np.where(sets == S3, primal.y * primal.costs, 0.0)
    lacking = primal.total - float(np.sum(s))
    rows = np.flatnonzero(sets == S1)
    if not rows.size:  # S1 is empty: move the bias towards the balance, by the largest residual
        bias = point.bias - np.sign(lacking) * np.max(np.abs(point.residuals))
        return _Point(s, primal.K @ s, bias, residuals=s[:0])
    D = (guard if limit else np.maximum(point.residuals[rows], guard)) / primal.costs[rows]
    right = (primal.wanted - primal.K @ s)[rows]
    size = float(np.max(np.abs(np.diagonal(primal.K))))
    factor, jitter = find_raised_factor(primal.K[np.ix_(rows, rows)], D, size, JITTERS)
    if jitter is None:
        return None
    columns = np.column_stack((right + jitter * size * point.s[rows], np.ones(rows.size)))
    without_bias, per_bias = dpotrs(factor, columns, lower=1)[0].T
    bias = float((np.sum(without_bias) - lacking) / np.sum(per_bias))
    s[rows] = without_bias - bias * per_bias
    return _Point(s, primal.K @ s, bias, residuals=s[:0])


def _move(primal: _Primal, point: _Point, target: _Point, guard: float) -> float:
    """Move the point to the minimum of P on the ray to the target; return the step (1 reaches the target).

    A step within 1e-6 of 1 is rounded to 1.
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
    point.residuals = primal.y * (primal.wanted - point.products - point.bias)
    return share


def _search(slope: float, curvature: float, residuals: F64, falls: F64, costs: F64, guard: float) -> float:
    """Return the t >= 0 that minimises slope t + curvature t^2 / 2 + sum C L(r - t falls), L rounded by the guard.

    The derivative is piecewise linear, and increasing if K is positive semidefinite. Bisection over its corners
    therefore finds the piece in which it is zero.
    """
    used = (falls != 0) & (costs > 0)
    r, falls, costs = residuals[used], falls[used], costs[used]

    def derive(t: float) -> float:
        return slope + curvature * t - float((costs * falls) @ np.clip((r - t * falls) / guard, 0.0, 1.0))

    if derive(0.0) >= 0:
        return 0.0
    with np.errstate(over="ignore"):  # corners of rows that hardly fall overflow to infinity and are dropped
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


def solve_by_qp(problem: WorkingSet, tol: float) -> F64:
    """Return alpha (q,) of the working set with m(alpha) - M(alpha) <= tol, by PIQP.

    tol: the largest violation, absolute, in units of the errors. The library's point lies slightly inside the box and
    misses y'a = y'a0 slightly. A row is put on a bound if the Lagrange multiplier of the bound is larger than the row's
    distance from it, and the other rows make up the sum. Pair steps (`solve_by_few_pairs`) then remove the remaining
    violation, which is most of the work if K is indefinite. F is never above its value at the start, and equal input
    gives equal bits. Raises InputError if PIQP is not installed.
    """
    return _solve_towards(problem, tol, _solve_with_piqp)


def _solve_with_piqp(problem: WorkingSet, tol: float) -> F64:
    """Return the multipliers that PIQP finds, moved to a bound if they are near it, or a0 if any is not finite."""
    try:
        import piqp
    except ImportError as error:
        raise InputError(
            "the inner solver 'qp' needs the package PIQP: install it with pip install streamsvm[qp]"
        ) from error
    rows = np.flatnonzero(problem.costs > 0)
    alpha, y, costs = problem.alpha[rows], problem.y[rows], problem.costs[rows]
    hessian = _make_definite(problem.K[np.ix_(rows, rows)].astype(np.float64) * np.outer(y, y))
    solver = piqp.DenseSolver()
    solver.settings.eps_abs, solver.settings.eps_rel = min(1e-8, tol / 100), 1e-10
    solver.settings.eps_duality_gap_abs, solver.settings.eps_duality_gap_rel = min(1e-8, tol / 100), 1e-10
    gradient = -y * problem.errors[rows]
    solver.setup(hessian, gradient, y[None, :], np.zeros(1), x_l=-alpha, x_u=costs - alpha)
    solver.solve()
    result = solver.result
    point = alpha + result.x
    point[result.z_bl > np.maximum(point, 0.0)] = 0.0
    at_cost = result.z_bu > np.maximum(costs - point, 0.0)
    point[at_cost] = costs[at_cost]
    target = problem.alpha.copy()
    if np.all(np.isfinite(point)):
        target[rows] = point
    return target


def _make_definite(hessian: F64) -> F64:
    """Return the matrix plus the least ridge (see above) for which a Cholesky factor exists."""
    largest = float(np.max(np.abs(np.diagonal(hessian)))) or 1.0
    ridges = [0.0, *(10.0 ** np.arange(-12, 12)).tolist()]
    ridge = find_raised_factor(hessian, 0.0, largest, ridges)[1]
    return hessian + largest * (ridges[-1] if ridge is None else ridge) * np.eye(len(hessian))


# The arguments are the working set, tol, and the maximum number of pair steps of SMO. The results are alpha (q,) and
# the number of pair steps made.
InnerSolver = Callable[[WorkingSet, float, int], tuple[F64, int]]
INNER_SOLVERS: dict[str, InnerSolver] = {
    "smo": run_few_pairs,
    "irwls": lambda problem, tol, _: (solve_by_irwls(problem, tol), 0),
    "qp": lambda problem, tol, _: (solve_by_qp(problem, tol), 0),
}
