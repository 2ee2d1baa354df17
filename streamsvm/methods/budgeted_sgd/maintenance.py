"""Bringing a budgeted model back to its budget, with the least change of w, or a cheap one.

    removal      drop the smallest |alpha|
    projection   the same, and change the others so that w changes least: K_BB delta = K_BR alpha_R, by Cholesky
    merge        the smallest |alpha| and M - 1 partners, one after another
    gradient     the same vectors, all at once

Each time M - 1 vectors fewer are left. The first partner is that with the least degradation, as published. So are the
others if coefficients are of one size; but a very small one merges with any at next to no cost, then, two large ones
among them. So the others are those which merge with the *pair*, z, at least cost by a bound of the degradation,
min(alpha, alpha_z)^2 (1 - k(x, z)^2), with |x - z| <= |x - x_a| + |x_a - z| (the paper argues by this, too).
Sources: Wang, Crammer & Vucetic 2012, section 4.2; Qaadan & Glasmachers 2018, section 3. Kernel values between support
vectors that enter a solution, or a degradation, are float64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm.methods.budgeted_sgd.merging import merge_by_ascent, merge_in_turn, rate_partners
from streamsvm.methods.budgeted_sgd.state import (
    DEGRADATION,
    GRADIENT_ERROR,
    MAINTAINED,
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

RIDGE = 1e-9  # of the mean diagonal: equal support vectors make K_BB singular


@njit(cache=True, nogil=True)
def _drop(state: BudgetState, slot: int, K: F32) -> None:
    """Free a slot: the last vector moves there, with its kernel values."""
    last = state.counts[VECTORS] - 1
    if slot != last:
        state.vectors[:, slot] = state.vectors[:, last]
        state.squares[slot], state.alpha[slot] = state.squares[last], state.alpha[last]
        K[:, slot] = K[:, last]
    state.counts[VECTORS] = last


@njit(cache=True, nogil=True)
def _find_least(values: F32 | F64, count: int) -> I64:
    """Return the places of the `count` least values, in their order (of equal ones the first); values are spoiled."""
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
    """Gamma |z_slot - z_j|^2 of all support vectors, (n,), from one product."""
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
    """Return the slot of the smallest |alpha|, that of its best partner, and those of the pair's M - 2, best first."""
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
        moved = np.float32(abs(shares[1]) * np.sqrt(apart[0, 1]))
        for j in range(alpha.size):
            separations[j] = np.float32(-2.0) * (np.sqrt(max(separations[j], np.float32(0.0))) + moved) ** 2
        exponentiate(separations)
        for j in range(alpha.size):
            smaller = min(abs(alpha[j]), abs(merged))
            degradations[j] = smaller * smaller * (1.0 - separations[j])
        degradations[pair] = np.inf
        group[2:] = _find_least(degradations, rules.merge - 2)
    return group


@njit(cache=True, nogil=True)
def _merge(state: BudgetState, rules: BudgetRules, table: F32, K: F32) -> tuple[int, float]:
    group = _choose_group(state, rules, table)
    m, d = group.size, state.vectors.shape[0]
    points, separations = np.empty((m, d)), np.zeros((m, m))
    for i in range(m):
        for k in range(d):
            points[i, k] = state.vectors[k, group[i]]
        for j in range(i):
            separations[i, j] = rules.gamma * np.sum((points[i] - points[j]) ** 2)
            separations[j, i] = separations[i, j]
    if rules.maintenance == 1:
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
    points = np.empty((slots.size, state.vectors.shape[0]))
    for i in range(slots.size):
        points[i] = state.vectors[:, slots[i]]
    gram: F64 = np.dot(points, points.T)
    squares = np.diag(gram).copy()
    apply_kernel(rules.kernel, rules.gamma, rules.coef0, rules.degree, gram, squares, squares)
    return gram


@njit(cache=True, nogil=True)
def _solve(K: F64, b: F64) -> F64:
    """K x = b by Cholesky, K symmetric and positive semidefinite."""
    L = np.linalg.cholesky(K + RIDGE * np.trace(K) / b.size * np.eye(b.size))
    x = b.copy()
    for i in range(b.size):
        x[i] = (x[i] - np.sum(L[i, :i] * x[:i])) / L[i, i]
    for i in range(b.size - 1, -1, -1):
        x[i] /= L[i, i]
        x[:i] -= L[i, :i] * x[i]
    return x


@njit(cache=True, nogil=True)
def _remove(state: BudgetState, rules: BudgetRules, K: F32) -> float:
    """Drop the M - 1 smallest, and project them onto the others if so ruled; return the degradation."""
    n = state.counts[VECTORS]
    gone = np.sort(_find_least(np.abs(state.alpha[:n]), rules.merge - 1))
    alpha = state.alpha[gone]
    gram = _compute_gram(state, rules, gone)
    loss = np.sum(alpha * (gram @ alpha))
    if rules.maintenance == 2 and gone.size < n:
        kept = np.ones(n, np.bool_)
        kept[gone] = False
        left = np.nonzero(kept)[0]
        everything = _compute_gram(state, rules, np.concatenate((left, gone)))
        toward = np.ascontiguousarray(everything[: left.size, left.size :]) @ alpha
        inner = np.ascontiguousarray(everything[: left.size, : left.size])
        change = _solve(inner, toward)
        loss += np.sum(change * (inner @ change)) - 2.0 * np.sum(change * toward)
        state.alpha[left] += change
    for slot in gone[::-1]:
        _drop(state, slot, K)
    return float(max(0.0, loss))


@njit(cache=True, nogil=True)
def keep_budget(state: BudgetState, rules: BudgetRules, table: F32, K: F32) -> int:
    """Take M - 1 support vectors out, once; return the slot whose vector is new, or -1.

    table: of `build_table`, if vectors are merged. K (rows, slots): kernel values that follow vectors as they move.
    """
    if rules.maintenance < 2:
        slot, loss = _merge(state, rules, table, K)
    else:
        slot, loss = -1, _remove(state, rules, K)
    loss *= state.totals[SCALE] ** 2
    state.counts[MAINTAINED] += 1
    state.totals[DEGRADATION] += loss
    state.totals[GRADIENT_ERROR] += np.sqrt(loss) * rules.regularisation * (rules.period + state.counts[STEPS])
    return int(slot)
