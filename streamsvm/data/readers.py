"""`ingest`, which chooses the reader for files or arrays and writes their rows as a dataset."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.anndata_objects import is_anndata, read_anndata
from streamsvm.data.append import append_rows
from streamsvm.data.arrays import read_arrays
from streamsvm.data.blocks import read_blocks, refuse_beside
from streamsvm.data.column_roles import encode_as, name_columns, recall_label, refuse_unread
from streamsvm.data.compilation import compile_parser
from streamsvm.data.dataset import Dataset
from streamsvm.data.folders import find_folders
from streamsvm.data.formats import COMPRESSED, FORMATS, find_format, guess_format
from streamsvm.data.frames import has_columns, is_frame
from streamsvm.data.ingest import Report, join_names, write_dataset
from streamsvm.data.ingest_options import IngestOptions
from streamsvm.data.labels import refuse_name
from streamsvm.data.open_dataset import open_dataset
from streamsvm.data.parquet import guess_row_bytes
from streamsvm.data.pieces import comes_from, refuse_lazy
from streamsvm.data.remote_files import find_size
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.sources import list_files
from streamsvm.data.tables import Columns
from streamsvm.data.values import GIVEN
from streamsvm.errors import InputError
from streamsvm.files import refuse_inputs
from streamsvm.interrupts import caught
from streamsvm.urls import is_remote

if TYPE_CHECKING:
    from streamsvm.data.table_encoder import TableEncoder

LOGGER = logging.getLogger("streamsvm")
HUGGING_FACE_ROWS = 10_000  # of a data set of Hugging Face that are read at a time


def ingest(
    source: Any,
    destination: str | Path,
    y: Any = None,
    *,
    sample_weight: Any = None,
    qid: Any = None,
    groups: Any = None,
    file_format: str | None = None,
    label: str | None = None,
    header: str = "auto",
    sep: str | None = None,
    decimal: str | None = None,
    drop: str | Sequence[str] = (),
    index: str | None = None,
    missing: str | None = None,
    one_hot: str | Sequence[str] = (),
    hash_bits: int | None = None,
    text: str | Sequence[str] = (),
    date: str | Sequence[str] = (),
    number: str | Sequence[str] = (),
    like: str | Path | None = None,
    columns: Columns | None = None,
    multi_label: bool = False,
    options: IngestOptions | None = None,
    report: Report = lambda _: None,
    **others: Any,
) -> Dataset:
    """Write files or arrays as a dataset, and open it.

    The rows are streamed, so that memory is bounded. The dataset appears at `destination` whole or not at all.

    Parameters
    ----------
    source : path, list of paths, or array of shape (n_rows, n_features)
        Files of svmlight text, CSV, TSV, Parquet, Arrow, ORC, JSON lines, .h5ad, .npy, .npz or .safetensors,
        patterns such as "data/*.csv", folders of such files, "-" for standard input; or rows: a NumPy array, a SciPy
        sparse matrix, a pandas frame, a Dask array or frame, an array of Zarr or h5py, a tensor of PyTorch, an AnnData
        object, what gives Arrow's columns (pyarrow, polars, Hugging Face), or an iterator of blocks X, pairs (X, y) or
        frames.
    destination : str or Path
        Path of the new dataset.
    y : array of shape (n_rows,), or matrix of shape (n_rows, L), optional
        Labels of rows that are given as an array; or an indicator matrix of 0 and 1, dense or sparse, with a column for
        each of L labels of which a row may have any.
    sample_weight : array of shape (n_rows,), or str, optional
        Weights of such rows, finite and not negative. Of a file or a table, the name of the column that holds them, and
        so for qid and groups.
    qid : array of shape (n_rows,), or str, optional
        Whole numbers or texts that tell which query each of such rows belongs to.
    groups : array of shape (n_rows,), or str, optional
        Texts, times or whole numbers that tell which of such rows cross-validation holds out together.
    file_format : {"svmlight", "csv", "parquet", "arrow", "orc", "jsonl", "h5ad", "npy", "safetensors"}, optional
        Format of the files. By default their names tell it.
    label : str, optional
        The column of a CSV or Parquet file that holds the labels. By default it is the one named label, target, class
        or y. The labels of a frame are given as `y`: all its columns are features.
    header : {"auto", "yes", "no"}
        Whether the first row of CSV names the columns; "auto" decides by its cells.
    sep : str, optional
        The character that separates the columns of CSV. By default it is found out.
    decimal : {",", "."}, optional
        The decimal mark of numbers in CSV; by default the point.
    drop : str or list of str
        Columns of a table that are left out, by name, or by number from 1.
    index : str, optional
        The column of a table that names the rows, and is no feature. Predictions of tables have these names.
    missing : {"mean", "zero", "indicator"}, optional
        What stands for missing values of a table: the mean of the column, zero, or zero and an added feature that is 1
        where the value is missing. By default they are refused.
    one_hot : str or list of str
        Columns of a table of which each category becomes a feature; "auto" is all columns of text.
    hash_bits : int, optional
        All other columns of text become 2^hash_bits features by a hash of their values.
    text, date, number : str or list of str
        Columns of a table that are of text, dates or numbers, by name or number; the first rows decide the others.
        `text` may name the column of the labels: of its cells only an empty one is a missing label then.
    like : path, optional
        A dataset whose table was encoded; this table is encoded as that one was. So are rows that are appended.
    columns : Columns, optional
        The roles of a table's columns, instead of `label` to `number`.
    multi_label : bool, default False
        Whether svmlight text has lists of labels, such as 1,3,7, of which each is a problem of its own.
    options : IngestOptions, optional
        Layout, chunk size, codec, scaling and shuffle of the dataset.
    report : callable
        It is called as the rows are read, to show progress.
    **others
        Fields of IngestOptions (layout, chunk_bytes, shard_bytes, codec, scale, shuffle, regression, overwrite,
        append, new_classes, dtype), in place of `options`.

    Returns
    -------
    Dataset
        The dataset at `destination`.

    Raises
    ------
    InputError
        If the input is bad; the message names file, line, column and reason.
    """
    chosen = options or IngestOptions(**others)
    columns = columns or Columns(
        label=label,
        header=header,
        multi_label=multi_label,
        sep=sep,
        decimal=decimal,
        drop=_list("drop", drop),
        index=index,
        missing=missing,
        one_hot=_list("one_hot", one_hot),
        hash_bits=hash_bits,
        text=_list("text", text),
        date=_list("date", date),
        number=_list("number", number),
    )
    before = destination if chosen.append and not is_remote(destination) and Path(destination).exists() else like
    columns, vectors = name_columns(columns, {"sample_weight": sample_weight, "qid": qid, "groups": groups})
    vectors = {"label": y, **vectors}
    named = [source] if _is_path(source) else source
    if isinstance(named, list | tuple) and named and all(map(_is_path, named)):
        _refuse_values(vectors)
        paths = list_files(named)
        if not is_remote(destination):
            refuse_inputs(Path(destination), [path for path in paths if not is_remote(path)])
        scratch = None if is_remote(destination) else Path(destination).parent
        columns = recall_label(columns, paths, file_format, before)
        pieces = open_files(paths, file_format, encode_as(columns, before, chosen.regression), scratch)
        name, expected_bytes = join_names(named), guess_bytes(paths)
    else:
        pieces = _open_rows(source, vectors, columns, before, chosen.regression)
        name, expected_bytes = "X", _array_bytes(source)
    chosen = replace(chosen, label_column=columns.label, qid_column=columns.qid)
    with caught():
        write = append_rows if chosen.append else write_dataset
        return write(pieces, destination, name, expected_bytes, chosen, report)


def _refuse_values(vectors: Mapping[str, Any]) -> None:
    """Raise InputError for values that are given beside files, which have columns of their own."""
    for role, values in vectors.items():
        if values is not None:
            given, name = ("y", "label") if role == "label" else (role, role)
            raise InputError(f"{given}: values are for rows in memory: name a column of the files, as {name}='COLUMN'")


def _list(option: str, names: Any) -> tuple[str, ...]:
    if not isinstance(names, str | Iterable):
        every = ", or 'auto', which is all columns of text" if option == "one_hot" else ""
        raise InputError(f"{option} is {names!r}: give the names of columns{every}")
    return (names,) if isinstance(names, str) else tuple(names)


def _open_rows(
    source: Any, vectors: Mapping[str, Any], columns: Columns, before: str | Path | None, regression: bool
) -> Iterator[SourceRows]:
    """Return rows in memory: those of a frame with their features, if columns are to be encoded, else numbers."""
    refuse_name(vectors["label"])
    refuse_lazy(source)
    if is_anndata(source):
        refuse_beside(vectors, "is an AnnData object: name its columns of obs, such as label='cell_type'")
        return read_anndata(source, columns)
    if comes_from(source, "datasets"):  # of Hugging Face
        source = source.with_format("arrow").iter(HUGGING_FACE_ROWS)
    if isinstance(source, Iterator):
        refuse_beside(vectors, "is an iterator of blocks: let it yield (X, y), or frames with all columns")
        first = next(source, None)
        source = iter(()) if first is None else chain([first], source)
        if columns == Columns() and before is None and not hasattr(first, "__arrow_c_stream__"):
            return read_blocks(source)
        return open_frame(source, {}, encode_as(columns, before, regression))
    if is_frame(source, columns):
        return open_frame(source, vectors, encode_as(columns, before, regression))
    encoding = None if before is None else open_dataset(before).encoding
    if encoding is not None and has_columns(source, encoding.column_names):
        return open_frame(source, vectors, encode_as(columns, before, regression))
    if columns != Columns():
        raise InputError(
            "label, header, columns and the like are for files and frames: give the labels of rows in memory as y"
        )
    given = {"y" if role == "label" else role: values for role, values in vectors.items()}
    return read_arrays(source, **given)


def open_files(
    paths: Sequence[str | Path], file_format: str | None, columns: Columns, scratch: Path | None = None
) -> Iterator[SourceRows]:
    """Return the rows of files of one format. Raises InputError for unknown or different formats.

    scratch: the folder for a scratch file, into which rows go whose encoding is not known before all are read.
    """
    paths = list_files(paths)
    kinds = {file_format or guess_format(path) for path in paths}
    if len(kinds) > 1:
        raise InputError(
            f"{join_names(paths)}: files of different kinds ({', '.join(sorted(kinds))}); choose one by --format"
        )
    kind = kinds.pop()
    about = find_format(kind)
    if columns.folders is None:
        columns = replace(columns, folders=find_folders(paths))
    if about.read_codes is None and columns.folders:
        named = ", ".join(name for name, _ in columns.folders)
        LOGGER.warning(
            f"{join_names(paths)}: {kind} files have no columns: what their folders name is left out: {named}"
        )
    if columns.encoding is not None and about.read_codes is None:  # the rows are features already
        index = None if columns.index == columns.encoding.index else columns.index
        columns = replace(columns, encoding=None, index=index)
    if about.read_codes is None or not columns.needs_encoder:
        refuse_unread(join_names(paths), kind, columns)
        compile_parser(kind)
        return about.read(paths, columns)
    from streamsvm.data.encoded_rows import encode_rows

    pieces, encoder = open_codes(paths, kind, columns)
    return encode_rows(pieces, encoder, scratch, paths)


def open_codes(paths: Sequence[str | Path], kind: str, columns: Columns) -> tuple[Iterator[SourceRows], TableEncoder]:
    """Return the rows of tables of one format with the codes of their columns, and the encoder that makes them."""
    from streamsvm.data.table_encoder import TableEncoder

    refuse_unread(join_names(paths), kind, columns)
    compile_parser(kind)
    encoder, about = TableEncoder(columns), find_format(kind)
    if columns.hash_bits is not None or (columns.encoding is not None and columns.encoding.bits is not None):
        compile_parser("hash")
    assert about.read_codes is not None
    return about.read_codes(paths, columns, encoder), encoder


def open_frame(
    frame: Any, vectors: Mapping[str, Any], columns: Columns, scratch: Path | None = None
) -> Iterator[SourceRows]:
    """Return the rows of a frame, whose columns are encoded; vectors: labels and the like by role, or None."""
    from streamsvm.data.arrow_tables import read_arrow
    from streamsvm.data.encoded_rows import encode_rows
    from streamsvm.data.frames import open_pieces
    from streamsvm.data.table_encoder import TableEncoder

    given = {role: values for role, values in vectors.items() if values is not None}
    named: dict[str, Any] = {role: f"({role})" for role in given}
    roles = replace(columns, **named, require_label=columns.label is not None)
    roles = replace(roles, label_kind=GIVEN) if "label" in given else roles
    encoder = TableEncoder(roles)
    opened = partial(open_pieces, frame, {f"({role})": values for role, values in given.items()})
    return encode_rows(read_arrow(["X"], roles, encoder, opened), encoder, scratch, ["X"])


def guess_bytes(paths: Sequence[str | Path]) -> int:
    """Return about how many bytes the rows of files take. Standard input counts as 1 GiB."""
    total = 0
    for path in paths:
        size = 1 << 30
        with suppress(OSError):  # reading reports it
            size = find_size(path) if is_remote(path) or Path(path).is_file() else size
        if Path(path).suffix.lower() in FORMATS["parquet"].suffixes and Path(path).is_file():
            size = max(size, guess_row_bytes(path))
        total += size * COMPRESSED.get(Path(path).suffix.lower(), 1)
    return total


def _is_path(source: Any) -> bool:
    return isinstance(source, str | Path)


def _array_bytes(source: Any) -> int:
    if comes_from(source, "scipy"):
        return 8 * int(source.nnz)
    shape = getattr(source, "shape", ())
    known = bool(shape) and all(isinstance(n, int | np.integer) for n in shape)  # Dask does not know every shape
    return 4 * math.prod(map(int, shape)) if known else 1 << 30
