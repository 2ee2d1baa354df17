"""Kernel SVM by decomposition, SMO or IRWLS, made ready for the rows of a source."""

from __future__ import annotations

import math
from dataclasses import asdict
from functools import partial

import numpy as np

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.machine import default_budget_bytes, default_threads
from streamsvm.methods.decomposition import solver as decomposition
from streamsvm.methods.decomposition.options import OTHER_BYTES, DecompositionOptions
from streamsvm.methods.decomposition.pair_updates import solve_by_pairs
from streamsvm.methods.decomposition.platt import solve_by_platt
from streamsvm.methods.decomposition.solver import Decomposition, is_small
from streamsvm.methods.decomposition.state import State, start_state
from streamsvm.methods.decomposition.working_set import WorkingSet
from streamsvm.methods.fit import Fit, Report, TakeRows
from streamsvm.models.model import KernelModel
from streamsvm.numeric.certificates import find_best_bias
from streamsvm.numeric.kernel_values import BLOCK_COLUMNS
from streamsvm.numeric.kernels import (
    TILE_ROWS,
    TILE_VALUES,
    Kernel,
    add_chosen_columns,
    add_kernel_sums,
    add_linear_sums,
    combine_rows,
    compute_kernel,
    compute_squares,
    to_float64,
)
from streamsvm.numeric.rows import Rows, take_rows
from streamsvm.options import BUDGET_SHARE, TrainOptions, compute_class_costs, count_resident, make_kernel
from streamsvm.requests import MemoryNeed

ROW_VECTORS = 32  # of 8 bytes a row at once: the state, the next one, and what chooses the active set
ACTIVE_VECTORS = 16  # the same of an active row
ACTIVE_COPIES = 3  # of the active rows, while they are taken
LEAST_ACTIVE_ROWS = 2048
INNER_BYTES = {"smo": 4, "irwls": 4 + 3 * 8, "qp": 4 + 5 * 8}  # an entry of K_WW, and of its copies
WORKING_ROWS = {"smo": (1024, 2048), "irwls": (128, 128), "qp": (128, 128)}  # the latter factor such matrices
WORKING_SHARE = 32  # one active row in so many, between these: measured on MNIST
ACTIVE_SHARE = 5  # one row in so many is active, where memory allows: measured on Adult, Web and ijcnn1
WHOLE_ROWS = 16_384  # so few are all active, where their kernel columns fit, too
WHOLE_BYTES = 2048  # rows so long are, too, where the columns of one row in ten fit: passes take longer than columns
WHOLE_SHARE = 10
LEAST_TILE_ROWS = 64  # of sparse rows written out, however many features they use
PRECISE_BYTES = 4 << 20  # rows of so many bytes are all active, if need be, in float64: OTHER_BYTES has room for them


def set_up(source: RowSource, options: TrainOptions, own: DecompositionOptions) -> Fit:
    """Return the solver, with as many active rows and kernel columns as the memory holds."""
    settings = _choose_settings(source, options, own)
    told = {**asdict(settings), "class_costs": list(settings.class_costs)}
    return Fit(
        method=options.solver,
        settings={name: value for name, value in told.items() if name not in ("threads", "pass_threads", "seed")},
        memory=partial(_need_memory, settings, source),
        start=partial(start_state, source.n_rows),
        solve=partial(decomposition.solve, settings),
        make_model=partial(_make_model, settings, source),
        report=_report,
        kernels=(options.solver, *(("platt",) if settings.selection == "platt" else ())),
    )


