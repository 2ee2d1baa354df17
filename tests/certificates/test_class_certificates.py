"""The proof of Crammer-Singer's objectives holds however the sums are off within their bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.certificates.kernel import prove_classes
from streamsvm.losses.classes import multiply_shares, split_shares
from tests.conftest import F64

N, K = 40, 4


def draw(seed: int) -> tuple[Any, ...]:
    """Shares of rows, some of which are above 1 by rounding; labels, costs, a kernel matrix and true sums."""
    random = np.random.default_rng(seed)
    y, costs = random.integers(0, K, N).astype(np.int32), 10.0 ** random.uniform(-2, 2, N)
    share = np.where(random.random((N, K)) < 0.4, random.random((N, K)), 0.0)
    share[np.arange(N), y] = 0.0
    sums = share.sum(axis=1)
    share /= np.where((sums > 1.0) | (random.random(N) < 0.3), np.maximum(sums, 0.3), 1.0)[:, None]
    share *= np.where(random.random(N) < 0.2, 1.0 + 2e-16, 1.0)[:, None]
    share[np.arange(N), y] = share.sum(axis=1)
    X = random.normal(size=(N, 6))
    kernel = X @ X.T
    F = kernel @ multiply_shares(share, y, costs)
    return share, y, costs, kernel, F, random


def compute(share: F64, y: Any, costs: F64, F: F64) -> tuple[float, float]:
    """P and D in long double, of shares that are scaled where they sum to more than 1."""
    taken, own = split_shares(share, y)
    alpha = -costs[:, None] * taken.astype(np.longdouble)
    alpha[np.arange(N), y] = costs * own
    square = np.sum(alpha * F)
    leads = 1 + F - F[np.arange(N), y][:, None]
    leads[np.arange(N), y] = 0
    return float(square / 2 + costs @ np.max(leads, axis=1)), float(costs @ own - square / 2)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-2, 10.0])
def test_both_objectives_are_within_their_bounds(seed: int, size: float) -> None:
    share, y, costs, kernel, F, random = draw(seed)
    P, D = compute(share, y, costs, F)
    errors = size * random.random(N)
    for sign in (random.choice([-1.0, 1.0], F.shape), np.where(np.arange(K) == y[:, None], -1.0, 1.0)):
        found = prove_classes(share, y, costs, F + sign * errors[:, None], errors, float(np.max(np.diag(kernel))), True)
        assert abs(found.objective - P) <= found.objective_error + 1e-13 * P
        assert found.dual - found.dual_error <= D + 1e-13 * abs(D)
    assert found.rounding_bound <= 10 * float(costs @ errors) + 1e-9 * P  # a bound that says something


def test_the_slack_of_rows_that_are_certainly_without_a_loss_is_not_charged() -> None:
    y, costs = np.zeros(2, np.int32), np.ones(2)
    F = np.array([[9.0, 0.0], [9.0, 0.0]])
    found = prove_classes(np.zeros((2, 2)), y, costs, F, np.array([1.0, 0.1]), 1.0, True)
    assert found.objective == 0.0
    assert found.objective_error == 0.0


def test_shares_above_one_are_scaled() -> None:
    share = np.array([[1.2, 0.9, 0.3], [0.0, 0.25, 0.5]])
    taken, own = split_shares(share, np.array([0, 2], np.int32))
    np.testing.assert_allclose(taken, [[0.0, 0.75, 0.25], [0.0, 0.25, 0.0]])
    assert own.tolist() == [1.0, 0.25]
