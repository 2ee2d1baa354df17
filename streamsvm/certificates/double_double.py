"""Losses and sums of rows and of pairs in twice the precision, for certificates beyond the precision of float64.

Scores and sums are pairs of float64 numbers (numeric.rounding). So the hinge losses
sum_i C_i max(0, 1 - y_i (w.x_i + b)), and the losses of K scores of a row (losses.classes), are exact for the stored
point to a few units in the last place, even if the terms of a score cancel. The rounding error of a score of d terms is
at most gamma_(2d) d u times the sum of the magnitudes of the terms. A row beyond its margin by more than this error
certainly has no loss. These functions take ten to twenty times longer per row than those of losses.hinge, so only rare
passes call them.

In sums of alpha_i x_i and of alpha_i by class, each multiplier is split into two parts, whose products with a float32
number are exact. The parts are added to the pair separately, so 2 n additions lose at most 4 n u^2 times the magnitudes
of the terms.

For pairs of rows (losses.pairs),

    loss = K sum over pairs v_i v_j max(0, 1 - (s_i - s_j)) = K (sum_i up_i - sum_i (up_i - down_i) s_i)

the weights in the Fenwick trees are pairs of float64 numbers as well. So rounding affects neither the choice of the row
pairs that have a loss nor the cancellation of their terms. `count_pairs_exactly` takes scores as single float64 numbers
and chooses the pairs as losses.pairs does; its counts are accurate to twice the precision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.kernels.kernel import absolute
from streamsvm.losses.classes import read_costs
from streamsvm.losses.pairs import Pairs
from streamsvm.losses.softmax import count_rows
from streamsvm.numeric import rounding
from streamsvm.numeric.rounding import UNIT, add_pairs, add_to_pair, add_two, bound_rounding, multiply_two
from streamsvm.numeric.rows import F32, F64, I32, I64, Matrix, Rows, Split, compute_scores, find_items, read_item, split
from streamsvm.passes import RowTotals

Parts = tuple[F64, F64]  # weights as split_for_float32 returns them
OWN_ROUNDINGS = 8  # the error of the terms of a loss and of their last sum, in units in the last place


def join_pairs(left: F64, right: F64) -> F64:
    """Return the sums of pairs of numbers, whose last axis has the two numbers of each pair."""
    return np.stack(add_pairs(left[..., 0], left[..., 1], right[..., 0], right[..., 1]), axis=-1)


@dataclass
class ExactLosses(RowTotals):
    """Losses at K points as pairs (K, 2), their magnitudes sum_i C_i (|w|.|x_i| + |b| + 1), (K,), and the row count.

    Only rows that may have a loss contribute to the magnitudes.
    """

    losses: F64
    magnitudes: F64
    n_rows: int = 0
    joined: ClassVar = {"losses": join_pairs}

    def read(self, width: int) -> tuple[F64, F64]:
        """Return the losses (K,) and their error bounds. width: the length of the weight vectors."""
        found = self.losses.sum(axis=1)
        scores = bound_score(width) * (1.0 + bound_rounding(width + self.n_rows + 8, 1.0))
        return found, (OWN_ROUNDINGS * UNIT + 2.0 * (self.n_rows + 4) * UNIT**2) * found + scores * self.magnitudes


def bound_score(width: int) -> float:
    """Return the error bound of 1 - y (w.x + b), relative to |w|.|x| + |b| + 1. width: the length of w."""
    return bound_rounding(2.0 * width + 12, (width + 6) * UNIT)


def start_exact(n_points: int) -> ExactLosses:
    """Return zero losses."""
    return ExactLosses(np.zeros((n_points, 2)), np.zeros(n_points))


def add_exact(totals: ExactLosses, rows: Rows, W: F64, biases: F64, class_costs: F64) -> None:
    """Add the losses of rows at the points W (K, d), biases (K,).

    class_costs (2,): the costs C_i of the classes 0 and 1.
    """
    costs, parts, share = read_costs(class_costs, rows), rounding.split_for_float32(W), 2.0 * bound_score(W.shape[1])
    _add_exact(split(rows.X), rows.codes, costs, parts, biases, share, totals.losses, totals.magnitudes)
    totals.n_rows += rows.n_rows


def compute_exact_scores(X: Matrix, W: F64) -> F64:
    """Return the scores X W' as pairs of numbers, (K, n, 2)."""
    high, low = rounding.split_for_float32(W)
    scores = np.empty((len(W), X.shape[0], 2))
    _fill_exact_scores(*split(X), high, low, scores)
    return scores


