"""The set-up of the linear one-class SVM: its settings, memory and model for the rows of a source."""

from __future__ import annotations

import math
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.machine import default_budget_bytes
from streamsvm.methods.cutting_plane import one_class
from streamsvm.methods.cutting_plane.lowest_rows import Centre, add_lowest, start_lowest
from streamsvm.methods.cutting_plane.one_class import BINS, MOST_POINTS, LinearOneClass, State
from streamsvm.methods.cutting_plane.options import OTHER_BYTES, OneClassOptions
from streamsvm.methods.fit import FirstSample, Fit, TakeRows, report_progress
from streamsvm.models.model import LinearModel
from streamsvm.numeric.fixed_sum_certificates import BOUNDARY_SHARE
from streamsvm.numeric.rows import Rows
from streamsvm.numeric.samples import draw_sample
from streamsvm.options import BUDGET_SHARE, TrainOptions, count_resident
from streamsvm.problems.one_class import CLASSES, read_nu, tell_loss
from streamsvm.requests import MemoryNeed

LEAST_ROWS = 3000  # that are kept, if there are so many
LAW_SHARE = 0.5  # of (n d)^(2/3) rows, as of cutting_plane.one_read
MOST_WORK = 2e9  # products of a step of the quadratic program: rows times features twice
WIDE_ROWS = 600  # where there are more features, the program's matrix is that of the rows
ROW_VECTORS = 24  # vectors of 8 bytes a row in memory: costs, scores, orders, and those of the quadratic program
COPIES = 5  # of a row: what groups have kept, what is joined, and in float64 in the quadratic program
GROUP_SHARE = 2  # a group keeps so many times its share of the rows, since near rows may be more frequent there


def set_up(source: RowSource, options: TrainOptions, own: OneClassOptions) -> Fit:  # noqa: ARG001
    """Return the fit, with as many resident rows as are asked for, or as are enough and fit into memory."""
    weight = source.column("sample_weight")
    cost = float(source.n_rows) if weight is None else math.fsum(weight[weight > 0.0].tolist())
    if not cost > 0.0:
        raise InputError("the sample weights of all rows are zero: there is nothing to learn from")
    rows = _count_rows(source, options)
    settings = LinearOneClass(
        total=read_nu(options) * cost,
        cost=cost,
        resident_rows=rows,
        most=-(-GROUP_SHARE * rows // len(plan_groups(source))),
        tol=float(options.tol),
    )
    return Fit(
        method="cutting-plane",
        settings={"acceleration": "one-class", **asdict(settings), **tell_loss(source, options)},
        memory=partial(_need_memory, source, settings),
        start=partial(_start, source, settings, options.seed),
        solve=partial(one_class.solve, settings, source.n_features),
        make_model=partial(_make_model, source),
        report=report_progress,
        compiled=("one-class",),
        sample=FirstSample(rows, is_held=False),
    )


def _count_rows(source: RowSource, options: TrainOptions) -> int:
    if options.resident_rows is not None:
        return count_resident(options.resident_rows, source.n_rows)
    n, d = source.n_rows, source.n_features
    wanted = max(LEAST_ROWS, round(LAW_SHARE * float(n * d) ** (2 / 3)))
    at_most = max(MOST_WORK / d**2, WIDE_ROWS)
    spare = (options.memory_bytes or default_budget_bytes()) - OTHER_BYTES - _find_other_bytes(d)
    fit = spare // (BUDGET_SHARE * _find_row_bytes(source))
    return int(max(2, min(n, wanted, at_most, max(fit, LEAST_ROWS // 3))))


def _find_row_bytes(source: RowSource) -> int:
    """Return the bytes of a row in memory, with its part of a matrix of the rows if these are fewer than features."""
    return 2 * GROUP_SHARE * (COPIES * (source.nbytes // source.n_rows + 8) + 8 * ROW_VECTORS)


def _find_other_bytes(d: int) -> int:
    return 8 * d * (3 * MOST_POINTS + 32)


def _need_memory(source: RowSource, settings: LinearOneClass, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of the points, of the rows that are kept, and of the program's matrix.

    A group keeps up to twice its part of GROUP_SHARE times the resident rows, since it drops rows above that only.
    """
    d, rows = source.n_features, min(source.n_rows, 2 * GROUP_SHARE * settings.resident_rows)
    kept = settings.resident_rows * _find_row_bytes(source)
    matrix = 3 * 8 * min(d, rows) ** 2
    own = 2 * settings.most * (source.nbytes // source.n_rows + 64)
    return MemoryNeed(
        driver_bytes=_find_other_bytes(d) + kept + matrix,
        turn_bytes=kept // 2 + matrix,
        totals_bytes=8 * (5 * d + BINS) + own,
        shared_bytes=8 * (d + BINS),
        gathered_bytes=kept // COPIES,
    )


def _start(source: RowSource, settings: LinearOneClass, seed: int) -> State:
    return State(draw_sample(settings.resident_rows, source.n_rows, seed, source.is_shuffled))


def _make_model(source: RowSource, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG001
    """Return the model of the best point, whose rows on the boundary are of the class however they are rounded."""
    rho = state.best_rho - BOUNDARY_SHARE * abs(state.best_rho)
    return LinearModel(
        coef=state.best,
        intercept=-rho,
        classes=np.array(CLASSES),
        scaling=source.scaling,
        feature_names=source.feature_names,
    )


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions that add rows up."""
    totals: Any = start_lowest(rows.X.shape[1], 1)
    add_lowest(totals, rows, Centre(np.zeros(rows.X.shape[1]), 0.0, 1, np.zeros(1)))
