"""The kinds of columns: decided by the first rows of every format and door alike, or named by hand."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import streamsvm
from streamsvm.cli.main import main
from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion.ingest import IngestOptions
from streamsvm.ingestion.on_workers import ingest_on_workers
from streamsvm.system.errors import InputError
from tests.data.sources.test_csv_text import give_stdin
from tests.data.sources.test_encoded_tables import read_all
from tests.ingestion.test_ingest_on_workers import here
from tests.object_server import ObjectServer

__all__ = ["here"]

N = 20_000  # rows of about 150 kB, more than the 64 KiB that are read first
Door = Callable[[pd.DataFrame, Path], Any]


def write_csv(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def pack_csv(frame: pd.DataFrame, folder: Path) -> Path:
    (folder / "t.csv.gz").write_bytes(gzip.compress(write_csv(frame, folder).read_bytes()))
    return folder / "t.csv.gz"


def split_csv(frame: pd.DataFrame, folder: Path) -> list[Path]:
    paths = [folder / "1.csv", folder / "2.csv"]
    for path, part in zip(paths, (frame.iloc[:-100], frame.iloc[-100:]), strict=True):
        part.to_csv(path, index=False)
    return paths


def write_small_batches(frame: pd.DataFrame, folder: Path) -> Path:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    with pa.OSFile(str(folder / "t.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    return folder / "t.arrow"


def write_lines(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_json(folder / "t.jsonl", orient="records", lines=True)
    return folder / "t.jsonl"


def iterate(frame: pd.DataFrame, folder: Path) -> Iterator[pd.DataFrame]:
    return (frame.iloc[at : at + 100] for at in range(0, len(frame), 100))


DOORS: list[Door] = [write_csv, pack_csv, split_csv, write_small_batches, write_lines, iterate]


def make_late(late: Any, early: Any = "") -> pd.DataFrame:
    """A column that begins as if it were empty, or of numbers, and the labels of which some are late texts."""
    note = np.where(np.arange(N) < N * 3 // 4, np.array(early, object), late)
    return pd.DataFrame({"a": np.arange(N) % 7, "note": note, "y": np.arange(N) % 2})


def list_kinds(dataset: Dataset) -> list[str]:
    assert dataset.encoding is not None
    return [column.kind for column in dataset.encoding.columns]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("early", "late", "kind"), [("", "seen", "hash"), ("7", "seen", "hash"), ("", "2024-12-31", "date")]
)
def test_the_first_megabytes_decide(tmp_path: Path, door: Door, early: str, late: str, kind: str) -> None:
    made = streamsvm.ingest(
        door(make_late(late, early), tmp_path), tmp_path / "t.zarr", label="y", hash_bits=8, missing="zero"
    )
    assert list_kinds(made) == ["number", kind]


def test_standard_input_decides_likewise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame, options = make_late("seen"), ["--format", "csv", "--one-hot", "auto", "--missing", "zero"]
    give_stdin(monkeypatch, write_csv(frame, tmp_path).read_bytes())
    assert main(["ingest", "-", str(tmp_path / "t.zarr"), *options]) == 0
    assert list_kinds(open_dataset(tmp_path / "t.zarr")) == ["number", "one_hot"]


@pytest.mark.parametrize("how", [{}, {"missing": "zero"}])
def test_the_first_megabytes_decide_whether_labels_are_numbers(tmp_path: Path, how: dict[str, Any]) -> None:
    frame = pd.DataFrame({"a": np.arange(N) + 0.5, "y": np.where(np.arange(N) < 15_000, "1", "late")})
    made = streamsvm.ingest(write_csv(frame, tmp_path), tmp_path / "t.zarr", **how)
    assert made.classes is not None
    assert made.classes.tolist() == ["1", "late"]


def test_workers_decide_likewise(tmp_path: Path, here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("data.sources.csv.CODED_BLOCK_BYTES", "ingestion.tasks.BLOCK_BYTES"):
        monkeypatch.setattr(f"streamsvm.{name}", 1 << 17)
    for module in ("ingestion.segments", "ingestion.on_workers"):
        monkeypatch.setattr(f"streamsvm.{module}.RUN_BYTES", 1 << 20)
    path, columns = write_csv(make_late("seen"), tmp_path), Columns(one_hot=("auto",), missing="zero")
    made = ingest_on_workers([path], tmp_path / "shared.zarr", columns, IngestOptions())
    alone = streamsvm.ingest(path, tmp_path / "alone.zarr", columns=columns)
    assert made.encoding == alone.encoding
    assert made.fingerprint == alone.fingerprint


def test_a_fault_of_the_first_rows_comes_before_one_behind_them(tmp_path: Path) -> None:
    """Looking ahead does not change which fault is told, nor does it lose one."""
    text = "a,y\n" + "1,0\n" * 20_000 + "1,0,0\n"
    for rows, fault in ((text.replace("1,0", "inf,0", 1), "2:1: column a: infinite"), (text, "20002:3: 3 columns")):
        (tmp_path / "t.csv").write_text(rows)
        with pytest.raises(InputError, match=rf"t\.csv:{fault}"):
            streamsvm.ingest(tmp_path / "t.csv", tmp_path / "t.zarr", missing="zero")


def test_a_word_that_comes_too_late_is_told_what_names_the_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.data.sources.csv.DECIDING_BYTES", 1000)
    path, how = write_csv(make_late("seen"), tmp_path), {"hash_bits": 8, "missing": "zero"}
    with pytest.raises(InputError, match=r":15002:2: column note: not a number: 'seen'; .*its first rows.*--text"):
        streamsvm.ingest(path, tmp_path / "t.zarr", **how)
    assert list_kinds(streamsvm.ingest(path, tmp_path / "t.zarr", text="note", **how)) == ["number", "hash"]


def make_table() -> pd.DataFrame:
    """Codes that look like numbers, numbers that begin empty, and dates that begin empty."""
    return pd.DataFrame(
        {
            "zip": ["01234", "1234", "01234", "1234"],
            "size": ["", "2.5", "3", "4"],
            "when": ["", "2024-12-31", "2024-01-01", ""],
            "y": [0, 1, 0, 1],
        }
    )


KINDS = {"text": "zip", "date": ["when"], "number": "size"}


@pytest.mark.parametrize("door", [write_csv, write_small_batches, write_lines, lambda frame, _: frame])
def test_kinds_are_named_by_hand(tmp_path: Path, door: Door) -> None:
    """As the types and the parse_dates of pandas; the model of such rows reads new files likewise."""
    table = make_table()
    made = streamsvm.ingest(
        door(table, tmp_path), tmp_path / "t.zarr", label="y", one_hot="auto", missing="zero", shuffle=None, **KINDS
    )
    assert made.encoding is not None
    assert [(each.name, each.kind, each.categories) for each in made.encoding.columns] == [
        ("zip", "one_hot", ("01234", "1234")),
        ("size", "number", ()),
        ("when", "date", ()),
    ]
    read = pd.read_csv(io.StringIO(table.to_csv(index=False)), dtype={"zip": str, "size": float}, parse_dates=["when"])
    days = (read["when"] - pd.Timestamp("1970-01-01")).dt.days.fillna(0)
    wanted = np.column_stack([read["zip"] == "01234", read["zip"] == "1234", read["size"].fillna(0), days])
    assert read_all(made).tolist() == wanted.astype(np.float32).tolist()


def test_a_model_remembers_the_kinds(tmp_path: Path) -> None:
    """A new file whose codes all look like numbers, or whose dates are all missing, is read as the first was."""
    made = streamsvm.ingest(
        write_csv(make_table(), tmp_path), tmp_path / "t.zarr", one_hot="auto", missing="zero", **KINDS
    )
    model = streamsvm.LinearSVC().fit(made)
    new = make_table().assign(when="", size="5")
    wanted = model.decision_function(new.assign(zip=["01234", "1234"] * 2))
    assert model.decision_function(write_csv(new, tmp_path)).tolist() == wanted.tolist()
    assert streamsvm.ingest(tmp_path / "t.csv", tmp_path / "t.zarr", append=True).n_rows == 8


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"text": "zap"}, r"column 'zap', which --text names, is missing; is 'zip' meant\?"),
        ({"text": "zip", "number": "zip"}, r"column 'zip': --text and --number both name it"),
        ({"date": "1", "number": ["zip"]}, r"column 'zip': --date and --number both name it"),
        ({"number": "zip", "one_hot": ["zip"]}, r"column 'zip': --one-hot and --number both name it"),
        ({"number": "y"}, r"--number names the labels, column 'y'"),
        ({"text": "zip", "drop": "zip"}, r"column 'zip', which --text names, is not a feature of the table"),
        (
            {"text": "zip", "drop": ["size", "when"]},
            r":2:1: column zip: a column of text; ingest --one-hot encodes",
        ),
        ({"date": "zip", "missing": "zero"}, r":2:1: column zip: not a date such as 2024-12-31.*'01234'; .*or --date"),
        ({"number": "when", "missing": "zero"}, r":3:3: column when: not a number: '2024-12-31'; .*or --number"),
    ],
)
def test_what_has_no_such_kind_is_refused(tmp_path: Path, how: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        streamsvm.ingest(write_csv(make_table(), tmp_path), tmp_path / "t.zarr", **how)


def test_types_of_frames_that_have_no_such_kind_are_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2], "when": pd.to_datetime(["2024-01-01", "2024-01-02"]), "y": [0, 1]})
    with pytest.raises(
        InputError, match=r"X: row 1, column a: a number; its first rows or --date make this a column of dates"
    ):
        streamsvm.ingest(frame, tmp_path / "t.zarr", label="y", date="a")
    with pytest.raises(
        InputError, match=r"X: row 1, column when: a date; its first rows or --number make this a column of numbers"
    ):
        streamsvm.ingest(frame, tmp_path / "t.zarr", label="y", number="when")
    made = streamsvm.ingest(frame, tmp_path / "t.zarr", label="y", text=["a", "when"], one_hot="auto")
    assert list_kinds(made) == ["one_hot", "one_hot"]
    assert made.n_features == 4


def test_formats_without_columns_have_no_kinds(tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_text("1 1:1\n-1 1:2\n")
    with pytest.raises(InputError, match=r"--date has no effect on svmlight files"):
        streamsvm.ingest(tmp_path / "t.svm", tmp_path / "t.zarr", date="a")


def write_dates(folder: Path, kind: str) -> Path:
    when = pd.to_datetime("2020-01-01") + pd.to_timedelta(np.arange(50), unit="D")
    frame, path = pd.DataFrame({"when": when, "a": np.arange(50), "y": np.arange(50) % 2}), folder / f"t.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else parquet.write_table(pa.Table.from_pandas(frame), path)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_dates_are_found_at_every_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ObjectServer, kind: str
) -> None:
    """In a file, in an object of a store and on standard input the rows are the same."""
    path = write_dates(tmp_path, kind)
    content = server.objects[f"bucket/t.{kind}"] = path.read_bytes()
    made = [streamsvm.ingest(each, tmp_path / f"{k}.zarr") for k, each in enumerate((path, f"s3://bucket/t.{kind}"))]
    if kind == "csv":
        give_stdin(monkeypatch, content)
        made.append(streamsvm.ingest("-", tmp_path / "i.zarr", file_format="csv", options=IngestOptions(shuffle=0)))
    for each in made:
        assert list_kinds(each) == ["date", "number"]
        assert sorted(read_all(each)[:, 0]) == list(range(18262, 18312))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_workers_find_dates_in_a_store(tmp_path: Path, server: ObjectServer, here: None, kind: str) -> None:
    server.objects[f"bucket/t.{kind}"] = write_dates(tmp_path, kind).read_bytes()
    made = ingest_on_workers([f"s3://bucket/t.{kind}"], tmp_path / "w.zarr", Columns(), IngestOptions())
    assert list_kinds(made) == ["date", "number"]


def test_a_model_of_numbers_takes_no_dates(tmp_path: Path) -> None:
    """The days of a column of dates are not the numbers that the model was trained on."""
    made = streamsvm.ingest(pd.DataFrame({"a": [1.0, 2, 3, 4], "y": [0, 0, 1, 1]}), tmp_path / "t.zarr", label="y")
    model = streamsvm.LinearSVC().fit(made)
    new = pd.DataFrame({"a": pd.to_datetime(["2024-01-01", "2024-01-02"])})
    for path in (write_csv(new, tmp_path), tmp_path / "t.parquet"):
        new.to_parquet(tmp_path / "t.parquet")
        with pytest.raises(InputError, match=r"column a: .*(not a number|neither a number)"):
            model.predict(path)
