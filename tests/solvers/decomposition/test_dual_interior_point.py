"""The dual by an interior-point method in a factor of the kernel, against what defines its optimum."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import SMO, SVC, NuSVR
from streamsvm.numeric.rows import F64
from streamsvm.solvers.decomposition.all_active import factor_kernel, solve_in_factor


def measure(Z: F64, y: F64, costs: F64, alpha: F64) -> tuple[float, float]:
    """P at the best bias and D of multipliers, in long double."""
    w = (y * alpha).astype(np.longdouble) @ Z.astype(np.longdouble)
    f = Z.astype(np.longdouble) @ w
    losses = [float(costs @ np.maximum(0, 1 - y * (f + b)).astype(np.float64)) for b in y - f]
    square = float(w @ w) / 2
    return square + min(losses), float(np.sum(alpha)) - square


def make(seed: int, n: int, d: int, scale: float, spread: float) -> tuple[F64, F64, F64]:
    random = np.random.default_rng(seed)
    Z, y = random.normal(size=(n, d)) * scale, random.choice([-1.0, 1.0], n)
    Z[:, 0] += scale * y
    return Z, y, 10 ** random.uniform(-spread, spread, n)


@pytest.mark.parametrize("shape", [(2, 1), (40, 3), (30, 30), (20, 50)])
@pytest.mark.parametrize(("scale", "spread"), [(1.0, 0.0), (1e-4, 2.0), (1e3, 0.0), (1.0, 5.0)])
def test_multipliers_are_feasible_and_optimal(shape: tuple[int, int], scale: float, spread: float) -> None:
    Z, y, costs = make(0, *shape, scale, spread)
    y[:2] = 1.0, -1.0
    alpha = solve_in_factor(Z, y, costs, 1e-8)
    P, D = measure(Z, y, costs, alpha)
    assert np.all((alpha >= 0) & (alpha <= costs))
    assert abs(y @ alpha) <= 1e-14 * np.sum(alpha)
    assert P - D <= 2e-8 * P


def bound_sides(Z: F64, y: F64, costs: F64, alpha: F64, half: float) -> float:
    """A lower bound of 1/2 |w|^2 where the multipliers of each side sum to `half`, in long double.

    The margin of w is the least sum of a_i y_i w.z_i of such multipliers; of every one of them, 1/2 |w|^2 is at least
    t margin - t^2 / 2 |w|^2, whose maximum over t is margin^2 / (2 |w|^2).
    """
    w = (y * alpha).astype(np.longdouble) @ Z.astype(np.longdouble)
    margin = np.longdouble(0.0)
    for side in (1.0, -1.0):
        rows = np.flatnonzero(y == side)
        scores = y[rows] * (Z[rows].astype(np.longdouble) @ w)
        order = np.argsort(scores)
        taken = np.diff(np.minimum(np.cumsum(costs[rows][order]), half), prepend=0.0)
        margin += taken @ scores[order]
    return float(max(margin, np.longdouble(0.0)) ** 2 / (w @ w) / 2)


@pytest.mark.parametrize("nu", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("shape", [(40, 3), (30, 30), (20, 50)])
@pytest.mark.parametrize(("scale", "spread"), [(1.0, 0.0), (1e-4, 2.0), (1e3, 0.0)])
def test_multipliers_of_sides_have_their_sums_and_are_optimal(
    shape: tuple[int, int], scale: float, spread: float, nu: float
) -> None:
    Z, y, costs = make(5, *shape, scale, spread)
    Z[:, 0] += 5 * scale * y  # so that w is not 0
    half = nu * min(np.sum(costs[y > 0]), np.sum(costs[y < 0]))
    alpha = solve_in_factor(Z, y, costs, 1e-8, totals=(half, half))
    assert np.all((alpha >= 0) & (alpha <= costs * (1 + 1e-15)))
    for side in (1.0, -1.0):
        assert np.sum(alpha[y == side]) == pytest.approx(half, rel=1e-13)
    w = (y * alpha) @ Z
    assert w @ w / 2 <= bound_sides(Z, y, costs, alpha, half) * (1 + 2e-8)


def test_long_rows_are_solved_where_their_products_have_no_digits() -> None:
    """C |x|^2 is 1e12 here; LIBSVM's P is 19 times as large, and pair steps end with a gap of 1."""
    Z, y, costs = make(1, 80, 2, 1e6, 0.0)
    y[:40] = np.random.default_rng(2).choice([-1.0, 1.0], 40)
    P, D = measure(Z, y, costs, solve_in_factor(Z, y, costs, 1e-6))
    assert P - D <= 1e-3 * P


def test_rows_without_cost_and_single_classes_have_no_multipliers() -> None:
    Z, y, costs = make(3, 20, 3, 1.0, 0.0)
    costs[4] = 0.0
    assert solve_in_factor(Z, y, costs, 1e-6)[4] == 0.0
    assert not solve_in_factor(Z, np.ones(20), costs, 1e-6).any()
    assert not solve_in_factor(Z, y, np.zeros(20), 1e-6).any()


def test_numbers_out_of_range_end_it() -> None:
    Z, y, costs = make(4, 20, 3, 1e200, 0.0)
    alpha = solve_in_factor(Z, y, costs, 1e-6)
    assert np.all(np.isfinite(alpha) & (alpha >= 0) & (alpha <= costs))


@pytest.mark.parametrize("rank", [1, 5, 20])
def test_a_factor_has_the_rank_of_the_kernel(rank: int) -> None:
    rows = np.random.default_rng(5).normal(size=(20, rank))
    Z = factor_kernel(rows @ rows.T)
    assert Z.shape == (20, rank)
    np.testing.assert_allclose(Z @ Z.T, rows @ rows.T, atol=1e-12 * rank)


