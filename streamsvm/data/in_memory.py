"""Rows that a caller holds in memory, with the interface of a dataset on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamsvm.data.arrays import make_canonical
from streamsvm.data.checks import VECTORS
from streamsvm.data.row_tiles import split_rows
from streamsvm.errors import InputError
from streamsvm.numeric.encoding import Encoding
from streamsvm.numeric.feature_maps import Features
from streamsvm.numeric.label_sets import sum_labels
from streamsvm.numeric.rows import F64, I64, U8, CsrRows, Matrix, Rows
from streamsvm.numeric.scaling import Scaling

CHUNK_BYTES = 8 << 20


class ArrayDataset:
    """A RowSource of NumPy rows (n, d) or a CSR matrix, converted to `dtype` a chunk at a time.

    dtype: float32 as in datasets, or float64 for a few rows of a method that computes in float64.
    y holds codes into `classes`; the targets of a regression, or sets of labels as bits, take their place if they are
    given. The rows are copied
    whole only if they are sparse rows whose columns do not ascend or occur twice.
    """

    on_disk = False
    stored_bytes = 0
    is_shuffled = False
    streams = True  # there is nothing to read ahead
    scaling: Scaling | None = None
    features: Features | None = None
    encoding: Encoding | None = None
    label_column: str | None = None
    qid_column: str | None = None

    def __init__(
        self,
        X: npt.NDArray[Any] | csr_array,
        y: npt.NDArray[np.int32] | None,
        classes: npt.NDArray[Any] | None,
        sample_weight: F64 | None = None,
        name: str = "X",
        qid: I64 | None = None,
        target: F64 | None = None,
        label_sets: U8 | None = None,
        dtype: type[np.float32 | np.float64] = np.float32,
    ) -> None:
        X = make_canonical(X, name) if isinstance(X, csr_array) else X
        self.X, self.y, self.classes, self.sample_weight, self.name, self.qid = X, y, classes, sample_weight, name, qid
        self.target: F64 | None = target
        self.label_sets: U8 | None = label_sets
        self.groups: I64 | None = None  # which rows cross-validation holds out together, (n,)
        self.n_rows, self.n_features = (int(n) for n in X.shape)
        self.dtype = dtype
        self.feature_names: tuple[str, ...] | None = None
        self.class_counts = None if y is None or classes is None else np.bincount(y, minlength=len(classes))
        if label_sets is not None and classes is not None:
            self.class_counts = sum_labels(label_sets, len(classes), None).astype(np.int64)
        self.nbytes = 8 * X.nnz if isinstance(X, csr_array) else 4 * self.n_rows * self.n_features
        step = max(1, CHUNK_BYTES * self.n_rows // max(1, self.nbytes))
        self.chunk_starts: I64 = np.append(np.arange(0, self.n_rows, step), self.n_rows).astype(np.int64)
        self.fingerprint = hashlib.sha256(f"{id(X)} {X.shape}".encode()).hexdigest()
        self._checked: set[int] = set()  # the first rows of chunks whose values are known to be finite

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return len(self.chunk_starts) - 1

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are sparse."""
        return isinstance(self.X, csr_array)

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
        if self.label_sets is not None and self.classes is not None:
            return sum_labels(self.label_sets, len(self.classes), self.sample_weight)
        if self.target is not None:
            return np.array([self.n_rows if self.sample_weight is None else self.sample_weight.sum()], np.float64)
        if self.y is None or self.classes is None:
            return None
        return np.bincount(self.y, self.sample_weight, len(self.classes)).astype(np.float64)

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """See RowSource."""
        return self._vectors().get(name)

    def column_of(self, name: str, index: int) -> npt.NDArray[Any] | None:
        """See RowSource."""
        values = self.column(name)
        return None if values is None else values[slice(*self.chunk_starts[index : index + 2].tolist())]

    def _vectors(self) -> dict[str, npt.NDArray[Any]]:
        return {name: values for name in VECTORS if (values := getattr(self, name)) is not None}

    def read(self, index: int) -> Rows:
        """Return chunk `index`. Raises InputError for values that are not finite."""
        start, stop = int(self.chunk_starts[index]), int(self.chunk_starts[index + 1])
        vectors: dict[str, Any] = {name: values[start:stop] for name, values in self._vectors().items()}
        return Rows(start, self._convert(self.X[start:stop], start), **vectors)

    def tiles(self, index: int) -> Iterator[Rows]:
        """See RowSource."""
        return split_rows(self.read(index))

    def take(self, rows: npt.ArrayLike) -> Rows:
        """See RowSource."""
        wanted = np.asarray(rows, np.int64)
        vectors: dict[str, Any] = {name: values[wanted] for name, values in self._vectors().items()}
        return Rows(-1, self._convert(self.X[wanted], -1), **vectors)

    def take_bytes(self, rows: I64) -> int:  # noqa: ARG002
        """Return 0, since the rows are in memory already."""
        return 0

    def advise(self, index: int) -> None:
        """Do nothing, since the rows are in memory."""

    def chunk_bytes(self, index: int) -> int:  # noqa: ARG002
        """Return 0, since the rows are in memory already."""
        return 0

    def stream_bytes(self) -> int:
        """Return the bytes of a chunk's copy."""
        return 2 * CHUNK_BYTES * np.dtype(self.dtype).itemsize // 4 + 8 * self.n_features

    def _convert(self, X: Any, start: int) -> Matrix:
        with np.errstate(over="ignore"):  # infinite values are refused below
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
