"""Columns of an AnnData file that hold labels, and those that cannot."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from streamsvm.data.open import open_dataset
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from tests.data.sources.test_anndata import CELLS, FORMATS, Make, add_array, make, make_rows  # noqa: F401

COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "numbers": (CELLS % 3 - 1, [-1, 0, 1]),
    "floats": (CELLS % 2 * 1.5, [0.0, 1.5]),
    "booleans": (CELLS % 2 == 0, [False, True]),
    "texts": (np.array(["tumour", "normal"])[CELLS % 2], ["normal", "tumour"]),
    "categories": ((CELLS % 2, np.array(["tumour", "normal"])), ["normal", "tumour"]),
    "numbers as categories": ((CELLS % 2, np.array([7, 3])), [3, 7]),
    "categories that do not occur": ((CELLS % 2 * 2, np.array(["z", "y", "a", "b"])), ["a", "z"]),
}


@pytest.mark.parametrize("zarr_format", FORMATS)
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_obs_holds_the_labels(zarr_format: int, name: str, make: Make) -> None:
    values, classes = COLUMNS[name]
    plain = values[1][values[0]] if isinstance(values, tuple) else values
    dataset = open_dataset(make(make_rows(), zarr_format, label=values), "label")
    assert dataset.classes is not None
    assert dataset.classes.tolist() == classes
    assert dataset.class_counts is not None
    assert dataset.class_counts.tolist() == [np.count_nonzero(plain == label) for label in classes]
    parts: list[Any] = [rows.y for k in range(dataset.n_chunks) for rows in dataset.tiles(k)]
    codes = np.concatenate(parts)
    assert codes.dtype == np.int32
    np.testing.assert_array_equal(dataset.classes[codes], plain)
    np.testing.assert_array_equal(dataset.take([5, 2]).y, codes[[5, 2]])


def test_without_a_label_there_are_no_classes(make: Make) -> None:
    dataset = open_dataset(make(make_rows(), label=CELLS % 2))
    assert dataset.classes is None
    assert dataset.read(0).y is None
    with pytest.raises(InputError, match="no labels"):
        train(dataset, TrainOptions())


def test_a_column_that_is_not_there_is_answered_with_those_that_are(make: Make) -> None:
    path = make(make_rows(), kind=CELLS % 2, site=CELLS % 3)
    with pytest.raises(InputError, match=r"no column 'type' in obs; there are _index, kind, site"):
        open_dataset(path, "type")


def add_nullable(path: Path, name: str, values: np.ndarray, mask: np.ndarray) -> None:
    there = zarr.open_group(str(path), mode="a").create_group(f"obs/{name}")
    there.attrs.update({"encoding-type": "nullable-integer", "encoding-version": "0.1.0"})
    add_array(there, "values", values, "array")
    add_array(there, "mask", mask, "array")


def test_a_row_without_a_label_is_named(make: Make) -> None:
    floats = np.where(CELLS == 41, np.nan, CELLS % 2)
    path = make(make_rows(), floats=floats, coded=(np.where(CELLS == 41, -1, 0), np.array(["a"])))
    add_nullable(path, "null", CELLS % 2, CELLS == 41)
    for name in ("floats", "coded", "null"):
        with pytest.raises(InputError, match=rf"a\.zarr/obs/{name}: row 42 \(counted from 1\) has no label"):
            open_dataset(path, name)
    add_nullable(path, "full", CELLS % 2 + 4, CELLS < 0)
    dataset = open_dataset(path, "full")
    assert dataset.classes is not None
    assert dataset.classes.tolist() == [4, 5]


def test_columns_that_are_no_labels_are_refused(make: Make) -> None:
    path = make(make_rows(), short=CELLS[:80])
    obs = zarr.open_group(str(path), mode="a")["obs"]
    obs.create_group("odd").attrs["encoding-type"] = "awkward-array"  # type: ignore[union-attr]
    with pytest.raises(InputError, match="obs/short: has 80 rows, but X has 90"):
        open_dataset(path, "short")
    with pytest.raises(InputError, match="obs/odd: encoding 'awkward-array'"):
        open_dataset(path, "odd")
