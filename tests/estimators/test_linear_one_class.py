"""LinearOneClassSVM beside scikit-learn's estimators of the same problem; saved, loaded, verified, and by commands."""

from __future__ import annotations

import json
from pathlib import Path

import dask.array
import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.linear_model import SGDOneClassSVM
from sklearn.svm import OneClassSVM as Libsvm

import streamsvm
from streamsvm import LinearOneClassSVM, Nystroem, OneClassSVM
from streamsvm.cli.main import main
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import InputError
from streamsvm.verify.verify import verify

RANDOM = np.random.default_rng(11)
X = RANDOM.normal([2.0, 1.0, 0.5], size=(1500, 3)).astype(np.float32)
WEIGHT = RANDOM.integers(3, size=1500).astype(np.float64)


def measure(w: np.ndarray, rho: float, nu: float) -> float:  # type: ignore[type-arg]
    """The objective of SGDOneClassSVM, in float64."""
    return float(nu / 2 * w @ w - nu * rho + np.mean(np.maximum(0.0, rho - X.astype(np.float64) @ w)))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("nu", [0.05, 0.5])
def test_the_problem_of_stochastic_gradient_descent(nu: float) -> None:
    model = LinearOneClassSVM(nu=nu, tol=1e-8).fit(X)
    theirs = SGDOneClassSVM(nu=nu, max_iter=500, tol=1e-9, random_state=0).fit(X.astype(np.float64))
    size = nu * len(X)
    mine = measure(model.coef_[0] / size, model.offset_ / size, nu)
    assert mine <= measure(theirs.coef_, float(theirs.offset_[0]), nu)
    assert mine == pytest.approx(measure(theirs.coef_, float(theirs.offset_[0]), nu), rel=3e-2)
    assert mine == pytest.approx(-nu * model.lower_bound_ / size**2, rel=1e-7)  # strong duality
    agree = model.predict(X) == theirs.predict(X.astype(np.float64))
    assert np.mean(agree) > 0.95  # theirs is 2% above the optimum with nu = 0.5


