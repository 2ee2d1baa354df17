"""The engines of one process, and the two tasks of any engine: adding a group of chunks to totals, and walks.

The serial engine is the reference, and the threaded engine must return the same bits. The serial engine reads one group
of chunks after another in this thread. In the threaded engine, a pass is one small graph, which Dask's threaded
scheduler runs: each task reads a group, and a fixed tree adds the totals of the groups.

Chunks that fit into the memory budget are pinned: they stay decoded in the memory of this process. The first chunks to
arrive are pinned, because a least-recently-used cache would miss every time in a cyclic scan. The other chunks are
streamed again in every pass.

A pass may spool a subset of the rows to files (data.store.shared_files); a later pass over this subset reads the file
of each group. A group has no file if there is no folder, if the run was resumed, or if too many of its rows were
chosen. Then the later pass reads the chunks of the group, and chooses the same rows again. Both ways give the same
tiles, and thus the same bits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import dask.threaded
import numpy as np

from streamsvm.data.rows.source import RowSource, plan_groups, split_rows
from streamsvm.data.sources.text import unjoined_pool, work_ahead
from streamsvm.data.store.shared_files import ScratchWriter, read_scratch
from streamsvm.engines.engine import Costs, Partial
from streamsvm.engines.row_states import TileState, TileStates, add_overhead, join_tiles
from streamsvm.numeric.compilation import describe_arithmetic
from streamsvm.numeric.rows import F64, I64, Rows, join_rows, make_writable
from streamsvm.passes import Order, Scan, Subset, Take, Walk, WalkStep
from streamsvm.system import deadline
from streamsvm.system.interrupts import waiting
from streamsvm.system.machine import peak_bytes

Task = Callable[[], Partial]


@dataclass
class ChunkCache:
    """The decoded chunks of one dataset that an engine keeps in a process, by index.

    allowed: the chunks that may be kept (None: all).
    """

    limit_bytes: int
    chunks: dict[int, Rows] = field(default_factory=dict)
    held_bytes: int = 0
    allowed: set[int] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def allows(self, index: int) -> bool:
        """Return whether this chunk may be kept."""
        return self.allowed is None or index in self.allowed

    def retain(self, allowed: set[int]) -> None:
        """Keep only these chunks from now on, and drop all others."""
        with self.lock:
            self.allowed = allowed
            for index in self.chunks.keys() - allowed:
                self.held_bytes -= add_overhead(self.chunks.pop(index).nbytes)


Kept = tuple[ChunkCache, TileStates]  # the chunks and the row states that a process keeps


@dataclass(frozen=True)
class Scratch:
    """The folder for spooled rows. most_share: the largest fraction of a group's rows for which spooling pays."""

    folder: str
    most_share: float

    def find_file(self, chunks: range) -> Path:
        """Return the path of the file with the rows of a group of chunks."""
        return Path(self.folder) / f"{chunks[0]}.rows"


def plan_scratch(folder: str | None, source: RowSource, pin_bytes: int) -> Scratch | None:
    """Return the folder for spooled rows, and the largest fraction of rows for which spooling pays.

    Chunks in memory are never read again. pin_bytes: the memory for chunks in all processes together.
    """
    kept = pin_bytes / max(1, add_overhead(source.nbytes))
    share = max(0.0, 1.0 - kept) / 2 if source.on_disk else 0.0
    return None if folder is None else Scratch(folder, share)


def spool(
    tiles: Iterator[Rows], subset: Subset, scratch: Scratch | None, chunks: range, n_rows: int, costs: Costs
) -> Iterator[Rows]:
    """Yield each tile of a group with the positions of the chosen rows, and write these rows to the scratch folder.

    n_rows: the number of rows of the group. The bytes written are added to `costs`.
    """
    writer = None
    if scratch is not None and scratch.most_share > 0.0:
        writer = ScratchWriter(scratch.find_file(chunks), int(scratch.most_share * n_rows))
    try:
        for rows in tiles:
            chosen = subset.choose(rows, *subset.shared)
            if writer is not None and len(chosen):
                writer.append(pick_rows(rows, chosen), rows.start + chosen)
            yield replace(rows, chosen=chosen)
        if writer is not None:
            writer.finish()
    finally:
        if writer is not None:
            writer.close()
            costs.written_bytes += writer.written_bytes


def choose_again(tiles: Iterator[Rows], subset: Subset) -> Iterator[Rows]:
    """Yield the rows of the subset, tile by tile; tiles without such rows are skipped."""
    for rows in tiles:
        chosen = subset.choose(rows, *subset.shared)
        if len(chosen):
            yield pick_rows(rows, chosen)


