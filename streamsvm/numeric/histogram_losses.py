"""The hinge loss of all pairs of rows from a histogram of their scores, between two bounds, and a cut below it.

    loss(s) = K sum over pairs v_i v_j max(0, 1 - (s_i - s_j)),    i of the higher rank

For the rows i of one bucket and j of another, x = 1 - (s_i - s_j) lies between 1 - (a + 1) h and 1 - (a - 1) h, where
h = 2^-p is the width of a bucket, and a is how many buckets i is above j. So all pairs of two buckets have a loss, or
none has, unless a is 1 / h (or 0 or 1 if h > 1). Of the x of those pairs the mean m and the variance V are known. From
below, the mean loss is max(0, m), by Jensen's inequality. From above it is on the chord of max(0, x) between both ends,
and at most (m + sqrt(m^2 + V)) / 2 (Scarf 1958): where all rows of a bucket have the same score, nothing is in doubt.
With c = 1 for pairs that count, and 0 for others, the loss is

    sum c v_i v_j (1 - (s_i - s_j)) = sum_i v_i up_i - sum_i v_i (up_i - down_i) s_i    at the lower bound,

and at any other scores it is at least that (numeric.pair_counts). If scores are spread, both bounds differ by O(h^2) of
the pairs' number: one h for the part of the pairs that is in doubt, and one for how much they are in doubt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.errors import InputError
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, I32, I64
from streamsvm.numeric.score_histograms import PAGE, Histogram, index_pages, look_up

OTHER_SCORES = (
    "rows have other scores than in the pass before, so that their pairs cannot be counted: for this task all workers "
    "need processors of one kind"
)


@dataclass(frozen=True)
class HistogramCut:
    """A cut by page, rank and bucket: a row adds v_i times its entry of coefs (k, 64, ranks) to it."""

    exponent: int
    pages: I64
    coefs: F64
    offset: float

    def find_coefs(self, scores: F64, ranks: I32, weight: F64, seen: F64) -> F64:
        """Return what rows of the histogram add to the cut, (n,), given their scores, ranks and weights.

        The weights are added to seen, which has the shape of coefs (see HistogramLoss.require_same). Raises InputError
        for a row that is in no page of the histogram.
        """
        found = np.empty(len(scores))
        places, scale = index_pages(self.pages), 2.0**self.exponent
        if look_up(scores, ranks, weight, scale, self.pages, places, self.coefs, found, seen) < len(scores):
            raise InputError(OTHER_SCORES)
        return weight * found


@dataclass(frozen=True)
class HistogramLoss:
    """Bounds of the loss, and a cut that has the lower bound as its value there; weights (k, 64, ranks): of buckets."""

    lower: float
    upper: float
    cut: HistogramCut
    weights: F64

    def require_same(self, seen: F64, n_rows: int) -> None:
        """Raise InputError if n_rows rows that were added to the cut were in other buckets than in the histogram."""
        if np.any(np.abs(seen - self.weights) > bound_rounding(8.0 * n_rows + 64, 1.0) * self.weights):
            raise InputError(OTHER_SCORES)


def measure_histogram(histogram: Histogram, n_rows: int, cost: float) -> HistogramLoss:
    """Return the loss of the rows of a histogram, of which there are n_rows; cost is K."""
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
    return HistogramLoss(lower, lower + cost * above, cut, histogram.moments[..., 0])


def _count_sure_pairs(weights: F64, buckets: I64, doubtful: int) -> tuple[F64, F64]:
    """Return up and down, (ranks, buckets) each, of the pairs whose row i is less than `doubtful` buckets above j."""
    n_ranks, n = weights.shape
    smaller, larger = np.zeros((n_ranks, n + 1)), np.zeros((n_ranks, n + 1))
    smaller[1:, :n] = np.cumsum(np.cumsum(weights[:-1], axis=0)[:, ::-1], axis=1)[:, ::-1]
    larger[:-1, 1:] = np.cumsum(np.cumsum(weights[:0:-1], axis=0)[::-1], axis=1)
    first = np.searchsorted(buckets, buckets - doubtful + 1)
    after = np.searchsorted(buckets, buckets + doubtful - 1, side="right")
    return smaller[:, first], larger[:, after]


def _bound_spread(moments: F64, width: float, rounding: float) -> F64:
    """Return bounds of the variance of the scores in each bucket, (ranks, buckets).

    rounding: of their sums, as a share of what these are where all scores are at an end of a bucket of this width.
    """
    weights, first, second = moments
    mean = np.divide(first, weights, out=np.zeros(weights.shape), where=weights > 0.0)
    square = np.divide(second, weights, out=np.zeros(weights.shape), where=weights > 0.0)
    spread: F64 = np.maximum(0.0, square - mean**2) + 8.0 * rounding * width**2
    return spread


def _add_doubtful(moments: F64, spread: F64, buckets: I64, apart: int, width: float, up: F64, down: F64) -> float:
    """Add the pairs whose row i is so many buckets above j where they have a loss together.

    Return how much larger their loss can be.
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
