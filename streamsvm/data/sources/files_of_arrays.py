"""The readers of NumPy and SciPy files (.npy, .npz) and of safetensors files. They never unpickle.

A .npy file is memory-mapped, and a .npz file is streamed from its zip archive.

A safetensors file holds X and optionally y, qid, sample_weight and groups as tensors. It consists of the length of its
header (8 bytes, little-endian), the header (JSON with the type, shape and position of each tensor), and the values,
which are memory-mapped. The rows of several files are concatenated. Tensors may also be distributed over several files
in one folder; an index file in this folder then names the file of each tensor.
"""

from __future__ import annotations

import json
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

from streamsvm.data.remote.files import copied
from streamsvm.data.rows.source import SourceRows, cut_items
from streamsvm.data.sources import arrays
from streamsvm.data.sources.arrays import Stream
from streamsvm.data.sources.formats import SAFETENSORS_INDEX
from streamsvm.data.tables.checks import Vector, show_text
from streamsvm.numeric.stored_types import widen_bits
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.npz import ZIP_ERRORS, NpyHeader, read_npy_header

MOST_ROW_BYTES = 1 << 28  # limited, because a compressed row of zeros may expand a thousandfold
_CSR_MEMBERS = {"data", "indices", "indptr", "shape", "format"}


def read_npy(paths: Sequence[str | Path], piece_bytes: int = 8 << 20) -> Iterator[SourceRows]:
    """Yield the rows of `X.npy`, of `X.npy y.npy`, or of one `.npz`.

    y may be an indicator matrix of 0 and 1 with a column for each label. A .npz holds X (rows, d), or a CSR matrix in
    the form of scipy.sparse.save_npz, and optionally y, qid, sample_weight and groups. Raises InputError naming file,
    row and reason.
    """
    suffixes = [Path(path).suffix.lower() for path in paths]
    if suffixes == [".npz"]:
        yield from _read_npz(str(paths[0]), piece_bytes)
    elif len(paths) <= 2 and ".npz" not in suffixes:  # the file's first bytes are checked, since it may lack an ending
        with ExitStack() as copies:
            mapped = [_map_npy(path, copies) for path in paths]
            axes = [2, *map(arrays.count_label_axes, mapped[1:])]
            opened = zip(paths, mapped, axes, strict=True)
            X, *y = (arrays.open_stream(str(path), values, n, piece_bytes) for path, values, n in opened)
            yield from arrays.join_streams(X, dict(zip(["label"], y, strict=False)), None)
    else:
        expected = "expected one .npz, or X.npy alone, or the two files X.npy and y.npy"
        raise InputError(f"{' '.join(map(str, paths))}: {expected}")


def _map_npy(path: str | Path, copies: ExitStack) -> Vector:
    """Map the array of a .npy file, or of its local copy. Raises InputError if header and file size conflict."""
    try:
        copy = copies.enter_context(copied(path))
        with copy.open("rb") as file:
            header = _read_header(file, os.fstat(file.fileno()).st_size)
        return _map(copy, header.dtype, header.shape, header.start, "F" if header.by_columns else "C")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _map(file: Any, dtype: np.dtype[Any], shape: tuple[int, ...], start: int, order: Literal["F", "C"] = "C") -> Vector:
    """Map an array from a file. An empty array cannot be mapped, and is created instead."""
    is_empty = not math.prod(shape) * dtype.itemsize
    return np.empty(shape, dtype, order) if is_empty else np.memmap(file, dtype, "r", start, shape, order)


def _read_header(file: IO[bytes], n_bytes: int) -> NpyHeader:
    """Return the header of an array in a file of `n_bytes`. Raises ValueError if the size contradicts it.

    The array must have one or two dimensions, and rows of at most MOST_ROW_BYTES.
    """
    header = read_npy_header(file)
    shown, needed = _show(header), header.start + header.nbytes
    if header.dtype.names or len(header.shape) > 2:
        raise ValueError(f"{shown} is neither rows and columns of numbers nor one value for every row")
    if header.shape and header.dtype.itemsize * math.prod(header.shape[1:]) > MOST_ROW_BYTES:
        raise ValueError(f"{shown} has rows of more than {MOST_ROW_BYTES:,} bytes")
    if needed != n_bytes:
        fault = "is truncated" if needed > n_bytes else "is longer than its header says"
        raise ValueError(f"{fault}: {shown} takes {needed:,} bytes, the file has {n_bytes:,}")
    return header


def _show(header: NpyHeader) -> str:
    return f"an array {header.dtype} {header.shape}"


