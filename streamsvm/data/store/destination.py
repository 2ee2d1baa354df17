"""The destination of a dataset, of predictions or of an exported model, which appear there whole or not at all.

Only one process at a time may write to a destination. It writes a new folder or file next to the destination, flushes
it to disk, and then renames it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import BinaryIO

from zarr.core.sync import sync

from streamsvm.data.remote.files import find_folder, is_object
from streamsvm.data.store.manifest import ATTRIBUTE
from streamsvm.data.store.shared_files import SPILL_FOLDER, IngestRecord, SharedFolder
from streamsvm.system.errors import InputError, WriteError
from streamsvm.system.files import (
    is_remote,
    list_partials,
    name_partial,
    open_atomically,
    remove_partials,
    sync_folder,
    sync_tree,
)
from streamsvm.system.locks import Lock

MANIFEST = "zarr.json"
REPLACE = "remove it or choose another name, or replace it by --overwrite (overwrite=True in Python)"


def check_destination(destination: Path, overwrite: bool = False) -> None:
    """Raise InputError unless a dataset can be written to `destination`. overwrite: whether it may replace one."""
    check_parents(destination)
    if destination.exists():
        file = destination / MANIFEST
        refuse_taken(destination, file.read_bytes() if file.is_file() else b"", overwrite)


def refuse_taken(place: str | Path, manifest: bytes, overwrite: bool) -> None:
    """Raise InputError unless a place with this manifest may be overwritten. See `check_destination`."""
    try:
        is_ours = ATTRIBUTE in json.loads(manifest)["attributes"]
    except (ValueError, KeyError, TypeError):
        is_ours = False
    if not (is_ours or Path(place, "score", MANIFEST).exists()):  # not a folder of predictions either
        raise InputError(f"{place}: exists already, and is no dataset; remove it or choose another name")
    if not overwrite:
        raise InputError(f"{place}: exists already; {REPLACE}")


def check_file(destination: str | Path, overwrite: bool) -> None:
    """Raise InputError unless a file can be written to `destination`. overwrite: whether it may replace one."""
    if is_remote(destination):
        find_folder(str(destination))
        is_there = not overwrite and is_object(str(destination))
    else:
        path = Path(destination)
        check_parents(path)
        if path.is_dir():
            raise InputError(f"{path}: exists already and is a folder; remove it or choose another name")
        is_there = path.exists()
    if is_there and not overwrite:
        raise InputError(f"{destination}: exists already; {REPLACE}")


def check_parents(destination: Path) -> None:
    """Raise InputError if a folder above `destination` is a file. Missing folders are made later."""
    for folder in destination.parents:
        if folder.exists():
            if not folder.is_dir():
                raise InputError(f"{folder}: is a file, and no folder for {destination}")
            return


def make_parents(destination: Path) -> None:
    """Make the missing folders above `destination`. Raises WriteError on failure."""
    if destination.parent.is_dir():
        return
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{destination.parent}: cannot be made: {error.strerror or error}") from error


@contextmanager
def new_file(destination: str | Path, overwrite: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing by one process at a time. It appears under its name whole or not at all.

    An object in a store is a temporary file until it is complete. Raises InputError if the file exists and must not be
    replaced, or if another process is writing it, and WriteError if it cannot be written.
    """
    if is_remote(destination):
        with _new_object(str(destination), overwrite) as file:
            yield file
        return
    destination = Path(destination)
    check_parents(destination)
    make_parents(destination)
    with Lock(destination):
        remove_partials(destination.parent, destination.name)
        check_file(destination, overwrite)  # again under the lock, since another process may have written it
        with open_atomically(destination) as file:
            yield file


@contextmanager
def _new_object(url: str, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a temporary file, which is uploaded as an object by one request if the block succeeds."""
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
    resumption: decides whether to resume the folder of a killed process, and whether to keep the folder after an error.
    Raises InputError if the destination exists or another process is writing to it, and WriteError if it cannot be
    written.
    """
    check_destination(destination, overwrite)
    make_parents(destination)
    with Lock(destination):
        left, keeps = None if resumption is None else _find_left(destination, resumption), False
        partial = left or name_partial(destination)
        try:
            if left is None:
                remove_partials(destination.parent, destination.name)
            _recover(destination)
            check_destination(destination, overwrite)  # again under the lock: another process may have written it
            partial.mkdir(exist_ok=left is not None)
            yield partial
            sync_tree(partial)
            _put_in_place(partial, destination, overwrite)
        except BaseException as error:
            keeps = resumption is not None and resumption.keeps(error)
            if isinstance(error, OSError) and not isinstance(error, (InputError, ConnectionError)):
                raise WriteError(f"{destination}: cannot be written: {error.strerror or error}") from error
            raise  # the error of a lost cluster has a message of its own
        finally:
            sync(_finish_writes())  # after Ctrl-C or an error, Zarr's own thread still writes files
            if not keeps:
                shutil.rmtree(partial, ignore_errors=True)


def _find_left(destination: Path, resumption: IngestRecord) -> Path | None:
    """Return the folder of a killed process whose work is to be resumed, or None."""
    left = list_partials(destination.parent, destination.name)
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
    sync_folder(destination.parent)
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
    """Wait for the other tasks in Zarr's event loop, but not for those that wait here, too, for another thread."""
    waiting = asyncio.current_task()
    assert waiting is not None
    waiting.set_name(_finish_writes.__qualname__)
    others = {task for task in asyncio.all_tasks() if task.get_name() != waiting.get_name()}
    if others:
        await asyncio.wait(others)
