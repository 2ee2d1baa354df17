"""The first half of a shuffle in bounded memory: rows are spooled to random runs.

Each row goes to a run drawn at random. Each run is small enough to be permuted in memory afterwards. Together, the two
steps are a uniform permutation of all rows. Without a shuffle, the runs are filled one after another. The draws depend
only on the seed, on the number of each piece, and on the number of runs. Therefore workers shuffle exactly as one
process does.

One process spills the runs to files (`Spill`). Workers share segments: scratch files whose rows are sorted by run.

    segment = limits, part of run 0, its CRC-32C, part of run 1, its CRC-32C, ...

The limits are two numbers for each run (the first row and the first item of its part), and two numbers for the end of
the segment. A part has a block for each column. The checksum covers the part, the name of the segment and the number of
the run, and so also reveals parts that were interchanged. To read a run, its parts are read from all segments in order.
This gives the order in which one process would have spilled the rows.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby
from math import isqrt
from pathlib import Path
from threading import Semaphore
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from streamsvm.data.rows.source import LabelLists
from streamsvm.data.store.chunks import CRC_BYTES, Bytes
from streamsvm.data.store.shared_files import SharedScratch, pack_record, read_ranges, read_record
from streamsvm.ingestion.write import MapTasks
from streamsvm.numeric.rows import I64, CsrRows, Matrix, permute_rows, slice_rows, stack_rows
from streamsvm.system.errors import IntegrityError

RUN_BYTES = 64 << 20
LISTS = ("label_values", "label_counts")  # names of the arrays of lists of labels
MAPPED = ("X", "data", "indices")  # names of the arrays of features, which are read once, in random order
LEAST_MAPPED_BYTES = 1 << 20


@dataclass(frozen=True)
class SpilledRows:
    """Rows of a run. Labels are numbers, or provisional codes of text labels."""

    X: Matrix
    vectors: dict[str, Any]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])


def _list_arrays(X: Matrix) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of features that are spooled, by name."""
    if isinstance(X, CsrRows):
        return {"data": X.data, "indices": X.indices, "counts": np.diff(X.indptr)}
    return {"X": X}


def _make_rows(arrays: dict[str, Any]) -> SpilledRows:
    """Return spooled rows. arrays: the vectors of the rows, and the arrays that `_list_arrays` returns."""
    if "X" in arrays:
        return SpilledRows(arrays.pop("X"), arrays)
    indptr = np.concatenate(([0], np.cumsum(arrays.pop("counts")))).astype(np.int64)
    data, indices = (arrays.pop(name) for name in OF_ITEMS)
    return SpilledRows(CsrRows(data, indices, indptr, int(indices.max(initial=-1)) + 1), arrays)


def _sort_by_run(X: Matrix, vectors: dict[str, Any], run: I64, n_runs: int) -> tuple[Matrix, dict[str, Any], I64]:
    """Return features and vectors sorted by run, and the boundaries of the runs in the sorted rows, (n_runs + 1,)."""
    runs = run.astype(np.uint16) if n_runs <= 1 << 16 else run  # NumPy uses the faster radix sort for 16 bits
    order = np.argsort(runs, kind="stable")
    limits = np.searchsorted(runs[order], np.arange(n_runs + 1))
    return permute_rows(X, order), {name: values[order] for name, values in vectors.items()}, limits


def draw_runs(seed: int, n_runs: int, piece: int, n_rows: int) -> I64:
    """Draw the run of each row of a piece. piece: the number of the piece, counted from 1."""
    if n_runs == 1:
        return np.zeros(n_rows, np.int64)
    return np.random.default_rng((seed, 0, piece)).integers(n_runs, size=(n_rows,))


def count_parts(nbytes: int) -> int:
    """Return the number of new runs into which a run of `nbytes` is split; 1 if it fits into memory."""
    return nbytes // (2 * RUN_BYTES) + 1


