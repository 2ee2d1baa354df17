"""Arrays as sources: .npy and .npz files, NumPy, SciPy sparse, pandas, Dask arrays and frames.

A source is a stream of pieces of X beside streams of labels, weights and query ids, each cut in its own way;
`_join` takes from those what belongs to a piece of X. So no two need the same Dask chunks, or known ones.
"""

from __future__ import annotations

import lzma
import math
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from streamsvm.data.rows import Labels, SourceRows
from streamsvm.errors import InputError

Vector = npt.NDArray[Any]
Place = Callable[[int], str]  # where the i-th value of a piece stands in its source

_NUMBERS = "biuf"  # kinds of dtypes that are numbers: bool, int, unsigned int, float
_MEMBERS = {"label": "y", "sample_weight": "sample_weight", "qid": "qid"}
_CSR_MEMBERS = {"data", "indices", "indptr", "shape", "format"}
_FLOAT32_OVERFLOW = 2.0**128 - 2.0**103  # the least float64 that rounds to an infinite float32
_ITEM_BYTES = 8  # of a feature in work: a float64, or a float32 and its int32 index


@dataclass
class _Stream:
    """An array as it arrives; n_rows is None where only reading can tell."""

    where: str  # its name in messages
    n_rows: int | None
    pieces: Iterator[Any]
    rest: Vector | None = None  # read and not yet taken

    def take(self, n_rows: int) -> Vector:
        """Return the next `n_rows` values."""
        parts = [] if self.rest is None else [self.rest]
        n_held = sum(len(part) for part in parts)
        while n_held < n_rows:
            part = next(self.pieces, None)
            if part is None:
                raise InputError(f"{self.where}: has fewer rows than X")
            parts.append(part)
            n_held += len(part)
        held = parts[0] if len(parts) == 1 else np.concatenate(parts)
        self.rest = held[n_rows:]
        return held[:n_rows]

    def finish(self) -> None:
        """Raise if there is more than was asked for."""
        if any(part is not None and len(part) for part in chain([self.rest], self.pieces)):
            raise InputError(f"{self.where}: has more rows than X")


def read_arrays(
    X: Any, y: Any = None, sample_weight: Any = None, qid: Any = None, piece_bytes: int = 8 << 20
) -> Iterator[SourceRows]:
    """Rows of X (rows, d) with y, sample_weight and qid (rows,), about `piece_bytes` of X at a time.

    Each is a NumPy array or memory map, a list, a pandas or Dask object; X may be SciPy sparse too, or in
    Dask chunks that are. Dask chunks are computed one at a time, in this thread. The pieces are copies.
    Feature names are the columns of a frame, if all are strings.
    Raises InputError, such as `X: row 3, column 2 (counted from 1): nan`.
    """
    given = {"label": ("y", y), "sample_weight": ("sample_weight", sample_weight), "qid": ("qid", qid)}
    vectors = {role: _open(name, v, 1, piece_bytes) for role, (name, v) in given.items() if v is not None}
    stream = _open("X", X, 2, piece_bytes)
    columns = tuple(getattr(X, "columns", ()))
    names = columns if columns and all(isinstance(name, str) for name in columns) else None
    yield from _join(stream, vectors, names)


def read_npy(paths: Sequence[str | Path], piece_bytes: int = 8 << 20) -> Iterator[SourceRows]:
    """Rows of `X.npy` (memory-mapped), of `X.npy y.npy`, or of one `.npz`, streamed out of its zip.

    A .npz holds X (rows, d), or a CSR matrix as scipy.sparse.save_npz writes it; beside that y, qid and
    sample_weight where there are some. Nothing is unpickled. Raises InputError naming file, row and reason.
    """
    suffixes = [Path(path).suffix.lower() for path in paths]
    if suffixes == [".npz"]:
        yield from _read_npz(str(paths[0]), piece_bytes)
    elif suffixes in ([".npy"], [".npy", ".npy"]):
        X, *y = (_open(str(path), _map_npy(path), 2 - i, piece_bytes) for i, path in enumerate(paths))
        yield from _join(X, dict(zip(["label"], y, strict=False)), None)
    else:
        raise InputError(f"{' '.join(map(str, paths))}: expected X.npy, X.npy and y.npy, or one .npz")


def comes_from(value: object, package: str) -> bool:
    """Whether a value is of a class of `package`, or of one derived from it; nothing is imported."""
    return any(cls.__module__.partition(".")[0] == package for cls in type(value).__mro__)


def _is_sparse(value: object) -> bool:
    return issparse(value)


