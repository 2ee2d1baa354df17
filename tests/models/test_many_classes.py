"""Models of many classes in use: saved and loaded, predictions, evaluation, commands, estimators."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy.sparse import csr_array
from sklearn.metrics import confusion_matrix, precision_score, recall_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import streamsvm
from streamsvm import SVC, BudgetedSVC, CuttingPlane, InteriorPoint, LinearSVC
from streamsvm.cli.info import format_evaluation
from streamsvm.ingestion.readers import ingest
from streamsvm.kernels.kernel import Kernel
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import KernelModel, LinearModel, load
from streamsvm.models.predict import predict
from streamsvm.numeric.rows import CsrRows
from streamsvm.problems.classification import choose
from streamsvm.system.errors import InputError
from tests.commands import Run, run
from tests.kernel_problems import compute_matrix
from tests.solvers.many.test_one_against_rest import make_classes

__all__ = ["run"]

ROWS = make_classes(2, n=300)
X, Y = ROWS.X, ROWS.names[ROWS.y]
SPARSE = csr_array(X * (np.abs(X) > 0.5))
RANDOM = np.random.default_rng(0)
LINEAR = LinearModel(coef=RANDOM.normal(size=(4, 6)), intercept=RANDOM.normal(size=4), classes=ROWS.names)
VECTORS = RANDOM.normal(size=(9, 6)).astype(np.float32)
ESTIMATORS = {
    "linear": LinearSVC(C=0.5),
    "interior-point": LinearSVC(solver="interior-point"),
    "rbf": SVC(gamma=0.2),
    "linear kernel": SVC(kernel="linear"),
    "low rank": SVC(gamma=0.2, solver=InteriorPoint(n_components=30)),
    "budgeted": BudgetedSVC(budget=30, gamma=0.2, epochs=2),
}


def make_kernel_model(name: str, sparse: bool = False) -> KernelModel:
    vectors: Any = VECTORS
    if sparse:
        rows = csr_array(VECTORS * (np.abs(VECTORS) > 0.5))
        vectors = CsrRows(rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int64), 6)
    kernel = Kernel(name, 0.3, 2, 0.5)
    return KernelModel(
        kernel=kernel,
        support_vectors=vectors,
        dual_coef=RANDOM.normal(size=(4, 9)),
        intercept=RANDOM.normal(size=4),
        classes=ROWS.names,
    )


@pytest.mark.parametrize("name", ["linear", "rbf", "poly", "sigmoid"])
@pytest.mark.parametrize("sparse", [False, True])
def test_scores_are_sums_of_kernels(name: str, sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts of the vectors and of the rows, too."""
    model = make_kernel_model(name, sparse)
    dense = VECTORS * (np.abs(VECTORS) > 0.5) if sparse else VECTORS
    expected = compute_matrix(model.kernel, X.astype(float), dense.astype(float)) @ model.dual_coef.T + model.intercept
    np.testing.assert_allclose(model.decide(X), expected, rtol=1e-9)
    monkeypatch.setattr("streamsvm.kernels.kernel.SUMMED_ROWS", 4)
    np.testing.assert_allclose(model.decide(X), expected, rtol=1e-9)


@pytest.mark.parametrize("model", [LINEAR, make_kernel_model("rbf"), make_kernel_model("rbf", sparse=True)])
def test_saved_and_loaded(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert again.to_bytes() == model.to_bytes()
    np.testing.assert_array_equal(again.decide(X), model.decide(X))


def test_files_whose_classes_do_not_fit_are_refused(tmp_path: Path) -> None:
    """One of four scores, or of four intercepts, is missing."""
    for broken in (
        LinearModel(coef=LINEAR.coef[:3], intercept=LINEAR.intercept, classes=LINEAR.classes),
        LinearModel(coef=LINEAR.coef, intercept=LINEAR.intercept[:3], classes=LINEAR.classes),
        LinearModel(coef=LINEAR.coef[0], intercept=0.5, classes=LINEAR.classes),
        KernelModel(
            kernel=Kernel("rbf"),
            support_vectors=VECTORS,
            dual_coef=np.ones((3, 9)),
            intercept=np.ones(4),
            classes=LINEAR.classes,
        ),
    ):
        broken.save(tmp_path / "model.npz")
        with pytest.raises(InputError, match="not a model of streamsvm"):
            load(tmp_path / "model.npz")


@pytest.mark.parametrize("scale", ["minmax", "standard"])
def test_models_of_scaled_rows_take_raw_ones(scale: str, tmp_path: Path) -> None:
    scaled = ingest(X, tmp_path / "rows", Y, scale=scale)
    model = LinearSVC().fit(scaled).model_
    assert scaled.scaling is not None
    by_hand = (X - scaled.scaling.offset) * scaled.scaling.factor @ model.coef.T + model.intercept
    np.testing.assert_allclose(model.decide(X), by_hand, rtol=1e-5, atol=1e-5)


def test_the_highest_score_wins_and_of_equals_the_first() -> None:
    scores = np.array([[1.0, 3.0, 2.0], [2.0, 2.0, 1.0], [-3.0, -2.0, -2.0], [0.0, 0.0, 0.0]])
    assert choose(scores).tolist() == [1, 0, 1, 0]


def test_predictions_in_files(tmp_path: Path) -> None:
    data = ingest(X, tmp_path / "rows", Y, shuffle=None, layout="dense", chunk_bytes=2000)
    scores = X.astype(float) @ LINEAR.coef.T + LINEAR.intercept
    labels = LINEAR.classes[np.argmax(scores, axis=1)]
    for suffix in ("csv", "npy", "zarr"):
        assert predict(LINEAR, data, tmp_path / f"out.{suffix}") == 300
    with (tmp_path / "out.csv").open() as file:
        header, *lines = csv.reader(file)
    assert header == ["label", "score a", "score b", "score c", "score d"]
    assert [line[0] for line in lines] == labels.tolist()
    np.testing.assert_allclose(np.array([line[1:] for line in lines], float), scores, rtol=1e-6)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), labels)
    group: Any = zarr.open_group(tmp_path / "out.zarr", mode="r")
    np.testing.assert_array_equal(np.array(group.attrs["classes"])[group["label"][:]], labels)
    np.testing.assert_allclose(group["score"][:], scores, rtol=1e-9)


