"""Kernel SVM of bounded size by stochastic gradient descent over a shuffled stream of rows, out of core.

    min  P(w) = 1/2 |w|^2 + C sum_i c_i max(0, 1 - y_i (w.phi(x_i) + b))          c_i = class weight * sample weight

budgeted_sgd.budget makes the steps, one a row; here is the order in which rows come. In every epoch:

    the chunks are put in an order drawn by the seed, and buffers made of several that follow each other
    the rows of a buffer are learned in an order drawn by the seed, while the next buffer is read

With R replicas the chunks of an epoch (or, where they are few, the rows of each buffer) are dealt out to R models of
an R-th of the budget, which learn side by side; the model is their average. (Models of the whole budget that are merged
down to it afterwards lose all they have learned: ijcnn1, R = 2, B = 500: from 98% to 85%.) The order depends on the
data, the seed and R, never on who computes. A segment of an epoch, some buffers, is a step: the state between two of
them is complete.

Nothing is proved: there is no lower bound. P is an estimate: |w| exactly, the losses of a sample of the rows, the same
from step to step; of up to SAMPLE_ROWS rows all. (The exact P would cost half as much again as an epoch.)

Sources: Wang, Crammer & Vucetic 2012; Qaadan & Glasmachers 2018; averaging: Zinkevich, Weimer, Li & Smola 2010.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamsvm.errors import InputError
from streamsvm.methods.budgeted_sgd.average import average_models
from streamsvm.methods.budgeted_sgd.budget import Maintenance, learn_rows, make_rules
from streamsvm.methods.budgeted_sgd.state import (
    DEGRADATION,
    GRADIENT_ERROR,
    MAINTAINED,
    STEPS,
    VECTORS,
    VIOLATIONS,
    BudgetRules,
    BudgetState,
    make_state,
    read_model,
)
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, compute_squares
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix, Rows
from streamsvm.requests import Progress, Solver, Step, Take, Walk

LARGEST = float(np.finfo(np.float32).max)
SAMPLE_ROWS = 1024
SEGMENT_BUFFERS = 4
PART_ROWS = 4096  # learned at once, before it is asked whether to stop
CHUNKS_A_REPLICA = 8  # with fewer, shares of the chunks would differ in size


@dataclass(frozen=True)
class BudgetedSGD:
    """Settings. class_weights: (2,) c_i of the classes coded 0 and 1, before sample weights. C: of a row.

    n_rows: n of lambda = 1 / (n C). n_chunks, buffer_chunks: of the data, and of a buffer. See `make_rules` for budget,
    merge, maintenance and free_bias. threads: of the driver, for estimates.
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

    @property
    def replica_budget(self) -> int:
        """Support vectors of a replica."""
        return max(1, self.budget // self.replicas)

    @property
    def rules(self) -> BudgetRules:
        """What budgeted_sgd.budget is told of a replica."""
        regularisation = 1.0 / (self.n_rows * self.C)
        return make_rules(
            self.kernel, self.replica_budget, self.merge, self.maintenance,
            regularisation=regularisation, free_bias=self.free_bias, period=self.n_rows, replicas=self.replicas,
        )  # fmt: skip

    @property
    def shares_chunks(self) -> bool:
        """Whether each replica has chunks of its own, and not a share of the rows of all chunks."""
        return self.n_chunks >= CHUNKS_A_REPLICA * self.replicas


@dataclass
class State:
    """All that changes. models: (R,) records, a field for each array of BudgetState; epoch, buffer: what comes next."""

    models: npt.NDArray[np.void]
    epoch: int = 0
    buffer: int = 0
    objective: float = float("inf")

    def check(self) -> None:
        """ValueError for counts that no model has: compiled code goes by them."""
        counts, room = self.models["counts"], self.models["alpha"].shape[1]
        if counts.min() < 0 or counts[:, 0].max() >= room or min(self.epoch, self.buffer) < 0:
            raise ValueError(f"models have {counts[:, 0].tolist()} support vectors, in epoch {self.epoch}; {room} fit")


class Carry(NamedTuple):
    """Of a sequential pass: the model, whose it is, and the number in the epoch of the buffer that comes next."""

    model: BudgetState
    replica: int
    buffer: int


def start_state(settings: BudgetedSGD) -> State:
    """Return the state before any row is read: models without support vectors."""
    return State(pack_models([make_state(settings.n_features, settings.replica_budget)] * settings.replicas))


def solve(settings: BudgetedSGD, sample: I64, state: State) -> Solver:
    """Go on from a state to the end of the last epoch; sample: numbers of the rows that P is estimated by."""
    rows: Rows = yield Take(sample)
    while state.epoch < settings.epochs:
        orders = draw_orders(settings, state.epoch)
        segment = [order[state.buffer : state.buffer + SEGMENT_BUFFERS] for order in orders]
        models = unpack_models(state.models)
        carries = [Carry(model, replica, state.buffer) for replica, model in enumerate(models)]
        carries = yield Walk(partial(learn_buffer, settings, state.epoch), carries, segment)
        ends = state.buffer + SEGMENT_BUFFERS >= max(map(len, orders))
        state, figures = _update(settings, state, [carry.model for carry in carries], rows, ends)
        status = "pass_limit" if state.epoch == settings.epochs else None
        yield Step(state, Progress(state.objective, None, state.epoch), status, figures)


def draw_orders(settings: BudgetedSGD, epoch: int) -> list[list[list[int]]]:
    """Return the buffers, as lists of chunks, that each replica learns in an epoch."""
    order = np.random.default_rng((settings.seed, epoch)).permutation(settings.n_chunks).tolist()
    size, n = settings.buffer_chunks, settings.replicas
    shares = [order[k::n] for k in range(n)] if settings.shares_chunks else [order] * n
    return [[share[at : at + size] for at in range(0, len(share), size)] for share in shares]


def learn_buffer(settings: BudgetedSGD, epoch: int, carry: Carry, rows: Rows) -> Iterator[Carry]:
    """Learn a buffer's rows, or a replica's share of them, in an order drawn by the seed."""
    model = BudgetState._make(np.array(part) for part in carry.model)
    owner = carry.replica if settings.shares_chunks else 0
    order = np.random.default_rng((settings.seed, epoch, owner, carry.buffer)).permutation(rows.n_rows)
    if not settings.shares_chunks:
        order = np.ascontiguousarray(order[carry.replica :: settings.replicas])
    y, cost = read_labels(settings.class_weights, rows.y, rows.sample_weight)
    after, rules = Carry(model, carry.replica, carry.buffer + 1), settings.rules
    require_range(settings.kernel, rows.X)
    yield after
    for at in range(0, len(order), PART_ROWS):
        learn_rows(model, rules, rows.X, y, cost, order[at : at + PART_ROWS], settings.pack_rows)
        yield after


def require_range(kernel: Kernel, X: Matrix) -> None:
    """InputError for rows whose kernel values with each other are beyond float32, in which they are learned."""
    with np.errstate(over="ignore"):
        square = float(np.max(compute_squares(X), initial=0.0))
        product = abs(kernel.gamma) * square + abs(kernel.coef0)
        largest = {"linear": square, "rbf": 4.0 * max(square, product), "poly": np.float64(product) ** kernel.degree}
    if not largest.get(kernel.name, product) < LARGEST:
        raise InputError(
            f"rows of length {square**0.5:.1e}: values of the {kernel.name} kernel are beyond the range of float32; "
            "scale the features to about 1 (ingest --scale), or choose a smaller gamma"
        )


def learn_rows_of_stream(settings: BudgetedSGD, state: State, rows: Rows) -> State:
    """Return the state of a single model that has learned these rows, too; its objective is that of before."""
    (model,) = unpack_models(state.models)
    *_, carry = learn_buffer(settings, 0, Carry(model, 0, state.buffer), rows)
    return replace(state, models=pack_models([carry.model]), buffer=carry.buffer)


def _update(
    settings: BudgetedSGD, state: State, models: list[BudgetState], sample: Rows, ends: bool
) -> tuple[State, dict[str, float]]:
    """Return the state after a segment, and what is to be told of it."""
    after = State(pack_models(models), state.epoch, state.buffer + SEGMENT_BUFFERS)
    if ends:
        for model in models:  # the rate of all goes by the rows of all
            model.counts[STEPS] = (state.epoch + 1) * settings.n_rows
        after = State(pack_models(models), state.epoch + 1)
    current = read_current(settings, after)
    after.objective = estimate_objective(settings, current, sample)
    return after, describe_model(current)


def read_current(settings: BudgetedSGD, state: State) -> BudgetState:
    """Return the model that the replicas make together; its steps are the rows learned by any."""
    models = unpack_models(state.models)
    if len(models) == 1:
        return models[0]
    joined = average_models(models, settings.rules._replace(budget=settings.budget))
    joined.counts[STEPS] -= (len(models) - 1) * state.epoch * settings.n_rows
    return joined


def estimate_objective(settings: BudgetedSGD, model: BudgetState, sample: Rows) -> float:
    """1/2 |w|^2 + n C (mean of c_i max(0, 1 - y_i f(x_i)) over the sample)."""
    vectors, coef, bias = read_vectors(settings, model)
    scores, f = np.zeros(len(coef)), np.full(sample.n_rows, bias)
    add_kernel_sums(settings.kernel, vectors, vectors, coef, scores, settings.threads)
    add_kernel_sums(settings.kernel, sample.X, vectors, coef, f, settings.threads)
    y, cost = read_labels(settings.class_weights, sample.y, sample.sample_weight)
    loss = float(np.mean(cost * np.maximum(0.0, 1.0 - y * f)))
    return 0.5 * float(coef @ scores) + settings.n_rows * settings.C * loss


def read_vectors(settings: BudgetedSGD, model: BudgetState) -> tuple[Matrix, F64, float]:
    """Return support vectors, dense or sparse as the rows are, coefficients (m,), and b."""
    vectors, coef, bias = read_model(model)
    if not settings.is_sparse:
        return vectors, coef, bias
    X = csr_array(vectors)
    return CsrRows(X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64), settings.n_features), coef, bias


def describe_model(model: BudgetState) -> dict[str, float]:
    """Return rows learned, support vectors, rows that violated their margin, maintenances, and what these cost.

    degradation: mean |Delta|^2 of a maintenance; gradient_error: mean of |E_t| = |Delta_t| / eta_t over the steps, the
    average gradient error of Theorem 1 (Wang et al. 2012).
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


def pack_models(models: list[BudgetState]) -> npt.NDArray[np.void]:
    """Return models as records, one each."""
    parts: list[Any] = [(name, part.dtype, part.shape) for name, part in models[0]._asdict().items()]
    records = np.zeros(len(models), np.dtype(parts))
    for k, model in enumerate(models):
        for name, part in model._asdict().items():
            records[name][k] = part
    return records


def unpack_models(records: npt.NDArray[np.void]) -> list[BudgetState]:
    """Return the models, in memory of their own."""
    return [BudgetState._make(np.array(record[name]) for name in BudgetState._fields) for record in records]
