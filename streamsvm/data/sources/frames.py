"""Frames as tables: pandas frames, pyarrow tables, and objects of any package that exports Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np

from streamsvm.data.sources.arrays import comes_from
from streamsvm.data.sources.arrow import Opened, count_piece_rows, number_rows
from streamsvm.data.tables.columns import Columns, pyarrow
from streamsvm.data.tables.encoder import is_any
from streamsvm.system.errors import InputError, say_count


def is_frame(source: Any, columns: Columns) -> bool:
    """Return whether rows in memory are read as a table, whose columns are encoded.

    A pandas frame without dates is read as an array of numbers instead if no column roles are given.
    """
    if comes_from(source, "pandas"):
        dtypes = getattr(source, "dtypes", ()) if hasattr(source, "columns") else ()
        return len(dtypes) > 0 and (columns != Columns() or any(dtype.kind == "M" for dtype in dtypes))
    return hasattr(source, "__arrow_c_stream__")


@dataclass(frozen=True)
class Table:
    """A pandas frame or Arrow table, converted to Arrow columns a few rows at a time.

    names: the names of the Arrow columns; a column of lists gives one for each list position, such as "embedding[0]".
    places: maps each of these names to the column of the frame and the list position; the position is None if the
    column does not hold lists. n_rows: the number of rows.
    """

    frame: Any
    names: tuple[str, ...]
    places: dict[str, tuple[str, int | None]]
    n_rows: int

    def take(self, names: Sequence[str], start: int, stop: int) -> list[Any]:
        """Return the named columns of rows start:stop. Raises InputError if a column's values have no common type."""
        places = [self.places[name] for name in names]
        taken = {column: self._take(column, start, stop) for column in dict(places)}
        lists = {column: 1 + at for column, at in self.places.values() if at is not None}
        spread = {column: _spread(values, column, lists[column]) for column, values in taken.items() if column in lists}
        return [taken[column] if at is None else pyarrow.array(spread[column][:, at]) for column, at in places]

    def _take(self, name: str, start: int, stop: int) -> Any:
        if not comes_from(self.frame, "pandas"):
            return self.frame.column(name).slice(start, stop - start).combine_chunks()
        try:
            return pyarrow.Array.from_pandas(self.frame[name].iloc[start:stop])
        except (pyarrow.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"X: column {name}: its values are not of one type: {error}") from error


def _spread(values: Any, name: str, width: int) -> Any:
    """Return a column of lists of numbers as a matrix. Raises InputError if a list has a length other than `width`."""
    lengths = np.asarray(pyarrow.compute.list_value_length(values).fill_null(-1))
    if (lengths != width).any():
        found = lengths[np.argmax(lengths != width)]
        raise InputError(f"X: column {name}: a list of {max(found, 0)} values; earlier lists have {width}")
    return np.asarray(values.flatten().to_numpy(zero_copy_only=False)).reshape(len(values), width)


def _open_table(frame: Any, k: int) -> Table:
    """Return frame k of an iterator as a table. Raises InputError for other objects, or if a name is not text."""
    if hasattr(frame, "__arrow_c_array__"):  # an Arrow record batch
        frame = pyarrow.Table.from_batches([pyarrow.record_batch(frame)])
    if not (comes_from(frame, "pandas") or hasattr(frame, "__arrow_c_stream__")):
        raise InputError(f"X: block {k + 1} is a {type(frame).__name__}; options such as label and missing need frames")
    if comes_from(frame, "polars"):
        frame = _type_objects(frame)
    if comes_from(frame, "pandas"):
        table, names, n_rows = frame, tuple(frame.columns), len(frame)
    else:
        table = pyarrow.table(frame)
        names, n_rows = tuple(table.column_names), table.num_rows
    if not all(isinstance(name, str) for name in names):
        raise InputError("X: not all column names are strings; a model identifies its features by their names")
    places = list[tuple[str, tuple[str, int | None]]]()
    for name in names:
        width = 0 if comes_from(frame, "pandas") else _count_places(table.column(name))
        places += [(f"{name}[{j}]", (name, j)) for j in range(width)] or [(name, (name, None))]
    return Table(table, tuple(name for name, _ in places), dict(places), n_rows)


def _type_objects(frame: Any) -> Any:
    """Return a polars frame whose columns of Python objects, such as dates, have the types of their values.

    Raises InputError if the values of a column have no common type.
    """
    for name, dtype in getattr(frame, "schema", {}).items():
        if str(dtype) == "Object":
            try:
                frame = frame.with_columns(type(frame[name])(name, frame[name].to_list()))
            except (TypeError, ValueError) as error:
                reason = str(error).partition("\n")[0]
                raise InputError(f"X: column {name}: its values are not of one type: {reason}") from error
    return frame


def _count_places(column: Any) -> int:
    """Return the number of values of the first list in a column of lists; 0 for other columns."""
    if is_any(column.type, "fixed_size_list"):
        return int(column.type.list_size)
    is_list = is_any(column.type, "list", "large_list")
    return len(column[0]) if is_list and len(column) and column[0].is_valid else 0


def open_frame(frame: Any, others: Mapping[str, Any], _: str) -> Iterator[Opened]:
    """Open a frame, or an iterator of frames with the same columns.

    others: further columns, such as labels, that belong to a single frame. Raises InputError for objects that are not
    frames, for columns of different lengths, and if a name is not text.
    """
    tables = map(_open_table, frame if isinstance(frame, Iterator) else [frame], count())
    first = next(tables, None)
    if first is None:
        raise InputError("X: no rows")
    for name, values in others.items():
        if len(values) != first.n_rows:
            raise InputError(f"{name[1:-1]}: {say_count(len(values), 'row')}, but X has {first.n_rows:,}")

    def read(wanted: list[str]) -> Iterator[Any]:
        for k, table in enumerate(chain([first], tables)):
            if table.names != first.names:
                raise InputError(f"X: block {k + 1} differs in its columns from the blocks before it")
            yield from _read_pieces(table, others, wanted)

    yield Opened((*first.names, *others), lambda wanted: number_rows(read(wanted)))


def _read_pieces(table: Table, others: Mapping[str, Any], wanted: list[str]) -> Iterator[Any]:
    """Yield the wanted columns as Arrow batches, some rows at a time."""
    own = [name for name in wanted if name not in others]
    n_piece = count_piece_rows(len(wanted))
    for start in range(0, table.n_rows, n_piece):
        stop = min(table.n_rows, start + n_piece)
        beside = (v.to_numpy() if hasattr(v, "to_numpy") else v for v in others.values())
        more = [pyarrow.array(values[start:stop]) for values in beside]
        batch = pyarrow.RecordBatch.from_arrays([*table.take(own, start, stop), *more], names=[*own, *others])
        yield batch.select(wanted)
