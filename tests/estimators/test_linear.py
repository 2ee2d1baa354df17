"""LinearSVC as scikit-learn's users know it: its checks, its weights, its tools; and what is its own."""

from __future__ import annotations

import pickle
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pytest
from distributed import Client
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC as Liblinear
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import streamsvm
from streamsvm import (
    SVC,
    SVR,
    BudgetedSVC,
    BudgetedSVR,
    CuttingPlane,
    LinearOneClassSVM,
    LinearSVC,
    LinearSVR,
    LogisticRegression,
    NuSVC,
    NuSVR,
    OneClassSVM,
    RankSVM,
)
from streamsvm.engines.merge import answer_all
from streamsvm.models.model import LinearModel
from streamsvm.system.errors import InputError, MemoryBudgetError
from tests.conftest import Problem, compute_objective, make_problem

PROBLEM = make_problem(1, n=200, d=5)
X, Y = PROBLEM.dense().astype(np.float32), PROBLEM.y
# The first asks for an environment variable; we take NumPy's arrays only. The second is of predict_proba, which
# LinearSVC does not have unless it is asked for, and LogisticRegression has.
SKIPPED_CHECKS = {"check_array_api_input", "check_classifiers_multilabel_output_format_predict_proba"}


def name_what_cannot_be(estimator: Any) -> dict[str, str]:
    """What scikit-learn expects to fail of its own SGDClassifier and NuSVC, too.

    For SGD a repeated row is two steps, and a weighted one is one.
    """
    checks = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
    if isinstance(estimator, NuSVC):
        return {"check_class_weight_classifiers": "nu is infeasible where a class has a ten-millionth of the weight"}
    return dict.fromkeys(
        checks if isinstance(estimator, BudgetedSVC | BudgetedSVR) else [], "steps depend on the order of rows"
    )


def name_check(check: Any) -> str:
    """Return the name and the options of a check, of any estimator."""
    return f"{check.func.__name__}{check.keywords}"


CHECKED = [
    LinearSVC(),
    LinearSVC(loss="squared_hinge"),
    LogisticRegression(),
    SVC(),
    BudgetedSVC(),
    BudgetedSVR(),
    RankSVM(),
    LinearSVR(),
    SVR(),
    NuSVC(nu=0.3),
    NuSVR(),
    OneClassSVM(),
    LinearOneClassSVM(),
    LinearSVR(loss="squared_epsilon_insensitive"),
]


def test_every_estimator_is_checked() -> None:
    public = {name for name in streamsvm.__all__ if hasattr(getattr(streamsvm, name), "fit")}
    assert {type(estimator).__name__ for estimator in CHECKED} == public


@pytest.mark.same(check=name_check)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # rows drawn around 0 have no margin
@parametrize_with_checks(CHECKED, expected_failed_checks=name_what_cannot_be)  # type: ignore[untyped-decorator]
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    try:
        check(estimator)
    except unittest.SkipTest:
        assert check.func.__name__ in SKIPPED_CHECKS
        assert check.func.__name__ == "check_array_api_input" or not hasattr(estimator, "predict_proba")
        raise


def test_scikit_learn_checks_are_many() -> None:
    for estimator, least in ((LinearSVC(), 66), (LogisticRegression(), 66), (SVC(), 60), (BudgetedSVC(), 60)):
        assert len(list(estimator_checks_generator(estimator))) >= least  # the first two take sets of labels, too
    assert len(list(estimator_checks_generator(RankSVM()))) >= 49


def solve_by_liblinear(problem: Problem, costs: Any) -> float:
    """Return the optimum of the same objective (the bias penalised), solved tightly with these costs of rows."""
    liblinear = Liblinear(loss="hinge", C=1.0, tol=1e-9, max_iter=10**7, random_state=0)
    liblinear.fit(problem.dense(), problem.y, sample_weight=costs)
    w, b = liblinear.coef_[0], liblinear.intercept_[0]
    hinge = np.maximum(0, 1 - problem.y * (problem.dense() @ w + b))
    return float(0.5 * w @ w + 0.5 * b * b + costs @ hinge)


@pytest.mark.parametrize("density", [1.0, 0.4])
@pytest.mark.parametrize(
    ("class_weight", "weighted"),
    [(None, False), (None, True), ({-1: 0.5, 1: 3}, False), ({-1: 0.5}, True), ({1: 2.5}, True), ("balanced", False)],
)
def test_weights_mean_what_they_mean_to_scikit_learn(class_weight: Any, weighted: bool, density: float) -> None:
    problem = make_problem(3, n=150, d=6, density=density, weighted=weighted)
    model = LinearSVC(C=0.3, class_weight=class_weight, tol=1e-6).fit(problem.X, problem.y, problem.weight)
    factors = {None: {}, "balanced": {c: 75 / np.sum(problem.y == c) for c in (-1, 1)}}
    by_class = class_weight if isinstance(class_weight, dict) else factors[class_weight]
    costs = problem.costs(0.3, by_class.get(-1, 1.0), by_class.get(1, 1.0))
    optimum = solve_by_liblinear(problem, costs)
    assert model.status_ == "converged"
    assert model.objective_ == pytest.approx(compute_objective(problem, model.model_, costs), rel=1e-6)
    assert model.lower_bound_ <= optimum * (1 + 1e-7)
    assert optimum * (1 - 1e-7) <= model.objective_ <= optimum * (1 + 2e-6)
    assert model.gap_ == pytest.approx((model.objective_ - model.lower_bound_) / model.objective_)


