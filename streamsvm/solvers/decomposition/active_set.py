"""The active set: rows in memory, whose multipliers are improved one working set at a time.

    repeat: choose a working set W by a selection rule from the errors of the rows
            improve a_W by an inner solver, with K_WW from a matrix product and the other multipliers fixed
            f_i += sum over changed rows of (change of a_j y_j) k(x_i, x_j)      for the rows of the active set
    until no pair of rows violates the KKT conditions by more than tol

Symbols: a_i, the multipliers (`alpha`); f_i = sum_j a_j y_j k(x_i, x_j) over all rows of the data; m, the number of
rows of the active set. This is the decomposition of Osuna and of Joachims, as in section 2 of Pérez-Cruz et al. 2000. A
linear kernel is folded into w = sum_j a_j y_j x_j, so that f = X w, and K_WW are the only kernel values needed. For
other kernels a cache of bounded size holds kernel columns of active rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from streamsvm.kernels.kernel import Kernel, add_chosen_columns, add_kernel_sums, compute_kernel, copy_columns
from streamsvm.numeric.rows import F64, I64, Matrix, Values, take_rows
from streamsvm.solvers.decomposition.hinges import AnyRows, NuTubeRows, SummedRows, Totals, Tube, cut_step, make_hinges
from streamsvm.solvers.decomposition.inner_solvers import INNER_SOLVERS, NO_LIMIT
from streamsvm.solvers.decomposition.platt import solve_by_platt
from streamsvm.solvers.decomposition.working_set import Conditions, WorkingSet, choose_working_set
from streamsvm.system import deadline, interrupts
from streamsvm.system.errors import InputError

LONG_ROW_BYTES = 2048  # a product of two rows of this length takes as long as reading a kernel value from the cache
# A round chooses and improves one working set. A step has at most MOST_ROUNDS rounds, and at most BASE_ROUNDS plus
# ROUNDS_PER_ROW times the active rows, since few rows gain little from more rounds. Rounds of "smo" are the shortest.
MOST_ROUNDS, BASE_ROUNDS = 1000, 50
ROUNDS_PER_ROW = {"smo": 4, "irwls": 1, "qp": 1}
MOST_IDLE_ROUNDS = 20  # a step ends after this many rounds without a rise of D: further changes would be rounding
LEAST_ROUND_RISE = 1e-12  # D counts as risen if it grows by at least this share of its rise in the step so far
MOST_UNSOLVED_ROUNDS = 5  # a step ends after this many unsolved working sets: only a pass or more digits may help
UNSOLVED_VIOLATION = 2.0  # a working set is unsolved if its violation is more than this many times the requested one
# Platt's sweeps end after this many kernel values: a multiple of the number of pairs of rows, plus a constant.
PLATT_VALUES_PER_PAIR, LEAST_PLATT_VALUES = 100, 3_000_000
INNER_TOL_SHARE = 0.1  # a working set is solved to this share of the violation that it had when it was chosen


@dataclass
class ColumnCache:
    """Kernel columns of some rows of the active set. A new column replaces the oldest one.

    columns: (slots, m), the kernel columns. slot: (m,), the slot of each row's column, or -1. owner: (slots,), the row
    in each slot, or -1. next: the slot to assign next.
    """

    columns: Values
    slot: I64
    owner: I64
    next: int = 0

    @classmethod
    def of_size(cls, n_rows: int, limit_bytes: int, dtype: npt.DTypeLike = np.float32) -> ColumnCache:
        """Return an empty cache with as many slots as fit into limit_bytes, at most one for each row."""
        n_slots = min(n_rows, limit_bytes // max(1, np.dtype(dtype).itemsize * n_rows))
        return cls(np.empty((n_slots, n_rows), dtype), np.full(n_rows, -1), np.full(n_slots, -1))

    @classmethod
    def of_all(cls, K: Values) -> ColumnCache:
        """Return a cache that holds the columns of all rows."""
        require_finite(K)
        return cls(K, np.arange(len(K)), np.arange(len(K)))

    def assign(self, rows: I64) -> I64:
        """Assign slots to rows that have none, and return them. There must be at least as many slots as rows."""
        slots = (self.next + np.arange(len(rows))) % len(self.owner)
        self.next = int(slots[-1] + 1)
        evicted = self.owner[slots]
        self.slot[evicted[evicted >= 0]] = -1
        self.owner[slots], self.slot[rows] = rows, slots
        return slots


def require_finite(values: Values) -> None:
    """Raise InputError if kernel values, or sums of them, have overflowed."""
    if not (math.isfinite(values.max()) and math.isfinite(values.min())):
        raise InputError("kernel values are beyond the range of floating-point numbers: scale the features to about 1")


def form_kernel(kernel: Kernel, X: Matrix, cache: ColumnCache, chosen: I64, threads: int) -> Values:
    """Return K_WW of the chosen rows of X, from cached columns if the rows are long enough for this to be faster."""
    rows_are_long = X.nbytes >= LONG_ROW_BYTES * X.shape[0]
    slots = cache.slot[chosen] if rows_are_long else np.full(len(chosen), -1)
    new = np.flatnonzero(slots < 0)
    K_new = compute_kernel(kernel, take_rows(X, chosen[new]), threads)
    if len(new) == len(chosen):
        return K_new
    K: Values = np.empty((len(chosen), len(chosen)), K_new.dtype)
    K[np.ix_(new, new)] = K_new
    copy_columns(cache.columns, slots, chosen, K, threads)
    return K


def scale(K: Values, factor: float) -> Values:
    """Multiply K by the factor in place, in its own precision, and return it."""
    return K if factor == 1.0 else np.multiply(K, K.dtype.type(factor), out=K)


@dataclass
class ActiveSet:
    """m rows in memory.

    X (m, d): features. y (m,): labels, -1 or +1. costs, alpha, f (m,): costs, multipliers and sums. rows (m,): row
    numbers in the dataset.

    tube: the tube of a regression, where y is the side of each row, or None. totals: the sums of the multipliers of
    both sides if these are fixed (FixedSum), or None.

    Five fields serve to bound the errors of f. errors: (m,), a bound of the errors when f was last recomputed. moved:
    the sum of |change of a_j| over all changes since then. additions: the number of these changes. terms: (m,), the sum
    of |change of a_j| k(x_i, x_j) over these changes, or empty if the bound does not use it
    (all_active.bounds_by_terms). largest: the greatest kernel value.
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
    additions: int = 0
    largest: float = 1.0
    tube: Tube | None = None
    totals: Totals | None = None

    @property
    def hinges(self) -> AnyRows:
        """The hinges of the rows."""
        return make_hinges(self.y, self.costs, self.alpha, self.f, self.tube, self.totals)

    @property
    def has_labels(self) -> bool:
        """Whether the rows' corners are class labels y, as for two classes: no regression, and no fixed sums."""
        return self.tube is None and self.totals is None

    def settle(self) -> Conditions:
        """Assign each row to a side (see `choose_sides`); return the optimality conditions."""
        if self.tube is not None:
            self.y = self.hinges.choose_sides()
        return self.hinges.find_conditions()


