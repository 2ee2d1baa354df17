"""The setup of the linear one-class SVM for a source: settings, memory and model."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from streamsvm.certificates.kernel import BOUNDARY_SHARE
from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rows import Rows, draw_sample
from streamsvm.options import BUDGET_SHARE, TrainOptions, count_resident
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.problems.nu import CLASSES, ONE_CLASS, read_nu
from streamsvm.solvers.one_class import solver
from streamsvm.solvers.options import OneClassOptions
from streamsvm.solvers.solver import Budget, FirstSample, Solver, TakeRows, describe_parameters, make_linear_model
from streamsvm.system.errors import InputError

LEAST_ROWS = 3000  # the least number of rows to keep, unless there are fewer rows
LAW_SHARE = 0.5  # at least this share of (n d)^(2/3) rows is kept, as in one_read.setup
MOST_WORK = 2e9  # the products in a step of the quadratic program: rows times features squared
WIDE_ROWS = 600  # With more features than rows, the program's matrix is over the rows.
ROW_VECTORS = 24  # vectors of 8 bytes per row in memory: costs, scores, orders, and those of the quadratic program
COPIES = 5  # copies of a row: in its group, after merging, and in float64 in the quadratic program
GROUP_SHARE = 2  # A group keeps this multiple of its share of the rows, since near rows may be more frequent in it.


class OneClassSolver(Solver):
    """The linear one-class SVM by cutting planes, with the rows near the boundary in memory."""

    name, compiled, starts_warm = "cutting-plane", ("one-class",), False

    def __init__(self, source: RowSource, options: TrainOptions, _: OneClassOptions, budget: Budget) -> None:
        weight = source.column("sample_weight")
        cost = float(source.n_rows) if weight is None else math.fsum(weight[weight > 0.0].tolist())
        if not cost > 0.0:
            raise InputError("the sample weights of all rows are zero: there is nothing to learn from")
        rows = _count_rows(source, options, budget)
        self.source, self.seed = source, options.seed
        most = -(-GROUP_SHARE * rows // len(plan_groups(source)))
        self.parameters = solver.LinearOneClass(read_nu(options) * cost, cost, rows, most, float(options.tol))
        told = ONE_CLASS.tell_loss(source, options)
        self.settings = {"acceleration": "one-class", **describe_parameters(self.parameters), **told}
        self.sample = FirstSample(rows, is_held=False)

    def start(self) -> solver.State:
        """Return the state before the first pass, with the row numbers of the sample."""
        source = self.source
        return solver.State(draw_sample(self.parameters.resident_rows, source.n_rows, self.seed, source.is_shuffled))

    def solve(self, state: solver.State) -> Requests:
        """Yield the passes and steps."""
        return solver.solve(self.parameters, self.source.n_features, state)

    def memory(self, threads: int) -> MemoryNeed:  # noqa: ARG002
        """Return the memory of the points, the kept rows, and the matrix of the quadratic program.

        A group may hold twice as many rows as it keeps in the end, since it drops rows only when it has more.
        """
        source, parameters = self.source, self.parameters
        d, rows = source.n_features, min(source.n_rows, 2 * GROUP_SHARE * parameters.resident_rows)
        kept = parameters.resident_rows * _find_row_bytes(source)
        matrix = 3 * 8 * min(d, rows) ** 2
        own = 2 * parameters.most * (source.nbytes // source.n_rows + 64)
        return MemoryNeed(
            driver_bytes=_find_other_bytes(d) + kept + matrix,
            turn_bytes=kept // 2 + matrix,
            totals_bytes=8 * (5 * d + solver.BINS) + own,
            shared_bytes=8 * (d + solver.BINS),
            gathered_bytes=kept // COPIES,
        )

    def make_model(self, state: solver.State, take: TakeRows) -> LinearModel:  # noqa: ARG002
        """Return the model of the best point.

        Rows on the boundary get a score that puts them in the region despite rounding.
        """
        rho = state.best_rho - BOUNDARY_SHARE * abs(state.best_rho)
        return replace(make_linear_model(self.source, state.best, -rho, has_classes=False), classes=np.array(CLASSES))


def _count_rows(source: RowSource, options: TrainOptions, budget: Budget) -> int:
    if options.resident_rows is not None:
        return count_resident(options.resident_rows, source.n_rows)
    n, d = source.n_rows, source.n_features
    wanted = max(LEAST_ROWS, round(LAW_SHARE * float(n * d) ** (2 / 3)))
    at_most = max(MOST_WORK / d**2, WIDE_ROWS)
    fit = (budget.spare_bytes - _find_other_bytes(d)) // (BUDGET_SHARE * _find_row_bytes(source))
    return int(max(2, min(n, wanted, at_most, max(fit, LEAST_ROWS // 3))))


def _find_row_bytes(source: RowSource) -> int:
    """Return the bytes per resident row, including its copies and vectors, and the rows that groups hold in excess."""
    return 2 * GROUP_SHARE * (COPIES * (source.nbytes // source.n_rows + 8) + 8 * ROW_VECTORS)


def _find_other_bytes(d: int) -> int:
    return 8 * d * (3 * solver.MOST_POINTS + 32)


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions that sum rows."""
    totals = solver.start_lowest(rows.X.shape[1], 1)
    solver.add_lowest(totals, rows, solver.Centre(np.zeros(rows.X.shape[1]), 0.0, 1, np.zeros(1)))
