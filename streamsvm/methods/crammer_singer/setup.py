"""The setup of Crammer-Singer: settings, memory and model for the rows of a source."""

from __future__ import annotations

from functools import partial

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.methods.crammer_singer import line_search
from streamsvm.methods.crammer_singer.line_search import LineSearch, State
from streamsvm.methods.crammer_singer.lines import add_line, start_line, totals_bytes
from streamsvm.methods.crammer_singer.options import CrammerSingerOptions
from streamsvm.methods.crammer_singer.sizes import add_sizes
from streamsvm.methods.cutting_plane.exact_points import start_magnitudes
from streamsvm.methods.cutting_plane.master_qp import solve_master
from streamsvm.methods.fit import Fit, TakeRows, report_progress
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rows import F64, Rows
from streamsvm.options import TrainOptions
from streamsvm.problems.joint_classification import tell_loss
from streamsvm.requests import MemoryNeed


def set_up(source: RowSource, options: TrainOptions, own: CrammerSingerOptions) -> Fit:
    """Return the fit of all classes."""
    told = tell_loss(source, options)
    settings = LineSearch(
        class_costs=tuple(told["class_costs"]),
        tol=float(options.tol),
        bias_feature=own.intercept_scaling,
        max_cuts=own.max_cuts,
    )
    width = settings.find_width(source.n_features)
    return Fit(
        method="cutting-plane",
        settings={
            "task": options.task,
            **told,
            "tol": settings.tol,
            "bias_feature": settings.bias_feature,
            "max_cuts": settings.max_cuts,
        },
        memory=partial(_need_memory, settings, width),
        start=partial(line_search.start_state, settings, source.n_features),
        warm_start=partial(line_search.warm_state, settings),
        solve=partial(line_search.solve, settings),
        make_model=partial(_make_model, source, settings.bias_feature),
        report=report_progress,
        compiled=("crammer-singer",),
        model_bytes=8 * width,
    )


def _need_memory(settings: LineSearch, width: int, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of the solver."""
    return MemoryNeed(
        driver_bytes=settings.driver_bytes(width),
        turn_bytes=settings.turn_bytes(width),
        totals_bytes=totals_bytes(len(line_search.AROUND) + 1, len(line_search.CUTS_AT) + 1, width) + 16 * width,
        shared_bytes=16 * width,
    )


def _make_model(source: RowSource, bias_feature: float, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG001
    """Return the model. Two classes have one score, twice that of the second class."""
    classes = np.asarray(source.classes)
    W: F64 = state.best_w.reshape(len(classes), -1)
    biases = W[:, -1] * bias_feature
    one = len(classes) == 2
    return LinearModel(
        coef=2.0 * W[1, :-1] if one else W[:, :-1].copy(),
        intercept=float(2.0 * biases[1]) if one else biases,
        classes=classes,
        scaling=source.scaling,
        feature_names=source.feature_names,
    )


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions that look along a line, and solve a master problem."""
    ones = np.ones(2)
    add_line(start_line(1, 1, 2, 3), rows, np.zeros((2, 2, 3)), np.ones(1), np.ones(1), ones, 1.0)
    add_sizes(start_magnitudes(3), rows, ones, 1.0)
    solve_master(np.eye(2), np.ones(2), np.zeros(2), 1e-9)
