"""The set-up of Crammer-Singer with kernels: its settings, memory and model for the rows of a source."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import numpy as np

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.machine import default_threads
from streamsvm.methods.class_decomposition import solver
from streamsvm.methods.class_decomposition.active_set import BLOCK_COLUMNS
from streamsvm.methods.class_decomposition.interior_point import count_jump_rows
from streamsvm.methods.class_decomposition.options import ClassDecompositionOptions
from streamsvm.methods.class_decomposition.row_steps import judge_rows, visit_rows
from streamsvm.methods.class_decomposition.state import ClassDecomposition, State, start_state
from streamsvm.methods.class_decomposition.sums import FLOAT64_ROWS
from streamsvm.methods.decomposition.active_rows import ESCALATION_ROWS
from streamsvm.methods.decomposition.active_rows_setup import (
    ACTIVE_COPIES,
    count_active,
    count_pass_threads,
    count_precise,
    count_tile_bytes,
    find_row_bytes,
    find_spare,
)
from streamsvm.methods.fit import Fit, TakeRows, report_progress
from streamsvm.models.model import KernelModel
from streamsvm.numeric import known_values
from streamsvm.numeric.class_losses import add_line_losses
from streamsvm.numeric.class_shares import multiply_shares
from streamsvm.numeric.kernels import (
    TILE_ROWS,
    Kernel,
    add_kernel_sums,
    combine_rows,
    compute_kernel,
    compute_squares,
    to_float64,
)
from streamsvm.numeric.many_kernel_sums import SUMMED_COLUMNS, prove_kernel_sums
from streamsvm.numeric.moments import add_moments
from streamsvm.numeric.rows import F64, Rows, slice_rows, take_rows
from streamsvm.options import BUDGET_SHARE, TrainOptions, make_kernel
from streamsvm.problems.joint_classification import tell_loss
from streamsvm.requests import MemoryNeed

NOT_TOLD = ("threads", "pass_threads", "seed", "class_costs")
ROW_VECTORS, CLASS_VECTORS = 16, 14  # vectors of 8 bytes for each row, and those of K entries: see `_need_memory`
ACTIVE_VECTORS, ACTIVE_CLASS_VECTORS = 8, 10  # the same for each active row, in addition
JUMP_TABLES = 5  # of the size of K kernel matrices of a working set, in the interior-point method
WORKING_ROWS = 2048  # fewer need more rounds: letter with C = 10 takes three times as long with 512 of them


def set_up(source: RowSource, options: TrainOptions, own: ClassDecompositionOptions) -> Fit:
    """Return the fit, with as many active rows and kernel columns as the memory budget holds."""
    settings, told = _choose_settings(source, options, own), tell_loss(source, options)
    about = {name: value for name, value in asdict(settings).items() if name not in NOT_TOLD}
    return Fit(
        method=options.solver,
        settings={"task": options.task, **told, **about},
        memory=partial(_need_memory, settings, source),
        start=partial(start_state, source.n_rows, settings.n_classes),
        solve=partial(solver.solve, settings),
        make_model=partial(_make_model, settings, source),
        report=report_progress,
        compiled=("smo-classes",),
    )


def _choose_settings(source: RowSource, options: TrainOptions, own: ClassDecompositionOptions) -> ClassDecomposition:
    costs = tuple(tell_loss(source, options)["class_costs"])
    held, active_bytes = _count_held_bytes(len(costs))
    spare = find_spare(source, options, held, active_bytes)
    resident_rows = count_active(source, options.resident_rows, spare, active_bytes)
    kernel, cache_bytes = make_kernel(source, options), 0 if options.kernel == "linear" else own.cache_bytes
    if kernel.name == "poly" and kernel.degree == 1 and kernel.coef0 < 0:
        raise InputError(
            f"coef0 is {kernel.coef0:g}: a constant below 0 in all kernel values leaves no lower bound; the option "
            "intercept_scaling adds one above 0, so leave coef0 out"
        )
    return ClassDecomposition(
        class_costs=costs,
        kernel=kernel,
        bias_feature=own.intercept_scaling,
        tol=float(options.tol),
        working_rows=own.working_rows or min(resident_rows, WORKING_ROWS),
        resident_rows=resident_rows,
        precise_rows=count_precise(source, resident_rows),
        cache_bytes=min(spare // BUDGET_SHARE, 4 * resident_rows**2) if cache_bytes is None else cache_bytes,
        threads=options.threads or default_threads(),
        pass_threads=count_pass_threads(source, options),
        seed=options.seed,
    )


def _count_held_bytes(n_classes: int) -> tuple[int, int]:
    """Return the bytes that the driver holds of each row, and of each active row beside its features."""
    of_row = 8 * (ROW_VECTORS + CLASS_VECTORS * n_classes)
    return of_row, 8 * (ACTIVE_VECTORS + ACTIVE_CLASS_VECTORS * n_classes) + 8 * BLOCK_COLUMNS


def _need_memory(settings: ClassDecomposition, source: RowSource, threads: int) -> MemoryNeed:
    """Return the memory that the solver needs.

    The driver holds shares and sums of two states, those that a pass has found and what a proof takes; every task is
    sent the rows that may be active, in float64, and holds the kernel values of a tile of rows with some of them.
    """
    active, n, K = min(source.n_rows, settings.resident_rows), source.n_rows, settings.n_classes
    working, row_bytes = min(active, max(settings.working_rows, ESCALATION_ROWS)), find_row_bytes(source)
    tile = count_tile_bytes(source) + 16 * TILE_ROWS * min(active, SUMMED_COLUMNS)
    jump = 8 * JUMP_TABLES * K * min(working, count_jump_rows(K)) ** 2
    turn = 16 * working**2 + settings.threads * tile + jump
    held, active_bytes = _count_held_bytes(K)
    precision = 2 if n <= settings.working_rows else 1  # float64 takes twice as much as float32
    shared = int(2 * active * row_bytes) + (16 * K * source.n_features)
    totals = 8 * (K + 3) * n
    return MemoryNeed(
        driver_bytes=held * n
        + active_bytes * active
        + int(ACTIVE_COPIES * active * row_bytes * precision)
        + shared
        + settings.cache_bytes
        + turn,
        turn_bytes=turn,
        totals_bytes=totals // len(plan_groups(source)),
        shared_bytes=shared,
        walk_bytes=threads * (settings.pass_threads * tile + int(2 * FLOAT64_ROWS * row_bytes)),
        gathered_bytes=totals,
    )


def _make_model(settings: ClassDecomposition, source: RowSource, state: State, take: TakeRows) -> KernelModel:
    """Return the model. Two classes have one score, that of the second class less that of the first."""
    chosen = np.flatnonzero(np.any(state.share > 0.0, axis=1) & (state.costs > 0.0))
    alpha = multiply_shares(state.share[chosen], state.y[chosen], state.costs[chosen]).T
    coefs: F64 = alpha[1] - alpha[0] if settings.n_classes == 2 else np.ascontiguousarray(alpha)
    biases = settings.constant * np.sum(coefs, axis=-1)
    vectors = take(chosen).X
    return KernelModel(
        kernel=settings.kernel,
        support_vectors=slice_rows(vectors, slice(0, 0)) if settings.kernel.name == known_values.NAME else vectors,
        dual_coef=coefs,
        intercept=float(biases) if settings.n_classes == 2 else biases,
        classes=np.asarray(source.classes),
        scaling=source.scaling,
        feature_names=source.feature_names,
        support=chosen,
    )


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call every compiled function in both precisions."""
    y, ones, coefs = np.arange(2, dtype=np.int32), np.ones(2), np.ones((2, 2))
    add_moments([], rows, coefs)
    for columns in (rows.X, to_float64(rows.X)):
        compute_squares(columns, np.float64)
        combine_rows(take_rows(columns, np.arange(2)), ones)
        for name in ("rbf", "poly", "linear"):
            add_kernel_sums(Kernel(name), rows.X, columns, ones, np.zeros(2))
            K = compute_kernel(Kernel(name), columns)
            visit_rows(K, y, ones, np.zeros((2, 2)), np.zeros((2, 2)), np.arange(2), 0.0)
    for name in ("rbf", "linear"):
        prove_kernel_sums(Kernel(name), to_float64(rows.X), to_float64(rows.X), coefs)
    add_line_losses(coefs, coefs, y, ones, ones, np.zeros(2))
    judge_rows(np.zeros((2, 2)), y, ones, np.zeros((2, 2)), np.zeros(2), np.zeros(2))
