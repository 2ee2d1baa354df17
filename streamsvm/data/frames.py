"""Frames in memory as tables whose columns are encoded: of pandas, pyarrow, and all that gives Arrow's columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from streamsvm.data.arrow_tables import PIECE_BYTES, PIECE_ROWS, Opened
from streamsvm.data.pieces import comes_from
from streamsvm.data.tables import Columns, import_pyarrow
from streamsvm.errors import InputError, say_count


def is_frame(source: Any, columns: Columns) -> bool:
    """Tell whether rows in memory are a table whose columns are to be encoded.

    A frame of pandas of which nothing is asked, and that has no dates, is read as an array of numbers.
    """
    if comes_from(source, "pandas"):
        dtypes = getattr(source, "dtypes", ()) if hasattr(source, "columns") else ()
        return len(dtypes) > 0 and (columns != Columns() or any(dtype.kind == "M" for dtype in dtypes))
    return hasattr(source, "__arrow_c_stream__")


def list_texts(frame: Any) -> list[str]:
    """Return the names of the columns of a frame of pandas that are not of numbers."""
    kinds: Any = getattr(frame, "dtypes", None)
    return [str(n) for n, dtype in kinds.items() if dtype.kind not in "biuf"] if hasattr(kinds, "items") else []


def has_columns(frame: Any, names: tuple[str, ...]) -> bool:
    """Tell whether rows in memory are a table that has these columns."""
    if not (comes_from(frame, "pandas") or hasattr(frame, "__arrow_c_stream__")):
        return False
    found = frame.column_names if hasattr(frame, "column_names") else getattr(frame, "columns", ())
    return set(names) <= set(found)


@dataclass(frozen=True)
class Table:
    """A frame of pandas, or a table of Arrow, some rows of which become columns of Arrow at a time.

    names: of its columns; a column of lists has a name for each place in them, "embedding[0]". lists: for such a name,
    the column and the place. n_rows: the number of rows.
    """

    frame: Any
    names: tuple[str, ...]
    lists: dict[str, tuple[str, int]]
    n_rows: int

    def take(self, names: Sequence[str], start: int, stop: int) -> list[Any]:
        """Return these columns of the rows start:stop. Raises InputError for what Arrow has no type for."""
        lists = {name: self._take(name, start, stop) for name in {self.lists[n][0] for n in names if n in self.lists}}
        spread = {name: _spread(values, name, self._count_places(name)) for name, values in lists.items()}
        array, found = import_pyarrow("pyarrow").array, []
        for name in names:
            at = self.lists.get(name)
            found.append(self._take(name, start, stop) if at is None else array(spread[at[0]][:, at[1]]))
        return found

    def _count_places(self, name: str) -> int:
        return sum(column == name for column, _ in self.lists.values())

    def _take(self, name: str, start: int, stop: int) -> Any:
        pyarrow = import_pyarrow("pyarrow")
        if not comes_from(self.frame, "pandas"):
            return self.frame.column(name).slice(start, stop - start).combine_chunks()
        try:
            return pyarrow.Array.from_pandas(self.frame[name].iloc[start:stop])
        except (pyarrow.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"X: column {name}: its values are not of one type: {error}") from error


def _spread(values: Any, name: str, width: int) -> Any:
    """Return lists of numbers as a matrix. Raises InputError for lists of another length."""
    lengths = np.asarray(import_pyarrow("pyarrow.compute").list_value_length(values).fill_null(-1))
    if (lengths != width).any():
        found = lengths[np.argmax(lengths != width)]
        raise InputError(f"X: column {name}: a list of {max(found, 0)} values; those before have {width}")
    return np.asarray(values.flatten().to_numpy(zero_copy_only=False)).reshape(len(values), width)


def _open_table(frame: Any) -> Table:
    """Return a frame as a table. InputError for names of columns that are not texts."""
    if comes_from(frame, "pandas"):
        table, names, n_rows = frame, tuple(frame.columns), len(frame)
    else:
        table = import_pyarrow("pyarrow").table(frame)
        names, n_rows = tuple(table.column_names), table.num_rows
    if not all(isinstance(name, str) for name in names):
        raise InputError("X: the names of its columns are not all texts, by which a model knows them")
    lists: dict[str, tuple[str, int]] = {}
    for name in () if comes_from(frame, "pandas") else names:
        lists |= {f"{name}[{j}]": (name, j) for j in range(_count_places(table.column(name)))}
    spread = {column for column, _ in lists.values()}
    listed = [[each for each, (column, _) in lists.items() if column == name] for name in names]
    parts = [own if name in spread else [name] for name, own in zip(names, listed, strict=True)]
    return Table(table, tuple(chain.from_iterable(parts)), lists, n_rows)


def _count_places(column: Any) -> int:
    """Return the number of values of the first list in a column of lists; 0 for other columns."""
    types = import_pyarrow("pyarrow").types
    if types.is_fixed_size_list(column.type):
        return int(column.type.list_size)
    is_list = types.is_list(column.type) or types.is_large_list(column.type)
    return len(column[0]) if is_list and len(column) and column[0].is_valid else 0


@contextmanager
def open_pieces(frame: Any, others: Mapping[str, Any], where: str) -> Iterator[Opened]:  # noqa: ARG001
    """Open a frame, or an iterator of frames that have the same columns. others: columns beside those of the frame.

    Raises InputError for a column of another length, and for names that are not texts.
    """
    if isinstance(frame, Iterator):
        yield _open_blocks(frame)
        return
    table = _open_table(frame)
    for name, values in others.items():
        if len(values) != table.n_rows:
            raise InputError(f"{name[1:-1]}: {say_count(len(values), 'row')}, but X has {table.n_rows:,}")
    yield Opened((*table.names, *others), partial(_read_pieces, table, others), lambda i: f"row {i + 1}")


def _open_blocks(frames: Iterator[Any]) -> Opened:
    """Return an iterator of frames as a table. InputError for what is no frame, or has other columns."""
    first = next(frames, None)
    if first is None:
        raise InputError("X: no rows")
    names = _open_block(first, 0).names

    def read(wanted: list[str]) -> Iterator[Any]:
        for k, frame in enumerate(chain([first], frames)):
            table = _open_block(frame, k)
            if table.names != names:
                raise InputError(f"X: block {k + 1} has other columns than those before")
            yield from _read_pieces(table, {}, wanted)

    return Opened(names, read, lambda i: f"row {i + 1}")


def _open_block(frame: Any, k: int) -> Table:
    if hasattr(frame, "__arrow_c_array__"):  # a batch of Arrow
        frame = import_pyarrow("pyarrow").Table.from_batches([import_pyarrow("pyarrow").record_batch(frame)])
    if not (comes_from(frame, "pandas") or hasattr(frame, "__arrow_c_stream__")):
        raise InputError(f"X: block {k + 1} is a {type(frame).__name__}; label, missing and the like are for frames")
    return _open_table(frame)


def _read_pieces(table: Table, others: Mapping[str, Any], wanted: list[str]) -> Iterator[Any]:
    """Yield the columns that are wanted, some rows at a time, as batches of Arrow."""
    pyarrow, own = import_pyarrow("pyarrow"), [name for name in wanted if name not in others]
    n_piece = max(1, min(PIECE_ROWS, PIECE_BYTES // (8 * len(wanted))))
    for start in range(0, table.n_rows, n_piece):
        stop = min(table.n_rows, start + n_piece)
        more = [pyarrow.array(getattr(v, "to_numpy", partial(_as_is, v))()[start:stop]) for v in others.values()]
        batch = pyarrow.RecordBatch.from_arrays([*table.take(own, start, stop), *more], names=[*own, *others])
        yield batch.select(wanted)


def _as_is(values: Any) -> Any:
    return values
