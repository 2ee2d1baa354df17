"""The encoder of a table: it decides how columns become features, or applies a known encoding.

The first rows of a new table decide whether a column holds numbers, dates or text. The categories, the means, and the
set of columns with missing values are known only after all rows have been read. If the encoding is given, for example
by a model, rows are encoded as they arrive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamsvm.data.rows.source import SourceRows
from streamsvm.data.tables import checks
from streamsvm.data.tables.checks import Place, Vector
from streamsvm.data.tables.columns import AUTO, INTEGER, Columns, TableLayout, pyarrow
from streamsvm.numeric import encoding as encodings
from streamsvm.numeric.encoding import MOST_CATEGORIES, MOST_CHARACTERS, UNKNOWN, Column, Encoding
from streamsvm.numeric.rows import F32, F64, I64, CsrRows
from streamsvm.system.errors import InputError, NeedsOptionError, say_count

DATES = ("timestamp", "date")  # kinds of Arrow types
OF_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def read_column(column: Any, name: str, where: str) -> Any:
    """Return a column as an Arrow array of text, numbers or times, without a dictionary. InputError for other types."""
    if isinstance(column, pyarrow.ChunkedArray):
        column = column.combine_chunks()
    if is_any(column.type, "dictionary"):
        column = column.dictionary_decode()
    if is_text(column):
        return pyarrow.compute.utf8_trim_whitespace(column.cast("string"))
    if is_number(column.type) or is_any(column.type, *DATES):
        return column
    raise refuse_type(column.type, name, where)


def refuse_type(kind: Any, name: str, where: str) -> InputError:
    """Return the error for a column of an unsupported type, with the remedy."""
    remedy = ""
    if is_any(kind, "struct"):
        remedy = "Table.flatten() of pyarrow makes columns of it; or "
    elif is_any(kind, "list", "large_list", "fixed_size_list"):
        remedy = "streamsvm.ingest in Python takes lists of numbers, as pyarrow.parquet.read_table returns them; or "
    elif is_any(kind, "time", "duration"):
        remedy = "write it as a number, such as the seconds; or "
    why = f"{kind} is neither a number nor text nor a date: {remedy}omit it by --drop {name} (drop in Python)"
    return NeedsOptionError(f"{where}: column {name}: {why}")


def repeat_folder(kind: str, value: str | None, n_rows: int, read_as: str) -> Any:
    """Return the column named by a folder, with the same value in all rows.

    read_as: the kind that the user assigned to the column; "text" converts integers to text.
    """
    if kind == INTEGER and read_as != "text":
        return pyarrow.repeat(pyarrow.scalar(None if value is None else int(value), pyarrow.int64()), n_rows)
    return pyarrow.repeat(pyarrow.scalar(value or "", pyarrow.string()), n_rows)


def is_text(column: Any) -> bool:
    """Return whether a column holds text."""
    return is_any(column.type, "string", "large_string", "string_view")


def is_number(arrow_type: Any) -> bool:
    """Return whether an Arrow type is numeric; booleans count as 0 and 1."""
    return is_any(arrow_type, "boolean", "integer", "floating", "decimal", "null")


def is_any(arrow_type: Any, *kinds: str) -> bool:
    """Return whether an Arrow type is of one of the given kinds, such as "list"."""
    return any(getattr(pyarrow.types, f"is_{kind}")(arrow_type) for kind in kinds)


def read_labels(column: Any, place: Place, kind: str | None) -> Vector:
    """Return a column of labels: numbers if its type is numeric or the labels are targets, otherwise text.

    kind: see Columns.label_kind. Raises InputError for the first text that cannot be a label.
    """
    if kind != checks.TEXT and is_number(column.type):
        return _to_numpy(column)
    # As text, a duration would lose its unit, and a pandas period its calendar.
    if isinstance(column.type, pyarrow.BaseExtensionType) or is_any(column.type, "duration", "nested"):
        raise InputError(f"{place(0)}: a label is a {column.type}, neither a number nor text{checks.FOR_TYPE}")
    coded = column.cast("string").dictionary_encode()
    words = coded.dictionary.to_pylist()
    codes = coded.indices.fill_null(len(words)).to_numpy()
    checks.refuse_words(words, codes, place, partial(checks.find_label_fault, kind=kind))
    values = [checks.parse_number(word) for word in words] if kind == checks.TARGET else words
    found: Vector = np.array([*values, None], object)[codes]
    return found


def find_kind(column: Any, decimal: str | None = None, date_format: str | None = None) -> str:
    """Return the kind that fits all values of a column: "number", "date" or "text". The options: see Columns."""
    if not is_text(column):
        return "number" if is_number(column.type) else "date"
    if _parse_numbers(column, decimal)[0] is not None:
        return "number"
    return "date" if _parse_dates(column, date_format) is not None else "text"


def is_blank(column: Any) -> bool:
    """Return whether a column has only missing values, and a type (text or null) that leaves its kind open."""
    known = _without_missing(column) if is_text(column) else column
    return bool(known.null_count == len(known)) and (is_text(column) or str(column.type) == "null")


def has_gaps(column: Any, kind: str) -> bool:
    """Return whether a column has missing values. kind: how the column is read; it decides which cells are missing."""
    if kind not in ("number", "date"):
        return bool(_to_text(column).null_count)
    return bool((_without_missing(column) if is_text(column) else column).null_count)


def read_numbers(column: Any, place: Place, decimal: str | None, remedy: str) -> F64:
    """Return a column of numbers, NaN where missing. Raises InputError for other values.

    decimal: see Columns. remedy: the advice that the error gives.
    """
    if is_text(column):
        values, bad = _parse_numbers(column, decimal)
        if values is None:
            word = column[bad].as_py()
            odd = checks.explain_text([word], decimal)
            why = f"these seem to be {odd}" if odd else remedy
            raise NeedsOptionError(f"{place(bad)}: not a number: {checks.show_text(word)!r}; {why}")
    elif is_number(column.type):
        values = _to_numpy(column.cast("float64", safe=False))
    else:
        raise NeedsOptionError(f"{place(0)}: a date; {remedy}")
    found: F64 = np.asarray(values, np.float64)
    beyond = np.abs(found) >= checks.FLOAT32_OVERFLOW
    if beyond.any():
        first = int(np.argmax(beyond))
        raise InputError(f"{place(first)}: {checks.find_feature_fault(float(found[first]))[0]}")
    return found


def read_dates(column: Any, place: Place, date_format: str | None, remedy: str) -> F64:
    """Return the days from 1970-01-01 to each date, NaN where missing. Raises InputError for other values.

    date_format: see Columns. remedy: the advice that the error gives.
    """
    if is_number(column.type):
        if column.null_count < len(column):
            raise NeedsOptionError(f"{place(0)}: a number; {remedy}")
        return np.full(len(column), np.nan)
    values = _parse_dates(column, date_format) if is_text(column) else _to_days(column)
    if values is None:
        bad = next(i for i in range(len(column)) if _parse_dates(column.slice(i, 1), date_format) is None)
        shown, form = checks.show_text(column[bad].as_py()), date_format or "such as 2024-12-31T23:59:59"
        form += f": {shown!r}; --date-format reads dates of another form (date_format in Python)"
        raise NeedsOptionError(f"{place(bad)}: not a date {form}; {remedy}")
    return values


def read_words(column: Any, place: Place) -> tuple[list[str], F32]:
    """Return the distinct texts of a column, and for each row the index of its text (NaN where the text is missing).

    Raises InputError for a category that is too long.
    """
    coded = _to_text(column).dictionary_encode()
    texts = coded.dictionary.to_pylist()
    codes = _to_numpy(coded.indices.cast("float32"))
    if (long := next((k for k, text in enumerate(texts) if len(text) > MOST_CHARACTERS), None)) is not None:
        first = int(np.argmax(codes == long))
        fault = f"a category has {len(texts[long]):,} characters, more than {MOST_CHARACTERS:,}"
        raise NeedsOptionError(f"{place(first)}: {fault}; --hash BITS takes text of any length")
    return texts, codes.astype(np.float32)


def read_hashes(column: Any, name: str, n_hashed: int, seed: int) -> F32:
    """Return for each text the number of its feature, from 1, times the feature's value (1 or -1); NaN if missing."""
    texts = _to_text(column)
    filled = texts.fill_null("")
    _, limits, data = filled.buffers()
    offsets = np.frombuffer(limits, np.int32)[filled.offset : filled.offset + len(filled) + 1]
    cells = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    hashes = encodings.hash_texts(np.frombuffer(f"{name}=".encode(), np.uint8), cells, offsets, seed).astype(np.int64)
    signed = (np.abs(hashes) % n_hashed + 1) * np.where(hashes >= 0, 1, -1)
    found: F32 = signed.astype(np.float32)
    found[np.asarray(texts.is_null().to_numpy(zero_copy_only=False))] = np.nan
    return found


