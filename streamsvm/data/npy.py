"""Files of NumPy and SciPy as sources: .npy, memory-mapped, and .npz, streamed out of its zip. No pickle."""

from __future__ import annotations

import lzma
import math
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from scipy.sparse import csr_array

from streamsvm.data.arrays import ITEM_BYTES, Stream, cut_rows, join_streams, open_stream, require_shape
from streamsvm.data.rows import SourceRows
from streamsvm.data.values import Vector
from streamsvm.errors import InputError

_MEMBERS = {"label": "y", "sample_weight": "sample_weight", "qid": "qid"}
_CSR_MEMBERS = {"data", "indices", "indptr", "shape", "format"}


def read_npy(paths: Sequence[str | Path], piece_bytes: int = 8 << 20) -> Iterator[SourceRows]:
    """Rows of `X.npy` (memory-mapped), of `X.npy y.npy`, or of one `.npz`, streamed out of its zip.

    A .npz holds X (rows, d), or a CSR matrix as scipy.sparse.save_npz writes it; beside that y, qid and
    sample_weight where there are some. Nothing is unpickled. Raises InputError naming file, row and reason.
    """
    suffixes = [Path(path).suffix.lower() for path in paths]
    if suffixes == [".npz"]:
        yield from _read_npz(str(paths[0]), piece_bytes)
    elif suffixes in ([".npy"], [".npy", ".npy"]):
        X, *y = (open_stream(str(path), _map_npy(path), 2 - i, piece_bytes) for i, path in enumerate(paths))
        yield from join_streams(X, dict(zip(["label"], y, strict=False)), None)
    else:
        raise InputError(f"{' '.join(map(str, paths))}: expected X.npy, X.npy and y.npy, or one .npz")


def _map_npy(path: str | Path) -> Vector:
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _read_npz(path: str, piece_bytes: int) -> Iterator[SourceRows]:
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            members = {name.removesuffix(".npy") for name in archive.namelist()}
            if "X" not in members and not members >= _CSR_MEMBERS:
                raise InputError(f"holds {', '.join(sorted(members))}; expected X, or a SciPy CSR matrix")
            is_dense = "X" in members
            X = _open_member(archive, "X", 2, piece_bytes) if is_dense else _open_csr(archive, piece_bytes)
            named = {role: name for role, name in _MEMBERS.items() if name in members}
            vectors = {role: _open_member(archive, name, 1, piece_bytes) for role, name in named.items()}
            yield from join_streams(X, vectors, None)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError) as error:
        raise InputError(f"{path}: {error}") from error


def _open_member(archive: zipfile.ZipFile, name: str, n_dimensions: int, piece_bytes: int) -> Stream:
    """Open an array of a .npz, to be read when it is asked for."""
    file = archive.open(name + ".npy")
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in readers:
        raise InputError(f"{name}: format {version} of .npy is for records, not numbers")
    shape, by_columns, dtype = readers[version](file)
    if dtype.hasobject:
        raise InputError(f"{name}: holds Python objects, which only pickle can read")
    if by_columns:
        return open_stream(name, _unpack(file, shape, dtype), n_dimensions, piece_bytes)
    if n_dimensions == 1 and shape[1:] == (1,):
        shape = shape[:1]
    require_shape(name, shape, n_dimensions)
    pieces = _member_pieces(file, shape, dtype, piece_bytes)
    return Stream(name, shape[0], pieces, rest=np.empty((0, *shape[1:]), dtype))


def _member_pieces(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], piece_bytes: int) -> Iterator[Vector]:
    row_bytes = dtype.itemsize * math.prod(shape[1:])
    n_piece = max(1, piece_bytes // max(1, row_bytes))
    for start in range(0, shape[0], n_piece):
        n_rows = min(n_piece, shape[0] - start)
        read = file.read(n_rows * row_bytes)
        if len(read) < n_rows * row_bytes:
            raise EOFError("truncated")
        yield np.frombuffer(read, dtype).reshape(n_rows, *shape[1:])
    if file.read(1):  # reaching the end makes zipfile compare the checksum, too
        raise ValueError("a member is longer than its header tells")


def _unpack(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Vector:
    """Map an array stored column by column, whose rows cannot be streamed, from a temporary file."""
    with tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(file, unpacked, 1 << 20)
        unpacked.flush()
        return np.memmap(unpacked, dtype, "r", shape=shape, order="F")


def _open_csr(archive: zipfile.ZipFile, piece_bytes: int) -> Stream:
    """Open the matrix in a file of scipy.sparse.save_npz."""
    layout, shape = (np.lib.format.read_array(archive.open(f"{name}.npy")) for name in ("format", "shape"))
    if str(layout.astype(np.str_)) != "csr" or shape.shape != (2,):
        raise InputError(f"X: format {layout.astype(np.str_)}; save it as CSR, of rows and columns")
    n_rows, n_columns = map(int, shape)
    names = ("data", "indices", "indptr")
    data, indices, indptr = (_open_member(archive, name, 1, piece_bytes // 4) for name in names)
    if indptr.n_rows != n_rows + 1 or indices.n_rows != data.n_rows or n_columns == 0:
        raise InputError(f"X: no CSR matrix of {n_rows} rows, {n_columns} columns")
    return Stream("X", n_rows, _csr_pieces(data, indices, indptr, (n_rows, n_columns), piece_bytes))


def _csr_pieces(
    data: Stream, indices: Stream, indptr: Stream, shape: tuple[int, int], piece_bytes: int
) -> Iterator[csr_array]:
    n_piece = max(1, piece_bytes // (4 * ITEM_BYTES))
    last = np.zeros(1, np.int64)
    if indptr.take(1)[0] != 0:
        raise InputError("X: indptr does not begin with 0")
    for start in range(0, shape[0], n_piece):
        pointers = np.concatenate([last, indptr.take(min(n_piece, shape[0] - start)).astype(np.int64)])
        if np.any(pointers[1:] < pointers[:-1]):
            raise InputError("X: indptr descends")
        for a, b in cut_rows(pointers, piece_bytes):
            n_items = int(pointers[b] - pointers[a])
            items = data.take(n_items), indices.take(n_items).astype(np.int64)
            yield csr_array((*items, pointers[a : b + 1] - pointers[a]), shape=(b - a, shape[1]))
        last = pointers[-1:]
    for stream in (data, indices):
        stream.finish()
