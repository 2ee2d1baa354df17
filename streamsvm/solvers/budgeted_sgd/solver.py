"""Kernel SVM of bounded size by stochastic gradient descent over a shuffled stream of rows, out of core.

    min  P(w) = 1/2 |w|^2 + C sum_i c_i max(0, 1 - y_i (w.phi(x_i) + b))          c_i = class weight * sample weight

This is n C times the P of eq. (1) of Qaadan & Glasmachers 2018, with lambda = 1 / (n C). A regression with targets t_i
has the losses c_i max(0, |t_i - (w.phi(x_i) + b)| - epsilon), or the same with the maximum squared, and c_i = sample
weight. Each row makes one gradient step. In every epoch:

    the chunks are put into a random order, and several successive chunks form a buffer
    the rows of a buffer are learned in a random order while the next buffer is read

With R replicas the chunks of an epoch (or, if there are few, the rows of each buffer) are divided among R models, each
with one R-th of the budget. The models learn side by side, and their average is the result. (If each model had the
whole budget, and their average were reduced to it afterwards, accuracy would fall: on ijcnn1 from 98% to 85% for R = 2
and B = 500.) The order depends on the data, the seed and R, but not on threads or workers. Each `Step` is a segment of
an epoch, a few buffers long, and carries a complete state.

Nothing is proved, since there is no lower bound. P is an estimate: |w|^2 is exact, and the losses are measured on a
sample of SAMPLE_ROWS rows (or all rows if there are fewer), which is the same in all steps. The exact P would add half
the cost of an epoch.

Sources: Wang, Crammer & Vucetic 2012; Qaadan & Glasmachers 2018. The average w = (1/R) sum_r w_r of the replicas:
Zinkevich, Weimer, Li & Smola 2010.

The steps are those of Pegasos, on packs of rows.

    min  lambda/2 |w|^2 + (1/n) sum_i c_i max(0, 1 - y_i (w.phi(x_i) + b))          lambda = 1 / (n C)

This is eq. (1) of Qaadan & Glasmachers 2018 with costs c_i. Step t = 1, 2, .. on row i replaces w by
(1 - lambda eta_t) w, and adds eta_t c_i y_i phi(x_i) if y_i f(x_i) < 1 (section 2.2 of that paper), with the rate

    eta_t = 1 / (lambda t)                                  Pegasos, as published
    eta_t = (1 - ((t - 1) mod n) / n) / (lambda (n + t))    at most C; falls to 0 in each epoch of n rows

The second rate is the default. With the first one, each of the last rows of an epoch that violate their margin gets the
weight C, so the model depends on which rows come last. With a linearly falling rate the last iterate is nearer to the
optimum than an average of the iterates (derived by Defazio et al. 2023), and merged vectors fit only the last iterate.

A regression has the loss c_i max(0, |t_i - f(x_i)| - epsilon). For a row outside its tube, a step adds
+-s eta_t phi(x_i) with s = min(c_i, (|t_i - f(x_i)| - epsilon) / (eta_t k(x_i, x_i))), which moves the row at most to
the edge of its tube (Kulis & Bartlett 2010, "Implicit online learning"). Plain steps overshoot if C is large, because
eta_t starts near C. The implicit step of the squared loss, c_i max(0, |t_i - f(x_i)| - epsilon)^2, has

    s = 2 c_i (|t_i - f(x_i)| - epsilon) / (1 + 2 c_i (eta_t k(x_i, x_i) + beta_t))

where b moves by s beta_t (beta_t is defined in the next paragraph), or is fixed, with beta_t = 0.

All coefficients share a scale, so that shrinking w changes one number. A free b is not shrunk, and its steps are
c_i y_i beta_t, where beta_t is 1 / sqrt(t) times the factor by which the rate has fallen in the epoch.

Sources: Shalev-Shwartz et al. 2007; Wang, Crammer & Vucetic 2012; Qaadan & Glasmachers 2018; Defazio, Cutkosky, Mehta &
Mishchenko 2023, "Optimal linear decay learning rate schedules and further refinements".

Packs of rows.

The kernel values of a pack of rows with all support vectors are computed in one product (Zhu et al. 2009, P-packSVM).
The steps of the pack are then made one by one; whenever a vector is added or merged, its kernel values with the
remaining rows of the pack are computed. Every product x.z is summed over the features in their order, by fused
multiply-adds. Packs of any size, and dense and sparse rows (with ascending indices), therefore give the same bits. A
BLAS product would not, although it takes only 0.6 times as long on dense rows, and 0.4 times with 784 features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import register_jitable

from streamsvm.kernels.kernel import Kernel, add_kernel_sums, compute_squares
from streamsvm.kernels.names import KERNELS
from streamsvm.kernels.values import apply_kernel
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F32, F64, I32, I64, Matrix, Rows, Split, drop_zeros, find_items, read_item, split
from streamsvm.passes import Progress, Requests, Step, Take, Walk
from streamsvm.solvers.budgeted_sgd import maintenance as budgeted
from streamsvm.solvers.budgeted_sgd.maintenance import BudgetRules, BudgetState, Pack, choose_table
from streamsvm.system.errors import InputError

VECTORS_OF_A_BLOCK = 512  # a block stays in the cache while it is multiplied by all rows of a pack


@register_jitable
def collect_pack(values: F32, indices: I32, indptr: I64, chosen: I64, position: I64) -> Pack:
    """Return the chosen rows as a pack. values, indices, indptr: the parts of all rows from `split`.

    position (d,): working memory, filled with -1 on entry and on return.
    """
    size = 0
    for i in chosen:
        first, end = find_items(values, indptr, i)
        size += end - first
    items, features = np.empty(size, np.float32), np.empty(size, np.int64)
    starts, squares = np.zeros(chosen.size + 1, np.int64), np.empty(chosen.size, np.float32)
    for k in range(chosen.size):
        at, square = starts[k], 0.0
        first, end = find_items(values, indptr, chosen[k])
        for e in range(first, end):
            j, x = read_item(values, indices, chosen[k], e)
            if x != 0.0:
                items[at], features[at], position[j] = x, j, 0
                square += np.float64(x) * x
                at += 1
        starts[k + 1], squares[k] = at, square
    used = np.nonzero(position >= 0)[0]
    for e in range(used.size):  # array indexing and slices take much longer to compile
        position[used[e]] = e
    tile = np.zeros((used.size, chosen.size), np.float32)
    for k in range(chosen.size):
        for e in range(starts[k], starts[k + 1]):
            tile[position[features[e]], k] = items[e]
    for e in range(used.size):
        position[used[e]] = -1
    return Pack(items, features, starts, squares, used, tile)


@register_jitable
def meet_pack(state: BudgetState, rules: BudgetRules, pack: Pack, K: F32) -> None:
    """Set K[i, j] to k(x_i, z_j) for the rows of the pack and all support vectors."""
    n = state.counts[budgeted.VECTORS]
    for at in range(0, n, VECTORS_OF_A_BLOCK):
        stop = min(at + VECTORS_OF_A_BLOCK, n)
        for i in range(pack.squares.size):
            first, last = pack.starts[i], pack.starts[i + 1]
            features, values = pack.features[first:last], pack.values[first:last]
            budgeted.multiply_vectors(state.vectors, features, values, at, K[i, at:stop])
    for i in range(pack.squares.size):
        row = K[i, :n].reshape((1, n))
        gamma, coef0 = np.float32(rules.gamma), np.float32(rules.coef0)
        apply_kernel(rules.kernel, gamma, coef0, rules.degree, row, pack.squares[i : i + 1], state.squares[:n])


Maintenance = Literal["merge", "gradient-merge", "projection", "removal"]  # in the order of their codes
MAINTENANCES: tuple[Maintenance, ...] = get_args(Maintenance)


def make_rules(
    kernel: Kernel,
    budget: int,
    merge: int = 2,
    maintenance: Maintenance = "merge",
    *,
    regularisation: float,
    **more: Any,
) -> BudgetRules:
    """Return the rules by which a model is trained; raise InputError if they are incompatible.

    budget: B, the maximum number of support vectors. merge: M, 2 <= M <= B + 1, the number of vectors merged into one;
    projection and removal remove M - 1 vectors at once. maintenance: the way to restore the budget. regularisation:
    lambda = 1 / (n C). more: further fields of BudgetRules.
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
        raise InputError(
            f"regularisation, 1 / (n C), is {regularisation}: it must be positive and finite; choose another C"
        )
    values = KERNELS.index(kernel.name), float(kernel.gamma), float(kernel.coef0), kernel.degree
    return BudgetRules(*values, budget, merge, MAINTENANCES.index(maintenance), float(regularisation), **more)


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
    slot = int(state.counts[budgeted.VECTORS])
    for j in range(len(state.vectors)):
        state.vectors[j, slot] = 0.0
    for e in range(pack.starts[i], pack.starts[i + 1]):
        state.vectors[pack.features[e], slot] = pack.values[e]
    state.squares[slot], state.alpha[slot] = pack.squares[i], coef
    state.counts[budgeted.VECTORS] += 1
    return slot


