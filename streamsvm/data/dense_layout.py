"""Dense rows on disk."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamsvm.data.layouts import as_float32, check_finite
from streamsvm.data.row_tiles import TILE_BYTES, count_tile_rows, split
from streamsvm.data.store import Array, StoredArray
from streamsvm.numeric.narrow import load_widening, widen
from streamsvm.numeric.rows import F32, I64, Matrix


class DenseLayout:
    """The layout of dense rows: X of shape (n, d), float32, or of another type of numbers, which become float32.

    is_narrow: whether `ingest` stored a type of numeric.narrow other than float32. Then uint16 is bfloat16.
    """

    def __init__(self, X: StoredArray, is_narrow: bool = False) -> None:
        self.X, self.is_narrow = X, is_narrow
        stored = str(X.array.dtype)
        self.dtype = "bfloat16" if is_narrow and stored == "uint16" else stored
        self.arrays: tuple[StoredArray, ...] = (X,)
        load_widening(self.dtype if is_narrow else "float32")
        self.n_features = X.row_items
        self.nbytes = X.length * X.row_items * 4
        self.streams = X.is_raw and (is_narrow or stored == "float32")

    def read(self, start: int, stop: int) -> Matrix:
        """See Layout."""
        return self._as_float32(self.X.read(start, stop))

    def tiles(self, index: int, start: int, stop: int) -> Iterator[Matrix]:
        """See Layout."""
        if not self.streams:
            yield from split(self.read(start, stop))
            return
        tile_rows = count_tile_rows(self.n_features)
        buffer = np.empty((tile_rows, self.n_features), np.float32)
        stored = np.empty(buffer.shape, self.X.array.dtype) if self.is_narrow else buffer
        with self.X.file(index) as file:
            for at in range(start, stop, tile_rows):
                tile, found = (each[: min(tile_rows, stop - at)] for each in (buffer, stored))
                file.read(found.reshape(-1).view(np.uint8))
                if self.is_narrow:
                    widen(found, tile)
                check_finite(self.X, tile, at)
                yield tile
            file.finish()

    def take(self, rows: I64) -> Matrix:
        """See Layout."""
        return self._as_float32(self.X.take(rows, rows + 1))

    def _as_float32(self, values: Array) -> F32:
        """Return rows as they are stored as float32; raises what the function of this name raises."""
        if self.is_narrow:
            wide = np.empty(values.shape, np.float32)
            widen(np.ascontiguousarray(values), wide)
            values = wide
        return as_float32(self.X, values)

    def chunk_bytes(self, index: int, chunk_rows: int) -> int:  # noqa: ARG002
        """See Layout."""
        return 4 * chunk_rows * self.n_features

    def stream_bytes(self, chunk_rows: int) -> int:
        """See Layout."""
        chunk_bytes = chunk_rows * self.n_features * max(4, self.X.array.dtype.itemsize)
        tile_bytes = TILE_BYTES + 4 * self.n_features
        tile_bytes *= 1 + self.is_narrow  # the values as they are stored, and as float32
        return tile_bytes + 2 * self.X.ahead_bytes if self.streams else 4 * chunk_bytes

    def advise(self, index: int, start: int, stop: int) -> None:  # noqa: ARG002
        """See Layout."""
        self.X.advise(start, stop)
