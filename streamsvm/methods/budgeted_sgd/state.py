"""What a budgeted model consists of, as plain arrays, and how its support vectors meet rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from streamsvm.numeric.kernel_values import apply_kernel
from streamsvm.numeric.rows import F32, F64, I64

VECTORS, STEPS, VIOLATIONS, MAINTAINED = range(4)  # of counts
BIAS, DEGRADATION, GRADIENT_ERROR, SCALE = range(4)  # of totals
LANES = 16  # slots are so many float32, or a multiple


class BudgetState(NamedTuple):
    """One model: f(x) = scale sum_j alpha_j k(z_j, x) + b over the first counts[VECTORS] slots.

    vectors (d, slots) float32, by feature: a row meets them with contiguous memory, and only by the features it has.
    squares (slots,): |z_j|^2. alpha (slots,): coefficients in units of the scale.
    counts (4,): support vectors, steps t, rows that violated their margin, maintenances.
    totals (4,): b; the sum of the weight degradations |Delta|^2, each with the scale of its time; the sum of
    |E_t| = lambda (t0 + t) |Delta_t|, which is t times the average gradient error of Theorem 1; the scale, by which
    every step shrinks w, 0 before the first.
    """

    vectors: F32
    squares: F32
    alpha: F64
    counts: I64
    totals: F64


class BudgetRules(NamedTuple):
    """How a model is trained; see `make_rules`. kernel, maintenance: codes. regularisation: lambda = 1 / (n C)."""

    kernel: int
    gamma: float
    coef0: float
    degree: int
    budget: int
    merge: int
    maintenance: int
    regularisation: float
    free_bias: bool
    period: int
    replicas: int


class Pack(NamedTuple):
    """Rows to be learned together: row i's items are starts[i]:starts[i + 1], tile[p, i] its feature used[p]."""

    values: F32
    features: I64
    starts: I64
    squares: F32
    used: I64
    tile: F32


def make_state(n_features: int, budget: int) -> BudgetState:
    """Return a model without support vectors, and room for budget + 1."""
    slots = -(-(budget + 1) // LANES) * LANES
    return BudgetState(
        np.zeros((n_features, slots), np.float32), np.zeros(slots, np.float32), np.zeros(slots),
        np.zeros(4, np.int64), np.zeros(4),
    )  # fmt: skip


def read_model(state: BudgetState) -> tuple[F32, F64, float]:
    """Return support vectors (m, d), their coefficients (m,) with the scale, and b."""
    n = int(state.counts[VECTORS])
    vectors: F32 = np.ascontiguousarray(state.vectors[:, :n].T)
    return vectors, state.alpha[:n] * state.totals[SCALE], float(state.totals[BIAS])


@njit(cache=True, nogil=True, fastmath={"contract"})
def multiply_vectors(vectors: F32, features: I64, values: F32, start: int, sums: F32) -> None:
    """sums_j = x.z_{start + j} for a row x given by its items, features ascending; four features a sweep."""
    n, e, stop = features.size, 0, start + sums.size
    sums[:] = np.float32(0.0)
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


@njit(cache=True, nogil=True, fastmath={"contract"})
def _multiply_pack(pack: Pack, first: int, vectors: F32, slot: int, sums: F32) -> None:
    """sums_i = x_{first + i}.z of the slot's vector z, in the order of the features as well."""
    sums[:] = np.float32(0.0)
    for p in range(pack.used.size):
        value, x = vectors[pack.used[p], slot], pack.tile[p, first:]
        if value != 0.0:
            for i in range(sums.size):
                sums[i] = sums[i] + value * x[i]


@njit(cache=True, nogil=True)
def form_column(state: BudgetState, rules: BudgetRules, pack: Pack, first: int, slot: int, K: F32) -> None:
    """K[i, slot] = k(x_i, z) of the slot's vector z, for the rows i >= first of the pack."""
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
