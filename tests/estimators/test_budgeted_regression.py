"""BudgetedSVR: what fit and partial_fit make of rows with targets, beside LIBSVM, and what they refuse."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from sklearn import svm
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

import streamsvm
from streamsvm import BudgetedSGD, BudgetedSVR
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.ingestion.readers import ingest
from streamsvm.models.evaluate import evaluate
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from streamsvm.verify.verify import verify
from tests.conftest import F64

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-3.0, 3.0, (3000, 2)).astype(np.float32)
Y: F64 = 3.0 * np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]) + 100.0 + 0.2 * RANDOM.standard_normal(3000)
NEW, NEW_Y = X[2000:], Y[2000:]
X, Y = X[:2000], Y[:2000]
GIVEN: dict[str, Any] = {"C": 5.0, "gamma": 1.0, "budget": 80}
SQUARED: dict[str, Any] = {"gamma": 1.0, "budget": 150, "epsilon": 0.0, "loss": "squared_epsilon_insensitive"}


def measure(model: Any) -> float:
    """The root of the mean squared error on rows that were not learned."""
    return float(np.sqrt(np.mean((model.predict(NEW) - NEW_Y) ** 2)))


@pytest.mark.parametrize("merge", [2, 3])
def test_nearly_as_good_as_libsvm_with_few_support_vectors(merge: int) -> None:
    """For targets far from 0, in any unit."""
    exact = svm.SVR(C=5.0, gamma=1.0).fit(X, Y)
    model = BudgetedSVR(epochs=5, solver=BudgetedSGD(merge=merge), **GIVEN).fit(X, Y)
    assert len(model.support_vectors_) <= 80 < len(exact.support_)
    assert measure(model) < 1.3 * measure(exact) < 0.5 * np.std(NEW_Y)
    assert (model.status_, model.lower_bound_, model.gap_) == ("pass_limit", None, None)
    small = BudgetedSVR(epochs=5, solver=BudgetedSGD(merge=merge), **{**GIVEN, "C": 5e-4, "epsilon": 1e-5}).fit(
        X, Y * 1e-4
    )
    np.testing.assert_allclose(small.predict(NEW) * 1e4, model.predict(NEW), rtol=1e-4)


def test_no_row_is_learned_beyond_its_tube() -> None:
    """A single row with any cost: its score is on the edge of the tube, where the steps of Pegasos overshoot."""
    for C in (1.0, 1e6):
        model = BudgetedSVR(C=C, gamma=1.0, epsilon=0.5, fit_intercept=False).fit(X[:1], [7.0])
        assert model.predict(X[:1])[0] == pytest.approx(min(7.0 - 0.5, C / 2), rel=1e-6)
        below = BudgetedSVR(C=C, gamma=1.0, epsilon=0.5, fit_intercept=False).fit(X[:1], [-7.0])
        assert below.predict(X[:1])[0] == -model.predict(X[:1])[0]
    assert len(BudgetedSVR(epsilon=100.0).fit(X, Y).support_vectors_) == 0


def test_the_squared_loss_is_nearly_that_of_kernel_ridge_regression() -> None:
    """With epsilon 0 it is kernel ridge regression of targets less the bias. P is nearly the optimum, in any unit."""
    for C, share in ((0.1, 1.02), (1.0, 1.06), (10.0, 1.2)):
        ridge = KernelRidge(alpha=1 / (2 * C), kernel="rbf", gamma=1.0).fit(X, Y - 100.0)
        error = float(np.sqrt(np.mean((ridge.predict(NEW) + 100.0 - NEW_Y) ** 2)))
        model = BudgetedSVR(**SQUARED, C=C, epochs=5).fit(X, Y)
        assert measure(model) < 1.1 * error
        assert model.intercept_[0] == pytest.approx(100.0, abs=0.1)
        assert model.objective_ < share * 0.5 * float((Y - 100.0) @ ridge.dual_coef_)
        small = BudgetedSVR(**SQUARED, C=C, epochs=5).fit(X, Y * 1e-4)
        np.testing.assert_allclose(small.predict(NEW) * 1e4, model.predict(NEW), rtol=1e-4)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e6])
def test_a_step_of_the_squared_loss_is_implicit(C: float) -> None:
    """The first step, of the rate C / 2, minimises 1/2 |w|^2 / rate + (t - f(x) - epsilon)^2 over w, and over b."""
    for target in (7.0, -7.0):
        model = BudgetedSVR(**{**SQUARED, "epsilon": 0.5}, C=C, fit_intercept=False).fit(X[:1], [target])
        found = minimize_scalar(lambda f: f**2 / C + (6.5 - f) ** 2, bounds=(0.0, 7.0), options={"xatol": 1e-12})
        assert model.predict(X[:1])[0] == pytest.approx(np.sign(target) * found.x, rel=1e-5)
        free = BudgetedSVR(**SQUARED, C=C, expected_rows=1).partial_fit(np.repeat(X[:1], 2, 0), [0.0, 2 * target])
        assert abs(free.intercept_[0] - target) <= abs(target)
    assert len(BudgetedSVR(**{**SQUARED, "epsilon": 100.0}).fit(X, Y).support_vectors_) == 0


def test_the_objective_of_the_squared_loss_is_verified(tmp_path: Path) -> None:
    """With weights, on both roads; the model is loaded with its loss."""
    weight = RANDOM.choice([0.0, 1.0, 2.0], 900)
    dataset = ingest(X[:900], tmp_path / "rows.zarr", Y[:900], regression=True, sample_weight=weight)
    model = BudgetedSVR(**SQUARED, C=3.0).fit(dataset)
    w = np.sum(np.outer(model.dual_coef_[0], model.dual_coef_[0]) * rbf_kernel(model.support_vectors_, gamma=1.0))
    expected = w / 2 + 3.0 * np.sum(weight * (Y[:900] - model.predict(X[:900])) ** 2)
    assert model.objective_ == pytest.approx(expected, rel=1e-5)
    assert verify(model.model_, dataset).objective == pytest.approx(expected, rel=1e-5)
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    assert isinstance(loaded, BudgetedSVR)
    assert (loaded.loss, loaded.epsilon) == ("squared_epsilon_insensitive", 0.0)
    stream = BudgetedSVR(**SQUARED, expected_rows=2000)
    for part in (slice(at, at + 250) for at in range(0, 2000, 250)):
        stream.partial_fit(X[part], Y[part])
    assert measure(stream) < 0.3 * np.std(NEW_Y)


def test_fit_is_train(tmp_path: Path) -> None:
    """Every parameter gets where it belongs, and so it does on sparse rows."""
    parameters: dict[str, Any] = {"merge": 4, "maintenance": "gradient-merge", "replicas": 2, "pack": 7}
    dataset = ingest(X, tmp_path / "rows.zarr", Y, regression=True)
    model = BudgetedSVR(**GIVEN, solver=BudgetedSGD(**parameters), epochs=2, epsilon=0.3, random_state=4).fit(dataset)
    options = TrainOptions(
        task="regress",
        C=5.0,
        solver="budgeted-sgd",
        kernel="rbf",
        gamma=1.0,
        epsilon=0.3,
        seed=4,
        options={"budget": "80", "epochs": "2", **{name: str(value) for name, value in parameters.items()}},
    )
    result = train(dataset, options, tmp_path / "run")
    assert model.model_.to_bytes() == result.model.to_bytes()
    assert evaluate(result.model, dataset)["r2"] > 0.9
    assert BudgetedSVR(**GIVEN, fit_intercept=False).fit(dataset).intercept_[0] == 0.0
    sparse = BudgetedSVR(**GIVEN).fit(csr_array(X), Y)
    np.testing.assert_array_equal(sparse.predict(NEW), BudgetedSVR(**GIVEN).fit(X, Y).predict(NEW))


def test_saved_loaded_and_verified(tmp_path: Path) -> None:
    """P is that of all rows, as all are in the sample by which it is estimated."""
    dataset = ingest(X[:900], tmp_path / "rows.zarr", Y[:900], regression=True)
    model = BudgetedSVR(**GIVEN, epsilon=0.3).fit(dataset)
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    assert isinstance(loaded, BudgetedSVR)
    assert (loaded.C, loaded.epsilon, loaded.gamma) == (5.0, 0.3, 1.0)
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))
    found = verify(model.model_, dataset)
    assert found.objective == pytest.approx(model.objective_, rel=1e-5)
    assert found.told_is_estimate


@pytest.mark.parametrize("weighted", [False, True])
def test_a_stream(weighted: bool, tmp_path: Path) -> None:
    """Is learned chunk by chunk, pickled and gone on with, saved and loaded; rows of weight 0 are met and left."""
    weight = np.where(np.arange(2000) % 4 == 0, 0.0, 1.0) if weighted else None
    wrong = np.where(np.arange(2000) % 4 == 0, -1e3, Y) if weighted else Y
    model = BudgetedSVR(**GIVEN, expected_rows=2000)
    for part in (slice(at, at + 250) for at in range(0, 2000, 250)):
        model.partial_fit(X[part], wrong[part], None if weight is None else weight[part])
        model = pickle.loads(pickle.dumps(model))
    assert measure(model) < 0.15 * np.std(NEW_Y) + 0.2
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    assert isinstance(loaded, BudgetedSVR)
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))
    with pytest.raises(InputError, match="cannot be recomputed"):
        verify(model.model_, ingest(X, tmp_path / "rows.zarr", Y, regression=True))


def test_what_is_refused() -> None:
    for parameters, message in (
        ({"kernel": "linear"}, "not those of the linear kernel: choose maintenance=projection"),
        ({"budget": 0}, "option budget=0"),
        ({"epsilon": -1.0}, "half-width of a tube"),
        ({"C": -1.0}, "C is -1.0; it must be positive"),
    ):
        with pytest.raises(InputError, match=message):
            BudgetedSVR(**{**GIVEN, **parameters}).fit(X, Y)
        with pytest.raises(InputError, match=message):
            BudgetedSVR(**{**GIVEN, **parameters}).partial_fit(X, Y)
    with pytest.raises(InputError, match="the largest target is"):
        BudgetedSVR().partial_fit(X, Y * 1e200)
    with pytest.raises(
        InputError, match="loss 'hinge': the losses of the task regress are epsilon_insensitive, squared"
    ):
        BudgetedSVR(loss="hinge").fit(X, Y)
    squared = TrainOptions(loss="squared_hinge", solver="budgeted-sgd", kernel="rbf")
    with pytest.raises(InputError, match=r"solver budgeted-sgd does not support the loss squared_hinge"):
        train(ArrayDataset(X, (Y > 100).astype(np.int32), np.arange(2)), squared)
