"""Rows in memory: arrays with the interface of a dataset on disk, and frames as tables.

A frame is a pandas frame, a pyarrow table, or an object of any package that exports Arrow columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamsvm.data.rows.source import split_rows
from streamsvm.data.rows.views import count_classes, sum_by_class
from streamsvm.data.sources.arrays import comes_from, make_canonical
from streamsvm.data.sources.arrow import Opened, count_piece_rows, number_rows
from streamsvm.data.store.layouts import VECTORS
from streamsvm.data.tables.columns import Columns, pyarrow
from streamsvm.data.tables.encoder import is_any
from streamsvm.kernels.feature_maps import Features
from streamsvm.numeric.encoding import Encoding
from streamsvm.numeric.rows import F64, I64, U8, CsrRows, Matrix, Rows
from streamsvm.numeric.stored_types import Scaling
from streamsvm.system.errors import InputError, say_count

CHUNK_BYTES = 8 << 20


@dataclass(eq=False)
class ArrayDataset:
    """A RowSource of NumPy rows (n, d) or a CSR matrix, converted to `dtype` one chunk at a time.

    dtype: the type of the converted rows: float32 as in datasets, or float64 for methods that compute in float64 on few
    rows. y: the index of each row's class in `classes`; `target` (regression) or `label_sets` (sets of labels, as bits)
    replace it. groups: the group of each row, (n,); cross-validation holds out whole groups. All rows are copied at
    once only if X is sparse and its column indices are unsorted or occur twice in a row.
    """

    X: npt.NDArray[Any] | csr_array
    y: npt.NDArray[np.int32] | None
    classes: npt.NDArray[Any] | None
    sample_weight: F64 | None = None
    name: str = "X"
    qid: I64 | None = None
    target: F64 | None = None
    label_sets: U8 | None = None
    dtype: type[np.float32 | np.float64] = np.float32
    groups: I64 | None = None
    feature_names: tuple[str, ...] | None = None
    scaling: Scaling | None = None
    features: Features | None = None
    encoding: Encoding | None = None
    label_column: str | None = None
    qid_column: str | None = None

    on_disk = False
    stored_bytes = 0
    is_shuffled = False
    streams = True  # no chunk has to be read ahead

    def __post_init__(self) -> None:
        if isinstance(self.X, csr_array):
            self.X = make_canonical(self.X, self.name)
        X = self.X
        self.n_rows, self.n_features = (int(n) for n in X.shape)
        self.class_counts = count_classes(self)
        self.nbytes = 8 * X.nnz if isinstance(X, csr_array) else 4 * self.n_rows * self.n_features
        step = max(1, CHUNK_BYTES * self.n_rows // max(1, self.nbytes))
        self.chunk_starts: I64 = np.append(np.arange(0, self.n_rows, step), self.n_rows).astype(np.int64)
        self.is_sparse = isinstance(X, csr_array)
        self.fingerprint = hashlib.sha256(f"{id(X)} {X.shape}".encode()).hexdigest()
        self._checked: set[int] = set()  # the first row of each chunk whose values were found to be finite

    @property
    def n_chunks(self) -> int:
        """The number of chunks in `chunk_starts`, which a plan replaces for its sample."""
        return len(self.chunk_starts) - 1

    @property
    def has_targets(self) -> bool:
        """See RowSource."""
        return self.target is not None

    @property
    def has_label_sets(self) -> bool:
        """See RowSource."""
        return self.label_sets is not None

    def sum_weights(self) -> F64 | None:
        """See RowSource."""
        return sum_by_class(self, self.sample_weight)

    def column(self, name: str, index: int | None = None) -> npt.NDArray[Any] | None:
        """See RowSource."""
        values: npt.NDArray[Any] | None = getattr(self, name)
        chunk = slice(None) if index is None else slice(*self.chunk_starts[index : index + 2].tolist())
        return None if values is None else values[chunk]

    def read(self, index: int) -> Rows:
        """Return chunk `index`. Raises InputError for values that are not finite."""
        start, stop = self.chunk_starts[index : index + 2].tolist()
        return self._take(slice(start, stop), start)

    def tiles(self, index: int) -> Iterator[Rows]:
        """See RowSource."""
        return split_rows(self.read(index))

    def take(self, rows: npt.ArrayLike) -> Rows:
        """See RowSource."""
        return self._take(np.asarray(rows, np.int64), -1)

    def _take(self, rows: slice | I64, start: int) -> Rows:
        vectors = {name: None if (values := self.column(name)) is None else values[rows] for name in VECTORS}
        return Rows(start, self._convert(self.X[rows], start), **vectors)

    def take_bytes(self, rows: I64) -> int:  # noqa: ARG002
        """Return 0, since the rows are already in memory."""
        return 0

    def advise(self, index: int) -> None:
        """Do nothing, since the rows are in memory."""

    def chunk_bytes(self, index: int) -> int:  # noqa: ARG002
        """Return 0, since the rows are already in memory."""
        return 0

    def stream_bytes(self) -> int:
        """Return the bytes of the converted copy of a chunk."""
        return 2 * CHUNK_BYTES * np.dtype(self.dtype).itemsize // 4 + 8 * self.n_features

    def _convert(self, X: Any, start: int) -> Matrix:
        with np.errstate(over="ignore"):  # values that overflow become infinite, which is refused below
            values: Any = np.asarray(X.data if isinstance(X, csr_array) else X, dtype=self.dtype, order="C")
        matrix: Matrix = values
        if isinstance(X, csr_array):
            matrix = CsrRows(values, X.indices.astype(np.int32), X.indptr.astype(np.int64), self.n_features)
        if start not in self._checked and not np.isfinite(values).all():
            wrong = f"contains NaN, infinity or a value too large for {np.dtype(self.dtype)}"
            raise InputError(f"{self.name}: {wrong}, near row {max(start, 0) + 1}")
        if start >= 0:
            self._checked.add(start)
        return matrix


def is_frame(source: Any, columns: Columns) -> bool:
    """Return whether rows in memory are read as a table, whose columns are encoded.

    A pandas frame without dates is read as an array of numbers instead if no column roles are given.
    """
    if comes_from(source, "pandas"):
        dtypes = getattr(source, "dtypes", ()) if hasattr(source, "columns") else ()
        return len(dtypes) > 0 and (columns != Columns() or any(dtype.kind == "M" for dtype in dtypes))
    return hasattr(source, "__arrow_c_stream__")


def list_texts(frame: Any) -> list[str]:
    """Return the names of the columns of a pandas frame that do not hold numbers."""
    kinds: Any = getattr(frame, "dtypes", None)
    return [str(n) for n, dtype in kinds.items() if dtype.kind not in "biuf"] if hasattr(kinds, "items") else []


def has_columns(frame: Any, names: tuple[str, ...]) -> bool:
    """Return whether rows in memory are a table that has all of these columns."""
    if not (comes_from(frame, "pandas") or hasattr(frame, "__arrow_c_stream__")):
        return False
    found = frame.column_names if hasattr(frame, "column_names") else getattr(frame, "columns", ())
    return set(names) <= set(found)


@dataclass(frozen=True)
class Table:
    """A pandas frame or Arrow table, converted to Arrow columns a few rows at a time.

    names: the names of the Arrow columns; a column of lists gives one for each list position, such as "embedding[0]".
    places: maps each of these names to the column of the frame and the list position; the position is None if the
    column does not hold lists. n_rows: the number of rows.
    """

    frame: Any
    names: tuple[str, ...]
    places: dict[str, tuple[str, int | None]]
    n_rows: int

    def take(self, names: Sequence[str], start: int, stop: int) -> list[Any]:
        """Return the named columns of rows start:stop. Raises InputError if a column's values have no common type."""
        places = [self.places[name] for name in names]
        taken = {column: self._take(column, start, stop) for column in dict(places)}
        lists = {column: 1 + at for column, at in self.places.values() if at is not None}
        spread = {column: _spread(values, column, lists[column]) for column, values in taken.items() if column in lists}
        return [taken[column] if at is None else pyarrow.array(spread[column][:, at]) for column, at in places]

    def _take(self, name: str, start: int, stop: int) -> Any:
        if not comes_from(self.frame, "pandas"):
            return self.frame.column(name).slice(start, stop - start).combine_chunks()
        try:
            return pyarrow.Array.from_pandas(self.frame[name].iloc[start:stop])
        except (pyarrow.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"X: column {name}: its values are not of one type: {error}") from error


