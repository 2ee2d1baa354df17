"""Which rows are active: a step draws them, and rows that do not move give their places to others.

A step improves the active rows in several turns, and then makes one pass. After a turn, the rows whose multipliers have
changed stay, because the pass needs them, and the other rows leave. As many rows that have not been active in this step
are drawn in their places and taken, and their f is brought up to date by the rows that stay. So nearly all rows by
which a pass updates f have moved: without turns, a third of the rows of a step did not move (splice and Covertype).
When all violators have been active, the places go to rows that the step may have made violate their conditions, be it
for the first time or again (near_rows.py): nine tenths of the gap after a late step of Covertype belonged to rows that
had been active in this step, had left, and were moved to the wrong side of their margins by the turns that followed.

By how far a row violates its condition is measured about the bias at which P is least. The bias half-way between the
extremes, about which pairs are chosen, depends on a few far rows: about it, thousands of rows of one side seem to
violate their condition, although they do not.

Damping multiplies kernel values while a step lasts, as if each active row stood for some of the violators that are not
active in this step, and will move as it does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from streamsvm.methods.decomposition.active_set import ActiveSet
from streamsvm.methods.decomposition.all_active import bounds_by_terms
from streamsvm.methods.decomposition.fixed_sums import SummedRows, Totals, find_part, split_total
from streamsvm.methods.decomposition.near_rows import NearRows
from streamsvm.methods.decomposition.proved_state import ProvedState
from streamsvm.methods.decomposition.row_sums import read_y
from streamsvm.methods.decomposition.selection import Conditions, Mask, draw_active_rows
from streamsvm.methods.decomposition.settings import (
    Decomposition,
    is_small,
    read_hinges,
    require_kernel_range,
    suits_float32,
    takes_pairs_only,
)
from streamsvm.methods.decomposition.state import State, require_range
from streamsvm.methods.decomposition.tube import Hinges
from streamsvm.numeric.certificates import find_best_bias
from streamsvm.numeric.kernels import add_kernel_sums, compute_squares, to_float64
from streamsvm.numeric.rounding import sum_exactly
from streamsvm.numeric.rows import F64, I64, Rows, stack_rows, take_rows

VIOLATION_SHARE = 0.01  # rows that violate by less than this share of the largest violation need not be active
DAMPING_POWER = 0.25  # of the share of violators that an active row stands for
MOST_TURNS = 16  # of a step, each with its own rows to take
LEAST_CHANGED, LEAST_FRESH = 0.01, 6  # the least share, and number, of the active rows that a further turn exchanges
# After so many such steps, or after so many steps on few rows, the inner solvers alternate on ESCALATION_ROWS or more.
ESCALATION_STEPS, SLOW_STEPS, ESCALATION_ROWS = 2, 4, 256


def is_escalated(state: ProvedState, n_rows: int) -> bool:
    """Whether other inner solvers and rules are tried: nothing has moved, or few rows have taken many steps."""
    return state.stuck >= ESCALATION_STEPS or (state.passes >= SLOW_STEPS and n_rows <= ESCALATION_ROWS)


@dataclass
class Turn:
    """The active rows in a turn of a step.

    before, f: (m,), y_i a_i and the sums of the active rows before the step. damping: the factor of kernel values, so
    that the sums of the active set are f + damping times what the step has changed. pairs: the pair steps of SMO that
    the step has made. start: (m,), the sums of the active rows at the beginning of the turn.
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
        """By how much y_i a_i have changed in the step, (m,)."""
        return self.active.y * self.active.alpha - self.before

    @property
    def expected(self) -> F64:
        """The sums after the step, (m,), as the kernel values of the active set tell them."""
        return self.f + (self.active.f - self.f) / self.damping


