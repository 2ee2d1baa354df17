"""A pass over a segment of weight vectors: the loss on it, and cuts at some of its steps; see numeric.losses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from streamsvm.methods.cutting_plane.cuts import CutState, is_better
from streamsvm.numeric.losses import FINE_STEPS, add_segment_totals, fine_steps
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.requests import Scan


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


def look_along(ends: F64, cut_steps: F64, class_costs: F64, bias_feature: float) -> Scan:
    """Return the pass. ends: (2, d+1); cut_steps: (k,), ascending in (0, 1]; class_costs: (2,)."""
    start = partial(start_totals, len(cut_steps), ends.shape[1])
    return Scan(start, add_to_totals, combine_totals, (ends, class_costs, cut_steps, bias_feature), scored=0)


def totals_bytes(k: int, width: int) -> int:
    """Memory of a segment's totals."""
    return 8 * (k + 1) * (width + 1 + 2 * FINE_STEPS)


@dataclass(frozen=True)
class Segment:
    """What is known at step 0 and at the cut steps: W (k+1, d+1), losses (k+1,), gradients (k+1, d+1), costs (k+1,)."""

    steps: F64
    W: F64
    losses: F64
    gradients: F64
    costs: F64


def read_segment(ends: F64, cut_steps: F64, totals: SegmentTotals) -> Segment:
    """Sum up what changes from step to step."""
    steps = np.append(0.0, cut_steps)
    value, slope = np.cumsum(totals.losses, axis=0)[::FINE_STEPS].T
    W = (1.0 - steps)[:, None] * ends[0] + steps[:, None] * ends[1]
    return Segment(steps, W, value + steps * slope, np.cumsum(totals.gradients, axis=0), np.cumsum(totals.costs))


def count_cut_steps(width: int) -> int:
    """Cuts on offer in a pass: 16, fewer where 16 vectors would be more than 16 MiB, at least 4."""
    return int(np.clip((16 << 20) // (8 * width) - 1, 4, 16))


def choose_cut_steps(last_step: float, k: int) -> F64:
    """Return the steps at which cuts are on offer: geometric around the last step that was taken, and 1."""
    around = last_step * 2.0 ** ((np.arange(k - 1) - k // 2) / 1.5)
    return np.append(np.unique(around[(around > 0.0) & (around < 1.0)]), 1.0)  # 0: where a tiny step underflows


@dataclass
class LineState(CutState):
    """Of a solver that looks along a line in every pass. step: the last that was taken."""

    step: float = 1.0


L = TypeVar("L", bound=LineState)


def search_line(state: L, ends: F64, cut_steps: F64, totals: SegmentTotals) -> tuple[L, I64, float]:
    """Move to the best point of the segment, exactly; return the cut steps around it, and the loss at its end."""
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
    rounding = state.bound_loss(np.abs(ends[0]) + np.abs(ends[1]))
    if is_better(objectives[best], rounding, state):
        best_w = (1 - step) * ends[0] + step * ends[1]
        state = replace(state, best_w=best_w, objective=float(objectives[best]), objective_rounding=rounding)
    below = int(np.searchsorted(cut_steps, step, side="right"))  # 0 stands for the start of the segment
    chosen = np.unique(np.minimum([below, below + 1, below + 2, len(cut_steps)], len(cut_steps)))
    return state, chosen, float(losses[-1])
