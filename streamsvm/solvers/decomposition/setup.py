"""The set-up of decomposition (SMO or IRWLS): settings, memory, model and report for the rows of a source.

The settings include the number of active rows, which depends on the memory of active rows and of the tiles of a pass.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.certificates.kernel import find_best_bias
from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.kernels import kernel as kernels
from streamsvm.kernels import precomputed
from streamsvm.kernels.values import BLOCK_COLUMNS
from streamsvm.models.model import KernelModel
from streamsvm.numeric.rows import Rows, take_rows
from streamsvm.options import BUDGET_SHARE, TrainOptions, compute_class_costs, count_resident, make_kernel
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.problems.nu import read_share
from streamsvm.problems.registry import find_problem
from streamsvm.problems.regression import read_numbers
from streamsvm.solvers.decomposition import solver
from streamsvm.solvers.decomposition.inner_solvers import NO_LIMIT, run_pairs
from streamsvm.solvers.decomposition.platt import solve_by_platt
from streamsvm.solvers.decomposition.state import ActiveRowSettings, Decomposition, State, start_state
from streamsvm.solvers.decomposition.working_set import WorkingSet
from streamsvm.solvers.options import SMALL_ROWS, DecompositionOptions
from streamsvm.solvers.solver import Budget, Report, Solver, TakeRows, describe_parameters, make_kernel_model
from streamsvm.system.errors import InputError
from streamsvm.system.machine import default_threads

ACTIVE_COPIES = 3  # copies of the active rows in memory while they are read
LEAST_ACTIVE_ROWS = 2048
ACTIVE_SHARE = 5  # one row in 5 is active, if memory allows; chosen by measurements on Adult, Web and ijcnn1
WHOLE_ROWS = 16_384  # up to this number, all rows are active if all their kernel columns fit into memory
# Rows of 2 KiB or more are also all active if the kernel columns of a tenth of them fit into memory, since a pass over
# long rows takes longer than computing columns.
WHOLE_BYTES = 2048
WHOLE_SHARE = 10
LEAST_TILE_ROWS = 64  # a tile has at least this many sparse rows, whatever the number of their features
PRECISE_BYTES = 4 << 20  # active rows of this size may always be float64: registry.OTHER_BYTES covers them


Held = tuple[int, int]  # bytes that the driver holds per row, and further bytes per active row, without its features


def choose_active(
    source: RowSource, options: TrainOptions, cache_bytes: int | None, budget: Budget, held: Held, entry_bytes: int = 0
) -> dict[str, Any]:
    """Return the settings common to all decompositions: as many active rows and kernel columns as memory allows.

    cache_bytes: the requested memory for kernel columns, or None. entry_bytes: the bytes per kernel value of a working
    set that may hold all active rows; 0 if working sets are small.
    The result must not change if a run is resumed or has more threads. Therefore the other needs of the process are
    estimated by a round figure (Budget.process_bytes). If the budget is too small, the smallest possible numbers are
    chosen; the error that rejects them then names the smallest sufficient memory.
    """
    held_bytes, active_bytes = held
    row_bytes = find_row_bytes(source)
    active_row_bytes = int((ACTIVE_COPIES + 2) * row_bytes) + active_bytes
    share = max(0, budget.spare_bytes - held_bytes * source.n_rows - LEAST_ACTIVE_ROWS * active_row_bytes)
    share //= BUDGET_SHARE  # active rows get this share, and kernel columns an equal share
    if options.resident_rows is None:
        resident_rows = _count_active(source, LEAST_ACTIVE_ROWS + share // active_row_bytes, share)
    else:
        resident_rows = count_resident(options.resident_rows, source.n_rows)
    if entry_bytes:
        resident_rows = min(resident_rows, max(LEAST_ACTIVE_ROWS, math.isqrt(share // entry_bytes)))
    if options.kernel == "linear":
        cache_bytes = 0  # a linear kernel caches no values
    precise_rows = max(resident_rows // 2, int(PRECISE_BYTES / row_bytes), 2)
    threads, elsewhere = options.threads or default_threads(), (options.workers, options.scheduler) != (None, None)
    return {
        "tol": float(options.tol),
        "resident_rows": resident_rows,
        "precise_rows": min(source.n_rows, precise_rows),
        "cache_bytes": min(share, 4 * resident_rows**2) if cache_bytes is None else cache_bytes,
        "threads": threads,
        # if there are few groups, a pass has fewer tasks than the driver has threads
        "pass_threads": 1 if elsewhere else max(1, threads // len(plan_groups(source))),
        "seed": options.seed,
    }


def _count_active(source: RowSource, fit: int, share_bytes: int) -> int:
    """Return the number of active rows: all rows if there are few or if they are long, otherwise a fifth of them.

    fit: the number of active rows that fit into memory. share_bytes: the memory for kernel columns.
    """
    are_long = find_row_bytes(source) >= WHOLE_BYTES
    most, part = (source.n_rows, WHOLE_SHARE) if are_long else (WHOLE_ROWS, 1)
    if source.n_rows <= min(fit, most) and 4 * source.n_rows**2 // part <= share_bytes:
        return source.n_rows
    return min(source.n_rows, max(LEAST_ACTIVE_ROWS, min(source.n_rows // ACTIVE_SHARE, fit)))


def need_memory(
    source: RowSource, settings: ActiveRowSettings, held: Held, sum_bytes: int, turn: int, walk: int, weights: int = 0
) -> MemoryNeed:
    """Return the memory that a decomposition needs.

    A task receives either the changed active rows in float64 or weights; memory is planned for both.

    held: see `Held`. sum_bytes: the bytes per row of the results of a pass. turn: the bytes of the kernel values of a
    working set and, for each thread, of a tile of rows. walk: the bytes of the tasks of a process. weights: the bytes
    of weights sent to a task.
    """
    n, active, row_bytes = source.n_rows, min(source.n_rows, settings.resident_rows), find_row_bytes(source)
    precision = 2 if settings.is_small(n) else 1  # float64 takes twice the memory of float32
    rows_bytes, shared = int(ACTIVE_COPIES * active * row_bytes * precision), int(2 * active * row_bytes) + weights
    return MemoryNeed(
        driver_bytes=held[0] * n + held[1] * active + rows_bytes + shared + settings.cache_bytes + turn,
        turn_bytes=turn,
        totals_bytes=sum_bytes * n // len(plan_groups(source)),
        shared_bytes=shared,
        gathered_bytes=sum_bytes * n,
        walk_bytes=walk,
    )


def find_row_bytes(source: RowSource) -> float:
    """Return the average bytes of a row of the source."""
    return max(1.0, source.nbytes / source.n_rows)


def count_tile_bytes(source: RowSource) -> int:
    """Return the bytes of a tile of rows in dense form and of its kernel values; long sparse rows need more."""
    used = min(source.n_features, LEAST_TILE_ROWS * find_row_bytes(source) / 8) if source.is_sparse else 0
    values = max(kernels.TILE_VALUES, LEAST_TILE_ROWS * used)
    return int(8 * BLOCK_COLUMNS * kernels.TILE_ROWS + 4 * values + 4 * source.n_features)


NOT_TOLD = ("threads", "pass_threads", "seed", "numbers", "max_pairs", "two_sums")
# The number of 8-byte numbers per row: for the state, the next state, the choice of active rows and the proof.
# Measurements found 27 (one class) to 34 (irwls). They include the messages of workers, for which memory is planned
# separately.
ROW_VECTORS = 40
BOTH_SIDES_VECTORS = 24  # further numbers per row for a regression, whose proof uses both hinges of every row
ACTIVE_VECTORS = 16  # further 8-byte numbers per active row
INNER_BYTES = {"smo": 4, "irwls": 4 + 3 * 8, "qp": 4 + 5 * 8}  # bytes per entry of K_WW, including its copies
WORKING_ROWS = {"smo": (SMALL_ROWS, 2048), "irwls": (128, 128), "qp": (128, 128)}  # irwls and qp factor matrices
WORKING_SHARE = 32  # one active row in 32 is in the working set, within WORKING_ROWS; chosen by measurements on MNIST


class DecompositionSolver(Solver):
    """Decomposition (SMO or IRWLS), with as many active rows and kernel columns as memory allows."""

    def __init__(self, source: RowSource, options: TrainOptions, own: DecompositionOptions, budget: Budget) -> None:
        self.source, self.name = source, options.solver
        self.parameters = parameters = _choose_parameters(source, options, own, budget)
        problem, told = find_problem(options.task), {}
        left_out = [*NOT_TOLD, *(name for name in ("tube", "nu") if getattr(parameters, name) is None)]
        if parameters.tube is not None or parameters.nu is not None:
            left_out.append("class_costs")
            told = problem.tell_loss(source, options)
        self.settings = describe_parameters(parameters, *left_out) | told
        self.classes = np.asarray(problem.own_classes or (source.classes if problem.has_classes else ()))
        more = ("linear-sums",) if parameters.kernel.name == "linear" else ()
        self.compiled = (options.solver, *more, *(("platt",) if parameters.selection == "platt" else ()))

    def start(self) -> State:
        """Return the state in which all multipliers are 0."""
        return start_state(self.source.n_rows, self.parameters.kernel.is_definite)

    def solve(self, state: State) -> Requests:
        """Yield the requests of the steps."""
        return solver.solve(self.parameters, state)

    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory that the solver needs. Kernel values count as float64, a pass as 3 numbers per row."""
        settings, source, tile = self.parameters, self.source, count_tile_bytes(self.source)
        active = min(source.n_rows, settings.resident_rows)
        working = active if settings.selection == "chunking" else min(active, settings.working_rows)
        turn = 2 * INNER_BYTES[settings.inner] * working**2 + settings.threads * tile
        held, walk = _count_held_bytes(settings.tube is not None), threads * settings.pass_threads * tile
        return need_memory(source, settings, held, 24, turn, walk)

    def make_model(self, state: State, take: TakeRows) -> KernelModel:
        """Return the model of the support vectors."""
        chosen = np.flatnonzero(state.stretch * state.alpha)
        coefs = state.stretch * state.alpha[chosen] * state.y[chosen]
        kernel, vectors = self.parameters.kernel, take(chosen).X
        return make_kernel_model(self.source, kernel, vectors, coefs, state.bias, self.classes, chosen)

    def report(self, state: State) -> Report:
        """Return the progress, and the pair steps so far."""
        now = state.progress
        return Report(now.objective, now.lower_bound, now.passes, now.rounding_bound, pairs=state.pairs)


