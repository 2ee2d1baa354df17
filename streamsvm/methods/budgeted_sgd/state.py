"""A budgeted model as plain arrays, and the kernel values of its support vectors with rows.

    f(x) = scale sum_j alpha_j k(z_j, x) + b

Symbols: z_j, the support vectors; alpha_j, their coefficients in units of the scale; B, the budget; M, the vectors that
are merged at once; |Delta|^2, the weight degradation of a maintenance, and E_t = Delta_t / eta_t, its gradient error
(Wang, Crammer & Vucetic 2012, Theorem 1).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from streamsvm.numeric.kernel_values import apply_kernel
from streamsvm.numeric.rows import F32, F64, I64

VECTORS, STEPS, VIOLATIONS, MAINTAINED = range(4)  # positions in BudgetState.counts
BIAS, DEGRADATION, GRADIENT_ERROR, SCALE = range(4)  # positions in BudgetState.totals
MERGE, GRADIENT_MERGE, PROJECTION, REMOVAL = range(4)  # codes of BudgetRules.maintenance
LANES = 16  # the number of slots is a multiple of so many float32 values, a vector register


class BudgetState(NamedTuple):
    """A model, whose support vectors are in the first counts[VECTORS] slots. A checkpoint keeps the fields by name.

    vectors: (d, slots), by feature, so that a row meets them in contiguous memory, with its own features only.
    squares: (slots,), |z_j|^2. alpha: (slots,), coefficients in units of the scale.
    counts: (4,), the support vectors, the steps t, the rows that violated their margin, the maintenances.
    totals: (4,), b; the sum of |Delta|^2, each with the scale at its time; the sum of |E_t| = lambda (t0 + t) |Delta|,
    which is t times the average gradient error; the scale, which every step shrinks, and which is 0 before the first.
    """

    vectors: F32
    squares: F32
    alpha: F64
    counts: I64
    totals: F64


class BudgetRules(NamedTuple):
    """How a model is trained; see `make_rules`. kernel: a position in KERNELS; maintenance: one of the codes above.

    is_regression, tube: whether rows have targets, and epsilon, the half-width of the tube around them. is_squared:
    whether the loss outside the tube is squared.
    bias_unit: by which steps of b are multiplied.
    """

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
    is_regression: bool
    tube: float
    is_squared: bool
    bias_unit: float


class Pack(NamedTuple):
    """Some rows that are learned together, by row and by feature.

    values, features: the items of all rows, those of row i at starts[i]:starts[i + 1]. squares: |x_i|^2.
    used: the features that occur in any row; tile: (used, rows), tile[p, i] is feature used[p] of row i.
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
    return BudgetState(
        vectors=np.zeros((n_features, slots), np.float32),
        squares=np.zeros(slots, np.float32),
        alpha=np.zeros(slots),
        counts=np.zeros(4, np.int64),
        totals=np.zeros(4),
    )


def read_model(state: BudgetState) -> tuple[F32, F64, float]:
    """Return the support vectors (m, d), their coefficients scale alpha_j (m,), and b."""
    n = int(state.counts[VECTORS])
    vectors: F32 = np.ascontiguousarray(state.vectors[:, :n].T)
    return vectors, state.alpha[:n] * state.totals[SCALE], float(state.totals[BIAS])


def pack_models(models: list[BudgetState]) -> npt.NDArray[np.void]:
    """Return the models as records, with a field for each array."""
    fields: list[Any] = [(name, part.dtype, part.shape) for name, part in models[0]._asdict().items()]
    records = np.zeros(len(models), np.dtype(fields))
    for k, model in enumerate(models):
        for name, part in model._asdict().items():
            records[name][k] = part
    return records


def unpack_models(records: npt.NDArray[np.void]) -> list[BudgetState]:
    """Return the models of the records, as copies."""
    return [BudgetState._make(np.array(record[name]) for name in BudgetState._fields) for record in records]


@register_jitable(fastmath={"contract"})
def multiply_vectors(vectors: F32, features: I64, values: F32, start: int, sums: F32) -> None:
    """Set sums_j to x.z_{start + j} for a row x, given by its items in ascending order; a sweep takes four features."""
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
    """Set sums_i to x_{first + i}.z for the vector z of the slot, summed in the same order of the features."""
    for i in range(sums.size):
        sums[i] = np.float32(0.0)
    for p in range(pack.used.size):
        value, x = vectors[pack.used[p], slot], pack.tile[p, first:]
        if value != 0.0:
            for i in range(sums.size):
                sums[i] = sums[i] + value * x[i]


@register_jitable
def form_column(state: BudgetState, rules: BudgetRules, pack: Pack, first: int, slot: int, K: F32) -> None:
    """Set K[i, slot] to k(x_i, z) for the vector z of the slot and the rows i >= first of the pack."""
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
