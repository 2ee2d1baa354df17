"""A Zarr store that compares each chunk with the manifest at the moment when Zarr receives it.

Zarr decodes compressed chunks and the chunks of remote stores. Its codec `crc32c` compares the bytes of a chunk with
the checksum at their end, but Zarr reads a missing chunk as zeros, and cannot tell two swapped chunks apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from zarr import Array, AsyncArray
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import StorePath, WrapperStore

from streamsvm.data.chunk_file import CRC_BYTES
from streamsvm.errors import IntegrityError


class CheckedStore(WrapperStore[Store]):
    """A store that refuses a chunk unless it exists and ends with the checksum that is listed under its key."""

    def __init__(self, store: Store, checksums: dict[str, int]) -> None:
        super().__init__(store)
        self._checksums = checksums

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return a whole chunk. Raises IntegrityError if it is not the chunk that the manifest lists."""
        found = await self._store.get(key, prototype, byte_range)
        if found is None:
            raise IntegrityError(f"{self._name(key)}: chunk is missing")
        if int.from_bytes(found[-CRC_BYTES:].to_bytes(), "little") != self._checksums.get(key):
            raise IntegrityError(f"{self._name(key)}: not the chunk that was written here (checksum differs)")
        return found

    def _name(self, key: str) -> str:
        return f"{self._store}/{key}".removeprefix("file://")


def check_chunks(array: Array[Any], checksums: npt.NDArray[np.uint32]) -> Array[Any]:
    """Return an array, whose chunks are whole rows, over a store that compares the chunks with these checksums."""
    others = (0,) * (array.ndim - 1)
    keys = (array.metadata.encode_chunk_key((index, *others)) for index in range(len(checksums)))
    listed = {f"{array.path}/{key}": int(checksum) for key, checksum in zip(keys, checksums, strict=True)}
    place = StorePath(CheckedStore(array.store, listed), array.path)
    return Array(AsyncArray(array.metadata, place))
