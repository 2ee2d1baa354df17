"""Ingest turns files and arrays into a dataset on disk, which appears there whole or not at all.

The rows are streamed in bounded memory, and shuffled once. In the first read the rows are set aside in runs, while
their shape, classes and feature ranges are found. In the second, the runs are permuted, scaled, coded and written. The
shuffle is local, since distributed shuffles fail on full disks and paused workers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm import interrupts
from streamsvm.data.dataset import Dataset
from streamsvm.data.destination import new_folder
from streamsvm.data.ingest_options import IngestOptions, check_options
from streamsvm.data.manifest import ENCODING, LABEL_COLUMN, QID_COLUMN
from streamsvm.data.open_dataset import open_dataset
from streamsvm.data.prepared_rows import prepare_rows
from streamsvm.data.rounding import look_at_features
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.spill import Spill, SpilledRows
from streamsvm.data.survey import Survey, check_survey
from streamsvm.data.upload import Upload, new_upload
from streamsvm.data.work_ahead import work_ahead
from streamsvm.data.writer import DatasetWriter, Shape
from streamsvm.errors import InputError
from streamsvm.machine import default_threads
from streamsvm.numeric.label_sets import sum_labels
from streamsvm.numeric.rows import Rows
from streamsvm.numeric.scaling import FeatureStatistics, Scaling
from streamsvm.urls import is_remote

MOST_CLASSES = 100_000
MOST_NAMES = 8  # of files that a message lists
DENSE_FROM = 1 / 3  # from this share of non-zeros on, dense rows are about as small as sparse ones, and faster
PART_ITEMS = 1 << 18  # values of the rows that are scaled and written together; they fit into the caches
MOST_THREADS = 4  # that permute and scale rows, since one thread writes what they make

Report = Callable[[int], None]


def write_dataset(
    pieces: Iterator[SourceRows],
    destination: str | Path,
    name: str,
    expected_bytes: int,
    options: IngestOptions,
    report: Report = lambda _: None,
) -> Dataset:
    """Write rows as a dataset, and return it opened.

    Parameters
    ----------
    pieces : iterator of SourceRows
        The rows, in pieces of any size.
    destination : str or Path
        Where the dataset is written.
    name : str
        What the rows are called in messages.
    expected_bytes : int
        About how large the rows are. A wrong guess costs time, but no memory.
    options : IngestOptions
        How the dataset is written.
    report : callable, optional
        Called with the number of rows that have been read so far.

    Raises
    ------
    InputError
        For bad input. Nothing is left at the destination then.
    """
    check_options(options)
    with (
        _open_destination(destination, options.overwrite) as folder,
        TemporaryDirectory(prefix="spill", dir=folder if isinstance(folder, Path) else None) as spill_folder,
    ):
        statistics = None if options.scale == "none" else FeatureStatistics.start()
        survey = Survey(MOST_CLASSES, statistics, options.regression)
        spill = set_aside(pieces, Path(spill_folder), survey, name, expected_bytes, options, report)
        check_survey(survey, name, options.regression, options.needs_two_classes)
        scaling = None
        if survey.statistics is not None:
            scaling = survey.statistics.scaling(options.scale, survey.n_rows, survey.anchor)
        write_rows(spill, folder, survey, scaling, name, options)
    return open_dataset(destination)


def _open_destination(destination: str | Path, overwrite: bool) -> AbstractContextManager[Path | Upload]:
    """Return the new folder, or the objects in a store, that become a dataset if all goes well."""
    if is_remote(destination):
        return new_upload(str(destination), overwrite)
    return new_folder(Path(destination), overwrite)


def set_aside(
    pieces: Iterator[SourceRows],
    folder: Path,
    survey: Survey,
    name: str,
    expected_bytes: int,
    options: IngestOptions,
    report: Report,
) -> Spill:
    """Set all rows aside in a folder, and take note of them in the survey."""
    spill: Spill | None = None
    with closing(pieces) if isinstance(pieces, Generator) else nullcontext():  # a reader has files and threads
        for rows in pieces:
            if spill is None:
                survey.anchor = look_at_features(rows, options, name, survey.anchor)
                spill = Spill(folder, None if rows.qid is not None else options.shuffle, expected_bytes)
            spill.add(*survey.add(rows, name))
            report(survey.n_rows)
            interrupts.check()
    if spill is None or not survey.n_rows:
        raise InputError(f"{name}: no rows")
    spill.split_large_runs()
    return spill


def write_rows(
    spill: Spill,
    folder: Path | Upload,
    survey: Survey,
    scaling: Scaling | None,
    name: str,
    options: IngestOptions,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write the rows that were set aside; about: what else the manifest says of rows that are appended to others.

    The scaling of rows that are appended is not written once more, since it is that of the rows before.
    """
    shape, fields = find_shape(survey, spill.dense_features is not None, scaling, name, options)
    counts = np.zeros(len(survey.list_classes()), np.int64)

    def prepare(run: SpilledRows, mine: npt.NDArray[np.int64]) -> Rows:
        return prepare_rows(run, mine, survey, shape, scaling, name)

    shuffled = _read_shuffled(spill, count_part_rows(shape), prepare)
    with closing(shuffled), ThreadPoolExecutor(1) as pool:
        writer = DatasetWriter(folder, shape, fields, options.chunk_bytes, options.codec, pool, options.shard_bytes)
        for rows in shuffled:
            if rows.y is not None:
                counts += np.bincount(rows.y, minlength=len(counts))
            if rows.label_sets is not None:
                counts += sum_labels(rows.label_sets, shape.n_labels, None).astype(np.int64)
            writer.append(rows)
            interrupts.check()
        about_rows = {**describe_rows(spill.seed, survey, counts, name, options), **(about or {})}
        writer.finish(about_rows, scaling if about is None else None)