def _choose_settings(source: RowSource, options: TrainOptions, own: DecompositionOptions) -> Decomposition:
    spare = _find_spare(source, options.memory_bytes or default_budget_bytes())
    threads, inner = options.threads or default_threads(), own.inner or options.solver
    wanted = source.n_rows if own.selection == "platt" else options.resident_rows  # Platt has all rows in memory
    resident_rows = _count_active(source, wanted, spare)
    if own.selection == "chunking":  # its working set may be the whole active set
        largest = math.isqrt(spare // BUDGET_SHARE // INNER_BYTES[inner])
        resident_rows = min(resident_rows, max(LEAST_ACTIVE_ROWS, largest))
    elsewhere = options.workers is not None or options.scheduler is not None
    cache_bytes = 0 if options.kernel == "linear" else own.cache_bytes  # a linear kernel keeps no values
    working_rows = int(np.clip(resident_rows // WORKING_SHARE, *WORKING_ROWS[inner]))
    return Decomposition(
        class_costs=compute_class_costs(source, options),
        kernel=make_kernel(source, options),
        inner=inner,
        selection=own.selection,
        tol=float(options.tol),
        working_rows=own.working_rows or working_rows,
        resident_rows=resident_rows,
        precise_rows=min(source.n_rows, max(resident_rows // 2, int(PRECISE_BYTES / _row_bytes(source)), 2)),
        cache_bytes=min(spare // BUDGET_SHARE, 4 * resident_rows**2) if cache_bytes is None else cache_bytes,
        threads=threads,
        pass_threads=1 if elsewhere else max(1, threads // len(plan_groups(source))),
        seed=options.seed,
    )


def _need_memory(settings: Decomposition, source: RowSource, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of the solver.

    Every task is sent as many rows as may be active, in float64. A step needs the kernel values of a working set, twice
    where float32 is too coarse, and those of a tile of rows on each thread.
    """
    active = min(source.n_rows, settings.resident_rows)
    working = active if settings.selection == "chunking" else min(active, settings.working_rows)
    turn = 2 * INNER_BYTES[settings.inner] * working**2 + settings.threads * _tile_bytes(source)
    vectors = 8 * (ROW_VECTORS * source.n_rows + ACTIVE_VECTORS * active)
    precision = 2 if is_small(settings, source.n_rows) else 1  # float64 takes twice as much as float32
    rows_bytes = int(ACTIVE_COPIES * active * _row_bytes(source) * precision)
    shared = int(2 * active * _row_bytes(source))
    scores = 24 * source.n_rows // len(plan_groups(source))
    return MemoryNeed(
        driver_bytes=vectors + rows_bytes + shared + settings.cache_bytes + turn,
        turn_bytes=turn,
        totals_bytes=scores + settings.pass_threads * _tile_bytes(source),
        shared_bytes=shared,
    )


def _make_model(settings: Decomposition, source: RowSource, state: State, take: TakeRows) -> KernelModel:
    chosen = np.flatnonzero(state.stretch * state.alpha)
    return KernelModel(
        kernel=settings.kernel,
        support_vectors=take(chosen).X,
        dual_coef=state.stretch * state.alpha[chosen] * state.y[chosen],
        intercept=state.bias,
        classes=np.asarray(source.classes),
        scaling=source.scaling,
        feature_names=source.feature_names,
    )


def _report(state: State) -> Report:
    progress = state.progress
    return Report(progress.objective, progress.lower_bound, progress.passes, progress.rounding_bound)


def run_kernels(group: str, rows: Rows) -> None:
    """Call what decomposition needs, for columns of either precision; for the group "platt" Platt's loops alone."""
    if group == "platt":
        solve_by_platt(rows.X, np.array([-1.0, 1.0]), np.ones(2), Kernel("rbf"))
        return
    y, ones, f, X = np.array([-1.0, 1.0]), np.ones(2), np.zeros(2), rows.X
    for columns in (X, to_float64(X)):
        compute_squares(X, np.float64)
        add_linear_sums(columns, combine_rows(take_rows(columns, np.arange(2)), ones), f)
        for name in ("rbf", "poly"):
            kernel = Kernel(name)
            add_kernel_sums(kernel, X, columns, ones, f)
            solve_by_pairs(WorkingSet(compute_kernel(kernel, columns), y, np.zeros(2), np.zeros(2), ones), 1e-3)
    for entries in (np.eye(2, dtype=np.float32), np.eye(2)):
        add_chosen_columns(entries, np.arange(2), ones, f)
    find_best_bias(y, ones, f)


def _find_spare(source: RowSource, budget_bytes: int) -> int:
    """Return what the budget leaves for more active rows than the least, and for kernel columns.

    It depends on nothing that may differ when a run is resumed, or done with more threads: what else the process needs
    is a round figure. A budget that is refused leaves nothing: the need that the message names is the least one.
    """
    least = 8 * ROW_VECTORS * source.n_rows + LEAST_ACTIVE_ROWS * _active_row_bytes(source)
    return max(0, budget_bytes - OTHER_BYTES - least)


def _active_row_bytes(source: RowSource) -> int:
    return int((ACTIVE_COPIES + 2) * _row_bytes(source)) + 8 * ACTIVE_VECTORS


def _count_active(source: RowSource, wanted: int | str | None, spare_bytes: int) -> int:
    """Return how many rows may be active: those asked for; or all, if few or long; or a fifth, if they fit."""
    if wanted is None:
        fit = LEAST_ACTIVE_ROWS + spare_bytes // BUDGET_SHARE // _active_row_bytes(source)
        are_long = _row_bytes(source) >= WHOLE_BYTES
        most, part = (source.n_rows, WHOLE_SHARE) if are_long else (WHOLE_ROWS, 1)
        if source.n_rows <= min(fit, most) and 4 * source.n_rows**2 // part <= spare_bytes // BUDGET_SHARE:
            return source.n_rows
        return min(source.n_rows, max(LEAST_ACTIVE_ROWS, min(source.n_rows // ACTIVE_SHARE, fit)))
    return count_resident(wanted, source.n_rows)


def _row_bytes(source: RowSource) -> float:
    return max(1.0, source.nbytes / source.n_rows)


def _tile_bytes(source: RowSource) -> int:
    """Return the memory of kernel values and of a tile of rows written out, which long sparse rows make larger."""
    used = min(source.n_features, LEAST_TILE_ROWS * _row_bytes(source) / 8) if source.is_sparse else 0
    values = max(TILE_VALUES, LEAST_TILE_ROWS * used)
    return int(8 * BLOCK_COLUMNS * TILE_ROWS + 4 * values + 4 * source.n_features)
