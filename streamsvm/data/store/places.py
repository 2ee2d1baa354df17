"""The places where the raw chunks of an array lie: a folder on a local disk, an object store, or a cache of a store.

A place opens a chunk, in a file of its own or in a shard, and starts reading chunks that will soon be needed: on a
local disk the operating system reads ahead, and from a store the first ranges are requested.

A cache keeps verified chunks of a store on a local disk:

    FOLDER/<fingerprint of the dataset>/<array>/c/3/0     chunk 3 of an array, in a file of its own

Cached copies are compared with the manifest at every read, like the objects in the store. All processes of a machine
share the folder and its size limit. They update the total size under a lock; a copy counts with its full size as soon
as it is begun. If another dataset needs space, datasets that no process has open are removed, the least recently opened
first.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import finalize

import numpy as np

from streamsvm.data.remote.files import AHEAD_BYTES, ObjectFile, Range
from streamsvm.data.store.chunks import Bytes, Shards, Span, StoredFile
from streamsvm.system.errors import InputError, IntegrityError, WriteError
from streamsvm.system.files import is_remote
from streamsvm.system.machine import parse_bytes
from streamsvm.system.shared import made_once

if TYPE_CHECKING:
    from streamsvm.data.remote.objects import RemoteStore

T = TypeVar("T")
MOST_ANNOUNCED = 8  # the largest number of chunks that a thread may announce before it opens them


class _Announced(threading.local, Generic[T]):
    """Chunks that a thread will soon read (`advise`) but has not opened yet, by key and ranges."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, tuple[Range, ...]], T] = {}


class LocalPlace:
    """A folder on a local disk with the chunks of one array.

    ahead_bytes: the maximum memory for data that an open chunk has read ahead.
    """

    ahead_bytes = 0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._announced = _Announced[None]()

    def open(self, span: Span, ranges: Sequence[Range]) -> LocalFile:  # noqa: ARG002
        """Open a chunk for reading the given ascending ranges. Raises IntegrityError if its file has another size."""
        self._announced.files.pop((span.own_key, ()), None)
        return LocalFile(self.folder, span)

    def advise(self, span: Span, ranges: Sequence[Range]) -> None:  # noqa: ARG002
        """Start reading a chunk that this thread will soon open."""
        files = self._announced.files
        if (span.own_key, ()) in files:
            return
        files[span.own_key, ()] = None
        if len(files) > MOST_ANNOUNCED:
            files.pop(next(iter(files)))
        if hasattr(os, "posix_fadvise"):
            path = self.folder / span.key
            with suppress(OSError), open(path, "rb", buffering=0) as file:  # the read itself will report the error
                os.posix_fadvise(file.fileno(), span.begin, span.n_bytes, os.POSIX_FADV_WILLNEED)

    def forget_advised(self) -> None:
        """Forget the announced chunks of this thread. The operating system reads ahead, so no read is cancelled."""
        self._announced.files.clear()


class LocalFile:
    """A chunk on a local disk; see chunks.StoredFile. kind: the word for the file in messages."""

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
        done, begin = 0, begin + self._begin
        while done < len(buffer):  # usually a single call suffices
            n = os.preadv(self._file, [buffer.data[done:]], begin + done)
            if n == 0:
                raise IntegrityError(
                    f"{self.name}: the file was cut short while it was read; restore it, or ingest again"
                )
            done += n

    def keep(self) -> None:
        """Do nothing, since the file is already on a local disk."""

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class RemotePlace:
    """A folder of objects in a store. See LocalPlace."""

    ahead_bytes = AHEAD_BYTES

    def __init__(self, store: RemoteStore, path: str) -> None:
        self.store, self.path = store, path
        self._announced = _Announced[ObjectFile]()

    def open(self, span: Span, ranges: Sequence[Range]) -> ObjectFile:
        """See LocalPlace. A chunk that was announced as a whole may be read in parts."""
        for announced in (tuple(ranges), ((0, span.n_bytes),)):
            if (file := self._announced.files.pop((span.own_key, announced), None)) is not None:
                return file
        return self._open(span, ranges)

    def advise(self, span: Span, ranges: Sequence[Range]) -> None:
        """See LocalPlace."""
        files = self._announced.files
        if (span.own_key, tuple(ranges)) not in files:
            files[span.own_key, tuple(ranges)] = self._open(span, ranges)
        if len(files) > MOST_ANNOUNCED:  # a pass that ended early announced the oldest chunk
            files.pop(next(iter(files))).close()

    def forget_advised(self) -> None:
        """Cancel the reads of chunks that this thread has announced but not opened."""
        while self._announced.files:
            self._announced.files.popitem()[1].close()

    def _open(self, span: Span, ranges: Sequence[Range]) -> ObjectFile:
        file = ObjectFile(self.store, f"{self.path}/{span.key}", span.file_bytes, ranges, span.kind, begin=span.begin)
        file.name = f"{self.store.url}/{self.path}/{span.name}"
        return file


