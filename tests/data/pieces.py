"""Pieces of a source put together, and what reading a bad one says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.data.source_rows import SourceRows
from streamsvm.errors import InputError

NUMBERS = np.array([[0, 1, 2], [3, 0, 1], [1, 1, 0], [0, 0, 5]])


def together(pieces: Iterator[SourceRows]) -> dict[str, Any]:
    """All pieces of a source; X as one dense array of float32, as ingest rounds it."""
    read = list(pieces)
    for rows in read:
        assert rows.X.dtype in ((np.float32, np.float64) if isinstance(rows.X, np.ndarray) else (np.float32,))
        assert rows.n_rows > 0
        assert rows.X.flags.c_contiguous if isinstance(rows.X, np.ndarray) else rows.X.has_canonical_format
        assert rows.feature_names == read[0].feature_names
    dense = [rows.X.astype(np.float32) if isinstance(rows.X, np.ndarray) else rows.X.toarray() for rows in read]
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
