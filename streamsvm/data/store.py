"""Stored arrays. Each is a Zarr array in chunks of whole rows, which are compared with the manifest when they are read.

A chunk ends with the CRC-32C of its bytes (Zarr's `crc32c` codec). Zarr alone reads a deleted chunk as zeros and cannot
tell two swapped chunks apart, so the manifest of the dataset lists the checksum of every chunk, too. Every read is
compared with the manifest: whole chunks with their checksums, and a few rows with the checksums of the parts of chunks
in which they lie (docs/storage.md). Raw chunks, which have no compression, are read without Zarr,
straight into buffers that are used again. Several of them may lie in one file, a shard (data.shards).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import zarr
from zarr.storage import LocalStore

from streamsvm.data.checked_store import check_chunks
from streamsvm.data.chunk_file import CRC_BYTES, Bytes, Checksums, ChunkFile, PartReader, copy_from_whole, pair
from streamsvm.data.chunk_places import ChunkPlace, LocalPlace, RemotePlace, check_index
from streamsvm.data.disk_cache import CachedPlace, DiskCache
from streamsvm.data.object_file import RANGE_BYTES, Range
from streamsvm.data.object_store import RemoteStore
from streamsvm.data.row_ranges import cut_ranges, join_neighbours
from streamsvm.data.shards import Shards, are_raw
from streamsvm.errors import IntegrityError

Array = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]
CHUNKS_AHEAD = 8  # of a store, while a few rows of each are read
WHOLE_SHARE = 15 / 16  # of a chunk's rows, from which the chunk is read as a whole
DECODED_BYTES = 4 << 20  # of small chunks that Zarr decodes at a time


class StoredArray:
    """A Zarr array of shape (n,) or (n, d), read in ranges of its first axis.

    checksums: CRC-32C of each chunk, (chunks,) uint32; None without a manifest (an AnnData file), and then nothing is
    verified. part_rows: rows of a part of a raw chunk; row k of the array `parts` holds the checksums of the parts of
    chunk k. Without `parts` a chunk is one part. cache: where copies of raw chunks of a store are kept.
    """

    def __init__(
        self,
        array: zarr.Array[Any],
        name: str,
        checksums: Checksums | None,
        parts: StoredArray | None = None,
        part_rows: int = 0,
        cache: DiskCache | None = None,
    ) -> None:
        self.array, self.name, self.checksums = array, name, checksums
        self.parts, self.part_rows = parts, part_rows
        self._first: dict[tuple[int, int], int] = {}  # checksums of the rows start:stop, of an array that has none
        self.length = int(array.shape[0])
        self.chunk_rows = int(array.chunks[0])
        self.row_items = int(np.prod(array.shape[1:], dtype=np.int64))
        self.row_bytes = self.row_items * array.dtype.itemsize
        self.chunk_place = _find_place(array, cache) if checksums is not None else None
        per_shard = array.shards[0] // self.chunk_rows if array.shards else 1
        self.shards = Shards(self.n_chunks, self._payload_bytes + CRC_BYTES, array.ndim, per_shard)
        one_chunk_wide = array.ndim == 1 or array.chunks[1] == array.shape[1]
        self.is_raw = self.chunk_place is not None and one_chunk_wide and _has_raw_codecs(array)
        self.place = f"{array.store}/{array.path}".removeprefix("file://")
        if checksums is not None and len(checksums) and not self.is_raw:
            self.array = check_chunks(array, checksums)

    @property
    def n_chunks(self) -> int:
        """Number of chunks along the first axis."""
        return -(-self.length // self.chunk_rows)

    def describe(self, index: int) -> str:
        """Return the path of chunk `index` for a message, and its number if it lies in a shard."""
        return f"{self.place}/{self.shards.find(index).name}"

    @property
    def ahead_bytes(self) -> int:
        """The most memory that an open chunk takes for what is read ahead."""
        return min(self.chunk_place.ahead_bytes, self._payload_bytes) if self.chunk_place and self.is_raw else 0

    def count_requests(self) -> int:
        """Return how many ranges an object store is asked for if all chunks are read."""
        return self.n_chunks * -(-self.shards.chunk_bytes // RANGE_BYTES)

    def file(self, index: int, ranges: Sequence[Range] | None = None) -> ChunkFile:
        """Open raw chunk `index` for checked reading: of these ranges of it, or of the whole chunk in order."""
        assert self.checksums is not None
        assert self.chunk_place is not None
        file = self.chunk_place.open(self.shards.find(index), ranges or self._whole)
        return ChunkFile(file, self._payload_bytes, int(self.checksums[index]))

    def read(self, start: int, stop: int) -> Array:
        """Return the rows start:stop, verified, in memory of their own.

        Without checksums they are compared with the same rows as this process read them first.
        """
        values = self.take(np.array([start]), np.array([stop]))
        if self.checksums is None:
            found = google_crc32c.value(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
            if self._first.setdefault((start, stop), found) != found:
                raise IntegrityError(f"{self.place}: rows {start}:{stop} are not those of the read before")
        return values

    def take(self, starts: I64, stops: I64) -> Array:
        """Return the rows starts[0]:stops[0], starts[1]:stops[1], ... one after another, verified.

        The ranges ascend and do not overlap. Of a raw chunk only the parts in which the rows lie are read.
        """
        starts, stops = join_neighbours(starts, stops)
        if not self.is_raw and len(starts) == 1:
            return self._decode(int(starts[0]), int(stops[0]))
        try:
            out = np.empty((int(np.sum(stops - starts)), *self.array.shape[1:]), self.array.dtype)
        except MemoryError:  # a damaged shape, which opening the file reports by its size
            self.file(int(starts[0]) // self.chunk_rows).close()
            raise
        if self.is_raw:
            self.take_into(starts, stops, out.reshape(-1).view(np.uint8))
        else:
            self._decode_into(starts, stops, out)
        return out

    def take_into(self, starts: I64, stops: I64, out: Bytes) -> None:
        """Do what `take` does, for raw chunks, into the bytes `out`."""
        begin, pieces = 0, [(piece, self._list_ranges(*piece)) for piece in cut_ranges(starts, stops, self.chunk_rows)]
        needs_parts = any(ranges is not None for _, ranges in pieces)
        parts = self._read_parts([index for (index, _, _), _ in pieces] if needs_parts else [])
        for k, ((index, low, high), ranges) in enumerate(pieces):
            if self.ahead_bytes:
                for (soon, _, _), its_ranges in pieces[k : k + CHUNKS_AHEAD]:
                    self._advise(soon, its_ranges)
            end = begin + self.row_bytes * int(np.sum(high - low))
            self._copy(index, ranges, parts.get(index), low, high, out[begin:end])
            begin = end

    def take_bytes(self, starts: I64, stops: I64) -> int:
        """Return the bytes of the parts, or of the whole chunks, that `take` reads for these ranges."""
        size = self.chunk_rows if self.parts is None else self.part_rows
        chunk_parts = -(-self.chunk_rows // size)
        first, last = (
            at // self.chunk_rows * chunk_parts + at % self.chunk_rows // size
            for at in (starts, np.maximum(starts, stops - 1))
        )
        first[1:] = np.maximum(first[1:], last[:-1] + 1)  # two ranges may share a part
        return min(int(np.sum(np.maximum(last - first + 1, 0))) * size, self.length) * self.row_bytes

    def check_parts(self) -> None:
        """Compare every part of every chunk with its checksum, and the index of every shard.

        Raises IntegrityError for the first that differs. Other programs read the indices, and no reader here.
        """
        for shard in range(self.shards.n_files if self.shards.chunks_per_shard > 1 else 0):
            assert self.chunk_place is not None
            check_index(self.chunk_place, self.shards, shard)
        if self.parts is not None:
            self.parts.check_parts()
        for index in range(self.n_chunks if self.parts is not None else 0):
            with self.file(index) as file:
                checksums = self._read_parts([index])[index]
                reader = PartReader(file, checksums, self.part_rows * self.row_bytes)
                for part in range(len(checksums)):
                    reader.load(part)

    def advise(self, start: int, stop: int) -> None:
        """Begin to read the rows start:stop of raw chunks, which this thread will read soon."""
        if not self.is_raw or self.chunk_place is None:
            return
        cut = cut_ranges(np.array([start]), np.array([stop]), self.chunk_rows)
        pieces = [(piece[0], self._list_ranges(*piece)) for piece in cut]
        for index, ranges in pieces:
            self._advise(index, ranges)
        if self.parts is not None and any(ranges is not None for _, ranges in pieces):
            self.parts.advise(pieces[0][0], pieces[-1][0] + 1)

    def forget_advised(self) -> None:
        """Give up what this thread has begun to read and not opened."""
        if self.chunk_place is not None:
            self.chunk_place.forget_advised()
        if self.parts is not None:
            self.parts.forget_advised()

    def _advise(self, index: int, ranges: Sequence[Range] | None) -> None:
        assert self.chunk_place is not None
        self.chunk_place.advise(self.shards.find(index), ranges or self._whole)

    def path_of(self, index: int) -> Path:
        """Return the file on a local disk in which chunk `index` lies."""
        assert isinstance(self.chunk_place, LocalPlace)
        return self.chunk_place.folder / self.shards.find(index).key

    @property
    def _payload_bytes(self) -> int:
        return self.chunk_rows * self.row_bytes

    @property
    def _whole(self) -> list[Range]:
        """The range of a whole chunk with its checksum."""
        return [(0, self.shards.chunk_bytes)]

    def _copy(
        self, index: int, ranges: Sequence[Range] | None, parts: Checksums | None, low: I64, high: I64, out: Bytes
    ) -> None:
        """Copy the rows low[0]:high[0], low[1]:high[1], ... of raw chunk `index` to `out`, one after another.

        ranges: what is read of the chunk, in parts with these checksums; None to read and verify the whole chunk.
        """
        first = index * self.chunk_rows
        limits = self.row_bytes * (low - first), self.row_bytes * (high - first)
        with self.file(index, ranges) as file:
            if ranges is None:
                copy_from_whole(file, *limits, out)
            else:
                assert parts is not None
                PartReader(file, parts, self.part_rows * self.row_bytes).copy(*limits, out)
                file.check_stored()

    def _list_ranges(self, index: int, low: I64, high: I64) -> list[Range] | None:
        """Return the ranges of chunk `index` in which some rows and its checksum lie.

        Each range is of whole parts, and ranges with less than a part between them are one. None if the whole chunk is
        to be read, since it has no parts, or since almost all of its rows are needed.
        """
        first, size = index * self.chunk_rows, self.part_rows
        n_rows = min(self.chunk_rows, self.length - first)
        if self.parts is None or int(np.sum(high - low)) >= WHOLE_SHARE * n_rows:
            return None
        starts, stops = (low - first) // size * size, -((first - high) // size) * size
        apart = starts[1:] - stops[:-1] > size
        firsts = starts[np.append(True, apart)] * self.row_bytes
        lasts = np.minimum(stops[np.append(apart, True)] * self.row_bytes, self._payload_bytes)
        return [*pair(firsts, lasts), (self._payload_bytes, self.shards.chunk_bytes)]

    def _read_parts(self, chunks: list[int]) -> dict[int, Checksums]:
        """Return the checksums of the parts of each of these chunks; nothing for an array without parts."""
        if self.parts is None or not chunks:
            return {}
        wanted = np.array(chunks)
        return dict(zip(chunks, self.parts.take(wanted, wanted + 1), strict=True))

    def _decode_into(self, starts: I64, stops: I64, out: Array) -> None:
        """Copy rows out of chunks that Zarr decodes, several small chunks at a time."""
        together = max(1, DECODED_BYTES // (self.chunk_rows * self.row_bytes))
        at = 0
        for _, low, high in cut_ranges(starts, stops, together * self.chunk_rows):
            first = int(low[0])
            decoded = self._decode(first, int(high[-1]))
            for start, stop in pair(low - first, high - first):
                out[at : at + stop - start] = decoded[start:stop]
                at += stop - start

    def _decode(self, start: int, stop: int) -> Array:
        """Read the rows start:stop through Zarr, which decodes whole chunks."""
        try:
            return np.asarray(self.array[start:stop])
        except IntegrityError:
            raise
        except (ValueError, TypeError, OSError, RuntimeError) as error:
            touched = range(start // self.chunk_rows, -(-stop // self.chunk_rows))
            raise IntegrityError(f"{self._find_damaged(touched)}: cannot be decoded: {error}") from error

    def _find_damaged(self, touched: range) -> str:
        """Return the path of the first of these chunks that cannot be decoded alone."""
        for index in touched:
            try:
                self.array[index * self.chunk_rows : (index + 1) * self.chunk_rows]
            except (ValueError, TypeError, OSError, RuntimeError):
                return self.describe(index)
        return self.describe(touched.start)


def _find_place(array: zarr.Array[Any], cache: DiskCache | None) -> ChunkPlace | None:
    """Return the place of raw chunks; None for a store that only Zarr reads."""
    if isinstance(array.store, LocalStore):
        return LocalPlace(Path(array.store.root) / array.path)
    if not isinstance(array.store, RemoteStore):
        return None
    place = RemotePlace(array.store, array.path)
    return place if cache is None else CachedPlace(place, cache)


def _has_raw_codecs(array: zarr.Array[Any]) -> bool:
    """Tell whether a chunk holds its values as they lie in memory, followed by their CRC-32C."""
    if array.metadata.zarr_format != 3:
        return False
    codecs: list[Any] = [codec.to_dict() for codec in array.metadata.codecs]
    return are_raw(codecs)
