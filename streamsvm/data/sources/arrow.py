"""The readers of Parquet, Arrow and Feather, ORC and JSON lines, based on pyarrow.

The page headers of a Parquet file are checked before pyarrow allocates the memory that they claim. A file of a thousand
bytes may claim pages of 2 GB, and pyarrow would spend seconds on allocating and filling them. This module also parses
the footer, because pyarrow's column objects crash the process if a statistic in the footer is damaged. Page headers and
footer are structs of Thrift's compact protocol (https://github.com/apache/parquet-format).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import IO, Any

import numpy as np

from streamsvm.data.remote.files import copied
from streamsvm.data.rows.source import SourceRows
from streamsvm.data.sources.svmlight import read_blocks
from streamsvm.data.sources.table_stream import Features, OpenTable, TableStream
from streamsvm.data.store.layouts import are_finite
from streamsvm.data.tables import checks, encoder
from streamsvm.data.tables.checks import Place, Vector
from streamsvm.data.tables.columns import Columns, TableLayout, fill_features, lay_out, pyarrow
from streamsvm.numeric.stored_types import round_features
from streamsvm.system.errors import InputError, NeedsOptionError, say_count

PIECE_ROWS = 65536
PIECE_BYTES = 32 << 20  # the maximum size of a piece as float64
LINES_BYTES = 8 << 20  # the bytes of JSON lines that are parsed together
MOST_LINE_BYTES = 1 << 28
# Types whose values convert to the same float32 directly and through float64. For int64, this holds for values that
# float64 represents exactly.
_ROUNDED_ONCE = ("float", "double", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_MOST_EXACT = 1 << 53
_MOST_PACKED = 64  # the maximum ratio of the bytes of rows to the bytes of their file, whatever the footer claims
# By default, pyarrow holds a whole row group in memory, and a row group may be the whole file.
_READ_OPTIONS = {"pre_buffer": False, "buffer_size": 1 << 16, "page_checksum_verification": True}


@dataclass(frozen=True)
class ArrowPiece:
    """Consecutive rows of a table: a part of an Arrow batch.

    name_row: a function from the index of a row in the batch to its place in the file. start: the index of the first
    row in the batch. size: the number of rows.
    """

    layout: TableLayout
    batch: Any
    name_row: Callable[[int], str]
    start: int
    size: int

    def place(self, j: int) -> Place:
        """Return a function that gives the places of the values of column j."""
        return lambda i: f"{self.layout.where}: {self.name_row(self.start + i)}, column {self.layout.names[j]}"

    def has_text_labels(self) -> bool:
        """Return False: Arrow columns have a type, so no label has to be examined."""
        return False

    def _take(self, j: int) -> Any:
        """Return a column of the file, or a column named by a folder."""
        if j in self.layout.folders:
            return encoder.repeat_folder(*self.layout.folders[j], self.size, "")
        return self.batch.column(self.layout.names[j])

    def read_columns(self) -> list[Any]:
        """Return the feature columns. Raises InputError for an unsupported type."""
        names, where = self.layout.names, self.layout.where
        return [encoder.read_column(self._take(j), names[j], where) for j in self.layout.features]

    def read_numbers(self) -> Features:
        """Return the features of a table of numbers. Raises InputError for other values."""
        layout, names = self.layout, self.layout.feature_names
        columns = {name: self.batch.column(name) for name in names}
        for name, column in columns.items():
            if not encoder.is_number(column.type):
                if not encoder.is_text(getattr(column, "dictionary", column)):
                    raise encoder.refuse_type(column.type, name, layout.where)
                texts = [other for other, each in columns.items() if encoder.is_text(getattr(each, "dictionary", each))]
                gaps = [other for other, each in columns.items() if each.null_count]
                fault = f"{column.type} is not a number; {checks.advise_on_table(texts, gaps)}"
                raise NeedsOptionError(f"{layout.where}: column {name}: {fault}")
        X = fill_features([_read_numbers(column) for column in columns.values()])
        if not are_finite(rounded := np.asarray(round_features(X, None))):
            i, k = divmod(int(np.argmin(np.isfinite(rounded))), X.shape[1])
            fault, remedy = checks.find_feature_fault(self.batch.column(names[k])[i].as_py())
            kind = NeedsOptionError if remedy else InputError
            raise kind(f"{self.place(layout.features[k])(i)}: {fault}{remedy and '; '}{remedy}")
        return X

    def make_rows(self, X: Features, is_plain: bool, numbers: bool | None) -> Iterator[SourceRows]:
        """Yield the rows; see `Piece`."""
        vectors = dict[str, tuple[Vector, Place]]()
        for role, j in self.layout.vectors.items():
            column, place = self._take(j), self.place(j)
            if role == "index" and encoder.is_any(column.type, "floating"):
                checks.refuse_merged(column.to_numpy(zero_copy_only=False), place, "the name of a row")
            if role == "label":
                vectors[role] = encoder.read_labels(column, place, self.layout.label_kind), place
                continue
            if role == "index" or (not is_plain and encoder.is_any(column.type, "dictionary")):
                column = column.cast("string")
            column = column.fill_null("") if role == "index" else column
            has_gaps = column.null_count and encoder.is_any(column.type, "integer")  # pyarrow would give floats
            values = np.array(column.to_pylist(), object) if has_gaps else column.to_numpy(zero_copy_only=False)
            vectors[role] = np.asarray(values), place
        yield checks.to_source_rows(X, vectors, self.layout.feature_names if is_plain else None, numbers)


def _read_numbers(column: Any) -> Vector:
    """Return a column with NaN for missing values: as float64, or in its own type if that gives the same float32."""
    if str(column.type) in _ROUNDED_ONCE and not column.null_count:
        values = np.asarray(column.to_numpy(zero_copy_only=False))
        if values.dtype != np.int64 or -_MOST_EXACT <= values.min(initial=0) <= values.max(initial=0) <= _MOST_EXACT:
            return values
    return np.asarray(column.cast("float64", safe=False).to_numpy(zero_copy_only=False))


NamedBatches = Iterator[tuple[Any, Callable[[int], str]]]  # a batch, and a function from a row index to a place


@dataclass(frozen=True)
class Opened:
    """An open file or frame.

    names: the names of its columns. read: a function from column names to batches of these columns. deciding_rows: the
    number of rows, from the first on, that decide the kinds of the columns. has_numbers: returns whether the table may
    hold only numbers (see TableStream).
    """

    names: tuple[str, ...]
    read: Callable[[list[str]], NamedBatches]
    deciding_rows: int = PIECE_ROWS
    has_numbers: Callable[[Columns], bool] = lambda _: False


def as_table(open_file: Callable[[str], Iterator[Opened]]) -> OpenTable:
    """Make an opener of tables from a generator function that opens a file, yields it once, and closes it."""

    @contextmanager
    def open_table(path: str, columns: Columns, before: tuple[str, ...] | None) -> Iterator[TableStream]:
        with name_file(path), contextmanager(open_file)(path) as file:
            layout = lay_out(file.names, path, columns, before)
            most_rows = count_piece_rows(len(layout.wanted))
            yield TableStream(
                layout,
                lambda _: _cut(file.read(_list_wanted(layout)), layout, most_rows),
                min(most_rows, file.deciding_rows),
                lambda: file.has_numbers(columns),
            )

    return open_table


def count_piece_rows(n_columns: int) -> int:
    """Return the maximum number of rows in a piece of `n_columns` columns."""
    return max(1, min(PIECE_ROWS, PIECE_BYTES // (8 * n_columns)))


def _list_wanted(layout: TableLayout) -> list[str]:
    return [layout.names[j] for j in layout.own_wanted]


def _read_views(batch: Any) -> Any:
    """Return a batch whose categories are plain strings; pyarrow cannot decode string views, as polars writes them."""
    for k, column in enumerate(batch.columns):
        if encoder.is_any(column.type, "dictionary") and encoder.is_any(column.type.value_type, "string_view"):
            plain = pyarrow.DictionaryArray.from_arrays(column.indices, column.dictionary.cast("string"))
            batch = batch.set_column(k, batch.schema.field(k).name, plain)
    return batch


def _cut(batches: NamedBatches, layout: TableLayout, most_rows: int) -> Generator[ArrowPiece, None, None]:
    for read, name_row in batches:
        batch = _read_views(read)
        del read
        for start in range(0, batch.num_rows, most_rows):
            part = batch.slice(start, most_rows)
            yield ArrowPiece(layout, part, name_row, start, part.num_rows)
        del batch


def number_rows(batches: Iterator[Any], n_before: int = 0, end: int | None = None) -> NamedBatches:
    """Yield each batch with a function that names its rows. n_before: the number of rows before the first batch.

    end: the number of rows up to the end of the last batch, according to the footer of the file, or None. Raises
    ValueError if the batches end elsewhere.
    """
    for batch in batches:
        yield batch, partial(_number_row, n_before)
        n_before += batch.num_rows
        del batch
    if end not in (None, n_before):
        raise ValueError(f"it holds {say_count(n_before, 'row')}, but its footer says {end:,}")


def _number_row(n_before: int, i: int) -> str:
    return f"row {n_before + i + 1}"


@contextmanager
def name_file(path: str) -> Iterator[None]:
    """Convert errors of reading a file, raised in the block, to InputError with the name of the file and the reason."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, KeyError, IndexError, OverflowError, MemoryError, pyarrow.ArrowException) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(f"{path}: {reason}") from error


