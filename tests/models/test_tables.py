"""CSV and JSON of a model are enough to compute its scores, and texts of others are harmless in them."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.cli.main import main
from streamsvm.models.exports.export import export as export_model
from streamsvm.models.model import LinearModel, load
from streamsvm.numeric.labels import list_pairs
from tests.models.exports.trained import F64, Task, compare, export, score, train

SMO = ["--solver", "smo"]


def read_table(file: Path) -> tuple[list[str], list[str], F64]:
    """The header, the first cells of the lines, and the numbers."""
    with file.open(newline="") as opened:
        header, *lines = csv.reader(opened)
    return header, [line[0] for line in lines], np.array([line[1:] for line in lines], np.float64)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        (Task(scale="standard"), []),
        (Task(4, sparse=True, scale="maxabs"), []),
        (Task(4), ["--multi-class", "crammer_singer"]),
        (Task(4, scale="standard"), ["--multi-class", "multinomial"]),
        (Task(0, scale="minmax"), ["--task", "regress"]),
        (Task(4), ["--task", "rank"]),
        (Task(scale="minmax"), [*SMO, "--kernel", "linear"]),
    ],
    ids=str,
)
def test_weights_and_bias(task: Task, options: list[str], tmp_path: Path) -> None:
    run = train(task, tmp_path, *options)
    model = load(run)
    header, names, table = read_table(export(run, "csv"))
    each = [f"weight {name}" for name in model.classes] if model.score_shape else ["weight"]
    assert header == ["feature", *each]
    assert names == ["1", "2", "3", "4", "5", "6", "(bias)"]
    compare(task.make()[2].astype(np.float64) @ table[:-1] + table[-1], score(model, task), task)


def test_names_from_others_are_no_formulas(tmp_path: Path) -> None:
    names, classes = ('=cmd|" /C calc"!A0', "a,b", "+1+1"), np.array(["@SUM(A1)", "-2+3", "c"])
    coef = np.arange(9.0).reshape(3, 3)
    export_model(
        LinearModel(coef=coef, intercept=np.zeros(3), classes=classes, feature_names=names), tmp_path / "w.csv", "csv"
    )
    header, first, table = read_table(tmp_path / "w.csv")
    assert first == ["'" + names[0], names[1], "'" + names[2], "(bias)"]
    assert header[1:] == ["weight @SUM(A1)", "weight -2+3", "weight c"]
    np.testing.assert_array_equal(table[:-1], coef.T)


def compute_kernel(about: dict[str, Any], X: F64, Z: F64) -> F64:
    """The kernel values that the description tells."""
    dot, gamma = X @ Z.T, about.get("gamma", 0.0)
    match about["name"]:
        case "linear":
            return dot
        case "poly":
            return (gamma * dot + about["coef0"]) ** about["degree"]
        case "sigmoid":
            return np.tanh(gamma * dot + about["coef0"])
    return np.exp(-gamma * np.sum((X[:, None, :] - Z[None, :, :]) ** 2, axis=2))


def compute_scores(told: dict[str, Any], X: F64) -> F64:
    """The scores of raw rows by what the description tells, and nothing else."""
    if told["scaling"] is not None:
        X = (X - told["offset"]) * told["factor"]
    if told["kind"] != "kernel":
        return X @ np.atleast_2d(told["coef"]).T + told["intercept"]
    Z = np.zeros((len(told["support_vectors"]), told["n_features"]))
    for z, row in zip(Z, told["support_vectors"], strict=True):
        if isinstance(row, dict):
            z[row["indices"]] = row["values"]
        else:
            z[:] = row
    K, coefs = compute_kernel(told["kernel"], X, Z), np.atleast_2d(told["dual_coef"])
    if "n_support" not in told:
        return K @ coefs.T + told["intercept"]
    owner, scores = np.repeat(np.arange(len(told["classes"])), told["n_support"]), []
    for (first, second), b in zip(list_pairs(len(told["classes"])), told["intercept"], strict=True):
        own, other = owner == first, owner == second
        scores.append(K[:, own] @ coefs[second - 1, own] + K[:, other] @ coefs[first, other] + b)
    return np.stack(scores, axis=1)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        (Task(4, scale="standard"), []),
        (Task(sparse=True, scale="maxabs"), ["--loss", "logistic"]),
        (Task(scale="minmax"), [*SMO, "--kernel", "rbf", "--probabilities", "isotonic"]),
        (Task(4, sparse=True), [*SMO, "--kernel", "poly", "--degree", "2", "--coef0", "1"]),
        (Task(4), [*SMO, "--kernel", "sigmoid", "--gamma", "0.01", "--multi-class", "ovr"]),
        (Task(0), ["--task", "regress", *SMO, "--kernel", "rbf"]),
        (Task(), ["--task", "one-class", "--kernel", "rbf"]),
    ],
    ids=str,
)
def test_json_tells_all_of_a_model(task: Task, options: list[str], tmp_path: Path) -> None:
    run = train(task, tmp_path, *options)
    model, told = load(run), json.loads(export(run, "json").read_text())
    compare(compute_scores(told, task.make()[2].astype(np.float64)), score(model, task), task)
    assert told["classes"] == model.classes.tolist()
    result = json.loads((run / "result.json").read_text())
    assert told["certificate"]["objective"] == result["objective"]
    assert told["certificate"]["lower_bound"] == result["lower_bound"]
    assert (told["probabilities"] is None) == ("--probabilities" not in options)


def test_weights_that_overflow_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(Task(scale="standard"), tmp_path)
    model = load(run)
    assert isinstance(model, LinearModel)
    assert model.scaling is not None
    large = replace(model.scaling, factor=model.scaling.factor * 1e200)
    replace(model, coef=model.coef * 1e200, scaling=large).save(tmp_path / "large.npz")
    out = tmp_path / "w.csv"
    capsys.readouterr()
    assert main(["export", str(tmp_path / "large.npz"), "--to", "csv", "--out", str(out)]) == 2
    assert "too large for float64" in capsys.readouterr().err
    assert not out.exists()
