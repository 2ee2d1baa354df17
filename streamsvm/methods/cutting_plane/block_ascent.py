"""Dual coordinate ascent on one block of the data after another, while the rows near the margin stay in memory.

    D(c) = sum_i C_i c_i - 1/2 |w(c)|^2,   w(c) = sum_i C_i c_i y_i x_i,   0 <= c_i <= 1

D is the dual of the SVM: C_i is the cost of row i with label y_i, and c_i its share. A pass walks through the blocks,
which are a few chunks each, in an order that the seed draws. Coordinate ascent improves the shares of the rows of the
block and of the rows that were kept before, and w follows each step at once. Then the rows nearest the margin are kept:
their shares are the most likely to move again. So a row's share is chosen with a w that has seen all blocks before, and
it takes a few passes where sums over all rows at a few points take dozens.

P and D are proved by sums over all rows, for the shares with which a pass begins: while a block is in memory, it is
added to D of these shares and to P along the line from the best point to their w, before its shares move. So the last
pass is the one that proves. If all rows fit into memory, their shares are improved there, and a pass only
proves (cutting_plane.rows_in_memory).

Sources: Yu, Hsieh, Chang & Lin 2010, "Large linear classification when data cannot fit in memory" (blocks); Chang &
Roth 2011, "Selective block minimization for faster convergence of limited memory large-scale linear models" (kept
rows); Hsieh et al. 2008 (cutting_plane.coordinate_ascent).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from streamsvm.methods.cutting_plane.block_walk import BlockAscent, Carry, Effort, take_block
from streamsvm.methods.cutting_plane.cuts import CutState, count_pass, find_status
from streamsvm.methods.cutting_plane.exact_points import (
    LINE_STEPS,
    choose_line_points,
    is_noisy,
    look_for_rounding,
    take_exact,
    take_magnitudes,
)
from streamsvm.methods.cutting_plane.master_problem import bound_dual
from streamsvm.methods.cutting_plane.rows_in_memory import improve
from streamsvm.methods.cutting_plane.segments import LineState, measure_along, search_line
from streamsvm.numeric.exact_losses import ExactLosses
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.row_products import add_rows
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.requests import All, Scan, Solver, Step, Take, Walk

EPOCHS = 10  # of the ascent on a block and the kept rows, at most, in the first passes
MORE_EPOCHS = 2  # times as many follow a pass after which the gap is more than SLOW times what it was before
SLOW = 0.4
STUCK = 0.8  # takes the place of SLOW if all rows are in memory
MOST_EPOCHS = 80  # on a block; more of them cost more time than the passes that they save
WHOLE_EPOCHS = 1000  # if all rows are in memory, where more epochs cost no read
ASCENT_SHARE = 0.3  # the ascent on a block ends at this share of the gap that is asked for, of the rows in memory
LINE = np.ones(1)  # the cut step of the line: its end


@dataclass
class State(LineState):
    """All that changes. Vectors are (d+1,); their last entry is the weight of the constant feature.

    There are no cuts, and master_w is w of the shares c.

    share (n,): c; proved (n,): the shares behind the lower bound; resident (r,): the numbers of the rows that are kept;
    epochs: of the ascent on a block, at most, in the next pass, and 0 if it has given up; slow: whether the epochs have
    grown to MOST_EPOCHS, or many epochs over all rows in memory have not helped.
    """

    share: F64 = field(default_factory=lambda: np.empty(0))
    proved: F64 = field(default_factory=lambda: np.empty(0))
    resident: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    epochs: int = EPOCHS
    slow: bool = False
    repeats: ClassVar[float] = 1.0
    shapes: ClassVar = CutState.shapes | {"share": ("n",), "proved": ("n",), "resident": ("r",)}
    row_numbers: ClassVar = ("resident",)

    @property
    def is_slow(self) -> bool:
        """Whether the line search beside is wanted."""
        return self.slow


S = TypeVar("S", bound=State)


@dataclass
class DualTotals:
    """The sums that make a dual point: gradient (d+1,) and cost, sum C_i c_i y_i x_i and sum C_i c_i."""

    gradient: F64
    cost: float = 0.0


def start_state(settings: BlockAscent, n_features: int) -> State:
    """Return the state before the first pass: w = 0 and c = 0. No rows are kept, or all of them."""
    return State(**start_fields(settings, n_features + 1, np.zeros(settings.n_rows)))


def start_fields(settings: BlockAscent, width: int, share: F64) -> dict[str, Any]:
    """Return the fields of the state before the first pass, for weights of so many entries and for these shares."""
    none = np.zeros(width)
    return {
        "best_w": none,
        "master_w": none,
        "cuts": np.empty((0, width)),
        "terms": count_terms(settings),
        "share": share,
        "proved": share,
        "resident": np.arange(settings.n_rows if settings.keeps_all else 0),
        "epochs": _choose_epochs(settings),
    }


def _choose_epochs(settings: BlockAscent) -> int:
    """Return the most epochs of the first pass: many if one block holds all rows."""
    if settings.keeps_all:
        return WHOLE_EPOCHS
    return EPOCHS if len(settings.list_blocks()) > 1 else MOST_EPOCHS


def count_terms(settings: BlockAscent) -> float:
    """Return the most additions that a term of a sum goes through, in whatever order a walk takes the blocks."""
    if settings.keeps_all:
        return 0.0
    blocks = settings.list_blocks()
    return float(min(settings.n_rows, max(map(settings.count_rows, blocks)) + len(blocks) + LINE_STEPS))


def warm_state(settings: BlockAscent, before: State, factor: float) -> State:
    """Return the state to start from, given the last state of the problem whose costs are `factor` times smaller."""
    first = start_state(settings, len(before.best_w) - 1)
    return replace(first, share=before.share, master_w=factor * before.master_w, resident=before.resident)


class Way(NamedTuple):
    """What the ascent does by the loss.

    improve: improves the shares of all rows, which are in memory, and returns the state and a point; list_scans: the
    sums over all rows that a pass is asked for along the line from a point, the dual point's first; prove: returns the
    state with P and D that these sums prove.
    """

    improve: Callable[[Any, State, Rows], tuple[State, F64]]
    list_scans: Callable[[Any, State, F64], list[Scan]]
    prove: Callable[[Any, State, F64, Sequence[Any]], State]


def solve(settings: BlockAscent, state: State, way: Way | None = None) -> Solver:
    """Go on from a state. A run that is resumed from the state in any `Step` gives the same bits.

    way: None is HINGE.
    """
    way = way or HINGE
    kept: Rows | None = None
    while True:
        before = state
        if kept is None and len(state.resident):
            kept = yield Take(state.resident)
        if settings.keeps_all and state.epochs == 0:
            yield All([])  # the line search beside has its pass
        elif settings.keeps_all:
            assert kept is not None
            state, start = way.improve(settings, state, kept)
            first, *others = way.list_scans(settings, state, start)
            state = way.prove(settings, state, start, (yield All([replace(first, held=kept), *others])))
        else:
            start = state.best_w
            (carry,), *totals = yield All(
                [_make_walk(settings, state, kept), *way.list_scans(settings, state, start)], in_walk=True
            )
            state, kept = way.prove(settings, state, start, totals), carry.kept
            change = carry.w - before.master_w
            w = totals[0].gradient + change  # the sum over all rows, without the rounding of earlier ascents
            state = replace(state, share=carry.share, resident=carry.numbers, master_w=w)
        state = _count_epochs(settings, count_pass(state, before, 1), before)
        figures = {"resident_rows": float(len(state.resident))}
        yield Step(state, state.progress, find_status(state, settings.tol), figures)


def _count_epochs(settings: BlockAscent, state: State, before: State) -> State:
    """Return the state with other epochs for the next pass if this one has lowered the gap too little.

    On blocks there are more of them. If all rows are in memory, many epochs have not helped, and few leave the rest to
    the line search beside (cutting_plane.beside).
    """
    gap, last = state.objective - state.lower_bound, before.objective - before.lower_bound
    if before.passes == 0 or gap <= (STUCK if settings.keeps_all else SLOW) * last:
        return state
    if settings.keeps_all:
        return replace(state, epochs=min(EPOCHS, state.epochs), slow=True)
    epochs = min(MORE_EPOCHS * state.epochs, MOST_EPOCHS)
    return replace(state, epochs=epochs, slow=epochs == MOST_EPOCHS)


def _list_scans(settings: BlockAscent, state: State, start: F64) -> list[Scan]:
    """Return the sums over all rows that a pass is asked for: D, P along the line, and what rounding asks for."""
    ends, class_costs = np.stack((start, state.master_w)), np.array(settings.class_costs)
    shared = (class_costs, settings.bias_feature)
    dual = Scan(partial(start_dual, len(state.best_w)), add_dual, combine_dual, shared, (state.share,))
    points = choose_line_points(*ends) if is_noisy(state, settings.tol) else None
    extra = look_for_rounding(state, points, class_costs, settings.bias_feature)
    return [dual, measure_along(ends, LINE, class_costs, settings.bias_feature), *extra]


def start_dual(width: int) -> DualTotals:
    """Return the totals of no rows."""
    return DualTotals(np.zeros(width))


def add_dual(totals: DualTotals, rows: Rows, class_costs: F64, bias_feature: float, share: F64) -> None:
    """Add rows with their shares."""
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    used = np.flatnonzero(costs * share > 0.0)
    coef = (y * costs * share)[used]
    add_rows(totals.gradient[None, :], rows.X, used, np.zeros_like(used), coef)
    totals.gradient[-1] += bias_feature * float(np.sum(coef))
    totals.cost += float(costs @ share)


def combine_dual(left: DualTotals, right: DualTotals) -> DualTotals:
    """Return the totals of the rows of both."""
    return DualTotals(left.gradient + right.gradient, left.cost + right.cost)


def _make_walk(settings: BlockAscent, state: State, kept: Rows | None) -> Walk:
    blocks = settings.list_blocks()
    order = np.random.default_rng((settings.seed, state.passes)).permutation(len(blocks))
    carry = Carry(0, state.share, state.master_w, kept, state.resident)
    wanted = ASCENT_SHARE * settings.tol * state.lower_bound / settings.n_rows
    effort = Effort((settings.seed, state.passes), state.epochs, wanted)
    return Walk(partial(take_block, settings, effort), [carry], [[blocks[k] for k in order]])


def _prove(settings: BlockAscent, state: State, start: F64, totals: Sequence[Any]) -> State:  # noqa: ARG001
    """Return the state with D of its shares, and with the best point of the line, from sums over all rows."""
    dual, segment, *others = totals
    state = take_magnitudes(state, others)
    ends = np.stack((start, state.master_w))
    state, _, _ = search_line(state, ends, LINE, segment)
    if len(others) and isinstance(others[0], ExactLosses):
        state = take_exact(state, choose_line_points(*ends), others[0])[0]
    return take_bound(state, dual)


def take_bound(state: S, dual: DualTotals) -> S:
    """Return the state with D of its shares, if that is the highest one. The shares make one cut."""
    cost = np.full(1, dual.cost)
    point = replace(state, cuts=dual.gradient[None, :], offsets=cost, sizes=cost)
    value, rounding = bound_dual(point, np.ones(1))
    if value - rounding > state.lower_bound:
        return replace(
            state, lower_bound=value - rounding, bound_rounding=rounding, proved=state.share, tried_rounding=0.0
        )
    return replace(state, tried_rounding=0.0 if value <= state.lower_bound else rounding)


HINGE = Way(improve, _list_scans, _prove)
