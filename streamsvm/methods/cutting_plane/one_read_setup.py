"""The setup of cutting planes with rows near the margin in memory: settings, memory and model for a source's rows."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.methods.cutting_plane import one_read
from streamsvm.methods.cutting_plane.guided import Guided
from streamsvm.methods.cutting_plane.guided_setup import WIDE, count_rows, row_bytes
from streamsvm.methods.cutting_plane.one_read_state import State, start_state
from streamsvm.methods.cutting_plane.options import CuttingPlaneOptions
from streamsvm.methods.fit import Fit, TakeRows, report_progress
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.models.model import LinearModel
from streamsvm.options import TrainOptions, compute_class_costs
from streamsvm.requests import MemoryNeed

ROW_VECTORS = 24  # vectors of 8 bytes that problems in memory take for each of their rows
MATRICES = 8  # matrices (width, width): norms, Newton's matrix and its factor
HELD = 3  # a group that is being read may hold twice its share of the rows, and copies it


def set_up(source: RowSource, options: TrainOptions, own: CuttingPlaneOptions) -> Fit:
    """Return the fit with the resident rows that are asked for, or that fit into memory."""
    if source.n_features >= WIDE:
        raise InputError(
            f"acceleration=one-read is for fewer than {WIDE:,} features, and these rows have {source.n_features:,}; "
            "leave it out"
        )
    settings = Guided(
        class_costs=compute_class_costs(source, options),
        resident_rows=0,
        tol=float(options.tol),
        bias_feature=own.intercept_scaling,
        seed=options.seed,
    )
    need = need_memory(settings, source)
    resident_rows = count_rows(source, options, need.driver_bytes + need.totals_bytes)
    if not resident_rows:
        raise InputError("acceleration=one-read: too few rows fit into the memory; leave it out, or raise --memory")
    settings = Guided(**{**asdict(settings), "resident_rows": resident_rows})
    told = {"acceleration": "one-read", **asdict(settings), "class_costs": list(settings.class_costs)}
    return Fit(
        method="cutting-plane",
        settings=told,
        memory=lambda threads: need_memory(settings, source, threads),
        start=partial(start_state, settings, source.n_rows, source.n_features),
        solve=partial(one_read.solve, settings, source.n_rows),
        make_model=partial(_make_model, settings, source),
        report=report_progress,
        compiled=("cutting-plane",),
    )


def need_memory(settings: Guided, source: RowSource, threads: int = 1) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of cuts, of the rows that are kept (in this pass and being read), and of problems over them."""
    n, d, kept = source.n_rows, source.n_features, settings.resident_rows
    width, group_rows = d + 1, n // len(plan_groups(source))
    held = kept * (row_bytes(source) + 8 * ROW_VECTORS) + 8 * MATRICES * width**2
    of_group = HELD * (group_rows * kept // n + 1) * row_bytes(source)
    return MemoryNeed(
        driver_bytes=held + settings.driver_bytes(0, d),
        turn_bytes=settings.turn_bytes(d),
        totals_bytes=of_group + settings.totals_bytes(group_rows, d),
        shared_bytes=settings.shared_bytes(d) + 8 * width**2,
    )


def _make_model(settings: Guided, source: RowSource, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG001
    return make_linear_model(source, state.best_w[:-1], state.best_w[-1] * settings.bias_feature)
