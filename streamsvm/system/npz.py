"""Arrays in .npz files without pickle, and a strict reader of headers in NumPy's .npy format.

The headers are checked before memory is allocated. NumPy's own reader tokenizes and evaluates headers, warns about
headers from Python 2, and raises a dozen types of errors.
"""

from __future__ import annotations

import ast
import io
import lzma
import math
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, LargeZipFile, ZipFile, ZipInfo

import numpy as np

from streamsvm.system.errors import InputError
from streamsvm.system.files import open_atomically

# the errors of zipfile for a damaged .npz, including AttributeError for a missing part
_FILE_ERRORS = (OSError, EOFError, BadZipFile, LargeZipFile, zlib.error, lzma.LZMAError, struct.error)
ZIP_ERRORS = (*_FILE_ERRORS, ValueError, LookupError, OverflowError, AttributeError, RuntimeError, MemoryError)
MAGIC = b"\x93NUMPY"
MOST_HEADER_BYTES = 10_000  # the limit of NumPy itself
_WIDTHS = {(1, 0): 2, (2, 0): 4, (3, 0): 4}  # by version: the number of bytes that store the length of the header
_LITERAL = re.compile(r"[\w \n<>=|'\"{}()\[\],:.+-]*", re.ASCII)
_GLUED = re.compile(r"\d(and|else|for|if|in|is|not|or)\b")  # for numbers such as 1if, Python shows a warning
_SCALAR = re.compile(r"[<>=|]?(b1|[iu][1248]|f(2|4|8|16)|[USV]\d{1,10})")


@dataclass(frozen=True)
class NpyHeader:
    """The description of an array whose values begin at byte `start` of the file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool
    start: int

    @property
    def nbytes(self) -> int:
        """Number of bytes of the array."""
        return self.dtype.itemsize * math.prod(self.shape)


def read_npy_header(file: IO[bytes]) -> NpyHeader:
    """Read the header at the beginning of a file. Raises ValueError, with the reason, if there is no valid header."""
    start = file.read(len(MAGIC) + 2)
    if not start.startswith(MAGIC) or len(start) < len(MAGIC) + 2:
        raise ValueError("is not an .npy array, which begins with NUMPY and a version")
    version = (start[-2], start[-1])
    if version not in _WIDTHS:
        raise ValueError(f"version {version} of .npy is unknown")
    width = file.read(_WIDTHS[version])
    length = int.from_bytes(width, "little")
    if len(width) < _WIDTHS[version] or length > MOST_HEADER_BYTES:
        raise ValueError(f"its .npy header is truncated, or has more than {MOST_HEADER_BYTES:,} bytes")
    text = file.read(length)
    if len(text) < length:
        raise ValueError("its .npy header is truncated")
    return _parse_header(text.decode("latin1"), len(start) + len(width) + length)


def _parse_header(text: str, start: int) -> NpyHeader:
    """Parse the text of a header. Raises ValueError, with the reason, if it is damaged."""
    if not _LITERAL.fullmatch(text) or _GLUED.search(text):
        raise ValueError("its .npy header is damaged")
    try:
        found = ast.literal_eval(text.rstrip(" \n"))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("its .npy header is damaged") from None
    if not isinstance(found, dict) or set(found) != {"descr", "fortran_order", "shape"}:
        raise ValueError("its .npy header does not consist of descr, fortran_order and shape")
    shape, by_columns = found["shape"], found["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(n) is int and 0 <= n < 2**63 for n in shape) or len(shape) > 32:
        raise ValueError(f"its .npy header claims the shape {str(shape)[:60]}")
    if not isinstance(by_columns, bool):
        raise ValueError("its .npy header does not state the order of the array")
    return NpyHeader(shape, _read_dtype(found["descr"]), by_columns, start)


def _read_dtype(descr: Any) -> np.dtype[Any]:
    """Return a dtype of numbers, strings, or records of both. Raises ValueError for other types, such as objects."""
    _check_descr(descr)
    try:
        return np.dtype(np.lib.format.descr_to_dtype(descr))
    except (TypeError, ValueError, OverflowError, IndexError, MemoryError, RecursionError) as error:
        raise ValueError(f"its .npy header names a wrong type: {error}") from None


def _check_descr(descr: Any) -> None:
    """Raise ValueError unless a dtype is described as one of numbers, strings, or records of both."""
    if isinstance(descr, str) and "O" in descr:
        raise ValueError("holds Python objects, which only pickle can read")
    if isinstance(descr, list) and descr:
        for part in descr:
            named = isinstance(part, tuple) and len(part) in (2, 3) and isinstance(part[0], str)
            if not named or (len(part) == 3 and not all(type(n) is int and n >= 0 for n in part[2])):
                raise ValueError("its .npy header names a wrong type")
            _check_descr(part[1])
    elif not (isinstance(descr, str) and _SCALAR.fullmatch(descr)):
        raise ValueError(f"its .npy header names the type {str(descr)[:60]!r}, which holds neither numbers nor text")


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to an .npz file, which appears complete or not at all, without a copy of the file in memory."""
    _refuse_objects(arrays)
    with open_atomically(path) as file:
        np.savez(file, **arrays)


def pack_arrays(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays as the bytes of an .npz file. The bytes depend only on names and values."""
    _refuse_objects(arrays)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _refuse_objects(arrays: Mapping[str, Any]) -> None:
    """Raise InputError for an array that needs pickle, or that `unpack_arrays` does not read."""
    for name, values in arrays.items():
        if (dtype := np.asarray(values).dtype).hasobject or dtype.kind in "cmM":
            raise InputError(f"{name} has the type {dtype}, which files of streamsvm cannot store")


def unpack_arrays(path: Path | BinaryIO, place: str | None = None) -> dict[str, Any]:
    """Return the arrays of an .npz file written by `write_arrays` or `pack_arrays`.

    path: the file, or its open content. Reading executes no code, and takes no more memory than the size of the file.
    For any other file, it raises InputError naming the file and the array. place: the name of the file in messages
    (None: its path).
    """
    name = ""
    try:
        with ZipFile(path) as archive:
            _check_members(archive)
            if damaged := archive.testzip():  # reading an array would compare its checksum only at the end
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
        raise InputError(f"{place or path}: damaged, or not written by streamsvm ({array}{error})") from error


def _check_members(archive: ZipFile) -> None:
    """Raise ValueError for members that could fill the memory: compressed members, or members larger than the file."""
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
            raise ValueError(f"{member.filename} is not an array")
    if sum(member.file_size for member in members) > archive.start_dir:
        raise ValueError("its arrays are larger than the file")


def _read_member(archive: ZipFile, member: ZipInfo) -> Any:
    """Return an array. Raises ValueError if the size given in its header differs from the size of its data."""
    with archive.open(member) as file:
        header = read_npy_header(file)
    if header.start + header.nbytes != member.file_size:
        raise ValueError(f"{header.dtype} {header.shape} does not fit into {member.file_size:,} bytes")
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
