"""The set-up of multinomial logistic regression: parameters, memory and model for the rows of a source."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.data.rows.source import RowSource, find_largest_tile
from streamsvm.losses.softmax import score_bytes
from streamsvm.numeric.rows import Rows, draw_sample
from streamsvm.options import TrainOptions, count_driver_threads
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.problems.classification import MULTINOMIAL
from streamsvm.solvers.crammer_singer.setup import ClassModel
from streamsvm.solvers.cutting_plane.cuts import add_magnitudes, master_bytes, most_cuts, start_magnitudes
from streamsvm.solvers.cutting_plane.line_search import solve_any_loss
from streamsvm.solvers.cutting_plane.master import scale_costs, solve_master
from streamsvm.solvers.cutting_plane.setup import NO_ROWS
from streamsvm.solvers.many.classes import SLACK_BYTES, THREADS, count_needed_bytes
from streamsvm.solvers.options import NewtonOptions
from streamsvm.solvers.softmax.lbfgs import MOST_AXES, MOST_CURVED, PART_ROWS, SECANTS, SUMMED_PARTS, count_secants
from streamsvm.solvers.softmax.solver import STEPS, DrawnRows, Softmax, SoftmaxSearch, State
from streamsvm.solvers.solver import Budget, FirstSample, Solver

NARROW_TOL, SMALL_BYTES = 1e-5, 16 << 20  # a sample is float32 if `tol` is larger, it has more bytes
WIDE = 1 << 17  # or more weights,
HIGH_COST = 1e4  # and all costs are lower: the curvature of the penalty is 1, which float32 hides at high costs
MORE_COPIES = 2  # copies of the stored sample while it is fetched, besides those that are held
LEAST_CUTS, CUTS_BYTES = 16, 128 << 20  # the cuts take about so many bytes, but are at least so many
ROW_VECTORS = 4  # vectors of 8 bytes for each row of the sample
SHARE = 32  # one part in so many of the memory stays free, as a process may hold more than Budget.process_bytes
SCORES = 6  # numbers for each row of the sample and each class: scores, moves, probabilities
PART_SCORES = 2  # numbers for each row of a part and each class, on each thread: intermediate results
HELD_VECTORS = 17 + 2 * SECANTS  # vectors of the width of W in the driver during a pass, besides the cuts
STEP_VECTORS = 12 + SUMMED_PARTS  # further vectors during a step in memory, besides secants
NEW_VECTORS = 16  # further vectors while cuts are added or stored, besides a copy of the cuts
LEAST_TOTALS = 3  # so many totals are planned for any engine, but only a pass uses them


class SoftmaxSolver(ClassModel, Solver):
    """L-BFGS on a sample, whose loss is corrected by passes over all rows."""

    name, compiled = "cutting-plane", ("softmax",)

    def __init__(self, source: RowSource, options: TrainOptions, own: NewtonOptions, budget: Budget) -> None:
        told = MULTINOMIAL.tell_loss(source, options)
        costs, tol = tuple(told["class_costs"]), float(options.tol)
        self.source, self.bias_feature = source, own.intercept_scaling
        self.width = len(costs) * (source.n_features + 1)
        about: dict[str, Any] = {"bias_feature": own.intercept_scaling, "tol": tol, "seed": options.seed}
        most = min(most_cuts(self.width), max(LEAST_CUTS, CUTS_BYTES // (8 * self.width)))
        self.parameters = Softmax(class_costs=costs, resident_rows=1, threads=THREADS, max_cuts=most, **about)
        self._take_rows(budget, options)
        self.settings = {"task": "multinomial", **told, **about, "resident_rows": self.parameters.resident_rows}
        self.sample = FirstSample(self.parameters.resident_rows, is_held=True)

    def _take_rows(self, budget: Budget, options: TrainOptions) -> None:
        """Set the number of rows in the sample, their type, and the number of threads that fit into memory."""
        own, n = self.parameters, self.source.n_rows
        is_wide = own.tol < NARROW_TOL or max(own.class_costs) > HIGH_COST
        for dtype in [np.float64] if is_wide else [np.float32, np.float64]:
            self.parameters = replace(own, dtype=dtype)
            # Budget.process_bytes includes the slack.
            other = count_needed_bytes(self.source, self.memory(THREADS)) + budget.total_bytes // SHARE - SLACK_BYTES
            stored, held, step = self._find_row_bytes()
            row_bytes = held + max(step, MORE_COPIES * stored)
            number = budget.count_rows(n, options.resident_rows, row_bytes, other, n)
            if number * stored > SMALL_BYTES or self.width > WIDE:
                break
        spare = max(0, budget.spare_bytes - other - number * row_bytes)
        threads = min(count_driver_threads(options), THREADS + SCORES * spare // (PART_SCORES * PART_ROWS * step))
        self.parameters = replace(self.parameters, resident_rows=max(1, number), threads=threads)
        self.note = "" if number else NO_ROWS

    def _find_row_bytes(self) -> tuple[int, int, int]:
        """Return the bytes of a row of the sample as it is stored, of what is held, and of its scores in a step."""
        stored = self.source.nbytes // self.source.n_rows
        copies, size = (3, 8) if self.parameters.dtype == np.float64 else (1, 4)
        return stored, copies * stored + 8 * ROW_VECTORS, SCORES * size * len(self.parameters.class_costs)

    def start(self) -> Any:
        """Return the state at W = 0, without cuts, and with a sample."""
        n_rows, own = self.source.n_rows, self.parameters
        resident = draw_sample(own.resident_rows, n_rows, own.seed, self.source.is_shuffled)
        return replace(State.at_zero(self.width), resident=resident, n_rows=n_rows)

    def warm_start(self, before: State, factor: float) -> State:
        """Return the initial state for costs `factor` times larger, with the cuts and the sample of the state."""
        scaled = scale_costs(before, factor, self.parameters.tol)
        changes = before.moves + factor * (before.changes - before.moves)
        in_proportion = {name: factor * getattr(before, name) for name in ("slope", "curvature")}
        return replace(scaled, step=1.0, changes=changes, **in_proportion)

    def solve(self, state: State) -> Requests:
        """Yield the passes of the steps."""
        drawn = DrawnRows(self.parameters, state.resident, state.n_rows)
        return solve_any_loss(self.parameters, SoftmaxSearch(), drawn, state)

    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory of the sample, the cuts, the sums of a pass, and the scores of tiles.

        A step in memory ends before the pass, which ends before the cuts are added. So only the largest of the three
        counts besides what is held throughout.
        """
        width, K, most = self.width, len(self.parameters.class_costs), self.parameters.most_cuts(self.width)
        is_summed = width <= MOST_CURVED
        curved = 8 * (width**2 if is_summed else K * K + 2 * width)
        points = 8 * (len(STEPS) + 1) * width
        n, (stored, row_bytes, row_step) = self.parameters.resident_rows, self._find_row_bytes()
        held = 8 * (most + HELD_VECTORS) * width + 16 * most**2 + 2 * curved + n * row_bytes
        axes = 8 * (self.source.n_features + 1) ** 2 if self.source.n_features <= MOST_AXES else 0
        step = 8 * (STEP_VECTORS + 2 * count_secants(width)) * width + 4 * PART_ROWS * self.source.n_features
        step += 5 * axes + (2 + SUMMED_PARTS * is_summed) * curved + n * row_step
        step += PART_SCORES * self.parameters.threads * min(PART_ROWS, self.source.n_rows) * row_step // SCORES
        new = 8 * (most + NEW_VECTORS) * width + 2 * curved + master_bytes(width, most)
        turn = max(0, max(step, new, MORE_COPIES * n * stored) - LEAST_TOTALS * (points + curved))
        walk = threads * score_bytes(K, find_largest_tile(self.source))
        return MemoryNeed(held + turn, turn, points + curved, 2 * points, walk_bytes=walk)


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions of the magnitudes and the master problem."""
    add_magnitudes(start_magnitudes(3), rows, np.ones(2), 1.0)
    solve_master(np.eye(2), np.ones(2), np.zeros(2), 1e-9)
