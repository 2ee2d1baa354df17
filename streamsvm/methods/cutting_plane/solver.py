"""Linear SVM by cutting planes: Joachims 2006, Algorithm 1, and its acceleration by a line search.

    P(w) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i w.x_i)       bias: a constant feature, penalised (as in LIBLINEAR)

x_i, y_i and C_i are row i, its label and its cost. Every c in {0,1}^n gives a cut: the loss at every w is at least
b_c - w.a_c with a_c = sum C_i c_i y_i x_i and b_c = sum C_i c_i (the constraints of OP2 in the paper). The master
problem minimises 1/2 |w|^2 + max(0, max_c b_c - w.a_c) over the cuts that were made so far, and its dual value is a
lower bound of P. The costs are in the cuts. So C_i stands for the paper's C / n, and slack / sum C_i for its xi.

A pass looks along the segment from the best point so far to the master's minimiser. It finds the exact objective at
hundreds of steps on the segment, and cuts at a few of them (numeric.losses). So one read of the data serves the line
search of OCAS (Franc & Sonnenburg 2008) and gives several cuts. With `accelerated=False` the solver is the paper's
algorithm: both ends of the segment are the master's minimiser, and a pass takes one cut there.

References: Joachims 2006, "Training Linear SVMs in Linear Time", KDD. Franc & Sonnenburg 2008, "Optimized Cutting Plane
Algorithm for Support Vector Machines", ICML.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamsvm.methods.cutting_plane.cuts import add_cuts, count_pass, cut_bytes, find_status, master_bytes, most_cuts
from streamsvm.methods.cutting_plane.exact_points import (
    choose_line_points,
    is_noisy,
    look_for_rounding,
    take_exact,
    take_magnitudes,
)
from streamsvm.methods.cutting_plane.master_problem import minimise_master, scale_costs
from streamsvm.methods.cutting_plane.segments import (
    LineState,
    choose_cut_steps,
    count_cut_steps,
    list_cuts,
    look_along,
    search_line,
    totals_bytes,
)
from streamsvm.numeric.rows import F64
from streamsvm.requests import All, Solver, Step


@dataclass(frozen=True)
class CuttingPlane:
    """Settings of the solver.

    class_costs (2,): C_i of the classes coded 0 and 1, before sample weights; tol: the relative gap to reach; epsilon:
    the paper's stop, by how much the worst cut may be violated in units of mean loss (None: stop by the gap);
    accelerated: whether there is a line search; bias_feature: the value of the constant feature; max_cuts: how many
    cuts are kept (None: as many as `cuts.most_cuts` says).
    """

    class_costs: tuple[float, float]
    tol: float = 1e-3
    epsilon: float | None = None
    accelerated: bool = True
    bias_feature: float = 1.0
    max_cuts: int | None = None

    def cut_points(self, n_features: int) -> int:
        """Return how many cuts a pass offers."""
        return count_cut_steps(n_features + 1) if self.accelerated else 1

    def most_cuts(self, n_features: int) -> int:
        """Return how many cuts are kept at once at most."""
        return self.max_cuts or most_cuts(n_features + 1)

    def driver_bytes(self, n_features: int) -> int:
        """Return the bytes that the driver needs for the cuts and a few vectors."""
        width = n_features + 1
        return cut_bytes(width, self.most_cuts(n_features)) + 8 * width * (3 * self.cut_points(n_features) + 8)

    def turn_bytes(self, n_features: int) -> int:
        """Return the part of the driver's bytes that is in use only while a step is computed."""
        return master_bytes(self.most_cuts(n_features))

    def totals_bytes(self, n_features: int) -> int:
        """Return the bytes of one task's totals."""
        return totals_bytes(self.cut_points(n_features), n_features + 1)


@dataclass
class State(LineState):
    """All that changes. Vectors are (d+1,); their last entry is the weight of the constant feature."""


def start_state(n_features: int) -> State:
    """Return the state before the first pass: w = 0, and no cuts."""
    return State(np.zeros(n_features + 1), np.zeros(n_features + 1), np.empty((0, n_features + 1)))


def start_state_at(w: F64) -> State:
    """Return the state before the first pass, which looks along the line from w to 0."""
    return State(w, np.zeros_like(w), np.empty((0, len(w))))


def warm_state(settings: CuttingPlane, before: State, factor: float) -> State:
    """Return the state to start from, given the last state of the problem whose costs are `factor` times smaller."""
    return replace(scale_costs(before, factor, settings.tol), step=1.0)


def solve(settings: CuttingPlane, n_features: int, state: State) -> Solver:
    """Run Algorithm 1 from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    class_costs = np.array(settings.class_costs)
    while True:
        ends = np.stack((state.best_w if settings.accelerated else state.master_w, state.master_w))
        cut_steps = choose_cut_steps(state.step, settings.cut_points(n_features))
        before = state
        look = look_along(ends, cut_steps, class_costs, settings.bias_feature)
        points = choose_line_points(*ends) if is_noisy(state, settings.tol) else None
        totals, *others = yield All([look, *look_for_rounding(state, points, class_costs, settings.bias_feature)])
        state = take_magnitudes(state, others)
        state, chosen, loss = search_line(state, ends, cut_steps, totals)
        if points is not None:
            state = take_exact(state, points, others[0])[0]
        violation = (loss - state.slack) / max(state.total_cost, np.finfo(float).tiny)
        state = add_cuts(state, list_cuts(totals).pick(chosen), settings.most_cuts(n_features))
        state = minimise_master(state, settings.tol)
        state = count_pass(state, before, 1)
        yield Step(state, state.progress, find_status(state, settings.tol, settings.epsilon, violation))
