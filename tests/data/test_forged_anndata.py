"""AnnData files that are wrong: errors name file, array and reason, and nothing is computed with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy.sparse import csr_array

from streamsvm.cli.info import verify
from streamsvm.data.open import open_dataset
from streamsvm.models.model import LinearModel
from streamsvm.models.score import score
from streamsvm.system.errors import InputError
from tests.data.conftest import make_rows

FORMATS = (2, 3)


def make(path: Path, zarr_format: Any = 3, **arrays: Any) -> Path:
    """Write 200 sparse rows with a categorical column; arrays: in place of those that belong there, None: left out."""
    X = csr_array(make_rows(0))
    codes = {"codes": np.arange(200, dtype=np.int8) % 3, "categories": np.array([10, 20, 30])}
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, **codes, "shape": [200, 6], **arrays}
    group = zarr.open_group(str(path), mode="w", zarr_format=zarr_format)
    there = group.create_group("X")
    there.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": parts.pop("shape")})
    column = group.create_group("obs").create_group("cell")
    for name, values in parts.items():
        if values is not None:
            (column if name in codes else there).create_array(name, data=values)
    return path


def insert(values: Any, at: int, value: Any, dtype: Any = None) -> Any:
    changed = np.array(values, dtype)
    changed[at] = value
    return changed


X = csr_array(make_rows(0))
CODES = np.arange(200) % 3
WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "a code beyond the categories": ("obs/cell: row 8 .* code 3, but there are 3 cat", {"codes": insert(CODES, 7, 3)}),
    "a large code": ("obs/cell: row 8 .* code 255", {"codes": insert(CODES, 7, 255, np.uint8)}),
    "a missing label": ("obs/cell: row 8 .* has no label", {"codes": insert(CODES, 7, -1)}),
    "a very negative code": ("obs/cell: row 8 .* has no label", {"codes": insert(CODES, 7, -(2**40))}),
    "codes with a point": ("obs/cell/codes: holds float64; whole numbers are expected", {"codes": CODES * 1.0}),
    "codes in two dimensions": ("obs/cell/codes: has 2 dimensions", {"codes": np.zeros((200, 2), np.int8)}),
    "too few codes": ("obs/cell: has 199 rows, but X has 200", {"codes": CODES[1:]}),
    "no categories": ("obs/cell/categories/.*: missing", {"categories": None}),
    "categories in two dimensions": ("categories: has 2 dimensions", {"categories": np.zeros((3, 3))}),
    "complex categories": ("complex128, which cannot be read", {"categories": np.array([1j, 2, 3])}),
    "a category that is no number": ("a label is NaN", {"categories": np.array([1.0, np.nan, 3.0])}),
    "no shape": ("X: its shape is None", {"shape": None}),
    "a shape of texts": ("X: its shape is", {"shape": ["200", "6"]}),
    "a shape of three": ("X: its shape is", {"shape": [200, 6, 1]}),
    "a negative shape": ("X: its shape is", {"shape": [200, -6]}),
    "very many features": ("X: its shape is", {"shape": [200, 2**31]}),
    "other rows": ("X: indptr has 200 rows, but the shape has 300", {"shape": [300, 6]}),
    "fewer features": ("X/indices.*: a column is outside 0..4", {"shape": [200, 5]}),
    "no indptr": ("X/indptr/.*: missing", {"indptr": None}),
    "row limits that descend": ("indptr does not ascend", {"indptr": insert(X.indptr, 9, 0)}),
    "a row limit beyond": ("indptr does not ascend", {"indptr": insert(X.indptr, 200, 10**6)}),
    "a first row limit": ("indptr does not ascend", {"indptr": insert(X.indptr, 0, 1)}),
    "a last row limit": ("indptr does not ascend", {"indptr": insert(X.indptr, 200, X.nnz - 1)}),
    "a row limit of 2^63": ("indptr does not ascend", {"indptr": insert(X.indptr, 9, 2**63 + 5, np.uint64)}),
    "row limits with a point": ("X/indptr: holds float64; whole numbers are expected", {"indptr": X.indptr * 1.0}),
    "row limits in two dimensions": ("X/indptr: has 2 dimensions", {"indptr": X.indptr[None, :]}),
    "fewer columns than items": ("indptr does not ascend", {"indices": X.indices[:-1]}),
    "columns with a point": ("X/indices: holds float64; whole numbers are expected", {"indices": X.indices * 1.0}),
    "complex items": ("X/data: holds complex64; numbers are expected", {"data": X.data * 1j}),
    "an item that is no number": ("X/data: contains NaN", {"data": insert(X.data, 5, np.nan)}),
    "an infinite item": ("X/data: contains NaN, infinity", {"data": insert(X.data, 5, np.inf)}),
}


@pytest.mark.parametrize("zarr_format", FORMATS)
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str, zarr_format: int, tmp_path: Path) -> None:
    message, arrays = WRONG[name]
    path = make(tmp_path / "a.zarr", zarr_format, **arrays)
    with pytest.raises(InputError, match=message) as caught:
        verify(open_dataset(path, "cell"))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("zarr_format", FORMATS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64, np.int16, np.int64])
def test_limits_and_columns_of_any_width_are_read(dtype: Any, zarr_format: int, tmp_path: Path) -> None:
    rows = csr_array(make_rows(0)[:40])
    narrow = {"indices": rows.indices.astype(dtype), "indptr": rows.indptr.astype(dtype)}
    path = make(tmp_path / "a.zarr", zarr_format, data=rows.data, codes=CODES[:40], shape=[40, 6], **narrow)
    dataset = open_dataset(path, "cell")
    assert verify(dataset) == {"verified_rows": 40, "verified": False}
    model = LinearModel(coef=np.arange(6.0), intercept=0.0, classes=np.array([10, 20]))
    scores = np.concatenate([part.scores.copy() for part in score(model, str(path))])
    np.testing.assert_allclose(scores, rows.toarray().astype(float) @ np.arange(6.0), rtol=1e-6)


def write_metadata(name: str, content: Any) -> Callable[[Path], Any]:
    text = content if isinstance(content, str) else json.dumps(content)
    return lambda path: path.joinpath(name).write_text(text)


@pytest.mark.parametrize("name", ["X", "X/data", "X/indptr", "obs", "obs/cell", "obs/cell/codes"])
@pytest.mark.parametrize("content", ["", "{", "[]", "null", "[" * 100_000, '{"zarr_format": 3, "node_type": "array"}'])
def test_damaged_metadata_are_named(name: str, content: str, tmp_path: Path) -> None:
    path = make(tmp_path / "a.zarr")
    write_metadata(f"{name}/zarr.json", content)(path)
    with pytest.raises(InputError) as caught:
        open_dataset(path, "cell")
    assert f"{path}/{name}" in str(caught.value)


@pytest.mark.parametrize("name", ["X", "obs"])
def test_an_array_in_place_of_a_group_is_named(name: str, tmp_path: Path) -> None:
    path = make(tmp_path / "a.zarr")
    group = zarr.open_group(str(path), mode="a")
    group.create_array(name, data=np.arange(5), overwrite=True)
    with pytest.raises(InputError, match=rf"a\.zarr/{name}: (has 1 dimension,|is an array)"):
        open_dataset(path, "cell")
