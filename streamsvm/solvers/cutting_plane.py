"""Linear SVM by cutting planes: Joachims 2006, Algorithm 1, and its acceleration by line search.

    P(w) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i w.x_i)       bias: a constant feature, penalised (as LIBLINEAR)

Any c in {0,1}^n gives a cut: the loss at every w is at least b_c - w.a_c with a_c = sum C_i c_i y_i x_i and
b_c = sum C_i c_i. The master problem minimises 1/2 |w|^2 + max(0, max_c b_c - w.a_c); its dual value is a lower bound
of P, for all rows. C is absorbed in the cuts, so the paper's C / n is our C_i and its slack xi is our slack / sum C_i.

A pass looks at the segment from the best point so far to the master's minimiser. It returns the exact objective at
hundreds of steps on the segment, and cuts at a few of them (numeric.losses): the line search of OCAS (Franc &
Sonnenburg 2008) and several cuts in one read of the data. `accelerated=False` is the paper's algorithm: both ends of
the segment are the master's minimiser, and one cut a pass is taken there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from streamsvm.numeric.losses import FINE_STEPS, add_segment_totals, fine_steps
from streamsvm.numeric.master_qp import solve_master
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.solvers.protocol import Progress, Scan, Solver, Step

CUTS_A_PASS = 4  # at most; see _search_line
IDLE_STEPS = 40  # a cut that has been inactive for so many steps is dropped
STUCK_STEPS = 30  # neither bound has moved for so many steps: rounding is the limit
MASTER_SHARE = 0.05  # the master is solved to this share of the gap that is left or wanted


@dataclass(frozen=True)
class CuttingPlane:
    """Settings. tol: relative gap; epsilon: the paper's stop, violation of the worst cut by mean loss (None: by gap).

    class_costs: (2,) C_i of the classes coded 0 and 1, before sample weights.
    """

    class_costs: tuple[float, float]
    tol: float = 1e-3
    epsilon: float | None = None
    accelerated: bool = True
    bias_feature: float = 1.0
    max_cuts: int | None = None

    def cut_points(self, n_features: int) -> int:
        """Cuts on offer in a pass: 16, fewer where 16 vectors of d would be more than 16 MiB, at least 4."""
        return int(np.clip((16 << 20) // (8 * (n_features + 1)) - 1, 4, 16)) if self.accelerated else 1

    def most_cuts(self, n_features: int) -> int:
        """Cuts kept at once: 1,000, fewer where they would be more than 128 MiB, at least 64."""
        return self.max_cuts or int(np.clip((128 << 20) // (8 * (n_features + 1)), 64, 1000))

    def driver_bytes(self, n_features: int) -> int:
        """Memory of the driver: the cuts while they are copied, their products, a few vectors."""
        cuts = self.most_cuts(n_features)
        return 8 * (n_features + 1) * (2 * cuts + 3 * self.cut_points(n_features) + 8) + 6 * 8 * cuts**2

    def totals_bytes(self, n_features: int) -> int:
        """Memory of one task's totals."""
        return 8 * (self.cut_points(n_features) + 1) * (n_features + 2 + 2 * FINE_STEPS)


@dataclass
class State:
    """All that changes. w vectors are (d+1,), the last entry the bias' weight; cuts are (m, d+1)."""

    best_w: F64
    master_w: F64
    cuts: F64
    offsets: F64 = field(default_factory=lambda: np.empty(0))
    z: F64 = field(default_factory=lambda: np.empty(0))
    gram: F64 = field(default_factory=lambda: np.empty((0, 0)))
    idle: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    objective: float = float("inf")
    lower_bound: float = 0.0
    slack: float = 0.0
    total_cost: float = 0.0
    step: float = 1.0
    passes: int = 0
    stuck: int = 0


@dataclass
class SegmentTotals:
    """What a pass adds up; see numeric.losses.add_segment_totals."""

    losses: F64
    costs: F64
    gradients: F64


def start_totals(k: int, width: int) -> SegmentTotals:
    """Return the totals of no rows, for k cut steps and vectors of `width`."""
    return SegmentTotals(np.zeros((k * FINE_STEPS + 1, 2)), np.zeros(k + 1), np.zeros((k + 1, width)))


def add_to_totals(
    totals: SegmentTotals, rows: Rows, ends: F64, class_costs: F64, cut_steps: F64, bias_feature: float
) -> None:
    """Add rows."""
    add_segment_totals(rows, ends, class_costs, cut_steps, bias_feature, totals.losses, totals.costs, totals.gradients)


def combine_totals(left: SegmentTotals, right: SegmentTotals) -> SegmentTotals:
    """Return the sum; the parts stay as they are (a scheduler may use them again)."""
    return SegmentTotals(left.losses + right.losses, left.costs + right.costs, left.gradients + right.gradients)


def start_state(n_features: int) -> State:
    """Return w = 0, no cuts."""
    return State(np.zeros(n_features + 1), np.zeros(n_features + 1), np.empty((0, n_features + 1)))


