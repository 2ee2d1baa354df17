"""Cutting planes guided by the multipliers of resident rows: for rows of many features, where cuts are long.

    D(c) = sum_i C_i c_i - 1/2 |w(c)|^2,   w(c) = sum_i C_i c_i y_i x_i,   0 <= c_i <= 1

D is the dual of the SVM: C_i is the cost of row i with label y_i, and c_i its share. A cut is made of rows with c_i = 1
and c_i = 0 (Joachims 2006), so the master problem, which combines cuts, gives every row a share in [0, 1]: its optimum
is a point of the SVM's dual. The driver holds the shares, and one bit a row for each of the latest cuts, which says
whether the row is active in it. Between two passes the rows are taken into memory that violate their conditions most:

    c_i = 0: y_i w.x_i >= 1,    c_i = 1: y_i w.x_i <= 1,    else: y_i w.x_i = 1.

Coordinate ascent improves their shares, while all other shares are fixed. The new dual point is the first cut of the
master problem, and its best one. If a dataset of a few hundred rows is not solved after some passes, an interior-point
method takes the place of the ascent (cutting_plane.multiplier_qp). A pass looks along the line from the best point to
the master's minimiser, as cutting_plane.solver does, and finds cuts and margins on it. P and D are sums over all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from streamsvm.methods.cutting_plane.coordinate_ascent import ascend, make_part
from streamsvm.methods.cutting_plane.cuts import (
    CutState,
    count_pass,
    extend_products,
    find_status,
    minimise_master,
    scale_costs,
)
from streamsvm.methods.cutting_plane.exact_points import (
    choose_line_points,
    is_noisy,
    look_for_rounding,
    take_exact,
    take_magnitudes,
)
from streamsvm.methods.cutting_plane.line_statuses import LineTotals, add_to_line, combine_lines, start_line
from streamsvm.methods.cutting_plane.multiplier_qp import MOST_ROWS, PRODUCTS, maximise_shares, multiply_rows
from streamsvm.methods.cutting_plane.nearness import draw_any
from streamsvm.methods.cutting_plane.row_statuses import U8, find_active
from streamsvm.methods.cutting_plane.segments import (
    LineState,
    choose_cut_steps,
    count_cut_steps,
    search_line,
    totals_bytes,
)
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F32, F64, I64, Rows, add_rows
from streamsvm.requests import All, Scan, Solver, Step, Take

KEPT_CUTS = 128
EPOCHS = 20  # epochs of the ascent between two passes, at most
ASCENT_SHARE = 0.1  # the ascent ends when the resident rows' part of the gap is this share of the whole gap
WHOLE_SHARE = 0.5  # if all rows are resident, it ends at this share of the gap that is asked for
ASCENT_PASSES = 10  # after so many passes the ascent counts as slow, and an interior-point method takes few rows


@dataclass(frozen=True)
class GuidedDual:
    """Settings of the solver.

    class_costs (2,): C_i of the classes coded 0 and 1, before sample weights; resident_rows: how many rows are taken
    into memory; tol: the relative gap to reach; bias_feature: the value of the constant feature; seed: of random draws.
    """

    class_costs: tuple[float, float]
    resident_rows: int
    tol: float = 1e-3
    bias_feature: float = 1.0
    seed: int = 0

    def driver_bytes(self, n_rows: int, n_features: int) -> int:
        """Return the bytes of the driver without the resident rows: cuts, shares, statuses, and work on all rows."""
        width = n_features + 1
        cuts_bytes, products_bytes = 8 * width * (2 * KEPT_CUTS + 3 * count_cut_steps(width)), 0
        if n_rows <= MOST_ROWS:
            products_bytes = PRODUCTS * 8 * n_rows**2
        return cuts_bytes + products_bytes + n_rows * (KEPT_CUTS // 8 * 2 + 60)

    def turn_bytes(self, n_features: int) -> int:
        """Return the driver's bytes in use only while a step is computed: one of two copies of the cuts."""
        return 8 * (n_features + 1) * KEPT_CUTS

    def shared_bytes(self, n_features: int) -> int:
        """Return the bytes that every task of a pass is sent, twice: passes of several fits in one read copy them."""
        return 8 * 4 * (n_features + 1)

    def totals_bytes(self, group_rows: int, n_features: int) -> int:
        """Return the bytes of one task's totals for a group of `group_rows` rows."""
        return totals_bytes(count_cut_steps(n_features + 1), n_features + 1) + 5 * group_rows


