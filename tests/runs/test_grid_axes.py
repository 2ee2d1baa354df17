"""Losses, tubes and weights of classes as axes of a grid; its results in scikit-learn's form, and its commands."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.svm import LinearSVC as Theirs

import streamsvm
from streamsvm.data.store.dataset import Dataset
from streamsvm.options import TrainOptions
from streamsvm.runs.tune import tune
from streamsvm.system.errors import InputError
from tests.commands import Run, run  # noqa: F401

RANDOM = np.random.default_rng(1)
N = 300
X = RANDOM.standard_normal((N, 4)).astype(np.float32)
SCORE = X @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.7 * RANDOM.standard_normal(N)
Y = (SCORE > 0.8).astype(int)
LOSSES = ["hinge", "squared_hinge"]
WEIGHTS = [{0: 1.0, 1: 1.0}, {0: 1.0, 1: 4.0}]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    groups = np.arange(N) % 20
    return streamsvm.ingest(X, tmp_path_factory.mktemp("rows") / "rows.zarr", Y, groups=groups, chunk_bytes=800)


def test_every_combination_is_tried() -> None:
    tuned = streamsvm.tune(X, Y, C=[0.1, 1.0], folds=3, loss=LOSSES, class_weight=WEIGHTS, tol=1e-5)
    wanted = [
        (loss, tuple(w), C)
        for loss in ("hinge", "squared_hinge")
        for w in map(dict.values, WEIGHTS)
        for C in (0.1, 1.0)
    ]
    found = [(t.others["loss"], tuple(t.others["class_weight"].values()), t.C) for t in tuned.trials]
    assert found == wanted
    for trial in tuned.trials[:3]:
        alone = streamsvm.tune(X, Y, C=[trial.C], folds=3, tol=1e-5, **trial.others).trials[0]
        np.testing.assert_allclose(trial.scores, alone.scores, atol=0.011)
    assert tuned.result.model.info["loss"] == tuned.best.others["loss"]
    best = max(tuned.trials, key=lambda trial: trial.mean)
    assert tuned.best == best


def test_tubes_of_a_regression_share_their_reads() -> None:
    tuned = streamsvm.tune(X, SCORE, C=[0.1, 1.0], folds=3, task="regress", epsilon=[0.1, 1.5])
    assert [trial.params for trial in tuned.trials] == [{"C": C, "epsilon": e} for e in (0.1, 1.5) for C in (0.1, 1.0)]
    by_tube = {e: max(t.mean for t in tuned.trials if t.others["epsilon"] == e) for e in (0.1, 1.5)}
    assert by_tube[0.1] > by_tube[1.5]  # a tube three times as wide as the noise learns little


def test_results_have_scikit_learns_form() -> None:
    weights = [None, "balanced"]
    tuned = streamsvm.tune(X, Y, C=[0.01, 0.1], folds=3, loss="squared_hinge", class_weight=weights)
    search = GridSearchCV(Theirs(), {"C": [0.01, 0.1], "class_weight": weights}, cv=KFold(3)).fit(X, Y)
    theirs, ours = search.cv_results_, tuned.cv_results_
    assert set(ours) == {name for name in theirs if not name.endswith("_time")}
    for name in ours:
        assert type(ours[name]) is type(theirs[name])
        assert len(ours[name]) == len(theirs[name])
    scores = np.array([trial.scores for trial in tuned.trials])
    np.testing.assert_array_equal(ours["mean_test_score"], scores.mean(axis=1))
    assert ours["rank_test_score"].min() == 1
    assert ours["params"][int(np.argmin(ours["rank_test_score"]))] == tuned.best.params


def test_a_grid_is_resumed_with_its_axes_only(dataset: Dataset, tmp_path: Path) -> None:
    axes = {"class_weight": WEIGHTS}
    found = tune(dataset, TrainOptions(), [0.1, 1.0], folds=3, out=tmp_path / "run", others=axes)
    again = tune(dataset, TrainOptions(), [0.1, 1.0], folds=3, out=tmp_path / "run", others=axes, resume=True)
    assert again.trials == found.trials
    assert again.result.model_sha256 == found.result.model_sha256
    with pytest.raises(InputError, match="axes was"):
        tune(dataset, TrainOptions(), [0.1, 1.0], folds=3, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("settings", "axes", "fault"),
    [
        ({}, {"epsilon": [0.1, 0.2]}, "epsilon has no effect with the task classify"),
        ({"task": "rank"}, {"class_weight": WEIGHTS}, "class_weight has no effect with the task rank"),
        ({}, {"tol": [0.1, 0.2]}, "'tol' cannot be searched"),
        ({}, {"loss": ["hinge", "epsilon_insensitive"]}, "epsilon_insensitive"),
    ],
)
def test_axes_that_cannot_be(settings: dict[str, Any], axes: Any, fault: str, dataset: Dataset) -> None:
    with pytest.raises(InputError, match=fault):
        tune(dataset, TrainOptions(**settings), [1.0], folds=3, others=axes)


def test_the_command(dataset: Dataset, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "run"
    arguments = ["tune", dataset.path, "--C", "0.1,1", "--folds", "3", "--out", out, "--forward"]
    weights = ["--class-weight", "0=1,1=1", "--class-weight", "0=1,1=4", "--probabilities", "sigmoid"]
    ran = run(*arguments, *weights, "--loss", "hinge,squared_hinge", "--json")
    assert ran.code == 0, ran.err
    assert len(ran.result["trials"]) == 8
    assert ran.result["trials"][-1]["class_weight"] == {"0": 1.0, "1": 4.0}
    assert ran.result["trials"][-1]["loss"] == "squared_hinge"
    assert json.loads((out / "tuning.json").read_text()) == ran.result
    assert "class_weight 0=1,1=4" in (out / "tuning.html").read_text()
    model = streamsvm.load(out / "model.npz")
    assert model.predict_proba(X).shape == (N, 2)
    again = run(*arguments, *weights, "--loss", "hinge,squared_hinge", "--resume")
    assert again.code == 0, again.err
    assert "<- best" in again.out


def test_commands_that_are_refused(dataset: Dataset, tmp_path: Path, run: Run) -> None:
    arguments = ["tune", dataset.path, "--C", "0.1,1", "--out", tmp_path / "run"]
    for more, fault in (
        (["--loss", "hinge,huber"], "'huber': choose from"),
        (["--epsilon", "0.1,x"], "write numbers"),
        (["--class-weight", "0=1", "--class-weight", "1"], "write balanced, or label=weight"),
        (["--groups", "donor"], "--groups has no effect on a dataset that ingest wrote"),
    ):
        ran = run(*arguments, *more)
        assert ran.code == 2
        assert fault in ran.err
    assert not (tmp_path / "run").exists()