def _read_npz(path: str, piece_bytes: int) -> Iterator[SourceRows]:
    try:
        with copied(path) as copy, copy.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = _name_members(archive)
            is_dense = "X" in members
            X = _open_member(archive, "X", 2, piece_bytes) if is_dense else _open_csr(archive, piece_bytes)
            named = {role: name for role, name in arrays.VECTOR_NAMES.items() if name in members}
            vectors = {role: _open_member(archive, name, 1, piece_bytes, role) for role, name in named.items()}
            yield from arrays.join_streams(X, vectors, None)
    except ZIP_ERRORS as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _name_members(archive: zipfile.ZipFile) -> set[str]:
    """Return the names of the arrays in a .npz. Raises InputError for duplicates, or without X or a CSR matrix."""
    names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    if "X" not in names and not set(names) >= _CSR_MEMBERS:
        raise InputError(f"holds {', '.join(sorted(set(names)))}; expected X, or a SciPy CSR matrix")
    if len(set(names)) < len(names):
        raise InputError("two arrays have the same name")
    if min(member.header_offset for member in archive.infolist()):
        raise InputError("other data precede its arrays")
    return set(names)


def _open_header(archive: zipfile.ZipFile, name: str) -> tuple[IO[bytes], NpyHeader]:
    """Open an array of a .npz at its first value; return it with its header. Raises InputError if its size is wrong."""
    file = archive.open(name + ".npy")
    try:
        return file, _read_header(file, archive.getinfo(name + ".npy").file_size)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from error


def _open_member(archive: zipfile.ZipFile, name: str, n_dimensions: int, piece_bytes: int, role: str = "") -> Stream:
    """Open an array of a .npz as a stream, which is read on demand. Labels may be a matrix."""
    file, header = _open_header(archive, name)
    n_dimensions = arrays.count_label_axes(header) if role == "label" else n_dimensions
    shape, dtype = header.shape, header.dtype
    if header.by_columns and n_dimensions == 2:
        return arrays.open_stream(name, _unpack(file, header), n_dimensions, piece_bytes)
    if n_dimensions == 1 and shape[1:] == (1,) and name not in _CSR_MEMBERS:
        shape = shape[:1]
    arrays.require_shape(name, shape, n_dimensions)
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
    if file.read(1):  # at the end, zipfile also compares the checksum
        raise ValueError("an array is longer than its header says")


def _unpack(file: IO[bytes], header: NpyHeader) -> Vector:
    """Unpack an array that is stored by columns to a temporary file, and map it, since its rows cannot be streamed."""
    with tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(file, unpacked, 1 << 20)
        unpacked.flush()
        if os.fstat(unpacked.fileno()).st_size != header.nbytes:
            raise EOFError("truncated")
        return _map(unpacked, header.dtype, header.shape, 0, "F")


def _read_small(archive: zipfile.ZipFile, name: str) -> Vector:
    """Return an array of at most 1024 bytes."""
    file, header = _open_header(archive, name)
    if header.nbytes > 1024:
        raise InputError(f"{name}: {_show(header)} is not part of a CSR matrix")
    return np.frombuffer(file.read(header.nbytes), header.dtype).reshape(header.shape)


