"""Rows and tokens of CSV as Python reads them, which names the exact place of what is wrong."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from streamsvm.data.odd_texts import MARKS, advise_on_table, explain_text
from streamsvm.data.tables import TableLayout
from streamsvm.data.values import (
    NOT_UTF8,
    Vector,
    find_feature_fault,
    parse_number,
)
from streamsvm.errors import InputError, NeedsOptionError, say_count

OPEN_CELL = "a quoted value does not end: is a quote missing?"
MORE_TEXT = (
    "text follows the quote that ends a value: leave the quotes out, or enclose the whole value in quotes and double "
    'those within it, as in """so"" they say"'
)
LONG_CELL = "a value of more than 131,072 characters, which is the limit of Python's csv module: is a quote missing?"

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")


def read_rows(text: bytes, line: int, layout: TableLayout) -> Iterator[tuple[int, list[str]]]:
    """Yield the tokens of each row that is not blank, with the line where the row begins.

    Columns that are not read may hold any bytes between the delimiters.
    """
    at, n_columns, wanted = line, len(layout.own_names), sorted(layout.own_wanted)
    try:
        decoded = io.StringIO(text.decode(errors="surrogateescape"), newline="")
        reader = csv.reader(decoded, delimiter=layout.delimiter, strict=True)
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):
                if len(row) != n_columns:
                    column = min(len(row), n_columns) + 1
                    fault = f"{say_count(len(row), 'column')}, the first line has {n_columns:,}"
                    raise InputError(f"{layout.where}:{at}:{column}: {fault}")
                if (j := find_foreign(row, wanted)) is not None:
                    raise InputError(f"{layout.place(at, j)}: {NOT_UTF8}")
                yield at, row
            at = line + reader.line_num
    except csv.Error as error:
        decoded.seek(0)
        row_on = "".join(islice(decoded, at - line, None))
        raise refuse_row(error, f"{layout.where}:{at}", row_on, layout.delimiter) from error


def find_foreign(row: Sequence[str], columns: Iterable[int]) -> int | None:
    """Return the first of the columns whose cell was not UTF-8, as surrogates in it tell; None if all were."""
    return next((j for j in columns if not row[j].isascii() and not _is_text(row[j])), None)


def _is_text(cell: str) -> bool:
    return cell.encode(errors="ignore").decode() == cell


def refuse_row(error: csv.Error, place: str, text: str, delimiter: str) -> InputError:
    """Return the error of a row in which the csv module finds a fault; the text begins with this row."""
    said, mark, quoted = str(error), re.escape(delimiter), r'"(?:[^"]|"")*+"'
    if said.startswith("field larger"):
        return InputError(f"{place}:1: {LONG_CELL}")
    before = re.match(rf'((?:(?:{quoted}|[^"{mark}\r\n][^{mark}\r\n]*+)?{mark})*+){quoted}[^{mark}\r\n]', text)
    if before is None:
        return InputError(f"{place}:1: {OPEN_CELL if said == 'unexpected end of data' else said}")
    column = len(next(csv.reader(io.StringIO(before[1] + ".", newline=""), delimiter=delimiter)))
    return InputError(f"{place}:{column}: {MORE_TEXT}")


def read_tokens(role: str, tokens: list[str], numbers: bool | None, decimal: str | None = None) -> Vector:
    """Return the values of a column of labels, query ids, weights or groups; what is no number stays text as it is.

    decimal: see Columns.
    """
    words = [token.strip() for token in tokens]
    if role == "qid":
        ids = [int(word) if _WHOLE_NUMBER.fullmatch(word) else word for word in words]
        fitting = all(isinstance(number, int) and -(2**63) <= number < 2**63 for number in ids)
        return np.array(ids, dtype=np.int64 if fitting else object)
    if role == "groups":  # tables of text have no types, so that 007 is the number 7, as pandas and pyarrow read it
        return np.array([int(word) if _WHOLE_NUMBER.fullmatch(word) else word for word in words], dtype=object)
    values = [parse_number(word.translate(MARKS) if decimal == "," else word) for word in words]
    if None not in values and (role != "label" or numbers is not False):
        wholes = [role == "label" and _WHOLE_NUMBER.fullmatch(word) for word in words]
        exact = [int(w) if is_whole else v for w, is_whole, v in zip(words, wholes, values, strict=True)]
        return np.array(exact, dtype=None if any(wholes) else np.float64)
    if role == "label" and not numbers:
        return np.array(words, dtype=np.str_)
    return np.array([w if v is None else v for w, v in zip(words, values, strict=True)], dtype=object)


def refuse_token(place: str, token: str, texts: Sequence[str], gaps: Sequence[str]) -> InputError:
    """Return the error of a token that is no finite float32.

    texts: the names of the columns that are of text in its row. gaps: of columns with missing values, there or later.
    """
    number = parse_number(token)
    if not token.strip():
        return NeedsOptionError(f"{place}: empty (missing value); {advise_on_table(texts, gaps)}")
    if number is None or np.isnan(number):
        fault = "nan" if number is not None else f"not a number: {token[:40]!r}"
        odd = explain_text([token.strip()])
        remedy = f"these seem to be {odd}" if odd else advise_on_table(texts, gaps)
        return NeedsOptionError(f"{place}: {fault}; {remedy}")
    if abs(number) == np.inf and "inf" not in token.lower():
        return InputError(f"{place}: overflows float32: {token.strip()}")
    return InputError(f"{place}: {find_feature_fault(number)}")
