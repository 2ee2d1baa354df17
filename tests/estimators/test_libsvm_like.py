"""What users of scikit-learn's SVC and SVR rely on: shapes of scores, kernels of their own, weights below 0, C=inf."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn import svm
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score

import streamsvm
from streamsvm import SVC, SVR
from streamsvm.data.readers import ingest
from streamsvm.errors import InputError, MemoryBudgetError

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


@pytest.mark.once
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


@pytest.mark.once
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
        SVC(kernel="precomputed", selection="platt").fit(K, Y)


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
    with pytest.raises(MemoryBudgetError, match=r"GB of memory are needed for the kernel values of 20,000 rows"):
        kind(kernel=never, memory="2GB").fit(rows, np.arange(20_000) % 2)
