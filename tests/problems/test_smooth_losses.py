"""The smooth losses against what is written out in long double, and at scores that overflow if one is careless."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from streamsvm.numeric.rows import F64, Rows
from streamsvm.problems.classification import Logistic, SquaredHinge

COSTS = (0.5, 3.0)
KINDS = {"squared_hinge": SquaredHinge(COSTS), "logistic": Logistic(COSTS)}
SCORES = np.array([-1e30, -1e3, -40.0, -1.0, -1e-9, 0.0, 1e-9, 0.3, 1.0, 1 + 1e-9, 1 - 1e-9, 2.0, 40.0, 1e3, 1e30])


@pytest.fixture(params=KINDS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make_rows(n: int, seed: int = 0) -> Rows:
    """Rows of which only labels and weights are looked at; one weight is 0."""
    random = np.random.default_rng(seed)
    weight = 10.0 ** random.uniform(-3, 3, n)
    weight[0] = 0.0
    return Rows(0, np.zeros((n, 1), np.float32), random.integers(0, 2, n).astype(np.int32), weight)


def write_out(name: str, rows: Rows, scores: F64) -> tuple[F64, F64, F64]:
    """l, l' and l'' in long double; where the squared hinge loss has a corner in its slope, l'' is that of the left."""
    assert rows.y is not None
    assert rows.sample_weight is not None
    y, f = np.where(rows.y == 1, 1, -1), scores.astype(np.longdouble)
    costs, m = np.where(rows.y == 1, COSTS[1], COSTS[0]) * rows.sample_weight.astype(np.longdouble), y * f
    if name == "squared_hinge":
        missing = np.maximum(0, 1 - m)
        return costs * missing**2, -2 * costs * y * missing, 2 * costs * (m < 1)
    with np.errstate(over="ignore", under="ignore"):
        wrong = 1 / (1 + np.exp(np.clip(m, -11000, 11000)))
    return costs * np.logaddexp(np.longdouble(0), -m), -costs * y * wrong, costs * wrong * (1 - wrong)


def test_losses_and_slopes_are_those_that_are_written_out(name: str) -> None:
    for seed in range(5):
        rows = make_rows(len(SCORES), seed)
        for scores in (SCORES, -SCORES, np.random.default_rng(seed).normal(size=len(SCORES)) * 5):
            for found, expected in zip(
                KINDS[name].measure(rows, scores), write_out(name, rows, scores)[:2], strict=True
            ):
                np.testing.assert_allclose(found, expected.astype(np.float64), rtol=1e-14, atol=1e-300)


def test_slopes_and_second_derivatives_are_those_of_finite_differences(name: str) -> None:
    """Central differences of losses, and of slopes, away from the corner."""
    rows, h = make_rows(400, 1), 1e-5
    assert rows.y is not None
    scores = np.random.default_rng(2).normal(size=400) * 3
    scores += np.where(np.abs(np.abs(scores) - 1) < 1e-3, 0.01, 0.0)
    loss = KINDS[name]
    (above, slope_above), (below, slope_below) = loss.measure(rows, scores + h), loss.measure(rows, scores - h)
    costs = loss.sharpest(rows)
    np.testing.assert_allclose(
        (above - below) / (2 * h) / (costs + 1e-300),
        loss.measure(rows, scores)[1] / (costs + 1e-300),
        rtol=1e-6,
        atol=1e-8,
    )
    np.testing.assert_allclose(
        (slope_above - slope_below) / (2 * h) / (costs + 1e-300),
        loss.bend(rows, scores, np.zeros(400)) / (costs + 1e-300),
        rtol=1e-6,
        atol=1e-8,
    )


@pytest.mark.parametrize("reach", [0.0, 1e-12, 0.01, 0.7, 3.0, 1e3])
def test_bend_is_the_least_second_derivative_within_the_reach(name: str, reach: float) -> None:
    """No sampled score within the reach has a smaller one, and one of them has nearly this one."""
    rows, n = make_rows(300, 3), 300
    random = np.random.default_rng(4)
    scores = np.concatenate((random.normal(size=n // 2) * 2, 1 + random.normal(size=n // 2) * reach))
    shares = np.append(np.linspace(-1, 1, 201), [0.0, 1 - 1e-9, 1e-9 - 1])
    least = np.min([write_out(name, rows, scores + share * reach)[2] for share in shares], axis=0).astype(np.float64)
    bend = KINDS[name].bend(rows, scores, np.full(n, reach))
    assert np.all(bend <= least * (1 + 1e-12))
    if name == "squared_hinge":  # it has two values, and the corner is as near as the reach for none of these rows
        assert np.mean(bend == least) > 0.99
    else:
        np.testing.assert_allclose(bend, least, rtol=1e-6, atol=1e-300)
    assert np.any(bend > 0) or reach >= 1e3


@pytest.mark.parametrize("reach", [0.0, 1e-12, 0.01, 0.7, 3.0, np.inf])
def test_no_second_derivative_within_the_reach_is_larger(name: str, reach: float) -> None:
    """And a sampled one is nearly as large; without a limit it is the sharpest."""
    rows, scores = make_rows(200, 5), np.random.default_rng(6).normal(size=200) * 2
    shares, most = np.append(np.linspace(-1, 1, 2001), 1e-3), min(reach, 20.0)
    found = np.max([write_out(name, rows, scores + share * most)[2] for share in shares], axis=0).astype(np.float64)
    largest = KINDS[name].bend_most(rows, scores, np.full(200, reach))
    assert np.all(largest >= found * (1 - 1e-12))
    np.testing.assert_allclose(largest, found, rtol=1e-3)
    if np.isinf(reach):
        np.testing.assert_array_equal(largest, KINDS[name].sharpest(rows))


def test_extreme_scores_give_finite_values_and_no_warnings(name: str) -> None:
    rows = make_rows(len(SCORES), 6)
    with warnings.catch_warnings(), np.errstate(over="raise", divide="raise", invalid="raise"):
        warnings.simplefilter("error")
        for scores in (SCORES, -SCORES):
            losses, slopes = KINDS[name].measure(rows, scores)
            reaches = (np.zeros(len(scores)), np.full(len(scores), 1e300), np.full(len(scores), np.inf))
            for values in (losses, slopes, *(KINDS[name].bend(rows, scores, reach) for reach in reaches)):
                assert np.all(np.isfinite(values))
            assert all(np.all(np.isfinite(KINDS[name].bend_most(rows, scores, reach))) for reach in reaches)
            assert np.all(losses >= 0)
            assert np.all(KINDS[name].bend(rows, scores, reaches[-1]) == 0)


def test_exactly_at_the_margin_the_squared_hinge_has_no_slope_and_no_curvature() -> None:
    rows = Rows(0, np.zeros((2, 1), np.float32), np.array([0, 1], np.int32))
    for values in (
        *KINDS["squared_hinge"].measure(rows, np.array([-1.0, 1.0])),
        KINDS["squared_hinge"].bend(rows, np.array([-1.0, 1.0]), np.zeros(2)),
    ):
        assert not values.any()
