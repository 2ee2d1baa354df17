"""Columns in the names of folders, site=1: the rows are those that pandas reads, from every format and place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import dataset as arrow_dataset
from pyarrow import orc

import streamsvm
from streamsvm.data.remote.objects import RemoteFolder
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.tables.columns import Columns, find_folders, read_folders
from streamsvm.ingestion.ingest import IngestOptions
from streamsvm.ingestion.on_workers import ingest_on_workers
from streamsvm.models.evaluate import evaluate
from streamsvm.models.predict import predict
from streamsvm.system.errors import InputError
from tests.data.sources.test_encoded_tables import read_all
from tests.ingestion.test_ingest_on_workers import here
from tests.object_server import ObjectServer
from tests.runs.ingested_files import read_bytes

__all__ = ["here"]
WRITERS: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "parquet": lambda frame, path: frame.to_parquet(path),
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "feather": lambda frame, path: frame.to_feather(path),
    "orc": lambda frame, path: orc.write_table(pa.Table.from_pandas(frame), path),
}
INTEGERS, TEXTS = [3, 1, 2], ["b d/ü", "a=c", "%2"]


def make_frame(sites: list[Any], n_rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"u": rng.normal(size=n_rows).astype(np.float32), "y": np.arange(n_rows) % 2})
    return frame.assign(site=np.array(sites, object)[np.arange(n_rows) * len(sites) // n_rows])


def write_parts(folder: Path, kind: str, sites: list[Any]) -> pd.DataFrame:
    """Write a data set in folders as pandas does, and return it as pandas reads it."""
    parts = folder / "parquet"
    make_frame(sites).to_parquet(parts, partition_cols=["site"])
    for k, path in enumerate(sorted(parts.glob("*/*.parquet")) if kind != "parquet" else ()):
        to = folder / kind / path.parent.name
        to.mkdir(parents=True)
        WRITERS[kind](pd.read_parquet(pa.BufferReader(path.read_bytes())), to / f"{k}.{kind}")
        (to / "_SUCCESS").write_text("")
    return arrow_dataset.dataset(parts, partitioning="hive").to_table().to_pandas()


def encode(frame: pd.DataFrame) -> np.ndarray:
    """The features of pandas' rows: the site last, as a number, or as categories."""
    if not pd.api.types.is_numeric_dtype(frame["site"]):
        return np.column_stack([frame["u"], pd.get_dummies(frame["site"])]).astype(np.float32)
    return frame[["u", "site"]].fillna(0).to_numpy(np.float32)


def count_rows(rows: np.ndarray) -> list[list[float]]:
    return sorted(rows.tolist())


@pytest.mark.parametrize("sites", [INTEGERS, TEXTS, [None, 7, 3], ["x", None, "7"]])
@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("place", ["{}", "{}/**/*.*", "{}/site*/*.*"])
def test_the_rows_are_those_of_pandas(tmp_path: Path, kind: str, sites: list[Any], place: str) -> None:
    """Cell by cell, by folder and by pattern: integers, texts that are escaped, and missing values."""
    frame = write_parts(tmp_path, kind, sites)
    how: dict[str, Any] = {"label": "y", "one_hot": "auto", "missing": "zero"}
    made = streamsvm.ingest(place.format(tmp_path / kind).replace("/*.*", f"/*.{kind}"), tmp_path / "t.zarr", **how)
    assert count_rows(read_all(made)) == count_rows(encode(frame))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_numbers_need_no_option(tmp_path: Path, kind: str) -> None:
    """And files that are named one by one, as by the pattern of a shell, are read as the folder is."""
    frame = write_parts(tmp_path, kind, INTEGERS)
    paths = sorted((tmp_path / kind).glob("*/*.*"))
    for k, source in enumerate((tmp_path / kind, paths)):
        made = streamsvm.ingest(source, tmp_path / f"{k}.zarr", label="y")
        assert made.feature_names == ("u", "site")
        assert count_rows(read_all(made)) == count_rows(encode(frame))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_column_takes_every_role(tmp_path: Path, kind: str) -> None:
    write_parts(tmp_path, kind, INTEGERS)
    parts = tmp_path / kind
    made = streamsvm.ingest(parts, tmp_path / "label.zarr", label="site")
    assert made.classes is not None
    assert (made.classes.tolist(), made.feature_names) == ([1, 2, 3], ("u", "y"))
    assert streamsvm.ingest(parts, tmp_path / "drop.zarr", drop="site").feature_names == ("u",)
    made = streamsvm.ingest(parts, tmp_path / "hot.zarr", one_hot="site")
    assert made.feature_names == ("u", "site=1", "site=2", "site=3")
    assert streamsvm.ingest(parts, tmp_path / "text.zarr", text="site", hash_bits=3).n_features == 9
    made = streamsvm.ingest(parts, tmp_path / "groups.zarr", groups="site")
    assert (made.feature_names, "groups" in made.vectors) == (("u",), True)


