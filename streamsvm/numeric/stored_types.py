"""The storage of features: rounding to float32, scaling, and narrow dtypes that become float32 when rows are read.

    x_scaled = (x - offset) * factor        per feature

A linear model of scaled features is a linear model of raw features: w.x_scaled = (w * factor).x - (w * factor).offset.
bfloat16 is the upper half of a float32; NumPy does not have it, so its bits are stored as uint16. Numbers that are too
large for their dtype raise an error.

A dataset stores features as float32, which has a relative precision of 2^-24. This is too coarse for a column whose
values are far from 0 and close together: float32 distinguishes only 16 of the dates 20240101 to 20240130. If the
requested scaling shifts features towards 0, such a column gets an anchor, the median of its first rows. Until it is
scaled, the column is stored as x - anchor. The difference is computed in float64 and rounded to float32, and is
therefore accurate to 2^-24 of the distance between x and the anchor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit
from scipy.sparse import csr_array, issparse

from streamsvm.numeric.compilation import load_or_compile
from streamsvm.numeric.rows import F32, F64, I64, CsrRows, Matrix, to_dense
from streamsvm.system.errors import InputError, say_count

STORED_AS = {"float32": "float32", "float16": "float16", "bfloat16": "uint16", "int8": "int8"}
Stored = npt.NDArray[Any]
LOGGER = logging.getLogger("streamsvm")
LOOKED_AT_ROWS, LOOKED_AT_VALUES = 4096, 1 << 20  # the maximum numbers of rows and values that are examined
FAR = 16.0  # a column gets an anchor if its median exceeds its interquartile range by this factor
FARTHEST = 1e30  # the subtraction of an anchor below this value does not overflow float32
MOST_MERGED = 0.01  # the share of a column's distinct values that float32 may merge without a warning
MERGED_VALUES = "{}: float32 merges column {}: {:,} values in the first rows become {:,}; {}subtract a constant"

with np.errstate(invalid="ignore"):  # Some bit patterns are NaN.
    _WIDE: F32 = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)  # indexed by a float16's bits


def narrow(X: F32, dtype: str) -> Stored:
    """Return float32 values in their storage dtype; values that the dtype cannot represent are rounded."""
    if dtype == "bfloat16":
        return (np.ascontiguousarray(X).view(np.uint32) >> 16).astype(np.uint16)
    with np.errstate(over="ignore", invalid="ignore"):
        return X.astype(STORED_AS[dtype])


def widen(stored: Stored, wide: F32) -> None:
    """Fill `wide` with the exact float32 values of stored numbers; uint16 holds the bits of a bfloat16."""
    if stored.dtype == np.float16:  # NumPy's conversion takes five times as long as the table.
        look_up(stored.reshape(-1).view(np.uint16), _WIDE, wide.reshape(-1))
    elif stored.dtype == np.uint16:
        np.left_shift(stored, 16, out=wide.view(np.uint32), dtype=np.uint32)
    else:
        wide[:] = stored


def widen_bits(bits: Stored) -> F32:
    """Return the float32 values of bfloat16 numbers, given their bits as uint16 or as raw bytes (V2)."""
    wide = np.empty(bits.shape, np.float32)
    widen(np.ascontiguousarray(bits).view(np.uint16), wide)
    return wide


def load_widening(dtype: str) -> None:
    """Load or compile the code that widens a dtype, before a pass needs it; only float16 has compiled code."""
    if dtype == "float16":
        load_or_compile((dtype,), _widen_one, in_child=False)


def _widen_one(dtype: str) -> None:
    widen(np.zeros(1, dtype), np.zeros(1, np.float32))


@njit(cache=True, nogil=True)
def look_up(places: npt.NDArray[np.uint16], table: F32, found: F32) -> None:
    """Fill `found` with the entries of a table of 65,536 numbers at these places."""
    for i in range(places.size):
        found[i] = table[places[i]]


def round_rows(values: F64, which: str) -> F32:
    """Return values as float32. Raises InputError if some overflow. which: the name of the rows in the message."""
    with np.errstate(over="ignore"):
        found = values.astype(np.float32)
    if not np.isfinite(found).all():
        raise InputError(f"{which} overflow float32: their values are too large")
    return found


def refuse_overflow(score: Callable[[Matrix], F64]) -> Callable[[Matrix], F64]:
    """Return a function that computes the same scores as `score`, and raises InputError unless they are finite."""

    def score_finite(X: Matrix) -> F64:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = score(X)
        if not np.isfinite(scores).all():
            raise InputError(
                "the scores of some rows overflow float64: numbers of the model, or of the rows, are too large"
            )
        return scores

    return score_finite


SCALED = "some rows, scaled like those that the model was trained on,"
KINDS = ("none", "minmax", "maxabs", "standard")


@dataclass(frozen=True)
class Scaling:
    """The scaling of each feature: offset and factor, (d,) float64.

    kind: "minmax" (to 0..1), "maxabs" (to -1..1) or "standard" (mean 0, variance 1).
    """

    kind: str
    offset: F64
    factor: F64

    def to_raw(self, w: F64, b: float | F64) -> tuple[F64, float | F64]:
        """Return the weights (.., d) and bias for raw features that are equivalent to (w, b) for scaled features."""
        with np.errstate(over="ignore", invalid="ignore"):  # Scores that are not finite are rejected later.
            raw = w * self.factor
            return raw, b - raw @ self.offset

    def from_raw(self, w: F64, b: float | F64) -> tuple[F64, float | F64]:
        """Return the weights (.., d) and bias for scaled features that are equivalent to (w, b) for raw features."""
        with np.errstate(over="ignore", invalid="ignore"):
            return w / self.factor, b + w @ self.offset


@dataclass
class FeatureStatistics:
    """The minimum, maximum, sum, sum of squares and number of the stored values of each feature, (d,) each.

    Rows are added in parts. The zeros that sparse rows do not store are taken into account at the end.
    """

    low: F64
    high: F64
    total: F64
    squares: F64
    stored: F64

    @classmethod
    def start(cls) -> FeatureStatistics:
        """Return the statistics of no rows and no features."""
        return cls(*(np.empty(0) for _ in range(5)))

    def grow(self, n_features: int) -> None:
        """Extend the statistics to n_features features."""
        more = n_features - len(self.low)
        if more > 0:
            for (name, part), first in zip(vars(self).items(), (np.inf, -np.inf, 0.0, 0.0, 0.0), strict=True):
                setattr(self, name, np.append(part, np.full(more, first)))

    def add(self, X: Matrix, n_features: int) -> None:
        """Add rows. n_features: the number of features in all rows so far."""
        self.grow(n_features)
        if isinstance(X, CsrRows):
            columns, values, n = X.indices, X.data.astype(np.float64), len(self.low)
            np.minimum.at(self.low, columns, values)
            np.maximum.at(self.high, columns, values)
            self.total += np.bincount(columns, values, n)
            self.squares += np.bincount(columns, values * values, n)
            self.stored += np.bincount(columns, minlength=n)
        elif len(X):
            wide = X.astype(np.float64)
            self.low = np.minimum(self.low, wide.min(axis=0))
            self.high = np.maximum(self.high, wide.max(axis=0))
            self.total += wide.sum(axis=0)
            self.squares += (wide * wide).sum(axis=0)
            self.stored += len(X)

    def keep_stored(self) -> StoredFeatures:
        """Return the statistics of the features that have stored values."""
        features = np.flatnonzero(self.stored)
        return StoredFeatures(features, FeatureStatistics(*(part[features] for part in vars(self).values())))

    def merge(self, other: StoredFeatures) -> None:
        """Add the statistics of other rows."""
        at, more = other
        self.grow(int(at.max(initial=-1)) + 1)
        self.low[at], self.high[at] = np.minimum(self.low[at], more.low), np.maximum(self.high[at], more.high)
        for mine, its in ((self.total, more.total), (self.squares, more.squares), (self.stored, more.stored)):
            mine[at] += its

    def scaling(self, kind: str, n_rows: int, anchor: F64 | None = None) -> Scaling:
        """Return the scaling of this kind for `n_rows` rows; a constant feature keeps the factor 1.

        anchor (d,): the values that were subtracted from the features before they were added. A value that is not
        stored then counts as -anchor.
        """
        n_zeros, zero = n_rows - self.stored, np.zeros(len(self.stored)) if anchor is None else -anchor
        low = np.where(n_zeros > 0, np.minimum(self.low, zero), self.low)
        high = np.where(n_zeros > 0, np.maximum(self.high, zero), self.high)
        total, squares = self.total + n_zeros * zero, self.squares + n_zeros * zero**2
        offset = np.zeros_like(low)
        if kind == "minmax":
            offset, spread = low, high - low
        elif kind == "maxabs":
            spread = np.maximum(np.abs(low), np.abs(high))
        elif kind == "standard":
            offset = total / n_rows
            variance = np.where(high > low, squares / n_rows - offset**2, 0.0)  # else only rounding
            spread = np.sqrt(np.maximum(variance, 0.0))
        else:
            raise InputError(f"scale {kind!r}: choose from {', '.join(KINDS)}")
        if anchor is not None:
            low, high, offset = low + anchor, high + anchor, offset + anchor
        negligible = spread <= 1e-12 * np.maximum(np.abs(low), np.abs(high))
        return Scaling(kind, offset, np.where(negligible, 1.0, 1.0 / np.where(negligible, 1.0, spread)))


class StoredFeatures(NamedTuple):
    """The statistics of the features with stored values in a group of rows. features: the numbers of these features."""

    features: I64
    statistics: FeatureStatistics


def require_width(n_features: int, d: int, sparse: bool = False) -> None:
    """Raise InputError for rows with more features than the d of a model, and for dense rows with fewer."""
    if n_features > d or (n_features < d and not sparse):
        found, expected = (say_count(n, "feature") for n in (n_features, d))
        raise InputError(f"the rows have {found}, but the model was trained on {expected}")


def make_rescaling(
    n_features: int, scaling: Scaling | None, sparse: bool, d: int, wanted: Scaling | None
) -> Callable[[Matrix], Matrix]:
    """Return a function that converts rows of n_features features to rows of d features with another scaling.

    The rows are scaled by `scaling` before and by `wanted` afterwards (None: raw). Raises InputError for rows with more
    than d features, and for dense rows with fewer.
    """
    require_width(n_features, d, sparse)
    change = None if same_scaling(scaling, wanted) else _find_change(scaling, wanted, d)

    def prepare(X: Matrix) -> Matrix:
        rows = X.keep_features(d) if isinstance(X, CsrRows) else X
        with np.errstate(over="ignore", invalid="ignore"):  # _rescale rejects overflow.
            return rows if change is None else _rescale(rows, *change)

    return prepare


def same_scaling(left: Scaling | None, right: Scaling | None) -> bool:
    """Return whether two scalings (None: raw) are the same."""
    if left is None or right is None:
        return left is right
    same = np.array_equal(left.offset, right.offset) and np.array_equal(left.factor, right.factor)
    return left.kind == right.kind and same


def _find_change(rows: Scaling | None, model: Scaling | None, d: int) -> tuple[F64, F64]:
    """Return the factor and shift, (d,) each, that convert rows scaled by `rows` to the scaling `model` (None: raw)."""
    factor, shift = np.ones(d), np.zeros(d)
    if rows is not None:
        known = min(d, len(rows.factor))
        factor[:known], shift[:known] = 1.0 / rows.factor[:known], rows.offset[:known]
    if model is not None:
        with np.errstate(over="ignore", invalid="ignore"):  # Rows that are not finite are rejected later.
            factor, shift = factor * model.factor, (shift - model.offset) * model.factor
    return factor, shift


def _rescale(X: Matrix, factor: F64, shift: F64) -> Matrix:
    """Return x * factor + shift; the result is dense if zeros become nonzero."""
    if isinstance(X, CsrRows) and not shift.any():
        return CsrRows(round_rows(X.data * factor[X.indices], SCALED), X.indices, X.indptr, X.n_features)
    return round_rows(to_dense(X) * factor + shift, SCALED)


def round_to_float32(values: Any) -> npt.NDArray[np.float32]:
    """Copy values to float32. Values beyond its range become infinite."""
    with np.errstate(over="ignore", under="ignore"):
        return np.array(values, dtype=np.float32, order="C")


def look_at_features(
    X: Any, names: tuple[str, ...] | None, may_move: bool, name: str, anchor: F64 | None = None
) -> F64 | None:
    """Return the anchor of each column, (d,), given the first piece of rows; None if no column needs one.

    may_move: whether the scaling may subtract an offset from the features. anchor: the anchors of the dataset to which
    the rows are appended, if any. Logs a warning if float32 merges values of a column.
    """
    if X.dtype == np.float32 or not X.size:
        return anchor
    is_dense = isinstance(X, np.ndarray)
    n_rows = max(1, min(LOOKED_AT_ROWS, LOOKED_AT_VALUES // (X.shape[1] if is_dense else X.nnz // X.shape[0] + 1)))
    if anchor is None and may_move:
        anchor = _find_anchor(X[:n_rows])
    _warn_of_merged(X, n_rows, anchor, names, name)
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
