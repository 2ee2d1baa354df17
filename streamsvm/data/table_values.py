"""The values of a table's columns, which Arrow holds, as codes for an encoding (numeric.encoding).

Columns of text are read as a file of text has them: blanks around a value are no part of it, an empty value is missing,
and among numbers and dates so is each of `missing_words`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.data.folders import INTEGER
from streamsvm.data.odd_texts import explain_text, refuse_labels
from streamsvm.data.tables import TableLayout, import_pyarrow
from streamsvm.data.values import (
    FLOAT32_OVERFLOW,
    TARGET,
    TEXT,
    Place,
    Vector,
    find_feature_fault,
    missing_words,
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
def _missing_words(is_text: bool) -> Any:
    return import_pyarrow("pyarrow").array(missing_words(is_text))


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
    raise refuse_type(kind, name, where)


def refuse_type(kind: Any, name: str, where: str) -> InputError:
    """Return the error of a column whose type is that of no feature, with what to do about it."""
    types, remedy = import_pyarrow("pyarrow").types, ""
    if types.is_struct(kind):
        remedy = "Table.flatten() of pyarrow makes columns of it; or "
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        remedy = "streamsvm.ingest in Python takes lists of numbers, as pyarrow.parquet.read_table returns them; or "
    elif types.is_time(kind) or types.is_duration(kind):
        remedy = "write it as a number, such as the seconds; or "
    why = f"{kind} is neither a number nor a text nor a date: {remedy}leave it out by --drop {name} (drop in Python)"
    return NeedsOptionError(f"{where}: column {name}: {why}")


def repeat_folder(kind: str, value: str | None, n_rows: int, read_as: str) -> Any:
    """Return the column of a folder, whose rows have one value: integers as such, unless all is read as text."""
    pyarrow = import_pyarrow("pyarrow")
    if kind == INTEGER and read_as != "text":
        return pyarrow.repeat(pyarrow.scalar(None if value is None else int(value), pyarrow.int64()), n_rows)
    return pyarrow.repeat(pyarrow.scalar(value or "", pyarrow.string()), n_rows)


def take_column(piece: Any, layout: TableLayout, j: int) -> Any:
    """Return a column of a piece: one of its own, or that of a folder."""
    if j in layout.folders:
        return repeat_folder(*layout.folders[j], piece.num_rows, "")
    return piece.column(layout.names[j])


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


def read_labels(column: Any, place: Place, kind: str | None) -> Vector:
    """Return a column of labels: numbers if it has a type of numbers or if they are targets, otherwise texts.

    kind: see Columns.label_kind. Raises InputError for the first text that is no label.
    """
    if kind != TEXT and is_number(column.type):
        return _to_numpy(column)
    coded = column.cast("string").dictionary_encode()
    words = coded.dictionary.to_pylist()
    codes = coded.indices.fill_null(len(words)).to_numpy()
    refuse_labels(words, codes, place, kind, None)
    values = [parse_number(word) for word in words] if kind == TARGET else words
    found: Vector = np.array([*values, None], object)[codes]
    return found


def find_kind(column: Any, decimal: str | None = None) -> str:
    """Return "number", "date" or "text", as which all values of a column can be read. decimal: see Columns."""
    if not is_text(column):
        return "number" if is_number(column.type) else "date"
    numbers, _ = _parse_numbers(column, decimal)
    if numbers is not None:
        return "number"
    return "date" if _parse_dates(column) is not None else "text"


def is_blank(column: Any) -> bool:
    """Tell whether no value of a column is known, nor its type."""
    known = _without_missing(column) if is_text(column) else column
    return bool(known.null_count == len(known)) and (is_text(column) or str(column.type) == "null")


def list_words(column: Any) -> list[str]:
    """Return the different texts of a column in the order of their first rows, and none of another column."""
    return list(column.unique().drop_null().to_pylist()) if is_text(column) else []


def has_gaps(column: Any, kind: str) -> bool:
    """Tell whether values of a column are missing, which is of the kind that `find_kind` found."""
    known = _to_text(column) if kind == "text" else _without_missing(column) if is_text(column) else column
    return bool(known.null_count)


def read_numbers(column: Any, place: Place, decimal: str | None, remedy: str) -> F64:
    """Return a column of numbers, nan where they are missing. Raises InputError for other values.

    decimal: see Columns. remedy: what to do about other values.
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
        raise NeedsOptionError(f"{place(0)}: a date; {remedy}")
    found: F64 = np.asarray(values, np.float64)
    beyond = np.abs(found) >= FLOAT32_OVERFLOW
    if beyond.any():
        first = int(np.argmax(beyond))
        raise InputError(f"{place(first)}: {find_feature_fault(float(found[first]))}")
    return found


def read_dates(column: Any, place: Place, remedy: str) -> F64:
    """Return the days from 1970-01-01 to each date, nan where it is missing. Raises InputError for other values.

    remedy: what to do about other values.
    """
    values = _parse_dates(column) if is_text(column) else None
    if not is_text(column):
        if is_number(column.type) and column.null_count < len(column):
            raise NeedsOptionError(f"{place(0)}: a number; {remedy}")
        values = _to_days(column) if not is_number(column.type) else np.full(len(column), np.nan)
    if values is None:
        bad = next(i for i in range(len(column)) if _parse_dates(column.slice(i, 1)) is None)
        shown = show_text(column[bad].as_py())
        raise NeedsOptionError(
            f"{place(bad)}: not a date such as 2024-12-31 or 2024-12-31T23:59:59: {shown!r}; {remedy}"
        )
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
    return _without_missing(column if is_text(column) else column.cast("string"), True)


def _without_missing(column: Any, is_words: bool = False) -> Any:
    """Return a column of text with nulls for missing values. is_words: whether its values are texts."""
    compute = import_pyarrow("pyarrow.compute")
    return compute.if_else(compute.is_in(column, value_set=_missing_words(is_words)), None, column)


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
