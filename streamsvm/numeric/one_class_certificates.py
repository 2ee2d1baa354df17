"""The duality gap of a one-class SVM, from its multipliers a and the sums f of all rows.

The problem is that of Schoelkopf et al. 2001, eqs. (3)-(11), times (nu n)^2, as in LIBSVM:

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

For a kernel that is not positive semidefinite there is no bound, but |w|^2 - M is a sum of one share for each row, none
of which is negative, and each of which is zero if the row's condition holds; 1/2 |w|^2 less that sum takes the place of
the bound.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.numeric.certificates import Certificate, Proof, find_best_bias
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64

# The model's offset is lower than rho by this share of it, so that rows on the boundary (0 < a_i < C_i) are of the
# class however their scores are rounded. The bound is that of rho itself.
BOUNDARY_SHARE = 1e-9
FULL_SHARE = 1e-9  # a sum that lacks no more than this share of N is full, but for rounding


def find_offset(costs: F64, f: F64, total: float) -> float:
    """Return the middle of all rho that maximise total rho - sum_i C_i max(0, rho - f_i)."""
    return -find_best_bias(np.ones(len(f)), costs, f, np.zeros(len(f)), total)


def certify_one_class(costs: F64, alpha: F64, f: F64, total: float, offset: float | None = None) -> Certificate:
    """Evaluate Q and its bound, without rounding; total: N. Without an offset rho is the best one."""
    rho = find_offset(costs, f, total) if offset is None else offset
    losses, square = costs * np.maximum(rho - f, 0.0), float(alpha @ f)
    margin = total * rho - float(np.sum(losses))
    bound = _bound_optimum(margin, square) if square >= 0.0 else margin - square / 2
    return Certificate(square / 2, bound, -rho, losses - alpha * (rho - f))


def prove_one_class(
    costs: F64, alpha: F64, f: F64, total: float, errors: F64, largest: float, is_definite: bool
) -> Proof:
    """Return the proof of Q (`objective`) and of its bound (`dual`); see `numeric.certificates.prove`."""
    rho = find_offset(costs, f, total)
    slack, own = rho - f, 1.25 * errors + 4 * UNIT * (np.abs(f) + abs(rho))
    losing, support = np.flatnonzero((slack + own > 0.0) & (costs > 0.0)), np.flatnonzero(alpha)
    loss = math.fsum((costs[losing] * np.maximum(slack[losing], 0.0)).tolist())
    margin = total * rho - loss
    margin_error = float(np.sum(costs[losing] * np.minimum(own, slack + own)[losing]))
    margin_error = 1.01 * margin_error + 4 * UNIT * (abs(total * rho) + loss)
    a, sums = alpha[support], f[support]
    square = math.fsum((a * sums).tolist())
    square_error = 1.01 * float(a @ (errors[support] + 2 * UNIT * np.abs(sums))) + 2 * UNIT * abs(square)
    square = max(square, 0.0) if is_definite else square
    added, added_error, left = _complete(costs, alpha, f, total, errors, largest)
    value = max(square / 2 + added, 0.0) if is_definite else square / 2 + added
    objective, value_error = _bound_longer(value, left), square_error / 2 + added_error
    objective_error = _bound_longer(max(value, 0.0) + value_error, left) - _bound_longer(max(value, 0.0), left)
    objective_error = 1.01 * objective_error + 8 * UNIT * (abs(objective) + abs(added))
    if is_definite:
        dual = _bound_optimum(margin, square)
        dual_error = dual - (1.0 - 8 * UNIT) * _bound_optimum(margin - margin_error, square + square_error)
    else:
        dual, dual_error = margin - square / 2, margin_error + square_error / 2 + 4 * UNIT * (abs(margin) + abs(square))
    offset = rho - BOUNDARY_SHARE * abs(rho)
    return Proof(objective, objective_error, dual, dual_error, -offset, 1.0, abs(objective))


def raise_lowest(room: F64, f: F64, lacking: float) -> F64:
    """Return by how much each multiplier rises, (n,), until the rises sum to `lacking`, the lowest scores first."""
    order = np.argsort(f, kind="stable")
    before = np.cumsum(room[order]) - room[order]
    rises = np.empty(len(f))
    rises[order] = np.clip(lacking - before, 0.0, room[order])
    return rises


def _complete(costs: F64, alpha: F64, f: F64, total: float, errors: F64, largest: float) -> tuple[float, float, float]:
    """Return what Q grows by at most where full multipliers get their sum, and how far rounding can have moved that.

    The third number is the most by which |w| grows for what the sum lacks even then.
    """
    lacking, d = math.fsum([total, *(-alpha).tolist()]), np.zeros(len(f))
    if 0.0 < lacking <= FULL_SHARE * total:
        d = raise_lowest(costs - alpha, f, lacking)
    elif -FULL_SHARE * total <= lacking < 0.0:
        d = -raise_lowest(alpha, -f, -lacking)
    left = 1.01 * abs(math.fsum([total, *(-alpha).tolist(), *(-d).tolist()])) * math.sqrt(largest)
    size, moved = math.fsum(np.abs(d).tolist()), np.flatnonzero(d)
    square, sums = size**2 * largest / 2, f[moved]
    error = 1.01 * float(np.abs(d[moved]) @ (errors[moved] + 4 * UNIT * np.abs(sums))) + 8 * UNIT * square
    return math.fsum((d[moved] * sums).tolist()) + square, error, left


def _bound_longer(value: float, left: float) -> float:
    """Return 1/2 (|w| + left)^2, where 1/2 |w|^2 is `value`, which is negative at most for an indefinite kernel."""
    return value + math.sqrt(max(2 * value, 0.0)) * left + left**2 / 2


def _bound_optimum(margin: float, square: float) -> float:
    """Return M^2 / (2 |w|^2), or 0 if that is no bound."""
    return margin / square * margin / 2 if margin > 0.0 < square else 0.0
