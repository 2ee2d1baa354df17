"""Shares of rows whose products have no digit of |w|^2 left: D, computed exactly, against P of a known point."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from streamsvm import CuttingPlane, LinearSVC
from streamsvm.solvers.cutting_plane.small_qp import maximise_shares, multiply_rows, refine_shares
from streamsvm.solvers.cutting_plane.smoothed_newton import HingeRows
from tests.conftest import Problem, make_problem
from tests.linear_problems import bracket_by_qp, with_bias

F64 = npt.NDArray[np.float64]
SCALE = 2.0**25
LATTICE = np.array(
    [
        *([-2, -1, -2], [2, 0, -1], [1, 0, -2], [-1, 0, -2], [0, -2, -2]),
        *([1, 1, 0], [1, 0, -2], [2, 1, -1], [-1, -2, -2], [1, -2, -1]),
    ]
)
COSTS = np.array([6.7e10, 2.5e10, 7.0, 1.3e10, 26.0, 6.4e10, 9.8e10, 5.8e7, 37.0, 3.1e4])
LONG = Problem((SCALE * LATTICE).astype(np.float32), np.array([-1, -1, 1, 1, 1, 1, -1, 1, -1, 1]), COSTS)
BEST = np.array([-1 / SCALE, 3 / SCALE, 1 / SCALE, 2.0])  # w; the last entry is the bias


def wide(problem: Problem) -> Problem:
    """The same rows with many features that are zero for all rows."""
    return Problem(np.hstack((problem.X, np.zeros((len(problem.y), 40), np.float32))), problem.y, problem.weight)


def hold(problem: Problem) -> HingeRows:
    return HingeRows(problem.in_memory().read(0), problem.y.astype(np.float64), problem.costs(1.0), 1.0)


def refine(problem: Problem, share: F64, w: F64) -> F64:
    return refine_shares(hold(problem), share, w, 1e-6)


def exact_dual(problem: Problem, share: F64) -> Fraction:
    shares = [Fraction(c) * Fraction(a) for c, a in zip(problem.costs(1.0), share, strict=True)]
    rows = with_bias(problem, 1.0)
    w = [sum(s * int(y) * Fraction(x) for s, y, x in zip(shares, problem.y, column, strict=True)) for column in rows.T]
    return sum(shares) - sum(value * value for value in w) / Fraction(2)


def exact_primal(problem: Problem, w: F64) -> Fraction:
    rows, point = with_bias(problem, 1.0), [Fraction(value) for value in w]
    scores = [sum(v * Fraction(x) for v, x in zip(point, row, strict=True)) for row in rows]
    margins = [int(y) * score for y, score in zip(problem.y, scores, strict=True)]
    losses = [Fraction(c) * max(Fraction(0), 1 - m) for c, m in zip(problem.costs(1.0), margins, strict=True)]
    return sum(value * value for value in point) / Fraction(2) + sum(losses)


@pytest.mark.parametrize("problem", [LONG, wide(LONG)], ids=["short", "wide"])
def test_long_rows_whose_weight_vector_is_short(problem: Problem) -> None:
    """The products alone do not get there, and say so."""
    n, width = problem.X.shape[0], problem.X.shape[1] + 1
    least = exact_primal(LONG, BEST) * (1 - Fraction(1, 10**6))
    data, none = hold(problem), np.zeros(n)
    by_products, is_enough = maximise_shares(data, multiply_rows(data.rows, 1.0), none, np.zeros(width), 1e-6)
    assert not is_enough
    assert exact_dual(problem, by_products) < least
    found = refine(problem, none, np.zeros(width))
    assert 0.0 <= found.min() <= found.max() <= 1.0
    assert exact_dual(problem, found) >= least


def test_a_training_on_such_rows_is_proved() -> None:
    """With the products alone the lower bound stayed below a thousandth of P."""
    model = LinearSVC(tol=1e-6, n_jobs=1, max_passes=100, solver=CuttingPlane(acceleration="block-ascent"))
    model.fit(LONG.X, LONG.y, sample_weight=LONG.weight)
    assert model.status_ == "converged"
    assert model.lower_bound_ <= float(exact_primal(LONG, BEST))


@pytest.mark.parametrize("start", [0.0, 0.5])
def test_the_optimum_is_that_of_a_qp_library(start: float) -> None:
    """On harmless rows as well, some of which cost nothing."""
    problem = make_problem(3, n=60, d=5, weighted=True)
    costs, share = problem.costs(1.0), np.full(60, start)
    found = refine(problem, share, (costs * share * problem.y) @ with_bias(problem, 1.0))
    optimum = bracket_by_qp(problem, costs)
    assert optimum.low * (1 - 1e-6) <= float(exact_dual(problem, found)) <= optimum.high * (1 + 1e-9)
    np.testing.assert_array_equal(found[costs == 0.0], start)


def test_the_dual_never_falls() -> None:
    """From the best shares, as well, and where more is asked for than float64 can give.

    D is known as well as its weight vector, which is a sum of terms that are far longer than it is.
    """
    rows, signed = with_bias(LONG, 1.0), LONG.costs(1.0) * LONG.y
    share = refine(LONG, np.zeros(10), np.zeros(4))
    w = (signed * share) @ rows
    again = refine_shares(hold(LONG), share, w, 0.0)
    off = len(share) * 2.0**-53 * (np.abs(signed * share) @ np.abs(rows))
    assert exact_dual(LONG, again) >= exact_dual(LONG, share) - Fraction(float(off @ (np.abs(w) + off)))
    assert off @ (np.abs(w) + off) < 1e-8 * float(exact_dual(LONG, share))
