"""The problem on a weighted sample of the rows, corrected to agree with all rows: see cutting_plane.guided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm import interrupts
from streamsvm.methods.cutting_plane.cuts import CutState, extend_products, solve_cuts
from streamsvm.methods.cutting_plane.segments import add_to_totals, read_segment, start_totals
from streamsvm.numeric.rows import F64, Rows

INNER_STEPS = 60  # at most, between two passes
MASTER_SHARE = 0.05
STEPS = 2.0 ** (np.arange(-14, 1) / 1.5)  # of a segment, at which rows may be cut


@dataclass(frozen=True)
class SampleModel:
    """f_S(w) + h.w + r. rows: the sample, weighted."""

    rows: Rows
    class_costs: F64
    bias_feature: float
    h: F64
    r: float


@dataclass(frozen=True)
class SampleOptimum:
    """Minimiser, the master's; points (p, d+1) where the sample was cut, and the cuts' multipliers (p,)."""

    best: F64
    master_w: F64
    points: F64
    z: F64


@dataclass
class Union:
    """Cuts of all rows, and after them those of the sample, shifted; their products, and the last multipliers."""

    cuts: F64
    offsets: F64
    gram: F64
    z: F64

    def solve(self, wanted: float) -> tuple[F64, float]:
        """Return the minimiser of the master problem over them, and its value."""
        self.z, w = solve_cuts(self.cuts, self.offsets, self.gram, self.z, MASTER_SHARE * wanted)
        combined = self.z @ self.cuts
        return w, float(self.z @ self.offsets - combined @ combined / 2)

    def add(self, cuts: F64, offsets: F64) -> None:
        """Add more cuts of the sample."""
        self.gram = extend_products(self.gram, self.cuts, cuts)
        self.cuts, self.offsets = np.vstack((self.cuts, cuts)), np.append(self.offsets, offsets)
        self.z = np.append(self.z, np.zeros(len(offsets)))


def minimise_sample(
    model: SampleModel, state: CutState, points: F64, cuts: F64, offsets: F64, wanted: float
) -> SampleOptimum:
    """Cutting planes with line search on the sample, from the state's best point, until the gap is at most `wanted`.

    points, cuts, offsets: where the sample was cut. The state has the cuts of all rows.
    """
    best, n_full = state.best_w, len(state.offsets)
    union = Union(state.cuts, state.offsets, state.gram, state.z)
    union.add(cuts - model.h, offsets + model.r)
    for _ in range(INNER_STEPS):
        interrupts.check()
        master_w, bound = union.solve(wanted)
        W, objectives, found_cuts, found_offsets = _look(model, state, best, master_w)
        at = int(np.argmin(objectives))
        best = W[at]
        if objectives[at] - bound <= wanted:
            break
        chosen = np.unique(np.minimum([max(at, 1), at + 1], len(W) - 1))
        points = np.vstack((points, W[chosen]))
        union.add(found_cuts[chosen] - model.h, found_offsets[chosen] + model.r)
    return SampleOptimum(best, master_w, points, union.z[n_full:])


def _look(model: SampleModel, state: CutState, best: F64, end: F64) -> tuple[F64, F64, F64, F64]:
    """Return points from `best`, itself first, to `end`; the model's objective, and the sample's cuts, at each."""
    ends = np.stack((best, end))
    totals = start_totals(len(STEPS), len(best))
    add_to_totals(totals, model.rows, ends, model.class_costs, STEPS, model.bias_feature)
    found = read_segment(ends, STEPS, totals)
    loss = found.losses + found.W @ model.h + model.r
    if len(state.offsets):
        loss = np.maximum(loss, np.max(state.offsets[:, None] - state.cuts @ found.W.T, axis=0))
    return found.W, np.sum(found.W**2, axis=1) / 2 + loss, found.gradients, found.costs
