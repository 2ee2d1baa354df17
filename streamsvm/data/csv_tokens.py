"""Rows and tokens of CSV as Python reads them, which names the exact place of what is wrong."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

import numpy as np

from streamsvm.data.csv_rows import count_lines
from streamsvm.data.tables import TableLayout
from streamsvm.data.values import Vector, find_feature_fault, parse_number
from streamsvm.errors import InputError, say_count

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")


def read_rows(text: bytes, line: int, layout: TableLayout) -> Iterator[tuple[int, list[str]]]:
    """Yield the tokens of each row that is not blank, with the line where the row begins."""
    at, n_columns = line, len(layout.names)
    try:
        reader = csv.reader(io.StringIO(text.decode(), newline=""), delimiter=layout.delimiter, strict=True)
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):
                if len(row) != n_columns:
                    column = min(len(row), n_columns) + 1
                    fault = f"{say_count(len(row), 'column')}, the first line has {n_columns:,}"
                    raise InputError(f"{layout.where}:{at}:{column}: {fault}")
                yield at, row
            at = line + reader.line_num
    except UnicodeDecodeError as error:
        at = line + count_lines(text[: error.start])
        raise InputError(f"{layout.where}:{at}:1: not UTF-8 text") from error
    except csv.Error as error:
        raise InputError(f"{layout.where}:{at}:1: {error}") from error


def read_tokens(role: str, tokens: list[str], numbers: bool | None) -> Vector:
    """Return the values of a label, qid or weight column; a token that is no number stays text, and may be a label."""
    words = [token.strip() for token in tokens]
    if role == "qid":
        ids = [int(word) if _WHOLE_NUMBER.fullmatch(word) else word for word in words]
        fitting = all(isinstance(number, int) and -(2**63) <= number < 2**63 for number in ids)
        return np.array(ids, dtype=np.int64 if fitting else object)
    values = [parse_number(word) for word in words]
    if None not in values and (role != "label" or numbers is not False):
        return np.array(values, dtype=np.float64)
    if role == "label" and not numbers:
        return np.array(words, dtype=np.str_)
    return np.array([w if v is None else v for w, v in zip(words, values, strict=True)], dtype=object)


def explain_token(token: str) -> str:
    """Say why a token is no finite float32."""
    number = parse_number(token)
    if not token.strip():
        return "empty (missing value)"
    if number is None:
        return f"not a number: {token[:40]!r}"
    if abs(number) == np.inf and "inf" not in token.lower():
        return f"overflows float32: {token.strip()}"
    return find_feature_fault(number)
