"""A dataset that is written to an object store: chunks as they fill up, metadata at the end, and last the manifest.

The manifest is put there on the condition that there is none, so that the dataset appears whole or not at all. A store
has no locks that end with their process. An object `.writing` says that a process is writing, and stays if the process
is killed; `--overwrite` replaces it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import google_crc32c
import zarr
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import ObjectStore

from streamsvm import interrupts
from streamsvm.data.chunk_file import CRC_BYTES, Bytes
from streamsvm.data.manifest import ATTRIBUTE
from streamsvm.data.object_store import begin, connect, reading, wait_for, writing
from streamsvm.data.shards import Span
from streamsvm.errors import InputError
from streamsvm.urls import hide_secrets

MANIFEST, WRITING = "zarr.json", ".writing"
PART_BYTES = 8 << 20  # of an object that is sent in parts
PARTS_IN_FLIGHT = 4


class Upload(ObjectStore[Any]):
    """The objects of a dataset that is being written, as a store of Zarr. Use it in `new_upload`."""

    def __init__(self, url: str) -> None:
        super().__init__(connect(url))
        self.url, self._token, self._has_begun = url, token_hex(8), False
        self._metadata: dict[str, bytes] = {}
        self._checksums: dict[str, int] = {}
        self._shards: dict[str, Any] = {}  # those that are being written

    def __str__(self) -> str:
        return self.url

    # --- what the writer of a dataset needs

    def open_group(self) -> zarr.Group:
        """Return the group of the dataset. Before the first call, what is to be replaced is removed."""
        if not self._has_begun:
            self._has_begun = True
            self.remove()
        return zarr.open_group(self, mode="a", zarr_format=3)

    def write_chunk(self, name: str, span: Span, payload: Bytes, end: bytes) -> None:
        """Write a raw chunk of an array: its object, or what comes next in its shard, which `end` completes."""
        key, checksum = f"{name}/{span.key}", google_crc32c.value(payload)
        parts = [payload.data[at : at + PART_BYTES] for at in range(0, len(payload), PART_BYTES)]
        parts.append(memoryview(checksum.to_bytes(CRC_BYTES, "little")))
        wait_for(begin(self._put(key, parts) if span.kind == "chunk" else self._put_next(key, [*parts, end])))
        self._checksums[f"{name}/{span.own_key}"] = checksum

    def read_checksum(self, name: str, span: Span) -> int:
        """Return the CRC-32C that a chunk ends with."""
        return self._checksums[f"{name}/{span.own_key}"]

    # --- what Zarr needs

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return metadata that were written; chunks are written once and not read."""
        assert byte_range is None
        return prototype.buffer.from_bytes(self._metadata[key]) if key in self._metadata else None

    async def exists(self, key: str) -> bool:
        """Tell whether these metadata were written."""
        return key in self._metadata

    async def set(self, key: str, value: Buffer) -> None:
        """Keep metadata until the end, and write a chunk."""
        content = value.to_bytes()
        if key.endswith("zarr.json"):
            self._metadata[key] = content
        else:
            await self._put(key, [content])
            self._checksums[key] = int.from_bytes(content[-CRC_BYTES:], "little")

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Keep metadata, unless there are some already."""
        if key not in self._metadata:
            await self.set(key, value)

    async def _put(self, key: str, parts: list[Any], mode: Any = None) -> None:
        import obstore

        size = sum(len(part) for part in parts)
        several = size > PART_BYTES and mode is None
        with writing(f"{self.url}/{key}"):
            await obstore.put_async(
                self.store,
                key,
                iter(parts) if several else b"".join(parts),
                mode=mode,
                use_multipart=several,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_IN_FLIGHT,
            )

    async def _put_next(self, key: str, parts: list[Any]) -> None:
        """Write what comes next in a shard. The last part is the index, which is empty before the end of the shard.

        A shard is sent in parts as they fill up, so it is never in memory as a whole.
        """
        import obstore

        with writing(f"{self.url}/{key}"):
            if key not in self._shards:
                opened = obstore.open_writer_async(
                    self.store, key, buffer_size=PART_BYTES, max_concurrency=PARTS_IN_FLIGHT
                )
                self._shards[key] = opened
            for part in parts:
                await self._shards[key].write(bytes(part))  # a copy: the chunk's memory is used again before it is sent
            if parts[-1]:
                await self._shards.pop(key).close()

    def take_metadata(self, folder: Path, scratch: Path) -> list[str]:
        """Take over the metadata of a dataset in a folder, and return the keys of its other files (see `put_file`).

        scratch: a folder in it that does not belong to the dataset.
        """
        self.open_group()
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and scratch not in path.parents]
        keys = [path.relative_to(folder).as_posix() for path in files]
        metadata = [key for key in keys if key.endswith("zarr.json")]
        self._metadata = {key: (folder / key).read_bytes() for key in metadata}
        return [key for key in keys if key not in self._metadata]

    async def _abandon_shards(self) -> None:
        """Let the store forget the shards that are not complete."""
        while self._shards:
            _, shard = self._shards.popitem()
            with suppress(Exception):  # what cannot be undone is left for the bucket to remove
                await shard.__aexit__(KeyboardInterrupt, None, None)

    # --- from nothing to a dataset

    def begin_writing(self, overwrite: bool) -> None:
        """Say that this process writes here. Raises InputError if the place is taken."""
        found = self._read(MANIFEST)
        if found is not None:
            _refuse_taken(self.url, found, overwrite)
        elif self._holds_others():
            raise InputError(f"{self.url}: there are objects already, and they are no dataset; choose another name")
        self._put_if_absent(
            WRITING,
            self._token.encode(),
            "another process is writing to it, or was killed while it did; if none is, replace what is left by "
            "--overwrite (overwrite=True in Python)",
            overwrite,
        )

    def commit(self) -> None:
        """Write the metadata, and last of all the manifest. Raises InputError if another process has written one."""
        others = "another process has begun to write to it meanwhile"
        if self._read(WRITING) != self._token.encode():
            raise InputError(f"{self.url}: {others}")
        for key in self._metadata:
            if key != MANIFEST:
                wait_for(begin(self._put(key, [self._metadata[key]])))
        self._put_if_absent(MANIFEST, self._metadata[MANIFEST], others)
        self._delete([WRITING])

    def give_up(self) -> None:
        """Remove what this process has written, and leave what was there before it began."""
        wait_for(begin(self._abandon_shards()))
        if self._read(WRITING) == self._token.encode():
            if self._has_begun:
                self.remove()
            self._delete([WRITING])

    def remove(self) -> None:
        """Remove all objects but the one that says that this process is writing; the manifest first."""
        keys = self._list_keys()
        if MANIFEST in keys:
            self._delete([MANIFEST])
        if others := [key for key in keys if key not in (MANIFEST, WRITING)]:
            self._delete(others)

    def _put_if_absent(self, key: str, content: bytes, otherwise: str, overwrite: bool = False) -> None:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            wait_for(begin(self._put(key, [content], "overwrite" if overwrite else "create")))
        except (AlreadyExistsError, PreconditionError, FileExistsError):
            raise InputError(f"{self.url}: {otherwise}") from None

    def _read(self, key: str) -> bytes | None:
        with reading(f"{self.url}/{key}"):
            found = wait_for(begin(super().get(key, default_buffer_prototype())))
        return None if found is None else found.to_bytes()

    def _holds_others(self) -> bool:
        """Tell whether there are objects that no process that writes datasets has left."""
        keys = self._list_keys()
        return bool(keys) and WRITING not in keys

    def _list_keys(self) -> list[str]:
        async def gather() -> list[str]:
            return [key async for key in self.list()]

        with reading(self.url):
            return wait_for(begin(gather()))

    def _delete(self, keys: list[str]) -> None:
        import obstore

        async def delete() -> None:
            await obstore.delete_async(self.store, keys)

        with writing(self.url), suppress(FileNotFoundError):
            wait_for(begin(delete()))


def put_file(url: str, folder: Path, key: str) -> None:
    """Put a file of a folder into the store, whichever process does it, where an `Upload` has taken the metadata.

    Raises InputError if there is no such folder, and WriteError if the store does not take the file.
    """
    import obstore

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; all workers have to share the folder for temporary files (TMPDIR)")
    store: Any = connect(url)
    in_parts: Any = {"chunk_size": PART_BYTES, "max_concurrency": PARTS_IN_FLIGHT}

    async def put() -> None:
        await obstore.put_async(store, key, folder / key, **in_parts)

    with writing(f"{url}/{key}"):
        wait_for(begin(put()))


@contextmanager
def new_upload(url: str, overwrite: bool = False) -> Iterator[Upload]:
    """Yield the objects of a new dataset, which can be opened if the block succeeds, and are removed if it does not.

    A process that is killed leaves objects without a manifest, which nobody takes for a dataset. With `overwrite` a
    dataset of that name is removed when the first chunk is written. Raises InputError if the place is taken, and
    WriteError if it cannot be written to.
    """
    if url.startswith("http"):
        raise InputError(f"{hide_secrets(url)}: an http URL can be read only; write to s3://, gs:// or az://")
    upload = Upload(url.rstrip("/"))
    upload.begin_writing(overwrite)
    try:
        yield upload
        upload.commit()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            interrupts.accept()  # or removing would be interrupted, too
        with suppress(InputError):  # the first error is told
            upload.give_up()
        raise


def _refuse_taken(url: str, manifest: bytes, overwrite: bool) -> None:
    """Raise InputError unless a dataset may be replaced that has this manifest."""
    try:
        is_ours = ATTRIBUTE in json.loads(manifest)["attributes"]
    except (ValueError, KeyError, TypeError):
        is_ours = False
    if not is_ours:
        raise InputError(f"{url}: exists already, and is no dataset; remove it or choose another name")
    if not overwrite:
        raise InputError(
            f"{url}: exists already; remove it or choose another name, or replace it by --overwrite "
            "(overwrite=True in Python)"
        )
