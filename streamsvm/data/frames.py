"""Frames in memory as tables whose columns are encoded: of pandas, pyarrow, and all that gives Arrow's columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from streamsvm.data.arrays import comes_from
from streamsvm.data.arrow_tables import PIECE_ROWS, Opened
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


def has_columns(frame: Any, names: tuple[str, ...]) -> bool:
    """Tell whether rows in memory are a table that has these columns."""
    if not (comes_from(frame, "pandas") or hasattr(frame, "__arrow_c_stream__")):
        return False
    found = frame.column_names if hasattr(frame, "column_names") else getattr(frame, "columns", ())
    return set(names) <= set(found)


@contextmanager
def open_pieces(frame: Any, others: Mapping[str, Any], where: str) -> Iterator[Opened]:  # noqa: ARG001
    """Open a frame, a few rows of which become columns of Arrow at a time. others: columns beside those of the frame.

    Raises InputError for a column of another length, and for names that are not texts.
    """
    pyarrow = import_pyarrow("pyarrow")
    is_pandas = comes_from(frame, "pandas")
    table = frame if is_pandas else pyarrow.table(frame)
    names = tuple(frame.columns) if is_pandas else tuple(table.column_names)
    n_rows = len(frame) if is_pandas else table.num_rows
    if not all(isinstance(name, str) for name in names):
        raise InputError("X: the names of its columns are not all texts, by which a model knows them")
    for name, values in others.items():
        if len(values) != n_rows:
            raise InputError(f"{name[1:-1]}: {say_count(len(values), 'row')}, but X has {n_rows:,}")

    def read(wanted: list[str]) -> Iterator[Any]:
        own = [name for name in wanted if name not in others]
        for start in range(0, n_rows, PIECE_ROWS):
            stop = min(n_rows, start + PIECE_ROWS)
            arrays = [_take(table, name, start, stop, is_pandas) for name in own]
            more = [pyarrow.array(getattr(v, "to_numpy", partial(_as_is, v))()[start:stop]) for v in others.values()]
            batch = pyarrow.RecordBatch.from_arrays([*arrays, *more], names=[*own, *others])
            yield batch.select(wanted)

    yield Opened((*names, *others), read, lambda i: f"row {i + 1}")


def _as_is(values: Any) -> Any:
    return values


def _take(table: Any, name: str, start: int, stop: int, is_pandas: bool) -> Any:
    """Return some rows of a column as an array of Arrow. Raises InputError for what Arrow has no type for."""
    pyarrow = import_pyarrow("pyarrow")
    if not is_pandas:
        return table.column(name).slice(start, stop - start).combine_chunks()
    try:
        return pyarrow.Array.from_pandas(table[name].iloc[start:stop])
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"X: column {name}: its values are not of one type: {error}") from error
