"""Work on a stream, by several threads, whose results come in the order of the stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from streamsvm.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def unjoined_pool(threads: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """Give a pool of threads to a generator. At the end its waiting work is cancelled, and its threads are not joined.

    After an error the collector may close the generator in a thread that holds a lock which joining needs.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def work_ahead(
    items: Iterator[Item], work: Callable[[Item], Result], pool: ThreadPoolExecutor, n_ahead: int
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with work(item), in order, while `pool` works on the next items: `n_ahead` in all are in memory.

    The items are taken in the thread that asks for results. An error that taking or work raises comes in its place:
    after the results of all items before.
    """
    in_flight: deque[tuple[Item, Future[Result]]] = deque()
    failure: Exception | None = None
    while True:
        try:
            item = next(items)
        except StopIteration:
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


def look_ahead(items: Iterator[Item], count: Callable[[Item], int], enough: int) -> tuple[list[Item], Iterator[Item]]:
    """Return the first items, which together count `enough` or are all, and an iterator of all items.

    An InputError that taking them raises comes in its place: after all items before.
    """
    first, failure = list[Item](), list[InputError]()
    try:
        while sum(map(count, first)) < enough and (item := next(items, None)) is not None:
            first.append(item)
    except InputError as error:
        failure.append(error)

    def go_on(waiting: list[Item]) -> Iterator[Item]:
        while waiting:
            yield waiting.pop(0)  # nothing else holds it then
        if failure:
            raise failure[0]
        yield from items

    return first, go_on(first.copy())


def _take_oldest(in_flight: deque[tuple[Item, Future[Result]]]) -> tuple[Item, Result]:
    """Return the oldest item and its result, which nothing else holds then."""
    item, future = in_flight.popleft()
    return item, future.result()
