"""Compile, or load from the cache, every kernel once: before tasks run side by side, and before memory is measured.

(Processes that compile the same cached function at once have crashed each other: numba#4807.)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from streamsvm.numeric.budget import learn_rows, make_rules
from streamsvm.numeric.budget_average import average_models
from streamsvm.numeric.budget_state import make_state
from streamsvm.numeric.canonical import make_canonical_rows
from streamsvm.numeric.coordinate_ascent import ascend
from streamsvm.numeric.exact_losses import add_exact, start_exact
from streamsvm.numeric.exact_sums import add_exact_sums, start_exact_sums
from streamsvm.numeric.interior_sums import add_assembled, add_predicted, start_assembled, start_predicted
from streamsvm.numeric.kernels import Kernel, add_chosen_columns, add_kernel_sums, compute_kernel, to_float64
from streamsvm.numeric.losses import FINE_STEPS, add_segment_totals
from streamsvm.numeric.master_qp import solve_master
from streamsvm.numeric.pair_updates import solve_by_pairs
from streamsvm.numeric.point_cuts import add_points, start_points
from streamsvm.numeric.rows import F32, CsrRows, Matrix, Rows, compute_scores, compute_scores_of_parts
from streamsvm.numeric.working_set import WorkingSet


@lru_cache
def compile_kernels(solver: str = "") -> None:
    """Run what a solver needs on two rows; all but Platt's loops, which run in one process only.

    Budgeted SGD has kernels of its own, which take as long to compile as all others together.
    """
    X = np.eye(2, dtype=np.float32)
    sparse = CsrRows(np.ones(2, np.float32), np.arange(2, dtype=np.int32), np.arange(3), 2)
    make_canonical_rows(sparse)
    if solver == "budgeted-sgd":
        _learn(X)
        for vectors in (X, sparse):
            add_kernel_sums(Kernel("rbf"), vectors, vectors, np.ones(2), np.zeros(2))
        return
    if solver == "interior-point":
        for vectors in (X, sparse):
            _step_inside(Rows(0, vectors, np.arange(2, dtype=np.int32)))
        return
    for rows in (Rows(0, X, np.arange(2, dtype=np.int32)), Rows(0, sparse, np.arange(2, dtype=np.int32))):
        totals = np.zeros((FINE_STEPS + 1, 2)), np.zeros(2), np.zeros((2, 3))
        add_segment_totals(rows, np.zeros((2, 3)), np.ones(2), np.ones(1), 1.0, *totals)
        compute_scores_of_parts(rows.X, np.zeros((1, 2, 2)))
        add_points(start_points(2, 3), rows, np.zeros((2, 3)), np.ones(2), 1.0)
        ascend(rows, np.ones(2), 1.0, np.zeros(2), np.zeros(3), 0.0, 0.0, 0.0, 1, (0,))
        for kind in (np.float32, np.float64):
            _sum_kernels(rows.X, kind)
    solve_master(np.eye(2), np.ones(2), np.zeros(2), 1e-9)


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
    add_predicted(start_predicted(2), rows, costs, np.zeros((2, 2)), none, 1.0, none, two, one, two, one)
    allowed, limits = np.ones(2, dtype=bool), np.full(2, np.inf)
    point = (none, two, one, two, one, none, none)
    ends = np.zeros((2, 2))
    add_assembled(start_assembled(2), rows, costs, ends, none, 0.0, limits, "omega", True, *point, allowed)
    add_exact(start_exact(1), rows, np.zeros((1, 2)), np.zeros(1), costs)
    add_exact_sums(start_exact_sums(2), rows, one)


def _sum_kernels(X: Matrix, kind: type[np.floating[Any]]) -> None:
    """Run what decomposition needs, for columns of either precision."""
    y, ones, f = np.array([-1.0, 1.0]), np.ones(2), np.zeros(2)
    columns = X if kind is np.float32 else to_float64(X)
    for name in ("rbf", "poly"):
        kernel = Kernel(name)
        add_kernel_sums(kernel, X, columns, ones, f)
        solve_by_pairs(WorkingSet(compute_kernel(kernel, columns), y, np.zeros(2), np.zeros(2), ones), 1e-3)
    add_chosen_columns(np.eye(2, dtype=np.float32), np.arange(2), ones, f)
