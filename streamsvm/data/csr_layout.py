"""Compressed sparse rows on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np

from streamsvm.data.chunk_file import ChunkFile
from streamsvm.data.layouts import as_float32, check_finite
from streamsvm.data.row_tiles import TILE_ITEMS, cut_items, split
from streamsvm.data.store import StoredArray
from streamsvm.errors import IntegrityError
from streamsvm.numeric.canonical import make_canonical_rows
from streamsvm.numeric.rows import I32, I64, CsrRows, Matrix


class CsrLayout:
    """X in AnnData's csr_matrix encoding: data and indices cut into chunks of equally many items, and indptr.

    Chunk k holds the rows whose first item lies in the k-th chunk of `data`; the last row of a chunk may end in the
    next one, whose first bytes are then read and verified twice.
    """

    def __init__(
        self,
        data: StoredArray,
        indices: StoredArray,
        indptr: StoredArray,
        n_features: int,
        longest_row: int,
        chunk_items: int | None = None,
    ) -> None:
        self.data, self.indices, self.indptr = data, indices, indptr
        self.arrays: tuple[StoredArray, ...] = (data, indices, indptr)
        self.chunk_items = chunk_items or data.chunk_rows
        self.n_features, self.longest_row = n_features, longest_row
        self.nbytes = 8 * data.length + 8 * indptr.length
        self.dtype = str(data.array.dtype)
        self.streams = (
            data.is_raw
            and indices.is_raw
            and data.array.dtype == np.float32
            and indices.array.dtype == np.int32
            and data.chunk_rows == indices.chunk_rows
        )

    def read(self, start: int, stop: int) -> Matrix:
        """See Layout."""
        indptr = self._read_limits(start, stop)
        first, last = int(indptr[0]), int(indptr[-1])
        if stop > start and self.data.checksums is not None:
            self._check_place(first // self.data.chunk_rows, start, indptr)
            self._advise_end(first // self.data.chunk_rows, last)
        data = as_float32(self.data, self.data.read(first, last))
        indices = self.indices.read(first, last)
        self._check_indices(indices, indptr[:-1], indptr - first)
        found = CsrRows(data, np.ascontiguousarray(indices, dtype=np.int32), indptr - first, self.n_features)
        return make_canonical_rows(found)

    def tiles(self, index: int, start: int, stop: int) -> Iterator[Matrix]:
        """See Layout."""
        if not self.streams:
            yield from split(self.read(start, stop))
            return
        indptr = self._read_limits(start, stop)
        size = TILE_ITEMS + self.longest_row
        data, indices = np.empty(size, np.float32), np.empty(size, np.int32)
        with ExitStack() as files:
            data_file, indices_file = (files.enter_context(part.file(index)) for part in (self.data, self.indices))
            skipped = 4 * (int(indptr[0]) - index * self.data.chunk_rows)
            if stop > start:
                self._check_place(index, start, indptr)
                self._advise_end(index, int(indptr[-1]))
                data_file.skip(skipped)
                indices_file.skip(skipped)
            for a, b in cut_items(indptr):
                first, n = int(indptr[a]), int(indptr[b] - indptr[a])
                self._fill(self.data, data_file, index, first, data[:n].view(np.uint8))
                self._fill(self.indices, indices_file, index, first, indices[:n].view(np.uint8))
                tile_indptr = indptr[a : b + 1] - first
                check_finite(self.data, data[:n], first)
                self._check_indices(indices[:n], indptr[a:b], tile_indptr)
                yield make_canonical_rows(CsrRows(data[:n], indices[:n], tile_indptr, self.n_features))
            data_file.finish()
            indices_file.finish()

    def take(self, rows: I64) -> Matrix:
        """See Layout."""
        needed = np.union1d(rows, rows + 1)
        limits = self.indptr.take(needed, needed + 1).astype(np.int64, copy=False)
        at = np.searchsorted(needed, rows)
        starts, stops = limits[at], limits[at + 1]
        self._check_limits(limits, stops - starts, needed)
        indptr = np.concatenate(([0], np.cumsum(stops - starts))).astype(np.int64)
        data, indices = (part.take(starts, stops) for part in (self.data, self.indices))
        self._check_indices(indices, starts, indptr)
        columns = np.ascontiguousarray(indices, dtype=np.int32)
        return make_canonical_rows(CsrRows(as_float32(self.data, data), columns, indptr, self.n_features))

    def chunk_bytes(self, index: int, chunk_rows: int) -> int:
        """See Layout."""
        items = min(self.chunk_items + self.longest_row, self.data.length - index * self.chunk_items)
        return 8 * (items + chunk_rows + 1)

    def stream_bytes(self, chunk_rows: int) -> int:
        """See Layout."""
        items = TILE_ITEMS + self.longest_row if self.streams else 4 * self.chunk_items + self.longest_row
        ahead_bytes = 2 * (self.data.ahead_bytes + self.indices.ahead_bytes) + 4 * self.indptr.ahead_bytes
        return 8 * items + 24 * chunk_rows + ahead_bytes

    def advise(self, index: int, start: int, stop: int) -> None:
        """See Layout."""
        self.indptr.advise(start, stop + 1)
        for array in (self.data, self.indices):
            array.advise(index * array.chunk_rows, min((index + 1) * array.chunk_rows, array.length))

    def _advise_end(self, index: int, end: int) -> None:
        """Begin to read what the last row of chunk `index`, which ends at item `end`, has in the next chunk."""
        for array in (self.data, self.indices):
            if end > (limit := (index + 1) * array.chunk_rows):
                array.advise(limit, end)

    def _read_limits(self, start: int, stop: int) -> I64:
        """Return the row limits (stop - start + 1,) of the rows start:stop, counted over all items."""
        limits: I64 = self.indptr.read(start, stop + 1).astype(np.int64, copy=False)
        self._check_limits(limits, np.diff(limits), range(start, stop + 1))
        return limits

    def _check_limits(self, limits: I64, lengths: I64, numbers: Sequence[int] | I64) -> None:
        """Raise IntegrityError for row limits, with these numbers, that would lead compiled code out of its buffers.

        The first of all limits must be 0, and the last one the number of items: otherwise items belong to no row.
        """
        place = self.indptr.describe(int(numbers[0]) // self.indptr.chunk_rows)
        if limits.min() < 0 or limits.max() > self.data.length or np.any(np.diff(limits) < 0):
            raise IntegrityError(f"{place}: row limits are out of order")
        is_last = numbers[-1] == self.indptr.length - 1
        if (numbers[0] == 0 and limits[0] != 0) or (is_last and limits[-1] != self.data.length):
            raise IntegrityError(f"{place}: row limits do not agree with the items of the rows")
        if lengths.max(initial=0) > self.longest_row:
            longest = f"{lengths.max()} items, but the longest row is said to have {self.longest_row}"
            raise IntegrityError(f"{place}: row limits are wrong: a row has {longest}")

    def _check_place(self, index: int, start: int, limits: I64) -> None:
        """Raise IntegrityError unless the rows of a chunk begin in its chunk of items."""
        begin, end = index * self.data.chunk_rows, (index + 1) * self.data.chunk_rows
        last = start + len(limits) == self.indptr.length
        if not (begin <= limits[0] and (limits[-2] < end or last)):
            place = self.indptr.describe(start // self.indptr.chunk_rows)
            raise IntegrityError(f"{place}: row limits do not agree with the rows of chunk {index}")

    def _check_indices(self, indices: I32, starts: I64, indptr: I64) -> None:
        """Raise IntegrityError for columns that do not exist, before a kernel writes there.

        Row i has the items indptr[i]:indptr[i + 1] here, which begin at item starts[i] of the dataset.
        """
        if indices.size and (int(indices.max()) >= self.n_features or int(indices.min()) < 0):
            at = int(np.argmax((indices < 0) | (indices >= self.n_features)))
            row = int(np.searchsorted(indptr, at, side="right")) - 1
            index = int(starts[row] + at - indptr[row]) // self.indices.chunk_rows
            raise IntegrityError(
                f"{self.indices.describe(index)}: a column outside 0..{self.n_features - 1}: the chunk is damaged"
            )

    def _fill(self, part: StoredArray, file: ChunkFile, index: int, first: int, buffer: np.ndarray) -> None:
        """Fill the buffer with items from `first` on; the last row of a chunk may end in the next chunk."""
        inside = min(len(buffer), 4 * ((index + 1) * part.chunk_rows - first))
        file.read(buffer[:inside])
        if inside < len(buffer):
            limits = np.array([first + inside // 4, first + len(buffer) // 4])
            part.take_into(limits[:1], limits[1:], buffer[inside:])
