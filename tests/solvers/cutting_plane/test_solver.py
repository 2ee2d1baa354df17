"""Cutting planes against optima that others find: LIBLINEAR, and PIQP on the dual, which brackets the optimum.

`value` is C in Joachims' scaling: a row costs value / n.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from streamsvm.passes import Step
from streamsvm.solvers.cutting_plane.line_search import CuttingPlane, choose_cut_steps
from tests.conftest import Problem, make_problem
from tests.linear_problems import bracket_by_qp, drive, objective_by_liblinear, primal, with_bias

VALUES = [1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6]
PROBLEMS = {
    "dense": make_problem(1, n=120, d=5),
    "sparse": make_problem(2, n=150, d=30, density=0.2),
    "wide": make_problem(3, n=60, d=200, density=0.05),
    "weighted": make_problem(4, n=150, d=8, weighted=True),
}


def check_certificate(problem: Problem, plane: CuttingPlane, last: Step) -> None:
    """The objective is P of the point it comes with, and both bounds are on their sides of the optimum, tol apart."""
    costs = problem.costs(1.0, *plane.class_costs)
    objective, lower = last.progress.objective, last.progress.lower_bound
    assert last.status == "converged"
    assert lower is not None
    recomputed = primal(problem, costs, last.state.best_w, plane.bias_feature)
    assert objective == pytest.approx(recomputed, rel=1e-9)
    optimum = bracket_by_qp(problem, costs, plane.bias_feature)
    assert optimum.high - optimum.low <= 1e-3 * plane.tol * optimum.high, "the reference is no reference"
    assert lower <= optimum.high * (1 + 1e-12)
    assert objective >= optimum.low * (1 - 1e-12)
    assert last.progress.relative_gap == (objective - lower) / objective
    assert (objective - lower) / objective <= plane.tol


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_optimum_from_smallest_to_largest_c(kind: str, value: float, tol: float) -> None:
    problem = PROBLEMS[kind]
    cost = value / len(problem.y)
    plane = CuttingPlane((cost, cost), tol=tol)
    check_certificate(problem, plane, drive(problem, plane)[-1][1])


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("class_costs", [(0.01, 0.01), (0.3, 0.05), (0.0, 1.0)])
@pytest.mark.parametrize("bias_feature", [1.0, 0.1, 10.0])
def test_weights_of_classes_and_rows_and_the_bias_feature(
    kind: str, class_costs: tuple[float, float], bias_feature: float
) -> None:
    problem = PROBLEMS[kind]
    plane = CuttingPlane(class_costs, tol=1e-5, bias_feature=bias_feature)
    last = drive(problem, plane)[-1][1]
    check_certificate(problem, plane, last)
    if min(class_costs) > 0:
        found = objective_by_liblinear(problem, problem.costs(1.0, *class_costs), bias_feature)
        assert last.progress.objective == pytest.approx(found, rel=2e-5)


def separable() -> Problem:
    problem = make_problem(5, n=60, d=3)
    X = problem.dense() + 5.0 * problem.y[:, None]
    return Problem(X.astype(np.float32), problem.y)


def with_column(problem: Problem, column: float) -> Problem:
    return Problem(np.column_stack((problem.dense(), np.full(len(problem.y), column))).astype(np.float32), problem.y)


def one_positive() -> Problem:
    problem = make_problem(6, n=80, d=4)
    return replace(problem, y=np.where(np.arange(80) == 7, 1, -1))


def empty_rows() -> Problem:
    """Sparse rows, every third without an entry."""
    problem = make_problem(7, n=90, d=20, density=0.3)
    X = problem.dense() * (np.arange(90) % 3 > 0)[:, None]
    return Problem(csr_array(X.astype(np.float32)), problem.y)


def contradictory() -> Problem:
    """Every row with both labels."""
    problem = make_problem(8, n=40, d=4)
    return Problem(np.concatenate([problem.dense()] * 2).astype(np.float32), np.concatenate((problem.y, -problem.y)))


HARD = {
    "separable": separable(),
    "constant feature": with_column(PROBLEMS["dense"], 3.0),
    "zero feature": with_column(PROBLEMS["dense"], 0.0),
    "huge feature": with_column(PROBLEMS["dense"], 1e4),
    "one positive row": one_positive(),
    "empty rows": empty_rows(),
    "contradictory": contradictory(),
}


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("value", [1.0, 1e4])
@pytest.mark.parametrize("accelerated", [True, False])
def test_hard_cases(kind: str, value: float, accelerated: bool) -> None:
    cost = value / len(HARD[kind].y)
    plane = CuttingPlane((cost, cost), tol=1e-3 if accelerated else 0.05, accelerated=accelerated)
    check_certificate(HARD[kind], plane, drive(HARD[kind], plane)[-1][1])


def test_a_row_twice_is_a_row_of_weight_two() -> None:
    once = PROBLEMS["dense"]
    assert isinstance(once.X, np.ndarray)
    twice = Problem(np.concatenate((once.X, once.X)), np.concatenate((once.y, once.y)))
    weighted = replace(once, weight=np.full(len(once.y), 2.0))
    ends = [drive(each, CuttingPlane((0.5, 0.5), tol=1e-8))[-1][1] for each in (twice, weighted)]
    assert ends[0].progress.objective == pytest.approx(ends[1].progress.objective, rel=1e-8)
    np.testing.assert_allclose(ends[0].state.best_w, ends[1].state.best_w, rtol=1e-3, atol=1e-3)


def test_rows_of_no_weight_do_not_matter() -> None:
    problem = PROBLEMS["weighted"]
    assert isinstance(problem.X, np.ndarray)
    assert problem.weight is not None
    kept = problem.weight > 0
    assert 0 < kept.sum() < len(kept)
    rest = Problem(problem.X[kept], problem.y[kept], problem.weight[kept])
    plane = CuttingPlane((0.5, 0.5), tol=1e-8)
    ends = [drive(each, plane)[-1][1].progress.objective for each in (problem, rest)]
    assert ends[0] == pytest.approx(ends[1], rel=1e-8)


def test_nothing_costs_anything() -> None:
    """All weights zero: w = 0 is optimal, and is certified at once."""
    problem = replace(PROBLEMS["dense"], weight=np.zeros(120))
    ((_, step),) = drive(problem, CuttingPlane((1.0, 1.0)))
    assert (step.status, step.progress.objective, step.progress.relative_gap) == ("converged", 0.0, 0.0)
    assert not step.state.best_w.any()


@pytest.mark.parametrize("accelerated", [True, False])
@pytest.mark.parametrize("kind", PROBLEMS)
def test_bounds_only_improve(kind: str, accelerated: bool) -> None:
    progress = [s.progress for _, s in drive(PROBLEMS[kind], CuttingPlane((0.5, 0.5), accelerated=accelerated), 60)]
    objectives, bounds = [p.objective for p in progress], [p.lower_bound for p in progress]
    assert objectives == sorted(objectives, reverse=True)
    assert bounds == sorted(bounds, key=lambda bound: bound or 0.0)
    assert [p.passes for p in progress] == list(range(1, len(progress) + 1))


@pytest.mark.parametrize("kind", PROBLEMS)
def test_line_search_never_leaves_the_best_point_for_a_worse_one(kind: str) -> None:
    """P is recomputed at the point of every step: it falls, and is what is reported."""
    problem, plane = PROBLEMS[kind], CuttingPlane((0.5, 0.5), tol=1e-4)
    costs = problem.costs(0.5)
    found = [(primal(problem, costs, s.state.best_w), s.progress.objective) for _, s in drive(problem, plane)]
    assert all(recomputed == pytest.approx(reported, rel=1e-10) for recomputed, reported in found)
    assert all(after[0] <= before[0] * (1 + 1e-12) for before, after in pairwise(found))


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("epsilon", [0.1, 0.01])
def test_algorithm_1_is_as_published(kind: str, epsilon: float) -> None:
    """One cut a pass, of the rows with margins below 1; stops when it is violated by no more than slack + epsilon."""
    problem = PROBLEMS[kind]
    n = len(problem.y)
    cost = 10.0 / n
    costs = problem.costs(cost)
    plane = CuttingPlane((cost, cost), accelerated=False, epsilon=epsilon, tol=1e-12)
    Z = problem.y[:, None] * with_bias(problem, 1.0)
    steps = drive(problem, plane)
    known, offsets = np.zeros((0, Z.shape[1])), np.zeros(0)
    for k, (scan, step) in enumerate(steps):
        w, start = scan.shared[0][1], scan.shared[0][0]
        assert w.tobytes() == start.tobytes()
        assert len(scan.shared[2]) == 1
        active = Z @ w < 1
        slack = max(0.0, float(np.max(offsets - known @ w, initial=0.0)))
        violation = (costs @ np.maximum(0.0, 1.0 - Z @ w) - slack) / costs.sum()
        assert (step.status == "paper_stop") == (violation <= epsilon and k > 0)  # tol is out of reach
        if k < 40:
            assert len(step.state.cuts) == k + 1
        np.testing.assert_allclose(step.state.cuts[-1], (costs * active) @ Z, atol=1e-12)
        assert step.state.offsets[-1] == pytest.approx(costs @ active)
        known, offsets = step.state.cuts, step.state.offsets
    assert steps[-1][1].status == "paper_stop"
    gap = steps[-1][1].progress.objective - bracket_by_qp(problem, costs).high
    assert gap <= epsilon * costs.sum() * 1.1


@pytest.mark.parametrize("kind", ["dense", "sparse", "weighted"])
def test_line_search_needs_fewer_passes(kind: str) -> None:
    plane = CuttingPlane((0.5, 0.5), tol=1e-2)
    faithful = len(drive(PROBLEMS[kind], replace(plane, accelerated=False)))
    assert len(drive(PROBLEMS[kind], plane)) < faithful / 2


@pytest.mark.parametrize("accelerated", [True, False])
@pytest.mark.parametrize("max_cuts", [4, 5, 6, 7])
def test_no_more_cuts_are_held_than_may_be(max_cuts: int, accelerated: bool) -> None:
    """Too few to converge, perhaps: then it stalls, and the bounds still hold."""
    problem = PROBLEMS["dense"]
    plane = CuttingPlane((1.0, 1.0), max_cuts=max_cuts, accelerated=accelerated)
    steps = drive(problem, plane)
    assert max(len(step.state.cuts) for _, step in steps) == max_cuts
    last = steps[-1][1]
    optimum = bracket_by_qp(problem, problem.costs(1.0))
    assert last.status in ("converged", "stalled")
    assert last.progress.lower_bound is not None
    assert last.progress.lower_bound <= optimum.high
    assert last.progress.objective >= optimum.low


@pytest.mark.parametrize("max_cuts", [8, 20, 64])
def test_cuts_are_dropped_and_the_end_is_the_same(max_cuts: int) -> None:
    """d + 1 = 6 cuts suffice."""
    problem, plane = PROBLEMS["dense"], CuttingPlane((1.0, 1.0), tol=1e-6, max_cuts=max_cuts)
    steps = drive(problem, plane)
    sizes = [len(step.state.cuts) for _, step in steps]
    assert max(sizes) <= max_cuts
    for _, step in steps:
        state, m = step.state, len(step.state.cuts)
        assert len(state.offsets) == len(state.z) == len(state.idle) == m
        np.testing.assert_allclose(state.gram, state.cuts @ state.cuts.T, rtol=1e-12, atol=1e-9)
    check_certificate(problem, plane, steps[-1][1])


def test_every_cut_that_is_kept_is_a_lower_bound() -> None:
    """Of the loss, at any point: what certifies the answer."""
    problem, costs = PROBLEMS["sparse"], PROBLEMS["sparse"].costs(0.5)
    random, Z = np.random.default_rng(0), problem.y[:, None] * with_bias(problem, 1.0)
    state = drive(problem, CuttingPlane((0.5, 0.5)))[-1][1].state
    for w in [state.best_w, *random.normal(size=(20, Z.shape[1]))]:
        loss = costs @ np.maximum(0.0, 1.0 - Z @ w)
        assert np.all(state.offsets - state.cuts @ w <= loss * (1 + 1e-12) + 1e-9)


@pytest.mark.parametrize("accelerated", [True, False])
def test_more_than_float64_can_give_is_called_stalled(accelerated: bool) -> None:
    """It ends with bounds as good as they get, and says whether it has reached tol; now and then it has."""
    plane = CuttingPlane((1.0, 1.0), tol=1e-16, accelerated=accelerated)
    ends = [drive(make_problem(seed, n=120, d=5), plane)[-1][1] for seed in range(6)]
    for last in ends:
        gap = last.progress.relative_gap
        assert gap is not None
        assert (last.status, gap > 1e-16) in (("stalled", True), ("converged", False))
        assert 0 <= gap < 1e-9
    assert "stalled" in [last.status for last in ends]


@given(st.floats(min_value=0.0, max_value=1.0, exclude_min=True), st.integers(1, 16))
def test_cut_steps_ascend_to_one(last_step: float, k: int) -> None:
    """However small the step before has become: kernels divide by their differences."""
    steps = choose_cut_steps(last_step, k)
    assert 1 <= len(steps) <= k
    assert steps[-1] == 1.0
    assert np.all(np.diff(np.concatenate(([0.0], steps))) > 0)


@settings(max_examples=25)
@given(st.sampled_from([1, 10, 200, 5000]), st.none() | st.integers(4, 200))
def test_memory_is_at_most_what_is_planned(n_features: int, max_cuts: int | None) -> None:
    """The state, once as many cuts are held as may be."""
    plane = CuttingPlane((1.0, 1.0), max_cuts=max_cuts)
    m, width = plane.most_cuts(n_features + 1), n_features + 1
    assert 64 <= m <= 1000 or m == max_cuts
    assert 8 * (m * width + m * m + 3 * m + 2 * width) <= plane.driver_bytes(width)
    assert 4 <= plane.cut_points(width) <= 16
