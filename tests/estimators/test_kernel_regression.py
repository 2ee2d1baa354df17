"""SVR beside scikit-learn's, on arrays, Dask rows and datasets; saved, loaded, tuned and verified."""

from __future__ import annotations

from pathlib import Path

import dask.array
import numpy as np
import pytest
from sklearn import svm
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

import streamsvm
from streamsvm import SMO, SVR
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import InputError
from streamsvm.verify.verify import verify
from tests.conftest import F64

X, Y = load_diabetes(return_X_y=True)
X = StandardScaler().fit_transform(X).astype(np.float32)
Y = Y / 100.0
KERNELS = ("rbf", "poly", "linear")


def measure(model: SVR | svm.SVR, K: F64, predicted: F64, C: float, epsilon: float) -> float:
    """P of a model whose support vectors are rows of X, by their kernel values K (n, n)."""
    rows = {row.tobytes(): i for i, row in enumerate(X)}
    s = np.zeros(len(X))
    s[[rows[row.tobytes()] for row in np.asarray(model.support_vectors_, np.float32)]] = model.dual_coef_[0]
    return float(s @ K @ s / 2 + C * np.sum(np.maximum(0.0, np.abs(Y - predicted) - epsilon)))


def form_kernel(kernel: str, gamma: float) -> F64:
    wide = X.astype(np.float64)
    products = wide @ wide.T
    if kernel == "linear":
        return products
    if kernel == "poly":
        return (gamma * products + 1.0) ** 2
    squares = np.diagonal(products)
    return np.exp(-gamma * (squares[:, None] + squares - 2 * products))


@pytest.mark.parametrize("solver", ["smo", "irwls"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_same_minimum_as_libsvm(kernel: str, solver: str) -> None:
    about = {"C": 2.0, "epsilon": 0.1, "kernel": kernel, "gamma": 0.05, "degree": 2, "coef0": 1.0}
    model = SVR(solver=solver, tol=1e-5, **about).fit(X, Y)
    expected = svm.SVR(tol=1e-8, **about).fit(X.astype(np.float64), Y)
    K = form_kernel(kernel, 0.05)
    least = measure(expected, K, expected.predict(X.astype(np.float64)), 2.0, 0.1)
    assert model.status_ == "converged"
    assert model.lower_bound_ <= least * (1 + 1e-9)
    assert model.objective_ == pytest.approx(least, rel=2e-5)
    assert measure(model, K, model.predict(X), 2.0, 0.1) == pytest.approx(model.objective_, rel=1e-6)
    assert model.score(X, Y) == pytest.approx(expected.score(X, Y), abs=2e-3)
    assert not hasattr(model, "classes_")


def test_weights_are_costs() -> None:
    weight = np.random.default_rng(0).choice([0.0, 0.5, 2.0], len(Y))
    model = SVR(C=1.0, gamma=0.05, tol=1e-6).fit(X, Y, sample_weight=weight)
    kept = weight > 0
    expected = svm.SVR(C=1.0, gamma=0.05, tol=1e-8).fit(X[kept].astype(np.float64), Y[kept], sample_weight=weight[kept])
    np.testing.assert_allclose(model.predict(X), expected.predict(X.astype(np.float64)), atol=5e-3)


def test_targets_far_from_zero_and_of_any_size() -> None:
    near = SVR(C=1.0, gamma=0.05, tol=1e-6).fit(X, Y)
    far = SVR(C=1.0, gamma=0.05, tol=1e-6).fit(X, Y + 1e6)
    assert far.status_ == "converged"
    np.testing.assert_allclose(far.predict(X) - 1e6, near.predict(X), atol=5e-3)
    tiny = SVR(C=1e-6, gamma=0.05, tol=1e-6, epsilon=1e-7).fit(X, Y * 1e-6)
    np.testing.assert_allclose(tiny.predict(X) * 1e6, near.predict(X), atol=5e-3)


def test_targets_within_one_tube_need_no_support_vectors() -> None:
    model = SVR(epsilon=10.0).fit(X, Y)
    assert (model.status_, model.objective_, len(model.support_vectors_)) == ("converged", 0.0, 0)
    assert np.max(np.abs(model.predict(X) - Y)) <= 10.0


def test_saved_loaded_and_verified(tmp_path: Path) -> None:
    dataset = ingest(X, tmp_path / "rows.zarr", Y, regression=True)
    model = SVR(C=0.5, epsilon=0.2, gamma=0.1).fit(dataset)
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    assert isinstance(loaded, SVR)
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert verify(model.model_, dataset).agrees
    with pytest.raises(InputError, match="`verify` without --dual"):
        verify(model.model_, dataset, dual=True)
    other = ingest(X, tmp_path / "other.zarr", Y + np.eye(1, len(Y), 7)[0], regression=True)
    assert not verify(model.model_, other).agrees


def test_dask_rows() -> None:
    lazy = dask.array.from_array(X, chunks=(100, X.shape[1])), dask.array.from_array(Y, chunks=77)
    model, of_dask = SVR(gamma=0.1).fit(X, Y), SVR(gamma=0.1).fit(*lazy)
    assert of_dask.objective_ == pytest.approx(model.objective_, rel=1e-3)
    # A product of matrices may round a row otherwise where there are other rows beside it.
    found = of_dask.predict(lazy[0]).compute(scheduler="sync")
    np.testing.assert_allclose(found, of_dask.predict(X), rtol=1e-12)


def test_tuned() -> None:
    tuned = streamsvm.tune(X, Y, C=[1e-5, 0.3], gamma=[0.05], folds=3, task="regress", solver="smo", kernel="rbf")
    assert isinstance(tuned.estimator, SVR)
    assert tuned.best.C == 0.3
    assert tuned.estimator.score(X, Y) > 0.45


def test_what_is_not_for_it_is_refused() -> None:
    with pytest.raises(InputError, match="only two classes"):
        SVR(solver=SMO(selection="platt")).fit(X, Y)
    with pytest.raises(InputError, match="the largest target is"):
        SVR().fit(X, Y * 1e200)
    with pytest.raises(InputError, match="half-width of a tube"):
        SVR(epsilon=-1.0).fit(X, Y)
    with pytest.raises(InputError, match="solver"):
        SVR(solver="interior-point").fit(X, Y)
    with pytest.raises(InputError, match="trains sums of kernels"):
        SVR(solver="newton").fit(X, Y)
