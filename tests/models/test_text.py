"""The text of exported models is what LIBLINEAR and LIBSVM describe. A reader of a few lines takes their place here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm.models.model import load
from streamsvm.numeric.labels import list_pairs
from tests.models.exports.trained import F64, Task, compare, export, score, train


def read(file: Path, last: str) -> tuple[dict[str, list[str]], list[str]]:
    """The names and values before the line `last`, and the lines after it."""
    head, body = file.read_text().split(f"\n{last}\n")
    return {line.split()[0]: line.split()[1:] for line in head.splitlines()}, body.splitlines()


@pytest.mark.parametrize("task", [Task(scale="minmax"), Task(4, sparse=True)], ids=str)
def test_liblinear(task: Task, tmp_path: Path) -> None:
    run = train(task, tmp_path)
    told, lines = read(export(run, "liblinear"), "w")
    labels = load(run).classes.tolist()
    assert told["label"] == [str(label) for label in (labels if len(labels) > 2 else labels[::-1])]
    assert (told["nr_class"], told["nr_feature"], told["bias"]) == ([str(len(labels))], ["6"], ["1"])
    w = np.array([line.split() for line in lines], np.float64)
    compare(np.column_stack((task.make()[2], np.ones(40))) @ w, score(load(run), task), task)


def find_scores(told: dict[str, list[str]], lines: list[str], X: F64) -> F64:
    """The scores of all pairs by the formula of LIBSVM's FAQ: sums over the vectors of both classes, less rho."""
    K, gamma = int(told["nr_class"][0]), float(told["gamma"][0])
    split = [line.split() for line in lines]
    coefs = np.array([line[: K - 1] for line in split], np.float64).T
    Z = np.zeros((len(lines), X.shape[1]))
    for z, line in zip(Z, split, strict=True):
        for item in line[K - 1 :]:
            j, value = item.split(":")
            z[int(j) - 1] = float(value)
    values = np.exp(-gamma * np.sum((X[:, None] - Z[None]) ** 2, axis=2))
    owner, pairs = np.repeat(np.arange(K), np.array(told["nr_sv"], int)), []
    for (first, second), rho in zip(list_pairs(K), told["rho"], strict=True):
        own, other = owner == first, owner == second
        pairs.append(values[:, own] @ coefs[second - 1, own] + values[:, other] @ coefs[first, other] - float(rho))
    return np.stack(pairs, axis=1)


@pytest.mark.parametrize("task", [Task(), Task(4, sparse=True)], ids=str)
@pytest.mark.parametrize("way", ["ovo", "ovr"])
def test_libsvm(task: Task, way: str, tmp_path: Path) -> None:
    run = train(task, tmp_path, "--solver", "smo", "--kernel", "rbf", "--multi-class", way)
    model = load(run)
    told, lines = read(export(run, "libsvm"), "SV")
    labels = model.classes.tolist()
    assert told["label"] == [str(label) for label in (labels if len(labels) > 2 else labels[::-1])]
    assert (told["svm_type"], told["total_sv"]) == (["c_svc"], [str(len(lines))])
    expected = score(model, task)
    if way == "ovr" and len(labels) > 2:
        expected = np.stack([expected[:, first] - expected[:, second] for first, second in list_pairs(4)], axis=1)
    compare(find_scores(told, lines, task.make()[2].astype(np.float64)), expected, task)
