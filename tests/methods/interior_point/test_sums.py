"""What `assemble` adds up, and the bound that it proves, written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.methods.interior_point.bounds import Magnitudes, find_lower_bound
from streamsvm.methods.interior_point.sums import add_assembled, combine_assembled, gather, start_assembled
from streamsvm.numeric.rows import F64, Rows, to_dense
from tests.kernel_problems import to_csr

N, D = 50, 4
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, D)).astype(np.float32)
CODES = (np.arange(N) % 3 == 0).astype(np.int32)
Y = np.where(CODES == 1, 1.0, -1.0)
COSTS = np.where(CODES == 1, 2.0, 0.5)
S, T, XI, R = RANDOM.uniform(0.1, 1.8, (4, N))  # some t above 1: multipliers above their bounds


def test_sums_at_a_point() -> None:
    """Two tiles of two groups; Q is limited by class."""
    f, b, none = X @ np.ones(D), 0.2, np.zeros(N)
    limits = np.array([1.5, 2.5])
    parts, ends = [start_assembled(D), start_assembled(D)], np.stack((np.zeros(D), np.ones(D)))
    for part, rows in zip((0, 0, 1), (slice(0, 10), slice(10, 33), slice(33, N)), strict=True):
        slices = [v[rows] for v in (f, S, T, XI, R, none, none, np.ones(N, dtype=bool))]
        add_assembled(
            parts[part],
            Rows(rows.start, X[rows], CODES[rows]),
            np.array([0.5, 2.0]),
            ends,
            np.array([b, 0.0]),
            0.0,
            limits,
            "omega",
            True,
            *slices,
        )
    found = combine_assembled(*parts)
    omega = S / T + XI / R
    W, Q = COSTS / omega, omega <= np.where(Y > 0, 2.5, 1.5)
    assert 0 < Q.sum() < N
    side = (Y * (f + b) + XI - 1 - S) + S - (XI * (1 - T - R) + XI * R) / R
    alpha = COSTS * T
    np.testing.assert_allclose(found.gram.finish(), np.triu((X * W[:, None])[Q].T @ X[Q]), rtol=1e-6)
    assert (found.chosen_rows, found.chosen_weight) == (Q.sum(), pytest.approx(W[Q].sum()))
    coefs = (W, Y * W * side, Y / omega * (1 / R - 1 / T), alpha * (Y > 0), alpha * (Y < 0), W * Q)
    np.testing.assert_allclose(found.sums, np.stack(coefs) @ X, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.magnitudes[0], COSTS @ np.abs(X), rtol=1e-6)
    np.testing.assert_array_equal(found.magnitudes[1], np.abs(X).max(axis=0))
    np.testing.assert_allclose(gather(found.tiles, 1), np.stack((np.zeros(N), X @ np.ones(D)), axis=1), rtol=1e-5)
    assert found.depth == (3 + 2) + (6 + 2) + 1  # 10 and 23 rows by fours, and each tile's own sums; then two groups


def test_magnitudes_of_sparse_rows_leave_out_rows_of_no_cost() -> None:
    sparse, weight = to_csr(np.where(np.abs(X) > 0.5, X, np.float32(0))), (np.arange(N) % 2).astype(float)
    found, none = start_assembled(D), np.zeros(N)
    point = (none, S, T, XI, R, none, none, np.ones(N, dtype=bool))
    ends, limits = np.zeros((2, D)), np.full(2, np.inf)
    rows = Rows(0, sparse, CODES, weight)
    add_assembled(found, rows, np.array([0.5, 2.0]), ends, np.zeros(2), 0.0, limits, "omega", True, *point)
    size = np.abs(to_dense(sparse))
    np.testing.assert_allclose(found.magnitudes[0], (COSTS * weight) @ size, rtol=1e-6)
    np.testing.assert_array_equal(found.magnitudes[1], size[weight > 0].max(axis=0))
    assert found.depth == N


def test_rows_after_a_step_are_products_of_the_new_w() -> None:
    """However far f of the point before is from X w: what was rounded before is not carried on."""
    wrong, none = X @ np.ones(D) + 1e-3, np.zeros(N)
    found, ends = start_assembled(D), np.stack((np.ones(D), 0.3 * np.ones(D)))
    limits, point = np.full(2, np.inf), (wrong, S, T, XI, R, none, none, np.ones(N, dtype=bool))
    rows = Rows(0, X, CODES)
    add_assembled(found, rows, np.array([0.5, 2.0]), ends, np.zeros(2), 0.3, limits, "omega", False, *point)
    np.testing.assert_allclose(gather(found.tiles, 1)[:, 1], X @ ends[1], rtol=1e-5)


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
        magnitudes = Magnitudes(COSTS @ np.abs(X), np.abs(X).max(axis=0).astype(float))
        found = find_lower_bound(sums[3:5], Y, alpha, max(1.0, most), magnitudes, N)
        assert found.computed == pytest.approx(expected, rel=1e-5)
        assert found.computed * (1 - 1e-10) < found.bound < found.computed
    assert find_lower_bound(sums[3:5], np.ones(N), alpha, 2.0, magnitudes, N).bound == 0.0
