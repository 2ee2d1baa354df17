"""The active set: rows in memory, whose shares are improved one working set at a time.

    repeat: choose a working set W: half of the last one, and the rows that violate their conditions most
            visit the rows of W repeatedly in random order, with K_WW in memory
            F_ik += sum over changed rows j of (change of alpha_jk) k(x_i, x_j)      for the rows of the active set
    until no row violates its condition by more than tol, or the gap is small enough

The kernel is k(x, z) + s^2, where s is the constant feature whose weights are the biases.

A visit sets the shares of a row to their optimum with all others fixed (losses.classes), where A = C_i k_ii (Keerthi et
al. 2008, with kernels). The row's multipliers change by C_i times the changes of a_k. F_jk of each row j of the working
set changes by k_ij times the change of the multiplier. D rises by

    C_i sum_{k != y} (change of c_ik) v_k - 1/2 C_i^2 k_ii sum_k (change of a_k)^2

If many sweeps have not solved a small working set, the interior-point method solves it.

The interior-point method (Mehrotra 1992) moves all shares of a working set at once. It is useful if rows are nearly
parallel and C k_ii is large, since visits of single rows then converge slowly. Row i divides C_i among the classes:
x_ik = C_i c_ik for k != y_i, and the row's own class gets the rest. Then alpha_iy is the sum of x_ik over the other
classes, alpha_ik = -x_ik, and the optimum of the working set is the limit mu -> 0 of

    x_ik z_ik = mu,   z_ik = t_i - F_ik + [k = y_i] > 0,   x_ik > 0,   sum_k x_ik = C_i

with one multiplier t_i for each row. In Newton's equations the K classes are coupled only through the changes of t,

    dX_k = E_k (r_k - dt),   (sum_k E_k) dt = sum_k E_k r_k - (C - sum_k X_k),   E_k = (K + diag(z_k / x_k))^-1

so a step takes K Cholesky factorisations of the size of the working set (Rasmussen & Williams 2006, algorithm 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable
from scipy.linalg.lapack import dposv, dtrtri

from streamsvm.kernels.kernel import Kernel, add_kernel_sums, combine_rows_of
from streamsvm.losses.classes import judge_row, multiply_shares, solve_row
from streamsvm.numeric.equations import BOUNDARY_SHARE, MOST_SECOND_ORDER, move
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, I32, I64, Flags, Matrix, Values, compute_scores, take_rows
from streamsvm.solvers.decomposition.active_set import ColumnCache, form_kernel, require_finite, scale
from streamsvm.solvers.decomposition.working_set import PREVIOUS_SET_DIVISOR, find_largest, join_rows
from streamsvm.system import deadline, interrupts

MOST_PRODUCTS = 4e8  # multiplications in a step
MOST_STEPS = 100
MOST_IDLE_STEPS, LEAST_FALL = 8, 0.9  # stop after 8 steps in a row that each leave more than this share of the gap
REFINEMENTS = 3  # iterative refinements of each direction, since digits are lost where K is nearly singular
GAP_SHARE = 1e-9  # the gap of a solved working set, as a share of the sum of C_i s_i


class Equations(NamedTuple):
    """The constants of a working set of q rows.

    K (q, q): kernel values. C (q,): costs. own (classes, q): whether a class is the row's own class. outside (classes,
    q): F - [k = y_i] without the terms of the working set's multipliers.
    """

    K: F64
    C: F64
    own: Flags
    outside: F64

    def multiply(self, X: F64) -> F64:
        """Return the multipliers alpha at X, (classes, q).

        The multiplier of a row's own class is computed as a sum over the other classes: C - x could lose all digits.
        """
        return np.where(self.own, np.sum(X, axis=0, where=~self.own), -X)


class Point(NamedTuple):
    """A point on the central path, or a direction: X and Z (classes, q), and t (q,)."""

    X: F64
    Z: F64
    t: F64


def count_jump_rows(n_classes: int) -> int:
    """Return the largest working set, in rows, for which a step takes well under a second."""
    return int((MOST_PRODUCTS / n_classes) ** (1 / 3))


def solve_by_interior_point(K: Values, y: I32, costs: F64, share: F64, F: F64) -> F64:
    """Return the shares (q, classes) with the least gap found. K: (q, q); F (classes, q): the sums at `share`."""
    used = np.flatnonzero(costs > 0.0)
    kernel, own, C = K[np.ix_(used, used)].astype(np.float64), np.equal.outer(np.arange(len(F)), y[used]), costs[used]
    problem = Equations(kernel, C, own, np.zeros_like(own, np.float64))
    problem = problem._replace(outside=F[:, used] - own - problem.multiply(C * share[used].T) @ kernel)
    found, solved = _follow_path(problem) / C, share.copy()
    solved[used] = np.where(own, np.minimum(np.sum(found, axis=0, where=~own), 1.0), found).T
    return solved


def _follow_path(problem: Equations) -> F64:
    """Follow the central path; return the X with the least gap found."""
    K, C, own, outside = problem
    X: F64 = np.repeat(C[None] / len(own), len(own), axis=0)
    lead = outside + problem.multiply(X) @ K
    mu = float(np.max(C * np.maximum(np.ptp(lead, axis=0), 1.0))) / len(own)
    t = np.max(lead, axis=0) + mu / X[0]
    point, best, least_gap, idle = Point(X, t - lead, t), X, np.inf, 0
    with np.errstate(all="ignore"):
        for _ in range(MOST_STEPS):
            interrupts.check()
            step = _find_step(problem, point)
            if step is None or deadline.is_over():
                break
            length = _find_length(point, step)
            point = move(point, step, length)
            gap = float(np.sum(point.X * point.Z))
            idle = 0 if gap < LEAST_FALL * least_gap else idle + 1
            if gap < least_gap:
                least_gap, best = gap, point.X
            if idle == MOST_IDLE_STEPS or gap <= GAP_SHARE * float(np.sum(problem.multiply(point.X)[own])):
                break
    return best


def _find_step(problem: Equations, point: Point) -> Point | None:
    """Return Mehrotra's direction, or None if the equations are numerically singular."""
    (K, C, _, outside), (X, Z, t) = problem, point
    weights, r_z = X / Z, Z - t + outside + problem.multiply(X) @ K
    roots = np.sqrt(weights)
    scaled = roots[:, :, None] * K * roots[:, None]
    try:
        factors = np.linalg.cholesky(scaled + np.eye(len(C)) * (1.0 + len(C) * UNIT * scaled))
    except np.linalg.LinAlgError:
        return None
    S = np.stack([dtrtri(factor, lower=1)[0] for factor in factors]) * roots[:, None]  # E_k = S_k' S_k
    total, left = np.tensordot(S, S, ((0, 1), (0, 1))), C - np.sum(X, axis=0)

    def multiply(values: F64) -> F64:
        """Return E_k u_k for each class k, where u_k are the rows of `values` (classes, q)."""
        product: F64 = (np.swapaxes(S, 1, 2) @ (S @ values[:, :, None]))[:, :, 0]
        return product

    def find_direction(products: F64) -> Point:
        """Return the Newton direction along which each x_ik z_ik changes, to first order, by products_ik."""
        wanted, dX, dt = products / X + r_z, np.zeros_like(X), np.zeros(len(C))
        for _ in range(REFINEMENTS):
            lacking = wanted - dt - dX / weights + problem.multiply(dX) @ K
            more = dposv(total, np.sum(multiply(lacking) + dX, axis=0) - left)[1]
            dX, dt = dX + multiply(lacking - more), dt + more
            dX += weights / np.sum(weights, axis=0) * (left - np.sum(dX, axis=0))
        return Point(dX, dt - problem.multiply(dX) @ K - r_z, dt)

    mu, predicted = float(np.mean(X * Z)), find_direction(-X * Z)
    length, most = _find_length(point, predicted), MOST_SECOND_ORDER * mu
    target = mu * (float(np.mean((X + length * predicted.X) * (Z + length * predicted.Z))) / mu) ** 3
    found = find_direction(target - X * Z - np.clip(predicted.X * predicted.Z, -most, most))
    return found if all(np.all(np.isfinite(part)) for part in found) else None


