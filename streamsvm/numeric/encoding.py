"""The encoding of a table: the mapping from its columns to features, stored in datasets and models.

    number    x                                    one feature; a missing value is `fill`
    date      days since 1970-01-01                one feature; a missing value is `fill`
    one_hot   1 for the category of the row        one feature for each category, in sorted order
    hash      +1 or -1 at the hash of the value    2^bits features that all hashed columns share

If a category is missing or unknown, all features of its column are 0. After its other features, a column may have an
indicator, a feature that is 1 if the value is missing.

Readers convert a table to codes, (rows, columns) float32. The code of a number or date is the number itself, or the
days; the code of a category is its place; the code of a hashed value is the number of its feature, counted from 1, with
the sign of its hash. NaN is a missing value. Codes are integers below 2^24, or are rounded to float32 once.

The hash is the MurmurHash3 of scikit-learn's FeatureHasher (32 bits, x86) of the UTF-8 bytes "COLUMN=VALUE". The
feature is the absolute value of the hash modulo the number of features, and its value is 1 with the sign of the hash.
Because of the signs, the products of two rows are correct in expectation, in spite of collisions.

Source: A. Appleby, MurmurHash3_x86_32 (public domain); K. Weinberger and others, "Feature Hashing for Large Scale
Multitask Learning", ICML 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit

from streamsvm.numeric.rows import F64, I32, I64, U8, CsrRows, Matrix, make_canonical_rows

KINDS = ("number", "date", "one_hot", "hash")
MISSING = ("mean", "zero", "indicator")
MOST_BITS = 22  # Codes of more features would not be exact in float32.
MOST_CATEGORIES = 20_000  # maximum number of categories of all columns together, which are held in memory and recorded
MOST_CHARACTERS = 1000  # maximum number of characters in a category
MOST_FILL = float(np.finfo(np.float32).max)
UNKNOWN = -1.0  # the code of a category that the encoding does not have


@dataclass(frozen=True)
class Column:
    """A column of a table, and its mapping to features.

    Attributes
    ----------
    name : str
    kind : {"number", "date", "one_hot", "hash"}
    fill : float
        The value that replaces a missing number or date.
    indicator : bool
        Whether an additional feature marks missing values.
    categories : tuple of str
        The categories of a one_hot column, sorted.
    """

    name: str
    kind: str
    fill: float = 0.0
    indicator: bool = False
    categories: tuple[str, ...] = ()

    def name_features(self) -> list[str]:
        """Return the names of the column's features; a hashed column has only an indicator, if any."""
        own = [f"{self.name}={category}" for category in self.categories]
        own = own if self.kind in ("one_hot", "hash") else [self.name]
        return [*own, *([f"{self.name} missing"] if self.indicator else [])]


