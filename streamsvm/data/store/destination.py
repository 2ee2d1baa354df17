"""Destinations of datasets, predictions and exported models. A dataset or file appears there whole or not at all.

Only one process at a time may write to a destination on a disk. It writes a new folder or file next to the destination,
flushes it to disk, and then renames it.

In an object store, a dataset is written in place: chunks as they fill up, then the metadata, and the manifest last. The
manifest is written on the condition that none exists, so that the dataset appears whole or not at all. A store has no
locks that are released when their process ends. The object `.writing` marks that a process is writing, and remains if
the process is killed. `--overwrite` replaces it, as does a process that resumes an ingest.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, BinaryIO

import google_crc32c
import zarr
from zarr.core.buffer import Buffer
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from streamsvm.data.remote.files import PART_BYTES, PARTS_IN_FLIGHT, is_object, put_object
from streamsvm.data.remote.objects import RemoteFolder, find_folder
from streamsvm.data.remote.store import begin, connect, wait_for, writing
from streamsvm.data.store.chunks import CRC_BYTES, Span
from streamsvm.data.store.manifest import ATTRIBUTE
from streamsvm.data.store.shared_files import (
    SPILL,
    SPILL_FOLDER,
    WRITING,
    IngestRecord,
    SharedFolder,
    SharedObjects,
    read_ranges,
)
from streamsvm.system import files, interrupts
from streamsvm.system.errors import InputError, IntegrityError, WriteError
from streamsvm.system.files import Lock

MANIFEST = "zarr.json"
GIVEN_UP = b"given up"
CLEARED = "cleared"  # the scratch object that records that the old dataset has been removed
REPLACE = "remove it, choose another name, or replace it with --overwrite (overwrite=True in Python)"


def check_destination(destination: Path, overwrite: bool = False) -> None:
    """Raise InputError unless a dataset can be written to `destination`. overwrite: whether to replace a dataset."""
    check_parents(destination)
    if destination.exists():
        file = destination / MANIFEST
        refuse_taken(destination, file.read_bytes() if file.is_file() else b"", overwrite)


def refuse_taken(place: str | Path, manifest: bytes, overwrite: bool) -> None:
    """Raise InputError unless `place` may be overwritten. manifest: the bytes of its manifest (b"": it has none)."""
    is_ours = False
    with suppress(ValueError, KeyError, TypeError):
        is_ours = ATTRIBUTE in json.loads(manifest)["attributes"]
    if not (is_ours or Path(place, "score", MANIFEST).exists()):  # not a folder of predictions either
        raise InputError(f"{place}: already exists and is not a dataset; remove it or choose another name")
    if not overwrite:
        raise InputError(f"{place}: already exists; {REPLACE}")


def check_file(destination: str | Path, overwrite: bool) -> None:
    """Raise InputError unless a file can be written to `destination`. overwrite: whether to replace a file."""
    if files.is_remote(destination):
        find_folder(str(destination))
        is_there = not overwrite and is_object(str(destination))
    else:
        path = Path(destination)
        check_parents(path)
        if path.is_dir():
            raise InputError(f"{path}: already exists and is a folder; remove it or choose another name")
        is_there = path.exists()
    if is_there and not overwrite:
        raise InputError(f"{destination}: already exists; {REPLACE}")


def check_parents(destination: Path) -> None:
    """Raise InputError if a folder above `destination` is a file. Missing folders are made later."""
    folder = next((folder for folder in destination.parents if folder.exists()), None)
    if folder is not None and not folder.is_dir():
        raise InputError(f"{folder}: is a file, so it cannot contain {destination}")


def make_parents(destination: Path) -> None:
    """Make the missing folders above `destination`. Raises WriteError on failure."""
    if not destination.parent.is_dir():
        with files.writing(destination.parent):
            destination.parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def new_file(destination: str | Path, overwrite: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing by one process at a time. It appears under its name whole or not at all.

    A file for an object store is a temporary file until it is complete. Raises InputError if the file exists and must
    not be replaced, or if another process is writing it, and WriteError if it cannot be written.
    """
    if files.is_remote(destination):
        with _new_object(str(destination), overwrite) as file:
            yield file
        return
    destination = Path(destination)
    check_parents(destination)
    make_parents(destination)
    with Lock(destination):
        files.remove_partials(destination.parent, destination.name)
        check_file(destination, overwrite)  # check again under the lock
        with files.open_atomically(destination) as file:
            yield file


