"""The shuffle of `data.spill`, done by several workers through scratch files that they share.

Each row goes to the run that one process would draw for it, since the draws depend on the number of the piece alone. A
worker sets the rows of a stretch aside in segments: files with its rows sorted by run. A run is then read from all
segments in order, so that its rows, and their permutation, are those of one process.

    segment = limits, part of run 0, its CRC-32C, part of run 1, its CRC-32C, ...

The limits are two numbers for each run and two for the end: its first row and its first item. A part has a block for
each column: labels, counts of items and so on. The checksum is that of the name of the segment, the number of the run,
and the part, so that it also tells a part that lies where another one should.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from streamsvm.data.chunk_file import CRC_BYTES, Bytes
from streamsvm.data.shared_scratch import SharedScratch, read_ranges
from streamsvm.data.spill import RUN_BYTES, SpilledRows
from streamsvm.errors import InputError, IntegrityError
from streamsvm.numeric.permute import permute_rows
from streamsvm.numeric.rows import I64, CsrRows, Matrix, stack_rows

SEGMENT_BYTES = 64 << 20  # of rows that are sorted by run together
OF_ITEMS = ("data", "indices")  # the columns with a value for each item, and not for each row
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


@dataclass(frozen=True)
class Run:
    """Rows that are permuted together: those with the number `at` in each of the segments, in order."""

    segments: tuple[Segment, ...]
    at: int
    n_rows: int
    n_items: int


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

    def add(self, X: Matrix, vectors: Mapping[str, npt.NDArray[Any]], run: I64) -> None:
        """Set rows aside, row i in the run run[i]."""
        self.is_sparse = isinstance(X, CsrRows)
        self.row_bytes = sum(each.itemsize for each in vectors.values()) + (8 if self.is_sparse else 4 * X.shape[1])
        self._waiting.append((X, dict(vectors), run))
        self._nbytes += X.nbytes
        if self._nbytes >= SEGMENT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait as a segment."""
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
        self._put(arrays, np.stack((row_limits, item_limits), axis=1), int(items.sum()))

    def _put(self, arrays: Mapping[str, npt.NDArray[Any]], limits: I64, n_items: int) -> None:
        """Write a segment; limits: the first row and item of each run, and those of the end."""
        arrays = dict(sorted(arrays.items(), key=lambda each: -each[1].itemsize))  # so that all blocks are aligned
        columns = tuple(Column(name, each.dtype.str, int(np.prod(each.shape[1:]))) for name, each in arrays.items())
        n_rows = int(limits[-1, 0])
        segment = Segment(f"{self.name}-{len(self.segments)}", self.n_runs, n_rows, n_items, columns)
        parts = _lay_out(segment, list(arrays.values()), np.ascontiguousarray(limits, np.int64))
        self.scratch.put(segment.name, parts, segment.n_bytes)
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


def draw_runs(seed: int, n_runs: int, piece: int, n_rows: int) -> I64:
    """Return the runs of the rows of a piece, whose number counts from 1, as `Spill.add` draws them."""
    if n_runs == 1:
        return np.zeros(n_rows, np.int64)
    return np.random.default_rng((seed, 0, piece)).integers(n_runs, size=(n_rows,))


def count_parts(nbytes: int) -> int:
    """Return over how many new runs a run is scattered that outgrew memory, as `Spill.split_large_runs` does."""
    return nbytes // (2 * RUN_BYTES) + 1


