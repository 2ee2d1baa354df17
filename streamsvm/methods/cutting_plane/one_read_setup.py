"""The setup of `one_read`: how many rows are resident, memory, and model for the rows of a source."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.machine import default_budget_bytes, format_bytes
from streamsvm.methods.cutting_plane import one_read
from streamsvm.methods.cutting_plane.beside_setup import put_beside
from streamsvm.methods.cutting_plane.cuts import most_cuts
from streamsvm.methods.cutting_plane.one_read_state import (
    GROUP_SHARE,
    HELD,
    HELD_SHARE,
    MOST_OWN,
    ROW_VECTORS,
    OneRead,
    State,
    start_state,
    start_state_at,
)
from streamsvm.methods.cutting_plane.options import LEAST_ROWS, OTHER_BYTES, CuttingPlaneOptions
from streamsvm.methods.fit import DualWatch, FirstSample, Fit, TakeRows, report_progress
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.models.model import LinearModel
from streamsvm.options import TrainOptions, compute_class_costs, count_resident
from streamsvm.requests import MemoryNeed

SHARE = 10  # one row in so many is resident if memory allows, or as many as the law says
ROWS_A_FEATURE = 8  # with fewer resident rows a feature the sample's minimiser is too far away
LAW_SHARE = 0.13  # of (n d)^(2/3) rows: with fewer, ascent on blocks takes fewer reads
SMALL_ROWS = 3000  # so many rows are resident if memory allows: all rows of small data, for one pass
COPIES = GROUP_SHARE + 1  # of the resident rows, at the end of a pass: what it gathers, and what is chosen of it
MORE_ROWS = "{:,} rows stay in memory. With {:,}{}, the data would be read fewer times."
MORE_MEMORY = ", which takes {} more memory"
THREADS = 8  # memory is left for the totals of so many threads, since resident rows must not depend on the machine
STREAMS = 2  # memory is left for so many streams of rows, too
MEMORY_SHARE = 1.5  # of what is spare two thirds are for the resident rows, those in the totals included


def choose_settings(source: RowSource, options: TrainOptions, own: CuttingPlaneOptions) -> OneRead:
    """Return the settings with as many resident rows as are asked for, or as fit into memory."""
    settings = OneRead(
        class_costs=compute_class_costs(source, options),
        resident_rows=0,
        tol=float(options.tol),
        bias_feature=own.intercept_scaling,
        seed=options.seed,
        sets_aside=own.scratch is not None,
    )
    need = make_fit(source, settings).memory(1)
    other_bytes = need.driver_bytes + 3 * THREADS * need.totals_bytes + STREAMS * source.stream_bytes()
    count = partial(_count_rows, source, options, other_bytes)
    wanted = max(LEAST_ROWS, source.n_rows // SHARE, SMALL_ROWS, count_enough(source), round(_count_by_law(source)))
    number = count(wanted, _find_resident_bytes(source, COPIES + 1))
    if number <= HELD_SHARE * source.n_rows:  # so the first sample is not held, which leaves memory for more rows
        wanted = max(number, min(wanted, int(HELD_SHARE * source.n_rows)))
        number = count(wanted, _find_resident_bytes(source, COPIES))
    return replace(settings, resident_rows=number)


def count_enough(source: RowSource) -> int:
    """Return with how many resident rows `one_read` takes no more reads than ascent on blocks; all rows are enough.

    The rows that a single read needs grow with (n d)^(2/3) (docs/methods/one_read.md).
    """
    return min(source.n_rows, max(count_least(source), round(LAW_SHARE * _count_by_law(source))))


def count_least(source: RowSource) -> int:
    """Return with how many resident rows the sample says enough about all rows. The constant feature counts, too."""
    return ROWS_A_FEATURE * (source.n_features + 1)


def _count_by_law(source: RowSource) -> float:
    law: float = float(source.n_rows * source.n_features) ** (2 / 3)
    return law


def tell_more(source: RowSource, options: TrainOptions, resident_rows: int, kept: int) -> str:
    """Return with how many resident rows, and how much more memory, fewer reads would do; "" if as many are kept.

    resident_rows: how many one read has; kept: how many stay in memory, for one read or for ascent on blocks.
    """
    enough = count_enough(source)
    if kept >= enough:
        return ""
    more_bytes = (enough - resident_rows) * _find_resident_bytes(source, COPIES + 1)
    is_known = options.resident_rows is None and resident_rows > 0  # with no room for any rows, more may be lacking
    more = MORE_MEMORY.format(format_bytes(more_bytes)) if is_known else ""
    return MORE_ROWS.format(kept, enough, more)


def make_fit(source: RowSource, settings: OneRead, note: str = "", scratch: str | None = None) -> Fit:
    """Return the fit, with a line search beside, and with a note for users.

    scratch: the folder for rows that are set aside. The line search would read all rows, so then it waits.
    """
    width = source.n_features + 1
    told = {"acceleration": "one-read", **asdict(settings), "class_costs": list(settings.class_costs)}
    unsaid = ("seed",) if settings.sets_aside else ("seed", "sets_aside")  # runs of earlier versions have none
    fit = Fit(
        method="cutting-plane",
        settings={name: value for name, value in told.items() if name not in unsaid},
        memory=partial(_need_memory, source, settings),
        start=partial(start_state, settings, source.n_rows, source.n_features, source.is_shuffled),
        start_at=partial(start_state_at, settings, source.n_rows, source.is_shuffled),
        solve=partial(one_read.solve, settings),
        make_model=partial(_make_model, source, settings),
        report=report_progress,
        compiled=("one-read",),
        dual=DualWatch("cuts", width, most_cuts(width), n_own=MOST_OWN * settings.resident_rows),
        sample=FirstSample(settings.resident_rows, settings.holds_sample(source.n_rows)),
        note=note,
        scratch=scratch,
    )
    return put_beside(source, settings, fit, alone=settings.sets_aside)


def _make_model(source: RowSource, settings: OneRead, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG001
    return make_linear_model(source, state.best_w[:-1], state.best_w[-1] * settings.bias_feature)


def _need_memory(source: RowSource, settings: OneRead, threads: int) -> MemoryNeed:
    """Return the memory of the solver and of its resident rows."""
    n = source.n_rows
    return need_memory(source, settings, settings.resident_rows / n, COPIES + settings.holds_sample(n), threads)


def need_memory(source: RowSource, settings: OneRead, share: float, copies: int, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of passes over a source, with so many copies of the resident rows.

    share: how many rows are to be resident for each row of a group, of which the group keeps GROUP_SHARE times as many.
    """
    d, row_bytes = source.n_features, _find_row_bytes(source)
    rows_bytes, group_rows = settings.resident_rows * row_bytes, source.n_rows // len(plan_groups(source))
    return MemoryNeed(
        driver_bytes=copies * rows_bytes + settings.driver_bytes(d),
        turn_bytes=settings.turn_bytes(d),
        totals_bytes=settings.totals_bytes(d) + settings.count_held(group_rows, share) * row_bytes,
        shared_bytes=settings.shared_bytes(d),
        gathered_bytes=GROUP_SHARE * rows_bytes,
    )


def _count_rows(source: RowSource, options: TrainOptions, other_bytes: int, wanted: int, row_bytes: int) -> int:
    """Return how many rows are to be resident: 0 if fewer than LEAST_ROWS fit into the memory."""
    if options.resident_rows is not None:
        return count_resident(options.resident_rows, source.n_rows)
    spare = (options.memory_bytes or default_budget_bytes()) - OTHER_BYTES - other_bytes
    number = min(source.n_rows, wanted, max(0, spare // row_bytes))
    return number if number >= min(source.n_rows, LEAST_ROWS) else 0


def _find_row_bytes(source: RowSource) -> int:
    return source.nbytes // source.n_rows + 64


def _find_resident_bytes(source: RowSource, copies: int) -> int:
    """Return the part of the memory for a resident row: its copies, and parts of the problems and of the totals."""
    held = 3 * THREADS * HELD / len(plan_groups(source))
    row_bytes = _find_row_bytes(source)
    own = 8 * ROW_VECTORS + (copies + held) * row_bytes
    sent = GROUP_SHARE * row_bytes  # the driver of workers is sent what they gather
    return round(max(MEMORY_SHARE * own, own + sent))
