"""The duality gaps of kernel SVMs, computed from the multipliers a and the sums f of all rows.

Let w be the linear combination of the rows in feature space. The two objectives and their difference are

    f_i = sum_j a_j y_j k(x_i, x_j),   |w|^2 = sum_i a_i y_i f_i,   sum_i y_i a_i = 0
    P(b) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (f_i + b))            for any b
    D    = sum_i a_i - 1/2 |w|^2
    P(b) - D = sum_i [C_i max(0, s_i) - a_i s_i],   s_i = 1 - y_i (f_i + b)      no term is negative

In regression, a row has two hinges C_i max(0, y_i (c_i - f_i - b)) with corners c_i (see solvers.decomposition.hinges).
Then s_i = y_i (c_i - f_i - b), and D = sum_i a_i y_i c_i - 1/2 |w|^2. With c_i = y_i these are the formulas above.

Each row has a share of the gap, which is zero if its KKT condition holds. `certify` evaluates these formulas as
written. `prove` also bounds the effect of rounding, given bounds e_i of the errors of f_i. Rows whose slack is
certainly negative add nothing to this bound, and sums are correctly rounded (math.fsum). Rounding may leave a small
s = sum_i y_i a_i. Then

    D - |s| |b*|  bounds the optimum,   |b*| <= max |c_i| + |w*| max sqrt(k_ii),   |w*|^2 <= 2 P

The model may be t w with t slightly above 1. Rows on the margin are then certainly beyond the margin. Otherwise, the
rounding of their scores, times C, would be an error of P. If the rounding error of P could exceed P(0), then t = 0.

For Crammer-Singer, with the multipliers alpha_ik = -C_i c_ik for k != y_i, and alpha_iy = C_i s_i (losses.classes),

    F_ik = sum_j alpha_jk k(x_i, x_j),   |W|^2 = sum_ik alpha_ik F_ik
    P = 1/2 |W|^2 + sum_i C_i max(0, max_{k != y_i} 1 + F_ik - F_iy)
    D = sum_i C_i s_i - 1/2 |W|^2              for 0 <= c_ik, sum_k c_ik = s_i <= 1

An error of at most e_i in F_ik changes |W|^2 by at most sum_i e_i sum_k |alpha_ik|, and the loss of a row by at most
2 C_i e_i. In floating point the alpha_ik of a row have a sum r_i that may differ from 0. The nearest dual point differs
from these alpha_ik by at most 2 |r_i| in each row, so the W of that point is within d = 2 sum_i |r_i| max sqrt(k_ii) of
W, and

    D - sum_i |r_i| - |W| d - d^2 / 2      bounds the optimum.

One-class SVM and nu-SVC fix sums of multipliers (`certify_sums`, `prove_sums`). The one-class problem is eqs. (3)-(11)
of Schoelkopf et al. 2001, times (nu n)^2, as in LIBSVM:

    min Q(a) = 1/2 |w(a)|^2,   0 <= a_i <= C_i,   sum_i a_i = N,      f_i = sum_j a_j k(x_i, x_j),   N = nu sum_i C_i

The bound is geometric. For any w and rho, let M = N rho - sum_i C_i max(0, rho - f_i). Since M <= w.w(a) for all
feasible a, every Q(a) is at least

    M^2 / (2 |w|^2)      if M > 0,     which is the greatest -P(t w, t rho) over t,   P = 1/2 |w|^2 - M

The rho that maximises M is a quantile of the scores f_i, weighted by C_i. Q and the bound are positive, and equal at
the optimum. If the sum of the multipliers falls short of N by l = N - sum_i a_i, raising multipliers by l in total
makes them feasible, and |w| grows by no more than |l| max sqrt(k_ii). If l is only rounding, this bound is far too
large when rows have very different lengths. So the changes d_i, with sum_i d_i = l, are chosen by the scores: the
multipliers of the lowest scores rise or, if l < 0, the multipliers of the highest scores fall. All d_i have the same
sign, so that

    Q(a + d) <= Q(a) + sum_i d_i f_i + 1/2 l^2 max k_ii

nu-SVC (Schoelkopf, Smola, Williamson & Bartlett 2000) has two such sums, N / 2 for each side y_i:

    min Q(a) = 1/2 |w(a)|^2,   0 <= a_i <= C_i,   sum_i a_i = N,   sum_i y_i a_i = 0,      w(a) = sum_i a_i y_i phi(x_i)

Here the scores of a side are g_i = y_i f_i. Each side has its own rho, and M is the sum of M over both sides;
everything else is unchanged. Let r be the mean of the two rho, and b half of their difference. The model is
(w.phi(x) + b) / r, as in LIBSVM, and with its scores s_i

    M = r (N - sum_i C_i max(0, 1 - y_i s_i))

A kernel that is not positive semidefinite has no such bound. However, |w|^2 - M is a sum of one share per row. No share
is negative, and a share is zero if the row's KKT condition holds. 1/2 |w|^2 minus this sum replaces the bound.

For nu-SVR, whose rows have sides y_i, let s_i = y_i a_i, r_i = t_i - f_i, N = nu sum_i C_i, u = b + epsilon and
v = epsilon - b, with epsilon >= 0:

    f_i = sum_j s_j k(x_i, x_j),   |w|^2 = sum_i s_i f_i
    P   = 1/2 |w|^2 + N (u + v) / 2 + sum_i C_i [max(0, r_i - u) + max(0, -r_i - v)]
    D   = sum_i t_i s_i - 1/2 |w|^2                          for sum_i s_i = 0, sum_i |s_i| <= N

P equals 1/2 |w|^2 + N epsilon + sum_i C_i max(0, |r_i - b| - epsilon), and u and v minimise separate parts of it: the
residuals above u have costs C_i that sum to N / 2, and so do the negated residuals above v. Since nu <= 1, u + v is not
negative at the minimum. If rounding leaves d = sum_i s_i and sum_i |s_i| = N + e, the optimum is bounded by D less

    |d| |b*| + max(0, e) epsilon*,      where |b* - b| and epsilon* are at most max |t_i - b| + |w*| max sqrt(k_ii)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from streamsvm.losses.classes import multiply_shares
from streamsvm.numeric.rounding import UNIT, sum_exactly
from streamsvm.numeric.rows import F64, I32, I64

BINS = 4096  # number of bins for the corners in the search for the best bias
LONGEST_STRETCH = 1.001
Multipliers = tuple[F64, F64, F64, F64, F64 | None]  # y, C, a and f of the rows, (n,) each; corners in regression


@dataclass(frozen=True)
class Certificate:
    """The primal objective P at the best bias, the dual objective D, the bias, and each row's share of P - D, (n,)."""

    objective: float
    lower_bound: float
    bias: float
    shares: F64

    @property
    def relative_gap(self) -> float:
        """(P - D) / P, or infinity if P is negative, which is possible only with an indefinite kernel."""
        if self.objective > 0:
            return (self.objective - self.lower_bound) / self.objective
        return 0.0 if self.objective == 0.0 else math.inf


