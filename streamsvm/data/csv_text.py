"""CSV and TSV text as a source.

Text is cut into blocks of whole lines. pyarrow parses a block; where it fails, or finds what is no finite number,
Python parses the same block again: it reads the same tables, and names the exact place of a fault.
"""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.files import OPENERS, READING_ERRORS, explain_reading, open_text
from streamsvm.data.rows import SourceRows
from streamsvm.data.tables import Columns, TableLayout, fill_float32, import_pyarrow, lay_out, show_name
from streamsvm.data.values import Place, Vector, feature_fault, has_number_labels, round_to_float32, to_source_rows
from streamsvm.errors import InputError
from streamsvm.interrupts import waiting

MAX_LINE_BYTES = 1 << 28
QUOTED_BYTES = 1 << 17  # as far as a quoted value may run on over lines; what Python's csv allows, too

_BOOLEANS = {"true": 1.0, "false": 0.0}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")


def read_csv(paths: Sequence[str | Path], columns: Columns, block_bytes: int = 8 << 20) -> Iterator[SourceRows]:
    """Rows of CSV or TSV text, plain or compressed (.gz, .bz2, .xz), or "-" for standard input.

    A first line without any number names the columns; after one of numbers alone they are "1", "2", ... One that
    holds both names them if the second line has numbers where it has text, as `label,0,1` does before `1,2.5,3`.
    Commas separate columns in .csv, tabs in .tsv; elsewhere comma, tab or semicolon, by the first line. Labels are
    numbers if all of the first block are. A piece is a block of about `block_bytes` of text.
    Raises InputError: FILE:LINE:COLUMN (from 1) and reason, or FILE and reason.
    """
    import_pyarrow("pyarrow.csv")
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
            raise InputError(f"{show_name(path)}: no rows")


def _read_blocks(path: str, block_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Whole rows of a text, about `block_bytes` at a time, with the line the first of them begins at."""
    line, text = 1, b""
    try:
        with open_text(path) as file:
            while read := _read(file, block_bytes):
                text = (text + read).removeprefix(BOM_UTF8 if line == 1 else b"")
                end = _find_last_end(text)
                if end:
                    yield line, text[:end]
                    line += text.count(b"\n", 0, end)
                    text = text[end:]
                elif len(text) > MAX_LINE_BYTES:
                    raise InputError(f"{show_name(path)}:{line}:1: line of more than {MAX_LINE_BYTES:,} bytes")
        if text:
            yield line, text
    except READING_ERRORS as error:
        raise InputError(f"{show_name(path)}: {explain_reading(error)}") from error


def _read(file: io.BufferedIOBase, n_bytes: int) -> bytes:
    with waiting():
        return file.read(n_bytes)


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


def _read_header(text: bytes, path: str, columns: Columns, before: tuple[str, ...] | None) -> tuple[TableLayout, int]:
    """Lay out a table by its first row -> and the number of bytes before its data."""
    blank = re.match(rb"([ \t\r]*\n)*", text)
    start = blank.end() if blank else 0
    end = text.find(b"\n", start) + 1 or len(text)
    while text.count(b'"', start, end) % 2 and end < len(text):
        end = text.find(b"\n", end) + 1 or len(text)
    stem = Path(path).stem if Path(path).suffix.lower() in OPENERS else path
    delimiters = {".csv": ",", ".tsv": "\t"}.get(Path(stem).suffix.lower(), ",\t;")
    try:
        first = text[start:end].decode()
        rows = {mark: next(csv.reader(io.StringIO(first, newline=""), delimiter=mark)) for mark in delimiters}
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{show_name(path)}: is no table of text: {error}") from error
    delimiter = max(rows, key=lambda mark: len(rows[mark]))
    names = tuple(token.strip() for token in rows[delimiter])
    if _names_columns(names, text[end:].split(b"\n", 1)[0].decode(errors="replace").split(delimiter)):
        return lay_out(names, path, columns, before, delimiter), end
    names = tuple(str(j + 1) for j in range(len(names)))
    return lay_out(names, path, columns, before, delimiter), start


def _names_columns(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether the first row of a table is no row; see `read_csv`."""
    words = {j for j, token in enumerate(first) if token and _number(token) is None}
    if not any(_number(token) is not None for token in first):
        return bool(words)
    return bool(words) and all(j < len(second) and _number(second[j]) is not None for j in words)


def _parse_fast(text: bytes, layout: TableLayout, numbers: bool | None) -> SourceRows | None:
    """Parse a block with pyarrow; None if it has no rows, or anything in it is not as it should be."""
    pyarrow, reader = import_pyarrow("pyarrow"), import_pyarrow("pyarrow.csv")
    types = _guess_types(text, layout, pyarrow)
    try:
        table = reader.read_csv(
            pyarrow.BufferReader(text),
            reader.ReadOptions(column_names=layout.names, block_size=len(text) + 1),
            reader.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
            reader.ConvertOptions(column_types=types, include_columns=list(types)),
        )
        X = fill_float32([table.column(name).to_numpy() for name in layout.feature_names])
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


def _guess_types(text: bytes, layout: TableLayout, pyarrow: Any) -> dict[str, Any]:
    """Choose the types of the columns that are read; booleans are known by the first row."""
    first = text[: text.find(b"\n")].decode(errors="replace").lower().split(layout.delimiter)
    boolean = {name for name, token in zip(layout.names, first, strict=False) if token.strip() in _BOOLEANS}
    types = {name: pyarrow.bool_() if name in boolean else pyarrow.float64() for name in layout.feature_names}
    return types | {layout.names[j]: pyarrow.string() for j in layout.vectors.values()}


def _parse_slowly(text: bytes, line: int, layout: TableLayout, numbers: bool | None) -> SourceRows | None:
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


def _read_rows(text: bytes, line: int, layout: TableLayout) -> Iterator[tuple[int, list[str]]]:
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
