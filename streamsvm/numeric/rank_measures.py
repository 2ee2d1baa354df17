"""Measures of how well scores order rows: swapped pairs, normalised discounted cumulative gain, Kendall's tau.

    swapped  = share of the pairs of one query and two ranks in which the higher rank has the lower score;
               equal scores count half
    NDCG@k   = DCG@k of the scores over DCG@k of the ranks;
               DCG@k = sum over places p <= k of (2^rank - 1) / log2(p + 1);
               rows of equal scores share their places (Jarvelin & Kekalainen 2002; McSherry & Najork 2008)
    tau      = Kendall's tau-b (ties in both)

The last two are means over the queries with at least two ranks, since the others have nothing to order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from streamsvm.numeric.pair_counts import Pairs, count_pairs
from streamsvm.numeric.rows import F64

MOST_RANK = 60  # the gain 2^rank - 1 is meant for grades, not for thousands of ranks


def swapped_pairs(scores: F64, pairs: Pairs) -> float | None:
    """Return the share of the pairs in the wrong order; None if there is no pair."""
    total = pairs.total
    smallest = float(np.nextafter(0.0, 1.0))
    wrong, not_right = (float(np.sum(count_pairs(scores, pairs, margin)[0])) for margin in (0.0, smallest))
    return (wrong + not_right) / (2 * total) if total > 0 else None


def mean_ndcg(scores: F64, ranks: F64, starts: Sequence[int], places: Sequence[int]) -> dict[int, float | None]:
    """Return NDCG@k for each k in `places`; None if no query has two ranks, or a rank exceeds MOST_RANK."""
    if np.max(ranks, initial=0.0) > MOST_RANK:
        return dict.fromkeys(places)
    found: dict[int, list[float]] = {k: [] for k in places}
    for s, grades in _queries(scores, ranks, starts):
        gains = np.exp2(grades) - 1.0
        for k in places:
            found[k].append(_sum_gains(gains, s, k) / _sum_gains(gains, grades, k))
    return {k: float(np.mean(values)) if values else None for k, values in found.items()}


def mean_tau(scores: F64, ranks: F64, starts: Sequence[int]) -> float | None:
    """Return the mean of Kendall's tau-b. A query whose scores are all equal counts as 0."""
    from scipy.stats import kendalltau  # 40 MB of memory, which only the evaluation of a ranking needs

    values = [float(kendalltau(s, grades).statistic) for s, grades in _queries(scores, ranks, starts)]
    return float(np.mean(np.nan_to_num(values))) if values else None


def _queries(scores: F64, ranks: F64, starts: Sequence[int]) -> Iterator[tuple[F64, F64]]:
    """Yield scores and ranks of each query with at least two ranks."""
    for first, end in pairwise(starts):
        if np.ptp(ranks[first:end]) > 0:
            yield scores[first:end], ranks[first:end]


def _sum_gains(gains: F64, scores: F64, k: int) -> float:
    """Return DCG@k. Rows of equal scores get the mean discount of their places."""
    _, group, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    place = np.arange(len(scores))
    discounts = np.where(place < k, 1.0 / np.log2(place + 2.0), 0.0)
    shared = np.add.reduceat(discounts, np.cumsum(counts) - counts) / counts
    return float(shared[group] @ gains)
