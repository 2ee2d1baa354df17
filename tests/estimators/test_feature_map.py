"""Linear estimators on features that are made in each pass: arrays and datasets, any loss, any number of classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import streamsvm
from streamsvm import (
    SMO,
    Eigenmap,
    IncompleteCholesky,
    LinearSVC,
    LinearSVR,
    LogisticRegression,
    Nystroem,
    PolynomialMap,
)
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import InputError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(500, 4)).astype(np.float32)
RADIUS = np.sqrt((X**2).sum(axis=1))
TWO, THREE = np.where(RADIUS > 1.9, "far", "near"), np.digitize(RADIUS, [1.5, 2.3])
MAP = Nystroem(n_components=80, kernel="rbf", gamma=0.2)
CASES: dict[str, tuple[Any, Any]] = {
    "hinge": (LinearSVC(C=10.0), TWO),
    "squared hinge": (LinearSVC(C=10.0, loss="squared_hinge"), TWO),
    "interior point": (LinearSVC(C=10.0, solver="interior-point"), TWO),
    "three classes": (LinearSVC(C=10.0, loss="squared_hinge"), THREE),
    "logistic": (LogisticRegression(C=100.0), TWO),
    "regression": (LinearSVR(C=10.0, epsilon=0.05), RADIUS),
}


@pytest.mark.parametrize("case", CASES)
def test_what_no_linear_function_tells(case: str, tmp_path: Path) -> None:
    """The model takes raw rows, in memory, of a dataset and once it is loaded."""
    plain, y = CASES[case]
    mapped = clone(plain).set_params(feature_map=MAP).fit(X[:400], y[:400])
    assert mapped.status_ == "converged"
    score = mapped.score(X[400:], y[400:])
    assert score > 0.87
    assert clone(plain).fit(X[:400], y[:400]).score(X[400:], y[400:]) < 0.75
    assert (mapped.n_features_in_, mapped.coef_.shape[-1]) == (4, 80)
    mapped.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(X[400:]), mapped.predict(X[400:]))
    assert loaded.get_params()["feature_map"] == MAP
    np.testing.assert_array_equal(clone(loaded).set_params(tol=mapped.tol).fit(X[:400], y[:400]).coef_, mapped.coef_)
    data = ingest(X[:400], tmp_path / "rows.zarr", y[:400], scale="standard", regression=case == "regression")
    of_dataset = clone(mapped).fit(data)
    assert of_dataset.score(X[400:], y[400:]) == pytest.approx(score, abs=0.08)
    np.testing.assert_array_equal(clone(mapped).fit(data).coef_, of_dataset.coef_)


@pytest.mark.parametrize("chosen", [IncompleteCholesky(n_components=40), Eigenmap(n_components=40), PolynomialMap()])
def test_other_maps(chosen: Any, tmp_path: Path) -> None:
    model = LinearSVC(feature_map=chosen).fit(X[:400], TWO[:400])
    assert model.coef_.shape == (1, 15 if isinstance(chosen, PolynomialMap) else 40)
    assert model.score(X[400:], TWO[400:]) > 0.85
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    found = loaded.get_params()["feature_map"]
    assert found == (chosen if isinstance(chosen, PolynomialMap) else replace(chosen, gamma=found.gamma))


def test_probabilities_and_a_folder(tmp_path: Path) -> None:
    """The folds are trained on the same features; a second fit goes on from the folder, without a pass."""
    model = LinearSVC(feature_map=MAP, probability=True, checkpoint=tmp_path / "run").fit(X, TWO)
    chance = model.predict_proba(X)
    assert np.mean(model.classes_[chance.argmax(axis=1)] == TWO) > 0.9
    again = clone(model).fit(X, TWO)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    with pytest.raises(InputError, match="rank was 80, now 70"):
        clone(model).set_params(feature_map__n_components=70).fit(X, TWO)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"feature_map": "nystrom"}, "feature_map is 'nystrom'; an object such as streamsvm.Nystroem"),
        ({"feature_map": SMO()}, r"feature_map is SMO\(\); an object such as"),
        ({"feature_map__n_components": 0}, "n_components is 0"),
        ({"feature_map__n_components": 501}, r"rank \(n_components in Python\) is 501; "),
        ({"feature_map__kernel": "cubic"}, "kernel 'cubic': choose from"),
        ({"feature_map__gamma": -1.0}, "gamma is -1.0"),
        ({"solver": "smo"}, "solver smo: evaluates kernels itself"),
    ],
)
def test_what_cannot_be_done_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        clone(LinearSVC(feature_map=MAP)).set_params(**settings).fit(X, TWO)
