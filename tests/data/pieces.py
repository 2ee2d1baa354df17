"""Pieces of a source put together, and what reading a bad one says."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from streamsvm.data.rows.source import SourceRows
from streamsvm.data.sources import arrow
from streamsvm.data.sources.csv import open_csv
from streamsvm.data.sources.table_stream import TableStream, read_table
from streamsvm.data.tables.columns import Columns
from streamsvm.data.tables.encoder import TableEncoder
from streamsvm.system.errors import InputError

Pieces = Generator[SourceRows, None, None]

ANY = Columns()
NUMBERS = np.array([[0, 1, 2], [3, 0, 1], [1, 1, 0], [0, 0, 5]])


def read_csv(paths: Sequence[str | Path], columns: Columns, block_bytes: int | None = None, threads: int = 2) -> Pieces:
    """The rows of CSV that holds numbers alone."""

    @contextmanager
    def opened(path: str, columns: Columns, before: tuple[str, ...] | None) -> Iterator[TableStream]:
        with open_csv(path, columns, before, block_bytes) as stream:
            yield replace(stream, threads=threads)

    return read_table(paths, columns, opened, TableEncoder(columns))


def read_parquet(paths: Sequence[str | Path], columns: Columns, piece_rows: int = arrow.PIECE_ROWS) -> Pieces:
    """The rows of Parquet files that hold numbers alone."""
    with patch.object(arrow, "PIECE_ROWS", piece_rows):
        yield from read_table(paths, columns, arrow.open_parquet, TableEncoder(columns))


def together(pieces: Iterator[SourceRows]) -> dict[str, Any]:
    """All pieces of a source; X as one dense array of float32, as ingest rounds it."""
    read = list(pieces)
    for rows in read:
        assert rows.X.dtype in (np.float32, np.float64)
        assert rows.n_rows > 0
        assert rows.X.flags.c_contiguous if isinstance(rows.X, np.ndarray) else rows.X.has_canonical_format
        assert rows.feature_names == read[0].feature_names
    with np.errstate(under="ignore"):
        rounded = [rows.X.astype(np.float32) for rows in read]
    dense = [X if isinstance(X, np.ndarray) else X.toarray() for X in rounded]
    whole: dict[str, Any] = {"X": np.concatenate(dense), "pieces": len(read), "names": read[0].feature_names}
    for role in ("labels", "qid", "sample_weight"):
        parts = [getattr(rows, role) for rows in read]
        whole[role] = None if parts[0] is None else np.concatenate(parts)
    return whole


def listed(pieces: Iterator[SourceRows]) -> dict[str, Any]:
    """The same as lists."""
    whole = together(pieces)
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in whole.items()}


def fault(source: Iterator[SourceRows]) -> str:
    """What reading says, without the options that would help."""
    with pytest.raises(InputError) as caught:
        list(source)
    return re.split("; (?:ingest --|training rows need)", str(caught.value))[0]


def fault_in(source: Iterator[SourceRows], path: Path | str) -> str:
    """What reading says, without the file's name in front."""
    message = fault(source)
    assert message.startswith(f"{path}:")
    return message[len(str(path)) + 1 :].strip()
