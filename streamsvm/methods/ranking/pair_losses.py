"""The hinge loss of all pairs on a segment of score vectors, and the cuts it gives there (see numeric.pair_counts).

    loss(s) = K sum over pairs v_i v_j max(0, 1 - (s_i - s_j)) = offset - coefs.s,   K: cost of a pair of weight 1
    coefs_i = K (up_i - down_i),   offset = K sum up_i:                              the cut at s is sum coefs_i x_i

The loss is convex in s. Its minimum on a segment is looked for with a sample of the queries (or of the rows), which
takes a hundredth of the time, its slope corrected by a constant: it is exact at the start of the segment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.numeric.pair_counts import Pairs, sweep_pairs
from streamsvm.numeric.rows import F64, I64

SAMPLE_ROWS = 1 << 13
LOOKED_AT, HALVINGS = 1 << 17, (10, 40)  # rows that the line search may look at in all; halvings that makes


@dataclass(frozen=True)
class PairLoss:
    """Loss and cut at some scores."""

    loss: float
    coefs: F64
    offset: float


@dataclass(frozen=True)
class Sample:
    """Some of the pairs, their rows, and the cost that makes them weigh as much as all."""

    pairs: Pairs
    rows: I64
    cost: float


def measure_pairs(scores: F64, pairs: Pairs, cost: float) -> PairLoss:
    """Evaluate the loss: O(n log n)."""
    order, up, down = sweep_pairs(scores, pairs, 1.0)
    offset, coefs = cost * float(np.sum(up)), np.empty(len(scores))
    coefs[order] = cost * (up - down)
    return PairLoss(offset - float(coefs @ scores), coefs, offset)


def draw_sample(pairs: Pairs, cost: float) -> Sample:
    """Keep every k-th query or row: some 8,192 rows; all where that would leave no pair."""
    sample, rows = pairs.thin(max(1, len(pairs.ranks) // SAMPLE_ROWS))
    total = sample.total
    if total == 0.0:
        return Sample(pairs, np.arange(len(pairs.ranks)), cost)
    return Sample(sample, rows, cost * pairs.total / total)


def find_step(sample: Sample, start: F64, end: F64, squares: F64, slope: float) -> float:
    """Return the step in [0, 1] from scores `start` to `end` where P is least, or just beyond it, by the sample.

    Beyond: where pairs begin to be active, a cut on this side would be one that is known already.

    squares (2,): d/dt of 1/2 |w|^2 at the step t is squares[0] + t squares[1]. slope: that of P at 0.
    """
    s, change = start[sample.rows], (end - start)[sample.rows]

    def find_slope(step: float) -> float:
        coefs = measure_pairs(s + step * change, sample.pairs, sample.cost).coefs
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
