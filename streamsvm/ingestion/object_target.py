"""Writes a dataset to an object store: chunks as they fill up, then the metadata, and the manifest last.

The manifest is written on the condition that none exists, so that the dataset appears whole or not at all. A store has
no locks that end with their process. The object `.writing` marks that a process is writing, and remains if the process
is killed. `--overwrite` replaces it, as does a process that resumes an ingest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from secrets import token_hex
from typing import Any

import google_crc32c
import zarr
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import ObjectStore

from streamsvm.data.remote.files import PART_BYTES, PARTS_IN_FLIGHT, RemoteFolder, put_object
from streamsvm.data.remote.store import begin, connect, wait_for, writing
from streamsvm.data.store.chunks import CRC_BYTES, Span
from streamsvm.data.store.destination import refuse_taken
from streamsvm.data.store.shared_files import SPILL, WRITING, IngestRecord, SharedObjects, read_ranges
from streamsvm.data.store.zarr_arrays import with_zeros
from streamsvm.system import interrupts
from streamsvm.system.errors import InputError, IntegrityError

MANIFEST = "zarr.json"
GIVEN_UP = b"given up"
CLEARED = "cleared"  # the scratch object that records that the old dataset has been removed


class Upload(ObjectStore[Any]):
    """The objects of a dataset that is being written, as a Zarr store. Use it through `new_upload`.

    Workers receive copies without credentials. A copy can only write chunks and combine chunks into shards; it stores
    the chunks of shards as scratch objects.
    """

    def __init__(self, url: str, token: str | None = None, metadata: Mapping[str, bytes] | None = None) -> None:
        super().__init__(connect(url))
        self.url, self._token, self._has_begun = url, token or token_hex(8), False
        self._is_copy, self._is_resumable = token is not None, False
        self.scratch, self._folder = SharedObjects(url, self._token), RemoteFolder(url)
        self._metadata = dict(metadata or {})
        self._checksums: dict[str, int] = {}
        self._shards: dict[str, Any] = {}  # shards that are being written

    def __str__(self) -> str:
        return self.url

    def __reduce__(self) -> tuple[Any, ...]:
        return Upload, (self.url, self._token, self._metadata)

    # --- the interface of the dataset writer

    def open_group(self) -> zarr.Group:
        """Return the group of the dataset. The first call removes the old dataset."""
        if not self._has_begun:
            self._has_begun = True
            if not self._is_resumable:
                self.remove()
            elif self.scratch.find(CLEARED) is None:
                self.remove()
                self.scratch.keep(CLEARED, b"")
        return zarr.open_group(self, mode="a", zarr_format=3)

    def write_chunk(self, name: str, span: Span, content: Sequence[bytes | memoryview]) -> None:
        """Write a raw chunk of an array as an object, or as the next part of its shard.

        content: its values, its checksum, and the index if it completes a shard, else b"".
        """
        key = f"{name}/{span.key}"
        if self._is_copy and span.kind == "shard":
            self.scratch.put(f"{name}/{span.own_key}", content[:2], span.n_bytes)
        else:
            self._require_token()
            wait_for(begin(self._put(key, content) if span.kind == "chunk" else self._put_next(key, content)))

    def join_chunks(self, name: str, spans: Sequence[Span], checksums: Sequence[int], end: bytes) -> None:
        """Combine scratch chunks into a shard. Raises IntegrityError if their checksums are not the given ones."""
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
        """Raise InputError if this is a worker's copy, and the dataset is no longer being written."""
        if self._is_copy:
            self.scratch.check()

    def open_array(self, name: str) -> zarr.Array[Any]:
        """Return an array for writing compressed chunks."""
        self._require_token()
        return with_zeros(zarr.open_array(self, path=name, mode="r+", zarr_format=3))

    def read_chunk(self, name: str, span: Span) -> bytes | None:
        """Return a chunk that a copy has written, with its checksum, or None if it does not exist."""
        if span.kind == "shard":
            return self.scratch.find(f"{name}/{span.own_key}")
        return self._folder.read(f"{name}/{span.key}")

    def read_checksum(self, name: str, span: Span) -> int:
        """Return the CRC-32C at the end of a compressed chunk."""
        return self._checksums[f"{name}/{span.own_key}"]

    # --- the interface of Zarr

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return metadata that were written. Chunks are only written, not read."""
        assert byte_range is None
        return prototype.buffer.from_bytes(self._metadata[key]) if key in self._metadata else None

    async def exists(self, key: str) -> bool:
        """Return whether these metadata were written."""
        return key in self._metadata

    async def set(self, key: str, value: Buffer) -> None:
        """Write a chunk, or hold metadata until `commit`."""
        content = value.to_bytes()
        if key.endswith("zarr.json"):
            self._metadata[key] = content
        else:
            await self._put(key, [content])
            self._checksums[key] = int.from_bytes(content[-CRC_BYTES:], "little")

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Hold metadata until `commit`, unless they exist already."""
        if key not in self._metadata:
            await self.set(key, value)

    async def _put(self, key: str, parts: Sequence[Any], mode: Any = None) -> None:
        await put_object(self.store, self.url, key, parts, sum(len(part) for part in parts), mode)

    async def _put_next(self, key: str, parts: Sequence[Any]) -> None:
        """Write the next part of a shard. The last of `parts` is the index, or empty before the end of the shard.

        A shard is sent in parts as they fill up, and is never in memory as a whole.
        """
        import obstore

        with writing(f"{self.url}/{key}"):
            if key not in self._shards:
                opened = obstore.open_writer_async(
                    self.store, key, buffer_size=PART_BYTES, max_concurrency=PARTS_IN_FLIGHT
                )
                self._shards[key] = opened
            for part in parts:
                for at in range(0, len(part), PART_BYTES):  # as copies, since the buffer is reused before they are sent
                    await self._shards[key].write(bytes(part[at : at + PART_BYTES]))
            if parts[-1]:
                await self._shards.pop(key).close()

    async def _abandon_shards(self) -> None:
        """Make the store discard incomplete shards."""
        while self._shards:
            _, shard = self._shards.popitem()
            with suppress(Exception):  # the bucket's lifecycle rules remove the remains
                await shard.__aexit__(KeyboardInterrupt, None, None)

    # --- the steps of writing a dataset

    def begin_writing(self, overwrite: bool, resumption: IngestRecord | None = None) -> None:
        """Mark this process as the writer, or resume another's work. Raises InputError if the URL is taken."""
        found = self._folder.read(MANIFEST)
        if found is not None:
            refuse_taken(self.url, found, overwrite)
        elif (keys := self._folder.list_names()) and WRITING not in keys:  # these are not left from an earlier ingest
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

    def _take_over(self, resumption: IngestRecord) -> bool:
        """Replace the token of a killed process by this one's, and return whether there was work to resume.

        Raises InputError if a third process does so at the same time.
        """
        if self._folder.read(WRITING) in (None, b"", GIVEN_UP):
            return False
        known = self._folder.ask_about(WRITING)["e_tag"]
        left = SharedObjects(self.url, (self._folder.read(WRITING) or b"").decode())
        if not resumption.goes_on(left):
            return False
        self._token = f"{left.folder_name}-{token_hex(8)}"
        self.scratch = SharedObjects(self.url, self._token)
        self._put_on_condition(WRITING, self._token.encode(), "another process goes on with it", {"e_tag": known})
        return True

    def commit(self) -> None:
        """Write the metadata, then the manifest. Raises InputError if another process has written one meanwhile."""
        others = "another process has begun to write to it meanwhile"
        if self._folder.read(WRITING) != self._token.encode():
            raise InputError(f"{self.url}: {others}")
        for key in self._metadata:
            if key != MANIFEST:
                wait_for(begin(self._put(key, [self._metadata[key]])))
        self._remove_scratch()
        self._put_on_condition(MANIFEST, self._metadata[MANIFEST], others, "create")
        self._folder.remove([WRITING])

    def give_up(self) -> None:
        """Remove the objects that this process has written, and keep older ones."""
        wait_for(begin(self._abandon_shards()))
        if self._folder.read(WRITING) == self._token.encode():
            wait_for(begin(self._put(WRITING, [GIVEN_UP], "overwrite")))  # workers then remove what they still write
            if self._has_begun:
                self.remove()
            self._remove_scratch()
            self._folder.remove([WRITING])

    def _remove_scratch(self) -> None:
        self._folder.remove([key for key in self._folder.list_names() if key.startswith(f"{SPILL}/")])

    def remove(self) -> None:
        """Remove all objects, the manifest first, except the scratch objects and the mark of this process."""
        keys = self._folder.list_names()
        if MANIFEST in keys:
            self._folder.remove([MANIFEST])
        ours = (WRITING, f"{SPILL}/{self.scratch.folder_name}/")
        self._folder.remove([key for key in keys if key != MANIFEST and not key.startswith(ours)])

    def _put_on_condition(self, key: str, content: bytes, otherwise: str, mode: Any) -> None:
        """Put an object on the condition of an obstore mode. If it is not met, raise InputError with `otherwise`."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            wait_for(begin(self._put(key, [content], mode)))
        except (AlreadyExistsError, PreconditionError, FileExistsError):
            raise InputError(f"{self.url}: {otherwise}") from None


@contextmanager
def new_upload(url: str, overwrite: bool = False, resumption: IngestRecord | None = None) -> Iterator[Upload]:
    """Yield the objects of a new dataset, which is complete if the block succeeds, and is removed otherwise.

    A killed process leaves objects without a manifest, which are not a dataset. With `overwrite`, an existing dataset
    is removed before the first array is made.

    resumption: decides whether to resume the work of a killed process, and whether objects are kept after an error.
    Raises InputError if the URL is taken, and WriteError if it cannot be written to.
    """
    upload = Upload(url.rstrip("/"))
    upload.begin_writing(overwrite, resumption)
    try:
        yield upload
        upload.commit()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            interrupts.accept()  # otherwise the removal would be interrupted, too
        with suppress(InputError):  # so that the first error is raised
            if resumption is None or not resumption.keeps(error):
                upload.give_up()
        raise
