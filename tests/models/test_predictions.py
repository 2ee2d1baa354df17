"""What of the predictions is written: names and numbers of rows, chosen columns, the best labels; in which files."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import zarr

from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion.readers import open_files
from streamsvm.models.model import LinearModel
from streamsvm.models.predict import predict
from streamsvm.models.score import score
from streamsvm.system.errors import InputError
from tests.commands import Run, run

__all__ = ["run"]

RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(50, 3))
CLASSES = np.array(["=sum", "b", "c,d", "e"])
W = RANDOM.normal(size=(4, 3))
MODEL = LinearModel(coef=W, intercept=np.zeros(4), classes=CLASSES, feature_names=("u", "v", "w"))
SCORES = X.astype(np.float32).astype(np.float64) @ W.T
PROBABLE = LinearModel(
    coef=W, intercept=np.zeros(4), classes=CLASSES, feature_names=("u", "v", "w"), info={"loss": "logistic"}
)
TWO = LinearModel(coef=W[0], intercept=0.0, classes=np.array([-1, 1]), feature_names=("u", "v", "w"))
NAMES = [f"p{i}" for i in range(50)]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    pd.DataFrame(X, columns=list("uvw")).assign(id=NAMES).to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def read(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_names_and_numbers_of_rows(table: Path, tmp_path: Path) -> None:
    predict(MODEL, table, tmp_path / "p.csv", read_as=Columns(index="id"))
    header, *rows = read(tmp_path / "p.csv")
    assert header == ["name", "label", "score =sum", "score b", "score c,d", "score e"]
    assert [row[0] for row in rows] == NAMES
    predict(MODEL, table, tmp_path / "p.csv", row_numbers=True)
    header, *rows = read(tmp_path / "p.csv")
    assert (header[0], [int(row[0]) for row in rows]) == ("row", list(range(50)))


@pytest.mark.parametrize("index", [None, "id"])
def test_parquet_is_read_by_others(table: Path, tmp_path: Path, index: str | None) -> None:
    read_as, row_numbers = Columns(index=index), index is None
    predict(PROBABLE, table, tmp_path / "p.parquet", read_as=read_as, probabilities=True, row_numbers=row_numbers)
    found = pd.read_parquet(tmp_path / "p.parquet")
    first = found["row"] if index is None else found["name"]
    assert list(first) == (NAMES if index else list(range(50)))
    assert list(found["label"]) == CLASSES[SCORES.argmax(axis=1)].tolist()
    np.testing.assert_allclose(found[[f"score {name}" for name in CLASSES]], SCORES, rtol=1e-12)
    odds = 1 / (1 + np.exp(-SCORES))
    share = odds / odds.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found[[f"probability {name}" for name in CLASSES]], share, rtol=1e-12)


def test_parquet_of_numbers_as_labels_and_of_sets(table: Path, tmp_path: Path) -> None:
    predict(TWO, table, tmp_path / "p.parquet")
    assert pd.read_parquet(tmp_path / "p.parquet")["label"].tolist() == np.where(SCORES[:, 0] > 0, 1, -1).tolist()
    sets = LinearModel(
        coef=W, intercept=np.zeros(4), classes=np.arange(4), feature_names=("u", "v", "w"), info={"task": "multi-label"}
    )
    predict(sets, table, tmp_path / "p.parquet")
    found = pq.read_table(tmp_path / "p.parquet")["labels"].to_pylist()
    assert found == [np.flatnonzero(row > 0).tolist() for row in SCORES]


def test_groups_of_rows_of_parquet_are_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.models.predict.PARQUET_ROWS", 20)
    np.save(tmp_path / "rows.npy", X)
    parts = [part.scores for part in score(TWO, tmp_path / "rows.npy")]
    cut = [type(part)(row) for part in score(TWO, tmp_path / "rows.npy") for row in np.split(part.scores, 25)]
    monkeypatch.setattr("streamsvm.models.predict.score", lambda *_: iter(cut))
    assert predict(TWO, tmp_path / "rows.npy", tmp_path / "p.parquet") == 50
    file = pq.ParquetFile(tmp_path / "p.parquet")
    assert [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)] == [20, 20, 10]
    np.testing.assert_array_equal(file.read()["score"].to_numpy(), np.concatenate(parts))


def test_the_best_labels(table: Path, tmp_path: Path) -> None:
    order = np.argsort(-SCORES, axis=1)[:, :2]
    best = np.take_along_axis(SCORES, order, axis=1)
    predict(PROBABLE, table, tmp_path / "p.parquet", top=2, probabilities=True)
    found = pd.read_parquet(tmp_path / "p.parquet")
    for k in range(2):
        assert list(found[f"label {k + 1}"]) == CLASSES[order[:, k]].tolist()
        np.testing.assert_allclose(found[f"score {k + 1}"], best[:, k], rtol=1e-12)
    assert (found["probability 1"] >= found["probability 2"]).all()
    predict(MODEL, table, tmp_path / "p.zarr", top=2, read_as=Columns(index="id"))
    group: Any = zarr.open_group(str(tmp_path / "p.zarr"), mode="r")
    np.testing.assert_array_equal(group["label"][:], order)
    assert group["name"][:].tolist() == NAMES
    predict(MODEL, table, tmp_path / "p.npy", top=2)
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), CLASSES[order])


def test_chosen_columns_in_their_order(table: Path, tmp_path: Path) -> None:
    predict(MODEL, table, tmp_path / "p.csv", read_as=Columns(index="id"), columns=["score b", "name", "label"])
    header, *rows = read(tmp_path / "p.csv")
    assert header == ["score b", "name", "label"]
    assert [row[1] for row in rows] == NAMES
    np.testing.assert_allclose([float(row[0]) for row in rows], SCORES[:, 1], rtol=1e-6)
    predict(MODEL, table, tmp_path / "p.npy", columns=["score"])
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), SCORES, rtol=1e-12)
    predict(MODEL, table, tmp_path / "p.zarr", columns=["label"])
    assert set(dict(zarr.open_group(str(tmp_path / "p.zarr"), mode="r").members())) == {"label"}


@pytest.mark.parametrize(
    ("model", "out", "given", "message"),
    [
        (TWO, "p.csv", {"top": 2}, "--top 2 chooses among the scores of several classes"),
        (MODEL, "p.csv", {"top": 5}, "--top 5: the model has only 4 classes"),
        (MODEL, "p.csv", {"columns": ["nix"]}, "there is no column 'nix'; choose from name, label, score =sum"),
        (MODEL, "p.csv", {"columns": ["label", "label"]}, "'label' is named twice"),
        (MODEL, "p.csv", {"columns": ["name"]}, "the rows have no names; --id COLUMN names them"),
        (MODEL, "p.zarr", {"columns": ["score b"]}, "there is no column 'score b'"),
        (MODEL, "p.npy", {"row_numbers": True}, "a file of this kind cannot hold row numbers"),
        (MODEL, "p.npy", {"columns": ["label", "score"]}, "a .npy file holds one array"),
        (PROBABLE, "p.npy", {"probabilities": True}, "a .npy file holds one array"),
        (MODEL, "p.csv", {"read_as": Columns(index="none")}, "column 'none', the index, is missing"),
    ],
)
def test_what_is_refused(
    table: Path, tmp_path: Path, model: LinearModel, out: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        predict(model, table, tmp_path / out, **given)
    assert {path.name for path in tmp_path.iterdir()} == {"rows.csv"}


def test_standard_input_and_output(run: Run, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MODEL.save(tmp_path / "model.npz")
    with table.open("rb") as file:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        ran = run("predict", tmp_path / "model.npz", "-", "--format", "csv", "--id", "id", "--out", "-")
    assert ran.code == 0, ran.err
    predict(MODEL, table, tmp_path / "p.csv", read_as=Columns(index="id"))
    assert ran.out == (tmp_path / "p.csv").read_text()


def test_a_few_pieces_of_a_file_are_in_flight(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pieces of a file of 20 pieces are scored in their order, and the reader is at most 3 ahead."""
    read_pieces, lock = 0, threading.Lock()
    (whole,) = open_files([table], None, _columns())

    def open_pieces(*_: Any, **__: Any) -> Iterator[Any]:
        nonlocal read_pieces
        for k in range(20):
            with lock:
                read_pieces += 1
            yield type(whole)(whole.X[k : k + 1])

    monkeypatch.setattr("streamsvm.models.score.open_files", open_pieces)
    monkeypatch.setattr("streamsvm.models.score.default_threads", lambda: 2)
    for k, part in enumerate(score(MODEL, table)):
        np.testing.assert_allclose(part.scores[0], SCORES[k], rtol=1e-12)
        assert read_pieces <= k + 3


def _columns() -> Any:
    from streamsvm.data.tables.columns import Columns

    return Columns(features=("u", "v", "w"), require_label=False)


def test_evaluate_knows_the_column_of_the_labels(run: Run, tmp_path: Path) -> None:
    kinds = np.where(X[:, 0] > 0, "up", "down")
    frame = pd.DataFrame(X, columns=list("uvw")).assign(kind=kinds, other=kinds[::-1])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    assert run("ingest", tmp_path / "rows.csv", tmp_path / "rows.zarr", "--label", "kind", "--drop", "other").code == 0
    assert run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run").code == 0
    ran = run("evaluate", tmp_path / "run", tmp_path / "rows.csv", "--json")
    assert ran.code == 0, ran.err
    assert ran.result["accuracy"] > 0.9
    told = run("evaluate", tmp_path / "run", tmp_path / "rows.csv", "--label", "other", "--json").result
    assert told["accuracy"] < 0.8
    frame.drop(columns="kind").to_csv(tmp_path / "rows.csv", index=False)
    ran = run("evaluate", tmp_path / "run", tmp_path / "rows.csv")
    assert (ran.code, ran.out) == (2, "")
    assert "column 'kind', the label, is missing" in ran.err
