"""The setup of cutting planes with resident rows: settings, memory and model for the rows of a source."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from types import ModuleType

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.machine import default_budget_bytes, format_bytes
from streamsvm.methods.cutting_plane import beside, block_ascent_setup, guided, guided_dual, one_read
from streamsvm.methods.cutting_plane import solver as cutting_plane
from streamsvm.methods.cutting_plane.beside import State
from streamsvm.methods.cutting_plane.cuts import most_cuts
from streamsvm.methods.cutting_plane.exact_points import exact_bytes
from streamsvm.methods.cutting_plane.guided import Guided
from streamsvm.methods.cutting_plane.guided_dual import GuidedDual
from streamsvm.methods.cutting_plane.multiplier_qp import MOST_ROWS
from streamsvm.methods.cutting_plane.one_read_state import GROUP_SHARE, HELD, HELD_SHARE, MOST_OWN, ROW_VECTORS, OneRead
from streamsvm.methods.cutting_plane.options import LEAST_ROWS, OTHER_BYTES, CuttingPlaneOptions
from streamsvm.methods.cutting_plane.solver import CuttingPlane
from streamsvm.methods.fit import DualWatch, FirstSample, Fit, TakeRows, report_progress
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.models.model import LinearModel
from streamsvm.options import BUDGET_SHARE, TrainOptions, compute_class_costs, count_resident
from streamsvm.requests import MemoryNeed, Solver

WIDE = 2000  # with so many features the cuts of a sample cost more than its rows, and multipliers guide instead
SHARE = 10  # one row in so many is resident if memory allows, or as many as the law says; with multipliers, every row
MOST_FEATURES = 400  # with more features the matrices of `one_read` cost more than the reads that it saves
ROWS_A_FEATURE = 8  # with fewer resident rows a feature the sample's minimiser is too far away for `one_read`
LAW_SHARE = 0.01  # of (n d)^(2/3) rows: with fewer, guided cutting planes take fewer reads
ENOUGH_SHARE = 0.08  # of (n d)^(2/3) rows: with fewer, users are told what more memory saves, and grids make chains
SMALL_ROWS = 3000  # for `one_read` so many rows are resident if memory allows: all rows of small data, for one pass
BESIDE_CUTS = 128  # cuts of the line search beside: it is given up long before it has more, unless it is as good
COPIES = 3  # copies of the resident rows while they are read
ONE_READ_COPIES = GROUP_SHARE + 1  # what a pass gathers, and what is chosen of it; there are fewer later
TOO_FEW_ROWS = (
    "Resident rows guide the cutting planes, since there are {{:,}} of them: more memory, or more resident rows, would "
    "save reads. From {:,} on they are solved exactly."
)
TOO_MANY_FEATURES = (
    f"Resident rows guide the cutting planes: one-read is for up to {MOST_FEATURES} features, and the rows have {{:,}}."
)
MORE_ROWS = "{:,} rows stay in memory. With {:,}{}, the data would be read fewer times."
MORE_MEMORY = ", which takes {} more memory"
NO_ROWS = f"The memory has no room for {LEAST_ROWS:,} resident rows, with which fewer reads of the data are enough."
THREADS = 8  # memory is left for the totals of so many threads: resident rows must not depend on the machine's
STREAMS = 2  # and for so many streams of rows
COMPILED = {OneRead: ("one-read",), GuidedDual: ("ascent",)}  # groups beside that of the line search
ONE_READ_SHARE = 1.5  # of what is spare two thirds are for the rows of `one_read`, those in the totals included


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
        first = self.module.start_state(self.settings, source.n_rows, source.n_features, source.is_shuffled)
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
        group_rows, exact = n // len(plan_groups(source)), exact_bytes(d + 1)
        row_bytes = _find_row_bytes(source)
        rows_bytes, gathered, held = own.resident_rows * row_bytes, 0, 0
        if isinstance(own, OneRead):
            gathered, held = GROUP_SHARE * rows_bytes, own.count_held(group_rows, n) * row_bytes
        return MemoryNeed(
            driver_bytes=_count_copies(own, n) * rows_bytes + own.driver_bytes(n, d) + other.driver_bytes(d),
            turn_bytes=own.turn_bytes(d) + other.turn_bytes(d),
            totals_bytes=own.totals_bytes(group_rows, d) + other.totals_bytes(d) + 2 * exact + held,
            shared_bytes=own.shared_bytes(d) + 32 * (d + 1) + exact,
            gathered_bytes=gathered,
        )


def set_up(source: RowSource, options: TrainOptions, own: CuttingPlaneOptions) -> Fit | None:
    """Return the fit with the resident rows that are asked for or that fit into memory; None if too few fit.

    One read is made if it suits the number of features and the rows. Otherwise resident rows guide cutting planes.
    These need more memory beside the rows: if it has no room for them, one read is made with the rows that there are.
    """
    note, first = "", None
    # Of few rows with extreme scales, the line search beside a guide proves what the ascent cannot.
    suits_blocks = source.n_features > MOST_FEATURES and source.n_rows > MOST_ROWS
    if own.acceleration == "block-ascent" or (own.acceleration == "auto" and suits_blocks):
        fit = block_ascent_setup.set_up(source, options, own)
        if fit is not None or own.acceleration == "block-ascent":
            return fit
    if own.acceleration != "guided" and source.n_features <= MOST_FEATURES:
        first, needed = _choose_settings(OneRead, source, options, own), count_needed(source)
        if first.resident_rows >= needed:
            return replace(_make_fit(source, Guide(first)), note=_tell_more(source, options, first.resident_rows))
        note = TOO_FEW_ROWS.format(needed)
    elif own.acceleration == "one-read":
        note = TOO_MANY_FEATURES.format(source.n_features)
    settings = _choose_settings(GuidedDual if source.n_features >= WIDE else Guided, source, options, own)
    if settings.resident_rows:
        return replace(_make_fit(source, Guide(settings)), note=note.format(settings.resident_rows))
    if first is not None and first.resident_rows >= _count_least(source):
        return replace(_make_fit(source, Guide(first)), note=_tell_more(source, options, first.resident_rows))
    return None


def count_needed(source: RowSource) -> int:
    """Return with how many resident rows `one_read` takes fewer reads than guided cutting planes.

    The rows that are enough for one read grow with (n d)^(2/3) (docs/methods/one_read.md).
    """
    return min(source.n_rows, max(_count_least(source), round(LAW_SHARE * _count_by_law(source))))


def _count_by_law(source: RowSource) -> float:
    law: float = float(source.n_rows * source.n_features) ** (2 / 3)
    return law


def _count_least(source: RowSource) -> int:
    return ROWS_A_FEATURE * (source.n_features + 1)


def _count_enough(source: RowSource) -> int:
    return min(source.n_rows, round(ENOUGH_SHARE * _count_by_law(source)))


def _tell_more(source: RowSource, options: TrainOptions, resident_rows: int) -> str:
    """Return with how many resident rows fewer reads would be enough, and the memory; nothing if there are as many."""
    enough = _count_enough(source)
    if resident_rows >= enough:
        return ""
    more_bytes = (enough - resident_rows) * _find_one_read_bytes(source, ONE_READ_COPIES + 1)
    more = "" if options.resident_rows is not None else MORE_MEMORY.format(format_bytes(more_bytes))
    return MORE_ROWS.format(resident_rows, enough, more)


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
    other_bytes = need.driver_bytes + 3 * THREADS * need.totals_bytes + STREAMS * source.stream_bytes()
    count, wanted = partial(_count_rows, source, options, other_bytes), max(LEAST_ROWS, source.n_rows // SHARE)
    if kind is not OneRead:
        wanted = source.n_rows if kind is GuidedDual else wanted
        return replace(settings, resident_rows=count(wanted, BUDGET_SHARE * COPIES * _find_row_bytes(source)))
    wanted = max(wanted, SMALL_ROWS, count_needed(source), round(_count_by_law(source)))
    number = count(wanted, _find_one_read_bytes(source, ONE_READ_COPIES + 1))
    if number <= HELD_SHARE * source.n_rows:  # so the first sample is not held, which leaves memory for more rows
        wanted = max(number, min(wanted, int(HELD_SHARE * source.n_rows)))
        number = count(wanted, _find_one_read_bytes(source, ONE_READ_COPIES))
    return replace(settings, resident_rows=number)


def _make_fit(source: RowSource, guide: Guide) -> Fit:
    width, settings = source.n_features + 1, guide.settings
    own_cuts = most_cuts(width) if isinstance(settings, Guided) else 0
    told = {"acceleration": "guided", **asdict(settings), "class_costs": list(settings.class_costs)}
    fit = Fit(
        method="cutting-plane",
        settings={name: value for name, value in told.items() if name != "seed"},
        memory=partial(guide.need_memory, source),
        start=partial(guide.start, source),
        warm_start=partial(guide.warm_start, source),
        solve=partial(guide.solve, source.n_features),
        make_model=partial(guide.make_model, source),
        report=report_progress,
        compiled=("cutting-plane", *COMPILED.get(type(settings), ())),
        dual=DualWatch(kind="cuts", width=width, most_cuts=BESIDE_CUTS + own_cuts, n_rows=source.n_rows),
    )
    if not isinstance(settings, OneRead):
        return fit
    assert fit.dual is not None
    return replace(
        fit,
        settings={**fit.settings, "acceleration": "one-read"},
        warm_start=None,
        dual=replace(fit.dual, n_rows=0, n_own=MOST_OWN * settings.resident_rows),
        sample=FirstSample(settings.resident_rows, settings.holds_sample(source.n_rows)),
    )


def _count_rows(source: RowSource, options: TrainOptions, other_bytes: int, wanted: int, row_bytes: int) -> int:
    """Return how many rows are to be resident: 0 if fewer than LEAST_ROWS fit into the memory."""
    if options.resident_rows is not None:
        return count_resident(options.resident_rows, source.n_rows)
    spare = (options.memory_bytes or default_budget_bytes()) - OTHER_BYTES - other_bytes
    fit = max(0, spare // row_bytes)
    number = min(source.n_rows, wanted, fit)
    return number if number >= min(source.n_rows, LEAST_ROWS) else 0


def _find_row_bytes(source: RowSource) -> int:
    return source.nbytes // source.n_rows + 64


def _count_copies(settings: Guided | GuidedDual | OneRead, n_rows: int) -> int:
    return ONE_READ_COPIES + settings.holds_sample(n_rows) if isinstance(settings, OneRead) else COPIES


def _find_one_read_bytes(source: RowSource, copies: int) -> int:
    """Return the part of the memory for a resident row: its copies, and parts of the problems and of the totals."""
    held = 3 * THREADS * HELD / len(plan_groups(source))
    row_bytes = _find_row_bytes(source)
    own = 8 * ROW_VECTORS + (copies + held) * row_bytes
    sent = GROUP_SHARE * row_bytes  # the driver of workers is sent what they gather
    return round(max(ONE_READ_SHARE * own, own + sent))
