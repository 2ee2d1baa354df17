"""Text of other dialects: columns that blanks separate, and quotes that are part of the text, as pandas reads them."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streamsvm.data.sources.csv import open_csv
from streamsvm.data.sources.csv_rows import choose_dialect
from streamsvm.data.sources.parsing import mark_columns
from streamsvm.data.tables.columns import Columns, Dialect
from streamsvm.ingestion.ingest import IngestOptions
from streamsvm.ingestion.on_workers import ingest_on_workers
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import InputError
from tests.ingestion.test_ingest_on_workers import here

__all__ = ["here"]

# As in auto-mpg.data of UCI: aligned numbers, and a tab before the quoted name.
CARS = (
    '18.0   8   307.0   1\t"chevrolet chevelle"\n15.0   8   350.0   1\t"buick"\n  36.1 4   98.00   2\t"ford fiesta"\n'
)
SPACED = Dialect("\t", is_spaced=True)


def read_cells(path: Path, columns: Columns, block_bytes: int) -> list[list[str]]:
    """Return all cells of a table as texts, row by row, as the compiled code and as Python parse them."""
    both = []
    for is_slow in (False, True):
        rows = list[list[str]]()
        with open_csv(str(path), columns, None, block_bytes) as stream:
            for block in stream.cut(True):
                if is_slow:
                    rows += [[cell.strip() for cell in row] for _, row in block._read_rows()]
                elif block.size:
                    rows += [
                        list(row) for row in zip(*(each.to_pylist() for each in block.read_columns()), strict=True)
                    ]
        both.append(rows)
    assert both[0] == both[1]
    return both[0]


@pytest.mark.parametrize("block_bytes", [1, 40, 1 << 20])
@pytest.mark.parametrize(
    "text",
    [
        CARS,
        CARS.replace("\n", " \t \r\n"),
        CARS.replace("\t", "  "),
        'a b\n1 2\n3  "x ""y"" z"\n  "4 5"  \t "6"   \n\n"" 7\n',
    ],
)
def test_blanks_separate_the_columns_as_in_pandas(tmp_path: Path, text: str, block_bytes: int) -> None:
    path = tmp_path / "cars.data"
    path.write_text(text, newline="")
    own = Columns(sep="whitespace", header="no", require_label=False)
    expected = (
        pd.read_csv(io.StringIO(text), sep=r"\s+", header=None, dtype=str, keep_default_na=False).to_numpy().tolist()
    )
    assert read_cells(path, own, block_bytes) == expected


def test_the_length_of_the_text_stays(tmp_path: Path) -> None:
    """Workers find blocks by their bytes, and a block may be marked twice."""
    text = CARS.encode()
    marked = bytes(mark_columns(bytearray(text), True))
    assert len(marked) == len(text)
    assert mark_columns(bytearray(marked), True) == marked


@pytest.mark.parametrize(
    ("head", "path", "dialect"),
    [
        (CARS, "cars.data", SPACED),
        ("1 2 3\n4 5 6\n", "a.csv", SPACED),
        ("# by X\n1  2\n3  4\n", "a", SPACED),
        ("1 2 3", "a.dat", SPACED),
        ("a b\tc d\n1\t2\n", "a.txt", Dialect("\t")),
        ("New York\t5\nSan Diego\t6\n", "a.txt", Dialect("\t")),
        ("2024-01-01 12:00\t5\n2024-01-02 13:00\t6\n", "a.txt", Dialect("\t")),
        ("1 2\t3\n1 2\t3\n", "a.tsv", Dialect("\t")),
        ("some words, more\n1 2,3\n", "a.dat", Dialect(",")),
        ("v w\n1\n2\n", "a.csv", Dialect(",")),
        ("hello world\nspam\n", "a.csv", Dialect(",")),
    ],
)
def test_which_text_has_columns_between_blanks(head: str, path: str, dialect: Dialect) -> None:
    assert choose_dialect(head.encode(), True, path) == dialect


def test_a_row_that_the_head_cuts_does_not_decide() -> None:
    assert choose_dialect(b"1 2 3\n4 5", False, "a.dat") == SPACED
    assert choose_dialect(b"1 2 3\n4 5", True, "a.dat") == Dialect(",")


QUOTED = 'kind\ttext\nham\t"see you" later\nspam\twin "now\nham\t"\nspam\t"all of it"\n'


@pytest.mark.parametrize("block_bytes", [1, 20, 1 << 20])
def test_quotes_are_text_as_in_pandas(tmp_path: Path, block_bytes: int) -> None:
    path = tmp_path / "mails.tsv"
    path.write_text(QUOTED)
    own = Columns(quoting="none", header="yes", require_label=False)
    expected = pd.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE, dtype=str, keep_default_na=False).to_numpy().tolist()
    assert read_cells(path, own, block_bytes) == expected
    with pytest.raises(
        InputError, match=r":2:2: text follows a closing quote: .*; --quoting none reads quotes as text"
    ):
        read_cells(path, Columns(header="yes", require_label=False), block_bytes)


def test_numbers_beside_quotes(tmp_path: Path) -> None:
    """A quote before a number makes it text."""
    path = tmp_path / "rows.csv"
    path.write_text('a,y\n1,0\n"2",1\n')
    assert ingest(path, tmp_path / "rows.zarr", label="y", shuffle=None).read(0).X[:, 0].tolist() == [1, 2]  # type: ignore[index]
    with pytest.raises(InputError, match=r"rows.csv:3:1: column a: not a number: '\"2\"'"):
        ingest(path, tmp_path / "rows.zarr", label="y", quoting="none", overwrite=True)


@pytest.mark.parametrize("how", [{"sep": "blanks"}, {"quoting": "all"}])
def test_refused_values(tmp_path: Path, how: dict[str, Any]) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n1,0\n2,1\n")
    with pytest.raises(InputError, match=r"^(sep 'blanks': .* whitespace|quoting 'all': choose minimal or none)$"):
        ingest(path, tmp_path / "rows.zarr", label="y", **how)


@pytest.mark.parametrize(
    ("name", "text", "how"),
    [("cars.data", CARS, {"header": "no", "label": "4"}), ("mails.tsv", QUOTED, {"quoting": "none", "label": "kind"})],
)
def test_workers_read_the_same_rows(tmp_path: Path, here: None, name: str, text: str, how: dict[str, Any]) -> None:
    path = tmp_path / name
    path.write_text(text)
    columns = Columns(**how, hash_bits=6)
    alone = ingest(path, tmp_path / "alone.zarr", columns=columns)
    both = ingest_on_workers([path], tmp_path / "workers.zarr", columns, IngestOptions())
    assert np.array_equal(both.read(0).X.data, alone.read(0).X.data)  # type: ignore[union-attr]
    assert np.asarray(both.classes).tolist() == np.asarray(alone.classes).tolist()
