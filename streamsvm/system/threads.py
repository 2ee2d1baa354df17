"""Work on several threads: on a few items at once, or on a stream, whose next items are prepared ahead."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import lru_cache
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_on_threads(work: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """Return work(item) for each item, in order, computed on up to this many threads.

    Each call of `work` gets a copy of the caller's context, with the time limit and NumPy's handling of overflow.
    """
    if threads == 1 or len(items) < 2:
        return list(map(work, items))
    contexts = [copy_context() for _ in items]
    return list(_open_pool(threads).map(lambda context, item: context.run(work, item), contexts, items))


@lru_cache(maxsize=1)
def _open_pool(threads: int) -> ThreadPoolExecutor:
    """Return a cached pool of threads, because starting threads would take longer than many calls."""
    return ThreadPoolExecutor(threads, thread_name_prefix="streamsvm-parts")


os.register_at_fork(after_in_child=_open_pool.cache_clear)  # threads do not survive a fork


@contextmanager
def unjoined_pool(threads: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """Yield a thread pool for a generator. On exit, pending work is cancelled, and the threads are not joined.

    Joining could deadlock: after an error, the garbage collector may close the generator in a thread that holds a lock
    needed for joining.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def work_ahead(
    items: Iterator[Item], work: Callable[[Item], Result], pool: ThreadPoolExecutor, n_ahead: int
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with work(item), in order, while `pool` works on the next items. `n_ahead` items are in memory.

    Items are taken in the caller's thread. An error in taking or processing an item is raised after all earlier
    results.
    """
    in_flight: deque[tuple[Item, Future[Result]]] = deque()
    failure: Exception | None = None
    while True:
        try:
            item = next(items)
        except StopIteration:  # if stored, it would hold this frame and its items until the next garbage collection
            break
        except Exception as error:
            failure = error
            break
        in_flight.append((item, pool.submit(work, item)))
        del item
        if len(in_flight) == n_ahead:
            yield _take_oldest(in_flight)
    while in_flight:
        yield _take_oldest(in_flight)
    if failure is not None:
        raise failure


def _take_oldest(in_flight: deque[tuple[Item, Future[Result]]]) -> tuple[Item, Result]:
    """Remove the oldest item, and return it with its result. No reference to the item remains in `in_flight`."""
    item, future = in_flight.popleft()
    return item, future.result()
