"""Zarr arrays and groups of other programs, given as paths, are called what they are, with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import zarr

import streamsvm
from streamsvm.cli.main import main
from streamsvm.system.errors import InputError, IntegrityError

X, Y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
VERSIONS: Any = pytest.mark.parametrize("version", [2, 3])
Version = Literal[2, 3]


def uses(path: Path) -> list[Any]:
    model = streamsvm.LinearSVC().fit(X, Y)
    return [
        lambda: streamsvm.open(path),
        lambda: streamsvm.ingest(path, path.with_name("rows.zarr")),
        lambda: streamsvm.ingest(path, path.with_name("rows.zarr"), Y),
        lambda: streamsvm.LinearSVC().fit(str(path)),
        lambda: streamsvm.LinearSVC().fit(str(path), Y),
        lambda: model.predict(str(path)),
    ]


@VERSIONS
def test_an_array(version: Version, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "array.zarr"
    zarr.create_array(path, data=X, zarr_format=version)
    for use in uses(path):
        with pytest.raises(InputError, match=r"is a Zarr array, .* of shape \(60, 3\), .* pass zarr\.open_array\("):
            use()
    for command in (["info", str(path)], ["train", str(path), "--out", str(tmp_path / "run")]):
        assert main(command) == 2
        assert "is a Zarr array" in capsys.readouterr().err
    streamsvm.LinearSVC().fit(zarr.open_array(path), Y)  # the remedy


@VERSIONS
def test_a_group(version: Version, tmp_path: Path) -> None:
    path = tmp_path / "group.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=version)
    for use in uses(path):
        with pytest.raises(InputError, match="it is a Zarr group without arrays"):
            use()
    group.create_array("rows", data=X)
    group.create_array("kind", data=Y)
    for use in uses(path):
        with pytest.raises(InputError, match=r"a Zarr group with kind \(60,\), rows \(60, 3\): .*\['rows'\]"):
            use()


@VERSIONS
def test_a_store_of_xarray(version: Version, tmp_path: Path) -> None:
    """xarray names dimensions in the metadata of Zarr 3, and in an attribute of Zarr 2."""
    path, names = tmp_path / "x.zarr", ("row", "feature")
    group = zarr.open_group(path, mode="w", zarr_format=version)
    array = group.create_array("sizes", data=X, **({"dimension_names": names} if version == 3 else {}))
    if version == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = list(names)
    for use in uses(path):
        with pytest.raises(InputError, match=r"an xarray store with sizes \(60, 3\): .*open_zarr\(.*\)\['sizes'\]"):
            use()


def test_a_damaged_dataset_is_still_damaged(tmp_path: Path) -> None:
    streamsvm.ingest(X, tmp_path / "rows.zarr", Y)
    (tmp_path / "rows.zarr/zarr.json").write_text("{")
    with pytest.raises(IntegrityError, match="is damaged"):
        streamsvm.open(tmp_path / "rows.zarr")
