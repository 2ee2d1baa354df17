"""Passes that set rows aside, or go over a subset of the rows only: in the files of data.scratch, if there is a folder.

A pass over a subset reads the file of each group. If there is none, because there is no folder, or the run was resumed,
or too many rows were chosen, the chunks of the group are read and the same rows are chosen again. Both give the same
tiles and so the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from streamsvm.data.scratch import ScratchWriter, read_scratch
from streamsvm.data.source import RowSource
from streamsvm.numeric.rows import I64, Rows, take_rows
from streamsvm.requests import Subset

CHUNK_BYTES = 105 / 100  # of memory for a byte of a chunk that is kept there


class Costed(Protocol):
    """What counts the bytes that a task writes."""

    written_bytes: int


@dataclass(frozen=True)
class Scratch:
    """Where rows are set aside. most_share: of the rows of a group; if more are chosen, it does not pay."""

    folder: str
    most_share: float

    def find_file(self, chunks: range) -> Path:
        """Return the path of the file with the rows of a group of chunks."""
        return Path(self.folder) / f"{chunks[0]}.rows"


def plan_scratch(folder: str | None, source: RowSource, pin_bytes: int) -> Scratch | None:
    """Return where rows are set aside, and how many: they are written and read again, instead of being read.

    What is kept in memory is not read again in any case. pin_bytes: the memory for chunks, of all processes together.
    """
    kept = pin_bytes / (CHUNK_BYTES * max(1, source.nbytes))
    share = max(0.0, 1.0 - kept) / 2 if source.on_disk else 0.0
    return None if folder is None else Scratch(folder, share)


def set_aside(
    tiles: Iterator[Rows], subset: Subset, scratch: Scratch | None, chunks: range, n_rows: int, costs: Costed
) -> Iterator[Rows]:
    """Yield the tiles of a group with the places of the rows of the subset, and write these rows.

    n_rows: of the group. The bytes that are written are added to `costs`. Nothing is written without a scratch folder.
    """
    writer = None
    if scratch is not None and scratch.most_share > 0.0:
        writer = ScratchWriter(scratch.find_file(chunks), int(scratch.most_share * n_rows))
    try:
        for rows in tiles:
            chosen = subset.choose(rows, *subset.shared)
            if writer is not None and len(chosen):
                writer.append(pick_rows(rows, chosen), rows.start + chosen)
            yield replace(rows, chosen=chosen)
        if writer is not None:
            writer.finish()
    finally:
        if writer is not None:
            writer.close()
            costs.written_bytes += writer.written_bytes


def read_aside(scratch: Scratch | None, chunks: range) -> tuple[Iterator[Rows], int] | None:
    """Return the tiles of a group's file and its bytes, or None if the rows of the subset are not in a file."""
    if scratch is None:
        return None
    path = scratch.find_file(chunks)
    return (read_scratch(path), path.stat().st_size) if path.exists() else None


def choose_again(tiles: Iterator[Rows], subset: Subset) -> Iterator[Rows]:
    """Yield the rows of the subset in each tile that has some."""
    for rows in tiles:
        chosen = subset.choose(rows, *subset.shared)
        if len(chosen):
            yield pick_rows(rows, chosen)


def pick_rows(rows: Rows, chosen: I64) -> Rows:
    """Return the rows at these places of a tile, in memory of their own."""
    assert rows.y is not None
    weight = None if rows.sample_weight is None else rows.sample_weight[chosen]
    X = take_rows(rows.X, chosen)
    return Rows(-1, X, np.ascontiguousarray(rows.y[chosen]), weight, numbers=rows.start + chosen)
