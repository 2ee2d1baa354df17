"""Many single rows, taken on workers: each worker takes some of them, from groups of chunks that follow each other.

A sample of rows that are not shuffled lies in all chunks. One task would read them all, on one worker, and would begin
anew where that worker is lost. A few rows are one task, since a task costs the scheduler some milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.numeric.rows import I64, CsrRows, Matrix, Rows

ROWS_A_PART = 1000  # rows that a task takes at least
PARTS_A_THREAD = 4  # of the workers: so little is lost with a worker


def cut_take(source: RowSource, groups: Sequence[range], rows: I64, threads: int) -> list[I64]:
    """Return the numbers of some rows in parts, of which each lies in groups of its own.

    Rows whose numbers do not ascend are one part: the parts are put together in their order.
    """
    starts = source.chunk_starts[[group[0] for group in groups]]
    group_of_row = np.searchsorted(starts, rows, side="right")
    n_touched = len(np.unique(group_of_row))
    n_parts = min(PARTS_A_THREAD * threads, n_touched, len(rows) // ROWS_A_PART)
    if n_parts < 2 or np.any(np.diff(rows) < 0):
        return [rows]
    place = np.cumsum(np.diff(group_of_row, prepend=group_of_row[0]) > 0)  # of the row's group among those touched
    return np.split(rows, np.flatnonzero(np.diff(place * n_parts // n_touched)) + 1)


def join_taken(parts: Iterable[Rows]) -> Rows:
    """Return the rows of several parts, which come one by one, in memory that grows: no rows are there twice."""
    arrays: dict[str, Any] = {}
    n_features = 0
    for part in parts:
        n_features = part.X.shape[1]
        for name, more in {**_list_arrays(part.X), **part.vectors}.items():
            arrays[name] = _grow(arrays[name], more) if name in arrays else np.array(more, order="C")
    if "X" in arrays:
        return Rows(-1, **arrays)
    items = arrays.pop("lengths")
    indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(items)))
    return Rows(-1, CsrRows(arrays.pop("data"), arrays.pop("indices"), indptr, n_features), **arrays)


def _list_arrays(X: Matrix) -> dict[str, Any]:
    if isinstance(X, CsrRows):
        return {"data": X.data, "indices": X.indices, "lengths": np.diff(X.indptr)}
    return {"X": X}


def _grow(array: Any, more: Any) -> Any:
    """Return an array with more rows, where it was: the system moves its pages, and copies nothing."""
    n_rows = len(array)
    array.resize((n_rows + len(more), *array.shape[1:]), refcheck=False)
    array[n_rows:] = more
    return array
