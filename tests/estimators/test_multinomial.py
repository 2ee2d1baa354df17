"""LogisticRegression of more than two classes, beside scikit-learn's and beside one against the rest."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression as Expected
from sklearn.model_selection import GridSearchCV

import streamsvm
from streamsvm import SVC, CuttingPlane, LinearSVC, LogisticRegression, Newton, PolynomialMap
from streamsvm.models.evaluate import find_probabilities
from streamsvm.system.errors import InputError
from streamsvm.verify.verify import verify
from tests.class_problems import make_classes
from tests.conftest import F64

PROBLEM = make_classes(3, n=240, d=4, n_classes=4)
X, NAMES = PROBLEM.X, np.array(["fir", "oak", "elm", "ash"])
Y = NAMES[PROBLEM.y]
WEIGHT = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], size=len(Y))
FACTORS = {"oak": 3.0, "ash": 0.5}
SETS = np.stack([Y == "fir", X[:, 0] > 0], axis=1).astype(int)


def measure(model: Any, X: F64, costs: F64, bias_feature: float) -> float:
    """P(W), in long double."""
    W, b = model.coef_.astype(np.longdouble), model.intercept_.astype(np.longdouble)
    scores, codes = X @ W.T + b, np.searchsorted(model.classes_, Y)
    lead = scores - scores[np.arange(len(Y)), codes][:, None]
    squares = np.sum(W**2) + (np.sum((b / bias_feature) ** 2) if bias_feature else 0.0)
    return float(squares / 2 + costs @ np.log(np.sum(np.exp(lead), axis=1)))


@pytest.mark.parametrize("layout", [np.asarray, csr_array])
@pytest.mark.parametrize("feature", [0.0, 1.0, 3.0])
def test_the_same_model_as_scikit_learn(feature: float, layout: Any) -> None:
    """The penalised bias is the weight of a constant column."""
    given: dict[str, Any] = {"fit_intercept": False} if feature == 0.0 else {"intercept_scaling": feature}
    model = LogisticRegression(C=0.3, tol=1e-10, class_weight=FACTORS, **given).fit(layout(X), Y, WEIGHT)
    Z = np.column_stack((X, np.full(len(X), feature)))
    expected = Expected(C=0.3, tol=1e-12, max_iter=10_000, fit_intercept=False, class_weight=FACTORS)
    expected.fit(Z, Y, sample_weight=WEIGHT)
    assert (model.status_, model.coef_.shape, model.intercept_.shape) == ("converged", (4, 4), (4,))
    np.testing.assert_allclose(model.coef_, expected.coef_[:, :-1], atol=2e-5)
    np.testing.assert_allclose(model.intercept_, feature * expected.coef_[:, -1], atol=2e-5)
    np.testing.assert_allclose(model.decision_function(X), expected.decision_function(Z), atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(Z), atol=1e-5)
    np.testing.assert_allclose(model.predict_log_proba(X), expected.predict_log_proba(Z), atol=1e-4)
    assert model.score(X, Y) == expected.score(Z, Y)
    costs = 0.3 * WEIGHT * np.array([FACTORS.get(name, 1.0) for name in Y.tolist()])
    assert model.objective_ == pytest.approx(measure(model, X, costs, feature), rel=1e-9)
    assert model.lower_bound_ <= model.objective_


def test_the_weights_of_a_feature_sum_to_zero() -> None:
    """The loss does not depend on their sum, so the penalty determines it at any tolerance."""
    model = LogisticRegression(C=100.0, tol=1e-2, resident_rows="30%").fit(X, Y)
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(model.intercept_.sum(), 0.0, atol=1e-12)


def test_balanced_weights_and_more_features_than_rows() -> None:
    wide = np.random.default_rng(2).normal(size=(len(Y), 300)).astype(np.float32)
    for rows in (X, wide):
        model = LogisticRegression(C=0.2, tol=1e-8, class_weight="balanced", fit_intercept=False).fit(rows, Y)
        expected = Expected(C=0.2, tol=1e-12, max_iter=10_000, class_weight="balanced", fit_intercept=False)
        np.testing.assert_allclose(model.coef_, expected.fit(rows, Y).coef_, atol=1e-4)


def test_without_a_penalty() -> None:
    expected = Expected(C=np.inf, tol=1e-10, max_iter=10_000).fit(X, Y)
    for given in ({"penalty": None}, {"C": np.inf}):
        model: Any = LogisticRegression(tol=1e-8, **given).fit(X, Y)
        np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize(
    "given",
    [{}, {"solver": "saga"}, {"solver": "cutting-plane"}, {"multi_class": "multinomial", "solver": "liblinear"}],
)
def test_several_classes_are_one_problem(given: dict[str, Any]) -> None:
    model = LogisticRegression(**given).fit(X, Y)
    assert (model.model_.problem.name, model.result_.problems) == ("multinomial", [])


@pytest.mark.parametrize(
    "given", [{"penalty": "l1"}, {"l1_ratio": 1}, {"solver": "newton"}, {"solver": Newton()}, {"solver": "liblinear"}]
)
def test_where_no_solver_is_able_they_are_one_against_the_rest(given: dict[str, Any]) -> None:
    model = LogisticRegression(**given).fit(X, Y)
    assert (model.model_.problem.name, len(model.result_.problems)) == ("classify", 4)
    same = LogisticRegression(multi_class="ovr", **given).fit(X, Y)
    np.testing.assert_array_equal(model.coef_, same.coef_)


def test_two_classes_and_sets_of_labels_have_no_other_form(tmp_path: Path) -> None:
    for labels, ways in ((Y == "fir", ("ovr", "multinomial")), (SETS, ("ovr",))):
        found = [LogisticRegression(multi_class=way).fit(X, labels) for way in ("auto", *ways)]
        for other in found[1:]:
            np.testing.assert_array_equal(other.coef_, found[0].coef_)
            assert other.result_.solver == found[0].result_.solver == "newton"
    stored = streamsvm.ingest(X, tmp_path / "sets.zarr", SETS)
    assert LogisticRegression().fit(stored).model_.problem.has_label_sets


@pytest.mark.parametrize(
    ("model", "labels", "message"),
    [
        (LogisticRegression(multi_class="ovo"), Y, "multi_class 'ovo': choose from auto, ovr, multinomial"),
        (LogisticRegression(multi_class="multinomial", penalty="l1"), Y, r"multinomial problem; train .*_class='ovr'"),
        (LogisticRegression(multi_class="multinomial", solver="newton"), Y, "use --solver cutting-plane"),
        (LogisticRegression(solver="cutting-plane"), Y == "fir", "two classes.*more than two.*choose the solver auto"),
        (LogisticRegression(multi_class="multinomial"), SETS, "multinomial requires one label per row"),
        (LinearSVC(multi_class="multinomial"), Y, "choose from ovr, crammer_singer$"),
        (SVC(multi_class="multinomial"), Y, "multi_class='multinomial': no solver for kernels .* LogisticRegression"),
    ],
)
def test_what_is_refused(model: Any, labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        model.fit(X, labels)


def test_stored_models_stay_the_same(tmp_path: Path) -> None:
    model = LogisticRegression(C=2.0, class_weight=FACTORS).fit(X, Y)
    model.save(tmp_path / "model.npz")
    for same in (streamsvm.load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))):
        assert isinstance(same, LogisticRegression)
        np.testing.assert_array_equal(same.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(same.predict_log_proba(X), model.predict_log_proba(X))
        assert same.predict(X).tolist() == model.predict(X).tolist()
    again = clone(streamsvm.load(tmp_path / "model.npz")).fit(X, Y)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    np.testing.assert_array_equal(find_probabilities(model.model_, model.decision_function(X)), model.predict_proba(X))


def test_rows_in_a_dataset_and_in_dask(tmp_path: Path) -> None:
    stored = streamsvm.ingest(X, tmp_path / "rows.zarr", Y, sample_weight=WEIGHT)
    model = LogisticRegression(C=0.5).fit(stored)
    assert model.gap_ is not None
    assert model.gap_ <= 1e-3
    assert verify(model.model_, stored).agrees
    lazy = model.predict_proba(dask.array.from_array(X, chunks=(50, 4)))
    assert lazy.shape == (240, 4)
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), model.predict_proba(X))


def test_extreme_scores_have_probabilities() -> None:
    model = LogisticRegression().fit(X, Y)
    far = np.array([[1e30, 0, 0, 0], [-1e30, 0, 0, 0]], np.float32)
    assert set(model.predict_proba(far).ravel().tolist()) == {0.0, 1.0}
    assert np.isfinite(model.predict_log_proba(far)).all()
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)).sum(axis=1), 1.0, rtol=1e-12)


def test_in_scikit_learns_grid_and_in_one_of_shared_reads() -> None:
    searched = GridSearchCV(LogisticRegression(n_jobs=1), {"C": [0.01, 1.0]}, scoring="neg_log_loss", cv=3).fit(X, Y)
    tuned = streamsvm.tune(X, Y, C=[0.01, 1.0], folds=3, task="multinomial", scoring="neg_log_loss")
    assert isinstance(tuned.estimator, LogisticRegression)
    assert searched.best_params_["C"] == tuned.best.C
    assert tuned.best.mean == pytest.approx(searched.best_score_, abs=0.05)
    assert tuned.passes < 6 * tuned.result.passes + 6
    two = streamsvm.tune(X, Y == "fir", C=[0.1], folds=3, task="multinomial", scoring="neg_brier_score")
    assert two.result.model.problem.name == "classify"


def test_starts_and_maps_and_options() -> None:
    model = LogisticRegression(C=0.5, warm_start=True, solver=CuttingPlane(intercept_scaling=2.0)).fit(X, Y)
    same = LogisticRegression(C=0.5, intercept_scaling=2.0).fit(X, Y)
    np.testing.assert_array_equal(model.fit(X, Y).coef_, same.coef_)
    mapped = LogisticRegression(feature_map=PolynomialMap()).fit(X, Y)
    assert mapped.coef_.shape == (4, mapped.model_.n_trained)
    assert mapped.score(X, Y) > 0.7
