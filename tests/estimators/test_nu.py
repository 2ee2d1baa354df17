"""NuSVC and NuSVR beside scikit-learn's, on arrays and datasets; saved, loaded, verified, tuned, and by commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import svm
from sklearn.datasets import load_diabetes, load_iris
from sklearn.preprocessing import StandardScaler

import streamsvm
from streamsvm import NuSVC, NuSVR
from streamsvm.ingestion.readers import ingest
from streamsvm.models.evaluate import evaluate
from streamsvm.system.errors import InputError
from streamsvm.verify.verify import verify
from tests.commands import Run, run  # noqa: F401
from tests.conftest import F64

IRIS, KINDS = load_iris(return_X_y=True)
IRIS = IRIS.astype(np.float32)
ROWS, TARGETS = load_diabetes(return_X_y=True)
ROWS, TARGETS = StandardScaler().fit_transform(ROWS).astype(np.float32), TARGETS / 100.0
KERNELS: list[dict[str, Any]] = [{"kernel": "rbf", "gamma": 0.3}, {"kernel": "linear"}]


def compute_values(X: Any, kernel: str = "rbf", gamma: float = 1.0) -> F64:
    wide = X.astype(np.float64)
    products = wide @ wide.T
    squares = np.diagonal(products)
    found: F64 = products if kernel == "linear" else np.exp(-gamma * (squares[:, None] + squares - 2 * products))
    return found


@pytest.mark.parametrize("about", KERNELS, ids=["rbf", "linear"])
@pytest.mark.parametrize("nu", [0.33, 0.77])  # with these some multipliers are free, so that the bias is unique
def test_the_same_classifier_as_libsvm(nu: float, about: dict[str, Any]) -> None:
    """All that is fitted, for three classes; the objective of a pair is below that of LIBSVM."""
    model, expected = NuSVC(nu=nu, tol=1e-7, **about).fit(IRIS, KINDS), svm.NuSVC(nu=nu, tol=1e-8, **about)
    expected.fit(IRIS.astype(np.float64), KINDS)
    assert (model.status_, model.gap_ <= 1e-7) == ("converged", True)
    assert np.mean(model.predict(IRIS) == expected.predict(IRIS)) > 0.99
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=2e-3 * np.max(np.abs(expected.intercept_)))
    assert model.dual_coef_.shape[0] == expected.dual_coef_.shape[0] == 2
    assert model.n_support_.shape == expected.n_support_.shape == model.n_iter_.shape == (3,)
    of_pairs = NuSVC(nu=nu, tol=1e-7, decision_function_shape="ovo", **about).fit(IRIS, KINDS)
    expected.set_params(decision_function_shape="ovo")
    scale = np.max(np.abs(expected.decision_function(IRIS)))
    np.testing.assert_allclose(of_pairs.decision_function(IRIS), expected.decision_function(IRIS), atol=2e-3 * scale)
    two = KINDS > 0
    pair, other = (
        kind(nu=nu, tol=1e-8, **about).fit(IRIS[two].astype(np.float64), KINDS[two]) for kind in (NuSVC, svm.NuSVC)
    )
    K, total = compute_values(IRIS[two], **about), nu * np.count_nonzero(two)
    objectives = []
    for each in (pair, other):
        s = np.zeros(len(K))
        s[each.support_] = each.dual_coef_[0]
        objectives.append((total / np.sum(np.abs(s))) ** 2 * float(s @ K @ s) / 2)
    assert pair.objective_ == pytest.approx(objectives[0], rel=1e-6)
    assert pair.lower_bound_ <= objectives[1] * (1 + 1e-9)
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-6)


@pytest.mark.parametrize("about", KERNELS, ids=["rbf", "linear"])
@pytest.mark.parametrize(("nu", "C"), [(0.1, 1.0), (0.6, 0.1), (1.0, 2.0)])
def test_the_same_regression_as_libsvm(nu: float, C: float, about: dict[str, Any]) -> None:
    model = NuSVR(nu=nu, C=C, tol=1e-7, **about).fit(ROWS, TARGETS)
    expected = svm.NuSVR(nu=nu, C=C, tol=1e-8, **about).fit(ROWS.astype(np.float64), TARGETS)
    assert (model.status_, model.gap_ <= 1e-7) == ("converged", True)
    scale = float(np.std(TARGETS))
    np.testing.assert_allclose(model.predict(ROWS), expected.predict(ROWS.astype(np.float64)), atol=5e-3 * scale)
    assert np.sum(np.abs(model.dual_coef_)) <= nu * C * len(ROWS) * (1 + 1e-9)
    s, K = np.zeros(len(ROWS)), compute_values(ROWS, **about)
    s[expected.support_] = expected.dual_coef_[0]
    assert model.lower_bound_ >= float(TARGETS @ s - s @ K @ s / 2) * (1 - 1e-6)
    np.testing.assert_array_equal(model.n_support_, [len(model.support_)])


def test_nu_is_a_share_of_rows() -> None:
    """At least so many support vectors, at most so many rows outside; a share that no two classes have is refused."""
    for nu in (0.2, 0.5):
        model = NuSVC(nu=nu).fit(IRIS[KINDS > 0], KINDS[KINDS > 0])
        margins = np.where(KINDS[KINDS > 0] == 2, 1, -1) * model.decision_function(IRIS[KINDS > 0])
        assert np.mean(margins < 1 - 1e-6) <= nu <= len(model.support_) / 100
        tube = NuSVR(nu=nu).fit(ROWS, TARGETS)
        errors = np.abs(tube.predict(ROWS) - TARGETS)
        width = np.max(np.delete(errors, tube.support_))  # of the tube: rows within it are no support vectors
        assert np.mean(errors > width + 0.02) <= nu <= len(tube.support_) / len(ROWS)
    with pytest.raises(InputError, match=r"nu is 0\.9, which is infeasible: for the classes 0 and 1"):
        NuSVC(nu=0.9).fit(IRIS[:70], KINDS[:70])
    with pytest.raises(InputError, match="nu is 0;"):
        NuSVR(nu=0).fit(ROWS, TARGETS)


def test_saved_loaded_verified_and_tuned(tmp_path: Path) -> None:
    classes, numbers = tmp_path / "classes.zarr", tmp_path / "numbers.zarr"
    for model, dataset in (
        (NuSVC(nu=0.3, gamma=0.5), ingest(IRIS, classes, KINDS)),
        (NuSVC(nu=0.3, gamma=0.5, multi_class="ovr"), streamsvm.open(classes)),
        (NuSVR(nu=0.3, C=2.0, gamma=0.1), ingest(ROWS, numbers, TARGETS, regression=True)),
    ):
        model.fit(dataset)
        model.save(tmp_path / "model.npz")
        loaded = streamsvm.load(tmp_path / "model.npz")
        assert type(loaded) is type(model)
        assert {name: loaded.get_params()[name] for name in ("nu", "gamma")} == {"nu": 0.3, "gamma": model.gamma}
        np.testing.assert_array_equal(loaded.predict(dataset), model.predict(dataset))
        assert verify(model.model_, dataset).agrees
        if isinstance(model, NuSVC):
            found = verify(model.model_, dataset, dual=True)
            assert found.lower_bound == pytest.approx(model.lower_bound_, rel=1e-6)
        else:
            with pytest.raises(InputError, match="`verify` without --dual"):
                verify(model.model_, dataset, dual=True)
    other = ingest(ROWS, tmp_path / "other.zarr", TARGETS + np.eye(1, len(TARGETS), 7)[0], regression=True)
    assert not verify(model.model_, other).agrees
    tuned = streamsvm.tune(classes, nu=[0.05, 0.3], gamma=[0.5], folds=3, task="nu-classify", kernel="rbf")
    assert isinstance(tuned.estimator, NuSVC)
    assert [trial.params["nu"] for trial in tuned.trials] == [0.05, 0.3]
    assert tuned.estimator.nu == tuned.best.params["nu"]
    tube = streamsvm.tune(ROWS, TARGETS, C=[1e-5, 1.0], nu=[0.2, 0.6], folds=3, task="nu-regress", kernel="rbf")
    assert isinstance(tube.estimator, NuSVR)
    assert tube.best.C == 1.0


def test_probabilities_and_weights() -> None:
    weight = np.random.default_rng(0).choice([0.5, 2.0], len(KINDS))
    model = NuSVC(nu=0.2, probability=True).fit(IRIS, KINDS, sample_weight=weight)
    assert model.predict_proba(IRIS).shape == (150, 3)
    expected = svm.NuSVC(nu=0.2, tol=1e-8).fit(IRIS.astype(np.float64), KINDS, sample_weight=weight)
    ours = NuSVC(nu=0.2, tol=1e-7).fit(IRIS, KINDS, sample_weight=weight)
    np.testing.assert_allclose(ours.decision_function(IRIS), expected.decision_function(IRIS), atol=5e-3)
    heavy = NuSVC(nu=0.2, gamma=0.5, class_weight={2: 3.0}, tol=1e-7).fit(IRIS, KINDS)
    by_row = NuSVC(nu=0.2, gamma=0.5, tol=1e-7).fit(IRIS, KINDS, sample_weight=np.where(KINDS == 2, 3.0, 1.0))
    assert heavy.objective_ == pytest.approx(by_row.objective_, rel=1e-6)


def test_the_commands(run: Run, tmp_path: Path) -> None:  # noqa: F811
    """train, evaluate, predict, verify, export and tune; a nu that is infeasible leaves nothing."""
    data = ingest(IRIS, tmp_path / "rows.zarr", KINDS).path
    out = tmp_path / "run"
    about = ("--task", "nu-classify", "--kernel", "rbf", "--gamma", "0.5")
    ran = run("train", data, *about, "--nu", "0.3", "--out", out, "--json")
    assert (ran.code, ran.result["status"]) == (0, "converged")
    assert run("evaluate", out, data, "--json").result["accuracy"] > 0.95
    assert run("verify", out, data, "--dual").code == 0
    assert run("predict", out, data, "--out", tmp_path / "labels.csv").code == 0
    assert run("export", out, "--to", "libsvm", "--out", tmp_path / "model.txt").code == 0
    assert (tmp_path / "model.txt").read_text().startswith("svm_type nu_svc\n")
    assert run("tune", data, *about[:-2], "--nu", "0.1,0.4", "--folds", "3", "--out", tmp_path / "grid").code == 0
    ran = run("train", data, *about, "--nu", "1.0", "--C", "2", "--out", tmp_path / "none")
    assert (ran.code, "nu replaces it" in ran.err, (tmp_path / "none").exists()) == (2, True, False)
    ran = run("tune", data, "--folds", "3", "--out", tmp_path / "none")
    assert (ran.code, "no values of C" in ran.err) == (2, True)
    numbers = ingest(ROWS, tmp_path / "numbers.zarr", TARGETS, regression=True)
    given = ("--task", "nu-regress", "--kernel", "rbf", "--C", "1", "--nu", "0.4")
    assert run("train", numbers.path, *given, "--out", tmp_path / "tube").code == 0
    assert run("export", tmp_path / "tube", "--to", "libsvm", "--out", tmp_path / "tube.txt").code == 0
    assert (tmp_path / "tube.txt").read_text().startswith("svm_type nu_svr\n")
    assert evaluate(streamsvm.load(tmp_path / "tube").model_, numbers)["r2"] > 0.4