def _spread(values: Any, name: str, width: int) -> Any:
    """Return a column of lists of numbers as a matrix. Raises InputError if a list has a length other than `width`."""
    lengths = np.asarray(pyarrow.compute.list_value_length(values).fill_null(-1))
    if (lengths != width).any():
        found = lengths[np.argmax(lengths != width)]
        raise InputError(f"X: column {name}: a list has {max(found, 0)} values, but earlier lists have {width}")
    return np.asarray(values.flatten().to_numpy(zero_copy_only=False)).reshape(len(values), width)


def _open_table(frame: Any, k: int) -> Table:
    """Return frame k of an iterator as a table. Raises InputError for other objects, or if a name is not text."""
    if hasattr(frame, "__arrow_c_array__"):  # an Arrow record batch
        frame = pyarrow.Table.from_batches([pyarrow.record_batch(frame)])
    if not (comes_from(frame, "pandas") or hasattr(frame, "__arrow_c_stream__")):
        raise InputError(f"X: block {k + 1} is a {type(frame).__name__}; options such as label and missing need frames")
    if comes_from(frame, "pandas"):
        table, names, n_rows = frame, tuple(frame.columns), len(frame)
    else:
        table = pyarrow.table(frame)
        names, n_rows = tuple(table.column_names), table.num_rows
    if not all(isinstance(name, str) for name in names):
        raise InputError("X: not all column names are strings; a model identifies its features by their names")
    places = list[tuple[str, tuple[str, int | None]]]()
    for name in names:
        width = 0 if comes_from(frame, "pandas") else _count_places(table.column(name))
        places += [(f"{name}[{j}]", (name, j)) for j in range(width)] or [(name, (name, None))]
    return Table(table, tuple(name for name, _ in places), dict(places), n_rows)


