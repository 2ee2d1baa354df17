"""Stored arrays: Zarr arrays in chunks of whole rows, which are compared with the manifest when they are read.

A chunk ends with the CRC-32C of its bytes (Zarr's `crc32c` codec). Zarr alone reads a deleted chunk as zeros and does
not notice two swapped chunks. Therefore the manifest of the dataset also lists the checksum of every chunk. Whole
chunks are compared with these checksums. If single rows are read, the parts of chunks that hold them are compared with
checksums of parts (docs/storage.md). Raw (uncompressed) chunks are read without Zarr, directly into reusable buffers.
Several raw chunks may lie in one file, a shard (data.store.chunks).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import zarr
from zarr.storage import LocalStore

from streamsvm.data.remote.files import RANGE_BYTES, Range
from streamsvm.data.remote.objects import RemoteStore
from streamsvm.data.store import chunks
from streamsvm.data.store.places import CachedPlace, ChunkPlace, DiskCache, LocalPlace, RemotePlace, check_index
from streamsvm.data.store.zarr_arrays import check_chunks, list_codecs
from streamsvm.system.errors import IntegrityError, ReadError, TimeLimitError
from streamsvm.system.interrupts import waiting


def join_neighbours(starts: I64, stops: I64) -> tuple[I64, I64]:
    """Return the non-empty ranges, with adjacent ones merged."""
    some = stops > starts
    starts, stops = starts[some], stops[some]
    apart = starts[1:] != stops[:-1]
    return starts[np.append(True, apart)[: len(starts)]], stops[np.append(apart, True)[: len(stops)]]


def cut_ranges(starts: I64, stops: I64, step: int) -> Iterator[tuple[int, I64, I64]]:
    """Cut ascending ranges at the multiples of `step`.

    Yield (k, starts, stops), the pieces that lie in [k * step, (k + 1) * step), for each k with at least one piece.
    """
    if not len(starts):
        return
    for k in range(int(starts[0]) // step, -(-int(stops[-1]) // step)):
        here = slice(np.searchsorted(stops, k * step, side="right"), np.searchsorted(starts, (k + 1) * step))
        if here.start < here.stop:
            low, high = (np.clip(limits[here], k * step, (k + 1) * step) for limits in (starts, stops))
            yield k, low, high


Array = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]
CHUNKS_AHEAD = 8  # the number of chunks requested ahead, if a few rows of each are read from a store
WHOLE_SHARE = 15 / 16  # if this share of a chunk's rows is needed, the chunk is read whole
DECODED_BYTES = 4 << 20  # Zarr decodes several small chunks at a time, up to this size


class StoredArray:
    """A Zarr array of shape (n,) or (n, d), read in ranges of its first axis.

    checksums: the CRC-32C of each chunk, (chunks,) uint32; None for an AnnData file, which has no manifest: a read is
    only compared with earlier reads. part_rows: the number of rows in a part of a raw chunk. parts: an array whose row
    k holds the checksums of the parts of chunk k; if None, each chunk is a single part. cache: the cache for copies of
    raw chunks from a store. ahead_bytes: the maximum memory for data that an open chunk has read ahead.
    """

    def __init__(
        self,
        array: zarr.Array[Any],
        name: str,
        checksums: chunks.Checksums | None,
        parts: StoredArray | None = None,
        part_rows: int = 0,
        cache: DiskCache | None = None,
    ) -> None:
        self.array, self.name, self.checksums = array, name, checksums
        self.parts, self.part_rows = parts, part_rows
        self._first: dict[tuple[int, int], int] = {}  # without `checksums`: by range, when first read
        self.length = int(array.shape[0])
        self.chunk_rows = int(array.chunks[0])
        self.row_items = int(np.prod(array.shape[1:], dtype=np.int64))
        self.row_bytes = self.row_items * array.dtype.itemsize
        self.n_chunks, self._payload_bytes = -(-self.length // self.chunk_rows), self.chunk_rows * self.row_bytes
        self.chunk_place = _find_place(array, cache) if checksums is not None else None
        per_shard = array.shards[0] // self.chunk_rows if array.shards else 1
        self.shards = chunks.Shards(self.n_chunks, self._payload_bytes + chunks.CRC_BYTES, array.ndim, per_shard)
        self._whole = [(0, self.shards.chunk_bytes)]  # the byte range of a whole chunk with its checksum
        one_chunk_wide = array.ndim == 1 or array.chunks[1] == array.shape[1]
        self.is_raw = self.chunk_place is not None and one_chunk_wide and chunks.are_raw(list_codecs(array))
        ahead_bytes = self.chunk_place.ahead_bytes if self.chunk_place and self.is_raw else 0
        self.ahead_bytes = min(ahead_bytes, self._payload_bytes)
        self.place = f"{array.store}/{array.path}".removeprefix("file://")
        if checksums is not None and len(checksums) and not self.is_raw:
            self.array = check_chunks(array, checksums)

    def describe(self, index: int) -> str:
        """Return the path of chunk `index` for messages, with its number if it lies in a shard."""
        return f"{self.place}/{self.shards.find(index).name}"

    def count_requests(self) -> int:
        """Return the number of byte ranges that a read of all chunks requests from an object store."""
        return self.n_chunks * -(-self.shards.chunk_bytes // RANGE_BYTES)

    def file(self, index: int, ranges: Sequence[Range] | None = None) -> chunks.ChunkFile:
        """Open raw chunk `index` for verified reading of the given ranges, or of the whole chunk in order."""
        assert self.checksums is not None
        assert self.chunk_place is not None
        file = self.chunk_place.open(self.shards.find(index), ranges or self._whole)
        return chunks.ChunkFile(file, self._payload_bytes, int(self.checksums[index]))

    def read(self, start: int, stop: int) -> Array:
        """Return the rows start:stop, verified, as copies.

        Rows without checksums are compared with the first read of the same rows in this process.
        """
        values = self.take(np.array([start]), np.array([stop]))
        if self.checksums is None:
            found = google_crc32c.value(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
            if self._first.setdefault((start, stop), found) != found:
                raise IntegrityError(
                    f"{self.place}: rows {start}:{stop} differ from an earlier read; the file has changed since"
                )
        return values

    def take(self, starts: I64, stops: I64) -> Array:
        """Return the rows starts[0]:stops[0], starts[1]:stops[1], ..., verified and concatenated.

        The ranges ascend and do not overlap. From a raw chunk, only the parts that hold these rows are read.
        """
        starts, stops = join_neighbours(starts, stops)
        if not self.is_raw and len(starts) == 1:
            return self._decode(int(starts[0]), int(stops[0]))
        try:
            out = np.empty((int(np.sum(stops - starts)), *self.array.shape[1:]), self.array.dtype)
        except MemoryError:  # the shape is damaged; opening the file raises IntegrityError for its size
            self.file(int(starts[0]) // self.chunk_rows).close()
            raise
        if self.is_raw:
            self.take_into(starts, stops, out.reshape(-1).view(np.uint8))
        else:
            self._decode_into(starts, stops, out)
        return out

    def take_into(self, starts: I64, stops: I64, out: chunks.Bytes) -> None:
        """Do the same as `take` for raw chunks, and write the rows into the buffer `out`."""
        begin, pieces = 0, [(piece, self._list_ranges(*piece)) for piece in cut_ranges(starts, stops, self.chunk_rows)]
        needs_parts = any(ranges is not None for _, ranges in pieces)
        parts = self._read_parts([index for (index, _, _), _ in pieces] if needs_parts else [])
        for k, ((index, low, high), ranges) in enumerate(pieces):
            if self.ahead_bytes:
                for (soon, _, _), its_ranges in pieces[k : k + CHUNKS_AHEAD]:
                    self._advise(soon, its_ranges)
            end, first = begin + self.row_bytes * int(np.sum(high - low)), index * self.chunk_rows
            limits = self.row_bytes * (low - first), self.row_bytes * (high - first)
            with self.file(index, ranges) as file:
                if ranges is None:
                    chunks.copy_from_whole(file, *limits, out[begin:end])
                else:
                    reader = chunks.PartReader(file, parts[index], self.part_rows * self.row_bytes)
                    reader.copy(*limits, out[begin:end])
                    file.check_stored()
            begin = end

    def take_bytes(self, starts: I64, stops: I64) -> int:
        """Return the number of bytes that `take` reads for these ranges: the sizes of parts, or of whole chunks."""
        size = self.chunk_rows if self.parts is None else self.part_rows
        chunk_parts = -(-self.chunk_rows // size)
        first, last = (
            at // self.chunk_rows * chunk_parts + at % self.chunk_rows // size
            for at in (starts, np.maximum(starts, stops - 1))
        )
        first[1:] = np.maximum(first[1:], last[:-1] + 1)  # two ranges may share a part
        return min(int(np.sum(np.maximum(last - first + 1, 0))) * size, self.length) * self.row_bytes

    def check_parts(self) -> None:
        """Compare every part of every chunk with its checksum, and the index of every shard with the expected one.

        Raises IntegrityError for the first mismatch. Only other programs read the indices.
        """
        for shard in range(self.shards.n_files if self.shards.chunks_per_shard > 1 else 0):
            assert self.chunk_place is not None
            check_index(self.chunk_place, self.shards, shard)
        if self.parts is not None:
            self.parts.check_parts()
        for index in range(self.n_chunks if self.parts is not None else 0):
            with self.file(index) as file:
                checksums = self._read_parts([index])[index]
                reader = chunks.PartReader(file, checksums, self.part_rows * self.row_bytes)
                for part in range(len(checksums)):
                    reader.load(part)

    def advise(self, start: int, stop: int) -> None:
        """Start reading the rows start:stop of raw chunks, which this thread will soon need."""
        if not self.is_raw or self.chunk_place is None:
            return
        cut = cut_ranges(np.array([start]), np.array([stop]), self.chunk_rows)
        pieces = [(piece[0], self._list_ranges(*piece)) for piece in cut]
        for index, ranges in pieces:
            self._advise(index, ranges)
        if self.parts is not None and any(ranges is not None for _, ranges in pieces):
            self.parts.advise(pieces[0][0], pieces[-1][0] + 1)

    def forget_advised(self) -> None:
        """Cancel reads that this thread has announced but not opened."""
        if self.chunk_place is not None:
            self.chunk_place.forget_advised()
        if self.parts is not None:
            self.parts.forget_advised()

    def _advise(self, index: int, ranges: Sequence[Range] | None) -> None:
        assert self.chunk_place is not None
        self.chunk_place.advise(self.shards.find(index), ranges or self._whole)

    def _list_ranges(self, index: int, low: I64, high: I64) -> list[Range] | None:
        """Return the byte ranges of chunk `index` that hold the given rows and the checksum of the chunk.

        Each range consists of whole parts, and ranges less than a part apart are merged. Return None to read the whole
        chunk: if it has no parts, or if almost all of its rows are needed.
        """
        first, size = index * self.chunk_rows, self.part_rows
        n_rows = min(self.chunk_rows, self.length - first)
        if self.parts is None or int(np.sum(high - low)) >= WHOLE_SHARE * n_rows:
            return None
        starts, stops = (low - first) // size * size, -((first - high) // size) * size
        apart = starts[1:] - stops[:-1] > size
        firsts = starts[np.append(True, apart)] * self.row_bytes
        lasts = np.minimum(stops[np.append(apart, True)] * self.row_bytes, self._payload_bytes)
        return [*chunks.pair(firsts, lasts), (self._payload_bytes, self.shards.chunk_bytes)]

    def _read_parts(self, indices: list[int]) -> dict[int, chunks.Checksums]:
        """Return the checksums of the parts of each of these chunks; an empty dict for an array without parts."""
        if self.parts is None or not indices:
            return {}
        wanted = np.array(indices)
        return dict(zip(indices, self.parts.take(wanted, wanted + 1), strict=True))

    def _decode_into(self, starts: I64, stops: I64, out: Array) -> None:
        """Copy rows from chunks that Zarr decodes, several small chunks at a time."""
        together = max(1, DECODED_BYTES // (self.chunk_rows * self.row_bytes))
        at = 0
        for _, low, high in cut_ranges(starts, stops, together * self.chunk_rows):
            first = int(low[0])
            decoded = self._decode(first, int(high[-1]))
            for start, stop in chunks.pair(low - first, high - first):
                out[at : at + stop - start] = decoded[start:stop]
                at += stop - start

    def _decode(self, start: int, stop: int) -> Array:
        """Read the rows start:stop through Zarr, which decodes whole chunks."""
        try:
            with waiting():
                return np.asarray(self.array[start:stop])
        except (IntegrityError, ReadError, TimeLimitError):
            raise
        except (ValueError, TypeError, OSError, RuntimeError) as error:
            touched = range(start // self.chunk_rows, -(-stop // self.chunk_rows))
            raise IntegrityError(f"{self._find_damaged(touched)}: cannot be decoded: {error}") from error

    def _find_damaged(self, touched: range) -> str:
        """Return the path of the first of these chunks that cannot be decoded by itself."""
        for index in touched:
            try:
                self.array[index * self.chunk_rows : (index + 1) * self.chunk_rows]
            except (ValueError, TypeError, OSError, RuntimeError):
                return self.describe(index)
        return self.describe(touched.start)


def _find_place(array: zarr.Array[Any], cache: DiskCache | None) -> ChunkPlace | None:
    """Return the place of the raw chunks of an array; None for stores that only Zarr can read."""
    if isinstance(array.store, LocalStore):
        return LocalPlace(Path(array.store.root) / array.path)
    if not isinstance(array.store, RemoteStore):
        return None
    place = RemotePlace(array.store, array.path)
    return place if cache is None else CachedPlace(place, cache)
