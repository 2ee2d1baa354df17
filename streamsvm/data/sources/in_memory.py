"""Rows in memory: arrays with the interface of a dataset on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamsvm.data.rows.source import split_rows
from streamsvm.data.rows.views import count_classes, sum_by_class
from streamsvm.data.sources.arrays import comes_from, make_canonical
from streamsvm.data.store.layouts import VECTORS
from streamsvm.kernels.feature_maps import Features
from streamsvm.numeric.encoding import Encoding
from streamsvm.numeric.rows import F64, I64, U8, CsrRows, Matrix, Rows
from streamsvm.numeric.stored_types import Scaling
from streamsvm.system.errors import InputError

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
    read_as: dict[str, Any] | None = None
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


def list_texts(frame: Any) -> list[str]:
    """Return the names of the columns of a pandas or polars frame that do not hold numbers."""
    if comes_from(frame, "polars"):
        schema = getattr(frame, "schema", {})  # a Series has none
        return [name for name, dtype in schema.items() if not dtype.is_numeric() and str(dtype) != "Boolean"]
    kinds: Any = getattr(frame, "dtypes", None)
    return [str(n) for n, dtype in kinds.items() if dtype.kind not in "biuf"] if hasattr(kinds, "items") else []


def has_columns(frame: Any, names: tuple[str, ...]) -> bool:
    """Return whether rows in memory are a table that has all of these columns."""
    if not (comes_from(frame, "pandas") or hasattr(frame, "__arrow_c_stream__")):
        return False
    found = frame.column_names if hasattr(frame, "column_names") else getattr(frame, "columns", ())
    return set(names) <= set(found)