def _find_length(point: Point, step: Point) -> float:
    """Return a step length, at most 1, at which all x_ik and z_ik stay positive."""
    fastest = max(float(np.max(-step.X / point.X)), float(np.max(-step.Z / point.Z)))
    return min(1.0, BOUNDARY_SHARE / fastest) if fastest > 0.0 else 1.0


TINY_SIZE = 1e-8  # the threshold below which C_i k_ii counts as tiny
MOST_ROUNDS, BASE_ROUNDS, ROUNDS_PER_ROW = 1000, 50, 4  # limits of the rounds of a step: see decomposition.active_set
SAME_SET_ROUNDS = 20  # the limit if the working set holds all active rows: more would make a step too long to stop
MOST_SWEEPS = 100  # the maximum number of sweeps over the rows of a working set
SWEEPS_BEFORE = 20  # after this many sweeps, a small working set jumps: it is solved by the interior-point method
VAIN_JUMPS = 5  # a step ends after this many failed jumps, since only a pass or more digits can help
# A step ends after MOST_IDLE_ROUNDS rounds in which D rose by at most LEAST_ROUND_RISE of its rise in the step: further
# changes would be rounding.
MOST_IDLE_ROUNDS, LEAST_ROUND_RISE = 20, 1e-12
SWEEP_TOL_SHARE = 0.1  # a working set is solved to this share of the violation that it has when it is chosen
LEAST_SHARE = 0.1  # a row is visited if its violation exceeds this share of the tolerance
BLOCK_COLUMNS = 256  # kernel columns copied at once


