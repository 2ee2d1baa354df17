"""The writer of a dataset: rows are appended in order, chunks are written as they fill up, and the manifest comes last.

The dataset is made in a folder of `data.destination`, so that it appears whole or not at all. Raw chunks are files that
we write ourselves, since Zarr's way to the same bytes makes several copies of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

from streamsvm.data.checks import VECTORS
from streamsvm.data.dense_chunks import Checksums, Column, DenseChunks
from streamsvm.data.manifest import (
    ATTRIBUTE,
    ENCODED_FORMAT,
    ENCODING,
    FORMAT,
    NARROW_FORMAT,
    PARTS,
    SETS_FORMAT,
    describe_array,
    make_fingerprint,
)
from streamsvm.data.placed_array import ZEROS_TOO, LocalFolder, PlacedArray
from streamsvm.data.upload import Upload
from streamsvm.errors import InputError
from streamsvm.numeric.label_sets import count_bytes
from streamsvm.numeric.rows import CsrRows, Rows
from streamsvm.numeric.scaling import Scaling

CODECS: dict[str, tuple[Any, ...]] = {
    "crc32c": (Crc32cCodec(),),
    "lz4": (BloscCodec(cname="lz4", shuffle="shuffle"), Crc32cCodec()),
    "zstd": (ZstdCodec(level=1), Crc32cCodec()),
}
LARGEST_CHUNK_BYTES = 64 << 20
SMALLEST_CHUNK_BYTES = 4 << 20
PART_BYTES = 64 << 10  # reading a random row costs a part of each array (tests/benchmarks/random_rows.py)
VECTOR_PART_BYTES = 8 << 10  # for labels, weights and query ids, which have 4 or 8 bytes a row


@dataclass(frozen=True)
class Shape:
    """The shape of a dataset, which must be known before the first chunk is written.

    n_labels: the number of labels of which rows may have any; 0 if rows have no such sets. dtype: of dense rows as they
    are stored; chunks have as many rows as if it were float32.
    """

    n_rows: int
    n_features: int
    n_items: int
    longest_row: int
    sparse: bool
    n_labels: int = 0
    dtype: str = "float32"

    def chunk_bytes(self) -> int:
        """Return the default size of a chunk: a 16th of the data, so that every core has work, from 4 to 64 MiB."""
        data_bytes = 8 * self.n_items if self.sparse else 4 * self.n_rows * self.n_features
        return min(LARGEST_CHUNK_BYTES, max(SMALLEST_CHUNK_BYTES, data_bytes // 16))


class _ArrayWriter:
    """Collects values until a chunk is full, and then writes it. One chunk is in memory, or two with a pool.

    pool: writes a chunk while the next one is collected.
    part_bytes: raw chunks get checksums of parts of that size, in an array of their own (docs/storage.md); 0: none.
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
    ) -> None:
        group = place.open_group()
        chunks = (max(1, min(chunk_rows, shape[0])), *shape[1:])
        self.array = group.create_array(
            name,
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            compressors=CODECS[codec],
            fill_value=0,
            config=ZEROS_TOO,
        )
        self.name, self._place = name, place
        self._buffer = np.empty(chunks, dtype)
        self._other = self._buffer if pool is None else np.empty(chunks, dtype)
        self._filled = self._written = 0
        self._is_raw, self._pool = codec == "crc32c", pool
        self._writing: Future[None] | None = None
        self.part_rows = max(1, part_bytes // self._buffer[:1].nbytes)
        self._parts: _ArrayWriter | None = None
        if part_bytes and self._is_raw and self.part_rows < chunks[0]:
            parts = -(-shape[0] // chunks[0]), -(-chunks[0] // self.part_rows)
            together = max(1, PART_BYTES // (4 * parts[1]))
            self._parts = _ArrayWriter(place, PARTS + name, parts, together, "uint32", codec)
        in_parts = 0 if self._parts is None else self.part_rows * self._buffer[:1].nbytes
        self.placed = PlacedArray(place, name, shape, chunks, dtype, codec, in_parts)

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
        checksums = [self._place.read_checksum(self.placed.key(index)) for index in range(self.n_chunks)]
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
    def n_chunks(self) -> int:
        """The number of chunks."""
        return int(-(-self.array.shape[0] // self.array.chunks[0]))

    @property
    def column(self) -> Column:
        """What others have to know to write chunks."""
        return Column(self.name, str(self.array.dtype), self.array.shape[1:], self.placed.part_bytes)

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


class DatasetWriter:
    """Appends rows, which are scaled and have coded labels, to a dataset that is being made in a folder or a store.

    pool: writes chunks while the next ones are collected; its user waits for it to end before the folder is removed.
    """

    def __init__(
        self,
        folder: Path | Upload,
        shape: Shape,
        fields: tuple[str, ...],
        chunk_bytes: int | None,
        codec: str,
        pool: ThreadPoolExecutor | None = None,
    ) -> None:
        if codec not in CODECS:
            raise InputError(f"codec {codec!r}: choose from {', '.join(CODECS)}")
        self.place = LocalFolder(folder) if isinstance(folder, Path) else folder
        self.shape, self.codec, self._pool = shape, codec, pool
        chunk_bytes = chunk_bytes or shape.chunk_bytes()
        self._arrays: dict[str, _ArrayWriter] = {}
        n, d = shape.n_rows, shape.n_features
        if shape.sparse:
            group = self.place.open_group().create_group("X")
            group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [n, d]})
            items = max(chunk_bytes // 8, shape.longest_row)
            rows = max(1, min(n, int(items * n / shape.n_items)))
            self._create("X/data", (shape.n_items,), items, "float32")
            self._create("X/indices", (shape.n_items,), items, "int32")
            self._create("X/indptr", (n + 1,), rows, "int64")
            self._arrays["X/indptr"].append(np.zeros(1, np.int64))
        else:
            rows = max(1, min(n, chunk_bytes // (4 * d)))
            self._create("X", (n, d), rows, shape.dtype)
        for name, dtype in VECTORS.items():
            if name in fields:
                width = (count_bytes(shape.n_labels),) if name == "label_sets" else ()
                self._create(name, (n, *width), rows, dtype)
        self._n_items, self._items_per_chunk, self._chunk_starts = 0, rows if not shape.sparse else items, [0]
        self._n_rows = 0

    def append(self, rows: Rows) -> None:
        """Append rows, which are dense or sparse as the dataset is."""
        if isinstance(rows.X, CsrRows):
            ends = self._n_items + rows.X.indptr[1:]
            self._note_chunk_starts(np.concatenate(([self._n_items], ends[:-1])))
            self._n_items = int(ends[-1]) if len(ends) else self._n_items
            for name, values in (("data", rows.X.data), ("indices", rows.X.indices), ("indptr", ends)):
                self._arrays[f"X/{name}"].append(values)
        else:
            self._arrays["X"].append(rows.X)
        for name, values in rows.vectors.items():
            self._arrays[name].append(values)
        self._n_rows += rows.n_rows

    def share_out(self) -> DenseChunks:
        """Return what tasks write the chunks of dense rows with, none of which is appended here."""
        assert not self.shape.sparse
        assert self.codec == "crc32c"
        columns = tuple(array.column for array in self._arrays.values())
        assert isinstance(self.place, LocalFolder)
        return DenseChunks(self.place.folder.absolute(), self.shape.n_rows, self._items_per_chunk, columns)

    @property
    def arrays(self) -> dict[str, PlacedArray]:
        """The arrays, whose chunks others may store."""
        return {name: array.placed for name, array in self._arrays.items()}

    def note_chunks(self, checksums: Sequence[Checksums], chunk_starts: list[int] | None = None) -> None:
        """Take note of all chunks, which tasks have written, with the checksums of the parts of each.

        chunk_starts: of sparse rows, the first row that begins in each chunk of items.
        """
        self._chunk_starts = chunk_starts or self._chunk_starts
        for name, array in self._arrays.items():
            array.note_chunks([each[name] for each in checksums if name in each])

    def finish(
        self, meta: dict[str, Any], scaling: Scaling | None, others: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> None:
        """Write the last chunks, the scaling and `others` (arrays by name), and, last of all, the manifest."""
        small = dict(others or {})
        if scaling is not None:
            small |= {"scaling/offset": scaling.offset, "scaling/factor": scaling.factor}
        for name, values in small.items():
            self._create(name, values.shape, len(values), str(values.dtype), in_parts=False)
            self._arrays[name].append(values)
        arrays = {name: entry for array in self._arrays.values() for name, entry in array.finish().items()}
        whole = {
            "format": self._find_format(meta),
            "n_rows": self.shape.n_rows,
            "n_features": self.shape.n_features,
            "n_items": self.shape.n_items,
            "sparse": self.shape.sparse,
            "longest_row": self.shape.longest_row,
            "codec": self.codec,
            "chunk_starts": self._limits(),
            "scaling": None if scaling is None else scaling.kind,
            **meta,
            "arrays": arrays,
        }
        self.place.open_group().attrs[ATTRIBUTE] = {**whole, "sha256": make_fingerprint(whole)}

    def _find_format(self, meta: Mapping[str, Any]) -> int:
        """Return the least format of a dataset with all that this one has."""
        if self.shape.dtype != "float32":
            return NARROW_FORMAT
        return SETS_FORMAT if "label_sets" in self._arrays else ENCODED_FORMAT if ENCODING in meta else FORMAT

    def _create(self, name: str, shape: tuple[int, ...], chunk: int, dtype: str, in_parts: bool = True) -> None:
        part_bytes = PART_BYTES if name.startswith("X") else VECTOR_PART_BYTES
        part_bytes *= in_parts
        self._arrays[name] = _ArrayWriter(self.place, name, shape, chunk, dtype, self.codec, part_bytes, self._pool)

    def _note_chunk_starts(self, firsts: npt.NDArray[np.int64]) -> None:
        """Note each row that is the first to begin in a new chunk of items."""
        while (limit := len(self._chunk_starts) * self._items_per_chunk) <= (firsts[-1] if len(firsts) else -1):
            self._chunk_starts.append(self._n_rows + int(np.searchsorted(firsts, limit, side="left")))

    def _limits(self) -> list[int]:
        """Return the first row of each chunk, and the number of rows at the end."""
        n = self.shape.n_rows
        if not self.shape.sparse:
            return [*range(0, n, self._items_per_chunk), n]
        n_chunks = -(-self.shape.n_items // self._items_per_chunk)
        starts = self._chunk_starts[:n_chunks]
        return [*starts, *[n] * (n_chunks + 1 - len(starts))]
