"""Tiles: the parts of about half a MiB in which the rows of a chunk are streamed and computed on.

So a tile is still in the second-level cache when a kernel computes on it, and streaming needs a MiB for chunks of any
size. The limits of the tiles depend on the rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.numeric.rows import I64, CsrRows, Matrix, Rows

TILE_BYTES = 1 << 19
TILE_ITEMS = TILE_BYTES // 8  # a sparse item is a float32 and an int32


def split(X: Matrix) -> Iterator[Matrix]:
    """Cut rows in memory into the tiles in which they would be streamed from disk."""
    if isinstance(X, CsrRows):
        for a, b in cut_items(X.indptr):
            p, q = X.indptr[a], X.indptr[b]
            yield CsrRows(X.data[p:q], X.indices[p:q], X.indptr[a : b + 1] - p, X.n_features)
    else:
        tile_rows = count_tile_rows(X.shape[1])
        for a in range(0, len(X), tile_rows):
            yield X[a : a + tile_rows]


def count_tile_rows(n_features: int) -> int:
    """Return the number of dense rows of a tile."""
    return max(1, TILE_BYTES // (4 * n_features))


def cut_items(indptr: I64) -> Iterator[tuple[int, int]]:
    """Yield pairs (a, b) so that the rows a:b have at most TILE_ITEMS items, or are one longer row."""
    a, n = 0, len(indptr) - 1
    while a < n:
        b = int(np.searchsorted(indptr, indptr[a] + TILE_ITEMS, side="right")) - 1
        b = min(max(b, a + 1), a + TILE_ITEMS, n)
        yield a, b
        a = b


def join_vectors(tiles: Iterator[Matrix], start: int, vectors: dict[str, Any]) -> Iterator[Rows]:
    """Join the tiles of consecutive rows, the first of which is row `start`, with their part of the vectors."""
    at = 0
    for X in tiles:
        end = at + X.shape[0]
        yield Rows(start + at, X, **{name: values[at:end] for name, values in vectors.items()})
        at = end


def split_rows(rows: Rows) -> Iterator[Rows]:
    """Cut rows in memory into the tiles in which they would be streamed from disk."""
    return join_vectors(split(rows.X), rows.start, rows.vectors)
