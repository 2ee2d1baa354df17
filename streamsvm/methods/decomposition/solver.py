"""Kernel SVM by decomposition: SMO (Platt 1998) and IRWLS (Pérez-Cruz et al. 2000) in one outer loop, out of core.

    max D(a) = sum_i a_i - 1/2 sum_ij a_i a_j y_i y_j k(x_i, x_j),   0 <= a_i <= C_i,   sum_i y_i a_i = 0

The bias is free and unpenalised. All rows are on disk; the driver holds a_i, f_i = sum_j a_j y_j k(x_i, x_j), C_i and
y_i of each. A step:

    the active set is drawn from the rows that violate their KKT condition and those with 0 < a_i < C_i, and taken
    its multipliers are improved in memory, working set by working set (decomposition.active_set); the others are fixed
    one pass updates f of all rows, against only the rows whose multipliers changed
    P, D and their gap follow, over all rows, from a and f (numeric.certificates)

D rises with every step. The draw is Pérez-Cruz' (section 3), one level up: an active set of the worst violators
overshoots (Adult, a tenth of the rows active: 12 passes if drawn at random, more than 40 if the worst are taken). Two
more things keep it from overshooting: as many rows of either side, and damping while violators are many (Covertype,
the same: 17 passes; 28 without both). A linear kernel is folded into w: the pass needs w alone.

Active sets are improved with float32 kernel values; passes compute theirs in float64, so that what f proves is true:
with float32 alone, a gap of 3e-6 was shown where it was 1e-3 (C = 1e4). Every step begins with exact f, and mends it.
Beside f goes a bound of its errors, which every pass adds to (numeric.kernel_rounding), so that P and D are proved in
floating point, too. Where float32 is too coarse to make progress, active sets are of float64 from then on.
Where all rows are active, taking them is the pass, and the rest is done in memory (decomposition.all_active).

A kernel that is not positive semidefinite (Kernel.is_definite) has no lower bound. The sum of all rows' shares in P - D
(numeric.certificates) still says how far their KKT conditions are from being met: no share is negative, and each is
zero where its row's condition holds. Once the sum is at most tol P, the point is called stationary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamsvm.errors import InputError
from streamsvm.methods.decomposition.active_set import MOST_ROUNDS, ActiveSet, ColumnCache, Rounds, improve
from streamsvm.methods.decomposition.all_active import NOISE_SHARE, solve_all, solve_by_interior_point, suits_factor
from streamsvm.methods.decomposition.balance import restore_balance
from streamsvm.methods.decomposition.selection import draw_active_rows, find_conditions
from streamsvm.methods.decomposition.state import OUT_OF_RANGE, State, require_range, update_state
from streamsvm.numeric.kernels import (
    Kernel,
    add_kernel_sums,
    add_linear_sums,
    bound_combination,
    bound_linear_sums,
    combine_rows,
    compute_squares,
    to_float64,
    type_of,
)
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, take_rows
from streamsvm.requests import Scan, Solver, Step, Take, find_status

ACTIVE_SHARE = 0.1  # an active set is solved to this share of the violation it was drawn with
WHOLE_SHARE = 1e-4  # the same where all rows are active, unless the gap is small enough before
EXACT_SHARE = 1e-10
GAP_SHARE = 0.5  # of the gap asked for: there is more in float64
VIOLATION_SHARE = 0.01  # rows that violate by less than this share of the largest violation need not be active
STUCK_STEPS = 10  # neither D has risen nor the gap has fallen for so many steps
ESCALATION_STEPS = 2  # after so many of them both inner solvers take turns, on so many rows at least
ESCALATION_ROWS = 256
TURNS = 4  # every fourth step after that is one of the interior-point method, if all rows are active and few
SLOW_STEPS = 4
COARSEST_REACH = 1e4  # gamma (|x|^2 + |z|^2) beyond which float32 tells nothing about |x - z|
SMALLEST_VALUE, LARGEST_VALUE = 1e-30, 1e30  # of k_ii in float32


@dataclass(frozen=True)
class Decomposition:
    """Settings. class_costs: (2,) C_i of the classes coded 0 and 1, before sample weights; tol: relative gap.

    resident_rows: rows of the active set; precise_rows: the same in float64 (None: as many);
    working_rows: of a working set; cache_bytes: for kernel columns.
    threads: of the driver; pass_threads: of a task of a pass (more than 1 where there are fewer tasks than cores).
    """

    class_costs: tuple[float, float]
    kernel: Kernel
    inner: str = "smo"
    selection: str = "second-order"
    tol: float = 1e-3
    working_rows: int = 1024
    resident_rows: int = 10_000
    cache_bytes: int = 256 << 20
    threads: int = 1
    pass_threads: int = 1
    seed: int = 0
    precise_rows: int | None = None


@dataclass
class RowSums:
    """What a pass brings back of each tile: its first row's number, sums, their errors, labels, weights, |x|^2."""

    tiles: list[tuple[int, F64, F64, Any, Any, float]] = field(default_factory=list)

    def gather(self, column: int) -> Any:
        """Return one of the columns for all rows, in their order; None if there is none."""
        parts = [tile[column] for tile in sorted(self.tiles, key=lambda tile: tile[0])]
        return None if parts[0] is None else np.concatenate(parts)