def certify(
    y: F64, costs: F64, alpha: F64, f: F64, bias: float | None = None, corners: F64 | None = None
) -> Certificate:
    """Evaluate P and D for labels y of -1 or +1, (n,). If no bias is given, P is minimised over b in O(n log n)."""
    b = find_best_bias(y, costs, f, corners) if bias is None else bias
    slack = 1.0 - y * (f + b) if corners is None else y * (corners - f - b)
    losses = costs * np.maximum(slack, 0.0)
    half_square = float(alpha @ (y * f)) / 2
    total = float(np.sum(alpha)) if corners is None else float(alpha @ (y * (corners - b)))
    objective, lower_bound = half_square + float(np.sum(losses)), total - half_square
    return Certificate(objective, lower_bound, b, losses - alpha * slack)


@dataclass(frozen=True)
class Proof:
    """P and D with their error bounds, and the model's bias and factor t (`stretch`).

    magnitude: the sum of the magnitudes of the terms of P, which is P if K is positive semidefinite. lost: if rounding
    could exceed P(0), the error bound of P of the unstretched model; otherwise 0.
    """

    objective: float
    objective_error: float
    dual: float
    dual_error: float
    bias: float
    stretch: float
    magnitude: float
    lost: float = 0.0

    @property
    def rounding_bound(self) -> float:
        """The largest possible effect of rounding on P - D."""
        return self.objective_error + self.dual_error

    def is_within(self, tol: float) -> bool:
        """Return whether P - D is certainly at most tol P."""
        return self.objective - self.dual + self.rounding_bound <= tol * self.magnitude


