"""Platt's SMO against scikit-learn's SVC, and against the conditions of the optimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import settings as run_with
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.svm import SVC

from streamsvm.kernels.kernel import Kernel
from streamsvm.numeric.rows import CsrRows
from streamsvm.solvers.decomposition.platt import PlattResult, solve_by_platt

F64 = npt.NDArray[np.float64]
KERNELS = [Kernel("linear"), Kernel("rbf", 0.3), Kernel("poly", 0.5, 3, 1.0), Kernel("sigmoid", 0.05, coef0=0.1)]
names = [kernel.name for kernel in KERNELS]
ROW_BYTES = 8 * 120


def make_rows(seed: int, n: int = 120, d: int = 5, density: float = 0.6) -> tuple[npt.NDArray[np.float32], F64, F64]:
    """Two overlapping classes with zeros among the features, and costs per row."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d)) * (random.random((n, d)) < density)
    y = np.where(X[:, 0] - X[:, 1] ** 2 + random.normal(size=n) > -0.4, 1.0, -1.0)
    return X.astype(np.float32), y, random.choice([0.3, 1.0, 4.0], size=n)


def to_csr(X: npt.NDArray[np.float32]) -> CsrRows:
    rows = csr_array(X)
    return CsrRows(rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int64), X.shape[1])


def gram(X: npt.NDArray[np.float32], kernel: Kernel) -> F64:
    """All kernel values, by NumPy."""
    Z = X.astype(np.float64)
    products = Z @ Z.T
    distances = ((Z[:, None] - Z[None]) ** 2).sum(axis=2)
    formulas: dict[str, Callable[[], F64]] = {
        "linear": lambda: products,
        "rbf": lambda: np.exp(-kernel.gamma * distances),
        "poly": lambda: (kernel.gamma * products + kernel.coef0) ** kernel.degree,
        "sigmoid": lambda: np.tanh(kernel.gamma * products + kernel.coef0),
    }
    return formulas[kernel.name]()


def dual(alpha: F64, y: F64, K: F64) -> float:
    return float(alpha.sum() - 0.5 * (alpha * y) @ K @ (alpha * y))


def find_violation(alpha: F64, b: float, y: F64, costs: F64, K: F64) -> float:
    """By how much the worst row breaks its condition, all errors computed afresh."""
    r = y * (K @ (alpha * y) + b) - 1
    return float(max(np.max(-r[alpha < costs], initial=0), np.max(r[alpha > 0], initial=0)))


def check_feasible(alpha: F64, y: F64, costs: F64) -> None:
    assert np.all((alpha >= 0) & (alpha <= costs))
    assert abs(alpha @ y) <= 1e-13 * max(costs.sum(), 1e-300)


@pytest.mark.parametrize("kernel", KERNELS, ids=names)
@pytest.mark.parametrize("layout", [np.asarray, to_csr], ids=["dense", "sparse"])
def test_optimum_is_that_of_svc(kernel: Kernel, layout: Callable[..., Any]) -> None:
    X, y, costs = make_rows(1)
    K = gram(X, kernel)
    parameters = {"gamma": kernel.gamma, "degree": kernel.degree, "coef0": kernel.coef0}
    theirs = SVC(C=1.0, kernel=kernel.name, tol=1e-8, **parameters).fit(X.astype(np.float64), y, costs)
    alpha = np.zeros(len(y))
    alpha[theirs.support_] = np.abs(theirs.dual_coef_[0])
    ours = solve_by_platt(layout(X), y, costs, kernel, tol=1e-6)
    assert ours.converged
    check_feasible(ours.alpha, y, costs)
    assert find_violation(ours.alpha, ours.b, y, costs, K) <= 1.01e-6
    if kernel.name != "sigmoid":  # which is not positive definite: each may end in an optimum of its own
        assert dual(ours.alpha, y, K) == pytest.approx(dual(alpha, y, K), rel=1e-7)
        assert ours.b == pytest.approx(theirs.intercept_[0], abs=1e-3)


@pytest.mark.parametrize("kernel", KERNELS, ids=names)
def test_a_cache_changes_only_the_number_of_evaluations(kernel: Kernel) -> None:
    X, y, costs = make_rows(2)
    runs = [
        solve_by_platt(X, y, costs, kernel, cache_bytes=size_bytes, fold=False)
        for size_bytes in (0, ROW_BYTES - 1, ROW_BYTES, 5 * ROW_BYTES, 1000 * ROW_BYTES)
    ]
    for run in runs[1:]:
        assert np.array_equal(run.alpha, runs[0].alpha)
        assert run.b == runs[0].b
    none, too_small, one, five, all_rows = [run.n_kernel_evaluations for run in runs]
    assert none == too_small > one > five > all_rows
    assert all_rows <= len(y) ** 2 + runs[0].n_sweeps * len(y) ** 2 / 10, "few rows that never step are not kept"


@pytest.mark.parametrize("kernel", KERNELS, ids=names)
def test_sparse_rows_give_what_dense_rows_give(kernel: Kernel) -> None:
    X, y, costs = make_rows(3)
    K = gram(X, kernel)
    dense, sparse = (solve_by_platt(rows, y, costs, kernel, tol=1e-7) for rows in (X, to_csr(X)))
    assert dual(sparse.alpha, y, K) == pytest.approx(dual(dense.alpha, y, K), rel=1e-8)
    assert sparse.b == pytest.approx(dense.b, abs=1e-5)


