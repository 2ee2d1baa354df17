"""Parameters and attributes by which scikit-learn's estimators are used: fit_intercept, max_iter, sparse weights, .."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse, lil_matrix
from sklearn import linear_model, svm
from sklearn.exceptions import ConvergenceWarning

import streamsvm
from streamsvm import (
    SMO,
    SVC,
    SVR,
    BudgetedSVC,
    CuttingPlane,
    InteriorPoint,
    LinearOneClassSVM,
    LinearSVC,
    LinearSVR,
    LogisticRegression,
    OneClassSVM,
    RankSVM,
)
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import InputError
from streamsvm.verify.verify import verify

RANDOM = np.random.default_rng(3)
X = (RANDOM.normal(size=(300, 4)) + 0.7).astype(np.float32)
X[:5] = 0.0  # without a bias, these rows can have no other score than 0
TARGET = X @ RANDOM.normal(size=4) + 2.0 + RANDOM.normal(size=300)
Y = np.where(TARGET > 2.5, "yes", "no")
WITHOUT_BIAS: list[tuple[Any, Any]] = [
    (LinearSVC(tol=1e-7), svm.LinearSVC(loss="hinge", fit_intercept=False)),
    (
        LinearSVC(tol=1e-7, solver=CuttingPlane(acceleration="block-ascent")),
        svm.LinearSVC(loss="hinge", fit_intercept=False),
    ),
    (
        LinearSVC(tol=1e-7, solver=CuttingPlane(acceleration="line-search")),
        svm.LinearSVC(loss="hinge", fit_intercept=False),
    ),
    (LinearSVC(tol=1e-9, loss="squared_hinge"), svm.LinearSVC(fit_intercept=False)),
    (LogisticRegression(tol=1e-9), linear_model.LogisticRegression(fit_intercept=False)),
    (LinearSVR(tol=1e-7, epsilon=0.1), svm.LinearSVR(epsilon=0.1, fit_intercept=False)),
]


@pytest.mark.parametrize(("ours", "theirs"), WITHOUT_BIAS)
def test_without_a_bias(ours: Any, theirs: Any, tmp_path: Path) -> None:
    y = TARGET if isinstance(ours, LinearSVR) else Y
    model = ours.set_params(fit_intercept=False, intercept_scaling=5.0).fit(X, y)
    theirs.set_params(tol=1e-10, max_iter=1_000_000).fit(X.astype(np.float64), y)
    assert model.status_ == "converged"
    np.testing.assert_array_equal(model.intercept_, 0.0)
    np.testing.assert_allclose(np.ravel(model.coef_), np.ravel(theirs.coef_), atol=2e-3)
    stored = ingest(X, tmp_path / "rows.zarr", y, regression=isinstance(ours, LinearSVR))
    assert verify(model.fit(stored).model_, stored).agrees
    model.save(tmp_path / "model.npz")
    loaded: Any = streamsvm.load(tmp_path / "model.npz")
    assert loaded.fit_intercept is False


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match=r"for a model without a bias, set fit_intercept=False"):
        LinearSVC(intercept_scaling=0.0).fit(X, Y)
    with pytest.raises(InputError, match="the interior-point method always has a bias"):
        LinearSVC(solver="interior-point", fit_intercept=False).fit(X, Y)
    with pytest.raises(InputError, match=r"fit_intercept=False and solver=CuttingPlane\(intercept_scaling=2\): omit"):
        LinearSVC(solver=CuttingPlane(intercept_scaling=2), fit_intercept=False).fit(X, Y)
    with pytest.raises(InputError, match="Unsupported set of arguments: penalty='l1', loss='hinge', dual='auto'"):
        LinearSVC(penalty="l1").fit(X, Y)
    with pytest.raises(InputError, match="decision_function_shape is 'ova'; 'ovr' or 'ovo' is expected"):
        SVC(decision_function_shape="ova").fit(X, Y)
    with pytest.raises(InputError, match="Unsupported set of arguments: penalty='l2', loss='hinge', dual=False"):
        LinearSVC(dual=False).fit(X, Y)


def test_the_smaller_limit_of_passes_holds() -> None:
    for limits in ({"max_iter": 2, "max_passes": 9}, {"max_iter": 9, "max_passes": 2}, {"max_iter": 2}):
        with pytest.warns(ConvergenceWarning, match="limit of 2 passes"):
            model = LinearSVC(tol=1e-9, solver=CuttingPlane(acceleration="line-search"), **limits).fit(X, Y)
        assert model.n_iter_ == 2
    with pytest.warns(ConvergenceWarning, match="limit of 3 passes"):
        SVC(solver="irwls", tol=1e-9, resident_rows="10%", max_iter=3).fit(X, Y)


def test_verbose_prints_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    silent = LinearSVC(solver=CuttingPlane(acceleration="line-search")).fit(X, Y)
    assert capsys.readouterr().out == ""
    LinearSVC(verbose=1, solver=CuttingPlane(acceleration="line-search")).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == silent.n_iter_
    assert lines[-1].startswith(f"[LinearSVC] pass {silent.n_passes_}: objective {silent.objective_:.6g}, gap ")


@pytest.mark.parametrize("dual", [True, False, "auto"])
def test_dual_has_no_effect(dual: bool | str) -> None:
    with_it, without = LinearSVC(loss="squared_hinge", dual=dual).fit(X, Y), LinearSVC(loss="squared_hinge").fit(X, Y)
    np.testing.assert_array_equal(with_it.coef_, without.coef_)


@pytest.mark.parametrize("sparse", [False, True])
def test_support_vectors_are_rows(sparse: bool, tmp_path: Path) -> None:
    """Their coefficients are sparse if the rows are sparse, as in scikit-learn."""
    rows, theirs = csr_array(X) if sparse else X, svm.SVC(gamma=0.2, tol=1e-9)
    model, theirs = SVC(gamma=0.2, tol=1e-9).fit(rows, Y), theirs.fit(rows.astype(np.float64), Y)
    np.testing.assert_array_equal(model.support_, np.sort(theirs.support_))
    np.testing.assert_array_equal(model.n_support_, theirs.n_support_)
    vectors = model.support_vectors_.toarray() if sparse else model.support_vectors_
    np.testing.assert_array_equal(vectors, X[model.support_])
    assert issparse(model.dual_coef_) == issparse(theirs.dual_coef_) == sparse
    coef, their_coef = (one.dual_coef_.toarray() if sparse else one.dual_coef_ for one in (model, theirs))
    np.testing.assert_allclose(coef[0], their_coef[0, np.argsort(theirs.support_)], atol=1e-5)
    model.save(tmp_path / "model.npz")
    loaded: Any = streamsvm.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.support_, model.support_)
    assert not hasattr(model.set_params(solver=InteriorPoint(n_components=10)).fit(rows, Y), "support_")


def test_support_vectors_of_many_classes_and_of_a_regression(tmp_path: Path) -> None:
    classes = RANDOM.integers(0, 3, len(X))
    model = SVC(gamma=0.2).fit(X, classes)
    assert len(model.support_) == len(np.unique(model.support_)) == model.dual_coef_.shape[1]
    np.testing.assert_array_equal(model.n_support_, np.bincount(classes[model.support_]))
    stored = ingest(X, tmp_path / "rows.zarr", TARGET, regression=True, shuffle=None)
    regression = SVR(gamma=0.2, resident_rows="30%").fit(stored)
    np.testing.assert_array_equal(regression.support_vectors_, X[regression.support_])
    np.testing.assert_array_equal(regression.n_support_, [len(regression.support_)])


@pytest.mark.parametrize("kind", [LinearSVC, LogisticRegression, LinearSVR, SVC, SVR, BudgetedSVC, OneClassSVM])
@pytest.mark.parametrize("to_sparse", [csr_array, lil_matrix])
def test_models_of_dense_rows_score_sparse_rows_alike_and_the_other_way_round(kind: Any, to_sparse: Any) -> None:
    rows = X * (RANDOM.random(X.shape) < 0.6)
    y = TARGET if kind in (LinearSVR, SVR) else Y
    for fitted in (kind().fit(rows, y), kind().fit(to_sparse(rows), y)):
        find = fitted.decision_function if hasattr(fitted, "decision_function") else fitted.predict
        np.testing.assert_allclose(find(to_sparse(rows)), find(rows), rtol=1e-12, atol=1e-12)


def test_weights_of_a_linear_kernel_cannot_be_changed() -> None:
    model = SVC(kernel="linear").fit(X, Y)
    with pytest.raises(ValueError, match="read-only"):
        model.coef_[0, 0] = 1.0


@pytest.mark.parametrize(
    "given", [{"solver": "irwls"}, {"solver": SMO(selection="platt")}, {"multi_class": "crammer_singer"}]
)
def test_solvers_that_count_no_pair_steps_tell_their_steps(given: Any) -> None:
    model = SVC(gamma=0.2, **given).fit(X, Y)
    assert model.n_iter_.tolist() == [len(model.history_)]


@pytest.mark.parametrize("name", ["dual_coef_", "support_vectors_", "intercept_"])
def test_what_a_sum_of_kernels_is_made_of_cannot_be_written_to(name: str) -> None:
    """A change would leave the predictions as they are, or falsify the model."""
    for model in (SVC().fit(X, Y), SVR().fit(X, TARGET)):
        with pytest.raises(ValueError, match="read-only"):
            getattr(model, name)[...] = 1.0


@pytest.mark.parametrize("name", ["dual_coef_", "support_vectors_"])
def test_what_a_sum_of_kernels_of_sparse_rows_is_made_of_cannot_be_written_to(name: str) -> None:
    model = SVC().fit(csr_array(X), Y)
    with pytest.raises(ValueError, match="read-only"):
        getattr(model, name).data[...] = 1.0


@pytest.mark.parametrize("kind", [LinearSVC, LogisticRegression, LinearSVR, LinearOneClassSVM, RankSVM])
@pytest.mark.parametrize("many", [False, True])
def test_weights_and_biases_of_linear_models_predict_as_they_are_now(kind: Any, many: bool, tmp_path: Path) -> None:
    """Assigned or written to, as in scikit-learn. A file, which tells the certificate, is refused then."""
    y, w = RANDOM.integers(0, 3, len(X)) if many else (Y == "yes").astype(int), RANDOM.normal(size=X.shape[1])
    fitted = kind().fit(X, y)
    before, bias = score(fitted), 0.0
    fitted.coef_ = np.broadcast_to(w, fitted.coef_.shape)
    if kind not in (RankSVM, LinearOneClassSVM):
        bias = fitted.intercept_ + 0.5
        fitted.intercept_ += 0.5
    elif kind is LinearOneClassSVM:
        bias = -fitted.offset_
    expected = (X @ w)[:, None] + bias
    found = score(fitted)
    np.testing.assert_allclose(found, expected if found.ndim == 2 else expected[:, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(score(pickle.loads(pickle.dumps(fitted))), found)
    with pytest.raises(InputError, match="were changed after fit"):
        fitted.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(score(fitted.fit(X, y)), before)
    fitted.save(tmp_path / "model.npz")


def score(fitted: Any) -> Any:
    return fitted.decision_function(X) if hasattr(fitted, "decision_function") else fitted.predict(X)


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("coef_", lambda w: w.T, "the shape"),
        ("coef_", lambda w: w[:, :-1], "the shape"),
        ("coef_", lambda w: csr_array(w[:, :-1]), "the shape"),
        ("coef_", lambda _: "abc", "an array of numbers"),
        ("intercept_", lambda _: np.zeros(7), "the shape"),
    ],
)
def test_weights_that_are_none_of_the_model_are_named(name: str, given: Any, told: str) -> None:
    """A transposed array has as many numbers, and was silently taken in another order."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    fitted = LinearSVC(C=0.1).fit(X, np.argmax(X[:, :3], axis=1))
    setattr(fitted, name, given(fitted.coef_))
    with pytest.raises(InputError, match=f"^{name} (is|has) .*{told}"):
        fitted.predict(X)


