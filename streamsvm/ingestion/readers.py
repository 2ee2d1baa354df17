"""`ingest` chooses the reader for files or arrays, and writes their rows as a dataset.

This module also lists the files that a user names (single files, patterns such as data/*.csv, and folders), and
determines the roles of a table's columns from the user's options, an existing dataset, and the files.
"""

from __future__ import annotations

import glob
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.open import open_dataset
from streamsvm.data.remote.files import find_size, quote_folder
from streamsvm.data.remote.objects import RemoteFolder
from streamsvm.data.rows.source import SourceRows
from streamsvm.data.sources import formats, frames, in_memory
from streamsvm.data.sources.anndata import is_anndata, read_anndata
from streamsvm.data.sources.arrays import comes_from, read_arrays, read_blocks, refuse_beside, refuse_lazy, unwrap
from streamsvm.data.sources.arrow import as_table, guess_row_bytes
from streamsvm.data.sources.dask_collections import require_usable
from streamsvm.data.sources.formats import name_option
from streamsvm.data.sources.parsing import compile_parser
from streamsvm.data.sources.svmlight import find_base
from streamsvm.data.sources.table_stream import encode_rows, read_table
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.tables.checks import GIVEN, TARGET, TEXT, is_text, refuse_name
from streamsvm.data.tables.columns import Columns, find_folders, is_column
from streamsvm.data.tables.encoder import TableEncoder
from streamsvm.ingestion.edit import append_rows
from streamsvm.ingestion.ingest import IngestOptions, Report, write_dataset
from streamsvm.system.errors import InputError, list_few
from streamsvm.system.files import is_remote, refuse_inputs
from streamsvm.system.interrupts import caught

if TYPE_CHECKING:
    from distributed import Client

LOGGER = logging.getLogger("streamsvm")


def name_columns(columns: Columns, **vectors: Any) -> tuple[Columns, dict[str, Any]]:
    """Add each vector that is the name of a column to the roles. Return the roles, and the vectors given as values."""
    named: dict[str, Any] = {role: values for role, values in vectors.items() if isinstance(values, str)}
    others = {role: None if role in named else values for role, values in vectors.items()}
    return replace(columns, **named) if named else columns, others


def settle_format(
    paths: Sequence[str | Path], file_format: str | None, columns: Columns, known: Mapping[str, Any] | None = None
) -> tuple[str, Columns]:
    """Return the format of files, and roles with the syntax in which the files are read.

    known: the recorded syntax of earlier rows (see `describe_syntax`), which holds where the user gives no other one.
    If the base of svmlight text is "auto", the first rows of the first file decide it. Raises InputError for unknown or
    different formats.
    """
    known = known or {}
    kinds = {file_format or formats.guess_format(path, known.get("format")) for path in paths}
    if len(kinds) > 1:
        found = ", ".join(sorted(kinds))
        raise InputError(f"{join_names(paths)}: the files have different formats ({found}); choose one with --format")
    kind = kinds.pop()
    reads = formats.find_format(kind).reads
    recalled = {name: known[name] for name in formats.SYNTAX if name in known and name in reads}
    own = {name: value for name, value in recalled.items() if getattr(columns, name) == getattr(Columns, name)}
    columns = replace(columns, **own, others=(*columns.others, *known.get("others", ())))
    if kind == "tsv":
        return "csv", replace(columns, sep=columns.sep or "\t")
    if columns.base is not None and columns.base != "auto":
        return kind, replace(columns, base=int(columns.base))
    if kind == "svmlight" and columns.base is None:
        return kind, replace(columns, base=1)
    if kind == "svmlight":
        compile_parser(kind)
        columns = replace(columns, base=find_base(paths[0], columns.multi_label))
        if columns.base == 0:
            LOGGER.warning(f"{paths[0]}: a feature 0 occurs, so features are numbered from 0 (--base 0)")
    return kind, columns


def describe_syntax(columns: Columns, file_format: str | None) -> dict[str, Any] | None:
    """Return the format and the syntax that differ from the usual ones, as they are recorded; None if none does.

    "others" lists the columns that the user named and that are not features.
    """
    usual = {"format": None, "others": [], **{name: getattr(Columns, name) for name in formats.SYNTAX}, "base": 1}
    others = {*columns.drop, *filter(None, (columns.sample_weight, columns.groups, columns.index))}
    used = {
        "format": file_format,
        "others": sorted(others),
        **{name: getattr(columns, name) for name in formats.SYNTAX},
    }
    return {name: value for name, value in used.items() if value not in (usual[name], None)} or None


