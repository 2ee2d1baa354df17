"""The losses of a regression against their definition, the smoothing of kinks, and the measures of predictions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

from streamsvm.numeric.rows import F64, Rows
from streamsvm.options import TrainOptions
from streamsvm.problems.problem import Scored
from streamsvm.problems.regression import LOSSES, REGRESS, EpsilonInsensitive, SquaredEpsilonInsensitive
from streamsvm.system.errors import InputError
from tests.conftest import make_problem
from tests.regression_problems import make_regression

NONE = np.empty(0)
RANDOM = np.random.default_rng(0)


def make_rows(n: int = 500) -> tuple[Rows, F64]:
    """Rows of which only targets and weights are looked at, and scores of which some are on the kinks of 0.25."""
    target, weight = RANDOM.standard_normal(n), RANDOM.uniform(0, 2, n)
    scores = target + RANDOM.choice([0.0, 0.25, -0.25, 0.1, 3.0, -3.0], n) + RANDOM.choice([0.0, 1e-3, 0.3], n)
    return Rows(0, np.zeros((n, 1), np.float32), None, weight, target=target), scores


@pytest.mark.parametrize("epsilon", [0.0, 0.25, 10.0])
def test_losses_are_those_of_the_definition(epsilon: float) -> None:
    rows, scores = make_rows()
    assert rows.target is not None
    assert rows.sample_weight is not None
    for power, loss in ((1, EpsilonInsensitive), (2, SquaredEpsilonInsensitive)):
        losses, slopes = loss(3.0, epsilon, NONE).measure(rows, scores)
        outside = np.maximum(0.0, np.abs(rows.target.astype(np.longdouble) - scores) - epsilon)
        expected = 3.0 * rows.sample_weight * outside**power
        np.testing.assert_allclose(losses, expected.astype(np.float64), rtol=1e-14)
        for step in (1e-3, -1e-3, 1.0, -1.0):  # a tangent lies below a convex function
            beyond = loss(3.0, epsilon, NONE).measure(rows, scores + step)[0]
            assert (beyond >= losses + step * slopes - 1e-12).all()


@pytest.mark.parametrize("epsilon", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("width", [1e-3, 0.3, 5.0])
def test_the_smoothing_is_above_the_loss_and_less_its_slack_below(epsilon: float, width: float) -> None:
    rows, scores = make_rows()
    exact, loss = EpsilonInsensitive(3.0, epsilon, NONE), EpsilonInsensitive(3.0, epsilon, NONE).sharpen(width)
    values, slopes = loss.measure(rows, scores)
    found = loss.smooth(rows, scores, np.zeros(rows.n_rows))
    np.testing.assert_allclose(values - found.excess, exact.measure(rows, scores)[0], atol=1e-12)
    assert (found.excess >= 0).all()
    for way in np.linspace(-4, 4, 33):  # the lower bound that belongs to these scores, found by its least curvature
        truth = exact.measure(rows, scores + way)[0]
        reach = np.full(rows.n_rows, abs(way))
        bent, sharpest = loss.bend(rows, scores, reach), loss.bend_most(rows, scores, reach)
        assert (truth >= values - found.slack + way * slopes + bent * way**2 / 2 - 1e-12).all()
        assert (np.abs(loss.measure(rows, scores + way)[1] - slopes) <= sharpest * abs(way) + 1e-12).all()
    h = 1e-5 * width
    ahead, behind = (loss.measure(rows, scores + step)[0] for step in (h, -h))
    np.testing.assert_allclose((ahead - behind) / (2 * h), slopes, atol=1e-4)


def test_without_a_width_nothing_is_smoothed() -> None:
    rows, scores = make_rows()
    loss = EpsilonInsensitive(1.0, 0.25, NONE)
    found = loss.smooth(rows, scores, np.zeros(rows.n_rows))
    assert not found.excess.any()
    assert not found.slack.any()
    assert (found.steepest >= np.abs(loss.measure(rows, scores)[1])).all()
    assert not np.any(loss.bend_most(rows, scores, np.full(rows.n_rows, np.inf)))
    assert not loss.sharpest(rows).any()


def test_the_squared_loss_bends_all_over_only_without_a_tube() -> None:
    rows, scores = make_rows()
    assert rows.sample_weight is not None
    anywhere = np.full(rows.n_rows, 100.0)
    without, tube = (SquaredEpsilonInsensitive(1.0, epsilon, NONE) for epsilon in (0.0, 0.1))
    np.testing.assert_array_equal(without.bend(rows, scores, anywhere), 2 * rows.sample_weight)
    assert not tube.bend(rows, scores, anywhere).any()


def test_classes_that_are_numbers_are_targets() -> None:
    source = make_problem(1, n=50, d=3).in_memory()
    source.classes = np.array([-2.5, 4.0])
    loss, rows = REGRESS.make_loss(source, TrainOptions(task="regress", epsilon=0.0)), source.read(0)
    assert rows.y is not None
    np.testing.assert_array_equal(loss.measure(rows, np.zeros(50))[0], np.where(rows.y == 1, 4.0, 2.5))
    source.classes = np.array(["a", "b"])
    with pytest.raises(InputError, match="a regression needs numbers"):
        REGRESS.make_loss(source, TrainOptions(task="regress"))


@pytest.mark.parametrize("epsilon", [-0.1, np.inf, np.nan])
def test_a_tube_without_a_width_is_refused(epsilon: float) -> None:
    with pytest.raises(InputError, match="the half-width of a tube must be finite and not negative"):
        REGRESS.make_loss(make_regression(0).in_memory(), TrainOptions(task="regress", epsilon=epsilon))


def test_measures_of_parts_are_those_of_scikit_learn() -> None:
    truth = 1e6 + RANDOM.standard_normal(1000)  # far from 0, where sums of squares cancel
    scores = truth + 0.3 * RANDOM.standard_normal(1000)
    parts = [Scored(scores[part], truth[part]) for part in np.split(np.arange(1000), [0, 1, 300, 300, 977])]
    found = REGRESS.evaluate(parts, NONE)
    assert found["n_rows"] == 1000
    assert found["mean_absolute_error"] == pytest.approx(mean_absolute_error(truth, scores), rel=1e-12)
    assert found["root_mean_squared_error"] == pytest.approx(mean_squared_error(truth, scores) ** 0.5, rel=1e-12)
    assert found["r2"] == pytest.approx(r2_score(truth, scores), rel=1e-9)
    assert REGRESS.measure_scores(scores, truth, None) == pytest.approx(-mean_absolute_error(truth, scores), rel=1e-12)
    assert REGRESS.evaluate([Scored(np.ones(3), np.full(3, 2.0))], NONE)["r2"] is None


def test_folds_are_as_large_as_each_other() -> None:
    source = make_regression(0, n=100).in_memory()
    fold = REGRESS.draw_folds(source, 3, np.random.default_rng(0))
    assert sorted(np.bincount(fold).tolist()) == [33, 33, 34]
    with pytest.raises(InputError, match="100 rows cannot be split into 101 folds: add rows, or use fewer --folds"):
        REGRESS.draw_folds(source, 101, np.random.default_rng(0))


@pytest.mark.parametrize("name", LOSSES)
def test_losses_at_the_edges_of_the_tube_are_rounded_relative_to_themselves(name: str) -> None:
    """A score a few units in the last place beyond an edge has a loss that f - t alone would round away."""
    random, n, epsilon = np.random.default_rng(0), 1000, 1.0
    target = random.standard_normal(n) * 10.0 ** random.uniform(-3, 3, n)
    scores = target + random.choice([-1.0, 1.0], n) * epsilon * (1.0 + 10.0 ** random.uniform(-16, -10, n))
    scores[0], target[0] = 0.00872419, 1.00872419
    rows = Rows(0, np.zeros((n, 1), np.float32), target=target)
    found = LOSSES[name](2.0, epsilon, np.empty(0)).measure(rows, scores)[0]
    exact = [max(Fraction(0), abs(Fraction(f) - Fraction(t)) - 1) for f, t in zip(scores, target, strict=True)]
    expected = [float(2 * (one if name == "epsilon_insensitive" else one**2)) for one in exact]
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_scores_that_overflow_have_infinite_losses() -> None:
    rows = Rows(0, np.zeros((2, 1), np.float32), target=np.array([1.0, -1.0]))
    found = LOSSES["epsilon_insensitive"](1.0, 0.1, np.empty(0)).measure(rows, np.array([np.inf, -np.inf]))[0]
    np.testing.assert_array_equal(found, np.inf)
