"""Features become float32 on their way into a dataset, less an anchor for each column that needs one.

float32 holds a number to 2^-24 of itself. That is too little for a column whose values lie far from 0 and close
together: of the dates 20240101 to 20240130 it holds 16. If a scaling moves the features to around 0, such a column is
set aside as x - anchor, and scaled from there. The difference is formed in float64, so it loses 2^-24 of the distance
from the anchor, which is the median of the first rows.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.ingest_options import IngestOptions
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.values import round_to_float32
from streamsvm.numeric.rows import F64, CsrRows, Matrix
from streamsvm.numeric.scaling import Scaling

LOGGER = logging.getLogger("streamsvm")
LOOKED_AT_ROWS, LOOKED_AT_VALUES = 4096, 1 << 20  # of the first piece
FAR = 16.0  # times the distance between the quartiles: a column whose median is farther from 0 has an anchor
MOVING = ("standard", "minmax")  # scalings that move the features
MOST_MERGED = 0.01  # of the different values of a column, which float32 may make equal without a warning
MERGED = (
    "{}: float32 cannot tell the values of column {} apart: {:,} different values among the first rows become {:,}; "
    "ingest with --scale standard, or subtract a constant from the column"
)


def look_at_features(rows: SourceRows, options: IngestOptions, name: str, anchor: F64 | None = None) -> F64 | None:
    """Return the anchor of each column, (d,), given the first piece of rows; None if no column has one.

    anchor: that of rows to which these are appended. Warns of a column whose different values float32 makes equal.
    """
    X = rows.X
    if not isinstance(X, np.ndarray) or X.dtype == np.float32 or not len(X):
        return anchor
    first = X[: max(1, min(LOOKED_AT_ROWS, LOOKED_AT_VALUES // X.shape[1]))]
    if anchor is None and options.scale in MOVING and options.layout != "sparse":
        anchor = _find_anchor(first)
    _warn_of_merged(first, anchor, rows.feature_names, name)
    return anchor


def _find_anchor(X: npt.NDArray[Any]) -> F64 | None:
    low, middle, high = np.quantile(X, (0.25, 0.5, 0.75), axis=0, method="nearest")
    return _choose(middle, np.abs(middle) > FAR * (high - low))


def recall_anchor(scaling: Scaling | None) -> F64 | None:
    """Return the anchors of rows that are scaled as rows before."""
    return None if scaling is None else _choose(scaling.offset, np.abs(scaling.offset) * scaling.factor > FAR)


def _choose(middle: F64, is_far: npt.NDArray[np.bool_]) -> F64 | None:
    return np.where(is_far, middle, 0.0) if is_far.any() else None


def round_features(X: Any, anchor: F64 | None) -> Matrix:
    """Return features as float32, less their anchors."""
    if isinstance(X, CsrRows):
        return X
    if anchor is not None:
        X = X - anchor
    return X if X.dtype == np.float32 else round_to_float32(X)


def _warn_of_merged(X: npt.NDArray[Any], anchor: F64 | None, names: tuple[str, ...] | None, name: str) -> None:
    """Warn if float32 merges more than MOST_MERGED of the distinct values of a column; name the worst column."""
    wide = np.sort(X, axis=0)
    before = 1 + np.count_nonzero(np.diff(wide, axis=0), axis=0)
    after = 1 + np.count_nonzero(np.diff(np.asarray(round_features(wide, anchor)), axis=0), axis=0)
    k = int(np.argmin(after / before))
    if after[k] < (1.0 - MOST_MERGED) * before[k]:
        column = repr(names[k]) if names else f"{k + 1:,}"
        LOGGER.warning(MERGED.format(name, column, before[k], after[k]))
