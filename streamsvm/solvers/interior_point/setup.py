"""The setup of the interior-point method for a source: settings, memory, model and compiled functions."""

from __future__ import annotations

import numpy as np

from streamsvm.certificates.double_double import add_exact, start_exact, start_exact_sums
from streamsvm.data.rows.source import RowSource
from streamsvm.models.model import LinearModel
from streamsvm.numeric.gram import BUFFER_ROWS, LIGHT_COLUMNS, LIGHT_ROWS
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions, compute_class_costs
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.solvers.interior_point import passes, solver, steps
from streamsvm.solvers.interior_point.equations import Reduction, count_bytes
from streamsvm.solvers.interior_point.state import State, start_state
from streamsvm.solvers.interior_point.steps import COSTS, N_NUMBERS, N_VECTORS, Course, Y, point_of
from streamsvm.solvers.options import InteriorPointOptions
from streamsvm.solvers.solver import Budget, DualWatch, Solver, TakeRows, describe_parameters, make_linear_model
from streamsvm.system.errors import InputError

MOST_FEATURES = 5000  # A matrix of this width takes 200 MB, and a task holds three.
PLANNED_STEPS = 200  # Memory is planned for the vectors of this many steps: four of d entries for each step.
MOST_TOLD_ROWS = 2 * passes.SAMPLE_ROWS  # the maximum number of rows whose states are sent to the driver at a time
MATRICES = 5  # d x d matrices of the driver: Gram matrices of this and the next state, M, its factor, a checkpoint


class InteriorPointSolver(Solver):
    """The primal-dual interior-point method; each row's state stays where the row is read."""

    name, compiled = "interior-point", ("interior-point",)

    def __init__(self, source: RowSource, options: TrainOptions, own: InteriorPointOptions, _: Budget) -> None:
        if source.n_features > MOST_FEATURES:
            raise InputError(
                f"{source.n_features} features: interior-point holds matrices of features x features and supports "
                f"at most {MOST_FEATURES}; use the solver cutting-plane"
            )
        reduction = Reduction(own.reduction, own.rule, own.most_rows, own.theta, own.beta)
        costs = compute_class_costs(source, options)
        self.source, self.parameters = source, solver.InteriorPoint(costs, float(options.tol), reduction, options.seed)
        self.settings = describe_parameters(self.parameters, "seed")
        self.dual = DualWatch("shares", source.n_features + 1, 0, source.n_rows)

    def start(self) -> State:
        """Return the state at w = 0."""
        return start_state(self.source.n_rows, self.source.n_features)

    def solve(self, state: State) -> Requests:
        """Yield the passes and steps."""
        return solver.solve(self.parameters, state)

    def memory(self, threads: int) -> MemoryNeed:  # noqa: ARG002
        """Return the memory of the d x d matrices, and of the row states that are sent to the driver.

        The totals of a task are a matrix with its buffer, sums of d entries, and some rows with their states. A task
        receives the vectors of all steps since the start. Between two steps the driver holds the matrices of this step
        and of the last one. If there are few rows, the equations may be solved from the rows (equations.RowEquations).
        """
        source = self.source
        n, d = source.n_rows, source.n_features
        buffered = BUFFER_ROWS + (LIGHT_ROWS + LIGHT_COLUMNS) // 2  # Light rows and their products are float32.
        critical = 2 * min(n, solver.MOST_CRITICAL_ROWS) * source.nbytes // n
        told = 8 * min(n, MOST_TOLD_ROWS) * (N_NUMBERS + 2)
        steps = 8 * 2 * N_VECTORS * PLANNED_STEPS * d
        driver = 8 * MATRICES * d**2 + 3 * told + 3 * steps + critical + count_bytes(n, d)
        return MemoryNeed(
            driver_bytes=driver,
            turn_bytes=driver - (8 * 2 * d**2 + 2 * steps),
            totals_bytes=8 * d * (d + buffered + passes.N_SUMS + passes.N_MAGNITUDES + 2) + told,
            shared_bytes=steps + 32 * d,
            state_bytes=8 * N_NUMBERS * n,
        )

    def make_model(self, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG002
        """Return the model with the best weights and bias."""
        return make_linear_model(self.source, state.best_w, state.best_bias)


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call every compiled function of the passes, and of the driver between passes."""
    ends, course = np.zeros((2, 2)), Course(0.0, 0.0, 1.0, 0.5, 1.0, 0.0, 0.5)
    numbers = steps.correct(steps.predict(steps.begin(None, rows, np.ones(2)), rows, ends), rows, ends)
    numbers = steps.arrive(steps.move_row(numbers, rows, *course), rows)
    passes.add_predicted(passes.start_predicted(2), rows, 0.0, 0.0, 1.0, 1.0, numbers)
    limits = np.full(2, np.inf)
    for most_light in (0.0, 1.0):
        totals = passes.start_assembled(2, most_light)
        passes.add_assembled(totals, rows, course, limits, "omega", (1.0, 0), True, numbers)
    add_exact(start_exact(1), rows, np.zeros((1, 2)), np.zeros(1), np.ones(2))
    passes.add_exact_multipliers(start_exact_sums(2), rows, numbers)
    Reduction().find_limits(point_of(numbers), numbers[Y], numbers[COSTS], 0.0, 1.0, 1.0, 2)