def test_a_weight_is_so_many_rows_and_zero_is_none() -> None:
    weight = np.arange(len(Y)) % 4
    weighted = LinearSVC(tol=1e-8).fit(X, Y, sample_weight=weight)
    repeated = LinearSVC(tol=1e-8).fit(np.repeat(X, weight, axis=0), np.repeat(Y, weight))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-4)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-7)


@pytest.mark.parametrize(
    ("labels", "keys"),
    [([0, 1], (0.0, True)), ([0, 1], ("0", "1")), ([0.0, 1.0], (0, 1)), ([False, True], (0, 1)), (["0", "1"], (0, 1))],
)
def test_class_weights_go_by_equal_labels(labels: list[Any], keys: tuple[Any, Any]) -> None:
    expected = LinearSVC(class_weight={-1: 2, 1: 5}).fit(X, Y).coef_
    found = LinearSVC(class_weight={keys[0]: 2, keys[1]: 5}).fit(X, np.array(labels)[(Y > 0).astype(int)]).coef_
    np.testing.assert_array_equal(found, expected)


def test_certificate_and_fitted_attributes() -> None:
    model = LinearSVC(C=0.5, intercept_scaling=3.0, tol=1e-4, random_state=7).fit(X, Y)
    assert model.coef_.shape == (1, 5)
    assert model.intercept_.shape == (1,)
    assert model.objective_ == pytest.approx(compute_objective(PROBLEM, model.model_, PROBLEM.costs(0.5), 3.0))
    assert (model.status_, model.n_features_in_) == ("converged", 5)
    assert model.gap_ is not None
    assert model.gap_ <= 1e-4
    assert model.n_iter_ == model.n_passes_ == len(model.history_) == model.result_.passes
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_allclose(model.decision_function(X), X @ model.coef_[0] + model.intercept_, rtol=1e-6)
    assert model.score(X, Y) == np.mean(model.predict(X) == Y)
    weight = np.arange(len(Y))
    assert model.score(X, Y, weight) == pytest.approx(np.average(model.predict(X) == Y, weights=weight))


def test_limits() -> None:
    with pytest.warns(ConvergenceWarning, match="LinearSVC: the limit of 3 passes was reached at a gap of"):
        assert (
            LinearSVC(max_passes=3, tol=1e-9, solver=CuttingPlane(acceleration="line-search")).fit(X, Y).status_
            == "pass_limit"
        )
    with pytest.raises(MemoryBudgetError, match="raise --memory to at least"):
        LinearSVC(memory="1KB").fit(X, Y)
    published = LinearSVC(solver=CuttingPlane(acceleration="none", epsilon=0.1)).fit(X, Y)
    assert published.status_ == "paper_stop"  # nothing is proved by it
    assert published.gap_ is not None
    assert published.gap_ > 1e-3


def test_parameters_are_left_as_they_were() -> None:
    given: dict[str, Any] = {"C": np.float32(0.5), "class_weight": {1: 2}, "memory": "4GB", "n_jobs": -1}
    model = LinearSVC(**given)
    before = model.get_params()
    model.fit(X, Y)
    assert all(model.get_params()[name] is value for name, value in before.items())
    assert all(model.get_params()[name] is value for name, value in given.items())
    assert given["class_weight"] == {1: 2}


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        (np.array(["no", "yes"]), "<U3"),
        (np.array(["no", "yes"], dtype=object), "object"),
        (np.array([False, True]), "bool"),
        (np.array([-3, 7], np.int8), "int8"),
        (np.array([1.0, 2.0], np.float32), "float32"),
        (pd.Series(["no", "yes"], dtype=object), "object"),
        (pd.Categorical(["no", "yes"]), "object"),
        (pd.Series(pd.Categorical([3, 7])), "int64"),
    ],
)
def test_labels_of_any_kind_come_back(tmp_path: Path, labels: Any, dtype: str) -> None:
    codes = (Y > 0).astype(int)
    y = labels.take(codes)
    model = LinearSVC().fit(X, y)
    assert (model.classes_.tolist(), str(model.classes_.dtype)) == (list(labels), dtype)
    np.testing.assert_array_equal(model.predict(X), np.asarray(labels)[(model.decision_function(X) > 0).astype(int)])
    model.save(tmp_path / "model.npz")
    assert streamsvm.load(tmp_path / "model.npz").classes_.tolist() == list(labels)


