"""Arrays of a dataset that several workers write side by side, each of them a range of the rows.

A worker gathers its values until a chunk is full, and stores it as `data.writer` does. Of a chunk that two or more
ranges share, each worker puts its values into a scratch file of their own, and when all are done `seal` stores the
chunk. So the files have the bytes that one process writes, however the ranges are cut. A range may be written twice
without harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from streamsvm.data.placed_array import PlacedArray
from streamsvm.data.shared_scratch import SharedScratch, read_ranges
from streamsvm.data.writer import DatasetWriter
from streamsvm.errors import InputError, IntegrityError
from streamsvm.numeric.rows import CsrRows, Rows

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class StoredChunk:
    """The CRC-32C that a chunk ends with, and those of its parts, if it has any."""

    checksum: int
    parts: npt.NDArray[np.uint32] | None


Stored = dict[str, dict[int, StoredChunk]]  # by array and chunk


@dataclass(frozen=True)
class Piece:
    """Values of a chunk that other ranges share: the number of the first one in the array, and their CRC-32C."""

    begin: int
    n_values: int
    checksum: int


@dataclass
class RangeWritten:
    """What a worker has written.

    row: the first one. stored: the chunks that are complete. shared: pieces of others, by array and chunk. marks: of
    sparse rows, by multiple of the items of a chunk, the first row that begins there or later, as far as the worker's
    rows tell; last_first is the item at which its last row begins. class_counts: of the classes.
    """

    row: int = 0
    stored: Stored = field(default_factory=dict)
    shared: dict[str, dict[int, Piece]] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)
    last_first: int = -1
    class_counts: Array = field(default_factory=lambda: np.zeros(0, np.int64))


class _ArrayRange:
    """Writes the values start to stop - 1 of an array, in order: the pool writes a chunk while one is collected."""

    def __init__(
        self,
        array: PlacedArray,
        scratch: SharedScratch,
        limits: tuple[int, int],
        written: RangeWritten,
        pool: ThreadPoolExecutor,
    ) -> None:
        self.array, self.scratch, self._pool = array, scratch, pool
        self._begin, self.stop = limits
        self._position = self._begin
        self._buffer, self._other = (np.empty(array.chunks, array.dtype) for _ in range(2))
        self._writing: Future[None] | None = None
        self._stored = written.stored.setdefault(array.name, {})
        self._shared = written.shared.setdefault(array.name, {})

    def append(self, values: Array) -> None:
        """Append values along the first axis."""
        size, at = self.array.chunks[0], 0
        while at < len(values):
            n = min(len(values) - at, size - self._position % size)
            self._buffer[self._position % size :][:n] = values[at : at + n]
            self._position, at = self._position + n, at + n
            if self._position % size == 0 or self._position == self.stop:
                self._flush()

    def wait(self) -> None:
        """Wait until the pool has written a chunk. Raises the error that it met."""
        if self._writing is not None:
            self._writing.result()

    def _flush(self) -> None:
        self.wait()
        if self.array.codec == "crc32c":
            self._writing = self._pool.submit(self._write, self._buffer, self._begin, self._position)
            self._buffer, self._other = self._other, self._buffer
        else:  # Zarr's settings, which are others meanwhile, are those of all threads
            self._write(self._buffer, self._begin, self._position)
        self._begin = self._position

    def _write(self, buffer: Array, begin: int, stop: int) -> None:
        """Store a chunk, or the piece of it that is there."""
        size = self.array.chunks[0]
        index, first = divmod(begin, size)
        n_rows = min(size, self.array.shape[0] - index * size)
        if stop - begin == n_rows:
            self._stored[index] = _store(self.array, buffer, index, n_rows)
        else:
            content = buffer[first : first + stop - begin].reshape(-1).view(np.uint8)
            self.scratch.put(name_piece(self.array, begin), [content.data], len(content))
            self._shared[index] = Piece(begin, stop - begin, google_crc32c.value(content))


class RangeWriter:
    """Writes the rows of one worker, of which the first is row `row` of the dataset and begins at item `item`.

    pool: writes chunks of several arrays at once, while the next ones are collected.
    """

    def __init__(
        self,
        arrays: Mapping[str, PlacedArray],
        scratch: SharedScratch,
        row: int,
        row_stop: int,
        item: int,
        item_stop: int,
        pool: ThreadPoolExecutor,
    ) -> None:
        self.written, self._row, self._item = RangeWritten(row), row, item
        limits = dict.fromkeys(arrays, (row, row_stop))
        if "X/indptr" in arrays:
            limits |= {"X/indptr": (row + (row > 0), row_stop + 1)}
            limits |= dict.fromkeys(("X/data", "X/indices"), (item, item_stop))
            self._items_per_chunk = arrays["X/data"].chunks[0]
        self._ranges = {name: _ArrayRange(arrays[name], scratch, limits[name], self.written, pool) for name in arrays}
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

    def finish(self) -> RangeWritten:
        """Wait until all chunks are written, and return what there is."""
        for each in self._ranges.values():
            each.wait()
        return self.written

    def _note_marks(self, firsts: npt.NDArray[np.int64]) -> None:
        """Note the first row that begins at each multiple of the items of a chunk, or later."""
        if not len(firsts):
            return
        step, last = self._items_per_chunk, self.written.last_first
        begin = int(firsts[0]) if last < 0 else last + 1
        for limit in range(-(-begin // step) * step, int(firsts[-1]) + 1, step):
            self.written.marks.setdefault(limit, self._row + int(np.searchsorted(firsts, limit, side="left")))
        self.written.last_first = int(firsts[-1])


def seal(array: PlacedArray, scratch: SharedScratch, index: int, pieces: Sequence[Piece]) -> StoredChunk:
    """Store a chunk that consists of these pieces, in order. Raises IntegrityError, which names a damaged piece."""
    size = array.chunks[0]
    n_rows, done = min(size, array.shape[0] - index * size), 0
    chunk = np.zeros(array.chunks, array.dtype)
    lengths = [piece.n_values * chunk[:1].nbytes for piece in pieces]
    names = [name_piece(array, piece.begin) for piece in pieces]
    wanted = [(name, n_bytes, (0, n_bytes)) for name, n_bytes in zip(names, lengths, strict=True)]
    with closing(read_ranges(scratch, wanted)) as contents:
        for piece, (name, content) in zip(pieces, contents, strict=True):
            if google_crc32c.value(content) != piece.checksum:
                raise IntegrityError(f"{name}: is damaged (its checksum is wrong)")
            chunk[done : done + piece.n_values] = content.view(array.dtype).reshape(-1, *array.chunks[1:])
            done += piece.n_values
    if done != n_rows:
        raise InputError(f"{array.name}: {done} of {n_rows} values of chunk {index} were written")
    return _store(array, chunk, index, n_rows)


def _store(array: PlacedArray, chunk: Array, index: int, n_rows: int) -> StoredChunk:
    parts = array.store(chunk, index, n_rows)
    return StoredChunk(array.read_checksum(index), parts)


def name_piece(array: PlacedArray, begin: int) -> str:
    """Return the name of the scratch file with values of a chunk that other ranges share."""
    return f"{array.name.replace('/', '-')}-{begin}"


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
    chunks = [(name, index, chunk) for name, found in stored.items() for index, chunk in sorted(found.items())]
    for name, index, chunk in chunks:
        writer.arrays[name].note_checksum(index, chunk.checksum)
    writer.note_chunks([{name: chunk.parts} for name, _, chunk in chunks if chunk.parts is not None], chunk_starts)
