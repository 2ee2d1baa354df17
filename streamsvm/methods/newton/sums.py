"""The sums over all rows that a pass of Newton's method makes, at one point and along a line to it.

    L(w) = sum_i l_i(f_i),   g = sum_i l_i'(f_i) x_i,   H = sum_i l_i''(f_i) x_i x_i',   f_i = w.x_i

x_i has the constant feature as its last entry, and l_i contains the costs. H is summed in two parts. The first has the
least second derivative of each loss while w stays within a ball (newton.bounds), and the second has the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.numeric.gram import GramSum
from streamsvm.numeric.kernels import compute_squares
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.row_norms import RowNorm, measure_rows
from streamsvm.numeric.rows import F64, Rows, add_rows, compute_scores
from streamsvm.numeric.smooth_loss import KinkedLoss, SmoothLoss

STEPS = (0.01, 0.1, 0.4, 1.0)  # where the loss is found: shares of the line to w
TILE_ROWS = 4096  # rows in memory that are added at a time


@dataclass(frozen=True)
class Look:
    """What a pass looks for.

    loss: of the rows; bias_feature: the value of the constant feature; norm and reach: the ball |u| <= reach of points
    w + A'u, where A is the matrix of the norm; with a reach of 0 there is none; steps: where the loss is found on the
    line, as shares of it, of which the last is 1.
    """

    loss: SmoothLoss
    bias_feature: float
    norm: RowNorm
    reach: float = 0.0
    steps: tuple[float, ...] = STEPS


class Curvature:
    """The sum of h_i x_i x_i' with the constant feature: products of features, and the last column."""

    def __init__(self, n_features: int) -> None:
        self.gram, self.column, self.corner = GramSum(n_features), np.zeros((1, n_features)), 0.0

    def add(self, rows: Rows, weight: F64, bias_feature: float) -> None:
        """Add rows with their weights h_i, which must not be negative."""
        used = np.flatnonzero(weight > 0.0)
        if len(used):
            self.gram.add(rows.X, used, weight[used])
            add_rows(self.column, rows.X, used, np.zeros_like(used), bias_feature * weight[used])
            self.corner += bias_feature**2 * float(np.sum(weight))

    def __add__(self, other: Curvature) -> Curvature:
        """Return the sum as a new object."""
        both = Curvature(self.column.shape[1])
        both.gram, both.column = self.gram + other.gram, self.column + other.column
        both.corner = self.corner + other.corner
        return both

    def finish(self) -> F64:
        """Return the whole matrix, (d+1, d+1)."""
        upper, d = np.triu(self.gram.finish()), self.column.shape[1]
        matrix = np.empty((d + 1, d + 1))
        matrix[:d, :d] = upper + np.triu(upper, 1).T
        matrix[:d, d] = matrix[d, :d] = self.column[0]
        matrix[d, d] = self.corner
        return matrix


@dataclass
class Totals:
    """The sums. losses (k,): L at the steps of the line; gradient (d+1,): g at its end, and the two parts of H there.

    Of a loss with kinks these are the sums of its smoothing; excess (k,) and slack are sums of what
    smooth_loss.Smoothing has, the latter at the line's end, and slopes is sum |l_i'|. steep, sharp: sum |l_i'| |x_i|
    (with the steepest slopes, if there are kinks) and sum max l_i'' |x_i|^2, by which rounding is bounded.
    """

    gradient: F64
    least: Curvature
    rest: Curvature
    losses: F64
    excess: F64
    slack: float = 0.0
    slopes: float = 0.0
    steep: float = 0.0
    sharp: float = 0.0


def start_totals(n_features: int, n_steps: int = len(STEPS)) -> Totals:
    """Return the sums over no rows."""
    gradient, losses, excess = np.zeros(n_features + 1), np.zeros(n_steps), np.zeros(n_steps)
    return Totals(gradient, Curvature(n_features), Curvature(n_features), losses, excess)


def add_totals(totals: Totals, rows: Rows, ends: F64, look: Look) -> None:
    """Add rows. ends (2, d+1): the line's start and its end."""
    products = compute_scores(rows.X, ends[:, :-1]) if rows.scores is None else rows.scores
    first, last = (products + look.bias_feature * ends[:, -1]).T
    for k, step in enumerate(look.steps):
        scores = first + step * (last - first) if step < 1.0 else last
        losses, slopes = look.loss.measure(rows, scores)
        totals.losses[k] += np.sum(losses)
        if isinstance(look.loss, KinkedLoss):
            smoothing = look.loss.smooth(rows, scores)
            totals.excess[k] += np.sum(smoothing.excess)
    steep = np.abs(slopes)
    if isinstance(look.loss, KinkedLoss):
        totals.slack += float(np.sum(smoothing.slack))
        totals.slopes += float(np.sum(steep))
        steep = look.loss.steepest(rows)
    _add_slopes(totals.gradient, rows, slopes, look.bias_feature)
    lengths = np.sqrt(compute_squares(rows.X, np.float64) + look.bias_feature**2)
    totals.steep += float(steep @ lengths)
    rounded = bound_rounding(ends.shape[1] + 8, float(np.linalg.norm(ends[1]))) * lengths
    totals.sharp += float(look.loss.sharpest(rows, last, rounded) @ lengths**2)
    bent = look.loss.bend(rows, last, np.zeros(rows.n_rows))
    least = bent
    if look.reach > 0.0:
        moved = look.reach * measure_rows(look.norm, rows, look.bias_feature)[0]
        least = np.minimum(bent, look.loss.bend(rows, last, moved + rounded))
    totals.least.add(rows, least, look.bias_feature)
    totals.rest.add(rows, bent - least, look.bias_feature)


def _add_slopes(total: F64, rows: Rows, slopes: F64, bias_feature: float) -> None:
    """Add the rows, each times its slope."""
    used = np.flatnonzero(slopes)
    add_rows(total[None, :], rows.X, used, np.zeros_like(used), slopes[used])
    total[-1] += bias_feature * float(np.sum(slopes))


def combine_totals(left: Totals, right: Totals) -> Totals:
    """Return the sums over the rows of both."""
    return Totals(
        gradient=left.gradient + right.gradient,
        least=left.least + right.least,
        rest=left.rest + right.rest,
        losses=left.losses + right.losses,
        excess=left.excess + right.excess,
        slack=left.slack + right.slack,
        slopes=left.slopes + right.slopes,
        steep=left.steep + right.steep,
        sharp=left.sharp + right.sharp,
    )


def sum_rows(rows: Rows, ends: F64, look: Look) -> Totals:
    """Return the sums over rows in memory."""
    totals = start_totals(rows.X.shape[1], len(look.steps))
    for at in range(0, rows.n_rows, TILE_ROWS):
        add_totals(totals, rows.slice(slice(at, at + TILE_ROWS)), ends, look)
    return totals