def find_shape(
    survey: Survey, is_dense: bool, scaling: Scaling | None, name: str, options: IngestOptions
) -> tuple[Shape, tuple[str, ...]]:
    """Return the shape of the dataset, and the names of its vectors. is_dense: whether the source is."""
    sparse = options.layout == "sparse"
    if options.layout is None:
        sparse = not is_dense and survey.n_items < DENSE_FROM * survey.n_rows * survey.n_features
    if sparse and scaling is not None and np.any(scaling.offset):
        raise InputError(
            f"{name}: --scale {scaling.kind} would move the zeros of sparse rows; use --dense or --scale maxabs"
        )
    if sparse and options.dtype != "float32":
        raise InputError(f"{name}: its rows are sparse, and --dtype {options.dtype} is for dense rows: add --dense")
    n_labels = len(survey.list_classes()) if "label_sets" in survey.fields else 0
    fields = tuple("y" if n == "label" else n for n in survey.fields)
    sizes = (survey.n_rows, survey.n_features, survey.n_items, survey.longest_row)
    return Shape(*sizes, sparse, n_labels, options.dtype), fields


def count_part_rows(shape: Shape) -> int:
    """Return how many rows are scaled and written together."""
    row_items = shape.n_items // shape.n_rows + 1 if shape.sparse else shape.n_features
    return max(1, PART_ITEMS // row_items)


def describe_rows(
    seed: int | None, survey: Survey, counts: npt.NDArray[np.int64], name: str, options: IngestOptions
) -> dict[str, Any]:
    """Return what the manifest says of the rows, which were shuffled by the seed."""
    classes = survey.classes()
    state = None if options.source_state is None else dict(options.source_state)
    told = {LABEL_COLUMN: options.label_column, QID_COLUMN: options.qid_column, "source_state": state}
    return {
        "classes": None if classes is None else classes.tolist(),
        "class_counts": counts.tolist(),
        "feature_names": survey.feature_names,
        "shuffle": seed,
        "source": name,
        **({} if survey.encoding is None else {ENCODING: survey.encoding.as_json()}),
        **{key: value for key, value in told.items() if value is not None},
    }


def _read_shuffled(
    spill: Spill, part_rows: int, prepare: Callable[[SpilledRows, npt.NDArray[np.int64]], Rows]
) -> Generator[Rows, None, None]:
    """Yield all rows as they are written, a few at a time, since scaling makes copies of them.

    prepare: returns the rows of a run with the given numbers; it works on several parts of a run at once.
    """
    threads = min(default_threads(), MOST_THREADS)
    with ThreadPoolExecutor(threads) as pool:
        for run in range(len(spill.run_bytes)):
            rows, order = spill.read_shuffled(run)
            spill.remove(run)
            parts = iter(np.split(order, range(part_rows, rows.n_rows, part_rows)))
            for _, prepared in work_ahead(parts, partial(prepare, rows), pool, threads + 1):
                yield prepared
            del rows, order, parts  # before the next run is read


def join_names(sources: Sequence[str | Path]) -> str:
    """Return the name of several files in messages; of many, it has the first ones."""
    names = ["<stdin>" if str(source) == "-" else str(source) for source in sources[:MOST_NAMES]]
    more = f" and {len(sources) - MOST_NAMES} more" if len(sources) > MOST_NAMES else ""
    return f"{', '.join(names)}{more}"
