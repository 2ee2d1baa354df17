"""Histograms of scores by rank, whose size does not grow with the rows, and bounds on the pair loss from them.

    bucket of row i = floor(2^p s_i)

A page is a run of 64 successive buckets, and is held only if a row falls into it; a few outlying scores take one page
each. If there are too many pages, p is reduced by one, which merges buckets in pairs. Multiplying by a power of two is
exact, so no score is rounded on the way to its bucket.

From a histogram of the scores, the hinge loss of all pairs of rows is enclosed between two bounds, and a cut below the
loss is formed:

    loss(s) = K sum over pairs v_i v_j max(0, 1 - (s_i - s_j)),    i of the higher rank

Let h = 2^-p be the width of a bucket, and let the bucket of row i be a buckets above that of row j. Then
x = 1 - (s_i - s_j) lies between 1 - (a + 1) h and 1 - (a - 1) h. So either all pairs of the two buckets have a loss or
none has, unless a is 1 / h (or 0 or 1 if h > 1). For these doubtful pairs, the mean m and the variance V of x are
known. The mean loss is at least max(0, m), by Jensen's inequality. It is at most the chord of max(0, x) between both
ends, and at most (m + sqrt(m^2 + V)) / 2 (Scarf 1958). If all rows of a bucket have the same score, the bounds agree.
With c = 1 for the pairs that count as having a loss, and 0 for others, the lower bound is

    sum c v_i v_j (1 - (s_i - s_j)) = sum_i v_i up_i - sum_i v_i (up_i - down_i) s_i,

and with the same c, this sum is a lower bound on the loss at any other scores s (losses.pairs). If scores are spread
out, the two bounds differ by O(h^2) times the number of pairs: one factor h for the share of doubtful pairs, and one
factor h for the uncertainty of each pair.

The module also sums histograms at several points, and the weights of each rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, I32, I64, Rows, compute_scores, make_writable
from streamsvm.system.errors import InputError

PAGE_BITS = 6
PAGE = 1 << PAGE_BITS  # buckets per page
MOST_CELLS = 1 << 17  # maximum number of buckets of all ranks together
FINEST = 40  # the largest p
MEASURE_BYTES = 8 * 24 * MOST_CELLS  # memory while a histogram is measured, including the histograms that wait
SPREAD = -7046029254386353131  # 2^64 times the golden ratio, as int64: its multiples modulo 2^64 are spread evenly
EXACT_BITS = 52  # The limits of a bucket are exact up to this number of bits.


@dataclass
class Histogram:
    """Sums over the rows of each bucket and rank.

    exponent: the exponent p of the bucket width 2^-p. pages (k,): the numbers of the pages, ascending; page q holds the
    buckets 64 q to 64 q + 63. moments (k, 64, ranks, 3): the sums sum v_i, sum v_i e_i and sum v_i e_i^2 over the rows
    of each rank in each bucket of each page, where e_i is the score of row i minus the middle of its bucket. The three
    sums are adjacent in memory.
    """

    exponent: int
    pages: I64
    moments: F64

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return int(self.moments.shape[2])

    @property
    def buckets(self) -> I64:
        """The numbers of all buckets of all pages, ascending."""
        return (self.pages[:, np.newaxis] * PAGE + np.arange(PAGE)).ravel()

    def __add__(self, other: Histogram) -> Histogram:
        """Return the histogram of both groups of rows, as a new object."""
        whole, part = replace(self), replace(other)  # Arrays are replaced below, not changed.
        for each in (whole, part):
            _coarsen(each, each.exponent - min(self.exponent, other.exponent))
        _add_pages(whole, part.pages)
        _coarsen(part, part.exponent - whole.exponent)
        whole.moments[np.searchsorted(whole.pages, part.pages)] += part.moments
        return whole


def start_histogram(n_ranks: int, exponent: int = FINEST) -> Histogram:
    """Return an empty histogram."""
    return Histogram(exponent, np.empty(0, np.int64), np.zeros((0, PAGE, n_ranks, 3)))


def choose_exponent(scores: F64, n_ranks: int) -> int:
    """Return the largest p at which rows with these scores fill at most half of the allowed pages."""
    _, size = math.frexp(float(np.max(np.abs(scores))))
    exponent = min(FINEST, EXACT_BITS - size)
    pages = np.floor(2.0**exponent * scores).astype(np.int64) >> PAGE_BITS
    return exponent - _count_levels(pages, max(2, _count_most_pages(n_ranks) // 2))


def histogram_bytes(n_ranks: int) -> int:
    """Return the bytes that a histogram takes at its peak, while it is copied."""
    return 2 * 24 * _count_most_pages(n_ranks) * n_ranks * PAGE


def add_scores(histogram: Histogram, scores: F64, ranks: I32, weight: F64) -> None:
    """Add rows with these scores, ranks and weights v, (n,) each, in place; rows of weight 0 take no pages."""
    _, size = math.frexp(float(np.max(np.abs(scores), initial=0.0, where=weight > 0.0)))
    _coarsen(histogram, max(0, histogram.exponent + size - EXACT_BITS))
    while len(scores):
        left, scale = np.empty(len(scores), np.int64), 2.0**histogram.exponent
        places = index_pages(histogram.pages)
        left = left[: _add_rows(scores, ranks, weight, scale, histogram.pages, places, histogram.moments, left)]
        scores, ranks, weight = scores[left], ranks[left], weight[left]
        if len(left):
            _add_pages(histogram, np.floor(scale * scores).astype(np.int64) >> PAGE_BITS)


def index_pages(pages: I64) -> I32:
    """Return a hash table of the pages with open addressing; an entry is an index into `pages`, or -1 if empty."""
    places = np.full(1 << (4 * len(pages)).bit_length(), -1, np.int32)
    _index_pages(pages, places)
    return places


def _count_most_pages(n_ranks: int) -> int:
    return MOST_CELLS // (PAGE * n_ranks)


def _count_levels(pages: I64, most: int) -> int:
    """Return the number by which p must be reduced to merge these pages into at most `most`."""
    pages, levels = np.sort(pages), 0
    while np.count_nonzero(np.diff(pages)) >= most:
        pages, levels = pages >> 1, levels + 1
    return levels


def _add_pages(histogram: Histogram, pages: I64) -> None:
    """Add missing pages as empty pages; if there would be too many, reduce p first.

    pages: the numbers of the missing pages, at the old p.
    """
    levels = _count_levels(np.union1d(histogram.pages, pages), _count_most_pages(histogram.n_ranks))
    _coarsen(histogram, levels)
    found, before = np.union1d(histogram.pages, pages >> levels), histogram.moments
    histogram.moments = np.zeros((len(found), *before.shape[1:]))
    histogram.moments[np.searchsorted(found, histogram.pages)] = before
    histogram.pages = found


def _coarsen(histogram: Histogram, by: int) -> None:
    """Reduce p by this number, in place."""
    if by and len(histogram.pages):
        wide = histogram.buckets >> by
        shift = 2.0**-histogram.exponent * (histogram.buckets + 0.5 - 2.0**by * (wide + 0.5))[:, np.newaxis]
        weights, first, second = np.moveaxis(histogram.moments.reshape(-1, histogram.n_ranks, 3), 2, 0)
        moved = np.stack((weights, first + shift * weights, second + shift * (2.0 * first + shift * weights)), axis=2)
        starts = np.flatnonzero(np.diff(wide, prepend=wide[0] - 1))
        histogram.pages = np.unique(wide >> PAGE_BITS)
        at = np.searchsorted(histogram.pages, wide[starts] >> PAGE_BITS) * PAGE + (wide[starts] & (PAGE - 1))
        moments = np.zeros((len(histogram.pages) * PAGE, histogram.n_ranks, 3))
        moments[at] = np.add.reduceat(moved, starts, axis=0)
        histogram.moments = moments.reshape(-1, PAGE, histogram.n_ranks, 3)
    histogram.exponent -= by


@register_jitable
def _mix(page: int, n_places: int) -> int:
    """Return the hash-table place at which the search for a page begins; n_places is a power of two."""
    return ((page * SPREAD) >> 32) & (n_places - 1)


@njit(cache=True, nogil=True)
def _index_pages(pages: I64, places: I32) -> None:
    """Write the index of each page to its place in the table, or to the next free place (-1)."""
    for k in range(pages.size):
        place = _mix(pages[k], places.size)
        while places[place] >= 0:
            place = (place + 1) & (places.size - 1)
        places[place] = k


@register_jitable
def _find_page(pages: I64, places: I32, page: int) -> int:
    """Return the index of a page in `pages`, or -1 if it is missing."""
    place = _mix(page, places.size)
    while places[place] >= 0 and pages[places[place]] != page:
        place = (place + 1) & (places.size - 1)
    return int(places[place])


@njit(cache=True, nogil=True)
def _add_rows(
    scores: F64, ranks: I32, weight: F64, scale: float, pages: I64, places: I32, moments: F64, left: I64
) -> int:
    """Add the rows that have a page; write the numbers of the other rows to left (n,), and return their count."""
    n_left = 0
    for i in range(scores.size):
        if weight[i] == 0.0:
            continue
        bucket = math.floor(scale * scores[i])
        at = _find_page(pages, places, bucket >> PAGE_BITS)
        if at < 0:
            left[n_left] = i
            n_left += 1
            continue
        rank, place, beside = ranks[i], bucket & (PAGE - 1), scores[i] - (bucket + 0.5) / scale
        moments[at, place, rank, 0] += weight[i]
        moments[at, place, rank, 1] += weight[i] * beside
        moments[at, place, rank, 2] += weight[i] * beside**2
    return n_left


@njit(cache=True, nogil=True)
def look_up(
    scores: F64, ranks: I32, weight: F64, scale: float, pages: I64, places: I32, table: F64, found: F64, seen: F64
) -> int:
    """Write each row's entry of `table` (k, 64, ranks) to found (n,), and add the row's weight to this entry of `seen`.

    places: the hash table of the pages, from index_pages. Stop at the first row without a page, and return its number;
    return n if every row has a page.
    """
    for i in range(scores.size):
        found[i] = 0.0
        if weight[i] == 0.0:
            continue
        bucket = math.floor(scale * scores[i])
        at = _find_page(pages, places, bucket >> PAGE_BITS)
        if at < 0:
            return i
        found[i] = table[at, bucket & (PAGE - 1), ranks[i]]
        seen[at, bucket & (PAGE - 1), ranks[i]] += weight[i]
    return scores.size


OTHER_SCORES = "the scores of rows differ from those of the previous pass; all workers need the same kind of CPU"


@dataclass(frozen=True)
class HistogramCut:
    """A cut in terms of buckets: a row contributes v_i times its entry of coefs (k, 64, ranks)."""

    exponent: int
    pages: I64
    coefs: F64
    offset: float

    def find_coefs(self, scores: F64, ranks: I32, weight: F64, seen: F64) -> F64:
        """Return the coefficients of rows in the cut, (n,), given their scores, ranks and weights, (n,) each.

        The weights are added to `seen`, which has the shape of coefs (see HistogramLoss.require_same). Raises
        InputError for a row outside the pages of the histogram.
        """
        found = np.empty(len(scores))
        places, scale = index_pages(self.pages), 2.0**self.exponent
        if look_up(scores, ranks, weight, scale, self.pages, places, self.coefs, found, seen) < len(scores):
            raise InputError(OTHER_SCORES)
        return weight * found


@dataclass(frozen=True)
class HistogramLoss:
    """Bounds on the loss, and a cut that attains the lower bound at the scores of the histogram.

    weights (k, 64, ranks): the weights of the buckets. rounding: the part of the lower bound's error that grows with
    the width of a bucket, because scores are measured from the middles of their buckets. The upper bound includes this
    part. The part of the error that grows with the scores is not included.
    """

    lower: float
    upper: float
    rounding: float
    cut: HistogramCut
    weights: F64

    def require_same(self, seen: F64, n_rows: int) -> None:
        """Raise InputError unless the n_rows rows of the cut lie in the same buckets as the rows of the histogram."""
        if np.any(np.abs(seen - self.weights) > bound_rounding(8.0 * n_rows + 64, 1.0) * self.weights):
            raise InputError(OTHER_SCORES)


def measure_histogram(histogram: Histogram, n_rows: int, cost: float) -> HistogramLoss:
    """Return the loss of the rows in a histogram. n_rows: the number of rows; cost: the cost K of a pair."""
    moments = np.ascontiguousarray(histogram.moments.reshape(-1, histogram.n_ranks, 3).T)  # (3, ranks, buckets)
    weights, width = moments[0], 2.0**-histogram.exponent
    doubtful = [2**histogram.exponent] if width <= 1.0 else [0, 1]
    up, down = _count_sure_pairs(weights, histogram.buckets, doubtful[0])
    spread = _bound_spread(moments, width, bound_rounding(2.0 * n_rows + 64, 1.0))
    above = sum(_add_doubtful(moments, spread, histogram.buckets, apart, width, up, down) for apart in doubtful)
    coefs, offset = cost * (up - down), cost * float(np.sum(weights * up))
    sums = moments[1] + weights * (width * (histogram.buckets + 0.5))
    lower = offset - float(np.sum(coefs * sums))
    own = np.ascontiguousarray(coefs.T).reshape(-1, PAGE, histogram.n_ranks)
    cut = HistogramCut(histogram.exponent, histogram.pages, own, offset)
    # A row adds its distance e_i, at most half a width, to a sum of n_rows terms; reducing p shifts it up to 64 times.
    rounding = bound_rounding(2.0 * n_rows + 256, width * float(np.sum(np.abs(coefs) * weights)))
    return HistogramLoss(lower, lower + cost * above + rounding, rounding, cut, histogram.moments[..., 0])


def _count_sure_pairs(weights: F64, buckets: I64, doubtful: int) -> tuple[F64, F64]:
    """Return up and down, (ranks, buckets) each, for the pairs with row i less than `doubtful` buckets above row j."""
    n_ranks, n = weights.shape
    smaller, larger = np.zeros((n_ranks, n + 1)), np.zeros((n_ranks, n + 1))
    smaller[1:, :n] = np.cumsum(np.cumsum(weights[:-1], axis=0)[:, ::-1], axis=1)[:, ::-1]
    larger[:-1, 1:] = np.cumsum(np.cumsum(weights[:0:-1], axis=0)[::-1], axis=1)
    first = np.searchsorted(buckets, buckets - doubtful + 1)
    after = np.searchsorted(buckets, buckets + doubtful - 1, side="right")
    return smaller[:, first], larger[:, after]


def _bound_spread(moments: F64, width: float, rounding: float) -> F64:
    """Return upper bounds on the variance of the scores in each bucket, (ranks, buckets).

    rounding: the error of the moments, relative to their values if all scores are at an end of a bucket.
    """
    weights, first, second = moments
    mean = np.divide(first, weights, out=np.zeros(weights.shape), where=weights > 0.0)
    square = np.divide(second, weights, out=np.zeros(weights.shape), where=weights > 0.0)
    spread: F64 = np.maximum(0.0, square - mean**2) + 8.0 * rounding * width**2
    return spread


def _add_doubtful(moments: F64, spread: F64, buckets: I64, apart: int, width: float, up: F64, down: F64) -> float:
    """Add to up and down the pairs with row i exactly `apart` buckets above row j if their total loss is positive.

    Return the amount by which the total loss of the added pairs can exceed the lower bound.
    """
    place = np.minimum(np.searchsorted(buckets, buckets - apart), len(buckets) - 1)
    of_i = np.flatnonzero(buckets[place] == buckets - apart)
    of_j, middle, above = place[of_i], 1.0 - apart * width, 0.0
    for rank in range(1, len(spread)):
        (weight_i, first_i), (weight_j, first_j) = moments[:2, rank, of_i], moments[:2, :rank, of_j]
        pairs = weight_i * weight_j
        total = middle * pairs - first_i * weight_j + weight_i * first_j
        counts = total > 0.0
        up[rank, of_i] += np.sum(counts * weight_j, axis=0)
        down[:rank, of_j] += counts * weight_i
        chord = (total - (middle - width) * pairs) * (middle + width) / (2.0 * width)
        variance = spread[rank, of_i] + spread[:rank, of_j]
        by_moments = (total + np.sqrt(total**2 + pairs**2 * variance)) / 2.0
        above += float(np.sum(np.maximum(0.0, np.minimum(chord, by_moments) - np.maximum(0.0, total))))
    return above


@dataclass(frozen=True)
class RankTotals:
    """The sums of the weights of all rows of each rank.

    of_rank (ranks,): the sum of each rank, from the lowest rank up.
    """

    of_rank: F64

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return len(self.of_rank)

    @property
    def of_pairs(self) -> float:
        """The sum of the weights of all pairs."""
        return float(np.sum(self.of_rank * self.below))

    @property
    def below(self) -> F64:
        """The sum of the weights of all rows of lower rank, for each rank, (ranks,)."""
        return np.concatenate(([0.0], np.cumsum(self.of_rank[:-1])))  # Differences of sums would lose small weights.

    @property
    def above(self) -> F64:
        """The sum of the weights of all rows of higher rank, for each rank, (ranks,)."""
        return np.concatenate((np.cumsum(self.of_rank[:0:-1])[::-1], [0.0]))


def start_histograms(n_ranks: int, exponents: Sequence[int]) -> list[Histogram]:
    """Return empty histograms."""
    return [start_histogram(n_ranks, exponent) for exponent in exponents]


def add_histograms(histograms: list[Histogram], rows: Rows, W: F64) -> None:
    """Add the scores of a tile to the histogram of each of the points W (k, d)."""
    ranks, weight = read_ranks(rows)
    for histogram, scores in zip(histograms, compute_scores(rows.X, make_writable(W)).T, strict=True):
        add_scores(histogram, np.ascontiguousarray(scores), ranks, weight)


def read_ranks(rows: Rows) -> tuple[I32, F64]:
    """Return the ranks and weights of rows as writable arrays, which compiled code requires."""
    return make_writable(rows.y), make_writable(rows.weights)
