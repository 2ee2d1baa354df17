"""Linear SVM by cutting planes that resident rows guide, as `train` drives it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.machine import default_budget_bytes
from streamsvm.methods.cutting_plane import beside, guided, guided_dual
from streamsvm.methods.cutting_plane import solver as cutting_plane
from streamsvm.methods.cutting_plane.beside import State
from streamsvm.methods.cutting_plane.exact_points import exact_bytes
from streamsvm.methods.cutting_plane.guided import Guided
from streamsvm.methods.cutting_plane.guided_dual import GuidedDual
from streamsvm.methods.cutting_plane.solver import CuttingPlane
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.methods.method import Report, TakeRows
from streamsvm.models.model import LinearModel
from streamsvm.options import BUDGET_SHARE, TrainOptions, compute_class_costs, count_resident, read_positive
from streamsvm.requests import Solver

WIDE = 2000  # from so many features on cuts of a sample take longer than its rows: multipliers guide
SHARE = 10  # one row in so many is resident; all, where multipliers guide; if they fit
LEAST_ROWS = 1000
BESIDE_CUTS = 128  # of the line search beside: it is left out long before it has more, unless it is as good
COPIES = 3  # of the resident rows, while they are taken
THREADS = 8  # for whose totals memory is left, however many there are: resident rows must not depend on it
OTHER_BYTES = 320 << 20  # interpreter, libraries, streaming


@dataclass(frozen=True)
class GuidedPlanes:
    """See Algorithm. `beside` runs `guided` or `guided_dual` next to the line search of `solver`."""

    settings: Guided | GuidedDual
    name: ClassVar[str] = "cutting-plane"

    @property
    def _guide(self) -> Any:
        return guided_dual if isinstance(self.settings, GuidedDual) else guided

    @property
    def line_search(self) -> CuttingPlane:
        """The solver beside."""
        own = self.settings
        return CuttingPlane(own.class_costs, own.tol, bias_feature=own.bias_feature, max_cuts=BESIDE_CUTS)

    def describe(self) -> dict[str, Any]:
        """See Algorithm."""
        settings = asdict(self.settings)
        settings["class_costs"] = list(self.settings.class_costs)
        return {"acceleration": "guided"} | {name: value for name, value in settings.items() if name != "seed"}

    def driver_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        rows_bytes = self.settings.resident_rows * _row_bytes(source)
        own_bytes = self.settings.driver_bytes(source.n_rows, source.n_features)
        return rows_bytes + own_bytes + self.line_search.driver_bytes(source.n_features)

    def turn_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return self.settings.turn_bytes(source.n_features) + self.line_search.turn_bytes(source.n_features)

    def totals_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        own = self.settings.totals_bytes(source.n_rows // len(plan_groups(source)), source.n_features)
        return own + self.line_search.totals_bytes(source.n_features) + 2 * exact_bytes(source.n_features + 1)

    def shared_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        width = source.n_features + 1
        return self.settings.shared_bytes(source.n_features) + 32 * width + exact_bytes(width)

    def walk_bytes(self, source: RowSource, threads: int) -> int:  # noqa: ARG002
        """See Algorithm: there are none."""
        return 0

    def start_state(self, source: RowSource) -> State:
        """See Algorithm."""
        first = self._guide.start_state(self.settings, source.n_rows, source.n_features)
        return State([first, cutting_plane.start_state(source.n_features)], first.best_w)

    def warm_state(self, source: RowSource, before: State, factor: float) -> State:
        """See Algorithm."""
        first = self._guide.warm_state(self.settings, before.states[0], factor)
        other = cutting_plane.start_state(source.n_features)
        if not before.alone:
            other = cutting_plane.warm_state(self.line_search, before.states[1], factor)
        return State(
            [first, other], first.best_w, first.objective, first.lower_bound, first.objective_rounding,
            first.bound_rounding,
        )  # fmt: skip

    def solve(self, source: RowSource, state: State) -> Solver:
        """See Algorithm."""
        guide = partial(self._guide.solve, self.settings)
        line_search = partial(cutting_plane.solve, self.line_search, source.n_features)
        return beside.solve((guide, line_search), self.settings.tol, state)

    def make_model(self, source: RowSource, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG002
        """See Algorithm."""
        return make_linear_model(source, state.best_w[:-1], state.best_w[-1] * self.settings.bias_feature)

    def report(self, state: State) -> Report:
        """See Algorithm."""
        return Report(**vars(state.progress))


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
    alone = GuidedPlanes(settings)
    other_bytes = alone.driver_bytes(source) + 3 * THREADS * alone.totals_bytes(source)
    return GuidedPlanes(replace(settings, resident_rows=_count_rows(source, options, other_bytes)))


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
    return COPIES * (source.nbytes // source.n_rows + 64)
