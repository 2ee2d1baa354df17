"""The interior-point method of a working set, and the rows that need it: nearly parallel, long, of unequal weights."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from streamsvm import SMO, SVC
from streamsvm.numeric.rows import F64, I32
from streamsvm.solvers.crammer_singer.kernel_active_set import solve_by_interior_point

Long = NDArray[np.longdouble]


def make(seed: int, n: int, d: int, n_classes: int, offset: float) -> tuple[F64, I32]:
    random = np.random.default_rng(seed)
    y = random.integers(0, n_classes, n).astype(np.int32)
    y[:n_classes] = np.arange(n_classes)
    X = (random.normal(size=(n, d)) + offset).astype(np.float32).astype(np.float64)
    return X, y


def measure(K: F64, y: I32, costs: F64, share: F64) -> tuple[float, float]:
    """P and D of shares, in long double."""
    every = np.arange(len(y))
    taken = share.astype(np.longdouble)
    taken[every, y] = 0.0
    alpha: Long = -costs[:, None] * taken
    alpha[every, y] = costs * np.sum(taken, axis=1)
    F = K.astype(np.longdouble) @ alpha
    leads = 1 + F - F[every, y][:, None]
    leads[every, y] = 0.0
    half = np.sum(alpha * F) / 2
    return float(half + costs @ np.max(leads, axis=1)), float(np.sum(alpha[every, y]) - half)


@pytest.mark.parametrize(("offset", "spread"), [(0.0, 0.0), (0.0, 3.0), (100.0, 0.0), (1e4, 0.0)])
@pytest.mark.parametrize("cost", [1e-3, 1.0, 1e3])
def test_shares_are_feasible_and_optimal(offset: float, spread: float, cost: float) -> None:
    X, y = make(1, 30, 3, 4, offset)
    K, costs = X @ X.T + 1.0, cost * 10 ** np.random.default_rng(2).uniform(-spread, spread, 30)
    costs[5] = 0.0
    share = solve_by_interior_point(K, y, costs, np.zeros((30, 4)), np.zeros((4, 30)))
    P, D = measure(K, y, costs, share)
    own = share[np.arange(30), y]
    assert np.all(share >= 0)
    assert np.all(own <= 1)
    np.testing.assert_allclose(own, np.minimum(np.sum(share, axis=1) - own, 1.0), atol=1e-15)
    assert not share[5].any()
    digits = np.finfo(float).eps * float(np.max(K)) * cost * len(y)  # of F, whose terms are as large as C k_ii
    assert (1e-6 + digits) * P >= P - D


def test_it_goes_on_from_other_rows_and_from_earlier_shares() -> None:
    """The sums F that it is given contain both."""
    X, y = make(3, 30, 3, 3, 0.0)
    K, costs, half = X @ X.T + 1.0, np.full(30, 10.0), np.arange(15)
    share = solve_by_interior_point(K, y, costs, np.zeros((30, 3)), np.zeros((3, 30)))
    others = share.copy()
    others[half] = 1.0 / 3.0
    others[half, y[half]] = 2.0 / 3.0
    every = np.arange(30)
    alpha = -costs[:, None] * others
    alpha[every, y] = costs * others[every, y]
    F = np.ascontiguousarray((K @ alpha).T)
    others[half] = solve_by_interior_point(K[:15, :15], y[:15], costs[:15], others[:15], F[:, :15])
    P, D = measure(K, y, costs, share)
    assert measure(K, y, costs, others)[1] >= D - 1e-6 * P


@pytest.mark.parametrize("resident", [None, 20])
def test_long_rows_far_from_the_origin_are_proved(resident: int | None) -> None:
    """Sweeps over single rows left gaps of 98% here after hundreds of passes."""
    X, y = make(4, 60, 3, 4, 30.0)
    options = {"kernel": "linear", "multi_class": "crammer_singer", "C": 1e3, "n_jobs": 1, "max_passes": 60}
    model = SVC(resident_rows=resident, solver=SMO(intercept_scaling=10.0), **options).fit(X, y)
    assert model.status_ == "converged"
    assert model.gap_ <= 1e-3


def test_costs_that_are_tiny_beside_the_kernel_are_shared_out_in_full() -> None:
    """1 + C k_ii has few digits of C k_ii: with two rows at a time, a third of D was missing."""
    X, y = make(5, 10, 2, 4, 0.0)
    model = SVC(
        kernel="linear",
        C=1e-3,
        multi_class="crammer_singer",
        n_jobs=1,
        solver=SMO(intercept_scaling=0.0, working_rows=2),
    )
    model.fit(1e-6 * X, y)
    assert model.status_ == "converged"
    assert model.lower_bound_ == pytest.approx(0.01, rel=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_that_rounding_leaves_unsolved_are_given_up_soon() -> None:
    """Ten such steps took 20 seconds and more with 200 rows of ten classes."""
    X, y = make(1, 40, 2, 4, 100.0)
    model = SVC(multi_class="crammer_singer", kernel="poly", degree=3, gamma=1.0, C=1e6, n_jobs=1, max_passes=60)
    told = [step["objective"] for step in model.fit(X, y).history_]
    assert model.status_ == "stalled"
    assert 1 < told.count(told[-1]) <= 4  # the step that has reached it, and three that have not moved
