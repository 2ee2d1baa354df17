"""Compile, or load from the cache, every kernel that a solver needs, before memory is measured and tasks run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from streamsvm.methods.budgeted_sgd.average import average_models
from streamsvm.methods.budgeted_sgd.budget import learn_rows, make_rules
from streamsvm.methods.budgeted_sgd.state import make_state
from streamsvm.methods.cutting_plane.coordinate_ascent import ascend
from streamsvm.methods.cutting_plane.master_qp import solve_master
from streamsvm.methods.cutting_plane.point_cuts import add_points, start_points
from streamsvm.methods.decomposition.pair_updates import solve_by_pairs
from streamsvm.methods.decomposition.platt import solve_by_platt
from streamsvm.methods.decomposition.working_set import WorkingSet
from streamsvm.methods.interior_point.constraint_reduction import Reduction, find_limits
from streamsvm.methods.interior_point.exact_sums import add_exact_sums, start_exact_sums
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
)
from streamsvm.methods.interior_point.sums import add_assembled, add_predicted, start_assembled, start_predicted
from streamsvm.numeric.canonical import make_canonical_rows
from streamsvm.numeric.certificates import find_best_bias
from streamsvm.numeric.compilation import load_or_compile
from streamsvm.numeric.exact_losses import add_exact, compute_exact_scores, start_exact
from streamsvm.numeric.exact_pairs import measure_pairs_exactly
from streamsvm.numeric.feature_maps import compute_block, measure_diagonal
from streamsvm.numeric.kernels import (
    Kernel,
    add_chosen_columns,
    add_kernel_sums,
    add_linear_sums,
    compute_kernel,
    compute_squares,
    fold,
    to_float64,
)
from streamsvm.numeric.losses import FINE_STEPS, add_segment_totals
from streamsvm.numeric.moments import add_moments
from streamsvm.numeric.pair_counts import Pairs, count_pairs
from streamsvm.numeric.rows import F32, CsrRows, Matrix, Rows, compute_scores, compute_scores_of_parts, take_rows


def compile_all(solvers: Sequence[str]) -> None:
    """Load what several solvers need."""
    for solver in solvers:
        compile_kernels(solver)


def compile_feature_maps() -> None:
    """Load what feature maps need."""
    compile_kernels("feature-map")


@lru_cache
def compile_kernels(solver: str = "") -> None:
    """Load what a solver needs from numba's cache; what is not there is compiled first, by a child process."""
    load_or_compile(solver, run_kernels)


def run_kernels(solver: str) -> None:
    """Run what a solver needs on a few rows, dense and sparse. "platt" is what smo needs besides for Platt's loops."""
    X = np.eye(2, dtype=np.float32)
    sparse = CsrRows(np.ones(2, np.float32), np.arange(2, dtype=np.int32), np.arange(3), 2)
    make_canonical_rows(sparse)
    both = [Rows(0, vectors, np.arange(2, dtype=np.int32)) for vectors in (X, sparse)]
    if solver == "budgeted-sgd":
        _learn(X)
    if solver == "interior-point":
        _move_inside()
    for rows in both:
        take_rows(rows.X, np.arange(2))
        compute_scores(rows.X, np.zeros((1, 2)))
        add_moments([], rows, np.ones((1, 2)))
        if solver == "feature-map":
            _map(rows.X)
        if solver == "interior-point":
            _step_inside(rows)
        if solver == "budgeted-sgd":
            add_kernel_sums(Kernel("rbf"), rows.X, rows.X, np.ones(2), np.zeros(2))
        if solver in ("", "cutting-plane"):
            _cut(rows)
        if solver in ("", "smo", "irwls"):
            for kind in (np.float32, np.float64):
                _decompose(rows.X, kind)
        if solver == "platt":
            solve_by_platt(rows.X, np.array([-1.0, 1.0]), np.ones(2), Kernel("rbf"))


def _map(X: Matrix) -> None:
    """Run what maps rows by their kernel values with others."""
    for name in ("linear", "rbf", "poly"):
        measure_diagonal(Kernel(name), X)
        compute_block(Kernel(name), X, X)


