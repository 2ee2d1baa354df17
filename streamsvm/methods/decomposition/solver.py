"""Kernel SVM by decomposition: SMO (Platt 1998) and IRWLS (Pérez-Cruz et al. 2000) in one outer loop, out of core.

    max D(a) = sum_i a_i - 1/2 sum_ij a_i a_j y_i y_j k(x_i, x_j),   0 <= a_i <= C_i,   sum_i y_i a_i = 0

Symbols: a_i, the multipliers (`alpha`); f_i = sum_j a_j y_j k(x_i, x_j), the sums without the bias; C_i, the costs; P
and D, the primal and the dual objective. The bias is free and unpenalised. All rows are on disk, and the driver holds
a_i, f_i, C_i and y_i of each row. A step:

    an active set is drawn from the rows that violate their KKT condition and from the free rows (0 < a_i < C_i)
    its rows are taken into memory, and one working set after another improves its multipliers (active_set.py)
    one pass updates f of all rows by the rows whose multipliers changed
    P, D and their gap follow from a and f over all rows (numeric.certificates)

D rises with every step. The draw is that of Pérez-Cruz et al. 2000, section 3, for the active set instead of a working
set: an active set of the worst violators overshoots (Adult with a tenth of the rows active takes 8 or 9 passes if rows
are drawn, and more than 40 with the worst violators). Two more rules prevent overshooting: equally many rows of either
side, and damping while there are violators (35 passes of Adult without damping). A linear kernel is folded into w, so
that a pass needs w alone.

Active sets are improved with float32 kernel values, but passes compute kernel values in float64, so that f proves the
gap: with float32 alone, a gap of 1e-3 was computed as 3e-6 (C = 1e4). Every step begins with the f of a pass. A bound
of the errors of f, to which every pass adds (numeric.kernel_rounding), makes P and D proved bounds in floating point.
If float32 is too coarse to make progress, active sets are float64 from then on. If all rows are active, taking them is
the only read of a step (all_active.py).

A kernel that is not positive semidefinite (Kernel.is_definite) has no lower bound. Each row's share of P - D
(numeric.certificates) still measures its KKT condition: no share is negative, and a share is zero if the condition
holds. When their sum is at most tol times the magnitude of P, the status is "stationary".
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from streamsvm.methods.decomposition.active_set import MOST_ROUNDS, ActiveSet, Rounds, fill, improve
from streamsvm.methods.decomposition.all_active import (
    NOISE_SHARE,
    bounds_by_terms,
    solve_all,
    solve_by_interior_point,
    suits_factor,
)
from streamsvm.methods.decomposition.fixed_sums import SummedRows, Totals, compute_total, find_part, split_total
from streamsvm.methods.decomposition.kernel_columns import ColumnCache
from streamsvm.methods.decomposition.pair_updates import NO_LIMIT
from streamsvm.methods.decomposition.proved_state import STUCK_STEPS, find_end
from streamsvm.methods.decomposition.row_sums import Change, RowSums, add_sums, combine_sums, read_y
from streamsvm.methods.decomposition.selection import draw_active_rows
from streamsvm.methods.decomposition.settings import (
    Decomposition,
    is_small,
    read_hinges,
    require_kernel_range,
    suits_float32,
    takes_pairs_only,
)
from streamsvm.methods.decomposition.state import State, require_range, update_state
from streamsvm.methods.decomposition.tube import choose_sides
from streamsvm.numeric import known_values
from streamsvm.numeric.kernels import (
    bound_combination,
    combine_rows,
    compute_kernel,
    compute_squares,
    to_float64,
    type_of,
)
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, I64, Rows, take_rows
from streamsvm.requests import Scan, Solver, Step, Take

ACTIVE_TOL_SHARE = 0.1  # an active set is solved to this share of its violation
ALL_ACTIVE_TOL_SHARE = 1e-4  # the share if all rows are active, unless the gap is small enough before
SMALL_TOL_SHARE = 1e-10  # the share if all rows make one working set in float64
FLOAT32_GAP_SHARE = 0.5  # the gap in memory is this share of the gap asked for, as it is larger in float64
VIOLATION_SHARE = 0.01  # rows that violate by less than this share of the largest violation need not be active
# After so many such steps, or after so many steps on few rows, the inner solvers alternate on ESCALATION_ROWS or more.
ESCALATION_STEPS, SLOW_STEPS, ESCALATION_ROWS = 2, 4, 256
INTERIOR_POINT_TURN = 4  # then every fourth step is the interior-point method, if all rows are active and few


def solve(settings: Decomposition, state: State) -> Solver:
    """Go on from a state. Each `Step` carries the whole state, from which `solve` would go on to the same bits."""
    while True:
        chosen = _choose_active_rows(settings, state)
        active = _make_active(settings, state, chosen, (yield Take(chosen)))
        if len(chosen) == len(state.alpha):
            state = _solve_all(settings, state, active)
        else:
            f_before = active.f.copy()
            rounds, first = _make_rounds(settings, state, active, None), state.passes == 0
            change = _improve(settings, state, active, rounds)
            sums = yield Scan(RowSums, add_sums, combine_sums, (*change, first, settings.pass_threads))
            expected = f_before + (active.f - f_before) / rounds.damping
            state = replace(_add_up(settings, state, active, expected, sums), pairs=state.pairs + rounds.pairs)
            del change, sums
        del active  # frees the memory before the next rows are taken
        yield Step(state, state.progress, _find_status(settings, state), {"pairs": state.pairs})


def _find_status(settings: Decomposition, state: State) -> str | None:
    """Return why the run ends after this step, or None if it goes on."""
    is_over = settings.max_pairs is not None and state.pairs >= settings.max_pairs
    return _find_end(settings, state) or ("pair_limit" if is_over else None)


def _find_end(settings: Decomposition, state: State) -> str | None:
    """Return the status of a state from which no step leads on, or None."""
    if isinstance(state.hinges, SummedRows) and not state.hinges.is_full:  # no point of the problem yet
        return "stalled" if state.stuck >= STUCK_STEPS else None
    if isinstance(state.hinges, SummedRows) and 0.0 <= state.objective <= state.rounding_bound:
        return "stalled"  # w is 0 but for rounding: the origin is among the rows, or the classes meet
    end = find_end(state, settings.tol, settings.kernel.is_definite)
    if end is None and takes_pairs_only(settings) and len(state.alpha) <= settings.resident_rows:
        return "stalled" if state.stuck >= STUCK_STEPS else None  # there is no other solver for the rows, all active
    return end


def _is_escalated(state: State) -> bool:
    """Whether other inner solvers and rules are tried: nothing has moved, or few rows have taken many steps."""
    return state.stuck >= ESCALATION_STEPS or (state.passes >= SLOW_STEPS and len(state.alpha) <= ESCALATION_ROWS)


def _choose_active_rows(settings: Decomposition, state: State) -> I64:
    """Draw the rows of an active set, ascending: any rows at first, later violators and free rows."""
    n_rows, rng = len(state.alpha), np.random.default_rng((settings.seed, state.passes))
    size = settings.resident_rows
    if settings.precise_rows is not None and (state.is_precise or _is_escalated(state)):
        size = settings.precise_rows
    if n_rows <= size:
        return np.arange(n_rows)
    if state.passes == 0:
        return np.sort(rng.choice(n_rows, size, replace=False))
    if isinstance(state.hinges, SummedRows) and not state.hinges.is_full:
        return state.hinges.choose_lowest(size)
    conditions = state.hinges.find_conditions()
    tol = VIOLATION_SHARE * conditions.violation
    return draw_active_rows(conditions, size, tol, rng)


def _choose_damping(state: State, active: ActiveSet) -> float:
    """Return sqrt(1 + v / m) for m active rows, where v rows with multipliers at a bound violate; 1 if all are active.

    About as many rows as violate before a step will move after it as the active rows do now, even if all violators are
    active. Free rows are not counted, since nearly all of them are active, and move no others. Measurements favour the
    square root between no damping and that of CoCoA+, which is v / m itself.
    """
    n_rows = n_violators = len(state.alpha)
    if len(active.rows) == n_rows:
        return 1.0
    if state.passes:
        conditions = state.hinges.find_conditions()
        too_high, too_low = conditions.find_violators(VIOLATION_SHARE * conditions.violation)
        n_violators = int(np.count_nonzero((too_high | too_low) & ~conditions.free))
    return math.sqrt(1.0 + n_violators / len(active.rows))


def _make_active(settings: Decomposition, state: State, chosen: I64, taken: Rows) -> ActiveSet:
    """Return the active set of the chosen rows, in float32 or, if that is too coarse, in float64."""
    y, costs, tube = read_hinges(settings, taken.n_rows, read_y(taken), taken.sample_weight)
    require_range(costs, "the costs")
    longest = max(state.longest, float(np.max(compute_squares(taken.X, np.float64), initial=0.0)))
    require_kernel_range(settings.kernel, longest)
    precise = is_small(settings, len(state.alpha)) or state.is_precise or not suits_float32(settings.kernel, longest)
    X = to_float64(taken.X) if precise else taken.X
    return ActiveSet(
        X=X,
        y=y if tube is None else state.y[chosen],
        costs=costs,
        alpha=state.alpha[chosen],
        f=state.f[chosen],
        rows=chosen,
        errors=state.errors[chosen],
        terms=np.zeros(len(chosen) if len(chosen) == len(state.alpha) and bounds_by_terms(settings.kernel, X) else 0),
        largest=settings.kernel.bound_values(longest),
        tube=tube,
        totals=None if settings.nu is None else _find_part(settings, state, chosen, y, costs),
    )


def _find_part(settings: Decomposition, state: State, chosen: I64, y: F64, costs: F64) -> Totals:
    """Return the fixed sums of an active set. In the first step its costs are all that is known, and make its share."""
    assert settings.nu is not None
    total = state.total if state.passes else settings.nu * math.fsum(costs.tolist())
    totals = split_total(total, takes_pairs_only(settings))
    others = np.delete(state.y * state.alpha, chosen)
    return find_part(y if settings.tube is None else None, costs, totals, others)


def _make_rounds(settings: Decomposition, state: State, active: ActiveSet, gap: float | None) -> Rounds:
    """Return how the active set is improved in this step: as the settings say, or escalated (see `_is_escalated`)."""
    size, rng = min(settings.working_rows, len(active.rows)), np.random.default_rng((settings.seed, state.passes, 1))
    damping, inner, rule = _choose_damping(state, active), settings.inner, settings.selection
    if _is_escalated(state):
        takes_turns = size <= ESCALATION_ROWS and not takes_pairs_only(settings)
        inner, rule = "irwls" if state.passes % 2 and takes_turns else "smo", "second-order"
        damping, size = 1.0, min(max(size, ESCALATION_ROWS), len(active.rows))
    if rule == "platt" and type_of(active.X) != np.float32:  # Platt's loops are compiled for float32 rows only
        rule = "second-order"
    return Rounds(
        kernel=settings.kernel,
        inner=inner,
        rule=rule,
        size=size,
        threads=settings.threads,
        rng=rng,
        damping=damping,
        gap=gap,
        most_pairs=NO_LIMIT if settings.max_pairs is None else max(0, settings.max_pairs - state.pairs),
    )


def _solve_all(settings: Decomposition, state: State, active: ActiveSet) -> State:
    """Return the state after a step in which all rows are active."""
    longest = float(np.max(compute_squares(active.X, np.float64), initial=0.0))
    after = replace(state, y=active.y, costs=active.costs, longest=longest)
    if active.tube is not None:
        after = replace(after, targets=active.tube.targets, width=active.tube.width)
    if settings.nu is not None:
        after = replace(after, total=compute_total(settings.nu, active.costs))
    gap = FLOAT32_GAP_SHARE * settings.tol
    escalated_turn = _is_escalated(state) and state.passes % INTERIOR_POINT_TURN == 0
    ascends, noisy = True, False
    if escalated_turn and suits_factor(active, settings.kernel):
        errors = solve_by_interior_point(active, settings.kernel, settings.threads, gap)
        ascends = False
    else:
        small = is_small(settings, len(state.alpha))
        rounds = _make_rounds(settings, state, active, None if small else gap)
        if small:
            cache = ColumnCache.of_all(compute_kernel(settings.kernel, active.X, settings.threads))
        else:
            cache = ColumnCache.of_size(len(active.rows), settings.cache_bytes, type_of(active.X))
        largest, share = settings.kernel.bound_values(longest), SMALL_TOL_SHARE if small else ALL_ACTIVE_TOL_SHARE
        errors, noisy = solve_all(active, rounds, cache, share=share, gap=settings.tol, largest=largest)
        after = replace(after, pairs=state.pairs + rounds.pairs)
    return update_state(
        after,
        settings.kernel,
        settings.tol,
        y=active.y,
        alpha=active.alpha,
        f=active.f,
        errors=errors,
        noisy=noisy,
        ascends=ascends,
    )


def _improve(settings: Decomposition, state: State, active: ActiveSet, rounds: Rounds) -> Change:
    """Improve the active set; return by what the pass changes f of all rows."""
    before = active.y * active.alpha
    cache = ColumnCache.of_size(len(before), settings.cache_bytes, type_of(active.X))
    fill(active, rounds, cache)
    violation = active.settle().violation
    improve(active, rounds, cache, ACTIVE_TOL_SHARE * violation, MOST_ROUNDS)
    active.restore_balance(_list_others(state, active))
    moved = active.y * active.alpha
    changed = np.flatnonzero(moved != before)
    coef = (moved - before)[changed]
    columns = to_float64(take_rows(active.X, changed))
    if settings.kernel.name == "linear":
        no_columns, w = take_rows(columns, changed[:0]), combine_rows(columns, coef)
        return Change(settings.kernel, no_columns, np.empty(0), w, bound_combination(columns, coef))
    if settings.kernel.name == known_values.NAME:
        no_columns, w = take_rows(columns, changed[:0]), known_values.fold(columns, coef)
        return Change(settings.kernel, no_columns, np.empty(0), w, known_values.bound_fold(coef))
    return Change(settings.kernel, columns, coef, np.empty(0), 0.0)


def _list_others(state: State, active: ActiveSet) -> F64:
    """Return the terms that the sum of the active rows' y_i a_i has to cancel."""
    others: F64 = np.delete(state.y * state.alpha, active.rows)
    used: F64 = others[others != 0.0]
    return used


def _add_up(settings: Decomposition, state: State, active: ActiveSet, expected: F64, sums: RowSums) -> State:
    """Return the state after a pass. expected: f of the active rows as their own kernel values tell it."""
    if state.passes == 0:
        y, costs, tube = read_hinges(settings, len(sums.f), sums.y, sums.sample_weight)
        state = replace(state, y=y, costs=costs, longest=sums.longest)
        state = state if tube is None else replace(state, targets=tube.targets, width=tube.width)
        state = state if settings.nu is None else replace(state, total=compute_total(settings.nu, costs))
    alpha, y = state.alpha.copy(), state.y.copy()
    alpha[active.rows], y[active.rows] = active.alpha, active.y
    f = state.f + sums.f
    errors = state.errors + sums.errors + UNIT * np.abs(f)
    hinges = replace(state, y=y, alpha=alpha, f=f).hinges
    left = hinges._replace(y=choose_sides(hinges)).find_conditions().violation
    noisy = bool(np.max(np.abs(expected - f[active.rows])) > NOISE_SHARE * left)
    return update_state(state, settings.kernel, settings.tol, y=y, alpha=alpha, f=f, errors=errors, noisy=noisy)
