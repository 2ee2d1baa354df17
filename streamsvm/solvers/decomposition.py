"""Kernel SVM by decomposition: SMO (Platt 1998) and IRWLS (Pérez-Cruz et al. 2000) in one outer loop, out of core.

    max D(a) = sum_i a_i - 1/2 sum_ij a_i a_j y_i y_j k(x_i, x_j),   0 <= a_i <= C_i,   sum_i y_i a_i = 0

The bias is free and unpenalised. All rows are on disk; the driver holds a_i, f_i = sum_j a_j y_j k(x_i, x_j), C_i and
y_i of each. A step:

    the active set is drawn from the rows that violate their KKT condition and those with 0 < a_i < C_i, and taken
    its multipliers are improved in memory, working set by working set (solvers.active_set); the others are fixed
    one pass updates f of all rows, against only the rows whose multipliers changed
    P, D and their gap follow, over all rows, from a and f (numeric.certificates)

D rises with every step. The draw is Pérez-Cruz' (section 3), one level up: an active set of the worst violators
overshoots (Adult, a tenth of the rows active: 12 passes if drawn at random, more than 40 if the worst are taken). Two
more things keep it from overshooting: as many rows of either side, and damping while violators are many (Covertype,
the same: 17 passes; 28 without both). A linear kernel is folded into w: the pass needs w alone.

Active sets are improved with float32 kernel values; passes compute theirs in float64, so that what f proves is true:
with float32 alone, a gap of 3e-6 was shown where it was 1e-3 (C = 1e4). Every step begins with exact f, and mends it.
Where all rows are active, taking them is the pass, and the rest is done in memory (solvers.all_active).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm.numeric.certificates import certify
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, add_linear_sums, fold, to_float64
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, take_rows
from streamsvm.solvers.active_set import MOST_ROUNDS, ActiveSet, ColumnCache, Rounds, improve
from streamsvm.solvers.all_active import solve_all
from streamsvm.solvers.protocol import Progress, Scan, Solver, Step, Take
from streamsvm.solvers.selection import draw_active_rows, find_conditions

ACTIVE_SHARE = 0.1  # an active set is solved to this share of the violation it was drawn with
WHOLE_SHARE = 1e-4  # the same where all rows are active, unless the gap is small enough before
EXACT_SHARE = 1e-10
GAP_SHARE = 0.5  # of the gap asked for: there is more in float64
VIOLATION_SHARE = 0.01  # rows that violate by less than this share of the largest violation need not be active
RISE = 1e-14
STUCK_STEPS = 10  # D has not risen for so many steps: rounding is the limit


@dataclass(frozen=True)
class Decomposition:
    """Settings. class_costs: (2,) C_i of the classes coded 0 and 1, before sample weights; tol: relative gap.

    resident_rows: rows of the active set; working_rows: of a working set; cache_bytes: for kernel columns.
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


@dataclass
class State:
    """All that changes. alpha, f (no bias), costs, y (-1 or +1): (n,) float64; y and costs are known after a pass."""

    alpha: F64
    f: F64
    costs: F64
    y: F64
    bias: float = 0.0
    objective: float = float("inf")
    lower_bound: float = 0.0
    passes: int = 0
    stuck: int = 0


@dataclass
class RowSums:
    """What a pass brings back of each tile: number of its first row, sums, and labels and weights at first."""

    tiles: list[tuple[int, F64, Any, Any]] = field(default_factory=list)

    def gather(self, column: int) -> Any:
        """Return one of the columns for all rows, in their order; None if there is none."""
        parts = [tile[column] for tile in sorted(self.tiles, key=lambda tile: tile[0])]
        return None if parts[0] is None else np.concatenate(parts)


def add_sums(
    sums: RowSums, rows: Rows, kernel: Kernel, columns: Matrix, coef: F64, w: F64, labels: bool, threads: int
) -> None:
    """Add a tile: f_i = sum_c coef_c k(x_i, z_c) + x_i.w, of which one is empty."""
    f = np.zeros(rows.n_rows)
    if len(w):
        add_linear_sums(rows.X, w, f, threads)
    elif len(coef):
        add_kernel_sums(kernel, rows.X, columns, coef, f, threads)
    weight = None if rows.sample_weight is None or not labels else rows.sample_weight.copy()
    sums.tiles.append((rows.start, f, rows.y.copy() if labels and rows.y is not None else None, weight))


def combine_sums(left: RowSums, right: RowSums) -> RowSums:
    """Return the tiles of both."""
    return RowSums(left.tiles + right.tiles)


def start_state(n_rows: int) -> State:
    """Return the state before any row is read: all multipliers 0."""
    return State(np.zeros(n_rows), np.zeros(n_rows), np.zeros(n_rows), np.zeros(n_rows))


def solve(settings: Decomposition, state: State) -> Solver:
    """Go on from a state; every `Step` carries the whole state, from which `solve` goes on to the same bits."""
    while True:
        chosen = _choose_active_rows(settings, state)
        active = _make_active(settings, state, chosen, (yield Take(chosen)))
        if len(chosen) == len(state.alpha):
            _solve_all(settings, state, active)
            state = _update(state, active.alpha, active.f, active.y, active.costs)
        else:
            shared, first = _improve(settings, state, active), state.passes == 0
            sums = yield Scan(RowSums, add_sums, combine_sums, (*shared, first, settings.pass_threads))
            state = _add_up(settings, state, active, sums)
            del shared, sums
        del active  # lest it is held while the next rows are taken
        yield Step(state, Progress(state.objective, state.lower_bound, state.passes), _status(settings, state))


