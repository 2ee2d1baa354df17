"""Platt's SMO on rows in memory: two loops choose pairs of multipliers, and each pair is solved in closed form.

    minimise 1/2 sum_ij a_i a_j y_i y_j k(x_i, x_j) - sum_i a_i    with 0 <= a_i <= C_i, sum_i y_i a_i fixed
    E_i = f(x_i) - y_i,   f(x) = sum_j a_j y_j k(x_j, x) + b                                (Platt's b is -b)

Source: J. C. Platt, Using Analytic QP and Sparseness to Speed Training of Support Vector Machines, NIPS 11, 1998, eqs.
(7) to (9), with the pseudo-code of MSR-TR-98-14. The names a1, a2, y1, y2, E1, E2 and s = y1 y2 are the paper's.

Sweeps over all rows, except the shrunk ones, alternate with sweeps over the free rows (0 < a_i < C_i). Two details
differ from the paper. Its test for steps that are too small, |a2' - a2| < eps (a2' + a2 + eps), depends on the scale of
the multipliers, and rejects nearly all steps if the costs are large. Here a pair is rejected if |E1 - E2| <= tol: both
rows then meet their conditions within tol for some b. If all partners of a row are rejected, b is set to the value at
which the row meets its condition; the pseudo-code leaves a b that no multiplier determines.

Kernel values are computed on demand and cached. Dense and sparse rows use the same compiled functions, with empty
arrays for whatever a problem does not need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.kernels.kernel import Kernel
from streamsvm.kernels.names import KERNELS, LINEAR, POLY, RBF
from streamsvm.kernels.values import CompiledKernel
from streamsvm.numeric.rows import F32, F64, I32, I64, REORDERED_SUMS, CsrRows, Matrix
from streamsvm.system import deadline, interrupts

FLAT_CURVATURE = 1e-12  # a curvature below this share of |k11| + |k22| is rounding, and counts as 0
BOUND_TOLERANCE = 1e-15  # a multiplier this close to a bound, relative to the pair's sum, is put on it
ROWS_OF_A_CALL = 256  # rows swept in one compiled call; each step updates the errors of all free rows
MOST_VALUES = 1 << 62
TOL_ROUNDING = 1e-9  # violations may exceed tol by this share, because of rounding


class Problem(NamedTuple):
    """A problem's constants. Dense rows are in X (n, d); sparse rows are in data, indices and indptr, with X empty.

    folds: whether scores are computed from w. squares: (n,), |x_i|^2.
    """

    X: F32
    data: F32
    indices: I32
    indptr: I64
    y: F64
    costs: F64
    kernel: CompiledKernel
    tol: float
    folds: bool
    squares: F64


class Members(NamedTuple):
    """A set of rows.

    rows[:size[0]]: the rows. where[i]: the position of row i in `rows`, or -1 if row i is not in the set.
    """

    rows: I64
    where: I64
    size: I64


class State(NamedTuple):
    """The variables of the solution. Scalars are arrays of length 1, which compiled code can change."""

    alpha: F64
    b: F64
    w: F64  # sum a_i y_i x_i if the problem folds
    errors: F64  # E_i of free rows: Platt's error cache
    unbiased: F64  # E_i - b of each row when it was last examined
    violation: F64  # each row's violation of its condition at that time; negative if the condition holds with leeway
    free: Members
    support: Members
    cached: F64  # (slots, n) kernel rows; values not computed yet are NaN
    slot: I64  # (n,), the slot of each row, or -1
    holder: I64  # (slots,), the row in each slot, or -1
    used: I64  # (slots,), the clock when each slot was last used
    clock: I64
    dense_row: F64  # (d,), a sparse row in dense form
    buffer: F64  # (2, n) kernel values
    random: I64  # the state of Lehmer's generator, which gives the same numbers everywhere
    n_steps: I64
    n_evaluations: I64


@njit(cache=True, nogil=True)
def put(members: Members, i: int, belongs: bool) -> None:
    """Add row i to the set, or remove it; when a row is removed, the last row takes its position."""
    at, size = members.where[i], members.size[0]
    if belongs and at < 0:
        members.rows[size], members.where[i] = i, size
        members.size[0] += 1
    elif not belongs and at >= 0:
        last = members.rows[size - 1]
        members.rows[at], members.where[last] = last, at
        members.where[i] = -1
        members.size[0] -= 1


def sort(members: Members) -> None:
    """Sort the set by row number, the order of rows in memory: sums over it then take a quarter less time."""
    rows = members.rows[: members.size[0]]
    rows.sort()
    members.where[rows] = np.arange(len(rows))


@register_jitable
def claim_slot(state: State, i: int) -> None:
    """Reserve a slot of the cache for the kernel values of row i, in place of the least recently used row."""
    if state.holder.size == 0:
        return
    slot = state.slot[i]
    if slot < 0:
        slot = np.argmin(state.used)
        if state.holder[slot] >= 0:
            state.slot[state.holder[slot]] = -1
        state.holder[slot], state.slot[i] = i, slot
        state.cached[slot] = np.nan
    state.clock[0] += 1
    state.used[slot] = state.clock[0]


@register_jitable(fastmath=REORDERED_SUMS)
def _multiply_dense(X: F32, i: int, j: int) -> float:
    """Return x_i.x_j."""
    total = 0.0
    for c in range(X.shape[1]):
        total += np.float64(X[i, c]) * np.float64(X[j, c])
    return total


@register_jitable
def _multiply_sparse(problem: Problem, j: int, v: F64) -> float:
    """Return x_j.v of a sparse row x_j."""
    total = 0.0
    for e in range(problem.indptr[j], problem.indptr[j + 1]):
        total += problem.data[e] * v[problem.indices[e]]
    return total


@register_jitable
def compute_kernel_value(problem: Problem, i: int, j: int, product: float) -> float:
    """Return k(x_i, x_j), given `product` = x_i.x_j."""
    if problem.kernel.code == LINEAR:
        return product
    if problem.kernel.code == RBF:
        return float(np.exp(-problem.kernel.gamma * max(problem.squares[i] + problem.squares[j] - 2.0 * product, 0.0)))
    if problem.kernel.code == POLY:
        return float((problem.kernel.gamma * product + problem.kernel.coef0) ** problem.kernel.degree)
    return float(np.tanh(problem.kernel.gamma * product + problem.kernel.coef0))


@register_jitable
def fill_kernel_values(problem: Problem, state: State, i: int, rows: I64, values: F64) -> None:
    """Set values[e] to k(x_i, x_rows[e]), using cached values.

    A sparse row i is expanded to dense form for the products, which is faster than merging the indices of two rows.
    """
    slot = state.slot[i]
    sparse = problem.indptr.size > 0
    if sparse:
        for e in range(problem.indptr[i], problem.indptr[i + 1]):
            state.dense_row[problem.indices[e]] = problem.data[e]
    for e in range(rows.size):
        j = rows[e]
        if slot >= 0 and not np.isnan(state.cached[slot, j]):
            values[e] = state.cached[slot, j]
            continue
        product = _multiply_sparse(problem, j, state.dense_row) if sparse else _multiply_dense(problem.X, i, j)
        values[e] = compute_kernel_value(problem, i, j, product)
        state.n_evaluations[0] += 1
        if slot >= 0:
            state.cached[slot, j] = values[e]
    if sparse:
        for e in range(problem.indptr[i], problem.indptr[i + 1]):
            state.dense_row[problem.indices[e]] = 0.0


@register_jitable(fastmath=REORDERED_SUMS)
def _score_folded(problem: Problem, w: F64, i: int) -> float:
    """Return x_i.w."""
    if problem.indptr.size > 0:
        return float(_multiply_sparse(problem, i, w))
    total = 0.0
    for c in range(w.size):
        total += problem.X[i, c] * w[c]
    return total


@register_jitable
def find_error(problem: Problem, state: State, i: int) -> float:
    """Return E_i: for free rows from the error cache, otherwise from w or from all support vectors."""
    if state.free.where[i] >= 0:
        return float(state.errors[i])
    if problem.folds:
        return float(_score_folded(problem, state.w, i) + state.b[0] - problem.y[i])
    rows, values = state.support.rows[: state.support.size[0]], state.buffer[0]
    fill_kernel_values(problem, state, i, rows, values)
    total = 0.0
    for e in range(rows.size):
        total += state.alpha[rows[e]] * problem.y[rows[e]] * values[e]
    return float(total + state.b[0] - problem.y[i])


@register_jitable
def set_multiplier(problem: Problem, state: State, i: int, a: float, E: float) -> None:
    """Set a_i, and whether row i is free and a support vector. E: the row's error before the step."""
    state.alpha[i], state.errors[i] = a, E
    put(state.support, i, a > 0.0)
    put(state.free, i, 0.0 < a < problem.costs[i])


