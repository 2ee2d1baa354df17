"""The writer of a dataset: rows are appended in order, chunks are written as they fill up, and the manifest comes last.

The dataset is made in a folder of `data.destination`, so that it appears whole or not at all. Raw chunks are files that
we write ourselves, since Zarr's way to the same bytes makes several copies of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.array_writer import CODECS, ArrayWriter
from streamsvm.data.checks import VECTORS
from streamsvm.data.dense_chunks import Checksums, DenseChunks
from streamsvm.data.manifest import (
    ATTRIBUTE,
    ENCODED_FORMAT,
    ENCODING,
    FORMAT,
    NARROW_FORMAT,
    SETS_FORMAT,
    SHARDED_FORMAT,
    make_fingerprint,
)
from streamsvm.data.placed_array import LocalFolder, PlacedArray
from streamsvm.data.upload import Upload
from streamsvm.errors import InputError
from streamsvm.numeric.label_sets import count_bytes
from streamsvm.numeric.narrow import STORED_AS
from streamsvm.numeric.rows import CsrRows, Rows
from streamsvm.numeric.scaling import Scaling

LARGEST_CHUNK_BYTES = 64 << 20
SMALLEST_CHUNK_BYTES = 4 << 20
SHARD_BYTES = 256 << 20
SHARDS_FROM_BYTES = 1 << 30  # of the features, from which chunks have their full size
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
        return min(LARGEST_CHUNK_BYTES, max(SMALLEST_CHUNK_BYTES, self._data_bytes // 16))

    def shard_bytes(self) -> int:
        """Return the default size of a shard; 0 for a dataset so small that each chunk may be a file."""
        return SHARD_BYTES if self._data_bytes >= SHARDS_FROM_BYTES else 0

    @property
    def _data_bytes(self) -> int:
        return 8 * self.n_items if self.sparse else 4 * self.n_rows * self.n_features


class DatasetWriter:
    """Appends rows, which are scaled and have coded labels, to a dataset that is being made in a folder or a store.

    pool: writes chunks while the next ones are collected; its user waits for it to end before the folder is removed.
    shard_bytes: about how large files with several raw chunks are; 0: each chunk is a file; None: the shape decides.
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
        if codec not in CODECS:
            raise InputError(f"codec {codec!r}: choose from {', '.join(CODECS)}")
        self.place = LocalFolder(folder) if isinstance(folder, Path) else folder
        self.shape, self.codec, self._pool = shape, codec, pool
        chunk_bytes = chunk_bytes or shape.chunk_bytes()
        self._shard_bytes = shape.shard_bytes() if shard_bytes is None else shard_bytes
        self._arrays: dict[str, ArrayWriter] = {}
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
            self._create("X", (n, d), rows, STORED_AS[shape.dtype])
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
            "format": self._find_format(meta, arrays),
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

    def _find_format(self, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> int:
        """Return the least format of a dataset with all that this one has."""
        if any("shards" in entry for entry in arrays.values()):
            return SHARDED_FORMAT
        if self.shape.dtype != "float32":
            return NARROW_FORMAT
        return SETS_FORMAT if "label_sets" in self._arrays else ENCODED_FORMAT if ENCODING in meta else FORMAT

    def _create(self, name: str, shape: tuple[int, ...], chunk: int, dtype: str, in_parts: bool = True) -> None:
        part_bytes = PART_BYTES if name.startswith("X") else VECTOR_PART_BYTES
        part_bytes *= in_parts
        self._arrays[name] = ArrayWriter(
            self.place, name, shape, chunk, dtype, self.codec, part_bytes, self._pool, self._shard_bytes
        )

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
