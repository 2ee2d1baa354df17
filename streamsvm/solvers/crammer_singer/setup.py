"""The set-up of linear Crammer-Singer: parameters, memory and model for the rows of a source."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.certificates.double_double import add_exact_classes, start_exact
from streamsvm.data.rows.source import RowSource, find_largest_tile
from streamsvm.losses.softmax import score_bytes
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.problems.classification import CRAMMER_SINGER
from streamsvm.solvers.crammer_singer import block_ascent, line_search
from streamsvm.solvers.crammer_singer.line_search import LineSearch, State, add_line
from streamsvm.solvers.cutting_plane.block_ascent import MOST_BESIDE
from streamsvm.solvers.cutting_plane.cuts import add_magnitudes, exact_bytes, start_magnitudes
from streamsvm.solvers.cutting_plane.line_search import start_cuts
from streamsvm.solvers.cutting_plane.line_search_setup import choose_most_cuts
from streamsvm.solvers.cutting_plane.master import scale_costs, solve_master
from streamsvm.solvers.cutting_plane.setup import BlockAscentSolver
from streamsvm.solvers.options import CrammerSingerOptions
from streamsvm.solvers.solver import Budget, Solver, TakeRows, make_linear_model
from streamsvm.system.errors import InputError

ROW_VECTORS = 10  # 8-byte numbers per row in memory: labels, costs, distances, orders
CLASS_VECTORS = 4  # vectors of K numbers per row in memory: shares, scores
NO_ROOM = "Crammer-Singer: the shares of all rows do not fit into the memory, so the model is trained by a line "
NO_ROOM += "search, which needs more reads of the data; a larger --memory would avoid them."


class ClassModel:
    """A solver whose states hold the best weights of all classes."""

    source: RowSource
    bias_feature: float

    def make_model(self, state: Any, take: TakeRows) -> LinearModel:  # noqa: ARG002
        """Return the model of the best weights. With two classes, its one score is twice the second class's score."""
        W = state.best_w.reshape(len(np.asarray(self.source.classes)), -1)
        biases = W[:, -1] * self.bias_feature
        if len(W) == 2:
            return make_linear_model(self.source, 2.0 * W[1, :-1], 2.0 * biases[1])
        return make_linear_model(self.source, W[:, :-1].copy(), biases)


class ClassLineSearch(ClassModel, Solver):
    """Cutting planes with a line search, for all classes at once."""

    name, compiled = "cutting-plane", ("crammer-singer",)

    def __init__(self, source: RowSource, parameters: LineSearch, note: str = "") -> None:
        self.source, self.parameters, self.bias_feature, self.note = source, parameters, parameters.bias_feature, note
        self.width = len(parameters.class_costs) * (source.n_features + 1)
        self.settings = {**_describe(parameters), "acceleration": "line-search", "max_cuts": parameters.max_cuts}

    def start(self) -> State:
        """Return the state at W = 0, without cuts."""
        return State.at_zero(self.width)

    def warm_start(self, before: State, factor: float) -> State:
        """Return the initial state for costs `factor` times larger, with the cuts of the state `before`."""
        return replace(scale_costs(before, factor, self.parameters.tol), step=1.0)

    def solve(self, state: State) -> Requests:
        """Yield the passes of the steps."""
        return line_search.solve(self.parameters, state)

    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory that the cuts, the sums of a pass, and the scores of tiles take."""
        width, exact = self.width, exact_bytes(self.width)
        points, cuts = len(line_search.AROUND) + 1, len(line_search.CUTS_AT) + 1
        totals_bytes = 8 * (points + cuts * (width + 1)) + 2 * exact
        tile_bytes = threads * _count_tile_bytes(self)
        return replace(self.parameters.need_memory(width, totals_bytes, 16 * width + exact), walk_bytes=tile_bytes)


class ClassAscentSolver(ClassModel, BlockAscentSolver):
    """Dual coordinate ascent on blocks, for all classes at once."""

    compiled, has_substitutes = ("crammer-singer",), False
    parameters: block_ascent.ClassAscent

    def __init__(self, source: RowSource, parameters: block_ascent.ClassAscent) -> None:
        super().__init__(source, parameters)
        self.n_shares, self.dual = len(parameters.class_costs), None
        self.width *= self.n_shares
        rows = "resident" if parameters.keeps_all else parameters.resident_rows
        self.settings = {**_describe(parameters), "acceleration": "block-ascent", "rows": rows}

    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory. If a line search shares the passes, its memory includes the scores of tiles."""
        need, tile_bytes = super().memory(threads), _count_tile_bytes(self) if self._is_wide() else 0
        return replace(need, walk_bytes=need.walk_bytes + threads * tile_bytes)

    def _find_row_bytes(self) -> int:
        vectors = ROW_VECTORS + CLASS_VECTORS * self.n_shares
        return self.source.nbytes // self.source.n_rows + 8 * vectors

    def _count_sum_bytes(self) -> int:
        return 8 * (len(block_ascent.STEPS) + self.width) + 2 * exact_bytes(self.width)

    def _count_more_bytes(self) -> int:
        return 0

    def _is_wide(self) -> bool:
        return self.width > MOST_BESIDE

    def _make_line_search(self, alone: bool) -> ClassLineSearch:
        parameters, most = self.parameters, choose_most_cuts(self.width, alone)
        search = LineSearch(parameters.class_costs, parameters.bias_feature, tol=parameters.tol, max_cuts=most)
        return ClassLineSearch(self.source, search)


