"""The set-up of budgeted SGD: its settings, memory, model and report for the rows of a source or of a stream."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.machine import default_threads
from streamsvm.methods.budgeted_sgd import solver as budgeted_sgd
from streamsvm.methods.budgeted_sgd.average import average_models
from streamsvm.methods.budgeted_sgd.budget import MAINTENANCES, learn_rows, make_rules
from streamsvm.methods.budgeted_sgd.options import BudgetedOptions
from streamsvm.methods.budgeted_sgd.settings import BudgetedSGD
from streamsvm.methods.budgeted_sgd.solver import SAMPLE_ROWS, State
from streamsvm.methods.budgeted_sgd.state import LANES, make_state
from streamsvm.methods.fit import Fit, Report, TakeRows
from streamsvm.methods.option_fields import read_options
from streamsvm.models.model import KernelModel
from streamsvm.numeric.kernel_values import BLOCK_COLUMNS
from streamsvm.numeric.kernels import TILE_ROWS, TILE_VALUES, Kernel, add_kernel_sums
from streamsvm.numeric.moments import add_moments
from streamsvm.numeric.rows import I64, Rows
from streamsvm.options import TrainOptions, check_numbers, compute_class_costs, make_kernel
from streamsvm.problems.registry import find_problem
from streamsvm.problems.regression import EpsilonInsensitive, SquaredEpsilonInsensitive
from streamsvm.requests import MemoryNeed

MERGE = 2
NOT_TOLD = ("threads", "epochs", "seed", "tube", "is_squared", "numbers", "bias_start", "bias_unit")
BUFFER_BYTES = 32 << 20
MOST_CHUNKS = 8  # most chunks of a buffer; a buffer has two chunks even if they are larger than BUFFER_BYTES
SAMPLE_CHUNKS = 4  # chunks from which the rows are drawn that estimate the objective
ROW_VECTORS = 8  # vectors of 8 bytes for each row of a buffer: labels, costs, order
STATE_COPIES = 6  # copies of each replica's model in the driver: states, carries, a checkpoint, the model itself
LARGEST_RECORD = (1 << 31) - (1 << 20)  # NumPy's limit for a record, in which a checkpoint keeps a model
TABLE_BYTES = 16 << 20  # the tables of merging, and small objects


def set_up(source: RowSource, options: TrainOptions, own: BudgetedOptions) -> Fit:
    """Return the fit. Raises InputError for settings that do not go together."""
    return _make_fit(source, options, _choose_settings(source, options, own))


def _choose_settings(source: RowSource, options: TrainOptions, own: BudgetedOptions) -> BudgetedSGD:
    loss = _make_regression_loss(source, options)
    settings = BudgetedSGD(
        C=float(options.C),
        class_weights=compute_class_costs(source, replace(options, C=1.0)) if loss is None else (1.0, 1.0),
        kernel=make_kernel(source, options),
        n_rows=source.n_rows,
        n_features=source.n_features,
        n_chunks=source.n_chunks,
        is_sparse=source.is_sparse,
        buffer_chunks=_count_chunks(source),
        budget=own.budget,
        merge=own.merge or min(MERGE, own.budget + 1),
        maintenance=own.maintenance,
        free_bias=(own.bias or ("none" if loss is None else "free")) == "free",
        epochs=own.epochs,
        pack_rows=own.pack,
        replicas=own.replicas,
        threads=options.threads or default_threads(),
        seed=options.seed,
        tube=None if loss is None else loss.epsilon,
        is_squared=isinstance(loss, SquaredEpsilonInsensitive),
        numbers=np.empty(0) if loss is None else loss.numbers,
    )
    _check(settings)
    return settings


def _make_regression_loss(
    source: RowSource, options: TrainOptions
) -> EpsilonInsensitive | SquaredEpsilonInsensitive | None:
    """Return the loss of a regression, or None for classes, whose loss is the hinge."""
    make = find_problem(options.task).make_loss
    loss = None if make is None else make(source, options)
    return loss if isinstance(loss, EpsilonInsensitive | SquaredEpsilonInsensitive) else None


def _tell(source: RowSource, options: TrainOptions, settings: BudgetedSGD) -> dict[str, Any]:
    """Return the settings that a resumed run must share. `epochs` is not among them, since it may go on for more."""
    told = {**asdict(settings), "class_weights": list(settings.class_weights)}
    for name in NOT_TOLD:
        del told[name]
    if settings.tube is None:
        return told
    problem = find_problem(options.task)
    assert problem.tell_loss is not None
    del told["class_weights"]
    return {**told, **problem.tell_loss(source, options)}


def _make_fit(source: RowSource, options: TrainOptions, settings: BudgetedSGD) -> Fit:
    """Return the fit with these settings."""
    return Fit(
        method="budgeted-sgd",
        settings=_tell(source, options, settings),
        memory=partial(_need_memory, settings, source),
        start=partial(budgeted_sgd.start_state, settings),
        solve=partial(budgeted_sgd.solve, settings, _choose_sample(source, settings.seed)),
        make_model=partial(_make_model, settings, source),
        report=partial(_report, settings),
        compiled=(_name_kernels(settings.maintenance), *(("budgeted-average",) if settings.replicas > 1 else ())),
    )


def _need_memory(settings: BudgetedSGD, source: RowSource, threads: int) -> MemoryNeed:
    """Return the memory that the solver needs.

    No pass adds up totals, and every task is sent the models. A step estimates the objective on a sample of rows. A
    sequential pass computes on one buffer of rows while the next is read and put together.
    """
    state_bytes = count_state_bytes(settings)
    models = settings.replicas * state_bytes
    kernel_bytes = settings.threads * (8 * BLOCK_COLUMNS * TILE_ROWS + 4 * TILE_VALUES + 4 * source.n_features)
    turn = 4 * SAMPLE_ROWS * source.nbytes // source.n_rows + kernel_bytes + TABLE_BYTES
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


def _make_model(settings: BudgetedSGD, source: RowSource, state: State, take: TakeRows) -> KernelModel:  # noqa: ARG001
    model = budgeted_sgd.read_current(settings, state)
    vectors, coef, bias = budgeted_sgd.read_vectors(settings, model)
    return KernelModel(
        kernel=settings.kernel,
        support_vectors=vectors,
        dual_coef=coef,
        intercept=bias,
        classes=np.asarray(source.classes) if settings.tube is None else np.empty(0),
        scaling=source.scaling,
        feature_names=source.feature_names,
    )


def _report(settings: BudgetedSGD, state: State) -> Report:
    """Return the report of a state. An epoch that has begun counts as a pass."""
    passes = state.epoch + (state.buffer > 0)
    return Report(state.objective, None, passes, finished=state.epoch >= settings.epochs)


def _check(settings: BudgetedSGD) -> None:
    """Raise InputError for settings that do not go together.

    `settings.rules` raises it, too, for merging with another kernel than rbf.
    """
    kernel, rules = settings.kernel, settings.rules
    is_mercer = kernel.name in ("linear", "rbf") or (kernel.name == "poly" and kernel.coef0 >= 0)
    if rules.maintenance == MAINTENANCES.index("projection") and not is_mercer:
        raise InputError(f"projection is for Mercer kernels, which {kernel.name} is not here; use removal")
    if count_state_bytes(settings) >= LARGEST_RECORD:
        raise InputError(f"{settings.budget} support vectors of {settings.n_features} features: 2 GB at most")


@dataclass(frozen=True)
class Stream:
    """A learner of a stream of rows, chunk by chunk, whose end is not known. `fit` makes a model of its state."""

    settings: BudgetedSGD
    fit: Fit

    def learn_chunk(self, source: RowSource, state: State) -> State:
        """Return the state after all rows of a chunk of the stream, with the objective estimated on that chunk."""
        for index in range(source.n_chunks):
            state = budgeted_sgd.learn_rows_of_stream(self.settings, state, source.read(index))
        model = budgeted_sgd.read_current(self.settings, state)
        sample = source.take(_choose_sample(source, self.settings.seed))
        state.objective = budgeted_sgd.estimate_objective(self.settings, model, sample)
        return state


def make_stream(chunk: RowSource, options: TrainOptions, expected_rows: int | None) -> Stream:
    """Return a learner for the stream that begins with this chunk.

    expected_rows is the n of lambda = 1 / (n C); by default it is the number of rows of the first chunk.
    """
    check_numbers(options)
    n_rows = chunk.n_rows if expected_rows is None else expected_rows
    if not (isinstance(n_rows, Integral) and n_rows > 0):
        raise InputError(f"expected_rows is {expected_rows!r}; a whole number of at least 1 is expected")
    own = read_options(BudgetedOptions, options.options, options.solver)
    settings = replace(_choose_settings(chunk, options, own), n_rows=int(n_rows), replicas=1)
    if settings.tube is not None:
        settings = budgeted_sgd.aim_bias(settings, chunk.take(_choose_sample(chunk, settings.seed)))
    return Stream(settings, _make_fit(chunk, options, settings))


def count_state_bytes(settings: BudgetedSGD) -> int:
    """Return the bytes of a replica's model: 4 for each value of a vector, and 16 for each vector."""
    return (4 * settings.n_features + 16) * (settings.replica_budget + LANES)