@as_table
def open_parquet(path: str) -> Iterator[Opened]:
    """Open a Parquet file. Index columns that pandas wrote are left out."""
    with _open_twice(path) as (file, pages):

        def read(wanted: list[str]) -> NamedBatches:
            check_pages(pages, set(wanted))
            most_rows = count_piece_rows(len(wanted))
            batches = _cut_batches(file.iter_batches(most_rows, columns=wanted), repeat(most_rows))
            return number_rows(batches, end=file.metadata.num_rows)

        schema = file.schema_arrow
        dated = any(encoder.is_any(kind, *encoder.DATES) for kind in schema.types)
        yield Opened(tuple(schema.names), read, has_numbers=lambda columns: columns.features is not None or not dated)


@contextmanager
def _open_twice(path: str) -> Iterator[tuple[Any, IO[bytes]]]:
    """Open a Parquet file twice: yield a pyarrow ParquetFile, and a binary file for checking the pages."""
    with (
        copied(path) as copy,
        copy.open("rb") as pages,
        copy.open("rb") as opened,
        pyarrow.parquet.ParquetFile(opened, **_READ_OPTIONS) as file,
    ):
        yield file, pages


def _cut_batches(batches: Iterator[Any], sizes: Iterator[int], skip: int = 0) -> Iterator[Any]:
    """Skip the first `skip` rows, and yield the others in batches of the given sizes; the last batch may be shorter.

    pyarrow starts a new batch wherever the dictionary of a column changes, for example at a new row group. The batches
    yielded here depend only on the sizes.
    """
    waiting, left = list[Any](), next(sizes, 0)
    for each in batches:
        batch, skip = each.slice(min(skip, each.num_rows)), max(0, skip - each.num_rows)
        while batch.num_rows and left:
            waiting.append(batch.slice(0, left))
            left, batch = left - waiting[-1].num_rows, batch.slice(waiting[-1].num_rows)
            if not left:
                yield pyarrow.Table.from_batches(waiting).combine_chunks().to_batches()[0]
                waiting, left = [], next(sizes, 0)
    if waiting:
        yield pyarrow.Table.from_batches(waiting).combine_chunks().to_batches()[0]


