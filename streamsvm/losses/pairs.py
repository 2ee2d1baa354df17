"""Pairs of rows of different ranks: pair counts, sums over whole queries, and measures of a ranking's quality.

The pairs are counted as in Joachims 2006, Algorithm 2, lines 5 to 22, for any number of ranks. A pair consists of two
rows i, j of one query with rank_i > rank_j, and has the weight v_i v_j. For scores s and a margin m

    up_i   = v_i sum {v_j : rank_j < rank_i, s_i - s_j < m}          c+ of the paper (m = 1, v = 1)
    down_i = v_i sum {v_j : rank_j > rank_i, s_j - s_i < m}          c-
    loss   = sum over pairs v_i v_j max(0, m - (s_i - s_j)) = m sum_i up_i - sum_i (up_i - down_i) s_i

The paper sweeps over the sorted rows once for each of the R ranks, in O(R n). We use two sweeps that keep the weights
of the rows already passed in a Fenwick tree over the ranks (Fenwick 1994), in O(n log n + n log R). In queries of few
rows all pairs are compared, which is faster, since the loops have no branches.

For sums over whole queries, rows arrive in pieces, because tiles and groups of chunks end in the middle of queries:

    totals of successive rows = (rows of the first query, sums over the whole queries between, rows of the last query)

A query is whole once both of its ends have been seen. The rows before the first boundary between queries may belong to
a query that began earlier, and the rows after the last boundary to a query that continues. So both are kept until the
neighbouring rows arrive: the next tile of a group, or the next group in the tree of sums. The order in which whole
queries are added depends only on the tiles and the tree, not on the assignment of rows to workers.

The measures are swapped pairs, normalised discounted cumulative gain, and Kendall's tau:

    swapped  = share of the pairs of one query and two ranks in which the higher rank has the lower score;
               equal scores count half
    NDCG@k   = DCG@k of the scores over DCG@k of the ranks;
               DCG@k = sum over places p <= k of (2^rank - 1) / log2(p + 1);
               rows of equal scores share their places (Jarvelin & Kekalainen 2002; McSherry & Najork 2008)
    tau      = Kendall's tau-b (ties in both)

NDCG and tau are means over the queries with at least two ranks, since other queries have nothing to order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.rows import F64, I32, I64, Rows, join_rows

COMPARED_ROWS = 128  # in queries of at most so many rows, comparing all pairs is faster than sorting


@dataclass(frozen=True)
class Pairs:
    """Rows by query: query k consists of the rows starts[k]:starts[k+1].

    ranks (n,): the rank of each row, from 0. weight (n,): the weight v of each row.
    """

    ranks: I32
    weight: F64
    starts: I64

    @property
    def total(self) -> float:
        """The sum of the weights of all pairs."""
        return float(np.sum(count_pairs(np.zeros(len(self.ranks)), self, 1.0)[0]))

    def thin(self, stride: int, is_shuffled: bool = False) -> tuple[Pairs, I64]:
        """Return the pairs of every `stride`-th query, or row if there is a single query, and the row numbers.

        Queries or rows without pairs are left out. Those whose pairs have over `stride` times the mean weight are all
        taken, with their pairs' weight divided by `stride`, since they stand only for themselves. So are queries that
        have over half of the n / stride rows of a sample. If such queries have many rows, they are thinned as single
        queries, until they have about the rows of a sample together.
        Of a single query, the first rows of the lowest and of the highest rank are also taken. is_shuffled: whether the
        first rows of a single query are a random sample; then they are taken.
        """
        n, is_single = len(self.ranks), len(self.starts) == 2
        limits = np.arange(n + 1) if is_single else self.starts
        weight, sizes = np.add.reduceat(np.add(*count_pairs(np.zeros(n), self, 1.0)), limits[:-1]), np.diff(limits)
        paired = np.flatnonzero(weight > 0.0)
        is_large = (sizes > 1) & (2 * stride * sizes > n) & (weight > 0.0)
        is_heavy = (weight > stride * np.mean(weight[paired])) | is_large
        kept = paired[: len(paired) // stride] if is_single and is_shuffled else paired[::stride]
        if is_single:
            kept = np.append(kept, paired[[np.argmin(self.ranks[paired]), np.argmax(self.ranks[paired])]])
        share = np.zeros(len(weight))
        share[kept] = 1.0
        share[is_heavy] = stride ** (-1.0 if is_single else -0.5)
        factor = np.repeat(share, sizes)
        thinned, most = factor * self.weight, max(1, n // (stride * max(1, int(np.count_nonzero(is_heavy)))))
        for k in np.flatnonzero(is_heavy & (sizes >= 2 * most) & (sizes > 1)):
            own, inner = slice(*limits[k : k + 2].tolist()), int(sizes[k]) // most
            part, rows = Pairs(self.ranks[own], self.weight[own], np.array([0, sizes[k]])).thin(inner)
            factor[own] = 0.0
            factor[own.start + rows] = share[k]
            thinned[own.start + rows] = inner * share[k] * part.weight
        rows = np.flatnonzero(factor)
        starts = np.array([0, len(rows)]) if is_single else np.unique(np.searchsorted(rows, limits))
        return Pairs(self.ranks[rows], thinned[rows], starts), rows


def count_pairs(scores: F64, pairs: Pairs, margin: float) -> tuple[F64, F64]:
    """Return up and down, (n,) each, in row order."""
    order, *sums = sweep_pairs(scores, pairs, margin)
    up, down = np.empty(len(scores)), np.empty(len(scores))
    up[order], down[order] = sums
    return up, down


def sweep_pairs(scores: F64, pairs: Pairs, margin: float) -> tuple[I64, F64, F64]:
    """Return an order of the rows, and up and down in that order, (n,) each. Large queries are sorted by score."""
    order = np.arange(len(scores))
    for k in np.flatnonzero(np.diff(pairs.starts) > COMPARED_ROWS).tolist():
        first, end = pairs.starts[k : k + 2].tolist()
        order[first:end] = first + np.argsort(scores[first:end])
    n_ranks = int(np.max(pairs.ranks, initial=0)) + 1
    # The arrays are brought into this order; otherwise the sweeps would miss the cache at every row.
    return order, *_sweep(scores[order], pairs.ranks[order], pairs.weight[order], pairs.starts, n_ranks, margin)


@njit(cache=True, nogil=True)
def _sweep(s: F64, ranks: I32, v: F64, starts: I64, n_ranks: int, margin: float) -> tuple[F64, F64]:
    """Return up and down, (n,) each. The scores ascend within each query of more than COMPARED_ROWS rows."""
    up, down, tree = np.zeros(s.size), np.zeros(s.size), np.zeros(n_ranks + 1)
    for k in range(starts.size - 1):
        first, end = starts[k], starts[k + 1]
        if end - first <= COMPARED_ROWS:
            _compare(s[first:end], ranks[first:end], v[first:end], margin, up[first:end], down[first:end])
            continue
        j = end - 1
        for i in range(end - 1, first - 1, -1):
            while j >= first and s[i] - s[j] < margin:
                _add(tree, ranks[j] + 1, v[j])
                j -= 1
            up[i] = v[i] * _sum_up_to(tree, ranks[i])
        _clear(tree, ranks[first:end], n_ranks, False)
        j = first
        for i in range(first, end):
            while j < end and s[j] - s[i] < margin:
                _add(tree, n_ranks - ranks[j], v[j])
                j += 1
            down[i] = v[i] * _sum_up_to(tree, n_ranks - 1 - ranks[i])
        _clear(tree, ranks[first:end], n_ranks, True)
    return up, down


@register_jitable
def _compare(s: F64, ranks: I32, v: F64, margin: float, up: F64, down: F64) -> None:
    """Set up and down of the rows of a query. The compiler vectorises the inner loops, since they have no branches."""
    for j in range(s.size):
        for i in range(s.size):
            up[i] += v[j] * ((ranks[i] > ranks[j]) & (s[i] - s[j] < margin))
        for i in range(s.size):
            down[i] += v[j] * ((ranks[i] < ranks[j]) & (s[j] - s[i] < margin))
    for i in range(s.size):
        up[i], down[i] = v[i] * up[i], v[i] * down[i]


@register_jitable
def _add(tree: F64, at: int, value: float) -> None:
    while at < tree.size:
        tree[at] += value
        at += at & -at


@register_jitable
def _sum_up_to(tree: F64, at: int) -> float:
    total = 0.0
    while at > 0:
        total += tree[at]
        at -= at & -at
    return total


@register_jitable
def _clear(tree: F64, ranks: I32, n_ranks: int, reverse: bool) -> None:
    """Reset to zero only the entries that the rows changed, since a query may have far fewer rows than ranks."""
    if ranks.size >= n_ranks:
        tree[:] = 0.0
        return
    for rank in ranks:
        at = n_ranks - rank if reverse else rank + 1
        while at < len(tree):
            tree[at] = 0.0
            at += at & -at


MOST_RANK = 60  # The gain 2^rank - 1 is meant for grades, not for thousands of ranks.


def swapped_pairs(scores: F64, pairs: Pairs) -> float | None:
    """Return the share of pairs in the wrong order, or None without pairs; equal scores count half."""
    total = pairs.total
    smallest = float(np.nextafter(0.0, 1.0))
    wrong, not_right = (float(np.sum(count_pairs(scores, pairs, margin)[0])) for margin in (0.0, smallest))
    return (wrong + not_right) / (2 * total) if total > 0 else None


def mean_ndcg(scores: F64, ranks: F64, starts: Sequence[int] | I64, places: Sequence[int]) -> dict[int, float | None]:
    """Return NDCG@k for each k in `places`; None if no query has two ranks, or a rank exceeds MOST_RANK."""
    if np.max(ranks, initial=0.0) > MOST_RANK:
        return dict.fromkeys(places)
    found: dict[int, list[float]] = {k: [] for k in places}
    for s, grades in _queries(scores, ranks, starts):
        gains = np.exp2(grades) - 1.0
        for k in places:
            found[k].append(_sum_gains(gains, s, k) / _sum_gains(gains, grades, k))
    return {k: float(np.mean(values)) if values else None for k, values in found.items()}


def mean_tau(scores: F64, ranks: F64, starts: Sequence[int] | I64) -> float | None:
    """Return the mean of Kendall's tau-b; a query whose scores are all equal counts as 0."""
    from scipy.stats import kendalltau  # imported here: it takes 40 MB, and only the evaluation of rankings needs it

    values = [float(kendalltau(s, grades).statistic) for s, grades in _queries(scores, ranks, starts)]
    return float(np.mean(np.nan_to_num(values))) if values else None


