"""Losses and cuts at several points, against their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.numeric.rows import F64
from streamsvm.solvers.cutting_plane.line_search import add_points, read_cuts, start_points
from tests.conftest import make_problem


@pytest.mark.parametrize("density", [1.0, 0.4])
def test_cuts_at_points_by_force(density: float) -> None:
    problem = make_problem(7, n=50, d=4, weighted=True, density=density)
    W = np.random.default_rng(0).standard_normal((3, 5))
    totals = start_points(3, 5)
    for index in range(problem.in_memory().n_chunks):
        add_points(totals, problem.in_memory().read(index), W, np.array([0.5, 2.0]), 1.5)
    costs = problem.costs(1.0, 0.5, 2.0)
    Z: F64 = problem.y[:, None] * np.column_stack((problem.dense(), np.full(50, 1.5)))
    cuts = read_cuts(totals)
    for k in range(3):
        margins = Z @ np.append(W[k, :-1], W[k, -1])
        active = margins < 1
        assert totals.losses[k] == pytest.approx(costs @ np.maximum(0, 1 - margins))
        assert cuts.offsets[k] == pytest.approx(costs @ active)
        np.testing.assert_allclose(cuts.vectors[k], (costs * active) @ Z, atol=1e-10)
