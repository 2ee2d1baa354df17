"""The lower bound that multipliers of kinks prove, and that of the rows near their kinks (cutting_plane.kink_path).

A pass at w_0 keeps the rows nearest to their kinks, and sums all other rows by the side of their kinks on which they
lie. For these rows, c and g are the sums of -a_k sign_k place_k and of -a_k sign_k z_k, with a_k = C_k if u_k > 0 at
w_0, and 0 otherwise. With these a_k, and with any a_k from 0 to C_k for the kept rows, a_k u_k is at most the loss of
each kink, so the minimum over the kept rows is a lower bound of P over all rows. It needs no further read. The idea is
that of one_read.solver; unlike there, P is not proved without another pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamsvm.certificates.dual_points import Bound, add_dual_sums, bound_by_coefs, start_dual_sums
from streamsvm.losses.convex import KinkedLoss, Kinks
from streamsvm.numeric.gram import TILE_ROWS
from streamsvm.numeric.rounding import SMALLEST, add_row_magnitudes, bound_rounding, sum_exactly
from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import F64, Rows
from streamsvm.passes import Scan
from streamsvm.solvers.cutting_plane import near_rows
from streamsvm.solvers.cutting_plane.cuts import RowSums
from streamsvm.solvers.cutting_plane.kink_path import combine
from streamsvm.solvers.cutting_plane.near_rows import Look, NearTotals
from streamsvm.solvers.cutting_plane.smoothed_newton import Linear

GROUP_SHARE = 2  # a group keeps this many times its share of the resident rows, as it may have more near rows
SUM_ROUNDINGS = 16  # roundings of a term of a sum over rows, in addition to its additions


@dataclass(frozen=True)
class Beyond:
    """The sums over the rows that are not in memory, as a linear term, and bounds of their rounding errors.

    slope_error (d+1,), value_error: the errors of g and of c.
    """

    linear: Linear
    slope_error: F64
    value_error: float


def bound_by_kinks(rows: Rows, kinks: Kinks, a: F64, bias_feature: float, beyond: Beyond | None = None) -> Bound:
    """Return the lower bound proved by multipliers a (k, n) between 0 and the costs, with its rounding.

    D(a) = c - sum_k a_k sign_k place_k - 1/2 |g - sum_k a_k sign_k z_k|^2

    beyond: the sums c and g over all other rows, if there are any.
    """
    found, terms = start_dual_sums(rows.X.shape[1]), -a * kinks.signs * kinks.places
    if not np.isfinite(terms).all():
        return Bound(0.0, 0.0)
    rows = replace(rows, y=np.zeros(rows.n_rows, np.int32))
    for at in range(0, rows.n_rows, TILE_ROWS):
        tile = slice(at, at + TILE_ROWS)
        for coefs in (kinks.signs * a)[:, tile]:
            add_dual_sums(found, rows.slice(tile), coefs, np.abs(coefs))
    total, rounding = sum_exactly(*terms), bound_rounding(4, sum_exactly(*np.abs(terms)))
    if beyond is None:
        return bound_by_coefs(found, max(0.0, total), rounding, 0.0, bias_feature)
    total, rounding = total + beyond.linear.value, rounding + beyond.value_error
    others = -beyond.linear.slope, beyond.slope_error
    return bound_by_coefs(found, max(0.0, total), rounding, 0.0, bias_feature, others)


def scan_near_kinks(loss: KinkedLoss, w: F64, norm: RowNorm, most: int, n_rows: int, bias_feature: float) -> Scan:
    """Return the pass that keeps up to `most` rows near their kinks at w."""
    share, squares = min(1.0, GROUP_SHARE * most / n_rows), norm.bound_by_squares()
    look = Look(w, norm, squares, False, share, most, 0.0, np.empty(0), bias_feature, 0, place=0.0)
    return near_rows.scan_near(look, add_near_kinks, (loss,))


def add_near_kinks(totals: NearTotals, rows: Rows, look: Look, loss: KinkedLoss) -> None:
    """Add a tile of rows to the totals of its group, whose `others` are the sums of C_i |x_ij|."""
    scores = near_rows.find_margins(look, rows, np.ones(rows.n_rows))
    kinks = loss.find_kinks(rows)
    u, costs = kinks.signs * (scores - kinks.places), np.max(kinks.costs, axis=0)
    totals.sums += _sum_active(rows, kinks, u, look.bias_feature)
    magnitudes = totals.others.vectors
    add_row_magnitudes(magnitudes, np.zeros(len(look.w)), rows.X, costs)
    magnitudes[-1] += abs(look.bias_feature) * float(np.sum(costs))
    totals.n_rows += rows.n_rows
    near_rows.keep_near(totals, rows, look, np.min(np.abs(u), axis=0), scores, costs)


def _sum_active(rows: Rows, kinks: Kinks, u: F64, bias_feature: float) -> RowSums:
    """Return the sums of -C_k sign_k z_k and of -C_k sign_k place_k over the kinks with u_k > 0."""
    active = kinks.costs * kinks.signs * (u > 0.0)
    terms = active * kinks.places
    return RowSums(-combine(rows, active, bias_feature), -float(np.sum(terms)), float(np.sum(np.abs(terms))))


def find_beyond(totals: NearTotals, look: Look, loss: KinkedLoss) -> tuple[Rows, Beyond]:
    """Return the kept rows, and the sums over all other rows.

    The sums over the kept rows are subtracted from the sums over all rows. The kept rows are on the same side of their
    kinks as in the pass, because their scores are those of the pass. A row takes part in both sums at most once.
    """
    kept, _ = near_rows.gather(totals, look)
    kinks = loss.find_kinks(kept.rows)
    own = _sum_active(kept.rows, kinks, kinks.signs * (kept.margins - kinks.places), look.bias_feature)
    left, n = totals.sums - own, totals.n_rows + kept.rows.n_rows + SUM_ROUNDINGS
    share = bound_rounding(n, 1.0)
    slope_error = 2.0 * share * (1.0 + share) * totals.others.vectors + n * SMALLEST
    return kept.rows, Beyond(Linear(left.vectors, left.offsets), slope_error, share * (1.0 + share) * left.sizes)
