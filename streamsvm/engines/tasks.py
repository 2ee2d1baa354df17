"""The two tasks of any engine: adding a group of chunks to the totals of a pass, and walks.

Chunks that fit into the memory budget are pinned: they stay decoded in the memory of the process that runs the tasks.
The first chunks to arrive are pinned, because a least-recently-used cache would miss every time in a cyclic scan. The
other chunks are streamed again in every pass.

A pass may spool a subset of the rows to files (data.store.shared_files); a later pass over this subset reads the file
of each group. A group has no file if there is no folder, if the run was resumed, or if too many of its rows were
chosen. Then the later pass reads the chunks of the group, and chooses the same rows again. Both ways give the same
tiles, and thus the same bits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.rows.source import RowSource, split_rows
from streamsvm.data.store.shared_files import ScratchWriter, read_scratch
from streamsvm.engines.engine import Costs, Partial
from streamsvm.engines.row_states import TileState, TileStates, add_overhead, join_tiles
from streamsvm.numeric.rows import F64, Rows, join_rows, make_all_writable
from streamsvm.passes import Order, Scan, Walk, WalkStep
from streamsvm.system import deadline
from streamsvm.system.machine import peak_bytes
from streamsvm.system.threads import unjoined_pool, work_ahead


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

    The more chunks stay in memory, the smaller the fraction, since these chunks are never read again. pin_bytes: the
    memory for chunks in all processes together.
    """
    pinned = pin_bytes / max(1, add_overhead(source.nbytes))
    share = max(0.0, 1.0 - pinned) / 2 if source.on_disk else 0.0
    return None if folder is None else Scratch(folder, share)


def spool(tiles: Iterator[Rows], writer: ScratchWriter, costs: Costs) -> Iterator[Rows]:
    """Yield the tiles of a group, and write their chosen rows to a file. The bytes written are added to `costs`."""
    try:
        for rows in tiles:
            writer.append(pick_chosen(rows))
            yield rows
        writer.finish()
    finally:
        writer.close()
        costs.written_bytes += writer.written_bytes


def pick_chosen(rows: Rows) -> Rows:
    """Return a copy of the chosen rows of a tile."""
    assert rows.chosen is not None
    picked = rows.pick(rows.chosen)
    return Rows(-1, picked.X, picked.y, picked.sample_weight, numbers=rows.start + rows.chosen)


def run_group(
    source: RowSource,
    chunks: range,
    scan: Scan,
    kept: Kept,
    is_stopped: Callable[[], bool],
    scratch: Scratch | None,
    report: Callable[[int], None] = lambda _: None,
) -> Partial:
    """Return the totals of one group of chunks; `scan.by_row` holds only the entries of the group.

    Reading ends once `is_stopped` returns True; the totals then cover the rows read so far. scratch: the folder to
    which rows are spooled (None: no folder). report: a function that is called with the number of rows of each tile
    once the tile is added, and at the end with the number of rows of the group that no tile has covered.
    """
    scan = replace(scan, shared=make_all_writable(scan.shared), by_row=make_all_writable(scan.by_row))
    found, own, (pins, states) = Partial(scan.start()), row_range(source, chunks), kept
    states.begin(scan.states)
    there = states.find_tiles(scan.states, own.start, own.stop) if scan.of_states else None
    read = _find_tiles(source, chunks, scan, pins, scratch, found.costs)
    if there is not None:  # a pass over row states alone: its tiles have no features
        read = (Rows(start, np.empty((one[0].numbers.shape[1], 0), np.float32)) for start, one in there.items())
    tiles, n_left = _catch_up(found.costs.seconds.watch(read), scan, states, own.start, there or {}), len(own)
    for rows, numbers in join_tiles(tiles) if scan.of_states else tiles:
        if is_stopped():
            break
        scan.add(found.totals, rows, *scan.shared, *_slice(scan.by_row, rows, own.start), *numbers)
        report(rows.n_rows)
        n_left -= rows.n_rows
    else:
        report(n_left)
    found.costs.peaks[os.getpid()] = peak_bytes()
    return found


def _catch_up(
    tiles: Iterator[Rows], scan: Scan, states: TileStates, first: int, there: dict[int, list[TileState]]
) -> Iterator[tuple[Rows, list[F64]]]:
    """Yield each tile with its row states after all changes. first: the first row of the group.

    there: the row states found for tiles without features, by the first row of the tile. They are used even if another
    task has since dropped them from `states`.
    """
    for rows in tiles:
        slices = _slice(scan.by_row, rows, first)
        pairs = zip(scan.states, there.get(rows.start) or states.find(scan.states, rows.start), strict=True)
        yield rows, [states.catch_up(state, one, rows, slices[slice(*state.altering)]) for state, one in pairs]


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
    tiles, subset = _read_tiles(source, chunks, pins, held), scan.among or scan.apart
    if subset is not None:
        tiles = (replace(rows, chosen=subset.choose(rows, *subset.shared)) for rows in tiles)
    if scan.among is not None:
        tiles = (rows for rows in map(pick_chosen, tiles) if rows.n_rows)
    elif subset is not None and scratch is not None and scratch.most_share > 0.0:
        most_rows = int(scratch.most_share * len(row_range(source, chunks)))
        tiles = spool(tiles, ScratchWriter(scratch.find_file(chunks), most_rows), costs)
    yield from tiles


def combine_partials(left: Partial, right: Partial, combine: Callable[[Any, Any], Any]) -> Partial:
    """Return the combined totals and the summed costs of two neighbours in the tree."""
    return Partial(combine(left.totals, right.totals), left.costs + right.costs)


def row_range(source: RowSource, chunks: Sequence[int]) -> range:
    """Return the row numbers of consecutive chunks."""
    return range(int(source.chunk_starts[chunks[0]]), int(source.chunk_starts[chunks[-1] + 1]))


def count_walked(source: RowSource, orders: Sequence[Order]) -> int:
    """Return the number of rows in these groups of chunks; a row counts each time."""
    sizes = np.diff(source.chunk_starts)
    return int(sum(sizes[list(some)].sum() for order in orders for some in order))


def begin_walks(costs: Costs, source: RowSource, walk: Walk) -> None:
    """Begin to count the rows that the walks visit, as a part of their pass."""
    done, n_rows, later = (count_walked(source, orders) for orders in (walk.before, walk.orders, walk.after))
    costs.begin_read(done + n_rows + later, done)


def slice_by_row(source: RowSource, chunks: range, by_row: Sequence[np.ndarray]) -> tuple[Any, ...]:
    """Return the entries of per-row vectors for the rows of these chunks."""
    rows = row_range(source, chunks)
    return tuple(vector[rows.start : rows.stop] for vector in by_row)


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
        pinned = pins.chunks.get(index)  # another ChunkCache with its own lock may share these chunks
        if pinned is not None:
            return pinned
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

    report: a function that is called with the number of rows of each part that the walk has visited.
    """
    found = Partial(carry)
    costs = found.costs
    with unjoined_pool(1, "read") as reader:
        parts = work_ahead(iter(order), lambda some: _read_chunks(source, some, pins), reader, 2)
        for _, (rows, read_bytes) in costs.seconds.watch(parts):
            if is_stopped():
                break
            costs.read_bytes += read_bytes
            n_left = rows.n_rows
            for found.totals, n_rows in step(found.totals, rows):  # noqa: B020  each step starts from the last carry
                if is_stopped():
                    break
                report(n_rows)
                n_left -= n_rows
            else:
                report(n_left)
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
