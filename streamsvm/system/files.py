"""Paths and URLs, files that appear complete or not at all, and locks.

With a lock, one process at a time writes to the folder of a run, a dataset or a file of predictions. A lock is a small
file under `flock`. The system releases the lock when its process ends, however it ends, so a killed process leaves no
lock. On file systems that do not support locks, nothing is locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO
from urllib.parse import urlsplit

from streamsvm.system.errors import InputError, WriteError

SCHEMES = ("s3", "gs", "az", "http", "https")  # the schemes of the URLs of object stores


def is_remote(path: str | Path) -> bool:
    """Return whether a path is the URL of an object store."""
    return urlsplit(str(path)).scheme in SCHEMES


def hide_secrets(path: str | Path) -> str:
    """Return a path for messages: a URL loses its user, password, query and fragment, which may be secret."""
    if not is_remote(path):
        return str(path)
    parts = urlsplit(str(path))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def to_local_path(path: str | Path) -> Path:
    """Return the path of a file or folder on a local disk, also given as file://. Raises InputError for other URLs."""
    if is_remote(path):
        raise InputError(f"{hide_secrets(path)}: a path on a local disk is required, not one in an object store")
    return Path(str(path).removeprefix("file://"))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert an OSError in the block to a WriteError that names the path."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing. It appears complete or not at all, and is on disk at the end of the block.

    The file is written under a unique name and then renamed. If it cannot be written, WriteError is raised and no
    partial file is left.
    """
    partial = name_partial(path)
    try:
        with writing(path):
            with partial.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that appears complete or not at all."""
    with open_atomically(path) as file:
        file.write(content)


def name_partial(path: Path) -> Path:
    """Return a unique name in the folder of `path`, for a file or folder that is being made."""
    return path.with_name(f".{path.name}.{token_hex(4)}.partial")


def is_partial(name: str, of: str | None = None) -> bool:
    """Return whether `name_partial` made this name. of: the name of the final file or folder (None: any)."""
    made = rf"\.{'.+' if of is None else re.escape(of)}\.[0-9a-f]{{8}}\.partial"
    return re.fullmatch(made, name, re.DOTALL) is not None  # a file name may contain line breaks


def remove_partials(folder: Path, of: str | None = None) -> None:
    """Remove the partial files that killed processes left in a folder. of: see `is_partial`.

    The caller must hold the lock. A folder that may be written to but not listed keeps its files.
    """
    for left in list_partials(folder, of):
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink(missing_ok=True)


def list_partials(folder: Path, of: str | None = None) -> list[Path]:
    """Return the partial files in a folder (none if the folder cannot be listed). of: see `is_partial`."""
    try:
        return [entry for entry in folder.iterdir() if is_partial(entry.name, of)]
    except PermissionError:
        return []


def remove_shared_folder(folder: Path, of: Path) -> None:
    """Remove a folder to which abandoned tasks may still write. of: the path whose partial name the folder gets first.

    Under its new name, these tasks do not find the folder, so they cannot add a file to it while it is removed.
    """
    removed = name_partial(of)
    folder.rename(removed)
    shutil.rmtree(removed)


def refuse_inputs(out: str | Path, inputs: Iterable[str | Path]) -> None:
    """Raise InputError if `out` is one of the inputs, lies within one, or contains one.

    inputs: files, folders, URLs, or "-" for standard input.
    """
    for source in inputs:
        if _overlap(out, source):
            raise InputError(f"{out}: is read by this command, and would be replaced; choose another name to write to")


def _overlap(given: str | Path, source: str | Path) -> bool:
    out = Path(given)
    if is_remote(given) or is_remote(source):
        names = [f"{str(each).rstrip('/')}/" for each in (given, source)]
        return names[0].startswith(names[1]) or names[1].startswith(names[0])
    if str(source) == "-":
        return out.exists() and os.path.samestat(os.fstat(sys.stdin.fileno()), out.stat())
    path, target = Path(str(source).removeprefix("file://")).resolve(), out.resolve()
    same = out.exists() and path.exists() and path.samefile(out)  # samefile also recognises hard links
    return same or target.is_relative_to(path) or path.is_relative_to(target)


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to the disk, so that a renamed file survives a power failure.

    Does nothing if the folder may not be read, or if its file system does not support syncing.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Sync all files in a folder and its subfolders to the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(parent, name), "rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(parent))


NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}


class Lock:
    """An exclusive lock for writing to `target`, held until `release` or the end of the `with` block.

    The locked file is `file`, by default a hidden file next to the target. It records the process that holds the lock,
    for error messages. Raises InputError if another process has the lock, and WriteError if the file cannot be written.
    """

    def __init__(self, target: Path, file: Path | None = None) -> None:
        self.path = file or target.with_name(f".{target.name}.lock")
        self._descriptor: int | None = _acquire(target, self.path)

    def release(self) -> None:
        """Release the lock and remove its file."""
        if self._descriptor is not None:
            self.path.unlink(missing_ok=True)  # before the release: waiting processes then make a new file
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _acquire(target: Path, path: Path) -> int:
    """Lock the file at `path`, and return its descriptor."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise WriteError(f"{target}: cannot be written: {path}: {error.strerror}") from error
        try:
            _lock(descriptor, target)
            if _is_same_file(descriptor, path):
                _record_process(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the previous holder has just removed the file


def _lock(descriptor: int, target: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"{target}: {_name_holder(descriptor)} is writing to it; wait until it has finished, or choose another name"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise WriteError(f"{target}: cannot be locked: {error.strerror}") from error


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _record_process(descriptor: int) -> None:
    with suppress(OSError):  # a full disk does not matter, since the record is only for messages
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}".encode(), 0)


def _name_holder(descriptor: int) -> str:
    pid, _, host = os.pread(descriptor, 300, 0).decode(errors="replace").partition(" ")
    if not pid.isdecimal():
        return "another process"
    return f"process {pid}" if host == socket.gethostname() else f"process {pid} on {host!r}"
