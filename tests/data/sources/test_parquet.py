"""Parquet as a source."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsvm.data.sources import arrow
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion.readers import guess_bytes, ingest
from streamsvm.system.errors import InputError
from tests.data.pieces import fault_in, listed, read_parquet

ANY = Columns()


def test_parquet_types(tmp_path: Path) -> None:
    """Numbers of all types, categories of numbers, text and category labels; a pandas index is no feature."""
    path = tmp_path / "t.parquet"
    frame = pd.DataFrame({"i": [2**53 + 1, 2, 3], "y": pd.Categorical(["u", "v", "u"]), "b": [True, False, True]})
    frame["f"] = np.array([0.5, 1e-300, -1], np.float64)
    frame["h"] = np.array([1, 2, 3], np.uint8)
    frame["c"] = pd.Categorical([10, 20, 10])
    frame["d"] = [Decimal("1.5")] * 3
    frame["q"], frame["w"] = [2**62 + 1, 1, 1], np.array([0, 0.5, 2], np.float32)
    frame.set_index(pd.Index([5, 6, 7])).to_parquet(path)
    read = listed(read_parquet([path, path], Columns(qid="q", sample_weight="w"), piece_rows=2))
    assert read["names"] == ("i", "b", "f", "h", "c", "d")
    assert read["X"] == [[2**53, 1, 0.5, 1, 10, 1.5], [2, 0, 0, 2, 20, 1.5], [3, 1, -1, 3, 10, 1.5]] * 2
    assert read["labels"] == ["u", "v", "u"] * 2
    assert (read["qid"], read["sample_weight"]) == ([2**62 + 1, 1, 1] * 2, [0, 0.5, 2] * 2)
    assert listed(read_parquet([path], Columns("b", features=("h",))))["labels"] == [1, 0, 1]


def test_whole_numbers_are_rounded_as_numbers_of_text_are(tmp_path: Path) -> None:
    """First to float64, then to float32: 2^60 + 2^36 + 1 becomes 2^60, though 2^60 + 2^37 is nearer."""
    numbers = [2**60 + 2**36 + 1, -(2**60) - 2**36 - 1, 2**53, 2**53 + 1, 16_777_217]
    pq.write_table(pa.table({"a": numbers, "y": [1] * len(numbers)}), tmp_path / "t.parquet")
    read = listed(read_parquet([tmp_path / "t.parquet"], ANY, piece_rows=2))
    assert read["X"] == [[float(np.float32(float(number)))] for number in numbers]
    assert read["X"][0] == [2**60]


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("a", [1.0, None, 2.0], "row 2, column a: missing value"),
        ("a", [1.0, 2.0, np.nan], "row 3, column a: nan"),
        ("a", [1.0, -np.inf, 0.0], "row 2, column a: infinite"),
        ("a", [1.0, 2.0, 1e39], "row 3, column a: overflows float32: 1e+39"),
        ("a", ["1", "2", "3"], "column a: string is not a number"),
        ("a", [None] * 3, "row 1, column a: missing value"),
        ("y", [1.0, None, 2.0], "row 2, column y: label missing or not finite: nan"),
        ("y", ["u", None, "v"], "row 2, column y: label missing: None"),
        ("q", [1.0, 2.0, 2.5], "row 3, column q: query id is not a whole number: 2.5"),
        ("q", [1, None, 2], "row 2, column q: query id is not a whole number: None"),
        ("w", [1.0, -1.0, 2.0], "row 2, column w: sample weight is negative: -1.0"),
    ],
)
@pytest.mark.parametrize("piece_rows", [1, 100])
def test_bad_parquet(tmp_path: Path, column: str, values: list[Any], reason: str, piece_rows: int) -> None:
    """The row is counted from the start of the file."""
    table = {"a": [1, 2, 3], "y": [1, 2, 3], "q": [1, 2, 3], "w": [1, 2, 3]} | {column: values}
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(table), path)
    assert fault_in(read_parquet([path], Columns("y", "q", "w"), piece_rows), path) == reason


def test_parquet_faults(tmp_path: Path) -> None:
    """Files that are damaged or empty, other columns, labels of another kind."""
    first, other = tmp_path / "t.parquet", tmp_path / "other.parquet"
    pq.write_table(pa.table({"y": [1.0] * 999, "a": [2.0] * 999}), first)
    for table, reason in (
        ({"a": [1.0], "y": [1]}, "its columns differ from those of the first file"),
        ({"y": ["u"], "a": [1]}, "row 1, column y: labels were numbers so far, but this is text: u"),
        ({"y": pa.array([], "double"), "a": pa.array([], "double")}, "no rows"),
        ({"y": pa.array([1.0]), "a": pa.array([[1.0]])}, "column a: list<element: double> is neither a number nor"),
    ):
        pq.write_table(pa.table(table), other)
        assert fault_in(read_parquet([first, other], ANY), other).startswith(reason)
    pq.write_table(pa.table({"y": ["u"], "a": [1]}), other)
    reason = "row 1, column y: labels were text so far, but this is a number: 1.0"
    assert fault_in(read_parquet([other, first], ANY), first) == reason
    packed = first.read_bytes()
    for spoiled in (packed[:-20], packed[:50] + bytes(len(packed) - 50), b"\xff" * 60 + packed[60:]):
        other.write_bytes(spoiled)
        assert fault_in(read_parquet([other], ANY), other)


def test_wide_parquet_has_fewer_rows_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of a piece are bounded, not its rows alone."""
    monkeypatch.setattr(arrow, "PIECE_BYTES", 8 * 10 * 7)
    pq.write_table(pa.table({f"c{j}": range(30) for j in range(10)}), tmp_path / "t.parquet")
    pieces = read_parquet([tmp_path / "t.parquet"], Columns(require_label=False))
    assert [rows.n_rows for rows in pieces] == [7, 7, 7, 7, 2]


