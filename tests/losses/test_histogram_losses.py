"""Losses of pairs from histograms, beside all pairs written out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.losses import histograms
from streamsvm.losses.histograms import (
    FINEST,
    PAGE,
    Histogram,
    add_scores,
    choose_exponent,
    measure_histogram,
    start_histogram,
)
from streamsvm.numeric.rows import F64, I32
from streamsvm.system.errors import InputError


@dataclass(frozen=True)
class Scored:
    """Rows with their scores, ranks and weights."""

    scores: F64
    ranks: I32
    weight: F64

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return int(self.ranks.max()) + 1

    def lose(self, scores: F64) -> float:
        """Return the sum of v_i v_j max(0, 1 - (s_i - s_j)), pair by pair."""
        is_pair = self.ranks[:, None] > self.ranks[None, :]
        losses = np.maximum(0.0, 1.0 - (scores[:, None] - scores[None, :]))
        return float(np.sum(np.outer(self.weight, self.weight) * losses * is_pair))


def make_rows(seed: int, n: int, n_ranks: int, spread: float = 1.0) -> Scored:
    """Rows whose scores follow their ranks; the same few scores occur in some of them."""
    random = np.random.default_rng(seed)
    ranks = random.integers(0, n_ranks, n).astype(np.int32)
    scores = spread * (ranks + random.normal(size=n))
    scores[:: 1 + seed % 3] = np.round(scores[:: 1 + seed % 3])
    return Scored(scores, ranks, random.integers(0, 3, n) * random.choice([1.0, 0.3], n))


def gather(rows: Scored, exponent: int = FINEST, part: int = 1 << 20) -> Histogram:
    """Return the histogram, of groups of rows one after another."""
    histogram = start_histogram(rows.n_ranks, exponent)
    for at in range(0, len(rows.scores), part):
        own, group = slice(at, at + part), start_histogram(rows.n_ranks, exponent)
        add_scores(group, rows.scores[own].copy(), rows.ranks[own], rows.weight[own])
        histogram = histogram + group
    return histogram


@st.composite
def problems(draw: st.DrawFn) -> Scored:
    spread = draw(st.sampled_from([1e-6, 0.1, 1.0, 30.0, 1e5, 1e12]))
    return make_rows(draw(st.integers(0, 10**6)), draw(st.integers(1, 80)), draw(st.integers(2, 6)), spread)


@given(problems(), st.integers(-30, FINEST), st.integers(1, 90), st.sampled_from([2, 9, 1000]))
@settings(max_examples=300, deadline=None)
def test_the_loss_lies_between_the_bounds(rows: Scored, exponent: int, part: int, pages: int) -> None:
    """Whatever the width of the buckets is, also where there is room for two pages only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histograms, "MOST_CELLS", pages * PAGE * rows.n_ranks)
        histogram = gather(rows, exponent, part)
    assert len(histogram.pages) <= pages
    found, exact = measure_histogram(histogram, 1 << 12, 0.7), 0.7 * rows.lose(rows.scores)
    off = 1e-12 * (1.0 + float(np.max(np.abs(rows.scores)))) * (1.0 + float(np.sum(rows.weight)) ** 2)
    assert found.lower - found.rounding - off <= exact <= found.upper + off


@given(problems(), st.integers(-6, 8), st.integers(0, 10**6))
@settings(max_examples=300, deadline=None)
def test_a_cut_is_below_the_loss_at_any_scores(rows: Scored, exponent: int, seed: int) -> None:
    found = measure_histogram(gather(rows, exponent), 1 << 12, 1.0)
    seen = np.zeros_like(found.weights)
    coefs = found.cut.find_coefs(rows.scores, rows.ranks, rows.weight, seen)
    found.require_same(seen, 1 << 12)
    size = (1.0 + float(np.max(np.abs(rows.scores)))) * (1.0 + float(np.sum(rows.weight)) ** 2)
    assert found.cut.offset - coefs @ rows.scores == pytest.approx(found.lower, abs=1e-12 * size)
    random = np.random.default_rng(seed)
    for spread in (0.0, 0.1, 1.0, 10.0):
        others = rows.scores + spread * random.normal(size=len(rows.scores))
        assert found.cut.offset - coefs @ others <= rows.lose(others) + 1e-11 * size * (1.0 + spread)


@pytest.mark.parametrize("n_ranks", [2, 5, 16])
def test_the_bounds_are_close(n_ranks: int) -> None:
    """Two ranks have 65,536 buckets, and 16 have 8,192. Half of the scores are whole numbers."""
    rows = make_rows(1, 2000, n_ranks)
    found = measure_histogram(gather(rows, choose_exponent(rows.scores, n_ranks)), 1 << 12, 1.0)
    assert found.upper - found.lower < 1e-4 * found.upper


@pytest.mark.parametrize("exponent", [-16, -22, -30])
def test_buckets_that_are_much_wider_than_the_scores_cost_digits(exponent: int) -> None:
    """These are in the rounding of the bounds: scores are measured from the middles of their buckets."""
    rows = make_rows(1, 17, 3, 1e-6)
    found, exact = measure_histogram(gather(rows, exponent, 1), 1 << 12, 0.7), 0.7 * rows.lose(rows.scores)
    assert abs(exact - found.lower) > 1e-13 * exact
    assert found.lower - found.rounding <= exact <= found.upper