def prove(rows: Multipliers, errors: F64, largest: float, tol: float, is_definite: bool = True) -> Proof:
    """Return the proof from multipliers in [0, costs]; stretch the model if the gap would otherwise exceed tol.

    errors: the error bounds of f, (n,). largest: the largest k_ii. is_definite: whether |w|^2 is certainly at least 0.
    The model of a regression, which has corners, is never stretched.
    """
    y, costs, alpha, f, corners = rows
    found = _prove_scaled(rows, errors, largest, 1.0, is_definite)
    if found.is_within(tol) or corners is not None:
        return found
    stretch = choose_stretch(y, costs, alpha, f, errors, found)
    if found.objective_error > min(float(np.sum(costs[y > 0])), float(np.sum(costs[y < 0]))):
        stretch, found = 0.0, replace(found, lost=found.objective_error)
    if stretch == 1.0:
        return found
    stretched = _prove_scaled(rows, errors, largest, stretch, is_definite)
    best = min(found, stretched, key=lambda proof: proof.objective + proof.objective_error)
    dual = max(found, stretched, key=lambda proof: proof.dual - proof.dual_error)
    return replace(best, dual=dual.dual, dual_error=dual.dual_error, lost=found.lost)


def choose_stretch(y: F64, costs: F64, alpha: F64, f: F64, errors: F64, found: Proof) -> float:
    """Return the smallest factor that certainly puts rows with 0 < a_i < C_i beyond the margin; 1 if there is none."""
    if not found.dual > 0.0:
        return 1.0
    margins = y * (f + found.bias)
    inner = (alpha > 0) & (alpha < costs) & (margins > 1.0 / LONGEST_STRETCH)
    lacking = (1.0 + _bound_slacks(f, errors, found.bias)[inner]) / margins[inner]
    room = float(np.min(costs[inner] / alpha[inner], initial=2.0))
    stretch = min(float(np.max(lacking, initial=1.0)) + 4 * UNIT, room)
    return stretch if 1.0 < stretch < LONGEST_STRETCH else 1.0


def _choose_bias(y: F64, costs: F64, f: F64, corners: F64 | None) -> float:
    """Return the best bias. If only one class has costs, return a bias that puts its rows well beyond the margin."""
    bias, used = find_best_bias(y, costs, f, corners), y[costs > 0]
    if len(used) and np.all(used == used[0]):
        corners = (y - f)[costs > 0]
        bias = float(used[0] * (np.max(used[0] * corners) + 1.0 + np.max(np.abs(corners)) / 2))
    return bias


def _bound_slacks(f: F64, errors: F64, bias: float, corners: F64 | None = None) -> F64:
    """Return the error bounds of 1 - y (f + b), slightly enlarged to allow for a stretch."""
    size = 1.0 if corners is None else np.abs(corners)
    return 1.25 * errors + 4 * UNIT * (size + np.abs(f) + abs(bias))


