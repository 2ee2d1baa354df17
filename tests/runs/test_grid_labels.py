"""A grid of settings for rows with sets of labels: scores and choice as scikit-learn's, in shared reads."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC as Liblinear

import streamsvm
from streamsvm.data.store.dataset import Dataset
from streamsvm.options import TrainOptions
from streamsvm.runs.held_out import draw_folds
from streamsvm.runs.train import train
from streamsvm.runs.tune import tune
from tests.commands import Run, run  # noqa: F401
from tests.label_problems import make_labels

COSTS = [1e-4, 1e-2, 1.0]
OPTIONS = TrainOptions(loss="squared_hinge", tol=1e-7, threads=1)
PROBLEM = make_labels(3, n=450, empty=False)
WEIGHTED = make_labels(4, n=450, weighted=True, empty=False)


def draw(dataset: Dataset, folds: int = 3) -> Any:
    return draw_folds(dataset, replace(OPTIONS, task="multi-label"), folds)


@pytest.mark.slow("trains every fit of a grid alone, too")
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_scores_and_choice_are_those_of_a_grid_search(loss: str, tmp_path: Path) -> None:
    tuned = streamsvm.tune(PROBLEM.X, PROBLEM.Y, C=COSTS, folds=3, loss=loss, tol=1e-7)
    split = PredefinedSplit(draw(PROBLEM.store(tmp_path / "rows")))
    one = OneVsRestClassifier(Liblinear(loss=loss, tol=1e-9, max_iter=1_000_000))
    theirs = GridSearchCV(one, {"estimator__C": COSTS}, scoring="f1_micro", cv=split)
    theirs.fit(PROBLEM.X, PROBLEM.Y.astype(int))
    for k in range(3):
        name = f"split{k}_test_score"
        np.testing.assert_allclose(tuned.cv_results_[name], theirs.cv_results_[name], atol=2e-3)
    assert theirs.best_params_["estimator__C"] == tuned.best.C
    np.testing.assert_allclose(
        tuned.estimator.decision_function(PROBLEM.X), theirs.best_estimator_.decision_function(PROBLEM.X), atol=2e-3
    )


def test_weights_of_rows_and_labels_count_in_each_fold(tmp_path: Path) -> None:
    """Balanced factors are those of the rows that a fit is trained on."""
    dataset = WEIGHTED.store(tmp_path / "rows")
    fold = draw(dataset)
    found = tune(dataset, replace(OPTIONS, class_weight="balanced"), COSTS, folds=3)
    weight, X = WEIGHTED.weight, WEIGHTED.X
    assert weight is not None
    for trial in found.trials:
        for k in range(3):
            kept, given = (fold != k) & (weight > 0), []
            for label in WEIGHTED.Y.T:
                sums = np.bincount(label[kept], weight[kept])
                theirs = Liblinear(
                    C=trial.C, tol=1e-9, max_iter=1_000_000, class_weight=dict(enumerate(sums.sum() / (2 * sums)))
                )
                given.append(theirs.fit(X[kept], label[kept], weight[kept]).predict(X[fold == k]))
            expected = f1_score(WEIGHTED.Y[fold == k], np.column_stack(given), average="micro")
            assert trial.scores[k] == pytest.approx(expected, abs=4e-3)  # a decision on the border


def test_all_fits_share_their_reads(tmp_path: Path, without_pins: None) -> None:
    """The passes are those of the fit that takes the most, and one for the scores. Nothing stays in memory here.

    The sample of all fits, which is all rows, is taken once.
    """
    dataset = PROBLEM.store(tmp_path / "rows", chunk_bytes=2000)
    fold = draw(dataset)
    found = tune(dataset, OPTIONS, COSTS, folds=3)
    assert found.read_bytes == (found.passes + 1) * dataset.nbytes
    rows = [streamsvm.ingest(PROBLEM.X[fold != k], tmp_path / f"{k}", PROBLEM.Y[fold != k]) for k in range(3)]
    alone = [train(each, replace(OPTIONS, C=C)).passes for each in rows for C in COSTS]
    assert found.passes <= max(alone) + 3  # since the samples are not the same


@pytest.mark.slow("trains on every engine")
def test_the_same_bits_on_any_threads_and_after_a_stop(tmp_path: Path) -> None:
    dataset = WEIGHTED.store(tmp_path / "rows", chunk_bytes=2000)
    whole = tune(dataset, OPTIONS, COSTS, folds=3)
    other = tune(dataset, replace(OPTIONS, threads=3), COSTS, folds=3)
    steps = 0

    def stop(_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(dataset, OPTIONS, COSTS, folds=3, out=tmp_path / "grid", progress=stop)
    resumed = tune(dataset, OPTIONS, COSTS, folds=3, out=tmp_path / "grid", resume=True)
    for each in (other, resumed):
        assert each.trials == whole.trials
        assert each.result.model_sha256 == whole.result.model_sha256


def test_groups_are_held_out_whole() -> None:
    """A label that a fit has no row of is no reason to refuse, as it is with classes."""
    day = np.arange(450) // 50
    lists = PROBLEM.Y.copy()
    lists[day == 0, 0], lists[day > 0, 0] = True, False
    for forward in (False, True):
        tuned = streamsvm.tune(PROBLEM.X, lists, C=COSTS, folds=3, loss="squared_hinge", groups=day, forward=forward)
        assert len(tuned.trials) == 3
        assert tuned.best.mean == max(trial.mean for trial in tuned.trials)


def test_losses_are_tried_beside_costs() -> None:
    tuned = streamsvm.tune(PROBLEM.X, PROBLEM.Y, C=COSTS[1:], folds=2, loss=["hinge", "squared_hinge", "logistic"])
    assert [trial.others["loss"] for trial in tuned.trials] == ["hinge"] * 2 + ["squared_hinge"] * 2 + ["logistic"] * 2
    assert tuned.result.model.info["loss"] == tuned.best.others["loss"]


def test_from_the_command_line(tmp_path: Path, run: Run) -> None:
    PROBLEM.store(tmp_path / "rows.zarr")
    given = ("--C", "1e-4,1", "--folds", 3, "--loss", "squared_hinge", "--out", tmp_path / "run", "--json")
    ran = run("tune", tmp_path / "rows.zarr", *given)
    assert ran.code == 0
    assert ran.result["grid"]["scoring"] == "f1_micro"
    assert ran.result["C"] == 1.0
    assert run("report", tmp_path / "run", "--out", tmp_path / "report.html").code == 0
    assert "f1_micro" in (tmp_path / "report.html").read_text()
    likely = ("tune", tmp_path / "rows.zarr", *given[:-3], "--out", tmp_path / "other", "--probabilities")
    ran = run(*likely, "temperature")
    assert (ran.code, ran.err.count("Traceback")) == (2, 0)
    assert "need one label per row" in ran.err
    assert run(*likely, "sigmoid").code == 0
    told = run("evaluate", tmp_path / "other", tmp_path / "rows.zarr", "--json").result
    assert told["brier_score"] < 0.1
