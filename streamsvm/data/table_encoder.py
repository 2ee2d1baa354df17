"""The encoder of a table, which finds out how its columns become features, or encodes rows in a way that is known.

Of a new table, the first rows decide whether a column is of numbers, dates or text. The categories, the means and the
columns with missing values are known when all rows are read: until then the codes of the rows are set aside in a
scratch file (data.encoded_rows). Where the encoding is known, as that of a model, rows are encoded as they come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streamsvm.data.folders import INTEGER
from streamsvm.data.odd_texts import advise_on_table, explain_kind, explain_text
from streamsvm.data.table_values import (
    find_kind,
    has_gaps,
    is_blank,
    list_words,
    read_dates,
    read_hashes,
    read_numbers,
    read_words,
)
from streamsvm.data.tables import AUTO, Columns, TableLayout, find_column, list_near
from streamsvm.data.values import FOR_MISSING, Place, show_text
from streamsvm.errors import InputError, NeedsOptionError, say_count
from streamsvm.numeric.encoding import MOST_CATEGORIES, UNKNOWN, Column, Encoding
from streamsvm.numeric.rows import F64, I64

LOGGER = logging.getLogger("streamsvm")
SEED = 0  # of the hash
MANY_CATEGORIES = 100  # fewer may well be as many as there are rows

Places = Callable[[int], Place]  # returns the places of the values of the k-th feature column
FirstRows = Sequence[tuple[Sequence[Any], Places]]  # pieces of the columns of the first rows


class Codes(NamedTuple):
    """The codes of some rows, (rows, columns); of a column that is one_hot they are numbers of its own `texts`."""

    X: F64
    texts: dict[int, list[str]]


class PieceStatistics(NamedTuple):
    """What a piece of rows adds to the statistics of a table.

    missing, sums: of the missing values of each column, and of the known ones. texts: the categories of each column
    that is one_hot, which the rows before do not have, in the order of their numbers.
    """

    n_rows: int
    missing: I64
    sums: F64
    texts: dict[int, list[str]]


@dataclass
class TableEncoder:
    """Turns columns of Arrow into codes, and codes into features.

    asked: what the user asked for, and the encoding, if it is known. names, kinds: of the columns, once the first rows
    have decided them. known: the number of each category, by column. unknown: the rows with categories that are not
    known, by column. sums, missing: of the known values of each column, and of its missing ones; n_rows: of all rows.
    pieces: the statistics of each piece, where others join them; None where nobody does.
    """

    asked: Columns
    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    known: dict[int, dict[str, int]] = field(default_factory=dict)
    unknown: dict[int, int] = field(default_factory=dict)
    sums: F64 = field(default_factory=lambda: np.zeros(0))
    missing: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    n_rows: int = 0
    pieces: list[PieceStatistics] | None = None

    @property
    def is_known(self) -> bool:
        """Whether the encoding does not depend on the rows to come."""
        return self.asked.encoding is not None or ("one_hot" not in self.kinds and self.asked.missing in (None, "zero"))

    @property
    def is_sparse(self) -> bool:
        """Whether the encoding makes sparse rows."""
        return "one_hot" in self.kinds or "hash" in self.kinds

    def start_anew(self) -> TableEncoder:
        """Return an encoder of the same kinds of columns that has seen no rows, and keeps the statistics of pieces."""
        known: dict[int, dict[str, int]] = {k: {} for k in self.known}
        n_columns = len(self.names)
        zeros = np.zeros(n_columns), np.zeros(n_columns, np.int64)
        return TableEncoder(self.asked, self.names, self.kinds, known, {}, *zeros, pieces=[])

    def settle(self, layout: TableLayout, first: FirstRows) -> None:
        """Decide the kinds of the columns by the first rows. InputError for text that is to become nothing."""
        self.names = layout.feature_names
        self.sums, self.missing = np.zeros(len(self.names)), np.zeros(len(self.names), np.int64)
        encoding = self.asked.encoding
        if encoding is not None:
            self.kinds = tuple(column.kind for column in encoding.columns)
            columns = dict(enumerate(encoding.columns))
            self.known = {k: {text: i for i, text in enumerate(each.categories)} for k, each in columns.items()}
            return
        chosen = set()
        for name in () if self.asked.one_hot == AUTO else self.asked.one_hot:
            j = find_column(name, layout.names)
            if layout.kinds.get(j, "text") != "text":
                raise InputError(f"{layout.where}: column {name!r}: --one-hot and --{layout.kinds[j]} both name it")
            if j not in layout.features:
                near = list_near(name, layout.feature_names)
                raise InputError(
                    f"{layout.where}: column {name!r}, which is to be one-hot, is no feature of the table; {near}"
                )
            chosen.add(layout.features.index(j))
        of_folders = {j: "number" if kind == INTEGER else kind for j, (kind, _) in layout.folders.items()}
        named = [layout.kinds.get(j) or of_folders.get(j) for j in layout.features]
        found = ["one_hot" if k in chosen else self._choose(k, kind, first) for k, kind in enumerate(named)]
        if "text" in found:
            self._refuse_texts(found, first)
        self.kinds, self.known = tuple(found), {k: {} for k, kind in enumerate(found) if kind == "one_hot"}

    def _refuse_texts(self, kinds: Sequence[str], first: FirstRows) -> None:
        """Raise InputError for the first text in a column that is to become nothing, and tell of missing values."""
        readable = [kind if kind in ("number", "date") else "text" for kind in kinds]
        texts = [name for name, kind in zip(self.names, kinds, strict=True) if kind == "text"]
        gaps = [
            self.names[k]
            for k, kind in enumerate(readable)
            if self.asked.missing is None and any(has_gaps(arrays[k], kind) for arrays, _ in first)
        ]
        k, advice = kinds.index("text"), advise_on_table(texts, gaps)
        for arrays, places in first:
            read_numbers(arrays[k], places(k), self.asked.decimal, advice)
        raise NeedsOptionError(f"{first[0][1](k)(0)}: a column of text; {advice}")

    def _choose(self, k: int, named: str | None, first: FirstRows) -> str:
        """Return what becomes of a column. named: its kind, if the user names one."""
        known = [arrays[k] for arrays, _ in first if named is None and not is_blank(arrays[k])]
        found = {find_kind(array, self.asked.decimal) for array in known}
        kind = named or (found.pop() if len(found) == 1 else "text" if found else "number")
        if kind != "text":
            return kind
        if named is None:
            self._refuse_odd(k, first)
        if self.asked.one_hot == AUTO:
            return "one_hot"
        return "text" if self.asked.hash_bits is None else "hash"

    def _refuse_odd(self, k: int, first: FirstRows) -> None:
        """Raise InputError for a column that would become categories, but whose texts seem to be numbers or dates."""
        if self.asked.one_hot != AUTO and self.asked.hash_bits is None:
            return
        words = {word: None for arrays, _ in first for word in list_words(arrays[k])}
        if odd := explain_text(words, self.asked.decimal):
            shown = next(word for word in words if explain_text([word], self.asked.decimal))
            place, i = next(
                (places(k), i) for arrays, places in first for i, each in enumerate(arrays[k]) if each.as_py() == shown
            )
            raise NeedsOptionError(
                f"{place(i)}: {show_text(shown)!r} and all others seem to be {odd}; --one-hot "
                f"{show_text(self.names[k])} takes the column as categories all the same"
            )

    def read(self, arrays: Sequence[Any], places: Places) -> Codes:
        """Return the codes of some rows. Several threads may read at once. Raises InputError for a bad value."""
        X = np.empty((len(arrays[0]), len(arrays)))
        texts, encoding = dict[int, list[str]](), self.asked.encoding
        if not len(X):  # perhaps before the first rows
            return Codes(X, texts)
        for k, (array, kind) in enumerate(zip(arrays, self.kinds, strict=True)):
            if kind == "one_hot":
                texts[k], X[:, k] = read_words(array, places(k))
            elif kind == "hash":
                X[:, k] = read_hashes(array, self.names[k], self.bits, self.seed)
            elif kind == "date":
                X[:, k] = read_dates(array, places(k), explain_kind(kind, encoding is not None))
            else:
                remedy = explain_kind(kind, encoding is not None)
                X[:, k] = read_numbers(array, places(k), self.asked.decimal, remedy)
        if (self.asked.missing if encoding is None else encoding.missing) is None:
            missing = np.isnan(X)
            if missing.any():
                i, k = divmod(int(np.argmax(missing)), X.shape[1])
                raise NeedsOptionError(f"{places(k)(i)}: missing value; {FOR_MISSING}")
        return Codes(X, texts)

    @property
    def bits(self) -> int:
        """The features of hashed columns are 2^bits."""
        bits = self.asked.hash_bits if self.asked.encoding is None else self.asked.encoding.bits
        assert bits is not None
        return bits

    @property
    def seed(self) -> int:
        """The seed of the hash."""
        return SEED if self.asked.encoding is None else self.asked.encoding.seed

    def take_note(self, codes: Codes) -> F64:
        """Return codes whose categories have their numbers among all, and take note of them. In the order of rows."""
        X = codes.X
        if not len(X):
            return X
        missing = np.isnan(X)
        sums = np.where(missing, 0.0, X.astype(np.float32).astype(np.float64)).sum(axis=0)
        texts = {k: [text for text in each if text not in self.known[k]] for k, each in codes.texts.items()}
        piece = PieceStatistics(len(X), missing.sum(axis=0), sums, texts)
        if self.pieces is not None:
            self.pieces.append(piece)
        self.join(piece)
        for k, each in codes.texts.items():
            own = np.array([*(self.known[k].get(text, UNKNOWN) for text in each), np.nan], np.float32)
            X[:, k] = own[np.where(missing[:, k], len(each), X[:, k]).astype(np.int64)]
            self.unknown[k] = self.unknown.get(k, 0) + int(np.count_nonzero(X[:, k] == UNKNOWN))
        return X

    def join(self, piece: PieceStatistics) -> None:
        """Take note of a piece, in the order of rows. Raises InputError for too many categories."""
        for k, texts in piece.texts.items():
            for text in texts:
                self._number(k, text)
        self.missing += piece.missing
        self.sums += piece.sums
        self.n_rows += piece.n_rows

    def _number(self, k: int, text: str) -> None:
        """Give a category of a new table its number; the categories of a known encoding have their numbers already."""
        known = self.known[k]
        if self.asked.encoding is not None or text in known:
            return
        if sum(map(len, self.known.values())) == MOST_CATEGORIES:
            most = max(self.known, key=lambda k: len(self.known[k]))
            raise NeedsOptionError(
                f"the columns of text have more than {MOST_CATEGORIES:,} different values, most of them "
                f"{show_text(self.names[most])}: --hash BITS makes features of them without a list, --drop "
                f"{show_text(self.names[most])} leaves the column out"
            )
        known[text] = len(known)

    def finish(self) -> Encoding:
        """Return the encoding, when all rows were read."""
        if self.asked.encoding is not None:
            return self.asked.encoding
        columns = []
        for k, (name, kind) in enumerate(zip(self.names, self.kinds, strict=True)):
            n_known, fill = self.n_rows - int(self.missing[k]), 0.0
            if self.asked.missing == "mean" and n_known and kind in ("number", "date"):
                fill = float(self.sums[k] / n_known)
            indicator = self.asked.missing == "indicator" and bool(self.missing[k])
            columns.append(Column(name, kind, fill, indicator, tuple(sorted(self.known.get(k, ())))))
        bits = self.asked.hash_bits if "hash" in self.kinds else None
        return Encoding(tuple(columns), self.asked.missing, bits, SEED, self.asked.index)

    def tell_many(self, where: str) -> None:
        """Tell which columns have nearly as many categories as there are rows, as names of the rows do."""
        for k, known in self.known.items():
            if len(known) > max(MANY_CATEGORIES, self.n_rows // 2):
                name = show_text(self.names[k])
                LOGGER.warning(
                    f"{where}: column {name} has {len(known):,} categories in {say_count(self.n_rows, 'row')}, each of "
                    f"which becomes a feature; if it names the rows, say --index {name}, or --drop {name}"
                )

    def tell_unknown(self, where: str) -> None:
        """Tell how many rows had categories that are not known."""
        for k, count in self.unknown.items():
            if count and self.asked.encoding is not None:
                LOGGER.warning(
                    f"{where}: {say_count(count, 'row')} with categories in column {show_text(self.names[k])} that the "
                    "training rows do not have; they count as none"
                )