def pick_rows(rows: Rows, chosen: I64) -> Rows:
    """Return a copy of the rows at these positions of a tile."""
    picked = rows.pick(chosen)
    return Rows(-1, picked.X, picked.y, picked.sample_weight, numbers=rows.start + chosen)


def run_group(
    source: RowSource, chunks: range, scan: Scan, kept: Kept, is_stopped: Callable[[], bool], scratch: Scratch | None
) -> Partial:
    """Return the totals of one group of chunks; `scan.by_row` holds only the entries of the group.

    Reading ends once `is_stopped` returns True; the totals then cover the rows read so far. scratch: where rows are
    spooled (None: nowhere).
    """
    shared, by_row = (tuple(make_writable(value) for value in values) for values in (scan.shared, scan.by_row))
    scan = replace(scan, shared=shared, by_row=by_row)
    found, own, (pins, states) = Partial(scan.start()), row_range(source, chunks), kept
    states.begin(scan.states)
    there = states.find_tiles(scan.states, own.start, own.stop) if scan.of_states else None
    read = _find_tiles(source, chunks, scan, pins, scratch, found.costs)
    if there is not None:  # a pass over row states alone: its tiles have no features
        read = (Rows(start, np.empty((one[0].numbers.shape[1], 0), np.float32)) for start, one in there.items())
    tiles = _catch_up(found.costs.seconds.watch(read), scan, states, own.start, there or {})
    for rows, numbers in join_tiles(tiles) if scan.of_states else tiles:
        if is_stopped():
            break
        scan.add(found.totals, rows, *scan.shared, *_slice(scan.by_row, rows, own.start), *numbers)
    found.costs.peaks[os.getpid()] = peak_bytes()
    return found


def _catch_up(
    tiles: Iterator[Rows], scan: Scan, kept: TileStates, first: int, there: dict[int, list[TileState]]
) -> Iterator[tuple[Rows, list[F64]]]:
    """Yield each tile with its row states after all changes. first: the first row of the group.

    there: the row states found for tiles without features, by the first row of the tile. They are used even if another
    task has since dropped them from `kept`.
    """
    for rows in tiles:
        slices = _slice(scan.by_row, rows, first)
        pairs = zip(scan.states, there.get(rows.start) or kept.find(scan.states, rows.start), strict=True)
        yield rows, [kept.catch_up(state, one, rows, slices[slice(*state.altering)]) for state, one in pairs]


def _slice(by_row: Sequence[np.ndarray], rows: Rows, first: int) -> list[np.ndarray]:
    at = rows.start - first
    return [vector[at : at + rows.n_rows] for vector in by_row]


def _find_tiles(
    source: RowSource, chunks: range, scan: Scan, pins: ChunkCache, scratch: Scratch | None, costs: Costs
) -> Iterator[Rows]:
    """Yield the tiles of a group for a pass, and add the bytes read and written to `costs`."""
    held = _find_held(source, chunks, scan.held)
    if scan.among is not None and scratch is not None and (spooled := scratch.find_file(chunks)).exists():
        costs.read_bytes = spooled.stat().st_size
        yield from read_scratch(spooled)
        return
    costs.read_bytes = bytes_to_read(source, [index for index in chunks if index not in held], pins)
    tiles = _read_tiles(source, chunks, pins, held)
    if scan.among is not None:
        yield from choose_again(tiles, scan.among)
    elif scan.apart is not None:
        yield from spool(tiles, scan.apart, scratch, chunks, len(row_range(source, chunks)), costs)
    else:
        yield from tiles


def combine_partials(left: Partial, right: Partial, scan: Scan) -> Partial:
    """Return the combined totals and the summed costs of two neighbours in the tree."""
    return Partial(scan.combine(left.totals, right.totals), Costs().add(left.costs).add(right.costs))


def row_range(source: RowSource, chunks: Sequence[int]) -> range:
    """Return the row numbers of consecutive chunks."""
    return range(int(source.chunk_starts[chunks[0]]), int(source.chunk_starts[chunks[-1] + 1]))


def count_walked(source: RowSource, walk: Walk) -> int:
    """Return the number of rows that the walks visit; a row counts for each visit."""
    sizes = np.diff(source.chunk_starts)
    return int(sum(sizes[list(some)].sum() for order in walk.orders for some in order))


def slice_by_row(source: RowSource, chunks: range, by_row: Sequence[np.ndarray]) -> tuple[Any, ...]:
    """Return the entries of per-row vectors for the rows of these chunks."""
    rows = row_range(source, chunks)
    return tuple(vector[rows.start : rows.stop] for vector in by_row)


