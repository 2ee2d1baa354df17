"""Counts of row pairs in the wrong order (Joachims 2006, Algorithm 2, lines 5 to 22), for any number of ranks.

A pair is two rows i, j of one query with rank_i > rank_j, and weighs v_i v_j. For scores s and a margin m

    up_i   = v_i sum {v_j : rank_j < rank_i, s_i - s_j < m}          c+ of the paper (m = 1, v = 1)
    down_i = v_i sum {v_j : rank_j > rank_i, s_j - s_i < m}          c-
    loss   = sum over pairs v_i v_j max(0, m - (s_i - s_j)) = m sum_i up_i - sum_i (up_i - down_i) s_i

The paper sweeps over the sorted rows once for each of the R ranks, in O(R n). Here two sweeps keep the weights of the
rows behind them in a Fenwick tree over the ranks (Fenwick 1994), in O(n log n + n log R).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.rows import F64, I32, I64

SAMPLE_ROWS = 1 << 13  # rows on which a line search looks for its step


@dataclass(frozen=True)
class Pairs:
    """Rows by query: query k is the rows starts[k]:starts[k+1]. ranks (n,): 0 is the lowest. weight: v, (n,)."""

    ranks: I32
    weight: F64
    starts: I64

    @property
    def total(self) -> float:
        """Sum of the weights of all pairs."""
        return float(np.sum(count_pairs(np.zeros(len(self.ranks)), self, 1.0)[0]))

    def thin(self, stride: int) -> tuple[Pairs, I64]:
        """Keep every `stride`-th query, or row of a single query. Return the pairs that are left, and their rows."""
        if len(self.starts) > 2:
            kept = np.arange(0, len(self.starts) - 1, stride)
            sizes = np.diff(self.starts)[kept]
            rows = np.concatenate([np.arange(self.starts[k], self.starts[k + 1]) for k in kept])
            return Pairs(self.ranks[rows], self.weight[rows], np.concatenate(([0], np.cumsum(sizes)))), rows
        rows = np.arange(0, len(self.ranks), stride)
        return Pairs(self.ranks[rows], self.weight[rows], np.array([0, len(rows)])), rows


def count_pairs(scores: F64, pairs: Pairs, margin: float) -> tuple[F64, F64]:
    """Return up and down, (n,) each, in the order of the rows."""
    order, *sums = sweep_pairs(scores, pairs, margin)
    up, down = np.empty(len(scores)), np.empty(len(scores))
    up[order], down[order] = sums
    return up, down


def sweep_pairs(scores: F64, pairs: Pairs, margin: float) -> tuple[I64, F64, F64]:
    """Return the rows of each query in the order of their scores, and up and down in that order."""
    if len(pairs.starts) == 2:
        order = np.argsort(scores)
    else:
        order = np.empty(len(scores), np.int64)
        _sort_within(scores, pairs.starts, order)
    n_ranks = int(np.max(pairs.ranks, initial=0)) + 1
    # The arrays are put into the order of the scores, or the sweeps would miss the cache at every row.
    return order, *_sweep(scores[order], pairs.ranks[order], pairs.weight[order], pairs.starts, n_ranks, margin)


@njit(cache=True, nogil=True)
def _sort_within(scores: F64, starts: I64, order: I64) -> None:
    for k in range(starts.size - 1):
        found = np.argsort(scores[starts[k] : starts[k + 1]])
        for i in range(found.size):  # as a slice it takes three times as long to compile
            order[starts[k] + i] = starts[k] + found[i]


@njit(cache=True, nogil=True)
def _sweep(s: F64, ranks: I32, v: F64, starts: I64, n_ranks: int, margin: float) -> tuple[F64, F64]:
    """Return up and down of rows whose scores ascend within each query."""
    up, down, tree = np.empty(s.size), np.empty(s.size), np.zeros(n_ranks + 1)
    for k in range(starts.size - 1):
        first, end = starts[k], starts[k + 1]
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
    """Set the entries that the rows changed to zero; a query may have many fewer rows than there are ranks."""
    if ranks.size >= n_ranks:
        tree[:] = 0.0
        return
    for rank in ranks:
        at = n_ranks - rank if reverse else rank + 1
        while at < tree.size:
            tree[at] = 0.0
            at += at & -at