def recall_label(columns: Columns, kind: str, dataset: str | Path | None) -> Columns:
    """Return the roles. If they do not name the label column, it is taken from the record of an existing dataset."""
    known = None if dataset is None or columns.label is not None else open_dataset(dataset).label_column
    has_labels = known is not None and "label" in formats.find_format(kind).reads
    return replace(columns, label=known) if has_labels else columns


def choose_label_kind(classes: npt.NDArray[Any] | None, has_targets: bool) -> str | None:
    """Return the kind of labels that fits known classes or targets; see Columns.label_kind.

    If a class is a string that looks like a number or a missing value, the labels were read as text.
    """
    if has_targets:
        return TARGET
    words = classes.tolist() if classes is not None and classes.dtype.kind == "U" else ()
    return TEXT if any(not is_text(word) for word in words) else None


def encode_as(columns: Columns, dataset: str | Path | None, regression: bool) -> Columns:
    """Return roles with which labels and features are read as in an existing dataset, if a dataset is given."""
    known = None if dataset is None else open_dataset(dataset)
    kind = None if known is None else choose_label_kind(known.classes, known.has_targets)
    columns = replace(columns, label_kind=TARGET if regression else kind)
    encoding = None if known is None else known.encoding
    if encoding is None:
        return columns
    for name in formats.ENCODED[1:]:
        if getattr(columns, name) not in (None, ()):
            raise InputError(f"{name_option(name)} has no effect: rows are encoded as in {dataset}; omit it")
    return replace(columns, drop=(), encoding=encoding, features=encoding.column_names, index=encoding.index)


def refuse_unread(paths: Sequence[str | Path], name: str, kind: str, columns: Columns) -> None:
    """Raise InputError if an option for columns was given that has no effect on files of this kind.

    A file whose name does not show its format is read as svmlight text. In this case, the first rows are read before
    the error is raised, and a file of another format is reported as such.
    """
    for field in fields(Columns):
        readers = [other for other, each in formats.FORMATS.items() if field.name in each.reads]
        if readers and kind not in readers and getattr(columns, field.name) != field.default:
            remedy = ""
            if kind == next(iter(formats.FORMATS)):
                next(formats.FORMATS[kind].read(paths, Columns()), None)
                remedy = ", or name the format, such as --format csv"
            option, able = name_option(field.name), list_few(readers, len(readers))
            raise InputError(f"{name}: {option} has no effect on {kind} files, only on {able}: omit it{remedy}")


IN_FOLDERS = r"([^/=]+=[^/]*/)*[^/]+"  # matches objects in a folder of a store, or in its subfolders COLUMN=VALUE
MOST_NAMES = 8  # the maximum number of files that a message lists
ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")  # every Zarr folder contains one of these


def list_files(sources: Sequence[str | Path]) -> list[str | Path]:
    """Return the named files, in order; the files of a pattern or a folder are sorted by name.

    Raises InputError if no file matches a pattern, or if a folder is a dataset or has no files of rows.
    """
    found: list[str | Path] = []
    for source in sources:
        if is_remote(source):
            url = str(source)
            found += _list_objects(url) if url.endswith("/") or "*" in url else [source]
        elif str(source) == "-":
            found.append(source)
        elif Path(source).is_dir():
            found += _list_folder(Path(source))
        elif glob.has_magic(str(source)) and not Path(source).exists():
            matching = sorted(path for path in glob.glob(str(source), recursive=True) if Path(path).is_file())
            if not matching:
                raise InputError(f"{source}: no file matches")
            found += matching
        else:
            found.append(source)
    return found


def is_folder_of_files(path: str | Path) -> bool:
    """Return whether a path is a folder with files of rows, and not a dataset."""
    folder = Path(path)
    return folder.is_dir() and not any((folder / name).exists() for name in ZARR_FILES) and bool(_find_files(folder))


