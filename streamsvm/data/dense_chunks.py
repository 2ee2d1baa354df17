"""Chunks of a dense dataset, which several tasks write side by side.

The chunks of the new dataset differ from the chunks of the source, so two tasks may share a new chunk. A task gathers
its rows until it has a whole chunk, and writes the chunk with its checksum. The rows of a shared chunk are written at
their place in its file, and when all tasks are done, `seal` adds the checksum. The files have the bytes that
`data.writer` gives them when it writes the rows one after another, however the tasks are cut. A task may be carried out
twice without harm.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from streamsvm.data.chunk_file import CRC_BYTES, checksum_parts
from streamsvm.data.shards import Shards
from streamsvm.errors import InputError
from streamsvm.numeric.rows import I64, Rows

Array = npt.NDArray[Any]
Checksums = Mapping[str, npt.NDArray[np.uint32]]  # by column, the checksums of the parts of a chunk


@dataclass(frozen=True)
class Column:
    """An array of the dataset. `shape` is that of a row.

    Each part of a chunk has a checksum of its own, and part_bytes is the size of a part; 0 means that there are none.
    shards: where the chunks lie.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    part_bytes: int
    shards: Shards

    @property
    def row_bytes(self) -> int:
        """Number of bytes of a row."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class DenseChunks:
    """The place where chunks are written: the folder of a dataset whose arrays exist already, in chunks of chunk_rows.

    The folder must be on a file system that all tasks share.
    """

    folder: Path
    n_rows: int
    chunk_rows: int
    columns: tuple[Column, ...]

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return -(-self.n_rows // self.chunk_rows)

    def write(self, start: int, n_rows: int, values: Mapping[str, Array]) -> Checksums | None:
        """Write n_rows rows of one chunk, from row `start` of the dataset on.

        They are the first rows of `values`, whose arrays have room for a whole chunk, by column. Returns the checksums
        of the chunk's parts if the chunk is complete, or None if other tasks write some of its rows.
        """
        index, first = divmod(start, self.chunk_rows)
        if n_rows < self._count_rows(index):
            for column in self.columns:
                content = values[column.name][:n_rows].reshape(-1).view(np.uint8)
                self._put(column, index, first * column.row_bytes, content)
            return None
        for column in self.columns:
            values[column.name][n_rows:] = 0  # Zarr fills up the last chunk in the same way
        return self._finish(index, values)

    def seal(self, index: int) -> Checksums:
        """Add the checksum to a chunk that several tasks have written, and return the checksums of its parts."""
        n_rows, values = self._count_rows(index), {}
        for column in self.columns:
            n_items = n_rows * int(np.prod(column.shape, dtype=np.int64))
            span = column.shards.find(index)
            content = np.fromfile(self.folder / column.name / span.key, column.dtype, n_items, offset=span.begin)
            values[column.name] = np.zeros((self.chunk_rows, *column.shape), column.dtype)
            values[column.name][:n_rows] = content.reshape(n_rows, *column.shape)
        return self._finish(index, values)

    def _count_rows(self, index: int) -> int:
        return min(self.chunk_rows, self.n_rows - index * self.chunk_rows)

    def _finish(self, index: int, values: Mapping[str, Array]) -> Checksums:
        checksums = {}
        for column in self.columns:
            content = values[column.name].reshape(-1).view(np.uint8)
            end = google_crc32c.value(content).to_bytes(CRC_BYTES, "little") + column.shards.end_with(index)
            self._put(column, index, 0, content)
            self._put(column, index, len(content), np.frombuffer(end, np.uint8))
            if column.part_bytes:
                checksums[column.name] = checksum_parts(content, column.part_bytes)
        return checksums

    def _put(self, column: Column, index: int, begin: int, content: Array) -> None:
        """Write bytes at their place in a chunk, from its byte `begin` on.

        The dataset's folder is not made here: a missing one is not shared, or the writing has been given up.
        """
        span, array = column.shards.find(index), self.folder / column.name
        file = array / span.key
        if not array.is_dir():
            raise InputError(f"{array}: no such folder; all tasks have to share the folder of the dataset they write")
        (array / "c").mkdir(exist_ok=True)
        file.parent.mkdir(exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        try:
            done = 0
            while done < len(content):
                done += os.pwrite(descriptor, content.data[done:], span.begin + begin + done)
        finally:
            os.close(descriptor)


class RowBuffer:
    """The rows of one task, gathered into chunks.

    `stops` are the row numbers at which the rows of the tasks end, ascending. `checksums` has those of the parts of
    each complete chunk, by the number of the chunk.
    """

    def __init__(self, chunks: DenseChunks, stops: I64) -> None:
        self.chunks, self.stops = chunks, stops
        self.checksums: dict[int, Checksums] = {}
        self._values: dict[str, Array] = {}
        self._start = self._filled = 0

    def append(self, rows: Rows) -> None:
        """Take the next rows. The rows of a chunk are written when it is full, or when the task has no more of them."""
        at = 0
        while at < rows.n_rows:
            if not self._values:
                self._start, self._filled = rows.start + at, 0
                self._values = {
                    column.name: np.empty((self.chunks.chunk_rows, *column.shape), column.dtype)
                    for column in self.chunks.columns
                }
            wanted = self._find_end() - self._start
            n = min(rows.n_rows - at, wanted - self._filled)
            for name, values in self._values.items():
                values[self._filled : self._filled + n] = getattr(rows, name)[at : at + n]
            self._filled, at = self._filled + n, at + n
            if self._filled == wanted:
                self._flush()

    def _find_end(self) -> int:
        """Return the row number at which this task's rows of this chunk end."""
        chunk_end = (self._start // self.chunks.chunk_rows + 1) * self.chunks.chunk_rows
        stop = int(self.stops[np.searchsorted(self.stops, self._start, side="right")])
        return min(chunk_end, stop)

    def _flush(self) -> None:
        checksums = self.chunks.write(self._start, self._filled, self._values)
        if checksums is not None:
            self.checksums[self._start // self.chunks.chunk_rows] = checksums
        if self._start + self._filled in self.stops:
            self._values = {}
        else:
            self._start, self._filled = self._start + self._filled, 0