def test_equal_scores_leave_nothing_in_doubt() -> None:
    """Though a quarter of the pairs have a margin of 1 exactly, as pairs of a minimiser of P have."""
    random = np.random.default_rng(7)
    ranks = random.integers(0, 2, 1000).astype(np.int32)
    rows = Scored(np.round(ranks + random.normal(size=1000)), ranks, np.ones(1000))
    found = measure_histogram(gather(rows, 3), 1 << 12, 1.0)
    assert found.lower == pytest.approx(rows.lose(rows.scores), rel=1e-12)
    assert found.upper - found.lower < 1e-5 * found.upper


def test_where_pairs_are_not_in_doubt_the_loss_is_exact() -> None:
    """No two rows are 1 apart, or the buckets on both sides would be."""
    rows = Scored(np.array([0.0, 0.5, 3.25, 0.25]), np.array([0, 1, 1, 0], np.int32), np.array([1.0, 2.0, 3.0, 0.5]))
    found = measure_histogram(gather(rows, 4), 1 << 12, 2.0)
    assert found.lower == 2.0 * (1.0 * 2.0 * 0.5 + 2.0 * 0.5 * 0.75)
    assert found.upper == found.lower + found.rounding
    assert found.rounding < 1e-12 * found.lower


def test_weights_are_those_of_the_buckets() -> None:
    rows = make_rows(2, 5000, 3)
    histogram = gather(rows, 5, part=700)
    places = np.floor(32 * rows.scores).astype(np.int64)
    beside = rows.scores - (places + 0.5) / 32
    for place, page in enumerate(histogram.pages):
        for power, rank in product(range(3), range(3)):
            own = (places // PAGE == page) & (rows.ranks == rank)
            expected = np.bincount(places[own] - page * PAGE, (rows.weight * beside**power)[own], PAGE)
            np.testing.assert_allclose(histogram.moments[place, :, rank, power], expected, rtol=1e-9, atol=1e-12)
    assert histogram.moments[..., 0].sum() == pytest.approx(rows.weight.sum())


def test_scores_far_from_all_others_take_a_page_each() -> None:
    """And leave the buckets of the others as narrow as they are."""
    rows = make_rows(3, 3000, 2)
    rows.scores[[5, 70]] = 1e6, -3e7
    assert gather(rows, 10).exponent == 10
    assert choose_exponent(rows.scores, 2) >= 10


def test_pages_are_found_however_far_they_are_apart() -> None:
    """Some of 300 pages meet in the table in which they are looked up."""
    random = np.random.default_rng(8)
    scores = random.choice([-1.0, 1.0], 300) * np.floor(2.0 ** random.uniform(0.0, 36.0, 300))
    rows = Scored(scores, np.zeros(300, np.int32), np.ones(300))
    histogram = gather(rows, 6)
    pages, counts = np.unique(scores, return_counts=True)
    np.testing.assert_array_equal(histogram.pages, pages)
    np.testing.assert_array_equal(histogram.moments[:, 0, 0, 0], counts)


def test_rows_without_weight_change_nothing() -> None:
    """However far away they are."""
    rows = make_rows(6, 400, 3)
    far = Scored(np.append(rows.scores, [1e30, -1e12]), np.append(rows.ranks, [0, 1]).astype(np.int32), rows.weight)
    far = replace(far, weight=np.append(rows.weight, [0.0, 0.0]))
    without, with_them = gather(rows, 8), gather(far, 8)
    np.testing.assert_array_equal(with_them.moments, without.moments)
    found = measure_histogram(with_them, 1 << 12, 1.0)
    coefs = found.cut.find_coefs(far.scores, far.ranks, far.weight, np.zeros_like(found.weights))
    np.testing.assert_array_equal(coefs[-2:], 0.0)


def test_two_parts_are_no_arrays_of_their_sum() -> None:
    """Parts of a tree of sums may be used again."""
    rows = make_rows(4, 200, 2)
    left, right = gather(rows, 3), gather(rows, 5)
    before = left.moments.copy(), right.moments.copy()
    whole = left + right
    whole.moments += 1.0
    np.testing.assert_array_equal(left.moments, before[0])
    np.testing.assert_array_equal(right.moments, before[1])
    assert (left.exponent, right.exponent, whole.exponent) == (3, 5, 3)


def test_a_row_of_another_score_than_before_is_an_error() -> None:
    """Whether it is in a page that no row was in, or in the bucket beside its own."""
    rows = make_rows(5, 50, 2)
    found = measure_histogram(gather(rows, 5), 1 << 12, 1.0)
    seen = np.zeros_like(found.weights)
    with pytest.raises(InputError, match="differ from those of the previous pass"):
        found.cut.find_coefs(rows.scores + 100.0, rows.ranks, rows.weight, seen)
    rows.scores[int(np.argmax(rows.weight))] += 2.0**-5
    seen = np.zeros_like(found.weights)
    found.cut.find_coefs(rows.scores, rows.ranks, rows.weight, seen)
    with pytest.raises(InputError, match="differ from those of the previous pass"):
        found.require_same(seen, 1 << 12)