@contextmanager
def _new_object(url: str, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a temporary file. If the block succeeds, the file is uploaded as one object."""
    folder, name = find_folder(url)
    try:
        with TemporaryDirectory(prefix="streamsvm-object") as temporary, Path(temporary, name).open("wb") as file:
            yield file
            file.flush()
            folder.put(name, Path(file.name), only_if_known=not overwrite)
    except InputError:
        raise
    except OSError as error:
        raise WriteError(f"{url}: cannot be written: {gettempdir()}: {error.strerror or error}") from error


@contextmanager
def new_folder(destination: Path, overwrite: bool = False, resumption: IngestRecord | None = None) -> Iterator[Path]:
    """Yield a new folder, which becomes `destination` if the block succeeds and is removed otherwise.

    Its files are flushed to disk before it is renamed. With `overwrite`, an existing dataset is replaced at the end.
    resumption: the record that decides whether to resume the folder of a killed process, and whether to keep the folder
    after an error. Raises InputError if the destination exists or another process is writing to it, and WriteError if
    it cannot be written.
    """
    check_destination(destination, overwrite)
    make_parents(destination)
    with Lock(destination):
        left, keeps = None if resumption is None else _find_left(destination, resumption), False
        partial = left or files.name_partial(destination)
        try:
            if left is None:
                files.remove_partials(destination.parent, destination.name)
            _recover(destination)
            check_destination(destination, overwrite)  # check again under the lock
            partial.mkdir(exist_ok=left is not None)
            yield partial
            files.sync_tree(partial)
            _put_in_place(partial, destination, overwrite)
        except BaseException as error:
            keeps = resumption is not None and resumption.keeps(error)
            if isinstance(error, OSError) and not isinstance(error, (InputError, ConnectionError)):
                raise WriteError(f"{destination}: cannot be written: {error.strerror or error}") from error
            raise  # the error of a lost cluster has a message of its own
        finally:
            sync(_finish_writes())  # after Ctrl-C or an error, Zarr's own thread still writes files
            if not keeps:
                with suppress(OSError):
                    files.remove_shared_folder(partial, destination)


def _find_left(destination: Path, resumption: IngestRecord) -> Path | None:
    """Return the folder of a killed process whose work is to be resumed, or None."""
    left = files.list_partials(destination.parent, destination.name)
    return next((each for each in left if resumption.goes_on(SharedFolder(each / SPILL_FOLDER))), None)


def remove_unfinished(folder: Path) -> None:
    """Remove the unfinished files and the metadata that a killed process left in a partial folder."""
    for parent, _, names in os.walk(folder):
        for name in names:
            if name == MANIFEST or name.endswith(".partial"):  # the suffix of incomplete files, here and in Zarr
                os.unlink(os.path.join(parent, name))


def _put_in_place(partial: Path, destination: Path, overwrite: bool) -> None:
    """Rename a complete folder to its destination. The folder that it replaces is removed afterwards."""
    if overwrite and destination.exists():
        os.replace(destination, _name_replaced(destination))
    os.replace(partial, destination)
    files.sync_folder(destination.parent)
    shutil.rmtree(_name_replaced(destination), ignore_errors=True)


def _recover(destination: Path) -> None:
    """Repair the state after a process was killed between two renames: restore the old dataset, or remove it."""
    replaced = _name_replaced(destination)
    if replaced.exists() and not destination.exists():
        os.replace(replaced, destination)
    shutil.rmtree(replaced, ignore_errors=True)


def _name_replaced(destination: Path) -> Path:
    return destination.with_name(f".{destination.name}.replaced")


async def _finish_writes() -> None:
    """Wait for all tasks in Zarr's event loop, except tasks in which other threads run this function."""
    waiting = asyncio.current_task()
    assert waiting is not None
    waiting.set_name(_finish_writes.__qualname__)
    others = {task for task in asyncio.all_tasks() if task.get_name() != waiting.get_name()}
    if others:
        await asyncio.wait(others)


class Upload:
    """The objects of a dataset that is being written. Use it through `new_upload`.

    Workers receive copies without credentials. A copy can only write chunks and combine chunks into shards; it stores
    the chunks of shards as scratch objects.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url, self.store, self._token, self._has_begun = url, connect(url), token or token_hex(8), False
        self._is_copy, self._is_resumable = token is not None, False
        self.scratch, self._folder = SharedObjects(url, self._token), RemoteFolder(url)
        self._metadata: dict[str, Buffer] = {}  # held until `commit`
        self._shards: dict[str, Any] = {}  # shards that are being written

    def __reduce__(self) -> tuple[Any, ...]:
        return Upload, (self.url, self._token)

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
        return zarr.open_group(MemoryStore(self._metadata), mode="a", zarr_format=3)

    def write_chunk(self, name: str, span: Span, content: Sequence[bytes | memoryview]) -> None:
        """Write a chunk of an array as an object, or a raw chunk as the next part of its shard.

        content: the compressed chunk; or the values of a raw chunk, its checksum, and the index of the shard if the
        chunk completes it (otherwise b"").
        """
        key = f"{name}/{span.key}"
        if self._is_copy and span.kind == "shard":
            self.scratch.put(f"{name}/{span.own_key}", content[:2], span.n_bytes)
        else:
            if self._is_copy:
                self.scratch.check()
            wait_for(begin(self._put(key, content) if span.kind == "chunk" else self._put_next(key, content)))

    def join_chunks(self, name: str, spans: Sequence[Span], checksums: Sequence[int], end: bytes) -> None:
        """Combine scratch chunks and the bytes `end` into a shard. Raises IntegrityError for a wrong checksum."""
        wanted = [(f"{name}/{span.own_key}", span.n_bytes, (0, span.n_bytes)) for span in spans]
        if self._is_copy:
            self.scratch.check()
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

    def read_chunk(self, name: str, span: Span) -> bytes | None:
        """Return a chunk that a worker has written, with its checksum, or None if it does not exist."""
        if span.kind == "shard":
            return self.scratch.find(f"{name}/{span.own_key}")
        return self._folder.read(f"{name}/{span.key}")

    async def _put(self, key: str, parts: Sequence[Any], mode: Any = None) -> None:
        await put_object(self.store, self.url, key, parts, sum(len(part) for part in parts), mode)

    async def _put_next(self, key: str, parts: Sequence[Any]) -> None:
        """Append `parts` to a shard.

        The last part is the index of the shard if this chunk completes it, and otherwise empty.

        The shard is uploaded piece by piece, so it is never in memory as a whole.
        """
        import obstore

        with writing(f"{self.url}/{key}"):
            if key not in self._shards:
                sizes: Any = {"buffer_size": PART_BYTES, "max_concurrency": PARTS_IN_FLIGHT}
                self._shards[key] = obstore.open_writer_async(self.store, key, **sizes)
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
        """Mark this process as the writer, or resume a killed ingest. Raises InputError if the URL is taken."""
        found = self._folder.read(MANIFEST)
        if found is not None:
            refuse_taken(self.url, found, overwrite)
        elif (keys := self._folder.list_names()) and WRITING not in keys:  # not the remains of an ingest
            raise InputError(f"{self.url}: already has objects that are not a dataset; choose another name")
        self._is_resumable = resumption is not None
        if resumption is not None and self._take_over(resumption):
            return
        remedy = "replace the remains with --overwrite (overwrite=True in Python)"
        remedy += ", or continue with --resume" * (resumption is not None)
        taken = f"another process is writing to it, or was killed; if it was killed, {remedy}"
        self._put_on_condition(WRITING, self._token.encode(), taken, "overwrite" if overwrite else "create")

    def _take_over(self, resumption: IngestRecord) -> bool:
        """Replace the token of a killed process by a new token. Return whether there is an ingest to resume.

        Raises InputError if a third process replaces the token at the same time.
        """
        if self._folder.read(WRITING) in (None, b"", GIVEN_UP):
            return False
        known = self._folder.ask_about(WRITING)["e_tag"]
        left = SharedObjects(self.url, (self._folder.read(WRITING) or b"").decode())
        if not resumption.goes_on(left):
            return False
        self._token = f"{left.folder_name}-{token_hex(8)}"
        self.scratch = SharedObjects(self.url, self._token)
        self._put_on_condition(WRITING, self._token.encode(), "another process resumes the ingest", {"e_tag": known})
        return True

    def commit(self) -> None:
        """Write the metadata, then the manifest. Raises InputError if another process has begun to write there."""
        others = "another process has begun to write to it"
        if self._folder.read(WRITING) != self._token.encode():
            raise InputError(f"{self.url}: {others}")
        for key, content in self._metadata.items():
            if key != MANIFEST:
                wait_for(begin(self._put(key, [content.to_bytes()])))
        self._remove_scratch()
        self._put_on_condition(MANIFEST, self._metadata[MANIFEST].to_bytes(), others, "create")
        self._folder.remove([WRITING])

    def give_up(self) -> None:
        """Remove the objects that this process has written, and keep older objects."""
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
        """Remove all objects, the manifest first, except the scratch objects and `.writing`."""
        keys = self._folder.list_names()
        if MANIFEST in keys:
            self._folder.remove([MANIFEST])
        ours = (WRITING, f"{SPILL}/{self.scratch.folder_name}/")
        self._folder.remove([key for key in keys if key != MANIFEST and not key.startswith(ours)])

    def _put_on_condition(self, key: str, content: bytes, otherwise: str, mode: Any) -> None:
        """Put an object on the condition that an obstore mode sets.

        If it is not met, raise InputError with `otherwise`.
        """
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            wait_for(begin(self._put(key, [content], mode)))
        except (AlreadyExistsError, PreconditionError, FileExistsError):
            raise InputError(f"{self.url}: {otherwise}") from None


@contextmanager
def new_upload(url: str, overwrite: bool = False, resumption: IngestRecord | None = None) -> Iterator[Upload]:
    """Yield the Upload of a new dataset, which is complete if the block succeeds, and is removed otherwise.

    A killed process leaves objects without a manifest, which are not a dataset. With `overwrite`, an existing dataset
    is removed before the first array is made.

    resumption: the record that decides whether to resume the work of a killed process, and whether objects are kept
    after an error. Raises InputError if the URL is taken, and WriteError if it cannot be written to.
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


def open_destination(
    destination: str | Path, overwrite: bool, record: IngestRecord | None = None
) -> AbstractContextManager[Path | Upload]:
    """Return a context that yields a new folder, or an Upload to a store, which becomes the dataset on success.

    record: the record of the ingest, which decides whether to resume the work of a killed process there.
    """
    if files.is_remote(destination):
        return new_upload(str(destination), overwrite, record)
    return new_folder(Path(destination), overwrite, record)
