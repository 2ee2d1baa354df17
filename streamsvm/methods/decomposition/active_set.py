"""The active set: rows in memory, whose multipliers one working set after another improves.

    repeat: choose a working set W by a rule from the rows' errors
            improve a_W by an inner solver, with K_WW from a matrix product and the other multipliers fixed
            f_i += sum over changed rows of (change of a_j y_j) k(x_i, x_j)      for the rows of the active set
    until no pair of rows violates the KKT conditions by more than tol

Symbols: a_i, the multipliers (`alpha`); f_i = sum_j a_j y_j k(x_i, x_j) over all rows of the data; m, the rows of the
active set. This is the decomposition of Osuna and of Joachims, as in section 2 of Pérez-Cruz et al. 2000. A linear
kernel is folded into w = sum_j a_j y_j x_j, so that f = X w needs no kernel values but K_WW. For the other kernels a
cache of bounded size keeps kernel columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from streamsvm import deadline, interrupts
from streamsvm.errors import InputError
from streamsvm.methods.decomposition.balance import restore_balance
from streamsvm.methods.decomposition.fixed_sums import SummedRows, Totals
from streamsvm.methods.decomposition.irwls import solve_by_irwls
from streamsvm.methods.decomposition.kernel_columns import ColumnCache, form_kernel, scale
from streamsvm.methods.decomposition.nu_tube import NuTubeRows, Tube, cut_step
from streamsvm.methods.decomposition.pair_updates import NO_LIMIT, run_few_pairs
from streamsvm.methods.decomposition.platt import solve_by_platt
from streamsvm.methods.decomposition.selection import Conditions, choose_working_set
from streamsvm.methods.decomposition.tube import AnyRows, Hinges, choose_sides
from streamsvm.methods.decomposition.working_set import WorkingSet
from streamsvm.methods.decomposition.working_set_qp import solve_by_qp
from streamsvm.numeric.kernels import Kernel, add_chosen_columns, add_kernel_sums
from streamsvm.numeric.rows import F64, I64, Matrix, Values, take_rows

# A round chooses and improves one working set. A step has MOST_ROUNDS rounds at most, and no more than BASE_ROUNDS plus
# ROUNDS_PER_ROW times the active rows: few rows gain little from more rounds. Rounds of "smo" are the shortest.
MOST_ROUNDS, BASE_ROUNDS = 1000, 50
ROUNDS_PER_ROW = {"smo": 4, "irwls": 1, "qp": 1}
MOST_IDLE_ROUNDS = 20  # after so many rounds in which D did not rise, rounding is the limit
LEAST_ROUND_RISE = 1e-12  # D rises in a round by at least this share of its rise in the step so far
MOST_UNSOLVED_ROUNDS = 5  # after so many working sets that were not solved, a pass or more digits may help
UNSOLVED_VIOLATION = 2.0  # a working set is not solved if its violation exceeds the one asked for by this factor
# Platt's sweeps end after so many kernel values: a multiple of the pairs of rows, and a number to begin with.
PLATT_VALUES_PER_PAIR, LEAST_PLATT_VALUES = 100, 3_000_000
INNER_TOL_SHARE = 0.1  # a working set is solved to this share of the violation at which it was chosen
# An inner solver takes the most pair steps of SMO that it may make, and also returns how many it has made.
InnerSolver = Callable[[WorkingSet, float, int], tuple[F64, int]]
INNER_SOLVERS: dict[str, InnerSolver] = {
    "smo": run_few_pairs,
    "irwls": lambda problem, tol, _: (solve_by_irwls(problem, tol), 0),
    "qp": lambda problem, tol, _: (solve_by_qp(problem, tol), 0),
}


@dataclass
class ActiveSet:
    """m rows in memory. X (m, d); y (m,), -1 or +1; costs, alpha, f (m,); rows (m,), their numbers in the dataset.

    tube: of a regression, whose rows have sides y; else None. totals: the sums that the
    multipliers of both sides have, where these are fixed (fixed_sums.py).

    Five fields serve to bound the errors of f. errors: (m,), a bound for the time when f was formed. moved: the sum of
    |change of a_j| over all changes since then. additions: the number of these changes. terms: (m,), the sum of
    |change of a_j| k(x_i, x_j) over these changes, or empty if errors are not bounded by it
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
        if self.totals is not None and self.tube is not None:
            return NuTubeRows(self.y, self.costs, self.alpha, self.f, self.tube, self.totals)
        if self.totals is not None:
            return SummedRows(self.y, self.costs, self.alpha, self.f, self.totals)
        return Hinges(self.y, self.costs, self.alpha, self.f, self.tube)

    @property
    def keeps_sides(self) -> bool:
        """Whether working sets keep the sums of both sides."""
        hinges = self.hinges
        return isinstance(hinges, SummedRows) or (isinstance(hinges, NuTubeRows) and hinges.by_side)

    @property
    def has_labels(self) -> bool:
        """Whether the corners of the rows are their labels y."""
        return self.tube is None and self.totals is None

    def restore_balance(self, others: F64) -> None:
        """Correct the rounding of sum_i y_i a_i, or of the fixed sums; others: y_i a_i of the rows not in the set."""
        match self.hinges:
            case SummedRows() as rows:
                rows.restore_sums()
            case NuTubeRows() as rows:
                rows.restore_sums(others)
            case _:
                restore_balance(self.y, self.alpha, self.costs, others)

    def settle(self) -> Conditions:
        """Put each row on its side; return the optimality conditions."""
        self.y = choose_sides(self.hinges)
        return self.hinges.find_conditions()


