"""Scratch files of an ingest that all of its workers share: in a folder, or objects below the dataset in a store.

A file is put as a whole, and may be put again with the same bytes by a worker that was given up. Ranges of files are
read in order, while those that follow are requested.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import google_crc32c
import numpy as np
from zarr.core.buffer import default_buffer_prototype

from streamsvm.data.chunk_file import Bytes, StoredFile, open_to_rewrite
from streamsvm.data.chunk_places import LocalFile
from streamsvm.data.object_file import AHEAD_BYTES, ObjectFile, Range
from streamsvm.data.object_store import RemoteStore, begin, open_store, reading, wait_for, writing
from streamsvm.data.object_writer import put_object
from streamsvm.data.shards import Span
from streamsvm.errors import InputError, IntegrityError
from streamsvm.files import write_atomically

WRITING = ".writing"  # the object by which a process says that it writes a dataset below a URL
SPILL = ".spill"  # the folder of scratch objects
SPILL_FOLDER = "spill"  # that of scratch files, in the folder in which a dataset is made
FILES_AHEAD = 16  # files that are open, and whose first ranges are requested
BUFFER_BYTES = 1 << 20  # of a file that is written


@dataclass(frozen=True)
class SharedFolder:
    """A folder of scratch files that all workers share."""

    folder: Path

    def check(self) -> None:
        """Raise InputError unless the folder is there."""
        if not self.folder.is_dir():
            raise InputError(f"{self.folder}: no such folder; all workers have to share the folder of the new dataset")

    def put(self, name: str, parts: Iterable[Any], n_bytes: int) -> None:  # noqa: ARG002
        """Write a file of n_bytes, whose content comes in parts."""
        self.check()
        with io.BufferedWriter(open_to_rewrite(self.folder / name), BUFFER_BYTES) as file:
            for part in parts:
                file.write(part)

    def keep(self, name: str, content: bytes) -> None:
        """Write a file that is there whole or not at all, whoever is killed meanwhile."""
        self.check()
        write_atomically(self.folder / name, content)

    def find(self, name: str) -> bytes | None:
        """Return the content of a file that `keep` has written, or None if there is none."""
        path = self.folder / name
        return path.read_bytes() if path.exists() else None

    def open(self, name: str, n_bytes: int, wanted: Range) -> StoredFile:  # noqa: ARG002
        """Open a file of n_bytes. Raises IntegrityError if it is missing, or of another size."""
        return LocalFile(self.folder, Span(name, n_bytes, 0, n_bytes, name, name), "scratch file")


@dataclass(frozen=True)
class SharedObjects:
    """Scratch objects below a dataset that is written to a store by the process that has put `.writing` there.

    token: what that object says as long as the dataset is being written. It begins with the name of the folder of the
    scratch objects, which a process that goes on with the work of another has in common with that one.
    """

    url: str
    token: str

    def check(self) -> None:
        """Raise InputError unless the dataset is still being written."""
        self._compare(self._read_token())

    def _compare(self, found: str) -> None:
        """Raise InputError unless the token that was found is the own one."""
        if found != self.token:
            raise InputError(f"{self.url}: the ingest has ended, or another process has begun to write there")

    def put(self, name: str, parts: Iterable[Any], n_bytes: int) -> None:
        """Put an object of n_bytes, whose content comes in parts. Nothing of it is left where the ingest has ended.

        The process that ends it takes its token away before it removes what there is: so either that process removes
        the object, or the token is found missing here. Where another process goes on with the ingest, the object stays,
        as it has the bytes that the other process needs.
        """
        import obstore

        store, key = self._open_store(), f"{self._folder}/{name}"
        wait_for(begin(put_object(store.store, self.url, key, parts, n_bytes)))
        found = self._read_token()
        if found.partition("-")[0] != self.folder_name:

            async def delete() -> None:
                await obstore.delete_async(store.store, key)

            with writing(self.url):
                wait_for(begin(delete()))
        self._compare(found)

    def keep(self, name: str, content: bytes) -> None:
        """Put an object, which a store does whole or not at all."""
        self.put(name, [content], len(content))

    def find(self, name: str) -> bytes | None:
        """Return the content of an object, or None if there is none."""
        return self._read(f"{self._folder}/{name}")

    def open(self, name: str, n_bytes: int, wanted: Range) -> StoredFile:
        """Open an object of n_bytes, and request the range that is wanted of it. Errors are those of ObjectFile."""
        return ObjectFile(self._open_store(), f"{self._folder}/{name}", n_bytes, [wanted], "scratch object")

    @property
    def folder_name(self) -> str:
        """The name of the folder of the scratch objects."""
        return self.token.partition("-")[0]

    @property
    def _folder(self) -> str:
        return f"{SPILL}/{self.folder_name}"

    def _open_store(self) -> RemoteStore:
        return open_store(self.url)

    def _read_token(self) -> str:
        return (self._read(WRITING) or b"").decode()

    def _read(self, key: str) -> bytes | None:
        with reading(f"{self.url}/{key}"):
            found = wait_for(begin(self._open_store().get(key, default_buffer_prototype())))
        return None if found is None else found.to_bytes()


SharedScratch = SharedFolder | SharedObjects


class Resumption(Protocol):
    """Decides about the scratch files that a process leaves which does not end well."""

    def goes_on(self, scratch: SharedScratch) -> bool:
        """Tell whether to go on with what another process has left. An error leaves it as it is."""

    def keeps(self, error: BaseException) -> bool:
        """Tell whether what there is stays when this process ends with an error."""


@dataclass(frozen=True)
class ScratchFile:
    """A scratch file that is read as a whole, as tasks are told of it. checksum: the CRC-32C of its content."""

    name: str
    n_bytes: int
    checksum: int


def put_whole(scratch: SharedScratch, name: str, content: Any) -> ScratchFile:
    """Write a file, whose content are bytes or a view of bytes."""
    scratch.put(name, [content], len(content))
    return ScratchFile(name, len(content), google_crc32c.value(np.frombuffer(content, np.uint8)))


def read_whole(scratch: SharedScratch, file: ScratchFile) -> Bytes:
    """Return the content of a file. Raises IntegrityError if it is missing or damaged."""
    with closing(read_ranges(scratch, [(file.name, file.n_bytes, (0, file.n_bytes))])) as contents:
        place, content = next(contents)
    if google_crc32c.value(content) != file.checksum:
        raise IntegrityError(f"{place}: is damaged (its checksum is wrong)")
    return content


Ranges = Generator[tuple[str, Bytes], None, None]


def read_ranges(scratch: SharedScratch, wanted: Sequence[tuple[str, int, Range]]) -> Ranges:
    """Yield ranges of scratch files, each with what its file is called in messages.

    wanted: the names of the files, their bytes, and the range of each. Those that follow are requested meanwhile, as
    many as take AHEAD_BYTES, or one. Raises IntegrityError if a file is missing or of another size.
    """
    opened = deque[tuple[Range, StoredFile]]()
    ahead, following = 0, iter(wanted)
    try:
        for name, n_bytes, limits in following:
            opened.append((limits, scratch.open(name, n_bytes, limits)))
            ahead += limits[1] - limits[0]
            while opened and (ahead > AHEAD_BYTES or len(opened) == FILES_AHEAD):
                ahead -= opened[0][0][1] - opened[0][0][0]
                yield _read_oldest(opened)
        while opened:
            yield _read_oldest(opened)
    finally:
        for _, file in opened:
            file.close()


def _read_oldest(opened: deque[tuple[Range, StoredFile]]) -> tuple[str, Bytes]:
    """Return the range of the file that was opened first."""
    (start, stop), file = opened[0]
    content = np.empty(stop - start, np.uint8)
    if len(content):
        file.fill(content, start)
    opened.popleft()
    file.close()
    return file.name, content
