"""Fewer rows than features: no solver factors a matrix of all features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn import svm

from streamsvm import LinearSVC, LinearSVR, LogisticRegression
from streamsvm.options import TrainOptions
from streamsvm.solvers.set_up import choose_for_many, choose_solver
from tests.conftest import F64, make_problem

N, D = 12, 700
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(N, D)).astype(np.float32).astype(np.float64)
SIDES = np.where(np.arange(N) % 3 == 0, 1.0, -1.0)
TARGETS = RANDOM.normal(size=N)
WITH_BIAS = np.column_stack([X, np.ones(N)])


def minimise(loss: Any) -> float:
    """Return the least 1/2 |w|^2 + sum loss(w.x), found over the combinations of the rows."""
    K = WITH_BIAS @ WITH_BIAS.T

    def value(a: F64) -> float:
        return float(a @ K @ a / 2 + np.sum(loss(K @ a)))

    return float(minimize(value, np.zeros(N), method="BFGS", options={"gtol": 1e-6}).fun)


@pytest.mark.parametrize("resident_rows", [None, 5])
@pytest.mark.parametrize(
    ("estimator", "y", "loss"),
    [
        (LogisticRegression(), SIDES, lambda f: np.logaddexp(0.0, -SIDES * f)),
        (LinearSVC(loss="squared_hinge"), SIDES, lambda f: np.maximum(0.0, 1.0 - SIDES * f) ** 2),
    ],
)
def test_the_minimum_is_proved(estimator: Any, y: F64, loss: Any, resident_rows: int | None) -> None:
    """Resident rows make no difference: all rows take less memory than a Hessian would."""
    if "resident_rows" in estimator.get_params():
        estimator.set_params(resident_rows=resident_rows)
    estimator.set_params(tol=1e-4).fit(X, y)
    assert estimator.status_ == "converged"
    assert estimator.objective_ == pytest.approx(minimise(loss), rel=2e-4)


@pytest.mark.parametrize("resident_rows", [None, 5])
def test_a_regression_is_as_good_as_that_of_liblinear(resident_rows: int | None) -> None:
    found = LinearSVR(epsilon=0.1, tol=1e-4, resident_rows=resident_rows).fit(X, TARGETS)
    other = svm.LinearSVR(epsilon=0.1, tol=1e-6, max_iter=10**6, random_state=0).fit(X, TARGETS)
    w, f = np.append(other.coef_, other.intercept_), other.predict(X)
    assert found.status_ == "converged"
    assert found.objective_ == pytest.approx(w @ w / 2 + np.sum(np.maximum(0.0, np.abs(f - TARGETS) - 0.1)), rel=2e-4)


@pytest.mark.parametrize(
    ("task", "loss", "kind"),
    [("classify", "logistic", "labels"), ("classify", "squared_hinge", "labels"), ("regress", None, "convex")],
)
def test_a_method_without_a_hessian_is_chosen(task: str, loss: str | None, kind: str) -> None:
    source = make_problem(1, n=N, d=D).in_memory()
    options = TrainOptions(task=task, loss=loss, resident_rows=5)
    assert kind in choose_for_many(choose_solver(options), options, 1, source).losses
    many, enough = make_problem(1, n=2 * D, d=D).in_memory(), replace(options, resident_rows=D + 1)
    assert "smooth" in choose_for_many(choose_solver(enough), enough, 1, many).losses
