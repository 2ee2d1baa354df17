"""onnxruntime carries exported graphs out, and gives held-out rows the scores and labels of streamsvm."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.models.evaluate import find_probabilities
from streamsvm.models.exports.export import export as export_model
from streamsvm.models.model import KernelModel, LinearModel, load
from streamsvm.numeric.labels import vote
from streamsvm.problems.classification import choose
from streamsvm.system.errors import InputError
from tests.models.exports.trained import Task, compare, export, score, train

SMO = ["--solver", "smo"]
CASES = [
    (Task(scale="standard"), []),
    (Task(4, sparse=True, scale="maxabs"), []),
    (Task(scale="minmax"), [*SMO, "--kernel", "rbf"]),
    (Task(4, sparse=True), [*SMO, "--kernel", "rbf", "--multi-class", "ovr"]),
    (Task(4, scale="standard"), [*SMO, "--kernel", "rbf"]),
    (Task(4), [*SMO, "--kernel", "poly", "--gamma", "0.1", "--coef0", "1"]),
    (Task(sparse=True), [*SMO, "--kernel", "sigmoid", "--gamma", "0.01", "--coef0", "-0.5"]),
    (Task(4), [*SMO, "--kernel", "linear"]),
    (Task(0, scale="standard"), ["--task", "regress"]),
    (Task(0), ["--task", "regress", *SMO, "--kernel", "rbf"]),
    (Task(), ["--task", "one-class", "--kernel", "rbf"]),
    (Task(4), ["--task", "rank"]),
]


@pytest.mark.parametrize(("task", "options"), CASES, ids=str)
def test_scores_and_labels(task: Task, options: list[str], tmp_path: Path) -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    run = train(task, tmp_path, *options)
    model, file = load(run), str(export(run, "onnx"))
    onnx.checker.check_model(file, full_check=True)
    session = runtime.InferenceSession(file)
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"rows": task.make()[2]}), strict=True))
    expected = score(model, task)
    if isinstance(model, KernelModel) and model.n_support is not None:
        compare(found["pairs"], expected, task)
        expected = vote(expected, 4)
    compare(found["scores"], expected, task)
    assert ("label" in found) == model.problem.predicts_labels
    if model.problem.predicts_labels:
        codes = choose(expected if model.score_shape else expected[:, 0])
        np.testing.assert_array_equal(found["label"], model.classes[codes])
        assert np.unique(codes).size > 1


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    "options",
    [
        ["--loss", "logistic"],
        ["--multi-class", "multinomial"],
        ["--multi-class", "multinomial", "--probabilities", "sigmoid"],
        ["--probabilities", "sigmoid"],
        ["--probabilities", "temperature"],
    ],
    ids=str,
)
def test_probabilities(options: list[str], n_classes: int, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    task = Task(n_classes)
    run = train(task, tmp_path, *options)
    model, session = load(run), runtime.InferenceSession(str(export(run, "onnx")))
    (found,) = session.run(["probabilities"], {"rows": task.make()[2]})
    expected = find_probabilities(model, model.decide(task.make()[2]))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_classes_that_are_all_impossible_are_equally_likely(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model = LinearModel(
        coef=np.zeros((3, 1)), intercept=np.full(3, -1e4), classes=np.arange(3), info={"loss": "logistic"}
    )
    export_model(model, tmp_path / "m.onnx", "onnx")
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    (found,) = session.run(["probabilities"], {"rows": np.ones((1, 1), np.float32)})
    np.testing.assert_allclose(found, np.full((1, 3), 1 / 3))


@pytest.mark.parametrize("by", [{"loss": "logistic"}, {"sigmoids": {"A": [-2.0, -0.5], "B": [0.3, 0.0]}}])
def test_each_label_of_a_set_has_a_probability(by: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    info = {"task": "multi-label", **by}
    model = LinearModel(coef=np.array([[1.0], [-2.0]]), intercept=np.zeros(2), classes=np.array(["a", "b"]), info=info)
    export_model(model, tmp_path / "m.onnx", "onnx")
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    assert [output.name for output in session.get_outputs()] == ["scores", "probabilities"]
    scores, found = session.run(None, {"rows": np.ones((1, 1), np.float32)})
    np.testing.assert_allclose(scores, [[1.0, -2.0]])
    np.testing.assert_allclose(found, find_probabilities(model, scores))


def test_labels_that_are_texts(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model = LinearModel(coef=np.array([1.0, -1.0]), intercept=0.0, classes=np.array(["no", "yes, é"]))
    export_model(model, tmp_path / "m.onnx", "onnx")
    rows = np.array([[1, 0], [0, 1]], np.float32)
    (labels,) = runtime.InferenceSession(str(tmp_path / "m.onnx")).run(["label"], {"rows": rows})
    assert labels.tolist() == ["yes, é", "no"]


def test_without_the_package_its_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    model = LinearModel(coef=np.ones(2), intercept=0.0, classes=np.array([0, 1]))
    with pytest.raises(InputError, match=r"streamsvm\[onnx\]"):
        export_model(model, tmp_path / "m.onnx", "onnx")
    assert list(tmp_path.iterdir()) == []


def test_what_is_too_large_for_a_file(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    wide = replace(
        LinearModel(coef=np.ones(2), intercept=0.0, classes=np.array([0, 1])), coef=np.broadcast_to(1.0, (1 << 28) + 1)
    )
    with pytest.raises(InputError, match="too large"):
        export_model(wide, tmp_path / "m.onnx", "onnx")
