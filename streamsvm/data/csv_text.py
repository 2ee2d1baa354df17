"""The reader of CSV and TSV text.

The text is cut into blocks of whole rows, which pyarrow parses. If it fails, or finds a value that is no finite
number, Python parses the same block again: it reads the same tables, and names the exact place of a fault.
"""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.csv_header import HEADERS, choose_delimiter, read_header, skip_blank_lines
from streamsvm.data.csv_rows import count_lines, find_first_end, find_last_end, quotes_enclose
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.tables import Columns, TableLayout, fill_float32, import_pyarrow, lay_out, show_name
from streamsvm.data.text_files import READING_ERRORS, explain_reading, open_text
from streamsvm.data.values import (
    BOOLEANS,
    Place,
    Vector,
    find_feature_fault,
    find_label_fault,
    has_number_labels,
    parse_number,
    round_to_float32,
    to_source_rows,
)
from streamsvm.errors import InputError, say_count
from streamsvm.interrupts import waiting

MAX_LINE_BYTES = 1 << 28
HEAD_BYTES = 1 << 16  # of the text, from which delimiter and header are guessed
MOST_QUOTED_BYTES = 1 << 19  # of a quoted value: Python's csv allows 2^17 characters
MOST_LABEL_BYTES = 1 << 26  # of the labels that are parsed together

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")


def read_csv(paths: Sequence[str | Path], columns: Columns, block_bytes: int = 8 << 20) -> Iterator[SourceRows]:
    """Yield the rows of CSV or TSV text, plain or compressed (.gz, .bz2, .xz); "-" is standard input.

    Lines end at LF, CR LF or CR. The first row names the columns if it is a header (see csv_header); otherwise the
    columns are "1", "2", ... Commas separate the columns of .csv and tabs those of .tsv; for other names the first row
    tells whether it is comma, tab or semicolon. Labels are numbers if all labels of the first block are. A block has
    about `block_bytes` of text. Raises InputError with FILE:LINE:COLUMN (from 1) and reason, or FILE and reason.
    """
    import_pyarrow("pyarrow.csv")
    if columns.header not in HEADERS:
        raise InputError(f"header {columns.header!r}: choose from {', '.join(HEADERS)}")
    names: tuple[str, ...] | None = None
    numbers: bool | None = None
    for path in map(str, paths):
        n_rows = 0
        for layout, line, text in _read_blocks(path, columns, names, block_bytes):
            names = layout.names
            for rows in _parse_block(text, line, layout, numbers):
                numbers = has_number_labels(rows)
                n_rows += rows.n_rows
                yield rows
        if n_rows == 0:
            raise InputError(f"{show_name(path)}: no rows")


def _read_blocks(
    path: str, columns: Columns, before: tuple[str, ...] | None, block_bytes: int
) -> Iterator[tuple[TableLayout, int, bytes]]:
    """Yield whole rows of a text, about `block_bytes` at a time: the layout, the line where they begin, the bytes."""
    try:
        with open_text(path) as file:
            head, ended = _read_head(file)
            if not head.strip():
                return
            delimiter = choose_delimiter(head, path)
            names, start = read_header(head, ended, path, columns, delimiter)
            layout = lay_out(names, path, columns, before, delimiter)
            line, text = 1 + count_lines(head[:start]), b""
            for read in _read_on(file, head[start:], block_bytes):
                text += read
                end, is_open = find_last_end(text, delimiter, False)
                if end:
                    yield layout, line, text[:end]
                    line += count_lines(text[:end])
                    text = text[end:]
                if is_open and len(text) > MOST_QUOTED_BYTES:
                    raise InputError(f"{layout.where}:{line}:1: a quoted value does not end: is a quote missing?")
                if len(text) > MAX_LINE_BYTES:
                    raise InputError(f"{layout.where}:{line}:1: line of more than {MAX_LINE_BYTES:,} bytes")
        if find_last_end(text, delimiter, True)[1]:
            raise InputError(f"{layout.where}:{line}:1: a quoted value does not end: is a quote missing?")
        if text:
            yield layout, line, text
    except READING_ERRORS as error:
        raise InputError(f"{show_name(path)}: {explain_reading(error)}") from error


def _read_head(file: io.BufferedIOBase) -> tuple[bytes, bool]:
    """Return the beginning of a text, at least two rows, without a byte order mark, and whether that is all of it."""
    head, wanted = b"", HEAD_BYTES
    while True:
        while len(head) < wanted and (read := _read(file, wanted - len(head))):
            head += read
        text, ended = head.removeprefix(BOM_UTF8), len(head) < wanted
        if ended or wanted > MAX_LINE_BYTES or count_lines(text[skip_blank_lines(text) :]) > 2:
            return text, ended
        wanted *= 2


def _read_on(file: io.BufferedIOBase, head: bytes, block_bytes: int) -> Iterator[bytes]:
    """Yield the text in pieces of `block_bytes`: first the part that was read already, then the rest of the file."""
    for at in range(0, len(head), block_bytes):
        yield head[at : at + block_bytes]
    while read := _read(file, block_bytes):
        yield read


def _read(file: io.BufferedIOBase, n_bytes: int) -> bytes:
    with waiting():
        return file.read(n_bytes)


