"""The rows of two classes of a source, as a source: one against one trains a problem of two classes on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.data.view import ONE, REST, Alteration, View
from streamsvm.numeric.rows import F64, I32, I64, Rows


@dataclass(frozen=True)
class Selection(Alteration):
    """An alteration that leaves some rows only. members: their numbers in the source, ascending.

    The rows that are left of a tile still have the `start` of the tile, by which tiles can be put in order.
    """

    members: I64 = field(default_factory=lambda: np.empty(0, np.int64))

    def number(self, rows: I64) -> I64:
        """Return the numbers in the source of rows that are numbered among the members."""
        found: I64 = self.members[rows]
        return found


def pick_pair(rows: Rows, *, first: int, second: int) -> Rows:
    """Return the rows of two classes: label 1 for the class coded `first`, 0 for the one coded `second`."""
    assert rows.y is not None
    y = (rows.y == first).astype(np.int32)
    kept = np.flatnonzero((y == ONE) | (rows.y == second))
    if len(kept) == rows.n_rows:
        return replace(rows, y=y)
    return replace(rows.pick(kept), start=rows.start, y=y[kept])


class PairOfClasses(View):
    """The rows of two classes, numbered from 0: label 1 for the class coded `first`, 0 for the one coded `second`."""

    alteration: Selection

    def __init__(self, source: RowSource, y: I32, first: int, second: int) -> None:
        """y: the codes of all rows of the source, which several views can share."""
        members = np.flatnonzero((y == first) | (y == second))
        super().__init__(source, Selection(partial(pick_pair, first=first, second=second), members=members))
        self.codes = np.array([second, first])
        self._chunk_starts: I64 = np.searchsorted(members, source.chunk_starts).astype(np.int64)

    @property
    def members(self) -> I64:
        """The numbers of the rows in the source, (n_rows,)."""
        return self.alteration.members

    @property
    def n_rows(self) -> int:
        """See RowSource."""
        return len(self.members)

    @property
    def chunk_starts(self) -> I64:
        """See RowSource."""
        return self._chunk_starts

    @property
    def nbytes(self) -> int:
        """See RowSource."""
        return self.source.nbytes * self.n_rows // self.source.n_rows

    @property
    def classes(self) -> npt.NDArray[Any]:
        """The labels of the second class and of the first."""
        return np.array([REST, ONE])

    @property
    def class_counts(self) -> I64 | None:
        """Number of rows of both classes, (2,)."""
        counts = self.source.class_counts
        return None if counts is None else counts[self.codes]

    def sum_weights(self) -> F64 | None:
        """Return the sums of the sample weights of both classes, (2,)."""
        sums = self.source.sum_weights()
        return None if sums is None else sums[self.codes]

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """See RowSource."""
        values = self.source.column(name)
        if values is None:
            return None
        own = values[self.members]
        return (own == self.codes[ONE]).astype(np.int32) if name == "y" else own

    def column_of(self, name: str, index: int) -> npt.NDArray[Any] | None:
        """See RowSource."""
        values = self.column(name)
        return None if values is None else values[slice(*self.chunk_starts[index : index + 2].tolist())]

    def tiles(self, index: int) -> Iterator[Rows]:
        """See RowSource."""
        for rows in self.source.tiles(index):
            yield self._pick(rows)

    def read(self, index: int) -> Rows:
        """See RowSource."""
        return self._pick(self.source.read(index))

    def take(self, rows: I64) -> Rows:
        """See RowSource."""
        numbers = self.alteration.number(rows)
        return self.alteration.apply(self.source.take(numbers), numbers)

    def take_bytes(self, rows: I64) -> int:
        """See RowSource."""
        return self.source.take_bytes(self.alteration.number(rows))

    def _pick(self, rows: Rows) -> Rows:
        """Return the rows of both classes among these, with their number in this view."""
        return replace(self.alteration.alter(rows), start=int(np.searchsorted(self.members, rows.start)))
