"""The blocks of docs/clients.md, each beside scikit-learn's own classes; tools that are not installed are skipped."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.linear_model
import sklearn.svm
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.inspection import partial_dependence, permutation_importance

from tests.conftest import ROOT
from tests.docs.blocks import find_blocks

pytestmark = pytest.mark.slow("runs the commands of a page")

BLOCKS = {block.caption: block.text for block in find_blocks(ROOT / "docs" / "clients.md")}
THEIRS = sklearn.svm.LinearSVC(loss="hinge", C=0.01, max_iter=100_000, tol=1e-6, random_state=0)
Names = dict[str, Any]


def check_inspection(names: Names) -> None:
    X, y = names["X"], names["y"]
    theirs = sklearn.svm.SVC().fit(X, y)
    expected = permutation_importance(theirs, X, y, n_repeats=2, random_state=0).importances_mean
    np.testing.assert_allclose(names["importances"], expected, atol=0.004)  # two rows of 569
    average, w = names["average"][0], names["LinearSVC"]().fit(X, y).coef_[0, 0]
    grid = partial_dependence(sklearn.svm.LinearSVC().fit(X, y), X, [0], grid_resolution=10)["grid_values"][0]
    np.testing.assert_allclose(np.diff(average), w * np.diff(grid), rtol=1e-6)


def check_calibration(names: Names) -> None:
    X, y = names["X"], names["y"]
    theirs = sklearn.svm.LinearSVC(loss="hinge", max_iter=100_000, random_state=0)
    expected = CalibratedClassifierCV(theirs, method="isotonic", cv=3).fit(X, y).predict_proba(X)
    found = names["probabilities"]
    assert np.mean(np.abs(found - expected)) < 0.01
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def check_selection(names: Names) -> None:
    X, y = names["X"], names["y"]
    expected = SelectFromModel(THEIRS).fit(X, y).get_feature_names_out()
    assert len(set(names["chosen"]) ^ set(expected)) <= 2  # the threshold is the mean of the weights
    theirs = RFE(THEIRS, n_features_to_select=5, step=5).fit(X, y).get_feature_names_out()
    assert len(set(names["five"]) & set(theirs)) >= 4


def check_shap(names: Names) -> None:
    """The contributions of the features add up to the scores."""
    found, X = names["by_feature"], names["X"]
    scores = names["linear"].decision_function(X[:20])
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, scores, atol=1e-5)
    assert np.asarray(names["of_classes"]).shape == (2, X.shape[1], 2)


def check_optuna(names: Names) -> None:
    assert names["study"].best_value > 0.95


def check_saved(names: Names) -> None:
    X, y = names["X"], names["y"]
    expected = names["LinearSVC"]().fit(X, y).decision_function(X)
    np.testing.assert_array_equal(names["loaded"].decision_function(X), expected)
    assert all(name.startswith("streamsvm.") for name in names["trusted"])


def check_resampled(names: Names) -> None:
    assert names["resampled"].score(names["X"], names["y"]) > 0.95


def check_drawn(names: Names) -> None:
    assert len(names["drawn"].features_) == names["X"].shape[1]


def check_conformal(names: Names) -> None:
    """About nine in ten sets hold the label."""
    X, sets = names["X"], names["label_sets"][:, :, 0]
    assert sets[np.arange(len(sets)), names["rest_labels"].to_numpy()[140:]].mean() > 0.8
    _, bounds = names["intervals"].predict_interval(X.drop(columns="mean area"))
    assert np.mean((bounds[:, 0, 0] <= X["mean area"]) & (X["mean area"] <= bounds[:, 1, 0])) > 0.8


def check_dask_ml(names: Names) -> None:
    assert names["stream"].score(names["rows"], names["labels"]) > 0.95


def check_mlxtend(names: Names) -> None:
    assert names["stacked"].score(names["X"].to_numpy(), names["y"].to_numpy()) > 0.95
    assert len(names["two"].k_feature_names_) == 2


def check_explained(names: Names) -> None:
    """The most important weights are those of the model."""
    model = names["LinearSVC"]().fit(names["X"], names["y"])
    weights = names["explained"].targets[0].feature_weights
    found = {each.feature: each.weight for each in (*weights.pos, *weights.neg)}
    known = dict(zip(["<BIAS>", *names["X"].columns], [*model.intercept_, *model.coef_[0]], strict=True))
    assert {name: known[name] for name in found} == pytest.approx(found, rel=1e-6)
    assert names["importances"].shape == (30,)


def check_graph(names: Names) -> None:
    runtime = pytest.importorskip("onnxruntime")
    session, X = runtime.InferenceSession(names["graph"].SerializeToString()), names["X"].to_numpy(np.float32)
    model = names["LogisticRegression"]().fit(names["X"].to_numpy(), names["y"])
    assert np.mean(session.run(None, {session.get_inputs()[0].name: X})[0] == model.predict(X)) > 0.99


def check_hyperopt(names: Names) -> None:
    assert np.exp(-6) <= names["best"]["C"] <= np.exp(2)


def check_skopt(names: Names) -> None:
    assert names["search"].best_score_ > 0.95


CHECKS: dict[str, Callable[[Names], None]] = {
    "sklearn.inspection": check_inspection,
    "sklearn.calibration": check_calibration,
    "sklearn.feature_selection": check_selection,
    "shap": check_shap,
    "optuna": check_optuna,
    "skops": check_saved,
    "mlflow": check_saved,
    "imblearn": check_resampled,
    "mapie": check_conformal,
    "dask_ml": check_dask_ml,
    "mlxtend": check_mlxtend,
    "eli5": check_explained,
    "skl2onnx": check_graph,
    "hyperopt": check_hyperopt,
    "skopt": check_skopt,
    "yellowbrick": check_drawn,
}


def test_every_block_is_tried() -> None:
    assert set(BLOCKS) == {"start", *CHECKS}


@pytest.mark.parametrize("tool", CHECKS)
def test_a_tool_takes_our_estimators(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "MPLBACKEND", "Agg")
    with warnings.catch_warnings():
        if not tool.startswith("sklearn."):
            warnings.simplefilter("ignore")  # what a tool of others warns of is not ours
            pytest.importorskip(tool, exc_type=ImportError)
        names: Names = {"__name__": "__page__"}
        exec(BLOCKS["start"], names)
        exec(BLOCKS[tool], names)
        CHECKS[tool](names)
