"""The active set: rows in memory, whose shares one working set after another improves.

    repeat: choose a working set W, half of the last one and the rows that violate their conditions most
            visit its rows in random order, again and again, with K_WW in memory (row_steps.py)
            F_ik += sum over changed rows j of (change of alpha_jk) k(x_i, x_j)      for the rows of the active set
    until no row violates its condition by more than tol, or the gap is small enough

A jump takes the place of further sweeps where many have not solved a working set: the interior-point method.

The kernel is k(x, z) + s^2, where s is the constant feature whose weights are the biases.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm import deadline, interrupts
from streamsvm.errors import InputError
from streamsvm.methods.class_decomposition.interior_point import count_jump_rows, solve_by_interior_point
from streamsvm.methods.class_decomposition.row_steps import judge_rows, visit_rows
from streamsvm.methods.decomposition.kernel_columns import ColumnCache, form_kernel, scale
from streamsvm.methods.decomposition.selection import PREVIOUS_SET_DIVISOR, find_largest, join_rows
from streamsvm.numeric.class_shares import multiply_shares
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, combine_rows_of
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, I32, I64, Matrix, Values, take_rows

MOST_ROUNDS, BASE_ROUNDS, ROUNDS_PER_ROW = 1000, 50, 4  # of a step, as in decomposition.active_set
SAME_SET_ROUNDS = 20  # of a step whose active rows are one working set, so that slow steps are seen, and can be stopped
MOST_SWEEPS = 100  # visits of all rows of a working set
SWEEPS_BEFORE = 20  # of a jump, as far as there is one
VAIN_JUMPS = 5  # in a step: after so many that have not raised D, a pass or more digits may help
MOST_IDLE_ROUNDS, LEAST_ROUND_RISE = 20, 1e-12  # after so many rounds without such a rise of D, rounding is the limit
SWEEP_TOL_SHARE = 0.1  # a working set is solved to this share of the violation at which it was chosen
LEAST_SHARE = 0.1  # a row is visited if its violation is above this share of the one that is asked for
OUT_OF_RANGE = "kernel values are beyond the range of floating-point numbers: scale the features to about 1"
BLOCK_COLUMNS = 256  # kernel columns that are copied at once


@dataclass
class ActiveRows:
    """m rows in memory: X (m, d), y, costs, rows (m,), their numbers in the dataset, share (m, K), and F (K, m)."""

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
        """Return P - D, the violations (m,), and by how much the best class of each row is ahead, (m,)."""
        violations, ahead = np.empty((2, len(self.y)))
        gap = judge_rows(self.F, self.y, self.costs, self.share, violations, ahead)
        return gap, violations, ahead

    def measure_dual(self) -> float:
        """Return D of the rows, if no other rows have multipliers."""
        alpha = self.alpha
        return float(np.sum(alpha[np.arange(len(self.y)), self.y]) - np.sum(alpha * self.F.T) / 2)


@dataclass
class Rounds:
    """How an active set is improved: settings of its rounds, the random numbers, and the last working set.

    constant: s^2. size: the rows of a working set. damping: see decomposition.active_set.Rounds. gap: the relative
    duality gap that is small enough if all rows are active, else None. previous: the last working set; K: its kernel
    matrix, with the constant and the damping.
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
    """Carry out rounds until the violation is at most tol, or the gap is small enough; return whether it became so."""
    rise, idle, jumps, n_rows = 0.0, 0, 0, len(active.rows)
    most_jumps = VAIN_JUMPS if n_rows > rounds.size else 1
    limit = SAME_SET_ROUNDS if n_rows <= rounds.size else min(MOST_ROUNDS, BASE_ROUNDS + ROUNDS_PER_ROW * n_rows)
    for _ in range(limit):
        interrupts.check()
        gap, violations, ahead = active.judge()
        violation = float(np.max(violations))
        if violation <= tol or _has_gap(active, gap, rounds.gap):
            return True
        if idle == MOST_IDLE_ROUNDS or jumps == most_jumps or deadline.is_over():
            break
        chosen = _choose_working_set(violations, ahead, rounds, tol)
        gain, is_last = _improve_working_set(active, rounds, cache, chosen, max(tol / 2, SWEEP_TOL_SHARE * violation))
        jumps += is_last
        rise, idle = rise + gain, idle + 1 if gain <= LEAST_ROUND_RISE * rise else 0
    return False


def _has_gap(active: ActiveRows, gap: float, wanted: float | None) -> bool:
    return wanted is not None and gap <= wanted * (active.measure_dual() + gap)


