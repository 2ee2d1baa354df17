"""The layouts of features on disk (dense rows, compressed sparse rows), and checks of values before computations.

Compiled code must never receive impossible values, even if their checksums are correct: a manifest proves that a
dataset is unchanged, but not that streamsvm wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.data.rows.source import TILE_BYTES, TILE_ITEMS, count_tile_rows, cut_items, split
from streamsvm.data.store.chunks import ChunkFile
from streamsvm.numeric.rows import F32, I64, CsrRows, Matrix, make_canonical_rows
from streamsvm.numeric.stored_types import load_widening, widen
from streamsvm.system.errors import InputError, IntegrityError

if TYPE_CHECKING:
    from streamsvm.data.store.array import Array, StoredArray

VECTORS = {  # the vectors that a dataset may have in addition to the features, and their stored types
    "y": "int32",
    "sample_weight": "float64",
    "qid": "int64",
    "target": "float64",
    "groups": "int64",
    "label_sets": "uint8",
}
LARGEST_TARGET = 1e100  # The sum of the squares of such targets is still finite in float64.


def check_targets(values: Array, name: str) -> None:
    """Raise InputError if the absolute value of a target exceeds LARGEST_TARGET. name: the name of the rows."""
    if len(values) and not (largest := float(np.max(np.abs(values)))) <= LARGEST_TARGET:
        raise InputError(f"{name}: the largest target is {largest:.1e}; at most {LARGEST_TARGET:.0e} is supported")


def are_finite(values: Array) -> bool:
    """Return whether all values are finite.

    If a value is not finite, the sum is not finite. A sum of finite values may overflow, too. Therefore each value is
    checked if the sum is not finite. `einsum` is faster than `isfinite`, in one thread and without warnings.
    """
    return math.isfinite(np.einsum("i->", values.reshape(-1))) or bool(np.isfinite(values).all())


def check_vector(name: str, values: Array, n_classes: int, place: str) -> None:
    """Raise IntegrityError naming `place` for invalid class codes, weights or targets."""
    if not len(values):
        return
    if name == "label_sets":
        if n_classes % 8 and (values[:, -1] >> (n_classes % 8)).any():
            raise IntegrityError(f"{place}: a label is outside 0..{n_classes - 1}: the chunk is damaged")
        return
    low, high = values.min(), values.max()
    if name == "y" and not 0 <= low <= high < n_classes:
        wrong = low if low < 0 else high
        raise IntegrityError(f"{place}: the class code {wrong} is outside 0..{n_classes - 1}: the chunk is damaged")
    if name == "sample_weight" and not 0 <= low <= high < np.inf:
        raise IntegrityError(f"{place}: a weight is negative, infinite or not a number: the chunk is damaged")
    if name == "target" and not -np.inf < low <= high < np.inf:
        raise IntegrityError(f"{place}: a target is infinite or not a number: the chunk is damaged")


def as_float32(part: StoredArray, values: Array) -> F32:
    """Return the values as float32.

    Raises an error if a value is not finite: IntegrityError, or InputError if the array has no checksums from `ingest`.
    """
    with np.errstate(over="ignore"):
        converted: F32 = np.ascontiguousarray(values, dtype=np.float32)
    if not are_finite(converted):
        kind = InputError if part.checksums is None else IntegrityError
        raise kind(f"{part.place}: contains NaN, infinity or a value too large for float32")
    return converted


def check_finite(part: StoredArray, values: F32, first: int) -> None:
    """Raise IntegrityError naming the chunk if a value is not finite. first: the position of values[0] in the array."""
    if not are_finite(values):
        row = first + int(np.argmin(np.isfinite(values))) // part.row_items
        raise IntegrityError(f"{part.describe(row // part.chunk_rows)}: contains NaN or infinity: the chunk is damaged")


class CsrLayout:
    """X in AnnData's csr_matrix encoding: data and indices, in chunks of equally many items, and indptr.

    Row numbers count from the start of the dataset. Chunk k has the rows whose first item lies in chunk k of `data`.
    Its last row may end in the next chunk of `data`, whose first bytes are then read and verified twice.
    """

    def __init__(
        self,
        data: StoredArray,
        indices: StoredArray,
        indptr: StoredArray,
        n_features: int,
        longest_row: int,
        chunk_items: int | None = None,
    ) -> None:
        self.data, self.indices, self.indptr = data, indices, indptr
        self.arrays: tuple[StoredArray, ...] = (data, indices, indptr)
        self.chunk_items = chunk_items or data.chunk_rows
        self.n_features, self.longest_row = n_features, longest_row
        self.nbytes = 8 * data.length + 8 * indptr.length
        self.dtype = str(data.array.dtype)
        right = [str(part.array.dtype) for part in (data, indices)] == ["float32", "int32"]
        self.streams = right and data.is_raw and indices.is_raw and data.chunk_rows == indices.chunk_rows

    def read(self, start: int, stop: int) -> Matrix:
        """Return the rows start:stop, verified, as copies."""
        indptr = self._read_limits(start, stop)
        first, last = int(indptr[0]), int(indptr[-1])
        if stop > start and self.data.checksums is not None:
            self._check_place(first // self.data.chunk_rows, start, indptr)
            self._advise_end(first // self.data.chunk_rows, last)
        data = as_float32(self.data, self.data.read(first, last))
        return self._make_rows(data, self.indices.read(first, last), indptr[:-1], indptr - first)

    def tiles(self, index: int, start: int, stop: int) -> Iterator[Matrix]:
        """Yield the rows start:stop of chunk `index` in verified tiles. Each tile overwrites the previous one."""
        if not self.streams:
            yield from split(self.read(start, stop))
            return
        indptr = self._read_limits(start, stop)
        size = TILE_ITEMS + self.longest_row
        data, indices = np.empty(size, np.float32), np.empty(size, np.int32)
        with ExitStack() as files:
            data_file, indices_file = (files.enter_context(part.file(index)) for part in (self.data, self.indices))
            skipped = 4 * (int(indptr[0]) - index * self.data.chunk_rows)
            if stop > start:
                self._check_place(index, start, indptr)
                self._advise_end(index, int(indptr[-1]))
                data_file.skip(skipped)
                indices_file.skip(skipped)
            for a, b in cut_items(indptr, TILE_ITEMS):
                first, n = int(indptr[a]), int(indptr[b] - indptr[a])
                self._fill(self.data, data_file, index, first, data[:n].view(np.uint8))
                self._fill(self.indices, indices_file, index, first, indices[:n].view(np.uint8))
                check_finite(self.data, data[:n], first)
                yield self._make_rows(data[:n], indices[:n], indptr[a:b], indptr[a : b + 1] - first)
            data_file.finish()
            indices_file.finish()

    def take(self, rows: I64) -> Matrix:
        """Return copies of the rows with the given ascending numbers."""
        needed = np.union1d(rows, rows + 1)
        limits = self.indptr.take(needed, needed + 1).astype(np.int64, copy=False)
        at = np.searchsorted(needed, rows)
        starts, stops = limits[at], limits[at + 1]
        self._check_limits(limits, stops - starts, needed)
        indptr = np.concatenate(([0], np.cumsum(stops - starts))).astype(np.int64)
        data, indices = (part.take(starts, stops) for part in (self.data, self.indices))
        return self._make_rows(as_float32(self.data, data), indices, starts, indptr)

    def chunk_bytes(self, index: int, chunk_rows: int) -> int:
        """Return an upper bound on the bytes of chunk `index`, of `chunk_rows` rows, in memory."""
        items = min(self.chunk_items + self.longest_row, self.data.length - index * self.chunk_items)
        return 8 * (items + chunk_rows + 1)

    def stream_bytes(self, chunk_rows: int) -> int:
        """Return the bytes needed to stream a chunk of `chunk_rows` rows."""
        items = TILE_ITEMS + self.longest_row if self.streams else 4 * self.chunk_items + self.longest_row
        ahead_bytes = 2 * (self.data.ahead_bytes + self.indices.ahead_bytes) + 4 * self.indptr.ahead_bytes
        return 8 * items + 24 * chunk_rows + ahead_bytes

    def advise(self, index: int, start: int, stop: int) -> None:
        """Start reading the rows start:stop of chunk `index`, which this thread will soon need."""
        self.indptr.advise(start, stop + 1)
        for array in (self.data, self.indices):
            array.advise(index * array.chunk_rows, min((index + 1) * array.chunk_rows, array.length))

    def _advise_end(self, index: int, end: int) -> None:
        """Start reading the last row of chunk `index` as far as it lies in the next chunk.

        end: the number of the item at which the row ends.
        """
        for array in (self.data, self.indices):
            if end > (limit := (index + 1) * array.chunk_rows):
                array.advise(limit, end)

    def _read_limits(self, start: int, stop: int) -> I64:
        """Return indptr of the rows start:stop, (stop - start + 1,), as positions among all items of the dataset."""
        limits: I64 = self.indptr.read(start, stop + 1).astype(np.int64, copy=False)
        self._check_limits(limits, np.diff(limits), range(start, stop + 1))
        return limits

    def _check_limits(self, limits: I64, lengths: I64, numbers: Sequence[int] | I64) -> None:
        """Raise IntegrityError for row limits with which compiled code would read outside its buffers.

        numbers: the positions of the limits in indptr. The first limit of the dataset must be 0, and the last one the
        number of items; otherwise some items would belong to no row.
        """
        place = self.indptr.describe(int(numbers[0]) // self.indptr.chunk_rows)
        if limits.min() < 0 or limits.max() > self.data.length or np.any(np.diff(limits) < 0):
            raise IntegrityError(f"{place}: row limits are out of order")
        is_last = numbers[-1] == self.indptr.length - 1
        if (numbers[0] == 0 and limits[0] != 0) or (is_last and limits[-1] != self.data.length):
            raise IntegrityError(f"{place}: row limits do not agree with the items of the rows")
        if lengths.max(initial=0) > self.longest_row:
            longest = f"{lengths.max()} items, but the manifest lists at most {self.longest_row}"
            raise IntegrityError(f"{place}: row limits are wrong: a row has {longest}")

    def _check_place(self, index: int, start: int, limits: I64) -> None:
        """Raise IntegrityError unless the rows of a chunk begin in the chunk of `data` with the same index."""
        begin, end = index * self.data.chunk_rows, (index + 1) * self.data.chunk_rows
        last = start + len(limits) == self.indptr.length
        if not (begin <= limits[0] and (limits[-2] < end or last)):
            place = self.indptr.describe(start // self.indptr.chunk_rows)
            raise IntegrityError(f"{place}: row limits do not agree with the rows of chunk {index}")

    def _make_rows(self, data: F32, indices: Array, starts: I64, indptr: I64) -> CsrRows:
        """Make rows of the items. Raises IntegrityError for column indices out of range, before a kernel uses them.

        Row i has the items indptr[i]:indptr[i + 1] of `data` and `indices`. Its first item has the number starts[i] in
        the dataset.
        """
        if indices.size and (int(indices.max()) >= self.n_features or int(indices.min()) < 0):
            at = int(np.argmax((indices < 0) | (indices >= self.n_features)))
            row = int(np.searchsorted(indptr, at, side="right")) - 1
            index = int(starts[row] + at - indptr[row]) // self.indices.chunk_rows
            place, last = self.indices.describe(index), self.n_features - 1
            raise IntegrityError(f"{place}: a column is outside 0..{last}: the chunk is damaged")
        columns = np.ascontiguousarray(indices, dtype=np.int32)
        return make_canonical_rows(CsrRows(data, columns, indptr, self.n_features))

    def _fill(self, part: StoredArray, file: ChunkFile, index: int, first: int, buffer: np.ndarray) -> None:
        """Fill the buffer with items from number `first` on. The last items may come from the next chunk."""
        inside = min(len(buffer), 4 * ((index + 1) * part.chunk_rows - first))
        file.read(buffer[:inside])
        if inside < len(buffer):
            limits = np.array([first + inside // 4, first + len(buffer) // 4])
            part.take_into(limits[:1], limits[1:], buffer[inside:])


class DenseLayout:
    """The layout of dense rows: X of shape (n, d), float32 or another numeric type, which is converted to float32.

    is_narrow: whether `ingest` stored a type of numeric.stored_types other than float32. uint16 then means bfloat16.
    """

    def __init__(self, X: StoredArray, is_narrow: bool = False) -> None:
        self.X, self.is_narrow = X, is_narrow
        stored = str(X.array.dtype)
        self.dtype = "bfloat16" if is_narrow and stored == "uint16" else stored
        self.arrays: tuple[StoredArray, ...] = (X,)
        load_widening(self.dtype if is_narrow else "float32")
        self.n_features = X.row_items
        self.nbytes = X.length * X.row_items * 4
        self.streams = X.is_raw and (is_narrow or stored == "float32")

    def read(self, start: int, stop: int) -> Matrix:
        """See CsrLayout."""
        return self._as_float32(self.X.read(start, stop))

    def tiles(self, index: int, start: int, stop: int) -> Iterator[Matrix]:
        """See CsrLayout."""
        if not self.streams:
            yield from split(self.read(start, stop))
            return
        tile_rows = count_tile_rows(self.n_features)
        buffer = np.empty((tile_rows, self.n_features), np.float32)
        stored = np.empty(buffer.shape, self.X.array.dtype) if self.is_narrow else buffer
        with self.X.file(index) as file:
            for at in range(start, stop, tile_rows):
                tile, found = (each[: min(tile_rows, stop - at)] for each in (buffer, stored))
                file.read(found.reshape(-1).view(np.uint8))
                if self.is_narrow:
                    widen(found, tile)
                check_finite(self.X, tile, at)
                yield tile
            file.finish()

    def take(self, rows: I64) -> Matrix:
        """See CsrLayout."""
        return self._as_float32(self.X.take(rows, rows + 1))

    def _as_float32(self, values: Array) -> F32:
        """Return stored rows as float32. Raises the errors of `as_float32`."""
        if self.is_narrow:
            wide = np.empty(values.shape, np.float32)
            widen(np.ascontiguousarray(values), wide)
            values = wide
        return as_float32(self.X, values)

    def chunk_bytes(self, index: int, chunk_rows: int) -> int:  # noqa: ARG002
        """See CsrLayout."""
        return 4 * chunk_rows * self.n_features

    def stream_bytes(self, chunk_rows: int) -> int:
        """See CsrLayout."""
        chunk_bytes = chunk_rows * self.n_features * max(4, self.X.array.dtype.itemsize)
        tile_bytes = TILE_BYTES + 4 * self.n_features
        tile_bytes *= 1 + self.is_narrow  # the values in the stored type, and as float32
        return tile_bytes + 2 * self.X.ahead_bytes if self.streams else 4 * chunk_bytes

    def advise(self, index: int, start: int, stop: int) -> None:  # noqa: ARG002
        """See CsrLayout."""
        self.X.advise(start, stop)


Layout = CsrLayout | DenseLayout
