"""Datasets, results, models and tunings show themselves: shortly, with their certificate, and as text only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamsvm
from streamsvm import SVC, LinearSVC
from streamsvm.train import TrainOptions, train

LONGEST = 400


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Any:
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 3))
    y = np.where(X[:, 0] + random.normal(size=200) > 0, "<b>yes", "no")
    return streamsvm.ingest(X, tmp_path_factory.mktemp("shown") / "rows.zarr", y, scale="standard")


def test_a_dataset_is_shown(dataset: Any) -> None:
    assert repr(dataset).startswith(
        f"Dataset({dataset.path}, rows: 200, features: 3, dense, classes: 2, scaling: standa"
    )
    assert len(repr(dataset)) < LONGEST + len(dataset.path)


def test_results_and_models_are_shown_with_their_certificate(dataset: Any) -> None:
    result = train(dataset, TrainOptions())
    gap = f"gap: {result.relative_gap:.2e}"
    for shown in (repr(result), repr(result.model)):
        assert gap in shown
        assert f"objective: {result.objective:.6g}" in shown
        assert len(shown) < LONGEST
    kernel = repr(SVC().fit(dataset).model_)
    assert re.match(r"KernelModel\(classify, classes: 2, features: 3, support vectors: \d+, ", kernel)
    assert "nothing proved" in repr(train(dataset, TrainOptions(solver="budgeted-sgd", kernel="rbf", gamma=0.1)))


def test_notebooks_show_a_table_in_which_nothing_runs(dataset: Any, tmp_path: Path) -> None:
    path = tmp_path / "<script>.zarr"
    odd = streamsvm.ingest(np.eye(4), path, [0, 1, 0, 1])
    shown = odd._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    rows = dict(re.findall("<tr><th>(.*?)</th><td>(.*?)</td></tr>", train(dataset, TrainOptions())._repr_html_()))
    assert (rows["status"], set(rows) >= {"objective", "lower bound", "gap", "passes"}) == ("converged", True)


def test_histories_and_trials_are_frames(dataset: Any) -> None:
    result = train(dataset, TrainOptions())
    frame = result.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame["objective"].tolist() == [line["objective"] for line in result.history]
    tuned = streamsvm.tune(dataset, C=[0.1, 1.0], folds=2)
    trials = tuned.to_frame()
    assert trials[["C", "mean", "fold 0"]].to_numpy().tolist() == [
        [trial.C, trial.mean, trial.scores[0]] for trial in tuned.trials
    ]
    assert repr(tuned).startswith(f"Tuned(C {tuned.best.C}, mean accuracy {tuned.best.mean:.4f}, trials: 2")
    assert repr(tuned.estimator) == repr(LinearSVC(**tuned.estimator.get_params()))
