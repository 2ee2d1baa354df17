"""Newton's method with the penalty l1 against LIBLINEAR: optimum, bounds, bits, and how it is used."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression as Other
from sklearn.svm import LinearSVC as OtherSVC

from streamsvm import LinearSVC, LogisticRegression
from streamsvm.cli.main import main
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.models.model import LinearModel
from streamsvm.options import TrainOptions
from streamsvm.passes import Step
from streamsvm.problems.classification import Logistic, SquaredHinge
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from streamsvm.solvers.newton import setup
from streamsvm.solvers.newton.l1_solver import L1Newton, minimise_model
from streamsvm.solvers.newton.solver import solve
from streamsvm.system.errors import InputError
from streamsvm.verify.verify import verify
from tests.conftest import F64, Problem, make_problem
from tests.linear_problems import run_steps

OPTIONS = TrainOptions(threads=1, penalty="l1")
KINDS = {
    "dense": make_problem(1, n=3000, d=8),
    "sparse": make_problem(2, n=3000, d=20, density=0.2),
    "weighted": make_problem(3, n=2000, d=8, weighted=True),
    "wide": make_problem(5, n=60, d=100),
}
LOSSES = {"squared_hinge": SquaredHinge, "logistic": Logistic}


def find_objective(problem: Problem, loss: str, costs: F64, w: F64) -> float:
    """P at w, whose last entry weighs a constant feature of 1, written out in float64."""
    X = np.column_stack((problem.dense(), np.ones(len(problem.y)))).astype(np.float64)
    margins = problem.y * (X @ w)
    losses = np.maximum(0, 1 - margins) ** 2 if loss == "squared_hinge" else np.logaddexp(0, -margins)
    return float(np.sum(np.abs(w)) + costs @ losses)


def fit_liblinear(problem: Problem, loss: str, costs: F64) -> F64:
    """w of LIBLINEAR, whose constant feature is among the rows'."""
    Z, kept = np.column_stack((problem.dense(), np.ones(len(problem.y)))), costs > 0
    model: Any = Other(C=1.0, l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=1e-9, max_iter=5000)
    if loss == "squared_hinge":
        model = OtherSVC(C=1.0, penalty="l1", dual=False, fit_intercept=False, tol=1e-9, max_iter=100_000)
    model.fit(Z[kept], problem.y[kept], sample_weight=costs[kept])
    return np.asarray(model.coef_[0])


def weights_of(found: Result) -> F64:
    assert isinstance(found.model, LinearModel)
    return np.append(found.model.coef, found.model.intercept)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("C", [0.01, 1.0])
@pytest.mark.parametrize("name", KINDS)
def test_the_optimum_is_that_of_liblinear(name: str, C: float, loss: str) -> None:
    """And so are the features that are used: those of LIBLINEAR with a weight that is not tiny."""
    problem = KINDS[name]
    costs = problem.costs(C, 1.0, 3.0)
    found = train(problem.in_memory(), replace(OPTIONS, C=C, loss=loss, class_weight={-1: 1.0, 1: 3.0}, tol=1e-8))
    other = fit_liblinear(problem, loss, costs)
    P, theirs = found.objective, find_objective(problem, loss, costs, other)
    assert found.status == "converged"
    assert pytest.approx(find_objective(problem, loss, costs, weights_of(found)), rel=1e-12) == P
    assert found.lower_bound is not None
    assert found.lower_bound <= theirs
    assert theirs * (1 - 1e-6) <= P <= theirs * (1 + 1e-8)
    used = np.flatnonzero(weights_of(found))
    assert set(np.flatnonzero(np.abs(other) > 1e-3).tolist()) <= set(used.tolist())
    assert len(used) <= np.count_nonzero(other) + 2


@pytest.mark.parametrize("loss", LOSSES)
@given(st.integers(0, 10**6), st.floats(-6, 6), st.booleans())
@settings(max_examples=25, deadline=None)
def test_every_bound_is_below_the_minimum(loss: str, seed: int, log_cost: float, is_weighted: bool) -> None:
    """From a sample that misleads, at any cost, every step's P is that of a point, and no D is above any P."""
    problem = make_problem(seed, n=120, d=5, weighted=is_weighted)
    costs = problem.costs(10.0**log_cost)
    steps = run(problem, L1Newton(LOSSES[loss]((10.0**log_cost,) * 2), 10, tol=1e-9, most_features=5))
    least = min(step.progress.objective for step in steps)
    polished = minimize(lambda w: find_objective(problem, loss, costs, w), steps[-1].state.best_w, method="Nelder-Mead")
    for step in steps:
        own = find_objective(problem, loss, costs, step.state.best_w)
        assert step.progress.objective == pytest.approx(own, rel=1e-9)
        assert (step.progress.lower_bound or 0.0) <= min(least, float(polished.fun)) * (1 + 1e-12)
    assert steps[-1].status in ("converged", "stalled")
    if steps[-1].status == "stalled":  # by rounding alone
        assert steps[-1].progress.is_rounded


