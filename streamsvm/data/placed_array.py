"""Where the chunks of an array are stored that is being made: a local folder, in any order, by any process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import zarr
from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

from streamsvm.data.chunk_file import CRC_BYTES, Bytes, checksum_parts, read_checksum, write_chunk, write_parts
from streamsvm.data.shards import Shards, Span
from streamsvm.data.upload import Upload
from streamsvm.errors import InputError

ZEROS_TOO: Any = {"write_empty_chunks": True}  # Zarr leaves out chunks of zeros otherwise


class _InPlace(LocalStore):
    """A folder in which Zarr writes compressed chunks under their own names from the first byte on.

    Zarr's store gives a file its name when it is complete, and a process that is killed leaves it under another one in
    the dataset. Here a killed process leaves a part of the chunk, and whoever takes up its work writes over it.
    """

    async def set(self, key: str, value: Buffer) -> None:
        """Write a file."""
        await asyncio.to_thread(self.set_sync, key, value)

    def set_sync(self, key: str, value: Buffer) -> None:
        """Write a file; later versions of Zarr may call this."""
        write_parts(self.root / key, [value.to_bytes()])


class LocalFolder:
    """A folder on a local disk in which a dataset is made. `data.upload.Upload` has the same functions for a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open_group(self) -> zarr.Group:
        """Return the group of the dataset."""
        return zarr.open_group(str(self.folder), mode="a", zarr_format=3)

    def write_chunk(self, name: str, span: Span, payload: Bytes, end: bytes) -> None:
        """Write a raw chunk of an array at its place, and what follows it."""
        write_chunk(self._find_array(name) / span.key, payload, span.begin, end)

    def open_array(self, name: str) -> zarr.Array[Any]:
        """Return an array, to write compressed chunks of it."""
        return zarr.open_array(_InPlace(self._find_array(name)), mode="r+")

    def _find_array(self, name: str) -> Path:
        """Return the folder of an array. If it is missing, it is not shared, or the writing has been given up."""
        array = self.folder / name
        if not array.is_dir():
            raise InputError(f"{array}: no such folder; all workers have to share the folder of the dataset they write")
        return array

    def read_chunk(self, name: str, span: Span) -> bytes | None:
        """Return a chunk with its checksum, or None if there is none."""
        try:
            with open(self.folder / name / span.key, "rb") as file:
                file.seek(span.begin)
                return file.read(span.n_bytes if span.kind == "shard" else -1)  # a compressed chunk has another size
        except FileNotFoundError:
            return None

    def note_checksum(self, name: str, span: Span, checksum: int) -> None:
        """Do nothing, as the checksum is in the file that another process has written."""

    def read_checksum(self, name: str, span: Span) -> int:
        """Return the CRC-32C that a chunk ends with."""
        stop = span.begin + span.n_bytes if span.kind == "shard" else None  # a compressed chunk has another size
        return read_checksum(self.folder / name / span.key, stop)


@dataclass(frozen=True)
class PlacedArray:
    """An array of the dataset, in whose place chunks can be stored in any order, by any process.

    chunks: the shape of a chunk. part_bytes: of the parts that have checksums of their own; 0 if there are none.
    shards: where the chunks lie.
    """

    place: LocalFolder | Upload
    name: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str
    codec: str
    part_bytes: int
    shards: Shards

    def store(self, chunk: npt.NDArray[Any], index: int, n_rows: int) -> npt.NDArray[np.uint32] | None:
        """Write a chunk, of which the first n_rows are filled. Return the checksums of its parts, if it has any."""
        if self.codec != "crc32c":
            start = index * self.chunks[0]
            with zarr.config.set({f"array.{key}": value for key, value in ZEROS_TOO.items()}):
                self.place.open_array(self.name)[start : start + n_rows] = chunk[:n_rows]
            return None
        chunk[n_rows:] = 0  # Zarr fills up the last chunk in the same way
        payload = chunk.reshape(-1).view(np.uint8)
        self.place.write_chunk(self.name, self.shards.find(index), payload, self.shards.end_with(index))
        return checksum_parts(payload, self.part_bytes) if self.part_bytes else None

    def read_checksum(self, index: int) -> int:
        """Return the CRC-32C that a chunk ends with."""
        return self.place.read_checksum(self.name, self.shards.find(index))

    def holds(self, index: int, checksum: int) -> bool:
        """Tell whether a chunk is stored that has this CRC-32C, and ends with it."""
        found = self.place.read_chunk(self.name, self.shards.find(index))
        stored = checksum.to_bytes(CRC_BYTES, "little")
        return (
            found is not None and found[-CRC_BYTES:] == stored and google_crc32c.value(found[:-CRC_BYTES]) == checksum
        )

    def note_checksum(self, index: int, checksum: int) -> None:
        """Take note of the CRC-32C of a chunk that another process has stored."""
        self.place.note_checksum(self.name, self.shards.find(index), checksum)

    @property
    def needs_joining(self) -> bool:
        """Whether chunks that several processes have stored are joined to shards at the end."""
        return self.shards.chunks_per_shard > 1 and isinstance(self.place, Upload)

    def join(self, shard: int, checksums: Sequence[int]) -> None:
        """Join the chunks of a shard, which several processes have stored, and which have these checksums."""
        assert isinstance(self.place, Upload)
        first = shard * self.shards.chunks_per_shard
        indices = range(first, first + len(checksums))
        spans = [self.shards.find(index) for index in indices]
        self.place.join_chunks(self.name, spans, checksums, self.shards.end_with(indices[-1]))