@njit(cache=True, nogil=True)
def add_to_w(problem: Problem, w: F64, i: int, coef: float) -> None:
    """Add coef x_i to w."""
    if problem.indptr.size > 0:
        for e in range(problem.indptr[i], problem.indptr[i + 1]):
            w[problem.indices[e]] += coef * problem.data[e]
    else:
        for c in range(w.size):
            w[c] += coef * problem.X[i, c]


@register_jitable
def update_errors(problem: Problem, state: State, i1: int, i2: int, c1: float, c2: float, b_change: float) -> None:
    """Update the errors of free rows after a_i y_i of rows i1 and i2 changed by c1 and c2, and b by b_change."""
    rows = state.free.rows[: state.free.size[0]]
    if problem.folds:
        add_to_w(problem, state.w, i1, c1)
        add_to_w(problem, state.w, i2, c2)
        for i in rows:
            state.errors[i] = _score_folded(problem, state.w, i) + state.b[0] - problem.y[i]
        return
    for k in range(2):
        fill_kernel_values(problem, state, i1 if k == 0 else i2, rows, state.buffer[k])
    for e in range(rows.size):
        state.errors[rows[e]] += c1 * state.buffer[0, e] + c2 * state.buffer[1, e] + b_change


def describe_problem(X: Matrix, y: F64, costs: F64, kernel: Kernel, tol: float, fold: bool) -> Problem:
    """Return the problem as arrays for compiled code. fold: whether a linear kernel is computed through w."""
    if isinstance(X, CsrRows):
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        squares = np.bincount(row, X.data.astype(np.float64) ** 2, X.shape[0]).astype(np.float64)
        dense, sparse = np.zeros((0, 0), np.float32), (X.data, X.indices, X.indptr)
    else:
        squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
        dense = np.ascontiguousarray(X)
        sparse = np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(0, np.int64)
    rows, about = (dense, *sparse), (y.astype(np.float64), costs.astype(np.float64))
    compiled = CompiledKernel(KERNELS.index(kernel.name), float(kernel.gamma), float(kernel.coef0), int(kernel.degree))
    return Problem(*rows, *about, compiled, float(tol), fold and kernel.name == "linear", squares)


