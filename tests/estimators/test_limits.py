"""Limits of passes and seconds, and the parameters that are options of the methods, in every estimator."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from streamsvm import SVC, BudgetedSVC, LinearOneClassSVM, LinearSVC, OneClassSVM, RankSVM
from streamsvm.solvers.options import name_options
from streamsvm.solvers.registry import SOLVERS
from tests.conftest import make_problem

PROBLEM = make_problem(1, n=400, d=5)
X, Y = np.asarray(PROBLEM.X), PROBLEM.y
ENDLESS: dict[str, Any] = {
    "linear": LinearSVC(acceleration="none", tol=1e-12),
    "interior-point": LinearSVC(solver="interior-point", tol=1e-12),
    "kernel": SVC(resident_rows=50, tol=1e-12),
    "low rank": SVC(solver="interior-point", rank=5, tol=1e-12),
    "budgeted": BudgetedSVC(budget=10, epochs=50),
    "ranking": RankSVM(acceleration="none", tol=1e-12),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_seconds_are_limited(name: str) -> None:
    """The step that has begun is finished, and its model is there."""
    model = ENDLESS[name].set_params(max_seconds=1e-9)
    with pytest.warns(ConvergenceWarning, match=f"{type(model).__name__}: the time limit was reached aft"):
        model.fit(X, Y)
    assert (model.status_, len(model.history_)) == ("time_limit", 1)
    assert np.isfinite(model.decision_function(X)).all()


@pytest.mark.parametrize(
    "estimator", [LinearSVC(), SVC(), BudgetedSVC(), RankSVM()], ids=lambda one: type(one).__name__
)
def test_nothing_is_warned_of_where_no_limit_is_reached(estimator: Any) -> None:
    """Warnings are errors here. The epochs of a budgeted model are what was asked for, and no limit."""
    model = estimator.set_params(max_seconds=600.0).fit(X, Y)
    assert model.status_ == ("pass_limit" if isinstance(model, BudgetedSVC) else "converged")


@pytest.mark.parametrize("estimator", [OneClassSVM(kernel="linear"), LinearOneClassSVM()], ids=["kernel", "linear"])
def test_a_run_that_stalls_is_warned_of_with_its_reason(estimator: Any) -> None:
    """The rows lie around the origin, so that no function is above 0 on them alone."""
    with pytest.warns(ConvergenceWarning, match=f"{type(estimator).__name__}: .*the origin lies among the rows"):
        estimator.fit(X - np.mean(X, axis=0))
    assert estimator.status_ == "stalled"


@pytest.mark.parametrize("kind", [LinearSVC, SVC, BudgetedSVC, RankSVM])
def test_options_of_the_methods_are_passed_on(kind: Any) -> None:
    """Those that differ from the estimator's default, whatever the methods call theirs; their records check them."""
    known_options = {name: each for method in SOLVERS for name, each in name_options(method.options).items()}
    names = [name for name in signature(kind).parameters if name in known_options]
    assert names
    default = kind()
    assert set(default._options().options) <= {"bias"}
    for name in names:
        option = known_options[name]
        known = default.get_params()[name]
        value = next(word for word in option.words if word != known) if option.words else 7
        assert kind(**{name: value})._options().options[name] == str(value)
