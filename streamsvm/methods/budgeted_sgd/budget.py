"""Stochastic gradient descent for a kernel SVM of bounded size (BSGD): Pegasos steps on packs of rows.

    min  lambda/2 |w|^2 + (1/n) sum_i c_i max(0, 1 - y_i (w.phi(x_i) + b))          lambda = 1 / (n C)

This is eq. (1) of Qaadan & Glasmachers 2018 with costs c_i. Step t = 1, 2, .. on row i replaces w by
(1 - lambda eta_t) w, and adds eta_t c_i y_i phi(x_i) if y_i f(x_i) < 1 (their section 2.2), with the rate

    eta_t = 1 / (lambda t)                                  Pegasos, as published
    eta_t = (1 - ((t - 1) mod n) / n) / (lambda (n + t))    epochs of n rows: at most C, and falling to 0 in each

The second rate is the default. After an epoch with the first one, each of the last rows that violated their margin has
the weight C, and the model depends on these rows. A rate that falls linearly ends nearer to the optimum than an average
of the iterates does (Defazio et al. 2023 derive it for last iterates), and merged vectors fit the last iterate only.

A regression has the loss c_i max(0, |t_i - f(x_i)| - epsilon). A row outside its tube is added +-s eta_t times, where
s = min(c_i, (|t_i - f(x_i)| - epsilon) / (eta_t k(x_i, x_i))), so that no step takes it beyond the edge of its tube
(Kulis & Bartlett 2010, "Implicit online learning"). Plain steps overshoot where C is large, as eta_t begins near C.
The implicit step of the squared loss, c_i max(0, |t_i - f(x_i)| - epsilon)^2, has

    s = 2 c_i (|t_i - f(x_i)| - epsilon) / (1 + 2 c_i (eta_t k(x_i, x_i) + beta_t))

where b moves by s beta_t, with beta_t as the next paragraph has it, or does not move, with beta_t = 0.

All coefficients share a scale, so that shrinking w changes one number. A free b is not shrunk, and its steps are
c_i y_i beta_t, where beta_t is 1 / sqrt(t) times the factor by which the rate has fallen.

Sources: Shalev-Shwartz et al. 2007; Wang, Crammer & Vucetic 2012; Qaadan & Glasmachers 2018; Defazio, Cutkosky, Mehta &
Mishchenko 2023, "Optimal linear decay learning rate schedules and further refinements".
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.errors import InputError
from streamsvm.methods.budgeted_sgd.maintenance import choose_table, keep_budget
from streamsvm.methods.budgeted_sgd.packs import collect_pack, meet_pack
from streamsvm.methods.budgeted_sgd.state import (
    BIAS,
    SCALE,
    STEPS,
    VECTORS,
    VIOLATIONS,
    BudgetRules,
    BudgetState,
    Pack,
    form_column,
)
from streamsvm.numeric.kernel_codes import KERNELS
from streamsvm.numeric.kernel_values import apply_kernel
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F32, F64, I64, Matrix, Split, split

Maintenance = Literal["merge", "gradient-merge", "projection", "removal"]
# in the order of their codes in state.py
MAINTENANCES: tuple[Maintenance, ...] = ("merge", "gradient-merge", "projection", "removal")


def make_rules(
    kernel: Kernel,
    budget: int,
    merge: int = 2,
    maintenance: Maintenance = "merge",
    *,
    regularisation: float,
    free_bias: bool = False,
    period: int = 0,
    replicas: int = 1,
    tube: float | None = None,
    is_squared: bool = False,
    bias_unit: float = 1.0,
) -> BudgetRules:
    """Return the rules by which a model is trained; InputError if they do not go together.

    budget: B, the most support vectors. merge: M, 2 <= M <= B + 1, the number of vectors that become one; projection
    and removal remove M - 1 vectors at once. regularisation: lambda = 1 / (n C).
    period: n, the rows of an epoch, in which the rate falls to 0; or 0 for the rate of Pegasos.
    replicas: the number of models among which the rows are divided.
    tube: epsilon of a regression, whose rows have targets, or None for labels. is_squared: whether its loss is squared.
    bias_unit: the unit of its targets, which the steps of b have if the loss is not squared.
    """
    if maintenance not in MAINTENANCES:
        raise InputError(f"maintenance is {maintenance!r}: choose from {', '.join(MAINTENANCES)}")
    if budget < 1 or not 2 <= merge <= budget + 1:
        raise InputError(f"merge is {merge} and budget {budget}: merge must be between 2 and budget + 1")
    if kernel.name != "rbf" and maintenance in ("merge", "gradient-merge"):
        raise InputError(
            f"only vectors of the rbf kernel can be merged, not those of the {kernel.name} kernel: "
            "choose maintenance=projection or maintenance=removal"
        )
    if not (regularisation > 0 and math.isfinite(regularisation)):
        raise InputError(f"regularisation, 1 / (n C), is {regularisation}: it must be positive and finite")
    return BudgetRules(
        kernel=KERNELS.index(kernel.name),
        gamma=float(kernel.gamma),
        coef0=float(kernel.coef0),
        degree=kernel.degree,
        budget=budget,
        merge=merge,
        maintenance=MAINTENANCES.index(maintenance),
        regularisation=float(regularisation),
        free_bias=free_bias,
        period=period,
        replicas=replicas,
        is_regression=tube is not None,
        tube=0.0 if tube is None else float(tube),
        is_squared=is_squared,
        bias_unit=float(bias_unit),
    )


@register_jitable(fastmath={"reassoc", "contract", "nsz"})
def _sum_products(values: F32, alpha: F64) -> float:
    """Return sum_j alpha_j values_j."""
    total = 0.0
    for j in range(alpha.size):
        total += alpha[j] * values[j]
    return total


@njit(cache=True, nogil=True)
def _add_row(state: BudgetState, pack: Pack, i: int, coef: float) -> int:
    """Make row i of the pack a support vector; return its slot."""
    slot = int(state.counts[VECTORS])
    for j in range(len(state.vectors)):
        state.vectors[j, slot] = 0.0
    for e in range(pack.starts[i], pack.starts[i + 1]):
        state.vectors[pack.features[e], slot] = pack.values[e]
    state.squares[slot], state.alpha[slot] = pack.squares[i], coef
    state.counts[VECTORS] += 1
    return slot


@register_jitable
def _compute_rate(rules: BudgetRules, steps: int) -> tuple[float, float]:
    """Return eta_t for t = steps + 1, and the factor by which it has fallen: from 1 to 0 in an epoch, or always 1."""
    fall = 1.0
    if rules.period > 0:
        fall = max(0.0, 1.0 - rules.replicas * (steps % rules.period) / rules.period)
    return fall / (rules.regularisation * (rules.period + steps + 1)), fall


@register_jitable
def _find_own_value(rules: BudgetRules, square: float) -> float:
    """Return k(x, x) of a row of this squared length."""
    value, squares = np.full((1, 1), np.float32(square)), np.full(1, np.float32(square))
    apply_kernel(rules.kernel, np.float32(rules.gamma), np.float32(rules.coef0), rules.degree, value, squares, squares)
    return float(value[0, 0])


@register_jitable
def _find_slope(
    rules: BudgetRules, goal: float, score: float, cost: float, rate: float, bias_rate: float, square: float
) -> float:
    """Return how much of the row is added at this rate, 0 if it has no loss. goal: its label or its target."""
    if not rules.is_regression:
        return cost * goal if goal * score < 1.0 else 0.0
    outside = abs(goal - score) - rules.tube
    if not outside > 0.0:
        return 0.0
    own = _find_own_value(rules, square) * rate
    size: float
    if rules.is_squared:
        size = 2.0 * cost * outside / (1.0 + 2.0 * cost * (max(own, 0.0) + bias_rate))
    else:
        size = min(cost, outside / own) if own > 0.0 else cost
    return size if goal > score else -size


@register_jitable
def _replay(state: BudgetState, rules: BudgetRules, table: F32, pack: Pack, goals: F64, cost: F64, K: F32) -> None:
    """Make the steps of a pack, one a row, in order. K (rows, slots): kernel values of the rows and the vectors."""
    for i in range(goals.size):
        n, steps, scale = state.counts[VECTORS], state.counts[STEPS], state.totals[SCALE]
        score = scale * _sum_products(K[i, :n], state.alpha[:n]) + state.totals[BIAS]
        rate, fall = _compute_rate(rules, steps)
        scale = scale * (1.0 - rules.regularisation * rate) if scale > 0.0 else rate
        state.counts[STEPS], state.totals[SCALE] = steps + 1, scale
        bias_rate = rules.bias_unit * fall / math.sqrt(steps + 1.0) if rules.free_bias else 0.0
        slope = _find_slope(rules, goals[i], score, cost[i], rate, bias_rate, pack.squares[i])
        if slope == 0.0 or not cost[i] * rate > 0.0:
            continue
        state.counts[VIOLATIONS] += 1
        state.totals[BIAS] += slope * bias_rate
        slot = _add_row(state, pack, i, slope * (rate / scale))
        form_column(state, rules, pack, i + 1, slot, K)
        if state.counts[VECTORS] > rules.budget:
            slot = keep_budget(state, rules, table, K[i + 1 :])
            if slot >= 0:
                form_column(state, rules, pack, i + 1, slot, K)


@njit(cache=True, nogil=True)
def _learn(
    state: BudgetState, rules: BudgetRules, table: F32, X: Split, order: I64, goals: F64, cost: F64, pack_rows: int
) -> None:
    """Make one step for each row of `order`, a pack at a time."""
    position = np.full(state.vectors.shape[0], -1, np.int64)
    K = np.empty((pack_rows, state.alpha.size), np.float32)
    own_goals, own_cost = np.empty(pack_rows), np.empty(pack_rows)
    for at in range(0, order.size, pack_rows):
        chosen = order[at : at + pack_rows]
        pack = collect_pack(X.values, X.indices, X.indptr, chosen, position)
        meet_pack(state, rules, pack, K)
        for k in range(chosen.size):
            own_goals[k], own_cost[k] = goals[chosen[k]], cost[chosen[k]]
        _replay(state, rules, table, pack, own_goals[: chosen.size], own_cost[: chosen.size], K)


def learn_rows(
    state: BudgetState, rules: BudgetRules, X: Matrix, goals: F64, cost: F64, order: I64, pack_rows: int = 64
) -> None:
    """Make one step for each of the rows X[order], in that order. The state changes in place.

    X (n, d): float32, dense or sparse with ascending indices in each row. goals (n,): labels of -1 or +1, or targets;
    cost (n,): c_i >= 0, the class weight times the sample weight. Neither pack_rows nor the division of the rows among
    calls changes a bit of the result.
    """
    table = choose_table(rules)
    _learn(state, rules, table, split(X), order, goals, cost, pack_rows)
