"""Linear SVM by cutting planes: Joachims 2006, Algorithm 1, and its acceleration by a line search.

    P(w) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i w.x_i)       bias: a constant feature, penalised (as in LIBLINEAR)

x_i, y_i and C_i are row i, its label and its cost. Every c in {0,1}^n gives a cut: the loss at every w is at least
b_c - w.a_c with a_c = sum C_i c_i y_i x_i and b_c = sum C_i c_i (the constraints of OP2 in the paper). The cut at w has
c_i = [y_i w.x_i < 1] (lines 5 to 7): row i is active at w if c_i = 1. The master problem minimises
1/2 |w|^2 + max(0, max_c b_c - w.a_c) over the cuts made so far, and its dual value is a lower bound of P. The cuts
include the costs, so C_i corresponds to the paper's C / n, and slack / sum C_i to its xi.

A pass searches the segment from the best point so far to the master's minimiser. It computes the exact objective at
FINE_STEPS steps between neighbouring cut steps (losses.hinge), and makes cuts at the cut steps. So a single read of the
data serves the line search of OCAS (Franc & Sonnenburg 2008) and gives several cuts. Most rows are active at all points
or at none, so the totals hold the cut of the first point and the differences of the other cuts from it. With
`accelerated=False` the solver is the paper's algorithm: both ends of the segment are the master's minimiser, and a pass
makes one cut there.

`solve_any_loss` is the same algorithm for any convex loss of the scores, with a `Search` that computes losses and cuts.
It also serves the losses of pairs of rows (solvers.ranking). `RowSearch` is for a convex loss l_i of each row's score,
which contains the row's cost. Let f_i = w_t.x_i be the scores at a point w_t, and s_i a slope of l_i at f_i. Each l_i
lies above its tangents, so the loss at every w is at least b_t - w.a_t, where

    a_t = -sum_i s_i x_i,      b_t = sum_i (l_i(f_i) - s_i f_i)

This holds for rounded scores f_i as well. A pass makes cuts at the points of cutting_plane.score_model. Without a
sample, it makes cuts at three points: at the minimiser, and at two points between it and the best point so far.

`solve_both` runs a solver with resident rows and cutting planes with a line search, which share the reads of the data.
Resident rows can mislead the first solver, and extreme scales can make it slow. In such cases the line search alone is
as good or better. Each solver keeps its own state and cuts. The result is the lower of both objectives P and the higher
of both lower bounds D.

The line search is dropped once it falls behind, so that later passes serve one solver only. It has fallen behind if the
first solver's gap is small (at most SMALL of P), the line search's gap is more than KEEPS_UP times as large, and its
lower bound is no higher than the first solver's. If the first solver is later stuck for RETURNS passes, or reports that
it is slow, the line search returns and continues from the best point. If the first solver is usually fast, the line
search starts only at that point. If few rows can be resident, the line search leads: it runs alone for the first
LEADING_PASSES, and the first solver begins only if these passes do not prove the gap. It begins at the best point, from
which it solves its sample in a third of the steps.

A run ends as stalled when both solvers are stuck, or when the best P and the best D no longer change. The second
condition matters because one solver may creep for thousands of passes towards a P that the other solver has already
found.

References: Joachims 2006, "Training Linear SVMs in Linear Time", KDD. Franc & Sonnenburg 2008, "Optimized Cutting Plane
Algorithm for Support Vector Machines", ICML.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numba import njit

from streamsvm.losses.convex import ConvexLoss
from streamsvm.losses.hinge import FINE_STEPS, NO_WEIGHTS, Sums, add_to_totals, fine_steps
from streamsvm.numeric.rows import (
    F64,
    I32,
    I64,
    Rows,
    Split,
    add_combination,
    add_rows_of,
    compute_scores,
    find_first_rows,
    split,
)
from streamsvm.passes import All, Bounds, Request, Requests, RowTotals, Scan, Step, Take, find_status, has_progressed
from streamsvm.solvers.cutting_plane import cuts
from streamsvm.solvers.cutting_plane.cuts import CutSettings, CutState, Magnitudes, RowSums
from streamsvm.solvers.cutting_plane.master import take_cuts
from streamsvm.solvers.cutting_plane.score_model import LossAt, Sample, SampleState, choose_points


@dataclass
class CutTotals(RowTotals):
    """Sums over rows at several points: the losses, and the offsets (`costs`) and vectors (`gradients`) of the cuts."""

    losses: F64
    costs: F64
    gradients: F64


def start_cuts(n_losses: int, n_cuts: int, *shape: int) -> CutTotals:
    """Return zero sums for losses at n_losses points, and for n_cuts cuts whose vectors have this shape."""
    return CutTotals(np.zeros(n_losses), np.zeros(n_cuts), np.zeros((n_cuts, *shape)))


class SegmentTotals(CutTotals):
    """The totals along a segment: values at step 0, and changes from step to step (losses.hinge.add_to_totals)."""


def start_totals(k: int, width: int, without: int = 0) -> SegmentTotals:
    """Return zero totals for k cut steps and cuts of `width` entries. without: see `look_along`."""
    return SegmentTotals(np.zeros((k * FINE_STEPS + 1, 2)), np.zeros(k + 1), np.zeros((k + 1 - without, width)))


def look_along(ends: F64, cut_steps: F64, class_costs: F64, bias_feature: float, without: int = 0) -> Scan:
    """Return the scan for losses and cuts along a segment.

    ends (2, d+1): the ends of the segment; cut_steps (k,): the steps at which cuts are made, ascending in (0, 1];
    class_costs (2,): C_i of the classes; without: the number of cuts, counted from step 0, for which no rows are
    summed. These sums take as long as the losses if most rows are active.
    """
    start = partial(start_totals, len(cut_steps), ends.shape[1], without)
    return Scan(start, add_to_totals, add, (ends, class_costs, cut_steps, bias_feature), weights=ends)


def find_ends(best: F64, other: F64, n_vectors: int) -> F64:
    """Return the ends of a line, (2, width), given the best point so far and the other end.

    n_vectors: the number of weight vectors that a point holds: one, or one for each class. If they are two, w_1 = -w_2
    is enforced at `other`, so that a model needs only one weight vector; `best` already satisfies it.
    """
    if n_vectors == 2:
        first, second = other.reshape(2, -1)
        half = (second - first) / 2.0
        other = np.concatenate((-half, half))
    return np.stack((best, other))


def totals_bytes(k: int, width: int) -> int:
    """Return the bytes of the totals for k cut steps."""
    return 8 * (k + 1) * (width + 1 + 2 * FINE_STEPS)


@dataclass(frozen=True)
class Segment:
    """Weight vectors, losses and cuts at step 0 and at the k cut steps of a segment.

    steps (k+1,): 0 and the cut steps. W (k+1, d+1): the weight vectors there. losses (k+1,): the losses. cuts: the k+1
    cuts, as sums over rows.
    """

    steps: F64
    W: F64
    losses: F64
    cuts: RowSums


def list_cuts(totals: SegmentTotals) -> RowSums:
    """Return the cuts at step 0 and at the k cut steps.

    A cut at a later step is the cut at step 0 with rows added and subtracted. The sizes of the cuts count both.
    """
    offsets = np.cumsum(totals.costs)
    return RowSums(np.cumsum(totals.gradients, axis=0), offsets, 2 * totals.costs[0] + offsets)


def read_segment(ends: F64, cut_steps: F64, totals: SegmentTotals) -> Segment:
    """Return the losses and cuts at the steps, by summing their changes from step to step."""
    steps = np.append(0.0, cut_steps)
    value, slope = np.cumsum(totals.losses, axis=0)[::FINE_STEPS].T
    W = (1.0 - steps)[:, None] * ends[0] + steps[:, None] * ends[1]
    return Segment(steps, W, value + steps * slope, list_cuts(totals))


def choose_cut_steps(last_step: float, k: int) -> F64:
    """Return at most k cut steps: a geometric sequence around the last step taken, and 1."""
    around = last_step * 2.0 ** ((np.arange(k - 1) - k // 2) / 1.5)
    return np.append(np.unique(around[(around > 0.0) & (around < 1.0)]), 1.0)  # tiny steps can underflow to 0


@dataclass
class LineState(CutState):
    """The state of a solver that searches a line in every pass. step: the last step taken.

    Vectors are (d+1,); their last entry is the weight of the constant feature. A cut at the end of a line is summed
    from the rows active at the start and the rows that change sides on the way, so it may count a row twice.
    """

    step: float = 1.0
    repeats: ClassVar[float] = 2.0


L = TypeVar("L", bound=LineState)


def search_line(state: L, ends: F64, cut_steps: F64, totals: SegmentTotals) -> tuple[L, I64, float]:
    """Move to the best fine step of the segment; return the state, the indices of cuts to add, and the loss at the end.

    The cuts to add are the last cut at or before the best step, the next two cuts, and the cut at the end of the
    segment. Index 0 is the cut at step 0; the cuts at the cut steps follow.
    """
    steps = fine_steps(cut_steps)
    value, slope = np.cumsum(totals.losses, axis=0).T
    losses = value + steps * slope
    products = ends @ ends.T
    squares = (1 - steps) ** 2 * products[0, 0] + 2 * steps * (1 - steps) * products[0, 1] + steps**2 * products[1, 1]
    objectives = squares / 2 + losses
    best = int(np.argmin(objectives))
    step = float(steps[best])
    if state.passes:
        state = replace(state, step=step or state.step / 8)
    rounding = state.bound_loss(2 * np.abs(ends[0]) + np.abs(ends[1]))  # slopes are relative to the start
    state = cuts.move_to(state, (1 - step) * ends[0] + step * ends[1], objectives[best], rounding)
    below = int(np.searchsorted(cut_steps, step, side="right"))  # 0 is the start
    chosen = np.unique(np.minimum([below, below + 1, below + 2, len(cut_steps)], len(cut_steps)))
    return state, chosen, float(losses[-1])


class PointTotals(CutTotals):
    """Sums over rows at k points.

    losses (k,): the losses. costs (k,), gradients (k, d+1): the offset and the vector of the first point's cut,
    followed by the differences of the other points' cuts from it.
    """


def start_points(k: int, width: int) -> PointTotals:
    """Return empty totals at k points, for cuts of `width` entries."""
    return PointTotals(np.zeros(k), np.zeros(k), np.zeros((k, width)))


@njit(cache=True, nogil=True)
def _add_points(
    X: Split, y: I32, weight: F64, scores: F64, bias: F64, class_costs: F64, sums: Sums, signs: F64
) -> None:
    """Add a tile with known scores in one call, because calls from Python take time.

    The arrays `row`, `point` and `coef` list the rows to sum for the gradients. The entries [:n] are the rows active at
    the first point. The entries [end:], filled backwards, are the rows that are active either at the first point or at
    another point, but not at both.
    """
    (values, indices, indptr), (losses, costs, gradients), k = X, sums, scores.shape[1]
    size = y.size * (k + 1)
    row, point, coef, n, end = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size), 0, size
    for i in range(scores.shape[0]):
        sign = 1.0 if y[i] == 1 else -1.0
        cost = class_costs[y[i]] * (weight[i] if weight.size else 1.0)
        first = sign * (scores[i, 0] + bias[0]) < 1.0
        for p in range(k):
            margin = sign * (scores[i, p] + bias[p])
            active = margin < 1.0
            if active:
                losses[p] += cost * (1.0 - margin)
            if active != first and cost > 0.0:
                change = cost if active else -cost
                end -= 1
                row[end], point[end], coef[end] = i, p, change * sign
                costs[p] += change
                signs[p] += change * sign
        if first and cost > 0.0:
            row[n], point[n], coef[n] = i, 0, cost * sign
            costs[0] += cost
            signs[0] += cost * sign
            n += 1
    add_rows_of(values, indices, indptr, row[:n], point[:n], coef[:n], gradients)
    add_rows_of(values, indices, indptr, row[end:], point[end:], coef[end:], gradients)


def add_points(totals: PointTotals, rows: Rows, W: F64, class_costs: F64, bias_feature: float) -> None:
    """Add rows at the points W (k, d+1), whose last column is the weight of the constant feature."""
    weight = NO_WEIGHTS if rows.sample_weight is None else rows.sample_weight
    scores, signs = compute_scores(rows.X, W) if rows.scores is None else rows.scores, np.zeros(len(W))
    sums = (totals.losses, totals.costs, totals.gradients)
    _add_points(split(rows.X), rows.y, weight, scores, W[:, -1] * bias_feature, class_costs, sums, signs)
    totals.gradients[:, -1] += bias_feature * signs


def add_starts(answers: Sequence[Any]) -> list[Any]:
    """Return the answers of a pass, whose segments start at the first point, with the sums that they left out.

    A segment of `look_along` without its cut at step 0 receives the sums over rows of the cut at the first point.
    """
    first = answers[0].gradients[:1] if isinstance(answers[0], PointTotals) else None
    return [
        replace(one, gradients=np.vstack((first, one.gradients)))
        if isinstance(one, SegmentTotals) and first is not None and len(one.gradients) == len(one.costs) - 1
        else one
        for one in answers
    ]


def read_cuts(totals: PointTotals) -> RowSums:
    """Return the cuts at the k points.

    A cut at another point is the first cut with rows added and subtracted. The sizes of the cuts count both.
    """
    gradients, costs = totals.gradients.copy(), totals.costs.copy()
    gradients[1:] += gradients[0]
    costs[1:] += costs[0]
    return RowSums(gradients, costs, 2 * costs[0] + costs)


@dataclass(frozen=True)
class CuttingPlane(CutSettings):
    """Settings of cutting planes for the hinge loss.

    class_costs (2,): C_i of the classes coded 0 and 1, before sample weights. epsilon: the paper's stop, the largest
    allowed violation of a cut in units of mean loss (None: stop by the gap). accelerated: whether to use a line search.
    bias_feature: the value of the constant feature.
    """

    class_costs: tuple[float, float]
    epsilon: float | None = None
    accelerated: bool = True
    bias_feature: float = 1.0

    def cut_points(self, width: int) -> int:
        """Return the number of cuts that a pass computes: as many as fit into 16 MiB, but at least 4 and at most 16."""
        return min(max((16 << 20) // (8 * width) - 1, 4), 16) if self.accelerated else 1

    def driver_bytes(self, width: int) -> int:
        """Return the bytes that the driver needs for the cuts and a few vectors."""
        return super().driver_bytes(width) + 8 * width * 3 * self.cut_points(width)


def solve(settings: CuttingPlane, state: LineState) -> Requests:
    """Run Algorithm 1 from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    class_costs, width = np.array(settings.class_costs), len(state.best_w)
    while True:
        ends = np.stack((state.best_w if settings.accelerated else state.master_w, state.master_w))
        cut_steps = choose_cut_steps(state.step, settings.cut_points(width))
        before = state
        look = look_along(ends, cut_steps, class_costs, settings.bias_feature)
        points = cuts.choose_line_points(state, ends, settings.tol)
        totals, *others = yield All([look, *cuts.look_for_rounding(state, points, class_costs, settings.bias_feature)])
        state = cuts.take_rounding(state, points, others)
        state, chosen, loss = search_line(state, ends, cut_steps, totals)
        violation = (loss - state.slack) / max(state.total_cost, np.finfo(float).tiny)
        found = list_cuts(totals).pick(chosen)
        state = take_cuts(state, before, found, settings.max_cuts, settings.tol)
        yield Step(state, state.progress, cuts.find_status(state, settings.tol, settings.epsilon, violation))


