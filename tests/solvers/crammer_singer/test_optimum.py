"""Crammer-Singer against a QP library, LIBLINEAR and the hinge loss of two classes; what its certificate rests on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.crammer_singer.block_ascent import ClassAscent
from streamsvm.solvers.cutting_plane import setup
from streamsvm.solvers.cutting_plane.block_ascent import solve
from tests.class_problems import (
    ClassProblem,
    bracket_by_qp,
    combine,
    dual,
    make_classes,
    objective_by_liblinear,
    primal,
    read_weights,
)
from tests.linear_problems import run_steps

OPTIONS = TrainOptions(task="crammer-singer", threads=1, tol=1e-6)
KINDS = {
    "dense": make_classes(1),
    "sparse": make_classes(2, d=12, density=0.3),
    "weighted": make_classes(3, weighted=True),
    "two-classes": make_classes(4, n_classes=2),
    "many-classes": make_classes(5, n=40, n_classes=7),
    "rows-of-zeros": make_classes(6, d=4, density=0.2, weighted=True),
    "a-class-without-cost": ClassProblem(make_classes(7).X, make_classes(7).y, (make_classes(7).y > 0) * 1.0),
}
WAYS: dict[str, dict[str, Any]] = {
    "memory": {},
    "blocks": {"resident_rows": "30%"},
    "line-search": {"options": {"acceleration": "line-search"}},
}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are several chunks, and are trained on blocks as many rows are."""
    monkeypatch.setattr("streamsvm.data.sources.in_memory.CHUNK_BYTES", 300)
    monkeypatch.setattr(setup, "MOST_ROWS", 1)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("C", [0.01, 10.0])
def test_the_optimum_is_that_of_a_qp_library(name: str, way: str, C: float) -> None:
    problem = KINDS[name]
    factors = np.linspace(1.0, 3.0, problem.n_classes)
    costs = problem.costs(C, factors)
    options = replace(OPTIONS, C=C, class_weight=dict(enumerate(factors.tolist())), **WAYS[way])
    found, optimum = train(problem.in_memory(), options), bracket_by_qp(problem, costs)
    assert found.status == "converged"
    assert found.lower_bound is not None
    assert found.objective == pytest.approx(primal(problem, costs, read_weights(found.model)), rel=1e-12)
    assert found.lower_bound <= optimum.high * (1 + 1e-12)
    assert found.objective >= optimum.low * (1 - 1e-12)
    assert found.objective - found.lower_bound <= 1e-6 * found.objective


def test_the_lower_bound_is_that_of_the_shares() -> None:
    problem = KINDS["weighted"]
    source, costs = problem.in_memory(), problem.costs(2.0)
    settings = ClassAscent((2.0,) * 3, 20, tuple(source.chunk_starts.tolist()), 1e-6)
    state = run_steps(source, solve(settings, settings.start(4)))[-1].state
    others = state.proved.copy()
    others[np.arange(len(others)), problem.y] = 0.0
    assert state.lower_bound == pytest.approx(dual(problem, costs, state.proved), rel=1e-12)
    assert others.min() >= 0.0
    assert others.sum(axis=1).max() <= 1.0 + 1e-15
    assert np.allclose(state.master_w.reshape(3, -1), combine(problem, costs, state.share), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_liblinear_finds_no_lower_objective(seed: int, n_classes: int) -> None:
    problem = make_classes(seed, n=300, d=6, n_classes=n_classes, weighted=seed == 1)
    found = train(problem.in_memory(), OPTIONS)
    other = objective_by_liblinear(problem, problem.costs(1.0))
    assert found.lower_bound is not None
    assert found.lower_bound <= other
    assert found.objective == pytest.approx(other, rel=1e-5)


@pytest.mark.parametrize("bias_feature", [0.0, 1.0, 3.0])
def test_two_classes_are_a_hinge_loss_of_twice_the_costs(bias_feature: float) -> None:
    """With u = w_2 - w_1, P is 1/4 |u|^2 + sum C_i max(0, 1 - y_i u.x_i): half of the P of an SVM with 2 C."""
    source = make_classes(4, n=200, n_classes=2, weighted=True).in_memory()
    own = {"options": {"intercept_scaling": str(bias_feature)}}
    joint = train(source, replace(OPTIONS, C=0.7, **own))
    hinge = train(source, TrainOptions(C=1.4, tol=1e-6, threads=1, **own))
    assert joint.objective == pytest.approx(hinge.objective / 2, rel=2e-6)
    assert np.allclose(joint.model.coef, hinge.model.coef, atol=2e-3)
    assert np.allclose(joint.model.intercept, hinge.model.intercept, atol=2e-3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("way", WAYS)
def test_hostile_scales_have_a_certificate_that_holds(seed: int, way: str) -> None:
    """Features of 1e-5 to 1e5, or weights of 1e-6 to 1e6, or rows that are nearly parallel: P in long double."""
    random, problem = np.random.default_rng(seed), make_classes(seed, n=80, d=5, n_classes=2 + seed % 3)
    X = problem.X * 10.0 ** random.uniform(-5, 5, 5) if seed % 3 == 0 else problem.X
    X = (1e-3 * X + 1e3 if seed % 3 == 1 else X).astype(np.float32).astype(np.float64)
    weight = 10.0 ** random.uniform(-6, 6, 80) if seed % 3 == 2 else None
    hostile = ClassProblem(X, problem.y, weight)
    found = train(hostile.in_memory(), replace(OPTIONS, tol=1e-3, max_passes=300, **WAYS[way]))
    P = primal(hostile, hostile.costs(1.0), read_weights(found.model))
    assert found.status == "converged"
    assert found.lower_bound is not None
    assert abs(P - found.objective) <= (found.rounding_bound or 0.0) + 1e-14 * P
    assert (P - found.lower_bound) / P <= 1e-3
