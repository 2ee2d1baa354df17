"""The strict reader of headers of NumPy's .npy format, with which a claimed size is checked before memory is taken.

NumPy's own reader tokenizes and evaluates headers, warns of headers of Python 2, and raises errors of a dozen kinds.
"""

from __future__ import annotations

import ast
import lzma
import math
import re
import struct
import zlib
from dataclasses import dataclass
from typing import IO, Any
from zipfile import BadZipFile, LargeZipFile

import numpy as np

# The errors of zipfile for a damaged .npz; among them AttributeError, since it does not check that a part exists.
ZIP_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    OverflowError,
    AttributeError,
    RuntimeError,
    MemoryError,
    BadZipFile,
    LargeZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
)
MAGIC = b"\x93NUMPY"
MOST_HEADER_BYTES = 10_000  # the limit of NumPy itself
_WIDTHS = {(1, 0): 2, (2, 0): 4, (3, 0): 4}  # by version, the bytes that hold the length of the header
_LITERAL = re.compile(r"[\w \n<>=|'\"{}()\[\],:.+-]*", re.ASCII)
_GLUED = re.compile(r"\d(and|else|for|if|in|is|not|or)\b")  # Python warns of such numbers, and will refuse them
_SCALAR = re.compile(r"[<>=|]?(b1|[iu][1248]|f(2|4|8|16)|[USV]\d{1,10})")


@dataclass(frozen=True)
class NpyHeader:
    """The array that a header describes. Its values begin at byte `start` of the file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool
    start: int

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.dtype.itemsize * math.prod(self.shape)


def read_npy_header(file: IO[bytes]) -> NpyHeader:
    """Read the header at the beginning of a file, up to the array. Raises ValueError, with the reason, for all else."""
    start = file.read(len(MAGIC) + 2)
    if not start.startswith(MAGIC) or len(start) < len(MAGIC) + 2:
        raise ValueError("is no .npy array, which begins with NUMPY and a version")
    version = (start[-2], start[-1])
    if version not in _WIDTHS:
        raise ValueError(f"version {version} of .npy is not known")
    width = file.read(_WIDTHS[version])
    length = int.from_bytes(width, "little")
    if len(width) < _WIDTHS[version] or length > MOST_HEADER_BYTES:
        raise ValueError(f"its .npy header is truncated, or has more than {MOST_HEADER_BYTES:,} bytes")
    text = file.read(length)
    if len(text) < length:
        raise ValueError("its .npy header is truncated")
    return _parse_header(text.decode("latin1"), len(start) + len(width) + length)


def _parse_header(text: str, start: int) -> NpyHeader:
    """Return the header of a text. Raises ValueError, with the reason, if it is none."""
    if not _LITERAL.fullmatch(text) or _GLUED.search(text):
        raise ValueError("its .npy header is damaged")
    try:
        found = ast.literal_eval(text.rstrip(" \n"))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("its .npy header is damaged") from None
    if not isinstance(found, dict) or set(found) != {"descr", "fortran_order", "shape"}:
        raise ValueError("its .npy header is not of descr, fortran_order and shape")
    shape, by_columns = found["shape"], found["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(n) is int and 0 <= n < 2**63 for n in shape) or len(shape) > 32:
        raise ValueError(f"its .npy header claims the shape {str(shape)[:60]}")
    if not isinstance(by_columns, bool):
        raise ValueError("its .npy header does not say how the array is ordered")
    return NpyHeader(shape, _read_dtype(found["descr"]), by_columns, start)


def _read_dtype(descr: Any) -> np.dtype[Any]:
    """Return the dtype of numbers, texts, or records of both. Raises ValueError for others, such as objects."""
    _check_descr(descr)
    try:
        dtype: np.dtype[Any] = np.lib.format.descr_to_dtype(descr)
    except (TypeError, ValueError, OverflowError, IndexError, MemoryError, RecursionError) as error:
        raise ValueError(f"its .npy header names a wrong type: {error}") from None
    return dtype


def _check_descr(descr: Any) -> None:
    """Raise ValueError unless a description is of numbers, texts, or records of both."""
    if isinstance(descr, str) and "O" in descr:
        raise ValueError("holds Python objects, which only pickle can read")
    if isinstance(descr, list) and descr:
        for part in descr:
            named = isinstance(part, tuple) and len(part) in (2, 3) and isinstance(part[0], str)
            if not named or (len(part) == 3 and not all(type(n) is int and n >= 0 for n in part[2])):
                raise ValueError("its .npy header names a wrong type")
            _check_descr(part[1])
    elif not (isinstance(descr, str) and _SCALAR.fullmatch(descr)):
        raise ValueError(f"its .npy header names the type {str(descr)[:60]!r}, which is neither numbers nor texts")
