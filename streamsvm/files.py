"""Files that appear whole or not at all, and arrays without pickle."""

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
    """Open a file to be written that is there whole or not at all; it is on disk when the block has ended.

    It is written under a name that no other process uses, and renamed. WriteError names a file that cannot be written;
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
    """Write a file, whole or not at all."""
    with open_atomically(path) as file:
        file.write(content)


def name_partial(path: Path) -> Path:
    """Return a name beside `path`, of a file or folder in the making, that no other writer uses."""
    return path.with_name(f".{path.name}.{token_hex(4)}.partial")


def is_partial(name: str, of: str | None = None) -> bool:
    """Tell whether a file's name was made by `name_partial`, from the name `of` (None: from any)."""
    return re.fullmatch(rf"\.{'.+' if of is None else re.escape(of)}\.[0-9a-f]{{8}}\.partial", name) is not None


def remove_partials(folder: Path, of: str | None = None) -> None:
    """Remove what killed writers have left in a folder, of the name `of` or of any. The caller holds the lock on it.

    A folder that may be written to but not listed keeps what is there.
    """
    try:
        entries = list(folder.iterdir())
    except PermissionError:
        return
    for left in entries:
        if is_partial(left.name, of):
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink(missing_ok=True)


def refuse_inputs(out: Path, inputs: Iterable[str | Path]) -> None:
    """InputError if what is to be written is read from, too.

    inputs: files, folders (also if one lies in the other), or "-", which is standard input.
    """
    for source in inputs:
        if _overlap(out, source):
            raise InputError(f"{out}: is read by this command, and would be replaced; choose another name to write to")


def _overlap(out: Path, source: str | Path) -> bool:
    if str(source) == "-":
        return out.exists() and os.path.samestat(os.fstat(sys.stdin.fileno()), out.stat())
    path, target = Path(str(source).removeprefix("file://")).resolve(), out.resolve()
    same = out.exists() and path.exists() and path.samefile(out)  # hard links have other paths
    return same or target.is_relative_to(path) or path.is_relative_to(target)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk: a file that was renamed there is found after a power failure, too.

    Where that cannot be asked for, since the folder may not be read or the file system knows no such thing, it is left.
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
    """Bring all files in a folder, and in the folders in it, to the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(parent, name), "rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(parent))


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write what `pack_arrays` returns, whole or not at all, without holding it: a state may be large."""
    with open_atomically(path) as file:
        np.savez(file, **arrays)


def pack_arrays(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays as an .npz file whose bytes depend on the values alone."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def unpack_arrays(path: Path) -> dict[str, Any]:
    """Read an .npz file that `write_arrays` or `pack_arrays` wrote, without ever running code.

    It takes no more memory than the file has bytes. InputError, which names the file and the array, for any other.
    """
    name = ""
    try:
        with ZipFile(path) as archive:
            _check_members(archive)
            if damaged := archive.testzip():  # reading compares a checksum only if it comes to the end of an array
                raise ValueError(f"the checksum of {damaged} is wrong")
            arrays = {}
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                arrays[name] = _read_member(archive, member)
            return arrays
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except ZIP_ERRORS as error:
        place = f"{name}: " if name else ""
        raise InputError(f"{path}: damaged or not of streamsvm ({place}{error})") from error


def _check_members(archive: ZipFile) -> None:
    """Raise ValueError for members that are compressed, or larger than the file: these may grow without bound."""
    members = archive.infolist()
    if len({member.filename for member in members}) < len(members):
        raise ValueError("an array is there twice")
    offsets = [int(member.header_offset) for member in members]
    if min(offsets, default=0):
        raise ValueError("other data are in front of its arrays")
    for member in members:
        if member.compress_type != ZIP_STORED or member.compress_size != member.file_size:
            raise ValueError(f"{member.filename} is compressed, which streamsvm never does")
        if not member.filename.endswith(".npy"):
            raise ValueError(f"{member.filename} is no array")
    if sum(member.file_size for member in members) > archive.start_dir:
        raise ValueError("its arrays are larger than the file")


def _read_member(archive: ZipFile, member: ZipInfo) -> Any:
    """Return an array whose header claims as many bytes as are there."""
    with archive.open(member) as file:
        header = read_npy_header(file)
        if header.start + header.nbytes != member.file_size:
            raise ValueError(f"{header.dtype} {header.shape} does not fit into {member.file_size:,} bytes")
        array = np.empty(header.shape, header.dtype, order="F" if header.by_columns else "C")
        _fill(file, array)
        return array


def _fill(file: IO[bytes], array: npt.NDArray[Any]) -> None:
    """Read an array's bytes, a few at a time, as they lie in memory."""
    flat = array.reshape(-1, order="A").view(np.uint8) if array.nbytes else np.empty(0, np.uint8)
    for at in range(0, flat.size, READ_BYTES):
        part = file.read(min(READ_BYTES, flat.size - at))
        flat[at : at + len(part)] = np.frombuffer(part, np.uint8)
        if len(part) < min(READ_BYTES, flat.size - at):
            raise EOFError("truncated")
