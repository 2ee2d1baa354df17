"""The reader of Parquet files: pyarrow reads a piece, while others turn the pieces before into rows, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.checks import are_finite
from streamsvm.data.labels import has_number_labels, to_source_rows
from streamsvm.data.odd_texts import advise_on_table
from streamsvm.data.parquet_pages import check_pages
from streamsvm.data.remote_files import copied
from streamsvm.data.rounding import round_features
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.table_values import is_number, is_text, read_labels, refuse_type
from streamsvm.data.tables import Columns, TableLayout, fill_features, import_pyarrow, lay_out
from streamsvm.data.values import Place, Vector, find_feature_fault, find_remedy
from streamsvm.data.work_ahead import unjoined_pool, work_ahead
from streamsvm.errors import InputError, NeedsOptionError, say_count

_PIECE_BYTES = 32 << 20  # of a piece as float64, however many columns it has
_PIECES_AHEAD = 2  # the one that is turned into rows, and the one that is read meanwhile
# Types that become the same float32 with or without float64 in between; int64 does where float64 has every number.
_ROUNDED_ONCE = ("float", "double", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_MOST_EXACT = 1 << 53
_MOST_PACKED = 64  # times smaller than its rows we believe a file to be
# By default pyarrow holds a whole row group in memory, which may be a whole file.
_READ_OPTIONS = {"pre_buffer": False, "buffer_size": 1 << 16, "page_checksum_verification": True}


def read_parquet(paths: Sequence[str | Path], columns: Columns, piece_rows: int = 65536) -> Iterator[SourceRows]:
    """Yield the rows of Parquet files, at most `piece_rows` and 32 MiB at a time.

    The index columns that pandas writes are left out. Labels are float64 if their column is of numbers, otherwise str.
    Raises InputError with file, row (from 1), column and reason, or file and reason.
    """
    names: tuple[str, ...] | None = None
    numbers: bool | None = None
    for path in map(str, paths):
        n_rows = 0
        with open_twice(path) as (file, pages):
            layout = lay_out(tuple(file.schema_arrow.names), path, columns, names)
            names = layout.names
            check_pages(pages, set(_list_wanted(layout)))
            most_rows = _count_piece_rows(layout, piece_rows)
            batches = cut_batches(file.iter_batches(most_rows, columns=_list_wanted(layout)), repeat(most_rows))
            for rows in _read_batches(batches, layout, 0, numbers):
                numbers = has_number_labels(rows)
                n_rows += rows.n_rows
                yield rows
                del rows  # before the next piece is read
            _check_count(path, n_rows, file.metadata.num_rows)


@contextmanager
def open_twice(path: str) -> Iterator[tuple[Any, IO[bytes]]]:
    """Yield a file twice: as pyarrow sees it, and its bytes."""
    parquet = import_pyarrow("pyarrow.parquet")
    with (
        name_file(path),
        copied(path) as copy,
        copy.open("rb") as pages,
        copy.open("rb") as opened,
        parquet.ParquetFile(opened, **_READ_OPTIONS) as file,
    ):
        yield file, pages


def _list_wanted(layout: TableLayout) -> list[str]:
    return [layout.names[j] for j in layout.own_wanted]


def _count_piece_rows(layout: TableLayout, piece_rows: int) -> int:
    return max(1, min(piece_rows, _PIECE_BYTES // (8 * len(layout.wanted))))


def _read_batches(
    batches: Iterator[Any], layout: TableLayout, n_before: int, numbers: bool | None
) -> Iterator[SourceRows]:
    """Yield the rows of batches, of which the first comes after `n_before` rows of its file."""
    with unjoined_pool(1, "parquet") as pool:
        for batch, X in work_ahead(batches, partial(_fill_features, layout), pool, _PIECES_AHEAD):
            rows = _read_batch(batch, X, layout, n_before, numbers)
            numbers = has_number_labels(rows)
            n_before += rows.n_rows
            yield rows
            del batch, X, rows


def guess_row_bytes(path: str | Path) -> int:
    """Return about how many bytes the rows of a file take as float32, or 0 if its footer does not tell."""
    parquet = import_pyarrow("pyarrow.parquet")
    with suppress(InputError), name_file(str(path)):
        told = parquet.read_metadata(path)
        return min(4 * int(told.num_rows * told.num_columns), _MOST_PACKED * Path(path).stat().st_size)
    return 0


def cut_parquet(path: str, columns: Columns, piece_rows: int = 65536) -> tuple[TableLayout, list[int]]:
    """Return the columns of a file, and the rows at which its pieces begin, and where the last of them ends."""
    with open_twice(path) as (file, pages):
        layout = lay_out(tuple(file.schema_arrow.names), path, columns, None)
        check_pages(pages, set(_list_wanted(layout)))
        n_rows = int(file.metadata.num_rows)
        _check_count(path, n_rows, n_rows)
        return layout, [*range(0, n_rows, _count_piece_rows(layout, piece_rows)), n_rows]


def read_pieces(path: str, layout: TableLayout, starts: Sequence[int], numbers: bool | None) -> Iterator[SourceRows]:
    """Yield the pieces of a file that begin at these rows; see cut_parquet. Raises InputError as read_parquet does."""
    with open_batches(path, layout, starts) as batches:
        yield from _read_batches(batches, layout, starts[0], numbers)


@contextmanager
def open_batches(path: str, layout: TableLayout, starts: Sequence[int]) -> Iterator[Iterator[Any]]:
    """Yield the batches of a file that begin at these rows. Raises InputError if they are not as long as planned."""
    with open_twice(path) as (file, _):
        limits = np.cumsum([0, *(file.metadata.row_group(k).num_rows for k in range(file.num_row_groups))])
        first, last = np.searchsorted(limits, (starts[0], starts[-1] - 1), side="right") - 1
        sizes = np.diff(starts).tolist()

        def read() -> Iterator[Any]:
            batches = file.iter_batches(sizes[0], row_groups=range(first, last + 1), columns=_list_wanted(layout))
            n_rows = 0
            for batch in cut_batches(batches, iter(sizes), starts[0] - int(limits[first])):
                n_rows += batch.num_rows
                yield batch
            _check_count(path, n_rows, starts[-1] - starts[0])

        yield read()


def cut_batches(batches: Iterator[Any], sizes: Iterator[int], skip: int = 0) -> Iterator[Any]:
    """Yield the rows behind the first `skip` ones in batches of these sizes; the last may be shorter.

    pyarrow cuts where the dictionary of a column changes, and so at row groups. The cuts here depend on sizes alone.
    """
    waiting, left = list[Any](), next(sizes, 0)
    for each in batches:
        batch, skip = each.slice(min(skip, each.num_rows)), max(0, skip - each.num_rows)
        while batch.num_rows and left:
            waiting.append(batch.slice(0, left))
            left, batch = left - waiting[-1].num_rows, batch.slice(waiting[-1].num_rows)
            if not left:
                yield _join(waiting)
                waiting, left = [], next(sizes, 0)
    if waiting:
        yield _join(waiting)


def _join(batches: list[Any]) -> Any:
    """Return batches as one."""
    if len(batches) == 1:
        return batches[0]
    return import_pyarrow("pyarrow").Table.from_batches(batches).combine_chunks().to_batches()[0]


@contextmanager
def name_file(path: str) -> Iterator[None]:
    """Raise InputError with the file and the reason where the file cannot be read, or pyarrow finds it damaged."""
    pyarrow = import_pyarrow("pyarrow")
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, KeyError, IndexError, OverflowError, MemoryError, pyarrow.ArrowException) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(f"{path}: {reason}") from error


def _check_count(path: str, n_rows: int, told: int) -> None:
    """Raise InputError unless there are as many rows as the footer says, and any."""
    if n_rows != told:
        raise InputError(f"{path}: it holds {say_count(n_rows, 'row')}, but its footer says {told:,}")
    if n_rows == 0:
        raise InputError(f"{path}: no rows")


def _fill_features(layout: TableLayout, batch: Any) -> npt.NDArray[np.float32 | np.float64]:
    """Return the features of a piece side by side, with nan for missing ones."""
    columns = {name: batch.column(name) for name in layout.feature_names}
    for name, column in columns.items():
        if not is_number(column.type):
            if not is_text(getattr(column, "dictionary", column)):
                raise refuse_type(column.type, name, layout.where)
            texts = [other for other, each in columns.items() if is_text(getattr(each, "dictionary", each))]
            gaps = [other for other, each in columns.items() if each.null_count]
            fault = f"{column.type} is not a number; {advise_on_table(texts, gaps)}"
            raise NeedsOptionError(f"{layout.where}: column {name}: {fault}")
    return fill_features([_read_numbers(column) for column in columns.values()])


def _read_batch(
    batch: Any, X: npt.NDArray[np.float32 | np.float64], layout: TableLayout, n_before: int, numbers: bool | None
) -> SourceRows:
    """Return the rows of a piece, whose features are X, after `n_before` rows. Raises InputError for a bad value."""

    def place(name: str) -> Place:
        return lambda i: f"{layout.where}: row {n_before + i + 1}, column {name}"

    names = layout.feature_names
    if not are_finite(rounded := np.asarray(round_features(X, None))):
        i, k = divmod(int(np.argmin(np.isfinite(rounded))), X.shape[1])
        value = batch.column(names[k])[i].as_py()
        fault = find_feature_fault(value)
        if remedy := find_remedy(fault):
            raise NeedsOptionError(f"{place(names[k])(i)}: {fault}; {remedy}")
        raise InputError(f"{place(names[k])(i)}: {fault}")
    vectors = {}
    for role, j in layout.vectors.items():
        name = layout.names[j]
        column = batch.column(name)
        if role == "label":
            values = read_labels(column, place(name), layout.label_kind)
        else:
            values = column.to_numpy(zero_copy_only=False)
        vectors[role] = values, place(name)
    return to_source_rows(X, vectors, names, numbers)


def _read_numbers(column: Any) -> Vector:
    """Return the values of a column, with nan for missing ones: as float64, or as they are if these become the same."""
    if str(column.type) in _ROUNDED_ONCE and not column.null_count:
        values = np.asarray(column.to_numpy(zero_copy_only=False))
        if values.dtype != np.int64 or -_MOST_EXACT <= values.min(initial=0) <= values.max(initial=0) <= _MOST_EXACT:
            return values
    return np.asarray(column.cast("float64", safe=False).to_numpy(zero_copy_only=False))