@pytest.mark.parametrize("kind", [LinearSVC, LogisticRegression])
def test_weights_become_sparse_and_dense_again(kind: Any, tmp_path: Path) -> None:
    fitted = kind(fit_intercept=False).fit(X, np.argmax(X[:, :3], axis=1))
    dense, scores = fitted.coef_, fitted.decision_function(X)
    assert issparse(fitted.sparsify().coef_)
    np.testing.assert_array_equal(fitted.decision_function(X), scores)
    np.testing.assert_allclose(fitted.decision_function(csr_array(X)), scores, rtol=1e-9, atol=1e-9)
    fitted.save(tmp_path / "model.npz")  # the weights are those of the model
    np.testing.assert_array_equal(fitted.densify().densify().coef_, dense)
    fitted.sparsify().coef_.data[:] = 0.0
    np.testing.assert_array_equal(fitted.decision_function(X), 0.0)


@pytest.mark.parametrize("y", [Y, np.argmax(X[:, :3], axis=1)], ids=["two classes", "pairs"])
def test_weights_of_a_linear_kernel_are_sparse_for_sparse_rows(y: Any) -> None:
    dense, sparse = (SVC(kernel="linear", tol=1e-6).fit(rows, y) for rows in (X, csr_array(X)))
    theirs = svm.SVC(kernel="linear").fit(csr_array(X.astype(np.float64)), y)
    assert issparse(sparse.coef_)
    assert sparse.coef_.shape == theirs.coef_.shape
    np.testing.assert_allclose(sparse.coef_.toarray(), dense.coef_, rtol=1e-4, atol=1e-5)