class Draw:
    """The draws of a step: its first rows, and the rows that take the places of others.

    tol: the least violation of the violators that are drawn. n_violators: how many rows at a bound violate by more.
    candidates: (n,), which rows are drawn before others: all rows in the first step, later these violators and free
    rows. is_lacking: whether the multipliers do not have their fixed sums yet.
    """

    def __init__(self, settings: Decomposition, state: State) -> None:
        self.state, self.n_rows = state, len(state.alpha)
        self.rng = np.random.default_rng((settings.seed, state.passes))
        self.size = settings.resident_rows
        if settings.precise_rows is not None and (state.is_precise or is_escalated(state, self.n_rows)):
            self.size = settings.precise_rows
        self.was_active: Mask = np.zeros(self.n_rows, np.bool_)
        self.candidates: Mask = np.ones(self.n_rows, np.bool_)
        self.turns, self.n_violators, self.tol = 0, self.n_rows, 0.0
        self.conditions: Conditions | None = None
        self.near: NearRows | None = None
        self.is_lacking = settings.nu is not None and state.passes == 0
        if state.passes:
            hinges = state.hinges
            self.is_lacking = isinstance(hinges, SummedRows) and not hinges.is_full
            self.conditions = find_best_conditions(state)
            self.near = NearRows(self.conditions)
            self.tol = VIOLATION_SHARE * self.conditions.violation
            too_high, too_low = self.conditions.find_violators(self.tol)
            self.n_violators = int(np.count_nonzero((too_high | too_low) & ~self.conditions.free))
            self.candidates = too_high | too_low | self.conditions.free

    def first(self) -> I64:
        """Return the rows of the first turn, ascending: any rows at first, later violators and free rows."""
        if self.n_rows <= self.size:
            return np.arange(self.n_rows)
        hinges = self.state.hinges
        if self.state.passes and self.is_lacking and isinstance(hinges, SummedRows):
            return hinges.choose_lowest(self.size)
        return self._draw(self.size)

    def next(self, turn: Turn) -> I64:
        """Return the rows, ascending, that take the places of rows that have not moved; none after the last turn.

        First come rows that have not been active in this step, and then rows that are near.
        """
        if self.is_lacking or self.turns == MOST_TURNS:
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

    def _list_near(self, turn: Turn, others: Mask) -> I64:
        """Return the rows of others that the step may have made violators since they were active, the nearest first."""
        if self.near is None:
            return np.empty(0, np.int64)
        active = replace(turn.active, f=turn.expected)
        self.near.update(active.rows, active.settle(), turn.expected - turn.start)
        return self.near.list_rows(others)

    def _draw(self, size: int) -> I64:
        """Draw rows that have not been active in this step."""
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

        About as many rows as violate before a step will move after it as the active rows do now, even if all violators
        are active. Free rows are not counted, since nearly all of them are active, and move no others. CoCoA+ takes
        v / m itself; measurements favour much less.
        """
        if self.size >= self.n_rows or is_escalated(self.state, self.n_rows):
            return 1.0
        return math.pow(1.0 + max(self.n_violators - n_moved, 0) / self.size, DAMPING_POWER)


def find_best_conditions(state: State) -> Conditions:
    """Return the conditions of all rows about the best bias, or about the middle of the extremes.

    It is the middle for fixed sums, after a step that has moved nothing, and where all violators about the best bias
    are of one side, since multipliers move in pairs of one up and one down.
    """
    hinges = state.hinges
    found = hinges.find_conditions()
    if not isinstance(hinges, Hinges) or state.stuck:
        return found
    both = hinges.list_both()
    about = found.about(find_best_bias(both.y, both.costs, both.f, both.corners))
    sides = about.find_violators(VIOLATION_SHARE * about.violation)
    return about if all(np.any(side) for side in sides) else found


def start_turn(draw: Draw, active: ActiveSet) -> Turn:
    """Return the first turn of a step."""
    return Turn(active, active.y * active.alpha, active.f.copy(), draw.choose_damping(0))


def exchange_rows(settings: Decomposition, state: State, draw: Draw, turn: Turn, fresh: ActiveSet) -> Turn:
    """Return the next turn: rows that have moved in this step, and the fresh rows in the places of the others."""
    kept, active = np.flatnonzero(turn.moves), turn.active
    damping = draw.choose_damping(len(kept))
    moves, X = turn.moves[kept], take_rows(active.X, kept)
    f_kept = turn.f[kept] + (active.f - turn.f)[kept] * (damping / turn.damping)
    f_fresh = fresh.f.copy()
    add_kernel_sums(settings.kernel, fresh.X, X, damping * moves, f_fresh, settings.threads)

    def join(old: F64, new: F64) -> F64:
        return np.concatenate((old[kept], new))

    rows, costs = np.concatenate((active.rows[kept], fresh.rows)), join(active.costs, fresh.costs)
    y = join(active.y, fresh.y)
    tube = active.tube
    if tube is not None and fresh.tube is not None:
        tube = tube._replace(targets=join(tube.targets, fresh.tube.targets))
    joined = replace(
        active,
        X=stack_rows([X, fresh.X]),
        y=y,
        costs=costs,
        alpha=join(active.alpha, fresh.alpha),
        f=np.concatenate((f_kept, f_fresh)),
        rows=rows,
        errors=join(active.errors, fresh.errors),
        tube=tube,
        totals=None if settings.nu is None else find_totals(settings, state, rows, y, costs),
    )
    return Turn(joined, join(turn.before, fresh.y * fresh.alpha), join(turn.f, fresh.f), damping, turn.pairs)


def make_active(settings: Decomposition, state: State, chosen: I64, taken: Rows) -> ActiveSet:
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
        totals=None if settings.nu is None else find_totals(settings, state, chosen, y, costs),
    )


def find_totals(settings: Decomposition, state: State, chosen: I64, y: F64, costs: F64) -> Totals:
    """Return the fixed sums of an active set. In the first step its costs are all that is known, and make its share."""
    assert settings.nu is not None
    total = state.total if state.passes else settings.nu * sum_exactly(costs)
    totals = split_total(total, takes_pairs_only(settings))
    others = np.delete(state.y * state.alpha, chosen)
    return find_part(y if settings.tube is None else None, costs, totals, others)
