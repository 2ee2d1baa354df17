"""Tables that Arrow reads: a table has the same features in every format, and faults are named with their place."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv, feather, ipc, orc, parquet

import streamsvm
from streamsvm.data.sources import arrow
from streamsvm.models.model import load
from streamsvm.models.predict import predict
from streamsvm.models.score import score
from streamsvm.system.errors import InputError
from streamsvm.train import TrainOptions, train
from tests.conftest import run_python
from tests.data.sources.test_encoded_tables import KEEP, expect, make_frame, read_all


def to_table(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


def as_categories(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(work=frame["work"].astype("category"), income=frame["income"].astype("category"))


def _write_stream(frame: pd.DataFrame, path: Path) -> None:
    with ipc.new_stream(path, to_table(frame).schema) as stream:
        stream.write_table(to_table(frame), max_chunksize=70)


def _write_lines(frame: pd.DataFrame, path: Path, **options: Any) -> None:
    frame.to_json(path, orient="records", lines=True, date_format="iso", date_unit="s", **options)


WRITERS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "t.parquet": lambda frame, path: parquet.write_table(to_table(as_categories(frame)), path, row_group_size=70),
    "t.feather": lambda frame, path: feather.write_feather(as_categories(frame), path, chunksize=70),
    "t.arrow": _write_stream,
    "t.orc": lambda frame, path: orc.write_table(to_table(frame), path),
    "t.jsonl": _write_lines,
    "t.ndjson.gz": _write_lines,
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("missing", ["mean", "indicator"])
def test_features_are_those_of_scikit_learn(
    name: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "PIECE_ROWS", 33)
    monkeypatch.setattr(arrow, "LINES_BYTES", 4000)
    frame = make_frame()
    WRITERS[name](frame, tmp_path / name)
    given = {"index": "id", "missing": missing, "one_hot": "auto"}
    dataset = streamsvm.ingest(tmp_path / name, tmp_path / "t.zarr", **given, **KEEP)
    np.testing.assert_allclose(read_all(dataset), expect(frame, missing), rtol=1e-6)
    assert dataset.classes is not None
    assert dataset.classes.tolist() == ["<=50K", ">50K"]


@pytest.mark.parametrize("name", WRITERS)
def test_a_model_takes_any_format(name: str, tmp_path: Path) -> None:
    """The scores of a table are the same whatever it is written in."""
    frame, new = make_frame(), make_frame(1)
    for each, path in ((frame, tmp_path / "t.csv"), (new, tmp_path / "new.csv")):
        each.to_csv(path, index=False)
    given = {"index": "id", "missing": "mean", "one_hot": ["work"], "hash_bits": 4}
    train(streamsvm.ingest(tmp_path / "t.csv", tmp_path / "t.zarr", **given, **KEEP), TrainOptions(), tmp_path / "run")
    WRITERS[name](new, tmp_path / name)
    model = load(tmp_path / "run")
    parts = list(score(model, tmp_path / name))
    wanted = np.concatenate([part.scores for part in score(model, tmp_path / "new.csv")])
    np.testing.assert_allclose(np.concatenate([part.scores for part in parts]), wanted, rtol=1e-9)
    predict(model, tmp_path / name, tmp_path / "p.csv")
    assert pd.read_csv(tmp_path / "p.csv")["name"].tolist() == new["id"].tolist()


def test_dates_need_no_option(tmp_path: Path) -> None:
    frame = make_frame()[["joined", "income"]]
    frame.to_csv(tmp_path / "t.csv", index=False)
    parquet.write_table(to_table(frame), tmp_path / "t.parquet")
    days = (frame["joined"] - pd.Timestamp("1970-01-01")).dt.days
    for name in ("t.csv", "t.parquet"):
        dataset = streamsvm.ingest(tmp_path / name, tmp_path / "t.zarr", overwrite=True, **KEEP)
        assert read_all(dataset)[:, 0].tolist() == days.tolist()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_of_all_times_that_a_type_holds(unit: str, tmp_path: Path) -> None:
    """Those beyond the microseconds of 64 bits, too, which lie in the year 294,247."""
    counts = np.array([2**62, -(2**62), 86_400], np.int64)
    table = pa.table({"a": pa.array(counts, pa.timestamp(unit)), "y": [0, 1, 1]})
    feather.write_feather(table, tmp_path / "t.feather")
    dataset = streamsvm.ingest(tmp_path / "t.feather", tmp_path / "t.zarr", shuffle=None)
    day = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    np.testing.assert_allclose(read_all(dataset)[:, 0], counts / day, rtol=1e-6)


def test_compressed_lines_that_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"y": 1, "a": 2}\n')[:-4])
    with pytest.raises(InputError, match="the compressed data are truncated"):
        streamsvm.ingest(path, tmp_path / "t.zarr")


@pytest.mark.parametrize("name", ["t.arrow", "t.orc", "t.jsonl"])
def test_numbers_alone_are_recorded_as_before(name: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"y": [0, 1, 1], "a": [1.5, 2.5, -1.0], "b": [True, False, True]})
    WRITERS[name](frame, tmp_path / name)
    dataset = streamsvm.ingest(tmp_path / name, tmp_path / "t.zarr", shuffle=None)
    assert (dataset.encoding, dataset.feature_names, dataset.meta["format"]) == (None, ("a", "b"), 2)
    assert read_all(dataset).tolist() == [[1.5, 1], [2.5, 0], [-1, 1]]


LINES = '{"y": 0, "a": 1}\n\n{"y": 1, "a": %s}\n'
FAULTS = [
    ("null", {}, "line 3, column a: missing value; ingest --missing"),
    ('"u"', {}, "JSON parse error: Column(/a) changed from number to string"),
    ("1e99", {}, "line 3, column a: overflows float32: 1e+99"),
    ("[1]", {}, "JSON parse error: Column(/a) changed from number to array"),
    ("{", {}, "line 3: JSON parse error"),
]


@pytest.mark.parametrize(("value", "given", "wanted"), FAULTS)
def test_faults_of_json_lines(value: str, given: dict[str, Any], wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(LINES % value)
    with pytest.raises(InputError) as caught:
        streamsvm.ingest(path, tmp_path / "t.zarr", **given)
    assert wanted in str(caught.value)
    assert str(caught.value).startswith(f"{path}: line 3")


@pytest.mark.parametrize("name", ["t.arrow", "t.orc", "t.feather"])
def test_a_damaged_file_is_refused(name: str, tmp_path: Path) -> None:
    WRITERS[name](make_frame(), tmp_path / name)
    content = (tmp_path / name).read_bytes()
    for damaged in (content[:50], b"nonsense", b""):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(InputError, match=name):
            streamsvm.ingest(tmp_path / name, tmp_path / "t.zarr", missing="mean", one_hot="auto", **KEEP)
    assert not (tmp_path / "t.zarr").exists()


def test_a_column_of_lists_is_named(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"y": [0, 1], "a": [[1], [2]]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"column a: list<.*> is neither a number nor text nor a date: .* --drop a"):
        streamsvm.ingest(tmp_path / "t.parquet", tmp_path / "t.zarr", missing="zero")


MOST_BYTES = """
import sys, tracemalloc
import pyarrow as pa
from streamsvm.data.sources import arrow as arrow_tables, csv as csv_table
from streamsvm.ingestion.readers import open_files
from streamsvm.data.tables.columns import Columns

