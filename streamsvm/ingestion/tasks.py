"""The tasks of an ingest on workers: they encode stretches of tables, spool rows, and write ranges of the rows.

Each task records its result among the scratch files (`do_once`). If the task is sent again, or if a killed ingest is
resumed, the recorded result is used.

If the encoding of a table depends on all rows, their codes are spooled first. The categories are numbered separately in
each stretch. The driver adds up the statistics of all pieces in the order of the files; therefore sums are rounded as
in one process.

A stretch is a sequence of blocks of a file, cut as one process would cut them. Where a block begins depends on the text
before it, for example on a long line, a quoted line end or a comment. Therefore one worker scans the whole file, and
records where its blocks begin. Afterwards, any worker can read any stretch. A file that is compressed, or that is in an
object store, can be read only from its beginning, and is a single stretch. Parquet is cut into pieces of rows.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from streamsvm.data.rows.source import SourceRows
from streamsvm.data.sources import csv, svmlight, text
from streamsvm.data.sources.arrow import cut_parquet, open_range
from streamsvm.data.sources.dask_collections import thread_given_up
from streamsvm.data.sources.formats import COMPRESSED
from streamsvm.data.sources.table_stream import read_pieces
from streamsvm.data.store.shared_files import SharedScratch, find_record, pack_record, read_record
from streamsvm.data.tables.checks import has_number_labels
from streamsvm.data.tables.columns import Columns, TableLayout, lay_out
from streamsvm.data.tables.encoder import (
    PieceStatistics,
    TableEncoder,
    encode_features,
    rank_categories,
    sort_categories,
)
from streamsvm.ingestion import segments, write
from streamsvm.ingestion.ingest import IngestOptions, Survey, count_part_rows, prepare_rows
from streamsvm.ingestion.segments import Run, Segments
from streamsvm.numeric.encoding import Encoding, read_encoding
from streamsvm.numeric.rows import F64
from streamsvm.numeric.stored_types import FeatureStatistics, Scaling, StoredFeatures
from streamsvm.system.errors import InputError, IntegrityError
from streamsvm.system.files import is_remote

BLOCK_BYTES = 8 << 20  # the size of blocks in svmlight.read_svmlight and csv.open_csv, too
STRETCH_BLOCKS = 4
KINDS = ("svmlight", "csv", "parquet")


@dataclass(frozen=True)
class Stretch:
    """Consecutive blocks of a file.

    Attributes
    ----------
    path : str
        The file.
    starts : tuple of int
        The start of each block, and the end of the last block, in bytes of the text; for Parquet, in rows.
    line : int
        The number of lines of the file before the first block.
    n_pieces : int
        The number of blocks with rows.
    ends : bool
        Whether the file ends with this stretch.
    layout : TableLayout or None
        The columns, if the file is a table.
    failure : str
        The fault that ends the file, as a complete message. It is raised when the stretch is read.
    """

    path: str
    starts: tuple[int, ...]
    line: int
    n_pieces: int
    ends: bool
    layout: TableLayout | None = None
    failure: str = ""


def cut_file(path: str, kind: str, columns: Columns, encoded: bool) -> list[Stretch]:
    """Return the stretches of a file in order. A fault becomes the failure of the last stretch.

    encoded: whether the columns of a table are encoded.
    """
    block_bytes = csv.CODED_BLOCK_BYTES if encoded and kind == "csv" else BLOCK_BYTES
    found, failure = list[Stretch](), ""  # each stretch here is a single block
    try:
        if kind == "svmlight":
            found.extend(_find_lines(path))  # if an error is raised, `found` has the blocks before the fault
        elif kind == "parquet":
            layout, starts = cut_parquet(path, columns)
            found = [Stretch(path, limits, limits[0], 1, False, layout) for limits in pairwise(starts)]
        else:
            found.extend(_find_tables(path, columns, block_bytes))
    except InputError as error:
        failure = str(error)
    if not found and not failure:
        failure = f"{path}: no rows"
    is_whole = is_remote(path) or Path(path).suffix.lower() in COMPRESSED
    step = len(found) if is_whole and found else STRETCH_BLOCKS * (BLOCK_BYTES // block_bytes)
    stretches = list[Stretch]()
    for at in range(0, len(found), step):
        part = found[at : at + step]
        limits = (*(each.starts[0] for each in part), part[-1].starts[1])
        n_pieces, ends = sum(each.n_pieces for each in part), at + step >= len(found)
        stretches.append(replace(part[0], starts=limits, n_pieces=n_pieces, ends=ends))
    if failure:
        stretches.append(Stretch(path, (0,), 0, 0, True, found[-1].layout if found else None, failure))
    return stretches


def _find_lines(path: str) -> Iterator[Stretch]:
    """Yield each block of svmlight text as a stretch. Raises InputError for a fault, after the blocks before it."""
    start = -1
    for block in svmlight.read_blocks([path], BLOCK_BYTES, svmlight.MAX_LINE_BYTES):
        start = block.start if start < 0 else start
        end = start + len(block.text) - block.last
        yield Stretch(path, (start, end), block.line, int(_has_rows(block.text)), False)
        start = end


def _find_tables(path: str, columns: Columns, block_bytes: int) -> Iterator[Stretch]:
    """Yield each block of CSV as a stretch."""
    with csv.open_csv(path, columns, None, block_bytes) as opened, closing(opened.cut(True)) as blocks:
        start = opened.begin
        for table in blocks:
            end = start + len(table.text) - 1
            yield Stretch(path, (start, end), table.line - 1, int(bool(table.text.strip())), False, opened.layout)
            start = end


def _has_rows(content: np.ndarray) -> bool:
    """Return whether svmlight text contains rows, rather than only blanks and comments."""
    return any(line.split(b"#", 1)[0].strip() for line in io.BytesIO(content.tobytes()))


def read_stretch(
    stretch: Stretch, kind: str, first: SourceRows, encoder: TableEncoder | None = None, base: int = 1
) -> Iterator[SourceRows]:
    """Yield the rows of a stretch. With an encoder, X holds the codes that the encoder returns, instead of features.

    first: the first row of the first file; all rows must have the same fields. base: the number of the first feature in
    svmlight text. Raises InputError with file, line or row, column and reason.
    """
    if stretch.failure:
        raise InputError(stretch.failure)
    if kind == "svmlight":
        rule = svmlight.QID_ABSENT if first.qid is None else svmlight.QID_PRESENT
        yield from svmlight.parse_blocks(_read_blocks(stretch), 1, False, rule, base)
        return
    assert stretch.layout is not None
    numbers = has_number_labels(first)
    if kind == "parquet":
        with open_range(stretch.path, stretch.layout, stretch.starts) as pieces:
            yield from read_pieces(pieces, encoder, numbers, 1)
    else:
        yield from read_pieces(_read_blocks(stretch), encoder, numbers, 1)


def _read_blocks(stretch: Stretch) -> Iterator[Any]:
    """Yield the blocks of a stretch of text, each as the block that the reader of its format would yield."""
    line = stretch.line
    try:
        with text.open_text(stretch.path) as file:
            if file.seekable():
                file.seek(stretch.starts[0])
            else:
                file.read(stretch.starts[0])  # the byte order mark and the header
            for k, (start, end) in enumerate(pairwise(stretch.starts), 2):
                content = bytearray(text.read_bytes(file, end - start))
                if len(content) < end - start:
                    raise InputError(f"{stretch.path}: the file was truncated while it was read; ingest it again")
                ends = stretch.ends and k == len(stretch.starts)
                content += b"\n" * (ends or stretch.layout is not None)
                if stretch.layout is None:
                    block: Any = svmlight.Block(stretch.path, np.frombuffer(content, np.uint8), line)
                else:
                    block = csv.Block(stretch.layout, content, 1 + line)
                yield block
                line += block.n_lines
    except text.READING_ERRORS as error:
        raise InputError(f"{stretch.path}: {text.explain_reading(error)}") from error


def require_same_columns(plans: Sequence[list[Stretch]], columns: Columns) -> None:
    """Replace all stretches of a file by one failed stretch if its columns differ from those of the first file."""
    names: tuple[str, ...] | None = None
    for plan in plans:
        layout = plan[0].layout
        if layout is None:
            continue
        try:
            lay_out(layout.own_names, plan[0].path, columns, names, layout.dialect)
        except InputError as error:
            plan[:] = [Stretch(plan[0].path, (0,), 0, 0, True, layout, str(error))]
        names = names or layout.names


Result = TypeVar("Result")
FILE_BYTES = 32 << 20  # the bytes of codes in a scratch file
ENCODING = "encoding"  # the name of the scratch file with the encoding of the table
WRITERS = 4  # the number of threads with which a task writes chunks, each of another array


@dataclass(frozen=True)
class Source:
    """The facts about the files and the shuffle that all workers receive.

    Attributes
    ----------
    name, kind : str
        The name of the rows in messages, and the format of the files.
    first : SourceRows
        The first row of the first file. All rows must have the same fields, and labels of the same type.
    options : IngestOptions
        Options of the dataset.
    seed : int or None
        The seed of the shuffle; None keeps the order.
    n_runs : int
        The number of runs of the shuffle.
    scratch : SharedFolder or SharedObjects
        The scratch files, to which rows are spooled.
    encoder : TableEncoder or None
        The encoder of a table, if columns are encoded. It knows the kinds of the columns; no rows were added to it.
    is_coded : bool
        Whether codes have been spooled, because the encoding depends on all rows. The encoding is then a record among
        the scratch files.
    anchor : ndarray or None
        The value that is subtracted from each feature until rows are scaled (see numeric.stored_types).
    """

    name: str
    kind: str
    first: SourceRows
    options: IngestOptions
    seed: int | None
    n_runs: int
    scratch: SharedScratch
    encoder: TableEncoder | None = None
    is_coded: bool = False
    anchor: F64 | None = None


@dataclass(frozen=True)
class Plan:
    """The facts that all tasks need to write ranges of rows. survey: the survey of all rows, without statistics."""

    source: Source
    survey: Survey
    shape: write.Shape
    scaling: Scaling | None
    arrays: Mapping[str, write.PlacedArray]


def do_once(scratch: SharedScratch, name: str, work: Callable[[], Result], check: Callable[[Any], None]) -> Result:
    """Return the result recorded under a name. If there is none, call `work`, and record its result.

    check: a function that raises IntegrityError if files of the recorded result are missing or damaged; `work` is then
    called again. Raises InputError if the scratch folder does not exist.
    """
    scratch.check()
    found: Result | None = find_record(scratch, name, RECORDED)
    with suppress(IntegrityError):
        if found is not None:
            check(found)
            return found
    made = work()
    scratch.keep(name, pack_record(made))
    return made


@dataclass(frozen=True)
class CodedStretch:
    """The result of spooling the codes of a stretch.

    pieces: the statistics of each piece. n_files: the number of scratch files with the codes. failure: the fault that
    ends the stretch, as a complete message; "" without a fault.
    """

    pieces: tuple[PieceStatistics, ...]
    n_files: int
    failure: str = ""


def code_stretch(source: Source, stretch: Stretch, number: int) -> CodedStretch:
    """Spool the codes of a stretch. number: the number of the stretch."""
    name, scratch = f"codes-{number}", source.scratch
    return do_once(scratch, name, partial(_code, source, stretch, name), partial(_check_codes, scratch, name))


def _check_codes(scratch: SharedScratch, name: str, coded: CodedStretch) -> None:
    """Raise IntegrityError if codes are damaged or missing, or the stretch had a fault. The task is then repeated."""
    if coded.failure:
        raise IntegrityError(coded.failure)
    for _ in _read_codes(scratch, name, coded):
        pass


def _code(source: Source, stretch: Stretch, name: str) -> CodedStretch:
    """Write the codes of a stretch to files whose names begin with `name`."""
    assert source.encoder is not None
    encoder, waiting, n_files, failure = source.encoder.start_anew(), list[SourceRows](), 0, ""

    def flush() -> None:
        nonlocal n_files
        content = pack_record(waiting)
        source.scratch.put(f"{name}-{n_files}", [content], len(content))
        n_files += 1
        waiting.clear()

    try:
        for rows in read_stretch(stretch, source.kind, source.first, encoder):
            waiting.append(replace(rows, row_names=None))
            if sum(each.X.nbytes for each in waiting) >= FILE_BYTES:
                flush()
    except InputError as error:  # the driver reports it, since earlier tasks may find faults in earlier rows
        failure = str(error)
    if waiting and not failure:
        flush()
    assert encoder.pieces is not None
    return CodedStretch(tuple(encoder.pieces), n_files, failure)


def read_coded(scratch: SharedScratch, number: int, encoding: Encoding) -> Iterator[SourceRows]:
    """Yield the rows of a spooled stretch with their features. Raises IntegrityError if the codes are damaged."""
    name = f"codes-{number}"
    coded: CodedStretch = read_record(scratch, name, RECORDED)
    known: dict[int, list[str]] = {k: [] for k, column in enumerate(encoding.columns) if column.kind == "one_hot"}
    for piece in coded.pieces:
        for k, texts in piece.texts.items():
            known[k] += texts
    ranks = rank_categories(known, encoding)
    for rows in _read_codes(scratch, name, coded):
        yield replace(rows, X=encode_features(sort_categories(rows.X, ranks), encoding))


def _read_codes(scratch: SharedScratch, name: str, coded: CodedStretch) -> Iterator[SourceRows]:
    for k in range(coded.n_files):
        yield from read_record(scratch, f"{name}-{k}", RECORDED)


@dataclass(frozen=True)
class SpooledStretch:
    """The result of spooling the rows of a stretch.

    statistics: the statistics of each piece, if features are scaled.
    """

    survey: Survey
    segments: Segments
    n_pieces: int
    statistics: tuple[StoredFeatures, ...]


def spool_stretch(source: Source, stretch: Stretch, number: int, n_before: int) -> SpooledStretch:
    """Spool the rows of a stretch.

    number: the number of the stretch. n_before: the number of pieces in all earlier stretches. Raises InputError for
    bad rows, and if the scratch folder does not exist.
    """
    name, scratch = f"{number}-{n_before}", source.scratch  # n_before determines the runs of the rows
    work = partial(_spool, source, _read(source, stretch, number), name, n_before)
    return do_once(scratch, f"set-aside-{name}", work, lambda spooled: segments.check(scratch, spooled.segments))


def _read(source: Source, stretch: Stretch, number: int) -> Iterator[SourceRows]:
    """Yield the rows of a stretch with their features, but without feature names, which the driver has."""
    if source.encoder is None:
        base = (source.options.read_as or {}).get("base", 1)
        yield from read_stretch(stretch, source.kind, source.first, base=base)
    elif source.is_coded:
        yield from read_coded(source.scratch, number, read_encoding(read_record(source.scratch, ENCODING, ())))
    else:
        encoder, encoding = source.encoder.start_anew(), source.encoder.finish()
        for rows in read_stretch(stretch, source.kind, source.first, encoder):
            yield replace(rows, X=encode_features(rows.X, encoding))


def _spool(source: Source, pieces: Iterator[SourceRows], name: str, n_before: int) -> SpooledStretch:
    """Spool the rows of a stretch to segments whose names begin with `name`."""
    survey = Survey(source.name, source.options, anchor=source.anchor)
    n_runs = 1 if source.seed is None else source.n_runs
    writer = segments.SegmentWriter(source.scratch, name, n_runs, source.options.layout == "sparse")
    statistics, n_pieces, hashes = list[StoredFeatures](), 0, list[int]()
    for rows in pieces:
        n_pieces += 1
        if source.options.scale != "none":
            survey.statistics = FeatureStatistics.start()
        X, vectors = survey.add(rows)
        if survey.statistics is not None:
            statistics.append(survey.statistics.keep_stored())
        if survey.texts:
            hashes += [segments.hash_text(label) for label in islice(survey.texts, len(hashes), None)]
            vectors["label"] = np.array(hashes, np.uint64)[vectors["label"].astype(np.int64)]
        run = segments.draw_runs(source.seed or 0, n_runs, n_before + n_pieces, rows.n_rows)
        writer.add(X, vectors, run)
    writer.flush()
    with thread_given_up():  # the worker can start another task while this task waits for its writes
        found = writer.finish()
    return SpooledStretch(replace(survey, statistics=None, anchor=None), found, n_pieces, tuple(statistics))


def write_range(plan: Plan, runs: Sequence[tuple[int, Run]], row: int, item: int) -> write.RangeWritten:
    """Write runs to the dataset, from row `row` and item `item` on. runs: each run with its number."""
    name = f"written-{row}-{sum(run.n_rows for _, run in runs)}"
    work = partial(_write_range, plan, runs, row, item)
    return do_once(plan.source.scratch, name, work, partial(_check_range, plan))


def _check_range(plan: Plan, written: write.RangeWritten) -> None:
    """Raise IntegrityError if a chunk or a fragment of a range is missing or damaged."""
    for name, chunks in written.stored.items():
        if not all(plan.arrays[name].holds(index, chunk.checksum) for index, chunk in chunks.items()):
            raise IntegrityError(f"{name}: a chunk is missing or damaged")
        for _ in write.read_fragments(plan.arrays[name], plan.source.scratch, [*written.fragments[name].values()]):
            pass


def _write_range(plan: Plan, runs: Sequence[tuple[int, Run]], row: int, item: int) -> write.RangeWritten:
    n_rows, n_items = (sum(getattr(run, name) for _, run in runs) for name in ("n_rows", "n_items"))
    with ThreadPoolExecutor(WRITERS) as pool:
        scratch, code = plan.source.scratch, plan.survey.make_coder()
        limits = (row, row + n_rows), (item, item + n_items)
        writer = write.RangeWriter(plan.arrays, *limits, pool, scratch, plan.shape.n_classes)
        read = segments.read_runs(scratch, [run for _, run in runs], plan.survey.texts)
        for (number, run), rows in zip(runs, read, strict=True):
            order, step = segments.draw_order(plan.source.seed, number, run.n_rows), count_part_rows(plan.shape)
            for mine in np.split(order, range(step, run.n_rows, step)):
                writer.append(prepare_rows(rows, mine, plan.survey, code, plan.shape, plan.scaling))
        return writer.finish()


RECORDED = (  # the types that occur in recorded results of tasks
    *(CodedStretch, PieceStatistics, SourceRows),
    *(SpooledStretch, Survey, IngestOptions, StoredFeatures, FeatureStatistics),
    *(Segments, segments.Segment, segments.Column),
    *(write.RangeWritten, write.StoredChunk, write.Fragment),
)
