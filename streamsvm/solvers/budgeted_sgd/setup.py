"""The set-up of budgeted SGD: settings, memory, model and report, for the rows of a source or of a stream."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from streamsvm.data.rows.source import RowSource
from streamsvm.kernels.kernel import TILE_ROWS, TILE_VALUES, Kernel, add_kernel_sums, add_moments
from streamsvm.kernels.values import BLOCK_COLUMNS
from streamsvm.models.model import KernelModel
from streamsvm.numeric.rows import I64, Rows
from streamsvm.options import TrainOptions, check_numbers, compute_class_costs, make_kernel
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.problems.registry import find_problem
from streamsvm.problems.regression import EpsilonInsensitive, SquaredEpsilonInsensitive
from streamsvm.solvers.budgeted_sgd import solver
from streamsvm.solvers.budgeted_sgd.maintenance import LANES, make_state
from streamsvm.solvers.options import BudgetedSGD, read_options
from streamsvm.solvers.solver import Budget, Report, Solver, TakeRows, describe_parameters, make_kernel_model
from streamsvm.system.errors import InputError
from streamsvm.system.machine import default_threads

MERGE = 2
NOT_TOLD = ("threads", "epochs", "seed", "tube", "is_squared", "numbers", "bias_start", "bias_unit")
BUFFER_BYTES = 32 << 20
MOST_CHUNKS = 8  # the maximum number of chunks in a buffer; the minimum is two, even if they exceed BUFFER_BYTES
SAMPLE_CHUNKS = 4  # the objective is estimated on a sample of rows from this many chunks
ROW_VECTORS = 8  # 8-byte numbers per row of a buffer: labels, costs, and the order of rows
STATE_COPIES = 6  # copies of each replica's model in the driver: states, carries, a checkpoint, the model itself
LARGEST_RECORD = (1 << 31) - (1 << 20)  # NumPy's limit for a record; checkpoints store a model as one
TABLE_BYTES = 16 << 20  # the tables of merging, and small objects


class BudgetedSolver(Solver):
    """Stochastic gradient descent with a budget of support vectors."""

    name = "budgeted-sgd"

    def __init__(self, source: RowSource, options: TrainOptions, parameters: solver.BudgetedSGD) -> None:
        self.source, self.parameters = source, parameters
        self.settings = describe_parameters(parameters, *NOT_TOLD)  # `epochs` is left out: a resumed run may have more
        if parameters.tube is not None:
            del self.settings["class_weights"]
            self.settings |= find_problem(options.task).tell_loss(source, options)
        more = ("budgeted-average",) if parameters.replicas > 1 else ()
        self.compiled = (_name_kernels(parameters.maintenance), *more)

    def start(self) -> solver.State:
        """Return the initial state, in which the models have no support vectors."""
        return solver.start_state(self.parameters)

    def solve(self, state: solver.State) -> Requests:
        """Yield the sequential passes over the epochs' buffers."""
        return solver.solve(self.parameters, _choose_sample(self.source, self.parameters.seed), state)

    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory that the solver needs.

        No pass computes totals, and every task receives the models. Each step estimates the objective on a sample of
        rows. A sequential pass learns one buffer of rows while the next one is read and assembled.
        """
        settings, source = self.parameters, self.source
        state_bytes = count_state_bytes(settings)
        models = settings.replicas * state_bytes
        kernel_bytes = settings.threads * (8 * BLOCK_COLUMNS * TILE_ROWS + 4 * TILE_VALUES + 4 * source.n_features)
        turn = 4 * solver.SAMPLE_ROWS * source.nbytes // source.n_rows + kernel_bytes + TABLE_BYTES
        rows = settings.buffer_chunks * int(np.diff(source.chunk_starts).max())
        buffer_bytes = 3 * rows * source.nbytes // source.n_rows + 8 * ROW_VECTORS * rows
        pack_bytes = settings.pack_rows * (4 * (settings.budget + LANES) + 16 * source.n_features)
        n_entries = (settings.budget + 1) ** 2 if settings.maintenance == "projection" else 0
        one = buffer_bytes + 3 * state_bytes + pack_bytes + 8 * 6 * n_entries + TABLE_BYTES
        return MemoryNeed(
            driver_bytes=STATE_COPIES * models + turn,
            turn_bytes=turn,
            totals_bytes=0,
            shared_bytes=models,
            walk_bytes=min(threads, settings.replicas) * one,
        )

    def make_model(self, state: solver.State, take: TakeRows) -> KernelModel:  # noqa: ARG002
        """Return the current model."""
        parameters, source = self.parameters, self.source
        vectors, coef, bias = solver.read_vectors(parameters, solver.read_current(parameters, state))
        classes = source.classes if parameters.tube is None else np.empty(0)
        return make_kernel_model(source, parameters.kernel, vectors, coef, bias, classes)

    def report(self, state: solver.State) -> Report:
        """Return the report of a state. An unfinished epoch counts as a pass."""
        passes = state.epoch + (state.buffer > 0)
        return Report(state.objective, None, passes, finished=state.epoch >= self.parameters.epochs)

    def learn_chunk(self, source: RowSource, state: solver.State) -> solver.State:
        """Return the state after learning a chunk of a stream, with the objective estimated on that chunk."""
        for index in range(source.n_chunks):
            state = solver.learn_rows_of_stream(self.parameters, state, source.read(index))
        model = solver.read_current(self.parameters, state)
        sample = source.take(_choose_sample(source, self.parameters.seed))
        state.objective = solver.estimate_objective(self.parameters, model, sample)
        return state


def set_up(source: RowSource, options: TrainOptions, own: BudgetedSGD, _: Budget) -> BudgetedSolver:
    """Return the solver; raise InputError for incompatible settings."""
    return BudgetedSolver(source, options, _choose_parameters(source, options, own))


def _choose_parameters(source: RowSource, options: TrainOptions, own: BudgetedSGD) -> solver.BudgetedSGD:
    loss = _make_regression_loss(source, options)
    about: dict[str, Any] = {name: getattr(source, name) for name in ("n_rows", "n_features", "n_chunks", "is_sparse")}
    about |= {name: getattr(own, name) for name in ("budget", "maintenance", "epochs", "replicas")}
    if loss is not None:
        is_squared = isinstance(loss, SquaredEpsilonInsensitive)
        about |= {"tube": loss.epsilon, "is_squared": is_squared, "numbers": loss.numbers}
    settings = solver.BudgetedSGD(
        C=float(options.C),
        class_weights=compute_class_costs(source, replace(options, C=1.0)) if loss is None else (1.0, 1.0),
        kernel=make_kernel(source, options),
        buffer_chunks=_count_chunks(source),
        merge=own.merge or min(MERGE, own.budget + 1),
        free_bias=(own.bias or ("none" if loss is None else "free")) == "free",
        pack_rows=own.pack,
        threads=options.threads or default_threads(),
        seed=options.seed,
        **about,
    )
    _check(settings)
    return settings


def _make_regression_loss(
    source: RowSource, options: TrainOptions
) -> EpsilonInsensitive | SquaredEpsilonInsensitive | None:
    """Return the loss of a regression, or None for a classification, whose loss is the hinge."""
    loss = find_problem(options.task).make_loss(source, options)
    return loss if isinstance(loss, EpsilonInsensitive | SquaredEpsilonInsensitive) else None


def _check(settings: solver.BudgetedSGD) -> None:
    """Raise InputError for incompatible settings.

    `settings.rules` also raises it, for merging with a kernel other than rbf.
    """
    kernel, _ = settings.kernel, settings.rules
    is_mercer = kernel.name in ("linear", "rbf") or (kernel.name == "poly" and kernel.coef0 >= 0)
    if settings.maintenance == "projection" and not is_mercer:
        raise InputError(f"projection requires a Mercer kernel, but this {kernel.name} kernel is not one; use removal")
    if count_state_bytes(settings) >= LARGEST_RECORD:
        told = f"{settings.budget} support vectors of {settings.n_features} features"
        raise InputError(f"{told} exceed 2 GB, the limit of a model; choose a smaller budget")


def make_stream(chunk: RowSource, options: TrainOptions, expected_rows: int | None) -> BudgetedSolver:
    """Return a solver that learns a stream chunk by chunk; `chunk` is the first one.

    expected_rows is the n of lambda = 1 / (n C); by default it is the number of rows of the first chunk.
    """
    check_numbers(options)
    n_rows = chunk.n_rows if expected_rows is None else expected_rows
    if not (isinstance(n_rows, Integral) and n_rows > 0):
        raise InputError(f"expected_rows is {expected_rows!r}; a whole number of at least 1 is expected")
    own = read_options(BudgetedSGD, options.options, options.solver)
    settings = replace(_choose_parameters(chunk, options, own), n_rows=int(n_rows), replicas=1)
    if settings.tube is not None:
        settings = solver.aim_bias(settings, chunk.take(_choose_sample(chunk, settings.seed)))
    return BudgetedSolver(chunk, options, settings)


def count_state_bytes(settings: solver.BudgetedSGD) -> int:
    """Return the bytes of a replica's model: 4 bytes per value of a vector, and 16 more bytes per vector."""
    return (4 * settings.n_features + 16) * (settings.replica_budget + LANES)


