"""A budgeted model as plain arrays, and its maintenance, which restores the budget by a small change Delta of w.

    f(x) = scale sum_j alpha_j k(z_j, x) + b

Symbols: z_j, the support vectors; alpha_j, their coefficients in units of the scale; B, the budget; M, the number of
vectors that are merged at once; |Delta|^2, the weight degradation of one maintenance; E_t = Delta_t / eta_t, the
gradient error of a maintenance at step t (Wang, Crammer & Vucetic 2012, Theorem 1).

    removal          remove the vectors of the smallest |alpha|
    projection       remove these, and adjust the others to minimise |Delta|: K_BB delta = K_BR alpha_R, by Cholesky
    merge            merge the vector of the smallest |alpha| with M - 1 partners, one after another (Algorithm 1)
    gradient-merge   merge the same vectors all at once, by gradient steps (Algorithm 2)

Each maintenance reduces the number of vectors by M - 1. The first partner is the one with the least degradation, as
published. The paper chooses the other partners by the same rule. But a vector with a very small coefficient merges with
any other at almost no cost, so this rule would merge vectors with large coefficients that lie far apart. Here the other
partners are those that merge at the least cost with z, the result of merging the first *pair*. This cost is bounded by
min(alpha, alpha_z)^2 (1 - k(x, z)^2), with |x - z| <= |x - x_a| + |x_a - z| (the paper uses this inequality as well).

Kernel values between support vectors are float64 if they enter a solution or a degradation.

Two terms of a Gaussian kernel are merged into one with the least change of the model. Let r be the ratio of the smaller
coefficient to the larger one, -1 <= r <= 1; L = gamma |x_a - x_b|^2 = -ln k(x_a, x_b), the separation of their vectors;
and u, the share of the smaller term's vector in the merged vector z = (1 - u) x_larger + u x_smaller. If the larger
coefficient is 1, the best coefficient of z and the degradation are

    f(u) = e^(-L u^2) + r e^(-L (1 - u)^2)          |Delta|^2 = 1 + r^2 + 2 r e^(-L) - f(u)^2

f is greatest where u / (1 - u) e^(L (1 - 2u)) = r. (The papers write m = alpha_a / (alpha_a + alpha_b), which is
infinite for r = -1.) *Equal signs*: 0 <= u <= 1/2, and z lies between the two vectors, nearer to the larger term's.
*Unlike signs*: -1 / sqrt(2L) <= u <= 0, and z lies beyond the larger term's vector, at most 1 / sqrt(2 gamma) from it.
In either range f has one maximum, and |Delta|^2 <= r^2 (1 - e^(-2L)): a merge is never worse than removing the smaller
term. |Delta|^2 is about 2 L^2 r^2 / (1 + r)^2 for close vectors, but about 2 (1 - 1/e) L for r = -1: neighbours of
opposite signs cost more.

Sources: Wang, Crammer & Vucetic 2012 (JMLR 13), section 4.2; Qaadan & Glasmachers 2018, section 3, Algorithms 1 and 2;
Glasmachers & Qaadan 2018, "Speeding up budgeted SGD SVM training with precomputed golden section search".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import register_jitable

from streamsvm.kernels.values import apply_kernel, exponentiate
from streamsvm.numeric.rows import F32, F64, I64

VECTORS, STEPS, VIOLATIONS, MAINTAINED = range(4)  # positions in BudgetState.counts
BIAS, DEGRADATION, GRADIENT_ERROR, SCALE = range(4)  # positions in BudgetState.totals
MERGE, GRADIENT_MERGE, PROJECTION, REMOVAL = range(4)  # codes of BudgetRules.maintenance
LANES = 16  # the number of slots is a multiple of this: the float32 values of a vector register
# The table of |Delta|^2 / r^2 is interpolated bilinearly in sqrt((1 - r) / 2) and sqrt(L). In these variables the
# curvature is small, even near r = 1, L = 2, where one maximum becomes two, and near r = -1, L = 0. The table takes
# 4.9 MiB, and its largest error is 3.7e-6 (9e-6 with half the steps).
RATIO_STEPS, ROOT_STEPS = 800, 1600
ROOT_END = 3.0  # the largest sqrt(L) of the table; beyond it |Delta|^2 / r^2 is 1 to within 3e-7
MAX_ASCENT_STEPS = 200
LEAST_SUM_SHARE = 0.5  # if |sum alpha| is a smaller share of sum |alpha|, the weighted mean may be far from the vectors
PROJECTION_RIDGE = 1e-9  # in units of the mean diagonal; equal support vectors make K_BB singular


class BudgetState(NamedTuple):
    """A model, whose support vectors are in the first counts[VECTORS] slots. Checkpoints store the fields by name.

    vectors: (d, slots), the support vectors, one line per feature, so that products with a row read contiguous memory,
    and only the lines of the row's own features. squares: (slots,), |z_j|^2. alpha: (slots,), coefficients in units of
    the scale.
    counts: (4,), the numbers of support vectors, of steps t, of rows that violated their margin, and of maintenances.
    totals: (4,): b; the sum of |Delta|^2, each at the scale of its own step; the sum of |E_t| = lambda (t0 + t)
    |Delta|, which is t times the average gradient error; and the scale, which is 0 before the first step and shrinks
    with every later one.
    """

    vectors: F32
    squares: F32
    alpha: F64
    counts: I64
    totals: F64


class BudgetRules(NamedTuple):
    """The rules by which a model is trained; see `make_rules`.

    kernel: a position in KERNELS. maintenance: one of the codes MERGE to REMOVAL.
    period: n, the number of rows of an epoch, in which the rate falls to 0; or 0 for the rate of Pegasos.
    replicas: the number of models among which the rows are divided.
    is_regression, tube: whether rows have targets, and epsilon, the half-width of the tube around them. is_squared:
    whether the loss outside the tube is squared.
    bias_unit: a factor of the steps of b (see solver.aim_bias).
    """

    kernel: int
    gamma: float
    coef0: float
    degree: int
    budget: int
    merge: int
    maintenance: int
    regularisation: float
    free_bias: bool = False
    period: int = 0
    replicas: int = 1
    is_regression: bool = False
    tube: float = 0.0
    is_squared: bool = False
    bias_unit: float = 1.0


class Pack(NamedTuple):
    """A few rows that are learned together, stored both by row and by feature.

    values, features: the items of all rows; those of row i are at starts[i]:starts[i + 1]. squares: |x_i|^2.
    used: the features that occur in any row. tile: (used, rows), where tile[p, i] is feature used[p] of row i.
    """

    values: F32
    features: I64
    starts: I64
    squares: F32
    used: I64
    tile: F32


def make_state(n_features: int, budget: int) -> BudgetState:
    """Return a model without support vectors, with slots for budget + 1 of them."""
    slots = -(-(budget + 1) // LANES) * LANES
    vectors, squares = np.zeros((n_features, slots), np.float32), np.zeros(slots, np.float32)
    return BudgetState(vectors, squares, alpha=np.zeros(slots), counts=np.zeros(4, np.int64), totals=np.zeros(4))


def read_model(state: BudgetState) -> tuple[F32, F64, float]:
    """Return the support vectors (m, d), their coefficients scale alpha_j (m,), and b."""
    n = int(state.counts[VECTORS])
    vectors: F32 = np.ascontiguousarray(state.vectors[:, :n].T)
    return vectors, state.alpha[:n] * state.totals[SCALE], float(state.totals[BIAS])


def pack_models(models: list[BudgetState]) -> npt.NDArray[np.void]:
    """Return the models as records (R,). Each record has a field for each array of BudgetState."""
    fields: list[Any] = [(name, part.dtype, part.shape) for name, part in models[0]._asdict().items()]
    records = np.zeros(len(models), np.dtype(fields))
    for k, model in enumerate(models):
        for name, part in model._asdict().items():
            records[name][k] = part
    return records


def unpack_models(records: npt.NDArray[np.void]) -> list[BudgetState]:
    """Return copies of the models in the records."""
    return [BudgetState._make(np.array(record[name]) for name in BudgetState._fields) for record in records]


@register_jitable(fastmath={"contract"})
def multiply_vectors(vectors: F32, features: I64, values: F32, start: int, sums: F32) -> None:
    """Set sums_j to x.z_{start + j} for a row x, given by its items in ascending order, four features at a time."""
    n, e, stop = features.size, 0, start + sums.size
    for j in range(sums.size):
        sums[j] = np.float32(0.0)
    while e + 3 < n:
        s, t = vectors[features[e], start:stop], vectors[features[e + 1], start:stop]
        u, v = vectors[features[e + 2], start:stop], vectors[features[e + 3], start:stop]
        a, b, c, d = values[e], values[e + 1], values[e + 2], values[e + 3]
        for j in range(sums.size):
            sums[j] = (((sums[j] + a * s[j]) + b * t[j]) + c * u[j]) + d * v[j]
        e += 4
    while e < n:
        s, a = vectors[features[e], start:stop], values[e]
        for j in range(sums.size):
            sums[j] = sums[j] + a * s[j]
        e += 1


@register_jitable(fastmath={"contract"})
def _multiply_pack(pack: Pack, first: int, vectors: F32, slot: int, sums: F32) -> None:
    """Set sums_i to x_{first + i}.z for the vector z in `slot`, summed over the features as in `multiply_vectors`."""
    for i in range(sums.size):
        sums[i] = np.float32(0.0)
    for p in range(pack.used.size):
        value, x = vectors[pack.used[p], slot], pack.tile[p, first:]
        if value != 0.0:
            for i in range(sums.size):
                sums[i] = sums[i] + value * x[i]


@register_jitable
def form_column(state: BudgetState, rules: BudgetRules, pack: Pack, first: int, slot: int, K: F32) -> None:
    """Set K[i, slot] to k(x_i, z) for the vector z in `slot` and the rows i >= first of the pack."""
    rest = pack.squares.size - first
    if rest <= 0:
        return
    sums = np.empty(rest, np.float32)
    _multiply_pack(pack, first, state.vectors, slot, sums)
    gamma, coef0 = np.float32(rules.gamma), np.float32(rules.coef0)
    one = sums.reshape((1, rest))
    apply_kernel(rules.kernel, gamma, coef0, rules.degree, one, state.squares[slot : slot + 1], pack.squares[first:])
    for i in range(rest):
        K[first + i, slot] = sums[i]


@register_jitable
def solve_share(ratio: float, separation: float) -> float:
    """Return the u that maximises f, by Newton's method on the logarithm of the equation for u.

    The logarithm is concave, so the iterates increase monotonically to the root. ratio: r; separation: L.
    """
    if abs(ratio) < 1e-30 or separation > 600.0:
        return 0.0
    sign = 1.0 if ratio > 0.0 else -1.0
    if separation == 0.0:
        return ratio / (1.0 + ratio) if ratio > -1.0 else 0.0
    start = abs(ratio) * np.exp(-separation - (0.0 if ratio > 0.0 else np.sqrt(2.0 * separation)))
    v = start / (1.0 + sign * start)
    log_ratio = np.log(abs(ratio))
    for _ in range(100):
        slope = 1.0 / (v * (1.0 - sign * v)) - 2.0 * sign * separation
        missing = log_ratio - np.log(v) + np.log1p(-sign * v) - separation * (1.0 - 2.0 * sign * v)
        if slope <= 0.0 or not missing > 1e-15 * v * slope:
            break
        v += missing / slope
    return float(sign * v)


@register_jitable
def weigh_share(ratio: float, separation: float, u: float) -> tuple[float, float]:
    """Return f(u) and |Delta|^2 for any u. |Delta|^2 is summed from small terms, without cancellation for small L."""
    p, q = np.exp(-separation * u * u), np.exp(-separation * (1.0 - u) ** 2)
    own = -np.expm1(-2.0 * separation * u * u) - ratio * ratio * np.expm1(-2.0 * separation * (1.0 - u) ** 2)
    cross = 2.0 * ratio * p * q * np.expm1(-2.0 * separation * u * (1.0 - u))
    return float(p + ratio * q), float(max(0.0, own + cross))


@register_jitable
def compute_loss(ratio: float, separation: float) -> float:
    """Return |Delta|^2 / r^2 of the best merge: from 0 (nothing is lost) to 1 (as bad as removing the smaller term)."""
    if abs(ratio) < 1e-7:
        return float(1.0 - np.exp(-2.0 * separation) * (1.0 + 2.0 * separation))
    return float(weigh_share(ratio, separation, solve_share(ratio, separation))[1] / (ratio * ratio))


@njit(cache=True, nogil=True)
def _fill_table(table: F32) -> None:
    """Compute `compute_loss` at all nodes of the table."""
    for i in range(table.shape[0]):
        for j in range(table.shape[1]):
            root, half = ROOT_END * i / (table.shape[0] - 1), j / (table.shape[1] - 1)
            table[i, j] = compute_loss(1.0 - 2.0 * half * half, root * root)


@lru_cache(1)
def build_table() -> F32:
    """Return |Delta|^2 / r^2 at the nodes, (ROOT_STEPS + 1, RATIO_STEPS + 1); each process builds it once, in 0.3 s."""
    table: F32 = np.empty((ROOT_STEPS + 1, RATIO_STEPS + 1), np.float32)
    _fill_table(table)
    return table


@register_jitable(error_model="numpy", fastmath={"contract"})
def rate_partners(table: F32, own: float, alpha: F64, separations: F32, degradations: F64) -> None:
    """Set degradations_j to the |Delta|^2 of merging partner j with a term whose coefficient is `own`.

    alpha, separations, degradations: (n,), the coefficients, separations and results of the partners. Values are
    interpolated in the table of `build_table`. The error is at most 4e-6 times the square of the smaller coefficient,
    and so at most 1e-6 (|own| + |alpha_j|)^2.
    """
    last_root, last_ratio = table.shape[0] - 2, table.shape[1] - 2
    per_root, per_ratio = np.float32((last_root + 1) / ROOT_END), np.float32(last_ratio + 1)
    flat, width = table.ravel(), table.shape[1]
    for j in range(alpha.size):
        smaller, larger = min(abs(alpha[j]), abs(own)), max(abs(alpha[j]), abs(own))
        size = np.float32(smaller / larger) if larger > 0.0 else np.float32(1.0)
        ratio = size if alpha[j] * own >= 0.0 else -size
        x = min(np.sqrt(max(separations[j], np.float32(0.0))) * per_root, np.float32(last_root + 1))
        y = np.sqrt(np.float32(0.5) * (np.float32(1.0) - ratio)) * per_ratio
        row, column = min(np.int32(x), last_root), min(np.int32(y), last_ratio)
        a, b = x - np.float32(row), y - np.float32(column)
        at = row * width + column
        near = flat[at] + b * (flat[at + 1] - flat[at])
        far = flat[at + width] + b * (flat[at + width + 1] - flat[at + width])
        degradations[j] = smaller * smaller * (near + a * (far - near))


@register_jitable
def _compute_separations_from(shares: F64, separations: F64) -> F64:
    """Return gamma |x_i - z|^2, (M,), for z = sum_j shares_j x_j with sum shares = 1."""
    to_parts = np.zeros(shares.size)
    for i in range(shares.size):
        for j in range(shares.size):
            to_parts[i] += shares[j] * separations[i, j]
    spread = 0.5 * np.sum(shares * to_parts)
    to_z: F64 = np.maximum(to_parts - spread, 0.0)
    return to_z


@register_jitable
def compute_degradation(alpha: F64, separations: F64, shares: F64, merged: float) -> float:
    """Return |sum_i alpha_i phi(x_i) - merged phi(z)|^2 for z = sum_i shares_i x_i."""
    to_z = float(np.sum(alpha * np.exp(-_compute_separations_from(shares, separations))))
    total = merged * merged - 2.0 * merged * to_z
    for i in range(alpha.size):
        for j in range(alpha.size):
            total += alpha[i] * alpha[j] * np.exp(-separations[i, j])
    return max(0.0, total)


@register_jitable
def merge_in_turn(alpha: F64, separations: F64) -> tuple[F64, float, float]:
    """Merge M terms into one by M - 1 binary merges in the given order (Qaadan & Glasmachers 2018, Algorithm 1).

    alpha (M,) and separations (M, M), gamma |x_i - x_j|^2, are float64. Return the shares (M,) of z = sum_i shares_i
    x_i, which sum to 1; the coefficient of z; and |Delta|^2 of the whole merge.
    """
    shares = np.zeros(alpha.size)
    shares[0] = 1.0
    merged, loss = alpha[0], 0.0
    for k in range(1, alpha.size):
        larger, smaller = merged, alpha[k]
        new_is_larger = abs(alpha[k]) > abs(merged)
        if new_is_larger:
            larger, smaller = smaller, larger
        ratio = smaller / larger if larger != 0.0 else 0.0
        separation = _compute_separations_from(shares, separations)[k]
        u = solve_share(ratio, separation)
        f, loss = weigh_share(ratio, separation, u)
        merged, loss = larger * f, larger * larger * loss
        share = 1.0 - u if new_is_larger else u
        shares *= 1.0 - share
        shares[k] = share
    if alpha.size > 2:
        loss = compute_degradation(alpha, separations, shares, merged)
    return shares, merged, loss


@register_jitable
def merge_by_ascent(alpha: F64, separations: F64, tol: float = 1e-6) -> tuple[F64, float, float]:
    """Merge M terms into one by gradient steps on z (Qaadan & Glasmachers 2018, Algorithm 2).

    Arguments and results are those of `merge_in_turn`. |Delta|^2 falls as |g(z)| grows, where g(z) = sum_i alpha_i
    k(x_i, z) is the best coefficient. The first z is the weighted mean. Each step goes towards
    sum_i alpha_i k_i x_i / g, along the gradient over 2 gamma g, and is halved until |g| grows. Steps continue WHILE
    |Delta|^2 falls by more than tol sum alpha^2 (the condition printed in the paper is reversed). If positive and
    negative terms nearly cancel, the weighted mean is useless, and the terms are merged by `merge_in_turn`.
    """
    total = np.sum(alpha)
    if abs(total) <= LEAST_SUM_SHARE * np.sum(np.abs(alpha)):
        in_turn: tuple[F64, float, float] = merge_in_turn(alpha, separations)
        return in_turn
    shares = alpha / total
    terms = alpha * np.exp(-_compute_separations_from(shares, separations))
    g, enough, step = np.sum(terms), tol * np.sum(alpha * alpha), 1.0
    for _ in range(MAX_ASCENT_STEPS):
        if g == 0.0:
            break
        trial = shares + step * (terms / g - shares)
        trial_terms = alpha * np.exp(-_compute_separations_from(trial, separations))
        trial_g = np.sum(trial_terms)
        fall = trial_g * trial_g - g * g
        if fall < 0.0:
            step *= 0.5
            continue
        shares, terms, g = trial, trial_terms, trial_g
        if fall <= enough:
            break
    return shares, g, compute_degradation(alpha, separations, shares, g)


def choose_table(rules: BudgetRules) -> F32:
    """Return the table of `build_table`, or an empty vector if the maintenance does not merge."""
    return build_table() if rules.maintenance in (MERGE, GRADIENT_MERGE) else np.empty(0, np.float32)


@register_jitable
def _drop(state: BudgetState, slot: int, K: F32) -> None:
    """Remove the vector in `slot`; the last vector moves there with its kernel values."""
    last = state.counts[VECTORS] - 1
    if slot != last:
        for j in range(len(state.vectors)):  # slices take much longer to compile
            state.vectors[j, slot] = state.vectors[j, last]
        for i in range(len(K)):
            K[i, slot] = K[i, last]
        state.squares[slot], state.alpha[slot] = state.squares[last], state.alpha[last]
    state.counts[VECTORS] = last


@register_jitable
def _find_least(values: F32 | F64, count: int) -> I64:
    """Return the positions of the `count` smallest values in ascending order; ties are ordered by position.

    The function overwrites `values`.
    """
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
    multiply_vectors(state.vectors, features, values, np.int64(0), sums)  # a literal 0 would be compiled separately
    factor, square = np.float32(gamma), state.squares[slot]
    for j in range(n):
        sums[j] = factor * (square + state.squares[j] - sums[j] - sums[j])
    return sums


@register_jitable
def _choose_group(state: BudgetState, rules: BudgetRules, table: F32) -> I64:
    """Return the slots to merge: that of the smallest |alpha|, its best partner, and the pair's M - 2 best partners."""
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
        distance_to_z = np.float32(abs(shares[1]) * np.sqrt(apart[0, 1]))  # from x_a to z, times sqrt(gamma)
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
    """Merge M vectors; return the slot of the merged vector, and |Delta|^2 for a scale of 1."""
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
    """Return the kernel matrix of the vectors in `slots`, float64."""
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
    """Solve K x = b by Cholesky for a positive semidefinite K, to which a small ridge is added."""
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
    """Remove the M - 1 vectors of smallest |alpha|, with or without projection; return |Delta|^2 for a scale of 1."""
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
    """Remove M - 1 support vectors by one maintenance; return the slot of the merged vector, or -1 if there is none.

    table: the result of `choose_table`. At compile time, its number of dimensions decides between merging and removal.
    K (rows, slots): kernel values of rows with the support vectors. If a vector moves to another slot, its column of K
    moves too.
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
