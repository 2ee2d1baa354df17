"""The writer of a dataset: it fills chunks with rows, and writes the manifest last.

Either one process appends all rows (`DatasetWriter.append`), or tasks concurrently write several ranges of rows, each
with a `RangeWriter`. `DatasetWriter.finish` combines the results of all ranges. `data.store.destination` provides a
temporary folder or an upload to an object store; therefore the dataset appears whole or not at all.

A `ChunkWriter` fills a range of an array: it collects values, and stores each chunk that is full. A chunk that several
ranges share consists of fragments, which stay in scratch files until `seal` stores the chunk. The bytes of the dataset
do not depend on how the rows are cut into ranges, and a range may be written twice without harm. Raw chunks have the
bytes that Zarr would write, but Zarr would copy them several times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore

from streamsvm.data.store.chunks import CRC_BYTES, Bytes, Shards, Span, checksum_parts, write_parts
from streamsvm.data.store.destination import Upload
from streamsvm.data.store.layouts import VECTORS
from streamsvm.data.store.manifest import ATTRIBUTE, PARTS, Meta, choose_format, make_fingerprint
from streamsvm.data.store.shared_files import SharedFolder, SharedScratch, read_ranges
from streamsvm.data.store.zarr_arrays import describe_array
from streamsvm.numeric.labels import count_bytes, count_labels
from streamsvm.numeric.rows import CsrRows, Rows
from streamsvm.numeric.stored_types import STORED_AS, Scaling
from streamsvm.system import interrupts
from streamsvm.system.errors import InputError, IntegrityError

Array = npt.NDArray[Any]

CODECS: dict[str, tuple[Any, ...]] = {
    "crc32c": (Crc32cCodec(),),
    "lz4": (BloscCodec(cname="lz4", shuffle="shuffle"), Crc32cCodec()),
    "zstd": (ZstdCodec(level=1), Crc32cCodec()),
}
TABLE_BYTES = 64 << 10  # the size of a chunk of an array of checksums of parts


@dataclass(frozen=True)
class LocalFolder:
    """A local folder to which a dataset is written. data.store.destination.Upload is its counterpart for a store."""

    folder: Path

    def open_group(self) -> zarr.Group:
        """Return the group of the dataset."""
        return zarr.open_group(self.folder, mode="a", zarr_format=3)

    def write_chunk(self, name: str, span: Span, content: Sequence[bytes | memoryview]) -> None:
        """Write a chunk of an array at its position.

        content: the values of the chunk, its checksum, and, for the last chunk of a shard, the index of the shard.
        Raises InputError if the folder of the array does not exist: it is not shared, or writing was abandoned.
        """
        folder = self.folder / name
        SharedFolder(folder).check()
        for parent in reversed(Path(span.key).parents[:-1]):  # an abandoned task must not create `folder` again
            (folder / parent).mkdir(exist_ok=True)
        write_parts(folder / span.key, content, span.begin)

    def read_chunk(self, name: str, span: Span) -> bytes | None:
        """Return a chunk with its checksum, or None if it does not exist."""
        with suppress(FileNotFoundError), open(self.folder / name / span.key, "rb") as file:
            file.seek(span.begin)
            return file.read(span.n_bytes if span.kind == "shard" else -1)  # the size of compressed chunks varies
        return None


@dataclass(frozen=True)
class StoredChunk:
    """The checksums of a stored chunk: the CRC-32C at its end, and the CRC-32C of each part, if it has parts."""

    checksum: int
    parts: npt.NDArray[np.uint32] | None


@dataclass(frozen=True)
class Fragment:
    """The values of one range in a chunk that several ranges share.

    begin: the index of the first value in the array. checksum: the CRC-32C of the values.
    """

    begin: int
    n_values: int
    checksum: int


@dataclass(frozen=True)
class PlacedArray:
    """An array that has been created, and whose chunks any process can store in any order.

    chunks: the shape of a chunk. shards: the positions of the chunks. entry: the manifest entry of the array, without
    checksums. part_rows: the number of rows in each part of a chunk. parts: the array of the checksums of parts, with a
    row for each chunk; None if chunks have no parts.
    """

    place: LocalFolder | Upload
    name: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str
    codec: str
    shards: Shards
    entry: Meta
    part_rows: int
    parts: PlacedArray | None

    def store(self, chunk: Array, index: int, n_rows: int) -> StoredChunk:
        """Write chunk number `index`, whose first n_rows rows are filled."""
        span = self.shards.find(index)
        chunk[n_rows:] = 0  # Zarr pads the last chunk in the same way
        if self.codec != "crc32c":
            compressed = compress(chunk, self.codec)
            self.place.write_chunk(self.name, span, [compressed])
            return StoredChunk(int.from_bytes(compressed[-CRC_BYTES:], "little"), None)
        payload = chunk.reshape(-1).view(np.uint8)
        checksum: int = google_crc32c.value(payload)
        content: list[Any] = [payload.data, checksum.to_bytes(CRC_BYTES, "little"), self.shards.end_with(index)]
        self.place.write_chunk(self.name, span, content)
        parts = None if self.parts is None else checksum_parts(payload, chunk[: self.part_rows].nbytes)
        return StoredChunk(checksum, parts)

    def count_rows(self, index: int) -> int:
        """Return the number of rows of chunk number `index`."""
        return min(self.chunks[0], self.shape[0] - index * self.chunks[0])

    def name_fragment(self, begin: int) -> str:
        """Return the name of the scratch file for the fragment that begins at value `begin` of the array."""
        return f"{self.name.replace('/', '-')}-{begin}"

    def holds(self, index: int, checksum: int) -> bool:
        """Return whether a chunk is stored with this CRC-32C at its end, and its values match the CRC-32C."""
        found = self.place.read_chunk(self.name, self.shards.find(index))
        stored = checksum.to_bytes(CRC_BYTES, "little")
        return (
            found is not None and found[-CRC_BYTES:] == stored and google_crc32c.value(found[:-CRC_BYTES]) == checksum
        )

    def join(self, shard: int, checksums: Sequence[int]) -> None:
        """Combine separately stored chunks into a shard. checksums: the checksum of each chunk, in order."""
        assert isinstance(self.place, Upload)
        first = shard * self.shards.chunks_per_shard
        indices = range(first, first + len(checksums))
        spans = [self.shards.find(index) for index in indices]
        self.place.join_chunks(self.name, spans, checksums, self.shards.end_with(indices[-1]))

    def write(self, values: Array) -> dict[int, StoredChunk]:
        """Write all values of the array, and return the stored chunks by number."""
        writer = ChunkWriter(self, (0, len(values)))
        writer.append(values)
        return writer.stored

    def finish(self, stored: Mapping[int, StoredChunk]) -> dict[str, Meta]:
        """Write the checksums of all parts. Return the manifest entries of this array and of the array of checksums."""
        chunks = [chunk for _, chunk in sorted(stored.items())]
        if len(chunks) < self.shards.n_chunks:
            raise InputError(f"{self.name}: some chunks were not written")
        entry = {**self.entry, "checksums": np.array([chunk.checksum for chunk in chunks], "<u4").tobytes().hex()}
        if self.parts is None:
            return {self.name: entry}
        checksums = self.parts.write(np.stack([chunk.parts for chunk in chunks if chunk.parts is not None]))
        return {self.name: {**entry, "part_rows": self.part_rows}, **self.parts.finish(checksums)}


def compress(chunk: Array, codec: str) -> memoryview:
    """Return a chunk as Zarr compresses it, with its CRC-32C at the end."""
    stored: dict[str, Buffer] = {}
    array = zarr.create_array(
        MemoryStore(stored),
        shape=chunk.shape,
        chunks=chunk.shape,
        dtype=chunk.dtype,
        compressors=CODECS[codec],
        fill_value=0,
        config={"write_empty_chunks": True},
    )
    array[:] = chunk
    (content,) = (value for key, value in stored.items() if not key.endswith("zarr.json"))
    return content.as_numpy_array().data


class ChunkWriter:
    """Writes a range of the values of an array in order. A chunk is stored when it is full or the range ends.

    limits: the index of the first value of the range, and the index after its last value. pool: a thread pool that
    stores a chunk while the next chunk is collected. scratch: the scratch files for fragments of chunks that several
    ranges share.
    """

    def __init__(
        self,
        array: PlacedArray,
        limits: tuple[int, int],
        pool: ThreadPoolExecutor | None = None,
        scratch: SharedScratch | None = None,
    ) -> None:
        self.array, self._pool, self._scratch = array, pool, scratch
        self._begin, self._stop = limits
        self._position = self._begin
        self._buffer = np.empty(array.chunks, array.dtype)
        self._other = self._buffer if self._pool is None else np.empty(array.chunks, array.dtype)
        self._writing: Future[None] | None = None
        self.stored: dict[int, StoredChunk] = {}
        self.fragments: dict[int, Fragment] = {}

    def append(self, values: Array) -> None:
        """Append values along the first axis."""
        size, at = self.array.chunks[0], 0
        while at < len(values):
            n = min(len(values) - at, size - self._position % size)
            self._buffer[self._position % size :][:n] = values[at : at + n]
            self._position, at = self._position + n, at + n
            if self._position % size == 0 or self._position == self._stop:
                self._flush()

    def wait(self) -> None:
        """Wait until the pool has stored the chunk last passed to it. Raises the error of storing the chunk, if any."""
        if self._writing is not None:
            self._writing.result()

    def _flush(self) -> None:
        self.wait()
        if self._pool is None:
            self._write(self._buffer, self._begin, self._position)
        else:
            self._writing = self._pool.submit(self._write, self._buffer, self._begin, self._position)
            self._buffer, self._other = self._other, self._buffer
        self._begin = self._position

    def _write(self, buffer: Array, begin: int, stop: int) -> None:
        """Store a chunk, or, if the chunk extends beyond this range, a fragment of it."""
        index, first = divmod(begin, self.array.chunks[0])
        n_rows = self.array.count_rows(index)
        if stop - begin == n_rows:
            self.stored[index] = self.array.store(buffer, index, n_rows)
        else:
            assert self._scratch is not None
            content = buffer[first : first + stop - begin].reshape(-1).view(np.uint8)
            self._scratch.put(self.array.name_fragment(begin), [content.data], len(content))
            self.fragments[index] = Fragment(begin, stop - begin, google_crc32c.value(content))


def seal(array: PlacedArray, scratch: SharedScratch, index: int, fragments: Sequence[Fragment]) -> StoredChunk:
    """Combine fragments, given in order, and store them as a chunk. Raises IntegrityError naming a damaged fragment."""
    chunk, done = np.zeros(array.chunks, array.dtype), 0
    for fragment, content in zip(fragments, read_fragments(array, scratch, fragments), strict=True):
        chunk[done : done + fragment.n_values] = content.view(array.dtype).reshape(-1, *array.chunks[1:])
        done += fragment.n_values
    if done != array.count_rows(index):
        raise InputError(f"{array.name}: {done} of {array.count_rows(index)} values of chunk {index} were written")
    return array.store(chunk, index, done)


def read_fragments(array: PlacedArray, scratch: SharedScratch, fragments: Sequence[Fragment]) -> Iterator[Bytes]:
    """Yield the bytes of each fragment. Raises IntegrityError naming a damaged fragment."""
    value_bytes = int(np.prod(array.chunks[1:])) * np.dtype(array.dtype).itemsize
    sizes = ((array.name_fragment(each.begin), each.n_values * value_bytes) for each in fragments)
    wanted = [(name, n_bytes, (0, n_bytes)) for name, n_bytes in sizes]
    with closing(read_ranges(scratch, wanted)) as contents:
        for fragment, (name, content) in zip(fragments, contents, strict=True):
            if google_crc32c.value(content) != fragment.checksum:
                raise IntegrityError(f"{name}: is damaged (its checksum is wrong)")
            yield content


LARGEST_CHUNK_BYTES = 64 << 20
SMALLEST_CHUNK_BYTES = 4 << 20
SHARD_BYTES = 256 << 20
SHARDS_FROM_BYTES = 1 << 30  # from this size on, features are stored in shards; their chunks have LARGEST_CHUNK_BYTES
PART_BYTES = 64 << 10  # the bytes of an array that are read to fetch a random row (benchmarks/random_rows.py)
VECTOR_PART_BYTES = 8 << 10  # the same for labels, weights and query ids, of 4 or 8 bytes a row

# map_tasks(what, function, arguments) yields function(*each) for each of the arguments, in order. what: a description
# of the work for messages.
MapTasks = Callable[[str, Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[Any]]


def map_here(_: str, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """Yield function(*each) for each of the arguments, in this process."""
    for each in arguments:
        yield function(*each)
        interrupts.check()


@dataclass(frozen=True)
class Shape:
    """The shape of a dataset, which must be known before the first chunk is written.

    n_classes: the number of classes, or of labels if rows have sets of labels. dtype: the stored type of dense rows. It
    does not affect the number of rows in a chunk, which is computed for float32.
    """

    n_rows: int
    n_features: int
    n_items: int
    longest_row: int
    sparse: bool
    n_classes: int = 0
    dtype: str = "float32"

    def chunk_bytes(self) -> int:
        """Return the default size of a chunk: a 16th of the data, which gives work to all cores, from 4 to 64 MiB."""
        return min(LARGEST_CHUNK_BYTES, max(SMALLEST_CHUNK_BYTES, self._data_bytes // 16))

    def shard_bytes(self) -> int:
        """Return the default size of a shard; 0 for a small dataset, in which each chunk is a file."""
        return SHARD_BYTES if self._data_bytes >= SHARDS_FROM_BYTES else 0

    @property
    def _data_bytes(self) -> int:
        return 8 * self.n_items if self.sparse else 4 * self.n_rows * self.n_features


@dataclass
class RangeWritten:
    """The result of writing a range of rows.

    row: the first row. stored: the complete chunks, by array and number. fragments: the fragments of chunks that other
    ranges share, by array and number. marks: for sparse rows, a map from the first item of a chunk to the first row
    that begins at this item or later; it has the chunks that begin between the first items of the range's first and
    last row. last_first: the first item of the last row. class_counts: the number of rows of each class.
    """

    row: int = 0
    stored: dict[str, dict[int, StoredChunk]] = field(default_factory=dict)
    fragments: dict[str, dict[int, Fragment]] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)
    last_first: int = -1
    class_counts: Array = field(default_factory=lambda: np.zeros(0, np.int64))


class RangeWriter:
    """Writes a range of the rows of a dataset, in order.

    rows, items: the range of rows, and of items, each as a pair of the first index and the end. pool: a thread pool
    that stores chunks while the next chunks are collected. scratch: the scratch files for fragments of chunks that
    several ranges share. n_classes: the number of classes for which rows are counted; 0 counts nothing.
    """

    def __init__(
        self,
        arrays: Mapping[str, PlacedArray],
        rows: tuple[int, int],
        items: tuple[int, int] = (0, 0),
        pool: ThreadPoolExecutor | None = None,
        scratch: SharedScratch | None = None,
        n_classes: int = 0,
    ) -> None:
        self.written = RangeWritten(rows[0], class_counts=np.zeros(n_classes, np.int64))
        self.row, self._item, self._stop = rows[0], items[0], rows[1]
        limits = dict.fromkeys(arrays, rows)
        if "X/indptr" in arrays:
            limits |= {"X/indptr": (rows[0] + (rows[0] > 0), rows[1] + 1), "X/data": items, "X/indices": items}
            self._items_per_chunk = arrays["X/data"].chunks[0]
        self._writers = {name: ChunkWriter(array, limits[name], pool, scratch) for name, array in arrays.items()}
        if rows[0] == 0 and "X/indptr" in arrays:
            self._writers["X/indptr"].append(np.zeros(1, np.int64))

    @property
    def is_full(self) -> bool:
        """Whether all rows of the range have been appended."""
        return self.row == self._stop

    def append(self, rows: Rows) -> None:
        """Append rows in the layout of the dataset, dense or sparse."""
        if len(self.written.class_counts):
            count_labels(rows, self.written.class_counts)
        if isinstance(rows.X, CsrRows):
            ends = self._item + rows.X.indptr[1:]
            self._mark(np.concatenate(([self._item], ends[:-1])))
            self._item = int(ends[-1]) if len(ends) else self._item
            for name, values in (("data", rows.X.data), ("indices", rows.X.indices), ("indptr", ends)):
                self._writers[f"X/{name}"].append(values)
        else:
            self._writers["X"].append(rows.X)
        for name, values in rows.vectors.items():
            self._writers[name].append(values)
        self.row += rows.n_rows

    def finish(self) -> RangeWritten:
        """Wait until all chunks are stored, and return the result."""
        for name, writer in self._writers.items():
            writer.wait()
            self.written.stored[name], self.written.fragments[name] = writer.stored, writer.fragments
        return self.written

    def _mark(self, firsts: npt.NDArray[np.int64]) -> None:
        """Record for each chunk of items the first row that begins at the first item of the chunk or later.

        firsts: the first item of each row. Chunks that begin after the last of these items are left to the next call.
        """
        if not len(firsts):
            return
        step, last = self._items_per_chunk, self.written.last_first
        begin = int(firsts[0]) if last < 0 else last + 1
        for limit in range(-(-begin // step) * step, int(firsts[-1]) + 1, step):
            self.written.marks.setdefault(limit, self.row + int(np.searchsorted(firsts, limit, side="left")))
        self.written.last_first = int(firsts[-1])


class DatasetWriter:
    """Writes scaled rows with class codes as a dataset, in a folder or in a store.

    arrays: the arrays by name; tasks can write to them. pool: a thread pool that stores chunks while the next chunks
    are collected; the caller must wait for the pool before the folder is removed. shard_bytes: the approximate size of
    files with several raw chunks; 0: each chunk is a file; None: a default size.
    """

    def __init__(
        self,
        folder: Path | Upload,
        shape: Shape,
        fields: tuple[str, ...],
        chunk_bytes: int | None,
        codec: str,
        pool: ThreadPoolExecutor | None = None,
        shard_bytes: int | None = None,
    ) -> None:
        self.place = LocalFolder(folder) if isinstance(folder, Path) else folder
        self.shape, self.codec, self._pool = shape, codec, pool
        chunk_bytes = chunk_bytes or shape.chunk_bytes()
        self._shard_bytes = shape.shard_bytes() if shard_bytes is None else shard_bytes
        n, d, wanted = shape.n_rows, shape.n_features, dict[str, tuple[tuple[int, ...], int, str]]()
        if shape.sparse:
            group = self.place.open_group().create_group("X")
            group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [n, d]})
            items = max(chunk_bytes // 8, shape.longest_row)
            rows = max(1, min(n, int(items * n / shape.n_items)))
            wanted = {"X/data": ((shape.n_items,), items, "float32"), "X/indices": ((shape.n_items,), items, "int32")}
            wanted["X/indptr"] = (n + 1,), rows, "int64"
        else:
            rows = max(1, min(n, chunk_bytes // (4 * d)))
            wanted["X"] = (n, d), rows, STORED_AS[shape.dtype]
        for name, dtype in VECTORS.items():
            if name in fields:
                width = (count_bytes(shape.n_classes),) if name == "label_sets" else ()
                wanted[name] = (n, *width), rows, dtype
        self.arrays = {
            name: self._create(name, size, chunk_rows, dtype, PART_BYTES if name[0] == "X" else VECTOR_PART_BYTES)
            for name, (size, chunk_rows, dtype) in wanted.items()
        }
        self._items_per_chunk = items if shape.sparse else rows
        self._whole: RangeWriter | None = None

    def append(self, rows: Rows) -> None:
        """Append rows in the layout of the dataset, dense or sparse."""
        if self._whole is None:
            limits = (0, self.shape.n_rows), (0, self.shape.n_items)
            self._whole = RangeWriter(self.arrays, *limits, self._pool, n_classes=self.shape.n_classes)
        self._whole.append(rows)

    def seal(self, ranges: Sequence[RangeWritten], scratch: SharedScratch, map_tasks: MapTasks) -> None:
        """Store the chunks that several ranges share, and combine separate chunks into shards."""
        shared = dict[tuple[str, int], list[Fragment]]()
        for one in ranges:
            for name, fragments in one.fragments.items():
                for index, fragment in fragments.items():
                    shared.setdefault((name, index), []).append(fragment)
        sealing = [(self.arrays[name], scratch, index, fragments) for (name, index), fragments in shared.items()]
        for (name, index), chunk in zip(shared, map_tasks("writing the dataset", seal, sealing), strict=True):
            ranges[0].stored[name][index] = chunk
        joining = list[tuple[Any, ...]]()
        if isinstance(self.place, Upload):  # in a folder, chunks were written to their places in the shards
            for name, stored in _merge(ranges).items():
                array, per_shard = self.arrays[name], self.arrays[name].shards.chunks_per_shard
                checksums = [chunk.checksum for _, chunk in sorted(stored.items())]
                parts = [checksums[at : at + per_shard] for at in range(0, len(checksums), per_shard)]
                joining += [(array, shard, part) for shard, part in enumerate(parts) if per_shard > 1]
        for _ in map_tasks("joining chunks to shards", PlacedArray.join, joining):
            pass

    def finish(
        self,
        meta: dict[str, Any],
        scaling: Scaling | None,
        others: Mapping[str, Array] | None = None,
        ranges: Sequence[RangeWritten] = (),
    ) -> None:
        """Write the scaling and the arrays `others` (by name), and then the manifest.

        ranges: the results of the tasks that wrote the rows, in the order of the rows; ignored if `append` wrote them.
        """
        ranges = ranges if self._whole is None else [self._whole.finish()]
        stored, small = _merge(ranges), dict(others or {})
        if scaling is not None:
            small |= {"scaling/offset": scaling.offset, "scaling/factor": scaling.factor}
        for name, values in small.items():
            self.arrays[name] = self._create(name, values.shape, len(values), str(values.dtype))
            stored[name] = self.arrays[name].write(values)
        entries = (array.finish(stored.get(name, {})) for name, array in self.arrays.items())
        arrays = {name: entry for own in entries for name, entry in own.items()}
        whole = {
            "format": choose_format(meta, arrays),
            "n_rows": self.shape.n_rows,
            "n_features": self.shape.n_features,
            "n_items": self.shape.n_items,
            "sparse": self.shape.sparse,
            "longest_row": self.shape.longest_row,
            "codec": self.codec,
            "chunk_starts": self._limits(ranges),
            "scaling": None if scaling is None else scaling.kind,
            "classes": meta["classes"],
            "class_counts": np.sum([one.class_counts for one in ranges], axis=0).tolist(),
            **meta,
            "arrays": arrays,
        }
        self.place.open_group().attrs[ATTRIBUTE] = {**whole, "sha256": make_fingerprint(whole)}

    def _create(
        self, name: str, shape: tuple[int, ...], chunk_rows: int, dtype: str, part_bytes: int = 0
    ) -> PlacedArray:
        """Create an array.

        part_bytes: the size of the parts of raw chunks; a separate array holds a checksum of each part
        (docs/storage.md). 0: chunks have no parts.
        """
        chunks, is_raw = (max(1, min(chunk_rows, shape[0])), *shape[1:]), self.codec == "crc32c"
        row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize
        n_chunks, chunk_bytes = -(-shape[0] // chunks[0]), chunks[0] * row_bytes
        per_shard = max(1, min(n_chunks, self._shard_bytes // chunk_bytes)) if is_raw else 1
        made = self.place.open_group().create_array(
            name,
            shape=shape,
            chunks=chunks,
            shards=None if per_shard == 1 else (per_shard * chunks[0], *shape[1:]),
            dtype=dtype,
            compressors=CODECS[self.codec],
            fill_value=0,
        )
        part_rows, parts = part_bytes and max(1, part_bytes // row_bytes), None
        if is_raw and 0 < part_rows < chunks[0]:
            n_parts = -(-chunks[0] // part_rows)
            parts = self._create(PARTS + name, (n_chunks, n_parts), max(1, TABLE_BYTES // (4 * n_parts)), "uint32")
        shards, entry = Shards(n_chunks, chunk_bytes + CRC_BYTES, len(shape), per_shard), describe_array(made)
        return PlacedArray(self.place, name, shape, chunks, dtype, self.codec, shards, entry, part_rows, parts)

    def _limits(self, ranges: Sequence[RangeWritten]) -> list[int]:
        """Return the first row of each chunk, followed by the number of rows."""
        n, size = self.shape.n_rows, self._items_per_chunk
        if not self.shape.sparse:
            return [*range(0, n, size), n]
        starts, n_chunks = [0], -(-self.shape.n_items // size)
        for one in ranges:
            while (limit := len(starts) * size) <= one.last_first:
                starts.append(one.marks.get(limit, one.row))
        starts = starts[:n_chunks]
        return [*starts, *[n] * (n_chunks + 1 - len(starts))]


def _merge(ranges: Iterable[RangeWritten]) -> dict[str, dict[int, StoredChunk]]:
    """Return the stored chunks of all ranges, by array and number."""
    stored = dict[str, dict[int, StoredChunk]]()
    for one in ranges:
        for name, chunks in one.stored.items():
            stored.setdefault(name, {}).update(chunks)
    return stored
