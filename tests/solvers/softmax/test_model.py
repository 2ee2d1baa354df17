"""The model of a small sample: rows shrunk towards their fit by the probabilities, and a matrix for the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamsvm.losses.softmax import find_slopes, measure
from streamsvm.numeric.rows import F64, Rows
from streamsvm.options import TrainOptions
from streamsvm.solvers.set_up import set_up
from streamsvm.solvers.softmax import newton
from streamsvm.solvers.softmax.newton import Sample, add_fit, find_means, weigh
from tests.class_problems import make_classes

PROBLEM = make_classes(3, n=400, d=6, n_classes=4)
BIAS = 2.0


@pytest.fixture
def sample() -> Sample:
    rows = Rows(0, PROBLEM.X.astype(np.float32), PROBLEM.y)
    return Sample(rows, np.array([0.5, 1.0, 2.0, 1.0]), BIAS, 1, np.float64)


def find_rows(sample: Sample) -> F64:
    return np.column_stack((sample.parts[0][0], np.full(sample.n_rows, BIAS)))


def test_the_means_are_those_of_weighted_least_squares(sample: Sample) -> None:
    X, codes, costs, _ = sample.parts[0]
    p = measure(np.random.default_rng(0).standard_normal((sample.n_rows, 4)), codes, costs).shares
    fit = np.zeros((4, 4 + 7))
    add_fit(fit, X, p, costs, BIAS)
    root = np.sqrt(weigh(p, costs))[:, None]
    expected = np.linalg.lstsq(root * p, root * find_rows(sample), rcond=None)[0]
    np.testing.assert_allclose(find_means(fit), expected, rtol=1e-3, atol=1e-4)  # but for the ridge


@pytest.mark.parametrize("own", [0.0, 0.3, 1.0])
def test_sums_over_shrunk_rows(sample: Sample, own: float) -> None:
    random = np.random.default_rng(1)
    W, U, means = (random.standard_normal((4, 7)) for _ in range(3))
    scores = sample.score(W)
    p = sample.look(scores).shares
    shrunk, fitted = sample.shrink(p, means, own), p[0] @ means
    x = fitted + np.sqrt(own) * (find_rows(sample) - fitted)
    _, codes, costs, _ = sample.parts[0]
    np.testing.assert_allclose(shrunk.score(U)[0], x @ U.T, atol=1e-11)
    np.testing.assert_allclose(shrunk.look(scores).gradient, find_slopes(p[0], codes, costs).T @ x, atol=1e-9)
    along = x @ U.T
    bent = costs[:, None] * p[0] * (along - np.sum(p[0] * along, axis=1)[:, None])
    np.testing.assert_allclose(shrunk.multiply(p, U), bent.T @ x, atol=1e-9)


@pytest.mark.parametrize("is_diagonal", [False, True])
def test_the_matrix_of_the_features_is_that_of_the_rest(
    sample: Sample, is_diagonal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newton, "AXIS_ROWS", 1000)  # all rows
    if is_diagonal:
        monkeypatch.setattr(newton, "MOST_AXES", 0)
    random = np.random.default_rng(2)
    means, p = random.standard_normal((4, 7)), sample.look(sample.score(random.standard_normal((4, 7)))).shares
    product, rest = sample.find_product(p, means), find_rows(sample) - p[0] @ means
    weights = weigh(p[0], sample.parts[0][2])
    expected = (weights[:, None] * rest).T @ rest / np.sum(weights)
    if is_diagonal:
        np.testing.assert_allclose(product.of_features, np.diag(expected), rtol=1e-9)
    else:
        assert product.axes is not None
        found = (product.axes * product.of_features) @ product.axes.T
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_a_sample_without_room_is_noted() -> None:
    options = TrainOptions(task="multinomial", threads=1, memory_bytes=1 << 20)
    assert "no room for resident rows" in set_up(PROBLEM.in_memory(), options).note
    assert set_up(PROBLEM.in_memory(), replace(options, memory_bytes=None)).note == ""
