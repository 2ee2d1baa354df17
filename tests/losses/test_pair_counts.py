"""Counts of pairs against brute force."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.losses.pairs import COMPARED_ROWS, Pairs, count_pairs
from streamsvm.numeric.rows import F64


def count_by_force(scores: F64, pairs: Pairs, margin: float) -> tuple[F64, F64]:
    """All pairs, one after another."""
    up, down = np.zeros(len(scores)), np.zeros(len(scores))
    for first, end in zip(pairs.starts[:-1], pairs.starts[1:], strict=True):
        for i in range(first, end):
            for j in range(first, end):
                if pairs.ranks[i] > pairs.ranks[j] and scores[i] - scores[j] < margin:
                    up[i] += pairs.weight[i] * pairs.weight[j]
                    down[j] += pairs.weight[i] * pairs.weight[j]
    return up, down


@st.composite
def problems(draw: st.DrawFn) -> tuple[F64, Pairs]:
    """Scores on a grid of quarters: many ties, many margins of exactly 1; ranks that are empty; queries of one row."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    n, most = sum(sizes), draw(st.sampled_from([1, 2, 5, 40, 3000]))
    scores = np.array(draw(st.lists(st.integers(-12, 12), min_size=n, max_size=n))) / 4
    ranks = np.array(draw(st.lists(st.integers(0, most), min_size=n, max_size=n)), np.int32)
    weight = np.array(draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 0.5]), min_size=n, max_size=n)))
    return scores, Pairs(ranks, weight, np.concatenate(([0], np.cumsum(sizes))))


@given(problems(), st.sampled_from([1.0, 0.0, float(np.nextafter(0, 1)), 0.25]))
@settings(max_examples=300, deadline=None)
def test_counts_are_those_of_brute_force(problem: tuple[F64, Pairs], margin: float) -> None:
    scores, pairs = problem
    found, expected = count_pairs(scores, pairs, margin), count_by_force(scores, pairs, margin)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


@given(problems(), st.sampled_from([1.0, 0.0, 0.25]))
@settings(max_examples=100, deadline=None)
def test_counts_by_sorting_are_those_by_comparing_all_pairs(problem: tuple[F64, Pairs], margin: float) -> None:
    """Rows of weight 0 make the queries so large that they are sorted."""
    scores, pairs = problem
    own = np.concatenate([np.arange(a, b) + k * COMPARED_ROWS for k, (a, b) in enumerate(pairwise(pairs.starts))])
    n = len(scores) + COMPARED_ROWS * (len(pairs.starts) - 1)
    s, ranks, weight = np.zeros(n), np.zeros(n, np.int32), np.zeros(n)
    s[own], ranks[own], weight[own] = scores, pairs.ranks, pairs.weight
    longer = Pairs(ranks, weight, pairs.starts + COMPARED_ROWS * np.arange(len(pairs.starts)))
    for few, many in zip(count_pairs(scores, pairs, margin), count_pairs(s, longer, margin), strict=True):
        np.testing.assert_array_equal(few, many[own])


@given(problems())
@settings(max_examples=100, deadline=None)
def test_the_loss_is_that_of_the_pairs(problem: tuple[F64, Pairs]) -> None:
    scores, pairs = problem
    up, down = count_pairs(scores, pairs, 1.0)
    loss = 0.0
    for first, end in zip(pairs.starts[:-1], pairs.starts[1:], strict=True):
        s, r, v = scores[first:end], pairs.ranks[first:end], pairs.weight[first:end]
        hinge = np.maximum(0.0, 1.0 - (s[:, None] - s[None, :])) * np.outer(v, v)
        loss += float(np.sum(hinge, where=r[:, None] > r[None, :]))
    assert np.sum(up) - (up - down) @ scores == pytest.approx(loss, rel=1e-12, abs=1e-12)
    assert np.sum(up) == np.sum(down)


def test_ten_thousand_ranks() -> None:
    """No loop over the ranks: as many of them as rows."""
    rng = np.random.default_rng(0)
    n = 10_000
    scores, ranks = rng.standard_normal(n), rng.permutation(n).astype(np.int32)
    up, down = count_pairs(scores, Pairs(ranks, np.ones(n), np.array([0, n])), 1.0)
    some = rng.integers(0, n, 50)
    expected = [np.count_nonzero((ranks < ranks[i]) & (scores[i] - scores < 1.0)) for i in some]
    np.testing.assert_array_equal(up[some], expected)
    expected = [np.count_nonzero((ranks > ranks[i]) & (scores - scores[i] < 1.0)) for i in some]
    np.testing.assert_array_equal(down[some], expected)


def test_total_weight_of_the_pairs() -> None:
    pairs = Pairs(np.array([0, 1, 2, 1, 1], np.int32), np.array([1.0, 2.0, 3.0, 1.0, 5.0]), np.array([0, 3, 5]))
    assert pairs.total == 1 * 2 + 1 * 3 + 2 * 3