LOCK, COUNT, IN_USE, PARTIAL = ".lock", ".bytes", ".in-use", ".partial-"
NAME_LETTERS = 32  # the number of letters of a fingerprint in the name of the folder for its dataset


class DiskCache:
    """The cached chunks of one dataset, in a folder that other datasets may share.

    most_bytes: the size limit of all files in the folder.
    """

    def __init__(self, root: Path, most_bytes: int, fingerprint: str) -> None:
        self.root, self.most_bytes = root, most_bytes
        self.folder = root / fingerprint[:NAME_LETTERS]
        with _writing(root):
            root.mkdir(parents=True, exist_ok=True)
        with _writing(root), self.counting():  # so that no other process removes the folder before it is in use
            self.folder.mkdir(exist_ok=True)
            in_use = os.open(self.folder / IN_USE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self.close = finalize(self, os.close, in_use)  # once it is closed, other processes may remove the copies
            os.utime(self.folder / IN_USE)
            _try_lock(in_use, fcntl.LOCK_SH)

    def make_room(self, n_bytes: int) -> None:
        """Measure the folder, and remove unused datasets until n_bytes of this dataset fit."""
        with _writing(self.root), self.counting():
            sizes = {path.parent: _measure(path.parent) for path in self.root.glob(f"*/{IN_USE}")}
            used = sum(sizes.values())
            others = sorted(sizes.keys() - {self.folder}, key=lambda folder: (folder / IN_USE).stat().st_mtime_ns)
            for folder in others:
                if used - sizes[self.folder] + n_bytes > self.most_bytes and _remove_unused(folder):
                    used -= sizes[folder]
            self._write_count(used)

    def begin_copy(self, file: StoredFile, target: Path, n_bytes: int) -> CopiedFile | None:
        """Begin to copy the file of a chunk of n_bytes; return None if the copy does not fit into the cache."""
        with _writing(self.root), self.counting():
            used = self._read_count()
            if used + n_bytes > self.most_bytes:
                return None
            self._write_count(used + n_bytes)
            try:
                return CopiedFile(self, file, target, n_bytes)
            except OSError:
                self._write_count(used)
                raise

    def give_back(self, partial: str, n_bytes: int) -> None:
        """Remove an unfinished copy, and subtract its bytes from the size of the cache."""
        with _writing(self.root), self.counting():
            Path(partial).unlink(missing_ok=True)
            self._write_count(max(0, self._read_count() - n_bytes))

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Hold the lock under which one process at a time counts bytes, and adds or removes files."""
        descriptor = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with suppress(OSError):  # the file system does not support locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _read_count(self) -> int:
        with suppress(FileNotFoundError, ValueError):  # a process was killed while it wrote the count
            return int((self.root / COUNT).read_text())
        return sum(_measure(path.parent) for path in self.root.glob(f"*/{IN_USE}"))

    def _write_count(self, used: int) -> None:
        (self.root / COUNT).write_text(str(used))


class CopiedFile:
    """The file of a chunk in a store, which is copied to the cache as it is read; see chunks.StoredFile.

    The copy becomes complete only if the chunk is read in order, from its first byte to its last.
    """

    def __init__(self, cache: DiskCache, file: StoredFile, target: Path, n_bytes: int) -> None:
        self.name, self._file, self._cache, self._target = file.name, file, cache, target
        self._n_bytes, self._written = n_bytes, 0
        self._descriptor: int | None
        self._descriptor, self._partial = tempfile.mkstemp(prefix=PARTIAL, dir=cache.folder)
        try:
            _try_lock(self._descriptor, fcntl.LOCK_EX)
            os.ftruncate(self._descriptor, n_bytes)
        except OSError:
            os.unlink(self._partial)
            os.close(self._descriptor)
            raise

    def fill(self, buffer: Bytes, begin: int) -> None:
        """See StoredFile. Raises WriteError if the copy cannot be written."""
        self._file.fill(buffer, begin)
        if self._descriptor is None or begin != self._written:
            return
        with _writing(self._cache.root):
            done = 0
            while done < len(buffer):
                done += os.write(self._descriptor, buffer.data[done:])
        self._written += len(buffer)

    def keep(self) -> None:
        """Give the copy its final name, if it is complete."""
        if self._descriptor is None or self._written != self._n_bytes:
            return
        with _writing(self._cache.root), self._cache.counting():
            self._target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(self._partial, self._target)  # a crash of the machine may truncate it; the checksum reveals this
        os.close(self._descriptor)
        self._descriptor = None

    def close(self) -> None:
        """Close the file, and remove an incomplete copy."""
        try:
            self._file.close()
        finally:
            if self._descriptor is not None:
                try:
                    self._cache.give_back(self._partial, self._n_bytes)
                finally:
                    os.close(self._descriptor)
                    self._descriptor = None


class CachedPlace:
    """Chunks in a store, with copies in a cache; see LocalPlace."""

    def __init__(self, remote: RemotePlace, cache: DiskCache) -> None:
        self.ahead_bytes, self._remote, self._cache = remote.ahead_bytes, remote, cache
        self._local = LocalPlace(cache.folder / remote.path)

    def open(self, span: Span, ranges: Sequence[Range]) -> StoredFile:
        """See LocalPlace. A chunk that is read whole is copied to the cache."""
        target = self._local.folder / span.own_key
        if target.exists():
            return self._local.open(span.alone(), ranges)
        file = self._remote.open(span, ranges)
        is_whole = list(ranges) == [(0, span.n_bytes)]
        return (self._cache.begin_copy(file, target, span.n_bytes) if is_whole else None) or file

    def advise(self, span: Span, ranges: Sequence[Range]) -> None:
        """See LocalPlace."""
        if (self._local.folder / span.own_key).exists():
            self._local.advise(span.alone(), ranges)
        else:
            self._remote.advise(span, ranges)

    def forget_advised(self) -> None:
        """See LocalPlace."""
        self._remote.forget_advised()


ChunkPlace = LocalPlace | RemotePlace | CachedPlace


def check_index(place: ChunkPlace, shards: Shards, shard: int) -> None:
    """Raise IntegrityError unless the index of a shard gives the correct positions of its chunks."""
    span = shards.find_index(shard)
    found = np.empty(span.n_bytes, np.uint8)
    with closing(place.open(span, [(0, span.n_bytes)])) as file:
        file.fill(found, 0)
    if found.tobytes() != shards.make_index(shard):
        raise IntegrityError(f"{file.name}: the index is damaged, so other programs would not find the chunks")


@made_once
def open_cache(text: str, fingerprint: str) -> DiskCache:
    """Return the cache of the dataset with this fingerprint. While a cache is in use, all calls return the same object.

    text: the folder and the size limit, as `FOLDER:SIZE`. Raises InputError for any other form, and WriteError if the
    folder cannot be written.
    """
    folder, _, size = text.rpartition(":")
    if not folder or is_remote(folder):
        raise InputError(f"{text!r} is not a cache: give a folder and its largest size, such as /scratch/cache:200GB")
    return DiskCache(Path(folder), parse_bytes(size), fingerprint)


@contextmanager
def _writing(root: Path) -> Iterator[None]:
    """Convert operating-system errors in the block to a WriteError naming the folder of the cache."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{root}: the cache cannot be written: {error.strerror}") from error


def _try_lock(descriptor: int, kind: int) -> bool:
    """Try to lock a file; return False if another process holds a conflicting lock."""
    with suppress(OSError):
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        return True
    return False


def _measure(folder: Path) -> int:
    """Return the size of a dataset's files in bytes, after removing partial files of killed processes."""
    for partial in folder.glob(f"{PARTIAL}*"):
        with suppress(OSError), partial.open("rb") as file:
            if _try_lock(file.fileno(), fcntl.LOCK_EX):
                partial.unlink()
    files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sum(file.lstat().st_size for file in files)


def _remove_unused(folder: Path) -> bool:
    """Remove the files of a dataset, unless a process has it open. Return whether they were removed."""
    with (folder / IN_USE).open("rb") as file:
        if not _try_lock(file.fileno(), fcntl.LOCK_EX):
            return False
        shutil.rmtree(folder, ignore_errors=True)
    return True
