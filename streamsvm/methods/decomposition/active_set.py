"""The active set: rows held in memory, whose multipliers are improved by one working set after another.

    repeat: choose a working set W by a rule from the rows' errors
            improve a_W by an inner solver, K_WW by matrix product, the other multipliers fixed
            f_i += sum over changed rows of (change of a_j y_j) k(x_i, x_j)      for the rows of the active set
    until no pair of rows violates the KKT conditions by more than tol

(Osuna's and Joachims' decomposition; Pérez-Cruz et al. 2000, section 2.) The linear kernel is folded into
w = sum a_j y_j x_j: f = X w, no kernel values but K_WW. Columns of other kernels are kept in a cache of bounded size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm import interrupts
from streamsvm.errors import InputError
from streamsvm.methods.decomposition.pair_updates import solve_by_few_pairs
from streamsvm.methods.decomposition.platt import solve_by_platt
from streamsvm.methods.decomposition.reweighting import solve_by_reweighting
from streamsvm.methods.decomposition.selection import choose_working_set, find_conditions
from streamsvm.methods.decomposition.working_set import WorkingSet
from streamsvm.methods.decomposition.working_set_qp import solve_by_qp
from streamsvm.numeric.certificates import certify
from streamsvm.numeric.kernels import Kernel, add_chosen_columns, add_kernel_sums, compute_kernel, copy_columns
from streamsvm.numeric.rows import F64, I64, Matrix, Values, take_rows

MOST_ROUNDS = 1000  # of working sets, in a step
LEAST_ROUNDS = 50  # and ROUNDS_A_ROW a row: few rows are better solved as one working set than by more rounds
ROUNDS_A_ROW = {"smo": 4, "irwls": 1, "qp": 1}  # the latter's rounds are longer
IDLE_ROUNDS = 20  # in which D has not risen by LEAST_RISE of its rise so far: rounding is the limit
LEAST_RISE = 1e-12
HARD_ROUNDS = 5  # whose working sets could not be solved, in a step: a pass, or more digits, may help
PLATT_VALUES_PER_PAIR, LEAST_PLATT_VALUES = 100, 3_000_000  # looked at by Platt's sweeps, in a step
UNSOLVED = 2.0  # times the violation that was asked for
LONG_BYTES = 2048  # of a row: its product with another takes as long as a kernel value from the cache
INNER_SHARE = 0.1  # a working set is solved to this share of the violation it was chosen at
InnerSolver = Callable[[WorkingSet, float], F64]
INNER_SOLVERS: dict[str, InnerSolver] = {"smo": solve_by_few_pairs, "irwls": solve_by_reweighting, "qp": solve_by_qp}


@dataclass
class ActiveSet:
    """Rows in memory. X (m, d); y (m,), -1 or +1; costs, alpha, f (m,); rows: (m,) numbers in the dataset.

    Where f is to be proved: errors (m,), how far it was off when it was formed; moved: the sum of all changes of
    multipliers since then, each without its sign; terms (m,): the sum of these times a Gaussian kernel's values.
    """

    X: Matrix
    y: F64
    costs: F64
    alpha: F64
    f: F64
    rows: I64
    errors: F64 = field(default_factory=lambda: np.empty(0))
    terms: F64 = field(default_factory=lambda: np.empty(0))
    moved: float = 0.0


@dataclass
class ColumnCache:
    """Kernel columns of rows of the active set, (slots, m), of their type; the oldest is given up first."""

    columns: Values
    slot: I64
    owner: I64
    next: int = 0

    @classmethod
    def of_size(cls, n_rows: int, limit_bytes: int, dtype: Any = np.float32) -> ColumnCache:
        """Make room for as many columns of n_rows as fit."""
        n_slots = min(n_rows, limit_bytes // max(1, np.dtype(dtype).itemsize * n_rows))
        return cls(np.empty((n_slots, n_rows), dtype), np.full(n_rows, -1), np.full(n_slots, -1))

    def assign(self, rows: I64) -> I64:
        """Give slots to rows that have none, no more rows than there are slots; return the slots."""
        slots = (self.next + np.arange(len(rows))) % len(self.owner)
        self.next = int(slots[-1] + 1)
        gone = self.owner[slots]
        self.slot[gone[gone >= 0]] = -1
        self.owner[slots], self.slot[rows] = rows, slots
        return slots


@dataclass
class Rounds:
    """How an active set is improved, and what it needs on the way.

    damping >= 1: the kernel's values are taken so many times, as if every active row moved for that many rows that are
    not active and will move like it. D still rises (Ma et al. 2015, "Adding vs. averaging", sigma').
    gap: where all rows are active, the relative duality gap that is good enough.
    """

    kernel: Kernel
    inner: str
    rule: str
    size: int
    threads: int
    rng: np.random.Generator
    damping: float = 1.0
    gap: float | None = None
    before: I64 = field(default_factory=lambda: np.empty(0, np.int64))


def improve(active: ActiveSet, rounds: Rounds, cache: ColumnCache, tol: float, limit: int) -> bool:
    """Carry out rounds, `limit` at most, until the violation is at most tol; alpha and f change in place.

    Return whether it came to that, or to the gap that is good enough.
    """
    if rounds.rule == "platt":
        return _improve_by_platt(active, rounds, cache, tol)
    rise, best, idle, hard = 0.0, 0.0, 0, 0
    for _ in range(min(limit, LEAST_ROUNDS + ROUNDS_A_ROW[rounds.inner] * len(active.rows))):
        interrupts.check()
        conditions = find_conditions(active.y, active.costs, active.alpha, active.f)
        if conditions.violation <= tol or _has_gap(active, conditions.bias, rounds.gap):
            return True
        if idle == IDLE_ROUNDS or hard == HARD_ROUNDS:
            break
        chosen = choose_working_set(
            rounds.rule, conditions, active.alpha, active.costs, rounds.before, rounds.size, tol / 2, rounds.rng
        )
        rounds.before = chosen
        gain, is_solved = _improve_working_set(active, rounds, cache, chosen, tol)
        rise, hard = rise + gain, hard + (not is_solved)
        best, idle = max(best, rise), 0 if rise > best * (1 + LEAST_RISE) else idle + 1
    return False


def _improve_working_set(
    active: ActiveSet, rounds: Rounds, cache: ColumnCache, chosen: I64, tol: float
) -> tuple[float, bool]:
    """Improve some rows' multipliers; return the rise of D, and whether the working set was solved.

    Where D would fall, since kernel values are too coarse for such multipliers, everything stays as it was.
    """
    problem = WorkingSet(
        _scale(_form_kernel(active, rounds, cache, chosen), rounds.damping), active.y[chosen],
        active.alpha[chosen], active.f[chosen], active.costs[chosen],
    )  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.sum(problem.K, dtype=np.float64) + np.sum(problem.f)
    if not np.isfinite(size):
        raise InputError("kernel values beyond the range of floating-point numbers: scale the features to about 1")
    asked = max(tol / 2, INNER_SHARE * problem.violation())
    moved = INNER_SOLVERS[rounds.inner](problem, asked)
    changed = np.flatnonzero(moved != problem.alpha)
    coef = (moved - problem.alpha)[changed] * problem.y[changed]
    before = active.f.copy()
    active.alpha[chosen] = moved
    _update_sums(active, rounds, cache, chosen[changed], rounds.damping * coef)
    gain = float(np.sum(moved - problem.alpha)) - float(coef @ (problem.f + active.f[chosen])[changed]) / 2
    if not gain >= 0.0:
        active.alpha[chosen], active.f[:] = problem.alpha, before
        return 0.0, False
    after = WorkingSet(problem.K, problem.y, moved, active.f[chosen], problem.costs)
    return gain, after.violation() <= UNSOLVED * asked


def _has_gap(active: ActiveSet, bias: float, gap: float | None) -> bool:
    return gap is not None and certify(active.y, active.costs, active.alpha, active.f, bias).relative_gap <= gap


def _form_kernel(active: ActiveSet, rounds: Rounds, cache: ColumnCache, chosen: I64) -> Values:
    """K_WW of the chosen rows, from the cache where a column is there and rows are long enough to make that faster."""
    slots = cache.slot[chosen] if active.X.nbytes >= LONG_BYTES * len(active.rows) else np.full(len(chosen), -1)
    new = np.flatnonzero(slots < 0)
    K_new = compute_kernel(rounds.kernel, take_rows(active.X, chosen[new]), rounds.threads)
    if len(new) == len(chosen):
        return K_new
    K: Values = np.empty((len(chosen), len(chosen)), K_new.dtype)
    K[np.ix_(new, new)] = K_new
    copy_columns(cache.columns, slots, chosen, K, rounds.threads)
    return K


def _scale(K: Values, factor: float) -> Values:
    return np.multiply(K, K.dtype.type(factor), out=K)


def _improve_by_platt(active: ActiveSet, rounds: Rounds, cache: ColumnCache, tol: float) -> bool:
    """Platt's two loops over the whole active set, which holds all rows: no other multiplier has a share in f."""
    seed, cache_bytes = int(rounds.rng.integers(1 << 31)), cache.columns.nbytes
    most = PLATT_VALUES_PER_PAIR * len(active.y) ** 2 + LEAST_PLATT_VALUES
    found = solve_by_platt(
        active.X, active.y, active.costs, rounds.kernel, active.alpha, tol, cache_bytes, seed, max_values=most
    )
    changed = np.flatnonzero(found.alpha != active.alpha)
    coef = (found.alpha - active.alpha)[changed] * active.y[changed]
    active.alpha[:] = np.clip(found.alpha, 0.0, active.costs)
    active.moved += float(np.sum(np.abs(coef)))
    active.terms += float(np.sum(np.abs(coef)))
    add_kernel_sums(rounds.kernel, active.X, take_rows(active.X, changed), coef, active.f, rounds.threads)
    return found.converged


def _update_sums(active: ActiveSet, rounds: Rounds, cache: ColumnCache, changed: I64, coef: F64) -> None:
    """f_i += sum_c coef_c k(x_i, x_c), from the cache where a column is there."""
    active.moved += float(np.sum(np.abs(coef)))
    slots = cache.slot[changed]
    known = slots >= 0
    add_chosen_columns(cache.columns, slots[known], coef[known], active.f, rounds.threads)
    new, new_coef = changed[~known], coef[~known]
    kept = len(new) if rounds.kernel.name != "linear" else 0
    kept = min(kept, len(cache.owner))
    for part in (slice(kept, None), slice(kept)):  # those that find no room, then those that are kept
        if len(new[part]):
            into = (cache.columns, cache.assign(new[part])) if part.start is None else None
            X = take_rows(active.X, new[part])
            add_kernel_sums(rounds.kernel, active.X, X, new_coef[part], active.f, rounds.threads, into)
    if rounds.kernel.name == "rbf" and len(active.terms):
        known = cache.slot[changed] >= 0
        kept_slots, sizes = cache.slot[changed[known]], np.abs(coef)
        add_chosen_columns(cache.columns, kept_slots, sizes[known], active.terms, rounds.threads)
        active.terms += float(np.sum(sizes[~known]))
