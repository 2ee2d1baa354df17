"""The duality gap where sums of multipliers are fixed: one class, and nu-SVC. It needs a and the sums f of all rows.

The problem of one class is that of Schoelkopf et al. 2001, eqs. (3)-(11), times (nu n)^2, as in LIBSVM:

    min Q(a) = 1/2 |w(a)|^2,   0 <= a_i <= C_i,   sum_i a_i = N,      f_i = sum_j a_j k(x_i, x_j),   N = nu sum_i C_i

Its bound is geometric. For any w and any rho, let M = N rho - sum_i C_i max(0, rho - f_i). Since M <= w.w(a) for all
feasible a, every Q(a) is at least

    M^2 / (2 |w|^2)      if M > 0,     which is the greatest -P(t w, t rho) over t,   P = 1/2 |w|^2 - M

The rho that maximises M is a quantile of the scores f_i, in which row i counts C_i. Both numbers are positive, and
equal at the optimum. Multipliers that lack l = N - sum_i a_i of their sum become feasible if others rise by as much,
and then |w| grows by no more than |l| max sqrt(k_ii). Where l is rounding alone, that would be far too much if rows are
of very different lengths. So then the multipliers that change are chosen, by d_i with sum_i d_i = l: those of the
lowest scores rise, or, if l < 0, those of the highest scores fall. All d_i have one sign, so that

    Q(a + d) <= Q(a) + sum_i d_i f_i + 1/2 l^2 max k_ii

nu-SVC (Schoelkopf, Smola, Williamson & Bartlett 2000) has two such sums, N / 2 on either side y_i:

    min Q(a) = 1/2 |w(a)|^2,   0 <= a_i <= C_i,   sum_i a_i = N,   sum_i y_i a_i = 0,      w(a) = sum_i a_i y_i phi(x_i)

There the scores of a side are g_i = y_i f_i, and each side has a rho of its own, so that M is the sum of both sides' M,
and all else is the same. With r the mean of the two rho, and b half of their difference, the model is (w.phi(x) + b) /
r, as in LIBSVM, and with its scores s_i

    M = r (N - sum_i C_i max(0, 1 - y_i s_i))

For a kernel that is not positive semidefinite there is no bound, but |w|^2 - M is a sum of one share for each row, none
of which is negative, and each of which is zero if the row's condition holds; 1/2 |w|^2 less that sum takes the place of
the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamsvm.numeric.certificates import Certificate, Proof, find_best_bias
from streamsvm.numeric.rounding import UNIT, sum_exactly
from streamsvm.numeric.rows import F64, I64

# The model's offset is lower than rho by this share of it, so that rows on the boundary (0 < a_i < C_i) are of the
# class however their scores are rounded. The bound is that of rho itself.
BOUNDARY_SHARE = 1e-9
LEAST_OFFSET = 1e-300  # of nu-SVC, by which multipliers can be divided
FULL_SHARE = 1e-9  # a sum that lacks no more than this share of N is full, but for rounding


def find_offset(costs: F64, f: F64, total: float) -> float:
    """Return the middle of all rho that maximise total rho - sum_i C_i max(0, rho - f_i)."""
    return -find_best_bias(np.ones(len(f)), costs, f, np.zeros(len(f)), total)


@dataclass(frozen=True)
class FixedSum:
    """The rows whose multipliers have a sum, by their numbers, and the sum."""

    rows: I64
    total: float

    def find_offset(self, costs: F64, g: F64) -> float:
        """Return the best rho of these rows; see `find_offset`."""
        return find_offset(costs[self.rows], g[self.rows], self.total)


def spread(sums: Sequence[FixedSum], values: Sequence[float], n: int) -> F64:
    """Return the value of each row's sum, (n,)."""
    spread_out = np.zeros(n)
    for one, value in zip(sums, values, strict=True):
        spread_out[one.rows] = value
    return spread_out


def certify_sums(
    costs: F64, alpha: F64, g: F64, sums: Sequence[FixedSum], offsets: Sequence[float] | None = None
) -> Certificate:
    """Evaluate Q and its bound, without rounding. g: y_i f_i, (n,). Without offsets each rho is the best one."""
    rhos = [one.find_offset(costs, g) for one in sums] if offsets is None else offsets
    rho = spread(sums, rhos, len(g))
    losses, square = costs * np.maximum(rho - g, 0.0), float(alpha @ g)
    margin = math.fsum(one.total * each for one, each in zip(sums, rhos, strict=True)) - float(np.sum(losses))
    bound = _bound_optimum(margin, square) if square >= 0.0 else margin - square / 2
    return Certificate(square / 2, bound, -rhos[0], losses - alpha * (rho - g))