def _choose_parameters(
    source: RowSource, options: TrainOptions, own: DecompositionOptions, budget: Budget
) -> Decomposition:
    inner, problem = own.inner or options.solver, find_problem(options.task)
    has_classes = problem.has_classes and problem.own_classes is None
    entry_bytes = INNER_BYTES[inner] if own.selection == "chunking" else 0  # a working set may hold all active rows
    if own.selection == "platt":
        options = replace(options, resident_rows=source.n_rows)  # Platt's loops need all rows in memory
    held = _count_held_bytes(not problem.has_classes)
    active = choose_active(source, options, own.cache_bytes, budget, held, entry_bytes)
    least, most = WORKING_ROWS[inner]
    working_rows = min(max(active["resident_rows"] // WORKING_SHARE, least), most)
    if not problem.has_classes:  # nu-SVR starts with a tube of 0
        tube = problem.tell_loss(source, options).get("tube", 0.0)
        active |= {"tube": tube, "numbers": read_numbers(source)}
    if own.selection == "platt" and (problem.has_nu or not has_classes):
        raise InputError("selection platt: Platt's loops train only two classes with C; choose another selection")
    if problem.has_nu and problem.own_classes is None and inner != "smo":
        raise InputError(
            f"inner {inner}: this solver keeps one sum of multipliers, but the task {problem.name} has two; "
            "choose inner=smo"
        )
    if own.max_pairs is not None and (inner != "smo" or own.selection == "platt"):
        raise InputError("max_pairs: this training makes no pair steps of smo on working sets; omit max_pairs")
    if options.kernel == precomputed.NAME and own.selection == "platt":
        raise InputError("selection platt: Platt's loops cannot use a precomputed kernel; choose another selection")
    kernel = make_kernel(source, options)
    if problem.own_classes is not None and kernel.name == "poly" and kernel.degree == 1 and kernel.coef0 < 0:
        told = "a constant kernel term does not change a one-class model, and a negative one leaves no lower bound"
        raise InputError(f"coef0 is {kernel.coef0:g}: {told}; omit coef0")
    return Decomposition(
        nu=read_share(options) if problem.has_nu else None,
        two_sums=problem.has_nu and has_classes,
        class_costs=compute_class_costs(source, options) if has_classes else (options.C, options.C),
        kernel=kernel,
        inner=inner,
        selection=own.selection,
        working_rows=own.working_rows or working_rows,
        max_pairs=own.max_pairs or NO_LIMIT,
        **active,
    )


def run_kernels(group: str, rows: Rows) -> None:
    """Call the compiled functions of decomposition with float32 and with float64 rows.

    Three groups call other functions: "linear-sums" calls the additional functions of linear kernels, "platt" calls
    Platt's loops, and "kernel-sums" calls the functions that evaluate a model.
    """
    y, ones, f, X = np.array([-1.0, 1.0]), np.ones(2), np.zeros(2), rows.X
    if group == "platt":
        solve_by_platt(X, y, ones, kernels.Kernel("rbf"))
    elif group in ("linear-sums", "kernel-sums"):
        for columns in (X, kernels.to_float64(X)):
            kernels.add_linear_sums(columns, kernels.combine_rows(take_rows(columns, np.arange(2)), ones), f)
        if group == "kernel-sums":
            kernels.compute_kernel_sums(kernels.Kernel("rbf"), kernels.to_float64(X), X, np.ones((1, 2)))
    else:
        for columns in (X, kernels.to_float64(X)):
            kernels.compute_squares(X, np.float64)
            take_rows(columns, np.arange(2))
            kernels.add_kernel_sums(kernels.Kernel("rbf"), X, columns, ones, f)
            K = kernels.compute_kernel(kernels.Kernel("rbf"), columns)
            run_pairs(WorkingSet(K, y, np.zeros(2), np.zeros(2), ones), 1e-3, NO_LIMIT)
        for entries in (np.eye(2, dtype=np.float32), np.eye(2)):
            kernels.add_chosen_columns(entries, np.arange(2), ones, f)
        find_best_bias(y, ones, f)
        kernels.add_moments([], rows, np.ones((1, 2)))


def _count_held_bytes(is_regression: bool) -> Held:
    """Return the bytes that the driver holds for each row, and the further bytes for each active row (see `Held`)."""
    return 8 * (ROW_VECTORS + (BOTH_SIDES_VECTORS if is_regression else 0)), 8 * ACTIVE_VECTORS
