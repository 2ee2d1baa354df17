"""Few resident rows, and costs that are far apart or many features: the solver that is chosen proves the minimum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from streamsvm import LinearSVR
from streamsvm.options import TrainOptions
from streamsvm.solvers.set_up import choose_for_many, choose_solver
from tests.conftest import F64, make_problem

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
    ("weight", "options", "kind"),
    [
        ([1.0, 11.0], {"resident_rows": 5}, "convex"),
        ([0.0, 1.0], {"resident_rows": 5}, "kinked"),
        ([1.0, 1.0], {"resident_rows": 3}, "convex"),
        ([1.0, 1.0], {"resident_rows": 4}, "kinked"),
        ([1.0, 11.0], {"resident_rows": "100%"}, "kinked"),
        ([1.0, 11.0], {}, "kinked"),
        ([1.0, 11.0], {"resident_rows": 5, "solver": "newton"}, "kinked"),
        ([1.0, 11.0], {"resident_rows": 5, "solver": "smo", "kernel": "rbf"}, "kinked"),
        ([1.0, 11.0], {"resident_rows": 5, "kernel": "rbf"}, "kinked"),
    ],
)
def test_cutting_planes_are_chosen_where_resident_rows_tell_little(weight: Any, options: Any, kind: str) -> None:
    source = replace(make_problem(1, n=40, d=3), weight=np.tile(weight, 20)).in_memory()
    asked = TrainOptions(task="regress", **options)
    assert kind in choose_for_many(choose_solver(asked), asked, 1, source).losses
