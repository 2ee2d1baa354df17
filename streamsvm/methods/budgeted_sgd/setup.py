"""Budgeted SGD, as `train` drives it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.machine import default_threads
from streamsvm.methods.budgeted_sgd import solver as budgeted_sgd
from streamsvm.methods.budgeted_sgd.budget import MAINTENANCES
from streamsvm.methods.budgeted_sgd.solver import SAMPLE_ROWS, BudgetedSGD, State
from streamsvm.methods.budgeted_sgd.state import LANES
from streamsvm.methods.method import Report, TakeRows
from streamsvm.models.model import KernelModel
from streamsvm.numeric.kernel_values import BLOCK_COLUMNS
from streamsvm.numeric.kernels import TILE_ROWS, TILE_VALUES
from streamsvm.numeric.rows import I64
from streamsvm.options import (
    TrainOptions,
    check_names,
    check_numbers,
    compute_class_costs,
    make_kernel,
    read_choice,
    read_count,
)
from streamsvm.requests import Solver

OPTIONS = ("budget", "merge", "maintenance", "epochs", "pack", "replicas", "bias")
BUDGET, MERGE = 500, 2
BUFFER_BYTES = 32 << 20
MOST_CHUNKS = 8  # of a buffer; two where one is larger than BUFFER_BYTES
SAMPLE_CHUNKS = 4  # that the rows of the estimate are taken from
ROW_VECTORS = 8  # of 8 bytes a row of a buffer: labels, costs, order
STATE_COPIES = 6  # in the driver, of each replica: states, carries, a checkpoint, a model
LARGEST_RECORD = (1 << 31) - (1 << 20)  # NumPy's, in which a checkpoint keeps a model
TABLE_BYTES = 16 << 20  # of merging, and small things


@dataclass(frozen=True)
class BudgetedModels:
    """See Algorithm; budgeted_sgd.solver."""

    settings: BudgetedSGD
    name: ClassVar[str] = "budgeted-sgd"

    def describe(self) -> dict[str, Any]:
        """See Algorithm; a run may go on for more epochs."""
        settings = asdict(self.settings)
        settings["class_weights"] = list(self.settings.class_weights)
        return {name: value for name, value in settings.items() if name not in ("threads", "epochs", "seed")}

    def driver_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return STATE_COPIES * self.shared_bytes(source) + self.turn_bytes(source)

    def turn_bytes(self, source: RowSource) -> int:
        """See Algorithm: what estimates the objective, and tables."""
        sample_bytes = 4 * SAMPLE_ROWS * source.nbytes // source.n_rows
        kernel_bytes = self.settings.threads * (8 * BLOCK_COLUMNS * TILE_ROWS + 4 * TILE_VALUES + 4 * source.n_features)
        return sample_bytes + kernel_bytes + TABLE_BYTES

    def totals_bytes(self, source: RowSource) -> int:  # noqa: ARG002
        """See Algorithm: no pass adds anything up."""
        return 0

    def shared_bytes(self, source: RowSource) -> int:  # noqa: ARG002
        """See Algorithm: the models."""
        return self.settings.replicas * count_state_bytes(self.settings)

    def walk_bytes(self, source: RowSource, threads: int) -> int:
        """See Algorithm: a buffer is computed on while another is read and put together."""
        settings = self.settings
        rows = settings.buffer_chunks * int(np.diff(source.chunk_starts).max())
        buffer_bytes = 3 * rows * source.nbytes // source.n_rows + 8 * ROW_VECTORS * rows
        pack_bytes = settings.pack_rows * (4 * (settings.budget + LANES) + 16 * source.n_features)
        n_entries = (settings.budget + 1) ** 2 if settings.maintenance == "projection" else 0
        one = buffer_bytes + 3 * count_state_bytes(self.settings) + pack_bytes + 8 * 6 * n_entries + TABLE_BYTES
        return min(threads, settings.replicas) * one

    def start_state(self, source: RowSource) -> State:  # noqa: ARG002
        """See Algorithm."""
        return budgeted_sgd.start_state(self.settings)

    def warm_state(self, source: RowSource, before: State, factor: float) -> State:  # noqa: ARG002
        """See Algorithm."""
        return self.start_state(source)

    def solve(self, source: RowSource, state: State) -> Solver:
        """See Algorithm."""
        return budgeted_sgd.solve(self.settings, _choose_sample(source, self.settings.seed), state)

    def learn_chunk(self, source: RowSource, state: State) -> State:
        """Learn all rows of a source that is a chunk of a stream."""
        for index in range(source.n_chunks):
            state = budgeted_sgd.learn_rows_of_stream(self.settings, state, source.read(index))
        model = budgeted_sgd.read_current(self.settings, state)
        sample = source.take(_choose_sample(source, self.settings.seed))
        state.objective = budgeted_sgd.estimate_objective(self.settings, model, sample)
        return state

    def make_model(self, source: RowSource, state: State, take: TakeRows) -> KernelModel:  # noqa: ARG002
        """See Algorithm."""
        model = budgeted_sgd.read_current(self.settings, state)
        vectors, coef, bias = budgeted_sgd.read_vectors(self.settings, model)
        return KernelModel(
            kernel=self.settings.kernel,
            support_vectors=vectors,
            dual_coef=coef,
            intercept=bias,
            classes=np.asarray(source.classes),
            scaling=source.scaling,
            feature_names=source.feature_names,
        )

    def report(self, state: State) -> Report:
        """See Algorithm; an epoch that was begun counts."""
        passes = state.epoch + (state.buffer > 0)
        return Report(state.objective, None, passes, finished=state.epoch >= self.settings.epochs)


def make_budgeted(source: RowSource, options: TrainOptions) -> BudgetedModels:
    """Options: budget, merge, maintenance, epochs, pack, replicas, bias=none|free."""
    check_names(options, OPTIONS)
    if options.resident_rows is not None:
        raise InputError("resident rows are not for budgeted-sgd, which holds none; leave them out")
    given, ones = options.options, replace(options, C=1.0)
    budget = read_count(given, "budget", 1) or BUDGET
    settings = BudgetedSGD(
        C=float(options.C),
        class_weights=compute_class_costs(source, ones),
        kernel=make_kernel(source, options),
        n_rows=source.n_rows,
        n_features=source.n_features,
        n_chunks=source.n_chunks,
        is_sparse=source.is_sparse,
        buffer_chunks=_count_chunks(source),
        budget=budget,
        merge=read_count(given, "merge", 2) or min(MERGE, budget + 1),
        maintenance=read_choice(given, "maintenance", MAINTENANCES),  # type: ignore[arg-type]
        free_bias=read_choice(given, "bias", ("none", "free")) == "free",
        epochs=read_count(given, "epochs", 1) or 1,
        pack_rows=read_count(given, "pack", 1) or 64,
        replicas=read_count(given, "replicas", 1) or 1,
        threads=options.threads or default_threads(),
        seed=options.seed,
    )
    _check(settings)
    return BudgetedModels(settings)


def _check(settings: BudgetedSGD) -> None:
    """InputError for what does not go together; the rules refuse merging of other kernels than rbf."""
    kernel, rules = settings.kernel, settings.rules
    is_mercer = kernel.name in ("linear", "rbf") or (kernel.name == "poly" and kernel.coef0 >= 0)
    if rules.maintenance == MAINTENANCES.index("projection") and not is_mercer:
        raise InputError(f"projection is for Mercer kernels, which {kernel.name} is not here; use removal")
    if count_state_bytes(settings) >= LARGEST_RECORD:
        raise InputError(f"{settings.budget} support vectors of {settings.n_features} features: 2 GB at most")


def make_stream(chunk: RowSource, options: TrainOptions, expected_rows: int | None) -> BudgetedModels:
    """Return what learns a stream that begins with a chunk; expected_rows: n of lambda = 1 / (n C)."""
    check_numbers(options)
    n_rows = chunk.n_rows if expected_rows is None else expected_rows
    if not (isinstance(n_rows, Integral) and n_rows > 0):
        raise InputError(f"expected_rows is {expected_rows!r}; a whole number of at least 1 is expected")
    settings = make_budgeted(chunk, options).settings
    return BudgetedModels(replace(settings, n_rows=int(n_rows), replicas=1))


def count_state_bytes(settings: BudgetedSGD) -> int:
    """Return the memory of a replica's model: its vectors by feature, and what it knows of each."""
    return (4 * settings.n_features + 16) * (settings.replica_budget + LANES)


def _count_chunks(source: RowSource) -> int:
    """Return the chunks of a buffer, by the shape of the data alone."""
    chunk_bytes = max(1, source.nbytes // source.n_chunks)
    return int(np.clip(BUFFER_BYTES // chunk_bytes, min(2, source.n_chunks), min(MOST_CHUNKS, source.n_chunks)))


def _choose_sample(source: RowSource, seed: int) -> I64:
    """Return rows drawn from a few chunks: all have to be read for rows of all of them."""
    if source.n_rows <= SAMPLE_ROWS:
        return np.arange(source.n_rows)
    rng, starts = np.random.default_rng((seed, 1 << 32)), source.chunk_starts
    chosen = rng.permutation(source.n_chunks)[:SAMPLE_CHUNKS]
    rows = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in chosen.tolist()])
    return np.sort(rng.choice(rows, min(SAMPLE_ROWS, len(rows)), replace=False))
