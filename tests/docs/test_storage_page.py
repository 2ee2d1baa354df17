"""What docs/internals/storage_format.md says of the data on disk is what `ingest` writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy.sparse import csr_array

from streamsvm.ingestion.readers import ingest
from tests.conftest import ROOT


def read_array_table() -> dict[str, tuple[str, str]]:
    """Shape and type of each array of the page's table."""
    page = (ROOT / "docs" / "internals" / "storage_format.md").read_text()
    rows = re.findall(r"^\| (`[Xysq].*) \| (\(.*\)) \| ([a-z0-9, ]+) \|", page, re.M)
    found = {}
    for names, shapes, types in rows:
        each = re.findall(r"`([^`]+)`", names)
        shape = re.findall(r"\(([^)]*)\)", shapes)
        kinds = types.split(", ")
        for k, name in enumerate(each):
            found[name] = (shape[min(k, len(shape) - 1)], kinds[min(k, len(kinds) - 1)])
    return found


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_arrays_are_as_in_the_table(layout: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X: Any = random.normal(size=(50, 4)) * (random.random((50, 4)) < 0.5)
    items = np.count_nonzero(X)
    rows, scale = (X, "standard") if layout == "dense" else (csr_array(X), "maxabs")
    y, weight, qid = np.arange(50) % 2, np.ones(50), np.arange(50)
    ingest(rows, tmp_path / "d.zarr", y, sample_weight=weight, qid=qid, scale=scale, layout=layout)
    group, table = zarr.open_group(str(tmp_path / "d.zarr"), mode="r"), read_array_table()
    sizes = {"rows": 50, "features": 4, "items": items, "rows + 1": 51}
    others = ("X",) if layout == "sparse" else ("X/data", "X/indices", "X/indptr")
    wanted = {name: entry for name, entry in table.items() if name not in others}
    assert len(wanted) == (8 if layout == "sparse" else 6)
    for name, (shape, kind) in wanted.items():
        array = group[name]
        assert isinstance(array, zarr.Array)
        expected = tuple(sizes[size] for size in shape.removesuffix(",").split(", "))
        assert (array.shape, str(array.dtype)) == (expected, kind), name
    about: Any = group.attrs["streamsvm"]
    assert set(wanted) == set(about["arrays"])
    assert {"format", "classes", "class_counts", "feature_names", "chunk_starts", "scaling", "source"} <= set(about)
    assert {"shuffle", "sha256"} <= set(about)