def _cut(rows: Rows) -> None:
    """Run what finds cuts, of rows and of pairs, and the master problem."""
    totals = np.zeros((FINE_STEPS + 1, 2)), np.zeros(2), np.zeros((2, 3))
    add_segment_totals(rows, np.zeros((2, 3)), np.ones(2), np.ones(1), 1.0, *totals)
    compute_scores_of_parts(rows.X, np.zeros((1, 2, 2)))
    add_points(start_points(2, 3), rows, np.zeros((2, 3)), np.ones(2), 1.0)
    ascend(rows, np.ones(2), 1.0, np.zeros(2), np.zeros(3), 0.0, 0.0, 0.0, 1, (0,))
    solve_master(np.eye(2), np.ones(2), np.zeros(2), 1e-9)
    add_exact(start_exact(1), rows, np.zeros((1, 2)), np.zeros(1), np.ones(2))
    scores = compute_exact_scores(rows.X, np.zeros((1, 2)))[0]
    for starts in ([0, 2], [0, 1, 2]):
        pairs = Pairs(np.arange(2, dtype=np.int32), np.ones(2), np.array(starts))
        count_pairs(np.zeros(2), pairs, 1.0)
        measure_pairs_exactly(scores, pairs, 1.0)


def _learn(X: F32) -> None:
    """Learn four rows within a budget of two; dense and sparse rows are of one type to `learn_rows`."""
    rules, state = make_rules(Kernel("rbf"), 2, 2, regularisation=1.0), make_state(2, 2)
    y, order = np.array([-1.0, 1.0]), np.array([0, 1, 0, 1])
    learn_rows(state, rules, X, y, np.ones(2), order, 2)
    average_models([state, state], rules)


def _step_inside(rows: Rows) -> None:
    """Run both passes of an interior-point iteration, and what takes the rows that bound the step."""
    costs, one, two, none = np.ones(2), np.ones(2), np.full(2, 2.0), np.zeros(2)
    compute_scores(rows.X, np.zeros((1, 2)))
    add_predicted(start_predicted(2), rows, costs, np.zeros((2, 2)), none, 1.0, 1.0, none, two, one, two, one)
    allowed, limits = np.ones(2, dtype=bool), np.full(2, np.inf)
    point = (none, two, one, two, one, none, none)
    ends = np.zeros((2, 2))
    add_assembled(start_assembled(2), rows, costs, ends, none, 0.0, limits, "omega", True, *point, allowed)
    add_exact(start_exact(1), rows, np.zeros((1, 2)), np.zeros(1), costs)
    add_exact_sums(start_exact_sums(2), rows, one)


def _move_inside() -> None:
    """Run what the driver of the interior point does with all rows between two passes."""
    y, costs, ones = np.array([-1.0, 1.0]), np.ones(2), np.ones(2)
    point, direction = Point(*[ones] * 5), Direction(*[ones] * 5)
    measure_residual(point, y, costs, 0.0)
    targets = aim_at_zero(point)
    find_right_side(point, y, 0.0, targets)
    aim_at_center(point, direction, 1.0, 0.5, point.s)
    find_ratios(point, find_direction(point, y, costs, 0.0, targets, ones, 0.0))
    move(point, direction, 0.5)
    find_limits(Reduction(), point, y, costs, 0.0, 1.0, 1.0, 2)
    find_best_bias(y, costs, ones)


def _decompose(X: Matrix, kind: type[np.floating[Any]]) -> None:
    """Run what decomposition needs, for columns of either precision."""
    y, ones, f = np.array([-1.0, 1.0]), np.ones(2), np.zeros(2)
    columns = X if kind is np.float32 else to_float64(X)
    compute_squares(X, np.float64)
    add_linear_sums(columns, fold(take_rows(columns, np.arange(2)), ones), f)
    for name in ("rbf", "poly"):
        kernel = Kernel(name)
        add_kernel_sums(kernel, X, columns, ones, f)
        solve_by_pairs(WorkingSet(compute_kernel(kernel, columns), y, np.zeros(2), np.zeros(2), ones), 1e-3)
    add_chosen_columns(np.eye(2, dtype=kind), np.arange(2), ones, f)
    find_best_bias(y, ones, f)
