"""Frames of polars: categories, Python objects and dates have the features of the same columns in pandas."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm
from streamsvm.data.store.dataset import Dataset
from streamsvm.system.errors import InputError

polars: Any = pytest.importorskip("polars")
SIZE, WORDS, DAYS = np.arange(60.0) % 7, ["x", "y", "z"] * 20, [date(2020, 1, 1), date(2024, 2, 29)] * 30
KINDS = {"String": polars.String, "Categorical": polars.Categorical, "Enum": polars.Enum(["z", "y", "x"])}


def make(**columns: Any) -> Any:
    return polars.DataFrame({"size": SIZE, **columns, "label": np.arange(60) % 2})


def read(data: Dataset) -> np.ndarray:
    return np.asarray(data.read(0).X)


@pytest.mark.parametrize("kind", ["Categorical", "Enum"])
@pytest.mark.parametrize("written", ["frame", "arrow", "parquet"])
def test_categories_are_read_as_texts(kind: str, written: str, tmp_path: Path) -> None:
    frame = make(word=polars.Series(WORDS, dtype=KINDS[kind]))
    plain = streamsvm.ingest(make(word=WORDS), tmp_path / "plain.zarr", label="label", one_hot="auto")
    source: Any = tmp_path / f"rows.{written}"
    if written == "frame":
        source = frame
    else:
        frame.write_ipc(source) if written == "arrow" else frame.write_parquet(source)
    data = streamsvm.ingest(source, tmp_path / "rows.zarr", label="label", one_hot="auto")
    assert data.feature_names == plain.feature_names == ("size", "word=x", "word=y", "word=z")
    np.testing.assert_array_equal(read(data), read(plain))
    grouped = streamsvm.ingest(source, tmp_path / "groups.zarr", label="label", groups="word")
    assert len(np.unique(grouped.column("groups"))) == 3
    classes = streamsvm.ingest(source, tmp_path / "classes.zarr", label="word").classes
    assert classes is not None
    assert classes.tolist() == ["x", "y", "z"]


def test_objects_have_the_types_of_their_values(tmp_path: Path) -> None:
    typed = streamsvm.ingest(make(day=DAYS), tmp_path / "typed.zarr", label="label")
    data = streamsvm.ingest(make(day=polars.Series(DAYS, dtype=polars.Object)), tmp_path / "d.zarr", label="label")
    np.testing.assert_array_equal(read(data), read(typed))
    mixed = polars.Series([date(2020, 1, 1), "x"] * 30, dtype=polars.Object)
    with pytest.raises(InputError, match="X: column day: its values are not of one type"):
        streamsvm.ingest(make(day=mixed), tmp_path / "mixed.zarr", label="label")


def test_columns_that_an_estimator_does_not_take_are_named() -> None:
    labels = np.arange(60) % 2
    words = make(word=polars.Series(WORDS, dtype=polars.Categorical)).drop("label")
    with pytest.raises(InputError, match=r"X: column word must hold numbers .* with one_hot='auto' for text, and"):
        streamsvm.LinearSVC().fit(words, labels)
    with pytest.raises(InputError, match="X: has values of the type Date, not numbers"):
        streamsvm.LinearSVC().fit(make(day=DAYS).drop("label"), labels)
