"""Dual coordinate ascent on one block of the data at a time, with the rows near the margin kept in memory.

    D(c) = sum_i C_i c_i - 1/2 |w(c)|^2,   w(c) = sum_i C_i c_i y_i x_i,   0 <= c_i <= 1

D is the dual of the SVM: C_i is the cost of row i with label y_i, and c_i its share. A pass walks through the blocks,
each a few chunks long, in a random order given by the seed. Coordinate ascent improves the shares of the rows in the
block and of the rows kept from earlier blocks, and updates w after each step. Then the rows nearest the margin are
kept, because their shares are the most likely to move again. Each share is thus chosen with a w that reflects all
earlier blocks, so a few passes suffice. Methods that sum over all rows at a few points take dozens of passes.

P and D are proved by sums over all rows, for the shares at the start of a pass. Before the shares of a block move, its
rows are added to D of the starting shares, and to P along the line from the best point to the mean of w over the last
blocks of the previous pass, whose P is lower than that of the last w. So the last pass proves the result without a
further read. If all rows fit into memory, their shares are improved there, and a pass only proves P and D.

One of three methods solves the problem of rows in memory. Coordinate ascent (cutting_plane.coordinate_ascent) comes
near the optimum in a few epochs if costs are low. One visit moves a multiplier C_i c_i by about 1 / |x_i|^2, so high
costs take many epochs. Newton's method for a smoothed hinge (cutting_plane.smoothed_newton) does not depend on the
costs, but needs matrices over all pairs of features, so it is limited to NEWTON_FEATURES features. It starts from the
ascent's w, which saves half of its steps. For few rows with few features, Newton's method alone takes less time
(`minimise_few`). If rounding stops the other methods for up to MOST_ROWS rows, two interior-point methods go on: one
for the shares (cutting_plane.small_qp), and one for w (cutting_plane.kink_path). If the latter fails, Newton's method
goes on from the w of the shares.

If the epochs over all rows would take minutes, a step makes fewer epochs. If the ascent is predicted to need more
epochs than a step makes, it gives up, and the line search does the rest (cutting_plane.line_search).

Sources: Yu, Hsieh, Chang & Lin 2010, "Large linear classification when data cannot fit in memory" (blocks); Chang &
Roth 2011, "Selective block minimization for faster convergence of limited memory large-scale linear models" (kept
rows); Hsieh et al. 2008 (cutting_plane.coordinate_ascent).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from streamsvm.losses.convex import Kinks
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, I64, CsrRows, Rows, add_combination, join_rows
from streamsvm.passes import All, Requests, Scan, Step, Take, Walk, grows
from streamsvm.solvers.cutting_plane import cuts, small_qp, smoothed_newton
from streamsvm.solvers.cutting_plane.coordinate_ascent import AscentRows, ascend, make_part
from streamsvm.solvers.cutting_plane.kink_path import minimise_kinks
from streamsvm.solvers.cutting_plane.line_search import LineState, find_ends, look_along, search_line
from streamsvm.solvers.cutting_plane.master import bound_dual
from streamsvm.solvers.cutting_plane.near_rows import choose_rows
from streamsvm.solvers.cutting_plane.smoothed_newton import HingeRows, Linear, Optimum, minimise

TRIES = 3  # the interior-point method stops after this many tries in a row that moved neither P nor D
ASCENT_SHARE_IN_MEMORY = 0.9  # the ascent stops at this share of the requested gap, since w moves as the gap is summed
LESS = 0.5  # after each pass, the gap at which the ascent stops is multiplied by this factor
FEW_SHARE = 0.5  # the interior-point method stops at this share of the requested gap
NEWTON_SHARE = 0.8  # Newton's method stops at this share of the requested gap, and the pass then proves the gap
PATH_STEPS = 300  # the maximum number of steps of the interior-point method for w; rounding stops it sooner
SMALL_SHARE = 0.01  # this share for few rows with few features, where the last steps take no time
NEWTON_FEATURES = 1000  # with more features, Newton's matrices take too much memory
NEWTON_EPOCHS = 10.0  # Newton's method costs as much as this many epochs over all rows, plus its matrices
CUBES = 0.5  # all matrix factorisations take as long as CUBES d^3 / (entries of all rows) epochs
MOST_NUMBERS = 2e10  # the maximum number of entries that a step's epochs visit without Newton's method: seconds
FAR = 2.0  # with a gap above this multiple of the requested gap, the ascent was cut short, so LESS is not applied
MOST_BESIDE = 50_000  # with more features, the cuts of an accompanying line search take too much memory
WIDTH = 0.2  # the width of the smoothed hinge at the start of Newton's method
NEAR_WIDTHS = 1.0, 0.3, 0.1, 0.01, 0.001  # widths that are tried at the shares of an interior-point method
EPOCHS = 10  # the maximum number of epochs on a block and the kept rows, in the first passes
MORE_EPOCHS = 2  # the factor on the number of epochs after a pass that left the gap above SLOW times its earlier value
SLOW = 0.4
STUCK = 0.8  # replaces SLOW if all rows are in memory
MOST_EPOCHS = 80  # the maximum number of epochs on a block: more take longer than the passes that they save
WHOLE_EPOCHS = 1000  # the maximum number of epochs if all rows are in memory, where epochs need no read
ASCENT_SHARE = 0.3  # the ascent on a block stops at this share of the requested gap of the rows in memory
LINE = np.ones(1)  # the only cut step of a line: its end
KEPT_SHARE = 0.6  # the share of the resident rows that is kept between blocks; the block takes the rest
FREE = 0.1  # factor on the distance from the margin of rows with 0 < c_i < 1: more of these rows are kept


def start_dual(width: int) -> cuts.RowSums:
    """Return the sums of a dual point over no rows."""
    return cuts.RowSums(np.zeros(width))


def add_dual(totals: cuts.RowSums, rows: Rows, class_costs: F64, bias_feature: float, share: F64) -> None:
    """Add C_i c_i y_i x_i and C_i c_i of the rows, which make up D, given their shares c_i, (n,)."""
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    used = np.flatnonzero(costs * share > 0.0)
    add_combination(totals.vectors, rows.X, used, (y * costs * share)[used], bias_feature)
    totals.offsets += float(costs @ share)


@dataclass(frozen=True)
class BlockAscent:
    """Settings of block ascent.

    class_costs (2,): C_i of the classes coded 0 and 1, before sample weights. resident_rows: the number of rows in
    memory at once, including a block. chunk_starts (k+1,): the first row of each chunk, and the number of rows. tol:
    the relative gap to reach. bias_feature: the value of the constant feature. seed: the seed of the random orders.
    """

    class_costs: tuple[float, ...]
    resident_rows: int
    chunk_starts: tuple[int, ...]
    tol: float = 1e-3
    bias_feature: float = 1.0
    seed: int = 0
    kept_share: ClassVar[float] = KEPT_SHARE
    first_epochs: ClassVar[int] = EPOCHS  # on a block
    add_dual: ClassVar[Callable[..., None]] = staticmethod(add_dual)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.chunk_starts[-1]

    @property
    def keeps_all(self) -> bool:
        """Whether all rows stay in memory."""
        return self.resident_rows >= self.n_rows

    @property
    def kept_rows(self) -> int:
        """Number of rows kept from block to block."""
        return self.n_rows if self.keeps_all else max(1, int(self.kept_share * self.resident_rows))

    def make_part(self, rows: Rows, share: F64) -> AscentRows:
        """Return the rows as a part for the ascent, with a copy of their shares."""
        return make_part(rows, np.array(self.class_costs), self.bias_feature, share)

    def ascend(
        self, parts: Sequence[AscentRows], w: F64, wanted: float, tol: float, epochs: int, seed: tuple[int, ...]
    ) -> F64:
        """Improve the shares of the parts; see coordinate_ascent.ascend for the arguments and the result."""
        return ascend(parts, self.bias_feature, w, wanted, tol, epochs, seed).w

    def count_rows(self, chunks: Sequence[int]) -> int:
        """Return the number of rows in successive chunks."""
        return self.chunk_starts[chunks[-1] + 1] - self.chunk_starts[chunks[0]]

    def list_blocks(self) -> list[list[int]]:
        """Return the chunks of each block: at least one, and as many successive chunks as fit."""
        most, blocks, starts = self.resident_rows - self.kept_rows, list[list[int]](), self.chunk_starts
        for k in range(len(starts) - 1):
            if blocks and starts[k + 1] - starts[blocks[-1][0]] <= most:
                blocks[-1].append(k)
            else:
                blocks.append([k])
        return blocks

    def start(self, n_features: int) -> State:
        """Return the state before the first pass: w = 0 and c = 0; no rows are kept unless all rows fit into memory."""
        return begin(self, State.at_zero(n_features + 1), np.zeros(self.n_rows))

    def improve(self, state: State, rows: Rows) -> tuple[State, F64]:
        """Improve the shares of all rows; return the state with their w, and the point from which to search to it."""
        are_few, none = rows.n_rows <= small_qp.MOST_ROWS, Linear(np.zeros(len(state.best_w)), 0.0)
        are_small = are_few and smoothed_newton.is_small(rows.n_rows, len(state.best_w))
        if are_few and state.passes:  # the other methods have failed
            if state.stuck >= TRIES:
                return state, state.best_w
            return _go_on_with_few(smoothed_newton.read_rows(self, rows), FEW_SHARE * self.tol, state)
        if are_small:
            data = smoothed_newton.read_rows(self, rows)
            optimum = smoothed_newton.minimise_few(data, none, SMALL_SHARE * self.tol, state.master_w)
            return _take_optimum(state, data, optimum)
        n_numbers = max(1, rows.X.data.size if isinstance(rows.X, CsrRows) else rows.X.size)
        by_newton, most = rows.X.shape[1] <= NEWTON_FEATURES, max(1, int(MOST_NUMBERS / n_numbers))
        is_long = not by_newton and state.epochs > most
        patience = float(most) if is_long and rows.X.shape[1] <= MOST_BESIDE else np.inf
        if by_newton:
            patience = NEWTON_EPOCHS + CUBES * float(rows.X.shape[1]) ** 3 / n_numbers
        part, epochs = self.make_part(rows, state.share), most if is_long else state.epochs
        is_far = is_long and state.objective - state.lower_bound > FAR * self.tol * state.objective
        tol = ASCENT_SHARE_IN_MEMORY * LESS ** (0 if is_far else state.passes) * self.tol
        seed, bias = (self.seed, state.passes), self.bias_feature
        found = ascend([part], bias, state.master_w, 0.0, tol, epochs, seed, patience, tries_all=False)
        state = replace(state, share=part.share.copy(), master_w=found.w)
        if found.epochs < epochs and is_long and not found.is_enough:
            return replace(state, epochs=0, slow=True), found.mean
        if found.is_enough or not by_newton:
            return state, found.mean
        data = smoothed_newton.read_rows(self, rows)
        return _take_optimum(state, data, minimise(data, none, NEWTON_SHARE * self.tol, found.w, smoothing=WIDTH))

    def list_scans(self, state: State, ends: F64) -> list[Scan]:
        """Return the scans of a pass over all rows: for D, for P between the ends (2, d+1), and for rounding bounds.

        A row has a share for each vector of weights that w holds.
        """
        shared = np.array(self.class_costs), self.bias_feature
        dual = Scan(partial(start_dual, len(state.best_w)), self.add_dual, add, shared, (state.share,))
        points = cuts.choose_line_points(state, ends, self.tol)
        return [dual, self.look(ends), *cuts.look_for_rounding(state, points, *shared, state.share[0].size)]

    def prove(self, state: State, ends: F64, totals: Sequence[Any]) -> State:
        """Return the state with the D of its shares and the best point of the line, both proved by the totals."""
        dual, line, *others = totals
        points = cuts.choose_line_points(state, ends, self.tol)
        state = cuts.take_rounding(state, points, others, state.share[0].size)
        return take_bound(self.take_line(state, ends, line), dual)

    def look(self, ends: F64) -> Scan:
        """Return the scan for P along the line between the ends."""
        return look_along(ends, LINE, np.array(self.class_costs), self.bias_feature, without=len(LINE) + 1)

    def take_line(self, state: State, ends: F64, totals: Any) -> State:
        """Return the state at the best point of the line, given the answer to `look`."""
        return search_line(state, ends, LINE, totals)[0]


class Carry(NamedTuple):
    """The carry of a walk from block to block.

    block: the number of the next block. share (n,): c. w (d+1,): the weights. mean (d+1,): the mean of w over the last
    quarter of the blocks. kept: the rows kept in memory. numbers: the row numbers of the kept rows.
    """

    block: int
    share: F64
    w: F64
    mean: F64
    kept: Rows | None
    numbers: I64


def take_block(
    settings: BlockAscent, seed: tuple[int, ...], epochs: int, wanted: float, late: int, carry: Carry, rows: Rows
) -> Iterator[tuple[Carry, int]]:
    """Improve the shares of a block and of the kept rows, and choose the rows to keep.

    seed: the seed of the random orders of a pass; epochs: the maximum number of epochs on a block; wanted: the gap per
    row. late: the first block of the last quarter. The ascent on a block stops when the gap of the rows in memory is at
    most `wanted` times their number.
    """
    share = carry.share.copy() if carry.block == 0 else carry.share  # later blocks change this copy
    numbers = rows.start + np.arange(rows.n_rows)
    new = np.flatnonzero(~np.isin(numbers, carry.numbers, assume_unique=True))
    own = rows if len(new) == rows.n_rows else choose_rows(rows, new)
    pairs = [(own, numbers[new])] if carry.kept is None else [(carry.kept, carry.numbers), (own, numbers[new])]
    parts = [settings.make_part(some, share[at]) for some, at in pairs]
    enough = wanted * sum(len(at) for _, at in pairs)
    w = settings.ascend(parts, carry.w, enough, 0.0, epochs, (*seed, carry.block))
    for part, (_, at) in zip(parts, pairs, strict=True):
        share[at] = part.share
    kept, kept_numbers = _keep_nearest(settings, parts, [at for _, at in pairs], w)
    mean = carry.mean + (w - carry.mean) / max(carry.block + 1 - late, 1)
    yield Carry(carry.block + 1, share, w, mean, kept, kept_numbers), rows.n_rows


def _keep_nearest(settings: BlockAscent, parts: list[AscentRows], numbers: list[I64], w: F64) -> tuple[Rows, I64]:
    """Return the rows nearest the margin at w, among all parts, and their numbers."""
    distances = [_find_distances(part, settings.bias_feature, w) for part in parts]
    nearest = np.argsort(np.concatenate(distances), kind="stable")[: settings.kept_rows]
    kept, found, end = list[Rows](), list[I64](), 0
    for part, own in zip(parts, numbers, strict=True):
        chosen = np.sort(nearest[(nearest >= end) & (nearest < end + len(own))]) - end
        kept.append(choose_rows(part.rows, chosen))
        found.append(own[chosen])
        end += len(own)
    return join_rows(kept), np.concatenate(found)


def _find_distances(part: AscentRows, bias_feature: float, w: F64) -> F64:
    """Return the distances of the rows from the margin, (n,).

    The distance of a row whose share may move both ways is reduced. The distance of a row without a cost is infinite.
    """
    distances, is_free = part.find_distances(bias_feature, w)
    distances[is_free] *= FREE
    distances[part.costs <= 0.0] = np.inf
    return distances


def _take_optimum(state: State, data: HingeRows, found: Optimum) -> tuple[State, F64]:
    """Return the state, with the shares that Newton's method found if their D is higher, and the w with the lowest P.

    Only at the optimum is this w also the w of the shares.
    """
    if found.lower_bound <= float(data.costs @ state.share) - float(state.master_w @ state.master_w) / 2:
        return state, found.w
    return replace(state, share=found.shares, master_w=data.combine(found.shares)), found.w


def _go_on_with_few(data: HingeRows, tol: float, state: State) -> tuple[State, F64]:
    """Return the state with better shares of a few hundred rows, and the w with the lowest P that was found.

    The w of the shares is not enough: with costs or features of extreme scales, rounding in the sum over the rows
    raises its P. Newton's method goes on from it if the interior-point method for w fails, as it often does if costs
    differ by twelve orders of magnitude.
    """
    used = np.flatnonzero(data.costs > 0.0)
    if not len(used) or len(state.best_w) > NEWTON_FEATURES + 1:
        return _improve_few(data, tol, state), state.best_w
    y, zero, shares = data.y[None, used], np.zeros(len(state.best_w)), state.share.copy()
    kinks, rows, none = Kinks(-y, y, data.costs[None, used]), choose_rows(data.rows, used), Linear(zero, 0.0)
    w, a, objective = minimise_kinks(rows, kinks, data.bias_feature, tol, PATH_STEPS, zero, none)
    shares[used] = a[0] / data.costs[used]
    made = data.combine(shares)
    path = Optimum(w, objective, shares, float(data.costs @ shares) - float(made @ made) / 2)
    state, _ = _take_optimum(state, data, path)
    if objective - path.lower_bound <= tol * objective:
        return state, w
    state = _improve_few(data, tol, state)
    ends = [path, *(minimise(data, none, tol, state.master_w, smoothing=width) for width in NEAR_WIDTHS)]
    return _take_optimum(state, data, min(ends, key=lambda end: end.objective))


def _improve_few(data: HingeRows, tol: float, state: State) -> State:
    """Improve the shares of a few hundred rows by an interior-point method."""
    products = small_qp.multiply_rows(data.rows, data.bias_feature)
    share, is_enough = small_qp.maximise_shares(data, products, state.share, state.master_w, tol)
    w = data.combine(share)
    if not is_enough and small_qp.can_refine(len(share), len(w)):
        share = small_qp.refine_shares(data, share, w, tol)
        w = data.combine(share)
    return replace(state, share=share, master_w=w)


@dataclass
class State(LineState):
    """The state of a run. Vectors are (d+1,); their last entry is the weight of the constant feature.

    The state has no cuts, and master_w is the w of the shares c.

    share (n,): c. proved (n,): the shares behind the lower bound. resident (r,): the numbers of the kept rows. epochs:
    the maximum number of epochs of the ascent on a block in the next pass, or 0 if the ascent has given up. slow:
    whether the number of epochs has grown to MOST_EPOCHS, or many epochs over all rows in memory have not helped.
    mean_w: the mean of w over the last quarter of the last walk, whose P is lower than that of master_w.
    """

    share: F64 = grows("n")
    proved: F64 = grows("n")
    resident: I64 = grows("r", dtype=np.int64)
    epochs: int = EPOCHS
    slow: bool = False
    mean_w: F64 = grows("d")
    added: ClassVar = (*LineState.added, "mean_w")
    repeats: ClassVar[float] = 1.0
    row_numbers: ClassVar = ("resident",)


S = TypeVar("S", bound=State)


def begin(settings: BlockAscent, at_zero: S, share: F64) -> S:
    """Return the state before the first pass with given shares."""
    epochs = settings.first_epochs if len(settings.list_blocks()) > 1 else MOST_EPOCHS
    epochs, n_resident = (WHOLE_EPOCHS, settings.n_rows) if settings.keeps_all else (epochs, 0)
    terms, resident, mean = count_terms(settings), np.arange(n_resident), np.zeros(len(at_zero.best_w))
    return replace(at_zero, terms=terms, share=share, proved=share, resident=resident, epochs=epochs, mean_w=mean)


def count_terms(settings: BlockAscent) -> float:
    """Return the largest number of additions on any term of a sum, for any order of the blocks."""
    if settings.keeps_all:
        return 0.0
    blocks = settings.list_blocks()
    return float(min(settings.n_rows, max(map(settings.count_rows, blocks)) + len(blocks) + cuts.LINE_STEPS))


def warm_state(settings: BlockAscent, before: S, factor: float) -> S:
    """Return the initial state for costs `factor` times larger, given the last state `before` of the same problem."""
    first = begin(settings, type(before).at_zero(len(before.best_w)), np.zeros(before.share.shape))
    w = factor * before.master_w
    return replace(first, share=before.share, master_w=w, mean_w=w, resident=before.resident)


def solve(settings: BlockAscent, state: State) -> Requests:
    """Run the ascent from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    kept: Any = None
    n_vectors = state.share[0].size
    while True:
        before = state
        if kept is None and len(state.resident):
            kept = yield Take(state.resident)
        if settings.keeps_all and state.epochs == 0:
            yield All([])  # leave the pass to the accompanying line search
        elif settings.keeps_all:
            state, start = settings.improve(state, kept)
            ends = find_ends(start, state.master_w, n_vectors)
            first, *others = settings.list_scans(state, ends)
            state = settings.prove(state, ends, (yield All([replace(first, held=kept), *others])))
        else:
            end = state.mean_w if len(state.mean_w) else state.master_w  # earlier versions stored no mean
            ends, walk = find_ends(state.best_w, end, n_vectors), _make_walk(settings, state, kept)
            (carry,), *totals = yield All([walk, *settings.list_scans(state, ends)], in_walk=True)
            state, kept = settings.prove(state, ends, totals), carry.kept
            change = carry.w - before.master_w
            w = totals[0].vectors + change  # from the sum over all rows, so without the rounding of earlier ascents
            state = replace(state, share=carry.share, resident=carry.numbers, master_w=w, mean_w=carry.mean)
        state = _count_epochs(settings, cuts.count_pass(state, before, 1), before)
        figures = {"resident_rows": float(len(state.resident))}
        yield Step(state, state.progress, cuts.find_status(state, settings.tol), figures)