def test_kinds_are_those_of_all_files(tmp_path: Path) -> None:
    """The first folder looks like a number, and the column is of text; numbers and dates are found likewise."""
    for paths, expected in (
        (["a=1/x.csv", "a=b/x.csv"], (("a", "text"),)),
        (["a=1/b=2024-01-31/x.csv", "a=0.5/b=2024-02-01/x.csv"], (("a", "number"), ("b", "date"))),
        (["s3://bucket/a%20b=-7/x.csv", "-", "x.csv"], (("a b", "integer"),)),
    ):
        assert find_folders(paths, paths, None) == expected
    assert read_folders("/run=1/parts/site=2/k=%3D/x.csv") == {"site": "2", "k": "="}
    frame = write_parts(tmp_path, "csv", ["1", "b"])
    made = streamsvm.ingest(tmp_path / "csv", tmp_path / "t.zarr", one_hot="auto")
    assert count_rows(read_all(made)) == count_rows(encode(frame))


@pytest.mark.parametrize(("kind", "workers"), [*((kind, False) for kind in WRITERS), ("csv", True), ("parquet", True)])
def test_folders_above_a_single_file_do_not_count(tmp_path: Path, here: None, kind: str, workers: bool) -> None:
    """The runs of a search lie in lr=0.1/, lr=0.2/. A folder and a pattern count, though they hold one file only."""
    folder = tmp_path / "lr=0.1"
    folder.mkdir()
    WRITERS[kind](make_frame([1]).drop(columns="site"), folder / f"0.{kind}")
    features = {}
    for source in (f"{folder}/0.{kind}", f"{tmp_path}/*/0.{kind}", str(tmp_path)):
        if workers:
            made = ingest_on_workers([source], tmp_path / "t.zarr", Columns(label="y"), IngestOptions(overwrite=True))
        else:
            made = streamsvm.ingest(source, tmp_path / "t.zarr", label="y", overwrite=True)
        features[source] = made.feature_names
    assert list(features.values()) == [("u",), ("u", "lr"), ("u", "lr")]


def test_models_read_such_folders(tmp_path: Path) -> None:
    """`predict` and `evaluate` take the folder, the pattern and one file of it; and rows are appended."""
    write_parts(tmp_path, "parquet", TEXTS)
    parts = tmp_path / "parquet"
    made = streamsvm.ingest(parts, tmp_path / "t.zarr", label="site", one_hot="auto")
    assert evaluate(streamsvm.LinearSVC().fit(made).model_, parts)["n_rows"] == 60
    made = streamsvm.ingest(parts, tmp_path / "t.zarr", label="y", one_hot="auto", overwrite=True)
    model = streamsvm.LinearSVC().fit(made).model_
    for k, source in enumerate((parts, f"{parts}/**/*.parquet")):
        assert predict(model, source, tmp_path / f"{k}.csv") == 60
        assert evaluate(model, source) == evaluate(model, made)
    assert predict(model, next(parts.glob("*/*.parquet")), tmp_path / "one.csv") == 20
    assert streamsvm.ingest(parts, tmp_path / "t.zarr", append=True).n_rows == 120