def _list_folder(folder: Path) -> list[str | Path]:
    if any((folder / name).exists() for name in ZARR_FILES):
        if open_dataset(folder).meta.get("arrays") is None:
            raise InputError(
                f"{folder}: is an AnnData store, which is read in place; use it directly, for example with `streamsvm "
                f"train --label COLUMN`, or pass anndata.read_zarr({str(folder)!r}) to streamsvm.ingest in Python"
            )
        raise InputError(
            f"{folder}: is already a dataset; use it directly, for example with `streamsvm train`, or ingest its "
            "source files"
        )
    files = sorted(folder.glob(f"*{formats.SAFETENSORS_INDEX}")) or _find_files(folder)
    if not files:
        raise InputError(
            f"{folder}: contains no files with known endings; name its files, or use a pattern such as "
            "'folder/**/*.parquet'"
        )
    return list(files)


def _find_files(folder: Path) -> list[Path]:
    """Return the files in a folder, and in its subfolders COLUMN=VALUE, that have known endings.

    Hidden files and the marker files of other programs are ignored.
    """
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.name[0] not in "._" and path.is_dir() and is_column(path.name):
            found += _find_files(path)
        elif _is_file_of_rows(path.name) and path.is_file():
            found.append(path)
    return found


def _is_file_of_rows(name: str) -> bool:
    return name[0] not in "._" and formats.has_known_ending(name)


def _list_objects(url: str) -> list[str | Path]:
    """Return the sorted objects that match a pattern, or that are in a folder or its subfolders COLUMN=VALUE."""
    base = url.partition("*")[0].rpartition("/")[0]
    steps = {"**/": "(.*/)?", "*": "[^/]*"}
    given = "".join(steps.get(part) or re.escape(part) for part in re.split(r"(\*\*/|\*)", url[len(base) + 1 :]))
    names = [name for name in RemoteFolder(quote_folder(base)).list_names() if re.fullmatch(given or IN_FOLDERS, name)]
    found: list[str | Path] = [
        f"{base}/{name}" for name in sorted(names) if given or _is_file_of_rows(name.rpartition("/")[2])
    ]
    if not found:
        raise InputError(f"{url}: no file matches" if given else f"{url}: contains no files with known endings")
    return found


def join_names(sources: Sequence[str | Path]) -> str:
    """Return a common name of several files for messages. It lists at most MOST_NAMES of them."""
    names = ["<stdin>" if str(source) == "-" else str(source) for source in sources[:MOST_NAMES]]
    more = f" and {len(sources) - MOST_NAMES} more" if len(sources) > MOST_NAMES else ""
    return f"{', '.join(names)}{more}"