ANY_LOSS_STEPS = (0.1, 0.3, 1.0)  # cut points of a pass, as fractions of the way from the best point to the minimiser


@dataclass(frozen=True)
class AnyLoss(CutSettings):
    """Settings of cutting planes for any convex loss of a row.

    loss: the rows' losses l_i, which include the costs. bias_feature: the value of the constant feature.
    """

    loss: ConvexLoss
    bias_feature: float = 1.0
    epsilon: ClassVar[float | None] = None
    vectors: ClassVar[int] = 3 * len(ANY_LOSS_STEPS) + 8

    def choose_points(self, sample: Sample | None, state: AnyLossState) -> tuple[AnyLossState, F64]:
        """See `solve_any_loss`. If the sample suggests no points, they lie on the way to the master's minimiser."""
        points = np.empty((0, len(state.best_w)))
        if sample is not None:
            state, points = choose_points(self, sample, state)
        if not len(points):
            points = state.best_w + np.outer(ANY_LOSS_STEPS, state.master_w - state.best_w)
        return state, points


@dataclass(frozen=True, kw_only=True)
class RowSample(Sample):
    """A sample of rows. loss: the loss of each row."""

    loss: ConvexLoss

    def measure(self, scores: F64) -> LossAt:
        """See Sample."""
        losses, slopes = self.loss.measure(self.held, scores)
        offset = self.cost * float(np.sum(losses - slopes * scores))
        return LossAt(self.cost * float(np.sum(losses)), -self.cost * slopes, offset)


