"""One class by cutting planes: proofs in long double, few rows in memory, ties, the same bits, resumed, one read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import piqp
import pytest
from scipy.sparse import csr_array
from sklearn import svm

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.kernels.kernel import Kernel
from streamsvm.numeric.rows import CsrRows, Rows
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Event
from streamsvm.runs.train import train
from streamsvm.solvers.one_class.solver import (
    Centre,
    add_lowest,
    find_nearest,
    join_near,
    start_lowest,
)
from streamsvm.system.errors import InputError
from tests.one_class_problems import OneClass

OPTIONS = TrainOptions(task="one-class", solver="cutting-plane", nu=0.2, threads=1)
SCALES = (1e-8, 1e-3, 1.0, 1e3, 1e8)
NUS = (0.01, 0.3, 0.5, 0.9, 1.0)
LINEAR = Kernel("linear", 1.0, 3, 0.0)
CLOUD = OneClass((np.random.default_rng(3).normal(size=(2000, 4)) + 1.5).astype(np.float32).astype(np.float64), 0.2)


def draw(seed: int) -> tuple[OneClass, TrainOptions]:
    """Draw a problem: each seed another shape and scale of features, nu, weights, and rows in memory."""
    rng = np.random.default_rng([47, seed])
    n, d = int(rng.choice([1, 3, 12, 50, 300])), int(rng.choice([1, 4, 60]))
    X = rng.normal(size=(n, d)) + rng.choice([0.0, 1.0, 10.0])
    match seed % 7:
        case 0:
            X = X[rng.integers(0, max(1, n // 3), n)]
        case 1:
            X += 100.0
        case 2:
            X = np.ones((n, d))
        case 3:
            X = X * 10.0 ** rng.uniform(-4, 4, d)
        case 4:
            X = (rng.random((n, d)) < 0.3).astype(float)
    X = (X * SCALES[seed % 5]).astype(np.float32).astype(np.float64)
    weight = (None, (rng.random(n) < 0.7).astype(float) + np.eye(1, n)[0], 10.0 ** rng.uniform(-3, 3, n))[seed % 3]
    rows = (None, "50%", "5%")[seed // 3 % 3] if n > 49 else None
    asked = replace(OPTIONS, nu=NUS[seed // 2 % 5], resident_rows=rows, tol=(1e-3, 1e-6)[seed // 2 % 2], max_passes=200)
    return OneClass(X, float(asked.nu or 0), weight, sparse=seed % 4 == 1), asked


@pytest.mark.parametrize("seed", range(60))
def test_objective_and_bound_enclose_the_optimum(seed: int, tmp_path: Path) -> None:
    problem, asked = draw(seed)
    found = train(problem.store(tmp_path / "rows.zarr"), asked)
    K, total = problem.matrix(LINEAR), problem.total
    point = problem.find_point(K)
    f = K @ point
    square = point @ f
    order = np.argsort(f, kind="stable")
    below = np.cumsum(problem.costs[order]) - problem.costs[order]
    margin = np.clip(total - below, 0, problem.costs[order]) @ f[order]  # the least w.v over all points v
    most, least = max(square, np.longdouble(0)) / 2, margin * margin / (2 * square) if margin > 0 < square else 0.0
    assert found.lower_bound is not None
    assert found.rounding_bound is not None
    assert found.lower_bound <= most * (1 + 1e-12)
    assert found.objective + found.rounding_bound >= least * (1 - 1e-12)
    assert found.status in ("converged", "stalled") or asked.resident_rows == "5%"  # of 300 rows of 60 features
    if found.status == "converged":
        assert found.objective - found.lower_bound <= asked.tol * found.objective
    elif found.status == "stalled" and most > 1e-12 * float(total) ** 2 * float(np.max(np.diagonal(K))):
        assert found.objective <= most * (1 + 1e-4)  # rounding alone keeps the proof from being complete
    w = np.asarray(found.model.coef, np.longdouble)  # type: ignore[union-attr]
    assert (w @ w) / 2 == pytest.approx(np.longdouble(found.objective), rel=1e-12)


@pytest.mark.parametrize("nu", [0.01, 0.2, 0.9])
def test_the_model_of_libsvm(nu: float, tmp_path: Path) -> None:
    problem = replace(CLOUD, nu=nu)
    found = train(problem.store(tmp_path / "rows.zarr"), replace(OPTIONS, nu=nu, tol=1e-7))
    expected = svm.OneClassSVM(kernel="linear", nu=nu, tol=1e-10).fit(CLOUD.X)
    w = expected.coef_.ravel()
    assert found.status == "converged"
    assert found.objective == pytest.approx(float(w @ w) / 2, rel=1e-7)
    np.testing.assert_allclose(found.model.coef, w, rtol=1e-4)  # type: ignore[union-attr]
    novel = found.model.decide(CLOUD.X.astype(np.float32)) <= 0
    assert np.mean(novel) == pytest.approx(nu, abs=0.01)
    assert np.mean(novel == (expected.decision_function(CLOUD.X) <= 0)) > 0.99


def test_one_read_is_enough_if_enough_rows_are_kept(tmp_path: Path) -> None:
    rows = CLOUD.store(tmp_path / "rows.zarr")
    assert train(rows, replace(OPTIONS, resident_rows=400)).passes == 1
    few = train(rows, replace(OPTIONS, resident_rows=8))
    assert few.status == "converged"
    assert 1 < few.passes < 40
    for scale in (1e-8, 1e-2, 1e2, 1e8):
        assert train(replace(CLOUD, X=CLOUD.X * scale).in_memory(), replace(OPTIONS, resident_rows=400)).passes == 1


def test_more_rows_of_one_score_than_are_kept(tmp_path: Path) -> None:
    """Half of the rows are alike, so that the offset is their score, and no choice of near rows divides them."""
    X = CLOUD.X.copy()
    X[::2] = 1.5
    problem = OneClass(X, 0.5)
    found = train(problem.store(tmp_path / "rows.zarr"), replace(OPTIONS, nu=0.5, resident_rows=40, tol=1e-6))
    w = svm.OneClassSVM(kernel="linear", nu=0.5, tol=1e-10).fit(X).coef_.ravel()
    assert found.status == "converged"
    assert found.objective == pytest.approx(float(w @ w) / 2, rel=1e-5)


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_bits_in_memory_and_resumed(threads: int, tmp_path: Path) -> None:
    rows = CLOUD.store(tmp_path / "rows.zarr")
    asked = replace(OPTIONS, resident_rows=12, tol=1e-8)
    whole = train(rows, asked, tmp_path / "whole")
    assert whole.steps > 3
    for at in (1, whole.steps - 1):
        stopped = train(rows, replace(asked, max_passes=at, threads=threads), tmp_path / f"{at}")
        assert stopped.status == "pass_limit"
        again = train(rows, replace(asked, threads=threads), tmp_path / f"{at}", resume=True)
        assert again.model_sha256 == whole.model_sha256
        assert (again.objective, again.lower_bound) == (whole.objective, whole.lower_bound)


@pytest.mark.parametrize("shape", [(40, 3), (40, 90), (300, 8)])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_nearest_point_of_a_qp_library(shape: tuple[int, int], sparse: bool) -> None:
    rng = np.random.default_rng(shape[1])
    X = ((rng.random(shape) < 0.4) * rng.normal(size=shape)).astype(np.float32)
    costs, g = rng.uniform(0.1, 2.0, shape[0]), rng.normal(size=shape[1])
    total = 0.3 * float(np.sum(costs))
    table = csr_array(X)
    rows: Any = CsrRows(table.data, table.indices, table.indptr.astype(np.int64), shape[1]) if sparse else X
    found = find_nearest(rows, costs, total, g)
    wide = X.astype(np.float64)
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-11
    ones, zeros = np.ones((1, shape[0])), np.zeros(shape[0])
    solver.setup(wide @ wide.T, wide @ g, A=ones, b=np.array([total]), x_l=zeros, x_u=costs)
    solver.solve()
    v = g + wide.T @ solver.result.x
    size = float(np.sum(costs))
    np.testing.assert_allclose(found.v, v, atol=1e-8 * size)
    assert np.all((found.a >= 0.0) & (found.a <= costs))
    assert np.sum(found.a) == pytest.approx(total, rel=1e-12)
    free = (found.a > 1e-6) & (found.a < costs - 1e-6)
    np.testing.assert_allclose(wide[free] @ found.v, found.rho, atol=1e-6 * size)


def test_far_rows_are_summed_up_and_near_rows_kept() -> None:
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(500, 3)).astype(np.float32), rng.integers(0, 3, 500).astype(np.float64)
    centre = Centre(np.array([1.0, -1.0, 0.5]), 0.3, 20, np.linspace(-2, 2, 9))
    parts = []
    for at in (0, 250):
        totals = start_lowest(3, 9)
        for first in range(at, at + 250, 50):
            add_lowest(totals, Rows(first, X[first : first + 50], sample_weight=weight[first : first + 50]), centre)
        parts.append(totals)
    whole = parts[0] + parts[1]
    near, f = join_near(whole.near), X.astype(np.float64) @ centre.w
    reach = np.abs(f - 0.3) / np.sqrt(0.3**2 / 2.25 + np.sum(X.astype(np.float64) ** 2, axis=1))
    is_near = np.isin(f, near.f) & (weight > 0)
    assert 40 <= np.sum(is_near) == len(near.f) <= 80
    assert np.min(reach[~is_near & (weight > 0)]) == pytest.approx(whole.radius)
    low, high = ~is_near & (f < 0.3), ~is_near & (f >= 0.3)
    np.testing.assert_allclose(whole.far[0], weight[low] @ X[low], rtol=1e-12)
    np.testing.assert_allclose(whole.far[2], weight[high] @ X[high], rtol=1e-12)
    assert whole.masses[0] == pytest.approx(np.sum(weight[low]))
    assert whole.low == pytest.approx(np.max(f[low & (weight > 0)]))
    assert whole.high == pytest.approx(np.min(f[high & (weight > 0)]))
    np.testing.assert_allclose(whole.counts, np.histogram(f, [-9, *centre.edges, 9], weights=weight)[0])
    np.testing.assert_allclose(whole.sizes, weight @ np.abs(X), rtol=1e-12)


def test_unsuitable_input() -> None:
    source = ArrayDataset(CLOUD.X, None, None, np.zeros(len(CLOUD.X)))
    with pytest.raises(InputError, match="weights of all rows are zero"):
        train(source, OPTIONS)
    plain = CLOUD.in_memory()
    with pytest.raises(InputError, match=r"nu is 0\.0; a share"):
        train(plain, replace(OPTIONS, nu=0.0))
    with pytest.raises(InputError, match="C is 2: nu replaces it in the task one-class"):
        train(plain, replace(OPTIONS, C=2.0))
    with pytest.raises(InputError, match="kernel rbf: cutting-plane supports only the linear kernel"):
        train(plain, replace(OPTIONS, kernel="rbf"))


def test_what_is_proved_holds_at_every_step() -> None:
    events: list[Event] = []
    found = train(CLOUD.in_memory(), replace(OPTIONS, resident_rows=6, tol=1e-7), listener=events.append)
    for event in events:
        assert event.line["lower_bound"] <= found.objective * (1 + 1e-12)
        assert event.line["objective"] >= found.lower_bound * (1 - 1e-12)  # type: ignore[operator]
