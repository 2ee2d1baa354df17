"""The pairs of whole queries, and their losses in twice the precision (numeric.whole_queries, numeric.exact_pairs)."""

from __future__ import annotations

import numpy as np

from streamsvm.numeric.exact_losses import compute_exact_scores
from streamsvm.numeric.exact_pairs import sum_pairs_exactly
from streamsvm.numeric.pair_counts import Pairs
from streamsvm.numeric.rounding import add_pairs
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.numeric.writable import make_writable


def pair_rows(rows: Rows, starts: I64) -> Pairs:
    """Return the pairs of whole queries: query k is the rows starts[k]:starts[k + 1]."""
    assert rows.y is not None
    weight = np.ones(rows.n_rows) if rows.sample_weight is None else np.sqrt(rows.sample_weight)
    return Pairs(make_writable(rows.y), weight, starts)


def add_exact_losses(W: F64, shorter: F64, sums: F64, rows: Rows, starts: I64) -> None:
    """Add the losses of whole queries."""
    pairs, scores = pair_rows(rows, starts), compute_exact_scores(rows.X, make_writable(W))
    for k in range(len(W)):
        loss, rest, size = sum_pairs_exactly(scores[k], pairs)
        own = np.array([[loss, rest, size, 0.0]])
        sums[k : k + 1] = combine_exact_losses(sums[k : k + 1], own)
        if loss + rest <= 0.0 and shorter[k] < 1.0:
            sums[k, 3] += sum_pairs_exactly((1.0 - shorter[k]) * scores[k], pairs)[0]


def combine_exact_losses(left: F64, right: F64) -> F64:
    """Return the sums over the queries of both."""
    loss, rest = add_pairs(left[:, 0], left[:, 1], right[:, 0], right[:, 1])
    return np.column_stack((loss, rest, left[:, 2:] + right[:, 2:]))
