"""The set-up of decomposition (SMO or IRWLS): its settings, memory, model and report for the rows of a source."""

from __future__ import annotations

import math
from dataclasses import asdict
from functools import partial

import numpy as np

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.machine import default_threads
from streamsvm.methods.decomposition import solver as decomposition
from streamsvm.methods.decomposition.active_rows_setup import (
    ACTIVE_COPIES,
    LEAST_ACTIVE_ROWS,
    count_active,
    count_pass_threads,
    count_precise,
    count_tile_bytes,
    find_row_bytes,
    find_spare,
)
from streamsvm.methods.decomposition.options import SMALL_ROWS, DecompositionOptions
from streamsvm.methods.decomposition.pair_updates import solve_by_pairs
from streamsvm.methods.decomposition.platt import solve_by_platt
from streamsvm.methods.decomposition.settings import Decomposition, is_small
from streamsvm.methods.decomposition.state import State, start_state
from streamsvm.methods.decomposition.working_set import WorkingSet
from streamsvm.methods.fit import Fit, Report, TakeRows
from streamsvm.models.model import KernelModel
from streamsvm.numeric import known_values
from streamsvm.numeric.certificates import find_best_bias
from streamsvm.numeric.kernels import (
    Kernel,
    add_chosen_columns,
    add_kernel_sums,
    add_linear_sums,
    combine_rows,
    compute_kernel,
    compute_squares,
    to_float64,
)
from streamsvm.numeric.many_kernel_sums import compute_kernel_sums
from streamsvm.numeric.moments import add_moments
from streamsvm.numeric.rows import F64, Matrix, Rows, slice_rows, take_rows
from streamsvm.options import BUDGET_SHARE, TrainOptions, compute_class_costs, make_kernel
from streamsvm.problems.nu import NU_REGRESS
from streamsvm.problems.one_class import read_share
from streamsvm.problems.problem import Labels, Problem
from streamsvm.problems.registry import find_problem
from streamsvm.problems.regression import EpsilonInsensitive, read_numbers
from streamsvm.requests import MemoryNeed

NOT_TOLD = ("threads", "pass_threads", "seed", "numbers", "max_pairs")
# Vectors of 8 bytes a row: the state, the next state, and what the choice of active rows and the proof need. With the
# messages of workers, which are planned apart, 27 (one class) to 34 (irwls) were measured.
ROW_VECTORS = 40
BOTH_SIDES_VECTORS = 24  # in addition, for a regression, whose proof takes both hinges of every row
ACTIVE_VECTORS = 16  # vectors of 8 bytes an active row, in addition
INNER_BYTES = {"smo": 4, "irwls": 4 + 3 * 8, "qp": 4 + 5 * 8}  # bytes of an entry of K_WW and of its copies
WORKING_ROWS = {"smo": (SMALL_ROWS, 2048), "irwls": (128, 128), "qp": (128, 128)}  # the latter two factor matrices
WORKING_SHARE = 32  # one active row in 32 is in the working set, within WORKING_ROWS: measured on MNIST


def set_up(source: RowSource, options: TrainOptions, own: DecompositionOptions) -> Fit:
    """Return the fit, with as many active rows and kernel columns as the memory budget holds."""
    settings = _choose_settings(source, options, own)
    problem, told = find_problem(options.task), {**asdict(settings), "class_costs": list(settings.class_costs)}
    if settings.tube is None:
        del told["tube"]
    if settings.nu is None:
        del told["nu"]
    del told["two_sums"]
    if not (settings.tube is None and settings.nu is None):
        assert problem.tell_loss is not None
        del told["class_costs"]
        told |= problem.tell_loss(source, options)
    return Fit(
        method=options.solver,
        settings={name: value for name, value in told.items() if name not in NOT_TOLD},
        memory=partial(_need_memory, settings, source),
        start=partial(start_state, source.n_rows),
        solve=partial(decomposition.solve, settings),
        make_model=partial(_make_model, settings, source, _find_classes(problem, source)),
        report=_report,
        compiled=_name_kernels(options, settings),
    )


