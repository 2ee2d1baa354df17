"""Feature maps: passes find the map; then one pass writes the features, or a training maps the rows in every pass.

Any linear solver can train on a dataset of features. The map is stored in its folder `features`, so a model trained on
it carries the map and predicts from raw rows. The features are dense and uncompressed, so each row has a known place in
the files, and tasks can write in parallel (ingestion.write). The files have the same bytes as if a single task had
written them. If the same rows are chunked differently, the last bits of the features differ. BLAS runs on one thread,
since the order of its sums changes the last bits.

A training that maps the rows in every pass writes no features. The folder of its run contains `map.npz`, the state of
the passes that find the map, from which a resumed run makes the same map.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.open import open_dataset
from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.data.rows.views import Mapped
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.destination import check_destination, new_folder
from streamsvm.data.store.manifest import ENCODING, FEATURES, LABEL_COLUMN, QID_COLUMN
from streamsvm.data.store.shared_files import SPILL_FOLDER, SharedFolder
from streamsvm.engines.engine import Engine
from streamsvm.engines.open import Client, Opened, is_local, open_engine
from streamsvm.ingestion.write import DatasetWriter, PlacedArray, RangeWriter, RangeWritten, Shape, map_here
from streamsvm.kernels.feature_maps import FeatureMap, Features, KernelMap, PolynomialMap, measure_diagonal, split_rows
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.numeric.rows import I64, Rows
from streamsvm.options import TrainOptions
from streamsvm.passes import Scan, Step, Take
from streamsvm.runs.folder import MAP_FILE, GridFolder, RunFolder
from streamsvm.runs.gamma_scale import needs_scale, resolve_gamma, stand_in_for_gamma
from streamsvm.runs.records import FeatureCheckpoint, name_checkpoint
from streamsvm.runs.results import NO_COST, PriorCost
from streamsvm.runs.train import drive, open_for, take_steps
from streamsvm.solvers.feature_map.setup import FeatureMapSolver
from streamsvm.solvers.options import FeatureOptions
from streamsvm.solvers.set_up import choose_solver, compile_all, set_up, settle_task
from streamsvm.system import deadline, interrupts
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.files import refuse_inputs, to_local_path
from streamsvm.system.machine import default_threads, peak_bytes


@dataclass
class Written:
    """The totals of the pass that writes features.

    open_range: returns a writer for the range of rows that begins at the given row; None in joined totals. writer: the
    writer of the unfinished range of a task, if any. ranges: the finished ranges. traces: for each part of the rows, in
    order, two sums over its rows: the sum of k(x, x) - |Phi(x)|^2 (the error of the map in trace K), and the sum of
    k(x, x) (trace K).
    """

    open_range: Callable[[int], RangeWriter] | None
    writer: RangeWriter | None = None
    ranges: list[RangeWritten] = field(default_factory=list)
    traces: list[tuple[float, float]] = field(default_factory=list)


def write_mapped(
    engine: Engine, found: FeatureMap, folder: Path, chunk_bytes: int | None, about: Mapping[str, Any]
) -> None:
    """Write the features Phi(x), labels, weights and query ids of all rows, and the map, to `folder`.

    about: the facts to add to the manifest. chunk_bytes: the chunk size of the new dataset (None: chosen by the size of
    the dataset).
    """
    source = engine.source
    n, d = source.n_rows, found.n_features
    first = engine.take(Take(np.zeros(1, np.int64)))
    n_labels = len(source.classes) if source.has_label_sets and source.classes is not None else 0
    writer = DatasetWriter(folder, Shape(n, d, n * d, d, False, n_labels), tuple(first.vectors), chunk_bytes, "crc32c")
    scratch = SharedFolder(folder.absolute() / SPILL_FOLDER)
    scratch.folder.mkdir()
    stops = np.array([source.chunk_starts[group[-1] + 1] for group in plan_groups(source)], np.int64)
    shared = (found.kernel, found.rows, found.matrix) if isinstance(found, KernelMap) else (found,)
    start = partial(Written, partial(_open_range, writer.arrays, scratch, stops))
    written: Written = engine.scan(Scan(start, _add_mapped, _join, shared))
    writer.seal(written.ranges, scratch, map_here)
    shutil.rmtree(scratch.folder)
    left, whole = np.cumsum(np.reshape([(0.0, 0.0), *written.traces], (-1, 2)), axis=0)[-1].tolist()
    described, arrays = Features(found, source.scaling, source.feature_names).pack()
    encoding = source.encoding and source.encoding.as_json()
    columns = {ENCODING: encoding, LABEL_COLUMN: source.label_column, QID_COLUMN: source.qid_column}
    classes, counts = (None if each is None else each.tolist() for each in (source.classes, source.class_counts))
    meta = {
        **{name: value for name, value in columns.items() if value is not None},
        "classes": classes,
        "class_counts": counts,
        "feature_names": None,
        "shuffle": None,
        "source": f"features of {source.name}",
        "features": described,
        "trace_error": left / whole if whole > 0 else None,
        **about,
    }
    writer.finish(meta, None, {FEATURES + name: values for name, values in arrays.items()}, written.ranges)


def _open_range(arrays: Mapping[str, PlacedArray], scratch: SharedFolder, stops: I64, start: int) -> RangeWriter:
    stop = int(stops[np.searchsorted(stops, start, side="right")])
    return RangeWriter(arrays, (start, stop), scratch=scratch)


def _add_mapped(written: Written, rows: Rows, *parts: Any) -> None:
    """Map the rows of a tile, a few at a time, and write the features.

    parts: the map, or the fields of a KernelMap, as they were sent to tasks.
    """
    found: Any = parts[0] if isinstance(parts[0], PolynomialMap) else KernelMap(*parts)
    features = Features(found)
    assert written.open_range is not None
    writer = written.writer or written.open_range(rows.start)
    for part in split_rows(found, rows.n_rows):
        mine = rows.slice(part)
        mapped = features.apply(mine.X)
        writer.append(Rows(mine.start, mapped, **mine.vectors))
        if isinstance(found, KernelMap):
            diagonal = measure_diagonal(found.kernel, mine.X)
            left = float(np.sum(diagonal - np.einsum("ij,ij->i", mapped, mapped, dtype=np.float64)))
            written.traces.append((left, float(np.sum(diagonal))))
    written.writer = None if writer.is_full else writer
    if writer.is_full:
        written.ranges.append(writer.finish())


def _join(left: Written, right: Written) -> Written:
    return Written(None, None, left.ranges + right.ranges, left.traces + right.traces)


REMEDY = "use fewer --threads (n_jobs=... in Python), a lower --rank or a smaller --chunk-bytes"

Report = Callable[[int], None]


@dataclass(frozen=True)
class MadeFeatures:
    """A dataset of features, and its cost.

    Attributes
    ----------
    dataset : Dataset
        The opened dataset of features.
    read_bytes : int
        Bytes read from storage.
    peak_memory_bytes, projected_memory_bytes : int
        Resident memory of the process that needs the most, as measured and as projected beforehand.
    """

    dataset: Dataset
    read_bytes: int
    peak_memory_bytes: int
    projected_memory_bytes: int


def make_features(
    source: RowSource,
    destination: str | Path,
    options: FeatureOptions,
    settings: TrainOptions,
    report: Report | None = None,
    made_by: dict[str, Any] | None = None,
    resume: bool = False,
    client: Client | None = None,
) -> MadeFeatures:
    """Find a feature map, write the features of all rows as a dataset, and open it.

    One pass writes the features. Before it, finding the map takes one pass for "polynomial", none for "nystrom", ten
    for "cholesky" (fewer if a lower rank is exact) and eleven for "eigen". Gamma "scale" takes one more.

    Parameters
    ----------
    source : RowSource
        The rows to map.
    destination : str or Path
        The path of the dataset of features, which appears complete or not at all.
    options : FeatureOptions
        The map, its rank and seed, and how the dataset is written.
    settings : TrainOptions
        The kernel, and the limits: memory, threads, workers, scheduler. Other settings have no effect.
    report : callable, optional
        Called with the number of rows of each group of chunks after it is read.
    made_by : dict, optional
        Facts about how the dataset was made, as JSON, for the manifest.
    resume : bool, default False
        Whether to resume after the passes that an interrupted call has finished. Until the features are written, their
        state is kept in a hidden file next to the destination. A resumed call writes the same bits as an uninterrupted
        one.
    client : distributed.Client, optional
        A Dask cluster that carries out the passes. By default `settings` determines the engine.

    Returns
    -------
    MadeFeatures
        The dataset, and its cost.

    Raises
    ------
    InputError
        If the map cannot be made for these rows, if the destination cannot be written, or if the finished passes belong
        to other rows or settings.
    MemoryBudgetError
        If the projected memory exceeds the budget. It is raised before any row is read.
    """
    path = to_local_path(destination)
    check_destination(path, options.overwrite)
    if source.on_disk:
        refuse_inputs(path, [source.name])
    source = source.read_groups() if isinstance(source, Dataset) else source
    kept = FeatureCheckpoint(name_checkpoint(path))
    with (  # the engine is closed before the folder is removed: its tasks write there
        interrupts.caught(),
        one_blas_thread(),
        new_folder(path, options.overwrite) as folder,
        _finding(source, options, settings, kept, resume, client, report) as (engine, found, spent),
    ):
        about = {"passes": spent.passes + 1, "made_by": made_by}
        write_mapped(engine, found, folder, options.chunk_bytes, about)
    kept.remove()
    peak = max([peak_bytes(), *engine.costs.peaks.values()])
    return MadeFeatures(open_dataset(path), engine.costs.read_bytes, peak, spent.projected_bytes)


def find_feature_map(source: RowSource, options: FeatureOptions, settings: TrainOptions) -> FeatureMap:
    """Return the feature map, without writing features. Arguments and errors are those of `make_features`."""
    with interrupts.caught(), one_blas_thread(), _finding(source, options, settings) as (_, found, _):
        return found


@contextmanager
def _finding(
    source: RowSource,
    options: FeatureOptions,
    settings: TrainOptions,
    kept: FeatureCheckpoint | None = None,
    resume: bool = False,
    client: Client | None = None,
    report: Report | None = None,
    saves_start: bool = False,
) -> Iterator[tuple[Engine, FeatureMap, PriorCost]]:
    """Find a feature map; yield the open engine, the map and its cost.

    kept: the checkpoint, from which the passes resume if `resume` is set. saves_start: whether to write it before the
    first pass, too. The caller must limit BLAS to one thread.
    """
    fit, began = FeatureMapSolver(source, options, stand_in_for_gamma(settings)), time.monotonic()
    with deadline.limit(settings.max_seconds), _open_for_map(fit, settings, client) as (engine, plan):
        engine.costs.report = report
        measures_gamma = options.map != "polynomial" and needs_scale(settings)
        if measures_gamma:
            fit = FeatureMapSolver(source, options, resolve_gamma(engine, settings))
        state = fit.start()
        if kept is not None:
            state = kept.begin(state, {"fingerprint": source.fingerprint, **fit.settings}, source.n_rows, resume)
            if saves_start:
                kept.save(state)

        def keep(step: Step) -> bool:
            nonlocal state
            if kept is not None and step.state.passes > state.passes:
                kept.save(step.state)
            state = step.state
            interrupts.check()
            return bool(step.status)

        drive(engine, [take_steps(fit.solve(state), keep)])
        found = fit.make_map(state, lambda rows: engine.take(Take(rows)))
        cost = engine.costs.read_bytes, time.monotonic() - began, plan.projected_bytes
        yield engine, found, PriorCost(state.passes + int(measures_gamma), *cost)


def _open_for_map(
    fit: FeatureMapSolver, settings: TrainOptions, client: Client | None
) -> AbstractContextManager[Opened]:
    """Compile the kernels of the map, and open an engine with room for it.

    At most one thread per group of chunks is started, since further threads would be idle.
    """
    source, load = fit.source, partial(compile_all, fit.compiled, fit.source.is_sparse)
    load()
    if is_local(settings, client):
        settings = replace(settings, threads=min(settings.threads or default_threads(), len(plan_groups(source))))
    return open_engine(source, settings, fit.memory, load, client, REMEDY)


@dataclass(frozen=True)
class LearnedRows:
    """The rows and settings of a training, and further arguments for `train`.

    spent: the cost of finding the feature map, if there is one.
    """

    source: RowSource
    options: TrainOptions
    arguments: dict[str, Any] = field(default_factory=dict)
    spent: PriorCost = NO_COST


def make_linear(features: FeatureOptions, options: TrainOptions, source: RowSource) -> TrainOptions:
    """Return the settings of a linear solver for the features. Raises InputError for an unsuitable solver or rank."""
    method = choose_solver(replace(options, kernel="linear"))
    if method.kernels != ("linear",):
        raise InputError(
            f"solver {method.name}: evaluates kernels itself; features (--map) need a solver for linear models"
        )
    if features.map != "polynomial" and features.rank > source.n_rows:
        n_rows = say_count(source.n_rows, "row")
        raise InputError(f"rank is {features.rank}; {source.name} has {n_rows}, and the rank cannot exceed this")
    return replace(options, kernel="linear", gamma="scale")


@contextmanager
def open_rows(
    source: RowSource,
    features: FeatureOptions | None,
    options: TrainOptions,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    client: Client | None = None,
    keep_dual: bool = False,
    report: Report | None = None,
    for_grid: bool = False,
) -> Iterator[LearnedRows]:
    """Find a feature map, and yield the mapped rows for a linear model; without `features`, yield the rows as they are.

    Impossible settings, and a training that would exceed the memory, are refused before any row is read. With a map,
    the folder of the run is locked until the end of the block. Without a folder, the passes that find the map are not
    saved.

    Parameters
    ----------
    source : RowSource
        The raw rows.
    features : FeatureOptions or None
        The map, its rank and its seed. Options for writing a dataset have no effect.
    options : TrainOptions
        The settings of the training. The map approximates the kernel given by kernel, gamma, degree and coef0.
    report : callable, optional
        Called with the number of rows of each group of chunks after it is read for the map.
    for_grid : bool, default False
        Whether `out` is the folder of a grid, and the yielded arguments are for `tune`.
    out, resume, overwrite, client, keep_dual
        See `train`. Pass the yielded arguments to `train`, or to `tune` for a grid.

    Raises
    ------
    InputError, MemoryBudgetError, ConnectionError, KeyboardInterrupt
        As in `train` and `make_features`.
    """
    options = settle_task(source, options)
    if features is None:
        yield LearnedRows(source, options, {"resume": resume, "overwrite": overwrite})
        return
    linear = make_linear(features, options, source)
    features = replace(features, chunk_bytes=1)  # no chunks of features are written, so they need no memory
    folder: RunFolder | GridFolder | None = None
    if out is not None:
        folder = GridFolder(out, None, resume, overwrite) if for_grid else RunFolder(out, {}, resume, overwrite)
    with interrupts.caught(), one_blas_thread(), closing(folder) if folder else nullcontext():
        stand_in = FeatureMapSolver(source, features, stand_in_for_gamma(options))
        mapped = Mapped(source, Features(stand_in.stand_in(), source.scaling, source.feature_names))
        fit = set_up(mapped, linear, keep_dual)
        if is_local(linear, client):  # on a cluster, this check would start the workers twice
            with _open_for_map(stand_in, options, None):
                pass
            with open_for(mapped, linear, [[fit]], None):
                pass
        del mapped, fit  # they hold a placeholder map as large as the real one
        if folder:
            folder.acquire()
        kept = None if folder is None else FeatureCheckpoint(folder.path / MAP_FILE)
        with _finding(source, features, options, kept, resume, client, report, saves_start=True) as (_, found, spent):
            pass  # the engine is closed before the training opens its own
        mapped = Mapped(source, Features(found, source.scaling, source.feature_names))
        arguments = {"resume": True, "lock": folder.lock if folder else None, **({} if for_grid else {"spent": spent})}
        yield LearnedRows(mapped, linear, arguments, spent)
