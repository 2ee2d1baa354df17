"""The values of a table's columns, which Arrow holds, as codes for an encoding (numeric.encoding).

Columns of text are read as a file of text has them: blanks around a value are no part of it, an empty value is missing,
and among numbers and dates so is each of MISSING_WORDS.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.data.odd_texts import explain_text
from streamsvm.data.tables import import_pyarrow
from streamsvm.data.values import (
    FLOAT32_OVERFLOW,
    FOR_TEXT,
    MISSING_WORDS,
    Place,
    find_feature_fault,
    parse_number,
    show_text,
)
from streamsvm.errors import InputError, NeedsOptionError
from streamsvm.numeric.encoding import MOST_CHARACTERS
from streamsvm.numeric.murmur_hash import hash_texts
from streamsvm.numeric.rows import F32, F64

OF_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


class Words(NamedTuple):
    """The different texts of a column, and which one each row has: the number of the text, nan if it is missing."""

    texts: list[str]
    codes: F32


@lru_cache
def _missing_words() -> Any:
    return import_pyarrow("pyarrow").array(MISSING_WORDS)


def read_column(column: Any, name: str, where: str) -> Any:
    """Return a column as an array of text, numbers or times, without dictionaries. InputError for other types."""
    pyarrow = import_pyarrow("pyarrow")
    types = pyarrow.types
    if isinstance(column, pyarrow.ChunkedArray):
        column = column.combine_chunks()
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if is_text(column):
        return import_pyarrow("pyarrow.compute").utf8_trim_whitespace(column.cast("string"))
    if is_number(kind) or types.is_timestamp(kind) or types.is_date(kind):
        return column
    raise NeedsOptionError(f"{where}: column {name}: {kind} is neither a number nor a text nor a date: --drop {name}")


def is_text(column: Any) -> bool:
    """Tell whether a column is of text."""
    types = import_pyarrow("pyarrow").types
    kinds = (types.is_string, types.is_large_string, types.is_string_view)
    return any(is_kind(column.type) for is_kind in kinds)


def is_number(arrow_type: Any) -> bool:
    """Tell whether a type of Arrow is one of numbers; booleans are 0 and 1."""
    types = import_pyarrow("pyarrow").types
    kinds = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    return any(is_kind(arrow_type) for is_kind in kinds)


def find_kind(column: Any, decimal: str | None = None) -> str:
    """Return "number", "date" or "text", as which all values of a column can be read. decimal: see Columns."""
    if not is_text(column):
        return "number" if is_number(column.type) else "date"
    numbers, _ = _parse_numbers(column, decimal)
    if numbers is not None:
        return "number"
    return "date" if _parse_dates(column) is not None else "text"


def has_gaps(column: Any, kind: str) -> bool:
    """Tell whether values of a column are missing, which is of the kind that `find_kind` found."""
    known = _without_missing(column) if is_text(column) and kind != "text" else column
    return bool((_to_text(known) if kind == "text" else known).null_count)


def read_numbers(column: Any, place: Place, decimal: str | None = None, remedy: str = FOR_TEXT) -> F64:
    """Return a column of numbers, nan where they are missing. Raises InputError for other values.

    decimal: see Columns. remedy: what to do about a column of text.
    """
    if is_text(column):
        values, bad = _parse_numbers(column, decimal)
        if values is None:
            word = column[bad].as_py()
            odd = explain_text([word], decimal)
            why = f"these seem to be {odd}" if odd else remedy
            raise NeedsOptionError(f"{place(bad)}: not a number: {show_text(word)!r}; {why}")
    elif is_number(column.type):
        values = _to_numpy(column.cast("float64", safe=False))
    else:
        raise InputError(f"{place(0)}: a date, where the column was of numbers before")
    found: F64 = np.asarray(values, np.float64)
    beyond = np.abs(found) >= FLOAT32_OVERFLOW
    if beyond.any():
        first = int(np.argmax(beyond))
        raise InputError(f"{place(first)}: {find_feature_fault(float(found[first]))}")
    return found


def read_dates(column: Any, place: Place) -> F64:
    """Return the days from 1970-01-01 to each date, nan where it is missing. Raises InputError for other values."""
    values = _parse_dates(column) if is_text(column) else None
    if not is_text(column):
        if is_number(column.type) and column.null_count < len(column):
            raise InputError(f"{place(0)}: a number, where the column was of dates before")
        values = _to_days(column) if not is_number(column.type) else np.full(len(column), np.nan)
    if values is None:
        bad = next(i for i in range(len(column)) if _parse_dates(column.slice(i, 1)) is None)
        shown = show_text(column[bad].as_py())
        raise InputError(f"{place(bad)}: not a date such as 2024-12-31 or 2024-12-31T23:59:59: {shown!r}")
    return values


def read_words(column: Any, place: Place) -> Words:
    """Return a column of categories. Raises InputError for a category that is too long."""
    coded = _to_text(column).dictionary_encode()
    texts = coded.dictionary.to_pylist()
    codes = _to_numpy(coded.indices.cast("float32"))
    if (long := next((k for k, text in enumerate(texts) if len(text) > MOST_CHARACTERS), None)) is not None:
        first = int(np.argmax(codes == long))
        raise NeedsOptionError(
            f"{place(first)}: a category has {len(texts[long]):,} characters, more than {MOST_CHARACTERS:,}; --hash "
            "BITS takes texts of any length"
        )
    return Words(texts, codes.astype(np.float32))


def read_hashes(column: Any, name: str, bits: int, seed: int) -> F32:
    """Return the number of the feature of each text, counted from 1, with the sign of its value; nan if missing."""
    texts = _to_text(column)
    filled = texts.fill_null("")
    _, limits, data = filled.buffers()
    offsets = np.frombuffer(limits, np.int32)[filled.offset : filled.offset + len(filled) + 1]
    cells = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    hashes = hash_texts(np.frombuffer(f"{name}=".encode(), np.uint8), cells, offsets, seed).astype(np.int64)
    signed = (np.abs(hashes) % (1 << bits) + 1) * np.where(hashes >= 0, 1, -1)
    found: F32 = signed.astype(np.float32)
    found[np.asarray(texts.is_null().to_numpy(zero_copy_only=False))] = np.nan
    return found


def _to_text(column: Any) -> Any:
    """Return a column as text, with nulls where it is empty."""
    compute = import_pyarrow("pyarrow.compute")
    text = column if is_text(column) else column.cast("string")
    return compute.if_else(compute.equal(text, ""), None, text)


def _without_missing(column: Any) -> Any:
    """Return a column of text with nulls for the words that stand for missing values."""
    compute = import_pyarrow("pyarrow.compute")
    return compute.if_else(compute.is_in(column, value_set=_missing_words()), None, column)


def _parse_numbers(column: Any, decimal: str | None) -> tuple[npt.NDArray[np.float64] | None, int]:
    """Return a column of text as numbers; or None, and the first row that holds none.

    Where Arrow's parser reads a number, it is the one that Python reads. It does not know all that Python reads.
    """
    pyarrow, known = import_pyarrow("pyarrow"), _without_missing(column)
    if decimal == ",":
        replace, known = import_pyarrow("pyarrow.compute").replace_substring, known.cast("string")
        for one, other in ((".", "\0"), (",", "."), ("\0", ",")):  # a point is no decimal mark then
            known = replace(known, one, other)
    try:
        return _to_numpy(known.cast("float64")), 0
    except pyarrow.ArrowInvalid:
        coded = known.dictionary_encode()
    numbers = [parse_number(word) for word in coded.dictionary.to_pylist()]
    codes = coded.indices.to_numpy(zero_copy_only=False)
    if None in numbers:
        bad = [k for k, number in enumerate(numbers) if number is None]
        return None, int(np.argmax(np.isin(codes, bad)))
    missing = np.isnan(codes.astype(np.float64))
    values = np.array([*numbers, np.nan], np.float64)
    return values[np.where(missing, len(numbers), np.nan_to_num(codes.astype(np.float64))).astype(np.int64)], 0


def _parse_dates(column: Any) -> npt.NDArray[np.float64] | None:
    """Return the days of a column of text whose values are all dates, or all times with a zone; None for others."""
    pyarrow, known = import_pyarrow("pyarrow"), _without_missing(column)
    for zone in (None, "UTC"):
        try:
            return _to_days(known.cast(pyarrow.timestamp("us", zone)))
        except pyarrow.ArrowInvalid:
            continue
    return None


def _to_days(column: Any) -> npt.NDArray[np.float64]:
    pyarrow = import_pyarrow("pyarrow")
    times = column if pyarrow.types.is_timestamp(column.type) else column.cast(pyarrow.timestamp("ms"))
    return _to_numpy(times.cast("int64").cast("float64", safe=False)) / OF_A_DAY[times.type.unit]


def _to_numpy(column: Any) -> npt.NDArray[Any]:
    """Return numbers, nan where they are missing."""
    return np.asarray(column.to_numpy(zero_copy_only=False))
