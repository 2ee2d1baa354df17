"""The reader of arrays: NumPy, SciPy sparse, pandas, Zarr, HDF5, PyTorch, Dask, and iterators of such blocks.

X, labels, weights and query ids are separate streams of pieces. For each piece of X, `join_streams` takes the
corresponding values from the other streams. The other streams may therefore have other Dask chunks than X, or chunks of
unknown size.

Arrays in files or on clusters are never loaded whole. Zarr and HDF5 arrays are read in whole chunks, since a part of a
chunk costs as much as all of it. Dask computes one partition after another (data.sources.dask_collections).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse, vstack

from streamsvm.data.rows.source import SourceRows, cut_items
from streamsvm.data.tables import checks
from streamsvm.data.tables.checks import Place
from streamsvm.numeric.stored_types import round_to_float32, widen_bits
from streamsvm.system.errors import InputError, NeedsOptionError, say_count

Vector = npt.NDArray[Any]
ITEM_BYTES = 8  # the size of a value while it is converted: a float64, or a float32 and its int32 index
STORED = ("zarr", "h5py")  # packages whose arrays stay in files until they are sliced
NUMBERS = ("X", "sample_weight")  # arguments that must hold numbers
VECTOR_NAMES = {"label": "y", "qid": "qid", "sample_weight": "sample_weight", "groups": "groups"}  # argument by role


def comes_from(value: object, *packages: str) -> bool:
    """Return whether a value's class, or a base class, is defined in one of the packages, without importing them."""
    kind: Any = type(value)  # mypy does not know that classes are hashable
    return not _list_packages(kind).isdisjoint(packages)


@lru_cache(maxsize=128)
def _list_packages(kind: type) -> frozenset[str]:
    """Return the packages that define a class and its base classes. A prediction of one row asks for them 15 times."""
    return frozenset(cls.__module__.partition(".")[0] for cls in kind.__mro__)


def unwrap(values: Any) -> Any:
    """Return the NumPy or Dask array inside a wrapper such as xarray's DataArray; return other values unchanged."""
    may_wrap = hasattr(values, "chunks") and not comes_from(values, "dask")
    inner = getattr(values, "data", None) if may_wrap else None
    return inner if comes_from(inner, "dask", "numpy") else values


def is_stored(values: object) -> bool:
    """Return whether a value is an array of Zarr, h5py or AnnData that stays in its file until it is sliced."""
    return comes_from(values, *STORED) or is_backed(values)


def is_backed(values: object) -> bool:
    """Return whether a value is a sparse matrix of AnnData that stays in its file."""
    return comes_from(values, "anndata") and hasattr(values, "group") and hasattr(values, "format")


def is_tensor(values: object) -> bool:
    """Return whether a value is a PyTorch tensor."""
    return comes_from(values, "torch") and hasattr(values, "detach")


def refuse_lazy(source: Any, name: str = "X") -> None:
    """Raise InputError for a polars LazyFrame, an AnnData object or an xarray Dataset, which are not arrays of rows."""
    if comes_from(source, "anndata") and hasattr(source, "obs_names"):
        way = f"streamsvm.ingest({name}, PATH, label=COLUMN), or pass {name}.X"
        raise InputError(f"{name}: an AnnData object has labels and names of its own: use {way}")
    if comes_from(source, "xarray") and not hasattr(source, "dtype"):
        way = "one of them with rows and columns, or the frame of to_dataframe()"
        raise InputError(f"{name}: an xarray {type(source).__name__} holds several variables: pass {way}")
    if comes_from(source, "polars") and type(source).__name__ == "LazyFrame":
        given = name.partition(",")[0]
        raise InputError(f"{name}: a LazyFrame has no rows yet: give {given}.collect(), or use {given}.sink_parquet")


def refuse_unsuitable(**given: Any) -> None:
    """Raise InputError for masked (missing) values, and for features and weights that are times.

    Without this check, NumPy would convert times to numbers. given: the values by name.
    """
    for name, values in given.items():
        parts = values if isinstance(values, list | tuple) else [values]
        if any(map(np.ma.is_masked, parts)):
            raise InputError(f"{name}: has masked (missing) values: fill them in, or remove their rows")
        is_frame = comes_from(values, "pandas", "polars") and len(getattr(values, "shape", ())) > 1
        for dtype in values.dtypes if is_frame else [getattr(values, "dtype", None)]:
            is_polars_time = comes_from(values, "polars") and dtype is not None and dtype.is_temporal()
            if name in NUMBERS and (is_polars_time or getattr(dtype, "kind", "") in ("m", "M")):
                raise InputError(f"{name}: has values of the type {dtype}, not numbers: divide them by a unit of time")


