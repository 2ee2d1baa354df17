"""Prediction: every kind of file in its order, outputs that appear whole, figures that are scikit-learn's."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    f1_score,
    precision_recall_curve,
    precision_score,
    recall_score,
    roc_auc_score,
    roc_curve,
)

from streamsvm import LinearSVC, ingest
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.tables.columns import Columns
from streamsvm.models import predict as writing
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import LinearModel, load
from streamsvm.models.predict import predict
from streamsvm.models.score import score, score_chunks
from streamsvm.numeric.stored_types import Scaling
from streamsvm.problems.problem import CURVE_POINTS, Scored, roc_area, trace_curves
from streamsvm.system.errors import InputError, IntegrityError
from tests.conftest import Problem, make_problem

D = 6
PROBLEM = make_problem(5, n=200, d=D)
SCALING = Scaling("standard", np.linspace(-1, 1, D), np.linspace(0.5, 2, D))
RANDOM = np.random.default_rng(6)
MODEL = LinearModel(coef=RANDOM.normal(size=D), intercept=0.1, classes=np.array(["no, never", "yes"]), scaling=SCALING)
SCORES = (PROBLEM.dense() - SCALING.offset) * SCALING.factor @ MODEL.coef + 0.1
LABELS = np.where(SCORES > 0, "yes", "no, never")


def write_csv(path: Path, problem: Problem) -> None:
    np.savetxt(path, problem.dense(), delimiter=",")


def write_parquet(path: Path, problem: Problem) -> None:
    pd.DataFrame(problem.X, columns=list("abcdef")).to_parquet(path)


def write_svmlight(path: Path, problem: Problem) -> None:
    dump_svmlight_file(problem.X, problem.y, str(path), zero_based=False)


def write_gzip(path: Path, problem: Problem) -> None:
    write_svmlight(path.with_suffix(""), problem)
    path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))


def write_npy(path: Path, problem: Problem) -> None:
    np.save(path, problem.dense())


def write_dataset(path: Path, problem: Problem) -> None:
    problem.store(path, chunk_bytes=1000)


def write_scaled_dataset(path: Path, problem: Problem) -> None:
    problem.store(path, chunk_bytes=1000, scale="minmax")


WRITERS: dict[str, Callable[[Path, Problem], None]] = {
    "rows.csv": write_csv,
    "rows.parquet": write_parquet,
    "rows.svm": write_svmlight,
    "rows.svm.gz": write_gzip,
    "rows.npy": write_npy,
    "rows.zarr": write_dataset,
    "scaled.zarr": write_scaled_dataset,
}


def read_csv(path: Path) -> tuple[Any, Any]:
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["label", "score"]
    return [row[0] for row in rows], [float(row[1]) for row in rows]


def read_npy(path: Path) -> tuple[Any, Any]:
    return np.load(path, allow_pickle=False), None


def read_zarr(path: Path) -> tuple[Any, Any]:
    group: Any = zarr.open_group(str(path), mode="r")
    return np.asarray(group.attrs["classes"])[group["label"][:]], group["score"][:]


READERS = {"p.csv": read_csv, "p.npy": read_npy, "p.zarr": read_zarr}


@pytest.mark.parametrize("source", WRITERS)
def test_every_kind_of_rows_in_their_order(tmp_path: Path, source: str) -> None:
    WRITERS[source](tmp_path / source, PROBLEM)
    assert predict(MODEL, tmp_path / source, tmp_path / "p.csv") == len(SCORES)
    labels, scores = read_csv(tmp_path / "p.csv")
    np.testing.assert_allclose(scores, SCORES, atol=1e-4)
    np.testing.assert_array_equal(labels, LABELS)


@pytest.mark.parametrize("out", READERS)
def test_every_kind_of_output(tmp_path: Path, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.models.predict.ZARR_CHUNK_VALUES", 64)
    write_dataset(tmp_path / "rows.zarr", PROBLEM)
    assert predict(MODEL, str(tmp_path / "rows.zarr"), str(tmp_path / out)) == len(SCORES)
    labels, scores = READERS[out](tmp_path / out)
    np.testing.assert_array_equal(labels, LABELS)
    if scores is not None:
        np.testing.assert_allclose(scores, SCORES, atol=1e-4)
    assert {path.name for path in tmp_path.iterdir()} == {"rows.zarr", out}


@pytest.mark.parametrize("out", ["p.csv", "p.npy"])
def test_a_new_output_replaces_the_old_one(tmp_path: Path, out: str) -> None:
    write_npy(tmp_path / "rows.npy", PROBLEM)
    (tmp_path / out).write_text("old")
    predict(MODEL, tmp_path / "rows.npy", tmp_path / out)
    np.testing.assert_array_equal(READERS[out](tmp_path / out)[0], LABELS)


@pytest.mark.parametrize("out", READERS)
def test_outputs_are_whole_or_absent(tmp_path: Path, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_half_way(*_: object) -> Iterator[Scored]:
        yield Scored(SCORES[:100])
        raise IntegrityError("a chunk is damaged")

    monkeypatch.setattr("streamsvm.models.predict.score", break_half_way)
    with pytest.raises(IntegrityError, match="a chunk is damaged"):
        predict(MODEL, "rows", tmp_path / out)
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_cannot_be_written_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "old.zarr").mkdir()
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").touch()
    for out, message in (
        ("p", "the name must end in .csv, .parquet, .npy or .zarr"),
        ("file/p.csv", "file: is a file, so it cannot contain"),
        ("old.zarr", "old.zarr: already exists"),
        ("folder.csv", "folder.csv: already exists"),
    ):
        with pytest.raises(InputError, match=message):
            predict(MODEL, tmp_path / "rows that are missing", tmp_path / out)


@pytest.mark.parametrize("d", [2, D + 3])
@pytest.mark.parametrize("density", [1.0, 0.2])
def test_text_may_have_other_features_than_the_model(tmp_path: Path, d: int, density: float) -> None:
    other = make_problem(7, n=50, d=d, density=density)
    write_svmlight(tmp_path / "rows.svm", other)
    known = np.zeros((50, D))
    known[:, : min(d, D)] = other.dense()[:, :D]
    expected = (known - SCALING.offset) * SCALING.factor @ MODEL.coef + 0.1
    found = np.concatenate([part.scores for part in score(MODEL, tmp_path / "rows.svm", unknown_features="ignore")])
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_rows_of_zeros(tmp_path: Path) -> None:
    (tmp_path / "rows.svm").write_text("0\n0\n")
    (part,) = score(MODEL, tmp_path / "rows.svm")
    np.testing.assert_allclose(part.scores, (-SCALING.offset * SCALING.factor) @ MODEL.coef + 0.1)


def test_features_go_by_their_names(tmp_path: Path) -> None:
    columns = dict(zip("abcdef", PROBLEM.X.T, strict=True))
    named = LinearModel(
        coef=MODEL.coef, intercept=0.1, classes=MODEL.classes, scaling=SCALING, feature_names=tuple("abcdef")
    )
    shuffled = pd.DataFrame({name: columns[name] for name in "cafebd"}).assign(other="text", y=LABELS)
    shuffled.to_csv(tmp_path / "rows.csv", index=False)
    (part,) = score(named, tmp_path / "rows.csv")
    np.testing.assert_allclose(part.scores, SCORES, atol=1e-4)
    assert evaluate(named, tmp_path / "rows.csv")["accuracy"] == 1.0
    names = shuffled["c"].tolist()
    shuffled.to_parquet(tmp_path / "rows.parquet", index=False)
    for file in ("rows.csv", "rows.parquet"):  # a feature may name the rows, too
        (part,) = score(named, tmp_path / file, columns=Columns(index="c", require_label=False))
        np.testing.assert_allclose(part.scores, SCORES, atol=1e-4)
        assert part.row_names is not None
        np.testing.assert_allclose(part.row_names.astype(float), names, rtol=1e-6)
    shuffled.drop(columns="a").to_csv(tmp_path / "fewer.csv", index=False)
    with pytest.raises(InputError, match="no column 'a', which is a feature"):
        evaluate(named, tmp_path / "fewer.csv")
    stored = ingest(pd.DataFrame({name: columns[name] for name in "bacdef"}), tmp_path / "rows.zarr", PROBLEM.y)
    with pytest.raises(InputError, match=r"rows\.zarr: its features differ from those of the training"):
        evaluate(named, stored)


@pytest.mark.parametrize("seed", [1, 2])
def test_figures_are_those_of_scikit_learn(tmp_path: Path, seed: int) -> None:
    problem = make_problem(seed, n=300, d=D)
    model = LinearModel(coef=np.random.default_rng(seed).normal(size=D), intercept=0.0, classes=np.array([-1, 1]))
    scores = problem.dense() @ model.coef
    predicted = np.where(scores > 0, 1, -1)
    found = evaluate(model, problem.store(tmp_path / "rows.zarr", chunk_bytes=1000))
    assert found["n_rows"] == 300
    assert found["unknown_labels"] == 0
    assert found["accuracy"] == pytest.approx(accuracy_score(problem.y, predicted))
    assert found["roc_area"] == pytest.approx(roc_auc_score(problem.y, scores))
    for label in (-1, 1):
        part = found["classes"][str(label)]
        assert part["rows"] == np.count_nonzero(problem.y == label)
        assert part["recall"] == pytest.approx(recall_score(problem.y, predicted, pos_label=label))
        assert part["precision"] == pytest.approx(precision_score(problem.y, predicted, pos_label=label))
        assert part["f1"] == pytest.approx(f1_score(problem.y, predicted, pos_label=label))


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2))
def test_roc_area_with_ties(rows: list[tuple[int, bool]]) -> None:
    scores = np.array([value / 7 for value, _ in rows])
    positive = np.array([truth for _, truth in rows])
    if positive.all() or not positive.any():
        assert roc_area(scores, positive) is None
    else:
        assert roc_area(scores, positive) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2))
def test_curves_with_ties(rows: list[tuple[int, bool]]) -> None:
    """Every point is one of scikit-learn's, for each of the thresholds."""
    scores = np.array([value / 7 for value, _ in rows])
    positive = np.array([truth for _, truth in rows])
    assume(positive.any() and not positive.all())
    average, curves = trace_curves(scores, positive)
    assert average == pytest.approx(average_precision_score(positive, scores), abs=1e-12)
    false, true, _ = roc_curve(positive, scores, drop_intermediate=False)
    np.testing.assert_allclose(curves["false_positive_rate"], false, atol=1e-12)
    np.testing.assert_allclose(curves["true_positive_rate"], true, atol=1e-12)
    precision, recall, _ = precision_recall_curve(positive, scores)
    np.testing.assert_allclose(curves["precision"], precision[::-1], atol=1e-12)
    np.testing.assert_allclose(curves["true_positive_rate"], recall[::-1], atol=1e-12)


