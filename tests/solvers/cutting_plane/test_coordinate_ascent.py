"""Coordinate ascent against independent optima; what stays true on the way, and where it stops."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array

from streamsvm.solvers.cutting_plane.coordinate_ascent import ascend, make_part
from tests.conftest import Problem, make_problem
from tests.linear_problems import bracket_by_qp, objective_by_liblinear, with_bias

F64 = npt.NDArray[np.float64]
CLASS_COSTS = (0.5, 2.0)
PROBLEMS = {
    "dense": make_problem(1, n=120, d=5),
    "sparse": make_problem(2, n=120, d=8, density=0.4),
    "weighted": make_problem(3, n=120, d=5, weighted=True),
    "sparse-weighted": make_problem(4, n=120, d=8, density=0.4, weighted=True),
    "wide": make_problem(5, n=60, d=150, density=0.2),
    "rows-of-zeros": make_problem(6, n=120, d=6, density=0.1, weighted=True),
}
every_problem = pytest.mark.parametrize("name", PROBLEMS)


def climb(
    problem: Problem,
    bias_feature: float = 1.0,
    share: F64 | None = None,
    w: F64 | None = None,
    n_parts: int = 1,
    **changed: Any,
) -> tuple[F64, F64]:
    """Multipliers and w, from c = 0 unless something else is said."""
    rows, limits = problem.in_memory().read(0), np.linspace(0, len(problem.y), n_parts + 1).astype(int)
    share = np.zeros(len(problem.y)) if share is None else share
    slices = [slice(start, stop) for start, stop in pairwise(limits)]
    parts = [make_part(rows.slice(own), np.array(CLASS_COSTS), bias_feature, share[own]) for own in slices]
    settings = {"wanted": 0.0, "tol": 1e-10, "epochs": 5000, "seed": (0, 0)} | changed
    after, *_ = ascend(parts, bias_feature, np.zeros(problem.X.shape[1] + 1) if w is None else w, **settings)
    return np.concatenate([part.share for part in parts]), after


def climb_to_the_top(problem: Problem, bias_feature: float, n_parts: int) -> tuple[F64, F64]:
    """Call again and again, as passes do: each time all rows are tried, those too that shrinking has left out."""
    share, w = climb(problem, bias_feature, n_parts=n_parts, epochs=20)
    for k in range(1, 2000):
        share, w = climb(problem, bias_feature, share=share, w=w, n_parts=n_parts, epochs=20, seed=(0, k))
    return share, w


def costs_of(problem: Problem) -> F64:
    return problem.costs(1.0, *CLASS_COSTS)


def sum_rows(problem: Problem, share: F64, bias_feature: float = 1.0) -> F64:
    """Sum of C_i c_i y_i x_i."""
    return np.asarray((costs_of(problem) * share * problem.y) @ with_bias(problem, bias_feature))


def dual(problem: Problem, share: F64, w: F64) -> float:
    return float(costs_of(problem) @ share - w @ w / 2)


def measure_gap(problem: Problem, share: F64, w: F64, bias_feature: float = 1.0) -> float:
    """By how much D could rise at most, the rows' part of the duality gap."""
    slope = 1.0 - problem.y * (with_bias(problem, bias_feature) @ w)
    return float(costs_of(problem) @ (np.maximum(slope, 0.0) - share * slope))


@every_problem
@pytest.mark.parametrize(("bias_feature", "n_parts"), [(1.0, 1), (3.0, 3)])
def test_the_optimum_is_that_of_a_qp_and_of_liblinear(name: str, bias_feature: float, n_parts: int) -> None:
    """Zero rows weigh in by their bias."""
    problem = PROBLEMS[name]
    optimum = bracket_by_qp(problem, costs_of(problem), bias_feature)
    share, w = climb_to_the_top(problem, bias_feature, n_parts)
    assert dual(problem, share, w) == pytest.approx(optimum.low, rel=1e-8)
    assert dual(problem, share, w) <= optimum.high * (1 + 1e-9)
    kept = costs_of(problem) > 0
    part = Problem(problem.X[kept], problem.y[kept])  # LIBLINEAR takes no weights of zero
    by_liblinear = objective_by_liblinear(part, costs_of(problem)[kept], bias_feature)
    assert dual(problem, share, w) == pytest.approx(by_liblinear, rel=1e-5)
    np.testing.assert_allclose(w, sum_rows(problem, share, bias_feature), rtol=1e-9, atol=1e-9)
    assert share.min() >= 0.0
    assert share.max() <= 1.0
    assert not share[~kept].any()


