"""What forces two threads into the order in which one of them finds a thing half done, or waits for the other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, RLock, get_ident
from typing import Any


class ToldLock:
    """A lock that tells when another thread asks for it."""

    def __init__(self) -> None:
        self.lock, self.owner, self.is_asked = RLock(), get_ident(), Event()

    def __enter__(self) -> None:
        if get_ident() != self.owner:
            self.is_asked.set()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def begin(self, pool: ThreadPoolExecutor, work: Callable[[], Any]) -> Future[Any]:
        """Begin work in another thread, and return once it waits for this lock, or is done because it needs none."""
        future = pool.submit(work)
        future.add_done_callback(lambda _: self.is_asked.set())
        assert self.is_asked.wait(60)
        return future