def _queries(scores: F64, ranks: F64, starts: Sequence[int] | I64) -> Iterator[tuple[F64, F64]]:
    """Yield the scores and ranks of each query with at least two ranks."""
    for first, end in pairwise(starts):
        if np.ptp(ranks[first:end]) > 0:
            yield scores[first:end], ranks[first:end]


def _sum_gains(gains: F64, scores: F64, k: int) -> float:
    """Return DCG@k; rows with equal scores get the mean discount of their places."""
    _, group, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    place = np.arange(len(scores))
    discounts = np.where(place < k, 1.0 / np.log2(place + 2.0), 0.0)
    shared = np.add.reduceat(discounts, np.cumsum(counts) - counts) / counts
    return float(shared[group] @ gains)


T = TypeVar("T")
Take = Callable[[T, Rows, I64], None]


@dataclass
class QuerySums:
    """The totals of successive rows.

    sums: the sums over the whole queries. first: the rows before the first boundary between queries, in pieces; all
    rows if there is no boundary. last: the rows after the last boundary, in pieces; an empty list if there are no such
    rows, and None if there is no boundary.
    """

    sums: Any
    first: list[Rows] = field(default_factory=list)
    last: list[Rows] | None = None


def sum_queries(ends: tuple[int, int], start: Callable[[], T], take: Take[T], combine: Callable[[T, T], T]) -> Any:
    """Return the functions start, add and combine of a pass over whole queries (passes.Scan), which gives `QuerySums`.

    take(sums, rows, starts) adds whole queries to `sums`, in place; start() makes empty sums: query k consists of the
    rows starts[k]:starts[k + 1]. combine(left, right) returns the total of two sums as a new object. ends: the numbers
    of the first row of the dataset, and of the row after the last one; queries have boundaries there.
    """
    return partial(_start, start), partial(_add_query, take, ends), partial(_combine, take, combine)