def _prove_scaled(rows: Multipliers, errors: F64, largest: float, stretch: float, is_definite: bool) -> Proof:
    """Return the proof from multipliers and `stretch` times their model; stretching also rounds the coefficients."""
    y, costs, alpha, f, corners = rows
    if stretch not in (0.0, 1.0):
        errors = errors + UNIT * largest * float(np.sum(alpha))
    f_model = stretch * f
    bias = _choose_bias(y, costs, f_model, corners)
    slack = 1.0 - y * (f_model + bias) if corners is None else y * (corners - f_model - bias)
    own = _bound_slacks(f_model, min(stretch, 1.0) * errors, bias, corners)
    loss, moved_loss = sum_losses(costs, slack, own)
    loss_error, support = moved_loss + 2 * UNIT * loss, np.flatnonzero(alpha)
    a, sums = alpha[support], (y * f)[support]
    # corners are measured from the bias; this changes the sum by up to the term for the imbalance
    gains, farthest = a, 1.0
    if corners is not None:
        gains, farthest = a * (y * (corners - bias))[support], 1.0 + float(np.max(np.abs(corners))) + abs(bias)
    square, total = sum_exactly(a * sums), sum_exactly(gains)
    square = max(square, 0.0) if is_definite else square
    lacking = abs(sum_exactly(a * y[support]))
    square_error = 1.01 * float(a @ (errors[support] + 2 * UNIT * np.abs(sums)))
    scale = stretch * stretch / 2
    objective = scale * square + loss
    objective_error = 1.01 * (scale * square_error + loss_error) + 4 * UNIT * (abs(scale * square) + loss)
    of_bias = farthest + math.sqrt(max(0.0, 2 * (objective + objective_error) * largest)) if lacking else 0.0
    size = total if corners is None else 3 * float(a @ (np.abs(corners[support]) + abs(bias)))
    dual_error = square_error / 2 + 1.01 * lacking * of_bias + 2 * UNIT * (size + abs(square))
    return Proof(objective, objective_error, total - square / 2, dual_error, bias, stretch, abs(scale * square) + loss)


def sum_losses(costs: F64, slack: F64, own: F64) -> tuple[float, float]:
    """Return sum_i C_i max(0, s_i) and its error bound, if each slack s_i has an error of at most own_i."""
    losing = ((slack + own > 0.0) & (costs > 0.0)).nonzero()[0]
    loss = sum_exactly(costs[losing] * np.maximum(slack[losing], 0.0))
    return loss, float((costs[losing] * np.minimum(own, slack + own)[losing]).sum())


def find_best_bias(y: F64, costs: F64, f: F64, corners: F64 | None = None, slope: float = 0.0) -> float:
    """Return the middle of all b that minimise slope b + sum_i C_i max(0, 1 - y_i (f_i + b)).

    The sum is convex and piecewise linear, and its slope grows by C_i at the corner y_i - f_i. Only the corners near
    the minimum are sorted.
    """
    corners = (y if corners is None else corners) - f
    size = 2.0 * UNIT * len(y) * float(costs.sum())
    low = float(corners.min())
    width, lowest = (float(corners.max()) - low) / BINS, slope - float(costs.sum(where=y > 0.0))
    bins, first, last, before = _find_near(corners, costs, low, width, lowest, 2 * size)
    near = ((bins >= first) & (bins <= last)).nonzero()[0]
    return choose_corner(corners[near], costs[near], before, size)


def choose_corner(corners: F64, costs: F64, before: float, size: float) -> float:
    """Return the middle of all minimisers.

    before: the slope before the first corner; size: the error of sums of costs.
    """
    order = corners.argsort(kind="stable")
    slopes = before + costs[order].cumsum()  # the slope after each corner
    first = min(int(slopes.searchsorted(-size)), len(order) - 1)
    last = min(int(slopes.searchsorted(size, side="right")), len(order) - 1)
    return float(corners[order[first]] + corners[order[last]]) / 2