def solve(settings: CuttingPlane, n_features: int, state: State) -> Solver:
    """Algorithm 1; every `Step` carries the whole state, from which `solve` goes on to the same bits."""
    class_costs = np.array(settings.class_costs)
    while True:
        ends = np.stack((state.best_w if settings.accelerated else state.master_w, state.master_w))
        cut_steps = _choose_cut_steps(state.step, settings.cut_points(n_features))
        start = partial(start_totals, len(cut_steps), ends.shape[1])
        totals = yield Scan(start, add_to_totals, combine_totals, (ends, class_costs, cut_steps, settings.bias_feature))
        before = (state.objective, state.lower_bound)
        state, chosen, loss = _search_line(state, ends, cut_steps, totals)
        if state.total_cost == 0.0:
            state = replace(state, total_cost=float(totals.costs[0]))
        violation = (loss - state.slack) / max(state.total_cost, np.finfo(float).tiny)
        state = _solve_master(_with_cuts(state, totals, chosen, settings.most_cuts(n_features)), settings.tol)
        moved = state.objective < before[0] or state.lower_bound > before[1] * (1 + 1e-12)
        state = replace(state, passes=state.passes + 1, stuck=0 if moved else state.stuck + 1)
        progress = Progress(state.objective, state.lower_bound, state.passes)
        yield Step(state, progress, _status(settings, state, progress, violation))


def _status(settings: CuttingPlane, state: State, progress: Progress, violation: float) -> str | None:
    gap = progress.relative_gap
    if settings.epsilon is not None and violation <= settings.epsilon and state.passes > 1:
        return "converged"
    if settings.epsilon is None and gap is not None and gap <= settings.tol:
        return "converged"
    return "stalled" if state.stuck >= STUCK_STEPS else None


def _choose_cut_steps(last_step: float, k: int) -> F64:
    """Return the steps at which cuts are on offer: geometric around the last step that was taken, and 1."""
    around = last_step * 2.0 ** ((np.arange(k - 1) - k // 2) / 1.5)
    return np.append(np.unique(around[(around > 0.0) & (around < 1.0)]), 1.0)  # 0: where a tiny step underflows


def _search_line(state: State, ends: F64, cut_steps: F64, totals: SegmentTotals) -> tuple[State, I64, float]:
    """Move to the best point of the segment; return the cut steps around it, and the loss at the master's w."""
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
    if objectives[best] < state.objective:
        best_w = (1 - step) * ends[0] + step * ends[1]
        state = replace(state, best_w=best_w, objective=float(objectives[best]))
    below = int(np.searchsorted(cut_steps, step, side="right"))  # 0 stands for the start of the segment
    chosen = np.unique(np.minimum([below, below + 1, below + 2, len(cut_steps)], len(cut_steps)))
    return state, chosen, float(losses[-1])


def _with_cuts(state: State, totals: SegmentTotals, chosen: I64, most_cuts: int) -> State:
    """Add the chosen cuts (those that differ); drop the longest idle ones where there are too many."""
    cuts = np.cumsum(totals.gradients, axis=0)[chosen]
    offsets = np.cumsum(totals.costs)[chosen]
    differs = np.concatenate(([True], np.any(np.diff(cuts, axis=0) != 0, axis=1)))
    cuts, offsets = cuts[differs], offsets[differs]
    keep = state.idle <= IDLE_STEPS
    if (excess := int(keep.sum()) + len(cuts) - most_cuts) > 0:
        expendable = np.lexsort((state.z, -state.idle))
        keep[expendable[keep[expendable]][:excess]] = False
    m = int(keep.sum())
    both = np.empty((m + len(cuts), cuts.shape[1]))  # the cuts may be most of the driver's memory: copied once
    old = np.take(state.cuts, np.flatnonzero(keep), axis=0, out=both[:m], mode="clip")
    both[m:] = cuts
    gram = np.empty((m + len(cuts), m + len(cuts)))
    gram[:m, :m] = state.gram[np.ix_(keep, keep)]
    gram[m:, :m] = cuts @ old.T
    gram[:m, m:] = gram[m:, :m].T
    gram[m:, m:] = cuts @ cuts.T
    none = np.zeros(len(cuts))
    return replace(
        state,
        cuts=both,
        offsets=np.concatenate((state.offsets[keep], offsets)),
        z=np.concatenate((state.z[keep], none)),
        idle=np.concatenate((state.idle[keep], none.astype(np.int64))),
        gram=gram,
    )


def _solve_master(state: State, tol: float) -> State:
    wanted = MASTER_SHARE * max(state.objective - state.lower_bound, tol * state.objective)
    solution = solve_master(state.gram, state.offsets, state.z, wanted)
    return replace(
        state,
        z=solution.z,
        master_w=solution.z @ state.cuts,
        lower_bound=min(max(state.lower_bound, solution.value), state.objective),  # equal but for rounding at most
        slack=max(0.0, float(np.max(state.offsets - state.gram @ solution.z))),
        idle=np.where(solution.z > 0, 0, state.idle + 1),
    )
