"""The reader of NumPy and SciPy files: .npy is memory-mapped, .npz is streamed out of its zip; nothing is unpickled."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from scipy.sparse import csr_array

from streamsvm.data.arrays import Stream, count_label_axes, join_streams, open_stream, require_shape
from streamsvm.data.pieces import ITEM_BYTES, cut_rows
from streamsvm.data.remote_files import copied
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.values import Vector
from streamsvm.errors import InputError, say_count
from streamsvm.npy_header import ZIP_ERRORS, NpyHeader, read_npy_header

MOST_ROW_BYTES = 1 << 28  # a bound, since a row of zeros that is compressed may be a thousandth of its size
_MEMBERS = {"label": "y", "sample_weight": "sample_weight", "qid": "qid", "groups": "groups"}
_CSR_MEMBERS = {"data", "indices", "indptr", "shape", "format"}


def read_npy(paths: Sequence[str | Path], piece_bytes: int = 8 << 20) -> Iterator[SourceRows]:
    """Yield the rows of `X.npy`, of `X.npy y.npy`, or of one `.npz`.

    y may be a matrix of 0 and 1 with a column for each of several labels. A .npz holds X (rows, d), or a CSR matrix as
    scipy.sparse.save_npz writes it, and optionally y, qid, sample_weight and groups. Raises InputError, which names
    file, row and reason.
    """
    suffixes = [Path(path).suffix.lower() for path in paths]
    if suffixes == [".npz"]:
        yield from _read_npz(str(paths[0]), piece_bytes)
    elif suffixes in ([".npy"], [".npy", ".npy"]):
        with ExitStack() as copies:
            mapped = [_map_npy(path, copies) for path in paths]
            axes = [2, *map(count_label_axes, mapped[1:])]
            opened = zip(paths, mapped, axes, strict=True)
            X, *y = (open_stream(str(path), values, n, piece_bytes) for path, values, n in opened)
            yield from join_streams(X, dict(zip(["label"], y, strict=False)), None)
    else:
        raise InputError(f"{' '.join(map(str, paths))}: expected X.npy, X.npy and y.npy, or one .npz")


def _map_npy(path: str | Path, copies: ExitStack) -> Vector:
    """Map the array of a .npy file, or of its copy. Raises InputError unless it is as long as its header says."""
    try:
        copy = copies.enter_context(copied(path))
        with copy.open("rb") as file:
            header, size = read_npy_header(file), os.fstat(file.fileno()).st_size
        _require_numbers(header)
        if header.start + header.nbytes != size:
            raise ValueError(f"{_show(header)} takes {header.start + header.nbytes:,} bytes, the file has {size:,}")
        order: Literal["F", "C"] = "F" if header.by_columns else "C"
        if not header.nbytes:
            return np.empty(header.shape, header.dtype, order)
        return np.memmap(copy, header.dtype, "r", header.start, header.shape, order)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _require_numbers(header: NpyHeader) -> None:
    """Raise ValueError unless the array has one or two dimensions and rows of at most MOST_ROW_BYTES."""
    if header.dtype.names or len(header.shape) > 2:
        raise ValueError(f"{_show(header)} is neither rows and columns of numbers nor one value for every row")
    if header.shape and header.dtype.itemsize * math.prod(header.shape[1:]) > MOST_ROW_BYTES:
        raise ValueError(f"{_show(header)} has rows of more than {MOST_ROW_BYTES:,} bytes")


def _show(header: NpyHeader) -> str:
    return f"an array {header.dtype} {header.shape}"


def _read_npz(path: str, piece_bytes: int) -> Iterator[SourceRows]:
    try:
        with copied(path) as copy, copy.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = _name_members(archive)
            is_dense = "X" in members
            X = _open_member(archive, "X", 2, piece_bytes) if is_dense else _open_csr(archive, piece_bytes)
            named = {role: name for role, name in _MEMBERS.items() if name in members}
            vectors = {role: _open_member(archive, name, 1, piece_bytes, role) for role, name in named.items()}
            yield from join_streams(X, vectors, None)
    except ZIP_ERRORS as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _name_members(archive: zipfile.ZipFile) -> set[str]:
    """Return the names of the arrays. Raises InputError without X or a CSR matrix, and if a name occurs twice."""
    names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    if "X" not in names and not set(names) >= _CSR_MEMBERS:
        raise InputError(f"holds {', '.join(sorted(set(names)))}; expected X, or a SciPy CSR matrix")
    if len(set(names)) < len(names):
        raise InputError("two arrays have the same name")
    if min(member.header_offset for member in archive.infolist()):
        raise InputError("other data precede its arrays")
    return set(names)


def _open_header(archive: zipfile.ZipFile, name: str) -> tuple[IO[bytes], NpyHeader]:
    """Return an open array, at its first value, and its header. Raises InputError if they do not fit each other."""
    file, size = archive.open(name + ".npy"), archive.getinfo(name + ".npy").file_size
    try:
        header = read_npy_header(file)
        _require_numbers(header)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from error
    if header.start + header.nbytes != size:
        fault = "is truncated" if header.start + header.nbytes > size else "is longer than its header says"
        raise InputError(f"{name}: {fault}: {_show(header)} in {size:,} bytes")
    return file, header


def _open_member(archive: zipfile.ZipFile, name: str, n_dimensions: int, piece_bytes: int, role: str = "") -> Stream:
    """Open an array of a .npz as a stream, which reads when values are asked for. Labels may be a matrix."""
    file, header = _open_header(archive, name)
    n_dimensions = count_label_axes(header) if role == "label" else n_dimensions
    shape, dtype = header.shape, header.dtype
    if header.by_columns and n_dimensions == 2:
        return open_stream(name, _unpack(file, header), n_dimensions, piece_bytes)
    if n_dimensions == 1 and shape[1:] == (1,) and name not in _CSR_MEMBERS:
        shape = shape[:1]
    require_shape(name, shape, n_dimensions)
    pieces = _member_pieces(file, shape, dtype, piece_bytes)
    return Stream(name, shape[0], pieces, rest=np.empty((0, *shape[1:]), dtype))


def _member_pieces(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], piece_bytes: int) -> Iterator[Vector]:
    """Yield consecutive rows of an open array, about `piece_bytes` at a time."""
    row_bytes = dtype.itemsize * math.prod(shape[1:])
    n_piece = max(1, piece_bytes // max(1, row_bytes))
    for start in range(0, shape[0], n_piece):
        n_rows = min(n_piece, shape[0] - start)
        read = file.read(n_rows * row_bytes)
        if len(read) < n_rows * row_bytes:
            raise EOFError("truncated")
        yield np.frombuffer(read, dtype).reshape(n_rows, *shape[1:])
    if file.read(1):  # at the end zipfile compares the checksum, too
        raise ValueError("an array is longer than its header says")


def _unpack(file: IO[bytes], header: NpyHeader) -> Vector:
    """Map an array from a temporary file if it is stored by columns, because its rows cannot be streamed."""
    if not header.nbytes:
        return np.empty(header.shape, header.dtype)
    with tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(file, unpacked, 1 << 20)
        unpacked.flush()
        if os.fstat(unpacked.fileno()).st_size != header.nbytes:
            raise EOFError("truncated")
        return np.memmap(unpacked, header.dtype, "r", shape=header.shape, order="F")


def _read_small(archive: zipfile.ZipFile, name: str) -> Vector:
    """Return an array of at most 1024 bytes."""
    file, header = _open_header(archive, name)
    if header.nbytes > 1024:
        raise InputError(f"{name}: {_show(header)} is not of a CSR matrix")
    return np.frombuffer(file.read(header.nbytes), header.dtype).reshape(header.shape)


def _open_csr(archive: zipfile.ZipFile, piece_bytes: int) -> Stream:
    """Open the CSR matrix of a file that scipy.sparse.save_npz wrote."""
    layout, shape = (_read_small(archive, name) for name in ("format", "shape"))
    if str(layout.astype(np.str_)) != "csr" or shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise InputError(f"X: format {layout.astype(np.str_)}; save it as CSR, of rows and columns")
    n_rows, n_columns = map(int, shape)
    names = ("data", "indices", "indptr")
    data, indices, indptr = (_open_member(archive, name, 1, piece_bytes // 4) for name in names)
    for stream in (indices, indptr):
        if stream.rest is None or stream.rest.dtype.kind not in "iu":
            raise InputError(f"X: {stream.where} are not whole numbers")
    if indptr.n_rows != n_rows + 1 or indices.n_rows != data.n_rows or n_columns < 1:
        raise InputError(f"X: no CSR matrix of {say_count(n_rows, 'row')}, {say_count(n_columns, 'column')}")
    require_shape("X", (n_rows, n_columns), 2)
    return Stream("X", n_rows, _csr_pieces(data, indices, indptr, (n_rows, n_columns), piece_bytes))


def _csr_pieces(
    data: Stream, indices: Stream, indptr: Stream, shape: tuple[int, int], piece_bytes: int
) -> Iterator[csr_array]:
    """Yield consecutive rows of a CSR matrix, about `piece_bytes` at a time."""
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
            if b == a + 1 and n_items > MOST_ROW_BYTES // ITEM_BYTES:
                raise InputError(f"X: a row has {n_items:,} items, more than {MOST_ROW_BYTES // ITEM_BYTES:,}")
            items = data.take(n_items), indices.take(n_items).astype(np.int64)
            yield csr_array((*items, pointers[a : b + 1] - pointers[a]), shape=(b - a, shape[1]))
        last = pointers[-1:]
    for stream in (data, indices):
        stream.finish()