def test_what_conflicts_is_refused(tmp_path: Path) -> None:
    write_parts(tmp_path, "csv", INTEGERS)
    first = tmp_path / "csv" / "site=1"
    pd.DataFrame({"u": [1.0], "y": [0], "site": [5]}).to_csv(first / "0.csv", index=False)
    with pytest.raises(InputError, match=r"site=1/0.csv: column 'site' and folder site=1 clash"):
        streamsvm.ingest(tmp_path / "csv", tmp_path / "t.zarr", label="y")
    (first / "0.csv").unlink()
    make_frame([1]).drop(columns="site").to_csv(tmp_path / "csv" / "zz.csv", index=False)
    with pytest.raises(InputError, match=r"zz.csv: is not in a folder site=VALUE, as other files are"):
        streamsvm.ingest(tmp_path / "csv", tmp_path / "t.zarr", label="y")


def test_formats_without_columns_say_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "site=1").mkdir()
    np.savez(tmp_path / "site=1" / "t.npz", X=np.eye(2), y=np.array([0, 1]))
    with caplog.at_level("WARNING", "streamsvm"):
        streamsvm.ingest(tmp_path, tmp_path / "t.zarr")
    assert "npy files have no columns, so the columns of their folders are ignored: site" in caplog.text


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("sites", [INTEGERS, TEXTS])
def test_workers_write_the_bytes_of_one_process(tmp_path: Path, here: None, kind: str, sites: list[Any]) -> None:
    write_parts(tmp_path, kind, sites)
    columns, options = Columns(label="y", one_hot=("auto",)), IngestOptions(chunk_bytes=700)
    streamsvm.ingest(tmp_path / kind, tmp_path / "alone.zarr", columns=columns, options=options)
    ingest_on_workers([tmp_path / kind], tmp_path / "shared.zarr", columns, options)
    assert read_bytes(tmp_path / "shared.zarr") == read_bytes(tmp_path / "alone.zarr")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("sites", [INTEGERS, TEXTS])
def test_folders_of_a_store(tmp_path: Path, server: ObjectServer, kind: str, sites: list[Any]) -> None:
    frame = write_parts(tmp_path, kind, sites)
    for path in (tmp_path / kind).glob("*/*"):
        server.objects[f"bucket/parts/{path.relative_to(tmp_path / kind)}"] = path.read_bytes()
    for k, url in enumerate(("s3://bucket/parts/", f"s3://bucket/parts/**/*.{kind}", f"s3://bucket/parts/*/*.{kind}")):
        made = streamsvm.ingest(url, tmp_path / f"{k}.zarr", label="y", one_hot="auto")
        assert count_rows(read_all(made)) == count_rows(encode(frame))
    with pytest.raises(InputError, match=r"s3://bucket/parts/\*.csv: no file matches"):
        streamsvm.ingest("s3://bucket/parts/*.csv", tmp_path / "no.zarr")


def test_a_pattern_in_a_store_is_listed_once(
    tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By models, too, which need the format of the files before the files."""
    write_parts(tmp_path, "csv", INTEGERS)
    for path in (tmp_path / "csv").glob("*/*"):
        server.objects[f"bucket/parts/{path.relative_to(tmp_path / 'csv')}"] = path.read_bytes()
    url, listed, list_names = "s3://bucket/parts/*/*.csv", list[str](), RemoteFolder.list_names
    monkeypatch.setattr(RemoteFolder, "list_names", lambda self: listed.append(self.url) or list_names(self))
    made = streamsvm.ingest(url, tmp_path / "t.zarr", label="y")
    model = streamsvm.LinearSVC().fit(made).model_
    assert predict(model, url, tmp_path / "found.csv") == evaluate(model, url)["n_rows"] == 60
    assert listed == ["s3://bucket/parts"] * 3


def test_the_manifest_of_a_plain_folder_is_plain(tmp_path: Path) -> None:
    """Numbers of folders need no encoding, so that nothing is recorded."""
    write_parts(tmp_path, "parquet", INTEGERS)
    made: Dataset = streamsvm.ingest(tmp_path / "parquet", tmp_path / "t.zarr", label="y")
    assert made.encoding is None
    assert "encoding" not in json.dumps(dict(made.meta))
