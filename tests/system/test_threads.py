"""Work by several threads on a stream, whose results come in order."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from streamsvm.system.threads import map_on_threads, unjoined_pool, work_ahead


def test_results_come_in_order_though_the_first_is_done_last() -> None:
    others = threading.Event()

    def work(item: int) -> int:
        assert item or others.wait(30)
        if item == 2:
            others.set()
        return -item

    with ThreadPoolExecutor(2) as pool:
        assert list(work_ahead(iter(range(9)), work, pool, 3)) == [(k, -k) for k in range(9)]


def test_few_items_are_in_memory() -> None:
    taken = []

    def items() -> Iterator[int]:
        for k in range(50):
            taken.append(k)
            yield k

    with ThreadPoolExecutor(2) as pool:
        for k, _ in work_ahead(items(), str, pool, 3):
            assert len(taken) <= k + 3


@pytest.mark.parametrize("bad", [0, 1, 5])
def test_an_error_comes_in_its_place(bad: int) -> None:
    """Of the stream or of the work, behind what was before it, and the first one wins."""

    def items() -> Iterator[int]:
        yield from range(bad)
        raise OSError("the stream ends here")

    def work(item: int) -> int:
        return 1 // (bad - 1 - item)

    with ThreadPoolExecutor(2) as pool:
        results = work_ahead(items(), str, pool, 4)
        assert [next(results)[0] for _ in range(bad)] == list(range(bad))
        with pytest.raises(OSError, match="the stream ends here"):
            next(results)
        results = work_ahead(items(), work, pool, 4)
        for _ in range(bad - 1):
            next(results)
        with pytest.raises(ZeroDivisionError if bad else OSError):
            next(results)


def test_a_generator_that_is_closed_does_not_wait_for_the_work_of_its_threads() -> None:
    """The work of the second item ends after the generator is closed, and that of the others never begins."""
    second_began, closed, ended, begun = threading.Event(), threading.Event(), threading.Event(), []

    def work(item: int) -> None:
        begun.append(item)
        if item:
            second_began.set()
            assert closed.wait(30), "the generator waits for this work"
            ended.set()

    def results() -> Generator[int, None, None]:
        with unjoined_pool(1, "test") as pool:
            for item, _ in work_ahead(iter(range(9)), work, pool, 4):
                yield item

    generator = results()
    assert next(generator) == 0
    assert second_began.wait(30)
    generator.close()
    closed.set()
    assert ended.wait(30)
    assert begun == [0, 1]


def test_threads_handle_overflow_as_the_caller_does() -> None:
    """Warnings are errors here, also in the threads of the pool."""
    large = [np.full(3, 1e300)] * 2
    with np.errstate(over="ignore"):
        squares = map_on_threads(lambda each: each * each, large, 2)
    assert np.isinf(squares).all()
