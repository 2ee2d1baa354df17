"""The sums over all rows that a pass of Newton's method computes, at one point and along a line to it.

    L(w) = sum_i l_i(f_i),   g = sum_i l_i'(f_i) x_i,   H = sum_i l_i''(f_i) x_i x_i',   f_i = w.x_i

x_i has the constant feature as its last entry, and l_i contains the costs. H is summed in two parts. The first takes
the least second derivative of each loss while w stays within a ball (newton.steps), and the second takes the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from streamsvm.losses.convex import SmoothLoss, has_kinks
from streamsvm.numeric.gram import GramSum
from streamsvm.numeric.products import add_rows, compute_scores
from streamsvm.numeric.rounding import SMALLEST, bound_rounding
from streamsvm.numeric.row_norms import RowNorm, add_sizes, measure_scaled_rows
from streamsvm.numeric.rows import F64, I32, CsrRows, Matrix, Rows, choose_features

STEPS = (0.01, 0.1, 0.4, 1.0)  # where the loss is evaluated: shares of the line to w
SCORE_ROUNDINGS = 32  # roundings of a score on the line and of its error bound, in addition to those of its d+1 terms
TILE_ROWS = 4096  # the rows in memory that are added at a time


@dataclass(frozen=True)
class Look:
    """The request of a pass: the loss, the ball, the steps on the line, and the features of H.

    loss: the loss of the rows. bias_feature: the value of the constant feature. norm and reach: the ball |u| <= reach
    of points w + A'u, where A is the matrix of the norm; no ball if reach is 0. steps: where the loss is evaluated, as
    shares of the line; the last one is 1. places (d,): the position of each feature in H, or -1 if H leaves it out;
    None if H has all features.
    """

    loss: SmoothLoss
    bias_feature: float
    norm: RowNorm
    reach: float = 0.0
    steps: tuple[float, ...] = STEPS
    places: I32 | None = None

    @property
    def n_bent(self) -> int | None:
        """The number of features in H; None for all."""
        return None if self.places is None else int(np.count_nonzero(self.places >= 0))


class Curvature:
    """The sum of h_i x_i x_i', where x_i has the constant feature as its last entry."""

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
        matrix = np.full((d + 1, d + 1), self.corner)
        matrix[:d, :d] = upper + np.triu(upper, 1).T
        matrix[:d, d] = matrix[d, :d] = self.column[0]
        return matrix


@dataclass
class Totals:
    """The sums of a pass. losses (k,): L at the steps of the line. gradient (d+1,), least, rest: g and H at its end.

    If the loss has kinks, these are the sums of its smoothing. excess (k,) and slack sum the fields of the rows'
    Smoothing (losses.convex), slack at the line's end; tail (d+1,) is the diagonal of sum tail_i x_i x_i' without the
    constant feature, and slopes is sum |l_i'|.

    The other fields bound rounding errors (newton.steps), given a bound e_i on the error of the score of row i.
    errors (k,): the error of the losses due to the e_i. steep: sum |l_i'| |x_i|, with the steepest slopes if there are
    kinks. moved: sum k_i e_i |x_i|, where k_i is the largest second derivative within e_i of the score. steep_in_ball
    and moved_in_ball: the same sums with |x_i| replaced by sum_j |A e_j| |x_ij| and by |A x_i|.
    """

    gradient: F64
    least: Curvature
    rest: Curvature
    losses: F64
    errors: F64
    excess: F64
    tail: F64
    slack: float = 0.0
    slopes: float = 0.0
    steep: float = 0.0
    moved: float = 0.0
    steep_in_ball: float = 0.0
    moved_in_ball: float = 0.0


def start_totals(n_features: int, n_steps: int = len(STEPS), n_bent: int | None = None) -> Totals:
    """Return the sums over no rows. n_bent: the number of features in H; None for all."""
    width, losses = n_features if n_bent is None else n_bent, np.zeros((3, n_steps))
    curvatures = Curvature(width), Curvature(width)
    gradient, tail = np.zeros((2, n_features + 1))
    return Totals(gradient, *curvatures, losses[0], errors=losses[1], excess=losses[2], tail=tail)