def _start(start: Callable[[], Any]) -> QuerySums:
    return QuerySums(start())


def _add_query(take: Take[Any], ends: tuple[int, int], totals: QuerySums, rows: Rows) -> None:
    """Add the rows of a tile."""
    if rows.start == ends[0]:
        totals.last = []
    limits = np.flatnonzero(np.diff(rows.vectors["qid"])) + 1
    first, last = (int(limits[0]), int(limits[-1])) if len(limits) else (rows.n_rows, rows.n_rows)
    ends_open = [rows.pick(np.arange(last, rows.n_rows))] if len(limits) else None
    _append(take, totals, [rows.pick(np.arange(first))], ends_open)
    if first < last:
        take(totals.sums, rows.slice(slice(first, last)), limits - first)
    if rows.start + rows.n_rows == ends[1]:
        _end_query(take, totals)


def _combine(take: Take[Any], combine: Callable[[Any, Any], Any], left: QuerySums, right: QuerySums) -> QuerySums:
    """Return the totals of two successive groups of rows, and add the queries that become whole."""
    totals = QuerySums(combine(left.sums, right.sums), list(left.first), None if left.last is None else list(left.last))
    _append(take, totals, right.first, right.last)
    return totals


def _append(take: Take[Any], totals: QuerySums, first: list[Rows], last: list[Rows] | None) -> None:
    """Append the first rows, and the last rows after the boundaries between queries, to the totals (see QuerySums)."""
    for piece in first:
        pieces = totals.first if totals.last is None else totals.last
        if pieces and pieces[-1].vectors["qid"][-1] != piece.vectors["qid"][0]:
            _end_query(take, totals)
            pieces = totals.last = []
        pieces.append(piece)
    if last is not None:
        _end_query(take, totals)
        totals.last = list(last)


def _end_query(take: Take[Any], totals: QuerySums) -> None:
    """Set a boundary after the rows added so far. If the start of the query that ends there is known, add the query."""
    if totals.last:
        rows = join_rows(totals.last)
        take(totals.sums, rows, np.array([0, rows.n_rows]))
    totals.last = []
