"""Tables as sources: CSV and TSV text, and Parquet, read by pyarrow a piece at a time.

CSV text is cut into blocks of whole lines. pyarrow parses a block; where it fails, or finds what is no finite
number, Python parses the same block again: it reads the same tables, and names the exact place of a fault.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import importlib
import io
import lzma
import re
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.arrays import (
    Place,
    Vector,
    feature_fault,
    has_number_labels,
    round_to_float32,
    to_source_rows,
)
from streamsvm.data.rows import SourceRows
from streamsvm.errors import InputError

MAX_LINE_BYTES = 1 << 28
QUOTED_BYTES = 1 << 17  # as far as a quoted value may run on over lines; what Python's csv allows, too

_LABEL_NAMES = {"label", "target", "class", "y"}
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # a column of Parquet that pandas adds on its own
_BOOLEANS = {"true": 1.0, "false": 0.0}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_PARQUET_BYTES = 64 << 20  # of a piece as float64, however many columns it has
# As pyarrow is by default, it holds all of a row group, which may be all of a file.
_PARQUET_READING = {"pre_buffer": False, "buffer_size": 1 << 16, "page_checksum_verification": True}


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are what; a column is its name, or its number counted from 1.

    label None: the one column named label, target, class or y (in any case). features None: all the others;
    else exactly these names, in this order. require_label False: a table without its label is fine.
    """

    label: str | None = None
    qid: str | None = None
    sample_weight: str | None = None
    features: tuple[str, ...] | None = None
    require_label: bool = True


@dataclass(frozen=True)
class _Layout:
    """The columns of one table; features and vectors (label, qid, sample_weight) are positions in names."""

    where: str
    names: tuple[str, ...]
    features: tuple[int, ...]
    vectors: dict[str, int]
    delimiter: str

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(self.names[j] for j in self.features)

    def place(self, line: int, j: int) -> str:
        return f"{self.where}:{line}:{j + 1}: column {self.names[j]}"


def read_csv(
    paths: Sequence[str | Path], columns: Columns, block_bytes: int = 8 << 20
) -> Iterator[SourceRows]:
    """Rows of CSV or TSV text, plain or compressed (.gz, .bz2, .xz), or "-" for standard input.

    A first line that holds anything but numbers names the columns; otherwise they are "1", "2", ... Commas
    separate columns in .csv, tabs in .tsv; elsewhere comma, tab or semicolon, by the first line. Labels are
    numbers if all of the first block are. A piece is a block of about `block_bytes` of text.
    Raises InputError: FILE:LINE:COLUMN (from 1) and reason, or FILE and reason.
    """
    _import("pyarrow.csv")
    names: tuple[str, ...] | None = None
    numbers: bool | None = None
    for path in map(str, paths):
        layout, n_rows = None, 0
        for line, text in _read_blocks(path, block_bytes):
            start = 0
            if layout is None and text.strip():
                layout, start = _read_header(text, path, columns, names)
                names = layout.names
            if layout is None:
                continue
            data, at = text[start:], line + text.count(b"\n", 0, start)
            rows = _parse_fast(data, layout, numbers) or _parse_slowly(data, at, layout, numbers)
            if rows is not None:
                numbers = has_number_labels(rows)
                n_rows += rows.n_rows
                yield rows
        if n_rows == 0:
            raise InputError(f"{_shown(path)}: no rows")