def _to_text(column: Any) -> Any:
    """Return a column converted to text, with null in place of each empty cell."""
    return _without_missing(column if is_text(column) else column.cast("string"), True)


def _without_missing(column: Any, is_words: bool = False) -> Any:
    """Return a column of text with null for each missing value.

    is_words: whether only empty cells count as missing. Otherwise other missing-value words count too.
    """
    is_missing = pyarrow.compute.is_in(column, value_set=pyarrow.array(checks.missing_words(is_words)))
    return pyarrow.compute.if_else(is_missing, None, column)


def _parse_numbers(column: Any, decimal: str | None) -> tuple[npt.NDArray[np.float64] | None, int]:
    """Return a column of text as numbers, and 0. If a cell is not a number, return None and the first such row.

    Arrow parses every number that it accepts as Python does, but Python accepts more forms.
    """
    known = _without_missing(column)
    if decimal == ",":
        replace, known = pyarrow.compute.replace_substring, known.cast("string")
        for one, other in ((".", "\0"), (",", "."), ("\0", ",")):  # points become commas, and are then refused
            known = replace(known, one, other)
    try:
        return _to_numpy(known.cast("float64")), 0
    except pyarrow.ArrowInvalid:
        coded = known.dictionary_encode()
    numbers = [checks.parse_number(word) for word in coded.dictionary.to_pylist()]
    codes = coded.indices.fill_null(len(numbers)).to_numpy()
    if None in numbers:
        bad = [k for k, number in enumerate(numbers) if number is None]
        return None, int(np.argmax(np.isin(codes, bad)))
    return np.array([*numbers, np.nan], np.float64)[codes], 0