def _choose_settings(source: RowSource, options: TrainOptions, own: DecompositionOptions) -> Decomposition:
    active_bytes, vectors = 8 * ACTIVE_VECTORS, _count_vectors(not find_problem(options.task).has_classes)
    spare = find_spare(source, options, 8 * vectors, active_bytes)
    threads, inner = options.threads or default_threads(), own.inner or options.solver
    wanted = source.n_rows if own.selection == "platt" else options.resident_rows  # Platt has all rows in memory
    resident_rows = count_active(source, wanted, spare, active_bytes)
    if own.selection == "chunking":  # its working set may be the whole active set
        largest = math.isqrt(spare // BUDGET_SHARE // INNER_BYTES[inner])
        resident_rows = min(resident_rows, max(LEAST_ACTIVE_ROWS, largest))
    cache_bytes = 0 if options.kernel == "linear" else own.cache_bytes  # a linear kernel keeps no values
    working_rows = int(np.clip(resident_rows // WORKING_SHARE, *WORKING_ROWS[inner]))
    problem, loss = find_problem(options.task), _make_regression_loss(source, options)
    has_classes = problem.has_classes and problem.own_classes is None
    if own.selection == "platt" and (problem.has_nu or not has_classes):
        raise InputError("selection platt: Platt's loops are for two classes and C; choose another selection")
    if problem.has_nu and problem.own_classes is None and inner != "smo":
        raise InputError(
            f"inner {inner}: it keeps one sum of multipliers, and the task {problem.name} has two; use smo"
        )
    if own.max_pairs is not None and (inner != "smo" or own.selection == "platt"):
        raise InputError("max_pairs: it counts the pair steps of smo on working sets, and there are none; leave it out")
    if options.kernel == known_values.NAME and own.selection == "platt":
        raise InputError("selection platt: Platt's loops compute kernel values; choose another for known values")
    kernel = make_kernel(source, options)
    if problem.own_classes is not None and kernel.name == "poly" and kernel.degree == 1 and kernel.coef0 < 0:
        told = "a constant in all kernel values changes no model of one class, and one below 0 leaves no lower bound"
        raise InputError(f"coef0 is {kernel.coef0:g}: {told}; leave coef0 out")
    return Decomposition(
        tube=None if loss is None else loss.epsilon,
        numbers=np.empty(0) if loss is None else loss.numbers,
        nu=read_share(options) if problem.has_nu else None,
        two_sums=problem.has_nu and has_classes,
        class_costs=compute_class_costs(source, options) if has_classes else (options.C, options.C),
        kernel=kernel,
        inner=inner,
        selection=own.selection,
        tol=float(options.tol),
        working_rows=own.working_rows or working_rows,
        resident_rows=resident_rows,
        precise_rows=count_precise(source, resident_rows),
        cache_bytes=min(spare // BUDGET_SHARE, 4 * resident_rows**2) if cache_bytes is None else cache_bytes,
        threads=threads,
        pass_threads=count_pass_threads(source, options),
        seed=options.seed,
        max_pairs=own.max_pairs,
    )


def _need_memory(settings: Decomposition, source: RowSource, threads: int) -> MemoryNeed:
    """Return the memory that the solver needs.

    Every task is sent the rows that may be active, in float64. A step holds the kernel values of a working set (twice
    the bytes of float32, which may be too coarse), and those of a tile of rows for each thread.
    """
    active = min(source.n_rows, settings.resident_rows)
    working = active if settings.selection == "chunking" else min(active, settings.working_rows)
    turn = 2 * INNER_BYTES[settings.inner] * working**2 + settings.threads * count_tile_bytes(source)
    vectors = 8 * (_count_vectors(settings.tube is not None) * source.n_rows + ACTIVE_VECTORS * active)
    precision = 2 if is_small(settings, source.n_rows) else 1  # float64 takes twice as much as float32
    rows_bytes = int(ACTIVE_COPIES * active * find_row_bytes(source) * precision)
    shared = int(2 * active * find_row_bytes(source))
    scores = 24 * source.n_rows // len(plan_groups(source))
    return MemoryNeed(
        driver_bytes=vectors + rows_bytes + shared + settings.cache_bytes + turn,
        turn_bytes=turn,
        totals_bytes=scores,
        shared_bytes=shared,
        gathered_bytes=24 * source.n_rows,
        walk_bytes=threads * settings.pass_threads * count_tile_bytes(source),
    )


def _make_regression_loss(source: RowSource, options: TrainOptions) -> EpsilonInsensitive | None:
    """Return the loss of a regression, or None for classes and one class. nu-SVR begins without a tube."""
    if options.task == NU_REGRESS.name:
        return EpsilonInsensitive(float(options.C), 0.0, read_numbers(source))
    make = find_problem(options.task).make_loss
    loss = None if make is None else make(source, options)
    return loss if isinstance(loss, EpsilonInsensitive) else None


def _find_classes(problem: Problem, source: RowSource) -> Labels:
    """Return the classes of the model: those of the labels, of the problem, or none."""
    if problem.own_classes is not None:
        return np.array(problem.own_classes)
    return np.asarray(source.classes) if problem.has_classes else np.empty(0)


def _make_model(
    settings: Decomposition, source: RowSource, classes: Labels, state: State, take: TakeRows
) -> KernelModel:
    chosen = np.flatnonzero(state.stretch * state.alpha)
    vectors = take(chosen).X
    return KernelModel(
        kernel=settings.kernel,
        support_vectors=slice_rows(vectors, slice(0, 0)) if settings.kernel.name == known_values.NAME else vectors,
        dual_coef=state.stretch * state.alpha[chosen] * state.y[chosen],
        intercept=state.bias,
        classes=classes,
        scaling=source.scaling,
        feature_names=source.feature_names,
        support=chosen,
    )


def _report(state: State) -> Report:
    progress = state.progress
    return Report(progress.objective, progress.lower_bound, progress.passes, progress.rounding_bound, pairs=state.pairs)


def _name_kernels(options: TrainOptions, settings: Decomposition) -> tuple[str, ...]:
    more = ("linear-sums",) if settings.kernel.name == "linear" else ()
    return (options.solver, *more, *(("platt",) if settings.selection == "platt" else ()))


def run_kernels(group: str, rows: Rows) -> None:
    """Call every compiled function of decomposition in both precisions.

    Three groups are parts: "linear-sums" is what linear kernels need in addition, "platt" is Platt's loops, and
    "kernel-sums" is what measures a model.
    """
    y, ones, f, X = np.array([-1.0, 1.0]), np.ones(2), np.zeros(2), rows.X
    if group == "platt":
        solve_by_platt(X, y, ones, Kernel("rbf"))
    elif group in ("linear-sums", "kernel-sums"):
        for columns in (X, to_float64(X)):
            add_linear_sums(columns, combine_rows(take_rows(columns, np.arange(2)), ones), f)
        if group == "kernel-sums":
            compute_kernel_sums(Kernel("rbf"), to_float64(X), X, np.ones((1, 2)))
    else:
        _run_all_kernels(X, y, ones, f)
        add_moments([], rows, np.ones((1, 2)))


def _run_all_kernels(X: Matrix, y: F64, ones: F64, f: F64) -> None:
    for columns in (X, to_float64(X)):
        compute_squares(X, np.float64)
        take_rows(columns, np.arange(2))
        for name in ("rbf", "poly"):
            kernel = Kernel(name)
            add_kernel_sums(kernel, X, columns, ones, f)
            solve_by_pairs(WorkingSet(compute_kernel(kernel, columns), y, np.zeros(2), np.zeros(2), ones), 1e-3)
    for entries in (np.eye(2, dtype=np.float32), np.eye(2)):
        add_chosen_columns(entries, np.arange(2), ones, f)
    find_best_bias(y, ones, f)


def _count_vectors(is_regression: bool) -> int:
    return ROW_VECTORS + (BOTH_SIDES_VECTORS if is_regression else 0)