@njit(cache=True, nogil=True)
def _find_near(
    corners: F64, costs: F64, low: float, width: float, slope: float, size: float
) -> tuple[I64, int, int, float]:
    """Return the bin of each corner, the first and last bin with a slope in [-size, size], and the slope before these.

    The bins have equal widths and begin at the lowest corner. The slope before that corner is `slope`.
    """
    bins, sums = np.empty(corners.size, np.int64), np.zeros(BINS)
    for i in range(corners.size):
        place = (corners[i] - low) / width if width > 0 else 0.0
        bins[i] = int(place) if place < BINS else BINS - 1
        sums[bins[i]] += costs[i]
    first = 0
    while first < BINS - 1 and slope + sums[first] < -size:
        slope += sums[first]
        first += 1
    last, after = first, slope + sums[first]
    while last < BINS - 1 and after <= size:
        last += 1
        after += sums[last]
    return bins, first, last, slope


def prove_classes(share: F64, y: I32, costs: F64, F: F64, errors: F64, largest: float, is_definite: bool) -> Proof:
    """Return the proof of P and D for Crammer-Singer. share, F: (n, K); y, costs, errors: (n,); largest: max k_ii."""
    every, alpha = np.arange(len(y)), multiply_shares(share, y, costs)
    sizes = np.sum(np.abs(alpha), axis=1)
    products = alpha * F
    square = math.fsum(np.sum(products, axis=1).tolist())
    square = max(square, 0.0) if is_definite else square
    square_error = 1.01 * float(sizes @ errors) + UNIT * (F.shape[1] + 4) * float(np.sum(np.abs(products)))
    leads = 1.0 + (F - F[every, y][:, None])
    leads[every, y] = -np.inf
    top, reach = np.max(leads, axis=1), np.max(np.abs(F), axis=1)
    loss, moved_loss = sum_losses(costs, top, 2.02 * errors + 4 * UNIT * (1.0 + 2 * reach))
    loss_error = moved_loss + 2 * UNIT * loss
    gain = math.fsum(alpha[every, y].tolist())
    lacking = float(np.sum(np.abs(np.sum(alpha, axis=1)) + UNIT * F.shape[1] * sizes))
    moved = 2 * lacking * math.sqrt(largest)
    of_point = lacking + math.sqrt(max(0.0, square + square_error)) * moved + moved**2 / 2
    magnitude = abs(square) / 2 + loss
    objective_error = 1.01 * (square_error / 2 + loss_error) + 4 * UNIT * magnitude
    dual_error = 1.01 * (square_error / 2 + of_point) + 2 * UNIT * (gain + abs(square))
    return Proof(square / 2 + loss, objective_error, gain - square / 2, dual_error, 0.0, 1.0, magnitude)


# The model's offset is lower than rho by this share, so that rows on the boundary (0 < a_i < C_i) belong to the
# class even after rounding. The bound is computed with rho itself.
BOUNDARY_SHARE = 1e-9
LEAST_OFFSET = 1e-300  # the smallest offset of nu-SVC by which multipliers can be divided
FULL_SHARE = 1e-9  # a sum counts as full if it falls short of N by at most this share, which rounding may cause


def find_offset(costs: F64, f: F64, total: float) -> float:
    """Return the middle of all rho that maximise total rho - sum_i C_i max(0, rho - f_i)."""
    return -find_best_bias(np.ones(len(f)), costs, f, np.zeros(len(f)), total)


@dataclass(frozen=True)
class FixedSum:
    """Rows whose multipliers have a fixed sum: their row numbers, and the sum."""

    rows: I64
    total: float

    def find_offset(self, costs: F64, g: F64) -> float:
        """Return the best rho of these rows; see `find_offset`."""
        return find_offset(costs[self.rows], g[self.rows], self.total)


Sums = Sequence[FixedSum]


def spread(sums: Sums, values: Sequence[float], n: int) -> F64:
    """Return for each row the value of its sum, (n,). values: a value for each of the sums."""
    spread_out = np.zeros(n)
    for one, value in zip(sums, values, strict=True):
        spread_out[one.rows] = value
    return spread_out


