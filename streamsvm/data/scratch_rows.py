"""Rows that are set aside in a file until all rows of a source are read, and then read once more in their order.

The file has no name, so that nothing is left of it however the process ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from streamsvm.data.source_rows import SourceRows

ARRAYS = ("X", "labels", "qid", "sample_weight", "groups", "merged")  # the fields of SourceRows that are set aside


class ScratchRows(AbstractContextManager["ScratchRows"]):
    """Pieces of dense rows in a file of a folder. folder: None for the system's folder of temporary files."""

    def __init__(self, folder: Path | None) -> None:
        self._file: Any = TemporaryFile(prefix=".streamsvm", dir=folder)  # noqa: SIM115
        self._pieces: list[list[str]] = []

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, rows: SourceRows) -> None:
        """Set a piece aside."""
        self._pieces.append(write_piece(self._file, rows))

    def read(self) -> Iterator[SourceRows]:
        """Yield all pieces in their order."""
        self._file.seek(0)
        for given in self._pieces:
            yield read_piece(self._file, given)


def write_piece(file: Any, rows: SourceRows) -> list[str]:
    """Write dense rows, and return the names of the fields that they have."""
    given = [name for name in ARRAYS if getattr(rows, name) is not None]
    for name in given:
        np.lib.format.write_array(file, np.ascontiguousarray(getattr(rows, name)), allow_pickle=False)
    return given


def read_piece(file: Any, given: Sequence[str]) -> SourceRows:
    """Return the next rows of a file, which have these fields."""
    arrays: dict[str, Any] = {name: np.lib.format.read_array(file, allow_pickle=False) for name in given}
    return replace(SourceRows(arrays.pop("X")), **arrays)
