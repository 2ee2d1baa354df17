"""A loaded estimator has the attributes and parameters that the fitted one had."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import streamsvm
from streamsvm import (
    SMO,
    SVC,
    SVR,
    BudgetedSVC,
    BudgetedSVR,
    InteriorPoint,
    LinearOneClassSVM,
    LinearSVC,
    LinearSVR,
    LogisticRegression,
    NuSVC,
    NuSVR,
    Nystroem,
    OneClassSVM,
    RankSVM,
)
from streamsvm.estimators.loading import make_estimator

X = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
SCORES = X @ [1.0, -1.0, 0.5, 0.0] + np.random.default_rng(1).normal(size=80)
TWO, THREE = np.where(SCORES > 0, "yes", "no"), np.digitize(SCORES, [-0.7, 0.7])
OF_THE_TRAINING = {"n_iter_", "n_passes_", "history_", "result_"}
WEIGHTS = {0: 1.0, 1: 2.0, 2: 0.3}
CASES: list[tuple[Any, Any]] = [
    (LinearSVC(C=0.3, class_weight={"yes": 2.0, "no": 1.0}, intercept_scaling=3.0), TWO),
    (LinearSVC(class_weight=WEIGHTS), THREE),
    (LinearSVC(loss="squared_hinge", fit_intercept=False), (X > 0).astype(int)),
    (LinearSVC(multi_class="crammer_singer", class_weight=WEIGHTS), THREE),
    (LinearSVC(feature_map=Nystroem(n_components=7, gamma=0.5)), TWO),
    (LogisticRegression(C=2.0, class_weight=WEIGHTS), THREE),
    (LogisticRegression(C=2.0, multi_class="ovr", intercept_scaling=2.0), THREE),
    (LogisticRegression(penalty="l1"), THREE),
    (LinearSVR(intercept_scaling=2.0, epsilon=0.2), SCORES),
    (LinearSVR(solver="cutting-plane"), SCORES),
    (SVC(gamma=0.5, class_weight={"yes": 2.0, "no": 1.0}), TWO),
    (SVC(gamma=0.5, C=0.3, class_weight=WEIGHTS), THREE),
    (SVC(gamma=0.5, multi_class="ovr", class_weight=WEIGHTS), THREE),
    (SVC(gamma=0.5, multi_class="crammer_singer", class_weight=WEIGHTS, solver=SMO(intercept_scaling=2.0)), THREE),
    (SVC(gamma=0.5, max_iter=1), TWO),
    (SVC(gamma=0.5, solver=InteriorPoint(approximation="nystrom", n_components=9)), TWO),
    (SVC(gamma=0.5, solver=InteriorPoint(n_components=5)), THREE),
    (SVC(kernel="linear", gamma=1.0, solver="irwls"), TWO),
    (NuSVC(nu=0.4, gamma=0.5, class_weight={"yes": 1.0, "no": 0.8}), TWO),
    (NuSVC(nu=0.4, gamma=0.5), THREE),
    (SVR(gamma=0.5, epsilon=0.3), SCORES),
    (NuSVR(gamma=0.5, nu=0.4, C=2.0), SCORES),
    (OneClassSVM(gamma=0.5, nu=0.3), None),
    (LinearOneClassSVM(nu=0.3), None),
    (BudgetedSVC(gamma=0.5, class_weight=WEIGHTS), THREE),
    (BudgetedSVC(gamma=0.5, fit_intercept=True), TWO),
    (BudgetedSVR(gamma=0.5), SCORES),
    (RankSVM(C=2.0), THREE),
]
FORGOTTEN = {"max_iter"}  # limits of a training are not in its model


def list_fitted(model: Any) -> set[str]:
    return {name for name in dir(model) if name.endswith("_") and not name.startswith("_")} - OF_THE_TRAINING


def to_array(value: Any) -> Any:
    return value.toarray() if isinstance(value, csr_array) else value


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*prob[AB]_")
@pytest.mark.parametrize(("estimator", "y"), CASES, ids=lambda each: str(each)[:60] if hasattr(each, "fit") else "")
@pytest.mark.parametrize("layout", [np.asarray, csr_array])
def test_a_loaded_estimator_is_the_fitted_one(tmp_path: Path, estimator: Any, y: Any, layout: Any) -> None:
    model = estimator.fit(layout(X + 3.0 * (y is None)), y)
    model.save(tmp_path / "model.npz")
    same = streamsvm.load(tmp_path / "model.npz")
    assert type(same) is type(model)
    fitted = list_fitted(model) - {"probA_", "probB_"}
    assert fitted == list_fitted(same) - {"probA_", "probB_"}
    for name in fitted - {"model_"}:
        np.testing.assert_array_equal(to_array(getattr(same, name)), to_array(getattr(model, name)), err_msg=name)
    given, found = model.get_params(), same.get_params()
    assert {name for name in given if given[name] != found[name]} <= FORGOTTEN


def train_one_against_rest(rows: Any, labels: Any = None) -> Any:
    """Return a model with a support vector of the rest alone, which has no positive coefficient."""
    model = SVC(gamma=0.5, multi_class="ovr", C=10.0).fit(rows, labels)
    assert not (model.dual_coef_.max(axis=0) > 0).all()
    return model


def test_each_class_has_its_count_wherever_the_rows_lie(tmp_path: Path) -> None:
    stored = streamsvm.ingest(X, tmp_path / "rows.zarr", y=THREE)
    for model, codes in (
        (train_one_against_rest(X, THREE), THREE),
        (train_one_against_rest(stored), stored.column("y")),
    ):
        expected = np.bincount(codes[model.support_]).tolist()
        assert model.n_support_.tolist() == expected
        model.save(tmp_path / "model.npz")
        saved = streamsvm.load(tmp_path / "model.npz")
        assert saved.n_support_.tolist() == expected
        assert saved.model_.info == model.model_.info == model.result_.model.info


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("model", [SVC(gamma=0.5), SVC(multi_class="crammer_singer"), NuSVC(nu=0.4)])
def test_files_without_counts_tell_them_by_the_coefficients(model: Any, y: Any) -> None:
    fitted = model.fit(X, y).model_
    older = replace(fitted, info={name: told for name, told in fitted.info.items() if name != "n_support"})
    assert make_estimator(older).n_support_.tolist() == model.n_support_.tolist()


def test_balanced_classes_are_recalled_by_their_factors() -> None:
    model = SVC(gamma=0.5, C=4.0, class_weight="balanced").fit(X, THREE)
    counts = np.bincount(THREE)
    np.testing.assert_allclose(model.class_weight_, 80 / (3 * counts), rtol=1e-15)
    assert make_estimator(model.model_).class_weight == dict(enumerate(model.class_weight_))


@pytest.mark.parametrize("given", [{}, {"class_weight": "balanced"}, {"multi_class": "ovr"}])
def test_equal_factors_of_classes_are_known(given: dict[str, str]) -> None:
    model = SVC(gamma=0.5, **given).fit(X[:60], np.arange(60) % 3)
    assert model.class_weight_.tolist() == make_estimator(model.model_).class_weight_.tolist() == [1.0, 1.0, 1.0]


def test_models_of_earlier_versions_are_loaded(tmp_path: Path) -> None:
    """Their files lack some of the facts, or have them in a form that nobody wrote."""
    model = SVC(gamma=0.5, class_weight=WEIGHTS).fit(X, THREE)
    for problem in (None, {}, {"class_costs": "none"}, {"class_costs": [[1.0]]}, {"class_costs": {"a": 1}}):
        arrays = model.model_.to_arrays()
        about = json.loads(arrays["about"])
        about["info"].pop("problem")
        about["info"] |= {} if problem is None else {"problem": problem}
        np.savez(tmp_path / "model.npz", **(arrays | {"about": json.dumps(about)}))
        same = streamsvm.load(tmp_path / "model.npz")
        assert not hasattr(same, "class_weight_")
        np.testing.assert_array_equal(same.predict(X), model.predict(X))
