"""Passes over rows in queries: losses and cuts are summed up over whole queries, where the rows are read.

No pair leaves its query. So the loss of all pairs and its cut are sums over queries (ranking.pair_losses), as those of
classification are sums over rows, and nothing has an entry for each row (numeric.whole_queries).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from streamsvm.methods.ranking.pair_losses import measure_pairs
from streamsvm.numeric.magnitudes import add_row_magnitudes
from streamsvm.numeric.pair_counts import count_pairs
from streamsvm.numeric.query_losses import add_exact_losses, combine_exact_losses, pair_rows
from streamsvm.numeric.row_products import add_rows, compute_scores
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.numeric.whole_queries import sum_queries
from streamsvm.numeric.writable import make_writable
from streamsvm.requests import Scan

Ends = tuple[int, int]


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


def sum_first_cut(ends: Ends, n_features: int, cost: float) -> Scan:
    """Return the pass that sums up the cut at w = 0, where every pair has a loss, and the magnitudes.

    ends: the first row of all, and the row after the last. cost: K.
    """
    start = partial(start_cuts, np.zeros((1, n_features)))
    return Scan(*sum_queries(ends, start, partial(add_first_cut, cost), combine_cuts))


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
    return Scan(*sum_queries(ends, partial(start_cuts, W), partial(add_query_cuts, cost), combine_cuts))


def add_query_cuts(cost: float, sums: CutSums, rows: Rows, starts: I64) -> None:
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
    return Scan(*sum_queries(ends, partial(np.zeros, (len(W), 4)), take, combine_exact_losses))
