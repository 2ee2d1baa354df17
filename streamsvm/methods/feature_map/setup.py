"""Feature maps as `training.features` drives them: options, memory, and the map at the end."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.data.writer import Shape
from streamsvm.errors import InputError
from streamsvm.methods.feature_map import solver
from streamsvm.methods.feature_map.solver import Settings, State
from streamsvm.methods.method import TakeRows
from streamsvm.numeric.feature_maps import PART_VALUES, FeatureMap, PolynomialMap
from streamsvm.options import TrainOptions, make_kernel
from streamsvm.requests import Solver

APPROXIMATIONS = ("cholesky", "eigen", "nystrom")
MAPS = (*APPROXIMATIONS, "polynomial")

PART_COPIES = 3  # of rows that are mapped: their kernel values, features, squares, float32
CHUNK_COPIES = 2  # of a chunk of features: the one that a task fills, and one for what its file holds besides features
ROW_COPIES = 8  # of the map's rows: taken from several chunks, put in order, float64, and the map before
MATRICES = 7  # m x m: K, jitter, factor, inverse, T, that of the map before; or those of an eigendecomposition
ROW_VECTORS = 8  # of 8 bytes a row of the source: residuals, and a draw in proportion to them


@dataclass(frozen=True)
class FeatureOptions:
    """Which features. map: one of MAPS; rank and seed are for all but the polynomial one.

    overwrite: a dataset of that name is replaced.
    """

    map: str = "cholesky"
    rank: int = 300
    seed: int = 0
    chunk_bytes: int | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class FeatureMaps:
    """A feature map that is to be found and applied. The sizes in bytes are what engines.memory projects."""

    settings: Settings
    chunk_bytes: int | None = None

    def describe(self) -> dict[str, Any]:
        """Return what a resumed run must share with the run before, as JSON."""
        settings = self.settings
        if settings.name == "polynomial":
            return {"map": settings.name}
        return {"map": settings.name, "rank": settings.rank, "seed": settings.seed, **asdict(settings.kernel)}

    @property
    def width(self) -> int:
        """Number of features, at most."""
        if self.settings.name == "polynomial":
            return PolynomialMap(self.settings.n_features).n_features
        return self.settings.n_pivots

    def driver_bytes(self, source: RowSource) -> int:
        """Memory of the driver: the map, what it is made of, and a few numbers a row."""
        if self.settings.name == "polynomial":
            return 0
        m = self.settings.n_pivots
        matrices = MATRICES - 3 if self.settings.name == "eigen" else MATRICES  # three totals of a task count besides
        return ROW_COPIES * self._pivot_bytes(source) + 8 * matrices * m**2 + 8 * ROW_VECTORS * source.n_rows

    def totals_bytes(self, source: RowSource) -> int:
        """Memory of one task's totals: Phi'Phi, or what is left of the rows of a group."""
        gram = 8 * self.settings.n_pivots**2 if self.settings.name == "eigen" else 0
        return max(gram, 16 * source.n_rows // len(plan_groups(source)))

    def shared_bytes(self, source: RowSource) -> int:
        """Memory of the map, which all tasks are sent, and of what is left of all rows, which the last task returns."""
        if self.settings.name == "polynomial":
            return 0
        return 2 * self._pivot_bytes(source) + 8 * self.settings.n_pivots**2 + 8 * source.n_rows

    def task_bytes(self, source: RowSource, threads: int) -> int:
        """Memory that tasks work with at once: rows that are mapped, and a chunk of features to be written."""
        row_bytes = 8 * (2 * self.width + 2 * source.n_features)
        shape = Shape(source.n_rows, self.width, 0, self.width, False)
        chunk = min(max(4 * self.width, self.chunk_bytes or shape.chunk_bytes()), 4 * self.width * source.n_rows)
        return threads * (PART_COPIES * max(8 * PART_VALUES, row_bytes) + CHUNK_COPIES * chunk)

    def _pivot_bytes(self, source: RowSource) -> int:
        m, linear = self.settings.n_pivots, self.settings.kernel.name == "linear"
        dense_bytes = 8 * source.n_features if source.is_sparse and linear else 0
        return m * (source.nbytes // source.n_rows + dense_bytes)

    def start_state(self) -> State:
        """Return the state before the first pass."""
        return solver.start_state(self.settings)

    def solve(self, state: State) -> Solver:
        """Go on from a state."""
        return solver.solve(self.settings, state)

    def make_map(self, state: State, take: TakeRows) -> FeatureMap:
        """Return the map of a finished state; `take` gives rows of the source."""
        return solver.make_map(self.settings, state, take(state.pivots).X)


def make_feature_maps(source: RowSource, options: FeatureOptions, kernel_options: TrainOptions) -> FeatureMaps:
    """Return the map that was asked for, of the kernel of kernel_options. InputError for what cannot be made."""
    if options.map not in MAPS:
        raise InputError(f"approximation {options.map!r}: choose from {', '.join(MAPS)}")
    if source.features is not None:
        raise InputError(f"{source.name}: holds features already; make others of the rows that they were made of")
    settings = Settings(options.map, source.name, source.n_rows, source.n_features)
    if options.map == "polynomial":
        return FeatureMaps(settings, options.chunk_bytes)
    if options.rank < 1:
        raise InputError(f"rank is {options.rank}; at least 1 is expected")
    if kernel_options.kernel == "sigmoid":
        raise InputError("the kernel sigmoid has no features: it is not positive semidefinite")
    kernel = make_kernel(source, kernel_options)
    settings = replace(settings, rank=options.rank, seed=options.seed, kernel=kernel)
    return FeatureMaps(settings, options.chunk_bytes)
