"""Feature maps, set up for the rows of a source: what can be made, the memory that it takes, and the compiled code."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.data.writer import Shape
from streamsvm.errors import InputError
from streamsvm.methods.feature_map import solver
from streamsvm.methods.feature_map.options import MAPS, FeatureOptions
from streamsvm.methods.feature_map.solver import Settings, State
from streamsvm.methods.fit import MapFit, TakeRows
from streamsvm.numeric.feature_maps import PART_VALUES, FeatureMap, PolynomialMap, compute_block, measure_diagonal
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions, make_kernel
from streamsvm.requests import MemoryNeed

PART_COPIES = 3  # of rows that are mapped: their kernel values, features, squares, float32
CHUNK_COPIES = 2  # of a chunk of features: the one that a task fills, and one for what its file holds besides features
ROW_COPIES = 8  # of the map's rows: taken from several chunks, put in order, float64, and the map before
MATRICES = 7  # m x m: K, jitter, factor, inverse, T, that of the map before; or those of an eigendecomposition
ROW_VECTORS = 8  # of 8 bytes a row of the source: residuals, and a draw in proportion to them


def set_up(source: RowSource, options: FeatureOptions, kernel_options: TrainOptions) -> MapFit:
    """Return the map that is asked for, of the kernel of kernel_options. InputError for what cannot be made."""
    settings = _choose_settings(source, options, kernel_options)
    return MapFit(
        settings=_describe(settings),
        memory=partial(need_memory, source, settings, options.chunk_bytes),
        start=partial(solver.start_state, settings),
        solve=partial(solver.solve, settings),
        make_map=partial(_make_map, settings),
        kernels=("feature-map",),
    )


def _choose_settings(source: RowSource, options: FeatureOptions, kernel_options: TrainOptions) -> Settings:
    if options.map not in MAPS:
        raise InputError(f"approximation {options.map!r}: choose from {', '.join(MAPS)}")
    if source.features is not None:
        raise InputError(f"{source.name}: holds features already; make others of the rows that they were made of")
    settings = Settings(options.map, source.name, source.n_rows, source.n_features)
    if options.map == "polynomial":
        return settings
    if options.rank < 1:
        raise InputError(f"rank is {options.rank}; at least 1 is expected")
    if kernel_options.kernel == "sigmoid":
        raise InputError("the kernel sigmoid has no features: it is not positive semidefinite")
    return replace(settings, rank=options.rank, seed=options.seed, kernel=make_kernel(source, kernel_options))


def _describe(settings: Settings) -> dict[str, Any]:
    """Return what a resumed run must share with the run before, as JSON."""
    if settings.name == "polynomial":
        return {"map": settings.name}
    return {"map": settings.name, "rank": settings.rank, "seed": settings.seed, **asdict(settings.kernel)}


def _make_map(settings: Settings, state: State, take: TakeRows) -> FeatureMap:
    return solver.make_map(settings, state, take(state.pivots).X)


def need_memory(source: RowSource, settings: Settings, chunk_bytes: int | None, threads: int) -> MemoryNeed:
    """Return what the passes need that find the map, and the one that writes the features."""
    return MemoryNeed(
        driver_bytes=count_driver_bytes(source, settings),
        turn_bytes=0,
        totals_bytes=_count_totals_bytes(source, settings),
        shared_bytes=_count_shared_bytes(source, settings),
        walk_bytes=threads * _count_task_bytes(source, settings, chunk_bytes),
    )


def count_driver_bytes(source: RowSource, settings: Settings) -> int:
    """Return the memory of the driver: the map, what it is made of, and a few numbers a row."""
    if settings.name == "polynomial":
        return 0
    m = settings.n_pivots
    matrices = MATRICES - 3 if settings.name == "eigen" else MATRICES  # three totals of a task count besides
    return ROW_COPIES * _count_pivot_bytes(source, settings) + 8 * matrices * m**2 + 8 * ROW_VECTORS * source.n_rows


def _count_totals_bytes(source: RowSource, settings: Settings) -> int:
    """Return the memory of one task's totals: Phi'Phi, or what is left of the rows of a group."""
    gram = 8 * settings.n_pivots**2 if settings.name == "eigen" else 0
    return max(gram, 16 * source.n_rows // len(plan_groups(source)))


def _count_shared_bytes(source: RowSource, settings: Settings) -> int:
    """Return the memory of the map, which all tasks are sent, and of what is left of all rows, for the last task."""
    if settings.name == "polynomial":
        return 0
    return 2 * _count_pivot_bytes(source, settings) + 8 * settings.n_pivots**2 + 8 * source.n_rows


def _count_task_bytes(source: RowSource, settings: Settings, chunk_bytes: int | None) -> int:
    """Return the memory that a task works with: rows that are mapped, and a chunk of features to be written."""
    width = settings.n_pivots  # at most
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
    """Call what maps rows by their kernel values with others."""
    for name in ("linear", "rbf", "poly"):
        measure_diagonal(Kernel(name), rows.X)
        compute_block(Kernel(name), rows.X, rows.X)
