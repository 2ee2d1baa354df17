"""Crammer-Singer by dual coordinate ascent on one block of the data after another (see cutting_plane.block_ascent).

    D(c) = sum_i C_i s_i - 1/2 |W(c)|^2,      s_i = sum_{k != y_i} c_ik <= 1,  c_ik >= 0

The rows have K shares each (crammer_singer.ascent). Everything else is as for two classes: a pass proves P and D for
the shares with which it begins, while it improves them block by block, and keeps the rows whose best classes are close.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from streamsvm.methods.crammer_singer.ascent import make_part
from streamsvm.methods.crammer_singer.exact_points import look_for_rounding, take_rounding
from streamsvm.methods.crammer_singer.line_search import take_best
from streamsvm.methods.crammer_singer.lines import find_ends, look_along
from streamsvm.methods.cutting_plane import block_ascent
from streamsvm.methods.cutting_plane.block_ascent import DualTotals, Way, combine_dual, start_dual, take_bound
from streamsvm.methods.cutting_plane.block_walk import BlockAscent
from streamsvm.methods.cutting_plane.coordinate_ascent import AscentRows, ascend
from streamsvm.numeric.class_losses import add_multiples, read_costs
from streamsvm.numeric.class_shares import split_shares
from streamsvm.numeric.rows import F64, Rows
from streamsvm.requests import Scan, Solver

WHOLE_SHARE = 0.5  # of the gap that is asked for, at which the ascent ends if all rows are in memory
STEPS = np.arange(1, 9) / 8  # where a pass looks on the line from the best point to that of the shares


@dataclass(frozen=True)
class ClassAscent(BlockAscent):
    """Settings of the solver; class_costs: C_i of the K classes."""

    @property
    def n_classes(self) -> int:
        """The number K of classes."""
        return len(self.class_costs)

    def make_part(self, rows: Rows, share: F64) -> AscentRows:
        """Return rows with a copy of their shares (n, K)."""
        return make_part(rows, np.array(self.class_costs), self.bias_feature, share)

    def ascend(
        self, parts: Sequence[AscentRows], w: F64, wanted: float, tol: float, epochs: int, seed: tuple[int, ...]
    ) -> F64:
        """Improve the shares of the parts. The ascent has the weights of a feature next to each other, (d+1, K)."""
        V = np.ascontiguousarray(w.reshape(self.n_classes, -1).T)
        after = ascend(parts, self.bias_feature, V, 0.0, wanted, tol, epochs, seed).w
        return np.ascontiguousarray(after.T).ravel()


@dataclass
class State(block_ascent.State):
    """All that changes. Weights are flat, (K (d+1),); share, proved (n, K): see crammer_singer.ascent."""

    shapes: ClassVar = block_ascent.State.shapes | {"share": ("n", "k"), "proved": ("n", "k")}


def start_state(settings: ClassAscent, n_features: int) -> State:
    """Return the state before the first pass: W = 0 and c = 0. No rows are kept, or all of them."""
    share = np.zeros((settings.n_rows, settings.n_classes))
    return State(**block_ascent.start_fields(settings, settings.n_classes * (n_features + 1), share))


def warm_state(settings: ClassAscent, before: State, factor: float) -> State:
    """Return the state to start from, given the last state of the problem whose costs are `factor` times smaller."""
    first = start_state(settings, len(before.best_w) // settings.n_classes - 1)
    return replace(first, share=before.share, master_w=factor * before.master_w, resident=before.resident)


def solve(settings: ClassAscent, state: State) -> Solver:
    """Go on from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    return block_ascent.solve(settings, state, CLASSES)


def _improve(settings: ClassAscent, state: block_ascent.State, rows: Rows) -> tuple[block_ascent.State, F64]:
    """Return the state with better shares of all rows, which are in memory, and the point to look from to their W."""
    part, seed = settings.make_part(rows, state.share), (settings.seed, state.passes)
    W = settings.ascend([part], state.master_w, 0.0, WHOLE_SHARE * settings.tol, state.epochs, seed)
    return replace(state, share=part.share, master_w=W), state.best_w


def _list_scans(settings: ClassAscent, state: block_ascent.State, start: F64) -> list[Scan]:
    """Return the sums over all rows that a pass is asked for: D, P along the line, and what bounds their rounding."""
    ends, class_costs = find_ends(start, state.master_w, settings.n_classes), np.array(settings.class_costs)
    shared = (class_costs, settings.bias_feature)
    dual = Scan(partial(start_dual, len(state.best_w)), add_dual, combine_dual, shared, (state.share,))
    of_rounding = look_for_rounding(state, ends, *shared, settings.tol)
    matrices = ends.reshape(2, settings.n_classes, -1)
    return [dual, look_along(matrices, STEPS, np.empty(0), *shared), *of_rounding]


def add_dual(totals: DualTotals, rows: Rows, class_costs: F64, bias_feature: float, share: F64) -> None:
    """Add rows with their shares (n, K), whose sum s_i is made 1 where rounding has put it above."""
    assert rows.y is not None
    costs = read_costs(class_costs, rows)
    taken, own = split_shares(share, rows.y)
    classes, places = np.nonzero(taken.T)
    used = np.flatnonzero(own > 0.0)
    add_multiples(
        totals.gradient.reshape(len(class_costs), -1),
        rows,
        np.concatenate((places, used)),
        np.concatenate((classes, rows.y[used].astype(np.int64))),
        np.concatenate((-(costs[places] * taken[places, classes]), (costs * own)[used])),
        bias_feature,
    )
    totals.cost += float(costs @ own)


def _prove(settings: ClassAscent, state: block_ascent.State, start: F64, totals: Sequence[Any]) -> block_ascent.State:
    """Return the state with D of its shares, and with the best point of the line, from sums over all rows."""
    dual, line, *others = totals
    ends = find_ends(start, state.master_w, settings.n_classes)
    state = take_best(take_rounding(state, ends, others), ends, STEPS, line)
    return take_bound(state, dual)


CLASSES = Way(_improve, _list_scans, _prove)