def test_evaluation_counts_every_confusion(tmp_path: Path) -> None:
    """A label that the model does not know is wrong wherever it goes, and in no line of the matrix."""
    truth = np.where(np.arange(300) % 50 == 7, "z", Y)
    found = evaluate(LINEAR, ingest(X, tmp_path / "rows", truth))
    guess = LINEAR.classes[np.argmax(LINEAR.decide(X), axis=1)]
    labels = list("abcd")
    assert found["confusion"] == confusion_matrix(truth, guess, labels=labels).tolist()
    assert found["accuracy"] == pytest.approx(np.mean(truth == guess))
    assert (found["n_rows"], found["unknown_labels"], found["roc_area"]) == (300, 6, None)
    recall = recall_score(truth, guess, labels=labels, average=None)
    precision = precision_score(truth, guess, labels=labels, average=None, zero_division=0)
    assert list(found["classes"]) == labels
    for k, part in enumerate(found["classes"].values()):
        assert part["rows"] == np.count_nonzero(truth == labels[k])
        assert part["recall"] == pytest.approx(recall[k])
        assert part["precision"] is None or part["precision"] == pytest.approx(precision[k])
    text = format_evaluation(found).splitlines()
    start = text.index("  true class, and predicted as:")
    assert text[start + 1].split() == labels
    assert [line.split() for line in text[start + 2 : start + 6]] == [
        [name, *map(str, counts)] for name, counts in zip(labels, found["confusion"], strict=True)
    ]


def test_more_classes_than_a_byte_counts(tmp_path: Path) -> None:
    y = np.arange(600) % 300
    rows = np.eye(300, dtype=np.float32)[y]
    model = LinearModel(coef=np.eye(300), intercept=np.zeros(300), classes=np.arange(300))
    found = evaluate(model, ingest(rows, tmp_path / "rows", y))
    assert found["accuracy"] == 1.0
    assert found["classes"]["299"]["rows"] == 2