@dataclass
class Rounds:
    """The settings of the rounds that improve an active set, and the last working set.

    inner: a name in INNER_SOLVERS. rule: one of working_set.RULES. size: the number of rows of a working set.
    damping: a factor of at least 1 by which kernel values are multiplied, as if each active row represented that many
    rows that will move in the same way. D still rises (sigma' of Ma et al. 2015, "Adding vs. averaging").
    gap: the relative duality gap at which the rounds stop if all rows are active; else None.
    inner_share: a working set is solved to this share of its violation, or to half of the requested violation if that
    is more.
    previous: the last working set, in the order in which its rows joined it.
    most_pairs: the maximum number of pair steps of SMO. pairs: the number of pair steps made so far.
    """

    kernel: Kernel
    inner: str
    rule: str
    size: int
    threads: int
    seed: int | tuple[int, ...]
    damping: float = 1.0
    gap: float | None = None
    inner_share: float = INNER_TOL_SHARE
    previous: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    most_pairs: int = NO_LIMIT
    pairs: int = 0

    @cached_property
    def rng(self) -> np.random.Generator:
        """The random generator of the rules that draw."""
        return np.random.default_rng(self.seed)


def improve(active: ActiveSet, rounds: Rounds, cache: ColumnCache, tol: float, limit: int) -> bool:
    """Run at most `limit` rounds until the violation is at most tol; alpha and f change in place.

    Return whether the violation, or the gap (see `Rounds`), became small enough.
    """
    if rounds.rule == "platt":
        return _improve_by_platt(active, rounds, cache, tol)
    rise, best_rise, idle, unsolved = 0.0, 0.0, 0, 0
    for _ in range(min(limit, BASE_ROUNDS + ROUNDS_PER_ROW[rounds.inner] * len(active.rows))):
        interrupts.check()
        conditions = active.settle()
        has_gap = rounds.gap is not None and active.hinges.certify(conditions.bias).relative_gap <= rounds.gap
        if has_gap or conditions.violation <= tol:
            return True
        is_over = rounds.pairs == rounds.most_pairs or deadline.is_over()
        if idle == MOST_IDLE_ROUNDS or unsolved == MOST_UNSOLVED_ROUNDS or is_over:
            break
        if len(active.rows) <= rounds.size:
            chosen = np.arange(len(active.rows))
        else:
            chosen = choose_working_set(rounds.rule, conditions, rounds.previous, rounds.size, tol / 2, rounds.rng)
        rounds.previous = chosen
        gain, is_solved = _improve_working_set(active, rounds, cache, chosen, tol)
        rise, unsolved = rise + gain, unsolved + (not is_solved)
        best_rise, idle = max(best_rise, rise), 0 if rise > best_rise * (1 + LEAST_ROUND_RISE) else idle + 1
    return False


