"""An object in a store, read as the file of a chunk is: ranges of it are requested ahead of their use.

The requests are carried out by a thread of the process, so that several are in flight while others compute.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from functools import lru_cache
from threading import Thread, current_thread, main_thread
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm import interrupts
from streamsvm.data.object_store import RemoteStore, reading
from streamsvm.errors import IntegrityError

RANGE_BYTES = 2 << 20  # of one request
RANGES_AHEAD = 4  # requests of one object that are in flight, or wait for being used
AHEAD_BYTES = (RANGES_AHEAD + 1) * RANGE_BYTES  # with the range that is being used
POLL_SECONDS = 0.1  # how often a thread that waits for an answer looks whether the work is to end

Bytes = npt.NDArray[np.uint8]
Range = tuple[int, int]


class ObjectFile:
    """An object of a known size, opened for reading ranges of its bytes, which ascend. See chunk_file.StoredFile.

    The first ranges are requested at once, and the others in their turn.
    """

    def __init__(self, store: RemoteStore, key: str, n_bytes: int, ranges: Iterable[Range]) -> None:
        self.name, self.n_bytes = f"{store.url}/{key}", n_bytes
        self._store, self._key = store, key
        self._wanted = _cut(ranges)
        self._requested: deque[tuple[Range, Future[Any]]] = deque()
        self._held: tuple[Range, Bytes] = ((0, 0), np.empty(0, np.uint8))
        self._request()

    def fill(self, buffer: Bytes, begin: int) -> None:
        """Fill the buffer from byte `begin` on. Raises IntegrityError if the object is missing or of another size."""
        done = 0
        while done < len(buffer):
            at = begin + done
            (start, stop), content = self._held
            if not start <= at < stop:
                self._take_next(at, begin + len(buffer))
                continue
            part = content[at - start : at - start + len(buffer) - done]
            buffer[done : done + len(part)] = part
            done += len(part)

    def close(self) -> None:
        """Give up the requests that have not been answered."""
        for _, future in self._requested:
            future.cancel()
        self._requested.clear()

    def _request(self) -> None:
        """Request the ranges that come next, as many as may be in flight."""
        while len(self._requested) < RANGES_AHEAD and (following := next(self._wanted, None)) is not None:
            self._requested.append((following, self._ask(following)))

    def _ask(self, wanted: Range) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(self._store.get_range(self._key, *wanted), _start_loop())

    def _take_next(self, at: int, end: int) -> None:
        """Hold the next range that was announced and ends after byte `at`, or the bytes at:end if there is none."""
        self._held = ((0, 0), np.empty(0, np.uint8))
        while self._requested and self._requested[0][0][1] <= at:
            self._requested.popleft()[1].cancel()
            self._request()
        if self._requested and self._requested[0][0][0] <= at:
            wanted, future = self._requested.popleft()
        else:
            wanted = (at, min(end, at + RANGE_BYTES))
            future = self._ask(wanted)
        content = self._wait(future, wanted)
        self._request()
        self._held = (wanted, content)

    def _wait(self, future: Future[Any], wanted: Range) -> Bytes:
        """Return the bytes of an answer. Raises IntegrityError unless the object has the size that it should have."""
        try:
            with reading(self.name):
                content, size = _wait_for(future)
        except FileNotFoundError:
            raise IntegrityError(f"{self.name}: chunk is missing") from None
        if size != self.n_bytes:
            raise IntegrityError(f"{self.name}: chunk has {size} bytes instead of {self.n_bytes}")
        if len(content) != wanted[1] - wanted[0]:
            raise IntegrityError(f"{self.name}: chunk was cut short while it was read")
        return np.frombuffer(content, np.uint8)


def _cut(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yield the ranges in pieces of at most RANGE_BYTES."""
    for start, stop in ranges:
        for at in range(start, stop, RANGE_BYTES):
            yield at, min(stop, at + RANGE_BYTES)


def _wait_for(future: Future[Any]) -> Any:
    """Return the result of a request. Raises KeyboardInterrupt if the work is to end before it is there."""
    try:
        if current_thread() is main_thread():
            with interrupts.waiting():
                return future.result()
        while True:
            try:
                return future.result(POLL_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
                if interrupts.are_ending():
                    raise KeyboardInterrupt from None
    finally:
        future.cancel()


@lru_cache(maxsize=1)
def _start_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the thread that carries requests out, which ends with the process."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="streamsvm-store", daemon=True).start()
    return loop