@dataclass
class AnyLossState(SampleState):
    """The state of a run. cost_at_zero: the sum of l_i(0) + K_i, where K_i is the steepest slope of l_i."""

    cost_at_zero: float = 0.0
    added: ClassVar[tuple[str, ...]] = (*SampleState.added, "cost_at_zero")


Evaluation = Generator[Request, Any, tuple[Any, F64, RowSums, int]]


class Search(Protocol):
    """The part of a step that computes P and cuts."""

    def evaluate(self, settings: Any, sample: Any, state: Any, W: F64) -> Evaluation:
        """Compute P and the cuts at the points W (k, width).

        Return the state at the best point, the losses (k,), the cuts, and the number of passes. The state knows the
        rounding of sums from the first pass on. If P is noisy, the best point may be one at which P was computed in
        twice the precision.
        """


def move_to_best(state: Any, W: F64, losses: F64) -> Any:
    """Return the state after a move to each of the points W (k, width) in turn that is better than the best so far."""
    for w, objective in zip(W, np.einsum("kj,kj->k", W, W) / 2 + losses, strict=True):
        state = cuts.move_to(state, w, objective, state.bound_loss(np.abs(w)))
    return state


def solve_any_loss(settings: Any, search: Search, sample: Any, state: Any) -> Requests:
    """Run cutting planes from a state. A run that is resumed from the state in any `Step` gives the same bits.

    settings: CutSettings with `epsilon`, and with a method `choose_points` that returns the state and the points
    (k, width) of the next step; if epsilon is given, the first point is the master's minimiser. sample: has the
    numbers of its rows (`rows`), and a method `hold` that returns the sample with these rows; None without a sample.
    """
    if sample is not None:
        sample = sample.hold((yield Take(sample.rows)))
    while True:
        before = state
        state, W = settings.choose_points(sample, state)
        state, losses, found, passes = yield from search.evaluate(settings, sample, state, W)
        loss = float(losses[0]) if before.passes else np.inf  # the first step has no minimiser of a master problem
        violation = (loss - state.slack) / max(state.total_cost, np.finfo(float).tiny)
        state = take_cuts(state, before, found, settings.max_cuts, settings.tol, passes)
        del before, W, found  # otherwise held during the checkpoint and the next step
        yield Step(state, state.progress, cuts.find_status(state, settings.tol, settings.epsilon, violation))


