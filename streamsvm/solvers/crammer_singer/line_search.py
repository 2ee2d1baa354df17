"""Cutting planes with a line search for Crammer-Singer: the one-slack form of a structural SVM.

    P(W) = 1/2 |W|^2 + sum_i C_i max(0, max_{k != y_i} 1 + w_k.x_i - w_{y_i}.x_i)

W is one vector of K (d+1) entries, whose K parts are the weights w_k of the classes, each with the weight of the
constant feature last. Choosing a rival class for every row gives a cut (losses.classes), and the master problem is the
same as for two classes (cutting_plane.cuts). A pass searches the line from the best point to the master's minimiser. It
computes losses at many steps and cuts at a few. Where rounding matters, the pass also evaluates P in twice the
precision at weight matrices on this line, and at lengthened copies of them, as in cutting_plane.cuts.

Sources: Joachims, Finley & Yu 2009, "Cutting-plane training of structural SVMs", Machine Learning 77; Franc &
Sonnenburg 2008 (the line search, see cutting_plane.line_search).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import ClassVar

import numpy as np

from streamsvm.losses.classes import add_line_losses, add_multiples, find_rivals, read_costs, score_classes
from streamsvm.losses.softmax import count_rows
from streamsvm.numeric.rows import F64, Rows
from streamsvm.passes import All, Requests, Scan, Step
from streamsvm.solvers.cutting_plane import cuts
from streamsvm.solvers.cutting_plane.line_search import CutTotals, L, LineState, find_ends, start_cuts
from streamsvm.solvers.cutting_plane.master import take_cuts

AROUND = 2.0 ** (np.arange(-8, 9) / 2)  # the steps along a line, as multiples of the last step taken
CUTS_AT = np.array([0.5, 1.0, 2.0])  # the same for cuts; one more cut is made at the end of the line


def look_along(ends: F64, steps: F64, cut_steps: F64, class_costs: F64, bias_feature: float) -> Scan:
    """Return the scan along the line between the ends (2, K (d+1)), for cuts (k, K, d+1). class_costs: (K,)."""
    matrices = ends.reshape(2, len(class_costs), -1)
    start = partial(start_cuts, len(steps), len(cut_steps), *matrices.shape[1:])
    return Scan(start, add_line, add, (matrices, steps, cut_steps, class_costs, bias_feature))


def add_line(
    totals: CutTotals, rows: Rows, ends: F64, steps: F64, cut_steps: F64, class_costs: F64, bias_feature: float
) -> None:
    """Add the losses of the rows and their parts of the cuts."""
    y, costs, found = rows.codes, read_costs(class_costs, rows), []
    for part in rows.cut(count_rows(len(class_costs))):
        first, last = (score_classes(part, W, bias_feature) for W in ends)
        add_line_losses(first, last, part.codes, read_costs(class_costs, part), steps, totals.losses)
        found.append([find_rivals(first, last, part.codes, step) for step in cut_steps.tolist()])
    for k, parts in enumerate(zip(*found, strict=True)):
        rivals = np.concatenate(parts)
        used = np.flatnonzero((rivals >= 0) & (costs > 0.0))
        classes = np.concatenate((y[used].astype(np.int64), rivals[used]))
        coefs = np.concatenate((costs[used], -costs[used]))
        add_multiples(totals.gradients[k], rows, np.concatenate((used, used)), classes, coefs, bias_feature)
        totals.costs[k] += np.sum(costs[used])


@dataclass(frozen=True)
class LineSearch(cuts.CutSettings):
    """Settings of the solver.

    class_costs (K,): C_i of the classes, before sample weights; bias_feature: the value of the constant feature.
    """

    class_costs: tuple[float, ...]
    bias_feature: float = 1.0
    vectors: ClassVar[int] = 8 + 3 * (len(CUTS_AT) + 1)


@dataclass
class State(LineState):
    """The state of a run. Vectors are flat weight matrices, (K (d+1),). A cut counts a row at most once (`repeats`)."""

    repeats: ClassVar[float] = 1.0


def solve(settings: LineSearch, state: State) -> Requests:
    """Train from a state. A run resumed from the state in any `Step` gives the same bits."""
    class_costs = np.array(settings.class_costs)
    while True:
        before, ends = state, find_ends(state.best_w, state.master_w, len(class_costs))
        steps, cut_steps = (choose_steps(state.step * around) for around in (AROUND, CUTS_AT))
        look = look_along(ends, steps, cut_steps, class_costs, settings.bias_feature)
        points = cuts.choose_line_points(state, ends, settings.tol)
        of_rounding = cuts.look_for_rounding(state, points, class_costs, settings.bias_feature, len(class_costs))
        found, *others = yield All([look, *of_rounding])
        state = take_best(cuts.take_rounding(state, points, others, len(class_costs)), ends, steps, found)
        new = cuts.RowSums(found.gradients.reshape(len(cut_steps), -1), found.costs, found.costs)
        state = take_cuts(state, before, new, settings.max_cuts, settings.tol)
        yield Step(state, state.progress, cuts.find_status(state, settings.tol))


def choose_steps(wanted: F64) -> F64:
    """Return the steps strictly between 0 and 1, followed by 1."""
    return np.append(wanted[(wanted > 0.0) & (wanted < 1.0)], 1.0)


def take_best(state: L, ends: F64, steps: F64, found: CutTotals) -> L:
    """Move to the best step on a line if it lowers P. ends: flat weight matrices (2, K (d+1))."""
    points = (1.0 - steps)[:, None] * ends[0] + steps[:, None] * ends[1]
    moved, best = cuts.move_to_lowest(state, points, found.losses, np.abs(ends[0]) + np.abs(ends[1]))
    if moved is not state:
        return replace(moved, step=float(steps[best]))
    return replace(state, step=state.step / 8) if state.passes else state
