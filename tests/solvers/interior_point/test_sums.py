"""What `assemble` adds up, and the bound that it proves, written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.numeric.rows import F64, Rows, to_dense
from streamsvm.solvers.interior_point.passes import add_assembled, start_assembled
from streamsvm.solvers.interior_point.state import find_lower_bound
from streamsvm.solvers.interior_point.steps import Course, arrive, begin, correct, move_row, predict
from tests.kernel_problems import to_csr

N, D = 50, 4
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, D)).astype(np.float32)
CODES = (np.arange(N) % 3 == 0).astype(np.int32)
Y = np.where(CODES == 1, 1.0, -1.0)
COSTS = np.where(CODES == 1, 2.0, 0.5)
COURSE = Course(0.1, 0.2, 1.0, 0.1, 1.0, 0.3, 0.4)
S, T, XI, R = RANDOM.uniform(0.1, 1.8, (4, N))  # some t above 1: multipliers above their bounds


def keep(f: F64, after: F64) -> F64:
    """What the rows keep at the point of this module."""
    return np.stack((f, S, T, XI, R, Y, COSTS, np.zeros(N), np.zeros(N), after))


def test_sums_at_a_point() -> None:
    """Two tiles of two groups; Q is limited by class."""
    f, b = X @ np.ones(D), 0.2
    limits, numbers = np.array([1.5, 2.5]), keep(f, f)
    parts, course = [start_assembled(D), start_assembled(D)], Course(b, 0.0, 0.0, 0.0, 1.0)
    for part, rows in zip((0, 0, 1), (slice(0, 10), slice(10, 33), slice(33, N)), strict=True):
        tile, own = Rows(rows.start, X[rows], CODES[rows]), numbers[:, rows].copy()
        add_assembled(parts[part], tile, course, limits, "omega", (1.0, 0), True, own)
    found = parts[0] + parts[1]
    omega = S / T + XI / R
    W, Q = COSTS / omega, omega <= np.where(Y > 0, 2.5, 1.5)
    assert 0 < Q.sum() < N
    side = (Y * (f + b) + XI - 1 - S) + S - (XI * (1 - T - R) + XI * R) / R
    alpha = COSTS * T
    np.testing.assert_allclose(found.gram.finish(), np.triu((X * W[:, None])[Q].T @ X[Q]), rtol=1e-6)
    assert found.chosen_rows == Q.sum()
    coefs = np.stack((W, Y * W * side, Y / omega * (1 / R - 1 / T), alpha * (Y > 0), alpha * (Y < 0), W * Q))
    np.testing.assert_allclose(found.sums, coefs @ X, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.ones, coefs.sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(found.magnitudes[0], COSTS @ np.abs(X), rtol=1e-6)
    np.testing.assert_array_equal(found.magnitudes[1], np.abs(X).max(axis=0))
    assert found.complementarity == pytest.approx(COSTS @ (S * T + XI * R))
    assert (found.total_cost, found.positive_cost) == (COSTS.sum(), COSTS[Y > 0].sum())
    assert (found.largest_cost, found.counted_rows, found.shortest) == (2.0, N, np.inf)
    assert found.depth == (3 + 2) + (6 + 2) + 1  # 10 and 23 rows by fours, and each tile's own sums; then two groups
    assert found.additions == 2 + 1


def test_magnitudes_of_sparse_rows_leave_out_rows_of_no_cost() -> None:
    sparse, weight = to_csr(np.where(np.abs(X) > 0.5, X, np.float32(0))), (np.arange(N) % 2).astype(float)
    found, limits, course = start_assembled(D), np.full(2, np.inf), Course(0.0, 0.0, 0.0, 0.0, 1.0)
    numbers = begin(None, Rows(0, sparse, CODES, weight), np.array([0.5, 2.0]))
    add_assembled(found, Rows(0, sparse, CODES, weight), course, limits, "omega", (1.0, 0), True, numbers)
    size = np.abs(to_dense(sparse))
    np.testing.assert_allclose(found.magnitudes[0], (COSTS * weight) @ size, rtol=1e-6)
    np.testing.assert_array_equal(found.magnitudes[1], size[weight > 0].max(axis=0))
    assert (found.depth, found.counted_rows) == (N, (weight > 0).sum())


def test_rows_after_a_step_are_products_of_the_new_w() -> None:
    """However far f of the point before is from X w: what was rounded before is not carried on."""
    wrong, ends = X @ np.ones(D) + 1e-3, np.stack((np.ones(D), 0.3 * np.ones(D)))
    rows = Rows(0, X, CODES)
    numbers = correct(keep(wrong, wrong), rows, ends)
    np.testing.assert_allclose(arrive(move_row(numbers, rows, *COURSE), rows)[0], X @ ends[1], rtol=1e-5)
    np.testing.assert_allclose(move_row(numbers, rows, *COURSE)[0], wrong + 0.4 * X @ ends[0], rtol=1e-5)


def test_changes_leave_alone_what_they_are_given() -> None:
    """An abandoned task may have begun to make the same change."""
    rows, ends = Rows(0, X, CODES), np.ones((2, D))
    numbers = keep(X @ np.ones(D), np.zeros(N))
    before = numbers.copy()
    for found in (predict(numbers, rows, ends), correct(numbers, rows, ends), move_row(numbers, rows, *COURSE)):
        assert not np.shares_memory(found, numbers)
    assert not np.shares_memory(arrive(numbers, rows), numbers)
    np.testing.assert_array_equal(numbers, before)


def compute_dual(alpha: F64) -> float:
    v = X.astype(float).T @ (Y * alpha)
    return float(alpha.sum() - v @ v / 2)


def test_lower_bound_is_the_dual_of_a_feasible_point() -> None:
    """The heavier class is made lighter; then no multiple has a larger D."""
    for scale in (1e-3, 1.0):
        alpha, most = scale * COSTS * T, scale * float(T.max())
        sums = np.zeros((6, D))
        sums[3], sums[4] = X.T @ (alpha * (Y > 0)), X.T @ (alpha * (Y < 0))
        up, down = alpha[Y > 0].sum(), alpha[Y < 0].sum()
        assert up != down
        feasible = alpha * np.where(Y > 0, min(up, down) / up, min(up, down) / down)
        expected = max(compute_dual(c * feasible) for c in np.linspace(0, min(1.0, 1.0 / most), 2001))
        magnitudes = np.stack((COSTS @ np.abs(X), np.abs(X).max(axis=0)))
        found = find_lower_bound(sums[3:5], np.array([up, down]), max(1.0, most), magnitudes, N)
        assert found.computed == pytest.approx(expected, rel=1e-5)
        assert found.computed * (1 - 1e-10) < found.bound < found.computed
    assert find_lower_bound(sums[3:5], np.array([up, 0.0]), 2.0, magnitudes, N).bound == 0.0
