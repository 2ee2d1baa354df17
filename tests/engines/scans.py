"""Passes that tell on an engine. Worker processes import these functions by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from distributed import Scheduler

from streamsvm.data.rows.source import RowSource
from streamsvm.engines.cluster import engine as passes
from streamsvm.engines.cluster.task import _kept
from streamsvm.numeric.rows import F64, CsrRows, Rows, stack_rows
from streamsvm.passes import Scan


@dataclass
class Trace:
    """The rows that were added, and under them the tree of sums: combining is neither commutative nor associative."""

    tree: list[Any] = field(default_factory=list)
    frozen: bool = False


def add_to_trace(trace: Trace, rows: Rows, *extra: Any) -> None:
    assert not trace.frozen, "totals were added to after they were combined"
    trace.tree.append((rows.start, rows.n_rows, describe_rows(rows), *(np.asarray(v).tobytes() for v in extra)))


def combine_traces(left: Trace, right: Trace) -> Trace:
    left.frozen = right.frozen = True
    return Trace([left.tree, right.tree])


def describe_rows(rows: Rows) -> bytes:
    """Every bit of rows."""
    X = (rows.X.data, rows.X.indices, rows.X.indptr) if isinstance(rows.X, CsrRows) else (rows.X,)
    return b"".join(part.tobytes() for part in (*X, rows.y, rows.sample_weight) if part is not None)


def trace_scan(shared: tuple[Any, ...] = (), by_row: tuple[Any, ...] = ()) -> Scan:
    return Scan(Trace, add_to_trace, combine_traces, shared, by_row)


def add_unless_unlucky(trace: Trace, rows: Rows, unlucky: int) -> None:
    if rows.start <= unlucky < rows.start + rows.n_rows:
        raise ArithmeticError(f"row {unlucky} is unlucky")
    add_to_trace(trace, rows)


def start_flags() -> list[bool]:
    return []


def add_writable_flags(flags: list[bool], rows: Rows, *arrays: Any) -> None:
    flags.extend(array.flags.writeable for array in arrays)


def join_lists(left: list[Any], right: list[Any]) -> list[Any]:
    return [*left, *right]


def report_rows(carry: list[Any], rows: Rows) -> Iterator[tuple[list[Any], int]]:
    """A step of a sequential pass, in two parts."""
    yield carry, 0
    yield [*carry, describe_rows(rows)], rows.n_rows


def note_unless_unlucky(unlucky: int, carry: list[Any], rows: Rows) -> Iterator[tuple[list[Any], int]]:
    if rows.start == unlucky:
        raise ArithmeticError(f"row {unlucky} is unlucky")
    yield from report_rows(carry, rows)


def describe_chunks(source: RowSource, chunks: Sequence[int]) -> bytes:
    """Every bit of chunks as one."""
    parts = [source.read(index) for index in chunks]
    y = np.concatenate([part.y for part in parts])  # type: ignore[misc]
    weights = [part.sample_weight for part in parts if part.sample_weight is not None]
    weight = np.concatenate(weights) if weights else None
    return describe_rows(Rows(-1, stack_rows([part.X for part in parts]), y, weight))


def pinned_chunks(fingerprint: str) -> list[int]:
    """Chunks of a dataset that this worker process keeps, in order."""
    kept = [caches[fingerprint] for caches, _ in _kept.values() if fingerprint in caches]
    return sorted(index for pins in kept for index in pins.chunks)


def help_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave every group with the worker that has it, however slow that is."""
    for name in ("SHORTEST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(passes, name, 600.0)


async def stop_stealing(dask_scheduler: Scheduler) -> None:
    """Leave every task with the worker that it was given to."""
    await dask_scheduler.extensions["stealing"].stop()


async def start_stealing(dask_scheduler: Scheduler) -> None:
    """Let idle workers take tasks from busy ones again."""
    await dask_scheduler.extensions["stealing"].start()


def neighbours_combined(parts: Sequence[Any]) -> Any:
    """The fixed tree: neighbours are combined, level by level; one without a neighbour waits for the next level."""
    level = list(parts)
    while len(level) > 1:
        level = [list(level[at : at + 2]) if at + 1 < len(level) else level[at] for at in range(0, len(level), 2)]
    return level[0]


def begin_numbers(_: None, rows: Rows, first: float) -> F64:
    """Of each row its number, plus `first`, and the sum of its features."""
    return np.stack((rows.list_numbers() + first, rows.X.sum(axis=1, dtype=float)))


def add_features(numbers: F64, rows: Rows, factor: F64, *weights: F64) -> F64:
    """Add a multiple of the sum of the features to the first number; rows of weight 0 count as zeros."""
    size = rows.X.sum(axis=1, dtype=float) * (1.0 if not weights else weights[0])
    return np.stack((numbers[0] + factor[0] * size, numbers[1]))


def square_numbers(numbers: F64, rows: Rows) -> F64:
    """Square the first number; no features are needed."""
    return np.stack((numbers[0] ** 2, numbers[1]))


def list_numbers(found: list[Any], rows: Rows, *numbers: F64) -> None:
    """Note the numbers of the rows, and how many features the rows came with."""
    found.append((rows.start, rows.X.shape[1], *(part.copy() for part in numbers)))