def cut_parquet(path: str, columns: Columns) -> tuple[TableLayout, list[int]]:
    """Return the layout of a file, the rows at which its pieces begin, and its number of rows."""
    with name_file(path), _open_twice(path) as (file, pages):
        layout = lay_out(tuple(file.schema_arrow.names), path, columns, None)
        check_pages(pages, set(_list_wanted(layout)))
        n_rows = int(file.metadata.num_rows)
        if n_rows == 0:
            raise InputError(f"{path}: no rows")
        return layout, [*range(0, n_rows, count_piece_rows(len(layout.wanted))), n_rows]


@contextmanager
def open_range(path: str, layout: TableLayout, starts: Sequence[int]) -> Iterator[Iterator[ArrowPiece]]:
    """Open consecutive pieces of a Parquet file. starts: the first row of each piece, and the end of the last piece."""
    with name_file(path), _open_twice(path) as (file, _):
        limits = np.cumsum([0, *(file.metadata.row_group(k).num_rows for k in range(file.num_row_groups))])
        first, last = np.searchsorted(limits, (starts[0], starts[-1] - 1), side="right") - 1
        sizes = np.diff(starts).tolist()
        found = file.iter_batches(sizes[0], row_groups=range(first, last + 1), columns=_list_wanted(layout))
        batches = _cut_batches(found, iter(sizes), starts[0] - int(limits[first]))
        yield _cut(number_rows(batches, starts[0], starts[-1]), layout, max(sizes))


def guess_row_bytes(path: str | Path) -> int:
    """Return the approximate bytes of a Parquet file's rows as float32, or 0 if its footer cannot be read."""
    with suppress(InputError), name_file(str(path)):
        footer = pyarrow.parquet.read_metadata(path)
        return min(4 * int(footer.num_rows * footer.num_columns), _MOST_PACKED * Path(path).stat().st_size)
    return 0


