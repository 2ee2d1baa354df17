"""Files that appear whole or not at all, and arrays without pickle."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.lib.format import read_array

from streamsvm.errors import InputError


@contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a file to be written that is there whole or not at all, on disk when the block ends."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    with open_atomically(path) as file:
        file.write(content)


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
    """Read an .npz file without ever running code; InputError if it is none."""
    try:
        with ZipFile(path) as archive:
            if damaged := archive.testzip():  # reading compares a checksum only if it comes to the end of an array
                raise ValueError(f"the checksum of {damaged} is wrong")
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            return {name: read_array(archive.open(f"{name}.npy"), allow_pickle=False) for name in names}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (ValueError, OSError, KeyError, EOFError, RuntimeError, BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: damaged or not of streamsvm ({error})") from error
