"""The setup of Crammer-Singer: settings, memory and model for the rows of a source."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.machine import default_budget_bytes
from streamsvm.methods.crammer_singer import block_ascent, line_search
from streamsvm.methods.crammer_singer.ascent import make_part
from streamsvm.methods.crammer_singer.block_ascent import ClassAscent
from streamsvm.methods.crammer_singer.exact_points import add_sizes
from streamsvm.methods.crammer_singer.line_search import LineSearch
from streamsvm.methods.crammer_singer.lines import add_line, start_line, totals_bytes
from streamsvm.methods.crammer_singer.options import CrammerSingerOptions
from streamsvm.methods.cutting_plane.beside_setup import choose_most_cuts, join
from streamsvm.methods.cutting_plane.block_ascent import count_terms
from streamsvm.methods.cutting_plane.exact_points import exact_bytes, start_magnitudes
from streamsvm.methods.cutting_plane.master_qp import solve_master
from streamsvm.methods.cutting_plane.multiplier_qp import MOST_ROWS
from streamsvm.methods.cutting_plane.options import LEAST_ROWS, OTHER_BYTES
from streamsvm.methods.cutting_plane.rows_in_memory import MOST_BESIDE
from streamsvm.methods.fit import Fit, TakeRows, report_progress
from streamsvm.models.model import LinearModel
from streamsvm.numeric.exact_class_losses import add_exact_classes
from streamsvm.numeric.exact_losses import start_exact
from streamsvm.numeric.rows import F64, Rows
from streamsvm.options import BUDGET_SHARE, TrainOptions, count_resident
from streamsvm.problems.joint_classification import tell_loss
from streamsvm.requests import MemoryNeed

COPIES = 4  # of the kept rows while others are chosen, and of a block while the next one is read and put together
ROW_VECTORS = 10  # vectors of 8 bytes for each row in memory: labels, costs, distances, orders
CLASS_VECTORS = 4  # vectors of K entries for each row in memory: shares, scores
SHARES = 6  # vectors of K entries for each row of the source: shares of two states, of a checkpoint, and of the walk
VECTORS = 24  # vectors of the width of W


def set_up(source: RowSource, options: TrainOptions, own: CrammerSingerOptions) -> Fit:
    """Return the fit of all classes, with resident rows if enough of them fit into memory."""
    told = tell_loss(source, options)
    search = LineSearch(tuple(told["class_costs"]), float(options.tol), own.intercept_scaling, own.max_cuts)
    wants_rows = own.acceleration == "block-ascent" or (own.acceleration == "auto" and own.max_cuts is None)
    note = ""
    if wants_rows:
        settings = _count_rows(source, options, search)
        if settings is not None:
            return _make_ascent(source, settings, search)
        note = "Crammer-Singer: the shares of all rows do not fit into the memory, so training is by a line search, "
        note += "which takes more reads; a larger --memory would save them."
    elif options.resident_rows is not None:
        raise InputError("resident rows are not for acceleration=line-search or max_cuts; leave them out, or use auto")
    return _make_line_search(source, search, note)


def _count_rows(source: RowSource, options: TrainOptions, search: LineSearch) -> ClassAscent | None:
    """Return the settings of the ascent with as many resident rows as asked for or as fit; None if too few fit."""
    whole = ClassAscent(
        class_costs=search.class_costs,
        resident_rows=source.n_rows,
        chunk_starts=tuple(int(start) for start in source.chunk_starts),
        tol=search.tol,
        bias_feature=search.bias_feature,
        seed=options.seed,
    )
    if source.n_rows <= MOST_ROWS:
        return whole
    if options.resident_rows is not None:
        return replace(whole, resident_rows=count_resident(options.resident_rows, source.n_rows))
    budget = options.memory_bytes or default_budget_bytes()
    if OTHER_BYTES + BUDGET_SHARE * _held_bytes(source, whole, search) + source.stream_bytes() <= budget:
        return whole
    spare = budget - OTHER_BYTES - source.stream_bytes()
    spare -= _held_bytes(source, replace(whole, resident_rows=1), search)
    number = max(0, spare // (BUDGET_SHARE * COPIES * _find_row_bytes(source, whole)))
    return replace(whole, resident_rows=number) if number >= min(source.n_rows, LEAST_ROWS) else None


def _held_bytes(source: RowSource, settings: ClassAscent, search: LineSearch) -> int:
    need = _make_ascent(source, settings, search).memory(1)
    return need.driver_bytes + need.walk_bytes


def _find_row_bytes(source: RowSource, settings: ClassAscent) -> int:
    return source.nbytes // source.n_rows + 8 * (ROW_VECTORS + CLASS_VECTORS * settings.n_classes)


def _make_ascent(source: RowSource, settings: ClassAscent, search: LineSearch) -> Fit:
    """Return the fit by ascent on blocks. Where extreme scales make it slow, a line search beside it goes on."""
    width = search.find_width(source.n_features)
    fit = _make_fit(
        source,
        search,
        {"acceleration": "block-ascent", "rows": "resident" if settings.keeps_all else settings.resident_rows},
        memory=partial(_need_memory, source, settings, width),
        start=partial(block_ascent.start_state, settings, source.n_features),
        warm_start=partial(block_ascent.warm_state, settings),
        solve=partial(block_ascent.solve, settings),
    )
    if width > MOST_BESIDE:
        return fit
    alone = source.n_rows > MOST_ROWS
    beside = _make_line_search(source, replace(search, max_cuts=choose_most_cuts(width, alone)))
    return join(fit, beside, settings.tol, alone, count_terms(settings))


def _need_memory(source: RowSource, settings: ClassAscent, width: int, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of the shares of all rows, of the rows that are kept, and of a block in a walk."""
    n, row_bytes = source.n_rows, _find_row_bytes(source, settings)
    shares_bytes, kept_bytes = 8 * settings.n_classes * n, settings.kept_rows * row_bytes
    sums_bytes = totals_bytes(len(block_ascent.STEPS), 0, width) + 8 * width + 2 * exact_bytes(width)
    walk_bytes = 0
    if not settings.keeps_all:
        block = max(map(settings.count_rows, settings.list_blocks()))
        walk_bytes = (COPIES - 1) * kept_bytes + COPIES * block * row_bytes + 2 * sums_bytes + n
    return MemoryNeed(
        driver_bytes=SHARES * shares_bytes + kept_bytes * (2 if settings.keeps_all else 1) + 8 * VECTORS * width,
        turn_bytes=8 * VECTORS * width // 2,
        totals_bytes=sums_bytes if settings.keeps_all else 0,
        shared_bytes=8 * 4 * width + exact_bytes(width) + (0 if settings.keeps_all else 2 * shares_bytes + kept_bytes),
        walk_bytes=walk_bytes,
    )


