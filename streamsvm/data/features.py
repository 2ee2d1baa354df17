"""Datasets of features: rows are mapped and written chunk by chunk, so that any linear solver can learn them.

The second-order polynomial map, or an approximation of a kernel of rank r (Jung, O'Leary & Tits 2008, section 4):

    cholesky   pivoted incomplete Cholesky, a block of pivots a pass: of rows that are drawn in proportion to what the
               approximation leaves of them (Chen, Epperly, Tropp & Webber 2022), in memory, the largest rest first
    nystrom    rows drawn at random
    eigen      the leading eigenvectors, found within a Cholesky approximation of four times the rank

The map lies beside the rows that it made, in the folder `features`: a model trained on them carries it, and takes raw
rows. BLAS has one thread here: sums in another order have other bits. So have, in the last ones, other chunks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm import interrupts
from streamsvm.data.dataset import Dataset, open_dataset
from streamsvm.data.destination import check_destination, new_folder
from streamsvm.data.feature_memory import project_bytes
from streamsvm.data.manifest import FEATURES
from streamsvm.data.passes import Passes, name_passes
from streamsvm.data.source import RowSource
from streamsvm.data.writer import DatasetWriter, Shape
from streamsvm.errors import InputError, MemoryBudgetError
from streamsvm.files import refuse_inputs
from streamsvm.machine import default_budget_bytes, format_bytes
from streamsvm.numeric.feature_maps import (
    LEAST_PIVOT,
    FeatureMap,
    Features,
    KernelMap,
    PolynomialMap,
    choose_pivots,
    compute_block,
    compute_diagonal,
    make_cholesky_map,
    make_nystrom_map,
    split_rows,
    truncate,
)
from streamsvm.numeric.kernels import Kernel, compute_squares, to_float64
from streamsvm.numeric.rows import F64, I64, Rows, slice_rows

APPROXIMATIONS = ("cholesky", "eigen", "nystrom")
MAPS = (*APPROXIMATIONS, "polynomial")
BLOCKS = 10  # of pivots: as many passes
CANDIDATES = 2  # rows taken for a pivot
EIGEN_SHARE = 4

Report = Callable[[int], None]


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


def plan_features(
    source: RowSource, destination: str | Path, options: FeatureOptions, kernel_name: str,
    memory_bytes: int | None = None,
) -> int:  # fmt: skip
    """Return the resident memory of this process, whole, as the features are made, at most; nothing is read.

    memory_bytes: None is half of the machine's. InputError for what cannot be made, MemoryBudgetError for too little.
    """
    check_destination(Path(destination), options.overwrite)
    _check(source, options.map, kernel_name, options.rank)
    m = min(source.n_rows, options.rank * (EIGEN_SHARE if options.map == "eigen" else 1))
    needed = project_bytes(source, options.map, kernel_name, m, options.chunk_bytes)
    budget = default_budget_bytes() if memory_bytes is None else memory_bytes
    if needed > budget:
        raise MemoryBudgetError(
            f"{format_bytes(needed)} of memory are needed to make the features but the budget is "
            f"{format_bytes(budget)}: raise --memory to at least {format_bytes(needed, up=True)}, use a lower --rank "
            "or a smaller --chunk-bytes"
        )
    return needed


def make_features(
    source: RowSource, destination: str | Path, options: FeatureOptions, kernel: Kernel,
    report: Report = lambda _: None, made_by: dict[str, Any] | None = None, resume: bool = False,
) -> Dataset:  # fmt: skip
    """Find the map, write the features of all rows, whole or not at all, and open them.

    The rows are read once to be written, and before that: polynomial once, nystrom not at all, cholesky BLOCKS times
    (less if a lower rank is exact), eigen once more. report is told the rows just read; made_by (JSON) goes with them.
    What the passes before the last one find is kept beside the destination until all is done: resume goes on from it,
    to the same bits. InputError as in plan_features, and if what was kept is of other rows or settings.
    """
    if source.on_disk:
        refuse_inputs(Path(destination), [source.name])
    settings: dict[str, Any] = {"fingerprint": source.fingerprint, "map": options.map}
    if options.map != "polynomial":
        settings |= {"rank": options.rank, "seed": options.seed, **asdict(kernel)}
    with new_folder(Path(destination), options.overwrite) as folder:
        passes = Passes(name_passes(Path(destination)), settings, resume)

        def count(n_rows: int) -> None:
            passes.count(n_rows)
            report(n_rows)

        found: FeatureMap
        if options.map == "polynomial":
            found = make_polynomial_map(source, count, passes)
        else:
            found = make_kernel_map(source, kernel, options.map, options.rank, options.seed, count, passes)
        about = {"passes": passes.n_rows // source.n_rows + 1, "made_by": made_by}
        _write(source, found, folder, options.chunk_bytes, report, about)
    passes.remove()
    return open_dataset(destination)


def write_features(source: RowSource, feature_map: FeatureMap, destination: str | Path) -> Dataset:
    """Write Phi(x) of all rows, dense, with their labels and weights, and open the dataset. InputError if it exists."""
    with new_folder(Path(destination)) as folder:
        _write(source, feature_map, folder, None, lambda _: None, {"passes": 1})
    return open_dataset(destination)


@threadpool_limits.wrap(limits=1)
def _write(
    source: RowSource, found: FeatureMap, folder: Path, chunk_bytes: int | None, report: Report, about: dict[str, Any]
) -> None:
    n, d = source.n_rows, found.n_features
    features, writer = Features(found, source.scaling, source.feature_names), None
    left, whole = 0.0, 0.0
    for rows in _parts(source, found, report):
        if writer is None:
            fields = tuple(name for name in ("y", "sample_weight", "qid") if getattr(rows, name) is not None)
            writer = DatasetWriter(folder, Shape(n, d, n * d, d, False), fields, chunk_bytes, "crc32c")
        mapped = features.apply(rows.X)
        writer.append(Rows(rows.start, mapped, rows.y, rows.sample_weight, rows.qid))
        if isinstance(found, KernelMap):
            diagonal = _measure_diagonal(found.kernel, rows)
            left += float(np.sum(diagonal - np.einsum("ij,ij->i", mapped, mapped, dtype=np.float64)))
            whole += float(np.sum(diagonal))
    assert writer is not None
    described, arrays = features.pack()
    counts = source.class_counts
    meta: dict[str, Any] = {
        "classes": None if source.classes is None else np.asarray(source.classes).tolist(),
        "class_counts": None if counts is None else np.asarray(counts).tolist(),
        "feature_names": None, "shuffle": None, "source": f"features of {source.name}", "features": described,
        "trace_error": left / whole if whole > 0 else None, **about,
    }  # fmt: skip
    writer.finish(meta, None, {FEATURES + name: values for name, values in arrays.items()})


@threadpool_limits.wrap(limits=1)
def make_polynomial_map(
    source: RowSource, report: Report = lambda _: None, passes: Passes | None = None
) -> PolynomialMap:
    """Return the second-order map, normalised (5.2); reads the rows once."""
    passes = passes or Passes(None, {}, resume=False)
    if "largest" not in passes.found:
        plain = PolynomialMap(source.n_features)
        largest = max(float(np.max(np.abs(plain.apply(rows.X)))) for rows in _parts(source, plain, report))
        passes.keep(largest=largest)
    return PolynomialMap(source.n_features, passes.found["largest"])


@threadpool_limits.wrap(limits=1)
def make_kernel_map(
    source: RowSource, kernel: Kernel, approximation: str, rank: int, seed: int = 0, report: Report = lambda _: None,
    passes: Passes | None = None,
) -> KernelMap:  # fmt: skip
    """Return an approximation of the kernel of that rank, or a lower one if that is exact. InputError for others.

    passes: what was found before, and where to keep what is found now.
    """
    _check(source, approximation, kernel.name, rank, APPROXIMATIONS)
    rng, n, passes = np.random.default_rng(seed), source.n_rows, passes or Passes(None, {}, resume=False)
    if approximation == "nystrom":
        return make_nystrom_map(kernel, source.take(np.sort(rng.permutation(n)[:rank])).X)
    if approximation == "cholesky":
        return _find_cholesky(source, kernel, min(n, rank), rng, report, passes)
    wide = _find_cholesky(source, kernel, min(n, EIGEN_SHARE * rank), rng, report, passes)
    if "gram" in passes.found:
        return truncate(wide, passes.found["gram"], rank)
    gram = np.zeros((wide.n_features, wide.n_features))
    for rows in _parts(source, wide, report):
        features = wide.apply(rows.X)
        gram += features.T @ features
    passes.keep(**passes.found, gram=gram)
    return truncate(wide, gram, rank)


def _check(source: RowSource, name: str, kernel_name: str, rank: int, names: tuple[str, ...] = MAPS) -> None:
    """InputError for features that there cannot be."""
    if name not in names:
        raise InputError(f"approximation {name!r}: choose from {', '.join(names)}")
    if source.features is not None:
        raise InputError(f"{source.name}: holds features already; make others of the rows that they were made of")
    if name != "polynomial" and rank < 1:
        raise InputError(f"rank is {rank}; at least 1 is expected")
    if name != "polynomial" and kernel_name == "sigmoid":
        raise InputError("the kernel sigmoid has no features: it is not positive semidefinite")


def measure_trace_error(source: RowSource, feature_map: KernelMap) -> float:
    """Return trace(K - Phi Phi') / trace K over all rows: a pass. A dataset of features was told it as it was made."""
    residuals, diagonal = _find_residuals(source, feature_map.kernel, feature_map, lambda _: None)
    return float(np.sum(residuals) / np.sum(diagonal))


def _find_cholesky(
    source: RowSource, kernel: Kernel, rank: int, rng: np.random.Generator, report: Report, passes: Passes
) -> KernelMap:
    """Add pivots block by block; the first block's candidates are drawn at random."""
    block = max(1, -(-rank // BLOCKS))
    number = min(source.n_rows, CANDIDATES * block)
    if "candidates" not in passes.found:
        _, diagonal = _find_residuals(source, kernel, None, report)
        candidates = np.sort(rng.permutation(source.n_rows)[:number])
        _keep(passes, np.empty(0, np.int64), candidates, float(np.max(diagonal)), rng)
    pivots, candidates, largest = (passes.found[name] for name in ("pivots", "candidates", "largest"))
    rng.bit_generator.state = json.loads(passes.found["rng"])
    feature_map = make_cholesky_map(kernel, source.take(pivots).X) if len(pivots) else None
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
        residuals, _ = _find_residuals(source, kernel, feature_map, report)
        candidates = _draw(np.maximum(residuals, 0.0), number, rng)
        _keep(passes, pivots, candidates, largest, rng)


def _keep(passes: Passes, pivots: I64, candidates: I64, largest: float, rng: np.random.Generator) -> None:
    state = json.dumps(rng.bit_generator.state)
    passes.keep(pivots=pivots, candidates=candidates, largest=largest, rng=state)


def _draw(residuals: F64, number: int, rng: np.random.Generator) -> I64:
    """Return rows drawn in proportion to what the approximation leaves of them."""
    share, left = residuals / np.sum(residuals), int(np.count_nonzero(residuals))
    return np.sort(rng.choice(len(residuals), min(number, left), replace=False, p=share))


def _find_residuals(
    source: RowSource, kernel: Kernel, feature_map: KernelMap | None, report: Report
) -> tuple[F64, F64]:
    """Return k(x, x) - |Phi(x)|^2 and k(x, x) of all rows."""
    residuals, diagonals, at = np.empty(source.n_rows), np.empty(source.n_rows), 0
    for rows in _parts(source, feature_map, report):
        mine = slice(at, at := at + rows.n_rows)
        diagonals[mine] = residuals[mine] = _measure_diagonal(kernel, rows)
        if feature_map is not None:
            residuals[mine] -= np.sum(feature_map.apply(rows.X) ** 2, axis=1)
    return residuals, diagonals


def _measure_diagonal(kernel: Kernel, rows: Rows) -> F64:
    return compute_diagonal(kernel, compute_squares(to_float64(rows.X)).astype(np.float64))


def _parts(source: RowSource, feature_map: FeatureMap | None, report: Report) -> Iterator[Rows]:
    """All rows in order, few enough at a time to be mapped (None: they are not)."""
    for index in range(source.n_chunks):
        for tile in source.tiles(index):
            for part in split_rows(feature_map, tile.n_rows) if feature_map else [slice(0, tile.n_rows)]:
                yield _slice(tile, part)
            report(tile.n_rows)
            interrupts.check()


def _slice(rows: Rows, part: slice) -> Rows:
    y, weight, qid = rows.y, rows.sample_weight, rows.qid
    return Rows(
        rows.start + part.start,
        slice_rows(rows.X, part),
        None if y is None else y[part],
        None if weight is None else weight[part],
        None if qid is None else qid[part],
    )
