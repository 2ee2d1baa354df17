"""Bringing a model back to its budget: what is reported of it is what has happened to w."""

import numpy as np
import pytest

from streamsvm.kernels.kernel import Kernel
from streamsvm.solvers.budgeted_sgd.maintenance import (
    DEGRADATION,
    GRADIENT_ERROR,
    MAINTAINED,
    SCALE,
    STEPS,
    VECTORS,
    choose_table,
    keep_budget,
    make_state,
)
from streamsvm.solvers.budgeted_sgd.solver import make_rules

GAMMA, LAMBDA, TIME = 0.4, 0.01, 50
EVERY = ["merge", "gradient-merge", "projection", "removal"]
NO_ROWS = np.empty((0, 16), np.float32)


def fill(n=12, d=3, seed=0):
    """A model of n vectors, of both signs."""
    rng = np.random.default_rng(seed)
    state = make_state(d, n - 1)
    state.vectors[:, :n] = rng.normal(size=(d, n))
    state.squares[:n] = (state.vectors[:, :n] ** 2).sum(axis=0)
    state.alpha[:n] = rng.choice([-1.0, 1.0], n) * rng.uniform(0.3, 3.0, n)
    state.counts[VECTORS], state.counts[STEPS] = n, TIME
    state.totals[SCALE] = 1 / (LAMBDA * TIME)
    return state


def maintain(state, maintenance, merge, kernel=None):
    budget = int(state.counts[VECTORS]) - 1
    about = make_rules(kernel or Kernel("rbf", gamma=GAMMA), budget, merge, maintenance, regularisation=LAMBDA)
    return keep_budget(state, about, choose_table(about), NO_ROWS)


def read(state):
    n = state.counts[VECTORS]
    return state.vectors[:, :n].T.astype(np.float64), state.alpha[:n].copy()


def rbf(A, B):
    return np.exp(-GAMMA * ((A[:, None] - B[None]) ** 2).sum(axis=2))


def measure(before, after, kernel=rbf):
    """|w' - w|^2, in the units of alpha."""
    Z, coef = np.vstack([before[0], after[0]]), np.concatenate([before[1], -after[1]])
    return coef @ kernel(Z, Z) @ coef


@pytest.mark.parametrize("maintenance", EVERY)
@pytest.mark.parametrize("merge", [2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_degradation_is_the_change_of_w(maintenance, merge, seed):
    state = fill(seed=seed)
    before = read(state)
    slot = maintain(state, maintenance, merge)
    after = read(state)
    assert len(after[1]) == 12 - (merge - 1)
    assert (slot >= 0) == (maintenance in ("merge", "gradient-merge"))
    loss = measure(before, after)
    assert loss > 1e-4
    assert state.totals[DEGRADATION] == pytest.approx(loss / (LAMBDA * TIME) ** 2, rel=1e-5)
    assert state.totals[GRADIENT_ERROR] == pytest.approx(np.sqrt(loss), rel=1e-5)
    assert state.counts[MAINTAINED] == 1
    np.testing.assert_allclose(state.squares[: len(after[1])], (after[0] ** 2).sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("merge", [2, 4])
def test_projection_is_the_best_that_the_others_can_do(merge):
    state = fill(seed=5)
    before = read(state)
    maintain(state, "projection", merge)
    Z, alpha = read(state)
    np.testing.assert_allclose(rbf(Z, Z) @ alpha, rbf(Z, before[0]) @ before[1], atol=1e-6)
    gone = np.sort(np.abs(before[1]))[: merge - 1]
    assert {round(float(z), 6) for z in Z[:, 0]} == {
        round(float(z), 6) for z, a in zip(before[0][:, 0], np.abs(before[1]), strict=True) if a not in gone
    }


def test_equal_vectors_do_not_stop_a_projection():
    state = fill()
    state.vectors[:, 3] = state.vectors[:, 7]
    state.squares[3] = state.squares[7]
    before = read(state)
    maintain(state, "projection", 2)
    Z, alpha = read(state)
    np.testing.assert_allclose(rbf(Z, Z) @ alpha, rbf(Z, before[0]) @ before[1], atol=1e-5)


def test_removal_with_another_kernel_drops_the_smallest():
    state = fill()
    before = read(state)
    maintain(state, "removal", 2, Kernel("poly", gamma=0.5, degree=3, coef0=1.0))
    after = read(state)
    assert np.abs(after[1]).min() > np.abs(before[1]).min()
    loss = measure(before, after, lambda A, B: (0.5 * A @ B.T + 1) ** 3)
    assert state.totals[DEGRADATION] == pytest.approx(loss / (LAMBDA * TIME) ** 2, rel=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_smallest_coefficient_meets_its_best_partner(seed):
    """No other partner of the smallest would have cost less, of either sign; by search over z in the plane of each."""
    state = fill(seed=seed)
    Z, alpha = read(state)
    maintain(state, "merge", 2)
    loss = state.totals[DEGRADATION] * (LAMBDA * TIME) ** 2
    a = int(np.argmin(np.abs(alpha)))
    for j in set(range(12)) - {a}:
        h = np.linspace(-8, 9, 4001)[:, None]
        line = h * Z[a] + (1 - h) * Z[j]
        f = alpha[a] * rbf(line, Z[a : a + 1])[:, 0] + alpha[j] * rbf(line, Z[j : j + 1])[:, 0]
        both = alpha[[a, j]] @ rbf(Z[[a, j]], Z[[a, j]]) @ alpha[[a, j]]
        assert loss <= both - (f**2).max() + 1e-5


def test_three_that_merge_do_not_take_two_large_ones():
    """The smallest lies between two large ones: merging with either costs least, with both more than all others."""
    state = make_state(1, 3)
    state.vectors[0, :4], state.alpha[:4] = [0.0, -1.0, 1.1, 1.6], [0.01, 5.0, 5.0, 0.1]
    state.squares[:], state.counts[VECTORS] = state.vectors[0] ** 2, 4
    maintain(state, "merge", 3)
    Z, alpha = read(state)
    np.testing.assert_allclose(Z[:, 0], [1.1, -1.0] if Z[0] > 0 else [-1.0, 1.1], atol=0.02)
    np.testing.assert_allclose(alpha, 5.0, atol=0.11)


def test_kernel_values_follow_vectors_that_move():
    state = fill()
    rows = np.random.default_rng(1).normal(size=(6, 3))
    K = np.zeros((6, 16), np.float32)
    K[:, :12] = rbf(rows, read(state)[0])
    about = make_rules(Kernel("rbf", gamma=GAMMA), 11, 4, regularisation=LAMBDA)
    slot = keep_budget(state, about, choose_table(about), K)
    Z, _ = read(state)
    others = np.arange(len(Z)) != slot
    np.testing.assert_allclose(K[:, : len(Z)][:, others], rbf(rows, Z)[:, others], rtol=1e-5)


def test_vectors_too_far_apart_to_merge_lose_the_smallest():
    state = fill()
    state.vectors[:] *= 100.0
    state.squares[:] *= 1e4
    before = read(state)
    maintain(state, "merge", 2)
    after = read(state)
    np.testing.assert_allclose(np.sort(np.abs(after[1])), np.sort(np.abs(before[1]))[1:], rtol=1e-12)


def test_coefficients_of_nothing_are_taken_out():
    state = fill()
    state.alpha[[2, 9]] = 0.0
    before = read(state)
    maintain(state, "merge", 2)
    maintain(state, "gradient-merge", 2)
    assert state.totals[DEGRADATION] == pytest.approx(0.0, abs=1e-9)
    assert measure(before, read(state)) == pytest.approx(0.0, abs=1e-5)
