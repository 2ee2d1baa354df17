"""The setup of dual coordinate ascent on blocks: settings, memory and model for the rows of a source."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial

from streamsvm.data.source import RowSource
from streamsvm.machine import default_budget_bytes
from streamsvm.methods.cutting_plane import block_ascent
from streamsvm.methods.cutting_plane.beside_setup import put_beside
from streamsvm.methods.cutting_plane.block_ascent import State
from streamsvm.methods.cutting_plane.block_walk import BlockAscent
from streamsvm.methods.cutting_plane.exact_points import exact_bytes
from streamsvm.methods.cutting_plane.multiplier_qp import MOST_ROWS, PRODUCTS
from streamsvm.methods.cutting_plane.multiplier_refinement import COPIES as COPIES_OF_ROWS
from streamsvm.methods.cutting_plane.multiplier_refinement import MATRICES, can_refine
from streamsvm.methods.cutting_plane.options import LEAST_ROWS, OTHER_BYTES, CuttingPlaneOptions
from streamsvm.methods.cutting_plane.rows_in_memory import MOST_BESIDE, has_newton
from streamsvm.methods.cutting_plane.segments import totals_bytes
from streamsvm.methods.fit import DualWatch, Fit, TakeRows, report_progress
from streamsvm.methods.linear_models import make_linear_model
from streamsvm.models.model import LinearModel
from streamsvm.options import BUDGET_SHARE, TrainOptions, compute_class_costs, count_resident
from streamsvm.requests import MemoryNeed

COPIES = 4  # of the kept rows while others are chosen, and of a block while the next one is read and put together
ROW_VECTORS = 12  # vectors of 8 bytes for each row in memory: labels, costs, shares, distances, orders
NEWTON_VECTORS = 12  # vectors of 8 bytes for each row in memory, where Newton's method goes on
NEWTON_MATRICES = 4  # matrices of all pairs of features
SHARES = 6  # vectors of 8 bytes for each row of the source: shares of two states, of a checkpoint, and of the walk
VECTORS = 24  # vectors of the width of w


def set_up(source: RowSource, options: TrainOptions, own: CuttingPlaneOptions) -> Fit | None:
    """Return the fit with the resident rows that are asked for or that fit into memory; None if too few fit."""
    settings = BlockAscent(
        class_costs=compute_class_costs(source, options),
        resident_rows=source.n_rows,
        chunk_starts=tuple(int(start) for start in source.chunk_starts),
        tol=float(options.tol),
        bias_feature=own.intercept_scaling,
        seed=options.seed,
    )
    resident_rows = _count_rows(source, options, settings)
    return make_fit(source, replace(settings, resident_rows=resident_rows)) if resident_rows else None


def _count_rows(source: RowSource, options: TrainOptions, settings: BlockAscent) -> int:
    """Return how many rows are to be resident: 0 if fewer than LEAST_ROWS fit into the memory.

    So few rows that an interior-point method can take the place of the ascent are resident in any case.
    """
    if source.n_rows <= MOST_ROWS:
        return source.n_rows
    if options.resident_rows is not None:
        return count_resident(options.resident_rows, source.n_rows)
    budget = options.memory_bytes or default_budget_bytes()
    whole = make_fit(source, settings).memory(1)
    if OTHER_BYTES + BUDGET_SHARE * (whole.driver_bytes + whole.walk_bytes) + source.stream_bytes() <= budget:
        return source.n_rows
    none = make_fit(source, replace(settings, resident_rows=1)).memory(1)
    spare = budget - OTHER_BYTES - none.driver_bytes - none.walk_bytes - source.stream_bytes()
    number = max(0, spare // (BUDGET_SHARE * COPIES * _find_row_bytes(source)))
    return number if number >= min(source.n_rows, LEAST_ROWS) else 0


def _find_row_bytes(source: RowSource) -> int:
    return source.nbytes // source.n_rows + 8 * ROW_VECTORS


def _need_memory(source: RowSource, settings: BlockAscent, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of the shares of all rows, of the rows that are kept, and of a block in a walk."""
    n, width, row_bytes = source.n_rows, source.n_features + 1, _find_row_bytes(source)
    kept_bytes = settings.kept_rows * row_bytes
    shares_bytes, sums_bytes = 8 * SHARES * n, totals_bytes(1, width) + 16 * width + 2 * exact_bytes(width)
    walk_bytes = 0
    if not settings.keeps_all:
        block = max(map(settings.count_rows, settings.list_blocks()))
        walk_bytes = (COPIES - 1) * kept_bytes + COPIES * block * row_bytes + 2 * sums_bytes + n
    rows_bytes = kept_bytes * (2 if settings.keeps_all else 1)
    if settings.keeps_all and has_newton(n, source.n_features):
        rows_bytes += 8 * (NEWTON_VECTORS * n + NEWTON_MATRICES * width**2)
    if n <= MOST_ROWS:
        rows_bytes += 8 * (MATRICES * n**2 + COPIES_OF_ROWS * n * width if can_refine(n, width) else PRODUCTS * n**2)
    return MemoryNeed(
        driver_bytes=shares_bytes + rows_bytes + 8 * VECTORS * width,
        turn_bytes=8 * VECTORS * width // 2,
        totals_bytes=sums_bytes if settings.keeps_all else 0,
        shared_bytes=8 * 4 * width + exact_bytes(width) + (0 if settings.keeps_all else 16 * n + kept_bytes),
        walk_bytes=walk_bytes,
    )


def make_fit(source: RowSource, settings: BlockAscent) -> Fit:
    """Return the fit. Where extreme scales make the ascent slow, a line search beside it proves the optimum.

    With few rows the line search runs from the start, since its passes take next to no time then.
    """
    told = {"acceleration": "block-ascent", **asdict(settings), "class_costs": list(settings.class_costs)}
    fit = Fit(
        method="cutting-plane",
        settings={name: value for name, value in told.items() if name not in ("seed", "chunk_starts")},
        memory=partial(_need_memory, source, settings),
        start=partial(block_ascent.start_state, settings, source.n_features),
        warm_start=partial(block_ascent.warm_state, settings),
        solve=partial(block_ascent.solve, settings),
        make_model=partial(_make_model, source, settings),
        report=report_progress,
        compiled=("cutting-plane", "ascent"),
        dual=DualWatch(kind="shares", width=source.n_features + 1, most_cuts=0, n_rows=source.n_rows),
    )
    if source.n_features > MOST_BESIDE:
        return fit
    return put_beside(source, settings, fit, source.n_rows > MOST_ROWS, block_ascent.count_terms(settings))


def _make_model(source: RowSource, settings: BlockAscent, state: State, take: TakeRows) -> LinearModel:  # noqa: ARG001
    return make_linear_model(source, state.best_w[:-1], state.best_w[-1] * settings.bias_feature)
