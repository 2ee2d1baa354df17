"""The destination of a dataset, of predictions or of an exported model, which appear there whole or not at all.

One process at a time may write to a destination. It makes a new folder or file beside the destination, brings it to the
disk, and then renames it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from zarr.core.sync import sync

from streamsvm.data.manifest import ATTRIBUTE
from streamsvm.data.shared_scratch import SPILL_FOLDER, Resumption, SharedFolder
from streamsvm.errors import InputError, WriteError
from streamsvm.files import list_partials, name_partial, open_atomically, remove_partials, sync_folder, sync_tree
from streamsvm.locks import Lock

MANIFEST = "zarr.json"
REPLACE = "remove it or choose another name, or replace it by --overwrite (overwrite=True in Python)"


def check_destination(destination: Path, overwrite: bool = False) -> None:
    """Raise InputError if nothing can be written to `destination`. With `overwrite` a dataset may be replaced."""
    check_parents(destination)
    if not destination.exists():
        return
    if not _is_our_group(destination):
        raise InputError(f"{destination}: exists already, and is no dataset; remove it or choose another name")
    if not overwrite:
        raise InputError(f"{destination}: exists already; {REPLACE}")


def refuse_taken(url: str, manifest: bytes, overwrite: bool) -> None:
    """Raise InputError if nothing can be written to a URL where this manifest lies. See `check_destination`."""
    try:
        is_ours = ATTRIBUTE in json.loads(manifest)["attributes"]
    except (ValueError, KeyError, TypeError):
        is_ours = False
    if not is_ours:
        raise InputError(f"{url}: exists already, and is no dataset; remove it or choose another name")
    if not overwrite:
        raise InputError(f"{url}: exists already; {REPLACE}")


def check_file(destination: Path, overwrite: bool) -> None:
    """Raise InputError if no file can be written to `destination`. With `overwrite` a file may be replaced."""
    check_parents(destination)
    if destination.is_dir():
        raise InputError(f"{destination}: exists already and is a folder; remove it or choose another name")
    if destination.exists() and not overwrite:
        raise InputError(f"{destination}: exists already; {REPLACE}")


def check_parents(destination: Path) -> None:
    """Raise InputError if a folder above `destination` is a file. Folders that are not there are made when needed."""
    for folder in destination.parents:
        if folder.exists():
            if not folder.is_dir():
                raise InputError(f"{folder}: is a file, and no folder for {destination}")
            return


def make_parents(destination: Path) -> None:
    """Make the folders above `destination` that are not there. Raises WriteError if they cannot be made."""
    if destination.parent.is_dir():
        return
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{destination.parent}: cannot be made: {error.strerror or error}") from error


@contextmanager
def new_file(destination: Path, overwrite: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing by one process at a time. It appears under its name wholly or not at all.

    Raises InputError if the file exists and is not to be replaced, or another process is writing it, and WriteError if
    it cannot be written.
    """
    check_parents(destination)
    make_parents(destination)
    with Lock(destination):
        remove_partials(destination.parent, destination.name)
        check_file(destination, overwrite)  # with the lock, since another process may have finished it
        with open_atomically(destination) as file:
            yield file


@contextmanager
def new_folder(destination: Path, overwrite: bool = False, resumption: Resumption | None = None) -> Iterator[Path]:
    """Yield a new folder, which becomes `destination` if the block succeeds and is removed if it does not.

    Its files are on disk before it gets its name. With `overwrite` a dataset of that name is replaced at the end.
    resumption: decides whether it is the folder that a killed process has left, and whether it is kept after an error.
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
            check_destination(destination, overwrite)  # once more, with the lock: another process may have finished it
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
            sync(_finish_writes())  # after Ctrl-C or an error Zarr's own thread still writes files
            if not keeps:
                shutil.rmtree(partial, ignore_errors=True)


def _find_left(destination: Path, resumption: Resumption) -> Path | None:
    """Return the folder that a killed process has left, if it is to be gone on with."""
    left = list_partials(destination.parent, destination.name)
    return next((each for each in left if resumption.goes_on(SharedFolder(each / SPILL_FOLDER))), None)


def remove_unfinished(folder: Path) -> None:
    """Remove files that a killed process left unfinished in a partial folder, and the metadata, which come anew."""
    for parent, _, names in os.walk(folder):
        for name in names:
            if name == MANIFEST or name.endswith(".partial"):  # both we and Zarr name files so until they are complete
                os.unlink(os.path.join(parent, name))


def _put_in_place(partial: Path, destination: Path, overwrite: bool) -> None:
    """Give a complete folder its name. The folder that it replaces is removed afterwards."""
    if overwrite and destination.exists():
        os.replace(destination, _name_replaced(destination))
    os.replace(partial, destination)
    sync_folder(destination.parent)
    shutil.rmtree(_name_replaced(destination), ignore_errors=True)


def _recover(destination: Path) -> None:
    """Repair what a process left that was killed between two renames: put the old dataset back, or remove it."""
    replaced = _name_replaced(destination)
    if replaced.exists() and not destination.exists():
        os.replace(replaced, destination)
    shutil.rmtree(replaced, ignore_errors=True)


def _name_replaced(destination: Path) -> Path:
    return destination.with_name(f".{destination.name}.replaced")


def _is_our_group(folder: Path) -> bool:
    """Tell whether a folder is a dataset or holds predictions."""
    try:
        attributes = json.loads((folder / MANIFEST).read_bytes())["attributes"]
        return ATTRIBUTE in attributes or (folder / "score" / "zarr.json").exists()
    except (OSError, ValueError, KeyError, TypeError):
        return False


async def _finish_writes() -> None:
    """Wait for the other tasks of Zarr's event loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others)