def test_curves_of_many_thresholds_are_thinned_evenly() -> None:
    random = np.random.default_rng(0)
    positive = random.random(20_000) < 0.02
    scores = random.normal(size=20_000) + 2 * positive
    found = trace_curves(scores, positive)
    points = {name: np.array(values) for name, values in found[1].items()}
    false, true, _ = roc_curve(positive, scores, drop_intermediate=False)
    known = set(zip(false.tolist(), true.tolist(), strict=True))
    told = list(zip(points["false_positive_rate"].tolist(), points["true_positive_rate"].tolist(), strict=True))
    assert set(told) <= known
    assert (told[0], told[-1]) == ((0.0, 0.0), (1.0, 1.0))
    assert CURVE_POINTS / 2 < len(told) <= CURVE_POINTS
    assert np.max(np.diff(points["false_positive_rate"]) + np.diff(points["true_positive_rate"])) < 0.03
    assert found[0] == pytest.approx(average_precision_score(positive, scores), abs=1e-12)


def test_labels_that_a_model_does_not_know(tmp_path: Path) -> None:
    model = LinearModel(coef=np.array([1.0]), intercept=0.0, classes=np.array([-1, 1]))
    (tmp_path / "rows.svm").write_text("1 1:1\n-1 1:-1\n7 1:2\n1 1:-3\n")
    found = evaluate(model, tmp_path / "rows.svm")
    assert (found["unknown_labels"], found["accuracy"], found["roc_area"]) == (1, 0.5, 0.5)
    assert found["classes"]["1"] == {"rows": 2, "recall": 0.5, "precision": 0.5, "f1": 0.5}


