"""Sums in twice the precision against fractions: they are off by no more than they say, or by nothing."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.certificates.double_double import (
    add_exact,
    add_exact_sums,
    bound_score,
    compute_exact_scores,
    start_exact,
    start_exact_sums,
)
from streamsvm.certificates.kernel import FixedSum, prove_sums
from streamsvm.numeric import rounding
from streamsvm.numeric.rounding import add_pairs, sum_exactly
from streamsvm.numeric.rows import F64, Rows


def sum_up(products: list[Fraction]) -> tuple[Fraction, float]:
    """The sum and the sum of the sizes."""
    return sum(products, Fraction(0)), float(sum(map(abs, products), Fraction(0)))


def multiply(left: F64, right: F64) -> list[Fraction]:
    """The products of the entries, exactly."""
    return [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(left, right, strict=True)]


def add(pair: F64) -> Fraction:
    """The sum of the two numbers of a pair, exactly."""
    return Fraction(float(pair[0])) + Fraction(float(pair[1]))


@pytest.mark.parametrize(("d", "offset"), [(1, 0.0), (30, 0.0), (300, 0.0), (300, 1e4)])
def test_scores_are_off_by_no_more_than_their_bound(d: int, offset: float) -> None:
    rng = np.random.default_rng(d)
    X, w = (rng.standard_normal((20, d)) + offset).astype(np.float32), rng.standard_normal(d)
    scores = compute_exact_scores(X, w[None, :])[0]
    for x, score in zip(X, scores, strict=True):
        exact, size = sum_up(multiply(x, w))
        assert abs(add(score) - exact) <= bound_score(d) * size


@pytest.mark.parametrize("n", [3, 300, 3000])
def test_sums_over_rows_are_off_by_no_more_than_their_bound(n: int) -> None:
    rng = np.random.default_rng(n)
    X, alpha = (rng.standard_normal((n, 2)) + 1e3).astype(np.float32), rng.random(n)
    sums = start_exact_sums(2)
    add_exact_sums(sums, Rows(0, X, np.ones(n, np.int32), None), alpha)
    for j in range(2):
        exact, size = sum_up(multiply(X[:, j], alpha))
        assert abs(add(np.array([sums.totals[1, j], sums.rests[1, j]])) - exact) <= sums.share * size


def test_pairs_stay_pairs() -> None:
    """The first number of a sum of pairs is the sum, rounded once, though the second numbers are large."""
    total, rest = add_pairs(np.array([1.0]), np.array([0.25]), np.array([-1.0]), np.array([2.0**-60]))
    assert (total[0], rest[0]) == (0.25 + 2.0**-60, 0.0) or (total[0], rest[0]) == (0.25, 2.0**-60)


def test_rows_beyond_their_margin_round_nothing() -> None:
    """Their loss is zero, whatever was rounded, even if costs are so large that their rounding would matter."""
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((50, 2000)).astype(np.float32), rng.standard_normal(2000)
    y = (X @ w > 0).astype(np.int32)
    far = np.abs(X.astype(np.float64) @ w) > 1.0
    rows = Rows(0, X[far], y[far], None)
    totals = start_exact(2)
    add_exact(totals, rows, np.stack((w, w / 1e3)), np.zeros(2), np.full(2, 1e30))
    losses, rounding = totals.read(2000)
    assert (losses[0], rounding[0]) == (0.0, 0.0)
    assert rounding[1] > 0.0
    assert losses[1] > 0.0


@given(vectors=st.lists(st.lists(st.floats(-1e300, 1e300), max_size=20), max_size=3))
def test_exact_sums_are_rounded_once(vectors: list[list[float]]) -> None:
    """Beside the sum of fractions, in blocks of three numbers."""
    with patch.object(rounding, "SUMMED_AT_ONCE", 3):
        found = sum_exactly(*(np.array(each, dtype=np.float64) for each in vectors))
    assert found == float(sum(Fraction(value) for each in vectors for value in each))


def measure_proof(n: int) -> int:
    """The most memory of a proof of one class at once, by tracemalloc."""
    g, alpha = np.linspace(0.1, 1.0, n), np.zeros(n)
    alpha[: n // 100] = 1.0
    sums = [FixedSum(np.arange(n), n / 100)]
    tracemalloc.start()
    prove_sums(np.ones(n), alpha, g, sums, np.full(n, 1e-12), 1.0, is_definite=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_the_proof_of_fixed_sums_holds_few_vectors() -> None:
    """Eleven vectors with those it is given, and no numbers as objects of Python, which take 32 bytes each."""
    few, many = measure_proof(100_000), measure_proof(300_000)
    assert many - few <= 11 * 8 * 200_000
