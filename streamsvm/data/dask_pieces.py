"""The partitions of Dask collections, computed where they are.

With a client of a cluster its workers compute them, some ahead of the one that is asked for, so that partitions which
lie on workers (`persist`) are used there, and several are computed at once. Without a client this thread computes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import distributed


def list_partitions(values: Any) -> Iterator[Callable[[], Any]]:
    """Yield, for each partition of a Dask array or frame along its rows, a function that returns it.

    Workers compute one partition more than they have threads ahead.
    """
    n_partitions = values.numblocks[0] if hasattr(values, "numblocks") else values.npartitions
    parts = (values.partitions[i] for i in range(n_partitions))
    client = find_client(values)
    if client is None:
        yield from (partial(part.compute, scheduler="synchronous") for part in parts)
        return
    n_ahead = 1 + sum(client.nthreads().values())
    waiting: deque[Any] = deque()
    for part in parts:
        waiting.append(client.compute(part))
        if len(waiting) > n_ahead:
            yield partial(_await, waiting.popleft())
    while waiting:
        yield partial(_await, waiting.popleft())


def _await(partition: distributed.Future) -> Any:
    with thread_given_up():
        return partition.result()


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
