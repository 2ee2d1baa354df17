"""Sets up the interior-point method for the rows of a source: settings, memory, model and compiled functions."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import numpy as np

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.methods.fit import DualWatch, Fit, TakeRows, report_progress
from streamsvm.methods.interior_point import solver as interior_point
from streamsvm.methods.interior_point.constraint_reduction import Reduction, find_limits
from streamsvm.methods.interior_point.options import InteriorPointOptions
from streamsvm.methods.interior_point.row_equations import count_bytes
from streamsvm.methods.interior_point.solver import InteriorPoint
from streamsvm.methods.interior_point.state import State, start_state
from streamsvm.methods.interior_point.step_length import MOST_CRITICAL_ROWS
from streamsvm.methods.interior_point.steps import (
    Direction,
    Point,
    aim_at_center,
    aim_at_zero,
    find_direction,
    find_ratios,
    find_right_side,
    measure_residual,
    move,
    move_inside,
)
from streamsvm.methods.interior_point.sums import (
    N_MAGNITUDES,
    N_SUMS,
    add_assembled,
    add_predicted,
    start_assembled,
    start_predicted,
)
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.models.model import LinearModel
from streamsvm.numeric.certificates import find_best_bias
from streamsvm.numeric.exact_losses import add_exact, start_exact
from streamsvm.numeric.exact_sums import add_exact_sums, start_exact_sums
from streamsvm.numeric.gram import BUFFER_ROWS, LIGHT_COLUMNS, LIGHT_ROWS
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions, compute_class_costs
from streamsvm.requests import MemoryNeed

MOST_FEATURES = 5000  # Then a matrix takes 200 MB, and a task holds three.
ROW_VECTORS = 32  # The driver holds at most so many vectors of 8 bytes a row at once.
HELD_VECTORS = 18  # So many of these vectors belong to the state and the next state, and stay between two steps.
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
    """Return the memory of the solver: matrices of d x d, and vectors with an entry for each row.

    The totals of a task are a matrix with its buffer, sums of d entries, and 56 bytes for each row. A task is sent
    vectors of d entries, and its part of the row vectors. Between two steps the driver holds HELD_VECTORS row vectors
    and two matrices: those of this step and of the last. Few rows may be solved as they are (row_equations).
    """
    n, d, n_groups = source.n_rows, source.n_features, len(plan_groups(source))
    buffered = BUFFER_ROWS + (LIGHT_ROWS + LIGHT_COLUMNS) // 2  # light rows and their products are float32
    critical = 2 * min(n, MOST_CRITICAL_ROWS) * source.nbytes // n
    driver = 8 * ROW_VECTORS * n + 8 * MATRICES * d**2 + critical + count_bytes(n, d)
    return MemoryNeed(
        driver_bytes=driver,
        turn_bytes=driver - (8 * HELD_VECTORS * n + 8 * 2 * d**2),
        totals_bytes=8 * d * (d + buffered + N_SUMS + N_MAGNITUDES + 2) + 56 * n // n_groups,
        shared_bytes=32 * d,
        gathered_bytes=56 * n,
        by_row_bytes=8 * 8 * n,
    )


def _make_model(source: RowSource, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG001
    return make_linear_model(source, state.best_w, state.best_bias)


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call every compiled function of both passes, and of the driver's work between two passes."""
    costs, one, two, none = np.ones(2), np.ones(2), np.full(2, 2.0), np.zeros(2)
    add_predicted(start_predicted(2), rows, costs, np.zeros((2, 2)), none, 1.0, 1.0, none, two, one, two, one)
    allowed, limits = np.ones(2, dtype=bool), np.full(2, np.inf)
    point = (none, two, one, two, one, none, none)
    ends = np.zeros((2, 2))
    add_assembled(start_assembled(2, 1.0), rows, costs, ends, none, 0.0, limits, "omega", True, *point, allowed)
    add_exact(start_exact(1), rows, np.zeros((1, 2)), np.zeros(1), costs)
    add_exact_sums(start_exact_sums(2), rows, one)
    _run_driver_kernels()


def _run_driver_kernels() -> None:
    y, costs, ones = np.array([-1.0, 1.0]), np.ones(2), np.ones(2)
    point, direction = Point(*[ones] * 5), Direction(*[ones] * 5)
    measure_residual(point, y, costs, 0.0)
    targets = aim_at_zero(point)
    find_right_side(point, y, 0.0, targets)
    aim_at_center(point, direction, 1.0, 0.5, point.s)
    find_ratios(point, find_direction(point, y, costs, 0.0, targets, ones, 0.0))
    move(point, direction, 0.5)
    move_inside(point, direction, 0.5)
    find_limits(Reduction(), point, y, costs, 0.0, 1.0, 1.0, 2)
    find_best_bias(y, costs, ones)