class RowSearch:
    """The search for losses of single rows."""

    def evaluate(self, settings: AnyLoss, sample: Sample | None, state: AnyLossState, W: F64) -> Evaluation:
        """Compute P and the cuts in one pass.

        A term |l_i(f) - s_i f| of an offset is at most l_i(0) + 2 K_i |f|, where K_i is the steepest slope of l_i. The
        size of a cut's offset is the sum of these bounds over the rows. The largest size so far bounds the rounding of
        every cut. Checkpoints of earlier versions do not contain the sum of l_i(0) + K_i, which their total cost
        exceeds.
        """
        held = None if sample is None else find_first_rows(sample.held, sample.rows)
        shared = settings.loss, settings.bias_feature
        scans = [Scan(partial(start_cuts, len(W), *W.shape), add_tangents, add, (W, *shared), held=held)]
        if not len(state.magnitudes):
            scans.append(Scan(partial(cuts.start_magnitudes, W.shape[1]), add_sizes, add, shared, held=held))
        found, *others = yield All(scans)
        if others:
            first: Magnitudes = others[0]
            state = replace(state, cost_at_zero=first.cost, terms=4.0 * first.n_rows + 16.0)
            state = replace(state, magnitudes=first.sums, largest=first.largest)
        sizes: F64 = (state.cost_at_zero or state.total_cost) + 2.0 * (np.abs(W) @ state.magnitudes)
        state = replace(state, total_cost=max(state.total_cost, float(np.max(sizes))))
        return move_to_best(state, W, found.losses), found.losses, RowSums(found.gradients, found.costs, sizes), 1


