"""The reader of tables that Arrow reads, whose columns are encoded: Parquet, Arrow and Feather, ORC, JSON lines."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.labels import has_number_labels, to_source_rows
from streamsvm.data.parquet import cut_batches, name_file, open_twice
from streamsvm.data.parquet_pages import check_pages
from streamsvm.data.remote_files import copied, open_binary
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.table_encoder import Places, TableEncoder
from streamsvm.data.table_values import read_column, read_labels, take_column
from streamsvm.data.tables import Columns, TableLayout, import_pyarrow, lay_out, show_name
from streamsvm.data.text_files import MARK_BYTES, find_mark, open_text
from streamsvm.data.values import Place, Vector, refuse_merged
from streamsvm.data.work_ahead import look_ahead
from streamsvm.errors import InputError

PIECE_ROWS = 65536
PIECE_BYTES = 32 << 20  # of a piece as float64
LINES_BYTES = 8 << 20  # of JSON lines that are parsed together
MOST_LINE_BYTES = 1 << 28


@dataclass(frozen=True)
class Opened:
    """An open file. names: of its columns. read: yields batches of the columns that are wanted, in order.

    explain: tells where row i of a batch stands, given the number of rows before the batch.
    deciding_rows: of the first rows so many decide the kinds of the columns.
    """

    names: tuple[str, ...]
    read: Callable[[list[str]], Iterator[Any]]
    explain: Callable[[int], str]
    deciding_rows: int = PIECE_ROWS


Open = Callable[[str], AbstractContextManager[Opened]]


def read_arrow(
    paths: Sequence[str | Path], columns: Columns, encoder: TableEncoder, open_file: Open
) -> Iterator[SourceRows]:
    """Yield the rows of files with the codes of their columns, as the encoder reads them.

    The first rows decide the kinds of the columns. Raises InputError with file, row or line, column and reason.
    """
    names: tuple[str, ...] | None = None
    numbers: bool | None = None
    for path in map(str, paths):
        n_rows = 0
        with name_file(path), open_file(path) as file:
            layout = lay_out(file.names, path, columns, names)
            names = layout.names
            most_rows = max(1, min(PIECE_ROWS, PIECE_BYTES // (8 * len(layout.wanted))))
            pieces = _cut(file.read([names[j] for j in layout.own_wanted]), most_rows)
            if not encoder.kinds:
                pieces = _settle(pieces, min(most_rows, file.deciding_rows), layout, encoder, file.explain)
            for piece in pieces:
                rows = read_piece(piece, layout, encoder, file.explain, n_rows, numbers)
                numbers = has_number_labels(rows)
                n_rows += rows.n_rows
                yield rows
                del piece, rows  # before the next piece is read
        if n_rows == 0:
            raise InputError(f"{show_name(path)}: no rows")


def _cut(batches: Iterator[Any], most_rows: int) -> Iterator[Any]:
    for batch in batches:
        yield from (batch.slice(start, most_rows) for start in range(0, batch.num_rows, most_rows))


def _settle(
    pieces: Iterator[Any], enough: int, layout: TableLayout, encoder: TableEncoder, explain: Callable[[int], str]
) -> Iterator[Any]:
    """Return the pieces, after the first of them have decided the kinds of the columns."""
    first, pieces = look_ahead(pieces, lambda piece: int(piece.num_rows), enough)
    limits = np.cumsum([0, *(piece.num_rows for piece in first)]).tolist()
    found = [_read_features(piece, layout, explain, n) for piece, n in zip(first, limits, strict=False)]
    if found:
        encoder.settle(layout, found)
    return pieces


def _read_features(
    piece: Any, layout: TableLayout, explain: Callable[[int], str], n_before: int
) -> tuple[list[Any], Places]:
    """Return the columns of the features, and the places of their values; see `read_piece`."""

    def places(k: int) -> Place:
        return lambda i: f"{layout.where}: {explain(n_before + i)}, column {layout.feature_names[k]}"

    columns = ((take_column(piece, layout, j), layout.names[j]) for j in layout.features)
    return [read_column(column, name, layout.where) for column, name in columns], places


def read_piece(
    piece: Any,
    layout: TableLayout,
    encoder: TableEncoder,
    explain: Callable[[int], str],
    n_before: int,
    numbers: bool | None,
) -> SourceRows:
    """Return the codes of a piece, after `n_before` rows of its file; explain: see Opened.

    numbers: whether the labels of the pieces before are numbers. Raises InputError for a bad value.
    """

    def place(j: int) -> Place:
        return lambda i: f"{layout.where}: {explain(n_before + i)}, column {layout.names[j]}"

    X = encoder.take_note(encoder.read(*_read_features(piece, layout, explain, n_before)))
    vectors: dict[str, tuple[Vector, Place]] = {}
    for role, j in layout.vectors.items():
        column = take_column(piece, layout, j)
        if role == "index" and import_pyarrow("pyarrow").types.is_floating(column.type):
            refuse_merged(column.to_numpy(zero_copy_only=False), place(j), "the name of a row")
        if role == "label":
            vectors[role] = read_labels(column, place(j), layout.label_kind), place(j)
            continue
        if role == "index" or import_pyarrow("pyarrow").types.is_dictionary(column.type):
            column = column.cast("string")
        vectors[role] = (np.asarray(column.to_numpy(zero_copy_only=False)), place(j))
    return to_source_rows(X, vectors, None, numbers)


def name_row(i: int) -> str:
    """Return where a row of Parquet, Arrow or ORC stands."""
    return f"row {i + 1}"


@contextmanager
def open_parquet(path: str) -> Iterator[Opened]:
    """Open a Parquet file."""
    with open_twice(path) as (file, pages):

        def read(wanted: list[str]) -> Iterator[Any]:
            check_pages(pages, set(wanted))
            most_rows = max(1, min(PIECE_ROWS, PIECE_BYTES // (8 * len(wanted))))
            yield from cut_batches(file.iter_batches(most_rows, columns=wanted), repeat(most_rows))

        yield Opened(tuple(file.schema_arrow.names), read, name_row)


@contextmanager
def open_ipc(path: str) -> Iterator[Opened]:
    """Open a file of Arrow's own format, which is Feather as well, or a stream of it."""
    pyarrow = import_pyarrow("pyarrow")
    with copied(path) as copy, pyarrow.memory_map(str(copy)) as opened:
        try:
            file = pyarrow.ipc.open_file(opened)
            batches = (file.get_batch(k) for k in range(file.num_record_batches))
        except pyarrow.ArrowInvalid:
            opened.seek(0)
            file = batches = pyarrow.ipc.open_stream(opened)

        def read(wanted: list[str]) -> Iterator[Any]:
            for batch in batches:
                batch.validate(full=True)  # a damaged file may lead out of its arrays
                yield batch.select(wanted)

        yield Opened(tuple(file.schema.names), read, name_row)