@as_table
def open_ipc(path: str) -> Iterator[Opened]:
    """Open a file or a stream in Arrow's own format (also called Feather)."""
    with copied(path) as copy, pyarrow.memory_map(str(copy)) as opened:
        try:
            file = pyarrow.ipc.open_file(opened)
            batches = (file.get_batch(k) for k in range(file.num_record_batches))
        except pyarrow.ArrowInvalid:
            opened.seek(0)
            file = batches = pyarrow.ipc.open_stream(opened)

        def read(wanted: list[str]) -> Iterator[Any]:
            for batch in batches:
                batch.validate(full=True)  # offsets in a damaged file may point outside its arrays
                yield batch.select(wanted)

        yield Opened(tuple(file.schema.names), lambda wanted: number_rows(read(wanted)))


@as_table
def open_orc(path: str) -> Iterator[Opened]:
    """Open an ORC file, and read one stripe at a time."""
    with copied(path) as copy, copy.open("rb") as opened:
        file = pyarrow.orc.ORCFile(opened)

        def read(wanted: list[str]) -> NamedBatches:
            return number_rows(file.read_stripe(k, columns=wanted) for k in range(file.nstripes))

        yield Opened(tuple(file.schema.names), read)


@as_table
def open_json_lines(path: str) -> Iterator[Opened]:
    """Open text with a JSON object on each line, plain or compressed; "-" is standard input.

    The first block of lines determines the columns and their kinds; later lines may lack some of the columns.
    """
    with closing(_read_lines(path)) as blocks:
        first = next(blocks, None)

        def read(wanted: list[str]) -> NamedBatches:
            for text, line in () if first is None else chain((first,), blocks):
                yield _fill_up(_parse_lines(text, line), wanted), partial(_name_line, text, line)

        names = () if first is None else tuple(_parse_lines(*first).schema.names)
        yield Opened(names, read, 1)


def _name_line(text: bytes, first: int, i: int) -> str:
    """Return the line of row i of a text, as in "line 7". first: the line of the file at which the text begins."""
    full = [k for k, line in enumerate(text.split(b"\n")) if line.strip()]
    return f"line {first + full[i]}"


def _read_lines(path: str) -> Generator[tuple[bytes, int], None, None]:
    """Yield about LINES_BYTES of whole lines, and the number of the first line; skip texts with blank lines only."""
    for block in read_blocks([path], LINES_BYTES, MOST_LINE_BYTES):
        if (text := block.text.tobytes()).strip():
            yield text, block.line + 1


def _parse_lines(text: bytes, first: int) -> Any:
    """Parse lines of JSON objects to a record batch. Raises ValueError naming the first line that is not an object."""
    options = pyarrow.json.ReadOptions(block_size=len(text) + 1)
    try:
        table = pyarrow.json.read_json(pyarrow.BufferReader(text), options)
    except pyarrow.ArrowInvalid as error:
        found = re.search(r"(.*) in row (\d+)$", str(error))
        where = f"{_name_line(text, first, int(found[2]))}: {found[1]}" if found else f"from line {first} on: {error}"
        raise ValueError(where) from error
    return table.combine_chunks().to_batches()[0]


def _fill_up(batch: Any, wanted: list[str]) -> Any:
    """Return the wanted columns; a column that the batch lacks is filled with missing values."""
    names = batch.schema.names
    none = pyarrow.nulls(batch.num_rows)
    columns = [batch.column(name) if name in names else none for name in wanted]
    return pyarrow.RecordBatch.from_arrays(columns, names=wanted)


MOST_PAGE_BYTES = 1 << 28  # usual pages have about 1 MiB
MOST_HEADER_BYTES = 1 << 20  # large, because a header may hold the minimum and the maximum of its page
MOST_DEPTH = 16

_ROW_GROUPS = 4  # field of FileMetaData
_COLUMNS, _NUM_ROWS = 1, 3  # fields of RowGroup
_META_DATA = 3  # field of ColumnChunk
_TOTAL_COMPRESSED, _DATA_OFFSET, _DICTIONARY_OFFSET = 7, 9, 11  # fields of ColumnMetaData; field 3 is the path
_UNCOMPRESSED, _COMPRESSED, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8  # fields of PageHeader
_BOOLEANS, _INTEGERS, _BINARY, _LISTS, _STRUCT = (1, 2), (4, 5, 6), 8, (9, 10), 12
_SKIPPED_BYTES = {1: 1, 2: 1, 3: 1, 7: 8}  # bytes by type: booleans in a list, a single byte, a double