def tree_levels(n: int) -> Iterator[Sequence[tuple[int, int]]]:
    """Yield the pairs (left, right) of positions to combine, level by level; the total ends up at position 0."""
    gap = 1
    while gap < n:
        yield [(at, at + gap) for at in range(0, n - gap, 2 * gap)]
        gap *= 2


def _find_held(source: RowSource, chunks: range, held: Rows | None) -> dict[int, Rows]:
    """Return the chunks that lie within `held`, which are the first rows of the source, in memory."""
    if held is None:
        return {}
    first, limits = replace(held, start=0), [(k, *source.chunk_starts[k : k + 2].tolist()) for k in chunks]
    return {k: first.slice(slice(start, stop)) for k, start, stop in limits if stop <= held.n_rows}


def _read_tiles(source: RowSource, chunks: range, pins: ChunkCache, held: dict[int, Rows]) -> Iterator[Rows]:
    """Yield the rows of a group in tiles. The next chunk is read while the caller computes on the current one.

    Chunks that are streamed are read ahead by the operating system, or by requests to the store. Chunks that are
    decoded whole are read ahead by a thread.
    """
    if source.streams:
        for index in chunks:
            if index + 1 in chunks and index + 1 not in pins.chunks and index + 1 not in held:
                source.advise(index + 1)
            loaded = _load(source, index, pins, held)
            yield from source.tiles(index) if loaded is None else split_rows(loaded)
        return
    load = deadline.kept(lambda index: _load(source, index, pins, held))
    with unjoined_pool(1, "read") as reader:
        for _, rows in work_ahead(iter(chunks), load, reader, 2):
            assert rows is not None
            yield from split_rows(rows)
            del rows  # so that at most two chunks are in memory


def _load(source: RowSource, index: int, pins: ChunkCache, held: dict[int, Rows]) -> Rows | None:
    return held[index] if index in held else load_chunk(source, index, pins)


def load_chunk(source: RowSource, index: int, pins: ChunkCache) -> Rows | None:
    """Return chunk `index`, and keep it if there is room; None if the caller must stream the chunk."""
    size = add_overhead(source.chunk_bytes(index))
    with pins.lock:
        kept = pins.chunks.get(index)  # another ChunkCache with its own lock may share these chunks
        if kept is not None:
            return kept
        room = source.on_disk and pins.allows(index) and pins.held_bytes + size <= pins.limit_bytes
        unused = size if room else 0
        pins.held_bytes += unused
    if source.streams and not room:
        return None
    try:
        rows = source.read(index)
        with pins.lock:
            if room and pins.allows(index) and pins.chunks.setdefault(index, rows) is rows:
                unused -= add_overhead(rows.nbytes)
        return rows
    finally:  # release the room reserved, unless this call has used it for the chunk
        with pins.lock:
            pins.held_bytes -= unused