def _parse_dates(column: Any, date_format: str | None) -> npt.NDArray[np.float64] | None:
    """Return a column of text as days since 1970 if all its values are dates or times with a zone; otherwise None."""
    known = _without_missing(column)
    if date_format is not None:
        coded, times = known.dictionary_encode(), list[datetime]()
        for word in coded.dictionary.to_pylist():
            if (time := checks.parse_date(word, date_format)) is None:
                return None
            times.append(time)
        days = np.append(_to_days(pyarrow.array(times, pyarrow.timestamp("us", "UTC"))), np.nan)
        return np.asarray(days[coded.indices.fill_null(len(times)).to_numpy()], np.float64)
    for zone in (None, "UTC"):
        try:
            return _to_days(known.cast(pyarrow.timestamp("us", zone)))
        except pyarrow.ArrowInvalid:
            continue
    return None


def _to_days(column: Any) -> npt.NDArray[np.float64]:
    times = column if is_any(column.type, "timestamp") else column.cast(pyarrow.timestamp("ms"))
    return _to_numpy(times.cast("int64").cast("float64", safe=False)) / OF_A_DAY[times.type.unit]


def _to_numpy(column: Any) -> npt.NDArray[Any]:
    """Return an Arrow array of numbers as a NumPy array, with NaN for missing values."""
    return np.asarray(column.to_numpy(zero_copy_only=False))


LOGGER = logging.getLogger("streamsvm")
SEED = 0  # the seed of the hash function
NO_COLUMNS = Encoding(())
MANY_CATEGORIES = 100  # a column with fewer categories is not suspected to name the rows

