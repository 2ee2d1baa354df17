"""The model of a small sample: rows shrunk towards their fit by the probabilities, and a matrix for the rest."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from streamsvm.losses.softmax import find_slopes, measure
from streamsvm.numeric.rows import F64, Rows
from streamsvm.options import TrainOptions
from streamsvm.solvers.set_up import set_up
from streamsvm.solvers.softmax import lbfgs
from streamsvm.solvers.softmax.lbfgs import (
    Model,
    Sample,
    add_fit,
    find_axes,
    find_means,
    follow_secants,
    invert_product,
    minimise,
    weigh,
)
from streamsvm.solvers.softmax.setup import PART_SCORES, SCORES
from streamsvm.solvers.softmax.solver import DrawnRows, Softmax, State, add_points, start_totals
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


@pytest.mark.parametrize(("of_fit", "own"), [(1.0, 0.0), (0.6, 0.3), (1.0, 1.0)])
def test_sums_over_shrunk_rows(sample: Sample, of_fit: float, own: float) -> None:
    random = np.random.default_rng(1)
    W, U, means = (random.standard_normal((4, 7)) for _ in range(3))
    scores = sample.score(W)
    p = sample.look(scores).shares
    shrunk, fitted = sample.shrink(p, means, of_fit, own), p[0] @ means
    x = np.sqrt(of_fit) * fitted + np.sqrt(own) * (find_rows(sample) - fitted)
    _, codes, costs, _ = sample.parts[0]
    np.testing.assert_allclose(shrunk.score(U)[0], x @ U.T, atol=1e-11)
    np.testing.assert_allclose(shrunk.look(scores).gradient, find_slopes(p[0], codes, costs).T @ x, atol=1e-9)


@pytest.mark.parametrize("is_diagonal", [False, True])
def test_the_matrices_of_the_features(sample: Sample, is_diagonal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lbfgs, "AXIS_ROWS", 1000)  # all rows
    if is_diagonal:
        monkeypatch.setattr(lbfgs, "MOST_AXES", 0)
    random, x = np.random.default_rng(2), find_rows(sample)
    p = sample.look(sample.score(random.standard_normal((4, 7)))).shares
    weights = weigh(p[0], sample.parts[0][2])[:, None]
    given = np.linalg.lstsq(p[0], x, rcond=None)[0] + random.standard_normal((4, 7))
    fitted, rest, means = sample.sum_features(p, given)
    scale = np.sum(weights * x * (p[0] @ given)) / np.sum(weights * (p[0] @ given) ** 2)
    assert 0.0 < scale < 1.0
    np.testing.assert_allclose(means, scale * given, rtol=1e-9)
    for found, rows in ((fitted, p[0] @ means), (rest, x - p[0] @ means)):
        expected = (weights * rows).T @ rows / np.sum(weights)
        np.testing.assert_allclose(found, np.diag(expected) if is_diagonal else expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("is_diagonal", [False, True])
def test_a_product_solves(is_diagonal: bool) -> None:
    random = np.random.default_rng(3)
    (A, square), U = (
        (M @ M.T for M in (random.standard_normal((4, 4)), random.standard_normal((7, 7)))),
        np.ones((4, 7)),
    )
    B = np.diag(square) if is_diagonal else square

    def multiply(scale: float, V: F64) -> F64:
        return V + scale * A @ (V * B if is_diagonal else V @ B)

    for scale in (1.0, 2.0):
        solve = invert_product(scale * A, find_axes(B))
        np.testing.assert_allclose(multiply(scale, solve(U)), U, atol=1e-9)


def test_the_time_limit_and_an_interruption_end_the_steps_in_memory(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, late = np.zeros((4, 7)), iter([True, False, True])
    monkeypatch.setattr(lbfgs.deadline, "is_over", lambda: next(late))
    np.testing.assert_array_equal(minimise(sample, Model(start, start), start, 0.0), start)
    assert np.any(minimise(sample, Model(start, start), start, 0.0))

    def interrupt() -> None:
        checks.append(True)
        if len(checks) > 1:
            raise KeyboardInterrupt

    checks: list[bool] = []
    monkeypatch.setattr(lbfgs.deadline, "is_over", lambda: False)
    monkeypatch.setattr(lbfgs.interrupts, "check", interrupt)
    with pytest.raises(KeyboardInterrupt):
        minimise(sample, Model(start, start), start, 0.0)


@pytest.mark.parametrize(("part_rows", "intermediate"), [(500, 0), (20_000, PART_SCORES)])
def test_a_step_takes_the_scores_that_are_planned(
    part_rows: int, intermediate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most: from scores that the caller keeps, over rows shrunk by probabilities that it also keeps."""
    monkeypatch.setattr(lbfgs, "PART_ROWS", part_rows)
    problem, random, start = make_classes(3, n=20_000, d=3, n_classes=20), np.random.default_rng(4), np.zeros((20, 4))
    rows = Rows(0, problem.X.astype(np.float32), problem.y)
    tracemalloc.start()
    try:
        sample = Sample(rows, np.ones(20), BIAS, 1, np.float64)
        tracemalloc.reset_peak()
        before, scores = tracemalloc.get_traced_memory()[0], sample.score(start)
        shrunk = sample.shrink(sample.look(scores).shares, random.standard_normal((20, 4)), 1.0, 0.5)
        minimise(shrunk, Model(start, start), start, 0.0, 1e-6, scores)
        peak = (tracemalloc.get_traced_memory()[1] - before) / (8 * 20 * rows.n_rows)
    finally:
        tracemalloc.stop()
    assert SCORES + intermediate - 1 < peak < SCORES + intermediate + 0.5