def make_graded(seed: int) -> tuple[F64, F64]:
    """A kernel of degree 3 of 30 rows, whose lengths differ by up to 1e3, and labels at random."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(30, 6)) * 10.0 ** random.uniform(0, 3, 30)[:, None]
    return (rows @ rows.T) ** 3, random.choice([-1.0, 1.0], 30)


@pytest.mark.parametrize("seed", range(5))
def test_short_rows_are_factored_as_well_as_long_ones(seed: int) -> None:
    """The diagonal differs by 1e18: in the rounding of its largest entries short rows had no part in the factor."""
    K = make_graded(seed)[0]
    Z, lengths = factor_kernel(K), np.sqrt(np.diagonal(K))
    assert Z.shape == (30, 30)
    assert np.max(np.abs(Z @ Z.T - K) / np.outer(lengths, lengths)) <= 1e-14


@pytest.mark.parametrize("seed", range(5))
def test_multipliers_of_short_and_long_rows_are_optimal(seed: int) -> None:
    """The gaps were 100% of P."""
    K, y = make_graded(seed)
    Z = factor_kernel(K)
    P, D = measure(Z, y, np.ones(30), solve_in_factor(Z, y, np.ones(30), 1e-6))
    assert P - D <= 1e-3 * P


@pytest.mark.parametrize("rows", [np.zeros((6, 2)), np.ones((6, 2)), np.full((6, 1), 1e-200)])
def test_rows_that_nothing_tells_apart(rows: F64) -> None:
    """w = 0 is as good as any: every multiplier of the class that costs less is its cost."""
    y, costs = np.array([1.0, -1.0, 1.0, -1.0, 1.0, 1.0]), np.ones(6)
    for Z in (rows, factor_kernel(rows @ rows.T)):
        alpha = solve_in_factor(Z, y, costs, 1e-9)
        P, D = measure(Z, y, costs, alpha)
        assert pytest.approx(4.0) == P
        assert pytest.approx(4.0) == D


@pytest.mark.slow("trains until rounding is the limit")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_path_that_ends_at_zero_is_not_gone_on() -> None:
    """Where kernel values are far beyond the costs, all products become 0, by which the next step was divided."""
    high = ["0x1.85dd26p+32", "0x1.85bf26p+32", "0x1.85d858p+32"]
    X = np.array([[float.fromhex(value), float.fromhex("0x1.3f5a5ap+19")] for value in high], np.float32)
    model = SVC(
        C=0.0002260173780288652, kernel="poly", gamma=1.0, max_passes=300, n_jobs=1, solver=SMO(selection="largest")
    )
    model.fit(X, [0, 0, 1])
    assert model.status_ == "stalled"
    assert model.objective_ - model.lower_bound_ <= 10 * model.rounding_bound_


@pytest.mark.parametrize("nu", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_both_sides_of_nu_svr_have_the_optimum_of_a_tube(nu: float, scale: float) -> None:
    """P at the best bias and tube, and D of the difference of both sides, with the rows there once for each side."""
    random, n = np.random.default_rng(1), 40
    Z, costs = random.normal(size=(n, 3)) * scale, 10 ** random.uniform(-1, 1, n)
    targets = np.clip(Z[:, 0] / scale / 3 + 0.1 * random.normal(size=n), -1.0, 1.0)
    half = nu * float(np.sum(costs)) / 2
    y = np.repeat([1.0, -1.0], n)
    found = solve_in_factor(np.vstack((Z, Z)), y, np.tile(costs, 2), 1e-8, np.tile(targets, 2), (half, half))
    above, below = np.split(found, 2)
    assert np.all(found >= 0)
    assert np.all(found <= np.tile(costs, 2))
    assert (np.sum(above), np.sum(below)) == (pytest.approx(half, rel=1e-12), pytest.approx(half, rel=1e-12))
    s = (above - below).astype(np.longdouble)
    w = s @ Z
    residuals = targets - Z.astype(np.longdouble) @ w
    u, v = (min(_lose(r, costs, half, edge) for edge in r) for r in (residuals, -residuals))
    square = w @ w / 2
    assert float(square + u + v - (s @ targets - square)) <= 1e-6 * float(square + u + v)


def _lose(residuals: F64, costs: F64, half: float, edge: float) -> float:
    """N / 2 times the edge of a tube, and what the residuals beyond it cost."""
    return float(half * edge + costs @ np.maximum(residuals - edge, 0))


def test_nu_svr_of_raw_features_ends_within_few_reads() -> None:
    """Pair steps took 70 reads and more on such rows, and minutes."""
    random = np.random.default_rng(2)
    X = random.uniform(0, 1000, size=(300, 4)).astype(np.float32)
    targets = X @ [0.3, -0.2, 0.1, 0.0] + random.normal(size=300)
    model = NuSVR(kernel="linear", C=1e3, nu=0.7, n_jobs=1, max_passes=12).fit(X, targets)
    assert model.status_ == "converged"


@pytest.mark.parametrize("estimator", [SVC, NuSVR])
def test_polynomials_of_raw_features_end_within_few_reads(estimator: type[SVC | NuSVR]) -> None:
    """1,100 such rows were at gaps of 0.9 and more after 20 CPU seconds of pair steps."""
    random = np.random.default_rng(2)
    X = (random.normal(size=(600, 6)) * [1.0, 3e1, 1e3, 1e2, 1e4, 3.0]).astype(np.float32)
    targets = X[:, 0] + (X[:, 2] / 1e3) ** 2 + random.normal(size=600)
    model = estimator(kernel="poly", degree=2, gamma=2e-5, coef0=1.0, C=100.0, n_jobs=1, max_passes=6)
    model.fit(X, targets if estimator is NuSVR else targets > 1.0)
    assert model.status_ == "converged"