HUGGING_FACE_ROWS = 10_000  # the number of rows of a Hugging Face data set that are read at a time


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
    quoting: str | None = None,
    decimal: str | None = None,
    date_format: str | None = None,
    base: int | str | None = None,
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
    client: Client | str | None = None,
    options: IngestOptions | None = None,
    report: Report = lambda _: None,
    **others: Any,
) -> Dataset:
    """Write files or arrays as a dataset, and open it.

    The rows are streamed, with bounded memory. The dataset appears at `destination` whole or not at all.

    Parameters
    ----------
    source : path, list of paths, or array of shape (n_rows, n_features)
        Files of svmlight text, CSV, TSV, Parquet, Arrow, ORC, JSON lines, .h5ad, .npy, .npz or .safetensors,
        patterns such as "data/*.csv", folders of such files, or "-" for standard input. Rows in memory: a NumPy array,
        a SciPy sparse matrix, a pandas frame, a Dask array or frame, a Zarr or h5py array, a PyTorch tensor, an AnnData
        object, an object that exports Arrow columns (pyarrow, polars, Hugging Face), or an iterator of blocks X, of
        pairs (X, y) or of frames.
    destination : str or Path
        Path of the new dataset.
    y : array of shape (n_rows,), or matrix of shape (n_rows, L), optional
        Labels of rows in memory; or an indicator matrix of 0 and 1, dense or sparse, with a column for each of L labels
        if a row may have any number of labels.
    sample_weight : array of shape (n_rows,), or str, optional
        Weights of rows in memory, finite and not negative. For files and tables, the name of the column that holds
        them. The same applies to qid and groups.
    qid : array of shape (n_rows,), or str, optional
        The query of each row, as whole numbers or texts.
    groups : array of shape (n_rows,), or str, optional
        The group of each row, as texts, times or whole numbers. Cross-validation holds out each group whole.
    file_format : {"svmlight", "csv", "tsv", "parquet", "arrow", "orc", "jsonl", "h5ad", "npy", "safetensors"}, optional
        Format of the files. By default it is determined by their names or, for unknown endings, by their first rows.
    label : str, optional
        The column of a CSV or Parquet file that holds the labels. By default it is the column named label, target,
        class or y. The column of a pandas or Dask frame, if the labels are not given as `y`.
    header : {"auto", "yes", "no"}
        Whether the first row of a CSV file names the columns; "auto" decides by its cells.
    sep : str, optional
        The character that separates the columns of CSV, or "whitespace" for any blanks. By default it is detected.
    quoting : {"minimal", "none"}, optional
        Whether quotes enclose cells of CSV (the default), or are part of the text (`csv.QUOTE_NONE`).
    decimal : {",", "."}, optional
        The decimal mark of numbers in CSV; by default the point.
    date_format : str, optional
        The form of dates in tables, as a pattern of strptime such as "%d.%m.%Y". By default that of ISO 8601.
    base : {0, 1, "auto"}, optional
        The number of the first feature in svmlight text, by default 1. "auto" means 0 if the first rows have a feature
        0, and 1 otherwise.
    drop : str or list of str
        Columns of a table that are left out, by name, or by number counted from 1.
    index : str, optional
        The column of a table that names the rows. It is not a feature. Predictions for tables carry these names.
    missing : {"mean", "zero", "indicator"}, optional
        The replacement of missing values in a table: the mean of the column, zero, or zero with an added feature that
        is 1 where the value is missing. By default, missing values are refused.
    one_hot : str or list of str
        Columns of a table whose categories each become a feature; "auto" selects all columns of text.
    hash_bits : int, optional
        If given, all other columns of text are hashed to 2^hash_bits features.
    text, date, number : str or list of str
        Columns of a table to read as text, dates or numbers, by name or number; the first rows decide the others.
        `text` may name the label column; then only an empty cell is a missing label.
    like : path, optional
        A dataset whose table was encoded; this table is encoded in the same way, as are rows that are appended.
    columns : Columns, optional
        The roles of a table's columns, in place of `label` to `number`.
    multi_label : bool, default False
        Whether svmlight text has lists of labels, such as 1,3,7. Each label is then a problem of its own.
    client : distributed.Client or str, optional
        The Dask cluster whose workers read and write files (see `ingest_on_workers`) or compute Dask collections, or
        the address of its scheduler.
    options : IngestOptions, optional
        Layout, chunk size, codec, scaling and shuffle of the dataset.
    report : callable
        Called as rows are read, to show progress.
    **others
        Fields of IngestOptions (layout, chunk_bytes, shard_bytes, codec, scale, shuffle, regression, overwrite,
        append, new_classes, dtype), in place of `options`.

    Returns
    -------
    Dataset
        The opened dataset at `destination`.

    Raises
    ------
    InputError
        For bad input; the message names file, line, column and reason.
    """
    chosen = options or IngestOptions(**others)
    lists = _list_names(drop=drop, one_hot=one_hot, text=text, date=date, number=number)
    syntax: dict[str, Any] = {"header": header, "sep": sep, "quoting": quoting, "decimal": decimal}
    syntax |= {"date_format": date_format, "base": base}
    given: dict[str, Any] = {"label": label, "index": index, "missing": missing, "hash_bits": hash_bits}
    columns = columns or Columns(**syntax, **given, multi_label=multi_label, **lists)
    before = destination if chosen.append and not is_remote(destination) and Path(destination).exists() else like
    columns, vectors = name_columns(columns, sample_weight=sample_weight, qid=qid, groups=groups)
    vectors, named = {"label": y, **vectors}, [source] if _is_path(source) else source
    if isinstance(named, list | tuple) and named and all(map(_is_path, named)):
        _refuse_values(vectors, named)
        if client is not None:
            return _ingest_by(client, named, destination, columns, chosen, like, file_format, report)
        columns, pieces, name, n_bytes = _open_paths(named, destination, file_format, columns, before, chosen)
        known = None if before is None else open_dataset(before).read_as
        chosen = replace(chosen, read_as=describe_syntax(columns, file_format or (known or {}).get("format")))
    else:
        pieces = _open_rows(source, vectors, columns, before, chosen.regression)
        name, n_bytes = "X", _array_bytes(source)
    chosen = replace(chosen, label_column=columns.label, qid_column=columns.qid)
    with caught(), _compute_by(client, source):
        write = append_rows if chosen.append else write_dataset
        return write(pieces, destination, name, n_bytes, chosen, report)