@dataclass
class State(LineState):
    """All that changes. Vectors are (d+1,); their last entry is the weight of the constant feature.

    share (n,): the shares c of the dual point, which is the first cut; active (m-1, n/8): for each of the other cuts a
    bit a row that says whether the row is active in it; resident (r,): the rows to be taken into memory next.
    """

    share: F64 = field(default_factory=lambda: np.empty(0))
    active: U8 = field(default_factory=lambda: np.empty((0, 0), np.uint8))
    resident: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    shapes: ClassVar = CutState.shapes | {"share": ("n",), "active": ("m-1", "n/8"), "resident": ("r",)}
    row_numbers: ClassVar = ("resident",)


def start_state(settings: GuidedDual, n_rows: int, n_features: int, is_shuffled: bool = False) -> State:
    """Return the state before the first pass: w = 0, c = 0, and resident rows that are drawn uniformly."""
    width, rows = n_features + 1, draw_any(n_rows, settings.resident_rows, (settings.seed, 0), is_shuffled)
    none = np.zeros(width)
    return State(
        best_w=none,
        master_w=none,
        cuts=none[None, :],
        offsets=np.zeros(1),
        sizes=np.zeros(1),
        z=np.ones(1),
        gram=np.zeros((1, 1)),
        idle=np.zeros(1, np.int64),
        share=np.zeros(n_rows),
        active=np.empty((0, -(-n_rows // 8)), np.uint8),
        resident=rows,
    )


def warm_state(settings: GuidedDual, before: State, factor: float) -> State:
    """Return the state to start from, given the last state of the problem whose costs are `factor` times smaller."""
    return replace(scale_costs(before, factor, settings.tol), step=1.0)


def solve(settings: GuidedDual, state: State) -> Solver:
    """Go on from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    class_costs, rows, products = np.array(settings.class_costs), None, None
    while True:
        before = state
        if rows is None or len(state.resident) < len(state.share):
            rows, products = (yield Take(state.resident)), None
        if products is None and _calls_for_qp(state):
            products = multiply_rows(rows, settings.bias_feature)
        state = _improve(settings, state, rows, products)
        ends = np.stack((state.best_w, state.master_w))
        cut_steps = choose_cut_steps(state.step, count_cut_steps(ends.shape[1]))
        start = partial(start_line, len(cut_steps), ends.shape[1])
        shared = (ends, class_costs, cut_steps, settings.bias_feature)
        look = Scan(start, add_to_line, combine_lines, shared, scored=0)
        points = choose_line_points(*ends) if is_noisy(state, settings.tol) else None
        totals, *others = yield All([look, *look_for_rounding(state, points, class_costs, settings.bias_feature)])
        state = take_magnitudes(state, others)
        state, margins = _settle(settings, state, ends, cut_steps, totals)
        if points is not None:
            state = take_exact(state, points, others[0])[0]
        state = count_pass(replace(state, resident=_choose_rows(settings, state, margins)), before, 1)
        figures = {"resident_rows": float(len(state.resident))}
        yield Step(state, state.progress, find_status(state, settings.tol), figures)


def _calls_for_qp(state: State) -> bool:
    """Return whether the ascent counts as slow and the rows are few.

    If not all rows are resident, the ascent and the interior-point method take turns. Exact optima of one part of the
    rows after another approach the optimum of all rows more slowly on some problems, and much faster on others.
    """
    if state.passes < ASCENT_PASSES or len(state.share) > MOST_ROWS:
        return False
    return len(state.resident) == len(state.share) or state.passes % 2 == 0


def _improve(settings: GuidedDual, state: State, rows: Rows, products: F64 | None) -> State:
    """Improve the shares of the resident rows, and then the combination of the dual point with the other cuts."""
    state = _collapse(state)
    own, class_costs = state.share[state.resident], np.array(settings.class_costs)
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    before, known = costs @ own, np.isfinite(state.objective)
    found = _raise_shares(settings, state, rows, products, float(state.offsets[0] - before))
    share, cuts, gram = state.share.copy(), state.cuts.copy(), state.gram.copy()
    offsets, sizes, change = state.offsets.copy(), state.sizes.copy(), costs * (found - own)
    share[state.resident] = found
    every = np.arange(len(own))
    add_rows(cuts, rows.X, every, np.zeros_like(every), y * change)  # summed anew, as the ascent rounds at every step
    cuts[0, -1] += settings.bias_feature * float(y @ change)
    gram[0] = gram[:, 0] = cuts @ cuts[0]
    offsets[0] += costs @ found - before
    sizes[0] += float(np.sum(np.abs(change)))
    updates = state.updates + len(own) + 4
    state = replace(state, share=share, cuts=cuts, gram=gram, offsets=offsets, sizes=sizes, updates=updates)
    return _collapse(minimise_master(state, settings.tol) if known else replace(state, master_w=cuts[0]))


def _raise_shares(settings: GuidedDual, state: State, rows: Rows, products: F64 | None, others: float) -> F64:
    """Return better shares of the resident rows, by coordinate ascent, or by a QP if the rows' products are given."""
    own, w, class_costs = state.share[state.resident], state.cuts[0], np.array(settings.class_costs)
    everything = len(own) == len(state.share)
    known = np.isfinite(state.objective)
    wanted = ASCENT_SHARE * (state.objective - state.lower_bound) if known and not everything else 0.0
    tol = settings.tol * (WHOLE_SHARE if everything else ASCENT_SHARE)
    if products is not None:
        return maximise_shares(rows, products, class_costs, settings.bias_feature, own, w, others, wanted, tol)
    seed = (settings.seed, state.passes)
    part = make_part(rows, class_costs, settings.bias_feature, own)
    ascend([part], settings.bias_feature, w, others, wanted, tol, EPOCHS, seed)
    return part.share


def combine_shares(state: State) -> F64:
    """Return the shares c (n,) of the cuts' combination with the master's multipliers z."""
    share: F64 = state.z[0] * state.share
    for k in np.flatnonzero(state.z[1:]):
        share += state.z[k + 1] * np.unpackbits(state.active[k], count=len(share))
    np.minimum(share, 1.0, out=share)
    return share


def _collapse(state: State) -> State:
    """Make the master's combination of the cuts the first cut, which is the dual point."""
    z = state.z
    cuts, gram, offsets = state.cuts.copy(), state.gram.copy(), state.offsets.copy()
    products = gram @ z
    cuts[0], offsets[0] = z @ state.cuts, z @ state.offsets
    gram[0] = gram[:, 0] = products
    gram[0, 0] = z @ products
    first, sizes = np.zeros(len(z)), state.sizes.copy()
    first[0], sizes[0] = 1.0, z @ state.sizes
    return replace(
        state,
        share=combine_shares(state),
        cuts=cuts,
        gram=gram,
        offsets=offsets,
        sizes=sizes,
        z=first,
        updates=state.updates + np.count_nonzero(z[1:]),
    )


def _settle(settings: GuidedDual, state: State, ends: F64, cut_steps: F64, totals: LineTotals) -> tuple[State, F32]:
    """Take the best point of the line, add cuts around it and at its end, solve the master; return the margins."""
    state, chosen, _ = search_line(state, ends, cut_steps, totals.segment)
    tiles: list[Any] = sorted(totals.tiles, key=lambda tile: tile[0])
    margins, codes = (np.concatenate([tile[k] for tile in tiles]) for k in (1, 2))
    chosen = np.union1d(chosen, np.maximum(chosen - 1, 0))  # more cuts, as the dual point gains by them as well
    active = np.stack([np.packbits(find_active(codes, k)) for k in chosen])
    cuts, offsets = np.cumsum(totals.segment.gradients, axis=0)[chosen], np.cumsum(totals.segment.costs)[chosen]
    state = _add_cuts(state, cuts, offsets, 2 * totals.segment.costs[0] + offsets, active)
    return minimise_master(state, settings.tol), margins


def _add_cuts(state: State, cuts: F64, offsets: F64, sizes: F64, active: U8) -> State:
    """Add cuts. The dual point stays, and so do the other cuts that were active most recently."""
    others = 1 + np.sort(np.argsort(state.idle[1:], kind="stable")[: KEPT_CUTS - 1 - len(cuts)])
    keep = np.append(0, others)
    old, none = state.cuts[keep], np.zeros(len(cuts))
    gram = extend_products(state.gram[np.ix_(keep, keep)], old, cuts)
    return replace(
        state,
        cuts=np.vstack((old, cuts)),
        offsets=np.append(state.offsets[keep], offsets),
        gram=gram,
        sizes=np.append(state.sizes[keep], sizes),
        z=np.append(state.z[keep], none),
        idle=np.append(state.idle[keep], none.astype(np.int64)),
        active=np.vstack((state.active[others - 1], active)),
    )


def _choose_rows(settings: GuidedDual, state: State, margins: F32) -> I64:
    """Return the rows that violate their conditions most at the end of the line, in ascending order."""
    if settings.resident_rows >= len(margins):
        return state.resident
    share = combine_shares(state)
    slope = 1.0 - margins
    inside = np.where(share >= 1.0, np.maximum(-slope, 0.0), np.abs(slope))
    violation = np.where(share <= 0.0, np.maximum(slope, 0.0), inside)
    return np.sort(np.argpartition(-violation, settings.resident_rows)[: settings.resident_rows])
