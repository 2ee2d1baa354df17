"""predict_proba beside that of scikit-learn's CalibratedClassifierCV on the same folds; saved, lazy, refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import pytest
import sklearn
from sklearn import svm
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.utils.fixes import parse_version

import streamsvm
from streamsvm import SVC, BudgetedSVC, LinearSVC
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import from_arrays
from streamsvm.options import TrainOptions
from streamsvm.runs import calibrate
from streamsvm.runs.calibrate import FOLDS
from streamsvm.runs.held_out import draw_folds
from streamsvm.system.errors import InputError, MemoryBudgetError

RANDOM = np.random.default_rng(8)
X = RANDOM.normal(size=(400, 3)).astype(np.float32)
SCORE = X @ [1.0, -2.0, 0.5] + X[:, 0] ** 2
Y = np.where(SCORE + RANDOM.normal(size=400) > 0.7, "yes", "no")
MANY = np.digitize(SCORE + RANDOM.normal(size=400), [-1.0, 1.5])
PAIRS: list[tuple[Any, Any]] = [
    (LinearSVC(tol=1e-8), svm.LinearSVC(loss="hinge", tol=1e-10, max_iter=10_000_000)),
    (LinearSVC(tol=1e-9, loss="squared_hinge"), svm.LinearSVC(tol=1e-10, max_iter=10_000_000)),
    (SVC(tol=1e-8, gamma=0.2), svm.SVC(tol=1e-8, gamma=0.2)),
]


def split(y: Any) -> list[tuple[Any, Any]]:
    """The folds that streamsvm draws, as pairs of row numbers."""
    classes, codes = np.unique(y, return_inverse=True)
    fold = draw_folds(ArrayDataset(X, codes.astype(np.int32), classes), TrainOptions(), FOLDS)
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(FOLDS)]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_the_sigmoid_of_scikit_learn_on_the_same_folds(ours: Any, theirs: Any) -> None:
    model = ours.set_params(probability=True).fit(X, Y)
    expected = CalibratedClassifierCV(theirs, ensemble=False, cv=split(Y)).fit(X.astype(np.float64), Y)
    found = model.predict_proba(X)
    np.testing.assert_allclose(found, expected.predict_proba(X.astype(np.float64)), atol=2e-3)
    np.testing.assert_allclose(np.sum(found, axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(found), rtol=1e-12)
    assert log_loss(Y, found) < 0.6
    alone = ours.set_params(probability=False).fit(X, Y)
    np.testing.assert_array_equal(alone.decision_function(X), model.decision_function(X))
    assert model.result_.model_sha256 != ""
    assert not hasattr(alone, "predict_proba")


@pytest.mark.parametrize("estimator", [LinearSVC(loss="squared_hinge"), SVC(gamma=0.2)])
def test_many_classes(estimator: Any) -> None:
    model = estimator.set_params(probability=True).fit(X, MANY)
    found = model.predict_proba(X)
    assert found.shape == (400, 3)
    np.testing.assert_allclose(np.sum(found, axis=1), 1.0, rtol=1e-12)
    assert log_loss(MANY, found) < 0.75 * np.log(3)
    true, predicted = np.mean(MANY == 0), np.mean(found[:, 0])
    assert predicted == pytest.approx(true, abs=0.05)


@pytest.mark.parametrize("way", ["isotonic", "temperature"])
@pytest.mark.parametrize("y", [Y, MANY], ids=["two", "many"])
def test_other_ways_on_the_same_folds(way: Any, y: Any, tmp_path: Path) -> None:
    if way == "temperature" and parse_version(sklearn.__version__) < parse_version("1.8"):
        pytest.skip("scikit-learn has no temperature yet")
    theirs = svm.LinearSVC(tol=1e-10, max_iter=10_000_000)
    model = LinearSVC(probability=way, loss="squared_hinge", tol=1e-9).fit(X, y)
    expected = CalibratedClassifierCV(theirs, method=way, ensemble=False, cv=split(y)).fit(X.astype(np.float64), y)
    difference = np.abs(model.predict_proba(X) - expected.predict_proba(X.astype(np.float64)))
    assert np.mean(difference) < 1e-4
    assert np.quantile(difference, 0.99) < 1e-3  # a row whose score is near a step of the function may differ
    model.save(tmp_path / "model.npz")
    loaded: Any = streamsvm.load(tmp_path / "model.npz")
    assert loaded.probability == way
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_the_measures_are_of_rows_that_were_held_out() -> None:
    """Labels at random: of rows that were seen, an isotonic function would tell too good probabilities."""
    noise = RANDOM.integers(2, size=400)
    model = LinearSVC(probability="isotonic").fit(X, noise)
    told = model.result_.calibration
    assert told["brier_score"] > 0.25
    assert brier_score_loss(noise, model.predict_proba(X)[:, 1]) < 0.25
    assert LinearSVC().fit(X, noise).result_.calibration is None


def test_weights_count() -> None:
    weight = np.where(Y == "yes", 3.0, 1.0)
    plain = LinearSVC(probability=True).fit(X, Y).predict_proba(X)
    heavy = LinearSVC(probability=True).fit(X, Y, sample_weight=weight).predict_proba(X)
    share = np.sum(weight[Y == "yes"]) / np.sum(weight)
    assert np.average(heavy[:, 1], weights=weight) == pytest.approx(share, abs=0.03)
    assert np.mean(plain[:, 1]) == pytest.approx(np.mean(Y == "yes"), abs=0.03)


def test_saved_stored_and_lazy(tmp_path: Path) -> None:
    stored = ingest(X, tmp_path / "rows.zarr", Y, chunk_bytes=1000)
    model = LinearSVC(probability=True, resident_rows="20%").fit(stored)
    again = LinearSVC(probability=True, resident_rows="20%", n_jobs=1).fit(stored)
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    assert model.result_.passes > model.history_[-1]["passes"]
    assert brier_score_loss(Y == "yes", model.predict_proba(X)[:, 1]) < 0.15
    model.save(tmp_path / "model.npz")
    loaded: Any = streamsvm.load(tmp_path / "model.npz")
    assert loaded.probability == "sigmoid"
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    lazy = model.predict_proba(dask.array.from_array(X, chunks=(150, 3)))
    assert lazy.shape == (400, 2)
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), model.predict_proba(X))


@pytest.mark.parametrize("wrong", [{"A": [1.0]}, {"A": [1.0], "B": [1.0, 2.0]}, {"A": [1.0], "B": ["1"]}, [1.0, 2.0]])
def test_a_model_with_wrong_sigmoids_is_refused(wrong: Any) -> None:
    model = LinearSVC(probability=True).fit(X, Y).model_
    hostile = replace(model, info={**model.info, "sigmoids": wrong})
    with pytest.raises(InputError, match="not a model of streamsvm"):
        from_arrays(hostile.to_arrays(), "m.npz")


def test_what_has_no_probabilities_is_refused() -> None:
    with pytest.raises(InputError, match="probability is 'platt'; choose True, False, sigmoid, isotonic"):
        LinearSVC(probability="platt").fit(X, Y)
    with pytest.raises(InputError, match="computes features of all rows"):
        SVC(solver="interior-point", probability=True).fit(X, Y)
    with pytest.raises(InputError, match="has 1 row, too few for 2 folds"):
        LinearSVC(probability=True).fit(X[:2], ["no", "yes"])
    assert not hasattr(BudgetedSVC(), "predict_proba")
    late = LinearSVC().fit(X, Y).set_params(probability=True)
    with pytest.raises(NotFittedError, match="not available when fitted with probability=False"):
        late.predict_proba(X)
    assert hasattr(LinearSVC(probability=True), "predict_proba")


def test_a_part_of_the_scores_is_enough_and_memory_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    all_scores = LinearSVC(probability=True, n_jobs=1).fit(X, Y)
    monkeypatch.setattr(calibrate, "MOST_SCORES", 150)
    some = LinearSVC(probability=True, n_jobs=1).fit(X, Y)
    sigmoids = [model.model_.info["sigmoids"] for model in (all_scores, some)]
    assert sigmoids[0] != sigmoids[1]
    np.testing.assert_allclose(some.predict_proba(X), all_scores.predict_proba(X), atol=0.1)
    monkeypatch.setattr(calibrate, "SCORE_BYTES", 10**9)
    with pytest.raises(MemoryBudgetError, match="--memory"):
        LinearSVC(probability=True, memory="2GB").fit(X, Y)
