"""Ingest on the workers of a cluster: workers read, shuffle and write the rows; the driver writes the manifest last.

The driver sends tasks (ingestion.tasks) by `map_tasks`. For each file, a task finds where the blocks of the file begin.
Further tasks read stretches of blocks and spool their rows to segments. Finally, tasks permute the rows of runs, and
write each run to its position in the dataset. The scratch files are inside the new dataset, in a folder or in an object
store. If the encoding of a table depends on all rows, tasks first spool the codes of all rows.

For any number of workers, the dataset has the same bytes as a dataset that `ingestion.ingest` writes. If the driver is
killed, no dataset appears at the destination. A record among the scratch files holds the input, the options and the
software versions. The next ingest compares this record with its own record, and resumes the work or removes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm import __version__
from streamsvm.data.open import open_dataset
from streamsvm.data.remote.files import find_state
from streamsvm.data.rows.source import SourceRows
from streamsvm.data.sources.parsing import ROWS, compile_parser
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.destination import Upload, open_destination, remove_unfinished
from streamsvm.data.store.shared_files import SPILL_FOLDER, IngestRecord, SharedFolder, SharedScratch, pack_record
from streamsvm.data.tables.columns import Columns, find_folders, show_name
from streamsvm.data.tables.encoder import TableEncoder, encode_features, rank_categories, sort_categories
from streamsvm.engines.cluster.engine import map_on_workers
from streamsvm.engines.cluster.open import open_workers
from streamsvm.ingestion import ingest, segments, tasks
from streamsvm.ingestion.ingest import IngestOptions, Report, Survey
from streamsvm.ingestion.readers import (
    describe_syntax,
    encode_as,
    guess_bytes,
    join_names,
    list_files,
    open_codes,
    settle_format,
)
from streamsvm.ingestion.segments import RUN_BYTES, Run, Segments, list_runs
from streamsvm.ingestion.tasks import Source, Stretch, spool_stretch, write_range
from streamsvm.ingestion.write import DatasetWriter, MapTasks
from streamsvm.numeric.encoding import Encoding
from streamsvm.numeric.stored_types import FeatureStatistics
from streamsvm.system.errors import InputError, ReadError
from streamsvm.system.files import is_remote, refuse_inputs, remove_shared_folder
from streamsvm.system.interrupts import caught

if TYPE_CHECKING:
    from distributed import Client


def find_encoding(
    map_tasks: MapTasks, source: Source, stretches: Sequence[Stretch], paths: Sequence[str]
) -> tuple[Source, Encoding | None]:
    """Determine the encoding of a table, on workers if it depends on all rows.

    Return the source, which records whether codes were spooled, and the encoding (None if no column is encoded).
    """
    if source.encoder is None:
        return source, None
    if source.encoder.is_known:
        return source, source.encoder.finish()
    unread = replace(source, encoder=source.encoder.start_anew())
    calls = [(unread, stretch, k) for k, stretch in enumerate(stretches)]
    n_in_file = 0
    for stretch, one in zip(stretches, map_tasks("reading the files", tasks.code_stretch, calls), strict=True):
        for piece in one.pieces:
            source.encoder.join(piece)
            n_in_file += piece.n_rows
        if one.failure:
            raise InputError(one.failure)
        n_in_file = require_rows(source, stretch, n_in_file)
    encoding = source.encoder.finish()
    source.encoder.tell_many(", ".join(map(show_name, paths)))
    source.scratch.keep(tasks.ENCODING, pack_record(encoding.as_json()))  # as a record, since it would make tasks large
    return replace(unread, is_coded=True), encoding


def require_rows(source: Source, stretch: Stretch, n_in_file: int) -> int:
    """Raise InputError if a file ends without rows. Return the row count with which the next stretch starts.

    n_in_file: the number of rows in this stretch and in the earlier stretches of its file.
    """
    if stretch.ends and not n_in_file:
        raise InputError(f"{stretch.path}: no rows" + " in this file" * (source.kind == "svmlight"))
    return 0 if stretch.ends else n_in_file


def refuse_equal_hashes(texts: Iterable[str]) -> None:
    """Raise InputError if two labels have the same hash."""
    names: dict[int, str] = {}
    for text in texts:
        other = names.setdefault(segments.hash_text(text), text)
        if other != text:
            refused = f"the labels {other!r} and {text!r} have the same hash, so workers cannot distinguish them"
            raise InputError(f"{refused}; rename one, or omit --workers and --scheduler")


FREE = ("overwrite", "append")  # options that do not affect the bytes of the dataset


def describe_ingest(paths: list[str], columns: Columns, options: IngestOptions, shuffle: tuple[Any, ...]) -> Any:
    """Return the facts about an ingest that must be the same if another ingest resumes it.

    Raises InputError for a missing file. shuffle: the format of the files, the seed of the shuffle, and its number of
    runs, which depends on the file sizes.
    """
    about = {
        "sources": [[path, *_find_state(path)] for path in paths],
        "columns": asdict(columns),
        "options": {name: value for name, value in asdict(options).items() if name not in FREE},
        "shuffle": shuffle,
        "versions": [__version__, np.__version__],
    }
    return json.loads(json.dumps(about))


def _find_state(path: str) -> tuple[Any, ...]:
    """Return facts that change with the content of a file: its size, and its modification time or version."""
    try:
        if is_remote(path):
            return find_state(path)
        found = os.stat(path)
    except OSError as error:
        raise ReadError(f"{path}: cannot be read: {error.strerror or error}") from error
    return found.st_size, found.st_mtime_ns


CHUNKS_TOGETHER = 4  # the number of chunks that one task writes; it may share its first and last chunk with others


def write_on_workers(
    map_tasks: MapTasks, source: Source, survey: Survey, written: Segments, place: Path | Upload
) -> None:
    """Let workers write all rows, and then write the manifest."""
    options, scaling = source.options, survey.find_scaling()
    is_dense = isinstance(source.first.X, np.ndarray) and not (source.encoder and source.encoder.encoding.is_sparse)
    shape, fields = ingest.find_shape(survey, is_dense, scaling)
    runs = list_runs(map_tasks, source.scratch, source.seed, written, options.layout == "sparse")
    writer = DatasetWriter(place, shape, fields, options.chunk_bytes, options.codec, shard_bytes=options.shard_bytes)
    known = replace(survey, statistics=None, feature_names=None, encoding=None)  # tasks do not need these
    plan = tasks.Plan(source, known, shape, scaling, writer.arrays)
    ranges = list(map_tasks("writing the dataset", write_range, _assign_runs(plan, runs)))
    writer.seal(ranges, source.scratch, map_tasks)
    writer.finish(ingest.describe_rows(source.seed, survey), scaling, ranges=ranges)


def _assign_runs(plan: tasks.Plan, runs: list[Run]) -> list[tuple[Any, ...]]:
    """Return the arguments of `write_range` for each task: the plan, numbered runs, and their first row and item."""
    calls, shape = list[tuple[Any, ...]](), plan.shape
    wanted = CHUNKS_TOGETHER * (plan.source.options.chunk_bytes or shape.chunk_bytes())
    nbytes, row, item = wanted, 0, 0
    for number, run in enumerate(runs):
        if not run.n_rows:
            continue
        if nbytes >= wanted:
            calls.append((plan, [], row, item))
            nbytes = 0
        calls[-1][1].append((number, run))
        nbytes += 8 * run.n_items if shape.sparse else 4 * shape.n_features * run.n_rows
        row, item = row + run.n_rows, item + run.n_items
    return calls


REMEDY = "or use a smaller --chunk-bytes"


def ingest_on_workers(
    sources: Sequence[str | Path],
    destination: str | Path,
    columns: Columns,
    options: IngestOptions,
    *,
    file_format: str | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    client: Client | None = None,
    memory_bytes: int | str | None = None,
    resume: bool = False,
    report: Report = lambda _: None,
) -> Dataset:
    """Write files of svmlight text, CSV, TSV or Parquet as a dataset on the workers of a cluster, and open it.

    Parameters
    ----------
    sources : sequence of str or Path
        Files, patterns and folders. Every worker must be able to read them under the same names.
    destination : str or Path
        A folder on a file system that all workers share, or a URL in an object store.
    columns : Columns
        The roles of a table's columns.
    options : IngestOptions
        Options of the dataset.
    file_format : {"svmlight", "csv", "tsv", "parquet"}, optional
        The format of the files. By default it is determined as by `ingest`.
    workers : int, optional
        The number of worker processes to start on this machine.
    scheduler : str, optional
        The address of a running cluster, instead of `workers`.
    client : distributed.Client, optional
        A client of a running cluster, instead of both.
    memory_bytes : int or str, optional
        The maximum memory of one process, in bytes or as text ("2GB") (default: half of the machine's memory).
    resume : bool
        Whether to resume an ingest of the same files that was killed or lost its cluster. If nothing is left of it, the
        ingest starts from the beginning.
    report : callable, optional
        Called with the number of rows read so far.

    Raises
    ------
    InputError
        For bad input, with file, line, column and reason. Nothing is left at the destination, with one exception: the
        remains of a killed ingest stay there if a file has changed since.
    MemoryBudgetError
        If a worker would need more memory than `memory_bytes`.
    ConnectionError
        If the cluster is lost. Finished work stays at the destination, and `resume` can use it.
    """
    ingest.check_options(options)
    columns = encode_as(columns, None, options.regression)
    paths, name = [str(path) for path in list_files(sources)], join_names(sources)
    columns = replace(columns, folders=find_folders(sources, paths, columns.features))
    if (scheduler, client) != (None, None):  # workers of a running cluster have other working directories
        paths = [path if is_remote(path) or path == "-" else str(Path(path).absolute()) for path in paths]
    kind, columns = _require_readable(paths, name, columns, options.append, file_format)
    options = replace(options, label_column=columns.label, qid_column=columns.qid)
    options = replace(options, read_as=describe_syntax(columns, file_format))
    refuse_inputs(destination, paths)
    piece, encoder = first = _read_first(paths, kind, columns)
    seed = None if piece.qid is not None else options.shuffle
    n_runs = max(1, -(-guess_bytes(paths) // RUN_BYTES))
    about = describe_ingest(paths, columns, options, (kind, seed, n_runs))
    record = IngestRecord(str(destination), about, resume)
    with (
        caught(),
        _new_place(destination, options.overwrite, record) as (place, scratch),
        open_workers(
            load=partial(compile_parser, kind, ROWS, *["hash"] * (columns.hash_bits is not None)),
            need_bytes=ingest.count_bytes(columns, options, is_remote(destination)),
            budget_bytes=memory_bytes,
            workers=workers,
            scheduler=scheduler,
            client=client,
            remedy=REMEDY,
        ) as reached,
    ):
        map_tasks = partial(map_on_workers, reached)
        record.begin(scratch)
        again = None if encoder is None else encoder.start_anew()
        source = Source(name, kind, _take_row(piece), options, seed, n_runs, scratch, again)
        source, survey, written = _read(map_tasks, source, paths, columns, first, report)
        write_on_workers(map_tasks, source, survey, written, place)
    return open_dataset(destination)


def _read(
    map_tasks: MapTasks, source: Source, paths: list[str], columns: Columns, first: First, report: Report
) -> tuple[Source, Survey, Segments]:
    """Let workers spool all rows. Return the completed source, the survey of the rows, and their segments.

    first: the first piece of rows, and the encoder that read it (see `_read_first`).
    """
    piece, encoder = first
    calls = [(path, source.kind, columns, source.encoder is not None) for path in paths]
    plans = list(map_tasks("looking through the files", tasks.cut_file, calls))
    tasks.require_same_columns(plans, columns)
    stretches = [stretch for plan in plans for stretch in plan]
    source, encoding = find_encoding(map_tasks, source, stretches, paths)
    if encoding is not None and encoder is not None:
        codes = sort_categories(piece.X, rank_categories(encoder.known, encoding))
        piece = replace(piece, X=encode_features(codes, encoding), feature_names=encoding.feature_names)
    survey = Survey(source.name, source.options, FeatureStatistics.start())
    survey.choose_anchor(piece)
    source = replace(source, anchor=survey.anchor)
    written = _spool(map_tasks, source, stretches, survey, report)
    if encoding is not None:
        survey.feature_names = encoding.feature_names
        survey.encoding = None if encoding.is_plain else encoding
    ingest.check_survey(survey)
    refuse_equal_hashes(survey.texts)
    return source, survey, written


@contextmanager
def _new_place(
    destination: str | Path, overwrite: bool, record: IngestRecord
) -> Iterator[tuple[Path | Upload, SharedScratch]]:
    """Yield the folder or upload to which the dataset is written, and the access to its scratch files."""
    place = destination if is_remote(destination) else Path(destination).absolute()
    with open_destination(place, overwrite, record) as folder:
        if isinstance(folder, Upload):
            yield folder, folder.scratch
            return
        scratch = folder / SPILL_FOLDER
        scratch.mkdir(exist_ok=record.goes_on_with_another)
        remove_unfinished(folder)
        yield folder, SharedFolder(scratch)
        remove_shared_folder(scratch, scratch)


def _require_readable(
    paths: list[str], name: str, columns: Columns, append: bool, file_format: str | None
) -> tuple[str, Columns]:
    """Return the format and the syntax of the files. Raises InputError for input that workers do not support yet."""
    kind, columns = settle_format(paths, file_format, columns)
    alone = "one process can: omit --workers and --scheduler (client in Python)"
    if kind not in tasks.KINDS:
        raise InputError(f"{name}: workers cannot read files other than svmlight text, CSV, TSV and Parquet; {alone}")
    if "-" in paths:
        raise InputError(f"<stdin>: workers cannot read standard input; {alone}")
    if append:
        raise InputError(f"{name}: workers cannot append rows to a dataset; {alone}")
    if columns.multi_label:
        raise InputError(f"{name}: workers cannot read lists of labels; {alone}")
    return kind, columns


First = tuple[SourceRows, TableEncoder | None]


def _read_first(paths: list[str], kind: str, columns: Columns) -> First:
    """Return the first piece of rows, and the encoder, which has decided the kinds of the columns by this piece.

    The encoder is None if no column is encoded. Raises InputError for a fault in the first rows.
    """
    pieces, encoder = open_codes(paths, kind, columns)
    with closing(pieces):  # type: ignore[type-var]
        rows = next(pieces)
    return rows, None if encoder is None or not encoder.encoding.columns else encoder


def _take_row(rows: SourceRows) -> SourceRows:
    """Return the first row of a piece, without the name of the row."""
    vectors = {each: getattr(rows, each) for each in ("labels", "qid", "sample_weight", "groups")}
    known = {each: values[:1] for each, values in vectors.items() if values is not None}
    return replace(rows, X=rows.X[:1], row_names=None, **known)


def _spool(map_tasks: MapTasks, source: Source, stretches: list[Stretch], survey: Survey, report: Report) -> Segments:
    """Let workers spool all rows, and add the rows to the survey.

    The run to which a row goes depends on the number of pieces before it. If a block has more pieces than expected
    (because its labels are long), all later stretches are spooled again.
    """
    again, written, n_pieces, n_in_file = list[tuple[Any, ...]](), list[Segments](), 0, 0
    expected = [0, *np.cumsum([stretch.n_pieces for stretch in stretches]).tolist()][: len(stretches)]
    calls = [(source, stretch, k, expected[k]) for k, stretch in enumerate(stretches)]
    set_aside = map_tasks("reading the files", spool_stretch, calls)
    for k, (stretch, one) in enumerate(zip(stretches, set_aside, strict=True)):
        survey.merge(one.survey)
        assert survey.statistics is not None
        for statistics in one.statistics:
            survey.statistics.merge(statistics)
        if one.statistics:
            survey.statistics.grow(survey.n_features)
        n_in_file += one.survey.n_rows
        n_in_file = require_rows(source, stretch, n_in_file)
        if source.seed is None or n_pieces == expected[k]:
            written.append(one.segments)
        else:
            again.append((source, stretch, k, n_pieces))
        n_pieces += one.n_pieces
        report(survey.n_rows)
    written += [one.segments for one in map_tasks("reading the files", spool_stretch, again)]
    whole = reduce(add, written)
    whole.segments.sort(key=lambda each: int(each.name.partition("-")[0]))  # in the order of the stretches
    return whole
