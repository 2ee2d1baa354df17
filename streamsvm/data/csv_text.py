"""The reader of CSV and TSV text.

The text is cut into blocks of whole rows, which compiled code parses on all cores (see csv_parser). If a block is
irregular, or one of its values is bad, Python parses it again: it reads the same tables, and names the exact place of a
fault. The rows come in the order of the file, and the cuts depend on its bytes alone.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.csv_header import HEADERS, choose_delimiter, read_header, skip_comments
from streamsvm.data.csv_parser import MOST_CELL_BYTES, count_line_ends, parse_table
from streamsvm.data.csv_rows import count_lines, find_first_end, find_last_end
from streamsvm.data.csv_tokens import LONG_CELL, OPEN_CELL, read_rows, read_tokens, refuse_token
from streamsvm.data.labels import MOST_LABEL_CHARACTERS, has_number_labels, to_source_rows
from streamsvm.data.odd_texts import find_label_fault, has_texts, is_gap, is_text
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.tables import Columns, TableLayout, import_pyarrow, lay_out, show_name
from streamsvm.data.text_files import READING_ERRORS, explain_reading, fill, find_mark, open_text
from streamsvm.data.values import FLOAT32_OVERFLOW, TEXT, Place, Vector, parse_number
from streamsvm.data.work_ahead import look_ahead, unjoined_pool, work_ahead
from streamsvm.errors import InputError

MAX_LINE_BYTES = 1 << 28
HEAD_BYTES = 1 << 16  # of the text, from which delimiter and header are guessed
DECIDING_BYTES = 2 << 20  # of the rows, which decide the kinds of the columns and of the labels
MOST_QUOTED_BYTES = 4 * MOST_CELL_BYTES  # of a quoted value: UTF-8 has up to four bytes for a character
MOST_LABEL_BYTES = 1 << 26  # of the labels that are parsed together
LOOKED_AT_ROWS = 10_000  # rows of the block that are looked through for missing values before a fault is told


@dataclass(frozen=True)
class Block:
    """Whole rows, and one newline more. They begin at a line of the text (from 1), and have `n_lines` line ends."""

    text: bytearray
    line: int
    n_lines: int


Blocks = Iterator[tuple[TableLayout, Block]]
Parsed = Iterator[tuple[TableLayout, SourceRows | None]]


@dataclass(frozen=True)
class _Cells:
    """The features of a block, and its other columns by role: the different words, and which one each row has."""

    X: npt.NDArray[np.float64]
    words: dict[str, tuple[Any, npt.NDArray[np.int32]]]


def read_csv(
    paths: Sequence[str | Path],
    columns: Columns,
    block_bytes: int = 8 << 20,
    threads: int = 2,
    opened: OpenTable | None = None,
) -> Generator[SourceRows, None, None]:
    """Yield the rows of CSV or TSV text, plain or compressed (.gz, .bz2, .xz); "-" is standard input.

    Lines end at LF, CR LF or CR. The first row names the columns if it is a header (see csv_header); otherwise the
    columns are "1", "2", ... Commas separate the columns of .csv and tabs those of .tsv; for other names, and where
    this gives one column only, the first row tells whether it is comma, tab, semicolon or bar. Labels are numbers if
    all labels of the first 2 MiB are. A block has about `block_bytes` of text; one of `threads` parses it, and at most
    `threads + 1` of them are in memory. Raises InputError with FILE:LINE:COLUMN (from 1) and reason, or FILE and
    reason, after the rows of the blocks before.
    """
    import_pyarrow("pyarrow")
    with unjoined_pool(threads, "csv") as pool:

        def parse(blocks: Blocks, numbers: bool | None) -> Parsed:
            first, blocks = look_at_first(blocks, block_bytes)
            numbers = False if numbers is None and any(map(_has_text_labels, first)) else numbers
            del first
            return parse_blocks(blocks, pool, threads, numbers)

        yield from read_texts(paths, columns, block_bytes, opened, parse)


def read_texts(
    paths: Sequence[str | Path],
    columns: Columns,
    block_bytes: int,
    opened: OpenTable | None,
    parse: Callable[[Blocks, bool | None], Parsed],
) -> Iterator[SourceRows]:
    """Yield the rows of texts. opened: the first of them, if it is open.

    parse: returns the rows of the blocks of a text, or None for a block without rows, given whether the labels of the
    texts before are numbers.
    """
    names: tuple[str, ...] | None = None
    numbers: bool | None = None
    for path in map(str, paths):
        n_rows = 0
        cut = read_blocks(path, columns, names, block_bytes) if opened is None else opened.cut(block_bytes)
        opened = None
        with closing(cut):
            for layout, rows in parse(cut, numbers):
                names = layout.names
                if rows is not None:
                    numbers = has_number_labels(rows)
                    n_rows += rows.n_rows
                    yield rows
                del rows  # before the next block is read
        if n_rows == 0:
            raise InputError(f"{show_name(path)}: no rows")


def parse_blocks(
    blocks: Blocks, pool: ThreadPoolExecutor, threads: int, numbers: bool | None
) -> Iterator[tuple[TableLayout, SourceRows]]:
    """Yield the rows of blocks, each with its layout. numbers: whether the labels of the blocks before are numbers."""
    for (layout, block), cells in work_ahead(blocks, _parse_fast, pool, threads + 1):
        for rows in _take_rows(block, cells, layout, numbers):
            numbers = has_number_labels(rows)
            yield layout, rows
            del rows
        del block, cells  # before the next block is read


@dataclass(frozen=True)
class OpenTable:
    """The text of a table, whose head is read. rows: the rows of the head, which begin at a line of the text."""

    path: str
    file: io.BufferedIOBase
    layout: TableLayout
    rows: bytes
    line: int

    def cut(self, block_bytes: int) -> Generator[tuple[TableLayout, Block], None, None]:
        """Yield whole rows, about `block_bytes` at a time, and the layout of the table."""
        layout, line, text = self.layout, self.line, bytearray()
        try:
            for part in (io.BytesIO(self.rows), self.file):
                while len(text) < len(text := _read_on(part, text, block_bytes)):
                    end, opened = find_last_end(text, layout.delimiter, False)
                    if end:
                        block, text = _cut(text, end, line)
                        yield layout, block
                        line += block.n_lines
                        del block
                    if opened is not None and len(text) + end - opened > MOST_QUOTED_BYTES:
                        raise InputError(f"{layout.where}:{line}:1: {LONG_CELL}")
                    if len(text) > MAX_LINE_BYTES:
                        raise InputError(f"{layout.where}:{line}:1: line of more than {MAX_LINE_BYTES:,} bytes")
        except READING_ERRORS as error:
            raise InputError(f"{layout.where}: {explain_reading(error)}") from error
        if find_last_end(text, layout.delimiter, True)[1] is not None:
            raise InputError(f"{layout.where}:{line}:1: {OPEN_CELL}")
        if text:
            yield layout, _cut(text, len(text), line)[0]

    def take_head(self) -> Block:
        """Return the rows of the head, without the last one if the text goes on there."""
        end = find_last_end(self.rows, self.layout.delimiter, False)[0]
        return _cut(bytearray(self.rows), end or len(self.rows), self.line)[0]


@contextmanager
def open_table(path: str, columns: Columns, before: tuple[str, ...] | None) -> Iterator[OpenTable | None]:
    """Open the text of a table, and read its head; None if the text is blank. before: the columns of the file before.

    Raises InputError if it cannot be opened, or its head is that of no table.
    """
    if columns.header not in HEADERS:
        raise InputError(f"header {columns.header!r}: choose from {', '.join(HEADERS)}")
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_text(path))
            head, ended = read_head(file)
        except READING_ERRORS as error:
            raise InputError(f"{show_name(path)}: {explain_reading(error)}") from error
        table = None
        if head.strip():
            delimiter = choose_delimiter(head, path, columns.sep)
            names, start = read_header(head, ended, path, columns, delimiter)
            layout = lay_out(names, path, columns, before, delimiter)
            table = OpenTable(path, file, layout, head[start:], 1 + count_lines(head[:start]))
        yield table


def read_blocks(
    path: str, columns: Columns, before: tuple[str, ...] | None, block_bytes: int
) -> Generator[tuple[TableLayout, Block], None, None]:
    """Yield whole rows of a text, about `block_bytes` at a time, and the layout of the table."""
    with open_table(path, columns, before) as table:
        if table is not None:
            yield from table.cut(block_bytes)


def _cut(text: bytearray, end: int, line: int) -> tuple[Block, bytearray]:
    """Return the block that ends at `end`, which takes the memory of the text, and the rest of the text."""
    rest = text[end:]
    del text[end:]
    text += b"\n"
    return Block(text, line, count_line_ends(text)), rest


def read_head(file: io.BufferedIOBase) -> tuple[bytes, bool]:
    """Return the beginning of a text, at least two rows, without a byte order mark, and whether that is all of it."""
    head, wanted = b"", HEAD_BYTES
    while True:
        head = bytes(_read_on(file, bytearray(head), wanted - len(head)))
        text, ended = head[find_mark(head) :], len(head) < wanted
        if ended or wanted > MAX_LINE_BYTES or count_lines(text[skip_comments(text)[0] :]) > 2:
            return text, ended
        wanted *= 2


def _read_on(file: io.BufferedIOBase, text: bytearray, n_bytes: int) -> bytearray:
    """Return the text and up to `n_bytes` more, fewer only at the end of the file."""
    longer = bytearray(len(text) + n_bytes)
    longer[: len(text)] = text
    with memoryview(longer)[len(text) :] as space:
        n_read = fill(file, space)
    del longer[len(text) + n_read :]
    return longer


def _take_rows(block: Block, cells: _Cells | None, layout: TableLayout, numbers: bool | None) -> Iterator[SourceRows]:
    """Yield the rows of a block: at once, or in parts if its labels are so long that together they take much memory."""
    numbers = False if layout.label_kind == TEXT else numbers
    try:
        rows = None if cells is None else _check_cells(cells, layout, numbers)
        rows = rows or _parse_slowly(bytes(block.text[:-1]), block.line, layout, numbers)
        if rows is not None:
            yield rows
    except _LongLabelsError:
        for half in _halve(block, layout.delimiter):
            yield from _take_rows(half, _parse_fast((layout, half)), layout, False)


def _halve(block: Block, delimiter: str) -> Iterator[Block]:
    """Yield the first rows of a block, about half of them, and the others."""
    text = block.text[:-1]
    cut = find_last_end(text[: len(text) // 2], delimiter, False)[0] or find_first_end(text, 0, delimiter)
    first, rest = _cut(text, cut, block.line)
    yield first
    yield _cut(rest, len(rest), block.line + first.n_lines)[0]


class _LongLabelsError(Exception):
    """The labels of a block would take more than MOST_LABEL_BYTES, since each takes as much as the longest one."""


def _require_short(labels: Iterable[str], n_rows: int) -> None:
    if n_rows > 1 and 4 * n_rows * max(map(len, labels), default=0) > MOST_LABEL_BYTES:
        raise _LongLabelsError


def _parse_fast(part: tuple[TableLayout, Block]) -> _Cells | None:
    """Parse a block by compiled code. Return None if it has no rows, or if anything in it is irregular."""
    layout, block = part
    wanted = list(layout.vectors.values())
    parsed = parse_table(block.text, block.n_lines, layout.delimiter, layout.features, wanted, len(layout.own_names))
    if parsed is None:
        return None
    words = {}
    for role, (cells, limits) in zip(layout.vectors, parsed.words, strict=True):
        if role == "label" and np.diff(limits).max() > MOST_LABEL_CHARACTERS:
            return None
        column = _as_texts(len(parsed.X), cells, limits)
        if column is None:
            return None
        coded = column.dictionary_encode()
        words[role] = coded.dictionary, coded.indices.to_numpy()
    return _Cells(parsed.X, words)


def parse_texts(layout: TableLayout, block: Block, wanted: Sequence[int]) -> list[Any] | None:
    """Return columns of a block as compiled code reads their texts; None if anything is irregular."""
    parsed = parse_table(block.text, block.n_lines, layout.delimiter, (), wanted, len(layout.own_names))
    if parsed is None:
        return None
    columns = [_as_texts(len(parsed.X), *words) for words in parsed.words]
    return None if any(column is None for column in columns) else columns


def _as_texts(n_rows: int, cells: Any, limits: Any) -> Any:
    """Return parsed cells as a column of Arrow; None if some are not UTF-8."""
    pyarrow = import_pyarrow("pyarrow")
    column = pyarrow.StringArray.from_buffers(n_rows, *map(pyarrow.py_buffer, (limits, cells)))
    try:
        column.validate(full=True)
    except pyarrow.ArrowInvalid:
        return None
    return column


def look_at_first(blocks: Blocks, block_bytes: int) -> tuple[list[tuple[TableLayout, Block]], Blocks]:
    """Return the blocks that decide the kinds of columns and labels, and an iterator of all blocks; see `look_ahead`.

    Half of the bytes are enough, since a block ends with its last whole row. The head is less than a block.
    """
    enough = max(1, min(block_bytes, DECIDING_BYTES) // 2)
    return look_ahead(blocks, lambda part: len(part[1].text) * bool(part[1].text.strip()), enough)


def _has_text_labels(part: tuple[TableLayout, Block]) -> bool:
    """Tell whether a label of a block is a text. A block that is irregular decides nothing."""
    layout, block = part
    labels = [j for role, j in layout.vectors.items() if role == "label"]
    return any(has_texts(column.unique().to_pylist()) for column in parse_texts(layout, block, labels) or ())


def _check_cells(cells: _Cells, layout: TableLayout, numbers: bool | None) -> SourceRows | None:
    """Return the rows of a block that is parsed; None if the words of a column are wrong."""
    vectors = {}
    for role, (words, codes) in cells.words.items():
        values = _cast_words(role, words, numbers)
        if values is None:
            tokens = words.to_pylist()
            if role == "label":
                if any(find_label_fault(token, layout.label_kind) for token in tokens):
                    return None
                _require_short(tokens, len(cells.X))
            values = read_tokens(role, tokens, numbers)
        vectors[role] = (values[codes], str)
    try:
        rows = to_source_rows(cells.X, vectors, layout.feature_names, numbers)
    except InputError:
        return None
    return rows if rows.merged is None else None


def _cast_words(role: str, words: Any, numbers: bool | None) -> Vector | None:
    """Return labels or weights as pyarrow reads numbers; None if they are to be read word by word.

    Where pyarrow reads a number, it is the one that Python reads. In a column of regression labels every word differs.
    """
    pyarrow = import_pyarrow("pyarrow")
    if role in ("qid", "groups") or (role == "label" and numbers is False):
        return None
    try:
        return np.asarray(words.cast("float64").to_numpy())
    except pyarrow.ArrowInvalid:
        return None


def _find_odd_columns(
    row: list[str], others: Iterator[tuple[int, list[str]]], layout: TableLayout
) -> tuple[list[str], list[str]]:
    """Return the features that are text in a row, and those with missing values there or in later rows of the block."""
    texts, gaps = {k for k in layout.features if is_text(row[k])}, set[int]()
    with suppress(InputError):  # a later row may be none; the fault that is told comes before it
        for each in chain([row], (other for _, other in islice(others, LOOKED_AT_ROWS))):
            gaps |= {k for k in layout.features if is_gap(each[k], k in texts)}
    return [layout.names[k] for k in layout.features if k in texts], [
        layout.names[k] for k in layout.features if k in gaps
    ]


def _parse_slowly(text: bytes, line: int, layout: TableLayout, numbers: bool | None) -> SourceRows | None:
    """Parse a block in Python. Return None if the block has no rows; raise InputError for a bad token."""
    lines, X = [], []
    tokens: dict[str, list[str]] = {role: [] for role in layout.vectors}
    rows = read_rows(text, line, layout)
    for at, row in rows:
        features = np.array([parse_number(row[j]) for j in layout.features], np.float64)
        if not (is_held := np.abs(features) < FLOAT32_OVERFLOW).all():
            j = layout.features[int(np.argmin(is_held))]
            raise refuse_token(layout.place(at, j), row[j], *_find_odd_columns(row, rows, layout))
        X.append(features)
        lines.append(at)
        for role, j in layout.vectors.items():
            tokens[role].append(row[j].strip())
            if role == "label" and (fault := find_label_fault(row[j], layout.label_kind)):
                raise InputError(f"{layout.place(at, j)}: {fault}")
    if not lines:
        return None
    _require_short(tokens.get("label", ()), len(lines))

    def place(j: int) -> Place:
        return lambda i: layout.place(lines[i], j)

    values = {role: read_tokens(role, tokens[role], numbers) for role in tokens}
    vectors = {role: (values[role], place(j)) for role, j in layout.vectors.items()}
    return to_source_rows(np.array(X), vectors, layout.feature_names, numbers)
