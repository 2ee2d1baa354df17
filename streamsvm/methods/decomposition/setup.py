"""Kernel SVM by decomposition, SMO or IRWLS, as `train` drives it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.machine import default_budget_bytes, default_threads
from streamsvm.methods.decomposition import solver as decomposition
from streamsvm.methods.decomposition.active_set import INNER_SOLVERS
from streamsvm.methods.decomposition.selection import RULES
from streamsvm.methods.decomposition.solver import Decomposition, is_small
from streamsvm.methods.decomposition.state import State, start_state
from streamsvm.methods.method import Report, TakeRows
from streamsvm.models.model import KernelModel
from streamsvm.numeric.kernel_values import BLOCK_COLUMNS
from streamsvm.numeric.kernels import TILE_ROWS, TILE_VALUES
from streamsvm.options import (
    BUDGET_SHARE,
    TrainOptions,
    check_names,
    compute_class_costs,
    count_resident,
    make_kernel,
    read_choice,
    read_count,
)
from streamsvm.requests import Solver

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
OTHER_BYTES = 448 << 20  # interpreter, libraries, streaming, working sets: more than they took on two threads


@dataclass(frozen=True)
class Decompositions:
    """See Algorithm; decomposition.solver."""

    name: str
    settings: Decomposition

    def describe(self) -> dict[str, Any]:
        """See Algorithm."""
        settings = asdict(self.settings)
        settings["class_costs"] = list(self.settings.class_costs)
        return {name: value for name, value in settings.items() if name not in ("threads", "pass_threads", "seed")}

    def driver_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        settings = self.settings
        active = min(source.n_rows, settings.resident_rows)
        vectors = 8 * (ROW_VECTORS * source.n_rows + ACTIVE_VECTORS * active)
        rows_bytes = int(ACTIVE_COPIES * active * _row_bytes(source) * self._precision(source))
        return vectors + rows_bytes + self.shared_bytes(source) + settings.cache_bytes + self.turn_bytes(source)

    def turn_bytes(self, source: RowSource) -> int:
        """See Algorithm: kernel values of a working set, and of a tile."""
        settings, active = self.settings, min(source.n_rows, self.settings.resident_rows)
        working = active if settings.selection == "chunking" else min(active, settings.working_rows)
        inner_bytes = 2 * INNER_BYTES[settings.inner] * working**2  # of float64, where float32 is too coarse
        return inner_bytes + settings.threads * _tile_bytes(source)

    def totals_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        n_groups = len(plan_groups(source))
        return 24 * source.n_rows // n_groups + self.settings.pass_threads * _tile_bytes(source)

    def shared_bytes(self, source: RowSource) -> int:
        """See Algorithm: as many rows as may be active, in float64."""
        return int(2 * min(source.n_rows, self.settings.resident_rows) * _row_bytes(source))

    def walk_bytes(self, source: RowSource, threads: int) -> int:  # noqa: ARG002
        """See Algorithm: there are none."""
        return 0

    def _precision(self, source: RowSource) -> int:
        """Return 2 where rows are held in float64."""
        return 2 if is_small(self.settings, source.n_rows) else 1

    def start_state(self, source: RowSource) -> State:
        """See Algorithm."""
        return start_state(source.n_rows)

    def warm_state(self, source: RowSource, before: State, factor: float) -> State:  # noqa: ARG002
        """See Algorithm."""
        return self.start_state(source)

    def solve(self, source: RowSource, state: State) -> Solver:  # noqa: ARG002
        """See Algorithm."""
        return decomposition.solve(self.settings, state)

    def make_model(self, source: RowSource, state: State, take: TakeRows) -> KernelModel:
        """See Algorithm."""
        chosen = np.flatnonzero(state.stretch * state.alpha)
        return KernelModel(
            kernel=self.settings.kernel,
            support_vectors=take(chosen).X,
            dual_coef=state.stretch * state.alpha[chosen] * state.y[chosen],
            intercept=state.bias,
            classes=np.asarray(source.classes),
            scaling=source.scaling,
            feature_names=source.feature_names,
        )

    def report(self, state: State) -> Report:
        """See Algorithm."""
        progress = state.progress
        return Report(progress.objective, progress.lower_bound, progress.passes, progress.rounding_bound)


def make_decomposition(source: RowSource, options: TrainOptions) -> Decompositions:
    """Options: selection, inner (of irwls and smo alike: qp), working_rows, cache_bytes."""
    check_names(options, ("selection", "inner", "working_rows", "cache_bytes"))
    given, spare = options.options, _find_spare(source, options.memory_bytes or default_budget_bytes())
    threads = options.threads or default_threads()
    inner = read_choice(given, "inner", (options.solver, *(name for name in INNER_SOLVERS if name != options.solver)))
    selection = read_choice(given, "selection", RULES)
    wanted = source.n_rows if selection == "platt" else options.resident_rows  # he has all rows in memory
    resident_rows = _count_active(source, wanted, spare)
    if selection == "chunking":  # its working set may be the whole active set
        largest = math.isqrt(spare // BUDGET_SHARE // INNER_BYTES[inner])
        resident_rows = min(resident_rows, max(LEAST_ACTIVE_ROWS, largest))
    elsewhere = options.workers is not None or options.scheduler is not None
    cache_bytes = 0 if options.kernel == "linear" else read_count(given, "cache_bytes", 0)  # no values are kept
    settings = Decomposition(
        class_costs=compute_class_costs(source, options),
        kernel=make_kernel(source, options),
        inner=inner,
        selection=selection,
        tol=float(options.tol),
        working_rows=read_count(given, "working_rows", 2)
        or int(np.clip(resident_rows // WORKING_SHARE, *WORKING_ROWS[inner])),
        resident_rows=resident_rows,
        precise_rows=min(source.n_rows, max(resident_rows // 2, int(PRECISE_BYTES / _row_bytes(source)), 2)),
        cache_bytes=min(spare // BUDGET_SHARE, 4 * resident_rows**2) if cache_bytes is None else cache_bytes,
        threads=threads,
        pass_threads=1 if elsewhere else max(1, threads // len(plan_groups(source))),
        seed=options.seed,
    )
    return Decompositions(options.solver, settings)


def share_budget(budget_bytes: int, n_problems: int) -> int:
    """Return the budget of each of several problems that share one: what any process needs is there once."""
    return min(budget_bytes, OTHER_BYTES) + max(0, budget_bytes - OTHER_BYTES) // n_problems


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
