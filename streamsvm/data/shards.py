"""Shards: files, or objects of a store, in which several raw chunks of an array lie, as Zarr's `sharding_indexed` says.

    shard = chunk, its CRC-32C, chunk, its CRC-32C, ..., index, CRC-32C of the index

The index has two numbers for each chunk that a shard has room for: the byte at which the chunk begins, and its bytes
with the checksum. Raw chunks are equally long, so the place of a chunk is found by arithmetic, and only other programs
read the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np

from streamsvm.data.chunk_file import CRC_BYTES

CODEC = "sharding_indexed"
ABSENT = np.iinfo(np.uint64).max  # both numbers of a chunk that the last shard has room for, and that does not exist


@dataclass(frozen=True)
class Span:
    """The bytes of a file in which a chunk lies.

    Attributes
    ----------
    key : str
        The name of the file, within the folder of its array.
    file_bytes : int
        The size of the file.
    begin, n_bytes : int
        The first byte of the chunk, and how many it has with its checksum.
    own_key : str
        The name of the file of the chunk where each chunk is a file.
    name : str
        What the chunk is called in messages: its file, and its number in the array if it lies in a shard.
    """

    key: str
    file_bytes: int
    begin: int
    n_bytes: int
    own_key: str
    name: str

    @property
    def kind(self) -> str:
        """What the file is called in messages."""
        return "chunk" if self.n_bytes == self.file_bytes else "shard"

    def alone(self) -> Span:
        """Return where the chunk lies in a file of its own."""
        return Span(self.own_key, self.n_bytes, 0, self.n_bytes, self.own_key, self.own_key)


@dataclass(frozen=True)
class Shards:
    """The places of the raw chunks of an array.

    Attributes
    ----------
    n_chunks : int
        The number of chunks.
    chunk_bytes : int
        Bytes of a chunk with its checksum.
    n_axes : int
        The number of axes of the array. Chunks are cut along the first one.
    chunks_per_shard : int
        The number of chunks in a shard; the last shard may have fewer. If it is 1, each chunk is a file, and there is
        no index.
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
        """Return the place of a chunk."""
        shard, at = divmod(index, self.chunks_per_shard)
        key, own_key = (f"c/{number}{'/0' * (self.n_axes - 1)}" for number in (shard, index))
        name = key if self.chunks_per_shard == 1 else f"{key}, chunk {index}"
        return Span(key, self._count_bytes(shard), at * self.chunk_bytes, self.chunk_bytes, own_key, name)

    def find_index(self, shard: int) -> Span:
        """Return the place of the index of a shard, of which no copies are kept."""
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
        """Return what follows a chunk and its checksum: the index if the chunk is the last one of a shard."""
        shard, at = divmod(index, self.chunks_per_shard)
        is_last = self.chunks_per_shard > 1 and at == self._count_chunks(shard) - 1
        return self.make_index(shard) if is_last else b""

    def _count_bytes(self, shard: int) -> int:
        """Return the size of a file."""
        return self._count_chunks(shard) * self.chunk_bytes + self._index_bytes

    @property
    def _index_bytes(self) -> int:
        """Bytes of the index of a shard with its checksum; 0 if there is none."""
        return 16 * self.chunks_per_shard + CRC_BYTES if self.chunks_per_shard > 1 else 0

    def _count_chunks(self, shard: int) -> int:
        """Return the number of chunks in a shard, which may be fewer in the last one."""
        return min(self.chunks_per_shard, self.n_chunks - shard * self.chunks_per_shard)


def are_raw(codecs: Sequence[dict[str, Any]]) -> bool:
    """Tell whether chunks, alone or in shards, hold their values as they lie in memory, followed by their CRC-32C.

    codecs: of the array. Shards with other codecs, or with their index at the beginning, are not those of this module.
    """
    if len(codecs) == 1 and codecs[0]["name"] == CODEC:
        about = codecs[0]["configuration"]
        inner = _are_checked(about["codecs"]) and _are_checked(about["index_codecs"])
        return inner and bool(about["index_location"] == "end")
    return _are_checked(codecs)


def _are_checked(codecs: Sequence[dict[str, Any]]) -> bool:
    """Tell whether the codecs are little-endian bytes and their CRC-32C."""
    names = [codec["name"] for codec in codecs]
    return names == ["bytes", "crc32c"] and codecs[0].get("configuration", {}).get("endian") in (None, "little")
