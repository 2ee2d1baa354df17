"""The labels of rows that have any number of them, on their way into a dataset: lists one after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.label_sets import Bits, pack_sets
from streamsvm.numeric.rows import F64, I64


@dataclass(frozen=True)
class LabelLists:
    """Row i has the labels values[indptr[i]:indptr[i + 1]], which are numbers.

    known: the labels that the source has, if it is a matrix with a column for each; they need not occur.
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
        """Return the indicator matrix (n, L) of these labels, which ascend; other labels are left out."""
        has = np.zeros((len(self), len(labels)), np.bool_)
        codes = np.minimum(np.searchsorted(labels, self.values), len(labels) - 1)
        is_one = labels[codes] == self.values
        has[np.repeat(np.arange(len(self)), self.counts)[is_one], codes[is_one]] = True
        return has

    def to_bits(self, labels: npt.NDArray[Any]) -> Bits:
        """Return the sets of these labels as bits; see `to_flags`."""
        return pack_sets(self.to_flags(labels))


def list_columns(has: Any, n_labels: int) -> LabelLists:
    """Return the lists of an indicator matrix, dense or CSR, each of whose columns is a label: its number from 0 on."""
    rows, columns = has.nonzero()
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=has.shape[0])))).astype(np.int64)
    return LabelLists(columns[order].astype(np.float64), indptr, range(n_labels))