def _ingest_by(
    client: Client | str,
    named: Sequence[str | Path],
    destination: str | Path,
    columns: Columns,
    options: IngestOptions,
    like: str | Path | None,
    file_format: str | None,
    report: Report,
) -> Dataset:
    """Let the workers of a cluster ingest files."""
    if like is not None:
        raise InputError("like has no effect on rows that a client reads: omit it, or ingest without a client")
    from streamsvm.ingestion.on_workers import ingest_on_workers  # loads distributed

    cluster: dict[str, Any] = {"scheduler" if isinstance(client, str) else "client": client}
    how = {**cluster, "file_format": file_format, "report": report}
    return ingest_on_workers(named, destination, columns, options, **how)


def _compute_by(client: Client | str | None, source: Any) -> AbstractContextManager[Any]:
    """Return a context in which a client computes Dask collections. Raises InputError for a client without effect."""
    if client is None:
        return nullcontext()
    if not comes_from(unwrap(source), "dask"):
        raise InputError("client has no effect on rows in memory, which are read here: omit it")
    if isinstance(client, str):
        from streamsvm.engines.cluster.workers import connect  # loads distributed

        return connect(client)
    require_usable(client)
    context: AbstractContextManager[Any] = client.as_current()
    return context


def _open_paths(
    named: Sequence[str | Path],
    destination: str | Path,
    file_format: str | None,
    columns: Columns,
    before: str | Path | None,
    options: IngestOptions,
) -> tuple[Columns, Iterator[SourceRows], str, int]:
    """Open files. Return the roles of their columns, their rows, their name in messages, and their approximate size."""
    paths = list_files(named)
    refuse_inputs(destination, paths)
    known = None if before is None else {"base": 1, **(open_dataset(before).read_as or {})}
    kind, columns = settle_format(paths, file_format, columns, known)
    columns = encode_as(recall_label(columns, kind, before), before, options.regression)
    scratch = None if is_remote(destination) else Path(destination).parent
    return columns, open_files(paths, kind, columns, scratch, named), join_names(named), guess_bytes(paths)


def _refuse_values(vectors: Mapping[str, Any], named: Sequence[str | Path]) -> None:
    """Raise InputError if labels or other vectors are given as values although the rows come from files."""
    for role, values in vectors.items():
        if values is not None:
            list_files(named)  # raises InputError for a Zarr array, which takes values as soon as it is opened
            given, name = ("y", "label") if role == "label" else (role, role)
            raise InputError(f"{given}: files take the name of a column, not values: write {name}='COLUMN'")


def _list_names(**given: Any) -> dict[str, Any]:
    """Return the names of columns given for each option, as tuples. Raises InputError unless they are strings."""
    for option, names in given.items():
        if not isinstance(names, str | Iterable):
            every = ", or 'auto' for all columns of text" if option == "one_hot" else ""
            raise InputError(f"{option} is {names!r}: give the names of columns{every}")
    return {option: (names,) if isinstance(names, str) else tuple(names) for option, names in given.items()}


def _open_rows(
    source: Any, vectors: Mapping[str, Any], columns: Columns, before: str | Path | None, regression: bool
) -> Iterator[SourceRows]:
    """Yield the rows of a source in memory: a frame whose columns must be encoded, or arrays of numbers."""
    refuse_name(vectors["label"])
    if is_anndata(source):
        refuse_beside(vectors, "is an AnnData object: name its columns of obs, such as label='cell_type'")
        return read_anndata(source, columns)
    refuse_lazy(source)
    source = unwrap(source)
    if comes_from(source, "dask") and hasattr(source, "columns") and columns != Columns():
        from streamsvm.data.sources.dask_collections import Partitions

        refuse_beside(vectors, "is a Dask frame with options for columns: name its columns, such as label='y'")
        source = (compute() for compute in Partitions([source])[0])
    if comes_from(source, "datasets"):  # the package `datasets` of Hugging Face
        source = source.with_format("arrow").iter(HUGGING_FACE_ROWS)
    if isinstance(source, Iterator):
        refuse_beside(vectors, "is an iterator of blocks: let it yield (X, y), or frames with all columns")
        first = next(source, None)
        source = iter(()) if first is None else chain([first], source)
        if columns == Columns() and before is None and not hasattr(first, "__arrow_c_stream__"):
            return read_blocks(source)
        return open_frame(source, {}, encode_as(columns, before, regression))
    encoding = None if before is None else open_dataset(before).encoding
    is_encoded = encoding is not None and in_memory.has_columns(source, encoding.column_names)
    if is_encoded or frames.is_frame(source, columns):
        return open_frame(source, vectors, encode_as(columns, before, regression))
    if columns != Columns():
        raise InputError("arrays take no options for columns, such as label or header: give their labels as y")
    given = {"y" if role == "label" else role: values for role, values in vectors.items()}
    return read_arrays(source, **given)


