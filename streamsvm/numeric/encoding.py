"""The encoding of a table: how its columns become features. A dataset records it, and a model carries it.

    number    x                                    one feature; a missing value is `fill`
    date      days since 1970-01-01                one feature; a missing value is `fill`
    one_hot   1 for the category of the row        one feature for each category, in sorted order
    hash      +1 or -1 at the hash of the value    2^bits features that all hashed columns share (numeric.murmur_hash)

A missing or unknown category is no category: all of its features are 0. After its features a column may have an
indicator, a feature that is 1 where the value is missing.

Readers turn a table into codes, (rows, columns) float32: numbers and days as they are, the number of the category, and
for hashed values the number of the feature, counted from 1, with the sign of the value. nan is a missing value. All
these numbers are whole numbers below 2^24, or are rounded to float32 once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.canonical import make_canonical_rows
from streamsvm.numeric.rows import F64, CsrRows, Matrix

KINDS = ("number", "date", "one_hot", "hash")
MISSING = ("mean", "zero", "indicator")
MOST_BITS = 22  # codes of more features would not be whole numbers of float32
MOST_CATEGORIES = 20_000  # of all columns: they are held in memory, and recorded
MOST_CHARACTERS = 1000  # of a category
MOST_FILL = float(np.finfo(np.float32).max)
UNKNOWN = -1.0  # the code of a category that is not recorded


@dataclass(frozen=True)
class Column:
    """A column of a table, and how it becomes features.

    Attributes
    ----------
    name : str
    kind : {"number", "date", "one_hot", "hash"}
    fill : float
        What stands for a missing number or date.
    indicator : bool
        Whether a feature tells which values are missing.
    categories : tuple of str
        The categories of a column that is one_hot, sorted.
    """

    name: str
    kind: str
    fill: float = 0.0
    indicator: bool = False
    categories: tuple[str, ...] = ()

    def name_features(self) -> list[str]:
        """Return the names of its features; a hashed column has none of its own."""
        own = [f"{self.name}={category}" for category in self.categories]
        own = own if self.kind in ("one_hot", "hash") else [self.name]
        return [*own, *([f"{self.name} missing"] if self.indicator else [])]


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become features.

    Attributes
    ----------
    columns : tuple of Column
        The columns in the order of their features.
    missing : {"mean", "zero", "indicator"} or None
        What becomes of missing values; None: they are refused.
    bits : int or None
        The features of hashed columns are 2^bits.
    seed : int
        The seed of the hash.
    index : str or None
        The column that names the rows, which is no feature.
    """

    columns: tuple[Column, ...]
    missing: str | None = None
    bits: int | None = None
    seed: int = 0
    index: str | None = None

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns of the table."""
        return tuple(column.name for column in self.columns)

    @property
    def n_hashed(self) -> int:
        """Number of the features that hashed columns share, which are the last ones."""
        return 0 if self.bits is None else 1 << self.bits

    @property
    def n_features(self) -> int:
        """Number of features."""
        return sum(len(column.name_features()) for column in self.columns) + self.n_hashed

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features; None if some are hashed, which have no names."""
        if self.bits is not None:
            return None
        return tuple(name for column in self.columns for name in column.name_features())

    @property
    def is_plain(self) -> bool:
        """Whether the features are the numbers of a table as they are, so that there is nothing to record."""
        return self.missing is None and self.index is None and all(column.kind == "number" for column in self.columns)

    @property
    def is_sparse(self) -> bool:
        """Whether most features are zero as a rule, so that rows are encoded as sparse rows."""
        return any(column.kind in ("one_hot", "hash") for column in self.columns)

    def encode(self, codes: F64) -> Matrix:
        """Return the features of rows, (rows, n_features), given the codes of their columns, (rows, columns)."""
        places, values = (np.stack(parts, axis=1) for parts in zip(*self._list_items(codes), strict=True))
        if not self.is_sparse:
            return np.ascontiguousarray(values)
        values = values.astype(np.float32)
        kept = values != 0
        indptr = np.concatenate(([0], np.cumsum(kept.sum(axis=1)))).astype(np.int64)
        rows = CsrRows(values[kept], places[kept].astype(np.int32), indptr, self.n_features)
        return rows if self.bits is None else make_canonical_rows(rows)

    def _list_items(self, codes: F64) -> Iterator[tuple[npt.NDArray[np.int64], F64]]:
        """Yield the places and values of some features of all rows, of which each row has one that may not be 0."""
        first, none = 0, np.zeros(len(codes), np.int64)
        for column, own in zip(self.columns, codes.T, strict=True):
            missing = np.isnan(own)
            known = np.where(missing, column.fill if column.kind in ("number", "date") else UNKNOWN, own)
            if column.kind == "one_hot":
                yield first + np.maximum(known, 0).astype(np.int64), (known >= 0).astype(np.float32)
            elif column.kind == "hash":
                at = self.n_features - self.n_hashed + np.abs(known).astype(np.int64) - 1
                yield at, np.where(missing, 0, np.sign(known)).astype(np.float32)
            else:
                yield none + first, known
            first += len(column.name_features())
            if column.indicator:
                yield none + first - 1, missing.astype(np.float32)

    def as_json(self) -> dict[str, Any]:
        """Return the encoding as it is recorded."""
        columns = [{**asdict(column), "categories": list(column.categories)} for column in self.columns]
        return {**asdict(self), "columns": columns}


def read_encoding(about: Any) -> Encoding:
    """Return an encoding that was recorded. Raises ValueError for what is none."""
    _need(isinstance(about, dict) and set(about) == set(Encoding.__dataclass_fields__), "its parts")
    found = about["columns"]
    _need(isinstance(found, list) and len(found) > 0, "columns")
    columns = tuple(map(_read_column, found))
    _need(len({column.name for column in columns}) == len(columns), "names of columns")
    _need(sum(len(column.categories) for column in columns) <= MOST_CATEGORIES, "categories")
    missing, bits, seed, index = (about[name] for name in ("missing", "bits", "seed", "index"))
    _need(missing is None or missing in MISSING, "missing")
    _need(bits is None or (type(bits) is int and 1 <= bits <= MOST_BITS), "bits")
    _need(bits is not None or all(column.kind != "hash" for column in columns), "bits")
    _need(type(seed) is int and 0 <= seed < 1 << 32, "seed")
    _need(index is None or isinstance(index, str), "index")
    return Encoding(columns, missing, bits, seed, index)


def _read_column(about: Any) -> Column:
    _need(isinstance(about, dict) and set(about) == set(Column.__dataclass_fields__), "parts of a column")
    name, kind, fill, indicator, found = (about[part] for part in Column.__dataclass_fields__)
    _need(isinstance(name, str) and kind in KINDS, "name and kind of a column")
    _need(type(fill) in (int, float) and math.isfinite(fill) and abs(fill) <= MOST_FILL, "fill")
    _need(isinstance(indicator, bool), "indicator")
    _need(isinstance(found, list) and all(isinstance(each, str) for each in found), "categories")
    _need(kind == "one_hot" or not found, "categories")
    _need(all(one < other for one, other in pairwise(found)), "categories")
    return Column(name, kind, float(fill), indicator, tuple(found))


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"encoding: {what} are not those of an encoding")
