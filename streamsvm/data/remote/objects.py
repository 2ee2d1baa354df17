"""The objects below a URL: a Zarr store that reads them, and a folder to which a run is written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import ObjectStore

from streamsvm.data.remote.files import PART_BYTES, copy_to, put_object, quote_folder
from streamsvm.data.remote.store import METADATA_FILES, begin, call, connect, heed_limit, reading, wait_for, writing
from streamsvm.system import deadline
from streamsvm.system.errors import InputError, ReadError
from streamsvm.system.files import hide_secrets


class RemoteStore(ObjectStore[Any]):
    """The objects below a URL, as a Zarr store. Its errors name the URL of the object.

    Zarr metadata are cached, since Zarr reads them several times when it opens an array.
    """

    def __init__(self, url: str, store: Any) -> None:
        super().__init__(store, read_only=True)
        self.url = url
        self._metadata: dict[str, Buffer | None] = {}

    def __str__(self) -> str:
        return self.url

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return an object, or None if it does not exist. Raises ReadError if the request fails."""
        if key in self._metadata:
            return self._metadata[key]
        with reading(f"{self.url}/{key}"):
            found = await heed_limit(super().get(key, prototype, byte_range))
        if key.rpartition("/")[2] in METADATA_FILES:
            self._metadata[key] = found
        return found

    def ask_about(self, key: str) -> Any:
        """Return the size and the e_tag of an object. Raises FileNotFoundError if it does not exist, or ReadError."""
        import obstore

        try:
            with reading(f"{self.url}/{key}"):
                return wait_for(begin(call(obstore.head_async, self.store, key)))
        except FileNotFoundError:
            self.require_bucket(f"{self.url}/{key}")
            raise

    def require_bucket(self, place: str) -> None:
        """Raise ReadError if the bucket does not exist. A store may answer as if only the object were missing."""
        if not self.url.startswith("http"):
            with suppress(FileNotFoundError), reading(place):
                wait_for(begin(call(anext, self.list(), None)))

    def read(self, key: str) -> bytes | None:
        """Return the current content of an object, or None if it does not exist."""
        with reading(f"{self.url}/{key}"):
            found = wait_for(begin(super().get(key, default_buffer_prototype())))
        return None if found is None else found.to_bytes()

    def remove(self, keys: Sequence[str]) -> None:
        """Remove the objects with these keys, ignoring those that do not exist."""
        import obstore

        if keys:
            with writing(self.url), deadline.held(None), suppress(FileNotFoundError):
                wait_for(begin(call(obstore.delete_async, self.store, keys)))

    async def get_range(self, key: str, start: int, stop: int, e_tag: str | None = None) -> tuple[Any, int]:
        """Return the bytes start:stop of an object, fewer if it is shorter, and the size of the object.

        e_tag: the version to read. Raises FileNotFoundError if the object does not exist, and other errors of obstore.
        """
        import obstore
        from obstore.exceptions import GenericError

        options: Any = {"range": (start, stop), **({} if e_tag is None else {"if_match": e_tag})}
        try:
            answer = await obstore.get_async(self.store, key, options=options)
            return await answer.bytes_async(), int(answer.meta["size"])
        except GenericError as error:
            if "416 Range Not Satisfiable" not in str(error):
                raise
        return b"", int((await obstore.head_async(self.store, key))["size"])  # the object ends before byte `start`


MOST_WHOLE_BYTES = 256 << 20  # larger files are sent in parts, for which stores support no conditions


class RemoteFolder(RemoteStore):
    """The objects of a writable folder in a store, with the versions that this process last fetched or put."""

    def __init__(self, url: str) -> None:
        if url.startswith("http"):
            raise InputError(f"{hide_secrets(url)}: an http URL can be read only; write to s3://, gs:// or az://")
        super().__init__(url, connect(url))
        self._e_tags: dict[str, str | None] = {}

    def list_names(self) -> list[str]:
        """Return the names of the objects."""

        async def gather() -> list[str]:
            return [key async for key in self.list()]

        with reading(self.url):
            return wait_for(begin(gather()))

    def fetch(self, name: str, to: Path) -> None:
        """Copy an object to a local file."""
        try:
            self._e_tags[name] = copy_to(f"{self.url}/{name}", to)
        except OSError as error:
            raise ReadError(f"{self.url}/{name}: cannot be read: {error.strerror or error}") from error

    def put(self, name: str, file: Path, only_if_known: bool = False) -> None:
        """Replace an object by the content of a local file, in one step.

        only_if_known: whether to replace the object only if its version is the one that this process last fetched or
        put. If this process has not seen the object before, create it only if it does not exist. Otherwise raise
        InputError.
        """
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        size, known = os.stat(file).st_size, self._e_tags.get(name)
        mode: Any = None
        if only_if_known and size <= MOST_WHOLE_BYTES:
            mode = "create" if known is None else {"e_tag": known}
        try:
            with file.open("rb") as opened, deadline.held(None):  # so that no time limit cuts off the upload
                parts = iter(partial(opened.read, PART_BYTES if mode is None else -1), b"")
                sent = put_object(self.store, self.url, name, parts, size, mode)
                self._e_tags[name] = wait_for(begin(sent))
        except (AlreadyExistsError, PreconditionError, FileExistsError):
            raise InputError(f"{self.url}/{name}: another process has changed it; only one may write") from None


def find_folder(url: str) -> tuple[RemoteFolder, str]:
    """Return the folder and the name of an object to be written. Raises InputError if the URL cannot be written."""
    folder, _, name = url.rpartition("/")
    if not name:
        raise InputError(f"{hide_secrets(url)}: this URL names a folder, but a file is required; add its name")
    return RemoteFolder(quote_folder(folder)), name
