"""The places where the raw chunks of an array lie: a folder on a local disk, or an object store.

A place opens the file of a chunk, and begins to read one that is needed soon: on a local disk the operating system
reads ahead, and from a store the first ranges are requested.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from streamsvm.data.chunk_file import Bytes, StoredFile
from streamsvm.data.object_file import AHEAD_BYTES, ObjectFile, Range
from streamsvm.data.object_store import RemoteStore
from streamsvm.errors import IntegrityError

T = TypeVar("T")
MOST_ANNOUNCED = 8  # files of chunks, by one thread


class ChunkPlace(Protocol):
    """The place of the chunks of one array. key: the name of a chunk's file; n_bytes: its size.

    ranges: the bytes that will be read, which ascend.
    ahead_bytes: the most memory that an open chunk takes for what is read ahead.
    """

    ahead_bytes: int

    def open(self, key: str, n_bytes: int, ranges: Sequence[Range]) -> StoredFile:
        """Open the file of a chunk. Raises IntegrityError if it is found missing or of another size."""

    def advise(self, key: str, n_bytes: int, ranges: Sequence[Range]) -> None:
        """Begin to read what this thread will open soon."""

    def forget_advised(self) -> None:
        """Give up what this thread has begun to read and not opened."""


class LocalPlace:
    """A folder on a local disk. See ChunkPlace."""

    ahead_bytes = 0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._announced = _Announced[None]()

    def open(self, key: str, n_bytes: int, ranges: Sequence[Range]) -> LocalFile:  # noqa: ARG002
        """See ChunkPlace."""
        self._announced.files.pop((key, ()), None)
        return LocalFile(self.folder / key, n_bytes)

    def advise(self, key: str, n_bytes: int, ranges: Sequence[Range]) -> None:  # noqa: ARG002
        """See ChunkPlace."""
        files = self._announced.files
        if (key, ()) in files:
            return
        files[key, ()] = None
        if len(files) > MOST_ANNOUNCED:
            files.pop(next(iter(files)))
        if hasattr(os, "posix_fadvise"):
            try:
                with open(self.folder / key, "rb", buffering=0) as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
            except OSError:
                return  # the read itself will report the error

    def forget_advised(self) -> None:
        """See ChunkPlace. The operating system has the memory."""
        self._announced.files.clear()


class LocalFile:
    """A file on a local disk. See chunk_file.StoredFile."""

    def __init__(self, path: Path, n_bytes: int) -> None:
        self.name = str(path)
        try:
            self._file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:
            raise IntegrityError(f"{path}: chunk is missing") from None
        except OSError as error:
            raise IntegrityError(f"{path}: chunk cannot be opened: {error.strerror}") from error
        size = os.fstat(self._file).st_size
        if size != n_bytes:
            os.close(self._file)
            raise IntegrityError(f"{path}: chunk has {size} bytes instead of {n_bytes}")

    def fill(self, buffer: Bytes, begin: int) -> None:
        """See StoredFile."""
        done = os.preadv(self._file, [buffer.data], begin)  # as a rule one call is enough
        while done < len(buffer):
            n = os.preadv(self._file, [buffer.data[done:]], begin + done)
            if n == 0:
                raise IntegrityError(f"{self.name}: chunk was cut short while it was read")
            done += n

    def keep(self) -> None:
        """Do nothing, as the file is on a local disk already."""

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class RemotePlace:
    """A folder of objects in a store. See ChunkPlace."""

    ahead_bytes = AHEAD_BYTES

    def __init__(self, store: RemoteStore, path: str) -> None:
        self.store, self.path = store, path
        self._announced = _Announced[ObjectFile]()

    def open(self, key: str, n_bytes: int, ranges: Sequence[Range]) -> ObjectFile:
        """See ChunkPlace. What was announced as a whole may be read in parts."""
        for announced in (tuple(ranges), ((0, n_bytes),)):
            if (file := self._announced.files.pop((key, announced), None)) is not None:
                return file
        return self._open(key, n_bytes, ranges)

    def advise(self, key: str, n_bytes: int, ranges: Sequence[Range]) -> None:
        """See ChunkPlace."""
        files = self._announced.files
        if (key, tuple(ranges)) not in files:
            files[key, tuple(ranges)] = self._open(key, n_bytes, ranges)
        if len(files) > MOST_ANNOUNCED:  # the oldest one was announced by a pass that has ended early
            files.pop(next(iter(files))).close()

    def forget_advised(self) -> None:
        """See ChunkPlace."""
        while self._announced.files:
            self._announced.files.popitem()[1].close()

    def _open(self, key: str, n_bytes: int, ranges: Sequence[Range]) -> ObjectFile:
        return ObjectFile(self.store, f"{self.path}/{key}", n_bytes, ranges)


class _Announced(threading.local, Generic[T]):
    """What a thread has announced and not opened yet, by key and ranges."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, tuple[Range, ...]], T] = {}
