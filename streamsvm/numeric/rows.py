"""Rows in memory, dense or sparse: how they are held, taken by their numbers, cut, stacked and packed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from streamsvm.numeric.prefetch import prefetch

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Values = F32 | F64

ROWS_AHEAD = 8  # rows in random order are asked for so many rows before they are copied
LINE_ITEMS = 16  # float32 or int32 values of a line of the cache


@dataclass(frozen=True, slots=True)
class CsrRows:
    """Sparse rows: row i holds data[indptr[i]:indptr[i+1]] at the columns indices[indptr[i]:indptr[i+1]]."""

    data: F32
    indices: I32
    indptr: I64
    n_features: int

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and features."""
        return len(self.indptr) - 1, self.n_features

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.data.nbytes + self.indices.nbytes + self.indptr.nbytes


Matrix = F32 | CsrRows


class Split(NamedTuple):
    """Rows as compiled code for one layout takes them: dense values (n, d), or the data, indices and indptr of rows.

    A function is compiled for each layout by itself: where it asks for `values.ndim`, the compiler leaves the branch of
    the other layout out. The arrays that dense rows do not need are empty.
    """

    values: Values
    indices: I32
    indptr: I64


NO_INDICES, NO_INDPTR = np.empty(0, np.int32), np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows, the first of which is row `start` of the dataset (or chosen rows, start = -1).

    y holds codes into the dataset's classes; it is None if the rows have no such labels. target holds the numbers that
    a regression predicts, if the dataset has targets in place of classes. groups tells which rows cross-validation
    holds out together. label_sets has the labels of each row as bits (numeric.label_sets), in place of y, if rows have
    any number of labels. scores (n, k) is given if the scores that a pass needs have been computed already. numbers
    (n,) are the rows' numbers, if these are known and not consecutive. chosen holds the places of the rows that are set
    aside (requests.Subset). Rows that a dataset streams are valid only until the next ones are read, because their
    memory is used again.
    """

    start: int
    X: Matrix
    y: I32 | None = None
    sample_weight: F64 | None = None
    qid: I64 | None = None
    target: F64 | None = None
    scores: F64 | None = None
    groups: I64 | None = None
    label_sets: U8 | None = None
    numbers: I64 | None = None
    chosen: I64 | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def vectors(self) -> dict[str, Any]:
        """The vectors beside the features, by name, as far as there are any."""
        names = ("y", "sample_weight", "qid", "target", "groups", "label_sets")
        return {name: values for name in names if (values := getattr(self, name)) is not None}

    def list_numbers(self) -> I64:
        """Return the numbers of the rows, (n,)."""
        return np.arange(self.start, self.start + self.n_rows) if self.numbers is None else self.numbers

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays in memory."""
        return int(self.X.nbytes + sum(values.nbytes for values in self.vectors.values()))

    def pick(self, places: I64) -> Rows:
        """Return the rows at these places in memory of their own, without scores; they are chosen rows."""
        return Rows(-1, take_rows(self.X, places), **{name: values[places] for name, values in self.vectors.items()})

    def slice(self, part: slice) -> Rows:
        """Return the rows part.start:part.stop of these as views, without scores."""
        vectors = {name: values[part] for name, values in self.vectors.items()}
        return Rows(self.start + part.start, slice_rows(self.X, part), **vectors)


def split(X: Matrix) -> Split:
    """Return X as compiled code takes it. Read-only arrays, for which it would be compiled once more, are copied."""
    if isinstance(X, CsrRows):
        data, indices = np.require(X.data, requirements="W"), np.require(X.indices, requirements="W")
        return Split(data, indices, np.require(X.indptr, requirements="W"))
    return Split(np.require(X, requirements="W"), NO_INDICES, NO_INDPTR)


