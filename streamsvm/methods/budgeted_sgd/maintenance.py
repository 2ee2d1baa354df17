"""Budget maintenance: a budgeted model returns to its budget with a small change Delta of w.

    removal          remove the vectors of the smallest |alpha|
    projection       remove them, and change the others so that w changes least: K_BB delta = K_BR alpha_R, by Cholesky
    merge            merge the vector of the smallest |alpha| with M - 1 partners, one after another (Algorithm 1)
    gradient-merge   merge the same vectors all at once, by gradient steps (Algorithm 2)

Each maintenance leaves M - 1 vectors fewer. The first partner is the one with the least degradation, as published. The
paper chooses the other partners in the same way. But a very small coefficient merges with any vector at next to no
cost, and so would bring large ones together. Here the other partners are those that merge with the *pair*, z, at the
least cost. The cost is bounded by min(alpha, alpha_z)^2 (1 - k(x, z)^2), with |x - z| <= |x - x_a| + |x_a - z|. (The
paper argues by this inequality, too.)

Kernel values between support vectors are float64 if they enter a solution or a degradation.
Sources: Wang, Crammer & Vucetic 2012, section 4.2; Qaadan & Glasmachers 2018, section 3.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm.methods.budgeted_sgd.merging import merge_by_ascent, merge_in_turn, rate_partners
from streamsvm.methods.budgeted_sgd.state import (
    DEGRADATION,
    GRADIENT_ERROR,
    GRADIENT_MERGE,
    MAINTAINED,
    MERGE,
    PROJECTION,
    SCALE,
    STEPS,
    VECTORS,
    BudgetRules,
    BudgetState,
    multiply_vectors,
)
from streamsvm.numeric.exponentials import exponentiate
from streamsvm.numeric.kernel_values import apply_kernel
from streamsvm.numeric.rows import F32, F64, I64

PROJECTION_RIDGE = 1e-9  # times the mean diagonal; equal support vectors make K_BB singular


@njit(cache=True, nogil=True)
def _drop(state: BudgetState, slot: int, K: F32) -> None:
    """Remove the vector of a slot. The last vector moves there, with its kernel values."""
    last = state.counts[VECTORS] - 1
    if slot != last:
        state.vectors[:, slot] = state.vectors[:, last]
        state.squares[slot], state.alpha[slot] = state.squares[last], state.alpha[last]
        K[:, slot] = K[:, last]
    state.counts[VECTORS] = last


@njit(cache=True, nogil=True)
def _find_least(values: F32 | F64, count: int) -> I64:
    """Return the positions of the `count` least values, least first, equal ones in order. It overwrites `values`."""
    found = np.empty(count, np.int64)
    for k in range(count):
        at = 0
        for j in range(1, values.size):
            if values[j] < values[at]:
                at = j
        found[k], values[at] = at, np.inf
    return found


@njit(cache=True, nogil=True)
def _compute_separations(state: BudgetState, gamma: float, slot: int) -> F32:
    """Return gamma |z_slot - z_j|^2 for all support vectors, (n,), from one product."""
    n = state.counts[VECTORS]
    features = np.nonzero(state.vectors[:, slot])[0]
    values = np.empty(features.size, np.float32)
    for e in range(features.size):
        values[e] = state.vectors[features[e], slot]
    sums = np.empty(n, np.float32)
    multiply_vectors(state.vectors, features, values, 0, sums)
    factor, square = np.float32(gamma), state.squares[slot]
    for j in range(n):
        sums[j] = factor * (square + state.squares[j] - sums[j] - sums[j])
    return sums


@njit(cache=True, nogil=True)
def _choose_group(state: BudgetState, rules: BudgetRules, table: F32) -> I64:
    """Return the slots to merge: that of the smallest |alpha|, its best partner, and the M - 2 best of the pair."""
    alpha = state.alpha[: state.counts[VECTORS]]
    group = np.empty(rules.merge, np.int64)
    group[0] = _find_least(np.abs(alpha), 1)[0]
    degradations = np.empty(alpha.size)
    separations = _compute_separations(state, rules.gamma, group[0])
    rate_partners(table, alpha[group[0]], alpha, separations, degradations)
    degradations[group[0]] = np.inf
    group[1] = _find_least(degradations, 1)[0]
    if rules.merge > 2:
        pair, apart = group[:2], np.zeros((2, 2))
        apart[0, 1] = apart[1, 0] = max(separations[group[1]], np.float32(0.0))
        shares, merged, _ = merge_in_turn(alpha[pair], apart)
        distance_to_z = np.float32(abs(shares[1]) * np.sqrt(apart[0, 1]))  # of x_a, times the root of gamma
        for j in range(alpha.size):
            separations[j] = np.float32(-2.0) * (np.sqrt(max(separations[j], np.float32(0.0))) + distance_to_z) ** 2
        exponentiate(separations)
        for j in range(alpha.size):
            smaller = min(abs(alpha[j]), abs(merged))
            degradations[j] = smaller * smaller * (1.0 - separations[j])
        degradations[pair] = np.inf
        group[2:] = _find_least(degradations, rules.merge - 2)
    return group


@njit(cache=True, nogil=True)
def _merge(state: BudgetState, rules: BudgetRules, table: F32, K: F32) -> tuple[int, float]:
    """Merge M vectors; return the slot of the new one, and |Delta|^2 at a scale of 1."""
    group = _choose_group(state, rules, table)
    m, d = group.size, state.vectors.shape[0]
    points, separations = np.empty((m, d)), np.zeros((m, m))
    for i in range(m):
        for k in range(d):
            points[i, k] = state.vectors[k, group[i]]
        for j in range(i):
            separations[i, j] = rules.gamma * np.sum((points[i] - points[j]) ** 2)
            separations[j, i] = separations[i, j]
    if rules.maintenance == GRADIENT_MERGE:
        shares, merged, loss = merge_by_ascent(state.alpha[group], separations)
    else:
        shares, merged, loss = merge_in_turn(state.alpha[group], separations)
    group = np.sort(group)
    slot, square = group[0], 0.0
    for k in range(d):
        value = np.float32(np.sum(shares * points[:, k]))
        state.vectors[k, slot] = value
        square += np.float64(value) * value
    state.squares[slot], state.alpha[slot] = square, merged
    for other in group[:0:-1]:
        _drop(state, other, K)
    return slot, loss


@njit(cache=True, nogil=True)
def _compute_gram(state: BudgetState, rules: BudgetRules, slots: I64) -> F64:
    """Return the kernel matrix of the vectors in these slots."""
    points = np.empty((slots.size, state.vectors.shape[0]))
    for i in range(slots.size):
        points[i] = state.vectors[:, slots[i]]
    gram: F64 = np.dot(points, points.T)
    squares = np.diag(gram).copy()
    apply_kernel(rules.kernel, rules.gamma, rules.coef0, rules.degree, gram, squares, squares)
    return gram


@njit(cache=True, nogil=True)
def _solve(K: F64, b: F64) -> F64:
    """Solve K x = b by Cholesky; K is symmetric and positive semidefinite, and a ridge makes it definite."""
    L = np.linalg.cholesky(K + PROJECTION_RIDGE * np.trace(K) / b.size * np.eye(b.size))
    x = b.copy()
    for i in range(b.size):
        x[i] = (x[i] - np.sum(L[i, :i] * x[:i])) / L[i, i]
    for i in range(b.size - 1, -1, -1):
        x[i] /= L[i, i]
        x[:i] -= L[i, :i] * x[i]
    return x


@njit(cache=True, nogil=True)
def _remove(state: BudgetState, rules: BudgetRules, K: F32) -> float:
    """Remove the M - 1 vectors of smallest |alpha|, by projection if the rules say so; return |Delta|^2 at scale 1."""
    n = state.counts[VECTORS]
    removed = np.sort(_find_least(np.abs(state.alpha[:n]), rules.merge - 1))
    alpha = state.alpha[removed]
    gram = _compute_gram(state, rules, removed)
    loss = np.sum(alpha * (gram @ alpha))
    if rules.maintenance == PROJECTION and removed.size < n:
        is_kept = np.ones(n, np.bool_)
        is_kept[removed] = False
        kept = np.nonzero(is_kept)[0]
        both = _compute_gram(state, rules, np.concatenate((kept, removed)))
        right_side = np.ascontiguousarray(both[: kept.size, kept.size :]) @ alpha
        K_kept = np.ascontiguousarray(both[: kept.size, : kept.size])
        change = _solve(K_kept, right_side)
        loss += np.sum(change * (K_kept @ change)) - 2.0 * np.sum(change * right_side)
        state.alpha[kept] += change
    for slot in removed[::-1]:
        _drop(state, slot, K)
    return float(max(0.0, loss))


@njit(cache=True, nogil=True)
def keep_budget(state: BudgetState, rules: BudgetRules, table: F32, K: F32) -> int:
    """Maintain the budget once, which leaves M - 1 support vectors fewer; return the slot of the new vector, or -1.

    table: what `build_table` returns, for merging. K (rows, slots): kernel values of rows and vectors, whose columns
    move with their vectors.
    """
    if rules.maintenance in (MERGE, GRADIENT_MERGE):
        slot, loss = _merge(state, rules, table, K)
    else:
        slot, loss = -1, _remove(state, rules, K)
    loss *= state.totals[SCALE] ** 2
    state.counts[MAINTAINED] += 1
    state.totals[DEGRADATION] += loss
    state.totals[GRADIENT_ERROR] += np.sqrt(loss) * rules.regularisation * (rules.period + state.counts[STEPS])
    return int(slot)
