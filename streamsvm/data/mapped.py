"""A view that shows the features Phi(x) of the rows of another source, which are made whenever rows are read.

Nothing is stored: a pass maps each tile in the task that reads it. The features of a row have to have the same bits in
every pass and when the row is taken by its number, since certificates add up both. But a matrix product may round a row
differently if there are other rows beside it, or if it stands elsewhere among them. So all products have one shape, a
block of rows, and a row has one place in it: its number within its chunk, modulo the length of a block. Where rows are
missing there are zeros.

The engine keeps mapped chunks in memory, as far as there is room, and not the raw rows: a byte of features spares more
time than a byte of raw rows, which would only have to be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, cast

import numpy as np

from streamsvm.data.row_tiles import count_tile_rows
from streamsvm.data.source import RowSource
from streamsvm.data.view import Alteration, View, leave
from streamsvm.numeric.feature_maps import Features, count_rows_at_a_time
from streamsvm.numeric.rows import F32, I64, CsrRows, Matrix, Rows, stack_rows, take_rows

BLOCK_ROWS = 512  # fewer where so many features of a row would take too much memory
VECTOR_BYTES = 24  # the most that label, weight and query id of a row take


class Mapped(View):
    """The features of the rows of a source by a map that takes these rows as they are scaled."""

    on_disk = True  # Rows that would have to be mapped again are worth keeping, wherever the raw rows are.
    is_sparse = False
    streams = True
    scaling = None
    feature_names = None

    def __init__(self, source: RowSource, features: Features) -> None:
        super().__init__(source, Alteration(leave))
        self._features = features
        self._block_rows = min(BLOCK_ROWS, count_rows_at_a_time(features.map))

    @property
    def features(self) -> Features:
        """The map that makes the rows."""
        return self._features

    @cached_property
    def fingerprint(self) -> str:
        """See RowSource. It differs from that of the raw rows, whose chunks in memory are other chunks."""
        return f"{self.source.fingerprint}, mapped by {self._features.sha256}"

    @property
    def n_features(self) -> int:
        """Number of features that the map makes."""
        return self._features.map.n_features

    @property
    def nbytes(self) -> int:
        """See RowSource."""
        return self.n_rows * self._row_bytes

    @property
    def _row_bytes(self) -> int:
        return 4 * self.n_features + VECTOR_BYTES

    def chunk_bytes(self, index: int) -> int:
        """See RowSource."""
        start, stop = self.chunk_starts[index : index + 2].tolist()
        return int(stop - start) * self._row_bytes

    def stream_bytes(self) -> int:
        """Return the bytes of streaming the raw rows, of the blocks that are mapped, and of the map."""
        raw_bytes = 4 * self.source.nbytes // self.n_rows
        block = self._block_rows * (8 * self._features.map.row_values + 4 * self._row_bytes + raw_bytes)
        return self.source.stream_bytes() + block + 2 * self._features.map.nbytes

    def tiles(self, index: int) -> Iterator[Rows]:
        """Yield the features of chunk `index` in the tiles into which `split_rows` cuts them."""
        return regroup(self._map_blocks(index), count_tile_rows(self.n_features))

    def read(self, index: int) -> Rows:
        """See RowSource."""
        start, stop = self.chunk_starts[index : index + 2].tolist()
        X: F32 = np.empty((stop - start, self.n_features), np.float32)
        vectors: list[dict[str, Any]] = []
        for rows in self._map_blocks(index):
            X[rows.start - start :][: rows.n_rows] = cast("F32", rows.X)
            vectors.append(rows.vectors)
        return Rows(start, X, **{name: np.concatenate([each[name] for each in vectors]) for name in vectors[0]})

    def take(self, rows: I64) -> Rows:
        """See RowSource. Rows of different blocks share a product if their places in the blocks differ."""
        wanted = np.asarray(rows, np.int64)
        raw = self.source.take(wanted)
        starts = self.chunk_starts[np.searchsorted(self.chunk_starts, wanted, side="right") - 1]
        places = (wanted - starts) % self._block_rows
        X: F32 = np.empty((len(wanted), self.n_features), np.float32)
        padded = _add_zeros(raw.X)
        for chosen in _choose_blocks(places):
            X[chosen] = self._map_at(padded, chosen, places[chosen])
        return Rows(-1, X, **raw.vectors)

    def _map_blocks(self, index: int) -> Iterator[Rows]:
        for rows in regroup(self.source.tiles(index), self._block_rows):
            every = np.arange(rows.n_rows)
            yield Rows(rows.start, self._map_at(_add_zeros(rows.X), every, every), **rows.vectors)

    def _map_at(self, padded: Matrix, chosen: I64, places: I64) -> F32:
        """Return the features of the chosen rows, each at its place in a block. The last of the rows is zeros."""
        lines = np.full(self._block_rows, padded.shape[0] - 1)
        lines[places] = chosen
        return self._features.apply(take_rows(padded, lines))[places]


def _add_zeros(X: Matrix) -> Matrix:
    """Return rows with a row of zeros below."""
    if isinstance(X, CsrRows):
        return CsrRows(X.data, X.indices, np.append(X.indptr, X.indptr[-1]), X.n_features)
    return np.concatenate([X, np.zeros((1, X.shape[1]), X.dtype)])


def _choose_blocks(places: I64) -> Iterator[I64]:
    """Yield the numbers of rows that share a block: the first at every place, then the second at every place, .."""
    order = np.argsort(places, kind="stable")
    ascending = places[order]
    occurrence = np.arange(len(places)) - np.searchsorted(ascending, ascending)
    by_block = order[np.argsort(occurrence, kind="stable")]
    return iter(np.split(by_block, np.cumsum(np.bincount(occurrence))[:-1]) if len(places) else [])


def regroup(parts: Iterator[Rows], n_rows: int) -> Iterator[Rows]:
    """Yield the same successive rows in parts of n_rows, the last of which may have fewer.

    A part is valid until the next one, as the parts that are given may be.
    """
    kept: list[Rows] = []
    missing = n_rows
    for rows in parts:
        at = 0
        while rows.n_rows - at >= missing:
            yield _join([*kept, rows.slice(slice(at, at + missing))])
            at += missing
            kept, missing = [], n_rows
        if at < rows.n_rows:
            rest = rows.slice(slice(at, rows.n_rows))
            kept.append(Rows(rest.start, take_rows(rest.X, np.arange(rest.n_rows)), **rest.vectors))
            missing -= rest.n_rows
    if kept:
        yield _join(kept)


def _join(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    vectors = {name: np.concatenate([part.vectors[name] for part in parts]) for name in parts[0].vectors}
    return Rows(parts[0].start, stack_rows([part.X for part in parts]), **vectors)
