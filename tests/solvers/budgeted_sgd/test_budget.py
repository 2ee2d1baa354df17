"""Pegasos steps on a budget, against plain ones in float64, and packs of every size against each other."""

import numpy as np
import pytest
from numba import njit

from streamsvm.kernels.kernel import Kernel, compute_kernel
from streamsvm.numeric.rows import CsrRows, split
from streamsvm.solvers.budgeted_sgd.maintenance import (
    BIAS,
    MAINTAINED,
    SCALE,
    STEPS,
    VECTORS,
    VIOLATIONS,
    form_column,
    make_state,
    read_model,
)
from streamsvm.solvers.budgeted_sgd.solver import average_models, collect_pack, learn_rows, make_rules, meet_pack
from streamsvm.system.errors import InputError
from tests.solvers.budgeted_sgd.golden_section import search_share

GAMMA, LAMBDA = 0.1, 0.02
compute_column, collect, meet = njit(form_column), njit(collect_pack), njit(meet_pack)
RBF = Kernel("rbf", gamma=GAMMA)
POLY = Kernel("poly", gamma=0.3, degree=2, coef0=1.0)


def draw_rows(n=400, d=9, seed=0, filled=0.6):
    """Rows with zeros, of two classes that overlap."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    X = (rng.normal(size=(n, d)) + 0.5 * y[:, None]) * (rng.random((n, d)) < filled)
    return X.astype(np.float32), y, rng.choice([0.0, 0.5, 1.0, 2.5], n), rng.permutation(n)


def to_csr(X):
    rows, columns = np.nonzero(X)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(X)))))
    return CsrRows(X[rows, columns], columns.astype(np.int32), indptr.astype(np.int64), X.shape[1])


def learn(kernel, X, y, cost, orders, pack_rows=64, budget=30, **about):
    rules = make_rules(kernel, budget, regularisation=LAMBDA, **about)
    state = make_state(X.shape[1], budget)
    for order in orders:
        learn_rows(state, rules, X, y, cost, order, pack_rows)
    return state, rules


def assert_same_bits(state, other):
    for one, two in zip(state, other, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("kernel", "maintenance", "merge"),
    [
        (RBF, "merge", 2),
        (RBF, "merge", 4),
        (RBF, "gradient-merge", 3),
        (RBF, "removal", 2),
        (RBF, "projection", 3),
        (POLY, "removal", 2),
        (POLY, "projection", 2),
    ],
)
def test_packs_of_any_size_and_sparse_rows_give_the_same_bits(kernel, maintenance, merge):
    X, y, cost, order = draw_rows()
    about = {"maintenance": maintenance, "merge": merge, "free_bias": True}
    one, _ = learn(kernel, X, y, cost, [order], 1, **about)
    assert one.counts[MAINTAINED] > 10
    for pack_rows in (7, 64):
        assert_same_bits(one, learn(kernel, X, y, cost, [order], pack_rows, **about)[0])
        assert_same_bits(one, learn(kernel, to_csr(X), y, cost, [order], pack_rows, **about)[0])
    assert_same_bits(one, learn(kernel, X, y, cost, [order[:150], order[150:]], 64, **about)[0])


def test_more_vectors_than_a_block_give_the_same_bits():
    X, y, cost, order = draw_rows(900, 5, filled=1.0)
    cost[:] = 1.0
    one, _ = learn(Kernel("rbf", gamma=50.0), X, y, cost, [order], 1, budget=600)
    assert one.counts[VECTORS] > 520
    assert_same_bits(one, learn(Kernel("rbf", gamma=50.0), X, y, cost, [order], 64, budget=600)[0])


def step_plainly(X, y, cost, order, gamma, lam, budget, free_bias=False, period=0):
    """Pegasos as written, in float64: every coefficient shrinks at every step; binary merges by golden section."""
    Z, alpha, b = np.empty((0, X.shape[1])), np.empty(0), 0.0
    for t, i in enumerate(order, start=1):
        fall = 1 - ((t - 1) % period) / period if period else 1.0
        x, eta = X[i].astype(np.float64), fall / (lam * (period + t))
        violated = y[i] * (alpha @ np.exp(-gamma * ((Z - x) ** 2).sum(axis=1)) + b) < 1
        alpha = alpha * (1 - lam * eta)
        if violated and cost[i] > 0:
            b += cost[i] * y[i] * fall / np.sqrt(t) if free_bias else 0.0
            Z, alpha = np.vstack([Z, x]), np.append(alpha, eta * cost[i] * y[i])
        if len(alpha) > budget:
            Z, alpha = merge_plainly(Z, alpha, gamma)
    return Z, alpha, b


def merge_plainly(Z, alpha, gamma):
    a, best = int(np.argmin(np.abs(alpha))), (np.inf, 0, 0.0, 0.0)
    for j in set(range(len(alpha))) - {a}:
        ratio, L = alpha[a] / alpha[j], gamma * ((Z[a] - Z[j]) ** 2).sum()
        u = search_share(ratio, L)
        f = np.exp(-L * u * u) + ratio * np.exp(-L * (1 - u) ** 2)
        loss = alpha[j] ** 2 * (1 + ratio**2 + 2 * ratio * np.exp(-L) - f * f)
        best = min(best, (loss, j, u, f))
    _, j, u, f = best
    low, high = min(a, j), max(a, j)
    Z[low], alpha[low] = (1 - u) * Z[j] + u * Z[a], alpha[j] * f
    Z[high], alpha[high] = Z[-1], alpha[-1]
    return Z[:-1], alpha[:-1]


@pytest.mark.parametrize("period", [0, 100])
@pytest.mark.parametrize(("budget", "free_bias"), [(400, False), (400, True), (25, False), (25, True)])
def test_steps_are_those_of_pegasos(budget, free_bias, period):
    """As published, and with a rate that falls in each epoch."""
    X, y, cost, order = draw_rows(250)
    cost *= 1 + 0.2 * np.random.default_rng(1).random(250)  # no two coefficients are equal
    state, _ = learn(RBF, X, y, cost, [order], budget=budget, merge=2, free_bias=free_bias, period=period)
    Z, alpha, b = read_model(state)
    Z0, alpha0, b0 = step_plainly(X, y, cost, order, GAMMA, LAMBDA, budget, free_bias, period)
    assert (state.counts[MAINTAINED] > 0) == (budget == 25)
    assert state.counts[STEPS] == 250
    assert len(alpha) == len(alpha0)
    np.testing.assert_allclose(Z, Z0, atol=2e-4)
    np.testing.assert_allclose(alpha, alpha0, rtol=1e-4, atol=1e-4 * np.abs(alpha0).max())
    assert b == pytest.approx(b0, rel=1e-9)


def test_rate_falls_to_nothing_in_each_share_of_an_epoch():
    """Two replicas learn 50 rows of an epoch of 100 each: the rate is that of one model with every second row."""
    X, y, _, order = draw_rows(100)
    one, _ = learn(RBF, X, y, np.ones(100), [order[:50]], budget=100, period=100, replicas=2)
    falls = one.alpha[: one.counts[VECTORS]] * one.totals[SCALE] * LAMBDA
    kept = np.prod([1 - (1 - k / 50) / (101 + k) for k in range(1, 50)])
    assert falls[0] * y[order[0]] == pytest.approx(kept / 101)
    assert np.abs(falls[-1]) < 0.3 * np.abs(falls[0])
    beyond, _ = learn(RBF, X, y, np.ones(100), [order[:60]], budget=100, period=100, replicas=2)
    assert beyond.counts[VIOLATIONS] == one.counts[VIOLATIONS]
    np.testing.assert_array_equal(beyond.alpha, one.alpha)


def test_rows_without_cost_are_passed_over():
    X, y, cost, order = draw_rows(100)
    state, _ = learn(RBF, X, y, np.zeros(100), [order])
    assert state.counts.tolist() == [0, 100, 0, 0]
    state, _ = learn(RBF, X, y, cost, [order], budget=100)
    counts = state.counts
    assert counts[VECTORS] == counts[VIOLATIONS] > 0
    assert set(np.round(np.abs(read_model(state)[1]) * LAMBDA * 100, 9)) == {0.5, 1.0, 2.5}


@pytest.mark.parametrize(
    ("kernel", "budget", "about", "said"),
    [
        (POLY, 10, {"maintenance": "merge"}, "only vectors of the rbf kernel"),
        (POLY, 10, {"maintenance": "gradient-merge"}, "only vectors of the rbf kernel"),
        (RBF, 10, {"maintenance": "magic"}, "maintenance is 'magic': choose from merge"),
        (RBF, 10, {"merge": 12}, "merge is 12 and budget 10"),
        (RBF, 10, {"merge": 1}, "merge is 1 and budget 10"),
        (RBF, 0, {}, "merge is 2 and budget 0"),
    ],
)
def test_rules_that_do_not_go_together(kernel, budget, about, said):
    with pytest.raises(InputError, match=said):
        make_rules(kernel, budget, regularisation=1.0, **about)
    with pytest.raises(InputError, match="regularisation"):
        make_rules(RBF, 10, regularisation=0.0)


def predict(state, rules, X):
    Z, alpha, b = read_model(state)
    return np.exp(-GAMMA * ((X[:, None] - Z[None]) ** 2).sum(axis=2)) @ alpha + b


def test_average_of_models_predicts_their_mean_and_keeps_the_budget():
    X, y, _, order = draw_rows()
    cost = np.ones(400)
    shares = [order[:100], order[100:400]]
    states = [learn(RBF, X, y, cost, [share], free_bias=True)[0] for share in shares]
    rules = make_rules(RBF, 60, 3, regularisation=LAMBDA, free_bias=True)
    average = average_models(states, rules)
    mean = np.mean([predict(state, rules, X) for state in states], axis=0)
    np.testing.assert_allclose(predict(average, rules, X), mean, rtol=1e-9, atol=1e-6)
    assert average.counts[STEPS] == 400
    assert average.totals[BIAS] == pytest.approx(np.mean([state.totals[BIAS] for state in states]))
    small = average_models(states, make_rules(RBF, 30, 3, regularisation=LAMBDA))
    assert small.counts[VECTORS] <= 30
    assert small.alpha.shape == states[0].alpha.shape
    agree = np.mean(np.sign(predict(small, rules, X)) == np.sign(mean))
    assert agree > 0.8


@pytest.mark.slow("compiles kernels that no training compiles")
@pytest.mark.parametrize("kernel", [RBF, POLY])
def test_kernel_values_are_the_same_bits_by_rows_and_by_columns(kernel):
    """Rows meet vectors together, and each vector the rows one by one, dense and sparse: 13 features, some zeros."""
    X, *_ = draw_rows(37, 13)
    rules = make_rules(kernel, 40, maintenance="removal", regularisation=LAMBDA)
    state = make_state(13, 40)
    state.vectors[:, :37], state.counts[VECTORS] = X.T, 37
    blocks = []
    for rows in (X, to_csr(X)):
        pack = collect(*split(rows), np.arange(37), np.full(13, -1))
        state.squares[:37] = pack.squares
        together, apart = np.zeros((37, 48), np.float32), np.zeros((37, 48), np.float32)
        meet(state, rules, pack, together)
        for slot in range(37):
            compute_column(state, rules, pack, 0, slot, apart)
        blocks += [together, apart]
    for block in blocks:
        np.testing.assert_array_equal(block, blocks[0])
    np.testing.assert_allclose(blocks[0][:, :37], compute_kernel(kernel, X.astype(np.float64)), rtol=1e-4, atol=1e-5)
