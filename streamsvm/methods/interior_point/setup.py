"""Linear SVM by an interior-point method, as `train` drives it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.methods.interior_point import solver as interior_point
from streamsvm.methods.interior_point.constraint_reduction import BETA, REDUCTIONS, RULES, THETA, Reduction
from streamsvm.methods.interior_point.gram import BUFFER_ROWS
from streamsvm.methods.interior_point.solver import InteriorPoint
from streamsvm.methods.interior_point.state import State, start_state
from streamsvm.methods.interior_point.step_length import MOST_CRITICAL_ROWS
from streamsvm.methods.interior_point.sums import N_MAGNITUDES, N_SUMS
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.methods.method import Report, TakeRows
from streamsvm.models.model import LinearModel
from streamsvm.options import (
    TrainOptions,
    check_names,
    compute_class_costs,
    read_choice,
    read_count,
    read_positive,
)
from streamsvm.requests import Solver

OPTIONS = ("reduction", "rule", "most_rows", "theta", "beta")
MOST_FEATURES = 5000  # 200 MB a matrix, of which a task holds three
ROW_VECTORS = 32  # of 8 bytes a row in the driver at once
HELD_VECTORS = 18  # of them, the state and the next one
MATRICES = 5  # of d x d in the driver: the state's, the next one, M, its factor, a checkpoint


@dataclass(frozen=True)
class InteriorPoints:
    """See Algorithm; interior_point.solver."""

    settings: InteriorPoint
    name: ClassVar[str] = "interior-point"

    def describe(self) -> dict[str, Any]:
        """See Algorithm."""
        settings = asdict(self.settings)
        settings["class_costs"] = list(self.settings.class_costs)
        return {name: value for name, value in settings.items() if name != "seed"}

    def driver_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        critical = 2 * min(source.n_rows, MOST_CRITICAL_ROWS) * source.nbytes // source.n_rows
        return 8 * ROW_VECTORS * source.n_rows + 8 * MATRICES * source.n_features**2 + critical

    def turn_bytes(self, source: RowSource) -> int:
        """See Algorithm: but for two matrices, of this step and the last, and as many vectors."""
        held = 8 * HELD_VECTORS * source.n_rows + 8 * 2 * source.n_features**2
        return self.driver_bytes(source) - held

    def totals_bytes(self, source: RowSource) -> int:
        """See Algorithm: a matrix and its buffer, sums, and what comes back of each row."""
        d = source.n_features
        return 8 * d * (d + BUFFER_ROWS + N_SUMS + N_MAGNITUDES + 2) + 56 * source.n_rows // len(plan_groups(source))

    def shared_bytes(self, source: RowSource) -> int:
        """See Algorithm: vectors of d; and the rows' own, of which each task is sent its part."""
        return 32 * source.n_features + 8 * 8 * source.n_rows // len(plan_groups(source))

    def walk_bytes(self, source: RowSource, threads: int) -> int:  # noqa: ARG002
        """See Algorithm: there are none."""
        return 0

    def start_state(self, source: RowSource) -> State:
        """See Algorithm."""
        return start_state(source.n_rows, source.n_features)

    def warm_state(self, source: RowSource, before: State, factor: float) -> State:  # noqa: ARG002
        """See Algorithm."""
        return self.start_state(source)

    def solve(self, source: RowSource, state: State) -> Solver:  # noqa: ARG002
        """See Algorithm."""
        return interior_point.solve(self.settings, state)

    def make_model(self, source: RowSource, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG002
        """See Algorithm."""
        return make_linear_model(source, state.best_w, state.best_bias)

    def report(self, state: State) -> Report:
        """See Algorithm."""
        return Report(**vars(state.progress))


def make_interior_points(source: RowSource, options: TrainOptions) -> InteriorPoints:
    """Options: reduction=adaptive-balanced|adaptive|fixed|none, rule=omega|distance, most_rows, theta, beta."""
    check_names(options, OPTIONS)
    if options.kernel != "linear":
        raise InputError(
            f"kernel {options.kernel}: interior-point is for the linear one; map the rows with "
            "`streamsvm features`, or use the solver smo"
        )
    if options.resident_rows is not None:
        raise InputError("resident rows are not for interior-point, which holds none; leave them out")
    if source.n_features > MOST_FEATURES:
        raise InputError(
            f"{source.n_features} features: interior-point holds matrices of features x features and takes "
            f"{MOST_FEATURES} at most; use the solver cutting-plane"
        )
    given = options.options
    reduction = Reduction(
        name=read_choice(given, "reduction", REDUCTIONS),
        rule=read_choice(given, "rule", RULES),
        most_rows=read_count(given, "most_rows", 1),
        theta=read_positive(given, "theta") or THETA,
        beta=read_positive(given, "beta") or BETA,
    )
    costs = compute_class_costs(source, options)
    return InteriorPoints(InteriorPoint(costs, float(options.tol), reduction, options.seed))
