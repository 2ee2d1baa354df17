"""LIBSVM reads exported models, and gives held-out rows the scores, labels and probabilities of streamsvm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm import ingest
from streamsvm.cli.main import main
from streamsvm.kernels.kernel import Kernel
from streamsvm.models.evaluate import find_probabilities
from streamsvm.models.exports.export import export as export_model
from streamsvm.models.model import KernelModel, load
from streamsvm.numeric.labels import list_pairs
from tests.models.exports.trained import F64, Task, as_others_take, compare, export, score, train

svmutil = pytest.importorskip("libsvm.svmutil")

SMO = ["--solver", "smo"]
OF_PAIRS = [
    (Task(4), [*SMO, "--kernel", "rbf"]),
    (Task(4, sparse=True), [*SMO, "--kernel", "poly", "--degree", "2", "--coef0", "1"]),
    (Task(4, scale="standard"), [*SMO, "--kernel", "linear"]),
    (Task(4, sparse=True, scale="maxabs"), [*SMO, "--kernel", "linear"]),
]
OF_CLASSES = [
    (Task(4), [*SMO, "--kernel", "rbf", "--multi-class", "ovr"]),
    (Task(4, sparse=True), [*SMO, "--kernel", "rbf", "--multi-class", "ovr"]),
    (Task(4, scale="minmax"), []),
    (Task(4, sparse=True, scale="maxabs"), ["--multi-class", "crammer_singer"]),
    (Task(4, scale="standard"), ["--multi-class", "multinomial"]),
    (Task(4, sparse=True), [*SMO, "--kernel", "rbf", "--multi-class", "crammer_singer"]),
]
OF_TWO = [
    (Task(), [*SMO, "--kernel", "rbf", "--gamma", "0.1"]),
    (Task(sparse=True), [*SMO, "--kernel", "rbf"]),
    (Task(), [*SMO, "--kernel", "sigmoid", "--gamma", "0.01", "--coef0", "-0.5"]),
    (Task(sparse=True), [*SMO, "--kernel", "poly", "--gamma", "0.2"]),
    (Task(scale="standard"), [*SMO, "--kernel", "linear"]),
    (Task(sparse=True, scale="maxabs"), ["--solver", "irwls", "--kernel", "linear"]),
    (Task(scale="minmax"), []),
]


def predict(task: Task, run: Path, options: str = "-q") -> tuple[Any, list[float], F64]:
    """LIBSVM's model, labels and values."""
    other = svmutil.svm_load_model(str(export(run, "libsvm")))
    labels, _, values = svmutil.svm_predict([], as_others_take(task), other, options)
    return other, labels, np.array(values)


@pytest.mark.parametrize(("task", "options"), OF_TWO, ids=str)
def test_two_classes(task: Task, options: list[str], tmp_path: Path) -> None:
    run = train(task, tmp_path, *options)
    model, scores = load(run), score(load(run), task)
    _, labels, values = predict(task, run)
    compare(values, scores, task)
    np.testing.assert_array_equal(labels, model.classes[(scores[:, 0] > 0).astype(int)])
    assert np.unique(labels).size == 2


@pytest.mark.parametrize(("task", "options"), OF_PAIRS, ids=str)
def test_all_pairs_of_classes(task: Task, options: list[str], tmp_path: Path) -> None:
    run = train(task, tmp_path, *options)
    model = load(run)
    other, labels, values = predict(task, run)
    assert other.get_labels() == model.classes.tolist()
    compare(values, score(model, task), task)
    votes = np.zeros((len(values), 4))
    for (first, second), own in zip(list_pairs(4), values.T, strict=True):
        votes[np.arange(len(own)), np.where(own > 0, first, second)] += 1
    np.testing.assert_array_equal(labels, model.classes[np.argmax(votes, axis=1)])


