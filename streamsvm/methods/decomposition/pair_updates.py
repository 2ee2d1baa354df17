"""SMO on a working set: steps of two multipliers, each solved in closed form (Platt 1998).

Symbols: s_i = y_i a_i, the signed multipliers (`moved`); e_i = c_i - f_i, the errors without a bias. A step moves s_i
up and s_j down by the same t, so that y'a stays:

    t = (e_i - e_j) / (K_ii + K_jj - 2 K_ij)      clipped to the box            Platt 1998, eqs. (7)-(9)
    e_k <- e_k - t (K_ik - K_jk)                  for all k

i is the row of greatest e that can move up. The order "second-order" chooses the j of greatest (e_i - e_j)^2 /
(K_ii + K_jj - 2 K_ij) (Fan, Chen & Lin 2005, JMLR 6, WSS 2), and "first-order" the j of least e that can move down. If
the curvature, the denominator of t, is not positive (equal rows, indefinite kernels), F falls all the way and t is as
long as the box allows.

Where the sums of both sides are kept (`WorkingSet.by_side`), both rows of a pair are of one side, and that is the side
with the greater violation, as in LIBSVM's Solver_NU (Chang & Lin 2001, "Training nu-support vector classifiers").

A step consists of three sweeps over q numbers, which LLVM turns into vector code: the errors together with their
extremes, the search for i, and the scores of all j. The scores only rank the pairs, so they are float32; all other
numbers are float64.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.methods.decomposition.extremes import larger
from streamsvm.methods.decomposition.working_set import F32, WorkingSet
from streamsvm.numeric.rounding import add_two
from streamsvm.numeric.rows import F64, I64

Order = Literal["second-order", "first-order"]

NO_LIMIT = 1 << 62  # of steps
DEFAULT_MAX_STEPS = 10_000_000  # the limit of LIBSVM; it takes about 5 s at 1,024 rows
BRIEF_ERROR_UPDATES = 20_000_000  # updates of errors that take about a hundredth of a second
BRIEF_STEPS_PER_ROW = 200  # the steps of a brief solution are at least so many times the rows
STEP_COST = 100  # cost of a step, besides its updates, in updates of one error
TINY_CURVATURE = 1e-12  # the least curvature when pairs are ranked, for K_ii of about 1
LEAST_CURVATURE = 1e-290  # the least curvature by which t can be divided
ORDINARY_BITS = 40  # K is scaled if its diagonal is beyond 2^-40 to 2^40, since scores are squares in float32
EPS = float(np.finfo(np.float64).eps)
REFRESH_STEPS_PER_ROW = 4  # recomputing the errors costs about as much as q steps
# fast-math flags: infinities, which stand for rows that cannot move, stay; "reassoc" would break _find_error
VECTOR_FLAGS = {"nnan", "nsz", "contract"}


class _Pairs(NamedTuple):
    """What does not change from step to step: K (q, q), its diagonal, the start's errors, the bounds of y_i a_i.

    side: (q,), the number of the sum that each row belongs to: 0, or 1 for the second of two sums that are kept.
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

    m is the greatest error of the rows that can move up, and M the least of those that can move down. up (q,): 0, or
    -inf for rows that cannot move up; down (q,): 0, or +inf for rows that cannot move down.
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
    """Return the last row with this error, or -1. barred (q,): 0, or infinite for rows that are left out."""
    found = -1
    for k in range(errors.size):
        found = max(found, k if errors[k] + barred[k] == value else -1)
    return found