def _make_line_search(source: RowSource, settings: LineSearch, note: str = "") -> Fit:
    width = settings.find_width(source.n_features)
    sums_bytes = totals_bytes(len(line_search.AROUND) + 1, len(line_search.CUTS_AT) + 1, width) + 2 * exact_bytes(width)
    fit = _make_fit(
        source,
        settings,
        {"acceleration": "line-search", "max_cuts": settings.max_cuts},
        memory=lambda _: MemoryNeed(
            driver_bytes=settings.driver_bytes(width),
            turn_bytes=settings.turn_bytes(width),
            totals_bytes=sums_bytes,
            shared_bytes=16 * width + exact_bytes(width),
        ),
        start=partial(line_search.start_state, settings, source.n_features),
        warm_start=partial(line_search.warm_state, settings),
        solve=partial(line_search.solve, settings),
    )
    return replace(fit, note=note)


def _make_fit(source: RowSource, search: LineSearch, told: dict[str, Any], **parts: Any) -> Fit:
    """Return the fit of these functions; told: what its settings say beside the problem."""
    about = {"task": "crammer-singer", "loss": "crammer_singer", "class_costs": list(search.class_costs)}
    return Fit(
        method="cutting-plane",
        settings={**about, "tol": search.tol, "bias_feature": search.bias_feature, **told},
        make_model=partial(_make_model, source, search.bias_feature),
        report=report_progress,
        compiled=("crammer-singer",),
        **parts,
    )


def _make_model(source: RowSource, bias_feature: float, state: Any, take: TakeRows) -> LinearModel:  # noqa: ARG001
    """Return the model. Two classes have one score, twice that of the second class."""
    classes = np.asarray(source.classes)
    W: F64 = state.best_w.reshape(len(classes), -1)
    biases = W[:, -1] * bias_feature
    one = len(classes) == 2
    return LinearModel(
        coef=2.0 * W[1, :-1] if one else W[:, :-1].copy(),
        intercept=float(2.0 * biases[1]) if one else biases,
        classes=classes,
        scaling=source.scaling,
        feature_names=source.feature_names,
    )


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions that look along a line, solve a master problem, and ascend."""
    ones = np.ones(2)
    add_line(start_line(1, 1, 2, 3), rows, np.zeros((2, 2, 3)), np.ones(1), np.ones(1), ones, 1.0)
    add_exact_classes(start_exact(1), rows, np.zeros((1, 2, 2)), np.zeros((1, 2)), ones)
    add_sizes(start_magnitudes(3), rows, ones, 1.0)
    solve_master(np.eye(2), np.ones(2), np.zeros(2), 1e-9)
    part = make_part(rows, ones, 1.0, np.zeros((2, 2)))
    part.visit(np.zeros(len(part.order), np.uint32), 1.0, np.zeros((3, 2)), 0.0)
    part.find_distances(1.0, np.zeros(6))
