"""Rows, headers and cells of CSV, parsed in Python to find the exact place of a fault.

Rows end at LF, CR LF or CR outside quoted values, exactly as in Python's csv module. A quote opens a value only at the
start of the value. Within a quoted value, two quotes represent one quote, and a single quote ends the value.

A first row is a header if a word stands above a column of numbers, if it contains the name of a requested column or a
usual name of the label, or if its cells count 0, 1, 2, ... or 1, 2, 3, ... over six columns or more. It is a row of
data if one of its words, or its label, occurs again below. If none of its cells is a number and none occurs again, it
is a header if that would be a rare chance among rows of data. Any other first row with words is ambiguous, and so is a
count over fewer columns, and a row with signs of both: the user has to decide.

Lines above the first row that begin with # are comments, unless they have the same number of cells as the first row.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.sources.formats import explain_beginning
from streamsvm.data.sources.parsing import NO_QUOTE, QUOTE, find_row_end, mark_columns
from streamsvm.data.sources.text import OPENERS, find_mark, read_bytes
from streamsvm.data.tables import checks
from streamsvm.data.tables.checks import Vector
from streamsvm.data.tables.columns import LABEL_NAMES, Columns, Dialect, TableLayout, show_name
from streamsvm.system.errors import InputError, NeedsOptionError, say_count


def count_lines(text: bytes) -> int:
    """Return the number of line ends (LF, CR LF or CR)."""
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def find_last_end(text: bytes | bytearray, dialect: Dialect, ended: bool) -> tuple[int, int | None]:
    """Return the end of the last whole row, and the start of a quoted value that does not end in the text, or None.

    ended: whether the file ends with this text. If not, a CR at the end may be the first half of CR LF.
    """
    if b'"' not in text or not dialect.quotes:
        return max(text.rfind(b"\n"), text.rfind(b"\r", 0, len(text) - (not ended))) + 1, None
    end, opened = _find_end(text, 0, dialect, ended, False)
    return end, None if opened < 0 else opened


def find_first_end(text: bytes | bytearray, start: int, dialect: Dialect) -> int:
    """Return the end of the row that begins at `start`: after its line end, or at the end of the text."""
    end, _ = _find_end(text, start, dialect, True, True)
    return start + end if end else len(text)


def _find_end(text: bytes | bytearray, start: int, dialect: Dialect, ended: bool, is_first: bool) -> tuple[int, int]:
    codes = np.frombuffer(text, np.uint8)
    delimiter, quote = ord(dialect.delimiter), QUOTE if dialect.quotes else NO_QUOTE
    end, opened = find_row_end(codes.ctypes.data + start, len(codes) - start, delimiter, quote, ended, is_first)
    return end, opened


NO_QUOTES = "--quoting none reads quotes as text (quoting='none' in Python)"
OPEN_CELL = f"a quoted value does not end: is a quote missing? {NO_QUOTES}"
MORE_TEXT = f"text follows a closing quote: quote the whole value and double the quotes within it; {NO_QUOTES}"
LONG_CELL = (
    "a value of more than 131,072 characters, which is the limit of Python's csv module: is a quote missing? "
    f"{NO_QUOTES}"
)


def read_rows(text: bytes, line: int, layout: TableLayout) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not blank: the line where it begins, and its cells.

    Cells of columns that are not read need not be UTF-8.
    """
    at, n_columns, wanted = line, len(layout.own_names), sorted(layout.own_wanted)
    try:
        reader = _read_rows(text, layout.dialect)
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):
                if len(row) != n_columns:
                    column = min(len(row), n_columns) + 1
                    fault = f"{say_count(len(row), 'column')}, but the first line has {n_columns:,}"
                    raise InputError(f"{layout.where}:{at}:{column}: {fault}")
                if (j := find_foreign(row, wanted)) is not None:
                    raise InputError(f"{layout.place(at, j)}: {checks.NOT_UTF8}")
                yield at, row
            at = line + reader.line_num
    except csv.Error as error:
        row_on = "".join(islice(_decode(text), at - line, None))
        raise refuse_row(error, f"{layout.where}:{at}", row_on, layout.dialect) from error


def find_foreign(row: Sequence[str], columns: Iterable[int]) -> int | None:
    """Return the first of the columns whose cell was not UTF-8 and so contains surrogates; None if all were UTF-8."""
    odd = (j for j in columns if not row[j].isascii())
    return next((j for j in odd if row[j].encode(errors="ignore").decode() != row[j]), None)


