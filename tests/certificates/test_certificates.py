"""P, D, the gap and its shares, and the bias, against their definitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.certificates.kernel import Proof, certify, find_best_bias, prove
from streamsvm.numeric.rows import F64
from tests.conftest import make_problem
from tests.kernel_problems import KINDS, balance, matrix_of, measure


@dataclass(frozen=True)
class Drawn:
    """Labels, costs and sums f in quarters: additions are exact, ties are many."""

    y: F64
    costs: F64
    f: F64


@st.composite
def drawn_rows(draw: st.DrawFn) -> Drawn:
    n, rng = draw(st.integers(1, 30)), np.random.default_rng(draw(st.integers(0, 2**32)))
    y = rng.choice(draw(st.sampled_from(((-1.0, 1.0), (-1.0,), (1.0,)))), n)
    costs = rng.choice(draw(st.sampled_from(((1.0,), (0.0, 0.5, 1.0, 3.0), (0.0,), (0.0, 2.0)))), n)
    return Drawn(y, costs, rng.integers(-8, 9, n) / 4)


def loss(rows: Drawn, bias: float) -> float:
    return float(rows.costs @ np.maximum(0.0, 1 - rows.y * (rows.f + bias)))


@given(drawn_rows())
def test_no_bias_is_better_and_the_middle_of_the_best_is_taken(rows: Drawn) -> None:
    """The loss is least at one corner at least; all are tried, and a fine grid around them."""
    bias = find_best_bias(rows.y, rows.costs, rows.f)
    corners = rows.y - rows.f
    losses = np.array([loss(rows, corner) for corner in corners])
    grid = np.linspace(corners.min() - 1, corners.max() + 1, 101)
    assert loss(rows, bias) <= min(losses.min(), min(loss(rows, b) for b in grid)) + 1e-12
    used = rows.y[rows.costs > 0]
    if len(set(used)) == 2:
        best = corners[losses == losses.min()]
        assert bias == (best.min() + best.max()) / 2


@given(st.integers(0, 2**32), st.integers(1, 200), st.sampled_from((0, 3, 12)))
def test_bias_of_sums_of_any_size(seed: int, n: int, decades: int) -> None:
    """Few f of huge size, and those at which the slope turns are close together: as if all corners were in order."""
    rng = np.random.default_rng(seed)
    y, costs = rng.choice([-1.0, 1.0], n), rng.choice([0.5, 1.0, 3.0], n)
    f = rng.normal(size=n) * 10.0 ** rng.integers(0, decades + 1, n)
    order = np.argsort(y - f, kind="stable")
    slope, corners = np.cumsum(costs[order]) - costs[y > 0].sum(), y - f
    first, last = (min(int(np.sum(part)), n - 1) for part in (slope < 0, slope <= 0))
    assert find_best_bias(y, costs, f) == (corners[order[first]] + corners[order[last]]) / 2


@given(drawn_rows(), st.integers(0, 2**32))
def test_shares_add_up_to_the_gap_and_none_is_negative(rows: Drawn, seed: int) -> None:
    """P(b) - D = sum of shares for any b where sum y a = 0; they vanish where KKT holds."""
    rng = np.random.default_rng(seed)
    alpha = balance(rows.costs * rng.choice((0.0, 0.3, 1.0), len(rows.y)), rows.y)
    bias = float(rng.normal()) if seed % 2 else None
    found = certify(rows.y, rows.costs, alpha, rows.f, bias)
    half_square = float(np.sum(alpha * rows.y * rows.f)) / 2
    assert found.objective == pytest.approx(half_square + loss(rows, found.bias), abs=1e-10)
    assert found.lower_bound == pytest.approx(alpha.sum() - half_square, abs=1e-10)
    assert np.all(found.shares >= 0)
    assert found.shares.sum() == pytest.approx(found.objective - found.lower_bound, abs=1e-10)
    margins = rows.y * (rows.f + found.bias)
    fulfilled = np.where(margins > 1, alpha == 0, np.where(margins < 1, alpha == rows.costs, True))
    np.testing.assert_array_equal(found.shares <= 1e-13, fulfilled | (rows.costs == 0))
    assert found.bias == (find_best_bias(rows.y, rows.costs, rows.f) if bias is None else bias)


@pytest.mark.parametrize("name", ["linear", "rbf", "poly"])
def test_a_gap_brackets_the_optimum(name: str) -> None:
    """P and D from f alone are those of the kernel's matrix, at any feasible multipliers; D <= P of any others."""
    problem = make_problem(3, n=40, weighted=True)
    K, y, costs = matrix_of(problem, KINDS[name]), problem.y.astype(float), problem.costs(2.0)
    rng, found = np.random.default_rng(1), []
    for _ in range(20):
        alpha = balance(costs * rng.random(40) * rng.random(), y)
        found.append(certify(y, costs, alpha, K @ (alpha * y)))
        primal, dual = measure(K, y, costs, alpha, found[-1].bias)
        assert (found[-1].objective, found[-1].lower_bound) == pytest.approx((primal, dual), rel=1e-12)
        assert found[-1].relative_gap == pytest.approx((primal - dual) / primal)
    assert max(each.lower_bound for each in found) <= min(each.objective for each in found)


def test_nothing_to_lose_is_no_gap() -> None:
    y, nothing = np.array([1.0, -1.0]), np.zeros(2)
    assert certify(y, nothing, nothing, nothing).relative_gap == 0.0


def test_a_stretched_model_counts_that_its_coefficients_are_rounded() -> None:
    """f may be known exactly; the multiples that are saved are float64 numbers, and their terms may cancel."""
    y, costs, alpha, largest = np.array([-1.0, 1.0]), np.full(2, 2.0**10), np.full(2, 2.0), 2.0**34
    proof = prove((y, costs, alpha, (1 - 1e-4) * y, None), np.zeros(2), largest, 0.0)
    assert proof.stretch > 1.0
    assert proof.objective_error >= np.sum(costs) * 2.0**-53 * largest * np.sum(alpha)


def test_where_rounding_could_be_more_than_no_model_loses_there_is_none() -> None:
    y, costs, alpha = np.array([-1.0, 1.0]), np.array([3.0, 5.0]), np.ones(2)
    proof = prove((y, costs, alpha, y, None), np.full(2, 10.0), 1.0, 1e-3)
    assert (proof.stretch, proof.objective) == (0.0, 6.0)
    assert proof.objective_error < 1e-12


def test_what_rounding_can_have_moved_is_charged_once() -> None:
    """The gap is 8e-4 as computed, and 1e-3 if rounding has moved P and D as far as it can."""
    proof = Proof(1.0, 1e-4, 0.9992, 1e-4, bias=0.0, stretch=1.0, magnitude=1.0)
    assert proof.is_within(1.001e-3)
    assert not proof.is_within(0.999e-3)
