"""The loss of all pairs, and what they count, in twice the precision (numeric.pair_counts, numeric.exact_losses).

    loss = K sum over pairs v_i v_j max(0, 1 - (s_i - s_j)) = K (sum_i up_i - sum_i (up_i - down_i) s_i)

Scores, sums and the weights in the Fenwick trees are pairs of float64 numbers. So rounding affects neither the choice
of the row pairs that have a loss nor the cancellation of their terms. `count_pairs_exactly` takes scores as single
numbers and chooses the pairs as numeric.pair_counts does; its counts are exact to the rounding of twice the precision.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.pair_counts import Pairs
from streamsvm.numeric.rounding import UNIT, add_to_pair, add_two, bound_rounding, multiply_two
from streamsvm.numeric.rows import F64, I32, I64

OWN_ROUNDINGS = 8  # the units in the last place that the last products and sums can lose


def sum_pairs_exactly(scores: F64, pairs: Pairs) -> tuple[float, float, float]:
    """Return loss / K at scores (n, 2), which are pairs of numbers, as a pair, and the sum of its terms' sizes."""
    query = np.repeat(np.arange(len(pairs.starts) - 1), np.diff(pairs.starts))
    order = np.lexsort((scores[:, 1], scores[:, 0], query))
    n_ranks = int(np.max(pairs.ranks, initial=0)) + 1
    found: tuple[float, float, float]
    found = _sum_pairs(scores[order], pairs.ranks[order], pairs.weight[order], pairs.starts, n_ranks)
    return found


def round_sums(loss: float, size: float, n_rows: int, cost: float) -> tuple[float, float]:
    """Return the loss and how far it can be off, from its sum over n rows and that of its terms' sizes. cost: K."""
    loss *= cost
    terms = 8.0 * (n_rows + 64.0)
    return loss, OWN_ROUNDINGS * UNIT * abs(loss) + bound_rounding(terms, 1.0) * UNIT * cost * size


def measure_pairs_exactly(scores: F64, pairs: Pairs, cost: float) -> tuple[float, float]:
    """Return the loss at scores (n, 2), which are pairs of numbers, and how far it can be off. cost: K."""
    loss, rest, size = sum_pairs_exactly(scores, pairs)
    return round_sums(loss + rest, size, len(scores), cost)


def count_pairs_exactly(scores: F64, pairs: Pairs) -> tuple[F64, F64]:
    """Return up and down of numeric.pair_counts at scores (n,) and margin 1, as pairs of numbers, (n, 2) each."""
    query = np.repeat(np.arange(len(pairs.starts) - 1), np.diff(pairs.starts))
    order = np.lexsort((scores, query))
    n_ranks = int(np.max(pairs.ranks, initial=0)) + 1
    found = _count_pairs(scores[order], pairs.ranks[order], pairs.weight[order], pairs.starts, n_ranks)
    up, down = np.empty(found[0].shape), np.empty(found[1].shape)
    up[order], down[order] = found
    return up, down


@register_jitable
def _is_within(s: F64, i: int, j: int) -> bool:
    """Tell whether s_i - s_j < 1."""
    difference, lost = add_two(s[i, 0], -s[j, 0])
    beyond, lost_too = add_two(difference, -1.0)
    return bool(beyond + (lost_too + lost + (s[i, 1] - s[j, 1])) < 0.0)


@register_jitable
def _add(tree: F64, at: int, value: float) -> None:
    while at < tree.shape[0]:
        tree[at, 0], tree[at, 1] = add_to_pair(tree[at, 0], tree[at, 1], value)
        at += at & -at


@register_jitable
def _clear(tree: F64, at: int) -> None:
    """Set the entries that a row has changed to zero; a query may have many fewer rows than there are ranks."""
    while at < tree.shape[0]:
        tree[at, 0], tree[at, 1] = 0.0, 0.0
        at += at & -at


@register_jitable
def _sum_up_to(tree: F64, at: int) -> tuple[float, float]:
    total, rest = 0.0, 0.0
    while at > 0:
        total, lost = add_two(total, tree[at, 0])
        total, rest = add_two(total, lost + (rest + tree[at, 1]))
        at -= at & -at
    return total, rest


@register_jitable
def _add_term(
    total: float, rest: float, weight: float, lacking: float, v: float, s: float, low: float
) -> tuple[float, float, float]:
    """Add v (weight + lacking) (s + low) to the pair (total, rest). Return the pair and the term's magnitude."""
    product, lost = multiply_two(v, weight)
    lost += v * lacking
    term, lost_too = multiply_two(product, s)
    total, carried = add_two(total, term)
    total, rest = add_two(total, rest + carried + lost_too + lost * s + product * low)
    return total, rest, abs(term)


@njit(cache=True, nogil=True)
def _sum_pairs(s: F64, ranks: I32, v: F64, starts: I64, n_ranks: int) -> tuple[float, float, float]:
    """Return the loss as a pair of numbers, and the sum of its terms' magnitudes. Rows ascend within each query."""
    total, rest, size, tree = 0.0, 0.0, 0.0, np.zeros((n_ranks + 1, 2))
    for k in range(starts.size - 1):
        first, end = starts[k], starts[k + 1]
        j = end - 1
        for i in range(end - 1, first - 1, -1):
            while j >= first and _is_within(s, i, j):
                _add(tree, ranks[j] + 1, v[j])
                j -= 1
            up, lacking = _sum_up_to(tree, ranks[i])
            total, rest, one = _add_term(total, rest, up, lacking, v[i], 1.0, 0.0)
            total, rest, other = _add_term(total, rest, up, lacking, v[i], -s[i, 0], -s[i, 1])
            size += one + other
        for i in range(first, end):
            _clear(tree, ranks[i] + 1)
        j = first
        for i in range(first, end):
            while j < end and _is_within(s, j, i):
                _add(tree, n_ranks - ranks[j], v[j])
                j += 1
            down, lacking = _sum_up_to(tree, n_ranks - 1 - ranks[i])
            total, rest, one = _add_term(total, rest, down, lacking, v[i], s[i, 0], s[i, 1])
            size += one
        for i in range(first, end):
            _clear(tree, n_ranks - ranks[i])
    return total, rest, size


@njit(cache=True, nogil=True)
def _count_pairs(s: F64, ranks: I32, v: F64, starts: I64, n_ranks: int) -> tuple[F64, F64]:
    """Return up and down of rows that ascend within each query."""
    up, down, tree = np.empty((s.size, 2)), np.empty((s.size, 2)), np.zeros((n_ranks + 1, 2))
    for k in range(starts.size - 1):
        first, end = starts[k], starts[k + 1]
        j = end - 1
        for i in range(end - 1, first - 1, -1):
            while j >= first and s[i] - s[j] < 1.0:
                _add(tree, ranks[j] + 1, v[j])
                j -= 1
            total, rest = _sum_up_to(tree, ranks[i])
            up[i, 0], lost = multiply_two(v[i], total)
            up[i, 1] = lost + v[i] * rest
        for i in range(first, end):
            _clear(tree, ranks[i] + 1)
        j = first
        for i in range(first, end):
            while j < end and s[j] - s[i] < 1.0:
                _add(tree, n_ranks - ranks[j], v[j])
                j += 1
            total, rest = _sum_up_to(tree, n_ranks - 1 - ranks[i])
            down[i, 0], lost = multiply_two(v[i], total)
            down[i, 1] = lost + v[i] * rest
        for i in range(first, end):
            _clear(tree, n_ranks - ranks[i])
    return up, down