def add_totals(totals: Totals, rows: Rows, ends: F64, look: Look) -> None:
    """Add rows to the totals. ends (2, d+1): the start and the end of the line."""
    products = compute_scores(rows.X, ends[:, :-1]) if rows.scores is None else rows.scores
    first, last = (products + look.bias_feature * ends[:, -1]).T
    columns = look.norm.measure_columns() if look.reach > 0.0 else np.zeros(ends.shape[1])
    weights = np.stack((np.max(np.abs(ends), axis=0), columns))
    lengths, of_scores, of_norm = add_sizes(rows, weights, look.bias_feature)
    off = bound_rounding(ends.shape[1] + SCORE_ROUNDINGS, 1.0) * of_scores + SMALLEST
    for k, step in enumerate(look.steps):
        scores = last if k == len(look.steps) - 1 else first + step * (last - first)
        steep, slopes = _add_losses(totals, k, rows, scores, off, look.loss)
    _add_slopes(totals.gradient, rows, slopes, look.bias_feature)
    sharp = off * look.loss.bend_most(rows, last, off)
    least = bent = look.loss.bend(rows, last, np.zeros(rows.n_rows))
    totals.steep += float(steep @ lengths)
    totals.moved += float(sharp @ lengths)
    if look.reach > 0.0:
        measured = measure_scaled_rows(look.norm, rows, look.bias_feature, of_norm)
        totals.steep_in_ball += float(steep @ of_norm)
        totals.moved_in_ball += float(sharp @ measured)
        least = np.minimum(bent, look.loss.bend(rows, last, look.reach * measured + off))
    own = rows if look.places is None else Rows(rows.start, choose_features(rows.X, look.places))
    totals.least.add(own, least, look.bias_feature)
    totals.rest.add(own, bent - least, look.bias_feature)


def _add_losses(totals: Totals, k: int, rows: Rows, scores: F64, off: F64, loss: SmoothLoss) -> tuple[F64, F64]:
    """Add the losses of step k, and their error bounds; return the sizes of the slopes, and the slopes."""
    losses, slopes = loss.measure(rows, scores)
    totals.losses[k] += np.sum(losses)
    if has_kinks(loss):
        smoothing = loss.smooth(rows, scores, off)
        totals.excess[k] += np.sum(smoothing.excess)
        totals.errors[k] += float(smoothing.steepest @ off)
        if k == len(totals.losses) - 1:
            totals.slack += float(np.sum(smoothing.slack))
            totals.slopes += float(np.sum(np.abs(slopes)))
            _add_squares(totals.tail, rows, smoothing.tail)
        return smoothing.steepest, slopes
    steep = np.abs(slopes)
    totals.errors[k] += float(steep @ off) + float(loss.sharpest(rows) @ off**2)
    return steep, slopes


def _add_squares(total: F64, rows: Rows, weight: F64) -> None:
    """Add the squared features of the rows, each row times its weight."""
    X, every = rows.X, np.arange(rows.n_rows)
    squares: Matrix = CsrRows(X.data**2, X.indices, X.indptr, X.n_features) if isinstance(X, CsrRows) else X**2
    add_rows(total[None, :-1], squares, every, np.zeros_like(every), weight)


def _add_slopes(total: F64, rows: Rows, slopes: F64, bias_feature: float) -> None:
    """Add the rows, each times its slope."""
    used = np.flatnonzero(slopes)
    add_rows(total[None, :], rows.X, used, np.zeros_like(used), slopes[used])
    total[-1] += bias_feature * float(np.sum(slopes))


def combine_totals(left: Totals, right: Totals) -> Totals:
    """Return the sums over both groups of rows."""
    return Totals(**{one.name: getattr(left, one.name) + getattr(right, one.name) for one in fields(Totals)})


def sum_rows(rows: Rows, ends: F64, look: Look) -> Totals:
    """Return the sums over rows in memory."""
    totals = start_totals(rows.X.shape[1], len(look.steps), look.n_bent)
    for at in range(0, rows.n_rows, TILE_ROWS):
        add_totals(totals, rows.slice(slice(at, at + TILE_ROWS)), ends, look)
    return totals
