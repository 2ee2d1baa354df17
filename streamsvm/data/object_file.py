"""An object in a store, read as the file of a chunk is: ranges of it are requested ahead of their use.

The requests are carried out by a thread of the process, so that several are in flight while others compute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.object_store import RemoteStore, begin, reading, wait_for
from streamsvm.errors import IntegrityError

RANGE_BYTES = 2 << 20  # of one request
RANGES_AHEAD = 8  # requests of one object that are in flight, or wait for being used
AHEAD_BYTES = (RANGES_AHEAD + 1) * RANGE_BYTES  # with the range that is being used

Bytes = npt.NDArray[np.uint8]
Range = tuple[int, int]


class ObjectFile:
    """An object of a known size, opened for reading ranges of its bytes, which ascend. See chunk_file.StoredFile.

    The first ranges are requested at once, and the others in their turn.
    kind: what the object is called in messages; e_tag: the version of the object that is read, if it matters.
    begin: the byte of the object from which the bytes that are read are counted.
    """

    def __init__(
        self,
        store: RemoteStore,
        key: str,
        n_bytes: int,
        ranges: Iterable[Range],
        kind: str = "chunk",
        e_tag: str | None = None,
        begin: int = 0,
    ) -> None:
        self.name = self._url = f"{store.url}/{key}"
        self.n_bytes, self.kind, self._begin = n_bytes, kind, begin
        self._store, self._key, self._e_tag = store, key, e_tag
        self._wanted = _cut((begin + start, begin + stop) for start, stop in ranges)
        self._requested: deque[tuple[Range, Future[Any]]] = deque()
        self._held: tuple[Range, Bytes] = ((0, 0), np.empty(0, np.uint8))
        self._request()

    def fill(self, buffer: Bytes, begin: int) -> None:
        """Fill the buffer from byte `begin` on. Raises IntegrityError if the object is missing or of another size."""
        done, begin = 0, begin + self._begin
        while done < len(buffer):
            at = begin + done
            (start, stop), content = self._held
            if not start <= at < stop:
                self._take_next(at, begin + len(buffer))
                continue
            part = content[at - start : at - start + len(buffer) - done]
            buffer[done : done + len(part)] = part
            done += len(part)

    def keep(self) -> None:
        """Do nothing, as no copies are kept (data.disk_cache keeps them)."""

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
        return begin(self._store.get_range(self._key, *wanted, self._e_tag))

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
            with reading(self._url):
                content, size = wait_for(future)
        except FileNotFoundError:
            raise IntegrityError(f"{self._url}: {self.kind} is missing") from None
        if size != self.n_bytes:
            raise IntegrityError(f"{self._url}: {self.kind} has {size} bytes instead of {self.n_bytes}")
        if len(content) != wanted[1] - wanted[0]:
            raise IntegrityError(f"{self._url}: {self.kind} was cut short while it was read")
        return np.frombuffer(content, np.uint8)


def _cut(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yield the ranges in pieces of at most RANGE_BYTES."""
    for start, stop in ranges:
        for at in range(start, stop, RANGE_BYTES):
            yield at, min(stop, at + RANGE_BYTES)