def add_tangents(totals: CutTotals, rows: Rows, points: F64, loss: ConvexLoss, bias_feature: float) -> None:
    """Add the rows' losses and tangents, with the offsets b_t (`costs`) and the vectors a_t, at the points (k, d+1)."""
    scores = compute_scores(rows.X, points) + bias_feature * points[:, -1]
    every = np.arange(rows.n_rows)
    for k in range(len(points)):
        losses, slopes = loss.measure(rows, scores[:, k])
        totals.losses[k] += np.sum(losses)
        totals.costs[k] += np.sum(losses - slopes * scores[:, k])
        add_combination(totals.gradients[k], rows.X, every, -slopes, bias_feature)


def add_sizes(totals: Magnitudes, rows: Rows, loss: ConvexLoss, bias_feature: float) -> None:
    """Add the rows' magnitudes. The cost of a row is l_i(0) + K_i, where K_i is the steepest slope of l_i."""
    steepest = loss.steepest(rows)
    cost = float(np.sum(loss.measure(rows, np.zeros(rows.n_rows))[0] + steepest))
    totals.add(rows, steepest, cost, bias_feature)


KEEPS_UP = 4.0  # the line search has fallen behind if its gap exceeds this multiple of the first solver's gap
RETURNS = 5  # passes without progress by the first solver, after which the line search returns
SMALL = 0.003  # while the gaps exceed this share of P, comparing them means little
LEADING_PASSES = 4, 8  # a leading line search runs alone for 4 passes, or for 8 if it has nearly converged after 4
NEARLY = 0.1  # a line search has nearly converged if its gap is at most this share of P
KNOWN = ("best_w", "objective", "objective_rounding")
Maker = Callable[[Any], Requests]
Start = Callable[[F64], CutState]