@njit(cache=True, nogil=True)
def _gather(data: F32, indices: I32, indptr: I64, order: I64, to_data: F32, to_indices: I32, to_indptr: I64) -> None:
    """Copy the rows. Places are unsigned, since compiled code would ask of a signed one whether it is negative."""
    at, n = np.uint64(0), order.size
    for i in range(n):
        if i + 2 * ROWS_AHEAD < n:
            prefetch(indptr, order[i + 2 * ROWS_AHEAD])
        if i + ROWS_AHEAD < n:
            first = indptr[order[i + ROWS_AHEAD]]
            for k in (first, first + LINE_ITEMS):
                prefetch(data, k)
                prefetch(indices, k)
        row = np.uint64(order[i])
        first, n_items = np.uint64(indptr[row]), np.uint64(indptr[row + np.uint64(1)] - indptr[row])
        for k in range(n_items):
            to_data[at + k], to_indices[at + k] = data[first + k], indices[first + k]
        at += n_items
        to_indptr[i + 1] = at


def take_rows(X: Matrix, order: I64) -> Matrix:
    """Return the rows order[0], order[1], ... of X, in memory of their own."""
    if not isinstance(X, CsrRows):
        return X[order]
    n_items = int((X.indptr[order + 1] - X.indptr[order]).sum())
    taken = CsrRows(
        np.empty(n_items, X.data.dtype), np.empty(n_items, np.int32), np.zeros(len(order) + 1, np.int64), X.n_features
    )
    _gather(X.data, X.indices, X.indptr, order, taken.data, taken.indices, taken.indptr)
    return taken


def slice_rows(X: Matrix, part: slice) -> Matrix:
    """Return the rows part.start:part.stop of X, as a view."""
    if not isinstance(X, CsrRows):
        return X[part]
    indptr = X.indptr[part.start : part.stop + 1]
    items = slice(indptr[0], indptr[-1])
    return CsrRows(X.data[items], X.indices[items], indptr - indptr[0], X.n_features)


def stack_rows(parts: list[Matrix]) -> Matrix:
    """Return the rows of several matrices, all dense or all sparse, one below the other."""
    sparse = [part for part in parts if isinstance(part, CsrRows)]
    if not sparse:
        return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])
    ends = np.cumsum([0, *(len(part.data) for part in sparse)])
    indptr = [part.indptr[1:] + end for part, end in zip(sparse, ends[:-1], strict=True)]
    data, indices = (np.concatenate([getattr(part, name) for part in sparse]) for name in ("data", "indices"))
    return CsrRows(data, indices, np.concatenate([np.zeros(1, np.int64), *indptr]), sparse[0].n_features)


def keep_features(X: CsrRows, n_features: int) -> CsrRows:
    """Return X with `n_features` features: items of later features are dropped, missing features are zeros."""
    if X.n_features <= n_features:
        return CsrRows(X.data, X.indices, X.indptr, n_features)
    kept = X.indices < n_features
    indptr = np.concatenate(([0], np.cumsum(kept)))[X.indptr]
    return CsrRows(X.data[kept], X.indices[kept], indptr, n_features)


def choose_features(X: Matrix, places: I32) -> Matrix:
    """Return X with some of its features: feature j is at places[j], which ascend, and is left out if that is -1."""
    if not isinstance(X, CsrRows):
        return X if np.all(places >= 0) else X[:, places >= 0]
    at = places[X.indices]
    kept = at >= 0
    indptr = np.concatenate(([0], np.cumsum(kept)))[X.indptr]
    return CsrRows(X.data[kept], at[kept], indptr, int(np.count_nonzero(places >= 0)))


def to_dense(X: CsrRows) -> F32:
    """Return sparse rows as dense rows (n, d) of the same precision."""
    dense = np.zeros(X.shape, X.data.dtype)
    dense[np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices] = X.data
    return dense


def pack_rows(X: Matrix, name: str) -> dict[str, Any]:
    """Return rows as arrays to be saved: dense rows under `name`, sparse rows as data, indices and indptr."""
    return {"data": X.data, "indices": X.indices, "indptr": X.indptr} if isinstance(X, CsrRows) else {name: X}