def make_state(alpha: F64, n_features: int, n_slots: int, seed: int) -> State:
    """Return a state with the multipliers alpha (n,), empty sets of rows, and `n_slots` slots for kernel rows."""
    n = len(alpha)

    def zeros(size: int) -> I64:
        return np.zeros(size, np.int64)

    return State(
        alpha=alpha.astype(np.float64),
        b=np.zeros(1),
        w=np.zeros(n_features),
        errors=np.zeros(n),
        unbiased=np.zeros(n),
        violation=np.zeros(n),
        free=Members(zeros(n), np.full(n, -1), zeros(1)),
        support=Members(zeros(n), np.full(n, -1), zeros(1)),
        cached=np.empty((n_slots, n)),
        slot=np.full(n, -1),
        holder=np.full(n_slots, -1),
        used=zeros(n_slots),
        clock=zeros(1),
        dense_row=np.zeros(n_features),
        buffer=np.empty((2, n)),
        random=np.random.default_rng(seed).integers(1, 2**31 - 2, 1),
        n_steps=zeros(1),
        n_evaluations=zeros(1),
    )


@register_jitable
def find_best(a2: float, slope: float, curvature: float, low: float, high: float) -> float:
    """Return the minimiser of curvature/2 (a - a2)^2 - slope (a - a2) over [low, high], or a2 if no end is better."""
    if curvature > 0.0:
        return min(max(a2 + slope / curvature, low), high)
    at_low = (low - a2) * (0.5 * curvature * (low - a2) - slope)
    at_high = (high - a2) * (0.5 * curvature * (high - a2) - slope)
    if min(at_low, at_high) >= 0.0:
        return a2
    return low if at_low < at_high else high


