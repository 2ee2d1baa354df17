"""A file format is its reader and a line in the table: ingest and the command line take all else from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from streamsvm.cli.arguments import make_parser
from streamsvm.data.rows.source import SourceRows
from streamsvm.data.sources.formats import FORMATS, Format, Paths, guess_format
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import InputError


def read_lengths(paths: Paths, columns: Columns) -> Iterator[SourceRows]:
    """Yield a row for each line: its length, and its first letter as the label."""
    for path in paths:
        lines = Path(path).read_text().splitlines()
        X = np.array([[len(line)] for line in lines], np.float32)
        yield SourceRows(X, np.array([line[0] for line in lines]))


def test_a_new_format_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "lengths", Format((".len",), (), read_lengths, "lengths of lines"))
    (tmp_path / "rows.len").write_text("ab\nbcd\nb\n")
    dataset = ingest(tmp_path / "rows.len", tmp_path / "rows.zarr", shuffle=None)
    assert dataset.read(0).X[:, 0].tolist() == [2, 3, 1]  # type: ignore[index]
    assert np.asarray(dataset.classes).tolist() == ["a", "b"]
    options = make_parser().parse_args(["ingest", "rows", "rows.zarr", "--format", "lengths"])
    assert options.format == "lengths"


def test_names_tell_the_format() -> None:
    told = {
        "a.csv": "csv",
        "A.TSV.gz": "csv",
        "A.CSV.GZ": "csv",
        "A.Parquet": "parquet",
        "a.pq": "parquet",
        "a.npz": "npy",
        "a.svm.xz": "svmlight",
        "A.SVM.BZ2": "svmlight",
        "-": "svmlight",
    }
    assert {name: guess_format(name) for name in told} == told


@pytest.mark.parametrize(
    ("text", "told"), [("y a b\n1 2 3\n", "csv"), ("1 1:2\n", "svmlight"), ('{"y": 1}\n', "jsonl"), ("1\n", "svmlight")]
)
def test_a_byte_order_mark_does_not_hide_the_format(text: str, told: str, tmp_path: Path) -> None:
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / "rows.txt").write_text(text, encoding)
        assert guess_format(tmp_path / "rows.txt") == told


@pytest.mark.parametrize(
    "name", ["book.xlsx", "rows.json", "rows.json.gz", "rows.PKL", "rows.zip", "a.arff", "a.mtx", "a.mat", "a.FCS"]
)
def test_files_that_no_reader_takes_are_not_taken_for_text(tmp_path: Path, name: str) -> None:
    """Their endings are known, so that the message says what to do; --format reads text of whatever name."""
    path = tmp_path / name
    path.write_text("1 1:2\n2 1:3\n")
    with pytest.raises(InputError, match=f"{name}: .* files are not read: .*; for text in another format, use"):
        ingest(path, tmp_path / "rows.zarr")
    if not name.endswith("gz"):
        assert ingest(path, tmp_path / "rows.zarr", file_format="svmlight").n_rows == 2