def check_pages(file: IO[bytes], columns: set[str]) -> None:
    """Raise ValueError if a page of one of the columns is too large, or extends beyond its column chunk."""
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - 8))
    footer_bytes = int.from_bytes(file.read(4), "little")
    if footer_bytes > size - 8:
        raise ValueError("the footer is truncated")
    file.seek(size - 8 - footer_bytes)
    try:
        footer = _Thrift(file, footer_bytes).read_struct()
    except IndexError:
        raise ValueError("the footer is damaged") from None
    for group in _get_structs(footer, _ROW_GROUPS):
        n_rows = _get_int(group, _NUM_ROWS)
        for chunk in _get_structs(group, _COLUMNS) if n_rows else ():
            match chunk.get(_META_DATA):
                case {3: [bytes(path)]} if (name := path.decode(errors="replace")) in columns:
                    _check_column(file, chunk[_META_DATA], n_rows, name, size)


def _check_column(file: IO[bytes], about: dict[int, Any], n_rows: int, name: str, size: int) -> None:
    """Raise ValueError unless every page of a column chunk has a valid header.

    about: the ColumnMetaData of the chunk.
    """
    offsets = [about[field] for field in (_DATA_OFFSET, _DICTIONARY_OFFSET) if isinstance(about.get(field), int)]
    start = min((offset for offset in offsets if offset > 0), default=0)
    end = start + _get_int(about, _TOTAL_COMPRESSED)
    if not 0 < start <= end <= size:
        raise ValueError(f"column {name} lies outside the file")
    while start < end:
        file.seek(start)
        try:
            header = _Thrift(file, min(MOST_HEADER_BYTES, end - start)).read_struct()
        except IndexError:
            raise ValueError(f"column {name} has a damaged page header") from None
        unpacked, compressed = _get_int(header, _UNCOMPRESSED), _get_int(header, _COMPRESSED)
        if not 0 <= compressed <= end - file.tell() or not 0 <= unpacked <= MOST_PAGE_BYTES:
            raise ValueError(f"column {name} has a page of {compressed:,} bytes, {unpacked:,} unpacked")
        n_values, most = _count_values(header), unpacked if _DICTIONARY in header else n_rows
        if not 0 <= n_values <= most:
            raise ValueError(f"column {name}: a page claims {n_values:,} values, but at most {most:,} are possible")
        start = file.tell() + compressed


def _count_values(header: dict[int, Any]) -> int:
    """Return the number of values of a data or dictionary page, field 1 of its header; 0 for other pages."""
    parts = (header.get(part) for part in (_DATA, _DICTIONARY, _DATA_2))
    return next((_get_int(part, 1) for part in parts if isinstance(part, dict)), 0)


def _get_int(found: dict[int, Any], field: int) -> int:
    """Return the integer in a field; -1 if it holds no integer."""
    value = found.get(field)
    return value if isinstance(value, int) else -1


def _get_structs(found: dict[int, Any], field: int) -> list[dict[int, Any]]:
    """Return the structs in the list of a field; an empty list if the field holds no list."""
    values = found.get(field)
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


@dataclass
class _Thrift:
    """A reader of values in Thrift's compact protocol, in the next `left` bytes of a file.

    Booleans, single bytes and doubles are not needed, and are returned as None. Raises IndexError if a value extends
    beyond the `left` bytes.
    """

    file: IO[bytes]
    left: int

    def take(self, n_bytes: int) -> bytes:
        """Return the next bytes."""
        self.left -= n_bytes
        if self.left < 0:
            raise IndexError
        return self.file.read(n_bytes)

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the values of a struct by field number."""
        found: dict[int, Any] = {}
        field = 0
        while kind := self.take(1)[0]:
            field = field + (kind >> 4) if kind >> 4 else self.read_integer()
            found[field] = None if kind & 15 in _BOOLEANS else self.read_value(kind & 15, depth)
        return found

    def read_value(self, kind: int, depth: int) -> Any:
        """Return an integer, a binary value, a list or a struct; None for types that are not needed."""
        if depth > MOST_DEPTH:
            raise ValueError("the file is damaged: structs are nested without end")
        if kind in _INTEGERS:
            return self.read_integer()
        if kind in _SKIPPED_BYTES:
            self.take(_SKIPPED_BYTES[kind])
            return None
        if kind == _BINARY:
            return self.take(self.read_varint())
        if kind == _STRUCT:
            return self.read_struct(depth + 1)
        if kind in _LISTS:
            head = self.take(1)[0]
            count = self.read_varint() if head >> 4 == 15 else head >> 4
            return [self.read_value(head & 15, depth + 1) for _ in range(count)]
        raise ValueError("the file is damaged: a struct holds a value of an unknown kind")

    def read_varint(self) -> int:
        """Return a number encoded with seven bits per byte, the lowest bits first."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("the file is damaged: a number has no end")

    def read_integer(self) -> int:
        """Decode an integer in zigzag encoding, which has the sign in the lowest bit."""
        value = self.read_varint()
        return (value >> 1) ^ -(value & 1)