@register_jitable
def _find_lead(F: F64, i: int, y: int, lead: F64) -> None:
    """Set v_k = 1 + F_ik - F_iy, and 0 for the row's own class. F: (K, n)."""
    own = F[y, i]
    for k in range(lead.size):
        lead[k] = 1.0 + (F[k, i] - own)
    lead[y] = 0.0


@register_jitable
def _give_all(lead: F64, y: int, share: F64, changes: F64) -> None:
    """Give the whole cost to the class with the greatest v_k, and set `changes`. This is optimal if k_ii = 0."""
    best = y
    for k in range(lead.size):
        best = k if lead[k] > lead[best] else best
        changes[k] = share[k]
        share[k] = 0.0
    if best != y:
        share[best] = share[y] = 1.0
    for k in range(lead.size):
        changes[k] = share[k] - changes[k] if k == y else changes[k] - share[k]


@njit(cache=True, nogil=True)
def visit_rows(K: Values, y: I32, costs: F64, share: F64, F: F64, order: I64, least: float) -> tuple[float, float]:
    """Visit the rows of `order` whose violation is above `least`; return the largest violation, and the rise of D.

    K (q, q): kernel values. y, costs (q,): classes and costs. share (q, K) and F (K, q) change in place.
    """
    worst, rise = 0.0, 0.0
    lead, changes = np.empty(share.shape[1]), np.empty(share.shape[1])
    for i in order:
        _find_lead(F, i, y[i], lead)
        violation = judge_row(lead, share[i], y[i])[1]
        if violation <= least or costs[i] == 0.0:
            continue
        worst, size = max(worst, violation), costs[i] * K[i, i]
        if size > 0.0:
            if size < TINY_SIZE:  # only differences of v_k matter, and 1 + size would round size to 0
                lead -= np.max(lead)
            solve_row(lead, y[i], size, share[i], changes)
        else:
            _give_all(lead, y[i], share[i], changes)
        column = K[i]
        for k in range(changes.size):
            if changes[k] != 0.0:
                rise -= costs[i] * changes[k] * lead[k]
                rise -= 0.5 * costs[i] * size * changes[k] ** 2
                sums, change = F[k], costs[i] * changes[k]
                for j in range(column.size):
                    sums[j] += change * column[j]
    return worst, rise


@njit(cache=True, nogil=True)
def judge_rows(F: F64, y: I32, costs: F64, share: F64) -> tuple[float, F64, F64]:
    """Return P - D of the rows, their violations (n,), and the lead of each row's best class over the second, (n,).

    P - D is sum_i C_i (max(0, max_k v_ik) - sum_k c_ik v_ik), in which no term is negative. The lead of a row is 0 if
    the row is divided (no class has its whole cost), and infinity if it has no cost. F: (K, n).
    """
    gap, lead, violations, ahead = 0.0, np.empty(F.shape[0]), np.zeros(y.size), np.full(y.size, np.inf)
    for i in range(y.size):
        if costs[i] > 0.0:
            _find_lead(F, i, y[i], lead)
            missed, violations[i], ahead[i] = judge_row(lead, share[i], y[i])
            gap += costs[i] * missed
    return gap, violations, ahead