def test_zero_rows_without_a_bias_stay_as_they_are() -> None:
    """There is nothing that their multipliers would change but D itself; the others are at their optimum."""
    X = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    X[::5] = 0.0
    problem = Problem(X, np.where(X[:, 0] + X[:, 1] > 0, 1, -1))
    before = np.random.default_rng(1).random(60)
    share, w = climb(problem, 0.0, share=before, w=sum_rows(problem, before, 0.0))
    np.testing.assert_array_equal(share[::5], before[::5])
    empty = ~X.any(axis=1)
    optimum = bracket_by_qp(Problem(X[~empty], problem.y[~empty]), costs_of(problem)[~empty], 0.0)
    assert dual(problem, share, w) - costs_of(problem)[empty] @ share[empty] == pytest.approx(optimum.low, rel=1e-8)


@every_problem
def test_other_rows_are_fixed(name: str) -> None:
    """Half of the rows, from any start: as good as they can be beside the others, and w goes along."""
    problem, rng = PROBLEMS[name], np.random.default_rng(0)
    half = np.flatnonzero(rng.random(len(problem.y)) < 0.5)
    mine = Problem(problem.X[half], problem.y[half], None if problem.weight is None else problem.weight[half])
    everything = rng.choice([0.0, 0.3, 1.0], len(problem.y))
    start, w = everything[half].copy(), sum_rows(problem, everything)
    fixed, given = w - sum_rows(mine, start), (start.copy(), w.copy())
    share, after = climb(mine, share=start, w=w)
    np.testing.assert_array_equal(start, given[0])
    np.testing.assert_array_equal(w, given[1])
    np.testing.assert_allclose(after, fixed + sum_rows(mine, share), rtol=1e-9, atol=1e-9)
    assert np.all((share >= 0.0) & (share <= 1.0))
    everything[half] = share
    assert measure_gap(mine, share, after) <= 1e-8 * abs(dual(problem, everything, after))


@every_problem
def test_the_dual_never_falls(name: str) -> None:
    """Epoch by epoch, from a bad start."""
    problem = PROBLEMS[name]
    start = np.random.default_rng(0).random(len(problem.y)) * (costs_of(problem) > 0)
    w = sum_rows(problem, start)
    values = [dual(problem, start, w)]
    values += [dual(problem, *climb(problem, share=start, w=w, epochs=epochs)) for epochs in range(1, 12)]
    assert np.all(np.diff(values) >= -1e-10 * np.abs(values[1:]))
    assert values[-1] > values[0]


def test_equal_seeds_give_equal_bits() -> None:
    problem = PROBLEMS["dense"]
    one, same, other = (climb(problem, epochs=3, seed=seed) for seed in ((1, 2), (1, 2), (1, 3)))
    for a, b, c in zip(one, same, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.any(a != c)


def test_sparse_rows_end_where_dense_ones_do() -> None:
    problem = PROBLEMS["dense"]
    sparse = Problem(csr_array(problem.X), problem.y)
    for a, b in zip(climb(problem, epochs=5), climb(sparse, epochs=5), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_where_it_stops() -> None:
    """After so many epochs, once the gap is `wanted`, or tol times D."""
    problem = PROBLEMS["dense"]
    first, second = (climb(problem, epochs=epochs)[0] for epochs in (1, 2))
    assert np.any(first != second)
    for enough in ({"wanted": 1e9}, {"tol": 1e9}, {"epochs": 1}):
        np.testing.assert_array_equal(climb(problem, **enough)[0], first)  # type: ignore[arg-type]
    for more in ({"epochs": 2}, {"wanted": 1e-9, "epochs": 2}):
        np.testing.assert_array_equal(climb(problem, **more)[0], second)  # type: ignore[arg-type]
    np.testing.assert_array_equal(climb(problem, epochs=0)[0], 0.0)


@pytest.mark.parametrize("bias_feature", [1.0, 3.0])
def test_the_gap_that_is_wanted_is_met(bias_feature: float) -> None:
    """It is measured on the way: at the end it is smaller, or a little larger."""
    gaps = [
        measure_gap(problem, *climb(problem, bias_feature, wanted=0.01), bias_feature) for problem in PROBLEMS.values()
    ]
    assert max(gaps) <= 0.05
