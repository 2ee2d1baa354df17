"""The setup of Newton's method: settings, memory and model for the rows of a source."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.machine import default_budget_bytes
from streamsvm.methods.fit import FirstSample, Fit, TakeRows, report_progress
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.methods.newton import solver
from streamsvm.methods.newton.options import OTHER_BYTES, NewtonOptions
from streamsvm.methods.newton.sample import ROWS_A_FEATURE
from streamsvm.methods.newton.steps import Newton, State
from streamsvm.methods.newton.sums import TILE_ROWS, Look, sum_rows
from streamsvm.models.model import LinearModel
from streamsvm.numeric.gram import BUFFER_ROWS
from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import Rows
from streamsvm.numeric.smooth_loss import SmoothLoss, has_kinks
from streamsvm.options import TrainOptions, count_resident
from streamsvm.problems.registry import find_problem
from streamsvm.problems.smooth_losses import Logistic
from streamsvm.requests import MemoryNeed

SHARE = 10  # one row in so many is in the sample if memory allows
LEAST_ROWS = 1000
SMALL_BYTES = 32 << 20  # of rows: smaller data stay in memory, and one read proves
COPIES = 3  # of the sample while it is taken
ROW_VECTORS = 8  # vectors of 8 bytes for each row of the sample
KINK_VECTORS = 40  # the same if the loss has kinks, beside those
MATRICES = 8  # matrices (width, width) of the driver: Hessian and its factor, norm, products
SUMS = 2  # the two parts of the Hessian in the totals of a task
TILE_VECTORS = 16  # vectors of 8 bytes for each row of a tile


def set_up(source: RowSource, options: TrainOptions, own: NewtonOptions) -> Fit:
    """Return the fit, with as many rows in the sample as are asked for, or as fit into memory."""
    problem = find_problem(options.task)
    assert problem.make_loss is not None
    assert problem.tell_loss is not None
    settings = Newton(
        loss=cast(SmoothLoss, problem.make_loss(source, options)),
        resident_rows=0,
        tol=float(options.tol),
        bias_feature=own.intercept_scaling,
        seed=options.seed,
    )
    settings = replace(settings, resident_rows=_count_rows(source, options, settings))
    told = {
        **problem.tell_loss(source, options),
        "resident_rows": settings.resident_rows,
        "tol": settings.tol,
        "bias_feature": settings.bias_feature,
    }
    return Fit(
        method="newton",
        settings=told,
        memory=partial(_need_memory, source, settings),
        start=partial(solver.start_state, settings, source.n_rows, source.n_features, source.is_shuffled),
        warm_start=partial(solver.warm_state, settings),
        solve=partial(solver.solve, settings),
        make_model=partial(_make_model, source, settings, problem.has_classes),
        report=report_progress,
        compiled=("newton",),
        sample=FirstSample(settings.resident_rows, True),
    )


def _count_rows(source: RowSource, options: TrainOptions, settings: Newton) -> int:
    """Return how many rows the sample has; 0 if there is no room for LEAST_ROWS, and then there is no sample."""
    if options.resident_rows is not None:
        return count_resident(options.resident_rows, source.n_rows)
    wanted = max(LEAST_ROWS, ROWS_A_FEATURE * (source.n_features + 1), source.n_rows // SHARE)
    wanted = max(wanted, SMALL_BYTES // _find_row_bytes(source, settings))
    if has_kinks(settings.loss):  # with all rows in memory their kinks are found exactly
        wanted = source.n_rows
    need = _need_memory(source, settings, 1)
    other = OTHER_BYTES + need.driver_bytes + 8 * need.totals_bytes + 2 * source.stream_bytes()
    spare = (options.memory_bytes or default_budget_bytes()) - other
    number = min(source.n_rows, wanted, max(0, spare // (COPIES * _find_row_bytes(source, settings))))
    return number if number >= min(source.n_rows, LEAST_ROWS) else 0


def _find_row_bytes(source: RowSource, settings: Newton) -> int:
    vectors = ROW_VECTORS + (KINK_VECTORS // COPIES if has_kinks(settings.loss) else 0)
    return source.nbytes // source.n_rows + 8 * vectors


def _need_memory(source: RowSource, settings: Newton, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of the sample, and of the matrices of the driver and of the tasks."""
    width = source.n_features + 1
    sample_bytes, matrix_bytes = COPIES * settings.resident_rows * _find_row_bytes(source, settings), 8 * width**2
    tile_bytes = TILE_ROWS * (8 * TILE_VECTORS + 4 * width)
    return MemoryNeed(
        driver_bytes=sample_bytes + MATRICES * matrix_bytes + tile_bytes,
        turn_bytes=(MATRICES - 1) * matrix_bytes + sample_bytes,
        totals_bytes=SUMS * (matrix_bytes + 8 * BUFFER_ROWS * width) + 8 * 4 * width + tile_bytes,
        shared_bytes=8 * 2 * width + matrix_bytes,
    )


def _make_model(
    source: RowSource,
    settings: Newton,
    has_classes: bool,
    state: State,
    take: TakeRows,  # noqa: ARG001
) -> LinearModel:
    return make_linear_model(source, state.best_w[:-1], state.best_w[-1] * settings.bias_feature, has_classes)


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions that add up gradient and curvature."""
    look = Look(Logistic((1.0, 1.0)), 1.0, RowNorm(np.eye(3)), 1.0)
    sum_rows(rows, np.zeros((2, 3)), look).least.finish()
