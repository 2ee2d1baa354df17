"""The reader of CSV and TSV text.

The text is cut into blocks of whole rows, which compiled code parses on all cores (see parsing). The compiled code
reads cells as numbers or as strings; Arrow turns the strings into numbers, dates and categories. If a block is
irregular, or one of its values is bad, Python parses the block again: it accepts the same tables, and finds the exact
place of a fault. The rows keep the order of the file, and the cuts depend only on the bytes of the file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.rows.source import SourceRows
from streamsvm.data.sources import csv_rows
from streamsvm.data.sources.parsing import MOST_CELL_BYTES, count_line_ends, mark_columns, parse_table
from streamsvm.data.sources.table_stream import Features, TableStream
from streamsvm.data.sources.text import READING_ERRORS, explain_reading, open_text, read_bytes
from streamsvm.data.tables import checks
from streamsvm.data.tables.checks import Place, Vector
from streamsvm.data.tables.columns import Columns, TableLayout, lay_out, pyarrow, show_name
from streamsvm.data.tables.encoder import find_kind, read_column, repeat_folder
from streamsvm.system.errors import InputError, require_known
from streamsvm.system.machine import default_threads

MAX_LINE_BYTES = 1 << 28
BLOCK_BYTES = 8 << 20
CODED_BLOCK_BYTES = 2 << 20  # the size of a block whose cells are all read as strings
DECIDING_BYTES = 2 << 20  # the bytes at the beginning of a table that decide the kinds of the columns and of the labels
MOST_QUOTED_BYTES = 4 * MOST_CELL_BYTES  # the maximum length of a quoted value: a UTF-8 character has up to four bytes
MOST_LABEL_BYTES = 1 << 26  # the maximum bytes of labels that are parsed together
SPREAD_ROWS = 4096
LOOKED_AT_ROWS = 10_000  # the number of rows searched for missing values before a fault is reported
_DATE = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Block:
    """Whole rows of a table, followed by an extra newline. line: the line of the file where they begin, from 1."""

    def __init__(self, layout: TableLayout, text: bytearray, line: int) -> None:
        if layout.dialect.is_spaced:
            mark_columns(text, layout.dialect.quotes)
        self.layout, self.text, self.line, self.n_lines = layout, text, line, count_line_ends(text)
        self.size = 0 if text.isspace() else len(text)
        # For each column that is not a feature, by role: its distinct cells, and for each row the index of its cell.
        self._words: dict[str, tuple[Any, npt.NDArray[Any]]] = {}

    def place(self, j: int) -> Place:
        """Return a function that gives the places of the cells of column j."""
        return lambda i: self.layout.place(next(islice(self._read_rows(), i, None))[0], j)

    def read_numbers(self) -> Features:
        """Return the features of a table of numbers. Raises InputError for other cells and malformed rows."""
        layout = self.layout
        X, columns = self._parse(layout.features, [*layout.vectors.values()]) or self._parse_slowly()
        self._hold(columns)
        return X

    def read_columns(self) -> list[Any]:
        """Return the feature columns as Arrow arrays of strings. Raises InputError for malformed rows."""
        columns, n_features = self._read_texts(self.layout.wanted), len(self.layout.features)
        self._hold(columns[n_features:])
        return columns[:n_features]

    def has_text_labels(self) -> bool:
        """Return whether some labels are text. Raises InputError for malformed rows."""
        j = self.layout.vectors.get("label")
        words = [] if j is None else self._read_texts([j])[0].unique().to_pylist()
        return any(checks.is_text(word, self.layout.decimal) for word in words)

    def make_rows(self, X: Features, is_plain: bool, numbers: bool | None) -> Iterator[SourceRows]:
        """Yield the rows; see `Piece`. In a table of numbers, rows with long labels come in parts, to save memory."""
        layout, decimal, vectors = self.layout, self.layout.decimal, dict[str, tuple[Vector, Place]]()
        numbers = False if layout.label_kind == checks.TEXT else numbers
        for role, (words, codes) in self._words.items():
            place = _place_words(self.place(layout.vectors[role]), codes)
            # Class labels from `most` on may lose digits; this is detected only if labels are read one by one.
            most = checks.FIRST_MERGED if role == "label" and layout.label_kind != checks.TARGET else np.inf
            values = None if decimal == "," else _cast_words(role, words, numbers, most)
            if values is None:
                tokens, each = words.to_pylist(), np.arange(len(words))
                if decimal == "," and role in ("label", "sample_weight"):
                    checks.refuse_words(tokens, each, place, checks.find_point)
                if role == "label":
                    find_fault = partial(checks.find_label_fault, kind=layout.label_kind, decimal=decimal)
                    checks.refuse_words(tokens, each, place, find_fault)
                    # In a NumPy array of strings, each string takes as much memory as the longest one.
                    if is_plain and len(X) > 1 and 4 * len(X) * max(map(len, tokens)) > MOST_LABEL_BYTES:
                        yield from self._make_halves()
                        return
                values = csv_rows.read_tokens(role, tokens, numbers, decimal)
            vectors[role] = values, place
        rows = checks.to_source_rows(X, vectors, layout.feature_names if is_plain else None, numbers)
        self.text.clear()  # from here on, no fault has to be located in the text
        fields = {role: {"label": "labels", "index": "row_names"}.get(role, role) for role in vectors}
        spread: dict[str, Any] = {
            name: _spread(getattr(rows, name), self._words[role][1]) for role, name in fields.items()
        }
        yield replace(rows, **spread)

    def _make_halves(self) -> Iterator[SourceRows]:
        """Yield, in two parts of about equal size, the rows of a block whose labels are text."""
        text, dialect = self.text[:-1], self.layout.dialect
        end = csv_rows.find_last_end(text[: len(text) // 2], dialect, False)[0]
        end = end or csv_rows.find_first_end(text, 0, dialect)
        first, rest = _cut(self.layout, text, end, self.line)
        for half in (first, _cut(self.layout, rest, len(rest), self.line + first.n_lines)[0]):
            X = half.read_numbers()
            yield from half.make_rows(X, True, False) if len(X) else ()

    def _hold(self, columns: Sequence[Any]) -> None:
        """Store the cells of the columns that are not features, for `make_rows`."""
        for role, column in zip(self.layout.vectors, columns, strict=True):
            coded = column.dictionary_encode()
            codes = coded.indices.to_numpy().astype(np.min_scalar_type(len(coded.dictionary)))
            self._words[role] = read_column(coded.dictionary, "", self.layout.where), codes

    def _read_rows(self) -> Iterator[tuple[int, list[str]]]:
        return csv_rows.read_rows(bytes(self.text[:-1]), self.line, self.layout)

    def _read_texts(self, wanted: Sequence[int]) -> list[Any]:
        """Return columns as arrays of strings without surrounding blanks. Raises InputError for malformed rows."""
        folders = self.layout.folders
        own = [j for j in dict.fromkeys(wanted) if j not in folders] or [0]
        parsed = self._parse((), own)
        if parsed is None:
            rows = [row for _, row in self._read_rows()]
            texts = [_to_texts([row[j] for row in rows]) for j in own]
        else:
            texts = parsed[1]
        found = {j: read_column(column, "", self.layout.where) for j, column in zip(own, texts, strict=True)}
        found |= {j: repeat_folder(*folder, len(texts[0]), "text") for j, folder in folders.items()}
        return [found[j] for j in wanted]

    def _parse(self, features: Sequence[int], words: Sequence[int]) -> tuple[Features, list[Any]] | None:
        """Parse the block by compiled code: features as numbers, and other columns as text.

        Return None if the block has no rows or is irregular in any way.
        """
        layout, dialect = self.layout, self.layout.dialect
        if not set(features).isdisjoint(words):  # compiled code reads a column either as numbers or as text
            numbers, texts = self._parse(features, ()), self._parse((), words)
            return None if numbers is None or texts is None else (numbers[0], texts[1])
        size = self.n_lines, dialect.delimiter
        parsed = parse_table(self.text, *size, features, words, len(layout.own_names), dialect.quotes)
        if parsed is None:
            return None
        X, found = parsed
        buffers = [map(pyarrow.py_buffer, (limits, cells)) for cells, limits in found]
        columns = [pyarrow.StringArray.from_buffers(len(X), *each) for each in buffers]
        try:
            for column in columns:
                column.validate(full=True)
        except pyarrow.ArrowInvalid:  # not UTF-8
            return None
        return X, columns

    def _parse_slowly(self) -> tuple[Features, list[Any]]:
        """Parse the block as `_parse` does, in Python. Raises InputError for the first bad cell."""
        layout, X, tokens = self.layout, [], []
        rows = self._read_rows()
        for at, row in rows:
            features = np.array([checks.parse_number(row[j]) for j in layout.features], np.float64)
            if not (is_held := np.abs(features) < checks.FLOAT32_OVERFLOW).all():
                j = layout.features[int(np.argmin(is_held))]
                raise csv_rows.refuse_token(layout.place(at, j), row[j], *_find_odd_columns(row, rows, layout))
            if "label" in layout.vectors:
                j = layout.vectors["label"]
                if fault := checks.find_label_fault(row[j], layout.label_kind):
                    raise InputError(f"{layout.place(at, j)}: {fault}")
            X.append(features)
            tokens.append([row[j] for j in layout.vectors.values()])
        columns = zip(*tokens, strict=True) if tokens else [()] * len(layout.vectors)
        return np.array(X).reshape(-1, len(layout.features)), [_to_texts(column) for column in columns]


Blocks = Generator[Block, None, None]


def _to_texts(cells: Sequence[str]) -> Any:
    return pyarrow.array(cells, pyarrow.string())


def _place_words(place: Place, codes: npt.NDArray[Any]) -> Place:
    """Return a function from k to the place of the first row with word k. codes: the index of each row's word."""
    return lambda k: place(int(np.argmax(codes == k)))


