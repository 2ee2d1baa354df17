"""The view of the rows that the problem of one label has, of rows with any number of labels."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.data.view import ONE, REST, Alteration, View
from streamsvm.numeric.label_sets import find_label
from streamsvm.numeric.rows import F64, I64, Rows


def single_out_label(rows: Rows, *, code: int) -> Rows:
    """Return the rows with label 1 if they have the label of this code, and 0 otherwise."""
    assert rows.label_sets is not None
    return replace(rows, y=find_label(rows.label_sets, code).astype(np.int32), label_sets=None)


class OneLabel(View):
    """The rows of the problem of one label: 1 for rows that have the label of this code, 0 for the others.

    sums: of the sample weights of the rows without the label and with it, (2,).
    """

    has_label_sets = False

    def __init__(self, source: RowSource, code: int, sums: F64) -> None:
        super().__init__(source, Alteration(partial(single_out_label, code=code)))
        self.code, self._sums = code, sums

    @property
    def classes(self) -> npt.NDArray[Any]:
        """The labels of the others and of the rows that have it."""
        return np.array([REST, ONE])

    @property
    def class_counts(self) -> I64 | None:
        """Number of rows without the label and with it, (2,)."""
        counts = self.source.class_counts
        return None if counts is None else np.array([self.n_rows - counts[self.code], counts[self.code]])

    def sum_weights(self) -> F64 | None:
        """Return the sums of the sample weights of the rows without the label and with it, (2,)."""
        return self._sums

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """See RowSource."""
        if name == "label_sets":
            return None
        if name != "y":
            return self.source.column(name)
        sets = self.source.column("label_sets")
        return None if sets is None else find_label(sets, self.code).astype(np.int32)

    def column_of(self, name: str, index: int) -> npt.NDArray[Any] | None:
        """See RowSource."""
        if name == "label_sets":
            return None
        if name != "y":
            return self.source.column_of(name, index)
        sets = self.source.column_of("label_sets", index)
        return None if sets is None else find_label(sets, self.code).astype(np.int32)


def sum_label_weights(source: RowSource) -> F64:
    """Return the sums of the sample weights of the rows without each label and with it, (L, 2)."""
    sums, weight = source.sum_weights(), source.column("sample_weight")
    assert sums is not None
    total = source.n_rows if weight is None else float(np.sum(weight))
    return np.stack((total - sums, sums), axis=1)
