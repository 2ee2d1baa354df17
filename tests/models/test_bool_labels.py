"""Labels that are booleans are the classes False and True by every door, and in predictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet as pyarrow_parquet
import pytest

import streamsvm
from streamsvm import LinearSVC
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion.ingest import IngestOptions
from streamsvm.ingestion.on_workers import ingest_on_workers
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import load
from streamsvm.models.predict import predict
from tests.ingestion.test_ingest_on_workers import here

__all__ = ["here"]
X = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
Y = X[:, 0] > 0
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})


def write(path: Path) -> Path:
    writers = {".csv": FRAME.to_csv, ".parquet": FRAME.to_parquet, ".arrow": FRAME.to_feather}
    if path.suffix == ".jsonl":
        FRAME.to_json(path, orient="records", lines=True)
    else:
        writers[path.suffix](path, **({"index": False} if path.suffix == ".csv" else {}))
    return path


def from_dask(folder: Path) -> Dataset:
    array = pytest.importorskip("dask.array")
    return streamsvm.ingest(array.from_array(X, 10), folder / "d.zarr", array.from_array(Y, 10))


DOORS: dict[str, Callable[[Path], Dataset]] = {
    **{
        name: lambda folder, name=name: streamsvm.ingest(write(folder / f"rows.{name}"), folder / "d.zarr", label="y")
        for name in ("csv", "jsonl", "parquet", "arrow")
    },
    "workers": lambda folder: ingest_on_workers(
        [write(folder / "rows.csv")], folder / "d.zarr", Columns(label="y"), IngestOptions()
    ),
    "array": lambda folder: streamsvm.ingest(X, folder / "d.zarr", Y),
    "objects": lambda folder: streamsvm.ingest(X, folder / "d.zarr", Y.astype(object)),
    "blocks": lambda folder: streamsvm.ingest(((X[i::4], Y[i::4]) for i in range(4)), folder / "d.zarr"),
    "frame": lambda folder: streamsvm.ingest(FRAME, folder / "d.zarr", label="y"),
    "arrow table": lambda folder: streamsvm.ingest(pyarrow.Table.from_pandas(FRAME), folder / "d.zarr", label="y"),
    "dask": from_dask,
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_booleans_stay_booleans(tmp_path: Path, door: str, request: pytest.FixtureRequest) -> None:
    if door == "workers":
        request.getfixturevalue("here")
    data = DOORS[door](tmp_path)
    assert data.classes is not None
    assert data.classes.dtype == np.bool_
    model = LinearSVC().fit(data)
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    rows = FRAME[["a", "b"]] if hasattr(model, "feature_names_in_") else X
    for each in (model, loaded):
        assert each.classes_.tolist() == [False, True]
        assert each.classes_.dtype == each.predict(rows).dtype == np.bool_
    assert (loaded.predict(rows) == Y).mean() > 0.9


def test_predictions_in_files(tmp_path: Path) -> None:
    LinearSVC().fit(streamsvm.ingest(write(tmp_path / "rows.csv"), tmp_path / "d.zarr", label="y")).save(
        tmp_path / "m.npz"
    )
    model = load(tmp_path / "m.npz")
    for name in ("out.csv", "out.npy", "out.parquet"):
        predict(model, tmp_path / "rows.csv", tmp_path / name)
    expected = np.load(tmp_path / "out.npy")
    assert expected.dtype == np.bool_
    assert pd.read_csv(tmp_path / "out.csv").label.tolist() == expected.tolist()
    assert pyarrow_parquet.read_table(tmp_path / "out.parquet")["label"].to_pylist() == expected.tolist()
    assert evaluate(model, tmp_path / "rows.csv")["classes"].keys() == {"False", "True"}


def test_rows_with_0_and_1_can_be_appended_and_evaluated(tmp_path: Path) -> None:
    write(tmp_path / "rows.csv")
    FRAME.assign(y=Y.astype(int)).to_csv(tmp_path / "numbers.csv", index=False)
    streamsvm.ingest(tmp_path / "rows.csv", tmp_path / "d.zarr", label="y")
    data = streamsvm.ingest(tmp_path / "numbers.csv", tmp_path / "d.zarr", append=True)
    assert np.asarray(data.classes).tolist() == [False, True]
    LinearSVC().fit(data).save(tmp_path / "m.npz")
    scores = [
        evaluate(load(tmp_path / "m.npz"), tmp_path / name, Columns(label="y")) for name in ("rows.csv", "numbers.csv")
    ]
    assert scores[0]["accuracy"] == scores[1]["accuracy"] > 0.9


@pytest.mark.parametrize("labels", ["True,1,False", "true,false,0.5"])
def test_booleans_among_numbers_are_numbers(tmp_path: Path, labels: str) -> None:
    rows: Any = "".join(f"{k},{label}\n" for k, label in enumerate(labels.split(",")))
    (tmp_path / "rows.csv").write_text(f"a,y\n{rows}")
    found = np.asarray(streamsvm.ingest(tmp_path / "rows.csv", tmp_path / "d.zarr", label="y").classes)
    assert found.dtype.kind in "if"


def test_targets_of_booleans_are_numbers(tmp_path: Path) -> None:
    data = streamsvm.ingest(write(tmp_path / "rows.csv"), tmp_path / "d.zarr", label="y", regression=True, shuffle=None)
    assert np.asarray(data.column("target")).tolist() == Y.astype(float).tolist()
