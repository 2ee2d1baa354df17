"""The reader of arrays: NumPy, SciPy sparse, pandas, Zarr, HDF5, PyTorch, and Dask arrays and frames.

X, labels, weights and query ids are streams, each of which arrives in pieces of its own; `join_streams` takes from
every other stream the values that belong to a piece of X. So they need neither the same Dask chunks nor known ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from streamsvm.data.labels import has_number_labels, to_source_rows
from streamsvm.data.odd_texts import advise_on_table
from streamsvm.data.pieces import comes_from, find_pieces, is_sparse, is_stored, is_tensor, read_partitions, refuse_lazy
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.values import (
    FOR_MISSING,
    FOR_TEXT,
    NUMBER_KINDS,
    Place,
    Vector,
    find_feature_fault,
    find_remedy,
    round_to_float32,
)
from streamsvm.errors import InputError, NeedsOptionError, say_count
from streamsvm.numeric.narrow import widen_bits

MOST_COLUMNS = 2**31 - 1  # the most that indices of 32 bits can name
# Files of NumPy, HDF5 and Zarr hold the bfloat16 of ml_dtypes as two bytes without a type; all else that they hold so,
# its floats of fewer bits, has one byte.
UNTYPED_BFLOAT16 = np.dtype("V2")


@dataclass
class Stream:
    """An array as it arrives, piece by piece. n_rows is None if only reading can tell it."""

    where: str  # the name of the array in messages
    n_rows: int | None
    pieces: Iterator[Any]
    rest: Vector | None = None  # values that were read and not yet taken
    collection: Any = None  # the Dask array or frame that the values are in

    def take(self, n_rows: int) -> Vector:
        """Return the next `n_rows` values. Raises InputError if there are fewer."""
        parts = [] if self.rest is None else [self.rest]
        n_held = sum(part.shape[0] for part in parts)
        while n_held < n_rows:
            part = next(self.pieces, None)
            if part is None:
                raise InputError(f"{self.where}: has fewer rows than X")
            parts.append(part)
            n_held += part.shape[0]
        held = parts[0] if len(parts) == 1 else _stack(parts)
        self.rest = held[n_rows:]
        return held[:n_rows]

    def finish(self) -> None:
        """Raise InputError if there are values left."""
        if any(part is not None and part.shape[0] for part in chain([self.rest], self.pieces)):
            raise InputError(f"{self.where}: has more rows than X")


def _stack(parts: list[Any]) -> Any:
    """Return consecutive values as one array, which is sparse if they are."""
    return vstack(parts, format="csr") if is_sparse(parts[0]) else np.concatenate(parts)


def count_label_axes(y: Any) -> int:
    """Return 2 for an indicator matrix with a column for each of several labels, and 1 for one label a row."""
    try:
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    except ValueError as error:
        raise InputError(
            "y: its rows differ in length; sets of labels are a matrix of 0 and 1, a column for each label, such as "
            "sklearn.preprocessing.MultiLabelBinarizer().fit_transform(y) makes"
        ) from error
    return 2 if len(shape) == 2 and shape[1] != 1 else 1


def read_arrays(
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    qid: Any = None,
    piece_bytes: int = 8 << 20,
    groups: Any = None,
) -> Iterator[SourceRows]:
    """Yield the rows of X (rows, d) with y, sample_weight, qid and groups (rows,), about `piece_bytes` of X at a time.

    y may also be an indicator matrix (rows, L) of 0 and 1, dense or sparse, with a column for each label.

    Each argument is a NumPy array or memory map, a list, an array of Zarr or h5py, a tensor of PyTorch, or a pandas or
    Dask object; X may also be SciPy sparse, or have sparse Dask chunks. The pieces are copies. The
    features are named by the columns of a frame, if all of those are strings. Raises InputError, such as
    `X: row 3, column 2 (counted from 1): nan`.
    """
    given = {"y": y, "sample_weight": sample_weight, "qid": qid, "groups": groups}
    axes = {"y": 1 if y is None else count_label_axes(y)}
    opened = {n: open_stream(n, v, axes.get(n, 1), piece_bytes) for n, v in given.items() if v is not None}
    vectors = {"label" if name == "y" else name: stream for name, stream in opened.items()}
    stream = open_stream("X", X, 2, piece_bytes)
    _compute_together([stream, *vectors.values()], piece_bytes)
    yield from join_streams(stream, vectors, name_features(X))


def _compute_together(streams: Sequence[Stream], piece_bytes: int) -> None:
    """Compute the partitions of the first stream together with those of all streams that have the same partitions."""
    if streams[0].collection is None:
        return
    from streamsvm.data.dask_pieces import Partitions, have_same_partitions

    collections = [stream for stream in streams if stream.collection is not None]
    alike = [each for each in collections if have_same_partitions(streams[0].collection, each.collection)]
    partitions = Partitions([stream.collection for stream in alike])
    for k, stream in enumerate(alike):
        stream.pieces = read_partitions(stream.where, partitions[k], piece_bytes)


def name_features(X: Any) -> tuple[str, ...] | None:
    """Return the names of the columns of a frame, if all of them are texts."""
    refuse_lazy(X)
    columns = tuple(getattr(X, "columns", ()))
    return columns if columns and all(isinstance(name, str) for name in columns) else None


def open_stream(where: str, values: Any, n_dimensions: int, piece_bytes: int) -> Stream:
    """Return an array as a stream. Raises InputError for what is wrong with its shape or types; no value is read."""
    refuse_lazy(values, where)
    if not (comes_from(values, "dask", "pandas") or is_sparse(values) or is_stored(values) or is_tensor(values)):
        try:
            values = values if np.ma.isMaskedArray(values) else np.asarray(values)
        except ValueError as error:
            raise InputError(f"{where}: not an array: {error}") from error
    found = getattr(values, "shape", ())
    shape: tuple[Any, ...] = tuple(found) if isinstance(found, tuple) else ()
    if n_dimensions == 1 and len(shape) == 2 and shape[1] == 1 and not is_sparse(values):
        values = values.iloc[:, 0] if hasattr(values, "iloc") else values[:, 0]
        shape = shape[:1]
    require_shape(where, shape, n_dimensions)
    for name, dtype in values.dtypes.items() if n_dimensions == 2 and hasattr(values, "columns") else ():
        if dtype.kind not in NUMBER_KINDS + "O":
            raise InputError(f"{where}: column {name!r}: {dtype} is not a number; {FOR_TEXT}")
    n_rows = int(shape[0]) if isinstance(shape[0], int | np.integer) else None
    collection = values if comes_from(values, "dask") else None
    return Stream(where, n_rows, find_pieces(where, values, piece_bytes), collection=collection)


def require_shape(where: str, shape: tuple[Any, ...], n_dimensions: int) -> None:
    """Raise InputError unless an array has `n_dimensions`, and from 1 to MOST_COLUMNS columns if it has two."""
    if len(shape) != n_dimensions:
        expected = "rows and columns" if n_dimensions == 2 else "one value for every row"
        raise InputError(f"{where}: expected {expected}, found {say_count(len(shape), 'dimension')}")
    if n_dimensions == 2 and shape[1] == 0:
        raise InputError(f"{where}: no columns")
    if n_dimensions == 2 and shape[1] > MOST_COLUMNS:
        raise InputError(f"{where}: {say_count(shape[1], 'column')}; at most {MOST_COLUMNS:,} are possible")


def join_streams(X: Stream, vectors: dict[str, Stream], names: tuple[str, ...] | None) -> Iterator[SourceRows]:
    """Yield the rows of X with their values of the vectors, whose keys are those that `to_source_rows` takes."""
    for stream in vectors.values():
        if X.n_rows is not None and stream.n_rows not in (None, X.n_rows):
            raise InputError(f"{stream.where}: {say_count(stream.n_rows, 'row')}, but {X.where} has {X.n_rows:,}")
    n_read, n_columns, numbers = 0, None, None
    for piece in X.pieces:
        n_rows = piece.shape[0]
        if n_columns not in (None, piece.shape[1]):
            raise InputError(
                f"{X.where}: {say_count(piece.shape[1], 'column')} from row {n_read + 1} on, not {n_columns:,}"
            )
        n_columns = piece.shape[1]
        features = _to_features(piece, X.where, n_read, names)
        del piece  # a view that would keep its Dask chunk alive while the next one is computed
        taken = {role: (v.take(n_rows), place_rows(v.where, n_read)) for role, v in vectors.items()}
        rows = to_source_rows(features, taken, names, numbers)
        numbers = has_number_labels(rows)
        yield rows
        n_read += n_rows
    if n_read == 0:
        raise InputError(f"{X.where}: no rows")
    for stream in vectors.values():
        stream.finish()


def place_rows(where: str, n_before: int) -> Place:
    """Return a function that names the place of a value of a piece in its array."""
    return lambda i: f"{where}: row {n_before + i + 1} (counted from 1)"


def _to_features(
    piece: Any, where: str, n_before: int, names: tuple[str, ...] | None
) -> npt.NDArray[np.float32 | np.float64] | csr_array:
    """Copy a piece of X to float32, or to float64 if it has more digits and is dense.

    Raises InputError, with row and column, for what is not a finite number.
    """
    if piece.dtype == UNTYPED_BFLOAT16 and not is_sparse(piece):
        piece = widen_bits(piece)
    if piece.dtype.kind not in (NUMBER_KINDS if is_sparse(piece) else NUMBER_KINDS + "O"):
        raise InputError(f"{where}: {piece.dtype} is not a number")
    sparse = make_canonical(piece, where) if is_sparse(piece) else None
    values = piece if sparse is None else sparse.data
    bad = np.zeros(0, np.bool_)
    if values.dtype.kind == "O":
        bad = np.array([bool(find_feature_fault(value)) for value in values.flat])
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
        fault, kind = find_feature_fault(values.flat[at]), InputError
        if names and (remedy := find_remedy(fault)):
            fault = f"{fault}; {advise_on_table(*_list_odd_columns(values, names)) if sparse is None else remedy}"
            kind = NeedsOptionError
        raise kind(f"{where}: row {n_before + i + 1}, column {j + 1}{name} (counted from 1): {fault}")
    if sparse is None:
        return rounded if np.can_cast(values.dtype, np.float32) else np.array(values, np.float64, order="C")
    index = np.int32 if max(sparse.nnz, *sparse.shape) < 2**31 else np.int64
    return csr_array((rounded, sparse.indices.astype(index), sparse.indptr.astype(index)), shape=sparse.shape)


def _list_odd_columns(values: Vector, names: tuple[str, ...]) -> list[list[str]]:
    """Return the columns of a piece of a frame in which there are texts, and the columns with missing values."""
    remedies = [{find_remedy(find_feature_fault(value)) for value in column} for column in values.T]
    return [
        [name for name, found in zip(names, remedies, strict=True) if remedy in found]
        for remedy in (FOR_TEXT, FOR_MISSING)
    ]


def make_canonical(X: Any, where: str) -> csr_array:
    """Return CSR rows whose columns ascend, none twice: X's own arrays if they are so, else a copy in float64.

    Items of one column in a row are added up, as SciPy reads them. X's own flag of its order is not believed, because
    it may be older than its arrays. Raises InputError for columns or row limits that lead out of the arrays.
    """
    rows = csr_array(X)
    if rows.indices.size and (rows.indices.min() < 0 or rows.indices.max() >= rows.shape[1]):
        raise InputError(f"{where}: a column index is outside of its {say_count(rows.shape[1], 'column')}")
    try:
        rows.check_format(full_check=True)
    except ValueError as error:
        raise InputError(f"{where}: is no CSR matrix of {say_count(rows.shape[0], 'row')}: {error}") from None
    if not rows.has_canonical_format:
        rows = rows.astype(np.float64, copy=True)
        rows.sum_duplicates()
    return rows
