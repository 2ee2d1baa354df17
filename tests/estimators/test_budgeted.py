"""BudgetedSVC: what fit and partial_fit make of rows, and what they refuse."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

import streamsvm
from streamsvm import BudgetedSGD, BudgetedSVC
from streamsvm.data.sources import in_memory
from streamsvm.kernels.kernel import Kernel
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.budgeted_sgd.maintenance import make_state, read_model
from streamsvm.solvers.budgeted_sgd.solver import learn_rows, make_rules
from streamsvm.system.errors import InputError
from tests.conftest import make_problem

PROBLEM = make_problem(1, n=400, d=5)
X, Y = PROBLEM.dense().astype(np.float32), PROBLEM.y
CHUNKS = [slice(at, at + 100) for at in range(0, 400, 100)]
GIVEN: dict[str, Any] = {"C": 3.0, "budget": 30, "gamma": 0.2}


def test_fit_is_train(tmp_path: Path) -> None:
    """Every parameter gets where it belongs: each changes the model, or is the command line's option."""
    parameters: dict[str, Any] = {
        "solver": BudgetedSGD(merge=4, maintenance="gradient-merge", pack=5, replicas=2),
        "epochs": 2,
        "fit_intercept": True,
        "class_weight": {1: 2.0},
        "random_state": 9,
    }
    dataset = PROBLEM.store(tmp_path / "rows")
    model = BudgetedSVC(**GIVEN, **parameters).fit(dataset)
    given = {"merge": "4", "maintenance": "gradient-merge", "epochs": "2", "pack": "5", "replicas": "2"}
    options = TrainOptions(
        C=3.0,
        solver="budgeted-sgd",
        kernel="rbf",
        gamma=0.2,
        class_weight={1: 2.0},
        seed=9,
        options={"budget": "30", "bias": "free", **given},
    )
    assert model.model_.to_bytes() == train(dataset, options).model.to_bytes()
    assert model.intercept_[0] != 0
    assert BudgetedSVC(**GIVEN).fit(dataset).intercept_[0] == 0