def refuse_row(error: csv.Error, place: str, text: str, dialect: Dialect) -> InputError:
    """Return the error for a row that the csv module rejects. text: the text from the beginning of this row on."""
    said, mark, quoted = str(error), re.escape(dialect.delimiter), r'"(?:[^"]|"")*+"'
    if said.startswith("field larger"):
        return InputError(f"{place}:1: {LONG_CELL}")
    before = re.match(rf'((?:(?:{quoted}|[^"{mark}\r\n][^{mark}\r\n]*+)?{mark})*+){quoted}[^{mark}\r\n]', text)
    if before is None:
        return InputError(f"{place}:1: {OPEN_CELL if said == 'unexpected end of data' else said}")
    column = len(next(_read_rows(f"{before[1]}.".encode(errors="surrogateescape"), dialect, strict=False)))
    return InputError(f"{place}:{column}: {MORE_TEXT}")


def read_tokens(role: str, tokens: list[str], numbers: bool | None, decimal: str | None = None) -> Vector:
    """Return the values of a column that is not a feature; cells that are not numbers stay strings.

    numbers: whether earlier labels are numbers, or None if unknown. decimal: see Columns.
    """
    if role == "index":
        return np.array(tokens, object)
    words = [token.strip() for token in tokens]
    if role in ("qid", "groups"):  # CSV has no types: 007 is the number 7, as in pandas and pyarrow
        return np.array([int(word) if checks.WHOLE_NUMBER.fullmatch(word) else word for word in words], dtype=object)
    if role == "label" and numbers is not False and all(word.lower() in checks.BOOLEANS for word in words):
        return np.array([word.lower() == "true" for word in words])
    values = [checks.parse_number(word, decimal) for word in words]
    if None not in values and (role != "label" or numbers is not False):
        wholes = [role == "label" and checks.WHOLE_NUMBER.fullmatch(word) for word in words]
        exact = [int(w) if is_whole else v for w, is_whole, v in zip(words, wholes, values, strict=True)]
        return np.array(exact, dtype=None if any(wholes) else np.float64)
    if role == "label" and not numbers:
        return np.array(words, dtype=np.str_)
    return np.array([w if v is None else v for w, v in zip(words, values, strict=True)], dtype=object)


def refuse_token(place: str, token: str, texts: Sequence[str], gaps: Sequence[str]) -> InputError:
    """Return the error for a cell that is not a finite float32.

    texts: the names of the columns with text in this row. gaps: the names of the columns with missing values in this
    row or below.
    """
    number = checks.parse_number(token)
    if not token.strip():
        return NeedsOptionError(f"{place}: empty (missing value); {checks.advise_on_table(texts, gaps)}")
    if number is None or np.isnan(number):
        fault = "nan" if number is not None else f"not a number: {token[:40]!r}"
        odd = checks.explain_text([token.strip()])
        remedy = f"these seem to be {odd}" if odd else checks.advise_on_table(texts, gaps)
        return NeedsOptionError(f"{place}: {fault}; {remedy}")
    if abs(number) == np.inf and "inf" not in token.lower():
        return InputError(f"{place}: overflows float32: {token.strip()}")
    return InputError(f"{place}: {checks.find_feature_fault(number)[0]}")


HEADERS = ("auto", "yes", "no")
HEAD_BYTES = 1 << 16  # the beginning of the text, used to guess the delimiter and the header
LOOKED_AT_ROWS = 1000
COUNTED_COLUMNS = 6
RARE_CHANCE = 0.05
DELIMITERS = ",\t;|"
WHITESPACE = "whitespace"  # the value of `sep` for columns that any blanks separate
NO_DELIMITERS = "\"'\r\n.+-_\0"  # characters with a meaning within values


def read_head(file: io.BufferedIOBase, most_bytes: int) -> tuple[bytes, int, bool]:
    """Return the head of a file without its byte order mark, the length of the mark, and whether it is the whole file.

    The head has at least two rows, unless the file is shorter or rows have more than `most_bytes`.
    """
    head, wanted = b"", HEAD_BYTES
    while True:
        head += read_bytes(file, wanted - len(head))
        mark, ended = find_mark(head), len(head) < wanted
        text = head[mark:]
        if ended or wanted > most_bytes or count_lines(text[skip_comments(text)[0] :]) > 2:
            return text, mark, ended
        wanted *= 2