def _spread(values: Vector, codes: npt.NDArray[Any]) -> Vector:
    """Return values[codes]. The codes are used a part at a time, because NumPy copies them to 64 bits."""
    found = np.empty(len(codes), values.dtype)
    for at in range(0, len(codes), SPREAD_ROWS):
        found[at : at + SPREAD_ROWS] = values[codes[at : at + SPREAD_ROWS]]
    return found


def _cast_words(role: str, words: Any, numbers: bool | None, most: float) -> Vector | None:
    """Return labels or weights as pyarrow casts them; None if words are not numbers, or not below `most`.

    None means that the caller must read the words one by one. pyarrow reads every number that it accepts as Python
    does. Casting is faster if most words differ, as is usual for regression targets.
    """
    if role in ("qid", "groups", "index") or (role == "label" and numbers is False):
        return None
    try:
        values = np.asarray(words.cast("float64").to_numpy())
    except pyarrow.ArrowInvalid:
        return None
    return values if (np.abs(values) < most).all() else None


def _find_odd_columns(
    row: list[str], others: Iterator[tuple[int, list[str]]], layout: TableLayout
) -> tuple[list[str], ...]:
    """Return the names of the features with text in this row, and of the features with missing values here or below."""
    texts, gaps = {k for k in layout.features if checks.is_text(row[k])}, set[int]()
    with suppress(InputError):  # a later row may be malformed, but the fault in this row is reported first
        for each in chain([row], (other for _, other in islice(others, LOOKED_AT_ROWS))):
            gaps |= {k for k in layout.features if checks.is_gap(each[k], k in texts)}
    return tuple([layout.names[k] for k in layout.features if k in found] for found in (texts, gaps))