def _count_chunks(source: RowSource) -> int:
    """Return the number of chunks of a buffer, which depends on the shape of the data alone, so that runs agree."""
    chunk_bytes = max(1, source.nbytes // source.n_chunks)
    return int(np.clip(BUFFER_BYTES // chunk_bytes, min(2, source.n_chunks), min(MOST_CHUNKS, source.n_chunks)))


def _choose_sample(source: RowSource, seed: int) -> I64:
    """Return the rows of the sample, ascending. They are from few chunks, since a chunk is read whole for any row."""
    if source.n_rows <= SAMPLE_ROWS:
        return np.arange(source.n_rows)
    rng, starts = np.random.default_rng((seed, 1 << 32)), source.chunk_starts
    chosen = rng.permutation(source.n_chunks)[:SAMPLE_CHUNKS]
    rows = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in chosen.tolist()])
    return np.sort(rng.choice(rows, min(SAMPLE_ROWS, len(rows)), replace=False))


def _name_kernels(maintenance: str) -> str:
    return "budgeted-sgd" if maintenance in ("merge", "gradient-merge") else "budgeted-removal"


def run_kernels(group: str, rows: Rows) -> None:
    """Call the compiled functions of budgeted SGD: four rows are learned with a budget of two, which keeps a budget.

    The group "budgeted-removal" is for maintenance that merges no vectors; "budgeted-average" joins replicas.
    """
    add_moments([], rows, np.ones((1, 2)))
    for maintenance in MAINTENANCES:
        rules, state = make_rules(Kernel("rbf"), 2, 2, maintenance, regularisation=1.0), make_state(2, 2)
        if (group, maintenance) in (("budgeted-average", "merge"), ("budgeted-removal", "removal")):
            average_models([state, state], rules)
        if group == _name_kernels(maintenance):
            y, order = np.array([-1.0, 1.0]), np.array([0, 1, 0, 1])
            learn_rows(state, rules, rows.X, y, np.ones(2), order, 2)
    add_kernel_sums(Kernel("rbf"), rows.X, rows.X, np.ones(2), np.zeros(2))
