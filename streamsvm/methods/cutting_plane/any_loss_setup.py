"""The setup of cutting planes for any convex loss: settings, memory and model for the rows of a source."""

from __future__ import annotations

from functools import partial
from typing import cast

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.methods.cutting_plane import any_loss
from streamsvm.methods.cutting_plane.any_loss import AnyLoss, State
from streamsvm.methods.cutting_plane.master_qp import solve_master
from streamsvm.methods.cutting_plane.options import AnyLossOptions
from streamsvm.methods.fit import Fit, TakeRows, report_progress
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.models.model import LinearModel
from streamsvm.numeric.convex_loss import ConvexLoss
from streamsvm.numeric.magnitudes import add_row_magnitudes
from streamsvm.numeric.row_products import add_rows
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions
from streamsvm.problems.registry import find_problem
from streamsvm.requests import MemoryNeed


def set_up(source: RowSource, options: TrainOptions, own: AnyLossOptions) -> Fit:
    """Return the fit that minimises the loss of the problem that the options name."""
    problem = find_problem(options.task)
    assert problem.make_loss is not None
    settings = AnyLoss(
        loss=cast(ConvexLoss, problem.make_loss(source, options)),
        tol=float(options.tol),
        bias_feature=own.intercept_scaling,
        max_cuts=own.max_cuts,
    )
    told = {"task": options.task, "C": float(options.C), "tol": settings.tol, "bias_feature": settings.bias_feature}
    if problem.tell_loss is not None:
        told |= problem.tell_loss(source, options)
    return Fit(
        method="cutting-plane",
        settings={**told, "max_cuts": settings.max_cuts, "class_weight": repr(options.class_weight)},
        memory=partial(_need_memory, settings, source.n_features),
        start=partial(any_loss.start_state, source.n_features),
        warm_start=partial(any_loss.warm_state, settings),
        solve=partial(any_loss.solve, settings, source.n_features),
        make_model=partial(_make_model, settings, source, problem.has_classes),
        report=report_progress,
        compiled=("any-loss",),
    )


def _need_memory(settings: AnyLoss, n_features: int, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of the solver. The totals of a task are cuts, and in the first pass the rows' sizes as well."""
    width, k = n_features + 1, len(any_loss.STEPS)
    return MemoryNeed(
        driver_bytes=settings.driver_bytes(n_features),
        turn_bytes=settings.turn_bytes(n_features),
        totals_bytes=8 * width * (k + 2) + 16 * k,
        shared_bytes=8 * width * k,
    )


def _make_model(
    settings: AnyLoss,
    source: RowSource,
    has_classes: bool,
    state: State,
    take: TakeRows,  # noqa: ARG001
) -> LinearModel:
    return make_linear_model(source, state.best_w[:-1], state.best_w[-1] * settings.bias_feature, has_classes)


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions that add rows up, and solve a master problem."""
    every = np.arange(rows.n_rows)
    add_rows(np.zeros((1, 3)), rows.X, every, np.zeros_like(every), np.ones(rows.n_rows))
    add_row_magnitudes(np.zeros(3), np.zeros(3), rows.X, np.ones(rows.n_rows))
    solve_master(np.eye(2), np.ones(2), np.zeros(2), 1e-9)
