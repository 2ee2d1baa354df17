"""A cache of an object store's raw chunks on a local disk: what was read and verified once is read from there later.

    FOLDER/<fingerprint of the dataset>/<array>/c/3/0     chunk 3 of an array, in a file of its own

Copies are compared with the manifest whenever they are read, as the objects in the store are. All processes of a
machine share the folder and its limit. They count under a lock; a copy counts with its full size from its beginning
on. What is there stays there until space is wanted for another dataset: then the datasets that no process has open go,
those that were opened longest ago first.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import finalize

from streamsvm.data.chunk_file import Bytes, StoredFile
from streamsvm.data.chunk_places import LocalPlace, RemotePlace
from streamsvm.data.made_once import made_once
from streamsvm.data.object_file import Range
from streamsvm.data.shards import Span
from streamsvm.errors import InputError, WriteError
from streamsvm.machine import parse_bytes
from streamsvm.urls import is_remote

LOCK, COUNT, IN_USE, PARTIAL = ".lock", ".bytes", ".in-use", ".partial-"
NAME_LETTERS = 32  # of a fingerprint


class DiskCache:
    """The copies of the chunks of one dataset, in a folder that other datasets may share.

    most_bytes: the limit of all files in the folder.
    """

    def __init__(self, root: Path, most_bytes: int, fingerprint: str) -> None:
        self.root, self.most_bytes = root, most_bytes
        self.folder = root / fingerprint[:NAME_LETTERS]
        with _writing(root):
            root.mkdir(parents=True, exist_ok=True)
        with _writing(root), self.counting():  # no other process removes the folder before it is in use
            self.folder.mkdir(exist_ok=True)
            in_use = os.open(self.folder / IN_USE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self.close = finalize(self, os.close, in_use)  # lets other processes remove the copies, which stay so far
            os.utime(self.folder / IN_USE)
            _try_lock(in_use, fcntl.LOCK_SH)

    def make_room(self, n_bytes: int) -> None:
        """Count what lies in the folder, and remove unused datasets until this one has room for so many bytes."""
        with _writing(self.root), self.counting():
            sizes = {path.parent: _measure(path.parent) for path in self.root.glob(f"*/{IN_USE}")}
            used = sum(sizes.values())
            others = sorted(sizes.keys() - {self.folder}, key=lambda folder: (folder / IN_USE).stat().st_mtime_ns)
            for folder in others:
                if used - sizes[self.folder] + n_bytes > self.most_bytes and _remove_unused(folder):
                    used -= sizes[folder]
            self._write_count(used)

    def begin_copy(self, target: Path, n_bytes: int) -> Copy | None:
        """Begin the copy of a file of this size; None if there is no room."""
        with _writing(self.root), self.counting():
            used = self._read_count()
            if used + n_bytes > self.most_bytes:
                return None
            self._write_count(used + n_bytes)
            try:
                return Copy(self, target, n_bytes)
            except OSError:
                self._write_count(used)
                raise

    def give_back(self, partial: str, n_bytes: int) -> None:
        """Remove a file that has no name yet, and count its bytes no more."""
        with _writing(self.root), self.counting():
            Path(partial).unlink(missing_ok=True)
            self._write_count(max(0, self._read_count() - n_bytes))

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Let one process at a time count. Whatever changes which files there are is done so."""
        descriptor = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _read_count(self) -> int:
        try:
            return int((self.root / COUNT).read_text())
        except (FileNotFoundError, ValueError):  # a process was killed while it wrote
            return sum(_measure(path.parent) for path in self.root.glob(f"*/{IN_USE}"))

    def _write_count(self, used: int) -> None:
        (self.root / COUNT).write_text(str(used))


