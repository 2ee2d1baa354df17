"""Few resident rows, and costs that are far apart or many features: the solver that is chosen proves the minimum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from streamsvm import LinearSVR
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.cutting_plane.line_search_setup import AnyLossSolver, TwoSolvers
from streamsvm.solvers.newton import setup as newton
from streamsvm.solvers.set_up import set_up
from tests.conftest import F64, make_problem
from tests.solvers.cutting_plane.test_against_line_search import make_rows

WIDTH = 0.1


def draw(seed: int) -> tuple[F64, F64, F64]:
    """Rows, targets and weights over twelve decades; the rows of some seeds are far from 0."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(int(rng.integers(60, 201)), 3)) + 100.0 * (seed % 3 == 0)).astype(np.float32)
    rows = X.astype(np.float64)
    return rows, rows @ rng.normal(size=3) + rng.normal(size=len(rows)), 10.0 ** rng.uniform(-6.0, 6.0, size=len(rows))


def measure(w: F64, X: F64, y: F64, weight: F64) -> float:
    """P of weights (d+1,), the last of which is the bias."""
    missed = np.maximum(np.abs(X @ w[:-1] + w[-1] - y) - WIDTH, 0.0)
    return float(w @ w / 2 + weight @ missed)


def bound_by_tangents(found: F64, X: F64, y: F64, weight: F64) -> float:
    """A lower bound of the minimum: that of the losses, as a linear program, beside tangents of 1/2 w^2 near w."""
    n, d = X.shape
    Z = np.column_stack([X, np.ones(n)])
    offsets = np.concatenate([[0.0], *((-s, s) for s in 10.0 ** np.linspace(-4.0, 1.0, 40))])
    at = found[:, None] + np.maximum(np.abs(found[:, None]), 1e-3) * offsets  # tangents of each square
    tangents = np.zeros((at.size, 2 * (d + 1) + n))
    for j in range(d + 1):
        own = slice(j * len(offsets), (j + 1) * len(offsets))
        tangents[own, j], tangents[own, d + 1 + n + j] = at[j], -1.0
    share = np.maximum(weight, 1e-12)  # xi is the weighted loss, so that no number is beyond the tolerance
    none = np.zeros((n, d + 1))
    lines = [np.hstack([sign * Z, np.diag(-1.0 / share), none]) for sign in (1.0, -1.0)]
    solved = linprog(
        np.r_[np.zeros(d + 1), np.ones(n + d + 1)],
        A_ub=np.vstack([*lines, tangents]),
        b_ub=np.r_[y + WIDTH, WIDTH - y, at.ravel() ** 2 / 2],
        bounds=[(None, None)] * (d + 1) + [(0.0, None)] * (n + d + 1),
    )
    assert solved.status == 0
    return float(solved.fun)


@pytest.mark.parametrize("seed", range(8))
def test_the_minimum_is_proved(seed: int) -> None:
    X, y, weight = draw(seed)
    model = LinearSVR(epsilon=WIDTH, tol=1e-3, resident_rows=20).fit(X, y, sample_weight=weight)
    assert model.status_ == "converged"
    w = np.append(model.coef_, model.intercept_)
    assert measure(w, X, y, weight) == pytest.approx(model.objective_, rel=1e-6)
    assert bound_by_tangents(w, X, y, weight) == pytest.approx(model.objective_, rel=3e-3)


def test_the_minimum_is_proved_with_fewer_resident_rows_than_features() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(130, 140)).astype(np.float32)
    y = X[:, 0] + rng.normal(size=130)
    model = LinearSVR(epsilon=WIDTH, C=20.0, resident_rows=13).fit(X, y)
    assert model.status_ == "converged"
    assert measure(np.append(model.coef_, model.intercept_), X, y, np.full(130, 20.0)) == pytest.approx(
        model.objective_, rel=1e-6
    )


@pytest.mark.parametrize(
    ("options", "alone", "beside"),
    [
        ({"resident_rows": 3}, True, False),
        ({"resident_rows": 4}, False, True),
        ({"resident_rows": 39}, False, True),
        ({"resident_rows": "100%"}, False, False),
        ({}, False, False),
        ({"resident_rows": 3, "solver": "newton"}, False, True),
        ({"resident_rows": 5, "loss": "squared_epsilon_insensitive"}, False, False),
        ({"resident_rows": 5, "solver": "smo", "kernel": "rbf", "gamma": 1.0}, False, False),
        ({"resident_rows": 5, "kernel": "rbf", "gamma": 1.0}, False, False),
    ],
)
def test_cutting_planes_replace_or_accompany_newtons_method_where_few_rows_are_resident(
    options: Any, alone: bool, beside: bool
) -> None:
    solver = set_up(make_problem(1, n=40, d=3).in_memory(), TrainOptions(task="regress", **options))
    assert (isinstance(solver, AnyLossSolver), isinstance(solver, TwoSolvers)) == (alone, beside)


def test_newtons_method_is_alone_from_enough_resident_rows_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newton, "ENOUGH_RESIDENT", 10)  # so that 10 rows for each of two weights are more
    source = make_problem(1, n=40, d=1).in_memory()
    solvers = [set_up(source, TrainOptions(task="regress", resident_rows=count)) for count in (19, 20)]
    assert [isinstance(solver, TwoSolvers) for solver in solvers] == [True, False]


def test_heavy_rows_that_are_not_resident_do_not_stall_a_regression(tmp_path: Path) -> None:
    """Newton's method alone does not prove the gap in 300 passes. A killed run goes on to the same bits."""
    rows = make_rows("heavy", 26, 33, 16)
    assert isinstance(rows.X, np.ndarray)
    source = ArrayDataset(rows.X, None, None, target=rows.X[:, 0] + np.random.default_rng(1).standard_normal(33))
    options = TrainOptions(task="regress", C=17.5, tol=1e-5, epsilon=WIDTH, resident_rows=24, max_passes=60)
    whole = train(source, options)
    train(source, replace(options, max_passes=5), tmp_path / "run")
    resumed = train(source, replace(options, threads=2), tmp_path / "run", resume=True)
    assert whole.status == "converged"
    assert (resumed.model_sha256, resumed.passes) == (whole.model_sha256, whole.passes)