def _improve_working_set(
    active: ActiveSet, rounds: Rounds, cache: ColumnCache, chosen: I64, tol: float
) -> tuple[float, bool]:
    """Improve the multipliers of the chosen rows; return the rise of D, and whether the working set was solved.

    If D falls, because kernel values are too imprecise, the old multipliers are restored.
    """
    y, alpha, f, costs = (each[chosen] for each in (active.y, active.alpha, active.f, active.costs))
    hinges, K = active.hinges, _form_kernel(active, rounds, cache, chosen)
    problem = WorkingSet(K, y, alpha, f, costs, None if active.has_labels else hinges.corners[chosen], hinges.by_side)
    require_finite(f)
    asked = max(tol / 2, rounds.inner_share * problem.violation())
    alpha = _solve_working_set(hinges, rounds, problem, asked)
    change = alpha - problem.alpha
    changed = change.nonzero()[0]
    coef = (change * y)[changed]
    f_before = active.f.copy()
    active.alpha[chosen] = alpha
    _update_sums(active, rounds, cache, chosen[changed], rounds.damping * coef)
    gain = _sum_gains(problem, change) - float(coef @ (problem.f + active.f[chosen])[changed]) / 2
    if not gain >= 0.0:
        active.alpha[chosen], active.f[:] = problem.alpha, f_before
        return 0.0, False
    after = WorkingSet(K, y, alpha, active.f[chosen], costs, problem.corners, problem.by_side)
    return gain, after.violation() <= UNSOLVED_VIOLATION * asked


def _solve_working_set(hinges: AnyRows, rounds: Rounds, problem: WorkingSet, tol: float) -> F64:
    """Return the solved multipliers of a working set. In nu-SVR, their sum rises by at most `room` (hinges.py)."""
    alpha = _run_inner(rounds, problem, tol)
    if not isinstance(hinges, NuTubeRows) or problem.by_side:
        return alpha
    cut = cut_step(problem.alpha, alpha, hinges.room)
    if hinges.room == 0.0 and np.array_equal(cut, problem.alpha):
        return _run_inner(rounds, replace(problem, by_side=True), tol)
    return np.clip(cut, 0.0, problem.costs)


def _run_inner(rounds: Rounds, problem: WorkingSet, tol: float) -> F64:
    """Return the multipliers that the inner solver finds, and count its pair steps."""
    inner = "smo" if problem.by_side else rounds.inner  # only pair steps keep the sums of both sides
    alpha, pairs = INNER_SOLVERS[inner](problem, tol, rounds.most_pairs - rounds.pairs)
    rounds.pairs += pairs
    return alpha


