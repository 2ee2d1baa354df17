"""Files of raw chunks. Such a file holds the values of a chunk as they lie in memory, and then their CRC-32C."""

from __future__ import annotations

import os
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt

from streamsvm.errors import IntegrityError

CRC_BYTES = 4
Bytes = npt.NDArray[np.uint8]


class ChunkFile:
    """The file of one raw chunk, opened for one use.

    Either the whole chunk is read in order and `finish` compares its checksum, or `read_part` reads parts of it and
    compares each with a checksum of its own. Both raise IntegrityError if the file is not what the manifest lists.
    """

    def __init__(self, path: Path, payload_bytes: int, checksum: int) -> None:
        self.path, self.payload_bytes, self.checksum = path, payload_bytes, checksum
        self.position, self._crc = 0, 0
        try:
            self._file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:
            raise IntegrityError(f"{path}: chunk is missing") from None
        except OSError as error:
            raise IntegrityError(f"{path}: chunk cannot be opened: {error.strerror}") from error
        size = os.fstat(self._file).st_size
        if size != payload_bytes + CRC_BYTES:
            os.close(self._file)
            raise IntegrityError(f"{path}: chunk has {size} bytes instead of {payload_bytes + CRC_BYTES}")

    def __enter__(self) -> ChunkFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def read(self, buffer: Bytes) -> None:
        """Fill the buffer with the next bytes."""
        self._fill(buffer, self.position)
        self.position += len(buffer)
        self._crc = google_crc32c.extend(self._crc, buffer)

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
            raise IntegrityError(f"{self.path}: chunk is damaged (its checksum is not the manifest's)")
        self.check_stored()

    def check_stored(self) -> None:
        """Raise IntegrityError unless the checksum at the end of the file is the one in the manifest."""
        stored = np.empty(CRC_BYTES, np.uint8)
        self._fill(stored, self.payload_bytes)
        if int.from_bytes(stored.tobytes(), "little") != self.checksum:
            raise IntegrityError(f"{self.path}: chunk is damaged (its checksum is not the manifest's)")

    def read_part(self, begin: int, buffer: Bytes, checksum: int) -> None:
        """Fill the buffer with the part that begins at byte `begin`. Raises IntegrityError if its checksum differs."""
        if os.preadv(self._file, [buffer.data], begin) < len(buffer):  # as a rule one call is enough
            self._fill(buffer, begin)
        if google_crc32c.value(buffer) != checksum:
            where = f"bytes {begin} to {begin + len(buffer)}"
            raise IntegrityError(f"{self.path}: chunk is damaged (the checksum of {where} is not the one listed)")

    def _fill(self, buffer: Bytes, begin: int) -> None:
        done = 0
        while done < len(buffer):
            n = os.preadv(self._file, [buffer.data[done:]], begin + done)
            if n == 0:
                raise IntegrityError(f"{self.path}: chunk was cut short while it was read")
            done += n


def write_chunk(path: Path, payload: Bytes) -> None:
    """Write the file of a raw chunk, and bring it to the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=0) as file:
        for part in (payload.data, google_crc32c.value(payload).to_bytes(CRC_BYTES, "little")):
            done = 0
            while done < len(part):
                done += file.write(part[done:])
        os.fsync(file.fileno())


def checksum_parts(payload: Bytes, part_bytes: int) -> npt.NDArray[np.uint32]:
    """Return the CRC-32C of every part of a chunk, (parts,). The last part may be shorter."""
    starts = range(0, len(payload), part_bytes)
    return np.array([google_crc32c.value(payload[at : at + part_bytes]) for at in starts], np.uint32)


def read_checksum(path: Path) -> int:
    """Return the CRC-32C that a chunk's file ends with."""
    try:
        with path.open("rb") as file:
            file.seek(-CRC_BYTES, os.SEEK_END)
            return int.from_bytes(file.read(CRC_BYTES), "little")
    except FileNotFoundError:
        raise IntegrityError(f"{path}: chunk is missing") from None
    except OSError as error:
        raise IntegrityError(f"{path}: chunk is damaged: {error.strerror}") from error
