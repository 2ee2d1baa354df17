"""Few rows in memory are not rounded to float32 by estimators whose solver computes with them in float64."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, issparse
from sklearn.datasets import load_iris

import streamsvm
from streamsvm import (
    SMO,
    SVC,
    SVR,
    BudgetedSVC,
    LinearOneClassSVM,
    LinearSVC,
    LinearSVR,
    NuSVC,
    NuSVR,
    OneClassSVM,
    RankSVM,
)
from streamsvm.solvers.decomposition.all_active import solve_by_interior_point
from streamsvm.solvers.options import SMALL_ROWS
from streamsvm.system.errors import InputError

X, Y = load_iris(return_X_y=True)
BOTH = Y < 2


@pytest.fixture(autouse=True)
def warnings_are_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Record warnings also after tests of the command line, which raise the level of the logger."""
    with caplog.at_level("WARNING", "streamsvm"):
        yield


@pytest.mark.parametrize("layout", [np.asarray, csr_array])
@pytest.mark.parametrize("ours", [SVC(kernel="linear"), SVR(kernel="linear")], ids=["SVC", "SVR"])
def test_the_objective_is_that_of_the_rows_as_they_are(ours: Any, layout: Any) -> None:
    """To the rounding of float64: rows that were rounded to float32 would change it by a thousand times as much."""
    y = np.where(Y[BOTH] == 1, 1, -1) if isinstance(ours, SVC) else X[BOTH, 3]
    model = ours.fit(layout(X[BOTH]), y)
    coef = model.coef_.toarray() if issparse(model.coef_) else model.coef_
    w, b = np.ravel(coef).astype(np.longdouble), np.longdouble(model.intercept_[0])
    f = X[BOTH].astype(np.longdouble) @ w + b
    errors = 1 - y * f if isinstance(ours, SVC) else np.abs(y - f) - ours.epsilon
    objective = w @ w / 2 + np.sum(np.maximum(0, errors))
    assert abs(float(objective) - model.objective_) <= 1e-12 * model.objective_
    assert model.support_vectors_.dtype == np.float64


@pytest.mark.parametrize("n_classes", [2, 3])
def test_known_values_agree_with_the_named_kernel(n_classes: int) -> None:
    """Of four features and a hundred rows the linear kernel is singular: rounding moves the multipliers much."""
    rows, y = X[n_classes > Y], Y[n_classes > Y]
    named = SVC(kernel="linear").fit(rows, y)
    given = SVC(kernel="precomputed").fit(rows @ rows.T, y)
    called = SVC(kernel=lambda one, other: one @ other.T).fit(rows, y)
    for model, values in ((given, rows @ rows.T), (called, rows)):
        np.testing.assert_allclose(model.dual_coef_, named.dual_coef_, atol=1e-9)
        np.testing.assert_allclose(model.decision_function(values), named.decision_function(rows), atol=1e-9)


TIMES = np.column_stack((np.arange(100) % 2, 1_700_000_000 + np.arange(100))).astype(float)  # seconds since 1970
LABELS = np.arange(100) % 2
HALVES = slice(0, 50), slice(50, 100)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("layout", [np.asarray, csr_array, lambda rows: pd.DataFrame(rows, columns=["x", "time"])])
@pytest.mark.parametrize("estimator", [LinearSVC(), SVC(resident_rows=50), LinearSVR(), LinearOneClassSVM(), RankSVM()])
def test_fit_warns_of_values_that_float32_merges(estimator: Any, layout: Any, caplog: pytest.LogCaptureFixture) -> None:
    rows = layout(TIMES)
    estimator.fit(rows, LABELS).predict(rows)
    (told,) = [each.getMessage() for each in caplog.records if "float32 merges" in each.getMessage()]
    column, merged = "'time'" if isinstance(rows, pd.DataFrame) else "2", len(np.unique(TIMES[:, 1].astype(np.float32)))
    assert f"X: float32 merges column {column}: 100 values in the first rows become " in told
    assert f"become {merged}; " in told


