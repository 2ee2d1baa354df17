"""The places where the raw chunks of an array lie: a folder on a local disk, or an object store.

A place opens a chunk, which is a file or lies in a shard, and begins to read one that is needed soon: on a local disk
the operating system reads ahead, and from a store the first ranges are requested.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np

from streamsvm.data.chunk_file import Bytes, StoredFile
from streamsvm.data.object_file import AHEAD_BYTES, ObjectFile, Range
from streamsvm.data.object_store import RemoteStore
from streamsvm.data.shards import Shards, Span
from streamsvm.errors import IntegrityError

T = TypeVar("T")
MOST_ANNOUNCED = 8  # chunks, by one thread


class ChunkPlace(Protocol):
    """The place of the chunks of one array. span: where a chunk lies.

    ranges: the bytes of the chunk that will be read, which ascend.
    ahead_bytes: the most memory that an open chunk takes for what is read ahead.
    """

    ahead_bytes: int

    def open(self, span: Span, ranges: Sequence[Range]) -> StoredFile:
        """Open a chunk. Raises IntegrityError if its file is found missing or of another size."""

    def advise(self, span: Span, ranges: Sequence[Range]) -> None:
        """Begin to read what this thread will open soon."""

    def forget_advised(self) -> None:
        """Give up what this thread has begun to read and not opened."""


class LocalPlace:
    """A folder on a local disk. See ChunkPlace."""

    ahead_bytes = 0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._announced = _Announced[None]()

    def open(self, span: Span, ranges: Sequence[Range]) -> LocalFile:  # noqa: ARG002
        """See ChunkPlace."""
        self._announced.files.pop((span.own_key, ()), None)
        return LocalFile(self.folder, span)

    def advise(self, span: Span, ranges: Sequence[Range]) -> None:  # noqa: ARG002
        """See ChunkPlace."""
        files = self._announced.files
        if (span.own_key, ()) in files:
            return
        files[span.own_key, ()] = None
        if len(files) > MOST_ANNOUNCED:
            files.pop(next(iter(files)))
        if hasattr(os, "posix_fadvise"):
            try:
                with open(self.folder / span.key, "rb", buffering=0) as file:
                    os.posix_fadvise(file.fileno(), span.begin, span.n_bytes, os.POSIX_FADV_WILLNEED)
            except OSError:
                return  # the read itself will report the error

    def forget_advised(self) -> None:
        """See ChunkPlace. The operating system has the memory."""
        self._announced.files.clear()


class LocalFile:
    """A chunk on a local disk. See chunk_file.StoredFile. kind: what the file is called in messages."""

    def __init__(self, folder: Path, span: Span, kind: str | None = None) -> None:
        path, kind = folder / span.key, kind or span.kind
        self.name, self._begin = f"{folder}/{span.name}", span.begin
        try:
            self._file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:
            raise IntegrityError(f"{path}: {kind} is missing") from None
        except OSError as error:
            raise IntegrityError(f"{path}: {kind} cannot be opened: {error.strerror}") from error
        size = os.fstat(self._file).st_size
        if size != span.file_bytes:
            os.close(self._file)
            raise IntegrityError(f"{path}: {kind} has {size} bytes instead of {span.file_bytes}")

    def fill(self, buffer: Bytes, begin: int) -> None:
        """See StoredFile."""
        begin += self._begin
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

    def open(self, span: Span, ranges: Sequence[Range]) -> ObjectFile:
        """See ChunkPlace. What was announced as a whole may be read in parts."""
        for announced in (tuple(ranges), ((0, span.n_bytes),)):
            if (file := self._announced.files.pop((span.own_key, announced), None)) is not None:
                return file
        return self._open(span, ranges)

    def advise(self, span: Span, ranges: Sequence[Range]) -> None:
        """See ChunkPlace."""
        files = self._announced.files
        if (span.own_key, tuple(ranges)) not in files:
            files[span.own_key, tuple(ranges)] = self._open(span, ranges)
        if len(files) > MOST_ANNOUNCED:  # the oldest one was announced by a pass that has ended early
            files.pop(next(iter(files))).close()

    def forget_advised(self) -> None:
        """See ChunkPlace."""
        while self._announced.files:
            self._announced.files.popitem()[1].close()

    def _open(self, span: Span, ranges: Sequence[Range]) -> ObjectFile:
        file = ObjectFile(self.store, f"{self.path}/{span.key}", span.file_bytes, ranges, span.kind, begin=span.begin)
        file.name = f"{self.store.url}/{self.path}/{span.name}"
        return file


def check_index(place: ChunkPlace, shards: Shards, shard: int) -> None:
    """Raise IntegrityError unless the index of a shard says where its chunks lie."""
    span = shards.find_index(shard)
    file = place.open(span, [(0, span.n_bytes)])
    try:
        found = np.empty(span.n_bytes, np.uint8)
        file.fill(found, 0)
    finally:
        file.close()
    if found.tobytes() != shards.make_index(shard):
        raise IntegrityError(f"{file.name}: damaged (other programs would not find the chunks)")


class _Announced(threading.local, Generic[T]):
    """What a thread has announced and not opened yet, by chunk and ranges."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, tuple[Range, ...]], T] = {}
