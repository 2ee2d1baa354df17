"""Platt's SMO: his two loops choose two multipliers at a time, which are solved in closed form. Rows are in memory.

    minimise 1/2 sum_ij a_i a_j y_i y_j k(x_i, x_j) - sum_i a_i    with 0 <= a_i <= C_i, sum_i y_i a_i as given
    E_i = f(x_i) - y_i,   f(x) = sum_j a_j y_j k(x_j, x) + b                                (Platt's b is -b)

Source: J. C. Platt, Using Analytic QP and Sparseness to Speed Training of Support Vector Machines, NIPS 11, 1998, with
the pseudo-code of MSR-TR-98-14. Sweeps over all rows, except the shrunk ones, alternate with sweeps over the free rows
(0 < a_i < C_i). If every partner of a row is refused (see platt_steps.py), b becomes the value at which that row meets
its condition: the pseudo-code leaves a b that no multiplier determines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm import deadline, interrupts
from streamsvm.methods.decomposition.platt_state import (
    Problem,
    State,
    add_to_w,
    describe_problem,
    find_error,
    make_state,
    put,
    sort,
)
from streamsvm.methods.decomposition.platt_steps import take_step
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F64, I64, Matrix

ROWS_OF_A_CALL = 256  # rows swept in one compiled call; each step updates the errors of all free rows
MOST_VALUES = 1 << 62
TOL_ROUNDING = 1e-9  # rounding may exceed tol by this share of tol


@dataclass(frozen=True, slots=True)
class PlattResult:
    """Multipliers alpha (n,) and b of f(x) = sum_j alpha_j y_j k(x_j, x) + b, with counts of the work.

    n_kernel_evaluations: kernel values without those on the diagonal. converged: the last sweep over all rows took no
    step, and each row meets its condition within tol at this b.
    """

    alpha: F64
    b: float
    n_steps: int
    n_kernel_evaluations: int
    n_sweeps: int
    converged: bool


@register_jitable
def _choose_second(state: State, E2: float) -> int:
    """Return the free row with the largest |E1 - E2|, Platt's second-choice heuristic."""
    best, farthest = -1, -1.0
    for i in state.free.rows[: state.free.size[0]]:
        if abs(state.errors[i] - E2) > farthest:
            best, farthest = i, abs(state.errors[i] - E2)
    return best


@register_jitable
def _draw(state: State, below: int) -> int:
    """Return the next random number, modulo `below`, of Lehmer's generator."""
    state.random[0] = state.random[0] * 48271 % 2147483647
    return int(state.random[0] % below)


@register_jitable
def _find_partner(problem: Problem, state: State, i2: int, E2: float) -> bool:
    """Take a step with the second choice, else with a free row, else with any row, from random starts.

    Return False if every partner is refused.
    """
    n, n_free = state.alpha.size, state.free.size[0]
    start_free, start = _draw(state, max(n_free, 1)), _draw(state, n)
    for k in range(-1, n_free + n):
        if k < 0:
            i1 = _choose_second(state, E2) if n_free > 1 else i2
        elif k < n_free:
            i1 = state.free.rows[(start_free + k) % n_free]
        else:
            i1 = (start + k - n_free) % n
        if take_step(problem, state, i1, i2, E2):
            return True
    return False


@register_jitable
def _examine(problem: Problem, state: State, i2: int) -> bool:
    """Take a step from row i2 if it violates its condition; return whether one was taken.

    If no partner helps, b is wrong, and the row determines it.
    """
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
    """Examine rows in their order; return the number of steps."""
    n_changed = 0
    for i in rows:
        n_changed += _examine(problem, state, i)
    return n_changed


def _sweep_in_parts(problem: Problem, state: State, rows: I64) -> int:
    """Sweep over some rows at a time, so that Ctrl-C is heeded in between; the order of the rows stays."""
    n_changed = 0
    for at in range(0, len(rows), ROWS_OF_A_CALL):
        interrupts.check()
        n_changed += _sweep(problem, state, rows[at : at + ROWS_OF_A_CALL])
    return n_changed


@njit(cache=True, nogil=True)
def _fill_unbiased_errors(problem: Problem, state: State) -> None:
    """Compute E_i - b of all rows."""
    for i in range(state.alpha.size):
        state.unbiased[i] = find_error(problem, state, i) - state.b[0]


