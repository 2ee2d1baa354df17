"""A dataset from which rows were deleted: the rows that are left, with the interface of a dataset.

Rows are *stored* rows as long as their chunks are there, deleted or not. Deleted rows are skipped whenever stored ones
are read, which are verified all the same, and the rows that are left are numbered without gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.data.dataset import Dataset
from streamsvm.data.row_tiles import TILE_BYTES, split_rows
from streamsvm.errors import InputError, IntegrityError, say_count
from streamsvm.numeric.rows import I64, CsrRows, Rows, stack_rows

ITEM_BYTES = 8  # of a sparse row
TILES = 6  # in memory while tiles without some of their rows are put together


class Deletion(NamedTuple):
    """Copies of rows that were deleted together, and their numbers among the stored rows, which ascend."""

    rows: Dataset
    numbers: I64


@dataclass(frozen=True, kw_only=True, repr=False)
class TrimmedDataset(Dataset):
    """The rows of a dataset that were not deleted.

    Attributes
    ----------
    stored : Dataset
        All stored rows.
    deletions : tuple of Deletion
        What was deleted each time.
    deleted : (n_deleted,) int64
        The numbers of all deleted rows among the stored rows; they ascend.
    chunks : (n_chunks,) int64
        The chunks of the stored rows in which rows are left.
    """

    stored: Dataset
    deletions: tuple[Deletion, ...]
    deleted: I64
    chunks: I64

    @property
    def nbytes(self) -> int:
        """Bytes of all decoded rows that are stored, which are what a pass reads."""
        return self.stored.nbytes

    @property
    def stored_bytes(self) -> int:  # type: ignore[override]
        """Bytes that a pass reads."""
        return int(self.stored.stored_bytes)

    @property
    def is_shuffled(self) -> bool:
        """Whether the stored rows are shuffled."""
        return self.stored.is_shuffled

    def read_groups(self) -> TrimmedDataset:
        """See Dataset."""
        return replace(self, reads_groups=True, stored=self.stored.read_groups())

    def read_vector(self, name: str, index: int) -> npt.NDArray[Any]:
        """See Dataset."""
        chunk = int(self.chunks[index])
        start, stop = self.stored.chunk_starts[chunk : chunk + 2]
        return self.stored.read_vector(name, chunk)[self._find_left(start, stop)]

    def tiles(self, index: int) -> Iterator[Rows]:
        """Yield what is left of a chunk in the tiles in which it would be streamed if it were stored so."""
        at, left = int(self.chunk_starts[index]), None
        if self._is_whole(index):
            for tile in self.stored.tiles(int(self.chunks[index])):
                yield replace(tile, start=at)
                at += tile.n_rows
            return
        for rows in self._skip(index):
            left = rows if left is None else _stack(left, rows)
            *whole, left = split_rows(left)
            for tile in whole:
                yield replace(tile, start=at)
                at += tile.n_rows
        if left is not None:
            yield replace(left, start=at)

    def read(self, index: int) -> Rows:
        """See Dataset."""
        first, stop = self._limits(index)
        if self._is_whole(index):
            return replace(self.stored.read(int(self.chunks[index])), start=first)
        return replace(_gather(self._skip(index), stop - first, self.chunk_bytes(index) // ITEM_BYTES), start=first)

    def take(self, rows: npt.ArrayLike) -> Rows:
        """See Dataset."""
        wanted = np.asarray(rows, np.int64)
        outside = wanted[(wanted < 0) | (wanted >= self.n_rows)]
        if outside.size:
            raise InputError(f"{self.path}: row {outside[0]} of {say_count(self.n_rows, 'row')}")
        return self.stored.take(find_stored(wanted, self.deleted))

    def take_bytes(self, rows: I64) -> int:
        """See Dataset."""
        return self.stored.take_bytes(find_stored(rows, self.deleted))

    def check_parts(self) -> None:
        """See Dataset. Also read are what no reader of the dataset reads: copies of rows, and chunks without rows."""
        self.stored.check_parts()
        for index in set(range(self.stored.n_chunks)) - set(self.chunks.tolist()):
            deque(self.stored.tiles(index), maxlen=0)
        for rows, _ in self.deletions:
            rows.check_parts()
            for index in range(rows.n_chunks):
                deque(rows.tiles(index), maxlen=0)

    def advise(self, index: int) -> None:
        """See Dataset."""
        if index < self.n_chunks:
            self.stored.advise(int(self.chunks[index]))

    def chunk_bytes(self, index: int) -> int:
        """See Dataset."""
        return int(self.stored.chunk_bytes(int(self.chunks[index])))

    def stream_bytes(self) -> int:
        """See Dataset."""
        if not self.streams:
            return self.stored.stream_bytes() + max(self.chunk_bytes(index) for index in range(self.n_chunks))
        row_bytes = 8 * self.meta["longest_row"] + sum(array.row_bytes for array in self.passed.values())
        most_rows = TILE_BYTES // (4 if self.is_sparse else 4 * self.n_features) + 1
        own: int = TILE_BYTES + 8 * self.meta["longest_row"] + most_rows * row_bytes
        return self.stored.stream_bytes() + TILES * own

    def _is_whole(self, index: int) -> bool:
        """Return whether no row of chunk `index` was deleted."""
        chunk, (first, stop) = int(self.chunks[index]), self._limits(index)
        start, end = self.stored.chunk_starts[chunk : chunk + 2]
        return bool(stop - first == end - start)

    def _find_left(self, start: int, stop: int) -> I64:
        """Return the places of the rows that are left among the stored rows start:stop."""
        a, b = np.searchsorted(self.deleted, (start, stop))
        return np.delete(np.arange(stop - start), self.deleted[a:b] - start)

    def _skip(self, index: int) -> Iterator[Rows]:
        """Yield what is left of the tiles of chunk `index`, in memory of its own."""
        for rows in self.stored.tiles(int(self.chunks[index])):
            left = self._find_left(rows.start, rows.start + rows.n_rows)
            if len(left):
                yield rows.pick(left)


def trim(stored: Dataset, deletions: Sequence[Deletion]) -> TrimmedDataset:
    """Return a dataset without the rows that were deleted. IntegrityError if the deletions contradict the dataset."""
    deleted = np.sort(np.concatenate([deletion.numbers for deletion in deletions]))
    limits = stored.chunk_starts - np.searchsorted(deleted, stored.chunk_starts)  # by the numbers of the rows left
    chunks = np.flatnonzero(np.diff(limits) > 0)
    gone = [deletion.rows for deletion in deletions]
    counts = stored.class_counts
    if counts is not None:
        counts = counts - np.sum([own for rows in gone if (own := rows.class_counts) is not None], axis=0)
    if not len(chunks) or (counts is not None and counts.min() < (0 if stored.has_label_sets else 1)):
        raise IntegrityError(f"{stored.path}/zarr.json: the manifest contradicts itself: no rows of a class are left")
    n_rows = int(limits[-1])
    n_items = max(0, stored.meta["n_items"] - sum(rows.meta["n_items"] for rows in gone))  # empty copies store a zero
    given = {field.name: getattr(stored, field.name) for field in fields(Dataset)}
    given |= {"n_rows": n_rows, "class_counts": counts, "chunk_starts": np.append(limits[chunks], n_rows)}
    given |= {"meta": {**stored.meta, "n_rows": n_rows, "n_items": n_items}}
    return TrimmedDataset(**given, stored=stored, deletions=tuple(deletions), deleted=deleted, chunks=chunks)


def find_stored(rows: I64, deleted: I64) -> I64:
    """Return the numbers among the stored rows of rows that are numbered without the deleted ones."""
    before: I64 = deleted - np.arange(len(deleted))  # how many rows are left before each deleted row
    return rows + np.searchsorted(before, rows, side="right")


def find_left(stored: I64, deleted: I64) -> I64:
    """Return the numbers of stored rows, none of which is deleted, without the deleted ones."""
    return stored - np.searchsorted(deleted, stored)


def _stack(first: Rows, second: Rows) -> Rows:
    """Return the rows of two tiles as one."""
    vectors = {name: np.concatenate((values, second.vectors[name])) for name, values in first.vectors.items()}
    return Rows(-1, stack_rows([first.X, second.X]), **vectors)


def _gather(tiles: Iterator[Rows], n_rows: int, most_items: int) -> Rows:
    """Return the rows of several tiles as one; only one tile is in memory twice. most_items: of sparse rows."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    at = n_items = n_features = 0
    for rows in tiles:
        own: dict[str, npt.NDArray[Any]] = {}
        if isinstance(rows.X, CsrRows):
            own |= {"data": rows.X.data, "indices": rows.X.indices, "indptr": rows.X.indptr[1:] + n_items}
        else:
            own["X"] = rows.X
        for name, values in {**own, **rows.vectors}.items():
            is_of_items = name in ("data", "indices")
            shape = (most_items if is_of_items else n_rows, *values.shape[1:])
            if name not in arrays:
                arrays[name] = np.empty(shape, values.dtype)
            first = n_items if is_of_items else at
            arrays[name][first : first + len(values)] = values
        at, n_items, n_features = at + rows.n_rows, n_items + len(own.get("data", ())), rows.X.shape[1]
    if "X" in arrays:
        return Rows(-1, arrays.pop("X"), **arrays)
    items = [arrays.pop(name) for name in ("data", "indices")]
    for values in items:
        values.resize(n_items, refcheck=False)  # without a copy
    indptr = np.concatenate((np.zeros(1, np.int64), arrays.pop("indptr")))
    return Rows(-1, CsrRows(items[0], items[1], indptr, n_features), **arrays)
