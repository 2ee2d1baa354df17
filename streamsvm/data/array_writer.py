"""The writer of an array of a dataset: values are appended in order, and a chunk is written when it is full.

Raw chunks are written by ourselves, since Zarr's way to the same bytes makes several copies of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

from streamsvm.data.chunk_file import CRC_BYTES
from streamsvm.data.dense_chunks import Column
from streamsvm.data.manifest import PARTS, describe_array
from streamsvm.data.placed_array import ZEROS_TOO, LocalFolder, PlacedArray
from streamsvm.data.shards import Shards
from streamsvm.data.upload import Upload

CODECS: dict[str, tuple[Any, ...]] = {
    "crc32c": (Crc32cCodec(),),
    "lz4": (BloscCodec(cname="lz4", shuffle="shuffle"), Crc32cCodec()),
    "zstd": (ZstdCodec(level=1), Crc32cCodec()),
}
TABLE_BYTES = 64 << 10  # of a chunk of the checksums of parts


class ArrayWriter:
    """Collects values until a chunk is full, and then writes it. One chunk is in memory, or two with a pool.

    pool: writes a chunk while the next one is collected.
    part_bytes: raw chunks get checksums of parts of that size, in an array of their own (docs/storage.md); 0: none.
    shard_bytes: as many raw chunks as have so many bytes lie in one file; 0: each chunk is a file.
    """

    def __init__(
        self,
        place: LocalFolder | Upload,
        name: str,
        shape: tuple[int, ...],
        chunk_rows: int,
        dtype: str,
        codec: str,
        part_bytes: int = 0,
        pool: ThreadPoolExecutor | None = None,
        shard_bytes: int = 0,
    ) -> None:
        chunks = (max(1, min(chunk_rows, shape[0])), *shape[1:])
        self._buffer = np.empty(chunks, dtype)
        shards = _plan_shards(shape, self._buffer, shard_bytes if codec == "crc32c" else 0)
        self.array = place.open_group().create_array(
            name,
            shape=shape,
            chunks=chunks,
            shards=None if shards.chunks_per_shard == 1 else (shards.chunks_per_shard * chunks[0], *shape[1:]),
            dtype=dtype,
            compressors=CODECS[codec],
            fill_value=0,
            config=ZEROS_TOO,
        )
        self.name = name
        self._other = self._buffer if pool is None else np.empty(chunks, dtype)
        self._filled = self._written = 0
        self._is_raw, self._pool = codec == "crc32c", pool
        self._writing: Future[None] | None = None
        self.part_rows = max(1, part_bytes // self._buffer[:1].nbytes)
        has_parts = part_bytes > 0 and self._is_raw and self.part_rows < chunks[0]
        self._parts = self._open_parts(place, shards.n_chunks, shard_bytes) if has_parts else None
        in_parts = 0 if self._parts is None else self.part_rows * self._buffer[:1].nbytes
        self.placed = PlacedArray(place, name, shape, chunks, dtype, codec, in_parts, shards)

    def _open_parts(self, place: LocalFolder | Upload, n_chunks: int, shard_bytes: int) -> ArrayWriter:
        """Return the writer of the checksums of parts: an array with a row for each chunk."""
        shape = n_chunks, -(-len(self._buffer) // self.part_rows)
        n_rows = max(1, TABLE_BYTES // (4 * shape[1]))
        return ArrayWriter(place, PARTS + self.name, shape, n_rows, "uint32", "crc32c", shard_bytes=shard_bytes)

    def append(self, values: npt.NDArray[Any]) -> None:
        """Append values along the first axis."""
        at = 0
        while at < len(values):
            n = min(len(values) - at, len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + n] = values[at : at + n]
            self._filled, at = self._filled + n, at + n
            if self._filled == len(self._buffer):
                self._flush()

    def finish(self) -> dict[str, Any]:
        """Write the last chunk. Return the entries of the manifest for the array and the checksums of its parts."""
        if self._filled:
            self._flush()
        self._wait()
        assert self._written == self.array.shape[0], f"{self.name}: {self._written} of {self.array.shape[0]} written"
        checksums = [self.placed.read_checksum(index) for index in range(self.placed.shards.n_chunks)]
        entry = {**describe_array(self.array), "checksums": np.asarray(checksums, "<u4").tobytes().hex()}
        if self._parts is None:
            return {self.name: entry}
        return {self.name: {**entry, "part_rows": self.part_rows}, **self._parts.finish()}

    def note_chunks(self, checksums: Sequence[npt.NDArray[np.uint32]]) -> None:
        """Take note that all chunks were written by others; checksums: of the parts of each, if it has parts."""
        self._written, self._filled = self.array.shape[0], 0
        if self._parts is not None:
            self._parts.append(np.stack(checksums))

    @property
    def column(self) -> Column:
        """What others have to know to write chunks."""
        return Column(
            self.name, str(self.array.dtype), self.array.shape[1:], self.placed.part_bytes, self.placed.shards
        )

    def _flush(self) -> None:
        """Write the chunk that is collected, or let the pool write it once the chunk before is written."""
        self._wait()
        if self._pool is None:
            self._store(self._buffer, self._written, self._filled)
        else:
            self._writing = self._pool.submit(self._store, self._buffer, self._written, self._filled)
            self._buffer, self._other = self._other, self._buffer
        self._written, self._filled = self._written + self._filled, 0

    def _wait(self) -> None:
        """Wait until the pool has written a chunk. Raises the error that it met."""
        if self._writing is not None:
            self._writing.result()

    def _store(self, chunk: npt.NDArray[Any], start: int, n_rows: int) -> None:
        """Write the rows of a chunk, the first of which is row `start`, and the checksums of its parts."""
        if not self._is_raw:
            self.array[start : start + n_rows] = chunk[:n_rows]
            return
        checksums = self.placed.store(chunk, start // len(chunk), n_rows)
        if self._parts is not None and checksums is not None:
            self._parts.append(checksums[None, :])


def _plan_shards(shape: tuple[int, ...], chunk: npt.NDArray[Any], shard_bytes: int) -> Shards:
    """Return where the chunks of an array lie, if its shards have about so many bytes."""
    n_chunks = -(-shape[0] // len(chunk))
    per_shard = max(1, min(n_chunks, shard_bytes // chunk.nbytes))
    return Shards(n_chunks, chunk.nbytes + CRC_BYTES, len(shape), per_shard)