def run(problem: Problem, settings: L1Newton, state: Any = None) -> list[Step]:
    source = problem.in_memory()
    begin = state or settings.start(source.n_rows, source.n_features)
    return run_steps(source, solve(settings, begin))


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 20))
@settings(max_examples=200, deadline=None)
def test_the_model_is_minimised(seed: int, m: int, rank: int) -> None:
    """By the conditions of the minimum, also where features are the same or their products are singular."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((rank, m)) * 10.0 ** random.uniform(-2, 2, m)
    H, w = rows.T @ rows, random.standard_normal(m) * (random.random(m) < 0.5)
    gradient = rows.T @ random.standard_normal(rank) * 5 + H @ w
    z = minimise_model(H, gradient, w)
    slopes, size = gradient + H @ (z - w), 1e-6 * (1 + np.abs(H).max() * np.abs(z).max() * 1e-4)
    np.testing.assert_allclose(slopes[z != 0], -np.sign(z[z != 0]), atol=size)
    assert np.all(np.abs(slopes[z == 0]) <= 1 + size)


def test_more_features_than_change_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(9, n=2000, d=60, density=0.1)
    whole = train(problem.in_memory(), replace(OPTIONS, C=0.3, loss="logistic", tol=1e-6))
    monkeypatch.setattr(setup, "MOST_L1_FEATURES", 7)
    for rows in (None, 300):
        found = train(problem.in_memory(), replace(OPTIONS, C=0.3, loss="logistic", tol=1e-6, resident_rows=rows))
        assert found.status == "converged"
        assert found.objective == pytest.approx(whole.objective, rel=2e-6)


@pytest.mark.slow("trains on every engine")
@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize("density", [1.0, 0.2])
def test_the_same_bits_on_any_engine_and_resumed(density: float, tmp_path: Path, client: Client) -> None:
    problem = make_problem(4, n=3000, d=12, density=density)
    dataset = problem.store(tmp_path / "rows", chunk_bytes=8000)
    options = replace(OPTIONS, loss="squared_hinge", C=0.5, tol=1e-7, resident_rows=100)
    whole = train(dataset, options, out=tmp_path / "whole")
    assert whole.passes > 3
    others = [
        train(dataset, replace(options, threads=3)),
        train(dataset, replace(options, threads=None), client=client),
    ]
    train(dataset, replace(options, max_passes=2), out=tmp_path / "run")
    others.append(train(dataset, options, out=tmp_path / "run", resume=True))
    for other in others:
        np.testing.assert_array_equal(weights_of(other), weights_of(whole))
        assert (other.passes, other.lower_bound) == (whole.passes, whole.lower_bound)


def test_estimators_for_several_classes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 10)).astype(np.float32)
    y = np.argmax(X[:, :3] + 0.3 * random.normal(size=(400, 3)), axis=1)
    model = LinearSVC(penalty="l1", loss="squared_hinge", C=0.05, tol=1e-7).fit(X, y)
    other = OtherSVC(penalty="l1", dual=False, C=0.05, tol=1e-8, max_iter=10**5).fit(X, y)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-4)
    np.testing.assert_array_equal(model.coef_ == 0, other.coef_ == 0)
    assert np.any(model.coef_ == 0)
    logistic = LogisticRegression(penalty="l1", C=0.1, tol=1e-6).fit(X, y == 0)
    reference = Other(l1_ratio=1.0, solver="liblinear", C=0.1, tol=1e-9, max_iter=5000).fit(X, y == 0)
    np.testing.assert_allclose(logistic.coef_, reference.coef_, atol=1e-4)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"loss": "hinge"}, "requires a smooth loss"),
        ({"loss": "squared_hinge", "dual": True}, "requires dual=False"),
        ({"loss": "squared_hinge", "solver": "cutting-plane"}, "cutting-plane"),
        ({"loss": "squared_hinge", "penalty": "l0"}, "one of l2, l1"),
    ],
)
def test_refused(more: dict[str, Any], message: str) -> None:
    problem = KINDS["dense"]
    with pytest.raises(InputError, match=message):
        LinearSVC(**{"penalty": "l1", **more}).fit(problem.dense(), problem.y)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, run = tmp_path / "rows.zarr", tmp_path / "run"
    make_problem(2, n=2000, d=30, density=0.2).store(data)
    given_options = ["--loss", "logistic", "--penalty", "l1", "--C", "0.1"]
    assert main(["train", str(data), "--out", str(run), *given_options]) == 0
    assert main(["verify", str(run), str(data)]) == 0
    capsys.readouterr()
    assert main(["info", str(run)]) == 0
    assert "of 30 weights are not 0" in capsys.readouterr().out
    assert main(["info", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problem"]["penalty"] == "l1"
    assert main(["train", str(data), "--out", str(run), "--penalty", "l1", "--overwrite"]) == 2
    assert "choose the loss squared_hinge or logistic" in capsys.readouterr().err


def test_a_model_that_tells_another_penalty_is_not_verified(tmp_path: Path) -> None:
    problem = KINDS["dense"]
    found = train(problem.store(tmp_path / "rows"), replace(OPTIONS, loss="logistic"))
    told = {**found.model.info, "problem": {**found.model.info["problem"], "penalty": "l2"}}
    assert verify(found.model, problem.in_memory()).objective_agrees
    assert not verify(replace(found.model, info=told), problem.in_memory()).objective_agrees


def test_the_state_is_saved_whole() -> None:
    """Every array that changes has a shape that a checkpoint is compared with."""
    source = ArrayDataset(np.ones((4, 2), np.float32), np.array([0, 1, 0, 1], np.int32), np.arange(2))
    state = L1Newton(Logistic((1.0, 1.0)), 4, most_features=2).start(source.n_rows, source.n_features)
    arrays = {part.name for part in fields(state) if isinstance(getattr(state, part.name), np.ndarray)}
    assert arrays == {part.name for part in fields(state) if "axes" in part.metadata}
