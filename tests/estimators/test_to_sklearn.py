"""scikit-learn's own estimators give held-out rows the scores, labels and probabilities of a model."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import linear_model
from sklearn.base import BaseEstimator, is_classifier, is_outlier_detector, is_regressor
from sklearn.multiclass import OneVsRestClassifier

import streamsvm
from streamsvm import SVC, LinearSVC, LogisticRegression, OneClassSVM, PolynomialMap, to_sklearn
from streamsvm.models.model import load
from streamsvm.system.errors import InputError
from tests.models.exports.trained import Task, as_others_take, compare, score, train

SMO = ["--solver", "smo"]
CASES = [
    (Task(scale="standard"), []),
    (Task(4, sparse=True, scale="maxabs"), []),
    (Task(4), ["--loss", "logistic"]),
    (Task(4, scale="standard"), ["--multi-class", "multinomial"]),
    (Task(scale="minmax"), [*SMO, "--kernel", "rbf"]),
    (Task(sparse=True, scale="maxabs"), [*SMO, "--kernel", "rbf"]),
    (Task(4, sparse=True), [*SMO, "--kernel", "rbf", "--multi-class", "ovr"]),
    (Task(), [*SMO, "--kernel", "poly", "--gamma", "0.1", "--coef0", "1"]),
    (Task(sparse=True), [*SMO, "--kernel", "sigmoid", "--gamma", "0.01", "--coef0", "-0.5"]),
    (Task(scale="standard"), [*SMO, "--kernel", "linear"]),
    (Task(0, scale="standard"), ["--task", "regress"]),
    (Task(0), ["--task", "regress", *SMO, "--kernel", "rbf"]),
    (Task(), ["--task", "one-class", "--kernel", "rbf"]),
    (Task(), ["--task", "one-class", "--solver", "cutting-plane"]),
    (Task(4), ["--task", "rank"]),
    (Task(), ["--map", "nystrom", "--rank", "20"]),
]


@pytest.mark.parametrize(("task", "options"), CASES, ids=str)
def test_scores_and_labels(task: Task, options: list[str], tmp_path: Path) -> None:
    model = load(train(task, tmp_path, *options))
    other, rows, expected = to_sklearn(model), as_others_take(task), score(model, task)
    assert type(other).__module__.startswith("sklearn.")
    if not model.problem.predicts_labels:
        assert is_regressor(other)
        compare(other.predict(rows), expected, task)
        return
    compare(other.decision_function(rows), expected, task)
    if not model.problem.needs_labels:
        assert is_outlier_detector(other)
        np.testing.assert_array_equal(other.predict(rows), np.where(expected[:, 0] > 0, 1, -1))
        return
    assert is_classifier(other)
    codes = expected.argmax(axis=1) if model.score_shape else (expected[:, 0] > 0).astype(int)
    np.testing.assert_array_equal(other.predict(rows), model.classes[codes])
    again = pickle.loads(pickle.dumps(other))
    assert isinstance(again, BaseEstimator)
    np.testing.assert_array_equal(again.predict(rows), other.predict(rows))


def test_an_estimator_with_its_names_and_probabilities() -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(100, 3)), columns=["a", "b", "c"])
    kinds = np.where(frame["a"] > 0, "up", "down")
    model = LogisticRegression().fit(frame, kinds)
    other = to_sklearn(model)
    np.testing.assert_allclose(other.predict_proba(frame), model.predict_proba(frame), rtol=1e-6)
    assert other.feature_names_in_.tolist() == ["a", "b", "c"]
    assert other.predict(frame).tolist() == model.predict(frame).tolist()


@pytest.mark.parametrize(
    ("way", "kind"), [("ovr", OneVsRestClassifier), ("multinomial", linear_model.LogisticRegression)]
)
def test_probabilities_of_three_classes(way: str, kind: type) -> None:
    X = np.random.default_rng(0).normal(size=(100, 3))
    names = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    model = LogisticRegression(multi_class=way).fit(X, names)
    other = to_sklearn(model)
    assert type(other) is kind
    assert other.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(other.predict_proba(X), model.predict_proba(X), rtol=1e-5)
    assert other.predict(X).tolist() == model.predict(X).tolist()


def test_a_loaded_model(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(120, 2))
    OneClassSVM(nu=0.3).fit(X[:80]).save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    assert to_sklearn(loaded).predict(X[80:]).tolist() == loaded.predict(X[80:]).tolist()


def make_refused() -> list[tuple[Any, str]]:
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 3))
    kinds, sets = np.arange(60) % 3, (X > 0).astype(int)
    return [
        (SVC().fit(X, kinds), "it votes over all pairs of classes"),
        (LinearSVC(loss="squared_hinge").fit(X, sets), "its rows have sets of labels"),
        (SVC(kernel="precomputed").fit(X @ X.T, kinds > 0), "its kernel was given as a matrix"),
        (LinearSVC(feature_map=PolynomialMap()).fit(X, kinds > 0), "a polynomial map"),
        (LinearSVC(probability=True).fit(X, kinds > 0), "its probabilities are calibrated"),
    ]


def test_what_is_refused() -> None:
    for model, message in make_refused():
        with pytest.raises(InputError, match=message):
            to_sklearn(model)