def test_the_intermediate_scores_of_each_thread_are_planned() -> None:
    source = make_classes(3, n=10_000, d=3, n_classes=200).in_memory()
    options = TrainOptions(task="multinomial", resident_rows=100)
    needs = [set_up(source, replace(options, threads=threads)).memory(1).driver_bytes for threads in (3, 5)]
    assert needs[1] - needs[0] == 2 * PART_SCORES * 8 * 200 * lbfgs.PART_ROWS


def test_a_sample_without_room_is_noted() -> None:
    options = TrainOptions(task="multinomial", threads=1, memory_bytes=1 << 20)
    assert "no room for resident rows" in set_up(PROBLEM.in_memory(), options).note
    assert set_up(PROBLEM.in_memory(), replace(options, memory_bytes=None)).note == ""


def test_a_pass_sums_the_product_of_the_hessian_with_the_weights() -> None:
    """It is the change of the gradient, divided by the length of a short step along the weights."""
    rows, W = Rows(0, PROBLEM.X.astype(np.float32), PROBLEM.y), np.random.default_rng(2).standard_normal((4, 7))
    costs, step, totals = np.array([0.5, 1.0, 2.0, 1.0]), 1e-5, []
    for by in (0.0, -step, step):
        totals.append(start_totals((3, 4, 7), (4, 4 + 2 * 7)))
        add_points(totals[-1], rows, np.tile((1.0 + by) * W, (3, 1, 1)), costs, BIAS)
    expected = (totals[2].gradients[0] - totals[1].gradients[0]) / (2.0 * step)
    np.testing.assert_allclose(totals[0].curvature[:, -7:], expected, rtol=1e-6, atol=1e-6)


def test_a_start_that_is_good_enough_for_the_sample_is_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row stands eight times in the sample, so one row in eight gives the same minimiser."""
    monkeypatch.setattr(lbfgs, "PART_ROWS", 64)
    rows = Rows(0, np.repeat(PROBLEM.X.astype(np.float32), 8, axis=0), np.repeat(PROBLEM.y, 8))
    settings = Softmax(class_costs=(1.0,) * 4, resident_rows=rows.n_rows)
    sample = DrawnRows(settings, np.arange(rows.n_rows), 2 * rows.n_rows).hold(rows)
    found = settings.minimise(sample, replace(State.at_zero(4 * 7), n_rows=2 * rows.n_rows))
    assert sample.look(sample.score(settings.shape(found))).loss < sample.look(sample.score(np.zeros((4, 7)))).loss


def test_secants_are_met_exactly() -> None:
    """For a quadratic function, L-BFGS makes the exact step along the move of its last secant."""
    random = np.random.default_rng(3)
    factor = random.standard_normal((5, 5))
    H, moves = factor @ factor.T + np.eye(5), random.standard_normal((2, 5))
    found = follow_secants(-H @ moves[1], [(move, H @ move) for move in moves], lambda gradient: -gradient)
    np.testing.assert_allclose(found, moves[1], rtol=1e-12)
