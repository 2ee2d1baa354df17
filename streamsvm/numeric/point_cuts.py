"""The hinge loss of rows at several weight vectors, and the cut at each: Joachims 2006, Algorithm 1, at many points.

loss(w) = sum_i C_i max(0, 1 - y_i w.x_i),   cut at w: sum_i C_i c_i y_i x_i and sum_i C_i c_i,  c_i = [y_i w.x_i < 1]
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F32, F64, Rows, add_rows, compute_scores

MARGINS = 2  # points of which the rows' margins are returned


@dataclass
class PointTotals:
    """By point: losses (k,), costs (k,), gradients (k, d+1); tiles: first row, margins at the first points."""

    losses: F64
    costs: F64
    gradients: F64
    tiles: list[tuple[int, F32]] = field(default_factory=list)


def start_points(k: int, width: int) -> PointTotals:
    """Return the totals of no rows."""
    return PointTotals(np.zeros(k), np.zeros(k), np.zeros((k, width)))


def add_points(totals: PointTotals, rows: Rows, W: F64, class_costs: F64, bias_feature: float) -> None:
    """Add rows; W (k, d+1), the last column the weight of the constant feature."""
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    margins = y[:, None] * (compute_scores(rows.X, np.ascontiguousarray(W[:, :-1])) + W[:, -1] * bias_feature)
    active = (margins < 1.0) & (costs > 0.0)[:, None]
    totals.losses += np.sum(np.where(active, costs[:, None] * (1.0 - margins), 0.0), axis=0)
    totals.costs += costs @ active
    totals.gradients[:, -1] += bias_feature * ((costs * y) @ active)
    point, row = np.nonzero(active.T)
    add_rows(totals.gradients, rows.X, row, point, (costs * y)[row])
    totals.tiles.append((rows.start, margins[:, :MARGINS].astype(np.float32)))


def combine_points(left: PointTotals, right: PointTotals) -> PointTotals:
    """Return the sum."""
    return PointTotals(
        left.losses + right.losses, left.costs + right.costs, left.gradients + right.gradients, left.tiles + right.tiles
    )