def test_a_kernel_function_may_return_a_sparse_matrix() -> None:
    rows = csr_array(X)
    fitted = SVC(kernel=lambda one, other: one @ other.T, tol=1e-6).fit(rows, Y)
    dense = SVC(kernel=lambda one, other: one @ other.T, tol=1e-6).fit(X, Y)
    np.testing.assert_allclose(fitted.decision_function(rows), dense.decision_function(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernel", [{"gamma": 0.0}, {"kernel": "poly", "degree": 0}, {"kernel": "poly", "gamma": 0.0}])
def test_constant_kernels(kernel: dict[str, Any], tmp_path: Path) -> None:
    """The model is the larger class, or nearly the median of the targets."""
    for ours, theirs, y in ((SVC, svm.SVC, Y), (SVR, svm.SVR, TARGET)):
        model, other = ours(**kernel).fit(X, y), theirs(**kernel).fit(X, y)
        assert model.status_ == "converged"
        np.testing.assert_array_equal(model.predict(X), model.predict(X)[0])
        assert model.score(X, y) == pytest.approx(other.score(X, y), abs=1e-3)
        model.save(tmp_path / "model.npz")
        loaded: Any = streamsvm.load(tmp_path / "model.npz")
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_multipliers_of_rounding_size_are_no_support_vectors() -> None:
    """One row of six had the multiplier 1 - 2/3 - 1/3; a row of large values needs its small multiplier."""
    rows = np.array([[-2, -1], [-1, -1], [-1, -2], [1, 1], [1, 2], [2, 1.0]])
    with pytest.warns(ConvergenceWarning, match="the proved lower bound is 0"):
        dense = OneClassSVM(kernel="linear").fit(rows)
    assert np.min(dense.dual_coef_) > 1e-10
    assert np.sum(dense.dual_coef_) == pytest.approx(3.0, rel=1e-15)
    far = np.array([[1e9], [-1.0], [1.0], [-1e9]])
    fitted = SVC(kernel="linear", C=1.0).fit(far, [1, 0, 1, 0])
    theirs = svm.SVC(kernel="linear", C=1.0).fit(far, [1, 0, 1, 0])
    np.testing.assert_array_equal(fitted.predict(far), theirs.predict(far))


def test_limits_of_logistic_regression_are_told_as_scikit_learn_tells_them() -> None:
    """So that filters of warnings match; the number of steps is an array."""
    with pytest.warns(ConvergenceWarning, match=r"^lbfgs failed to converge after 1 iteration\(s\)\. LogisticRegr"):
        fitted = LogisticRegression(solver="lbfgs", max_iter=1, tol=1e-15).fit(X, Y)
    with pytest.warns(ConvergenceWarning, match=r"^LogisticRegression: the limit of 1 pass"):
        LogisticRegression(max_iter=1, tol=1e-15).fit(X, Y)
    assert fitted.n_iter_.tolist() == [1]