def test_fitted_attributes() -> None:
    model = BudgetedSVC(**GIVEN, epochs=3).fit(X, Y)
    assert model.support_vectors_.shape == (model.dual_coef_.shape[1], 5)
    assert 0 < len(model.support_vectors_) <= 30
    assert (model.status_, model.lower_bound_, model.gap_, model.n_passes_) == ("pass_limit", None, None, 3)
    assert model.history_[-1]["rows"] == 1200
    assert model.score(X, Y) > 0.75
    distances = ((X[:, None].astype(float) - model.support_vectors_[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(model.decision_function(X), np.exp(-0.2 * distances) @ model.dual_coef_[0], rtol=1e-5)
    sparse = BudgetedSVC(**GIVEN, epochs=3).fit(csr_array(X), Y)
    np.testing.assert_allclose(sparse.decision_function(csr_array(X)), model.decision_function(X), rtol=1e-5)


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = BudgetedSVC(**GIVEN).fit(X, np.where(Y > 0, "yes", "no"))
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    assert isinstance(loaded, BudgetedSVC)
    assert (loaded.C, loaded.gamma, loaded.kernel) == (3.0, 0.2, "rbf")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def learn_plainly(weights: Any = None) -> Any:
    """The chunks in turn, each in the order that the seed gives it."""
    rules = make_rules(Kernel("rbf", 0.2), 30, regularisation=1 / (100 * 3.0), period=100)
    state = make_state(5, 30)
    for number, part in enumerate(CHUNKS):
        order = np.random.default_rng((0, 0, 0, number)).permutation(100)
        cost = np.ones(100) if weights is None else weights[part]
        learn_rows(state, rules, X[part], Y[part].astype(float), cost, order, 64)
    return read_model(state)


@pytest.mark.parametrize("weighted", [False, True])
def test_partial_fit_learns_chunk_after_chunk(weighted: bool) -> None:
    """With lambda = 1 / (n C) of the first chunk's n; with sample weights as costs."""
    weights = np.random.default_rng(0).choice([0.0, 1.0, 2.0], 400) if weighted else None
    model = BudgetedSVC(**GIVEN)
    for number, part in enumerate(CHUNKS):
        chosen = None if weights is None else weights[part]
        model.partial_fit(X[part], Y[part], classes=[-1, 1] if number == 0 else None, sample_weight=chosen)
    vectors, coef, _ = learn_plainly(weights)
    np.testing.assert_array_equal(model.support_vectors_, vectors)
    np.testing.assert_array_equal(model.dual_coef_[0], coef)
    assert model.status_ == "pass_limit"
    assert np.isfinite(model.objective_)
    assert model.score(X, Y) > 0.75


def test_a_large_chunk_is_learned_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "CHUNK_BYTES", 100 * 5 * 4)
    model = BudgetedSVC(**GIVEN, expected_rows=100).partial_fit(X, Y, classes=[-1, 1])
    np.testing.assert_array_equal(model.dual_coef_[0], learn_plainly()[1])


def test_the_regularisation_of_a_stream() -> None:
    """Of as many rows as are expected."""

    def coef_of(**parameters: Any) -> Any:
        model = BudgetedSVC(**{**GIVEN, **parameters})
        return model.partial_fit(X[:100], Y[:100], classes=[-1, 1]).dual_coef_

    np.testing.assert_array_equal(coef_of(), coef_of(expected_rows=100))
    assert not np.array_equal(coef_of(expected_rows=1000), coef_of())


def test_a_stream_is_pickled_and_gone_on_with() -> None:
    """Other settings come too late; fit, and a clone, begin anew."""
    model = BudgetedSVC(**GIVEN).partial_fit(X[:100], Y[:100], classes=[-1, 1])
    again = pickle.loads(pickle.dumps(model))
    model.partial_fit(X[100:], Y[100:])
    again.set_params(C=100.0).partial_fit(X[100:], Y[100:])
    np.testing.assert_array_equal(again.dual_coef_, model.dual_coef_)
    fresh = clone(model).partial_fit(X[:100], Y[:100], classes=[-1, 1]).dual_coef_
    fitted = model.fit(X, Y).dual_coef_
    np.testing.assert_array_equal(fitted, BudgetedSVC(**GIVEN).fit(X, Y).dual_coef_)
    np.testing.assert_array_equal(model.partial_fit(X[:100], Y[:100]).dual_coef_, fresh)
    assert not hasattr(model, "history_")


def test_labels_and_names_of_a_stream() -> None:
    """A chunk of one class is a chunk; labels keep their kind; columns keep their names."""
    frame, labels = pd.DataFrame(X, columns=list("abcde")), np.where(Y > 0, "yes", "no")
    ones = np.flatnonzero(Y > 0)
    model = BudgetedSVC(**GIVEN).partial_fit(frame.iloc[ones], labels[ones], classes=["yes", "no"])
    assert set(model.predict(frame)) == {"yes"}
    model.partial_fit(frame, labels)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.feature_names_in_.tolist() == list("abcde")
    assert model.score(frame, labels) > 0.6


@pytest.mark.parametrize(
    ("parameters", "given", "message"),
    [
        ({}, {}, "classes must be passed on the first call"),
        ({}, {"classes": [0, 1]}, "y has the label -1, but the classes of the stream are 0 and 1"),
        ({}, {"classes": [1]}, r"one class only \(1\)"),
        ({}, {"classes": [0, 1, 2]}, "y has the label -1, but the classes of the stream are 0, 1 and 2"),
        ({"class_weight": "balanced"}, {"classes": [-1, 1]}, "class_weight 'balanced' needs all rows"),
        ({"expected_rows": 0}, {"classes": [-1, 1]}, "expected_rows is 0; a whole number of at least 1"),
        ({"expected_rows": "many"}, {"classes": [-1, 1]}, "expected_rows is 'many'"),
        ({"C": -1.0}, {"classes": [-1, 1]}, "C is -1.0; it must be positive"),
        ({"kernel": "poly"}, {"classes": [-1, 1]}, "only vectors of the rbf kernel can be merged"),
        ({"solver": BudgetedSGD(merge=1)}, {"classes": [-1, 1]}, "option merge=1"),
        ({}, {"classes": [-1, 1], "sample_weight": -np.ones(400)}, "sample weight is negative"),
    ],
)
def test_bad_streams(parameters: dict[str, Any], given: dict[str, Any], message: str) -> None:
    model = BudgetedSVC(**{**GIVEN, **parameters})
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, Y, **given)
    assert not hasattr(model, "model_")


def test_a_bad_chunk_leaves_the_stream_as_it_was() -> None:
    model = BudgetedSVC(**GIVEN).partial_fit(X[:100], Y[:100], classes=[-1, 1])
    before = model.dual_coef_.copy()
    for rows, labels in ((X[100:, :4], Y[100:]), (np.full((10, 5), np.nan), Y[:10]), (X[:10], np.arange(10))):
        with pytest.raises(ValueError, match=r"features|NaN|label"):
            model.partial_fit(rows, labels)
    np.testing.assert_array_equal(model.dual_coef_, before)
    model.partial_fit(X[100:200], Y[100:200])
    expected = BudgetedSVC(**GIVEN).partial_fit(X[:100], Y[:100], classes=[-1, 1]).partial_fit(X[100:200], Y[100:200])
    np.testing.assert_array_equal(model.dual_coef_, expected.dual_coef_)


def test_what_fit_refuses() -> None:
    for parameters, message in (
        ({"kernel": "linear"}, "not those of the linear kernel: choose maintenance=projection"),
        ({"budget": 0}, "option budget=0"),
        ({"solver": BudgetedSGD(maintenance="none")}, "maintenance 'none'"),
        ({"epochs": 1.5}, "option epochs=1.5"),
        ({"n_jobs": 0}, "n_jobs is 0"),
        ({"solver": BudgetedSGD(budget=20)}, r"solver=BudgetedSGD\(budget=20\): set budget in one of the two places"),
        ({"solver": BudgetedSGD(bias="free")}, "for a bias, set fit_intercept of BudgetedSVC"),
    ):
        with pytest.raises(InputError, match=message):
            BudgetedSVC(**{**GIVEN, **parameters}).fit(X, Y)
    one_class = replace(PROBLEM, y=np.ones(400, np.int64))
    with pytest.raises(InputError, match="one class only"):
        BudgetedSVC().fit(X, one_class.y)
