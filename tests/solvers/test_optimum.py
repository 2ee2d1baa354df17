"""Crammer-Singer with kernels against a QP library, LIBLINEAR and the linear form; what it proves is true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from streamsvm import SVC
from streamsvm.kernels.kernel import Kernel
from streamsvm.models.model import KernelModel
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from tests.class_problems import ClassProblem, make_classes
from tests.kernel_classes import KERNELS, bracket, measure, objective_by_liblinear, split_model

OPTIONS = TrainOptions(task="crammer-singer", solver="smo", threads=1, tol=1e-6)
KINDS = {
    "dense": make_classes(1),
    "sparse": make_classes(2, d=12, density=0.3),
    "weighted": make_classes(3, weighted=True),
    "two-classes": make_classes(4, n_classes=2),
    "many-classes": make_classes(5, n=40, n_classes=7),
    "rows-of-zeros": make_classes(6, d=4, density=0.2, weighted=True),
    "a-class-without-cost": ClassProblem(make_classes(7).X, make_classes(7).y, (make_classes(7).y > 0) * 1.0),
    "the-same-row-in-two-classes": ClassProblem(np.tile(make_classes(8, n=20).X, (3, 1)), make_classes(9).y),
}
WAYS: dict[str, dict[str, Any]] = {"memory": {}, "few-rows": {"resident_rows": "30%"}}


def name_kernel(kernel: Kernel) -> dict[str, Any]:
    return {"kernel": kernel.name, "gamma": kernel.gamma, "degree": kernel.degree, "coef0": kernel.coef0}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kernel", "scaling"), [("rbf", 1.0), ("poly", 0.0), ("linear", 3.0), ("linear", 0.0)])
@pytest.mark.parametrize("C", [0.01, 1.0])
def test_the_optimum_is_that_of_a_qp_library(name: str, way: str, kernel: str, C: float, scaling: float) -> None:
    problem, factors = KINDS[name], np.linspace(1.0, 3.0, KINDS[name].n_classes)
    costs, own = problem.costs(C, factors), {"intercept_scaling": str(scaling)}
    weights = dict(enumerate(factors.tolist()))
    options = replace(OPTIONS, C=C, class_weight=weights, options=own, **name_kernel(KERNELS[kernel]), **WAYS[way])
    found, optimum = train(problem.in_memory(), options), bracket(problem, KERNELS[kernel], costs, scaling)
    assert found.status == "converged"
    assert found.lower_bound is not None
    assert found.lower_bound <= optimum.high * (1 + 1e-9)
    assert found.objective >= optimum.low * (1 - 1e-9)
    assert found.objective == pytest.approx(optimum.high, rel=1.1e-6)
    assert isinstance(found.model, KernelModel)
    P, D = measure(problem, found.model, costs, scaling)
    assert pytest.approx(found.objective, abs=found.rounding_bound + 1e-12 * P) == P
    assert found.lower_bound - 1e-9 * P <= D or way == "few-rows"  # an earlier bound may be the greatest


@pytest.mark.parametrize("n_classes", [2, 4])
def test_without_a_bias_the_linear_kernel_is_liblinear(n_classes: int) -> None:
    problem = make_classes(11, n=80, n_classes=n_classes)
    options = replace(OPTIONS, C=0.5, kernel="linear", options={"intercept_scaling": "0"})
    found = train(problem.in_memory(), options)
    assert found.objective == pytest.approx(objective_by_liblinear(problem, problem.costs(0.5)), rel=1e-4)


def test_the_linear_kernel_has_the_objective_of_the_linear_form() -> None:
    problem = make_classes(12, n=200, n_classes=4)
    linear = train(problem.in_memory(), replace(OPTIONS, solver="auto", C=0.3))
    kernel = train(problem.in_memory(), replace(OPTIONS, C=0.3, kernel="linear"))
    assert kernel.objective == pytest.approx(linear.objective, rel=2e-6)


def test_two_classes_are_half_of_a_hinge_svm_of_twice_the_cost() -> None:
    """P of K = 2, times 2, is 1/2 |w|^2 + sum 2 C_i hinge_i, with the bias penalised: a constant feature of one row."""
    problem = make_classes(13, n=80, n_classes=2)
    found = train(problem.in_memory(), replace(OPTIONS, C=0.7, kernel="rbf", gamma=0.2))
    assert isinstance(found.model, KernelModel)
    coef = found.model.dual_coef
    Z = problem.X[found.model.support]
    f = rbf_kernel(problem.X, Z, gamma=0.2) @ coef + found.model.intercept
    square = coef @ rbf_kernel(Z, Z, gamma=0.2) @ coef + float(found.model.intercept) ** 2
    hinge = np.maximum(0.0, 1.0 - np.where(problem.y == 1, 1, -1) * f)
    assert square / 4 + 0.7 * np.sum(hinge) == pytest.approx(found.objective, rel=1e-9)


@pytest.mark.slow("trains many problems to their optima")
def test_known_values_are_stationary_at_the_same_optimum() -> None:
    problem = make_classes(14, n=90, n_classes=3)
    K = rbf_kernel(problem.X, gamma=0.3)
    named = SVC(C=2.0, gamma=0.3, multi_class="crammer_singer", tol=1e-6).fit(problem.X, problem.y)
    for own in ({}, {"resident_rows": 30}):
        known = SVC(C=2.0, kernel="precomputed", multi_class="crammer_singer", tol=1e-5, **own).fit(K, problem.y)
        assert known.status_ == "stationary"
        assert known.lower_bound_ is None
        assert known.objective_ == pytest.approx(named.objective_, rel=1e-4)
        np.testing.assert_allclose(known.decision_function(K), named.decision_function(problem.X), atol=0.02)
    called = SVC(C=2.0, kernel=lambda A, B: rbf_kernel(A, B, gamma=0.3), multi_class="crammer_singer", tol=1e-5)
    assert called.fit(problem.X, problem.y).status_ == "stationary"


def test_an_indefinite_kernel_has_no_bound() -> None:
    problem = make_classes(15, n=60)
    parameters: dict[str, Any] = {"kernel": "poly", "degree": 3, "gamma": 0.1, "coef0": -0.1}
    found = SVC(C=0.1, multi_class="crammer_singer", **parameters).fit(problem.X, problem.y)
    assert found.lower_bound_ is None
    assert found.status_ in ("stationary", "stalled")


SCALES = (1e-6, 1e-3, 1.0, 1e3)


@pytest.mark.parametrize("seed", range(24))
def test_what_is_told_is_true_on_hostile_rows(seed: int) -> None:
    """P and D in long double from the saved coefficients, for extreme scales and costs, and rows that are equal."""
    random = np.random.default_rng([7, seed])
    n, d, n_classes = int(random.choice([6, 40])), int(random.choice([1, 4])), int(random.choice([2, 3, 6]))
    y = np.concatenate((np.arange(n_classes), random.integers(0, n_classes, max(0, n - n_classes)))).astype(np.int32)
    X = random.normal(size=(len(y), d)) + 10.0 * (seed % 3 == 0)
    X = X[random.integers(0, max(1, len(y) // 2), len(y))] if seed % 4 == 0 else X
    X = (X * SCALES[seed % 4]).astype(np.float32).astype(np.float64)
    weight = 10.0 ** random.uniform(-3, 3, len(y)) if seed % 2 else None
    problem, C = ClassProblem(X, y, weight, bool(seed % 5 == 0)), float(10.0 ** random.integers(-6, 7))
    kernel = list(KERNELS.values())[seed % 3]
    own = {"intercept_scaling": str((0.0, 1.0)[seed % 2])}
    options = replace(OPTIONS, C=C, tol=1e-3, options=own, max_passes=12, **name_kernel(kernel))
    found = train(problem.in_memory(), replace(options, **WAYS["few-rows"] if seed % 2 and n > 6 else {}))
    assert isinstance(found.model, KernelModel)
    assert found.lower_bound is not None
    bias_feature = (0.0, 1.0)[seed % 2]
    P, _ = measure(problem, found.model, problem.costs(C), bias_feature)
    assert abs(P - found.objective) <= found.rounding_bound + 1e-14 * P
    assert found.lower_bound <= P + found.rounding_bound
    if found.status == "converged":
        assert P - found.lower_bound <= 1.001e-3 * P + found.rounding_bound
    coefs, _ = split_model(found.model)
    labels = problem.y[found.model.support]
    assert np.all(coefs[labels, np.arange(len(labels))] >= 0.0)
