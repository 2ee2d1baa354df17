"""A folder of files in an object store, which are fetched and put whole."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamsvm.data.object_store import begin, open_store, reading, wait_for, writing
from streamsvm.data.remote_files import copy_to
from streamsvm.errors import InputError, ReadError

MOST_WHOLE_BYTES = 256 << 20  # a larger file is sent in parts, for which stores have no conditions


class RemoteFolder:
    """The objects whose URLs are those of a folder and a name. Each is of a version that this process knows."""

    def __init__(self, url: str) -> None:
        if url.startswith("http"):
            raise InputError(f"{url}: an http URL can be read only; write to s3://, gs:// or az://")
        self.url, self._store = url, open_store(url)
        self._e_tags: dict[str, str | None] = {}

    def list_names(self) -> list[str]:
        """Return the names of the objects."""

        async def gather() -> list[str]:
            return [key async for key in self._store.list()]

        with reading(self.url):
            return wait_for(begin(gather()))

    def fetch(self, name: str, to: Path) -> None:
        """Copy an object to a local file."""
        try:
            self._e_tags[name] = copy_to(f"{self.url}/{name}", to)
        except OSError as error:
            raise ReadError(f"{self.url}/{name}: cannot be read: {error.strerror or error}") from error

    def put(self, name: str, file: Path, only_if_known: bool = False) -> None:
        """Replace an object by the content of a local file, at once.

        only_if_known: only if the object is the one that this process has fetched or put last, or if there is none and
        this process knows of none. Otherwise InputError.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        size, known = os.stat(file).st_size, self._e_tags.get(name)
        mode: Any = None
        if only_if_known and size <= MOST_WHOLE_BYTES:
            mode = "create" if known is None else {"e_tag": known}

        async def send() -> Any:
            return await obstore.put_async(self._store.store, name, file, mode=mode, max_concurrency=4)

        try:
            with writing(f"{self.url}/{name}"):
                self._e_tags[name] = wait_for(begin(send()))["e_tag"]
        except (AlreadyExistsError, PreconditionError, FileExistsError):
            raise InputError(
                f"{self.url}/{name}: another process has written it; one at a time writes to a run"
            ) from None

    def remove(self, name: str) -> None:
        """Remove an object."""
        import obstore

        async def delete() -> None:
            await obstore.delete_async(self._store.store, name)

        with writing(f"{self.url}/{name}"), suppress(FileNotFoundError):
            wait_for(begin(delete()))