def certify_sums(costs: F64, alpha: F64, g: F64, sums: Sums, offsets: Sequence[float] | None = None) -> Certificate:
    """Evaluate Q and its bound, ignoring rounding.

    g (n,): the scores y_i f_i. If no offsets are given, the best rho is chosen for each sum.
    """
    rhos = [one.find_offset(costs, g) for one in sums] if offsets is None else offsets
    rho = spread(sums, rhos, len(g))
    losses, square = costs * np.maximum(rho - g, 0.0), float(alpha @ g)
    margin = math.fsum(one.total * each for one, each in zip(sums, rhos, strict=True)) - float(np.sum(losses))
    bound = _bound_optimum(margin, square) if square >= 0.0 else margin - square / 2
    return Certificate(square / 2, bound, -rhos[0], losses - alpha * (rho - g))


def prove_sums(costs: F64, alpha: F64, g: F64, sums: Sums, errors: F64, largest: float, is_definite: bool) -> Proof:
    """Return the proof of Q (`objective`) and of its bound (`dual`); see `certificates.kernel.prove`."""
    rhos = [one.find_offset(costs, g) for one in sums]
    rho = spread(sums, rhos, len(g))
    slack, own = rho - g, 1.25 * errors + 4 * UNIT * (np.abs(g) + np.abs(rho))
    (loss, moved_loss), support = sum_losses(costs, slack, own), np.flatnonzero(alpha)
    parts = [one.total * each for one, each in zip(sums, rhos, strict=True)]
    margin = math.fsum(parts) - loss
    margin_error = 1.01 * moved_loss + 4 * UNIT * (math.fsum(map(abs, parts)) + loss)
    a, scores = alpha[support], g[support]
    square = sum_exactly(a * scores)
    square_error = 1.01 * float(a @ (errors[support] + 2 * UNIT * np.abs(scores))) + 2 * UNIT * abs(square)
    square = max(square, 0.0) if is_definite else square
    added, added_error, left = _complete(costs, alpha, g, sums, errors, largest)
    value = max(square / 2 + added, 0.0) if is_definite else square / 2 + added
    objective, value_error = _bound_longer(value, left), square_error / 2 + added_error
    objective_error = _bound_longer(max(value, 0.0) + value_error, left) - _bound_longer(max(value, 0.0), left)
    objective_error = 1.01 * objective_error + 8 * UNIT * (abs(objective) + abs(added))
    is_full = all(abs(sum_exactly(-alpha[one.rows], np.array([one.total]))) <= FULL_SHARE * one.total for one in sums)
    if is_full and objective - square / 2 > FULL_SHARE * objective:  # Q before the completion of the sums
        objective, objective_error = square / 2, objective_error + objective - square / 2
    if is_definite:
        dual = _bound_optimum(margin, square)
        dual_error = dual - (1.0 - 8 * UNIT) * _bound_optimum(margin - margin_error, square + square_error)
    else:
        dual, dual_error = margin - square / 2, margin_error + square_error / 2 + 4 * UNIT * (abs(margin) + abs(square))
    bias, stretch = _find_model(rhos)
    return Proof(objective, objective_error, dual, dual_error, bias, stretch, abs(objective))


def _find_model(rhos: Sequence[float]) -> tuple[float, float]:
    """Return the model's bias and the factor of its multipliers, given the rho of each sum.

    The factor of nu-SVC is 1 / r. It is 1 if r is not positive: the multipliers do not yet separate the classes.
    """
    if len(rhos) == 1:
        return -(rhos[0] - BOUNDARY_SHARE * abs(rhos[0])), 1.0
    half, difference = (rhos[0] + rhos[1]) / 2, (rhos[1] - rhos[0]) / 2
    return (difference / half, 1.0 / half) if LEAST_OFFSET < half < 1.0 / LEAST_OFFSET else (difference, 1.0)


def raise_lowest(room: F64, f: F64, lacking: float) -> F64:
    """Return the increase of each multiplier, (n,), at most its `room`. The increases sum to `lacking`.

    The multipliers of the lowest scores are raised first.
    """
    order = np.argsort(f, kind="stable")
    before = np.cumsum(room[order]) - room[order]
    rises = np.empty(len(f))
    rises[order] = np.clip(lacking - before, 0.0, room[order])
    return rises


