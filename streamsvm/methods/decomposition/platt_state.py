"""What Platt's SMO holds in memory: the problem, multipliers and errors, and kernel values on demand, kept or not.

    E_i = f(x_i) - y_i,   f(x) = sum_j a_j y_j k(x_j, x) + b

Dense and sparse rows go through the same compiled functions: the arrays that a problem does not need are empty.
Numba's cache of platt.py takes no notice of changes here: who makes some removes platt.*.nbi from __pycache__.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from streamsvm.numeric.kernel_codes import KERNELS
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F32, F64, I32, I64, SUMS_MAY_BE_REORDERED, CsrRows, Matrix

LINEAR, RBF, POLY = 0, 1, 2  # places in KERNELS; the last is sigmoid


class Problem(NamedTuple):
    """What does not change. Dense rows are X (n, d), sparse ones the other three; those not used are empty."""

    X: F32
    data: F32
    indices: I32
    indptr: I64
    y: F64
    costs: F64
    kind: int
    gamma: float
    degree: int
    coef0: float
    tol: float
    folds: bool
    squares: F64  # |x_i|^2


class Members(NamedTuple):
    """A set of rows: the first size[0] of rows, in the order of their coming; where[i] is -1 for rows outside."""

    rows: I64
    where: I64
    size: I64


class State(NamedTuple):
    """What changes. Numbers are arrays of one."""

    alpha: F64
    b: F64
    w: F64  # sum a_i y_i x_i, where a linear kernel is folded
    errors: F64  # E of free rows: Platt's error cache
    unbiased: F64  # E - b of each row when it was last looked at
    violation: F64  # by how much it broke its condition then; negative: how far inside it was
    free: Members
    support: Members
    cached: F64  # (slots, n) kernel rows; NaN is not computed yet
    slot: I64  # of row i, or -1
    holder: I64  # row in each slot, or -1
    used: I64  # when each slot was last used, by the clock
    clock: I64
    dense_row: F64  # a sparse row, spread out
    buffer: F64  # (2, n) kernel values
    single: I64  # room for one row's number
    chance: I64  # Lehmer's random numbers, so that the same seed gives the same answer everywhere
    n_steps: I64
    n_evaluations: I64


@njit(cache=True, nogil=True)
def put(members: Members, i: int, belongs: bool) -> None:
    """Add row i to the set, or take it out: the last one fills its place."""
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
    """Order the set by row, as the rows lie in memory: sums over it are then a quarter quicker."""
    rows = members.rows[: members.size[0]]
    rows.sort()
    members.where[rows] = np.arange(len(rows))


@njit(cache=True, nogil=True)
def claim_slot(state: State, i: int) -> None:
    """Keep row i's kernel values from now on, in place of those of the row used longest ago."""
    if state.holder.size == 0:
        return
    slot = state.slot[i]
    if slot < 0:
        slot = 0
        for k in range(state.used.size):
            if state.used[k] < state.used[slot]:
                slot = k
        if state.holder[slot] >= 0:
            state.slot[state.holder[slot]] = -1
        state.holder[slot], state.slot[i] = i, slot
        state.cached[slot] = np.nan
    state.clock[0] += 1
    state.used[slot] = state.clock[0]


@njit(cache=True, nogil=True, fastmath=SUMS_MAY_BE_REORDERED)
def _multiply_dense(X: F32, i: int, j: int) -> float:
    total = 0.0
    for c in range(X.shape[1]):
        total += np.float64(X[i, c]) * np.float64(X[j, c])
    return total


@njit(cache=True, nogil=True)
def _multiply_sparse(problem: Problem, j: int, v: F64) -> float:
    total = 0.0
    for e in range(problem.indptr[j], problem.indptr[j + 1]):
        total += problem.data[e] * v[problem.indices[e]]
    return total


@njit(cache=True, nogil=True)
def compute_kernel_value(problem: Problem, i: int, j: int, product: float) -> float:
    """k(x_i, x_j), given x_i.x_j."""
    if problem.kind == LINEAR:
        return product
    if problem.kind == RBF:
        return float(np.exp(-problem.gamma * max(problem.squares[i] + problem.squares[j] - 2.0 * product, 0.0)))
    if problem.kind == POLY:
        return float((problem.gamma * product + problem.coef0) ** problem.degree)
    return float(np.tanh(problem.gamma * product + problem.coef0))


@njit(cache=True, nogil=True)
def fill_kernel_values(problem: Problem, state: State, i: int, rows: I64, values: F64) -> None:
    """values[e] = k(x_i, x_rows[e]), out of the cache where it is known.

    Sparse products go by one row spread out, which is quicker than merging two.
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


@njit(cache=True, nogil=True, fastmath=SUMS_MAY_BE_REORDERED)
def _score_folded(problem: Problem, w: F64, i: int) -> float:
    if problem.indptr.size > 0:
        return float(_multiply_sparse(problem, i, w))
    total = 0.0
    for c in range(w.size):
        total += problem.X[i, c] * w[c]
    return total


@njit(cache=True, nogil=True)
def find_error(problem: Problem, state: State, i: int) -> float:
    """E_i: from the error cache for free rows, otherwise from w or from all support vectors."""
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


@njit(cache=True, nogil=True)
def set_multiplier(problem: Problem, state: State, i: int, a: float, E: float) -> None:
    """E: its error before the step."""
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


@njit(cache=True, nogil=True)
def update_errors(problem: Problem, state: State, i1: int, i2: int, c1: float, c2: float, moved: float) -> None:
    """Bring the errors of free rows up to date: a_i y_i changed by c1 and c2, b by `moved`."""
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
        state.errors[rows[e]] += c1 * state.buffer[0, e] + c2 * state.buffer[1, e] + moved


def describe_problem(X: Matrix, y: F64, costs: F64, kernel: Kernel, tol: float, fold: bool) -> Problem:
    """Arrays for compiled code; fold: a linear kernel by w."""
    none = np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(0, np.int64)
    if isinstance(X, CsrRows):
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        squares = np.bincount(row, X.data.astype(np.float64) ** 2, X.shape[0]).astype(np.float64)
        rows = np.zeros((0, 0), np.float32), X.data, X.indices, X.indptr
    else:
        squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
        rows = np.ascontiguousarray(X), *none
    return Problem(
        *rows, y.astype(np.float64), costs.astype(np.float64), KERNELS.index(kernel.name), float(kernel.gamma),
        int(kernel.degree), float(kernel.coef0), float(tol), fold and kernel.name == "linear", squares,
    )  # fmt: skip


def make_state(alpha: F64, n_features: int, n_slots: int, seed: int) -> State:
    """State of multipliers of which no row is known yet to be a support vector; kernel rows for n_slots rows."""
    n = len(alpha)

    def none() -> Members:
        return Members(np.zeros(n, np.int64), np.full(n, -1), np.zeros(1, np.int64))

    def zero() -> I64:
        return np.zeros(1, np.int64)

    chance = np.random.default_rng(seed).integers(1, 2**31 - 2, 1)
    return State(
        alpha.astype(np.float64), np.zeros(1), np.zeros(n_features),
        np.zeros(n), np.zeros(n), np.zeros(n), none(), none(),
        np.empty((n_slots, n)), np.full(n, -1), np.full(n_slots, -1), np.zeros(n_slots, np.int64), zero(),
        np.zeros(n_features), np.empty((2, n)), zero(), chance, zero(), zero(),
    )  # fmt: skip
