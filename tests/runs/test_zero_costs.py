"""Rows that cost nothing: all of them leave w = 0, which is proved; some of them are as good as not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import svm

from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.verify.verify import verify
from tests.commands import Run, run  # noqa: F401  (a fixture)
from tests.conftest import F64, Problem, make_problem

PROBLEM = make_problem(5, n=120, d=4)
ACCELERATIONS = ["one-read", "block-ascent", "line-search", "none"]
LINEAR: dict[str, dict[str, Any]] = {
    **{name: {"options": {"acceleration": name}} for name in ACCELERATIONS},
    "newton": {"loss": "squared_hinge"},
}
KERNEL: dict[str, dict[str, Any]] = {
    "smo": {"solver": "smo", "kernel": "rbf", "gamma": 0.3},
    "platt": {"solver": "smo", "kernel": "rbf", "gamma": 0.3, "options": {"selection": "platt"}},
    "irwls": {"solver": "irwls", "kernel": "rbf", "gamma": 0.3},
}
OTHERS: dict[str, dict[str, Any]] = {"logistic": {"loss": "logistic"}, "interior-point": {"solver": "interior-point"}}
WEIGHTS = {
    "first chunk": np.repeat([0.0, 1.0], [40, 80]),
    "one class": (PROBLEM.y > 0).astype(np.float64),
}


def store(weight: F64, path: Path) -> Any:
    return replace(PROBLEM, weight=weight).store(path, chunk_bytes=40 * 4 * 4)


@pytest.mark.parametrize("name", [*LINEAR, *KERNEL, *OTHERS])
def test_where_nothing_costs_anything_zero_is_proved(name: str, tmp_path: Path) -> None:
    settings = {**LINEAR, **KERNEL, **OTHERS}[name]
    unweighted = PROBLEM.in_memory()
    for source, weights in ((store(np.zeros(120), tmp_path / "rows.zarr"), None), (unweighted, {-1: 0.0, 1: 0.0})):
        result = train(source, TrainOptions(threads=1, class_weight=weights, **settings))
        assert (result.status, result.objective, result.lower_bound) == ("converged", 0.0, 0.0)
        found = verify(result.model, source, threads=1)
        assert (found.agrees, found.objective, found.relative_gap) == (True, 0.0, 0.0)


def test_the_command_verifies_it(tmp_path: Path, run: Run) -> None:  # noqa: F811
    store(np.zeros(120), tmp_path / "rows.zarr")
    assert run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run", "--keep-ball").code == 0
    told = run("verify", tmp_path / "run", tmp_path / "rows.zarr")
    assert told.code == 0
    assert "relative gap 0.00e+00" in told.out


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("rows", WEIGHTS)
def test_rows_without_a_cost_are_as_good_as_not_there(name: str, rows: str, tmp_path: Path) -> None:
    """LIBLINEAR solves the same problem. It penalises the bias, too, so one class has a model."""
    weight = WEIGHTS[rows]
    loss = LINEAR[name].get("loss", "hinge")
    liblinear = svm.LinearSVC(loss=loss, tol=1e-10, max_iter=10**6, random_state=0)
    liblinear.fit(PROBLEM.dense(), PROBLEM.y, sample_weight=weight)
    w, b = liblinear.coef_[0], liblinear.intercept_[0]
    slack = np.maximum(0.0, 1.0 - PROBLEM.y * (PROBLEM.dense() @ w + b))
    optimum = float(w @ w + b * b) / 2 + float(weight @ (slack if loss == "hinge" else slack**2))
    result = train(store(weight, tmp_path / "rows.zarr"), TrainOptions(threads=1, tol=1e-4, **LINEAR[name]))
    assert result.status == "converged"
    assert result.lower_bound - 1e-9 <= optimum <= result.objective + 1e-6
    assert result.objective == pytest.approx(optimum, rel=2e-4)


@pytest.mark.parametrize("name", KERNEL)
def test_rows_without_a_cost_are_no_support_vectors(name: str, tmp_path: Path) -> None:
    """LIBSVM leaves such rows out."""
    weight = WEIGHTS["first chunk"]
    known = svm.SVC(kernel="rbf", gamma=0.3, tol=1e-8).fit(PROBLEM.dense(), PROBLEM.y, sample_weight=weight)
    result = train(store(weight, tmp_path / "rows.zarr"), TrainOptions(threads=1, tol=1e-6, **KERNEL[name]))
    assert result.status == "converged"
    expected = known.decision_function(PROBLEM.dense())
    assert score(result.model, PROBLEM) == pytest.approx(expected, abs=2e-2)


def score(model: Any, problem: Problem) -> F64:
    """Return f(x) of all rows by the Gaussian kernel's definition."""
    X, V = problem.dense(), np.asarray(model.support_vectors, np.float64)
    K = np.exp(-0.3 * np.sum((X[:, None, :] - V[None, :, :]) ** 2, axis=2))
    scores: F64 = K @ model.dual_coef + model.intercept
    return scores