@register_jitable
def _compute_rate(rules: BudgetRules, steps: int) -> tuple[float, float]:
    """Return eta_t for t = steps + 1, and its factor that falls from 1 to 0 in an epoch (always 1 for Pegasos)."""
    fall = 1.0
    if rules.period > 0:
        fall = max(0.0, 1.0 - rules.replicas * (steps % rules.period) / rules.period)
    return fall / (rules.regularisation * (rules.period + steps + 1)), fall


@register_jitable
def _find_own_value(rules: BudgetRules, square: float) -> float:
    """Return k(x, x) of a row with this squared length."""
    value, squares = np.full((1, 1), np.float32(square)), np.full(1, np.float32(square))
    apply_kernel(rules.kernel, np.float32(rules.gamma), np.float32(rules.coef0), rules.degree, value, squares, squares)
    return float(value[0, 0])


@register_jitable
def _find_slope(
    rules: BudgetRules, goal: float, score: float, cost: float, rate: float, bias_rate: float, square: float
) -> float:
    """Return the factor of eta_t phi(x) in the step of a row: 0 if the row has no loss.

    goal: the label or target. square: |x|^2.
    """
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
    """Make one step for each row of a pack, in order. K (rows, slots): kernel values of the rows and the vectors."""
    for i in range(goals.size):
        n, steps, scale = state.counts[budgeted.VECTORS], state.counts[budgeted.STEPS], state.totals[budgeted.SCALE]
        score = scale * _sum_products(K[i, :n], state.alpha[:n]) + state.totals[budgeted.BIAS]
        rate, fall = _compute_rate(rules, steps)
        scale = scale * (1.0 - rules.regularisation * rate) if scale > 0.0 else rate
        state.counts[budgeted.STEPS], state.totals[budgeted.SCALE] = steps + 1, scale
        bias_rate = rules.bias_unit * fall / math.sqrt(steps + 1.0) if rules.free_bias else 0.0
        slope = _find_slope(rules, goals[i], score, cost[i], rate, bias_rate, pack.squares[i])
        if slope == 0.0 or not cost[i] * rate > 0.0:
            continue
        state.counts[budgeted.VIOLATIONS] += 1
        state.totals[budgeted.BIAS] += slope * bias_rate
        slot = _add_row(state, pack, i, slope * (rate / scale))
        budgeted.form_column(state, rules, pack, i + 1, slot, K)
        if state.counts[budgeted.VECTORS] > rules.budget:
            slot = budgeted.keep_budget(state, rules, table, K[i + 1 :])
            if slot >= 0:
                budgeted.form_column(state, rules, pack, i + 1, slot, K)


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


