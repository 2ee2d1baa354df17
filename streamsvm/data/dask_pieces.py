"""The partitions of Dask collections, computed where they are.

Rows, labels and weights often come from the same data. Their partitions are computed together, in one graph, so that
the data are loaded once.

With a client of a cluster its workers compute them, some ahead of the one that is asked for, so that partitions which
lie on workers (`persist`) are used there, and several are computed at once. Without a client this thread computes them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import dask
import distributed


class Partitions:
    """The partitions of Dask collections with equally many of them along their rows, which are computed together.

    A partition of one collection waits here until it is asked for.
    """

    def __init__(self, collections: Sequence[Any]) -> None:
        self._computed = _compute_together(collections)
        self._waiting: list[deque[Any]] = [deque() for _ in collections]
        self.n_partitions = count_partitions(collections[0])

    def __getitem__(self, k: int) -> Iterator[Callable[[], Any]]:
        """Return an iterator with a function for each partition of collection k, which returns the partition."""
        return (partial(self._take, k) for _ in range(self.n_partitions))

    def _take(self, k: int) -> Any:
        if not self._waiting[k]:
            for waiting, part in zip(self._waiting, next(self._computed)(), strict=True):
                waiting.append(part)
        return self._waiting[k].popleft()


def _compute_together(collections: Sequence[Any]) -> Iterator[Callable[[], Sequence[Any]]]:
    """Yield, for each partition, a function that returns this partition of every collection.

    Workers compute one partition more than they have threads ahead.
    """
    parts = ([each.partitions[i] for each in collections] for i in range(count_partitions(collections[0])))
    client = find_client(collections)
    if client is None:
        yield from (partial(dask.compute, *some, scheduler="synchronous") for some in parts)
        return
    n_ahead = 1 + sum(client.nthreads().values())
    waiting: deque[Any] = deque()
    for some in parts:
        waiting.append(client.compute(some))
        if len(waiting) > n_ahead:
            yield partial(_await, waiting.popleft())
    while waiting:
        yield partial(_await, waiting.popleft())


def count_partitions(values: Any) -> int:
    """Return the number of partitions of a Dask array or frame along its rows."""
    return int(values.numblocks[0] if hasattr(values, "numblocks") else values.npartitions)


def have_same_partitions(left: Any, right: Any) -> bool:
    """Return whether both are arrays or both frames, with equally many partitions, of the same lengths if known."""
    if hasattr(left, "chunks") != hasattr(right, "chunks"):
        return False  # Dask would turn frames into graphs that it cannot optimise
    lengths = [getattr(values, "chunks", [[math.nan] * count_partitions(values)])[0] for values in (left, right)]
    if len(lengths[0]) != len(lengths[1]):
        return False
    return all(a == b or math.isnan(a) or math.isnan(b) for a, b in zip(*lengths, strict=True))


def _await(partitions: list[distributed.Future]) -> list[Any]:
    with thread_given_up():
        return [partition.result() for partition in partitions]


@contextmanager
def thread_given_up() -> Iterator[None]:
    """Let the worker that carries out this task use its thread within the block, in which the task waits for others.

    A worker may have one thread only, and the task would wait for tasks that never begin. Outside of a task, or in one
    that has given up its thread already (distributed.worker_client), nothing is done.
    """
    try:
        distributed.secede()
    except (ValueError, KeyError, AttributeError):
        yield
        return
    try:
        yield
    finally:
        distributed.rejoin()


def find_client(values: Any) -> distributed.Client | None:
    """Return the client of the cluster on which parts of a collection lie, or the current one; None without any."""
    for future in distributed.futures_of(values):
        return future.client
    try:
        return distributed.default_client()
    except ValueError:
        return None
