"""The scaling of features, which a dataset stores and a model carries.

    x_scaled = (x - offset) * factor        per feature

A linear model of scaled features is a linear model of raw ones: w.x_scaled = (w * factor).x - (w * factor).offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.errors import InputError, say_count
from streamsvm.numeric.overflow import round_rows
from streamsvm.numeric.rows import F32, F64, I64, CsrRows, Matrix, keep_features, to_dense

SCALED = "some rows, scaled as those that the model was trained on,"
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
        """Return weights (.., d) and bias that score raw features as (w, b) score scaled features."""
        with np.errstate(over="ignore", invalid="ignore"):  # scores that are not finite are refused
            raw = w * self.factor
            return raw, b - raw @ self.offset

    def from_raw(self, w: F64, b: float | F64) -> tuple[F64, float | F64]:
        """Return weights (.., d) and bias that score scaled features as (w, b) score raw features."""
        with np.errstate(over="ignore", invalid="ignore"):
            return w / self.factor, b + w @ self.offset


@dataclass
class FeatureStatistics:
    """Minimum, maximum, sum, sum of squares and number of the stored values of each feature, (d,) each.

    They are gathered piece by piece. The zeros that sparse rows do not store are taken into account at the end.
    """

    low: F64
    high: F64
    total: F64
    squares: F64
    stored: F64

    @classmethod
    def start(cls) -> FeatureStatistics:
        """Return the statistics of no rows."""
        return cls(np.empty(0), np.empty(0), np.empty(0), np.empty(0), np.empty(0))

    def grow(self, n_features: int) -> None:
        """Make room for features that have not been seen before."""
        more = n_features - len(self.low)
        if more > 0:
            self.low = np.concatenate((self.low, np.full(more, np.inf)))
            self.high = np.concatenate((self.high, np.full(more, -np.inf)))
            self.total, self.squares, self.stored = (
                np.concatenate((part, np.zeros(more))) for part in (self.total, self.squares, self.stored)
            )

    def add_values(self, columns: np.ndarray, values: F64) -> None:
        """Add single values, each of which belongs to one of `columns`."""
        np.minimum.at(self.low, columns, values)
        np.maximum.at(self.high, columns, values)
        n = len(self.low)
        self.total += np.bincount(columns, values, n)
        self.squares += np.bincount(columns, values * values, n)
        self.stored += np.bincount(columns, minlength=n)

    def add_dense(self, X: F64) -> None:
        """Add dense rows."""
        if not len(X):
            return
        self.low = np.minimum(self.low, X.min(axis=0))
        self.high = np.maximum(self.high, X.max(axis=0))
        self.total += X.sum(axis=0)
        self.squares += (X * X).sum(axis=0)
        self.stored += len(X)

    def keep_stored(self) -> StoredFeatures:
        """Return the statistics of the features that have stored values."""
        features = np.flatnonzero(self.stored)
        parts = (self.low, self.high, self.total, self.squares, self.stored)
        return StoredFeatures(features, FeatureStatistics(*(part[features] for part in parts)))

    def merge(self, other: StoredFeatures) -> None:
        """Add the statistics of other rows."""
        at, more = other
        self.grow(int(at.max(initial=-1)) + 1)
        self.low[at], self.high[at] = np.minimum(self.low[at], more.low), np.maximum(self.high[at], more.high)
        for mine, its in ((self.total, more.total), (self.squares, more.squares), (self.stored, more.stored)):
            mine[at] += its

    def scaling(self, kind: str, n_rows: int, anchor: F64 | None = None) -> Scaling:
        """Return the scaling of a kind for `n_rows` rows. A constant feature keeps the factor 1.

        anchor (d,): what was subtracted from the features of dense rows before.
        """
        some_zero = self.stored < n_rows
        low, high = (
            np.where(some_zero, np.minimum(self.low, 0.0), self.low),
            np.where(some_zero, np.maximum(self.high, 0.0), self.high),
        )
        offset = np.zeros_like(low)
        if kind == "minmax":
            offset, spread = low, high - low
        elif kind == "maxabs":
            spread = np.maximum(np.abs(low), np.abs(high))
        elif kind == "standard":
            offset = self.total / n_rows
            variance = np.where(high > low, self.squares / n_rows - offset**2, 0.0)  # otherwise rounding alone
            spread = np.sqrt(np.maximum(variance, 0.0))
        else:
            raise InputError(f"scale {kind!r}: choose from {', '.join(KINDS)}")
        if anchor is not None:
            low, high, offset = low + anchor, high + anchor, offset + anchor
        negligible = spread <= 1e-12 * np.maximum(np.abs(low), np.abs(high))
        return Scaling(kind, offset, np.where(negligible, 1.0, 1.0 / np.where(negligible, 1.0, spread)))


class StoredFeatures(NamedTuple):
    """Statistics of some rows, of which few of many features may have stored values. features: their numbers."""

    features: I64
    statistics: FeatureStatistics


def make_rescaling(
    n_features: int, scaling: Scaling | None, sparse: bool, d: int, wanted: Scaling | None
) -> Callable[[Matrix], Matrix]:
    """Return a function that turns rows of `n_features` features with one scaling into rows of d with another.

    The rows are scaled by `scaling` before and by `wanted` afterwards (None: raw). Sparse rows may have fewer features,
    or more, which are dropped; dense rows must have d features, or InputError is raised.
    """
    if not sparse and n_features != d:
        raise InputError(f"rows of {say_count(n_features, 'feature')}; the model was trained on {d:,}")
    change = None if same_scaling(scaling, wanted) else _find_change(scaling, wanted, d)

    def prepare(X: Matrix) -> Matrix:
        rows = keep_features(X, d) if isinstance(X, CsrRows) else X
        with np.errstate(over="ignore", invalid="ignore"):  # the overflow is refused
            return rows if change is None else _rescale(rows, *change)

    return prepare


def same_scaling(left: Scaling | None, right: Scaling | None) -> bool:
    """Tell whether two scalings (None: raw) are the same."""
    if left is None or right is None:
        return left is right
    same = np.array_equal(left.offset, right.offset) and np.array_equal(left.factor, right.factor)
    return left.kind == right.kind and same


def _find_change(rows: Scaling | None, model: Scaling | None, d: int) -> tuple[F64, F64]:
    """Return factor and shift, (d,) each, that turn rows scaled by `rows` into rows scaled by `model` (None: raw)."""
    factor, shift = np.ones(d), np.zeros(d)
    if rows is not None:
        known = min(d, len(rows.factor))
        factor[:known], shift[:known] = 1.0 / rows.factor[:known], rows.offset[:known]
    if model is not None:
        with np.errstate(over="ignore", invalid="ignore"):  # rows that are not finite are refused
            factor, shift = factor * model.factor, (shift - model.offset) * model.factor
    return factor, shift


def _rescale(X: Matrix, factor: F64, shift: F64) -> Matrix:
    """Return x * factor + shift. The result is dense if zeros do not stay zeros."""
    if isinstance(X, CsrRows) and not shift.any():
        return CsrRows(round_rows(X.data * factor[X.indices], SCALED), X.indices, X.indptr, X.n_features)
    dense: F32 = to_dense(X) if isinstance(X, CsrRows) else X
    return round_rows(dense * factor + shift, SCALED)
