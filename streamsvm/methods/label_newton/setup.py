"""The setup of Newton's method for many labels: settings, memory and model for the rows of a source."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.data.groups import plan_groups
from streamsvm.data.label_view import sum_label_weights
from streamsvm.data.source import RowSource
from streamsvm.machine import default_budget_bytes
from streamsvm.methods.fit import FirstSample, Fit, Report, TakeRows
from streamsvm.methods.label_newton import solver
from streamsvm.methods.label_newton.conjugate_gradients import advance, start_conjugates
from streamsvm.methods.label_newton.options import OTHER_BYTES, LabelNewtonOptions
from streamsvm.methods.label_newton.products import TILE_ROWS, run_products
from streamsvm.methods.label_newton.row_losses import CODES, add_active
from streamsvm.methods.label_newton.sample_ascent import run_ascent
from streamsvm.methods.label_newton.sample_factors import LABEL_POINTS, LABELS, LOOKED_ROWS, SCALED_COPIES
from streamsvm.methods.label_newton.steps import LabelNewton, State, start_state
from streamsvm.methods.label_newton.sums import (
    BLOCK_LABELS,
    BLOCK_ROWS,
    add_totals,
    combine_totals,
    start_totals,
)
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.models.model import LinearModel
from streamsvm.numeric.label_sets import pack_sets
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.numeric.samples import draw_sample
from streamsvm.options import TrainOptions, compute_class_factors, compute_label_factors
from streamsvm.requests import MemoryNeed, Progress

AT_ZERO = (1.0, float(np.log(2.0)))  # the losses of a row of cost 1 at the score 0
ROWS_A_WEIGHT = 64
SAMPLE_A_WEIGHT = 160
CONJUGATE_POINTS = 5  # arrays (m, d+1) of a state whose steps are found by products
LOOKED_POINTS = 5  # arrays (m, d+1) that come and go in a step: points, gradients, what tasks are sent
LARGEST_TILE_ROWS = 1 << 17  # of one feature
POINTS = 8  # arrays (L, d+1) of the driver: the state before and after a step, the checkpoint
SAMPLE_SHARE = 10  # of the memory, at most one part in so many for the sample
MOST_SAMPLE_BYTES = 256 << 20  # in which labels with many weights find their start: one thread works on it
ASCENT_BYTES = 5  # of a row or a weight and a label: a float32 number and a flag
COPIES = 2  # of the sample while it is taken
MOST_WEIGHTS = 1500  # of a label for which curvatures are found: with more, steps are found by products
FACTOR_COPIES = 5  # matrices of float64 numbers while one is factorised
MOST_FACTOR_ROWS, FACTOR_ROWS_STEP = 2048, 128
FACTOR_SHARE = 0.8  # of the memory: factors take no more, as they may be done without, and the interpreter may grow
THREADS = 2  # memory is left for the totals of so many threads, since models must not depend on the machine
SLACK_BYTES = 64 << 20  # what the engine leaves free, and more
IN_BLOCKS = "{} labels are trained, at most {} of them side by side, as the memory has room for no more; {} blocks of "
IN_BLOCKS += "labels read the data one after the other. With more memory, fewer blocks would do."


def set_up(source: RowSource, options: TrainOptions, own: LabelNewtonOptions) -> Fit:
    """Return the fit of all labels, as many side by side as fit into memory."""
    loss, width = CODES[str(options.loss)], source.n_features + 1
    costs, weights = _find_costs(source, options)
    L = len(costs)
    settings = LabelNewton(
        loss=loss,
        costs=costs,
        at_zero=AT_ZERO[loss] * np.sum(costs * weights, axis=1),
        tol=float(options.tol),
        bias_feature=own.intercept_scaling,
        curvature_rows=own.curvature_rows or ROWS_A_WEIGHT * width,
        side_by_side=L,
        n_rows=source.n_rows,
        n_features=source.n_features,
        row_bytes=source.nbytes // source.n_rows + 8,
        by_products=width > MOST_WEIGHTS,
    )
    settings = replace(settings, sample=_draw(source, options, settings, own.sample_rows))
    settings = replace(settings, side_by_side=_count_side_by_side(source, options, settings))
    settings = replace(settings, factor_rows=_count_factor_rows(source, options, settings))
    size = settings.side_by_side
    return Fit(
        method="newton",
        settings={
            "loss": options.loss,
            "problems": L,
            "class_costs": _tell_costs(source, costs),
            "tol": settings.tol,
            "bias_feature": settings.bias_feature,
            "curvature_rows": settings.curvature_rows,
            "side_by_side": size,
        },
        memory=partial(_need_memory, settings),
        start=partial(_start, settings),
        solve=partial(solver.solve, settings),
        make_model=partial(_make_model, source, settings),
        report=_report_one if _is_pair(source) else _report,
        compiled=("label-newton",),
        sample=FirstSample(len(settings.sample), False) if len(settings.sample) else None,
        model_bytes=8 * L * width,
        note="" if size == L else IN_BLOCKS.format(L, size, -(-L // size)),
    )


def _is_pair(source: RowSource) -> bool:
    """Whether the rows have one of two classes: then the first of them is the only label, and the model is turned."""
    return not source.has_label_sets and source.classes is not None and len(source.classes) == 2


def _find_costs(source: RowSource, options: TrainOptions) -> tuple[F64, F64]:
    """Return the costs, and the sums of the sample weights, of the rows without each label and with it, (L, 2) each."""
    weights = sum_label_weights(source)
    if _is_pair(source):
        return options.C * compute_class_factors(source, options)[None, ::-1], weights[:1]
    return options.C * compute_label_factors(source, options), weights


def _tell_costs(source: RowSource, costs: F64) -> list[Any]:
    """Return the costs of the first class and of the second; of labels, of rows without one and with it."""
    if _is_pair(source):
        return list(costs[0, ::-1].tolist())
    return list(costs[0].tolist() if np.all(costs == costs[0]) else costs.tolist())


def _start(settings: LabelNewton) -> State:
    state = start_state(settings)
    return start_conjugates(state) if settings.by_products else state


def _draw(source: RowSource, options: TrainOptions, settings: LabelNewton, asked_rows: int) -> I64:
    """Return the numbers of the rows of the sample, of which a tenth of the memory at most is taken."""
    row_bytes, most = COPIES * settings.row_bytes, SAMPLE_A_WEIGHT * (settings.n_features + 1)
    if settings.by_products:
        row_bytes += ASCENT_BYTES * min(len(settings.costs), BLOCK_LABELS)
        most = MOST_SAMPLE_BYTES // settings.row_bytes
    room = (options.memory_bytes or default_budget_bytes()) // (SAMPLE_SHARE * row_bytes)
    return draw_sample(min(asked_rows or most, room), source.n_rows, options.seed, source.is_shuffled)


def _count_side_by_side(source: RowSource, options: TrainOptions, settings: LabelNewton) -> int:
    """Return how many labels are worked on side by side: all, or as few as the memory has room for, at least one."""
    L, budget = len(settings.costs), options.memory_bytes or default_budget_bytes()
    for blocks in range(1, L + 1):
        size = -(-L // blocks)
        if _has_room(source, budget, replace(settings, side_by_side=size)):
            return size
    return 1


def _count_factor_rows(source: RowSource, options: TrainOptions, settings: LabelNewton) -> int:
    """Return of how many rows or features a matrix may be factorised: as many as the memory has room for besides.

    It is 0 for the logistic loss, of which all rows have a curvature.
    """
    budget = FACTOR_SHARE * (options.memory_bytes or default_budget_bytes())
    if settings.by_products and settings.loss == CODES["squared_hinge"]:
        for rows in range(MOST_FACTOR_ROWS, 0, -FACTOR_ROWS_STEP):
            if _has_room(source, budget, replace(settings, factor_rows=rows)):
                return rows
    return 0


def _has_room(source: RowSource, budget: float, settings: LabelNewton) -> bool:
    """Return whether so many bytes are enough for these settings."""
    levels = (len(plan_groups(source)) - 1).bit_length()
    need = _need_memory(settings, THREADS)
    needed = OTHER_BYTES + SLACK_BYTES + THREADS * source.stream_bytes() + need.driver_bytes + need.walk_bytes
    return needed + (3 * THREADS + levels) * need.totals_bytes <= budget


def _need_memory(settings: LabelNewton, threads: int) -> MemoryNeed:
    """Return the memory of the points of all labels, and of the sums of those that are worked on side by side.

    A task also has a block of rows, and the scores of a block of labels.
    """
    L, width, size = len(settings.costs), settings.n_features + 1, settings.side_by_side
    row_bytes = 12 * width + size + -(-L // 8) + BLOCK_LABELS * (2 * 8 + 8 + 1) + 4 * width
    sample_bytes = COPIES * len(settings.sample) * settings.row_bytes
    if settings.by_products:
        held, turn = 8 * width * (2 * L + CONJUGATE_POINTS * size), 8 * width * LOOKED_POINTS * size
        ascent = ASCENT_BYTES * min(size, BLOCK_LABELS) * (len(settings.sample) + width)
        start = sample_bytes + max(ascent, _count_factor_bytes(settings))
        totals, shared = size * (8 * width + 40), 8 * size * (width + 4)
        tile_bytes = threads * min(settings.n_rows, TILE_ROWS) * 8 * 4 * size
        return MemoryNeed(held + max(turn, start), 0, totals, shared, tile_bytes)
    block_rows = min(settings.n_rows, BLOCK_ROWS + min(BLOCK_ROWS, LARGEST_TILE_ROWS // width))
    turn = 4 * 8 * width**2 + sample_bytes
    return MemoryNeed(
        driver_bytes=POINTS * 8 * L * width + turn,
        turn_bytes=turn,
        totals_bytes=size * (8 * width + 2 * width * (width + 1) + 40),
        shared_bytes=8 * size * (width + 4),
        walk_bytes=threads * (block_rows * row_bytes + 3 * 4 * width**2),
    )


def _count_factor_bytes(settings: LabelNewton) -> int:
    """Return the memory of a matrix that is factorised, its rows, and the points and rows of the labels meanwhile."""
    n, width = len(settings.sample), settings.n_features + 1
    size = min(n, width, settings.factor_rows)
    if not size:
        return 0
    scaled_rows = n if width <= settings.factor_rows else size
    labels = min(settings.side_by_side, LABELS)
    looked = min(n, LOOKED_ROWS) * (3 * settings.row_bytes + 4 * 8 * labels)
    own = labels * (8 * LABEL_POINTS * width + 2 * n)
    start = ASCENT_BYTES * min(settings.side_by_side, BLOCK_LABELS) * (n + width)
    return 8 * FACTOR_COPIES * size**2 + SCALED_COPIES * settings.row_bytes * scaled_rows + looked + own + start


def _make_model(source: RowSource, settings: LabelNewton, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG001
    if _is_pair(source):
        w = -state.best_w[0]
        return make_linear_model(source, w[:-1], w[-1] * settings.bias_feature)
    model = make_linear_model(source, state.best_w[:, :-1].copy(), 0.0)
    return replace(model, intercept=state.best_w[:, -1] * settings.bias_feature)


def _report_one(state: State) -> Report:
    return Report(**vars(state.progress))


def _report(state: State) -> Report:
    """Return the certificate of each label, and the sums."""
    return Report(**vars(state.progress), problems=tuple(_describe(state, k) for k in range(len(state.statuses))))


def _describe(state: State, k: int) -> dict[str, Any]:
    progress = Progress(float(state.objectives[k]), float(state.lower_bounds[k]), int(state.counts[k]))
    return {
        "status": str(state.statuses[k]),
        "objective": progress.objective,
        "lower_bound": progress.lower_bound,
        "relative_gap": progress.relative_gap,
        "passes": progress.passes,
    }


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions that add up the losses, and choose and add the curvatures."""
    sets = Rows(0, rows.X, label_sets=pack_sets(np.eye(2, dtype=np.bool_)))
    for loss in CODES.values():
        totals = start_totals(2, 3)
        add_totals(totals, sets, np.zeros((2, 3)), np.arange(2), np.ones((2, 2)), np.ones(2), (loss, 1.0))
        combine_totals(totals, start_totals(2, 3)).finish()
        add_active(np.ones((2, 2)), np.ones((2, 3)), totals.gradients)
    run_products(sets, sets.label_sets)
    run_ascent(sets)
    advance(np.zeros(2), np.ones(2), np.ones(2), np.ones(2, np.float32), 1.0)
