"""Estimators on indicator matrices of labels: what scikit-learn's users expect of multi-label classifiers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import f1_score, hamming_loss
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC as Liblinear

import streamsvm
from streamsvm import SVC, LinearSVC, LogisticRegression
from streamsvm.errors import InputError
from streamsvm.models.evaluate import evaluate
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
    model = LinearSVC(loss="squared_hinge", C=10.0, feature_map="nystrom", rank=60, gamma=1.0).fit(X, Y)
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
        (LinearSVC(), PROBLEM.Y * 2, "y: row 1 .* holds 0 and 1, and not 2"),
        (LinearSVC(), PROBLEM.Y[:-1], "inconsistent numbers of samples"),
        (LinearSVC(probability=True), PROBLEM.Y, "probability=True is for one label a row"),
        (LinearSVC(multi_class="crammer_singer"), PROBLEM.Y, "the task crammer-singer is for one label a row"),
        (LinearSVC(class_weight={2: 1.0}), PROBLEM.Y, "class_weight names 2; the classes are 0 and 1"),
        (SVC(), PROBLEM.Y, r"y should be a 1d array"),
    ],
)
def test_what_is_refused(model: Any, Y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.fit(PROBLEM.X, Y)
