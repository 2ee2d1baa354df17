"""Locks, so that one process at a time writes to the folder of a run, a dataset or a file of predictions.

A lock is a small file under `flock`. The system releases it however its process ends, so a killed process leaves no
lock. On file systems that do not support locks, nothing is locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

from streamsvm.system.errors import InputError, WriteError

NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}


class Lock:
    """The right to write to `target`, until `release` or the end of the block.

    The lock is held on `file` (by default, a hidden file next to the target), which names the holding process for
    messages. Raises InputError if another process has the lock, and WriteError if the file cannot be written.
    """

    def __init__(self, target: Path, file: Path | None = None) -> None:
        self.path = file or target.with_name(f".{target.name}.lock")
        self._descriptor: int | None = _acquire(target, self.path)

    def release(self) -> None:
        """Release the lock and remove its file."""
        if self._descriptor is not None:
            self.path.unlink(missing_ok=True)  # first, so that a process that has opened it makes a new file
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _acquire(target: Path, path: Path) -> int:
    """Return the descriptor of a locked file that `path` still names."""
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
    with suppress(OSError):  # a full disk does not matter: the process is only named in messages
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}".encode(), 0)


def _name_holder(descriptor: int) -> str:
    pid, _, host = os.pread(descriptor, 300, 0).decode(errors="replace").partition(" ")
    if not pid.isdecimal():
        return "another process"
    return f"process {pid}" if host == socket.gethostname() else f"process {pid} on {host!r}"