def _count_epochs(settings: BlockAscent, state: State, before: State) -> State:
    """Return the state with a new number of epochs for the next pass if this pass has lowered the gap too little.

    On blocks the number grows. If all rows are in memory, many epochs have not helped. The next pass then makes only a
    few, and the accompanying line search does the rest (cutting_plane.line_search).
    """
    gap, last = state.objective - state.lower_bound, before.objective - before.lower_bound
    if before.passes == 0 or gap <= (STUCK if settings.keeps_all else SLOW) * last:
        return state
    if settings.keeps_all:
        return replace(state, epochs=min(EPOCHS, state.epochs), slow=True)
    epochs = min(MORE_EPOCHS * state.epochs, MOST_EPOCHS)
    return replace(state, epochs=epochs, slow=epochs == MOST_EPOCHS)


def _make_walk(settings: BlockAscent, state: State, kept: Rows | None) -> Walk:
    blocks = settings.list_blocks()
    seed = (settings.seed, state.passes)
    order = np.random.default_rng(seed).permutation(len(blocks))
    carry = Carry(0, state.share, state.master_w, state.master_w, kept, state.resident)
    wanted = ASCENT_SHARE * settings.tol * state.lower_bound / settings.n_rows
    step = partial(take_block, settings, seed, state.epochs, wanted, 3 * len(blocks) // 4)
    return Walk(step, [carry], [[blocks[k] for k in order]])


def take_bound(state: S, dual: cuts.RowSums) -> S:
    """Return the state with its lower bound raised to D of its shares, if D is higher."""
    cost = np.full(1, dual.offsets)  # its own size, as no row is subtracted again
    point = replace(state, cuts=dual.vectors[None, :], offsets=cost, sizes=cost)
    return cuts.raise_bound(state, *bound_dual(point, np.ones(1)), proved=state.share)
