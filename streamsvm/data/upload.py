"""A dataset that is written to an object store: chunks as they fill up, metadata at the end, and last the manifest.

The manifest is put there on the condition that there is none, so that the dataset appears whole or not at all. A store
has no locks that end with their process. An object `.writing` says that a process is writing, and stays if the process
is killed; `--overwrite` replaces it, and so does a process that goes on with an ingest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from secrets import token_hex
from typing import Any

import google_crc32c
import zarr
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import ObjectStore

from streamsvm import interrupts
from streamsvm.data.chunk_file import CRC_BYTES, Bytes
from streamsvm.data.destination import refuse_taken
from streamsvm.data.object_store import begin, connect, open_store, reading, wait_for, writing
from streamsvm.data.object_writer import PART_BYTES, PARTS_IN_FLIGHT, put_object
from streamsvm.data.shards import Span
from streamsvm.data.shared_scratch import SPILL, WRITING, Resumption, SharedObjects, read_ranges
from streamsvm.errors import InputError, IntegrityError
from streamsvm.urls import hide_secrets

MANIFEST = "zarr.json"
GIVEN_UP = b"given up"
CLEARED = "cleared"  # the scratch object that says that what is to be replaced was removed


class Upload(ObjectStore[Any]):
    """The objects of a dataset that is being written, as a store of Zarr. Use it in `new_upload`.

    A worker has a copy of it, without credentials, and can do no more than write chunks, and join chunks to shards: a
    copy puts a chunk that belongs into a shard among the scratch objects.
    """

    def __init__(self, url: str, token: str | None = None, metadata: Mapping[str, bytes] | None = None) -> None:
        super().__init__(connect(url))
        self.url, self._token, self._has_begun = url, token or token_hex(8), False
        self._is_copy, self._is_resumable = token is not None, False
        self.scratch = SharedObjects(url, self._token)
        self._metadata = dict(metadata or {})
        self._checksums: dict[str, int] = {}
        self._shards: dict[str, Any] = {}  # those that are being written

    def __str__(self) -> str:
        return self.url

    def __reduce__(self) -> tuple[Any, ...]:
        return Upload, (self.url, self._token, self._metadata)

    # --- what the writer of a dataset needs

    def open_group(self) -> zarr.Group:
        """Return the group of the dataset. Before the first call, what is to be replaced is removed."""
        if not self._has_begun:
            self._has_begun = True
            if not self._is_resumable:
                self.remove()
            elif self.scratch.find(CLEARED) is None:
                self.remove()
                self.scratch.keep(CLEARED, b"")
        return zarr.open_group(self, mode="a", zarr_format=3)

    def write_chunk(self, name: str, span: Span, payload: Bytes, end: bytes) -> None:
        """Write a raw chunk of an array: its object, or what comes next in its shard, which `end` completes."""
        key, checksum = f"{name}/{span.key}", google_crc32c.value(payload)
        parts = [payload.data, checksum.to_bytes(CRC_BYTES, "little")]
        if self._is_copy and span.kind == "shard":
            self.scratch.put(f"{name}/{span.own_key}", parts, span.n_bytes)
        else:
            self._require_token()
            wait_for(begin(self._put(key, parts) if span.kind == "chunk" else self._put_next(key, [*parts, end])))
        self._checksums[f"{name}/{span.own_key}"] = checksum

    def join_chunks(self, name: str, spans: Sequence[Span], checksums: Sequence[int], end: bytes) -> None:
        """Write a shard, whose chunks copies have put among the scratch objects. Raises IntegrityError for others."""
        wanted = [(f"{name}/{span.own_key}", span.n_bytes, (0, span.n_bytes)) for span in spans]
        self._require_token()
        try:
            with closing(read_ranges(self.scratch, wanted)) as contents:
                for span, checksum, (file, content) in zip(spans, checksums, contents, strict=True):
                    payload, stored = content[:-CRC_BYTES], checksum.to_bytes(CRC_BYTES, "little")
                    if google_crc32c.value(payload) != checksum or content[-CRC_BYTES:].tobytes() != stored:
                        raise IntegrityError(f"{file}: is damaged (its checksum is wrong)")
                    parts = [content.data, end if span is spans[-1] else b""]
                    wait_for(begin(self._put_next(f"{name}/{span.key}", parts)))
        finally:
            wait_for(begin(self._abandon_shards()))

    def _require_token(self) -> None:
        """Raise InputError if this is the copy of a worker, and the dataset is no longer being written."""
        if self._is_copy:
            self.scratch.check()

    def open_array(self, name: str) -> zarr.Array[Any]:
        """Return an array, to write compressed chunks of it."""
        self._require_token()
        return zarr.open_array(self, path=name, mode="r+", zarr_format=3)

    def read_chunk(self, name: str, span: Span) -> bytes | None:
        """Return a chunk that a copy has written, with its checksum, or None if there is none."""
        if span.kind == "shard":
            return self.scratch.find(f"{name}/{span.own_key}")
        return self._read(f"{name}/{span.key}")

    def note_checksum(self, name: str, span: Span, checksum: int) -> None:
        """Take note of the CRC-32C that a chunk ends with, which a copy has written."""
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

    async def _put(self, key: str, parts: Sequence[Any], mode: Any = None) -> None:
        await put_object(self.store, self.url, key, parts, sum(len(part) for part in parts), mode)

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
                for at in range(0, len(part), PART_BYTES):  # copies: the memory is used again before it is sent
                    await self._shards[key].write(bytes(part[at : at + PART_BYTES]))
            if parts[-1]:
                await self._shards.pop(key).close()

    async def _abandon_shards(self) -> None:
        """Let the store forget the shards that are not complete."""
        while self._shards:
            _, shard = self._shards.popitem()
            with suppress(Exception):  # what cannot be undone is left for the bucket to remove
                await shard.__aexit__(KeyboardInterrupt, None, None)

    # --- from nothing to a dataset

    def begin_writing(self, overwrite: bool, resumption: Resumption | None = None) -> None:
        """Say that this process writes here, or goes on with another's work. InputError if the place is taken."""
        found = self._read(MANIFEST)
        if found is not None:
            refuse_taken(self.url, found, overwrite)
        elif self._holds_others():
            raise InputError(f"{self.url}: there are objects already, and they are no dataset; choose another name")
        self._is_resumable = resumption is not None
        if resumption is not None and self._take_over(resumption):
            return
        self._put_on_condition(
            WRITING,
            self._token.encode(),
            "another process is writing to it, or was killed while it did; if none is, replace what is left by "
            "--overwrite (overwrite=True in Python)" + ", or go on with it by --resume" * (resumption is not None),
            "overwrite" if overwrite else "create",
        )

    def _take_over(self, resumption: Resumption) -> bool:
        """Take the place of another process if this is wanted, and return whether it is. InputError if a third does."""
        if self._read(WRITING) in (None, b"", GIVEN_UP):
            return False
        known = open_store(self.url).ask_about(WRITING)["e_tag"]
        left = SharedObjects(self.url, (self._read(WRITING) or b"").decode())
        if not resumption.goes_on(left):
            return False
        self._token = f"{left.folder_name}-{token_hex(8)}"
        self.scratch = SharedObjects(self.url, self._token)
        self._put_on_condition(WRITING, self._token.encode(), "another process goes on with it", {"e_tag": known})
        return True

    def commit(self) -> None:
        """Write the metadata, and last of all the manifest. Raises InputError if another process has written one."""
        others = "another process has begun to write to it meanwhile"
        if self._read(WRITING) != self._token.encode():
            raise InputError(f"{self.url}: {others}")
        for key in self._metadata:
            if key != MANIFEST:
                wait_for(begin(self._put(key, [self._metadata[key]])))
        self._delete([key for key in self._list_keys() if key.startswith(f"{SPILL}/")])
        self._put_on_condition(MANIFEST, self._metadata[MANIFEST], others, "create")
        self._delete([WRITING])

    def give_up(self) -> None:
        """Remove what this process has written, and leave what was there before it began."""
        wait_for(begin(self._abandon_shards()))
        if self._read(WRITING) == self._token.encode():
            wait_for(begin(self._put(WRITING, [GIVEN_UP], "overwrite")))  # what workers still put, they remove
            if self._has_begun:
                self.remove()
            self._delete([key for key in self._list_keys() if key.startswith(f"{SPILL}/")])
            self._delete([WRITING])

    def remove(self) -> None:
        """Remove all objects but those that are there because this process is writing; the manifest first."""
        keys = self._list_keys()
        if MANIFEST in keys:
            self._delete([MANIFEST])
        ours = (WRITING, f"{SPILL}/{self.scratch.folder_name}/")
        self._delete([key for key in keys if key != MANIFEST and not key.startswith(ours)])

    def _put_on_condition(self, key: str, content: bytes, otherwise: str, mode: Any) -> None:
        """Put an object on the condition of the mode of obstore. Raises InputError, which tells `otherwise`."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            wait_for(begin(self._put(key, [content], mode)))
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

        if not keys:
            return
        with writing(self.url), suppress(FileNotFoundError):
            wait_for(begin(delete()))


@contextmanager
def new_upload(url: str, overwrite: bool = False, resumption: Resumption | None = None) -> Iterator[Upload]:
    """Yield the objects of a new dataset, which can be opened if the block succeeds, and are removed if it does not.

    A process that is killed leaves objects without a manifest, which nobody takes for a dataset. With `overwrite` a
    dataset of that name is removed when the first chunk is written.

    resumption: decides whether they are those that a killed process has left, and whether they stay after an error.
    Raises InputError if the place is taken, and WriteError if it cannot be written to.
    """
    if url.startswith("http"):
        raise InputError(f"{hide_secrets(url)}: an http URL can be read only; write to s3://, gs:// or az://")
    upload = Upload(url.rstrip("/"))
    upload.begin_writing(overwrite, resumption)
    try:
        yield upload
        upload.commit()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            interrupts.accept()  # or removing would be interrupted, too
        with suppress(InputError):  # the first error is told
            if resumption is None or not resumption.keeps(error):
                upload.give_up()
        raise