def _count_tile_bytes(solver: ClassLineSearch | ClassAscentSolver) -> int:
    """Return the bytes of the scores of a tile that a thread holds."""
    return score_bytes(len(solver.parameters.class_costs), find_largest_tile(solver.source))


def set_up(source: RowSource, options: TrainOptions, own: CrammerSingerOptions, budget: Budget) -> Solver:
    """Return the solver: block ascent if its shares and enough rows fit into memory, otherwise the line search."""
    costs, tol = tuple(CRAMMER_SINGER.tell_loss(source, options)["class_costs"]), float(options.tol)
    note = ""
    if own.acceleration == "block-ascent" or (own.acceleration == "auto" and own.max_cuts is None):
        starts = tuple(int(start) for start in source.chunk_starts)
        parameters = block_ascent.ClassAscent(costs, source.n_rows, starts, tol, own.intercept_scaling, options.seed)
        chosen = ClassAscentSolver(source, parameters).fit_into(budget, options.resident_rows)
        if chosen is not None:
            return chosen
        note = NO_ROOM
    elif options.resident_rows is not None:
        raise InputError(
            "resident_rows has no effect with line-search or max_cuts; remove it, or use acceleration=auto"
        )
    return ClassLineSearch(source, LineSearch(costs, own.intercept_scaling, tol=tol, max_cuts=own.max_cuts), note)


def _describe(parameters: LineSearch | block_ascent.ClassAscent) -> dict[str, Any]:
    about = {"task": "crammer-singer", "loss": "crammer_singer", "class_costs": list(parameters.class_costs)}
    return {**about, "tol": parameters.tol, "bias_feature": parameters.bias_feature}


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions of the line search, the master problem and the ascent."""
    ones = np.ones(2)
    add_line(start_cuts(1, 1, 2, 3), rows, np.zeros((2, 2, 3)), np.ones(1), np.ones(1), ones, 1.0)
    add_exact_classes(start_exact(1), rows, np.zeros((1, 2, 2)), np.zeros((1, 2)), ones)
    add_magnitudes(start_magnitudes(3), rows, ones, 1.0)
    solve_master(np.eye(2), np.ones(2), np.zeros(2), 1e-9)
    part = block_ascent.make_part(rows, ones, 1.0, np.zeros((2, 2)))
    part.visit(np.zeros(len(part.order), np.uint32), 1.0, np.zeros((3, 2)), 0.0)
