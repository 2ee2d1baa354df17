"""The set-up of multinomial logistic regression: parameters, memory and model for the rows of a source."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.data.rows.source import RowSource, find_largest_tile, plan_groups
from streamsvm.losses.softmax import score_bytes
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions, count_driver_threads
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.problems.classification import MULTINOMIAL
from streamsvm.solvers.crammer_singer.setup import ClassModel
from streamsvm.solvers.cutting_plane.cuts import add_magnitudes, most_cuts, start_magnitudes
from streamsvm.solvers.cutting_plane.master import scale_costs, solve_master
from streamsvm.solvers.cutting_plane.sample_model import FIRST_STEPS, STEPS, solve
from streamsvm.solvers.cutting_plane.setup import NO_ROWS
from streamsvm.solvers.options import SoftmaxOptions
from streamsvm.solvers.softmax.newton import MOST_AXES, MOST_CURVED, PART_ROWS, SUMMED_PARTS
from streamsvm.solvers.softmax.solver import SECANTS, WIDE, Softmax, State
from streamsvm.solvers.solver import Budget, FirstSample, Solver

COPIES = 3  # copies of the sample while it is fetched
LEAST_CUTS, CUTS_BYTES = 16, 128 << 20  # the cuts take about so many bytes, but are at least so many
ROW_VECTORS = 4  # vectors of 8 bytes for each row of the sample
SCORES = 6  # numbers of 8 bytes for each row of the sample and each class: scores, moves, probabilities
PART_SCORES = 2  # numbers for each row of a part and each class, on each thread: intermediate results
VECTORS = 8 + 4 * SECANTS + SUMMED_PARTS  # vectors of the width of W in the driver, besides the cuts


class SoftmaxSolver(ClassModel, Solver):
    """Newton's method on a sample, corrected by passes over all rows."""

    name, compiled = "cutting-plane", ("softmax",)

    def __init__(self, source: RowSource, options: TrainOptions, own: SoftmaxOptions, budget: Budget) -> None:
        told = MULTINOMIAL.tell_loss(source, options)
        costs, tol = tuple(told["class_costs"]), float(options.tol)
        self.source, self.bias_feature = source, own.intercept_scaling
        self.width = len(costs) * (source.n_features + 1)
        about: dict[str, Any] = {"bias_feature": own.intercept_scaling, "tol": tol, "seed": options.seed}
        most = min(most_cuts(self.width), max(LEAST_CUTS, CUTS_BYTES // (8 * self.width)))
        limits = {"threads": count_driver_threads(options), "max_cuts": most}
        self.parameters = Softmax(class_costs=costs, resident_rows=1, **limits, **about)
        threads = self.parameters.threads
        need = self.memory(threads)
        levels = (len(plan_groups(source)) - 1).bit_length()  # of the tree of sums; one total waits on each of them
        other = need.driver_bytes + need.shared_bytes + need.walk_bytes + threads * source.stream_bytes()
        other += (3 * threads + levels) * need.totals_bytes
        n, row_bytes = source.n_rows, self._find_row_bytes()
        n_rows = budget.count_rows(n, options.resident_rows, row_bytes, other, n)
        self.parameters, self.note = replace(self.parameters, resident_rows=max(1, n_rows)), "" if n_rows else NO_ROWS
        self.settings = {"task": "multinomial", **told, **about, "resident_rows": self.parameters.resident_rows}
        self.sample = FirstSample(self.parameters.resident_rows, is_held=True)

    def _find_row_bytes(self) -> int:
        copies = COPIES * (1 + self.parameters.needs_float64)  # COPIES counts copies in float32
        return copies * self.source.nbytes // self.source.n_rows + 8 * ROW_VECTORS + SCORES * self._find_score_bytes()

    def _find_score_bytes(self) -> int:
        """Return the bytes of a score of a row for each class."""
        n_classes = len(self.parameters.class_costs)
        is_float64 = self.parameters.needs_float64 or n_classes * self.source.n_features <= WIDE
        return (8 if is_float64 else 4) * n_classes

    def start(self) -> Any:
        """Return the state at W = 0, without cuts."""
        return self.parameters.start(self.width, self.source.n_rows, self.source.is_shuffled)

    def warm_start(self, before: State, factor: float) -> State:
        """Return the initial state for costs `factor` times larger, with the cuts and the sample of the state."""
        scaled = scale_costs(before, factor, self.parameters.tol)
        changes = before.moves + factor * (before.changes - before.moves)
        in_proportion = {name: factor * getattr(before, name) for name in ("slope", "curvature")}
        return replace(scaled, step=1.0, changes=changes, **in_proportion)

    def solve(self, state: State) -> Requests:
        """Yield the passes of the steps."""
        return solve(self.parameters, state)

    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory of the sample, the cuts, the sums of a pass, and the scores of tiles."""
        width, K = self.width, len(self.parameters.class_costs)
        is_summed = width <= MOST_CURVED
        curved = 8 * (width**2 if is_summed else K * K + width)
        axes = 8 * (self.source.n_features + 1) ** 2 if self.source.n_features <= MOST_AXES else 0
        points = 8 * (max(len(FIRST_STEPS), len(STEPS)) + 1) * width
        more = self.parameters.resident_rows * self._find_row_bytes()
        more += 8 * VECTORS * width + 5 * axes + 4 * PART_ROWS * self.source.n_features
        more += PART_SCORES * self.parameters.threads * min(PART_ROWS, self.source.n_rows) * self._find_score_bytes()
        more += (4 + SUMMED_PARTS * is_summed) * curved
        need = self.parameters.need_memory(width, points + curved, 2 * points, more)
        return replace(need, walk_bytes=threads * score_bytes(K, find_largest_tile(self.source)))


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions of the magnitudes and the master problem."""
    add_magnitudes(start_magnitudes(3), rows, np.ones(2), 1.0)
    solve_master(np.eye(2), np.ones(2), np.zeros(2), 1e-9)
