"""Files of raw chunks, which hold values in their in-memory form followed by a CRC-32C, and shards of several chunks.

A file lies on a local disk or is an object in a store (data.store.places); both are verified in the same way. A shard
has the form of Zarr's `sharding_indexed`:

    shard = chunk, its CRC-32C, chunk, its CRC-32C, ..., index, CRC-32C of the index

The index has two numbers for each chunk that fits into the shard: its first byte, and its size in bytes with the
checksum. Raw chunks have equal sizes, so streamsvm computes the position of a chunk. Only other programs read the
index.
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt

from streamsvm.system.errors import IntegrityError

CRC_BYTES = 4
Bytes = npt.NDArray[np.uint8]
Checksums = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]


class _Verifying(threading.local):
    """Seconds that a thread has spent comparing bytes with their checksums."""

    seconds = 0.0


VERIFYING = _Verifying()


class StoredFile(Protocol):
    """A file of known size on a local disk or in an object store (data.store.places), opened for reading."""

    name: str

    def fill(self, buffer: Bytes, begin: int) -> None:
        """Fill the buffer from byte `begin` on. Raises IntegrityError if the file is missing or has another size."""

    def keep(self) -> None:
        """Keep a copy of the bytes in the cache, if there is a cache. The caller has verified all bytes."""

    def close(self) -> None:
        """Close the file."""


class ChunkFile:
    """The file of one raw chunk, opened for a single use.

    Either the whole chunk is read in order and `finish` verifies its checksum, or `read_part` reads parts of it and
    verifies the checksum of each part. Both raise IntegrityError unless the file matches the manifest.
    """

    def __init__(self, file: StoredFile, payload_bytes: int, checksum: int) -> None:
        self.payload_bytes, self.checksum = payload_bytes, checksum
        self.position, self.name, self._crc, self._file = 0, file.name, 0, file

    def __enter__(self) -> ChunkFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, buffer: Bytes) -> None:
        """Fill the buffer with the next bytes."""
        self._file.fill(buffer, self.position)
        self.position += len(buffer)
        began = time.perf_counter()
        self._crc = google_crc32c.extend(self._crc, buffer)
        VERIFYING.seconds += time.perf_counter() - began

    def skip(self, n_bytes: int) -> None:
        """Read bytes for the checksum, and discard them."""
        buffer = np.empty(min(n_bytes, 1 << 19), np.uint8)
        while n_bytes > 0:
            part = buffer[: min(n_bytes, len(buffer))]
            self.read(part)
            n_bytes -= len(part)

    def finish(self) -> None:
        """Read to the end. Raise IntegrityError unless the bytes and the stored checksum match the manifest."""
        self.skip(self.payload_bytes - self.position)
        self._compare(self._crc)
        self.check_stored()
        self._file.keep()

    def check_stored(self) -> None:
        """Raise IntegrityError unless the checksum at the end of the chunk is the one in the manifest."""
        stored = np.empty(CRC_BYTES, np.uint8)
        self._file.fill(stored, self.payload_bytes)
        self._compare(int.from_bytes(stored.tobytes(), "little"))

    def _compare(self, checksum: int) -> None:
        """Raise IntegrityError unless a checksum of the chunk is the one in the manifest."""
        if checksum != self.checksum:
            raise IntegrityError(
                f"{self.name}: chunk is damaged (its checksum differs from the manifest); restore the file, or ingest "
                "again (in a cache, remove it)"
            )

    def read_part(self, begin: int, buffer: Bytes, checksum: int) -> None:
        """Fill the buffer with the part that begins at byte `begin`. Raises IntegrityError if its checksum differs."""
        self._file.fill(buffer, begin)
        if google_crc32c.value(buffer) != checksum:
            where = f"bytes {begin} to {begin + len(buffer)}"
            raise IntegrityError(
                f"{self.name}: chunk is damaged (the checksum of {where} differs from the listed one); restore the "
                "file, or ingest again (in a cache, remove it)"
            )


class PartReader:
    """Reads parts of a raw chunk and verifies their checksums. It holds one part in memory."""

    def __init__(self, file: ChunkFile, checksums: Checksums, part_bytes: int) -> None:
        self.file, self.checksums, self.part_bytes = file, checksums, part_bytes
        self._buffer, self._loaded = np.empty(min(part_bytes, file.payload_bytes), np.uint8), -1

    def load(self, part: int) -> Bytes:
        """Return the bytes of a part. They are valid until the next call."""
        begin = part * self.part_bytes
        found = self._buffer[: self.file.payload_bytes - begin]
        if part != self._loaded:
            self.file.read_part(begin, found, int(self.checksums[part]))
            self._loaded = part
        return found

    def copy(self, low: I64, high: I64, out: Bytes) -> None:
        """Copy the byte ranges low[i]:high[i], in ascending order, to `out`, without gaps."""
        at = 0
        for start, stop in pair(low, high):
            for part in range(start // self.part_bytes, (stop - 1) // self.part_bytes + 1):
                begin = part * self.part_bytes
                found = self.load(part)[max(start - begin, 0) : stop - begin]
                out[at : at + len(found)] = found
                at += len(found)


def copy_from_whole(file: ChunkFile, low: I64, high: I64, out: Bytes) -> None:
    """Read and verify a whole chunk, and copy its byte ranges low[i]:high[i] to `out`, without gaps."""
    at = 0
    for start, stop in pair(low, high):
        file.skip(start - file.position)
        file.read(out[at : at + stop - start])
        at += stop - start
    file.finish()


def pair(starts: I64, stops: I64) -> Iterator[tuple[int, int]]:
    """Yield each range as a pair of Python integers."""
    return zip(starts.tolist(), stops.tolist(), strict=True)


def write_parts(path: Path, parts: Sequence[bytes | memoryview], begin: int = 0) -> None:
    """Write bytes, given in parts, to a file from byte `begin` on, and flush them to disk."""
    with open_to_rewrite(path) as file:
        file.seek(begin)
        for part in parts:
            done = 0
            while done < len(part):
                done += file.write(part[done:])
        os.fsync(file.fileno())


def open_to_rewrite(path: Path) -> io.FileIO:
    """Open a file for writing without truncating it.

    An abandoned worker may write the same bytes again. Concurrent readers then still see the whole file.
    """
    return io.FileIO(os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666), "wb")


def checksum_parts(payload: Bytes, part_bytes: int) -> Checksums:
    """Return the CRC-32C of every part of a chunk, (parts,). The last part may be shorter."""
    starts = range(0, len(payload), part_bytes)
    return np.array([google_crc32c.value(payload[at : at + part_bytes]) for at in starts], np.uint32)


CODEC = "sharding_indexed"
ABSENT = np.iinfo(np.uint64).max  # the two index entries of each unused place for a chunk in the last shard


@dataclass(frozen=True)
class Span:
    """The position of a chunk: a byte range within a file.

    Attributes
    ----------
    key : str
        The name of the file within the folder of its array.
    file_bytes : int
        The size of the file.
    begin, n_bytes : int
        The first byte of the chunk, and its size with the checksum.
    own_key : str
        The name that the file of the chunk has if each chunk is in a file of its own.
    name : str
        The name of the chunk in messages: its file, and in a shard also its number in the array.
    """

    key: str
    file_bytes: int
    begin: int
    n_bytes: int
    own_key: str
    name: str

    @property
    def kind(self) -> str:
        """The word for the file in messages."""
        return "chunk" if self.n_bytes == self.file_bytes else "shard"

    def alone(self) -> Span:
        """Return the position of the chunk in a file of its own."""
        return Span(self.own_key, self.n_bytes, 0, self.n_bytes, self.own_key, self.own_key)


@dataclass(frozen=True)
class Shards:
    """The positions of the raw chunks of an array in their files.

    Attributes
    ----------
    n_chunks : int
        The number of chunks.
    chunk_bytes : int
        Size of a chunk with its checksum, in bytes.
    n_axes : int
        The number of axes of the array. Chunks are cut along the first axis.
    chunks_per_shard : int
        The number of chunks in a shard; the last shard may have fewer. If it is 1, each chunk is a file without an
        index.
    """

    n_chunks: int
    chunk_bytes: int
    n_axes: int
    chunks_per_shard: int = 1

    @property
    def n_files(self) -> int:
        """The number of files."""
        return -(-self.n_chunks // self.chunks_per_shard)

    def find(self, index: int) -> Span:
        """Return the position of a chunk."""
        shard, at = divmod(index, self.chunks_per_shard)
        key, own_key = (f"c/{number}{'/0' * (self.n_axes - 1)}" for number in (shard, index))
        name = key if self.chunks_per_shard == 1 else f"{key}, chunk {index}"
        return Span(key, self._count_bytes(shard), at * self.chunk_bytes, self.chunk_bytes, own_key, name)

    def find_index(self, shard: int) -> Span:
        """Return the position of the index of a shard. Indices are not cached."""
        n_bytes, key = self._count_bytes(shard), self.find(shard * self.chunks_per_shard).key
        begin = n_bytes - self._index_bytes
        return Span(key, n_bytes, begin, self._index_bytes, f"index/{shard}", f"{key}, its index")

    def make_index(self, shard: int) -> bytes:
        """Return the index of a shard with its checksum."""
        index = np.full((self.chunks_per_shard, 2), ABSENT, "<u8")
        n_chunks = self._count_chunks(shard)
        index[:n_chunks, 0] = self.chunk_bytes * np.arange(n_chunks, dtype=np.uint64)
        index[:n_chunks, 1] = self.chunk_bytes
        content = index.tobytes()
        checksum: int = google_crc32c.value(content)
        return content + checksum.to_bytes(CRC_BYTES, "little")

    def end_with(self, index: int) -> bytes:
        """Return the bytes after a chunk and its checksum: the index after the last chunk of a shard, otherwise b""."""
        shard, at = divmod(index, self.chunks_per_shard)
        is_last = self.chunks_per_shard > 1 and at == self._count_chunks(shard) - 1
        return self.make_index(shard) if is_last else b""

    def _count_bytes(self, shard: int) -> int:
        """Return the size of a file."""
        return self._count_chunks(shard) * self.chunk_bytes + self._index_bytes

    @property
    def _index_bytes(self) -> int:
        """Size of the index of a shard with its checksum, in bytes; 0 without shards."""
        return 16 * self.chunks_per_shard + CRC_BYTES if self.chunks_per_shard > 1 else 0

    def _count_chunks(self, shard: int) -> int:
        """Return the number of chunks in a shard; the last shard may have fewer."""
        return min(self.chunks_per_shard, self.n_chunks - shard * self.chunks_per_shard)


def are_raw(codecs: Sequence[dict[str, Any]]) -> bool:
    """Return whether chunks, alone or in shards, hold values in their in-memory form followed by their CRC-32C.

    codecs: the codecs of the array. Shards with other codecs, or with the index at the start, do not count as raw.
    """
    if len(codecs) == 1 and codecs[0]["name"] == CODEC:
        about = codecs[0]["configuration"]
        inner = _are_checked(about["codecs"]) and _are_checked(about["index_codecs"])
        return inner and bool(about["index_location"] == "end")
    return _are_checked(codecs)


def _are_checked(codecs: Sequence[dict[str, Any]]) -> bool:
    """Return whether the codecs are little-endian bytes and their CRC-32C."""
    names = [codec["name"] for codec in codecs]
    return names == ["bytes", "crc32c"] and codecs[0].get("configuration", {}).get("endian") in (None, "little")
