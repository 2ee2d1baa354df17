"""Ingest on the workers of a cluster: files are read, shuffled and written by all of them, and the manifest comes last.

One worker for each file notes where its blocks begin. Workers then read stretches of blocks and set their rows aside in
runs, in scratch files within the new dataset, be it a folder or in an object store; and then each of them permutes some
runs and writes them at their places. The dataset has the bytes of `data.ingest`, for any number of workers. If the
driver is killed, there is no dataset at the destination. The next ingest goes on with what is left (`resume`), or
removes it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data import arrow_tables, csv_table
from streamsvm.data.column_roles import encode_as
from streamsvm.data.compilation import compile_ingest
from streamsvm.data.dataset import Dataset
from streamsvm.data.destination import new_folder, remove_unfinished
from streamsvm.data.encoded_rows import encode_features
from streamsvm.data.folders import find_folders
from streamsvm.data.formats import guess_format
from streamsvm.data.ingest import MOST_CLASSES, Report, join_names
from streamsvm.data.ingest_options import IngestOptions, check_options
from streamsvm.data.object_file import AHEAD_BYTES
from streamsvm.data.object_writer import PUT_BYTES
from streamsvm.data.open_dataset import open_dataset
from streamsvm.data.readers import guess_bytes, open_codes, open_files
from streamsvm.data.rounding import look_at_features
from streamsvm.data.segments import refuse_equal_hashes
from streamsvm.data.shared_ingest import Source, set_stretch_aside
from streamsvm.data.shared_runs import Inventory
from streamsvm.data.shared_scratch import SPILL_FOLDER, SharedFolder, SharedScratch
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.sources import list_files
from streamsvm.data.spill import RUN_BYTES
from streamsvm.data.stretches import KINDS, Stretch, cut_file, require_same_columns
from streamsvm.data.survey import Survey, check_survey
from streamsvm.data.table_encoder import TableEncoder
from streamsvm.data.tables import Columns
from streamsvm.data.upload import Upload, new_upload
from streamsvm.data.writer import LARGEST_CHUNK_BYTES
from streamsvm.engines.errands import carry_out, open_workers, step_aside
from streamsvm.errors import InputError
from streamsvm.files import refuse_inputs
from streamsvm.interrupts import caught
from streamsvm.numeric.scaling import FeatureStatistics
from streamsvm.training.encode_on_workers import find_encoding, note_encoding, require_rows
from streamsvm.training.ingest_record import IngestRecord, describe_ingest
from streamsvm.training.write_on_workers import write_on_workers
from streamsvm.urls import is_remote

if TYPE_CHECKING:
    from distributed import Client

REMEDY = "or use a smaller --chunk-bytes"
SCALED_BYTES = 72  # of a hashed feature: five statistics, two sums of a piece, and the scaling, float64 each


def ingest_on_workers(
    sources: Sequence[str | Path],
    destination: str | Path,
    columns: Columns,
    options: IngestOptions,
    *,
    file_format: str | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    memory_bytes: int | None = None,
    resume: bool = False,
    report: Report = lambda _: None,
) -> Dataset:
    """Write files of svmlight text, CSV, TSV or Parquet as a dataset, by the workers of a cluster, and open it.

    Parameters
    ----------
    sources : sequence of str or Path
        Files, patterns and folders. Every worker must find them under these names.
    destination : str or Path
        Where the dataset is written: a folder on a file system that all workers share, or a URL in an object store.
    columns : Columns
        The roles of a table's columns.
    options : IngestOptions
        How the dataset is written.
    file_format : {"svmlight", "csv", "parquet"}, optional
        The format of the files. By default their names tell it.
    workers : int, optional
        Worker processes that are started on this machine.
    scheduler : str, optional
        The address of a cluster that is there already, instead of `workers`.
    memory_bytes : int, optional
        What one process may hold (default: half of the machine's memory).
    resume : bool
        Whether to go on with an ingest of the same files that was killed, or whose cluster was lost. Where nothing is
        left of one, all begins anew.
    report : callable, optional
        Called with the number of rows that have been read so far.

    Raises
    ------
    InputError
        For bad input, with file, line, column and reason. Nothing is left at the destination then; but what is left of
        a killed ingest stays if a file has changed since.
    MemoryBudgetError
        If a worker needs more memory than it may hold.
    ConnectionError
        If the cluster is lost. What is finished then is kept for `resume`.
    """
    check_options(options)
    options = replace(options, label_column=columns.label, qid_column=columns.qid)
    columns = encode_as(columns, None, options.regression)
    paths, name = [str(path) for path in list_files(sources)], join_names(sources)
    columns = replace(columns, folders=find_folders(paths))
    if scheduler is not None:  # its workers have folders of their own
        paths = [path if is_remote(path) or path == "-" else str(Path(path).absolute()) for path in paths]
    kind, encoded = _require_readable(paths, name, destination, columns, options, file_format)
    if not is_remote(destination):
        refuse_inputs(Path(destination), [path for path in paths if not is_remote(path)])
    piece, encoder = _read_first(paths, kind, columns, encoded)
    first = _take_row(piece)
    seed = None if first.qid is not None else options.shuffle
    chunk_bytes = max(LARGEST_CHUNK_BYTES, options.chunk_bytes or 0)
    scaled = 0 if columns.hash_bits is None or options.scale == "none" else SCALED_BYTES << columns.hash_bits
    opened = partial(
        open_workers,
        load=partial(compile_ingest, kind, columns.hash_bits is not None),
        need_bytes=5 * RUN_BYTES + 3 * chunk_bytes + is_remote(destination) * 2 * (AHEAD_BYTES + PUT_BYTES) + scaled,
        budget_bytes=memory_bytes,
        workers=workers,
        scheduler=scheduler,
        remedy=REMEDY,
    )
    n_runs = max(1, -(-guess_bytes(paths) // RUN_BYTES))
    record = describe_ingest(str(destination), paths, columns, options, (kind, seed, n_runs), resume)
    with (
        caught(),
        _new_place(destination, options.overwrite, record) as (place, scratch),
        opened() as client,
    ):
        record.begin(scratch)
        source = Source(name, kind, first, options, seed, n_runs, scratch, step_aside, encoder)
        stretches = _cut(client, paths, kind, columns, encoded)
        source, encoding = find_encoding(client, source, stretches, paths)
        if encoding is not None:
            piece = replace(piece, X=encode_features(piece.X, encoding), feature_names=encoding.feature_names)  # type: ignore[arg-type]
        source = replace(source, anchor=look_at_features(piece, options, name))
        del piece
        survey = Survey(MOST_CLASSES, FeatureStatistics.start(), options.regression, anchor=source.anchor)
        inventory = _set_aside(client, source, stretches, survey, report)
        note_encoding(survey, encoding)
        check_survey(survey, name, options.regression, options.needs_two_classes)
        refuse_equal_hashes(survey.texts)
        write_on_workers(client, source, survey, inventory, place)
    return open_dataset(destination)


@contextmanager
def _new_place(
    destination: str | Path, overwrite: bool, record: IngestRecord
) -> Iterator[tuple[Path | Upload, SharedScratch]]:
    """Yield the place in which the dataset is made, and that of the scratch files within it."""
    if is_remote(destination):
        with new_upload(str(destination), overwrite, record) as upload:
            yield upload, upload.scratch
        return
    with new_folder(Path(destination).absolute(), overwrite, record) as folder:
        scratch = folder / SPILL_FOLDER
        scratch.mkdir(exist_ok=record.goes_on_with_another)
        remove_unfinished(folder)
        yield folder, SharedFolder(scratch)
        shutil.rmtree(scratch)


def _require_readable(
    paths: list[str],
    name: str,
    destination: str | Path,
    columns: Columns,
    options: IngestOptions,
    file_format: str | None,
) -> tuple[str, bool]:
    """Return the format of the files, and whether columns are encoded. InputError for what workers cannot read yet."""
    kinds = {file_format or guess_format(path) for path in paths}
    alone = "leave out --workers and --scheduler: one process can"
    if kinds - set(KINDS) or len(kinds) > 1:
        raise InputError(f"{name}: workers read svmlight text, CSV, TSV or Parquet, and no other files; {alone}")
    kind = kinds.pop()
    if "-" in paths:
        raise InputError(f"<stdin>: workers cannot read standard input; {alone}")
    if options.append:
        raise InputError(f"{destination}: workers write new datasets only; {alone}")
    if columns.multi_label:
        raise InputError(f"{name}: workers read no lists of labels; {alone}")
    dates = kind == "csv" and csv_table.find_dates(paths[0], columns)
    dates = dates or (kind == "parquet" and arrow_tables.has_dates(paths))
    return kind, kind != "svmlight" and (dates or columns.needs_encoder)


def _read_first(paths: list[str], kind: str, columns: Columns, encoded: bool) -> tuple[SourceRows, TableEncoder | None]:
    """Return the first piece of all, and the encoder of a table, which its first rows have settled.

    Raises InputError for what is wrong with the first rows.
    """
    pieces, encoder = open_codes(paths, kind, columns) if encoded else (open_files(paths, kind, columns), None)
    assert isinstance(pieces, Iterator)
    with closing(pieces):  # type: ignore[type-var]
        rows = next(pieces)
    return rows, None if encoder is None else encoder.start_anew()


def _take_row(rows: SourceRows) -> SourceRows:
    """Return the first row of a piece."""
    vectors = {each: getattr(rows, each) for each in ("labels", "qid", "sample_weight", "groups")}
    first = replace(rows, X=rows.X[:1], **{each: v if v is None else v[:1] for each, v in vectors.items()})
    return replace(first, row_names=None)


def _cut(client: Client, paths: list[str], kind: str, columns: Columns, encoded: bool) -> list[Stretch]:
    """Return the stretches of all files."""
    tasks = [(path, kind, columns, encoded) for path in paths]
    cut = carry_out(client, "looking through the files", cut_file, tasks)
    plans = list(cut)
    require_same_columns(plans, columns)
    return [stretch for plan in plans for stretch in plan]


def _set_aside(client: Client, source: Source, stretches: list[Stretch], survey: Survey, report: Report) -> Inventory:
    """Let workers set all rows aside, and take note of them in the survey.

    The runs of rows depend on how many pieces are before them. Where a block has other pieces than expected (its labels
    are long), the stretches behind it are set aside once more.
    """
    n_runs = 1 if source.seed is None else source.n_runs
    found, again, n_pieces, n_in_file = Inventory(n_runs), list[tuple[Any, ...]](), 0, 0
    expected = [0, *np.cumsum([stretch.n_pieces for stretch in stretches]).tolist()][: len(stretches)]
    tasks = [(source, stretch, k, expected[k]) for k, stretch in enumerate(stretches)]
    set_aside = carry_out(client, "reading the files", set_stretch_aside, tasks)
    for k, (stretch, one) in enumerate(zip(stretches, set_aside, strict=True)):
        survey.merge(one.survey, source.name)
        assert survey.statistics is not None
        for statistics in one.statistics:
            survey.statistics.merge(statistics)
        if one.statistics:
            survey.statistics.grow(survey.n_features)
        n_in_file += one.survey.n_rows
        n_in_file = require_rows(source, stretch, n_in_file)
        if source.seed is None or n_pieces == expected[k]:
            found.add(k, one.segments)
        else:
            again.append((source, stretch, k, n_pieces))
        n_pieces += one.n_pieces
        report(survey.n_rows)
    for (_, _, k, _), one in zip(again, carry_out(client, "reading the files", set_stretch_aside, again), strict=True):
        found.add(k, one.segments)
    return found
