"""The setup of Newton's method with a penalty of |w|_1: settings, memory and model for the rows of a source."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.machine import default_budget_bytes
from streamsvm.methods.fit import FirstSample, Fit, TakeRows, report_progress
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.methods.newton import l1_solver
from streamsvm.methods.newton.l1_model import minimise_model
from streamsvm.methods.newton.l1_steps import L1Newton, L1State, make_look
from streamsvm.methods.newton.options import OTHER_BYTES, NewtonOptions
from streamsvm.methods.newton.sums import TILE_ROWS, sum_rows
from streamsvm.models.model import LinearModel
from streamsvm.numeric.gram import BUFFER_ROWS
from streamsvm.numeric.rows import Rows
from streamsvm.numeric.smooth_loss import SmoothLoss
from streamsvm.options import TrainOptions, count_resident
from streamsvm.problems.registry import find_problem
from streamsvm.problems.smooth_losses import Logistic
from streamsvm.requests import MemoryNeed

MOST_FEATURES = 2000  # whose weights change in a step
SHARE = 10  # one row in so many is in the sample if memory allows
LEAST_ROWS = 1000
ROWS_A_FEATURE = 10
SMALL_BYTES = 32 << 20  # of rows: smaller data stay in memory, and one read proves
COPIES = 3  # of the sample while it is taken
ROW_VECTORS = 12  # vectors of 8 bytes for each row of the sample
MATRICES = 8  # matrices (features, features) of the driver: second derivatives, their factor, and copies
SUMS = 2  # the parts of the second derivatives in the totals of a task, of which the second stays empty
VECTORS = 24  # of the driver, (d+1,)
TILE_VECTORS = 16  # vectors of 8 bytes for each row of a tile


def set_up(source: RowSource, options: TrainOptions, own: NewtonOptions) -> Fit:
    """Return the fit, with as many rows in the sample as are asked for, or as fit into memory."""
    problem = find_problem(options.task)
    assert problem.make_loss is not None
    assert problem.tell_loss is not None
    settings = L1Newton(
        loss=cast(SmoothLoss, problem.make_loss(source, options)),
        resident_rows=0,
        most_features=min(MOST_FEATURES, source.n_features),
        tol=float(options.tol),
        bias_feature=own.intercept_scaling,
        seed=options.seed,
    )
    settings = replace(settings, resident_rows=_count_rows(source, options, settings))
    told = {
        **problem.tell_loss(source, options),
        "penalty": options.penalty,
        "resident_rows": settings.resident_rows,
        "tol": settings.tol,
        "bias_feature": settings.bias_feature,
    }
    return Fit(
        method="newton",
        settings=told,
        memory=partial(_need_memory, source, settings),
        start=partial(l1_solver.start_state, settings, source.n_rows, source.n_features, source.is_shuffled),
        warm_start=partial(l1_solver.warm_state, settings),
        solve=partial(l1_solver.solve, settings),
        make_model=partial(_make_model, source, settings, problem.has_classes),
        report=report_progress,
        compiled=("l1-newton",),
        sample=FirstSample(settings.resident_rows, True),
    )


def _count_rows(source: RowSource, options: TrainOptions, settings: L1Newton) -> int:
    """Return how many rows the sample has; 0 if there is no room for LEAST_ROWS, and then there is no sample."""
    if options.resident_rows is not None:
        return count_resident(options.resident_rows, source.n_rows)
    row_bytes, need = _find_row_bytes(source), _need_memory(source, settings, 1)
    wanted = max(LEAST_ROWS, ROWS_A_FEATURE * (settings.most_features + 1), source.n_rows // SHARE)
    wanted = max(wanted, SMALL_BYTES // row_bytes)
    other = OTHER_BYTES + need.driver_bytes + 8 * need.totals_bytes + 2 * source.stream_bytes()
    spare = (options.memory_bytes or default_budget_bytes()) - other
    number = min(source.n_rows, wanted, max(0, spare // (COPIES * row_bytes)))
    return number if number >= min(source.n_rows, LEAST_ROWS) else 0


def _find_row_bytes(source: RowSource) -> int:
    return source.nbytes // source.n_rows + 8 * ROW_VECTORS


def _need_memory(source: RowSource, settings: L1Newton, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of the sample, and of the matrices and vectors of the driver and of the tasks."""
    width, m = source.n_features + 1, settings.most_features + 1
    sample_bytes, matrix_bytes = COPIES * settings.resident_rows * _find_row_bytes(source), 8 * m**2
    tile_bytes = TILE_ROWS * (8 * TILE_VECTORS + 4 * m)
    turn = (MATRICES - 1) * matrix_bytes + sample_bytes + 8 * (VECTORS // 2) * width
    return MemoryNeed(
        driver_bytes=matrix_bytes + turn + tile_bytes + 8 * (VECTORS // 2) * width,
        turn_bytes=turn,
        totals_bytes=SUMS * (matrix_bytes + 8 * BUFFER_ROWS * m) + 8 * 4 * width + tile_bytes,
        shared_bytes=8 * 3 * width,
    )


def _make_model(
    source: RowSource,
    settings: L1Newton,
    has_classes: bool,
    state: L1State,
    take: TakeRows,  # noqa: ARG001
) -> LinearModel:
    return make_linear_model(source, state.best_w[:-1], state.best_w[-1] * settings.bias_feature, has_classes)


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions that add up gradient and curvature, and that minimise the model."""
    settings, none = L1Newton(Logistic((1.0, 1.0)), 0, 2), np.zeros(3)
    look = make_look(settings, L1State(none, none, none, np.arange(2)))
    totals = sum_rows(rows, np.zeros((2, 3)), look)
    minimise_model(totals.least.finish(), totals.gradient, none)