csv_table.CODED_BLOCK_BYTES, arrow_tables.PIECE_ROWS = 1 << 16, 2000
columns = Columns(missing="mean", one_hot=("auto",))
for path in sys.argv[1:]:
    list(open_files([f"{path}-small"], path.rpartition(".")[2], columns))  # all that is imported on the way
tracemalloc.start()
for path in sys.argv[1:]:
    tracemalloc.reset_peak()
    held, before = tracemalloc.get_traced_memory()[0], pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() - before for rows in open_files([path], None, columns))
    print(tracemalloc.get_traced_memory()[1] - held + most)
"""


@pytest.mark.slow("measures memory in a process of its own")
def test_memory_is_bounded(tmp_path: Path) -> None:
    """The codes of 200,000 rows take 6.4 MB, and lie in a scratch file; their features take 13 MB, in pieces."""
    words = np.array([f"word {k}" for k in range(100)])
    columns = {f"t{j}": words[np.random.default_rng(j).integers(0, 100, 200_000)] for j in range(4)}
    numbers = {f"a{j}": np.arange(200_000) % 7 for j in range(4)}
    table = pa.table({"y": np.arange(200_000) % 2, **numbers, **columns})
    paths = [tmp_path / "t.csv", tmp_path / "t.parquet"]
    for rows, end in ((table, ""), (table.slice(0, 1000), "-small")):
        csv.write_csv(rows, f"{paths[0]}{end}")
        parquet.write_table(rows, f"{paths[1]}{end}", row_group_size=10_000)
    del table, columns, numbers
    ran = run_python(MOST_BYTES, *paths)
    assert ran.returncode == 0, ran.stderr
    assert [int(line) < 5e6 for line in ran.stdout.split()] == [True, True], ran.stdout
