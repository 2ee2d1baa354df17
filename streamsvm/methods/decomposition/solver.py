"""Kernel SVM by decomposition: SMO (Platt 1998) and IRWLS (Pérez-Cruz et al. 2000) in one outer loop, out of core.

    max D(a) = sum_i a_i - 1/2 sum_ij a_i a_j y_i y_j k(x_i, x_j),   0 <= a_i <= C_i,   sum_i y_i a_i = 0

Symbols: a_i, the multipliers (`alpha`); f_i = sum_j a_j y_j k(x_i, x_j), the sums without the bias; C_i, the costs; P
and D, the primal and the dual objective. The bias is free and unpenalised. All rows are on disk, and the driver holds
a_i, f_i, C_i and y_i of each row. A step:

    an active set is drawn from the rows that violate their KKT condition and from the free rows (0 < a_i < C_i)
    its rows are taken into memory, and one working set after another improves its multipliers (active_set.py)
    rows that have not moved give their places to others, which are taken and improved in turn (active_rows.py)
    one pass updates f of all rows by the rows whose multipliers changed
    P, D and their gap follow from a and f over all rows (numeric.certificates)

D rises with every step. The draw is that of Pérez-Cruz et al. 2000, section 3, for the active set instead of a working
set: an active set of the worst violators overshoots (Adult with a tenth of the rows active and one turn a step takes 8
or 9 passes if rows are drawn, and more than 40 with the worst violators). Two more rules prevent overshooting: equally
many rows of either side, and damping while there are violators (35 passes of Adult without damping). A linear kernel is
folded into w, so that a pass needs w alone.

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

from dataclasses import replace

import numpy as np

from streamsvm import deadline
from streamsvm.methods.decomposition.active_rows import (
    ESCALATION_ROWS,
    Draw,
    Turn,
    exchange_rows,
    is_escalated,
    make_active,
    start_turn,
)
from streamsvm.methods.decomposition.active_set import MOST_ROUNDS, ActiveSet, Rounds, fill, improve
from streamsvm.methods.decomposition.all_active import (
    NOISE_SHARE,
    solve_all,
    solve_by_interior_point,
    suits_factor,
)
from streamsvm.methods.decomposition.fixed_sums import SummedRows, compute_total
from streamsvm.methods.decomposition.kernel_columns import ColumnCache
from streamsvm.methods.decomposition.pair_updates import NO_LIMIT
from streamsvm.methods.decomposition.proved_state import STUCK_STEPS, find_end
from streamsvm.methods.decomposition.row_sums import Change, RowSums, add_sums, combine_sums
from streamsvm.methods.decomposition.settings import (
    Decomposition,
    is_small,
    read_hinges,
    takes_pairs_only,
)
from streamsvm.methods.decomposition.state import State, update_state
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
from streamsvm.numeric.rows import F64, take_rows
from streamsvm.requests import Scan, Solver, Step, Take

ACTIVE_TOL_SHARE = 0.1  # an active set is solved to this share of its violation
ALL_ACTIVE_TOL_SHARE = 1e-4  # the share if all rows are active, unless the gap is small enough before
SMALL_TOL_SHARE = 1e-10  # the share if all rows make one working set in float64
FLOAT32_GAP_SHARE = 0.5  # the gap in memory is this share of the gap asked for, as it is larger in float64
INTERIOR_POINT_TURN = 4  # then every fourth step is the interior-point method, if all rows are active and few


def solve(settings: Decomposition, state: State) -> Solver:
    """Go on from a state. Each `Step` carries the whole state, from which `solve` would go on to the same bits."""
    while True:
        draw = Draw(settings, state)
        rows = draw.first()
        active = make_active(settings, state, rows, (yield Take(rows)))
        if len(rows) == len(state.alpha):
            state = _solve_all(settings, state, active)
            del active  # frees the memory before the next rows are taken
        else:
            turn = start_turn(draw, active)
            del active
            _improve(settings, state, turn)
            while _may_move(settings, state, turn) and len(rows := draw.next(turn)):
                fresh = make_active(settings, state, rows, (yield Take(rows)))
                turn = exchange_rows(settings, state, draw, turn, fresh)
                del fresh
                _improve(settings, state, turn)
            change, first = _find_change(settings, state, turn), state.passes == 0
            sums = yield Scan(RowSums, add_sums, combine_sums, (*change, first, settings.pass_threads))
            state = replace(_add_up(settings, state, turn, sums), pairs=state.pairs + turn.pairs)
            del change, sums, turn
        yield Step(state, state.progress, _find_status(settings, state), {"pairs": state.pairs})


def _may_move(settings: Decomposition, state: State, turn: Turn) -> bool:
    """Return whether the time and the pair steps of SMO that are allowed leave more of this step."""
    return not deadline.is_over() and (settings.max_pairs is None or state.pairs + turn.pairs < settings.max_pairs)


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
        return "stalled" if state.stuck >= STUCK_STEPS else None  # of many rows pair steps are the only solver
    return end


def _make_rounds(
    settings: Decomposition, state: State, active: ActiveSet, gap: float | None, damping: float, pairs: int
) -> Rounds:
    """Return how the active set is improved in this step: as the settings say, or escalated (see `is_escalated`).

    pairs: how many pair steps of SMO have been made.
    """
    size, rng = min(settings.working_rows, len(active.rows)), np.random.default_rng((settings.seed, state.passes, 1))
    inner, rule = settings.inner, settings.selection
    if is_escalated(state, len(state.alpha)):
        takes_turns = size <= ESCALATION_ROWS and not takes_pairs_only(settings)
        inner, rule = "irwls" if state.passes % 2 and takes_turns else "smo", "second-order"
        size = min(max(size, ESCALATION_ROWS), len(active.rows))
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
        most_pairs=NO_LIMIT if settings.max_pairs is None else max(0, settings.max_pairs - pairs),
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
    is_turn = state.passes > 0 and state.passes % INTERIOR_POINT_TURN == 0
    ascends, noisy = True, False
    if is_turn and suits_factor(active, settings.kernel):
        errors = solve_by_interior_point(active, settings.kernel, settings.threads, gap)
        ascends = False
    else:
        small = is_small(settings, len(state.alpha))
        rounds = _make_rounds(settings, state, active, None if small else gap, 1.0, state.pairs)
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


def _improve(settings: Decomposition, state: State, turn: Turn) -> None:
    """Improve the active rows of a turn."""
    active, made = turn.active, state.pairs + turn.pairs
    rounds = _make_rounds(settings, state, active, None, turn.damping, made)
    cache = ColumnCache.of_size(len(active.rows), settings.cache_bytes, type_of(active.X))
    fill(active, rounds, cache)
    violation = active.settle().violation
    improve(active, rounds, cache, ACTIVE_TOL_SHARE * violation, MOST_ROUNDS)
    turn.pairs += rounds.pairs


def _find_change(settings: Decomposition, state: State, turn: Turn) -> Change:
    """Return by what the pass changes f of all rows, after the last turn of a step."""
    active = turn.active
    active.restore_balance(_list_others(state, active))
    changed = np.flatnonzero(turn.moves)
    coef = turn.moves[changed]
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


def _add_up(settings: Decomposition, state: State, turn: Turn, sums: RowSums) -> State:
    """Return the state after a pass."""
    active = turn.active
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
    noisy = bool(np.max(np.abs(turn.expected - f[active.rows])) > NOISE_SHARE * left)
    return update_state(state, settings.kernel, settings.tol, y=y, alpha=alpha, f=f, errors=errors, noisy=noisy)