def _count_places(column: Any) -> int:
    """Return the number of values of the first list in a column of lists; 0 for other columns."""
    if is_any(column.type, "fixed_size_list"):
        return int(column.type.list_size)
    is_list = is_any(column.type, "list", "large_list")
    return len(column[0]) if is_list and len(column) and column[0].is_valid else 0


def open_frame(frame: Any, others: Mapping[str, Any], _: str) -> Iterator[Opened]:
    """Open a frame, or an iterator of frames with the same columns.

    others: further columns, such as labels, that belong to a single frame. Raises InputError for objects that are not
    frames, for columns of different lengths, and if a name is not text.
    """
    tables = map(_open_table, frame if isinstance(frame, Iterator) else [frame], count())
    first = next(tables, None)
    if first is None:
        raise InputError("X: no rows")
    for name, values in others.items():
        if len(values) != first.n_rows:
            raise InputError(f"{name[1:-1]}: has {say_count(len(values), 'row')}, but X has {first.n_rows:,}")

    def read(wanted: list[str]) -> Iterator[Any]:
        for k, table in enumerate(chain([first], tables)):
            if table.names != first.names:
                raise InputError(f"X: block {k + 1} differs in its columns from the blocks before it")
            yield from _read_pieces(table, others, wanted)

    yield Opened((*first.names, *others), lambda wanted: number_rows(read(wanted)))


def _read_pieces(table: Table, others: Mapping[str, Any], wanted: list[str]) -> Iterator[Any]:
    """Yield the wanted columns as Arrow batches, some rows at a time."""
    own = [name for name in wanted if name not in others]
    n_piece = count_piece_rows(len(wanted))
    for start in range(0, table.n_rows, n_piece):
        stop = min(table.n_rows, start + n_piece)
        beside = (v.to_numpy() if hasattr(v, "to_numpy") else v for v in others.values())
        more = [pyarrow.array(values[start:stop]) for values in beside]
        batch = pyarrow.RecordBatch.from_arrays([*table.take(own, start, stop), *more], names=[*own, *others])
        yield batch.select(wanted)