@register_jitable
def _score(values: F32, indices: I32, indptr: I64, i: int, u: F64, v: F64, bias: float) -> tuple[float, float, float]:
    """Return (u + v).x_i + b as a pair, and the sum of its terms' magnitudes.

    The products with u, and the products with v, which are smaller by 2^-28, are summed separately: added to the sum of
    the rounding errors, the products with v would lose too much.
    """
    total, lower, rest, size = bias, 0.0, 0.0, abs(bias)
    first, end = find_items(values, indptr, i)
    for e in range(first, end):
        j, x = read_item(values, indices, i, e)
        product = np.float64(x) * u[j]
        total, lost = add_two(total, product)
        lower, lost_too = add_two(lower, np.float64(x) * v[j])
        rest += lost + lost_too
        size += abs(product)
    total, lost = add_two(total, lower)
    return total, rest + lost, size


@njit(cache=True, nogil=True)
def _fill_exact_scores(values: F32, indices: I32, indptr: I64, high: F64, low: F64, scores: F64) -> None:
    for k in range(scores.shape[0]):
        for i in range(scores.shape[1]):
            total, rest, _ = _score(values, indices, indptr, i, high[k], low[k], 0.0)
            scores[k, i, 0], scores[k, i, 1] = add_two(total, rest)


@njit(cache=True, nogil=True)
def _add_exact(X: Split, y: I32, costs: F64, W: Parts, biases: F64, share: float, losses: F64, magnitudes: F64) -> None:
    """Add rows. share: a row has no loss if it is beyond its margin by this share of the magnitudes of its terms."""
    (values, indices, indptr), (high, low) = X, W
    for i in range(y.size):
        cost, sign = costs[i], 1.0 if y[i] == 1 else -1.0
        for k in range(biases.size if cost > 0.0 else 0):
            total, rest, size = _score(values, indices, indptr, i, high[k], low[k], biases[k])
            slack, lost = add_two(1.0, -sign * total)
            slack += lost - sign * rest
            if slack > -share * (size + 1.0):
                magnitudes[k] += cost * (size + 1.0)
            if slack > 0.0:
                losses[k, 0], losses[k, 1] = add_to_pair(losses[k, 0], losses[k, 1], cost * slack)


def add_exact_classes(totals: ExactLosses, rows: Rows, W: F64, biases: F64, class_costs: F64) -> None:
    """Add the losses of rows at the points W (p, K, d), biases (p, K). class_costs (K,): the costs C_i of the classes.

    A row whose class leads all other classes by the margin, allowing for rounding, has no loss. It does not contribute
    to the magnitudes, sum_i C_i (1 + |w_y|.|x_i| + max_k |w_k|.|x_i|).
    """
    share = 2.0 * bound_score(W.shape[2])
    for part in rows.cut(count_rows(W.shape[1])):
        costs, sizes_of = read_costs(class_costs, part), absolute(part.X)
        for p, (weights, bias) in enumerate(zip(W, biases, strict=True)):
            scores = compute_exact_scores(part.X, weights)
            sizes = compute_scores(sizes_of, np.abs(weights)) + np.abs(bias)
            found = _add_rows(scores, sizes, bias, part.codes, costs, share, *totals.losses[p], totals.magnitudes[p])
            totals.losses[p, 0], totals.losses[p, 1], totals.magnitudes[p] = found
    totals.n_rows += rows.n_rows