@contextmanager
def open_orc(path: str) -> Iterator[Opened]:
    """Open an ORC file, of which a stripe at a time is read."""
    with copied(path) as copy, copy.open("rb") as opened:
        file = import_pyarrow("pyarrow.orc").ORCFile(opened)

        def read(wanted: list[str]) -> Iterator[Any]:
            for k in range(file.nstripes):
                yield file.read_stripe(k, columns=wanted)

        yield Opened(tuple(file.schema.names), read, name_row)


@contextmanager
def open_json_lines(path: str) -> Iterator[Opened]:
    """Open text with a JSON object on each line, plain or compressed; "-" is standard input.

    The first block of lines tells the names of the columns; in later lines some of them may be missing.
    """
    with open_text(path) as file:
        blocks = _read_lines(file)
        first = next(blocks, None)
        lines = Lines()

        def read(wanted: list[str]) -> Iterator[Any]:
            for text in () if first is None else chain((first,), blocks):
                lines.add(text)
                yield _fill_up(_parse_lines(text, lines.first), wanted)

        names = () if first is None else tuple(_parse_lines(first, 1).schema.names)
        yield Opened(names, read, lines.explain, 1)  # a block of lines has more, and explains only its own rows


class Lines:
    """The lines of the text at which rows begin. first: the line at which the last block begins."""

    def __init__(self) -> None:
        self.first, self._text, self._n_rows = 1, b"", 0

    def add(self, text: bytes) -> None:
        """Take note of the next block."""
        self._n_rows += sum(1 for line in self._text.split(b"\n") if line.strip())
        self.first, self._text = self.first + self._text.count(b"\n"), text

    def explain(self, row: int) -> str:
        """Return where a row of the last block stands."""
        full = [k for k, line in enumerate(self._text.split(b"\n")) if line.strip()]
        return f"line {self.first + full[row - self._n_rows]}"


def _read_lines(file: io.BufferedIOBase) -> Iterator[bytes]:
    """Yield whole lines of a text, about LINES_BYTES at a time."""
    rest, mark = b"", -1  # the byte order mark is known after the first read
    while part := file.read(LINES_BYTES):
        mark = find_mark(part[:MARK_BYTES]) if mark < 0 else 0
        text = rest + part[mark:]
        cut = text.rfind(b"\n") + 1
        rest = text[cut:]
        if text[:cut].strip():
            yield text[:cut]
        elif len(rest) > MOST_LINE_BYTES:
            raise ValueError(f"a line of more than {MOST_LINE_BYTES:,} bytes")
    if rest.strip():
        yield rest


def _parse_lines(text: bytes, first: int) -> Any:
    """Return lines as a batch of columns. Raises ValueError, which names the line, for what is no JSON object."""
    pyarrow, json = import_pyarrow("pyarrow"), import_pyarrow("pyarrow.json")
    try:
        table = json.read_json(pyarrow.BufferReader(text), json.ReadOptions(block_size=len(text) + 1))
    except pyarrow.ArrowInvalid as error:
        found = re.search(r"(.*) in row (\d+)$", str(error))
        full = [k for k, line in enumerate(text.split(b"\n")) if line.strip()]
        where = f"line {first + full[int(found[2])]}: {found[1]}" if found else f"from line {first} on: {error}"
        raise ValueError(where) from error
    return table.combine_chunks().to_batches()[0]


def _fill_up(batch: Any, wanted: list[str]) -> Any:
    """Return the columns that are wanted; those that these lines do not have are missing values."""
    pyarrow, names = import_pyarrow("pyarrow"), batch.schema.names
    none = pyarrow.nulls(batch.num_rows)
    columns = [batch.column(name) if name in names else none for name in wanted]
    return pyarrow.RecordBatch.from_arrays(columns, names=wanted)


def has_dates(paths: Sequence[str | Path]) -> bool:
    """Tell whether the first of some Parquet files has columns of dates."""
    pyarrow = import_pyarrow("pyarrow")
    try:
        with open_binary(paths[0], False) as file:
            schema = import_pyarrow("pyarrow.parquet").read_schema(file)
    except (OSError, ValueError, pyarrow.ArrowException):  # reading the file reports it
        return False
    types = pyarrow.types
    return any(types.is_date(kind) or types.is_timestamp(kind) for kind in schema.types)