def bytes_to_read(source: RowSource, chunks: Sequence[int], pins: ChunkCache) -> int:
    """Return the stored bytes of the chunks that are not kept in memory; 0 for rows in memory."""
    sizes = (len(row_range(source, [index])) for index in chunks if index not in pins.chunks)
    return sum(source.stored_bytes * n_rows // source.n_rows for n_rows in sizes)


def run_walk(
    source: RowSource,
    step: WalkStep,
    carry: Any,
    order: Order,
    pins: ChunkCache,
    is_stopped: Callable[[], bool],
    report: Callable[[int], None] = lambda _: None,
) -> Partial:
    """Carry out one walk, while a thread reads the next group. The walk ends early once `is_stopped` returns True.

    report: called with the number of rows of each group after it.
    """
    found = Partial(carry)
    costs = found.costs
    with unjoined_pool(1, "read") as reader:
        parts = work_ahead(iter(order), lambda some: _read_chunks(source, some, pins), reader, 2)
        for _, (rows, read_bytes) in costs.seconds.watch(parts):
            if is_stopped():
                break
            costs.read_bytes += read_bytes
            for found.totals in step(found.totals, rows):  # noqa: B020  each step starts from the last carry
                if is_stopped():
                    break
            report(rows.n_rows)
            del rows
    costs.peaks[os.getpid()] = peak_bytes()
    return found


def _read_chunks(source: RowSource, chunks: Sequence[int], pins: ChunkCache) -> tuple[Rows, int]:
    """Return these chunks, verified, as one `Rows`, and the number of bytes read from storage.

    The `start` of the result is the first row if the chunks are consecutive, otherwise -1.
    """
    parts, read_bytes = [], bytes_to_read(source, chunks, pins)
    for index in chunks:
        rows = load_chunk(source, index, pins)
        parts.append(source.read(index) if rows is None else rows)
    start = parts[0].start if list(chunks) == list(range(chunks[0], chunks[0] + len(chunks))) else -1
    return join_rows(parts, start), read_bytes


class SerialEngine:
    """An Engine without threads, which keeps up to `pin_bytes` of decoded chunks in memory.

    kept: these chunks, by the fingerprint of the rows. row_states: the row states, of up to `state_bytes` (None: no
    limit).
    """

    def __init__(self, source: RowSource, pin_bytes: int = 0, state_bytes: int | None = None) -> None:
        self.source, self.pin_bytes, self.costs = source, pin_bytes, Costs()
        self.scratch: str | None = None
        self.arithmetic = [describe_arithmetic()]
        self.kept: dict[str, ChunkCache] = {}
        self.row_states = TileStates(state_bytes)

    def scan(self, scan: Scan) -> Any:
        """See Engine."""
        parts = []
        self.costs.begin_read(self.source.n_rows)
        for group, task in zip(plan_groups(self.source), self._list_tasks(scan), strict=True):
            parts.append(task())
            self.costs.report_rows(len(row_range(self.source, group)))
        for level in tree_levels(len(parts)):
            for left, right in level:
                parts[left] = combine_partials(parts[left], parts[right], scan)
        return self.costs.count(parts[0])

    def _list_tasks(self, scan: Scan, is_stopped: Callable[[], bool] = lambda: False) -> list[Task]:
        """Return the task of each group of chunks."""
        source, kept, tasks = self.source, (self._find_cache(), self.row_states), list[Task]()
        scratch = plan_scratch(self.scratch, source, self.pin_bytes)
        for group in plan_groups(source):
            mine = replace(scan, by_row=slice_by_row(source, group, scan.by_row))
            tasks.append(partial(run_group, source, group, mine, kept, is_stopped, scratch))
        return tasks

    def _list_walks(self, walk: Walk, is_stopped: Callable[[], bool] = lambda: False) -> list[Task]:
        """Return the task of each walk."""
        source, cache, passes = self.source, self._find_cache(), zip(walk.carries, walk.orders, strict=True)
        self.costs.begin_read(count_walked(source, walk))
        how = cache, is_stopped, self.costs.report_rows
        return [partial(run_walk, source, walk.step, carry, order, *how) for carry, order in passes]

    def _find_cache(self) -> ChunkCache:
        return self.kept.setdefault(self.source.fingerprint, ChunkCache(self.pin_bytes))

    def take(self, take: Take) -> Rows:
        """See Engine."""
        rows = self.source.take(take.rows)
        self.costs.read_bytes += self.source.take_bytes(take.rows)
        return rows

    def walk(self, walk: Walk) -> list[Any]:
        """See Engine."""
        return [self.costs.count(task()) for task in self._list_walks(walk)]

    def close(self) -> None:
        """See Engine."""
        self.kept.clear()
        self.row_states = TileStates(0)


class ThreadedEngine(SerialEngine):
    """An Engine that runs up to `threads` tasks at once, and is otherwise like the serial engine."""

    def __init__(self, source: RowSource, threads: int, pin_bytes: int = 0, state_bytes: int | None = None) -> None:
        super().__init__(source, pin_bytes, state_bytes)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="streamsvm")

    def scan(self, scan: Scan) -> Any:
        """See Engine."""
        groups, stopped = plan_groups(self.source), threading.Event()
        self.costs.begin_read(self.source.n_rows)
        graph: dict[Any, Any] = {}
        for k, task in enumerate(self._list_tasks(scan, stopped.is_set)):
            graph["group", k] = (deadline.kept(task, stopped.is_set),)
        keys: list[Any] = list(graph)
        for depth, level in enumerate(tree_levels(len(groups))):
            for left, right in level:
                graph["sum", depth, left] = (partial(combine_partials, scan=scan), keys[left], keys[right])
                keys[left] = ("sum", depth, left)

        def report(key: Any, *_: Any) -> None:
            if key[0] == "group":
                self.costs.report_rows(len(row_range(self.source, groups[key[1]])))

        try:
            with waiting():
                total: Partial = dask.threaded.get(
                    graph, keys[0], pool=self._pool, callbacks=[(None, None, None, report, None)]
                )
        finally:
            stopped.set()  # after a failure or Ctrl-C, the other tasks end early
        return self.costs.count(total)

    def walk(self, walk: Walk) -> list[Any]:
        """See Engine."""
        stopped = threading.Event()
        tasks = self._list_walks(walk, stopped.is_set)
        futures = [self._pool.submit(deadline.kept(task, stopped.is_set)) for task in tasks]
        try:
            with waiting():
                parts = [future.result() for future in futures]
        finally:
            stopped.set()
        return [self.costs.count(part) for part in parts]

    def close(self) -> None:
        """See Engine."""
        self._pool.shutdown()
        super().close()
