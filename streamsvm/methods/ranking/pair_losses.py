"""The hinge loss of all pairs of rows at given scores, its cut there, and a line search between two score vectors.

    loss(s) = K sum over pairs v_i v_j max(0, 1 - (s_i - s_j)) = offset - coefs.s
    coefs_i = K (up_i - down_i),   offset = K sum_i up_i,   cut at s: sum_i coefs_i x_i

s_i is the score of row i and v_i its weight; a pair is two rows i and j of one query, i of the higher rank; K is the
cost of a pair of weight 1; up and down are c+ and c- of Joachims 2006, Algorithm 2 (numeric.pair_counts). The loss is
convex in s. So its minimum on a segment is found by halving the segment by the sign of the slope. The slope is computed
on a sample of the queries, or of the rows of a single query, in a hundredth of the time. A constant is added to it that
makes it exact at the start of the segment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.numeric.pair_counts import SAMPLE_ROWS, Pairs, sweep_pairs
from streamsvm.numeric.rows import F64, I64

LOOKED_AT, HALVINGS = 1 << 17, (10, 40)  # rows that all halvings together may look at; least and most halvings


@dataclass(frozen=True)
class PairLoss:
    """The loss at some scores, and the coefs (n,) and the offset of the cut there."""

    loss: float
    coefs: F64
    offset: float


@dataclass(frozen=True)
class Sample:
    """Some of the pairs, the numbers of their rows, and the cost with which they weigh as much as all pairs."""

    pairs: Pairs
    rows: I64
    cost: float


def measure_pairs(scores: F64, pairs: Pairs, cost: float) -> PairLoss:
    """Return the loss and the cut at scores (n,), in O(n log n)."""
    order, up, down = sweep_pairs(scores, pairs, 1.0)
    offset, coefs = cost * float(np.sum(up)), np.empty(len(scores))
    coefs[order] = cost * (up - down)
    return PairLoss(offset - float(coefs @ scores), coefs, offset)


def draw_sample(pairs: Pairs, cost: float) -> Sample:
    """Return a sample of every k-th query, or row of a single query, with about SAMPLE_ROWS rows.

    If no pair is left in it, return all rows.
    """
    sample, rows = pairs.thin(max(1, len(pairs.ranks) // SAMPLE_ROWS))
    total = sample.total
    if total == 0.0:
        return Sample(pairs, np.arange(len(pairs.ranks)), cost)
    return Sample(sample, rows, cost * pairs.total / total)


def find_step(sample: Sample, start: F64, change: F64, squares: F64, slope: float) -> float:
    """Return the step in [0, 1] at which P is least according to the sample, whose scores are start + step change.

    The step is the end of the last interval, just beyond the minimum. At the minimum some pairs begin to be active, and
    a cut before it would be one that is known already.

    squares (2,): the slope of 1/2 |w|^2 at the step t is squares[0] + t squares[1]; slope: the exact slope of P at 0.
    """

    def find_slope(step: float) -> float:
        coefs = measure_pairs(start + step * change, sample.pairs, sample.cost).coefs
        return float(squares[0] + step * squares[1] - coefs @ change)

    correction = slope - find_slope(0.0)
    if slope >= 0.0:
        return 0.0
    low, high = 0.0, 1.0
    if find_slope(1.0) + correction <= 0.0:
        return 1.0
    for _ in range(int(np.clip(LOOKED_AT // len(sample.rows), *HALVINGS))):
        middle = (low + high) / 2
        if find_slope(middle) + correction > 0.0:
            high = middle
        else:
            low = middle
    return high