def test_a_stream_warns_once_and_float64_rows_never(caplog: pytest.LogCaptureFixture) -> None:
    SVC().fit(TIMES, LABELS)
    LinearSVC().fit(TIMES - TIMES[0], LABELS)
    assert "float32 merges" not in caplog.text
    model = BudgetedSVC()
    for half in HALVES:
        model.partial_fit(TIMES[half], LABELS[half], classes=[0, 1])
    assert caplog.text.count("float32 merges") == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_interior_point_method_forms_sums_of_float64_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes over where pair steps get stuck; the products of float64 rows are no float64 numbers."""
    taken = []

    def note(active: Any, *given: Any) -> Any:
        taken.append(active.X.dtype)
        return solve_by_interior_point(active, *given)

    monkeypatch.setattr("streamsvm.solvers.decomposition.all_active.solve_by_interior_point", note)
    rows = X[BOTH] * np.array([1.0, 1e4, 1e-3, 1.0])
    y = (np.arange(len(rows)) % 2).astype(int)
    model = SVC(kernel="linear", C=1e4, tol=1e-9).fit(rows, y)
    assert taken
    assert set(taken) == {np.dtype(np.float64)}
    w, b = model.coef_[0].astype(np.longdouble), np.longdouble(model.intercept_[0])
    margins = np.where(y == 1, 1, -1) * (rows.astype(np.longdouble) @ w + b)
    objective = float(w @ w / 2 + 1e4 * np.sum(np.maximum(0, 1 - margins)))
    assert model.lower_bound_ <= objective <= model.objective_ + model.rounding_bound_


def test_a_saved_model_keeps_the_digits(tmp_path: Path) -> None:
    model = SVC().fit(X, Y)
    model.save(tmp_path / "model.npz")
    loaded: Any = streamsvm.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))


def test_others_are_float32() -> None:
    many = np.random.default_rng(0).normal(size=(SMALL_ROWS + 1, 2))
    y = (many[:, 0] > 0).astype(int)
    assert SVC().fit(many, y).support_vectors_.dtype == np.float32
    for each in (NuSVC(), NuSVR(), OneClassSVM()):
        assert each.fit(X[BOTH], Y[BOTH]).support_vectors_.dtype == np.float64
    others: list[Any] = ["irwls", SMO(working_rows=64), SMO(selection="platt")]
    for model in (SVC(resident_rows=50), *(SVC(solver=solver) for solver in others)):
        assert model.fit(X[BOTH], Y[BOTH]).support_vectors_.dtype == np.float32


def test_values_out_of_range_are_refused() -> None:
    largest = np.finfo(np.float64).max
    for kernel in ("linear", "rbf", "poly", "sigmoid"):
        for size in (largest, 1e80):
            with pytest.raises(InputError, match="The dual coefficients or intercepts are not finite"):
                SVC(kernel=kernel).fit(X[BOTH] * (size / 10), Y[BOTH])
    with pytest.raises(InputError, match="overflow float64"):
        SVC(kernel="poly").fit(X[BOTH], Y[BOTH]).predict(X[BOTH] * (largest / 10))


def test_sigmoids_have_scikit_learn_s_names() -> None:
    model = SVC(probability=True).fit(X[BOTH], Y[BOTH])
    with pytest.warns(FutureWarning, match="Attribute `probA_` was deprecated"):
        A = model.probA_
    with pytest.warns(FutureWarning, match="Attribute `probB_` was deprecated"):
        B = model.probB_
    expected = 1 / (1 + np.exp(A * model.decision_function(X[BOTH]) + B))
    np.testing.assert_allclose(model.predict_proba(X[BOTH])[:, 1], expected, rtol=1e-12)
    with pytest.warns(FutureWarning):
        assert SVC().fit(X, Y).probA_.size == 0
