"""The rows that a pass keeps: the nearest ones, or a fair draw, however the rows are cut into tiles and groups."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.numeric.row_norms import RowNorm, make_norm
from streamsvm.numeric.rows import Rows, slice_rows
from streamsvm.solvers.cutting_plane.near_rows import (
    POWER,
    Look,
    NearTotals,
    add_near,
    combine_near,
    draw_numbers,
    find_margins,
    find_reach,
    gather,
    start_near,
)
from tests.conftest import F64, Problem, make_problem
from tests.linear_problems import with_bias

COSTS = (2.0, 3.0)


def hold(problem: Problem) -> Rows:
    return replace(problem.in_memory().take(np.arange(len(problem.y))), start=0)


def make_look(problem: Problem, share: float, draws: bool, seed: int = 0) -> Look:
    rows, w = hold(problem), np.random.default_rng(seed).normal(size=problem.X.shape[1] + 1)
    norm, left = make_norm(rows, 1.0), 1e-9 * float(np.linalg.norm(w))
    return Look(w, norm, norm.bound_by_squares(), draws, share, rows.n_rows, left, np.array(COSTS), 1.0, seed)


def cut(rows: Rows, start: int, stop: int) -> Rows:
    assert rows.y is not None
    weight = None if rows.sample_weight is None else rows.sample_weight[start:stop]
    return Rows(start, slice_rows(rows.X, slice(start, stop)), rows.y[start:stop], weight)


def look_at(problem: Problem, look: Look, ends: list[int], tile: int) -> NearTotals:
    """Totals of groups that end there, read in tiles."""
    rows, parts = hold(problem), []
    for start, stop in zip([0, *ends[:-1]], ends, strict=True):
        totals = start_near(len(look.w))
        for at in range(start, stop, tile):
            add_near(totals, cut(rows, at, min(at + tile, stop)), look)
        parts.append(totals)
    while len(parts) > 1:
        parts = [combine_near(look.share, parts[0], parts[1]), *parts[2:]]
    return parts[0]


def read_costs(problem: Problem) -> F64:
    return problem.costs(1.0, *COSTS)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**5),
    n=st.integers(8, 300),
    density=st.sampled_from([1.0, 0.3]),
    weighted=st.booleans(),
    share=st.sampled_from([0.1, 0.4, 1.0]),
    draws=st.booleans(),
    tile=st.sampled_from([7, 100]),
)
def test_each_group_keeps_its_nearest_rows(
    seed: int, n: int, density: float, weighted: bool, share: float, draws: bool, tile: int
) -> None:
    """And all sums are those of a loop over the rows."""
    problem = make_problem(seed, n=n, d=4, density=density, weighted=weighted)
    look, ends = make_look(problem, share, draws, seed), [n // 3, n // 2, n]
    kept, weight = gather(look_at(problem, look, ends, tile), look)
    costs, rows = read_costs(problem), hold(problem)
    margins = find_margins(look, rows, problem.y.astype(np.float64))
    reach = find_reach(look, rows, margins)
    priority = np.where(costs > 0, reach * (draw_numbers(np.arange(n), seed) ** (1 / POWER) if draws else 1.0), np.inf)
    radii, weights = [], []
    found = look_at(problem, look, ends, tile).parts
    parts = {int(np.searchsorted(ends, part.numbers[0], "right")): part for part in found}
    for group, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        own, most = priority[start:stop], max(1, int(share * (stop - start)))
        numbers = kept.numbers[(kept.numbers >= start) & (kept.numbers < stop)]
        radius = np.sort(own)[most] if most < stop - start else np.inf
        if tile < stop - start:  # rows were left out before the group was complete, perhaps more than had to be
            radius = min(radius, parts[group].radius if group in parts else 0.0)
        assert len(numbers) <= most
        assert np.all(priority[numbers] <= radius)
        assert np.all(np.isin(start + np.flatnonzero(own < radius), numbers))
        radii.append(radius)
        farther = reach[numbers] > radius if draws else np.zeros(len(numbers), bool)
        weights.append(np.where(farther, (reach[numbers] / np.maximum(radius, 1e-300)) ** POWER, 1.0))
    np.testing.assert_allclose(weight, np.minimum(np.concatenate(weights), 1e9), rtol=1e-6)
    assert kept.radius == pytest.approx(min(min(radii), np.finfo(float).max), rel=1e-6)
    np.testing.assert_array_equal(kept.margins, margins[kept.numbers])
    totals, active = look_at(problem, look, ends, tile), margins < 1
    Z = problem.y[:, None] * with_bias(problem, 1.0)
    assert totals.sums.offsets == pytest.approx(costs[active].sum(), rel=1e-12)
    np.testing.assert_allclose(totals.sums.vectors, (costs * active) @ Z, atol=1e-10 * costs.sum() * np.abs(Z).max())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**5), density=st.sampled_from([1.0, 0.3]))
def test_no_far_row_changes_sides_within_the_radius(seed: int, density: float) -> None:
    """Wherever w moves within the ball, in long double; and just outside a row does."""
    problem = make_problem(seed, n=200, d=4, density=density)
    look = make_look(problem, 0.2, False, seed)
    kept = gather(look_at(problem, look, [100, 200], 50), look)[0]
    far = np.setdiff1d(np.arange(200), kept.numbers)
    Z = (problem.y[:, None] * with_bias(problem, 1.0)).astype(np.longdouble)[far]
    before = look.w @ Z.T < 1
    crossed = 0
    for row in [*Z[:20], *np.random.default_rng(seed).normal(size=(20, 5))]:
        direction = look.norm.find_scatter() @ np.zeros(5) if not np.any(row) else _steepest(look.norm, row)
        length = look.norm.bound_move(direction)[0]
        for share, may_cross in ((0.999, False), (3.0, True)):
            for sign in (1.0, -1.0):
                after = (look.w + sign * share * kept.radius / length * direction) @ Z.T < 1
                crossed += int(np.any(after != before))
                assert may_cross or np.array_equal(after, before)
    assert crossed > 0


def _steepest(norm: RowNorm, row: F64) -> F64:
    """The move that changes the score of the row most for its size."""
    return np.asarray(norm.A.T @ norm.A @ row.astype(np.float64))


def test_draws_are_fair() -> None:
    """The rows that are kept stand for all rows: sums of their weights are right in the mean over many seeds."""
    problem = make_problem(1, n=400, d=4)
    counts, sums, true = [], [], problem.dense()[:, 0].sum()
    for seed in range(200):
        look = replace(make_look(problem, 0.2, True), seed=seed)
        kept, weight = gather(look_at(problem, look, [400], 400), look)
        counts.append(weight.sum())
        sums.append(weight @ problem.dense()[kept.numbers, 0])
    for found, expected in ((counts, 400.0), (sums, true)):
        error = np.std(found) / np.sqrt(len(found))
        assert abs(np.mean(found) - expected) < 4 * error


@pytest.mark.parametrize("draws", [False, True])
def test_of_all_rows_the_nearest_are_kept(draws: bool) -> None:
    """Although a group has more of them than another: the first rows here are near the margin, the others are not."""
    problem = make_problem(4, n=200, d=3)
    look = replace(make_look(problem, 0.4, draws), most=40)
    rows, y = hold(problem), problem.y.astype(np.float64)
    order = np.argsort(find_reach(look, rows, find_margins(look, rows, y)), kind="stable")
    sorted_rows = Problem(np.asarray(problem.X)[order], problem.y[order])
    totals = look_at(sorted_rows, look, [100, 200], 50)
    kept, weight = gather(totals, look)
    rows = hold(sorted_rows)
    reach = find_reach(look, rows, find_margins(look, rows, sorted_rows.y.astype(np.float64)))
    priority = reach * (draw_numbers(np.arange(200), look.seed) ** (1 / POWER) if draws else 1.0)
    np.testing.assert_array_equal(kept.numbers, np.sort(np.argsort(priority, kind="stable")[:40]))
    assert kept.radius == np.sort(priority)[40]
    assert np.all((weight == 1.0) == (reach[kept.numbers] <= kept.radius))


def test_numbers_are_uniform_and_belong_to_rows() -> None:
    whole = draw_numbers(np.arange(100_000), 3)
    np.testing.assert_array_equal(whole[500:600], draw_numbers(np.arange(500, 600), 3))
    assert not np.any(whole == draw_numbers(np.arange(100_000), 4))
    assert whole.min() > 0.0
    assert whole.max() <= 1.0
    np.testing.assert_allclose(np.histogram(whole, 10, (0, 1))[0], 10_000, rtol=0.05)


def test_groups_of_rows_without_costs_keep_none() -> None:
    problem = replace(make_problem(2, n=20, d=3), weight=np.repeat([0.0, 1.0], 10))
    look = make_look(problem, 0.5, False)
    kept = gather(look_at(problem, look, [10, 20], 5), look)[0]
    assert kept.numbers.min() >= 10
    assert len(kept.numbers) == 5


@pytest.mark.parametrize("draws", [False, True])
def test_sums_are_combined_in_the_same_order(draws: bool) -> None:
    """Combining leaves its parts as they are, since a scheduler may use them again."""
    problem = make_problem(3, n=90, d=3)
    look = make_look(problem, 0.3, draws)
    parts = [look_at(problem, look, [90], 20) for _ in range(2)]
    add_up = partial(combine_near, look.share)
    first, second = (add_up(*parts) for _ in range(2))
    for one, other in zip(first.parts, second.parts, strict=True):
        np.testing.assert_array_equal(one.numbers, other.numbers)
    assert sum(len(part.numbers) for part in parts[0].parts) >= 27
