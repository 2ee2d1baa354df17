"""Kernel SVM of bounded size by stochastic gradient descent over a shuffled stream of rows, out of core.

    min  P(w) = 1/2 |w|^2 + C sum_i c_i max(0, 1 - y_i (w.phi(x_i) + b))          c_i = class weight * sample weight

This is P of eq. (1) of Qaadan & Glasmachers 2018 times n C, with lambda = 1 / (n C). A regression has the losses
c_i max(0, |t_i - (w.phi(x_i) + b)| - epsilon) of targets t_i, or the squares of the maxima, with c_i = sample weight.
budget.py makes the steps, one a row, and this file says in which order the rows come. In every epoch:

    the seed draws an order of the chunks, and several successive chunks make a buffer
    the seed draws an order of the rows of a buffer, in which they are learned while the next buffer is read

With R replicas the chunks of an epoch (or, if there are few, the rows of each buffer) are divided among R models with
one R-th of the budget each. The models learn side by side, and their average is the result. (Models with the whole
budget each, merged down to it afterwards, lose what they have learned: the accuracy on ijcnn1 falls from 98% to 85% for
R = 2 and B = 500.) The order depends on the data, the seed and R, but not on threads or workers. A step is a segment of
an epoch, some buffers long, and the state after each step is complete.

Nothing is proved, since there is no lower bound. P is an estimate: |w|^2 is exact, and the losses are those of a sample
of SAMPLE_ROWS rows, the same in all steps, or of all rows if there are fewer. (The exact P would add half the cost of
an epoch.)

Sources: Wang, Crammer & Vucetic 2012; Qaadan & Glasmachers 2018; averaging: Zinkevich, Weimer, Li & Smola 2010.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamsvm.errors import InputError
from streamsvm.methods.budgeted_sgd.average import average_models
from streamsvm.methods.budgeted_sgd.budget import learn_rows
from streamsvm.methods.budgeted_sgd.settings import BudgetedSGD
from streamsvm.methods.budgeted_sgd.state import (
    BIAS,
    DEGRADATION,
    GRADIENT_ERROR,
    MAINTAINED,
    STEPS,
    VECTORS,
    VIOLATIONS,
    BudgetState,
    make_state,
    pack_models,
    read_model,
    unpack_models,
)
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, compute_squares
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix, Rows
from streamsvm.requests import Progress, Solver, Step, Take, Walk

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
SAMPLE_ROWS = 1024
SEGMENT_BUFFERS = 4
LEARNED_ROWS = 4096  # rows learned between two checks whether to stop


@dataclass
class State:
    """All that changes during a training. A checkpoint holds the fields by their names.

    models: (R,), records with a field for each array of BudgetState. epoch, buffer: the numbers of the next ones.
    objective: the estimate of P.
    """

    models: npt.NDArray[np.void]
    epoch: int = 0
    buffer: int = 0
    objective: float = float("inf")

    def check(self) -> None:
        """ValueError for counts that no model can have, since compiled code relies on them."""
        counts, slots = self.models["counts"], self.models["alpha"].shape[1]
        if counts.min() < 0 or counts[:, VECTORS].max() >= slots or min(self.epoch, self.buffer) < 0:
            found = f"models have {counts[:, VECTORS].tolist()} support vectors in epoch {self.epoch}"
            raise ValueError(f"{found}; each has {slots} slots")


class Carry(NamedTuple):
    """What a sequential pass carries on: a replica's model, its number, and that of its next buffer in the epoch."""

    model: BudgetState
    replica: int
    buffer: int


def start_state(settings: BudgetedSGD) -> State:
    """Return the state before any row is read: models without support vectors."""
    model = make_state(settings.n_features, settings.replica_budget)
    model.totals[BIAS] = settings.bias_start
    return State(pack_models([model] * settings.replicas))


def solve(settings: BudgetedSGD, sample: I64, state: State) -> Solver:
    """Go on from a state to the end of the last epoch. sample: the numbers of the rows by which P is estimated."""
    rows: Rows = yield Take(sample)
    settings = aim_bias(settings, rows)
    if settings.tube is not None and (state.epoch, state.buffer) == (0, 0):
        state = start_state(settings)
    while state.epoch < settings.epochs:
        orders = draw_orders(settings, state.epoch)
        segment = [order[state.buffer : state.buffer + SEGMENT_BUFFERS] for order in orders]
        models = unpack_models(state.models)
        carries = [Carry(model, replica, state.buffer) for replica, model in enumerate(models)]
        carries = yield Walk(partial(learn_buffer, settings, state.epoch), carries, segment)
        epoch_ends = state.buffer + SEGMENT_BUFFERS >= max(map(len, orders))
        state, figures = _update(settings, state, [carry.model for carry in carries], rows, epoch_ends)
        status = "pass_limit" if state.epoch == settings.epochs else None
        yield Step(state, Progress(state.objective, None, state.epoch), status, figures)