def _open_csr(archive: zipfile.ZipFile, piece_bytes: int) -> Stream:
    """Open the CSR matrix in a file written by scipy.sparse.save_npz."""
    layout, shape = (_read_small(archive, name) for name in ("format", "shape"))
    if str(layout.astype(np.str_)) != "csr" or shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise InputError(f"X: format {layout.astype(np.str_)}; save it as a CSR matrix with two dimensions")
    n_rows, n_columns = map(int, shape)
    names = ("data", "indices", "indptr")
    data, indices, indptr = (_open_member(archive, name, 1, piece_bytes // 4) for name in names)
    for stream in (indices, indptr):
        if stream.rest is None or stream.rest.dtype.kind not in "iu":
            raise InputError(f"X: {stream.where} are not whole numbers")
    if indptr.n_rows != n_rows + 1 or indices.n_rows != data.n_rows or n_columns < 1:
        raise InputError(f"X: not a CSR matrix of {say_count(n_rows, 'row')}, {say_count(n_columns, 'column')}")
    arrays.require_shape("X", (n_rows, n_columns), 2)
    return Stream("X", n_rows, _csr_pieces(data, indices, indptr, (n_rows, n_columns), piece_bytes))


def _csr_pieces(
    data: Stream, indices: Stream, indptr: Stream, shape: tuple[int, int], piece_bytes: int
) -> Iterator[csr_array]:
    """Yield consecutive rows of a CSR matrix, about `piece_bytes` at a time."""
    n_piece = max(1, piece_bytes // (4 * arrays.ITEM_BYTES))
    last = np.zeros(1, np.int64)
    if indptr.take(1)[0] != 0:
        raise InputError("X: indptr does not begin with 0")
    for start in range(0, shape[0], n_piece):
        pointers = np.concatenate([last, indptr.take(min(n_piece, shape[0] - start)).astype(np.int64)])
        if np.any(pointers[1:] < pointers[:-1]):
            raise InputError("X: indptr does not ascend")
        for a, b in cut_items(pointers, piece_bytes // arrays.ITEM_BYTES):
            n_items = int(pointers[b] - pointers[a])
            if b == a + 1 and n_items > MOST_ROW_BYTES // arrays.ITEM_BYTES:
                raise InputError(f"X: a row has {n_items:,} items, more than {MOST_ROW_BYTES // arrays.ITEM_BYTES:,}")
            items = data.take(n_items), indices.take(n_items).astype(np.int64)
            yield csr_array((*items, pointers[a : b + 1] - pointers[a]), shape=(b - a, shape[1]))
        last = pointers[-1:]
    for stream in (data, indices):
        stream.finish()


MOST_HEADER_BYTES = 100 << 20  # the limit of the format
TYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "V2", "BOOL": "|b1"},
    **{f"{kind}{bits}": f"<{kind.lower()}{bits // 8}" for kind in "IU" for bits in (8, 16, 32, 64)},
}


def read_safetensors(paths: Sequence[str | Path], piece_bytes: int = 8 << 20) -> Iterator[SourceRows]:
    """Yield the rows of tensor X, or of the only two-dimensional tensor. A path names a file, or an index of files.

    Raises InputError naming the file and the reason.
    """
    before: tuple[str, str] | None = None  # the first file, and a description of its contents
    for path in map(str, paths):
        with ExitStack() as copies:
            try:
                tensors = _map_tensors_of(path, copies)
            except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                reason = getattr(error, "strerror", None) or error
                raise InputError(f"{path}: not a safetensors file ({reason})") from error
            rows, named = _find_rows(path, tensors), [name for name in arrays.VECTOR_NAMES.values() if name in tensors]
            n_features = int(tensors[rows].shape[1]) if tensors[rows].ndim == 2 else 0
            found = path, f"{n_features} features and {', '.join(named) or 'no vectors'}"
            before = before or found
            if found[1] != before[1]:
                raise InputError(f"{path}: {found[1]}, but {before[0]} has {before[1]}")
            X = arrays.open_stream(f"{path}: {rows}", tensors[rows], 2, piece_bytes)
            vectors = arrays.open_vectors(tensors, piece_bytes, f"{path}: ")
            for stream in vectors.values():
                stream.pieces = (widen_bits(v) if v.dtype == arrays.UNTYPED_BFLOAT16 else v for v in stream.pieces)
            yield from arrays.join_streams(X, vectors, None)


def _map_tensors_of(path: str, copies: ExitStack) -> dict[str, Vector]:
    """Return the tensors of a file, or of all files that an index lists; see `_map_tensors`."""
    if not path.endswith(SAFETENSORS_INDEX):
        return _map_tensors(copies.enter_context(copied(path)))
    index = json.loads(copies.enter_context(copied(path)).read_bytes())
    places, found = index["weight_map"], dict[str, Vector]()
    folder = path.rpartition("/")[0]
    for name in sorted(set(places.values())):
        if Path(name).name != name:
            raise ValueError(f"{name!r} is not the name of a file in the folder of the index")
        tensors = _map_tensors(copies.enter_context(copied(f"{folder}/{name}" if folder else name)))
        found |= {tensor: tensors[tensor] for tensor, place in places.items() if place == name and tensor in tensors}
    if lost := {"X", *arrays.VECTOR_NAMES.values()}.intersection(places).difference(found):
        raise ValueError(f"its file has no tensor {min(lost)!r} of numbers")
    return found


def _map_tensors(path: Path) -> dict[str, Vector]:
    """Return the tensors of a file by name, memory-mapped. Raises ValueError for an invalid header."""
    size = path.stat().st_size
    with path.open("rb") as file:
        n_header, most = int.from_bytes(file.read(8), "little"), min(MOST_HEADER_BYTES, size - 8)
        if most < 2:
            raise ValueError(f"it has only {say_count(size, 'byte')}")
        if not 2 <= n_header <= most:
            raise ValueError(f"it claims a header of {say_count(n_header, 'byte')}; 2 to {most:,} are possible")
        header = json.loads(file.read(n_header))
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    found, start = {}, 8 + n_header
    for name, about in header.items():
        if name != "__metadata__":
            kind, shape, (begin, end) = about["dtype"], tuple(about["shape"]), about["data_offsets"]
            if kind in TYPES:
                dtype = np.dtype(TYPES[kind])
                _require_place(name, shape, dtype, begin, end, size - start)
                found[name] = _map(path, dtype, shape, start + begin)
    return found


def _require_place(name: str, shape: tuple[Any, ...], dtype: Any, begin: Any, end: Any, n_bytes: int) -> None:
    """Raise ValueError unless a tensor lies within the file, and its size in bytes matches its shape and type."""
    numbers = (*shape, begin, end)
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"tensor {name!r}: its shape or place is not a list of numbers")
    if end > n_bytes or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"tensor {name!r}: its place in the file does not fit its shape, or the file is truncated")


def _find_rows(path: str, tensors: dict[str, Vector]) -> str:
    """Return the name of the tensor that holds the rows."""
    if "X" in tensors:
        return "X"
    names = [name for name, values in tensors.items() if values.ndim == 2 and name not in arrays.VECTOR_NAMES.values()]
    if len(names) != 1:
        there = ", ".join(map(show_text, sorted(tensors)[:12])) or "none of numbers"
        raise InputError(f"{path}: which tensor has the rows? Name it X; there are {there}")
    return names[0]