def choose_dialect(head: bytes, ended: bool, path: str, sep: str | None = None, quotes: bool = True) -> Dialect:
    """Return the dialect; its delimiter is `sep` if given, otherwise a guess.

    A delimiter is the likelier if it gives all first rows the same number of columns, if it is usual for .csv or .tsv
    files, and then if it gives the first row more columns. If none gives more than one column, or if tabs give a first
    cell of several numbers, any blanks are the delimiter, provided that they give all first rows the same number.
    ended: whether the head is the whole file. Raises InputError for an invalid `sep`.
    """
    if sep == WHITESPACE:
        return Dialect("\t", quotes, is_spaced=True)
    if sep is not None:
        mark = {"\\t": "\t", "tab": "\t"}.get(sep, sep)
        if len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in NO_DELIMITERS:
            fault = "give the one character that separates the columns, such as ; or | or \\t, or the word"
            raise InputError(f"sep {sep!r}: {fault} {WHITESPACE}")
        return Dialect(mark, quotes)
    stem = Path(path).stem if Path(path).suffix.lower() in OPENERS else path
    usual = {".csv": ",", ".tsv": "\t"}.get(Path(stem).suffix.lower(), "")
    rows, each = head[skip_comments(head)[0] :], {mark: Dialect(mark, quotes) for mark in usual + DELIMITERS}
    found = {mark: _count_columns(rows, ended, dialect) for mark, dialect in each.items()}
    best = max(each, key=lambda mark: (found[mark][0], mark == usual and found[mark][1] > 1, found[mark][1]))
    words = rows[: find_first_end(rows, 0, each[best])].decode(errors="replace").split(best)[0].split()
    has_many = best == "\t" != usual and len(words) > 1 and all(checks.parse_number(word) is not None for word in words)
    marked = bytes(mark_columns(bytearray(rows), quotes)) if found[best][1] < 2 or has_many else b""
    is_spaced = _count_columns(marked, ended, each["\t"])[0]
    return Dialect("\t", quotes, is_spaced=True) if is_spaced else each[best]


def _count_columns(text: bytes, ended: bool, dialect: Dialect) -> tuple[bool, int]:
    """Return whether the first rows have the same number of cells, at least two, and the number in the first row.

    ended: whether the text is not cut within the last row.
    """
    counts = list[int]()
    with suppress(csv.Error):  # a cell is too long
        rows = islice(_read_rows(text, dialect, strict=False), LOOKED_AT_ROWS)
        counts.extend(len(row) for row in rows if len(row) > 1 or (row and row[0].strip()))
    counts = counts if ended or len(counts) == 1 else counts[:-1]
    return len(set(counts)) == 1 and counts[0] > 1, counts[0] if counts else 0


def skip_comments(head: bytes) -> tuple[int, list[int]]:
    """Return the start of the first line that is neither blank nor a comment (#), and the starts of the comments above.

    If all lines begin with #, none of them is a comment.
    """
    start, above = 0, list[int]()
    for line in head.splitlines(keepends=True):
        if line.strip(b" \t\r\n"):
            if not line.startswith(b"#"):
                return start, above
            above.append(start)
        start += len(line)
    return (above[0] if above else start), []


def _find_first_row(head: bytes, dialect: Dialect) -> int:
    """Return the start of the first line that is no comment, or of a comment above it with the same number of cells."""
    start, above = skip_comments(head)
    counts = {at: _count_cells(head[at : find_first_end(head, at, dialect)], dialect) for at in (*above, start)}
    return next(at for at in (*above, start) if counts[at] == counts[start])


def read_header(
    head: bytes, ended: bool, path: str, columns: Columns, before: tuple[str, ...] | None = None
) -> tuple[tuple[str, ...], Dialect, int, int]:
    """Return the names of the columns, their dialect, and the byte and the line (from 1) at which the rows begin.

    Without a header, the names are "1", "2", ... head: the beginning of the text, or the whole text if `ended`. before:
    the column names of the first file. Raises InputError if the first row is ambiguous.
    """
    dialect = choose_dialect(head, ended, path, columns.sep, columns.quoting != "none")
    head = bytes(mark_columns(bytearray(head), dialect.quotes)) if dialect.is_spaced else head
    start = _find_first_row(head, dialect)
    end = find_first_end(head, start, dialect)
    line = 1 + count_lines(head[:start])
    place = f"{show_name(path)}:{line}"
    try:
        first = [cell.strip() for cell in next(_read_rows(head[start:end], dialect), [])]
    except csv.Error as error:
        raise refuse_row(error, place, head[start:].decode(errors="surrogateescape"), dialect) from error
    is_header: bool | None = columns.header == "yes"
    if columns.header == "auto":
        last = len(head) if ended else find_last_end(head, dialect, False)[0]
        is_header = _is_header(first, _look_at(head[end:last], dialect, len(first)), columns, before)
    j = None if is_header is False else find_foreign(first, range(len(first)))
    if j is not None:
        what = "the name of the column is " if is_header else ""
        raise InputError(f"{place}:{j + 1}: {explain_beginning(head) or what + checks.NOT_UTF8}")
    if is_header is None:
        shown = dialect.delimiter.join(first)[:60]
        mark = _find_other_mark(head, ended, path, dialect) if len(first) == 1 and columns.sep is not None else None
        if mark is not None:
            fault = f"--sep {columns.sep} makes one column of the first row, {shown!r}"
            raise NeedsOptionError(f"{place}: {fault}; --sep {mark} makes several (sep={mark!r} in Python)")
        raise NeedsOptionError(f"{show_name(path)}: is the first row, {shown!r}, a header? Set --header to yes or no")
    if is_header:
        return tuple(first), dialect, end, line + count_lines(head[start:end])
    return tuple(str(j + 1) for j in range(len(first))), dialect, start, line