@pytest.mark.parametrize("solver", ["cutting-plane", "smo", "budgeted-sgd", "interior-point"])
def test_the_commands(run: Run, solver: str, tmp_path: Path) -> None:
    table = pd.DataFrame(X, columns=list("uvwxyz")).assign(kind=Y)
    table.to_csv(tmp_path / "rows.csv", index=False)
    data, out = tmp_path / "rows.zarr", tmp_path / "run"
    assert run("ingest", tmp_path / "rows.csv", data, "--label", "kind").code == 0
    trained = run("train", data, "--out", out, "--solver", solver, "--class-weight", "d=5", "--json")
    assert trained.code == 0
    assert trained.result["status"] == ("pass_limit" if solver == "budgeted-sgd" else "converged")
    assert run("predict", out, tmp_path / "rows.csv", "--out", tmp_path / "out.csv").code == 0
    predicted = pd.read_csv(tmp_path / "out.csv")["label"].to_numpy()
    scored = run("evaluate", out, data, "--json").result
    assert scored["accuracy"] == pytest.approx(np.mean(predicted == Y))
    assert scored["accuracy"] > 0.6
    assert "predicted as:" in run("evaluate", out, data).out
    assert run("report", out).code == 0
    assert "problems" in (out / "report.html").read_text()
    assert json.loads((out / "settings.json").read_text())["problems"] == (6 if solver == "smo" else 4)
    assert run("train", data, "--out", tmp_path / "human", "--solver", solver).code == 0


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("labels", [np.array(["red", "green", "blue", "white"]), np.array([7, -3, 0, 100])])
def test_estimators(name: str, labels: Any, tmp_path: Path) -> None:
    y = labels[ROWS.y]
    model = ESTIMATORS[name].fit(X, y, sample_weight=ROWS.weight)
    assert model.classes_.tolist() == sorted(labels.tolist())
    assert model.classes_.dtype == labels.dtype
    scores = model.decision_function(X)
    is_of_pairs = name in ("rbf", "linear kernel")  # of four classes there are six
    assert (scores.shape, model.intercept_.shape) == ((300, 4), (6 if is_of_pairs else 4,))
    np.testing.assert_array_equal(model.predict(X), model.classes_[np.argmax(scores, axis=1)])
    assert model.score(X, y) == np.mean(model.predict(X) == y) > 0.6
    np.testing.assert_allclose(model.decision_function(csr_array(X)), scores, rtol=1e-4, atol=1e-4)
    if hasattr(model, "coef_"):
        assert model.coef_.shape == (len(model.intercept_), 6)
        if is_of_pairs:
            scores = model.set_params(decision_function_shape="ovo").decision_function(X)
            model.set_params(decision_function_shape="ovr")
        np.testing.assert_allclose(X @ model.coef_.T + model.intercept_, scores, rtol=1e-4, atol=1e-4)
    else:
        assert model.dual_coef_.shape == (3 if is_of_pairs else 4, len(model.support_vectors_))
    if name == "low rank":  # its model's file is that of features
        return
    model.save(tmp_path / "model.npz")
    again = streamsvm.load(tmp_path / "model.npz")
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("name", ["linear", "rbf", "budgeted"])
def test_dask_rows_stay_lazy(name: str) -> None:
    rows = da.from_array(X, chunks=(100, 6))
    model = ESTIMATORS[name].fit(X, Y)
    scores, labels = model.decision_function(rows), model.predict(rows)
    assert isinstance(scores, da.Array)
    assert isinstance(labels, da.Array)
    assert scores.chunks == ((100, 100, 100), (4,))
    assert (scores.shape, labels.shape, labels.dtype) == ((300, 4), (300,), model.classes_.dtype)
    np.testing.assert_allclose(scores.compute(scheduler="sync"), model.decision_function(X), rtol=1e-12)
    np.testing.assert_array_equal(labels.compute(scheduler="sync"), model.predict(X))
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("uvwxyz")), npartitions=3)
    named = LinearSVC().fit(frame, da.from_array(Y, chunks=100))
    np.testing.assert_array_equal(
        named.predict(frame).compute(scheduler="sync"), named.predict(frame.compute(scheduler="sync"))
    )


def test_in_a_pipeline() -> None:
    scores = make_pipeline(StandardScaler(), LinearSVC(class_weight="balanced")).fit(X, Y).score(X, Y)
    assert scores > 0.6


def test_a_stream_of_many_classes_is_a_stream_for_each() -> None:
    """Of chunks in which not every class occurs."""
    given: dict[str, Any] = {"budget": 20, "gamma": 0.2, "C": 3.0, "expected_rows": 300}
    several = BudgetedSVC(**given, class_weight={"b": 2.0})
    each = [BudgetedSVC(**given, class_weight={1: 2.0 if code == 1 else 1.0}) for code in range(4)]
    for at in range(0, 300, 50):
        part = slice(at, at + 50)
        assert len(set(Y[part])) < 4
        several.partial_fit(X[part], Y[part], classes=list("abcd"))
        for code, model in enumerate(each):
            model.partial_fit(X[part], (ROWS.y[part] == code).astype(int), classes=[0, 1])
    expected = np.stack([model.decision_function(X) for model in each], axis=1)
    np.testing.assert_allclose(several.decision_function(X), expected, rtol=1e-9, atol=1e-12)
    assert several.objective_ == pytest.approx(sum(model.objective_ for model in each))
    with pytest.raises(InputError, match="needs all rows"):
        BudgetedSVC(class_weight="balanced").partial_fit(X, Y, classes=list("abcd"))


@pytest.mark.parametrize("in_rounds", [False, True])
@pytest.mark.parametrize("solver", ["auto", "interior-point"])
def test_iterations_are_steps_of_the_class_that_took_the_most(
    solver: str, in_rounds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As LIBLINEAR tells them; each class against the rest, alone, tells how many steps it takes."""
    random = np.random.default_rng(4)
    X = random.standard_normal((400, 5)).astype(np.float32)
    y = np.argmax(X[:, :3] + random.standard_normal((400, 3)) * [0.1, 1.0, 3.0], axis=1)
    own = solver if solver != "auto" else CuttingPlane(acceleration="line-search")
    options: dict[str, Any] = {"solver": own, "tol": 1e-5, "n_jobs": 1}
    alone = [LinearSVC(**options).fit(X, y == k).n_iter_ for k in range(3)]
    if in_rounds:
        monkeypatch.setattr("streamsvm.solvers.many.classes._count_side_by_side", lambda *_: 1)
    model = LinearSVC(**options).fit(X, y)
    assert len(set(alone)) > 1
    assert model.n_iter_ == max(alone)
    assert [problem["steps"] for problem in model.result_.problems] == alone
