"""Bounds of how much a score changes when w moves: true in long double, whatever the scales, and sharp."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.numeric.row_norms import RowNorm, add_sizes, bound_rows, make_norm, measure_rows, measure_scaled_rows
from streamsvm.numeric.rows import Rows
from tests.conftest import F64, Problem, make_problem
from tests.linear_problems import with_bias

LONG = np.longdouble


def hold(problem: Problem) -> Rows:
    return problem.in_memory().take(np.arange(len(problem.y)))


def spread(problem: Problem, scales: F64) -> Problem:
    values = problem.dense() * scales
    return Problem(values.astype(np.float32), problem.y)


def bound_changes(norm: RowNorm, rows: Rows, move: F64, bias_feature: float) -> F64:
    """At least |move.x| of every row."""
    moved, rest = norm.bound_move(move)
    measured, lengths = measure_rows(norm, rows, bias_feature)
    return moved * measured + rest * lengths


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 10),
    n=st.integers(2, 60),
    log_scale=st.floats(-14, 14),
    spread_by=st.sampled_from([0.0, 3.0]),
    density=st.sampled_from([1.0, 0.3]),
    bias_feature=st.sampled_from([1.0, 100.0]),
    repeated=st.booleans(),
)
def test_no_score_changes_by_more(
    seed: int, d: int, n: int, log_scale: float, spread_by: float, density: float, bias_feature: float, repeated: bool
) -> None:
    """Also where rows are repeated, so that their scatter is singular."""
    random = np.random.default_rng(seed)
    scales = 10.0 ** (log_scale + random.uniform(-spread_by, spread_by, d))
    problem = spread(make_problem(seed, n=n, d=d, density=density), scales)
    if repeated:
        problem = Problem(np.repeat(problem.X[:1], n, axis=0), problem.y)
    rows = hold(problem)
    norm = make_norm(rows, bias_feature)
    move = random.normal(size=d + 1) / np.append(scales, bias_feature)
    changes = np.abs(with_bias(problem, bias_feature).astype(LONG) @ move.astype(LONG))
    assert np.all(changes <= bound_changes(norm, rows, move, bias_feature))


def test_the_bound_is_reached() -> None:
    """By the row that is M v, for the move v, but for the rounding of float32."""
    problem = make_problem(1, n=300, d=6)
    norm = make_norm(hold(problem), 1.0)
    M, move = norm.find_scatter(), np.random.default_rng(0).normal(size=7)
    X = with_bias(problem, 1.0)
    np.testing.assert_allclose(M, X.T @ X / 300, rtol=1e-5, atol=1e-5)
    worst = (M @ move) / (M @ move)[-1]
    row = Problem(worst[None, :-1].astype(np.float32), np.array([1]))
    change = abs(float(with_bias(row, 1.0)[0] @ move))
    assert change == pytest.approx(float(bound_changes(norm, hold(row), move, 1.0)[0]), rel=1e-3)


def test_sparse_rows_have_the_norms_of_dense_ones() -> None:
    problem = make_problem(2, n=50, d=8, density=0.3)
    dense = Problem(problem.dense().astype(np.float32), problem.y)
    norm = make_norm(hold(problem), 1.0)
    np.testing.assert_allclose(norm.A, make_norm(hold(dense), 1.0).A, rtol=1e-9, atol=1e-12)
    for own, other in zip(measure_rows(norm, hold(problem), 1.0), measure_rows(norm, hold(dense), 1.0), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4)


def test_rows_beyond_float32_have_endless_norms() -> None:
    """They count as rows that may cross the margin on any move."""
    problem = Problem(np.array([[1e30, 1.0], [1e-30, 2.0], [1.0, 3.0]], np.float32), np.array([1, -1, 1]))
    norm = RowNorm(np.diag([1e30, 1.0, 1.0]))
    measured = measure_rows(norm, hold(problem), 1.0)[0]
    assert np.isinf(measured[0])
    assert not np.isnan(measured).any()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 10),
    spread_by=st.sampled_from([0.0, 3.0]),
    density=st.sampled_from([1.0, 0.3]),
    bias_feature=st.sampled_from([0.0, 1.0, 100.0]),
)
def test_norms_are_bounded_by_squares(seed: int, d: int, spread_by: float, density: float, bias_feature: float) -> None:
    """In long double, and sharply where the features are independent and have one scale."""
    random = np.random.default_rng(seed)
    problem = spread(make_problem(seed, n=60, d=d, density=density), 10.0 ** random.uniform(-spread_by, spread_by, d))
    rows = hold(problem)
    norm = make_norm(rows, bias_feature)
    bounds, lengths = bound_rows(norm.bound_by_squares(), rows, bias_feature)
    X = with_bias(problem, bias_feature).astype(LONG)
    assert np.all(bounds >= np.linalg.norm((X @ norm.A.T.astype(LONG)).astype(float), axis=1) * (1 - 1e-12))
    assert np.all(lengths >= np.sqrt(np.sum(X * X, axis=1)))


def test_the_bound_by_squares_is_the_norm_of_rows_whose_features_do_not_belong_together() -> None:
    norm, rows = RowNorm(np.diag([3.0, 0.1, 7.0])), hold(make_problem(3, n=40, d=2))
    bounds, measured = bound_rows(norm.bound_by_squares(), rows, 2.0)[0], measure_rows(norm, rows, 2.0)[0]
    np.testing.assert_allclose(bounds, measured, rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 10),
    log_scale=st.floats(-12, 12),
    spread_by=st.sampled_from([0.0, 6.0]),
    density=st.sampled_from([1.0, 0.3]),
    bias_feature=st.sampled_from([0.0, 1.0, 100.0]),
)
def test_norms_of_scaled_rows_are_bounds_on_every_scale(
    seed: int, d: int, log_scale: float, spread_by: float, density: float, bias_feature: float
) -> None:
    """In long double; and sharp, whatever the scales, where features are independent."""
    random = np.random.default_rng(seed)
    scales = 10.0 ** (log_scale + random.uniform(-spread_by, spread_by, d))
    problem = spread(make_problem(seed, n=60, d=d, density=density), scales)
    rows, X = hold(problem), np.abs(with_bias(problem, bias_feature).astype(LONG))
    norm = RowNorm(random.normal(size=(d + 1, d + 1)) / np.append(problem.dense().std(axis=0) + 1e-30, 1.0))
    columns, others = norm.measure_columns(), random.normal(size=d + 1)
    lengths, first, second = add_sizes(rows, np.stack((columns, others)), bias_feature)
    np.testing.assert_allclose(lengths, np.sqrt(np.sum(X * X, axis=1)).astype(float), rtol=1e-12)
    np.testing.assert_allclose(first, (X @ columns.astype(LONG)).astype(float), rtol=1e-12)
    np.testing.assert_allclose(second, (X @ np.abs(others).astype(LONG)).astype(float), rtol=1e-12)
    measured = measure_scaled_rows(norm, rows, bias_feature, first)
    true = np.linalg.norm((with_bias(problem, bias_feature).astype(LONG) @ norm.A.T.astype(LONG)).astype(float), axis=1)
    assert np.all(measured >= true * (1 - 1e-12))
    assert np.all(measured <= true * (1 + 1e-12) + 1e-5 * first + 1e-25)
