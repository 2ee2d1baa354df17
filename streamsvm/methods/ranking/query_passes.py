"""Passes over rows in queries: losses and cuts are summed up over whole queries, where the rows are read.

No pair leaves its query. So the loss of all pairs and its cut are sums over queries (ranking.pair_losses), as those of
classification are sums over rows, and nothing has an entry for each row (numeric.whole_queries).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from streamsvm.methods.ranking.pair_losses import measure_pairs
from streamsvm.numeric.exact_losses import compute_exact_scores
from streamsvm.numeric.exact_pairs import sum_pairs_exactly
from streamsvm.numeric.magnitudes import add_row_magnitudes
from streamsvm.numeric.pair_counts import Pairs, count_pairs
from streamsvm.numeric.rounding import add_pairs
from streamsvm.numeric.row_products import add_rows, compute_scores
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.numeric.whole_queries import Take, add_to_queries, combine_queries, start_queries
from streamsvm.numeric.writable import make_writable
from streamsvm.requests import Scan

Ends = tuple[int, int]
T = TypeVar("T")


@dataclass
class CutSums:
    """Sums over queries at the points W (k, d).

    cuts (k, d), offsets and losses (k,): of the cut at each point, and the loss there. magnitudes (2, d), of the first
    pass: sum_i most_i |x_ij| and max_i |x_ij|, where most_i is the largest size of row i's coef in any cut.
    """

    W: F64
    cuts: F64
    offsets: F64
    losses: F64
    magnitudes: F64


def start_cuts(W: F64) -> CutSums:
    """Return the sums over no queries."""
    return CutSums(W, np.zeros_like(W), np.zeros(len(W)), np.zeros(len(W)), np.zeros((2, W.shape[1])))


def combine_cuts(left: CutSums, right: CutSums) -> CutSums:
    """Return the sums over the queries of both."""
    largest = np.maximum(left.magnitudes[1], right.magnitudes[1])
    magnitudes = np.stack((left.magnitudes[0] + right.magnitudes[0], largest))
    return CutSums(left.W, left.cuts + right.cuts, left.offsets + right.offsets, left.losses + right.losses, magnitudes)


def pair_rows(rows: Rows, starts: I64) -> Pairs:
    """Return the pairs of whole queries: query k is the rows starts[k]:starts[k + 1]."""
    assert rows.y is not None
    weight = np.ones(rows.n_rows) if rows.sample_weight is None else np.sqrt(rows.sample_weight)
    return Pairs(make_writable(rows.y), weight, starts)


def sum_first_cut(ends: Ends, n_features: int, cost: float) -> Scan:
    """Return the pass that sums up the cut at w = 0, where every pair has a loss, and the magnitudes.

    ends: the first row of all, and the row after the last. cost: K.
    """
    return _scan(ends, partial(start_cuts, np.zeros((1, n_features))), partial(add_first_cut, cost), combine_cuts)


def add_first_cut(cost: float, sums: CutSums, rows: Rows, starts: I64) -> None:
    """Add the cut of whole queries at w = 0. No coef can be larger in any cut than K (up + down) is there."""
    up, down = count_pairs(np.zeros(rows.n_rows), pair_rows(rows, starts), 1.0)
    _add_cut(sums, 0, rows, cost * (up - down))
    loss = cost * float(np.sum(up))
    sums.offsets[0] += loss
    sums.losses[0] += loss
    add_row_magnitudes(sums.magnitudes[0], sums.magnitudes[1], rows.X, cost * (up + down))


def sum_cuts(ends: Ends, W: F64, cost: float) -> Scan:
    """Return the pass that sums up the losses and the cuts at the points W (k, d)."""
    return _scan(ends, partial(start_cuts, W), partial(add_cuts, cost), combine_cuts)


def add_cuts(cost: float, sums: CutSums, rows: Rows, starts: I64) -> None:
    """Add the losses and the cuts of whole queries."""
    pairs, scores = pair_rows(rows, starts), compute_scores(rows.X, make_writable(sums.W))
    for k in range(len(sums.W)):
        loss = measure_pairs(scores[:, k].copy(), pairs, cost)
        _add_cut(sums, k, rows, loss.coefs)
        sums.offsets[k] += loss.offset
        sums.losses[k] += loss.loss


def _add_cut(sums: CutSums, k: int, rows: Rows, coefs: F64) -> None:
    row = np.flatnonzero(coefs)
    add_rows(sums.cuts, rows.X, row, np.full(len(row), k), coefs[row])


def measure_exactly(ends: Ends, W: F64, shorter: F64) -> Scan:
    """Return the pass for the losses at the points W (k, d) in twice the precision, over K. Its answer is (k, 4).

    A point's row has the loss as a sum of two numbers, the sum of its terms' sizes, and the sum of the losses at scores
    that are shorter by `shorter` (k,), as far as queries have none at the scores themselves.
    """
    take = partial(add_exact_losses, W, shorter)
    return _scan(ends, partial(np.zeros, (len(W), 4)), take, combine_exact_losses)


def add_exact_losses(W: F64, shorter: F64, sums: F64, rows: Rows, starts: I64) -> None:
    """Add the losses of whole queries."""
    pairs, scores = pair_rows(rows, starts), compute_exact_scores(rows.X, make_writable(W))
    for k in range(len(W)):
        loss, rest, size = sum_pairs_exactly(scores[k], pairs)
        own = np.array([[loss, rest, size, 0.0]])
        sums[k : k + 1] = combine_exact_losses(sums[k : k + 1], own)
        if loss + rest == 0.0 and shorter[k] < 1.0:
            sums[k, 3] += sum_pairs_exactly((1.0 - shorter[k]) * scores[k], pairs)[0]


def combine_exact_losses(left: F64, right: F64) -> F64:
    """Return the sums over the queries of both."""
    loss, rest = add_pairs(left[:, 0], left[:, 1], right[:, 0], right[:, 1])
    return np.column_stack((loss, rest, left[:, 2:] + right[:, 2:]))


def _scan(ends: Ends, start: Callable[[], T], take: Take[T], combine: Callable[[T, T], T]) -> Scan:
    add, join = partial(add_to_queries, take, ends), partial(combine_queries, take, combine)
    return Scan(partial(start_queries, start), add, join)