@dataclass
class ActiveRows:
    """m rows in memory.

    X (m, d): features. y, costs (m,): class codes and costs. share (m, K): shares. F (K, m): kernel sums. rows (m,):
    row numbers in the dataset.
    """

    X: Matrix
    y: I32
    costs: F64
    share: F64
    F: F64
    rows: I64

    @property
    def alpha(self) -> F64:
        """The multipliers, (m, K)."""
        return multiply_shares(self.share, self.y, self.costs)

    def judge(self) -> tuple[float, F64, F64]:
        """Return P - D, the violations (m,), and the lead of each row's best class (m,); see `judge_rows`."""
        gap, violations, ahead = judge_rows(self.F, self.y, self.costs, self.share)
        return gap, violations, ahead

    def measure_dual(self) -> float:
        """Return D, assuming that all rows outside the active set have zero multipliers."""
        alpha = self.alpha
        return float(np.sum(alpha[np.arange(len(self.y)), self.y]) - np.sum(alpha * self.F.T) / 2)


@dataclass
class Rounds:
    """The settings of the rounds that improve an active set, the random generator, and the last working set.

    constant: s^2. size: the number of rows of a working set. damping: see decomposition.active_set.Rounds. gap: the
    relative duality gap at which the rounds stop if all rows are active; else None. previous: the last working set. K:
    the kernel matrix of the last working set, including the constant and the damping.
    """

    kernel: Kernel
    constant: float
    size: int
    threads: int
    rng: np.random.Generator
    damping: float = 1.0
    gap: float | None = None
    previous: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    K: Values = field(default_factory=lambda: np.empty((0, 0)))


def improve(active: ActiveRows, rounds: Rounds, cache: ColumnCache, tol: float) -> bool:
    """Run rounds until the violation is at most tol or the gap is small enough; return whether they succeeded."""
    rise, idle, jumps, n_rows = 0.0, 0, 0, len(active.rows)
    most_jumps = VAIN_JUMPS if n_rows > rounds.size else 1
    limit = SAME_SET_ROUNDS if n_rows <= rounds.size else min(MOST_ROUNDS, BASE_ROUNDS + ROUNDS_PER_ROW * n_rows)
    for _ in range(limit):
        interrupts.check()
        gap, violations, ahead = active.judge()
        violation = float(np.max(violations))
        if violation <= tol or (rounds.gap is not None and gap <= rounds.gap * (active.measure_dual() + gap)):
            return True
        if idle == MOST_IDLE_ROUNDS or jumps == most_jumps or deadline.is_over():
            break
        chosen = _choose_working_set(violations, ahead, rounds, tol)
        gain, is_last = _improve_working_set(active, rounds, cache, chosen, max(tol / 2, SWEEP_TOL_SHARE * violation))
        jumps += is_last
        rise, idle = rise + gain, idle + 1 if gain <= LEAST_ROUND_RISE * rise else 0
    return False


