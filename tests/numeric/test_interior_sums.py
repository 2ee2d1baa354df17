"""What `assemble` adds up, and the bound that it proves, written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.numeric.interior_sums import add_assembled, combine_assembled, start_assembled
from streamsvm.numeric.rows import F64, Rows

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
    parts = [start_assembled(D), start_assembled(D)]
    for part, rows in zip((0, 0, 1), (slice(0, 10), slice(10, 33), slice(33, N)), strict=True):
        slices = [v[rows] for v in (f, S, T, XI, R, none, none, np.ones(N, dtype=bool))]
        add_assembled(
            parts[part], Rows(rows.start, X[rows], CODES[rows]), np.array([0.5, 2.0]), np.zeros(D),
            np.array([b, 0.0]), 0.0, limits, "omega", True, *slices,
        )  # fmt: skip
    found = combine_assembled(*parts)
    omega = S / T + XI / R
    W, Q = COSTS / omega, omega <= np.where(Y > 0, 2.5, 1.5)
    assert 0 < Q.sum() < N
    side = (Y * (f + b) + XI - 1 - S) + S - (XI * (1 - T - R) + XI * R) / R
    alpha = COSTS * T
    np.testing.assert_allclose(found.gram.finish(), np.triu((X * W[:, None])[Q].T @ X[Q]), rtol=1e-6)
    assert (found.chosen_rows, found.chosen_weight) == (Q.sum(), pytest.approx(W[Q].sum()))
    coefs = (W, Y * W * side, Y * W * (1 / R - 1 / T), alpha * (Y > 0), alpha * (Y < 0), W * Q)
    np.testing.assert_allclose(found.sums, np.stack(coefs) @ X, rtol=1e-5, atol=1e-5)
    assert found.largest == np.abs(X).max()


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
        assert find_lower_bound(sums, Y, alpha, max(1.0, most)) == pytest.approx(expected, rel=1e-5)
    assert find_lower_bound(sums, np.ones(N), alpha, 2.0) == 0.0
