"""Merging of support vectors of a Gaussian kernel: several terms become one, with the least change of the model.

Symbols: r, the ratio of the smaller coefficient of two terms to the larger one, -1 <= r <= 1; L = gamma |x_a - x_b|^2 =
-ln k(x_a, x_b), the separation of their vectors; u, the share of the smaller one in the merged vector
z = (1 - u) x_larger + u x_smaller. If the larger coefficient is 1, the best coefficient of z and the degradation are

    f(u) = e^(-L u^2) + r e^(-L (1 - u)^2)          |Delta|^2 = 1 + r^2 + 2 r e^(-L) - f(u)^2

f is greatest where u / (1 - u) e^(L (1 - 2u)) = r. (The papers write m = alpha_a / (alpha_a + alpha_b), which is
infinite for r = -1.) *Equal signs*: 0 <= u <= 1/2, and z lies between the two vectors, nearer to the larger term's.
*Unlike signs*: -1 / sqrt(2L) <= u <= 0, and z lies beyond the larger term's vector, at most 1 / sqrt(2 gamma) from it.
In either range f has one maximum, and |Delta|^2 <= r^2 (1 - e^(-2L)): no merge is worse than the removal of the smaller
term. |Delta|^2 is about 2 L^2 r^2 / (1 + r)^2 for close vectors, but about 2 (1 - 1/e) L for r = -1: neighbours of
opposite signs cost more.

Sources: Wang, Crammer & Vucetic 2012 (JMLR 13), section 4.2.3; Qaadan & Glasmachers 2018, Algorithms 1 and 2;
Glasmachers & Qaadan 2018, "Speeding up budgeted SGD SVM training with precomputed golden section search".
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.rows import F32, F64

# The table of |Delta|^2 / r^2 is interpolated bilinearly in sqrt((1 - r) / 2) and sqrt(L). In these the function bends
# little, even towards r = 1, L = 2, where one maximum becomes two, and towards r = -1, L = 0. The table takes 4.9 MiB,
# and its largest error is 3.7e-6 (9e-6 with half the steps).
RATIO_STEPS, ROOT_STEPS = 800, 1600
ROOT_END = 3.0  # the largest sqrt(L) of the table; beyond it |Delta|^2 is r^2 to 3e-7
MAX_ASCENT_STEPS = 200
LEAST_SUM_SHARE = 0.5  # if |sum alpha| is less than this share of sum |alpha|, the weighted mean may lie anywhere


@register_jitable
def solve_share(ratio: float, separation: float) -> float:
    """Return the best u by Newton's method on the logarithm of its equation.

    The logarithm is concave, so that the iterates climb to the root. ratio: r; separation: L.
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
    """Return f(u) and |Delta|^2 for any u. |Delta|^2 is a sum of small terms, so that close vectors lose no digits."""
    p, q = np.exp(-separation * u * u), np.exp(-separation * (1.0 - u) ** 2)
    own = -np.expm1(-2.0 * separation * u * u) - ratio * ratio * np.expm1(-2.0 * separation * (1.0 - u) ** 2)
    cross = 2.0 * ratio * p * q * np.expm1(-2.0 * separation * u * (1.0 - u))
    return float(p + ratio * q), float(max(0.0, own + cross))


@register_jitable
def compute_loss(ratio: float, separation: float) -> float:
    """Return |Delta|^2 / r^2 of the best merge: from 0, if nothing is lost, to 1, as for removing the smaller term."""
    if abs(ratio) < 1e-7:
        return float(1.0 - np.exp(-2.0 * separation) * (1.0 + 2.0 * separation))
    return float(weigh_share(ratio, separation, solve_share(ratio, separation))[1] / (ratio * ratio))


@njit(cache=True, nogil=True)
def _fill_table(table: F32) -> None:
    """Compute the losses at all nodes of the table."""
    for i in range(table.shape[0]):
        for j in range(table.shape[1]):
            root, half = ROOT_END * i / (table.shape[0] - 1), j / (table.shape[1] - 1)
            table[i, j] = compute_loss(1.0 - 2.0 * half * half, root * root)


@lru_cache(1)
def build_table() -> F32:
    """Return |Delta|^2 / r^2 at the nodes, (ROOT_STEPS + 1, RATIO_STEPS + 1); a process builds it once, in 0.3 s."""
    table: F32 = np.empty((ROOT_STEPS + 1, RATIO_STEPS + 1), np.float32)
    _fill_table(table)
    return table


@register_jitable(error_model="numpy", fastmath={"contract"})
def rate_partners(table: F32, own: float, alpha: F64, separations: F32, degradations: F64) -> None:
    """Set degradations_j to |Delta|^2 of merging a term of coefficient `own` with partner j.

    alpha, separations, degradations: (n,). The values are interpolated in the table of `build_table`. Their error is at
    most 4e-6 of the smaller coefficient's square, which is 1e-6 of (|own| + |alpha_j|)^2.
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
    """Merge M terms into one by M - 1 binary merges, in their order (Qaadan & Glasmachers 2018, Algorithm 1).

    alpha (M,) and separations (M, M), gamma |x_i - x_j|^2, are float64. Return the shares (M,) of z = sum_i shares_i
    x_i, whose sum is 1; the coefficient of z; and |Delta|^2 of all M terms at once.
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
    k(x_i, z) is the best coefficient. The first z is the weighted mean. The steps lead along
    z <- sum_i alpha_i k_i x_i / g, the gradient over 2 gamma g, and are halved until |g| grows. They go on WHILE
    |Delta|^2 falls by more than tol sum alpha^2; the paper's condition is reversed. If positive and negative terms
    nearly cancel, there is no such mean, and binary merges take the place of the steps.
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
