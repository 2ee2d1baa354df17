"""Row states: numbers for each row that stay in the process that reads the row, from pass to pass (passes.RowState).

A process keeps these numbers tile by tile, each tile with the count of changes applied to it. It recomputes missing
numbers from the rows and all changes, so it may drop any numbers. If memory is short, it drops the states that the
current pass does not use. It also drops the numbers of rows that another worker reads from now on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import NamedTuple

import numpy as np

from streamsvm.numeric.rows import F64, Rows, make_all_writable
from streamsvm.passes import RowState

BLOCK_ROWS = 1 << 14  # tiles without features are joined into blocks of this many rows, since each call costs time


class TileState(NamedTuple):
    """The numbers of a tile, (k, n), and the count of changes applied to them."""

    changes: int
    numbers: F64


@dataclass
class TileStates:
    """The numbers that a process keeps, by the name of the state and the first row of the tile.

    limit_bytes: the memory for the numbers (None: no limit).
    """

    limit_bytes: int | None = None
    tiles: dict[str, dict[int, TileState]] = field(default_factory=dict)
    held_bytes: int = 0
    in_use: set[str] = field(default_factory=set)
    lock: RLock = field(default_factory=RLock)

    def begin(self, states: Sequence[RowState]) -> None:
        """Mark these states as in use. If memory is short, the others are dropped, the oldest first."""
        with self.lock:
            self.in_use = {state.name for state in states}
            for state in states:
                self.tiles[state.name] = self.tiles.pop(state.name, {})

    def find_tiles(self, states: Sequence[RowState], first: int, stop: int) -> dict[int, list[TileState]] | None:
        """Return the numbers of the rows first:stop. Key: the first row of a tile. Value: one entry per state.

        Returns None if numbers of a state are missing, or if its next changes need the features of the rows.
        """
        found: dict[int, list[TileState]] = {}
        with self.lock:
            while first < stop:
                kept = [one for one in self.find(states, first) if one is not None]
                if len(kept) < len(states) or not all(map(_needs_no_features, kept, states)):
                    return None
                found[first] = kept
                first += kept[0].numbers.shape[1]
        return found

    def find(self, states: Sequence[RowState], first: int) -> list[TileState | None]:
        """Return, for each state, the numbers of the tile that begins at row `first`, or None if not in memory."""
        with self.lock:
            return [self.tiles.get(state.name, {}).get(first) for state in states]

    def catch_up(self, state: RowState, kept: TileState | None, rows: Rows, altering: Sequence[np.ndarray]) -> F64:
        """Apply the missing changes to the numbers of a tile, store the new numbers, and return them.

        kept: the numbers found in memory, if any. altering: the slices of the `altering` arrays for these rows.
        """
        seen, numbers = (0, None) if kept is None or kept.changes > len(state.changes) else kept
        for change in state.changes[seen:]:
            given = make_all_writable(change.given)
            numbers = change.apply(numbers, rows, *given, *(altering if change.of_features else ()))
        assert numbers is not None
        if seen < len(state.changes):
            self._keep(state, rows.start, TileState(len(state.changes), numbers))
        return numbers

    def retain(self, ranges: Sequence[range]) -> None:
        """Keep only the numbers of the rows in these ranges."""
        with self.lock:
            for tiles in self.tiles.values():
                for start in [k for k in tiles if not any(k in rows for rows in ranges)]:
                    self.held_bytes -= tiles.pop(start).numbers.nbytes

    def _keep(self, state: RowState, start: int, kept: TileState) -> None:
        with self.lock:
            own = self.tiles.setdefault(state.name, {})
            before = own.pop(start, None)
            self.held_bytes -= 0 if before is None else before.numbers.nbytes
            while self.limit_bytes is not None and self.held_bytes + kept.numbers.nbytes > self.limit_bytes:
                oldest = next(iter(self.tiles))
                if oldest in self.in_use:
                    return
                self.held_bytes -= sum(one.numbers.nbytes for one in self.tiles.pop(oldest).values())
            own[start] = kept
            self.held_bytes += kept.numbers.nbytes


def _needs_no_features(kept: TileState, state: RowState) -> bool:
    ahead = kept.changes > len(state.changes)
    return not ahead and not any(change.of_features for change in state.changes[kept.changes :])


def add_overhead(nbytes: int) -> int:
    """Return the memory that arrays of `nbytes` bytes take, including the objects that hold them."""
    return nbytes * 105 // 100


def join_tiles(tiles: Iterator[tuple[Rows, list[F64]]]) -> Iterator[tuple[Rows, list[F64]]]:
    """Join the numbers of successive tiles, and yield blocks of at least BLOCK_ROWS rows (the last may be smaller)."""
    waiting: list[tuple[Rows, list[F64]]] = []
    n_rows = 0
    for rows, numbers in tiles:
        waiting.append((rows, numbers))
        n_rows += rows.n_rows
        if n_rows >= BLOCK_ROWS:
            yield _join(waiting, n_rows)
            waiting, n_rows = [], 0
    if waiting:
        yield _join(waiting, n_rows)


def _join(waiting: list[tuple[Rows, list[F64]]], n_rows: int) -> tuple[Rows, list[F64]]:
    rows = Rows(waiting[0][0].start, np.empty((n_rows, 0), np.float32))
    if len(waiting) == 1:
        return rows, waiting[0][1]
    return rows, [np.concatenate(parts, axis=1) for parts in zip(*(numbers for _, numbers in waiting), strict=True)]
