"""Where rounding is the limit, cutting planes say so, and do not go on for long."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import LinearSVC
from streamsvm.numeric.rows import F64
from streamsvm.passes import Progress
from streamsvm.solvers.cutting_plane.cuts import RowSums
from streamsvm.solvers.cutting_plane.line_search import add_points, read_cuts, start_points
from streamsvm.solvers.cutting_plane.score_model import minimise_by_cuts
from streamsvm.solvers.cutting_plane.smoothed_newton import Linear
from streamsvm.solvers.one_read.state import OneRead, start_state
from streamsvm.solvers.one_read.trust_region import INNER_STEPS, search_line
from tests.conftest import make_problem


@pytest.mark.slow("trains until rounding is the limit")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_bound_that_kept_the_lower_bound_down_is_told() -> None:
    """Cuts of 1e22 leave no digit of |w|^2: no bound but a tiny one is proved, and the charge explains the gap."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(100, 3)) * [1e3, 1e10, 1e10]).astype(np.float32)
    y, weight = rng.integers(0, 2, 100), 10.0 ** rng.uniform(-6, 6, 100)
    model = LinearSVC(C=6e5, resident_rows=50, tol=1e-6, n_jobs=1, max_passes=1000)
    model.fit(X, y, sample_weight=weight)
    assert model.status_ == "stalled"
    assert model.objective_ - model.lower_bound_ <= 10 * model.rounding_bound_
    assert model.n_passes_ < 500  # ten times as many steps are made where rounding does not explain the gap


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_steps_within_the_rounding_of_the_lower_bound_are_given_up(seed: int) -> None:
    """Equal rows of both labels cancel in w, so that D is off by more than tol, though P is optimal.

    No w is better than 0 at the rows of a point, so their least loss is twice the cost of the rarer label. P went on to
    fall by 1e-9 of itself for 80 to 250 passes.
    """
    rng = np.random.default_rng(seed)
    point = rng.integers(0, 20, 60)
    X, y = (1e7 * rng.normal(size=(20, 450))[point]).astype(np.float32), rng.integers(0, 2, 60)
    model = LinearSVC(C=5e7, tol=1e-6, n_jobs=1).fit(X, y)
    optimum = 5e7 * sum(2 * min(np.sum(y[point == k]), np.sum(1 - y[point == k])) for k in range(20))
    assert model.status_ == "stalled"
    assert model.objective_ == pytest.approx(optimum, rel=1e-6)
    assert model.lower_bound_ + model.rounding_bound_ == pytest.approx(optimum, rel=1e-4)
    assert f"rounding can account for {model.rounding_bound_ / model.objective_:.1e}" in model.result_.status_reason
    assert model.n_passes_ < 75


def test_a_tried_bound_is_no_part_of_the_proof() -> None:
    progress = Progress(1.0, 1.0 - 1e-7, 3, rounding_bound=1e-9, tried_bound=1e-3)
    assert progress.is_proved(1e-6)
    assert progress.report_rounding("converged") == 1e-9
    assert progress.report_rounding("stalled") == 1e-3
    assert Progress(1.0, 0.5, 3, rounding_bound=1e-9, tried_bound=0.1).is_rounded
    assert not Progress(1.0, 0.5, 3, rounding_bound=1e-9).is_rounded


def test_the_sample_is_given_up_where_steps_no_longer_move_it() -> None:
    """No gap is small enough here, so that all steps would be made."""
    problem = make_problem(5, n=100, d=3)
    source, settings = problem.in_memory(), OneRead((1.0, 1.0), 100)
    state = start_state(settings, source.n_rows, source.n_features)
    looks: list[int] = []
    rows, costs = source.take(np.arange(100)), np.ones(2)

    def search(ends: F64) -> tuple[F64, F64, RowSums]:
        looks.append(1)
        return search_line(rows, settings, ends)

    totals = start_points(1, 4)
    add_points(totals, rows, state.points, costs, 1.0)
    _, _, points, _ = minimise_by_cuts(
        search, Linear(np.zeros(4), 0.0), state, state.points, read_cuts(totals), share=-1.0, most_steps=INNER_STEPS
    )
    assert len(looks) < INNER_STEPS
    assert len(points) > 5