@pytest.mark.parametrize("starts", [[0, 12], [0, 3, 6, 9, 12]])
def test_thinned_pairs_keep_whole_queries(starts: list[int]) -> None:
    pairs = Pairs(np.arange(12, dtype=np.int32), np.linspace(1, 2, 12), np.array(starts))
    part, rows = pairs.thin(2)
    np.testing.assert_array_equal(part.ranks, pairs.ranks[rows])
    np.testing.assert_array_equal(part.weight, pairs.weight[rows])
    assert rows.tolist() == ([0, 2, 4, 6, 8, 10, 11] if len(starts) == 2 else [0, 1, 2, 6, 7, 8])
    assert part.starts.tolist() == ([0, 7] if len(starts) == 2 else [0, 3, 6])


def test_thinned_pairs_have_the_first_rows_if_the_rows_are_shuffled() -> None:
    pairs = Pairs(np.array([0, 0, 0, 0, 1, 0, 1, 1], np.int32), np.ones(8), np.array([0, 8]))
    assert pairs.thin(4, is_shuffled=True)[1].tolist() == [0, 1, 4]  # row 4 is the first of the higher rank


@pytest.mark.parametrize("is_shuffled", [False, True])
@pytest.mark.parametrize("n_queries", [1, 50])
def test_thinned_pairs_have_all_that_are_heavy(n_queries: int, is_shuffled: bool) -> None:
    """Each pair of the sample stands for k queries, or for k^2 pairs of rows, so heavy ones have less weight there."""
    n, k, heavy = 1000, 10, 777
    unit = n // n_queries if n_queries > 1 else 1  # rows whose weight is the same
    weight = np.where(np.arange(n) // unit == heavy // unit, 1e6, 1.0)
    ranks = (np.arange(n) % 3 > 1).astype(np.int32)  # the rank 1 is rarer
    pairs = Pairs(ranks, weight, np.linspace(0, n, n_queries + 1).astype(np.int64))
    part, rows = pairs.thin(k, is_shuffled)
    assert heavy in rows
    assert np.all(np.diff(rows) > 0)
    factor = k**2 if n_queries == 1 else k
    assert factor * part.total == pytest.approx(pairs.total, rel=0.1)


def test_of_a_heavy_query_with_many_rows_some_are_taken() -> None:
    """It has nearly all rows and pairs, and only ten rows of the higher rank, which are heavy among its rows."""
    sizes, k = np.array([10] * 50 + [9000] + [10] * 50), 20
    ranks = (np.arange(sizes.sum()) % 10 == 0).astype(np.int32)
    ranks[500:9500] = np.arange(9000) % 900 == 0
    pairs = Pairs(ranks, np.ones(len(ranks)), np.append(0, np.cumsum(sizes)))
    part, rows = pairs.thin(k)
    assert len(rows) < 3 * len(ranks) / k
    assert np.all(np.diff(rows) > 0)
    assert np.diff(part.starts).tolist() == [10] * 3 + [len(rows) - 60] + [10] * 3
    np.testing.assert_array_equal(part.ranks, ranks[rows])
    assert k * part.total == pytest.approx(pairs.total, rel=0.1)


@pytest.mark.parametrize("n_queries", [2, 20])
def test_of_few_queries_with_many_rows_each_has_some(n_queries: int) -> None:
    """A single whole query would be more than the sample, and would not represent the others."""
    n, k = 20_000, 20
    pairs = Pairs((np.arange(n) % 7).astype(np.int32), np.ones(n), np.linspace(0, n, n_queries + 1).astype(np.int64))
    part, rows = pairs.thin(k)
    assert len(part.starts) == n_queries + 1
    assert n / k <= len(rows) < 1.5 * n / k
    np.testing.assert_array_equal(part.ranks, pairs.ranks[rows])
    assert k * part.total == pytest.approx(pairs.total, rel=0.1)


def test_a_large_query_without_pairs_is_left_out() -> None:
    ranks = np.append(np.zeros(50, np.int32), np.arange(30) % 3).astype(np.int32)
    part, rows = Pairs(ranks, np.ones(80), np.append(0, np.arange(50, 81, 3))).thin(4)
    assert np.min(rows) >= 50
    assert part.total > 0.0


def test_of_more_large_queries_than_rows_in_the_sample_each_has_some() -> None:
    pairs = Pairs((np.arange(2000) % 5).astype(np.int32), np.ones(2000), np.arange(0, 2001, 25))
    part, rows = pairs.thin(50)
    assert len(part.starts) == 81
    np.testing.assert_array_equal(part.ranks, pairs.ranks[rows])


@pytest.mark.parametrize("k", [1, 20])
def test_a_large_query_without_pairs_has_no_rows_in_a_sample(k: int) -> None:
    sizes = np.array([10] * 50 + [9000] + [10] * 50)
    ranks = (np.arange(sizes.sum()) % 10 == 0).astype(np.int32)
    ranks[500:9500] = 1
    part, rows = Pairs(ranks, np.ones(len(ranks)), np.append(0, np.cumsum(sizes))).thin(k)
    assert not np.any((rows >= 500) & (rows < 9500))
    assert np.diff(part.starts).tolist() == [10] * (100 // k)