@pytest.mark.parametrize("layout", [np.asarray, to_csr], ids=["dense", "sparse"])
def test_folding_spares_evaluations_and_changes_nothing_else(layout: Callable[..., Any]) -> None:
    X, y, costs = make_rows(4)
    K = gram(X, KERNELS[0])
    folded, unfolded = (solve_by_platt(layout(X), y, costs, KERNELS[0], tol=1e-6, fold=fold) for fold in (True, False))
    assert dual(folded.alpha, y, K) == pytest.approx(dual(unfolded.alpha, y, K), rel=1e-8)
    assert folded.b == pytest.approx(unfolded.b, abs=1e-5)
    assert folded.n_kernel_evaluations * 10 < unfolded.n_kernel_evaluations


@run_with(max_examples=60)
@given(
    rows=st.lists(
        st.tuples(st.lists(st.integers(-2, 2), min_size=2, max_size=2), st.booleans()), min_size=2, max_size=14
    ),
    kernel=st.sampled_from(KERNELS),
    cost=st.sampled_from([1e-9, 1e-2, 1.0, 50.0]),
    shares=st.lists(st.sampled_from([0.0, 1e-6, 1.0, 3.0]), min_size=14, max_size=14),
    sparse=st.booleans(),
    fold=st.booleans(),
)
def test_every_small_problem_is_solved(
    rows: list[tuple[list[int], bool]], kernel: Kernel, cost: float, shares: list[float], sparse: bool, fold: bool
) -> None:
    """Whole numbers, so that rows repeat, within a class and across classes; also one class alone, and no cost."""
    X = np.array([x for x, _ in rows], np.float32)
    y = np.array([1.0 if label else -1.0 for _, label in rows])
    costs = cost * np.array(shares[: len(y)])
    result = solve_by_platt(to_csr(X) if sparse else X, y, costs, kernel, tol=1e-4, fold=fold, cache_bytes=300)
    assert result.converged
    check_feasible(result.alpha, y, costs)
    assert find_violation(result.alpha, result.b, y, costs, gram(X, kernel)) <= 1.01e-4


def test_a_solution_is_left_alone() -> None:
    X, y, costs = make_rows(8)
    first = solve_by_platt(X, y, costs, KERNELS[1])
    again = solve_by_platt(X, y, costs, KERNELS[1], alpha=first.alpha)
    assert (again.n_steps, again.n_sweeps) == (0, 1)
    assert np.array_equal(again.alpha, first.alpha)
    assert again.b == pytest.approx(first.b, abs=1e-12)


@pytest.mark.parametrize("fold", [True, False])
def test_multipliers_given_keep_their_balance(fold: bool) -> None:
    """y'a = 2 stays: as where other rows' multipliers are fixed."""
    X, y, costs = make_rows(9)
    alpha = np.zeros(len(y))
    alpha[np.flatnonzero((y > 0) & (costs >= 1))[:4]] = 0.5
    result = solve_by_platt(X, y, costs, KERNELS[0], alpha=alpha, fold=fold)
    assert result.converged
    assert result.alpha @ y == pytest.approx(2.0, abs=1e-12)
    assert find_violation(result.alpha, result.b, y, costs, gram(X, KERNELS[0])) <= 1.01e-3


def test_b_is_in_the_middle_where_no_multiplier_is_free() -> None:
    """Rows at -1 and +1 of a line, one of each class, at their cost C: f = 2 C x + b, and |b| <= 1 - 2 C."""
    X, y = np.array([[-1], [1]], np.float32), np.array([-1.0, 1.0])
    result = solve_by_platt(X, y, np.full(2, 0.1), KERNELS[0])
    assert result.alpha.tolist() == [0.1, 0.1]
    assert result.b == pytest.approx(0.0, abs=1e-12)


def test_a_class_alone_is_told_by_b() -> None:
    X = make_rows(10)[0]
    result = solve_by_platt(X, -np.ones(len(X)), np.ones(len(X)), KERNELS[1])
    assert (result.b, result.n_steps, result.converged) == (-1.0, 0, True)
    assert not result.alpha.any()


def test_the_limit_of_sweeps_is_kept() -> None:
    X, y, costs = make_rows(11)
    result = solve_by_platt(X, y, costs, KERNELS[1], max_sweeps=3)
    assert (result.n_sweeps, result.converged) == (3, False)
    check_feasible(result.alpha, y, costs)


@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_features_of_any_size(scale: float) -> None:
    """Multipliers are then of size 1e6 and 1e-8: no step is too small, or too large, in itself."""
    X, y, costs = make_rows(12)
    rows = (X * np.float32(scale)).astype(np.float32)
    result, unscaled = (
        solve_by_platt(Z, y, c, KERNELS[0], tol=1e-5) for Z, c in ((rows, costs / scale**2), (X, costs))
    )
    assert result.converged
    K = gram(X, KERNELS[0])
    assert dual(result.alpha * scale**2, y, K) == pytest.approx(dual(unscaled.alpha, y, K), rel=1e-5)


def test_the_seed_fixes_every_bit() -> None:
    X, y, costs = make_rows(13)
    first, same, other = (solve_by_platt(X, y, costs, KERNELS[1], seed=seed) for seed in (3, 3, 4))

    def facts(result: PlattResult) -> tuple[Any, ...]:
        return result.alpha.tobytes(), result.b, result.n_steps, result.n_kernel_evaluations

    assert facts(first) == facts(same)
    assert facts(first) != facts(other)
