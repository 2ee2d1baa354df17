"""The lower bounds of Newton's method lie below the minimum that a Newton method in long double finds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array

from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import F64, Rows
from streamsvm.problems.classification import Logistic, SquaredHinge
from streamsvm.solvers.newton.steps import (
    STEPS,
    Look,
    Point,
    bound_by_gradient,
    bound_in_ball,
    bound_on_sphere,
    make_point,
    measure_line,
    sum_rows,
)
from tests.conftest import Problem, choose_examples, make_problem
from tests.smooth_problems import LOSSES, Smooth, make_smooth

MAKE = {"squared_hinge": SquaredHinge, "logistic": Logistic}


@dataclass(frozen=True)
class Case:
    """Rows of a problem, P in long double, its minimiser and minimum."""

    rows: Rows
    smooth: Smooth
    look: Look
    w: F64
    least: np.longdouble


def make_case(
    loss: str, seed: int, C: float = 1.0, scale: float = 1.0, sparse: bool = False, weighted: bool = False, n: int = 40
) -> Case:
    """Random rows; C is shared out so that positive rows cost three times as much."""
    drawn = make_problem(seed, n, 4, 0.5 if sparse else 1.0, weighted)
    X = drawn.X * np.float32(scale)
    problem = Problem(csr_array(X) if sparse else X, drawn.y, drawn.weight)
    smooth = make_smooth(problem, loss, problem.costs(C, 1.0, 3.0))
    w, least = smooth.minimise()
    look = Look(MAKE[loss]((C, 3 * C)), 1.0, RowNorm(np.eye(5)))
    return Case(problem.in_memory().take(np.arange(n)), smooth, look, w.astype(np.float64), least)


def find_bounds(case: Case, w: F64, share: float, fitted: bool = True) -> tuple[Point, Look, float, float]:
    """The point at w, what was looked for, and both lower bounds with their rounding taken off.

    The ball is that of the scatter of the curvature, `share` times as wide as Newton's step is long.
    """
    M = np.eye(5)
    gradient, bends = case.smooth.slopes(w.astype(np.longdouble))
    if fitted:
        M = M + np.asarray((case.smooth.Z.T * bends) @ case.smooth.Z, np.float64)
    M = M + np.diag(1e-14 * np.diagonal(M))
    A = np.ascontiguousarray(solve_triangular(cholesky(M), np.eye(5)).T)
    reach = share * float(np.linalg.norm(A @ gradient.astype(np.float64)))
    look = replace(case.look, norm=RowNorm(A), reach=reach)
    totals = sum_rows(case.rows, np.stack((w, w)), look)
    point = make_point(w, totals, look, case.rows.n_rows)
    bounds = (bound_by_gradient(point), bound_in_ball(point, look, totals.least, case.rows.n_rows))
    return point, look, *(value - rounding for value, rounding in bounds)


def check(case: Case, w: F64, share: float, fitted: bool) -> None:
    """Both bounds are below the minimum, and P and its gradient are as far off as they are said to be at most."""
    point, look, by_gradient, in_ball = find_bounds(case, w, share, fitted)
    assert by_gradient <= case.least
    assert in_ball <= case.least
    assert abs(point.objective - case.smooth.value(w)) <= point.objective_error
    off = case.smooth.slopes(w.astype(np.longdouble))[0] - point.gradient
    assert np.sqrt(off @ off) <= point.gradient_error
    off_in_ball = look.norm.A.astype(np.longdouble) @ off
    assert look.reach == 0.0 or np.sqrt(off_in_ball @ off_in_ball) <= point.error_in_ball


@settings(max_examples=choose_examples(20, 300, 3000))
@given(
    loss=st.sampled_from(LOSSES),
    seed=st.integers(0, 1000),
    log_C=st.floats(-8, 8),
    log_scale=st.floats(-8, 8),
    sparse=st.booleans(),
    weighted=st.booleans(),
    log_way=st.floats(-12, 1),
    share=st.sampled_from([0.3, 1.0, 1.9, 2.5, 5.0]),
    fitted=st.booleans(),
)
def test_no_bound_is_above_the_minimum(
    loss: str,
    seed: int,
    log_C: float,
    log_scale: float,
    sparse: bool,
    weighted: bool,
    log_way: float,
    share: float,
    fitted: bool,
) -> None:
    """At points from right beside the minimiser to far away, and balls that contain it or do not."""
    case = make_case(loss, seed, 10.0**log_C, 10.0**log_scale, sparse, weighted)
    way = np.random.default_rng(seed).normal(size=5) * (np.abs(case.w) + 1e-3 * np.linalg.norm(case.w) + 1e-300)
    check(case, case.w + 10.0**log_way * way, share, fitted)
    check(case, case.w, share, fitted)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_ball_brings_a_far_higher_bound_than_the_gradient(loss: str, sparse: bool) -> None:
    """Near the minimiser of many rows, where a bound that does not know the curvature is far below."""
    case = make_case(loss, 3, C=1.0, sparse=sparse, n=1000)
    w = case.w + 1e-4 * np.random.default_rng(0).normal(size=5)
    by_gradient, in_ball = find_bounds(case, w, 3.0)[2:]
    assert 0.0 < case.least - in_ball < 0.1 * (case.least - by_gradient)
    assert case.least - in_ball < 1e-6 * case.least


@pytest.mark.parametrize("loss", LOSSES)
def test_a_ball_without_the_minimiser_proves_nothing(loss: str) -> None:
    """Far from the minimiser, in a ball a tenth as wide as the step, P falls towards the sphere."""
    case = make_case(loss, 4, n=500)
    w = case.w + np.array([0.3, 0.0, 0.0, 0.0, 0.3])
    assert find_bounds(case, w, 0.1)[3] == 0.0
    assert find_bounds(case, w, 0.0)[3] == 0.0


def test_no_curvature_is_added_that_the_ball_does_not_have() -> None:
    """Rows that leave the margin within the ball: with their curvature at the point the bound would be above."""
    X = np.array([[1.0], [1.0], [-1.0]], np.float32)
    problem = Problem(X, np.array([1, 1, -1]), np.array([1.0, 5.0, 0.2]))
    smooth = make_smooth(problem, "squared_hinge", problem.costs(10.0))
    _, least = smooth.minimise()
    for share in (1.0, 1.5, 3.0):
        for start in np.linspace(-3, 3, 61):
            w = np.array([start, 0.3])
            norm = RowNorm(np.eye(2))
            look = Look(SquaredHinge((10.0, 10.0)), 1.0, norm, share * float(np.hypot(*w)))
            totals = sum_rows(problem.in_memory().take(np.arange(3)), np.stack((w, w)), look)
            value, rounding = bound_in_ball(make_point(w, totals, look, 3), look, totals.least, 3)
            assert value - rounding <= least


@pytest.mark.parametrize("seed", range(40))
def test_the_bound_on_the_sphere_is_below_every_point_of_it(seed: int) -> None:
    """And not far below the lowest of them: between them is what a descent on the sphere has left."""
    random = np.random.default_rng(seed)
    width = int(random.integers(1, 7))
    values = np.sort(10.0 ** random.uniform(-3, 3, width)) - (1.0 if seed % 4 == 0 else 0.0)
    slopes, radius = random.normal(size=width) * 10.0 ** random.uniform(-4, 4), 10.0 ** random.uniform(-3, 3)
    if seed % 3 == 0:
        slopes[0] = 0.0  # the hard case of trust regions
    u = random.normal(size=(4000, width))
    u = np.concatenate(
        (u, np.eye(width), -np.eye(width), u * -slopes, -slopes / (values - values[0] + 10.0 ** u[:, :1]))
    )
    u = u[np.linalg.norm(u, axis=1) > 0]
    u = radius * u / np.linalg.norm(u, axis=1)[:, None]
    reached = u @ slopes + u**2 @ values / 2
    bound, size = (
        bound_on_sphere(values, slopes, radius),
        float(np.abs(values).max() * radius**2 + np.linalg.norm(slopes) * radius),
    )
    assert bound <= reached.min() + 1e-12 * size
    assert bound >= reached.min() - 0.05 * size


@pytest.mark.parametrize("loss", LOSSES)
def test_the_objective_along_the_line_is_as_far_off_as_it_is_said_to_be(loss: str) -> None:
    case = make_case(loss, 7, C=100.0, scale=1e4)
    ends = np.stack((np.random.default_rng(1).normal(size=5), case.w))
    objectives, errors = measure_line(ends, np.array(STEPS), sum_rows(case.rows, ends, case.look), case.rows.n_rows)
    for step, objective, error in zip(STEPS, objectives, errors, strict=True):
        true = case.smooth.value(ends[0].astype(np.longdouble) + step * (ends[1] - ends[0]))
        assert abs(objective - true) <= error <= 1e-6 * true


@pytest.mark.parametrize("loss", LOSSES)
def test_the_rounding_of_scores_counts_in_the_gradient(loss: str) -> None:
    """Near the minimiser of rows far from the origin, where large products cancel and slopes are small."""
    drawn = make_problem(9, 200, 4)
    problem = Problem(drawn.X + np.float32(1e4), drawn.y)
    smooth = make_smooth(problem, loss, problem.costs(1e3))
    rows, w = problem.in_memory().take(np.arange(200)), smooth.minimise()[0].astype(np.float64)
    look = Look(MAKE[loss]((1e3, 1e3)), 1.0, RowNorm(np.eye(5)))
    totals = sum_rows(rows, np.stack((w, w)), look)
    point = make_point(w, totals, look, 200)
    off = smooth.slopes(w.astype(np.longdouble))[0] - point.gradient
    assert bound_rounding(200, totals.steep) < 1e3 * np.sqrt(off @ off)  # that of the sum alone is not far from it
    assert np.sqrt(off @ off) <= point.gradient_error
    assert point.gradient_error >= totals.moved > 10 * bound_rounding(200, totals.steep)


def test_the_rounding_of_scores_counts_in_the_ball() -> None:
    """Rows that can be separated have small slopes, which high costs move by far more than the sums are off."""
    random = np.random.default_rng(0)
    y = np.repeat([-1, 1], 8)
    X = np.column_stack((y + random.normal(size=16) * 0.1, random.normal(size=(16, 3)))).astype(np.float32)
    problem = Problem(X, y)
    smooth = make_smooth(problem, "squared_hinge", problem.costs(1e14))
    w, least = smooth.minimise()
    rounded = w.astype(np.float64)
    case = Case(
        problem.in_memory().take(np.arange(16)),
        smooth,
        Look(SquaredHinge((1e14, 1e14)), 1.0, RowNorm(np.eye(5))),
        rounded,
        least,
    )
    look = replace(case.look, norm=RowNorm(1e-7 * np.eye(5)), reach=1e-3)
    totals = sum_rows(case.rows, np.stack((rounded, rounded)), look)
    point = make_point(rounded, totals, look, 16)
    off = look.norm.A.astype(np.longdouble) @ (smooth.slopes(rounded.astype(np.longdouble))[0] - point.gradient)
    assert bound_rounding(16 + 24, totals.steep_in_ball) < np.sqrt(off @ off) <= point.error_in_ball


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scales", [[1e-4, 1.0, 1e4, 1e2], [1e6, 1e6, 1e6, 1e6]], ids=["mixed", "large"])
def test_the_error_in_the_ball_does_not_depend_on_the_scales_of_features(loss: str, scales: list[float]) -> None:
    """The gradient's own length belongs to its largest entries, and |A| to the smallest."""
    drawn = make_problem(9, 200, 4)
    problem = Problem((drawn.X * np.array(scales)).astype(np.float32), drawn.y)
    smooth = make_smooth(problem, loss, problem.costs(1.0))
    found, least = smooth.minimise()
    w = found.astype(np.float64) * (1 + 1e-6 * np.random.default_rng(0).normal(size=5))
    look = Look(MAKE[loss]((1.0, 1.0)), 1.0, RowNorm(np.eye(5)))
    case = Case(problem.in_memory().take(np.arange(200)), smooth, look, w, least)
    point, look, _, in_ball = find_bounds(case, w, 5.0)
    assert point.error_in_ball < 1e-9 * point.objective
    assert look.norm.size * point.gradient_error > 100 * point.error_in_ball
    assert 0 <= least - in_ball < 1e-6 * least
