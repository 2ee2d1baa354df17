"""A pass along a segment of weight vectors: the loss at many steps of it, cuts at a few, and the line search.

The cuts on offer are made at the cut steps. Between two cut steps there are FINE_STEPS steps with an exact loss; see
numeric.losses for both. The line search is that of OCAS (Franc & Sonnenburg 2008; see cutting_plane.solver).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, TypeVar

import numpy as np

from streamsvm.methods.cutting_plane.cuts import CutState, RowSums, is_better
from streamsvm.numeric.losses import FINE_STEPS, add_segment_totals, fine_steps
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.requests import Scan


@dataclass
class SegmentTotals:
    """The totals of a pass: values at step 0, and changes from step to step (numeric.losses.add_segment_totals)."""

    losses: F64
    costs: F64
    gradients: F64


def start_totals(k: int, width: int) -> SegmentTotals:
    """Return the totals of no rows, for k cut steps and cuts of `width` entries; 0 entries leave the cuts out."""
    return SegmentTotals(np.zeros((k * FINE_STEPS + 1, 2)), np.zeros(k + 1), np.zeros((k + 1, width)))


def add_to_totals(
    totals: SegmentTotals, rows: Rows, ends: F64, class_costs: F64, cut_steps: F64, bias_feature: float
) -> None:
    """Add the losses and cuts of rows."""
    add_segment_totals(rows, ends, class_costs, cut_steps, bias_feature, totals.losses, totals.costs, totals.gradients)


def combine_totals(left: SegmentTotals, right: SegmentTotals) -> SegmentTotals:
    """Return the totals of the rows of both, which are left unchanged, as a scheduler may use them again."""
    return SegmentTotals(left.losses + right.losses, left.costs + right.costs, left.gradients + right.gradients)


def look_along(ends: F64, cut_steps: F64, class_costs: F64, bias_feature: float) -> Scan:
    """Return the scan along a segment. ends (2, d+1); cut_steps (k,), ascending in (0, 1]; class_costs (2,)."""
    return _look(ends, cut_steps, class_costs, bias_feature, ends.shape[1])


def measure_along(ends: F64, cut_steps: F64, class_costs: F64, bias_feature: float) -> Scan:
    """Return the scan of `look_along` without the cuts, which take as long as the losses if most rows lose."""
    return _look(ends, cut_steps, class_costs, bias_feature, 0)


def _look(ends: F64, cut_steps: F64, class_costs: F64, bias_feature: float, cut_width: int) -> Scan:
    start = partial(start_totals, len(cut_steps), cut_width)
    return Scan(start, add_to_totals, combine_totals, (ends, class_costs, cut_steps, bias_feature), scored=0)


def totals_bytes(k: int, width: int) -> int:
    """Return the bytes of the totals of k cut steps."""
    return 8 * (k + 1) * (width + 1 + 2 * FINE_STEPS)


@dataclass(frozen=True)
class Segment:
    """Weight vectors, losses and cuts at step 0 and at the k cut steps.

    steps, losses (k+1,); W (k+1, d+1); cuts: k+1 sums.
    """

    steps: F64
    W: F64
    losses: F64
    cuts: RowSums


def list_cuts(totals: SegmentTotals) -> RowSums:
    """Return the cuts at step 0 and at the k cut steps. Rows that are active at step 0 may be subtracted again."""
    offsets = np.cumsum(totals.costs)
    return RowSums(np.cumsum(totals.gradients, axis=0), offsets, 2 * totals.costs[0] + offsets)


def read_segment(ends: F64, cut_steps: F64, totals: SegmentTotals) -> Segment:
    """Return losses and cuts at the steps, the sums of their changes from step to step."""
    steps = np.append(0.0, cut_steps)
    value, slope = np.cumsum(totals.losses, axis=0)[::FINE_STEPS].T
    W = (1.0 - steps)[:, None] * ends[0] + steps[:, None] * ends[1]
    return Segment(steps, W, value + steps * slope, list_cuts(totals))


def count_cut_steps(width: int) -> int:
    """Return how many cuts a pass offers: 16, or fewer so that their vectors take 16 MiB at most, but at least 4."""
    return int(np.clip((16 << 20) // (8 * width) - 1, 4, 16))


def choose_cut_steps(last_step: float, k: int) -> F64:
    """Return at most k cut steps: a geometric sequence around the last step that was taken, and 1."""
    around = last_step * 2.0 ** ((np.arange(k - 1) - k // 2) / 1.5)
    return np.append(np.unique(around[(around > 0.0) & (around < 1.0)]), 1.0)  # tiny steps can underflow to 0


@dataclass
class LineState(CutState):
    """The state of a solver that looks along a line in every pass. step: the last step that was taken.

    A cut from the end of a line is a sum of the rows at its start and of the rows that change sides on the way.
    """

    step: float = 1.0
    repeats: ClassVar[float] = 2.0


L = TypeVar("L", bound=LineState)


def search_line(state: L, ends: F64, cut_steps: F64, totals: SegmentTotals) -> tuple[L, I64, float]:
    """Move to the best of the segment's fine steps; return the state, places of cuts to take, and the loss at the end.

    The cuts are the last one up to the best step, the two after it, and the one at the end of the segment, by their
    place among step 0 and the cut steps.
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
    rounding = state.bound_loss(2 * np.abs(ends[0]) + np.abs(ends[1]))  # slopes are differences from the start
    if is_better(objectives[best], rounding, state):
        best_w = (1 - step) * ends[0] + step * ends[1]
        state = replace(state, best_w=best_w, objective=float(objectives[best]), objective_rounding=rounding)
    below = int(np.searchsorted(cut_steps, step, side="right"))  # 0 is the start
    chosen = np.unique(np.minimum([below, below + 1, below + 2, len(cut_steps)], len(cut_steps)))
    return state, chosen, float(losses[-1])
