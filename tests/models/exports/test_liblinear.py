"""LIBLINEAR reads exported models, and gives held-out rows the scores, labels and probabilities of streamsvm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm.models.evaluate import find_probabilities
from streamsvm.models.model import load
from streamsvm.problems.classification import choose
from tests.models.exports.trained import Task, as_others_take, compare, export, score, train

liblinear = pytest.importorskip("liblinear.liblinearutil")

CASES = [
    (Task(), []),
    (Task(sparse=True, scale="maxabs"), []),
    (Task(4, scale="standard"), []),
    (Task(4, sparse=True), ["--loss", "squared_hinge"]),
    (Task(scale="minmax"), ["--loss", "logistic"]),
    (Task(4), ["--loss", "logistic"]),
    (Task(4, scale="minmax"), ["--multi-class", "crammer_singer"]),
    (Task(2), ["--multi-class", "crammer_singer"]),
    (Task(4, sparse=True), ["--multi-class", "multinomial"]),
    (Task(2), ["--multi-class", "multinomial"]),
    (Task(scale="standard"), ["--solver", "smo", "--kernel", "linear"]),
    (Task(4, sparse=True), ["--solver", "smo", "--kernel", "linear", "--multi-class", "ovr"]),
]


@pytest.mark.parametrize(("task", "options"), CASES, ids=str)
def test_scores_and_labels(task: Task, options: list[str], tmp_path: Path) -> None:
    run = train(task, tmp_path, *options)
    model, other = load(run), liblinear.load_model(str(export(run, "liblinear")))
    labels, _, values = liblinear.predict([], as_others_take(task), other, "-q")
    scores = score(model, task)
    order = [other.get_labels().index(label) for label in model.classes.tolist()] if len(values[0]) > 1 else [0]
    compare(np.array(values)[:, order], scores, task)
    assert np.unique(labels).size > 1
    np.testing.assert_array_equal(labels, model.classes[choose(scores if scores.shape[1] > 1 else scores[:, 0])])


@pytest.mark.parametrize("n_classes", [2, 4])
def test_probabilities_of_the_logistic_loss(n_classes: int, tmp_path: Path) -> None:
    task = Task(n_classes, scale="standard")
    run = train(task, tmp_path, "--loss", "logistic")
    model, other = load(run), liblinear.load_model(str(export(run, "liblinear")))
    _, _, values = liblinear.predict([], as_others_take(task), other, "-b 1 -q")
    order = [other.get_labels().index(label) for label in model.classes.tolist()]
    scores = score(model, task)
    expected = find_probabilities(model, scores if n_classes > 2 else scores[:, 0])
    np.testing.assert_allclose(np.array(values)[:, order], expected, rtol=1e-6)


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
def test_regression(loss: str, tmp_path: Path) -> None:
    task = Task(0, scale="standard")
    run = train(task, tmp_path, "--task", "regress", "--loss", loss)
    other = liblinear.load_model(str(export(run, "liblinear")))
    assert other.is_regression_model()
    predicted, _, _ = liblinear.predict([], as_others_take(task), other, "-q")
    compare(predicted, score(load(run), task)[:, 0], task)


def test_a_ranking_predicts_its_scores(tmp_path: Path) -> None:
    task = Task(4)
    run = train(task, tmp_path, "--task", "rank")
    predicted, _, _ = liblinear.predict(
        [], as_others_take(task), liblinear.load_model(str(export(run, "liblinear"))), "-q"
    )
    compare(predicted, score(load(run), task)[:, 0], task)


def test_one_class(tmp_path: Path) -> None:
    task = Task(scale="minmax")
    run = train(task, tmp_path, "--task", "one-class", "--kernel", "linear", "--nu", "0.3")
    model, other = load(run), liblinear.load_model(str(export(run, "liblinear")))
    assert other.is_oneclass_model()
    labels, _, values = liblinear.predict([], as_others_take(task), other, "-q")
    compare(values, score(model, task), task)
    np.testing.assert_array_equal(labels, np.where(score(model, task)[:, 0] > 0, 1, -1))
