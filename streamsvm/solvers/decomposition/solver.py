"""Kernel SVM by decomposition: SMO (Platt 1998) and IRWLS (Pérez-Cruz et al. 2000) in one outer loop, out of core.

    max D(a) = sum_i a_i - 1/2 sum_ij a_i a_j y_i y_j k(x_i, x_j),   0 <= a_i <= C_i,   sum_i y_i a_i = 0

Symbols: a_i, the multipliers (`alpha`); f_i = sum_j a_j y_j k(x_i, x_j), the sums without the bias; C_i, the costs; P
and D, the primal and the dual objective. The bias is free and unpenalised. All rows are on disk, and the driver holds
a_i, f_i, C_i and y_i of each row. A step:

    an active set is drawn from the rows that violate their KKT condition and from the free rows (0 < a_i < C_i)
    its rows are read into memory, and their multipliers improved one working set at a time (active_set.py)
    active rows that have not moved are replaced by other rows, and these are improved, too
    one pass updates f of all rows by the rows whose multipliers changed
    P, D and their gap are computed from a and f of all rows (certificates.kernel)

D rises with every step. Pérez-Cruz et al. 2000, section 3, draw the rows of working sets; here the active set is drawn
in the same way, since an active set of the worst violators overshoots. (On Adult, with a tenth of the rows active and
one turn per step, drawn rows take 8 or 9 passes, and the worst violators more than 40.) Two more rules prevent
overshooting: both sides have equal numbers of rows, and steps are damped while there are violators (without damping,
Adult takes 35 passes). A linear kernel is folded into w, so that a pass needs only w.

Active sets are improved with float32 kernel values, but passes compute kernel values in float64, so that f proves the
gap: with float32 alone, a gap of 1e-3 was computed as 3e-6 (C = 1e4). Every step starts from the f of a pass. A bound
of the errors of f, to which every pass adds (kernels.values), makes P and D proved bounds in floating point. If float32
is too coarse to make progress, active sets are float64 from then on. If all rows are active, reading them is the only
read of a step (all_active.py).

For a kernel that is not positive semidefinite (Kernel.is_definite) there is no lower bound. Each row's share of P - D
(certificates.kernel) still measures its KKT condition: it is zero if the condition holds, and never negative. When the
sum of the shares is at most tol times the magnitude of P, the status is "stationary".

The choice of the active rows.

A step improves the active rows in several turns, and then makes one pass. After a turn, rows whose multipliers have
changed stay, because the pass needs them. The others are replaced by the same number of rows that have not been active
in this step, whose f is updated by the rows that stay. Nearly all active rows of a pass have therefore moved; without
turns, a third of them did not (splice and Covertype).

When all violators have been active, the free places go to rows that may have become violators during the step. While
the active rows move, f of the inactive rows is unknown until the next pass. But the leeway by which a row met its
condition is known from before the step, or from its last turn in the step. It is compared with the standard deviation
of the changes of f of the active rows since then, which estimates how far f of the row may have moved. Such rows
matter: after a late step of Covertype, nine tenths of the gap belonged to rows that had been active in an early turn of
this step; later turns, in which they were inactive, moved them to the wrong side of their margins.

The violation of a row is measured relative to the bias at which P is least. Pairs are chosen by another bias, half-way
between the extremes. It depends on a few outlying rows; relative to it, thousands of rows of one side would wrongly
count as violators.

Damping multiplies kernel values during a step, as if each active row also represented some inactive violators that will
move in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import add
from typing import Any

import numpy as np

from streamsvm.certificates.kernel import find_best_bias
from streamsvm.kernels import kernel as kernels
from streamsvm.numeric.rounding import UNIT, sum_exactly
from streamsvm.numeric.rows import F64, I64, Flags, Rows, stack_rows, take_rows
from streamsvm.passes import Requests, Scan, Step, Take
from streamsvm.solvers.decomposition import all_active
from streamsvm.solvers.decomposition import state as decomposition
from streamsvm.solvers.decomposition.active_set import MOST_ROUNDS, ActiveSet, ColumnCache, Rounds, fill, improve
from streamsvm.solvers.decomposition.hinges import Hinges, SummedRows, Totals, Tube, compute_total, find_part
from streamsvm.solvers.decomposition.state import STUCK_STEPS, Change, Decomposition, ProvedState, RowSums, State
from streamsvm.solvers.decomposition.working_set import Conditions, draw_active_rows
from streamsvm.system import deadline

VIOLATION_SHARE = 0.01  # rows with less than this share of the largest violation need not be active
DAMPING_POWER = 0.25  # the exponent of 1 + v / m in `Draw.choose_damping`
MOST_TURNS = 16  # the maximum number of turns of a step; each turn reads rows
LEAST_CHANGED, LEAST_FRESH = 0.01, 6  # a further turn replaces at least this share, and number, of the active rows
# After ESCALATION_STEPS stuck steps, or after SLOW_STEPS steps on data with at most ESCALATION_ROWS rows, SMO and IRWLS
# alternate (IRWLS only on sets of at most ESCALATION_ROWS rows). Smaller working sets then grow to this size.
ESCALATION_STEPS, SLOW_STEPS, ESCALATION_ROWS = 2, 4, 256


JOINED = ("y", "costs", "alpha", "rows", "errors")  # arrays of an active set with an entry for each row


class NearRows:
    """The leeway of n rows during a step, from which likely new violators are found.

    leeway: (n,), the leeway of each row when its f was last known. known_at: (n,), the value of `path` at that time.
    path: the sum of the standard deviations of the changes of f of the active rows, one for each turn of the step so
    far.
    """

    def __init__(self, conditions: Conditions) -> None:
        self.leeway, self.known_at, self.path = conditions.leeway, np.zeros(len(conditions.errors)), 0.0

    def update(self, rows: I64, conditions: Conditions, change: F64) -> None:
        """Record the conditions of the active rows after a turn that changed their sums by `change`."""
        self.path += float(np.std(change))
        self.leeway[rows], self.known_at[rows] = conditions.leeway, self.path

    def list_rows(self, is_candidate: Flags) -> I64:
        """Return the candidates whose leeway is below the growth of `path` since it was known, the likeliest first."""
        path = self.path - self.known_at
        near = np.flatnonzero(is_candidate & (path > 0.0) & (self.leeway < path))
        return near[np.argsort(self.leeway[near] / path[near], kind="stable")]


def is_escalated(state: ProvedState, n_rows: int) -> bool:
    """Return whether to try other inner solvers and rules: after stuck steps, or after many steps on few rows."""
    return state.stuck >= ESCALATION_STEPS or (state.passes >= SLOW_STEPS and n_rows <= ESCALATION_ROWS)


@dataclass
class Turn:
    """The active rows in a turn of a step.

    before: (m,), y_i a_i of the active rows before the step. f: (m,), their sums before the step. damping: the factor
    of kernel values; the active set holds the sums f + damping * (change of f in the step). pairs: the number of pair
    steps of SMO in the step. start: (m,), the sums of the active rows at the beginning of the turn.
    """

    active: ActiveSet
    before: F64
    f: F64
    damping: float
    pairs: int = 0
    start: F64 = field(init=False)

    def __post_init__(self) -> None:
        self.start = self.expected

    @property
    def moves(self) -> F64:
        """The changes of y_i a_i in the step, (m,)."""
        return self.active.y * self.active.alpha - self.before

    @property
    def expected(self) -> F64:
        """The sums after the step, (m,), according to the kernel values of the active set."""
        return self.f + (self.active.f - self.f) / self.damping


class Draw:
    """Draws the active rows of a step: the rows of its first turn, and the rows that replace some of them later.

    tol: the violation above which a row is a violator. n_violators: the number of violators at a bound. candidates:
    (n,), whether a row is drawn before others: all rows in the first step, violators and free rows later. is_lacking:
    whether the sums of the multipliers are still below their fixed sums.
    """

    def __init__(self, settings: Decomposition, state: State) -> None:
        self.state, self.n_rows, self.seed = state, len(state.alpha), settings.seed
        self.size = settings.count_active(state.is_precise or is_escalated(state, self.n_rows))
        self.was_active: Flags = np.zeros(self.n_rows, np.bool_)
        self.candidates: Flags = np.ones(self.n_rows, np.bool_)
        self.turns, self.n_violators, self.tol = 0, self.n_rows, 0.0
        self.conditions: Conditions | None = None
        self.near: NearRows | None = None
        self.is_lacking = settings.nu is not None and state.passes == 0
        if state.passes:
            hinges = state.hinges
            self.is_lacking = isinstance(hinges, SummedRows) and bool(hinges.list_lacking())
            self.conditions = find_best_conditions(state)
            self.near = NearRows(self.conditions)
            self.tol = VIOLATION_SHARE * self.conditions.violation
            too_high, too_low = self.conditions.find_violators(self.tol)
            self.n_violators = int(np.count_nonzero((too_high | too_low) & ~self.conditions.free))
            self.candidates = too_high | too_low | self.conditions.free

    @cached_property
    def rng(self) -> np.random.Generator:
        """The random generator of this step."""
        return np.random.default_rng((self.seed, self.state.passes))

    def first(self) -> I64:
        """Return the rows of the first turn, ascending: random rows in the first step, later candidates."""
        if self.n_rows <= self.size:
            return np.arange(self.n_rows)
        hinges = self.state.hinges
        if self.state.passes and self.is_lacking and isinstance(hinges, SummedRows):
            return hinges.choose_lowest(self.size)
        return self._draw(self.size)

    def next(self, turn: Turn) -> I64:
        """Return the rows, ascending, that replace active rows that have not moved; empty after the last turn.

        Candidates that have not been active in this step come first, then likely new violators (see `NearRows`).
        """
        if self.is_lacking or self.turns == MOST_TURNS or deadline.is_over():
            return np.empty(0, np.int64)
        stays, waiting = turn.moves != 0.0, self.candidates & ~self.was_active
        near, n_waiting = self._list_near(turn, ~waiting), int(np.count_nonzero(waiting))
        n_new = min(int(np.count_nonzero(~stays)), n_waiting + len(near))
        if n_new < max(LEAST_FRESH, LEAST_CHANGED * self.size):
            return np.empty(0, np.int64)
        drawn = self._draw(min(n_new, n_waiting))
        near = near[: n_new - len(drawn)]
        self.was_active[near] = True
        return np.sort(np.concatenate((drawn, near)))

    def _list_near(self, turn: Turn, others: Flags) -> I64:
        """Return the rows of `others` that may have become violators since their f was known, the likeliest first."""
        if self.near is None:
            return np.empty(0, np.int64)
        active = replace(turn.active, f=turn.expected)
        self.near.update(active.rows, active.settle(), turn.expected - turn.start)
        return self.near.list_rows(others)

    def _draw(self, size: int) -> I64:
        """Draw up to `size` rows that have not been active in this step."""
        others, drawn = np.flatnonzero(~self.was_active), np.empty(0, np.int64)
        if self.conditions is None:
            drawn = np.sort(self.rng.choice(others, size, replace=False))
        elif size:
            drawn = others[draw_active_rows(self.conditions.of_rows(others), size, self.tol, self.rng)]
        self.was_active[drawn] = True
        self.turns += 1
        return drawn

    def choose_damping(self, n_moved: int) -> float:
        """Return (1 + v / m)^DAMPING_POWER for m active rows and v violators at a bound that the step has not moved.

        Even if all violators are active, about as many other rows will move in the same way after the step. Free rows
        do not count, since nearly all of them are active and do not make other rows move. CoCoA+ uses v / m itself;
        measurements favour much less damping.
        """
        if self.size >= self.n_rows or is_escalated(self.state, self.n_rows):
            return 1.0
        return math.pow(1.0 + max(self.n_violators - n_moved, 0) / self.size, DAMPING_POWER)


def find_best_conditions(state: State) -> Conditions:
    """Return the conditions of all rows relative to the best bias, or to the bias half-way between the extremes.

    The half-way bias is used for fixed sums, after a step without progress, and if all violators relative to the best
    bias are on one side: multipliers move in pairs, one up and one down.
    """
    hinges = state.hinges
    found = hinges.find_conditions()
    if not isinstance(hinges, Hinges) or state.stuck:
        return found
    both = hinges.list_both()
    about = found.about(find_best_bias(both.y, both.costs, both.f, both.corners))
    sides = about.find_violators(VIOLATION_SHARE * about.violation)
    return about if all(np.any(side) for side in sides) else found


def exchange_rows(settings: Decomposition, state: State, draw: Draw, turn: Turn, fresh: ActiveSet) -> Turn:
    """Return the next turn: the rows that have moved in this step, and the rows `fresh` in place of the others."""
    kept, active = np.flatnonzero(turn.moves), turn.active
    damping = draw.choose_damping(len(kept))
    moves, X = turn.moves[kept], take_rows(active.X, kept)
    f_kept = turn.f[kept] + (active.f - turn.f)[kept] * (damping / turn.damping)
    f_fresh = fresh.f.copy()
    kernels.add_kernel_sums(settings.kernel, fresh.X, X, damping * moves, f_fresh, settings.threads)

    def join(old: Any, new: Any) -> Any:
        return np.concatenate((old[kept], new))

    tube, f = active.tube, np.concatenate((f_kept, f_fresh))
    if tube is not None and fresh.tube is not None:
        tube = tube._replace(targets=join(tube.targets, fresh.tube.targets))
    arrays = {name: join(getattr(active, name), getattr(fresh, name)) for name in JOINED}
    joined = replace(active, X=stack_rows([X, fresh.X]), f=f, tube=tube, **arrays)
    joined.totals = find_totals(settings, state, joined.rows, joined.y, joined.costs)
    return Turn(joined, join(turn.before, fresh.y * fresh.alpha), join(turn.f, fresh.f), damping, turn.pairs)


def make_active(settings: Decomposition, state: State, chosen: I64, taken: Rows) -> ActiveSet:
    """Return the active set of the chosen rows, in float32, or in float64 if float32 is too coarse."""
    y, costs, tube = decomposition.read_hinges(settings, taken.n_rows, decomposition.read_y(taken), taken.sample_weight)
    decomposition.require_ranges({"the costs": costs})
    longest = max(state.longest, float(np.max(kernels.compute_squares(taken.X, np.float64), initial=0.0)))
    decomposition.require_kernel_range(settings.kernel, longest)
    precise = decomposition.needs_float64(settings, state, len(state.alpha), longest)
    X = kernels.to_float64(taken.X) if precise else taken.X
    is_bounded = len(chosen) == len(state.alpha) and all_active.bounds_by_terms(settings.kernel, X)
    alpha, f, errors = state.alpha[chosen], state.f[chosen], state.errors[chosen]
    terms, largest = np.zeros(len(chosen) if is_bounded else 0), settings.kernel.bound_values(longest)
    totals = find_totals(settings, state, chosen, y, costs)
    y = y if tube is None else state.y[chosen]
    return ActiveSet(X, y, costs, alpha, f, chosen, errors, terms, largest=largest, tube=tube, totals=totals)


def find_totals(settings: Decomposition, state: State, chosen: I64, y: F64, costs: F64) -> Totals | None:
    """Return the fixed sums of an active set, or None if the problem has none.

    The first step computes the sums from the costs of the active rows, since no other costs are known yet.
    """
    if settings.nu is None:
        return None
    total = state.total if state.passes else settings.nu * sum_exactly(costs)
    others = np.delete(state.y * state.alpha, chosen)
    has_tube = settings.tube is not None
    return find_part(None if has_tube else y, costs, total, settings.two_sums or has_tube, others)


ACTIVE_TOL_SHARE = 0.1  # an active set is solved to this share of its violation
ALL_ACTIVE_TOL_SHARE = 1e-4  # the same share if all rows are active, unless the gap becomes small enough earlier
SMALL_TOL_SHARE = 1e-10  # the same share if all rows form one working set in float64
FLOAT32_GAP_SHARE = 0.5  # rounds in memory aim at this share of the requested gap, because the recomputed gap is larger
INTERIOR_POINT_TURN = 4  # if there are few rows and all are active, every fourth step is the interior-point method


def solve(settings: Decomposition, state: State) -> Requests:
    """Train from a state. A run resumed from the state in any `Step` gives the same bits."""
    while True:
        draw = Draw(settings, state)
        rows = draw.first()
        active = make_active(settings, state, rows, (yield Take(rows)))
        if len(rows) == len(state.alpha):
            state = _solve_all(settings, state, active)
            del active  # free the memory before the next rows are taken
        else:
            turn = Turn(active, active.y * active.alpha, active.f.copy(), draw.choose_damping(0))
            del active
            _improve(settings, state, turn)
            while state.pairs + turn.pairs < settings.max_pairs and len(rows := draw.next(turn)):
                fresh = make_active(settings, state, rows, (yield Take(rows)))
                turn = exchange_rows(settings, state, draw, turn, fresh)
                del fresh
                _improve(settings, state, turn)
            change, first = _find_change(settings, state, turn), state.passes == 0
            tiles = yield Scan(list, decomposition.add_sums, add, (first, settings.pass_threads, *change))
            state = _add_up(settings, state, turn, decomposition.join_tiles(tiles))
            del change, tiles, turn
        yield Step(state, state.progress, _find_status(settings, state), {"pairs": state.pairs})


def _find_status(settings: Decomposition, state: State) -> str | None:
    """Return the status with which the run ends after this step, or None if it continues."""
    end, hinges = decomposition.find_end(settings, state), state.hinges
    is_stuck = state.stuck >= STUCK_STEPS
    if isinstance(hinges, SummedRows) and hinges.list_lacking():  # the multipliers are not feasible yet
        end = "stalled" if is_stuck else None
    elif isinstance(hinges, SummedRows) and 0.0 <= state.objective <= state.rounding_bound:
        end = "stalled"  # w is 0 to rounding: the reduced hull contains the origin, or the hulls of both classes meet
    elif is_stuck and len(state.alpha) <= settings.resident_rows:
        end = end or "stalled"  # with all rows active, more steps would only repeat the last one
    return end or ("pair_limit" if state.pairs >= settings.max_pairs else None)


def _make_rounds(
    settings: Decomposition, state: State, active: ActiveSet, gap: float | None, damping: float, pairs: int
) -> Rounds:
    """Return the rounds that improve the active set in this step.

    If the run `is_escalated`, the inner solver and the selection rule differ from those of `settings`. gap: see Rounds.
    pairs: the number of pair steps of SMO made so far.
    """
    size, seed = min(settings.working_rows, len(active.rows)), (settings.seed, state.passes, 1)
    inner, rule = settings.inner, settings.selection
    if is_escalated(state, len(state.alpha)):
        inner, rule = "irwls" if state.passes % 2 and size <= ESCALATION_ROWS else "smo", "second-order"
        size = min(max(size, ESCALATION_ROWS), len(active.rows))
    if rule == "platt" and kernels.type_of(active.X) != np.float32:  # Platt's loops are compiled for float32 rows only
        rule = "second-order"
    most = max(0, settings.max_pairs - pairs)
    return Rounds(settings.kernel, inner, rule, size, settings.threads, seed, damping, gap, most_pairs=most)


def _solve_all(settings: Decomposition, state: State, active: ActiveSet) -> State:
    """Return the state after a step in which all rows are active."""
    longest = float(np.max(kernels.compute_squares(active.X, np.float64), initial=0.0))
    after = _add_facts(settings, state, active.y, active.costs, active.tube, longest)
    gap = FLOAT32_GAP_SHARE * settings.tol
    is_turn = state.passes > 0 and state.passes % INTERIOR_POINT_TURN == 0
    ascends, noisy, proof = True, False, None
    if is_turn and all_active.suits_factor(active, settings.kernel):
        errors = all_active.solve_by_interior_point(active, settings.kernel, settings.threads, gap)
        ascends = False
    else:
        small = settings.is_small(len(state.alpha))
        rounds = _make_rounds(settings, state, active, None if small else gap, 1.0, state.pairs)
        if small:
            if rounds.inner == "smo" and active.totals is None:  # one round is enough, unless rounds change the sums
                rounds.inner_share = 0.0
            cache = ColumnCache.of_all(kernels.compute_kernel(settings.kernel, active.X, settings.threads))
        else:
            cache = ColumnCache.of_size(len(active.rows), settings.cache_bytes, kernels.type_of(active.X))
        largest, share = settings.kernel.bound_values(longest), SMALL_TOL_SHARE if small else ALL_ACTIVE_TOL_SHARE
        errors, noisy, proof = all_active.solve_all(active, rounds, cache, share, settings.tol, largest)
        after = replace(after, pairs=state.pairs + rounds.pairs)
    moved = replace(after, y=active.y, alpha=active.alpha, f=active.f, errors=errors)
    known = proof if active.totals is None else None  # the fixed sums of the state are not those of the active set
    return decomposition.update_state(settings, after, moved, noisy, ascends, known)


def _add_facts(settings: Decomposition, state: State, y: F64, costs: F64, tube: Tube | None, longest: float) -> State:
    """Return the state with the rows' facts, which the first step finds: y, costs, targets, and the fixed sum."""
    total = 0.0 if settings.nu is None else compute_total(settings.nu, costs)
    state = replace(state, y=y, costs=costs, longest=longest, total=total)
    return state if tube is None else replace(state, targets=tube.targets, width=tube.width)


