"""The rows that a reader yields, on their way into a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamsvm.data.label_lists import LabelLists
from streamsvm.errors import InputError
from streamsvm.numeric.encoding import Encoding

Labels = npt.NDArray[np.float64] | npt.NDArray[np.str_] | LabelLists


@dataclass(frozen=True)
class SourceRows:
    """Some consecutive rows of a source, whose labels are not coded and whose features are not scaled yet.

    X is (rows, d): dense float32, dense float64 if the source has more digits than float32, or CSR with float32 data,
    sorted indices and no duplicates. If a sparse source does not know d yet, d is the number of columns seen so far.
    encoding: how the columns of a table became the features. row_names: the texts of the column that names the rows.
    merged: why the labels are no classes, (1,), if float64 does not tell one of them from its neighbours; as the target
    of a regression it is rounded.
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
        """Raise InputError unless each label is a class of its own."""
        if self.merged is not None:
            raise InputError(str(self.merged[0]))