@dataclass
class BothStates(Bounds):
    """The best results of the two solvers, and the state of each.

    states: the state of the solver with resident rows, and the state of the line search; best_w (d+1,): the point with
    the lowest P; alone: whether the first solver runs alone, because the line search was dropped or has not started;
    leads: whether the line search runs alone, because the first solver has not started.
    """

    states: list[Any]
    best_w: F64
    alone: bool = False
    leads: bool = False
    added: ClassVar[tuple[str, ...]] = ("stuck", "leads")

    @property
    def running(self) -> list[int]:
        """The positions of the solvers that run."""
        return [1] if self.leads else [0] if self.alone else [0, 1]

    @property
    def tried_bound(self) -> float:
        """The smallest positive tried_bound of the running solvers, or 0; see Progress."""
        tried = [self.states[k].tried_bound for k in self.running]
        return min((bound for bound in tried if bound > 0.0), default=0.0)


def solve_both(makers: Sequence[Maker], tol: float, state: BothStates, start_at: Start | None = None) -> Requests:
    """Run both solvers from a state. A run that is resumed from the state in any `Step` gives the same bits.

    makers: functions that resume a solver from its state, in the order of `states`: the line search comes last.
    start_at: the function that returns the first solver's state at given weights, if a line search leads.
    """
    solvers = {k: makers[k](state.states[k]) for k in state.running}
    while True:
        requests: list[Any] = [next(solver) for solver in solvers.values()]
        for k, solver in enumerate(solvers.values()):
            if isinstance(requests[k], Take):
                requests[k] = solver.send((yield requests[k]))
        found = yield All(requests, in_walk=True)
        steps: list[Any] = [solver.send(totals) for solver, totals in zip(solvers.values(), found, strict=True)]
        before, state = state, _take_over(state, dict(zip(solvers, [step.state for step in steps], strict=True)))
        if before.leads and not state.leads and start_at is not None:
            state = replace(state, states=[start_at(state.best_w), state.states[1]])
        state = replace(state, stuck=0 if has_progressed(state, before) else before.stuck + 1)
        solvers = {k: solvers[k] if k in solvers else makers[k](state.states[k]) for k in state.running}
        figures = {**steps[0].figures, "beside": len(solvers) - 1.0}
        progress = state.progress
        status = find_status(progress, tol, state.stuck, cuts.STUCK_STEPS)
        if status is None and all(step.status == "stalled" for step in steps):
            status = "stalled"
        yield Step(state, progress, status, figures)


