"""Linear SVM by cutting planes, as `train` drives it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.methods.cutting_plane import solver as cutting_plane
from streamsvm.methods.cutting_plane.exact_points import exact_bytes
from streamsvm.methods.cutting_plane.guided_setup import GuidedPlanes, make_guided
from streamsvm.methods.cutting_plane.solver import CUTS_A_PASS, CuttingPlane
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

ACCELERATIONS = ("guided", "line-search", "none")


@dataclass(frozen=True)
class CuttingPlanes:
    """See Algorithm; cutting_plane.solver."""

    settings: CuttingPlane
    name: ClassVar[str] = "cutting-plane"

    def describe(self) -> dict[str, Any]:
        """See Algorithm."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self.settings).items()}

    def driver_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return self.settings.driver_bytes(source.n_features)

    def turn_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return self.settings.turn_bytes(source.n_features)

    def totals_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return self.settings.totals_bytes(source.n_features) + 2 * exact_bytes(source.n_features + 1)

    def shared_bytes(self, source: RowSource) -> int:
        """See Algorithm; once more where the passes of several are one."""
        return 32 * (source.n_features + 1) + exact_bytes(source.n_features + 1)

    def walk_bytes(self, source: RowSource, threads: int) -> int:  # noqa: ARG002
        """See Algorithm: there are none."""
        return 0

    def start_state(self, source: RowSource) -> cutting_plane.State:
        """See Algorithm."""
        return cutting_plane.start_state(source.n_features)

    def warm_state(
        self, source: RowSource, before: cutting_plane.State, factor: float,  # noqa: ARG002
    ) -> cutting_plane.State:  # fmt: skip
        """See Algorithm."""
        return cutting_plane.warm_state(self.settings, before, factor)

    def solve(self, source: RowSource, state: cutting_plane.State) -> Solver:
        """See Algorithm."""
        return cutting_plane.solve(self.settings, source.n_features, state)

    def make_model(self, source: RowSource, state: cutting_plane.State, take: TakeRows) -> LinearModel:  # noqa: ARG002
        """See Algorithm."""
        return make_linear_model(source, state.best_w[:-1], state.best_w[-1] * self.settings.bias_feature)

    def report(self, state: cutting_plane.State) -> Report:
        """See Algorithm."""
        return Report(**vars(state.progress))


def make_cutting_planes(source: RowSource, options: TrainOptions) -> CuttingPlanes | GuidedPlanes:
    """Options: acceleration=guided|line-search|none, epsilon, intercept_scaling, max_cuts.

    Unless something is said: guided; line-search where the memory is too little for rows, or with epsilon or max_cuts.
    """
    check_names(options, ("acceleration", "epsilon", "intercept_scaling", "max_cuts"))
    if options.kernel != "linear":
        raise InputError(
            f"kernel {options.kernel}: cutting planes are for the linear one; map the rows with `streamsvm "
            "features`, or use the solver smo"
        )
    given = options.options
    acceleration = read_choice(given, "acceleration", ACCELERATIONS)
    if "acceleration" not in given and {"epsilon", "max_cuts"} & set(given):
        acceleration = "line-search"
    if acceleration == "guided":
        check_names(options, ("acceleration", "intercept_scaling"))
        algorithm = make_guided(source, options)
        if algorithm.settings.resident_rows:
            return algorithm
        acceleration = "line-search"
    if options.resident_rows is not None:
        raise InputError(f"resident rows are not for acceleration={acceleration}; leave them out, or use guided")
    settings = CuttingPlane(
        accelerated=acceleration == "line-search",
        class_costs=compute_class_costs(source, options),
        tol=float(options.tol),
        epsilon=read_positive(given, "epsilon"),
        bias_feature=read_positive(given, "intercept_scaling") or 1.0,
        max_cuts=read_count(given, "max_cuts", CUTS_A_PASS),
    )
    return CuttingPlanes(settings)
