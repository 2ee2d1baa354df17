"""A sample of the pairs of rows, and their loss at given scores.

The sample is that of cutting_plane.score_model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.losses.pairs import Pairs, sweep_pairs
from streamsvm.numeric.rows import F64
from streamsvm.solvers.cutting_plane.score_model import SEARCHED_ROWS, LossAt, Sample


def measure_pairs(scores: F64, pairs: Pairs, cost: float) -> LossAt:
    """Return the loss and the cut at scores (n,)."""
    order, up, down = sweep_pairs(scores, pairs, 1.0)
    offset, coefs = cost * float(np.sum(up)), np.empty(len(scores))
    coefs[order] = cost * (up - down)
    return LossAt(offset - float(coefs @ scores), coefs, offset)


@dataclass(frozen=True, kw_only=True)
class PairSample(Sample):
    """A sample of the pairs; its rows are the rows in these pairs. cost: the cost of a sampled pair of weight 1."""

    pairs: Pairs

    def measure(self, scores: F64) -> LossAt:
        """See Sample."""
        return measure_pairs(scores, self.pairs, self.cost)

    def thin(self) -> PairSample:
        """See Sample."""
        return draw_sample(self.pairs, self.cost, SEARCHED_ROWS)


def draw_sample(pairs: Pairs, cost: float, n_rows: int, is_shuffled: bool = False) -> PairSample:
    """Return a sample of about n_rows rows, or of all rows if there are fewer than twice as many (`Pairs.thin`)."""
    stride = len(pairs.ranks) // n_rows
    sample, rows = pairs.thin(stride, is_shuffled) if stride > 1 else (pairs, np.arange(len(pairs.ranks)))
    total = max(sample.total, float(np.finfo(float).tiny))
    return PairSample(cost * pairs.total / total, rows, is_whole=stride <= 1, pairs=sample)