@njit(cache=True, nogil=True)
def _add_rows(
    scores: F64, sizes: F64, bias: F64, y: I32, costs: F64, share: float, loss: float, rest: float, magnitude: float
) -> tuple[float, float, float]:
    """Add rows to the loss, which is a pair, and to its magnitude.

    scores (K, n, 2): the scores without the bias. sizes (n, K): the magnitudes of the terms, including the bias.
    """
    for i in range(y.size if costs.size else 0):
        own, top, low, largest = y[i], -np.inf, 0.0, 0.0
        if costs[i] <= 0.0:
            continue
        start, lost = add_two(1.0, -scores[own, i, 0])
        end, lost_too = add_two(start, -bias[own])
        lost += lost_too - scores[own, i, 1]
        for k in range(bias.size):
            if k == own:
                continue
            total, missed = add_two(end, scores[k, i, 0])
            total, missed_too = add_two(total, bias[k])
            total, under = add_two(total, missed + missed_too + lost + scores[k, i, 1])
            if total > top or (total == top and under > low):
                top, low = total, under
            largest = max(largest, sizes[i, k])
        size = 1.0 + sizes[i, own] + largest
        if top > -share * size:
            magnitude += costs[i] * size
        if top > 0.0:
            loss, rest = add_to_pair(loss, rest, costs[i] * top)
            rest += costs[i] * low
    return loss, rest, magnitude


@dataclass
class ExactSums(RowTotals):
    """Sums over the rows of each class, as pairs: alpha_i x_i in d columns, and alpha_i in the last column.

    totals, rests (2, d + 1): the first and the second numbers of the pairs. n_rows: the number of rows.
    """

    totals: F64
    rests: F64
    n_rows: int = 0

    def __add__(self, other: ExactSums) -> ExactSums:
        return ExactSums(*add_pairs(self.totals, self.rests, other.totals, other.rests), self.n_rows + other.n_rows)

    def balance(self) -> tuple[float, F64]:
        """Return the smaller of the two sums of alpha, l, and the class-balanced combination of rows, v (d,).

            v = l / l_+ sum_{y_i > 0} alpha_i x_i - l / l_- sum_{y_i < 0} alpha_i x_i

        Both are rounded only once; intermediate results are exact fractions.
        """
        if not np.isfinite(self.totals + self.rests).all():
            return 0.0, np.zeros(self.totals.shape[1] - 1)
        (*down, sum_down), (*up, sum_up) = (
            [Fraction(total) + Fraction(rest) for total, rest in zip(*pairs, strict=True)]
            for pairs in zip(self.totals.tolist(), self.rests.tolist(), strict=True)
        )
        lighter = min(sum_up, sum_down)
        if lighter <= 0:
            return 0.0, np.zeros(len(up))
        p, q = lighter / sum_up, lighter / sum_down
        return float(lighter), np.array([float(p * a - q * b) for a, b in zip(up, down, strict=True)])

    @property
    def share(self) -> float:
        """The error bound of a sum of pairs, relative to the sum of the magnitudes of its terms."""
        return bound_rounding(4.0 * (self.n_rows + 8), 1.0) * UNIT


def start_exact_sums(n_features: int) -> ExactSums:
    """Return the sums of no queries at the points W (k, d)."""
    return ExactSums(np.zeros((2, n_features + 1)), np.zeros((2, n_features + 1)))


def add_exact_sums(sums: ExactSums, rows: Rows, alpha: F64) -> None:
    """Add rows. alpha (n,): the multipliers of the rows."""
    high, low = rounding.split_for_float32(alpha)
    _add_exact_sums(*split(rows.X), rows.codes, high, low, sums.totals, sums.rests)
    sums.n_rows += rows.n_rows


@njit(cache=True, nogil=True)
def _add_exact_sums(
    values: F32, indices: I32, indptr: I64, y: I32, high: F64, low: F64, totals: F64, rests: F64
) -> None:
    width = totals.shape[1] - 1
    for i in range(y.size):
        total, rest, a, b = totals[y[i]], rests[y[i]], high[i], low[i]
        first, end = find_items(values, indptr, i)
        for e in range(first, end):
            j, x = read_item(values, indices, i, e)
            _add_twice(total, rest, j, a, b, np.float64(x))
        _add_twice(total, rest, width, a, b, 1.0)


@register_jitable
def _add_twice(total: F64, rest: F64, j: int, a: float, b: float, x: float) -> None:
    """Add a x and b x to the pair (total_j, rest_j)."""
    total[j], rest[j] = add_to_pair(total[j], rest[j], a * x)
    total[j], rest[j] = add_to_pair(total[j], rest[j], b * x)


