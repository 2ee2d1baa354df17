"""Passes over many rows of few ranks, whose totals are histograms of scores, and the cuts that follow from these.

A first pass finds the histograms of the scores at some points (numeric.score_histograms). They bound the loss there,
and say what each row adds to a cut by its rank and the bucket of its score (numeric.histogram_losses). A second pass
scores the rows again, and sums them up. It scores them at the same points together, so that it finds the same bits;
where it does not, as on a processor of another kind, weights of buckets differ, and the run ends with an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from streamsvm.methods.ranking.query_passes import CutSums, combine_cuts, start_cuts
from streamsvm.numeric.histogram_losses import HistogramCut
from streamsvm.numeric.histogram_sums import (
    RankTotals,
    add_histograms,
    combine_histogram_lists,
    read_ranks,
    start_histograms,
)
from streamsvm.numeric.magnitudes import add_row_magnitudes
from streamsvm.numeric.row_products import add_rows, compute_scores
from streamsvm.numeric.rows import F64, Rows
from streamsvm.numeric.writable import make_writable
from streamsvm.requests import Scan


@dataclass
class HistogramCuts:
    """Sums over rows: cuts (c, d), and for each cut the weights of the rows by page, bucket and rank."""

    cuts: F64
    seen: list[F64]


def sum_first_cut(ranks: RankTotals, n_features: int, cost: float) -> Scan:
    """Return the pass that sums up the cut at w = 0, where every pair has a loss, and the magnitudes."""
    add = partial(add_first_cut, cost * ranks.below, cost * ranks.above)
    return Scan(partial(start_cuts, np.zeros((1, n_features))), add, combine_cuts)


def add_first_cut(up: F64, down: F64, sums: CutSums, rows: Rows) -> None:
    """Add the cut at w = 0. No coef can be larger in any cut than v_i (up + down), of the row's rank, is there."""
    ranks, weight = read_ranks(rows)
    coefs = weight * (up - down)[ranks]
    add_rows(sums.cuts, rows.X, np.arange(rows.n_rows), np.zeros(rows.n_rows, np.int64), coefs)
    loss = float(np.sum(weight * up[ranks]))
    sums.offsets[0] += loss
    sums.losses[0] += loss
    add_row_magnitudes(sums.magnitudes[0], sums.magnitudes[1], rows.X, weight * (up + down)[ranks])


def sum_histograms(W: F64, n_ranks: int, exponents: Sequence[int]) -> Scan:
    """Return the pass for the histograms of the scores at the points W (k, d), whose answer is a list of them."""
    return Scan(partial(start_histograms, n_ranks, exponents), add_histograms, combine_histogram_lists, (W,))


def sum_histogram_cuts(W: F64, at: Sequence[int], cuts: Sequence[HistogramCut]) -> Scan:
    """Return the pass that sums up the rows of cuts at the points W[at]."""
    start = partial(start_histogram_cuts, W.shape[1], [cut.coefs.shape for cut in cuts])
    return Scan(start, partial(add_histogram_cuts, at, cuts), combine_histogram_cuts, (W,))


def start_histogram_cuts(n_features: int, shapes: Sequence[tuple[int, ...]]) -> HistogramCuts:
    """Return the cuts of no rows."""
    return HistogramCuts(np.zeros((len(shapes), n_features)), [np.zeros(shape) for shape in shapes])


def add_histogram_cuts(
    at: Sequence[int], cuts: Sequence[HistogramCut], sums: HistogramCuts, rows: Rows, W: F64
) -> None:
    """Add the rows of a tile to each cut."""
    (ranks, weight), scores = read_ranks(rows), compute_scores(rows.X, make_writable(W))
    for k, cut in enumerate(cuts):
        coefs = cut.find_coefs(np.ascontiguousarray(scores[:, at[k]]), ranks, weight, sums.seen[k])
        row = np.flatnonzero(coefs)
        add_rows(sums.cuts, rows.X, row, np.full(len(row), k), coefs[row])


def combine_histogram_cuts(left: HistogramCuts, right: HistogramCuts) -> HistogramCuts:
    """Return the cuts of the rows of both."""
    return HistogramCuts(left.cuts + right.cuts, [a + b for a, b in zip(left.seen, right.seen, strict=True)])
