"""Sets up a feature map for the rows of a source: checks of the options, memory, and compiled functions."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.data.writer import Shape
from streamsvm.errors import InputError
from streamsvm.methods.feature_map import solver
from streamsvm.methods.feature_map.options import MAPS, FeatureOptions
from streamsvm.methods.feature_map.solver import Settings, State
from streamsvm.methods.fit import MapFit, TakeRows
from streamsvm.numeric import known_values
from streamsvm.numeric.feature_maps import (
    PART_VALUES,
    FeatureMap,
    KernelMap,
    PolynomialMap,
    compute_block,
    measure_diagonal,
)
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.moments import add_moments
from streamsvm.numeric.rows import CsrRows, Matrix, Rows, take_rows
from streamsvm.options import TrainOptions, check_count, make_kernel
from streamsvm.requests import MemoryNeed

PART_COPIES = 3  # Rows that are mapped are there as kernel values, features and their squares, or float32 features.
CHUNK_COPIES = 2  # A task fills one chunk of features; a second one stands for the rest of what its file holds.
ROW_COPIES = 8  # The map's rows are taken from several chunks, put in order and made float64, beside the last map's.
MATRICES = 7  # m x m: K, K with jitter, factor, inverse, T, T of the last map; or the matrices of an eigendecomposition
ROW_VECTORS = 8  # vectors of 8 bytes a row of the source: residuals, and a draw in proportion to them.


def set_up(source: RowSource, options: FeatureOptions, kernel_options: TrainOptions) -> MapFit:
    """Return the map that is asked for, of the kernel of kernel_options; InputError if it cannot be made."""
    settings = _choose_settings(source, options, kernel_options)
    return MapFit(
        settings=_describe(settings),
        memory=partial(need_memory, source, settings, options.chunk_bytes),
        start=partial(solver.start_state, settings),
        solve=partial(solver.solve, settings),
        make_map=partial(_make_map, settings),
        stand_in=partial(_make_stand_in, source, settings),
        passes=solver.PASSES[settings.name],
        compiled=("feature-map",),
    )


def _choose_settings(source: RowSource, options: FeatureOptions, kernel_options: TrainOptions) -> Settings:
    if options.map not in MAPS:
        raise InputError(f"approximation {options.map!r}: choose from {', '.join(MAPS)}")
    if source.features is not None:
        raise InputError(f"{source.name}: holds features already; make others of the rows that they were made of")
    settings = Settings(options.map, source.name, source.n_rows, source.n_features)
    if options.map == "polynomial":
        return settings
    check_count("rank", options.rank, 1)
    check_count("seed", options.seed, 0)
    if kernel_options.kernel == "sigmoid":
        raise InputError("the kernel sigmoid has no features: it is not positive semidefinite")
    if kernel_options.kernel == known_values.NAME:
        raise InputError("the kernel precomputed has no features: its values with other rows are not known")
    return replace(settings, rank=options.rank, seed=options.seed, kernel=make_kernel(source, kernel_options))


def _describe(settings: Settings) -> dict[str, Any]:
    """Return the settings that a resumed run must share with the run before, as JSON."""
    if settings.name == "polynomial":
        return {"map": settings.name}
    return {"map": settings.name, "rank": settings.rank, "seed": settings.seed, **asdict(settings.kernel)}


def _make_map(settings: Settings, state: State, take: TakeRows) -> FeatureMap:
    return solver.make_map(settings, state, take(state.pivots).X)


def _make_stand_in(source: RowSource, settings: Settings) -> FeatureMap:
    """Return a map of the size of the one that is to be found; its rows are zeros, as many items as a mean row has."""
    if settings.name == "polynomial":
        return PolynomialMap(settings.n_features)
    m, d = settings.n_pivots, settings.n_features
    rows: Matrix = np.zeros((1, d), np.float32)
    if source.is_sparse:
        items = min(d, 1 + source.nbytes // (8 * source.n_rows))
        rows = CsrRows(np.zeros(items, np.float32), np.arange(items, dtype=np.int32), np.array([0, items]), d)
    return KernelMap(settings.kernel, take_rows(rows, np.zeros(m, np.int64)), np.zeros((m, settings.rank)))


def need_memory(source: RowSource, settings: Settings, chunk_bytes: int | None, threads: int) -> MemoryNeed:
    """Return the memory of the passes that find the map, and of the pass that writes the features."""
    return MemoryNeed(
        driver_bytes=count_driver_bytes(source, settings),
        turn_bytes=0,
        totals_bytes=_count_totals_bytes(source, settings),
        shared_bytes=_count_shared_bytes(source, settings),
        walk_bytes=threads * _count_task_bytes(source, settings, chunk_bytes),
        gathered_bytes=0 if settings.name == "polynomial" else 8 * source.n_rows,
    )


def count_driver_bytes(source: RowSource, settings: Settings) -> int:
    """Return the memory of the driver: the map, the rows and matrices that it is made of, and vectors of the rows."""
    if settings.name == "polynomial":
        return 0
    m = settings.n_pivots
    matrices = MATRICES - 3 if settings.name == "eigen" else MATRICES  # Three totals of a task are counted apart.
    return ROW_COPIES * _count_pivot_bytes(source, settings) + 8 * matrices * m**2 + 8 * ROW_VECTORS * source.n_rows


def _count_totals_bytes(source: RowSource, settings: Settings) -> int:
    """Return the memory of one task's totals: Phi'Phi, or the residuals of the rows of a group."""
    gram = 8 * settings.n_pivots**2 if settings.name == "eigen" else 0
    return max(gram, 16 * source.n_rows // len(plan_groups(source)))


def _count_shared_bytes(source: RowSource, settings: Settings) -> int:
    """Return the memory of the map, which every task is sent, and of all residuals, which the last task combines."""
    if settings.name == "polynomial":
        return 0
    return 2 * _count_pivot_bytes(source, settings) + 8 * settings.n_pivots**2 + 8 * source.n_rows


def _count_task_bytes(source: RowSource, settings: Settings, chunk_bytes: int | None) -> int:
    """Return the memory that a task works with: rows that are being mapped, and a chunk of features to be written."""
    width = settings.n_pivots  # This is the most: an approximation by eigenvectors has fewer features.
    if settings.name == "polynomial":
        width = PolynomialMap(settings.n_features).n_features
    row_bytes = 8 * (2 * width + 2 * source.n_features)
    shape = Shape(source.n_rows, width, 0, width, False)
    chunk = min(max(4 * width, chunk_bytes or shape.chunk_bytes()), 4 * width * source.n_rows)
    return PART_COPIES * max(8 * PART_VALUES, row_bytes) + CHUNK_COPIES * chunk


def _count_pivot_bytes(source: RowSource, settings: Settings) -> int:
    linear = settings.kernel.name == "linear"
    dense_bytes = 8 * source.n_features if source.is_sparse and linear else 0
    return settings.n_pivots * (source.nbytes // source.n_rows + dense_bytes)


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions that map rows by their kernel values."""
    add_moments([], rows, np.ones((1, 2)))
    for name in ("linear", "rbf", "poly"):
        measure_diagonal(Kernel(name), rows.X)
        compute_block(Kernel(name), rows.X, rows.X)