def _take_over(state: Any, states: dict[int, CutState]) -> Any:
    """Return the state with the best results of the running solvers, and with the solvers that run next."""
    passes = state.passes + max(own.passes - state.states[k].passes for k, own in states.items())
    for own in states.values():
        state = cuts.move_to(state, own.best_w, own.objective, own.objective_rounding)
        if own.lower_bound > state.lower_bound:
            state = replace(state, lower_bound=own.lower_bound, bound_rounding=own.bound_rounding)
    state = replace(state, passes=passes, states=[states.get(k, own) for k, own in enumerate(state.states)])
    if not state.leads:
        return _choose_running(state)
    is_near = state.objective - state.lower_bound <= NEARLY * state.objective
    return replace(state, leads=passes < LEADING_PASSES[is_near])


def _choose_running(state: Any) -> Any:
    """Return the state with a line search that stops or returns; it loses its cuts if it has fallen behind.

    A line search that returns begins at the best point, without cuts.
    """
    first, other = state.states
    is_stuck = first.stuck >= RETURNS or getattr(first, "slow", False)
    if state.alone:
        if is_stuck:
            other = replace(other, **{name: getattr(state, name) for name in KNOWN})
        return replace(state, states=[first, other], alone=not is_stuck)
    gaps = [own.objective - own.lower_bound for own in state.states]
    is_far = gaps[1] > KEEPS_UP * gaps[0] and other.lower_bound <= first.lower_bound
    behind = is_far and gaps[0] <= SMALL * first.objective and not is_stuck
    return replace(state, states=[first, cuts.drop_cuts(other) if behind else other], alone=behind)
