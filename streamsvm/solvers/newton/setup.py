"""The setup of Newton's method for a source, with either penalty: parameters, memory and model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.data.rows.source import TILE_BYTES, RowSource, plan_groups
from streamsvm.losses.convex import SmoothLoss, has_kinks
from streamsvm.numeric.gram import BUFFER_ROWS, TILE_ROWS
from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.problems.classification import Logistic
from streamsvm.problems.registry import find_problem
from streamsvm.problems.regression import EpsilonInsensitive
from streamsvm.solvers.cutting_plane.line_search_setup import AnyLossSolver, TwoSolvers
from streamsvm.solvers.newton.kinks import GROUP_SHARE, scan_near_kinks
from streamsvm.solvers.newton.l1_solver import L1Newton, minimise_model
from streamsvm.solvers.newton.solver import ROWS_A_FEATURE, Newton, solve
from streamsvm.solvers.newton.steps import Look, sum_rows
from streamsvm.solvers.options import AnyLossOptions, NewtonOptions
from streamsvm.solvers.solver import LEAST_ROWS, Budget, FirstSample, LinearSolver, Solver

SHARE = 10  # One row in SHARE is in the sample, if memory allows.
SMALL_BYTES = 32 << 20  # Smaller data stay in memory, and one pass proves the gap.
KINK_ROWS = 20_000  # the same if the loss has kinks: the minimiser of more rows takes longer than further passes
# With fewer resident rows, or fewer than ROWS_A_FEATURE per feature, the rows near their kinks may mislead the steps.
# Of 217 regressions with one to four resident rows per feature, Newton's method alone leaves 7 without a proof after
# 300 passes, and takes 5,290 passes in all; cutting planes alone take 5,093, and the two together 2,611.
ENOUGH_RESIDENT = 1000
COPIES = 3  # copies of the sample while it is fetched
ROW_VECTORS = 8  # vectors of 8 bytes for each row of the sample
HELD = 5 * GROUP_SHARE  # times the kept rows in a group while it is read: twice its share, a copy, and the share chosen
KINK_VECTORS = 40  # additional vectors if the loss has kinks
MATRICES = 8  # matrices (width, width) of the driver: Hessian and its factor, norm, products
SUMS = 2  # the two parts of the Hessian in the totals of a task
TILE_VECTORS = 16  # vectors of 8 bytes for each row of a tile
MOST_L1_FEATURES = 2000  # the maximum number of features whose weights change in a step
L1_ROWS_A_FEATURE = 10
L1_ROW_VECTORS = 12
L1_VECTORS = 12  # vectors (d+1,) of the driver between steps; a step needs the same number in addition


class NewtonSolver(LinearSolver):
    """Newton's method for a smooth loss, started from a sample of the rows in memory."""

    name = "newton"
    compiled: tuple[str, ...] = ("newton",)
    rows_a_feature, row_vectors, n_vectors = ROWS_A_FEATURE, ROW_VECTORS, 0
    starts_warm = False

    def __init__(self, source: RowSource, options: TrainOptions, own: NewtonOptions, budget: Budget) -> None:
        problem = find_problem(options.task)
        self.source, self.bias_feature, self.has_classes = source, own.intercept_scaling, problem.has_classes
        about: dict[str, Any] = {"tol": float(options.tol), "bias_feature": own.intercept_scaling}
        self.parameters = self._make_parameters(problem.make_loss(source, options), **about, seed=options.seed)
        if has_kinks(self.parameters.loss):
            self.compiled = ("newton", "newton-kinks")
        resident_rows, fits_all = self._count_rows(options, budget)
        self.parameters = replace(self.parameters, resident_rows=resident_rows, fits_all=fits_all)
        penalty = {} if options.penalty == "l2" else {"penalty": options.penalty}
        sample: dict[str, Any] = {"resident_rows": resident_rows, **({"fits_all": True} if fits_all else {})}
        self.settings = {**problem.tell_loss(source, options), **penalty, **sample, **about}
        self.sample = FirstSample(resident_rows, is_held=True)

    def _make_parameters(self, loss: SmoothLoss, **about: Any) -> Newton:
        return Newton(loss, 0, **about)

    def _count_rows(self, options: TrainOptions, budget: Budget) -> tuple[int, bool]:
        """Return the number of rows in the sample, and whether all rows are the sample of a later pass.

        The number is 0, for no sample, if memory has no room for LEAST_ROWS. If the loss has kinks, a sample may miss
        the rows that decide, so room for all rows is kept if memory allows.
        """
        n, row_bytes, need = self.source.n_rows, self._find_row_bytes(), self.memory(1)
        kinks = has_kinks(self.parameters.loss)
        small = KINK_ROWS if kinks else SMALL_BYTES // row_bytes
        wanted = max(LEAST_ROWS, self.rows_a_feature * self._count_weights(), n // SHARE, small)
        other = need.driver_bytes + 8 * need.totals_bytes + 2 * self.source.stream_bytes()
        other += 8 * self._find_tile_bytes() if kinks else 0
        copies = COPIES + (GROUP_SHARE + 8 * HELD / len(plan_groups(self.source)) if kinks else 0)
        most = budget.count_rows(n, options.resident_rows, round(copies * row_bytes), other, n if kinks else wanted)
        number = min(most, wanted) if options.resident_rows is None else most
        return number, number < n == most

    def _count_weights(self) -> int:
        """Return the number of weights that a step may change."""
        return self.source.n_features + 1

    def _find_row_bytes(self) -> int:
        vectors = self.row_vectors + (KINK_VECTORS // COPIES if has_kinks(self.parameters.loss) else 0)
        return self.source.nbytes // self.source.n_rows + 8 * vectors

    def _find_tile_bytes(self) -> int:
        """Return the bytes of a streamed tile whose rows near their kinks are sought."""
        row_bytes = max(1, self.source.nbytes // self.source.n_rows)
        return min(self.source.n_rows, TILE_BYTES // row_bytes + 1) * self._find_row_bytes()

    def _find_look_bytes(self) -> int:
        """Return the bytes of the matrix of the norm."""
        return 8 * self._count_weights() ** 2

    def start(self) -> Any:
        """Return the state at w = 0."""
        return self.parameters.start(self.source.n_rows, self.source.n_features, self.source.is_shuffled)

    def warm_start(self, before: Any, factor: float) -> Any:  # noqa: ARG002
        """Return a state that starts from the weights of an earlier state."""
        return before.restart()

    def solve(self, state: Any) -> Requests:
        """Yield the passes and steps."""
        return solve(self.parameters, state)

    def memory(self, threads: int) -> MemoryNeed:  # noqa: ARG002
        """Return the memory of the sample, and of the matrices and vectors of the driver and of the tasks.

        With the penalty |w|_1, the second part of the Hessian stays empty. If the loss has kinks, a task keeps the rows
        near their kinks, and the driver gathers them.
        """
        width, m = self.source.n_features + 1, self._count_weights()
        n_held = self.source.n_rows if self.parameters.fits_all else self.parameters.resident_rows
        sample_bytes, matrix_bytes = COPIES * n_held * self._find_row_bytes(), 8 * m**2
        tile_bytes, vectors_bytes = TILE_ROWS * (8 * TILE_VECTORS + 4 * m), 8 * self.n_vectors * width
        turn = (MATRICES - 1) * matrix_bytes + sample_bytes + vectors_bytes
        driver, shared = matrix_bytes + turn + tile_bytes + vectors_bytes, 8 * 2 * width + self._find_look_bytes()
        totals = SUMS * (matrix_bytes + 8 * BUFFER_ROWS * m) + 8 * 4 * width + tile_bytes
        if not has_kinks(self.parameters.loss) or not self.parameters.resident_rows:
            return MemoryNeed(driver, turn, totals, shared)
        n_kept, n_groups = self.parameters.resident_rows, len(plan_groups(self.source))
        totals += HELD * (n_kept // n_groups + 1) * self._find_row_bytes() + self._find_tile_bytes() + 8 * 4 * width
        gathered = GROUP_SHARE * n_kept * self._find_row_bytes()
        return MemoryNeed(driver + gathered, turn, totals, shared + matrix_bytes, gathered_bytes=gathered)


def set_up(source: RowSource, options: TrainOptions, own: NewtonOptions, budget: Budget) -> Solver:
    """Return Newton's method. If few rows are resident and the loss has kinks, cutting planes share its reads."""
    first = NewtonSolver(source, options, own, budget)
    enough = min(source.n_rows, max(ENOUGH_RESIDENT, ROWS_A_FEATURE * (source.n_features + 1)))
    is_enough = options.resident_rows is None or first.parameters.resident_rows >= enough
    if is_enough or not has_kinks(first.parameters.loss):
        return first
    others = AnyLossOptions(intercept_scaling=own.intercept_scaling)
    planes = AnyLossSolver(source, options, others, budget, may_sample=False)
    return TwoSolvers(first, planes, first.parameters.tol, alone=False)


class L1NewtonSolver(NewtonSolver):
    """Newton's method with the penalty |w|_1; a step changes few weights."""

    compiled = ("l1-newton",)
    rows_a_feature, row_vectors, n_vectors = L1_ROWS_A_FEATURE, L1_ROW_VECTORS, L1_VECTORS

    def _make_parameters(self, loss: SmoothLoss, **about: Any) -> L1Newton:
        return L1Newton(loss, 0, most_features=min(MOST_L1_FEATURES, self.source.n_features), **about)

    def _count_weights(self) -> int:
        return min(MOST_L1_FEATURES, self.source.n_features) + 1

    def _find_look_bytes(self) -> int:
        """Return the bytes of the features' positions in the Hessian (Look.places)."""
        return 8 * (self.source.n_features + 1)


def run_kernels(group: str, rows: Rows) -> None:
    """Call the compiled functions of one group.

    These sum gradient and curvature, keep the rows near their kinks, or, for |w|_1, also minimise the model.
    """
    if group == "newton":
        sum_rows(rows, np.zeros((2, 3)), Look(Logistic((1.0, 1.0)), 1.0, RowNorm(np.eye(3)), 1.0)).least.finish()
        return
    if group == "newton-kinks":
        kinked = EpsilonInsensitive(1.0, 0.1, np.zeros(2))
        near = scan_near_kinks(kinked, np.zeros(3), RowNorm(np.eye(3)), 1, rows.n_rows, 1.0)
        near.add(near.start(), rows, *near.shared)
        return
    settings, none = L1Newton(Logistic((1.0, 1.0)), 0, most_features=2), np.zeros(3)
    totals = sum_rows(rows, np.zeros((2, 3)), settings.make_look(settings.start(rows.n_rows, 2)))
    minimise_model(totals.least.finish(), totals.gradient, none)