def split_run(run: Run, seed: int, number: int, nbytes: int, writer: SegmentWriter) -> SegmentWriter:
    """Scatter a run over the runs of a writer; `nbytes` are its own, and `number` is its place among all runs."""
    step, at = max(1, run.n_rows * RUN_BYTES // (4 * nbytes)), 0
    drawn = np.concatenate(
        [
            np.random.default_rng((seed, 1, number, begin)).integers(writer.n_runs, size=min(step, run.n_rows - begin))
            for begin in range(0, run.n_rows, step)
        ]
    )
    (limits,) = _read_limits(writer.scratch, [run])
    for part in _read_parts(writer.scratch, run, limits):  # the run may be larger than the memory
        writer.add(part.X, part.vectors, drawn[at : at + part.n_rows])
        at += part.n_rows
    writer.flush()
    return writer


def read_runs(scratch: SharedScratch, runs: Sequence[Run], texts: Mapping[str, int]) -> Iterator[SpilledRows]:
    """Yield the rows of runs. texts: if labels are texts, the code of each among all."""
    for _, same in groupby(runs, key=lambda run: run.segments):
        together = list(same)
        for run, limits in zip(together, _read_limits(scratch, together), strict=True):
            yield _read_run(scratch, run, limits, texts)


def _read_run(scratch: SharedScratch, run: Run, limits: Sequence[Limits], texts: Mapping[str, int]) -> SpilledRows:
    parts = [part for part in _read_parts(scratch, run, limits) if part.n_rows]
    vectors = {name: np.concatenate([part.vectors[name] for part in parts]) for name in parts[0].vectors}
    if texts:
        vectors["label"] = _number_texts(vectors["label"], texts)
    return SpilledRows(stack_rows([part.X for part in parts]), vectors)


def _read_limits(scratch: SharedScratch, runs: Sequence[Run]) -> list[list[Limits]]:
    """Return the limits of the parts of runs, which have the same segments, by run and segment."""
    first, stop = runs[0].at, runs[-1].at + 2
    wanted = [(segment.name, segment.n_bytes, (16 * first, 16 * stop)) for segment in runs[0].segments]
    found: list[list[Limits]] = [[] for _ in runs]
    for _, content in read_ranges(scratch, wanted):
        limits = content.view(np.int64).reshape(-1, 2).tolist()
        for run, mine in zip(runs, found, strict=True):
            begin, end = limits[run.at - first : run.at - first + 2]
            mine.append(((begin[0], begin[1]), (end[0], end[1])))
    return found


def _read_parts(scratch: SharedScratch, run: Run, limits: Sequence[Limits]) -> Iterator[SpilledRows]:
    """Yield the rows of a run by segment. Raises IntegrityError, which names the segment, if they are damaged."""
    places = zip(run.segments, limits, strict=True)
    wanted = [(segment.name, segment.n_bytes, segment.find_part(run.at, *each)) for segment, each in places]
    with closing(read_ranges(scratch, wanted)) as parts:
        for segment, each, (name, content) in zip(run.segments, limits, parts, strict=True):
            payload, stored = content[:-CRC_BYTES], content[-CRC_BYTES:].tobytes()
            checksum = google_crc32c.extend(segment.start_checksum(run.at), payload)
            if checksum.to_bytes(CRC_BYTES, "little") != stored:
                raise IntegrityError(f"{name}: the rows of run {run.at} are damaged (their checksum is wrong)")
            yield _unpack(segment.columns, payload, each)


def _unpack(columns: Sequence[Column], content: Bytes, limits: Limits) -> SpilledRows:
    """Return the rows of a part."""
    arrays, at = dict[str, Any](), 0
    for column in columns:
        n_bytes = column.count(limits) * column.n_bytes
        values = content[at : at + n_bytes].view(column.dtype)
        arrays[column.name] = values.reshape(-1, column.width) if column.name == "X" else values
        at += n_bytes
    if "X" in arrays:
        return SpilledRows(arrays.pop("X"), arrays)
    indptr = np.concatenate(([0], np.cumsum(arrays.pop("counts")))).astype(np.int64)
    data, indices = (arrays.pop(name) for name in OF_ITEMS)
    return SpilledRows(CsrRows(data, indices, indptr, int(indices.max(initial=-1)) + 1), arrays)


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


def _number_texts(hashes: npt.NDArray[np.uint64], texts: Mapping[str, int]) -> npt.NDArray[np.float64]:
    """Return the code of each label among all."""
    known = np.array([hash_text(text) for text in texts], np.uint64)
    order = np.argsort(known)
    codes = np.array(list(texts.values()), np.float64)[order]
    return codes[np.searchsorted(known[order], hashes)]
