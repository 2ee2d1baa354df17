"""How the features of a dataset lie on disk: dense rows, or compressed sparse rows.

A chunk is read in *tiles* of about half a MiB, so that a tile is still in the second-level cache when it is computed
on, and so that streaming a chunk of any size needs a MiB. Where tiles end depends on the rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import numpy as np

from streamsvm.data.store import Array, ChunkFile, StoredArray
from streamsvm.errors import InputError, IntegrityError
from streamsvm.numeric.canonical import make_canonical_rows
from streamsvm.numeric.rows import F32, I32, I64, CsrRows, Matrix, take_rows

TILE_BYTES = 1 << 19
TILE_ITEMS = TILE_BYTES // 8  # a sparse item is a float32 and an int32


class Layout(Protocol):
    """What a dataset needs of its features. Rows are counted over the whole dataset."""

    n_features: int
    nbytes: int
    streams: bool

    def read(self, start: int, stop: int) -> Matrix:
        """Rows in memory of their own, verified."""

    def tiles(self, index: int, start: int, stop: int) -> Iterator[Matrix]:
        """Stream the rows of chunk `index`, verified; a tile's memory is used again for the next."""

    def take(self, index: int, rows: I64) -> Matrix:
        """Rows of chunk `index` in the order given, in memory of their own."""

    def chunk_bytes(self, index: int, chunk_rows: int) -> int:
        """Most bytes that chunk `index`, of so many rows, takes in memory."""

    def stream_bytes(self, chunk_rows: int) -> int:
        """Bytes needed to stream a chunk of so many rows."""

    def advise(self, index: int) -> None:
        """Ask for chunk `index` to be read ahead."""


class DenseLayout:
    """X of shape (n, d), float32."""

    def __init__(self, X: StoredArray) -> None:
        self.X = X
        self.n_features = X.row_items
        self.nbytes = X.length * X.row_items * 4
        self.streams = X.is_raw and X.array.dtype == np.float32

    def read(self, start: int, stop: int) -> Matrix:
        """See Layout."""
        return _as_float32(self.X, self.X.read(start, stop))

    def tiles(self, index: int, start: int, stop: int) -> Iterator[Matrix]:
        """See Layout."""
        if not self.streams:
            yield from split(self.read(start, stop))
            return
        tile_rows = _dense_tile_rows(self.n_features)
        buffer = np.empty((tile_rows, self.n_features), np.float32)
        with self.X.file(index) as file:
            for at in range(start, stop, tile_rows):
                tile = buffer[: min(tile_rows, stop - at)]
                file.read(tile.reshape(-1).view(np.uint8))
                yield tile
            file.finish()

    def take(self, index: int, rows: I64) -> Matrix:
        """See Layout."""
        if not self.streams:
            first = int(rows.min())
            return np.asarray(self.read(first, int(rows.max()) + 1))[rows - first]
        return self.X.read_rows(index, rows, np.ones_like(rows))

    def chunk_bytes(self, index: int, chunk_rows: int) -> int:  # noqa: ARG002
        """See Layout."""
        return 4 * chunk_rows * self.n_features

    def stream_bytes(self, chunk_rows: int) -> int:
        """See Layout."""
        chunk_bytes = chunk_rows * self.n_features * max(4, self.X.array.dtype.itemsize)
        return TILE_BYTES + 4 * self.n_features if self.streams else 4 * chunk_bytes

    def advise(self, index: int) -> None:
        """See Layout."""
        self.X.advise(index)