def _choose_working_set(violations: F64, ahead: F64, rounds: Rounds, tol: float) -> I64:
    """Return up to half of the last working set (divided rows first) and the worst violators."""
    if len(violations) <= rounds.size:
        return np.arange(len(violations))
    free = ahead[rounds.previous] == 0.0
    kept = np.concatenate((rounds.previous[free], rounds.previous[~free]))[: rounds.size // PREVIOUS_SET_DIVISOR]
    worst = find_largest(violations, rounds.size)
    return join_rows(kept, worst[violations[worst] > tol / 2], rounds.size)


def _improve_working_set(
    active: ActiveRows, rounds: Rounds, cache: ColumnCache, chosen: I64, tol: float
) -> tuple[float, bool]:
    """Improve the shares of the chosen rows.

    Return the rise of D, and whether a jump (the interior-point method) failed, or covered the whole active set.
    """
    K = _form_kernel(active, rounds, cache, chosen)
    share, F, before = active.share[chosen], np.ascontiguousarray(active.F[:, chosen]), active.alpha[chosen]
    require_finite(F)
    rise, y, costs, is_last = 0.0, active.y[chosen], active.costs[chosen], False
    is_whole = len(chosen) == len(active.rows)
    for sweep in range(MOST_SWEEPS):
        interrupts.check()
        order = rounds.rng.permutation(len(chosen))
        worst, gain = visit_rows(K, y, costs, share, F, order, LEAST_SHARE * tol)
        rise += gain
        if worst <= tol or deadline.is_over():
            break
        if sweep == SWEEPS_BEFORE and len(share) <= count_jump_rows(share.shape[1]):
            share, F, gain = _jump(K, y, costs, share, F, is_whole)
            rise, is_last = rise + gain, is_whole or gain <= 0.0
            break
    active.share[chosen] = share
    if is_whole:
        active.F = F
        return rise, is_last
    coefs = multiply_shares(share, y, costs) - before
    changed = np.flatnonzero(np.any(coefs != 0.0, axis=1))
    _update_sums(active, rounds, cache, chosen[changed], rounds.damping * np.ascontiguousarray(coefs[changed].T))
    return rise, is_last


def _jump(K: Values, y: I32, costs: F64, share: F64, F: F64, is_whole: bool) -> tuple[F64, F64, float]:
    """Run the interior-point method; return the new shares, their sums F and the rise of D.

    If the result is no better, return the old shares and sums, and 0. is_whole: whether the working set is the whole
    active set. If so, results are compared by their gaps instead of D, since sweeps may have reached a higher D at a
    far larger P.
    """
    found = solve_by_interior_point(K, y, costs, share, F)
    moves = multiply_shares(found, y, costs) - multiply_shares(share, y, costs)
    after = np.ascontiguousarray(F + moves.T @ K)
    gain = float(np.sum(moves[np.arange(len(y)), y]) - np.sum(moves.T * (F + after)) / 2)
    falls = judge_rows(after, y, costs, found)[0] < judge_rows(F, y, costs, share)[0]
    return (found, after, gain) if (falls if is_whole else gain > 0.0) else (share, F, 0.0)


def _form_kernel(active: ActiveRows, rounds: Rounds, cache: ColumnCache, chosen: I64) -> Values:
    """Return (K_WW + s^2) times the damping, for the chosen rows; reuse the last matrix if the rows are the same.

    Raises InputError if values are beyond the range of floating-point numbers.
    """
    if not np.array_equal(chosen, rounds.previous):
        K = form_kernel(rounds.kernel, active.X, cache, chosen, rounds.threads)
        require_finite(K)
        rounds.K = scale(np.add(K, K.dtype.type(rounds.constant), out=K), rounds.damping)
        rounds.previous = chosen
    return rounds.K


def _update_sums(active: ActiveRows, rounds: Rounds, cache: ColumnCache, changed: I64, coefs: F64) -> None:
    """Add sum_c coefs_kc (k(x_i, x_c) + s^2) over the changed rows c to F_ik, using cached kernel columns."""
    active.F += rounds.constant * np.sum(coefs, axis=1)[:, None]
    if rounds.kernel.name == "linear":
        active.F += compute_scores(active.X, combine_rows_of(take_rows(active.X, changed), coefs)).T
        return
    cached = cache.slot[changed] >= 0
    for is_cached in (True, False):
        places = np.flatnonzero(cached == is_cached)
        for at in range(0, len(places), BLOCK_COLUMNS):
            part = places[at : at + BLOCK_COLUMNS]
            rows = changed[part]
            columns = cache.columns[cache.slot[rows]] if is_cached else _compute_columns(active, rounds, cache, rows)
            # multiply in the precision of the columns, without a copy of them in float64
            active.F += np.matmul(coefs[:, part], columns, dtype=columns.dtype, casting="same_kind")


def _compute_columns(active: ActiveRows, rounds: Rounds, cache: ColumnCache, rows: I64) -> Values:
    """Return the kernel columns of these rows, (m', m), and cache them if the cache has room for all of them."""
    n, m = len(active.rows), len(rows)
    keeps = m <= len(cache.owner)
    store = cache.columns if keeps else np.empty((m, n), cache.columns.dtype)
    slots = cache.assign(rows) if keeps else np.arange(m)
    unused = np.zeros(m), np.zeros(n)
    add_kernel_sums(rounds.kernel, active.X, take_rows(active.X, rows), *unused, rounds.threads, (store, slots))
    return store[slots]
