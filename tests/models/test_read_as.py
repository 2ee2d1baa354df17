"""Models and datasets remember the syntax of the files that they were made of, and read new files alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streamsvm import LinearSVC
from streamsvm.data.open import open_dataset
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion.ingest import IngestOptions
from streamsvm.ingestion.on_workers import ingest_on_workers
from streamsvm.ingestion.readers import ingest
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import load
from streamsvm.models.predict import predict
from streamsvm.models.score import score
from streamsvm.system.errors import InputError, IntegrityError
from tests.ingestion.test_ingest_on_workers import here

__all__ = ["here"]

HEADERLESS = '1,5:"a:0\n2,5:b":1\n0,25:"a:0\n3,5:b":1\n'
DAYS = "day,y\n03.01.2024,0\n04.02.2024,1\n05.01.2024,0\n06.02.2024,1\n"
LINES = '{"a": 1, "y": 0}\n{"a": 2, "y": 1}\n'
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "an odd separator, commas, quotes, no header": (
        "rows.dat",
        HEADERLESS,
        {"label": "3", "sep": ":", "decimal": ",", "quoting": "none", "header": "no", "hash_bits": 4},
    ),
    "days before months": ("rows.csv", DAYS, {"label": "y", "date_format": "%d.%m.%Y"}),
    "a format of another ending": ("rows.json", LINES, {"label": "y", "file_format": "jsonl"}),
    "tabs": ("rows.csv", "a,b\ty\n1\t0\n2\t1\n", {"label": "y", "file_format": "tsv"}),
    "features from 0": ("rows.svm", "0 0:1 1:2\n1 0:3\n", {"base": "auto"}),
}  # fmt: skip


def train(path: Path, **how: Any) -> Path:
    """Return the file of a model of the rows in a file."""
    LinearSVC().fit(ingest(path, path.parent / "rows.zarr", **how)).save(path.parent / "model.npz")
    return path.parent / "model.npz"


def read_scores(model: Path, path: Path, **how: Any) -> list[float]:
    return np.concatenate([part.scores for part in score(load(model), path, **how)]).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_new_files_need_no_options(tmp_path: Path, kind: str) -> None:
    """For prediction, evaluation, by estimators, for appended rows, and for rows encoded like others."""
    name, text, how = KINDS[kind]
    path, new = tmp_path / name, tmp_path / f"new-{name}"
    path.write_text(text)
    new.write_text(text)
    model = train(path, **how)
    syntax = {key: value for key, value in how.items() if key not in ("label", "file_format", "hash_bits")}
    given = {"columns": Columns(**syntax), "file_format": how.get("file_format")}
    assert read_scores(model, new) == read_scores(model, path, **given)
    assert evaluate(load(model), new)["n_rows"] == text.count("\n") - (kind in ("tabs", "days before months"))
    assert len(LinearSVC().fit(open_dataset(tmp_path / "rows.zarr")).predict(str(new))) > 1
    n_rows = open_dataset(tmp_path / "rows.zarr").n_rows
    assert ingest(new, tmp_path / "rows.zarr", append=True).n_rows == 2 * n_rows
    like = ingest(new, tmp_path / "like.zarr", like=tmp_path / "rows.zarr", shuffle=None)
    assert like.read_as == open_dataset(tmp_path / "rows.zarr").read_as


def test_what_is_recorded(tmp_path: Path) -> None:
    """Only what differs from the usual syntax, so that other models keep their bytes."""
    (tmp_path / "a.csv").write_text("id;a;y\n1;1;0\n2;2;1\n")
    plain = ingest(tmp_path / "a.csv", tmp_path / "a.zarr", label="y")
    assert plain.read_as is None
    assert "read_as" not in plain.meta
    dropped = ingest(tmp_path / "a.csv", tmp_path / "b.zarr", label="y", drop="id", sep=";", file_format="csv")
    assert dropped.read_as == {"format": "csv", "sep": ";", "others": ["id"]}
    model = load(train(tmp_path / "a.csv", label="y", drop="id", sep=";"))
    assert model.info["read_as"] == {"sep": ";", "others": ["id"]}


def test_workers_record_the_same(tmp_path: Path, here: None) -> None:
    path, columns = tmp_path / "rows.svm", Columns(base="auto")
    path.write_text("0 0:1 2:2\n1 1:3\n")
    made = ingest_on_workers([path], tmp_path / "shared.zarr", columns, IngestOptions())
    alone = ingest(path, tmp_path / "alone.zarr", base="auto")
    assert made.read_as == alone.read_as == {"base": 0}
    assert np.array_equal(made.read(0).X, alone.read(0).X)  # type: ignore[arg-type]
    assert made.n_features == 3


def test_an_option_overrides_what_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a;y\n1,5;0\n2,5;1\n")
    (tmp_path / "points.csv").write_text("a;y\n1.5;0\n2.5;1\n")
    model = train(tmp_path / "a.csv", label="y", decimal=",")
    with pytest.raises(InputError, match=r"points.csv:2:1: .*a point, which .* does not read .*; --decimal \. does"):
        read_scores(model, tmp_path / "points.csv")
    own = Columns(decimal=".", require_label=False)
    assert read_scores(model, tmp_path / "points.csv", columns=own) == read_scores(model, tmp_path / "a.csv")


def test_other_formats_ignore_the_syntax_of_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a;y\n1,5;0\n2,5;1\n")
    pd.DataFrame({"a": [1.5, 2.5]}).to_parquet(tmp_path / "a.parquet")
    model = train(tmp_path / "a.csv", label="y", decimal=",", sep=";")
    assert read_scores(model, tmp_path / "a.parquet") == read_scores(model, tmp_path / "a.csv")


def test_a_model_of_features_from_1_refuses_0(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("0 1:1 2:2\n1 1:3\n")
    (tmp_path / "b.svm").write_text("0 1:1\n0 0:1 1:2\n")
    model = train(tmp_path / "a.svm")
    with pytest.raises(InputError, match=r"b.svm:2:3: index 0 in '0:1': .* from 1 here; --base 0"):
        read_scores(model, tmp_path / "b.svm")
    with pytest.raises(InputError, match=r"b.svm:2:3: index 0"):
        ingest(tmp_path / "b.svm", tmp_path / "rows.zarr", append=True)
    assert len(read_scores(model, tmp_path / "b.svm", columns=Columns(base=0))) == 2


@pytest.mark.parametrize("read_as", ["csv", {"sep": 3}, {"others": "id"}, {"others": [3]}, {"base": 5}])
def test_a_damaged_record(tmp_path: Path, read_as: Any) -> None:
    (tmp_path / "a.csv").write_text("a;y\n1;0\n2;1\n")
    model = load(train(tmp_path / "a.csv", label="y"))
    model.info["read_as"] = read_as
    model.save(tmp_path / "bad.npz")
    with pytest.raises(InputError, match="read_as is not the syntax of files"):
        load(tmp_path / "bad.npz")
    made = ingest(tmp_path / "a.csv", tmp_path / "bad.zarr", label="y", sep=";")
    from streamsvm.data.store import manifest

    made.meta["read_as"] = read_as
    meta = {**made.meta, "sha256": manifest.make_fingerprint(made.meta)}
    with pytest.raises(IntegrityError, match="the syntax of the files is invalid"):
        manifest.check_manifest("bad.zarr", json.loads(json.dumps(meta)))


def test_one_warning_of_columns_that_are_no_features(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not of columns that the user named in training, nor of labels, by whatever name or number."""
    caplog.handler.setLevel(0)  # Dask silences the handlers of the root logger while a cluster is open
    names = ["id", "a", "y", *(f"more {k}" for k in range(10))]
    (tmp_path / "a.csv").write_text("id,a,y\n1,1,0\n2,2,1\n")
    for name in ("new.csv", "new-2.csv"):
        (tmp_path / name).write_text(",".join(names) + "\n" + ",".join(["3"] * len(names)) + "\n")
    model = train(tmp_path / "a.csv", label="3", drop="1")
    read_scores(model, tmp_path / "a.csv")
    predict(load(model), tmp_path / "a.csv", tmp_path / "out.csv")
    assert not caplog.messages
    read_scores(model, tmp_path / "new*.csv")
    (told,) = caplog.messages
    assert told.endswith("new-2.csv: 10 columns are not features and are ignored: "
                         + ", ".join(names[3:11]) + f" and 2 more, the last of them {names[12]}")  # fmt: skip
