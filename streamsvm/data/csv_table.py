"""The reader of CSV and TSV text whose columns are encoded: text, dates, missing values, and names of rows.

The text is cut into blocks as in csv_text, and every column that is read becomes an array of texts, by the same
compiled parser; Arrow turns these into numbers, dates and categories. A block that the parser does not take is read by
Python.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.csv_parser import parse_table
from streamsvm.data.csv_text import HEAD_BYTES, Block, read_blocks
from streamsvm.data.csv_tokens import read_rows, read_tokens
from streamsvm.data.labels import find_label_fault, has_number_labels, to_source_rows
from streamsvm.data.odd_texts import POINT, explain_text
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.table_encoder import Codes, TableEncoder
from streamsvm.data.table_values import find_kind, read_column
from streamsvm.data.tables import Columns, TableLayout, import_pyarrow, show_name
from streamsvm.data.values import Place, Vector, show_text
from streamsvm.data.work_ahead import unjoined_pool, work_ahead
from streamsvm.errors import InputError

_DATE = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}")
BLOCK_BYTES = 2 << 20  # all cells of a block are held as texts


class Cells:
    """The cells of the columns of a block that are read: the features in their order, and the other columns by role."""

    def __init__(self, layout: TableLayout, block: Block) -> None:
        self.layout, self._block = layout, block
        wanted = [*layout.features, *layout.vectors.values()]
        found = _parse_fast(layout, block, wanted)
        found = self._parse_slowly(wanted) if found is None else found
        columns = [read_column(array, "", layout.where) for array in found]
        self.features = columns[: len(layout.features)]
        self.vectors = dict(zip(layout.vectors, columns[len(layout.features) :], strict=True))
        self.n_rows = len(found[0])

    def place(self, k: int) -> Place:
        """Return the places of the cells of the k-th feature."""
        return self._place(self.layout.features[k])

    def _place(self, j: int) -> Place:
        return lambda i: self.layout.place(self._lines[i], j)

    @cached_property
    def _lines(self) -> list[int]:
        """The line of the text at which each row begins."""
        return [line for line, _ in self._read_rows()]

    def _read_rows(self) -> Iterator[tuple[int, list[str]]]:
        return read_rows(bytes(self._block.text[:-1]), self._block.line, self.layout)

    def _parse_slowly(self, wanted: Sequence[int]) -> list[Any]:
        """Return the columns as Python reads them. Raises InputError for what is no table."""
        rows = [row for _, row in self._read_rows()]
        text = import_pyarrow("pyarrow").string()
        return [import_pyarrow("pyarrow").array([row[j] for row in rows], text) for j in wanted]

    def read_vectors(self, numbers: bool | None, decimal: str | None) -> dict[str, tuple[Vector, Place]]:
        """Return the values of label, qid, sample_weight, groups and index, and where they stand."""
        found = {}
        for role, column in self.vectors.items():
            place, coded = self._place(self.layout.vectors[role]), column.dictionary_encode()
            words, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False)
            for k, word in enumerate(words if role in ("label", "sample_weight") else ()):
                if fault := _find_fault(role, word, decimal):
                    raise InputError(f"{place(int(np.argmax(codes == k)))}: {fault}")
            values = np.array(words, object) if role == "index" else read_tokens(role, words, numbers, decimal)
            found[role] = values[codes], place
        return found


def _find_fault(role: str, word: str, decimal: str | None) -> str:
    """Say why a text is no label or sample weight; return "" if it may be one."""
    if decimal == "," and explain_text([word], decimal) == POINT:
        return f"not a number: {show_text(word)!r}; these seem to be {POINT}"
    return find_label_fault(word) if role == "label" else ""


def _parse_fast(layout: TableLayout, block: Block, wanted: Sequence[int]) -> list[Any] | None:
    """Return the columns as compiled code reads them; None if anything is irregular."""
    pyarrow = import_pyarrow("pyarrow")
    parsed = parse_table(block.text, block.n_lines, layout.delimiter, (), wanted, len(layout.names))
    if parsed is None:
        return None
    columns = []
    for cells, limits in parsed.words:
        column = pyarrow.StringArray.from_buffers(len(parsed.X), *map(pyarrow.py_buffer, (limits, cells)))
        try:
            column.validate(full=True)
        except pyarrow.ArrowInvalid:  # no UTF-8
            return None
        columns.append(column)
    return columns


def read_csv_table(
    paths: Sequence[str | Path],
    columns: Columns,
    encoder: TableEncoder,
    block_bytes: int | None = None,
    threads: int = 2,
) -> Generator[SourceRows, None, None]:
    """Yield the rows of CSV text with the codes of their columns, as the encoder reads them; see csv_text.read_csv.

    The first block decides the kinds of the columns. Raises InputError with FILE:LINE:COLUMN and reason.
    """
    names: tuple[str, ...] | None = None
    numbers: bool | None = None
    with unjoined_pool(threads, "csv") as pool:
        for path in map(str, paths):
            n_rows = 0
            with closing(read_blocks(path, columns, names, block_bytes or BLOCK_BYTES)) as blocks:
                for layout, rows in parse_blocks(_settle(blocks, encoder), encoder, pool, threads, numbers):
                    names = layout.names
                    if rows is not None:
                        numbers = has_number_labels(rows)
                        n_rows += rows.n_rows
                        yield rows
                    del rows  # before the next block is read
            if n_rows == 0:
                raise InputError(f"{show_name(path)}: no rows")


def parse_blocks(
    blocks: Iterator[tuple[TableLayout, Block]],
    encoder: TableEncoder,
    pool: ThreadPoolExecutor,
    threads: int,
    numbers: bool | None,
) -> Iterator[tuple[TableLayout, SourceRows | None]]:
    """Yield the codes of blocks, each with its layout, and None for a block without rows.

    numbers: whether the labels of the blocks before are numbers.
    """

    def read(part: tuple[TableLayout, Block]) -> tuple[Cells, Codes]:
        cells = Cells(*part)
        return cells, encoder.read(cells.features, cells.place)

    for (layout, _), (cells, codes) in work_ahead(blocks, read, pool, threads + 1):
        X, rows = encoder.take_note(codes), None
        if len(X):
            decimal = encoder.asked.decimal
            rows = to_source_rows(X, cells.read_vectors(numbers, decimal), None, numbers)
            numbers = has_number_labels(rows)
        yield layout, rows
        del rows, cells, codes, X  # before the next block is read


def _settle(blocks: Iterator[tuple[TableLayout, Block]], encoder: TableEncoder) -> Iterator[tuple[TableLayout, Block]]:
    """Yield the blocks, after the first of them has decided the kinds of the columns."""
    for layout, block in blocks:
        if not encoder.kinds:
            cells = Cells(layout, block)
            if cells.n_rows:
                encoder.settle(layout, cells.features, cells.place)
        yield layout, block


def has_dates(paths: Sequence[str | Path], columns: Columns) -> bool:
    """Tell whether the first rows of the first file have a column of dates among the features."""
    if not paths or not Path(paths[0]).is_file():
        return False
    try:
        with closing(read_blocks(str(paths[0]), columns, None, HEAD_BYTES)) as blocks:
            layout, block = next(blocks)
            return bool(_DATE.search(block.text)) and "date" in map(find_kind, Cells(layout, block).features)
    except (InputError, StopIteration):  # reading the file reports it
        return False