@dataclass
class Rounds:
    """How an active set is improved: settings of its rounds, the random numbers, and the last working set.

    inner: a name of INNER_SOLVERS; rule: one of selection.RULES; size: the rows of a working set.
    damping: a factor of at least 1 by which kernel values are multiplied, as if each active row stood for that many
    rows that are not active and will move like it. D still rises (sigma' of Ma et al. 2015, "Adding vs. averaging").
    gap: the relative duality gap that is small enough if all rows are active, else None.
    previous: the last working set, in the order in which its rows joined it.
    most_pairs: the most pair steps of SMO; pairs: those made so far.
    """

    kernel: Kernel
    inner: str
    rule: str
    size: int
    threads: int
    rng: np.random.Generator
    damping: float = 1.0
    gap: float | None = None
    previous: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    most_pairs: int = NO_LIMIT
    pairs: int = 0


def improve(active: ActiveSet, rounds: Rounds, cache: ColumnCache, tol: float, limit: int) -> bool:
    """Carry out rounds, `limit` at most, until the violation is at most tol; alpha and f change in place.

    Return whether the violation, or else the gap (see `Rounds`), became small enough.
    """
    if rounds.rule == "platt":
        return _improve_by_platt(active, rounds, cache, tol)
    rise, best_rise, idle, unsolved = 0.0, 0.0, 0, 0
    for _ in range(min(limit, BASE_ROUNDS + ROUNDS_PER_ROW[rounds.inner] * len(active.rows))):
        interrupts.check()
        conditions = active.settle()
        if conditions.violation <= tol or _has_gap(active, conditions.bias, rounds.gap):
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

    If kernel values are too coarse for such multipliers, D may fall. Then the multipliers stay as they were.
    """
    problem = WorkingSet(
        K=_form_kernel(active, rounds, cache, chosen),
        y=active.y[chosen],
        alpha=active.alpha[chosen],
        f=active.f[chosen],
        costs=active.costs[chosen],
        corners=None if active.has_labels else active.hinges.corners[chosen],
        by_side=active.keeps_sides,
    )
    extremes = np.array([np.max(problem.K), np.min(problem.K), np.max(problem.f), np.min(problem.f)], np.float64)
    if not np.all(np.isfinite(extremes)):
        raise InputError("kernel values are beyond the range of floating-point numbers: scale the features to about 1")
    asked = max(tol / 2, INNER_TOL_SHARE * problem.violation())
    alpha = _solve_working_set(active, rounds, problem, asked)
    changed = np.flatnonzero(alpha != problem.alpha)
    coef = (alpha - problem.alpha)[changed] * problem.y[changed]
    f_before = active.f.copy()
    active.alpha[chosen] = alpha
    _update_sums(active, rounds, cache, chosen[changed], rounds.damping * coef)
    gain = _sum_gains(problem, alpha) - float(coef @ (problem.f + active.f[chosen])[changed]) / 2
    if not gain >= 0.0:
        active.alpha[chosen], active.f[:] = problem.alpha, f_before
        return 0.0, False
    after = replace(problem, alpha=alpha, f=active.f[chosen])
    return gain, after.violation() <= UNSOLVED_VIOLATION * asked


def _solve_working_set(active: ActiveSet, rounds: Rounds, problem: WorkingSet, tol: float) -> F64:
    """Return the multipliers of a working set, of nu-SVR with no greater sum than there is room for (nu_tube.py)."""
    alpha, hinges = _run_inner(rounds, problem, tol), active.hinges
    if not isinstance(hinges, NuTubeRows) or problem.by_side:
        return alpha
    cut = cut_step(problem.alpha, alpha, hinges.room)
    if hinges.room == 0.0 and np.array_equal(cut, problem.alpha):
        return _run_inner(rounds, replace(problem, by_side=True), tol)
    return np.clip(cut, 0.0, problem.costs)


def _run_inner(rounds: Rounds, problem: WorkingSet, tol: float) -> F64:
    """Return the multipliers that the inner solver finds, and count its pair steps."""
    alpha, pairs = INNER_SOLVERS[rounds.inner](problem, tol, rounds.most_pairs - rounds.pairs)
    rounds.pairs += pairs
    return alpha


def _sum_gains(problem: WorkingSet, alpha: F64) -> float:
    """Return the change of sum_i a_i y_i c_i. The corners are counted from their mean, as sum_i y_i a_i stays."""
    change = alpha - problem.alpha
    if problem.corners is None:
        return float(np.sum(change))
    return float((change * problem.y) @ (problem.corners - np.mean(problem.corners)))


def _has_gap(active: ActiveSet, bias: float, gap: float | None) -> bool:
    """Whether the relative duality gap of the active set at this bias is at most `gap`."""
    return gap is not None and active.hinges.certify(bias).relative_gap <= gap


def _form_kernel(active: ActiveSet, rounds: Rounds, cache: ColumnCache, chosen: I64) -> Values:
    """Return K_WW of the chosen rows, times the damping. Where all rows are active, it is 1."""
    if rounds.damping == 1.0 and len(chosen) == len(cache.slot) and np.all(cache.slot == chosen):
        return cache.columns  # which nothing is multiplied into
    return scale(form_kernel(rounds.kernel, active.X, cache, chosen, rounds.threads), rounds.damping)


def _improve_by_platt(active: ActiveSet, rounds: Rounds, cache: ColumnCache, tol: float) -> bool:
    """Improve the whole active set by Platt's two loops. It holds all rows: no other multiplier is part of f."""
    seed, cache_bytes = int(rounds.rng.integers(1 << 31)), cache.columns.nbytes
    found = solve_by_platt(
        active.X,
        active.y,
        active.costs,
        rounds.kernel,
        active.alpha,
        tol,
        cache_bytes=cache_bytes,
        seed=seed,
        max_values=PLATT_VALUES_PER_PAIR * len(active.y) ** 2 + LEAST_PLATT_VALUES,
    )
    changed = np.flatnonzero(found.alpha != active.alpha)
    coef = (found.alpha - active.alpha)[changed] * active.y[changed]
    active.alpha[:] = np.clip(found.alpha, 0.0, active.costs)
    active.moved += float(np.sum(np.abs(coef)))
    active.additions += len(coef)
    active.terms += active.largest * float(np.sum(np.abs(coef)))
    add_kernel_sums(rounds.kernel, active.X, take_rows(active.X, changed), coef, active.f, rounds.threads)
    return found.converged


def fill(active: ActiveSet, rounds: Rounds, cache: ColumnCache) -> None:
    """Let the multipliers rise to their fixed sums, if they have such, those of the lowest scores first."""
    hinges = active.hinges
    if not isinstance(hinges, SummedRows):
        return
    rises = hinges.find_rises()
    changed = np.flatnonzero(rises)
    active.alpha[changed] = np.minimum(active.alpha + rises, active.costs)[changed]
    _update_sums(active, rounds, cache, changed, rounds.damping * (active.y * rises)[changed])


def _update_sums(active: ActiveSet, rounds: Rounds, cache: ColumnCache, changed: I64, coef: F64) -> None:
    """Add sum_c coef_c k(x_i, x_c) over the changed rows c to f_i, with columns from the cache if they are there."""
    sizes = np.abs(coef)
    active.moved += float(np.sum(sizes))
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
        active.terms += active.largest * float(np.sum(sizes[~is_cached]))
