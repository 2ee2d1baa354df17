"""The problem of a weighted sample, corrected by the cuts of all rows, and its solution by cutting planes.

    1/2 |w|^2 + max(f_S(w) + h.w + r, max_c b_c - w.a_c)

f_S is the loss of the sample, h and r correct its slope and value, and (a_c, b_c) are the cuts of all rows; see
cutting_plane.corrected_sample. A cut (a, b) of f_S is the cut (a - h, b + r) of the corrected loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm import interrupts
from streamsvm.methods.cutting_plane.cuts import CutState, RowSums, extend_products
from streamsvm.methods.cutting_plane.master_problem import solve_cuts
from streamsvm.methods.cutting_plane.segments import add_to_totals, read_segment, start_totals
from streamsvm.numeric.rows import F64, Rows

INNER_STEPS = 60  # steps on the sample between two passes, at most
IDLE_STEPS = 5  # so many in a row that have neither found a lower point nor raised the bound: rounding is the limit
MOVES = 1e-12  # by this share a point is lower, or a bound higher
MASTER_SHARE = 0.05  # the master problem is solved to this share of the gap that is asked for
STEPS = 2.0 ** (np.arange(-14, 1) / 1.5)  # cut steps on a line


@dataclass(frozen=True)
class SampleModel:
    """The corrected loss f_S(w) + h.w + r.

    rows: the sample, in which the weight of each row is multiplied by the number of rows that it stands for.
    """

    rows: Rows
    class_costs: F64
    bias_feature: float
    h: F64
    r: float


@dataclass(frozen=True)
class SampleOptimum:
    """The solution of the sample's problem.

    best: its minimiser; master_w: the minimiser of its master problem; points (p, d+1): where the sample was cut;
    z (p,): the multipliers of the cuts at these points.
    """

    best: F64
    master_w: F64
    points: F64
    z: F64


@dataclass
class Union:
    """The cuts of all rows, then the corrected cuts of the sample; the products of all; the latest multipliers z."""

    cuts: F64
    offsets: F64
    gram: F64
    z: F64

    def solve(self, wanted: float) -> tuple[F64, float]:
        """Return the minimiser of the master problem over all these cuts, and a lower bound D(z) of its value."""
        self.z, w = solve_cuts(self.cuts, self.offsets, self.gram, self.z, MASTER_SHARE * wanted)
        combined = self.z @ self.cuts
        return w, float(self.z @ self.offsets - combined @ combined / 2)

    def add(self, cuts: F64, offsets: F64) -> None:
        """Add corrected cuts of the sample."""
        self.gram = extend_products(self.gram, self.cuts, cuts)
        self.cuts, self.offsets = np.vstack((self.cuts, cuts)), np.append(self.offsets, offsets)
        self.z = np.append(self.z, np.zeros(len(offsets)))


def minimise_sample(model: SampleModel, state: CutState, points: F64, cuts: RowSums, wanted: float) -> SampleOptimum:
    """Minimise the sample's problem by cutting planes with a line search, until its gap is at most `wanted`.

    The search also ends after INNER_STEPS, or where IDLE_STEPS in a row have made no progress.

    state: holds the cuts of all rows, and the best point, from which the search starts. points, cuts: the
    points at which the sample has been cut already, and its cuts there.
    """
    best, n_full = state.best_w, len(state.offsets)
    union = Union(state.cuts, state.offsets, state.gram, state.z)
    union.add(cuts.vectors - model.h, cuts.offsets + model.r)
    lowest, highest, idle = np.inf, -np.inf, 0
    for _ in range(INNER_STEPS):
        interrupts.check()
        master_w, bound = union.solve(wanted)
        W, objectives, found_cuts, found_offsets = _look(model, state, best, master_w)
        at = int(np.argmin(objectives))
        best = W[at]
        moves = lowest - objectives[at] > MOVES * abs(objectives[at]) or bound - highest > MOVES * abs(bound)
        lowest, highest, idle = min(lowest, objectives[at]), max(highest, bound), 0 if moves else idle + 1
        if objectives[at] - bound <= wanted or idle >= IDLE_STEPS:
            break
        chosen = np.unique(np.minimum([max(at, 1), at + 1], len(W) - 1))
        points = np.vstack((points, W[chosen]))
        union.add(found_cuts[chosen] - model.h, found_offsets[chosen] + model.r)
    return SampleOptimum(best, master_w, points, union.z[n_full:])


def _look(model: SampleModel, state: CutState, best: F64, end: F64) -> tuple[F64, F64, F64, F64]:
    """Return points on the line from `best` to `end`, and the objective and the sample's cut at each.

    The first point is `best` itself.
    """
    ends = np.stack((best, end))
    totals = start_totals(len(STEPS), len(best))
    add_to_totals(totals, model.rows, ends, model.class_costs, STEPS, model.bias_feature)
    found = read_segment(ends, STEPS, totals)
    loss = found.losses + found.W @ model.h + model.r
    if len(state.offsets):
        loss = np.maximum(loss, np.max(state.offsets[:, None] - state.cuts @ found.W.T, axis=0))
    return found.W, np.sum(found.W**2, axis=1) / 2 + loss, found.cuts.vectors, found.cuts.offsets