def add_sums(
    sums: RowSums, rows: Rows, kernel: Kernel, columns: Matrix, coef: F64, w: F64, share: float, first: bool,
    threads: int,
) -> None:  # fmt: skip
    """Add a tile: f_i = sum_c coef_c k(x_i, z_c) + x_i.w, of which one is empty.

    share: the error of x_i.w, as a share of |x_i|; first: labels, weights and lengths of rows are wanted, too.
    """
    f, errors = np.zeros(rows.n_rows), np.zeros(rows.n_rows)
    if len(w):
        add_linear_sums(rows.X, w, f, threads)
        errors = bound_linear_sums(rows.X, share)
    elif len(coef):
        add_kernel_sums(kernel, rows.X, columns, coef, f, threads, errors=errors)
    weight = None if rows.sample_weight is None or not first else rows.sample_weight.copy()
    y = rows.y.copy() if first and rows.y is not None else None
    longest = float(np.max(compute_squares(rows.X, np.float64), initial=0.0)) if first else 0.0
    sums.tiles.append((rows.start, f, errors, y, weight, longest))


def combine_sums(left: RowSums, right: RowSums) -> RowSums:
    """Return the tiles of both."""
    return RowSums(left.tiles + right.tiles)


def solve(settings: Decomposition, state: State) -> Solver:
    """Go on from a state; every `Step` carries the whole state, from which `solve` goes on to the same bits."""
    while True:
        chosen = _choose_active_rows(settings, state)
        active = _make_active(settings, state, chosen, (yield Take(chosen)))
        if len(chosen) == len(state.alpha):
            state = _solve_all(settings, state, active)
        else:
            before = active.f.copy()
            shared, first = _improve(settings, state, active), state.passes == 0
            sums = yield Scan(RowSums, add_sums, combine_sums, (*shared, first, settings.pass_threads))
            state = _add_up(settings, state, active, before, sums)
            del shared, sums
        del active  # lest it is held while the next rows are taken
        yield Step(state, state.progress, _find_status(settings, state))


def _find_status(settings: Decomposition, state: State) -> str | None:
    if settings.kernel.is_definite:
        return find_status(state.progress, settings.tol, state.stuck, STUCK_STEPS)
    if state.objective - state.dual + state.rounding_bound <= settings.tol * state.magnitude:
        return "stationary"
    return "stalled" if state.stuck >= STUCK_STEPS else None


def _is_escalated(state: State) -> bool:
    """Whether the rules that were asked for do not serve: nothing moves, or few rows take many steps."""
    return state.stuck >= ESCALATION_STEPS or (state.passes >= SLOW_STEPS and len(state.alpha) <= ESCALATION_ROWS)


def _choose_active_rows(settings: Decomposition, state: State) -> I64:
    """Draw rows, ascending: any at first, then violators and free ones."""
    n_rows, rng = len(state.alpha), np.random.default_rng((settings.seed, state.passes))
    size = settings.resident_rows
    if settings.precise_rows is not None and (state.is_precise or _is_escalated(state)):
        size = settings.precise_rows
    if n_rows <= size:
        return np.arange(n_rows)
    if state.passes == 0:
        return np.sort(rng.choice(n_rows, size, replace=False))
    conditions = find_conditions(state.y, state.costs, state.alpha, state.f)
    tol = VIOLATION_SHARE * conditions.violation
    return draw_active_rows(conditions, state.alpha, state.costs, size, tol, rng)


def _choose_damping(state: State, active: ActiveSet) -> float:
    """Return the root of how many violators there are to an active row: measured, between none and CoCoA+'s own."""
    n_violators = len(state.alpha)
    if state.passes:
        conditions = find_conditions(state.y, state.costs, state.alpha, state.f)
        tol, e = VIOLATION_SHARE * conditions.violation, conditions.errors
        n_violators = int(np.count_nonzero((conditions.up & (e > tol)) | (conditions.down & (e < -tol))))
    return float(np.sqrt(max(1.0, n_violators / len(active.rows))))


def _make_active(settings: Decomposition, state: State, chosen: I64, taken: Rows) -> ActiveSet:
    y, costs = read_labels(settings.class_costs, taken.y, taken.sample_weight)
    require_range(costs, "the costs")
    longest = max(state.longest, float(np.max(compute_squares(taken.X, np.float64), initial=0.0)))
    precise = is_small(settings, len(state.alpha)) or state.is_precise or not _suits_float32(settings.kernel, longest)
    X = to_float64(taken.X) if precise else taken.X
    errors, terms = state.errors[chosen], np.zeros(len(chosen) if len(chosen) == len(state.alpha) else 0)
    return ActiveSet(X, y, costs, state.alpha[chosen], state.f[chosen], chosen, errors, terms)


