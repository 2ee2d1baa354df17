"""Stored arrays. Each is a Zarr array in chunks of whole rows, which are compared with the manifest when they are read.

A chunk's file ends with the CRC-32C of the bytes before (Zarr's `crc32c` codec). Zarr alone reads a deleted chunk as
zeros and cannot tell two swapped chunks apart, so the manifest of the dataset lists the checksum of every chunk, too.
Every read is compared with the manifest: whole chunks with their checksums, and a few rows with the checksums of the
parts of chunks in which they lie (docs/storage.md). Raw chunks, which have no compression, on a local disk are read
without Zarr, straight into buffers that are used again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.storage import LocalStore

from streamsvm.data.checked_store import check_chunks
from streamsvm.data.chunk_file import Bytes, ChunkFile
from streamsvm.errors import IntegrityError

Array = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]
Checksums = npt.NDArray[np.uint32]
DECODED_BYTES = 4 << 20  # of small chunks that Zarr decodes at a time


class StoredArray:
    """A Zarr array of shape (n,) or (n, d), read in ranges of its first axis.

    checksums: CRC-32C of each chunk, (chunks,) uint32; None without a manifest (an AnnData file), and then nothing is
    verified. part_rows: rows of a part of a raw chunk; row k of the array `parts` holds the checksums of the parts of
    chunk k. Without `parts` a chunk is one part.
    """

    def __init__(
        self,
        array: zarr.Array[Any],
        name: str,
        checksums: Checksums | None,
        parts: StoredArray | None = None,
        part_rows: int = 0,
    ) -> None:
        self.array, self.name, self.checksums = array, name, checksums
        self.parts, self.part_rows = parts, part_rows
        self.length = int(array.shape[0])
        self.chunk_rows = int(array.chunks[0])
        self.row_items = int(np.prod(array.shape[1:], dtype=np.int64))
        self.row_bytes = self.row_items * array.dtype.itemsize
        self.folder = _local_folder(array) if checksums is not None else None
        one_chunk_wide = array.ndim == 1 or array.chunks[1] == array.shape[1]
        self.is_raw = self.folder is not None and one_chunk_wide and _has_raw_codecs(array)
        self.place = f"{array.store}/{array.path}".removeprefix("file://")
        if checksums is not None and len(checksums) and not self.is_raw:
            self.array = check_chunks(array, checksums)

    @property
    def n_chunks(self) -> int:
        """Number of chunks along the first axis."""
        return -(-self.length // self.chunk_rows)

    def describe(self, index: int) -> str:
        """Return the path of chunk `index` for a message."""
        return f"{self.place}/{self._key(index)}"

    def file(self, index: int) -> ChunkFile:
        """Open raw chunk `index` for checked, sequential reading."""
        assert self.checksums is not None
        return ChunkFile(self.path_of(index), self.chunk_rows * self.row_bytes, int(self.checksums[index]))

    def read(self, start: int, stop: int) -> Array:
        """Return the rows start:stop, verified, in memory of their own."""
        return self.take(np.array([start]), np.array([stop]))

    def take(self, starts: I64, stops: I64) -> Array:
        """Return the rows starts[0]:stops[0], starts[1]:stops[1], ... one after another, verified.

        The ranges ascend and do not overlap. Of a raw chunk only the parts in which the rows lie are read.
        """
        starts, stops = _join_neighbours(starts, stops)
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
        begin, pieces = 0, list(_cut(starts, stops, self.chunk_rows))
        parts = self._read_parts([index for index, _, _ in pieces])
        for (index, low, high), checksums in zip(pieces, parts, strict=True):
            first = index * self.chunk_rows
            end = begin + self.row_bytes * int(np.sum(high - low))
            self._copy(
                index, checksums, self.row_bytes * (low - first), self.row_bytes * (high - first), out[begin:end]
            )
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
        """Compare every part of every chunk with its checksum. Raises IntegrityError for the first that differs."""
        for index in range(self.n_chunks if self.parts is not None else 0):
            with self.file(index) as file:
                (checksums,) = self._read_parts([index])
                assert checksums is not None
                reader = _PartReader(file, checksums, self.part_rows * self.row_bytes)
                for part in range(len(checksums)):
                    reader.load(part)

    def advise(self, index: int) -> None:
        """Ask the operating system to read raw chunk `index` ahead."""
        if self.is_raw and index < self.n_chunks and hasattr(os, "posix_fadvise"):
            try:
                with open(self.path_of(index), "rb", buffering=0) as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
            except OSError:
                return  # the read itself will report the error

    def path_of(self, index: int) -> Path:
        """Return the file of chunk `index` on a local disk."""
        assert self.folder is not None
        return self.folder / self._key(index)

    def _copy(self, index: int, parts: Checksums | None, low: I64, high: I64, out: Bytes) -> None:
        """Copy the bytes low[0]:high[0], low[1]:high[1], ... of raw chunk `index` to `out`, one after another."""
        used_rows = min(self.chunk_rows, self.length - index * self.chunk_rows)
        with self.file(index) as file:
            if parts is None or len(out) == used_rows * self.row_bytes:
                _copy_of_whole(file, low, high, out)
            else:
                file.check_stored()
                _PartReader(file, parts, self.part_rows * self.row_bytes).copy(low, high, out)

    def _read_parts(self, chunks: list[int]) -> Sequence[Checksums | None]:
        """Return the checksums of the parts of each of these chunks; None for chunks without parts."""
        if self.parts is None or not chunks:
            return [None] * len(chunks)
        wanted = np.array(chunks)
        return list(self.parts.take(wanted, wanted + 1))

    def _decode_into(self, starts: I64, stops: I64, out: Array) -> None:
        """Copy rows out of chunks that Zarr decodes, several small chunks at a time."""
        together = max(1, DECODED_BYTES // (self.chunk_rows * self.row_bytes))
        at = 0
        for _, low, high in _cut(starts, stops, together * self.chunk_rows):
            first = int(low[0])
            decoded = self._decode(first, int(high[-1]))
            for start, stop in _pair(low - first, high - first):
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

    def _key(self, index: int) -> str:
        return f"c/{index}" + "/0" * (self.array.ndim - 1)


class _PartReader:
    """Reads parts of a raw chunk, holds one of them in memory, and compares each with its checksum."""

    def __init__(self, file: ChunkFile, checksums: Checksums, part_bytes: int) -> None:
        self.file, self.checksums, self.part_bytes = file, checksums, part_bytes
        self._buffer, self._loaded = np.empty(min(part_bytes, file.payload_bytes), np.uint8), -1

    def load(self, part: int) -> Bytes:
        """Return the bytes of a part, which are valid until the next call."""
        begin = part * self.part_bytes
        found = self._buffer[: self.file.payload_bytes - begin]
        if part != self._loaded:
            self.file.read_part(begin, found, int(self.checksums[part]))
            self._loaded = part
        return found

    def copy(self, low: I64, high: I64, out: Bytes) -> None:
        """Copy ascending ranges of bytes to `out`, one after another."""
        at = 0
        for start, stop in _pair(low, high):
            for part in range(start // self.part_bytes, (stop - 1) // self.part_bytes + 1):
                begin = part * self.part_bytes
                found = self.load(part)[max(start - begin, 0) : stop - begin]
                out[at : at + len(found)] = found
                at += len(found)


def _copy_of_whole(file: ChunkFile, low: I64, high: I64, out: Bytes) -> None:
    """Copy ascending ranges of bytes to `out` from a chunk that is read and verified whole."""
    at = 0
    for start, stop in _pair(low, high):
        file.skip(start - file.position)
        file.read(out[at : at + stop - start])
        at += stop - start
    file.finish()


def _join_neighbours(starts: I64, stops: I64) -> tuple[I64, I64]:
    """Return the ranges that are not empty; ranges that touch each other become one."""
    some = stops > starts
    starts, stops = starts[some], stops[some]
    apart = starts[1:] != stops[:-1]
    return starts[np.append(True, apart)[: len(starts)]], stops[np.append(apart, True)[: len(stops)]]


def _cut(starts: I64, stops: I64, step: int) -> Iterator[tuple[int, I64, I64]]:
    """Cut ascending ranges at the multiples of `step`. Yield (k, starts, stops) for each k that has some of them."""
    if not len(starts):
        return
    for k in range(int(starts[0]) // step, -(-int(stops[-1]) // step)):
        here = slice(np.searchsorted(stops, k * step, side="right"), np.searchsorted(starts, (k + 1) * step))
        if here.start < here.stop:
            low, high = (np.clip(limits[here], k * step, (k + 1) * step) for limits in (starts, stops))
            yield k, low, high


def _pair(starts: I64, stops: I64) -> Iterator[tuple[int, int]]:
    """Yield the ranges as integers of Python."""
    return zip(starts.tolist(), stops.tolist(), strict=True)


def _local_folder(array: zarr.Array[Any]) -> Path | None:
    return Path(array.store.root) / array.path if isinstance(array.store, LocalStore) else None


def _has_raw_codecs(array: zarr.Array[Any]) -> bool:
    """Tell whether a chunk holds its values as they lie in memory, followed by their CRC-32C."""
    if array.metadata.zarr_format != 3:
        return False
    codecs: list[dict[str, Any]] = [dict(codec.to_dict()) for codec in array.metadata.codecs]
    names = [codec["name"] for codec in codecs]
    return names == ["bytes", "crc32c"] and codecs[0].get("configuration", {}).get("endian") in (None, "little")
