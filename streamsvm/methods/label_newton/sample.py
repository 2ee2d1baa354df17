"""The start of Newton's method for many labels: every label's minimiser for a sample of the rows, in memory.

Each row of the sample stands for n / m rows. The steps are those of the passes, and end for a label where the next one
is expected to lower P by little: what is left is less than the difference between the sample and all rows.

Where the costs are so large that a row alone could decide, the steps would be made much shorter again and again, since
rows lose and gain curvature on the way. So P is minimised with smaller costs first, and each minimiser is the start for
costs that are STAGE times as large.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm import deadline, interrupts
from streamsvm.methods.label_newton.steps import SHARPEST, LabelNewton, State, start_state, take_step
from streamsvm.methods.label_newton.sums import BLOCK_LABELS, BLOCK_ROWS, add_totals, start_totals
from streamsvm.numeric.rows import F64, I64, CsrRows, Rows
from streamsvm.numeric.samples import weigh_rows

LITTLE = 1e-3  # of P: where the next step is expected to lower P by less, the sample is minimised
MOST_STEPS = 30  # for the same costs
ROWS_A_WEIGHT = 8  # for the curvature of a label
SMALL = 10.0  # the curvature of the loss of a row, along its own direction, up to which costs are small
STAGE = 3.0  # of costs to those before
LITTLE_BEFORE = 0.01  # of P, with costs that are not the last


def minimise_sample(settings: LabelNewton, state: State, codes: I64, sample: Rows) -> State:
    """Return the state with the minimisers of these labels for the sample as the next points, some labels at a time."""
    rows = weigh_rows(sample, settings.n_rows / sample.n_rows)
    few = min(ROWS_A_WEIGHT * (settings.n_features + 1), settings.curvature_rows)
    next_w = state.next_w.copy()
    for at in range(0, len(codes), BLOCK_LABELS):
        part = codes[at : at + BLOCK_LABELS]
        W = np.zeros((len(part), settings.n_features + 1))
        shares = choose_shares(settings, part, sample)
        # Near the optimum of small costs few rows are enough for a step; with large ones the steps are short as it is.
        n_curved = few if len(shares) == 1 else settings.curvature_rows
        # The objectives at w = 0 are not those of the sample, and none of these points is to be given up for it.
        own = replace(settings, at_zero=np.full(len(part), np.inf), tol=0.0, curvature_rows=n_curved)
        for share in shares:
            if deadline.is_over():
                break
            few_labels = replace(own, costs=share * settings.costs[part], side_by_side=len(part))
            W = _minimise(few_labels, part, rows, W, LITTLE if share == 1.0 else LITTLE_BEFORE)
        next_w[part - state.first] = W
    return replace(state, next_w=next_w)


def choose_shares(settings: LabelNewton, codes: I64, rows: Rows) -> list[float]:
    """Return the shares of the costs with which P is minimised one after the other; the last one is 1."""
    values = rows.X.data if isinstance(rows.X, CsrRows) else rows.X.reshape(-1)
    square = float(np.einsum("i,i->", values, values, dtype=np.float64)) / rows.n_rows + settings.bias_feature**2
    curvature = SHARPEST[settings.loss] * float(np.max(settings.costs[codes])) * square
    shares = [1.0]
    while curvature * shares[-1] > SMALL:
        shares.append(shares[-1] / STAGE)
    return shares[::-1]


def _minimise(settings: LabelNewton, codes: I64, rows: Rows, W: F64, little: float) -> F64:
    """Return the best points of the labels with these codes, (k, d+1), found from W (k, d+1) on."""
    state, places = replace(start_state(settings), next_w=W), np.arange(len(codes))
    for _ in range(MOST_STEPS):
        interrupts.check()
        totals = start_totals(len(places), settings.n_features + 1)
        shares = np.minimum(1.0, settings.curvature_rows / state.active[places])
        for first in range(0, rows.n_rows, BLOCK_ROWS):
            tile = rows.slice(slice(first, first + BLOCK_ROWS))
            about = settings.loss, settings.bias_feature
            add_totals(totals, tile, state.next_w[places], codes[places], settings.costs[places], shares, about)
        totals.finish()
        state = take_step(settings, state, places, totals)
        near = (state.lengths == 1.0) & (-state.slopes / 2 <= little * state.objectives) & np.isfinite(state.values)
        places = np.flatnonzero(~near & (state.statuses == ""))
        if not len(places) or deadline.is_over():
            break
    return np.where(near[:, None], state.next_w, state.best_w)  # a step that promises much may be a bad one