def read_parquet(
    paths: Sequence[str | Path], columns: Columns, piece_rows: int = 65536
) -> Iterator[SourceRows]:
    """Rows of Parquet files, at most `piece_rows` and 64 MiB at a time, without an index that pandas wrote.

    Labels are float64 where their column is of numbers, otherwise str. Raises InputError: FILE, row (from 1),
    column and reason, or FILE and reason.
    """
    pyarrow, parquet = _import("pyarrow"), _import("pyarrow.parquet")
    names: tuple[str, ...] | None = None
    numbers: bool | None = None
    for path in map(str, paths):
        n_rows = 0
        try:
            with open(path, "rb") as opened, parquet.ParquetFile(opened, **_PARQUET_READING) as file:
                layout = _lay_out(tuple(file.schema_arrow.names), path, columns, names)
                names = layout.names
                wanted = [names[j] for j in (*layout.features, *layout.vectors.values())]
                most_rows = max(1, min(piece_rows, _PARQUET_BYTES // (8 * len(wanted))))
                for batch in file.iter_batches(most_rows, columns=wanted):
                    rows = _read_batch(batch, layout, n_rows, numbers)
                    numbers = has_number_labels(rows)
                    n_rows += rows.n_rows
                    yield rows
        except (OSError, pyarrow.ArrowException) as error:
            raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
        if n_rows == 0:
            raise InputError(f"{path}: no rows")


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError("reading CSV or Parquet needs pyarrow: pip install 'streamsvm[tables]'") from error


def _shown(path: str) -> str:
    return "<stdin>" if path == "-" else path


def _lay_out(
    names: tuple[str, ...], path: str, columns: Columns, before: tuple[str, ...] | None, delimiter: str = ","
) -> _Layout:
    """Find the columns that are asked for among `names`, which are those of the file before."""
    where, position = _shown(path), {name: j for j, name in enumerate(names)}
    if before not in (None, names):
        raise InputError(f"{where}: its columns are not those of the file before: {_list(names)}")
    for j, name in enumerate(names):
        if not name:
            raise InputError(f"{where}: column {j + 1} has no name; is it an index that pandas or R wrote?")
        if position[name] != j:
            raise InputError(f"{where}: columns {j + 1} and {position[name] + 1} are both named {name!r}")
    for name in columns.features or ():
        if name not in position:
            raise InputError(f"{where}: no column {name!r}, which is a feature; there are {_list(names)}")
    chosen = None if columns.features is None else tuple(position[name] for name in columns.features)
    vectors = _find_vectors(names, where, columns, set(chosen or ()))
    taken = set(vectors.values()) | {j for j, name in enumerate(names) if _PANDAS_INDEX.fullmatch(name)}
    features = tuple(j for j in range(len(names)) if j not in taken) if chosen is None else chosen
    if not features:
        raise InputError(f"{where}: no feature columns; there are {_list(names)}")
    return _Layout(where, names, features, vectors, delimiter)


def _find_vectors(names: tuple[str, ...], where: str, columns: Columns, features: set[int]) -> dict[str, int]:
    """Find the columns of label, qid and sample_weight, none of which is a feature."""
    vectors: dict[str, int] = {}
    wanted = {"qid": columns.qid, "sample_weight": columns.sample_weight, "label": columns.label}
    for role, name in wanted.items():
        if name is None:
            continue
        number = int(name) if name.isdecimal() else 0
        j = names.index(name) if name in names else number - 1
        if 0 <= j < len(names) and j not in features and j not in vectors.values():
            vectors[role] = j
        elif role != "label" or columns.require_label:
            fault = "is wanted twice" if 0 <= j < len(names) else "is missing"
            raise InputError(f"{where}: column {name!r}, the {role}, {fault}; there are {_list(names)}")
    if columns.label is None:
        taken = features | set(vectors.values())
        found = [j for j, name in enumerate(names) if name.lower() in _LABEL_NAMES and j not in taken]
        if len(found) == 1:
            vectors["label"] = found[0]
        elif columns.require_label:
            fault = "several columns are" if found else "no column is"
            raise InputError(f"{where}: which column is the label? {fault} named label, target, class or y")
    return vectors


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _read_blocks(path: str, block_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Whole rows of a text, about `block_bytes` at a time, with the line the first of them begins at."""
    line, text = 1, b""
    try:
        with _open(path) as file:
            while read := file.read(block_bytes):
                text = (text + read).removeprefix(BOM_UTF8 if line == 1 else b"")
                end = _find_last_end(text)
                if end:
                    yield line, text[:end]
                    line += text.count(b"\n", 0, end)
                    text = text[end:]
                elif len(text) > MAX_LINE_BYTES:
                    raise InputError(f"{_shown(path)}:{line}:1: line of more than {MAX_LINE_BYTES:,} bytes")
        if text:
            yield line, text
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{_shown(path)}: {getattr(error, 'strerror', None) or error}") from error


def _open(path: str) -> AbstractContextManager[IO[bytes]]:
    if path == "-":
        return nullcontext(sys.stdin.buffer)
    opened: AbstractContextManager[IO[bytes]] = _OPENERS.get(Path(path).suffix.lower(), open)(path, "rb")
    return opened


def _find_last_end(text: bytes) -> int:
    """Return where the last whole row ends: after a newline with an even number of quotes before it."""
    end = cut = text.rfind(b"\n") + 1
    odd = text.count(b'"', 0, end) % 2
    while cut and odd:
        before = text.rfind(b"\n", 0, cut - 1) + 1
        odd ^= text.count(b'"', before, cut) % 2
        cut = before
    if cut or len(text) < QUOTED_BYTES:
        return cut
    return end  # the quote is part of a word, then


def _read_header(
    text: bytes, path: str, columns: Columns, before: tuple[str, ...] | None
) -> tuple[_Layout, int]:
    """Lay out a table by its first row -> and the number of bytes before its data."""
    blank = re.match(rb"([ \t\r]*\n)*", text)
    start = blank.end() if blank else 0
    end = text.find(b"\n", start) + 1 or len(text)
    while text.count(b'"', start, end) % 2 and end < len(text):
        end = text.find(b"\n", end) + 1 or len(text)
    stem = Path(path).stem if Path(path).suffix.lower() in _OPENERS else path
    delimiters = {".csv": ",", ".tsv": "\t"}.get(Path(stem).suffix.lower(), ",\t;")
    try:
        first = text[start:end].decode()
        rows = {mark: next(csv.reader(io.StringIO(first, newline=""), delimiter=mark)) for mark in delimiters}
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{_shown(path)}: is no table of text: {error}") from error
    delimiter = max(rows, key=lambda mark: len(rows[mark]))
    names = tuple(token.strip() for token in rows[delimiter])
    if any(name and _number(name) is None for name in names):
        return _lay_out(names, path, columns, before, delimiter), end
    names = tuple(str(j + 1) for j in range(len(names)))
    return _lay_out(names, path, columns, before, delimiter), start


def _parse_fast(text: bytes, layout: _Layout, numbers: bool | None) -> SourceRows | None:
    """Parse a block with pyarrow; None if it has no rows, or anything in it is not as it should be."""
    pyarrow, reader = _import("pyarrow"), _import("pyarrow.csv")
    types = _guess_types(text, layout, pyarrow)
    try:
        table = reader.read_csv(
            pyarrow.BufferReader(text),
            reader.ReadOptions(column_names=layout.names, block_size=len(text) + 1),
            reader.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
            reader.ConvertOptions(column_types=types, include_columns=list(types)),
        )
        X = _fill_float32([table.column(name).to_numpy() for name in layout.feature_names])
        if len(X) == 0 or not np.isfinite(X).all():  # where there is nothing, pyarrow gives nan or None
            return None
        vectors = {}
        for role, j in layout.vectors.items():
            coded = table.column(layout.names[j]).combine_chunks().dictionary_encode()
            different = _read_tokens(role, coded.dictionary.to_pylist(), numbers)
            vectors[role] = (different[coded.indices.to_numpy()], str)
        return to_source_rows(X, vectors, layout.feature_names, numbers)
    except (pyarrow.ArrowException, InputError):
        return None


def _guess_types(text: bytes, layout: _Layout, pyarrow: Any) -> dict[str, Any]:
    """Choose the types of the columns that are read; booleans are known by the first row."""
    first = text[: text.find(b"\n")].decode(errors="replace").lower().split(layout.delimiter)
    boolean = {name for name, token in zip(layout.names, first, strict=False) if token.strip() in _BOOLEANS}
    types = {name: pyarrow.bool_() if name in boolean else pyarrow.float64() for name in layout.feature_names}
    return types | {layout.names[j]: pyarrow.string() for j in layout.vectors.values()}


def _fill_float32(columns: Sequence[Vector]) -> npt.NDArray[np.float32]:
    X = np.empty((len(columns[0]), len(columns)), np.float32)
    with np.errstate(over="ignore", under="ignore"):
        for j, column in enumerate(columns):
            X[:, j] = column
    return X


def _parse_slowly(text: bytes, line: int, layout: _Layout, numbers: bool | None) -> SourceRows | None:
    """Parse a block in Python; None if it has no rows. Raises InputError for a bad token."""
    lines, X = [], []
    tokens: dict[str, list[str]] = {role: [] for role in layout.vectors}
    for at, row in _read_rows(text, line, layout):
        features = round_to_float32([_number(row[j]) for j in layout.features])
        if not np.isfinite(features).all():
            j = layout.features[int(np.argmin(np.isfinite(features)))]
            raise InputError(f"{layout.place(at, j)}: {_token_fault(row[j])}")
        X.append(features)
        lines.append(at)
        for role, j in layout.vectors.items():
            tokens[role].append(row[j].strip())
    if not lines:
        return None

    def place(j: int) -> Place:
        return lambda i: layout.place(lines[i], j)

    values = {role: _read_tokens(role, tokens[role], numbers) for role in tokens}
    vectors = {role: (values[role], place(j)) for role, j in layout.vectors.items()}
    return to_source_rows(np.array(X), vectors, layout.feature_names, numbers)


def _read_rows(text: bytes, line: int, layout: _Layout) -> Iterator[tuple[int, list[str]]]:
    """Tokens of the rows that are not blank, with the line each begins at."""
    at, n_columns = line, len(layout.names)
    try:
        reader = csv.reader(io.StringIO(text.decode(), newline=""), delimiter=layout.delimiter)
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):
                if len(row) != n_columns:
                    column = min(len(row), n_columns) + 1
                    fault = f"{len(row)} columns, the first line has {n_columns}"
                    raise InputError(f"{layout.where}:{at}:{column}: {fault}")
                yield at, row
            at = line + reader.line_num
    except UnicodeDecodeError as error:
        at = line + text.count(b"\n", 0, error.start)
        raise InputError(f"{layout.where}:{at}:1: not UTF-8 text") from error
    except csv.Error as error:
        raise InputError(f"{layout.where}:{at}:1: {error}") from error


def _read_tokens(role: str, tokens: list[str], numbers: bool | None) -> Vector:
    """Values of a column that is no feature; what is no number stays text, to be a label or be refused."""
    words = [token.strip() for token in tokens]
    if role == "qid":
        ids = [int(word) if _WHOLE_NUMBER.fullmatch(word) else word for word in words]
        fitting = all(isinstance(number, int) and -(2**63) <= number < 2**63 for number in ids)
        return np.array(ids, dtype=np.int64 if fitting else object)
    values = [_number(word) for word in words]
    if None not in values and (role != "label" or numbers is not False):
        return np.array(values, dtype=np.float64)
    if role == "label" and not numbers:
        return np.array(words, dtype=np.str_)
    return np.array([w if v is None else v for w, v in zip(words, values, strict=True)], dtype=object)


def _number(token: str) -> float | None:
    """Read a number as pyarrow does; None if it is none."""
    word = token.strip().lower()
    if word in _BOOLEANS:
        return _BOOLEANS[word]
    try:
        return float(word) if word.isascii() and "_" not in word else None
    except ValueError:
        return None


def _token_fault(token: str) -> str:
    number = _number(token)
    if not token.strip():
        return "empty (missing value)"
    if number is None:
        return f"not a number: {token[:40]!r}"
    if abs(number) == np.inf and "inf" not in token.lower():
        return f"overflows float32: {token.strip()}"
    return feature_fault(number)


def _read_batch(batch: Any, layout: _Layout, n_before: int, numbers: bool | None) -> SourceRows:
    """Convert a piece of Parquet. Raises InputError for a bad value."""

    def place(name: str) -> Place:
        return lambda i: f"{layout.where}: row {n_before + i + 1}, column {name}"

    names = layout.feature_names
    X = _fill_float32([_read_numbers(batch.column(name), layout.where, name) for name in names])
    bad = ~np.isfinite(X)
    if bad.any():
        i, k = divmod(int(np.argmax(bad)), X.shape[1])
        raise InputError(f"{place(names[k])(i)}: {feature_fault(batch.column(names[k])[i].as_py())}")
    vectors = {}
    for role, j in layout.vectors.items():
        name = layout.names[j]
        column = batch.column(name)
        if role == "label":
            column = column.cast("float64" if _is_number(column.type) else "string")
        vectors[role] = (column.to_numpy(zero_copy_only=False), place(name))
    return to_source_rows(X, vectors, names, numbers)


def _read_numbers(column: Any, where: str, name: str) -> Vector:
    """Values of a column of Parquet as float64; nan where there is none."""
    if not _is_number(column.type):
        raise InputError(f"{where}: column {name}: {column.type} is not a number")
    return np.asarray(column.cast("float64", safe=False).to_numpy(zero_copy_only=False))


def _is_number(arrow_type: Any) -> bool:
    types = _import("pyarrow").types
    kinds = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    return any(is_kind(arrow_type) for is_kind in kinds)