class CsrLayout:
    """X in AnnData's csr_matrix encoding: data and indices cut into chunks of equally many items, and indptr.

    Chunk k holds the rows whose first item lies in the k-th chunk of `data`; the last row of a chunk may end in the
    next one, whose first bytes are then read twice and verified by that chunk's own reader.
    """

    def __init__(
        self, data: StoredArray, indices: StoredArray, indptr: StoredArray, n_features: int, longest_row: int,
        chunk_items: int | None = None,
    ) -> None:  # fmt: skip
        self.data, self.indices, self.indptr = data, indices, indptr
        self.chunk_items = chunk_items or data.chunk_rows
        self.n_features, self.longest_row = n_features, longest_row
        self.nbytes = 8 * data.length + 8 * indptr.length
        self.streams = (
            data.is_raw
            and indices.is_raw
            and data.array.dtype == np.float32
            and indices.array.dtype == np.int32
            and data.chunk_rows == indices.chunk_rows
        )

    def read(self, start: int, stop: int) -> Matrix:
        """See Layout."""
        indptr = self._read_indptr(start, stop)
        first, last = int(indptr[0]), int(indptr[-1])
        data = _as_float32(self.data, self.data.read(first, last))
        indices = self.indices.read(first, last)
        self._check_indices(indices, indptr[:-1], indptr - first)
        found = CsrRows(data, np.ascontiguousarray(indices, dtype=np.int32), indptr - first, self.n_features)
        return make_canonical_rows(found)

    def tiles(self, index: int, start: int, stop: int) -> Iterator[Matrix]:
        """See Layout."""
        if not self.streams:
            yield from split(self.read(start, stop))
            return
        indptr = self._read_indptr(start, stop)
        size = TILE_ITEMS + self.longest_row
        data, indices = np.empty(size, np.float32), np.empty(size, np.int32)
        with ExitStack() as files:
            data_file, indices_file = (files.enter_context(part.file(index)) for part in (self.data, self.indices))
            skipped = 4 * (int(indptr[0]) - index * self.data.chunk_rows)
            if stop > start:
                data_file.skip(skipped)
                indices_file.skip(skipped)
            for a, b in _csr_tiles(indptr):
                first, n = int(indptr[a]), int(indptr[b] - indptr[a])
                self._fill(self.data, data_file, index, first, data[:n].view(np.uint8))
                self._fill(self.indices, indices_file, index, first, indices[:n].view(np.uint8))
                tile_indptr = indptr[a : b + 1] - first
                self._check_indices(indices[:n], indptr[a:b], tile_indptr)
                yield make_canonical_rows(CsrRows(data[:n], indices[:n], tile_indptr, self.n_features))
            data_file.finish()
            indices_file.finish()

    def take(self, index: int, rows: I64) -> Matrix:
        """See Layout."""
        first_row = int(rows.min())
        if not self.streams:
            return take_rows(self.read(first_row, int(rows.max()) + 1), rows - first_row)
        indptr = self._read_indptr(first_row, int(rows.max()) + 1)
        starts, counts = indptr[rows - first_row], np.diff(indptr)[rows - first_row]
        taken_indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        data, indices = (part.read_rows(index, starts, counts) for part in (self.data, self.indices))
        self._check_indices(indices, starts, taken_indptr)
        return make_canonical_rows(CsrRows(data, indices, taken_indptr, self.n_features))

    def chunk_bytes(self, index: int, chunk_rows: int) -> int:
        """See Layout."""
        items = min(self.chunk_items + self.longest_row, self.data.length - index * self.chunk_items)
        return 8 * (items + chunk_rows + 1)

    def stream_bytes(self, chunk_rows: int) -> int:
        """See Layout."""
        items = TILE_ITEMS + self.longest_row if self.streams else 4 * self.chunk_items + self.longest_row
        return 8 * items + 24 * chunk_rows

    def advise(self, index: int) -> None:
        """See Layout."""
        self.data.advise(index)
        self.indices.advise(index)

    def _read_indptr(self, start: int, stop: int) -> I64:
        indptr: I64 = self.indptr.read(start, stop + 1).astype(np.int64, copy=False)
        if indptr[0] < 0 or indptr[-1] > self.data.length or np.any(np.diff(indptr) < 0):
            raise IntegrityError(
                f"{self.indptr.describe(start // self.indptr.chunk_rows)}: row limits are out of order"
            )
        return indptr

    def _check_indices(self, indices: I32, starts: I64, indptr: I64) -> None:
        """Refuse columns that do not exist before a kernel would write there.

        Row i has the items indptr[i]:indptr[i + 1] here, and those from starts[i] on in the dataset.
        """
        if indices.size and (int(indices.max()) >= self.n_features or int(indices.min()) < 0):
            at = int(np.argmax((indices < 0) | (indices >= self.n_features)))
            row = int(np.searchsorted(indptr, at, side="right")) - 1
            index = int(starts[row] + at - indptr[row]) // self.indices.chunk_rows
            raise IntegrityError(
                f"{self.indices.describe(index)}: a column outside 0..{self.n_features - 1}: the chunk is damaged"
            )

    def _fill(self, part: StoredArray, file: ChunkFile, index: int, first: int, buffer: np.ndarray) -> None:
        """Read items from `first` on, the last of them perhaps out of the next chunk."""
        inside = min(len(buffer), 4 * ((index + 1) * part.chunk_rows - first))
        file.read(buffer[:inside])
        if inside < len(buffer):
            part.read_head(index + 1, buffer[inside:])


def split(X: Matrix) -> Iterator[Matrix]:
    """Cut rows in memory into the tiles in which they would be streamed."""
    if isinstance(X, CsrRows):
        for a, b in _csr_tiles(X.indptr):
            p, q = X.indptr[a], X.indptr[b]
            yield CsrRows(X.data[p:q], X.indices[p:q], X.indptr[a : b + 1] - p, X.n_features)
    else:
        tile_rows = _dense_tile_rows(X.shape[1])
        for a in range(0, len(X), tile_rows):
            yield X[a : a + tile_rows]


def _as_float32(part: StoredArray, values: Array) -> F32:
    """Values as float32; those that no ingest has seen must be finite."""
    with np.errstate(over="ignore"):
        converted: F32 = np.ascontiguousarray(values, dtype=np.float32)
    if part.checksums is None and not np.isfinite(converted).all():
        raise InputError(f"{part.place}: contains NaN, infinity or a value too large for float32")
    return converted


def _dense_tile_rows(n_features: int) -> int:
    return max(1, TILE_BYTES // (4 * n_features))


def _csr_tiles(indptr: I64) -> Iterator[tuple[int, int]]:
    """Pairs (a, b) of rows with at most TILE_ITEMS items together, or one longer row; at most TILE_ITEMS rows."""
    a, n = 0, len(indptr) - 1
    while a < n:
        b = int(np.searchsorted(indptr, indptr[a] + TILE_ITEMS, side="right")) - 1
        b = min(max(b, a + 1), a + TILE_ITEMS, n)
        yield a, b
        a = b
