"""All rows active: f is exact where it counts, the gap asked for is proved, kernel columns are formed once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamsvm.certificates.kernel import certify
from streamsvm.kernels.kernel import Kernel, compute_squares
from streamsvm.numeric.rows import F64
from streamsvm.solvers.decomposition import active_set, all_active
from streamsvm.solvers.decomposition.active_set import ActiveSet, ColumnCache, Rounds, improve
from streamsvm.solvers.decomposition.all_active import (
    FAR_BEYOND,
    bounds_by_terms,
    count_products,
    form_exact_sums,
    map_features,
    solve_all,
    suits_factor,
)
from tests.conftest import Problem, make_problem
from tests.kernel_problems import KINDS, matrix_of

N = 300
PROBLEMS = {"dense": make_problem(1, n=N), "sparse": make_problem(2, n=N, d=30, density=0.2)}


def make_active(problem: Problem, C: float = 1.0, kernel: Kernel = KINDS["rbf"]) -> ActiveSet:
    n = len(problem.y)
    X, (alpha, f, errors) = problem.in_memory().take(np.arange(n)).X, np.zeros((3, n))
    terms = np.zeros(n if bounds_by_terms(kernel, X) else 0)
    largest = kernel.bound_values(float(np.max(compute_squares(X, np.float64))))
    y, costs = problem.y.astype(float), np.full(n, C)
    return ActiveSet(X, y, costs, alpha, f, np.arange(n), errors, terms, largest=largest)


def make_rounds(kernel: Kernel, gap: float | None) -> Rounds:
    return Rounds(kernel, "smo", "second-order", 40, 1, 0, gap=gap)


def exact_sums(problem: Problem, kernel: Kernel, alpha: F64) -> F64:
    sums: F64 = matrix_of(problem, kernel) @ (alpha * problem.y)
    return sums


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("name", KINDS)
def test_the_gap_asked_for_is_proved_by_exact_sums(kind: str, name: str) -> None:
    problem, kernel = PROBLEMS[kind], KINDS[name]
    active = make_active(problem, 0.05 if name == "sigmoid" else 1.0, kernel)
    for gap in (0.1, 1e-3, 1e-5):
        solve_all(active, make_rounds(kernel, gap / 2), ColumnCache.of_size(N, 4 * N * N), 1e-6, gap)
        f = exact_sums(problem, kernel, active.alpha)
        assert certify(active.y, active.costs, active.alpha, f).relative_gap <= gap * (1 + 1e-6)


def test_no_more_is_done_than_the_gap_asks_for() -> None:
    gaps = []
    for gap in (0.3, 1e-4):
        active = make_active(PROBLEMS["dense"])
        solve_all(active, make_rounds(KINDS["rbf"], gap / 2), ColumnCache.of_size(N, 4 * N * N), 1e-8, gap)
        gaps.append(certify(active.y, active.costs, active.alpha, active.f).relative_gap)
    assert gaps[1] < 1e-4 < gaps[0] < 0.3


@pytest.mark.parametrize("name", ["linear", "rbf"])
def test_only_rows_well_beyond_the_margin_keep_the_sums_of_float32(name: str) -> None:
    problem, kernel = make_problem(5, n=N, d=3), KINDS[name]
    active = make_active(problem, 10.0)
    solve_all(active, make_rounds(kernel, 1e-4), ColumnCache.of_size(N, 4 * N * N), 1e-6, 2e-4)
    truth = exact_sums(problem, kernel, active.alpha)
    bias = certify(active.y, active.costs, active.alpha, truth).bias
    far = (active.alpha == 0) & (active.y * (truth + bias) > 1.5 + FAR_BEYOND)
    near = (active.alpha > 0) | (active.y * (truth + bias) < 1 + FAR_BEYOND)
    active.f[:] = truth + 1e-3
    form_exact_sums(active, kernel, 1)
    assert far.any()
    np.testing.assert_allclose(active.f[near], truth[near], rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(active.f[far], truth[far] + 1e-3)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
@pytest.mark.parametrize("density", [1.0, 0.2])
def test_errors_of_powers_of_positive_sums_follow_from_their_terms(density: float, scale: float) -> None:
    """Norms of rows would bound the errors of most rows by more than the margin."""
    drawn, kernel = make_problem(5, n=N, d=30, density=density), Kernel("poly", 0.1 / scale**2, 1.0, 5)
    problem = replace(drawn, X=(scale * np.abs(drawn.X)).astype(np.float32))
    active = make_active(problem, 1.0, kernel)
    assert len(active.terms) == N
    improve(active, make_rounds(kernel, None), ColumnCache.of_size(N, 4 * N * N), 1e-3, 50)
    bounds, truth = all_active._bound_working_sums(active, kernel), exact_sums(problem, kernel, active.alpha)
    assert np.any(np.abs(active.f - truth) > 0.0)
    assert np.all(np.abs(active.f - truth) <= bounds + 1e-12 * np.abs(truth))
    assert np.all(bounds <= 1e-4 * (active.terms + 1.0))


def test_a_large_error_of_an_exponent_counts_exponentially() -> None:
    """e^(v + 1) is e - 1 times e^v more than e^v, and not 1 times as much."""
    problem = make_problem(5, n=N, d=30)
    squares = np.sum(problem.X.astype(float) ** 2, axis=1)
    kernel = Kernel("rbf", 1.0 / (all_active.UNIT_32 * 30 * 2 * float(np.max(squares))))
    active = make_active(problem, 1.0, kernel)
    active.moved, active.terms[:] = 1.0, 1e-3
    lost = all_active.UNIT_32 * 30 * kernel.gamma * (squares + np.max(squares))
    assert np.all(all_active._bound_working_sums(active, kernel) >= np.expm1(lost) * 1e-3)


def test_many_small_changes_count_where_each_is_lost() -> None:
    problem, changes = replace(PROBLEMS["dense"], X=np.ones((N, 3), np.float32)), 4000
    active = replace(make_active(problem), X=np.ones((N, 3)))
    rounds, cache = make_rounds(KINDS["rbf"], None), ColumnCache.of_size(N, 8 * N * N, np.float64)
    for coef in (1.0, *[2.0**-54] * changes):
        active_set._update_sums(active, rounds, cache, np.zeros(1, np.int64), np.array([coef]))
    np.testing.assert_array_equal(active.f, 1.0)
    assert np.all(all_active._bound_working_sums(active, KINDS["rbf"]) >= changes * 2.0**-54)


def test_where_rounding_is_large_no_row_keeps_them() -> None:
    problem, kernel = make_problem(5, n=N, d=3), KINDS["rbf"]
    active = make_active(problem, 10.0)
    solve_all(active, make_rounds(kernel, 1e-4), ColumnCache.of_size(N, 4 * N * N), 1e-6, 2e-4)
    truth = exact_sums(problem, kernel, active.alpha)
    active.f[:], active.moved, active.terms[:] = truth + FAR_BEYOND / 4 * active.y, 1e8, 1e8
    form_exact_sums(active, kernel, 1)
    np.testing.assert_allclose(active.f, truth, rtol=1e-9, atol=1e-9)


def test_kernel_columns_are_formed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if f is mended in between: the cache stays."""
    formed: list[int] = []
    add = active_set.add_kernel_sums

    def watch(*args: object) -> None:
        formed.append(args[2].shape[0])  # type: ignore[attr-defined]
        add(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(active_set, "add_kernel_sums", watch)
    mended: list[None] = []
    mend = all_active.form_exact_sums
    monkeypatch.setattr(all_active, "form_exact_sums", lambda *args: (mended.append(None), mend(*args))[1])
    active = make_active(PROBLEMS["dense"], 100.0)
    solve_all(active, make_rounds(KINDS["rbf"], 1e-3), ColumnCache.of_size(N, 4 * N * N), 1e-2, 1e-7)
    assert len(mended) > 1
    assert sum(formed) <= N


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("coef0", [0.0, 2.5])
def test_products_of_features_are_a_factor_of_a_polynomial_kernel(coef0: float, degree: int) -> None:
    X, kernel = np.random.default_rng(1).normal(size=(12, 4)), Kernel("poly", 0.3, degree, coef0)
    Z = map_features(kernel, X)
    assert Z.shape == (12, count_products(kernel, 4))
    constant = coef0 if degree == 1 else 0.0
    np.testing.assert_allclose(Z @ Z.T + constant, (0.3 * (X @ X.T) + coef0) ** degree, rtol=1e-12, atol=1e-12)


def test_many_rows_of_few_features_have_a_factor_of_few_columns() -> None:
    """A thousand rows had none, and the steps of pairs were all that solved them."""
    problem = make_problem(1, n=1000, d=6)
    fits = [suits_factor(make_active(problem, kernel=kernel), kernel) for kernel in (Kernel("poly"), Kernel("rbf"))]
    assert fits == [True, False]