def test_rows_of_another_kind_are_refused(tmp_path: Path) -> None:
    """Rows of which no label is known cannot be measured; svmlight text has no names, but is no wider than a table."""
    model = LinearModel(coef=np.array([1.0]), intercept=0.0, classes=np.array(["good", "poor"]))
    (tmp_path / "rows.svm").write_text("1 1:1\n0 1:-1\n")
    with pytest.raises(InputError, match=r"rows\.svm: no row has one of the labels .* knows \(good, poor\)"):
        evaluate(model, tmp_path / "rows.svm")
    table = pd.DataFrame({"x": [1.0, 2.0] * 20, "work": ["a", "b"] * 20})
    known = LinearSVC().fit(ingest(table, tmp_path / "d.zarr", [0, 1] * 20, one_hot="auto")).model_
    assert evaluate(known, tmp_path / "rows.svm")["n_rows"] == 2
    (tmp_path / "wide.svm").write_text("1 1:1 4:1\n0 1:-1\n")
    for call in (evaluate, lambda *given: predict(*given, tmp_path / "p.csv")):
        with pytest.raises(
            InputError, match=r"wide\.svm: rows of 4 features; .* on a table that was encoded as 3 features"
        ):
            call(known, tmp_path / "wide.svm")


@pytest.mark.parametrize("name", ["rows.svm", "rows.npy", "rows.csv", "sparse.zarr", "dense.zarr"])
def test_features_that_a_model_does_not_know(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """They are refused, or left out with one warning that counts them, whatever holds the rows."""
    known, data = np.float32(PROBLEM.dense()), tmp_path / name
    wide: Any = np.hstack((known, np.float32(RANDOM.normal(size=(len(known), 2)))))
    write = {".svm": write_svmlight, ".npy": write_npy, ".csv": write_csv}.get(data.suffix)
    scaling = "standard" if name == "dense.zarr" else "maxabs"
    if write is None:
        ingest(csr_array(wide) if name == "sparse.zarr" else wide, data, PROBLEM.y, scale=scaling, shuffle=None)
    else:
        write(data, Problem(csr_array(wide), PROBLEM.y))
    model = LinearModel(coef=MODEL.coef, intercept=0.1, classes=np.array([-1, 1]), scaling=SCALING)
    calls = [lambda **how: predict(model, data, tmp_path / "p.npy", columns=("score",), **how)]
    if name.endswith((".svm", ".zarr")):
        calls.append(lambda **how: evaluate(model, data, **how))
    caplog.handler.setLevel(0)  # Dask silences the handlers of the root logger while a cluster is open
    for call in calls:
        with pytest.raises(
            InputError, match=rf"{name}: rows of 8 features; .* on 6 features; .*--unknown-features ignore"
        ):
            call()
        caplog.clear()
        call(unknown_features="ignore")
        (told,) = caplog.messages
        assert told == (
            f"{data}: its rows have 8 features; the model was trained on 6 features, so the last 2 features are ignored"
        )
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), SCORES, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="unknown_features 'drop': choose from error, ignore"):
        predict(model, data, tmp_path / "p.npy", unknown_features="drop")