def _choose_working_set(violations: F64, ahead: F64, rounds: Rounds, tol: float) -> I64:
    """Return up to half of the last working set, free rows first, and the rows that violate their conditions most."""
    if len(violations) <= rounds.size:
        return np.arange(len(violations))
    free = ahead[rounds.previous] == 0.0
    kept = np.concatenate((rounds.previous[free], rounds.previous[~free]))[: rounds.size // PREVIOUS_SET_DIVISOR]
    worst = find_largest(violations, rounds.size)
    return join_rows(kept, worst[violations[worst] > tol / 2], rounds.size)


def _improve_working_set(
    active: ActiveRows, rounds: Rounds, cache: ColumnCache, chosen: I64, tol: float
) -> tuple[float, bool]:
    """Improve the shares of the chosen rows; return the rise of D, and whether a jump was vain or moved all."""
    K = _form_kernel(active, rounds, cache, chosen)
    share, F, before = active.share[chosen], np.ascontiguousarray(active.F[:, chosen]), active.alpha[chosen]
    if not np.all(np.isfinite([np.max(F), np.min(F)])):
        raise InputError(OUT_OF_RANGE)
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
    """Return shares, sums and the rise of D by the interior-point method, or what was there if it is no better.

    is_whole: whether the working set is the active set; then the gaps are compared, since sweeps may reach a higher D
    with a far larger P.
    """
    found = solve_by_interior_point(K, y, costs, share, F)
    moves = multiply_shares(found, y, costs) - multiply_shares(share, y, costs)
    after = np.ascontiguousarray(F + moves.T @ K)
    gain = float(np.sum(moves[np.arange(len(y)), y]) - np.sum(moves.T * (F + after)) / 2)
    unused = np.empty((2, len(y)))
    falls = judge_rows(after, y, costs, found, *unused) < judge_rows(F, y, costs, share, *unused)
    return (found, after, gain) if (falls if is_whole else gain > 0.0) else (share, F, 0.0)


def _form_kernel(active: ActiveRows, rounds: Rounds, cache: ColumnCache, chosen: I64) -> Values:
    """Return K_WW of the chosen rows with the constant, times the damping; that of the last round if they are the same.

    InputError for values beyond the range of floating-point numbers.
    """
    if not np.array_equal(chosen, rounds.previous):
        K = form_kernel(rounds.kernel, active.X, cache, chosen, rounds.threads)
        if not np.all(np.isfinite([np.max(K), np.min(K)])):
            raise InputError(OUT_OF_RANGE)
        rounds.K = scale(np.add(K, K.dtype.type(rounds.constant), out=K), rounds.damping)
        rounds.previous = chosen
    return rounds.K


def _update_sums(active: ActiveRows, rounds: Rounds, cache: ColumnCache, changed: I64, coefs: F64) -> None:
    """Add sum_c coefs_kc (k(x_i, x_c) + s^2) over the changed rows c to F_ik, with columns from the cache if there."""
    active.F += rounds.constant * np.sum(coefs, axis=1)[:, None]
    if rounds.kernel.name == "linear":
        active.F += compute_scores(active.X, combine_rows_of(take_rows(active.X, changed), coefs)).T
        return
    cached = cache.slot[changed] >= 0
    for at in range(0, np.count_nonzero(cached), BLOCK_COLUMNS):
        part = np.flatnonzero(cached)[at : at + BLOCK_COLUMNS]
        _add_product(active.F, coefs[:, part], cache.columns[cache.slot[changed[part]]])
    for at in range(0, np.count_nonzero(~cached), BLOCK_COLUMNS):
        part = np.flatnonzero(~cached)[at : at + BLOCK_COLUMNS]
        _add_product(active.F, coefs[:, part], _compute_columns(active, rounds, cache, changed[part]))


def _compute_columns(active: ActiveRows, rounds: Rounds, cache: ColumnCache, rows: I64) -> Values:
    """Return the kernel columns of these rows, (m', m), and keep them in the cache if there is room for all."""
    n, m = len(active.rows), len(rows)
    keeps = m <= len(cache.owner)
    store = cache.columns if keeps else np.empty((m, n), cache.columns.dtype)
    slots = cache.assign(rows) if keeps else np.arange(m)
    unused = np.zeros(m), np.zeros(n)
    add_kernel_sums(rounds.kernel, active.X, take_rows(active.X, rows), *unused, rounds.threads, (store, slots))
    return store[slots]


def _add_product(F: F64, coefs: F64, columns: Values) -> None:
    """Add sum_c coefs_kc columns_ci to F_ki, in the precision of the columns."""
    F += np.matmul(coefs, columns, dtype=columns.dtype, casting="same_kind")
