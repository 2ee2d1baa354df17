"""Sums over many rows of few ranks: histograms of their scores at several points, and the weights of each rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, I32, Matrix, Rows
from streamsvm.numeric.score_histograms import (
    Histogram,
    add_scores,
    choose_exponent,
    combine_histograms,
    start_histogram,
)
from streamsvm.numeric.writable import make_writable


@dataclass(frozen=True)
class RankTotals:
    """The sum of the weights of all rows of each rank, (ranks,), from the lowest rank up."""

    of_rank: F64

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.of_rank)

    @property
    def weight(self) -> float:
        """The sum of the weights of all rows."""
        return float(np.sum(self.of_rank))

    @property
    def of_pairs(self) -> float:
        """The sum of the weights of all pairs."""
        return float(np.sum(self.of_rank * self.below))

    @property
    def below(self) -> F64:
        """The sum of the weights of all rows of lower ranks, for each rank."""
        return np.concatenate(([0.0], np.cumsum(self.of_rank[:-1])))  # differences of sums would lose small weights

    @property
    def above(self) -> F64:
        """The sum of the weights of all rows of higher ranks, for each rank."""
        return np.concatenate((np.cumsum(self.of_rank[:0:-1])[::-1], [0.0]))


def choose_exponents(X: Matrix, W: F64, n_ranks: int) -> list[int]:
    """Return the p of the histogram at each of the points W (k, d), by the rows X of a sample."""
    return [choose_exponent(scores, n_ranks) for scores in compute_scores(X, make_writable(W)).T]


def start_histograms(n_ranks: int, exponents: Sequence[int]) -> list[Histogram]:
    """Return the histograms of no rows."""
    return [start_histogram(n_ranks, exponent) for exponent in exponents]


def add_histograms(histograms: list[Histogram], rows: Rows, W: F64) -> None:
    """Add the scores of a tile to the histogram of each of the points W (k, d)."""
    ranks, weight = read_ranks(rows)
    for histogram, scores in zip(histograms, compute_scores(rows.X, make_writable(W)).T, strict=True):
        add_scores(histogram, np.ascontiguousarray(scores), ranks, weight)


def combine_histogram_lists(left: list[Histogram], right: list[Histogram]) -> list[Histogram]:
    """Return the histograms of the rows of both."""
    return [combine_histograms(*pair) for pair in zip(left, right, strict=True)]


def read_ranks(rows: Rows) -> tuple[I32, F64]:
    """Return the ranks and the weights of rows, as compiled code takes them."""
    assert rows.y is not None
    weight = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight
    return make_writable(rows.y), make_writable(weight)