@register_jitable
def _snap(a: float, cost: float, slack: float) -> float:
    """Return the bound, 0 or C_i, if the multiplier is within `slack` of it, otherwise the multiplier."""
    if a <= slack:
        return 0.0
    return cost if a >= cost - slack else a


@register_jitable
def take_step(problem: Problem, state: State, i1: int, i2: int, E2: float) -> bool:
    """Optimise the pair by equations (7) to (9), and change b; return False if the pair cannot be improved.

    If a row of the pair is now free, b is set so that the error of this row is zero. Otherwise b is set half-way
    between the two values that would make the error of either row zero.
    """
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
    fill_kernel_values(problem, state, i1, np.array([i2]), state.buffer[0])
    k12 = state.buffer[0, 0]
    curvature = k11 + k22 - 2.0 * k12
    if abs(curvature) <= FLAT_CURVATURE * (abs(k11) + abs(k22)):
        curvature = 0.0
    slack = BOUND_TOLERANCE * (a1 + a2)
    new2 = _snap(find_best(a2, y2 * (E1 - E2), curvature, low, high), cost2, slack)
    new1 = _snap(a1 + s * (a2 - new2), cost1, slack)
    if new1 == a1 or new2 == a2:
        return False
    c1, c2 = y1 * (new1 - a1), y2 * (new2 - a2)
    b1, b2 = -E1 - c1 * k11 - c2 * k12, -E2 - c1 * k12 - c2 * k22
    set_multiplier(problem, state, i1, new1, E1)
    set_multiplier(problem, state, i2, new2, E2)
    b_change = 0.5 * (b1 + b2)
    if state.free.where[i1] >= 0:
        b_change = b1
    elif state.free.where[i2] >= 0:
        b_change = b2
    state.b[0] += b_change
    state.n_steps[0] += 1
    claim_slot(state, i1)
    claim_slot(state, i2)
    update_errors(problem, state, i1, i2, c1, c2, b_change)
    return True


@dataclass(frozen=True, slots=True)
class PlattResult:
    """Multipliers alpha (n,) and b of f(x) = sum_j alpha_j y_j k(x_j, x) + b, with counts of the work.

    n_kernel_evaluations: the number of kernel values computed, excluding the diagonal. converged: whether the last
    sweep over all rows took no step, and each row meets its condition within tol at this b.
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
    rows = state.free.rows[: state.free.size[0]]
    return int(rows[np.argmax(np.abs(state.errors[rows] - E2))])


@register_jitable
def _draw(state: State, below: int) -> int:
    """Return the next random number of Lehmer's generator, modulo `below`."""
    state.random[0] = state.random[0] * 48271 % 2147483647
    return int(state.random[0] % below)


