"""Segments: scratch files in which a worker sets rows of a stretch aside, sorted by the run that each of them goes to.

    segment = limits, part of run 0, its CRC-32C, part of run 1, its CRC-32C, ...

The limits are two numbers for each run and two for the end: its first row and its first item. A part has a block for
each column: labels, counts of items and so on. The checksum is that of the name of the segment, the number of the run,
and the part, so that it also tells a part that lies where another one should.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from threading import Semaphore
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from streamsvm.data.chunk_file import CRC_BYTES, Bytes
from streamsvm.data.shared_scratch import SharedScratch
from streamsvm.errors import InputError
from streamsvm.numeric.permute import permute_rows
from streamsvm.numeric.rows import I64, CsrRows, Matrix, stack_rows

SEGMENT_BYTES = 64 << 20  # of rows that are sorted by run together
OF_ITEMS = ("data", "indices")  # the columns with a value for each item, and not for each row
PUTTING = ThreadPoolExecutor(1)  # puts a segment while the rows of the next one are read
MAY_PUT = Semaphore()  # of all writers of this process: the rows of one segment are kept until it is put
Limits = tuple[tuple[int, int], tuple[int, int]]  # the first row and the first item of a part, and those that follow it


@dataclass(frozen=True)
class Column:
    """The values of one name in a segment: `width` of them for each row, or for each item."""

    name: str
    dtype: str
    width: int

    @property
    def is_of_items(self) -> bool:
        """Whether there are values for each item."""
        return self.name in OF_ITEMS

    @property
    def n_bytes(self) -> int:
        """Bytes for each row, or for each item."""
        return self.width * np.dtype(self.dtype).itemsize

    def count(self, limits: Limits) -> int:
        """Return how many rows, or items, a part has."""
        return limits[1][self.is_of_items] - limits[0][self.is_of_items]


@dataclass(frozen=True)
class Segment:
    """A file with rows that are sorted by run."""

    name: str
    n_runs: int
    n_rows: int
    n_items: int
    columns: tuple[Column, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of the file."""
        return self.find(self.n_runs, (self.n_rows, self.n_items))

    def find(self, at: int, first: tuple[int, int]) -> int:
        """Return the byte at which the part of a run begins, by its first row and item."""
        begin = 16 * (self.n_runs + 1) + CRC_BYTES * at
        return begin + sum(column.n_bytes * first[column.is_of_items] for column in self.columns)

    def find_part(self, at: int, first: tuple[int, int], following: tuple[int, int]) -> tuple[int, int]:
        """Return the bytes of the part of a run with its checksum, by its limits; none if the limits are damaged."""
        begin, end = self.find(at, first), self.find(at + 1, following)
        rise = 0 <= first[0] <= following[0] <= self.n_rows and 0 <= first[1] <= following[1]
        return (begin, end) if rise and end <= self.n_bytes else (0, 0)

    def start_checksum(self, at: int) -> int:
        """Return the CRC-32C of what is told of the part of a run."""
        checksum: int = google_crc32c.value(f"{self.name}, run {at}".encode())
        return checksum


