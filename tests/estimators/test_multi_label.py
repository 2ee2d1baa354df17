"""Estimators on indicator matrices of labels: what scikit-learn's users expect of multi-label classifiers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import f1_score, hamming_loss, log_loss
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC as Liblinear

import streamsvm
from streamsvm import SVC, LinearSVC, LogisticRegression, Nystroem
from streamsvm.models.evaluate import evaluate
from streamsvm.options import TrainOptions
from streamsvm.runs import calibrate
from streamsvm.runs.calibrate import FOLDS
from streamsvm.runs.held_out import draw_folds
from streamsvm.system.errors import InputError
from tests.label_problems import make_labels

PROBLEM = make_labels(1, n=600, empty=False)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("sparse", [False, True])
def test_it_predicts_what_one_against_rest_predicts(loss: str, sparse: bool) -> None:
    Y: Any = csr_array(PROBLEM.Y.astype(int)) if sparse else PROBLEM.Y.astype(int)
    model = LinearSVC(loss=loss, tol=1e-6).fit(PROBLEM.X, Y)
    theirs = OneVsRestClassifier(Liblinear(loss=loss, tol=1e-8, max_iter=100_000)).fit(PROBLEM.X, PROBLEM.Y.astype(int))
    assert model.status_ == "converged"
    assert model.coef_.shape == (5, 6)
    assert model.classes_.tolist() == [0, 1, 2, 3, 4]
    scores = model.decision_function(PROBLEM.X)
    np.testing.assert_allclose(scores, theirs.decision_function(PROBLEM.X), atol=2e-3)
    found = model.predict(PROBLEM.X)
    assert found.shape == PROBLEM.Y.shape
    assert np.mean(found == theirs.predict(PROBLEM.X)) > 0.999
    assert model.score(PROBLEM.X, Y) == pytest.approx(np.mean((found == PROBLEM.Y).all(axis=1)))
    assert [one["status"] for one in model.result_.problems] == ["converged"] * 5


def test_a_mapping_weighs_every_label_alike() -> None:
    """As LIBLINEAR with the same class_weight does for each label."""
    weights = {0: 1.0, 1: 5.0}
    model = LinearSVC(loss="squared_hinge", tol=1e-7, class_weight=weights).fit(PROBLEM.X, PROBLEM.Y)
    for label in range(5):
        theirs = Liblinear(tol=1e-10, max_iter=100_000, class_weight=weights).fit(PROBLEM.X, PROBLEM.Y[:, label])
        np.testing.assert_allclose(model.coef_[label], theirs.coef_[0], rtol=1e-2, atol=1e-3)


def test_the_measures_are_those_of_scikit_learn(tmp_path: Path) -> None:
    model = LinearSVC(loss="squared_hinge").fit(PROBLEM.X, PROBLEM.Y)
    found = evaluate(model.model_, PROBLEM.store(tmp_path / "rows"))
    predicted, scores = model.predict(PROBLEM.X), model.decision_function(PROBLEM.X)
    assert found["f1_micro"] == pytest.approx(f1_score(PROBLEM.Y, predicted, average="micro"))
    assert found["f1_macro"] == pytest.approx(f1_score(PROBLEM.Y, predicted, average="macro"))
    assert found["hamming_loss"] == pytest.approx(hamming_loss(PROBLEM.Y, predicted))
    order = np.argsort(-scores, axis=1)
    for k in (1, 3, 5):
        at = np.mean(np.take_along_axis(PROBLEM.Y, order[:, :k], 1))
        assert found["precision_at"][str(k)] == pytest.approx(at)


def test_probabilities_of_each_label() -> None:
    model = LogisticRegression(tol=1e-6).fit(PROBLEM.X, PROBLEM.Y)
    probabilities = model.predict_proba(PROBLEM.X)
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-model.decision_function(PROBLEM.X))))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(PROBLEM.X)), probabilities)


@pytest.mark.parametrize("way", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_probabilities_of_each_label_are_those_of_scikit_learn_on_the_same_folds(
    loss: str, way: str, tmp_path: Path
) -> None:
    model = LinearSVC(loss=loss, tol=1e-8, probability=way).fit(PROBLEM.X, PROBLEM.Y)
    assert model.status_ == "converged"
    found, options = model.predict_proba(PROBLEM.X), TrainOptions(task="multi-label")
    fold = draw_folds(PROBLEM.store(tmp_path / "rows"), options, FOLDS)
    folds = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(FOLDS)]
    for label in range(5):
        alone = Liblinear(loss=loss, tol=1e-10, max_iter=10_000_000)
        theirs = CalibratedClassifierCV(alone, method=way, ensemble=False, cv=folds)
        expected = theirs.fit(PROBLEM.X.astype(np.float64), PROBLEM.Y[:, label])
        likely = expected.predict_proba(PROBLEM.X.astype(np.float64))[:, 1]
        far = np.abs(found[:, label] - likely) > 5e-3
        assert np.mean(far) <= (0.02 if way == "isotonic" else 0.0)  # an isotonic function may be steep
    np.testing.assert_allclose(np.exp(model.predict_log_proba(PROBLEM.X)), found, atol=1e-15)
    alone = LinearSVC(loss=loss, tol=1e-8).fit(PROBLEM.X, PROBLEM.Y)
    np.testing.assert_array_equal(model.decision_function(PROBLEM.X), alone.decision_function(PROBLEM.X))


@pytest.mark.parametrize("way", ["sigmoid", "isotonic"])
def test_a_label_of_no_row_and_one_of_all_rows_have_one_probability(way: str) -> None:
    Y = np.column_stack((PROBLEM.Y[:, 0], np.zeros(600), np.ones(600))).astype(int)
    model = LinearSVC(loss="squared_hinge", probability=way).fit(PROBLEM.X, Y)
    likely = model.predict_proba(PROBLEM.X)
    np.testing.assert_allclose(likely[:, 1:], np.tile([1 / 602, 601 / 602], (600, 1)), rtol=1e-12)  # Platt's targets
    assert np.ptp(likely[:, 0]) > 0.5


def test_how_true_the_probabilities_of_labels_are_is_told(tmp_path: Path) -> None:
    model, Y = LinearSVC(loss="squared_hinge", probability=True).fit(PROBLEM.X, PROBLEM.Y), PROBLEM.Y
    likely, found = model.predict_proba(PROBLEM.X), evaluate(model.model_, PROBLEM.store(tmp_path / "rows"))
    assert found["brier_score"] == pytest.approx(np.mean((likely - Y) ** 2))
    assert found["log_loss"] == pytest.approx(log_loss(Y.ravel(), likely.ravel()))
    assert sum(part["rows"] for part in found["reliability"]) == Y.size
    held_out = model.result_.calibration
    assert found["brier_score"] < held_out["brier_score"] < 1.5 * found["brier_score"]  # of rows not seen
    assert (held_out["method"], sum(part["rows"] for part in held_out["reliability"])) == ("sigmoid", Y.size)


def test_probabilities_of_labels_from_disk_and_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits from disk, on one thread and two, and in a saved model; of many rows every second one is scored."""
    dataset, given = PROBLEM.store(tmp_path / "rows"), {"loss": "squared_hinge", "probability": True}
    model = LinearSVC(**given, n_jobs=1).fit(dataset)
    assert LinearSVC(**given, n_jobs=2).fit(dataset).result_.model_sha256 == model.result_.model_sha256
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict_proba(PROBLEM.X), model.predict_proba(PROBLEM.X))  # type: ignore[union-attr]
    lazy = model.predict_proba(da.from_array(PROBLEM.X, chunks=(250, PROBLEM.X.shape[1])))
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), model.predict_proba(PROBLEM.X))
    monkeypatch.setattr(calibrate, "MOST_SCORES", 1500)
    for least, step in ((10_000, 1), (10, 2)):
        monkeypatch.setattr(calibrate, "LEAST_SCORED", least)
        part = LinearSVC(**given).fit(dataset).result_.calibration
        assert sum(each["rows"] for each in part["reliability"]) == 600 // step * 5


