"""The setup of cutting planes with resident rows: settings, memory and model for the rows of a source."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from types import ModuleType

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.machine import default_budget_bytes
from streamsvm.methods.cutting_plane import beside, guided, guided_dual, one_read
from streamsvm.methods.cutting_plane import solver as cutting_plane
from streamsvm.methods.cutting_plane.beside import State
from streamsvm.methods.cutting_plane.cuts import most_cuts
from streamsvm.methods.cutting_plane.exact_points import exact_bytes
from streamsvm.methods.cutting_plane.guided import Guided
from streamsvm.methods.cutting_plane.guided_dual import GuidedDual
from streamsvm.methods.cutting_plane.one_read_state import ROW_VECTORS, OneRead
from streamsvm.methods.cutting_plane.options import OTHER_BYTES, CuttingPlaneOptions
from streamsvm.methods.cutting_plane.solver import CuttingPlane
from streamsvm.methods.fit import DualWatch, Fit, TakeRows, report_progress
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.models.model import LinearModel
from streamsvm.options import BUDGET_SHARE, TrainOptions, compute_class_costs, count_resident
from streamsvm.requests import MemoryNeed, Solver

WIDE = 2000  # with so many features the cuts of a sample cost more than its rows, and multipliers guide instead
SHARE = 10  # one row in so many is resident if memory allows; where multipliers guide, every row is
MOST_FEATURES = 400  # with more features the matrices of `one_read` cost more than the reads that it saves
ROWS_A_FEATURE = 8  # with fewer resident rows a feature the sample's minimiser is too far away for `one_read`
LEAST_ROWS = 1000  # fewer resident rows are not worth it, and the line search runs alone
BESIDE_CUTS = 128  # cuts of the line search beside: it is given up long before it has more, unless it is as good
COPIES = 3  # copies of the resident rows while they are read
THREADS = 8  # memory is left for the totals of so many threads: resident rows must not depend on the machine's


@dataclass(frozen=True)
class Guide:
    """The solver that the settings belong to, beside the line search of `cutting_plane.solver`."""

    settings: Guided | GuidedDual | OneRead

    @property
    def module(self) -> ModuleType:
        """The module of the solver with resident rows."""
        return {Guided: guided, GuidedDual: guided_dual, OneRead: one_read}[type(self.settings)]

    @property
    def line_search(self) -> CuttingPlane:
        """The settings of the line search beside the guided solver."""
        own = self.settings
        return CuttingPlane(own.class_costs, own.tol, bias_feature=own.bias_feature, max_cuts=BESIDE_CUTS)

    def start(self, source: RowSource) -> State:
        """Return the state of both solvers before the first pass."""
        first = self.module.start_state(self.settings, source.n_rows, source.n_features)
        return State([first, cutting_plane.start_state(source.n_features)], first.best_w)

    def warm_start(self, source: RowSource, before: State, factor: float) -> State:
        """Return the state to start from, given the last state of the problem with costs `factor` times smaller."""
        first = self.module.warm_state(self.settings, before.states[0], factor)
        other = cutting_plane.start_state(source.n_features)
        if not before.alone:
            other = cutting_plane.warm_state(self.line_search, before.states[1], factor)
        return State(
            states=[first, other],
            best_w=first.best_w,
            objective=first.objective,
            lower_bound=first.lower_bound,
            objective_rounding=first.objective_rounding,
            bound_rounding=first.bound_rounding,
        )

    def solve(self, n_features: int, state: State) -> Solver:
        """Run both solvers from a state."""
        guide = partial(self.module.solve, self.settings)
        line_search = partial(cutting_plane.solve, self.line_search, n_features)
        return beside.solve((guide, line_search), self.settings.tol, state)

    def make_model(self, source: RowSource, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG002
        """Return the model of the best point so far."""
        return make_linear_model(source, state.best_w[:-1], state.best_w[-1] * self.settings.bias_feature)

    def need_memory(self, source: RowSource, threads: int = 1) -> MemoryNeed:  # noqa: ARG002
        """Return the memory of the guided solver, of its resident rows, and of the line search beside it."""
        n, d, own, other = source.n_rows, source.n_features, self.settings, self.line_search
        rows_bytes = own.resident_rows * _row_bytes(source)
        group_rows, exact = n // len(plan_groups(source)), exact_bytes(d + 1)
        held = own.count_held(group_rows, n) * (source.nbytes // n + 64) if isinstance(own, OneRead) else 0
        return MemoryNeed(
            driver_bytes=rows_bytes + own.driver_bytes(n, d) + other.driver_bytes(d),
            turn_bytes=own.turn_bytes(d) + other.turn_bytes(d),
            totals_bytes=own.totals_bytes(group_rows, d) + other.totals_bytes(d) + 2 * exact + held,
            shared_bytes=own.shared_bytes(d) + 32 * (d + 1) + exact,
        )


def set_up(source: RowSource, options: TrainOptions, own: CuttingPlaneOptions, acceleration: str) -> Fit | None:
    """Return the fit with the resident rows that are asked for or that fit into memory; None if too few fit.

    acceleration: "guided", or "one-read", which is for up to MOST_FEATURES features and enough resident rows for them.
    """
    kind: type[Guided | GuidedDual | OneRead] = GuidedDual if source.n_features >= WIDE else Guided
    if acceleration == "one-read" and source.n_features <= MOST_FEATURES:
        settings = _choose_settings(OneRead, source, options, own)
        if is_enough(settings.resident_rows, source):
            return _make_fit(source, Guide(settings))
    settings = _choose_settings(kind, source, options, own)
    return _make_fit(source, Guide(settings)) if settings.resident_rows else None


def is_enough(resident_rows: int, source: RowSource) -> bool:
    """Return whether so many rows tell enough of the problem for `one_read`: ROWS_A_FEATURE a feature, or all rows."""
    return resident_rows >= min(source.n_rows, ROWS_A_FEATURE * (source.n_features + 1))


def _choose_settings(
    kind: type[Guided | GuidedDual | OneRead], source: RowSource, options: TrainOptions, own: CuttingPlaneOptions
) -> Guided | GuidedDual | OneRead:
    """Return the settings with as many resident rows as are asked for, or as fit into memory."""
    settings = kind(
        class_costs=compute_class_costs(source, options),
        resident_rows=0,
        tol=float(options.tol),
        bias_feature=own.intercept_scaling,
        seed=options.seed,
    )
    need = Guide(settings).need_memory(source)
    other_bytes = need.driver_bytes + 3 * THREADS * need.totals_bytes
    row_bytes = _row_bytes(source) + (8 * ROW_VECTORS if kind is OneRead else 0)
    return replace(settings, resident_rows=_count_rows(source, options, row_bytes, other_bytes))


def _make_fit(source: RowSource, guide: Guide) -> Fit:
    width = source.n_features + 1
    own_cuts = most_cuts(width) if isinstance(guide.settings, Guided) else 0
    is_one_read = isinstance(guide.settings, OneRead)
    told = {
        "acceleration": "one-read" if is_one_read else "guided",
        **asdict(guide.settings),
        "class_costs": list(guide.settings.class_costs),
    }
    return Fit(
        method="cutting-plane",
        settings={name: value for name, value in told.items() if name != "seed"},
        memory=partial(guide.need_memory, source),
        start=partial(guide.start, source),
        warm_start=partial(guide.warm_start, source),
        solve=partial(guide.solve, source.n_features),
        make_model=partial(guide.make_model, source),
        report=report_progress,
        compiled=("cutting-plane", "one-read") if is_one_read else ("cutting-plane",),
        dual=None if is_one_read else DualWatch("cuts", width, BESIDE_CUTS + own_cuts, source.n_rows),
    )


def _count_rows(source: RowSource, options: TrainOptions, row_bytes: int, other_bytes: int) -> int:
    """Return how many rows are to be resident: 0 if fewer than LEAST_ROWS fit into the memory."""
    if options.resident_rows is not None:
        return count_resident(options.resident_rows, source.n_rows)
    spare = (options.memory_bytes or default_budget_bytes()) - OTHER_BYTES - other_bytes
    fit = max(0, spare // BUDGET_SHARE // row_bytes)
    wanted = source.n_rows if source.n_features >= WIDE else max(LEAST_ROWS, source.n_rows // SHARE)
    number = min(source.n_rows, wanted, fit)
    return number if number >= min(source.n_rows, LEAST_ROWS) else 0


def _row_bytes(source: RowSource) -> int:
    return COPIES * (source.nbytes // source.n_rows + 64)