def test_scores_and_weights() -> None:
    model = LinearOneClassSVM(nu=0.3, tol=1e-8).fit(X, sample_weight=WEIGHT)
    kept = WEIGHT > 0
    expected = Libsvm(kernel="linear", nu=0.3, tol=1e-10).fit(X[kept].astype(np.float64), sample_weight=WEIGHT[kept])
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-4)
    np.testing.assert_allclose(model.score_samples(X), model.decision_function(X) + model.offset_, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), np.where(model.decision_function(X) > 0, 1, -1))
    assert np.average(model.predict(X) < 0, weights=WEIGHT) == pytest.approx(0.3, abs=0.01)
    assert not hasattr(model, "classes_")
    lazy = model.score_samples(dask.array.from_array(X, chunks=(400, 3)))
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), model.score_samples(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_features_of_a_kernel_find_a_ring() -> None:
    """Rows around the origin: no plane separates them from it, but one of features of the Gaussian kernel does."""
    ring = RANDOM.normal(size=(800, 2))
    ring = (3.0 * ring / np.linalg.norm(ring, axis=1)[:, None] + 0.1 * RANDOM.normal(size=(800, 2))).astype(np.float32)
    model = LinearOneClassSVM(nu=0.05, feature_map=Nystroem(n_components=100, gamma=0.5)).fit(ring)
    assert model.status_ == "converged"
    assert model.predict(np.array([[0.0, 0.0], [3.0, 0.0], [9.0, 9.0]], np.float32)).tolist() == [-1, 1, -1]
    assert LinearOneClassSVM(nu=0.05).fit(ring).status_ == "stalled"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("nu", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("rows", ["zeros", "some zeros", "cross", "two", "around", "long", "short", "off"])
def test_its_status_is_that_of_the_linear_kernel(rows: str, nu: float) -> None:
    """It is "stalled" if the origin is in V, as a linear program tells, since no relative gap is proved there."""
    normal = np.random.default_rng(1).normal(size=(40, 3))
    given = {
        "zeros": np.zeros((20, 2)),
        "some zeros": np.concatenate((np.zeros((10, 2)), np.eye(2) + 2.0)),
        "cross": np.concatenate((np.eye(2), -np.eye(2))),
        "two": np.array([[1.0, 0.0], [-1.0, 0.0]]),
        "around": normal,
        "long": 1e3 * (normal + 0.8),
        "short": 1e-3 * (normal + 0.8),
        "off": normal + 5.0,
    }[rows].astype(np.float32)
    n = len(given)
    sums = np.vstack((given.T.astype(np.float64), np.ones(n)))
    in_hull = linprog(np.zeros(n), A_eq=sums, b_eq=[*np.zeros(given.shape[1]), nu * n], bounds=(0, 1)).status == 0
    models = LinearOneClassSVM(nu=nu, tol=1e-4).fit(given), OneClassSVM(kernel="linear", nu=nu, tol=1e-4).fit(given)
    for model in models:
        assert model.status_ == ("stalled" if in_hull else "converged")
        assert ("the origin lies among the rows" in model.result_.status_reason) == in_hull


def test_saved_loaded_and_verified(tmp_path: Path) -> None:
    dataset = ingest(X, tmp_path / "rows.zarr", sample_weight=WEIGHT, shuffle=None)
    model = LinearOneClassSVM(nu=0.1).fit(dataset)
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    assert isinstance(loaded, LinearOneClassSVM)
    assert loaded.nu == 0.1
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    for dual in (False, True):
        found = verify(loaded.model_, dataset, dual=dual)
        assert found.agrees
        assert found.objective == pytest.approx(model.objective_, rel=1e-12)
        assert found.lower_bound == pytest.approx(model.lower_bound_, rel=1e-4)
        assert found.lower_bound is not None
        assert found.lower_bound <= found.objective
    others = verify(loaded.model_, ingest(X - np.float32(0.3), tmp_path / "others.zarr", sample_weight=WEIGHT))
    assert others.lower_bound is not None
    assert others.lower_bound < 0.99 * model.lower_bound_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_verification_proves_what_training_proved_where_long_rows_cancel(tmp_path: Path) -> None:
    """Most rows are a thousand times longer than those that decide, and have no loss whose rounding could count."""
    rng = np.random.default_rng(7)
    rows = (0.7 * rng.normal(size=(3000, 8)) + 3) * 10.0 ** rng.uniform(-3, 4, size=(3000, 1))
    dataset = ingest(rows.astype(np.float32), tmp_path / "rows.zarr")
    model = LinearOneClassSVM(nu=0.02).fit(dataset)
    assert model.status_ == "converged"
    found = verify(model.model_, dataset)
    assert found.lower_bound is not None
    assert 1 - found.lower_bound / found.objective <= 1e-9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_model_of_a_limit_has_an_offset_of_its_own_scores() -> None:
    rng = np.random.default_rng(22)
    rows = (rng.normal(size=(8000, 5)) + 3) * 10.0 ** rng.uniform(-3, 4, size=(8000, 1))
    model = LinearOneClassSVM(nu=0.5, max_passes=1, resident_rows=50, tol=1e-6).fit(rows.astype(np.float32))
    assert model.status_ == "pass_limit"
    assert np.mean(model.predict(rows.astype(np.float32)) < 0) == pytest.approx(0.5, abs=0.1)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, data, run = tmp_path / "own.csv", str(tmp_path / "rows.zarr"), str(tmp_path / "run")
    np.savetxt(table, X, delimiter=",", header="a,b,c", comments="")
    assert main(["ingest", str(table), data, "--unlabelled"]) == 0
    asked = ["train", data, "--task", "one-class", "--nu", "0.1", "--solver", "cutting-plane"]
    capsys.readouterr()
    assert main([*asked, "--out", run, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["passes"], told["n_support_vectors"]) == ("converged", 1, None)
    assert main([*asked, "--out", str(tmp_path / "others"), "--workers", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model_sha256"] == told["model_sha256"]
    assert main(["evaluate", run, data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["novel_rate"] == pytest.approx(0.1, abs=0.01)
    assert main(["predict", run, data, "--out", str(tmp_path / "p.csv")]) == 0
    assert main(["verify", run, data]) == 0
    assert main([*asked, "--out", run, "--plan"]) == 0
    assert main([*asked, "--out", str(tmp_path / "no"), "--probabilities", "sigmoid"]) == 2
    assert "probabilities need classes, but the task one-class" in capsys.readouterr().err
    assert main([*asked, "--out", str(tmp_path / "no"), "--keep-dual"]) == 2


def test_unsuitable_parameters() -> None:
    with pytest.raises(InputError, match=r"nu is 1\.5; a share"):
        LinearOneClassSVM(nu=1.5).fit(X)
    with pytest.raises(InputError, match="at least two are needed"):
        LinearOneClassSVM(resident_rows=1).fit(X)
