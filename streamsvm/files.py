"""Files that appear whole or not at all, and .npz files of arrays, which are read without pickle."""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, BinaryIO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
import numpy.typing as npt

from streamsvm.errors import InputError, WriteError
from streamsvm.npy_header import ZIP_ERRORS, read_npy_header

READ_BYTES = 1 << 20


@contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing, which appears whole or not at all, and is on disk when the block ends.

    It is written under a name that no other process uses, and then renamed. Raises WriteError if it cannot be written;
    then nothing of it is left.
    """
    partial = name_partial(path)
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except InputError:
        raise
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file, which appears whole or not at all."""
    with open_atomically(path) as file:
        file.write(content)


def name_partial(path: Path) -> Path:
    """Return a name beside `path`, which no other writer uses, for a file or folder that is being made."""
    return path.with_name(f".{path.name}.{token_hex(4)}.partial")


def is_partial(name: str, of: str | None = None) -> bool:
    """Tell whether `name_partial` made this name, from the name `of` (None: from any name)."""
    made = rf"\.{'.+' if of is None else re.escape(of)}\.[0-9a-f]{{8}}\.partial"
    return re.fullmatch(made, name, re.DOTALL) is not None  # a name may have line ends


def remove_partials(folder: Path, of: str | None = None) -> None:
    """Remove the partial files that killed writers left in a folder, for the name `of` or for any name.

    The caller must hold the lock. A folder that may be written to but not listed keeps its files.
    """
    for left in list_partials(folder, of):
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink(missing_ok=True)


def list_partials(folder: Path, of: str | None = None) -> list[Path]:
    """Return the partial files and folders in a folder, for the name `of` or for any name; none if it is not listed."""
    try:
        return [entry for entry in folder.iterdir() if is_partial(entry.name, of)]
    except PermissionError:
        return []


def refuse_inputs(out: Path, inputs: Iterable[str | Path]) -> None:
    """Raise InputError if `out` is one of the inputs, or lies in one of them, or contains one.

    inputs: files, folders, or "-", which is standard input.
    """
    for source in inputs:
        if _overlap(out, source):
            raise InputError(f"{out}: is read by this command, and would be replaced; choose another name to write to")


def _overlap(out: Path, source: str | Path) -> bool:
    if str(source) == "-":
        return out.exists() and os.path.samestat(os.fstat(sys.stdin.fileno()), out.stat())
    path, target = Path(str(source).removeprefix("file://")).resolve(), out.resolve()
    same = out.exists() and path.exists() and path.samefile(out)  # samefile knows hard links, too
    return same or target.is_relative_to(path) or path.is_relative_to(target)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, so that a renamed file survives a power failure.

    Nothing is done if the folder may not be read, or if its file system does not support this.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Bring all files in a folder and its subfolders to the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(parent, name), "rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(parent))


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write the file that `pack_arrays` returns, whole or not at all, without a copy of it in memory."""
    _refuse_objects(arrays)
    with open_atomically(path) as file:
        np.savez(file, **arrays)


def pack_arrays(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays as an .npz file whose bytes depend on the values alone."""
    _refuse_objects(arrays)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _refuse_objects(arrays: Mapping[str, Any]) -> None:
    """Raise InputError for an array that only pickle could write, or that `unpack_arrays` does not read."""
    for name, values in arrays.items():
        if (dtype := np.asarray(values).dtype).hasobject or dtype.kind in "cmM":
            raise InputError(f"{name} holds values of the type {dtype}, which no file of streamsvm has")


def unpack_arrays(path: Path | BinaryIO, place: str | None = None) -> dict[str, Any]:
    """Return the arrays of an .npz file, or of its content, that `write_arrays` or `pack_arrays` wrote.

    Reading runs no code, and takes no more memory than the file has bytes. Raises InputError, which names the file and
    the array, for all other files. place: what the file is called there, if not by its path.
    """
    name = ""
    try:
        with ZipFile(path) as archive:
            _check_members(archive)
            if damaged := archive.testzip():  # reading compares a checksum only at the end of an array
                raise ValueError(f"the checksum of {damaged} is wrong")
            arrays = {}
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                arrays[name] = _read_member(archive, member)
            return arrays
    except FileNotFoundError:
        raise InputError(f"{place or path}: no such file") from None
    except ZIP_ERRORS as error:
        array = f"{name}: " if name else ""
        raise InputError(f"{place or path}: damaged or not of streamsvm ({array}{error})") from error


def _check_members(archive: ZipFile) -> None:
    """Raise ValueError for members that are compressed, or larger than the file, since they could fill the memory."""
    members = archive.infolist()
    if len({member.filename for member in members}) < len(members):
        raise ValueError("two arrays have the same name")
    offsets = [int(member.header_offset) for member in members]
    if min(offsets, default=0):
        raise ValueError("other data precede its arrays")
    for member in members:
        if member.compress_type != ZIP_STORED or member.compress_size != member.file_size:
            raise ValueError(f"{member.filename} is compressed, which streamsvm never does")
        if not member.filename.endswith(".npy"):
            raise ValueError(f"{member.filename} is no array")
    if sum(member.file_size for member in members) > archive.start_dir:
        raise ValueError("its arrays are larger than the file")


def _read_member(archive: ZipFile, member: ZipInfo) -> Any:
    """Return an array. Raises ValueError unless its header claims the number of bytes that the file holds."""
    with archive.open(member) as file:
        header = read_npy_header(file)
        if header.start + header.nbytes != member.file_size:
            raise ValueError(f"{header.dtype} {header.shape} does not fit into {member.file_size:,} bytes")
        array = np.empty(header.shape, header.dtype, order="F" if header.by_columns else "C")
        _fill(file, array)
        return array


def _fill(file: IO[bytes], array: npt.NDArray[Any]) -> None:
    """Read the bytes of an array, READ_BYTES at a time, as they lie in memory."""
    flat = array.reshape(-1, order="A").view(np.uint8) if array.nbytes else np.empty(0, np.uint8)
    for at in range(0, flat.size, READ_BYTES):
        part = file.read(min(READ_BYTES, flat.size - at))
        flat[at : at + len(part)] = np.frombuffer(part, np.uint8)
        if len(part) < min(READ_BYTES, flat.size - at):
            raise EOFError("truncated")
