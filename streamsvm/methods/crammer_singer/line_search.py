"""Cutting planes with a line search for Crammer-Singer: the one-slack form of a structural SVM.

    P(W) = 1/2 |W|^2 + sum_i C_i max(0, max_{k != y_i} 1 + w_k.x_i - w_{y_i}.x_i)

W is one vector of K (d+1) entries here, whose K parts are the weights w_k of the classes with that of the constant
feature last. A choice of a rival for every row makes a cut (numeric.class_losses), and the master problem is that of
two classes (cutting_plane.cuts). A pass looks along the line from the best point to the master's minimiser.

Sources: Joachims, Finley & Yu 2009, "Cutting-plane training of structural SVMs", Machine Learning 77; Franc &
Sonnenburg 2008 (the line search, see cutting_plane.solver).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from streamsvm.methods.crammer_singer.exact_points import look_for_rounding, take_rounding
from streamsvm.methods.crammer_singer.lines import LineTotals, find_ends, look_along
from streamsvm.methods.cutting_plane.cuts import (
    RowSums,
    add_cuts,
    count_pass,
    cut_bytes,
    find_status,
    is_better,
    master_bytes,
    most_cuts,
)
from streamsvm.methods.cutting_plane.master_problem import minimise_master, scale_costs
from streamsvm.methods.cutting_plane.segments import LineState
from streamsvm.numeric.rows import F64
from streamsvm.requests import All, Solver, Step

AROUND = 2.0 ** (np.arange(-8, 9) / 2)  # the steps of a line, as multiples of the step that was taken last
CUTS_AT = np.array([0.5, 1.0, 2.0])  # where a line is cut, likewise; and at its end


@dataclass(frozen=True)
class LineSearch:
    """Settings of the solver.

    class_costs (K,): C_i of the classes, before sample weights; tol: the relative gap to reach; bias_feature: the value
    of the constant feature; max_cuts: how many cuts are kept (None: as many as `cuts.most_cuts` says).
    """

    class_costs: tuple[float, ...]
    tol: float = 1e-3
    bias_feature: float = 1.0
    max_cuts: int | None = None

    def find_width(self, n_features: int) -> int:
        """Return the number of entries of W."""
        return len(self.class_costs) * (n_features + 1)

    def most_cuts(self, width: int) -> int:
        """Return how many cuts are kept at once at most."""
        return self.max_cuts or most_cuts(width)

    def driver_bytes(self, width: int) -> int:
        """Return the bytes that the driver needs for the cuts and a few vectors."""
        return cut_bytes(width, self.most_cuts(width)) + 8 * width * (3 * (len(CUTS_AT) + 1) + 8)

    def turn_bytes(self, width: int) -> int:
        """Return the part of the driver's bytes that is in use only while a step is computed."""
        return master_bytes(self.most_cuts(width))


@dataclass
class State(LineState):
    """All that changes. Vectors are flat weight matrices, (K (d+1),). No cut counts a row more than once."""

    repeats: ClassVar[float] = 1.0


def start_state(settings: LineSearch, n_features: int) -> State:
    """Return the state before the first pass: W = 0, and no cuts."""
    width = settings.find_width(n_features)
    return State(np.zeros(width), np.zeros(width), np.empty((0, width)))


def warm_state(settings: LineSearch, before: State, factor: float) -> State:
    """Return the state to start from, given the last state of the problem whose costs are `factor` times smaller."""
    return replace(scale_costs(before, factor, settings.tol), step=1.0)


def solve(settings: LineSearch, state: State) -> Solver:
    """Run the algorithm from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    class_costs = np.array(settings.class_costs)
    while True:
        before, ends = state, find_ends(state.best_w, state.master_w, len(class_costs))
        steps, cut_steps = (choose_steps(state.step * around) for around in (AROUND, CUTS_AT))
        matrices = ends.reshape(2, len(class_costs), -1)
        look = look_along(matrices, steps, cut_steps, class_costs, settings.bias_feature)
        of_rounding = look_for_rounding(state, ends, class_costs, settings.bias_feature, settings.tol)
        found, *others = yield All([look, *of_rounding])
        state = take_best(take_rounding(state, ends, others), ends, steps, found)
        cuts = RowSums(found.cuts.reshape(len(cut_steps), -1), found.offsets, found.offsets)
        state = add_cuts(state, cuts, settings.most_cuts(cuts.vectors.shape[1]))
        state = count_pass(minimise_master(state, settings.tol), before, 1)
        yield Step(state, state.progress, find_status(state, settings.tol))


def choose_steps(wanted: F64) -> F64:
    """Return those of the steps that lie inside the line, and 1."""
    return np.append(wanted[(wanted > 0.0) & (wanted < 1.0)], 1.0)


def take_best(state: Any, ends: F64, steps: F64, found: LineTotals) -> Any:
    """Move to the best of the steps of a line if P is lower there. ends: flat weight matrices (2, K (d+1))."""
    points = (1.0 - steps)[:, None] * ends[0] + steps[:, None] * ends[1]
    objectives = np.sum(points**2, axis=1) / 2 + found.losses
    best = int(np.argmin(objectives))
    rounding = state.bound_loss(np.abs(ends[0]) + np.abs(ends[1]))
    if is_better(objectives[best], rounding, state):
        step = float(steps[best])
        return replace(
            state, best_w=points[best], objective=float(objectives[best]), objective_rounding=rounding, step=step
        )
    return replace(state, step=state.step / 8) if state.passes else state
