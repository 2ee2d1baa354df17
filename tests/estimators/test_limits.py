"""Limits of passes and seconds, and the parameters that are options of the methods, in every estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import streamsvm
from streamsvm import (
    IRWLS,
    SMO,
    SVC,
    BudgetedSGD,
    BudgetedSVC,
    CuttingPlane,
    InteriorPoint,
    LinearOneClassSVM,
    LinearSVC,
    LogisticRegression,
    Newton,
    OneClassSVM,
    RankSVM,
)
from streamsvm.solvers.options import name_options
from streamsvm.solvers.registry import SOLVERS
from tests.conftest import make_problem

PROBLEM = make_problem(1, n=400, d=5)
X, Y = np.asarray(PROBLEM.X), PROBLEM.y
ENDLESS: dict[str, Any] = {
    "linear": LinearSVC(tol=1e-12, solver=CuttingPlane(acceleration="none")),
    "interior-point": LinearSVC(solver="interior-point", tol=1e-12),
    "kernel": SVC(resident_rows=50, tol=1e-12),
    "low rank": SVC(tol=1e-12, solver=InteriorPoint(n_components=5)),
    "budgeted": BudgetedSVC(budget=10, epochs=50),
    "ranking": RankSVM(tol=1e-12, solver=CuttingPlane(acceleration="none")),
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
    ("name", "labels", "settings"),
    [
        ("LinearSVC", Y, {"options": {"acceleration": "none"}}),
        ("LogisticRegression", np.digitize(X[:, 0], [-0.5, 0.5]), {"task": "multinomial", "resident_rows": 20}),
        ("SVC", Y, {"kernel": "rbf", "resident_rows": 50}),
    ],
)
def test_a_grid_warns_once_of_a_limit(name: str, labels: Any, settings: dict[str, Any]) -> None:
    with pytest.warns(ConvergenceWarning, match=f"{name}: the limit of 1 pass was reached") as told:
        streamsvm.tune(X, labels, C=[0.1, 1.0], folds=2, max_passes=1, tol=1e-10, **settings)
    assert len(told) == 1


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


@pytest.mark.parametrize("kind", [CuttingPlane, Newton, SMO, IRWLS, BudgetedSGD, InteriorPoint])
def test_options_of_the_solvers_are_passed_on(kind: Any) -> None:
    """Those that differ from the default; the records check them, and have no others."""
    of_kernels = dict.fromkeys(("smo", "irwls", "budgeted-sgd"), SVC)
    estimator: Any = {"newton": LogisticRegression, **of_kernels}.get(kind.name, LinearSVC)
    assert estimator(solver=kind())._options().options == {}
    for name, option in name_options(kind).items():
        known = kind().get_params()[name]
        value = next(word for word in option.words if word != known) if option.words else 7
        asked = estimator(solver=kind(**{name: value}))._options()
        assert (asked.solver, asked.options) == (kind.name, {name: str(value)})
    of_records = {name for method in SOLVERS if method.name == kind.name for name in name_options(method.options)}
    assert of_records <= {*name_options(kind)}


@pytest.mark.parametrize(("kind", "name"), [(LinearSVC, "intercept_scaling"), (BudgetedSVC, "budget")])
def test_parameters_that_are_options_of_a_solver_are_passed_on(kind: Any, name: str) -> None:
    assert set(kind()._options().options) <= {"bias"}
    assert kind(**{name: 7})._options().options[name] == "7"