def _open(where: str, values: Any, n_dimensions: int, piece_bytes: int) -> _Stream:
    """Check what can be known of an array before it is read."""
    if not (comes_from(values, "dask") or comes_from(values, "pandas") or _is_sparse(values)):
        try:
            values = values if np.ma.isMaskedArray(values) else np.asarray(values)
        except ValueError as error:
            raise InputError(f"{where}: not an array: {error}") from error
    found = getattr(values, "shape", ())
    shape: tuple[Any, ...] = found if isinstance(found, tuple) else ()
    if n_dimensions == 1 and len(shape) == 2 and shape[1] == 1 and not _is_sparse(values):
        values = values.iloc[:, 0] if hasattr(values, "iloc") else values[:, 0]
        shape = shape[:1]
    _require_shape(where, shape, n_dimensions)
    for name, dtype in values.dtypes.items() if n_dimensions == 2 and hasattr(values, "columns") else ():
        if dtype.kind not in _NUMBERS + "O":
            raise InputError(f"{where}: column {name!r}: {dtype} is not a number")
    n_rows = int(shape[0]) if isinstance(shape[0], int | np.integer) else None
    return _Stream(where, n_rows, _pieces(where, values, piece_bytes))


def _require_shape(where: str, shape: tuple[Any, ...], n_dimensions: int) -> None:
    if len(shape) != n_dimensions:
        expected = "rows and columns" if n_dimensions == 2 else "one value for every row"
        raise InputError(f"{where}: expected {expected}, found {len(shape)} dimensions")
    if n_dimensions == 2 and shape[1] == 0:
        raise InputError(f"{where}: no columns")


def _pieces(where: str, values: Any, piece_bytes: int) -> Iterator[Any]:
    """Consecutive rows of an array, in order; views of one that is in memory."""
    if comes_from(values, "dask"):
        for i in range(values.numblocks[0] if hasattr(values, "numblocks") else values.npartitions):
            yield from _pieces(where, values.partitions[i].compute(scheduler="synchronous"), piece_bytes)
        return
    if _is_sparse(values):
        values = values.tocsr()
        yield from (values[start:stop] for start, stop in _cut_rows(values.indptr, piece_bytes))
        return
    if np.ma.is_masked(values):
        raise InputError(f"{where}: has masked (missing) values")
    n_piece = max(1, piece_bytes // (_ITEM_BYTES * max(1, math.prod(values.shape[1:]))))
    for start in range(0, values.shape[0], n_piece):
        piece = getattr(values, "iloc", values)[start : start + n_piece]
        yield _to_numpy(piece) if hasattr(piece, "to_numpy") else np.asarray(piece)


def _cut_rows(indptr: Vector, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of CSR rows of about `piece_bytes`, of one row at least."""
    start, n_rows, n_items = 0, len(indptr) - 1, max(1, piece_bytes // _ITEM_BYTES)
    while start < n_rows:
        most = min(int(indptr[start]) + n_items, int(indptr[-1]))
        fitting = int(np.searchsorted(indptr, indptr.dtype.type(most), "right")) - 1
        stop = min(max(fitting, start + 1), start + n_items, n_rows)
        yield start, stop
        start = stop


def _to_numpy(frame: Any) -> Vector:
    """Return the values of a pandas object; if some are objects then all, so that a bad one can be shown."""
    if frame.ndim == 1 or any(dtype.kind == "O" for dtype in frame.dtypes):
        return np.asarray(frame.to_numpy())
    return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))


def _join(X: _Stream, vectors: dict[str, _Stream], names: tuple[str, ...] | None) -> Iterator[SourceRows]:
    """Rows of X with what belongs to them; the vectors' keys are those of `to_source_rows`."""
    for stream in vectors.values():
        if X.n_rows is not None and stream.n_rows not in (None, X.n_rows):
            raise InputError(f"{stream.where}: {stream.n_rows} rows, but {X.where} has {X.n_rows}")
    n_read, n_columns, numbers = 0, None, None
    for piece in X.pieces:
        n_rows = piece.shape[0]
        if n_columns not in (None, piece.shape[1]):
            raise InputError(f"{X.where}: {piece.shape[1]} columns from row {n_read + 1} on, not {n_columns}")
        n_columns = piece.shape[1]
        features = _to_features(piece, X.where, n_read, names)
        del piece  # a view of a Dask chunk, which is to go before the next one comes
        taken = {role: (v.take(n_rows), _place(v.where, n_read)) for role, v in vectors.items()}
        rows = to_source_rows(features, taken, names, numbers)
        numbers = has_number_labels(rows)
        yield rows
        n_read += n_rows
    if n_read == 0:
        raise InputError(f"{X.where}: no rows")
    for stream in vectors.values():
        stream.finish()


def _place(where: str, n_before: int) -> Place:
    return lambda i: f"{where}: row {n_before + i + 1} (counted from 1)"


def _to_features(
    piece: Any, where: str, n_before: int, names: tuple[str, ...] | None
) -> npt.NDArray[np.float32] | csr_array:
    """Copy a piece of X to float32; raise for what is not a finite number."""
    if piece.dtype.kind not in (_NUMBERS if _is_sparse(piece) else _NUMBERS + "O"):
        raise InputError(f"{where}: {piece.dtype} is not a number")
    sparse = _make_canonical(csr_array(piece), where) if _is_sparse(piece) else None
    values = piece if sparse is None else sparse.data
    bad = np.zeros(0, np.bool_)
    if values.dtype.kind == "O":
        bad = np.array([bool(feature_fault(value)) for value in values.flat])
    if not bad.any():
        rounded = round_to_float32(values)
        bad = ~np.isfinite(rounded)
    if bad.any():
        at = int(np.argmax(bad))
        if sparse is None:
            i, j = divmod(at, piece.shape[1])
        else:
            i, j = int(np.searchsorted(sparse.indptr, at, "right")) - 1, int(sparse.indices[at])
        name = f" {names[j]!r}" if names else ""
        fault = feature_fault(values.flat[at])
        raise InputError(f"{where}: row {n_before + i + 1}, column {j + 1}{name} (counted from 1): {fault}")
    if sparse is None:
        return rounded
    index = np.int32 if max(sparse.nnz, *sparse.shape) < 2**31 else np.int64
    return csr_array((rounded, sparse.indices.astype(index), sparse.indptr.astype(index)), shape=sparse.shape)


def _make_canonical(X: csr_array, where: str) -> csr_array:
    """Sort the indices and add up duplicates, in float64."""
    if X.nnz and (X.indices.min() < 0 or X.indices.max() >= X.shape[1]):
        raise InputError(f"{where}: a column index is outside of its {X.shape[1]} columns")
    if not X.has_canonical_format:
        X = X.astype(np.float64, copy=True)
        X.sum_duplicates()
    return X


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
            yield from _join(X, vectors, None)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError) as error:
        raise InputError(f"{path}: {error}") from error


def _open_member(archive: zipfile.ZipFile, name: str, n_dimensions: int, piece_bytes: int) -> _Stream:
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
        return _open(name, _unpack(file, shape, dtype), n_dimensions, piece_bytes)
    if n_dimensions == 1 and shape[1:] == (1,):
        shape = shape[:1]
    _require_shape(name, shape, n_dimensions)
    pieces = _member_pieces(file, shape, dtype, piece_bytes)
    return _Stream(name, shape[0], pieces, rest=np.empty((0, *shape[1:]), dtype))


def _member_pieces(
    file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], piece_bytes: int
) -> Iterator[Vector]:
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