def _complete(costs: F64, alpha: F64, g: F64, sums: Sums, errors: F64, largest: float) -> tuple[float, float, float]:
    """Return a bound on the growth of Q when nearly full sums are completed, and the rounding error of this bound. The
    third result bounds the growth of |w| if all other sums are completed as well.
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
    """Return 1/2 (|w| + left)^2. value: 1/2 |w|^2, which is negative only with an indefinite kernel."""
    return value + math.sqrt(max(2 * value, 0.0)) * left + left**2 / 2


def _bound_optimum(margin: float, square: float) -> float:
    """Return M^2 / (2 |w|^2), or 0 where this is no bound (M <= 0 or |w| = 0)."""
    return margin / square * margin / 2 if margin > 0.0 < square else 0.0


def find_tube(costs: F64, residuals: F64, total: float) -> tuple[float, float]:
    """Return the b and epsilon that minimise total epsilon + sum_i C_i max(0, |r_i - b| - epsilon)."""
    ones, none = np.ones(len(residuals)), np.zeros(len(residuals))
    above = find_best_bias(ones, costs, none, residuals, total / 2)
    below = find_best_bias(ones, costs, none, -residuals, total / 2)
    return (above - below) / 2, max(0.0, (above + below) / 2)


def certify_nu_tube(y: F64, costs: F64, alpha: F64, f: F64, targets: F64, total: float) -> Certificate:
    """Evaluate P and D of nu-SVR at the best b and epsilon, ignoring rounding."""
    bias, width = find_tube(costs, targets - f, total)
    losses = costs * np.maximum(np.abs(targets - f - bias) - width, 0.0)
    half_square = float(alpha @ (y * f)) / 2
    dual = float(alpha @ (y * (targets - bias))) - half_square
    shares = losses - alpha * (y * (targets - f - bias) - width)
    return Certificate(half_square + total * width + float(np.sum(losses)), dual, bias, shares)


def prove_nu_tube(
    y: F64, costs: F64, alpha: F64, f: F64, targets: F64, total: float, errors: F64, largest: float, is_definite: bool
) -> Proof:
    """Return the proof of P and D of nu-SVR; see `prove`. total: the fixed sum N of the multipliers."""
    bias, width = find_tube(costs, targets - f, total)
    slack = np.abs(targets - f - bias) - width
    own = 1.25 * errors + 4 * UNIT * (np.abs(targets) + np.abs(f) + abs(bias) + width)
    (loss, moved_loss), support, edge = sum_losses(costs, slack, own), np.flatnonzero(alpha), total * width
    loss_error = moved_loss + 4 * UNIT * (loss + edge)
    a, side, sums = alpha[support], y[support], (y * f)[support]
    square = sum_exactly(a * sums)
    square = max(square, 0.0) if is_definite else square
    square_error = 1.01 * float(a @ (errors[support] + 2 * UNIT * np.abs(sums)))
    objective = square / 2 + loss + edge
    objective_error = 1.01 * (square_error / 2 + loss_error) + 4 * UNIT * (abs(square) + loss + edge)
    gain = sum_exactly(a * (side * (targets - bias)[support]))
    lacking = abs(sum_exactly(a * side)) + max(0.0, sum_exactly(a, np.array([-total])))
    farthest = float(np.max(np.abs(targets - bias), initial=0.0))
    reach = farthest + math.sqrt(max(0.0, 2 * (objective + objective_error) * largest)) if lacking else 0.0
    size = 3 * float(a @ (np.abs(targets[support]) + abs(bias)))
    dual_error = square_error / 2 + 1.01 * lacking * reach + 2 * UNIT * (size + abs(square))
    magnitude = abs(square) / 2 + loss + edge
    return Proof(objective, objective_error, gain - square / 2, dual_error, bias, 1.0, magnitude)