@dataclass(frozen=True)
class Encoding:
    """The mapping from the columns of a table to features.

    Attributes
    ----------
    columns : tuple of Column
        The columns in the order of their features.
    missing : {"mean", "zero", "indicator"} or None
        The treatment of missing values; None if they are rejected.
    bits : int or None
        The hashed columns share 2^bits features; None without hashed columns.
    seed : int
        The seed of the hash.
    index : str or None
        The column that names the rows, which is not a feature.
    """

    columns: tuple[Column, ...]
    missing: str | None = None
    bits: int | None = None
    seed: int = 0
    index: str | None = None

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def n_hashed(self) -> int:
        """The number of features that hashed columns share; these are the last features."""
        return 0 if self.bits is None else 1 << self.bits

    @property
    def n_features(self) -> int:
        """The number of features."""
        return sum(len(column.name_features()) for column in self.columns) + self.n_hashed

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features; None if some columns are hashed, since hashed features have no names."""
        if self.bits is not None:
            return None
        return tuple(name for column in self.columns for name in column.name_features())

    @property
    def is_plain(self) -> bool:
        """Whether the features are the unchanged numbers of the table, so that no encoding need be recorded."""
        return self.missing is None and self.index is None and all(column.kind == "number" for column in self.columns)

    @property
    def is_sparse(self) -> bool:
        """Whether rows are encoded as sparse rows, since one_hot and hash features are mostly zero."""
        return any(column.kind in ("one_hot", "hash") for column in self.columns)

    def encode(self, codes: F64) -> Matrix:
        """Return the features of rows, (rows, n_features), given the codes of their columns, (rows, columns)."""
        places, values = (np.stack(parts, axis=1) for parts in zip(*self._list_items(codes), strict=True))
        if not self.is_sparse:
            return np.ascontiguousarray(values)
        kept = values.astype(np.float32) != 0
        indptr = np.concatenate(([0], np.cumsum(kept.sum(axis=1)))).astype(np.int64)
        rows = CsrRows(values[kept], places[kept].astype(np.int32), indptr, self.n_features)
        return rows if self.bits is None else make_canonical_rows(rows)

    def _list_items(self, codes: F64) -> Iterator[tuple[I64, F64]]:
        """Yield one possibly nonzero feature per row, column by column: its place and its value, (rows,) each."""
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
        """Return the encoding as JSON, the form in which it is recorded."""
        columns = [{**asdict(column), "categories": list(column.categories)} for column in self.columns]
        return {**asdict(self), "columns": columns}


def read_encoding(about: Any) -> Encoding:
    """Return an encoding from its recorded form. Raises ValueError if it is invalid."""
    _need(isinstance(about, dict) and set(about) == set(Encoding.__dataclass_fields__), "parts")
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


def is_syntax(about: Any) -> bool:
    """Return whether a part of a record may be the syntax of files (ingestion.readers.describe_syntax)."""
    if not isinstance(about, dict) or not isinstance(others := about.get("others", []), list):
        return False
    texts = [*others, *(value for name, value in about.items() if name not in ("others", "base"))]
    return bool(about.get("base", 0) == 0) and all(isinstance(text, str) for text in texts)


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"the encoding of the table has invalid {what}")


FIRST, SECOND = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
FIVE, ADDED = np.uint32(5), np.uint32(0xE6546B64)
MIXES = (np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35))


@njit(cache=True, nogil=True)
def hash_texts(prefix: U8, text: U8, limits: I32, seed: int) -> I32:
    """Return the signed hash of `prefix` + text[limits[i]:limits[i + 1]] for each i, (n,)."""
    n = limits.size - 1
    found, most = np.empty(n, np.int32), 0
    for i in range(n):
        most = max(most, limits[i + 1] - limits[i])
    key = np.empty(prefix.size + most, np.uint8)
    key[: prefix.size] = prefix
    for i in range(n):
        size = prefix.size + limits[i + 1] - limits[i]
        key[prefix.size : size] = text[limits[i] : limits[i + 1]]
        found[i] = np.int32(hash_bytes(key, size, seed))
    return found


@njit(cache=True, nogil=True)
def hash_bytes(key: U8, size: int, seed: int) -> np.uint32:
    """Return the hash of the first `size` bytes of a key."""
    state = np.uint32(seed)
    for at in range(0, size - 3, 4):
        block = np.uint32(key[at]) | np.uint32(key[at + 1]) << np.uint32(8)
        block |= np.uint32(key[at + 2]) << np.uint32(16) | np.uint32(key[at + 3]) << np.uint32(24)
        state = np.uint32(state ^ _scramble(np.uint32(block)))
        state = np.uint32(_rotate(state, 13) * FIVE + ADDED)
    tail = np.uint32(0)
    for k in range(size % 4):
        tail |= np.uint32(key[size - size % 4 + k]) << np.uint32(8 * k)
    state = np.uint32(state ^ _scramble(np.uint32(tail)) ^ np.uint32(size))
    state = np.uint32((state ^ (state >> np.uint32(16))) * MIXES[0])
    state = np.uint32((state ^ (state >> np.uint32(13))) * MIXES[1])
    return np.uint32(state ^ (state >> np.uint32(16)))


@njit(cache=True, nogil=True, inline="always")
def _scramble(block: np.uint32) -> np.uint32:
    return np.uint32(_rotate(np.uint32(block * FIRST), 15) * SECOND)


@njit(cache=True, nogil=True, inline="always")
def _rotate(value: np.uint32, bits: int) -> np.uint32:
    return np.uint32((value << np.uint32(bits)) | (value >> np.uint32(32 - bits)))
