"""Arrays of a dataset that several workers write side by side, each of them a range of the rows.

A worker gathers its values until a chunk is full, and stores it as `data.writer` does. Of a chunk that two ranges
share, each worker puts its values at their place in a file of a scratch folder, and when all are done `seal` stores the
chunk. So the files have the bytes that one process writes, however the ranges are cut. A range may be written twice
without harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.chunk_file import open_to_rewrite
from streamsvm.data.placed_array import PlacedArray
from streamsvm.data.writer import DatasetWriter
from streamsvm.errors import InputError
from streamsvm.numeric.rows import CsrRows, Rows

Array = npt.NDArray[Any]
Parts = npt.NDArray[np.uint32] | None  # the checksums of the parts of a chunk, if it has any
Stored = dict[str, dict[int, Parts]]  # by array and chunk


@dataclass
class RangeWritten:
    """What a worker has written.

    row: the first one. stored: the chunks that are complete. shared: those to be sealed, by array. marks: of sparse
    rows, by multiple of the items of a chunk, the first row that begins there or later, as far as the worker's rows
    tell; last_first is the item at which its last row begins. class_counts: of the classes.
    """

    row: int = 0
    stored: Stored = field(default_factory=dict)
    shared: dict[str, set[int]] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)
    last_first: int = -1
    class_counts: Array = field(default_factory=lambda: np.zeros(0, np.int64))


class _ArrayRange:
    """Writes the values start to stop - 1 of an array, in order."""

    def __init__(self, array: PlacedArray, scratch: Path, start: int, stop: int, written: RangeWritten) -> None:
        self.array, self.scratch, self.stop = array, scratch, stop
        self._position = self._begin = start
        self._buffer = np.empty(array.chunks, array.dtype)
        self._stored = written.stored.setdefault(array.name, {})
        self._shared = written.shared.setdefault(array.name, set())

    def append(self, values: Array) -> None:
        """Append values along the first axis."""
        size, at = self.array.chunks[0], 0
        while at < len(values):
            n = min(len(values) - at, size - self._position % size)
            self._buffer[self._position % size :][:n] = values[at : at + n]
            self._position, at = self._position + n, at + n
            if self._position % size == 0 or self._position == self.stop:
                self._flush()

    def _flush(self) -> None:
        size, stop = self.array.chunks[0], self._position
        index, first = divmod(self._begin, size)
        n_rows = min(size, self.array.shape[0] - index * size)
        if stop - self._begin == n_rows:
            self._stored[index] = self.array.store(self._buffer, index, n_rows)
        else:
            self._shared.add(index)
            content = self._buffer[first : first + stop - self._begin]
            _put(_name_scratch(self.scratch, self.array, index), first * self._buffer[:1].nbytes, content)
        self._begin = stop


class RangeWriter:
    """Writes the rows of one worker, of which the first is row `row` of the dataset and begins at item `item`."""

    def __init__(
        self, arrays: Mapping[str, PlacedArray], scratch: Path, row: int, row_stop: int, item: int, item_stop: int
    ) -> None:
        self.written, self._row, self._item = RangeWritten(row), row, item
        limits = dict.fromkeys(arrays, (row, row_stop))
        if "X/indptr" in arrays:
            limits |= {"X/indptr": (row + (row > 0), row_stop + 1)}
            limits |= dict.fromkeys(("X/data", "X/indices"), (item, item_stop))
            self._items_per_chunk = arrays["X/data"].chunks[0]
        self._ranges = {name: _ArrayRange(arrays[name], scratch, *limits[name], self.written) for name in arrays}
        if row == 0 and "X/indptr" in arrays:
            self._ranges["X/indptr"].append(np.zeros(1, np.int64))

    def append(self, rows: Rows) -> None:
        """Append rows, which are dense or sparse as the dataset is."""
        if isinstance(rows.X, CsrRows):
            ends = self._item + rows.X.indptr[1:]
            self._note_marks(np.concatenate(([self._item], ends[:-1])))
            self._item = int(ends[-1]) if len(ends) else self._item
            for name, values in (("data", rows.X.data), ("indices", rows.X.indices), ("indptr", ends)):
                self._ranges[f"X/{name}"].append(values)
        else:
            self._ranges["X"].append(rows.X)
        for name, values in rows.vectors.items():
            self._ranges[name].append(values)
        self._row += rows.n_rows

    def _note_marks(self, firsts: npt.NDArray[np.int64]) -> None:
        """Note the first row that begins at each multiple of the items of a chunk, or later."""
        if not len(firsts):
            return
        step, last = self._items_per_chunk, self.written.last_first
        begin = int(firsts[0]) if last < 0 else last + 1
        for limit in range(-(-begin // step) * step, int(firsts[-1]) + 1, step):
            self.written.marks.setdefault(limit, self._row + int(np.searchsorted(firsts, limit, side="left")))
        self.written.last_first = int(firsts[-1])


def seal(array: PlacedArray, scratch: Path, index: int) -> Parts:
    """Store a chunk that several workers have put together."""
    size = array.chunks[0]
    n_rows = min(size, array.shape[0] - index * size)
    chunk, file = np.zeros(array.chunks, array.dtype), _name_scratch(scratch, array, index)
    values = np.fromfile(file, array.dtype, n_rows * int(np.prod(array.chunks[1:], dtype=np.int64)))
    chunk[:n_rows] = values.reshape(n_rows, *array.chunks[1:])
    file.unlink()
    return array.store(chunk, index, n_rows)


def _name_scratch(scratch: Path, array: PlacedArray, index: int) -> Path:
    return scratch / f"{array.name.replace('/', '-')}-{index}"


def _put(file: Path, begin: int, content: Array) -> None:
    """Write bytes at their place in a file."""
    payload, done = np.ascontiguousarray(content).reshape(-1).view(np.uint8).data, 0
    with open_to_rewrite(file) as opened:
        opened.seek(begin)
        while done < len(payload):
            done += opened.write(payload[done:])


def find_chunk_starts(written: list[RangeWritten], items_per_chunk: int) -> list[int]:
    """Return the first row of each chunk of items, as `DatasetWriter` notes them; ranges are in the order of rows."""
    starts = [0]
    for one in written:
        while (limit := len(starts) * items_per_chunk) <= one.last_first:
            starts.append(one.marks.get(limit, one.row))
    return starts


def note_written(writer: DatasetWriter, stored: Stored, chunk_starts: list[int] | None) -> None:
    """Let the writer of a dataset take note of all that workers have stored."""
    missing = [name for name, array in writer.arrays.items() if len(stored[name]) * array.chunks[0] < array.shape[0]]
    if missing:
        raise InputError(f"{', '.join(missing)}: some chunks were not written")
    chunks = [{name: parts} for name in stored for _, parts in sorted(stored[name].items()) if parts is not None]
    writer.note_chunks(chunks, chunk_starts)
