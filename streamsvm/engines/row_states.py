"""The numbers of rows that stay in the process that reads the rows, from pass to pass (requests.RowState).

They are kept tile by tile, each tile with the number of changes that it has seen. What a process does not have, it
makes anew from the rows and all changes, so that it may also let go of anything: of what is not used in this pass where
there is no room, and of rows that another worker reads from now on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import NamedTuple

import numpy as np

from streamsvm.numeric.rows import F64, Rows
from streamsvm.numeric.writable import make_writable
from streamsvm.requests import RowState

BLOCK_ROWS = 1 << 14  # Tiles are put together to so many rows where a pass needs no features: calls cost time, too.


class Kept(NamedTuple):
    """The numbers of a tile, (k, n), and how many changes they have seen."""

    changes: int
    numbers: F64


@dataclass
class KeptStates:
    """The numbers that a process keeps, by the name of the state and the first row of the tile.

    limit_bytes: None stands for as much as there is.
    """

    limit_bytes: int | None = None
    tiles: dict[str, dict[int, Kept]] = field(default_factory=dict)
    held_bytes: int = 0
    in_use: set[str] = field(default_factory=set)
    lock: RLock = field(default_factory=RLock)

    def begin(self, states: Sequence[RowState]) -> None:
        """Note that these states are in use now: others are let go of first, beginning with the oldest."""
        with self.lock:
            self.in_use = {state.name for state in states}
            for state in states:
                self.tiles[state.name] = self.tiles.pop(state.name, {})

    def find_tiles(self, states: Sequence[RowState], first: int, stop: int) -> dict[int, list[Kept]] | None:
        """Return the numbers of the rows from `first` to `stop` - 1, by the first row of each tile and by state.

        Returns None if a state lacks numbers, or needs the features of its rows.
        """
        found: dict[int, list[Kept]] = {}
        with self.lock:
            while first < stop:
                kept = [one for state in states if (one := self.find(state, first)) is not None]
                if len(kept) < len(states) or not all(map(_needs_no_features, kept, states)):
                    return None
                found[first] = kept
                first += kept[0].numbers.shape[1]
        return found

    def find(self, state: RowState, first: int) -> Kept | None:
        """Return the numbers of the tile that begins with this row, if they are kept."""
        with self.lock:
            return self.tiles.get(state.name, {}).get(first)

    def bring_up(self, state: RowState, kept: Kept | None, rows: Rows, altering: Sequence[np.ndarray]) -> F64:
        """Return the numbers of a tile after all changes, and keep them.

        kept: the numbers that were found. altering: the rows' parts of such arrays.
        """
        seen, numbers = (0, None) if kept is None or kept.changes > len(state.changes) else kept
        for change in state.changes[seen:]:
            given = [make_writable(value) for value in change.given]
            numbers = change.apply(numbers, rows, *given, *(altering if change.of_features else ()))
        assert numbers is not None
        if seen < len(state.changes):
            self._keep(state, rows.start, Kept(len(state.changes), numbers))
        return numbers

    def keep_only(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Keep the numbers of the rows in these ranges (first, stop) only."""
        with self.lock:
            for tiles in self.tiles.values():
                for start in [k for k in tiles if not any(first <= k < stop for first, stop in ranges)]:
                    self.held_bytes -= tiles.pop(start).numbers.nbytes

    def _keep(self, state: RowState, start: int, kept: Kept) -> None:
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


def _needs_no_features(kept: Kept, state: RowState) -> bool:
    ahead = kept.changes > len(state.changes)
    return not ahead and not any(change.of_features for change in state.changes[kept.changes :])


def kept_bytes(nbytes: int) -> int:
    """Return the memory of arrays of so many bytes that are kept, with the objects that hold them."""
    return nbytes * 105 // 100


def list_tiles(there: dict[int, list[Kept]]) -> Iterator[Rows]:
    """Yield an empty tile for each entry of `there`."""
    for first, kept in there.items():
        yield Rows(first, np.empty((kept[0].numbers.shape[1], 0), np.float32))


def join_tiles(tiles: Iterator[tuple[Rows, list[F64]]]) -> Iterator[tuple[Rows, list[F64]]]:
    """Yield the numbers of successive tiles together, BLOCK_ROWS of them or a few more at a time."""
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