@dataclass
class SegmentWriter:
    """Sets rows aside in segments whose names begin with `name`.

    n_runs: of a segment. counts_items: whether the non-zeros of dense rows are counted. segments: those that are
    written. rows, items: by run, of all of them. row_bytes: of a row without the items of sparse rows.
    """

    scratch: SharedScratch
    name: str
    n_runs: int
    counts_items: bool = False

    def __post_init__(self) -> None:
        self.segments: list[Segment] = []
        self.row_bytes, self.is_sparse = 0, False
        self.rows, self.items = np.zeros(self.n_runs, np.int64), np.zeros(self.n_runs, np.int64)
        self._waiting: list[tuple[Matrix, dict[str, Any], I64]] = []
        self._nbytes = 0
        self._putting: Future[None] | None = None

    def add(self, X: Matrix, vectors: Mapping[str, npt.NDArray[Any]], run: I64) -> None:
        """Set rows aside, row i in the run run[i]."""
        self.is_sparse = isinstance(X, CsrRows)
        self.row_bytes = sum(each.itemsize for each in vectors.values()) + (8 if self.is_sparse else 4 * X.shape[1])
        self._waiting.append((X, dict(vectors), run))
        self._nbytes += X.nbytes
        if self._nbytes >= SEGMENT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Begin to put the rows that wait as a segment, once the segment before, or that of another writer, is put."""
        if not self._waiting:
            return
        X = stack_rows([X for X, _, _ in self._waiting])
        run = np.concatenate([run for _, _, run in self._waiting])
        vectors = {n: np.concatenate([each[n] for _, each, _ in self._waiting]) for n in self._waiting[0][1]}
        self._waiting, self._nbytes = [], 0
        order = np.argsort(run, kind="stable")
        row_limits = np.searchsorted(run[order], np.arange(self.n_runs + 1))
        X = permute_rows(X, order)
        arrays = {name: values[order] for name, values in vectors.items()}
        item_limits = row_limits
        if isinstance(X, CsrRows):
            item_limits = X.indptr[row_limits]
            arrays |= {"counts": np.diff(X.indptr), "data": X.data, "indices": X.indices}
            items = np.diff(item_limits)
        else:
            arrays["X"] = X
            counts = np.count_nonzero(X, axis=1) if self.counts_items else np.zeros(len(X), np.int64)
            items = np.diff(np.concatenate(([0], np.cumsum(counts)))[row_limits])
        self.rows, self.items = self.rows + np.diff(row_limits), self.items + items
        self._begin(arrays, np.stack((row_limits, item_limits), axis=1), int(items.sum()))

    def wait(self) -> None:
        """Wait until all segments that were begun are put. Raises the error that this has met."""
        putting, self._putting = self._putting, None
        if putting is not None:
            putting.result()

    def _begin(self, arrays: Mapping[str, npt.NDArray[Any]], limits: I64, n_items: int) -> None:
        """Begin to put a segment. limits (runs + 1, 2): the first row and item of each run, and the end."""
        arrays = dict(sorted(arrays.items(), key=lambda each: -each[1].itemsize))  # so that all blocks are aligned
        columns = tuple(Column(name, each.dtype.str, int(np.prod(each.shape[1:]))) for name, each in arrays.items())
        n_rows = int(limits[-1, 0])
        segment = Segment(f"{self.name}-{len(self.segments)}", self.n_runs, n_rows, n_items, columns)
        parts = _lay_out(segment, list(arrays.values()), np.ascontiguousarray(limits, np.int64))
        self.wait()
        MAY_PUT.acquire()
        try:
            self._putting = PUTTING.submit(self.scratch.put, segment.name, parts, segment.n_bytes)
        except BaseException:
            MAY_PUT.release()
            raise
        self._putting.add_done_callback(lambda _: MAY_PUT.release())  # also if it is cancelled
        self.segments.append(segment)


def _lay_out(segment: Segment, arrays: Sequence[npt.NDArray[Any]], limits: I64) -> Iterator[Any]:
    """Yield the bytes of a segment, in pieces."""
    yield _as_bytes(limits).data
    for at, (first, following) in enumerate(zip(limits[:-1].tolist(), limits[1:].tolist(), strict=True)):
        checksum = segment.start_checksum(at)
        for column, values in zip(segment.columns, arrays, strict=True):
            content = _as_bytes(values[first[column.is_of_items] : following[column.is_of_items]])
            checksum = google_crc32c.extend(checksum, content)
            yield content.data
        yield checksum.to_bytes(CRC_BYTES, "little")


def _as_bytes(values: npt.NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def hash_text(text: str) -> int:
    """Return the number that stands for a label of text in segments, whichever worker meets it."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def refuse_equal_hashes(texts: Iterable[str]) -> None:
    """Raise InputError if one number stands for two labels."""
    names: dict[int, str] = {}
    for text in texts:
        other = names.setdefault(hash_text(text), text)
        if other != text:
            raise InputError(
                f"the labels {other!r} and {text!r} have the same hash, so workers cannot tell them apart; rename one, "
                "or leave out --workers and --scheduler"
            )