def _sum_gains(problem: WorkingSet, change: F64) -> float:
    """Return the change of sum_i a_i y_i c_i, given the change of a_i, (q,).

    The mean is subtracted from the corners c_i. This does not affect the change, since sum_i y_i a_i is constant.
    """
    if problem.corners is None:
        return float(change.sum())
    return float((change * problem.y) @ (problem.corners - np.mean(problem.corners)))


def _form_kernel(active: ActiveSet, rounds: Rounds, cache: ColumnCache, chosen: I64) -> Values:
    """Return K_WW of the chosen rows, times the damping. The damping is 1 if all rows are active."""
    if rounds.damping == 1.0 and len(chosen) == len(cache.slot) and (cache.slot == chosen).all():
        return cache.columns  # never scaled in place, since the damping is 1
    K = scale(form_kernel(rounds.kernel, active.X, cache, chosen, rounds.threads), rounds.damping)
    require_finite(K)
    return K


def _improve_by_platt(active: ActiveSet, rounds: Rounds, cache: ColumnCache, tol: float) -> bool:
    """Improve the whole active set, which must hold all rows (so that f has no other terms), by Platt's two loops."""
    seed, most = int(rounds.rng.integers(1 << 31)), PLATT_VALUES_PER_PAIR * len(active.y) ** 2 + LEAST_PLATT_VALUES
    problem, cache_bytes = (active.X, active.y, active.costs, rounds.kernel), cache.columns.nbytes
    found = solve_by_platt(*problem, active.alpha, tol, cache_bytes, seed, max_values=most)
    changed = np.flatnonzero(found.alpha != active.alpha)
    coef = (found.alpha - active.alpha)[changed] * active.y[changed]
    size = float(np.sum(np.abs(coef)))
    active.alpha[:] = np.clip(found.alpha, 0.0, active.costs)
    active.moved, active.additions = active.moved + size, active.additions + len(coef)
    active.terms += active.largest * size
    add_kernel_sums(rounds.kernel, active.X, take_rows(active.X, changed), coef, active.f, rounds.threads)
    return found.converged


def fill(active: ActiveSet, rounds: Rounds, cache: ColumnCache) -> None:
    """If the multipliers have fixed sums, raise them to these sums, starting with the rows of the lowest scores."""
    hinges = active.hinges
    if not isinstance(hinges, SummedRows):
        return
    rises = hinges.find_rises()
    changed = np.flatnonzero(rises)
    active.alpha[changed] = np.minimum(active.alpha + rises, active.costs)[changed]
    _update_sums(active, rounds, cache, changed, rounds.damping * (active.y * rises)[changed])


def _update_sums(active: ActiveSet, rounds: Rounds, cache: ColumnCache, changed: I64, coef: F64) -> None:
    """Add sum_c coef_c k(x_i, x_c) over the changed rows c to f_i, using cached kernel columns."""
    sizes = np.abs(coef)
    active.moved += float(sizes.sum())
    active.additions += len(sizes)
    slots = cache.slot[changed]
    is_cached = slots >= 0
    add_chosen_columns(cache.columns, slots[is_cached], coef[is_cached], active.f, rounds.threads)
    new, new_coef = changed[~is_cached], coef[~is_cached]
    n_kept = 0 if rounds.kernel.name == "linear" else min(len(new), len(cache.owner))
    for part, is_kept in ((slice(n_kept, None), False), (slice(n_kept), True)):
        if len(new[part]):
            into = (cache.columns, cache.assign(new[part])) if is_kept else None
            X = take_rows(active.X, new[part])
            add_kernel_sums(rounds.kernel, active.X, X, new_coef[part], active.f, rounds.threads, into)
    if len(active.terms):
        is_cached = cache.slot[changed] >= 0
        slots = cache.slot[changed[is_cached]]
        add_chosen_columns(cache.columns, slots, sizes[is_cached], active.terms, rounds.threads)
        active.terms += active.largest * float(sizes[~is_cached].sum())
