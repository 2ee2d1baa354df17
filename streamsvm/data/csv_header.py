"""The first row of a table of text: which delimiter it uses, and whether it is a header.

A first row is a header if none of its cells is a number, if a word stands over a column of numbers, if it has the
names that were asked for, or if it counts six columns or more. It is a row of data if its words, or its label, occur
again below. Any other first row with words may be either, as may 0, 1, 2, ...: then the user has to say which it is.

Lines above it that begin with # are comments, unless they have as many cells as the first line that does not.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from streamsvm.data.csv_rows import count_lines, find_first_end, find_last_end
from streamsvm.data.csv_tokens import find_foreign, refuse_row
from streamsvm.data.tables import LABEL_NAMES, Columns, show_name
from streamsvm.data.text_files import OPENERS
from streamsvm.data.values import NOT_UTF8, parse_number
from streamsvm.errors import InputError, NeedsOptionError

HEADERS = ("auto", "yes", "no")
LOOKED_AT_ROWS = 1000
COUNTED_COLUMNS = 6
DELIMITERS = ",\t;|"
NO_DELIMITERS = "\"'\r\n.+-_\0"  # which have a meaning in values

_BLANK_LINES = re.compile(rb"([ \t]*(\r\n|\r|\n))*")
_LINE = re.compile(rb"[^\r\n]*(\r\n|\r|\n)")


def choose_delimiter(head: bytes, path: str, sep: str | None = None) -> str:
    """Return the delimiter: `sep`, else what the file's name tells, else the one that gives the first row most columns.

    A name is not believed if its delimiter gives one column only. Raises InputError for a `sep` that cannot be one.
    """
    if sep is not None:
        mark = {"\\t": "\t", "tab": "\t"}.get(sep, sep)
        if len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in NO_DELIMITERS:
            raise InputError(f"sep {sep!r}: one character separates columns, such as ; or | or \\t")
        return mark
    stem = Path(path).stem if Path(path).suffix.lower() in OPENERS else path
    told = {".csv": ",", ".tsv": "\t"}.get(Path(stem).suffix.lower(), "")
    start = skip_comments(head)[0]
    counts = {mark: _count_cells(head[start : find_first_end(head, start, mark)], mark) for mark in DELIMITERS}
    return told if counts.get(told, 0) > 1 else max(dict.fromkeys(told + DELIMITERS), key=lambda mark: counts[mark])


def skip_comments(head: bytes) -> tuple[int, list[int]]:
    """Return where the first line begins that is neither blank nor begins with #, and where the lines above it begin.

    A text of which all lines begin with # has no comments.
    """
    first = start = _skip_blank_lines(head, 0)
    above: list[int] = []
    while head.startswith(b"#", start):
        line = _LINE.match(head, start)
        above.append(start)
        start = len(head) if line is None else _skip_blank_lines(head, line.end())
    return (start, above) if start < len(head) else (first, [])


def _skip_blank_lines(head: bytes, start: int) -> int:
    blank = _BLANK_LINES.match(head, start)
    return blank.end() if blank else start


def _find_first_row(head: bytes, delimiter: str) -> int:
    """Return where the first row begins: comments above it have another number of cells than the line below them."""
    start, above = skip_comments(head)
    counts = {at: _count_cells(head[at : find_first_end(head, at, delimiter)], delimiter) for at in (*above, start)}
    return next(at for at in (*above, start) if counts[at] == counts[start])


def read_header(head: bytes, ended: bool, path: str, columns: Columns, delimiter: str) -> tuple[tuple[str, ...], int]:
    """Return the names of the columns ("1", "2", ... without a header), and the byte at which the rows begin.

    `head` is the beginning of the text, and all of it if `ended`. Raises InputError if the first row may be either.
    """
    start = _find_first_row(head, delimiter)
    end = find_first_end(head, start, delimiter)
    place = f"{show_name(path)}:{1 + count_lines(head[:start])}"
    try:
        first = [cell.strip() for cell in next(_read_rows(head[start:end], delimiter), [])]
    except csv.Error as error:
        raise refuse_row(error, place, head[start:].decode(errors="surrogateescape"), delimiter) from error
    is_header: bool | None = columns.header == "yes"
    if columns.header == "auto":
        last = len(head) if ended else find_last_end(head, delimiter, False)[0]
        is_header = _is_header(first, _look_at(head[end:last], delimiter, len(first)), columns)
    if is_header is None:
        shown = delimiter.join(first)[:60]
        raise NeedsOptionError(
            f"{show_name(path)}: is the first row, {shown!r}, a header? it may be one, or not: say --header yes or "
            "--header no"
        )
    if is_header and (j := find_foreign(first, range(len(first)))) is not None:
        raise InputError(f"{place}:{j + 1}: the name of the column is {NOT_UTF8}")
    return (tuple(first), end) if is_header else (tuple(str(j + 1) for j in range(len(first))), start)


def _is_header(first: Sequence[str], rows: Sequence[Sequence[str]], columns: Columns) -> bool | None:
    """Tell whether the first row is a header; None if it may be either."""
    words = [j for j, cell in enumerate(first) if cell and parse_number(cell) is None]
    numbered = tuple(str(j + 1) for j in range(len(first)))
    if columns.features and not set(columns.features) <= set(numbered) and set(columns.features) <= set(first):
        return True
    if len(words) == sum(bool(cell) for cell in first):  # no cell is a number
        return bool(words)
    if not words:
        return _are_numbers_a_header(first, rows, columns)
    below = {j: {row[j] for row in rows} for j in words}
    if any(below[j] and all(parse_number(cell) is not None for cell in below[j]) for j in words):
        return True
    if any(first[j] in below[j] for j in words):
        return False
    return True if any(first[j].lower() in LABEL_NAMES or first[j] == columns.label for j in words) else None


def _are_numbers_a_header(first: Sequence[str], rows: Sequence[Sequence[str]], columns: Columns) -> bool | None:
    """Tell whether a first row of numbers is a header: programs write 0, 1, 2, ... over columns without names.

    A row of data that counts so many columns by chance is rare; where the next row counts on, all are such rows.
    """
    n, counted = len(first), [[str(j + k) for j in range(len(first))] for k in (0, 1)]
    if n < 2 or list(first) not in counted or not rows:
        return False
    if n >= COUNTED_COLUMNS and list(rows[0]) != [str(int(cell) + n) for cell in first]:
        return True
    label = columns.label
    if label is not None and label.isdecimal() and 1 <= int(label) <= len(first):
        j = int(label) - 1
        if first[j] in {row[j] for row in rows}:
            return False
    return None


def _count_cells(text: bytes, delimiter: str) -> int:
    """Return the number of cells of a row, whose quotes may be wrong; 0 if one of them is too long."""
    with suppress(csv.Error):
        return len(next(_read_rows(text, delimiter, strict=False), []))
    return 0


def _look_at(text: bytes, delimiter: str, n_columns: int) -> list[list[str]]:
    """Return the cells of the first rows that have so many columns, up to a bad row.

    A bad row is refused, with its line, when the rows are read.
    """
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(islice(_read_rows(text, delimiter), LOOKED_AT_ROWS))
    return [[cell.strip() for cell in row] for row in rows if len(row) == n_columns]


def _read_rows(text: bytes, delimiter: str, strict: bool = True) -> Iterator[list[str]]:
    """Yield the cells of each row, with surrogates for bytes that are not UTF-8. Raises csv.Error for a bad row."""
    decoded = io.StringIO(text.decode(errors="surrogateescape"), newline="")
    return csv.reader(decoded, delimiter=delimiter, strict=strict)
