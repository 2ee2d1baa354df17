"""A pass along a line of weight matrices: the loss at many steps of it, and cuts at a few."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from streamsvm.numeric.class_losses import add_line_losses, add_multiples, find_rivals, read_costs, score_classes
from streamsvm.numeric.rows import F64, Rows
from streamsvm.requests import Scan


@dataclass
class LineTotals:
    """Sums over rows: losses (T,) at the steps of a line, and the cuts (c, K, d+1) at some of them, offsets (c,)."""

    losses: F64
    cuts: F64
    offsets: F64


def look_along(ends: F64, steps: F64, cut_steps: F64, class_costs: F64, bias_feature: float) -> Scan:
    """Return the scan along the line between the ends (2, K, d+1). class_costs: (K,)."""
    start = partial(start_line, len(steps), len(cut_steps), *ends.shape[1:])
    return Scan(start, add_line, combine_lines, (ends, steps, cut_steps, class_costs, bias_feature))


def find_ends(best: F64, other: F64, n_classes: int) -> F64:
    """Return the ends of a line, (2, K (d+1)), given the best point so far and the other end.

    Two classes have w_1 = -w_2, so that a model may keep their difference alone. The best point has it already.
    """
    if n_classes == 2:
        first, second = other.reshape(2, -1)
        half = (second - first) / 2.0
        other = np.concatenate((-half, half))
    return np.stack((best, other))


def start_line(n_steps: int, n_cuts: int, n_classes: int, width: int) -> LineTotals:
    """Return the totals of no rows."""
    return LineTotals(np.zeros(n_steps), np.zeros((n_cuts, n_classes, width)), np.zeros(n_cuts))


def add_line(
    totals: LineTotals, rows: Rows, ends: F64, steps: F64, cut_steps: F64, class_costs: F64, bias_feature: float
) -> None:
    """Add the losses and cuts of rows."""
    assert rows.y is not None
    costs = read_costs(class_costs, rows)
    first, last = (score_classes(rows, W, bias_feature) for W in ends)
    add_line_losses(first, last, rows.y, costs, steps, totals.losses)
    for k, step in enumerate(cut_steps.tolist()):
        rivals = find_rivals(first, last, rows.y, step)
        used = np.flatnonzero((rivals >= 0) & (costs > 0.0))
        classes = np.concatenate((rows.y[used].astype(np.int64), rivals[used]))
        coefs = np.concatenate((costs[used], -costs[used]))
        add_multiples(totals.cuts[k], rows, np.concatenate((used, used)), classes, coefs, bias_feature)
        totals.offsets[k] += np.sum(costs[used])


def combine_lines(left: LineTotals, right: LineTotals) -> LineTotals:
    """Return the totals of the rows of both."""
    return LineTotals(left.losses + right.losses, left.cuts + right.cuts, left.offsets + right.offsets)


def totals_bytes(n_steps: int, n_cuts: int, width: int) -> int:
    """Return the bytes of the totals; width: of the flat weight matrix."""
    return 8 * (n_steps + n_cuts * (width + 1))