def _parse_block(text: bytes, line: int, layout: TableLayout, numbers: bool | None) -> Iterator[SourceRows]:
    """Yield the rows of a block: at once, or in parts if its labels are so long that together they take much memory."""
    try:
        rows = _parse_fast(text, layout, numbers) or _parse_slowly(text, line, layout, numbers)
        if rows is not None:
            yield rows
    except _LongLabelsError:
        cut = find_last_end(text[: len(text) // 2], layout.delimiter, False)[0]
        cut = cut or find_first_end(text, 0, layout.delimiter)
        yield from _parse_block(text[:cut], line, layout, False)
        yield from _parse_block(text[cut:], line + count_lines(text[:cut]), layout, False)


class _LongLabelsError(Exception):
    """The labels of a block would take more than MOST_LABEL_BYTES, since each takes as much as the longest one."""


def _require_short(labels: Iterable[str], n_rows: int) -> None:
    if n_rows > 1 and 4 * n_rows * max(map(len, labels), default=0) > MOST_LABEL_BYTES:
        raise _LongLabelsError


def _parse_fast(text: bytes, layout: TableLayout, numbers: bool | None) -> SourceRows | None:
    """Parse a block with pyarrow. Return None if the block has no rows, or if anything in it is wrong."""
    if not quotes_enclose(text, layout.delimiter) or text.startswith(BOM_UTF8):  # Python reads these differently
        return None
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
        if len(X) == 0 or not np.isfinite(X).all():  # for an empty cell pyarrow gives nan or None
            return None
        vectors = {}
        for role, j in layout.vectors.items():
            coded = table.column(layout.names[j]).combine_chunks().dictionary_encode()
            words = coded.dictionary.to_pylist()
            if role == "label":
                if any(map(find_label_fault, words)):
                    return None
                _require_short(words, len(X))
            different = _read_tokens(role, words, numbers)
            vectors[role] = (different[coded.indices.to_numpy()], str)
        return to_source_rows(X, vectors, layout.feature_names, numbers)
    except (pyarrow.ArrowException, InputError):
        return None


def _guess_types(text: bytes, layout: TableLayout, pyarrow: Any) -> dict[str, Any]:
    """Choose the types of the columns that are read. A column is of booleans if its first value is one."""
    line = text[: find_first_end(text, 0, layout.delimiter)]
    first = line.decode(errors="replace").lower().split(layout.delimiter)
    boolean = {name for name, token in zip(layout.names, first, strict=False) if token.strip() in BOOLEANS}
    types = {name: pyarrow.bool_() if name in boolean else pyarrow.float64() for name in layout.feature_names}
    return types | {layout.names[j]: pyarrow.string() for j in layout.vectors.values()}


def _parse_slowly(text: bytes, line: int, layout: TableLayout, numbers: bool | None) -> SourceRows | None:
    """Parse a block in Python. Return None if the block has no rows; raise InputError for a bad token."""
    lines, X = [], []
    tokens: dict[str, list[str]] = {role: [] for role in layout.vectors}
    for at, row in _read_rows(text, line, layout):
        features = round_to_float32([parse_number(row[j]) for j in layout.features])
        if not np.isfinite(features).all():
            j = layout.features[int(np.argmin(np.isfinite(features)))]
            raise InputError(f"{layout.place(at, j)}: {_explain_token(row[j])}")
        X.append(features)
        lines.append(at)
        for role, j in layout.vectors.items():
            tokens[role].append(row[j].strip())
            if role == "label" and (fault := find_label_fault(row[j].strip())):
                raise InputError(f"{layout.place(at, j)}: {fault}")
    if not lines:
        return None
    _require_short(tokens.get("label", ()), len(lines))

    def place(j: int) -> Place:
        return lambda i: layout.place(lines[i], j)

    values = {role: _read_tokens(role, tokens[role], numbers) for role in tokens}
    vectors = {role: (values[role], place(j)) for role, j in layout.vectors.items()}
    return to_source_rows(np.array(X), vectors, layout.feature_names, numbers)


def _read_rows(text: bytes, line: int, layout: TableLayout) -> Iterator[tuple[int, list[str]]]:
    """Yield the tokens of each row that is not blank, with the line where the row begins."""
    at, n_columns = line, len(layout.names)
    try:
        reader = csv.reader(io.StringIO(text.decode(), newline=""), delimiter=layout.delimiter, strict=True)
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):
                if len(row) != n_columns:
                    column = min(len(row), n_columns) + 1
                    fault = f"{say_count(len(row), 'column')}, the first line has {n_columns:,}"
                    raise InputError(f"{layout.where}:{at}:{column}: {fault}")
                yield at, row
            at = line + reader.line_num
    except UnicodeDecodeError as error:
        at = line + count_lines(text[: error.start])
        raise InputError(f"{layout.where}:{at}:1: not UTF-8 text") from error
    except csv.Error as error:
        raise InputError(f"{layout.where}:{at}:1: {error}") from error


def _read_tokens(role: str, tokens: list[str], numbers: bool | None) -> Vector:
    """Return the values of a label, qid or weight column; a token that is no number stays text, and may be a label."""
    words = [token.strip() for token in tokens]
    if role == "qid":
        ids = [int(word) if _WHOLE_NUMBER.fullmatch(word) else word for word in words]
        fitting = all(isinstance(number, int) and -(2**63) <= number < 2**63 for number in ids)
        return np.array(ids, dtype=np.int64 if fitting else object)
    values = [parse_number(word) for word in words]
    if None not in values and (role != "label" or numbers is not False):
        return np.array(values, dtype=np.float64)
    if role == "label" and not numbers:
        return np.array(words, dtype=np.str_)
    return np.array([w if v is None else v for w, v in zip(words, values, strict=True)], dtype=object)


def _explain_token(token: str) -> str:
    """Say why a token is no finite float32."""
    number = parse_number(token)
    if not token.strip():
        return "empty (missing value)"
    if number is None:
        return f"not a number: {token[:40]!r}"
    if abs(number) == np.inf and "inf" not in token.lower():
        return f"overflows float32: {token.strip()}"
    return find_feature_fault(number)