def prove_sums(
    costs: F64, alpha: F64, g: F64, sums: Sequence[FixedSum], errors: F64, largest: float, is_definite: bool
) -> Proof:
    """Return the proof of Q (`objective`) and of its bound (`dual`); see `numeric.certificates.prove`."""
    rhos = [one.find_offset(costs, g) for one in sums]
    rho = spread(sums, rhos, len(g))
    slack, own = rho - g, 1.25 * errors + 4 * UNIT * (np.abs(g) + np.abs(rho))
    losing, support = np.flatnonzero((slack + own > 0.0) & (costs > 0.0)), np.flatnonzero(alpha)
    loss = sum_exactly(costs[losing] * np.maximum(slack[losing], 0.0))
    parts = [one.total * each for one, each in zip(sums, rhos, strict=True)]
    margin = math.fsum(parts) - loss
    margin_error = float(np.sum(costs[losing] * np.minimum(own, slack + own)[losing]))
    margin_error = 1.01 * margin_error + 4 * UNIT * (math.fsum(map(abs, parts)) + loss)
    a, scores = alpha[support], g[support]
    square = sum_exactly(a * scores)
    square_error = 1.01 * float(a @ (errors[support] + 2 * UNIT * np.abs(scores))) + 2 * UNIT * abs(square)
    square = max(square, 0.0) if is_definite else square
    added, added_error, left = _complete(costs, alpha, g, sums, errors, largest)
    value = max(square / 2 + added, 0.0) if is_definite else square / 2 + added
    objective, value_error = _bound_longer(value, left), square_error / 2 + added_error
    objective_error = _bound_longer(max(value, 0.0) + value_error, left) - _bound_longer(max(value, 0.0), left)
    objective_error = 1.01 * objective_error + 8 * UNIT * (abs(objective) + abs(added))
    if is_definite:
        dual = _bound_optimum(margin, square)
        dual_error = dual - (1.0 - 8 * UNIT) * _bound_optimum(margin - margin_error, square + square_error)
    else:
        dual, dual_error = margin - square / 2, margin_error + square_error / 2 + 4 * UNIT * (abs(margin) + abs(square))
    bias, stretch = _find_model(rhos)
    return Proof(objective, objective_error, dual, dual_error, bias, stretch, abs(objective))


def _find_model(rhos: Sequence[float]) -> tuple[float, float]:
    """Return the model's bias, and the factor of its multipliers, from the rho of each sum.

    The factor of nu-SVC is 1 / r, unless r is not positive: then no multipliers so far tell the classes apart.
    """
    if len(rhos) == 1:
        return -(rhos[0] - BOUNDARY_SHARE * abs(rhos[0])), 1.0
    half, difference = (rhos[0] + rhos[1]) / 2, (rhos[1] - rhos[0]) / 2
    return (difference / half, 1.0 / half) if LEAST_OFFSET < half < 1.0 / LEAST_OFFSET else (difference, 1.0)


def raise_lowest(room: F64, f: F64, lacking: float) -> F64:
    """Return by how much each multiplier rises, (n,), until the rises sum to `lacking`, the lowest scores first."""
    order = np.argsort(f, kind="stable")
    before = np.cumsum(room[order]) - room[order]
    rises = np.empty(len(f))
    rises[order] = np.clip(lacking - before, 0.0, room[order])
    return rises


def _complete(
    costs: F64, alpha: F64, g: F64, sums: Sequence[FixedSum], errors: F64, largest: float
) -> tuple[float, float, float]:
    """Return what Q grows by at most where full multipliers get their sums, and how far rounding can have moved that.

    The third number is the most by which |w| grows for what the sums lack even then.
    """
    d, left = np.zeros(len(g)), 0.0
    for one in sums:
        a, scores, total = alpha[one.rows], g[one.rows], one.total
        lacking = sum_exactly(np.array([total]), -a)
        if 0.0 < lacking <= FULL_SHARE * total:
            d[one.rows] = raise_lowest(costs[one.rows] - a, scores, lacking)
        elif -FULL_SHARE * total <= lacking < 0.0:
            d[one.rows] = -raise_lowest(a, -scores, -lacking)
        left += 1.01 * abs(sum_exactly(np.array([total]), -a, -d[one.rows])) * math.sqrt(largest)
    size, moved = sum_exactly(np.abs(d)), np.flatnonzero(d)
    square, scores = size**2 * largest / 2, g[moved]
    error = 1.01 * float(np.abs(d[moved]) @ (errors[moved] + 4 * UNIT * np.abs(scores))) + 8 * UNIT * square
    return sum_exactly(d[moved] * scores) + square, error, left


def _bound_longer(value: float, left: float) -> float:
    """Return 1/2 (|w| + left)^2, where 1/2 |w|^2 is `value`, which is negative at most for an indefinite kernel."""
    return value + math.sqrt(max(2 * value, 0.0)) * left + left**2 / 2


def _bound_optimum(margin: float, square: float) -> float:
    """Return M^2 / (2 |w|^2), or 0 if that is no bound."""
    return margin / square * margin / 2 if margin > 0.0 < square else 0.0
