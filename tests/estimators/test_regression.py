"""LinearSVR beside scikit-learn's, on arrays, Dask rows and datasets; saved, loaded and tuned."""

from __future__ import annotations

from pathlib import Path

import dask.array
import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVR as Liblinear

import streamsvm
from streamsvm import LinearSVR
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import InputError
from tests.regression_problems import LOSSES

X, Y = load_diabetes(return_X_y=True)
X = StandardScaler().fit_transform(X).astype(np.float32)
Y = Y / 100.0


@pytest.mark.parametrize("loss", LOSSES)
def test_the_same_model_as_liblinear(loss: str) -> None:
    model = LinearSVR(C=0.3, epsilon=0.2, loss=loss, tol=1e-6).fit(X, Y)
    expected = Liblinear(C=0.3, epsilon=0.2, loss=loss, tol=1e-10, max_iter=1_000_000).fit(X, Y)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=2e-3)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=2e-3)
    np.testing.assert_allclose(model.predict(X), expected.predict(X), atol=1e-2)
    assert model.score(X, Y) == pytest.approx(expected.score(X, Y), abs=1e-3)
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize("loss", LOSSES)
def test_saved_and_loaded(loss: str, tmp_path: Path) -> None:
    model = LinearSVR(C=0.5, epsilon=0.1, loss=loss).fit(X, Y)
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    assert isinstance(loaded, LinearSVR)
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_dask_rows_and_datasets(tmp_path: Path) -> None:
    model = LinearSVR().fit(X, Y)
    lazy = dask.array.from_array(X, chunks=(100, X.shape[1])), dask.array.from_array(Y, chunks=77)
    of_dask = LinearSVR(resident_rows="100%").fit(*lazy)
    assert of_dask.objective_ == pytest.approx(model.objective_, rel=1e-3)
    np.testing.assert_array_equal(model.predict(lazy[0]).compute(scheduler="sync"), model.predict(X))
    dataset = ingest(X, tmp_path / "rows.zarr", Y, regression=True)
    of_dataset = LinearSVR().fit(dataset)
    assert of_dataset.score(dataset) == pytest.approx(of_dataset.score(X, Y), rel=1e-12)
    with pytest.raises(InputError, match="its labels are numbers to predict"):
        streamsvm.LinearSVC().fit(dataset)


def test_tuned() -> None:
    tuned = streamsvm.tune(X, Y, C=[1e-5, 0.1], folds=3, task="regress", epsilon=0.0)
    assert isinstance(tuned.estimator, LinearSVR)
    assert tuned.best.C == 0.1
    assert tuned.estimator.score(X, Y) > 0.45
    assert all(score < 0 for trial in tuned.trials for score in trial.scores)


def test_what_is_not_for_it_is_refused() -> None:
    with pytest.raises(InputError, match="use --solver newton"):
        LinearSVR(loss="squared_epsilon_insensitive", solver="cutting-plane").fit(X, Y)
    with pytest.raises(InputError, match="the largest target is"):
        LinearSVR().fit(X, Y * 1e200)
    with pytest.raises(InputError, match="epsilon: the task classify has no tube"):
        streamsvm.tune(X, Y > 1.5, C=[1.0], epsilon=0.1)
