"""The reader of CSV and TSV text whose columns are encoded: text, dates, missing values, and names of rows.

The text is cut into blocks as in csv_text, and every column that is read becomes an array of texts, by the same
compiled parser; Arrow turns these into numbers, dates and categories. A block that the parser does not take is read by
Python.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.csv_text import Block, Blocks, OpenTable, Parsed, look_at_first, open_table, parse_texts, read_texts
from streamsvm.data.csv_tokens import read_rows, read_tokens
from streamsvm.data.labels import has_number_labels, to_source_rows
from streamsvm.data.odd_texts import POINT, explain_text, has_texts, refuse_labels
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.table_encoder import Codes, TableEncoder
from streamsvm.data.table_values import find_kind, read_column, repeat_folder
from streamsvm.data.tables import Columns, TableLayout, import_pyarrow
from streamsvm.data.values import TEXT, Place, Vector, show_text
from streamsvm.data.work_ahead import unjoined_pool, work_ahead
from streamsvm.errors import InputError

_DATE = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}")
BLOCK_BYTES = 2 << 20  # all cells of a block are held as texts


class Cells:
    """The cells of the columns of a block that are read: the features in their order, and the other columns by role."""

    def __init__(self, layout: TableLayout, block: Block) -> None:
        self.layout, self._block = layout, block
        own = layout.own_wanted
        texts = parse_texts(layout, block, own)
        texts = self._parse_slowly(own) if texts is None else texts
        found = dict(zip(own, (read_column(array, "", layout.where) for array in texts), strict=True))
        found |= {j: repeat_folder(*layout.folders[j], len(texts[0]), "text") for j in layout.folders}
        columns = [found[j] for j in layout.wanted]
        self.features = columns[: len(layout.features)]
        self.vectors = dict(zip(layout.vectors, columns[len(layout.features) :], strict=True))
        self.n_rows = len(texts[0])

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
            if decimal == "," and role in ("label", "sample_weight"):
                _refuse_points(words, codes, place)
            if role == "label":
                refuse_labels(words, codes, place, self.layout.label_kind, decimal)
                numbers = False if self.layout.label_kind == TEXT else numbers
            values = np.array(words, object) if role == "index" else read_tokens(role, words, numbers, decimal)
            found[role] = values[codes], place
        return found


def _refuse_points(words: Sequence[str], codes: Vector, place: Place) -> None:
    """Raise InputError for a number with a point, where the comma is the decimal mark."""
    for k, word in enumerate(words):
        if explain_text([word], ",") == POINT:
            raise InputError(
                f"{place(int(np.argmax(codes == k)))}: not a number: {show_text(word)!r}; these seem to be {POINT}"
            )


def read_csv_table(
    paths: Sequence[str | Path],
    columns: Columns,
    encoder: TableEncoder,
    block_bytes: int | None = None,
    threads: int = 2,
    opened: OpenTable | None = None,
) -> Generator[SourceRows, None, None]:
    """Yield the rows of CSV text with the codes of their columns, as the encoder reads them; see csv_text.read_csv.

    The first 2 MiB decide the kinds of the columns. Raises InputError with FILE:LINE:COLUMN and reason.
    """
    step = block_bytes or BLOCK_BYTES
    with unjoined_pool(threads, "csv") as pool:

        def parse(blocks: Blocks, numbers: bool | None) -> Parsed:
            blocks, numbers = _settle(blocks, encoder, numbers, step)
            return parse_blocks(blocks, encoder, pool, threads, numbers)

        yield from read_texts(paths, columns, step, opened, parse)


def parse_blocks(
    blocks: Blocks, encoder: TableEncoder, pool: ThreadPoolExecutor, threads: int, numbers: bool | None
) -> Parsed:
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


def _settle(
    blocks: Blocks, encoder: TableEncoder, numbers: bool | None, block_bytes: int
) -> tuple[Blocks, bool | None]:
    """Return the blocks, after the first of them have decided the kinds of the columns, and whether labels are numbers.

    A block that is no table is refused in its turn, and decides nothing.
    """
    if encoder.kinds:
        return blocks, numbers
    first, blocks = look_at_first(blocks, block_bytes)
    found = list[Cells]()
    with suppress(InputError):
        found += (cells for part in first if (cells := Cells(*part)).n_rows)
    if found:
        encoder.settle(first[0][0], [(cells.features, cells.place) for cells in found])
    words = (
        word for cells in found if "label" in cells.vectors for word in cells.vectors["label"].unique().to_pylist()
    )
    return blocks, False if has_texts(words, encoder.asked.decimal) else None


def has_dates(table: OpenTable | None, columns: Columns) -> bool:
    """Tell whether the head of a table has a column of dates among the features, whose encoding is not known."""
    if table is None or columns.features is not None or not _DATE.search(table.rows):
        return False
    with suppress(InputError):  # reading the table reports it
        return "date" in map(find_kind, Cells(table.layout, table.take_head()).features)
    return False


def find_dates(path: str, columns: Columns) -> bool:
    """Tell whether the head of a file has a column of dates; see `has_dates`."""
    with suppress(InputError), open_table(path, columns, None) as table:
        return has_dates(table, columns)
    return False
