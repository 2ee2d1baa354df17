"""Output tables: Parquet files, written a few rows at a time, and the cells of CSV files.

Spreadsheets treat a cell that begins with =, +, -, @, a tab or a line end as a formula, quoted or not, and a formula
can start programs. Such text therefore gets an apostrophe in front, as OWASP recommends ("CSV Injection"). Numbers are
written unchanged, with their sign: -1 is a label in many datasets, and numbers cannot start programs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, BinaryIO, Self

from streamsvm.data.tables.columns import pyarrow

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # last: full width
GUARD = "'"


def write_cell(value: Any) -> str:
    """Return a value as a CSV cell, quoted as RFC 4180 requires, and with an apostrophe if it resembles a formula."""
    text = str(value)
    if text.lstrip(" ").startswith(FORMULA_STARTS) and not NUMBER.fullmatch(text):
        text = GUARD + text
    return '"' + text.replace('"', '""') + '"' if re.search(r"[\",\r\n\t]|^\s|\s$", text) else text


def strip_guard(text: str) -> str:
    """Return the text of a cell without the apostrophe that `write_cell` put in front of it."""
    return text[len(GUARD) :] if text.startswith(GUARD) else text


class ParquetOutput:
    """An open Parquet file. The first call of `append` determines its columns, and each call writes a row group."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: Any = None
        self._parquet = pyarrow.parquet  # a missing pyarrow is reported before the rows are computed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def append(self, columns: Mapping[str, Any]) -> None:
        """Append rows: arrays of numbers or texts, or lists of such arrays, all of the same length."""
        table = pyarrow.table({name: _to_arrow(values) for name, values in columns.items()})
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)


def _to_arrow(values: Any) -> Any:
    if not isinstance(values, list):
        return pyarrow.array(values)
    lists: list[Any] = [each.tolist() for each in values]
    kind = pyarrow.string() if values[0].dtype.kind == "U" else pyarrow.from_numpy_dtype(values[0].dtype)
    return pyarrow.array(lists, pyarrow.list_(kind))