def hold(values: Any) -> Any:
    """Return values in memory. A Dask collection is computed; masked values stay masked."""
    return values.compute() if comes_from(values, "dask") else values


def find_pieces(where: str, values: Any, piece_bytes: int) -> Iterator[Any]:
    """Yield the rows of an array in pieces of about `piece_bytes`. The pieces of an array in memory are views."""
    if comes_from(values, "dask"):
        from streamsvm.data.sources.dask_collections import Partitions

        yield from read_partitions(where, Partitions([values])[0], piece_bytes)
        return
    if issparse(values):
        values = values.tocsr()
        yield from (values[a:b] for a, b in cut_items(values.indptr, piece_bytes // ITEM_BYTES))
        return
    refuse_unsuitable(**{where: values})
    n_piece = max(1, piece_bytes // (ITEM_BYTES * _count_items(values)))
    if is_stored(values):  # read whole chunks: about n_piece rows, and at least one chunk
        chunk = (getattr(values, "chunks", None) or (1,))[0]
        step = chunk * max(1, n_piece // chunk)
        texts = comes_from(values, "h5py") and values.dtype.kind == "O"
        for start in range(0, values.shape[0], step):
            stored = values.asstr() if texts else values
            yield from find_pieces(where, stored[start : min(start + step, values.shape[0])], piece_bytes)
        return
    for start in range(0, values.shape[0], n_piece):
        yield to_numpy(getattr(values, "iloc", values)[start : start + n_piece])


def read_partitions(where: str, computes: Iterable[Callable[[], Any]], piece_bytes: int) -> Iterator[Any]:
    """Yield the rows of partitions in pieces. computes: the functions that each return one partition."""
    for compute in computes:  # no reference to a partition remains while the next one is computed
        yield from find_pieces(where, compute(), piece_bytes)


def _count_items(values: Any) -> int:
    """Return the approximate number of values in a row."""
    if is_backed(values):
        return -(-int(values.group["data"].shape[0]) // max(1, int(values.shape[0])))
    return max(1, int(math.prod(values.shape[1:])))


def to_numpy(values: Any) -> Vector:
    """Return rows in memory as a NumPy array. A tensor is copied from its device, without its gradient.

    A pandas frame of numbers is converted to float64. A frame with columns of objects becomes an array of objects;
    messages can then show a bad value.
    """
    if is_tensor(values):
        values = values.detach().cpu()
        return np.asarray((values.float() if "bfloat16" in str(values.dtype) else values).numpy())
    if not hasattr(values, "to_numpy"):
        found: Vector = np.asarray(values)
        if found.dtype.kind == "T":  # NumPy's StringDType, which few functions support
            return found.astype(object)
        return found.astype(np.float32) if found.dtype.name == "bfloat16" else found  # a type of ml_dtypes
    if values.ndim == 1 or any(dtype.kind == "O" for dtype in values.dtypes):
        return np.asarray(values.to_numpy())
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))


MOST_COLUMNS = 2**31 - 1  # the limit of 32-bit indices
# NumPy, HDF5 and Zarr files store the bfloat16 of ml_dtypes as two bytes without a type. They store other types of
# ml_dtypes in this way, too, but these have one byte.
UNTYPED_BFLOAT16 = np.dtype("V2")


@dataclass
class Stream:
    """An array as it arrives, piece by piece. n_rows is None if it is unknown before reading."""

    where: str  # the name of the array in messages
    n_rows: int | None
    pieces: Iterator[Any]
    rest: Vector | None = None  # values that have been read, but not taken
    collection: Any = None  # the Dask array or frame that holds the values

    def take(self, n_rows: int) -> Vector:
        """Return the next `n_rows` values. Raises InputError if fewer are left."""
        parts = [] if self.rest is None else [self.rest]
        n_held = sum(part.shape[0] for part in parts)
        while n_held < n_rows:
            part = next(self.pieces, None)
            if part is None:
                raise InputError(f"{self.where}: has fewer rows than X")
            parts.append(part)
            n_held += part.shape[0]
        stack = np.concatenate if isinstance(parts[0], np.ndarray) else partial(vstack, format="csr")
        held = parts[0] if len(parts) == 1 else stack(parts)
        self.rest = held[n_rows:]
        return held[:n_rows]

    def finish(self) -> None:
        """Raise InputError if any values are left."""
        if any(part is not None and part.shape[0] for part in chain([self.rest], self.pieces)):
            raise InputError(f"{self.where}: has more rows than X")


def count_label_axes(y: Any) -> int:
    """Return the number of dimensions of labels: 2 for an indicator matrix, 1 for a single label per row."""
    try:
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    except ValueError as error:
        raise InputError("y: rows differ in length; convert label sets with sklearn's MultiLabelBinarizer") from error
    return 2 if len(shape) == 2 and shape[1] != 1 else 1


def read_arrays(
    X: Any, y: Any = None, sample_weight: Any = None, qid: Any = None, piece_bytes: int = 8 << 20, groups: Any = None
) -> Iterator[SourceRows]:
    """Yield the rows of X (rows, d) with y, sample_weight, qid and groups (rows,), about `piece_bytes` of X at a time.

    y may also be an indicator matrix (rows, L) of 0 and 1, dense or sparse, with a column for each label.

    Each argument is a NumPy array or memory map, a list, a Zarr or h5py array, a PyTorch tensor, a pandas or Dask
    object, or a wrapper of a Dask array, such as xarray's DataArray. X may also be a SciPy sparse matrix, or have
    sparse Dask chunks. The yielded rows are copies. The columns of a frame name the features, if all their names are
    strings. Raises InputError, such as `X: row 3, column 2 (counted from 1): nan`.
    """
    vectors = open_vectors({"y": y, "sample_weight": sample_weight, "qid": qid, "groups": groups}, piece_bytes)
    stream = open_stream("X", X, 2, piece_bytes)
    _compute_together([stream, *vectors.values()], piece_bytes)
    yield from join_streams(stream, vectors, name_features(X))


def open_vectors(values: Mapping[str, Any], piece_bytes: int, where: str = "") -> dict[str, Stream]:
    """Return the labels and other vectors as streams, by role.

    values: the arrays by name; other names are ignored, and None stands for an array that is not given. where: a prefix
    of the names in messages.
    """
    given = {role: (name, values[name]) for role, name in VECTOR_NAMES.items() if values.get(name) is not None}
    axes = {role: count_label_axes(each) if role == "label" else 1 for role, (_, each) in given.items()}
    return {role: open_stream(where + name, v, axes[role], piece_bytes) for role, (name, v) in given.items()}


def _compute_together(streams: Sequence[Stream], piece_bytes: int) -> None:
    """Let the first stream, and all streams with the same partitions, compute their partitions in one graph."""
    if streams[0].collection is None:
        return
    from streamsvm.data.sources.dask_collections import Partitions, have_same_partitions

    collections = [stream for stream in streams if stream.collection is not None]
    alike = [each for each in collections if have_same_partitions(streams[0].collection, each.collection)]
    partitions = Partitions([stream.collection for stream in alike])
    for k, stream in enumerate(alike):
        stream.pieces = read_partitions(stream.where, partitions[k], piece_bytes)


def name_features(X: Any) -> tuple[str, ...] | None:
    """Return the column names of a frame if all of them are strings, otherwise None."""
    refuse_lazy(X)
    columns = tuple(getattr(X, "columns", ()))
    return columns if columns and all(isinstance(name, str) for name in columns) else None


def open_stream(where: str, values: Any, n_dimensions: int, piece_bytes: int) -> Stream:
    """Return an array as a stream, without reading any value. Raises InputError for an unsuitable shape or type."""
    refuse_lazy(values, where)
    values = unwrap(values)
    if not (comes_from(values, "dask", "pandas") or issparse(values) or is_stored(values) or is_tensor(values)):
        try:
            values = values if np.ma.isMaskedArray(values) else np.asarray(values)
        except ValueError as error:
            raise InputError(f"{where}: not an array: {error}") from error
    found = getattr(values, "shape", ())
    shape: tuple[Any, ...] = tuple(found) if isinstance(found, tuple) else ()
    if n_dimensions == 1 and len(shape) == 2 and shape[1] == 1 and not issparse(values):
        values = values.iloc[:, 0] if hasattr(values, "iloc") else values[:, 0]
        shape = shape[:1]
    require_shape(where, shape, n_dimensions)
    for name, dtype in values.dtypes.items() if n_dimensions == 2 and hasattr(values, "columns") else ():
        if dtype.kind not in checks.NUMBER_KINDS + "O":
            raise InputError(f"{where}: column {name!r} holds {dtype}, not numbers; {checks.FOR_TEXT}")
    n_rows = int(shape[0]) if isinstance(shape[0], int | np.integer) else None
    collection = values if comes_from(values, "dask") else None
    return Stream(where, n_rows, find_pieces(where, values, piece_bytes), collection=collection)


def require_shape(where: str, shape: tuple[Any, ...], n_dimensions: int) -> None:
    """Raise InputError for another number of dimensions, and for a matrix with 0 or more than MOST_COLUMNS columns."""
    if len(shape) != n_dimensions:
        expected = "rows and columns" if n_dimensions == 2 else "one value for every row"
        raise InputError(f"{where}: expected {expected}, found {say_count(len(shape), 'dimension')}")
    if n_dimensions == 2 and shape[1] == 0:
        raise InputError(f"{where}: has no columns")
    if n_dimensions == 2 and shape[1] > MOST_COLUMNS:
        raise InputError(f"{where}: {say_count(shape[1], 'column')}; at most {MOST_COLUMNS:,} are possible")


def join_streams(X: Stream, vectors: dict[str, Stream], names: tuple[str, ...] | None) -> Iterator[SourceRows]:
    """Yield the rows of X with the corresponding values of the vectors. vectors: the streams by role."""
    for stream in vectors.values():
        _require_as_many(stream, X)
    n_read, n_columns, numbers = 0, None, None
    for piece in X.pieces:
        n_rows = piece.shape[0]
        if n_columns not in (None, piece.shape[1]):
            raise InputError(
                f"{X.where}: row {n_read + 1} has {say_count(piece.shape[1], 'column')}, but earlier rows have "
                f"{n_columns:,}"
            )
        n_columns = piece.shape[1]
        features = _to_features(piece, X.where, n_read, names)
        del piece  # as a view, it would keep its Dask chunk in memory while the next chunk is computed
        taken = {role: (v.take(n_rows), place_rows(v.where, n_read)) for role, v in vectors.items()}
        rows = checks.to_source_rows(features, taken, names, numbers)
        numbers = checks.has_number_labels(rows)
        yield rows
        n_read += n_rows
    if n_read == 0:
        raise InputError(f"{X.where}: no rows")
    for stream in vectors.values():
        stream.finish()


def _require_as_many(vector: Stream, X: Stream) -> None:
    """Raise InputError if the length of a vector is known to differ from the number of rows."""
    if vector.n_rows is not None and X.n_rows not in (None, vector.n_rows):
        raise InputError(f"{vector.where}: has {say_count(vector.n_rows, 'row')}, but {X.where} has {X.n_rows:,}")


def place_rows(where: str, n_before: int) -> Place:
    """Return a function from the index of a row in a piece to its place. n_before: how many rows precede the piece."""
    return lambda i: f"{where}: row {n_before + i + 1} (counted from 1)"


def _to_features(
    piece: Any, where: str, n_before: int, names: tuple[str, ...] | None
) -> npt.NDArray[np.float32 | np.float64] | csr_array:
    """Copy a piece of X to float32, or to float64 if its type has more digits than float32.

    Raises InputError, with row and column, for values that are not finite numbers.
    """
    if piece.dtype == UNTYPED_BFLOAT16 and not issparse(piece):
        piece = widen_bits(piece)
    if piece.dtype.kind not in (checks.NUMBER_KINDS if issparse(piece) else checks.NUMBER_KINDS + "O"):
        raise InputError(f"{where}: holds {piece.dtype}, not numbers")
    sparse = make_canonical(piece, where) if issparse(piece) else None
    values = piece if sparse is None else sparse.data
    bad = np.zeros(0, np.bool_)
    if values.dtype.kind == "O":
        bad = np.array([bool(checks.find_feature_fault(value)[0]) for value in values.flat])
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
        (fault, remedy), kind = checks.find_feature_fault(values.flat[at]), InputError
        if names and remedy:
            fault, kind = f"{fault}; {_advise(values, names) if sparse is None else remedy}", NeedsOptionError
        raise kind(f"{where}: row {n_before + i + 1}, column {j + 1}{name} (counted from 1): {fault}")
    data = rounded if np.can_cast(values.dtype, np.float32) else np.array(values, np.float64, order="C")
    if sparse is None:
        return data
    index = np.int32 if max(sparse.nnz, *sparse.shape) < 2**31 else np.int64
    return csr_array((data, sparse.indices.astype(index), sparse.indptr.astype(index)), shape=sparse.shape)


def _advise(values: Vector, names: tuple[str, ...]) -> str:
    """Return the remedy for a frame with text or missing values.

    values: a piece of the frame. names: the names of its columns.
    """
    remedies = [{checks.find_feature_fault(value)[1] for value in column} for column in values.T]
    texts = [name for name, found in zip(names, remedies, strict=True) if checks.FOR_TEXT in found]
    gaps = [name for name, found in zip(names, remedies, strict=True) if checks.FOR_MISSING in found]
    return checks.advise_on_table(texts, gaps)


def make_canonical(X: Any, where: str) -> csr_array:
    """Return CSR rows with ascending, unique column indices: the arrays of X if they qualify, or a float64 copy.

    Duplicate items of a row are added up, as SciPy does. The flag `has_canonical_format` of X is ignored, because it
    may be outdated. Raises InputError for column indices or row limits outside the arrays.
    """
    rows = csr_array(X)
    if rows.indices.size and (rows.indices.min() < 0 or rows.indices.max() >= rows.shape[1]):
        raise InputError(f"{where}: a column index is outside the {say_count(rows.shape[1], 'column')} of the matrix")
    try:
        rows.check_format(full_check=True)
    except ValueError as error:
        raise InputError(f"{where}: not a CSR matrix of {say_count(rows.shape[0], 'row')}: {error}") from None
    if not rows.has_canonical_format:
        rows = rows.astype(np.float64, copy=True)
        rows.sum_duplicates()
    return rows


def refuse_beside(given: Mapping[str, Any], what: str) -> None:
    """Raise InputError if labels or other vectors are given although X contains them. what: the end of the message."""
    for name, values in given.items():
        if values is not None:
            raise InputError(f"{name}: remove it, since X {what}")


def read_blocks(blocks: Iterator[Any], piece_bytes: int = 8 << 20) -> Iterator[SourceRows]:
    """Yield the rows of an iterator of blocks X or pairs (X, y). `read_arrays` lists the accepted types of X and y.

    Raises InputError if a block has other columns than the first block, or if only some blocks have labels.
    """
    labels: deque[Any] = deque()
    first = next(blocks, None)
    if first is None:
        raise InputError("X: no rows")
    has_labels = _is_pair(first)
    names = name_features(first[0] if has_labels else first)

    def pieces() -> Iterator[Any]:
        for k, block in enumerate(chain([first], blocks)):
            if _is_pair(block) != has_labels:
                raise InputError(f"X: block {k + 1} is {'not ' * has_labels}a pair (X, y), unlike the first block")
            X, y = block if has_labels else (block, None)
            if name_features(X) != names:
                raise InputError(f"X: block {k + 1} differs in its columns from the blocks before it")
            rows = open_stream(f"X, block {k + 1}", X, 2, piece_bytes)
            if has_labels:
                opened = open_stream(f"y, block {k + 1}", y, count_label_axes(y), piece_bytes)
                _require_as_many(opened, rows)
                labels.append(opened)
            yield from rows.pieces

    def label_pieces() -> Iterator[Any]:
        while labels:
            yield from labels.popleft().pieces

    vectors = {"label": Stream("y", None, label_pieces())} if has_labels else {}
    yield from join_streams(Stream("X", None, pieces()), vectors, names)


def _is_pair(block: Any) -> bool:
    """Return whether a block is a pair (X, y): a tuple of two arrays, or a list of them, as PyTorch's loaders yield."""
    return isinstance(block, tuple | list) and len(block) == 2 and all(hasattr(each, "shape") for each in block)