def _open_csr(archive: zipfile.ZipFile, piece_bytes: int) -> _Stream:
    """Open the matrix in a file of scipy.sparse.save_npz."""
    layout, shape = (np.lib.format.read_array(archive.open(f"{name}.npy")) for name in ("format", "shape"))
    if str(layout.astype(np.str_)) != "csr" or shape.shape != (2,):
        raise InputError(f"X: format {layout.astype(np.str_)}; save it as CSR, of rows and columns")
    n_rows, n_columns = map(int, shape)
    names = ("data", "indices", "indptr")
    data, indices, indptr = (_open_member(archive, name, 1, piece_bytes // 4) for name in names)
    if indptr.n_rows != n_rows + 1 or indices.n_rows != data.n_rows or n_columns == 0:
        raise InputError(f"X: no CSR matrix of {n_rows} rows, {n_columns} columns")
    return _Stream("X", n_rows, _csr_pieces(data, indices, indptr, (n_rows, n_columns), piece_bytes))


def _csr_pieces(
    data: _Stream, indices: _Stream, indptr: _Stream, shape: tuple[int, int], piece_bytes: int
) -> Iterator[csr_array]:
    n_piece = max(1, piece_bytes // (4 * _ITEM_BYTES))
    last = np.zeros(1, np.int64)
    if indptr.take(1)[0] != 0:
        raise InputError("X: indptr does not begin with 0")
    for start in range(0, shape[0], n_piece):
        pointers = np.concatenate([last, indptr.take(min(n_piece, shape[0] - start)).astype(np.int64)])
        if np.any(pointers[1:] < pointers[:-1]):
            raise InputError("X: indptr descends")
        for a, b in _cut_rows(pointers, piece_bytes):
            n_items = int(pointers[b] - pointers[a])
            items = data.take(n_items), indices.take(n_items).astype(np.int64)
            yield csr_array((*items, pointers[a : b + 1] - pointers[a]), shape=(b - a, shape[1]))
        last = pointers[-1:]
    for stream in (data, indices):
        stream.finish()


def to_source_rows(
    X: npt.NDArray[np.float32] | csr_array,
    vectors: Mapping[str, tuple[Vector, Place]],
    names: tuple[str, ...] | None,
    numbers: bool | None,
) -> SourceRows:
    """Check and join the columns of a piece: `label`, `sample_weight`, `qid`, as far as there are any.

    `numbers` tells whether the labels were numbers so far (None: there were none). Raises InputError.
    """
    labels = to_labels(*vectors["label"], numbers) if "label" in vectors else None
    weight = to_weights(*vectors["sample_weight"]) if "sample_weight" in vectors else None
    qid = to_qid(*vectors["qid"]) if "qid" in vectors else None
    return SourceRows(X, labels, qid, weight, names)


def has_number_labels(rows: SourceRows) -> bool | None:
    """Whether labels are numbers; None without labels."""
    return None if rows.labels is None else rows.labels.dtype.kind == "f"


def round_to_float32(values: Any) -> npt.NDArray[np.float32]:
    """Copy to float32; what overflows becomes infinite."""
    with np.errstate(over="ignore", under="ignore"):
        return np.array(values, dtype=np.float32, order="C")


def feature_fault(value: Any) -> str:
    """Why a value is no finite float32; empty if it is one."""
    try:
        number = float("no" if isinstance(value, str) else value)
    except OverflowError:
        return "overflows float32"
    except (TypeError, ValueError):
        return "missing value" if _is_missing(value) else f"not a number: {value!r}"
    if math.isnan(number):
        return "nan"
    if math.isinf(number):
        return "infinite"
    return f"overflows float32: {number!r}" if abs(number) >= _FLOAT32_OVERFLOW else ""


def to_labels(values: Vector, place: Place, numbers: bool | None) -> Labels:
    """Labels of a piece: numbers as float64, anything else as text."""
    if values.dtype.kind == "O":
        values = _settle_type(values, place, numbers)
    if numbers is not None and numbers != (values.dtype.kind in _NUMBERS):
        before, now = ("numbers", "text") if numbers else ("text", "a number")
        raise InputError(f"{place(0)}: labels were {before} so far, this is {now}: {values[0]!s}")
    if values.dtype.kind in _NUMBERS:
        coded = values.astype(np.float64)
        _refuse(~np.isfinite(coded), values, place, "label missing or not finite")
        return coded
    named = values.astype(np.str_)
    _refuse(named == "", values, place, "label missing")
    return named


def _settle_type(labels: Vector, place: Place, numbers: bool | None) -> Vector:
    """Objects as numbers if all are, else as text."""
    _refuse(np.array([_is_missing(label) for label in labels]), labels, place, "label missing")
    text = np.array([not isinstance(label, Real | np.bool_) for label in labels])
    if numbers:
        _refuse(text, labels, place, "labels were numbers so far, this is text")
    return labels.astype(np.str_ if numbers is False or text.any() else np.float64)


def to_weights(values: Vector, place: Place) -> npt.NDArray[np.float64]:
    """Sample weights of a piece, finite and not negative."""
    if values.dtype.kind not in _NUMBERS:
        bad = np.array([bool(feature_fault(value)) for value in values])
        _refuse(bad, values, place, "sample weight is no number")
    weights = values.astype(np.float64)
    _refuse(~np.isfinite(weights), values, place, "sample weight is not finite")
    _refuse(weights < 0, values, place, "sample weight is negative")
    return weights


def to_qid(values: Vector, place: Place) -> npt.NDArray[np.int64]:
    """Query ids of a piece: whole numbers, of whatever type."""
    if values.dtype.kind not in "iu":
        bad = np.array([not _is_whole(value) for value in values])
        _refuse(bad, values, place, "query id is no whole number")
    qid = values.astype(np.int64)
    _refuse(qid != values, values, place, "query id is beyond 64 bits")
    return qid


def _is_whole(value: Any) -> bool:
    is_number = issubclass(type(value), Real)  # a NumPy one is, too
    return is_number and bool(-(2**63) <= value < 2**63 and value % 1 == 0)


def _is_missing(value: object) -> bool:
    if isinstance(value, str):
        return not value
    return value is None or str(value) in ("nan", "<NA>", "NaT")


def _refuse(bad: npt.NDArray[np.bool_], values: Vector, place: Place, reason: str) -> None:
    if bad.any():
        first = int(np.argmax(bad))
        shown = str(values[first])
        raise InputError(f"{place(first)}: {reason}" + (f": {shown}" if shown else ""))