def _suits_float32(kernel: Kernel, longest: float) -> bool:
    """Whether kernel values of such rows have a meaning in float32; InputError if they have none in float64."""
    largest = kernel.bound_values(longest)
    if not np.isfinite(largest):
        raise InputError(OUT_OF_RANGE.format(what=f"kernel values of rows of length {math.sqrt(longest):.1e}"))
    if kernel.name == "rbf":
        return 2 * kernel.gamma * longest < COARSEST_REACH and longest < LARGEST_VALUE
    return longest < LARGEST_VALUE and SMALLEST_VALUE < largest < LARGEST_VALUE


def is_small(settings: Decomposition, n_rows: int) -> bool:
    """Whether all rows make one working set of pair steps: then they are solved in float64, to its rounding."""
    most = min(settings.working_rows, settings.resident_rows)
    return settings.inner == "smo" and settings.selection != "platt" and n_rows <= most


def _make_rounds(settings: Decomposition, state: State, active: ActiveSet, gap: float | None) -> Rounds:
    size, rng = min(settings.working_rows, len(active.rows)), np.random.default_rng((settings.seed, state.passes, 1))
    damping, inner, rule = _choose_damping(state, active), settings.inner, settings.selection
    if _is_escalated(state):
        inner, rule = "irwls" if state.passes % 2 and size <= ESCALATION_ROWS else "smo", "second-order"
        damping, size = 1.0, min(max(size, ESCALATION_ROWS), len(active.rows))
    if rule == "platt" and type_of(active.X) != np.float32:  # his loops are compiled for float32 alone
        rule = "second-order"
    return Rounds(settings.kernel, inner, rule, size, settings.threads, rng, damping, gap)


def _solve_all(settings: Decomposition, state: State, active: ActiveSet) -> State:
    longest = float(np.max(compute_squares(active.X, np.float64), initial=0.0))
    after = replace(state, y=active.y, costs=active.costs, longest=longest)
    if _is_escalated(state) and state.passes % TURNS == 0 and suits_factor(active, settings.kernel):
        errors = solve_by_interior_point(active, settings.kernel, settings.threads, GAP_SHARE * settings.tol)
        return update_state(after, settings.kernel, settings.tol, active.alpha, active.f, errors, False, False)
    small = is_small(settings, len(state.alpha))
    rounds = _make_rounds(settings, state, active, None if small else GAP_SHARE * settings.tol)
    cache = ColumnCache.of_size(len(active.rows), 0 if small else settings.cache_bytes, type_of(active.X))
    largest, share = settings.kernel.bound_values(longest), EXACT_SHARE if small else WHOLE_SHARE
    errors, noisy = solve_all(active, rounds, cache, share, settings.tol, largest)
    return update_state(after, settings.kernel, settings.tol, active.alpha, active.f, errors, noisy)


def _improve(settings: Decomposition, state: State, active: ActiveSet) -> tuple[Kernel, Matrix, F64, F64, float]:
    """Improve the active set; return kernel, rows that changed, how much y_i a_i did, their w, and its error."""
    before = active.alpha.copy()
    violation = find_conditions(active.y, active.costs, active.alpha, active.f).violation
    rounds = _make_rounds(settings, state, active, None)
    cache = ColumnCache.of_size(len(before), settings.cache_bytes, type_of(active.X))
    improve(active, rounds, cache, ACTIVE_SHARE * violation, MOST_ROUNDS)
    others = np.delete(state.y * state.alpha, active.rows)
    restore_balance(active.y, active.alpha, active.costs, others[others != 0.0])
    changed = np.flatnonzero(active.alpha != before)
    coef = (active.alpha - before)[changed] * active.y[changed]
    columns = to_float64(take_rows(active.X, changed))
    if settings.kernel.name == "linear":
        share = bound_combination(columns, coef)
        return settings.kernel, take_rows(columns, changed[:0]), np.empty(0), combine_rows(columns, coef), share
    return settings.kernel, columns, coef, np.empty(0), 0.0


def _add_up(settings: Decomposition, state: State, active: ActiveSet, before: F64, sums: RowSums) -> State:
    """Return the state after a pass: new multipliers, and what changed in f. before: f of the active rows."""
    if state.passes == 0:
        y, costs = read_labels(settings.class_costs, sums.gather(3), sums.gather(4))
        state = replace(state, y=y, costs=costs, longest=max(tile[5] for tile in sums.tiles))
    alpha, f = state.alpha.copy(), state.f + sums.gather(1)
    alpha[active.rows] = active.alpha
    errors = state.errors + sums.gather(2) + UNIT * np.abs(f)
    expected = before + (active.f - before) / _choose_damping(state, active)
    left = find_conditions(state.y, state.costs, alpha, f).violation
    noisy = bool(np.max(np.abs(expected - f[active.rows])) > NOISE_SHARE * left)
    return update_state(state, settings.kernel, settings.tol, alpha, f, errors, noisy)