def _improve(settings: Decomposition, state: State, turn: Turn) -> None:
    """Improve the active rows of a turn."""
    active, made = turn.active, state.pairs + turn.pairs
    rounds = _make_rounds(settings, state, active, None, turn.damping, made)
    cache = ColumnCache.of_size(len(active.rows), settings.cache_bytes, kernels.type_of(active.X))
    fill(active, rounds, cache)
    violation = active.settle().violation
    improve(active, rounds, cache, ACTIVE_TOL_SHARE * violation, MOST_ROUNDS)
    turn.pairs += rounds.pairs


def _find_change(settings: Decomposition, state: State, turn: Turn) -> Change:
    """Restore the sums of the multipliers after the last turn; return the change of f that a pass applies."""
    active = turn.active
    others = np.delete(state.y * state.alpha, active.rows)
    active.hinges.restore_sums(others[others != 0.0])
    changed = np.flatnonzero(turn.moves)
    rows = kernels.to_float64(take_rows(active.X, changed))
    return decomposition.make_change(settings.kernel, rows, turn.moves[changed])


def _add_up(settings: Decomposition, state: State, turn: Turn, sums: RowSums) -> State:
    """Return the state after a pass."""
    active, state = turn.active, replace(state, pairs=state.pairs + turn.pairs)
    if state.passes == 0:
        about = decomposition.read_hinges(settings, len(sums.f), sums.y, sums.sample_weight)
        state = _add_facts(settings, state, *about, sums.longest)
    alpha, y = state.alpha.copy(), state.y.copy()
    alpha[active.rows], y[active.rows] = active.alpha, active.y
    f = state.f + sums.f
    errors = state.errors + sums.errors + UNIT * np.abs(f)
    moved = replace(state, y=y, alpha=alpha, f=f, errors=errors)
    left = replace(moved, y=moved.hinges.choose_sides()).hinges.find_conditions().violation
    noisy = bool(np.max(np.abs(turn.expected - f[active.rows])) > all_active.NOISE_SHARE * left)
    return decomposition.update_state(settings, state, moved, noisy)
