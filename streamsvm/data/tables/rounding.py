"""Features as float32: rounding, and anchors for columns whose values are far from 0.

A dataset stores features as float32, which has a relative precision of 2^-24. This is too coarse for a column whose
values are far from 0 and close together: float32 distinguishes only 16 of the dates 20240101 to 20240130. If the
requested scaling shifts features towards 0, such a column gets an anchor, the median of its first rows. Until it is
scaled, the column is stored as x - anchor. The difference is computed in float64 and rounded to float32, and is
therefore accurate to 2^-24 of the distance between x and the anchor.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from streamsvm.data.rows.source import SourceRows
from streamsvm.numeric.rows import F64, CsrRows, Matrix
from streamsvm.numeric.stored_types import Scaling

if TYPE_CHECKING:
    from streamsvm.ingestion.ingest import IngestOptions

LOGGER = logging.getLogger("streamsvm")
LOOKED_AT_ROWS, LOOKED_AT_VALUES = 4096, 1 << 20  # the maximum numbers of rows and values that are examined
FAR = 16.0  # a column gets an anchor if its median exceeds its interquartile range by this factor
FARTHEST = 1e30  # the subtraction of an anchor below this value does not overflow float32
MOVING = ("standard", "minmax")  # scalings that subtract an offset from the features
MOST_MERGED = 0.01  # the share of a column's distinct values that float32 may merge without a warning
MERGED_VALUES = "{}: float32 merges column {}: {:,} values in the first rows become {:,}; {}subtract a constant"


def round_to_float32(values: Any) -> npt.NDArray[np.float32]:
    """Copy values to float32. Values beyond its range become infinite."""
    with np.errstate(over="ignore", under="ignore"):
        return np.array(values, dtype=np.float32, order="C")


def look_at_features(rows: SourceRows, options: IngestOptions, name: str, anchor: F64 | None = None) -> F64 | None:
    """Return the anchor of each column, (d,), given the first piece of rows; None if no column needs one.

    anchor: the anchors of the dataset to which the rows are appended, if any. Logs a warning if float32 merges values
    of a column.
    """
    X: Any = rows.X
    if X.dtype == np.float32 or not X.size:
        return anchor
    is_dense = isinstance(X, np.ndarray)
    n_rows = max(1, min(LOOKED_AT_ROWS, LOOKED_AT_VALUES // (X.shape[1] if is_dense else X.nnz // X.shape[0] + 1)))
    if anchor is None and options.scale in MOVING and options.layout != "sparse":
        anchor = _find_anchor(X[:n_rows])
    _warn_of_merged(X, n_rows, anchor, rows.feature_names, name)
    return anchor


def _find_anchor(X: Any) -> F64 | None:
    """Return the median of each column with values far from 0, and 0 for other columns, (d,); None if all are 0."""
    middle, spread, often = np.zeros(X.shape[1]), np.zeros(X.shape[1]), np.arange(X.shape[1])
    if issparse(X):  # the median of a column is 0 unless most of its values are stored
        often = np.flatnonzero(2 * np.bincount(X.indices, minlength=X.shape[1]) > X.shape[0])
        X = X[:, often].toarray()
    low, middle[often], high = np.quantile(X, (0.25, 0.5, 0.75), axis=0, method="nearest")
    spread[often] = high - low
    return _choose(middle, np.abs(middle) > FAR * spread)


def recall_anchor(scaling: Scaling | None) -> F64 | None:
    """Return the anchors for rows that are appended to a dataset with this scaling; None if no column needs one."""
    return None if scaling is None else _choose(scaling.offset, np.abs(scaling.offset) * scaling.factor > FAR)


def _choose(middle: F64, is_far: npt.NDArray[np.bool_]) -> F64 | None:
    anchor = np.where(is_far & (np.abs(middle) < FARTHEST), middle, 0.0)
    return anchor if anchor.any() else None


def as_matrix(X: npt.NDArray[np.float32] | csr_array) -> Matrix:
    """Return X, converted to CsrRows if it is sparse: slices of CsrRows cost less than SciPy's."""
    if isinstance(X, csr_array):
        indices, indptr = X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int64, copy=False)
        return CsrRows(X.data, indices, indptr, X.shape[1])
    return X


def round_features(X: Any, anchor: F64 | None) -> Matrix:
    """Return X - anchor as float32. The values that sparse rows omit then represent -anchor."""
    X = as_matrix(X)
    if isinstance(X, CsrRows):
        data = X.data if anchor is None else X.data - anchor[X.indices]
        return X if data.dtype == np.float32 else replace(X, data=round_to_float32(data))
    if anchor is not None:
        X = X - anchor
    return X if X.dtype == np.float32 else round_to_float32(X)


def _warn_of_merged(X: Any, n_rows: int, anchor: F64 | None, names: tuple[str, ...] | None, name: str) -> None:
    """Warn if float32 merges more than MOST_MERGED of a column's distinct values in the first rows.

    The warning names the worst column.
    """
    if isinstance(X, np.ndarray):
        values = np.sort(X[:n_rows], axis=0).T.ravel()
        columns = np.repeat(np.arange(X.shape[1]), len(values) // X.shape[1])
    else:
        by_value = np.argsort(X.data[: X.indptr[: n_rows + 1][-1]])
        # The keys (column, place) are distinct, and sorting them takes a sixth of the time of np.lexsort.
        keys = np.sort((X.indices[by_value].astype(np.int64) << 32) + np.arange(len(by_value)))
        columns, values = keys >> 32, X.data[by_value[keys & 0xFFFFFFFF]]
    if not len(values):
        return
    rounded = round_to_float32(values if anchor is None else values - anchor[columns])
    is_first = np.append(True, np.diff(columns) != 0)
    before, after = (
        np.add.reduceat(is_first | np.append(True, each[1:] != each[:-1]), np.flatnonzero(is_first), dtype=np.int64)
        for each in (values, rounded)
    )
    k = int(np.argmin(after / before))
    if after[k] < (1.0 - MOST_MERGED) * before[k]:
        j = int(columns[is_first][k])
        column = repr(names[j]) if names else f"{j + 1:,}"
        remedy = "ingest with --scale standard, or " * isinstance(X, np.ndarray)
        LOGGER.warning(MERGED_VALUES.format(name, column, before[k], after[k], remedy))
