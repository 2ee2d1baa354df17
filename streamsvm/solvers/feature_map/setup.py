"""The setup of a feature map for the rows of a source: option checks, memory, and compiled functions."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.kernels import feature_maps, precomputed
from streamsvm.kernels.kernel import Kernel, add_moments
from streamsvm.numeric.rows import CsrRows, Matrix, Rows, take_rows
from streamsvm.options import TrainOptions, check_count, make_kernel
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.solvers.feature_map.solver import PASSES, Settings, State, make_map, solve, start_state
from streamsvm.solvers.options import MAPS, FeatureOptions
from streamsvm.solvers.solver import TakeRows
from streamsvm.system.errors import InputError, require_known

PART_COPIES = 3  # copies of the mapped rows: kernel values, features, and squares or float32 copies of the features
CHUNK_COPIES = 2  # chunks of features in memory: a task fills one, and the second allows for the rest of its file
ROW_COPIES = 8  # copies of the map's rows: as read, ordered and in float64, and those of the last map
MATRICES = 7  # matrices (m, m): K, K with jitter, factor, inverse, T, the last T; or of an eigendecomposition
ROW_VECTORS = 8  # vectors of 8 bytes for each row of the source: residuals, and a weighted draw from them
# The kernels that have no features, each with the reason.
NOT_MAPPED = {"sigmoid": "it is not positive semidefinite", precomputed.NAME: "its values for other rows are unknown"}


class FeatureMapSolver:
    """The computation of a feature map for the rows of a source; `runs.features` drives it like a `Solver`.

    settings: the settings that a resumed run must share with the original run, as JSON. passes: the largest number of
    reads of all rows needed to compute the map. kernel_options: the names of the options that define the kernel. Raises
    InputError if the map cannot be made.
    """

    compiled = ("feature-map",)

    def __init__(self, source: RowSource, options: FeatureOptions, kernel_options: TrainOptions) -> None:
        self.parameters = parameters = _choose_parameters(source, options, kernel_options)
        self.source, self.chunk_bytes, self.passes = source, options.chunk_bytes, PASSES[parameters.name]
        self.settings: dict[str, Any] = {"map": parameters.name}
        self._has_kernel = parameters.name != "polynomial"
        if self._has_kernel:
            self.settings |= {"rank": parameters.rank, "seed": parameters.seed, **asdict(parameters.kernel)}

    def start(self) -> State:
        """Return the state before the first pass."""
        return start_state(self.parameters)

    def solve(self, state: State) -> Requests:
        """Yield the passes that compute the map."""
        return solve(self.parameters, state)

    def make_map(self, state: State, take: TakeRows) -> feature_maps.FeatureMap:
        """Return the map, given the last state; `take` returns rows by number."""
        return make_map(self.parameters, state, take(state.pivots).X)

    def stand_in(self) -> feature_maps.FeatureMap:
        """Return a placeholder map of the final size, used to project memory before any rows are read.

        Its rows are zeros, with as many entries as the average row.
        """
        source, m, d = self.source, self.parameters.n_pivots, self.parameters.n_features
        if not self._has_kernel:
            return feature_maps.PolynomialMap(d)
        rows: Matrix = np.zeros((1, d), np.float32)
        if source.is_sparse:
            items = min(d, 1 + source.nbytes // (8 * source.n_rows))
            rows = CsrRows(np.zeros(items, np.float32), np.arange(items, dtype=np.int32), np.array([0, items]), d)
        kernel, rank = self.parameters.kernel, self.parameters.rank
        return feature_maps.KernelMap(kernel, take_rows(rows, np.zeros(m, np.int64)), np.zeros((m, rank)))

    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory of the passes that compute the map, and of the pass that writes the features.

        The driver holds the map, its rows and matrices, and vectors over all rows of the source. The totals of a task
        are Phi'Phi, or the residuals of the rows of a group. Each task receives the map, and the last task combines all
        residuals.
        """
        source, n, m = self.source, self.source.n_rows, self.parameters.n_pivots
        is_dense = source.is_sparse and self.parameters.kernel.name == "linear"
        m_bytes = m * (source.nbytes // n + (8 * source.n_features if is_dense else 0))
        totals_bytes, walk_bytes = 16 * n // len(plan_groups(source)), threads * self._count_task_bytes()
        if not self._has_kernel:
            return MemoryNeed(0, 0, totals_bytes, 0, walk_bytes)
        matrices = MATRICES
        if self.parameters.name == "eigen":
            matrices, totals_bytes = MATRICES - 3, max(8 * m**2, totals_bytes)  # 3 are counted as totals
        driver_bytes = ROW_COPIES * m_bytes + 8 * matrices * m**2 + 8 * ROW_VECTORS * n
        shared_bytes = 2 * m_bytes + 8 * m**2 + 8 * n
        return MemoryNeed(driver_bytes, 0, totals_bytes, shared_bytes, walk_bytes, gathered_bytes=8 * n)

    def _count_task_bytes(self) -> int:
        """Return the working memory of a task: rows being mapped, and a chunk of features to write."""
        from streamsvm.ingestion.write import Shape  # loads Zarr

        source, width = self.source, self.parameters.n_pivots  # an upper limit: there are fewer eigenvectors
        if not self._has_kernel:
            width = feature_maps.PolynomialMap(source.n_features).n_features
        row_bytes = 8 * (2 * width + 2 * source.n_features)
        shape = Shape(source.n_rows, width, 0, width, False)
        chunk = min(max(4 * width, self.chunk_bytes or shape.chunk_bytes()), 4 * width * source.n_rows)
        return PART_COPIES * max(8 * feature_maps.PART_VALUES, row_bytes) + CHUNK_COPIES * chunk


def _choose_parameters(source: RowSource, options: FeatureOptions, kernel_options: TrainOptions) -> Settings:
    require_known("approximation", options.map, MAPS)
    if source.features is not None:
        raise InputError(f"{source.name}: these rows are already features; map the original rows instead")
    settings = Settings(options.map, source.name, source.n_rows, source.n_features)
    if options.map == "polynomial":
        return settings
    check_count("rank", options.rank, 1)
    check_count("seed", options.seed, 0)
    kernel = kernel_options.kernel
    if kernel in NOT_MAPPED:
        raise InputError(f"the kernel {kernel} has no features, because {NOT_MAPPED[kernel]}; choose another kernel")
    return replace(settings, rank=options.rank, seed=options.seed, kernel=make_kernel(source, kernel_options))


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions that map rows by their kernel values."""
    add_moments([], rows, np.ones((1, 2)))
    for name in ("linear", "rbf", "poly"):
        feature_maps.measure_diagonal(Kernel(name), rows.X)
        feature_maps.compute_block(Kernel(name), rows.X, rows.X)