class Copy:
    """A copy that is being written, from its first byte to its last."""

    def __init__(self, cache: DiskCache, target: Path, n_bytes: int) -> None:
        self._cache, self._target, self._n_bytes, self._written = cache, target, n_bytes, 0
        self._descriptor: int | None
        self._descriptor, self._partial = tempfile.mkstemp(prefix=PARTIAL, dir=cache.folder)
        try:
            _try_lock(self._descriptor, fcntl.LOCK_EX)
            os.ftruncate(self._descriptor, n_bytes)
        except OSError:
            os.unlink(self._partial)
            os.close(self._descriptor)
            raise

    def write(self, content: Bytes, begin: int) -> None:
        """Write the bytes that begin at byte `begin`. Raises WriteError if the disk does not take them."""
        if self._descriptor is None or begin != self._written:
            return
        with _writing(self._cache.root):
            done = 0
            while done < len(content):
                done += os.write(self._descriptor, content.data[done:])
        self._written += len(content)

    def keep(self) -> None:
        """Let the copy have its name, if it is complete."""
        if self._descriptor is None or self._written != self._n_bytes:
            return
        with _writing(self._cache.root), self._cache.counting():
            self._target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(self._partial, self._target)  # on a killed machine it may be cut short: the checksum tells
        os.close(self._descriptor)
        self._descriptor = None

    def give_up(self) -> None:
        """Remove what has no name yet."""
        if self._descriptor is None:
            return
        try:
            self._cache.give_back(self._partial, self._n_bytes)
        finally:
            os.close(self._descriptor)
            self._descriptor = None


class CopiedFile:
    """The file of a chunk in a store, of which a copy is written as it is read. See chunk_file.StoredFile."""

    def __init__(self, file: StoredFile, copy: Copy) -> None:
        self.name, self._file, self._copy = file.name, file, copy

    def fill(self, buffer: Bytes, begin: int) -> None:
        """See StoredFile."""
        self._file.fill(buffer, begin)
        self._copy.write(buffer, begin)

    def keep(self) -> None:
        """See StoredFile."""
        self._copy.keep()

    def close(self) -> None:
        """See StoredFile."""
        try:
            self._file.close()
        finally:
            self._copy.give_up()


class CachedPlace:
    """Chunks in a store, of which a cache has copies. See chunk_places.ChunkPlace."""

    def __init__(self, remote: RemotePlace, cache: DiskCache) -> None:
        self.ahead_bytes, self._remote, self._cache = remote.ahead_bytes, remote, cache
        self._local = LocalPlace(cache.folder / remote.path)

    def open(self, span: Span, ranges: Sequence[Range]) -> StoredFile:
        """See ChunkPlace. A copy is made of what is read whole."""
        target = self._local.folder / span.own_key
        if target.exists():
            return self._local.open(span.alone(), ranges)
        file = self._remote.open(span, ranges)
        copy = self._cache.begin_copy(target, span.n_bytes) if list(ranges) == [(0, span.n_bytes)] else None
        return file if copy is None else CopiedFile(file, copy)

    def advise(self, span: Span, ranges: Sequence[Range]) -> None:
        """See ChunkPlace."""
        if (self._local.folder / span.own_key).exists():
            self._local.advise(span.alone(), ranges)
        else:
            self._remote.advise(span, ranges)

    def forget_advised(self) -> None:
        """See ChunkPlace."""
        self._remote.forget_advised()


@made_once
def open_cache(text: str, fingerprint: str) -> DiskCache:
    """Return the cache that `FOLDER:SIZE` names, for the dataset with this fingerprint; one while a dataset uses it.

    Raises InputError if the text names none, and WriteError if the folder cannot be written.
    """
    folder, _, size = text.rpartition(":")
    if not folder or is_remote(folder):
        raise InputError(f"{text!r} is no cache: write a folder and the most bytes in it, such as /scratch/cache:200GB")
    return DiskCache(Path(folder), parse_bytes(size), fingerprint)


@contextmanager
def _writing(root: Path) -> Iterator[None]:
    """Raise WriteError, which names the folder of the cache, for an error of the operating system in the block."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{root}: the cache cannot be written: {error.strerror}") from error


def _try_lock(descriptor: int, kind: int) -> bool:
    """Return whether a file could be locked, as it can be if no other process has a lock that excludes this one."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _measure(folder: Path) -> int:
    """Return the bytes of a dataset's files, after the partial ones of processes that were killed are removed."""
    for partial in folder.glob(f"{PARTIAL}*"):
        with suppress(OSError), partial.open("rb") as file:
            if _try_lock(file.fileno(), fcntl.LOCK_EX):
                partial.unlink()
    files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sum(file.lstat().st_size for file in files)


def _remove_unused(folder: Path) -> bool:
    """Remove the files of a dataset, unless a process has it open. Return whether they are removed."""
    with (folder / IN_USE).open("rb") as file:
        if not _try_lock(file.fileno(), fcntl.LOCK_EX):
            return False
        shutil.rmtree(folder, ignore_errors=True)
    return True