def test_saved_and_loaded(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = LinearSVC().fit(frame, Y)
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(str(tmp_path / "model.npz"))
    for name in ("coef_", "intercept_", "classes_", "feature_names_in_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name), strict=True)
    for name in ("n_features_in_", "status_", "objective_", "lower_bound_", "gap_"):
        assert getattr(loaded, name) == getattr(model, name)
    np.testing.assert_array_equal(loaded.decision_function(frame), model.decision_function(frame))
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    assert loaded.score(frame, Y) == model.score(frame, Y)
    assert loaded.get_params() == model.get_params()
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame[list("edcba")])
    loaded.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "model.npz").read_bytes()
    assert loaded.set_params(C=2.0).fit(X, Y).objective_ > model.objective_


def test_loaded_from_a_runs_folder(tmp_path: Path) -> None:
    model = LinearSVC(C=0.2, checkpoint=tmp_path / "run").fit(X, Y)
    loaded = streamsvm.load(tmp_path / "run")
    assert loaded.C == 0.2
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.parametrize("info", [{}, {"C": 1.0, "solver": "cutting-plane"}])
def test_a_model_of_unknown_origin_is_refused(info: dict[str, Any], tmp_path: Path) -> None:
    LinearModel(coef=np.ones(2), intercept=0.0, classes=np.array([0, 1]), info=info).save(tmp_path / "model.npz")
    with pytest.raises(InputError, match=r"model\.npz: this is not a model that streamsvm trained"):
        streamsvm.load(tmp_path / "model.npz")


def test_pickled_and_cloned() -> None:
    model = LinearSVC(C=0.3, class_weight={1: 2}).fit(csr_array(X), Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.get_params() == clone(model).get_params() == model.get_params()
    assert not hasattr(clone(model), "coef_")


def test_search_and_pipeline() -> None:
    tried = {"linearsvc__class_weight": [{"yes": 1e-6}, None]}
    grid = GridSearchCV(make_pipeline(StandardScaler(), LinearSVC()), tried, cv=3)
    grid.fit(X * 100 + 7, np.where(Y > 0, "yes", "no"))
    assert grid.best_params_ == {"linearsvc__class_weight": None}
    assert grid.score(X * 100 + 7, np.where(Y > 0, "yes", "no")) > 0.7


def test_a_client_trains_on_its_workers_and_is_cloned_with_the_rest(client: Client) -> None:
    model = LinearSVC(client=client, tol=1e-10)
    assert clone(model).client is client
    assert pickle.loads(pickle.dumps(model)).client is None
    model.fit(X, Y)
    np.testing.assert_allclose(model.coef_, LinearSVC(tol=1e-10).fit(X, Y).coef_, atol=1e-6)
    assert model.result_.read_bytes > 0  # rows in memory are not read from storage
    search = GridSearchCV(model, {"class_weight": [{1: 1e-6}, None]}, cv=2).fit(X, Y)
    assert search.best_params_ == {"class_weight": None}


@pytest.mark.parametrize("convert", [np.array, csr_array, pd.DataFrame])
def test_a_checkpoint_is_resumed_with_equal_rows(tmp_path: Path, convert: Callable[..., Any]) -> None:
    folder = tmp_path / "run"
    few: dict[str, Any] = {"solver": CuttingPlane(acceleration="line-search"), "tol": 1e-5}
    with pytest.warns(ConvergenceWarning):
        assert LinearSVC(checkpoint=folder, max_passes=3, **few).fit(convert(X), Y).status_ == "pass_limit"
    resumed = LinearSVC(checkpoint=str(folder), **few).fit(convert(X.copy()), Y.tolist())
    straight = LinearSVC(**few).fit(convert(X), Y)
    assert resumed.n_passes_ == straight.n_passes_ > 3
    np.testing.assert_array_equal(resumed.coef_, straight.coef_)
    for other_X, other_y, weight in ((2 * X, Y, None), (X, -Y, None), (X, Y, np.full(len(Y), 2.0))):
        with pytest.raises(InputError, match="cannot be resumed with other settings: fingerprint was"):
            LinearSVC(checkpoint=folder, **few).fit(convert(other_X), other_y, weight)


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_ctrl_c_passes_through_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_checkpoint: bool) -> None:
    n_requests = 0

    def answer_twice(*arguments: Any) -> Any:
        nonlocal n_requests
        n_requests += 1
        if n_requests == 3:
            raise KeyboardInterrupt
        return answer_all(*arguments)

    settings: dict[str, Any] = {"solver": CuttingPlane(acceleration="line-search")}
    model = LinearSVC(checkpoint=tmp_path / "run" if with_checkpoint else None, **settings)
    with monkeypatch.context() as patch:
        patch.setattr("streamsvm.runs.train.answer_all", answer_twice)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
    assert not hasattr(model, "coef_")
    assert model.fit(X, Y).n_passes_ == LinearSVC(**settings).fit(X, Y).n_passes_
    assert n_requests == 3


def test_rows_in_memory_are_not_copied_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        pytest.fail("rows were written to disk")

    monkeypatch.setattr("streamsvm.ingestion.readers.ingest", refuse)
    LinearSVC().fit(X, Y)