def test_dask_rows_and_datasets(tmp_path: Path) -> None:
    X, Y = (da.from_array(values, chunks=(250, values.shape[1])) for values in (PROBLEM.X, PROBLEM.Y.astype(int)))
    model, own = LinearSVC(loss="squared_hinge").fit(X, Y), LinearSVC(loss="squared_hinge")
    np.testing.assert_array_equal(model.predict(X).compute(), model.predict(PROBLEM.X))
    dataset = PROBLEM.store(tmp_path / "rows")
    np.testing.assert_array_equal(own.fit(dataset).predict(dataset), own.predict(PROBLEM.X))
    own.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(PROBLEM.X), own.predict(PROBLEM.X))
    assert loaded.loss == "squared_hinge"  # type: ignore[union-attr]


def test_features_of_a_kernel() -> None:
    """Labels that no hyperplane separates are learned from features that are made in each pass."""
    X = PROBLEM.X[:, :2]
    Y = np.stack((np.linalg.norm(X, axis=1) < 1, X[:, 0] * X[:, 1] > 0), axis=1)
    model = LinearSVC(loss="squared_hinge", C=10.0, feature_map=Nystroem(n_components=60, gamma=1.0)).fit(X, Y)
    assert model.status_ == "converged"
    assert np.mean(model.predict(X) == Y) > 0.95


def test_a_checkpoint_knows_its_labels(tmp_path: Path) -> None:
    LinearSVC(loss="squared_hinge", checkpoint=tmp_path / "run").fit(PROBLEM.X, PROBLEM.Y)
    LinearSVC(loss="squared_hinge", checkpoint=tmp_path / "run").fit(PROBLEM.X, PROBLEM.Y)
    with pytest.raises(InputError):
        LinearSVC(loss="squared_hinge", checkpoint=tmp_path / "run").fit(PROBLEM.X, ~PROBLEM.Y)


@pytest.mark.parametrize(
    ("model", "Y", "message"),
    [
        (LinearSVC(), PROBLEM.Y * 2, "y: row 1 .* holds only 0 and 1, not 2"),
        (LinearSVC(), PROBLEM.Y[:-1], "inconsistent numbers of samples"),
        (LinearSVC(probability="temperature"), PROBLEM.Y, "probabilities by temperature need one label per row"),
        (LinearSVC(multi_class="crammer_singer"), PROBLEM.Y, "the task crammer-singer requires one label per row"),
        (LinearSVC(class_weight={2: 1.0}), PROBLEM.Y, "class_weight names 2; the classes are 0 and 1"),
        (SVC(), PROBLEM.Y, r"y should be a 1d array"),
    ],
)
def test_what_is_refused(model: Any, Y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.fit(PROBLEM.X, Y)