def test_the_rows_of_a_packed_file_are_guessed_from_its_footer(tmp_path: Path) -> None:
    """Of a file that is damaged, or whose footer tells of more rows than one believes, its size tells."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({name: np.random.default_rng(0).integers(7, size=200_000) for name in "abcy"}), path)
    size = path.stat().st_size
    assert size < 4 * 4 * 200_000 / 3 < guess_bytes([path]) == 4 * 4 * 200_000
    pq.write_table(pa.table({name: np.zeros(2_000_000) for name in "abcy"}), path, compression="zstd")
    size = path.stat().st_size
    assert guess_bytes([path, path]) == 2 * 64 * size < 4 * 4 * 2_000_000
    path.write_bytes(path.read_bytes()[:-9])
    assert guess_bytes([path]) == size - 9


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        (pa.array([[1.0, 2.0]] * 4), r"streamsvm\.ingest in Python takes lists"),
        (pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float64(), 2)), r"streamsvm\.ingest in Python takes lists"),
        (pa.array([{"u": 1.0}] * 4), r"Table\.flatten\(\) of pyarrow"),
        (pa.array([1, 2, 3, 4], pa.time32("s")), "as a number, such as the seconds"),
        (pa.array([1, 2, 3, 4], pa.duration("s")), "as a number, such as the seconds"),
        (pa.array([b"1", b"2", b"3", b"4"]), "omit it by --drop a"),
    ],
)
def test_types_that_no_option_encodes(tmp_path: Path, values: pa.Array, remedy: str) -> None:
    """The remedy is one that works: no option makes features of such a column, and without it the rest is read."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": values, "b": [1.0, 2, 3, 4], "c": ["u", "v", "u", "v"], "y": [0, 1, 0, 1]}), path)
    for how in ({}, {"one_hot": "auto"}, {"hash_bits": 4}):
        with pytest.raises(InputError, match=rf"column a: .*{remedy}") as told:
            ingest(path, tmp_path / "t.zarr", **how)  # type: ignore[arg-type]
        assert "one-hot" not in str(told.value)
    assert ingest(path, tmp_path / "t.zarr", drop="a", one_hot="auto").n_features == 3
