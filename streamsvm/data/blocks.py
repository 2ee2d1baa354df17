"""The reader of iterators that yield rows block by block, such as generators, loaders of PyTorch and pandas' chunks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from streamsvm.data.arrays import Stream, count_label_axes, join_streams, name_features, open_stream
from streamsvm.data.source_rows import SourceRows
from streamsvm.errors import InputError, say_count


def refuse_beside(given: Mapping[str, Any], what: str) -> None:
    """Raise InputError for labels and the like that are given beside rows that have their own."""
    for name, values in given.items():
        if values is not None:
            raise InputError(f"{name}: leave it out: X {what}")


def read_blocks(blocks: Iterator[Any], piece_bytes: int = 8 << 20) -> Iterator[SourceRows]:
    """Yield the rows of an iterator of blocks, which are X or pairs (X, y), of all kinds that `read_arrays` takes.

    Raises InputError for a block that differs from those before in its columns, or in having labels.
    """
    labels: deque[Any] = deque()
    first = next(blocks, None)
    if first is None:
        raise InputError("X: no rows")
    has_labels = _is_pair(first)
    names = name_features(first[0] if has_labels else first)

    def pieces() -> Iterator[Any]:
        for k, block in enumerate(chain([first], blocks)):
            if _is_pair(block) != has_labels:
                raise InputError(f"X: block {k + 1} is {'no' if has_labels else 'a'} pair (X, y), unlike those before")
            X, y = block if has_labels else (block, None)
            if name_features(X) != names:
                raise InputError(f"X: block {k + 1} has other columns than those before")
            rows = open_stream(f"X, block {k + 1}", X, 2, piece_bytes)
            if has_labels:
                labels.append(_open_labels(f"y, block {k + 1}", y, rows, piece_bytes))
            yield from rows.pieces

    def label_pieces() -> Iterator[Any]:
        while labels:
            yield from labels.popleft().pieces

    vectors = {"label": Stream("y", None, label_pieces())} if has_labels else {}
    yield from join_streams(Stream("X", None, pieces()), vectors, names)


def _open_labels(where: str, y: Any, rows: Stream, piece_bytes: int) -> Stream:
    """Return the labels of a block as a stream. Raises InputError if they are not as many as its rows."""
    opened = open_stream(where, y, count_label_axes(y), piece_bytes)
    if None not in (opened.n_rows, rows.n_rows) and opened.n_rows != rows.n_rows:
        raise InputError(f"{where}: {say_count(opened.n_rows or 0, 'row')}, but {rows.where} has {rows.n_rows:,}")
    return opened


def _is_pair(block: Any) -> bool:
    """Tell whether a block is a pair (X, y): a tuple, or the list of two arrays that loaders of PyTorch yield."""
    return isinstance(block, tuple | list) and len(block) == 2 and all(hasattr(each, "shape") for each in block)