@pytest.mark.parametrize(("task", "options"), OF_CLASSES, ids=str)
def test_each_class_against_the_rest(task: Task, options: list[str], tmp_path: Path) -> None:
    run = train(task, tmp_path, *options)
    model, scores = load(run), score(load(run), task)
    _, labels, values = predict(task, run)
    differences = np.stack([scores[:, first] - scores[:, second] for first, second in list_pairs(4)], axis=1)
    compare(values, differences, task)
    np.testing.assert_array_equal(labels, model.classes[np.argmax(scores, axis=1)])
    assert np.unique(labels).size > 2


@pytest.mark.parametrize(
    ("task", "options"),
    [
        (Task(), [*SMO, "--kernel", "rbf", "--probabilities", "sigmoid"]),
        (Task(), [*SMO, "--kernel", "rbf", "--probabilities", "temperature"]),
        (Task(scale="standard"), ["--probabilities", "sigmoid"]),
        (Task(sparse=True), ["--loss", "logistic"]),
    ],
    ids=str,
)
def test_probabilities_of_two_classes(task: Task, options: list[str], tmp_path: Path) -> None:
    run = train(task, tmp_path, *options)
    model = load(run)
    other, _, values = predict(task, run, "-b 1 -q")
    order = [other.get_labels().index(label) for label in model.classes.tolist()]
    expected = np.clip(find_probabilities(model, score(model, task)[:, 0]), 1e-7, 1 - 1e-7)  # LIBSVM's limits
    np.testing.assert_allclose(values[:, order], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        (Task(0), [*SMO, "--kernel", "rbf"]),
        (Task(0, sparse=True, scale="maxabs"), ["--kernel", "linear"]),
        (Task(0, scale="standard"), []),
    ],
    ids=str,
)
def test_regression(task: Task, options: list[str], tmp_path: Path) -> None:
    run = train(task, tmp_path, "--task", "regress", *options)
    _, predicted, _ = predict(task, run)
    compare(predicted, score(load(run), task)[:, 0], task)


@pytest.mark.parametrize("sparse", [False, True])
def test_one_class(sparse: bool, tmp_path: Path) -> None:
    task = Task(sparse=sparse)
    run = train(task, tmp_path, "--task", "one-class", "--kernel", "rbf", "--nu", "0.3")
    _, labels, values = predict(task, run)
    compare(values, score(load(run), task), task)
    np.testing.assert_array_equal(labels, np.where(values[:, 0] > 0, 1, -1))


def test_a_ranking_predicts_its_scores(tmp_path: Path) -> None:
    task = Task(4)
    run = train(task, tmp_path, "--task", "rank")
    _, predicted, _ = predict(task, run)
    compare(predicted, score(load(run), task)[:, 0], task)


def test_known_kernel_values(tmp_path: Path) -> None:
    """LIBSVM takes the number of a row before its kernel values."""
    X, y, new = Task().make()
    ingest((X @ X.T).astype(np.float32), tmp_path / "rows.zarr", y, shuffle=None)
    run = tmp_path / "run"
    assert main(["train", str(tmp_path / "rows.zarr"), "--out", str(run), "--kernel", "precomputed", *SMO]) == 0
    other = svmutil.svm_load_model(str(export(run, "libsvm")))
    K = (new @ X.T).astype(np.float32)
    _, _, values = svmutil.svm_predict([], np.column_stack((np.arange(1, 41), K.astype(np.float64))), other, "-q")
    np.testing.assert_allclose(np.ravel(values), load(run).decide(K), rtol=1e-6, atol=1e-6)


def test_a_model_without_support_vectors_is_read(tmp_path: Path) -> None:
    empty = np.empty((0, 2), np.float32)
    model = KernelModel(
        kernel=Kernel("rbf"), support_vectors=empty, dual_coef=np.empty(0), intercept=0.5, classes=np.array([-1, 1])
    )
    export_model(model, tmp_path / "m", "libsvm")
    _, _, values = svmutil.svm_predict([], np.ones((3, 2)), svmutil.svm_load_model(str(tmp_path / "m")), "-q")
    assert values == [[0.5]] * 3
