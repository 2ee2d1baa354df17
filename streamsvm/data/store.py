"""Stored arrays: one Zarr array each, cut along its first axis, every chunk checked against a manifest.

A chunk's file ends with the CRC-32C of what precedes it (Zarr's `crc32c` codec). Zarr alone reads a deleted chunk
as zeros and cannot tell two swapped chunks apart, so the dataset's manifest lists every chunk's checksum as well.
Chunks without compression on a local disk are read past Zarr, straight into buffers that are used again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.store import SuffixByteRequest
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore

from streamsvm.errors import IntegrityError

CRC_BYTES = 4
Array = npt.NDArray[Any]


class StoredArray:
    """A Zarr array of shape (n,) or (n, d), read in ranges of its first axis.

    checksums: (chunks,) uint32, or None where no manifest exists (an AnnData file): then nothing is verified.
    """

    def __init__(self, array: zarr.Array[Any], name: str, checksums: npt.NDArray[np.uint32] | None) -> None:
        self.array, self.name, self.checksums = array, name, checksums
        self.length = int(array.shape[0])
        self.chunk_rows = int(array.chunks[0])
        self.row_items = int(np.prod(array.shape[1:], dtype=np.int64))
        self.row_bytes = self.row_items * array.dtype.itemsize
        self.folder = _local_folder(array) if checksums is not None else None
        one_chunk_wide = array.ndim == 1 or array.chunks[1] == array.shape[1]
        self.is_raw = self.folder is not None and one_chunk_wide and _has_raw_codecs(array)
        self.place = f"{array.store}/{array.path}".removeprefix("file://")
        self._verified: set[int] = set()

    @property
    def n_chunks(self) -> int:
        """Number of chunks along the first axis."""
        return -(-self.length // self.chunk_rows)

    def describe(self, index: int) -> str:
        """Name chunk `index` so that a user finds it."""
        return f"{self.place}/{self._key(index)}"

    def file(self, index: int) -> ChunkFile:
        """Open raw chunk `index` for checked, sequential reading."""
        assert self.checksums is not None
        return ChunkFile(self.path_of(index), self.chunk_rows * self.row_bytes, int(self.checksums[index]))

    def read(self, start: int, stop: int) -> Array:
        """Rows start..stop in memory of their own, every chunk they touch verified whole."""
        if self.is_raw:
            return self._read_raw(start, stop)
        touched = range(start // self.chunk_rows, -(-stop // self.chunk_rows))
        for index in touched:
            self._check_manifest(index)
        try:
            return np.asarray(self.array[start:stop])
        except (ValueError, OSError, RuntimeError) as error:
            raise IntegrityError(f"{self._find_damaged(touched)}: cannot be decoded: {error}") from error

    def read_rows(self, index: int, starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> Array:
        """Short ranges that begin in raw chunk `index`, one after another; the chunk is verified the first time."""
        out = np.empty((int(counts.sum()), *self.array.shape[1:]), self.array.dtype)
        view, at = out.reshape(-1).view(np.uint8), 0
        first = index * self.chunk_rows
        self._verify_once(index)
        with self.file(index) as file:
            for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
                inside = min(count, first + self.chunk_rows - start)
                end = at + inside * self.row_bytes
                file.position = (start - first) * self.row_bytes
                file.read(view[at:end])
                at = end
                if inside < count:
                    self._verify_once(index + 1)
                    rest = view[at : at + (count - inside) * self.row_bytes]
                    self.read_head(index + 1, rest)
                    at += len(rest)
        return out

    def read_head(self, index: int, buffer: npt.NDArray[np.uint8]) -> None:
        """Read the first bytes of raw chunk `index`, which whoever reads that chunk verifies."""
        with self.file(index) as file:
            file.read(buffer)

    def advise(self, index: int) -> None:
        """Ask the kernel to read raw chunk `index` ahead, while others are computed on."""
        if self.is_raw and index < self.n_chunks and hasattr(os, "posix_fadvise"):
            try:
                with open(self.path_of(index), "rb", buffering=0) as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
            except OSError:
                return  # the read itself will say what is wrong

    def path_of(self, index: int) -> Path:
        """File of chunk `index` on a local disk."""
        assert self.folder is not None
        return self.folder / self._key(index)

    def _read_raw(self, start: int, stop: int) -> Array:
        out = np.empty((stop - start, *self.array.shape[1:]), self.array.dtype)
        view, at = out.reshape(-1).view(np.uint8), start
        while at < stop:
            index = at // self.chunk_rows
            end = min(stop, (index + 1) * self.chunk_rows)
            with self.file(index) as file:
                file.skip((at - index * self.chunk_rows) * self.row_bytes)
                file.read(view[(at - start) * self.row_bytes : (end - start) * self.row_bytes])
                file.finish()
            at = end
        return out

    def _verify_once(self, index: int) -> None:
        if index not in self._verified:
            with self.file(index) as file:
                file.finish()
            self._verified.add(index)

    def _check_manifest(self, index: int) -> None:
        """Compare the stored checksum with the manifest's: finds a missing or a swapped chunk (Zarr finds the rest)."""
        if self.checksums is not None and self._stored_checksum(index) != int(self.checksums[index]):
            raise IntegrityError(f"{self.describe(index)}: not the chunk that was written here (checksum differs)")

    def _stored_checksum(self, index: int) -> int:
        """Read the last bytes of a chunk as they are stored, wherever that is.

        Zarr's public functions decode, or are coroutines; the connections of a remote store live in Zarr's own event
        loop, and `sync`, which is not public (Zarr 3.1), is what runs a coroutine there.
        """
        if self.folder is not None:
            return read_checksum(self.path_of(index))
        chunk = self.array.store_path / self._key(index)
        found = sync(chunk.get(default_buffer_prototype(), SuffixByteRequest(CRC_BYTES)))
        if found is None:
            raise IntegrityError(f"{self.describe(index)}: chunk is missing")
        return int.from_bytes(found.to_bytes()[-CRC_BYTES:], "little")

    def _find_damaged(self, touched: range) -> str:
        """Name the first of these chunks that cannot be decoded alone."""
        for index in touched:
            try:
                self.array[index * self.chunk_rows : (index + 1) * self.chunk_rows]
            except (ValueError, OSError, RuntimeError):
                return self.describe(index)
        return self.describe(touched.start)

    def _key(self, index: int) -> str:
        return f"c/{index}" + "/0" * (self.array.ndim - 1)


