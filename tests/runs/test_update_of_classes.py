"""A model is updated after rows of a new class were appended: the old classes start from it, and the new one anew."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import svm

from streamsvm import CuttingPlane, LinearSVC
from streamsvm.cli.main import main
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.runs.update import train_from
from streamsvm.solvers.start_from import list_weights
from streamsvm.system.errors import InputError

N, D, C = 1500, 6, 0.02
OPTIONS = TrainOptions(C=C, options={"acceleration": "line-search"})
CENTRES = np.random.default_rng(1).normal(size=(5, D)) * 1.5
NAMES = np.array(["cat", "dog", "fox", "ant", "elk"])  # the new ones, ant and elk, come first and third when sorted


def make_rows(n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    code = rng.integers(0, n_classes, N)
    return (CENTRES[code] + rng.normal(size=(N, D))).astype(np.float32), NAMES[code]


def write(path: Path, n_old: int, n_classes: int) -> tuple[Any, Any, tuple[np.ndarray, np.ndarray]]:
    """Return a dataset of n_old classes, what appends the rows of the others, and all rows with their labels."""
    X, y = make_rows(n_classes)
    old = np.isin(y, NAMES[:n_old])
    return (
        ingest(X[old], path, y[old]),
        lambda: ingest(X[~old], path, y[~old], append=True, new_classes=True),
        (X, y),
    )


def measure(X: np.ndarray, y: np.ndarray, label: str) -> float:
    """The optimum of the problem of one class against the rest, as LIBLINEAR finds it."""
    sign = np.where(y == label, 1, -1)
    model = svm.LinearSVC(loss="hinge", C=C, tol=1e-10, max_iter=10**6).fit(X.astype(np.float64), sign)
    f = X.astype(np.float64) @ model.coef_[0] + model.intercept_[0]
    half = (np.sum(model.coef_**2) + model.intercept_[0] ** 2) / 2
    return float(half + C * np.sum(np.maximum(0.0, 1 - sign * f)))


@pytest.mark.parametrize(("n_old", "n_classes"), [(3, 5), (2, 3)])
def test_old_classes_start_from_the_model(n_old: int, n_classes: int, tmp_path: Path) -> None:
    """All gaps are proved, the objectives are LIBLINEAR's, and the old classes take fewer steps than anew."""
    dataset, append, (X, y) = write(tmp_path / "d.zarr", n_old, n_classes)
    train(dataset, replace(OPTIONS, tol=1e-5), tmp_path / "0")
    dataset = append()
    anew, result = train(dataset, OPTIONS), train_from(dataset, OPTIONS, start_from=tmp_path / "0")
    assert result.status == "converged"
    assert result.model.classes.tolist() == sorted(NAMES[:n_classes].tolist())
    expected = {label: measure(X, y, label) for label in NAMES[:n_classes]}
    for problem in result.problems:
        bound, objective = problem["lower_bound"], problem["objective"]
        assert bound <= expected[str(problem["label"])] * (1 + 1e-6)
        assert expected[str(problem["label"])] <= objective * (1 + 1e-6)
        assert objective - bound <= OPTIONS.tol * objective
    steps = [
        sum(problem["steps"] for problem in found.problems if str(problem["label"]) in NAMES[:n_old])
        for found in (result, anew)
    ]
    assert steps[0] < steps[1]


def test_weights_go_to_their_classes() -> None:
    X, y = make_rows(5)
    classes, codes = np.unique(y, return_inverse=True)
    source = ArrayDataset(X, codes.astype(np.int32), classes)
    for n_old in (2, 4):
        old = np.isin(y, NAMES[:n_old])
        model = LinearSVC(C=C).fit(X[old], y[old]).model_
        found = dict(zip(classes.tolist(), list_weights(model, source, 2.0), strict=True))
        assert {label for label, w in found.items() if w is None} == set(NAMES[n_old:].tolist())
        w, b = np.atleast_2d(model.coef), np.atleast_1d(model.intercept)
        own = {label: np.append(w[k], b[k] / 2.0) for k, label in enumerate(model.classes.tolist()[-len(w) :])}
        if n_old == 2:
            own[model.classes.tolist()[0]] = -own[model.classes.tolist()[1]]
        for label, weights in own.items():
            np.testing.assert_array_equal(found[label], weights)