@register_jitable
def _find_partner(problem: Problem, state: State, i2: int, E2: float) -> bool:
    """Take a step with row i2 and a partner; return False if every partner is rejected.

    The partners are tried in this order: the second choice, the free rows, and all rows. Rows are tried in cyclic order
    from random starts.
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
    """Take a step from row i2 if it violates its condition; return whether a step was taken.

    If no partner allows a step, b is wrong. It is then set so that the error of the row is zero.
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
    """Examine the rows in order; return the number of steps taken."""
    n_changed = 0
    for i in rows:
        n_changed += _examine(problem, state, i)
    return n_changed


@njit(cache=True, nogil=True)
def _fill_unbiased_errors(problem: Problem, state: State) -> None:
    """Compute E_i - b of all rows."""
    for i in range(state.alpha.size):
        state.unbiased[i] = find_error(problem, state, i) - state.b[0]


def _center(problem: Problem, state: State) -> float:
    """Set b half-way between its bounds, which follow from the conditions of the rows.

    If all rows belong to one class, b may have only one bound, and is set to it. Return the largest violation at the
    new b, or 0 if no row violates its condition.
    """
    positive, below_cost, above_zero = problem.y > 0, state.alpha < problem.costs, state.alpha > 0
    least = state.unbiased[np.where(positive, below_cost, above_zero)].min(initial=np.inf)
    most = state.unbiased[np.where(positive, above_zero, below_cost)].max(initial=-np.inf)
    bounds = [bound for bound in (least, most) if np.isfinite(bound)]
    state.b[0] = -np.mean(bounds) if bounds else 0.0
    return float(max(0.0, 0.5 * (most - least)))


def _iterate(problem: Problem, state: State, max_sweeps: int, max_values: int) -> tuple[int, bool]:
    """Sweep until a sweep over all rows changes nothing, or a limit is reached.

    Return the number of sweeps, and whether the last sweep changed nothing. Shrinking: sweeps skip rows whose leeway
    exceeds the largest violation, until the other rows no longer change.
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
        changed = False
        for at in range(0, len(swept), ROWS_OF_A_CALL):  # one part after another, so that Ctrl-C is noticed
            interrupts.check()
            changed |= _sweep(problem, state, swept[at : at + ROWS_OF_A_CALL]) > 0
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
    """Fill the state: first the support vectors, then all errors and b, finally the free rows with their errors."""
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
    """Minimise 1/2 (y a)' K (y a) - sum a over 0 <= a_i <= C_i, with y'a fixed, to a violation of at most tol.

    X (n, d): dense float32 rows or CSR rows; y (n,): -1 or +1; costs (n,): C_i >= 0; alpha (n,): feasible multipliers
    to start from, or None for zeros.
    tol: y_i f(x_i) - 1 is at least -tol for rows with a_i < C_i, and at most tol for rows with a_i > 0.
    cache_bytes: the memory for rows of the kernel matrix in float64; the least recently used row is evicted first.
    fold: whether a linear kernel is computed through w = sum_i a_i y_i x_i, without kernel rows.
    max_sweeps: the maximum number of sweeps. max_values: the number of kernel values after which no new sweep begins.
    The same seed gives the same bits. Source: Platt 1998, section 2.
    """
    n = X.shape[0]
    problem = describe_problem(X, y, costs, kernel, tol, fold)
    n_slots = 0 if problem.folds else min(cache_bytes // (8 * n), n)
    state = make_state(np.zeros(n) if alpha is None else alpha, X.shape[1], n_slots, seed)
    _start(problem, state)
    n_sweeps, settled = _iterate(problem, state, max_sweeps, max_values)
    converged = settled and _center(problem, state) <= tol * (1 + TOL_ROUNDING)
    steps, evaluations = int(state.n_steps[0]), int(state.n_evaluations[0])
    return PlattResult(state.alpha, float(state.b[0]), steps, evaluations, n_sweeps, converged)
