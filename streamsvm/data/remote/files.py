"""Objects in a store: byte ranges of objects, sources (streamed or copied first), and folders of files.

The ranges of an object are requested ahead of their use. A background thread carries the requests out, so that several
are in flight while other threads compute. Small objects are written by one request, large ones in parts.

A source has no checksums. If the store identifies versions by an e_tag, all bytes come from one version of the object,
or reading fails. Without e_tags, a change is detected only if it changes the size. Files of a folder are fetched and
written whole.
"""

from __future__ import annotations

import errno
import io
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.remote import store as stores
from streamsvm.system.errors import InputError, IntegrityError, ReadError
from streamsvm.system.files import is_remote

if TYPE_CHECKING:
    from streamsvm.data.remote.objects import RemoteStore

RANGE_BYTES = 2 << 20  # the maximum number of bytes per request
RANGES_AHEAD = 8  # for one object: the maximum number of ranges that are requested but not used yet
AHEAD_BYTES = (RANGES_AHEAD + 1) * RANGE_BYTES  # the memory for ranges, including the range in use

Bytes = npt.NDArray[np.uint8]
Range = tuple[int, int]


class ObjectFile:
    """An object of known size, opened for reading byte ranges in ascending order (see data.store.chunks.StoredFile).

    The first ranges are requested at once, and further ranges as earlier ones are used.
    kind: the word for the object in messages. e_tag: the version of the object to read (None: any).
    begin: the offset in the object from which the ranges count.
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
        """Fill the buffer from byte `begin` on. Raises IntegrityError if the object is missing or has another size."""
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
        """Do nothing: this class makes no local copies (data.store.places does)."""

    def close(self) -> None:
        """Cancel the requests that have not been answered."""
        for _, future in self._requested:
            future.cancel()
        self._requested.clear()

    def _request(self) -> None:
        """Request the next ranges, up to RANGES_AHEAD requests in flight."""
        while len(self._requested) < RANGES_AHEAD and (following := next(self._wanted, None)) is not None:
            self._requested.append((following, self._ask(following)))

    def _ask(self, wanted: Range) -> Future[Any]:
        return stores.begin(self._store.get_range(self._key, *wanted, self._e_tag))

    def _take_next(self, at: int, end: int) -> None:
        """Fetch the requested range that contains byte `at`, or the bytes at:end if no such range was requested."""
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
        """Return the bytes of an answer. Raises IntegrityError if the object is missing or has another size."""
        try:
            with stores.reading(self._url):
                content, size = stores.wait_for(future)
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


PART_BYTES = 8 << 20  # the minimum size of the parts in which a large object is sent
PARTS_IN_FLIGHT = 4
PUT_BYTES = (PARTS_IN_FLIGHT + 3) * PART_BYTES  # memory for sending an object, including the blocks being assembled


async def put_object(store: Any, url: str, key: str, parts: Iterable[Any], n_bytes: int, mode: Any = None) -> Any:
    """Write an object of n_bytes, whose content comes in parts of any size, and return its new e_tag.

    mode: "create" writes only if no such object exists, "overwrite" always writes, and {"e_tag": known} only replaces
    the known version. With a mode, the object is sent in a single request. Raises WriteError naming the URL of the
    object.
    """
    import obstore

    several = n_bytes > PART_BYTES and mode is None
    with stores.writing(f"{url}/{key}"):
        content: Any = _make_blocks(parts) if several else b"".join(parts)
        sizes: Any = {"chunk_size": PART_BYTES, "max_concurrency": PARTS_IN_FLIGHT}
        return (await obstore.put_async(store, key, content, mode=mode, use_multipart=several, **sizes))["e_tag"]


def _make_blocks(parts: Iterable[Any]) -> Iterator[bytes]:
    """Yield the bytes of the parts in blocks of at least PART_BYTES and less than twice PART_BYTES."""
    block = bytearray()
    for part in parts:
        content = memoryview(part)
        for at in range(0, len(content), PART_BYTES):
            block += content[at : at + PART_BYTES]
            if len(block) >= PART_BYTES:
                yield bytes(block)
                block = bytearray()
    if block:
        yield bytes(block)


class RemoteFile(io.RawIOBase):
    """An object, opened as a file. Raises OSError, as files on a disk do.

    ahead: whether the file will be read from start to end; then its bytes are requested ahead.
    """

    def __init__(self, url: str, ahead: bool = True) -> None:
        self._object: ObjectFile | None = None  # if the store refuses, `close` has nothing to close
        self.url, self._position = url, 0
        self.n_bytes, self.e_tag = find_state(url)
        folder, _, name = url.rpartition("/")
        wanted = [(0, self.n_bytes)] * ahead
        store = stores.open_store(quote_folder(folder))
        self._object = ObjectFile(store, name, self.n_bytes, wanted, "file", self.e_tag)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the next bytes, and return their number."""
        n_bytes = min(len(buffer), self.n_bytes - self._position)
        assert self._object is not None
        try:
            self._object.fill(np.frombuffer(buffer, np.uint8)[:n_bytes], self._position)
        except (IntegrityError, ReadError) as error:
            raise _as_os_error(error, self.url) from None
        self._position += n_bytes
        return n_bytes

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a byte, counted from the start, the current position or the end, and return the new position."""
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.n_bytes}[whence]
        return self._position

    def close(self) -> None:
        """Cancel the pending requests, and close the file."""
        if self._object is not None and not self.closed:
            self._object.close()
        super().close()


def open_binary(path: str | Path, ahead: bool = True) -> IO[bytes]:
    """Open a file, or an object in a store, for reading. Raises OSError on failure.

    ahead: whether the file will be read from start to end.
    """
    return io.BufferedReader(RemoteFile(str(path), ahead), RANGE_BYTES) if is_remote(path) else open(path, "rb")


@contextmanager
def copied(path: str | Path) -> Iterator[Path]:
    """Yield a local file with the content of a path: the file itself, or a temporary copy of an object.

    Raises OSError if the object cannot be read.
    """
    if not is_remote(path):
        yield Path(path)
        return
    with TemporaryDirectory(prefix="streamsvm-source") as folder:
        copy = Path(folder) / str(path).rpartition("/")[2]
        copy_to(str(path), copy)
        yield copy


def copy_to(url: str, path: Path) -> str | None:
    """Copy an object to a local file, and return its e_tag. Raises OSError if the object cannot be read."""
    with RemoteFile(url) as source, path.open("wb") as file:
        while part := source.read(RANGE_BYTES):
            file.write(part)
        return source.e_tag


def find_size(path: str | Path) -> int:
    """Return the size of a file, or of an object in a store, in bytes. Raises OSError if it does not exist."""
    return find_state(str(path))[0] if is_remote(path) else os.stat(path).st_size


def is_object(url: str) -> bool:
    """Return whether an object with this URL exists. Raises ReadError if the store does not answer."""
    try:
        _ask_store(url)
    except FileNotFoundError:
        return False
    return True


def quote_folder(url: str) -> str:
    """Escape the URL of a folder, since obstore decodes URLs. In http URLs, keys are already encoded."""
    return url if url.startswith("http") else url.replace("%", "%25")


def find_state(url: str) -> tuple[int, str | None]:
    """Return the size and the version of an object. Raises OSError if the store does not report them."""
    try:
        about = _ask_store(url)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from None
    except ReadError as error:
        raise _as_os_error(error, url) from None
    return int(about["size"]), about["e_tag"]


def _ask_store(url: str) -> Any:
    """Return the metadata of an object. Raises FileNotFoundError or ReadError."""
    stores.refuse_secrets(url)  # checks the whole URL, since a query would count as a part of the object's name
    folder, _, name = url.rpartition("/")
    return stores.open_store(quote_folder(folder)).ask_about(name)


def _as_os_error(error: InputError, url: str) -> OSError:
    """Return an OSError with the reason alone, because callers put the name of the file before it."""
    return OSError(errno.EIO, str(error).removeprefix(f"{url}: "))