@pytest.mark.parametrize("name", ["rows.npz", "rows.parquet", "rows.zarr"])
def test_rows_that_a_model_cannot_score_are_named(tmp_path: Path, name: str) -> None:
    """Too few features and scores beyond float64 are refused with the name of the rows, whatever holds them."""
    data, d = tmp_path / name, 2
    X: Any = np.full((4, d), 3e38, np.float32)
    if name == "rows.npz":
        np.savez(data, X=X, y=[-1, 1, -1, 1])
    elif name == "rows.parquet":
        pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": [-1, 1, -1, 1]}).to_parquet(data)
    else:
        ingest(X, data, [-1, 1, -1, 1])
    for width, why in ((3, "the rows have 2 features, but the model .* 3 features"), (d, "the scores .* overflow")):
        model = LinearModel(coef=np.full(width, 1e300), intercept=0.0, classes=np.array([-1, 1]))
        for call in (evaluate, lambda *given: predict(*given, tmp_path / "p.csv")):
            with pytest.raises(InputError, match=rf"{name}: {why}"):
                call(model, data)


def test_rows_in_place_of_a_model(tmp_path: Path) -> None:
    PROBLEM.store(tmp_path / "rows.zarr")
    (tmp_path / "rows.csv").write_text("y,x\n-1,-2\n1,3\n")
    for name in ("rows.zarr", "rows.csv"):
        with pytest.raises(InputError, match=f"{name}: this holds rows, not a model: name the model first"):
            load(tmp_path / name)