def test_what_cannot_be_started_from_is_refused(tmp_path: Path) -> None:
    dataset, append, (X, y) = write(tmp_path / "d.zarr", 4, 5)
    train(dataset, OPTIONS, tmp_path / "0")
    few = ingest(X[y != "cat"], tmp_path / "few.zarr", y[y != "cat"])
    with pytest.raises(InputError, match="the model to start from has other classes than"):
        train_from(few, OPTIONS, start_from=tmp_path / "0")
    dataset = append()
    one_problem = replace(OPTIONS, task="crammer-singer", options={})
    for options in (one_problem, replace(OPTIONS, loss="squared_hinge", options={})):
        with pytest.raises(InputError, match="start_from is for linear models with the hinge loss"):
            train_from(dataset, options, start_from=tmp_path / "0")
    with pytest.raises(InputError, match="a ball can be kept only for a linear model of two classes"):
        train_from(dataset, OPTIONS, tmp_path / "1", start_from=tmp_path / "0", keep_ball=True)


def test_a_resumed_run_starts_from_the_same_model(tmp_path: Path) -> None:
    dataset, append, _ = write(tmp_path / "d.zarr", 3, 4)
    for name, tol in (("0", 1e-3), ("other", 1e-2)):
        train(dataset, replace(OPTIONS, tol=tol), tmp_path / name)
    dataset = append()
    few = train_from(dataset, replace(OPTIONS, max_passes=2), tmp_path / "run", start_from=tmp_path / "0")
    assert few.status == "pass_limit"
    with pytest.raises(InputError, match="start_from"):
        train_from(dataset, OPTIONS, tmp_path / "run", start_from=tmp_path / "other", resume=True)
    more = train_from(dataset, OPTIONS, tmp_path / "run", start_from=tmp_path / "0", resume=True)
    whole = train_from(dataset, OPTIONS, start_from=tmp_path / "0")
    assert (more.status, more.model_sha256) == ("converged", whole.model_sha256)


def test_a_ball_of_two_classes_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset, append, _ = write(tmp_path / "d.zarr", 2, 3)
    train_from(dataset, TrainOptions(C=C, resident_rows="50%"), tmp_path / "0", keep_ball=True)
    dataset = append()
    with caplog.at_level(logging.WARNING, "streamsvm"):
        result = train_from(dataset, OPTIONS, start_from=tmp_path / "0")
    assert "All rows are read: the rows have a new class" in caplog.text
    assert (result.status, result.n_rows) == ("converged", N)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = make_rows(3)
    for name, part in (("old", y != "fox"), ("new", y == "fox")):
        lines = [",".join([*map(str, x), label]) for x, label in zip(X[part].tolist(), y[part], strict=True)]
        header = ",".join([*(f"x{j}" for j in range(D)), "label"])
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n")
    rows, common = str(tmp_path / "d.zarr"), ["--C", str(C), "--json", "--out"]
    assert main(["ingest", str(tmp_path / "old.csv"), rows]) == 0
    assert main(["train", rows, *common, str(tmp_path / "0")]) == 0
    assert main(["ingest", str(tmp_path / "new.csv"), rows, "--append"]) == 2
    assert "to add a class, use --new-classes" in capsys.readouterr().err
    assert main(["ingest", str(tmp_path / "new.csv"), rows, "--append", "--new-classes"]) == 0
    assert main(["train", rows, *common, str(tmp_path / "1"), "--start-from", str(tmp_path / "0")]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["n_rows"] == N
    assert main(["verify", str(tmp_path / "1"), rows]) == 0
    assert main(["evaluate", str(tmp_path / "1"), rows, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["accuracy"] > 0.8


def test_an_estimator_starts_from_its_last_fit() -> None:
    X, y = make_rows(4)
    old, named = y != NAMES[3], {"C": C, "solver": CuttingPlane(acceleration="line-search")}
    warm = LinearSVC(**named, warm_start=True).fit(X[old], y[old])
    cold = LinearSVC(**named).fit(X, y)
    warm.fit(X, y)
    assert (warm.status_, warm.classes_.tolist()) == ("converged", cold.classes_.tolist())
    steps = [[p["steps"] for p in model.result_.problems if str(p["label"]) != NAMES[3]] for model in (warm, cold)]
    assert sum(steps[0]) < sum(steps[1])
    assert warm.fit(X[old], y[old]).status_ == "converged"  # a class is gone: a new start