def _center(problem: Problem, state: State) -> float:
    """Set b half-way between the bounds of the rows' conditions; return the largest violation at this b, or 0.

    There is only one bound if all rows are of one class.
    """
    positive, below_cost, above_zero = problem.y > 0, state.alpha < problem.costs, state.alpha > 0
    least = state.unbiased[np.where(positive, below_cost, above_zero)].min(initial=np.inf)
    most = state.unbiased[np.where(positive, above_zero, below_cost)].max(initial=-np.inf)
    bounds = [bound for bound in (least, most) if np.isfinite(bound)]
    state.b[0] = -np.mean(bounds) if bounds else 0.0
    return float(max(0.0, 0.5 * (most - least)))


def _iterate(problem: Problem, state: State, max_sweeps: int, max_values: int) -> tuple[int, bool]:
    """Sweep until a sweep over all rows changes nothing; return the number of sweeps, and whether that happened.

    Shrinking: rows that are further inside their conditions than the worst row is outside are left out until nothing
    else changes.
    """
    all_rows = np.arange(len(problem.y))
    unshrunk, over_all, n_values_looked_at = all_rows, True, 0
    for n_sweeps in range(1, max_sweeps + 1):
        if state.n_evaluations[0] + n_values_looked_at > max_values or deadline.is_over():
            return n_sweeps - 1, False
        sort(state.support)
        sort(state.free)
        free = state.free.rows[: state.free.size[0]].copy()
        swept = unshrunk if over_all else free
        n_values_looked_at += len(swept) * (1 + state.support.size[0])
        changed = _sweep_in_parts(problem, state, swept) > 0
        if changed and over_all:
            violation = state.violation[unshrunk]
            unshrunk = unshrunk[violation >= -violation.max()]
        elif not changed and over_all:
            if len(unshrunk) == len(all_rows):
                return n_sweeps, True
            unshrunk = all_rows
        over_all = not changed
    return max_sweeps, False


def _start(problem: Problem, state: State) -> None:
    """Fill the state: first the support vectors, then all errors and b, and last the free rows with their errors."""
    for i in np.flatnonzero(state.alpha):
        put(state.support, i, True)
        if problem.folds:
            add_to_w(problem, state.w, i, state.alpha[i] * problem.y[i])
    _fill_unbiased_errors(problem, state)
    _center(problem, state)
    state.errors[:] = state.unbiased + state.b[0]
    for i in np.flatnonzero((state.alpha > 0) & (state.alpha < problem.costs)):
        put(state.free, i, True)


def solve_by_platt(
    X: Matrix,
    y: F64,
    costs: F64,
    kernel: Kernel,
    alpha: F64 | None = None,
    tol: float = 1e-3,
    cache_bytes: int = 0,
    seed: int = 0,
    fold: bool = True,
    max_sweeps: int = 100_000,
    max_values: int = MOST_VALUES,
) -> PlattResult:
    """Minimise 1/2 (y a)' K (y a) - sum a over 0 <= a_i <= C_i, y'a as given, until every row is within tol.

    X (n, d): dense float32 rows or CSR rows; y (n,): -1 or +1; costs (n,): C_i >= 0; alpha (n,): feasible multipliers
    to start from, or None for zeros.
    tol: y_i f(x_i) - 1 is at least -tol for rows with a_i < C_i, and at most tol for rows with a_i > 0.
    cache_bytes: memory for rows of the kernel matrix in float64; the row used longest ago makes room for the next.
    fold: whether a linear kernel is computed through w = sum_i a_i y_i x_i, without kernel rows.
    max_sweeps, max_values: the most sweeps, and the kernel values after which no sweep begins.
    The same seed gives the same bits. Source: Platt 1998, section 2.
    """
    n = X.shape[0]
    problem = describe_problem(X, y, costs, kernel, tol, fold)
    n_slots = 0 if problem.folds else min(cache_bytes // (8 * n), n)
    state = make_state(np.zeros(n) if alpha is None else alpha, X.shape[1], n_slots, seed)
    _start(problem, state)
    n_sweeps, settled = _iterate(problem, state, max_sweeps, max_values)
    converged = settled and _center(problem, state) <= tol * (1 + TOL_ROUNDING)
    return PlattResult(
        alpha=state.alpha,
        b=float(state.b[0]),
        n_steps=int(state.n_steps[0]),
        n_kernel_evaluations=int(state.n_evaluations[0]),
        n_sweeps=n_sweeps,
        converged=converged,
    )
