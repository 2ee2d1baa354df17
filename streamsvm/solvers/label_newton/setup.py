"""The setup of Newton's method for many labels: settings, memory and model for a source."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.data.rows.source import RowSource
from streamsvm.data.rows.views import sum_label_weights
from streamsvm.models.model import LinearModel
from streamsvm.numeric.labels import pack_sets
from streamsvm.numeric.rows import F64, I64, Rows, draw_sample, split
from streamsvm.options import TrainOptions, compute_class_factors, compute_label_factors
from streamsvm.passes import MemoryNeed, Progress, Requests
from streamsvm.solvers.label_newton import solver, sums
from streamsvm.solvers.label_newton.steps import LabelNewton, State, advance, start_state
from streamsvm.solvers.many.classes import THREADS, count_needed_bytes, describe_problem
from streamsvm.solvers.options import Newton
from streamsvm.solvers.solver import Budget, FirstSample, Report, Solver, TakeRows, make_linear_model

AT_ZERO = (1.0, float(np.log(2.0)))  # the losses of a row of cost 1 at score 0
ROWS_A_WEIGHT = 64
SAMPLE_A_WEIGHT = 160
CONJUGATE_POINTS = 5  # arrays (m, d+1) of a state whose steps are found by products
LOOKED_POINTS = 5  # temporary arrays (m, d+1) of a step: points, gradients, and data sent to tasks
LARGEST_TILE_ROWS = 1 << 17  # the rows of a tile with a single feature
POINTS = 8  # arrays (L, d+1) of the driver: the state before and after a step, the checkpoint
SAMPLE_SHARE = 10  # The sample takes at most one part in SAMPLE_SHARE of the memory.
MOST_SAMPLE_BYTES = 256 << 20  # the largest sample for labels with many weights, since a single thread processes it
ASCENT_BYTES = 5  # bytes per label and row, and per label and weight: a float32 number and a flag
COPIES = 2  # copies of the sample while it is fetched
MOST_WEIGHTS = 1500  # With more weights per label, steps are found by products instead of curvatures.
FACTOR_COPIES = 5  # float64 matrices in memory while one is factorised
MOST_FACTOR_ROWS, FACTOR_ROWS_STEP = 2048, 128
FACTOR_SHARE = 0.8  # the share of the memory for factors; they are optional, and the interpreter may grow
IN_BLOCKS = "{} labels are trained in blocks, as the memory limit allows at most {} of them side by side. Each of "
IN_BLOCKS += "the {} blocks reads the data again. With more memory, fewer blocks would be enough."


class LabelNewtonSolver(Solver):
    """Newton's method for many labels; labels are solved side by side as far as memory allows."""

    name, compiled, starts_warm = "newton", ("label-newton",), False

    def __init__(self, source: RowSource, options: TrainOptions, own: Newton, budget: Budget) -> None:
        loss, width = sums.CODES[str(options.loss)], source.n_features + 1
        costs, weights = _find_costs(source, options)
        L = len(costs)
        at_zero, tol, bias = AT_ZERO[loss] * np.sum(costs * weights, axis=1), float(options.tol), own.intercept_scaling
        curvature_rows, by_products = own.curvature_rows or ROWS_A_WEIGHT * width, width > MOST_WEIGHTS
        n_rows, n_features, row_bytes = source.n_rows, source.n_features, source.nbytes // source.n_rows + 8
        sizes = (curvature_rows, L, n_rows, n_features, row_bytes)
        parameters = LabelNewton(loss, costs, at_zero, tol, bias, *sizes, by_products)
        room = budget.total_bytes // SAMPLE_SHARE
        sample = _draw(source, options.seed, parameters, own.sample_rows, room)
        parameters = replace(parameters, sample=sample)
        parameters = replace(parameters, side_by_side=_count_side_by_side(source, budget, parameters))
        parameters = replace(parameters, factor_rows=_count_factor_rows(source, budget, parameters))
        self.source, self.parameters, size = source, parameters, parameters.side_by_side
        names = ("tol", "bias_feature", "curvature_rows", "side_by_side")
        self.settings = {"loss": options.loss, "problems": L, "class_costs": _tell_costs(source, costs)}
        self.settings |= {name: getattr(parameters, name) for name in names}
        self.sample = FirstSample(len(sample), is_held=False) if len(sample) else None
        self.model_bytes = 8 * L * width
        self.note = "" if size == L else IN_BLOCKS.format(L, size, -(-L // size))

    def start(self) -> State:
        """Return the state at W = 0."""
        return start_state(self.parameters)

    def solve(self, state: State) -> Requests:
        """Yield the passes and steps."""
        return solver.solve(self.parameters, state)

    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory of the points of all labels, and of the sums of the labels that are solved side by side."""
        return _need_memory(self.parameters, threads)

    def make_model(self, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG002
        """Return the models of all labels. For two classes, the only label is the first class; its model is negated."""
        w = -state.best_w[0] if _is_pair(self.source) else state.best_w
        return make_linear_model(self.source, w[..., :-1].copy(), w[..., -1] * self.parameters.bias_feature)

    def report(self, state: State) -> Report:
        """Return the report of the run, with the progress of each label."""
        told = zip(state.objectives.tolist(), state.lower_bounds.tolist(), state.counts.tolist(), strict=True)
        each = [describe_problem(str(state.statuses[k]), Progress(*one)) for k, one in enumerate(told)]
        return replace(super().report(state), problems=() if _is_pair(self.source) else tuple(each))


def _is_pair(source: RowSource) -> bool:
    """Return whether the source has two classes. The first class is then the only label, and the model is negated."""
    return not source.has_label_sets and source.classes is not None and len(source.classes) == 2


def _find_costs(source: RowSource, options: TrainOptions) -> tuple[F64, F64]:
    """Return the costs and the sums of sample weights, (L, 2) each, of the rows without and with each label."""
    weights = sum_label_weights(source)
    if _is_pair(source):
        return options.C * compute_class_factors(source, options)[None, ::-1], weights[:1]
    return options.C * compute_label_factors(source, options), weights


def _tell_costs(source: RowSource, costs: F64) -> list[Any]:
    """Return the costs as settings show them: those of both classes, or of the rows without and with each label."""
    if _is_pair(source):
        return list(costs[0, ::-1].tolist())
    return list(costs[0].tolist() if np.all(costs == costs[0]) else costs.tolist())


def _draw(source: RowSource, seed: int, settings: LabelNewton, asked_rows: int, room_bytes: int) -> I64:
    """Return the row numbers of the sample, which takes at most room_bytes.

    asked_rows: the requested number of rows, or 0 for the default.
    """
    row_bytes, most = COPIES * settings.row_bytes, SAMPLE_A_WEIGHT * (settings.n_features + 1)
    if settings.by_products:
        row_bytes += ASCENT_BYTES * min(len(settings.costs), sums.BLOCK_LABELS)
        most = MOST_SAMPLE_BYTES // settings.row_bytes
    return draw_sample(min(asked_rows or most, room_bytes // row_bytes), source.n_rows, seed, source.is_shuffled)


def _count_side_by_side(source: RowSource, budget: Budget, settings: LabelNewton) -> int:
    """Return the number of labels to solve side by side: all, or as many as memory has room for, but at least one."""
    L = len(settings.costs)
    sizes = (-(-L // blocks) for blocks in range(1, L + 1))
    return next((m for m in sizes if _has_room(source, budget, 1.0, replace(settings, side_by_side=m))), 1)


def _count_factor_rows(source: RowSource, budget: Budget, settings: LabelNewton) -> int:
    """Return the largest number of rows or features of a matrix to factorise, as far as the remaining memory allows.

    It is 0 for the logistic loss, for which all rows have a curvature.
    """
    if not settings.by_products or settings.loss != sums.CODES["squared_hinge"]:
        return 0
    sizes = range(MOST_FACTOR_ROWS, 0, -FACTOR_ROWS_STEP)
    return next((n for n in sizes if _has_room(source, budget, FACTOR_SHARE, replace(settings, factor_rows=n))), 0)


def _has_room(source: RowSource, budget: Budget, share: float, settings: LabelNewton) -> bool:
    """Return whether a share of the memory is enough for these settings."""
    needed = count_needed_bytes(source, _need_memory(settings, THREADS))
    return budget.process_bytes + needed <= share * budget.total_bytes


def _need_memory(settings: LabelNewton, threads: int) -> MemoryNeed:
    """Return the memory of the points of all labels, and of the sums of the labels that are solved side by side.

    A task also holds a block of rows, and the scores of a block of labels.
    """
    L, width, size = len(settings.costs), settings.n_features + 1, settings.side_by_side
    row_bytes = 12 * width + size + -(-L // 8) + sums.BLOCK_LABELS * (2 * 8 + 8 + 1) + 4 * width
    sample_bytes = COPIES * len(settings.sample) * settings.row_bytes
    if settings.by_products:
        held, turn = 8 * width * (2 * L + CONJUGATE_POINTS * size), 8 * width * LOOKED_POINTS * size
        ascent = ASCENT_BYTES * min(size, sums.BLOCK_LABELS) * (len(settings.sample) + width)
        start = sample_bytes + max(ascent, _count_factor_bytes(settings))
        totals, shared = size * (8 * width + 40), 8 * size * (width + 4)
        tile_bytes = threads * min(settings.n_rows, sums.PRODUCT_ROWS) * 8 * 4 * size
        return MemoryNeed(held + max(turn, start), 0, totals, shared, tile_bytes)
    block_rows = min(settings.n_rows, sums.BLOCK_ROWS + min(sums.BLOCK_ROWS, LARGEST_TILE_ROWS // width))
    turn = 4 * 8 * width**2 + sample_bytes
    totals, shared = size * (8 * width + 2 * width * (width + 1) + 40), 8 * size * (width + 4)
    block_bytes = threads * (block_rows * row_bytes + 3 * 4 * width**2)
    return MemoryNeed(POINTS * 8 * L * width + turn, turn, totals, shared, block_bytes)


def _count_factor_bytes(settings: LabelNewton) -> int:
    """Return the memory to factorise a matrix, including the rows it is made of and the points of its labels."""
    n, width = len(settings.sample), settings.n_features + 1
    size = min(n, width, settings.factor_rows)
    if not size:
        return 0
    scaled_rows = n if width <= settings.factor_rows else size
    labels = min(settings.side_by_side, solver.LABELS)
    looked = min(n, solver.LOOKED_ROWS) * (3 * settings.row_bytes + 4 * 8 * labels)
    own = labels * (8 * solver.LABEL_POINTS * width + 2 * n)
    start = ASCENT_BYTES * min(settings.side_by_side, sums.BLOCK_LABELS) * (n + width)
    return 8 * FACTOR_COPIES * size**2 + solver.SCALED_COPIES * settings.row_bytes * scaled_rows + looked + own + start


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions that sum losses, choose and sum curvatures, and find the start."""
    sets, codes, costs = Rows(0, rows.X, label_sets=pack_sets(np.eye(2, dtype=np.bool_))), np.arange(2), np.ones((2, 2))
    V = np.zeros((3, 2), np.float32)
    for loss in sums.CODES.values():
        totals = sums.start_totals(2, 3)
        sums.add_totals(totals, sets, np.zeros((2, 3)), codes, costs, np.ones(2), (loss, 1.0))
        sums.combine_totals(totals, sums.start_totals(2, 3)).finish()
        sums.add_active(costs, np.ones((2, 3)), totals.gradients)
        products = sums.start_products(3, 2, 2)
        sums.add_products(products, sets, np.zeros((3, 2)), codes, V, V, codes, np.ones((4, 2)), (loss, 1.0))
    ones, has, a = np.ones(2), np.zeros((2, 2), np.uint8), np.zeros((2, 2), np.float32)
    solver.visit_rows(0, 1.0, split(rows.X), codes, ones, has, ones, costs, V, a)
    advance(np.zeros(2), np.ones(2), np.ones(2), np.ones(2, np.float32), 1.0)
