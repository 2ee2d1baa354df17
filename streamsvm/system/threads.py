"""Parallel work on a stream: threads work on the next items while the results of earlier ones are used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


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