@register_jitable(fastmath=VECTOR_FLAGS)
def _find_second(
    errors: F64, down: F64, Ki: F32, diagonal: F32, i: int, greatest: float, least: float, scores: F32
) -> int:
    """Return the j with which i would gain most if there were no box (WSS 2).

    greatest, least: m and M. Differences of errors are scaled to at most 1, so that their squares fit into float32.
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
    """Move the pair as far as F falls and the box allows; return t, or 0 if rounding leaves nothing of the step.

    difference: e_i - e_j; least, greatest (q,): the bounds of `moved`. A bound that is reached is met exactly.
    Otherwise t is the step by which the larger of the two multipliers really changes, so that their sum stays to the
    rounding of the smaller one. If the larger one does not change, the smaller one moves alone, by less than the
    rounding of the larger one, which may be 10^30 times as large if rows have very different lengths.
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
    """Remove the rounding of many steps: correct the sum of `moved` on a side in the row with most room.

    The errors are summed anew from those of the start.
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
    """Update the errors after a step t; return the side of the greatest violation, and its m and M.

    up, down: (sides, q), a row for each sum that is kept, in which the rows of the other sum cannot move.
    """
    high, low = _update_errors(errors, problem.K[i], problem.K[j], t, up[0], down[0])
    side = 0
    if len(up) > 1:
        other_high, other_low = _update_errors(errors, problem.K[i], problem.K[i], 0.0, up[1], down[1])
        if not high - low >= other_high - other_low:
            side, high, low = 1, other_high, other_low
    return side, high, low


@njit(cache=True, nogil=True)
def _run(problem: _Pairs, moved: F64, tol: float, max_steps: int, second_order: bool) -> int:
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
            return steps  # the errors are not finite numbers
        if second_order:
            j = _find_second(errors, down[side], K[i], problem.diagonal, i, high, low, scores)
        else:
            j = _find_error(errors, down[side], low)
        t = _step_pair(K, moved, least, greatest, i, j, high - errors[j]) if j >= 0 else 0.0
        if t == 0.0:
            return steps
        up[side, i], down[side, i] = 0.0 if moved[i] < greatest[i] else -np.inf, 0.0
        up[side, j], down[side, j] = 0.0, 0.0 if moved[j] > least[j] else np.inf
    return max_steps


def solve_by_pairs(problem: WorkingSet, tol: float, max_steps: int | None = None, order: Order = "second-order") -> F64:
    """Return the alpha (q,) of `run_pairs`, without the number of steps."""
    return run_pairs(problem, tol, max_steps, order)[0]


def run_pairs(
    problem: WorkingSet, tol: float, max_steps: int | None = None, order: Order = "second-order"
) -> tuple[F64, int]:
    """Return alpha (q,) of the working set with m(alpha) - M(alpha) <= tol, and how many steps of pairs led to it.

    tol: absolute, in units of the errors (1e-3 is usual); it is raised to epsilon max |e_i|, their own rounding.
    max_steps: the most steps, or None for 10 million. If they run out before tol is reached, alpha is feasible all the
    same. y'alpha equals its value at the start to rounding, and F is never above its value at the start. Equal input
    gives equal bits. Sources: Platt 1998; Fan, Chen & Lin 2005.
    """
    least, greatest = problem.bounds()
    moved = problem.y * problem.alpha
    max_steps = DEFAULT_MAX_STEPS if max_steps is None else max_steps
    bits = _find_scale(problem.K)
    K = problem.K if bits == 0 else np.ldexp(problem.K, -bits)
    moved, least, greatest = (np.ldexp(bound, bits) for bound in (moved, least, greatest))
    errors, diagonal = problem.errors, np.diagonal(K).astype(np.float32)
    tol = max(tol, EPS * float(np.max(np.abs(errors))))
    side = np.where(problem.y < 0, 1, 0) if problem.by_side else np.zeros(len(moved), np.int64)
    steps = _run(_Pairs(K, diagonal, errors, least, greatest, side), moved, tol, max_steps, order == "second-order")
    return np.minimum(np.abs(np.ldexp(moved, -bits)), problem.costs), steps


def count_brief_steps(n_rows: int) -> int:
    """Return the steps that take some hundredths of a second, or BRIEF_STEPS_PER_ROW a row if that is more."""
    return max(BRIEF_ERROR_UPDATES // (n_rows + STEP_COST), BRIEF_STEPS_PER_ROW * n_rows)


def solve_by_few_pairs(problem: WorkingSet, tol: float) -> F64:
    """Return the alpha of `run_few_pairs`, without the number of steps."""
    return run_few_pairs(problem, tol, NO_LIMIT)[0]


def run_few_pairs(problem: WorkingSet, tol: float, most: int) -> tuple[F64, int]:
    """Return what `run_pairs` reaches in few steps; the caller may heed Ctrl-C and go on from there."""
    return run_pairs(problem, tol, min(most, count_brief_steps(len(problem.y))))


def _find_scale(K: F32 | F64) -> int:
    """Return the power of two by which K is divided and multipliers are multiplied, so that f = K s stays."""
    size = float(np.max(np.abs(np.diagonal(K)), initial=0.0))
    bits = math.frexp(size)[1] if 0.0 < size < math.inf else 0
    return bits if abs(bits) > ORDINARY_BITS else 0
