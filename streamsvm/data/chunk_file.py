"""Files of raw chunks. Such a file holds the values of a chunk as they lie in memory, and then their CRC-32C.

The file lies on a local disk, or is an object in a store (data.chunk_places). What is verified does not depend on that.
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt

from streamsvm.errors import IntegrityError

CRC_BYTES = 4
Bytes = npt.NDArray[np.uint8]
Checksums = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]


class _Verifying(threading.local):
    """Seconds that a thread has spent on comparing bytes with their checksums."""

    seconds = 0.0


VERIFYING = _Verifying()


class StoredFile(Protocol):
    """A file of known size, opened for reading: on a local disk, or an object in a store (data.chunk_places)."""

    name: str

    def fill(self, buffer: Bytes, begin: int) -> None:
        """Fill the buffer from byte `begin` on. Raises IntegrityError if the file is missing or of another size."""

    def keep(self) -> None:
        """Keep a copy of the bytes, all of which are known to be right now, where copies are kept."""

    def close(self) -> None:
        """Close the file."""


class ChunkFile:
    """The file of one raw chunk, opened for one use.

    Either the whole chunk is read in order and `finish` compares its checksum, or `read_part` reads parts of it and
    compares each with a checksum of its own. Both raise IntegrityError if the file is not what the manifest lists.
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
        """Read bytes that nobody needs, because they belong to the checksum."""
        buffer = np.empty(min(n_bytes, 1 << 19), np.uint8)
        while n_bytes > 0:
            part = buffer[: min(n_bytes, len(buffer))]
            self.read(part)
            n_bytes -= len(part)

    def finish(self) -> None:
        """Read to the end. Raise IntegrityError unless the bytes and the stored checksum match the manifest."""
        self.skip(self.payload_bytes - self.position)
        if self._crc != self.checksum:
            raise IntegrityError(f"{self.name}: chunk is damaged (its checksum is not the manifest's)")
        self.check_stored()
        self._file.keep()

    def check_stored(self) -> None:
        """Raise IntegrityError unless the checksum at the end of the file is the one in the manifest."""
        stored = np.empty(CRC_BYTES, np.uint8)
        self._file.fill(stored, self.payload_bytes)
        if int.from_bytes(stored.tobytes(), "little") != self.checksum:
            raise IntegrityError(f"{self.name}: chunk is damaged (its checksum is not the manifest's)")

    def read_part(self, begin: int, buffer: Bytes, checksum: int) -> None:
        """Fill the buffer with the part that begins at byte `begin`. Raises IntegrityError if its checksum differs."""
        self._file.fill(buffer, begin)
        if google_crc32c.value(buffer) != checksum:
            where = f"bytes {begin} to {begin + len(buffer)}"
            raise IntegrityError(f"{self.name}: chunk is damaged (the checksum of {where} is not the one listed)")


class PartReader:
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
        for start, stop in pair(low, high):
            for part in range(start // self.part_bytes, (stop - 1) // self.part_bytes + 1):
                begin = part * self.part_bytes
                found = self.load(part)[max(start - begin, 0) : stop - begin]
                out[at : at + len(found)] = found
                at += len(found)


def copy_from_whole(file: ChunkFile, low: I64, high: I64, out: Bytes) -> None:
    """Copy ascending ranges of bytes to `out` from a chunk that is read and verified whole."""
    at = 0
    for start, stop in pair(low, high):
        file.skip(start - file.position)
        file.read(out[at : at + stop - start])
        at += stop - start
    file.finish()


def pair(starts: I64, stops: I64) -> Iterator[tuple[int, int]]:
    """Yield the ranges as integers of Python."""
    return zip(starts.tolist(), stops.tolist(), strict=True)


def write_chunk(path: Path, payload: Bytes, begin: int = 0, end: bytes = b"") -> None:
    """Write a raw chunk from byte `begin` of a file on, its checksum, and then `end`, and bring them to the disk."""
    write_parts(path, [payload.data, google_crc32c.value(payload).to_bytes(CRC_BYTES, "little"), end], begin)


def write_parts(path: Path, parts: Sequence[bytes | memoryview], begin: int = 0) -> None:
    """Write bytes, which come in parts, from byte `begin` of a file on, and bring them to the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_to_rewrite(path) as file:
        file.seek(begin)
        for part in parts:
            done = 0
            while done < len(part):
                done += file.write(part[done:])
        os.fsync(file.fileno())


def open_to_rewrite(path: Path) -> io.FileIO:
    """Open a file for writing, which is not emptied before: a worker that was given up may write the same bytes again.

    Whoever reads the file meanwhile, or gives its folder a name, sees all of it.
    """
    return io.FileIO(os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666), "wb")


def checksum_parts(payload: Bytes, part_bytes: int) -> Checksums:
    """Return the CRC-32C of every part of a chunk, (parts,). The last part may be shorter."""
    starts = range(0, len(payload), part_bytes)
    return np.array([google_crc32c.value(payload[at : at + part_bytes]) for at in starts], np.uint32)


def read_checksum(path: Path, stop: int | None = None) -> int:
    """Return the CRC-32C that a chunk ends with: before byte `stop` of a file, or at the end of the file."""
    try:
        with path.open("rb") as file:
            if stop is None:
                file.seek(-CRC_BYTES, os.SEEK_END)
            else:
                file.seek(stop - CRC_BYTES)
            return int.from_bytes(file.read(CRC_BYTES), "little")
    except FileNotFoundError:
        raise IntegrityError(f"{path}: chunk is missing") from None
    except OSError as error:
        raise IntegrityError(f"{path}: chunk is damaged: {error.strerror}") from error
