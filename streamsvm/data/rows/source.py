"""RowSource, the interface through which engines and solvers read rows, and SourceRows, which readers yield.

A group of chunks is the work of one task. A tree adds up the sums of a pass; each group is a leaf of the tree.

Chunks are streamed and processed in tiles of about half a MiB. A tile is therefore still in the L2 cache when a kernel
processes it, and streaming needs about one MiB, whatever the size of the chunks. The boundaries of the tiles depend on
the rows alone.

`SourceRows` are rows of a file or an array, with their labels, before they are encoded and stored in a dataset.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamsvm.kernels.feature_maps import Features
from streamsvm.numeric.encoding import Encoding
from streamsvm.numeric.labels import Bits, pack_sets
from streamsvm.numeric.rows import F64, I32, I64, CsrRows, Matrix, Rows, slice_rows
from streamsvm.numeric.stored_types import Scaling
from streamsvm.system.errors import InputError


class RowSource(Protocol):
    """Rows, in chunks, with their labels. Dataset holds them on disk, ArrayDataset in memory."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def n_features(self) -> int:
        """Number of features."""

    @property
    def chunk_starts(self) -> I64:
        """Boundaries of the chunks, (n_chunks + 1,): chunk k has the rows chunk_starts[k]:chunk_starts[k + 1]."""

    @property
    def classes(self) -> npt.NDArray[Any] | None:
        """The labels that occur, sorted; None if the rows have no labels."""

    @property
    def class_counts(self) -> I64 | None:
        """Number of rows of each class; None if the rows have no labels."""

    @property
    def has_targets(self) -> bool:
        """Whether each row has a regression target (a number) instead of a class."""

    @property
    def has_label_sets(self) -> bool:
        """Whether each row has a set of labels from `classes`, possibly an empty set."""

    def sum_weights(self) -> F64 | None:
        """Return the sum of the sample weights of each class or label, or of all rows if they have targets.

        Rows without sample weights count 1 each. Return None if the rows have no labels.
        """

    def column(self, name: str, index: int | None = None) -> npt.NDArray[Any] | None:
        """Return a vector by its name (data.store.layouts.VECTORS), or None if the source does not have it.

        index: the chunk whose entries are returned; None: the entries of all rows are returned.
        """

    @property
    def fingerprint(self) -> str:
        """A string that identifies the source: different sources have different fingerprints."""

    @property
    def scaling(self) -> Scaling | None:
        """The scaling of the features, or None if they are not scaled."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, or None if they have no names."""

    @property
    def label_column(self) -> str | None:
        """The name of the table column that held the labels; None if the user did not name it."""

    @property
    def qid_column(self) -> str | None:
        """The table column that held the query ids, or None if the rows have no query ids."""

    @property
    def read_as(self) -> dict[str, Any] | None:
        """The syntax of the files that held the rows, where it is not the usual one; None if it is."""

    @property
    def encoding(self) -> Encoding | None:
        """The encoding of table columns as features, before any feature map; None if all columns were numbers."""

    @property
    def features(self) -> Features | None:
        """The feature map that produced these rows, or None for raw rows."""

    @property
    def nbytes(self) -> int:
        """Bytes of all decoded rows."""

    @property
    def on_disk(self) -> bool:
        """Whether to cache chunks in memory. Otherwise every pass reads them from storage again, or maps them again."""

    @property
    def stored_bytes(self) -> int:
        """Bytes that a pass reads from storage; 0 for rows in memory."""

    @property
    def is_shuffled(self) -> bool:
        """Whether the rows are known to be in random order, so that the first rows are a random sample."""

    @property
    def name(self) -> str:
        """The name of the source in messages."""

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are sparse."""

    @property
    def streams(self) -> bool:
        """Whether `tiles` holds one tile in memory at a time, rather than a whole chunk."""

    def tiles(self, index: int) -> Iterator[Rows]:
        """Yield chunk `index`, verified, in tiles that fit into the L2 cache."""

    def read(self, index: int) -> Rows:
        """Return chunk `index`, verified, in memory that the caller owns."""

    def take(self, rows: I64) -> Rows:
        """Return the rows with the given numbers, in the given order."""

    def take_bytes(self, rows: I64) -> int:
        """Return the number of bytes that `take` reads from storage for these rows: whole parts of chunks."""

    def advise(self, index: int) -> None:
        """Announce that chunk `index` will soon be read."""

    def chunk_bytes(self, index: int) -> int:
        """Return an upper bound on the bytes of chunk `index` in memory."""

    def stream_bytes(self) -> int:
        """Return the memory, in bytes, that one reader needs to stream the largest chunk."""


LARGEST_GROUP_BYTES = 256 << 20
SMALLEST_GROUP_BYTES = 4 << 20
GROUPS = 16


def read_codes(source: RowSource, index: int | None = None) -> I32:
    """Return the codes y of all rows of a source with classes, or of chunk `index`."""
    y = source.column("y", index)
    assert y is not None
    return y


def plan_groups(source: RowSource) -> list[range]:
    """Divide the chunks into about 16 groups of whole chunks, of 4 to 256 MiB each.

    The groups depend on the shape of the dataset alone. Therefore sums have the same bits in every engine.
    """
    nbytes, n_chunks = source.nbytes, source.n_chunks
    wanted_bytes = min(LARGEST_GROUP_BYTES, max(SMALLEST_GROUP_BYTES, nbytes // GROUPS))
    size = max(1, wanted_bytes // max(1, nbytes // n_chunks))
    return [range(at, min(at + size, n_chunks)) for at in range(0, n_chunks, size)]


TILE_BYTES = 1 << 19
TILE_ITEMS = TILE_BYTES // 8  # a sparse item is a float32 and an int32


def split(X: Matrix) -> Iterator[Matrix]:
    """Cut rows in memory into the tiles in which they would be streamed from disk."""
    if isinstance(X, CsrRows):
        tiles = cut_items(X.indptr, TILE_ITEMS)
    else:
        n_rows = count_tile_rows(X.shape[1])
        tiles = ((a, a + n_rows) for a in range(0, len(X), n_rows))
    return (slice_rows(X, slice(*tile)) for tile in tiles)


def count_tile_rows(n_features: int) -> int:
    """Return the number of dense rows in a tile."""
    return max(1, TILE_BYTES // (4 * n_features))


def find_largest_tile(source: RowSource) -> int:
    """Return the most rows that a tile of a source may have."""
    most = TILE_ITEMS if source.is_sparse else count_tile_rows(source.n_features)
    return min(most, int(np.max(np.diff(source.chunk_starts))))


def cut_items(indptr: npt.NDArray[Any], n_items: int) -> Iterator[tuple[int, int]]:
    """Yield pairs (a, b) such that rows a:b of CSR rows have at most `n_items` items, or are a single longer row."""
    a, n, n_items = 0, len(indptr) - 1, max(1, n_items)
    while a < n:
        most = min(int(indptr[a]) + n_items, int(indptr[-1]))
        b = int(np.searchsorted(indptr, indptr.dtype.type(most), side="right")) - 1
        b = min(max(b, a + 1), a + n_items, n)
        yield a, b
        a = b


def join_vectors(tiles: Iterator[Matrix], start: int, vectors: dict[str, Any]) -> Iterator[Rows]:
    """Combine tiles of consecutive rows, from row `start` on, with the matching parts of the vectors."""
    at = 0
    for X in tiles:
        end = at + X.shape[0]
        yield Rows(start + at, X, **{name: values[at:end] for name, values in vectors.items()})
        at = end


def split_rows(rows: Rows) -> Iterator[Rows]:
    """Cut rows in memory, with their vectors, into the tiles in which they would be streamed from disk."""
    return join_vectors(split(rows.X), rows.start, rows.vectors)


@dataclass(frozen=True)
class LabelLists:
    """Lists of numeric labels: row i has the labels values[indptr[i]:indptr[i + 1]].

    known: the possible labels, if the source is a matrix with one column per label. Some of these labels may not occur.
    """

    values: F64
    indptr: I64
    known: range | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a label."""
        return self.values.dtype

    @property
    def counts(self) -> npt.NDArray[np.int32]:
        """Number of labels of each row."""
        return np.diff(self.indptr).astype(np.int32)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, rows: slice | I64) -> LabelLists:
        """Return the lists of some rows."""
        counts = self.counts[rows].astype(np.int64)
        indptr = np.concatenate(([0], np.cumsum(counts)))
        places = np.repeat(self.indptr[:-1][rows] - indptr[:-1], counts) + np.arange(indptr[-1])
        return LabelLists(self.values[places], indptr, self.known)

    def to_flags(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return the indicator matrix (n, L) of the given ascending labels; all other labels are ignored."""
        has = np.zeros((len(self), len(labels)), np.bool_)
        codes = np.minimum(np.searchsorted(labels, self.values), len(labels) - 1)
        is_one = labels[codes] == self.values
        has[np.repeat(np.arange(len(self)), self.counts)[is_one], codes[is_one]] = True
        return has

    def to_bits(self, labels: npt.NDArray[Any]) -> Bits:
        """Return the indicator matrix of the given labels, packed into bits; see `to_flags`."""
        return pack_sets(self.to_flags(labels))


def list_columns(has: Any, n_labels: int) -> LabelLists:
    """Convert an indicator matrix, dense or CSR, to label lists. The label of a column is its index."""
    rows, columns = has.nonzero()
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=has.shape[0])))).astype(np.int64)
    return LabelLists(columns[order].astype(np.float64), indptr, range(n_labels))


Labels = npt.NDArray[np.bool_] | npt.NDArray[np.float64] | npt.NDArray[np.str_] | LabelLists


@dataclass(frozen=True)
class SourceRows:
    """Consecutive rows of a source, before their labels are encoded and their features scaled.

    X is (rows, d): dense, or CSR with sorted indices and no duplicates. It is float32, or float64 if the source is
    more precise. Until the end of a sparse source, d may be the number of columns seen so far. encoding: the encoding
    of table columns as features. row_names: the strings in the column that names the rows. merged: an error message,
    (1,), if some label is 2^53 or more in size, where float64 rounds different whole numbers to the same number; None
    otherwise. Such labels cannot be classes, but a regression takes the rounded numbers as its targets.
    """

    X: npt.NDArray[Any] | csr_array
    labels: Labels | None = None
    qid: npt.NDArray[np.int64] | None = None
    sample_weight: npt.NDArray[np.float64] | None = None
    feature_names: tuple[str, ...] | None = None
    groups: npt.NDArray[np.int64] | None = None
    encoding: Encoding | None = None
    row_names: npt.NDArray[np.object_] | None = None
    merged: npt.NDArray[np.str_] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    def require_classes(self) -> None:
        """Raise InputError if float64 rounds some labels, so that different classes could become the same number."""
        if self.merged is not None:
            raise InputError(str(self.merged[0]))
