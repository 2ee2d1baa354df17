"""The task of a pass: it adds the rows of a group of chunks, tile by tile, to totals of the group's own.

Chunks that fit into the memory budget are pinned: they stay decoded in this process's memory. The first chunks to
arrive are kept, because a least-recently-used cache would miss every time in a cyclic scan. The other chunks are
streamed again on every pass.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamsvm.data.row_tiles import split_rows
from streamsvm.data.source import RowSource
from streamsvm.data.work_ahead import unjoined_pool
from streamsvm.engines.row_states import Kept, KeptStates, join_tiles, kept_bytes, list_tiles
from streamsvm.engines.subsets import Scratch, choose_again, read_aside, set_aside
from streamsvm.engines.task_seconds import TaskSeconds
from streamsvm.machine import peak_bytes
from streamsvm.numeric.rows import F64, Rows
from streamsvm.numeric.writable import make_writable
from streamsvm.requests import Scan


@dataclass
class Partial:
    """Totals of some groups and their costs: bytes read and written, seconds, and peak memory in bytes by process."""

    totals: Any
    read_bytes: int = 0
    written_bytes: int = 0
    peaks: dict[int, int] = field(default_factory=dict)
    seconds: TaskSeconds = field(default_factory=TaskSeconds)


@dataclass
class Pins:
    """The decoded chunks of one dataset that an engine keeps in a process, by their index.

    allowed: the chunks that may be kept; None stands for all of them.
    """

    limit_bytes: int
    chunks: dict[int, Rows] = field(default_factory=dict)
    held_bytes: int = 0
    allowed: set[int] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def allows(self, index: int) -> bool:
        """Tell whether this chunk may be kept."""
        return self.allowed is None or index in self.allowed

    def keep_only(self, allowed: set[int]) -> None:
        """Keep these chunks only from now on, and let go of all others."""
        with self.lock:
            self.allowed = allowed
            for index in self.chunks.keys() - allowed:
                self.held_bytes -= kept_bytes(self.chunks.pop(index).nbytes)


def run_group(
    source: RowSource,
    chunks: range,
    scan: Scan,
    pins: Pins,
    is_stopped: Callable[[], bool] = lambda: False,
    scratch: Scratch | None = None,
    kept: KeptStates | None = None,
) -> Partial:
    """Return the totals of one group of chunks; `scan.by_row` holds the group's entries only.

    Once `is_stopped` says so the reading ends, and the totals are those of the rows before. scratch: where rows are
    set aside, if they are to be. kept: the numbers of rows that this process keeps (None: it keeps none).
    """
    shared, by_row = (tuple(make_writable(value) for value in values) for values in (scan.shared, scan.by_row))
    scan = replace(scan, shared=shared, by_row=by_row)
    partial, kept = Partial(scan.start()), KeptStates(0) if kept is None else kept
    first, stop = source.chunk_starts[[chunks[0], chunks[-1] + 1]].tolist()
    kept.begin(scan.states)
    there = kept.find_tiles(scan.states, first, stop) if scan.of_states else None
    read = _find_tiles(source, chunks, scan, pins, scratch, partial) if there is None else list_tiles(there)
    tiles = _bring_up(partial.seconds.watch(read), scan, kept, first, there or {})
    for rows, numbers in join_tiles(tiles) if scan.of_states else tiles:
        if is_stopped():
            break
        scan.add(partial.totals, rows, *scan.shared, *_slice(scan.by_row, rows, first), *numbers)
    partial.peaks[os.getpid()] = peak_bytes()
    return partial


def _bring_up(
    tiles: Iterator[Rows], scan: Scan, kept: KeptStates, first: int, there: dict[int, list[Kept]]
) -> Iterator[tuple[Rows, list[F64]]]:
    """Yield the tiles, each with its numbers of the scan's states. first: the first row of the group.

    Tiles without features go on from the numbers `there`: other tasks may let go of the numbers that are kept.
    """
    for rows in tiles:
        slices = _slice(scan.by_row, rows, first)
        found: Sequence[Kept | None] = there.get(rows.start) or [kept.find(state, rows.start) for state in scan.states]
        pairs = zip(scan.states, found, strict=True)
        yield rows, [kept.bring_up(state, one, rows, slices[slice(*state.altering)]) for state, one in pairs]


def _slice(by_row: Sequence[np.ndarray], rows: Rows, first: int) -> list[np.ndarray]:
    at = rows.start - first
    return [vector[at : at + rows.n_rows] for vector in by_row]


def _find_tiles(
    source: RowSource,
    chunks: range,
    scan: Scan,
    pins: Pins,
    scratch: Scratch | None,
    costs: Partial,
) -> Iterator[Rows]:
    """Yield the tiles of a group that a pass is over, and add what is read and written to `costs`."""
    held = _find_held(source, chunks, scan.held)
    if scan.among is not None:
        assert not scan.by_row
        found = read_aside(scratch, chunks)
        if found is not None:
            costs.read_bytes = found[1]
            yield from found[0]
            return
    costs.read_bytes = bytes_to_read(source, [index for index in chunks if index not in held], pins)
    tiles = _read_tiles(source, chunks, pins, held)
    if scan.among is not None:
        yield from choose_again(tiles, scan.among)
    elif scan.apart is not None:
        yield from set_aside(tiles, scan.apart, scratch, chunks, count_rows(source, chunks), costs)
    else:
        yield from tiles


def combine_partials(left: Partial, right: Partial, scan: Scan) -> Partial:
    """Return the combined totals and the added costs of two neighbours in the tree."""
    peaks = {pid: max(left.peaks.get(pid, 0), right.peaks.get(pid, 0)) for pid in left.peaks | right.peaks}
    read, written = left.read_bytes + right.read_bytes, left.written_bytes + right.written_bytes
    return Partial(scan.combine(left.totals, right.totals), read, written, peaks, left.seconds + right.seconds)


def slice_by_row(source: RowSource, chunks: range, scan: Scan) -> tuple[np.ndarray, ...]:
    """Return the entries of `scan.by_row` that belong to the rows of one group."""
    start, stop = source.chunk_starts[chunks[0]], source.chunk_starts[chunks[-1] + 1]
    return tuple(vector[start:stop] for vector in scan.by_row)


def count_rows(source: RowSource, chunks: range) -> int:
    """Return the number of rows of a group."""
    return int(source.chunk_starts[chunks[-1] + 1] - source.chunk_starts[chunks[0]])


def tree_levels(n: int) -> Iterator[Sequence[tuple[int, int]]]:
    """Yield the pairs (left, right) of positions to combine, level by level; the total ends up at position 0."""
    gap = 1
    while gap < n:
        yield [(at, at + gap) for at in range(0, n - gap, 2 * gap)]
        gap *= 2


def _find_held(source: RowSource, chunks: range, held: Rows | None) -> dict[int, Rows]:
    """Return the rows of the chunks that lie within the first rows of the source, which are held in memory."""
    if held is None:
        return {}
    first, limits = replace(held, start=0), [(k, *source.chunk_starts[k : k + 2].tolist()) for k in chunks]
    return {k: first.slice(slice(start, stop)) for k, start, stop in limits if stop <= held.n_rows}


def _read_tiles(source: RowSource, chunks: range, pins: Pins, held: dict[int, Rows]) -> Iterator[Rows]:
    """Yield the rows of a group in tiles. The next chunk is read while the caller computes on this one.

    Chunks that are streamed are read ahead by the operating system, or by requests to a store; a thread reads ahead the
    chunks that are decoded whole.
    """
    if source.streams:
        for index in chunks:
            if index + 1 in chunks and index + 1 not in pins.chunks and index + 1 not in held:
                source.advise(index + 1)
            loaded = _load(source, index, pins, held)
            yield from source.tiles(index) if loaded is None else split_rows(loaded)
        return
    with unjoined_pool(1, "read") as reader:
        following = reader.submit(_load, source, chunks[0], pins, held)
        for index in chunks:
            rows = following.result()
            assert rows is not None
            if index + 1 in chunks:
                following = reader.submit(_load, source, index + 1, pins, held)
            yield from split_rows(rows)


def _load(source: RowSource, index: int, pins: Pins, held: dict[int, Rows]) -> Rows | None:
    return held[index] if index in held else load_or_pin(source, index, pins)


def load_or_pin(source: RowSource, index: int, pins: Pins) -> Rows | None:
    """Return chunk `index` in memory, and keep it if there is room; None if the chunk is to be streamed."""
    size = kept_bytes(source.chunk_bytes(index))
    with pins.lock:
        kept = pins.chunks.get(index)  # those of another object's lock, where they are shared
        if kept is not None:
            return kept
        room = source.on_disk and pins.allows(index) and pins.held_bytes + size <= pins.limit_bytes
        pins.held_bytes += size if room else 0
    if source.streams and not room:
        return None
    unused = size if room else 0
    try:
        rows = source.read(index)
        with pins.lock:
            if room and pins.allows(index) and pins.chunks.setdefault(index, rows) is rows:
                unused -= kept_bytes(rows.nbytes)
        return rows
    finally:  # all of the room is given back if the chunk is damaged, or a task of an abandoned pass has just kept it
        with pins.lock:
            pins.held_bytes -= unused


def bytes_to_read(source: RowSource, chunks: Sequence[int], pins: Pins) -> int:
    """Return the bytes of those chunks that are read from storage, because they are not kept in memory."""
    return sum(_chunk_bytes(source, index) for index in chunks if index not in pins.chunks)


def _chunk_bytes(source: RowSource, index: int) -> int:
    """Return the bytes of a chunk in storage; 0 for rows in memory."""
    n_rows = int(source.chunk_starts[index + 1] - source.chunk_starts[index])
    return source.stored_bytes * n_rows // source.n_rows