class ChunkFile:
    """A raw chunk's file, read once from its beginning; `finish` reads what is left and compares checksums."""

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
        os.close(self._file)

    def read(self, buffer: npt.NDArray[np.uint8]) -> None:
        """Fill the buffer with the next bytes."""
        done = 0
        while done < len(buffer):
            n = os.preadv(self._file, [buffer.data[done:]], self.position)
            if n == 0:
                raise IntegrityError(f"{self.path}: chunk was cut short while it was read")
            done, self.position = done + n, self.position + n
        self._crc = google_crc32c.extend(self._crc, buffer)

    def skip(self, n_bytes: int) -> None:
        """Read and check bytes that nobody needs."""
        buffer = np.empty(min(n_bytes, 1 << 19), np.uint8)
        while n_bytes > 0:
            part = buffer[: min(n_bytes, len(buffer))]
            self.read(part)
            n_bytes -= len(part)

    def finish(self) -> None:
        """Read to the end; raise IntegrityError unless bytes and checksum are those that the manifest lists."""
        self.skip(self.payload_bytes - self.position)
        stored = int.from_bytes(os.pread(self._file, CRC_BYTES, self.payload_bytes), "little")
        if not self._crc == stored == self.checksum:
            raise IntegrityError(f"{self.path}: chunk is damaged (its checksum is not the manifest's)")


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


def _local_folder(array: zarr.Array[Any]) -> Path | None:
    return Path(array.store.root) / array.path if isinstance(array.store, LocalStore) else None


def _has_raw_codecs(array: zarr.Array[Any]) -> bool:
    if array.metadata.zarr_format != 3:
        return False
    codecs: list[dict[str, Any]] = [dict(codec.to_dict()) for codec in array.metadata.codecs]
    names = [codec["name"] for codec in codecs]
    return names == ["bytes", "crc32c"] and codecs[0].get("configuration", {}).get("endian") in (None, "little")