def test_a_class_that_does_not_occur_has_no_recall(tmp_path: Path) -> None:
    model = LinearModel(coef=np.array([1.0]), intercept=0.0, classes=np.array([-1, 1]))
    (tmp_path / "rows.svm").write_text("1 1:1\n1 1:2\n")
    found = evaluate(model, tmp_path / "rows.svm")
    assert (found["accuracy"], found["roc_area"]) == (1.0, None)
    assert found["classes"]["-1"] == {"rows": 0, "recall": None, "precision": None, "f1": None}


@pytest.mark.parametrize("classes", [np.array([-1.0, 1.0]), np.array(["-1", "1"]), np.array([-1, 1])])
def test_labels_are_compared_as_numbers_or_as_texts(tmp_path: Path, classes: Any) -> None:
    model = LinearModel(coef=np.array([1.0]), intercept=0.0, classes=classes)
    (tmp_path / "rows.csv").write_text("y,x\n-1,-2\n1,3\n")
    assert evaluate(model, tmp_path / "rows.csv")["accuracy"] == 1.0


def test_evaluation_needs_labels(tmp_path: Path) -> None:
    write_npy(tmp_path / "rows.npy", PROBLEM)
    for data in (tmp_path / "rows.npy", ingest(PROBLEM.X, tmp_path / "rows.zarr")):
        with pytest.raises(InputError, match=r"there are no labels to compare"):
            evaluate(MODEL, data)


def test_files_are_streamed_and_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_csv(tmp_path / "rows.csv", PROBLEM)
    monkeypatch.setattr("tempfile.mkdtemp", lambda *_, **__: pytest.fail("rows were stored"))
    assert sum(len(part.scores) for part in score(MODEL, tmp_path / "rows.csv")) == 200


def test_a_few_chunks_are_in_flight_at_once(tmp_path: Path) -> None:
    dataset = PROBLEM.store(tmp_path / "rows.zarr", chunk_bytes=24 * 10)
    assert dataset.n_chunks == 20
    begun: list[int] = []

    class Watched(Dataset):
        def tiles(self, index: int) -> Any:
            begun.append(index)
            return super().tiles(index)

    watched = Watched(**{name: getattr(dataset, name) for name in dataset.__dataclass_fields__})
    for done, part in enumerate(score_chunks(MODEL, watched, threads=2)):
        assert len(part.scores) == 10
        assert len(begun) <= done + 3
    assert sorted(begun) == list(range(20))


def test_sparse_arrays_of_scipy_in_npz(tmp_path: Path) -> None:
    X = csr_array(PROBLEM.X)
    np.savez(tmp_path / "rows.npz", data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, format=b"csr")
    found = np.concatenate([part.scores for part in score(MODEL, tmp_path / "rows.npz")])
    np.testing.assert_allclose(found, SCORES, atol=1e-4)


def test_the_texts_of_few_rows_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of short lines holds a million rows, whose texts take hundreds of bytes each."""
    data, whole, parts = PROBLEM.store(tmp_path / "rows.zarr"), tmp_path / "whole.csv", tmp_path / "parts.csv"
    predict(MODEL, data, whole, row_numbers=True)
    seen, write = [], writing._write_cells

    def note(values: Any) -> list[str]:
        seen.append(len(values))
        return write(values)

    monkeypatch.setattr(writing, "CSV_ROWS", 7)
    monkeypatch.setattr(writing, "_write_cells", note)
    assert predict(MODEL, data, parts, row_numbers=True) == 200
    assert parts.read_bytes() == whole.read_bytes()
    assert max(seen) == 7
