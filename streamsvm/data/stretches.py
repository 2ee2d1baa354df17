"""Stretches of files, which several workers read: the same blocks that one process would cut, and the same rows.

One worker looks through a file once and notes where its blocks begin, since the cuts depend on what lies before them: a
long line, a quoted line end, a comment. Then any worker can read any stretch of blocks. A file that is compressed, or
lies in an object store, can only be read from its beginning, and is one stretch. Parquet is cut into pieces of rows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from streamsvm.data import csv_table, csv_text, svmlight, text
from streamsvm.data.arrow_tables import name_row, read_piece
from streamsvm.data.csv_header import choose_delimiter, read_header
from streamsvm.data.csv_parser import count_line_ends
from streamsvm.data.formats import COMPRESSED
from streamsvm.data.labels import has_number_labels
from streamsvm.data.parquet import cut_parquet, open_batches, read_pieces
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.table_encoder import TableEncoder
from streamsvm.data.tables import Columns, TableLayout, lay_out
from streamsvm.data.text_files import MARK_BYTES, READING_ERRORS, explain_reading, fill, find_mark, open_text
from streamsvm.data.text_numbers import NEWLINE
from streamsvm.data.work_ahead import unjoined_pool
from streamsvm.errors import InputError
from streamsvm.urls import is_remote

BLOCK_BYTES = 8 << 20  # as text.read_svmlight and csv_text.read_csv cut
STRETCH_BLOCKS = 4
KINDS = ("svmlight", "csv", "parquet")


@dataclass(frozen=True)
class Stretch:
    """Blocks of a file.

    Attributes
    ----------
    path : str
        The file.
    starts : tuple of int
        Where the blocks begin in the text, and where the last one ends; of Parquet, the rows.
    line : int
        The lines of the file before the first block.
    n_pieces : int
        How many of the blocks have rows.
    ends : bool
        Whether the file ends here.
    layout : TableLayout or None
        The columns, if the file is a table.
    failure : str
        Why there is nothing more to read, as a whole message; it is told in its turn.
    """

    path: str
    starts: tuple[int, ...]
    line: int
    n_pieces: int
    ends: bool
    layout: TableLayout | None = None
    failure: str = ""


@dataclass
class Blocks:
    """The blocks of a file, as far as they are found. starts, layout and failure are what they are in a stretch.

    lines: for each block the number of the file's lines before it; has_rows: whether the block has rows.
    """

    starts: list[int] = field(default_factory=lambda: [0])
    lines: list[int] = field(default_factory=list)
    has_rows: list[bool] = field(default_factory=list)
    layout: TableLayout | None = None
    failure: str = ""


def cut_file(path: str, kind: str, columns: Columns, encoded: bool) -> list[Stretch]:
    """Return the stretches of a file, in order. A fault is the failure of the last of them.

    encoded: whether the columns of a table are encoded.
    """
    found, step = Blocks(), STRETCH_BLOCKS
    try:
        if kind == "svmlight":
            _find_lines(path, found)
        elif kind == "parquet":
            found.layout, found.starts = cut_parquet(path, columns)
            found.lines, found.has_rows = found.starts[:-1], [True] * (len(found.starts) - 1)
        else:
            block_bytes = csv_table.BLOCK_BYTES if encoded else BLOCK_BYTES
            step *= BLOCK_BYTES // block_bytes
            _find_tables(path, columns, block_bytes, found)
    except InputError as error:
        found.failure = str(error)
    if not found.has_rows and not found.failure:
        found.failure = f"{path}: no rows"
    whole = is_remote(path) or Path(path).suffix.lower() in COMPRESSED
    return _join_blocks(path, found, max(1, len(found.has_rows)) if whole else step)


def _find_lines(path: str, found: Blocks) -> None:
    """Find the blocks of svmlight text."""
    n_lines = 0
    for block in text.read_blocks([path], BLOCK_BYTES):
        found.failure = _find_failure(block, n_lines)
        found.starts = found.starts if found.lines else [block.start]
        found.starts.append(found.starts[-1] + len(block.text) - block.last)
        found.lines.append(n_lines)
        found.has_rows.append(_has_rows(block.text))
        n_lines += int(np.count_nonzero(block.text == NEWLINE))


def _find_tables(path: str, columns: Columns, block_bytes: int, found: Blocks) -> None:
    """Find the blocks of CSV."""
    with closing(csv_text.read_blocks(path, columns, None, block_bytes)) as blocks:
        for layout, table in blocks:
            found.layout = layout
            found.starts = found.starts if found.has_rows else [_find_first(path, columns)]
            found.starts.append(found.starts[-1] + len(table.text) - 1)
            found.lines.append(table.line - 1)
            found.has_rows.append(bool(table.text.strip()))


def _join_blocks(path: str, found: Blocks, step: int) -> list[Stretch]:
    """Return stretches of so many blocks each, and one without blocks for a failure."""
    n_blocks, stretches = len(found.has_rows), list[Stretch]()
    for at in range(0, n_blocks, step):
        starts, n_pieces = tuple(found.starts[at : at + step + 1]), sum(found.has_rows[at : at + step])
        stretches.append(Stretch(path, starts, found.lines[at], n_pieces, at + step >= n_blocks, found.layout))
    if found.failure:
        stretches.append(Stretch(path, (0,), 0, 0, True, found.layout, found.failure))
    return stretches


def _find_failure(block: text.Block, n_lines: int) -> str:
    if block.overlong:
        return f"{block.file}:{n_lines + 1}:1: line of {text.MAX_LINE_BYTES:,} bytes or more"
    return f"{block.file}: {block.failure}" if block.failure else ""


def _has_rows(content: np.ndarray) -> bool:
    """Tell whether svmlight text has more than blanks and comments."""
    return any(line.split(b"#", 1)[0].strip() for line in io.BytesIO(content.tobytes()))


def _find_first(path: str, columns: Columns) -> int:
    """Return where the rows of a table begin: behind a byte order mark and the header."""
    with open_text(path) as file:
        mark = find_mark(file.read(MARK_BYTES))
    with open_text(path) as file:
        head, ended = csv_text.read_head(file)
        return mark + read_header(head, ended, path, columns, choose_delimiter(head, path, columns.sep))[1]


def read_stretch(stretch: Stretch, kind: str, first: SourceRows, threads: int = 1) -> Iterator[SourceRows]:
    """Yield the rows of a stretch. first: the first rows of all, which decide what the others are like.

    Raises InputError with FILE:LINE:COLUMN and reason.
    """
    if stretch.failure:
        raise InputError(stretch.failure)
    if kind == "parquet":
        assert stretch.layout is not None
        yield from read_pieces(stretch.path, stretch.layout, stretch.starts, has_number_labels(first))
        return
    contents = _read_contents(stretch)
    if kind == "svmlight":
        rule = svmlight.QID_ABSENT if first.qid is None else svmlight.QID_PRESENT
        yield from text.parse_blocks(_as_lines(stretch, contents), threads, False, rule, stretch.line, 1)
        return
    numbers = has_number_labels(first)
    with unjoined_pool(threads, "csv") as pool:
        for _, rows in csv_text.parse_blocks(_as_tables(stretch, contents), pool, threads, numbers):
            yield rows


def read_codes(
    stretch: Stretch, kind: str, encoder: TableEncoder, numbers: bool | None, threads: int = 1
) -> Iterator[SourceRows]:
    """Yield the rows of a stretch of a table with the codes of their columns, as the encoder reads them.

    numbers: whether labels are numbers. Raises InputError with file, line or row, column and reason.
    """
    if stretch.failure:
        raise InputError(stretch.failure)
    if kind == "parquet":
        assert stretch.layout is not None
        n_rows = stretch.starts[0]
        with open_batches(stretch.path, stretch.layout, stretch.starts) as batches:
            for batch in batches:
                rows = read_piece(batch, stretch.layout, encoder, name_row, n_rows, numbers)
                n_rows += rows.n_rows
                yield rows
        return
    blocks = _as_tables(stretch, _read_contents(stretch))
    with unjoined_pool(threads, "csv") as pool:
        for _, coded in csv_table.parse_blocks(blocks, encoder, pool, threads, numbers):
            if coded is not None:
                yield coded


def _read_contents(stretch: Stretch) -> Iterator[tuple[bytearray, bool]]:
    """Yield the bytes of each block with room for one more, and whether the file ends with it."""
    try:
        with open_text(stretch.path) as file:
            _skip(file, stretch.starts[0])
            for at, start in enumerate(stretch.starts[:-1]):
                content = bytearray(stretch.starts[at + 1] - start + 1)
                if fill(file, memoryview(content)[:-1]) < len(content) - 1:
                    raise InputError(f"{stretch.path}: the file became shorter while it was read")
                content[-1] = NEWLINE
                yield content, stretch.ends and at == len(stretch.starts) - 2
    except READING_ERRORS as error:
        raise InputError(f"{stretch.path}: {explain_reading(error)}") from error


def _skip(file: io.BufferedIOBase, n_bytes: int) -> None:
    if file.seekable():
        file.seek(n_bytes)
    else:
        file.read(n_bytes)  # a mark and a header


def _as_lines(stretch: Stretch, contents: Iterator[tuple[bytearray, bool]]) -> Iterator[text.Block]:
    for content, last in contents:
        whole = np.frombuffer(content, np.uint8)
        yield text.Block(stretch.path, whole if last else whole[:-1], last)


def _as_tables(
    stretch: Stretch, contents: Iterator[tuple[bytearray, bool]]
) -> Iterator[tuple[TableLayout, csv_text.Block]]:
    line = 1 + stretch.line
    assert stretch.layout is not None
    for content, _ in contents:
        block = csv_text.Block(content, line, count_line_ends(content))
        yield stretch.layout, block
        line += block.n_lines


def require_same_columns(plans: Sequence[list[Stretch]], columns: Columns) -> None:
    """Put a failure in the place of each file whose columns are not those of the first file."""
    names: tuple[str, ...] | None = None
    for plan in plans:
        layout = plan[0].layout
        if layout is None:
            continue
        try:
            lay_out(layout.own_names, plan[0].path, columns, names, layout.delimiter)
        except InputError as error:
            plan[:] = [Stretch(plan[0].path, (0,), 0, 0, True, layout, str(error))]
        names = names or layout.names
