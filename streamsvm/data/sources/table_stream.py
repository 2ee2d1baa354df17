"""Tables of all formats become rows in the same loop. Each format provides an opener, which returns a `TableStream`.

If a table holds only numbers, its values are its features. All other tables are read as codes, which an encoder turns
into features (data.tables.encoder). If the encoding depends on all rows, a scratch file holds the codes until all rows
have been read. The scratch file has no name, so the system removes it however the process ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from streamsvm.data.rows.source import SourceRows
from streamsvm.data.tables.checks import Place, has_number_labels
from streamsvm.data.tables.columns import Columns, TableLayout, show_name
from streamsvm.data.tables.encoder import Codes, TableEncoder, encode, rank_categories, sort_categories
from streamsvm.system import interrupts
from streamsvm.system.errors import InputError
from streamsvm.system.threads import unjoined_pool, work_ahead

Features = npt.NDArray[np.float32 | np.float64]


class Piece(Protocol):
    """Consecutive rows of a table."""

    layout: TableLayout
    size: int  # its size in the unit of `TableStream.enough` (rows or bytes); 0 if it has no rows

    def read_numbers(self) -> Features:
        """Return the features of a table of numbers. Raises InputError for other values."""

    def read_columns(self) -> list[Any]:
        """Return the feature columns as Arrow arrays. Raises InputError if the piece is not a table."""

    def has_text_labels(self) -> bool:
        """Return whether some labels are text; False if the format stores the type of the labels."""

    def place(self, j: int) -> Place:
        """Return a function that gives the places of the values of column j, such as rows.csv:17:3."""

    def make_rows(self, X: Features, is_plain: bool, numbers: bool | None) -> Iterator[SourceRows]:
        """Yield the rows, given X, their features or codes. Raises InputError for bad labels.

        is_plain: whether X holds features rather than codes. numbers: whether the labels of the previous pieces are
        numbers (None: there are no previous labels).
        """


@dataclass(frozen=True)
class TableStream:
    """An open table.

    cut: a function that yields the pieces in order; its argument says whether columns are encoded. enough: the total
    size of the first pieces that decide the kinds of columns and labels. has_numbers: returns whether the table may
    hold only numbers. threads: the number of pieces that are read in parallel. begin: for text files, the byte at which
    the rows begin.
    """

    layout: TableLayout
    cut: Callable[[bool], Generator[Any, None, None]]
    enough: int
    has_numbers: Callable[[], bool]
    threads: int = 1
    begin: int = 0


# Opens a file, given the roles of columns and the column names of the previous file.
OpenTable = Callable[[str, Columns, tuple[str, ...] | None], AbstractContextManager[TableStream]]


def read_table(
    paths: Sequence[str | Path], columns: Columns, open_table: OpenTable, encoder: TableEncoder
) -> Generator[SourceRows, None, None]:
    """Yield the rows of tables. Their X holds the codes of the columns, as the encoder returns them.

    If no encoding is requested and the table holds only numbers, X holds the features instead, and the encoder has no
    columns afterwards. Raises InputError with file, line or row, column and reason, after yielding the previous rows.
    """
    names: tuple[str, ...] | None = None
    numbers: bool | None = None
    used: TableEncoder | None = encoder
    for path in map(str, paths):
        has_rows = False
        with open_table(path, columns, names) as stream:
            if names is None and not columns.needs_encoder and stream.has_numbers():
                used = None
            pieces: Iterator[Piece] = stream.cut(used is not None)
            if names is None:
                pieces, numbers = _decide(pieces, stream, used)
            names = stream.layout.names
            with closing(read_pieces(pieces, used, numbers, stream.threads)) as read:
                for rows in read:
                    has_rows, numbers = True, has_number_labels(rows) if numbers is None else numbers
                    yield rows
                    del rows  # frees the memory before the next piece is read
        if not has_rows:
            raise InputError(f"{show_name(path)}: no rows")


def _decide(
    pieces: Iterator[Piece], stream: TableStream, encoder: TableEncoder | None
) -> tuple[Iterator[Piece], bool | None]:
    """Let the first pieces decide the kinds of the columns.

    Return all pieces, and False if some labels are text, else None. A malformed piece ends the decision; its error is
    raised when the piece is read in its turn.
    """
    first, pieces = _look_ahead(pieces, stream.enough)
    found, has_texts = [], False
    with suppress(InputError):
        for piece in (each for each in first if each.size):
            if encoder is not None:
                found.append((piece.read_columns(), _find_places(piece)))
            has_texts = has_texts or piece.has_text_labels()
    if encoder is not None and found:
        encoder.settle(stream.layout, found)
    return pieces, False if has_texts else None


def _look_ahead(pieces: Iterator[Piece], enough: int) -> tuple[list[Piece], Iterator[Piece]]:
    """Return the first pieces, up to a total size of `enough`, and an iterator over all pieces.

    If taking a piece raises InputError, the returned iterator raises the error after all earlier pieces.
    """
    first = list[Piece]()
    try:
        while sum(piece.size for piece in first) < enough and (piece := next(pieces, None)) is not None:
            first.append(piece)
    except InputError as error:
        pieces = map(_raise, [error])
    waiting = deque([*first, None])
    return first, chain(iter(waiting.popleft, None), pieces)  # holds no reference to a piece after yielding it


def _raise(error: InputError) -> Any:
    raise error


def _find_places(piece: Piece) -> Callable[[int], Place]:
    return lambda k: piece.place(piece.layout.features[k])


def read_pieces(
    pieces: Iterator[Any], encoder: TableEncoder | None, numbers: bool | None, threads: int
) -> Generator[SourceRows, None, None]:
    """Yield the rows of pieces, in order; see `read_table`.

    Each piece is read by one of `threads` threads, and at most `threads + 1` pieces are in memory. numbers: whether the
    labels of the previous pieces are numbers.
    """

    def read(piece: Piece) -> Features | Codes:
        if encoder is None:
            return piece.read_numbers()
        return encoder.read(piece.read_columns(), _find_places(piece))

    with unjoined_pool(threads, "table") as pool:
        for piece, found in work_ahead(pieces, read, pool, threads + 1):
            X = encoder.take_note(found) if encoder is not None and isinstance(found, tuple) else found
            for rows in piece.make_rows(X, encoder is None, numbers) if len(X) else ():
                numbers = has_number_labels(rows) if numbers is None else numbers
                yield rows
                del rows
            del piece, found, X  # frees the memory before the next piece is read


ARRAYS = ("X", "labels", "qid", "sample_weight", "groups", "merged")  # the fields of SourceRows in the scratch file


def write_piece(file: Any, rows: SourceRows) -> list[str]:
    """Write dense rows to the scratch file, and return the names of the fields that they have."""
    given = [name for name in ARRAYS if getattr(rows, name) is not None]
    for name in given:
        np.lib.format.write_array(file, np.ascontiguousarray(getattr(rows, name)), allow_pickle=False)
    return given


def read_piece(file: Any, given: Sequence[str]) -> SourceRows:
    """Return the next rows of the scratch file, given the names of their fields."""
    arrays: dict[str, Any] = {name: np.lib.format.read_array(file, allow_pickle=False) for name in given}
    return replace(SourceRows(arrays.pop("X")), **arrays)


def encode_rows(
    pieces: Iterator[SourceRows], encoder: TableEncoder, scratch: Path | None, paths: Sequence[str | Path]
) -> Iterator[SourceRows]:
    """Yield the rows of a table with their features. pieces: its rows with their codes.

    scratch: the folder of the scratch file that is used if the encoding depends on all rows; None: the system's folder
    for temporary files.
    """
    names, given, aside = ", ".join(show_name(str(path)) for path in paths), list[list[str]](), None
    with ExitStack() as stack:
        for rows in pieces:  # the first piece decides the kinds of the columns
            if not encoder.encoding.columns:  # the table holds numbers alone, which need no encoder
                yield rows
            elif encoder.is_known:
                yield encode(rows, encoder.encoding)
            else:
                aside = aside or stack.enter_context(TemporaryFile(prefix=".streamsvm", dir=scratch))
                given.append(write_piece(aside, rows))
                interrupts.check()
            del rows  # frees the memory before the next piece is read
        encoder.tell_unknown(names)
        if aside is not None:
            encoding = encoder.finish()
            encoder.tell_many(names)
            ranks = rank_categories(encoder.known, encoding)
            aside.seek(0)
            for fields in given:
                rows = read_piece(aside, fields)
                yield encode(replace(rows, X=sort_categories(rows.X, ranks)), encoding)
