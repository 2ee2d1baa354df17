"""LogisticRegression, and LinearSVC with the squared hinge, beside scikit-learn's."""

from __future__ import annotations

from pathlib import Path

import dask.array
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression as Expected
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC as Liblinear

import streamsvm
from streamsvm import LinearSVC, LogisticRegression
from streamsvm.system.errors import InputError

X, Y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X).astype(np.float32)
IRIS, SPECIES = load_iris(return_X_y=True)


def test_the_same_model_as_liblinear() -> None:
    model = LogisticRegression(C=0.3, tol=1e-10, class_weight={0: 2.0}).fit(X, Y)
    expected = Expected(C=0.3, solver="liblinear", tol=1e-10, max_iter=1000, class_weight={0: 2.0}).fit(X, Y)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), rtol=1e-12)


def test_squared_hinge_as_in_liblinear() -> None:
    model = LinearSVC(C=0.3, loss="squared_hinge", tol=1e-10).fit(X, Y)
    expected = Liblinear(C=0.3, dual=False, tol=1e-10, max_iter=10_000).fit(X, Y)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=1e-5)


def test_probabilities_of_many_classes() -> None:
    model = LogisticRegression(tol=1e-9, multi_class="ovr").fit(IRIS, SPECIES)
    expected = OneVsRestClassifier(Expected(solver="liblinear", tol=1e-9)).fit(IRIS.astype(np.float32), SPECIES)
    np.testing.assert_allclose(model.predict_proba(IRIS), expected.predict_proba(IRIS), atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(IRIS).sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("rows", [(X, Y), (IRIS, SPECIES)], ids=["two", "many"])
def test_probabilities_of_dask_rows(rows: tuple[np.ndarray, np.ndarray]) -> None:
    model = LogisticRegression(multi_class="ovr").fit(*rows)
    lazy = model.predict_proba(dask.array.from_array(rows[0], chunks=(50, rows[0].shape[1])))
    assert lazy.shape == (len(rows[0]), len(model.classes_))
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), model.predict_proba(rows[0]))


def test_scores_without_bounds_have_probabilities() -> None:
    model = LogisticRegression().fit(X, Y)
    far = np.array([[1e30] * X.shape[1], [-1e30] * X.shape[1]], np.float32)
    assert set(model.predict_proba(far).ravel().tolist()) == {0.0, 1.0}
    assert np.isfinite(model.predict_log_proba(X)).all()


@pytest.mark.parametrize("estimator", [LogisticRegression(C=0.5), LinearSVC(C=0.5, loss="squared_hinge")])
def test_saved_and_loaded(estimator: LogisticRegression | LinearSVC, tmp_path: Path) -> None:
    estimator.fit(X, Y).save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    assert type(loaded) is type(estimator)
    assert loaded.get_params() == estimator.get_params()
    np.testing.assert_array_equal(loaded.decision_function(X), estimator.decision_function(X))


def test_a_loss_that_a_solver_does_not_minimise_is_refused() -> None:
    with pytest.raises(InputError, match=r"squared_hinge of --task classify; use --solver newton, or --loss hinge, wh"):
        LinearSVC(loss="squared_hinge", solver="interior-point").fit(X, Y)
    with pytest.raises(
        InputError, match="loss 'huber': the losses of the task classify are hinge, squared_hinge, logistic"
    ):
        LinearSVC(loss="huber").fit(X, Y)
