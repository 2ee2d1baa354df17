"""Linear SVM by cutting planes that resident rows guide, as `train` drives it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from streamsvm.algorithms.decompositions import BUDGET_SHARE, OTHER_BYTES
from streamsvm.algorithms.protocol import Report, TakeRows
from streamsvm.data.source import RowSource
from streamsvm.engines.group import plan_groups
from streamsvm.machine import default_budget_bytes
from streamsvm.models import LinearModel
from streamsvm.options import TrainOptions, compute_class_costs, count_resident, read_positive
from streamsvm.solvers import guided, guided_dual
from streamsvm.solvers.guided import Guided
from streamsvm.solvers.guided_dual import GuidedDual
from streamsvm.solvers.protocol import Solver

State = guided.State | guided_dual.State

WIDE = 2000  # from so many features on cuts of a sample take longer than its rows: multipliers guide
SHARE = 10  # one row in so many is resident; all, where multipliers guide; if they fit
LEAST_ROWS = 1000
COPIES = 3  # of the resident rows, while they are taken


@dataclass(frozen=True)
class GuidedPlanes:
    """See Algorithm; solvers.guided, solvers.guided_dual."""

    settings: Guided | GuidedDual
    name: ClassVar[str] = "cutting-plane"

    def describe(self) -> dict[str, Any]:
        """See Algorithm."""
        settings = asdict(self.settings)
        settings["class_costs"] = list(self.settings.class_costs)
        return {"acceleration": "guided"} | {name: value for name, value in settings.items() if name != "seed"}

    def driver_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        rows_bytes = self.settings.resident_rows * _row_bytes(source)
        return self.settings.driver_bytes(source.n_rows, source.n_features) + rows_bytes

    def turn_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return self.settings.turn_bytes(source.n_features)

    def totals_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return self.settings.totals_bytes(source.n_rows // len(plan_groups(source)), source.n_features)

    def shared_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return self.settings.shared_bytes(source.n_features)

    def fold_bytes(self, source: RowSource, threads: int) -> int:  # noqa: ARG002
        """See Algorithm: there are none."""
        return 0

    def start_state(self, source: RowSource) -> State:
        """See Algorithm."""
        if isinstance(self.settings, GuidedDual):
            return guided_dual.start_state(self.settings, source.n_rows, source.n_features)
        return guided.start_state(self.settings, source.n_rows, source.n_features)

    def warm_state(self, source: RowSource, before: Any, factor: float) -> State:  # noqa: ARG002
        """See Algorithm."""
        if isinstance(self.settings, GuidedDual):
            return guided_dual.warm_state(self.settings, before, factor)
        return guided.warm_state(self.settings, before, factor)

    def solve(self, source: RowSource, state: Any) -> Solver:  # noqa: ARG002
        """See Algorithm."""
        if isinstance(self.settings, GuidedDual):
            return guided_dual.solve(self.settings, state)
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
    """Return the solver, with as many resident rows as are asked for, or as suit the memory: maybe none."""
    kind = GuidedDual if source.n_features >= WIDE else Guided
    settings = kind(
        class_costs=compute_class_costs(source, options),
        resident_rows=0,
        tol=float(options.tol),
        bias_feature=read_positive(options.options, "intercept_scaling") or 1.0,
        seed=options.seed,
    )
    number = _count_rows(source, options, settings.driver_bytes(source.n_rows, source.n_features))
    return GuidedPlanes(replace(settings, resident_rows=number))


def _count_rows(source: RowSource, options: TrainOptions, other_bytes: int) -> int:
    """Return how many rows are to be resident: 0 if the memory is too little for the least."""
    if options.resident_rows is not None:
        return count_resident(options.resident_rows, source.n_rows)
    spare = (options.memory_bytes or default_budget_bytes()) - OTHER_BYTES - other_bytes
    fit = max(0, spare // BUDGET_SHARE // _row_bytes(source))
    wanted = source.n_rows if source.n_features >= WIDE else max(LEAST_ROWS, source.n_rows // SHARE)
    number = min(source.n_rows, wanted, fit)
    return number if number >= min(source.n_rows, LEAST_ROWS) else 0


def _row_bytes(source: RowSource) -> int:
    return COPIES * (source.nbytes // source.n_rows + 32)
