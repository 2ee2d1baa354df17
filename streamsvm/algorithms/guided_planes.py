"""Linear SVM by cutting planes that resident rows guide, as `train` drives it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from streamsvm.algorithms.protocol import Report, TakeRows
from streamsvm.data.source import RowSource
from streamsvm.engines.group import plan_groups
from streamsvm.models import LinearModel
from streamsvm.options import TrainOptions, compute_class_costs, count_resident, read_positive
from streamsvm.solvers import guided
from streamsvm.solvers.guided import Guided, State
from streamsvm.solvers.protocol import Solver

RESIDENT = "10%"
COPIES = 3  # of the resident rows, while they are taken


@dataclass(frozen=True)
class GuidedPlanes:
    """See Algorithm; solvers.guided."""

    settings: Guided
    name: ClassVar[str] = "cutting-plane"

    def describe(self) -> dict[str, Any]:
        """See Algorithm."""
        settings = asdict(self.settings)
        settings["class_costs"] = list(self.settings.class_costs)
        return {"acceleration": "guided"} | {name: value for name, value in settings.items() if name != "seed"}

    def driver_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        rows_bytes = COPIES * self.settings.resident_rows * (source.nbytes // source.n_rows + 32)
        return self.settings.driver_bytes(source.n_rows, source.n_features) + rows_bytes

    def turn_bytes(self, source: RowSource) -> int:  # noqa: ARG002
        """See Algorithm: none is counted."""
        return 0

    def totals_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return self.settings.totals_bytes(source.n_rows // len(plan_groups(source)), source.n_features)

    def shared_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return 8 * 2 * (guided.POINTS + 7) * (source.n_features + 1)  # twice: what several share is stacked

    def fold_bytes(self, source: RowSource, threads: int) -> int:  # noqa: ARG002
        """See Algorithm: there are none."""
        return 0

    def start_state(self, source: RowSource) -> State:
        """See Algorithm."""
        return guided.start_state(self.settings, source.n_rows, source.n_features)

    def warm_state(self, source: RowSource, before: State, factor: float) -> State:  # noqa: ARG002
        """See Algorithm."""
        return self.start_state(source)

    def solve(self, source: RowSource, state: State) -> Solver:  # noqa: ARG002
        """See Algorithm."""
        return guided.solve(self.settings, state)

    def make_model(self, source: RowSource, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG002
        """See Algorithm."""
        return LinearModel(
            coef=state.best_w[:-1],
            intercept=float(state.best_w[-1] * self.settings.bias_feature),
            classes=np.asarray(source.classes),
            scaling=source.scaling,
            feature_names=source.feature_names,
        )

    def report(self, state: State) -> Report:
        """See Algorithm."""
        return Report(state.objective, state.lower_bound, state.passes)


def make_guided(source: RowSource, options: TrainOptions) -> GuidedPlanes:
    """Resident rows: a tenth, unless something else is asked for."""
    settings = Guided(
        class_costs=compute_class_costs(source, options),
        resident_rows=count_resident(options.resident_rows or RESIDENT, source.n_rows),
        tol=float(options.tol),
        bias_feature=read_positive(options.options, "intercept_scaling") or 1.0,
        seed=options.seed,
    )
    return GuidedPlanes(settings)
