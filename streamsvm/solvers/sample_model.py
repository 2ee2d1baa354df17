"""The problem on a weighted sample of the rows, corrected to agree with all rows: see solvers.guided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.numeric.losses import FINE_STEPS, add_segment_totals
from streamsvm.numeric.master_qp import solve_master
from streamsvm.numeric.rows import F32, F64, I64, Rows
from streamsvm.solvers.cuts import CutState

INNER_STEPS = 60  # at most, between two passes
MASTER_SHARE = 0.05
STEPS = 2.0 ** (np.arange(-14, 1) / 1.5)  # of a segment, at which the sample may be cut
NEARNESS = 0.1


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
        solution = solve_master(self.gram, self.offsets, self.z, MASTER_SHARE * wanted)
        self.z = solution.z
        return solution.z @ self.cuts, solution.value

    def add(self, cuts: F64, offsets: F64) -> None:
        """Add more cuts of the sample."""
        m, none = len(self.offsets), np.zeros(len(offsets))
        self.cuts = np.vstack((self.cuts, cuts))
        products = cuts @ self.cuts.T
        self.gram = np.block([[self.gram, products[:, :m].T], [products]])
        self.offsets, self.z = np.append(self.offsets, offsets), np.append(self.z, none)


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
        master_w, bound = union.solve(wanted)
        steps, objectives, found_cuts, found_offsets = _look(model, state, best, master_w)
        at, start = int(np.argmin(objectives)), best
        best = (1.0 - steps[at]) * best + steps[at] * master_w
        if objectives[at] - bound <= wanted:
            break
        chosen = np.unique(np.minimum([max(at, 1), at + 1], len(steps) - 1))
        points = np.vstack((points, start + steps[chosen, None] * (master_w - start)))
        union.add(found_cuts[chosen] - model.h, found_offsets[chosen] + model.r)
    return SampleOptimum(best, master_w, points, union.z[n_full:])


def _look(model: SampleModel, state: CutState, best: F64, end: F64) -> tuple[F64, F64, F64, F64]:
    """Return steps from `best` to `end`, 0 first; the model's objective, and the sample's cuts, at each."""
    ends, width = np.stack((best, end)), len(best)
    losses = np.zeros((len(STEPS) * FINE_STEPS + 1, 2))
    costs, gradients = np.zeros(len(STEPS) + 1), np.zeros((len(STEPS) + 1, width))
    add_segment_totals(model.rows, ends, model.class_costs, STEPS, model.bias_feature, losses, costs, gradients)
    steps = np.append(0.0, STEPS)
    value, slope = np.cumsum(losses, axis=0)[::FINE_STEPS].T
    W = (1.0 - steps)[:, None] * best + steps[:, None] * end
    loss = value + steps * slope + W @ model.h + model.r
    if len(state.offsets):
        loss = np.maximum(loss, np.max(state.offsets[:, None] - state.cuts @ W.T, axis=0))
    return steps, np.sum(W**2, axis=1) / 2 + loss, np.cumsum(gradients, axis=0), np.cumsum(costs)


def draw_near_margin(margins: F32, number: int, seed: tuple[int, ...]) -> tuple[I64, F64]:
    """Return about so many rows, ascending, with probability in proportion to nearness; and 1 / probability."""
    if number >= len(margins):
        return np.arange(len(margins)), np.ones(len(margins))
    near = 1.0 / (NEARNESS + np.abs(1.0 - margins.astype(np.float64))) ** 2
    scale = number / np.sum(near)
    for _ in range(20):
        scale *= number / np.sum(np.minimum(1.0, scale * near))
    probability = np.minimum(1.0, scale * near)
    rows = np.flatnonzero(np.random.default_rng(seed).random(len(near)) < probability)
    return rows, 1.0 / probability[rows]
