"""Source files that lie in an object store: text is read as it arrives, and other files are copied first.

A source has no checksums. All its bytes are of one version of the object, or the reading fails, if the store tells
versions apart by an e_tag. A server without e_tags is only known to have given an object of the same size throughout.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np

from streamsvm.data.object_file import RANGE_BYTES, ObjectFile
from streamsvm.data.object_store import open_store, refuse_secrets
from streamsvm.errors import InputError, IntegrityError, ReadError
from streamsvm.urls import is_remote


class RemoteFile(io.RawIOBase):
    """An object that is read as a file. Raises OSError, as a file on a disk does.

    ahead: whether it is read from its start to its end, so that its bytes are requested ahead.
    """

    def __init__(self, url: str, ahead: bool = True) -> None:
        self._object: ObjectFile | None = None  # where the store refuses, the end of this object closes nothing
        self.url, self._position = url, 0
        self.n_bytes, self.e_tag = _ask_about(url)
        folder, _, name = url.rpartition("/")
        wanted = [(0, self.n_bytes)] * ahead
        self._object = ObjectFile(open_store(quote_folder(folder)), name, self.n_bytes, wanted, "file", self.e_tag)

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
        """Go to a byte, counted from the start, from the position or from the end, and return its number."""
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.n_bytes}[whence]
        return self._position

    def close(self) -> None:
        """Give up what has been requested."""
        if self._object is not None and not self.closed:
            self._object.close()
        super().close()


def open_binary(path: str | Path, ahead: bool = True) -> IO[bytes]:
    """Open a file, or an object in a store, for reading. Raises OSError if it cannot be.

    ahead: whether it is read from its start to its end.
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
    """Copy an object to a local file, and return its e_tag. Raises OSError if it cannot be read."""
    with RemoteFile(url) as source, path.open("wb") as file:
        while part := source.read(RANGE_BYTES):
            file.write(part)
        return source.e_tag


def find_size(path: str | Path) -> int:
    """Return the bytes of a file, or of an object in a store. Raises OSError if there is none."""
    return _ask_about(str(path))[0] if is_remote(path) else os.stat(path).st_size


def find_state(url: str) -> tuple[int, str | None]:
    """Return the size and the version of an object in a store. Raises OSError if there is none."""
    return _ask_about(url)


def quote_folder(url: str) -> str:
    """Return the URL of a folder as obstore decodes it: the keys of a store, other than http, are as they are."""
    return url if url.startswith("http") else url.replace("%", "%25")


def _ask_about(url: str) -> tuple[int, str | None]:
    """Return the size and the version of an object. Raises OSError if there is none, or if the store does not tell."""
    refuse_secrets(url)  # as a whole, since a query would count as a part of the object's name
    folder, _, name = url.rpartition("/")
    try:
        about = open_store(quote_folder(folder)).ask_about(name)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from None
    except ReadError as error:
        raise _as_os_error(error, url) from None
    return int(about["size"]), about["e_tag"]


def _as_os_error(error: InputError, url: str) -> OSError:
    """Return an error of which readers of files tell the reason after the name of the file."""
    return OSError(errno.EIO, str(error).removeprefix(f"{url}: "))