def _find_other_mark(head: bytes, ended: bool, path: str, dialect: Dialect) -> str | None:
    """Return the separator that gives the first rows several columns, as --sep takes it; None if there is none."""
    other = choose_dialect(head, ended, path, None, dialect.quotes)
    if other.is_spaced:
        return WHITESPACE
    is_likely = _count_columns(head, ended, other)[0]
    return {"\t": "tab"}.get(other.delimiter, other.delimiter) if is_likely else None


def _is_header(
    first: Sequence[str], rows: Sequence[Sequence[str]], columns: Columns, before: tuple[str, ...] | None
) -> bool | None:
    """Return whether the first row is a header; None if it is ambiguous. before: the column names of the first file."""
    words = [j for j, cell in enumerate(first) if checks.is_text(cell, columns.decimal)]
    numbered = tuple(str(j + 1) for j in range(len(first)))
    if before and tuple(first) == before[: len(first)] != numbered:
        return True
    if columns.features and not set(columns.features) <= set(numbered) and set(columns.features) <= set(first):
        return True
    has_numbers = any(checks.parse_number(cell, columns.decimal) is not None for cell in first)
    if not words:
        return has_numbers and _are_numbers_a_header(first, rows, columns)
    below = {j: Counter(row[j] for row in rows) for j in words}
    is_named = any(first[j] in columns.named for j in words)
    recurs = any(first[j] in below[j] for j in words)
    is_above = any(_are_numbers(cells, columns.decimal) for cells in below.values())
    if recurs:
        return None if is_named or is_above else False
    if is_named or is_above or any(first[j].lower() in LABEL_NAMES for j in words) or not (has_numbers or rows):
        return True
    return True if not has_numbers and _find_chance(below, len(rows)) < RARE_CHANCE else None


def _are_numbers(cells: Collection[str], decimal: str | None) -> bool:
    """Return whether the cells of a column are numbers, apart from missing values."""
    known = [cell for cell in cells if not checks.is_gap(cell, False)]
    return bool(known) and all(checks.parse_number(cell, decimal) is not None for cell in known)


def _find_chance(below: Mapping[int, Counter[str]], n_rows: int) -> float:
    """Estimate the chance that a further row of data has only new cells, by how many cells of a column occur once.

    I. J. Good, "The population frequencies of species and the estimation of population parameters", 1953.
    """
    return math.prod((1 + sum(n == 1 for n in counts.values())) / (1 + n_rows) for counts in below.values())


def _are_numbers_a_header(first: Sequence[str], rows: Sequence[Sequence[str]], columns: Columns) -> bool | None:
    """Return whether a first row of numbers is a header; None if it is ambiguous.

    Some programs write 0, 1, 2, ... above columns without names. A row of data rarely equals such a count by chance.
    If the second row continues the count, all rows are data.
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


def _count_cells(text: bytes, dialect: Dialect) -> int:
    """Return the number of cells of a row, even if its quotes are wrong; 0 if a cell is too long."""
    with suppress(csv.Error):
        return len(next(_read_rows(text, dialect, strict=False), []))
    return 0


def _look_at(text: bytes, dialect: Dialect, n_columns: int) -> list[list[str]]:
    """Return the cells of the first rows up to a malformed row, leaving out rows without exactly `n_columns` cells.

    A malformed row is reported, with its line, when the rows are read.
    """
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(islice(_read_rows(text, dialect), LOOKED_AT_ROWS))
    return [[cell.strip() for cell in row] for row in rows if len(row) == n_columns]


def _read_rows(text: bytes, dialect: Dialect, strict: bool = True) -> Any:
    """Return a reader of the cells of each row, which raises csv.Error for a bad row."""
    return csv.reader(
        _decode(text),
        delimiter=dialect.delimiter,
        quoting=csv.QUOTE_MINIMAL if dialect.quotes else csv.QUOTE_NONE,
        strict=strict,
    )


def _decode(text: bytes) -> io.StringIO:
    """Return decoded text with its line ends unchanged, and with surrogates for bytes that are not UTF-8."""
    return io.StringIO(text.decode(errors="surrogateescape"), newline="")
