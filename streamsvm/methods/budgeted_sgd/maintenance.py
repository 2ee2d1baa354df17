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
from numba.extending import register_jitable

from streamsvm.methods.budgeted_sgd.merging import build_table, merge_by_ascent, merge_in_turn, rate_partners
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


def choose_table(rules: BudgetRules) -> F32:
    """Return the table of merging, or for rules that merge nothing a vector without entries."""
    return build_table() if rules.maintenance in (MERGE, GRADIENT_MERGE) else np.empty(0, np.float32)


@register_jitable
def _drop(state: BudgetState, slot: int, K: F32) -> None:
    """Remove the vector of a slot. The last vector moves there, with its kernel values."""
    last = state.counts[VECTORS] - 1
    if slot != last:
        for j in range(len(state.vectors)):  # as slices they take much longer to compile
            state.vectors[j, slot] = state.vectors[j, last]
        for i in range(len(K)):
            K[i, slot] = K[i, last]
        state.squares[slot], state.alpha[slot] = state.squares[last], state.alpha[last]
    state.counts[VECTORS] = last


@register_jitable
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


@register_jitable
def _sort(slots: I64) -> None:
    """Sort a few numbers in place; np.sort takes much longer to compile."""
    for k in range(1, slots.size):
        slot, at = slots[k], k
        while at > 0 and slots[at - 1] > slot:
            slots[at] = slots[at - 1]
            at -= 1
        slots[at] = slot


@register_jitable
def _compute_separations(state: BudgetState, gamma: float, slot: int) -> F32:
    """Return gamma |z_slot - z_j|^2 for all support vectors, (n,), from one product."""
    n = state.counts[VECTORS]
    features = np.nonzero(state.vectors[:, slot])[0]
    values = np.empty(features.size, np.float32)
    for e in range(features.size):
        values[e] = state.vectors[features[e], slot]
    sums = np.empty(n, np.float32)
    multiply_vectors(state.vectors, features, values, np.int64(0), sums)  # the literal would be compiled once more
    factor, square = np.float32(gamma), state.squares[slot]
    for j in range(n):
        sums[j] = factor * (square + state.squares[j] - sums[j] - sums[j])
    return sums


@register_jitable
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
        apart, of_pair = np.zeros((2, 2)), np.array([alpha[group[0]], alpha[group[1]]])
        apart[0, 1] = apart[1, 0] = max(separations[group[1]], np.float32(0.0))
        shares, merged, _ = merge_in_turn(of_pair, apart)
        distance_to_z = np.float32(abs(shares[1]) * np.sqrt(apart[0, 1]))  # of x_a, times the root of gamma
        for j in range(alpha.size):
            separations[j] = np.float32(-2.0) * (np.sqrt(max(separations[j], np.float32(0.0))) + distance_to_z) ** 2
        exponentiate(separations)
        for j in range(alpha.size):
            smaller = min(abs(alpha[j]), abs(merged))
            degradations[j] = smaller * smaller * (1.0 - separations[j])
        degradations[group[0]] = degradations[group[1]] = np.inf
        others = _find_least(degradations, rules.merge - 2)
        for k in range(others.size):
            group[2 + k] = others[k]
    return group


@register_jitable
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
    _sort(group)
    slot, square = group[0], 0.0
    for k in range(d):
        value = np.float32(np.sum(shares * points[:, k]))
        state.vectors[k, slot] = value
        square += np.float64(value) * value
    state.squares[slot], state.alpha[slot] = square, merged
    for other in group[:0:-1]:
        _drop(state, other, K)
    return slot, loss


@register_jitable
def _compute_gram(state: BudgetState, rules: BudgetRules, slots: I64) -> F64:
    """Return the kernel matrix of the vectors in these slots."""
    points = np.empty((slots.size, state.vectors.shape[0]))
    for i in range(slots.size):
        for j in range(points.shape[1]):
            points[i, j] = state.vectors[j, slots[i]]
    gram: F64 = np.dot(points, points.T)
    squares = np.diag(gram).copy()
    apply_kernel(rules.kernel, rules.gamma, rules.coef0, rules.degree, gram, squares, squares)
    return gram


@register_jitable
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


@register_jitable
def _remove(state: BudgetState, rules: BudgetRules, K: F32) -> float:
    """Remove the M - 1 vectors of smallest |alpha|, by projection if the rules say so; return |Delta|^2 at scale 1."""
    n = state.counts[VECTORS]
    removed = _find_least(np.abs(state.alpha[:n]), rules.merge - 1)
    _sort(removed)
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

    table: what `choose_table` returns; the compiler leaves out what the rules with such a table do not need. K (rows,
    slots): kernel values of rows and vectors, whose columns move with their vectors.
    """
    if table.ndim == 2:
        slot, loss = _merge(state, rules, table, K)
    else:
        slot, loss = -1, _remove(state, rules, K)
    loss *= state.totals[SCALE] ** 2
    state.counts[MAINTAINED] += 1
    state.totals[DEGRADATION] += loss
    state.totals[GRADIENT_ERROR] += np.sqrt(loss) * rules.regularisation * (rules.period + state.counts[STEPS])
    return int(slot)
