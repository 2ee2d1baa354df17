"""The epsilon-insensitive loss by SMO and IRWLS: proofs in long double, few rows in memory, same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import svm

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.models.model import KernelModel
from streamsvm.numeric.rows import F64
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.decomposition.hinges import Hinges, Tube
from streamsvm.system.errors import InputError
from tests.kernel_problems import compute_matrix
from tests.regression_problems import Regression, make_regression
from tests.solvers.test_kernel_certificates import compute_long

OPTIONS = TrainOptions(task="regress", solver="smo", kernel="rbf", gamma=0.2, epsilon=0.1, threads=1)
SCALES = (1e-8, 1e-3, 1.0, 1e3, 1e8)
CURVED = make_regression(5, n=600, d=4)
CURVED = replace(CURVED, target=np.sin(CURVED.X[:, 0]) + CURVED.X[:, 1] ** 2)


def draw(seed: int) -> tuple[Regression, TrainOptions]:
    """Draw a problem: each seed another scale of features, targets and costs, kernel and solver."""
    rng = np.random.default_rng([29, seed])
    n, d = int(rng.choice([3, 12, 50])), int(rng.choice([1, 4]))
    X, target = rng.normal(size=(n, d)), rng.standard_t(2, n)
    if seed % 4 == 0:
        X = X[rng.integers(0, max(1, n // 3), n)]
    if seed % 5 == 0:
        target = np.round(target)
    X = (X * SCALES[seed % 5]).astype(np.float32).astype(np.float64)
    size, offset = 10.0 ** rng.integers(-4, 5), (0.0, 1.0, 1e4)[seed % 3]
    weight = (None, (rng.random(n) < 0.7).astype(float) + np.eye(1, n)[0], 10.0 ** rng.uniform(-3, 3, n))[seed % 3]
    kernel, gamma = (("rbf", "scale"), ("linear", 1.0), ("poly", "scale"), ("rbf", 1.0))[seed % 4]
    asked = TrainOptions(
        task="regress",
        solver=("smo", "irwls")[seed % 2],
        kernel=kernel,
        gamma=gamma,
        degree=2,
        coef0=1.0,
        C=float(10.0 ** rng.integers(-5, 6)),
        epsilon=float(size * (0.0, 0.1, 1.0)[seed // 2 % 3]),
        tol=(1e-3, 1e-6)[seed // 2 % 2],
        resident_rows=(None, "50%")[seed // 3 % 2] if n > 3 else None,
        max_passes=300,
    )
    return Regression(X, size * (target + offset), weight, sparse=seed % 3 == 1), asked


def measure_long(problem: Regression, options: TrainOptions, model: KernelModel) -> float:
    """P of the model in long double, with the kernels as they are defined."""
    Z = model.support_vectors
    vectors = np.asarray(Z) if isinstance(Z, np.ndarray) else to_dense(Z)
    s, costs = np.asarray(model.dual_coef, np.longdouble), np.full(len(problem.X), np.longdouble(options.C))
    costs = costs if problem.weight is None else costs * problem.weight.astype(np.longdouble)
    f = compute_long(model.kernel, problem.X, vectors) @ s + np.longdouble(model.intercept)
    outside = np.maximum(0, np.abs(problem.target.astype(np.longdouble) - f) - np.longdouble(options.epsilon))
    return float(s @ compute_long(model.kernel, vectors, vectors) @ s / 2 + costs @ outside)


def to_dense(Z: Any) -> F64:
    dense = np.zeros(Z.shape)
    for i in range(Z.shape[0]):
        part = slice(Z.indptr[i], Z.indptr[i + 1])
        dense[i, Z.indices[part]] = Z.data[part]
    return dense


@pytest.mark.parametrize("seed", range(60))
def test_what_is_told_of_the_saved_model_is_true(seed: int) -> None:
    problem, options = draw(seed)
    result = train(problem.in_memory(), options)
    assert isinstance(result.model, KernelModel)
    told, bound = result.objective, result.rounding_bound
    assert result.lower_bound is not None
    assert bound is not None
    true = measure_long(problem, options, result.model)
    assert abs(told - true) <= bound + 1e-15 * abs(true)
    none = float(np.median(problem.target))
    costs = options.C * (1.0 if problem.weight is None else problem.weight)
    constant = np.sum(costs * np.maximum(0, np.abs(problem.target - none) - (options.epsilon or 0.0)))
    assert result.lower_bound <= constant * (1 + 1e-12)
    assert result.lower_bound <= true + bound
    if result.status == "converged":
        assert true - result.lower_bound <= options.tol * true + 2 * bound
    else:
        assert result.status in ("stalled", "pass_limit")
        assert result.status == "pass_limit" or true - result.lower_bound <= 10 * bound


@pytest.mark.parametrize("solver", ["smo", "irwls"])
@pytest.mark.parametrize("rule", ["second-order", "largest", "smallest", "random", "chunking"])
def test_few_rows_in_memory_reach_the_minimum_of_libsvm(rule: str, solver: str, tmp_path: Path) -> None:
    options = replace(OPTIONS, solver=solver, resident_rows="40%", options={"selection": rule}, tol=1e-4)
    result = train(CURVED.store(tmp_path / "rows.zarr", 4000), options)
    other = svm.SVR(gamma=0.2, epsilon=0.1, tol=1e-8).fit(CURVED.X, CURVED.target)
    assert isinstance(result.model, KernelModel)
    s, Z = other.dual_coef_[0], other.support_vectors_
    outside = np.maximum(0.0, np.abs(other.predict(CURVED.X) - CURVED.target) - 0.1)
    least = s @ compute_matrix(result.model.kernel, Z, Z) @ s / 2 + np.sum(outside)
    assert result.status == "converged"
    assert result.passes > 1
    assert result.lower_bound is not None
    assert result.lower_bound <= least * (1 + 1e-9)
    assert result.objective == pytest.approx(least, rel=1.1e-4)


@pytest.mark.slow("trains on every engine")
def test_the_same_bits_on_workers_and_after_an_interruption(tmp_path: Path) -> None:
    dataset = CURVED.store(tmp_path / "rows.zarr", 4000)
    options = replace(OPTIONS, resident_rows="30%")
    whole = train(dataset, options)
    assert whole.passes > 2
    on_workers = train(dataset, replace(options, threads=None, workers=2))
    assert on_workers.model_sha256 == whole.model_sha256
    first = train(dataset, replace(options, max_passes=2), tmp_path / "run")
    assert first.status == "pass_limit"
    resumed = train(dataset, options, tmp_path / "run", resume=True)
    assert (resumed.status, resumed.model_sha256) == ("converged", whole.model_sha256)


def test_numbers_that_are_classes_are_targets(tmp_path: Path) -> None:
    codes = np.random.default_rng(1).integers(0, 4, 200).astype(np.int32)
    X = (codes[:, None] + np.random.default_rng(2).normal(size=(200, 2))).astype(np.float32)
    as_classes = ArrayDataset(X, codes, np.array([10, 20, 30, 40]))
    as_targets = ArrayDataset(X, None, None, target=np.array([10.0, 20.0, 30.0, 40.0])[codes])
    one, other = train(as_classes, OPTIONS), train(as_targets, OPTIONS)
    assert one.objective == other.objective
    assert one.n_support_vectors == other.n_support_vectors
    texts = ArrayDataset(X, codes, np.array(["a", "b", "c", "d"]))
    with pytest.raises(InputError, match="a regression needs numbers"):
        train(texts, OPTIONS)


def test_the_side_of_a_row_without_a_multiplier_is_that_of_its_target() -> None:
    targets = np.array([3.0, -1.0, 0.0, 5.0])
    alpha, y = np.array([0.0, 0.0, 0.0, 0.5]), np.array([-1.0, 1.0, 1.0, -1.0])
    rows = Hinges(y, np.ones(4), alpha, np.zeros(4), Tube(targets, 0.5), None)
    sides = rows.choose_sides()
    np.testing.assert_array_equal(sides[[0, 1, 3]], [1.0, -1.0, -1.0])
    np.testing.assert_array_equal(rows.corners, targets - 0.5 * y)
