"""Rows with kinks in memory, and the lower bound that the rows near their kinks prove.

An interior-point method minimises P on the rows in memory, to which a linear term may be added:

    min  1/2 |w|^2 + c - g.w + sum_k C_k xi_k,     xi_k - s_k = u_k = sign_k (z_k.w - place_k),     s, xi >= 0

Each kink k of a row is a hinge of its own, with a multiplier a_k from 0 to C_k. At the minimiser
w = g - sum_k a_k sign_k z_k, a_k s_k = 0 and (C_k - a_k) xi_k = 0. The method follows the path on which these products
equal m C_k, while m falls to 0.

A pass at w_0 keeps the rows nearest to their kinks, and sums all other rows by the side of their kinks on which they
lie. For these rows, c and g are the sums of -a_k sign_k place_k and of -a_k sign_k z_k, with a_k = C_k if u_k > 0 at
w_0, and 0 otherwise. With these a_k, and with any a_k from 0 to C_k for the kept rows, a_k u_k is at most the loss of
each kink, so the minimum over the kept rows is a lower bound of P over all rows. It needs no further read. The idea is
that of one_read.solver; unlike there, P is not proved without another pass.

Source: Mehrotra 1992, SIAM Journal on Optimization 2 (predictor and corrector of the interior-point method).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve

from streamsvm.certificates.dual_points import Bound, add_dual_sums, bound_by_coefs, start_dual_sums
from streamsvm.losses.convex import KinkedLoss, Kinks
from streamsvm.numeric.equations import BOUNDARY_SHARE, factorise, find_length, finish_matrix
from streamsvm.numeric.rounding import SMALLEST, add_row_magnitudes, bound_rounding, sum_exactly
from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import F64, Rows, add_combination, score_rows
from streamsvm.passes import Scan
from streamsvm.solvers.cutting_plane import near_rows
from streamsvm.solvers.cutting_plane.cuts import RowSums
from streamsvm.solvers.cutting_plane.near_rows import Look, NearTotals
from streamsvm.solvers.cutting_plane.smoothed_newton import Linear
from streamsvm.solvers.newton.steps import TILE_ROWS, Curvature
from streamsvm.system import deadline, interrupts
from streamsvm.system.errors import TimeLimitError

LEAST_ROOM = 1e-15  # the least relative distance of a multiplier from its cost; rounding hides smaller ones
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


@dataclass
class Path:
    """An interior point: w (d+1,), and a, s and xi of the kinks, (k, n)."""

    w: F64
    a: F64
    s: F64
    xi: F64


def minimise_kinks(
    rows: Rows, kinks: Kinks, bias_feature: float, tol: float, most: int, start: F64, beyond: Linear
) -> tuple[F64, F64, float]:
    """Return the w (d+1,) with the lowest P and the a (k, n) with the highest D for rows in memory, and this P.

    The method stops at the relative gap tol, or after `most` steps if rounding keeps the gap above tol. start: the
    first w. beyond: the loss of all other rows as a linear term of P.
    """
    u = find_distances(rows, kinks, start, bias_feature)
    far = max(float(np.sum(kinks.costs * np.abs(u)) / np.sum(kinks.costs)), float(np.finfo(np.float64).tiny) ** 0.5)
    path = Path(start, kinks.costs / 2, np.maximum(-u, 0.0) + far, np.maximum(u, 0.0) + far)
    best, best_w, best_dual, best_a = float("inf"), start, 0.0, path.a
    for _ in range(most):
        interrupts.check()
        made_of = combine(rows, kinks.signs * path.a, bias_feature) - beyond.slope
        primal = float(path.w @ path.w) / 2 - float(beyond.slope @ path.w) + beyond.value
        primal += float(np.sum(kinks.costs * np.maximum(0.0, path.xi - path.s)))
        dual = beyond.value - float(made_of @ made_of) / 2 - float(np.sum(path.a * kinks.signs * kinks.places))
        if primal < best:
            best, best_w = primal, path.w
        linear = beyond.value - float(np.sum(drop_common(path.a, kinks) * kinks.signs * kinks.places))
        if (proved := linear - float(made_of @ made_of) / 2) > best_dual:
            best_dual, best_a = proved, path.a
        if not primal - dual > tol * primal or deadline.is_over():
            break
        _go_on(path, rows, kinks, path.w + made_of, bias_feature)
    return best_w, drop_common(best_a, kinks), best


def drop_common(a: F64, kinks: Kinks) -> F64:
    """Return feasible multipliers (k, n) that give the same w as a.

    If two kinks of a row have opposite signs, the part common to their multipliers is removed. It cancels in w, and
    only adds rounding errors to D.
    """
    limited = np.clip(a, 0.0, kinks.costs)
    return limited - np.where(np.sum(kinks.signs, axis=0) == 0.0, np.min(limited, axis=0), 0.0)


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


def _go_on(path: Path, rows: Rows, kinks: Kinks, residual: F64, bias_feature: float) -> None:
    """Make a step in place. The predictor aims at m = 0, and the corrector at an m estimated from the predictor."""
    room = np.maximum(kinks.costs - path.a, LEAST_ROOM * kinks.costs)
    with np.errstate(over="ignore"):  # The theta of a row whose cost is next to 0 is 0.
        theta = 1.0 / (path.xi / room + path.s / path.a)
    try:
        _, factor = factorise(finish_matrix(len(path.w), _curve, rows, np.sum(theta, axis=0), bias_feature))
    except TimeLimitError:
        return
    gap = float(np.sum(path.a * path.s) + np.sum(room * path.xi))
    if factor is None or not gap > 0.0:
        return

    def find_step(low: F64, high: F64) -> tuple[F64, F64, F64, F64]:
        """Return the changes of w, a, s and xi that add `low` to a s, and `high` to (C - a) xi."""
        pull = theta * (low / path.a - high / room)
        right = residual + combine(rows, kinks.signs * pull, bias_feature)
        dw = -cho_solve((factor, False), right)
        da = theta * kinks.signs * score_rows(rows.X, dw, bias_feature) + pull
        return dw, da, (low - path.s * da) / path.a, (high + path.xi * da) / room

    _, da, ds, dxi = find_step(-path.a * path.s, -room * path.xi)
    values = path.a, room, path.s, path.xi
    far = find_length(values, (da, -da, ds, dxi))
    left = float(np.sum((path.a + far * da) * (path.s + far * ds)) + np.sum((room - far * da) * (path.xi + far * dxi)))
    m = (left / gap) ** 3 * gap / (2.0 * float(np.sum(kinks.costs))) * kinks.costs
    dw, da, ds, dxi = find_step(m - path.a * path.s - da * ds, m - room * path.xi + da * dxi)
    far = BOUNDARY_SHARE * find_length(values, (da, -da, ds, dxi))
    path.w, path.a, path.s, path.xi = path.w + far * dw, path.a + far * da, path.s + far * ds, path.xi + far * dxi


def combine(rows: Rows, coefs: F64, bias_feature: float) -> F64:
    """Return the sum over all rows of x, each multiplied by the sum of the coefs (k, n) of the row's kinks, (d+1,)."""
    total = np.zeros(rows.X.shape[1] + 1)
    add_combination(total, rows.X, np.arange(rows.n_rows), np.sum(coefs, axis=0), bias_feature)
    return total


def find_distances(rows: Rows, kinks: Kinks, w: F64, bias_feature: float) -> F64:
    """Return the signed distances u of the kinks, (k, n)."""
    return kinks.signs * (score_rows(rows.X, w, bias_feature) - kinks.places)


def _curve(rows: Rows, weight: F64, bias_feature: float) -> F64:
    """Return I + sum_i weight_i z_i z_i'."""
    total = Curvature(rows.X.shape[1])
    for at in range(0, rows.n_rows, TILE_ROWS):
        deadline.check()
        tile = slice(at, at + TILE_ROWS)
        total.add(rows.slice(tile), weight[tile], bias_feature)
    matrix = total.finish()
    return matrix + np.eye(len(matrix))


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
