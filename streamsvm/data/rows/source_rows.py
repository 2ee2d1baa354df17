"""Rows and labels as readers yield them, before they are encoded and stored in a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamsvm.numeric.encoding import Encoding
from streamsvm.numeric.labels import Bits, pack_sets
from streamsvm.numeric.rows import F64, I64
from streamsvm.system.errors import InputError


@dataclass(frozen=True)
class LabelLists:
    """Lists of numeric labels: row i has the labels values[indptr[i]:indptr[i + 1]].

    known: the possible labels, if the source is a matrix with one column for each; they need not all occur.
    """

    values: F64
    indptr: I64
    known: range | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a label."""
        return self.values.dtype

    @property
    def counts(self) -> npt.NDArray[np.int32]:
        """Number of labels of each row."""
        return np.diff(self.indptr).astype(np.int32)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, rows: slice | I64) -> LabelLists:
        """Return the lists of some rows."""
        counts = self.counts[rows].astype(np.int64)
        indptr = np.concatenate(([0], np.cumsum(counts)))
        places = np.repeat(self.indptr[:-1][rows] - indptr[:-1], counts) + np.arange(indptr[-1])
        return LabelLists(self.values[places], indptr, self.known)

    def to_flags(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return the indicator matrix (n, L) of the given ascending labels; all other labels are ignored."""
        has = np.zeros((len(self), len(labels)), np.bool_)
        codes = np.minimum(np.searchsorted(labels, self.values), len(labels) - 1)
        is_one = labels[codes] == self.values
        has[np.repeat(np.arange(len(self)), self.counts)[is_one], codes[is_one]] = True
        return has

    def to_bits(self, labels: npt.NDArray[Any]) -> Bits:
        """Return the indicator matrix of the given labels, packed into bits; see `to_flags`."""
        return pack_sets(self.to_flags(labels))


def list_columns(has: Any, n_labels: int) -> LabelLists:
    """Return the lists of an indicator matrix, dense or CSR; the label of a column is its number, from 0."""
    rows, columns = has.nonzero()
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=has.shape[0])))).astype(np.int64)
    return LabelLists(columns[order].astype(np.float64), indptr, range(n_labels))


Labels = npt.NDArray[np.float64] | npt.NDArray[np.str_] | LabelLists


@dataclass(frozen=True)
class SourceRows:
    """Consecutive rows of a source, before their labels are encoded and their features scaled.

    X is (rows, d): dense, or CSR with sorted indices and no duplicates. It is float32, or float64 if the source has
    more digits; of a sparse source, only the first piece need be float64. As long as a sparse source has not determined
    d, d is the number of columns seen so far.
    encoding: how the columns of a table became the features. row_names: the texts of the column that names the rows.
    merged: an error message, (1,), if float64 rounds some label to another number, so that labels cannot be classes;
    otherwise None. A regression takes the rounded numbers as its targets.
    """

    X: npt.NDArray[Any] | csr_array
    labels: Labels | None = None
    qid: npt.NDArray[np.int64] | None = None
    sample_weight: npt.NDArray[np.float64] | None = None
    feature_names: tuple[str, ...] | None = None
    groups: npt.NDArray[np.int64] | None = None
    encoding: Encoding | None = None
    row_names: npt.NDArray[np.object_] | None = None
    merged: npt.NDArray[np.str_] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    def require_classes(self) -> None:
        """Raise InputError if float64 merges some of the labels, so that they cannot be classes."""
        if self.merged is not None:
            raise InputError(str(self.merged[0]))
