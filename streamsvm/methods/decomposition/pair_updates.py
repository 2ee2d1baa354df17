"""SMO on a working set: two multipliers at a time, solved exactly (Platt 1998).

With b_i = y_i a_i and errors e_i = y_i - f_i, a pair step moves b_i up and b_j down by the same t, so y'a stays:

    t = (e_i - e_j) / (K_ii + K_jj - 2 K_ij)      clipped to the box            Platt 1998, eqs. (7)-(9)
    e_k <- e_k - t (K_ik - K_jk)                  for all k

i is the row of greatest e that can move up. "second-order" takes the j of greatest (e_i - e_j)^2 / curvature
(Fan, Chen & Lin 2005, JMLR 6, WSS 2), "first-order" the j of least e that can move down. Where the curvature is not
positive (copies of a row, indefinite kernels) t is as long as the box allows: the objective falls all the way.

A step is three sweeps over q numbers that LLVM turns into vector code: the errors together with their extremes, the
search for i, and the scores of all j. Scores only rank the pairs, so they are float32; everything else is float64.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numba import njit

from streamsvm.methods.decomposition.extremes import larger
from streamsvm.methods.decomposition.working_set import F32, WorkingSet
from streamsvm.numeric.rounding import add_two
from streamsvm.numeric.rows import F64

Order = Literal["second-order", "first-order"]

DEFAULT_MAX_STEPS = 10_000_000  # LIBSVM's; about 5 s at 1,024 rows
MOST_UPDATES = 20_000_000  # of errors: about a hundredth of a second, so that a caller may look around
MOST_STEPS_PER_ROW = 200  # or so many steps a row, if that is more
OF_A_STEP = 100  # a step costs as much as the update of so many errors, besides those that it updates
TINY_CURVATURE = 1e-12  # where pairs are ranked, K_ii being about 1
LEAST_CURVATURE = 1e-290  # by which a step can still be divided
ORDINARY_BITS = 40  # K whose diagonal is beyond 2^-40 to 2^40 is scaled: squares of float32 have a range
EPS = float(np.finfo(np.float64).eps)
REFRESH_STEPS_PER_ROW = 4  # recomputing the errors costs about as much as q steps
VECTOR = {"nnan", "nsz", "contract"}  # infinities stand for rows that cannot move; "reassoc" would break _find


@njit(cache=True, nogil=True, fastmath=VECTOR)
def _update_errors(errors: F64, Ki: F32, Kj: F32, t: float, up: F64, down: F64) -> tuple[float, float]:
    """Update the errors after a step t, and return m and M: the greatest going up, the least going down."""
    most, least = -np.inf, -np.inf
    for k in range(errors.size):
        error = errors[k] - t * (np.float64(Ki[k]) - np.float64(Kj[k]))
        errors[k] = error
        most = larger(error + up[k], most)
        least = larger(-(error + down[k]), least)
    return most, -least


@njit(cache=True, nogil=True, fastmath=VECTOR)
def _find(errors: F64, barred: F64, value: float) -> int:
    """Return the last row with this error among those not barred (barred: 0, or infinite)."""
    found = -1
    for k in range(errors.size):
        found = max(found, k if errors[k] + barred[k] == value else -1)
    return found


@njit(cache=True, nogil=True, fastmath=VECTOR)
def _find_second(errors: F64, down: F64, Ki: F32, diagonal: F32, i: int, most: float, least: float, scores: F32) -> int:
    """Return the j that promises most with i, were there no box; gaps are scaled to 1, so that squares fit."""
    scale, Kii = 1.0 / (most - least), diagonal[i]
    best = np.float32(0.0)
    for k in range(errors.size):
        gap = np.float32(larger((most - (errors[k] + down[k])) * scale, 0.0))
        curvature = larger(Kii + diagonal[k] - np.float32(2.0) * np.float32(Ki[k]), np.float32(TINY_CURVATURE))
        score = gap * gap / curvature
        scores[k] = score
        best = larger(score, best)
    found = -1
    for k in range(scores.size):
        found = max(found, k if scores[k] == best else -1)
    return found if best > 0.0 else _find(errors, down, least)


@njit(cache=True, nogil=True)
def _step_pair(K: F32, moved: F64, least: F64, greatest: F64, i: int, j: int, gap: float) -> float:
    """Move the pair as far as F falls and the box allows, and return t; 0 if rounding leaves nothing of the step.

    A bound that is reached is met exactly. Otherwise t is what the larger of both really moves by, so that their sum is
    kept to the rounding of the smaller one; if that is nothing, the smaller one moves alone, by less than the rounding
    of the larger one (which may be 10^30 times as large, where rows are of very different lengths).
    """
    curvature = max(np.float64(K[i, i]) + np.float64(K[j, j]) - 2.0 * np.float64(K[i, j]), LEAST_CURVATURE)
    room_i, room_j = greatest[i] - moved[i], moved[j] - least[j]
    t = float(min(gap / curvature, room_i, room_j))
    if t < room_i and t < room_j:
        size = max(abs(moved[i]), abs(moved[j]))
        whole = (size + t) - size
        t = whole if whole > 0.0 else t
    before_i, before_j = moved[i], moved[j]
    moved[i] = greatest[i] if t >= room_i else min(moved[i] + t, greatest[i])
    moved[j] = least[j] if t >= room_j else max(moved[j] - t, least[j])
    return t if moved[i] != before_i or moved[j] != before_j else 0.0


@njit(cache=True, nogil=True)
def _refresh_errors(K: F32, start_errors: F64, start: F64, moved: F64, least: F64, greatest: F64, errors: F64) -> None:
    """Undo what many steps have rounded: the sum of `moved`, put right in the row with most room, and the errors."""
    freest, most, drift, rest = 0, -np.inf, 0.0, 0.0
    for i in range(moved.size):
        room = min(greatest[i] - moved[i], moved[i] - least[i])
        if room > most:
            freest, most = i, room
        drift, lost = add_two(drift, start[i])
        drift, again = add_two(drift, -moved[i])
        rest += lost + again
    drift += rest
    if abs(drift) < most:
        moved[freest] += drift
    for i in range(errors.size):
        errors[i] = start_errors[i]
    for i in range(errors.size):
        change = moved[i] - start[i]
        if change != 0.0:
            for k in range(errors.size):
                errors[k] -= change * np.float64(K[i, k])


@njit(cache=True, nogil=True)
def _run(
    K: F32, diagonal: F32, start_errors: F64, moved: F64, least: F64, greatest: F64, tol: float, max_steps: int,
    second_order: bool,
) -> int:  # fmt: skip
    """Step until m - M <= tol; `moved` (y_i a_i) is changed in place. Return the number of steps."""
    start, errors, up, down = moved.copy(), start_errors.copy(), np.empty(moved.size), np.empty(moved.size)
    scores = np.empty(errors.size, np.float32)
    for k in range(moved.size):
        up[k] = 0.0 if moved[k] < greatest[k] else -np.inf
        down[k] = 0.0 if moved[k] > least[k] else np.inf
    refresh_at = REFRESH_STEPS_PER_ROW * errors.size
    i, j, t = 0, 0, 0.0
    for steps in range(max_steps):
        high, low = _update_errors(errors, K[i], K[j], t, up, down)
        if steps >= refresh_at and (high - low <= tol or steps >= 4 * refresh_at):
            _refresh_errors(K, start_errors, start, moved, least, greatest, errors)
            refresh_at = steps + REFRESH_STEPS_PER_ROW * errors.size
            high, low = _update_errors(errors, K[i], K[i], 0.0, up, down)
        if high - low <= tol:
            return steps
        i = _find(errors, up, high)
        if i < 0 or not high - low < np.inf:
            return steps  # errors that are no numbers
        if second_order:
            j = _find_second(errors, down, K[i], diagonal, i, high, low, scores)
        else:
            j = _find(errors, down, low)
        t = _step_pair(K, moved, least, greatest, i, j, high - errors[j]) if j >= 0 else 0.0
        if t == 0.0:
            return steps
        up[i], down[i] = 0.0 if moved[i] < greatest[i] else -np.inf, 0.0
        up[j], down[j] = 0.0, 0.0 if moved[j] > least[j] else np.inf
    return max_steps


def solve_by_pairs(problem: WorkingSet, tol: float, max_steps: int | None = None, order: Order = "second-order") -> F64:
    """Return alpha (q,) of the working set with m(alpha) - M(alpha) <= tol, by steps of pairs.

    tol: absolute, in units of the errors (1e-3 is usual). It is raised to epsilon max |e_i| if smaller: errors are
    not known better. max_steps: a bound of the pair steps (default 10 million);
    whether it is met or not, alpha is feasible, y'alpha that of the start to rounding, and F never above the start's.
    Raises nothing; equal input gives equal bits. Sources: Platt 1998; Fan, Chen & Lin 2005 (see the module).
    """
    least, greatest = problem.bounds()
    moved = problem.y * problem.alpha
    max_steps = DEFAULT_MAX_STEPS if max_steps is None else max_steps
    bits = _find_scale(problem.K)
    K = problem.K if bits == 0 else np.ldexp(problem.K, -bits)
    moved, least, greatest = (np.ldexp(bound, bits) for bound in (moved, least, greatest))
    errors, diagonal = problem.y - problem.f, np.diagonal(K).astype(np.float32)
    tol = max(tol, EPS * float(np.max(np.abs(errors))))
    _run(K, diagonal, errors, moved, least, greatest, tol, max_steps, order == "second-order")
    return np.minimum(np.abs(np.ldexp(moved, -bits)), problem.costs)


def count_brief_steps(n_rows: int) -> int:
    """Return so many steps as take hundredths of a second, or MOST_STEPS_PER_ROW for each of many rows."""
    return max(MOST_UPDATES // (n_rows + OF_A_STEP), MOST_STEPS_PER_ROW * n_rows)


def solve_by_few_pairs(problem: WorkingSet, tol: float) -> F64:
    """Return what `solve_by_pairs` reaches in few steps; a caller looks around, and may go on from there."""
    return solve_by_pairs(problem, tol, count_brief_steps(len(problem.y)))


def _find_scale(K: F32 | F64) -> int:
    """Return the power of two by which K is divided, and multipliers are multiplied: f = K s stays."""
    size = float(np.max(np.abs(np.diagonal(K)), initial=0.0))
    bits = math.frexp(size)[1] if 0.0 < size < math.inf else 0
    return bits if abs(bits) > ORDINARY_BITS else 0
