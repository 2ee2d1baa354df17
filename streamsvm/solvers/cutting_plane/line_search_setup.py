"""The set-up of cutting planes without resident rows, and of a line search that runs alongside another solver.

For the hinge loss, cutting planes use a line search or the unmodified Algorithm 1 of Joachims 2006. `AnyLossSolver` is
for any convex loss.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.data.rows.source import RowSource
from streamsvm.numeric.rounding import add_row_magnitudes
from streamsvm.numeric.rows import F64, Rows, add_rows, draw_sample
from streamsvm.options import TrainOptions, compute_class_costs
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.problems.registry import find_problem
from streamsvm.solvers.cutting_plane import line_search, score_model
from streamsvm.solvers.cutting_plane.cuts import exact_bytes, most_cuts
from streamsvm.solvers.cutting_plane.line_search import RowSearch, solve_any_loss
from streamsvm.solvers.cutting_plane.master import scale_costs
from streamsvm.solvers.options import AnyLossOptions
from streamsvm.solvers.solver import Budget, DualWatch, FirstSample, LinearSolver, Solver, Wrapper, describe_parameters

SAMPLE_BYTES = 16 << 20  # maximum size of a sample in bytes; a sample of long rows has fewer rows
SAMPLE_ROW_BYTES = 8 * 28  # a row of a sample without its features: costs, scores, and sort buffers
SAMPLE_SHARE = 0.25  # without a sample, cutting planes take little memory


def read_parameters(source: RowSource, options: TrainOptions, own: Any) -> dict[str, Any]:
    """Return the parameters common to all solvers for the hinge loss."""
    costs = compute_class_costs(source, options)
    return {"class_costs": costs, "tol": float(options.tol), "bias_feature": own.intercept_scaling}


def count_sample_rows(source: RowSource) -> int:
    """Return the number of rows in the sample: enough for a model if they fit, else enough for a line search."""
    most = max(1, min(score_model.SAMPLE_ROWS, SAMPLE_BYTES * source.n_rows // max(1, source.nbytes)))
    return most if most >= score_model.ROWS_A_FEATURE * source.n_features else min(score_model.SEARCHED_ROWS, most)


def count_sample_bytes(source: RowSource, n_rows: int) -> int:
    """Return the bytes of a sample of n_rows rows."""
    return 2 * (source.nbytes // source.n_rows + SAMPLE_ROW_BYTES) * n_rows


class LineSearchSolver(LinearSolver):
    """Cutting planes for the hinge loss, with or without a line search."""

    name, compiled, n_starts = "cutting-plane", ("cutting-plane",), 1

    def __init__(self, source: RowSource, parameters: line_search.CuttingPlane, note: str = "") -> None:
        self.source, self.parameters, self.note, width = source, parameters, note, source.n_features + 1
        self.bias_feature, self.settings = parameters.bias_feature, describe_parameters(parameters)
        self.dual = DualWatch("cuts", width, parameters.most_cuts(width))

    def start(self) -> line_search.LineState:
        """Return the state at w = 0."""
        return line_search.LineState.at_zero(self.source.n_features + 1)

    def start_at(self, w: F64) -> line_search.LineState:
        """Return the state at given weights; the first pass searches the line from there to 0."""
        return replace(self.start(), best_w=w)

    def warm_start(self, before: line_search.LineState, factor: float) -> line_search.LineState:
        """Return the initial state for costs `factor` times larger, with the cuts of the state `before`."""
        return replace(scale_costs(before, factor, self.parameters.tol), step=1.0)

    def solve(self, state: line_search.LineState) -> Requests:
        """Yield the passes of the solver, step by step."""
        return line_search.solve(self.parameters, state)

    def memory(self, threads: int) -> MemoryNeed:  # noqa: ARG002
        """Return the memory. Shared vectors count twice, because a read that serves several solvers copies them."""
        width = self.source.n_features + 1
        exact, totals = exact_bytes(width), line_search.totals_bytes(self.parameters.cut_points(width), width)
        return self.parameters.need_memory(width, totals + 2 * exact, 32 * width + exact)


class AnyLossSolver(LinearSolver):
    """Cutting planes for the convex loss of the task in the options.

    may_sample: whether a sample may suggest points. It does if it has enough rows, and if it and its model take at most
    SAMPLE_SHARE of the memory.
    """

    name, compiled = "cutting-plane", ("any-loss",)

    def __init__(
        self, source: RowSource, options: TrainOptions, own: AnyLossOptions, budget: Budget, may_sample: bool = True
    ) -> None:
        problem, n, width = find_problem(options.task), source.n_rows, source.n_features + 1
        self.source, self.bias_feature, self.has_classes = source, own.intercept_scaling, problem.has_classes
        loss, bias = problem.make_loss(source, options), own.intercept_scaling
        self.parameters = line_search.AnyLoss(loss, bias, tol=float(options.tol), max_cuts=own.max_cuts)
        about = {"task": options.task, "C": float(options.C), "tol": self.parameters.tol, "bias_feature": bias}
        others = {"max_cuts": own.max_cuts, "class_weight": repr(options.class_weight)}
        self.settings = about | problem.tell_loss(source, options) | others
        rows = draw_sample(count_sample_rows(source), n, options.seed, source.is_shuffled)
        sample = line_search.RowSample(n / len(rows), rows, bias, len(rows) == n, loss=loss)
        model_bytes = score_model.count_model_bytes(width) + 3 * 8 * score_model.MOST_POINTS * width
        more_bytes = count_sample_bytes(source, len(rows)), model_bytes
        fits = sum(more_bytes) <= SAMPLE_SHARE * budget.spare_bytes
        self.drawn = sample if may_sample and fits and sample.is_enough(width) else None
        self.more_bytes = (0, 0) if self.drawn is None else more_bytes
        self.sample = None if self.drawn is None else FirstSample(len(rows), is_held=True)

    def start(self) -> line_search.AnyLossState:
        """Return the state at w = 0."""
        return line_search.AnyLossState.at_zero(self.source.n_features + 1)

    def warm_start(self, before: line_search.AnyLossState, factor: float) -> line_search.AnyLossState:
        """Return the initial state for costs `factor` times larger, with the cuts of the state `before`."""
        scaled = scale_costs(before, factor, self.parameters.tol)
        return replace(scaled, cost_at_zero=factor * before.cost_at_zero)

    def solve(self, state: line_search.AnyLossState) -> Requests:
        """Yield the passes of the solver, step by step."""
        is_older = state.passes > 0 and state.cost_at_zero == 0.0  # a run of an earlier version, without a sample
        return solve_any_loss(self.parameters, RowSearch(), None if is_older else self.drawn, state)

    def memory(self, threads: int) -> MemoryNeed:  # noqa: ARG002
        """Return the memory.

        The totals of a task are cuts and, in the first pass, the magnitudes of the rows. The driver holds the sample.
        """
        width = self.source.n_features + 1
        k = len(line_search.ANY_LOSS_STEPS) if self.drawn is None else score_model.MOST_POINTS
        return self.parameters.need_memory(width, 8 * width * (k + 2) + 16 * k, 8 * width * k, *self.more_bytes)


BESIDE_CUTS = 128  # cuts that an accompanying line search keeps; if it falls behind, it is dropped much earlier
SLOW_BYTES = 32 << 20  # memory for the cuts of a line search that starts only once the first solver is slow


def choose_most_cuts(width: int, alone: bool) -> int:
    """Return the number of cuts that the line search keeps.

    width: the number of entries of a cut. alone: whether the line search starts only once the first solver is slow.
    """
    return max(BESIDE_CUTS, min(most_cuts(width), SLOW_BYTES // (8 * width))) if alone else BESIDE_CUTS


def make_line_search(source: RowSource, parameters: Any, alone: bool) -> LineSearchSolver:
    """Return the line search to run alongside a hinge-loss solver with these parameters."""
    costs, most = (parameters.class_costs[0], parameters.class_costs[1]), choose_most_cuts(source.n_features + 1, alone)
    other = line_search.CuttingPlane(costs, bias_feature=parameters.bias_feature, tol=parameters.tol, max_cuts=most)
    return LineSearchSolver(source, other)


class TwoSolvers(Wrapper):
    """A solver with resident rows and a line search that share the reads.

    alone: whether the first solver runs alone until it is slow. terms: the largest number of additions on any term of a
    sum in a walk, if walks compute the passes as well. leads: whether the line search runs first, alone
    (line_search.LEADING_PASSES).
    """

    def __init__(
        self, first: Solver, other: Solver, tol: float, alone: bool, terms: float = 0.0, leads: bool = False
    ) -> None:
        super().__init__(first)
        self.other, self.tol, self.alone, self.terms, self.leads = other, tol, alone, terms, leads
        self.n_starts = other.n_starts
        self.starts_warm = first.starts_warm and type(first).warm_start is not Solver.warm_start
        self.compiled = tuple(dict.fromkeys((*other.compiled, *first.compiled)))
        if first.dual is not None and other.dual is not None:
            self.dual = replace(first.dual, kind="cuts", most_cuts=first.dual.most_cuts + other.dual.most_cuts)

    def _start_other(self) -> Any:
        return replace(self.other.start(), terms=self.terms)

    def start(self) -> line_search.BothStates:
        """Return the initial state of both solvers."""
        own = self.inner.start()
        return line_search.BothStates([own, self._start_other()], own.best_w, alone=self.alone, leads=self.leads)

    def start_at(self, w: F64) -> line_search.BothStates:
        """Return both initial states at given weights; a first solver that cannot use weights starts at 0."""
        own = self.inner.start_at(w) if self.inner.n_starts else self.inner.start()
        other = replace(self._start_other(), best_w=w)
        return line_search.BothStates([own, other], w, alone=self.alone, leads=self.leads)

    start_each = Solver.start_each  # the method for one problem, whatever the first solver does

    def warm_start(self, before: line_search.BothStates, factor: float) -> line_search.BothStates:
        """Return the warm start of both solvers, or a new start if the first solver has no warm start."""
        if type(self.inner).warm_start is Solver.warm_start:
            return self.start()
        own = self.inner.warm_start(before.states[0], factor)
        other = self._start_other() if before.alone else self.other.warm_start(before.states[1], factor)
        known = ("best_w", "objective", "lower_bound", "objective_rounding", "bound_rounding")
        return line_search.BothStates([own, other], **{name: getattr(own, name) for name in known}, alone=self.alone)

    def solve(self, state: line_search.BothStates) -> Requests:
        """Yield the passes of both solvers."""
        return line_search.solve_both([self.inner.solve, self.other.solve], self.tol, state, self.inner.start_at)

    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory of both solvers.

        If the first solver reads the rows in sequence (a `Walk` request), that walk also sums the line search's totals.
        The walk then needs memory for three sets of these totals: its own so far, those of the current block, and the
        sum of the two.
        """
        own, other = self.inner.memory(threads), self.other.memory(threads)
        names, in_walk = ("driver_bytes", "turn_bytes", "shared_bytes"), own.walk_bytes > 0
        sums = {name: getattr(own, name) + getattr(other, name) for name in names}
        totals = own.totals_bytes + (0 if in_walk else other.totals_bytes)
        walk = own.walk_bytes + other.walk_bytes + (3 * other.totals_bytes if in_walk else 0)
        return replace(own, **sums, totals_bytes=totals, walk_bytes=walk)


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call the compiled functions that sum rows."""
    every = np.arange(rows.n_rows)
    add_rows(np.zeros((1, 3)), rows.X, every, np.zeros_like(every), np.ones(rows.n_rows))
    add_row_magnitudes(np.zeros(3), np.zeros(3), rows.X, np.ones(rows.n_rows))
