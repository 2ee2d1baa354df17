"""What a worker does of an ingest: it sets stretches of files aside, and writes ranges of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from streamsvm.data.coded_stretches import get_encoding, read_coded
from streamsvm.data.encoded_rows import encode_features
from streamsvm.data.ingest import MOST_CLASSES, count_part_rows
from streamsvm.data.ingest_options import IngestOptions
from streamsvm.data.labels import has_number_labels
from streamsvm.data.placed_array import PlacedArray
from streamsvm.data.placed_rows import RangeWriter, RangeWritten
from streamsvm.data.prepared_rows import prepare_rows
from streamsvm.data.range_record import find_range, record_range
from streamsvm.data.segments import SegmentWriter, hash_text
from streamsvm.data.set_aside import SetAside, find_set_aside, record_set_aside
from streamsvm.data.shared_runs import Run, draw_runs, read_runs
from streamsvm.data.shared_scratch import ScratchFile, SharedScratch
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.spill import SpilledRows
from streamsvm.data.stretches import Stretch, read_codes, read_stretch
from streamsvm.data.survey import Survey
from streamsvm.data.table_encoder import TableEncoder
from streamsvm.data.writer import Shape
from streamsvm.numeric.rows import F64, Rows
from streamsvm.numeric.scaling import FeatureStatistics, Scaling, StoredFeatures

WRITERS = 4  # chunks of a task that are written at once, each of another array


@dataclass(frozen=True)
class Source:
    """What all workers know of the files and of the shuffle.

    Attributes
    ----------
    name, kind : str
        What the rows are called in messages, and the format of the files.
    first : SourceRows
        The first row of all, which decides what the others are like.
    options : IngestOptions
        How the dataset is written.
    seed : int or None
        The seed of the shuffle; None keeps the order.
    n_runs : int
        Runs of the shuffle.
    scratch : SharedFolder or SharedObjects
        Where rows are set aside.
    step_aside : callable
        Lets a worker begin its next task, while the one that calls it waits for what it writes.
    encoder : TableEncoder or None
        The encoder of a table that has seen no rows, if columns are encoded.
    encoding : ScratchFile or None
        Where the encoding is, if it became known when all rows were read. Their codes are set aside then.
    anchor : ndarray or None
        What is subtracted from the features until they are scaled (data.rounding).
    """

    name: str
    kind: str
    first: SourceRows
    options: IngestOptions
    seed: int | None
    n_runs: int
    scratch: SharedScratch
    step_aside: Callable[[], None]
    encoder: TableEncoder | None = None
    encoding: ScratchFile | None = None
    anchor: F64 | None = None

    @property
    def is_dense(self) -> bool:
        """Whether the source has dense rows."""
        return isinstance(self.first.X, np.ndarray) and not (self.encoder is not None and self.encoder.is_sparse)


@dataclass(frozen=True)
class Plan:
    """How ranges of rows are written. survey: of all rows, without statistics."""

    source: Source
    survey: Survey
    shape: Shape
    scaling: Scaling | None
    arrays: Mapping[str, PlacedArray]


def set_stretch_aside(source: Source, stretch: Stretch, number: int, n_before: int) -> SetAside:
    """Set the rows of a stretch aside, which has this number; n_before: the pieces of all stretches before it.

    Nothing is done if a worker has set them aside already, and they are undamaged. Raises InputError for bad rows, and
    if the scratch folder is not there.
    """
    source.scratch.check()
    name = f"{number}-{n_before}"  # where n_before is found to be another, the rows go to other runs
    found = find_set_aside(source.scratch, name, Survey(MOST_CLASSES, None, source.options.regression))
    if found is None:
        found = _set_aside(source, _read(source, stretch, number), name, n_before)
        source.step_aside()
        found.segments.wait()
        record_set_aside(source.scratch, name, found)
    return found


def _read(source: Source, stretch: Stretch, number: int) -> Iterator[SourceRows]:
    """Yield the rows of a stretch with their features. What they are called does not travel: the driver knows it."""
    if source.encoder is None:
        yield from read_stretch(stretch, source.kind, source.first)
    elif source.encoding is not None:
        yield from read_coded(source.scratch, number, get_encoding(source.scratch, source.encoding))
    else:
        encoder, encoding = source.encoder.start_anew(), source.encoder.finish()
        for rows in read_codes(stretch, source.kind, encoder, has_number_labels(source.first)):
            assert isinstance(rows.X, np.ndarray)
            yield replace(rows, X=encode_features(rows.X, encoding))


def _set_aside(source: Source, pieces: Iterator[SourceRows], name: str, n_before: int) -> SetAside:
    """Begin to set the rows of a stretch aside in segments of this name, of which the last may be on its way."""
    survey = Survey(MOST_CLASSES, None, source.options.regression, anchor=source.anchor)
    n_runs = 1 if source.seed is None else source.n_runs
    segments = SegmentWriter(source.scratch, name, n_runs, source.options.layout == "sparse")
    statistics, n_pieces, hashes = list[StoredFeatures](), 0, list[int]()
    for rows in pieces:
        n_pieces += 1
        if source.options.scale != "none":
            survey.statistics = FeatureStatistics.start()
        X, vectors = survey.add(rows, source.name)
        if survey.statistics is not None:
            statistics.append(survey.statistics.keep_stored())
        if survey.texts:
            hashes += [hash_text(text) for text in islice(survey.texts, len(hashes), None)]
            vectors["label"] = np.array(hashes, np.uint64)[vectors["label"].astype(np.int64)]
        run = draw_runs(source.seed or 0, n_runs, n_before + n_pieces, rows.n_rows)
        segments.add(X, vectors, run)
    segments.flush()
    return SetAside(replace(survey, statistics=None), segments, n_pieces, tuple(statistics))


def write_range(plan: Plan, runs: Sequence[tuple[int, Run]], row: int, item: int) -> RangeWritten:
    """Write the rows of some runs, with their numbers; the first is row `row` of the dataset, and begins at `item`.

    Nothing is done if a worker has written them already, and all is undamaged.
    """
    name = f"written-{row}-{sum(run.n_rows for _, run in runs)}"
    written = find_range(plan.source.scratch, name, plan.arrays)
    if written is None:
        written = _write_range(plan, runs, row, item)
        record_range(plan.source.scratch, name, written)
    return written


def _write_range(plan: Plan, runs: Sequence[tuple[int, Run]], row: int, item: int) -> RangeWritten:
    n_rows, n_items = (sum(getattr(run, name) for _, run in runs) for name in ("n_rows", "n_items"))
    counts = np.zeros(len(plan.survey.list_classes()), np.int64)
    with ThreadPoolExecutor(WRITERS) as pool:
        scratch = plan.source.scratch
        writer = RangeWriter(plan.arrays, scratch, row, row + n_rows, item, item + n_items, pool)
        read = read_runs(scratch, [run for _, run in runs], plan.survey.texts)
        for number, run in runs:
            for prepared in _prepare(plan, number, run, next(read)):
                if prepared.y is not None:
                    counts += np.bincount(prepared.y, minlength=len(counts))
                writer.append(prepared)
        written = writer.finish()
    written.class_counts = counts
    return written


def _prepare(plan: Plan, number: int, run: Run, rows: SpilledRows) -> Iterator[Rows]:
    """Yield the rows of a run as they are stored, in their new order; number: of the run, among all."""
    order, step = np.arange(run.n_rows), count_part_rows(plan.shape)
    if plan.source.seed is not None:
        order = np.random.default_rng((plan.source.seed, 2, number)).permutation(run.n_rows)
    for mine in np.split(order, range(step, run.n_rows, step)):
        yield prepare_rows(rows, mine, plan.survey, plan.shape, plan.scaling, plan.source.name)