def _count_chunks(source: RowSource) -> int:
    """Return the number of chunks of a buffer. It depends only on the data, so that all runs on the data agree."""
    chunk_bytes = max(1, source.nbytes // source.n_chunks)
    return int(np.clip(BUFFER_BYTES // chunk_bytes, min(2, source.n_chunks), min(MOST_CHUNKS, source.n_chunks)))


def _choose_sample(source: RowSource, seed: int) -> I64:
    """Return the row numbers of the sample, ascending.

    The sample comes from a few chunks, since a chunk is always read as a whole.
    """
    if source.n_rows <= solver.SAMPLE_ROWS:
        return np.arange(source.n_rows)
    rng, starts = np.random.default_rng((seed, 1 << 32)), source.chunk_starts
    chosen = rng.permutation(source.n_chunks)[:SAMPLE_CHUNKS]
    rows = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in chosen.tolist()])
    return np.sort(rng.choice(rows, min(solver.SAMPLE_ROWS, len(rows)), replace=False))


def _name_kernels(maintenance: str) -> str:
    return "budgeted-sgd" if maintenance in ("merge", "gradient-merge") else "budgeted-removal"


def run_kernels(group: str, rows: Rows) -> None:
    """Call the compiled functions of budgeted SGD: learn four rows with a budget of two, which needs maintenance.

    The group "budgeted-removal" is for maintenance without merging, and "budgeted-average" for averaging replicas.
    """
    add_moments([], rows, np.ones((1, 2)))
    for maintenance in solver.MAINTENANCES:
        rules, state = solver.make_rules(Kernel("rbf"), 2, 2, maintenance, regularisation=1.0), make_state(2, 2)
        if (group, maintenance) in (("budgeted-average", "merge"), ("budgeted-removal", "removal")):
            solver.average_models([state, state], rules)
        if group == _name_kernels(maintenance):
            y, order = np.array([-1.0, 1.0]), np.array([0, 1, 0, 1])
            solver.learn_rows(state, rules, rows.X, y, np.ones(2), order, 2)
    add_kernel_sums(Kernel("rbf"), rows.X, rows.X, np.ones(2), np.zeros(2))
