"""The start of Newton's method for many labels: every label's minimiser for a sample of the rows, in memory.

Each row of the sample stands for n / m rows. The steps are those of the passes, and end for a label where the next one
is expected to lower P by little: what is left is less than the difference between the sample and all rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from streamsvm import interrupts
from streamsvm.methods.label_newton.steps import LabelNewton, State, start_state, take_step
from streamsvm.methods.label_newton.sums import BLOCK_LABELS, BLOCK_ROWS, add_totals, start_totals
from streamsvm.numeric.rows import I64, Rows
from streamsvm.numeric.samples import weigh_rows

LITTLE = 1e-3  # of P: where the next step is expected to lower P by less, the sample is minimised
MOST_STEPS = 15
ROWS_A_WEIGHT = 8  # for the curvature of a label


def minimise_sample(settings: LabelNewton, state: State, codes: I64, sample: Rows) -> State:
    """Return the state with the minimisers of these labels for the sample as the next points, some labels at a time."""
    rows = weigh_rows(sample, settings.n_rows / sample.n_rows)
    few = ROWS_A_WEIGHT * (settings.n_features + 1)
    own, next_w = replace(settings, tol=0.0, curvature_rows=min(few, settings.curvature_rows)), state.next_w.copy()
    for at in range(0, len(codes), BLOCK_LABELS):
        part = codes[at : at + BLOCK_LABELS]
        next_w[part - state.first] = _minimise(own, part, rows)
    return replace(state, next_w=next_w)


def _minimise(settings: LabelNewton, codes: I64, rows: Rows) -> npt.NDArray[np.float64]:
    """Return the best points of the labels with these codes, (k, d+1)."""
    part = replace(settings, costs=settings.costs[codes], at_zero=settings.at_zero[codes], side_by_side=len(codes))
    state, places = start_state(part), np.arange(len(codes))
    for _ in range(MOST_STEPS):
        interrupts.check()
        totals = start_totals(len(places), part.n_features + 1)
        shares = np.minimum(1.0, part.curvature_rows / state.active[places])
        for first in range(0, rows.n_rows, BLOCK_ROWS):
            tile = rows.slice(slice(first, first + BLOCK_ROWS))
            about = part.loss, part.bias_feature
            add_totals(totals, tile, state.next_w[places], codes[places], part.costs[places], shares, about)
        totals.finish()
        state = take_step(part, state, places, totals)
        near = (state.lengths == 1.0) & (-state.slopes / 2 <= LITTLE * state.objectives) & np.isfinite(state.values)
        places = np.flatnonzero(~near & (state.statuses == ""))
        if not len(places):
            break
    return np.where(np.isfinite(state.values)[:, None] & (state.lengths == 1.0)[:, None], state.next_w, state.best_w)
