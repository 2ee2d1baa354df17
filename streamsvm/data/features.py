"""Datasets of features: rows are mapped and written chunk by chunk, so that any linear solver can learn them.

The second-order polynomial map, or an approximation of a kernel of rank r (Jung, O'Leary & Tits 2008, section 4):

    cholesky   pivoted incomplete Cholesky, a block of pivots a pass: of rows that are drawn in proportion to what the
               approximation leaves of them (Chen, Epperly, Tropp & Webber 2022), in memory, the largest rest first
    nystrom    rows drawn at random
    eigen      the leading eigenvectors, found within a Cholesky approximation of four times the rank
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streamsvm.data.dataset import Dataset, open_dataset
from streamsvm.data.source import RowSource
from streamsvm.data.writer import DatasetWriter, Shape, new_folder
from streamsvm.errors import InputError
from streamsvm.numeric.feature_maps import (
    LEAST_PIVOT,
    FeatureMap,
    KernelMap,
    PolynomialMap,
    choose_pivots,
    compute_block,
    compute_diagonal,
    make_cholesky_map,
    make_nystrom_map,
    truncate,
)
from streamsvm.numeric.kernels import Kernel, compute_squares, to_float64
from streamsvm.numeric.rows import F64, I64, Rows, slice_rows

APPROXIMATIONS = ("cholesky", "eigen", "nystrom")
BLOCKS = 10  # of pivots: as many passes
CANDIDATES = 2  # rows taken for a pivot
EIGEN_SHARE = 4
PART_VALUES = 1 << 20  # features that are made at a time: 8 MB


def write_features(source: RowSource, feature_map: FeatureMap, destination: str | Path) -> Dataset:
    """Write Phi(x) of all rows, dense, with their labels and weights, and open the dataset. InputError if it exists."""
    n, d = source.n_rows, feature_map.n_features
    counts = source.class_counts
    with new_folder(Path(destination)) as folder:
        writer = None
        for rows in _parts(source, d):
            if writer is None:
                fields = tuple(name for name in ("y", "sample_weight", "qid") if getattr(rows, name) is not None)
                writer = DatasetWriter(folder, Shape(n, d, n * d, d, False), fields, None, "crc32c")
            mapped = feature_map.apply(rows.X).astype(np.float32)
            writer.append(Rows(rows.start, mapped, rows.y, rows.sample_weight, rows.qid))
        assert writer is not None
        about = {
            "classes": None if source.classes is None else np.asarray(source.classes).tolist(),
            "class_counts": None if counts is None else np.asarray(counts).tolist(),
            "feature_names": None, "shuffle": None, "source": f"features of {source.name}",
        }  # fmt: skip
        writer.finish(about, None)
    return open_dataset(destination)


def make_polynomial_map(source: RowSource) -> PolynomialMap:
    """Return the second-order map, normalised (5.2); reads the rows once."""
    plain = PolynomialMap(source.n_features)
    largest = max(float(np.max(np.abs(plain.apply(rows.X)))) for rows in _parts(source, plain.n_features))
    return PolynomialMap(source.n_features, largest)


def make_kernel_map(source: RowSource, kernel: Kernel, approximation: str, rank: int, seed: int = 0) -> KernelMap:
    """Return an approximation of the kernel of that rank, or a lower one if that is exact. InputError for others."""
    if approximation not in APPROXIMATIONS:
        raise InputError(f"approximation {approximation!r}: choose from {', '.join(APPROXIMATIONS)}")
    if rank < 1:
        raise InputError(f"rank is {rank}; at least 1 is expected")
    if kernel.name == "sigmoid":
        raise InputError("the kernel sigmoid has no features: it is not positive semidefinite")
    rng, n = np.random.default_rng(seed), source.n_rows
    if approximation == "nystrom":
        return make_nystrom_map(kernel, source.take(np.sort(rng.permutation(n)[:rank])).X)
    if approximation == "cholesky":
        return _find_cholesky(source, kernel, min(n, rank), rng)
    wide = _find_cholesky(source, kernel, min(n, EIGEN_SHARE * rank), rng)
    gram = np.zeros((wide.n_features, wide.n_features))
    for rows in _parts(source, wide.n_features):
        features = wide.apply(rows.X)
        gram += features.T @ features
    return truncate(wide, gram, rank)


def measure_trace_error(source: RowSource, feature_map: KernelMap) -> float:
    """Return trace(K - Phi Phi') / trace K over all rows: a pass."""
    residuals, diagonal = _find_residuals(source, feature_map.kernel, feature_map)
    return float(np.sum(residuals) / np.sum(diagonal))


def _find_cholesky(source: RowSource, kernel: Kernel, rank: int, rng: np.random.Generator) -> KernelMap:
    """Add pivots block by block; the first block's candidates are drawn at random."""
    block, pivots = max(1, -(-rank // BLOCKS)), np.empty(0, np.int64)
    feature_map: KernelMap | None = None
    _, diagonal = _find_residuals(source, kernel, None)
    largest, number = float(np.max(diagonal)), min(source.n_rows, CANDIDATES * block)
    candidates = np.sort(rng.permutation(source.n_rows)[:number])
    while True:
        taken = source.take(candidates).X
        residual = compute_block(kernel, taken, taken)
        if feature_map is not None:
            features = feature_map.apply(taken)
            residual -= features @ features.T
        chosen = choose_pivots(residual, min(block, rank - len(pivots)), LEAST_PIVOT * largest)
        pivots = np.concatenate((pivots, candidates[chosen]))
        if len(chosen):
            feature_map = make_cholesky_map(kernel, source.take(pivots).X)
        if feature_map is None:
            raise InputError(f"{source.name}: the kernel is zero on all rows that were drawn")
        if len(pivots) >= rank or (len(chosen) < block and len(pivots) > len(chosen)):
            return feature_map
        residuals, _ = _find_residuals(source, kernel, feature_map)
        candidates = _draw(np.maximum(residuals, 0.0), number, rng)


def _draw(residuals: F64, number: int, rng: np.random.Generator) -> I64:
    """Return rows drawn in proportion to what the approximation leaves of them."""
    share, left = residuals / np.sum(residuals), int(np.count_nonzero(residuals))
    return np.sort(rng.choice(len(residuals), min(number, left), replace=False, p=share))


def _find_residuals(source: RowSource, kernel: Kernel, feature_map: KernelMap | None) -> tuple[F64, F64]:
    """Return k(x, x) - |Phi(x)|^2 and k(x, x) of all rows."""
    residuals, diagonals = [np.empty(0)], [np.empty(0)]
    for rows in _parts(source, feature_map.n_features if feature_map else 1):
        diagonal = compute_diagonal(kernel, compute_squares(to_float64(rows.X)).astype(np.float64))
        known = np.sum(feature_map.apply(rows.X) ** 2, axis=1) if feature_map else 0.0
        diagonals.append(diagonal)
        residuals.append(diagonal - known)
    return np.concatenate(residuals), np.concatenate(diagonals)


def _parts(source: RowSource, n_features: int) -> Iterator[Rows]:
    """Rows in order, few enough at a time for that many features of each."""
    step = max(1, PART_VALUES // n_features)
    for index in range(source.n_chunks):
        for tile in source.tiles(index):
            for at in range(0, tile.n_rows, step):
                yield _slice(tile, slice(at, min(at + step, tile.n_rows)))


def _slice(rows: Rows, part: slice) -> Rows:
    y, weight, qid = rows.y, rows.sample_weight, rows.qid
    return Rows(
        rows.start + part.start,
        slice_rows(rows.X, part),
        None if y is None else y[part],
        None if weight is None else weight[part],
        None if qid is None else qid[part],
    )