def open_files(
    paths: Sequence[str | Path],
    file_format: str | None,
    columns: Columns,
    scratch: Path | None = None,
    named: Sequence[str | Path] | None = None,
    known: Mapping[str, Any] | None = None,
) -> Iterator[SourceRows]:
    """Return the rows of files of one format. Raises InputError for unknown or different formats.

    scratch: the folder of a scratch file, which is needed if the encoding of a table depends on all rows. named: the
    files, folders and patterns as the user gave them, if `paths` is already the list of their files. known: see
    `settle_format`.
    """
    if named is None:
        named, paths = paths, list_files(paths)
    kind, columns = settle_format(paths, file_format, columns, known)
    if columns.folders is None:
        columns = replace(columns, folders=find_folders(named, paths, columns.features))
    pieces, encoder = open_codes(paths, kind, columns)
    if encoder is None:
        return pieces
    return encode_rows(pieces, encoder, scratch, paths)


def open_codes(
    paths: Sequence[str | Path], kind: str, columns: Columns
) -> tuple[Iterator[SourceRows], TableEncoder | None]:
    """Return the rows of files of one format, and for tables their encoder, otherwise None.

    The rows of a table hold the codes of its columns. If no column is encoded, they hold features instead, and the
    encoder has no columns.
    """
    about, name = formats.find_format(kind), join_names(paths)
    if not about.has_columns and columns.folders:
        ignored = ", ".join(folder for folder, _ in columns.folders)
        LOGGER.warning(f"{name}: {kind} files have no columns, so the columns of their folders are ignored: {ignored}")
    if columns.encoding is not None and not about.has_columns:  # the rows hold features already
        index = None if columns.index == columns.encoding.index else columns.index
        columns = replace(columns, encoding=None, index=index)
    refuse_unread(paths, name, kind, columns)
    compile_parser(kind)
    if not about.has_columns:
        return about.read(paths, columns), None
    encoder = TableEncoder(columns)
    if columns.hash_bits is not None or (columns.encoding is not None and columns.encoding.bits is not None):
        compile_parser("hash")
    return about.read(paths, columns, encoder), encoder


def open_frame(frame: Any, vectors: Mapping[str, Any], columns: Columns) -> Iterator[SourceRows]:
    """Return the encoded rows of a frame. vectors: the labels and other vectors by role; None if not given."""
    given = {role: values for role, values in vectors.items() if values is not None}
    named: dict[str, Any] = {role: f"({role})" for role in given}
    roles = replace(columns, **named, require_label=columns.label is not None)
    roles = replace(roles, label_kind=GIVEN) if "label" in given else roles
    encoder = TableEncoder(roles)
    opened = as_table(partial(frames.open_frame, frame, {f"({role})": values for role, values in given.items()}))
    return encode_rows(read_table(["X"], roles, opened, encoder), encoder, None, ["X"])


def guess_bytes(paths: Sequence[str | Path]) -> int:
    """Return the approximate bytes of the rows in files. Standard input counts as 1 GiB."""
    total = 0
    for path in paths:
        size = 1 << 30
        with suppress(OSError):  # the error is raised when the file is read
            size = find_size(path) if is_remote(path) or Path(path).is_file() else size
        if Path(path).suffix.lower() in formats.FORMATS["parquet"].suffixes and Path(path).is_file():
            size = max(size, guess_row_bytes(path))
        total += size * formats.COMPRESSED.get(Path(path).suffix.lower(), 1)
    return total


def _is_path(source: Any) -> bool:
    return isinstance(source, str | Path)


def _array_bytes(source: Any) -> int:
    if comes_from(source, "scipy"):
        return 8 * int(source.nnz)
    shape = getattr(source, "shape", ())
    known = bool(shape) and all(isinstance(n, int | np.integer) for n in shape)  # some lengths in Dask are unknown
    return 4 * math.prod(map(int, shape)) if known else 1 << 30
