"""The memory of Platt's SMO: the problem, multipliers, errors, and a cache of kernel values computed on demand.

    E_i = f(x_i) - y_i,   f(x) = sum_j a_j y_j k(x_j, x) + b

Dense and sparse rows go through the same compiled functions: the arrays that a problem does not need are empty.
Numba's caches of platt.py and platt_steps.py do not notice changes here: delete platt*.nbi from __pycache__ after one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.kernel_codes import KERNELS
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.row_products import SUMS_MAY_BE_REORDERED
from streamsvm.numeric.rows import F32, F64, I32, I64, CsrRows, Matrix

LINEAR, RBF, POLY = 0, 1, 2  # positions in KERNELS; the fourth kernel is the sigmoid


class Problem(NamedTuple):
    """What does not change. Dense rows are in X (n, d); sparse rows are in data, indices and indptr, with X empty.

    kind: the kernel's position in KERNELS. folds: whether scores come from w. squares: (n,), |x_i|^2.
    """

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
    squares: F64


class Members(NamedTuple):
    """A set of rows: rows[:size[0]]; where[i] is the position of row i in it, or -1 if row i is not a member."""

    rows: I64
    where: I64
    size: I64


class State(NamedTuple):
    """What changes during the solution. Single numbers are arrays of length 1, which compiled code can change."""

    alpha: F64
    b: F64
    w: F64  # sum a_i y_i x_i if the problem folds
    errors: F64  # E_i of free rows: Platt's error cache
    unbiased: F64  # E_i - b of each row when it was last examined
    violation: F64  # of its condition at that time; negative inside it
    free: Members
    support: Members
    cached: F64  # (slots, n) kernel rows; values that were not computed yet are NaN
    slot: I64  # (n,), the slot of each row, or -1
    holder: I64  # (slots,), the row in each slot, or -1
    used: I64  # (slots,), the clock when each slot was last used
    clock: I64
    dense_row: F64  # (d,), a sparse row written out
    buffer: F64  # (2, n) kernel values
    single: I64  # room for one row's number
    random: I64  # the state of Lehmer's generator, which gives the same numbers everywhere
    n_steps: I64
    n_evaluations: I64


@njit(cache=True, nogil=True)
def put(members: Members, i: int, belongs: bool) -> None:
    """Make row i a member of the set or not. When a row leaves, the last row takes its position."""
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
    """Order the set by row number, as the rows lie in memory: sums over it then take a quarter less time."""
    rows = members.rows[: members.size[0]]
    rows.sort()
    members.where[rows] = np.arange(len(rows))


@register_jitable
def claim_slot(state: State, i: int) -> None:
    """Keep row i's kernel values from now on, in the slot of the row that was used longest ago."""
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


@register_jitable(fastmath=SUMS_MAY_BE_REORDERED)
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
    if problem.kind == LINEAR:
        return product
    if problem.kind == RBF:
        return float(np.exp(-problem.gamma * max(problem.squares[i] + problem.squares[j] - 2.0 * product, 0.0)))
    if problem.kind == POLY:
        return float((problem.gamma * product + problem.coef0) ** problem.degree)
    return float(np.tanh(problem.gamma * product + problem.coef0))


@register_jitable
def fill_kernel_values(problem: Problem, state: State, i: int, rows: I64, values: F64) -> None:
    """Set values[e] to k(x_i, x_rows[e]), from the cache if the value is there.

    One sparse row is written out for the products, which is faster than merging the indices of two rows.
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


@register_jitable(fastmath=SUMS_MAY_BE_REORDERED)
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
    """Return E_i, from the error cache for free rows, and otherwise from w or from all support vectors."""
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
    """Set a_i, and the row's membership of both sets. E: the row's error before the step."""
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
    data, indices, indptr = sparse
    return Problem(
        X=dense,
        data=data,
        indices=indices,
        indptr=indptr,
        y=y.astype(np.float64),
        costs=costs.astype(np.float64),
        kind=KERNELS.index(kernel.name),
        gamma=float(kernel.gamma),
        degree=int(kernel.degree),
        coef0=float(kernel.coef0),
        tol=float(tol),
        folds=fold and kernel.name == "linear",
        squares=squares,
    )


def make_state(alpha: F64, n_features: int, n_slots: int, seed: int) -> State:
    """Return a state with empty sets of rows, for these multipliers, with slots for n_slots kernel rows."""
    n = len(alpha)

    def no_members() -> Members:
        return Members(rows=np.zeros(n, np.int64), where=np.full(n, -1), size=np.zeros(1, np.int64))

    def zero() -> I64:
        return np.zeros(1, np.int64)

    return State(
        alpha=alpha.astype(np.float64),
        b=np.zeros(1),
        w=np.zeros(n_features),
        errors=np.zeros(n),
        unbiased=np.zeros(n),
        violation=np.zeros(n),
        free=no_members(),
        support=no_members(),
        cached=np.empty((n_slots, n)),
        slot=np.full(n, -1),
        holder=np.full(n_slots, -1),
        used=np.zeros(n_slots, np.int64),
        clock=zero(),
        dense_row=np.zeros(n_features),
        buffer=np.empty((2, n)),
        single=zero(),
        random=np.random.default_rng(seed).integers(1, 2**31 - 2, 1),
        n_steps=zero(),
        n_evaluations=zero(),
    )
