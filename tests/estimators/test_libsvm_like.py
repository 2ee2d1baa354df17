"""What users of scikit-learn's SVC and SVR rely on: shapes of scores, kernels of their own, weights below 0, C=inf."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn import svm
from sklearn.base import clone, is_outlier_detector, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score

import streamsvm
from streamsvm import SMO, SVC, SVR, NuSVC, NuSVR, OneClassSVM
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError, MemoryBudgetError

RANDOM = np.random.default_rng(5)
CODES = RANDOM.integers(0, 4, 240)
X = (2 * RANDOM.normal(size=(4, 3))[CODES] + RANDOM.normal(size=(240, 3))).astype(np.float32)
CLASSES = np.array(["a", "b", "c", "d"])[CODES]
Y = np.where(X[:, 0] + 0.3 * RANDOM.normal(size=240) > 0, 1, -1)
TARGET = np.sin(X[:, 0]) + X[:, 1]
FINE: dict[str, Any] = {"gamma": 0.3, "tol": 1e-9}


def own_kernel(left: Any, right: Any) -> Any:
    return rbf_kernel(left, right, gamma=0.3)


K = own_kernel(X, X)


@pytest.mark.parametrize(
    "ours", [SVC(), SVR(), NuSVC(nu=0.2), NuSVR(), OneClassSVM()], ids=lambda one: type(one).__name__
)
def test_max_iter_counts_pair_steps(ours: Any) -> None:
    """A pair step moves two multipliers, those that were zero included; the limit proves what is there all the same."""
    told = (
        r"^Solver terminated early \(max_iter=7\).  Consider pre-processing.* the limit of 7 pair steps was reached at"
    )
    y = (TARGET,) if is_regressor(ours) else () if is_outlier_detector(ours) else (Y,)
    with pytest.warns(ConvergenceWarning, match=told):
        model = clone(ours).set_params(max_iter=7).fit(X, *y)
    assert np.all(np.asarray(model.n_iter_) == 7)
    assert (model.status_, model.fit_status_) == ("pair_limit", 1)
    assert 0 <= model.lower_bound_ < model.objective_
    if isinstance(ours, SVC | SVR) and not isinstance(
        ours, NuSVC | NuSVR
    ):  # the others begin with a sum of multipliers
        assert 2 <= len(model.support_) <= 14
    enough = clone(ours).fit(X, *y)
    assert enough.status_ == "converged"
    again = clone(ours).set_params(max_iter=int(np.max(enough.n_iter_)) + 1).fit(X, *y)
    np.testing.assert_array_equal(again.dual_coef_, enough.dual_coef_)


def test_each_pair_of_classes_has_its_limit_of_pair_steps() -> None:
    """With few active rows as with all of them."""
    for more in ({}, {"resident_rows": 40, "tol": 1e-6}):
        with pytest.warns(ConvergenceWarning, match="terminated early"):
            model = SVC(gamma=0.3, max_iter=9, **more).fit(X, CLASSES)
        assert model.n_iter_.tolist() == [9] * 6


def test_a_limit_of_pair_steps_is_set_in_one_place() -> None:
    with pytest.warns(ConvergenceWarning, match=r"\(max_iter=9\)"):
        model = SVC(gamma=0.3, solver=SMO(max_pairs=9)).fit(X, CLASSES)
    assert model.n_iter_.tolist() == [9] * 6
    with pytest.raises(InputError, match=r"max_iter=5 and solver=SMO\(max_pairs=9\): set only one of the limits"):
        SVC(max_iter=5, solver=SMO(max_pairs=9)).fit(X, CLASSES)


def test_a_run_goes_on_with_a_higher_limit_of_pair_steps(tmp_path: Path) -> None:
    rows = ingest(X, tmp_path / "rows.zarr", Y)
    options = TrainOptions(solver="smo", kernel="rbf", gamma=0.3, options={"max_pairs": "5"})
    first = train(rows, options, tmp_path / "run")
    assert (first.status, first.history[-1]["pairs"]) == ("pair_limit", 5)
    after = train(rows, replace(options, options={"max_pairs": "100000"}), tmp_path / "run", resume=True)
    assert (after.status, after.history[-1]["pairs"] > 5) == ("converged", True)
    with pytest.raises(InputError, match="max_pairs: this training makes no pair steps of smo on working sets"):
        train(rows, replace(options, solver="irwls"))


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
@pytest.mark.parametrize("break_ties", [False, None, True])
def test_scores_and_votes_are_theirs(shape: str, break_ties: Any, tmp_path: Path) -> None:
    """For arrays, a dataset, and Dask rows."""
    model = SVC(**FINE, decision_function_shape=shape, break_ties=break_ties).fit(X, CLASSES)
    theirs = svm.SVC(gamma=0.3, tol=1e-10, decision_function_shape=shape, break_ties=bool(break_ties))
    theirs.fit(X.astype(float), CLASSES)
    scores, stored = model.decision_function(X), ingest(X, tmp_path / "rows.zarr", CLASSES, shuffle=None)
    np.testing.assert_allclose(scores, theirs.decision_function(X.astype(float)), atol=1e-4)
    np.testing.assert_array_equal(model.decision_function(stored), scores)
    lazy = model.decision_function(da.from_array(X, chunks=(100, 3)))
    assert lazy.chunks[1] == (scores.shape[1],)
    np.testing.assert_allclose(lazy.compute(), scores, atol=1e-12)
    if shape == "ovo" and break_ties:
        with pytest.raises(ValueError, match="break_ties must be False when decision_function_shape is 'ovo'"):
            model.predict(X)
        return
    theirs.break_ties = shape == "ovr" and break_ties is not False
    if shape == "ovr" or break_ties is False:
        np.testing.assert_array_equal(model.predict(X), theirs.predict(X.astype(float)))
    np.testing.assert_array_equal(model.predict(da.from_array(X, chunks=(100, 3))).compute(), model.predict(X))


def test_attributes_have_their_shapes() -> None:
    for ours, theirs, y in (
        (SVC(**FINE, class_weight={"a": 2.0}), svm.SVC(**FINE, class_weight={"a": 2.0}), CLASSES),
        (SVC(**FINE), svm.SVC(**FINE), Y),
        (SVR(**FINE), svm.SVR(**FINE), TARGET),
    ):
        ours.fit(X, y)
        theirs.fit(X, y)
        for name in ("support_", "n_support_", "dual_coef_", "intercept_", "support_vectors_"):
            assert getattr(ours, name).shape == getattr(theirs, name).shape
        assert np.shape(ours.n_iter_) == np.shape(theirs.n_iter_)
        assert (ours.fit_status_, ours.shape_fit_) == (theirs.fit_status_, theirs.shape_fit_)
        if y is not TARGET:
            np.testing.assert_array_equal(ours.class_weight_, theirs.class_weight_)


def test_one_against_the_rest_is_still_there() -> None:
    model = SVC(gamma=0.3, multi_class="ovr").fit(X, CLASSES)
    assert (model.dual_coef_.shape[0], model.intercept_.shape, model.n_iter_.shape) == (4, (4,), (4,))
    np.testing.assert_array_equal(model.predict(X), model.classes_[np.argmax(model.decision_function(X), axis=1)])
    with pytest.raises(InputError, match="no pairs of classes were trained"):
        model.set_params(decision_function_shape="ovo").decision_function(X)


@pytest.mark.parametrize(("kind", "y"), [(SVC, CLASSES), (SVC, Y), (SVR, TARGET)])
@pytest.mark.parametrize("resident_rows", [None, 60])
def test_a_kernel_of_ones_own(kind: Any, y: Any, resident_rows: int | None) -> None:
    """A function, its values, and the kernel of that name make the same scores, in memory and out of core."""
    given: dict[str, Any] = {"tol": 1e-7, "resident_rows": resident_rows}
    named = kind(gamma=0.3, **given).fit(X, y)
    own = clone(kind(kernel=own_kernel, **given)).fit(X, y)
    known = kind(kernel="precomputed", **given).fit(K, y)
    score = "predict" if kind is SVR else "decision_function"
    expected = getattr(named, score)(X[:50])
    np.testing.assert_allclose(getattr(own, score)(X[:50]), expected, atol=2e-3)
    np.testing.assert_array_equal(getattr(known, score)(K[:50]), getattr(own, score)(X[:50]))
    assert (own.status_, own.lower_bound_) == ("stationary", None)  # it is not known whether the matrix is definite
    assert own.objective_ == pytest.approx(named.objective_, rel=1e-5)


def test_known_values_on_disk_and_in_files(tmp_path: Path) -> None:
    """A dataset of kernel rows gives the bits of the array; a saved model takes rows of values."""
    stored = ingest(K, tmp_path / "rows.zarr", CLASSES, shuffle=None, chunk_bytes=20_000)
    assert stored.n_chunks > 1
    model = SVC(kernel="precomputed", resident_rows=60).fit(stored)
    np.testing.assert_allclose(
        model.decision_function(K), SVC(kernel="precomputed", resident_rows=60).fit(K, CLASSES).decision_function(K)
    )
    model.save(tmp_path / "model.npz")
    loaded: Any = streamsvm.load(tmp_path / "model.npz")
    assert loaded.kernel == "precomputed"
    np.testing.assert_array_equal(loaded.decision_function(K[:9]), model.decision_function(K[:9]))
    with pytest.raises(ValueError, match="expecting 240 features"):
        loaded.predict(K[:, :9])
    shuffled = ingest(K, tmp_path / "shuffled.zarr", CLASSES)
    with pytest.raises(InputError, match="ingest them with --shuffle no"):
        SVC(kernel="precomputed").fit(shuffled)


def test_a_function_is_not_saved(tmp_path: Path) -> None:
    model = SVC(kernel=own_kernel).fit(X, Y)
    with pytest.raises(InputError, match="loading a model runs no code"):
        model.save(tmp_path / "model.npz")
    assert not (tmp_path / "model.npz").exists()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_kernels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match=r"X.shape\[0\] should be equal to X.shape\[1\]"):
        SVC(kernel="precomputed").fit(X, Y)
    with pytest.raises(TypeError, match="Sparse precomputed kernels are not supported"):
        SVC(kernel="precomputed").fit(csr_array(K), Y)
    with pytest.raises(InputError, match=r"the kernel returned an array of shape \(240, 3\)"):
        SVC(kernel=lambda left, _: left).fit(X, Y)
    with pytest.raises(InputError, match="takes rows in memory"):
        SVC(kernel=own_kernel).fit(da.from_array(X, chunks=(100, 3)), Y)
    with pytest.raises(InputError, match="selection platt"):
        SVC(kernel="precomputed", solver=SMO(selection="platt")).fit(K, Y)


def test_known_values_are_split_with_their_columns() -> None:
    """Cross-validation takes the values with the rows of the other folds: it is that of the kernel itself."""
    direct = cross_val_score(SVC(gamma=0.3), X, Y, cv=3)
    np.testing.assert_array_equal(cross_val_score(SVC(kernel="precomputed"), K, Y, cv=3), direct)
    search = GridSearchCV(SVC(kernel="precomputed"), {"C": [0.1, 1.0]}, cv=3).fit(K, Y)
    assert search.best_score_ >= max(direct) - 0.1


@pytest.mark.parametrize(
    ("ours", "theirs", "y"),
    [
        (SVC(**FINE), svm.SVC(**FINE), CLASSES),
        (SVC(**FINE), svm.SVC(**FINE), Y),
        (SVR(**FINE), svm.SVR(**FINE), TARGET),
    ],
)
def test_rows_with_weights_below_0_are_left_out(ours: Any, theirs: Any, y: Any) -> None:
    weight = RANDOM.choice([-1.0, 0.0, 0.5, 2.0], 240)
    ours.fit(X, y, weight)
    theirs.fit(X.astype(float), y, weight)
    score = "predict" if isinstance(ours, SVR) else "decision_function"
    np.testing.assert_allclose(getattr(ours, score)(X), getattr(theirs, score)(X.astype(float)), atol=1e-3)
    assert np.all(weight[ours.support_] > 0)


def test_weights_that_leave_nothing_to_learn_are_refused() -> None:
    with pytest.raises(InputError, match="all samples have zero or negative weights"):
        SVR().fit(X, TARGET, -np.ones(240))
    with pytest.raises(InputError, match="all samples with positive weights belong to the same class"):
        SVC().fit(X, Y, np.where(Y == 1, 1.0, -1.0))
    with pytest.raises(ValueError, match="NaN"):
        SVC().fit(X, Y, np.full(240, np.nan))


def test_an_infinite_cost_allows_no_errors() -> None:
    """The bound is one of the hard margin: with all margins scaled to 1, |w|^2 / 2 is hardly above it."""
    apart = X + 4.0 * np.where(Y == 1, 1, -1)[:, None].astype(np.float32)
    model, theirs = SVC(C=np.inf, gamma=0.05).fit(apart, Y), svm.SVC(C=np.inf, gamma=0.05).fit(apart.astype(float), Y)
    margins = Y * model.decision_function(apart)
    assert margins.min() > 1 - 1e-6
    coef = model.dual_coef_[0]
    square = coef @ rbf_kernel(model.support_vectors_.astype(float), gamma=0.05) @ coef
    assert model.status_ == "converged"
    assert model.lower_bound_ <= square / 2 / margins.min() ** 2 <= model.lower_bound_ * (1 + 2e-3)
    np.testing.assert_allclose(margins, Y * theirs.decision_function(apart.astype(float)), atol=0.02)
    regression = SVR(C=np.inf, gamma=1.0, epsilon=0.2).fit(X, TARGET)
    assert np.max(np.abs(regression.predict(X) - TARGET)) <= 0.2 + 1e-3


def test_an_infinite_cost_where_there_must_be_errors() -> None:
    for estimator, y in ((SVC(C=np.inf, kernel="linear"), Y), (SVR(C=np.inf, kernel="linear"), TARGET)):
        with pytest.raises(InputError, match="C is inf, but no function of this kernel seems to"):
            estimator.fit(X, y)
    with pytest.raises(InputError, match="C is inf; it must be positive and finite"):
        streamsvm.LinearSVC(C=np.inf).fit(X, Y)


@pytest.mark.parametrize("kind", [SVC, SVR])
def test_kernel_values_that_do_not_fit_are_refused_before_they_are_computed(kind: Any) -> None:
    """The matrix of a function is made at once, by the function itself."""

    def never(*_: Any) -> None:
        raise AssertionError("the function is called")

    rows = np.zeros((20_000, 1))
    with pytest.raises(MemoryBudgetError, match="GB of memory are needed for the kernel values of all pairs"):
        kind(kernel=never, memory="2GB").fit(rows, np.arange(20_000) % 2)