def aim_bias(settings: BudgetedSGD, sample: Rows) -> BudgetedSGD:
    """Return the settings of a regression with where b begins and the unit of its steps; those of classes as they are.

    The start is the median of the targets of a sample, and the unit is their mean distance from it. Slopes of the
    squared loss have the unit of the targets themselves.
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
    """Return the labels -1 and +1 or the targets of rows, and their costs c_i, (n,) each."""
    if settings.tube is None:
        return read_labels(settings.class_weights, rows.y, rows.sample_weight)
    goals = settings.numbers[rows.y] if rows.target is None else np.asarray(rows.target, np.float64)
    return goals, np.ones(rows.n_rows) if rows.sample_weight is None else np.asarray(rows.sample_weight, np.float64)


def draw_orders(settings: BudgetedSGD, epoch: int) -> list[list[list[int]]]:
    """Return for each replica the buffers, as lists of chunks, that it learns in an epoch."""
    order = np.random.default_rng((settings.seed, epoch)).permutation(settings.n_chunks).tolist()
    size, n = settings.buffer_chunks, settings.replicas
    shares = [order[k::n] for k in range(n)] if settings.shares_chunks else [order] * n
    return [[share[at : at + size] for at in range(0, len(share), size)] for share in shares]


def learn_buffer(settings: BudgetedSGD, epoch: int, carry: Carry, rows: Rows) -> Iterator[Carry]:
    """Learn the rows of a buffer, or the replica's share of them, in an order drawn by the seed."""
    model = BudgetState._make(np.array(part) for part in carry.model)
    owner = carry.replica if settings.shares_chunks else 0
    order = np.random.default_rng((settings.seed, epoch, owner, carry.buffer)).permutation(rows.n_rows)
    if not settings.shares_chunks:
        order = np.ascontiguousarray(order[carry.replica :: settings.replicas])
    goals, cost = read_goals(settings, rows)
    after, rules = Carry(model, carry.replica, carry.buffer + 1), settings.rules
    require_range(settings.kernel, rows.X)
    yield after
    for at in range(0, len(order), LEARNED_ROWS):
        part = order[at : at + LEARNED_ROWS]
        learn_rows(model, rules, rows.X, goals, cost, order=part, pack_rows=settings.pack_rows)
        yield after


def require_range(kernel: Kernel, X: Matrix) -> None:
    """InputError for rows whose kernel values with each other are beyond float32, the type of kernel values here."""
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
    """Return the state of a single model after it has learned these rows, with the objective of the state before."""
    (model,) = unpack_models(state.models)
    *_, carry = learn_buffer(settings, 0, Carry(model, 0, state.buffer), rows)
    return replace(state, models=pack_models([carry.model]), buffer=carry.buffer)


def _update(
    settings: BudgetedSGD, state: State, models: list[BudgetState], sample: Rows, epoch_ends: bool
) -> tuple[State, dict[str, float]]:
    """Return the state after a segment, and the figures of the history."""
    after = State(pack_models(models), state.epoch, state.buffer + SEGMENT_BUFFERS)
    if epoch_ends:
        for model in models:  # the rate of each model depends on the rows of all models
            model.counts[STEPS] = (state.epoch + 1) * settings.n_rows
        after = State(pack_models(models), state.epoch + 1)
    current = read_current(settings, after)
    after.objective = estimate_objective(settings, current, sample)
    return after, describe_model(current)


def read_current(settings: BudgetedSGD, state: State) -> BudgetState:
    """Return the average of the replicas. Its steps are the rows that any replica has learned."""
    models = unpack_models(state.models)
    if len(models) == 1:
        return models[0]
    joined = average_models(models, settings.rules._replace(budget=settings.budget))
    joined.counts[STEPS] -= (len(models) - 1) * state.epoch * settings.n_rows
    return joined


def estimate_objective(settings: BudgetedSGD, model: BudgetState, sample: Rows) -> float:
    """Return 1/2 |w|^2 + n C mean_i c_i max(0, 1 - y_i f(x_i)), where i runs over the sample.

    Of a regression, the loss is max(0, |t_i - f(x_i)| - epsilon), or its square.
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
    """Return the support vectors (m, d), sparse if the rows are, their coefficients (m,), and b."""
    vectors, coef, bias = read_model(model)
    if not settings.is_sparse:
        return vectors, coef, bias
    X = csr_array(vectors)
    return CsrRows(X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64), settings.n_features), coef, bias


def describe_model(model: BudgetState) -> dict[str, float]:
    """Return the figures of the history.

    rows: rows learned. violations: rows that violated their margin. maintenances: how often the budget was maintained.
    degradation: the mean |Delta|^2 of a maintenance. gradient_error: the mean of |E_t| = |Delta_t| / eta_t over the
    steps, which is the average gradient error of Theorem 1 of Wang et al. 2012.
    """
    counts, totals = model.counts, model.totals
    return {
        "rows": int(counts[STEPS]),
        "n_support_vectors": int(counts[VECTORS]),
        "violations": int(counts[VIOLATIONS]),
        "maintenances": int(counts[MAINTAINED]),
        "degradation": float(totals[DEGRADATION] / max(int(counts[MAINTAINED]), 1)),
        "gradient_error": float(totals[GRADIENT_ERROR] / max(int(counts[STEPS]), 1)),
    }