@contextmanager
def open_csv(
    path: str, columns: Columns, before: tuple[str, ...] | None, block_bytes: int | None = None
) -> Iterator[TableStream]:
    """Open CSV or TSV text, plain or compressed (.gz, .bz2, .xz); "-" is standard input. before: see `OpenTable`.

    Lines end at LF, CR LF or CR. The first row names the columns if it is a header (see csv_rows); otherwise the
    columns are named "1", "2", ... Columns are separated by commas in .csv files and by tabs in .tsv files. For other
    file names, or if that delimiter gives only one column, the first row decides between comma, tab, semicolon and
    bar. Labels are numbers if all labels in the first 2 MiB are numbers. Raises InputError with FILE:LINE:COLUMN
    (from 1) and reason, or FILE and reason.
    """
    require_known("header", columns.header, csv_rows.HEADERS)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_text(path))
            head, mark, ended = csv_rows.read_head(file, MAX_LINE_BYTES)
        except READING_ERRORS as error:
            raise InputError(f"{show_name(path)}: {explain_reading(error)}") from error
        if not head.strip():
            raise InputError(f"{show_name(path)}: no rows")
        names, dialect, start, line = csv_rows.read_header(head, ended, path, columns, before)
        layout, rows = lay_out(names, path, columns, before, dialect), head[start:]
        sizes = {False: block_bytes or BLOCK_BYTES, True: block_bytes or CODED_BLOCK_BYTES}
        yield TableStream(
            layout,
            lambda encoded: _cut_text(rows, file, layout, line, sizes[encoded]),
            # Blocks end at their last whole row, so they may be smaller than requested: half of the bytes suffice.
            max(1, min(sizes[True], DECIDING_BYTES) // 2),
            lambda: columns.features is not None or not _has_dates(rows, layout, line),
            default_threads(),
            mark + start,
        )


def _has_dates(rows: bytes, layout: TableLayout, line: int) -> bool:
    """Return whether a feature is a date in the first rows of a file; an incomplete last row is ignored."""
    if _DATE.search(rows):
        end = csv_rows.find_last_end(rows, layout.dialect, False)[0]
        with suppress(InputError):  # the error is raised when the table is read
            block = _cut(layout, bytearray(rows), end or len(rows), line)[0]
            return "date" in map(find_kind, block.read_columns())
    return False


def _cut_text(head: bytes, file: io.BufferedIOBase, layout: TableLayout, line: int, block_bytes: int) -> Blocks:
    """Yield blocks of about `block_bytes`.

    head: the text that has been read, which begins at line `line`. file: the open file, at the text after the head.
    """
    text = bytearray()
    try:
        starts = range(0, len(head), block_bytes)
        following = iter(lambda: read_bytes(file, block_bytes), b"")
        for part in chain((head[at : at + block_bytes] for at in starts), following):
            text += part
            del part
            end, opened = csv_rows.find_last_end(text, layout.dialect, False)
            if end:
                block, text = _cut(layout, text, end, line)
                line += block.n_lines
                yield block
                del block
            if opened is not None and len(text) + end - opened > MOST_QUOTED_BYTES:
                raise InputError(f"{layout.where}:{line}:1: {csv_rows.LONG_CELL}")
            if len(text) > MAX_LINE_BYTES:
                raise InputError(f"{layout.where}:{line}:1: line of more than {MAX_LINE_BYTES:,} bytes")
    except READING_ERRORS as error:
        raise InputError(f"{layout.where}: {explain_reading(error)}") from error
    if csv_rows.find_last_end(text, layout.dialect, True)[1] is not None:
        raise InputError(f"{layout.where}:{line}:1: {csv_rows.OPEN_CELL}")
    if text:
        yield _cut(layout, text, len(text), line)[0]


def _cut(layout: TableLayout, text: bytearray, end: int, line: int) -> tuple[Block, bytearray]:
    """Cut a text at `end`: return the block before it, which reuses the memory of the text, and a copy of the rest."""
    rest = text[end:]
    del text[end:]
    text += b"\n"
    return Block(layout, text, line), rest