LEAST_CHUNKS_PER_REPLICA = 8  # with fewer chunks, the numbers of rows of the replicas would differ too much
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
SAMPLE_ROWS = 1024
SEGMENT_BUFFERS = 4
LEARNED_ROWS = 4096  # rows learned between two checks for a request to stop


@dataclass(frozen=True)
class BudgetedSGD:
    """Settings of a training.

    C: the cost of a row. class_weights: c_i of the classes coded 0 and 1, before sample weights.
    n_rows: n of lambda = 1 / (n C). n_chunks: the number of chunks of the data. buffer_chunks: the number of chunks of
    a buffer.
    budget, merge, maintenance, free_bias: see `make_rules`. pack_rows: the number of rows of a pack. threads: the
    number of threads with which the driver estimates P.
    tube: epsilon of a regression, or None for a classification. is_squared: whether the loss of a regression is
    squared. numbers: the target of each label code, empty if the rows have targets. bias_start, bias_unit: b before the
    first step, and the unit of its steps (`solver.aim_bias`).
    """

    C: float
    class_weights: tuple[float, float]
    kernel: Kernel
    n_rows: int
    n_features: int
    n_chunks: int
    is_sparse: bool = False
    buffer_chunks: int = 1
    budget: int = 500
    merge: int = 2
    maintenance: Maintenance = "merge"
    free_bias: bool = False
    epochs: int = 1
    pack_rows: int = 64
    replicas: int = 1
    threads: int = 1
    seed: int = 0
    tube: float | None = None
    is_squared: bool = False
    numbers: F64 = field(default_factory=lambda: np.empty(0), compare=False)
    bias_start: float = 0.0
    bias_unit: float = 1.0

    @property
    def replica_budget(self) -> int:
        """The budget of each replica."""
        return max(1, self.budget // self.replicas)

    @property
    def rules(self) -> BudgetRules:
        """The rules by which each replica is trained."""
        own = {name: getattr(self, name) for name in ("free_bias", "replicas", "is_squared", "bias_unit")}
        rate: dict[str, Any] = {"regularisation": 1.0 / (self.n_rows * self.C), "period": self.n_rows}
        tube: dict[str, Any] = {"is_regression": self.tube is not None, "tube": float(self.tube or 0.0)}
        return make_rules(self.kernel, self.replica_budget, self.merge, self.maintenance, **rate, **tube, **own)

    @property
    def shares_chunks(self) -> bool:
        """Whether each replica learns its own chunks, instead of its own rows of every chunk."""
        return self.n_chunks >= LEAST_CHUNKS_PER_REPLICA * self.replicas


@njit(cache=True, nogil=True)
def _shrink(state: BudgetState, rules: BudgetRules, table: F32) -> None:
    """Reduce the model to its budget by repeated maintenance."""
    no_rows = np.empty((0, state.alpha.size), np.float32)
    while state.counts[budgeted.VECTORS] > rules.budget:
        budgeted.keep_budget(state, rules, table, no_rows)


def average_models(states: Sequence[BudgetState], rules: BudgetRules) -> BudgetState:
    """Average the models, and reduce the average to the budget of the rules by maintenance.

    w and b are averaged. Steps, counts and degradations are summed, so that training continues at the rate of a single
    stream. Equal input in the same order gives equal bits.
    """
    scale = max(float(state.totals[budgeted.SCALE]) for state in states)
    sizes = [int(state.counts[budgeted.VECTORS]) for state in states]
    union = budgeted.make_state(states[0].vectors.shape[0], max(sum(sizes), rules.budget))
    at = 0
    for state, size in zip(states, sizes, strict=True):
        part = slice(at, at + size)
        union.vectors[:, part], union.squares[part] = state.vectors[:, :size], state.squares[:size]
        share = state.totals[budgeted.SCALE] / (len(states) * scale) if scale > 0 else 0.0
        union.alpha[part] = state.alpha[:size] * share
        at += size
    union.counts[:] = np.sum([state.counts for state in states], axis=0)
    union.totals[:] = np.sum([state.totals for state in states], axis=0)
    union.totals[budgeted.BIAS] /= len(states)
    union.totals[budgeted.SCALE] = scale
    _shrink(union, rules, choose_table(rules))
    average = budgeted.make_state(union.vectors.shape[0], rules.budget)
    for name, own in average._asdict().items():
        own[...] = getattr(union, name)[..., : own.shape[-1]]
    return average


@dataclass
class State:
    """All variables of a training. Checkpoints store the fields by name.

    models: (R,), records with a field for each array of BudgetState. epoch: the number of completed epochs, and so the
    number of the current one. buffer: the number of the next buffer in this epoch. objective: the estimate of P.
    """

    models: npt.NDArray[np.void]
    epoch: int = 0
    buffer: int = 0
    objective: float = float("inf")

    def check(self) -> None:
        """Raise ValueError for impossible counts, since compiled code relies on them."""
        counts, slots = self.models["counts"], self.models["alpha"].shape[1]
        if counts.min() < 0 or counts[:, budgeted.VECTORS].max() >= slots or min(self.epoch, self.buffer) < 0:
            found = f"models have {counts[:, budgeted.VECTORS].tolist()} support vectors in epoch {self.epoch}"
            raise ValueError(f"{found}; each has {slots} slots")


class Carry(NamedTuple):
    """The carry of a sequential pass: a replica's model, the replica's number, and its next buffer in the epoch."""

    model: BudgetState
    replica: int
    buffer: int


def start_state(settings: BudgetedSGD) -> State:
    """Return the state before any row is read: models without support vectors."""
    model = budgeted.make_state(settings.n_features, settings.replica_budget)
    model.totals[budgeted.BIAS] = settings.bias_start
    return State(budgeted.pack_models([model] * settings.replicas))


def solve(settings: BudgetedSGD, sample: I64, state: State) -> Requests:
    """Train from a state to the end of the last epoch. sample: the numbers of the rows on which P is estimated."""
    rows: Rows = yield Take(sample)
    settings = aim_bias(settings, rows)
    if settings.tube is not None and (state.epoch, state.buffer) == (0, 0):
        state = start_state(settings)
    while state.epoch < settings.epochs:
        orders = draw_orders(settings, state.epoch)
        begin, end = state.buffer, state.buffer + SEGMENT_BUFFERS
        parts = ([order[one] for order in orders] for one in (slice(begin, end), slice(begin), slice(end, None)))
        models = budgeted.unpack_models(state.models)
        carries = [Carry(model, replica, state.buffer) for replica, model in enumerate(models)]
        carries = yield Walk(partial(learn_buffer, settings, state.epoch), carries, *parts)
        epoch_ends = end >= max(map(len, orders))
        state, figures = _update(settings, state, [carry.model for carry in carries], rows, epoch_ends)
        status = "pass_limit" if state.epoch == settings.epochs else None
        yield Step(state, Progress(state.objective, None, state.epoch), status, figures)


def aim_bias(settings: BudgetedSGD, sample: Rows) -> BudgetedSGD:
    """Return the settings with bias_start and bias_unit for a regression with a free b. Other settings stay the same.

    bias_start is the median of the targets of a sample, and bias_unit is their mean distance from the median. With the
    squared loss, bias_unit is 1, since the slopes of this loss already have the unit of the targets.
    """
    if settings.tube is None or not settings.free_bias:
        return settings
    goals, costs = read_goals(settings, sample)
    goals = goals[costs > 0.0]
    if not len(goals):
        return settings
    start = float(np.median(goals))
    unit = 1.0 if settings.is_squared else float(np.mean(np.abs(goals - start)))
    return replace(settings, bias_start=start, bias_unit=unit)


def read_goals(settings: BudgetedSGD, rows: Rows) -> tuple[F64, F64]:
    """Return the labels (-1 or +1) or the targets of rows, (n,), and their costs c_i, (n,)."""
    if settings.tube is None:
        return read_labels(settings.class_weights, rows.y, rows.sample_weight)
    goals = settings.numbers[rows.y] if rows.target is None else np.asarray(rows.target, np.float64)
    return goals, np.ones(rows.n_rows) if rows.sample_weight is None else np.asarray(rows.sample_weight, np.float64)


def draw_orders(settings: BudgetedSGD, epoch: int) -> list[list[list[int]]]:
    """Return the buffers, as lists of chunks, that each replica learns in an epoch."""
    order = np.random.default_rng((settings.seed, epoch)).permutation(settings.n_chunks).tolist()
    size, n = settings.buffer_chunks, settings.replicas
    shares = [order[k::n] for k in range(n)] if settings.shares_chunks else [order] * n
    return [[share[at : at + size] for at in range(0, len(share), size)] for share in shares]


def learn_buffer(settings: BudgetedSGD, epoch: int, carry: Carry, rows: Rows) -> Iterator[tuple[Carry, int]]:
    """Learn the rows of a buffer, or the replica's part of them, in an order drawn from the seed."""
    model = BudgetState._make(np.array(part) for part in carry.model)
    owner = carry.replica if settings.shares_chunks else 0
    order = np.random.default_rng((settings.seed, epoch, owner, carry.buffer)).permutation(rows.n_rows)
    if not settings.shares_chunks:
        order = np.ascontiguousarray(order[carry.replica :: settings.replicas])
    goals, cost = read_goals(settings, rows)
    after, rules = Carry(model, carry.replica, carry.buffer + 1), settings.rules
    require_range(settings.kernel, rows.X)
    yield after, 0
    for at in range(0, len(order), LEARNED_ROWS):
        part = order[at : at + LEARNED_ROWS]
        learn_rows(model, rules, rows.X, goals, cost, order=part, pack_rows=settings.pack_rows)
        yield after, len(part) if settings.shares_chunks else len(part) * settings.replicas


def require_range(kernel: Kernel, X: Matrix) -> None:
    """Raise InputError if kernel values of these rows exceed the range of float32, in which they are computed."""
    with np.errstate(over="ignore"):
        square = float(np.max(compute_squares(X), initial=0.0))
        product = abs(kernel.gamma) * square + abs(kernel.coef0)
        largest = {"linear": square, "rbf": 4.0 * max(square, product), "poly": np.float64(product) ** kernel.degree}
    if not largest.get(kernel.name, product) < LARGEST_FLOAT32:
        raise InputError(
            f"for rows of length {square**0.5:.1e}, {kernel.name} kernel values are beyond the range of float32: "
            "scale the features to about 1 (ingest --scale), or choose a smaller gamma"
        )


def learn_rows_of_stream(settings: BudgetedSGD, state: State, rows: Rows) -> State:
    """Return the state of a single model after learning these rows; its objective is not updated."""
    (model,) = budgeted.unpack_models(state.models)
    *_, (carry, _) = learn_buffer(settings, 0, Carry(model, 0, state.buffer), rows)
    return replace(state, models=budgeted.pack_models([carry.model]), buffer=carry.buffer)


def _update(
    settings: BudgetedSGD, state: State, models: list[BudgetState], sample: Rows, epoch_ends: bool
) -> tuple[State, dict[str, float]]:
    """Return the state after a segment of an epoch, and the entries of the history."""
    after = State(budgeted.pack_models(models), state.epoch, state.buffer + SEGMENT_BUFFERS)
    if epoch_ends:
        for model in models:  # the rate of each model depends on the rows of all models
            model.counts[budgeted.STEPS] = (state.epoch + 1) * settings.n_rows
        after = State(budgeted.pack_models(models), state.epoch + 1)
    current = read_current(settings, after)
    after.objective = estimate_objective(settings, current, sample)
    return after, describe_model(current)


def read_current(settings: BudgetedSGD, state: State) -> BudgetState:
    """Return the average of the replicas. Its number of steps is the number of rows learned by all replicas."""
    models = budgeted.unpack_models(state.models)
    if len(models) == 1:
        return models[0]
    joined = average_models(models, settings.rules._replace(budget=settings.budget))
    joined.counts[budgeted.STEPS] -= (len(models) - 1) * state.epoch * settings.n_rows
    return joined


def estimate_objective(settings: BudgetedSGD, model: BudgetState, sample: Rows) -> float:
    """Return 1/2 |w|^2 + n C mean_i c_i max(0, 1 - y_i f(x_i)), where i runs over the sample.

    The loss of a regression is max(0, |t_i - f(x_i)| - epsilon), or its square.
    """
    vectors, coef, bias = read_vectors(settings, model)
    scores, f = np.zeros(len(coef)), np.full(sample.n_rows, bias)
    add_kernel_sums(settings.kernel, vectors, vectors, coef, scores, settings.threads)
    add_kernel_sums(settings.kernel, sample.X, vectors, coef, f, settings.threads)
    goals, cost = read_goals(settings, sample)
    lacks = 1.0 - goals * f if settings.tube is None else np.abs(goals - f) - settings.tube
    losses = np.maximum(0.0, lacks) ** (2 if settings.is_squared else 1)
    return 0.5 * float(coef @ scores) + settings.n_rows * settings.C * float(np.mean(cost * losses))


def read_vectors(settings: BudgetedSGD, model: BudgetState) -> tuple[Matrix, F64, float]:
    """Return the support vectors (m, d), their coefficients (m,), and b. If rows are sparse, so are the vectors."""
    vectors, coef, bias = budgeted.read_model(model)
    return drop_zeros(vectors) if settings.is_sparse else vectors, coef, bias


def describe_model(model: BudgetState) -> dict[str, float]:
    """Return the entries of the history.

    rows: the number of rows learned. violations: the number of rows that violated their margin. maintenances: the
    number of budget maintenances. degradation: the mean |Delta|^2 of a maintenance. gradient_error: the mean of |E_t| =
    |Delta_t| / eta_t over the steps, which is the average gradient error of Theorem 1 of Wang et al. 2012.
    """
    counts, totals = model.counts, model.totals
    return {
        "rows": int(counts[budgeted.STEPS]),
        "n_support_vectors": int(counts[budgeted.VECTORS]),
        "violations": int(counts[budgeted.VIOLATIONS]),
        "maintenances": int(counts[budgeted.MAINTAINED]),
        "degradation": float(totals[budgeted.DEGRADATION] / max(int(counts[budgeted.MAINTAINED]), 1)),
        "gradient_error": float(totals[budgeted.GRADIENT_ERROR] / max(int(counts[budgeted.STEPS]), 1)),
    }