def _status(settings: Decomposition, state: State) -> str | None:
    if state.objective - state.lower_bound <= settings.tol * state.objective:
        return "converged"
    return "stalled" if state.stuck >= STUCK_STEPS else None


def _choose_active_rows(settings: Decomposition, state: State) -> I64:
    """Draw rows, ascending: any at first, then violators and free ones."""
    n_rows, rng = len(state.alpha), np.random.default_rng((settings.seed, state.passes))
    if n_rows <= settings.resident_rows:
        return np.arange(n_rows)
    if state.passes == 0:
        return np.sort(rng.choice(n_rows, settings.resident_rows, replace=False))
    conditions = find_conditions(state.y, state.costs, state.alpha, state.f)
    tol = VIOLATION_SHARE * conditions.violation
    return draw_active_rows(conditions, state.alpha, state.costs, settings.resident_rows, tol, rng)


def _choose_damping(settings: Decomposition, state: State) -> float:
    """Return the root of how many violators there are to an active row: measured, between none and CoCoA+'s own."""
    n_violators = len(state.alpha)
    if state.passes:
        conditions = find_conditions(state.y, state.costs, state.alpha, state.f)
        tol, e = VIOLATION_SHARE * conditions.violation, conditions.errors
        n_violators = int(np.count_nonzero((conditions.up & (e > tol)) | (conditions.down & (e < -tol))))
    return float(np.sqrt(max(1.0, n_violators / settings.resident_rows)))


def _make_active(settings: Decomposition, state: State, chosen: I64, taken: Rows) -> ActiveSet:
    y, costs = read_labels(settings.class_costs, taken.y, taken.sample_weight)
    X = to_float64(taken.X) if is_small(settings, len(state.alpha)) else taken.X
    return ActiveSet(X, y, costs, state.alpha[chosen], state.f[chosen], chosen)


def is_small(settings: Decomposition, n_rows: int) -> bool:
    """Whether all rows make one working set of pair steps: then they are solved in float64, to its rounding."""
    most = min(settings.working_rows, settings.resident_rows)
    return settings.inner == "smo" and settings.selection != "platt" and n_rows <= most


def _make_rounds(settings: Decomposition, state: State, active: ActiveSet, gap: float | None) -> Rounds:
    size, rng = min(settings.working_rows, len(active.rows)), np.random.default_rng((settings.seed, state.passes, 1))
    damping = _choose_damping(settings, state)
    return Rounds(settings.kernel, settings.inner, settings.selection, size, settings.threads, rng, damping, gap)


def _solve_all(settings: Decomposition, state: State, active: ActiveSet) -> None:
    small = is_small(settings, len(state.alpha))
    rounds = _make_rounds(settings, state, active, None if small else GAP_SHARE * settings.tol)
    cache = ColumnCache.of_size(len(active.rows), 0 if small else settings.cache_bytes)  # of float32
    solve_all(active, rounds, cache, EXACT_SHARE if small else WHOLE_SHARE, settings.tol)


def _improve(settings: Decomposition, state: State, active: ActiveSet) -> tuple[Kernel, Matrix, F64, F64]:
    """Improve the active set; return kernel, rows that changed, how much y_i a_i did, and w, which these make."""
    before = active.alpha.copy()
    violation = find_conditions(active.y, active.costs, active.alpha, active.f).violation
    rounds = _make_rounds(settings, state, active, None)
    cache = ColumnCache.of_size(len(before), settings.cache_bytes)
    improve(active, rounds, cache, ACTIVE_SHARE * violation, MOST_ROUNDS)
    changed = np.flatnonzero(active.alpha != before)
    coef = (active.alpha - before)[changed] * active.y[changed]
    columns = to_float64(take_rows(active.X, changed))
    if settings.kernel.name == "linear":
        return settings.kernel, take_rows(columns, changed[:0]), np.empty(0), fold(columns, coef)
    return settings.kernel, columns, coef, np.empty(0)


def _add_up(settings: Decomposition, state: State, active: ActiveSet, sums: RowSums) -> State:
    """Return the state after a pass: new multipliers, and what changed in f."""
    y, costs = state.y, state.costs
    if state.passes == 0:
        y, costs = read_labels(settings.class_costs, sums.gather(2), sums.gather(3))
    alpha = state.alpha.copy()
    alpha[active.rows] = active.alpha
    return _update(state, alpha, state.f + sums.gather(1), y, costs)


def _update(state: State, alpha: F64, f: F64, y: F64, costs: F64) -> State:
    """Return the state with new multipliers and sums, and what they prove."""
    proved = certify(y, costs, alpha, f)
    rises = proved.lower_bound > state.lower_bound * (1 + RISE)
    lower_bound = min(max(state.lower_bound, proved.lower_bound), proved.objective)  # above it by rounding at most
    return State(
        alpha, f, costs, y, proved.bias, proved.objective, lower_bound,
        state.passes + 1, 0 if rises else state.stuck + 1,
    )  # fmt: skip
