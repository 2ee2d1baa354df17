"""Dates in another form than 2024-12-31, as `strptime` reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamsvm
from streamsvm.system.errors import InputError


def read_days(source: Any, folder: Path, **how: Any) -> list[float]:
    dataset = streamsvm.ingest(source, folder / "rows.zarr", label="y", shuffle=None, overwrite=True, **how)
    return np.asarray(dataset.read(0).X)[:, 0].tolist()


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("%d.%m.%Y", ["31.12.2024", "1.2.1969"]),
        ("%m/%d/%y", ["12/31/24", "2/1/99"]),
        ("%d %b %Y %H:%M", ["31 Dec 2024 18:00", "01 Feb 2024 06:00"]),
        ("%Y-%d-%m", ["2024-01-02", "2024-03-04"]),
        ("%d/%m/%Y %H:%M:%S.%f", ["31/12/2024 12:00:00.500000", "01/02/2024 00:00:00.0"]),
        ("%Y%m%d", ["20241231", "20240201"]),
    ],
)
def test_dates_are_those_of_pandas(tmp_path: Path, pattern: str, texts: list[str]) -> None:
    frame = pd.DataFrame({"day": texts, "y": [0, 1]})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    expected = (pd.to_datetime(frame.day, format=pattern) - pd.Timestamp(0)) / pd.Timedelta(days=1)
    for source in (tmp_path / "rows.csv", frame):
        days = read_days(source, tmp_path, date_format=pattern, **({"date": "day"} if pattern == "%Y%m%d" else {}))
        assert days == expected.astype(np.float32).tolist()


def test_times_with_a_zone_and_missing_values(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("day,y\n02.01.1970 02:00 +0200,0\nNA,1\n03.01.1970 00:00 +0000,1\n")
    how = {"date_format": "%d.%m.%Y %H:%M %z", "missing": "zero"}
    assert read_days(tmp_path / "rows.csv", tmp_path, **how) == [1, 0, 2]


@pytest.mark.parametrize("word", ["31.02.2024", "2024-03-02", "02.01.24", "3.1.2024 x"])
def test_a_cell_of_another_form_is_named_with_its_place(tmp_path: Path, word: str) -> None:
    (tmp_path / "rows.csv").write_text(f"y,day\n0,02.01.2024\n1,03.01.2024\n1,{word}\n")
    with pytest.raises(InputError, match=rf"rows.csv:4:2: column day: not a date %d.%m.%Y: '{word}'; --date-format"):
        read_days(tmp_path / "rows.csv", tmp_path, date_format="%d.%m.%Y", date="day")


def test_a_form_that_no_column_has_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("name,day,y\nu,02.01.2024,0\nv,03.01.2024,1\n")
    with pytest.raises(InputError, match=r"no column of text has dates of the form %Y.%m.%d \(--date-format\)$"):
        read_days(tmp_path / "rows.csv", tmp_path, date_format="%Y.%m.%d")


@pytest.mark.parametrize("pattern", ["%Q", "", "day", "%d.%m.", "%d %d %Y", "%H:%M"])
def test_patterns_without_a_date_are_refused(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "rows.csv").write_text("day,y\n1,0\n2,1\n")
    with pytest.raises(InputError, match=r"^date_format .*: give a pattern of strptime, with a year: %d.%m.%Y$"):
        read_days(tmp_path / "rows.csv", tmp_path, date_format=pattern)