def _sort_rows(pairs: Pairs, *keys: F64) -> tuple[I64, tuple[I32, F64, I64, int]]:
    """Sort the rows of each query by the last key; return the order, and the pairs of the rows in this order."""
    query = np.repeat(np.arange(len(pairs.starts) - 1), np.diff(pairs.starts))
    order = np.lexsort((*keys, query))
    n_ranks = int(np.max(pairs.ranks, initial=0)) + 1
    return order, (pairs.ranks[order], pairs.weight[order], pairs.starts, n_ranks)


def measure_losses_exactly(points: Iterable[F64], pairs: Pairs, shorter: F64) -> F64:
    """Return for each of k points loss / K as a pair, the sum of its terms' magnitudes, and a test loss, (k, 4).

    points: the scores at each point, as pairs of numbers (n, 2). The test loss is 0 if there is a loss or if the share
    `shorter` (k,) is 1; otherwise it is the loss at scores reduced by this share.
    """
    found = np.zeros((len(shorter), 4))
    for sums, scores, by in zip(found, points, shorter.tolist(), strict=True):
        sums[:3] = _sum_pairs_exactly(scores, pairs)
        if sums[0] + sums[1] <= 0.0 and by < 1.0:
            sums[3] = _sum_pairs_exactly((1.0 - by) * scores, pairs)[0]
    return found


def _sum_pairs_exactly(scores: F64, pairs: Pairs) -> tuple[float, float, float]:
    """Return loss / K as a pair, and the sum of its terms' magnitudes."""
    order, in_order = _sort_rows(pairs, scores[:, 1], scores[:, 0])
    found: tuple[float, float, float] = _sum_pairs(scores[order], *in_order)
    return found


def round_sums(sums: F64, n_rows: int, cost: float) -> tuple[F64, F64]:
    """Return the losses (k,) of n rows and their error bounds, (k,).

    sums (k, 4): the results of `measure_losses_exactly`. cost: the cost K of a pair.
    """
    losses, terms = (sums[:, 0] + sums[:, 1]) * cost, 8.0 * (n_rows + 64.0)
    return losses, OWN_ROUNDINGS * UNIT * np.abs(losses) + bound_rounding(terms, 1.0) * UNIT * cost * sums[:, 2]


def count_pairs_exactly(scores: F64, pairs: Pairs) -> tuple[F64, F64]:
    """Return up and down, as defined in losses.pairs, at scores (n,) and margin 1, as pairs of numbers, (n, 2) each."""
    order, in_order = _sort_rows(pairs, scores)
    up, down = np.empty((len(scores), 2)), np.empty((len(scores), 2))
    up[order], down[order] = _count_pairs(scores[order], *in_order)
    return up, down


@register_jitable
def _is_within(s: F64, i: int, j: int) -> bool:
    """Return whether s_i - s_j < 1."""
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
    """Reset to zero only the entries that a row changed: this is cheaper if there are fewer rows than ranks."""
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
    """Return the loss as a pair of numbers, and the sum of its terms' magnitudes. Scores ascend within each query."""
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
    """Return up and down of rows whose scores ascend within each query."""
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


def pair_rows(rows: Rows, starts: I64) -> Pairs:
    """Return the pairs of whole queries; query k has the rows starts[k]:starts[k + 1]."""
    return Pairs(np.require(rows.codes, requirements="W"), np.sqrt(rows.weights), starts)


def add_exact_losses(W: F64, shorter: F64, sums: F64, rows: Rows, starts: I64) -> None:
    """Add the losses of whole queries."""
    pairs, scores = pair_rows(rows, starts), compute_exact_scores(rows.X, np.require(W, requirements="W"))
    sums[:] = combine_exact_losses(sums, measure_losses_exactly(scores, pairs, shorter))


def combine_exact_losses(left: F64, right: F64) -> F64:
    """Combine the sums of two groups of queries."""
    return np.column_stack((join_pairs(left[:, :2], right[:, :2]), left[:, 2:] + right[:, 2:]))
