"""Sets up the interior-point method for the rows of a source: settings, memory, model and compiled functions."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.methods.fit import DualWatch, Fit, TakeRows, report_progress
from streamsvm.methods.interior_point import solver as interior_point
from streamsvm.methods.interior_point.best_bias import add_bins
from streamsvm.methods.interior_point.constraint_reduction import Reduction, find_limits
from streamsvm.methods.interior_point.options import InteriorPointOptions
from streamsvm.methods.interior_point.row_equations import count_bytes
from streamsvm.methods.interior_point.row_numbers import (
    COSTS,
    N_NUMBERS,
    N_VECTORS,
    Course,
    Y,
    arrive,
    begin,
    correct,
    move,
    point_of,
    predict,
)
from streamsvm.methods.interior_point.row_passes import SAMPLE_ROWS, Smallest, add_critical, add_free
from streamsvm.methods.interior_point.solver import InteriorPoint
from streamsvm.methods.interior_point.state import State, start_state
from streamsvm.methods.interior_point.step_length import MOST_CRITICAL_ROWS
from streamsvm.methods.interior_point.steps import aim_at_zero, find_right_side
from streamsvm.methods.interior_point.sums import (
    N_MAGNITUDES,
    N_SUMS,
    add_assembled,
    add_exact_multipliers,
    add_predicted,
    start_assembled,
    start_predicted,
)
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.models.model import LinearModel
from streamsvm.numeric.exact_losses import add_exact, start_exact
from streamsvm.numeric.exact_sums import start_exact_sums
from streamsvm.numeric.gram import BUFFER_ROWS, LIGHT_COLUMNS, LIGHT_ROWS
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions, compute_class_costs
from streamsvm.requests import MemoryNeed

MOST_FEATURES = 5000  # Then a matrix takes 200 MB, and a task holds three.
PLANNED_STEPS = 200  # A step has four vectors of d entries, which are small beside a matrix unless there are few.
MOST_TOLD_ROWS = 2 * SAMPLE_ROWS  # of which the driver is told numbers at a time
MATRICES = 5  # d x d matrices of the driver: Gram matrices of this and the next state, M, its factor, a checkpoint


def set_up(source: RowSource, options: TrainOptions, own: InteriorPointOptions) -> Fit:
    """Return the method, ready for the rows of the source; InputError if they have too many features."""
    if source.n_features > MOST_FEATURES:
        raise InputError(
            f"{source.n_features} features: interior-point holds matrices of features x features and takes "
            f"{MOST_FEATURES} at most; use the solver cutting-plane"
        )
    reduction = Reduction(own.reduction, own.rule, own.most_rows, own.theta, own.beta)
    costs = compute_class_costs(source, options)
    settings = InteriorPoint(costs, float(options.tol), reduction, options.seed)
    told = {**asdict(settings), "class_costs": list(costs)}
    return Fit(
        method="interior-point",
        settings={name: value for name, value in told.items() if name != "seed"},
        memory=partial(_need_memory, source),
        start=partial(start_state, source.n_rows, source.n_features),
        solve=partial(interior_point.solve, settings),
        make_model=partial(_make_model, source),
        report=report_progress,
        compiled=("interior-point",),
        dual=DualWatch("shares", source.n_features + 1, 0, source.n_rows),
    )


def _need_memory(source: RowSource, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of the solver: matrices of d x d, and what it is told of some rows.

    The totals of a task are a matrix with its buffer, sums of d entries, and some rows with their numbers. A task is
    sent the vectors of all steps since the start. Between two steps the driver holds two matrices: those of this step
    and of the last. Few rows may be solved as they are (row_equations).
    """
    n, d = source.n_rows, source.n_features
    buffered = BUFFER_ROWS + (LIGHT_ROWS + LIGHT_COLUMNS) // 2  # light rows and their products are float32
    critical = 2 * min(n, MOST_CRITICAL_ROWS) * source.nbytes // n
    told = 8 * min(n, MOST_TOLD_ROWS) * (N_NUMBERS + 2)
    steps = 8 * 2 * N_VECTORS * PLANNED_STEPS * d
    driver = 8 * MATRICES * d**2 + 3 * told + 3 * steps + critical + count_bytes(n, d)
    return MemoryNeed(
        driver_bytes=driver,
        turn_bytes=driver - (8 * 2 * d**2 + 2 * steps),
        totals_bytes=8 * d * (d + buffered + N_SUMS + N_MAGNITUDES + 2) + told,
        shared_bytes=steps + 32 * d,
        state_bytes=8 * N_NUMBERS * n,
    )


def _make_model(source: RowSource, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG001
    return make_linear_model(source, state.best_w, state.best_bias)


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call every compiled function of the passes, and of the driver's work between them."""
    numbers, bits, ends = begin(None, rows, np.ones(2)), np.zeros((2, 1)), np.zeros((2, 2))
    course = Course(0.0, 0.0, 1.0, 0.5, 1.0, 0.0, 0.5)
    numbers = arrive(move(correct(predict(numbers, rows, ends), rows, ends), rows, *course), rows)
    add_predicted(start_predicted(2), rows, 0.0, 0.0, 1.0, 1.0, numbers)
    limits = np.full(2, np.inf)
    for most_light in (0.0, 1.0):
        add_assembled(start_assembled(2, most_light), rows, course, limits, "omega", (1.0, 0), True, numbers)
    add_exact(start_exact(1), rows, np.zeros((1, 2)), np.zeros(1), np.ones(2))
    add_exact_multipliers(start_exact_sums(2), rows, numbers)
    add_bins(bits, rows, 0, 0, numbers)
    add_free(Smallest(1), rows, numbers)
    add_critical(Smallest(1), rows, course, np.zeros(3), numbers)
    find_right_side(point_of(numbers), numbers[Y], 0.0, aim_at_zero(point_of(numbers)))
    find_limits(Reduction(), point_of(numbers), numbers[Y], numbers[COSTS], 0.0, 1.0, 1.0, 2)