def draw_parts(seed: int, run: int, n_rows: int, nbytes: int) -> Iterator[tuple[slice, I64]]:
    """Yield slices of a run, each of about RUN_BYTES / 4, with the part to which each row of the slice is scattered."""
    n_parts, step = count_parts(nbytes), max(1, n_rows * RUN_BYTES // (4 * nbytes))
    for at in range(0, n_rows, step):
        part = slice(at, min(n_rows, at + step))
        yield part, np.random.default_rng((seed, 1, run, at)).integers(n_parts, size=part.stop - at)


def draw_order(seed: int | None, run: int, n_rows: int) -> I64:
    """Return the order in which the rows of a run are written."""
    return np.arange(n_rows) if seed is None else np.random.default_rng((seed, 2, run)).permutation(n_rows)


class Spill:
    """Runs of rows in a folder, with a file for each array of a run. If `seed` is None, the rows keep their order."""

    def __init__(self, folder: Path, seed: int | None, expected_bytes: int) -> None:
        self.folder, self.seed = folder, seed
        self.n_runs = 1 if seed is None else max(1, -(-expected_bytes // RUN_BYTES))
        self.run_bytes: list[int] = [0] * self.n_runs
        self.dense_features: int | None = None
        self._pieces = 0
        self._dtypes: dict[str, np.dtype[Any]] = {}

    def add(self, X: Matrix, vectors: dict[str, Any]) -> None:
        """Draw the runs of rows, and append the rows to these runs."""
        self._pieces += 1
        if not isinstance(X, CsrRows):
            self.dense_features = X.shape[1]
        if self.seed is not None and self.n_runs > 1:
            self._scatter(X, vectors, draw_runs(self.seed, self.n_runs, self._pieces, X.shape[0]), 0)
            return
        if self.seed is None and self.run_bytes[-1] >= RUN_BYTES:
            self.run_bytes.append(0)
        self._append(len(self.run_bytes) - 1, X, vectors)

    def split_large_runs(self) -> None:
        """Split runs that became too large for memory, because the size of the source was only a guess."""
        run = 0
        while run < len(self.run_bytes):
            nbytes, n_rows = self.run_bytes[run], self._n_rows(run)
            if self.seed is not None and count_parts(nbytes) > 1 and n_rows > 1:
                first, first_item = len(self.run_bytes), 0
                self.run_bytes += [0] * count_parts(nbytes)
                for part, drawn in draw_parts(self.seed, run, n_rows, nbytes):
                    rows = self.read(run, part.start, part.stop, first_item)
                    first_item += len(rows.X.data) if isinstance(rows.X, CsrRows) else 0
                    self._scatter(rows.X, rows.vectors, drawn, first)
                self.remove(run)
                self.run_bytes[run] = 0
            run += 1

    def remove(self, run: int) -> None:
        """Remove the files of a run. This frees the page cache of the system for the rows that are written next."""
        for name in self._dtypes:
            (self.folder / f"{run}.{name}").unlink(missing_ok=True)

    def read_shuffled(self, run: int) -> tuple[SpilledRows, I64]:
        """Return the rows of a run, and the order in which they are written."""
        rows = self.read(run, 0, self._n_rows(run), 0)
        return rows, draw_order(self.seed, run, rows.n_rows)

    def read(self, run: int, start: int, stop: int, first_item: int) -> SpilledRows:
        """Return the rows start:stop of a run. If they are sparse, `first_item` is the first item of row `start`."""
        of_rows = [name for name in self._dtypes if name not in (*MAPPED, *LISTS)]
        arrays: dict[str, Any] = {name: self._load(run, name, start, stop - start) for name in of_rows}
        if LISTS[0] in self._dtypes:
            arrays["label_sets"] = self._read_lists(run, start, stop)
        if self.dense_features is not None:
            d = self.dense_features
            arrays["X"] = self._load(run, "X", start * d, (stop - start) * d).reshape(-1, d)
        else:
            n_items = int(arrays["counts"].sum(dtype=np.int64))
            arrays |= {name: self._load(run, name, first_item, n_items) for name in OF_ITEMS}
        return _make_rows(arrays)

    def _read_lists(self, run: int, start: int, stop: int) -> LabelLists:
        """Return the lists of labels for the rows start:stop of a run."""
        first = int(self._load(run, LISTS[1], 0, start).sum(dtype=np.int64))
        indptr = np.concatenate(([0], np.cumsum(self._load(run, LISTS[1], start, stop - start), dtype=np.int64)))
        return LabelLists(self._load(run, LISTS[0], first, int(indptr[-1])), indptr)

    def _scatter(self, X: Matrix, vectors: dict[str, Any], run: npt.NDArray[Any], first: int) -> None:
        """Append row i to run first + run[i]."""
        X, vectors, limits = _sort_by_run(X, vectors, run, int(run.max(initial=-1)) + 1)
        for k in np.flatnonzero(np.diff(limits)).tolist():
            part = slice(limits[k], limits[k + 1])
            self._append(first + k, slice_rows(X, part), {name: values[part] for name, values in vectors.items()})

    def _append(self, run: int, X: Matrix, vectors: dict[str, Any]) -> None:
        arrays = dict(vectors)
        if (lists := arrays.pop("label_sets", None)) is not None:
            arrays |= dict(zip(LISTS, (lists.values, lists.counts), strict=True))
        for name, values in (arrays | _list_arrays(X)).items():
            self._dtypes.setdefault(name, values.dtype)
            with (self.folder / f"{run}.{name}").open("ab") as file:
                file.write(np.ascontiguousarray(values).data)  # `tofile` would not report a full disk
            self.run_bytes[run] += values.nbytes

    def _load(self, run: int, name: str, first: int, count: int) -> npt.NDArray[Any]:
        dtype = self._dtypes[name]
        path = self.folder / f"{run}.{name}"
        if count == 0 or not path.exists():
            return np.empty(0, dtype)
        if name in MAPPED and count * dtype.itemsize >= LEAST_MAPPED_BYTES:
            with suppress(OSError):  # some network file systems do not support mapping
                return _map(path, dtype, first, count)
        return np.fromfile(path, dtype, count, offset=first * dtype.itemsize)

    def _n_rows(self, run: int) -> int:
        name = "X" if self.dense_features is not None else "counts"
        path = self.folder / f"{run}.{name}"
        if not path.exists():
            return 0
        return path.stat().st_size // self._dtypes[name].itemsize // (self.dense_features or 1)


def _map(path: Path, dtype: np.dtype[Any], first: int, count: int) -> npt.NDArray[Any]:
    """Return values of a file by mapping the page cache, without a copy. The file may be removed while it is mapped.

    The mapping is populated, since otherwise every 16th page would cause a page fault. It is shared, although nothing
    is written: populating a private mapping copies it page by page. It is writable, because compiled code takes only
    writable arrays.
    """
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    begin, end = first * dtype.itemsize, (first + count) * dtype.itemsize
    skip = begin % mmap.ALLOCATIONGRANULARITY
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), end - begin + skip, flags, offset=begin - skip)
    return np.frombuffer(mapped, dtype, count, skip)


SEGMENT_BYTES = 64 << 20  # the bytes of features that are sorted by run and written together
OF_ITEMS = ("data", "indices")  # columns with a value for each item instead of each row
MOST_SLICES = 256  # the maximum number of slices of a segment; with more, a slice would have less than 256 KiB
SEGMENTS_TOGETHER = 64  # the number of segments whose limits, for a group of runs, are in memory at a time
PUTTING = ThreadPoolExecutor(1)  # writes a segment while the rows of the next segment are read
MAY_PUT = Semaphore()  # held while a segment is written: only one segment of this process is in memory
Limits = tuple[tuple[int, int], tuple[int, int]]  # first row and first item of a part, and those of the next part


class Column(NamedTuple):
    """A column of a segment. Each row (or each item, if `is_of_items`) has `width` values in `n_bytes` bytes."""

    name: str
    dtype: str
    width: int
    n_bytes: int
    is_of_items: bool


@dataclass(frozen=True)
class Segment:
    """A file of rows sorted by run."""

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
        """Return the byte at which the part of run `at` begins. first: the first row and the first item of the part."""
        begin = 16 * (self.n_runs + 1) + CRC_BYTES * at
        return begin + sum(column.n_bytes * first[column.is_of_items] for column in self.columns)

    def find_part(self, at: int, first: tuple[int, int], following: tuple[int, int]) -> tuple[int, int]:
        """Return the byte range of the part of run `at` and its checksum; (0, 0) if the limits are damaged.

        first, following: the first row and the first item of this part, and of the next part.
        """
        begin, end = self.find(at, first), self.find(at + 1, following)
        rise = 0 <= first[0] <= following[0] <= self.n_rows and 0 <= first[1] <= following[1]
        return (begin, end) if rise and end <= self.n_bytes else (0, 0)

    def start_checksum(self, at: int) -> int:
        """Return the initial value for the CRC-32C of the part of run `at`."""
        checksum: int = google_crc32c.value(f"{self.name}, run {at}".encode())
        return checksum

    def verify(self, at: int, part: Bytes, place: str) -> Bytes:
        """Return the part of run `at` without its checksum. Raises IntegrityError naming `place` if it is damaged."""
        payload, stored = part[:-CRC_BYTES], part[-CRC_BYTES:].tobytes()
        checksum = google_crc32c.extend(self.start_checksum(at), payload)
        if checksum.to_bytes(CRC_BYTES, "little") != stored:
            raise IntegrityError(
                f"{place}: the rows of run {at} are damaged (their checksum is wrong); start the ingest again"
            )
        return payload


@dataclass(frozen=True)
class Segments:
    """The segments that one or several SegmentWriters have written.

    rows, items: the number of rows, and of items, in each run. row_bytes: the bytes of a row; for sparse rows, without
    the bytes of items.
    """

    segments: list[Segment]
    rows: I64
    items: I64
    row_bytes: int
    is_sparse: bool

    def __add__(self, other: Segments) -> Segments:
        segments, row_bytes = [*self.segments, *other.segments], max(self.row_bytes, other.row_bytes)
        rows, items = self.rows + other.rows, self.items + other.items
        return Segments(segments, rows, items, row_bytes, self.is_sparse or other.is_sparse)

    def list_runs(self, listing: str, begin: int = 0) -> list[Run]:
        """Return the runs. listing: the record that lists the segments. begin: the index of the first segment in it."""
        sizes, end = zip(self.rows.tolist(), self.items.tolist(), strict=True), begin + len(self.segments)
        return [Run(listing, begin, end, at, *size) for at, size in enumerate(sizes)]


@dataclass
class SegmentWriter:
    """Spools rows to segments whose names begin with `name`, each with n_runs runs.

    counts_items: whether to count the non-zeros of dense rows.
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
        """Spool rows; row i goes to run run[i]."""
        self.is_sparse = isinstance(X, CsrRows)
        self.row_bytes = sum(each.itemsize for each in vectors.values()) + (8 if self.is_sparse else 4 * X.shape[1])
        self._waiting.append((X, dict(vectors), run))
        self._nbytes += X.nbytes
        if self._nbytes >= SEGMENT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Start writing the waiting rows as a segment. First wait until no other segment is being written."""
        if not self._waiting:
            return
        X = stack_rows([X for X, _, _ in self._waiting])
        run = np.concatenate([run for _, _, run in self._waiting])
        vectors = {n: np.concatenate([each[n] for _, each, _ in self._waiting]) for n in self._waiting[0][1]}
        self._waiting, self._nbytes = [], 0
        X, vectors, row_limits = _sort_by_run(X, vectors, run, self.n_runs)
        item_limits = row_limits
        if isinstance(X, CsrRows):
            item_limits = X.indptr[row_limits]
            items = np.diff(item_limits)
        else:
            counts = np.count_nonzero(X, axis=1) if self.counts_items else np.zeros(len(X), np.int64)
            items = np.diff(np.concatenate(([0], np.cumsum(counts)))[row_limits])
        self.rows, self.items = self.rows + np.diff(row_limits), self.items + items
        unsorted: dict[str, npt.NDArray[Any]] = {**vectors, **_list_arrays(X)}
        arrays = dict(sorted(unsorted.items(), key=lambda each: -each[1].itemsize))  # larger types first, for alignment
        columns = list[Column]()
        for name, each in arrays.items():
            width = int(np.prod(each.shape[1:]))
            columns.append(Column(name, each.dtype.str, width, width * each.itemsize, name in OF_ITEMS))
        name, n_rows, n_items = f"{self.name}-{len(self.segments)}", int(row_limits[-1]), int(items.sum())
        segment = Segment(name, self.n_runs, n_rows, n_items, tuple(columns))
        limits = np.ascontiguousarray(np.stack((row_limits, item_limits), axis=1), np.int64)
        parts = _lay_out(segment, list(arrays.values()), limits)
        self.wait()
        MAY_PUT.acquire()
        try:
            self._putting = PUTTING.submit(self.scratch.put, segment.name, parts, segment.n_bytes)
        except BaseException:
            MAY_PUT.release()
            raise
        self._putting.add_done_callback(lambda _: MAY_PUT.release())  # called even after cancellation
        self.segments.append(segment)

    def finish(self) -> Segments:
        """Write the waiting rows, wait until all segments are written, and return the segments."""
        self.flush()
        self.wait()
        return Segments(self.segments, self.rows, self.items, self.row_bytes, self.is_sparse)

    def wait(self) -> None:
        """Wait until all segments are written. Raises the error of a failed write."""
        putting, self._putting = self._putting, None
        if putting is not None:
            putting.result()


def _lay_out(segment: Segment, arrays: Sequence[npt.NDArray[Any]], limits: I64) -> Iterator[Any]:
    """Yield the bytes of a segment, in pieces. limits: the first row and first item of each part, and the end."""
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
    """Return the hash that replaces a text label in segments. It is the same on every worker."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Run:
    """Rows that are permuted together: the parts of run `at` in the segments begin:end of a listing.

    The listing is a record in a scratch file. Therefore the size of a task does not grow with the number of segments.
    """

    listing: str
    begin: int
    end: int
    at: int
    n_rows: int
    n_items: int


def list_runs(
    map_tasks: MapTasks, scratch: SharedScratch, seed: int | None, written: Segments, counts_items: bool
) -> list[Run]:
    """Return the runs in the order in which they are written to the dataset. Runs too large for memory are split.

    seed: the seed of the shuffle; if None, each segment is a run. counts_items: whether to count the non-zeros of dense
    rows.
    """
    listing = "segments"
    scratch.keep(listing, pack_record(written.segments))
    if seed is None:
        return [Run(listing, k, k + 1, 0, each.n_rows, each.n_items) for k, each in enumerate(written.segments)]
    runs = written.list_runs(listing)
    if len(runs) > MOST_SLICES:
        runs = _regroup(map_tasks, scratch, runs, counts_items)
    begin = 0
    while begin < len(runs):
        tasks = list[tuple[Any, ...]]()
        for number in range(begin, len(runs)):
            run = runs[number]
            nbytes = run.n_rows * written.row_bytes + 8 * run.n_items * written.is_sparse
            if count_parts(nbytes) > 1 and run.n_rows > 1:
                writer = SegmentWriter(scratch, f"split{number}", count_parts(nbytes), counts_items)
                tasks.append(([run], writer, (seed, number, nbytes)))
                runs[number] = replace(run, n_rows=0, n_items=0)
        begin = len(runs)
        runs += _list_parts(scratch, list(map_tasks("splitting large runs", scatter_runs, tasks)), begin)
    return runs


def _regroup(map_tasks: MapTasks, scratch: SharedScratch, runs: list[Run], counts_items: bool) -> list[Run]:
    """Let workers write groups of runs to separate segments, and return the runs in these segments.

    A run consists of a slice of each segment. Reading R runs from S segments would take R S reads. Instead, sqrt(R)
    groups of runs are formed, and each group reads one larger slice of each segment: S sqrt(R) reads in all. Afterwards
    a run consists of a slice of each segment of its group: R^1.5 reads in all.
    """
    step = isqrt(len(runs) - 1) + 1
    groups = [runs[at : at + step] for at in range(0, len(runs), step)]
    tasks = [(each, SegmentWriter(scratch, f"group{k}", len(each), counts_items)) for k, each in enumerate(groups)]
    return _list_parts(scratch, list(map_tasks("shuffling the rows", scatter_runs, tasks)), 0)


def _list_parts(scratch: SharedScratch, written: list[Segments], number: int) -> list[Run]:
    """Return the runs in rewritten segments. number: a number that makes the name of their listing unique."""
    if not written:
        return []
    begins = np.cumsum([0, *(len(one.segments) for one in written)]).tolist()
    listing = f"segments-{number}"
    scratch.keep(listing, pack_record([each for one in written for each in one.segments]))
    return [run for one, begin in zip(written, begins, strict=False) for run in one.list_runs(listing, begin)]


def _read_listing(scratch: SharedScratch, listing: str) -> list[Segment]:
    segments: list[Segment] = read_record(scratch, listing, (Segment, Column))
    return segments


def scatter_runs(runs: Sequence[Run], writer: SegmentWriter, split: tuple[int, int, int] | None = None) -> Segments:
    """Copy consecutive runs, all in the same segments, to the runs of a writer, in order.

    split: if a single run is scattered over the runs of the writer, the seed, the index of the run, and its size in
    bytes; else None.
    """
    segments, drawn, at = _read_listing(writer.scratch, runs[0].listing)[runs[0].begin : runs[0].end], None, 0
    if split is not None:
        seed, number, nbytes = split
        drawn = np.concatenate([each for _, each in draw_parts(seed, number, runs[0].n_rows, nbytes)])
    for first in range(0, len(segments), SEGMENTS_TOGETHER):
        together = segments[first : first + SEGMENTS_TOGETHER]
        for k, part in _read_parts(writer.scratch, together, runs):  # one by one: a run may exceed the memory
            run = np.full(part.n_rows, k) if drawn is None else drawn[at : at + part.n_rows]
            writer.add(part.X, part.vectors, run)
            at += part.n_rows
    return writer.finish()


def read_runs(scratch: SharedScratch, runs: Sequence[Run], texts: Mapping[str, int]) -> Iterator[SpilledRows]:
    """Yield the rows of each run. texts: the code of each text label; empty if labels are numbers."""
    listings = {listing: _read_listing(scratch, listing) for listing in {run.listing for run in runs}}
    for (listing, begin, end), same in groupby(runs, key=lambda run: (run.listing, run.begin, run.end)):
        segments, together = listings[listing][begin:end], list(same)
        for run, limits in zip(together, _read_limits(scratch, segments, together), strict=True):
            parts = [part for _, part in _read_parts(scratch, segments, [run], [limits]) if part.n_rows]
            vectors = {name: np.concatenate([part.vectors[name] for part in parts]) for name in parts[0].vectors}
            if texts:
                vectors["label"] = _number_texts(vectors["label"], texts)
            yield SpilledRows(stack_rows([part.X for part in parts]), vectors)


def check(scratch: SharedScratch, written: Segments) -> None:
    """Raise IntegrityError unless all segments exist and are undamaged."""
    deque(_read_parts(scratch, written.segments, written.list_runs("")), maxlen=0)


def _read_limits(scratch: SharedScratch, segments: Sequence[Segment], runs: Sequence[Run]) -> list[list[Limits]]:
    """Return for each run, and each segment, the limits of the part of the run in the segment."""
    first, stop = runs[0].at, runs[-1].at + 2
    wanted = [(segment.name, segment.n_bytes, (16 * first, 16 * stop)) for segment in segments]
    found: list[list[Limits]] = [[] for _ in runs]
    for _, content in read_ranges(scratch, wanted):
        limits = content.view(np.int64).reshape(-1, 2).tolist()
        for run, mine in zip(runs, found, strict=True):
            begin, end = limits[run.at - first : run.at - first + 2]
            mine.append(((begin[0], begin[1]), (end[0], end[1])))
    return found


def _read_parts(
    scratch: SharedScratch,
    segments: Sequence[Segment],
    runs: Sequence[Run],
    limits: Sequence[Sequence[Limits]] | None = None,
) -> Iterator[tuple[int, SpilledRows]]:
    """Yield the parts of consecutive runs, segment by segment, each as a pair (index of the run in `runs`, rows).

    A single range of each segment is read. A part is copied, and thereby aligned, unless it is the whole range. limits:
    the result of `_read_limits`; if None, it is called here. Raises IntegrityError naming a damaged segment.
    """
    by_segment = list(zip(*(limits or _read_limits(scratch, segments, runs)), strict=True))
    places = [
        [segment.find_part(run.at, *each) for run, each in zip(runs, mine, strict=True)]
        for segment, mine in zip(segments, by_segment, strict=True)
    ]
    ranges = [(each[0][0], max(each[0][0], each[-1][1])) for each in places]  # if limits are damaged, they may descend
    wanted = [(segment.name, segment.n_bytes, part) for segment, part in zip(segments, ranges, strict=True)]
    with closing(read_ranges(scratch, wanted)) as slices:
        for segment, mine, parts, (name, content) in zip(segments, by_segment, places, slices, strict=True):
            for number, (run, each, (begin, end)) in enumerate(zip(runs, mine, parts, strict=True)):
                own = content[begin - parts[0][0] : end - parts[0][0]]
                yield number, _unpack_part(segment, run, each, name, own if len(runs) == 1 else own.copy())


def _unpack_part(segment: Segment, run: Run, limits: Limits, name: str, content: Bytes) -> SpilledRows:
    """Return the rows of a part. Raises IntegrityError naming the segment if the part is damaged."""
    arrays, at, content = dict[str, Any](), 0, segment.verify(run.at, content, name)
    for column in segment.columns:
        n_bytes = (limits[1][column.is_of_items] - limits[0][column.is_of_items]) * column.n_bytes
        values = content[at : at + n_bytes].view(column.dtype)
        arrays[column.name] = values.reshape(-1, column.width) if column.name == "X" else values
        at += n_bytes
    return _make_rows(arrays)


def _number_texts(hashes: npt.NDArray[np.uint64], texts: Mapping[str, int]) -> npt.NDArray[np.float64]:
    """Return the codes of text labels. hashes: the hash of each label. texts: the code of each text label."""
    known = np.array([hash_text(text) for text in texts], np.uint64)
    order = np.argsort(known)
    codes = np.array(list(texts.values()), np.float64)[order]
    return codes[np.searchsorted(known[order], hashes)]
