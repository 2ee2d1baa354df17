"""Platt's SMO: two multipliers at a time, chosen by his two loops, solved in closed form; rows held in memory.

    minimise 1/2 sum_ij a_i a_j y_i y_j k(x_i, x_j) - sum_i a_i    with 0 <= a_i <= C_i, sum_i y_i a_i as it was given
    E_i = f(x_i) - y_i,   f(x) = sum_j a_j y_j k(x_j, x) + b                                (Platt's b is -b)

Source: J. C. Platt, Using Analytic QP and Sparseness to Speed Training of Support Vector Machines, NIPS 11, 1998, with
the pseudo-code of MSR-TR-98-14. Sweeps over all rows (those that are not shrunk) alternate with sweeps over the free
ones, 0 < a_i < C_i. Where this differs: his test for steps too small to take, |a2' - a2| < eps (a2' + a2 + eps),
depends on the scale of the multipliers (with large costs it refuses nearly all); here a pair is refused where
|E1 - E2| <= tol, when two rows meet the conditions within tol for some b. If every partner of a row is refused, that b
is taken: his pseudo-code leaves a b behind that no multiplier determines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from streamsvm import interrupts
from streamsvm.methods.decomposition.platt_state import (
    Problem,
    State,
    add_to_w,
    claim_slot,
    compute_kernel_value,
    describe_problem,
    fill_kernel_values,
    find_error,
    make_state,
    put,
    set_multiplier,
    sort,
    update_errors,
)
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F64, I64, Matrix

FLAT = 1e-12  # curvature below this share of k11 + k22 is rounding
ROUNDING = 1e-15  # multipliers this close to a bound, as a share of the pair's sum, are on it
PART_ROWS = 256  # swept in one call: a step updates the errors of all free rows
MOST_VALUES = 1 << 62
ROUNDED = 1e-9  # share of tol by which rounding may exceed it


@dataclass(frozen=True, slots=True)
class PlattResult:
    """Multipliers alpha (n,) and b, of f(x) = sum alpha_j y_j k(x_j, x) + b, and what they took.

    converged: the last sweep over all rows took no step and found each within tol of its condition, at this b.
    """

    alpha: F64
    b: float
    n_steps: int
    n_kernel_evaluations: int
    n_sweeps: int
    converged: bool


@njit(cache=True, nogil=True)
def _find_best(a2: float, slope: float, curvature: float, low: float, high: float) -> float:
    """Minimiser over [low, high] of curvature/2 (a - a2)^2 - slope (a - a2): the better end where it is not convex."""
    if curvature > 0.0:
        return min(max(a2 + slope / curvature, low), high)
    at_low = (low - a2) * (0.5 * curvature * (low - a2) - slope)
    at_high = (high - a2) * (0.5 * curvature * (high - a2) - slope)
    if min(at_low, at_high) >= 0.0:
        return a2
    return low if at_low < at_high else high


@njit(cache=True, nogil=True)
def _snap(a: float, cost: float, slack: float) -> float:
    if a <= slack:
        return 0.0
    return cost if a >= cost - slack else a


@njit(cache=True, nogil=True)
def _take_step(problem: Problem, state: State, i1: int, i2: int, E2: float) -> bool:
    """Optimise the pair, equations (7) to (9); False if it cannot be improved."""
    a1, a2, y1, y2 = state.alpha[i1], state.alpha[i2], problem.y[i1], problem.y[i2]
    cost1, cost2, s = problem.costs[i1], problem.costs[i2], y1 * y2
    if s > 0.0:
        low, high = max(0.0, a2 + a1 - cost1), min(cost2, a2 + a1)
    else:
        low, high = max(0.0, a2 - a1), min(cost2, a2 - a1 + cost1)
    if i1 == i2 or low >= high:
        return False
    E1 = find_error(problem, state, i1)
    if abs(E1 - E2) <= problem.tol:
        return False
    k11 = compute_kernel_value(problem, i1, i1, problem.squares[i1])
    k22 = compute_kernel_value(problem, i2, i2, problem.squares[i2])
    state.single[0] = i2
    fill_kernel_values(problem, state, i1, state.single, state.buffer[0])
    k12 = state.buffer[0, 0]
    curvature = k11 + k22 - 2.0 * k12
    if abs(curvature) <= FLAT * (abs(k11) + abs(k22)):
        curvature = 0.0
    slack = ROUNDING * (a1 + a2)
    new2 = _snap(_find_best(a2, y2 * (E1 - E2), curvature, low, high), cost2, slack)
    new1 = _snap(a1 + s * (a2 - new2), cost1, slack)
    if new1 == a1 or new2 == a2:
        return False
    _apply_step(problem, state, i1, i2, new1, new2, E1, E2, k11, k12, k22)
    return True


@njit(cache=True, nogil=True)
def _apply_step(
    problem: Problem, state: State, i1: int, i2: int, new1: float, new2: float, E1: float, E2: float,
    k11: float, k12: float, k22: float,
) -> None:  # fmt: skip
    """Change the pair; b makes the error of a row that is free now zero, or is half-way if neither is."""
    c1 = problem.y[i1] * (new1 - state.alpha[i1])
    c2 = problem.y[i2] * (new2 - state.alpha[i2])
    b1, b2 = -E1 - c1 * k11 - c2 * k12, -E2 - c1 * k12 - c2 * k22
    set_multiplier(problem, state, i1, new1, E1)
    set_multiplier(problem, state, i2, new2, E2)
    moved = 0.5 * (b1 + b2)
    if state.free.where[i1] >= 0:
        moved = b1
    elif state.free.where[i2] >= 0:
        moved = b2
    state.b[0] += moved
    state.n_steps[0] += 1
    claim_slot(state, i1)
    claim_slot(state, i2)
    update_errors(problem, state, i1, i2, c1, c2, moved)


@njit(cache=True, nogil=True)
def _choose_second(state: State, E2: float) -> int:
    """Return the free row of largest |E1 - E2|."""
    best, farthest = -1, -1.0
    for i in state.free.rows[: state.free.size[0]]:
        if abs(state.errors[i] - E2) > farthest:
            best, farthest = i, abs(state.errors[i] - E2)
    return best


@njit(cache=True, nogil=True)
def _draw(state: State, below: int) -> int:
    state.chance[0] = state.chance[0] * 48271 % 2147483647
    return int(state.chance[0] % below)


@njit(cache=True, nogil=True)
def _find_partner(problem: Problem, state: State, i2: int, E2: float) -> bool:
    """Take a step with the second choice, else with a free row, else with any, from random starts; False: none."""
    n, n_free = state.alpha.size, state.free.size[0]
    start_free, start = _draw(state, max(n_free, 1)), _draw(state, n)
    for k in range(-1, n_free + n):
        if k < 0:
            i1 = _choose_second(state, E2) if n_free > 1 else i2
        elif k < n_free:
            i1 = state.free.rows[(start_free + k) % n_free]
        else:
            i1 = (start + k - n_free) % n
        if _take_step(problem, state, i1, i2, E2):
            return True
    return False


@njit(cache=True, nogil=True)
def _examine(problem: Problem, state: State, i2: int) -> bool:
    """Step from row i2 if it breaks its condition; if no partner helps, b is what is wrong."""
    E2 = find_error(problem, state, i2)
    r, violation = E2 * problem.y[i2], -np.inf
    if state.alpha[i2] < problem.costs[i2]:
        violation = -r
    if state.alpha[i2] > 0.0:
        violation = max(violation, r)
    state.unbiased[i2], state.violation[i2] = E2 - state.b[0], violation
    if violation <= problem.tol:
        return False
    if _find_partner(problem, state, i2, E2):
        return True
    state.b[0] -= E2
    for i in state.free.rows[: state.free.size[0]]:
        state.errors[i] -= E2
    return False


@njit(cache=True, nogil=True)
def _sweep(problem: Problem, state: State, rows: I64) -> int:
    """Examine rows in their order; return how many steps were taken."""
    n_changed = 0
    for i in rows:
        n_changed += _examine(problem, state, i)
    return n_changed


def _sweep_in_parts(problem: Problem, state: State, rows: I64) -> int:
    """Sweep over some rows at a time, so that Ctrl-C is heeded in between; the order and the bits are the same."""
    n_changed = 0
    for at in range(0, len(rows), PART_ROWS):
        interrupts.check()
        n_changed += _sweep(problem, state, rows[at : at + PART_ROWS])
    return n_changed


@njit(cache=True, nogil=True)
def _look_at_all(problem: Problem, state: State) -> None:
    for i in range(state.alpha.size):
        state.unbiased[i] = find_error(problem, state, i) - state.b[0]


def _center(problem: Problem, state: State) -> float:
    """Set b half-way between the bounds that the rows' conditions set to it; return by how much the worst row fails.

    There is one bound only if a class is alone.
    """
    positive, below, above = problem.y > 0, state.alpha < problem.costs, state.alpha > 0
    least = state.unbiased[np.where(positive, below, above)].min(initial=np.inf)
    most = state.unbiased[np.where(positive, above, below)].max(initial=-np.inf)
    ends = [end for end in (least, most) if np.isfinite(end)]
    state.b[0] = -np.mean(ends) if ends else 0.0
    return float(max(0.0, 0.5 * (most - least)))


def _iterate(problem: Problem, state: State, max_sweeps: int, max_values: int) -> tuple[int, bool]:
    """Sweep until a sweep over all rows changes nothing; return sweeps made, and whether it came to that.

    Rows further inside their conditions than the worst row was outside are left out until nothing else changes.
    """
    everything = np.arange(len(problem.y))
    active, whole, n_looks = everything, True, 0
    for n_sweeps in range(1, max_sweeps + 1):
        if state.n_evaluations[0] + n_looks > max_values:
            return n_sweeps - 1, False
        sort(state.support)
        sort(state.free)
        free = state.free.rows[: state.free.size[0]].copy()
        n_looks += (len(active) if whole else len(free)) * (1 + state.support.size[0])
        changed = _sweep_in_parts(problem, state, active if whole else free) > 0
        if changed and whole:
            violation = state.violation[active]
            active = active[violation >= -violation.max()]
        elif not changed and whole:
            if len(active) == len(everything):
                return n_sweeps, True
            active = everything
        whole = not changed
    return max_sweeps, False


def _start(problem: Problem, state: State) -> None:
    """Support vectors first, then all errors and b, then the free rows, whose errors are kept."""
    for i in np.flatnonzero(state.alpha):
        put(state.support, i, True)
        if problem.folds:
            add_to_w(problem, state.w, i, state.alpha[i] * problem.y[i])
    _look_at_all(problem, state)
    _center(problem, state)
    state.errors[:] = state.unbiased + state.b[0]
    for i in np.flatnonzero((state.alpha > 0) & (state.alpha < problem.costs)):
        put(state.free, i, True)


def solve_by_platt(
    X: Matrix, y: F64, costs: F64, kernel: Kernel, alpha: F64 | None = None, tol: float = 1e-3, cache_bytes: int = 0,
    seed: int = 0, fold: bool = True, max_sweeps: int = 100_000, max_values: int = MOST_VALUES,
) -> PlattResult:  # fmt: skip
    """Minimise 1/2 (y a)' K (y a) - sum a over 0 <= a_i <= C_i, y'a as given, until every row is within tol.

    X (n, d) dense float32 or CSR; y (n,) of -1 and +1; costs (n,) C_i >= 0; alpha (n,) feasible, or None: zeros.
    tol bounds y_i (f(x_i) + b) - 1: at least -tol for a_i < C_i, at most tol for a_i > 0. cache_bytes: for rows of
    the kernel matrix in float64, least recently used first out; none if not one fits. fold: linear kernels by
    w = sum a_i y_i x_i, without kernel rows. Kernel evaluations are counted without those on the diagonal. The same
    seed gives the same bits. No sweep is begun after max_values kernel values. Source: Platt 1998, section 2.
    """
    n = X.shape[0]
    problem = describe_problem(X, y, costs, kernel, tol, fold)
    n_slots = 0 if problem.folds else min(cache_bytes // (8 * n), n)
    state = make_state(np.zeros(n) if alpha is None else alpha, X.shape[1], n_slots, seed)
    _start(problem, state)
    n_sweeps, settled = _iterate(problem, state, max_sweeps, max_values)
    converged = settled and _center(problem, state) <= tol * (1 + ROUNDED)
    counts = int(state.n_steps[0]), int(state.n_evaluations[0])
    return PlattResult(state.alpha, float(state.b[0]), *counts, n_sweeps, converged)