Places = Callable[[int], Place]  # a function from k to the places of the k-th feature column's values
FirstRows = Sequence[tuple[Sequence[Any], Places]]  # for each of the first pieces, its feature columns and their places


# The codes of rows, (rows, columns), and for each one_hot column a list of texts, in which its codes are indices.
Codes = tuple[F64, dict[int, list[str]]]


class PieceStatistics(NamedTuple):
    """The statistics of a piece of rows; the encoder adds them to the statistics of the table.

    missing: the number of missing values in each column. sums: the sum of the other values of each column. texts: for
    each one_hot column, the categories that occur in no earlier piece, in the order of their numbers.
    """

    n_rows: int
    missing: I64
    sums: F64
    texts: dict[int, list[str]]


class TableEncoder:
    """Turns Arrow columns into codes, and determines the encoding, which turns codes into features.

    asked: the options of the user, including an encoding if the user gave one. encoding: the encoding as far as it is
    known; until the first rows have decided the kinds of the columns, it has no columns. known: for each one_hot
    column, a map from category to number. unknown: for each one_hot column, the number of rows with unknown categories.
    sums: the sum of the known values of each column. missing: the number of missing values of each column. n_rows: the
    number of rows so far. pieces: if `is_part`, the statistics of each piece, which another encoder will combine.
    """

    def __init__(self, asked: Columns, encoding: Encoding = NO_COLUMNS, is_part: bool = False) -> None:
        self.asked, self.pieces = asked, list[PieceStatistics]() if is_part else None
        self._begin(encoding)

    def _begin(self, encoding: Encoding) -> None:
        self.encoding, n_columns = encoding, len(encoding.columns)
        self.sums, self.missing, self.n_rows = np.zeros(n_columns), np.zeros(n_columns, np.int64), 0
        one_hot = ((k, column) for k, column in enumerate(encoding.columns) if column.kind == "one_hot")
        self.known = {k: {text: i for i, text in enumerate(column.categories)} for k, column in one_hot}
        self.unknown = dict.fromkeys(self.known, 0)

    @property
    def is_known(self) -> bool:
        """Whether the encoding no longer depends on further rows."""
        return self.asked.encoding is not None or (not self.known and self.asked.missing in (None, "zero"))

    def start_anew(self) -> TableEncoder:
        """Return a new encoder with the same kinds of columns.

        It has seen no rows, and records the statistics of each piece.
        """
        return TableEncoder(self.asked, self.encoding, is_part=True)

    def settle(self, layout: TableLayout, first: FirstRows) -> None:
        """Take over the given encoding, or decide the kinds of the columns by the first rows.

        Raises InputError for a column of text if no option says how to encode text.
        """
        self._begin(self.asked.encoding or self._decide(layout, first))

    def _decide(self, layout: TableLayout, first: FirstRows) -> Encoding:
        """Return the encoding of a new table without the parts that depend on all rows."""
        names, of_folders = layout.feature_names, {j: kind for j, (kind, _) in layout.folders.items()}
        named = {j: "number" if kind == INTEGER else kind for j, kind in {**of_folders, **layout.kinds}.items()}
        kinds = [self._choose(k, names[k], named.get(j), first) for k, j in enumerate(layout.features)]
        if "text" in kinds:
            self._refuse_texts(names, kinds, first)
        bits = self.asked.hash_bits if "hash" in kinds else None
        columns = tuple(map(Column, names, kinds))
        return Encoding(columns, self.asked.missing, bits, SEED, self.asked.index)

    def _refuse_texts(self, names: Sequence[str], kinds: Sequence[str], first: FirstRows) -> None:
        """Raise InputError for the first text that no option encodes; list the columns with text and missing values."""
        texts = [name for name, kind in zip(names, kinds, strict=True) if kind == "text"]
        looked_at = range(len(kinds)) if self.asked.missing is None else ()
        gaps = [names[k] for k in looked_at if any(has_gaps(arrays[k], kinds[k]) for arrays, _ in first)]
        k, advice = kinds.index("text"), checks.advise_on_table(texts, gaps)
        if self.asked.date_format is not None:
            advice += f"; no column of text has dates of the form {self.asked.date_format} (--date-format)"
        for arrays, places in first:
            read_numbers(arrays[k], places(k), self.asked.decimal, advice)
        raise NeedsOptionError(f"{first[0][1](k)(0)}: a column of text; {advice}")

    def _choose(self, k: int, name: str, named: str | None, first: FirstRows) -> str:
        """Return the kind of column k in the encoding. named: the kind that the user or a folder assigned, if any."""
        known = [arrays[k] for arrays, _ in first if named is None and not is_blank(arrays[k])]
        found = {find_kind(array, self.asked.decimal, self.asked.date_format) for array in known}
        kind = named or (found.pop() if len(found) == 1 else "text" if found else "number")
        if kind != "text":
            return kind
        kind = "one_hot" if self.asked.one_hot == AUTO else "text" if self.asked.hash_bits is None else "hash"
        if named is None and kind != "text":
            self._refuse_odd(k, name, first)
        return kind

    def _refuse_odd(self, k: int, name: str, first: FirstRows) -> None:
        """Raise InputError if a column would become categories although its texts look like numbers or dates."""
        texts = [arrays[k] for arrays, _ in first if is_text(arrays[k])]
        words = dict.fromkeys(word for each in texts for word in each.unique().drop_null().to_pylist())
        if odd := checks.explain_text(words, self.asked.decimal):
            shown = next(word for word in words if checks.explain_text([word], self.asked.decimal))
            place, i = next(
                (places(k), i) for arrays, places in first for i, each in enumerate(arrays[k]) if each.as_py() == shown
            )
            fault = f"{checks.show_text(shown)!r} and all others seem to be {odd}"
            raise NeedsOptionError(f"{place(i)}: {fault}; --one-hot {checks.show_text(name)} takes them as categories")

    def read(self, arrays: Sequence[Any], places: Places) -> Codes:
        """Return the codes of rows, given their feature columns. Thread-safe. Raises InputError for a bad value."""
        X = np.empty((len(arrays[0]), len(arrays)))
        texts, encoding = dict[int, list[str]](), self.encoding
        if not len(X):  # the kinds of the columns may not be decided yet
            return X, texts
        for k, (array, column) in enumerate(zip(arrays, encoding.columns, strict=True)):
            kind, remedy = column.kind, checks.explain_kind(column.kind, self.asked.encoding is not None)
            if kind == "one_hot":
                texts[k], X[:, k] = read_words(array, places(k))
            elif kind == "hash":
                X[:, k] = read_hashes(array, column.name, encoding.n_hashed, encoding.seed)
            elif kind == "date":
                X[:, k] = read_dates(array, places(k), self.asked.date_format, remedy)
            else:
                X[:, k] = read_numbers(array, places(k), self.asked.decimal, remedy)
        if encoding.missing is None and (missing := np.isnan(X)).any():
            i, k = divmod(int(np.argmax(missing)), X.shape[1])
            raise NeedsOptionError(f"{places(k)(i)}: missing value; {checks.FOR_MISSING}")
        return X, texts

    def take_note(self, codes: Codes) -> F64:
        """Add codes to the statistics; return them with categories numbered over all rows so far. Call in row order."""
        X, found = codes
        if not len(X):
            return X
        missing = np.isnan(X)
        sums = np.where(missing, 0.0, X).sum(axis=0)
        texts = {k: [text for text in each if text not in self.known[k]] for k, each in found.items()}
        piece = PieceStatistics(len(X), missing.sum(axis=0), sums, texts)
        if self.pieces is not None:
            self.pieces.append(piece)
        self.join(piece)
        for k, each in found.items():
            own = np.array([*(self.known[k].get(text, UNKNOWN) for text in each), np.nan], np.float32)
            X[:, k] = _look_up(X[:, k], own)
            self.unknown[k] += int(np.count_nonzero(X[:, k] == UNKNOWN))
        return X

    def join(self, piece: PieceStatistics) -> None:
        """Add the statistics of a piece. Call in row order. Raises InputError for too many categories."""
        for k, texts in piece.texts.items():
            for text in texts if self.asked.encoding is None else ():  # a known encoding gets no new categories
                if text not in self.known[k] and sum(map(len, self.known.values())) == MOST_CATEGORIES:
                    most = max(self.known, key=lambda k: len(self.known[k]))
                    name = checks.show_text(self.encoding.columns[most].name)
                    fault = f"the columns of text have more than {MOST_CATEGORIES:,} values, most of them {name}"
                    raise NeedsOptionError(f"{fault}: use --hash BITS, which needs no list of them, or --drop {name}")
                self.known[k].setdefault(text, len(self.known[k]))
        self.missing += piece.missing
        self.sums += piece.sums
        self.n_rows += piece.n_rows

    def finish(self) -> Encoding:
        """Return the complete encoding. Call after all rows have been read, unless `is_known`."""
        if self.is_known:
            return self.encoding
        columns = []
        for k, column in enumerate(self.encoding.columns):
            n_known, fill = self.n_rows - int(self.missing[k]), 0.0
            if self.asked.missing == "mean" and n_known and column.kind in ("number", "date"):
                fill = float(np.clip(self.sums[k] / n_known, -encodings.MOST_FILL, encodings.MOST_FILL))
            indicator = self.asked.missing == "indicator" and bool(self.missing[k])
            categories = tuple(sorted(self.known.get(k, ())))
            columns.append(replace(column, fill=fill, indicator=indicator, categories=categories))
        return replace(self.encoding, columns=tuple(columns))

    def tell_many(self, where: str) -> None:
        """Log a warning for each column with more categories than half of the rows, since it may name the rows."""
        for k, known in self.known.items():
            if len(known) > max(MANY_CATEGORIES, self.n_rows // 2):
                name = checks.show_text(self.encoding.columns[k].name)
                many = f"column {name} has {len(known):,} categories in {say_count(self.n_rows, 'row')}"
                LOGGER.warning(f"{where}: {many}; if it names the rows, use --index {name} or --drop {name}")

    def tell_unknown(self, where: str) -> None:
        """Log a warning with the number of rows whose category is not in the given encoding, for each such column."""
        for k, count in self.unknown.items():
            if count and self.asked.encoding is not None:
                name = checks.show_text(self.encoding.columns[k].name)
                LOGGER.warning(f"{where}: {say_count(count, 'row')} with unknown categories in column {name}, set to 0")


def rank_categories(known: Mapping[int, Iterable[str]], encoding: Encoding) -> dict[int, F32]:
    """Return, for each one_hot column, an array from category numbers to indices in the encoding's sorted categories.

    The last entry, NaN, is for missing values. known: for each column, its categories in the order of their numbers.
    """
    ranks = {}
    for k, texts in known.items():
        places = {text: at for at, text in enumerate(encoding.columns[k].categories)}
        ranks[k] = np.array([*(places[text] for text in texts), np.nan], np.float32)
    return ranks


def sort_categories(X: Any, ranks: Mapping[int, F32]) -> Any:
    """Return codes with categories numbered in sorted order. ranks: see `rank_categories`."""
    for k, own in ranks.items():
        X[:, k] = _look_up(X[:, k], own)
    return X


def _look_up(codes: F64, table: F32) -> F32:
    """Return the entry of the table for each code; NaN selects the last entry."""
    return table[np.where(np.isnan(codes), len(table) - 1, codes).astype(np.int64)]


def encode(rows: SourceRows, encoding: Encoding) -> SourceRows:
    """Replace the codes of rows by features."""
    recorded = None if encoding.is_plain else encoding
    features = encode_features(rows.X, encoding)
    return replace(rows, X=features, feature_names=encoding.feature_names, encoding=recorded)


def encode_features(codes: Any, encoding: Encoding) -> F64 | csr_array:
    """Return the features of rows. codes (rows, columns): the codes of the table's columns."""
    X = encoding.encode(codes)
    return csr_array((X.data, X.indices, X.indptr), shape=X.shape) if isinstance(X, CsrRows) else X
