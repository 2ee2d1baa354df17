"""Datasets of features: passes find a feature map (runs.on_the_fly), and one more pass writes the mapped rows.

Any linear solver can train on a dataset of features. The map is stored in its folder `features`, so a model trained on
it carries the map and predicts from raw rows. The features are dense and uncompressed, so each row has a known place in
the files, and tasks can write in parallel (ingestion.write). The files have the same bytes as if a single task had
written them. If the same rows are chunked differently, the last bits of the features differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.open import open_dataset
from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.destination import check_destination, new_folder
from streamsvm.data.store.manifest import ENCODING, FEATURES, LABEL_COLUMN, QID_COLUMN, READ_AS
from streamsvm.data.store.shared_files import SPILL_FOLDER, SharedFolder
from streamsvm.engines.engine import Engine
from streamsvm.engines.open import Client
from streamsvm.ingestion.write import DatasetWriter, PlacedArray, RangeWriter, RangeWritten, Shape, map_here
from streamsvm.kernels.feature_maps import FeatureMap, Features, KernelMap, PolynomialMap, measure_diagonal, split_rows
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.numeric.rows import I64, Rows
from streamsvm.options import TrainOptions
from streamsvm.passes import Scan, Take
from streamsvm.runs.on_the_fly import Report, find_map
from streamsvm.runs.records import FeatureCheckpoint, name_checkpoint
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system import interrupts
from streamsvm.system.files import refuse_inputs, remove_shared_folder, to_local_path
from streamsvm.system.machine import peak_bytes


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
    remove_shared_folder(scratch.folder, scratch.folder)
    left, whole = np.cumsum(np.reshape([(0.0, 0.0), *written.traces], (-1, 2)), axis=0)[-1].tolist()
    described, arrays = Features(found, source.scaling, source.feature_names).pack()
    encoding = source.encoding and source.encoding.as_json()
    columns = {ENCODING: encoding, LABEL_COLUMN: source.label_column, QID_COLUMN: source.qid_column}
    columns[READ_AS] = source.read_as
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
        find_map(source, options, settings, kept, resume, client, report) as (engine, found, spent),
    ):
        about = {"passes": spent.passes + 1, "made_by": made_by}
        write_mapped(engine, found, folder, options.chunk_bytes, about)
    kept.remove()
    peak = max([peak_bytes(), *engine.costs.peaks.values()])
    return MadeFeatures(open_dataset(path), engine.costs.read_bytes, peak, spent.projected_bytes)


def find_feature_map(source: RowSource, options: FeatureOptions, settings: TrainOptions) -> FeatureMap:
    """Return the feature map, without writing features. Arguments and errors are those of `make_features`."""
    with interrupts.caught(), one_blas_thread(), find_map(source, options, settings) as (_, found, _):
        return found
